//! Clones in a schedule: each shows what the snapshot showed that it began as, whatever becomes of the volume, until it is destroyed.

use std::collections::BTreeMap;

use larder_fs::{FsError, Ino};
use larder_volume::Registry;

use crate::snapshots::Stage;
use crate::tree_model::{Found, explore};

/// There are never more.
pub const COUNT_MAX: usize = 2;

/// The clones of a volume: how far each is, and what it shows.
#[derive(Clone, Default)]
pub struct Clones {
    clones: BTreeMap<String, (Stage, Found)>,
    next: u32,
}

impl Clones {
    /// One is being made, and may be there.
    pub fn begin(&mut self, shows: Found) -> String {
        self.next += 1;
        let name = format!("k{}", self.next);
        self.clones.insert(name.clone(), (Stage::Begun, shows));
        name
    }

    pub fn set(&mut self, name: &str, stage: Stage) {
        if let Some((known, _)) = self.clones.get_mut(name) {
            *known = stage;
        }
    }

    pub fn forget(&mut self, name: &str) {
        self.clones.remove(name);
    }

    pub fn has(&self, name: &str) -> bool {
        self.clones.contains_key(name)
    }

    pub fn len(&self) -> usize {
        self.clones.len()
    }

    /// Those that are surely there.
    pub fn taken(&self) -> Vec<String> {
        self.clones.iter().filter(|(_, (stage, _))| *stage == Stage::Taken).map(|(name, _)| name.clone()).collect()
    }
}

/// Brings what is known in line with what there is, and compares. The error of an operation is left to the caller to judge; a
/// contradiction is a sentence.
pub async fn verify(registry: &Registry, clones: &parking_lot::Mutex<Clones>) -> Result<Result<(), String>, FsError> {
    let known = clones.lock().clones.clone();
    if known.is_empty() {
        return Ok(Ok(()));
    }
    let there: Vec<String> = registry.list().await?.into_iter().map(|info| info.name).collect();
    for (name, (stage, shows)) in known {
        match (there.contains(&name), stage) {
            (true, _) => {
                let found = explore(&registry.volume(&name).await?, Ino::ROOT).await?;
                if let Err(why) = found.is_as(&shows, false) {
                    return Ok(Err(format!("clone {name}: {why}")));
                }
                clones.lock().set(&name, Stage::Taken);
            }
            (false, Stage::Taken) => return Ok(Err(format!("clone {name} is gone"))),
            (false, Stage::Begun | Stage::Leaving) => clones.lock().forget(&name),
        }
    }
    Ok(Ok(()))
}
