//! Lists as SMB sets them, in mode bits and POSIX lists.
//!
//! - `express.never_more`: the POSIX list grants no caller a right to data that the rules deny him. Rules that would need that are
//!   not expressed at all.
//! - `express.alone_the_same`: a caller whom one rule names, or none, gets the same rights to data by both. One whom several
//!   name may get less: POSIX takes a user's own entry in place of his groups'.
//! - `express.data_alone`: what POSIX has no bits for (DELETE, WRITE_DAC, WRITE_OWNER) follows from owner and folder, as for every
//!   other file of the host. Marks of inheritance and rules about nobody here are dropped.

use crate::acl::{
    APPEND_DATA, Acl, CREATOR_GROUP, CREATOR_OWNER, DIRECTORY_INHERIT, EXECUTE, FILE_INHERIT, INHERIT_ONLY,
    NO_PROPAGATE, READ_DATA, Rights, Rule, WRITE_DATA, Who,
};
use crate::{Attr, Cred, FileKind};

use super::{ENTRY_BYTES, Entry, GROUP, GROUP_OBJ, HEADER_BYTES, MASK, OTHER, USER, USER_OBJ, VERSION, parse, rules};

/// Users and groups of a list. More of them are not compared pair by pair.
const NAMED_MAX: usize = 64;
const BOTH_INHERIT: u8 = FILE_INHERIT | DIRECTORY_INHERIT;
const READ: u16 = 4;
const WRITE: u16 = 2;
const PASS: u16 = 1;
/// S-1-3-4 and S-1-5-11, whose meaning no POSIX entry has.
const INEXPRESSIBLE: [[u8; 12]; 2] = [[1, 1, 0, 0, 0, 0, 0, 3, 4, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0, 5, 11, 0, 0, 0]];

/// What the host keeps in place of rules.
#[derive(Debug, PartialEq, Eq)]
pub struct Expressed {
    /// The permission bits, 0 to 0o777.
    pub permissions: u32,
    /// `system.posix_acl_access`, where the bits do not say everything.
    pub access: Option<Vec<u8>>,
    /// `system.posix_acl_default`, where the directory hands rules on.
    pub default: Option<Vec<u8>>,
}

/// The rules of a file or directory with these attributes. `None`: mode and POSIX lists cannot say it.
pub fn express(acl: &Acl, attr: &Attr) -> Option<Expressed> {
    let own: Vec<Rule> = acl.rules.iter().filter(|rule| rule.flags & INHERIT_ONLY == 0).cloned().collect();
    let access = entries(&own, attr)?;
    let handed: Vec<&Rule> = acl.rules.iter().filter(|rule| rule.flags & BOTH_INHERIT != 0).collect();
    let default = match attr.kind {
        FileKind::Directory if !handed.is_empty() => Some(default_entries(&handed, attr, &access)?),
        _ => None,
    };
    let bits = |tag| access.iter().find(|entry| entry.tag == tag).map_or(0, |entry| u32::from(entry.perm));
    let group = if access.iter().any(|entry| entry.tag == MASK) { bits(MASK) } else { bits(GROUP_OBJ) };
    Some(Expressed {
        permissions: bits(USER_OBJ) << 6 | group << 3 | bits(OTHER),
        access: (access.len() > 3).then(|| encode(&access)),
        default: default.map(|entries| encode(&entries)),
    })
}

/// The list that a file or directory gets in a directory that hands `default` on (acl(5), "Object creation and default ACLs").
/// `mode` is the one it was asked for with; one without bits for group and others keeps it private, and one with them bounds
/// nothing, since clients have taken an umask off. `None` for bytes that are no list.
pub fn inherited(default: &[u8], mode: u32, is_directory: bool) -> Option<Vec<u8>> {
    let all = if is_directory { 0o077 } else { 0o066 };
    let bound = if mode & 0o077 == 0 { mode } else { mode & 0o777 | all };
    let mut entries = parse(default)?;
    let has_mask = entries.iter().any(|entry| entry.tag == MASK);
    for entry in &mut entries {
        let shift = match entry.tag {
            USER_OBJ => 6,
            MASK => 3,
            GROUP_OBJ if !has_mask => 3,
            OTHER => 0,
            _ => continue,
        };
        entry.perm &= (bound >> shift & 7) as u16;
    }
    Some(encode(&entries))
}

fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + entries.len() * ENTRY_BYTES);
    bytes.extend(VERSION.to_le_bytes());
    for Entry { tag, perm, id } in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// The rules that children get, as a list of their own. Its owner and group are those who will make them; where no rule is about
