//! Named streams of files and directories: their named attributes in the volume.
//!
//! - `streams.rights_of_the_file`: access to a stream requires the same rights as access to its
//!   file. Only the server uses the directory that holds the streams.
//! - `streams.attributes_of_the_file`: times, attributes, owner and permissions are the file's.
//!   Data, size and identity are the stream's.
//! - `streams.names_as_spelled`: names of streams are kept as they are spelled. Names of files are
//!   translated where Windows lacks a character, since other protocols make them; no other protocol
//!   sees streams.
//! - `streams.makes_its_file`: creating a stream creates its file if need be (MS-FSA 2.1.5.1.1).

use bytes::Bytes;
use larder_fs::{Attr, CreateMode, Cred, FileKind, FsError, FsResult, Ino, RenameMode, SetAttr};

use crate::error::{SmbError, SmbResult};
use crate::words::{OpenAction, OpenIntent, OpenOptions};
use larder_smb_wire::file_info::StreamInfo;
use larder_smb_wire::path::SmbPath;

use super::handle::{ALLOCATION_BYTES, FileHandle, MATCH};
use super::rights;
use super::status::{OrStatus, status};
use super::view::{Attempt, FoundEntry, VisitedShare, Way};

/// A file, its entry, and the directory that holds it.
type FoundBase = (Attr, Option<FoundEntry>, Option<Attr>);

/// Names of one page when streams are listed.
const PAGE_ENTRIES: usize = 256;
/// Streams listed of one file, as a client takes no more than 64 KiB at once.
const LISTED_MAX: usize = 4096;

impl VisitedShare {
    pub(super) async fn open_stream(&self, way: &Way<'_>, stream: &str, opts: &OpenOptions) -> SmbResult<Attempt> {
        if opts.directory {
            return Err(SmbError::NotADirectory);
        }
        let makes = !matches!(opts.intent, OpenIntent::Open | OpenIntent::Truncate);
        let (base, entry, dir) = match self.base(way.path).await {
            Err(SmbError::NotFound) if makes => match self.make_base(way, opts).await? {
                Some(made) => made,
                None => return Ok(Attempt::Raced),
            },
            found => found?,
        };
        let Some(rights) = self.rights(&base, dir.as_ref()).await? else { return Ok(Attempt::Raced) };
        if opts.access & !rights != 0 {
            return Err(SmbError::AccessDenied);
        }
        let may_write = rights & rights::WRITE_DATA != 0;
        let files = &self.core.files;
        let named = files.named_dir(base.id.ino, makes && may_write).await.or_status()?;
        let found = match named {
            Some(dir) => self.find_stream(dir, stream).await,
            None => Err(FsError::NotFound),
        };
        let base = &(base, entry);
        match (found, named) {
            (Ok(attr), Some(dir)) => self.open_found(way, base, (dir, &attr), stream, rights, opts).await,
            (Err(FsError::NotFound), _) if !makes => Err(SmbError::NotFound),
            (Err(FsError::NotFound), Some(dir)) if may_write => {
                let name = stream.as_bytes();
                match files.create_named(&self.who().as_root(), &base.0, (dir, name), CreateMode::Guarded).await {
                    Ok(attr) => self.opened_stream(way, base, (dir, &attr), stream, rights, OpenAction::Created).await,
                    Err(FsError::Exists) if opts.intent != OpenIntent::Create => Ok(Attempt::Raced),
                    Err(error) => Err(status(error)),
                }
            }
            (Err(FsError::NotFound) | Ok(_), _) => Err(SmbError::AccessDenied),
            (Err(error), _) => Err(status(error)),
        }
    }

    async fn open_found(
        &self,
        way: &Way<'_>,
        base: &(Attr, Option<FoundEntry>),
        at: (Ino, &Attr),
        stream: &str,
        rights: u32,
        opts: &OpenOptions,
    ) -> SmbResult<Attempt> {
        match opts.intent {
            OpenIntent::Create => Err(SmbError::Exists),
            OpenIntent::Open | OpenIntent::OpenOrCreate => {
                self.opened_stream(way, base, at, stream, rights, OpenAction::Opened).await
            }
            _ => {
                if rights & rights::WRITE_DATA == 0 {
                    return Err(SmbError::AccessDenied);
                }
                let empty = SetAttr { size: Some(0), ..SetAttr::default() };
                self.core.files.setattr(&self.who().as_root(), at.1.id.ino, empty).await.or_status()?;
                self.opened_stream(way, base, at, stream, rights, OpenAction::Overwritten).await
            }
        }
    }

