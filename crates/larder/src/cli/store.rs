//! `larder store check`, `status` and `takeover`.

use std::collections::BTreeMap;
use std::time::Duration;

use larder_api::Failure;
use larder_api::endpoints::{ForgetLost, GetPools};
use larder_base::Seat;
use larder_keep::missing::may_be_missing;
use larder_store::{
    BEAT, Bucket, BucketError, BucketUrl, HandOver, Look, Machine, Owner, OwnerRecord, Probe, ProbeState, TakeOver,
};
use serde::Serialize;

use super::args::{Global, Reach, StoreCommand};
use super::reach::Outcome;
use crate::render;
use larder_config::machine;
use larder_config::times;
use larder_daemon::translate::bucket_error;

/// An owner with a standby has renewed its record by then.
const BETWEEN_LOOKS: Duration = BEAT.saturating_add(Duration::from_secs(2));
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
            let done = client.call(ForgetLost, &name, &()).await?;
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
    /// The owner should renew its record and does not: since when, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    silent_since_ms: Option<u64>,
    /// The machines at other seats, by the names of these.
    seats: BTreeMap<String, OwnerRecord>,
    /// What the larders of this machine that serve it say of it, its bill among that.
    served_here: Vec<String>,
}

/// Of every daemon of this user that has the store open.
async fn served_here(url: &str) -> Vec<String> {
    let mut notes = Vec::new();
    for (_, client) in super::reach::running().await {
        let asked = tokio::time::timeout(DAEMON_WAIT_MAX, client.ask(GetPools)).await;
        let Ok(Ok(pools)) = asked else { continue };
        notes.extend(pools.into_iter().filter(|pool| pool.id == url).flat_map(|pool| pool.notes));
    }
    notes
}

async fn status(global: &Global, url: BucketUrl, reach: &Reach) -> Result<Outcome, Failure> {
    let name = url.to_string();
    let failed = |error: BucketError| bucket_error(&name, &error);
    let bucket = Bucket::open(&reach.settings(url)).map_err(failed)?;
    let first = Seat::default();
    let (owner, silent_since_ms) = match Look::at(&*bucket.store, &first, BETWEEN_LOOKS).await.map_err(failed)? {
        None => (None, None),
        Some(look) => (Some(look.record), look.silent_since_ms),
    };
    let all = larder_store::look_at_all(&*bucket.store).await.map_err(failed)?;
    let others = all.into_iter().filter(|(seat, _)| !seat.is_first());
    let seats: BTreeMap<_, _> = others.map(|(seat, owner)| (seat.to_string(), owner)).collect();
    let served_here = served_here(&name).await;
    let here: String = served_here.iter().map(|note| format!("\nhere: {note}")).collect();
    let answer = Ownership { url: name.clone(), owner, silent_since_ms, seats, served_here };
    global.out().answer(&answer, |seen| match &seen.owner {
        None if seen.seats.is_empty() => format!("{name} has no owner: nothing was kept there yet{here}"),
        None => format!("store: {name}{}{here}", seats_text(&name, &seen.seats)),
        Some(owner) => {
            let (state, journal) =
                (state_of(owner, seen.silent_since_ms), journal_of(&name, owner, seen.silent_since_ms));
            format!(
                "store: {name}\nowner: {}\nepoch: {}\nstate: {state}{journal}{}{here}",
                owner.machine.name,
                owner.epoch,
                seats_text(&name, &seen.seats)
            )
        }
    })?;
    Ok(Outcome::Done)
}

/// A line for each seat but the first. Whether their owners are silent is not looked for.
fn seats_text(url: &str, seats: &BTreeMap<String, OwnerRecord>) -> String {
    let line = |(seat, owner): (&String, &OwnerRecord)| {
        let (machine, epoch, state) = (&owner.machine.name, owner.epoch, state_of(owner, None));
        format!("\nseat '{seat}': {machine}, epoch {epoch}, {state}{}", journal_of(url, owner, None))
    };
    seats.iter().map(line).collect()
}

fn state_of(owner: &OwnerRecord, silent_since_ms: Option<u64>) -> String {
    match (owner.released, owner.beat, silent_since_ms) {
        (true, ..) => "given back: any machine may take it".to_owned(),
        (false, Some(_), Some(since)) => {
            format!("in use, and silent since {} (the bucket's clock)", times::local(since))
        }
        (false, Some(_), None) => "in use, renewed for a standby".to_owned(),
        (false, None, _) => "in use".to_owned(),
    }
}

/// What is to be said of a journal that answers, or answered, for the store `url`.
fn journal_of(url: &str, owner: &OwnerRecord, silent_since_ms: Option<u64>) -> String {
    let Some(mark) = &owner.journal else { return String::new() };
    if owner.released || mark.given_up {
        return format!("\n{}", may_be_missing(mark, &owner.machine.name));
    }
    let durability = format!("\ndurability: the journal of the pool '{}' there", mark.pool);
    match silent_since_ms {
        _ if mark.at_rest => format!("{durability}; the bucket has everything"),
        None => format!("{durability}; the bucket has all changes up to {}", times::local(mark.drained_ms)),
        Some(_) => format!(
            "{durability}\n{}\nno standby takes over: start larder there, and nothing is lost; if that machine is gone for good, go on \
             without them: larder store takeover {url} --force",
            may_be_missing(mark, &owner.machine.name)
        ),
    }
}

