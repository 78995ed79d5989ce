//! Moving a volume with its snapshots to another pool or store of this daemon.
//!
//! ```text
//! copied: snapshot, send; again while clients write      -> a replica beside the volume
//! doors closed, last snapshot sent                       -> the replica has all
//! `moves.json` says "promoting", the replica is promoted -> from here on the new volume counts
//! larder.toml names the new volume, doors open           -> `moves.json` says "moved"
//! the new volume is checked, the old one destroyed       -> `moves.json` says nothing
//! ```
//!
//! - `move.promotion_decides`: the new volume counts from the moment that the registry of its store says it is one. Nobody has
//!   reached the old volume since the last snapshot.
//! - `move.settled_before_served`: a start settles a move that was cut off before anything is served: if the replica was promoted,
//!   larder.toml names the new volume. If it was not, or nobody can tell, the old volume is served, and the move begins again.
//! - `move.old_one_unchanged`: the old volume is destroyed when the new one is checked, and nothing has changed in the old one since
//!   the last snapshot that was sent.
//! - `move.handles_stay`: the new volume has the inodes of the old one, and answers to its handles.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_api::{Failure, FailureKind, VolumeMove, VolumeMoved};
use larder_base::units::ByteSize;
use larder_fs::FsError;
use larder_keep::snapshot_words;
use larder_keep::uses::Patience;
use larder_keep::{Storage, Store};
use larder_volume::replica::ReceiveLimits;
use larder_volume::{Volume, VolumeInfo};
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use super::courier::{Courier, reason, release};
use super::receiver::Receiver;
use super::runs::{Runs, Way};
use super::{EndOf, Progress};
use crate::seats::Seats;
use larder_config::edit::replace_file;
use larder_config::{Config, Place, VolumeName};
use larder_document::{DataFolder, Document, State};
use larder_keep::snapshot_words::{has_clones, snapshot_error};
use larder_servers::VolumeDoors;
use larder_servers::answer::finish;

const FILE: &str = "moves.json";
/// A longer file is not ours.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Snapshots that a move takes begin with it. They go when it is done.
const PREFIX: &str = "moving-";
/// A round that takes no longer leaves little to send behind closed doors.
const SHORT: Duration = Duration::from_secs(3);
/// Clients that write faster than the store takes it would never be caught up with.
const ROUNDS_MAX: u32 = 8;

/// How far a move is, where a start has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Stage {
    /// `move.promotion_decides`
    Promoting,
    /// The old volume was served again: whatever was promoted is not to be used.
    Abandoned,
    /// The new volume is served.
    Moved,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    from: String,
    to: String,
    to_id: Uuid,
    /// The last snapshot of the old volume.
    last: String,
    stage: Stage,
}

impl Record {
    fn is_of(&self, from: &VolumeName, to: &VolumeName) -> bool {
        self.from == from.to_string() && self.to == to.to_string()
    }
}

/// A file that decodes is encoded and decoded again without change.
#[cfg(test)]
pub fn fuzz_file(data: &[u8]) {
    let Ok(list) = serde_json::from_slice::<Vec<Record>>(data) else { return };
    let once = serde_json::to_value(&list).ok();
    assert!(once.is_some_and(|once| serde_json::from_value::<Vec<Record>>(once).is_ok_and(|again| again == list)));
}

/// `moves.json` in the data folder.
struct Records {
    file: PathBuf,
    list: Vec<Record>,
}

impl Records {
    fn open(folder: &Path) -> Result<Self, Failure> {
        let file = folder.join(FILE);
        let failed = |error: &std::io::Error| Failure::io(format_args!("cannot read {}", file.display()), error);
        let list = match std::fs::metadata(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(&error)),
            Ok(found) if found.len() > FILE_BYTES_MAX => {
                return Err(Failure::internal(format!("{} is longer than it can be", file.display())));
            }
            Ok(_) => {
                let text = std::fs::read(&file).map_err(|error| failed(&error))?;
                serde_json::from_slice(&text)
                    .map_err(|error| Failure::internal(format!("{} is damaged: {error}", file.display())))?
            }
        };
        Ok(Self { file, list })
    }

    /// The record takes the place of that of an earlier attempt.
    fn set(&mut self, record: Record) -> Result<(), Failure> {
        self.list.retain(|other| (&other.from, &other.to) != (&record.from, &record.to));
        self.list.push(record);
        self.save()
    }

    fn remove(&mut self, from: &VolumeName, to: &VolumeName) -> Result<(), Failure> {
        self.list.retain(|record| !record.is_of(from, to));
        self.save()
    }

    fn save(&self) -> Result<(), Failure> {
        let text = serde_json::to_vec_pretty(&self.list).map_err(|error| Failure::internal(error.to_string()))?;
        replace_file(&self.file, &text, 0o600)
    }
}

