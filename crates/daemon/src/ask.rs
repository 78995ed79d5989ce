//! What each door would answer a user, asked without doing anything.
//!
//! - `ask.same_judges`: an answer comes from the functions by which the door itself decides
//!   (the rights of an SMB open, and [`Tree::permits`](larder_files::Tree::permits)), so that the two cannot differ. Who came in is decided before, by
//!   [`larder_people::Share::entrance`].

use larder_files::Files;
use larder_fs::{ACCESS_EXECUTE, ACCESS_READ, ACCESS_WRITE, Attr, Cred, FileKind, FsError, FsResult, Ino, Wish};
use larder_people::Door;

use larder_smb::door as smb;

/// An operation that every door has, or nearly every one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// See that it is there, with its attributes.
    See,
    /// Anything that the volume judges.
    Do(Wish),
}

impl Op {
    /// The operations on a file.
    pub const OF_FILE: [(&str, Op); 8] = [
        ("see", Op::See),
        ("read", Op::Do(Wish::Read)),
        ("write", Op::Do(Wish::Write)),
        ("truncate", Op::Do(Wish::Truncate)),
        ("set-times", Op::Do(Wish::SetTimes)),
        ("set-mode", Op::Do(Wish::SetMode)),
        ("rename", Op::Do(Wish::Rename)),
        ("remove", Op::Do(Wish::Remove)),
    ];
    /// The operations on a folder.
    pub const OF_FOLDER: [(&str, Op); 9] = [
        ("see", Op::See),
        ("list", Op::Do(Wish::List)),
        ("enter", Op::Do(Wish::Enter)),
        ("add-file", Op::Do(Wish::AddFile)),
        ("add-folder", Op::Do(Wish::AddDirectory)),
        ("set-times", Op::Do(Wish::SetTimes)),
        ("set-mode", Op::Do(Wish::SetMode)),
        ("rename", Op::Do(Wish::Rename)),
        ("remove", Op::Do(Wish::Remove)),
    ];

    /// Whether it changes anything.
    pub fn changes(self) -> bool {
        !matches!(self, Op::See | Op::Do(Wish::Read | Wish::List | Wish::Enter))
    }
}

/// The identity and the bounds of a user who came in.
#[derive(Clone, Debug)]
pub struct Way {
    /// Whom the volume takes the user for.
    pub cred: Cred,
    /// Whether the share lets the user change anything.
    pub may_write: bool,
}

/// The reason for a refusal.
#[derive(Clone, Debug)]
pub enum Stop {
    /// The share lets the user read alone.
    ReadOnly,
    /// The object has the attribute READONLY.
    Attribute,
    /// The volume refuses it.
    Volume(FsError),
}

/// The answer to one question; `None`: the door has no such operation.
pub type Verdict = Option<Result<(), Stop>>;

/// An object, and the directory in which it was found.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Its attributes.
    pub attr: Attr,
    /// `None` for the root of a share.
    pub parent: Option<Ino>,
}

/// Whether the door would carry out `op` for somebody who came in by `way` and reached the object.
pub async fn verdict(door: Door, files: &Files, way: &Way, object: &Object, op: Op) -> FsResult<Verdict> {
    if op.changes() && !way.may_write {
        return Ok(has(door, op).then_some(Err(Stop::ReadOnly)));
    }
    let answer = match (door, op) {
        _ if !has(door, op) => return Ok(None),
        (Door::Smb { .. }, op) => by_rights(files, way, object, op).await?,
        (_, Op::See) => Ok(()),
        (Door::Nfs { .. }, Op::Do(Wish::Read)) => io(files, way, object, &[ACCESS_READ, ACCESS_EXECUTE]).await?,
        (Door::Nfs { .. }, Op::Do(Wish::Write)) => io(files, way, object, &[ACCESS_WRITE]).await?,
        (Door::Nfs { .. }, Op::Do(Wish::Truncate)) => {
            let cred = larder_nfs::truncating(&way.cred, &object.attr);
            permitted(files, &cred, object, Wish::Truncate, false).await?
        }
        (door, Op::Do(wish)) => permitted(files, &way.cred, object, wish, matches!(door, Door::Mount { .. })).await?,
    };
    Ok(Some(answer))
}

