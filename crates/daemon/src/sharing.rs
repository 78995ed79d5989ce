//! Making, changing and removing shares: with a daemon and without one alike.

use std::sync::Arc;

use larder_api::share::{ENCRYPT, NFS, SETTINGS};
use larder_api::{Failure, ShareAdd, ShareChange, ShareChanged, ShareStatus};
use larder_fs::{Cred, FileKind, FsError, Ino, NameMatch, SetAttr};
use larder_keep::Storage;
use larder_volume::Volume;

use super::volumes::only_volume;
use super::{shares, translate};
use larder_config::edit::Editor;
use larder_config::group::GROUP_SIGN;
use larder_config::{
    Config, ShareConfig, VolumeName, check_folder, check_host_folder, check_share_name, parse_networks,
};
use larder_document::known::{no_such_group, no_such_user};
use larder_document::{Document, State};
use larder_document::{Kind, Standings};

/// A folder made for a share that one person or the owner of a common share has to itself.
const PRIVATE_MODE: u32 = 0o700;
/// Everybody may look in; of a common share nobody else needs to write.
const COMMON_MODE: u32 = 0o755;
/// Like /tmp: everybody may make files, nobody may remove those of others.
const SHARED_MODE: u32 = 0o1777;

/// The share as the request has it.
fn new_share(request: &ShareAdd, volume: Option<VolumeName>, config: &Config) -> Result<ShareConfig, Failure> {
    let name = &request.name;
    check_share_name(name).map_err(Failure::invalid)?;
    if config.shares.iter().any(|share| share.name.to_lowercase() == name.to_lowercase()) {
        return Err(Failure::exists(format!("there is a share '{name}' already"))
            .action(format!("change it with: larder share set {name}; or choose another name")));
    }
    let check = |folder: &str| match volume {
        Some(_) => check_folder(folder),
        None => check_host_folder(folder, config),
    };
    let folder = request.folder.as_deref().map(check).transpose().map_err(Failure::invalid)?;
    let mut share = shares::default_share(name, volume, config);
    share.folder = folder.unwrap_or_default();
    change(&mut share, &request.change, config)?;
    // Said as it is: nobody should have to know the rule to read the file.
    share.nfs = share.nfs && (share.nfs_networks().is_some() || request.change.is_on(&NFS).is_some());
    Ok(share)
}

/// Carries out what the request names.
fn change(share: &mut ShareConfig, change: &ShareChange, config: &Config) -> Result<(), Failure> {
    share.change_people(change, |entry| known_entry(config, entry))?;
    if let Some(volume) = &change.volume {
        let volume = VolumeName::parse(volume).map_err(Failure::invalid)?;
        let known = config.pool(&volume.pool).is_some();
        known.then_some(()).ok_or_else(|| Failure::not_found(format!("there is no pool '{}'", volume.pool)))?;
        if share.volume.replace(volume).is_none() {
            share.folder = String::new();
        }
    }
    if let Some(folder) = &change.folder {
        share.folder = match &share.volume {
            None => check_host_folder(folder, config).map_err(Failure::invalid)?,
            Some(_) if folder.trim_matches('/').is_empty() => String::new(),
            Some(_) => check_folder(folder).map_err(Failure::invalid)?,
        };
    }
    if change.usual_networks {
        share.networks = None;
    }
    if let Some(networks) = &change.networks {
        share.networks = Some(parse_networks(networks).map_err(Failure::invalid)?);
        share.nfs = true;
    }
    for setting in SETTINGS.into_iter().filter(|setting| !ShareChange::has_apart(setting)) {
        if let Some(asked) = change.settings.get(setting.name).filter(|asked| !asked.is_null()) {
            let set = setting.granted(asked.clone()).and_then(|value| share.set(setting, value));
            set.map_err(Failure::invalid)?;
        }
    }
    share.check().map_err(Failure::invalid)?;
    no_contradiction(share, change)
}

