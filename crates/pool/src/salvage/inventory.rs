//! Which shards lie where, and which version of an object to believe.
//!
//! A file whose name says nothing (fsck gives such) is asked for its header. Of a path's versions
//! the newest lives that has `k` shards; else the newest.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use uuid::Uuid;

use crate::disk::{DiskIo, read_file};
use crate::object::geometry::Geometry;
use crate::object::shard::{self, Found, HEADER_BYTES_MAX, Header, PathName};

/// The directory where fsck puts lost files.
const LOST_AND_FOUND: &str = "lost+found";
/// Headers that are looked at for the id of a pool that no label names.
const HEADERS_MAX: usize = 64;

/// One shard on one disk.
#[derive(Debug)]
pub struct Sighting {
    pub path: String,
    pub version: u64,
    pub modified_ms: u64,
    pub geometry: Geometry,
    pub header_bytes: u32,
    pub index: u8,
    pub file: String,
}

#[derive(Debug, Default)]
pub struct Inventory {
    pub shards: Vec<Sighting>,
    /// How many are known by their headers alone.
    pub odd: usize,
    pub error: Option<String>,
}

/// Lists a disk. Blocks.
pub fn take(pool: Uuid, disk: &dyn DiskIo) -> Inventory {
    let mut inventory = Inventory::default();
    let directories = match disk.list("objects") {
        Ok(directories) => directories,
        Err(error) => {
            inventory.error = Some(format!("its objects cannot be listed: {error}"));
            Vec::new()
        }
    };
    let directories = directories.into_iter().map(|name| format!("objects/{name}"));
    for directory in directories.chain([LOST_AND_FOUND.to_owned()]) {
        let names = match disk.list(&directory) {
            Ok(names) => names,
            Err(error) if matches!(error.raw_os_error(), Some(2 | 20)) => continue,
            Err(error) => {
                inventory.error = Some(format!("{directory} cannot be listed: {error}"));
                continue;
            }
        };
        for name in names {
            let file = format!("{directory}/{name}");
            if let Some((sighting, by_name)) = look(pool, disk, &name, file) {
                inventory.odd += usize::from(!by_name);
                inventory.shards.push(sighting);
            }
        }
    }
    inventory
}

/// The shard in a file, and whether its name tells.
fn look(pool: Uuid, disk: &dyn DiskIo, name: &str, file: String) -> Option<(Sighting, bool)> {
    let header = || header_of(disk, &file).filter(|(header, _)| header.pool == pool);
    match shard::parse_name(name) {
        // An object that was being written when the machine stopped was not acknowledged, and may
        // be cut short.
        Found::Temp => None,
        Found::Shard(found) => {
            let path = match found.path {
                PathName::Plain(path) => path,
                PathName::Hashed(_) => header()?.0.path,
            };
            let (version, modified_ms, geometry) = (found.version, found.modified_ms, found.geometry);
            let (header_bytes, index) = (found.header_bytes, found.index);
            Some((Sighting { path, version, modified_ms, geometry, header_bytes, index, file }, true))
        }
        Found::Unknown => {
            let (header, header_bytes) = header()?;
            let (version, modified_ms, geometry) = (header.version, header.modified_ms, header.geometry);
            let (path, index) = (header.path, header.index);
            Some((Sighting { path, version, modified_ms, geometry, header_bytes, index, file }, false))
        }
    }
}

/// The header at the start of a file, and its length.
fn header_of(disk: &dyn DiskIo, file: &str) -> Option<(Header, u32)> {
    let start = read_file(disk, file, 16).ok()?;
    let length = shard::header_length(&start)?;
    let bytes = read_file(disk, file, u64::from(length)).ok()?;
    Some((Header::decode(&bytes)?, length))
}

/// The pool that most of the first headers on a disk name.
pub fn pool_of(disk: &dyn DiskIo) -> Option<Uuid> {
    let mut votes: BTreeMap<Uuid, usize> = BTreeMap::new();
    let mut seen = 0;
    for directory in disk.list("objects").ok()? {
        for name in disk.list(&format!("objects/{directory}")).unwrap_or_default() {
            if let Some((header, _)) = header_of(disk, &format!("objects/{directory}/{name}")) {
                *votes.entry(header.pool).or_default() += 1;
            }
            seen += 1;
            if seen >= HEADERS_MAX {
                break;
            }
        }
    }
    votes.into_iter().max_by_key(|(_, count)| *count).map(|(pool, _)| pool)
}

/// One version of an object.
#[derive(Debug)]
pub struct Version {
    pub version: u64,
    pub modified_ms: u64,
    pub geometry: Geometry,
    pub header_bytes: u32,
    pub places: Vec<Place>,
}

#[derive(Debug)]
pub struct Place {
    pub index: u8,
    /// Of the disks given.
    pub disk: usize,
    pub file: String,
}

impl Version {
    /// How many different shards there are.
    pub fn distinct(&self) -> usize {
        self.places.iter().map(|place| place.index).collect::<BTreeSet<_>>().len()
    }

