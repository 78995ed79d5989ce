//! From the configuration's shares and users to what the servers are told.

use larder_api::{Failure, FailureKind, ShareStatus, VolumeStatus};
use larder_files::Files;
use larder_serve::login::DoorUser;
use larder_serve::nfs::{self, Export, Rule};
use larder_serve::share::DoorShare;
use larder_serve::smb::{Access, Encryption, SmbShare, SmbUser};
use larder_volume::{FsError, Ino};

use super::Secrets;
use super::servers::Servers;
use super::storage::Storage;
use crate::config::edit::Editor;
use crate::config::{Config, Network, PoolConfig, ShareConfig, Squash, UserConfig, VolumeName, Writers};
use crate::machine;

/// Tags of the volume handles of NFS, SFTP and WebDAV in events. SMB shares and mounts choose tags of their own.
const ORIGIN_NFS: u32 = 1;
const ORIGIN_SFTP: u32 = u32::from_be_bytes(*b"SFTP");
const ORIGIN_WEBDAV: u32 = u32::from_be_bytes(*b"WDAV");
/// The purpose of the key that seals NFS handles of folders.
const HANDLES: &str = "nfs handles";

/// Gives the servers all shares and users of the configuration, and says how each fares.
pub(super) async fn apply(
    config: &Config,
    secrets: &Secrets,
    storage: &Storage,
    servers: &Servers,
) -> Vec<ShareStatus> {
    let (mut exports, mut shares, mut statuses) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sftp_shares, mut webdav_shares) = (Vec::new(), Vec::new());
    for share in &config.shares {
        let mut status = status(share);
        match found(share, storage).await {
            Ok((files, root)) => {
                if let Some(networks) = share.nfs_networks() {
                    let key = (root != Ino::ROOT).then(|| secrets.derive(HANDLES));
                    exports.push(export(share, networks, files.for_door(ORIGIN_NFS), root, key));
                }
                if share.sftp {
                    sftp_shares.push(door_share(share, config, files.for_door(ORIGIN_SFTP), root));
                }
                if share.webdav {
                    webdav_shares.push(door_share(share, config, files.for_door(ORIGIN_WEBDAV), root));
                }
                if share.smb {
                    shares.push(smb_share(share, config, files, root));
                }
            }
            Err(failure) => {
                status.locked = failure.kind == FailureKind::Locked;
                (status.fault, status.action) = (Some(failure.message), failure.action);
            }
        }
        statuses.push(status);
    }
    servers.set_exports(exports);
    servers.set_named_doors(door_users(config, secrets), sftp_shares, webdav_shares);
    if let Err(failure) = servers.set_shares(users(config, secrets), shares).await {
        for status in statuses.iter_mut().filter(|status| status.smb.is_some()) {
            status.fault.get_or_insert_with(|| failure.message.clone());
        }
    }
    statuses
}

/// The volume of a share and the folder in it.
async fn found(share: &ShareConfig, storage: &Storage) -> Result<(Files, Ino), Failure> {
    let files = storage.files(&share.volume).await?;
    match super::sharing::root_of(files.volume(), &share.folder).await {
        Ok(root) => Ok((files, root.id.ino)),
        Err(FsError::NotFound | FsError::NotDirectory) => {
            Err(Failure::not_found(format!("there is no folder '{}' in {}", share.folder, share.volume)))
        }
        Err(error) => Err(super::translate::volume_failure(format_args!("the share '{}'", share.name), &error)),
    }
}

fn status(share: &ShareConfig) -> ShareStatus {
    let networks = share.nfs_networks();
    let listed = listed(share);
    let readers = share.read_only_users.iter().filter(|name| !listed.contains(name));
    ShareStatus {
        name: share.name.clone(),
        volume: share.volume.to_string(),
        folder: share.folder.clone(),
        nfs: networks.as_ref().map(|_| export_path(&share.name)),
        smb: share.smb.then(|| share.name.clone()),
        read_only: share.read_only,
        squash: share.squash.word().to_owned(),
        networks: networks.iter().flatten().map(Network::to_string).collect(),
        users: listed.iter().chain(readers).cloned().collect(),
        everybody: share.guest || share.users == Writers::All,
        nfs_rule: nfs_rule(share),
        smb_rule: smb_rule(share),
        fault: None,
        locked: false,
        action: None,
    }
}

/// The users who may write, where not all may.
fn listed(share: &ShareConfig) -> &[String] {
    match &share.users {
        Writers::All => &[],
        Writers::Listed(names) => names,
    }
}

/// The NFS clients that are let in, in words.
fn nfs_rule(share: &ShareConfig) -> String {
    let Some(networks) = share.nfs_networks() else {
        return if share.nfs { "no: it is for certain users".to_owned() } else { "no".to_owned() };
    };
    let places = match &share.networks {
        None => "private networks".to_owned(),
        Some(_) if networks.is_empty() => "nowhere".to_owned(),
        Some(_) => networks.iter().map(Network::to_string).collect::<Vec<_>>().join(" "),
    };
    format!("{places}{}", if share.read_only { ", read-only" } else { "" })
}

