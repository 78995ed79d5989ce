use std::collections::HashMap;
use std::sync::Mutex;

use crate::backend::{
    BackendCapabilities, DirEntry, FileInfo, FileTimes, Handle, OpenAction, OpenIntent, OpenOptions, ShareBackend,
};
use crate::error::{SmbError, SmbResult};
use crate::files::{Above, Notice, NoticeKind, Watches};
use crate::path::SmbPath;
use async_trait::async_trait;
use bytes::Bytes;

/// In-memory backend for unit tests. Files and directories are keyed by
/// backslash-joined path; directories have numbers. It tells of changes as it
/// makes them. Clones share the same files.
#[derive(Clone)]
pub struct MemFsBackend {
    inner: std::sync::Arc<Mutex<MemInner>>,
    watches: Watches,
}

#[derive(Default)]
struct MemInner {
    files: HashMap<String, Vec<u8>>,
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
        Self { inner: std::sync::Arc::new(Mutex::new(inner)), watches: Watches::default() }
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

    /// Handles opened and not yet closed.
    pub fn open_handles(&self) -> usize {
        self.inner.lock().unwrap().open_handles
    }

    pub fn with_file(self, path: &str, contents: &[u8]) -> Self {
        {
            let mut g = self.inner.lock().unwrap();
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
            return Ok((Box::new(MemHandle::dir(self.inner.clone(), k)), action));
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
        Ok((Box::new(MemHandle::file(self.inner.clone(), k)), action))
    }

    async fn unlink(&self, path: &SmbPath) -> SmbResult<()> {
        let k = key(path);
        let mut g = self.inner.lock().unwrap();
        if g.files.remove(&k).is_some() {
            self.tell(&g, &k, NoticeKind::Removed, false);
            return Ok(());
        }
        if g.dirs.remove(&k).is_some() {
            self.tell(&g, &k, NoticeKind::Removed, true);
            return Ok(());
        }
        Err(SmbError::NotFound)
    }

    async fn rename(&self, from: &SmbPath, to: &SmbPath, replace_if_exists: bool) -> SmbResult<()> {
        let kf = key(from);
        let kt = key(to);
        let mut g = self.inner.lock().unwrap();
        if kf != kt && (g.files.contains_key(&kt) || g.dirs.contains_key(&kt)) {
            if !replace_if_exists {
                return Err(SmbError::Exists);
            }
            if g.dirs.contains_key(&kt) {
                return Err(SmbError::AccessDenied);
            }
        }
        let tell = |g: &MemInner, is_directory| {
            let split = |key: &str| {
                key.rsplit_once('\\')
                    .map_or(("".to_string(), key.to_string()), |(dir, name)| (dir.to_string(), name.to_string()))
            };
            let ((from_dir, from), (to_dir, _)) = (split(&kf), split(&kt));
            if from_dir == to_dir {
                return self.tell(g, &kt, NoticeKind::Renamed { from }, is_directory);
            }
            self.tell(g, &kf, NoticeKind::Removed, is_directory);
            self.tell(g, &kt, NoticeKind::Added, is_directory);
        };
        if let Some(data) = g.files.remove(&kf) {
            g.files.insert(kt.clone(), data);
            tell(&g, false);
            return Ok(());
        }
        if let Some(number) = g.dirs.remove(&kf) {
            // Everything below the directory moves with it.
            let below = format!("{kf}\\");
            let moved = |key: &String| key.strip_prefix(&below).map(|rest| (key.clone(), format!("{kt}\\{rest}")));
            let files: Vec<_> = g.files.keys().filter_map(moved).collect();
            for (old, new) in files {
                let data = g.files.remove(&old).expect("listed");
                g.files.insert(new, data);
            }
            let dirs: Vec<_> = g.dirs.keys().filter_map(moved).collect();
            for (old, new) in dirs {
                let number = g.dirs.remove(&old).expect("listed");
                g.dirs.insert(new, number);
            }
            g.dirs.insert(kt.clone(), number);
            tell(&g, true);
            return Ok(());
        }
        Err(SmbError::NotFound)
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
        BackendCapabilities {
            is_read_only: false,
            case_sensitive: false,
            sparse_files: false,
            named_streams: false,
            shared_extents: false,
        }
    }
}

pub struct MemHandle {
    inner: std::sync::Arc<Mutex<MemInner>>,
    key: String,
    is_dir: bool,
}

impl MemHandle {
    fn file(inner: std::sync::Arc<Mutex<MemInner>>, key: String) -> Self {
        Self { inner, key, is_dir: false }
    }

    fn dir(inner: std::sync::Arc<Mutex<MemInner>>, key: String) -> Self {
        Self { inner, key, is_dir: true }
    }
}

#[async_trait]
impl Handle for MemHandle {
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
            file_index: if self.is_dir { g.dirs.get(&self.key).copied().unwrap_or(0) } else { 0 },
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
