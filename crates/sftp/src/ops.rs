//! Requests carried out: each goes to the volume with the credentials of the user, its outcome is encoded.
//!
//! - `ops.volume_answers_first`: no answer is begun before the volume has answered. Names, links and
//!   removals are durable when they are answered, and so is a flush (`fsync@openssh.com`). New files,
//!   attributes and data are as durable as on a local filesystem: with the next flush, or within five
//!   seconds, and never after what came later.
//! - `ops.opened_once_checked_once`: reading and writing through a handle ask for no permission again,
//!   as with read(2).

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use larder_base::traffic::{self, Traffic};
use larder_files::{Files, Uses};
use larder_fs::{
    ACCESS_READ, ACCESS_WRITE, Attr, CreateMode, Cred, FILE_BYTES_MAX, FileKind, FsError, NAME_BYTES_MAX, RenameMode,
    SYMLINK_BYTES_MAX, SetAttr, SetTime, Stability,
};
use larder_people::{Door, User};

use super::fail::Fail;
use super::handles::{Handle, Handles, Listing, OpenedDir, OpenedFile};
use super::list;
use super::order::{Footprint, WHOLE};
use super::packet::{self, Attrs, Code, IO_BYTES_MAX, PACKET_BYTES_MAX, Request};
use super::shared::{Op, Shared};
use larder_doors::tree::{Entry, LOOKS_MAX, Room, Spot, View, plain};

/// What new files and directories are not given, as on any server of SFTP.
const UMASK: u32 = 0o022;
/// How often an open starts over because the name came or went meanwhile.
const RACES_MAX: usize = 8;
/// Entries asked of the volume at once, and about how long an answer with them gets.
const ENTRIES_AT_ONCE: usize = 128;
/// Bytes that copy-data moves at a time.
const COPY_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 4096;

/// One session of SFTP: a user and what it has open.
pub struct Session {
    pub shared: Arc<Shared>,
    pub user: Arc<User>,
    /// Of its connection.
    traffic: Arc<Traffic>,
    /// Where the user is.
    pub address: IpAddr,
    pub handles: Arc<Handles>,
    /// The connection is over: what takes long ends early.
    pub over: AtomicBool,
}

type Answer = Result<Bytes, Fail>;

impl Session {
    pub fn new(shared: Arc<Shared>, user: Arc<User>, address: IpAddr, traffic: Arc<Traffic>) -> Arc<Self> {
        let (handles, over) = (Arc::default(), AtomicBool::new(false));
        let session = Arc::new(Self { shared, user, address, traffic, handles, over });
        session.shared.remember(&session.handles, &session.user);
        session
    }

