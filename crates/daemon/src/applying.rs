//! A configuration that becomes the daemon's own, as a whole or not at all.
//!
//! - `apply.whole_or_not`: everything that can fail is tried before the file is replaced: shares are looked up, volumes
//!   made and set, mounts taken away and made. The first failure takes back what was done; file and daemon are as
//!   before.
//! - `apply.as_planned`: an application names the state of the file that its plan was made for, and is refused for
//!   another.
//! - `apply.numbers_stay_used`: `next_uid` never falls, and covers users and groups that a file leaves out
//!   (`user.numbers_never_reused`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use larder_api::{
    CONFIG_BYTES_MAX, ConfigApplied, ConfigApply, ConfigPlan, ConfigRead, ConfigText, Failure, FailureKind,
};
use larder_keep::Storage;
use larder_volume::Properties;
use sha2::{Digest, Sha256};

use super::parts::volumes::ensure;
use super::{keys, owner_quotas, shares, translate};
use larder_config::at_next_start::{as_it_runs, waiting};
use larder_config::differences::{differences, other_data_folder};
use larder_config::edit::{Editor, replace_file, replace_same};
use larder_config::{Config, MountConfig, ShareConfig, VolumeConfig, VolumeName, read_text};
use larder_document::DataFolder;
use larder_document::Look;
use larder_document::{Document, State};
use larder_document::{Kind, Standing, Standings};
use larder_servers::Mounts;

/// A file that was read, and what it would change.
struct Planned {
    plan: ConfigPlan,
    config: Config,
    /// Of the daemon's own file.
    text_now: String,
}

/// What an application did so far, to take it back.
#[derive(Default)]
struct Undo {
    made: Vec<VolumeName>,
    set: Vec<(VolumeName, Properties)>,
    unmounted: Vec<MountConfig>,
    mounted: Vec<MountConfig>,
}

pub struct Applying {
    pub document: Arc<Document>,
    pub storage: Arc<Storage>,
    pub mounts: Mounts,
    pub standings: Standings,
    pub folder: Arc<DataFolder>,
    /// Its doors and limits are those of this run (`reload.named_until_the_start`).
    pub started_with: Config,
}

impl Applying {
    pub async fn read(&self) -> Result<ConfigText, Failure> {
        let _still = self.document.lock().await;
        let text = read_text(&self.document.file)?;
        Ok(ConfigText { text, name: Some(self.document.file.clone()) })
    }

    pub async fn plan_for(&self, asked: &ConfigText) -> Result<ConfigPlan, Failure> {
        let state = self.document.lock().await;
        let named = asked.name.as_deref().unwrap_or(&self.document.file);
        self.plan(&state, &asked.text, named).map(|planned| planned.plan)
    }

    fn plan(&self, state: &State, text: &str, named: &Path) -> Result<Planned, Failure> {
        if text.len() > CONFIG_BYTES_MAX {
            let message = format!("a configuration of {} bytes is too large", text.len());
            return Err(Failure::invalid(message).action(format!("write at most {CONFIG_BYTES_MAX} bytes")));
        }
        let config = Config::parse_named(text, &self.document.file, named)?;
        let text_now = read_text(&self.document.file)?;
        let mut changes = Vec::new();
        let mut edited = true;
        let mut outranked = Vec::new();
        if let Ok(in_file) = Config::parse(&text_now, &self.document.file) {
            if in_file.data != config.data {
                changes.push(other_data_folder(self.folder.path()));
            }
            let written = differences((&in_file, &text_now), (&config, text), &self.document.file);
            outranked.extend(written.into_iter().map(|one| one.entry));
            edited = self.document.overridden(in_file) != *state.config;
        }
        let mut config = self.document.overridden(config);
        config.next_uid = config.next_uid.max(state.config.next_uid);
        changes.extend(differences((&state.config, &text_now), (&config, text), &self.document.file));
        let mut notes = config.notes();
        if !edited {
            // A difference to the file that is none to what runs.
            outranked.retain(|entry| changes.iter().all(|change| change.entry != *entry));
            notes.extend(outranked.iter().map(|entry| {
                format!("{entry} of this file counts once larder is started without the options that outrank it now")
            }));
        }
        if edited {
            let file = self.document.file.display();
            notes.push(format!("{file} was edited since larder read it, and those edits would be replaced"));
        }
        let plan = ConfigPlan { file: self.document.file.clone(), base: digest(&text_now), changes, notes };
        Ok(Planned { plan, config, text_now })
    }

