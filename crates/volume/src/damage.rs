//! From damaged bytes of objects to the files that have lost them.
//!
//! The store below says which bytes of which objects are beyond repair. Extents say which files
//! they belong to, entries say the names of the files. Both tables are read once; memory is bounded
//! by the number of files that are listed.
//!
//! Damage without an extent harms no file: it is not reported, and goes with its segment.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use futures::future::BoxFuture;
use larder_fs::places::catalog_of;
use larder_fs::*;
use object_store::path::Path;

use crate::check::Pages;
use crate::data::{EXTENT_TAG, RecordPiece as Piece, SegmentId, decode_extent, object_path, segment_of};
use crate::keys::{self, tag};
use crate::layout::prefix_of;
use crate::lineage::{Ancestor, owner};
use crate::meta::Meta;
use crate::properties::VolumeInfo;
use crate::registry::Registry;
use crate::state::State;
use crate::volume::Volume;

/// More files than this are only counted.
const FILES_MAX: usize = 10_000;
/// More ranges of one file than this are joined with the last one.
const RANGES_MAX: usize = 64;
const DEPTH_MAX: usize = 256;
/// Snapshots named for one damaged object.
const SNAPSHOTS_MAX: usize = 5;

/// An object with bytes that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedObject {
    /// Its path in the store.
    pub path: String,
    /// The bytes of the object, in order.
    pub ranges: Vec<Range<u64>>,
}

/// A file with bytes that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedFile {
    /// The name of its volume.
    pub volume: String,
    /// The number of its inode.
    pub ino: u64,
    /// All its names, from the top of the volume; none for a file that was removed and is still
    /// open. Of data that only snapshots have, the tops of these snapshots.
    pub paths: Vec<String>,
    /// Bytes of the file, in order.
    pub ranges: Vec<Range<u64>>,
}

/// The meaning of damaged objects to users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DamageReport {
    /// The files that lost bytes.
    pub files: Vec<DamagedFile>,
    /// Objects that hold no file data, each with the name of the volume whose metadata it is, if
    /// known.
    pub metadata: Vec<(String, Option<String>)>,
    /// Objects of file data whose damaged bytes no file uses any more.
    pub unused: Vec<String>,
    /// How many files there are beyond those listed.
    pub more: u64,
}

/// The path of each, and its damaged bytes.
type Segments<'a> = BTreeMap<SegmentId, (&'a str, Vec<Range<u64>>)>;

impl Registry {
    /// The files and metadata that lose bytes with these objects. Opens the volumes concerned; without
    /// objects it reads nothing, so that whoever only looks is no user of the pool for a scrub.
    pub async fn damaged_files(&self, objects: &[DamagedObject]) -> FsResult<DamageReport> {
        let mut report = DamageReport::default();
        if objects.is_empty() {
            return Ok(report);
        }
        let (document, _) = self.read().await?;
        let living = document.volumes.iter().filter(|entry| !entry.doomed);
        let volumes: Vec<(VolumeInfo, &[Ancestor])> = living.map(|entry| (entry.info(), entry.lineage())).collect();
        let mut known: BTreeSet<&str> = BTreeSet::new();
        for (volume, lineage) in &volumes {
            let prefix = format!("volumes/{}/", volume.id);
            let mut segments = Segments::new();
            for object in objects.iter().filter(|object| object.path.starts_with(&prefix)) {
                known.insert(&object.path);
                let is_data = object.path.get(prefix.len()..).is_some_and(|rest| rest.starts_with("seg/"));
                match Path::parse(&object.path).ok().and_then(|path| segment_of(&path)).filter(|_| is_data) {
                    Some(segment) => drop(segments.insert(segment, (&object.path, object.ranges.clone()))),
                    None => report.metadata.push((object.path.clone(), Some(volume.name.clone()))),
                }
            }
            let own: BTreeSet<SegmentId> = segments.keys().copied().collect();
            for object in objects {
                let path = Path::parse(&object.path).ok();
                let Some(id) = path.as_ref().and_then(segment_of).filter(|_| !lineage.is_empty()) else { continue };
                let is_inherited = owner(lineage, id)
                    .is_some_and(|owner| object.path == object_path(&prefix_of(owner), id).to_string());
                if is_inherited {
                    segments.insert(id, (&object.path, object.ranges.clone()));
                }
            }
            if !segments.is_empty() {
                let open = self.volume(&volume.name).await?;
                files_of(&open.state, &volume.name, &segments, &own, &mut report).await?;
            }
        }
        let others = objects.iter().filter(|object| !known.contains(object.path.as_str()));
        report.metadata.extend(others.map(|object| (object.path.clone(), None)));
        Ok(report)
    }
}

