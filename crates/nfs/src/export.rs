//! Exports: shares as clients of NFS find them, each with the folder behind it and the seal of its handles.
//!
//! - `export.every_call`: [`Share::entrance`] decides about every call, not about MNT alone: a handle by itself
//!   opens nothing.
//! - `export.nothing_outside`: an export of a folder gives access to nothing outside the folder:
//!   ".." ends at it, and handles are sealed.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use larder_base::shell;
use larder_files::Files;
use larder_fs::{Cred, Ino};
use larder_people::{Door, Entrance, Reason, Rights, Share, Who};

use super::handle::{ExportKey, Older, Seal};
use super::owners::Owners;
use super::rpc::Auth;

/// The door of version 4, the same for all exports of a volume.
const ORIGIN_STATEFUL: u32 = u32::from_be_bytes(*b"NFS4");
/// The door of version 3's locks, the same for all exports of a volume.
const ORIGIN_LOCKS: u32 = u32::from_be_bytes(*b"NLM4");

/// One volume, or a folder of it, offered to clients.
#[derive(Clone)]
pub struct Export {
    /// The path that clients mount: absolute, such as "/tank".
    pub path: String,
    /// The service of its volume.
    pub files: Files,
    /// Who may come in.
    pub share: Arc<Share>,
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

/// Why a client was shut out and the way out, for the log.
pub fn refusal_words(reason: Reason<'_>, path: &str) -> String {
    let share = shell::word(Path::new(path.trim_start_matches('/')));
    match reason {
        Reason::Port(port) => format!(
            "it calls from port {port}, which any program there may use, and the share believes ports below 1024 alone; \
             mount as root or with resvport, or believe every program of these machines: larder share set \
             {share} --secure=no"
        ),
        _ => format!(
            "its address is in none of the networks that the share is exported to; to trust that machine, name it \
             beside the others: larder share set {share} --network ADDRESS"
        ),
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
    /// Whether a client may come in, or why not.
    pub fn entrance(&self, client: SocketAddr) -> Result<Rights, Reason<'_>> {
        let door = Door::Nfs { port: Some(client.port()) };
        let Entrance { rights, why } = self.export.share.entrance(Who::Machine, Some(client.ip()), door);
        rights.ok_or_else(|| why.shut_out().unwrap_or(Reason::Untrusted))
    }

    /// Whether a machine may know of the export: its ports aside.
    pub fn shows_to(&self, client: IpAddr) -> bool {
        self.export.share.entrance(Who::Machine, Some(client), Door::Nfs { port: None }).rights.is_some()
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
        self.list.iter().any(|export| export.entrance(client).is_ok())
    }

    /// As [`Exports::by_key`], where a client may know of it.
    pub fn of_client(&self, key: &ExportKey, client: IpAddr) -> Option<&Arc<ExportState>> {
        self.by_key(key).filter(|export| export.shows_to(client))
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

/// The caller as the volume sees them.
pub fn cred_of(rights: &Rights, auth: &Auth<'_>) -> Cred {
    rights.cred(match auth {
        Auth::None => None,
        Auth::Sys { uid, gid, gids, .. } => Some((*uid, *gid, gids.iter())),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use larder_people::{NOBODY, Squash};

    use super::super::rpc::{parse_call, tests::call};
    use super::*;

    fn cred(squash: Squash, anonymous: u32, caller: Option<(u32, u32, &[u32])>) -> Cred {
        let share = Share { squash, anon_uid: anonymous, anon_gid: anonymous, ..Share::new("s") };
        let rights = share.entrance(Who::Machine, None, Door::Nfs { port: None }).rights.unwrap();
        let bytes = call(1, 1, 1, 1, caller, &[]);
        cred_of(&rights, &parse_call(&bytes).unwrap().auth)
    }

    #[test]
    fn squashing() {
        let (root, user) = (Some((0, 0, &[0u32, 4][..])), Some((1000, 100, &[0u32, 4][..])));
        assert_eq!(cred(Squash::Root, NOBODY, root), Cred::new(NOBODY, NOBODY, [NOBODY, 4]));
        assert_eq!(cred(Squash::Root, NOBODY, user), Cred::new(1000, 100, [NOBODY, 4]));
        assert_eq!(cred(Squash::None, NOBODY, root), Cred::new(0, 0, [0, 4]));
        assert_eq!(cred(Squash::All, 5, root), Cred::new(5, 5, []));
        assert_eq!(cred(Squash::All, 5, None), Cred::new(5, 5, []));
        assert_eq!(cred(Squash::None, NOBODY, None), Cred::new(NOBODY, NOBODY, []));
    }

    #[test]
    fn paths() {
        assert_eq!([normal_path(""), normal_path("//a//b/"), normal_path("a")], ["/", "/a/b", "/a"]);
    }
}