/// Refuses wishes of one request that cannot hold together.
fn no_contradiction(share: &ShareConfig, change: &ShareChange) -> Result<(), Failure> {
    let name = &share.name;
    let word = larder_base::shell::word(std::path::Path::new(name));
    let is_wanted = change.is_on(&NFS) == Some(true);
    if is_wanted && share.nfs_networks().is_none() {
        let message = format!(
            "the share '{name}' is for certain users, and NFS cannot tell who asks: it is exported only to networks whose \
             machines are trusted"
        );
        return Err(Failure::invalid(message)
            .action(format!("name them, as in: larder share set {word} --network 192.168.1.7; or leave NFS out")));
    }
    let exports = is_wanted || change.networks.as_ref().is_some_and(|networks| !networks.is_empty());
    if change.is_on(&ENCRYPT) == Some(true) && exports && share.nfs {
        let message = format!("the share '{name}' would refuse SMB that is not encrypted, and NFS never encrypts");
        return Err(Failure::invalid(message).action("say --nfs=no, or leave --encrypt out"));
    }
    Ok(())
}

/// A user, or a group as `@family`.
fn known_entry(config: &Config, entry: &str) -> Result<(), Failure> {
    match entry.strip_prefix(GROUP_SIGN) {
        Some(group) => no_such_group(config, group),
        None => no_such_user(config, entry),
    }
}

/// Directories that were made: the one that each is in, and its name.
type MadeFolders = Vec<(Ino, String)>;

