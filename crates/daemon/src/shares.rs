//! Shares of the configuration, in words and as trees.

use std::sync::Arc;

use larder_api::setting::Setting;
use larder_api::share::{NORMALIZE, SETTINGS};
use larder_api::{Failure, SharePeople, ShareStatus, VolumeStatus};
use larder_base::task;
use larder_files::Files;
use larder_fs::{Attr, Cred, FileKind, FsError, Ino, NameMatch};
use larder_keep::Storage;
use larder_people::{Door, Share};
use larder_volume::Volume;

use larder_config::edit::Editor;
use larder_config::machine;
use larder_config::{Config, Network, PoolConfig, ShareConfig, VolumeName};
use larder_document::{Secrets, Standing, Wait};

/// The rules of a share as the doors have them. Where the files follow another machine's, a client is told beforehand that
/// nothing can be changed.
pub(super) fn rules(share: &ShareConfig, files: &Files) -> Arc<Share> {
    Arc::new(Share { read_only: !share.is_writable() || files.is_followed(), ..share.rules.clone() })
}

/// The tree of a share and the folder in it.
pub(super) async fn found(share: &ShareConfig, storage: &Storage) -> Result<(Files, Ino), Failure> {
    let Some(volume) = &share.volume else { return found_on_host(share, storage).await };
    let files = storage.files(volume).await?;
    match root_of(&storage.volume(volume).await?, &share.folder).await {
        Ok(root) => Ok((files, root.id.ino)),
        Err(FsError::NotFound | FsError::NotDirectory) => {
            Err(Failure::not_found(format!("there is no folder '{}' in {volume}", share.folder)))
        }
        Err(error) => Err(super::translate::volume_error(format_args!("the share '{}'", share.name), &error)),
    }
}

