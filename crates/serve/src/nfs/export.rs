//! Access to volumes: exports, their rules, and the effect of squashing on a caller.
//!
//! - `export.first_match_decides`: the first rule whose networks contain the client's address
//!   decides. Without one there is no access.
//! - `export.reserved_ports`: a rule with `secure` answers calls from ports below 1024 alone. Only root binds these on a
//!   client, so its kernel speaks, not a program of an ordinary user.
//! - `export.every_call`: rules are applied to every call, not to MNT alone: a handle by itself
//!   opens nothing.
//! - `export.nothing_outside`: an export of a folder gives access to nothing outside the folder:
//!   ".." ends at it, and handles are sealed.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use larder_base::shell;
use larder_files::Files;
use larder_fs::{Cred, Ino};

use super::handle::{ExportKey, Older, Seal};
use super::owners::Owners;
use super::rpc::Auth;

/// The uid and gid of `nobody` on Debian; other servers use it, too.
pub const ANON_ID: u32 = 65534;
/// The door of version 4, the same for all exports of a volume.
const ORIGIN_STATEFUL: u32 = u32::from_be_bytes(*b"NFS4");
/// The door of version 3's locks, the same for all exports of a volume.
const ORIGIN_LOCKS: u32 = u32::from_be_bytes(*b"NLM4");
/// Ports below this one need root on the client (IPPORT_RESERVED of netinet/in.h).
const RESERVED_PORTS_END: u16 = 1024;

/// One volume, or a folder of it, offered to clients.
#[derive(Clone)]
pub struct Export {
    /// The path that clients mount: absolute, such as "/tank".
    pub path: String,
    /// The service of its volume.
    pub files: Files,
    /// Access by network; the first rule that contains the client's address applies. Clients in none are refused.
    pub rules: Vec<Rule>,
    /// The `fsid` that clients see, unique among exports and the same after a restart: it is part of handles.
    pub fsid: u64,
    /// The directory that is offered: [`Ino::ROOT`] for the whole volume.
    pub root: Ino,
    /// A secret that handles are sealed with, the same after a restart. Without one a client that knows a handle can make up
    /// others, and enters every folder.
    pub key: Option<[u8; 32]>,
    /// The secret of before: handles that clients have from then are good.
    pub former_key: Option<[u8; 32]>,
    /// Handles without a seal that are good.
    pub older_handles: Older,
}

/// Access for some networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The networks that the rule is for.
    pub networks: Vec<Network>,
    /// Calls count from ports below 1024 alone (`export.reserved_ports`), as `secure` of exports(5).
    pub secure: bool,
    /// Changes are refused with NFS3ERR_ROFS (RFC 1813, 2.6).
    pub read_only: bool,
    /// The callers whose ids are replaced.
    pub squash: Squash,
    /// Whom squashed and unauthenticated callers become.
    pub anon_uid: u32,
    /// Their group, which also takes the place of group 0 where root is squashed.
    pub anon_gid: u32,
}

impl Rule {
    /// Reads and writes for these networks from any port, root squashed to nobody.
    pub fn read_write(networks: Vec<Network>) -> Self {
        Self { networks, secure: false, read_only: false, squash: Squash::Root, anon_uid: ANON_ID, anon_gid: ANON_ID }
    }
}

/// The reason why an export is closed to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The address of the client is in none of the networks.
    Network,
    /// The source port needs no privilege (`export.reserved_ports`).
    Port,
}

impl Refusal {
    /// The reason and the way out, for the log.
    pub fn words(self, client: SocketAddr, path: &str) -> String {
        let share = shell::word(Path::new(path.trim_start_matches('/')));
        match self {
            Self::Network => format!(
                "its address is in none of the networks that the share is exported to; to trust that machine, name it \
                 beside the others: larder share set {share} --network ADDRESS"
            ),
            Self::Port => format!(
                "it calls from port {}, which any program there may use, and the share believes ports below 1024 alone; \
                 mount as root or with resvport, or believe every program of these machines: larder share set \
                 {share} --secure=no",
                client.port()
            ),
        }
    }
}

/// Replacement of the ids that a caller claims in AUTH_SYS (RFC 5531, appendix A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// Root becomes the anonymous user.
    Root,
    /// Everybody becomes this user.
    All {
        /// Its user id.
        uid: u32,
        /// Its group id.
        gid: u32,
    },
    /// Root is root.
    None,
}

/// Addresses that share their first `prefix` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Any address of the network.
    pub address: IpAddr,
    /// Length of the prefix in bits: 0 to 32 for IPv4, 0 to 128 for IPv6.
    pub prefix: u8,
}

