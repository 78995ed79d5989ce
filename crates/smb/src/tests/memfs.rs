use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::backend::{
    BackendCapabilities, DirEntry, FileInfo, FileTimes, Handle, Located, OpenAction, OpenIntent, OpenName, OpenOptions,
    ShareBackend,
};
use crate::error::{SmbError, SmbResult};
use crate::files::{Above, Notice, NoticeKind, Watches};
use crate::path::SmbPath;
use async_trait::async_trait;
use bytes::Bytes;

/// In-memory backend for unit tests. Files and directories are keyed by
/// backslash-joined path and have numbers. It tells of changes as it
/// makes them. Clones share the same files.
#[derive(Clone)]
pub struct MemFsBackend {
    inner: Arc<Mutex<MemInner>>,
    watches: Watches,
    on_rename: Option<OnRename>,
}

/// Runs once a rename has.
pub type OnRename = Arc<dyn Fn() -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

#[derive(Default)]
struct MemInner {
    files: HashMap<String, Vec<u8>>,
    /// Of the files.
    numbers: HashMap<String, u64>,
    /// All directories present (always includes "" for the root), by
    /// canonical path string, with their numbers. Two spellings of a name are
    /// one directory to those who watch it.
    dirs: HashMap<String, u64>,
    last_number: u64,
    /// Times set on entries: creation, access, write and change.
    times: HashMap<String, [u64; 4]>,
    /// Entries marked read-only.
    read_only: std::collections::HashSet<String>,
    /// Handles opened and not yet closed.
    open_handles: usize,
}

impl MemInner {
    /// The number of what `key` leads to.
    fn number(&mut self, key: &str) -> Option<u64> {
        if let Some(number) = self.dirs.get(key) {
            return Some(*number);
        }
        self.files.contains_key(key).then(|| {
            self.last_number += 1;
            *self.numbers.entry(key.to_string()).or_insert(self.last_number)
        })
    }

    /// A path that leads to `number`.
    fn key_of(&self, number: u64) -> Option<String> {
        let mut all = self.numbers.iter().chain(&self.dirs);
        all.find(|(_, other)| **other == number).map(|(key, _)| key.clone())
    }

    fn make_dir(&mut self, key: &str) {
        let same = self.dirs.iter().find(|(other, _)| other.to_lowercase() == key.to_lowercase());
        let number = same.map(|(_, number)| *number);
        self.last_number += 1;
        self.dirs.insert(key.to_string(), number.unwrap_or(self.last_number));
    }
}

impl Default for MemFsBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl MemFsBackend {
    pub fn new() -> Self {
        let mut inner = MemInner::default();
        inner.make_dir("");
        Self { inner: Arc::new(Mutex::new(inner)), watches: Watches::default(), on_rename: None }
    }

    /// Tells of a change of the entry `key`.
    fn tell(&self, inner: &MemInner, key: &str, kind: NoticeKind, is_directory: bool) {
        let (mut dir, name) = key.rsplit_once('\\').unwrap_or(("", key));
        let (mut above, mut path) = (Vec::new(), String::new());
        loop {
            above.extend(inner.dirs.get(dir).map(|&dir| Above { dir, path: path.clone() }));
            let Some((up, last)) = dir.rsplit_once('\\').or((!dir.is_empty()).then_some(("", dir))) else { break };
            path = format!("{last}\\{path}");
            dir = up;
        }
        self.watches.tell(&above, Notice { name: name.to_string(), kind, is_directory });
    }

    pub fn with_on_rename(self, on_rename: OnRename) -> Self {
        Self { on_rename: Some(on_rename), ..self }
    }

    /// The name of an open of `path`, whatever it leads to.
    pub fn name_at(&self, path: &str) -> Arc<dyn OpenName> {
        let number = self.inner.lock().unwrap().number(path).unwrap_or_default();
        Arc::new(MemName { backend: self.clone(), number, opened_as: path.parse().unwrap() })
    }

    /// Handles opened and not yet closed.
    pub fn open_handles(&self) -> usize {
        self.inner.lock().unwrap().open_handles
    }

    pub fn with_file(self, path: &str, contents: &[u8]) -> Self {
        {
            let mut g = self.inner.lock().unwrap();
            path.match_indices('\\').for_each(|(at, _)| g.make_dir(&path[..at]));
            g.files.insert(path.to_string(), contents.to_vec());
        }
        self
    }
}

fn key(path: &SmbPath) -> String {
    path.display_backslash()
}

