//! The trees that doors serve: a volume, or folders of the host. One branch tells them apart; everything behind it is
//! dispatched statically, so a volume pays for the other kind with that branch alone.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::future::Either;
use larder_folder::Folder;
use larder_fs::Unnamed;
use larder_fs::acl::{Acl, Rights};
use larder_fs::{
    AccessMask, AccessTimes, AllocateMode, Answers, Attr, Changed, CreateMode, Cred, Event, Events, FileId, FileKind,
    FsError, FsResult, Grounds, Ino, Keeper, Listing, NameMatch, ReadData, RenameMode, SeekTo, SetAttr, SnapshotInfo,
    Stability, StatFs, Wish, Witness, WriteVerifier, Written, XattrMode,
};
use larder_volume::{OpenFile, Volume};
use tokio::sync::broadcast;

#[derive(Clone)]
pub(crate) enum Tree {
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
    ($(async fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        impl Tree {
            $(pub(crate) fn $name<'a>(&'a self, $($arg: $type),*) -> impl Future<Output = $result> + Send + use<'a> {
                match self {
                    Tree::Volume(tree) => Either::Left(tree.$name($($arg),*)),
                    Tree::Folder(tree) => {
                        Either::Right(Box::pin(tree.$name($($arg),*)) as Pin<Box<dyn Future<Output = $result> + Send + 'a>>)
                    }
                }
            })*
        }
    };
}

macro_rules! forward_now {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        impl Tree {
            $(pub(crate) fn $name(&self, $($arg: $type),*) -> $result {
                match self {
                    Tree::Volume(tree) => tree.$name($($arg),*),
                    Tree::Folder(tree) => tree.$name($($arg),*),
                }
            })*
        }
    };
}

forward_now! {
    fn origin() -> u32;
    fn id() -> uuid::Uuid;
    fn verifier() -> WriteVerifier;
    fn change_base() -> u64;
    fn statfs(cred: &Cred) -> StatFs;
    fn events() -> broadcast::Receiver<Event>;
    fn channel() -> &Events;
    fn witness() -> (broadcast::Receiver<Event>, Witness);
    fn snapshots() -> Vec<SnapshotInfo>;
    fn snapshot_seconds(dir: Ino) -> Vec<i64>;
}

