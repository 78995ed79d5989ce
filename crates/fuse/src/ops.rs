//! The requests of the kernel, one method each, translated to the volume's operations.
//!
//! The kernel checks permissions (`default_permissions`) and calls with credentials marked as checked. flock locks
//! stay in the kernel; POSIX locks stand in the table of all doors (`locks`). What is not implemented here is refused
//! with ENOSYS by the crate, which the kernel remembers and does itself or reports as unsupported.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use bytes::Bytes;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, Version, WriteFlags,
};
use larder_files::Uses;
use larder_files::locks::Range;
use larder_fs::{
    CreateMode, Cred, FileKind, FsError, FsResult, IO_BYTES_MAX, Ino, NAME_BYTES_MAX, RenameMode, SYMLINK_BYTES_MAX,
    SeekTo, SetAttr, SetTime, Stability,
};
use rustix::fs::OFlags;

use super::convert::{allocate_mode, decode_dev, errno, file_attr, kind_of_mode, set_time};
use super::session::{Op, Session, send_data, send_done};
use super::{BACKGROUND_REQUESTS_MAX, REQUEST_BYTES_MAX, dir, locks, past, xattr};

pub(super) struct Operations {
    pub(super) session: Arc<Session>,
}

/// A name from the kernel, owned, if it is not too long to exist.
fn name_of(name: &OsStr) -> Result<Bytes, Errno> {
    if name.len() > NAME_BYTES_MAX { Err(Errno::ENAMETOOLONG) } else { Ok(Bytes::copy_from_slice(name.as_bytes())) }
}

/// Takes the name out, or answers and returns.
macro_rules! name_or_reply {
    ($name:expr, $reply:expr) => {
        match name_of($name) {
            Ok(name) => name,
            Err(error) => return $reply.error(error),
        }
    };
}

fn has(flags: i32, flag: OFlags) -> bool {
    OFlags::from_bits_retain(flags as u32).contains(flag)
}

/// The uses of an open with these flags.
fn uses(flags: i32) -> Uses {
    match OFlags::from_bits_retain(flags as u32) & OFlags::RWMODE {
        OFlags::WRONLY => Uses::WRITE,
        OFlags::RDWR => Uses::READ.and(Uses::WRITE),
        _ => Uses::READ,
    }
}

fn with_mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() }
}

/// Capabilities that let the kernel act by itself or in larger steps. Deliberately left out:
/// - the write-back cache: it would make the kernel the owner of size and times, behind the back of the
///   other protocols;
/// - automatic invalidation of data: it drops the kernel's own pages after its own writes; changes of others
///   are told explicitly;
/// - truncation as part of open: the kernel truncates by itself once it knows that the file may be opened for writing,
///   so a running program is refused (ETXTBSY) before it is damaged;
/// - flock locks: they are a matter among the programs of this machine, which is the kernel's.
fn wanted_capabilities() -> [InitFlags; 9] {
    [
        InitFlags::FUSE_POSIX_LOCKS,
        InitFlags::FUSE_ASYNC_DIO,
        InitFlags::FUSE_PARALLEL_DIROPS,
        InitFlags::FUSE_DO_READDIRPLUS,
        InitFlags::FUSE_READDIRPLUS_AUTO,
        InitFlags::FUSE_CACHE_SYMLINKS,
        InitFlags::FUSE_EXPLICIT_INVAL_DATA,
        InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        InitFlags::FUSE_EXPORT_SUPPORT,
    ]
}

