//! Access control lists: rules about more than owner, group and others (RFC 8881 6.2, MS-DTYP
//! 2.4.5). Both standards give the rights of a rule the same numbers, so one list serves SMB and
//! NFSv4.
//!
//! - `acl.one_truth`: a file has either a list or mode bits that decide. Every protocol judges by
//!   the same one.
//! - `acl.bits_promise_less`: the mode bits of a file with a list are computed from it, and grant
//!   no user more than the list does. A kernel that decides by them alone (a local mount) may
//!   refuse a right that the list grants, and never the other way round.
//! - `acl.chmod_discards`: a change of the permission bits replaces the list, as POSIX wants
//!   chmod(2) obeyed. One that changes none keeps it.
//! - `acl.inherited_at_birth`: a child of a directory gets the rules that its list hands on
//!   (MS-DTYP 2.5.3.4), whatever mode was asked for: an NFS v3 client has taken its umask off
//!   already. A file that its maker wants private (no bits for group and others) stays private.
//! - `acl.in_the_record`: the list lies in the inode's record, so that both change and are read
//!   together.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use crate::{Attr, Cred, FileKind};

/// The rights that a rule grants or denies: the access mask of MS-DTYP 2.4.3, `aceMask4` of RFC
/// 8881 6.2.1.3.
pub type Rights = u32;

/// Read a file, list a directory.
pub const READ_DATA: Rights = 0x0000_0001;
/// Write a file, add a file to a directory.
pub const WRITE_DATA: Rights = 0x0000_0002;
/// Append to a file, add a directory to a directory.
pub const APPEND_DATA: Rights = 0x0000_0004;
/// Read extended attributes.
pub const READ_EA: Rights = 0x0000_0008;
/// Write extended attributes.
pub const WRITE_EA: Rights = 0x0000_0010;
/// Execute a file, search a directory.
pub const EXECUTE: Rights = 0x0000_0020;
/// Delete any entry of a directory.
pub const DELETE_CHILD: Rights = 0x0000_0040;
/// Read attributes: stat.
pub const READ_ATTRIBUTES: Rights = 0x0000_0080;
/// Change times and file attributes.
pub const WRITE_ATTRIBUTES: Rights = 0x0000_0100;
/// Delete the object itself.
pub const DELETE: Rights = 0x0001_0000;
/// Read owner and list.
pub const READ_CONTROL: Rights = 0x0002_0000;
/// Change the list.
pub const WRITE_DAC: Rights = 0x0004_0000;
/// Change the owner.
pub const WRITE_OWNER: Rights = 0x0008_0000;
/// Wait for the object. Windows asks for it with every open.
pub const SYNCHRONIZE: Rights = 0x0010_0000;
/// "Full control".
pub const EVERYTHING: Rights = 0x001f_01ff;

/// The rights of any user who reached a file that has mode bits alone: stat it, and wait for it.
pub const ALWAYS: Rights = READ_EA | READ_ATTRIBUTES | READ_CONTROL | SYNCHRONIZE;
/// The rights of the read bit of a mode. They include execution, because clients run executables
/// themselves: reading one is enough.
pub const READING: Rights = READ_DATA | EXECUTE;
/// The rights of the write bit of a mode.
pub const WRITING: Rights = WRITE_DATA | APPEND_DATA | WRITE_EA | WRITE_ATTRIBUTES;
/// The rights of an owner whatever the mode says: to change it.
pub const OWNING: Rights = WRITE_ATTRIBUTES | WRITE_EA | WRITE_DAC | WRITE_OWNER;

/// Files made in the directory get the rule.
pub const FILE_INHERIT: u8 = 0x01;
/// Directories made in the directory get the rule.
pub const DIRECTORY_INHERIT: u8 = 0x02;
/// A child that gets the rule does not hand it on.
pub const NO_PROPAGATE: u8 = 0x04;
/// The rule is not about the directory itself.
pub const INHERIT_ONLY: u8 = 0x08;
/// The rule came from the directory above.
pub const INHERITED: u8 = 0x10;

/// The longest list, encoded: some 700 rules about users. It is written with every change of its
/// inode.
pub const ACL_BYTES_MAX: usize = 8 << 10;
/// A SID with 15 sub-authorities.
const SID_BYTES_MAX: usize = 68;