    pub async fn apply(&self, asked: ConfigApply) -> Result<ConfigApplied, Failure> {
        let mut state = self.document.lock().await;
        let Planned { plan, config, text_now } = self.plan(&state, &asked.text, &self.document.file)?;
        may_be_applied(&plan, &asked)?;
        let text = with_numbers(&asked.text, &self.document.file, &state.config)?;
        let mut undo = Undo::default();
        if let Err(failure) = self.prepare(&state.config, &config, &mut undo).await {
            self.take_back(undo).await;
            return Err(failure);
        }
        if text != text_now
            && let Err(failure) = replace_same(&self.document.file, text.as_bytes(), &text_now)
        {
            self.take_back(undo).await;
            return Err(failure);
        }
        let failed_before = self.failed_shares();
        let before = self.document.put(&mut state, config);
        state.reconcile(Look::Changes).await;
        let failed = self.failed_shares().into_iter().find(|(name, _)| !failed_before.contains_key(name));
        if let Some((name, why)) = failed {
            let restored = replace_file(&self.document.file, text_now.as_bytes(), 0o600);
            self.document.put(&mut state, Arc::unwrap_or_clone(before));
            state.reconcile(Look::Changes).await;
            // They were served: somebody may have written into them.
            for name in std::mem::take(&mut undo.made) {
                tracing::warn!("the new volume {name} stays; take it away with: larder volume destroy {name}");
            }
            self.take_back(undo).await;
            restored?;
            return Err(nothing_changed(Failure::invalid(format!(
                "the share '{name}' could not be served: {}",
                why.message
            ))));
        }
        let notes = notes_on_people(&state, &before);
        if !plan.changes.is_empty() {
            tracing::info!(changes = plan.changes.len(), "applied a configuration");
        }
        Ok(ConfigApplied { plan, notes })
    }

    fn failed_shares(&self) -> BTreeMap<String, Failure> {
        let unserved = self.standings.unserved(Kind::Share).into_iter();
        let failed = |(name, standing)| match standing {
            Standing::Failed(why) => Some((name, why)),
            _ => None,
        };
        unserved.filter_map(failed).collect()
    }

    /// Everything that may fail (`apply.whole_or_not`).
    async fn prepare(&self, old: &Config, new: &Config, undo: &mut Undo) -> Result<(), Failure> {
        for share in new.shares.iter().filter(|share| !old.shares.contains(share)) {
            self.check_share(share, new).await.map_err(nothing_changed)?;
        }
        for volume in new.volumes.iter().filter(|volume| !old.volumes.contains(volume)) {
            self.prepare_volume(volume, new, undo).await.map_err(nothing_changed)?;
        }
        for mount in old.mounts.iter().filter(|mount| !new.mounts.contains(mount)) {
            if self.mounts.is_mounted(&mount.dir) {
                self.mounts.remove(&mount.dir).await.map_err(nothing_changed)?;
                undo.unmounted.push(mount.clone());
            }
        }
        for mount in new.mounts.iter().filter(|mount| !old.mounts.contains(mount)) {
            self.mounts.make(mount).await.map_err(nothing_changed)?;
            undo.mounted.push(mount.clone());
        }
        Ok(())
    }

