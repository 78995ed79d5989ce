//! Machines that share a store, each at a seat and with volumes of its own; and the command that hands one over.
//!
//! ```text
//!  giver: offer ... accepted? doors closed, volume closed, given ... taken? done
//!  taker:        accept                                             open, serve, say so
//! ```
//!
//! What makes this safe is the registry's doing (`seats.*` in larder-volume). Here:
//!
//! - `handing.asked_first`: nothing is closed before the other machine has answered within [`ANSWER_MAX`].
//! - `handing.known_before_open`: doors open again only when it is known whose the volume is, however long the store does not answer.
//! - `handing.clients_wait`: NFS clients of a volume that went are asked to try again for [`LINGER`], so that an address can follow the
//!   volume; then they hear that their handles are stale here.
//! - `handing.configured_twice`: shares, mounts, schedules and replications stay in the giver's larder.toml and rest there. Whoever has
//!   the volume serves what its own file says.
//! - `handing.idle_alone`: a store that only one machine sits at is not looked at.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use larder_api::{Failure, FailureKind, VolumeMove, VolumeMoved};
use larder_base::Seat;
use larder_fs::{FsError, FsResult};
use larder_keep::uses::Patience;
use larder_keep::{Storage, Store};
use larder_store::OwnerRecord;
use larder_volume::{Handover, HandoverStage, Seated};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;
use uuid::Uuid;

use crate::followed::Sight;
use larder_config::VolumeName;
use larder_document::{Document, Look, Standings, State};
use larder_servers::{Mounts, Servers, VolumeDoors};

/// How often a machine looks whether others have changed the registry.
const LOOK: Duration = Duration::from_secs(3);
/// How often, while a volume is about to come, and for how long after an offer.
const LOOK_SOON: Duration = Duration::from_millis(200);
const SOON_FOR: Duration = Duration::from_secs(60);
/// A machine that sits at the store answers an offer within a few looks.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// So long the taker is waited for. The volume is its own anyway.
const TAKEN_MAX: Duration = Duration::from_secs(60);
/// `handing.clients_wait`
const LINGER: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(3);

/// One store, as it was looked at last.
#[derive(Default)]
struct Watch {
    version: Option<String>,
    soon_until: Option<Instant>,
    /// Volumes that were given to this seat and that this process has tried to serve.
    tried: HashSet<Uuid>,
}

impl Watch {
    fn is_soon(&self) -> bool {
        self.soon_until.is_some_and(|until| Instant::now() < until)
    }
}

/// Looks at what other machines change in the stores that are open, until the daemon stops.
pub async fn run(seats: Arc<Seats>) {
    let mut watches: BTreeMap<String, Watch> = BTreeMap::new();
    let mut sights: BTreeMap<String, Sight> = BTreeMap::new();
    loop {
        let stores: Vec<_> = seats.storage.all().into_iter().filter(|pool| pool.bucket().is_some()).collect();
        if stores.is_empty() {
            return;
        }
        for pool in stores {
            let looked = if pool.is_read_only() {
                seats.look_at_owner(&pool, sights.entry(pool.name.clone()).or_default()).await
            } else if pool.registry.has_seats() {
                seats.look_at_seats(&pool, watches.entry(pool.name.clone()).or_default()).await
            } else {
                // `handing.idle_alone`
                Ok(())
            };
            if let Err(error) = looked {
                tracing::debug!(store = pool.name, %error, "cannot see what other machines have changed");
            }
        }
        let is_soon = watches.values().any(Watch::is_soon);
        tokio::time::sleep(if is_soon { LOOK_SOON } else { LOOK }).await;
    }
}

/// A volume on its way to another machine. One at a time.
pub struct Handing {
    pool: Arc<Store>,
    name: VolumeName,
    id: Uuid,
    to: Seat,
    machine: String,
    force: bool,
    /// The taker's words, or `None`: it is the taker's already.
    told: Option<Vec<String>>,
    _alone: OwnedMutexGuard<()>,
}

