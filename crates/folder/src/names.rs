//! Making, linking, moving and removing names. Errors come in the order in which a volume gives them.
//!
//! - `names.judged_twice`: larder judges first, for the right error and for rights that are none of the host's. Then the call
//!   runs as the user, and the kernel judges the name that it acts on (`identity.names_as_user`).
//! - `names.dressed_if_certain`: a node other than a file is opened by its name after it was made. What a call cannot give it
//!   at birth (times, DOS attributes, setgid) is set as the user; for root only where owner, mode and time of birth prove
//!   that nobody exchanged it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use larder_base::Timestamp;
use larder_fs::judge::{self, Guarded};
use larder_fs::{
    ACCESS_EXECUTE, ACCESS_WRITE, Attr, Changed, CreateMode, Cred, Event, FILE_BYTES_MAX, FileKind, FsError, FsResult,
    Ino, PreAttr, RenameMode, SYMLINK_BYTES_MAX, SetAttr, SetTime,
};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::time::ClockId;

use crate::attrs::{DEFAULT_LIST, set_times};
use crate::host::{Node, by_number, failed};
use crate::identity::{self, Identity, acting, without_umask};
use crate::notify::Own;
use crate::numbers::is_stream;
use crate::{Folder, OpenFile};

/// How often a create starts over because the name came and went meanwhile.
const RACES_MAX: usize = 16;
/// The bits that a default list of a directory leaves alone.
const SPECIAL_BITS: u32 = 0o7000;

/// A node to make.
enum Made<'a> {
    File,
    Directory,
    Symlink(&'a [u8]),
    Special(FileKind, (u32, u32)),
}

impl Made<'_> {
    fn kind(&self) -> FileKind {
        match self {
            Made::File => FileKind::File,
            Made::Directory => FileKind::Directory,
            Made::Symlink(_) => FileKind::Symlink,
            Made::Special(kind, _) => *kind,
        }
    }

    fn default_mode(&self) -> u32 {
        match self {
            Made::Directory => 0o755,
            Made::Symlink(_) => 0o777,
            _ => 0o644,
        }
    }
}

/// Owner, group and mode of a node that is to be made, and as whom it is made.
struct Birth {
    uid: u32,
    gid: u32,
    mode: u32,
    identity: Option<Identity>,
    /// Nothing that was made for it is older.
    since: Timestamp,
}

impl Birth {
    fn of(parent: &Attr, cred: &Cred, made: &Made<'_>, set: &SetAttr) -> FsResult<Birth> {
        let wanted = set.mode.unwrap_or(made.default_mode());
        let (uid, gid, mode) = judge::ownership(parent, cred, made.kind(), wanted, set);
        let identity = Identity::owning(cred, uid, gid)?;
        // The clock of the kernel's own time stamps.
        let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
        let since = Timestamp::new(now.tv_sec, now.tv_nsec as u32);
        Ok(Birth { uid, gid, mode, identity, since })
    }

    fn mode(&self) -> Mode {
        Mode::from_raw_mode(self.mode)
    }
}

/// The answer where another program of the host put something else in the place of what was made.
fn exchanged() -> FsError {
    FsError::Busy("another program of the host exchanged the name meanwhile; look at the folder and try again")
}

/// The verifier of an exclusive create as times: the client sets them right with its next call (RFC 1813 3.3.8).
fn times_of(verifier: [u8; 8]) -> (Timestamp, Timestamp) {
    let [a, b, c, d, e, f, g, h] = verifier;
    // Any filesystem has room for 31 bits.
    let half = |bytes| Timestamp::new(i64::from(u32::from_be_bytes(bytes) & 0x7fff_ffff), 0);
    (half([a, b, c, d]), half([e, f, g, h]))
}

/// Proof that a node is the one of this birth: nobody else makes an inode of this owner that is so young. There is none where
/// the host keeps no owners or no times of birth.
fn is_proven(node: &Node, birth: &Birth) -> bool {
    let Some(born) = super::host::birth_time(node.fd.as_fd()) else { return false };
    let Attr { uid, mode, nlink, kind, .. } = node.attr;
    let links = if kind == FileKind::Directory { 1..=2 } else { 1..=1 };
    uid == birth.uid && mode & !SPECIAL_BITS & !birth.mode == 0 && links.contains(&nlink) && born >= birth.since
}

