//! Simulated disks: all disks of one machine, in memory, with power that can be cut and faults that come from the seed.
//!
//! - `simdisk.durable_kept_apart`: the durable state and the rest are kept apart: in `content.rs`
//!   for files, in `names.rs` for directories.
//! - `simdisk.power_cut_strikes_all`: a power cut strikes all disks at once, after a number of
//!   changes that the schedule chose. From then on every call fails until power is back, and
//!   handles from before never work again. One cut in four kills only the process: all that it
//!   wrote is still there, and no more durable than before.
//! - `simdisk.faults_have_victims`: a fault strikes only the disks that the schedule named as its
//!   victims (`faults.rs`).

mod content;
mod faults;
mod io;
mod names;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io::Result as IoResult;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use larder_base::checksum::checksum;
use larder_pool::disk::work::Work;
use larder_pool::disk::{DiskIo, DiskOpener};
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;

use crate::chance;
use crate::turns::SimTurns;
use content::{Content, Survival};
pub use faults::{Counts, Fault, Health, JournalDamage, Plant};
use names::Names;

/// Lines of the trace that are kept.
const TRACE_MAX: usize = 100_000;
/// After so many removals files without a name are forgotten.
const SWEEP_EVERY: u64 = 256;
/// The room of a file is a multiple of it.
const BLOCK_BYTES: u64 = 4096;

/// The properties of a disk.
#[derive(Clone, Debug)]
pub struct DiskPlan {
    pub capacity_bytes: u64,
    pub sector_bytes: u64,
    /// Disks with one number share a device: its flush serves them together.
    pub filesystem: u64,
    /// The filesystem takes direct I/O.
    pub has_direct: bool,
}

/// A disk as it lies on the table: all that survives.
#[derive(Clone, Debug)]
struct Disk {
    plan: DiskPlan,
    path: PathBuf,
    files: BTreeMap<u64, Content>,
    /// Files with changes that no sync covers.
    unsynced: BTreeSet<u64>,
    names: Names,
    /// Bytes in use, while that is known.
    used_bytes: Option<u64>,
    file_next: u64,
    removals: u64,
    is_locked: bool,
    /// Counts how often it was plugged in: what was opened before that is dead.
    plug: u64,
    health: Health,
}

/// A copy of a disk from an earlier time.
#[derive(Clone)]
pub struct Image(Box<Disk>);

struct State {
    disks: Vec<Disk>,
    random: StdRng,
    /// Counts power cuts: handles of an earlier life are refused.
    life: u64,
    /// Changes made in this life.
    changes: u64,
    cut_after: Option<u64>,
    has_power: bool,
    /// The process was killed; the machine goes on.
    is_killed: bool,
    /// After so many changes power is lost, not the process alone.
    cuts_power: bool,
    /// The process is killed at the first sync of the journal after so many batches were written.
    kill_at_commit: Option<u64>,
    /// A batch was written, and no sync of the journal was asked for since.
    is_committing: bool,
    /// Virtual time that slow disks took and nobody has waited for yet.
    debt: Duration,
    plant: Option<Plant>,
    /// Syncs that a planted bug put off: (disk, file, changes after which they happen).
    delayed: Vec<(usize, u64, u64)>,
    /// Writes that hang, and are done when the disk goes on: disk, file, offset, bytes.
    late: Vec<(usize, u64, u64, Vec<u8>)>,
    counts: Counts,
    hash: u64,
    trace: Option<VecDeque<String>>,
}

/// All disks of a machine.
pub struct World {
    state: Mutex<State>,
    /// Awaited by whoever wants to know that power was cut.
    pub cut: tokio::sync::Notify,
    /// The world whose trace and digest have what is noted here, and by whom.
    above: Option<(Arc<World>, String)>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

impl World {
    pub fn new(seed: u64, plans: Vec<DiskPlan>, with_trace: bool) -> Arc<Self> {
        let disk = |(number, plan)| Disk {
            plan,
            path: path_of(number),
            files: BTreeMap::new(),
            unsynced: BTreeSet::new(),
            used_bytes: None,
            names: Names::default(),
            file_next: 1,
            removals: 0,
            is_locked: false,
            plug: 0,
            health: Health::default(),
        };
        let state = State {
            disks: plans.into_iter().enumerate().map(disk).collect(),
            random: chance::generator(seed, "disks"),
            life: 0,
            changes: 0,
            cut_after: None,
            has_power: true,
            is_killed: false,
            cuts_power: false,
            kill_at_commit: None,
            is_committing: false,
            debt: Duration::ZERO,
            plant: None,
            delayed: Vec::new(),
            late: Vec::new(),
            counts: Counts::default(),
            hash: seed,
            trace: with_trace.then(VecDeque::new),
        };
        Arc::new(Self { state: Mutex::new(state), cut: tokio::sync::Notify::new(), above: None })
    }

