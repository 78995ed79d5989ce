//! Files that come and go while snapshots are taken, two changes a millisecond and a snapshot every quarter of a second.
//!
//! One task changes the directory `churn`: sizes are set before there is data, data is written and not committed, files are
//! replaced and removed while it is in memory. Another takes snapshots all the while, and so do the clients.
//!
//! - `churn.one_moment`: a snapshot shows the directory as it was after one of its changes, byte for byte: not before the last
//!   that was answered when the snapshot was asked for, nor after the last that was begun when it was answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use larder_fs::{CreateMode, Cred, FsError, Ino, NameMatch, RenameMode, SetAttr, Stability};
use larder_volume::Volume;
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;

use crate::session::{Outcome, Run, Stop};
use crate::snapshots::{COUNT_MAX, Shots, Stage, read};
use crate::tree_model::Found;

pub const DIRECTORY: &str = "churn";
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// The name of a file that is about to replace another.
const NEXT: &str = "next";
const SIZE_MAX: usize = 40_000;
const CHANGES_MAX: u32 = 120;
const BETWEEN_SNAPSHOTS: Duration = Duration::from_millis(250);
const SNAPSHOTS_MAX: u32 = 4;

type Contents = BTreeMap<&'static str, Arc<[u8]>>;

/// The directory after a change.
#[derive(Clone)]
struct State {
    contents: Contents,
    is_answered: bool,
}

/// The directory, after each of its changes.
#[derive(Clone, Default)]
pub struct Churn {
    states: Vec<State>,
    /// Nobody knows what the directory holds, until the next life has emptied it.
    is_unknown: bool,
}

/// Which states a snapshot may show, by their numbers. `None`: any.
#[derive(Clone, Copy)]
pub struct Span {
    from: Option<usize>,
    to: Option<usize>,
}

impl Churn {
    fn now(&self) -> Contents {
        self.states.last().map(|state| state.contents.clone()).unwrap_or_default()
    }

    fn begin(&mut self, change: impl FnOnce(&mut Contents)) {
        let mut contents = self.now();
        change(&mut contents);
        self.states.push(State { contents, is_answered: false });
    }

    fn answered(&mut self) {
        if let Some(state) = self.states.last_mut() {
            state.is_answered = true;
        }
    }

    /// A snapshot is asked for.
    pub fn span(&self) -> Span {
        let from = self.states.iter().rposition(|state| state.is_answered);
        Span { from: from.filter(|_| !self.is_unknown), to: None }
    }

    /// It was answered.
    pub fn end(&self, span: &mut Span) {
        span.to = self.states.len().checked_sub(1);
    }

    /// Judges the directory of a snapshot.
    pub fn judge(&self, span: Span, found: Option<&Found>) -> Result<(), String> {
        let (Some(from), Some(files)) = (span.from, found.and_then(Found::files)) else { return Ok(()) };
        let states = self.states.get(from..).unwrap_or_default();
        let count = span.to.map_or(states.len(), |to| (to + 1).saturating_sub(from));
        let mut why = String::new();
        for state in states.iter().take(count) {
            match differs(&state.contents, &files) {
                None => return Ok(()),
                Some(differs) => why = differs,
            }
        }
        Err(format!("/{DIRECTORY} is as after none of {count} changes: {why}"))
    }
}

fn differs(wanted: &Contents, found: &BTreeMap<&str, &[u8]>) -> Option<String> {
    if let Some(name) = found.keys().find(|name| !wanted.contains_key(**name)) {
        return Some(format!("{name} should not be there"));
    }
    wanted.iter().find_map(|(name, wanted)| match found.get(*name) {
        None => Some(format!("{name} is missing")),
        Some(bytes) if **bytes == **wanted => None,
        Some(bytes) => {
            let zeros = bytes.iter().filter(|byte| **byte == 0).count();
            Some(format!("{name} has {} bytes, {zeros} of them 0, and should have {}", bytes.len(), wanted.len()))
        }
    })
}

