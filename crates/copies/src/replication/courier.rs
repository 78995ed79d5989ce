//! Brings one replica up to date.
//!
//! - `replication.base_is_held`: the snapshot that the replica has, and the one on its way, are held at the sender: no schedule
//!   destroys what the next stream goes on from.
//! - `replication.keys_follow`: each stream has the volume's keyring. Where nothing but that has changed, it is sent alone.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures::StreamExt;
use larder_api::{Failure, FailureKind, SendRequest, SentSnapshot};
use larder_base::units::ByteSize;
use larder_fs::FsError;
use larder_keep::Store;
use larder_volume::Volume;
use larder_volume::replica::Outgoing;
use parking_lot::Mutex;

use super::plan::{self, Step};
use super::receiver::{Receiver, Stream};

/// The longest reason of a hold, in bytes.
const REASON_BYTES_MAX: usize = 200;

/// How far it has come. Shown while it goes on.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    pub(super) sending: Option<String>,
    pub(super) sent_bytes: u64,
    pub(super) total_bytes: Option<u64>,
    /// When the receiver took the last piece, or is to get the next one by the limit.
    pub(super) moved: Option<Instant>,
    pub(super) newest: Option<SentSnapshot>,
    pub(super) behind: Option<u64>,
}

/// A volume, and the replica that it is brought to.
pub(super) struct Courier {
    pub(super) pool: Arc<Store>,
    pub(super) volume: String,
    pub(super) receiver: Receiver,
    pub(super) limit: Option<ByteSize>,
    /// The place, by which its holds are known; nothing is held where there is none.
    pub(super) holds_for: Option<String>,
    /// The volume is closed for everybody else.
    pub(super) although_closed: bool,
    /// The receiver is to be a copy as files. One that is a copy is brought up to date as such in any case.
    pub(super) as_files: bool,
    pub(super) progress: Arc<Mutex<Progress>>,
}

/// The reason of the holds for a place.
pub(super) fn reason(place: &str) -> String {
    let mut reason = format!("replicate {place}");
    while reason.len() > REASON_BYTES_MAX {
        reason.pop();
    }
    reason
}

