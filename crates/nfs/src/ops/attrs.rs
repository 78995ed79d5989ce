//! Procedures about one object and about the file system: GETATTR, SETATTR, LOOKUP, ACCESS, READLINK,
//! FSSTAT, FSINFO, PATHCONF.

use larder_fs::{
    ACCESS_EXECUTE, ACCESS_READ, ACCESS_WRITE, Attr, Cred, FILE_BYTES_MAX, FileKind, Ino, LINKS_MAX, NAME_BYTES_MAX,
    NameMatch, SetAttr, acl,
};

use super::super::proto::{Fail, Status, check_name};
use super::data::{IO_BYTES_MAX, LISTING_BYTES_PREFERRED};
use super::{Answer, Call};

/// RFC 1813 3.3.4.
const ACCESS3_READ: u32 = 0x01;
const ACCESS3_LOOKUP: u32 = 0x02;
const ACCESS3_MODIFY: u32 = 0x04;
const ACCESS3_EXTEND: u32 = 0x08;
const ACCESS3_DELETE: u32 = 0x10;
const ACCESS3_EXECUTE: u32 = 0x20;

/// FSF3_LINK, FSF3_SYMLINK, FSF3_HOMOGENEOUS, FSF3_CANSETTIME (3.3.19).
const FSF3_ALL: u32 = 0x01 | 0x02 | 0x08 | 0x10;

pub(super) fn check_size(set: &SetAttr) -> Result<(), Fail> {
    if set.size.is_some_and(|size| size > FILE_BYTES_MAX) { Err(Status::FBig.into()) } else { Ok(()) }
}

/// The caller of a change of the size alone. A client may truncate what its user opened for writing before the mode forbade
/// it: the owner's right to write is not asked for again.
pub fn truncating(cred: &Cred, attr: &Attr) -> Cred {
    Cred { checked: cred.checked || cred.uid == attr.uid, ..cred.clone() }
}

impl Call {
    /// 3.3.1
    pub(super) async fn get_attr(&self, out: &mut Answer) -> Result<(), Fail> {
        let attr = self.files().getattr_settled(self.id).await?;
        out.w.status(Status::Ok);
        out.w.attr(&attr, self.fsid());
        Ok(())
    }

    /// 3.3.2
    pub(super) async fn set_attr(&self, out: &mut Answer) -> Result<(), Fail> {
        let mut args = self.args();
        let mut set = args.set_attr()?;
        set.guard_ctime = if args.bool()? { Some(args.time()?) } else { None };
        check_size(&set)?;
        let attr = self.resolve().await?;
        // With a mode the right is asked for: whether setgid may stay is to be checked.
        let only_size = set.size.is_some() && set.uid.is_none() && set.gid.is_none() && set.mode.is_none();
        let cred = if only_size { truncating(&self.cred, &attr) } else { self.cred.clone() };
        let changed = self.files().setattr(&cred, self.id.ino, set).await?;
        out.w.status(Status::Ok);
        out.w.wcc(&changed, self.fsid());
        Ok(())
    }

    /// 3.3.3
    pub(super) async fn lookup(&self, out: &mut Answer) -> Result<(), Fail> {
        let name = self.args().name()?;
        check_name(name)?;
        let dir = self.resolve().await?;
        let root = self.export.export.root;
        let found = match name {
            b".." if root != Ino::ROOT => {
                // Searching the directory is needed for "..", too.
                self.files().lookup(&self.cred, self.id.ino, b".", NameMatch::Exact).await?;
                let parent = self.parent_within(dir.id.ino).await?;
                self.files().getattr(parent).await?
            }
            _ => self.files().lookup(&self.cred, self.id.ino, name, NameMatch::Exact).await?,
        };
        out.w.status(Status::Ok);
        out.w.opaque(&self.handle(found.id));
        out.w.post_attr(Some(&found), self.fsid());
        out.w.post_attr(Some(&dir), self.fsid());
        Ok(())
    }

    /// The parent of a directory; that of the export's root is the root. A directory that was moved out of the export is stale
    /// (`export.nothing_outside`).
    pub(super) async fn parent_within(&self, dir: Ino) -> Result<Ino, Fail> {
        Ok(self.files().parent_within(dir, self.export.export.root).await?)
    }