/// The two tasks, in one life of a volume.
pub struct Churner {
    run: Arc<Run>,
    volume: Volume,
    shots: Arc<Mutex<Shots>>,
    directory: Ino,
    random: Mutex<StdRng>,
}

impl Churner {
    /// The directory is emptied. `None`: the disks do not let it be.
    pub async fn begin(
        run: &Arc<Run>,
        volume: &Volume,
        shots: &Arc<Mutex<Shots>>,
        random: StdRng,
    ) -> Outcome<Option<Self>> {
        shots.lock().churn.is_unknown = true;
        let directory = match run.powered(empty(volume)).await? {
            Ok(directory) => directory,
            Err(_) if run.may_refuse() => return Ok(None),
            Err(error) => return Err(run.unexpected("emptying the directory of files that come and go", error)),
        };
        {
            let mut shots = shots.lock();
            shots.churn.begin(Contents::clear);
            shots.churn.answered();
            shots.churn.is_unknown = false;
        }
        let (run, volume, shots) = (run.clone(), volume.clone(), shots.clone());
        Ok(Some(Self { run, volume, shots, directory, random: Mutex::new(random) }))
    }

    pub async fn work(self) {
        tokio::join!(self.change_all_the_while(), self.take_snapshots());
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut self.random.lock())
    }

    async fn change_all_the_while(&self) {
        for _ in 0..CHANGES_MAX {
            if self.run.is_shut() || !self.goes_on(self.change_something().await) {
                return;
            }
            let wait_ms = self.draw(|random| random.random_range(0..2));
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        }
    }

    fn goes_on(&self, done: Outcome<()>) -> bool {
        if let Err(Stop::Failed(why)) = &done {
            self.run.fail(format!("files that come and go: {why}"));
        }
        done.is_ok()
    }

    async fn change_something(&self) -> Outcome<()> {
        let now = self.shots.lock().churn.now();
        let name = NAMES[self.draw(|random| random.random_range(0..NAMES.len()))];
        let length = self.draw(|random| random.random_range(1..SIZE_MAX));
        if !now.contains_key(name) {
            return self.fill(name, length).await;
        }
        match self.draw(|random| random.random_range(0..6)) {
            0 | 1 => self.change(|all| drop(all.remove(name)), self.unlink(name)).await,
            2 | 3 => {
                self.fill(NEXT, length).await?;
                let over = |all: &mut Contents| {
                    let next = all.remove(NEXT).unwrap_or_default();
                    all.insert(name, next);
                };
                self.change(over, self.rename(name)).await
            }
            4 => self.resize(name, length).await,
            _ => self.write(name, length).await,
        }
    }

    /// A new file, by a size first, mostly, and then its data.
    async fn fill(&self, name: &'static str, length: usize) -> Outcome<()> {
        self.change(|all| drop(all.insert(name, Arc::default())), self.create(name)).await?;
        if self.draw(|random| random.random_range(0..4)) != 0 {
            self.resize(name, length).await?;
        }
        self.write(name, length).await
    }

    async fn resize(&self, name: &'static str, length: usize) -> Outcome<()> {
        let resized = |all: &mut Contents| {
            let mut bytes = all.get(name).map(|bytes| bytes.to_vec()).unwrap_or_default();
            bytes.resize(length, 0);
            all.insert(name, bytes.into());
        };
        let set = SetAttr { size: Some(length as u64), ..SetAttr::default() };
        let operation = async { self.volume.setattr(&Cred::root(), self.find(name).await?, set).await.map(drop) };
        self.change(resized, operation).await
    }

    async fn write(&self, name: &'static str, length: usize) -> Outcome<()> {
        let fill = self.draw(|random| random.random_range(1..=255u8));
        let written = |all: &mut Contents| {
            let mut bytes = vec![fill; length];
            bytes.extend(all.get(name).and_then(|old| old.get(length..)).unwrap_or_default());
            all.insert(name, bytes.into());
        };
        let operation = async {
            let data = vec![vec![fill; length].into()];
            let ino = self.find(name).await?;
            self.volume.write(&Cred::root(), ino, 0, data, Stability::Unstable).await.map(drop)
        };
        self.change(written, operation).await
    }

    /// One change, and what it does to the directory.
    async fn change(
        &self,
        change: impl FnOnce(&mut Contents),
        operation: impl Future<Output = Result<(), FsError>>,
    ) -> Outcome<()> {
        self.shots.lock().churn.begin(change);
        let done = operation.await;
        self.run.check_power()?;
        match done {
            Ok(()) => {
                self.shots.lock().churn.answered();
                self.run.done("churn");
                Ok(())
            }
            // It may have happened or not, so this was the last.
            Err(_) if self.run.may_refuse() => Err(Stop::Cut),
            Err(error) => Err(Stop::Failed(error.to_string())),
        }
    }

    async fn find(&self, name: &str) -> Result<Ino, FsError> {
        let found = self.volume.lookup(&Cred::root(), self.directory, name.as_bytes(), NameMatch::Exact).await?;
        Ok(found.id.ino)
    }

    async fn create(&self, name: &str) -> Result<(), FsError> {
        let set = SetAttr { mode: Some(0o640), ..SetAttr::default() };
        let mode = CreateMode::Guarded;
        self.volume.create(&Cred::root(), self.directory, name.as_bytes(), mode, set).await.map(drop)
    }

    async fn unlink(&self, name: &str) -> Result<(), FsError> {
        self.volume.unlink(&Cred::root(), self.directory, name.as_bytes()).await.map(drop)
    }

    async fn rename(&self, to: &str) -> Result<(), FsError> {
        let (from, dir) = (NEXT.as_bytes(), self.directory);
        self.volume.rename(&Cred::root(), dir, from, dir, to.as_bytes(), RenameMode::Replace).await.map(drop)
    }

    async fn take_snapshots(&self) {
        for _ in 0..SNAPSHOTS_MAX {
            // Clocks of a machine under load do not strike on the dot.
            let early = Duration::from_millis(self.draw(|random| random.random_range(0..240)));
            tokio::time::sleep(BETWEEN_SNAPSHOTS - early).await;
            if self.run.is_shut() || !self.goes_on(self.take_snapshot().await) {
                return;
            }
        }
    }

    async fn take_snapshot(&self) -> Outcome<()> {
        if self.shots.lock().len() >= COUNT_MAX {
            return Ok(());
        }
        let name = self.shots.lock().begin(None);
        self.run.world.note(|| format!("snapshot {name} of files that come and go"));
        let taken = self.volume.snapshot(&name).await;
        self.run.check_power()?;
        match taken {
            Ok(_) => self.shots.lock().set(&name, Stage::Taken),
            Err(_) if self.run.may_refuse() => return Ok(()),
            Err(error) => return Err(Stop::Failed(format!("snapshot {name}: {error}"))),
        }
        self.run.done("snapshot");
        let found = read(&self.volume, &name).await;
        self.run.check_power()?;
        match found {
            // A client may have destroyed it meanwhile.
            _ if !self.shots.lock().taken().contains(&name) => Ok(()),
            Ok(found) => self.shots.lock().judge(&name, found).map_err(Stop::Failed),
            Err(_) if self.run.may_refuse() => Ok(()),
            Err(error) => Err(Stop::Failed(format!("reading snapshot {name}: {error}"))),
        }
    }
}

/// Makes the directory, or empties it.
async fn empty(volume: &Volume) -> Result<Ino, FsError> {
    let (cred, name) = (Cred::root(), DIRECTORY.as_bytes());
    let set = SetAttr { mode: Some(0o755), ..SetAttr::default() };
    let directory = match volume.mkdir(&cred, Ino::ROOT, name, set).await {
        Ok((attr, _)) => attr.id.ino,
        Err(FsError::Exists) => volume.lookup(&cred, Ino::ROOT, name, NameMatch::Exact).await?.id.ino,
        Err(error) => return Err(error),
    };
    for name in NAMES.into_iter().chain([NEXT]) {
        match volume.unlink(&cred, directory, name.as_bytes()).await {
            Ok(_) | Err(FsError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(directory)
}