/// A volume on its way.
pub struct Move {
    from: VolumeName,
    to: VolumeName,
    old: Arc<Store>,
    new: Arc<Store>,
    keep: bool,
    force: bool,
    limit: Option<ByteSize>,
    /// The new volume is served, and only the old one is left.
    is_done_but_old: bool,
    /// One at a time.
    _alone: OwnedMutexGuard<()>,
}

async fn find(pool: &Store, name: &str) -> Result<Option<VolumeInfo>, Failure> {
    let infos = pool.registry.list().await.map_err(|error| pool.failure(name, &error))?;
    Ok(infos.into_iter().find(|info| info.name == name))
}

/// Whether the file speaks of the volume.
fn is_named(config: &Config, name: &VolumeName) -> bool {
    config.volumes.iter().any(|volume| volume.name == *name)
        || config.shares.iter().any(|share| share.volume.as_ref() == Some(name))
        || config.mounts.iter().any(|mount| mount.volume == *name)
}

impl Move {
    fn courier(&self, although_closed: bool, progress: Arc<parking_lot::Mutex<Progress>>) -> Courier {
        Courier {
            pool: Arc::clone(&self.old),
            volume: self.from.volume.clone(),
            receiver: Receiver::Pool(Arc::clone(&self.new), self.to.volume.clone(), ReceiveLimits::default()),
            limit: self.limit.filter(|_| !although_closed),
            holds_for: Some(self.place()),
            although_closed,
            as_files: false,
            progress,
        }
    }

    fn place(&self) -> String {
        Place::Here(self.to.clone()).to_string()
    }

    fn again(&self) -> String {
        format!("larder volume move {} {}", self.from, self.to)
    }

    async fn old_volume(&self) -> Result<Volume, Failure> {
        self.old.volume_anyway(&self.from.volume).await
    }

    async fn take_snapshot(&self) -> Result<String, Failure> {
        let open = self.old_volume().await?;
        let name = snapshot_words::free_name_after(&open, PREFIX);
        let taken = open.snapshot(&name).await;
        taken.map_err(|error| snapshot_error(&format!("{}@{name}", self.from), &error))?;
        Ok(name)
    }

