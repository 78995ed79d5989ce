//! Watched directories, and the changes that wait for their watchers.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use larder_smb::{DirChange, DirChangeKind, DirWatch};
use larder_volume::Ino;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Changes that one watch may have waiting; a client takes at most 64 KiB of them at once.
const QUEUED_MAX: usize = 4096;

#[derive(Default)]
pub struct Watchers(Mutex<HashMap<Ino, Vec<Weak<Watcher>>>>);

#[derive(Default)]
pub struct Watcher {
    queue: Mutex<Queue>,
    wake: Notify,
}

#[derive(Default)]
struct Queue {
    changes: VecDeque<DirChange>,
    ended: bool,
}

impl Watchers {
    pub fn watch(self: &Arc<Self>, dir: Ino) -> Watch {
        let watcher = Arc::new(Watcher::default());
        self.0.lock().entry(dir).or_default().push(Arc::downgrade(&watcher));
        Watch { watchers: Arc::clone(self), watcher, dir }
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    pub fn has(&self, dir: Ino) -> bool {
        self.0.lock().contains_key(&dir)
    }

    pub fn push(&self, dir: Ino, change: &DirChange) {
        let watchers: Vec<_> = match self.0.lock().get(&dir) {
            Some(of_dir) => of_dir.iter().filter_map(Weak::upgrade).collect(),
            None => return,
        };
        watchers.iter().for_each(|watcher| watcher.push(change.clone()));
    }

    /// Tells all of them that changes are lost.
    pub fn lost(&self) {
        let watchers: Vec<_> = self.0.lock().values().flatten().filter_map(Weak::upgrade).collect();
        watchers.iter().for_each(|watcher| watcher.push(lost()));
    }

    /// Nothing will follow.
    pub fn end(&self) {
        let watchers: Vec<_> = self.0.lock().drain().flat_map(|(_, of_dir)| of_dir).collect();
        watchers.iter().filter_map(Weak::upgrade).for_each(|watcher| watcher.end());
    }
}

fn lost() -> DirChange {
    DirChange::new("", DirChangeKind::Lost, false)
}

impl Watcher {
    fn push(&self, change: DirChange) {
        let mut queue = self.queue.lock();
        if queue.changes.len() >= QUEUED_MAX {
            queue.changes.clear();
            queue.changes.push_back(lost());
        }
        queue.ended |= change.kind == DirChangeKind::Deleted;
        queue.changes.push_back(change);
        drop(queue);
        self.wake.notify_one();
    }

    fn end(&self) {
        self.queue.lock().ended = true;
        self.wake.notify_one();
    }
}

/// A watched directory, until it is dropped.
pub struct Watch {
    watchers: Arc<Watchers>,
    watcher: Arc<Watcher>,
    dir: Ino,
}

#[async_trait]
impl DirWatch for Watch {
    async fn next(&mut self) -> Option<Vec<DirChange>> {
        loop {
            {
                let mut queue = self.watcher.queue.lock();
                if !queue.changes.is_empty() {
                    return Some(queue.changes.drain(..).collect());
                }
                if queue.ended {
                    return None;
                }
            }
            self.watcher.wake.notified().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watchers = self.watchers.0.lock();
        if let Some(of_dir) = watchers.get_mut(&self.dir) {
            of_dir.retain(|w| !std::ptr::eq(w.as_ptr(), Arc::as_ptr(&self.watcher)));
            if of_dir.is_empty() {
                watchers.remove(&self.dir);
            }
        }
    }
}
