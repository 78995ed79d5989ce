//! What a file's opens, locks and delegations are to everybody else: asked of the one table that all doors share.
//!
//! - `filetable.one_judge`: no conflict is decided here. Share reservations, byte ranges and delegations of one client are
//!   refused or granted where those of SMB, mounts and NFS v3 are.
//! - `filetable.nothing_of_nobody`: whatever was claimed is given back when its state ends, in whatever way it ends.

use std::net::IpAddr;

use super::delegation::Delegated;
use super::stateids::StateNumber;
use super::types::ClientId;

/// A file of all volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    pub volume: u64,
    pub inode: u64,
}

/// A set of reading and writing: what an open does, or what it denies to others (`OPEN4_SHARE_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShareBits(u8);

impl ShareBits {
    pub const NONE: ShareBits = ShareBits(0);
    pub const READ: ShareBits = ShareBits(1);
    pub const WRITE: ShareBits = ShareBits(2);
    pub const BOTH: ShareBits = ShareBits(3);

    /// Of the lower bits of `share_access` or `share_deny`; the upper ones of `share_access` are wishes.
    pub fn from_number(number: u32) -> Option<Self> {
        u8::try_from(number).ok().filter(|bits| *bits <= 3).map(ShareBits)
    }

    #[must_use]
    pub fn and(self, other: ShareBits) -> ShareBits {
        ShareBits(self.0 | other.0)
    }

    #[must_use]
    pub fn common(self, other: ShareBits) -> ShareBits {
        ShareBits(self.0 & other.0)
    }

    pub fn has(self, other: ShareBits) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn meets(self, other: ShareBits) -> bool {
        self.0 & other.0 != 0
    }

    /// 0 to 3.
    pub fn number(self) -> u8 {
        self.0
    }
}

/// An open, or a delegation, of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    pub client: ClientId,
    pub state: StateNumber,
}

/// A lock owner of a client, by a number that no other owner has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockOwnerId(pub u64);

/// Bytes from `start` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    pub start: u64,
    pub last: u64,
}

/// A lock that is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockInTheWay {
    pub range: ByteRange,
    pub exclusive: bool,
    /// `None`: another door's.
    pub owner: Option<LockOwnerId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeRefusal {
    InTheWay(LockInTheWay),
    TooMany,
}

/// The table of all doors (`filetable.one_judge`). Nothing here waits.
pub trait FileTable {
    /// Gives an open these uses and denials in place of its former ones. `false` if anybody's open forbids it.
    fn claim(&mut self, file: FileKey, open: Holder, access: ShareBits, deny: ShareBits) -> bool;
    fn release(&mut self, file: FileKey, open: Holder);
    /// Whether an open other than `but` denies this access.
    fn denied(&self, file: FileKey, but: Option<Holder>, access: ShareBits) -> bool;

    /// As POSIX has it: takes the place of the owner's locks in the range. It counts against the owner's network.
    fn lock(
        &mut self,
        file: FileKey,
        owner: (IpAddr, LockOwnerId),
        range: ByteRange,
        exclusive: bool,
    ) -> Result<(), RangeRefusal>;
    fn unlock(&mut self, file: FileKey, owner: LockOwnerId, range: ByteRange) -> Result<(), RangeRefusal>;
    fn test(
        &self,
        file: FileKey,
        owner: Option<LockOwnerId>,
        range: ByteRange,
        exclusive: bool,
    ) -> Option<LockInTheWay>;
    fn has_locks(&self, file: FileKey, owner: LockOwnerId) -> bool;
    fn end_locks(&mut self, file: FileKey, owner: LockOwnerId);

    /// Grants a delegation; `false` if another client's or door's opens or delegations forbid it.
    fn delegate(&mut self, file: FileKey, delegation: Holder, kind: Delegated) -> bool;
    fn undelegate(&mut self, file: FileKey, delegation: Holder);
}

/// The table in memory, for tests alone.
#[cfg(test)]
pub mod memory {
    use std::collections::HashMap;

    use super::*;

    type HeldRange = (LockOwnerId, ByteRange, bool);

    #[derive(Default)]
    pub struct MemoryTable {
        pub opens: HashMap<FileKey, Vec<(Holder, ShareBits, ShareBits)>>,
        pub locks: HashMap<FileKey, Vec<HeldRange>>,
        pub delegations: HashMap<FileKey, Vec<(Holder, Delegated)>>,
    }

    impl MemoryTable {
        /// Nothing of anybody is left (`filetable.nothing_of_nobody`).
        pub fn is_empty(&self) -> bool {
            self.opens.is_empty() && self.locks.is_empty() && self.delegations.is_empty()
        }
    }

