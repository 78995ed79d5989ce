//! The rights that a daemon of root keeps. Root starts it with all of them; most it never uses, and an intruder would.
//!
//! - `rights.before_threads`: rights belong to a thread. They are dropped while the process has one thread, and every later
//!   thread and every program that larder starts has the smaller set.
//! - `rights.no_way_back`: the bounding set shrinks as well, so that no program gets a dropped right by being run as root.
//! - `rights.all_ways`: shares, mounts and disks come and go while the daemon runs, and a dropped right never comes back. So
//!   the set is the same whatever the configuration says at the start. A unit that bounds the daemon further is respected.
//!
//! `PR_SET_NO_NEW_PRIVS` stays off. It would take nothing from a program that is root already and bounded, and commands of the
//! configuration may need programs with a setuid or setgid bit, as sendmail's are. The units set it.

use rustix::io::Errno;
use rustix::thread::CapabilitySet as Set;

/// What is kept, and why. Everything else goes.
const KEPT: [(Set, &str); 13] = [
    (Set::CHOWN, "folders: new files get the owner that they keep"),
    (Set::DAC_OVERRIDE, "folders: files of all users; data folders, pools and devices whose owner is not root"),
    (Set::DAC_READ_SEARCH, "folders: open_by_handle_at(2), for handles that survive a restart"),
    (Set::FOWNER, "folders: modes, times and access lists of files of others; O_NOATIME"),
    (Set::FSETID, "folders: setuid and setgid bits of files of others stay where they were"),
    (Set::MKNOD, "folders: devices that root of a trusted client makes"),
    (Set::SETUID, "folders: setfsuid(2), to act as a user"),
    (Set::SETGID, "folders: setfsgid(2) and setgroups(2), to act as a user"),
    (Set::KILL, "programs that exceed their time are ended, also those that became another user"),
    (Set::NET_BIND_SERVICE, "doors below port 1024; callbacks to NFS clients come from such ports"),
    (Set::IPC_LOCK, "mlock(2): keys stay out of swap, however small RLIMIT_MEMLOCK is"),
    (Set::SYS_ADMIN, "mount(2) and umount(2); attributes `trusted.*`; preparing disks; SMART of NVMe"),
    (Set::SYS_RAWIO, "smartctl(8): ATA commands to read SMART and to stop a disk"),
];

/// Rights are numbered from 0. A kernel that has more than these has a longer mask.
const RIGHTS_MAX: u32 = u64::BITS;

/// Drops what is not in [`KEPT`], where root runs this. Called before there is a second thread (`rights.before_threads`).
pub(crate) fn drop_unneeded() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let steps = [
        ("PR_CAPBSET_DROP", shrink_bounding_set()),
        ("PR_CAP_AMBIENT", rustix::thread::clear_ambient_capability_set()),
        // Last: CAP_SETPCAP goes with it, which the first step needs.
        ("capset", shrink_own_sets()),
    ];
    for (step, error) in steps.into_iter().filter_map(|(step, done)| Some((step, done.err()?))) {
        tracing::warn!("larder runs with more rights of root than it needs: {step} failed: {error}");
    }
}

fn kept() -> Set {
    KEPT.iter().fold(Set::empty(), |all, (right, _)| all.union(*right))
}

/// Rights that a container or unit has withheld already are passed over: dropping them would need CAP_SETPCAP.
fn shrink_bounding_set() -> Result<(), Errno> {
    for right in (0..RIGHTS_MAX).map(|number| Set::from_bits_retain(1 << number)) {
        match rustix::thread::capability_is_in_bounding_set(right) {
            Ok(true) if !kept().contains(right) => rustix::thread::remove_capability_from_bounding_set(right)?,
            Ok(_) => {}
            // This kernel has no right of that number.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn shrink_own_sets() -> Result<(), Errno> {
    let mut sets = rustix::thread::capabilities(None)?;
    sets.permitted = sets.permitted.intersection(kept());
    sets.effective = sets.effective.intersection(kept());
    sets.inheritable = Set::empty();
    rustix::thread::set_capabilities(None, sets)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn dangerous_rights_are_not_kept() {
        let never = Set::SYS_MODULE | Set::SYS_PTRACE | Set::BPF | Set::SYS_TIME | Set::SETPCAP | Set::NET_ADMIN;
        assert!(!kept().intersects(never));
        assert_eq!(kept().bits().count_ones() as usize, KEPT.len());
    }

    #[test]
    fn a_thread_loses_the_rest_for_good() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        // Rights are the thread's own: other tests keep theirs.
        let dropped = std::thread::spawn(|| {
            drop_unneeded();
            let sets = rustix::thread::capabilities(None).unwrap();
            assert!(kept().contains(sets.permitted) && kept().contains(sets.effective), "{sets:?}");
            assert!(sets.inheritable.is_empty(), "{sets:?}");
            assert!(!rustix::thread::capability_is_in_bounding_set(Set::SYS_MODULE).unwrap());
            // Once more: nothing is left to drop, and nothing is refused.
            shrink_bounding_set().and_then(|()| shrink_own_sets()).unwrap();
        });
        dropped.join().unwrap();
    }
}