impl Folder {
    pub async fn create(
        &self,
        cred: &Cred,
        dir: Ino,
        name: &[u8],
        mode: CreateMode,
        set: SetAttr,
    ) -> FsResult<(Attr, bool, Changed)> {
        if mode == CreateMode::Unchecked && judge::is_dots(name) {
            return Err(FsError::IsDirectory);
        }
        judge::check_new_name(name)?;
        let (cred, name) = (cred.clone(), name.to_vec());
        self.run(move |folder| {
            if is_stream(dir) {
                return folder.stream_create(dir, &name, mode, &set);
            }
            let set = match mode {
                CreateMode::Exclusive(verifier) => {
                    let (atime, mtime) = times_of(verifier);
                    SetAttr { atime: Some(SetTime::To(atime)), mtime: Some(SetTime::To(mtime)), ..set }
                }
                _ => set,
            };
            let dir = folder.host.node(dir)?.directory()?;
            for _ in 0..RACES_MAX {
                match folder.make(&cred, &dir, &name, &Made::File, set) {
                    Ok((attr, changed)) => return Ok((attr, true, changed)),
                    Err(FsError::Exists) if mode != CreateMode::Guarded => {}
                    Err(error) => return Err(error),
                }
                match folder.existing(&cred, &dir, &name, mode, set) {
                    Err(FsError::NotFound) => {}
                    other => return other.map(|(attr, changed)| (attr, false, changed)),
                }
            }
            Err(FsError::Busy("the name comes and goes; try again"))
        })
        .await
    }

    /// The file that a create found in the way.
    fn existing(
        &self,
        cred: &Cred,
        dir: &Node,
        name: &[u8],
        mode: CreateMode,
        set: SetAttr,
    ) -> FsResult<(Attr, Changed)> {
        let node = self.host.child(dir, name)?;
        let attr = node.attr;
        match (mode, attr.kind) {
            (CreateMode::Exclusive(verifier), FileKind::File)
                if attr.size == 0 && (attr.atime, attr.mtime) == times_of(verifier) => {}
            (CreateMode::Exclusive(_), _) => return Err(FsError::Exists),
            (_, FileKind::Directory) => return Err(FsError::IsDirectory),
            (_, FileKind::File) => {}
            _ => return Err(FsError::Exists),
        }
        let attr = match (mode, set.size) {
            (CreateMode::Unchecked, Some(size)) if attr.size != size => {
                self.set_judged(cred, node, SetAttr { size: Some(size), ..SetAttr::default() })?.after
            }
            _ => attr,
        };
        // "It exists" promises as much as "it was made".
        self.flush_names(&[dir])?;
        let after = self.host.again(dir)?;
        Ok((attr, Changed { before: PreAttr::of(&after), after }))
    }

    pub async fn create_unnamed(&self, cred: &Cred, dir: Ino, set: SetAttr) -> FsResult<(Attr, OpenFile)> {
        let cred = cred.clone();
        self.run(move |folder| {
            let dir = folder.host.node(dir)?.directory()?;
            folder.host.admit()?;
            let parent = folder.host.guarded(&dir, &cred)?;
            judge::may_add(&parent, &cred, FileKind::File)?;
            let birth = Birth::of(&parent.attr, &cred, &Made::File, &set)?;
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            let open = || rustix::fs::openat(&dir.fd, ".", flags, birth.mode());
            let fd = without_umask(|| acting(birth.identity.as_ref(), open))?.map_err(failed)?;
            let node = folder.node_of(fd)?;
            let node = folder.dressed_file(&dir, node, &birth, &set)?;
            Ok((node.attr, folder.opened(&node)))
        })
        .await
    }

    pub async fn mkdir(&self, cred: &Cred, dir: Ino, name: &[u8], set: SetAttr) -> FsResult<(Attr, Changed)> {
        judge::check_new_name(name)?;
        let (cred, name) = (cred.clone(), name.to_vec());
        self.run(move |folder| {
            let dir = folder.host.node(dir)?.directory()?;
            folder.make(&cred, &dir, &name, &Made::Directory, set)
        })
        .await
    }

    pub async fn mknod(
        &self,
        cred: &Cred,
        dir: Ino,
        name: &[u8],
        kind: FileKind,
        rdev: (u32, u32),
        set: SetAttr,
    ) -> FsResult<(Attr, Changed)> {
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        if is_device && cred.uid != 0 {
            return Err(FsError::NotPermitted);
        }
        if matches!(kind, FileKind::Directory | FileKind::Symlink) {
            return Err(FsError::Invalid("mknod makes neither directories nor symbolic links"));
        }
        judge::check_new_name(name)?;
        let rdev = if is_device { rdev } else { (0, 0) };
        let (cred, name) = (cred.clone(), name.to_vec());
        self.run(move |folder| {
            let dir = folder.host.node(dir)?.directory()?;
            let made = if kind == FileKind::File { Made::File } else { Made::Special(kind, rdev) };
            folder.make(&cred, &dir, &name, &made, set)
        })
        .await
    }