    /// A machine without disks, one of several: its notes are in the trace of `above`.
    pub fn below(above: &Arc<World>, name: String, seed: u64) -> Arc<Self> {
        let mut world = Self::new(seed, Vec::new(), false);
        if let Some(world) = Arc::get_mut(&mut world) {
            world.above = Some((above.clone(), name));
        }
        world
    }

    pub fn opener(self: &Arc<Self>, seed: u64) -> Arc<dyn DiskOpener> {
        Arc::new(SimOpener { world: self.clone(), turns: Arc::new(SimTurns::new(self.clone(), seed)) })
    }

    pub fn paths(&self) -> Vec<PathBuf> {
        self.state.lock().disks.iter().map(|disk| disk.path.clone()).collect()
    }

    // ---- power ------------------------------------------------------------------------------

    /// Cuts the power after so many further changes, or not at all.
    pub fn cut_after(&self, changes: Option<u64>) {
        let mut state = self.state.lock();
        state.cut_after = changes.map(|changes| state.changes + changes);
    }

    /// As [`Self::cut_after`]; it is the power, not the process.
    pub fn cut_power_after(&self, changes: u64) {
        self.cut_after(Some(changes));
        self.state.lock().cuts_power = true;
    }

    /// Kills the process at a sync of the journal, after what it is to make durable was written: the kernel still has that.
    pub fn kill_at_commit(&self, commits: u64) {
        self.cut_after(None);
        self.state.lock().kill_at_commit = Some(commits);
    }

    pub fn kills_at_commit(&self) -> bool {
        self.state.lock().kill_at_commit.is_some()
    }

    pub fn cut_now(&self) {
        self.state.lock().cut();
        self.cut.notify_waiters();
    }

    pub fn has_power(&self) -> bool {
        self.state.lock().has_power
    }

    /// After a cut.
    pub fn start_again(&self) {
        let is_killed = std::mem::take(&mut self.state.lock().is_killed);
        if is_killed { self.restart_process() } else { self.restore_power() }
    }

    /// Decides the fate of changes that were not durable, and brings the power back.
    pub fn restore_power(&self) {
        let mut state = self.state.lock();
        let State { disks, random, .. } = &mut *state;
        for disk in disks {
            disk.crash(random);
        }
        state.life += 1;
        state.counts.crashes += 1;
        state.changes = 0;
        state.cut_after = None;
        state.has_power = true;
        state.debt = Duration::ZERO;
        state.delayed.clear();
        (state.cuts_power, state.kill_at_commit) = (false, None);
        state.late.clear();
        state.note(|| "power is back".to_owned());
    }

    /// The process ended and the machine went on: nothing is lost, but locks and handles are gone.
    pub fn restart_process(&self) {
        let mut state = self.state.lock();
        state.life += 1;
        state.changes = 0;
        state.has_power = true;
        state.cut_after = None;
        state.debt = Duration::ZERO;
        state.delayed.clear();
        (state.cuts_power, state.kill_at_commit) = (false, None);
        state.counts.restarts += 1;
        state.disks.iter_mut().for_each(|disk| disk.is_locked = false);
        state.note(|| "the process starts again".to_owned());
    }

    // ---- faults -----------------------------------------------------------------------------

    pub fn set_health(&self, disk: usize, change: impl FnOnce(&mut Health)) {
        let mut state = self.state.lock();
        change(&mut state.disks[disk].health);
        if !state.disks[disk].health.hangs {
            state.do_late_writes(disk);
        }
        let health = format!("{:?}", state.disks[disk].health);
        state.note(|| format!("disk{disk}: {health}"));
    }

    pub fn plant(&self, plant: Option<Plant>) {
        self.state.lock().plant = plant;
    }

