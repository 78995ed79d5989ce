//! Opening a pool: the label to believe, the disks that are its members, the losses, and the tasks
//! that an open pool runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::BoxFuture;
use larder_base::features::Access;
use larder_base::task;
use uuid::Uuid;

use crate::change::{create, diverged, moving};
use crate::core::Core;
use crate::disk::DiskOpener;
use crate::disk::folder;
use crate::disk::timed_disk;
use crate::disk::watch::{self, HANGS};
use crate::disk::work::Work;
use crate::error::PoolError;
use crate::heal::repair;
use crate::heal::scrub;
use crate::history::EventKind;
use crate::journal::{self, Journal};
use crate::member::adopt::{self, Damaged};
use crate::member::divergence::Divergence;
use crate::member::found::{Directories, Labelled, no_larder_disk, read_labels};
use crate::member::label::{self, Label, Usage};
use crate::member::member_disk::{DiskState, ErrorKind, MemberDisk};
use crate::member::members::{Members, Start};
use crate::object::index::Graveyard;
use crate::object::store::PoolStore;
use crate::object::tombstones::{self, Tombstones};
use crate::pool::{OpenOptions, Pool, Tasks};

/// Events within this time are written together.
const GATHER_FOR: Duration = Duration::from_secs(1);

/// The time between looks for disks that hang.
const WATCH_EVERY: Duration = Duration::from_secs(1);

impl Pool {
    /// Opens a pool: believes the right label, locks the disks, replays the journal.
    pub fn open(options: OpenOptions) -> BoxFuture<'static, Result<Self, PoolError>> {
        Box::pin(async move {
            let options = OpenOptions { opener: timed_disk::over(options.opener.clone()), ..options };
            let cancelled = || PoolError::Cancelled(options.name.clone().unwrap_or_default());
            let of_task = options.clone();
            let opened = options.opener.work().blocking(move || open_blocking(&of_task)).await;
            let (core, journal, left) = opened.ok_or_else(cancelled)??;
            let journal = Arc::new(journal);
            let damaged = |error: larder_base::LogError| PoolError::Journal {
                pool: core.members.name.clone(),
                why: error.to_string(),
            };
            let (tombstones, tombstoned) = Tombstones::open(journal.clone()).await.map_err(damaged)?;
            if !left.was_closed {
                core.blocking(|core| core.make_found_durable()).await?;
            }
            core.blocking(move |core| core.load_index(&tombstoned)).await??;
            core.blocking(|core| core.reserves.make(&core.members)).await?;
            core.blocking(|core| core.count_divergence()).await?;
            let tombstones = Arc::new(tombstones);
            if core.members.iter().all(|member| member.is_writable()) {
                tombstones.sweep(&core).await?;
            }
            core.members.iter().filter_map(|member| member.io().ok()).for_each(|io| io.settle());
            let worker = task::spawn(repair::run(core.clone()));
            let historian = task::spawn(write_history_now_and_then(core.clone()));
            let scrubber = task::spawn(scrub::run(core.clone()));
            let stale = core.members.iter().any(|member| member.state() == DiskState::Resilvering);
            let whole = core.members.iter().all(|member| member.is_writable());
            if core.members.iter().all(|member| member.is_readable()) {
                core.objects.index_mut().owe_all();
                core.repairs.set_owing(core.owed_objects() > 0);
            }
            let lacking = whole && core.objects.index().owed_count() > 0;
            // While a disk is away its shards are not made anew on others: it may be back soon.
            if stale || lacking {
                core.repairs.add_all();
            }
            core.repairs.wake();
            // After a crash a put that was cut short may lack shards that were never written.
            if lacking && !stale && left.was_closed && !left.was_owing {
                core.count_missing_shards();
            }
            let sweeper = task::spawn(tombstones::make_room(tombstones.clone(), journal.clone(), core.clone()));
            let store = PoolStore { core: core.clone(), tombstones };
            let m = core.members.layout().failures();
            let weaker = core.objects.index().objects.values().any(|object| object.geometry.m < m);
            core.mover.set_stragglers(weaker);
            let mover = task::spawn(moving::run(core.clone()));
            Ok(Self::new(core, journal, store, Tasks([worker, historian, scrubber, sweeper, mover])))
        })
    }
}