    pub async fn symlink(
        &self,
        cred: &Cred,
        dir: Ino,
        name: &[u8],
        target: &[u8],
        set: SetAttr,
    ) -> FsResult<(Attr, Changed)> {
        if target.is_empty() || target.contains(&0) {
            return Err(FsError::Invalid("the target of a symbolic link must not be empty or hold a zero byte"));
        }
        if target.len() > SYMLINK_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        judge::check_new_name(name)?;
        let (cred, name, target) = (cred.clone(), name.to_vec(), target.to_vec());
        self.run(move |folder| {
            let dir = folder.host.node(dir)?.directory()?;
            folder.make(&cred, &dir, &name, &Made::Symlink(&target), set)
        })
        .await
    }

    /// Checks that `dir` may be searched, holds no `name`, and may get an entry of `kind`.
    fn enter(&self, cred: &Cred, dir: &Node, name: &[u8], kind: FileKind) -> FsResult<Guarded> {
        self.host.admit()?;
        let parent = self.host.guarded(dir, cred)?;
        judge::require(&parent, cred, ACCESS_EXECUTE)?;
        match self.host.child(dir, name) {
            Ok(_) => return Err(FsError::Exists),
            Err(FsError::NotFound) => {}
            Err(error) => return Err(error),
        }
        judge::may_add(&parent, cred, kind)?;
        Ok(parent)
    }

    fn make(&self, cred: &Cred, dir: &Node, name: &[u8], made: &Made<'_>, set: SetAttr) -> FsResult<(Attr, Changed)> {
        let kind = made.kind();
        let parent = self.enter(cred, dir, name, kind)?;
        let before = self.host.again(dir)?;
        let node = self.born(cred, (dir, &parent.attr), name, made, &set)?.0;
        self.come(dir, name, before, node)
    }

    /// For larder itself. Returns it, and whether it is proven to be what was made.
    pub(crate) fn make_directory(&self, cred: &Cred, dir: &Node, name: &[u8], set: SetAttr) -> FsResult<(Node, bool)> {
        let parent = self.enter(cred, dir, name, FileKind::Directory)?;
        let before = self.host.again(dir)?;
        let (node, is_proven) = self.born(cred, (dir, &parent.attr), name, &Made::Directory, &set)?;
        let made = Node { fd: node.fd.clone(), attr: node.attr };
        self.come(dir, name, before, node)?;
        Ok((made, is_proven))
    }

    /// After a name came: durable.
    fn come(&self, dir: &Node, name: &[u8], before: Attr, node: Node) -> FsResult<(Attr, Changed)> {
        let kind = node.attr.kind;
        self.host.remember(dir.ino(), name, &node.attr);
        if self.is_durable() && matches!(kind, FileKind::File | FileKind::Directory) {
            self.host.flush(&node)?;
        }
        let after = self.named(dir)?;
        Ok((self.shown(&node), Changed { before: PreAttr::of(&before), after }))
    }

    /// Makes a node with its owner and mode (`identity.owner_from_birth`), and gives it what else was asked for. Returns it,
    /// and whether it is proven to be what was made.
    fn born(
        &self,
        cred: &Cred,
        (dir, parent): (&Node, &Attr),
        name: &[u8],
        made: &Made<'_>,
        set: &SetAttr,
    ) -> FsResult<(Node, bool)> {
        let birth = Birth::of(parent, cred, made, set)?;
        let _own = self.host.notices.own(&[Own::Comes(dir.ino(), name)]);
        if matches!(made, Made::File) {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
            let open = || rustix::fs::openat(&dir.fd, name, flags, birth.mode());
            let fd = without_umask(|| acting(birth.identity.as_ref(), open))?.map_err(failed)?;
            self.send_added(dir, name, FileKind::File);
            let node = self.node_of(fd)?;
            let (ino, kind) = (node.ino(), FileKind::File);
            let dressed = self.dressed_file(dir, node, &birth, set).inspect_err(|_| {
                // It is empty, and no answer named it.
                let _own = self.host.notices.own(&[Own::Goes(dir.ino(), name)]);
                let _ = acting(birth.identity.as_ref(), || rustix::fs::unlinkat(&dir.fd, name, AtFlags::empty()));
                let (origin, dir, name) = (self.origin, dir.ino(), Bytes::copy_from_slice(name));
                self.host.events.send(|| Event::Removed { origin, dir, name, ino, kind });
            });
            return Ok((dressed?, true));
        }
        let call = || match made {
            Made::File | Made::Directory => rustix::fs::mkdirat(&dir.fd, name, birth.mode()),
            Made::Symlink(target) => rustix::fs::symlinkat(*target, &dir.fd, name),
            Made::Special(kind, (major, minor)) => {
                let kind = match kind {
                    FileKind::Fifo => FileType::Fifo,
                    FileKind::Socket => FileType::Socket,
                    FileKind::CharDevice => FileType::CharacterDevice,
                    _ => FileType::BlockDevice,
                };
                rustix::fs::mknodat(&dir.fd, name, kind, birth.mode(), rustix::fs::makedev(*major, *minor))
            }
        };
        without_umask(|| acting(birth.identity.as_ref(), call))?.map_err(failed)?;
        self.send_added(dir, name, made.kind());
        let node = self.host.child(dir, name).map_err(|error| match error {
            FsError::NotFound => exchanged(),
            error => error,
        })?;
        if node.attr.kind != made.kind() {
            return Err(exchanged());
        }
        self.dressed_by_name(cred, dir, node, &birth, set)
    }

