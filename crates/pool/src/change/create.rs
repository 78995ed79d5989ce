//! Planning and creating pools.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_base::units::ByteSize;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::disk::folder::{self, FileDisks};
use crate::disk::{DiskIo, DiskOpener, DiskSpace, LOCK_NAME, PROBE_NAME};
use crate::error::PoolError;
use crate::heal::scrub::FILE_NAME as SCRUB_NAME;
use crate::history;
use crate::history::now_ms;
use crate::journal::Journal;
use crate::member::divergence::LastLives;
use crate::member::found::absolute;
use crate::member::label::{self, Label, Life, Member, Usage};
use crate::member::life_file;
use crate::member::member_disk::reserve_soft;
use crate::member::reserve;
use crate::object::layout::{DISKS_MAX, Layout};
use crate::object::placement;
use crate::object::shard::FANOUT;
use crate::pool::{OpenOptions, Pool};

/// The least room a disk must have: journal, label and a few objects.
const DISK_BYTES_MIN: u64 = 16 << 20;
/// Files that a directory may hold and still count as empty. ext4 makes one at the root of a
/// filesystem, and a pool that was not finished leaves the other.
const HARMLESS: [&str; 2] = ["lost+found", LOCK_NAME];
/// Files that nothing depends on: an open pool may have written them to a directory that was just
/// emptied.
const SIDE_FILES: [&str; 4] = [history::FILE.name, SCRUB_NAME, PROBE_NAME, life_file::FILE.name];

/// The properties of a new pool.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// The pool's name: 1 to 64 letters, digits, `-`, `_` or `.`, starting with a letter.
    pub name: String,
    /// The redundancy of its objects.
    pub layout: Layout,
    /// The directories that become its disks. Each is empty, and none is given twice.
    pub disks: Vec<PathBuf>,
    /// Disks per object; by default as many as there are, up to a bound.
    pub width: Option<u8>,
    /// Size of the journal on each of its disks, in bytes; by default by the size of the disks.
    pub journal_bytes: Option<u64>,
    /// The memory of this machine, as for [`OpenOptions::last_lives`].
    pub last_lives: Option<Arc<dyn LastLives>>,
    /// Opens the directories: real ones, or those of a simulator.
    pub opener: Arc<dyn DiskOpener>,
}

impl CreateOptions {
    /// Options with defaults: width by the number of disks, journal by the size of the smallest.
    pub fn new(name: impl Into<String>, layout: Layout, disks: Vec<PathBuf>) -> Self {
        let opener = Arc::new(FileDisks);
        Self { name: name.into(), layout, disks, width: None, journal_bytes: None, last_lives: None, opener }
    }
}

/// The pool that would be created: the answer of `pool create --dry-run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The name that was asked for.
    pub name: String,
    /// The layout that was asked for.
    pub layout: Layout,
    /// Shards of an object, parity included, at most.
    pub width: u8,
    /// Data shards of an object of full width.
    pub data: u8,
    /// Parity shards of an object of full width, or further copies of a mirror.
    pub parity: u8,
    /// The room of all disks, in bytes, before redundancy.
    pub raw_bytes: u64,
    /// Bytes of objects that fit, after redundancy and reserves.
    pub usable_bytes: u64,
    /// Disks that may fail at once without loss.
    pub failures_survived: u8,
    /// Its disks, in the order given.
    pub disks: Vec<PlannedDisk>,
    /// Sentences for a person to read before agreeing; empty where nothing is doubtful.
    pub warnings: Vec<String>,
}

/// A directory that would become a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedDisk {
    /// The directory.
    pub path: PathBuf,
    /// The size of its filesystem, in bytes.
    pub size_bytes: u64,
    /// How much of it the layout can use.
    pub used_bytes: u64,
    /// Whether another disk of the plan lies on the same filesystem, and so fails with it.
    pub filesystem_shared: bool,
}

/// A directory that may become a disk, or is yet to be one: the room of its filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The directory.
    pub path: PathBuf,
    /// Rooms of one filesystem have the same number here, and fail together.
    pub filesystem: u64,
    /// The size of the filesystem, in bytes.
    pub total_bytes: u64,
    /// The bytes that are free.
    pub free_bytes: u64,
}

impl From<&Candidate> for Room {
    fn from(candidate: &Candidate) -> Self {
        let DiskSpace { total_bytes, free_bytes, filesystem, .. } = candidate.space;
        Self { path: candidate.path.clone(), filesystem, total_bytes, free_bytes }
    }
}

