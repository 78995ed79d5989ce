//! What is known of a volume across its owners, and what is judged by it.
//!
//! - `known.tenures_in_order`: a volume goes from one tenure to the next: to another seat, whose number of handovers is higher; to
//!   another owner of the same seat, whose epoch is higher; or it is closed and opened again by the same owner.
//! - `known.own_until_settled`: each owner's clients have a model of their own. It begins as the one of the owner before, with what was
//!   found: what was under way then is there, or is not.
//! - `known.late_answers_are_judged`: an answer that an owner gives after its successor has looked is judged by what that one found.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use larder_fs::{Ino, WriteVerifier};
use parking_lot::Mutex;

use crate::clones::Clones;
use crate::history::Model;
use crate::snapshots::Shots;
use crate::tree_model::{Found, Tree};

pub type Models = Vec<Arc<Mutex<Model>>>;
/// The models that an owner goes on with, and the snapshots.
pub type Judged = (Models, Arc<Mutex<Shots>>);

/// A time in which one process has the volume open (`known.tenures_in_order`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tenure {
    /// How often the volume had gone to another seat.
    pub handovers: u64,
    /// Of the owner of the seat.
    pub epoch: u64,
    /// Of this owner.
    pub opening: u32,
}

/// What the next owner found.
struct Fork {
    found: Vec<Found>,
    snapshots: Vec<String>,
}

#[derive(Default)]
struct State {
    /// The newest one that has looked.
    settled: Tenure,
    models: Models,
    shots: Arc<Mutex<Shots>>,
    verifier: Option<WriteVerifier>,
    forks: BTreeMap<Tenure, Arc<Fork>>,
    /// When owners began to serve.
    serves: BTreeMap<Tenure, Duration>,
    openings: u32,
}

/// The volume as its owners have shown it.
#[derive(Default)]
pub struct Known {
    state: Mutex<State>,
    pub clones: Mutex<Clones>,
}

impl Known {
    /// How often it was asked.
    pub fn next_opening(&self) -> u32 {
        let mut state = self.state.lock();
        state.openings += 1;
        state.openings
    }

    pub fn is_made(&self) -> bool {
        !self.state.lock().models.is_empty()
    }

    /// An owner has opened the volume, and may answer.
    pub fn opened(&self, tenure: Tenure, now: Duration) {
        self.state.lock().serves.entry(tenure).or_insert(now);
    }

    /// The directories of the clients of a new volume, made in this tenure.
    pub fn made(&self, tenure: Tenure, tops: Vec<larder_fs::FileId>) {
        let mut state = self.state.lock();
        if state.models.is_empty() {
            state.models = tops.into_iter().map(|id| Arc::new(Mutex::new(Model::new(Tree::new(Some(id)))))).collect();
            state.settled = tenure;
        }
    }

    pub fn tops(&self) -> Vec<Option<Ino>> {
        self.state.lock().models.iter().map(|model| model.lock().top()).collect()
    }

    /// A copy, to be brought in line with what is found.
    pub fn shots(&self) -> Shots {
        self.state.lock().shots.lock().clone()
    }

    /// Judges what an owner found. `None`: another one has looked since, and this one's view is no news.
    pub fn settle(
        &self,
        (tenure, verifier): (Tenure, WriteVerifier),
        found: Vec<Found>,
        shots: Shots,
    ) -> Result<Option<Judged>, String> {
        let mut state = self.state.lock();
        if state.settled > tenure {
            return Ok(None);
        }
        if state.verifier.replace(verifier) == Some(verifier) {
            return Err("the write verifier is that of an earlier opening".to_owned());
        }
        let mut models = Vec::new();
        for (number, (model, found)) in state.models.iter().zip(&found).enumerate() {
            let mut model = model.lock().clone();
            model.settle(found.clone()).map_err(|why| format!("c{number}{why}"))?;
            models.push(Arc::new(Mutex::new(model)));
        }
        let snapshots = shots.taken();
        state.settled = tenure;
        state.models = models.clone();
        state.shots = Arc::new(Mutex::new(shots));
        state.forks.insert(tenure, Arc::new(Fork { found, snapshots }));
        Ok(Some((models, state.shots.clone())))
    }

    /// Judges an answer given in this tenure to what was asked at `begun`.
    pub fn judge(
        &self,
        tenure: Tenure,
        begun: Option<Duration>,
        models: &Models,
        shots: &Mutex<Shots>,
    ) -> Result<(), String> {
        let (serves, fork) = {
            let state = self.state.lock();
            let later = (Bound::Excluded(tenure), Bound::Unbounded);
            let serves = state.serves.range(later).map(|(_, at)| *at).min();
            (serves, state.forks.range(later).next().map(|(_, fork)| fork.clone()))
        };
        if let (Some(since), Some(begun)) = (serves, begun)
            && since <= begun
        {
            return Err(format!(
                "the owner of {tenure:?} answered what was asked of it at {begun:?}, and its successor serves since {since:?}"
            ));
        }
        let Some(fork) = fork else { return Ok(()) };
        for (number, (model, found)) in models.iter().zip(&fork.found).enumerate() {
            let mut model = model.lock().clone();
            model.settle(found.clone()).map_err(|why| {
                format!("acknowledged by an owner that was overtaken, and its successor found: c{number}{why}")
            })?;
        }
        let taken = shots.lock().taken();
        match taken.iter().find(|name| !fork.snapshots.contains(name)) {
            Some(name) => {
                Err(format!("snapshot {name} was acknowledged by an overtaken owner, and its successor has it not"))
            }
            None => Ok(()),
        }
    }
}