    fn node_of(&self, fd: OwnedFd) -> FsResult<Node> {
        let attr = self.host.identify(fd.as_fd())?;
        Ok(Node { fd: Arc::new(fd), attr })
    }

    /// The mode that a node of this birth still lacks. A list that its directory hands on decides about the bits of permission.
    fn missing_mode(node: &Node, birth: &Birth, handed: Option<&[u8]>) -> Option<u32> {
        let of = if handed.is_some() { node.attr.mode } else { birth.mode };
        let wanted = of & !SPECIAL_BITS | birth.mode & SPECIAL_BITS;
        (node.attr.kind != FileKind::Symlink && wanted != node.attr.mode).then_some(wanted)
    }

    /// A file that was made by the call that opened it: nobody can have exchanged it.
    fn dressed_file(&self, dir: &Node, mut node: Node, birth: &Birth, set: &SetAttr) -> FsResult<Node> {
        if let Some(size) = set.size {
            rustix::fs::ftruncate(&node.fd, size.min(FILE_BYTES_MAX)).map_err(failed)?;
        }
        // Where larder's account is the owner of all, the host refuses another.
        self.own(&node, Some(birth.uid), Some(birth.gid))?;
        let handed = self.host.list(dir, DEFAULT_LIST)?;
        if let Some(mode) = Self::missing_mode(&node, birth, handed.as_deref()) {
            self.chmod(&node, mode)?;
        }
        self.inherit(handed.as_deref(), &node, birth.mode)?;
        self.set_dos(&node, set.dos, set.btime)?;
        set_times(&node, set.atime, set.mtime)?;
        node.attr = self.host.again(&node)?;
        Ok(node)
    }

    /// A node that was opened by its name (`names.dressed_if_certain`).
    fn dressed_by_name(
        &self,
        cred: &Cred,
        dir: &Node,
        mut node: Node,
        birth: &Birth,
        set: &SetAttr,
    ) -> FsResult<(Node, bool)> {
        let identity = Identity::of(cred)?;
        if identity.is_some() && node.attr.uid != birth.uid {
            return Err(exchanged());
        }
        let is_proven = is_proven(&node, birth);
        if identity.is_none() && identity::is_unbounded() && !is_proven {
            return Ok((node, false));
        }
        let handed = self.host.list(dir, DEFAULT_LIST)?;
        let mode = Self::missing_mode(&node, birth, handed.as_deref());
        let dress = || {
            if identity.is_none() {
                // Root asked for another group than that of a setgid directory.
                self.own(&node, None, Some(birth.gid))?;
            }
            mode.map_or(Ok(()), |mode| self.chmod(&node, mode))?;
            match self.set_dos(&node, set.dos, set.btime) {
                // Its mode forbids its owner to write.
                Ok(_) | Err(FsError::Access) => set_times(&node, set.atime, set.mtime),
                Err(error) => Err(error),
            }
        };
        // A list that a user sets takes setgid from a folder of a group that is not his.
        let listing = identity.as_ref().filter(|_| !is_proven);
        let dressed = acting(identity.as_ref(), dress)?;
        let listed = acting(listing, || self.inherit(handed.as_deref(), &node, birth.mode))?;
        dressed.and(listed).map_err(|error| match error {
            // From birth it is the user's own.
            FsError::NotPermitted => exchanged(),
            error => error,
        })?;
        node.attr = self.host.again(&node)?;
        Ok((node, is_proven))
    }

    /// After a change of its names, which others have heard of: durable. Returns the directory's attributes.
    fn named(&self, dir: &Node) -> FsResult<Attr> {
        self.flush_names(&[dir])?;
        self.host.again(dir)
    }

    fn flush_names(&self, dirs: &[&Node]) -> FsResult<()> {
        let flush = |dir: &&Node| if self.is_durable() { self.host.flush(dir) } else { self.host.flush_later(dir) };
        dirs.iter().try_for_each(flush)
    }