/// The pool's core and journal, and how it was left.
fn open_blocking(options: &OpenOptions) -> Result<(Arc<Core>, Journal, Left), PoolError> {
    let Directories { mut labelled, mut damaged, mut hanging, mut notes } =
        read_labels(&*options.opener, &options.disks);
    let unusable: Vec<String> = notes.iter().cloned().chain(damaged.iter().map(Damaged::note)).collect();
    let pool = choose_pool(options, &labelled, &unusable)?;
    let hinted = hinted(&*options.opener, pool, &labelled);
    damaged.extend(hinted.damaged);
    hanging.extend(hinted.hanging);
    let named: Vec<Uuid> = labelled.iter().map(|disk| disk.label.disk).collect();
    labelled.extend(hinted.labelled.into_iter().filter(|disk| disk.label.pool == pool));
    let labels: Vec<Label> =
        labelled.iter().map(|disk| &disk.label).filter(|label| label.pool == pool).cloned().collect();
    for (path, disk, label) in create::finish_creation(&*options.opener, &labels) {
        notes.retain(|note| *note != no_larder_disk(&path));
        damaged.retain(|found| found.path != path);
        labelled.push(Labelled { path, disk, label, second: false });
    }
    let (ours, foreign): (Vec<_>, Vec<_>) = labelled.into_iter().partition(|disk| disk.label.pool == pool);
    for disk in foreign {
        notes.push(format!("{} belongs to another pool, '{}': not used", disk.path.display(), disk.label.name));
    }
    let claimed: Vec<Uuid> = ours.iter().map(|disk| disk.label.disk).collect();
    let ours = without_duplicates(ours, &mut notes);
    let labels: Vec<Label> = ours.iter().map(|disk| disk.label.clone()).collect();
    let Some(mut winner) = label::winner(&labels, |label| named.contains(&label.disk)).cloned() else {
        return Err(PoolError::NoPool(paths_text(&options.disks)));
    };
    check_features(&labels, true)?;
    check_usage(options, &winner)?;
    if let Some(name) = &options.rename {
        create::check_name(name)?;
        winner.name.clone_from(name);
    }
    let (host, host_id) = folder::host();
    let owner = format!("process {} on {host}", std::process::id());
    let members = assemble(&winner, ours, &owner, &mut notes)?;
    for member in members.iter().filter(|member| hanging.contains(&*member.path.read()) && !member.is_readable()) {
        HANGS.clone_into(&mut member.last_error.lock());
    }
    adopt::adopt(&winner, &members, &claimed, damaged, &owner, &mut notes)?;
    let mut losses = Vec::new();
    if let Err(error) = check_enough(&winner, &members) {
        losses = believe_rolled_back(&members);
        if losses.is_empty() || check_enough(&winner, &members).is_err() {
            return Err(error);
        }
        if !options.accept_loss {
            let (why, help) = (losses.join("; "), journal::help(members.iter(), &winner));
            return Err(PoolError::ChangesLost { pool: winner.name, why, help });
        }
    }
    check_fewer(options, &winner, &members)?;
    let stale_labels = stale_labels(&winner, &labels, &members);
    notes.extend(stale_labels.iter().cloned());
    let before = winner.clone();
    let (graveyard, mut burials) = Graveyard::new();
    let last_lives = options.last_lives.clone();
    let start = Start { label: winner, members, opener: options.opener.clone(), owner, notes, last_lives };
    let core = Arc::new(Core::new(Members::new(start), graveyard));
    let reaper = core.clone();
    match core.members.work.clone() {
        Work::Threads => std::thread::Builder::new()
            .name("larder-reaper".into())
            .spawn(move || reaper.bury_all(&mut burials))
            .map(drop)
            .map_err(|source| PoolError::Io { what: "start a thread for", path: "the pool".into(), source })?,
        Work::InTurns(turns) => drop(task::spawn(reaper.bury_in_turns(burials, turns))),
    }
    if matches!(core.members.work, Work::Threads) {
        let watched = Arc::downgrade(&core);
        let watch = move || {
            let core = || watched.upgrade().filter(|core| !core.is_closed());
            while let Some(open) = core() {
                open.members.look_for_hangs();
                drop(open);
                let has_calls = || core().is_some_and(|core| core.members.has_calls_under_way());
                if !has_calls() {
                    watch::sleep_until_called(has_calls);
                }
                std::thread::sleep(WATCH_EVERY);
            }
        };
        let started = std::thread::Builder::new().name("larder-watch".into()).spawn(watch);
        started.map_err(|source| PoolError::Io { what: "start a thread for", path: "the pool".into(), source })?;
    }
    // A refused pool stays as it is: nothing is written before this point (`journal.loss_refused`).
    let give_up = |_: &PoolError| {
        core.objects.graveyard.stop();
        core.give_back_disks();
    };
    let stored = journal::read(&core.members, options.accept_loss).inspect_err(give_up)?;
    losses.extend(stored.loss.clone());
    core.members.begin_history(&before);
    stale_labels.into_iter().for_each(|text| core.members.event(EventKind::DiskBack, text));
    core.load_scrub();
    if options.accept_loss {
        let found =
            if losses.is_empty() { "the labels and the journal show no loss".to_owned() } else { losses.join("; ") };
        let text = format!("opened although acknowledged changes may be lost, as asked: {found}");
        tracing::error!(pool = %core.members.name, text);
        core.members.event(EventKind::Errors, text);
    }
    core.members.write_labels(|label| {
        label.usage = Usage::Open { host, host_id };
        label.features = label::features_in_use(std::mem::take(&mut label.features));
        // Also where only a volume knows that something is missing.
        label.unproven |= options.accept_loss;
    });
    core.members.tell_of_stale_disks();
    core.members.tell_of_diverged_disks();
    core.objects.versions.begin_session(&core.members.hold_labels());
    let journal = Journal::open(core.members.clone(), core.activity.clone(), stored).inspect_err(give_up)?;
    core.set_journal(journal.handle());
    // From here on every disk in use differs from an older copy of itself, and the journal reaches
    // the batch that it began with.
    core.members.write_labels(|_| {});
    Ok((core, journal, Left { was_closed: !matches!(before.usage, Usage::Open { .. }), was_owing: before.owing }))
}

