//! Disks that are out of use: errors, probes, disks that hang, and the labels that say so.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::disk::watch::HANGS;
use crate::disk::{DiskIo, PROBE_NAME, is_no_room};
use crate::history::EventKind;
use crate::member::label;
use crate::member::member_disk::{DiskState, ErrorKind, MemberDisk};
use crate::member::members::Members;
use crate::object::shard_files::OBJECTS;

/// Disks that begin to hang within so many seconds do so together.
const HANG_MARGIN: u64 = 5;

/// The reason given for a disk that is brought up to date like one that was away.
pub const LOST_OBJECTS: &str = "its folder 'objects' is gone: what lay there is made anew";

impl Members {
    /// A read of a disk failed: count it, and find out whether the disk is still there.
    pub fn read_failed(&self, slot: u8, error: &std::io::Error) {
        let Some(member) = self.member(slot) else { return };
        self.count_error(member, ErrorKind::Read, &error.to_string());
        if member.is_readable() && self.probe_read(member).is_err() {
            self.take_out(slot, self.probe_state(member));
        }
    }

    /// A write failed. Probes the disk, and where it is out of use records that on the others
    /// before a write is acknowledged without it (`member.out_before_answer`). Blocks.
    pub fn write_failed(&self, slot: u8, error: &std::io::Error) {
        // Interrupted: the writer gave up because of another disk.
        let Some(member) = self.member(slot).filter(|_| error.kind() != std::io::ErrorKind::Interrupted) else {
            return;
        };
        if is_no_room(error) {
            member.mark_full();
            return;
        }
        self.count_error(member, ErrorKind::Write, &error.to_string());
        if !member.is_writable() {
            return;
        }
        if self.probe_write(member).is_err() {
            let state = self.probe_state(member);
            self.take_out(slot, state);
        }
    }

    /// A second has passed. Disks that hang are put out of use, where the others can do without all
    /// of them (`hang.call_too_long`). Where more disks hang, the disks are not at fault, and
    /// callers go on waiting. Waits for no disk itself.
    pub fn look_for_hangs(self: &Arc<Self>) {
        self.iter().for_each(|member| member.watch().tick());
        let hanging = |margin| self.with_slots().filter(move |(_, member)| member.watch().hangs(margin));
        if hanging(0).next().is_none() {
            return;
        }
        let others = self.iter().filter(|member| !member.is_in_sync() && !member.watch().hangs(HANG_MARGIN));
        let spared = others.count() + hanging(HANG_MARGIN).count();
        if spared > usize::from(self.failures()) {
            return;
        }
        for slot in hanging(0).map(|(slot, _)| slot).collect::<Vec<_>>() {
            self.put_out_hanging(slot);
        }
    }

    /// Whether some call to a disk has not returned: then its seconds are counted (`hang.idle_sleeps`).
    pub fn has_calls_under_way(&self) -> bool {
        self.iter().any(|member| member.watch().is_waiting())
    }

    /// Puts a disk that hangs out of use (`hang.call_too_long`). The labels say so before a write
    /// is acknowledged without it (`member.out_before_answer`).
    fn put_out_hanging(self: &Arc<Self>, slot: u8) {
        let Some(member) = self.member(slot) else { return };
        if !member.is_readable() {
            // A task that is taking it back goes on, too.
            member.watch().close();
            return self.hangs.notify_waiters();
        }
        self.labels_behind.fetch_add(1, Ordering::AcqRel);
        HANGS.clone_into(&mut member.last_error.lock());
        member.set_state(DiskState::Faulted);
        self.out_of_sync(member);
        member.watch().close();
        self.hangs.notify_waiters();
        // The next disk to hang may be one that the labels are written to.
        let members = self.clone();
        let tell = move || {
            members.take_out(slot, DiskState::Faulted);
            members.labels_behind.fetch_sub(1, Ordering::AcqRel);
        };
        if let Err(error) = self.work.start("larder-hang", tell) {
            tracing::error!(pool = %self.name, %error, "no thread to write labels: a disk out of use is not told of");
        }
    }

    /// Finds out which disks are missing by now; `false` when another task is doing so already.
    /// Blocks.
    pub fn look_at_disks(&self) -> bool {
        let Some(_one) = self.checking.try_lock() else { return false };
        self.check_disks();
        true
    }

    /// Looks at the folder and the label of every disk in use.
    fn check_disks(&self) {
        for (slot, member) in self.with_slots().filter(|(_, member)| member.is_readable()) {
            if let Err(error) = self.probe_folder(member) {
                *member.last_error.lock() = error.to_string();
                self.take_out(slot, DiskState::Removed);
            } else if let Err(error) = self.probe_read(member) {
                *member.last_error.lock() = error.to_string();
                self.take_out(slot, self.probe_state(member));
            } else if self.has_lost_objects(member) {
                // It comes back at once, to be brought up to date.
                LOST_OBJECTS.clone_into(&mut member.last_error.lock());
                self.take_out(slot, DiskState::Faulted);
            }
        }
    }

    /// Its objects and their folder are missing, and the others can do without them.
    pub fn has_lost_objects(&self, member: &MemberDisk) -> bool {
        let is_well = |other: &MemberDisk| other.is_readable() && other.is_in_sync();
        let others = self.iter().filter(|other| other.id != member.id && !is_well(other)).count();
        let is_gone =
            |io: Arc<dyn DiskIo>| io.list(OBJECTS).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        others < usize::from(self.failures()) && member.is_writable() && member.io().is_ok_and(is_gone)
    }