    /// Whether a share can be served, as far as its volume can be looked at.
    async fn check_share(&self, share: &ShareConfig, new: &Config) -> Result<(), Failure> {
        if let Some(name) = &share.volume {
            let Ok(pool) = self.storage.pool(Some(&name.pool)) else { return Ok(()) };
            let text = name.to_string();
            if self.storage.is_elsewhere(&text).await || self.storage.is_closed_for_now(&text) {
                return Ok(());
            }
            let is_there = pool.volumes().await?.iter().any(|volume| volume.name == name.volume);
            let is_made = new.volumes.iter().any(|volume| volume.name == *name && volume.key.is_none());
            match (is_there, is_made) {
                (true, _) => {}
                (false, true) if share.folder.is_empty() => return Ok(()),
                (false, true) => {
                    let message = format!(
                        "the share '{}': {name} is made by this file, and has no folder '{}' yet",
                        share.name, share.folder
                    );
                    return Err(Failure::not_found(message).action(
                        "leave the share out at first; then make folder and share with: larder share add --folder",
                    ));
                }
                (false, false) => {
                    let message = format!("the share '{}': there is no volume {name}", share.name);
                    return Err(Failure::not_found(message).action(format!(
                        "make it with: larder volume create {name}; or name it: [[volume]] name = \"{name}\""
                    )));
                }
            }
        }
        match shares::found(share, &self.storage).await {
            Err(failure) if failure.kind != FailureKind::Locked => {
                Err(Failure { message: format!("the share '{}': {}", share.name, failure.message), ..failure })
            }
            _ => Ok(()),
        }
    }

    async fn prepare_volume(&self, volume: &VolumeConfig, new: &Config, undo: &mut Undo) -> Result<(), Failure> {
        let name = &volume.name;
        let Ok(pool) = self.storage.pool(Some(&name.pool)) else { return Ok(()) };
        if pool.is_read_only() || self.storage.is_elsewhere(&name.to_string()).await {
            return Ok(());
        }
        let infos = pool.registry.list().await;
        let infos = infos.map_err(|e| translate::volume_error(format_args!("the volumes of '{}'", pool.name), &e))?;
        match infos.into_iter().find(|info| info.name == name.volume) {
            Some(info) => undo.set.push((name.clone(), info.properties)),
            // One with a key is made by hand alone (`keys::unlock_configured`).
            None if volume.key.is_some() => {}
            None => undo.made.push(name.clone()),
        }
        match &volume.key {
            Some(key) => keys::unlock_configured(&self.storage, volume, key).await,
            None => ensure(&self.storage, name, &owner_quotas::numbered(&volume.change, new)?).await,
        }
    }

    /// In the opposite order. What cannot be taken back is in the log.
    async fn take_back(&self, undo: Undo) {
        let complain = |what: &str, failure: Failure| tracing::error!("{what} could not be taken back: {failure}");
        for mount in undo.mounted.iter().rev() {
            if let Err(failure) = self.mounts.remove(&mount.dir).await {
                complain("a mount", failure);
            }
        }
        for mount in undo.unmounted.iter().rev().filter(|mount| !self.mounts.is_mounted(&mount.dir)) {
            if let Err(failure) = self.mounts.make(mount).await.map(drop) {
                complain("an unmount", failure);
            }
        }
        for (name, properties) in undo.set.into_iter().rev() {
            let Ok(pool) = self.storage.pool(Some(&name.pool)) else { continue };
            if let Err(error) = pool.registry.set(&name.volume, properties).await {
                tracing::error!("the properties of {name} could not be taken back: {error}");
            }
        }
        for name in undo.made.into_iter().rev() {
            let Ok(pool) = self.storage.pool(Some(&name.pool)) else { continue };
            match pool.destroy(&name.volume).await {
                // It failed before it was made.
                Err(failure) if failure.kind == FailureKind::NotFound => {}
                Err(failure) => complain("a new volume", failure),
                Ok(()) => {}
            }
        }
    }

    /// Reads the file again. An invalid file changes nothing.
    pub async fn reload(&self) -> Result<ConfigRead, Failure> {
        let config = self.document.overridden(Config::load(&self.document.file)?);
        let mut state = self.document.lock().await;
        let at_next_start = waiting(&self.started_with, &state.config, &config);
        if !at_next_start.is_empty() {
            tracing::warn!("{} of the file take effect at the next start", at_next_start.join(", "));
        }
        let config = as_it_runs(&state.config, config);
        self.document.put(&mut state, config);
        state.reconcile(Look::All).await;
        let mut notes = state.config.notes();
        notes.extend(shares::without_nt_hash(&state.config, &state.secrets));
        for kind in [Kind::Mount, Kind::Share] {
            let unserved = self.standings.unserved(kind).into_iter();
            notes.extend(unserved.filter_map(|(thing, standing)| Some(kind.unserved(&thing, standing.why()?))));
        }
        Ok(ConfigRead { file: self.document.file.clone(), notes, at_next_start })
    }
}

