//! Room for the small writes that a full pool still needs: each disk keeps some in files that are
//! given up when there is no other room.
//!
//! Other programs may fill the filesystems of the disks. Opening a volume writes a small object,
//! and so does deleting to make room. Without these files a full pool could neither be opened nor
//! emptied.
//!
//! - `reserve.contents_mean_nothing`: the files' contents mean nothing. They may be missing or
//!   short, or somebody may remove them.
//! - `reserve.small_objects_only`: only objects of at most [`OBJECT_BYTES_MAX`] use the reserve,
//!   and only where there is no other room.
//! - `reserve.no_more_than_needed`: no more is given up than is needed, because the program that
//!   fills the filesystem takes the rest at once.
//! - `reserve.made_again`: the files are made again when there is room for them beyond the room
//!   that data of users leave free.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::disk::DiskIo;
use crate::member::member_disk::{MemberDisk, reserve_soft};
use crate::member::members::Members;
use crate::object::geometry::MIRROR_BYTES_MAX;

const PREFIX: &str = "larder.reserve-";
const FILE_BYTES: u64 = 64 << 10;
/// Files on each disk; the smallest disks have fewer.
const FILES_MAX: u64 = 16;
const FILES_MIN: u64 = 4;
/// The longest object that is written without leaving anything free: manifests, and small tables of
/// metadata.
pub const OBJECT_BYTES_MAX: u64 = MIRROR_BYTES_MAX;
/// The overhead of a small object on a disk: header, checksums, blocks of the filesystem.
const OVERHEAD_BYTES: u64 = 32 << 10;
/// The time between attempts to make missing files.
const TRY_EVERY: Duration = Duration::from_secs(10);

const _: () = assert!(OBJECT_BYTES_MAX + OVERHEAD_BYTES <= FILES_MIN * FILE_BYTES);

pub fn is_reserve(name: &str) -> bool {
    name.starts_with(PREFIX)
}

fn name_of(number: u64) -> String {
    format!("{PREFIX}{number:02}")
}

#[derive(Debug, Default)]
pub struct Reserves {
    /// Some disk has none and should.
    is_missing: AtomicBool,
    /// No disk has any left to give.
    is_spent: AtomicBool,
    tried: Mutex<Option<Instant>>,
}

impl Reserves {
    /// Makes the files on all disks that have room for them. Blocks.
    pub fn make(&self, members: &Members) {
        let mut is_missing = false;
        for (slot, total, free) in members.rooms(reserve_soft) {
            let Some(Ok(io)) = members.member(slot).map(MemberDisk::io) else { continue };
            let wanted = (total / 64 / FILE_BYTES).clamp(FILES_MIN, FILES_MAX);
            let missing: Vec<String> = (0..wanted).map(name_of).filter(|name| !has_reserve(&*io, name)).collect();
            // A file that cannot be made now is tried again; reads and writes find out whether the
            // disk is well.
            is_missing |= free < missing.len() as u64 * FILE_BYTES
                || missing.iter().any(|name| make(&*io, name).inspect_err(|_| _ = io.remove(name)).is_err());
        }
        self.is_missing.store(is_missing, Ordering::Release);
        self.is_spent.store(false, Ordering::Release);
    }

    /// As `make`, in the background and now and then, where files are missing.
    pub fn make_if_due(self: &Arc<Self>, members: &Arc<Members>) {
        if !self.is_missing.load(Ordering::Acquire) {
            return;
        }
        let mut tried = self.tried.lock();
        if tried.is_none_or(|at| at.elapsed() >= TRY_EVERY) {
            *tried = Some(Instant::now());
            let (reserves, of_task) = (self.clone(), members.clone());
            members.work.detach(move || reserves.make(&of_task));
        }
    }

    /// Only the missing room may be used up (`reserve.small_objects_only`).
    pub fn are_missing(&self) -> bool {
        self.is_missing.load(Ordering::Acquire)
    }

    /// Gives up as much as an object of `bytes` needs; whether some disk had that much. Blocks.
    pub fn give_up(&self, members: &Members, bytes: u64) -> bool {
        if self.is_spent.load(Ordering::Acquire) {
            return false;
        }
        let files = (bytes + OVERHEAD_BYTES).div_ceil(FILE_BYTES) as usize;
        let (mut given_up, mut is_spent) = (false, true);
        for member in members.iter().filter(|member| member.is_writable()) {
            let Ok(io) = member.io() else { continue };
            let removed = (0..FILES_MAX).filter(|number| io.remove(&name_of(*number)).is_ok()).take(files).count();
            if removed > 0 {
                is_spent = false;
                member.unmark_full();
                member.forget_space();
                given_up |= removed == files;
            }
        }
        if given_up {
            tracing::warn!(pool = %members.name, "the disks are full: room kept for metadata is used");
        }
        *self.tried.lock() = Some(Instant::now());
        self.is_missing.store(true, Ordering::Release);
        self.is_spent.store(is_spent, Ordering::Release);
        given_up
    }
}

/// One that was cut short has less to give up.
fn has_reserve(io: &dyn DiskIo, name: &str) -> bool {
    io.open(name, false).and_then(|file| file.length()).is_ok_and(|length| length >= FILE_BYTES)
}

fn make(io: &dyn DiskIo, name: &str) -> io::Result<()> {
    // A filesystem that compresses would keep no room for zeros.
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state ^ (state >> 32)).to_le_bytes()
    };
    let bytes: Vec<u8> = (0..FILE_BYTES / 8).flat_map(|_| next()).collect();
    let file = io.create(name)?;
    file.write_at(&mut [IoSlice::new(&bytes)], 0)
}
