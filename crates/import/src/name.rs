//! Names for whole files (`import.named_when_durable`): one flush for all that wait, then a name for each.

use std::sync::mpsc::Receiver;

use crate::copy::{Unnamed, came};
use crate::state::Import;

/// Whole files that wait for their names. They are flushed together.
pub(crate) const UNNAMED_MAX: usize = 1024;

pub(crate) fn name(import: &Import, ready: &Receiver<Unnamed>) {
    while let Ok(first) = ready.recv() {
        let mut batch = vec![first];
        while batch.len() < UNNAMED_MAX {
            match ready.try_recv() {
                Ok(next) => batch.push(next),
                Err(_) => break,
            }
        }
        if import.progress.is_stopped() {
            continue;
        }
        // Copying goes on meanwhile, so the next batch gathers by itself.
        if let Err(error) = import.on(import.files.sync()) {
            import.volume_fault(&batch[0].job.path(), error);
            batch.iter().for_each(|unnamed| came(import, &unnamed.job, None));
            continue;
        }
        for Unnamed { job, ino, file, replaces } in batch {
            let (files, cred) = (&import.files, &import.cred);
            let dir = job.dir.dest.unwrap_or(larder_fs::Ino::ROOT);
            let named = match replaces {
                true => import.on(files.relink(cred, ino, dir, job.bytes())),
                false => import.on(files.link(cred, ino, dir, job.bytes())),
            };
            // It has a name, or is removed.
            drop(file);
            match named {
                Ok(_) => came(import, &job, Some(ino)),
                Err(error) => {
                    import.volume_fault(&job.path(), error);
                    came(import, &job, None);
                }
            }
        }
    }
}
