//! The shares, and what each door is told of them.
//!
//! - `shares.told_when_changed`: a door is told of its shares when one of them is new, changed or
//!   gone. It leaves alone what is as before (`ServedShare::is_as_at`), so a change of one share
//!   interrupts nobody who uses another one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use larder_api::Failure;
use larder_api::share::{NORMALIZE, RECYCLE, SNAPSHOTS_SHOWN};
use larder_doors::share::ServedShare;
use larder_files::Files;
use larder_fs::Ino;
use larder_keep::Storage;
use larder_nfs::{Export, Older};
use larder_people::Door;

use super::waits::waits_or_failed;
use crate::shares::{export_path, found, rules};
use larder_config::{Config, ShareConfig};
use larder_document::Source;
use larder_document::things::Part;
use larder_document::{Kind, Standing};
use larder_servers::Servers;
use larder_servers::doors::{ORIGIN_NFS, ORIGIN_SFTP, ORIGIN_WEBDAV};
use larder_watch::Watch;

/// The purpose of the key that seals NFS handles of folders of the host.
const HANDLES: &str = "nfs handles";

pub struct SharePart {
    storage: Arc<Storage>,
    servers: Arc<Servers>,
    watch: Arc<Watch>,
    served: BTreeMap<String, Served>,
    untold: Untold,
}

/// A share of the file, and the key for handles of folders of the host.
type Wanted = (ShareConfig, [u8; 32]);

/// A share that is served, and what each door is told of it.
struct Served {
    of: Wanted,
    files: Files,
    root: Ino,
    nfs: Option<Export>,
    smb: Option<ServedShare>,
    sftp: Option<ServedShare>,
    webdav: Option<ServedShare>,
}

/// The doors that have to be told.
#[derive(Default)]
struct Untold {
    nfs: bool,
    smb: bool,
    sftp: bool,
    webdav: bool,
}

impl Untold {
    fn add(&mut self, served: &Served) {
        self.nfs |= served.nfs.is_some();
        self.smb |= served.smb.is_some();
        self.sftp |= served.sftp.is_some();
        self.webdav |= served.webdav.is_some();
    }
}

impl Served {
    /// Whether the doors would be told the same.
    fn is_of(&self, wanted: &Wanted, files: &Files, root: Ino) -> bool {
        let tree = |files: &Files| (files.id(), files.verifier(), files.handle_key(), files.is_followed());
        self.of == *wanted && self.root == root && tree(&self.files) == tree(files)
    }
}

impl SharePart {
    pub fn new(storage: &Arc<Storage>, servers: &Arc<Servers>, watch: &Arc<Watch>) -> Self {
        let (storage, servers, watch) = (Arc::clone(storage), Arc::clone(servers), Arc::clone(watch));
        Self { storage, servers, watch, served: BTreeMap::new(), untold: Untold::default() }
    }

    /// Names of users for NFS come into force with the next telling.
    pub fn tell_nfs(&mut self) {
        self.untold.nfs = true;
    }

    /// Tells the doors what changed, in the order of the file (`shares.told_when_changed`).
    pub async fn tell(&mut self, config: &Config) -> Result<(), Failure> {
        let untold = std::mem::take(&mut self.untold);
        let served = || config.shares.iter().filter_map(|share| self.served.get(&share.name));
        if untold.nfs {
            self.servers.set_exports(served().filter_map(|one| one.nfs.clone()).collect());
        }
        if untold.sftp {
            self.servers.set_sftp(served().filter_map(|one| one.sftp.clone()).collect());
        }
        if untold.webdav {
            self.servers.set_webdav(served().filter_map(|one| one.webdav.clone()).collect());
        }
        if untold.smb {
            let told = self.servers.set_shares(served().filter_map(|one| one.smb.clone()).collect()).await;
            self.untold.smb = told.is_err();
            return told;
        }
        Ok(())
    }

