//! Security descriptors: owner, group, and the access control list of a file, or its mode bits in the form of one.
//!
//! - `security.unix_sids`: users are S-1-22-1-uid and groups S-1-22-2-gid, as in Samba for accounts
//!   without a domain. Other SIDs are kept and shown as they came.
//! - `security.dacl_of_the_mode`: the DACL of a file without a list expresses the mode, in the
//!   rights that [`rights`] derives from it: a rule for the owner, one for the group, one for
//!   everyone. A class with fewer rights than a wider class is denied the difference before the
//!   wider class's rule.
//! - `security.mode_if_no_more`: a DACL that says no more than mode bits do, in the form of
//!   `security.dacl_of_the_mode`, becomes mode bits. Any other DACL is kept as a list.
//! - `security.execute_bits_stay`: the execute bits of files stay as they are: a client that reads
//!   a program may run it. On directories they are the right to pass.

use bytes::Bytes;
use larder_files::Files;
use larder_fs::acl::{
    Acl, CREATOR_GROUP, CREATOR_OWNER, DIRECTORY_INHERIT, FILE_INHERIT, INHERIT_ONLY, INHERITED, Rule, Who, specific,
};
use larder_fs::{Attr, Cred, FileKind, Ino, SetAttr};

use crate::error::{SmbError, SmbResult};
use larder_smb_wire::security::{Ace, Dacl, SecurityDescriptor, Sid};

use super::rights;
use super::status::OrStatus;

const UNIX_AUTHORITY: u64 = 22;
const UNIX_USER: u32 = 1;
const UNIX_GROUP: u32 = 2;

const STATUS_INVALID_OWNER: u32 = 0xC000_005A;
const STATUS_INVALID_PRIMARY_GROUP: u32 = 0xC000_005B;
const STATUS_INVALID_ACL: u32 = 0xC000_0077;

/// Bits of the mode that a descriptor speaks of.
const PERMISSIONS: u32 = 0o777;
const EXECUTE_BITS: u32 = 0o111;

fn user(uid: u32) -> Sid {
    Sid::new(UNIX_AUTHORITY, &[UNIX_USER, uid])
}

fn group(gid: u32) -> Sid {
    Sid::new(UNIX_AUTHORITY, &[UNIX_GROUP, gid])
}

/// The id in a SID of `kind`.
fn unix_id(sid: &Sid, kind: u32) -> Option<u32> {
    match sid.sub_authorities() {
        [found, id] if sid.authority() == UNIX_AUTHORITY && *found == kind => Some(*id),
        _ => None,
    }
}

pub fn descriptor(attr: &Attr, acl: Option<&Acl>) -> SecurityDescriptor {
    SecurityDescriptor {
        owner: Some(user(attr.uid)),
        group: Some(group(attr.gid)),
        dacl: Some(Dacl::Rules(
            acl.map_or_else(|| rules(attr), |acl| acl.rules.iter().flat_map(|rule| aces(rule, attr)).collect()),
        )),
        is_protected: acl.is_some_and(|acl| acl.is_protected),
        marks_inherited: acl.is_some_and(|acl| acl.marks_inherited),
    }
}

/// A rule of a list as SMB has it. NFSv4 hands rules about owner and group on to those of what inherits them, which are two
/// principals here.
fn aces(rule: &Rule, attr: &Attr) -> Vec<Ace> {
    let creator = match rule.who {
        Who::Owner => CREATOR_OWNER,
        Who::OwningGroup => CREATOR_GROUP,
        _ => return vec![ace(rule, attr)],
    };
    if rule.flags & (FILE_INHERIT | DIRECTORY_INHERIT) == 0 {
        return vec![ace(rule, attr)];
    }
    let handed_on = Rule { flags: rule.flags | INHERIT_ONLY, who: Who::Sid(Bytes::copy_from_slice(&creator)), ..*rule };
    let own = Rule { flags: rule.flags & INHERITED, who: rule.who.clone(), ..*rule };
    let is_own = rule.flags & INHERIT_ONLY == 0;
    is_own.then_some(own).iter().chain([&handed_on]).map(|rule| ace(rule, attr)).collect()
}

