//! Snapshots on their way to other pools and machines, and replicas of volumes.

use std::time::{Duration, Instant};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::StreamExt;
use futures::stream::BoxStream;
use larder_api::{
    Done, Failure, Received, ReplicaState, SendRequest, SentSnapshot, SnapshotCounts, SnapshotStatus, SnapshotsRequest,
    SnapshotsStatus,
};
use larder_base::{Timestamp, boxed, hex};
use larder_fs::{FsError, SnapshotInfo};
use larder_volume::HAS_CLONES;
use larder_volume::replica::{Outgoing, ReceiveLimits, ReplicaInfo, ReplicaSnapshot, Resume, ns_of};

use crate::keyrings;
use crate::retention::{self, Arrival};
use crate::snapshot_words::{has_clones, hold_error, selected, snapshot_error, unknown};
use crate::store::Store;

/// A refusal of the same replica within this time is not logged again.
const REFUSAL_NOTE_PAUSE: Duration = Duration::from_secs(600);
/// Replicas whose refusals are remembered.
const REFUSALS_MAX: usize = 64;

/// Bytes of a body, or why there are no more.
pub type Input<'a> = BoxStream<'a, Result<Bytes, String>>;

impl Store {
    #[boxed]
    pub async fn is_replica(&self, volume: &str) -> Result<bool, Failure> {
        let infos = self.registry.list().await.map_err(|error| self.failure(volume, &error))?;
        Ok(infos.iter().any(|info| info.name == volume && info.replica))
    }

    /// Whether it is a replica as files.
    #[boxed]
    pub async fn is_copy(&self, volume: &str) -> Result<bool, Failure> {
        let infos = self.registry.list().await.map_err(|error| self.failure(volume, &error))?;
        Ok(infos.iter().any(|info| info.name == volume && info.copy))
    }

    /// Begins to send a snapshot.
    #[boxed]
    pub async fn send_out(&self, volume: &str, request: &SendRequest) -> Result<Outgoing, Failure> {
        let SendRequest { snapshot, from, resume, keys_only } = request;
        let bad_token = || {
            Failure::invalid("the token is none that larder made")
                .action("ask the receiver for it with: larder receive POOL/NAME --token")
        };
        let resume = resume.as_deref().map(|token| parse_token(token).ok_or_else(bad_token)).transpose()?;
        let there: Vec<SnapshotInfo> = match self.is_replica(volume).await? {
            true => {
                let replica = self.registry.replica(volume).await.map_err(|error| self.failure(volume, &error))?;
                replica.snapshots.iter().map(info).collect()
            }
            false => self.volume_anyway(volume).await?.snapshots(),
        };
        let full = |name: &str| format!("{}/{volume}@{name}", self.name);
        let is_there = |name: &&String| there.iter().any(|info: &SnapshotInfo| info.name == **name);
        if let Some(missing) = std::iter::once(snapshot).chain(from).find(|name| !is_there(name)) {
            let failure = unknown(&full(missing));
            return Err(match resume.is_some() {
                true => failure.action(
                    "what has come of it is of no use without it: send a later snapshot without --resume; see which there are with: larder \
                     snap list",
                ),
                false => failure,
            });
        }
        let sent = match keys_only {
            true if from.is_some() || resume.is_some() => {
                return Err(Failure::invalid("keys are sent alone: neither from a snapshot nor in parts"));
            }
            true => self.registry.send_keyring(volume, snapshot).await,
            false => self.registry.send(volume, snapshot, from.as_deref(), resume.as_ref()).await,
        };
        let sent = sent.map_err(|error| match error {
            FsError::Invalid(why) => Failure::invalid(format!("{}: {why}", full(snapshot))),
            error => self.failure(volume, &error),
        })?;
        let sending = self.uses.begin(volume, format!("the sending of {}", full(snapshot)));
        let stream = sent.stream.map(move |piece| (piece, sending.clone()).0).boxed();
        Ok(Outgoing { stream, ..sent })
    }

