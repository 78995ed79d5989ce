//! Permission checks: the POSIX rules and access control lists, pure, so that a table can test
//! them.

use larder_base::Timestamp;

use crate::acl::{self, ALWAYS, Guarded, OWNING, READING, Rights, WRITING};
use crate::words::*;
use crate::{FsError, FsResult};

/// Set-user-ID.
pub const S_ISUID: u32 = 0o4000;
/// Set-group-ID.
pub const S_ISGID: u32 = 0o2000;
/// Sticky.
pub const S_ISVTX: u32 = 0o1000;
const S_IXGRP: u32 = 0o010;

/// The permissions that `cred` has, as an [`AccessMask`].
pub fn granted(of: &Guarded, cred: &Cred) -> AccessMask {
    let attr = &of.attr;
    if cred.checked {
        return ACCESS_READ | ACCESS_WRITE | ACCESS_EXECUTE;
    }
    // Even root, or a user whom the list lets, may execute a file only if one of its execute bits
    // is set.
    let executable = attr.kind == FileKind::Directory || attr.mode & 0o111 != 0;
    if cred.uid == 0 {
        return ACCESS_READ | ACCESS_WRITE | if executable { ACCESS_EXECUTE } else { 0 };
    }
    let Some(acl) = &of.acl else { return class_bits(attr, cred) };
    let rights = acl.rights(attr, cred);
    let bit = |right, bit| if rights & right != 0 { bit } else { 0 };
    bit(acl::READ_DATA, ACCESS_READ)
        | bit(acl::WRITE_DATA, ACCESS_WRITE)
        | if executable { bit(acl::EXECUTE, ACCESS_EXECUTE) } else { 0 }
}

/// The mode bits of the class that `cred` is in.
pub fn class_bits(attr: &Attr, cred: &Cred) -> AccessMask {
    let class = if cred.uid == attr.uid {
        attr.mode >> 6
    } else if cred.in_group(attr.gid) {
        attr.mode >> 3
    } else {
        attr.mode
    };
    class & 7
}

/// Fails with [`FsError::Access`] unless `cred` has all of `mask`.
pub fn require(of: &Guarded, cred: &Cred, mask: AccessMask) -> FsResult<()> {
    if mask & !granted(of, cred) == 0 { Ok(()) } else { Err(FsError::Access) }
}

/// Owner or root.
pub fn owns(attr: &Attr, cred: &Cred) -> bool {
    cred.checked || cred.uid == 0 || cred.uid == attr.uid
}

/// The rights of a list that `cred` has; `None`: the mode bits decide.
fn listed(of: &Guarded, cred: &Cred) -> Option<Rights> {
    let is_judged = !cred.checked && cred.uid != 0;
    of.acl.as_ref().filter(|_| is_judged).map(|acl| acl.rights(&of.attr, cred))
}

/// May something of `kind` be made in `dir`.
pub fn may_add(dir: &Guarded, cred: &Cred, kind: FileKind) -> FsResult<()> {
    let wanted = match kind {
        FileKind::Directory => acl::APPEND_DATA,
        _ => acl::WRITE_DATA,
    };
    match listed(dir, cred) {
        None => require(dir, cred, ACCESS_WRITE | ACCESS_EXECUTE),
        Some(rights) if rights & (wanted | acl::EXECUTE) == wanted | acl::EXECUTE => Ok(()),
        Some(_) => Err(FsError::Access),
    }
}

/// May a name that leads to `victim` be removed from `dir`: write and search permission, and the
/// sticky bit. By lists, DELETE_CHILD of the directory or DELETE of the file (RFC 8881 6.2.1.3.2).
pub fn may_remove(dir: &Guarded, victim: &Guarded, cred: &Cred) -> FsResult<()> {
    require(dir, cred, ACCESS_EXECUTE)?;
    let by_dir = match listed(dir, cred) {
        None => require(dir, cred, ACCESS_WRITE).is_ok(),
        Some(rights) => rights & acl::DELETE_CHILD != 0,
    };
    if !by_dir && listed(victim, cred).is_none_or(|rights| rights & acl::DELETE == 0) {
        return Err(FsError::Access);
    }
    if dir.attr.mode & S_ISVTX != 0 && !owns(&dir.attr, cred) && !owns(&victim.attr, cred) {
        return Err(FsError::NotPermitted);
    }
    Ok(())
}