/// S-1-3-0: stands for the maker of the file that inherits the rule.
pub const CREATOR_OWNER: [u8; 12] = [1, 1, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0];
/// S-1-3-1: stands for the group of that maker.
pub const CREATOR_GROUP: [u8; 12] = [1, 1, 0, 0, 0, 0, 0, 3, 1, 0, 0, 0];
/// S-1-3-4: the owner. If a rule names it, ownership alone grants nothing more (MS-DTYP 2.5.3.2).
const OWNER_RIGHTS: [u8; 12] = [1, 1, 0, 0, 0, 0, 0, 3, 4, 0, 0, 0];
/// S-1-5-11: every user who has logged in.
const AUTHENTICATED_USERS: [u8; 12] = [1, 1, 0, 0, 0, 0, 0, 5, 11, 0, 0, 0];
/// The uid of guests and squashed callers.
const NOBODY: u32 = 65534;

/// The principal that a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// The owner of the file at the time (`OWNER@`).
    Owner,
    /// The members of the file's group at the time (`GROUP@`).
    OwningGroup,
    /// Every user (`EVERYONE@`, S-1-1-0).
    Everyone,
    /// The user with this uid.
    User(u32),
    /// The members of the group with this gid.
    Group(u32),
    /// A Windows principal that is no user or group here (MS-DTYP 2.4.2.2). Kept as it is.
    Sid(Bytes),
}

impl Who {
    /// The principal of a binary SID, if it has the form of one.
    pub fn sid(bytes: &[u8]) -> Option<Self> {
        let count = usize::from(*bytes.get(1)?);
        let well_formed = bytes.first() == Some(&1) && bytes.len() == 8 + 4 * count && bytes.len() <= SID_BYTES_MAX;
        well_formed.then(|| Who::Sid(Bytes::copy_from_slice(bytes)))
    }

    fn is(&self, sid: &[u8]) -> bool {
        matches!(self, Who::Sid(own) if **own == *sid)
    }

    fn is_about(&self, attr: &Attr, cred: &Cred) -> bool {
        match self {
            Who::Owner => cred.uid == attr.uid,
            Who::OwningGroup => cred.in_group(attr.gid),
            Who::Everyone => true,
            Who::User(uid) => cred.uid == *uid,
            Who::Group(gid) => cred.in_group(*gid),
            Who::Sid(sid) if **sid == OWNER_RIGHTS => cred.uid == attr.uid,
            Who::Sid(sid) => **sid == AUTHENTICATED_USERS && cred.uid != NOBODY,
        }
    }
}

/// One rule of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whether it grants or denies its rights.
    pub allows: bool,
    /// Inheritance: [`FILE_INHERIT`] and the others.
    pub flags: u8,
    /// The rights that it grants or denies.
    pub rights: Rights,
    /// The principal that it is about.
    pub who: Who,
}

/// The rules of one file, in the order in which they are judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    /// The list keeps its rules when the rules that the directory above hands on change
    /// (SE_DACL_PROTECTED).
    pub is_protected: bool,
    /// Inherited rules are marked as such (SE_DACL_AUTO_INHERITED).
    pub marks_inherited: bool,
    /// The rules. The first one that names a right decides about it.
    pub rules: Vec<Rule>,
}

/// The facts that decide about access to an object: its attributes, and its list where it has one
/// (`acl.one_truth`).
#[derive(Clone, Debug)]
pub struct Guarded {
    /// Its attributes.
    pub attr: Attr,
    /// Its list.
    pub acl: Option<Arc<Acl>>,
}

/// The mode bits that one class of users is sure to have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Owner,
    Group,
    Others,
}

impl Acl {
    /// The rights of `cred` on the file: the first rule that names a right decides about it
    /// (MS-DTYP 2.5.3.2, RFC 8881 6.2.1).
    pub fn rights(&self, attr: &Attr, cred: &Cred) -> Rights {
        self.judge(|rule| rule.who.is_about(attr, cred))
    }

    /// The first rule about `cred` that names one of `rights`, and its place in the list.
    pub fn deciding(&self, attr: &Attr, cred: &Cred, rights: Rights) -> Option<(usize, &Rule)> {
        let applies = |rule: &Rule| rule.flags & INHERIT_ONLY == 0 && rule.who.is_about(attr, cred);
        self.rules.iter().enumerate().find(|(_, rule)| rule.rights & rights != 0 && applies(rule))
    }

