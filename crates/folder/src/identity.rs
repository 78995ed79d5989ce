//! The user's identity for calls that name things: the kernel judges the name and acts on it in one step.
//!
//! - `identity.names_as_user`: a call that takes a name (make, link, rename, remove) runs with the user's fsuid, fsgid and
//!   groups. So a name that another program of the host exchanges between larder's judgement and the call leads to nothing
//!   that the user could not do on the host. What acts on a descriptor needs no identity: nobody exchanges an open inode.
//! - `identity.owner_from_birth`: an inode is made with the owner, group and mode that it keeps. Nothing is given to a user
//!   afterwards by a name.
//! - `identity.one_thread`: an identity belongs to the calling thread, and the guard that gave it takes it back, also when the
//!   call panics. A thread whose identity cannot be taken back ends the process: it would act as the wrong user.
//! - `identity.root_is_itself`: root, and callers whom a kernel has checked, act as larder.

use std::cell::Cell;
use std::sync::OnceLock;

use larder_fs::{Cred, FsError, FsResult};
use rustix::fs::{Gid, Mode};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};

use crate::kernel::failed;

/// Owner and groups for the calls of one thread.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    uid: u32,
    gid: u32,
    groups: Vec<Gid>,
    /// Root makes a node for another owner: the rights stay root's, the owner is `uid`.
    keeps_rights: bool,
}

impl Identity {
    /// `None`: larder acts as itself (`identity.root_is_itself`).
    pub(crate) fn of(cred: &Cred) -> FsResult<Option<Identity>> {
        if cred.uid == 0 || cred.checked || !may_switch()? {
            return Ok(None);
        }
        let groups = cred.groups.iter().copied().map(Gid::from_raw).collect();
        Ok(Some(Identity { uid: cred.uid, gid: cred.gid, groups, keeps_rights: false }))
    }

    /// To make a node with this owner and group (`identity.owner_from_birth`).
    pub(crate) fn owning(cred: &Cred, uid: u32, gid: u32) -> FsResult<Option<Identity>> {
        if uid == u32::MAX || gid == u32::MAX {
            return Err(FsError::Invalid("no owner has that number"));
        }
        match Identity::of(cred)? {
            Some(identity) => Ok(Some(Identity { uid, gid, ..identity })),
            None if !may_switch()? && uid != rustix::process::geteuid().as_raw() => Err(FsError::NotPermitted),
            None if (uid, gid) == (0, 0) || !may_switch()? => Ok(None),
            None => Ok(Some(Identity { uid, gid, groups: Vec::new(), keeps_rights: true })),
        }
    }
}

/// The rights over files that the kernel takes from a thread whose fsuid leaves 0 (`CAP_FS_SET` of linux/capability.h).
const FILE_RIGHTS: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::LINUX_IMMUTABLE)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::MAC_OVERRIDE);

/// How larder's process stands to the host's files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It takes users' identities.
    Switches,
    /// It has no right that its account has not: the host bounds it.
    Bounded,
    /// It has rights over files of others, and cannot take identities: it would do what users may not.
    Unbounded,
}

fn standing() -> Standing {
    static STANDING: OnceLock<Standing> = OnceLock::new();
    *STANDING.get_or_init(|| {
        let Ok(sets) = rustix::thread::capabilities(None) else { return Standing::Unbounded };
        if sets.effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID) {
            Standing::Switches
        } else if sets.effective.intersects(FILE_RIGHTS) || rustix::process::geteuid().is_root() {
            Standing::Unbounded
        } else {
            Standing::Bounded
        }
    })
}

/// Whether larder can do more on the host than its account.
pub(crate) fn is_unbounded() -> bool {
    standing() != Standing::Bounded
}

/// Whether larder takes identities. Without root's capabilities it acts as its own account.
fn may_switch() -> FsResult<bool> {
    match standing() {
        Standing::Switches => Ok(true),
        Standing::Bounded => Ok(false),
        Standing::Unbounded => Err(FsError::Refused(
            "larder has rights over files of others and may not act as their users: give its unit CAP_SETUID and \
             CAP_SETGID as well"
                .into(),
        )),
    }
}

/// Runs `work` as a user, or as larder itself without one.
pub(crate) fn acting<T>(identity: Option<&Identity>, work: impl FnOnce() -> T) -> FsResult<T> {
    let _taken = identity.map(Taken::new).transpose()?;
    Ok(work())
}

/// The umask of the calling thread is 0 while `work` runs, so that a node is born with its mode. Where a sandbox keeps the
/// thread from having its own, the process's stays.
pub(crate) fn without_umask<T>(work: impl FnOnce() -> T) -> T {
    struct Restored(Mode);
    impl Drop for Restored {
        fn drop(&mut self) {
            rustix::process::umask(self.0);
        }
    }
    let _restored = has_own_umask().then(|| Restored(rustix::process::umask(Mode::empty())));
    work()
}

/// Gives the thread an umask (and working directory) of its own, once.
fn has_own_umask() -> bool {
    thread_local!(static OWN: Cell<Option<bool>> = const { Cell::new(None) });
    OWN.with(|own| match own.get() {
        Some(known) => known,
        None => {
            // SAFETY: a working directory, root and umask of the thread's own break no memory. Larder changes the first two
            // never, and the umask only in `without_umask`.
            let is_own = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }.is_ok();
            own.set(Some(is_own));
            is_own
        }
    })
}