/// May `cred` give a file another name: its own, or a regular one that it may read and write and that runs as nobody else
/// (Linux with `fs.protected_hardlinks`, whatever the host's sysctl says). Another name keeps the owner's quota and a
/// replaced program alive.
pub fn may_link(of: &Guarded, cred: &Cred) -> FsResult<()> {
    let attr = &of.attr;
    if owns(attr, cred) {
        return Ok(());
    }
    let runs_as_group = attr.mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP;
    let is_plain = attr.kind == FileKind::File && attr.mode & S_ISUID == 0 && !runs_as_group;
    if is_plain && require(of, cred, ACCESS_READ | ACCESS_WRITE).is_ok() { Ok(()) } else { Err(FsError::NotPermitted) }
}

/// The rights of `cred` on a file in `parent`, as an open of SMB or NFSv4 asks for them. The root
/// has no parent: its owner is granted DELETE as part of "full access", and the delete itself is
/// refused.
pub fn rights(of: &Guarded, parent: Option<&Guarded>, cred: &Cred) -> Rights {
    let owns = owns(&of.attr, cred);
    let mut rights = match &of.acl {
        _ if cred.uid == 0 || cred.checked => acl::EVERYTHING,
        // Windows lets the owner always read and change the list (MS-DTYP 2.5.3.2).
        Some(acl) => {
            let owning = if owns && !acl.speaks_of_owner_rights() { acl::READ_CONTROL | acl::WRITE_DAC } else { 0 };
            acl.rights(&of.attr, cred) | owning | acl::SYNCHRONIZE
        }
        None => by_mode(&of.attr, cred) | if owns { OWNING } else { 0 },
    };
    match parent {
        Some(parent) => {
            // A user who may list a directory sees the attributes of its files (MS-FSA
            // 2.1.5.1.2.1).
            rights |= if granted(parent, cred) & ACCESS_READ != 0 { acl::READ_ATTRIBUTES } else { 0 };
            rights |= if may_remove(parent, of, cred).is_ok() { acl::DELETE } else { 0 };
        }
        None if of.acl.is_none() && owns => rights |= acl::DELETE,
        None => {}
    }
    rights
}

fn by_mode(attr: &Attr, cred: &Cred) -> Rights {
    let bits = class_bits(attr, cred);
    let directory = attr.kind == FileKind::Directory;
    let mut rights = ALWAYS;
    if bits & ACCESS_READ != 0 {
        rights |= READING;
    }
    // An executable that may not be read cannot be run either: the client does the running.
    if bits & ACCESS_EXECUTE != 0 && directory {
        rights |= acl::EXECUTE;
    }
    if bits & ACCESS_WRITE != 0 {
        rights |= WRITING;
        // On a file it means nothing, but "full access" asks for it.
        rights |= if !directory || bits & ACCESS_EXECUTE != 0 { acl::DELETE_CHILD } else { 0 };
    }
    rights
}

/// A change of content by an unprivileged user clears setuid. It clears setgid where that means a
/// group, or a group of which the user is no member (setattr_should_drop_sgid of Linux).
pub fn without_suid(mode: u32, is_member: bool) -> u32 {
    let sgid = if mode & S_IXGRP != 0 || !is_member { S_ISGID } else { 0 };
    mode & !(S_ISUID | sgid)
}

/// After a change of content by `cred`.
pub fn clear_suid(attr: &mut Attr, cred: &Cred) {
    if cred.uid != 0 && attr.kind == FileKind::File {
        attr.mode = without_suid(attr.mode, cred.in_group(attr.gid));
    }
}

/// Owner, group and mode of a new inode in `dir` (inode_init_owner of Linux: setgid directories
/// hand on their group).
pub fn ownership(dir: &Attr, cred: &Cred, kind: FileKind, mode: u32, set: &SetAttr) -> (u32, u32, u32) {
    let mut mode = mode & 0o7777;
    let privileged = cred.uid == 0;
    let uid = if privileged { set.uid.unwrap_or(cred.uid) } else { cred.uid };
    let mut gid = match set.gid {
        Some(gid) if privileged || cred.in_group(gid) => gid,
        _ => cred.gid,
    };
    if dir.mode & S_ISGID != 0 {
        if !(privileged && set.gid.is_some()) {
            gid = dir.gid;
        }
        if kind == FileKind::Directory {
            mode |= S_ISGID;
        }
    }
    let foreign = !privileged && !cred.checked && !cred.in_group(gid);
    if kind != FileKind::Directory && mode & S_ISGID != 0 && mode & S_IXGRP != 0 && foreign {
        mode &= !S_ISGID;
    }
    (uid, gid, mode)
}