/// Makes the folder of a new share where it is missing; the last component gets an owner and a mode that fit.
async fn make_folder(
    volume: &Volume,
    share: &ShareConfig,
    config: &Config,
    made: &mut MadeFolders,
) -> Result<(), FsError> {
    let only = share.only_user().and_then(|only| config.users.iter().find(|user| user.name == only));
    let (owner_uid, owner_gid) = share.owner();
    let (mode, uid, gid) = match only {
        Some(user) => (PRIVATE_MODE, user.uid, user.gid),
        None if share.common_owner().is_some() => (COMMON_MODE, owner_uid, owner_gid),
        None => (SHARED_MODE, owner_uid, owner_gid),
    };
    let (mut at, parts) = (Ino::ROOT, shares::parts(&share.folder));
    for (n, name) in parts.iter().enumerate() {
        let is_last = n + 1 == parts.len();
        let (mode, uid, gid) = if is_last { (mode, uid, gid) } else { (SHARED_MODE, owner_uid, owner_gid) };
        let set = SetAttr { mode: Some(mode), uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        at = match volume.mkdir(&Cred::root(), at, name.as_bytes(), set).await {
            Ok((new, _)) => {
                made.push((at, name.clone()));
                new.id.ino
            }
            Err(FsError::Exists) => {
                let found = volume.lookup(&Cred::root(), at, name.as_bytes(), NameMatch::Exact).await?;
                if found.kind != FileKind::Directory {
                    return Err(FsError::NotDirectory);
                }
                found.id.ino
            }
            Err(error) => return Err(error),
        };
    }
    Ok(())
}

/// Takes away what was made for a share that there is not after all. A folder that somebody uses by now stays.
async fn remove_folders(volume: &Volume, made: MadeFolders) {
    for (parent, name) in made.into_iter().rev() {
        if let Err(error) = volume.rmdir(&Cred::root(), parent, name.as_bytes()).await {
            return tracing::warn!("the folder '{name}', made for a share that was refused, stays: {error}");
        }
    }
}

/// Becoming common changes no file that is there.
async fn left_to_others(volume: &Volume, name: &VolumeName, share: &ShareConfig) -> Option<String> {
    let (uid, gid) = share.common_owner()?;
    let root = shares::root_of(volume, &share.folder).await.ok()?;
    let entries = volume.readdir(&Cred::root(), root.id.ino, 0, 1, false).await.ok()?.entries;
    if root.uid == uid && entries.is_empty() {
        return None;
    }
    let below = if share.folder.is_empty() { String::new() } else { format!("/{}", share.folder) };
    let below = larder_base::shell::word(std::path::Path::new(&format!("/mnt{below}")));
    Some(format!(
        "what others made in it before is still theirs: to hand it over, larder mount /mnt --volume {name}, then: sudo chown \
         -R {uid}:{gid} {below}"
    ))
}

fn no_such_share(name: &str) -> Failure {
    Failure::not_found(format!("there is no share '{name}'")).action("see which there are with: larder share list")
}

/// Changes a share in the file alone, when no daemon runs.
pub fn set_in_file(editor: &mut Editor, config: &Config, name: &str, what: &ShareChange) -> Result<(), Failure> {
    let mut share = config.shares.iter().find(|s| s.name == name).cloned().ok_or_else(|| no_such_share(name))?;
    change(&mut share, what, config)?;
    match editor.set_share(&share) {
        true => Ok(()),
        false => Err(no_such_share(name)),
    }
}

pub fn remove_in_file(editor: &mut Editor, name: &str) -> Result<(), Failure> {
    match editor.remove_share(name) {
        true => Ok(()),
        false => Err(no_such_share(name)),
    }
}

/// Shares, made and changed while a daemon serves them.
pub struct Sharing {
    pub document: Arc<Document>,
    pub storage: Arc<Storage>,
    pub standings: Standings,
}

impl Sharing {
    pub fn list(&self) -> Vec<ShareStatus> {
        let config = self.document.config();
        config.shares.iter().map(|share| self.status(share, &config)).collect()
    }

    fn status(&self, share: &ShareConfig, config: &Config) -> ShareStatus {
        shares::status(share, config, &self.standings.of(Kind::Share, &share.name))
    }

    pub async fn add(&self, request: ShareAdd) -> Result<ShareChanged, Failure> {
        let mut state = self.document.lock().await;
        let on_host = request.volume.is_none() && request.folder.as_ref().is_some_and(|folder| folder.starts_with('/'));
        if on_host {
            let share = new_share(&request, None, &state.config)?;
            // It must be there before clients are told of it.
            shares::found(&share, &self.storage).await?;
            self.document.edit(&mut state, |editor| editor.add_share(&share)).await?;
            return self.changed(&state, &share.name).await;
        }
        let (pool, volume) = match &request.volume {
            Some(name) => self.storage.find(name).await?,
            None => only_volume(&self.storage).await?,
        };
        let name = VolumeName { pool: pool.name.clone(), volume };
        let volume = pool.volume(&name.volume).await?;
        let share = new_share(&request, Some(name.clone()), &state.config)?;
        let staged = self.document.stage(|editor| editor.add_share(&share))?;
        let mut made = Vec::new();
        let folder = make_folder(&volume, &share, &state.config, &mut made).await;
        let failed = |error| translate::volume_error(format_args!("the folder '{}' of {name}", share.folder), &error);
        match folder.map_err(failed).and_then(|()| staged.commit()) {
            Ok(config) => self.document.take(&mut state, config).await,
            Err(failure) => {
                remove_folders(&volume, made).await;
                return Err(failure);
            }
        }
        self.changed(&state, &share.name).await
    }

    pub async fn set(&self, name: &str, what: ShareChange) -> Result<ShareChanged, Failure> {
        let mut state = self.document.lock().await;
        // From the file: options of this run alone are not written there.
        let set = |editor: &mut Editor| {
            let config = editor.read();
            set_in_file(editor, &config, name, &what)
        };
        self.document.try_edit(&mut state, set).await?;
        self.changed(&state, name).await
    }

    pub async fn remove(&self, name: &str) -> Result<(), Failure> {
        let mut state = self.document.lock().await;
        self.document.try_edit(&mut state, |editor| remove_in_file(editor, name)).await
    }

    async fn changed(&self, state: &State, name: &str) -> Result<ShareChanged, Failure> {
        let share = state.config.shares.iter().find(|share| share.name == name).ok_or_else(|| no_such_share(name))?;
        let mut notes = share.notes(&state.config);
        if let Some(name) = &share.volume
            && let Ok(volume) = self.storage.volume(name).await
        {
            notes.extend(left_to_others(&volume, name, share).await);
        }
        Ok(ShareChanged { share: self.status(share, &state.config), notes })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use larder_api::ShareUsers;
    use larder_api::setting::Setting;
    use larder_api::share::{COMMON, READ_ONLY};
    use larder_config::Writers;

    use super::*;

    fn config(options: &str) -> Config {
        let text = format!(
            "[[pool]]\nname = \"t\"\ndisks = [\"a\"]\n[[user]]\nname = \"ann\"\nuid = 1\n[[user]]\nname = \"bob\"\nuid = 2\n\
             [[share]]\nname = \"s\"\nvolume = \"t/v\"\n{options}\n"
        );
        Config::parse(&text, std::path::Path::new("/larder.toml")).unwrap()
    }

    #[test]
    fn wishes_that_contradict_each_other_are_refused() {
        let check = |options: &str, what: ShareChange, allowed: bool| {
            let config = config(options);
            let mut share = config.shares[0].clone();
            assert_eq!(change(&mut share, &what, &config).is_ok(), allowed, "{options} {what:?}");
        };
        let with = |settings: &[(&Setting, bool)]| {
            let mut change = ShareChange::default();
            settings.iter().for_each(|(setting, is_on)| change.set(setting, (*is_on).into()));
            change
        };
        let nfs = || with(&[(&NFS, true)]);
        let network = || Some(vec!["10.0.0.1".to_owned()]);
        check("", nfs(), true);
        check("users = [\"ann\"]", nfs(), false);
        check("users = [\"ann\"]", ShareChange { networks: network(), ..nfs() }, true);
        check("", with(&[(&NFS, true), (&ENCRYPT, true)]), false);
        check("", ShareChange { networks: network(), ..with(&[(&ENCRYPT, true)]) }, false);
        check("", with(&[(&ENCRYPT, true)]), true);
        check("", with(&[(&ENCRYPT, true), (&NFS, false)]), true);
    }

    #[test]
    fn a_change_of_a_share_is_written_and_the_rest_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("larder.toml");
        let text = "# mine\n[[pool]]\nname = \"t\"\ndisks = [\"a\"]\n\n[[user]]\nname = \"ann\"\nuid = 1\n\n# the share\n\
                    [[share]]\nname = \"s\"\nvolume = \"t/v\"   # all of it\nread_only = true\n";
        std::fs::write(&file, text).unwrap();
        let set = |what: &ShareChange| -> Result<Config, Failure> {
            let mut editor = Editor::open(&file)?;
            set_in_file(&mut editor, &Config::load(&file)?, "s", what)?;
            editor.save()
        };
        let users = Some(ShareUsers::Listed(vec!["ann".into()]));
        let share = |config: Config| config.shares.into_iter().next().unwrap();
        let mut change = ShareChange { users, ..ShareChange::default() };
        change.set(&READ_ONLY, false.into());
        let after = share(set(&change).unwrap());
        assert_eq!((after.users.clone(), after.read_only), (Writers::Listed(vec!["ann".into()]), false));
        let networks = Some(vec!["10.0.0.0/8".to_owned(), "private".to_owned()]);
        let mut change = ShareChange { networks, remove_users: vec!["ann".into()], ..ShareChange::default() };
        change.set(&COMMON, true.into());
        let after = share(set(&change).unwrap());
        assert_eq!((after.networks.as_ref().unwrap().len(), after.common), (7, true));
        assert_eq!(after.users, Writers::Listed(Vec::new()));
        let text = std::fs::read_to_string(&file).unwrap();
        for kept in ["# mine", "# the share", "# all of it"] {
            assert!(text.contains(kept), "{text}");
        }
        assert!(!text.contains("read_only"), "{text}");

        let unknown = ShareChange { users: Some(ShareUsers::Listed(vec!["eve".into()])), ..ShareChange::default() };
        assert!(set(&unknown).unwrap_err().message.contains("no user 'eve'"));
        set(&ShareChange { users: Some(ShareUsers::All), ..ShareChange::default() }).unwrap();
        let one_more = ShareChange { add_users: vec!["ann".into()], ..ShareChange::default() };
        assert!(set(&one_more).unwrap_err().message.contains("for all users"));
    }
}
