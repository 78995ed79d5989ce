//! One TOML file lists everything that is served: pools, volumes, shares, users, addresses, limits.
//!
//! It is parsed raw and validated once into [`Config`]; nothing behind this module meets an unchecked
//! string. Every complaint names the file, the line and the column. Properties that are fixed when a pool
//! is created (layout, width) are in the pool's labels, not in here; passwords are not in here either.
//!
//! - `config.unique_names`: names of pools, volumes, shares, users and groups are unique among their kind;
//!   names of shares even when case is ignored.
//! - `config.references_within`: a share's volume lies in a pool of the same file, and its users
//!   and groups are those of the same file.
//! - `config.paths_from_the_file`: relative paths are relative to the folder of the file.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};

use larder_api::{CONFIG_BYTES_MAX, Failure, SnapshotCounts, VolumeChange};
use larder_base::units::ByteSize;
pub use larder_doors::strangers::BUDGET_BYTES;
use larder_people::AuthorizedKey;
pub use larder_people::{NOBODY, Network, Squash, Writers};
use larder_sftp::CaKey;
use spanned::Spanned;

pub mod alert;
pub mod at_next_start;
pub mod differences;
#[cfg(test)]
#[path = "../../../fuzz/driver.rs"]
mod driver;
pub mod edit;
pub mod group;
pub mod machine;
pub mod may_run;
pub mod membership;
mod mount;
mod names;
pub mod nearest;
mod overlap;
mod page;
pub mod power;
mod raw;
mod raw_share;
mod replicate;
mod schedule;
pub mod schema;
pub mod share;
mod snapshots;
mod spanned;
mod store;
#[cfg(test)]
mod tests;
pub mod times;
mod ups;
pub mod user;

use alert::AlertConfig;
pub use group::GroupConfig;
pub use larder_keep::{CacheSettings, Schedule, StoreSettings, VolumeName, check_name};
use larder_web::IssuerOptions;
pub use mount::{MountConfig, mount_options};
use names::check_domain;
pub use names::check_label;
use page::USUAL_CLAIM;
pub use page::{OidcConfig, PAGE_PORT, PageConfig, PageListen};
use raw::{RawConfig, RawUser, RawVolume};
pub use replicate::{FILES_STAY_HERE, Place, REPLICATION_PORT, ReplicaConfig, ReplicateConfig, parse_limit};
pub use schedule::SelfTestSchedule;
pub use share::{ShareConfig, check_folder, check_host_folder, parse_squash};
pub use store::{BEHIND_SECONDS, parse_cache_bytes, set as set_store};
pub use ups::UpsConfig;
pub use user::UserConfig;

pub const NFS_PORT: u16 = 12049;
pub const SMB_PORT: u16 = 14445;
pub const SFTP_PORT: u16 = 10022;
pub const WEBDAV_PORT: u16 = 10080;
pub const WEBDAVS_PORT: u16 = 10443;
pub const METRICS_PORT: u16 = 9633;
/// More simultaneous connections than this (of all protocols) are refused.
pub const CONNECTIONS: u32 = 4096;
/// The word `private` stands for these: loopback and the addresses of RFC 1918 and RFC 4193. Addresses that carriers share
/// among customers (100.64.0.0/10) and that need no configuration (169.254.0.0/16, fe80::/10) belong to strangers as well.
pub const PRIVATE_NETWORKS: [&str; 6] =
    ["127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7"];

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Secrets, socket and lock live here.
    pub data: PathBuf,
    pub listen: Listen,
    /// Clients of NFS version 4 see owners as names of this domain.
    pub nfs_domain: Option<String>,
    pub webdav: WebdavConfig,
    pub page: PageConfig,
    /// Certificate authorities whose certificates let users in over SFTP: lines as in authorized_keys.
    pub ssh_ca_keys: Vec<String>,
    pub discovery: DiscoveryConfig,
    pub memory: Option<ByteSize>,
    pub connections: u32,
    /// What connections without a login may hold, at all doors together.
    pub strangers: ByteSize,
    pub self_tests: SelfTestSchedule,
    pub pools: Vec<PoolConfig>,
    /// Stores in buckets. Names of stores and pools are one kind.
    pub stores: Vec<StoreSettings>,
    pub volumes: Vec<VolumeConfig>,
    pub shares: Vec<ShareConfig>,
    pub users: Vec<UserConfig>,
    pub groups: Vec<GroupConfig>,
    pub mounts: Vec<MountConfig>,
    pub replicates: Vec<ReplicateConfig>,
    pub replicas: Vec<ReplicaConfig>,
    /// New users get no number below: those were given to users who are gone.
    pub next_uid: u32,
    pub power: power::PowerConfig,
    pub alerts: AlertConfig,
    pub ups: Option<UpsConfig>,
}