    /// 3.3.4
    pub(super) async fn access(&self, out: &mut Answer) -> Result<(), Fail> {
        let wanted = self.args().u32()?;
        let files = self.files();
        let (attr, bits) = files.resolve_granted(&self.cred, self.id).await?;
        let mut allowed = if bits & ACCESS_READ != 0 { ACCESS3_READ } else { 0 };
        let executes = bits & ACCESS_EXECUTE != 0;
        if attr.kind == FileKind::Directory {
            allowed |= if executes { ACCESS3_LOOKUP } else { 0 };
            if executes {
                // A list may let somebody add to a directory and not remove from it.
                let rights = files.rights(&self.cred, self.id.ino, None).await?;
                let writes = |right, bit| if rights & right != 0 { bit } else { 0 };
                allowed |= writes(acl::WRITE_DATA, ACCESS3_MODIFY)
                    | writes(acl::WRITE_DATA | acl::APPEND_DATA, ACCESS3_EXTEND)
                    | writes(acl::DELETE_CHILD, ACCESS3_DELETE);
            }
        } else {
            allowed |= if executes { ACCESS3_EXECUTE } else { 0 };
            allowed |= if bits & ACCESS_WRITE != 0 { ACCESS3_MODIFY | ACCESS3_EXTEND } else { 0 };
        }
        if self.read_only {
            allowed &= !(ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_DELETE);
        }
        out.w.status(Status::Ok);
        out.w.post_attr(Some(&attr), self.fsid());
        out.w.u32(allowed & wanted);
        Ok(())
    }

    /// 3.3.5
    pub(super) async fn read_link(&self, out: &mut Answer) -> Result<(), Fail> {
        let attr = self.resolve().await?;
        if attr.kind != FileKind::Symlink {
            return Err(Status::Inval.into());
        }
        let target = self.files().readlink(self.id.ino).await?;
        out.w.status(Status::Ok);
        out.w.post_attr(Some(&attr), self.fsid());
        out.w.opaque(&target);
        Ok(())
    }

    /// 3.3.18
    pub(super) async fn fs_stat(&self, out: &mut Answer) -> Result<(), Fail> {
        let attr = self.resolve().await?;
        let room = self.files().statfs(&self.cred);
        out.w.status(Status::Ok);
        out.w.post_attr(Some(&attr), self.fsid());
        for value in [room.total_bytes, room.free_bytes, room.available_bytes] {
            out.w.u64(value);
        }
        for value in [room.total_files, room.free_files, room.free_files] {
            out.w.u64(value);
        }
        // invarsec: it may change at any time.
        out.w.u32(0);
        Ok(())
    }

    /// 3.3.19
    pub(super) async fn fs_info(&self, out: &mut Answer) -> Result<(), Fail> {
        /// A good multiple for requests (rtmult, wtmult).
        const MULTIPLE: u32 = 4096;
        let attr = self.resolve().await?;
        out.w.status(Status::Ok);
        out.w.post_attr(Some(&attr), self.fsid());
        for word in [IO_BYTES_MAX, IO_BYTES_MAX, MULTIPLE, IO_BYTES_MAX, IO_BYTES_MAX, MULTIPLE] {
            out.w.u32(word);
        }
        out.w.u32(LISTING_BYTES_PREFERRED);
        out.w.u64(FILE_BYTES_MAX);
        // time_delta: one nanosecond.
        out.w.u32(0);
        out.w.u32(1);
        out.w.u32(FSF3_ALL);
        Ok(())
    }

    /// 3.3.20
    pub(super) async fn path_conf(&self, out: &mut Answer) -> Result<(), Fail> {
        let attr = self.resolve().await?;
        out.w.status(Status::Ok);
        out.w.post_attr(Some(&attr), self.fsid());
        out.w.u32(LINKS_MAX);
        out.w.length(NAME_BYTES_MAX);
        // no_trunc, chown_restricted; not case_insensitive; case_preserving.
        for flag in [true, true, false, true] {
            out.w.bool(flag);
        }
        Ok(())
    }
}
