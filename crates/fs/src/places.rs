//! Inode numbers of files in snapshots: the number of the snapshot above the number of then.

use crate::{FsError, FsResult, Ino};

/// Numbers of the head's inodes take up this many bits.
const INO_BITS: u32 = 40;
/// The first number that no inode of the head may have.
pub const HEAD_END: u64 = 1 << INO_BITS;
/// The greatest number of a snapshot.
pub const EPOCH_MAX: u64 = (1 << (64 - INO_BITS)) - 2;

/// The place of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The volume as it is now.
    Head,
    /// The directory that lists the snapshots of a directory.
    Catalog(Ino),
    /// The snapshot of this epoch.
    Snapshot(u64),
}

impl Ino {
    /// Whether it belongs to a snapshot, or is a directory that lists snapshots: nobody changes or removes it.
    pub fn is_past(self) -> bool {
        place_of(self) != Place::Head
    }

    /// Whether it is the directory `top`, or what this was in a snapshot.
    pub fn is_or_was(self, top: Ino) -> bool {
        self == top || matches!(place_of(self), Place::Snapshot(_)) && then(self) == top
    }
}

/// Where the inode of that number is.
pub fn place_of(ino: Ino) -> Place {
    match ino.0 >> INO_BITS {
        0 => Place::Head,
        epoch if epoch > EPOCH_MAX => Place::Catalog(then(ino)),
        epoch => Place::Snapshot(epoch),
    }
}

/// The directory that lists the snapshots of a directory of the head. It is in none of them.
pub fn catalog_of(dir: Ino) -> Ino {
    assert!(dir.0 < HEAD_END, "snapshots have no snapshots");
    Ino(((EPOCH_MAX + 1) << INO_BITS) | dir.0)
}

/// The inode of then, as a snapshot shows it. The parent of the root is the directory of snapshots.
pub fn within(epoch: u64, ino: Ino) -> Ino {
    assert!((1..=EPOCH_MAX).contains(&epoch) && ino.0 < HEAD_END, "a snapshot holds inodes of the head");
    Ino((epoch << INO_BITS) | ino.0)
}

/// The number of then.
pub fn then(ino: Ino) -> Ino {
    Ino(ino.0 & (HEAD_END - 1))
}

/// [`FsError::ReadOnly`] for an inode of a snapshot (`snap.read_only`).
pub fn check_changeable(ino: Ino) -> FsResult<()> {
    match place_of(ino) {
        Place::Head => Ok(()),
        Place::Catalog(_) | Place::Snapshot(_) => Err(read_only()),
    }
}

/// What a change of a snapshot is answered.
pub fn read_only() -> FsError {
    FsError::ReadOnly("it belongs to a snapshot; copy it to the volume to change it".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_place() {
        assert_eq!(place_of(Ino::ROOT), Place::Head);
        assert_eq!(place_of(Ino(HEAD_END - 1)), Place::Head);
        assert_eq!(place_of(within(1, Ino::ROOT)), Place::Snapshot(1));
        assert_eq!(place_of(within(EPOCH_MAX, Ino(HEAD_END - 1))), Place::Snapshot(EPOCH_MAX));
        assert_eq!(then(within(77, Ino(1234))), Ino(1234));
        assert_eq!(place_of(catalog_of(Ino(7))), Place::Catalog(Ino(7)));
        assert!(!Ino(5).is_past() && within(1, Ino(5)).is_past() && catalog_of(Ino(5)).is_past());
        assert!(Ino(5).is_or_was(Ino(5)) && within(3, Ino(5)).is_or_was(Ino(5)));
        assert!(!within(3, Ino(5)).is_or_was(Ino(6)) && !catalog_of(Ino(5)).is_or_was(Ino(5)));
        assert!(check_changeable(Ino(5)).is_ok());
        assert!(check_changeable(within(1, Ino(5))).is_err() && check_changeable(catalog_of(Ino::ROOT)).is_err());
    }
}
