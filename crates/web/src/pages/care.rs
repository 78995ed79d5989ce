//! What happened, what is scheduled, and the configuration.

use askama::Template;
use larder_api::endpoints::{
    AcceptReplica, ChangeReplications, GetInfo, GetPoolHistory, GetPoolsKnown, GetReplications, GetScrubSchedules,
    GetSnapshotSchedules, GetVolumes, ReloadConfig, SetScrubSchedule, SetSnapshotSchedule,
};
use larder_api::{
    Accept, Accepted, Failure, PoolStatus, ReplicationChange, ReplicationStatus, ScrubSchedule, SnapshotCounts,
    SnapshotSchedule, SnapshotScheduleSet, VolumeStatus,
};

use super::change::path_for;
use super::keys;
use super::pools::{Level, PoolView};
use crate::form::encoded;
use crate::note::Note;
use crate::shell_words::on_page;
use crate::text::{Moment, duration, percent, size};
use crate::visit::{Answer, Frame, Local, Visit, page as show};

/// Events on the page, of all pools.
const EVENTS_SHOWN_MAX: usize = 100;

pub struct EventView {
    pub at: Moment,
    pub pool: String,
    pub kind: String,
    pub text: String,
    at_ms: u64,
}

pub struct ScheduleView {
    pub volume: String,
    pub keep: String,
    pub kept: String,
    pub newest: String,
    pub next: Option<Moment>,
    pub fault: Option<String>,
}

fn counts(counts: SnapshotCounts) -> String {
    let all =
        [(counts.hourly, "hourly"), (counts.daily, "daily"), (counts.weekly, "weekly"), (counts.monthly, "monthly")];
    let some: Vec<String> =
        all.iter().filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} {kind}")).collect();
    if some.is_empty() { "none".to_owned() } else { some.join(", ") }
}

impl ScheduleView {
    fn of(schedule: &SnapshotSchedule) -> Self {
        Self {
            volume: format!("{}/{}", schedule.pool, schedule.volume),
            keep: counts(schedule.keep),
            kept: counts(schedule.kept),
            newest: schedule.newest.clone().unwrap_or_else(|| "none yet".to_owned()),
            next: schedule.changed.then(|| Moment::of_ms_unsigned(schedule.next_ms)),
            fault: schedule.fault.as_deref().map(on_page),
        }
    }
}

pub struct ReplicationView {
    pub volume: String,
    pub to: String,
    pub newest: String,
    pub newest_at: Option<Moment>,
    pub behind: String,
    pub sending: Option<(String, u8, String)>,
    pub level: Level,
    pub fault: Option<String>,
}

impl ReplicationView {
    fn of(one: &ReplicationStatus) -> Self {
        let sending = one.sending.as_ref().map(|name| match one.total_bytes {
            Some(total) => {
                (name.clone(), percent(one.sent_bytes, total), format!("{} of {}", size(one.sent_bytes), size(total)))
            }
            None => (name.clone(), 0, size(one.sent_bytes)),
        });
        Self {
            volume: one.volume.clone(),
            to: one.to.clone(),
            newest: one.newest.clone().unwrap_or_else(|| "none yet".to_owned()),
            newest_at: one.newest_ms.map(Moment::of_ms_unsigned),
            behind: one.behind.map_or_else(|| "\u{2013}".to_owned(), |count| count.to_string()),
            sending,
            level: if one.fault.is_some() || one.late { Level::Warn } else { Level::Fine },
            fault: one.fault.as_deref().map(on_page),
        }
    }
}

/// Work that takes long, and the way to end it.
pub struct JobView {
    pub title: String,
    pub percent: u8,
    pub sentence: String,
    /// What keeps it from going on.
    pub fault: Option<String>,
    pub stop: Option<Stop>,
}

