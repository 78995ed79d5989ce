//! `larder alerts ...` and `larder audit`.

use clap::{Args, Subcommand};
use larder_api::endpoints::{ChangeAlert, GetAlerts, GetAudit, GetDamage, GetUps, TestAlerts};
use larder_api::{AlertChange, AuditQuery, AuditRecord, Client, Failure};

use super::args::Global;
use super::reach::{Outcome, Target, daemon, target};
use crate::out;
use crate::render::watch as render;
use larder_config::machine;
use larder_config::times;
use larder_watch::audit_of;

#[derive(Debug, Args)]
pub(crate) struct AlertsArgs {
    #[command(subcommand)]
    command: Option<AlertsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AlertsCommand {
    /// What is the matter now, what to do, and who is told [the same as without a word]
    List {
        /// Also those that are over
        #[arg(long)]
        all: bool,
    },
    /// Send no more reminders of an alert; its end is told
    Ack {
        /// As `larder alerts` shows it
        id: u64,
    },
    /// Tell nothing of an alert for a time
    Silence {
        /// As `larder alerts` shows it
        id: u64,
        /// Such as 8h, 2d, or a day: 2027-01-31
        #[arg(long = "for", value_name = "TIME", default_value = "8h", value_parser = times::until)]
        until: i64,
    },
    /// Answer an alert about a client that ruins files: it is wanted, and the client may write again
    Release {
        /// As `larder alerts` shows it
        id: u64,
    },
    /// Send a test message to everybody, and say who got it
    Test,
}

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    /// Records since then: 2d, 8h, or a day such as 2026-11-22 [default: of the last week]
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = times::ago)]
    since: u64,
    /// A line of syslog for each record (RFC 5424), to be sent on
    #[arg(long)]
    syslog: bool,
}

pub(super) async fn run(global: &Global, args: AlertsArgs) -> Result<Outcome, Failure> {
    let (client, out) = (daemon(global).await?, global.out());
    let (now_ms, width) = (u64::try_from(chrono::Utc::now().timestamp_millis()).unwrap_or(0), out::style().width);
    let change = match args.command.unwrap_or(AlertsCommand::List { all: false }) {
        AlertsCommand::List { all } => {
            let status = client.ask(GetAlerts).await?;
            out.answer(&status, |status| render::alerts(status, all, now_ms, width))?;
            return Ok(Outcome::Done);
        }
        AlertsCommand::Test => {
            let tested = client.ask(TestAlerts).await?;
            out.answer(&tested, |tested| render::tested(tested))?;
            let is_well = tested.iter().all(|one| one.fault.is_none());
            return Ok(if is_well { Outcome::Done } else { Outcome::Unwell });
        }
        AlertsCommand::Release { id } => AlertChange::Release { id },
        AlertsCommand::Ack { id } => AlertChange::Acknowledge { id },
        AlertsCommand::Silence { id, until } => {
            let seconds = u64::try_from(until - chrono::Utc::now().timestamp()).unwrap_or(0);
            AlertChange::Silence { id, seconds }
        }
    };
    let alert = client.call(ChangeAlert, (), &change).await?;
    out.answer(&alert, |alert| render::one_alert(alert, now_ms, width))?;
    Ok(Outcome::Done)
}

/// What lost data.
pub(super) async fn damage(global: &Global) -> Result<(), Failure> {
    let kept = daemon(global).await?.ask(GetDamage).await?;
    global.out().answer(&kept, render::damage)
}

/// How the UPS is.
pub(super) async fn ups(global: &Global) -> Result<(), Failure> {
    let status = daemon(global).await?.ask(GetUps).await?;
    global.out().answer(&status, render::ups)
}

/// The log of a daemon, or of a data folder whose daemon does not run. As JSON a line for each record.
pub(super) async fn audit(global: &Global, args: AuditArgs) -> Result<(), Failure> {
    let target = target(global).await?;
    let (mut all, mut query) = (Vec::new(), AuditQuery { since_ms: args.since, ..AuditQuery::default() });
    loop {
        let records = match &target {
            Target::Daemon(client) => ask(client, &query).await?,
            Target::Config(config) => audit_of(&config.data, &query)?,
        };
        let Some(last) = records.last() else { break };
        query.after_number = last.number;
        if args.syslog {
            let host = machine::host_name();
            records.iter().for_each(|record| out::say(&render::syslog(record, &host)));
            continue;
        }
        match global.json {
            true => records.iter().try_for_each(out::say_json)?,
            false => all.extend(records),
        }
    }
    if !global.json && !args.syslog {
        global.out().answer(&all, |all| render::audit(all))?;
    }
    Ok(())
}

async fn ask(client: &Client, query: &AuditQuery) -> Result<Vec<AuditRecord>, Failure> {
    client.call(GetAudit, (), query).await
}
