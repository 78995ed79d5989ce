//! A client's operations on snapshots (`snapshots.rs` judges).

use larder_fs::FsError;
use larder_volume::HAS_CLONES;
use rand::Rng;

use crate::file_client::Client;
use crate::session::{Outcome, Stop};
use crate::snapshots::{COUNT_MAX, Stage, read};
use crate::tree_model::explore;
use crate::turns::elapsed;

impl Client {
    pub(crate) async fn snapshot_or_destroy(&self) -> Outcome<()> {
        let taken = self.shots.lock().taken();
        let is_full = self.shots.lock().len() >= COUNT_MAX;
        if is_full || !taken.is_empty() && self.run.one_in(4) {
            return self.destroy_one(&taken).await;
        }
        match self.run.draw(|random| random.random_range(0..3)) {
            0 if !taken.is_empty() => self.look_again(&taken).await,
            _ => self.take_snapshot().await,
        }
    }

    /// Nobody else changes this client's directory: in the snapshot it is as it is now (`shot.own_part_exact`).
    async fn take_snapshot(&self) -> Outcome<()> {
        let volume = self.front.volume();
        let Some(top) = self.model.lock().top() else { return Ok(()) };
        let own = match explore(volume, top).await {
            Ok(own) => own,
            Err(error) => return self.refused("looking before a snapshot", &error, false),
        };
        self.run.check_power()?;
        let name = self.shots.lock().begin(Some((self.directory_name(), own)));
        self.note(|| format!("snapshot {name}"));
        let begun = elapsed();
        let taken = volume.snapshot(&name).await;
        self.run.check_power()?;
        self.note(|| format!("snapshot {name}: {:?}", taken.as_ref().err()));
        if let Err(error) = taken {
            return self.refused(&format!("snapshot {name}"), &error, false);
        }
        self.shots.lock().set(&name, Stage::Taken);
        self.run.judge_answer(Some(begun));
        self.done_kind("snapshot");
        self.run.check_power()?;
        self.look_at(&name).await
    }

    async fn look_again(&self, taken: &[String]) -> Outcome<()> {
        let at = self.run.draw(|random| random.random_range(0..taken.len()));
        self.look_at(&taken[at]).await
    }

    async fn look_at(&self, name: &str) -> Outcome<()> {
        let found = match read(self.front.volume(), name).await {
            Ok(found) => found,
            // Another client destroyed it meanwhile.
            Err(FsError::NotFound | FsError::Stale) if !self.shots.lock().taken().iter().any(|other| other == name) => {
                return Ok(());
            }
            Err(error) => return self.refused(&format!("reading snapshot {name}"), &error, false),
        };
        self.run.check_power()?;
        if !self.shots.lock().taken().iter().any(|other| other == name) {
            return Ok(());
        }
        self.shots.lock().judge(name, found).map_err(Stop::Failed)
    }

    async fn destroy_one(&self, taken: &[String]) -> Outcome<()> {
        let Some(at) = (!taken.is_empty()).then(|| self.run.draw(|random| random.random_range(0..taken.len()))) else {
            return Ok(());
        };
        let name = &taken[at];
        self.shots.lock().set(name, Stage::Leaving);
        self.note(|| format!("destroy {name}"));
        let destroyed = self.front.volume().destroy_snapshot(name).await;
        self.run.check_power()?;
        self.note(|| format!("destroy {name}: {:?}", destroyed.as_ref().err()));
        match destroyed {
            Ok(()) => {
                self.shots.lock().forget(name);
                self.done_kind("destroy");
                Ok(())
            }
            // Another client was first.
            Err(FsError::NotFound) => Ok(()),
            Err(FsError::Busy(why)) if why == HAS_CLONES => {
                self.shots.lock().set(name, Stage::Taken);
                Ok(())
            }
            Err(error) => self.refused(&format!("destroy {name}"), &error, false),
        }
    }
}