/// A directory that may become a disk of a pool.
pub struct Candidate {
    pub path: PathBuf,
    pub disk: Arc<dyn DiskIo>,
    /// The directory does not exist.
    pub is_yet_to_be_made: bool,
    pub space: DiskSpace,
}

impl Candidate {
    pub fn identity(&self) -> Option<(u64, u64)> {
        self.disk.identity().ok()
    }
}

/// Directories that may join a pool: empty but for labels that are `left_over`, large enough, each
/// given once.
pub fn candidates(
    opener: &dyn DiskOpener,
    paths: &[PathBuf],
    left_over: impl Fn(&Label) -> bool,
) -> Result<Vec<Candidate>, PoolError> {
    check_same_path(paths)?;
    let found: Vec<Candidate> = paths.iter().map(|path| candidate(opener, path, false)).collect::<Result<_, _>>()?;
    check_identities(&found)?;
    found.iter().try_for_each(|candidate| check_empty(candidate, &left_over))?;
    Ok(found)
}

/// A directory whatever it holds.
pub fn of_disk(path: &Path, disk: Arc<dyn DiskIo>) -> Result<Candidate, PoolError> {
    let space = disk.space().map_err(PoolError::io("ask the size of", path))?;
    Ok(Candidate { path: path.to_owned(), disk, is_yet_to_be_made: false, space })
}

impl Pool {
    /// Describes the pool that [`Pool::create`] would make, and refuses what it would refuse.
    /// Changes nothing.
    pub fn plan(options: &CreateOptions) -> Result<Plan, PoolError> {
        Ok(examine(options, false)?.0)
    }

    /// The room of a directory that may become a disk. Refuses what [`Pool::create`] would refuse, and changes nothing.
    pub fn room(path: &Path) -> Result<Room, PoolError> {
        let found = candidate(&FileDisks, path, false)?;
        check_empty(&found, &|_| false)?;
        Ok(Room::from(&found))
    }

    /// Describes the pool that a layout would make of rooms, some of which may be of disks without a filesystem yet.
    pub fn foresee(layout: Layout, rooms: &[Room]) -> Result<Plan, PoolError> {
        let options = CreateOptions::new("pool", layout, rooms.iter().map(|room| room.path.clone()).collect());
        check_count(&options)?;
        check_same_path(&options.disks)?;
        if let Some(small) = rooms.iter().find(|room| room.free_bytes < DISK_BYTES_MIN) {
            let (path, room) = (small.path.clone(), small.free_bytes);
            return Err(PoolError::TooSmall { path, room, need: DISK_BYTES_MIN });
        }
        Ok(plan_of(&options, width_of(&options)?, rooms))
    }

    /// Makes a pool out of empty directories and opens it. Directories that do not exist are made.
    pub async fn create(options: CreateOptions) -> Result<Self, PoolError> {
        let opener = options.opener.clone();
        let disks = options.disks.clone();
        let name = options.name.clone();
        let last_lives = options.last_lives.clone();
        let written = opener.work().blocking(move || write_pool(&options)).await;
        written.ok_or_else(|| PoolError::Cancelled(name.clone()))??;
        Self::open(OpenOptions { name: Some(name), last_lives, opener, ..OpenOptions::new(disks) }).await
    }
}

/// All checks; with `make` missing directories are created.
fn examine(options: &CreateOptions, make: bool) -> Result<(Plan, Vec<Candidate>), PoolError> {
    check_name(&options.name)?;
    check_count(options)?;
    let width = width_of(options)?;
    check_same_path(&options.disks)?;
    let candidates: Vec<Candidate> =
        options.disks.iter().map(|path| candidate(&*options.opener, path, make)).collect::<Result<_, _>>()?;
    check_identities(&candidates)?;
    candidates.iter().try_for_each(|candidate| check_empty(candidate, &|_| false))?;
    let rooms: Vec<Room> = candidates.iter().map(Room::from).collect();
    Ok((plan_of(options, width, &rooms), candidates))
}

fn check_count(options: &CreateOptions) -> Result<(), PoolError> {
    let (layout, have) = (options.layout, options.disks.len());
    if have < layout.disks_min() {
        return Err(PoolError::TooFewDisks { layout: layout.to_string(), need: layout.disks_min(), have });
    }
    if have > DISKS_MAX {
        return Err(PoolError::TooManyDisks { have });
    }
    Ok(())
}

pub fn check_name(name: &str) -> Result<(), PoolError> {
    let valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let good = name.len() <= 64 && name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(valid);
    if good { Ok(()) } else { Err(PoolError::BadName(name.to_owned())) }
}

