//! Pools as pages show them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use larder_api::endpoints::GetPoolsKnown;
use larder_api::{Damage, DiskStatus, Failure, PoolMoving, PoolStatus, ScrubStatus};

use super::change::{OFFERED, path_for};
use crate::ask;
use crate::form::encoded;
use crate::live::{Look, Watch};
use crate::shell_words::on_page;
use crate::text::{Moment, counted, duration, grouped, percent, size};
use crate::visit::Server;

/// How bad something is: a word and a shape, beside a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Fine,
    Warn,
    Bad,
}

impl Level {
    pub fn of_state(state: &str) -> Self {
        match state {
            "ONLINE" => Self::Fine,
            "FAULTED" | "UNAVAIL" | "MISSING" | "REMOVED" | "SUSPENDED" => Self::Bad,
            _ => Self::Warn,
        }
    }

    pub fn class(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }

    pub fn sign(self) -> &'static str {
        match self {
            Self::Fine => "\u{2713}",
            Self::Warn => "!",
            Self::Bad => "\u{d7}",
        }
    }
}

pub struct DiskView {
    pub path: String,
    /// The last part of the path: what fits on a picture of it.
    pub label: String,
    pub state: String,
    pub level: Level,
    pub errors: [String; 3],
    pub errors_all: u64,
    pub size: String,
    pub used: String,
    pub percent: u8,
    pub note: Option<String>,
    pub leaving: bool,
    /// A change that this disk offers by its state.
    pub offer: Option<(&'static str, String)>,
}

/// What a disk in that state waits for.
fn offer(pool: &str, disk: &DiskStatus) -> Option<(&'static str, String)> {
    let (word, text) = match disk.state.as_str() {
        _ if disk.leaving => ("keep", "Keep"),
        "OFFLINE" => ("online", "Take online"),
        "MISSING" | "FAULTED" | "REMOVED" | "READONLY" | "DIVERGED" => ("replace", "Replace"),
        _ => return None,
    };
    let path = format!("{}&disk={}", path_for(pool, word), encoded(&disk.id));
    Some((text, path))
}

impl DiskView {
    fn of(pool: &str, disk: &DiskStatus, label: &str) -> Self {
        let path = disk.path.display().to_string();
        let errors = [disk.read_errors, disk.write_errors, disk.checksum_errors];
        let errors_all = errors.iter().fold(0u64, |sum, one| sum.saturating_add(*one));
        let level = Level::of_state(&disk.state).max(if errors_all > 0 { Level::Warn } else { Level::Fine });
        Self {
            label: label.to_owned(),
            path,
            state: disk.state.clone(),
            level,
            errors: errors.map(grouped),
            errors_all,
            size: size(disk.size_bytes),
            used: size(disk.used_bytes),
            percent: percent(disk.used_bytes, disk.size_bytes),
            note: disk.note.clone(),
            leaving: disk.leaving,
            offer: offer(pool, disk),
        }
    }
}

pub struct ScrubView {
    pub is_running: bool,
    pub is_paused: bool,
    pub percent: u8,
    pub sentence: String,
}

impl ScrubView {
    fn of(scrub: &ScrubStatus) -> Self {
        let percent = percent(scrub.bytes_done, scrub.bytes_total);
        let found = match (scrub.errors, scrub.unrepaired) {
            (0, _) => "no errors".to_owned(),
            (errors, 0) => format!("{} errors, all repaired", grouped(errors)),
            (errors, lost) => format!("{} errors, {} objects not whole", grouped(errors), grouped(lost)),
        };
        let sentence = match scrub.phase.as_str() {
            "running" => {
                let left = scrub.seconds_left.map(|secs| format!(", {} left", duration(secs))).unwrap_or_default();
                let rate = size(scrub.bytes_per_second);
                format!("{} of {} at {rate}/s{left}; {found}", size(scrub.bytes_done), size(scrub.bytes_total))
            }
            phase => {
                let at = Moment::of_ms_unsigned(scrub.ended_ms.unwrap_or(scrub.started_ms)).people;
                format!(
                    "{phase} {at}: {} read in {}, {found}",
                    size(scrub.bytes_done),
                    duration(scrub.elapsed_ms / 1000)
                )
            }
        };
        Self { is_running: scrub.phase == "running", is_paused: scrub.phase == "paused", percent, sentence }
    }
}

pub struct MovingView {
    pub why: String,
    pub percent: u8,
    pub sentence: String,
    pub stuck: Option<String>,
}

impl MovingView {
    fn of(moving: &PoolMoving) -> Self {
        let left = moving.seconds_left.map(|secs| format!(", {} left", duration(secs))).unwrap_or_default();
        let done = (grouped(moving.objects_done), grouped(moving.objects));
        Self {
            why: moving.why.clone(),
            percent: percent(moving.objects_done, moving.objects),
            sentence: format!("{} of {} objects, {} moved{left}", done.0, done.1, size(moving.moved_bytes)),
            stuck: moving.stuck.clone(),
        }
    }
}

pub struct PoolView {
    pub name: String,
    pub layout: String,
    pub state: String,
    pub level: Level,
    pub status: Option<String>,
    pub action: Vec<String>,
    pub scan: Option<String>,
    pub scrub: Option<ScrubView>,
    pub moving: Option<MovingView>,
    pub used: String,
    pub total: String,
    pub available: String,
    pub percent: u8,
    pub disks: Vec<DiskView>,
    pub spares: Vec<String>,
    pub notes: Vec<String>,
    pub damage: Vec<String>,
    pub has_errors: bool,
    /// Changes of its disks, with their pages. A store in a bucket has none.
    pub changes: Vec<(&'static str, String)>,
}

/// Damaged files that a page lists.
const DAMAGE_SHOWN_MAX: usize = 50;

fn damage(damage: &Damage) -> Vec<String> {
    let files = damage.files.iter().map(|file| match file.paths.first() {
        Some(path) => format!("{} in {}", path, file.volume),
        None => format!("file {} in {}, which has no name any more", file.inode, file.volume),
    });
    let metadata = damage.metadata.iter().map(|one| match &one.volume {
        Some(volume) => format!("metadata of {volume}: {}", one.object),
        None => format!("metadata of the pool: {}", one.object),
    });
    let mut all: Vec<String> = files.chain(metadata).take(DAMAGE_SHOWN_MAX).collect();
    let more = damage.count().saturating_sub(all.len() as u64);
    if more > 0 {
        all.push(format!("and {} more", grouped(more)));
    }
    all
}

impl PoolView {
    pub fn of(pool: &PoolStatus) -> Self {
        let paths: Vec<&Path> = pool.disks.iter().map(|disk| disk.path.as_path()).collect();
        let labels = labels(&paths);
        let view = |(disk, label): (&DiskStatus, &String)| DiskView::of(&pool.name, disk, label);
        let disks: Vec<DiskView> = pool.disks.iter().zip(&labels).map(view).collect();
        Self {
            name: pool.name.clone(),
            layout: pool.layout.clone(),
            state: pool.state.clone(),
            level: Level::of_state(&pool.state).max(if pool.status.is_some() { Level::Warn } else { Level::Fine }),
            status: pool.status.as_deref().map(on_page),
            action: pool.action.as_deref().unwrap_or_default().lines().map(on_page).collect(),
            scan: pool.scan.clone(),
            scrub: pool.scrub.as_ref().map(ScrubView::of),
            moving: pool.moving.as_ref().map(MovingView::of),
            used: size(pool.used_bytes),
            total: size(pool.total_bytes),
            available: size(pool.available_bytes),
            percent: percent(pool.used_bytes, pool.total_bytes),
            changes: OFFERED
                .iter()
                .filter(|_| !disks.is_empty())
                .map(|(word, text)| (*text, path_for(&pool.name, word)))
                .collect(),
            has_errors: disks.iter().any(|disk| disk.errors_all > 0),
            disks,
            spares: pool.spares.iter().map(|path| path.display().to_string()).collect(),
            notes: pool.notes.clone(),
            damage: damage(&pool.damage),
        }
    }

