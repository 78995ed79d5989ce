//! A new file on its way: without a name until all of it is there and durable.
//!
//! - `upload.whole_or_not`: the data goes to an inode without a name. It is made durable, and then the
//!   name leads to it, in one step. A client that leaves, an error or a crash before that leaves what
//!   was there before as it was; an inode without a name goes with its last open, or when the volume is
//!   next opened.
//! - `upload.replaced_keeps_its_rules`: what replaces a file has its owner, group, mode without setuid and
//!   setgid, access control list and extended attributes. Other names of the old file keep the old
//!   content. Whoever may write a file may replace it, as writing into it would.
//! - `upload.gathers_while_there_is_room`: bytes are gathered for long writes while the connection's account has room for
//!   them (`unread.large_parties_wait`), and while more of them come. Otherwise they are written as they come, and nothing
//!   is read before they are.
//! - `upload.charged_from_the_first_byte`: the inode without a name is its later owner's, so the quotas that hold for the
//!   file hold for what arrives.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_base::traffic;
use larder_files::copy::Unnamed;
use larder_files::{Files, Open};
use larder_fs::{
    ACCESS_WRITE, Attr, Cred, FILE_BYTES_MAX, FileKind, FsError, Ino, NameMatch, SetAttr, SetTime, Stability, XattrMode,
};

use tokio::task::JoinSet;

use super::fail::Fail;
use super::locks::{FileKey, Held, Locks, is_locked_elsewhere};
use larder_doors::tree::Room;
use larder_doors::unread::{Account, Hold};

/// What new files and folders are not given, as at other doors.
pub const UMASK: u32 = 0o022;
/// Bytes gathered for one write to the volume.
const WRITE_BYTES: usize = 1 << 20;
/// A piece below this is joined with the one before it.
const SMALL_BYTES: usize = 4 << 10;
/// A client that sends nothing for so long does not keep what is gathered in memory.
pub const PAUSE: Duration = Duration::from_secs(1);
/// Writes under way while more data arrives.
const WRITES_MAX: usize = 3;
/// How often a name may come and go while it is given.
const RACES_MAX: usize = 64;

pub struct Upload {
    room: Room,
    ordered: Files,
    attr: Attr,
    /// Keeps the file while it has no name.
    _open: Open,
    at: u64,
    gathered: VecDeque<Bytes>,
    gathered_bytes: usize,
    /// Room for the bytes that are gathered.
    rooms: Vec<Hold>,
    memory: Option<Arc<Account>>,
    writing: JoinSet<Result<(), FsError>>,
    /// Its properties are those of the source.
    is_copy: bool,
}

/// What happened to the name.
pub struct Published {
    pub attr: Attr,
    pub is_new: bool,
}

impl Upload {
    /// `old`: the file that will be replaced, which the user may write.
    pub async fn begin(room: &Room, dir: Ino, old: Option<&Attr>) -> Result<Self, Fail> {
        let ordered = room.to_change_ordered()?.clone();
        let (cred, set) = match old {
            // `upload.charged_from_the_first_byte`
            Some(old) => {
                let (uid, gid) = (Some(old.uid), Some(old.gid));
                (room.cred.as_root(), SetAttr { mode: Some(old.mode & 0o777), uid, gid, ..SetAttr::default() })
            }
            None => (room.cred.clone(), SetAttr { mode: Some(0o666 & !UMASK), ..SetAttr::default() }),
        };
        let (attr, open) = ordered.create_unnamed(&cred, dir, set).await?;
        Ok(Self::of(room, ordered, Unnamed { attr, open }, false))
    }

    /// A whole copy, which waits for its name.
    pub fn of_copy(room: &Room, copied: Unnamed) -> Result<Self, Fail> {
        Ok(Self::of(room, room.to_change_ordered()?.clone(), copied, true))
    }

