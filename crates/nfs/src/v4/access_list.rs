//! Access lists as NFSv4 has them (RFC 7530 6, RFC 8881 6), made from the one list that a file has at every door, and read
//! into it.
//!
//! - `list4.mode_as_list`: a file without a list shows its mode as one: a rule for the owner, one for the group and one for
//!   everyone, with a denial in between where a class has fewer rights than a wider one.
//! - `list4.mode_if_no_more`: a list in just that form becomes mode bits. Any other is kept as it came.
//! - `list4.nothing_dropped`: a rule that cannot be kept is refused: an audit, an unknown principal, inheritance on a file
//!   that hands nothing on. Principals of Windows alone are shown as their SIDs and taken back.

use std::fmt::Write as _;

use larder_fs::acl::{
    ALWAYS, APPEND_DATA, Acl, DELETE_CHILD, DIRECTORY_INHERIT, EVERYTHING, EXECUTE, FILE_INHERIT, INHERIT_ONLY,
    INHERITED, NO_PROPAGATE, OWNING, READ_DATA, Rights, Rule, WRITE_DATA, WRITING, Who,
};
use larder_fs::{Attr, FileKind};

use super::super::owners::Owners;
use super::shown::owner_status;
use super::types::{Ace4, Acl4, Acl41, NfsStat};
use super::wire::{Opaque, Xdr, XdrList, XdrOut};

/// `ACL4_SUPPORT_ALLOW_ACL` and `ACL4_SUPPORT_DENY_ACL`.
pub const SUPPORT: u32 = 1 | 2;

/// `acetype4`.
const ALLOW: u32 = 0;
const DENY: u32 = 1;
const AUDIT: u32 = 2;
const ALARM: u32 = 3;

/// `aceflag4`.
const INHERITANCE: u32 = 0x0f;
const AUDITED: u32 = 0x30;
const IDENTIFIER_GROUP: u32 = 0x40;
const INHERITED_ACE: u32 = 0x80;

/// `aclflag4`.
const AUTO_INHERIT: u32 = 1;
const PROTECTED: u32 = 2;
const DEFAULTED: u32 = 4;

/// `ACE4_WRITE_RETENTION` and `ACE4_WRITE_RETENTION_HOLD`, which a volume has not.
const RETENTION: u32 = 0x600;

/// S-1-5-11.
const AUTHENTICATED_USERS: [u8; 12] = [1, 1, 0, 0, 0, 0, 0, 5, 11, 0, 0, 0];

const _: () = assert!(FILE_INHERIT == 1 && DIRECTORY_INHERIT == 2 && NO_PROPAGATE == 4 && INHERIT_ONLY == 8);

/// A list that a client sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewList {
    rules: Vec<Rule>,
    is_protected: bool,
    marks_inherited: bool,
}

/// What becomes of a list (`list4.mode_if_no_more`).
#[derive(Debug, PartialEq, Eq)]
pub enum Kept {
    /// The permission bits say the same.
    Mode(u32),
    List(Acl),
}

/// The rights of one class's mode bits.
fn rights_of(bits: u32, is_dir: bool) -> Rights {
    let has = |bit: u32, rights: Rights| if bits & bit != 0 { rights } else { 0 };
    let writing = WRITING | if is_dir { DELETE_CHILD } else { 0 };
    ALWAYS | has(4, READ_DATA) | has(2, writing) | has(1, EXECUTE)
}

/// `list4.mode_as_list`
fn rules_of_mode(mode: u32, is_dir: bool) -> Vec<Rule> {
    let class = |shift: u32| rights_of(mode >> shift & 7, is_dir);
    let (owner, members, others) = (class(6), class(3), class(0));
    let rule = |allows, rights, who| Rule { allows, flags: 0, rights, who };
    let denied = |rights, who| (rights != 0).then(|| rule(false, rights, who));
    let mut rules = vec![rule(true, owner | OWNING, Who::Owner)];
    rules.extend(denied((members | others) & !owner & !OWNING, Who::Owner));
    rules.push(rule(true, members, Who::OwningGroup));
    rules.extend(denied(others & !members, Who::OwningGroup));
    rules.push(rule(true, others, Who::Everyone));
    rules
}