    pub fn planted(&self) -> Option<Plant> {
        self.state.lock().plant
    }

    /// The state of a disk after a power cut at this moment.
    pub fn image(&self, disk: usize) -> Image {
        let mut state = self.state.lock();
        let State { disks, random, .. } = &mut *state;
        let mut image = disks[disk].clone();
        image.crash(random);
        Image(Box::new(image))
    }

    /// A disk as it is, to be put back.
    pub fn copy(&self, disk: usize) -> Image {
        Image(Box::new(self.state.lock().disks[disk].clone()))
    }

    /// Somebody damages the journal's copy on a disk, while nobody uses it.
    pub fn damage_journal(&self, disk: usize, damage: JournalDamage) {
        let mut state = self.state.lock();
        state.note(|| format!("disk{disk}: its journal is damaged: {damage:?}"));
        state.counts.add(Fault::Journal);
        let disk = &mut state.disks[disk];
        let files: Vec<(String, u64)> =
            disk.names.files_now().filter(|(name, _)| name.starts_with("journal/")).collect();
        match damage {
            JournalDamage::Removed => disk.names.remove_directory("journal"),
            JournalDamage::Emptied => {
                files.iter().for_each(|(name, _)| drop(disk.names.remove(name)));
                disk.names.sync_all();
            }
            JournalDamage::Zeroed => {
                for (_, file) in &files {
                    let zeros = vec![0; disk.files.get(file).map_or(0, Content::len) as usize];
                    disk.write(*file, 0, &zeros, false);
                    disk.sync(*file);
                }
            }
        }
        disk.used_bytes = None;
    }

    /// Puts an older state of a disk in its place.
    pub fn put_back(&self, disk: usize, image: &Image) {
        let mut state = self.state.lock();
        let (health, plug) = (state.disks[disk].health.clone(), state.disks[disk].plug + 1);
        state.disks[disk] = Disk { health, plug, is_locked: false, ..(*image.0).clone() };
        state.counts.add(Fault::Stale);
        state.note(|| format!("disk{disk}: an older state of it is back"));
    }

    /// Flips bits of one file of a disk.
    pub fn rot(&self, disk: usize) {
        let mut state = self.state.lock();
        state.rot(disk);
    }

    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    pub fn count(&self, fault: Fault) {
        self.state.lock().counts.add(fault);
    }

    pub fn take_debt(&self) -> Duration {
        std::mem::take(&mut self.state.lock().debt)
    }

    /// A digest of all that happened so far.
    pub fn hash(&self) -> u64 {
        self.state.lock().hash
    }

    /// Adds a line to the trace and what it says to the digest.
    pub fn note(&self, line: impl FnOnce() -> String) {
        match &self.above {
            None => self.state.lock().note(line),
            Some((above, name)) => {
                let seconds = crate::turns::elapsed().as_secs_f64();
                above.state.lock().note(|| format!("{seconds:10.3} {name}: {}", line()));
            }
        }
    }

    pub fn has_trace(&self) -> bool {
        self.state.lock().trace.is_some()
    }

    pub fn trace(&self) -> Vec<String> {
        self.state.lock().trace.iter().flatten().cloned().collect()
    }

    /// Changes made since power came back.
    pub fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// Files below `objects/` of a disk.
    pub fn shards(&self, disk: usize) -> Vec<String> {
        let state = self.state.lock();
        let names = state.disks[disk].names.files_now().map(|(name, _)| name);
        names.filter(|name| name.starts_with("objects/")).collect()
    }
}

impl State {
    /// Power is lost, or the process is killed: from now on nothing is done. After a kill the kernel still has what was written.
    fn cut(&mut self) {
        self.has_power = false;
        let is_commit = self.kill_at_commit.take() == Some(0);
        let is_chosen = self.random.random_range(0..4) == 0 && !std::mem::take(&mut self.cuts_power);
        self.is_killed = is_commit || is_chosen;
        let what = if self.is_killed { "the process is killed" } else { "power is cut" };
        self.note(|| what.to_owned());
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            if trace.len() >= TRACE_MAX {
                trace.pop_front();
            }
            let line = format!("{:>6} {}", self.changes, line());
            self.hash = checksum(self.hash, line.as_bytes());
            trace.push_back(line);
        }
    }