    /// Ends it: everything open is closed.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.handles.close_all();
    }

    /// The shares of the user. One who changed meanwhile is being cut off, and until then nothing is there.
    fn view(&self) -> View {
        let shares = if self.shared.is_current(&self.user) { self.shared.shares() } else { Arc::default() };
        View { user: Arc::clone(&self.user), address: self.address, door: Door::Sftp, shares }
    }

    /// What a request touches (`order.same_file_in_order`).
    pub fn footprint(&self, request: &Request) -> Footprint {
        let none = Footprint::default();
        let of = |id: u32, range: std::ops::Range<u64>, changes: bool| match self.handles.get(id) {
            Some(Handle::File(file)) => {
                let range = if file.appends && changes { WHOLE } else { range };
                Footprint::default().data(file.ino.0, range, changes).opened_by(file.name.clone(), changes)
            }
            // The place in a listing belongs to its handle.
            Some(Handle::Dir(dir)) => {
                Footprint::default().data(1 << 63 | u64::from(id), WHOLE, true).opened_by(dir.name.clone(), changes)
            }
            None => Footprint::default(),
        };
        let span = |offset: u64, len: u64| offset..offset.saturating_add(len);
        match request {
            Request::Open { path, flags, .. } => {
                none.name(plain(path), flags & (packet::OPEN_CREATE | packet::OPEN_TRUNCATE) != 0)
            }
            Request::Read { handle, offset, len } => of(*handle, span(*offset, (*len).into()), false),
            Request::Write { handle, offset, data } => of(*handle, span(*offset, data.len() as u64), true),
            Request::Close { handle } | Request::FSync { handle } | Request::FSetStat { handle, .. } => {
                of(*handle, WHOLE, true)
            }
            Request::FStat { handle } | Request::ReadDir { handle } => of(*handle, WHOLE, false),
            Request::Stat { path, .. } | Request::OpenDir { path } | Request::ReadLink { path } => {
                none.name(plain(path), false)
            }
            Request::SetStat { path, .. }
            | Request::Remove { path }
            | Request::MkDir { path, .. }
            | Request::RmDir { path } => none.name(plain(path), true),
            Request::Rename { from, to, .. } => none.name(plain(from), true).name(plain(to), true),
            Request::HardLink { old, new } => none.name(plain(old), true).name(plain(new), true),
            Request::Symlink { link, .. } => none.name(plain(link), true),
            Request::CopyData { from, offset, len, to, to_offset } => {
                let len = if *len == 0 { u64::MAX } else { *len };
                let (from, to) = (self.handles.file(*from), self.handles.file(*to));
                let from = from.map_or(none.clone(), |file| none.clone().data(file.ino.0, span(*offset, len), false));
                match to {
                    Ok(file) => from.data(file.ino.0, span(*to_offset, len), true).opened_by(file.name.clone(), true),
                    Err(_) => from,
                }
            }
            Request::Init { .. }
            | Request::RealPath { .. }
            | Request::StatVfs { .. }
            | Request::FStatVfs { .. }
            | Request::Limits
            | Request::ExpandPath { .. }
            | Request::HomeDirectory
            | Request::Names { .. }
            | Request::Unknown => none,
        }
    }

    /// Carries out a request. The answer is a whole packet.
    pub async fn answer(&self, id: u32, request: Request) -> Bytes {
        traffic::of(Arc::clone(&self.traffic), self.answer_one(id, request)).await
    }

    async fn answer_one(&self, id: u32, request: Request) -> Bytes {
        let (op, began) = (Op::of(&request), Instant::now());
        // By a path, what it leads to may be replaced on the way. A handle holds its file.
        let by_path = !matches!(request, Request::Read { .. } | Request::Write { .. } | Request::ReadDir { .. });
        let again = by_path.then(|| request.clone());
        let mut answer = self.carry_out(id, request).await;
        if let Some(request) = again {
            for _ in 1..LOOKS_MAX {
                if !matches!(&answer, Err(fail) if fail.is_stale) {
                    break;
                }
                answer = self.carry_out(id, request.clone()).await;
            }
        }
        self.shared.stats.took(op as usize, began);
        answer.unwrap_or_else(|fail| packet::status(id, fail.code, &fail.text))
    }

    /// The states of the larger requests are boxed: most are small and frequent.
    async fn carry_out(&self, id: u32, request: Request) -> Answer {
        let done = |done: Result<(), Fail>| done.map(|()| packet::status(id, Code::Ok, ""));
        match request {
            Request::Init { .. } => Ok(packet::version()),
            Request::Open { path, flags, attrs } => Box::pin(self.open(id, path, flags, attrs)).await,
            Request::Close { handle } => done(self.handles.remove(handle).map(drop).ok_or(Fail::bad_handle())),
            Request::Read { handle, offset, len } => self.read(id, handle, offset, len).await,
            Request::Write { handle, offset, data } => done(Box::pin(self.write(handle, offset, data)).await),
            Request::Stat { path, follow } => self.stat(id, path, follow).await,
            Request::FStat { handle } => self.fstat(id, handle).await,
            Request::SetStat { path, attrs, follow } => done(Box::pin(self.set_stat(path, attrs, follow)).await),
            Request::FSetStat { handle, attrs } => done(Box::pin(self.fset_stat(handle, attrs)).await),
            Request::OpenDir { path } => Box::pin(self.open_dir(id, path)).await,
            Request::ReadDir { handle } => Box::pin(self.read_dir(id, handle)).await,
            Request::Remove { path } => done(Box::pin(self.remove(path)).await),
            Request::MkDir { path, attrs } => done(Box::pin(self.mkdir(path, attrs)).await),
            Request::RmDir { path } => done(Box::pin(self.rmdir(path)).await),
            Request::RealPath { path } => Ok(packet::name(id, &absolute(&path))),
            Request::Rename { from, to, replace } => done(Box::pin(self.rename(from, to, replace)).await),
            Request::ReadLink { path } => Box::pin(self.readlink(id, path)).await,
            Request::Symlink { target, link } => done(Box::pin(self.symlink(target, link)).await),
            Request::HardLink { old, new } => done(Box::pin(self.hard_link(old, new)).await),
            Request::FSync { handle } => done(Box::pin(self.fsync(handle)).await),
            Request::StatVfs { path } => Box::pin(self.stat_vfs(id, path)).await,
            Request::FStatVfs { handle } => self.fstat_vfs(id, handle),
            Request::CopyData { from, offset, len, to, to_offset } => {
                done(Box::pin(self.copy(from, offset, len, to, to_offset)).await)
            }
            Request::Limits => Ok(packet::numbers(
                id,
                &[
                    PACKET_BYTES_MAX as u64,
                    IO_BYTES_MAX.into(),
                    IO_BYTES_MAX.into(),
                    super::handles::HANDLES_MAX as u64,
                ],
            )),
            Request::ExpandPath { path } => expand(&path).map(|path| packet::name(id, &path)),
            Request::HomeDirectory => Ok(packet::name(id, b"/")),
            Request::Names { uids, gids } => Ok(self.names(id, &uids, &gids)),
            Request::Unknown => Err(Fail::new(Code::Unsupported, "the server does not know this request")),
        }
    }

    async fn open(&self, id: u32, path: Bytes, flags: u32, attrs: Attrs) -> Answer {
        let reads = flags & packet::OPEN_READ != 0;
        let writes = flags & (packet::OPEN_WRITE | packet::OPEN_APPEND) != 0;
        for _ in 0..RACES_MAX {
            let found = match flags & packet::OPEN_EXCLUSIVE != 0 && flags & packet::OPEN_CREATE != 0 {
                true => None,
                false => match self.view().find(&path, true).await.map_err(Fail::from) {
                    Ok(Spot::In(room, attr)) => Some((room, attr)),
                    Ok(Spot::Top) => return Err(Fail::new(Code::Failure, "it is a directory")),
                    Err(fail) if fail.code == Code::NoSuchFile && flags & packet::OPEN_CREATE != 0 => None,
                    Err(fail) => return Err(fail),
                },
            };
            let is_new = found.is_none();
            let (room, attr) = match found {
                Some((room, attr)) => {
                    may_open(&room, &attr, reads, writes).await?;
                    (room, attr)
                }
                None => match self.create(&path, &attrs).await? {
                    Some(made) => made,
                    None if flags & packet::OPEN_EXCLUSIVE != 0 => return Err(FsError::Exists.into()),
                    // Made by another in between, or a link that leads nowhere has the name.
                    None => continue,
                },
            };
            let truncates = flags & packet::OPEN_TRUNCATE != 0 && !is_new;
            let uses = Uses::NOTHING.and_if(reads, Uses::READ).and_if(writes || truncates, Uses::WRITE);
            let open = match room.files().open_judged(attr.id, uses).await {
                Ok(open) => open,
                // Removed in between.
                Err(FsError::Stale | FsError::NotFound) => continue,
                Err(error) => return Err(error.into()),
            };
            if truncates {
                // Not before other doors have let the file be opened for writing.
                let set = SetAttr { size: Some(0), ..SetAttr::default() };
                room.to_change_ordered()?.setattr(&room.cred, attr.id.ino, set).await?;
            }
            let appends = flags & packet::OPEN_APPEND != 0;
            let file = OpenedFile { ino: attr.id.ino, reads, writes, appends, name: plain(&path), _open: open, room };
            return Ok(packet::handle(id, self.handles.add(Handle::File(Arc::new(file)))?));
        }
        Err(Fail::new(Code::Failure, "the name leads to nothing that can be opened"))
    }

    /// `None`: the name is taken.
    async fn create(&self, path: &Bytes, attrs: &Attrs) -> Result<Option<(Room, Attr)>, Fail> {
        let Entry { room, dir, name } = self.view().entry(path).await?;
        let mode = attrs.mode.unwrap_or(0o666) & 0o7777 & !UMASK;
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        match room.to_change_ordered()?.create(&room.cred, dir, &name, CreateMode::Guarded, set).await {
            Ok((attr, ..)) => Ok(Some((room, attr))),
            Err(FsError::Exists) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn read(&self, id: u32, handle: u32, offset: u64, len: u32) -> Answer {
        let file = self.handles.file(handle)?;
        if !file.reads {
            return Err(Fail::new(Code::PermissionDenied, "the file is not open for reading"));
        }
        let len = len.min(IO_BYTES_MAX) as usize;
        let read = file.room.files().read(file.ino, offset, len).await?;
        if read.is_empty() && len > 0 {
            return Err(Fail::new(Code::Eof, "end of file"));
        }
        self.shared.stats.read(read.len());
        Ok(packet::data(id, &read.chunks))
    }

    async fn write(&self, handle: u32, offset: u64, data: Bytes) -> Result<(), Fail> {
        let file = self.handles.file(handle)?;
        if !file.writes {
            return Err(Fail::new(Code::PermissionDenied, "the file is not open for writing"));
        }
        let (files, cred, len) = (file.room.to_change_ordered()?, &file.room.cred, data.len());
        if file.appends {
            files.append(cred, file.ino, vec![data], Stability::Unstable).await?;
        } else {
            if offset.checked_add(len as u64).is_none_or(|end| end > FILE_BYTES_MAX) {
                return Err(FsError::FileTooLarge.into());
            }
            files.write(cred, file.ino, offset, vec![data], Stability::Unstable).await?;
        }
        self.shared.stats.written(len);
        Ok(())
    }

    async fn stat(&self, id: u32, path: Bytes, follow: bool) -> Answer {
        let attrs = match self.view().find(&path, follow).await? {
            Spot::Top => list::top_attrs(&self.user, self.shared.started),
            Spot::In(room, attr) => list::attrs(&room.files().getattr_settled(attr.id).await?),
        };
        Ok(packet::attrs(id, &attrs))
    }

    async fn fstat(&self, id: u32, handle: u32) -> Answer {
        let attrs = match self.handles.get(handle).ok_or(Fail::bad_handle())? {
            Handle::File(file) => list::attrs(&file.room.files().getattr(file.ino).await?),
            Handle::Dir(dir) => match &dir.at {
                Some((room, ino)) => list::attrs(&room.files().getattr(*ino).await?),
                None => list::top_attrs(&self.user, self.shared.started),
            },
        };
        Ok(packet::attrs(id, &attrs))
    }

    async fn set_stat(&self, path: Bytes, attrs: Attrs, follow: bool) -> Result<(), Fail> {
        match self.view().find(&path, follow).await? {
            Spot::Top => Err(Fail::new(Code::PermissionDenied, "the list of shares cannot be changed")),
            Spot::In(room, attr) => {
                let files = room.to_change_ordered()?;
                match set_attr(&attrs)? {
                    Some(set) => {
                        files.setattr_unopened(&room.cred, attr.id.ino, set).await.map(drop).map_err(Fail::from)
                    }
                    None => Ok(()),
                }
            }
        }
    }

    async fn fset_stat(&self, handle: u32, attrs: Attrs) -> Result<(), Fail> {
        let file = match self.handles.get(handle).ok_or(Fail::bad_handle())? {
            Handle::File(file) => file,
            Handle::Dir(dir) => {
                let (room, ino) = dir.at.as_ref().ok_or(Fail::new(Code::PermissionDenied, "it cannot be changed"))?;
                let files = room.to_change_ordered()?;
                let Some(set) = set_attr(&Attrs { size: None, ..attrs })? else { return Ok(()) };
                return files.setattr(&room.cred, *ino, set).await.map(drop).map_err(Fail::from);
            }
        };
        let (room, files) = (&file.room, file.room.to_change_ordered()?);
        // As ftruncate(2): the handle may write, whatever the mode says by now.
        if let (Some(size), true) = (attrs.size, file.writes) {
            let checked = Cred { checked: true, ..room.cred.clone() };
            let set = set_attr(&Attrs { size: Some(size), ..Attrs::default() })?.unwrap_or_default();
            files.setattr(&checked, file.ino, set).await?;
        }
        let rest = if file.writes { Attrs { size: None, ..attrs } } else { attrs };
        match set_attr(&rest)? {
            Some(set) => files.setattr_unopened(&room.cred, file.ino, set).await.map(drop).map_err(Fail::from),
            None => Ok(()),
        }
    }

    async fn open_dir(&self, id: u32, path: Bytes) -> Answer {
        let (at, open) = match self.view().find(&path, true).await? {
            Spot::Top => (None, None),
            Spot::In(_, attr) if attr.kind != FileKind::Directory => {
                return Err(Fail::new(Code::NoSuchFile, "it is no directory"));
            }
            Spot::In(room, attr) => {
                room.files().access(&room.cred, attr.id.ino, ACCESS_READ).await?;
                let open = room.files().open_judged(attr.id, Uses::NOTHING).await?;
                (Some((room, attr.id.ino)), Some(open))
            }
        };
        let dir = OpenedDir { at, name: plain(&path), place: tokio::sync::Mutex::default(), _open: open };
        Ok(packet::handle(id, self.handles.add(Handle::Dir(Arc::new(dir)))?))
    }

    async fn read_dir(&self, id: u32, handle: u32) -> Answer {
        let dir = self.handles.dir(handle)?;
        let mut place = dir.place.lock().await;
        let people = self.shared.people();
        let mut page = list::Page::new(id, &people);
        if place.over {
            return Err(Fail::new(Code::Eof, "end of the directory"));
        }
        match &dir.at {
            None => {
                place.over = true;
                let top = list::top_attrs(&self.user, self.shared.started);
                page.push(b".", 2, &top);
                page.push(b"..", 2, &top);
                for room in self.view().rooms() {
                    // A share whose folder is gone meanwhile is left out.
                    if let Ok(attr) = room.files().getattr(room.root()).await {
                        page.push(room.name().as_bytes(), attr.nlink, &list::attrs(&attr));
                    }
                }
            }
            // A page whose entries were all removed since is no end of the directory.
            Some((room, ino)) => {
                while page.is_empty() && !place.over {
                    fill(room, *ino, &mut place, &mut page).await?;
                }
            }
        }
        page.finish().ok_or(Fail::new(Code::Eof, "end of the directory"))
    }

    async fn remove(&self, path: Bytes) -> Result<(), Fail> {
        let Entry { room, dir, name } = self.view().entry(&path).await?;
        room.to_change()?.unlink(&room.cred, dir, &name).await?;
        Ok(())
    }

    async fn mkdir(&self, path: Bytes, attrs: Attrs) -> Result<(), Fail> {
        let Entry { room, dir, name } = self.view().entry(&path).await?;
        let mode = attrs.mode.unwrap_or(0o777) & 0o7777 & !UMASK;
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        room.to_change()?.mkdir(&room.cred, dir, &name, set).await?;
        Ok(())
    }

    async fn rmdir(&self, path: Bytes) -> Result<(), Fail> {
        let Entry { room, dir, name } = self.view().entry(&path).await?;
        room.to_change()?.rmdir(&room.cred, dir, &name).await?;
        Ok(())
    }

    async fn rename(&self, from: Bytes, to: Bytes, replace: bool) -> Result<(), Fail> {
        let (from, to) = (self.view().entry(&from).await?, self.view().entry(&to).await?);
        one_share(&from.room, &to.room)?;
        let mode = if replace { RenameMode::Replace } else { RenameMode::NoReplace };
        let files = from.room.to_change()?;
        files.rename(&from.room.cred, from.dir, &from.name, to.dir, &to.name, mode).await?;
        Ok(())
    }

    async fn readlink(&self, id: u32, path: Bytes) -> Answer {
        match self.view().find(&path, false).await? {
            Spot::In(room, attr) if attr.kind == FileKind::Symlink => {
                Ok(packet::name(id, &room.files().readlink(attr.id.ino).await?))
            }
            _ => Err(Fail::new(Code::Failure, "it is no symbolic link")),
        }
    }

    async fn symlink(&self, target: Bytes, link: Bytes) -> Result<(), Fail> {
        if target.is_empty() || target.len() > SYMLINK_BYTES_MAX || target.contains(&0) {
            return Err(Fail::new(Code::Failure, "no symbolic link can have this target"));
        }
        let Entry { room, dir, name } = self.view().entry(&link).await?;
        let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        room.to_change()?.symlink(&room.cred, dir, &name, &target, set).await?;
        Ok(())
    }

    async fn hard_link(&self, old: Bytes, new: Bytes) -> Result<(), Fail> {
        let Spot::In(room, attr) = self.view().find(&old, false).await? else {
            return Err(Fail::new(Code::Failure, "it is a directory"));
        };
        let to = self.view().entry(&new).await?;
        one_share(&room, &to.room)?;
        room.to_change()?.link(&room.cred, attr.id.ino, to.dir, &to.name).await?;
        Ok(())
    }

    async fn fsync(&self, handle: u32) -> Result<(), Fail> {
        let file = self.handles.file(handle)?;
        file.room.files().commit(file.ino).await?;
        Ok(())
    }

    async fn stat_vfs(&self, id: u32, path: Bytes) -> Answer {
        let room = match self.view().find(&path, true).await? {
            Spot::In(room, _) => Some(room),
            // The first share stands for the directory of shares, which has no room of its own.
            Spot::Top => self.view().rooms().next(),
        };
        Ok(packet::numbers(id, &room_left(room.as_ref())))
    }

    fn fstat_vfs(&self, id: u32, handle: u32) -> Answer {
        let room = match self.handles.get(handle).ok_or(Fail::bad_handle())? {
            Handle::File(file) => Some(file.room.clone()),
            Handle::Dir(dir) => dir.at.as_ref().map(|(room, _)| room.clone()).or_else(|| self.view().rooms().next()),
        };
        Ok(packet::numbers(id, &room_left(room.as_ref())))
    }

    /// `len` 0: to the end of the file.
    async fn copy(&self, from: u32, offset: u64, len: u64, to: u32, to_offset: u64) -> Result<(), Fail> {
        let (source, target) = (self.handles.file(from)?, self.handles.file(to)?);
        if !source.reads || !target.writes {
            return Err(Fail::new(Code::PermissionDenied, "the files are not open for this"));
        }
        let files = target.room.to_change_ordered()?;
        let same = source.ino == target.ino && source.room.files().id() == target.room.files().id();
        let mut left = if len == 0 { u64::MAX } else { len };
        let overlaps = offset < to_offset.saturating_add(left) && to_offset < offset.saturating_add(left);
        if same && overlaps {
            return Err(Fail::new(Code::Failure, "the two ranges of the file overlap"));
        }
        let (mut at, mut at_target) = (offset, to_offset);
        if source.room.files().id() == target.room.files().id() {
            let size = source.room.files().getattr(source.ino).await?.size;
            loop {
                let within = left.min(size.saturating_sub(at));
                let shared =
                    files.copy_range(&target.room.cred, (source.ino, at), (target.ino, at_target), within).await?;
                if shared == 0 || self.over.load(Ordering::Acquire) {
                    break;
                }
                (at, at_target, left) = (at + shared, at_target + shared, left - shared);
            }
        }
        while left > 0 && !self.over.load(Ordering::Acquire) {
            let read = source.room.files().read(source.ino, at, left.min(COPY_BYTES) as usize).await?;
            let count = read.len() as u64;
            if count == 0 {
                break;
            }
            files.write(&target.room.cred, target.ino, at_target, read.chunks, Stability::Unstable).await?;
            (at, at_target, left) = (at + count, at_target + count, left - count);
        }
        Ok(())
    }

    fn names(&self, id: u32, uids: &[u32], gids: &[u32]) -> Bytes {
        let people = self.shared.people();
        let users: Vec<&str> = uids.iter().map(|uid| people.user(*uid).unwrap_or("")).collect();
        let groups: Vec<&str> = gids.iter().map(|gid| people.group(*gid).unwrap_or("")).collect();
        packet::names_of_ids(id, &users, &groups)
    }
}

/// Whether the user may open what is there.
async fn may_open(room: &Room, attr: &Attr, reads: bool, writes: bool) -> Result<(), Fail> {
    match attr.kind {
        FileKind::File => {}
        FileKind::Directory => return Err(Fail::new(Code::Failure, "it is a directory")),
        _ => return Err(Fail::new(Code::Failure, "it is no file")),
    }
    let mask = if reads { ACCESS_READ } else { 0 } | if writes { ACCESS_WRITE } else { 0 };
    if writes {
        room.to_change()?;
    }
    Ok(room.files().access(&room.cred, attr.id.ino, mask).await.map(drop)?)
}

async fn fill(room: &Room, dir: larder_fs::Ino, place: &mut Listing, page: &mut list::Page<'_>) -> Result<(), Fail> {
    let files: &Files = room.files();
    let listing = files.readdir_before(&room.cred, dir, place.cookie, place.end, ENTRIES_AT_ONCE, true).await?;
    if !place.begun {
        page.push(b".", listing.dir.nlink, &list::attrs(&listing.dir));
        page.push(b"..", listing.dir.nlink, &list::attrs(&listing.dir));
        (place.begun, place.end) = (true, listing.end);
    }
    for entry in &listing.entries {
        place.cookie = entry.cookie;
        // Removed since it was listed.
        let Some(attr) = &entry.attr else { continue };
        page.push(&entry.name, attr.nlink, &list::attrs(attr));
    }
    place.over = listing.eof;
    Ok(())
}

/// `None`: nothing is to be changed.
fn set_attr(attrs: &Attrs) -> Result<Option<SetAttr>, Fail> {
    if *attrs == Attrs::default() {
        return Ok(None);
    }
    if attrs.size.is_some_and(|size| size > FILE_BYTES_MAX) {
        return Err(FsError::FileTooLarge.into());
    }
    let time = |secs: u32| SetTime::To(larder_base::Timestamp::new(secs.into(), 0));
    Ok(Some(SetAttr {
        mode: attrs.mode.map(|mode| mode & 0o7777),
        uid: attrs.ids.map(|(uid, _)| uid),
        gid: attrs.ids.map(|(_, gid)| gid),
        size: attrs.size,
        atime: attrs.times.map(|(atime, _)| time(atime)),
        mtime: attrs.times.map(|(_, mtime)| time(mtime)),
        ..SetAttr::default()
    }))
}

fn one_share(a: &Room, b: &Room) -> Result<(), Fail> {
    match Arc::ptr_eq(&a.state, &b.state) {
        true => Ok(()),
        false => {
            Err(Fail::new(Code::Failure, "the two names lie in different shares: copy the file and remove the old one"))
        }
    }
}

/// f_bsize, f_frsize, f_blocks, f_bfree, f_bavail, f_files, f_ffree, f_favail, f_fsid, f_flag, f_namemax (PROTOCOL 4.4).
fn room_left(room: Option<&Room>) -> [u64; 11] {
    const READ_ONLY: u64 = 1;
    const NO_SETUID: u64 = 2;
    let Some(room) = room else {
        return [BLOCK_BYTES, BLOCK_BYTES, 0, 0, 0, 0, 0, 0, 0, READ_ONLY | NO_SETUID, NAME_BYTES_MAX as u64];
    };
    let left = room.files().statfs(&room.cred);
    let flags = NO_SETUID | if room.may_write { 0 } else { READ_ONLY };
    let id = room.files().id().as_u64_pair().0;
    [
        BLOCK_BYTES,
        BLOCK_BYTES,
        left.total_bytes / BLOCK_BYTES,
        left.free_bytes / BLOCK_BYTES,
        left.available_bytes / BLOCK_BYTES,
        left.total_files,
        left.free_files,
        left.free_files,
        id,
        flags,
        NAME_BYTES_MAX as u64,
    ]
}

fn absolute(path: &Bytes) -> Vec<u8> {
    [&b"/"[..], &plain(path)].concat()
}

/// `~` is the directory of shares.
fn expand(path: &Bytes) -> Result<Vec<u8>, Fail> {
    match path.strip_prefix(b"~") {
        None => Ok(absolute(path)),
        Some(rest) if rest.is_empty() || rest.starts_with(b"/") => Ok(absolute(&path.slice_ref(rest))),
        Some(_) => Err(Fail::new(Code::NoSuchFile, "the folders of other users are not told")),
    }
}
