//! Reading the journal of a pool that is about to be opened: nothing is written here.
//!
//! The copies that the labels name are read; with an accepted loss, older copies too. The result is
//! compared with what the labels prove (`label.journal_batch_proven`), and a journal that falls
//! short refuses the opening (`journal.loss_refused`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use uuid::Uuid;

use super::format::{ALIGN_BYTES, BatchHeader, SegmentHeader, segment_seed};
use super::replay::{self, SegmentImage};
use super::segment_file::{Readable, list, read_copy};
use super::segments::{DIRECTORY, file_name, parse_file_name};
use crate::disk::DiskIo;
use crate::error::PoolError;
use crate::member::label::Label;
use crate::member::member_disk::MemberDisk;
use crate::member::members::Members;

/// By sequence: the file, its copies, and the unreadable sectors of each.
pub type Images = BTreeMap<u64, (u32, SegmentImage, Vec<BTreeSet<u64>>)>;

/// The journal as it lies on the disks.
pub struct Stored {
    /// The slots of the disks whose copies were read, in the order of the copies of `images`.
    pub(super) sources: Vec<u8>,
    pub(super) images: Images,
    /// Files without a valid header, and their length in bytes.
    pub(super) spare: BTreeMap<u32, u64>,
    /// The loss that a person has accepted by opening the pool all the same
    /// (`journal.loss_refused`).
    pub loss: Option<String>,
}

/// Reads the journal and compares it with what the labels prove (`journal.loss_refused`). Writes
/// nothing. Blocks.
pub fn read(members: &Members, accept_loss: bool) -> Result<Stored, PoolError> {
    let label = members.label();
    let is_named = |member: &MemberDisk| label.journal.contains(&member.id);
    let slots = |is_source: &dyn Fn(&MemberDisk) -> bool| -> Vec<u8> {
        let readable = members.with_slots().filter(|(_, member)| member.is_readable());
        readable.filter(|(_, member)| is_source(member)).map(|(slot, _)| slot).collect()
    };
    // An older copy of a disk has an older copy of the journal (`label.settled_outlives`).
    let current = slots(&|member| is_named(member) && !member.unsettled.load(Ordering::Acquire));
    let is_current = !current.is_empty();
    let second_best = [slots(&|member| accept_loss && is_named(member)), slots(&|_| accept_loss)];
    let sources = std::iter::once(current).chain(second_best).find(|slots| !slots.is_empty()).unwrap_or_default();
    let (images, spare) = if sources.is_empty() { Default::default() } else { load(members, &sources)? };
    let reached =
        images.values().rev().map(|(_, image, _)| replay::scan(members.id, image).batch_last).find(|last| *last > 0);
    let why = match reached {
        _ if !is_current => Some("none of the disks with a current copy of the journal is here".to_owned()),
        None if label.journal_batch > 0 || (images.is_empty() && holds_objects(members)) => {
            Some(format!("nothing is left of the journal on {}", paths(members, &sources)))
        }
        Some(last) if last < label.journal_batch => {
            let (here, proven) = (paths(members, &sources), label.journal_batch);
            Some(format!("the journal on {here} ends with batch {last}, and batch {proven} was durable"))
        }
        _ => None,
    };
    match why {
        Some(why) if !accept_loss => {
            Err(PoolError::ChangesLost { pool: members.name.clone(), why, help: help(members.iter(), &label) })
        }
        loss => Ok(Stored { sources, images, spare, loss }),
    }
}

/// Reads all segment files of all copies: those with a valid header by sequence, the others as
/// spare. A file that no disk can read is neither: the opening is refused, or the file would be
/// written over.
fn load(members: &Members, sources: &[u8]) -> Result<(Images, BTreeMap<u32, u64>), PoolError> {
    let disks: Vec<Arc<dyn DiskIo>> =
        sources.iter().filter_map(|slot| members.member(*slot).and_then(|member| member.io().ok())).collect();
    let failed = |what: &str, error: &io::Error| {
        let why = format!("{what} cannot be read on any of the disks that hold it: {error}");
        PoolError::Journal { pool: members.name.clone(), why }
    };
    let lists: Vec<io::Result<Vec<String>>> = disks.iter().map(|disk| list(&**disk)).collect();
    if let Some(error) = unreadable(&lists) {
        return Err(failed(DIRECTORY, error));
    }
    let names = lists.into_iter().flat_map(io::Result::unwrap_or_default);
    let files: BTreeSet<u32> = names.filter_map(|name| parse_file_name(&name)).collect();
    let mut images = Images::new();
    let mut spare = BTreeMap::new();
    for file in files {
        let read: Vec<io::Result<Readable>> = disks.iter().map(|disk| read_copy(&**disk, &file_name(file))).collect();
        if let Some(error) = unreadable(&read) {
            return Err(failed(&file_name(file), error));
        }
        let read: Vec<Readable> =
            read.into_iter().map(|copy| copy.unwrap_or_else(|error| Readable::none(&error))).collect();
        let (copies, bad): (Vec<Vec<u8>>, Vec<BTreeSet<u64>>) =
            read.into_iter().map(|copy| (copy.bytes, copy.bad)).unzip();
        let headers = copies.iter().filter_map(|copy| SegmentHeader::decode_in(copy, members.id, file));
        let header = headers.max_by_key(|header| header.sequence);
        match header {
            Some(header) => {
                images.insert(header.sequence, (file, SegmentImage { header, copies }, bad));
            }
            None => {
                let shortest = copies.iter().map(Vec::len).min().unwrap_or(0);
                spare.insert(file, shortest as u64);
            }
        }
    }
    Ok((images, spare))
}