/// Releases all holds for a place, but that of the snapshot with this number.
pub(super) async fn release(volume: &Volume, reason: &str, but: Option<u64>) -> Result<(), FsError> {
    let is_held = |info: &larder_fs::SnapshotInfo| info.holds.iter().any(|hold| hold.reason == reason);
    for info in volume.snapshots().iter().filter(|info| Some(info.number) != but && is_held(info)) {
        match volume.release_snapshot(&info.name, reason).await {
            Ok(()) | Err(FsError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

impl Courier {
    /// Sends all that the replica lacks, and returns how many snapshots were sent.
    pub(super) async fn run(&self) -> Result<u64, Failure> {
        let mut sent = 0;
        let copy = self.receiver.copy().await?;
        if let (true, None, Some(place)) = (self.as_files, copy, &self.holds_for) {
            let volume = format!("{}/{}", self.pool.name, self.volume);
            return Err(Failure::not_found(format!("the copy '{place}' is gone")).action(format!(
                "begin anew with: larder replicate remove {volume} {place}; then: larder replicate add {volume} {place} --as-files"
            )));
        }
        loop {
            let there = self.receiver.state().await?;
            let volume = match self.although_closed {
                true => self.pool.volume_anyway(&self.volume).await?,
                false => self.pool.volume(&self.volume).await?,
            };
            let own = snapshots(&volume);
            let step = plan::next(&own, &there, now_ns()).map_err(Failure::invalid)?;
            {
                let mut progress = self.progress.lock();
                progress.newest = there.snapshots.last().cloned();
                progress.behind = Some(step.as_ref().map_or(0, |step| step.left));
            }
            let base = there.snapshots.last().and_then(|newest| own.iter().find(|snapshot| snapshot.is(newest)));
            if let (Some(base), Some(place)) = (base, &self.holds_for) {
                self.hold(&volume, base, &reason(place)).await?;
                let released = release(&volume, &reason(place), Some(base.number)).await;
                released.map_err(|error| self.pool.failure(&self.volume, &error))?;
            }
            let Some(step) = step else {
                if let (Some(base), None) = (base, copy) {
                    self.send_keys(base, there.key_changes).await?;
                }
                return Ok(sent);
            };
            if let Some(place) = &self.holds_for {
                self.hold(&volume, &step.to, &reason(place)).await?;
            }
            let is_first = there.snapshots.is_empty();
            let total = (copy.is_some() && is_first).then(|| volume.contents().data_bytes);
            drop(volume);
            match copy {
                Some(copy) => self.copy(&step, copy, total).await?,
                None => self.send(&step).await?,
            }
            sent += 1;
        }
    }

    /// The replica has all snapshots. It gets the volume's keyring where that has changed since (`replication.keys_follow`).
    async fn send_keys(&self, newest: &SentSnapshot, there: Option<u64>) -> Result<(), Failure> {
        let (Some(own), Some(there)) = (self.pool.key_changes(&self.volume).await?, there) else {
            return Ok(());
        };
        if own == there {
            return Ok(());
        }
        let request = SendRequest { snapshot: newest.name.clone(), from: None, resume: None, keys_only: true };
        self.pass(self.pool.send_out(&self.volume, &request).await?).await?;
        match self.receiver.state().await?.key_changes {
            Some(now) if now != own => Err(Failure::invalid(
                "the replica keeps other ways to open it than the volume has: its keyring is a later one, or an older larder made it",
            )
            .action("compare larder volume key list here and there; any change of them here is sent again")),
            _ => Ok(()),
        }
    }

    async fn hold(&self, volume: &Volume, snapshot: &SentSnapshot, reason: &str) -> Result<(), Failure> {
        let is_held = |info: larder_fs::SnapshotInfo| {
            info.number == snapshot.number && info.holds.iter().any(|hold| hold.reason == reason)
        };
        if volume.snapshots().into_iter().any(is_held) {
            return Ok(());
        }
        match volume.hold_snapshot(&snapshot.name, reason, None).await {
            // Sixty-four reasons keep it as well.
            Ok(()) | Err(FsError::NoSpace(_)) => Ok(()),
            Err(error) => Err(self.pool.failure(&self.volume, &error)),
        }
    }

    async fn send(&self, step: &Step) -> Result<(), Failure> {
        let request = SendRequest {
            snapshot: step.to.name.clone(),
            from: step.from.as_ref().map(|from| from.name.clone()),
            resume: step.resume.clone(),
            keys_only: false,
        };
        let outgoing = match self.pool.send_out(&self.volume, &request).await {
            // What came in part is of another snapshot that had this name.
            Err(failure) if failure.kind == FailureKind::Invalid && request.resume.is_some() => {
                self.pool.send_out(&self.volume, &SendRequest { resume: None, ..request }).await?
            }
            outgoing => outgoing?,
        };
        {
            let mut progress = self.progress.lock();
            progress.sending = Some(step.to.name.clone());
            (progress.sent_bytes, progress.total_bytes) = (0, Some(outgoing.bytes));
        }
        self.pass(outgoing).await
    }

    /// Copies the files of a snapshot.
    async fn copy(&self, step: &Step, (to, copy): (&Arc<Store>, &str), total: Option<u64>) -> Result<(), Failure> {
        let full = format!("{}/{}@{}", self.pool.name, self.volume, step.to.name);
        let _uses = (
            self.pool.uses.begin(&self.volume, format!("the copying of {full}")),
            to.uses.begin(copy, format!("the copying of {full}")),
        );
        {
            let mut progress = self.progress.lock();
            progress.sending = Some(step.to.name.clone());
            (progress.sent_bytes, progress.total_bytes) = (0, total);
            progress.moved = Some(Instant::now());
        }
        let began = Instant::now();
        let pace = |bytes: u64| {
            let mut progress = self.progress.lock();
            progress.sent_bytes += bytes;
            let early = due_at(progress.sent_bytes, self.limit).saturating_sub(began.elapsed());
            progress.moved = Some(Instant::now() + early);
            early
        };
        let copied = self.pool.registry.copy_snapshot(&self.volume, &step.to.name, (&to.registry, copy), &pace).await;
        self.progress.lock().sending = None;
        copied.map_err(|error| match error {
            FsError::NotFound => Failure::not_found(format!("the snapshot {full} is gone")),
            FsError::Invalid(why) => Failure::invalid(format!("{full}: {why}")),
            error => to.failure(copy, &error),
        })
    }

    /// The stream to the receiver. The sender's own failure is the cause of the receiver's.
    async fn pass(&self, outgoing: Outgoing) -> Result<(), Failure> {
        self.progress.lock().moved = Some(Instant::now());
        let pool = Arc::clone(&self.pool);
        let volume = self.volume.clone();
        let cut = Arc::<Mutex<Option<Failure>>>::default();
        let told = Arc::clone(&cut);
        let stream = outgoing.stream.map(move |piece| {
            piece.map_err(|error| {
                let failure = pool.failure(&volume, &error);
                let why = failure.message.clone();
                told.lock().get_or_insert(failure);
                why
            })
        });
        let received = self.receiver.receive(self.paced(stream.boxed())).await;
        self.progress.lock().sending = None;
        match cut.lock().take() {
            Some(failure) => Err(failure),
            None => received.map(drop),
        }
    }

    /// The stream, no faster than it may be.
    fn paced<'a>(&self, stream: Stream<'a>) -> Stream<'a> {
        let (began, limit, progress) = (Instant::now(), self.limit, Arc::clone(&self.progress));
        let paced = stream.then(move |piece| {
            let sent = {
                let mut progress = progress.lock();
                progress.sent_bytes += piece.as_ref().map_or(0, |piece| piece.len() as u64);
                progress.sent_bytes
            };
            let early = due_at(sent, limit).saturating_sub(began.elapsed());
            progress.lock().moved = Some(Instant::now() + early);
            async move {
                // Even no time at all takes a turn of the timer.
                if !early.is_zero() {
                    tokio::time::sleep(early).await;
                }
                piece
            }
        });
        paced.boxed()
    }
}

/// How long after the beginning so many bytes may have gone.
fn due_at(sent: u64, limit: Option<ByteSize>) -> Duration {
    limit.map_or(Duration::ZERO, |limit| Duration::from_secs_f64(sent as f64 / limit.0.max(1) as f64))
}

/// Oldest first.
pub(super) fn snapshots(volume: &Volume) -> Vec<SentSnapshot> {
    let sent = |info: larder_fs::SnapshotInfo| SentSnapshot {
        name: info.name,
        number: info.number,
        created_ns: larder_volume::replica::ns_of(info.created),
    };
    volume.snapshots().into_iter().map(sent).collect()
}