/// A list as its file shows it: `nfsace4<>`.
pub fn shown(attr: &Attr, acl: Option<&Acl>, owners: &Owners, minor: u32) -> Vec<u8> {
    let of_mode = || rules_of_mode(attr.mode, attr.kind == FileKind::Directory);
    let rules = acl.map_or_else(of_mode, |acl| acl.rules.clone());
    let named: Vec<(Ace4<'_>, String)> = rules.iter().map(|rule| ace(rule, owners, minor)).collect();
    let entries: Vec<Ace4<'_>> = named.iter().map(|(ace, who)| Ace4 { who: Opaque(who.as_bytes()), ..*ace }).collect();
    let mut out = XdrOut::default();
    // The longest list of a volume has some 1,300 rules.
    out.writer().length(entries.len());
    entries.iter().for_each(|entry| entry.put(&mut out));
    out.into_bytes()
}

/// `aclflag4` of a list.
pub fn shown_flags(acl: Option<&Acl>) -> u32 {
    let has = |is: bool, flag| if is { flag } else { 0 };
    acl.map_or(0, |acl| has(acl.marks_inherited, AUTO_INHERIT) | has(acl.is_protected, PROTECTED))
}

fn ace<'a>(rule: &Rule, owners: &Owners, minor: u32) -> (Ace4<'a>, String) {
    let (who, is_group) = match &rule.who {
        Who::Owner => ("OWNER@".to_owned(), false),
        Who::OwningGroup => ("GROUP@".to_owned(), true),
        Who::Everyone => ("EVERYONE@".to_owned(), false),
        Who::User(uid) => (owners.show_user(*uid), false),
        Who::Group(gid) => (owners.show_group(*gid), true),
        Who::Sid(sid) if **sid == AUTHENTICATED_USERS => ("AUTHENTICATED@".to_owned(), true),
        Who::Sid(sid) => (sid_text(sid), false),
    };
    let inherited = if minor > 0 && rule.flags & INHERITED != 0 { INHERITED_ACE } else { 0 };
    let flag = u32::from(rule.flags) & INHERITANCE | inherited | if is_group { IDENTIFIER_GROUP } else { 0 };
    let kind = if rule.allows { ALLOW } else { DENY };
    (Ace4 { kind, flag, access_mask: rule.rights, who: Opaque(b"") }, who)
}

/// A SID as MS-DTYP 2.4.2.1 writes it.
fn sid_text(sid: &[u8]) -> String {
    let authority = sid.get(2..8).unwrap_or_default().iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let mut text = format!("S-1-{authority}");
    for part in sid.get(8..).unwrap_or_default().chunks_exact(4) {
        let number = part.first_chunk().copied().map_or(0, u32::from_le_bytes);
        let _ = write!(text, "-{number}");
    }
    text
}

fn parse_sid(text: &str) -> Option<Who> {
    let mut parts = text.strip_prefix("S-1-")?.split('-');
    let authority = parts.next()?.parse::<u64>().ok().filter(|authority| *authority < 1 << 48)?;
    let subs = parts.map(|part| part.parse::<u32>().ok()).collect::<Option<Vec<_>>>()?;
    let mut sid = vec![1, u8::try_from(subs.len()).ok()?];
    sid.extend(authority.to_be_bytes().iter().skip(2));
    sid.extend(subs.iter().flat_map(|sub| sub.to_le_bytes()));
    Who::sid(&sid)
}

impl NewList {
    /// Of the attribute `acl`.
    pub fn parse(list: &Acl4<'_>, owners: &Owners) -> Result<Self, NfsStat> {
        let rules = list.iter().map(|ace| rule(&ace, owners)).collect::<Result<_, _>>()?;
        Ok(Self { rules, ..Self::default() })
    }

    /// Of the attribute `dacl`.
    pub fn parse_dacl(list: &Acl41<'_>, owners: &Owners) -> Result<Self, NfsStat> {
        if list.flag & !(AUTO_INHERIT | PROTECTED | DEFAULTED) != 0 {
            return Err(NfsStat::Inval);
        }
        let (marks_inherited, is_protected) = (list.flag & AUTO_INHERIT != 0, list.flag & PROTECTED != 0);
        Ok(Self { marks_inherited, is_protected, ..Self::parse(&list.aces, owners)? })
    }

    /// Whether a file or a directory can have it.
    pub fn check(&self, is_dir: bool) -> Result<(), NfsStat> {
        let is_handed_on = self.rules.iter().any(|rule| u32::from(rule.flags) & INHERITANCE != 0);
        if is_handed_on && !is_dir { Err(NfsStat::Inval) } else { Ok(()) }
    }

