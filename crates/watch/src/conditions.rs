//! What is the case now: conditions from what the daemon has in memory (`looking.no_disk_asked`).
//!
//! One cause is one condition: a pool is told to be degraded only where no disk of it explains that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_alerts::disk::{COLUMNS, Column};
use larder_alerts::{Condition, EventKind, Unknown, space};
use larder_api::{DiskStatus, Failure, PoolStatus};
use larder_base::passed;
use larder_base::units::ByteSize;
use larder_fs::Cred;
use larder_keep::Store;
use larder_volume::Registry;

use crate::clock::{self, now_ms};
use crate::watcher::Watcher;
use larder_config::Config;
use larder_config::user::Accounts;
use larder_document::{Kind, Standing};

/// A change that holds the daemon's state longer than this has everything stay as it was seen last.
const STATE_WAIT_MAX: Duration = Duration::from_secs(5);
/// Percent in use at which a pool fills, and below which it does not any more.
const POOL_WARN: [f64; 2] = [85.0, 82.0];
const POOL_CRITICAL: [f64; 2] = [95.0, 93.0];
const QUOTA_WARN: [f64; 2] = [90.0, 87.0];
const QUOTA_CRITICAL: [f64; 2] = [99.0, 96.0];
const JOURNAL_WARN: [f64; 2] = [90.0, 70.0];
const NEVER: [f64; 2] = [f64::INFINITY; 2];
/// Changes that wait longer for the bucket: minutes of trouble are those of the store.
const JOURNAL_WAITS_MAX: Duration = Duration::from_secs(15 * 60);
/// Of what a schedule says.
const SCRUB_LATE_FACTOR: u32 = 2;
const MIB: u64 = 1 << 20;
/// Owners of one volume.
const OWNERS_MAX: usize = 200;

/// Things whose standings are alerts.
const DOWN: [(Kind, EventKind); 7] = [
    (Kind::Share, EventKind::ShareDown),
    (Kind::Mount, EventKind::MountDown),
    (Kind::Schedule, EventKind::SnapshotsFailing),
    (Kind::Replica, EventKind::ReplicaLate),
    (Kind::Scrub, EventKind::UpkeepFailing),
    (Kind::Bin, EventKind::UpkeepFailing),
    (Kind::Record, EventKind::UpkeepFailing),
];

/// One look.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) unknown: Vec<Unknown>,
    /// A line for each pool.
    pub(crate) room: Vec<String>,
}

/// `None`: somebody changes something that takes long.
pub(crate) async fn gather(watcher: &Watcher) -> Option<Seen> {
    let mut seen = Seen::default();
    // Under the lock: a change that is under way takes things away for a moment.
    let state = tokio::time::timeout(STATE_WAIT_MAX, watcher.document.lock()).await.ok()?;
    let config = Arc::clone(&state.config);
    let unopened = watcher.standings.unopened();
    let down = DOWN.map(|(kind, event)| (kind, event, watcher.standings.unserved(kind)));
    drop(state);
    for (name, failure) in &unopened {
        let condition = Condition::is(EventKind::PoolUnavailable, name, failure.message.clone());
        seen.conditions.push(with_action(condition, failure));
    }
    let pools = watcher.storage.all();
    for pool in &pools {
        of_pool(watcher, pool, &config, &mut seen);
    }
    watcher.watch.slow.keep_only(&pools.iter().map(|pool| pool.name.clone()).collect::<Vec<_>>());
    for (kind, event, unserved) in down {
        for (name, standing) in unserved {
            let Standing::Failed(why) = standing else { continue };
            // What the event says helps, too: a folder that was made is looked at with the next change.
            if kind == Kind::Mount {
                seen.conditions.push(Condition::is(event, name, why.message));
                continue;
            }
            let text = kind.unserved(&name, &why);
            let text = format!("The {}", text.strip_prefix("the ").unwrap_or(&text));
            seen.conditions.push(with_action(Condition::is(event, name, text), &why));
        }
    }
    seen.conditions.extend((watcher.told)());
    if let Some(fault) = watcher.watch.config_fault.lock().clone() {
        seen.conditions.push(Condition::is(
            EventKind::ConfigInvalid,
            watcher.document.file.display().to_string(),
            fault,
        ));
    }
    seen.conditions.extend(clock_behind(watcher));
    if watcher.servers.webdavs_addr().is_some() || watcher.servers.page_addr().is_some() {
        let own = || watcher.folder.path().join("webdav_certificate.pem");
        let file = config.webdav.certificate.as_ref().map_or_else(own, |(certificate, _)| certificate.clone());
        seen.conditions.extend(watcher.watch.certificate.look(&file, chrono::Utc::now().timestamp()));
    }
    seen.conditions.extend(watcher.watch.ups.conditions(config.ups.as_ref()));
    seen.conditions.extend(watcher.watch.kept.lock().suspects.conditions());
    let (conditions, unknown) = watcher.watch.disks.conditions();
    seen.conditions.extend(conditions);
    seen.unknown.extend(unknown);
    Some(seen)
}