pub enum Stop {
    /// The scrub of a pool.
    Scrub(String),
    /// A page where it is undone.
    At(&'static str, String),
}

fn jobs_of_pool(pool: &PoolStatus) -> impl Iterator<Item = JobView> {
    let view = PoolView::of(pool);
    let scrub = view.scrub.filter(|scrub| scrub.is_running || scrub.is_paused).map(|scrub| JobView {
        title: format!("Scrub of {}", pool.name),
        percent: scrub.percent,
        sentence: if scrub.is_paused { format!("paused; {}", scrub.sentence) } else { scrub.sentence },
        fault: None,
        stop: Some(Stop::Scrub(pool.name.clone())),
    });
    let leaving = pool.disks.iter().find(|disk| disk.leaving);
    let stop = leaving
        .map(|disk| Stop::At("Keep the disk", format!("{}&disk={}", path_for(&pool.name, "keep"), encoded(&disk.id))));
    let moving = view.moving.map(|moving| JobView {
        title: format!("{}: {}", pool.name, moving.why),
        percent: moving.percent,
        sentence: moving.sentence,
        fault: moving.stuck.as_deref().map(on_page),
        stop,
    });
    scrub.into_iter().chain(moving)
}

fn jobs(pools: &[PoolStatus], volumes: &[VolumeStatus], replications: &[ReplicationStatus]) -> Vec<JobView> {
    let sealing = volumes.iter().filter_map(|volume| {
        let (percent, sentence) = keys::sealing(volume.sealing.as_ref()?);
        let title = format!("Sealing of {}/{}", volume.pool, volume.name);
        Some(JobView { title, percent, sentence, fault: None, stop: None })
    });
    let sending = replications.iter().filter_map(|one| {
        let (snapshot, percent, sentence) = ReplicationView::of(one).sending?;
        let title = format!("Replica of {} to {}: {snapshot}", one.volume, one.to);
        Some(JobView { title, percent, sentence, fault: one.fault.as_deref().map(on_page), stop: None })
    });
    pools.iter().flat_map(jobs_of_pool).chain(sealing).chain(sending).collect()
}

#[derive(Template)]
#[template(path = "care.html")]
struct CarePage {
    frame: Frame,
    jobs: Vec<JobView>,
    volumes: Vec<String>,
    events: Vec<EventView>,
    unread: Vec<String>,
    schedules: Vec<ScheduleView>,
    scrubs: Vec<ScrubSchedule>,
    replications: Vec<ReplicationView>,
    version: String,
    pid: u32,
    uptime: String,
    memory: String,
    data: String,
}

pub async fn page(visit: &Visit<'_>) -> Answer {
    let info = visit.ask(GetInfo).await?;
    let (mut events, mut unread) = (Vec::new(), Vec::new());
    for pool in &info.pools {
        match visit.about(GetPoolHistory, pool).await {
            Ok(history) => {
                events.extend(history.events.into_iter().rev().take(EVENTS_SHOWN_MAX).map(|event| EventView {
                    at: Moment::of_ms_unsigned(event.at_ms),
                    pool: pool.clone(),
                    kind: event.kind.replace('-', " "),
                    text: event.text,
                    at_ms: event.at_ms,
                }))
            }
            // A store has no history of disks.
            Err(failure) => unread.push(format!("{pool}: {}", failure.message)),
        }
    }
    events.sort_by_key(|event| std::cmp::Reverse(event.at_ms));
    events.truncate(EVENTS_SHOWN_MAX);
    let schedules = visit.ask(GetSnapshotSchedules).await?;
    let replications = visit.ask(GetReplications).await?;
    let (pools, volumes) = (visit.ask(GetPoolsKnown).await?, visit.ask(GetVolumes).await?);
    show(&CarePage {
        frame: visit.frame("care", "Care"),
        jobs: jobs(&pools, &volumes, &replications.replications),
        volumes: volumes.iter().map(|volume| format!("{}/{}", volume.pool, volume.name)).collect(),
        events,
        unread,
        schedules: schedules.iter().map(ScheduleView::of).collect(),
        scrubs: visit.ask(GetScrubSchedules).await?,
        replications: replications.replications.iter().map(ReplicationView::of).collect(),
        version: info.version,
        pid: info.pid,
        uptime: duration(info.uptime_secs),
        memory: size(info.memory_bytes),
        data: info.data.display().to_string(),
    })
}

/// A count of snapshots; an empty field is none.
fn count(visit: &Visit<'_>, field: &str) -> Result<u32, Failure> {
    let text = visit.form.text(field);
    let wrong = |_| Failure::invalid(format!("'{text}' is not a number of snapshots"));
    if text.is_empty() { Ok(0) } else { text.parse().map_err(wrong) }
}

/// All counts 0: none is taken any more.
pub async fn schedule_snapshots(visit: &Visit<'_>) -> Answer {
    let change = async {
        let volume = visit.required("volume", "the volume")?;
        let keep = SnapshotCounts {
            hourly: count(visit, "hourly")?,
            daily: count(visit, "daily")?,
            weekly: count(visit, "weekly")?,
            monthly: count(visit, "monthly")?,
        };
        let keep = Some(keep).filter(|keep| *keep != SnapshotCounts::default());
        let done = match keep {
            Some(keep) => format!("Of {volume} are kept: {}.", counts(keep)),
            None => format!("No snapshots of {volume} are taken by themselves any more. Those that are there stay."),
        };
        visit.call(SetSnapshotSchedule, (), &SnapshotScheduleSet { volume, keep }).await?;
        Ok(Note::done(done))
    };
    visit.back(Local::of("/care"), change.await)
}

pub async fn schedule_scrubs(visit: &Visit<'_>) -> Answer {
    let change = async {
        let pool = visit.required("pool", "the pool")?;
        let schedule = visit.required("schedule", "the schedule")?;
        let done = format!("Scrubs of {pool}: {schedule}.");
        visit.call(SetScrubSchedule, (), &ScrubSchedule { pool, schedule }).await?;
        Ok(Note::done(done))
    };
    visit.back(Local::of("/care"), change.await)
}

#[derive(Template)]
#[template(path = "invitation.html")]
struct InvitationPage {
    frame: Frame,
    replica: String,
    code: String,
    addr: String,
}

/// Makes a code for the box that sends. The answer shows it, and no later page can.
pub async fn accept(visit: &Visit<'_>) -> Answer {
    let made = async {
        let request = Accept { replica: visit.required("replica", "the replica")?, keep: None, quota_bytes: None };
        visit.call(AcceptReplica, (), &request).await
    };
    match made.await {
        Ok(Accepted { code, addr, replica }) => {
            let frame = visit.frame("care", "Code for a replica");
            show(&InvitationPage { frame, replica, code, addr: addr.to_string() })
        }
        Err(failure) => visit.back(Local::of("/care"), Err(failure)),
    }
}

pub async fn replicate(visit: &Visit<'_>) -> Answer {
    let change = async {
        let volume = visit.required("volume", "the volume")?;
        let to = visit.required("to", "the replica")?;
        let done = format!("{volume} is replicated to {to} after each snapshot.");
        let (limit, code) = (visit.form.filled("limit"), visit.form.filled("code"));
        let request = ReplicationChange::Add { volume, to, limit, code, as_files: None };
        visit.call(ChangeReplications, (), &request).await?;
        Ok(Note::done(done))
    };
    visit.back(Local::of("/care"), change.await)
}

pub async fn end_replication(visit: &Visit<'_>) -> Answer {
    let change = async {
        let volume = visit.required("volume", "the volume")?;
        visit.typed(&volume)?;
        let request = ReplicationChange::Remove { volume: volume.clone(), to: visit.form.filled("to") };
        visit.call(ChangeReplications, (), &request).await?;
        Ok(Note::done(format!("{volume} is replicated there no longer. The replica stays.")))
    };
    visit.back(Local::of("/care"), change.await)
}

pub async fn reload(visit: &Visit<'_>) -> Answer {
    let change = async {
        let read = visit.ask(ReloadConfig).await?;
        let next = read.at_next_start.iter().map(|what| format!("At the next start: {what}"));
        let lines = read.notes.iter().cloned().chain(next).collect();
        Ok(Note::done(format!("{} was read again.", read.file.display())).with(lines))
    };
    visit.back(Local::of("/care"), change.await)
}