#[async_trait]
impl ShareBackend for MemFsBackend {
    async fn open(&self, path: &SmbPath, opts: OpenOptions) -> SmbResult<(Box<dyn Handle>, OpenAction)> {
        let k = key(path);
        let mut g = self.inner.lock().unwrap();
        let exists_file = g.files.contains_key(&k);
        let exists_dir = g.dirs.contains_key(&k);
        let parent_exists = path.parent().is_none_or(|p| g.dirs.contains_key(&key(&p)));
        if !exists_file && !exists_dir && !parent_exists {
            return Err(SmbError::PathNotFound);
        }

        if opts.directory {
            if exists_file {
                return Err(SmbError::NotADirectory);
            }
            let mut action = OpenAction::Opened;
            if !exists_dir {
                if matches!(opts.intent, OpenIntent::Create | OpenIntent::OpenOrCreate) {
                    g.make_dir(&k);
                    self.tell(&g, &k, NoticeKind::Added, true);
                    action = OpenAction::Created;
                } else {
                    return Err(SmbError::NotFound);
                }
            } else if opts.intent == OpenIntent::Create {
                return Err(SmbError::Exists);
            }
            g.open_handles += 1;
            return Ok((Box::new(MemHandle::new(self, &mut g, k, path, true)), action));
        }

        if exists_dir {
            return Err(SmbError::IsDirectory);
        }
        let action = match opts.intent {
            OpenIntent::Open => {
                if !exists_file {
                    return Err(SmbError::NotFound);
                }
                OpenAction::Opened
            }
            OpenIntent::Create => {
                if exists_file {
                    return Err(SmbError::Exists);
                }
                g.files.insert(k.clone(), Vec::new());
                OpenAction::Created
            }
            OpenIntent::OpenOrCreate => {
                g.files.entry(k.clone()).or_default();
                if exists_file { OpenAction::Opened } else { OpenAction::Created }
            }
            OpenIntent::Truncate => {
                if !exists_file {
                    return Err(SmbError::NotFound);
                }
                g.files.insert(k.clone(), Vec::new());
                OpenAction::Overwritten
            }
            OpenIntent::OverwriteOrCreate => {
                g.files.insert(k.clone(), Vec::new());
                if exists_file { OpenAction::Overwritten } else { OpenAction::Created }
            }
        };
        if action == OpenAction::Created {
            self.tell(&g, &k, NoticeKind::Added, false);
        }
        g.open_handles += 1;
        Ok((Box::new(MemHandle::new(self, &mut g, k, path, false)), action))
    }

    async fn locate(&self, path: &SmbPath) -> SmbResult<Located> {
        let mut g = self.inner.lock().unwrap();
        let dir = path.parent().and_then(|dir| g.number(&key(&dir))).unwrap_or_default();
        Ok(Located { dir, file: g.number(&key(path)) })
    }

    async fn is_within(&self, dir: u64, top: u64) -> bool {
        let g = self.inner.lock().unwrap();
        let (Some(dir), Some(top)) = (g.key_of(dir), g.key_of(top)) else { return false };
        let (dir, top) = (dir.to_lowercase(), top.to_lowercase());
        dir == top || dir.starts_with(&format!("{top}\\"))
    }

    fn watches(&self) -> Watches {
        self.watches.clone()
    }

    async fn modified(&self, path: &SmbPath, what: u32) {
        let g = self.inner.lock().unwrap();
        let is_directory = g.dirs.contains_key(&key(path));
        self.tell(&g, &key(path), NoticeKind::Modified(what), is_directory);
    }

    fn capabilities(&self) -> BackendCapabilities {
        BackendCapabilities { case_sensitive: false, sparse_files: false, named_streams: false, shared_extents: false }
    }
}

impl MemFsBackend {
    fn remove(&self, number: u64) -> SmbResult<()> {
        let mut g = self.inner.lock().unwrap();
        let k = g.key_of(number).ok_or(SmbError::NotFound)?;
        g.numbers.remove(&k);
        let is_directory = g.files.remove(&k).is_none();
        g.dirs.remove(&k);
        self.tell(&g, &k, NoticeKind::Removed, is_directory);
        Ok(())
    }