/// How a pool was left, by its label.
struct Left {
    was_closed: bool,
    /// Shards were missing then that no disk has lost.
    was_owing: bool,
}

impl Members {
    /// Takes over the history from the disks, and adds how the pool is opened now. Blocks.
    pub fn begin_history(&self, before: &Label) {
        self.history.take_over(&self.disks_readable());
        let (kind, mut text) = opening(before);
        for member in self.iter().filter(|member| !member.is_readable()) {
            text.push_str(&format!("; {} is {}", member.path.read().display(), member.state()));
        }
        self.event(kind, text);
    }

    /// Tells which disks have diverged.
    fn tell_of_diverged_disks(&self) {
        for member in self.iter().filter(|member| member.state() == DiskState::Diverged) {
            self.tell_of_divergence(member);
        }
    }

    /// Tells that a disk has diverged.
    pub fn tell_of_divergence(&self, member: &MemberDisk) {
        let what = member.divergence.lock().as_ref().map_or_else(String::new, Divergence::what);
        let text = format!("{} {what}: it is left as it is", member.path.read().display());
        tracing::error!(pool = %self.name, text);
        self.event(EventKind::Errors, text);
    }

    /// Tells which disks are out of date, once it is known which of them take writes.
    pub fn tell_of_stale_disks(&self) {
        let is_stale = |member: &&MemberDisk| {
            let state = member.state();
            state == DiskState::Resilvering || state == DiskState::ReadOnly && !member.is_in_sync()
        };
        for member in self.iter().filter(is_stale) {
            let why = match (&*member.stale.lock(), member.last_error.lock().as_str()) {
                (Some(why), _) => why.clone(),
                (None, "") => "it was away and is out of date".to_owned(),
                (None, why) => why.to_owned(),
            };
            let now = match member.state() {
                DiskState::ReadOnly => "it refuses writes, and cannot be brought up to date",
                _ => "being brought up to date",
            };
            self.event(EventKind::DiskBack, format!("{}: {why}; {now}", member.path.read().display()));
        }
    }
}