    /// The disk goes on. What was called before that and hung is done, though nobody waits for it any more.
    fn do_late_writes(&mut self, disk: usize) {
        let (due, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.late).into_iter().partition(|late| late.0 == disk);
        self.late = others;
        for (_, file, offset, bytes) in due {
            self.note(|| format!("disk{disk}: {} bytes come late at {offset} of file {file}", bytes.len()));
            self.disks[disk].write(file, offset, &bytes, false);
        }
    }

    fn rot(&mut self, disk: usize) {
        let State { disks, random, counts, .. } = self;
        let files: Vec<(String, u64)> = disks[disk].names.files_now().collect();
        if files.is_empty() {
            return;
        }
        let (name, file) = files[random.random_range(0..files.len())].clone();
        let at = disks[disk].files.get_mut(&file).and_then(|content| content.rot(random));
        if let Some(at) = at {
            counts.add(Fault::Rot);
            self.note(|| format!("disk{disk}: a bit of {name} flips at {at}"));
        }
    }
}

impl Disk {
    fn crash(&mut self, random: &mut StdRng) {
        let survival = Survival::choose(random);
        let sector_bytes = self.plan.sector_bytes;
        for file in std::mem::take(&mut self.unsynced) {
            if let Some(content) = self.files.get_mut(&file) {
                content.crash(survival, sector_bytes, random);
            }
        }
        self.names.crash(Survival::choose(random), random);
        self.is_locked = false;
        self.used_bytes = None;
        self.sweep();
    }

    /// Forgets files that no name leads to.
    fn sweep(&mut self) {
        let names = &self.names;
        self.files.retain(|file, _| names.refers_to(*file));
    }

    fn used_bytes(&mut self) -> u64 {
        if let Some(known) = self.used_bytes {
            return known;
        }
        let files = self.names.files_now().filter_map(|(_, file)| self.files.get(&file));
        let used = files.map(|content| content.len().next_multiple_of(BLOCK_BYTES)).sum();
        self.used_bytes = Some(used);
        used
    }

    fn write(&mut self, file: u64, offset: u64, bytes: &[u8], is_direct: bool) {
        let content = self.files.entry(file).or_default();
        let before = content.len().next_multiple_of(BLOCK_BYTES);
        content.write(offset, bytes, is_direct);
        let grown = content.len().next_multiple_of(BLOCK_BYTES) - before;
        self.used_bytes = self.used_bytes.map(|used| used + grown);
        self.unsynced.insert(file);
    }

    fn truncate(&mut self, file: u64) {
        self.files.entry(file).or_default().truncate();
        self.used_bytes = None;
        self.unsynced.insert(file);
    }

    /// Gives a file its length, without contents.
    fn allocate(&mut self, file: u64, bytes: u64) {
        self.files.entry(file).or_default().allocate(bytes);
        self.used_bytes = None;
        self.unsynced.insert(file);
    }

    fn sync(&mut self, file: u64) {
        if let Some(content) = self.files.get_mut(&file) {
            content.sync();
        }
        self.unsynced.remove(&file);
    }

    fn flush_device(&mut self) {
        for file in &self.unsynced {
            if let Some(content) = self.files.get_mut(file) {
                content.flush_device();
            }
        }
    }
}

fn path_of(disk: usize) -> PathBuf {
    PathBuf::from(format!("/sim/disk{disk}"))
}

#[derive(Debug)]
struct SimOpener {
    world: Arc<World>,
    turns: Arc<SimTurns>,
}

impl DiskOpener for SimOpener {
    fn open_disk(&self, path: &Path) -> IoResult<Arc<dyn DiskIo>> {
        let state = self.world.state.lock();
        let at = state.disks.iter().position(|disk| disk.path == path);
        let number = at.filter(|at| !state.disks[*at].health.is_gone);
        let number = number.ok_or(std::io::Error::from(std::io::ErrorKind::NotFound))?;
        if !state.has_power {
            return Err(io::no_power());
        }
        let (life, plug) = (state.life, state.disks[number].plug);
        Ok(Arc::new(io::SimDisk { world: self.world.clone(), number, life, plug }))
    }

    fn make_directory(&self, _: &Path) -> IoResult<()> {
        Ok(())
    }

    fn work(&self) -> Work {
        Work::InTurns(self.turns.clone())
    }
}