fn with_action(condition: Condition, why: &Failure) -> Condition {
    match &why.action {
        Some(action) => condition.action(action),
        None => condition,
    }
}

/// Times that have passed, by what is known: the release, this box's own time, and events of its pools.
fn clock_behind(watcher: &Watcher) -> Option<Condition> {
    let ms = |secs: i64| u64::try_from(secs).unwrap_or(0).saturating_mul(1000);
    let mut passed = vec![
        ("the release of this larder".to_owned(), ms(passed::RELEASED_SECS)),
        ("the last moment that this box knows".to_owned(), ms(passed::now_secs())),
    ];
    for pool in watcher.storage.all() {
        let newest = pool.history().events.iter().map(|event| event.at_ms).max();
        passed.extend(newest.map(|at_ms| (format!("an event of the pool '{}'", pool.name), at_ms)));
    }
    let text = clock::behind(clock::now_ms(), passed)?;
    Some(Condition::is(EventKind::ClockBehind, &watcher.watch.host, text))
}

fn of_pool(watcher: &Watcher, pool: &Store, config: &Config, seen: &mut Seen) {
    let status = pool.status();
    if let Some(bucket) = pool.bucket() {
        if let Some(trouble) = bucket.trouble() {
            let text = format!("The store '{}' does not answer: {}. Writes wait.", pool.name, trouble.why);
            seen.conditions.push(Condition::is(EventKind::StoreUnreachable, &pool.name, text));
        }
        if let Some((oldest, bytes)) = bucket.journal_waits().filter(|(oldest, _)| *oldest >= JOURNAL_WAITS_MAX) {
            let text = format!(
                "Changes of {} min ({}) wait in the journal for the bucket of '{}'.",
                oldest.as_secs() / 60,
                ByteSize(bytes),
                pool.name
            );
            seen.conditions.push(Condition::is(EventKind::JournalFilling, &pool.name, text));
        }
    }
    of_disks(&status, seen);
    for volume in pool.registry.failed() {
        let name = format!("{}/{volume}", pool.name);
        let text = format!("The volume {name} takes no writes any more: its disks failed while it wrote.");
        seen.conditions.push(Condition::is(EventKind::VolumeStopped, name, text));
    }
    if let Some(disks) = pool.disk_pool() {
        // What an earlier life has told stays until somebody clears it: nothing has been mended by a restart.
        let before = disks.uncounted().into_iter().map(|disk| Unknown {
            event: EventKind::DiskErrors,
            subject: Some(format!("{}: {}", pool.name, disk.display())),
        });
        seen.unknown.extend(before);
        of_room(watcher, &status, seen);
        of_scrub(pool, config, &status, seen);
        let (damaged, more) = disks.damage();
        let lost = damaged.len() as u64 + more;
        if lost > 0 {
            let text = format!("{lost} objects of the pool {} have bytes that no redundancy gives back.", pool.name);
            seen.conditions.push(Condition::is(EventKind::DataLost, &pool.name, text));
        }
        let (used, capacity) = disks.log().usage();
        let percent = 100.0 * used as f64 / capacity.max(1) as f64;
        let text = || format!("The journal of the pool {} is {percent:.0} % full.", pool.name);
        seen.conditions.extend(Condition::of_value(
            EventKind::JournalFilling,
            &pool.name,
            percent,
            JOURNAL_WARN,
            NEVER,
            text,
        ));
        seen.conditions.extend(watcher.watch.slow.look(&pool.name, &disks.disk_times(), Instant::now()));
    }
    of_quotas(pool, config, &pool.registry, seen);
}

