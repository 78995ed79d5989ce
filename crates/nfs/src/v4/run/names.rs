//! LOOKUP, LOOKUPP, CREATE, REMOVE, RENAME, LINK (RFC 8881 18.4, 18.9, 18.13, 18.14, 18.25, 18.26).

use larder_fs::{FileId, FileKind, FsError, Ino, NameMatch, RenameMode, SYMLINK_BYTES_MAX, SetAttr};

use super::super::asked::Asked;
use super::super::bitmap::Bitmap;
use super::super::compound::CompoundReply;
use super::super::convert::{change_of, check_name, stat_of};
use super::super::ops::{ArgOp, CreateArgs, CreateKind, CreateOk, RenameArgs, RenameOk, ResOp};
use super::super::place::{Object, Place, PseudoDir, PseudoEntry};
use super::super::types::{ChangeInfo, FileType4, NfsStat};
use super::Run;
use super::attributes::set_list;

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const SYMLINK_MODE: u32 = 0o777;

impl<'m> Run<'m> {
    pub(super) async fn name_operation(&mut self, op: ArgOp<'m>, reply: &mut CompoundReply) {
        match op {
            ArgOp::Lookup(name) => {
                let found = self.lookup_place(name.0).await;
                let done = self.put(found);
                self.push(reply, &ResOp::Lookup(done));
            }
            ArgOp::LookupParent(()) => {
                let found = self.parent_place().await;
                let done = self.put(found);
                self.push(reply, &ResOp::LookupParent(done));
            }
            ArgOp::Create(args) => {
                let done = Box::pin(self.create(&args)).await;
                self.push(reply, &ResOp::Create(done));
            }
            ArgOp::Remove(name) => {
                let done = Box::pin(self.remove(name.0)).await;
                self.push(reply, &ResOp::Remove(done));
            }
            ArgOp::Rename(args) => {
                let done = Box::pin(self.rename(&args)).await;
                self.push(reply, &ResOp::Rename(done));
            }
            ArgOp::Link(name) => {
                let done = Box::pin(self.link(name.0)).await;
                self.push(reply, &ResOp::Link(done));
            }
            other => self.push(reply, &ResOp::failed(other.number(), NfsStat::ServerFault)),
        }
    }

    /// The place that a name in the current directory leads to.
    pub(super) async fn lookup_place(&self, name: &[u8]) -> Result<Place, NfsStat> {
        match self.place()? {
            Place::Pseudo(dir) => {
                check_name(name)?;
                match self.caller.pseudo_lookup(dir, name)? {
                    PseudoEntry::Dir(dir) => Ok(Place::Pseudo(dir)),
                    PseudoEntry::Export(export) => self.caller.enter(&export).await.map(Place::Object),
                }
            }
            Place::Object(object) => {
                object.dir().await?;
                check_name(name)?;
                let files = object.files();
                let found = files.lookup(&object.cred, object.id.ino, name, NameMatch::Exact).await;
                let found = found.map_err(|error| stat_of(&error))?;
                object.beside(found.id).await.map(Place::Object)
            }
        }
    }

    /// The parent of the current directory; that of an export's root is in the pseudo file system
    /// (`export.nothing_outside`).
    pub(super) async fn parent_place(&self) -> Result<Place, NfsStat> {
        let object = match self.place()? {
            Place::Pseudo(dir) => return dir.parent().map(Place::Pseudo).ok_or(NfsStat::NoEnt),
            Place::Object(object) => object,
        };
        object.dir().await?;
        if object.is_root() {
            let above = object.export.path.rsplit_once('/').map_or("", |(above, _)| above);
            if object.export.path == "/" {
                return Err(NfsStat::NoEnt);
            }
            return Ok(Place::Pseudo(PseudoDir::at(above)));
        }
        let files = object.files();
        // Searching the directory is needed for its parent, too.
        files.lookup(&object.cred, object.id.ino, b".", NameMatch::Exact).await.map_err(|error| stat_of(&error))?;
        let parent = files.parent_within(object.id.ino, object.export.export.root).await;
        let parent = files.getattr(parent.map_err(|error| stat_of(&error))?).await.map_err(|error| stat_of(&error))?;
        object.beside(parent.id).await.map(Place::Object)
    }

