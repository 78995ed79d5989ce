//! Everything but objects: labels, their second copies, and the journal.

use std::io::IoSliceMut;
use std::sync::Arc;

use super::found::Records;
use crate::core::Core;
use crate::disk::{DIRECT_ALIGN, DiskIo};
use crate::member::label::{self, Label};
use crate::member::member_disk::{ErrorKind, MemberDisk};

/// Longest label that is read.
const LABEL_BYTES_MAX: u64 = 256 << 10;

impl Core {
    /// Blocks.
    pub fn scrub_records(self: &Arc<Self>) -> Records {
        let mut found = self.scrub_labels();
        if let Some(journal) = self.journal() {
            let journal = crate::journal::check::check_copies(&self.members, &journal);
            found.errors += journal.errors;
            found.repaired += journal.repaired;
            found.repaired_bytes += journal.repaired_bytes;
            found.unrepaired += journal.unrepaired;
        }
        found
    }

    /// A label that is damaged is written again with all others, as when a disk's state changes.
    fn scrub_labels(self: &Arc<Self>) -> Records {
        let readable: Vec<&MemberDisk> = self.members.iter().filter(|member| member.is_readable()).collect();
        let damaged = self.members.work.side_by_side(readable.clone(), |member| {
            let core = self.clone();
            self.members.work.on_disk(&member.io()?, move |io| {
                let names = [label::LABEL_NAME, label::SECOND_NAME].into_iter();
                Ok(names.filter(|name| !core.label_is_intact(io, name)).collect::<Vec<_>>())
            })
        });
        let mut errors = 0;
        for (member, names) in readable.into_iter().zip(damaged) {
            for name in names.unwrap_or_default() {
                self.members.count_error(member, ErrorKind::Checksum, &format!("{name} is damaged"));
                errors += 1;
            }
        }
        if errors > 0 {
            self.members.write_labels(|_| {});
        }
        Records { errors, repaired: errors, ..Records::default() }
    }

    /// As the disk has it, past the kernel's cache. A disk that cannot be read is found out by
    /// others.
    fn label_is_intact(&self, disk: &dyn DiskIo, name: &str) -> bool {
        let read = disk.open(name, false).and_then(|file| {
            let length = file.length()?.min(LABEL_BYTES_MAX) as usize;
            let mut buffer = self.members.buffers.take(length.next_multiple_of(DIRECT_ALIGN));
            let count = file.read_direct_at(&mut [IoSliceMut::new(buffer.bytes_mut())], 0)?;
            Ok(Label::decode(buffer.as_ref().get(..count).unwrap_or_default()))
        });
        match read {
            Ok(label) => label.is_ok_and(|label| label.pool == self.members.id),
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        }
    }
}