/// The disks of a pool, and the pool itself where they do not explain its state.
fn of_disks(status: &PoolStatus, seen: &mut Seen) {
    let pool = &status.name;
    let (mut is_explained, mut resilvers) = (false, false);
    for disk in &status.disks {
        let subject = format!("{pool}: {}", disk.path.display());
        let text = |what: &str| {
            let why = disk.note.as_ref().map_or_else(String::new, |note| format!(" ({note})"));
            let rest = match status.state.as_str() {
                "DEGRADED" => " The pool serves everything, with less redundancy.",
                "FAULTED" => " The pool cannot serve everything.",
                _ => "",
            };
            format!("The disk {} of the pool {pool} {what}{why}.{rest}", disk.path.display())
        };
        let found = match disk.state.as_str() {
            "MISSING" | "REMOVED" => Some((EventKind::DiskMissing, text("is not there"))),
            "FAULTED" => Some((EventKind::DiskFailed, text("is out of use"))),
            "OFFLINE" => Some((EventKind::DiskOutOfUse, text("was taken offline"))),
            "READONLY" => Some((EventKind::DiskOutOfUse, text("takes no writes"))),
            "DIVERGED" => Some((EventKind::DiskOutOfUse, text("has diverged from the pool"))),
            // Until it is whole again, nothing about it is over.
            "RESILVERING" => {
                resilvers = true;
                let kinds = [EventKind::DiskMissing, EventKind::DiskFailed, EventKind::DiskOutOfUse];
                seen.unknown.extend(kinds.map(|event| Unknown { event, subject: Some(subject.clone()) }));
                None
            }
            _ => None,
        };
        if let Some((event, text)) = found {
            is_explained = true;
            let condition = Condition::is(event, &subject, text);
            seen.conditions.push(match &status.action {
                Some(action) => condition.action(action),
                None => condition,
            });
        }
        if disk.state == "ONLINE" {
            seen.conditions.extend(errors(pool, disk, subject));
        }
    }
    let text = || status.status.clone().unwrap_or_else(|| format!("The pool {pool} is {}.", status.state));
    let event = match status.state.as_str() {
        "FAULTED" => EventKind::PoolFaulted,
        "DEGRADED" if resilvers => {
            seen.unknown.push(Unknown { event: EventKind::PoolDegraded, subject: Some(pool.clone()) });
            return;
        }
        "DEGRADED" if !is_explained => EventKind::PoolDegraded,
        _ => return,
    };
    let condition = Condition::is(event, pool, text());
    seen.conditions.push(match &status.action {
        Some(action) => condition.action(action),
        None => condition,
    });
}

fn errors(pool: &str, disk: &DiskStatus, subject: String) -> Option<Condition> {
    let counts = [(disk.read_errors, "read"), (disk.write_errors, "write"), (disk.checksum_errors, "checksum")];
    let words: Vec<String> =
        counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what} errors")).collect();
    let text = format!("The disk {} of the pool {pool} has {}.", disk.path.display(), words.join(", "));
    (!words.is_empty()).then(|| Condition::is(EventKind::DiskErrors, subject, text))
}

fn of_room(watcher: &Watcher, status: &PoolStatus, seen: &mut Seen) {
    if status.state == "FAULTED" {
        // What its disks have room for is not known.
        return;
    }
    let (pool, total) = (&status.name, status.total_bytes);
    let used = total.saturating_sub(status.available_bytes);
    let history = format!("pool {}", status.id);
    let mut values = [None; COLUMNS];
    values[Column::Celsius as usize] = u32::try_from(used / MIB).ok();
    values[Column::WearPercent as usize] = u32::try_from(total / MIB).ok();
    watcher.watch.history.add(&history, now_ms() / 1000, values);
    let days = watcher.watch.history.ring(&history).and_then(|ring| {
        let samples = ring.samples(1);
        let used = |sample: &larder_alerts::disk::Sample| Some((sample.at_s * 1000, f64::from(sample.values[0]?)));
        space::days_left(&samples.iter().filter_map(used).collect::<Vec<_>>(), total as f64 / MIB as f64)
    });
    let date = days.map(|days| {
        let at = chrono::Local::now() + chrono::TimeDelta::days(days as i64);
        format!(" If it goes on like this it is full on {}.", at.format("%Y-%m-%d"))
    });
    let date = date.unwrap_or_default();
    let words = room_words(used, total);
    seen.room.push(format!("{pool}: {words}.{date}"));
    let percent = 100.0 * used as f64 / total.max(1) as f64;
    let text = || format!("The pool {pool} fills: {words}.{date}");
    seen.conditions.extend(Condition::of_value(EventKind::PoolFilling, pool, percent, POOL_WARN, POOL_CRITICAL, text));
}

fn of_scrub(pool: &Store, config: &Config, status: &PoolStatus, seen: &mut Seen) {
    if let Some(scrub) = status.scrub.as_ref().filter(|scrub| scrub.phase == "finished" && scrub.errors > 0) {
        let text = format!(
            "The scrub of the pool {} found {} damaged pieces and repaired {}; {} objects are not whole.",
            pool.name, scrub.errors, scrub.repaired, scrub.unrepaired
        );
        seen.conditions.push(Condition::is(EventKind::ScrubFound, &pool.name, text));
    }
    let schedule = config.pool(&pool.name).map(|known| known.scrub).unwrap_or_default();
    let (last_ms, rests) = pool.last_scrub();
    let since = Duration::from_millis(passed::since_ms(last_ms, now_ms()));
    let Some(interval) = schedule.interval().filter(|_| rests && last_ms > 0) else { return };
    if since >= interval * SCRUB_LATE_FACTOR {
        let days = since.as_secs() / 86_400;
        let text = format!(
            "The pool {} was last scrubbed {days} days ago; it should be every {}.",
            pool.name,
            interval.as_secs() / 86_400
        );
        seen.conditions.push(Condition::is(EventKind::ScrubLate, &pool.name, text));
    }
}

