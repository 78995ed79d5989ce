//! POSIX access control lists as Linux keeps them in extended attributes, in the rules that a volume keeps
//! (draft-ietf-nfsv4-acl-mapping-05).
//!
//! POSIX judges a caller by one class: the owner, a named user, the groups together, or others. A volume takes the first rule
//! that names a right. So behind the rule of a class stands a denial of the rights that only later classes are granted.

mod express;

use crate::acl::{
    ALWAYS, Acl, CREATOR_GROUP, CREATOR_OWNER, DELETE_CHILD, DIRECTORY_INHERIT, EXECUTE, FILE_INHERIT, INHERIT_ONLY,
    OWNING, READ_DATA, READING, Rights, Rule, WRITING, Who,
};
use bytes::Bytes;

pub use express::{Expressed, express, inherited};

/// `struct posix_acl_xattr_header` of linux/posix_acl_xattr.h: the version alone.
const HEADER_BYTES: usize = 4;
const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

/// `None` for bytes that are no list.
fn parse(bytes: &[u8]) -> Option<Vec<Entry>> {
    let (header, entries) = bytes.split_at_checked(HEADER_BYTES)?;
    if u32::from_le_bytes(header.try_into().ok()?) != VERSION || entries.len() % ENTRY_BYTES != 0 {
        return None;
    }
    let entry = |bytes: &[u8]| {
        let tag = u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?);
        let perm = u16::from_le_bytes(bytes.get(2..4)?.try_into().ok()?);
        let id = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
        let is_known = [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER].contains(&tag) && perm <= 7;
        is_known.then_some(Entry { tag, perm, id })
    };
    let entries: Option<Vec<Entry>> = entries.chunks_exact(ENTRY_BYTES).map(entry).collect();
    entries
        .filter(|entries| [USER_OBJ, GROUP_OBJ, OTHER].iter().all(|tag| entries.iter().any(|entry| entry.tag == *tag)))
}

/// The entries that say what the mode says.
fn of_mode(mode: u32) -> Vec<Entry> {
    let entry = |tag, shift: u32| Entry { tag, perm: (mode >> shift & 7) as u16, id: 0 };
    vec![entry(USER_OBJ, 6), entry(GROUP_OBJ, 3), entry(OTHER, 0)]
}

/// The list of a file or directory with these POSIX lists. `Ok(None)`: the mode says all there is. `Err`: bytes that are none.
#[allow(clippy::result_unit_err)]
pub fn convert(
    access: Option<&[u8]>,
    default: Option<&[u8]>,
    mode: u32,
    is_directory: bool,
) -> Result<Option<Acl>, ()> {
    if access.is_none() && default.is_none() {
        return Ok(None);
    }
    let access = access.map_or_else(|| Ok(of_mode(mode)), |bytes| parse(bytes).ok_or(()))?;
    let mut rules = rules(&access, is_directory, false);
    if let Some(default) = default {
        rules.extend(self::rules(&parse(default).ok_or(())?, true, true));
    }
    Ok(Some(Acl { is_protected: false, marks_inherited: false, rules }))
}

/// The rights of three permission bits.
fn rights(perm: u16, is_directory: bool) -> Rights {
    // Clients run executables themselves, so reading a file includes executing it. A directory is searched by us.
    let read = if is_directory { READ_DATA } else { READING };
    let write = if is_directory && perm & 1 != 0 { WRITING | DELETE_CHILD } else { WRITING };
    let bit = |bit, rights| if perm & bit != 0 { rights } else { 0 };
    ALWAYS | bit(4, read) | bit(2, write) | bit(1, EXECUTE)
}

