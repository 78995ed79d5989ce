//! From the configuration's shares and users to what the servers are told.

use larder_api::{ShareStatus, VolumeStatus};
use larder_serve::nfs::{self, Export, Rule};
use larder_serve::smb::{Access, Encryption, SmbShare, SmbUser};

use super::Secrets;
use super::servers::Servers;
use super::storage::Storage;
use crate::config::edit::Editor;
use crate::config::{Config, Network, PoolConfig, ShareConfig, Squash, UserConfig, VolumeName, private_networks};
use crate::machine;

/// Tag of the NFS server's volume handles in events. SMB shares and mounts choose tags of their own.
const ORIGIN_NFS: u32 = 1;

/// Gives the servers all shares and users of the configuration, and says how each fares.
pub(super) async fn apply(
    config: &Config,
    secrets: &Secrets,
    storage: &Storage,
    servers: &Servers,
) -> Vec<ShareStatus> {
    let (mut exports, mut shares, mut statuses) = (Vec::new(), Vec::new(), Vec::new());
    for share in &config.shares {
        let mut status = status(share);
        match storage.volume(&share.volume).await {
            Ok(volume) => {
                if share.nfs {
                    exports.push(export(share, volume.with_origin(ORIGIN_NFS)));
                }
                if share.smb {
                    shares.push(smb_share(share, config, volume));
                }
            }
            Err(failure) => status.fault = Some(failure.message),
        }
        statuses.push(status);
    }
    servers.set_exports(exports);
    if let Err(failure) = servers.set_shares(users(config, secrets), shares).await {
        for status in statuses.iter_mut().filter(|status| status.smb.is_some()) {
            status.fault.get_or_insert_with(|| failure.message.clone());
        }
    }
    statuses
}

fn status(share: &ShareConfig) -> ShareStatus {
    ShareStatus {
        name: share.name.clone(),
        volume: share.volume.to_string(),
        nfs: share.nfs.then(|| export_path(&share.name)),
        smb: share.smb.then(|| share.name.clone()),
        read_only: share.read_only,
        squash: share.squash.word().to_owned(),
        networks: share.networks.iter().map(Network::to_string).collect(),
        users: share.users.iter().chain(&share.read_only_users).cloned().collect(),
        fault: None,
    }
}

pub(crate) fn export_path(share: &str) -> String {
    format!("/{share}")
}

fn export(share: &ShareConfig, volume: larder_volume::Volume) -> Export {
    let squash = match share.squash {
        Squash::Root => nfs::Squash::Root,
        Squash::All => nfs::Squash::All { uid: share.anon_uid, gid: share.anon_gid },
        Squash::None => nfs::Squash::None,
    };
    let rule = Rule {
        networks: share.networks.clone(),
        read_only: share.read_only,
        squash,
        anon_uid: share.anon_uid,
        anon_gid: share.anon_gid,
    };
    Export { path: export_path(&share.name), volume, rules: vec![rule], fsid: fsid(&share.name) }
}

/// The same after every restart: it is part of the handles that clients keep. FNV-1a of the share's name.
fn fsid(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn smb_share(share: &ShareConfig, config: &Config, volume: larder_volume::Volume) -> SmbShare {
    let everybody = share.users.is_empty() && share.read_only_users.is_empty();
    let writers: Vec<String> = match everybody {
        true => config.users.iter().map(|u| u.name.clone()).collect(),
        false => share.users.clone(),
    };
    let full = if share.read_only { Access::Read } else { Access::ReadWrite };
    let readers = share.read_only_users.iter().filter(|r| !writers.contains(r)).map(|r| (r.clone(), Access::Read));
    let users = writers.iter().map(|name| (name.clone(), full)).chain(readers).collect();
    SmbShare {
        name: share.name.clone(),
        volume,
        users,
        read_only: share.read_only,
        encryption: if share.encrypt { Encryption::Required } else { Encryption::Offered },
        guest: share.guest,
    }
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
        nfs: true,
        smb: true,
        read_only: false,
        networks: private_networks(),
        squash: Squash::Root,
        anon_uid: uid,
        anon_gid: gid,
        users: Vec::new(),
        read_only_users: Vec::new(),
        encrypt: false,
        guest: false,
    }
}

/// An imported pool. One that the file knows keeps its shares; of another all volumes are shared whose names are free.
pub(crate) fn take_in(editor: &mut Editor, config: &Config, pool: &PoolConfig, volumes: &[VolumeStatus]) {
    if config.pool(&pool.name).is_some() {
        return editor.set_pool_disks(&pool.name, &pool.disks);
    }
    editor.add_pool(pool);
    for volume in volumes {
        let name = VolumeName { pool: pool.name.clone(), volume: volume.name.clone() };
        if !config.shares.iter().any(|share| share.volume == name || share.name.eq_ignore_ascii_case(&volume.name)) {
            editor.add_share(&default_share(&volume.name, name, config));
        }
    }
}

pub(crate) fn new_user(name: &str, uid: Option<u32>, gid: Option<u32>, groups: Vec<u32>) -> UserConfig {
    let (owner, group) = machine::owner();
    let uid = uid.unwrap_or(owner);
    UserConfig { name: name.to_owned(), uid, gid: gid.unwrap_or(if uid == owner { group } else { uid }), groups }
}

/// The parts that tests look at without servers.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fsids_are_stable_and_differ() {
        assert_eq!(fsid(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fsid("a"), 0xaf63_dc4c_8601_ec8c);
        assert_ne!(fsid("files"), fsid("Files"));
    }
}