    fn judge(&self, applies: impl Fn(&Rule) -> bool) -> Rights {
        let (mut allowed, mut denied) = (0, 0);
        for rule in self.rules.iter().filter(|rule| rule.flags & INHERIT_ONLY == 0 && applies(rule)) {
            match rule.allows {
                true => allowed |= rule.rights & !denied,
                false => denied |= rule.rights & !allowed,
            }
        }
        allowed
    }

    /// Whether a rule states the rights of the owner: then ownership alone grants nothing.
    pub fn speaks_of_owner_rights(&self) -> bool {
        self.rules.iter().any(|rule| rule.flags & INHERIT_ONLY == 0 && rule.who.is(&OWNER_RIGHTS))
    }

    /// The mode of `attr` with the permission bits of this list (`acl.bits_promise_less`).
    pub fn mode(&self, attr: &Attr) -> u32 {
        let class = |class| self.judge(|rule| is_sure(rule, class, attr));
        let (owner, group, others) = (class(Class::Owner), class(Class::Group), class(Class::Others));
        let bits = |rights: Rights, shift: u32| bits_of(rights, attr, attr.mode >> shift & 1 != 0) << shift;
        attr.mode & !0o777 | bits(owner, 6) | bits(group, 3) | bits(others, 0)
    }

    /// The list of a child made in the directory that has this list. `None`: nothing is handed on.
    pub fn inherited(&self, kind: FileKind, uid: u32, gid: u32) -> Option<Acl> {
        let directory = kind == FileKind::Directory;
        let mark = if self.marks_inherited { INHERITED } else { 0 };
        let mut rules = Vec::new();
        for rule in self.rules.iter().filter(|rule| is_inheritable(rule.flags, directory)) {
            let flags = child_flags(rule.flags, directory);
            let creator = match &rule.who {
                who if who.is(&CREATOR_OWNER) => Some(Who::User(uid)),
                who if who.is(&CREATOR_GROUP) => Some(Who::Group(gid)),
                _ => None,
            };
            let effective = |who, flags| Rule { flags, rights: specific(rule.rights), who, ..*rule };
            match creator {
                // About the child itself as its maker's rule, and handed on as it came.
                Some(who) if flags & DIRECTORY_INHERIT != 0 => {
                    rules.push(effective(who, mark));
                    rules.push(Rule { flags: flags | INHERIT_ONLY | mark, ..rule.clone() });
                }
                Some(who) if flags & INHERIT_ONLY == 0 => rules.push(effective(who, flags | mark)),
                None if flags & INHERIT_ONLY == 0 => rules.push(effective(rule.who.clone(), flags | mark)),
                _ => rules.push(Rule { flags: flags | mark, ..rule.clone() }),
            }
        }
        let list = Acl { is_protected: false, marks_inherited: self.marks_inherited, rules };
        (!list.rules.is_empty() && list.fits()).then_some(list)
    }

    /// Whether what is made in its directory gets rules from it.
    pub fn hands_on(&self) -> bool {
        self.rules.iter().any(|rule| rule.flags & (FILE_INHERIT | DIRECTORY_INHERIT) != 0)
    }

    /// Whether its encoding is within [`ACL_BYTES_MAX`].
    pub fn fits(&self) -> bool {
        self.encoded_len() <= ACL_BYTES_MAX
    }

    /// The length of its encoding.
    pub fn encoded_len(&self) -> usize {
        self.rules.iter().map(|rule| 6 + who_len(&rule.who)).sum::<usize>() + 1
    }