/// The SMB users that are let in, in words.
fn smb_rule(share: &ShareConfig) -> String {
    if !share.smb {
        return "no".to_owned();
    }
    if share.guest {
        return if share.read_only { "anybody, read-only" } else { "anybody" }.to_owned();
    }
    let listed = listed(share);
    let readers: Vec<String> = share.read_only_users.iter().filter(|name| !listed.contains(name)).cloned().collect();
    let mut parts = match &share.users {
        Writers::All => vec!["all users".to_owned()],
        Writers::Listed(names) if names.is_empty() => Vec::new(),
        Writers::Listed(names) => vec![names.join(" ")],
    };
    if share.read_only && !parts.is_empty() {
        parts.push("read-only".to_owned());
    }
    if !readers.is_empty() {
        parts.push(format!("read-only: {}", readers.join(" ")));
    }
    if parts.is_empty() {
        return "nobody".to_owned();
    }
    if share.common {
        parts.push("in common".to_owned());
    }
    parts.join(", ")
}

pub(crate) fn export_path(share: &str) -> String {
    format!("/{share}")
}

fn export(share: &ShareConfig, networks: Vec<Network>, files: Files, root: Ino, key: Option<[u8; 32]>) -> Export {
    let squash = match share.squash {
        _ if share.common => nfs::Squash::All { uid: share.anon_uid, gid: share.anon_gid },
        Squash::Root => nfs::Squash::Root,
        Squash::All => nfs::Squash::All { uid: share.anon_uid, gid: share.anon_gid },
        Squash::None => nfs::Squash::None,
    };
    let rule =
        Rule { networks, read_only: share.read_only, squash, anon_uid: share.anon_uid, anon_gid: share.anon_gid };
    Export { path: export_path(&share.name), files, rules: vec![rule], fsid: fsid(&share.name), root, key }
}