    fn of(room: &Room, ordered: Files, file: Unnamed, is_copy: bool) -> Self {
        let Unnamed { attr, open } = file;
        Self {
            room: room.clone(),
            ordered,
            attr,
            _open: open,
            at: 0,
            gathered: VecDeque::new(),
            gathered_bytes: 0,
            rooms: Vec::new(),
            memory: None,
            writing: JoinSet::new(),
            is_copy,
        }
    }

    pub fn ino(&self) -> Ino {
        self.attr.id.ino
    }

    /// What arrives from now on counts against this connection.
    pub fn comes_by(&mut self, memory: Option<Arc<Account>>) {
        self.memory = memory;
    }

    /// Takes the next bytes. Waits while as much as may be is under way (`upload.gathers_while_there_is_room`).
    pub async fn push(&mut self, data: Bytes) -> Result<(), Fail> {
        let room = self.memory.as_ref().map(|memory| memory.try_room(data.len()));
        self.gathered_bytes += data.len();
        match self.gathered.back_mut() {
            // Pieces of a few bytes would each take more than they hold.
            Some(last) if data.len() < SMALL_BYTES && last.len() < SMALL_BYTES => {
                *last = [&last[..], &data[..]].concat().into();
            }
            _ => self.gathered.push_back(data),
        }
        let has_room = !matches!(room, Some(None));
        self.rooms.extend(room.flatten());
        if self.gathered_bytes >= WRITE_BYTES {
            self.send().await?;
        }
        if !has_room {
            self.write_all().await?;
        }
        Ok(())
    }

    /// Nothing more came for a moment: what is gathered need not wait.
    pub async fn pauses(&mut self) -> Result<(), Fail> {
        self.write_all().await
    }

    pub fn has_gathered(&self) -> bool {
        self.gathered_bytes > 0
    }

    async fn write_all(&mut self) -> Result<(), Fail> {
        if self.gathered_bytes > 0 {
            self.send().await?;
        }
        while !self.writing.is_empty() {
            self.one_written().await?;
        }
        Ok(())
    }

    async fn send(&mut self) -> Result<(), Fail> {
        while self.writing.len() >= WRITES_MAX {
            self.one_written().await?;
        }
        let (files, ino, at) = (self.ordered.clone(), self.ino(), self.at);
        let end = at.checked_add(self.gathered_bytes as u64).filter(|end| *end <= FILE_BYTES_MAX);
        self.at = end.ok_or(FsError::FileTooLarge)?;
        self.gathered_bytes = 0;
        let data: Vec<Bytes> = self.gathered.drain(..).collect();
        let rooms = std::mem::take(&mut self.rooms);
        // The right to write was asked for when the file was opened.
        let cred = Cred { checked: true, ..self.room.cred.clone() };
        let write = async move {
            let _rooms = rooms;
            files.write(&cred, ino, at, data, Stability::Unstable).await.map(drop)
        };
        // A task of its own, of the same request.
        match traffic::current() {
            Some(traffic) => self.writing.spawn(traffic::within(traffic, write)),
            None => self.writing.spawn(write),
        };
        Ok(())
    }

    async fn one_written(&mut self) -> Result<(), Fail> {
        match self.writing.join_next().await {
            Some(done) => Ok(done.map_err(|_| FsError::Io("a write was given up".into()))??),
            None => Ok(()),
        }
    }