    pub fn scrub_runs(&self) -> bool {
        self.scrub.as_ref().is_some_and(|scrub| scrub.is_running)
    }

    pub fn scrub_is_paused(&self) -> bool {
        self.scrub.as_ref().is_some_and(|scrub| scrub.is_paused)
    }

    /// After a fault, too: the disks are looked at anew.
    pub fn wants_clear(&self) -> bool {
        self.has_errors || self.level > Level::Fine
    }

    pub fn disk_count(&self) -> String {
        counted(self.disks.len(), "disk", "disks")
    }
}

/// Whether disks are at work, so that a state does not last.
pub fn is_busy(pools: &[PoolStatus]) -> bool {
    pools.iter().any(|pool| {
        let scrubs = pool.scrub.as_ref().is_some_and(|scrub| scrub.phase == "running");
        scrubs || pool.moving.is_some() || pool.disks.iter().any(|disk| disk.state == "RESILVERING")
    })
}

/// While disks work.
const BUSY: Duration = Duration::from_secs(2);
const CALM: Duration = Duration::from_secs(30);

/// Short names that tell paths apart: the last part of each, or else all parts but those that all begin or end with.
fn labels(paths: &[&Path]) -> Vec<String> {
    let parts: Vec<Vec<String>> = paths.iter().map(|path| parts(path)).collect();
    let last: Vec<String> = parts.iter().filter_map(|parts| parts.last().cloned()).collect();
    let are_apart = |names: &[String]| {
        names.len() == paths.len()
            && names.iter().all(|name| !name.is_empty())
            && names.iter().collect::<BTreeSet<_>>().len() == names.len()
    };
    if are_apart(&last) {
        return last;
    }
    let shortest = parts.iter().map(Vec::len).min().unwrap_or(0);
    let all_have =
        |part: &dyn Fn(&Vec<String>) -> Option<String>| parts.windows(2).all(|two| part(&two[0]) == part(&two[1]));
    let head = (0..shortest).take_while(|at| all_have(&|parts| parts.get(*at).cloned())).count();
    let tail = (0..shortest).take_while(|at| all_have(&|parts| parts.iter().rev().nth(*at).cloned())).count();
    let middle = |parts: &Vec<String>| parts.get(head..parts.len().saturating_sub(tail)).unwrap_or_default().join("/");
    let middles: Vec<String> = parts.iter().map(middle).collect();
    if are_apart(&middles) { middles } else { paths.iter().map(|path| path.display().to_string()).collect() }
}

fn parts(path: &Path) -> Vec<String> {
    path.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect()
}

/// When to look again.
pub fn again(pools: &[PoolStatus]) -> Duration {
    if is_busy(pools) { BUSY } else { CALM }
}

type Draw = Box<dyn Fn(&[PoolStatus]) -> Result<String, Failure> + Send + Sync>;

/// Draws the pools anew as they change (`live.wakes_nothing`).
pub struct PoolWatch {
    draw: Draw,
}

impl PoolWatch {
    pub fn new(draw: impl Fn(&[PoolStatus]) -> Result<String, Failure> + Send + Sync + 'static) -> Self {
        Self { draw: Box::new(draw) }
    }