fn width_of(options: &CreateOptions) -> Result<u8, PoolError> {
    let (layout, disks) = (options.layout, options.disks.len());
    options.width.map_or_else(|| Ok(layout.width_default(disks)), |width| check_width(layout, disks, width))
}

pub fn check_width(layout: Layout, disks: usize, width: u8) -> Result<u8, PoolError> {
    let min = if layout == Layout::Stripe { 1 } else { layout.disks_min() };
    let max = if layout.is_mirror() { min } else { disks };
    if (min..=max).contains(&usize::from(width)) {
        return Ok(width);
    }
    Err(PoolError::BadWidth { layout: layout.to_string(), width, disks, min, max })
}

fn check_same_path(paths: &[PathBuf]) -> Result<(), PoolError> {
    for (at, path) in paths.iter().enumerate() {
        if let Some(twice) = paths.iter().take(at).find(|other| *other == path) {
            return Err(PoolError::SameDisk(twice.clone(), path.clone()));
        }
    }
    Ok(())
}

fn candidate(opener: &dyn DiskOpener, path: &Path, make: bool) -> Result<Candidate, PoolError> {
    let mut is_yet_to_be_made = false;
    let mut open = || match opener.open_disk(path) {
        Err(error) if make && error.kind() == std::io::ErrorKind::NotFound => {
            opener.make_directory(path)?;
            opener.open_disk(path)
        }
        // A plan changes nothing: it looks at the filesystem that the directory would be on.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let parent = path.ancestors().skip(1).find(|parent| parent.is_dir()).ok_or(error)?;
            is_yet_to_be_made = true;
            opener.open_disk(parent).map(|disk| Arc::new(NotYet(disk)) as Arc<dyn DiskIo>)
        }
        other => other,
    };
    let disk = open().map_err(PoolError::io("open the directory", path))?;
    let space = disk.space().map_err(PoolError::io("ask the size of", path))?;
    if space.free_bytes < DISK_BYTES_MIN {
        return Err(PoolError::TooSmall { path: path.to_owned(), room: space.free_bytes, need: DISK_BYTES_MIN });
    }
    Ok(Candidate { path: path.to_owned(), disk, is_yet_to_be_made, space })
}

fn check_identities(candidates: &[Candidate]) -> Result<(), PoolError> {
    let mut seen: Vec<((u64, u64), &Path)> = Vec::new();
    for candidate in candidates {
        let Ok(identity) = candidate.disk.identity() else { continue };
        if let Some((_, other)) = seen.iter().find(|(known, _)| *known == identity) {
            return Err(PoolError::SameDisk(other.to_path_buf(), candidate.path.clone()));
        }
        seen.push((identity, &candidate.path));
    }
    Ok(())
}

fn check_empty(candidate: &Candidate, left_over: &dyn Fn(&Label) -> bool) -> Result<(), PoolError> {
    let path = &candidate.path;
    let is_left_over = match label::read(&*candidate.disk) {
        Err(_) => false,
        Ok(Ok(label)) if left_over(&label) => true,
        Ok(label) => {
            let pool = label.map_or_else(|why| format!("unknown: {why}"), |label| label.name);
            return Err(PoolError::AlreadyLabelled { path: path.clone(), pool });
        }
    };
    let names = candidate.disk.list("").map_err(PoolError::io("list", path))?;
    let disk = &*candidate.disk;
    let is_label = |name: &str| is_left_over && [label::LABEL_NAME, label::SECOND_NAME].contains(&name);
    let is_harmless = |name: &String| HARMLESS.contains(&name.as_str()) || is_label(name) || is_unfinished(disk, name);
    match names.into_iter().find(|name| !is_harmless(name)) {
        Some(found) => Err(PoolError::NotEmpty { path: path.clone(), found }),
        None => Ok(()),
    }
}

/// The remains of a disk that was cut short while it was made ready, or that was emptied while a
/// pool was open. They are our own folders with nothing in them, a label without a name, and files
/// that nothing depends on. Any other file belongs to somebody else.
fn is_unfinished(disk: &dyn DiskIo, name: &str) -> bool {
    let is_empty = |folder: &str| disk.list(folder).is_ok_and(|names| names.is_empty());
    match name {
        "objects" => {
            disk.list(name).is_ok_and(|folders| folders.iter().all(|folder| is_empty(&format!("objects/{folder}"))))
        }
        "journal" => is_empty(name),
        _ => {
            let is_new_of = |file: &str| name.strip_suffix(".new") == Some(file);
            reserve::is_reserve(name)
                || SIDE_FILES.iter().any(|file| name == *file || is_new_of(file))
                || [label::LABEL_NAME, label::SECOND_NAME].into_iter().any(is_new_of)
        }
    }
}

