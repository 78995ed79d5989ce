//! What is the matter, what the disks say of themselves, and who did what.

use askama::Template;
use larder_api::endpoints::{ChangeAlert, GetAlerts, GetAudit, GetDiskHealth, TestAlerts};
use larder_api::{AlertChange, AlertReceiver, AlertStatus, AuditQuery, AuditRecord, DiskHealth, Failure};

use super::pools::Level;
use crate::note::Note;
use crate::shell_words::on_page;
use crate::text::{Moment, counted, grouped, size};
use crate::visit::{Answer, Frame, Local, Visit, page as show};

/// Alerts on the page that are over.
const PAST_SHOWN_MAX: usize = 20;
/// Records on the page, the last first.
const RECORDS_SHOWN_MAX: usize = 100;
/// As `larder alerts silence` has it when nobody says how long.
const SILENCE_SECONDS: u64 = 8 * 3600;

/// How bad an alert is.
pub fn level(alert: &AlertStatus) -> Level {
    match alert.severity.as_str() {
        "critical" => Level::Bad,
        "warning" => Level::Warn,
        _ => Level::Fine,
    }
}

pub struct AlertView {
    pub id: u64,
    pub level: Level,
    pub event: String,
    pub subject: String,
    pub text: String,
    pub action: String,
    pub since: Moment,
    pub ended: Option<Moment>,
    pub acknowledged: bool,
    pub silent_until: Option<Moment>,
    /// Whether it is about a client that may be vouched for.
    pub may_release: bool,
}

/// The alert about a client that ruins files.
const ABOUT_A_CLIENT: &str = "files-ruined";

impl AlertView {
    fn of(alert: &AlertStatus) -> Self {
        Self {
            id: alert.id,
            level: level(alert),
            event: alert.event.replace('-', " "),
            subject: alert.subject.clone(),
            text: alert.text.clone(),
            action: on_page(&alert.action),
            since: Moment::of_ms_unsigned(alert.since_ms),
            ended: alert.ended_ms.map(Moment::of_ms_unsigned),
            acknowledged: alert.acknowledged,
            silent_until: alert.silent_until_ms.map(Moment::of_ms_unsigned),
            may_release: alert.event == ABOUT_A_CLIENT,
        }
    }
}

pub struct ReceiverView {
    pub name: String,
    pub kind: String,
    pub level: Level,
    pub state: String,
    pub delivered: Option<Moment>,
}

impl ReceiverView {
    fn of(receiver: &AlertReceiver) -> Self {
        let waiting = usize::try_from(receiver.waiting).unwrap_or(usize::MAX);
        let (level, state) = match (&receiver.fault, waiting) {
            (Some(fault), _) => (Level::Warn, fault.clone()),
            (None, 0) => (Level::Fine, "nothing waits".to_owned()),
            (None, count) => (Level::Fine, format!("{} on the way", counted(count, "message", "messages"))),
        };
        let given_up = usize::try_from(receiver.given_up).unwrap_or(usize::MAX);
        let (level, state) = match given_up {
            0 => (level, state),
            count => {
                (Level::Warn, format!("{state}; {} dropped: refused for good", counted(count, "message", "messages")))
            }
        };
        Self {
            name: receiver.name.clone(),
            kind: receiver.kind.clone(),
            level,
            state,
            delivered: receiver.delivered_ms.map(Moment::of_ms_unsigned),
        }
    }
}

pub struct DiskView {
    pub name: String,
    pub model: String,
    pub serial: Option<String>,
    pub size: String,
    pub medium: String,
    pub pool: Option<String>,
    pub level: Level,
    pub verdict: String,
    pub text: String,
    pub figures: String,
    pub asked: Option<Moment>,
    pub is_asleep: bool,
}

impl DiskView {
    fn of(disk: &DiskHealth) -> Self {
        let level = match disk.verdict.as_str() {
            "failing" | "replace" => Level::Bad,
            "watch" => Level::Warn,
            _ => Level::Fine,
        };
        let figures = [
            disk.temperature_c.map(|degrees| format!("{degrees} °C")),
            disk.wear_percent.map(|percent| format!("{percent} % worn")),
            disk.power_on_hours.map(|hours| format!("{} h", grouped(hours))),
        ];
        Self {
            name: disk.name.clone(),
            model: disk.model.clone().unwrap_or_else(|| disk.path.display().to_string()),
            serial: disk.serial.clone(),
            size: size(disk.size_bytes),
            medium: disk.medium.clone(),
            pool: disk.pool.clone(),
            level,
            verdict: disk.verdict.clone(),
            text: disk.text.clone(),
            figures: figures.into_iter().flatten().collect::<Vec<_>>().join(", "),
            asked: disk.asked_ms.map(Moment::of_ms_unsigned),
            is_asleep: disk.asleep,
        }
    }
}