/// Rules of one list, each class before the next.
fn rules(entries: &[Entry], is_directory: bool, inherited: bool) -> Vec<Rule> {
    let mask = entries.iter().find(|entry| entry.tag == MASK).map_or(7, |entry| entry.perm);
    let of = |tag: u16| entries.iter().filter(move |entry| entry.tag == tag);
    let masked = |entry: &Entry| rights(entry.perm & mask, is_directory);
    let creator = |sid: [u8; 12]| Who::Sid(Bytes::copy_from_slice(&sid));
    let (owner, group) = match inherited {
        true => (creator(CREATOR_OWNER), creator(CREATOR_GROUP)),
        false => (Who::Owner, Who::OwningGroup),
    };
    // (who, rights) by class; the groups are one class.
    let mut classes: Vec<Vec<(Who, Rights)>> = Vec::new();
    classes.extend(of(USER_OBJ).map(|entry| vec![(owner.clone(), rights(entry.perm, is_directory) | OWNING)]));
    classes.extend(of(USER).map(|entry| vec![(Who::User(entry.id), masked(entry))]));
    let groups = of(GROUP_OBJ).map(|entry| (group.clone(), masked(entry)));
    classes.push(groups.chain(of(GROUP).map(|entry| (Who::Group(entry.id), masked(entry)))).collect());
    classes.extend(of(OTHER).map(|entry| vec![(Who::Everyone, rights(entry.perm, is_directory))]));

    let flags = if inherited { FILE_INHERIT | DIRECTORY_INHERIT | INHERIT_ONLY } else { 0 };
    let mut rules = Vec::new();
    for (place, class) in classes.iter().enumerate() {
        let own = class.iter().fold(0, |all, (_, rights)| all | rights);
        let later = classes[place + 1..].iter().flatten().fold(0, |all, (_, rights)| all | rights);
        rules.extend(class.iter().map(|(who, rights)| Rule { allows: true, flags, rights: *rights, who: who.clone() }));
        // Of several groups of a caller any one may grant a right, so all are denied the same.
        let denied = later & !own;
        for (who, rights) in class {
            let denied = if class.len() > 1 { later & !rights } else { denied };
            if denied != 0 {
                rules.push(Rule { allows: false, flags, rights: denied, who: who.clone() });
            }
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::acl::WRITE_DATA;
    use crate::{Attr, Cred, FileId, FileKind, Ino};
    use larder_base::Timestamp;

    use super::*;

    fn encode(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(perm.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    fn attr(kind: FileKind) -> Attr {
        let zero = Timestamp::default();
        Attr {
            id: FileId { ino: Ino(9), generation: 0 },
            kind,
            mode: 0o640,
            nlink: 1,
            uid: 1000,
            gid: 100,
            size: 0,
            allocated: 0,
            rdev: (0, 0),
            atime: zero,
            mtime: zero,
            ctime: zero,
            btime: zero,
            change: 0,
            dos: 0,
        }
    }

    /// The permission bits r=4, w=2 of a caller, by the list.
    fn judged(acl: &Acl, uid: u32, groups: &[u32]) -> u16 {
        let rights = acl.rights(&attr(FileKind::File), &Cred::new(uid, groups[0], groups.to_vec()));
        (if rights & READ_DATA != 0 { 4 } else { 0 }) | (if rights & WRITE_DATA != 0 { 2 } else { 0 })
    }

    #[test]
    fn callers_get_the_rights_that_posix_gives_them() {
        let list = encode(&[
            (USER_OBJ, 4, 0),
            (USER, 6, 1001),
            (USER, 0, 1002),
            (GROUP_OBJ, 4, 0),
            (GROUP, 6, 200),
            (GROUP, 0, 300),
            (MASK, 6, 0),
            (OTHER, 6, 0),
        ]);
        let acl = convert(Some(&list), None, 0o464, false).unwrap().unwrap();
        for (uid, groups, wanted) in [
            (1000, &[100][..], 4), // the owner, though everybody else may write
            (1001, &[999], 6),     // a named user
            (1002, &[200], 0),     // a named user who may nothing, though a group may
            (5, &[100], 4),        // the file's group
            (5, &[100, 200], 6),   // any group that grants it
            (5, &[300], 0),        // a group that may nothing, though others may
            (5, &[300, 200], 6),
            (5, &[7], 6), // others
        ] {
            assert_eq!(judged(&acl, uid, groups), wanted, "uid {uid}, groups {groups:?}");
        }
    }

    #[test]
    fn the_mask_bounds_named_users_and_groups() {
        let list = encode(&[(USER_OBJ, 6, 0), (USER, 6, 1001), (GROUP_OBJ, 6, 0), (MASK, 4, 0), (OTHER, 0, 0)]);
        let acl = convert(Some(&list), None, 0o640, false).unwrap().unwrap();
        assert_eq!((judged(&acl, 1000, &[1]), judged(&acl, 1001, &[1]), judged(&acl, 5, &[100])), (6, 4, 4));
        assert_eq!(judged(&acl, 5, &[7]), 0);
    }

    #[test]
    fn default_lists_are_for_children() {
        let list = encode(&[(USER_OBJ, 7, 0), (USER, 7, 1001), (GROUP_OBJ, 5, 0), (MASK, 7, 0), (OTHER, 5, 0)]);
        let acl = convert(None, Some(&list), 0o750, true).unwrap().unwrap();
        let (own, handed): (Vec<_>, Vec<_>) = acl.rules.iter().partition(|rule| rule.flags == 0);
        assert!(own.iter().all(|rule| rule.who != Who::User(1001)), "{own:?}");
        assert!(handed.iter().all(|rule| rule.flags == FILE_INHERIT | DIRECTORY_INHERIT | INHERIT_ONLY));
        assert!(handed.iter().any(|rule| rule.who == Who::User(1001) && rule.allows));
    }

    #[test]
    fn other_bytes_are_refused() {
        let whole = encode(&[(USER_OBJ, 6, 0), (GROUP_OBJ, 4, 0), (OTHER, 0, 0)]);
        assert!(convert(Some(&whole), None, 0o640, false).is_ok());
        let torn = &whole[..whole.len() - 1];
        let unknown = encode(&[(USER_OBJ, 6, 0), (GROUP_OBJ, 4, 0), (OTHER, 0, 0), (0x40, 0, 0)]);
        let without_owner = encode(&[(GROUP_OBJ, 4, 0), (OTHER, 0, 0)]);
        for bytes in [&b""[..], b"\x01\0\0\0", torn, &unknown, &without_owner] {
            assert!(convert(Some(bytes), None, 0o640, false).is_err(), "{bytes:?}");
        }
    }
}