    async fn create(&mut self, args: &CreateArgs<'_>) -> Result<CreateOk, NfsStat> {
        let dir = self.object(NfsStat::RoFs)?;
        // The type is judged first: there are things that CREATE never makes.
        match args.kind {
            CreateKind::Link(target) if target.0.len() > SYMLINK_BYTES_MAX => return Err(NfsStat::NameTooLong),
            CreateKind::Link(target) if target.0.is_empty() || target.0.contains(&0) => return Err(NfsStat::Inval),
            CreateKind::Plain(FileType4::Directory | FileType4::Socket | FileType4::Fifo)
            | CreateKind::Link(_)
            | CreateKind::Device(..) => {}
            CreateKind::Plain(_) | CreateKind::Other(_) => return Err(NfsStat::BadType),
        }
        dir.dir().await?;
        check_name(args.name.0)?;
        let asked = Asked::parse(&args.attrs, self.minor, &dir.export.owners, true)?;
        if asked.size().is_some() {
            return Err(NfsStat::Inval);
        }
        let is_dir = matches!(args.kind, CreateKind::Plain(FileType4::Directory));
        asked.list.as_ref().map_or(Ok(()), |list| list.check(is_dir))?;
        dir.may_change()?;
        let usual_mode = match args.kind {
            CreateKind::Link(_) => SYMLINK_MODE,
            _ if is_dir => DIRECTORY_MODE,
            _ => FILE_MODE,
        };
        let set = self.set_of_new(&dir, &asked, usual_mode).await?;
        let (id, change) = make(&dir, args, set).await.map_err(|error| stat_of(&error))?;
        let object = dir.beside(id).await?;
        if let Some(list) = asked.list {
            Box::pin(set_list(&object, list)).await?;
        }
        self.put(Ok(Place::Object(object)))?;
        Ok(CreateOk { change, set: asked.mask })
    }

    /// What something new in a directory is made with.
    pub(super) async fn set_of_new(&self, dir: &Object, asked: &Asked, usual_mode: u32) -> Result<SetAttr, NfsStat> {
        let hands_on = asked.has_umask() && {
            let (_, list) = Box::pin(dir.files().acl(dir.id.ino)).await.map_err(|error| stat_of(&error))?;
            list.is_some_and(|list| list.hands_on())
        };
        Ok(asked.of_new(hands_on, usual_mode))
    }

    async fn remove(&mut self, name: &[u8]) -> Result<ChangeInfo, NfsStat> {
        let dir = self.object(NfsStat::RoFs)?;
        dir.dir().await?;
        check_name(name)?;
        dir.may_change()?;
        self.awaits_no_reclaims(&dir).await?;
        self.named_is_free(&dir, name).await?;
        let (files, cred, ino) = (dir.files(), &dir.cred, dir.id.ino);
        let changed = match files.unlink(cred, ino, name).await {
            Ok((_, changed)) => Ok(changed),
            Err(FsError::IsDirectory) => files.rmdir(cred, ino, name).await,
            Err(error) => Err(error),
        };
        changed.map(|changed| change_of(files, &changed)).map_err(|error| stat_of(&error))
    }

    /// Both directories of RENAME and LINK, the saved one first.
    fn saved_and_current(&self) -> Result<(Object, Object), NfsStat> {
        let current = self.place()?;
        match (self.saved.as_ref().ok_or(NfsStat::NoFileHandle)?, current) {
            (Place::Object(saved), Place::Object(current)) if saved.export.key == current.export.key => {
                Ok((saved.clone(), current.clone()))
            }
            (Place::Pseudo(_), Place::Pseudo(_)) => Err(NfsStat::RoFs),
            _ => Err(NfsStat::XDev),
        }
    }

