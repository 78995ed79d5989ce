//! The two ways to change people: through the daemon, or on the data folder's files when it is not running.

use std::path::PathBuf;

use larder_api::{Client, Failure};

use super::args::Global;
use super::reach::{Target, absolute, target};
use crate::config::{Config, edit::Editor};
use crate::folder::{self, DataFolder};

pub(super) enum People {
    Daemon(Client),
    Files(Files),
}

/// The files of a data folder that no daemon uses: claimed until this is dropped.
pub(super) struct Files {
    pub(super) file: PathBuf,
    pub(super) folder: DataFolder,
}

impl People {
    pub(super) async fn of(global: &Global) -> Result<People, Failure> {
        match target(global).await? {
            Target::Daemon(client) => Ok(People::Daemon(client)),
            Target::Config(config) => {
                let file = absolute(&config.data.join(folder::CONFIG_NAME))?;
                Ok(People::Files(Files { file, folder: DataFolder::claim(&config.data)? }))
            }
        }
    }
}

impl Files {
    pub(super) fn config(&self) -> Result<Config, Failure> {
        Config::load(&self.file)
    }

    /// Changes the file. Returns what it said before and what it says now.
    pub(super) fn edit(
        &self,
        change: impl FnOnce(&mut Editor, &Config) -> Result<(), Failure>,
    ) -> Result<(Config, Config), Failure> {
        let before = self.config()?;
        let mut editor = Editor::open(&self.file)?;
        change(&mut editor, &before)?;
        Ok((before, editor.save()?))
    }
}