forward! {
    async fn await_witnesses(timeout: Duration) -> ();
    async fn sync() -> FsResult<()>;
    async fn write(cred: &'a Cred, ino: Ino, offset: u64, data: Vec<Bytes>, stability: Stability) -> FsResult<Written>;
    async fn append(cred: &'a Cred, ino: Ino, data: Vec<Bytes>, stability: Stability) -> FsResult<(u64, Written)>;
    async fn commit(ino: Ino) -> FsResult<(Changed, WriteVerifier)>;
    async fn allocate(cred: &'a Cred, ino: Ino, offset: u64, len: u64, mode: AllocateMode) -> FsResult<Changed>;
    async fn setattr(cred: &'a Cred, ino: Ino, set: SetAttr) -> FsResult<Changed>;
    async fn set_acl(cred: &'a Cred, ino: Ino, set: SetAttr, acl: Option<Acl>) -> FsResult<Changed>;
    async fn create(cred: &'a Cred, dir: Ino, name: &'a [u8], mode: CreateMode, set: SetAttr) -> FsResult<(Attr, bool, Changed)>;
    async fn mkdir(cred: &'a Cred, dir: Ino, name: &'a [u8], set: SetAttr) -> FsResult<(Attr, Changed)>;
    async fn mknod(cred: &'a Cred, dir: Ino, name: &'a [u8], kind: FileKind, rdev: (u32, u32), set: SetAttr) -> FsResult<(Attr, Changed)>;
    async fn symlink(cred: &'a Cred, dir: Ino, name: &'a [u8], target: &'a [u8], set: SetAttr) -> FsResult<(Attr, Changed)>;
    async fn link(cred: &'a Cred, ino: Ino, dir: Ino, name: &'a [u8]) -> FsResult<(Attr, Changed)>;
    async fn relink(cred: &'a Cred, ino: Ino, dir: Ino, name: &'a [u8]) -> FsResult<(Attr, Changed)>;
    async fn relink_over(cred: &'a Cred, ino: Ino, dir: Ino, name: &'a [u8], over: Ino) -> FsResult<(Attr, Changed)>;
    async fn unlink(cred: &'a Cred, dir: Ino, name: &'a [u8]) -> FsResult<(Attr, Changed)>;
    async fn rmdir(cred: &'a Cred, dir: Ino, name: &'a [u8]) -> FsResult<Changed>;
    async fn rename(cred: &'a Cred, from: Ino, from_name: &'a [u8], to: Ino, to_name: &'a [u8], mode: RenameMode) -> FsResult<(Changed, Changed)>;
    async fn set_aside(cred: &'a Cred, from: Ino, from_name: &'a [u8], to: Ino, to_name: &'a [u8], directory: bool) -> FsResult<(Attr, Changed)>;
    async fn setxattr(cred: &'a Cred, ino: Ino, name: &'a [u8], value: &'a [u8], mode: XattrMode) -> FsResult<()>;
    async fn removexattr(cred: &'a Cred, ino: Ino, name: &'a [u8]) -> FsResult<()>;
    async fn getxattr(cred: &'a Cred, ino: Ino, name: &'a [u8]) -> FsResult<Bytes>;
    async fn listxattr(cred: &'a Cred, ino: Ino) -> FsResult<Vec<Bytes>>;
    async fn named_dir(ino: Ino, make: bool) -> FsResult<Option<Ino>>;
    async fn remove_named(ino: Ino) -> FsResult<()>;
    async fn read(ino: Ino, offset: u64, len: usize) -> FsResult<ReadData>;
    async fn seek(ino: Ino, offset: u64, to: SeekTo) -> FsResult<u64>;
    async fn getattr(ino: Ino) -> FsResult<Attr>;
    async fn resolve(id: FileId) -> FsResult<Attr>;
    async fn resolve_granted(cred: &'a Cred, id: FileId) -> FsResult<(Attr, AccessMask)>;
    async fn access(cred: &'a Cred, ino: Ino, mask: AccessMask) -> FsResult<Attr>;
    async fn rights(cred: &'a Cred, ino: Ino, parent: Option<Ino>) -> FsResult<Rights>;
    async fn permits(cred: &'a Cred, ino: Ino, parent: Option<Ino>, wish: Wish, by_bits: bool) -> FsResult<()>;
    async fn grounds(cred: &'a Cred, ino: Ino, wish: Wish, by_bits: bool) -> FsResult<Grounds>;
    async fn acl(ino: Ino) -> FsResult<(Attr, Option<Arc<Acl>>)>;
    async fn lookup(cred: &'a Cred, dir: Ino, name: &'a [u8], how: NameMatch) -> FsResult<Attr>;
    async fn stored_name(dir: Ino, name: &'a [u8]) -> FsResult<Bytes>;
    async fn parent(dir: Ino) -> FsResult<Ino>;
    async fn parent_within(dir: Ino, top: Ino) -> FsResult<Ino>;
    async fn dir_at(cred: &'a Cred, dir: Ino, second: i64) -> FsResult<Attr>;
    async fn readlink(ino: Ino) -> FsResult<Bytes>;
    async fn readdir(cred: &'a Cred, dir: Ino, cookie: u64, max: usize, with_attrs: bool) -> FsResult<Listing>;
    async fn readdir_before(cred: &'a Cred, dir: Ino, cookie: u64, end: u64, max: usize, with_attrs: bool) -> FsResult<Listing>;
}

impl Tree {
    pub(crate) fn is_followed(&self) -> bool {
        matches!(self, Tree::Volume(volume) if volume.is_followed())
    }

    /// Folders of the host are not mounted.
    pub(crate) fn add_keeper(&self, keeper: Weak<dyn Keeper>) {
        if let Tree::Volume(volume) = self {
            volume.add_keeper(keeper);
        }
    }

    /// [`larder_fs::FsError::ReadOnly`] for what nobody changes.
    pub(crate) fn check_changeable(&self, ino: Ino) -> FsResult<()> {
        match self {
            Tree::Volume(volume) => volume.check_changeable(ino),
            Tree::Folder(_) => Ok(()),
        }
    }

    pub(crate) fn keeps_streams(&self) -> bool {
        match self {
            Tree::Volume(_) => true,
            Tree::Folder(tree) => tree.keeps_streams(),
        }
    }

    pub(crate) fn with_origin(&self, origin: u32) -> Tree {
        match self {
            Tree::Volume(tree) => Tree::Volume(tree.with_origin(origin)),
            Tree::Folder(tree) => Tree::Folder(tree.with_origin(origin)),
        }
    }

    pub(crate) fn only(&self, ino: Ino) -> Tree {
        match self {
            Tree::Volume(tree) => Tree::Volume(tree.only(ino)),
            Tree::Folder(tree) => Tree::Folder(tree.only(ino)),
        }
    }

    /// A volume's attributes are whole at every door.
    pub(crate) fn with_dos(&self) -> Tree {
        match self {
            Tree::Volume(_) => self.clone(),
            Tree::Folder(tree) => Tree::Folder(tree.with_dos()),
        }
    }

    pub(crate) fn with_answers(&self, answers: Answers) -> Tree {
        match self {
            Tree::Volume(tree) => Tree::Volume(tree.with_answers(answers)),
            Tree::Folder(tree) => Tree::Folder(tree.with_answers(answers)),
        }
    }

    pub(crate) fn with_access_times(&self, access_times: AccessTimes) -> Tree {
        match self {
            Tree::Volume(tree) => Tree::Volume(tree.with_access_times(access_times)),
            Tree::Folder(tree) => Tree::Folder(tree.with_access_times(access_times)),
        }
    }

    pub(crate) async fn open(&self, ino: Ino) -> FsResult<OpenNode> {
        Ok(match self {
            Tree::Volume(tree) => OpenNode::Volume(tree.open(ino).await?),
            Tree::Folder(tree) => OpenNode::Folder(tree.open(ino).await?),
        })
    }

    /// A volume gives no number twice.
    pub(crate) async fn open_judged(&self, id: FileId) -> FsResult<OpenNode> {
        match self {
            Tree::Volume(_) => self.open(id.ino).await,
            Tree::Folder(tree) => Ok(OpenNode::Folder(tree.open_judged(id).await?)),
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
        match (self, what) {
            (Tree::Volume(tree), _) => {
                let (attr, file) = tree.make_unnamed(cred, dir, what, set).await?;
                Ok((attr, OpenNode::Volume(file)))
            }
            (Tree::Folder(_), Unnamed::File) => self.create_unnamed(cred, dir, set).await,
            (Tree::Folder(_), _) => Err(FsError::NotSupported),
        }
    }

    /// Whether an inode's number can become another's during a call (`files.number_held`).
    pub(crate) fn reuses_numbers(&self) -> bool {
        matches!(self, Tree::Folder(_))
    }

    pub(crate) async fn hold(&self, id: FileId) -> FsResult<Option<larder_folder::OpenFile>> {
        match self {
            Tree::Volume(_) => Ok(None),
            Tree::Folder(tree) => Ok(Some(Box::pin(tree.hold(id)).await?)),
        }
    }

    pub(crate) async fn create_unnamed(&self, cred: &Cred, dir: Ino, set: SetAttr) -> FsResult<(Attr, OpenNode)> {
        Ok(match self {
            Tree::Volume(tree) => {
                let (attr, file) = tree.create_unnamed(cred, dir, set).await?;
                (attr, OpenNode::Volume(file))
            }
            Tree::Folder(tree) => {
                let (attr, file) = tree.create_unnamed(cred, dir, set).await?;
                (attr, OpenNode::Folder(file))
            }
        })
    }
}