    fn rename(&self, number: u64, kt: &str, replace: bool) -> SmbResult<()> {
        let mut g = self.inner.lock().unwrap();
        let kf = &g.key_of(number).ok_or(SmbError::NotFound)?;
        if kf != kt && (g.files.contains_key(kt) || g.dirs.contains_key(kt)) {
            if !replace {
                return Err(SmbError::Exists);
            }
            if g.dirs.contains_key(kt) {
                return Err(SmbError::AccessDenied);
            }
        }
        let tell = |g: &MemInner, is_directory| {
            let split = |key: &str| {
                key.rsplit_once('\\')
                    .map_or(("".to_string(), key.to_string()), |(dir, name)| (dir.to_string(), name.to_string()))
            };
            let ((from_dir, from), (to_dir, _)) = (split(kf), split(kt));
            if from_dir == to_dir {
                return self.tell(g, kt, NoticeKind::Renamed { from }, is_directory);
            }
            self.tell(g, kf, NoticeKind::Removed, is_directory);
            self.tell(g, kt, NoticeKind::Added, is_directory);
        };
        if let Some(data) = g.files.remove(kf) {
            g.files.insert(kt.to_string(), data);
            g.numbers.remove(kf);
            g.numbers.insert(kt.to_string(), number);
            tell(&g, false);
            return Ok(());
        }
        if let Some(number) = g.dirs.remove(kf) {
            // Everything below the directory moves with it.
            let below = format!("{kf}\\");
            let moved = |key: &String| key.strip_prefix(&below).map(|rest| (key.clone(), format!("{kt}\\{rest}")));
            let files: Vec<_> = g.files.keys().filter_map(moved).collect();
            for (old, new) in files {
                let data = g.files.remove(&old).expect("listed");
                g.files.insert(new.clone(), data);
                if let Some(number) = g.numbers.remove(&old) {
                    g.numbers.insert(new, number);
                }
            }
            let dirs: Vec<_> = g.dirs.keys().filter_map(moved).collect();
            for (old, new) in dirs {
                let number = g.dirs.remove(&old).expect("listed");
                g.dirs.insert(new, number);
            }
            g.dirs.insert(kt.to_string(), number);
            tell(&g, true);
            return Ok(());
        }
        Err(SmbError::NotFound)
    }
}

/// The name of an open: that of its number.
struct MemName {
    backend: MemFsBackend,
    number: u64,
    opened_as: SmbPath,
}

#[async_trait]
impl OpenName for MemName {
    fn opened_as(&self) -> &SmbPath {
        &self.opened_as
    }

    async fn dir(&self) -> Option<u64> {
        let parent = self.path().await.ok()?.parent()?;
        self.backend.inner.lock().unwrap().number(&key(&parent))
    }

    async fn path(&self) -> SmbResult<SmbPath> {
        self.backend.inner.lock().unwrap().key_of(self.number).ok_or(SmbError::NotFound)?.parse()
    }

    async fn rename(&self, to: &SmbPath, replace: bool) -> SmbResult<()> {
        let result = self.backend.rename(self.number, &key(to), replace);
        if let Some(ran) = &self.backend.on_rename {
            ran().await;
        }
        result
    }

    async fn link(&self, _to: &SmbPath, _replace: bool) -> SmbResult<()> {
        Err(SmbError::NotSupported)
    }

    async fn remove(&self) -> SmbResult<()> {
        self.backend.remove(self.number)
    }

    async fn modified(&self, what: u32) {
        if let Ok(path) = self.path().await {
            self.backend.modified(&path, what).await;
        }
    }
}

pub struct MemHandle {
    inner: Arc<Mutex<MemInner>>,
    key: String,
    is_dir: bool,
    number: u64,
    name: Arc<dyn OpenName>,
}

impl MemHandle {
    fn new(backend: &MemFsBackend, inner: &mut MemInner, key: String, path: &SmbPath, is_dir: bool) -> Self {
        let number = inner.number(&key).expect("it is there");
        let name = Arc::new(MemName { backend: backend.clone(), number, opened_as: path.clone() });
        Self { inner: backend.inner.clone(), key, is_dir, number, name }
    }
}

#[async_trait]
impl Handle for MemHandle {
    fn name(&self) -> Arc<dyn OpenName> {
        self.name.clone()
    }

    async fn read(&self, offset: u64, len: u32) -> SmbResult<Bytes> {
        if self.is_dir {
            return Err(SmbError::IsDirectory);
        }
        let g = self.inner.lock().unwrap();
        let data = g.files.get(&self.key).ok_or(SmbError::NotFound)?;
        let start = offset as usize;
        if start >= data.len() {
            return Ok(Bytes::new());
        }
        let end = (start + len as usize).min(data.len());
        Ok(Bytes::copy_from_slice(&data[start..end]))
    }

    async fn write(&self, offset: u64, data: &[u8]) -> SmbResult<u32> {
        if self.is_dir {
            return Err(SmbError::IsDirectory);
        }
        let mut g = self.inner.lock().unwrap();
        let buf = g.files.get_mut(&self.key).ok_or(SmbError::NotFound)?;
        let needed = (offset as usize) + data.len();
        if buf.len() < needed {
            buf.resize(needed, 0);
        }
        buf[offset as usize..offset as usize + data.len()].copy_from_slice(data);
        Ok(data.len() as u32)
    }