fn plan_of(options: &CreateOptions, width: u8, rooms: &[Room]) -> Plan {
    let layout = options.layout;
    let sharing = |disk: &Room| rooms.iter().filter(|other| other.filesystem == disk.filesystem).count().max(1) as u64;
    // The part of the journal that is there most of the time. The journal may become longer, as any
    // other data.
    let journal = Journal::usual_bytes(journal_bytes(options, rooms));
    let free = |disk: &Room| {
        let share = disk.free_bytes / sharing(disk);
        share.saturating_sub(reserve_soft(disk.total_bytes / sharing(disk))).saturating_sub(journal)
    };
    let frees: Vec<u64> = rooms.iter().map(free).collect();
    let (usable_bytes, used) = placement::fill(layout, width, &frees, rooms.len());
    let (data, parity) = layout.shape(width, rooms.len());
    let disks: Vec<PlannedDisk> = rooms
        .iter()
        .zip(&used)
        .map(|(disk, used)| PlannedDisk {
            path: disk.path.clone(),
            size_bytes: disk.total_bytes / sharing(disk),
            used_bytes: *used,
            filesystem_shared: sharing(disk) > 1,
        })
        .collect();
    let warnings = warnings(layout, &disks, &frees);
    Plan {
        name: options.name.clone(),
        layout,
        width,
        data,
        parity,
        raw_bytes: disks.iter().map(|disk| disk.size_bytes).sum(),
        usable_bytes,
        failures_survived: layout.failures(),
        disks,
        warnings,
    }
}

fn warnings(layout: Layout, disks: &[PlannedDisk], frees: &[u64]) -> Vec<String> {
    let mut warnings = Vec::new();
    let shared: Vec<String> =
        disks.iter().filter(|d| d.filesystem_shared).map(|d| d.path.display().to_string()).collect();
    if !shared.is_empty() {
        warnings.push(format!(
            "{} lie on one filesystem: good for trying out, but if that disk fails all is lost",
            shared.join(", ")
        ));
    }
    if layout == Layout::Stripe {
        warnings.push("stripe has no redundancy: one failed disk loses what lies on it".to_owned());
    }
    for (disk, free) in disks.iter().zip(frees) {
        let idle = free - disk.used_bytes.min(*free);
        if idle > free / 20 {
            let (idle, path) = (ByteSize(idle), disk.path.display());
            warnings.push(format!("{idle} of {path} cannot be used: it is larger than the others together allow"));
        }
    }
    warnings
}

fn journal_bytes(options: &CreateOptions, rooms: &[Room]) -> u64 {
    let smallest = rooms.iter().map(|disk| disk.free_bytes).min().unwrap_or(0);
    options.journal_bytes.unwrap_or_else(|| Journal::size_default(smallest))
}

fn write_pool(options: &CreateOptions) -> Result<(), PoolError> {
    let (plan, candidates) = examine(options, true)?;
    let ids: Vec<Uuid> = candidates.iter().map(|_| Uuid::new_v4()).collect();
    let copies = usize::from(plan.failures_survived) + 1;
    let (host, host_id) = folder::host();
    let mut label = Label {
        pool: Uuid::new_v4(),
        name: options.name.clone(),
        layout: options.layout,
        width: plan.width,
        earlier: None,
        rebalancing: false,
        spares: Vec::new(),
        disk: Uuid::nil(),
        generation: 1,
        nonce: rand::random(),
        history: Vec::new(),
        members: ids.iter().zip(&candidates).map(|(id, disk)| Member::new(*id, absolute(&disk.path))).collect(),
        journal: ids.iter().take(copies).copied().collect(),
        journal_bytes: journal_bytes(options, &candidates.iter().map(Room::from).collect::<Vec<_>>()),
        settled: 0,
        journal_batch: 0,
        unproven: false,
        owing: false,
        usage: Usage::Closed { host, host_id },
        created_ms: now_ms(),
        written_ms: now_ms(),
        lives: vec![Life { mark: rand::random(), since_ms: now_ms(), batch: 0, generation: 1, before_ms: 0 }],
        coming: None,
        present: ids.iter().copied().collect(),
        features: label::features_in_use(Default::default()),
    };
    let mut locks = Vec::new();
    for candidate in &candidates {
        locks.push(candidate.disk.lock("pool create").map_err(PoolError::io("lock", &candidate.path))?);
    }
    for candidate in &candidates {
        prepare(&*candidate.disk).map_err(PoolError::io("prepare", &candidate.path))?;
    }
    // Labels come last: a directory without one is not part of anything.
    for (id, candidate) in ids.iter().zip(&candidates) {
        label.disk = *id;
        if let Err(error) = label::write(&*candidate.disk, &label) {
            candidates.iter().for_each(|written| label::remove(&*written.disk));
            return Err(PoolError::io("write the label of", &candidate.path)(error));
        }
    }
    Ok(())
}

