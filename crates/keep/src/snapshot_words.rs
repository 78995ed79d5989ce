//! Names of snapshots, the snapshots that a request means, and what is said of them.

use larder_api::{Failure, SnapshotHold, SnapshotStatus};
use larder_fs::{FsError, SnapshotInfo};
use larder_volume::replica::SENDING;
use larder_volume::{HAS_CLONES, Volume};

use crate::translate;

pub fn shown(info: SnapshotInfo) -> SnapshotStatus {
    let created_ms = u64::try_from(info.created.secs).unwrap_or(0) * 1000 + u64::from(info.created.nanos / 1_000_000);
    let hold = |hold: larder_fs::Hold| SnapshotHold { reason: hold.reason, until: hold.until.map(|at| at.secs) };
    SnapshotStatus {
        name: info.name,
        created_ms,
        used_bytes: info.used_bytes,
        referenced_bytes: info.referenced_bytes,
        written_bytes: info.written_bytes,
        holds: info.holds.into_iter().map(hold).collect(),
        clones: info.clones,
    }
}

/// The time in UTC; with a number behind it where there was a snapshot in this second already.
pub fn free_name(volume: &Volume) -> String {
    free_name_after(volume, "")
}

/// The same behind a word.
pub fn free_name_after(volume: &Volume, word: &str) -> String {
    let now = format!("{word}{}", chrono::Utc::now().format("%Y-%m-%d_%H-%M-%SZ"));
    let taken: Vec<String> = volume.snapshots().into_iter().map(|info| info.name).collect();
    first_free(now, &taken)
}

/// The name, or the first with a number behind it that nobody has.
fn first_free(name: String, taken: &[String]) -> String {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.clone()).chain(numbered);
    names.find(|name| !taken.contains(name)).unwrap_or(name)
}

/// The names that a request means (`snapshots.ranges`), oldest first; the name that there is not.
pub fn selected(infos: &[SnapshotInfo], names: &str) -> Result<Vec<String>, String> {
    let place = |name: &str| infos.iter().position(|info| info.name == name).ok_or_else(|| name.to_owned());
    let mut wanted = vec![false; infos.len()];
    for part in names.split(',') {
        let (first, last) = match part.split_once('%') {
            None => (place(part)?, place(part)?),
            Some((first, last)) => (
                if first.is_empty() { 0 } else { place(first)? },
                if last.is_empty() { infos.len().saturating_sub(1) } else { place(last)? },
            ),
        };
        if first > last {
            return Err(part.to_owned());
        }
        wanted.iter_mut().take(last + 1).skip(first).for_each(|wanted| *wanted = true);
    }
    Ok(infos.iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(info, _)| info.name.clone()).collect())
}

pub fn unknown(full: &str) -> Failure {
    let volume = full.split('@').next().unwrap_or_default();
    Failure::not_found(format!("there is no snapshot {full}"))
        .action(format!("see which there are with: larder snap list {volume}"))
}

/// The reason that a snapshot stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotBusy {
    Held,
    HasClones,
    Sending,
    /// In the words of the volume.
    Other(&'static str),
}

impl SnapshotBusy {
    /// The volume gives its reason as words. This is the one place that reads them.
    fn of(words: &'static str) -> Self {
        match words {
            HELD => Self::Held,
            HAS_CLONES => Self::HasClones,
            SENDING => Self::Sending,
            words => Self::Other(words),
        }
    }
}

/// The volume's words for a snapshot with a hold.
const HELD: &str = "the snapshot is held";

pub fn busy_error(full: &str, why: SnapshotBusy) -> Failure {
    match why {
        SnapshotBusy::Held => Failure::busy(format!("the snapshot {full} is held")).action(format!(
            "see why with: larder snap list {} --holds; end a hold with: larder snap release {full} REASON",
            full.split('@').next().unwrap_or_default()
        )),
        SnapshotBusy::HasClones => has_clones(&format!("the snapshot {full}")),
        SnapshotBusy::Sending => {
            Failure::busy(format!("the snapshot {full} is being sent")).action("wait for the end of it")
        }
        SnapshotBusy::Other(words) => {
            Failure::busy(format!("the snapshot {full} is busy: {words}")).action("try again")
        }
    }
}

pub fn snapshot_error(full: &str, error: &FsError) -> Failure {
    match error {
        FsError::NotFound => unknown(full),
        FsError::Exists => Failure::exists(format!("there is a snapshot {full} already")).action("choose another name"),
        FsError::Busy(words) => busy_error(full, SnapshotBusy::of(words)),
        FsError::Invalid(why) => Failure::invalid((*why).to_owned()),
        other => translate::volume_error(format_args!("the snapshot {full}"), other),
    }
}

/// Volumes read what it keeps.
pub fn has_clones(what: &str) -> Failure {
    Failure::busy(format!("{what} has clones, which need it")).action(
        "see which with: larder volume list; make each a volume of its own with: larder volume promote NAME; or destroy it",
    )
}

pub(crate) fn hold_error(full: &str, reason: &str, error: &FsError) -> Failure {
    match error {
        FsError::NotPermitted => {
            Failure::denied(format!("the hold '{reason}' of {full} has an end, and nobody can make it end sooner"))
                .action("wait; or hold it for longer, which is possible at any time")
        }
        FsError::Invalid(why) => Failure::invalid((*why).to_owned()),
        error => snapshot_error(full, error),
    }
}

#[cfg(test)]
mod tests {
    use larder_base::Timestamp;

    use super::*;

    #[test]
    fn two_names_of_one_second_differ() {
        let taken = ["before-t", "before-t-2", "t-2"].map(str::to_owned);
        assert_eq!(first_free("before-t".to_owned(), &taken), "before-t-3");
        assert_eq!(first_free("t".to_owned(), &taken), "t");
    }

    #[test]
    fn ranges_mean_what_lies_between() {
        let info = |name: &str| SnapshotInfo {
            name: name.to_owned(),
            number: 1,
            created: Timestamp::new(0, 0),
            referenced_bytes: 0,
            used_bytes: 0,
            written_bytes: 0,
            holds: Vec::new(),
            clones: Vec::new(),
        };
        let infos = ["a", "b", "c", "d"].map(info);
        let of = |names: &str| selected(&infos, names);
        let names = |names: &[&str]| Ok(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert_eq!(of("b"), names(&["b"]));
        assert_eq!(of("b%c"), names(&["b", "c"]));
        assert_eq!(of("%b"), names(&["a", "b"]));
        assert_eq!(of("c%"), names(&["c", "d"]));
        assert_eq!(of("%"), names(&["a", "b", "c", "d"]));
        assert_eq!(of("d,a%b"), names(&["a", "b", "d"]));
        assert_eq!(of("x"), Err("x".to_owned()));
        assert_eq!(of("c%a"), Err("c%a".to_owned()), "the wrong way round");
    }
}
