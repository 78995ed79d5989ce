//! Scrubs of open pools, and what their findings mean for files.

use larder_api::{ByteRange, Damage, DamagedFile, DamagedMetadata, Failure, PoolScrub, PoolStatus, ScrubStatus};
use larder_base::{boxed, shell};
use larder_volume::{DamageReport, DamagedObject};

use crate::damage::{damaged_objects, gone_of};
use crate::store::Store;
use crate::translate::{self, scrub_status};

impl Store {
    #[boxed]
    pub async fn scrub_status(&self) -> PoolScrub {
        let (damage, unused) = self.damage().await;
        let scrub =
            self.disk_pool().and_then(|pool| pool.scrub_status()).map(|status| without(unused, scrub_status(status)));
        PoolScrub { pool: self.name.clone(), scrub, damage }
    }

    /// Start, pause or stop.
    #[boxed]
    pub async fn scrub_do(&self, action: &str, why: &str) -> Result<PoolScrub, Failure> {
        let pool = self.need_disks()?;
        let done = match action {
            "start" => {
                self.open_volumes().await;
                pool.scrub_start(why).await
            }
            "pause" => pool.scrub_pause().await,
            "stop" => pool.scrub_stop().await,
            other => {
                return Err(Failure::invalid(format!("'{other}' is nothing to do with a scrub: start, pause, stop")));
            }
        };
        done.map_err(|e| translate::pool_error(&e))?;
        Ok(self.scrub_status().await)
    }

    /// Scrubs to the end; returns how many pieces were made anew.
    pub(crate) async fn scrub_through(&self) -> Result<u64, Failure> {
        let pool = self.need_disks()?;
        self.open_volumes().await;
        pool.scrub().await.map(|status| status.repaired).map_err(|e| translate::pool_error(&e))
    }

    /// Only a volume that is open knows what it needs. Whoever wants to use one that cannot be opened is told why.
    async fn open_volumes(&self) {
        for volume in self.registry.list().await.unwrap_or_default() {
            let _ = self.registry.volume(&volume.name).await;
        }
    }

    /// Tells the pool what its volumes need and it has not.
    #[boxed]
    pub async fn look_for_gone(&self) {
        // Of a bucket nobody lists all objects just to look: that is on the bill.
        let Some(pool) = self.disk_pool() else { return };
        match self.registry.missing_objects().await {
            Ok(gone) => pool.note_missing(gone_of(gone)),
            Err(error) => tracing::warn!(pool = %self.name, %error, "cannot look for objects that are gone"),
        }
    }

    /// When the last scrub began (or the pool was made), and whether none runs or waits to be gone on with.
    pub fn last_scrub(&self) -> (u64, bool) {
        use larder_pool::ScrubPhase::{Paused, Running};
        let Some(pool) = self.disk_pool() else { return (0, false) };
        match pool.scrub_status() {
            Some(scrub) => (scrub.started_ms, !matches!(scrub.phase, Running | Paused)),
            None => (pool.history().first().map_or(0, |event| event.at_ms), true),
        }
    }

    pub fn is_busy(&self) -> bool {
        self.disk_pool().is_some_and(|pool| pool.is_busy())
    }

    #[boxed]
    pub async fn scrub_wait(&self) {
        if let Some(pool) = self.disk_pool() {
            pool.scrub_wait().await;
        }
    }

    /// The status, with the files that have lost data.
    #[boxed]
    pub async fn status_with_damage(&self) -> PoolStatus {
        let (damage, unused) = self.damage().await;
        self.told(damage, unused)
    }

    /// The same from memory: it reads nothing, so damaged objects are counted as files, and none has a name.
    pub(crate) fn known_status(&self) -> PoolStatus {
        let Some(pool) = self.disk_pool() else { return self.status() };
        pool.keep_space();
        let (damaged, more) = pool.damage();
        let (out, out_more) = pool.out_of_reach();
        let out_of_reach = out.len() as u64 + out_more;
        let others = damaged.iter().filter(|one| out.iter().all(|other| other.object != one.object)).count() as u64;
        let more = more + others + out_of_reach;
        self.told(Damage { files: Vec::new(), metadata: Vec::new(), more, out_of_reach }, 0)
    }