    async fn opened_stream(
        &self,
        way: &Way<'_>,
        (base, entry): &(Attr, Option<FoundEntry>),
        (dir, attr): (Ino, &Attr),
        stream: &str,
        rights: u32,
        action: OpenAction,
    ) -> SmbResult<Attempt> {
        let own = FoundEntry { dir, spelled: Bytes::copy_from_slice(stream.as_bytes()), id: attr.id };
        let base = Some((base.id, entry.clone()));
        let Some(open) = self.hold_open(attr.id).await? else { return Ok(Attempt::Raced) };
        Ok(match self.handle(way, (open, attr.id, Some(own)), base, stream, rights).await? {
            Some(handle) => Attempt::Opened(handle, action),
            None => Attempt::Raced,
        })
    }

    async fn find_stream(&self, dir: Ino, stream: &str) -> FsResult<Attr> {
        self.core.files.lookup(&Cred::root(), dir, stream.as_bytes(), MATCH).await
    }

    /// The file or directory of a stream, its entry, and the directory it lies in (none for the root of the share).
    async fn base(&self, path: &SmbPath) -> SmbResult<FoundBase> {
        match self.parent(path).await? {
            Some((dir, name)) => {
                let (attr, entry) = self.found(&dir, name).await.or_status()?;
                Ok((attr, Some(entry), Some(dir)))
            }
            None => Ok((self.top(path).await.or_status()?, None, None)),
        }
    }

    /// `None` when somebody else has made it meanwhile.
    async fn make_base(&self, way: &Way<'_>, opts: &OpenOptions) -> SmbResult<Option<FoundBase>> {
        let Some((dir, name)) = self.parent(way.path).await? else { return Err(SmbError::NotFound) };
        match self.create(way, &dir, name, opts).await? {
            Attempt::Opened(..) => match self.found(&dir, name).await {
                Ok((attr, entry)) => Ok(Some((attr, Some(entry), Some(dir)))),
                Err(FsError::NotFound) => Ok(None),
                Err(error) => Err(status(error)),
            },
            Attempt::Raced => Ok(None),
        }
    }

    /// The directory of a stream, the stream, and its name as stored.
    pub(super) async fn stream_of(&self, base: &Attr, stream: &str) -> SmbResult<(Ino, Attr, Bytes)> {
        let dir = self.core.files.named_dir(base.id.ino, false).await.or_status()?.ok_or(SmbError::NotFound)?;
        let attr = self.find_stream(dir, stream).await.or_status()?;
        let stored = self.core.files.stored_name(dir, stream.as_bytes()).await.or_status()?;
        Ok((dir, attr, stored))
    }

    /// Renames the stream `from` of the open file `base`.
    pub(super) async fn rename_stream(
        &self,
        base: Ino,
        (dir, from, attr): (Ino, &[u8], Attr),
        to: &str,
        replace: bool,
    ) -> SmbResult<()> {
        if !self.writable {
            return Err(SmbError::AccessDenied);
        }
        let files = &self.core.files;
        let base = files.getattr(base).await.or_status()?;
        self.may_change_streams(&base).await?;
        match self.find_stream(dir, to).await {
            Ok(taken) if taken.id == attr.id => {}
            Ok(_) if !replace => return Err(SmbError::Exists),
            Ok(_) => {
                let taken = files.stored_name(dir, to.as_bytes()).await.or_status()?;
                files.outright().unlink(&self.who().as_root(), dir, &taken).await.or_status()?;
            }
            Err(FsError::NotFound) => {}
            Err(error) => return Err(status(error)),
        }
        let files = files.only(attr.id.ino);
        files.rename(&self.who().as_root(), dir, from, dir, to.as_bytes(), RenameMode::NoReplace).await.or_status()?;
        Ok(())
    }
}

impl FileHandle {
    pub(super) async fn list_streams(&self) -> SmbResult<Vec<StreamInfo>> {
        let files = &self.core.files;
        let base = files.getattr(self.owner()).await.or_status()?;
        let mut streams = Vec::new();
        let mut add = |name: String, attr: &Attr| {
            let allocation_size = attr.allocated.next_multiple_of(ALLOCATION_BYTES);
            streams.push(StreamInfo { name, size: attr.size, allocation_size });
            streams.len()
        };
        if base.kind != FileKind::Directory {
            add(String::new(), &base);
        }
        let Some(dir) = files.named_dir(self.owner(), false).await.or_status()? else { return Ok(streams) };
        let mut cookie = 0;
        loop {
            let page = files.readdir(&Cred::root(), dir, cookie, PAGE_ENTRIES, true).await.or_status()?;
            for entry in &page.entries {
                cookie = entry.cookie;
                let attr = match entry.attr {
                    Some(attr) => attr,
                    None => files.getattr(entry.ino).await.or_status()?,
                };
                if add(String::from_utf8_lossy(&entry.name).into_owned(), &attr) >= LISTED_MAX {
                    return Ok(streams);
                }
            }
            if page.eof || page.entries.is_empty() {
                return Ok(streams);
            }
        }
    }
}