    #[boxed]
    pub async fn receive<'a>(
        &'a self,
        volume: &str,
        limits: ReceiveLimits,
        input: Input<'a>,
    ) -> Result<Received, Failure> {
        let input = input.map(|piece| piece.map_err(|why| FsError::Io(why.into()))).boxed();
        let received = self.registry.receive_within(volume, limits, input).await;
        if let Err(FsError::Refused(why)) = &received {
            self.note_refusal(volume, why);
        }
        match received {
            Ok(snapshot) => {
                Ok(Received { pool: self.name.clone(), volume: volume.to_owned(), snapshot: snapshot.name })
            }
            Err(FsError::NotFound) => Err(Failure::not_found(format!(
                "the stream goes on from a snapshot, and there is no replica '{}/{volume}'",
                self.name
            ))
            .action("send the first snapshot whole, without --from")),
            Err(FsError::Io(why)) => {
                let failure = Failure::unavailable(format!("nothing was received: {why}"));
                Err(failure.action(self.how_to_resume(volume).await))
            }
            Err(error) => Err(self.failure(volume, &error)),
        }
    }

    /// The sender's next command after a stream that was cut.
    async fn how_to_resume(&self, volume: &str) -> String {
        let Ok(Some(resume)) = self.registry.resume(volume).await else { return "send it again".to_owned() };
        let ((to, from), full) = (resume.names(), format!("{}/{volume}", self.name));
        let from = from.map(|from| format!(" --from {from}")).unwrap_or_default();
        format!(
            "send '{to}' again without what has come, while its volume still has that snapshot: larder send VOLUME@{to}{from} --resume \
             \"$(larder receive {full} --token)\"; if it is gone, send a later one without --resume, which drops what has come"
        )
    }

    /// A refusal is news for the receiver's owner, too. A sender that is refused all the time does not fill the log.
    fn note_refusal(&self, volume: &str, why: &str) {
        let mut noted = self.refusals.lock();
        noted.retain(|_, at| at.elapsed() < REFUSAL_NOTE_PAUSE);
        if noted.len() < REFUSALS_MAX && noted.insert(volume.to_owned(), Instant::now()).is_none() {
            tracing::warn!("a stream into the replica '{}/{volume}' was refused: {why}", self.name);
        }
    }

    /// What a replica has; nothing, where there is none yet.
    #[boxed]
    pub async fn replica_state(&self, volume: &str) -> Result<ReplicaState, Failure> {
        let replica = match self.registry.replica(volume).await {
            Err(FsError::NotFound) => return Ok(ReplicaState::default()),
            replica => replica.map_err(|error| self.failure(volume, &error))?,
        };
        let resume = self.registry.resume(volume).await.map_err(|error| self.failure(volume, &error))?;
        let names = resume.as_ref().map(Resume::names);
        let sent = |snapshot: &ReplicaSnapshot| SentSnapshot {
            name: snapshot.name.clone(),
            number: snapshot.number,
            created_ns: ns_of(snapshot.created),
        };
        Ok(ReplicaState {
            source: replica.source.to_string(),
            snapshots: replica.snapshots.iter().map(sent).collect(),
            snapshot: names.map(|(to, _)| to.to_owned()),
            from: names.and_then(|(_, from)| from).map(str::to_owned),
            token: resume.as_ref().map(token_of).transpose()?,
            key_changes: self.key_changes(volume).await?,
        })
    }

    /// How often what opens an encrypted volume has changed.
    #[boxed]
    pub async fn key_changes(&self, volume: &str) -> Result<Option<u64>, Failure> {
        let infos = self.registry.list().await.map_err(|error| self.failure(volume, &error))?;
        let Some(info) = infos.into_iter().find(|info| info.name == volume && info.sealed) else { return Ok(None) };
        Ok(keyrings::keyring(&*self.store(), info.id).await?.map(|(ring, _)| ring.changes()))
    }

    #[boxed]
    pub async fn promote(&self, volume: &str) -> Result<Done, Failure> {
        self.registry.promote(volume).await.map_err(|error| self.failure(volume, &error))?;
        Ok(Done {})
    }

    /// Removes the automatic snapshots of a replica that its retention does not need.
    #[boxed]
    pub async fn thin_replica(&self, volume: &str, keep: &SnapshotCounts) -> Result<(), Failure> {
        let replica = self.registry.replica(volume).await.map_err(|error| self.failure(volume, &error))?;
        let secs = |secs| DateTime::from_timestamp(secs, 0);
        let wall = Utc::now();
        let automatic = replica.snapshots.iter().filter_map(|snapshot| {
            let named = retention::plausible_time_of(&snapshot.name, wall)?;
            Some((snapshot, Arrival { named, arrived: secs(snapshot.arrived)? }))
        });
        let (snapshots, arrivals): (Vec<_>, Vec<_>) = automatic.unzip();
        let newest = replica.snapshots.last().map(|newest| newest.number);
        let unneeded = secs(replica.now).map(|now| retention::unneeded_arrivals(keep, &arrivals, now));
        let unneeded = unneeded.into_iter().flatten().filter_map(|place| snapshots.get(place));
        let is_free = |one: &&&ReplicaSnapshot| one.holds.is_empty() && one.clones.is_empty();
        // The next stream goes on from the newest.
        let unneeded = unneeded.filter(|one| Some(one.number) != newest).filter(is_free);
        let numbers: Vec<u64> = unneeded.map(|one| one.number).collect();
        if numbers.is_empty() {
            return Ok(());
        }
        self.registry.thin_received(volume, &numbers).await.map_err(|error| self.failure(volume, &error))
    }

    /// The snapshots of a replica.
    #[boxed]
    pub async fn received(&self, volume: &str) -> Result<SnapshotsStatus, Failure> {
        let replica = self.registry.replica(volume).await.map_err(|error| self.failure(volume, &error))?;
        Ok(SnapshotsStatus {
            pool: self.name.clone(),
            volume: volume.to_owned(),
            concerned: Vec::new(),
            saved_as: None,
            freed_bytes: None,
            snapshots: shown(replica),
        })
    }

    pub(crate) async fn change_received(
        &self,
        volume: &str,
        request: SnapshotsRequest,
    ) -> Result<SnapshotsStatus, Failure> {
        let full = |name: &str| format!("{}/{volume}@{name}", self.name);
        let (names, dry_run) = match request {
            SnapshotsRequest::Destroy { names, dry_run } => (names, dry_run),
            SnapshotsRequest::Hold { name, reason, until } => {
                let until = until.map(|secs| Timestamp::new(secs, 0));
                let held = self.registry.hold_received(volume, &name, &reason, until).await;
                held.map_err(|error| hold_error(&full(&name), &reason, &error))?;
                return Ok(SnapshotsStatus { concerned: vec![name], ..self.received(volume).await? });
            }
            SnapshotsRequest::Release { name, reason } => {
                let released = self.registry.release_received(volume, &name, &reason).await;
                released.map_err(|error| hold_error(&full(&name), &reason, &error))?;
                return Ok(SnapshotsStatus { concerned: vec![name], ..self.received(volume).await? });
            }
            _ => return Err(self.failure(volume, &FsError::Replica)),
        };
        let replica = self.registry.replica(volume).await.map_err(|error| self.failure(volume, &error))?;
        let infos: Vec<SnapshotInfo> = replica.snapshots.iter().map(info).collect();
        let concerned = selected(&infos, &names).map_err(|name| unknown(&full(&name)))?;
        if !dry_run {
            let forgotten = self.registry.forget_received(volume, &concerned).await;
            forgotten.map_err(|error| match error {
                FsError::Busy(why) if why == HAS_CLONES => has_clones("one of the snapshots"),
                error @ FsError::Busy(_) => snapshot_error(&full(&names), &error),
                error => self.failure(volume, &error),
            })?;
        }
        let is_concerned = |name: &String| concerned.contains(name);
        let freed = replica.snapshots.iter().filter(|s| is_concerned(&s.name)).map(|s| s.used_bytes).sum();
        Ok(SnapshotsStatus { concerned, freed_bytes: Some(freed), ..self.received(volume).await? })
    }
}

fn info(snapshot: &ReplicaSnapshot) -> SnapshotInfo {
    SnapshotInfo {
        name: snapshot.name.clone(),
        number: snapshot.number,
        created: snapshot.created,
        referenced_bytes: snapshot.referenced_bytes,
        used_bytes: snapshot.used_bytes,
        written_bytes: 0,
        holds: snapshot.holds.clone(),
        clones: snapshot.clones.clone(),
    }
}

fn shown(replica: ReplicaInfo) -> Vec<SnapshotStatus> {
    replica.snapshots.iter().map(|snapshot| crate::snapshot_words::shown(info(snapshot))).collect()
}

/// A token is what a person carries from the receiver to the sender: the numbers of segments, in hexadecimal digits.
fn token_of(resume: &Resume) -> Result<String, Failure> {
    let text = serde_json::to_vec(resume).map_err(|error| Failure::internal(error.to_string()))?;
    Ok(hex::encode(&text))
}

fn parse_token(token: &str) -> Option<Resume> {
    serde_json::from_slice(&hex::decode(token.trim())?).ok()
}