    async fn flush(&self) -> SmbResult<()> {
        Ok(())
    }

    async fn stat(&self) -> SmbResult<FileInfo> {
        let g = self.inner.lock().unwrap();
        let size = if self.is_dir { 0 } else { g.files.get(&self.key).ok_or(SmbError::NotFound)?.len() as u64 };
        let name = self.key.rsplit_once('\\').map(|(_, n)| n.to_string()).unwrap_or_else(|| self.key.clone());
        let [creation_time, last_access_time, last_write_time, change_time] =
            g.times.get(&self.key).copied().unwrap_or([0x01D9_0000_0000_0000; 4]);
        Ok(FileInfo {
            name,
            end_of_file: size,
            allocation_size: size,
            creation_time,
            last_access_time,
            last_write_time,
            change_time,
            is_directory: self.is_dir,
            read_only: g.read_only.contains(&self.key),
            file_index: self.number,
            stream_index: 0,
            stored_attributes: 0,
        })
    }

    async fn set_times(&self, times: FileTimes) -> SmbResult<()> {
        let mut g = self.inner.lock().unwrap();
        let stored = g.times.entry(self.key.clone()).or_insert([0x01D9_0000_0000_0000; 4]);
        let wanted = [times.creation_time, times.last_access_time, times.last_write_time, times.change_time];
        for (slot, time) in stored.iter_mut().zip(wanted) {
            if let Some(time) = time {
                *slot = time;
            }
        }
        Ok(())
    }

    /// Keeps READONLY; ARCHIVE is accepted and not kept.
    async fn set_attributes(&self, attributes: u32) -> SmbResult<()> {
        const READONLY: u32 = 0x1;
        const ARCHIVE: u32 = 0x20;
        if attributes & !(READONLY | ARCHIVE) != 0 {
            return Err(SmbError::NotSupported);
        }
        let mut g = self.inner.lock().unwrap();
        if attributes & READONLY != 0 {
            g.read_only.insert(self.key.clone());
        } else {
            g.read_only.remove(&self.key);
        }
        Ok(())
    }

    async fn truncate(&self, len: u64) -> SmbResult<()> {
        if self.is_dir {
            return Err(SmbError::IsDirectory);
        }
        let mut g = self.inner.lock().unwrap();
        let buf = g.files.get_mut(&self.key).ok_or(SmbError::NotFound)?;
        buf.resize(len as usize, 0);
        Ok(())
    }

    async fn list_dir(&self, _pattern: Option<&str>) -> SmbResult<Vec<DirEntry>> {
        if !self.is_dir {
            return Err(SmbError::NotADirectory);
        }
        let g = self.inner.lock().unwrap();
        let prefix = if self.key.is_empty() { String::new() } else { format!("{}\\", self.key) };
        let mut entries = Vec::new();
        for (k, v) in g.files.iter() {
            if let Some(rest) = k.strip_prefix(&prefix)
                && !rest.contains('\\')
            {
                entries.push(DirEntry {
                    info: FileInfo {
                        name: rest.to_string(),
                        end_of_file: v.len() as u64,
                        allocation_size: v.len() as u64,
                        creation_time: 0x01D9_0000_0000_0000,
                        last_access_time: 0x01D9_0000_0000_0000,
                        last_write_time: 0x01D9_0000_0000_0000,
                        change_time: 0x01D9_0000_0000_0000,
                        is_directory: false,
                        read_only: false,
                        file_index: 0,
                        stream_index: 0,
                        stored_attributes: 0,
                    },
                    position: 0,
                });
            }
        }
        for k in g.dirs.keys() {
            if let Some(rest) = k.strip_prefix(&prefix)
                && !rest.is_empty()
                && !rest.contains('\\')
            {
                entries.push(DirEntry {
                    info: FileInfo {
                        name: rest.to_string(),
                        end_of_file: 0,
                        allocation_size: 0,
                        creation_time: 0x01D9_0000_0000_0000,
                        last_access_time: 0x01D9_0000_0000_0000,
                        last_write_time: 0x01D9_0000_0000_0000,
                        change_time: 0x01D9_0000_0000_0000,
                        is_directory: true,
                        read_only: false,
                        file_index: 0,
                        stream_index: 0,
                        stored_attributes: 0,
                    },
                    position: 0,
                });
            }
        }
        Ok(entries)
    }

    async fn close(self: Box<Self>) -> SmbResult<()> {
        self.inner.lock().unwrap().open_handles -= 1;
        Ok(())
    }
}