/// Whether the door has such an operation.
fn has(door: Door, op: Op) -> bool {
    !matches!((door, op), (Door::Webdav, Op::Do(Wish::Truncate | Wish::SetMode)))
}

async fn permitted(
    files: &Files,
    cred: &Cred,
    object: &Object,
    wish: Wish,
    by_bits: bool,
) -> FsResult<Result<(), Stop>> {
    stopped(files.permits(cred, object.attr.id.ino, object.parent, wish, by_bits).await)
}

/// A refusal is an answer; any other error is not.
fn stopped(result: FsResult<()>) -> FsResult<Result<(), Stop>> {
    match result {
        Ok(()) => Ok(Ok(())),
        Err(error @ (FsError::Access | FsError::NotPermitted | FsError::ReadOnly(_))) => Ok(Err(Stop::Volume(error))),
        Err(error) => Err(error),
    }
}

/// READ and WRITE of NFS.
async fn io(files: &Files, way: &Way, object: &Object, masks: &[u32]) -> FsResult<Result<(), Stop>> {
    let (attr, bits) = files.resolve_granted(&way.cred, object.attr.id).await?;
    let changes = masks == [ACCESS_WRITE];
    if changes {
        // A snapshot is refused before anybody's rights are looked at.
        let changed = files.permits(&Cred::root(), attr.id.ino, None, Wish::Write, false).await;
        if changed.is_err() {
            return stopped(changed);
        }
    }
    Ok(match larder_nfs::may_io(&way.cred, &attr, bits, masks) {
        true => Ok(()),
        false => Err(Stop::Volume(FsError::Access)),
    })
}

/// An open of SMB asks for rights.
async fn by_rights(files: &Files, way: &Way, object: &Object, op: Op) -> FsResult<Result<(), Stop>> {
    use larder_fs::acl;
    let Object { attr, parent } = object;
    let wanted = match op {
        Op::See => acl::READ_ATTRIBUTES,
        Op::Do(Wish::Read | Wish::List) => acl::READ_DATA,
        Op::Do(Wish::Write | Wish::Truncate) => acl::WRITE_DATA,
        Op::Do(Wish::SetTimes) => acl::WRITE_ATTRIBUTES,
        Op::Do(Wish::SetMode) => acl::WRITE_DAC,
        Op::Do(Wish::Rename | Wish::Remove) => acl::DELETE,
        Op::Do(wish @ (Wish::Enter | Wish::AddFile | Wish::AddDirectory)) => {
            return permitted(files, &way.cred, object, wish, false).await;
        }
    };
    let ino = attr.id.ino;
    if op.changes() {
        // Nothing of the past is changed, whatever an open of it was granted.
        let changed = files.permits(&Cred::root(), ino, *parent, Wish::SetMode, false).await;
        if changed.is_err() {
            return stopped(changed);
        }
    }
    let rights = files.rights(&way.cred, ino, *parent).await?;
    if wanted & !smb::granted(rights, attr, way.may_write) != 0 {
        if let Op::Do(Wish::Rename | Wish::Remove) = op {
            // The volume says which rule of the directory it was.
            let asked = permitted(files, &way.cred, object, Wish::Remove, false).await?;
            if asked.is_err() {
                return Ok(asked);
            }
        }
        let by_attribute = wanted & !smb::granted(rights, &Attr { dos: 0, ..*attr }, way.may_write) == 0;
        return Ok(Err(if by_attribute { Stop::Attribute } else { Stop::Volume(FsError::Access) }));
    }
    match op {
        Op::Do(Wish::Remove) if smb::is_kept(attr) => Ok(Err(Stop::Attribute)),
        Op::Do(Wish::Rename) => permitted(files, &way.cred, object, Wish::Rename, false).await,
        _ => Ok(Ok(())),
    }
}

/// Operations on an object of this kind.
pub fn operations(kind: FileKind) -> &'static [(&'static str, Op)] {
    match kind {
        FileKind::Directory => &Op::OF_FOLDER,
        _ => &Op::OF_FILE,
    }
}