    /// Nobody reaches the old volume any more: its doors are closed, and what was using it has ended.
    async fn close_old(&self) -> Result<(), Failure> {
        let patience = Patience::from_now();
        loop {
            match self.old.registry.close_volume(&self.from.volume).await {
                Err(FsError::Busy(_)) if patience.is_left() => patience.pause().await,
                Err(FsError::Busy(_)) => {
                    return Err(self.old.still_in_use(&self.from.volume, "it stays where it is"));
                }
                // The log has what could not be stored.
                Err(error) => {
                    tracing::warn!(volume = %self.from, %error, "the volume did not close cleanly before its last snapshot");
                    return Ok(());
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    /// People's holds go with the volume; those of replications, too, as they go on from there.
    async fn hand_over_holds(&self) -> Result<(), Failure> {
        let own = reason(&self.place());
        let old = self.old_volume().await?;
        let new = self.new.volume_anyway(&self.to.volume).await?;
        for info in old.snapshots() {
            for hold in info.holds.iter().filter(|hold| hold.reason != own) {
                match new.hold_snapshot(&info.name, &hold.reason, hold.until).await {
                    Ok(()) | Err(FsError::Exists) => {}
                    Err(error) => return Err(snapshot_error(&format!("{}@{}", self.to, info.name), &error)),
                }
            }
        }
        Ok(())
    }

    /// The snapshots that only the move needed.
    async fn drop_snapshots(pool: &Store, volume: &str) -> Result<(), Failure> {
        let open = pool.volume_anyway(volume).await?;
        let names: Vec<String> =
            open.snapshots().into_iter().map(|info| info.name).filter(|name| name.starts_with(PREFIX)).collect();
        let destroyed = open.destroy_snapshots(&names).await;
        destroyed.map_err(|(name, error)| snapshot_error(&format!("{}/{volume}@{name}", pool.name), &error))
    }

    /// `move.old_one_unchanged`
    async fn check_old_unchanged(&self, last: &str) -> Result<(), Failure> {
        let changed = |what: &str| {
            Failure::busy(format!("the volume '{}' was moved to '{}', and {what} since", self.from, self.to)).action(
                format!(
                    "look at both; then destroy the old one with: larder volume destroy {} --with-snapshots",
                    self.from
                ),
            )
        };
        let open = self.old_volume().await?;
        if open.snapshots().last().is_none_or(|newest| newest.name != last) {
            return Err(changed("the old one has other snapshots"));
        }
        let found = open.diff(last, None).await;
        let found = found.map_err(|error| snapshot_error(&format!("{}@{last}", self.from), &error))?;
        found.first().map_or(Ok(()), |entry| Err(changed(&format!("'{}' has changed in the old one", entry.path))))
    }

    /// Whatever holds the old volume back goes, then the volume.
    async fn destroy_old(&self) -> Result<(), Failure> {
        let volume = &self.from.volume;
        let open = self.old_volume().await?;
        for info in open.snapshots() {
            for hold in &info.holds {
                match open.release_snapshot(&info.name, &hold.reason).await {
                    Ok(()) | Err(FsError::NotFound) => {}
                    Err(error) => return Err(snapshot_error(&format!("{}@{}", self.from, info.name), &error)),
                }
            }
        }
        drop(open);
        let patience = Patience::from_now();
        loop {
            match self.old.destroy(volume).await {
                Err(failure) if failure.kind == FailureKind::Busy && patience.is_left() => patience.pause().await,
                destroyed => return destroyed,
            }
        }
    }
}

/// Moves of volumes within this daemon, and to another machine at the same store.
pub struct Moves {
    pub document: Arc<Document>,
    pub storage: Arc<Storage>,
    pub folder: Arc<DataFolder>,
    pub doors: Arc<VolumeDoors>,
    pub runs: Arc<Runs>,
    pub seats: Arc<Seats>,
}

impl Moves {
    /// Moves a volume to another pool, or to another machine at the same store. A caller that goes away interrupts the copying; then
    /// the volume stays where it is.
    pub async fn start(self: Arc<Self>, request: VolumeMove) -> Result<VolumeMoved, Failure> {
        // A volume has a name that follows that of its pool. A machine has none.
        if !request.to.contains('/') {
            let offered = self.seats.offer_volume(&request).await?;
            let seats = Arc::clone(&self.seats);
            return finish(async move { seats.hand_over(offered).await }).await;
        }
        let copied = self.copy_volume(&request).await?;
        finish(async move { self.change_places(copied).await }).await
    }

    /// Copies the volume while it is served. Whoever asked and goes away interrupts that; what has come is used by the next attempt.
    pub async fn copy_volume(&self, request: &VolumeMove) -> Result<Move, Failure> {
        let alone = Arc::clone(&self.seats.moving)
            .try_lock_owned()
            .map_err(|_| Failure::busy("another volume is being moved").action("wait for the end of it"))?;
        let mut one = self.plan_move(request, alone).await?;
        if !self.make_way(&one).await? {
            one.is_done_but_old = true;
            return Ok(one);
        }
        let way: Way = (one.from.clone(), Place::Here(one.to.clone()));
        let progress = self.runs.begin_in_turn(&way).await;
        let end = EndOf { runs: &self.runs, way: &way, outcome: None, rests: false };
        end.with(self.copy_rounds(&one, progress).await)?;
        let checked = one.new.registry.check_replica(&one.to.volume, false).await;
        let checked = checked.map_err(|error| one.new.failure(&one.to.volume, &error))?;
        if let Some(problem) = checked.problems.first() {
            return Err(Failure::unavailable(format!("the copy '{}' is not whole: {problem}", one.to)).action(
                format!(
                    "'{}' is served as before; destroy the copy with: larder volume destroy {}; then begin again",
                    one.from, one.to
                ),
            ));
        }
        Ok(one)
    }

    async fn copy_rounds(&self, one: &Move, progress: Arc<parking_lot::Mutex<Progress>>) -> Result<u64, Failure> {
        let mut sent = 0;
        for _ in 0..ROUNDS_MAX {
            let began = Instant::now();
            if one.old_volume().await?.changed_since_snapshot() {
                one.take_snapshot().await?;
            }
            sent += one.courier(false, Arc::clone(&progress)).run().await?;
            if began.elapsed() < SHORT {
                break;
            }
        }
        Ok(sent)
    }

    async fn plan_move(&self, request: &VolumeMove, alone: OwnedMutexGuard<()>) -> Result<Move, Failure> {
        let (old, volume) = self.storage.named(&request.volume)?;
        let from = VolumeName { pool: old.name.clone(), volume };
        let to = VolumeName::parse(&request.to).map_err(Failure::invalid)?;
        let new = self.storage.pool(Some(&to.pool))?;
        if Arc::ptr_eq(&old, &new) {
            return Err(Failure::invalid(format!("'{from}' and '{to}' are in one pool"))
                .action("name another pool or store of this larder: larder pool list"));
        }
        let info = find(&old, &from.volume).await?.ok_or_else(|| old.failure(&from.volume, &FsError::NotFound))?;
        if info.replica {
            return Err(Failure::invalid(format!("'{from}' is a replica: it only receives")).action(format!(
                "replicate to the new place from its source; or first: larder volume promote {from}"
            )));
        }
        if info.sealing.is_some() {
            return Err(Failure::busy(format!("'{from}' is being encrypted"))
                .action(format!("wait for the end of it: larder volume key list {from}")));
        }
        let (keep, force, limit) = (request.keep, request.force, request.limit_bytes.map(ByteSize));
        let one = Move { from, to, old, new, keep, force, limit, is_done_but_old: false, _alone: alone };
        let open = one.old_volume().await?;
        if !keep && open.snapshots().iter().any(|snapshot| !snapshot.clones.is_empty()) {
            return Err(has_clones(&format!("the volume '{}'", one.from)));
        }
        Ok(one)
    }

    /// Whether there is anything to copy. What an abandoned attempt has promoted is removed; anything else in the way is named.
    async fn make_way(&self, one: &Move) -> Result<bool, Failure> {
        let Some(there) = find(&one.new, &one.to.volume).await?.filter(|there| !there.replica) else {
            return Ok(true);
        };
        let mut records = Records::open(self.folder.path())?;
        let record = records.list.iter().find(|record| record.is_of(&one.from, &one.to) && record.to_id == there.id);
        match record.map(|record| record.stage) {
            Some(Stage::Moved) => Ok(false),
            Some(Stage::Abandoned | Stage::Promoting) if !is_named(&self.document.config(), &one.to) => {
                one.new.destroy(&one.to.volume).await?;
                records.remove(&one.from, &one.to)?;
                Ok(true)
            }
            _ => Err(Failure::exists(format!("there is a volume '{}' already", one.to))
                .action("choose another name, or destroy that one first")),
        }
    }

    /// Lets the new volume take the place of the old one.
    pub async fn change_places(&self, one: Move) -> Result<VolumeMoved, Failure> {
        let mut closed = Duration::ZERO;
        if !one.is_done_but_old {
            let mut state = self.document.lock().await;
            if !one.force {
                self.doors.check_unused(&one.old, &one.from, "move it", format!("{} --force", one.again())).await?;
            }
            let began = Instant::now();
            self.doors.close_doors(&mut state, &one.old, &one.from).await;
            let changed = self.behind_closed_doors(&mut state, &one).await;
            let is_moved = changed.is_ok();
            self.open_doors_of(&mut state, &one, is_moved).await;
            closed = began.elapsed();
            changed?;
        }
        self.finish_move(&one, closed).await
    }

    async fn behind_closed_doors(&self, state: &mut State, one: &Move) -> Result<(), Failure> {
        one.close_old().await?;
        let last = one.take_snapshot().await?;
        one.courier(true, Arc::default()).run().await?;
        let old = one.old_volume().await?;
        let handles = old.handle_id();
        let taken = one.new.registry.take_handles(&one.to.volume, handles).await;
        taken.map_err(|error| one.new.failure(&one.to.volume, &error))?;
        let info = find(&one.new, &one.to.volume).await?;
        let info = info.ok_or_else(|| one.new.failure(&one.to.volume, &FsError::NotFound))?;
        if let Some(keys) = one.old.unlocked.of(old.id()) {
            one.new.unlocked.put(info.id, keys);
        }
        drop(old);
        // `edit.staged_before_deeds`
        let staged = self.document.stage(|editor| editor.move_volume(&one.from, &one.to))?;
        let mut records = Records::open(self.folder.path())?;
        let (from, to) = (one.from.to_string(), one.to.to_string());
        let record = Record { from, to, to_id: info.id, last, stage: Stage::Promoting };
        records.set(record.clone())?;
        let promoted = async {
            let promoted = one.new.registry.promote(&one.to.volume).await;
            promoted.map_err(|error| one.new.failure(&one.to.volume, &error))?;
            one.hand_over_holds().await?;
            self.document.take(state, staged.commit()?).await;
            Ok::<_, Failure>(())
        };
        let promoted = promoted.await;
        let stage = if promoted.is_ok() { Stage::Moved } else { Stage::Abandoned };
        // Where it cannot be written, a start finds out: the promotion has decided.
        match (records.set(Record { stage, ..record }), promoted) {
            (Err(failure), Ok(())) => {
                tracing::warn!("{}", failure.message);
                Ok(())
            }
            // A start would take the promoted one, and the old one is about to be served.
            (Err(failure), Err(first)) => {
                tracing::error!("{}; {}", first.message, failure.message);
                let destroyed = one.new.destroy(&one.to.volume).await;
                destroyed.and(Err(first))
            }
            (Ok(()), promoted) => promoted,
        }
    }

    /// Serves the old volume again, or the new one in its place.
    async fn open_doors_of(&self, state: &mut State, one: &Move, is_moved: bool) {
        if is_moved {
            self.doors.open_doors(state, &one.new, &one.to, &one.from).await;
        } else {
            self.doors.open_doors(state, &one.old, &one.from, &one.from).await;
        }
    }

    /// Checks the new volume, and destroys the old one unless it is to be kept.
    async fn finish_move(&self, one: &Move, closed: Duration) -> Result<VolumeMoved, Failure> {
        let finished = self.check_and_clear(one).await;
        one.old.open_again(&one.from.volume);
        let fault = finished.err().map(|failure| match &failure.action {
            Some(action) => format!("{}; {action}", failure.message),
            None => failure.message.clone(),
        });
        if let Some(fault) = &fault {
            tracing::warn!("'{}' was moved to '{}', and the old volume stays: {fault}", one.from, one.to);
        }
        Ok(VolumeMoved {
            volume: one.from.to_string(),
            to: one.to.to_string(),
            closed_ms: u64::try_from(closed.as_millis()).unwrap_or(u64::MAX),
            kept: one.keep || fault.is_some(),
            fault,
            handed_over: false,
            notes: Vec::new(),
        })
    }

    async fn check_and_clear(&self, one: &Move) -> Result<(), Failure> {
        let report = one.new.registry.check(&one.to.volume, false).await;
        let report = report.map_err(|error| one.new.failure(&one.to.volume, &error))?;
        if let Some(problem) = report.problems.first() {
            return Err(Failure::unavailable(format!("'{}' is not as it should be: {problem}", one.to))
                .action(format!("see all with: larder check {}", one.to)));
        }
        let mut records = Records::open(self.folder.path())?;
        let last =
            records.list.iter().find(|record| record.is_of(&one.from, &one.to)).map(|record| record.last.clone());
        match (one.keep, last) {
            (true, _) => {
                let open = one.old_volume().await?;
                let released = release(&open, &reason(&one.place()), None).await;
                released.map_err(|error| one.old.failure(&one.from.volume, &error))?;
                drop(open);
                Move::drop_snapshots(&one.old, &one.from.volume).await?;
            }
            (false, Some(last)) => {
                one.check_old_unchanged(&last).await?;
                one.destroy_old().await?;
            }
            (false, None) => return Err(Failure::internal(format!("{FILE} does not know the move of '{}'", one.from))),
        }
        records.remove(&one.from, &one.to)?;
        Move::drop_snapshots(&one.new, &one.to.volume).await
    }

    /// Decides about moves that were cut off, before anything is served (`move.settled_before_served`).
    pub async fn settle(&self, state: &mut State) -> Result<(), Failure> {
        let mut records = match Records::open(self.folder.path()) {
            Ok(records) => records,
            // All volumes are there, whichever of them larder.toml names.
            Err(failure) => {
                tracing::error!(
                    "{}: a move that was cut off is not known; see which volumes there are",
                    failure.message
                );
                return Ok(());
            }
        };
        for record in records.list.clone() {
            let names = (VolumeName::parse(&record.from), VolumeName::parse(&record.to));
            let (Ok(from), Ok(to)) = names else { continue };
            let again = format!("larder volume move {from} {to}");
            match record.stage {
                Stage::Abandoned => {}
                Stage::Moved => {
                    tracing::warn!(
                        "'{from}' was moved to '{to}', and the old volume is still there; destroy it with: {again}"
                    );
                }
                Stage::Promoting => match self.is_promoted(&to, record.to_id).await {
                    Ok(true) => {
                        // Nothing is served yet.
                        let moved = self.document.stage(|editor| editor.move_volume(&from, &to))?.commit()?;
                        self.document.put(state, self.document.overridden(Config::clone(&moved.config)));
                        records.set(Record { stage: Stage::Moved, ..record })?;
                        tracing::warn!(
                            "the move of '{from}' to '{to}' was cut off and is made: '{to}' is served; destroy the old volume with: {again}"
                        );
                    }
                    Ok(false) => {
                        records.remove(&from, &to)?;
                        tracing::warn!(
                            "the move of '{from}' to '{to}' was cut off: '{from}' is served as before; go on with: {again}"
                        );
                    }
                    Err(failure) => {
                        records.set(Record { stage: Stage::Abandoned, ..record })?;
                        tracing::error!(
                            "the move of '{from}' to '{to}' was cut off ({}): '{from}' is served as before; begin again with: {again}",
                            failure.message
                        );
                    }
                },
            }
        }
        Ok(())
    }

    async fn is_promoted(&self, to: &VolumeName, id: Uuid) -> Result<bool, Failure> {
        let pool = self.storage.pool(Some(&to.pool))?;
        Ok(find(&pool, &to.volume).await?.is_some_and(|info| info.id == id && !info.replica))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn records_are_kept_by_both_names() {
        let folder = tempfile::tempdir().unwrap();
        let name = |text: &str| VolumeName::parse(text).unwrap();
        let record = |from: &str, stage| Record {
            from: from.to_owned(),
            to: "store/a".to_owned(),
            to_id: Uuid::from_u128(7),
            last: "moving-1".to_owned(),
            stage,
        };
        let mut records = Records::open(folder.path()).unwrap();
        records.set(record("tank/a", Stage::Promoting)).unwrap();
        records.set(record("tank/b", Stage::Promoting)).unwrap();
        records.set(record("tank/a", Stage::Moved)).unwrap();
        let mut again = Records::open(folder.path()).unwrap();
        assert_eq!(again.list, [record("tank/b", Stage::Promoting), record("tank/a", Stage::Moved)]);
        again.remove(&name("tank/b"), &name("store/a")).unwrap();
        assert_eq!(Records::open(folder.path()).unwrap().list, [record("tank/a", Stage::Moved)]);
        std::fs::write(folder.path().join(FILE), "[").unwrap();
        let damaged = Records::open(folder.path()).err().unwrap();
        assert!(damaged.message.contains("moves.json is damaged"), "{damaged:?}");
    }
}