/// these, they get what they have on the directory itself.
fn default_entries(handed: &[&Rule], attr: &Attr, access: &[Entry]) -> Option<Vec<Entry>> {
    let is_whole = |rule: &&Rule| rule.flags & BOTH_INHERIT == BOTH_INHERIT && rule.flags & NO_PROPAGATE == 0;
    if !handed.iter().all(is_whole) {
        return None;
    }
    let is = |who: &Who, sid: [u8; 12]| matches!(who, Who::Sid(own) if **own == sid);
    let child = |rule: &&Rule| {
        let who = match &rule.who {
            who if is(who, CREATOR_OWNER) => Who::Owner,
            who if is(who, CREATOR_GROUP) => Who::OwningGroup,
            Who::Owner => Who::User(attr.uid),
            Who::OwningGroup => Who::Group(attr.gid),
            who => who.clone(),
        };
        Rule { flags: 0, who, rights: crate::acl::specific(rule.rights), ..(*rule).clone() }
    };
    let rules: Vec<Rule> = handed.iter().map(child).collect();
    let unused = unused_id(&rules, attr);
    let mut entries = entries(&rules, &Attr { uid: unused, gid: unused, ..*attr })?;
    for (who, tag) in [(Who::Owner, USER_OBJ), (Who::OwningGroup, GROUP_OBJ)] {
        if !rules.iter().any(|rule| rule.who == who) {
            let own = access.iter().find(|entry| entry.tag == tag).map_or(0, |entry| entry.perm);
            entries.iter_mut().filter(|entry| entry.tag == tag).for_each(|entry| entry.perm = own);
        }
    }
    with_mask(&mut entries);
    Some(entries)
}

/// A number that no rule is about.
fn unused_id(rules: &[Rule], attr: &Attr) -> u32 {
    let is_used = |id: u32| {
        id == attr.uid
            || id == attr.gid
            || rules.iter().any(|rule| rule.who == Who::User(id) || rule.who == Who::Group(id))
    };
    (0..u32::MAX - 1).rev().find(|id| !is_used(*id)).unwrap_or(u32::MAX - 1)
}

/// The users and groups that rules name, besides owner and owning group.
struct Named {
    users: Vec<u32>,
    groups: Vec<u32>,
}

fn named(rules: &[Rule], attr: &Attr) -> Option<Named> {
    let mut all = Named { users: Vec::new(), groups: Vec::new() };
    for rule in rules {
        match &rule.who {
            Who::User(uid) if *uid != attr.uid => all.users.push(*uid),
            Who::Group(gid) if *gid != attr.gid => all.groups.push(*gid),
            Who::Sid(sid) if INEXPRESSIBLE.iter().any(|known| **sid == *known) => return None,
            _ => {}
        }
    }
    for ids in [&mut all.users, &mut all.groups] {
        ids.sort_unstable();
        ids.dedup();
    }
    (all.users.len() + all.groups.len() <= NAMED_MAX).then_some(all)
}

/// `None`: the host has no bits for it.
fn bits(rights: Rights, is_directory: bool) -> Option<u16> {
    let write = match rights & (WRITE_DATA | APPEND_DATA) {
        0 => 0,
        both if both == WRITE_DATA | APPEND_DATA => WRITE,
        _ => return None,
    };
    let read = if rights & READ_DATA != 0 { READ } else { 0 };
    let pass = if is_directory && rights & EXECUTE != 0 { PASS } else { 0 };
    Some(read | write | pass)
}

/// A denial of what POSIX has no bits for, and of nothing else.
fn denies_more(rule: &Rule) -> bool {
    const DATA: Rights = READ_DATA | WRITE_DATA | APPEND_DATA | EXECUTE;
    !rule.allows && rule.rights != 0 && rule.rights & DATA == 0
}

