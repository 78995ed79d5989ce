//! Questions about permissions that are asked before anything is done, and what decides about them.
//!
//! - `permit.same_judges`: the answer comes from the functions of `access` that judge the change
//!   itself, in the same order. So an answer is what the change would get.

use std::sync::Arc;

use crate::access;
use crate::acl::{self, Acl, Guarded, Rule};
use crate::words::*;
use crate::{FsError, FsResult};

/// Something that a user may want to do with a file or a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Read the content of a file.
    Read,
    /// Change the content of a file.
    Write,
    /// Change the size of a file by its name.
    Truncate,
    /// Set its times to certain ones.
    SetTimes,
    /// Set its mode.
    SetMode,
    /// Give it another name in the same directory.
    Rename,
    /// Remove it.
    Remove,
    /// List a directory.
    List,
    /// Look names up in a directory.
    Enter,
    /// Make a file in a directory.
    AddFile,
    /// Make a directory in a directory.
    AddDirectory,
}

impl Wish {
    /// Whether it changes anything.
    pub fn changes(self) -> bool {
        !matches!(self, Wish::Read | Wish::List | Wish::Enter)
    }

    /// Whether the directory decides, too.
    pub fn asks_parent(self) -> bool {
        matches!(self, Wish::Rename | Wish::Remove)
    }

    /// The rights of a list that it needs of the object itself, or of the directory if it is a removal.
    fn rights(self) -> acl::Rights {
        match self {
            Wish::Read | Wish::List => acl::READ_DATA,
            Wish::Write | Wish::Truncate | Wish::AddFile => acl::WRITE_DATA,
            Wish::AddDirectory => acl::APPEND_DATA,
            Wish::SetTimes => acl::WRITE_ATTRIBUTES,
            Wish::SetMode => acl::WRITE_DAC,
            Wish::Rename | Wish::Remove => acl::DELETE_CHILD,
            Wish::Enter => acl::EXECUTE,
        }
    }
}

/// The class of users whose mode bits decide about somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeClass {
    /// Root passes.
    Root,
    /// The owner.
    Owner,
    /// A member of the group, who is not the owner.
    Group,
    /// Everybody else.
    Others,
}

/// The facts that decided about a wish.
#[derive(Clone, Debug)]
pub enum Grounds {
    /// Mode bits: the class that counts, and its bits (rwx).
    Mode(ModeClass, u32),
    /// A list: the first rule that names the right, by its place; `None` if no rule does.
    List(Option<(usize, Rule)>),
}

/// Whether `cred` may do `wish` to `object` in the directory `parent`, which removals need.
pub fn permitted(object: &Guarded, parent: Option<&Guarded>, cred: &Cred, wish: Wish) -> FsResult<()> {
    let set = |set: SetAttr| access::may_set(object, cred, &set);
    match wish {
        Wish::Read | Wish::List => access::require(object, cred, ACCESS_READ),
        Wish::Write => access::require(object, cred, ACCESS_WRITE),
        Wish::Truncate => set(SetAttr { size: Some(0), ..SetAttr::default() }),
        Wish::Enter => access::require(object, cred, ACCESS_EXECUTE),
        Wish::SetTimes => {
            let time = SetTime::To(object.attr.mtime);
            set(SetAttr { mtime: Some(time), ..SetAttr::default() })
        }
        Wish::SetMode => set(SetAttr { mode: Some(object.attr.mode), ..SetAttr::default() }),
        Wish::AddFile => access::may_add(object, cred, FileKind::File),
        Wish::AddDirectory => access::may_add(object, cred, FileKind::Directory),
        Wish::Rename | Wish::Remove => {
            let parent = parent.ok_or(FsError::NotPermitted)?;
            access::may_remove(parent, object, cred)?;
            match wish {
                Wish::Rename => access::may_add(parent, cred, object.attr.kind),
                _ => Ok(()),
            }
        }
    }
}

/// The facts that decide about `wish` to `object`.
pub fn grounds_of(object: &Guarded, cred: &Cred, wish: Wish) -> Grounds {
    let Guarded { attr, acl } = object;
    match acl {
        _ if cred.uid == 0 => Grounds::Mode(ModeClass::Root, 7),
        Some(acl) => Grounds::List(first_rule(acl, attr, cred, wish)),
        None if cred.uid == attr.uid => Grounds::Mode(ModeClass::Owner, access::class_bits(attr, cred)),
        None if cred.in_group(attr.gid) => Grounds::Mode(ModeClass::Group, access::class_bits(attr, cred)),
        None => Grounds::Mode(ModeClass::Others, access::class_bits(attr, cred)),
    }
}

fn first_rule(acl: &Arc<Acl>, attr: &Attr, cred: &Cred, wish: Wish) -> Option<(usize, Rule)> {
    acl.deciding(attr, cred, wish.rights()).map(|(at, rule)| (at, rule.clone()))
}