/// May `cred` make the change `set` (chmod, chown, utimes, truncate)?
pub fn may_set(of: &Guarded, cred: &Cred, set: &SetAttr) -> FsResult<()> {
    let attr = &of.attr;
    if cred.checked || cred.uid == 0 {
        return Ok(());
    }
    let owner = cred.uid == attr.uid;
    let changes_owner = set.uid.is_some_and(|uid| uid != attr.uid || !owner);
    let changes_group = set.gid.is_some_and(|gid| !owner || (gid != attr.gid && !cred.in_group(gid)));
    if changes_owner || changes_group || (set.mode.is_some() && !owner) {
        return Err(FsError::NotPermitted);
    }
    let explicit = |time: Option<SetTime>| matches!(time, Some(SetTime::To(_)));
    if !owner && (explicit(set.atime) || explicit(set.mtime) || set.btime.is_some() || set.dos.is_some()) {
        return Err(FsError::NotPermitted);
    }
    if !owner && (set.atime.is_some() || set.mtime.is_some()) {
        require(of, cred, ACCESS_WRITE)?;
    }
    if set.size.is_some() {
        require(of, cred, ACCESS_WRITE)?;
    }
    Ok(())
}

/// Applies everything but the size. `may_set` has been asked.
pub fn apply(attr: &mut Attr, cred: &Cred, set: &SetAttr, now: Timestamp) {
    let chown = set.uid.is_some() || set.gid.is_some();
    let was_member = cred.uid == 0 || cred.in_group(attr.gid);
    attr.uid = set.uid.unwrap_or(attr.uid);
    attr.gid = set.gid.unwrap_or(attr.gid);
    if chown && attr.kind != FileKind::Directory {
        attr.mode = without_suid(attr.mode, was_member);
    }
    if let Some(mode) = set.mode {
        attr.mode = mode & 0o7777;
        // The group must be one's own for setgid to be kept. A kernel that has checked knows all of
        // the caller's groups, and has taken the bit away already.
        if !cred.checked && cred.uid != 0 && !cred.in_group(attr.gid) {
            attr.mode &= !S_ISGID;
        }
    }
    let time = |set: SetTime| match set {
        SetTime::Now => now,
        SetTime::To(time) => time,
    };
    attr.atime = set.atime.map_or(attr.atime, time);
    attr.mtime = set.mtime.map_or(attr.mtime, time);
    attr.btime = set.btime.unwrap_or(attr.btime);
    attr.dos = set.dos.unwrap_or(attr.dos);
    touch_ctime(attr, now);
}

/// A change of attributes at `now`.
pub fn touch_ctime(attr: &mut Attr, now: Timestamp) {
    attr.ctime = now;
    attr.change = next_change(attr.change);
}

/// The number of the state that follows on the state `change`: even, and beyond an odd one that no state has. That is the number
/// of the state to which a crash would take an inode back that has unstable data.
pub fn next_change(change: u64) -> u64 {
    change.saturating_add(3) & !1
}

/// A change of content at `now`.
pub fn touch_mtime(attr: &mut Attr, now: Timestamp) {
    attr.mtime = now;
    touch_ctime(attr, now);
}

const RELATIME_SECS: i64 = 24 * 3600;