/// The entries of a list, in the order that the kernel wants.
fn entries(own: &[Rule], attr: &Attr) -> Option<Vec<Entry>> {
    let is_directory = attr.kind == FileKind::Directory;
    if own.iter().any(denies_more) {
        return None;
    }
    let Named { users, groups } = named(own, attr)?;
    let nobody = unused_id(own, attr);
    let acl = Acl { is_protected: false, marks_inherited: false, rules: own.to_vec() };
    let judged = |acl: &Acl, uid: u32, gids: &[u32]| {
        let rights = acl.rights(attr, &Cred::new(uid, gids.first().copied().unwrap_or(nobody), gids.to_vec()));
        bits(rights, is_directory)
    };
    // The execute bits of a file stay: whoever reads a program may run it.
    let ran = |shift: u32, perm: u16| if is_directory { perm } else { perm | (attr.mode >> shift) as u16 & PASS };
    let ran_by_named = |perm: u16| if perm & READ != 0 { ran(6, perm) } else { perm };
    let entry = |tag, id, perm| Entry { tag, perm, id };
    let mut entries = vec![entry(USER_OBJ, NO_ID, ran(6, judged(&acl, attr.uid, &[])?))];
    for uid in &users {
        entries.push(entry(USER, *uid, ran_by_named(judged(&acl, *uid, &[])?)));
    }
    entries.push(entry(GROUP_OBJ, NO_ID, ran(3, judged(&acl, nobody, &[attr.gid])?)));
    for gid in &groups {
        entries.push(entry(GROUP, *gid, ran_by_named(judged(&acl, nobody, &[*gid])?)));
    }
    entries.push(entry(OTHER, NO_ID, ran(0, judged(&acl, nobody, &[])?)));
    with_mask(&mut entries);
    // `express.never_more`: with every caller whom two rules may be about.
    let posix = Acl { rules: rules(&entries, is_directory, false), ..acl.clone() };
    let callers: Vec<u32> = users.iter().chain([&attr.uid, &nobody]).copied().collect();
    let groups: Vec<u32> = groups.iter().chain([&attr.gid]).copied().collect();
    let is_less = |uid: u32, gids: &[u32]| {
        let (wanted, given) = (judged(&acl, uid, gids), judged(&posix, uid, gids));
        matches!((wanted, given), (Some(wanted), Some(given)) if given & !wanted == 0)
    };
    let is_bounded = callers
        .iter()
        .all(|uid| groups.iter().enumerate().all(|(at, a)| groups[at..].iter().all(|b| is_less(*uid, &[*a, *b]))));
    is_bounded.then_some(entries)
}

/// The number of entries that are about nobody by number (`ACL_UNDEFINED_ID`).
const NO_ID: u32 = u32::MAX;