/// How a pool is opened, judged by its label from before.
fn opening(before: &Label) -> (EventKind, String) {
    let (host, own_id) = folder::host();
    if before.generation == 1 {
        let disks = before.members.len();
        return (EventKind::Created, format!("{} of {disks} disks on {host}", before.layout));
    }
    match &before.usage {
        Usage::Exported => (EventKind::Imported, format!("on {host}; it was exported")),
        Usage::Closed { host_id, host: other } if *host_id != own_id => {
            (EventKind::Imported, format!("on {host}; it was closed on {other}"))
        }
        Usage::Open { host_id, host: other } if *host_id != own_id => {
            (EventKind::Imported, format!("on {host}, by force; it was in use on {other}"))
        }
        Usage::Closed { .. } => (EventKind::Opened, format!("on {host}")),
        Usage::Open { .. } => (EventKind::Opened, format!("on {host}, after a stop without closing it")),
    }
}

/// The task that writes gathered events: runs until the pool is closed.
async fn write_history_now_and_then(core: Arc<Core>) {
    while !core.is_closed() {
        core.members.history.has_news().await;
        tokio::time::sleep(GATHER_FOR).await;
        if core.is_closed() {
            return;
        }
        // It fails only when the runtime ends.
        let _ = core.blocking(|core| core.members.write_history()).await;
    }
}