fn notes_on_people(state: &State, before: &Config) -> Vec<String> {
    let was_there = |name: &str| before.users.iter().any(|user| user.name == name);
    let new = state.config.users.iter().filter(|user| !was_there(&user.name));
    let without = new.filter(|user| matches!(state.secrets.password_hash(&user.name), Ok(None)));
    let mut notes: Vec<String> =
        without.map(|user| format!("'{}' has no password yet: larder user passwd {}", user.name, user.name)).collect();
    notes.extend(shares::without_nt_hash(&state.config, &state.secrets).filter(|_| before.listen.smb.is_none()));
    let gone = before.users.iter().filter(|user| !state.config.users.iter().any(|one| one.name == user.name));
    let kept = gone.filter(|user| matches!(state.secrets.password_hash(&user.name), Ok(Some(_))));
    notes.extend(kept.map(|user| {
        format!(
            "the password of '{0}' is kept, and lets '{0}' in again should the file name that user again",
            user.name
        )
    }));
    notes
}

fn nothing_changed(failure: Failure) -> Failure {
    Failure { message: format!("{}; nothing was changed", failure.message), ..failure }
}

fn may_be_applied(plan: &ConfigPlan, asked: &ConfigApply) -> Result<(), Failure> {
    if plan.base != asked.base {
        let message = format!("{} was changed meanwhile: nothing was applied", plan.file.display());
        return Err(Failure::busy(message).action("look again with: larder config diff FILE"));
    }
    if let Some((_, refused)) = plan.refused().next() {
        return Err(nothing_changed(refused.clone()));
    }
    let waiting: Vec<&str> = plan.at_next_start().map(|change| change.entry.as_str()).collect();
    if !waiting.is_empty() && !asked.at_next_start {
        let message =
            format!("{} take effect when larder starts, and not before; nothing was changed", waiting.join(", "));
        return Err(Failure::invalid(message).action(
            "write the file now with: larder config apply FILE --at-next-start; then restart larder: systemctl restart larder",
        ));
    }
    Ok(())
}

/// `apply.numbers_stay_used`: the text itself, unless a number has to be kept from new users.
fn with_numbers(text: &str, file: &Path, before: &Config) -> Result<String, Failure> {
    let mut editor = Editor::of(text, file)?;
    match editor.keep_numbers(before)? {
        true => Ok(editor.text()),
        false => Ok(text.to_owned()),
    }
}

fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// `apply.numbers_stay_used`
    #[test]
    fn numbers_of_people_who_are_left_out_stay_used() {
        let file = Path::new("/data/larder.toml");
        let check = |before: &str, text: &str, want: &str| {
            let before = Config::parse(before, file).unwrap();
            assert_eq!(with_numbers(text, file, &before).unwrap(), want, "{text}");
        };
        let user = |uid: u32| format!("[[user]]\nname = \"u{uid}\"\nuid = {uid}\n");
        check(&user(1004), &user(1004), &user(1004));
        check(&user(1004), "# mine\n[listen]\n", "# mine\nnext_uid = 1005\n\n[listen]\n");
        check(&(user(1004) + &user(1007)), "# mine\n[listen]\n", "# mine\nnext_uid = 1008\n\n[listen]\n");
        check("next_uid = 1009\n", &user(1001), &format!("next_uid = 1009\n{}", user(1001)));
        check("next_uid = 1009\n", "next_uid = 1010\n", "next_uid = 1010\n");
        check("[[group]]\nname = \"g\"\ngid = 1500\n", "next_uid = 1010 # so\n", "next_uid = 1501 # so\n");
    }
}