    fn overlap(one: ByteRange, other: ByteRange) -> bool {
        one.start <= other.last && other.start <= one.last
    }

    fn prune<K: std::hash::Hash + Eq + Copy, V>(map: &mut HashMap<K, Vec<V>>, key: K, keep: impl FnMut(&V) -> bool) {
        if let Some(values) = map.get_mut(&key) {
            values.retain(keep);
            if values.is_empty() {
                map.remove(&key);
            }
        }
    }

    impl FileTable for MemoryTable {
        fn claim(&mut self, file: FileKey, open: Holder, access: ShareBits, deny: ShareBits) -> bool {
            let opens = self.opens.entry(file).or_default();
            let refused = opens
                .iter()
                .any(|(holder, does, denies)| *holder != open && (denies.meets(access) || deny.meets(*does)));
            if !refused {
                opens.retain(|(holder, ..)| *holder != open);
                opens.push((open, access, deny));
            }
            prune(&mut self.opens, file, |_| true);
            !refused
        }

        fn release(&mut self, file: FileKey, open: Holder) {
            prune(&mut self.opens, file, |(holder, ..)| *holder != open);
        }

        fn denied(&self, file: FileKey, but: Option<Holder>, access: ShareBits) -> bool {
            let mut opens = self.opens.get(&file).into_iter().flatten();
            opens.any(|(holder, _, denies)| Some(*holder) != but && denies.meets(access))
        }

        fn lock(
            &mut self,
            file: FileKey,
            (_, owner): (IpAddr, LockOwnerId),
            range: ByteRange,
            exclusive: bool,
        ) -> Result<(), RangeRefusal> {
            if let Some(held) = self.test(file, Some(owner), range, exclusive) {
                return Err(RangeRefusal::InTheWay(held));
            }
            self.unlock(file, owner, range)?;
            self.locks.entry(file).or_default().push((owner, range, exclusive));
            Ok(())
        }

        fn unlock(&mut self, file: FileKey, owner: LockOwnerId, range: ByteRange) -> Result<(), RangeRefusal> {
            let mut rests = Vec::new();
            prune(&mut self.locks, file, |(holder, held, exclusive)| {
                let is_hit = *holder == owner && overlap(*held, range);
                if is_hit && held.start < range.start {
                    rests.push((owner, ByteRange { start: held.start, last: range.start - 1 }, *exclusive));
                }
                if is_hit && held.last > range.last {
                    rests.push((owner, ByteRange { start: range.last + 1, last: held.last }, *exclusive));
                }
                !is_hit
            });
            if !rests.is_empty() {
                self.locks.entry(file).or_default().extend(rests);
            }
            Ok(())
        }

        fn test(
            &self,
            file: FileKey,
            owner: Option<LockOwnerId>,
            range: ByteRange,
            exclusive: bool,
        ) -> Option<LockInTheWay> {
            let mut locks = self.locks.get(&file).into_iter().flatten();
            let conflicts =
                |held: &&HeldRange| Some(held.0) != owner && overlap(held.1, range) && (held.2 || exclusive);
            let in_the_way = |held: &HeldRange| LockInTheWay { range: held.1, exclusive: held.2, owner: Some(held.0) };
            locks.find(conflicts).map(in_the_way)
        }

        fn has_locks(&self, file: FileKey, owner: LockOwnerId) -> bool {
            self.locks.get(&file).into_iter().flatten().any(|held| held.0 == owner)
        }

        fn end_locks(&mut self, file: FileKey, owner: LockOwnerId) {
            prune(&mut self.locks, file, |held| held.0 != owner);
        }

        fn delegate(&mut self, file: FileKey, delegation: Holder, kind: Delegated) -> bool {
            let forbids = |(holder, does, _): &(Holder, ShareBits, ShareBits)| {
                let is_other = holder.client != delegation.client;
                is_other && (kind == Delegated::Write || does.has(ShareBits::WRITE))
            };
            if self.opens.get(&file).into_iter().flatten().any(forbids) {
                return false;
            }
            let given = self.delegations.entry(file).or_default();
            let is_free = given.iter().all(|(_, other)| *other == Delegated::Read && kind == Delegated::Read);
            if is_free {
                given.push((delegation, kind));
            }
            is_free
        }

        fn undelegate(&mut self, file: FileKey, delegation: Holder) {
            prune(&mut self.delegations, file, |(holder, _)| *holder != delegation);
        }
    }
}
