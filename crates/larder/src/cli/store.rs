//! `larder store check`, `status` and `takeover`.

use std::collections::BTreeMap;
use std::time::Duration;

use larder_api::{Done, Failure, PoolStatus};
use larder_base::Seat;
use larder_store::{Bucket, BucketError, BucketUrl, Machine, Owner, OwnerRecord, Probe, ProbeState, TakeOver};
use serde::Serialize;

use super::args::{Global, Reach, StoreCommand};
use super::reach::Outcome;
use crate::daemon::bucket::bucket_failure;
use crate::{machine, render, times};

/// A daemon that hangs is left out.
const DAEMON_WAIT_MAX: Duration = Duration::from_secs(3);

/// What `--json` prints.
#[derive(Serialize)]
struct Checked {
    url: String,
    usable: bool,
    probes: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    name: &'static str,
    state: &'static str,
    seen: String,
}

pub(super) async fn run(global: &Global, command: StoreCommand) -> Result<Outcome, Failure> {
    match command {
        StoreCommand::Check { url, reach } => check(global, url, &reach).await,
        StoreCommand::Status { url, reach } => status(global, url, &reach).await,
        StoreCommand::Takeover { url, reach, seat, force } => {
            take_over(global, url, &reach, &seat.unwrap_or_default(), force).await
        }
        StoreCommand::Forget { name } => {
            let client = super::reach::daemon(global).await?;
            let done: Done = client.post(&format!("/v1/stores/{name}/forget"), &Done {}).await?;
            global.out().answer(&done, |_| format!("the changes that never reached the store '{name}' are gone"))?;
            Ok(Outcome::Done)
        }
    }
}

/// What `--json` prints of an owner.
#[derive(Serialize)]
struct Ownership {
    url: String,
    /// `None`: nobody ever had the store.
    owner: Option<OwnerRecord>,
    /// The machines at other seats, by the names of these.
    seats: BTreeMap<String, OwnerRecord>,
    /// What the larders of this machine that serve it say of it, its bill among that.
    served_here: Vec<String>,
}

/// Of every daemon of this user that has the store open.
async fn served_here(url: &str) -> Vec<String> {
    let mut notes = Vec::new();
    for (_, client) in super::reach::running().await {
        let asked = tokio::time::timeout(DAEMON_WAIT_MAX, client.get::<Vec<PoolStatus>>("/v1/pools")).await;
        let Ok(Ok(pools)) = asked else { continue };
        notes.extend(pools.into_iter().filter(|pool| pool.id == url).flat_map(|pool| pool.notes));
    }
    notes
}

async fn status(global: &Global, url: BucketUrl, reach: &Reach) -> Result<Outcome, Failure> {
    let name = url.to_string();
    let failed = |error: BucketError| bucket_failure(&name, &error);
    let bucket = Bucket::open(&reach.settings(url)).map_err(failed)?;
    let (first, others): (Vec<_>, Vec<_>) = larder_store::look_at_all(&*bucket.store)
        .await
        .map_err(failed)?
        .into_iter()
        .partition(|(seat, _)| seat.is_first());
    let owner = first.into_iter().next().map(|(_, owner)| owner);
    let seats: BTreeMap<_, _> = others.into_iter().map(|(seat, owner)| (seat.to_string(), owner)).collect();
    let served_here = served_here(&name).await;
    let here: String = served_here.iter().map(|note| format!("\nhere: {note}")).collect();
    global.out().answer(&Ownership { url: name.clone(), owner, seats, served_here }, |seen| match &seen.owner {
        None if seen.seats.is_empty() => format!("{name} has no owner: nothing was kept there yet{here}"),
        None => format!("store: {name}{}{here}", seats_text(&seen.seats)),
        Some(owner) => {
            let state = state_of(owner);
            let journal = owner.journal.as_ref().map(|mark| {
                format!(
                    "\ndurability: the journal of the pool '{}' there; the bucket has all changes up to {}",
                    mark.pool,
                    times::local(mark.drained_ms)
                )
            });
            let journal = journal.unwrap_or_default();
            format!(
                "store: {name}\nowner: {}\nepoch: {}\nstate: {state}{journal}{}{here}",
                owner.machine.name,
                owner.epoch,
                seats_text(&seen.seats)
            )
        }
    })?;
    Ok(Outcome::Done)
}

