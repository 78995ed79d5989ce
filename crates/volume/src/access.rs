//! Who may: the POSIX rules, pure, so that a table can test them.

use larder_base::Timestamp;

use crate::types::*;

pub(crate) const S_ISUID: u32 = 0o4000;
pub(crate) const S_ISGID: u32 = 0o2000;
pub(crate) const S_ISVTX: u32 = 0o1000;
const S_IXGRP: u32 = 0o010;

/// The permissions that `cred` has, as an [`AccessMask`].
pub(crate) fn granted(attr: &Attr, cred: &Cred) -> AccessMask {
    if cred.checked {
        return ACCESS_READ | ACCESS_WRITE | ACCESS_EXECUTE;
    }
    if cred.uid == 0 {
        // Root may execute a file only when somebody may.
        let executable = attr.kind == FileKind::Directory || attr.mode & 0o111 != 0;
        return ACCESS_READ | ACCESS_WRITE | if executable { ACCESS_EXECUTE } else { 0 };
    }
    let class = if cred.uid == attr.uid {
        attr.mode >> 6
    } else if cred.in_group(attr.gid) {
        attr.mode >> 3
    } else {
        attr.mode
    };
    class & 7
}

pub(crate) fn require(attr: &Attr, cred: &Cred, mask: AccessMask) -> FsResult<()> {
    if mask & !granted(attr, cred) == 0 { Ok(()) } else { Err(FsError::Access) }
}

/// Owner or root.
pub(crate) fn owns(attr: &Attr, cred: &Cred) -> bool {
    cred.checked || cred.uid == 0 || cred.uid == attr.uid
}

/// May a name that leads to `victim` be removed from `dir`: write and search permission, and the sticky bit.
pub(crate) fn may_remove(dir: &Attr, victim: &Attr, cred: &Cred) -> FsResult<()> {
    require(dir, cred, ACCESS_WRITE | ACCESS_EXECUTE)?;
    if dir.mode & S_ISVTX != 0 && !owns(dir, cred) && !owns(victim, cred) {
        return Err(FsError::NotPermitted);
    }
    Ok(())
}

/// Changes who is not privileged makes to content take setuid away, and setgid where it means a group, or a group of
/// which they are no member (setattr_should_drop_sgid of Linux).
pub(crate) fn without_suid(mode: u32, is_member: bool) -> u32 {
    let sgid = if mode & S_IXGRP != 0 || !is_member { S_ISGID } else { 0 };
    mode & !(S_ISUID | sgid)
}

pub(crate) fn clear_suid(attr: &mut Attr, cred: &Cred) {
    if cred.uid != 0 && attr.kind == FileKind::File {
        attr.mode = without_suid(attr.mode, cred.in_group(attr.gid));
    }
}

/// Owner, group and mode of a new inode in `dir` (inode_init_owner of Linux: setgid directories hand on their group).
pub(crate) fn ownership(dir: &Attr, cred: &Cred, kind: FileKind, mode: u32, set: &SetAttr) -> (u32, u32, u32) {
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
pub(crate) fn may_set(attr: &Attr, cred: &Cred, set: &SetAttr) -> FsResult<()> {
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
        require(attr, cred, ACCESS_WRITE)?;
    }
    if set.size.is_some() {
        require(attr, cred, ACCESS_WRITE)?;
    }
    Ok(())
}

/// Applies everything but the size. `may_set` has been asked.
pub(crate) fn apply(attr: &mut Attr, cred: &Cred, set: &SetAttr, now: Timestamp) {
    let chown = set.uid.is_some() || set.gid.is_some();
    let was_member = cred.uid == 0 || cred.in_group(attr.gid);
    attr.uid = set.uid.unwrap_or(attr.uid);
    attr.gid = set.gid.unwrap_or(attr.gid);
    if chown && attr.kind != FileKind::Directory {
        attr.mode = without_suid(attr.mode, was_member);
    }
    if let Some(mode) = set.mode {
        attr.mode = mode & 0o7777;
        // The group must be one's own for setgid to be kept. A kernel that has checked knows all of the
        // caller's groups, and has taken the bit away already.
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

pub(crate) fn touch_ctime(attr: &mut Attr, now: Timestamp) {
    attr.ctime = now;
    attr.change += 1;
}

pub(crate) fn touch_mtime(attr: &mut Attr, now: Timestamp) {
    attr.mtime = now;
    touch_ctime(attr, now);
}

const RELATIME_SECS: i64 = 24 * 3600;

/// relatime: a read is recorded when it is the first since a change, or the last one is a day old.
pub(crate) fn wants_atime(attr: &Attr, now: Timestamp) -> bool {
    attr.atime <= attr.mtime || attr.atime <= attr.ctime || now.secs.saturating_sub(attr.atime.secs) >= RELATIME_SECS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(kind: FileKind, mode: u32) -> Attr {
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

    #[test]
    fn classes_are_exclusive() {
        let check = |mode, uid, gid, groups: &[u32], expected| {
            let cred = Cred::new(uid, gid, groups);
            assert_eq!(granted(&attr(FileKind::File, mode), &cred), expected, "{mode:o} {uid} {gid}");
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
            let result = may_remove(&dir, &victim, &Cred::new(uid, 99, []));
            assert_eq!(result.is_ok(), expected, "{uid}");
        };
        check(10, true);
        check(30, true);
        check(0, true);
        check(40, false);
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
            let result = may_set(&file, &Cred::new(uid, 20, [21]), &set).err().map(|e| e.to_string());
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
        let refused = may_set(&no_write, &cred, &set(|s| s.mtime = Some(SetTime::Now))).err().map(|e| e.to_string());
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
}