    /// FORMAT.md, "Volume: access control lists".
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.encoded_len());
        out.put_u8(u8::from(self.is_protected) | u8::from(self.marks_inherited) << 1);
        for rule in &self.rules {
            let (kind, id): (u8, &[u8]) = match &rule.who {
                Who::Owner => (0, &[]),
                Who::OwningGroup => (1, &[]),
                Who::Everyone => (2, &[]),
                Who::User(uid) => (3, &uid.to_be_bytes()),
                Who::Group(gid) => (4, &gid.to_be_bytes()),
                Who::Sid(sid) => (5, sid),
            };
            out.put_u8(kind | u8::from(rule.allows) << 7);
            out.put_u8(rule.flags);
            out.put_u32(rule.rights);
            out.put_slice(id);
        }
        out.freeze()
    }

    /// `None` for anything that [`Acl::encode`] does not write.
    pub fn decode(bytes: &[u8]) -> Option<Acl> {
        let (&control, mut rest) = bytes.split_first()?;
        if control > 3 || bytes.len() > ACL_BYTES_MAX {
            return None;
        }
        let mut rules = Vec::new();
        while !rest.is_empty() {
            let (head, tail) = rest.split_at_checked(6)?;
            let id_len = match head[0] & 0x7f {
                0..=2 => 0,
                3 | 4 => 4,
                5 => 8 + 4 * usize::from(*tail.get(1)?),
                _ => return None,
            };
            let (id, tail) = tail.split_at_checked(id_len)?;
            let number = || id.try_into().ok().map(u32::from_be_bytes);
            let who = match head[0] & 0x7f {
                0 => Who::Owner,
                1 => Who::OwningGroup,
                2 => Who::Everyone,
                3 => Who::User(number()?),
                4 => Who::Group(number()?),
                _ => Who::sid(id)?,
            };
            let rights = u32::from_be_bytes([head[2], head[3], head[4], head[5]]);
            rules.push(Rule { allows: head[0] & 0x80 != 0, flags: head[1], rights, who });
            rest = tail;
        }
        Some(Acl { is_protected: control & 1 != 0, marks_inherited: control & 2 != 0, rules })
    }
}

/// Whether the maker of a file wants it for no other user (`acl.inherited_at_birth`).
pub fn is_private(mode: u32) -> bool {
    mode & 0o077 == 0
}

fn who_len(who: &Who) -> usize {
    match who {
        Who::Owner | Who::OwningGroup | Who::Everyone => 0,
        Who::User(_) | Who::Group(_) => 4,
        Who::Sid(sid) => sid.len(),
    }
}

/// Whether `rule` counts for a class: one that allows, if it is about all of the class; one that
/// denies, if it may be about one of them.
fn is_sure(rule: &Rule, class: Class, attr: &Attr) -> bool {
    let is_owner = match &rule.who {
        Who::Owner => true,
        Who::User(uid) => *uid == attr.uid,
        who => who.is(&OWNER_RIGHTS),
    };
    let is_group = match &rule.who {
        Who::OwningGroup => true,
        Who::Group(gid) => *gid == attr.gid,
        _ => false,
    };
    match (class, rule.allows) {
        _ if rule.who == Who::Everyone => true,
        (Class::Owner, true) => is_owner,
        (Class::Group, true) => is_group,
        (Class::Others, true) => false,
        // The owner is no other user, and may be in any group.
        (Class::Owner, false) => is_owner || !matches!(rule.who, Who::User(_)),
        (Class::Group | Class::Others, false) => true,
    }
}

/// `was_executable`: a file's execute bit stays as it was, where the list lets it: to an SMB client
/// whatever may be read may be run.
fn bits_of(rights: Rights, attr: &Attr, was_executable: bool) -> u32 {
    let has = |wanted: Rights| rights & wanted == wanted;
    let directory = attr.kind == FileKind::Directory;
    let writing = WRITE_DATA | APPEND_DATA | if directory { DELETE_CHILD } else { 0 };
    u32::from(has(READ_DATA)) << 2
        | u32::from(has(writing)) << 1
        | u32::from(has(EXECUTE) && (directory || was_executable))
}

fn is_inheritable(flags: u8, directory: bool) -> bool {
    match directory {
        false => flags & FILE_INHERIT != 0,
        true => flags & DIRECTORY_INHERIT != 0 || (flags & FILE_INHERIT != 0 && flags & NO_PROPAGATE == 0),
    }
}

fn child_flags(flags: u8, directory: bool) -> u8 {
    if !directory || flags & NO_PROPAGATE != 0 {
        return 0;
    }
    let handed_on = flags & (FILE_INHERIT | DIRECTORY_INHERIT);
    // Rules for files alone pass through a directory.
    handed_on | if flags & DIRECTORY_INHERIT == 0 { INHERIT_ONLY } else { 0 }
}

