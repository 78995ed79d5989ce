//! Snapshots in a schedule: what each must show, for as long as it is there.
//!
//! - `shot.own_part_exact`: while a client takes a snapshot it changes nothing itself, so its own directory in the snapshot is
//!   what it was just before, stable or not. That is judged also where power was cut on the way.
//! - Files that come and go beside the clients are as after one of their changes (`churn.one_moment`).
//! - `shot.never_changes`: whatever else was found in a snapshot first is found there ever after.

use std::collections::BTreeMap;

use larder_fs::{Cred, FsError, Ino, NameMatch};
use larder_volume::Volume;

use crate::churn::{self, Churn, Span};
use crate::tree_model::{Found, explore};

/// More are destroyed before another is taken.
pub const COUNT_MAX: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It was asked for, and may be there.
    Begun,
    /// It is there.
    Taken,
    /// It is on its way out, and may be there.
    Leaving,
}

#[derive(Clone)]
struct Shot {
    stage: Stage,
    /// Which client took it, and what its directory held; `None`: no client did.
    own: Option<(String, Found)>,
    /// What the directory of files that come and go may have held.
    churn: Span,
    /// All that was found in it.
    whole: Option<Found>,
}

/// The snapshots of a volume.
#[derive(Clone, Default)]
pub struct Shots {
    shots: BTreeMap<String, Shot>,
    next: u32,
    /// Files that come and go.
    pub churn: Churn,
    /// The snapshot that the volume was asked to go back to.
    pub going_back: Option<String>,
}

impl Shots {
    /// All that was found in a snapshot.
    pub fn whole(&self, name: &str) -> Option<&Found> {
        self.shots.get(name)?.whole.as_ref()
    }

    /// A snapshot is asked for, by a client whose directory is as `own` says, or by nobody in particular.
    pub fn begin(&mut self, own: Option<(String, Found)>) -> String {
        self.next += 1;
        let name = format!("s{}", self.next);
        let churn = self.churn.span();
        self.shots.insert(name.clone(), Shot { stage: Stage::Begun, own, churn, whole: None });
        name
    }

    pub fn set(&mut self, name: &str, stage: Stage) {
        if let Some(shot) = self.shots.get_mut(name) {
            if shot.stage == Stage::Begun {
                self.churn.end(&mut shot.churn);
            }
            shot.stage = stage;
        }
    }

    pub fn forget(&mut self, name: &str) {
        self.shots.remove(name);
    }

    pub fn len(&self) -> usize {
        self.shots.len()
    }

    /// Those that are surely there.
    pub fn taken(&self) -> Vec<String> {
        self.shots.iter().filter(|(_, shot)| shot.stage == Stage::Taken).map(|(name, _)| name.clone()).collect()
    }

    fn stages(&self) -> Vec<(String, Stage)> {
        self.shots.iter().map(|(name, shot)| (name.clone(), shot.stage)).collect()
    }

    /// Judges what was found in a snapshot.
    pub fn judge(&mut self, name: &str, found: Found) -> Result<(), String> {
        let Some(shot) = self.shots.get_mut(name) else { return Err(format!("snapshot {name} was never asked for")) };
        if let Some((client, own)) = &shot.own {
            let part = found.child(client).ok_or_else(|| format!("snapshot {name} lacks {client}"))?;
            part.is_as(own, false).map_err(|why| format!("snapshot {name}, {client}{why}"))?;
        }
        if shot.whole.is_none() {
            let churn = self.churn.judge(shot.churn, found.child(churn::DIRECTORY));
            churn.map_err(|why| format!("snapshot {name}{why}"))?;
        }
        match &shot.whole {
            Some(whole) => found.is_as(whole, false).map_err(|why| format!("snapshot {name} has changed: {why}"))?,
            None => shot.whole = Some(found),
        }
        Ok(())
    }
}

/// The root of a snapshot.
pub async fn top(volume: &Volume, name: &str) -> Result<Ino, FsError> {
    let cred = Cred::root();
    let all = volume.lookup(&cred, Ino::ROOT, b".snapshots", NameMatch::Exact).await?;
    Ok(volume.lookup(&cred, all.id.ino, name.as_bytes(), NameMatch::Exact).await?.id.ino)
}

pub async fn read(volume: &Volume, name: &str) -> Result<Found, FsError> {
    explore(volume, top(volume, name).await?).await
}

/// Brings what is known in line with what there is after an opening, and reads all of them. The error of an operation is left
/// to the caller to judge; a contradiction is a sentence.
pub async fn verify(volume: &Volume, shots: &parking_lot::Mutex<Shots>) -> Result<Result<(), String>, FsError> {
    let there: Vec<String> = volume.snapshots().into_iter().map(|info| info.name).collect();
    let known = shots.lock().stages();
    if let Some(name) = there.iter().find(|name| !known.iter().any(|(known, _)| known == *name)) {
        return Ok(Err(format!("snapshot {name} should not be there")));
    }
    for (name, stage) in known {
        match (there.contains(&name), stage) {
            (true, _) => {
                shots.lock().set(&name, Stage::Taken);
                let found = read(volume, &name).await?;
                let judged = shots.lock().judge(&name, found);
                if judged.is_err() {
                    return Ok(judged);
                }
            }
            (false, Stage::Taken) => return Ok(Err(format!("snapshot {name} is gone"))),
            (false, Stage::Begun | Stage::Leaving) => shots.lock().forget(&name),
        }
    }
    Ok(Ok(()))
}