/// The names of a path within a volume.
pub(super) fn parts(folder: &str) -> Vec<String> {
    folder.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The directory that a share shows, if it is there.
pub(super) async fn root_of(volume: &Volume, folder: &str) -> Result<Attr, FsError> {
    let mut at = volume.getattr(Ino::ROOT).await?;
    for name in parts(folder) {
        at = volume.lookup(&Cred::root(), at.id.ino, name.as_bytes(), NameMatch::Exact).await?;
        if at.kind != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
    }
    Ok(at)
}

/// A folder of the host. It must be there: an empty one in its place would look like a loss.
async fn found_on_host(share: &ShareConfig, storage: &Storage) -> Result<(Files, Ino), Failure> {
    let (folders, path) = (storage.folders.clone(), std::path::PathBuf::from(&share.folder));
    let opened = task::blocking(move || folders.open(&path)).await;
    let found = match opened.map_err(|_| Failure::internal("opening a folder broke off"))? {
        Ok(found) => found,
        Err(FsError::NotFound | FsError::NotDirectory) => {
            let message = format!("there is no folder {} on this machine", share.folder);
            return Err(Failure::not_found(message).action("make or mount it, then restart larder or send it SIGHUP"));
        }
        Err(error) => {
            let what = format_args!("the folder {} of this machine", share.folder);
            return Err(super::translate::volume_error(what, &error));
        }
    };
    if !found.survives_restart {
        tracing::warn!(
            "share '{}': the filesystem of {} gives no lasting handles, or larder may not open them (CAP_DAC_READ_SEARCH), \
             so NFS clients have to look files up again after larder restarts",
            share.name,
            share.folder
        );
    }
    Ok((found.files, found.top))
}

/// A share with its standing, as commands and the page show it.
pub(super) fn status(share: &ShareConfig, config: &Config, standing: &Standing) -> ShareStatus {
    let networks = share.nfs_networks();
    // Of NFS alone, and it is closed.
    let is_moot = |setting: &Setting| setting.nfs_alone && !share.offers(Door::NFS);
    let values = || SETTINGS.into_iter().map(|setting| (setting, share.value(setting)));
    let own = values().filter(|(setting, value)| !ShareStatus::has_apart(setting) && !value.is_null());
    let options = values().filter(|(setting, _)| !is_moot(setting));
    ShareStatus {
        name: share.name.clone(),
        volume: share.volume.as_ref().map(VolumeName::to_string).unwrap_or_default(),
        folder: share.folder.clone(),
        nfs: networks.as_ref().map(|_| export_path(&share.name)),
        smb: share.offers(Door::SMB).then(|| share.name.clone()),
        networks: networks.iter().flatten().map(Network::to_string).collect(),
        reached: config.ways_around(share),
        people: SharePeople::new(share.writers(), share.readers(), share.is_for_all()),
        nfs_rule: nfs_rule(share),
        smb_rule: smb_rule(share),
        options: options.filter_map(|(setting, value)| setting.word(&value)).collect(),
        fault: standing.why().map(|why| why.message.clone()),
        rests: standing.wait() == Some(Wait::Elsewhere),
        locked: standing.wait() == Some(Wait::Key),
        action: standing.why().and_then(|why| why.action.clone()),
        settings: own.map(|(setting, value)| (setting.name.to_owned(), value)).collect(),
    }
}

/// The NFS clients that are let in, in words.
fn nfs_rule(share: &ShareConfig) -> String {
    match share.nfs_places() {
        Some(places) => format!("{places}{}", if share.is_writable() { "" } else { ", read-only" }),
        None if share.offers(Door::NFS) => "no: it is for certain users".to_owned(),
        None => "no".to_owned(),
    }
}

/// How NFS of a share is opened to one more machine.
pub(super) fn opening(share: &ShareConfig) -> String {
    let word = larder_base::shell::word(std::path::Path::new(&share.name));
    let others: String = share.networks.iter().flatten().map(|network| format!(" --network {network}")).collect();
    format!("to trust one more machine or network: larder share set {word}{others} --network ADDRESS")
}

/// The SMB users that are let in, in words.
fn smb_rule(share: &ShareConfig) -> String {
    if !share.offers(Door::SMB) {
        return "no".to_owned();
    }
    if share.lets_in_guests() {
        return if share.is_writable() { "anybody" } else { "anybody, read-only" }.to_owned();
    }
    let readers = share.readers();
    let mut parts = match share.writers() {
        _ if share.is_for_all() => vec!["all users".to_owned()],
        [] => Vec::new(),
        names => vec![names.join(" ")],
    };
    if !share.is_writable() && !parts.is_empty() {
        parts.push("read-only".to_owned());
    }
    if !readers.is_empty() {
        parts.push(format!("read-only: {}", readers.join(" ")));
    }
    if parts.is_empty() {
        return "nobody".to_owned();
    }
    if share.common_owner().is_some() {
        parts.push("in common".to_owned());
    }
    parts.join(", ")
}

pub fn export_path(share: &str) -> String {
    format!("/{share}")
}

/// Users of this configuration who may not log in with a password, in one line for all. A key, a certificate or a token may
/// let them in.
pub(super) fn without_password(config: &Config, secrets: &Secrets) -> Option<String> {
    let names = users_who(config, |name| !secrets.has(name));
    let set = format!("set one with: larder user passwd {}", shell_word(names.first()?));
    Some(match names.as_slice() {
        [only] => format!("the user '{only}' has no password and cannot log in with one; {set}"),
        many => format!("{} users have no password and cannot log in with one: {}; {set}", many.len(), some_of(many)),
    })
}

/// Users whose password has to be set again before it opens SMB, in one line for all (`secrets.nt_hash_for_smb_alone`).
pub(super) fn without_nt_hash(config: &Config, secrets: &Secrets) -> Option<String> {
    config.listen.smb?;
    let names = users_who(config, |name| secrets.lacks_nt_hash(name));
    let set = format!("set it again with: larder user passwd {}", shell_word(names.first()?));
    Some(match names.as_slice() {
        [only] => format!("the password of '{only}' does not open SMB: it was set while SMB was not served; {set}"),
        many => format!(
            "the passwords of {} users do not open SMB: they were set while SMB was not served: {}; {set}",
            many.len(),
            some_of(many)
        ),
    })
}

fn users_who(config: &Config, is_meant: impl Fn(&str) -> bool) -> Vec<&str> {
    config.users.iter().map(|user| user.name.as_str()).filter(|name| is_meant(name)).collect()
}

fn shell_word(name: &str) -> String {
    larder_base::shell::word(std::path::Path::new(name)).to_string()
}

/// NFS is answered to this machine unless a share says otherwise: whoever waits for another machine
/// should know at once.
pub(super) fn closed_to_others(config: &Config, listen: std::net::SocketAddr) -> Option<String> {
    if listen.ip().is_loopback() {
        return None;
    }
    let closed = config.shares.iter().filter(|share| share.networks.is_none() && share.nfs_networks().is_some());
    let names: Vec<&str> = closed.map(|share| share.name.as_str()).collect();
    let first = larder_base::shell::word(std::path::Path::new(names.first()?));
    let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    Some(format!(
        "NFS is answered to this machine alone by {}, which name no networks: NFS believes every machine about its users; to \
         open it to one machine or a network: larder share set {first} --network 192.168.1.7; to all private networks, as \
         earlier builds did: --network private",
        names.join(", ")
    ))
}

/// The first few names, and how many more there are.
fn some_of(names: &[&str]) -> String {
    const NAMED_MAX: usize = 5;
    let named = names.iter().take(NAMED_MAX).map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// A share as `up` and `volume create` make it: NFS for this machine alone, root is the owner.
pub fn default_share(name: &str, volume: Option<VolumeName>, config: &Config) -> ShareConfig {
    let (uid, gid) = config.users.first().map_or_else(machine::owner, |u| (u.uid, u.gid));
    let mut share = ShareConfig::new(Share { anon_uid: uid, anon_gid: gid, ..Share::new(name) }, volume);
    // A declared value cannot be refused.
    let _ = share.set(&NORMALIZE, true.into());
    share
}

/// An imported pool. One that the file knows keeps its shares; of another all volumes are shared whose names are free.
pub fn take_in(editor: &mut Editor, config: &Config, pool: &PoolConfig, volumes: &[VolumeStatus]) {
    if config.has_ground(&pool.name) {
        editor.set_pool_disks(&pool.name, &pool.disks);
        return;
    }
    editor.add_pool(pool);
    // A replica only receives.
    for volume in volumes.iter().filter(|volume| !volume.replica) {
        let name = VolumeName { pool: pool.name.clone(), volume: volume.name.clone() };
        if !config
            .shares
            .iter()
            .any(|share| share.volume.as_ref() == Some(&name) || share.name.eq_ignore_ascii_case(&volume.name))
        {
            editor.add_share(&default_share(&volume.name, Some(name), config));
        }
    }
}

/// The parts that tests look at without servers.
#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use larder_config::UserConfig;
    use larder_document::NtHashes;

    fn config(options: &str) -> Config {
        let text = format!(
            "[[pool]]\nname = \"t\"\ndisks = [\"a\"]\n[[user]]\nname = \"ann\"\nuid = 1\n[[user]]\nname = \"bob\"\nuid = 2\n\
             [[share]]\nname = \"s\"\nvolume = \"t/v\"\n{options}\n"
        );
        Config::parse(&text, std::path::Path::new("/larder.toml")).unwrap()
    }

    /// The servers' view of the share with `options`: its number of NFS networks, and each user's
    /// access over SMB.
    fn told(options: &str) -> (Option<usize>, Vec<(String, bool)>, ShareStatus) {
        let config = config(options);
        let share = &config.shares[0];
        let user = |user: &UserConfig| Some((user.name.clone(), share.writes_by_lists(&config.person(user))?));
        let users = config.users.iter().filter_map(user).collect();
        (share.nfs_networks().map(|list| list.len()), users, status(share, &config, &Standing::Ok))
    }

    #[test]
    fn shares_that_are_closed_to_other_machines_are_noted() {
        let check = |options: &str, listen: &str, noted: bool| {
            let note = closed_to_others(&config(options), listen.parse().unwrap());
            assert_eq!(note.is_some(), noted, "{options} {listen}: {note:?}");
        };
        check("", "0.0.0.0:12049", true);
        check("", "192.168.1.5:12049", true);
        check("", "[::]:12049", true);
        check("", "127.0.0.1:12049", false);
        check("", "[::1]:12049", false);
        check("networks = [\"203.0.113.0/24\"]", "0.0.0.0:12049", false);
        check("nfs = false", "0.0.0.0:12049", false);
        check("users = [\"ann\"]", "0.0.0.0:12049", false);
    }

    #[test]
    fn a_list_of_users_closes_both_doors_to_everybody_else() {
        let (read, write) = (false, true);
        let check = |options: &str, nfs: Option<usize>, smb: &[(&str, bool)], rules: (&str, &str)| {
            let (networks, users, status) = told(options);
            let users: Vec<_> = users.iter().map(|(name, access)| (name.as_str(), *access)).collect();
            assert_eq!((networks, users.as_slice()), (nfs, smb), "{options}");
            assert_eq!((status.nfs_rule.as_str(), status.smb_rule.as_str()), rules, "{options}");
            assert_eq!(status.nfs.is_some(), nfs.is_some(), "{options}");
        };
        let here = Some(larder_people::LOOPBACK.len());
        let certain = "no: it is for certain users";
        let all = &[("ann", write), ("bob", write)];
        check("", here, all, ("this machine", "all users"));
        check("users = \"all\"", here, all, ("this machine", "all users"));
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
    fn a_status_tells_readers_from_writers() {
        let check = |options: &str, users: &[&str], readers: &[&str]| {
            let (_, _, status) = told(options);
            assert_eq!(
                (status.people.users, status.people.read_only_users),
                (owned(users), owned(readers)),
                "{options}"
            );
        };
        check("users = [\"ann\"]\nread_only_users = [\"bob\"]", &["ann", "bob"], &["bob"]);
        check("users = \"all\"\nread_only_users = [\"bob\"]", &["bob"], &["bob"]);
        check("users = [\"ann\"]\nread_only_users = [\"ann\"]", &["ann"], &[]);
    }

    #[test]
    fn users_without_a_password_are_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let mut secrets = Secrets::open(folder.path()).unwrap();
        let config = |count: usize| {
            let text: String = (0..count).map(|n| format!("[[user]]\nname = \"u{n}\"\nuid = {}\n", 1000 + n)).collect();
            Config::parse(&text, std::path::Path::new("/larder.toml")).unwrap()
        };
        let said = |count: usize, secrets: &Secrets| without_password(&config(count), secrets);
        assert_eq!(said(0, &secrets), None);
        assert!(said(1, &secrets).unwrap().starts_with("the user 'u0' has no password"));
        assert!(
            said(2, &secrets).unwrap().starts_with("2 users have no password and cannot log in with one: 'u0', 'u1'; ")
        );
        let many = said(500, &secrets).unwrap();
        assert!(many.contains("500 users") && many.contains("'u4' and 495 more; ") && many.len() < 200, "{many}");
        secrets.set("u0", "Pantry-Shelf-42", NtHashes::Kept).unwrap();
        assert_eq!(said(1, &secrets), None);
        assert!(said(3, &secrets).unwrap().contains("2 users") && !said(3, &secrets).unwrap().contains("u0"));
    }

    #[test]
    fn passwords_that_do_not_open_smb_are_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let mut secrets = Secrets::open(folder.path()).unwrap();
        let config = |head: &str| {
            let text = format!("{head}[[user]]\nname = \"ann\"\nuid = 1\n[[user]]\nname = \"bob\"\nuid = 2\n");
            Config::parse(&text, std::path::Path::new("/larder.toml")).unwrap()
        };
        let open = config("[listen]\nsmb = \":14445\"\n");
        assert_eq!(without_nt_hash(&open, &secrets), None);
        secrets.set("ann", "Pantry-Shelf-42", NtHashes::LeftOut).unwrap();
        assert!(without_nt_hash(&open, &secrets).unwrap().starts_with("the password of 'ann' does not open SMB: "));
        secrets.set("bob", "Pantry-Shelf-42", NtHashes::LeftOut).unwrap();
        assert!(without_nt_hash(&open, &secrets).unwrap().contains(" 2 users do not open SMB: "));
        assert_eq!(without_nt_hash(&config("[listen]\nsmb = \"off\"\n"), &secrets), None);
    }

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }
}