/// The same after every restart: it is part of the handles that clients keep. FNV-1a of the share's name.
fn fsid(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Each user's access over SMB. A user who is listed as both writes.
fn smb_users(share: &ShareConfig, config: &Config) -> Vec<(String, Access)> {
    let full = if share.read_only { Access::Read } else { Access::ReadWrite };
    let only_reads = |name: &String| share.read_only_users.contains(name);
    let writers: Vec<&String> = match &share.users {
        Writers::All => config.users.iter().map(|u| &u.name).filter(|name| !only_reads(name)).collect(),
        Writers::Listed(names) => names.iter().collect(),
    };
    let readers = share.read_only_users.iter().filter(|r| !writers.contains(r)).map(|r| (r.clone(), Access::Read));
    writers.iter().map(|name| ((*name).clone(), full)).chain(readers).collect()
}

fn smb_share(share: &ShareConfig, config: &Config, files: Files, root: Ino) -> SmbShare {
    SmbShare {
        name: share.name.clone(),
        files,
        root,
        act_as: share.common.then_some((share.anon_uid, share.anon_gid)),
        users: smb_users(share, config),
        read_only: share.read_only,
        encryption: if share.encrypt { Encryption::Required } else { Encryption::Offered },
        guest: share.guest,
    }
}

/// The users of SMB. A guest share is open to all of them: these doors know no guests.
fn door_share(share: &ShareConfig, config: &Config, files: Files, root: Ino) -> DoorShare {
    let mut users = smb_users(share, config);
    if share.guest {
        let full = if share.read_only { Access::Read } else { Access::ReadWrite };
        users = config.users.iter().map(|user| (user.name.clone(), full)).collect();
    }
    let act_as = share.common.then_some((share.anon_uid, share.anon_gid));
    DoorShare { name: share.name.clone(), files, root, act_as, users, read_only: share.read_only }
}

/// Users who have a password or a key. The server says which password has to be set again.
fn door_users(config: &Config, secrets: &Secrets) -> Vec<DoorUser> {
    let known = config.users.iter().filter(|user| secrets.has(&user.name) || !user.ssh_keys.is_empty());
    let as_user = |user: &UserConfig| DoorUser {
        name: user.name.clone(),
        password: secrets.password_hash(&user.name).unwrap_or_else(|failure| {
            tracing::error!("user '{}' cannot log in with a password over SFTP or WebDAV: {failure}", user.name);
            None
        }),
        // Lines that are no keys were refused when the file was read.
        keys: user.ssh_keys.iter().filter_map(|line| line.parse().ok()).collect(),
        uid: user.uid,
        gid: user.gid,
        groups: user.groups.clone(),
    };
    known.map(as_user).collect()
}

/// Users who have a password. A hash that cannot be unsealed locks out its user alone.
fn users(config: &Config, secrets: &Secrets) -> Vec<SmbUser> {
    let mut users = Vec::new();
    for user in &config.users {
        match secrets.nt_hash(&user.name) {
            Ok(Some(nt_hash)) => users.push(SmbUser {
                name: user.name.clone(),
                nt_hash,
                uid: user.uid,
                gid: user.gid,
                groups: user.groups.clone(),
            }),
            Ok(None) => tracing::warn!("user '{}' has no password and cannot log in", user.name),
            Err(failure) => tracing::error!("user '{}' cannot log in: {failure}", user.name),
        }
    }
    users
}

/// A share as `up` and `volume create` make it: private networks, root is the owner.
pub(crate) fn default_share(name: &str, volume: VolumeName, config: &Config) -> ShareConfig {
    let (uid, gid) = config.users.first().map_or_else(machine::owner, |u| (u.uid, u.gid));
    ShareConfig {
        name: name.to_owned(),
        volume,
        folder: String::new(),
        nfs: true,
        smb: true,
        sftp: true,
        webdav: true,
        read_only: false,
        networks: None,
        squash: Squash::Root,
        anon_uid: uid,
        anon_gid: gid,
        users: Writers::All,
        read_only_users: Vec::new(),
        encrypt: false,
        guest: false,
        common: false,
    }
}

/// An imported pool. One that the file knows keeps its shares; of another all volumes are shared whose names are free.
pub(crate) fn take_in(editor: &mut Editor, config: &Config, pool: &PoolConfig, volumes: &[VolumeStatus]) {
    if config.has_ground(&pool.name) {
        return editor.set_pool_disks(&pool.name, &pool.disks);
    }
    editor.add_pool(pool);
    // A replica only receives.
    for volume in volumes.iter().filter(|volume| !volume.replica) {
        let name = VolumeName { pool: pool.name.clone(), volume: volume.name.clone() };
        if !config.shares.iter().any(|share| share.volume == name || share.name.eq_ignore_ascii_case(&volume.name)) {
            editor.add_share(&default_share(&volume.name, name, config));
        }
    }
}

/// The parts that tests look at without servers.
#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The servers' view of the share with `options`: its number of NFS networks, and each user's access over SMB.
    fn told(options: &str) -> (Option<usize>, Vec<(String, Access)>, ShareStatus) {
        let text = format!(
            "[[pool]]\nname = \"t\"\ndisks = [\"a\"]\n[[user]]\nname = \"ann\"\nuid = 1\n[[user]]\nname = \"bob\"\nuid = 2\n\
             [[share]]\nname = \"s\"\nvolume = \"t/v\"\n{options}\n"
        );
        let config = Config::parse(&text, std::path::Path::new("/larder.toml")).unwrap();
        let share = &config.shares[0];
        (share.nfs_networks().map(|list| list.len()), smb_users(share, &config), status(share))
    }

    #[test]
    fn a_list_of_users_closes_both_doors_to_everybody_else() {
        let (read, write) = (Access::Read, Access::ReadWrite);
        let check = |options: &str, nfs: Option<usize>, smb: &[(&str, Access)], rules: (&str, &str)| {
            let (networks, users, status) = told(options);
            let users: Vec<_> = users.iter().map(|(name, access)| (name.as_str(), *access)).collect();
            assert_eq!((networks, users.as_slice()), (nfs, smb), "{options}");
            assert_eq!((status.nfs_rule.as_str(), status.smb_rule.as_str()), rules, "{options}");
            assert_eq!(status.nfs.is_some(), nfs.is_some(), "{options}");
        };
        let private = Some(crate::config::PRIVATE_NETWORKS.len());
        let certain = "no: it is for certain users";
        let all = &[("ann", write), ("bob", write)];
        check("", private, all, ("private networks", "all users"));
        check("users = \"all\"", private, all, ("private networks", "all users"));
        check("users = []", None, &[], (certain, "nobody"));
        check("read_only_users = []", None, &[], (certain, "nobody"));
        check("users = []\nread_only_users = []", None, &[], (certain, "nobody"));
        check("users = [\"ann\"]", None, &[("ann", write)], (certain, "ann"));
        check("users = [\"ann\"]\nnfs = true", None, &[("ann", write)], (certain, "ann"));
        check("users = [\"ann\"]\nnetworks = [\"10.0.0.0/8\"]", Some(1), &[("ann", write)], ("10.0.0.0/8", "ann"));
        check("read_only_users = [\"bob\"]", None, &[("bob", read)], (certain, "read-only: bob"));
        let kids = "users = \"all\"\nread_only_users = [\"bob\"]";
        check(kids, None, &[("ann", write), ("bob", read)], (certain, "all users, read-only: bob"));
        check("nfs = false\nread_only = true", None, &[("ann", read), ("bob", read)], ("no", "all users, read-only"));
        check("networks = []\nsmb = false", Some(0), all, ("nowhere", "no"));
    }

    #[test]
    fn fsids_are_stable_and_differ() {
        assert_eq!(fsid(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fsid("a"), 0xaf63_dc4c_8601_ec8c);
        assert_ne!(fsid("files"), fsid("Files"));
    }
}