fn ace(rule: &Rule, attr: &Attr) -> Ace {
    let sid = match &rule.who {
        Who::Owner => user(attr.uid),
        Who::OwningGroup => group(attr.gid),
        Who::Everyone => Sid::everyone(),
        Who::User(uid) => user(*uid),
        Who::Group(gid) => group(*gid),
        // Nobody else has a SID without the form of one.
        Who::Sid(sid) => Sid::from_bytes(sid).unwrap_or_else(|| Sid::new(0, &[0])),
    };
    Ace { allow: rule.allows, flags: rule.flags, mask: rule.rights, sid }
}

/// The rule that an ACE is kept as. What is handed on keeps its generic rights: they are a file's or a directory's later.
fn kept(ace: &Ace) -> Option<Rule> {
    let who = match (unix_id(&ace.sid, UNIX_USER), unix_id(&ace.sid, UNIX_GROUP)) {
        (Some(uid), _) => Who::User(uid),
        (_, Some(gid)) => Who::Group(gid),
        _ if ace.sid == Sid::everyone() => Who::Everyone,
        _ => Who::sid(&ace.sid.to_bytes())?,
    };
    let rights = if ace.flags & INHERIT_ONLY == 0 { specific(ace.mask) } else { ace.mask };
    Some(Rule { allows: ace.allow, flags: ace.flags, rights, who })
}

/// The rules that express a mode (`security.dacl_of_the_mode`).
fn rules(attr: &Attr) -> Vec<Ace> {
    let directory = attr.kind == FileKind::Directory;
    let mask = |shift: u32| rights::of_bits(attr.mode >> shift & 7, directory);
    let (owner, members, others) = (mask(6), mask(3), mask(0));
    let rule = |allow, mask, sid| Ace { allow, flags: 0, mask, sid };
    let denied = |mask, sid| (mask != 0).then(|| rule(false, mask, sid));
    let mut rules = vec![rule(true, owner | rights::OWNING, user(attr.uid))];
    rules.extend(denied((members | others) & !owner & !rights::OWNING, user(attr.uid)));
    rules.push(rule(true, members, group(attr.gid)));
    rules.extend(denied(others & !members, group(attr.gid)));
    rules.push(rule(true, others, Sid::everyone()));
    rules
}

/// The effect of setting a descriptor: attributes, and the list where the descriptor has a DACL.
#[derive(Debug, PartialEq)]
pub struct Change {
    pub set: SetAttr,
    pub acl: Option<Option<Acl>>,
}

/// Whether a file that is made can be given `descriptor`.
pub fn check(descriptor: &SecurityDescriptor) -> SmbResult<()> {
    match &descriptor.dacl {
        Some(Dacl::Rules(aces)) => list(aces, descriptor).map(drop),
        _ => Ok(()),
    }
}

/// Sets `descriptor` on a file. The open of `who` was granted the rights that its parts need.
pub async fn set(files: &Files, who: &Cred, ino: Ino, descriptor: &SecurityDescriptor) -> SmbResult<()> {
    let (attr, acl) = files.acl(ino).await.or_status()?;
    let change = changes(descriptor, &attr, acl.as_deref())?;
    // Files are taken, and not given away.
    if who.uid != 0 && change.set.uid.is_some_and(|uid| uid != who.uid) {
        return Err(SmbError::Status(STATUS_INVALID_OWNER));
    }
    if who.uid != 0 && change.set.gid.is_some_and(|gid| !who.in_group(gid)) {
        return Err(SmbError::Status(STATUS_INVALID_PRIMARY_GROUP));
    }
    match change.acl {
        Some(acl) => files.set_acl(who, ino, change.set, acl).await.or_status()?,
        None => files.setattr(who, ino, change.set).await.or_status()?,
    };
    Ok(())
}

/// The change that a descriptor asks for (`security.mode_if_no_more`). `acl` is the file's present list.
pub fn changes(descriptor: &SecurityDescriptor, attr: &Attr, acl: Option<&Acl>) -> SmbResult<Change> {
    let id = |sid: &Option<Sid>, kind, status| match sid {
        None => Ok(None),
        Some(sid) => unix_id(sid, kind).map(Some).ok_or(SmbError::Status(status)),
    };
    let uid = id(&descriptor.owner, UNIX_USER, STATUS_INVALID_OWNER)?;
    let gid = id(&descriptor.group, UNIX_GROUP, STATUS_INVALID_PRIMARY_GROUP)?;
    let now = Attr { uid: uid.unwrap_or(attr.uid), gid: gid.unwrap_or(attr.gid), ..*attr };
    let (mode, list) = match &descriptor.dacl {
        None => (None, None),
        Some(Dacl::Null) => (Some(with_permissions(attr, PERMISSIONS)), Some(None)),
        Some(Dacl::Rules(aces)) => match as_mode(aces, descriptor, &now) {
            Some(mode) => (Some(mode), Some(None)),
            None => (None, Some(Some(list(aces, descriptor)?))),
        },
    };
    let set = SetAttr {
        uid: uid.filter(|&uid| uid != attr.uid),
        gid: gid.filter(|&gid| gid != attr.gid),
        mode: mode.filter(|&mode| mode != attr.mode),
        ..SetAttr::default()
    };
    // A file that has no list and gets none is changed as by chmod.
    Ok(Change { set, acl: list.filter(|list| list.is_some() || acl.is_some()) })
}