    /// What becomes of it at a file with `attr`.
    pub fn kept(self, attr: &Attr) -> Result<Kept, NfsStat> {
        let is_dir = attr.kind == FileKind::Directory;
        self.check(is_dir)?;
        if let Some(permissions) = self.as_mode(is_dir) {
            return Ok(Kept::Mode(attr.mode & !0o777 | permissions));
        }
        let Self { rules, is_protected, marks_inherited } = self;
        let acl = Acl { is_protected, marks_inherited, rules };
        if acl.fits() { Ok(Kept::List(acl)) } else { Err(NfsStat::Inval) }
    }

    fn as_mode(&self, is_dir: bool) -> Option<u32> {
        if self.is_protected || self.marks_inherited {
            return None;
        }
        let class = |who: &Who| {
            let (mut allowed, mut denied) = (0, 0);
            for rule in self.rules.iter().filter(|rule| rule.who == *who || rule.who == Who::Everyone) {
                match rule.allows {
                    true => allowed |= rule.rights & !denied,
                    false => denied |= rule.rights & !allowed,
                }
            }
            let bit = |rights, bit| if allowed & rights == rights { bit } else { 0 };
            bit(READ_DATA, 4) | bit(WRITE_DATA | APPEND_DATA, 2) | bit(EXECUTE, 1)
        };
        let mode = class(&Who::Owner) << 6 | class(&Who::OwningGroup) << 3 | class(&Who::Everyone);
        (self.rules == rules_of_mode(mode, is_dir)).then_some(mode)
    }
}

/// `list4.nothing_dropped`
fn rule(ace: &Ace4<'_>, owners: &Owners) -> Result<Rule, NfsStat> {
    let allows = match ace.kind {
        ALLOW => true,
        DENY => false,
        AUDIT | ALARM => return Err(NfsStat::AttrNotSupp),
        _ => return Err(NfsStat::Inval),
    };
    if ace.access_mask & RETENTION != 0 {
        return Err(NfsStat::AttrNotSupp);
    }
    // SUCCESSFUL and FAILED mean nothing here.
    if ace.access_mask & !EVERYTHING != 0 || ace.flag & !(INHERITANCE | AUDITED | IDENTIFIER_GROUP | INHERITED_ACE) != 0
    {
        return Err(NfsStat::Inval);
    }
    let inherited = if ace.flag & INHERITED_ACE != 0 { INHERITED } else { 0 };
    let flags = u8::try_from(ace.flag & INHERITANCE).unwrap_or(0) | inherited;
    Ok(Rule { allows, flags, rights: ace.access_mask, who: who(ace, owners)? })
}

fn who(ace: &Ace4<'_>, owners: &Owners) -> Result<Who, NfsStat> {
    let is_group = ace.flag & IDENTIFIER_GROUP != 0;
    Ok(match ace.who.0 {
        b"OWNER@" => Who::Owner,
        b"GROUP@" => Who::OwningGroup,
        b"EVERYONE@" => Who::Everyone,
        b"AUTHENTICATED@" => Who::sid(&AUTHENTICATED_USERS).ok_or(NfsStat::BadOwner)?,
        text => match std::str::from_utf8(text).ok().and_then(parse_sid) {
            Some(sid) => sid,
            None if is_group => Who::Group(owners.group(text).map_err(owner_status)?),
            None => Who::User(owners.user(text).map_err(owner_status)?),
        },
    })
}

/// A `sacl` is empty: nothing is audited by rules of files.
pub fn check_sacl(list: &Acl41<'_>) -> Result<(), NfsStat> {
    if list.aces.len() == 0 { Ok(()) } else { Err(NfsStat::AttrNotSupp) }
}

