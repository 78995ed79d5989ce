//! Procedures that change names: CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK.

use larder_fs::{Attr, Changed, CreateMode, FileKind, RenameMode, SYMLINK_BYTES_MAX, SetAttr};

use super::super::handle::HANDLE_BYTES_MAX;
use super::super::proto::{Fail, NAME_DECODED_MAX, Status, check_name};
use super::super::xdr::Reader;
use super::attrs::check_size;
use super::{Answer, Call};

/// Modes where the caller gives none, as with an exclusive CREATE until its SETATTR comes.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
const SYMLINK_MODE: u32 = 0o777;

fn with_mode(set: SetAttr, mode: u32) -> SetAttr {
    SetAttr { mode: set.mode.or(Some(mode)), ..set }
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// A name to be made: "." and ".." exist always.
fn check_new_name(name: &[u8]) -> Result<(), Fail> {
    check_name(name)?;
    if is_dots(name) { Err(Status::Exist.into()) } else { Ok(()) }
}

/// Refuses names that RENAME and REMOVE may not touch (RFC 1813 3.3.12 to 3.3.14).
fn check_old_name(name: &[u8]) -> Result<(), Fail> {
    check_name(name)?;
    if is_dots(name) { Err(Status::Inval.into()) } else { Ok(()) }
}

fn create_how(args: &mut Reader<'_>) -> Result<(CreateMode, SetAttr), Fail> {
    Ok(match args.u32()? {
        0 => (CreateMode::Unchecked, args.set_attr()?),
        1 => (CreateMode::Guarded, args.set_attr()?),
        2 => (CreateMode::Exclusive(args.fixed()?), SetAttr::default()),
        _ => return Err(Fail::Garbage),
    })
}

impl Call {
    /// The results of CREATE, MKDIR, SYMLINK and MKNOD: post_op_fh3, post_op_attr, wcc_data of the directory.
    fn made(&self, out: &mut Answer, made: &Attr, dir: &Changed) {
        out.w.status(Status::Ok);
        out.w.bool(true);
        out.w.opaque(&self.handle(made.id));
        out.w.post_attr(Some(made), self.fsid());
        out.w.wcc(dir, self.fsid());
    }

    /// 3.3.8
    pub(super) async fn create(&self, out: &mut Answer) -> Result<(), Fail> {
        let mut args = self.args();
        let name = args.name()?;
        let (how, set) = create_how(&mut args)?;
        check_new_name(name)?;
        check_size(&set)?;
        self.resolve().await?;
        let set = with_mode(set, FILE_MODE);
        let (made, _, dir) = self.files().create(&self.cred, self.id.ino, name, how, set).await?;
        self.made(out, &made, &dir);
        Ok(())
    }

    /// 3.3.9
    pub(super) async fn mkdir(&self, out: &mut Answer) -> Result<(), Fail> {
        let mut args = self.args();
        let (name, set) = (args.name()?, args.set_attr()?);
        check_new_name(name)?;
        self.resolve().await?;
        let (made, dir) = self.files().mkdir(&self.cred, self.id.ino, name, with_mode(set, DIRECTORY_MODE)).await?;
        self.made(out, &made, &dir);
        Ok(())
    }

    /// 3.3.10
    pub(super) async fn symlink(&self, out: &mut Answer) -> Result<(), Fail> {
        let mut args = self.args();
        let (name, set) = (args.name()?, args.set_attr()?);
        let target = args.opaque(NAME_DECODED_MAX)?;
        check_new_name(name)?;
        if target.len() > SYMLINK_BYTES_MAX {
            return Err(Status::NameTooLong.into());
        }
        if target.is_empty() || target.contains(&0) {
            return Err(Status::Inval.into());
        }
        self.resolve().await?;
        let set = with_mode(set, SYMLINK_MODE);
        let (made, dir) = self.files().symlink(&self.cred, self.id.ino, name, target, set).await?;
        self.made(out, &made, &dir);
        Ok(())
    }

    /// 3.3.11
    pub(super) async fn mknod(&self, out: &mut Answer) -> Result<(), Fail> {
        let mut args = self.args();
        let (name, kind) = (args.name()?, args.u32()?);
        let kind = match kind {
            3 => FileKind::BlockDevice,
            4 => FileKind::CharDevice,
            6 => FileKind::Socket,
            7 => FileKind::Fifo,
            // Files, directories and symbolic links have procedures of their own.
            _ => return Err(Status::BadType.into()),
        };
        let set = args.set_attr()?;
        let device = matches!(kind, FileKind::BlockDevice | FileKind::CharDevice);
        let rdev = if device { (args.u32()?, args.u32()?) } else { (0, 0) };
        check_new_name(name)?;
        self.resolve().await?;
        let set = with_mode(set, FILE_MODE);
        let (made, dir) = self.files().mknod(&self.cred, self.id.ino, name, kind, rdev, set).await?;
        self.made(out, &made, &dir);
        Ok(())
    }

    /// 3.3.12
    pub(super) async fn remove(&self, out: &mut Answer) -> Result<(), Fail> {
        let name = self.args().name()?;
        check_old_name(name)?;
        self.resolve().await?;
        let (_, dir) = self.files().unlink(&self.cred, self.id.ino, name).await?;
        out.w.status(Status::Ok);
        out.w.wcc(&dir, self.fsid());
        Ok(())
    }

    /// 3.3.13: INVAL for ".", EXIST for "..".
    pub(super) async fn rmdir(&self, out: &mut Answer) -> Result<(), Fail> {
        let name = self.args().name()?;
        check_name(name)?;
        match name {
            b"." => return Err(Status::Inval.into()),
            b".." => return Err(Status::Exist.into()),
            _ => {}
        }
        self.resolve().await?;
        let dir = self.files().rmdir(&self.cred, self.id.ino, name).await?;
        out.w.status(Status::Ok);
        out.w.wcc(&dir, self.fsid());
        Ok(())
    }

    /// 3.3.14
    pub(super) async fn rename(&self, out: &mut Answer) -> Result<(), Fail> {
        let mut args = self.args();
        let from_name = args.name()?;
        let (to_handle, to_name) = (args.opaque(HANDLE_BYTES_MAX)?, args.name()?);
        check_old_name(from_name)?;
        check_old_name(to_name)?;
        self.resolve().await?;
        let (to, _held) = self.resolve_second(to_handle).await?;
        let to = to.id.ino;
        let files = self.files();
        let (from_dir, to_dir) =
            files.rename(&self.cred, self.id.ino, from_name, to, to_name, RenameMode::Replace).await?;
        out.w.status(Status::Ok);
        out.w.wcc(&from_dir, self.fsid());
        out.w.wcc(&to_dir, self.fsid());
        Ok(())
    }

    /// 3.3.15
    pub(super) async fn link(&self, out: &mut Answer) -> Result<(), Fail> {
        let mut args = self.args();
        let (dir_handle, name) = (args.opaque(HANDLE_BYTES_MAX)?, args.name()?);
        check_new_name(name)?;
        self.resolve().await?;
        let (dir, _held) = self.resolve_second(dir_handle).await?;
        let dir = dir.id.ino;
        let (file, changed) = self.files().link(&self.cred, self.id.ino, dir, name).await?;
        out.w.status(Status::Ok);
        out.w.post_attr(Some(&file), self.fsid());
        out.w.wcc(&changed, self.fsid());
        Ok(())
    }
}