    pub async fn link(&self, cred: &Cred, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<(Attr, Changed)> {
        judge::check_new_name(name)?;
        let (cred, name) = (cred.clone(), name.to_vec());
        self.run(move |folder| {
            let dir = folder.host.node(dir)?.directory()?;
            let node = folder.host.node(ino)?;
            folder.enter(&cred, &dir, &name, node.attr.kind)?;
            if node.is_dir() {
                return Err(FsError::NotPermitted);
            }
            folder.may_link(&node, &cred)?;
            let before = folder.host.again(&dir)?;
            {
                let _own = folder.host.notices.own(&[Own::Comes(dir.ino(), &name)]);
                acting(Identity::of(&cred)?.as_ref(), || folder.link_to(&node, &dir, &name))??;
                folder.send_added(&dir, &name, node.attr.kind);
            }
            folder.linked(node, &dir, &name, before)
        })
        .await
    }

    /// A file without a name belongs to the door that made it.
    fn may_link(&self, node: &Node, cred: &Cred) -> FsResult<()> {
        if node.attr.nlink == 0 { Ok(()) } else { judge::may_link(&self.host.guarded(node, cred)?, cred) }
    }

    fn link_to(&self, node: &Node, dir: &Node, name: &[u8]) -> FsResult<()> {
        let path = by_number(node.fd.as_fd());
        match rustix::fs::linkat(CWD, path, &dir.fd, name, AtFlags::SYMLINK_FOLLOW) {
            // Its last name is gone.
            Err(Errno::NOENT) => Err(FsError::Stale),
            other => other.map_err(failed),
        }
    }

    fn linked(&self, mut node: Node, dir: &Node, name: &[u8], before: Attr) -> FsResult<(Attr, Changed)> {
        if self.is_durable() && node.attr.kind == FileKind::File {
            self.host.flush(&node)?;
        }
        node.attr = self.host.again(&node)?;
        self.host.remember(dir.ino(), name, &node.attr);
        let after = self.named(dir)?;
        let (origin, ino) = (self.origin, node.ino());
        self.host.events.send(|| Event::Attr { origin, ino });
        Ok((node.attr, Changed { before: PreAttr::of(&before), after }))
    }

    pub async fn relink(&self, cred: &Cred, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<(Attr, Changed)> {
        self.replace_name(cred, ino, dir, name, None).await
    }

    pub async fn relink_over(
        &self,
        cred: &Cred,
        ino: Ino,
        dir: Ino,
        name: &[u8],
        over: Ino,
    ) -> FsResult<(Attr, Changed)> {
        self.replace_name(cred, ino, dir, name, Some(over)).await
    }

    /// By a name beside it, since the host links to free names only.
    async fn replace_name(
        &self,
        cred: &Cred,
        ino: Ino,
        dir: Ino,
        name: &[u8],
        over: Option<Ino>,
    ) -> FsResult<(Attr, Changed)> {
        judge::check_new_name(name)?;
        let (cred, name) = (cred.clone(), name.to_vec());
        self.run(move |folder| {
            let host = &folder.host;
            let dir = host.node(dir)?.directory()?;
            let node = host.node(ino)?;
            host.admit()?;
            let parent = host.guarded(&dir, &cred)?;
            judge::require(&parent, &cred, ACCESS_EXECUTE)?;
            let victim = host.child(&dir, &name)?;
            let before = host.again(&dir)?;
            if victim.ino() == ino {
                folder.flush_names(&[&dir])?;
                return Ok((node.attr, Changed { before: PreAttr::of(&before), after: before }));
            }
            judge::may_remove(&parent, &host.guarded(&victim, &cred)?, &cred)?;
            if victim.is_dir() {
                return Err(FsError::IsDirectory);
            }
            if over.is_some_and(|over| over != victim.ino()) {
                return Err(FsError::NotFound);
            }
            if node.is_dir() {
                return Err(FsError::NotPermitted);
            }
            folder.may_link(&node, &cred)?;
            let identity = Identity::of(&cred)?;
            // The owner of a file without a name may be another: that of the file that it replaces.
            let linking = identity.as_ref().filter(|_| node.attr.nlink > 0);
            let beside = format!(".larder-{}", uuid::Uuid::new_v4().simple());
            let at = dir.ino();
            let own = [Own::Passes(at, beside.as_bytes()), Own::Comes(at, &name), Own::Goes(at, &name)];
            let own = host.notices.own(&own);
            acting(linking, || folder.link_to(&node, &dir, beside.as_bytes()))??;
            let taken = acting(identity.as_ref(), || match (&identity, over) {
                (None, Some(over)) => folder.take_name(&dir, &beside, &name, over),
                _ => rustix::fs::renameat(&dir.fd, &beside, &dir.fd, &name[..]).map_err(failed),
            });
            if let Err(error) = taken.and_then(|taken| taken) {
                let _ = acting(linking, || rustix::fs::unlinkat(&dir.fd, &beside, AtFlags::empty()));
                return Err(error);
            }
            folder.send_removed(&dir, &name, &victim);
            folder.send_added(&dir, &name, node.attr.kind);
            drop(own);
            folder.linked(node, &dir, &name, before)
        })
        .await
    }

    /// Takes the name from `over` with root's rights, and from nothing else: what came out is looked at.
    fn take_name(&self, dir: &Node, beside: &str, name: &[u8], over: Ino) -> FsResult<()> {
        let exchange = || rustix::fs::renameat_with(&dir.fd, beside, &dir.fd, name, RenameFlags::EXCHANGE);
        match exchange() {
            Err(Errno::INVAL | Errno::NOSYS) => {
                return Err(FsError::Refused(
                    "the host's filesystem cannot exchange two names (RENAME_EXCHANGE), without which larder replaces no \
                     file in a folder that its user may not change"
                        .into(),
                ));
            }
            done => done.map_err(failed)?,
        }
        if self.host.child(dir, beside.as_bytes()).is_ok_and(|old| old.ino() == over) {
            return rustix::fs::unlinkat(&dir.fd, beside, AtFlags::empty()).map_err(failed);
        }
        exchange().map_err(failed)?;
        Err(FsError::NotFound)
    }

    pub async fn unlink(&self, cred: &Cred, dir: Ino, name: &[u8]) -> FsResult<(Attr, Changed)> {
        judge::check_name(name)?;
        if judge::is_dots(name) {
            return Err(FsError::IsDirectory);
        }
        let (cred, name) = (cred.clone(), name.to_vec());
        self.run(move |folder| {
            if is_stream(dir) {
                return folder.stream_unlink(dir, &name);
            }
            let dir = folder.host.node(dir)?.directory()?;
            let victim = folder.removable(&cred, &dir, &name)?;
            if victim.is_dir() {
                return Err(FsError::IsDirectory);
            }
            let before = folder.host.again(&dir)?;
            let attr = folder.take_away(&cred, &dir, &name, &victim)?;
            let after = folder.named(&dir)?;
            Ok((attr, Changed { before: PreAttr::of(&before), after }))
        })
        .await
    }

    pub async fn rmdir(&self, cred: &Cred, dir: Ino, name: &[u8]) -> FsResult<Changed> {
        judge::check_name(name)?;
        match name {
            b"." => return Err(FsError::Invalid("'.' cannot be removed")),
            b".." => return Err(FsError::NotEmpty),
            _ => {}
        }
        let (cred, name) = (cred.clone(), name.to_vec());
        self.run(move |folder| {
            let dir = folder.host.node(dir)?.directory()?;
            let victim = folder.removable(&cred, &dir, &name)?;
            if !victim.is_dir() {
                return Err(FsError::NotDirectory);
            }
            if folder.host.is_top(victim.ino()) {
                return Err(FsError::Busy("the folder is shared under a name of its own"));
            }
            let before = folder.host.again(&dir)?;
            folder.take_away(&cred, &dir, &name, &victim)?;
            let after = folder.named(&dir)?;
            Ok(Changed { before: PreAttr::of(&before), after })
        })
        .await
    }

    /// See [`Folder::only`].
    fn check_only(&self, node: &Node) -> FsResult<()> {
        if self.only.is_none_or(|only| only == node.ino()) { Ok(()) } else { Err(FsError::NotFound) }
    }

    /// Returns the attributes of what lost the name.
    fn take_away(&self, cred: &Cred, dir: &Node, name: &[u8], victim: &Node) -> FsResult<Attr> {
        let _own = self.host.notices.own(&[Own::Goes(dir.ino(), name)]);
        let flags = if victim.is_dir() { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let unlink = || rustix::fs::unlinkat(&dir.fd, name, flags);
        acting(Identity::of(cred)?.as_ref(), unlink)?.map_err(failed)?;
        Ok(self.send_removed(dir, name, victim))
    }

    /// What a name leads to, if `cred` may remove it.
    fn removable(&self, cred: &Cred, dir: &Node, name: &[u8]) -> FsResult<Node> {
        self.host.admit()?;
        let parent = self.host.guarded(dir, cred)?;
        judge::require(&parent, cred, ACCESS_EXECUTE)?;
        let victim = self.host.child(dir, name)?;
        self.check_only(&victim)?;
        judge::may_remove(&parent, &self.host.guarded(&victim, cred)?, cred)?;
        Ok(victim)
    }

    /// Others hear of a name before it is flushed: another program may change it next, and its notice must not overtake this
    /// one.
    fn send_added(&self, dir: &Node, name: &[u8], kind: FileKind) {
        self.host.folded.lock().forget(dir.ino());
        let event = || Event::Added { origin: self.origin, dir: dir.ino(), name: Bytes::copy_from_slice(name), kind };
        self.host.events.send(event);
    }

    /// As [`Folder::send_added`]. Returns the attributes of what lost the name.
    fn send_removed(&self, dir: &Node, name: &[u8], victim: &Node) -> Attr {
        self.host.folded.lock().forget(dir.ino());
        let attr = self.host.again(victim).unwrap_or(Attr { nlink: 0, ..victim.attr });
        if attr.nlink == 0 {
            self.host.forget(victim.ino());
        }
        let (origin, dir, ino, kind) = (self.origin, dir.ino(), victim.ino(), attr.kind);
        let name = Bytes::copy_from_slice(name);
        self.host.events.send(|| Event::Removed { origin, dir, name, ino, kind });
        if attr.nlink > 0 {
            self.host.events.send(|| Event::Attr { origin, ino });
        }
        attr
    }

    pub async fn rename(
        &self,
        cred: &Cred,
        from: Ino,
        from_name: &[u8],
        to: Ino,
        to_name: &[u8],
        mode: RenameMode,
    ) -> FsResult<(Changed, Changed)> {
        judge::check_name(from_name)?;
        judge::check_name(to_name)?;
        if judge::is_dots(from_name) || judge::is_dots(to_name) {
            return Err(FsError::Invalid("'.' and '..' cannot be renamed"));
        }
        let (cred, from_name, to_name) = (cred.clone(), from_name.to_vec(), to_name.to_vec());
        self.run(move |folder| {
            if is_stream(from) || is_stream(to) {
                return folder.stream_rename(from, &from_name, to, &to_name, mode);
            }
            let host = &folder.host;
            let (from, to) = (host.node(from)?.directory()?, host.node(to)?.directory()?);
            judge::require(&host.guarded(&from, &cred)?, &cred, ACCESS_EXECUTE)?;
            judge::require(&host.guarded(&to, &cred)?, &cred, ACCESS_EXECUTE)?;
            let source = host.child(&from, &from_name)?;
            folder.check_only(&source)?;
            let target = match host.child(&to, &to_name) {
                Ok(target) => Some(target),
                Err(FsError::NotFound) => None,
                Err(error) => return Err(error),
            };
            let is_same_name = from.ino() == to.ino() && from_name == to_name;
            match &target {
                Some(target) if mode == RenameMode::NoReplace && !(is_same_name && target.ino() == source.ino()) => {
                    return Err(FsError::Exists);
                }
                None if mode == RenameMode::Exchange => return Err(FsError::NotFound),
                _ => {}
            }
            if target.as_ref().is_some_and(|target| target.ino() == source.ino()) {
                folder.flush_names(&[&from, &to])?;
                let (from, to) = (host.again(&from)?, host.again(&to)?);
                let same = |attr: Attr| Changed { before: PreAttr::of(&attr), after: attr };
                return Ok((same(from), same(to)));
            }
            folder.may_rename(&cred, &cred, &from, &to, &source, target.as_ref(), mode)?;
            let flags = match mode {
                RenameMode::Replace if target.is_some() => RenameFlags::empty(),
                // A name that came meanwhile was not judged.
                RenameMode::Replace | RenameMode::NoReplace => RenameFlags::NOREPLACE,
                RenameMode::Exchange => RenameFlags::EXCHANGE,
            };
            folder.moved(&cred, (&from, &from_name), (&to, &to_name), &source, target.as_ref(), flags)
        })
        .await
    }

    /// As [`larder_volume::Volume::set_aside`]: `cred` needs the right to remove, and none in `to`.
    pub async fn set_aside(
        &self,
        cred: &Cred,
        from: Ino,
        from_name: &[u8],
        to: Ino,
        to_name: &[u8],
        directory: bool,
    ) -> FsResult<(Attr, Changed)> {
        judge::check_name(from_name)?;
        judge::check_name(to_name)?;
        if judge::is_dots(from_name) || judge::is_dots(to_name) {
            return Err(FsError::Invalid("'.' and '..' cannot be removed"));
        }
        let (cred, from_name, to_name) = (cred.clone(), from_name.to_vec(), to_name.to_vec());
        self.run(move |folder| {
            let host = &folder.host;
            let (from, to) = (host.node(from)?.directory()?, host.node(to)?.directory()?);
            judge::require(&host.guarded(&from, &cred)?, &cred, ACCESS_EXECUTE)?;
            let source = host.child(&from, &from_name)?;
            folder.check_only(&source)?;
            match (directory, source.is_dir()) {
                (false, true) => return Err(FsError::IsDirectory),
                (true, false) => return Err(FsError::NotDirectory),
                (true, true) if host.is_top(source.ino()) => {
                    return Err(FsError::Busy("the folder is shared under a name of its own"));
                }
                _ => {}
            }
            if directory && !folder.is_empty(&source)? {
                return Err(FsError::NotEmpty);
            }
            folder.may_rename(&cred, &Cred::root(), &from, &to, &source, None, RenameMode::NoReplace)?;
            // The user may write in `to` as in `from`: a folder of the bin has the rights of the one that it stands for.
            let moved =
                folder.moved(&cred, (&from, &from_name), (&to, &to_name), &source, None, RenameFlags::NOREPLACE)?;
            Ok((host.again(&source)?, moved.0))
        })
        .await
    }

    /// `placing` is judged where the name goes.
    #[allow(clippy::too_many_arguments)]
    fn may_rename(
        &self,
        cred: &Cred,
        placing: &Cred,
        from: &Node,
        to: &Node,
        source: &Node,
        target: Option<&Node>,
        mode: RenameMode,
    ) -> FsResult<()> {
        let host = &self.host;
        host.admit()?;
        let (from_dir, moved) = (host.guarded(from, cred)?, host.guarded(source, cred)?);
        let to_dir = host.guarded(to, placing)?;
        judge::may_remove(&from_dir, &moved, cred)?;
        let crosses = from.ino() != to.ino();
        match target {
            None => judge::may_add(&to_dir, placing, source.attr.kind)?,
            Some(target) => {
                let replaced = host.guarded(target, placing)?;
                judge::may_remove(&to_dir, &replaced, placing)?;
                match (source.is_dir(), target.is_dir()) {
                    _ if mode == RenameMode::Exchange => {}
                    (true, false) => return Err(FsError::NotDirectory),
                    (false, true) => return Err(FsError::IsDirectory),
                    _ if host.is_top(target.ino()) => {
                        return Err(FsError::Busy("the folder is shared under a name of its own"));
                    }
                    _ => {}
                }
                if target.is_dir() && mode == RenameMode::Exchange && crosses {
                    judge::require(&replaced, placing, ACCESS_WRITE)?;
                }
            }
        }
        // Its '..' changes.
        if source.is_dir() && crosses {
            judge::require(&moved, placing, ACCESS_WRITE)?;
        }
        Ok(())
    }

    /// Moves a name, and returns the changes of both directories.
    fn moved(
        &self,
        cred: &Cred,
        (from, from_name): (&Node, &[u8]),
        (to, to_name): (&Node, &[u8]),
        source: &Node,
        target: Option<&Node>,
        flags: RenameFlags,
    ) -> FsResult<(Changed, Changed)> {
        let host = &self.host;
        let before = (host.again(from)?, host.again(to)?);
        let rename = || rustix::fs::renameat_with(&from.fd, from_name, &to.fd, to_name, flags);
        let own = [
            Own::Goes(from.ino(), from_name),
            Own::Comes(to.ino(), to_name),
            Own::Goes(to.ino(), to_name),
            Own::Comes(from.ino(), from_name),
        ];
        let exchanges = flags.contains(RenameFlags::EXCHANGE);
        let own = host.notices.own(if exchanges { &own } else { &own[..2] });
        acting(Identity::of(cred)?.as_ref(), rename)?.map_err(|error| match error {
            Errno::INVAL if !flags.is_empty() && !source.is_dir() => FsError::Refused(
                "the host's filesystem knows no renaming without replacing (RENAME_NOREPLACE) and no exchange of names"
                    .into(),
            ),
            error => failed(error),
        })?;
        [from, to].iter().for_each(|dir| host.folded.lock().forget(dir.ino()));
        host.remember(to.ino(), to_name, &source.attr);
        let exchanged = target.filter(|_| exchanges);
        if let Some(target) = exchanged {
            host.remember(from.ino(), from_name, &target.attr);
        } else if let Some(target) = target {
            self.send_removed(to, to_name, target);
        }
        let moved = |node: &Node, from: (&Node, &[u8]), to: (&Node, &[u8])| {
            host.events.send(|| Event::Renamed {
                origin: self.origin,
                from: from.0.ino(),
                from_name: Bytes::copy_from_slice(from.1),
                to: to.0.ino(),
                to_name: Bytes::copy_from_slice(to.1),
                ino: node.ino(),
                kind: node.attr.kind,
            });
        };
        moved(source, (from, from_name), (to, to_name));
        if let Some(target) = exchanged {
            moved(target, (to, to_name), (from, from_name));
        }
        drop(own);
        // Where it is now first: a crash between the two flushes leaves both names, or the new one.
        let after_to = self.named(to)?;
        let after_from = if from.ino() == to.ino() { after_to } else { self.named(from)? };
        let changed = |before: Attr, after| Changed { before: PreAttr::of(&before), after };
        Ok((changed(before.0, after_from), changed(before.1, after_to)))
    }
}