async fn take_over(
    global: &Global,
    url: BucketUrl,
    reach: &Reach,
    seat: &Seat,
    force: bool,
) -> Result<Outcome, Failure> {
    let bucket = Bucket::open(&reach.settings(url)).map_err(|error| bucket_error("", &error))?;
    let by = format!("larder store takeover on {}", machine::host_name());
    if force { take_by_force(global, bucket, seat, by).await } else { ask(global, bucket, seat, by).await }
}

/// Asks the owner to end in order and to give the store back.
async fn ask(global: &Global, bucket: Bucket, seat: &Seat, by: String) -> Result<Outcome, Failure> {
    let url = bucket.url.to_string();
    let name = worded(&url, seat);
    let handed = larder_store::hand_over(&*bucket.store, seat, &by).await;
    let handed = handed.map_err(|error| bucket_error(&name, &error))?;
    let not_given = |owner: &OwnerRecord, why: &str| Err(not_given(&url, seat, owner, why));
    let (now, text) = match handed {
        HandOver::Free => (None, format!("{name} is free: whoever starts next, or stands by, has it")),
        HandOver::Done(None) => {
            (None, format!("{name} was given back, and nothing is missing: whoever starts next, or stands by, has it"))
        }
        HandOver::Done(Some(now)) => {
            let text = format!("{name} was given back, nothing is missing, and {now} has it now");
            (Some(now), text)
        }
        HandOver::Unheard(owner) => {
            return not_given(&owner, "it looks for no such request, because its [[store]] has no standby = true");
        }
        HandOver::Silent(owner) => return not_given(&owner, "it shows no sign of life"),
        HandOver::Slow(owner) => return not_given(&owner, "it was asked, and has not given it back yet"),
    };
    global.out().answer(&serde_json::json!({ "url": url, "owner": now }), |_| text)?;
    Ok(Outcome::Done)
}

fn not_given(url: &str, seat: &Seat, owner: &OwnerRecord, why: &str) -> Failure {
    let machine = &owner.machine.name;
    let missing = owner.journal.as_ref().filter(|mark| mark.may_miss());
    let missing = missing.map(|mark| format!(", which says then what is missing: {}", may_be_missing(mark, machine)));
    Failure::busy(format!("the store {} belongs to {machine}: {why}", worded(url, seat))).action(format!(
        "stop larder there; if it is gone, or has to give way: larder store takeover {url}{} --force{}",
        seat_option(seat),
        missing.unwrap_or_default()
    ))
}

/// Takes the store and gives it back, so that the owner before ends and the next one need not be told.
async fn take_by_force(global: &Global, bucket: Bucket, seat: &Seat, by: String) -> Result<Outcome, Failure> {
    let url = bucket.url.to_string();
    let name = worded(&url, seat);
    let failed = |error: BucketError| bucket_error(&name, &error);
    let machine = Machine { name: by, id: format!("takeover:{}", uuid::Uuid::new_v4().simple()) };
    let owner = Owner::take_seat(bucket.store, &bucket.url, seat, machine, TakeOver::Forced).await.map_err(failed)?;
    let missing = owner.inherited().map_or_else(String::new, |mark| {
        format!("{}; when larder starts there again, it keeps them and says so", may_be_missing(mark, ""))
    });
    owner.await_silence().await;
    owner.release().await.map_err(failed)?;
    let epoch = owner.epoch();
    let lines = if missing.is_empty() { String::new() } else { format!("\n{missing}") };
    let text = format!("{name} is free (epoch {epoch}): whoever starts next, or stands by, has it{lines}");
    global.out().answer(&serde_json::json!({ "url": url, "epoch": epoch, "missing": missing }), |_| text)?;
    Ok(Outcome::Done)
}

/// A store, and the seat at it unless that is the first.
fn worded(url: &str, seat: &Seat) -> String {
    seat.name().map_or_else(|| url.to_owned(), |name| format!("{url} (seat '{name}')"))
}

fn seat_option(seat: &Seat) -> String {
    seat.name().map(|name| format!(" --seat {name}")).unwrap_or_default()
}

async fn check(global: &Global, url: BucketUrl, reach: &Reach) -> Result<Outcome, Failure> {
    let name = url.to_string();
    let bucket = Bucket::open(&reach.settings(url)).map_err(|error| bucket_error(&name, &error))?;
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
        // Keys and rights were not looked at.
        false if missing == ["clock"] => format!("{} was not checked: set the clock, and try again", checked.url),
        false => format!("{} cannot keep volumes: it lacks {}", checked.url, missing.join(", ")),
    };
    format!("{}\n{end}", render::table(&rows, &[]))
}