    fn serve(&mut self, wanted: &Wanted, tree: Files, root: Ino) {
        let (share, of_host) = wanted;
        let rules = rules(share, &tree);
        let files = if share.is_on(&SNAPSHOTS_SHOWN) { tree.showing_snapshots(root) } else { tree.clone() };
        let files = if share.is_on(&NORMALIZE) { files.ignoring_forms() } else { files };
        let files = files.guarded(self.watch.guards.of(share));
        let files = files.audited(self.watch.file_audits.of(share, &files, root));
        let files = match share.backup_bytes() {
            Some(bytes) => files.bounded(bytes),
            None => files,
        };
        let has_bin = share.number(&RECYCLE).is_some() && rules.is_writable();
        let kept = if has_bin { files.recycling(root) } else { files.clone() };
        let served = |files: Files| ServedShare { share: Arc::clone(&rules), files, root };
        let sealing = sealing(share, &files, root, *of_host);
        let export = || export(served(files.for_door(ORIGIN_NFS)), sealing);
        let served = Served {
            of: wanted.clone(),
            nfs: share.nfs_networks().is_some().then(export),
            smb: share.offers(Door::SMB).then(|| served(kept.clone())),
            sftp: share.offers(Door::Sftp).then(|| served(files.for_door(ORIGIN_SFTP))),
            webdav: share.offers(Door::Webdav).then(|| served(kept.for_door(ORIGIN_WEBDAV))),
            files: tree,
            root,
        };
        self.untold.add(&served);
        if let Some(before) = self.served.insert(share.name.clone(), served) {
            self.untold.add(&before);
        }
    }
}

impl Part for SharePart {
    type Wanted = Wanted;
    const KIND: Kind = Kind::Share;

    fn wants(source: &Source<'_>) -> Vec<(String, Wanted)> {
        let handles = source.secrets.derive(HANDLES);
        source.config.shares.iter().map(|share| (share.name.clone(), (share.clone(), handles))).collect()
    }

    async fn make(&mut self, name: &str, wanted: &Wanted) -> Standing {
        match found(&wanted.0, &self.storage).await {
            Ok((files, root)) if self.served.get(name).is_some_and(|served| served.is_of(wanted, &files, root)) => {}
            Ok((files, root)) => self.serve(wanted, files, root),
            Err(failure) => {
                self.take_away(name);
                return waits_or_failed(&self.storage, wanted.0.volume.as_ref(), failure).await;
            }
        }
        Standing::Ok
    }

    fn take_away(&mut self, name: &str) {
        if let Some(before) = self.served.remove(name) {
            self.untold.add(&before);
        }
    }
}

fn export(served: ServedShare, sealing: Sealing) -> Export {
    let Sealing { key, former_key, older_handles } = sealing;
    let ServedShare { share, files, root } = served;
    let (path, fsid) = (export_path(&share.name), fsid(&share.name));
    Export { path, files, share, fsid, root, key, former_key, older_handles }
}

/// How the handles of an export are sealed.
struct Sealing {
    key: Option<[u8; 32]>,
    former_key: Option<[u8; 32]>,
    older_handles: Older,
}

/// With the secret of the volume, or of this data folder (`of_host`) for folders of the host.
/// Handles of a folder in a volume were sealed with the latter, those of a whole volume not at all;
/// clients have such handles.
fn sealing(share: &ShareConfig, files: &Files, root: Ino, of_host: [u8; 32]) -> Sealing {
    let of_volume = files.handle_key();
    let key = of_volume.map(|key| key.secret);
    if share.volume.is_none() || root != Ino::ROOT {
        let former_key = key.and(Some(of_host));
        return Sealing { key: key.or(Some(of_host)), former_key, older_handles: Older::Refused };
    }
    let older_handles = of_volume.map_or(Older::Taken, |key| {
        let until = Duration::from_secs(key.older_until_secs.max(0) as u64);
        Older::Below(key.older_end, UNIX_EPOCH + until)
    });
    Sealing { key, former_key: None, older_handles }
}

/// The same after every restart: it is part of the handles that clients keep. FNV-1a of the share's
/// name.
fn fsid(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::fsid;

    #[test]
    fn fsids_are_stable_and_differ() {
        assert_eq!(fsid(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fsid("a"), 0xaf63_dc4c_8601_ec8c);
        assert_ne!(fsid("files"), fsid("Files"));
    }
}
