//! Inodes that caches outside the volume refer to by number.
//!
//! A kernel that mounts the volume looks a name up first and opens the inode afterwards. When the name is
//! replaced in between, the program still has to get the file that it had found, as on any local filesystem.
//!
//! - `keepers.asked_at_removal`: a keeper is asked under the inode's lock, when the last name goes. An
//!   inode that it keeps is open, so it lives without a name until the keeper lets it go.

use std::sync::Weak;

use parking_lot::RwLock;

use crate::Ino;

/// Keeps an inode until it is dropped.
pub type Kept = Box<dyn Send + Sync>;

/// A cache outside the volume that goes on with an inode whose last name is gone.
pub trait Keeper: Send + Sync {
    /// `ino` loses its last name. If the cache refers to it, it keeps what `open` returns for as long as it does. Called under the
    /// inode's lock: it is quick, calls nothing of the volume, and drops nothing that `open` returned.
    fn keep(&self, ino: Ino, open: &dyn Fn() -> Kept);
}

/// The keepers of a tree.
#[derive(Default)]
pub struct Keepers(RwLock<Vec<Weak<dyn Keeper>>>);

impl Keepers {
    /// One more, for as long as it lives.
    pub fn add(&self, keeper: Weak<dyn Keeper>) {
        let mut keepers = self.0.write();
        keepers.retain(|keeper| keeper.strong_count() > 0);
        keepers.push(keeper);
    }

    /// Under the lock of the inode, whose last name goes (`keepers.asked_at_removal`).
    pub fn ask(&self, ino: Ino, open: &dyn Fn() -> Kept) {
        for keeper in self.0.read().iter().filter_map(Weak::upgrade) {
            keeper.keep(ino, open);
        }
    }
}