fn state_of(owner: &OwnerRecord) -> &'static str {
    match (owner.released, owner.beat) {
        (true, _) => "given back: any machine may take it",
        (false, Some(_)) => "in use, renewed for a standby",
        (false, None) => "in use",
    }
}

fn seats_text(seats: &BTreeMap<String, OwnerRecord>) -> String {
    let line = |(seat, owner): (&String, &OwnerRecord)| {
        format!("\nseat '{seat}': {}, epoch {}, {}", owner.machine.name, owner.epoch, state_of(owner))
    };
    seats.iter().map(line).collect()
}

/// Takes the store and gives it back, so that the owner before ends and the next one need not be told.
async fn take_over(
    global: &Global,
    url: BucketUrl,
    reach: &Reach,
    seat: &Seat,
    force: bool,
) -> Result<Outcome, Failure> {
    let name = url.to_string();
    let failed = |error: BucketError| {
        let failure = bucket_failure(&name, &error);
        match error {
            BucketError::Owned { .. } => Failure { action: None, ..failure }.action(format!(
                "stop larder there; if it is gone, or has to give way: larder store takeover {name}{} --force",
                seat_option(seat)
            )),
            _ => failure,
        }
    };
    let bucket = Bucket::open(&reach.settings(url)).map_err(failed)?;
    let id = format!("takeover:{}", uuid::Uuid::new_v4().simple());
    let machine = Machine { name: format!("larder store takeover on {}", machine::host_name()), id };
    let how = if force { TakeOver::Forced } else { TakeOver::No };
    let before = larder_store::look_at(&*bucket.store, seat).await.map_err(failed)?;
    let missing = before.filter(|before| !before.released).and_then(|before| {
        let mark = before.journal?;
        let (since, pool, machine) = (times::local(mark.drained_ms), mark.pool, before.machine.name);
        Some(format!(
            "\nchanges after {since} may be missing: only the pool '{pool}' of {machine} has what the bucket does not; when larder \
             starts there again, it keeps them and says so"
        ))
    });
    let owner = Owner::take_seat(bucket.store, &bucket.url, seat, machine, how).await.map_err(failed)?;
    owner.await_silence().await;
    owner.release().await.map_err(failed)?;
    let epoch = owner.epoch();
    let missing = missing.unwrap_or_default();
    let at = seat.name().map(|seat| format!(" (seat '{seat}')")).unwrap_or_default();
    let text = format!("{name}{at} is free (epoch {epoch}): whoever starts next, or stands by, has it{missing}");
    global.out().answer(&serde_json::json!({ "url": name, "epoch": epoch, "missing": missing.trim() }), |_| text)?;
    Ok(Outcome::Done)
}

fn seat_option(seat: &Seat) -> String {
    seat.name().map(|name| format!(" --seat {name}")).unwrap_or_default()
}

async fn check(global: &Global, url: BucketUrl, reach: &Reach) -> Result<Outcome, Failure> {
    let name = url.to_string();
    let bucket = Bucket::open(&reach.settings(url)).map_err(|error| bucket_failure(&name, &error))?;
    let probes = larder_store::check(bucket.store).await;
    let usable = probes.iter().all(|probe| probe.state != ProbeState::Missing);
    let checked = Checked { url: name, usable, probes: probes.into_iter().map(line).collect() };
    global.out().answer(&checked, text)?;
    Ok(if usable { Outcome::Done } else { Outcome::Problems })
}

fn line(probe: Probe) -> Line {
    let state = match probe.state {
        ProbeState::Ok => "ok",
        ProbeState::Warn => "warning",
        ProbeState::Missing => "MISSING",
    };
    Line { name: probe.name, state, seen: probe.seen }
}

fn text(checked: &Checked) -> String {
    let header = ["WHAT LARDER NEEDS", "STATE", "SEEN"].map(str::to_owned).to_vec();
    let lines = checked.probes.iter().map(|line| vec![line.name.to_owned(), line.state.to_owned(), line.seen.clone()]);
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(lines).collect();
    let missing: Vec<&str> =
        checked.probes.iter().filter(|line| line.state == "MISSING").map(|line| line.name).collect();
    let end = match missing.is_empty() {
        true => format!("{} can keep volumes: larder up --store {}", checked.url, checked.url),
        false => format!("{} cannot keep volumes: it lacks {}", checked.url, missing.join(", ")),
    };
    format!("{}\n{end}", render::table(&rows, &[]))
}