fn files_of<'a>(
    state: &'a State,
    volume: &'a str,
    segments: &'a Segments<'a>,
    own: &'a BTreeSet<SegmentId>,
    report: &'a mut DamageReport,
) -> BoxFuture<'a, FsResult<()>> {
    Box::pin(async move {
        let Lost { mut files, more, used } = lost_bytes(&*state.meta, segments).await?;
        report.more += more;
        for (&segment, (path, _)) in segments.iter().filter(|(segment, _)| !used.contains(segment)) {
            let readers = state.data.readers(segment);
            let names = state.catalog.names();
            let of_snapshots = names.iter().filter(|(number, _)| readers.contains(number)).take(SNAPSHOTS_MAX);
            let paths: Vec<String> = of_snapshots.map(|(_, name)| format!("/.snapshots/{name}")).collect();
            match paths.is_empty() {
                // What a clone does not use of its ancestor's is no affair of it.
                true if !own.contains(&segment) => {}
                true => report.unused.push((*path).to_owned()),
                // Something below them.
                false => report.files.push(DamagedFile {
                    volume: volume.to_owned(),
                    ino: catalog_of(Ino::ROOT).0,
                    paths,
                    ranges: Vec::new(),
                }),
            }
        }
        let mut names = names_of(&*state.meta, &files).await?;
        let mut folders = Folders { state, known: HashMap::from([(Ino::ROOT, String::new())]) };
        for (ino, ranges) in std::mem::take(&mut files) {
            let mut paths = Vec::new();
            for (dir, name) in names.remove(&ino).unwrap_or_default() {
                paths.push(format!("{}/{name}", folders.path(dir).await?));
            }
            paths.sort();
            report.files.push(DamagedFile { volume: volume.to_owned(), ino: ino.0, paths, ranges });
        }
        Ok(())
    })
}

/// The files with damaged bytes.
#[derive(Default)]
struct Lost {
    files: BTreeMap<Ino, Vec<Range<u64>>>,
    /// How many files there are beyond those.
    more: u64,
    used: BTreeSet<SegmentId>,
}

async fn lost_bytes(meta: &dyn Meta, segments: &Segments<'_>) -> FsResult<Lost> {
    let mut lost = Lost::default();
    let mut last_more = None;
    let mut pages = Pages::of(EXTENT_TAG);
    while let Some(page) = pages.next(meta).await? {
        for (key, value) in page {
            let (ino, offset, extent) = decode_extent(&key, &value)?;
            let Some(record) = extent.record() else { continue };
            let Some((_, ranges)) = segments.get(&record.segment) else { continue };
            let start = u64::from(record.position);
            let is_hit = |piece: &Piece| {
                let stored = start + u64::from(piece.stored.start)..start + u64::from(piece.stored.end);
                ranges.iter().any(|bad| bad.start < stored.end && stored.start < bad.end)
            };
            // Pieces are read alone, so the others of the record are not lost.
            let (skip, end) = (extent.skip, extent.skip + extent.len);
            let hit = record.pieces().filter(is_hit).map(|piece| piece.raw.start.max(skip)..piece.raw.end.min(end));
            let mut hit = hit.filter(|raw| raw.start < raw.end).peekable();
            if hit.peek().is_none() {
                continue;
            }
            lost.used.insert(record.segment);
            if lost.files.len() >= FILES_MAX && !lost.files.contains_key(&ino) {
                // Extents are in the order of inodes.
                lost.more += u64::from(last_more.replace(ino) != Some(ino));
                continue;
            }
            let ranges = lost.files.entry(ino).or_default();
            for raw in hit {
                add(ranges, offset + u64::from(raw.start - skip)..offset + u64::from(raw.end - skip));
            }
        }
    }
    Ok(lost)
}