/// The error, where a file exists and no disk could read it.
fn unreadable<T>(read: &[io::Result<T>]) -> Option<&io::Error> {
    let errors: Vec<&io::Error> = read.iter().filter_map(|read| read.as_ref().err()).collect();
    errors.iter().copied().find(|error| error.kind() != io::ErrorKind::NotFound).filter(|_| errors.len() == read.len())
}

/// The number of a segment's first batch.
pub fn first_batch(pool: Uuid, image: &SegmentImage, found: &replay::Scanned) -> u64 {
    let rest = found.merged.get(ALIGN_BYTES as usize..).unwrap_or_default();
    let header = BatchHeader::decode(rest, segment_seed(pool, image.header.sequence), ALIGN_BYTES);
    header.map_or(u64::MAX, |header| header.batch)
}

/// The slots of the disks that lack a segment altogether.
pub fn lacking_copies(members: &Members, sources: &[u8], file: u32, image: &SegmentImage) -> Vec<u8> {
    let lacks = |copy: &[u8]| SegmentHeader::decode_in(copy, members.id, file).is_none();
    sources.iter().zip(&image.copies).filter(|(_, copy)| lacks(copy)).map(|(slot, _)| *slot).collect()
}

/// Whether an acknowledged batch may lie behind the last good one: only where no disk can read the
/// place, because an acknowledged batch is whole on every copy (`journal.one_torn_batch`).
pub fn may_hide_a_batch(pool: Uuid, image: &SegmentImage, end: u64, bad: &[BTreeSet<u64>]) -> bool {
    let seed = segment_seed(pool, image.header.sequence);
    let head = |copy: &Vec<u8>| BatchHeader::decode(copy.get(end as usize..)?, seed, end);
    let bytes = image.copies.iter().find_map(head).map_or(ALIGN_BYTES, |header| header.bytes);
    let is_hidden = |bad: &BTreeSet<u64>| bad.range(end..end.saturating_add(bytes)).next().is_some();
    let mut read = image.copies.iter().zip(bad).filter(|(copy, _)| !copy.is_empty()).peekable();
    read.peek().is_some() && read.all(|(_, bad)| is_hidden(bad))
}

/// Whether objects lie on the disks. Objects are put through an open pool, which has a journal.
fn holds_objects(members: &Members) -> bool {
    let has_some = |io: &Arc<dyn DiskIo>| {
        let folders = io.list(crate::object::shard_files::OBJECTS).unwrap_or_default();
        let holds =
            |folder: &String| io.list(&format!("{}/{folder}", crate::object::shard_files::OBJECTS)).unwrap_or_default();
        folders.iter().flat_map(holds).any(|name| !name.starts_with('!'))
    };
    members.disks_readable().iter().any(has_some)
}

pub fn paths(members: &Members, slots: &[u8]) -> String {
    let path = |slot: &u8| members.member(*slot).map(|member| member.path.read().display().to_string());
    let paths: Vec<String> = slots.iter().filter_map(path).collect();
    if paths.is_empty() { "the disks that are here".to_owned() } else { paths.join(", ") }
}

/// Advice for a person: the disks whose return would help.
pub fn help<'a>(members: impl Iterator<Item = &'a MemberDisk>, label: &Label) -> String {
    let is_away = |member: &&MemberDisk| !member.is_readable() || member.unsettled.load(Ordering::Acquire);
    let (with_copy, others): (Vec<_>, Vec<_>) =
        members.filter(is_away).partition(|member| label.journal.contains(&member.id));
    let paths = |members: &[&MemberDisk]| -> String {
        let paths: Vec<String> = members.iter().map(|member| member.path.read().display().to_string()).collect();
        paths.join(", ")
    };
    match (with_copy.is_empty(), others.is_empty()) {
        (true, true) => "No other disk of the pool holds a copy of the journal".to_owned(),
        (true, false) => format!("Reconnect {} as it was last used: a newer state may be on it", paths(&others)),
        (false, _) => format!("Reconnect {} as it was last used, with its copy of the journal", paths(&with_copy)),
    }
}
