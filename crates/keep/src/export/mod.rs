//! A snapshot as a tar stream.
//!
//! - `export.bounded`: a file's data passes in pieces; memory holds the folders of one path, and the first names of files that
//!   have several ([`LINKS_MAX`]; one more is stored as a file of its own).
//! - `export.whole_or_cut`: an error ends the stream in the middle, without tar's end mark, so no reader takes it for whole.
//!
//! Sockets are left out, as tar does. Named streams and access control lists have no form in tar.

mod tar;

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use larder_api::Failure;
use larder_base::{boxed, task};
use larder_fs::{AccessTimes, Answers, Attr, Cred, DirEntry, FileKind, FsError, FsResult, Ino, SeekTo};
use larder_volume::Volume;
use tokio::sync::mpsc;

use self::tar::{Extent, Member};
use crate::snapshot_words;
use crate::store::Store;

/// Pieces on their way to a slow reader.
const PIECES_MAX: usize = 8;
/// Headers and small files are sent together.
const PIECE_BYTES: usize = 256 << 10;
const READ_BYTES: usize = 1 << 20;
const ENTRIES_AT_ONCE: usize = 256;
/// First names that are remembered.
const LINKS_MAX: usize = 1 << 20;
/// Parts of a sparse file; what comes behind so many is stored with its holes as zeros.
const EXTENTS_MAX: usize = 1 << 16;
/// Deeper than any path of a client.
const DEPTH_MAX: usize = 4096;

/// Names of users and groups by number.
#[derive(Clone, Default)]
pub struct Owners {
    pub users: HashMap<u32, String>,
    pub groups: HashMap<u32, String>,
}

impl Store {
    /// Begins to write a snapshot as a tar stream.
    #[boxed]
    pub async fn export_tar(
        &self,
        volume: &str,
        snapshot: &str,
        owners: Owners,
    ) -> Result<BoxStream<'static, FsResult<Bytes>>, Failure> {
        let open = self.volume(volume).await?.with_access_times(AccessTimes::NEVER).with_answers(Answers::Ordered);
        let full = format!("{}/{volume}@{snapshot}", self.name);
        let top = open.snapshot_root(snapshot).await.map_err(|error| snapshot_words::snapshot_error(&full, &error))?;
        let (out, pieces) = mpsc::channel(PIECES_MAX);
        let failed = out.clone();
        let exporting = self.uses.begin(volume, format!("the export of {full}"));
        task::spawn(async move {
            let _use = exporting;
            let mut walk =
                Walk { volume: open, out, buffer: BytesMut::new(), owners, links: HashMap::new(), sockets: 0 };
            match walk.all(&top).await {
                Ok(()) if walk.sockets > 0 => tracing::info!("{} sockets of {full} are not in its tar", walk.sockets),
                Ok(()) | Err(Cut::Reader) => {}
                Err(Cut::Volume(error)) => {
                    tracing::warn!("the export of {full} was cut off: {error}");
                    let _ = failed.send(Err(error)).await;
                }
            }
        });
        let next = |mut pieces: mpsc::Receiver<_>| async move { pieces.recv().await.map(|piece| (piece, pieces)) };
        Ok(futures::stream::unfold(pieces, next).boxed())
    }
}

/// Why the stream ends early.
enum Cut {
    /// Nobody reads it any more.
    Reader,
    Volume(FsError),
}

impl From<FsError> for Cut {
    fn from(error: FsError) -> Self {
        Cut::Volume(error)
    }
}

struct Walk {
    volume: Volume,
    out: mpsc::Sender<FsResult<Bytes>>,
    buffer: BytesMut,
    owners: Owners,
    /// Of files with several names: the first name, and how many are to come.
    links: HashMap<Ino, (Vec<u8>, u32)>,
    sockets: u64,
}

/// A folder on the way to where the walk is.
struct Level {
    dir: Ino,
    path_bytes: usize,
    page: std::vec::IntoIter<DirEntry>,
    cookie: u64,
    eof: bool,
}

impl Level {
    fn new(dir: Ino, path_bytes: usize) -> Level {
        Level { dir, path_bytes, page: Vec::new().into_iter(), cookie: 0, eof: false }
    }

    async fn next(&mut self, volume: &Volume) -> FsResult<Option<DirEntry>> {
        loop {
            if let Some(entry) = self.page.next() {
                self.cookie = entry.cookie;
                return Ok(Some(entry));
            }
            if self.eof {
                return Ok(None);
            }
            let page = volume.readdir(&Cred::root(), self.dir, self.cookie, ENTRIES_AT_ONCE, true).await?;
            self.eof = page.eof || page.entries.is_empty();
            self.page = page.entries.into_iter();
        }
    }
}

impl Walk {
    async fn all(&mut self, top: &Attr) -> Result<(), Cut> {
        let mut path = b"./".to_vec();
        self.member(&path, top).await?;
        let mut levels = vec![Level::new(top.id.ino, path.len())];
        while let Some(level) = levels.last_mut() {
            path.truncate(level.path_bytes);
            let Some(entry) = level.next(&self.volume).await? else {
                levels.pop();
                continue;
            };
            let attr = match entry.attr {
                Some(attr) => attr,
                None => self.volume.getattr(entry.ino).await?,
            };
            path.extend_from_slice(&entry.name);
            if attr.kind == FileKind::Directory {
                path.push(b'/');
                if levels.len() >= DEPTH_MAX {
                    return Err(Cut::Volume(FsError::NameTooLong));
                }
                levels.push(Level::new(entry.ino, path.len()));
            }
            self.member(&path, &attr).await?;
        }
        self.buffer.extend_from_slice(&[0; 2 * tar::BLOCK_BYTES]);
        self.flush().await
    }