/// What the thread is when it acts as larder.
struct Own {
    uid: u32,
    gid: u32,
    groups: Vec<Gid>,
}

fn own() -> Result<&'static Own, Errno> {
    static OWN: OnceLock<Own> = OnceLock::new();
    if let Some(own) = OWN.get() {
        return Ok(own);
    }
    let groups = rustix::process::getgroups()?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Ok(OWN.get_or_init(|| Own { uid, gid, groups }))
}

/// A thread with a user's identity.
struct Taken {
    own: &'static Own,
    /// To be given back where they were changed.
    rights: Option<CapabilitySets>,
}

impl Taken {
    fn new(identity: &Identity) -> FsResult<Taken> {
        let own = own().map_err(failed)?;
        // The kernel itself takes file rights from root alone, and gives them back.
        let is_changed = identity.keeps_rights || own.uid != 0;
        let rights = is_changed.then(|| rustix::thread::capabilities(None)).transpose().map_err(failed)?;
        // From here on the drop takes back whatever was done.
        let taken = Taken { own, rights };
        rustix::thread::set_thread_groups(&identity.groups).map_err(refused)?;
        set_fsgid(identity.gid).and_then(|()| set_fsuid(identity.uid)).map_err(refused)?;
        if let Some(rights) = rights {
            let dropped = if identity.keeps_rights { CapabilitySet::empty() } else { FILE_RIGHTS };
            let wanted = CapabilitySets { effective: rights.effective.difference(dropped), ..rights };
            rustix::thread::set_capabilities(None, wanted).map_err(refused)?;
        }
        Ok(taken)
    }

    fn give_back(&self) -> Result<(), Errno> {
        set_fsuid(self.own.uid)?;
        set_fsgid(self.own.gid)?;
        rustix::thread::set_thread_groups(&self.own.groups)?;
        match self.rights {
            Some(rights) => rustix::thread::set_capabilities(None, rights),
            None => Ok(()),
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Err(error) = self.give_back() {
            tracing::error!(
                "a thread keeps a user's identity ({error}): larder ends, before it acts as the wrong user"
            );
            std::process::abort();
        }
    }
}

fn refused(error: Errno) -> FsError {
    let error = std::io::Error::from(error);
    FsError::Io(
        format!("larder may not act as the user ({error}): let it run as root, with CAP_SETUID and CAP_SETGID").into(),
    )
}

/// No process and no file has this number: the kernel refuses it, and says the current one.
const ASKING: u32 = u32::MAX;

fn set_fsuid(uid: u32) -> Result<(), Errno> {
    // SAFETY: the call takes a number and changes only the calling thread's identity.
    let now = unsafe {
        libc::setfsuid(uid);
        libc::setfsuid(ASKING)
    };
    if now as u32 == uid { Ok(()) } else { Err(Errno::PERM) }
}

fn set_fsgid(gid: u32) -> Result<(), Errno> {
    // SAFETY: the call takes a number and changes only the calling thread's identity.
    let now = unsafe {
        libc::setfsgid(gid);
        libc::setfsgid(ASKING)
    };
    if now as u32 == gid { Ok(()) } else { Err(Errno::PERM) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn status() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let kept = ["Uid:", "Gid:", "Groups:", "CapEff:", "CapPrm:"];
        status.lines().filter(|line| kept.iter().any(|key| line.starts_with(key))).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_thread_is_itself_again() {
        let before = status();
        let cred = Cred::new(1234, 1235, [1236, 1237]);
        let inside = acting(Identity::of(&cred).unwrap().as_ref(), status).unwrap();
        assert!(inside.contains("Uid:\t0\t0\t0\t1234") && inside.contains("Gid:\t0\t0\t0\t1235"), "{inside}");
        assert!(inside.contains("1236 1237"), "{inside}");
        assert_eq!(status(), before);
        let panicked =
            std::panic::catch_unwind(|| acting(Identity::of(&cred).unwrap().as_ref(), || panic!("of the test")));
        assert!(panicked.is_err());
        assert_eq!(status(), before);
        assert!(Identity::of(&Cred::root()).unwrap().is_none());
        assert!(Identity::of(&Cred { checked: true, ..cred }).unwrap().is_none());
    }

    #[test]
    fn other_threads_keep_theirs() {
        let cred = Cred::new(1234, 1235, []);
        acting(Identity::of(&cred).unwrap().as_ref(), || {
            let other = std::thread::spawn(status);
            // A thread inherits from the one that starts it; those that run already are left alone.
            let _ = other.join().unwrap();
            let main = std::fs::read_to_string("/proc/self/status").unwrap();
            assert!(main.contains("Uid:\t0\t0\t0\t0"), "{main}");
        })
        .unwrap();
    }

    #[test]
    fn root_makes_for_others_with_its_own_rights() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let path = dir.path().join("x");
        let identity = Identity::owning(&Cred::root(), 1234, 1235).unwrap();
        without_umask(|| acting(identity.as_ref(), || std::fs::create_dir(&path).unwrap()).unwrap());
        let made = std::fs::metadata(&path).unwrap();
        assert_eq!((made.uid(), made.gid(), made.mode() & 0o7777), (1234, 1235, 0o777));
        let as_user = Identity::owning(&Cred::new(1234, 1235, []), 1234, 1235).unwrap();
        let refused = acting(as_user.as_ref(), || std::fs::create_dir(dir.path().join("y"))).unwrap();
        assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    }
}
