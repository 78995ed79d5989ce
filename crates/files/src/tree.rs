//! The trees that doors serve: a volume, or folders of the host. One branch tells them apart; everything behind it is
//! dispatched statically, so a volume pays for the other kind with that branch alone.
//!
//! - `tree.looks_alone`: a door calls what is public here on its [`Files`](crate::Files), which is
//!   a [`Tree`]. Nothing public here changes files, and no look that a duty belongs to is public:
//!   those are the methods of [`Files`](crate::Files).
//! - `tree.looks_boxed`: public looks are boxed, but for the one that READ and WRITE make
//!   (`files.data_unboxed`).

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, Either};
use larder_base::boxed;
use larder_folder::{Folder, HostWatch};
use larder_fs::Unnamed;
use larder_fs::acl::{Acl, Rights};
use larder_fs::{
    AccessMask, AccessTimes, AllocateMode, Answers, Attr, Changed, CreateMode, Cred, Event, Events, FileId, FileKind,
    FsError, FsResult, Grounds, Ino, Keeper, Listing, NameMatch, ReadData, RenameMode, SeekTo, SetAttr, SnapshotInfo,
    Stability, StatFs, Wish, Witness, WriteVerifier, Written, XattrMode,
};
use larder_volume::{HandleKey, OpenFile, Volume};
use tokio::sync::{broadcast, watch};

/// A tree, as far as doors look at it (`tree.looks_alone`).
#[derive(Clone)]
pub struct Tree(pub(crate) Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    Volume(Volume),
    Folder(Folder),
}

/// Keeps an inode alive while it is open.
pub(crate) enum OpenNode {
    Volume(OpenFile),
    Folder(larder_folder::OpenFile),
}

impl OpenNode {
    pub(crate) fn ino(&self) -> Ino {
        match self {
            Self::Volume(file) => file.id().ino,
            Self::Folder(file) => file.ino(),
        }
    }
}