/// The mask that bounds nothing, where an entry names somebody.
fn with_mask(entries: &mut Vec<Entry>) {
    entries.retain(|entry| entry.tag != MASK);
    if entries.len() > 3 {
        let bounded = entries.iter().filter(|entry| matches!(entry.tag, USER | GROUP | GROUP_OBJ));
        let perm = bounded.fold(0, |all, entry| all | entry.perm);
        entries.insert(entries.len() - 1, Entry { tag: MASK, perm, id: NO_ID });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::acl::{DELETE, EVERYTHING, READING, WRITING};
    use crate::{FileId, Ino};
    use bytes::Bytes;
    use larder_base::Timestamp;

    use super::super::convert;
    use super::*;

    fn attr(kind: FileKind, mode: u32) -> Attr {
        let zero = Timestamp::default();
        Attr {
            id: FileId { ino: Ino(9), generation: 0 },
            kind,
            mode,
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

    fn rule(allows: bool, flags: u8, rights: Rights, who: Who) -> Rule {
        Rule { allows, flags, rights, who }
    }

    fn list(rules: Vec<Rule>) -> Acl {
        Acl { rules, ..Acl::default() }
    }

    fn posix(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        encode(&entries.iter().map(|&(tag, perm, id)| Entry { tag, perm, id }).collect::<Vec<_>>())
    }

    /// Whatever SMB shows of a POSIX list can be set again, and is the same list.
    #[test]
    fn lists_survive_being_read_and_set_again() {
        let perms = [0, 4, 5, 6, 7];
        let dir = attr(FileKind::Directory, 0o750);
        for (owner, user) in perms.iter().flat_map(|a| perms.map(|b| (*a, b))) {
            for (group, named) in perms.iter().flat_map(|a| perms.map(|b| (*a, b))) {
                for other in perms {
                    let (owner, group) = ((USER_OBJ, owner, NO_ID), (GROUP_OBJ, group, NO_ID));
                    let mask = (MASK, user | group.1 | named, NO_ID);
                    let all = [owner, (USER, user, 7), group, (GROUP, named, 8), mask, (OTHER, other, NO_ID)];
                    let given = posix(&all);
                    let acl = convert(Some(&given), Some(&given), 0o750, true).unwrap().unwrap();
                    let expressed = express(&acl, &dir);
                    let wanted = Expressed {
                        permissions: u32::from(owner.1) << 6 | u32::from(mask.1) << 3 | u32::from(other),
                        access: Some(given.clone()),
                        default: Some(given),
                    };
                    assert_eq!(expressed, Some(wanted), "{all:?}");
                }
            }
        }
    }

    #[test]
    fn a_user_is_added_as_explorer_does() {
        let dir = attr(FileKind::Directory, 0o750);
        let added = list(vec![
            rule(true, BOTH_INHERIT, EVERYTHING, Who::User(7)),
            rule(true, 0, READING | WRITING, Who::User(1000)),
            rule(true, 0, READING, Who::Group(100)),
            // SYSTEM, who is nobody here.
            rule(true, BOTH_INHERIT, EVERYTHING, Who::sid(&[1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0]).unwrap()),
        ]);
        let expressed = express(&added, &dir).unwrap();
        let entries = [(USER_OBJ, 7, NO_ID), (USER, 7, 7), (GROUP_OBJ, 5, NO_ID), (MASK, 7, NO_ID), (OTHER, 0, NO_ID)];
        assert_eq!(expressed.access, Some(posix(&entries)));
        assert_eq!(expressed.default, Some(posix(&entries)), "owner and group as on the folder");
        assert_eq!(expressed.permissions, 0o770);
    }

    #[test]
    fn execute_bits_of_files_stay() {
        let acl = list(vec![
            rule(true, 0, READING | WRITING, Who::Owner),
            rule(true, 0, READING, Who::User(7)),
            rule(true, 0, READING, Who::Everyone),
        ]);
        let program = express(&acl, &attr(FileKind::File, 0o755)).unwrap();
        let entries = [(USER_OBJ, 7, NO_ID), (USER, 5, 7), (GROUP_OBJ, 5, NO_ID), (MASK, 5, NO_ID), (OTHER, 5, NO_ID)];
        assert_eq!((program.permissions, program.access), (0o755, Some(posix(&entries))));
        let plain = list(vec![rule(true, 0, READING | WRITING, Who::Owner), rule(true, 0, READING, Who::Group(100))]);
        let bits = Expressed { permissions: 0o640, access: None, default: None };
        assert_eq!(express(&plain, &attr(FileKind::File, 0o600)), Some(bits));
    }

    #[test]
    fn what_would_grant_more_or_has_no_bits_is_not_expressed() {
        let file = attr(FileKind::File, 0o640);
        let all = |who| rule(true, 0, READING | WRITING, who);
        let sid = |bytes: [u8; 12]| Who::Sid(Bytes::copy_from_slice(&bytes));
        let cases = [
            // A member of group 8 is denied, whatever else grants it.
            vec![rule(false, 0, WRITE_DATA | APPEND_DATA, Who::Group(8)), all(Who::Group(9))],
            vec![rule(false, 0, READ_DATA, Who::Group(8)), all(Who::User(7))],
            vec![rule(false, 0, READ_DATA, Who::Group(100)), all(Who::Owner)],
            vec![rule(true, 0, WRITE_DATA, Who::User(7))],
            vec![rule(false, 0, DELETE, Who::User(7)), all(Who::Everyone)],
            vec![all(sid(INEXPRESSIBLE[0]))],
            vec![all(sid(INEXPRESSIBLE[1]))],
            (0..65).map(|uid| all(Who::User(uid))).collect(),
        ];
        for rules in cases {
            assert_eq!(express(&list(rules.clone()), &file), None, "{rules:?}");
        }
        let dir = attr(FileKind::Directory, 0o755);
        for flags in [FILE_INHERIT, DIRECTORY_INHERIT, BOTH_INHERIT | NO_PROPAGATE] {
            assert_eq!(express(&list(vec![rule(true, flags, READING, Who::User(7))]), &dir), None);
        }
    }

    #[test]
    fn a_denial_of_one_user_is_an_entry_of_his() {
        let acl = list(vec![rule(false, 0, EVERYTHING, Who::User(7)), rule(true, 0, READING, Who::Everyone)]);
        let expressed = express(&acl, &attr(FileKind::File, 0o444)).unwrap();
        let entries = [(USER_OBJ, 4, NO_ID), (USER, 0, 7), (GROUP_OBJ, 4, NO_ID), (MASK, 4, NO_ID), (OTHER, 4, NO_ID)];
        assert_eq!(expressed.access, Some(posix(&entries)));
    }

    #[test]
    fn children_get_the_default_list() {
        let list = |user, group, mask, other| {
            posix(&[
                (USER_OBJ, user, NO_ID),
                (USER, 7, 7),
                (GROUP_OBJ, group, NO_ID),
                (MASK, mask, NO_ID),
                (OTHER, other, NO_ID),
            ])
        };
        let default = list(7, 5, 7, 5);
        assert_eq!(inherited(&default, 0o644, false), Some(list(6, 5, 6, 4)));
        assert_eq!(inherited(&default, 0o755, true), Some(default.clone()));
        assert_eq!(inherited(&default, 0o600, false), Some(list(6, 5, 0, 0)), "a private file stays private");
        assert_eq!(inherited(b"\x02\0\0\0", 0o644, false), None);
    }
}