/// The mode that says the same as the DACL.
fn as_mode(aces: &[Ace], descriptor: &SecurityDescriptor, attr: &Attr) -> Option<u32> {
    if descriptor.is_protected || descriptor.marks_inherited {
        return None;
    }
    let mode = with_permissions(attr, permissions(aces, attr));
    let said: Option<Vec<Rule>> = aces.iter().map(kept).collect();
    let meant: Option<Vec<Rule>> = rules(&Attr { mode, ..*attr }).iter().map(kept).collect();
    (said.is_some() && said == meant).then_some(mode)
}

fn list(aces: &[Ace], descriptor: &SecurityDescriptor) -> SmbResult<Acl> {
    let rules = aces.iter().map(kept).collect::<Option<Vec<_>>>().ok_or(SmbError::Status(STATUS_INVALID_ACL))?;
    let acl = Acl { is_protected: descriptor.is_protected, marks_inherited: descriptor.marks_inherited, rules };
    if acl.fits() { Ok(acl) } else { Err(SmbError::Status(STATUS_INVALID_ACL)) }
}

/// The mode with other permissions (`security.execute_bits_stay`).
fn with_permissions(attr: &Attr, permissions: u32) -> u32 {
    let kept = match attr.kind {
        FileKind::Directory => !PERMISSIONS,
        _ => !PERMISSIONS | EXECUTE_BITS,
    };
    attr.mode & kept | permissions & !kept
}