impl Filesystem for Operations {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for capability in wanted_capabilities() {
            if let Err(missing) = config.add_capabilities(capability) {
                tracing::debug!(?missing, "the kernel does without");
            }
        }
        // Out of range of this kernel: its own choice stands.
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_REQUESTS_MAX);
        self.session.has_epochs.store(config.kernel_abi() >= Version(7, 44), Ordering::Relaxed);
        Ok(())
    }

    fn destroy(&mut self) {
        let _context = self.session.runtime.enter();
        drop(self.session.handles.clear());
        self.session.kernel_inodes.clear();
        self.session.files.end_all_locks();
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name_or_reply!(name, reply);
        let (session, cred) = (self.session.clone(), self.session.cred(request));
        self.session.serve(Op::Lookup, async move {
            let found = session.look_up(&cred, session.ino(parent), &name).await;
            session.send_lookup(reply, found);
        });
    }

    fn forget(&self, _request: &Request, ino: INodeNo, lookups: u64) {
        let _context = self.session.runtime.enter();
        self.session.kernel_inodes.forget(ino.0, lookups);
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        let session = self.session.clone();
        self.session.serve(Op::GetAttributes, async move {
            let result = session.getattr(session.ino(ino)).await;
            session.send_attr(reply, result);
        });
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (session, cred, caller) = (self.session.clone(), self.session.cred(request), request.pid());
        let mut set = SetAttr {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            atime: set_time(atime),
            mtime: set_time(mtime),
            ..SetAttr::default()
        };
        // ftruncate and open with O_TRUNC move the time of modification even where the size was right already.
        if size.is_some() && set.mtime.is_none() {
            set.mtime = Some(SetTime::Now);
        }
        self.session.serve(Op::SetAttributes, async move {
            let cred = match set.size.is_some() || set.uid.is_some() || set.gid.is_some() {
                true => session.with_groups(cred, caller, session.ino(ino)).await.0,
                false => cred,
            };
            let (files, ino) = (&session.files, session.ino(ino));
            let result = match set == SetAttr::default() {
                true => files.getattr(ino).await,
                false if handle.is_none() => files.setattr_unopened(&cred, ino, set).await.map(|changed| changed.after),
                false => files.setattr(&cred, ino, set).await.map(|changed| changed.after),
            };
            session.send_attr(reply, result);
        });
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        let session = self.session.clone();
        self.session.serve(Op::Lookup, async move {
            if session.ino(ino) == past::LINK {
                return reply.data(past::TARGET);
            }
            match session.files.readlink(session.ino(ino)).await {
                Ok(target) => reply.data(&target),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let name = name_or_reply!(name, reply);
        let Some(kind) = kind_of_mode(mode) else { return reply.error(Errno::EINVAL) };
        let (session, cred) = (self.session.clone(), self.session.cred(request));
        self.session.serve(Op::Create, async move {
            let (dir, set) = (session.ino(parent), with_mode(mode));
            let made = match kind {
                FileKind::File => {
                    session.files.create(&cred, dir, &name, CreateMode::Guarded, set).await.map(|made| made.0)
                }
                _ => {
                    let device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
                    let rdev = if device { decode_dev(rdev) } else { (0, 0) };
                    session.files.mknod(&cred, dir, &name, kind, rdev, set).await.map(|made| made.0)
                }
            };
            session.send_entry(reply, made);
        });
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let name = name_or_reply!(name, reply);
        let (session, cred) = (self.session.clone(), self.session.cred(request));
        self.session.serve(Op::Create, async move {
            let made = session.files.mkdir(&cred, session.ino(parent), &name, with_mode(mode)).await;
            session.send_entry(reply, made.map(|made| made.0));
        });
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name_or_reply!(name, reply);
        let (session, cred) = (self.session.clone(), self.session.cred(request));
        self.session.serve(Op::Remove, async move {
            send_done(reply, session.files.unlink(&cred, session.ino(parent), &name).await)
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name_or_reply!(name, reply);
        let (session, cred) = (self.session.clone(), self.session.cred(request));
        self.session.serve(Op::Remove, async move {
            send_done(reply, session.files.rmdir(&cred, session.ino(parent), &name).await)
        });
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let name = name_or_reply!(name, reply);
        let target = target.as_os_str();
        if target.len() > SYMLINK_BYTES_MAX {
            return reply.error(Errno::ENAMETOOLONG);
        }
        let target = Bytes::copy_from_slice(target.as_bytes());
        let (session, cred) = (self.session.clone(), self.session.cred(request));
        self.session.serve(Op::Create, async move {
            let made = session.files.symlink(&cred, session.ino(parent), &name, &target, with_mode(0o777)).await;
            session.send_entry(reply, made.map(|made| made.0));
        });
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (name, new_name) = (name_or_reply!(name, reply), name_or_reply!(new_name, reply));
        let mode = match flags {
            none if none.is_empty() => RenameMode::Replace,
            RenameFlags::RENAME_NOREPLACE => RenameMode::NoReplace,
            RenameFlags::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return reply.error(Errno::EINVAL),
        };
        let (session, cred) = (self.session.clone(), self.session.cred(request));
        self.session.serve(Op::Rename, async move {
            let (from, to) = (session.ino(parent), session.ino(new_parent));
            send_done(reply, session.files.rename(&cred, from, &name, to, &new_name, mode).await);
        });
    }

    fn link(&self, request: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name_or_reply!(name, reply);
        let (session, cred) = (self.session.clone(), self.session.cred(request));
        self.session.serve(Op::Create, async move {
            let made = session.files.link(&cred, session.ino(ino), session.ino(parent), &name).await;
            session.send_entry(reply, made.map(|made| made.0));
        });
    }

    fn open(&self, _request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let session = self.session.clone();
        self.session.serve(Op::Open, async move {
            match session.open(session.ino(ino), flags).await {
                Ok((handle, flags)) => reply.opened(handle, flags),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let name = name_or_reply!(name, reply);
        let (session, cred) = (self.session.clone(), self.session.cred(request));
        self.session.serve(Op::Create, async move {
            let made =
                session.files.create(&cred, session.ino(parent), &name, CreateMode::Guarded, with_mode(mode)).await;
            let attr = match made {
                Ok((attr, _, _)) => attr,
                // Somebody else made it since the kernel looked. Nobody has checked whether this caller may open
                // it: "stale" makes the kernel look again and go the way of a file that exists.
                Err(FsError::Exists) if !has(flags, OFlags::EXCL) => return reply.error(errno(&FsError::Stale)),
                Err(error) => return reply.error(errno(&error)),
            };
            match session.files.open(attr.id.ino, uses(flags)).await {
                Ok(file) => {
                    let handle = FileHandle(session.handles.insert(file));
                    session.kernel_inodes.learn(attr.id.ino);
                    session.opened(attr.id.ino, flags);
                    let ttl = session.attr_ttl(&attr).min(session.entry_ttl());
                    let generation = fuser::Generation(attr.id.generation);
                    reply.created(&ttl, &file_attr(&attr), generation, handle, FopenFlags::FOPEN_KEEP_CACHE);
                }
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn tmpfile(&self, request: &Request, parent: INodeNo, mode: u32, _umask: u32, flags: i32, reply: ReplyCreate) {
        let (session, cred) = (self.session.clone(), self.session.cred(request));
        self.session.serve(Op::Create, async move {
            match session.files.create_unnamed(&cred, session.ino(parent), with_mode(mode)).await {
                Ok((attr, file)) => {
                    let handle = FileHandle(session.handles.insert(file));
                    session.kernel_inodes.learn(attr.id.ino);
                    session.opened(attr.id.ino, flags);
                    let (ttl, generation) = (session.attr_ttl(&attr), fuser::Generation(attr.id.generation));
                    reply.created(&ttl, &file_attr(&attr), generation, handle, FopenFlags::FOPEN_KEEP_CACHE);
                }
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let session = self.session.clone();
        let len = (size as usize).min(IO_BYTES_MAX);
        self.session.serve(Op::Read, async move {
            match session.files.read_opened(session.ino(ino), offset, len).await {
                Ok(data) => send_data(reply, &data, len),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // Pages written through a mapping belong where they lie, whatever the flags of the file they came by.
        let from_pages = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let append = has(flags.0, OFlags::APPEND) && !from_pages;
        // O_DIRECT may have been set since the kernel began with pages. Only a write past them names its lock owner.
        let is_direct = has(flags.0, OFlags::DIRECT) && lock_owner.is_some();
        let stability = match flags.0 {
            _ if from_pages => Stability::Unstable,
            flags if has(flags, OFlags::SYNC) => Stability::FileSync,
            flags if has(flags, OFlags::DSYNC) => Stability::DataSync,
            _ => Stability::Unstable,
        };
        let cred = self.session.write_cred(request, write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID));
        let (session, ino, len, caller) = (self.session.clone(), self.session.ino(ino), data.len(), request.pid());
        let data = vec![Bytes::copy_from_slice(data)];
        self.session.serve_holding(len, async move {
            let (cred, clears_bits) = session.with_groups(cred, caller, ino).await;
            let result = match append {
                true => session.append(&cred, ino, offset, data, stability).await,
                false => session.files.write(&cred, ino, offset, data, stability).await.map(drop),
            };
            // Whether it failed or not. The kernel drops its pages before a write with O_DIRECT, not those read meanwhile.
            let beside_pages = is_direct && session.kernel_inodes.is_cached(ino);
            let stale =
                (beside_pages || clears_bits).then(|| session.own_stale.add(ino, beside_pages.then_some(offset)));
            session.answer_when_told(stale, move || match result {
                Ok(()) => reply.written(len as u32),
                Err(error) => reply.error(errno(&error)),
            });
        });
    }

    /// A process closes the file, by whichever of its descriptors: its POSIX locks on it end. Nothing else is promised.
    fn flush(&self, _request: &Request, ino: INodeNo, handle: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        self.session.files.end_locks(self.session.ino(ino), owner.0);
        self.session.handles.flushed(handle.0, owner.0);
        reply.ok();
    }

    fn getlk(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        _pid: u32,
        reply: ReplyLock,
    ) {
        let range = Range { start, last: end };
        match self.session.files.test_lock(self.session.ino(ino), owner.0, range, kind == locks::EXCLUSIVE) {
            Some(held) => {
                let kind = if held.exclusive { locks::EXCLUSIVE } else { locks::SHARED };
                // The kernel has offsets with a sign.
                let last = held.range.last.min(i64::MAX as u64);
                reply.locked(held.range.start, last, kind, held.pid);
            }
            None => reply.locked(0, 0, locks::UNLOCK, 0),
        }
    }

    fn setlk(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let wanted =
            locks::Wanted { ino: self.session.ino(ino), owner: owner.0, range: Range { start, last: end }, kind, pid };
        let wait = waits.then(|| self.session.lock_waits.begin(request.unique().0));
        let session = self.session.clone();
        self.session.serve(Op::Lock, async move {
            match locks::set(&session, &wanted, wait).await {
                Ok(()) => {
                    if kind != locks::UNLOCK {
                        session.handles.locked(handle.0, owner.0);
                    }
                    reply.ok();
                }
                Err(error) => reply.error(error),
            }
        });
    }

    /// The caller of a request got a signal. Only waiting for a lock can take long enough to be given up.
    fn interrupt(&self, _request: &Request, unique: u64) -> Result<(), Errno> {
        self.session.lock_waits.interrupt(unique);
        Ok(())
    }

    fn release(
        &self,
        _request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let _context = self.session.runtime.enter();
        if let Some(open) = self.session.handles.remove(handle.0) {
            // Locks of the open file itself (F_OFD_SETLK) end with it.
            open.lock_owners.iter().for_each(|owner| self.session.files.end_locks(self.session.ino(ino), *owner));
        }
        reply.ok();
    }

    fn fsync(&self, _request: &Request, ino: INodeNo, _handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let session = self.session.clone();
        self.session.serve(Op::Sync, async move { send_done(reply, session.files.commit(session.ino(ino)).await) });
    }

    fn opendir(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let session = self.session.clone();
        self.session.serve(Op::Open, async move {
            match session.files.open(session.ino(ino), Uses::NOTHING).await {
                Ok(file) => reply.opened(FileHandle(session.handles.insert(file)), FopenFlags::empty()),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn readdir(&self, request: &Request, ino: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectory) {
        let (session, cred) = (self.session.clone(), self.session.cred(request));
        self.session.serve(Op::List, async move {
            dir::list(&session, &cred, (session.ino(ino), handle.0), offset, reply).await
        });
    }

    fn readdirplus(&self, request: &Request, ino: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        let (session, cred) = (self.session.clone(), self.session.cred(request));
        self.session.serve(Op::List, async move {
            dir::list_plus(&session, &cred, (session.ino(ino), handle.0), offset, reply).await
        });
    }

    fn releasedir(&self, _request: &Request, _ino: INodeNo, handle: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        let _context = self.session.runtime.enter();
        drop(self.session.handles.remove(handle.0));
        reply.ok();
    }

    /// Names in it that were made, moved and removed before are durable then, and all that came before them.
    fn fsyncdir(&self, _request: &Request, ino: INodeNo, _handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let session = self.session.clone();
        self.session.serve(Op::Sync, async move { send_done(reply, session.files.commit(session.ino(ino)).await) });
    }

    fn statfs(&self, request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        const UNIT: u32 = 4096;
        let room = self.session.files.statfs(&self.session.cred(request));
        let blocks = |bytes: u64| bytes / u64::from(UNIT);
        reply.statfs(
            blocks(room.total_bytes),
            blocks(room.free_bytes),
            blocks(room.available_bytes),
            room.total_files,
            room.free_files,
            UNIT,
            NAME_BYTES_MAX as u32,
            UNIT,
        );
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let Some(mode) = xattr::mode(flags) else { return reply.error(Errno::EINVAL) };
        let name = match xattr::name(name) {
            Ok(name) => name,
            Err(error) => return reply.error(error),
        };
        let (session, cred) = (self.session.clone(), self.session.cred(request));
        let value = Bytes::copy_from_slice(value);
        self.session.serve(Op::ExtendedAttributes, async move {
            send_done(reply, session.files.setxattr(&cred, session.ino(ino), &name, &value, mode).await);
        });
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = match xattr::name(name) {
            Ok(name) => name,
            Err(error) => return reply.error(error),
        };
        let (session, cred) = (self.session.clone(), self.session.cred(request));
        self.session.serve(Op::ExtendedAttributes, async move {
            let value = match session.ino(ino) {
                past::LINK => Err(FsError::NoAttribute),
                ino => session.files.getxattr(&cred, ino, &name).await,
            };
            xattr::send(reply, size, value.map(|value| value.to_vec()));
        });
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let (session, cred) = (self.session.clone(), self.session.cred(request));
        self.session.serve(Op::ExtendedAttributes, async move {
            let names = match session.ino(ino) {
                past::LINK => Ok(Vec::new()),
                ino => session.files.listxattr(&cred, ino).await,
            };
            xattr::send(reply, size, names.map(|names| xattr::list(&names)));
        });
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = match xattr::name(name) {
            Ok(name) => name,
            Err(error) => return reply.error(error),
        };
        let (session, cred) = (self.session.clone(), self.session.cred(request));
        self.session.serve(Op::ExtendedAttributes, async move {
            send_done(reply, session.files.removexattr(&cred, session.ino(ino), &name).await)
        });
    }

    fn ioctl(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        _command: u32,
        _in_data: &[u8],
        _out_bytes: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some(mode) = allocate_mode(mode) else { return reply.error(Errno::EOPNOTSUPP) };
        let (session, cred, caller) = (self.session.clone(), self.session.cred(request), request.pid());
        self.session.serve(Op::Other, async move {
            let (cred, clears_bits) = session.with_groups(cred, caller, session.ino(ino)).await;
            let done = session.files.allocate(&cred, session.ino(ino), offset, length, mode).await;
            let stale = clears_bits.then(|| session.own_stale.add(session.ino(ino), None));
            session.answer_when_told(stale, move || send_done(reply, done));
        });
    }

    fn lseek(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        const SEEK_DATA: i32 = 3;
        const SEEK_HOLE: i32 = 4;
        let to = match whence {
            SEEK_DATA => SeekTo::Data,
            SEEK_HOLE => SeekTo::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let session = self.session.clone();
        self.session.serve(Op::Other, async move {
            match session.files.seek(session.ino(ino), offset, to).await {
                Ok(found) => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)),
                Err(FsError::NotFound) => reply.error(Errno::ENXIO),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn copy_file_range(
        &self,
        request: &Request,
        ino_in: INodeNo,
        _handle_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _handle_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (session, cred, caller) = (self.session.clone(), self.session.cred(request), request.pid());
        self.session.serve(Op::Write, async move {
            let (cred, clears_bits) = session.with_groups(cred, caller, session.ino(ino_out)).await;
            let done =
                session.copy(&cred, (session.ino(ino_in), offset_in), (session.ino(ino_out), offset_out), len).await;
            let stale = clears_bits.then(|| session.own_stale.add(session.ino(ino_out), None));
            session.answer_when_told(stale, move || match done {
                Ok(copied) => reply.written(copied),
                Err(error) => reply.error(errno(&error)),
            });
        });
    }
}

impl Session {
    async fn open(&self, ino: Ino, flags: OpenFlags) -> FsResult<(FileHandle, FopenFlags)> {
        let file = self.files.open(ino, uses(flags.0)).await?;
        let attr = self.files.getattr(ino).await?;
        let keep = self.may_keep_cache(&attr) || has(flags.0, OFlags::WRONLY);
        self.opened(ino, flags.0);
        let fopen = if keep { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
        Ok((FileHandle(self.handles.insert(file)), fopen))
    }

    fn opened(&self, ino: Ino, flags: i32) {
        if !has(flags, OFlags::DIRECT) {
            self.kernel_inodes.cache(ino);
        }
    }

    /// The kernel serialises its own appends and takes the end from the size it knows; another protocol may have
    /// moved the end meanwhile, so the volume decides, and the kernel is told when it was wrong.
    async fn append(
        &self,
        cred: &Cred,
        ino: Ino,
        expected: u64,
        data: Vec<Bytes>,
        stability: Stability,
    ) -> FsResult<()> {
        let (offset, _) = self.files.append(cred, ino, data, stability).await?;
        if offset != expected {
            self.own_stale.add(ino, Some(offset.min(expected)));
        }
        Ok(())
    }

    /// Copies without the detour through the kernel. A short count is allowed: the kernel asks again.
    async fn copy(&self, cred: &Cred, from: (Ino, u64), to: (Ino, u64), len: u64) -> FsResult<u32> {
        const PIECE_BYTES: u64 = 1 << 20;
        const CALL_BYTES_MAX: u64 = 16 << 20;
        // The answer has 32 bits.
        const SHARED_BYTES_MAX: u64 = 2 << 30;
        let is_apart = from.0 != to.0 || from.1.saturating_add(len) <= to.1 || to.1.saturating_add(len) <= from.1;
        if is_apart {
            let left = self.files.getattr(from.0).await?.size.saturating_sub(from.1);
            let shared = self.files.copy_range(cred, from, to, len.min(left).min(SHARED_BYTES_MAX)).await?;
            if shared > 0 {
                return Ok(u32::try_from(shared).unwrap_or(u32::MAX));
            }
        }
        let len = len.min(CALL_BYTES_MAX);
        let mut copied = 0;
        while copied < len {
            let piece = (len - copied).min(PIECE_BYTES) as usize;
            let data = self.files.read(from.0, from.1.saturating_add(copied), piece).await?;
            let read = data.len() as u64;
            if read == 0 {
                break;
            }
            let at = to.1.saturating_add(copied);
            let written = self.files.write(cred, to.0, at, data.chunks, Stability::Unstable).await;
            match written {
                Ok(_) => copied += read,
                Err(_) if copied > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(copied as u32)
    }
}