    fn told(&self, damage: Damage, unused: u64) -> PoolStatus {
        let mut status = self.status();
        status.scrub = status.scrub.map(|scrub| without(unused, scrub));
        if damage.count() > 0 && damage.out_of_reach > 0 {
            let text = format!("{} cannot be read now: too few disks have what is listed (-v).", damaged_text(&damage));
            status.status = Some(format!("{}\n{text}", status.status.unwrap_or_default()));
        } else if damage.count() > 0 {
            let restore = match damage.metadata.is_empty() {
                true => format!(
                    "Restore what is listed (-v) from a backup or delete it, then run: larder pool scrub start {}",
                    self.name
                ),
                // Nobody can restore or delete that, and anything may be out of reach without it.
                false => {
                    let disks = self.disks().iter().map(|disk| shell::word(disk)).collect::<Vec<_>>().join(" ");
                    format!(
                        "Files may be out of reach without it. Stop larder, and save what can be read with: larder recover --disk {disks} --to DIR"
                    )
                }
            };
            // That a disk returned errors is no news beside it; that one is out of use is.
            let online = status.state == "ONLINE";
            let and = |text: String, more: Option<String>| match more.filter(|_| !online) {
                Some(more) => format!("{text}\n{more}"),
                None => text,
            };
            status.status = Some(and(lost_text(&damage), status.status));
            status.action = Some(and(restore, status.action));
        }
        PoolStatus { damage, ..status }
    }

    /// The losses of files and metadata, and the number of damaged objects that belong to neither.
    async fn damage(&self) -> (Damage, u64) {
        let Some(pool) = self.disk_pool() else { return (Damage::default(), 0) };
        self.look_for_gone().await;
        let (mut damaged, mut more) = pool.damage();
        let (out, out_more) = pool.out_of_reach();
        let out_of_reach = out.len() as u64 + out_more;
        more += out_more;
        damaged.retain(|one| out.iter().all(|other| other.object != one.object));
        damaged.extend(out);
        let objects = damaged_objects(&damaged);
        match self.registry.damaged_files(&objects).await {
            Ok(report) => {
                let unused = report.unused.len() as u64;
                (Damage { out_of_reach, ..damage_of(&self.name, report, &objects, more) }, unused)
            }
            Err(error) => {
                tracing::warn!(pool = %self.name, %error, "cannot find the files that are damaged");
                let metadata = objects.iter().map(|one| metadata_of(None, one)).collect();
                (Damage { files: Vec::new(), metadata, more, out_of_reach }, 0)
            }
        }
    }
}

/// An object that no file uses any more is no error: garbage collection removes it.
fn without(unused: u64, scrub: ScrubStatus) -> ScrubStatus {
    ScrubStatus { unrepaired: scrub.unrepaired.saturating_sub(unused), ..scrub }
}

fn lost_text(damage: &Damage) -> String {
    let have = if damage.count() == 1 { "has" } else { "have" };
    format!("{} {have} lost data: no intact copy of it is left.", damaged_text(damage))
}

/// "3 files and 1 object of metadata".
fn damaged_text(damage: &Damage) -> String {
    let files = match damage.files.len() as u64 + damage.more {
        0 => None,
        1 => Some("1 file".to_owned()),
        n => Some(format!("{n} files")),
    };
    let metadata = match damage.metadata.len() {
        0 => None,
        1 => Some("1 object of metadata".to_owned()),
        n => Some(format!("{n} objects of metadata")),
    };
    let what: Vec<String> = files.into_iter().chain(metadata).collect();
    what.join(" and ")
}

fn damage_of(pool: &str, report: DamageReport, objects: &[DamagedObject], more: u64) -> Damage {
    let file = |file: larder_volume::DamagedFile| DamagedFile {
        volume: format!("{pool}/{}", file.volume),
        inode: file.ino,
        paths: file.paths,
        ranges: file.ranges.into_iter().map(|range| ByteRange { start: range.start, end: range.end }).collect(),
    };
    let metadata = |(path, volume): (String, Option<String>)| {
        let object = objects.iter().find(|object| object.path == path)?;
        Some(metadata_of(volume.map(|volume| format!("{pool}/{volume}")), object))
    };
    Damage {
        files: report.files.into_iter().map(file).collect(),
        metadata: report.metadata.into_iter().filter_map(metadata).collect(),
        more: more + report.more,
        out_of_reach: 0,
    }
}

fn metadata_of(volume: Option<String>, object: &DamagedObject) -> DamagedMetadata {
    let ranges = object.ranges.iter().map(|range| ByteRange { start: range.start, end: range.end }).collect();
    DamagedMetadata { volume, object: object.path.clone(), ranges }
}
