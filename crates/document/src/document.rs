//! The configuration of this daemon: its file, what runs of it, and the lock under which it
//! changes.
//!
//! - `daemon.one_lock`: the file, secrets and tokens, and what is made of them, change under one
//!   lock: the file is saved first, then applied. After a crash between the two the next start
//!   applies the file.
//! - `document.read_at_once`: the configuration that runs is read without the lock: nobody who asks
//!   waits for a change.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_api::Failure;
use larder_keep::export;
use parking_lot::RwLock;
use tokio::sync::{Mutex, MutexGuard};

use crate::secrets::Secrets;
use crate::things::{Look, Reconcile, Source};
use crate::tokens::Tokens;
use larder_config::Config;
use larder_config::edit::{Editor, Saved, Staged};

/// Changes to the configuration that hold for this run only: options of the command line.
pub type Overrides = Box<dyn Fn(&mut Config) + Send + Sync>;

pub struct Document {
    pub file: PathBuf,
    overrides: Overrides,
    running: RwLock<Arc<Config>>,
    /// What was saved last.
    saved: parking_lot::Mutex<Option<Saved>>,
    state: Mutex<State>,
}

/// The state that changes together (`daemon.one_lock`).
pub struct State {
    pub config: Arc<Config>,
    pub secrets: Secrets,
    pub tokens: Tokens,
    parts: Box<dyn Reconcile>,
}

impl State {
    /// Brings the parts in line with what is wanted.
    pub async fn reconcile(&mut self, look: Look) {
        let Self { config, secrets, tokens, parts } = self;
        parts.reconcile(&Source { config, secrets, tokens }, look).await;
    }
}

impl Document {
    /// With the people of the data folder.
    ///
    /// # Errors
    /// The people cannot be read.
    pub fn open(
        (file, overrides): (PathBuf, Overrides),
        config: Config,
        data: &Path,
        parts: Box<dyn Reconcile>,
    ) -> Result<Self, Failure> {
        let secrets = Secrets::open(data)?;
        let tokens = Tokens::open(data, &secrets)?;
        let config = Arc::new(config);
        let running = RwLock::new(Arc::clone(&config));
        let saved = parking_lot::Mutex::default();
        Ok(Self { file, overrides, running, saved, state: Mutex::new(State { config, secrets, tokens, parts }) })
    }

    /// What runs (`document.read_at_once`).
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.running.read())
    }

    /// `daemon.one_lock`
    pub async fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().await
    }

    /// This configuration runs from now on, and nothing is made of it yet. Returns the one before.
    pub fn put(&self, state: &mut State, config: Config) -> Arc<Config> {
        let config = Arc::new(config);
        *self.running.write() = Arc::clone(&config);
        std::mem::replace(&mut state.config, config)
    }

    /// Applies the options of this run to what was read from the file.
    pub fn overridden(&self, mut config: Config) -> Config {
        (self.overrides)(&mut config);
        config
    }

    /// Edits the file, validates and saves it, and applies what it says now.
    pub async fn try_edit<T>(
        &self,
        state: &mut State,
        change: impl FnOnce(&mut Editor) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut editor = self.editor()?;
        let value = change(&mut editor)?;
        self.take(state, editor.stage()?.commit()?).await;
        Ok(value)
    }

    /// As [`Document::try_edit`], of a change whose answer does not matter.
    pub async fn edit<T>(&self, state: &mut State, change: impl FnOnce(&mut Editor) -> T) -> Result<(), Failure> {
        let saved = self.stage(change)?.commit()?;
        self.take(state, saved).await;
        Ok(())
    }

    /// The file, to be edited.
    pub fn editor(&self) -> Result<Editor, Failure> {
        Editor::open_after(&self.file, self.saved.lock().as_ref())
    }

    /// The file with a change, ready to be saved (`edit.staged_before_deeds`).
    pub fn stage<T>(&self, change: impl FnOnce(&mut Editor) -> T) -> Result<Staged, Failure> {
        let mut editor = self.editor()?;
        change(&mut editor);
        editor.stage()
    }

    /// From now on the file, which has just been saved, counts.
    pub async fn take(&self, state: &mut State, saved: Saved) {
        self.put(state, self.overridden(Config::clone(&saved.config)));
        *self.saved.lock() = Some(saved);
        state.reconcile(Look::Changes).await;
    }

    /// Refuses what is to be written into the file later, if nothing can be
    /// (`edit.staged_before_deeds`).
    pub async fn check_writable(&self) -> Result<(), Failure> {
        let _still = self.lock().await;
        self.check_writable_now()
    }

    /// The same, under the lock.
    pub fn check_writable_now(&self) -> Result<(), Failure> {
        self.stage(|_| ()).map(drop)
    }

    /// The names of users and groups.
    pub fn owners(&self) -> export::Owners {
        let config = self.config();
        let users = config.users.iter().map(|user| (user.uid, user.name.clone())).collect();
        let own_groups = config.users.iter().filter(|user| user.uid == user.gid);
        let own_groups = own_groups.map(|user| (user.gid, user.name.clone()));
        let groups = config.groups.iter().map(|group| (group.gid, group.name.clone()));
        export::Owners { users, groups: own_groups.chain(groups).collect() }
    }
}