fn at(seat: &Seat, machine: &str) -> String {
    format!("the seat '{seat}' ({machine})")
}

/// The seat that a person means by its name, or by the name of the machine that sits there.
fn resolve(text: &str, own: &Seat, seats: &[(Seat, OwnerRecord)]) -> Result<(Seat, String), Failure> {
    let others = || seats.iter().filter(|(seat, _)| seat != own);
    let listed = || match seats {
        [] => "none".to_owned(),
        seats => {
            seats.iter().map(|(seat, owner)| format!("{seat} ({})", owner.machine.name)).collect::<Vec<_>>().join(", ")
        }
    };
    let by_seat: Vec<_> = seats.iter().filter(|(seat, _)| seat.to_string() == text).collect();
    let found =
        if by_seat.is_empty() { others().filter(|(_, owner)| owner.machine.name == text).collect() } else { by_seat };
    let (seat, owner) = match found[..] {
        [one] => (&one.0, &one.1),
        [] => {
            return Err(Failure::not_found(format!("no machine '{text}' sits at this store (seats: {})", listed())).action(
                "start larder there with a seat of its own: larder up --store URL --seat NAME; to move to another pool or store of this larder, write POOL/NAME",
            ));
        }
        _ => {
            return Err(Failure::invalid(format!("several seats are on the machine '{text}' (seats: {})", listed()))
                .action("name the seat"));
        }
    };
    Ok((seat.clone(), owner.machine.name.clone()))
}

impl Handing {
    fn again(&self) -> String {
        format!("larder volume move {} {}", self.name, self.to)
    }

    /// Waits until the other machine has answered (`handing.asked_first`).
    async fn await_answer(&self) -> Result<Vec<String>, Failure> {
        let until = Instant::now() + ANSWER_MAX;
        while Instant::now() < until {
            let seated = self.pool.seated(self.id).await.map_err(|error| self.failure(&error))?;
            match seated.handover {
                Some(Handover { stage: HandoverStage::Accepted, told, .. }) => return Ok(told),
                Some(Handover { stage: HandoverStage::Offered, .. }) => tokio::time::sleep(PAUSE).await,
                _ => {
                    return Err(Failure::busy(format!("the offer of '{}' was taken back", self.name)));
                }
            }
        }
        Err(Failure::unavailable(format!(
            "nobody answers at {}; '{}' is served here as before",
            at(&self.to, &self.machine),
            self.name
        ))
        .action(format!(
            "look whether larder runs there, and let it look at the store: larder volume list; then: {}",
            self.again()
        )))
    }

    fn failure(&self, error: &FsError) -> Failure {
        self.pool.failure(&self.name.volume, error)
    }