fn paths_text(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The pool that was named, or the only one, or the one with most disks here.
fn choose_pool(options: &OpenOptions, labelled: &[Labelled], notes: &[String]) -> Result<Uuid, PoolError> {
    let mut counts: Vec<(usize, Uuid, String)> = Vec::new();
    for disk in labelled {
        let is_it = |name: &String| *name == disk.label.name || disk.label.pool.to_string().starts_with(name.as_str());
        if options.name.as_ref().is_some_and(|name| !is_it(name)) {
            continue;
        }
        match counts.iter_mut().find(|(_, pool, _)| *pool == disk.label.pool) {
            Some((count, _, _)) => *count += 1,
            None => counts.push((1, disk.label.pool, disk.label.name.clone())),
        }
    }
    counts.sort_by_key(|(count, _, _)| std::cmp::Reverse(*count));
    match counts.as_slice() {
        [] if notes.is_empty() => Err(PoolError::NoPool(paths_text(&options.disks))),
        [] => Err(PoolError::NoPool(notes.join("; "))),
        [(first, a_id, a), (second, b_id, b), ..] if first == second => {
            Err(PoolError::SeveralPools(format!("{a} with the id {a_id}, and {b} with the id {b_id}")))
        }
        [(_, pool, _), ..] => Ok(*pool),
    }
}

/// Members that were not named are looked for where they were last seen.
fn hinted(opener: &dyn DiskOpener, pool: Uuid, labelled: &[Labelled]) -> Directories {
    let mut hints: Vec<PathBuf> = Vec::new();
    for disk in labelled.iter().filter(|disk| disk.label.pool == pool) {
        for member in &disk.label.members {
            let known = |path: &Path| labelled.iter().any(|disk| disk.path == path) || hints.iter().any(|h| h == path);
            if !labelled.iter().any(|disk| disk.label.disk == member.id) && !known(&member.path) {
                hints.push(member.path.clone());
            }
        }
    }
    read_labels(opener, &hints)
}

/// Two directories with one disk id: a copy was made. The newer counts; if none is, the one at the
/// place that the pool knows; else neither can be trusted.
fn without_duplicates(disks: Vec<Labelled>, notes: &mut Vec<String>) -> Vec<Labelled> {
    let mut kept: Vec<Labelled> = Vec::new();
    let mut refused: Vec<Uuid> = Vec::new();
    for disk in disks {
        let Some(at) = kept.iter().position(|other| other.label.disk == disk.label.disk) else {
            if !refused.contains(&disk.label.disk) {
                kept.push(disk);
            }
            continue;
        };
        let score = |disk: &Labelled| {
            let home = disk.label.members.iter().any(|m| m.id == disk.label.disk && m.path == disk.path);
            (disk.label.generation, home)
        };
        let other = kept.swap_remove(at);
        let (a, b) = (other.path.display().to_string(), disk.path.display().to_string());
        match score(&disk).cmp(&score(&other)) {
            std::cmp::Ordering::Equal => {
                notes.push(format!("{a} and {b} are copies of one disk: neither is used; take one away"));
                refused.push(disk.label.disk);
            }
            std::cmp::Ordering::Greater => {
                notes.push(format!("{a} is a copy of disk {b}: not used; take it away"));
                kept.push(disk);
            }
            std::cmp::Ordering::Less => {
                notes.push(format!("{b} is a copy of disk {a}: not used; take it away"));
                kept.push(other);
            }
        }
    }
    kept
}

/// Refuses a pool that this program would misread, or with `to_write` one that it would damage. One
/// label that says so suffices: it is of the same pool.
pub fn check_features(labels: &[Label], to_write: bool) -> Result<(), PoolError> {
    let mut read_only = Ok(());
    for label in labels {
        let pool = label.name.clone();
        match label.features.access(&label::KNOWN) {
            Access::Refused(features) => {
                return Err(PoolError::UnknownFeatures { pool, features: features.join(", ") });
            }
            Access::ReadOnly(features) if to_write => {
                read_only = Err(PoolError::ReadOnlyFeatures { pool, features: features.join(", ") });
            }
            Access::ReadOnly(_) | Access::Full => {}
        }
    }
    read_only
}

fn check_usage(options: &OpenOptions, label: &Label) -> Result<(), PoolError> {
    let (_, own_id) = folder::host();
    match &label.usage {
        Usage::Open { host, host_id } if *host_id != own_id && !options.force => {
            Err(PoolError::InUse { pool: label.name.clone(), host: host.clone() })
        }
        _ => Ok(()),
    }
}

/// Locks the disks that are there and puts them at their places.
fn assemble(
    winner: &Label,
    disks: Vec<Labelled>,
    owner: &str,
    notes: &mut Vec<String>,
) -> Result<Vec<MemberDisk>, PoolError> {
    let members: Vec<MemberDisk> = winner.members.iter().map(MemberDisk::of_entry).collect();
    for disk in disks {
        let place = members.iter().zip(&winner.members).find(|(member, _)| member.id == disk.label.disk);
        let Some((member, entry)) = place else {
            if !winner.knows_life_of(&disk.label) {
                let path = disk.path.display();
                notes.push(format!("{path} has left this pool, and has gone on without it since: left as it is"));
            } else if !winner.is_spare(disk.label.disk) {
                notes.push(format!("{} was taken out of the pool earlier: not used", disk.path.display()));
            }
            continue;
        };
        if entry.offline {
            continue;
        }
        // `diverged.left_alone`
        if !winner.knows_life_of(&disk.label) {
            member.diverge(Divergence::between(winner, &disk.label));
            *member.path.write() = disk.path;
            member.set_state(DiskState::Diverged);
            continue;
        }
        let io = member.watched(disk.disk);
        let lock = match io.lock(owner) {
            Ok(lock) => lock,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                let holder = error.to_string();
                return Err(PoolError::Locked { pool: winner.name.clone(), path: disk.path, holder });
            }
            Err(error) => {
                notes.push(format!("{} cannot be locked: {error}", disk.path.display()));
                *member.last_error.lock() = error.to_string();
                member.set_state(DiskState::Faulted);
                continue;
            }
        };
        let rolled_back = winner.is_rolled_back(&disk.label);
        let in_sync = entry.in_sync && winner.descends_from(&disk.label) && !rolled_back;
        let path = disk.path.display();
        if rolled_back {
            let (own, newest) = (disk.label.generation, winner.settled);
            let why = format!(
                "an older copy of itself: its label is of generation {own}, the pool had written {newest} to it"
            );
            notes.push(format!("{path}: {why}"));
            *member.stale.lock() = Some(why.clone());
            *member.last_error.lock() = why;
        } else if !in_sync {
            let (own, newest) = (disk.label.generation, winner.generation);
            notes.push(format!(
                "{path} was away and is out of date (its label is of generation {own}, the newest of {newest})"
            ));
        }
        if disk.second {
            notes.push(format!(
                "{path}: its label is damaged, the copy of it is used: all on the disk is being verified"
            ));
            member.count(ErrorKind::Checksum, "its label was damaged");
        }
        let suspect = disk.second || entry.suspect;
        member.attach(io, lock, disk.path);
        member.in_sync.store(in_sync, Ordering::Release);
        member.suspect.store(suspect, Ordering::Release);
        member.rolled_back.store(rolled_back, Ordering::Release);
        member.unsettled.store(disk.label.generation < winner.settled, Ordering::Release);
        member.set_state(if in_sync && !suspect { DiskState::Online } else { DiskState::Resilvering });
    }
    Ok(members)
}