    /// One name, with the data of a file that has not been stored under another.
    async fn member(&mut self, path: &[u8], attr: &Attr) -> Result<(), Cut> {
        if attr.kind == FileKind::Socket {
            self.sockets += 1;
            return Ok(());
        }
        let first = self.first_name(path, attr);
        let is_link = first.is_some();
        let target = match attr.kind {
            FileKind::Symlink if !is_link => Some(self.volume.readlink(attr.id.ino).await?.to_vec()),
            _ => first,
        };
        let has_data = attr.kind == FileKind::File && !is_link;
        let whole = [Extent { offset: 0, bytes: attr.size }];
        let extents = if has_data { self.extents(attr).await? } else { Vec::new() };
        let is_sparse = has_data && attr.size > 0 && extents != whole;
        let records = if is_link { Vec::new() } else { self.records(attr).await? };
        let head = Member {
            path,
            attr,
            target: target.as_deref(),
            is_link,
            user: self.owners.users.get(&attr.uid).map(String::as_str),
            group: self.owners.groups.get(&attr.gid).map(String::as_str),
            extents: is_sparse.then_some(&extents[..]),
            records,
        }
        .head();
        self.buffer.extend_from_slice(&head);
        if has_data {
            let mut stored = 0;
            for extent in extents {
                self.data(attr.id.ino, extent).await?;
                stored += extent.bytes;
            }
            let rest = stored.next_multiple_of(tar::BLOCK_BYTES as u64) - stored;
            self.buffer.resize(self.buffer.len() + rest as usize, 0);
        }
        if self.buffer.len() >= PIECE_BYTES { self.flush().await } else { Ok(()) }
    }

    /// The name under which a file is in the stream already.
    fn first_name(&mut self, path: &[u8], attr: &Attr) -> Option<Vec<u8>> {
        if attr.kind == FileKind::Directory || attr.nlink < 2 {
            return None;
        }
        let ino = attr.id.ino;
        if let Some((first, left)) = self.links.get_mut(&ino) {
            let first = first.clone();
            *left -= 1;
            if *left == 0 {
                self.links.remove(&ino);
            }
            return Some(first);
        }
        if self.links.len() < LINKS_MAX {
            self.links.insert(ino, (path.to_vec(), attr.nlink - 1));
        }
        None
    }

    /// The parts of a file that are no holes. They begin and end with blocks of tar or with the file, because GNU tar reads each
    /// part from a block's beginning.
    async fn extents(&self, attr: &Attr) -> FsResult<Vec<Extent>> {
        const BLOCK: u64 = tar::BLOCK_BYTES as u64;
        let (ino, mut extents, mut at) = (attr.id.ino, Vec::<Extent>::new(), 0);
        while at < attr.size {
            let start = match self.volume.seek(ino, at, SeekTo::Data).await {
                Ok(start) => start,
                Err(FsError::NotFound) => break,
                Err(error) => return Err(error),
            };
            let end = match self.volume.seek(ino, start, SeekTo::Hole).await {
                _ if extents.len() + 1 >= EXTENTS_MAX => attr.size,
                Ok(end) => end.min(attr.size),
                Err(FsError::NotFound) => attr.size,
                Err(error) => return Err(error),
            };
            if end <= start {
                return Err(FsError::Io(format!("the holes of inode {} contradict each other", ino.0).into()));
            }
            let (start, end) = (start / BLOCK * BLOCK, end.next_multiple_of(BLOCK).min(attr.size));
            match extents.last_mut() {
                // Both lie in one block.
                Some(last) if last.offset + last.bytes >= start => last.bytes = end - last.offset,
                _ => extents.push(Extent { offset: start, bytes: end - start }),
            }
            at = end;
        }
        Ok(extents)
    }

    /// Extended attributes.
    async fn records(&self, attr: &Attr) -> FsResult<Vec<(Vec<u8>, Vec<u8>)>> {
        let (root, ino) = (Cred::root(), attr.id.ino);
        let mut records = Vec::new();
        for name in self.volume.listxattr(&root, ino).await? {
            // The key of a record ends at the first '='.
            if !name.contains(&b'=') {
                let value = self.volume.getxattr(&root, ino, &name).await?;
                records.push(([&b"SCHILY.xattr."[..], &name[..]].concat(), value.to_vec()));
            }
        }
        Ok(records)
    }

    async fn data(&mut self, ino: Ino, extent: Extent) -> Result<(), Cut> {
        let (mut at, end) = (extent.offset, extent.offset + extent.bytes);
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(READ_BYTES);
            let read = self.volume.read(ino, at, want).await?;
            if read.is_empty() {
                return Err(Cut::Volume(FsError::Io(format!("inode {} ends before its size", ino.0).into())));
            }
            at += read.len() as u64;
            for chunk in read.chunks {
                if chunk.len() < PIECE_BYTES {
                    self.buffer.extend_from_slice(&chunk);
                } else {
                    self.flush().await?;
                    self.out.send(Ok(chunk)).await.map_err(|_| Cut::Reader)?;
                }
            }
            if self.buffer.len() >= PIECE_BYTES {
                self.flush().await?;
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Cut> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.out.send(Ok(self.buffer.split().freeze())).await.map_err(|_| Cut::Reader)
    }
}