/// `range` lies behind those before it.
fn add(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    let full = ranges.len() >= RANGES_MAX;
    match ranges.last_mut() {
        Some(last) if full || last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

/// Folder and name of every entry of these files.
async fn names_of(
    meta: &dyn Meta,
    files: &BTreeMap<Ino, Vec<Range<u64>>>,
) -> FsResult<HashMap<Ino, Vec<(Ino, String)>>> {
    let mut names: HashMap<Ino, Vec<(Ino, String)>> = HashMap::new();
    let mut pages = Pages::of(tag::ENTRY);
    while let Some(page) = if files.is_empty() { None } else { pages.next(meta).await? } {
        for (key, value) in page {
            let entry = keys::decode_entry(&key, &value)?;
            if files.contains_key(&entry.ino) {
                let name = String::from_utf8_lossy(&keys::rest_of(&key)).into_owned();
                names.entry(entry.ino).or_default().push((keys::ino_of(&key)?, name));
            }
        }
    }
    Ok(names)
}

impl Volume {
    /// Paths of these folders from the top of the volume, which is empty itself. One that is gone, or of a snapshot, is
    /// left out.
    pub async fn folder_paths(&self, folders: impl IntoIterator<Item = Ino>) -> HashMap<Ino, String> {
        let mut found = Folders { state: &self.state, known: HashMap::from([(Ino::ROOT, String::new())]) };
        let mut paths = HashMap::new();
        for folder in folders {
            if let Ok(path) = found.path(folder).await {
                paths.insert(folder, path);
            }
        }
        paths
    }
}

/// Paths of folders that have been found.
struct Folders<'a> {
    state: &'a State,
    known: HashMap<Ino, String>,
}

impl Folders<'_> {
    /// The path of a folder; the top one is empty.
    async fn path(&mut self, dir: Ino) -> FsResult<String> {
        let mut steps: Vec<(Ino, String)> = Vec::new();
        let mut at = dir;
        let mut path = loop {
            if let Some(known) = self.known.get(&at) {
                break known.clone();
            }
            if steps.len() >= DEPTH_MAX {
                break "...".to_owned();
            }
            let parent = self.state.inodes.load(at).await?.core.lock().parent;
            steps.push((at, self.name_in(parent, at).await?));
            at = parent;
        };
        for (ino, name) in steps.into_iter().rev() {
            path = format!("{path}/{name}");
            self.known.insert(ino, path.clone());
        }
        Ok(path)
    }

    async fn name_in(&self, parent: Ino, child: Ino) -> FsResult<String> {
        let mut pages = Pages::within(tag::ENTRY, parent);
        while let Some(page) = pages.next(&*self.state.meta).await? {
            for (key, value) in page {
                if keys::decode_entry(&key, &value)?.ino == child {
                    return Ok(String::from_utf8_lossy(&keys::rest_of(&key)).into_owned());
                }
            }
        }
        // Moved while it was looked for.
        Ok(format!("<folder {}>", child.0))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use bytes::Bytes;
    use object_store::ObjectStore;

    use super::*;
    use crate::tests::{Box_, dir, file, root};

    async fn write(volume: &crate::Volume, ino: Ino, seed: u64, len: usize) {
        let bytes: Vec<u8> = (0..len as u64 / 8)
            .flat_map(|i| larder_base::checksum::checksum(seed, &i.to_le_bytes()).to_le_bytes())
            .collect();
        volume.write(&root(), ino, 0, vec![Bytes::from(bytes)], Stability::Unstable).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn all_names_of_a_file_are_told() {
        let place = Box_::new();
        let (registry, volume) = place.open().await;
        let folder = dir(&volume, dir(&volume, Ino::ROOT, "a").await, "b").await;
        let ino = file(&volume, folder, "one").await;
        volume.link(&root(), ino, Ino::ROOT, b"two").await.unwrap();
        write(&volume, ino, 1, 600_000).await;
        let other = file(&volume, folder, "intact").await;
        volume.sync().await.unwrap();
        write(&volume, other, 2, 600_000).await;
        volume.sync().await.unwrap();
        let prefix = format!("volumes/{}/", volume.id());
        let mut segments = Vec::new();
        let mut objects = place.store.list(None);
        while let Some(object) = futures::StreamExt::next(&mut objects).await {
            let path = object.unwrap().location.to_string();
            segments.extend(path.contains("/seg/").then_some(path));
        }
        segments.sort();
        // The second record of the first segment, and what is no file data.
        let damaged = |path: &str, range: Range<u64>| DamagedObject { path: path.to_owned(), ranges: vec![range] };
        let meta = format!("{prefix}meta/manifest/1");
        let report = registry
            .damaged_files(&[
                damaged(&segments[0], 64 + 140_000..64 + 140_001),
                damaged(&meta, 0..10),
                damaged("registry.json", 0..10),
            ])
            .await
            .unwrap();
        assert_eq!(report.metadata, [(meta, Some("v".to_owned())), ("registry.json".to_owned(), None)]);
        assert_eq!(report.unused, Vec::<String>::new());
        let [one] = report.files.as_slice() else { panic!("{report:?}") };
        assert_eq!(one.paths, ["/a/b/one", "/two"]);
        assert_eq!((one.volume.as_str(), one.ino, one.ranges.len()), ("v", ino.0, 1));
        assert_eq!(one.ranges[0], 131_072 + 8192..131_072 + 16_384, "the damaged piece alone");
        // Rewritten, it is well.
        write(&volume, ino, 3, 600_000).await;
        volume.sync().await.unwrap();
        let report = registry.damaged_files(&[damaged(&segments[0], 64..300_000)]).await.unwrap();
        assert_eq!(report, DamageReport { unused: vec![segments[0].clone()], ..DamageReport::default() });
        registry.close().await.unwrap();
    }
}
