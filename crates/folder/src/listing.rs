//! Looking names up, and listing directories.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use larder_fs::judge;
use larder_fs::{
    ACCESS_EXECUTE, ACCESS_READ, Attr, Cred, DirEntry, FileKind, FsError, FsResult, Ino, Listing, NameMatch,
};
use rustix::fs::{AtFlags, FileType, OFlags, RawDir, SeekFrom, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::Folder;
use crate::host::{DEPTH_MAX, Node, failed};
use crate::numbers::is_stream;

/// As in a volume.
const PAGE_ENTRIES_MAX: usize = 16384;
const BUFFER_BYTES: usize = 32 << 10;
/// Doors give the first cookies to `.` and `..`.
const FIRST_COOKIE: u64 = 3;
/// The greatest position: clients take cookies for signed numbers.
const POSITION_MAX: u64 = i64::MAX as u64 - FIRST_COOKIE;

/// The position behind an entry, as a cookie.
fn cookie_of(position: u64) -> u64 {
    position.min(POSITION_MAX) + FIRST_COOKIE
}

/// An entry as the host lists it.
struct Raw {
    name: Bytes,
    ino: Ino,
    kind: Option<FileKind>,
    cookie: u64,
}

impl Folder {
    pub async fn lookup(&self, cred: &Cred, dir: Ino, name: &[u8], how: NameMatch) -> FsResult<Attr> {
        judge::check_name(name)?;
        let (cred, name) = (cred.clone(), name.to_vec());
        self.run(move |folder| {
            if is_stream(dir) {
                return folder.host.stream_lookup(dir, &name, how);
            }
            let dir = folder.host.node(dir)?.directory()?;
            judge::require(&folder.host.guarded(&dir, &cred)?, &cred, ACCESS_EXECUTE)?;
            match &name[..] {
                b"." => return Ok(folder.shown(&dir)),
                b".." => return Ok(folder.shown(&folder.host.above(&dir)?)),
                _ => {}
            }
            match folder.host.child(&dir, &name) {
                Err(FsError::NotFound) if how == NameMatch::Folded => {
                    let stored = folder.spelling(&dir, &name)?.ok_or(FsError::NotFound)?;
                    Ok(folder.shown(&folder.host.child(&dir, &stored)?))
                }
                found => Ok(folder.shown(&found?)),
            }
        })
        .await
    }

    pub async fn stored_name(&self, dir: Ino, name: &[u8]) -> FsResult<Bytes> {
        judge::check_name(name)?;
        if judge::is_dots(name) {
            return Ok(Bytes::copy_from_slice(name));
        }
        let name = name.to_vec();
        self.run(move |folder| {
            if is_stream(dir) {
                return folder.host.stream_stored_name(dir, &name);
            }
            let dir = folder.host.node(dir)?.directory()?;
            match folder.host.child(&dir, &name) {
                Ok(_) => Ok(Bytes::from(name)),
                Err(FsError::NotFound) => folder.spelling(&dir, &name)?.ok_or(FsError::NotFound),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// The first name of the directory that differs from `name` in case alone.
    fn spelling(&self, dir: &Node, name: &[u8]) -> FsResult<Option<Bytes>> {
        let attr = self.host.again(dir)?;
        if let Some(found) = self.host.folded.lock().find(&attr, name) {
            return Ok(found);
        }
        let read = (Instant::now(), SystemTime::now());
        let open = self.open_dir(dir)?;
        let (mut names, mut found) = (Vec::new(), None);
        let wanted = judge::fold(name);
        list(&open, 0, |entry| {
            if found.is_none() && judge::fold(&entry.name) == wanted {
                found = Some(entry.name.clone());
            }
            names.push(entry.name);
            true
        })?;
        self.host.folded.lock().put(&attr, read, names.into_iter());
        Ok(found)
    }

    pub(crate) fn is_empty(&self, dir: &Node) -> FsResult<bool> {
        let mut is_empty = true;
        list(&self.open_dir(dir)?, 0, |_| {
            is_empty = false;
            false
        })?;
        Ok(is_empty)
    }

    fn open_dir(&self, dir: &Node) -> FsResult<OwnedFd> {
        self.host.reopen(dir.fd.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY)
    }

    pub async fn parent(&self, dir: Ino) -> FsResult<Ino> {
        self.run(move |folder| {
            let dir = folder.host.node(dir)?.directory()?;
            Ok(folder.host.above(&dir)?.ino())
        })
        .await
    }

    pub async fn parent_within(&self, dir: Ino, top: Ino) -> FsResult<Ino> {
        if dir == top {
            return Ok(top);
        }
        self.run(move |folder| {
            let host = &folder.host;
            let parent = host.above(&host.node(dir)?.directory()?)?;
            let ino = parent.ino();
            let mut at = parent;
            for _ in 0..DEPTH_MAX {
                if at.ino() == top {
                    return Ok(ino);
                }
                let next = host.above(&at)?;
                if next.ino() == at.ino() {
                    break;
                }
                at = next;
            }
            Err(FsError::Stale)
        })
        .await
    }

    pub async fn dir_at(&self, _cred: &Cred, _dir: Ino, _second: i64) -> FsResult<Attr> {
        Err(FsError::NotFound)
    }

    pub async fn readlink(&self, ino: Ino) -> FsResult<Bytes> {
        self.run(move |folder| {
            let node = folder.host.node(ino)?;
            if node.attr.kind != FileKind::Symlink {
                return Err(FsError::Invalid("not a symbolic link"));
            }
            let target = rustix::fs::readlinkat(&node.fd, "", Vec::new()).map_err(failed)?;
            Ok(Bytes::from(target.into_bytes()))
        })
        .await
    }

    pub async fn readdir(&self, cred: &Cred, dir: Ino, cookie: u64, max: usize, with_attrs: bool) -> FsResult<Listing> {
        self.readdir_before(cred, dir, cookie, u64::MAX, max, with_attrs).await
    }

    /// Cookies are positions of the host, in its own order, which says nothing about ages: `end` bounds nothing.
    pub async fn readdir_before(
        &self,
        cred: &Cred,
        dir: Ino,
        cookie: u64,
        _end: u64,
        max: usize,
        with_attrs: bool,
    ) -> FsResult<Listing> {
        let cred = cred.clone();
        self.run(move |folder| {
            if is_stream(dir) {
                return folder.host.stream_listing(dir, cookie, max);
            }
            let dir = folder.host.node(dir)?.directory()?;
            judge::require(&folder.host.guarded(&dir, &cred)?, &cred, ACCESS_READ)?;
            let max = max.clamp(1, PAGE_ENTRIES_MAX);
            let (entries, eof) = match cookie > POSITION_MAX + FIRST_COOKIE {
                true => (Vec::new(), true),
                false => folder.page(&dir, cookie.saturating_sub(FIRST_COOKIE), max, with_attrs)?,
            };
            Ok(Listing { entries, eof, end: u64::MAX, dir: folder.host.again(&dir)? })
        })
        .await
    }

    fn page(&self, dir: &Node, position: u64, max: usize, with_attrs: bool) -> FsResult<(Vec<DirEntry>, bool)> {
        let open = self.open_dir(dir)?;
        let (mut entries, mut eof, mut trouble) = (Vec::new(), true, None);
        list(&open, position, |raw| {
            if entries.len() >= max {
                eof = false;
                return false;
            }
            match self.entry(dir, &open, raw, with_attrs) {
                Ok(entry) => entries.extend(entry),
                Err(error) => trouble = Some(error),
            }
            trouble.is_none()
        })?;
        trouble.map_or(Ok((entries, eof)), Err)
    }

    /// `None` for what is not part of the folder (`folder.one_filesystem`), or has gone meanwhile.
    fn entry(&self, dir: &Node, open: &OwnedFd, raw: Raw, with_attrs: bool) -> FsResult<Option<DirEntry>> {
        if let (false, Some(kind)) = (with_attrs, raw.kind) {
            if kind == FileKind::Directory && is_foreign(open, &raw.name, dir)? {
                return Ok(None);
            }
            self.host.remember_listed(dir.ino(), &raw.name, raw.ino, kind);
            return Ok(Some(DirEntry { cookie: raw.cookie, name: raw.name, ino: raw.ino, kind, attr: None }));
        }
        match self.host.child(dir, &raw.name) {
            Ok(node) => {
                let attr = with_attrs.then(|| self.shown(&node));
                Ok(Some(DirEntry { cookie: raw.cookie, name: raw.name, ino: node.ino(), kind: node.attr.kind, attr }))
            }
            Err(FsError::NotFound | FsError::Stale) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether a directory is another filesystem, or a subvolume.
fn is_foreign(open: &OwnedFd, name: &[u8], dir: &Node) -> FsResult<bool> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let own = super::host::statx(dir.fd.as_fd()).map_err(failed)?;
    match rustix::fs::statx(open, name, flags, StatxFlags::TYPE) {
        Ok(stat) => Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
            || (stat.stx_dev_major, stat.stx_dev_minor) != (own.stx_dev_major, own.stx_dev_minor)),
        Err(Errno::NOENT) => Ok(true),
        Err(error) => Err(failed(error)),
    }
}

/// Calls `each` with the entries behind a position until it has enough.
fn list(dir: &OwnedFd, position: u64, mut each: impl FnMut(Raw) -> bool) -> FsResult<()> {
    if position > 0 {
        rustix::fs::seek(dir, SeekFrom::Start(position)).map_err(failed)?;
    }
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
    let mut entries = RawDir::new(dir, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(Errno::INTR) => continue,
            // Removed while it is read.
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        let name = entry.file_name().to_bytes();
        if judge::is_dots(name) {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::RegularFile => Some(FileKind::File),
            FileType::Directory => Some(FileKind::Directory),
            FileType::Symlink => Some(FileKind::Symlink),
            FileType::Fifo => Some(FileKind::Fifo),
            FileType::Socket => Some(FileKind::Socket),
            FileType::CharacterDevice => Some(FileKind::CharDevice),
            FileType::BlockDevice => Some(FileKind::BlockDevice),
            FileType::Unknown => None,
        };
        let cookie = cookie_of(entry.next_entry_cookie());
        let raw = Raw { name: Bytes::copy_from_slice(name), ino: Ino(entry.ino()), kind, cookie };
        if !each(raw) {
            return Ok(());
        }
    }
    Ok(())
}