fn of_quotas(pool: &Store, config: &Config, registry: &Registry, seen: &mut Seen) {
    let Some(open) = registry.open_with_quotas() else {
        seen.unknown.push(Unknown { event: EventKind::QuotaFilling, subject: None });
        return;
    };
    let mut condition = |subject: String, used: u64, quota: u64| {
        let percent = 100.0 * used as f64 / quota.max(1) as f64;
        let text = || format!("The quota of {subject} fills: {}.", room_words(used, quota));
        let found = Condition::of_value(EventKind::QuotaFilling, &subject, percent, QUOTA_WARN, QUOTA_CRITICAL, text);
        seen.conditions.extend(found);
    };
    for (name, volume, quota) in open {
        let full = format!("{}/{name}", pool.name);
        if let Some(quota) = quota {
            let room = volume.statfs(&Cred::root());
            let used = volume.contents().charged_bytes.max(room.total_bytes.saturating_sub(room.free_bytes)).min(quota);
            condition(full.clone(), used, quota);
        }
        let limited = volume.owners_now().into_iter().filter(|owner| owner.quota_bytes.is_some());
        let limited: Vec<_> = limited.take(OWNERS_MAX).collect();
        if limited.is_empty() {
            continue;
        }
        let host = Accounts::of_machine();
        for owner in limited {
            let known = match owner.is_group {
                true => config.groups.iter().find(|group| group.gid == owner.id).map(|group| group.name.clone()),
                false => config.users.iter().find(|user| user.uid == owner.id).map(|user| user.name.clone()),
            };
            let of_host = || if owner.is_group { host.name_of_group(owner.id) } else { host.name_of_user(owner.id) };
            let name = known.or_else(of_host).unwrap_or_else(|| owner.id.to_string());
            let kind = if owner.is_group { "group" } else { "user" };
            condition(format!("{kind} {name} in {full}"), owner.used_bytes, owner.quota_bytes.unwrap_or(u64::MAX));
        }
    }
}

/// How full, as people read it.
fn room_words(used: u64, total: u64) -> String {
    format!("{} of {} used ({:.0} %)", ByteSize(used), ByteSize(total), 100.0 * used as f64 / total.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(path: &str, state: &str) -> DiskStatus {
        DiskStatus {
            path: path.into(),
            id: String::new(),
            state: state.to_owned(),
            read_errors: 0,
            write_errors: 0,
            checksum_errors: 0,
            size_bytes: 0,
            used_bytes: 0,
            free_bytes: 0,
            shares_room: false,
            leaving: false,
            note: None,
        }
    }

    /// What is said of a pool in this state with disks in these states.
    fn said(state: &str, disks: Vec<DiskStatus>) -> (Vec<String>, usize) {
        let status = PoolStatus {
            name: "tank".into(),
            id: "1".into(),
            layout: "raidz1".into(),
            state: state.into(),
            status: Some("Something.".into()),
            action: Some("do it".into()),
            scan: None,
            scrub: None,
            damage: larder_api::Damage::default(),
            owed_objects: 0,
            total_bytes: 0,
            used_bytes: 0,
            available_bytes: 0,
            disks,
            spares: Vec::new(),
            moving: None,
            notes: Vec::new(),
        };
        let mut seen = Seen::default();
        of_disks(&status, &mut seen);
        let words = seen.conditions.iter().map(|one| format!("{} {}", one.key.event, one.key.subject)).collect();
        (words, seen.unknown.len())
    }

    #[test]
    fn one_cause_is_one_condition() {
        let (online, gone) = (disk("/a", "ONLINE"), disk("/b", "MISSING"));
        assert_eq!(said("ONLINE", vec![online.clone()]), (vec![], 0));
        assert_eq!(said("DEGRADED", vec![online.clone(), gone.clone()]).0, ["disk-missing tank: /b"]);
        assert_eq!(said("DEGRADED", vec![online.clone()]).0, ["pool-degraded tank"]);
        let (words, _) = said("FAULTED", vec![gone, disk("/c", "FAULTED")]);
        assert_eq!(words, ["disk-missing tank: /b", "disk-failed tank: /c", "pool-faulted tank"]);
        assert_eq!(said("DEGRADED", vec![disk("/b", "RESILVERING")]), (vec![], 4), "nothing new, and nothing over");
        let wrong = DiskStatus { checksum_errors: 3, ..online };
        assert_eq!(said("ONLINE", vec![wrong]).0, ["disk-errors tank: /a"]);
    }
}