    /// Lets what is under way go on while the caller waits for more data.
    pub async fn progress(&mut self) -> Result<(), Fail> {
        match self.writing.is_empty() {
            true => std::future::pending().await,
            false => self.one_written().await,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.at + self.gathered_bytes as u64
    }

    /// All data is durable; the file still has no name.
    pub async fn settle(&mut self) -> Result<(), Fail> {
        self.write_all().await?;
        self.room.files().commit(self.ino()).await?;
        Ok(())
    }

    /// The user's rights were looked at again: it gets its name by those.
    pub fn act_as(&mut self, room: Room) {
        self.room = room;
    }

    /// Gives it the time of last change that a client asks for.
    pub async fn set_mtime(&self, mtime: larder_base::Timestamp) -> Result<(), Fail> {
        let set = SetAttr { mtime: Some(SetTime::To(mtime)), ..SetAttr::default() };
        self.ordered.setattr(&self.room.cred.as_root(), self.ino(), set).await?;
        Ok(())
    }

    /// Gives it the name, in one step (`upload.whole_or_not`). `may_replace` is asked what it may replace, at the last
    /// moment; `None` stands for nothing.
    pub async fn publish(
        self,
        dir: Ino,
        name: &[u8],
        locks: &Locks,
        may_replace: impl Fn(Option<&Attr>) -> Result<(), Fail>,
    ) -> Result<Published, Fail> {
        let (files, cred) = (self.room.to_change()?, &self.room.cred);
        for _ in 0..RACES_MAX {
            let old = match files.lookup(cred, dir, name, NameMatch::Exact).await {
                Ok(old) => Some(old),
                Err(FsError::NotFound) => None,
                Err(error) => return Err(error.into()),
            };
            may_replace(old.as_ref())?;
            let Some(old) = old else {
                match files.link(cred, self.ino(), dir, name).await {
                    Ok((attr, _)) => return Ok(Published { attr, is_new: true }),
                    // Made by another in between.
                    Err(FsError::Exists) => continue,
                    Err(error) => return Err(error.into()),
                }
            };
            let as_whom = match self.become_like(files, &old).await {
                // Replaced by another in between.
                Err(fail) if fail.is_stale => continue,
                as_whom => as_whom?,
            };
            let (old_key, new_key): (FileKey, FileKey) = ((files.id(), old.id.ino), (files.id(), self.ino()));
            let held = match locks.of_file(old_key) {
                Some(exclusive) => Some(Held::take(files, self.ino(), exclusive).await?),
                None => None,
            };
            match files.relink_over(&as_whom, self.ino(), dir, name, old.id.ino).await {
                Ok((attr, _)) => {
                    if let Some(held) = held {
                        locks.replaced(old_key, new_key, std::sync::Arc::new(held));
                    }
                    return Ok(Published { attr, is_new: false });
                }
                // Removed or replaced by another in between.
                Err(FsError::NotFound | FsError::Stale) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Fail::conflict("the name comes and goes"))
    }

    /// `upload.replaced_keeps_its_rules`. Returns as whom the name may be taken from the old file.
    async fn become_like(&self, files: &Files, old: &Attr) -> Result<Cred, Fail> {
        match old.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(Fail::conflict("it is a folder")),
            // A symbolic link or another thing without content: its name is taken as a removal would.
            _ => return Ok(self.room.cred.clone()),
        }
        files.access(&self.room.cred, old.id.ino, ACCESS_WRITE).await?;
        if is_locked_elsewhere(files, old.id.ino) {
            return Err(Fail::locked_elsewhere());
        }
        let (root, (old, acl)) = (self.room.cred.as_root(), files.acl(old.id.ino).await?);
        let set = SetAttr {
            mode: Some(old.mode & 0o777),
            uid: Some(old.uid),
            gid: Some(old.gid),
            btime: Some(old.btime),
            dos: Some(old.dos),
            ..SetAttr::default()
        };
        self.ordered.set_acl(&root, self.ino(), set, acl.as_deref().cloned()).await?;
        let is_kept = |name: &[u8]| !(self.is_copy && name.starts_with(b"user."));
        copy_xattrs(files, &root, old.id.ino, &self.ordered, self.ino(), is_kept).await?;
        Ok(root)
    }
}

async fn copy_xattrs(
    from: &Files,
    reader: &Cred,
    source: Ino,
    to: &Files,
    target: Ino,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Result<(), Fail> {
    for name in from.listxattr(reader, source).await? {
        if !is_wanted(&name) {
            continue;
        }
        match from.getxattr(reader, source, &name).await {
            Ok(value) => to.setxattr(&Cred::root(), target, &name, &value, XattrMode::Set).await?,
            // Removed in between, or not the reader's to read.
            Err(FsError::NoAttribute | FsError::Access | FsError::NotPermitted) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