pub fn empty_sacl<'a>() -> Acl41<'a> {
    Acl41 { flag: 0, aces: XdrList::of(&[]) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use larder_base::Timestamp;
    use larder_fs::{FileId, Ino};

    use super::super::super::xdr::Reader;
    use super::*;

    fn attr(kind: FileKind, mode: u32) -> Attr {
        let time = Timestamp::new(0, 0);
        let id = FileId { ino: Ino(2), generation: 1 };
        let (uid, gid, rdev) = (1000, 100, (0, 0));
        let times = (time, time, time, time);
        let (atime, mtime, ctime, btime) = times;
        Attr {
            id,
            kind,
            mode,
            nlink: 1,
            uid,
            gid,
            size: 0,
            allocated: 0,
            rdev,
            atime,
            mtime,
            ctime,
            btime,
            change: 0,
            dos: 0,
        }
    }

    fn back(bytes: &[u8], owners: &Owners) -> Result<NewList, NfsStat> {
        NewList::parse(&Acl4::get(&mut Reader::new(bytes)).unwrap(), owners)
    }

    #[test]
    fn every_mode_survives_being_read_and_set_again() {
        let owners = Owners::default();
        for kind in [FileKind::File, FileKind::Directory] {
            for mode in 0..=0o777 {
                let attr = attr(kind, 0o4000 | mode);
                let list = back(&shown(&attr, None, &owners, 1), &owners).unwrap();
                assert_eq!(list.kept(&attr), Ok(Kept::Mode(0o4000 | mode)), "{kind:?} {mode:o}");
            }
        }
    }

    #[test]
    fn a_list_survives_being_read_and_set_again() {
        let owners = Owners::in_domain("lan".into(), [("ann".to_owned(), 1000)], []);
        let rule = |allows, flags, rights, who| Rule { allows, flags, rights, who };
        let domain = [1, 5, 0, 0, 0, 0, 0, 5, 21, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0xf4, 1, 0, 0];
        let rules = vec![
            rule(false, 0, READ_DATA, Who::User(1000)),
            rule(true, FILE_INHERIT | DIRECTORY_INHERIT | INHERITED, EVERYTHING, Who::Group(8)),
            rule(true, FILE_INHERIT | INHERIT_ONLY, WRITE_DATA, Who::sid(&domain).unwrap()),
            rule(true, 0, READ_DATA, Who::sid(&AUTHENTICATED_USERS).unwrap()),
            rule(true, 0, READ_DATA, Who::Owner),
        ];
        let acl = Acl { is_protected: false, marks_inherited: false, rules };
        let dir = attr(FileKind::Directory, 0o755);
        let bytes = shown(&dir, Some(&acl), &owners, 1);
        let names: Vec<Vec<u8>> =
            Acl4::get(&mut Reader::new(&bytes)).unwrap().iter().map(|ace| ace.who.0.to_vec()).collect();
        let wanted: [&[u8]; 5] = [b"ann@lan", b"8", b"S-1-5-21-1-2-3-500", b"AUTHENTICATED@", b"OWNER@"];
        assert_eq!(names, wanted);
        assert_eq!(back(&bytes, &owners).unwrap().kept(&dir), Ok(Kept::List(acl)));
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        let owners = Owners::default();
        let good = Ace4 { kind: ALLOW, flag: 0, access_mask: 1, who: Opaque(b"7") };
        let check = |ace: Ace4<'_>, wanted| {
            assert_eq!(NewList::parse(&XdrList::of(&[ace]), &owners).map(|_| ()), wanted, "{ace:?}");
        };
        check(good, Ok(()));
        check(Ace4 { kind: AUDIT, ..good }, Err(NfsStat::AttrNotSupp));
        check(Ace4 { kind: 4, ..good }, Err(NfsStat::Inval));
        check(Ace4 { access_mask: 0x200, ..good }, Err(NfsStat::AttrNotSupp));
        check(Ace4 { access_mask: 0x8000_0000, ..good }, Err(NfsStat::Inval));
        check(Ace4 { flag: 0x100, ..good }, Err(NfsStat::Inval));
        check(Ace4 { who: Opaque(b"ann@lan"), ..good }, Err(NfsStat::BadOwner));
        check(Ace4 { who: Opaque(b"INTERACTIVE@"), ..good }, Err(NfsStat::BadOwner));
        check(Ace4 { who: Opaque(b""), ..good }, Err(NfsStat::Inval));
        let handed_on = NewList::parse(&XdrList::of(&[Ace4 { flag: 1, ..good }]), &owners).unwrap();
        assert_eq!(handed_on.clone().kept(&attr(FileKind::File, 0o644)), Err(NfsStat::Inval));
        assert!(handed_on.kept(&attr(FileKind::Directory, 0o755)).is_ok());
        let long = NewList { rules: vec![rule(&good, &owners).unwrap(); 2000], ..NewList::default() };
        assert_eq!(long.kept(&attr(FileKind::File, 0o644)), Err(NfsStat::Inval));
        let flags = |flag| NewList::parse_dacl(&Acl41 { flag, aces: XdrList::of(&[]) }, &owners).map(|_| ());
        assert_eq!((flags(7), flags(8)), (Ok(()), Err(NfsStat::Inval)));
    }
}