    /// Closes the volume and gives it away. Whether it is the other's now (`handing.known_before_open`).
    async fn give(&self) -> Result<bool, Failure> {
        let patience = Patience::from_now();
        let failed = loop {
            match self.pool.registry.give(self.id).await {
                Ok(()) => return Ok(true),
                Err(FsError::Busy(_)) if patience.is_left() => patience.pause().await,
                Err(error) => break error,
            }
        };
        let mut pause = PAUSE;
        let seat = loop {
            match self.pool.registry.settle(self.id).await {
                Ok(seat) => break seat,
                Err(FsError::NotFound) => return Err(self.failure(&FsError::NotFound)),
                Err(error) => {
                    tracing::warn!(volume = %self.name, %error, "it is not known yet whether the volume was handed over: it is served by nobody until the store answers");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        };
        match (seat == *self.pool.registry.seat(), failed) {
            (false, _) => Ok(true),
            (true, FsError::Busy(_)) => Err(self.pool.still_in_use(&self.name.volume, "it stays here")),
            (true, error) => Err(self.failure(&error)),
        }
    }

    /// Waits until the taker serves it. What is wrong there, if anything.
    async fn await_taker(&self) -> Option<String> {
        let until = Instant::now() + TAKEN_MAX;
        while Instant::now() < until {
            match self.pool.seated(self.id).await {
                Ok(Seated { handover: Some(Handover { stage: HandoverStage::Given, told, to, .. }), .. })
                    if to == self.to =>
                {
                    // What it said before is known; a fault is all that it says now.
                    if let Some(fault) =
                        told.iter().find(|line| self.told.as_ref().is_none_or(|known| !known.contains(line)))
                    {
                        return Some(fault.clone());
                    }
                }
                Ok(_) => return None,
                Err(error) => tracing::debug!(volume = %self.name, %error, "cannot see whether the volume was taken"),
            }
            tokio::time::sleep(PAUSE).await;
        }
        Some(format!(
            "it belongs to {} and is not served there yet: start larder there; if that machine is gone for good, another one takes its seat with: larder up --store URL --seat {} --force",
            at(&self.to, &self.machine),
            self.to
        ))
    }
}

/// The seats of this machine, and what others do at theirs.
pub struct Seats {
    pub document: Arc<Document>,
    pub storage: Arc<Storage>,
    pub servers: Arc<Servers>,
    pub mounts: Mounts,
    pub doors: Arc<VolumeDoors>,
    pub standings: Standings,
    /// Held while a volume is moved.
    pub moving: Arc<Mutex<()>>,
}

impl Seats {
    /// Asks the machine that is meant. Whoever gave the command and goes away ends that, and nothing has changed.
    pub async fn offer_volume(&self, request: &VolumeMove) -> Result<Handing, Failure> {
        let alone = Arc::clone(&self.moving)
            .try_lock_owned()
            .map_err(|_| Failure::busy("another volume is being moved").action("wait for the end of it"))?;
        let mut one = self.plan_handing(request, alone).await?;
        if one.told.is_some() {
            let offered = one.pool.registry.offer(&one.name.volume, &one.to).await;
            one.id = offered.map_err(|error| one.failure(&error))?;
            match one.await_answer().await {
                Ok(told) => one.told = Some(told),
                Err(failure) => {
                    // An offer that stays has no effect.
                    let _ = one.pool.registry.settle(one.id).await;
                    return Err(failure);
                }
            }
        }
        Ok(one)
    }

    async fn plan_handing(&self, request: &VolumeMove, alone: OwnedMutexGuard<()>) -> Result<Handing, Failure> {
        let (pool, volume) = self.storage.named(&request.volume)?;
        let name = VolumeName { pool: pool.name.clone(), volume };
        let Some(bucket) = pool.bucket().filter(|_| !pool.is_read_only()) else {
            return Err(Failure::invalid(format!("'{name}' is not in a store that this machine writes")).action(
                "name another pool or store of this larder, as POOL/NAME; between machines: larder replicate",
            ));
        };
        if request.keep || request.limit_bytes.is_some() {
            return Err(Failure::invalid(
                "a volume that is handed over is not copied: --keep and --limit mean nothing",
            ));
        }
        if bucket.journal_pool().is_some() {
            return Err(Failure::invalid(format!("the store '{}' answers from a journal of this machine", pool.name))
                .action("write durability = \"bucket\" into its [[store]] in larder.toml, and restart larder; then try again"));
        }
        let own = pool.registry.seat();
        let seats = bucket.seats().await?;
        let (to, machine) = resolve(&request.to, own, &seats)?;
        let all = pool.registry.seated().await.map_err(|error| pool.failure(&name.volume, &error))?;
        let Some(seated) = all.into_iter().find(|one| one.info.name == name.volume) else {
            return Err(pool.failure(&name.volume, &FsError::NotFound));
        };
        if to == *own {
            return Err(match seated.seat == *own {
                true => Failure::invalid(format!("'{name}' is here already")),
                false => Failure::invalid(format!("'{name}' is served at the seat '{}'", seated.seat))
                    .action(format!("say on that machine: larder volume move {name} {to}")),
            });
        }
        if seated.seat != *own && seated.seat != to {
            return Err(Failure::invalid(format!("'{name}' is served at the seat '{}'", seated.seat))
                .action(format!("say on that machine: larder volume move {name} {to}")));
        }
        if seated.seat == *own && seats.iter().any(|(seat, owner)| *seat == to && owner.released) {
            return Err(Failure::unavailable(format!("larder has stopped at {}", at(&to, &machine)))
                .action("start it there; then try again"));
        }
        let told = (seated.seat == *own).then(Vec::new);
        Ok(Handing { pool, name, id: seated.info.id, to, machine, force: request.force, told, _alone: alone })
    }

    /// Gives the volume to the machine that has accepted it, and waits until it is served there.
    pub async fn hand_over(&self, mut one: Handing) -> Result<VolumeMoved, Failure> {
        let began = Instant::now();
        if one.told.is_some() {
            let handles = self.close_for_handing(&one).await?;
            let given = one.give().await;
            let mut state = self.document.lock().await;
            if !matches!(given, Ok(true)) {
                self.doors.open_doors(&mut state, &one.pool, &one.name, &one.name).await;
                return Err(given.err().unwrap_or_else(|| Failure::internal("the volume was not given")));
            }
            let ended = self.let_go(&mut state, &one, handles).await;
            one.told.iter_mut().for_each(|told| told.extend_from_slice(&ended));
        }
        let fault = one.await_taker().await;
        let closed = if one.told.is_some() { began.elapsed() } else { Duration::ZERO };
        match &fault {
            None => tracing::info!("'{}' was handed over to {}", one.name, at(&one.to, &one.machine)),
            Some(fault) => tracing::warn!("'{}' was handed over to {}: {fault}", one.name, at(&one.to, &one.machine)),
        }
        Ok(VolumeMoved {
            volume: one.name.to_string(),
            to: at(&one.to, &one.machine),
            closed_ms: u64::try_from(closed.as_millis()).unwrap_or(u64::MAX),
            kept: false,
            fault,
            handed_over: true,
            notes: one.told.unwrap_or_default(),
        })
    }

    /// The id in the handles of NFS clients, where the volume is open.
    async fn close_for_handing(&self, one: &Handing) -> Result<Option<Uuid>, Failure> {
        let mut state = self.document.lock().await;
        if !one.force {
            let unused =
                self.doors.check_unused(&one.pool, &one.name, "hand it over", format!("{} --force", one.again())).await;
            if let Err(failure) = unused {
                let _ = one.pool.registry.settle(one.id).await;
                return Err(failure);
            }
        }
        let handles = one.pool.files(&one.name.volume).await.ok().map(|files| files.handle_id());
        self.doors.close_doors(&mut state, &one.pool, &one.name).await;
        Ok(handles)
    }

    /// The volume is another machine's: nothing of it is left here but what larder.toml says. Returns what people here will miss.
    async fn let_go(&self, state: &mut State, one: &Handing, handles: Option<Uuid>) -> Vec<String> {
        if let Some(handles) = handles {
            self.servers.linger(handles, LINGER);
        }
        one.pool.unlocked.forget(one.id);
        one.pool.open_again(&one.name.volume);
        state.reconcile(Look::Shares).await;
        self.servers.resume();
        let ended = self.mounts.take_aside(&one.name);
        ended.iter().map(|mount| format!("its mount on {} of this machine has ended", mount.dir.display())).collect()
    }

    // ---------------------------------------------------------------------------------------- taker

    async fn look_at_seats(&self, pool: &Arc<Store>, watch: &mut Watch) -> FsResult<()> {
        let version = pool.registry.version().await?;
        if version == watch.version {
            return Ok(());
        }
        let own = pool.registry.seat().clone();
        let coming =
            pool.registry.seated().await?.into_iter().filter_map(|one| Some((one.handover?, one.seat, one.info)));
        let coming: Vec<_> = coming.filter(|(handover, ..)| handover.to == own).collect();
        // One that comes again is another occasion.
        let is_here = |seat: &Seat, stage: HandoverStage| *seat == own && stage == HandoverStage::Given;
        watch
            .tried
            .retain(|id| coming.iter().any(|(handover, seat, info)| info.id == *id && is_here(seat, handover.stage)));
        for (handover, seat, info) in coming {
            let name = VolumeName { pool: pool.name.clone(), volume: info.name.clone() };
            match handover.stage {
                HandoverStage::Offered if seat != own => {
                    let told = self.words_of_taker(&name, info.sealed);
                    if pool.registry.accept(info.id, &told).await? {
                        tracing::info!("the seat '{seat}' is about to hand '{name}' over");
                        watch.soon_until = Some(Instant::now() + SOON_FOR);
                    }
                }
                HandoverStage::Given if seat == own && watch.tried.insert(info.id) => {
                    self.take_volume(pool, &name, info.id).await?;
                    watch.soon_until = None;
                }
                _ => {}
            }
        }
        watch.version = version;
        Ok(())
    }

    /// What whoever hands a volume over should know.
    fn words_of_taker(&self, name: &VolumeName, sealed: bool) -> Vec<String> {
        let config = self.document.config();
        let host = larder_config::machine::host_name();
        let mut told = Vec::new();
        let shares: Vec<&str> = config
            .shares
            .iter()
            .filter(|share| share.volume.as_ref() == Some(name))
            .map(|share| share.name.as_str())
            .collect();
        match shares[..] {
            [] => told.push(format!(
                "larder.toml of {host} has no share of it, so no client finds it there: larder share add SHARE {name}"
            )),
            _ => told.push(format!("shared by {host} as {}", shares.join(", "))),
        }
        let has_key = config.volumes.iter().any(|volume| volume.name == *name && volume.key.is_some());
        if sealed && !has_key {
            told.push(format!(
                "it is encrypted, and locked there until somebody opens it: larder volume unlock {name}"
            ));
        }
        told
    }

    /// Serves a volume that is this machine's now.
    async fn take_volume(&self, pool: &Arc<Store>, name: &VolumeName, id: Uuid) -> FsResult<()> {
        let mut state = self.document.lock().await;
        state.reconcile(Look::All).await;
        let fault = match pool.volume(&name.volume).await {
            Ok(_) => None,
            Err(failure) => (failure.kind != FailureKind::Locked).then_some(failure.message),
        };
        match &fault {
            None => tracing::info!("'{name}' was handed over to this machine, and is served here from now on"),
            Some(fault) => tracing::error!("'{name}' was handed over to this machine, and is not served: {fault}"),
        }
        drop(state);
        pool.registry.took(id, fault.as_deref()).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn machines_are_found_by_seat_and_by_name() {
        let record = |machine: &str| -> OwnerRecord {
            serde_json::from_value(serde_json::json!({
                "format": 1, "epoch": 1, "machine": {"name": machine, "id": machine}, "taken_ms": 0, "released": false
            }))
            .unwrap()
        };
        let seat = |name: &str| name.parse::<Seat>().unwrap();
        let seats = [(Seat::default(), record("attic")), (seat("b"), record("cellar")), (seat("c"), record("cellar"))];
        let own = Seat::default();
        assert_eq!(resolve("b", &own, &seats).unwrap(), (seat("b"), "cellar".into()));
        assert_eq!(resolve("first", &seat("b"), &seats).unwrap().0, own);
        assert_eq!(resolve("attic", &seat("b"), &seats).unwrap().0, own);
        assert!(resolve("cellar", &own, &seats).unwrap_err().message.contains("several seats"));
        let unknown = resolve("garage", &own, &seats).unwrap_err();
        assert!(unknown.message.contains("b (cellar)") && unknown.message.contains("garage"), "{}", unknown.message);
    }
}