/// How WebDAV is kept from eavesdroppers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebdavConfig {
    /// Certificates and key of the owner's, in PEM; `None`: larder makes its own.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Passwords may cross the network in clear.
    pub insecure_http: bool,
    /// Proxies that are believed whose request they pass on.
    pub trusted_proxies: Vec<Network>,
}

/// How other machines find this one. Only doors that listen beyond loopback are announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryConfig {
    pub enabled: bool,
    /// The name that people see; the machine's where there is none.
    pub name: Option<String>,
    /// All with private addresses where there is none.
    pub interfaces: Vec<String>,
}

impl Default for DiscoveryConfig {
    fn default() -> Self {
        Self { enabled: true, name: None, interfaces: Vec::new() }
    }
}

/// `None`: that protocol is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    pub nfs: Option<SocketAddr>,
    pub smb: Option<SocketAddr>,
    /// Closed unless somebody asks for it.
    pub sftp: Option<SocketAddr>,
    pub webdav: Option<SocketAddr>,
    /// WebDAV over TLS.
    pub webdavs: Option<SocketAddr>,
    /// Snapshots from other machines, which are known. Closed unless somebody asks for it.
    pub replication: Option<SocketAddr>,
    pub portmapper: Option<SocketAddr>,
    /// Metrics for Prometheus, over HTTP.
    pub metrics: Option<SocketAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    pub name: String,
    pub disks: Vec<PathBuf>,
    pub scrub: Schedule,
}

/// Created when it is missing; properties named here are applied at every start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeConfig {
    pub name: VolumeName,
    pub change: VolumeChange,
    /// The key that opens it at every start, if it is encrypted.
    pub key: Option<KeySource>,
    /// How many automatic snapshots of each kind are kept; none are taken where nothing is said.
    pub snapshots: Option<SnapshotCounts>,
}

/// The source of an encrypted volume's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    File(PathBuf),
    /// A program and its arguments; what it writes to its standard output is the key.
    Command(Vec<String>),
}

impl Config {
    /// Reads and validates the file.
    pub fn load(file: &Path) -> Result<Config, Failure> {
        Config::parse(&read_text(file)?, file)
    }

    /// Validates `text` as the contents of `file`.
    pub fn parse(text: &str, file: &Path) -> Result<Config, Failure> {
        Config::parse_named(text, file, file)
    }

    /// The same; complaints call the file `named`.
    pub fn parse_named(text: &str, file: &Path, named: &Path) -> Result<Config, Failure> {
        let raw: RawConfig = toml::from_str(text).map_err(|e| Failure::invalid(located(named, text, &e)))?;
        Validator { text, file, named }.config(raw)
    }

    /// Settings that are valid and perhaps not meant, one sentence each.
    pub fn notes(&self) -> Vec<String> {
        let there = machine::memory_total();
        let memory = self.memory.filter(|memory| *memory > there).map(|memory| {
            format!("memory = \"{memory}\" is more than this machine has ({there}): it is taken for {there}")
        });
        let shares = self.shares.iter().flat_map(|share| share.notes(self));
        memory.into_iter().chain(shares).chain(user::notes(&self.users)).collect()
    }

    pub fn pool(&self, name: &str) -> Option<&PoolConfig> {
        self.pools.iter().find(|p| p.name == name)
    }

    /// Whether volumes can lie there: a pool or a store.
    /// Whether nothing is served, and nobody could log in.
    pub fn is_blank(&self) -> bool {
        let has_storage = !(self.pools.is_empty() && self.stores.is_empty() && self.volumes.is_empty());
        let has_people = !(self.users.is_empty() && self.groups.is_empty());
        !has_storage && !has_people && self.shares.is_empty() && self.mounts.is_empty() && self.replicas.is_empty()
    }

    pub fn has_ground(&self, name: &str) -> bool {
        self.pool(name).is_some() || self.stores.iter().any(|store| store.name == name)
    }

    /// The disks that were named for a pool, or those that the configuration has for it.
    pub fn disks_of(&self, name: &str, named: Vec<PathBuf>) -> Result<Vec<PathBuf>, Failure> {
        match self.pool(name) {
            _ if !named.is_empty() => Ok(named),
            Some(pool) => Ok(pool.disks.clone()),
            None => Err(Failure::not_found(format!("there is no pool '{name}' in {}", self.data.display()))
                .action("name the folders of its disks behind it")),
        }
    }
}