/// Refuses to go on without disks that could have gone on without these
/// (`diverged.fewer_disks_asked`).
fn check_fewer(options: &OpenOptions, winner: &Label, members: &[MemberDisk]) -> Result<(), PoolError> {
    let last = options.last_lives.as_ref().and_then(|memory| memory.last(winner.pool));
    let missing = diverged::to_ask_about(winner, members, last, options.by_hand);
    let Some(missing) = missing.filter(|_| !options.degraded) else {
        return Ok(());
    };
    let why = match last {
        Some(last) if !diverged::has_all_of(winner, last) => {
            "the disks that are here are older than the pool as this machine last ran it"
        }
        _ => "they had everything when it was last used, and may have been used elsewhere since",
    };
    // Nobody is to look for a disk that is connected.
    let is_older = |member: &&MemberDisk| member.rolled_back.load(Ordering::Acquire);
    let older: Vec<PathBuf> = members.iter().filter(is_older).map(|member| member.path.read().clone()).collect();
    let here = match older.len() {
        0 => String::new(),
        1 => format!("; {} is here as an older copy of itself", paths_text(&older)),
        _ => format!("; {} are here as older copies of themselves", paths_text(&older)),
    };
    let (pool, missing, why) = (winner.name.clone(), paths_text(&missing), format!("{why}{here}"));
    Err(PoolError::FewerDisks { pool, missing, why })
}

/// Disks whose labels alone are older than the newest.
fn stale_labels(winner: &Label, labels: &[Label], members: &[MemberDisk]) -> Vec<String> {
    let newest = winner.generation;
    let is_stale = |label: &&Label| label.generation < newest;
    let loss_of = |label: &Label| {
        let member =
            members.iter().find(|member| member.id == label.disk && member.is_readable() && member.is_in_sync())?;
        let (path, own) = (member.path.read().display().to_string(), label.generation);
        Some(format!(
            "the label of {path} was stale (generation {own}, the newest is {newest}): the pool stopped while labels were written, or the disk was full; nothing else on it is out of date, and the label is written anew"
        ))
    };
    labels.iter().filter(is_stale).filter_map(loss_of).collect()
}

/// Accepts disks that are older copies of themselves as they are. Returns the loss that this means.
fn believe_rolled_back(members: &[MemberDisk]) -> Vec<String> {
    let believe = |member: &MemberDisk| {
        member.in_sync.store(true, Ordering::Release);
        if !member.is_suspect() {
            member.set_state(DiskState::Online);
        }
        format!("{} is {}", member.path.read().display(), member.last_error.lock())
    };
    members.iter().filter(|member| member.rolled_back.load(Ordering::Acquire)).map(believe).collect()
}

/// Refuses when more disks are missing or out of date than the layout survives.
fn check_enough(winner: &Label, members: &[MemberDisk]) -> Result<(), PoolError> {
    let bad: Vec<&MemberDisk> = members.iter().filter(|member| !member.is_in_sync()).collect();
    if bad.len() <= usize::from(winner.failures()) {
        return Ok(());
    }
    let names: Vec<String> = bad
        .iter()
        .map(|member| {
            let state = match member.state() {
                DiskState::Diverged => "gone on without the others",
                _ if member.is_readable() => "out of date",
                _ => "missing",
            };
            let why = match member.last_error.lock().as_str() {
                "" => String::new(),
                why => format!(": {why}"),
            };
            format!("{} (disk {}) is {state}{why}", member.path.read().display(), member.id)
        })
        .collect();
    Err(PoolError::TooManyLost {
        pool: winner.name.clone(),
        out: bad.len(),
        disks: members.len(),
        layout: winner.layout.to_string(),
        survives: winner.failures(),
        names: names.join("; "),
    })
}
