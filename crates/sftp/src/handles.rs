//! The open files and directories of a session.
//!
//! - `handles.bounded`: a session has at most [`HANDLES_MAX`] of them.
//! - `handles.end_with_their_share`: those of a share that is taken away or changed are closed.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use larder_files::Open;
use larder_fs::Ino;
use parking_lot::Mutex;

use super::fail::Fail;
use super::packet::{Code, HandleId};
use larder_doors::tree::{Room, ShareState};

pub const HANDLES_MAX: usize = 1024;

/// A file that is open.
pub struct OpenedFile {
    pub room: Room,
    pub ino: Ino,
    pub reads: bool,
    pub writes: bool,
    /// Every write goes to the end.
    pub appends: bool,
    /// The plain path that it was opened by.
    pub name: Bytes,
    /// Keeps the file, and tells the other doors.
    pub _open: Open,
}

/// A directory that is listed.
pub struct OpenedDir {
    /// `None`: the directory of shares.
    pub at: Option<(Room, Ino)>,
    pub name: Bytes,
    pub place: tokio::sync::Mutex<Listing>,
    /// Keeps the directory.
    pub _open: Option<Open>,
}

/// How far a listing is.
pub struct Listing {
    pub cookie: u64,
    /// Entries made since the first page are not listed, so that it ends.
    pub end: u64,
    pub begun: bool,
    pub over: bool,
}

impl Default for Listing {
    fn default() -> Self {
        Self { cookie: 0, end: u64::MAX, begun: false, over: false }
    }
}

#[derive(Clone)]
pub enum Handle {
    File(Arc<OpenedFile>),
    Dir(Arc<OpenedDir>),
}

impl Handle {
    fn is_of(&self, share: &Arc<ShareState>) -> bool {
        match self {
            Handle::File(file) => Arc::ptr_eq(&file.room.state, share),
            Handle::Dir(dir) => dir.at.as_ref().is_some_and(|(room, _)| Arc::ptr_eq(&room.state, share)),
        }
    }
}

#[derive(Default)]
struct Table {
    open: HashMap<HandleId, Handle>,
    last: HandleId,
}

#[derive(Default)]
pub struct Handles(Mutex<Table>);

impl Handles {
    pub fn add(&self, handle: Handle) -> Result<HandleId, Fail> {
        let mut table = self.0.lock();
        if table.open.len() >= HANDLES_MAX {
            return Err(Fail::new(Code::Failure, "too many open files: close some"));
        }
        // 0 stands for a handle that is none; numbers of open handles are left out after a turn of the counter.
        let id = loop {
            table.last = table.last.wrapping_add(1);
            if table.last != 0 && !table.open.contains_key(&table.last) {
                break table.last;
            }
        };
        table.open.insert(id, handle);
        Ok(id)
    }

    pub fn get(&self, id: HandleId) -> Option<Handle> {
        self.0.lock().open.get(&id).cloned()
    }

    pub fn file(&self, id: HandleId) -> Result<Arc<OpenedFile>, Fail> {
        match self.get(id) {
            Some(Handle::File(file)) => Ok(file),
            Some(Handle::Dir(_)) => Err(Fail::new(Code::Failure, "it is a directory")),
            None => Err(Fail::bad_handle()),
        }
    }

    pub fn dir(&self, id: HandleId) -> Result<Arc<OpenedDir>, Fail> {
        match self.get(id) {
            Some(Handle::Dir(dir)) => Ok(dir),
            Some(Handle::File(_)) => Err(Fail::new(Code::Failure, "it is no directory")),
            None => Err(Fail::bad_handle()),
        }
    }

    pub fn remove(&self, id: HandleId) -> Option<Handle> {
        self.0.lock().open.remove(&id)
    }

    /// Closes those of these shares (`handles.end_with_their_share`).
    pub fn close_of(&self, shares: &[Arc<ShareState>]) {
        self.0.lock().open.retain(|_, handle| !shares.iter().any(|share| handle.is_of(share)));
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().open.is_empty()
    }

    pub fn close_all(&self) {
        self.0.lock().open.clear();
    }
}