    /// Whether the path still leads to the directory that is open: an open directory outlives its
    /// removal, a rename and a lazy unmount.
    fn probe_folder(&self, member: &MemberDisk) -> std::io::Result<()> {
        let missing = |why| Err(std::io::Error::new(std::io::ErrorKind::NotFound, why));
        let path = member.path.read().clone();
        let opener = self.opener.clone();
        self.work.on_disk(&member.io()?, move |own| match opener.open_disk(&path) {
            Ok(disk) if disk.identity()? == own.identity()? => Ok(()),
            Ok(_) => missing("another folder lies in its place"),
            Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
                missing("its folder is gone: removed, renamed or unmounted")
            }
            // Whether the disk works is for the other probes to find out.
            Err(_) => Ok(()),
        })
    }

    fn probe_read(&self, member: &MemberDisk) -> std::io::Result<()> {
        let label = self.work.on_disk(&member.io()?, label::read)?;
        match label {
            Ok(label) if label.disk == member.id => Ok(()),
            Err(why) => Err(std::io::Error::new(std::io::ErrorKind::NotFound, why)),
            Ok(_) => Err(std::io::Error::new(std::io::ErrorKind::NotFound, "the label is gone")),
        }
    }

    /// Which folder a disk is, while it answers.
    pub fn identity(&self, member: &MemberDisk) -> Option<(u64, u64)> {
        self.work.on_disk(&member.io().ok()?, |io| io.identity()).ok()
    }

    fn probe_write(&self, member: &MemberDisk) -> std::io::Result<()> {
        self.probe_read(member)?;
        let result = self.work.on_disk(&member.io()?, |io| {
            let written = io.create(PROBE_NAME).and_then(|file| {
                file.write_at(&mut [std::io::IoSlice::new(&[0; 512])], 0)?;
                file.sync()
            });
            let _ = io.remove(PROBE_NAME);
            written
        });
        match result {
            Err(error) if is_no_room(&error) => Ok(()),
            other => other,
        }
    }

    pub(super) fn probe_state(&self, member: &MemberDisk) -> DiskState {
        match self.probe_read(member) {
            Ok(()) => match self.probe_write(member) {
                Err(error) if error.kind() == std::io::ErrorKind::ReadOnlyFilesystem => DiskState::ReadOnly,
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => DiskState::ReadOnly,
                _ => DiskState::Faulted,
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => DiskState::Removed,
            Err(_) => DiskState::Faulted,
        }
    }

    /// Stops using a disk and says so on the labels of the others.
    pub fn take_out(&self, slot: u8, state: DiskState) {
        let Some(member) = self.member(slot) else { return };
        self.labels_behind.fetch_add(1, Ordering::AcqRel);
        member.set_state(state);
        member.out_since();
        self.out_of_sync(member);
        self.out.notify_one();
        let why = member.last_error.lock().clone();
        let reason = if why.is_empty() { state.to_string() } else { why.clone() };
        tracing::warn!(pool = %self.name, disk = %member.path.read().display(), ?state, why = %reason, "disk out of use");
        let why = if why.is_empty() { why } else { format!(": {why}") };
        self.event(EventKind::DiskOut, format!("{} is {state}{why}", member.path.read().display()));
        self.write_labels(|_| {});
        self.labels_behind.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether a disk may be out of use that the labels still call in sync.
    pub fn are_labels_behind(&self) -> bool {
        self.labels_behind.load(Ordering::Acquire) > 0
    }

    /// For a caller that went on without a disk, before it answers (`member.out_before_answer`).
    /// Blocks.
    pub fn wait_for_labels(&self) {
        while self.are_labels_behind() {
            drop(self.label.lock());
            std::thread::yield_now();
        }
    }

    /// Marks a disk as out of sync, where the others can do without it (`member.out_before_answer`,
    /// `member.no_more_out_than_survivable`). Without redundancy each disk is the only authority
    /// for its objects, and stays so.
    pub(super) fn out_of_sync(&self, member: &MemberDisk) {
        let _one = self.leaving.lock();
        let others = self.iter().filter(|other| other.id != member.id && !other.is_in_sync()).count();
        if others < usize::from(self.failures()) {
            member.in_sync.store(false, Ordering::Release);
        }
    }

    /// Ends the use of a disk that does not do as it is told, where the others can do without it.
    /// It is verified when it comes back. `false` if they cannot: then the disk stays an authority
    /// (`member.no_more_out_than_survivable`). Blocks.
    pub fn give_up(&self, slot: u8) -> bool {
        let Some(member) = self.member(slot) else { return true };
        let others = self.iter().filter(|other| other.id != member.id && !other.is_in_sync()).count();
        if member.is_in_sync() && others >= usize::from(self.failures()) {
            return false;
        }
        if member.is_readable() {
            self.take_out(slot, DiskState::Faulted);
        }
        true
    }

    /// Whether an authority cannot be written: deleted files may still be there when it is back
    /// (`member.no_more_out_than_survivable`).
    pub fn is_authority_away(&self) -> bool {
        self.iter().any(|member| member.is_in_sync() && !member.is_writable())
    }

    /// More disks are out of use than the layout survives.
    pub fn is_faulted(&self) -> bool {
        let out = self.iter().filter(|member| !member.is_readable()).count();
        out > usize::from(self.failures())
    }
}