impl Network {
    /// The addresses that are in a network of both lists. Of two networks one lies within the other, or they have nothing in
    /// common.
    pub fn common(some: &[Self], others: &[Self]) -> Vec<Self> {
        let within = |a: &Self, b: &Self| (a.prefix >= b.prefix && b.contains(a.address)).then_some(*a);
        let pairs = some.iter().flat_map(|a| others.iter().filter_map(move |b| within(a, b).or_else(|| within(b, a))));
        let mut common: Vec<Self> = Vec::new();
        for network in pairs {
            if !common.contains(&network) {
                common.push(network);
            }
        }
        common
    }

    /// Whether `client` is in the network. An IPv4 address that is mapped into IPv6 counts as IPv4.
    pub fn contains(&self, client: IpAddr) -> bool {
        match (self.address, client.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let shift = 32u32.saturating_sub(self.prefix.into());
                (net.to_bits() ^ ip.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let shift = 128u32.saturating_sub(self.prefix.into());
                (net.to_bits() ^ ip.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// Text that is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no network: write an address or address/prefix, such as 192.168.1.0/24 or fd00::/8")]
pub struct BadNetwork(pub String);

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let bad = || BadNetwork(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u8>().map_err(|_| bad())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(bits);
        if prefix > bits { Err(bad()) } else { Ok(Self { address, prefix }) }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// An export as calls use it.
pub struct ExportState {
    pub export: Export,
    /// The service as the door of version 4, which has opens and locks.
    pub stateful: Files,
    /// The service as the door of version 3's locks.
    pub locks: Files,
    pub key: ExportKey,
    pub seal: Seal,
    /// Of all exports.
    pub owners: Arc<Owners>,
    /// The path without surplus slashes.
    pub path: String,
}

impl ExportState {
    /// The rule for a client (`export.first_match_decides`).
    pub fn rule(&self, client: SocketAddr) -> Result<&Rule, Refusal> {
        admitting(&self.export.rules, client)
    }

    /// Whether a machine may know of the export.
    pub fn shows_to(&self, client: IpAddr) -> bool {
        containing(&self.export.rules, client).is_some()
    }
}

fn containing(rules: &[Rule], client: IpAddr) -> Option<&Rule> {
    rules.iter().find(|rule| rule.networks.iter().any(|network| network.contains(client)))
}

fn admitting(rules: &[Rule], client: SocketAddr) -> Result<&Rule, Refusal> {
    let rule = containing(rules, client.ip()).ok_or(Refusal::Network)?;
    match rule.secure && client.port() >= RESERVED_PORTS_END {
        true => Err(Refusal::Port),
        false => Ok(rule),
    }
}

/// All exports of one moment; replaced as a whole.
#[derive(Default)]
pub struct Exports {
    pub list: Vec<Arc<ExportState>>,
    by_key: HashMap<ExportKey, Arc<ExportState>>,
    pub owners: Arc<Owners>,
}

impl Exports {
    pub fn new(exports: Vec<Export>, owners: Arc<Owners>) -> Self {
        let state = |export: Export| {
            let key = ExportKey { volume: *export.files.handle_id().as_bytes(), fsid: export.fsid };
            let seal = Seal::new(export.key.as_ref(), export.former_key.as_ref(), export.older_handles);
            let stateful = export.files.for_door(ORIGIN_STATEFUL);
            let locks = export.files.for_door(ORIGIN_LOCKS);
            let owners = Arc::clone(&owners);
            Arc::new(ExportState { path: normal_path(&export.path), key, seal, owners, stateful, locks, export })
        };
        let list: Vec<_> = exports.into_iter().map(state).collect();
        let by_key = list.iter().map(|state| (state.key, Arc::clone(state))).collect();
        Self { list, by_key, owners }
    }

    /// Whether any export would admit a client.
    pub fn admit(&self, client: SocketAddr) -> bool {
        self.list.iter().any(|export| export.rule(client).is_ok())
    }

    pub fn by_key(&self, key: &ExportKey) -> Option<&Arc<ExportState>> {
        self.by_key.get(key)
    }
}

/// "/a//b/" and "a/b" are both "/a/b".
fn normal_path(path: &str) -> String {
    let mut normal = String::with_capacity(path.len() + 1);
    for part in path.split('/').filter(|part| !part.is_empty()) {
        normal.push('/');
        normal.push_str(part);
    }
    if normal.is_empty() { "/".to_owned() } else { normal }
}

/// The caller as the volume sees them, by the rule's squashing.
pub fn squash(rule: &Rule, auth: &Auth<'_>) -> Cred {
    squashed(
        rule,
        match auth {
            Auth::None => None,
            Auth::Sys { uid, gid, gids, .. } => Some((*uid, *gid, gids.iter())),
        },
    )
}

/// The same of a caller's numbers: uid, gid and further groups. `None`: the caller names nobody.
pub(crate) fn squashed(rule: &Rule, caller: Option<(u32, u32, impl Iterator<Item = u32>)>) -> Cred {
    let anonymous = || Cred::new(rule.anon_uid, rule.anon_gid, []);
    match (rule.squash, caller) {
        (Squash::All { uid, gid }, _) => Cred::new(uid, gid, []),
        (_, None) => anonymous(),
        (Squash::None, Some((uid, gid, gids))) => Cred::new(uid, gid, gids.collect::<Arc<[u32]>>()),
        (Squash::Root, Some((uid, gid, gids))) => {
            let map = |gid: u32| if gid == 0 { rule.anon_gid } else { gid };
            let uid = if uid == 0 { rule.anon_uid } else { uid };
            Cred::new(uid, map(gid), gids.map(map).collect::<Arc<[u32]>>())
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::rpc::{parse_call, tests::call};
    use super::*;

    fn cred(squashed: Squash, caller: Option<(u32, u32, &[u32])>) -> Cred {
        let rule = Rule { squash: squashed, ..Rule::read_write(vec![]) };
        let bytes = call(1, 1, 1, 1, caller, &[]);
        squash(&rule, &parse_call(&bytes).unwrap().auth)
    }

    #[test]
    fn squashing() {
        let (root, user) = (Some((0, 0, &[0u32, 4][..])), Some((1000, 100, &[0u32, 4][..])));
        assert_eq!(cred(Squash::Root, root), Cred::new(ANON_ID, ANON_ID, [ANON_ID, 4]));
        assert_eq!(cred(Squash::Root, user), Cred::new(1000, 100, [ANON_ID, 4]));
        assert_eq!(cred(Squash::None, root), Cred::new(0, 0, [0, 4]));
        assert_eq!(cred(Squash::All { uid: 5, gid: 6 }, root), Cred::new(5, 6, []));
        assert_eq!(cred(Squash::All { uid: 5, gid: 6 }, None), Cred::new(5, 6, []));
        assert_eq!(cred(Squash::None, None), Cred::new(ANON_ID, ANON_ID, []));
    }

    #[test]
    fn networks() {
        let check = |network: &str, client: &str| network.parse::<Network>().unwrap().contains(client.parse().unwrap());
        assert!(check("192.168.1.0/24", "192.168.1.77"));
        assert!(check("192.168.1.0/24", "::ffff:192.168.1.77"));
        assert!(!check("192.168.1.0/24", "192.168.2.1"));
        assert!(check("0.0.0.0/0", "8.8.8.8") && !check("0.0.0.0/0", "::1"));
        assert!(check("::/0", "::1") && check("fd00::/8", "fd12::1") && !check("fd00::/8", "fe80::1"));
        assert!(check("127.0.0.1", "127.0.0.1") && !check("127.0.0.1", "127.0.0.2"));
        for bad in ["", "1.2.3.4/33", "::/129", "1.2.3/8", "1.2.3.4/", "host"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ports_that_need_no_privilege_are_refused_where_the_rule_is_secure() {
        let check = |secure: bool, client: &str, allowed: Result<(), Refusal>| {
            let rules = [Rule { secure, ..Rule::read_write(vec!["192.168.1.0/24".parse().unwrap()]) }];
            let found = admitting(&rules, client.parse().unwrap()).map(drop);
            assert_eq!(found, allowed, "{secure} {client}");
        };
        check(true, "192.168.1.7:1023", Ok(()));
        check(true, "192.168.1.7:1024", Err(Refusal::Port));
        check(true, "192.168.1.7:65535", Err(Refusal::Port));
        check(true, "[::ffff:192.168.1.7]:700", Ok(()));
        check(false, "192.168.1.7:40000", Ok(()));
        check(true, "192.168.2.7:700", Err(Refusal::Network));
        check(true, "192.168.2.7:40000", Err(Refusal::Network));
    }

    #[test]
    fn common_networks() {
        let list = |text: &str| -> Vec<Network> { text.split_whitespace().map(|word| word.parse().unwrap()).collect() };
        let check = |a: &str, b: &str, both: &str| {
            assert_eq!(Network::common(&list(a), &list(b)), list(both), "{a} and {b}");
            assert_eq!(Network::common(&list(b), &list(a)).len(), list(both).len());
        };
        check("10.0.0.0/8 ::1", "10.1.0.0/16 192.168.0.0/16 ::/0", "10.1.0.0/16 ::1");
        check("10.1.2.3", "10.0.0.0/8", "10.1.2.3");
        check("10.0.0.0/8", "fd00::/8", "");
        check("10.0.0.0/8", "10.0.0.0/8 10.0.0.0/8", "10.0.0.0/8");
        check("0.0.0.0/0", "", "");
    }

    #[test]
    fn paths() {
        assert_eq!([normal_path(""), normal_path("//a//b/"), normal_path("a")], ["/", "/a/b", "/a"]);
    }
}