/// The future is the tree's own, so that arguments are not kept twice. Those of folders are behind a box, and
/// compiled here alone: they would make every call's state as large as theirs.
macro_rules! forward {
    ($($(#[$doc:meta])* $vis:vis async fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        impl Tree {
            $($(#[$doc])* $vis fn $name<'a>(&'a self, $($arg: $type),*) -> impl Future<Output = $result> + Send + use<'a> {
                match &self.0 {
                    Kind::Volume(tree) => Either::Left(tree.$name($($arg),*)),
                    Kind::Folder(tree) => {
                        Either::Right(Box::pin(tree.$name($($arg),*)) as Pin<Box<dyn Future<Output = $result> + Send + 'a>>)
                    }
                }
            })*
        }
    };
}

/// Looks of doors.
macro_rules! looks {
    ($($(#[$doc:meta])* async fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        impl Tree {
            $($(#[$doc])* pub fn $name<'a>(&'a self, $($arg: $type),*) -> BoxFuture<'a, $result> {
                match &self.0 {
                    Kind::Volume(tree) => Box::pin(tree.$name($($arg),*)),
                    Kind::Folder(tree) => Box::pin(tree.$name($($arg),*)),
                }
            })*
        }
    };
}

macro_rules! forward_now {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        impl Tree {
            $($(#[$doc])* $vis fn $name(&self, $($arg: $type),*) -> $result {
                match &self.0 {
                    Kind::Volume(tree) => tree.$name($($arg),*),
                    Kind::Folder(tree) => tree.$name($($arg),*),
                }
            })*
        }
    };
}

forward_now! {
    /// The origin that this door's changes carry in their events.
    pub fn origin() -> u32;
    /// The id of the tree, which never changes.
    pub fn id() -> uuid::Uuid;
    /// Changes with every opening of the volume: a client that sees another one repeats its unstable writes.
    pub fn verifier() -> WriteVerifier;
    /// What [`Attr::change`] is added to, so that a number of this opening of the volume was told in no other.
    pub fn change_base() -> u64;
    /// All changes, this door's own included, with the origin of each.
    pub fn events() -> broadcast::Receiver<Event>;
    /// As [`Tree::events`], for a cache that others wait for (`files.caches_before_answer`).
    pub fn witness() -> (broadcast::Receiver<Event>, Witness);
    /// The snapshots, the oldest first. A folder of the host has none.
    pub fn snapshots() -> Vec<SnapshotInfo>;
    /// The seconds since 1970 in which snapshots were taken that may hold the directory `dir`: newest first, each once.
    pub fn snapshot_seconds(dir: Ino) -> Vec<i64>;
    pub(crate) fn statfs(cred: &Cred) -> StatFs;
    pub(crate) fn channel() -> &Events;
}

looks! {
    /// The next data or hole at or after `offset`; [`FsError::NotFound`] past the end (ENXIO).
    async fn seek(ino: Ino, offset: u64, to: SeekTo) -> FsResult<u64>;
    /// The attributes as they are stored: what somebody has written and not yet sent is not in them.
    async fn getattr(ino: Ino) -> FsResult<Attr>;
    /// Checks a handle from a client: [`FsError::Stale`] when the inode is gone or is another
    /// generation.
    async fn resolve(id: FileId) -> FsResult<Attr>;
    /// Fails with [`FsError::Access`] unless all of `mask` is granted.
    async fn access(cred: &'a Cred, ino: Ino, mask: AccessMask) -> FsResult<Attr>;
    /// The rights of `cred` on a file in the directory `parent`; without one, on the root of a share.
    async fn rights(cred: &'a Cred, ino: Ino, parent: Option<Ino>) -> FsResult<Rights>;
    /// Whether `cred` may do `wish`, as the change itself would be judged. `by_bits` judges by the mode bits alone.
    async fn permits(cred: &'a Cred, ino: Ino, parent: Option<Ino>, wish: Wish, by_bits: bool) -> FsResult<()>;
    /// The facts that decide about `wish`, for a person who wants to know why.
    async fn grounds(cred: &'a Cred, ino: Ino, wish: Wish, by_bits: bool) -> FsResult<Grounds>;
    /// The attributes, and the list that decides in place of the mode bits, where there is one.
    async fn acl(ino: Ino) -> FsResult<(Attr, Option<Arc<Acl>>)>;
    /// The directory that holds the directory `dir`; the root holds itself.
    async fn parent(dir: Ino) -> FsResult<Ino>;
    /// As [`Tree::parent`], for a door whose top is the directory `top`: `top` holds itself, and so
    /// does its past in a snapshot. [`FsError::Stale`] for a directory that does not lie below
    /// `top`.
    async fn parent_within(dir: Ino, top: Ino) -> FsResult<Ino>;
    /// The directory `dir` as it was in the last snapshot of that second; [`FsError::NotFound`] if there is none.
    async fn dir_at(cred: &'a Cred, dir: Ino, second: i64) -> FsResult<Attr>;
    /// The target of a symbolic link.
    async fn readlink(ino: Ino) -> FsResult<Bytes>;
    /// The value of an extended attribute. [`FsError::NoAttribute`] if there is none, or if `cred` may not know of it.
    async fn getxattr(cred: &'a Cred, ino: Ino, name: &'a [u8]) -> FsResult<Bytes>;
    /// The names of all extended attributes that `cred` may know of.
    async fn listxattr(cred: &'a Cred, ino: Ino) -> FsResult<Vec<Bytes>>;
}

forward! {
    /// As [`Tree::resolve`], with the permissions that `cred` has. `files.data_unboxed`
    pub async fn resolve_granted(cred: &'a Cred, id: FileId) -> FsResult<(Attr, AccessMask)>;
    pub(crate) async fn await_witnesses(timeout: Duration) -> ();
    pub(crate) async fn sync() -> FsResult<()>;
    pub(crate) async fn write(cred: &'a Cred, ino: Ino, offset: u64, data: Vec<Bytes>, stability: Stability) -> FsResult<Written>;
    pub(crate) async fn append(cred: &'a Cred, ino: Ino, data: Vec<Bytes>, stability: Stability) -> FsResult<(u64, Written)>;
    pub(crate) async fn commit(ino: Ino) -> FsResult<(Changed, WriteVerifier)>;
    pub(crate) async fn allocate(cred: &'a Cred, ino: Ino, offset: u64, len: u64, mode: AllocateMode) -> FsResult<Changed>;
    pub(crate) async fn setattr(cred: &'a Cred, ino: Ino, set: SetAttr) -> FsResult<Changed>;
    pub(crate) async fn set_acl(cred: &'a Cred, ino: Ino, set: SetAttr, acl: Option<Acl>) -> FsResult<Changed>;
    pub(crate) async fn create(cred: &'a Cred, dir: Ino, name: &'a [u8], mode: CreateMode, set: SetAttr) -> FsResult<(Attr, bool, Changed)>;
    pub(crate) async fn mkdir(cred: &'a Cred, dir: Ino, name: &'a [u8], set: SetAttr) -> FsResult<(Attr, Changed)>;
    pub(crate) async fn mknod(cred: &'a Cred, dir: Ino, name: &'a [u8], kind: FileKind, rdev: (u32, u32), set: SetAttr) -> FsResult<(Attr, Changed)>;
    pub(crate) async fn symlink(cred: &'a Cred, dir: Ino, name: &'a [u8], target: &'a [u8], set: SetAttr) -> FsResult<(Attr, Changed)>;
    pub(crate) async fn link(cred: &'a Cred, ino: Ino, dir: Ino, name: &'a [u8]) -> FsResult<(Attr, Changed)>;
    pub(crate) async fn relink(cred: &'a Cred, ino: Ino, dir: Ino, name: &'a [u8]) -> FsResult<(Attr, Changed)>;
    pub(crate) async fn relink_over(cred: &'a Cred, ino: Ino, dir: Ino, name: &'a [u8], over: Ino) -> FsResult<(Attr, Changed)>;
    pub(crate) async fn unlink(cred: &'a Cred, dir: Ino, name: &'a [u8]) -> FsResult<(Attr, Changed)>;
    pub(crate) async fn rmdir(cred: &'a Cred, dir: Ino, name: &'a [u8]) -> FsResult<Changed>;
    pub(crate) async fn rename(cred: &'a Cred, from: Ino, from_name: &'a [u8], to: Ino, to_name: &'a [u8], mode: RenameMode) -> FsResult<(Changed, Changed)>;
    pub(crate) async fn set_aside(cred: &'a Cred, from: Ino, from_name: &'a [u8], to: Ino, to_name: &'a [u8], directory: bool) -> FsResult<(Attr, Changed)>;
    pub(crate) async fn setxattr(cred: &'a Cred, ino: Ino, name: &'a [u8], value: &'a [u8], mode: XattrMode) -> FsResult<()>;
    pub(crate) async fn removexattr(cred: &'a Cred, ino: Ino, name: &'a [u8]) -> FsResult<()>;
    pub(crate) async fn named_dir(ino: Ino, make: bool) -> FsResult<Option<Ino>>;
    pub(crate) async fn remove_named(ino: Ino) -> FsResult<()>;
    pub(crate) async fn read(ino: Ino, offset: u64, len: usize) -> FsResult<ReadData>;
    pub(crate) async fn lookup(cred: &'a Cred, dir: Ino, name: &'a [u8], how: NameMatch) -> FsResult<Attr>;
    pub(crate) async fn stored_name(dir: Ino, name: &'a [u8]) -> FsResult<Bytes>;
    pub(crate) async fn readdir(cred: &'a Cred, dir: Ino, cookie: u64, max: usize, with_attrs: bool) -> FsResult<Listing>;
    pub(crate) async fn readdir_before(cred: &'a Cred, dir: Ino, cookie: u64, end: u64, max: usize, with_attrs: bool) -> FsResult<Listing>;
}

impl Tree {
    /// Whether another machine writes the tree. Its changes come without a word, so clients and kernels keep nothing of it for longer
    /// than a moment.
    pub fn is_followed(&self) -> bool {
        matches!(&self.0, Kind::Volume(volume) if volume.is_followed())
    }

    /// The id of the tree in handles that clients keep: a volume that took the place of another one answers to that one's.
    pub fn handle_id(&self) -> uuid::Uuid {
        match &self.0 {
            Kind::Volume(volume) => volume.handle_id(),
            Kind::Folder(folder) => folder.id(),
        }
    }

    /// Paths of folders of a volume from its top, which is empty itself; those that are not found are left out, and folders of
    /// the host have none here.
    pub async fn folder_paths(&self, folders: impl IntoIterator<Item = Ino>) -> HashMap<Ino, String> {
        match &self.0 {
            Kind::Volume(volume) => volume.folder_paths(folders).await,
            Kind::Folder(_) => HashMap::new(),
        }
    }

    /// The secret that seals handles, which a volume keeps. `None` for folders of the host, and for a volume that has none yet.
    pub fn handle_key(&self) -> Option<HandleKey> {
        match &self.0 {
            Kind::Volume(volume) => volume.handle_key(),
            Kind::Folder(_) => None,
        }
    }

    /// The NFS server's record of clients that the tree keeps. [`FsError::NotSupported`]: it keeps
    /// none.
    #[boxed]
    pub async fn nfs_clients(&self) -> FsResult<Option<Bytes>> {
        match &self.0 {
            Kind::Volume(volume) => volume.nfs_clients().await,
            Kind::Folder(_) => Err(FsError::NotSupported),
        }
    }

    /// As [`Tree::events`], and how many of [`Tree::events_sent`] the reader has seen.
    pub fn follow(&self) -> (broadcast::Receiver<Event>, Witness, watch::Receiver<u64>) {
        self.channel().follow()
    }

    /// How many events were sent.
    pub fn events_sent(&self) -> u64 {
        self.channel().sent()
    }

    /// Has changes of a directory's entries by other programs of the host, which no door makes,
    /// among the events, until the result is dropped. `None` in a volume, where there are none.
    /// [`FsError::Refused`] at the kernel's limit, which it names.
    #[boxed]
    pub async fn watch_host(&self, dir: Ino) -> FsResult<Option<HostWatch>> {
        match &self.0 {
            Kind::Volume(_) => Ok(None),
            Kind::Folder(folder) => folder.watch(dir).await.map(Some),
        }
    }

    /// Bytes that count against the narrowest quota of `cred`. Those of a folder of the host are what its filesystem holds.
    pub fn quota_used(&self, cred: &Cred) -> u64 {
        match &self.0 {
            Kind::Volume(volume) => volume.quota_used(cred),
            Kind::Folder(folder) => {
                let room = folder.statfs(cred);
                room.total_bytes.saturating_sub(room.free_bytes)
            }
        }
    }

    /// Bytes of its files that a share's bound counts (`bound.live_bytes`).
    pub(crate) fn held_bytes(&self) -> u64 {
        match &self.0 {
            Kind::Volume(volume) => volume.contents().data_bytes,
            Kind::Folder(_) => 0,
        }
    }

    /// Whether other programs rename and remove names, of which no event may tell.
    pub fn has_outsiders(&self) -> bool {
        matches!(self.0, Kind::Folder(_))
    }

    /// Whether the tree keeps a record of NFS clients: volumes do, folders of the host do not.
    pub fn keeps_nfs_clients(&self) -> bool {
        matches!(self.0, Kind::Volume(_))
    }

    /// Whether [`Files::clone_range`](crate::Files::clone_range) is there at all.
    pub fn shares_extents(&self) -> bool {
        matches!(self.0, Kind::Volume(_))
    }

    /// Folders of the host are not mounted.
    pub(crate) fn add_keeper(&self, keeper: Weak<dyn Keeper>) {
        if let Kind::Volume(volume) = &self.0 {
            volume.add_keeper(keeper);
        }
    }

    /// [`larder_fs::FsError::ReadOnly`] for what nobody changes.
    pub(crate) fn check_changeable(&self, ino: Ino) -> FsResult<()> {
        match &self.0 {
            Kind::Volume(volume) => volume.check_changeable(ino),
            Kind::Folder(_) => Ok(()),
        }
    }

    /// Whether files have named attributes (SMB's streams). A folder of the host has, where files have extended attributes.
    pub fn keeps_streams(&self) -> bool {
        match &self.0 {
            Kind::Volume(_) => true,
            Kind::Folder(tree) => tree.keeps_streams(),
        }
    }

    pub(crate) fn with_origin(&self, origin: u32) -> Tree {
        match &self.0 {
            Kind::Volume(tree) => Tree(Kind::Volume(tree.with_origin(origin))),
            Kind::Folder(tree) => Tree(Kind::Folder(tree.with_origin(origin))),
        }
    }

    pub(crate) fn only(&self, ino: Ino) -> Tree {
        match &self.0 {
            Kind::Volume(tree) => Tree(Kind::Volume(tree.only(ino))),
            Kind::Folder(tree) => Tree(Kind::Folder(tree.only(ino))),
        }
    }

    /// A volume's attributes are whole at every door.
    pub(crate) fn with_dos(&self) -> Tree {
        match &self.0 {
            Kind::Volume(_) => self.clone(),
            Kind::Folder(tree) => Tree(Kind::Folder(tree.with_dos())),
        }
    }

    pub(crate) fn with_answers(&self, answers: Answers) -> Tree {
        match &self.0 {
            Kind::Volume(tree) => Tree(Kind::Volume(tree.with_answers(answers))),
            Kind::Folder(tree) => Tree(Kind::Folder(tree.with_answers(answers))),
        }
    }

    pub(crate) fn with_access_times(&self, access_times: AccessTimes) -> Tree {
        match &self.0 {
            Kind::Volume(tree) => Tree(Kind::Volume(tree.with_access_times(access_times))),
            Kind::Folder(tree) => Tree(Kind::Folder(tree.with_access_times(access_times))),
        }
    }

    pub(crate) async fn open(&self, ino: Ino) -> FsResult<OpenNode> {
        Ok(match &self.0 {
            Kind::Volume(tree) => OpenNode::Volume(tree.open(ino).await?),
            Kind::Folder(tree) => OpenNode::Folder(tree.open(ino).await?),
        })
    }

    /// A volume gives no number twice.
    pub(crate) async fn open_judged(&self, id: FileId) -> FsResult<OpenNode> {
        match &self.0 {
            Kind::Volume(_) => self.open(id.ino).await,
            Kind::Folder(tree) => Ok(OpenNode::Folder(tree.open_judged(id).await?)),
        }
    }

    /// A folder of the host makes files without a name, and nothing else.
    pub(crate) async fn make_unnamed(
        &self,
        cred: &Cred,
        dir: Ino,
        what: Unnamed<'_>,
        set: SetAttr,
    ) -> FsResult<(Attr, OpenNode)> {
        match (&self.0, what) {
            (Kind::Volume(tree), _) => {
                let (attr, file) = tree.make_unnamed(cred, dir, what, set).await?;
                Ok((attr, OpenNode::Volume(file)))
            }
            (Kind::Folder(tree), Unnamed::File) => {
                let (attr, file) = Box::pin(tree.create_unnamed(cred, dir, set)).await?;
                Ok((attr, OpenNode::Folder(file)))
            }
            (Kind::Folder(_), _) => Err(FsError::NotSupported),
        }
    }

    /// Whether a call that judges an inode and then acts on it has to hold it meanwhile (`files.number_held`).
    pub fn reuses_numbers(&self) -> bool {
        matches!(self.0, Kind::Folder(_))
    }

    pub(crate) async fn hold(&self, id: FileId) -> FsResult<Option<larder_folder::OpenFile>> {
        match &self.0 {
            Kind::Volume(_) => Ok(None),
            Kind::Folder(tree) => Ok(Some(Box::pin(tree.hold(id)).await?)),
        }
    }
}