pub struct RecordView {
    pub at: Moment,
    pub kind: String,
    pub who: String,
    pub from: String,
    pub by: String,
    pub what: String,
    pub result: String,
}

impl RecordView {
    fn of(record: &AuditRecord) -> Self {
        let what = [record.what.as_str(), record.target.as_str()];
        Self {
            at: Moment::of_ms_unsigned(record.at_ms),
            kind: record.kind.clone(),
            who: record.who.clone(),
            from: record.from.clone(),
            by: record.by.clone(),
            what: what.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" "),
            result: record.result.clone(),
        }
    }
}

#[derive(Template)]
#[template(path = "alerts.html")]
struct AlertsPage {
    frame: Frame,
    open: Vec<AlertView>,
    past: Vec<AlertView>,
    receivers: Vec<ReceiverView>,
    disks: Vec<DiskView>,
    records: Vec<RecordView>,
}

pub async fn page(visit: &Visit<'_>) -> Answer {
    let alerts = visit.ask(GetAlerts).await?;
    let disks = visit.ask(GetDiskHealth).await?;
    let query = AuditQuery { newest: u32::try_from(RECORDS_SHOWN_MAX).ok(), ..AuditQuery::default() };
    let records = visit.call(GetAudit, (), &query).await?;
    show(&AlertsPage {
        frame: visit.frame("alerts", "Alerts"),
        open: alerts.open.iter().map(AlertView::of).collect(),
        past: alerts.past.iter().take(PAST_SHOWN_MAX).map(AlertView::of).collect(),
        receivers: alerts.receivers.iter().map(ReceiverView::of).collect(),
        disks: disks.iter().map(DiskView::of).collect(),
        records: records.iter().rev().take(RECORDS_SHOWN_MAX).map(RecordView::of).collect(),
    })
}

/// The alert that a form is about.
fn id(visit: &Visit<'_>) -> Result<u64, Failure> {
    visit.required("id", "The alert")?.parse().map_err(|_| Failure::invalid("an alert is named by its number"))
}

pub async fn acknowledge(visit: &Visit<'_>) -> Answer {
    let change = async {
        let alert = visit.call(ChangeAlert, (), &AlertChange::Acknowledge { id: id(visit)? }).await?;
        Ok(Note::done(format!("Nobody is reminded of \u{201c}{}\u{201d}; its end will be told.", alert.text)))
    };
    visit.back(Local::of("/alerts"), change.await)
}

/// The owner's answer to the guard: the client is wanted, and may write again.
pub async fn release(visit: &Visit<'_>) -> Answer {
    let change = async {
        let alert = visit.call(ChangeAlert, (), &AlertChange::Release { id: id(visit)? }).await?;
        Ok(Note::done(format!("{} is vouched for: it may write, and nothing is said of it for a day.", alert.subject)))
    };
    visit.back(Local::of("/alerts"), change.await)
}

pub async fn silence(visit: &Visit<'_>) -> Answer {
    let change = async {
        let silence = AlertChange::Silence { id: id(visit)?, seconds: SILENCE_SECONDS };
        let alert = visit.call(ChangeAlert, (), &silence).await?;
        Ok(Note::done(format!("Nothing is told of \u{201c}{}\u{201d} for 8 hours.", alert.text)))
    };
    visit.back(Local::of("/alerts"), change.await)
}

pub async fn test(visit: &Visit<'_>) -> Answer {
    let change = async {
        let tested = visit.call(TestAlerts, (), &()).await?;
        let line = |one: &larder_api::AlertTested| match &one.fault {
            None => format!("{}: delivered", one.name),
            Some(fault) => format!("{}: not delivered: {fault}", one.name),
        };
        Ok(Note::done("A test message was sent to everybody.".to_owned()).with(tested.iter().map(line).collect()))
    };
    visit.back(Local::of("/alerts"), change.await)
}
