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

use serde::{Deserialize, Serialize};

use super::change::path_for;
use super::keys;
use super::pools::{Level, PoolView};
use crate::edit::{Edit, stamp};
use crate::form::{Form, encoded};
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

/// The form of a volume's snapshots: a text for each count, empty for 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct KeepFields {
    hourly: String,
    daily: String,
    weekly: String,
    monthly: String,
}

impl KeepFields {
    fn of(keep: SnapshotCounts) -> Self {
        let text = |count: u32| if count == 0 { String::new() } else { count.to_string() };
        Self {
            hourly: text(keep.hourly),
            daily: text(keep.daily),
            weekly: text(keep.weekly),
            monthly: text(keep.monthly),
        }
    }

    fn typed(form: &Form) -> Self {
        let text = |field| Some(form.text(field)).filter(|text| *text != "0").unwrap_or_default().to_owned();
        Self { hourly: text("hourly"), daily: text("daily"), weekly: text("weekly"), monthly: text("monthly") }
    }

    fn fields(&self) -> [(&'static str, &str); 4] {
        [("hourly", &self.hourly), ("daily", &self.daily), ("weekly", &self.weekly), ("monthly", &self.monthly)]
    }

    fn counts(&self) -> Result<SnapshotCounts, Failure> {
        Ok(SnapshotCounts {
            hourly: count(&self.hourly)?,
            daily: count(&self.daily)?,
            weekly: count(&self.weekly)?,
            monthly: count(&self.monthly)?,
        })
    }
}

/// How often a pool is scrubbed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ScrubFields {
    schedule: String,
}

/// A form about one volume or pool.
struct ScheduleForm<T> {
    name: String,
    fields: T,
    /// The state that `fields` are about (`edit.only_changes_sent`).
    shown: String,
    /// The form was refused and waits for another answer.
    is_refused: bool,
}

impl<T: Serialize> ScheduleForm<T> {
    fn of(name: String, now: T, refused: &mut Option<(String, T)>) -> Self {
        let shown = stamp(&now);
        let refused = refused.take_if(|(of, _)| *of == name).map(|(_, fields)| fields);
        Self { name, shown, is_refused: refused.is_some(), fields: refused.unwrap_or(now) }
    }
}

/// Entries of forms that were refused.
#[derive(Default)]
struct Refused {
    keep: Option<(String, KeepFields)>,
    scrub: Option<(String, ScrubFields)>,
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
    keep_forms: Vec<ScheduleForm<KeepFields>>,
    scrub_forms: Vec<ScheduleForm<ScrubFields>>,
    replications: Vec<ReplicationView>,
    version: String,
    pid: u32,
    uptime: String,
    memory: String,
    data: String,
}

pub async fn page(visit: &Visit<'_>) -> Answer {
    show(&care_page(visit, Refused::default()).await?)
}

fn kept(schedules: &[SnapshotSchedule], volume: &str) -> KeepFields {
    let found = schedules
        .iter()
        .find(|one| volume.strip_prefix(&one.pool).and_then(|rest| rest.strip_prefix('/')) == Some(&one.volume));
    found.map_or_else(KeepFields::default, |one| KeepFields::of(one.keep))
}

async fn care_page(visit: &Visit<'_>, mut refused: Refused) -> Result<CarePage, Failure> {
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
    let scrubs = visit.ask(GetScrubSchedules).await?;
    let names: Vec<String> = volumes.iter().map(|volume| format!("{}/{}", volume.pool, volume.name)).collect();
    let keep_form = |name: &String| ScheduleForm::of(name.clone(), kept(&schedules, name), &mut refused.keep);
    let keep_forms = names.iter().map(keep_form).collect();
    let scrub_form = |one: &ScrubSchedule| {
        let now = ScrubFields { schedule: one.schedule.clone() };
        ScheduleForm::of(one.pool.clone(), now, &mut refused.scrub)
    };
    Ok(CarePage {
        frame: visit.frame("care", "Care"),
        jobs: jobs(&pools, &volumes, &replications.replications),
        volumes: names,
        keep_forms,
        scrub_forms: scrubs.iter().map(scrub_form).collect(),
        events,
        unread,
        schedules: schedules.iter().map(ScheduleView::of).collect(),
        scrubs,
        replications: replications.replications.iter().map(ReplicationView::of).collect(),
        version: info.version,
        pid: info.pid,
        uptime: duration(info.uptime_secs),
        memory: size(info.memory_bytes),
        data: info.data.display().to_string(),
    })
}

/// A count of snapshots; an empty field is none.
fn count(text: &str) -> Result<u32, Failure> {
    let wrong = |_| Failure::invalid(format!("'{text}' is not a number of snapshots"));
    if text.is_empty() { Ok(0) } else { text.parse().map_err(wrong) }
}

/// All counts 0: none is taken any more.
pub async fn schedule_snapshots(visit: &Visit<'_>) -> Answer {
    let read = async {
        let volume = visit.required("volume", "the volume")?;
        let now = kept(&visit.ask(GetSnapshotSchedules).await?, &volume);
        Ok((Edit::of(&visit.form, KeepFields::typed(&visit.form), now)?, volume))
    };
    let (edit, volume) = match read.await {
        Ok(read) => read,
        Err(failure) => return visit.back(Local::of("/care"), Err(failure)),
    };
    let change = async {
        edit.check(&format!("the schedule of {volume}"))?;
        let keep = Some(edit.merged().counts()?).filter(|keep| *keep != SnapshotCounts::default());
        let done = match keep {
            Some(keep) => format!("Of {volume} are kept: {}.", counts(keep)),
            None => format!("No snapshots of {volume} are taken by themselves any more. Those that are there stay."),
        };
        visit.call(SetSnapshotSchedule, (), &SnapshotScheduleSet { volume: volume.clone(), keep }).await?;
        Ok::<_, Failure>(Note::done(done))
    };
    match change.await {
        Ok(note) => visit.back(Local::of("/care"), Ok(note)),
        Err(failure) => {
            refused(visit, failure, Refused { keep: Some((volume, edit.merged())), ..Refused::default() }).await
        }
    }
}

async fn refused(visit: &Visit<'_>, failure: Failure, entries: Refused) -> Answer {
    let mut page = care_page(visit, entries).await?;
    page.frame.note = Some(Note::from(failure));
    show(&page)
}

pub async fn schedule_scrubs(visit: &Visit<'_>) -> Answer {
    let read = async {
        let pool = visit.required("pool", "the pool")?;
        let typed = ScrubFields { schedule: visit.required("schedule", "the schedule")? };
        let schedules = visit.ask(GetScrubSchedules).await?;
        let now = schedules.into_iter().find(|one| one.pool == pool);
        let now = now.ok_or_else(|| Failure::not_found(format!("there is no pool {pool}")))?;
        Ok((Edit::of(&visit.form, typed, ScrubFields { schedule: now.schedule })?, pool))
    };
    let (edit, pool) = match read.await {
        Ok(read) => read,
        Err(failure) => return visit.back(Local::of("/care"), Err(failure)),
    };
    let change = async {
        edit.check(&format!("the schedule of scrubs of {pool}"))?;
        let schedule = edit.merged().schedule;
        let done = format!("Scrubs of {pool}: {schedule}.");
        visit.call(SetScrubSchedule, (), &ScrubSchedule { pool: pool.clone(), schedule }).await?;
        Ok::<_, Failure>(Note::done(done))
    };
    match change.await {
        Ok(note) => visit.back(Local::of("/care"), Ok(note)),
        Err(failure) => {
            refused(visit, failure, Refused { scrub: Some((pool, edit.merged())), ..Refused::default() }).await
        }
    }
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
