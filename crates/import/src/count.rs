//! The size of the whole folder, counted beside the copying: without it nobody could say how long it takes.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use larder_fs::FileKind;

use crate::directory::LEVELS_MAX;
use crate::source::{self, Names, Stat};
use crate::state::Import;

/// Adds everything up. What cannot be read is not counted; whoever copies it says so.
pub(crate) fn count(import: &Import, top: &OwnedFd, stat: &Stat) {
    let Ok(first) = Names::of(top) else { return };
    let (mut files, mut bytes) = (0, 0);
    let mut stack = vec![(None::<OwnedFd>, first, Vec::<CString>::new())];
    loop {
        let depth = stack.len();
        let Some((dir, names, below)) = stack.last_mut() else { break };
        if import.progress.is_stopped() {
            return;
        }
        let dir = dir.as_ref().unwrap_or(top);
        if let Some(name) = below.pop() {
            if depth < LEVELS_MAX
                && let Ok(open) = source::open(dir, &name, FileKind::Directory)
                && let Ok(names) = Names::of(&open)
            {
                stack.push((Some(open), names, Vec::new()));
            }
            continue;
        }
        let page = names.page().unwrap_or_default();
        if page.is_empty() {
            stack.pop();
            continue;
        }
        for name in page {
            match source::stat(dir, &name) {
                Ok(found) if found.kind == FileKind::Directory => {
                    if import.left_out(stat, &found).is_none() {
                        below.push(name);
                    }
                }
                Ok(found) => {
                    files += 1;
                    bytes += if found.kind == FileKind::File { found.size } else { 0 };
                }
                Err(_) => {}
            }
        }
    }
    import.progress.set_total(files, bytes);
}