/// relatime: a read is recorded when it is the first since a change, or the last one is a day old.
pub fn wants_atime(attr: &Attr, now: Timestamp) -> bool {
    attr.atime <= attr.mtime || attr.atime <= attr.ctime || now.secs.saturating_sub(attr.atime.secs) >= RELATIME_SECS
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::acl::Acl;

    pub fn attr(kind: FileKind, mode: u32) -> Attr {
        let time = Timestamp::new(1, 0);
        Attr {
            id: FileId { ino: Ino(2), generation: 1 },
            kind,
            mode,
            nlink: 1,
            uid: 10,
            gid: 20,
            size: 0,
            allocated: 0,
            rdev: (0, 0),
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            change: 1,
            dos: 0,
        }
    }

    fn plain(attr: Attr) -> Guarded {
        Guarded { attr, acl: None }
    }

    #[test]
    fn classes_are_exclusive() {
        let check = |mode, uid, gid, groups: &[u32], expected| {
            let cred = Cred::new(uid, gid, groups);
            assert_eq!(granted(&plain(attr(FileKind::File, mode)), &cred), expected, "{mode:o} {uid} {gid}");
        };
        check(0o754, 10, 20, &[], 7);
        check(0o754, 11, 20, &[], 5);
        check(0o754, 11, 21, &[20], 5);
        check(0o754, 11, 21, &[], 4);
        // The owner is judged by the owner's bits alone, also where others may more.
        check(0o077, 10, 20, &[], 0);
        check(0o607, 11, 20, &[], 0);
        check(0o644, 0, 0, &[], 6);
        check(0o001, 0, 0, &[], 7);
    }

    #[test]
    fn sticky_directories() {
        let victim = attr(FileKind::File, 0o666);
        let mut dir = attr(FileKind::Directory, 0o1777);
        dir.uid = 30;
        let check = |uid, expected| {
            let result = may_remove(&plain(dir), &plain(victim), &Cred::new(uid, 99, []));
            assert_eq!(result.is_ok(), expected, "{uid}");
        };
        check(10, true);
        check(30, true);
        check(0, true);
        check(40, false);
    }

    #[test]
    fn links_to_files_of_others() {
        let check = |mode, kind, uid, expected| {
            let done = may_link(&plain(attr(kind, mode)), &Cred::new(uid, 20, []));
            assert_eq!(done.is_ok(), expected, "{mode:o} {kind:?} {uid}");
        };
        let file = FileKind::File;
        check(0o600, file, 10, true);
        check(0o600, file, 0, true);
        check(0o600, file, 11, false);
        check(0o640, file, 11, false);
        check(0o660, file, 11, true);
        check(0o4660, file, 11, false);
        check(0o2660, file, 11, true);
        check(0o2670, file, 11, false);
        check(0o777, FileKind::Symlink, 11, false);
        check(0o777, FileKind::Symlink, 10, true);
        check(0o666, FileKind::Fifo, 11, false);
    }

    #[test]
    fn who_may_set_what() {
        let file = attr(FileKind::File, 0o662);
        let set = |change: fn(&mut SetAttr)| {
            let mut set = SetAttr::default();
            change(&mut set);
            set
        };
        let check = |uid: u32, set: SetAttr, expected: Option<&str>| {
            let result = may_set(&plain(file), &Cred::new(uid, 20, [21]), &set).err().map(|e| e.to_string());
            assert_eq!(result.as_deref(), expected, "{uid} {set:?}");
        };
        let (eperm, eacces) = (Some("operation not permitted"), Some("permission denied"));
        check(10, set(|s| s.mode = Some(0)), None);
        check(11, set(|s| s.mode = Some(0)), eperm);
        check(10, set(|s| s.uid = Some(10)), None);
        check(10, set(|s| s.uid = Some(11)), eperm);
        check(11, set(|s| s.uid = Some(10)), eperm);
        check(10, set(|s| s.gid = Some(21)), None);
        check(10, set(|s| s.gid = Some(22)), eperm);
        check(0, set(|s| s.gid = Some(22)), None);
        check(11, set(|s| s.mtime = Some(SetTime::Now)), None);
        check(11, set(|s| s.mtime = Some(SetTime::To(Timestamp::new(0, 0)))), eperm);
        check(11, set(|s| s.size = Some(0)), None);
        let cred = Cred::new(50, 50, []);
        let no_write = attr(FileKind::File, 0o664);
        let refused =
            may_set(&plain(no_write), &cred, &set(|s| s.mtime = Some(SetTime::Now))).err().map(|e| e.to_string());
        assert_eq!(refused.as_deref(), eacces);
    }

    #[test]
    fn suid_and_sgid() {
        assert_eq!(without_suid(0o6755, true), 0o755);
        assert_eq!(without_suid(0o6745, true), 0o2745);
        assert_eq!(without_suid(0o6745, false), 0o745);
        let now = Timestamp::new(9, 0);
        let mut file = attr(FileKind::File, 0o4755);
        apply(&mut file, &Cred::new(10, 20, []), &SetAttr { gid: Some(20), ..SetAttr::default() }, now);
        assert_eq!((file.mode, file.ctime), (0o755, now));
        apply(&mut file, &Cred::new(10, 99, []), &SetAttr { mode: Some(0o2755), ..SetAttr::default() }, now);
        assert_eq!(file.mode, 0o755);
        let checked = Cred { checked: true, ..Cred::new(10, 99, []) };
        apply(&mut file, &checked, &SetAttr { mode: Some(0o2755), ..SetAttr::default() }, now);
        assert_eq!(file.mode, 0o2755);
        let mut dir = attr(FileKind::Directory, 0o2775);
        dir.gid = 77;
        let (uid, gid, mode) = ownership(&dir, &Cred::new(1, 2, []), FileKind::Directory, 0o755, &SetAttr::default());
        assert_eq!((uid, gid, mode), (1, 77, 0o2755));
        let (_, gid, mode) = ownership(&dir, &Cred::new(1, 2, []), FileKind::File, 0o2755, &SetAttr::default());
        assert_eq!((gid, mode), (77, 0o755));
    }

    #[track_caller]
    fn check_rights(uid: u32, file: Attr, dir_mode: u32, has: Rights, lacks: Rights) {
        let dir = Attr { uid: 1, gid: 1, ..attr(FileKind::Directory, dir_mode) };
        let file = Attr { uid: 1, gid: 1, ..file };
        let rights = rights(&plain(file), Some(&plain(dir)), &Cred::new(uid, uid, []));
        assert_eq!((rights & has, rights & lacks), (has, 0), "{rights:#x}");
    }

    #[test]
    fn mode_bits_become_rights() {
        use acl::{DELETE, EVERYTHING, EXECUTE, READ_ATTRIBUTES, READ_DATA, WRITE_ATTRIBUTES, WRITE_DATA};
        let file = |mode| attr(FileKind::File, mode);
        check_rights(1, file(0o600), 0o755, READ_DATA | WRITE_DATA | DELETE | WRITE_ATTRIBUTES, 0);
        check_rights(2, file(0o600), 0o755, READ_ATTRIBUTES, READ_DATA | WRITE_DATA | DELETE | WRITE_ATTRIBUTES);
        check_rights(2, file(0o644), 0o777, READ_DATA | EXECUTE | DELETE, WRITE_DATA);
        check_rights(2, file(0o666), 0o1777, WRITE_DATA, DELETE);
        check_rights(1, file(0o444), 0o755, DELETE | WRITE_ATTRIBUTES, WRITE_DATA);
        check_rights(0, file(0), 0, EVERYTHING, 0);
    }

    #[test]
    fn a_list_decides_in_place_of_the_mode() {
        use acl::{DELETE, DELETE_CHILD, EXECUTE, READ_DATA, Rule, WRITE_DAC, WRITE_DATA, Who};
        let with = |kind, rules: &[(bool, Rights, Who)]| {
            let rule = |(allows, rights, who): &(bool, Rights, Who)| Rule {
                allows: *allows,
                flags: 0,
                rights: *rights,
                who: who.clone(),
            };
            let list = Acl { rules: rules.iter().map(rule).collect(), ..Acl::default() };
            Guarded { attr: attr(kind, 0o777), acl: Some(Arc::new(list)) }
        };
        let cred = |uid| Cred::new(uid, 99, []);
        let dir =
            with(FileKind::Directory, &[(true, EXECUTE | WRITE_DATA, Who::User(30)), (true, EXECUTE, Who::Everyone)]);
        let file = with(FileKind::File, &[(true, DELETE, Who::User(31)), (true, READ_DATA, Who::User(30))]);
        assert_eq!(granted(&file, &cred(30)), ACCESS_READ);
        assert_eq!(granted(&file, &cred(10)), 0, "the owner has what the list says");
        assert_eq!(granted(&file, &Cred::root()), 7);
        assert!(may_add(&dir, &cred(30), FileKind::File).is_ok());
        assert!(may_add(&dir, &cred(30), FileKind::Directory).is_err());
        assert!(may_remove(&dir, &file, &cred(30)).is_err());
        assert!(may_remove(&dir, &file, &cred(31)).is_ok(), "the file's own list lets it be deleted");
        let remover = with(FileKind::Directory, &[(true, EXECUTE | DELETE_CHILD, Who::User(32))]);
        assert!(may_remove(&remover, &file, &cred(32)).is_ok());
        assert!(may_remove(&remover, &file, &cred(31)).is_err(), "it cannot be reached");
        assert_eq!(rights(&file, None, &cred(10)) & WRITE_DAC, WRITE_DAC, "the owner may change the list");
        let owner_rights = Who::sid(&[1, 1, 0, 0, 0, 0, 0, 3, 4, 0, 0, 0]).expect("a SID");
        let held = with(FileKind::File, &[(true, READ_DATA, owner_rights)]);
        assert_eq!(rights(&held, None, &cred(10)), READ_DATA | acl::SYNCHRONIZE);
    }
}