/// "file:line:column: what".
/// The text of a configuration.
pub fn read_text(file: &Path) -> Result<String, Failure> {
    let opened = std::fs::File::open(file).map_err(|e| unread(file, &e))?;
    text_of(opened, file)
}

fn unread(file: &Path, error: &std::io::Error) -> Failure {
    Failure::io(format_args!("cannot read the configuration {}", file.display()), error)
}

/// The same, of a file that is open; `file` is its name for people.
pub fn text_of(from: impl Read, file: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    from.take(CONFIG_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(|e| unread(file, &e))?;
    if bytes.len() > CONFIG_BYTES_MAX {
        return Err(Failure::invalid(format!("{} is too large for a configuration", file.display()))
            .action(format!("write at most {CONFIG_BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let (line, column) = position(&String::from_utf8_lossy(before), before.len());
        Failure::invalid(format!("{}:{line}:{column}: this is no UTF-8", file.display()))
            .action("save the file as UTF-8; editors call other ways of writing text UTF-16, Unicode, Latin-1 or ANSI")
    })
}

fn located(file: &Path, text: &str, error: &toml::de::Error) -> String {
    let at = error.span().map(|span| position(text, span.start));
    let what = nearest::plainly(error.message());
    match at {
        Some((line, column)) => format!("{}:{line}:{column}: {what}{}", file.display(), quoted(text, (line, column))),
        None => format!("{}: {what}", file.display()),
    }
}

/// The line itself, under the complaint about it; of a long line the part that it is about.
fn quoted(text: &str, (line, column): (usize, usize)) -> String {
    const CHARS_MAX: usize = 160;
    let Some(source) = text.lines().nth(line - 1) else { return String::new() };
    let chars = source.chars().count();
    let skipped = if chars > CHARS_MAX { (column - 1).saturating_sub(CHARS_MAX / 2).min(chars - CHARS_MAX) } else { 0 };
    let part: String = source.chars().skip(skipped).take(CHARS_MAX).collect();
    let dots = |is_cut: bool| if is_cut { "..." } else { "" };
    format!("\n  {line} | {}{}{}", dots(skipped > 0), part.trim(), dots(skipped + CHARS_MAX < chars))
}

/// Line and column (in characters) of a byte offset, both from 1.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    (line, column)
}

/// Share names appear in Windows' windows: capitals and blanks are welcome there.
pub fn check_share_name(name: &str) -> Result<(), String> {
    let bad = |c: char| c.is_control() || "\"/\\[]:;|<>+=,?*%".contains(c);
    let reserved = ["ipc$", "admin$", "print$", "global", "homes"];
    if name.is_empty() || name.len() > 80 || name.contains(bad) || name.trim() != name || name.starts_with('.') {
        return Err(format!(
            "'{name}' is not a share name: write 1 to 80 characters without \" / \\ [ ] : ; | < > + = , ? * %"
        ));
    }
    if reserved.contains(&name.to_lowercase().as_str()) {
        return Err(format!("'{name}' is reserved by the SMB protocol: choose another share name"));
    }
    Ok(())
}

pub fn check_user_name(name: &str) -> Result<(), String> {
    let bad = |c: char| c.is_control() || c.is_whitespace() || is_unseen(c) || "\"/\\[]:;|<>+=,?*%@".contains(c);
    if name.is_empty() || name.len() > 64 || name.contains(bad) || name.starts_with(['-', '.']) {
        let name = name.escape_debug();
        return Err(format!(
            "'{name}' is not a user name: write up to 64 bytes without blanks and without \" / \\ [ ] : ; | < > + = , ? * % @, not \
             beginning with '.' or '-'"
        ));
    }
    Ok(())
}

/// Characters that nobody sees, or that turn around how others are shown: with them one name looks like another.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

/// `ADDR:PORT`, `:PORT`, `PORT` or `ADDR`; `host` and `port` fill in what is not said. `off`: `None`.
pub fn parse_listen(text: &str, host: IpAddr, port: u16) -> Result<Option<SocketAddr>, String> {
    if text == "off" {
        return Ok(None);
    }
    let rest = text.strip_prefix(':').unwrap_or(text);
    let parsed = (text.parse::<SocketAddr>().ok())
        .or_else(|| rest.parse::<u16>().ok().map(|port| SocketAddr::new(host, port)))
        .or_else(|| text.parse::<IpAddr>().ok().map(|addr| SocketAddr::new(addr, port)));
    parsed.map(Some).ok_or_else(|| {
        format!("'{text}' is not an address to listen on: write 0.0.0.0:{port}, [::]:{port}, :{port}, or off")
    })
}

/// The place of the page, as it is typed.
pub fn parse_page_listen(text: &str, host: IpAddr) -> Result<PageListen, String> {
    Ok(parse_listen(text, host, PAGE_PORT)?.map_or(PageListen::Off, PageListen::At))
}

pub fn parse_network(text: &str) -> Result<Network, String> {
    text.parse().map_err(|e: larder_people::PeopleError| e.to_string())
}

pub fn private_networks() -> Vec<Network> {
    PRIVATE_NETWORKS.iter().filter_map(|text| text.parse().ok()).collect()
}

/// Whether a share that is exported to these networks is exported beyond this machine.
pub fn reach_others(networks: &[String]) -> bool {
    let is_here = |text: &String| {
        let network = text.parse::<Network>().ok();
        network.is_some_and(|network| network.address.is_loopback() && network.prefix >= 8)
    };
    !networks.iter().all(is_here)
}

/// Networks as they are typed: `private` is all private ones.
pub fn parse_networks(words: &[String]) -> Result<Vec<Network>, String> {
    let mut networks = Vec::new();
    for word in words {
        match word.as_str() {
            "private" => networks.extend(private_networks()),
            word => networks.push(parse_network(word)?),
        }
    }
    Ok(networks)
}

/// A record size as people write it; the volume wants a power of two from 4 KiB to 1 MiB.
pub fn parse_record_size(text: &str) -> Result<u32, String> {
    let size = text.parse::<ByteSize>().map_err(|e| e.to_string())?;
    if !size.0.is_power_of_two() || !(4 << 10..=1 << 20).contains(&size.0) {
        return Err(format!("'{text}' is not a record size: use a power of two from 4K to 1M"));
    }
    Ok(size.0 as u32)
}

/// `none` and `0` take the quota away.
pub fn parse_quota(text: &str) -> Result<u64, String> {
    if text == "none" {
        return Ok(0);
    }
    text.parse::<ByteSize>().map(|size| size.0).map_err(|e| e.to_string())
}

pub fn parse_compression(text: &str) -> Result<String, String> {
    text.parse().map(|compression: larder_volume::Compression| compression.to_string())
}

pub fn parse_sync(text: &str) -> Result<String, String> {
    match text {
        "standard" | "relaxed" => Ok(text.to_owned()),
        _ => Err(format!("'{text}' is not a sync mode: use standard or relaxed")),
    }
}

pub fn parse_memory(text: &str) -> Result<ByteSize, String> {
    let size = text.parse::<ByteSize>().map_err(|e| e.to_string())?;
    if size < machine::MEMORY_MIN {
        return Err(format!("{size} of memory is too little: give at least {}", machine::MEMORY_MIN));
    }
    Ok(size)
}

/// What connections without a login may hold.
fn parse_strangers(text: &str) -> Result<ByteSize, String> {
    /// Some dozens of handshakes at a time.
    const MIN: ByteSize = ByteSize(8 << 20);
    let size = text.parse::<ByteSize>().map_err(|e| e.to_string())?;
    if size < MIN {
        return Err(format!("{size} for connections that log in is too little: give at least {MIN}"));
    }
    Ok(size)
}

/// As typed for this machine.
pub fn parse_memory_here(text: &str) -> Result<ByteSize, String> {
    let size = parse_memory(text)?;
    let there = machine::memory_total();
    if size > there {
        return Err(format!("{size} of memory is more than this machine has ({there}): leave some for others"));
    }
    Ok(size)
}

/// A quota that somebody wants now; files keep whatever an older one was.
pub fn parse_quota_wanted(text: &str) -> Result<u64, String> {
    const BYTES_MIN: u64 = 1 << 20;
    let bytes = parse_quota(text)?;
    if (1..BYTES_MIN).contains(&bytes) {
        let least = ByteSize(BYTES_MIN);
        return Err(format!("a quota of {} holds next to nothing: give at least {least}, or none", ByteSize(bytes)));
    }
    Ok(bytes)
}

/// `NAME=SIZE`
pub fn parse_owner_quota(text: &str) -> Result<(String, u64), String> {
    match text.split_once('=') {
        Some((name, size)) if !name.is_empty() => Ok((name.to_owned(), parse_quota_wanted(size)?)),
        _ => Err(format!("'{text}' is not NAME=SIZE, such as ann=10GB")),
    }
}

/// Turns raw into valid, with the position of whatever is wrong.
struct Validator<'a> {
    text: &'a str,
    file: &'a Path,
    /// How complaints call it.
    named: &'a Path,
}

type Checked<T> = Result<T, Failure>;

/// Where the names are written that must not be there twice.
struct NamePlaces {
    disks: Vec<Range<usize>>,
    grounds: Vec<Range<usize>>,
    volume: Vec<Range<usize>>,
    share: Vec<Range<usize>>,
    user: Vec<Range<usize>>,
    group: Vec<Range<usize>>,
    mount: Vec<Range<usize>>,
    replicate: Vec<Range<usize>>,
    replica: Vec<Range<usize>>,
    alert: Vec<Range<usize>>,
}

impl NamePlaces {
    fn of(raw: &RawConfig) -> Self {
        fn places<T>(list: &[Spanned<T>], name: impl Fn(&T) -> &Spanned<String>) -> Vec<Range<usize>> {
            list.iter().map(|entry| name(entry.get_ref()).span()).collect()
        }
        let mut grounds = places(&raw.pool, |pool| &pool.name);
        grounds.extend(places(&raw.store, |store| &store.name));
        Self {
            disks: raw.pool.iter().flat_map(|pool| &pool.get_ref().disks).map(Spanned::span).collect(),
            grounds,
            volume: places(&raw.volume, |volume| &volume.name),
            share: places(&raw.share, |share| &share.name),
            user: places(&raw.user, |user| &user.name),
            group: places(&raw.group, |group| &group.name),
            mount: places(&raw.mount, |mount| &mount.dir),
            replicate: places(&raw.replicate, |replicate| &replicate.volume),
            replica: places(&raw.replica, |replica| &replica.name),
            alert: AlertConfig::places(&raw.alert),
        }
    }
}

impl Validator<'_> {
    fn config(&self, raw: RawConfig) -> Checked<Config> {
        let folder = self.file.parent().unwrap_or(Path::new("."));
        let places = NamePlaces::of(&raw);
        let any = IpAddr::from([0, 0, 0, 0]);
        let listen = |at: Option<Spanned<String>>, port: u16, off: bool| match at {
            Some(text) => self.at(&text, parse_listen(text.get_ref(), any, port)),
            None if off => Ok(None),
            None => Ok(Some(SocketAddr::new(any, port))),
        };
        let mut config = Config {
            data: raw.data.map_or_else(|| folder.to_owned(), |data| folder.join(data.into_inner())),
            listen: Listen {
                nfs: listen(raw.listen.nfs, NFS_PORT, false)?,
                smb: listen(raw.listen.smb, SMB_PORT, false)?,
                sftp: listen(raw.listen.sftp, SFTP_PORT, true)?,
                webdav: listen(raw.listen.webdav, WEBDAV_PORT, true)?,
                webdavs: listen(raw.listen.webdavs, WEBDAVS_PORT, true)?,
                replication: listen(raw.listen.replication, REPLICATION_PORT, true)?,
                portmapper: listen(raw.listen.portmapper, 111, true)?,
                metrics: match raw.metrics.listen {
                    Some(text) => {
                        self.at(&text, parse_listen(text.get_ref(), IpAddr::from([127, 0, 0, 1]), METRICS_PORT))?
                    }
                    None => None,
                },
            },
            nfs_domain: self.optional(raw.nfs.domain, check_domain)?,
            webdav: WebdavConfig {
                certificate: match (raw.webdav.certificate, raw.webdav.key) {
                    (Some(certificate), Some(key)) => {
                        Some((folder.join(certificate.into_inner()), folder.join(key.into_inner())))
                    }
                    (None, None) => None,
                    (Some(one), None) | (None, Some(one)) => {
                        return Err(self.wrong(&one, "a certificate and its key are named together"));
                    }
                },
                insecure_http: raw.webdav.insecure_http,
                trusted_proxies: {
                    let proxies = raw.webdav.trusted_proxies.iter();
                    proxies.map(|text| self.at(text, parse_network(text.get_ref()))).collect::<Checked<_>>()?
                },
            },
            page: self.page(raw.page, folder)?,
            discovery: DiscoveryConfig {
                enabled: raw.discovery.enabled.unwrap_or(true),
                name: self.optional(raw.discovery.name, check_label)?,
                interfaces: raw.discovery.interfaces,
            },
            memory: match raw.limits.memory {
                Some(text) => Some(self.at(&text, parse_memory(text.get_ref()))?),
                None => None,
            },
            connections: match raw.limits.connections {
                Some(n) if *n.get_ref() == 0 => return Err(self.wrong(&n, "0 connections would serve nobody")),
                Some(n) => n.into_inner(),
                None => CONNECTIONS,
            },
            strangers: match raw.limits.strangers {
                Some(text) => self.at(&text, parse_strangers(text.get_ref()))?,
                None => ByteSize(BUDGET_BYTES as u64),
            },
            self_tests: SelfTestSchedule {
                short: self.optional(raw.disks.short_test, Schedule::parse)?.unwrap_or(Schedule::Off),
                long: self.optional(raw.disks.long_test, Schedule::parse)?.unwrap_or(Schedule::Off),
            },
            pools: Vec::new(),
            stores: Vec::new(),
            volumes: Vec::new(),
            shares: Vec::new(),
            users: Vec::new(),
            groups: Vec::new(),
            ssh_ca_keys: self.keys::<CaKey>(raw.sftp.ssh_ca_keys)?,
            mounts: Vec::new(),
            replicates: Vec::new(),
            replicas: Vec::new(),
            next_uid: raw.next_uid.unwrap_or(0),
            power: self.power(raw.power)?,
            ups: raw
                .ups
                .map(|ups| UpsConfig::parse(ups, folder))
                .transpose()
                .map_err(|(place, what)| self.wrong(&Spanned::new(place, ()), what))?,
            alerts: AlertConfig::parse(raw.alert, folder)
                .map_err(|(place, what)| self.wrong(&Spanned::new(place, ()), what))?,
        };
        for pool in raw.pool {
            config.pools.push(self.pool(pool.into_inner(), folder)?);
        }
        self.no_disk_twice(&config.pools, &places.disks)?;
        for store in raw.store {
            let pools: Vec<&str> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
            let parsed = store::parse(store.into_inner(), &pools);
            config.stores.push(parsed.map_err(|(place, what)| self.wrong(&Spanned::new(place, ()), what))?);
        }
        config.users = raw.user.into_iter().map(|user| self.user(user.into_inner())).collect::<Checked<_>>()?;
        for group in raw.group {
            config.groups.push(self.group(group.into_inner(), &config)?);
        }
        for volume in raw.volume {
            config.volumes.push(self.volume(volume.into_inner(), &config, folder)?);
        }
        for share in raw.share {
            config.shares.push(self.share(share.into_inner(), &config)?);
        }
        for mount in raw.mount {
            config.mounts.push(self.mount(mount.into_inner(), &config, folder)?);
        }
        for replicate in raw.replicate {
            config.replicates.push(self.replicate(replicate.into_inner(), &config)?);
        }
        for replica in raw.replica {
            config.replicas.push(self.replica(replica.into_inner(), &config)?);
        }
        let replicates = config.replicates.iter().map(|one| format!("{} to {}", one.volume, one.to));
        self.no_name_twice("alert", config.alerts.names(), &places.alert)?;
        let grounds = config.pools.iter().map(|pool| &pool.name).chain(config.stores.iter().map(|store| &store.name));
        self.no_name_twice("replicate", replicates, &places.replicate)?;
        self.no_name_twice("replica", config.replicas.iter().map(|replica| replica.name.to_string()), &places.replica)?;
        self.no_name_twice("mount", config.mounts.iter().map(|m| m.dir.display().to_string()), &places.mount)?;
        self.no_name_twice("pool or store", grounds.cloned(), &places.grounds)?;
        self.no_name_twice("volume", config.volumes.iter().map(|v| v.name.to_string()), &places.volume)?;
        self.no_name_twice("share", config.shares.iter().map(|s| s.name.to_lowercase()), &places.share)?;
        self.no_name_twice("group", config.groups.iter().map(|g| g.name.to_lowercase()), &places.group)?;
        self.no_name_twice("user", config.users.iter().map(|u| u.name.to_lowercase()), &places.user)?;
        Ok(config)
    }

    fn page(&self, raw: raw::RawPage, folder: &Path) -> Checked<PageConfig> {
        let any = IpAddr::from([0, 0, 0, 0]);
        let listen = self.optional(raw.listen, |text| parse_page_listen(text, any))?;
        let networks = match raw.networks {
            None => private_networks(),
            Some(words) => {
                let networks =
                    words.iter().map(|word| self.at(word, parse_networks(std::slice::from_ref(word.get_ref()))));
                networks.collect::<Checked<Vec<_>>>()?.concat()
            }
        };
        let hosts =
            raw.hosts.iter().map(|host| self.at(host, page::check_host(host.get_ref()))).collect::<Checked<_>>()?;
        let oidc = raw.oidc.map(|raw| self.oidc(raw, folder)).transpose()?;
        Ok(PageConfig { listen, networks, hosts, oidc, may_run: raw.may_run })
    }

    fn oidc(&self, raw: raw::RawOidc, folder: &Path) -> Checked<OidcConfig> {
        let issuer = self.at(&raw.issuer, page::check_issuer(raw.issuer.get_ref()))?;
        let usual = page::host_of(&issuer).to_owned();
        Ok(OidcConfig {
            options: IssuerOptions {
                client_id: self.at(&raw.client_id, page::check_word(raw.client_id.get_ref()))?,
                user_claim: self.optional(raw.user_claim, page::check_word)?.unwrap_or_else(|| USUAL_CLAIM.to_owned()),
                label: self.optional(raw.label, page::check_word)?.unwrap_or(usual),
                issuer,
            },
            secret_file: raw.client_secret_file.map(|file| folder.join(file.into_inner())),
        })
    }

    fn pool(&self, raw: raw::RawPool, folder: &Path) -> Checked<PoolConfig> {
        self.at(&raw.name, check_name(raw.name.get_ref()))?;
        if raw.disks.is_empty() {
            return Err(self.wrong(&raw.name, "a pool needs at least one disk: disks = [\"/mnt/disk1\", ...]"));
        }
        let disks = raw.disks.into_iter().map(|d| folder.join(d.into_inner())).collect();
        let scrub = self.optional(raw.scrub, Schedule::parse)?.unwrap_or_default();
        Ok(PoolConfig { name: raw.name.into_inner(), disks, scrub })
    }

    fn volume(&self, raw: RawVolume, config: &Config, folder: &Path) -> Checked<VolumeConfig> {
        let key = match (raw.key_file, raw.key_command) {
            (Some(file), Some(_)) => {
                return Err(self.wrong(&file, "key_file and key_command: a volume has one of them"));
            }
            (Some(file), None) => Some(KeySource::File(folder.join(file.into_inner()))),
            (None, Some(command)) if command.get_ref().is_empty() => {
                return Err(self.wrong(&command, "key_command names a program and its arguments"));
            }
            (None, Some(command)) => Some(KeySource::Command(command.into_inner())),
            (None, None) => None,
        };
        let name = self.volume_name(&raw.name, config)?;
        let change = VolumeChange {
            record_bytes: self.optional(raw.record_size, parse_record_size)?,
            compression: self.optional(raw.compression, parse_compression)?,
            quota_bytes: self.optional(raw.quota, parse_quota)?,
            sync: self.optional(raw.sync, parse_sync)?,
            user_quotas: self.owner_quotas(raw.user_quotas)?,
            group_quotas: self.owner_quotas(raw.group_quotas)?,
        };
        let snapshots = raw.snapshots.map(|table| self.at(&table, table.get_ref().counts())).transpose()?;
        Ok(VolumeConfig { name, change, key, snapshots })
    }

    fn owner_quotas(&self, raw: BTreeMap<String, Spanned<String>>) -> Checked<BTreeMap<String, u64>> {
        let quota = |(name, size): (String, Spanned<String>)| Ok((name, self.at(&size, parse_quota(size.get_ref()))?));
        raw.into_iter().map(quota).collect()
    }

    fn mount(&self, raw: raw::RawMount, config: &Config, folder: &Path) -> Checked<MountConfig> {
        let volume = self.volume_name(&raw.volume, config)?;
        let mut options = Vec::new();
        for word in raw.options {
            options.push(word.get_ref().clone());
            self.at(&word, mount_options(&options))?;
        }
        Ok(MountConfig { dir: folder.join(raw.dir.into_inner()), volume, options, snapshot: raw.snapshot })
    }

    fn replicate(&self, raw: replicate::RawReplicate, config: &Config) -> Checked<ReplicateConfig> {
        let volume = self.volume_name(&raw.volume, config)?;
        let to = self.at(&raw.to, Place::parse(raw.to.get_ref()))?;
        if to == Place::Here(volume.clone()) {
            return Err(self.wrong(&raw.to, "a volume is no replica of itself"));
        }
        let limit = raw.limit.map(|text| self.at(&text, parse_limit(text.get_ref()))).transpose()?;
        if let Some(machine) = &raw.machine {
            self.at(machine, replicate::check_fingerprint(machine.get_ref()))?;
        }
        if raw.machine.is_none() && matches!(to, Place::Machine { .. }) {
            return Err(self.wrong(
                &raw.to,
                "the other machine is not known: pair the two with larder replicate accept there and larder replicate add here",
            ));
        }
        let late_after_hours = match raw.late_after_hours {
            Some(hours) if !(1..=replicate::HOURS_MAX).contains(hours.get_ref()) => {
                return Err(self.wrong(&hours, format!("late_after_hours is 1 to {}", replicate::HOURS_MAX)));
            }
            Some(hours) => hours.into_inner(),
            None => replicate::LATE_AFTER_HOURS,
        };
        let as_files = match raw.as_files {
            Some(files) if *files.get_ref() && !matches!(to, Place::Here(_)) => {
                return Err(self.wrong(&files, replicate::FILES_STAY_HERE));
            }
            files => files.is_some_and(Spanned::into_inner),
        };
        let machine = raw.machine.map(Spanned::into_inner);
        Ok(ReplicateConfig { volume, to, limit, machine, late_after_hours, as_files })
    }

    fn replica(&self, raw: replicate::RawReplica, config: &Config) -> Checked<ReplicaConfig> {
        let name = self.volume_name(&raw.name, config)?;
        if config.volumes.iter().any(|volume| volume.name == name) {
            return Err(self.wrong(&raw.name, format!("'{name}' is a [[volume]] as well: it is one of the two")));
        }
        let keep = raw.keep.map(|table| self.at(&table, table.get_ref().counts())).transpose()?;
        for machine in &raw.from {
            self.at(machine, replicate::check_fingerprint(machine.get_ref()))?;
        }
        let quota_bytes = self.optional(raw.quota, parse_quota)?.filter(|bytes| *bytes > 0);
        Ok(ReplicaConfig { name, keep, quota_bytes, from: raw.from.into_iter().map(Spanned::into_inner).collect() })
    }

    fn user(&self, raw: RawUser) -> Checked<UserConfig> {
        self.at(&raw.name, check_user_name(raw.name.get_ref()))?;
        let gid = raw.gid.unwrap_or(raw.uid);
        let ssh_keys = self.keys::<AuthorizedKey>(raw.ssh_keys.unwrap_or_default())?;
        let groups = raw.groups.unwrap_or_default();
        let role = self.optional(raw.role, str::parse)?.unwrap_or_default();
        Ok(UserConfig { name: raw.name.into_inner(), uid: raw.uid, gid, groups, ssh_keys, role })
    }

    /// Lines of keys, each as it is written.
    fn keys<K: std::str::FromStr<Err: fmt::Display>>(&self, lines: Vec<Spanned<String>>) -> Checked<Vec<String>> {
        let key = |line: Spanned<String>| {
            self.at(&line, line.get_ref().parse::<K>().map_err(|e| e.to_string()))?;
            Ok(line.into_inner())
        };
        lines.into_iter().map(key).collect()
    }

    fn volume_name(&self, text: &Spanned<String>, config: &Config) -> Checked<VolumeName> {
        let name = self.at(text, VolumeName::parse(text.get_ref()))?;
        if !config.has_ground(&name.pool) {
            let pools = config.pools.iter().map(|pool| pool.name.as_str());
            let stores = config.stores.iter().map(|store| store.name.as_str());
            let what = match nearest::nearest(&name.pool, pools.chain(stores)) {
                Some(known) => format!("no pool '{}', did you mean '{known}'?", name.pool),
                None => format!("no pool '{}': add a [[pool]] or a [[store]] of that name", name.pool),
            };
            return Err(self.wrong(text, what));
        }
        Ok(name)
    }

    fn optional<T>(
        &self,
        text: Option<Spanned<String>>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Checked<Option<T>> {
        text.map(|text| self.at(&text, parse(text.get_ref()))).transpose()
    }

    /// `places`: of the names, in their order.
    fn no_name_twice(&self, kind: &str, names: impl Iterator<Item = String>, places: &[Range<usize>]) -> Checked<()> {
        let mut seen = HashSet::new();
        for (name, place) in names.zip(places) {
            if seen.contains(&name) {
                return Err(self.wrong(&Spanned::new(place.clone(), ()), format!("two [[{kind}]] are named '{name}'")));
            }
            seen.insert(name);
        }
        Ok(())
    }

    fn no_disk_twice(&self, pools: &[PoolConfig], places: &[Range<usize>]) -> Checked<()> {
        let mut seen = HashSet::new();
        for (disk, place) in pools.iter().flat_map(|p| &p.disks).zip(places) {
            if !seen.insert(disk) {
                let what = format!("the disk {} is named twice", disk.display());
                return Err(self.wrong(&Spanned::new(place.clone(), ()), what));
            }
        }
        Ok(())
    }

    fn at<S, T>(&self, place: &Spanned<S>, result: Result<T, String>) -> Checked<T> {
        result.map_err(|what| self.wrong(place, what))
    }

    fn wrong<S>(&self, place: &Spanned<S>, what: impl fmt::Display) -> Failure {
        let (line, column) = position(self.text, place.span().start);
        Failure::invalid(format!(
            "{}:{line}:{column}: {what}{}",
            self.named.display(),
            quoted(self.text, (line, column))
        ))
    }
}