/// The permission bits that the rules of a DACL express (`security.dacl_of_the_mode`).
fn permissions(aces: &[Ace], attr: &Attr) -> u32 {
    let everyone = Sid::everyone();
    let class = |sid: &Sid| {
        let (mut allowed, mut denied) = (0, 0);
        for ace in aces.iter().filter(|ace| ace.sid == *sid || ace.sid == everyone) {
            match ace.allow {
                true => allowed |= specific(ace.mask) & !denied,
                false => denied |= specific(ace.mask) & !allowed,
            }
        }
        rights::to_bits(allowed, attr.kind == FileKind::Directory)
    };
    class(&user(attr.uid)) << 6 | class(&group(attr.gid)) << 3 | class(&everyone)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use larder_base::Timestamp;
    use larder_fs::{FileId, Ino};

    use super::*;

    fn attr(kind: FileKind, mode: u32) -> Attr {
        let time = Timestamp::new(0, 0);
        Attr {
            id: FileId { ino: Ino(2), generation: 1 },
            kind,
            mode,
            nlink: 1,
            uid: 1000,
            gid: 100,
            size: 0,
            allocated: 0,
            rdev: (0, 0),
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            change: 0,
            dos: 0,
        }
    }

    /// Of a file without a list.
    fn changed(descriptor: &SecurityDescriptor, attr: &Attr) -> Change {
        changes(descriptor, attr, None).unwrap()
    }

    fn with(aces: Vec<Ace>) -> SecurityDescriptor {
        SecurityDescriptor { dacl: Some(Dacl::Rules(aces)), ..SecurityDescriptor::default() }
    }

    fn for_everyone(mask: u32) -> Ace {
        Ace { allow: true, flags: 0, mask, sid: Sid::everyone() }
    }

    #[test]
    fn every_mode_survives_being_read_and_set_again() {
        for kind in [FileKind::File, FileKind::Directory] {
            for mode in 0..=0o7777 {
                let attr = attr(kind, mode);
                let change = Change { set: SetAttr::default(), acl: None };
                assert_eq!(changed(&descriptor(&attr, None), &attr), change, "{kind:?} {mode:o}");
            }
        }
    }

    #[test]
    fn a_descriptor_from_another_file_gives_its_permissions() {
        let dir = |mode| attr(FileKind::Directory, mode);
        for (from, to) in [(0o750, 0o777), (0o707, 0o700), (0, 0o1777), (0o640, 0o755)] {
            let change = changed(&descriptor(&dir(from), None), &dir(to));
            assert_eq!((change.set.mode, change.acl), (Some(to & !0o777 | from), None));
        }
        let file = attr(FileKind::File, 0o755);
        let change = changed(&descriptor(&attr(FileKind::File, 0o600), None), &file);
        assert_eq!(change.set.mode, Some(0o711), "execute bits of files stay");
        let file_with_list = changes(&descriptor(&file, None), &file, Some(&Acl::default())).unwrap();
        assert_eq!(file_with_list, Change { set: SetAttr::default(), acl: Some(None) }, "the list goes");
        let open = SecurityDescriptor { dacl: Some(Dacl::Null), ..SecurityDescriptor::default() };
        assert_eq!(changed(&open, &attr(FileKind::File, 0o600)).set.mode, Some(0o666));
    }

    #[test]
    fn what_mode_bits_cannot_say_is_kept_as_it_came() {
        let file = attr(FileKind::File, 0o644);
        let domain = Sid::new(5, &[21, 1, 2, 3, 500]);
        let aces = vec![
            Ace { allow: false, flags: 0, mask: 2, sid: user(7) },
            Ace { allow: true, flags: 0x13, mask: 0x1f01ff, sid: group(8) },
            Ace { allow: true, flags: 0x0b, mask: 0x1000_0000, sid: domain },
            for_everyone(0x12_0089),
        ];
        for (is_protected, marks_inherited) in [(false, false), (true, false), (false, true)] {
            let given = SecurityDescriptor { is_protected, marks_inherited, ..with(aces.clone()) };
            let acl = changed(&given, &file).acl.flatten().unwrap();
            let shown = descriptor(&file, Some(&acl));
            assert_eq!(shown.dacl, given.dacl);
            assert_eq!((shown.is_protected, shown.marks_inherited), (is_protected, marks_inherited));
        }
        let generic = changed(&with(vec![for_everyone(0x8000_0000)]), &file).acl.flatten().unwrap();
        assert_eq!(generic.rules[0].rights, 0x12_0089, "generic rights become a file's");
        assert_eq!(changed(&with(Vec::new()), &file).acl, Some(Some(Acl::default())), "nobody may anything");
    }

    #[test]
    fn what_nfs_hands_on_to_owners_is_the_creators() {
        let dir = attr(FileKind::Directory, 0o755);
        let rule = |flags, who| Rule { allows: true, flags, rights: 1, who };
        let list = |flags| Acl { rules: vec![rule(flags, Who::Owner)], ..Acl::default() };
        let shown = |flags| match descriptor(&dir, Some(&list(flags))).dacl {
            Some(Dacl::Rules(aces)) => aces.into_iter().map(|ace| (ace.flags, ace.sid)).collect::<Vec<_>>(),
            _ => Vec::new(),
        };
        let creator = Sid::from_bytes(&CREATOR_OWNER).unwrap();
        assert_eq!(shown(0), [(0, user(1000))]);
        assert_eq!(shown(3), [(0, user(1000)), (0xb, creator.clone())]);
        assert_eq!(shown(0xb), [(0xb, creator)]);
    }

    #[test]
    fn owners_change_and_strangers_are_refused() {
        let file = attr(FileKind::File, 0o644);
        let owner = |sid| SecurityDescriptor { owner: Some(sid), ..SecurityDescriptor::default() };
        let set = SetAttr { uid: Some(7), ..SetAttr::default() };
        assert_eq!(changed(&owner(user(7)), &file), Change { set, acl: None });
        let domain = Sid::new(5, &[21, 1, 2, 3, 500]);
        let status = |d: &SecurityDescriptor| changes(d, &file, None).unwrap_err().to_nt_status();
        assert_eq!(status(&owner(domain)), STATUS_INVALID_OWNER);
        assert_eq!(status(&owner(group(7))), STATUS_INVALID_OWNER);
        let by_group = SecurityDescriptor { group: Some(user(7)), ..SecurityDescriptor::default() };
        assert_eq!(status(&by_group), STATUS_INVALID_PRIMARY_GROUP);
        let long = with(vec![for_everyone(1); 2000]);
        assert_eq!(status(&long), STATUS_INVALID_ACL);
    }
}