/// Finishes a `write_pool` that a power cut interrupted: labels are on some disks only. Labels come
/// last and opening writes the second generation, so where all labels are of the first no object
/// was ever stored. A member without a label whose folder is as `prepare` left it lacks only that;
/// an empty folder may be the mount point of a disk that is away. Returns the disks that have a
/// label now.
pub fn finish_creation(opener: &dyn DiskOpener, labels: &[Label]) -> Vec<(PathBuf, Arc<dyn DiskIo>, Label)> {
    let Some(first) = labels.first().filter(|_| labels.iter().all(|label| label.generation == 1)) else {
        return Vec::new();
    };
    let lacking = first.members.iter().filter(|member| labels.iter().all(|label| label.disk != member.id));
    let finish = |member: &Member| -> Option<(PathBuf, Arc<dyn DiskIo>, Label)> {
        let disk = opener.open_disk(&member.path).ok().filter(|disk| is_prepared(&**disk))?;
        // The process that is making the pool holds it.
        let _lock = disk.lock("pool create").ok()?;
        let label = Label { disk: member.id, ..first.clone() };
        let written = prepare(&*disk).and_then(|()| label::write(&*disk, &label));
        if let Err(error) = written {
            tracing::warn!(disk = %member.path.display(), %error, "the creation of the pool cannot be finished there");
            label::remove(&*disk);
            return None;
        }
        tracing::info!(pool = %first.name, disk = %member.path.display(), "the creation of the pool was cut short: finished");
        Some((member.path.clone(), disk.clone(), label))
    };
    lacking.filter_map(finish).collect()
}

/// A disk that was made ready and has no label yet.
pub fn is_prepared(disk: &dyn DiskIo) -> bool {
    let has_no_label = label::read(disk).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
    let names = disk.list("").unwrap_or_default();
    let is_ours = |name: &String| HARMLESS.contains(&name.as_str()) || is_unfinished(disk, name);
    has_no_label
        && ["objects", "journal"].iter().all(|ours| names.iter().any(|name| name == ours))
        && names.iter().all(is_ours)
}

pub fn prepare(disk: &dyn DiskIo) -> std::io::Result<()> {
    for file in SIDE_FILES {
        // They would speak of another time, or of another pool.
        let _ = disk.remove(file);
    }
    disk.make_directory("objects")?;
    for directory in 0..FANOUT {
        disk.make_directory(&format!("objects/{directory:02x}"))?;
    }
    Journal::prepare(disk)?;
    disk.sync_all()
}

/// A directory that would be made: empty, on the filesystem of its parent.
#[derive(Debug)]
struct NotYet(Arc<dyn DiskIo>);

impl NotYet {
    fn none<T>() -> std::io::Result<T> {
        Err(std::io::ErrorKind::NotFound.into())
    }
}

impl DiskIo for NotYet {
    fn create(&self, _: &str) -> std::io::Result<Arc<dyn crate::disk::DiskFile>> {
        Self::none()
    }

    fn open(&self, _: &str, _: bool) -> std::io::Result<Arc<dyn crate::disk::DiskFile>> {
        Self::none()
    }

    fn rename(&self, _: &str, _: &str) -> std::io::Result<()> {
        Self::none()
    }

    fn remove(&self, _: &str) -> std::io::Result<()> {
        Self::none()
    }

    fn list(&self, _: &str) -> std::io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn make_directory(&self, _: &str) -> std::io::Result<()> {
        Self::none()
    }

    fn remove_directory(&self, _: &str) -> std::io::Result<()> {
        Self::none()
    }

    fn sync_directory(&self, _: &str) -> std::io::Result<()> {
        Self::none()
    }

    fn sync_all(&self) -> std::io::Result<()> {
        Self::none()
    }

    fn space(&self) -> std::io::Result<DiskSpace> {
        self.0.space()
    }

    fn lock(&self, _: &str) -> std::io::Result<Box<dyn std::any::Any + Send + Sync>> {
        Self::none()
    }

    fn identity(&self) -> std::io::Result<(u64, u64)> {
        Self::none()
    }
}