    async fn look(&mut self, server: &Arc<Server>) -> Result<Look, Failure> {
        let pools = ask::call(&*server.ask, None, GetPoolsKnown, (), None).await?;
        Ok(Look { fragment: (self.draw)(&pools)?, again: again(&pools) })
    }
}

impl Watch for PoolWatch {
    fn look<'a>(&'a mut self, server: &'a Arc<Server>) -> BoxFuture<'a, Result<Look, Failure>> {
        Box::pin(PoolWatch::look(self, server))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_tell_disks_apart() {
        let check = |paths: &[&str], want: &[&str]| {
            let paths: Vec<&Path> = paths.iter().map(Path::new).collect();
            assert_eq!(labels(&paths), want);
        };
        check(&["/mnt/a", "/mnt/b"], &["a", "b"]);
        check(&["/mnt/disk1/larder"], &["larder"]);
        check(&["/mnt/disk1/larder", "/mnt/disk2/larder"], &["disk1", "disk2"]);
        check(&["/mnt/x/larder", "/srv/x/larder"], &["mnt", "srv"]);
        check(&["/mnt/x/larder", "/mnt/y/larder", "/mnt/y/other"], &["x/larder", "y/larder", "y/other"]);
        check(&["/mnt/larder/a", "/mnt/a"], &["/mnt/larder/a", "/mnt/a"]);
        check(&[], &[]);
    }
}
