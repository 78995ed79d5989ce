//! The room on the disks, and the part of it that is promised to writers.
//!
//! - `room.full_is_not_dead`: a disk that refuses for want of room is avoided as long as the object
//!   has its full redundancy on others. Where it has not, the write is refused for want of room; it is
//!   not answered with fewer copies. Only disks that fail are written around with less.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use uuid::Uuid;

use crate::disk::is_no_room;
use crate::error::PoolError;
use crate::member::member_disk::{reserve_hard, reserve_soft};
use crate::member::members::{Members, Shape};
use crate::object::geometry::MIRROR_BYTES_MAX;
use crate::object::placement::{self, Choice, Room};

impl Members {
    /// (total, free) of every disk that takes data; disks on one filesystem share its room.
    /// `reserve` is kept off the free room.
    pub fn rooms(&self, reserve: fn(u64) -> u64) -> Vec<(u8, u64, u64)> {
        let mut sharing: BTreeMap<u64, u64> = BTreeMap::new();
        let spaces: Vec<_> = self
            .with_slots()
            .filter(|(_, member)| member.takes_data())
            .map(|(slot, member)| (slot, member, member.space()))
            .collect();
        for (_, _, space) in &spaces {
            *sharing.entry(space.filesystem).or_default() += 1;
        }
        spaces
            .into_iter()
            .map(|(slot, member, space)| {
                let share = sharing.get(&space.filesystem).copied().unwrap_or(1).max(1);
                let total = space.total_bytes / share;
                let pending = member.pending_bytes.load(Ordering::Relaxed);
                let full = member.is_full();
                let free = (space.free_bytes / share).saturating_sub(reserve(total)).saturating_sub(pending);
                (slot, total, if full { 0 } else { free })
            })
            .collect()
    }

    /// Disks without room for data of users.
    pub fn full_disks(&self) -> Vec<Uuid> {
        let rooms = self.rooms(reserve_soft);
        let full = rooms.iter().filter(|(_, _, free)| *free == 0);
        full.filter_map(|(slot, _, _)| Some(self.member(*slot)?.id)).collect()
    }

    /// Disks without room, as a sentence; empty where there are none. Other programs may have
    /// filled their filesystems.
    fn without_room(&self) -> String {
        let rooms = self.rooms(reserve_hard).into_iter().filter(|(_, _, free)| *free == 0);
        let paths: Vec<String> =
            rooms.filter_map(|(slot, _, _)| Some(self.member(slot)?.path.read().display().to_string())).collect();
        if paths.is_empty() { String::new() } else { format!(" (no room on {})", paths.join(", ")) }
    }

    /// Some disk has so little room that a delete waits for its room to become free.
    pub fn is_tight(&self) -> bool {
        self.rooms(reserve_soft).iter().any(|(_, total, free)| *free < total / 8)
    }

    /// Chooses disks for an object and reserves room until the result is dropped, leaving `reserve`
    /// of each disk free.
    pub fn place_beside(
        self: &Arc<Self>,
        reserve: fn(u64) -> u64,
        size: u64,
        avoid: &Avoid,
    ) -> Result<Placed, PoolError> {
        let mut turn = self.placing.lock();
        *turn += 1;
        let rooms: Vec<Room> = self
            .rooms(reserve)
            .into_iter()
            .filter(|(slot, _, _)| !avoid.contains(*slot))
            .map(|(slot, _, free_bytes)| Room { slot, free_bytes })
            .collect();
        let shard_bytes = |k: u8| shard_room(size, k);
        let Shape { layout, width, .. } = *self.shape.read();
        let width = if size <= MIRROR_BYTES_MAX { layout.failures() + 1 } else { width };
        // Disks that just failed count as dead for this object; full ones do not
        // (`room.full_is_not_dead`).
        let usable = self.with_slots().filter(|(slot, member)| member.takes_data() && !avoid.failed.contains(slot));
        let alive = usable.count();
        let choice = placement::choose(layout, width, &rooms, alive, *turn, shard_bytes);
        let Some(choice) = choice else {
            if alive == 0 {
                let why = format!("none of its {} disks can be written; see 'pool status'", self.len());
                return Err(PoolError::CannotWrite { pool: self.name.clone(), object: "anything".into(), why });
            }
            return Err(self.no_space(size));
        };
        assert!(choice.slots.iter().all(|slot| !avoid.contains(*slot)), "`write.retry_excludes_a_disk`");
        let bytes = shard_bytes(choice.k);
        for slot in &choice.slots {
            if let Some(member) = self.member(*slot) {
                member.pending_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
        }
        Ok(Placed { members: self.clone(), choice, bytes })
    }

    /// The error for an object of `size` bytes that the disks refuse for want of room.
    pub fn no_space(&self, size: u64) -> PoolError {
        PoolError::no_space(&self.name, size, self.available(), self.without_room())
    }

    /// Waits until every task that is choosing disks has reserved room on them.
    pub fn settle_places(&self) {
        drop(self.placing.lock());
    }

    /// Object bytes that can still be written.
    pub fn available(&self) -> u64 {
        let rooms = self.rooms(reserve_soft);
        let free: Vec<u64> = rooms.iter().map(|(_, _, free)| *free).collect();
        let available = placement::capacity(self.layout(), self.width(), &free, free.len());
        // Checksums take 8 bytes of 8 KiB, headers and filesystem metadata a little more.
        available - available / 512 - available / 1024
    }
}

/// Disks that an object is written around, since they refused it.
#[derive(Clone, Debug, Default)]
pub struct Avoid {
    /// They failed.
    pub failed: Vec<u8>,
    /// They had no room for it.
    pub full: Vec<u8>,
}

impl Avoid {
    pub fn contains(&self, slot: u8) -> bool {
        self.failed.contains(&slot) || self.full.contains(&slot)
    }

    /// From now on these are avoided as well, each for its own reason.
    pub fn extend<'a>(&mut self, failures: impl IntoIterator<Item = &'a (u8, io::Error)>) {
        for (slot, error) in failures {
            let slots = if is_no_room(error) { &mut self.full } else { &mut self.failed };
            if !slots.contains(slot) {
                slots.push(*slot);
            }
        }
    }
}

/// Room for one shard: data, checksums, header, and the filesystem's rounding.
fn shard_room(size: u64, k: u8) -> u64 {
    let data = size.div_ceil(u64::from(k.max(1)));
    data + data / 512 + (16 << 10)
}

/// Disks chosen for an object; gives its reservation back when dropped.
pub struct Placed {
    members: Arc<Members>,
    pub choice: Choice,
    bytes: u64,
}

impl Drop for Placed {
    fn drop(&mut self) {
        for slot in &self.choice.slots {
            if let Some(member) = self.members.member(*slot) {
                let before = member.pending_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
                assert!(before >= self.bytes, "a reservation is given back once");
                // A look at the disk from before the end of the write counts this room neither as
                // pending nor as used.
                member.forget_space();
            }
        }
    }
}