/// Rights with the generic ones replaced by a file's (MS-SMB2 2.2.13.1.1).
pub fn specific(rights: Rights) -> Rights {
    const GENERIC: [(Rights, Rights); 4] = [
        (0x8000_0000, READ_DATA | READ_EA | READ_ATTRIBUTES | READ_CONTROL | SYNCHRONIZE),
        (0x4000_0000, WRITING | READ_CONTROL | SYNCHRONIZE),
        (0x2000_0000, EXECUTE | READ_ATTRIBUTES | READ_CONTROL | SYNCHRONIZE),
        (0x1000_0000, EVERYTHING),
    ];
    let mapped = GENERIC.iter().filter(|(generic, _)| rights & generic != 0).fold(0, |all, (_, of)| all | of);
    (rights | mapped) & EVERYTHING
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::access::tests::attr;

    fn rule(allows: bool, rights: Rights, who: Who) -> Rule {
        Rule { allows, flags: 0, rights, who }
    }

    fn list(rules: Vec<Rule>) -> Acl {
        Acl { rules, ..Acl::default() }
    }

    const READING: Rights = READ_DATA | EXECUTE;
    const WRITING: Rights = WRITE_DATA | APPEND_DATA;

    #[test]
    fn the_first_rule_that_names_a_right_decides() {
        let file = attr(FileKind::File, 0o640);
        let acl = list(vec![
            rule(true, WRITE_DATA, Who::User(30)),
            rule(false, WRITING, Who::Group(40)),
            rule(true, READING | WRITING, Who::Everyone),
        ]);
        let rights = |uid, groups: &[u32]| acl.rights(&file, &Cred::new(uid, 99, groups));
        assert_eq!(rights(30, &[40]), READING | WRITE_DATA);
        assert_eq!(rights(31, &[40]), READING);
        assert_eq!(rights(31, &[]), READING | WRITING);
        let acl = list(vec![rule(true, READING, Who::Owner), rule(true, WRITING, Who::OwningGroup)]);
        assert_eq!(acl.rights(&file, &Cred::new(10, 20, [])), READING | WRITING);
        assert_eq!(acl.rights(&file, &Cred::new(11, 21, [])), 0);
        let known = list(vec![rule(true, READING, Who::sid(&AUTHENTICATED_USERS).unwrap())]);
        assert_eq!(known.rights(&file, &Cred::new(11, 21, [])), READING);
        assert_eq!(known.rights(&file, &Cred::new(NOBODY, NOBODY, [])), 0);
    }

    /// No user gets more rights from the bits than from the list (`acl.bits_promise_less`).
    #[test]
    fn mode_bits_never_grant_what_the_list_does_not() {
        let whos = [
            Who::Owner,
            Who::OwningGroup,
            Who::Everyone,
            Who::User(10),
            Who::User(30),
            Who::Group(20),
            Who::Group(40),
            Who::sid(&OWNER_RIGHTS).unwrap(),
            Who::sid(&AUTHENTICATED_USERS).unwrap(),
            Who::sid(&[1, 1, 0, 0, 0, 0, 0, 9, 9, 0, 0, 0]).unwrap(),
        ];
        let people = [10, 11, 30, NOBODY];
        let groups: [&[u32]; 4] = [&[], &[20], &[40], &[20, 40]];
        for kind in [FileKind::File, FileKind::Directory] {
            for (first, second) in whos.iter().flat_map(|a| whos.iter().map(move |b| (a, b))) {
                for (allows, rights) in [(true, READING), (false, WRITING), (false, EVERYTHING)] {
                    let acl = list(vec![rule(allows, rights, first.clone()), rule(true, EVERYTHING, second.clone())]);
                    let file = attr(kind, 0o777);
                    let shown = Attr { mode: acl.mode(&file), ..file };
                    for (uid, groups) in people.iter().flat_map(|uid| groups.iter().map(move |g| (*uid, *g))) {
                        let cred = Cred::new(uid, 99, groups);
                        let by_mode = crate::access::class_bits(&shown, &cred);
                        let by_list = bits_of(acl.rights(&file, &cred), &file, true);
                        assert_eq!(by_mode & !by_list, 0, "{acl:?} {uid} {groups:?} mode {:o}", shown.mode);
                    }
                }
            }
        }
    }

    #[test]
    fn an_execute_bit_of_a_file_stays_where_the_list_lets_it() {
        let acl = list(vec![rule(true, EVERYTHING, Who::Everyone)]);
        assert_eq!(acl.mode(&attr(FileKind::File, 0o4750)), 0o4776);
        assert_eq!(acl.mode(&attr(FileKind::Directory, 0o1000)), 0o1777);
        let acl = list(vec![rule(true, READ_DATA, Who::Everyone)]);
        assert_eq!(acl.mode(&attr(FileKind::File, 0o755)), 0o444);
    }

    #[test]
    fn rules_are_handed_on_as_their_flags_say() {
        const BOTH: u8 = FILE_INHERIT | DIRECTORY_INHERIT;
        let flags_of = |flags: u8, kind| {
            let parent = list(vec![Rule { flags, ..rule(true, READING, Who::User(30)) }]);
            parent.inherited(kind, 10, 20).map(|list| list.rules.iter().map(|rule| rule.flags).collect::<Vec<_>>())
        };
        let (file, dir) = (FileKind::File, FileKind::Directory);
        for (flags, of_file, of_dir) in [
            (0, None, None),
            (FILE_INHERIT, Some(0), Some(FILE_INHERIT | INHERIT_ONLY)),
            (DIRECTORY_INHERIT, None, Some(DIRECTORY_INHERIT)),
            (BOTH, Some(0), Some(BOTH)),
            (BOTH | INHERIT_ONLY, Some(0), Some(BOTH)),
            (BOTH | NO_PROPAGATE, Some(0), Some(0)),
            (FILE_INHERIT | NO_PROPAGATE, Some(0), None),
            (DIRECTORY_INHERIT | NO_PROPAGATE | INHERIT_ONLY, None, Some(0)),
            (INHERIT_ONLY, None, None),
        ] {
            assert_eq!(flags_of(flags, file), of_file.map(|flags| vec![flags]), "{flags:#x} to a file");
            assert_eq!(flags_of(flags, dir), of_dir.map(|flags| vec![flags]), "{flags:#x} to a directory");
        }
    }

    #[test]
    fn the_maker_takes_the_place_of_the_creator() {
        let both = FILE_INHERIT | DIRECTORY_INHERIT;
        let creator = Rule { flags: both | INHERIT_ONLY, ..rule(true, 0x1000_0000, Who::sid(&CREATOR_OWNER).unwrap()) };
        let parent = Acl { marks_inherited: true, is_protected: true, rules: vec![creator.clone()] };
        let of_file = parent.inherited(FileKind::File, 10, 20).unwrap();
        assert_eq!(of_file.rules, [Rule { flags: INHERITED, ..rule(true, EVERYTHING, Who::User(10)) }]);
        assert!(of_file.marks_inherited && !of_file.is_protected);
        let of_dir = parent.inherited(FileKind::Directory, 10, 20).unwrap();
        let own = Rule { flags: INHERITED, ..rule(true, EVERYTHING, Who::User(10)) };
        assert_eq!(of_dir.rules, [own, Rule { flags: creator.flags | INHERITED, ..creator }]);
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else_is() {
        let acl = Acl {
            is_protected: true,
            marks_inherited: false,
            rules: vec![
                rule(true, EVERYTHING, Who::Owner),
                rule(false, WRITE_DATA, Who::Group(7)),
                rule(true, READ_DATA, Who::sid(&CREATOR_GROUP).unwrap()),
                Rule { flags: 0xff, ..rule(true, u32::MAX, Who::User(u32::MAX)) },
            ],
        };
        let bytes = acl.encode();
        assert_eq!((bytes.len(), Acl::decode(&bytes)), (acl.encoded_len(), Some(acl)));
        for len in 0..bytes.len() {
            if let Some(shorter) = Acl::decode(&bytes[..len]) {
                assert_eq!(shorter.encode(), bytes[..len]);
            }
        }
        assert_eq!(Acl::decode(&[4]), None);
        let mask = |rights: Rights| rights.to_be_bytes();
        let golden = [&[2, 0x83, 3][..], &mask(EVERYTHING), &[0, 0, 0, 9, 2, 0], &mask(READ_DATA)].concat();
        let rules = vec![
            Rule { flags: FILE_INHERIT | DIRECTORY_INHERIT, ..rule(true, EVERYTHING, Who::User(9)) },
            rule(false, READ_DATA, Who::Everyone),
        ];
        assert_eq!(Acl { is_protected: false, marks_inherited: true, rules }.encode(), golden, "as FORMAT.md has it");
        assert_eq!(Acl::decode(&[0, 6, 0, 0, 0, 0, 0]), None);
        assert_eq!(Acl::decode(&vec![0; ACL_BYTES_MAX + 1]), None);
    }
}