    async fn rename(&mut self, args: &RenameArgs<'_>) -> Result<RenameOk, NfsStat> {
        let (from, to) = self.saved_and_current()?;
        from.dir().await?;
        to.dir().await?;
        check_name(args.from.0)?;
        check_name(args.to.0)?;
        to.may_change()?;
        if to.files().lookup(&to.cred, to.id.ino, args.to.0, NameMatch::Exact).await.is_ok() {
            self.awaits_no_reclaims(&to).await?;
        }
        self.named_is_free(&from, args.from.0).await?;
        self.named_is_free(&to, args.to.0).await?;
        let renamed = to
            .files()
            .rename(&to.cred, from.id.ino, args.from.0, to.id.ino, args.to.0, RenameMode::Replace)
            .await
            .map_err(|error| match error {
                // RFC 8881 18.26.3: incompatible types, or a directory that is not empty.
                FsError::IsDirectory | FsError::NotDirectory | FsError::NotEmpty => NfsStat::Exist,
                error => stat_of(&error),
            })?;
        let files = to.files();
        Ok(RenameOk { source: change_of(files, &renamed.0), target: change_of(files, &renamed.1) })
    }

    async fn link(&mut self, name: &[u8]) -> Result<ChangeInfo, NfsStat> {
        let (file, dir) = self.saved_and_current()?;
        dir.dir().await?;
        if file.resolve().await?.kind == FileKind::Directory {
            return Err(NfsStat::IsDir);
        }
        check_name(name)?;
        dir.may_change()?;
        self.excluded_by_delegation(&file).await?;
        let linked = dir.files().link(&dir.cred, file.id.ino, dir.id.ino, name).await;
        linked.map(|(_, changed)| change_of(dir.files(), &changed)).map_err(|error| stat_of(&error))
    }

    /// NFS4ERR_GRACE while clients take back what they had: a file that loses its name may be theirs, and would not be there any more.
    /// The handle of a file that is merely renamed still leads to it.
    async fn awaits_no_reclaims(&self, dir: &Object) -> Result<(), NfsStat> {
        let volume = self.v4.volume(dir.files()).await?;
        let is_in_grace = self.v4.lock().is_in_grace(volume.book());
        if is_in_grace { Err(NfsStat::Grace) } else { Ok(()) }
    }

    /// The file of a name that is about to go is delegated to nobody else.
    async fn named_is_free(&self, dir: &Object, name: &[u8]) -> Result<(), NfsStat> {
        if !self.v4.has_delegations() {
            return Ok(());
        }
        match dir.files().lookup(&dir.cred, dir.id.ino, name, NameMatch::Exact).await {
            Ok(found) => self.excluded(dir, found.id.ino).await,
            Err(_) => Ok(()),
        }
    }

    /// NFS4ERR_DELAY while another client's delegation excludes a change of the object (`state.conflict_recalls`).
    pub(super) async fn excluded_by_delegation(&self, object: &Object) -> Result<(), NfsStat> {
        self.excluded(object, object.id.ino).await
    }

    async fn excluded(&self, object: &Object, ino: Ino) -> Result<(), NfsStat> {
        if !self.v4.has_delegations() {
            return Ok(());
        }
        let conflict = || -> Result<_, NfsStat> {
            let mut state = self.v4.lock();
            let file = Self::key(&mut state, object.files(), ino)?;
            Ok((file, state.states.conflict(file, self.client, true)))
        };
        let (file, mut done) = conflict()?;
        if done.is_err() && Box::pin(self.end_silent(file, self.client)).await? {
            done = conflict()?.1;
        }
        if done.is_err() {
            self.v4.recalls_wait();
        }
        done
    }
}

async fn make(dir: &Object, args: &CreateArgs<'_>, set: SetAttr) -> Result<(FileId, ChangeInfo), FsError> {
    let (files, cred, ino, name) = (dir.files(), &dir.cred, dir.id.ino, args.name.0);
    let (made, changed) = match args.kind {
        CreateKind::Link(target) => files.symlink(cred, ino, name, target.0, set).await?,
        CreateKind::Device(kind, number) => {
            let kind = if kind == FileType4::Block { FileKind::BlockDevice } else { FileKind::CharDevice };
            files.mknod(cred, ino, name, kind, (number.major, number.minor), set).await?
        }
        CreateKind::Plain(FileType4::Fifo) => files.mknod(cred, ino, name, FileKind::Fifo, (0, 0), set).await?,
        CreateKind::Plain(FileType4::Socket) => files.mknod(cred, ino, name, FileKind::Socket, (0, 0), set).await?,
        _ => files.mkdir(cred, ino, name, set).await?,
    };
    Ok((made.id, change_of(files, &changed)))
}

/// No attribute was set.
pub(super) const NOTHING_SET: Bitmap = Bitmap::EMPTY;