    pub fn is_complete(&self) -> bool {
        self.distinct() >= usize::from(self.geometry.k)
    }

    pub fn of_shard(&self, index: u8) -> impl Iterator<Item = &Place> {
        self.places.iter().filter(move |place| place.index == index)
    }
}

/// An object and the places of its shards, for people.
#[derive(Clone, Debug, Serialize)]
pub struct ObjectFound {
    /// The object's path.
    pub path: String,
    /// Its version: the newest of which enough shards were found.
    pub version: u64,
    /// The object's size in bytes.
    pub size_bytes: u64,
    /// Its data shards: as many intact shards make the object readable.
    pub data: u8,
    /// Its parity shards, or further copies of a mirror.
    pub parity: u8,
    /// How many other versions of it were found.
    pub versions_other: usize,
    /// The shards that were found.
    pub shards: Vec<ShardFound>,
}

/// A shard file.
#[derive(Clone, Debug, Serialize)]
pub struct ShardFound {
    /// Its index, counted from 0; data shards first.
    pub shard: u8,
    /// The disk: its place among those of the report.
    pub disk: usize,
    /// The file's name on that disk.
    pub file: String,
}

/// Something wrong with a shard.
#[derive(Clone, Debug, Serialize)]
pub struct Damage {
    /// The shard's index.
    pub shard: u8,
    /// `None`: on no disk.
    pub disk: Option<usize>,
    /// In the file; `None`: all of it.
    pub offset_bytes: Option<u64>,
    /// The fault, as a sentence.
    pub why: String,
}

/// All objects by path, the version to believe first.
#[derive(Debug, Default)]
pub struct Index {
    objects: BTreeMap<String, Vec<Version>>,
}

impl Index {
    /// `tombstoned` says up to which version a path was deleted.
    pub fn new(inventories: Vec<Inventory>, tombstoned: &BTreeMap<String, u64>) -> Self {
        // A name that disagrees with the others of its version is damaged: it counts as a version
        // of its own.
        type Shape = (u64, u64, u8, u8, u8, u32);
        let mut paths: BTreeMap<String, BTreeMap<Shape, Version>> = BTreeMap::new();
        for (disk, inventory) in inventories.into_iter().enumerate() {
            for s in inventory.shards {
                if tombstoned.get(&s.path).is_some_and(|deleted| s.version <= *deleted) {
                    continue;
                }
                let shape =
                    (s.version, s.geometry.size, s.geometry.k, s.geometry.m, s.geometry.block as u8, s.header_bytes);
                let new = || Version {
                    version: s.version,
                    modified_ms: s.modified_ms,
                    geometry: s.geometry,
                    header_bytes: s.header_bytes,
                    places: Vec::new(),
                };
                let version = paths.entry(s.path).or_default().entry(shape).or_insert_with(new);
                version.places.push(Place { index: s.index, disk, file: s.file });
            }
        }
        let ordered = |versions: BTreeMap<Shape, Version>| {
            let mut versions: Vec<Version> = versions.into_values().collect();
            versions.sort_by_key(|v| std::cmp::Reverse((v.is_complete(), v.version, v.places.len())));
            versions
        };
        Self { objects: paths.into_iter().map(|(path, versions)| (path, ordered(versions))).collect() }
    }

    pub fn get(&self, path: &str) -> Option<&Version> {
        self.objects.get(path)?.first()
    }

    /// From `path` on, in order.
    pub fn range(&self, from: std::ops::Bound<&str>) -> impl Iterator<Item = (&str, &Version)> {
        let objects = self.objects.range::<str, _>((from, std::ops::Bound::Unbounded));
        objects.filter_map(|(path, versions)| Some((path.as_str(), versions.first()?)))
    }

    /// All, and those with too few shards.
    pub fn counts(&self) -> (u64, u64) {
        let bad = self.objects.values().filter(|versions| !versions.first().is_some_and(Version::is_complete)).count();
        (self.objects.len() as u64, bad as u64)
    }

    pub fn objects(&self, prefix: &str) -> Vec<ObjectFound> {
        let from = self.objects.range::<str, _>((std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded));
        from.take_while(|(path, _)| path.starts_with(prefix))
            .filter_map(|(path, versions)| {
                let version = versions.first()?;
                let shard =
                    |place: &Place| ShardFound { shard: place.index, disk: place.disk, file: place.file.clone() };
                let mut shards: Vec<ShardFound> = version.places.iter().map(shard).collect();
                shards.sort_by_key(|found| found.shard);
                Some(ObjectFound {
                    path: path.clone(),
                    version: version.version,
                    size_bytes: version.geometry.size,
                    data: version.geometry.k,
                    parity: version.geometry.m,
                    versions_other: versions.len() - 1,
                    shards,
                })
            })
            .collect()
    }
}

const _: () = assert!(HEADER_BYTES_MAX <= u32::MAX as usize);
