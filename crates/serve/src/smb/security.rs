//! Security descriptors as views of owner, group and mode.
//!
//! S1: users are S-1-22-1-uid and groups S-1-22-2-gid, as Samba shows those it knows no domain for.
//! S2: a DACL says what the mode does, in the rights that [`rights`] makes of it: a rule for the owner, one for the group, one for everyone. A class
//! that may less than a wider one is denied the difference before the wider one's rule.
//! S3: a descriptor is accepted when it becomes mode bits, owner and group without loss: its rules name only
//! the owner, the group and everyone. Rules for others are refused with STATUS_NONE_MAPPED; dropping them
//! would open or close the file to somebody without a word.
//! S4: the execute bits of files stay as they are: reading implies running, to a client that reads what it runs.
//! On directories they are the right to pass.

use larder_smb::{Ace, Dacl, SecurityDescriptor, Sid, SmbError, SmbResult};
use larder_volume::{Attr, FileKind, SetAttr};

use super::rights;

const UNIX_AUTHORITY: u64 = 22;
const UNIX_USER: u32 = 1;
const UNIX_GROUP: u32 = 2;

const STATUS_INVALID_OWNER: u32 = 0xC000_005A;
const STATUS_INVALID_PRIMARY_GROUP: u32 = 0xC000_005B;
const STATUS_NONE_MAPPED: u32 = 0xC000_0073;

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

pub fn descriptor(attr: &Attr) -> SecurityDescriptor {
    SecurityDescriptor {
        owner: Some(user(attr.uid)),
        group: Some(group(attr.gid)),
        dacl: Some(Dacl::Rules(rules(attr))),
    }
}

/// S2.
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

/// What setting `descriptor` on the file does; S3.
pub fn changes(descriptor: &SecurityDescriptor, attr: &Attr) -> SmbResult<SetAttr> {
    let id = |sid: &Option<Sid>, kind, status| match sid {
        None => Ok(None),
        Some(sid) => unix_id(sid, kind).map(Some).ok_or(SmbError::Status(status)),
    };
    let uid = id(&descriptor.owner, UNIX_USER, STATUS_INVALID_OWNER)?;
    let gid = id(&descriptor.group, UNIX_GROUP, STATUS_INVALID_PRIMARY_GROUP)?;
    let now = Attr { uid: uid.unwrap_or(attr.uid), gid: gid.unwrap_or(attr.gid), ..*attr };
    let mode = match &descriptor.dacl {
        None => None,
        Some(Dacl::Null) => Some(with_permissions(attr, PERMISSIONS)),
        Some(Dacl::Rules(rules)) => Some(with_permissions(attr, permissions(rules, &now)?)),
    };
    Ok(SetAttr {
        uid: uid.filter(|&uid| uid != attr.uid),
        gid: gid.filter(|&gid| gid != attr.gid),
        mode: mode.filter(|&mode| mode != attr.mode),
        ..SetAttr::default()
    })
}

/// The mode with other permissions; S4.
fn with_permissions(attr: &Attr, permissions: u32) -> u32 {
    let kept = match attr.kind {
        FileKind::Directory => !PERMISSIONS,
        _ => !PERMISSIONS | EXECUTE_BITS,
    };
    attr.mode & kept | permissions & !kept
}

/// The permission bits that `rules` come to: each class is allowed what the rules about it and everyone
/// allow before one denies it (MS-DTYP 2.5.3.2).
fn permissions(rules: &[Ace], attr: &Attr) -> SmbResult<u32> {
    let (owner, members, everyone) = (user(attr.uid), group(attr.gid), Sid::everyone());
    let about_file = || rules.iter().filter(|rule| rule.flags & Ace::INHERIT_ONLY == 0);
    if about_file().any(|rule| rule.sid != owner && rule.sid != members && rule.sid != everyone) {
        return Err(SmbError::Status(STATUS_NONE_MAPPED));
    }
    let directory = attr.kind == FileKind::Directory;
    let class = |sid: &Sid| {
        let (mut allowed, mut denied) = (0, 0);
        for rule in about_file().filter(|rule| rule.sid == *sid || rule.sid == everyone) {
            match rule.allow {
                true => allowed |= rights::specific(rule.mask) & !denied,
                false => denied |= rights::specific(rule.mask) & !allowed,
            }
        }
        rights::to_bits(allowed, directory)
    };
    Ok(class(&owner) << 6 | class(&members) << 3 | class(&everyone))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use larder_base::Timestamp;
    use larder_volume::{FileId, Ino};

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

    #[test]
    fn every_mode_survives_being_read_and_set_again() {
        for kind in [FileKind::File, FileKind::Directory] {
            for mode in 0..=0o7777 {
                let attr = attr(kind, mode);
                assert_eq!(changes(&descriptor(&attr), &attr).unwrap(), SetAttr::default(), "{kind:?} {mode:o}");
            }
        }
    }

    #[test]
    fn a_descriptor_from_another_file_gives_its_permissions() {
        let dir = |mode| attr(FileKind::Directory, mode);
        for (from, to) in [(0o750, 0o777), (0o707, 0o700), (0, 0o1777), (0o640, 0o755)] {
            let set = changes(&descriptor(&dir(from)), &dir(to)).unwrap();
            assert_eq!(set.mode, Some(to & !0o777 | from));
        }
        let file = attr(FileKind::File, 0o755);
        let set = changes(&descriptor(&attr(FileKind::File, 0o600)), &file).unwrap();
        assert_eq!(set.mode, Some(0o711), "execute bits of files stay");
    }

    #[test]
    fn generic_rights_and_a_null_dacl_are_understood() {
        let file = attr(FileKind::File, 0o600);
        let with = |dacl| SecurityDescriptor { dacl: Some(dacl), ..SecurityDescriptor::default() };
        let rule = |mask| Ace { allow: true, flags: 0, mask, sid: Sid::everyone() };
        for (mask, mode) in [(0x1000_0000, Some(0o666)), (0x8000_0000, Some(0o444)), (0x4000_0000, Some(0o222))] {
            assert_eq!(changes(&with(Dacl::Rules(vec![rule(mask)])), &file).unwrap().mode, mode);
        }
        assert_eq!(changes(&with(Dacl::Null), &file).unwrap().mode, Some(0o666));
        assert_eq!(changes(&with(Dacl::Rules(Vec::new())), &file).unwrap().mode, Some(0));
    }

    #[test]
    fn owners_change_and_strangers_are_refused() {
        let file = attr(FileKind::File, 0o644);
        let owner = |sid| SecurityDescriptor { owner: Some(sid), ..SecurityDescriptor::default() };
        assert_eq!(changes(&owner(user(7)), &file).unwrap(), SetAttr { uid: Some(7), ..SetAttr::default() });
        let domain = Sid::new(5, &[21, 1, 2, 3, 500]);
        let status = |d: &SecurityDescriptor| changes(d, &file).unwrap_err().to_nt_status();
        assert_eq!(status(&owner(domain.clone())), STATUS_INVALID_OWNER);
        assert_eq!(status(&owner(group(7))), STATUS_INVALID_OWNER);
        let by_group = SecurityDescriptor { group: Some(user(7)), ..SecurityDescriptor::default() };
        assert_eq!(status(&by_group), STATUS_INVALID_PRIMARY_GROUP);
        let mut strange = descriptor(&file);
        let Some(Dacl::Rules(rules)) = &mut strange.dacl else { panic!("there are rules") };
        rules.push(Ace { allow: true, flags: 0, mask: 1, sid: domain });
        assert_eq!(status(&strange), STATUS_NONE_MAPPED);
    }
}
