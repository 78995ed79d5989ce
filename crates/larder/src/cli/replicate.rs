//! `larder replicate`: volumes kept on other pools and machines.

use std::io::IsTerminal;
use std::time::Duration;

use clap::{Args, Subcommand};
use larder_api::endpoints::{AcceptReplica, ChangeReplications, GetReplications, ReplicateNow};
use larder_api::{
    Accept, Accepted, Client, Failure, Replicate, ReplicationChange, ReplicationStatus, Replications, SnapshotCounts,
};
use larder_base::units::ByteSize;

use super::args::{Disks, Global};
use super::reach::{self, Backend, closing};
use super::volume_name::split;
use crate::config::{parse_limit, parse_quota};
use crate::daemon::replication;
use crate::{render, times};

/// How often progress is shown.
const SHOW_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct ReplicateArgs {
    #[command(subcommand)]
    command: Option<ReplicateCommand>,
    #[command(flatten)]
    now: NowArgs,
}

#[derive(Debug, Args)]
struct NowArgs {
    /// NAME or POOL/NAME
    #[arg(required = true)]
    volume: Option<String>,
    /// The replica: POOL/NAME here, ssh://[USER@]HOST[:PORT]/POOL/NAME, or larder://HOST[:PORT]/POOL/NAME [default: all that are
    /// configured]
    #[arg(value_name = "PLACE")]
    to: Option<String>,
    /// Bytes a second at most, such as 10MiB
    #[arg(long, value_name = "RATE", value_parser = parse_limit)]
    limit: Option<ByteSize>,
    /// Only snapshots that there are: take none before
    #[arg(long)]
    no_snapshot: bool,
    #[command(flatten)]
    disks: Disks,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReplicateCommand {
    /// From now on, after each snapshot
    Add {
        /// NAME or POOL/NAME
        volume: String,
        /// The replica: POOL/NAME here, ssh://[USER@]HOST[:PORT]/POOL/NAME, or larder://HOST[:PORT]/POOL/NAME
        #[arg(value_name = "PLACE")]
        to: String,
        /// The code that `larder replicate accept` printed there, for larder://
        #[arg(long)]
        code: Option<String>,
        /// Bytes a second at most, such as 10MiB
        #[arg(long, value_name = "RATE", value_parser = parse_limit)]
        limit: Option<ByteSize>,
    },
    /// No more; the replica stays
    Remove {
        /// NAME or POOL/NAME
        volume: String,
        /// [default: all of them]
        #[arg(value_name = "PLACE")]
        to: Option<String>,
    },
    /// What is replicated, and how far it is
    Status,
    /// Let another machine send into a replica here: prints the code that it is told
    Accept {
        /// POOL/NAME of the replica; the first snapshot makes it
        replica: String,
        /// Automatic snapshots that stay, such as hourly=24,daily=30,weekly=8,monthly=12 [default: all]
        #[arg(long, value_name = "COUNTS", value_parser = parse_counts)]
        keep: Option<SnapshotCounts>,
        /// Bytes that the replica may take up, such as 2TiB, before redundancy; none: as many as there are [default: as before]
        #[arg(long, value_name = "SIZE", value_parser = parse_quota)]
        quota: Option<u64>,
    },
}

fn parse_counts(text: &str) -> Result<SnapshotCounts, String> {
    let wrong = || format!("'{text}' is not like hourly=24,daily=30,weekly=8,monthly=12");
    let mut counts = SnapshotCounts::default();
    for part in text.split(',') {
        let (kind, count) = part.split_once('=').ok_or_else(wrong)?;
        let count = count.parse().map_err(|_| wrong())?;
        match kind {
            "hourly" => counts.hourly = count,
            "daily" => counts.daily = count,
            "weekly" => counts.weekly = count,
            "monthly" => counts.monthly = count,
            _ => return Err(wrong()),
        }
    }
    Ok(counts)
}

pub(super) async fn run(global: &Global, args: ReplicateArgs) -> Result<(), Failure> {
    let out = global.out();
    match args.command {
        None => now(global, args.now).await,
        Some(ReplicateCommand::Add { volume, to, code, limit }) => {
            split(&volume)?;
            let limit = limit.map(|limit| limit.0.to_string());
            let change = ReplicationChange::Add { volume: volume.clone(), to: to.clone(), limit, code };
            let all = reach::daemon(global).await?.call(ChangeReplications, (), &change).await?;
            out.answer(&all, |_| {
                format!(
                    "'{volume}' is replicated to {to} after each snapshot; see how far it is: larder replicate status"
                )
            })
        }
        Some(ReplicateCommand::Remove { volume, to }) => {
            split(&volume)?;
            let change = ReplicationChange::Remove { volume: volume.clone(), to };
            let all = reach::daemon(global).await?.call(ChangeReplications, (), &change).await?;
            out.answer(&all, |_| format!("'{volume}' is replicated there no more; the replica stays"))
        }
        Some(ReplicateCommand::Status) => {
            let all = reach::daemon(global).await?.ask(GetReplications).await?;
            out.answer(&all, |all| shown(&all.replications))
        }
        Some(ReplicateCommand::Accept { replica, keep, quota }) => {
            split(&replica)?;
            let request = Accept { replica, keep, quota_bytes: quota };
            let accepted = reach::daemon(global).await?.call(AcceptReplica, (), &request).await?;
            out.answer(&accepted, welcome)
        }
    }
}

fn welcome(accepted: &Accepted) -> String {
    let Accepted { code, addr, replica } = accepted;
    let host = crate::machine::host_outward(*addr);
    let port = addr.port();
    let at = if port == crate::config::REPLICATION_PORT { host } else { format!("{host}:{port}") };
    format!(
        "on the other machine, within an hour:\n\n  larder replicate add VOLUME larder://{at}/{replica} --code {code}\n\n\
         the code is good once; afterwards that machine may send into '{replica}', and do nothing else here"
    )
}

async fn now(global: &Global, args: NowArgs) -> Result<(), Failure> {
    let volume = args.volume.unwrap_or_default();
    split(&volume)?;
    let limit_bytes = args.limit.map(|limit| limit.0);
    let request = Replicate { volume, to: args.to, limit_bytes, take: !args.no_snapshot };
    let out = global.out();
    match Backend::of(global, &args.disks).await? {
        Backend::Daemon(client) => {
            let asked = client.call(ReplicateNow, (), &request);
            let done = watched(&client, asked).await?;
            out.answer(&done, |done| shown(&done.replications))
        }
        Backend::Direct(storage) => {
            let sent = closing(storage, async |storage| replication::once(storage, &request).await).await?;
            out.answer(&Replications::default(), |_| format!("sent {sent} snapshot(s)"))
        }
    }
}

/// Shows on a terminal how far it is until it is done.
pub(super) async fn watched<T>(client: &Client, asked: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    if !std::io::stderr().is_terminal() {
        return asked.await;
    }
    let mut asked = std::pin::pin!(asked);
    loop {
        match tokio::time::timeout(SHOW_EVERY, &mut asked).await {
            Ok(done) => {
                eprint!("\r\x1b[K");
                return done;
            }
            Err(_) => {
                let all = client.ask(GetReplications).await?;
                let lines = all.replications.iter().filter_map(sending);
                eprint!("\r{}\x1b[K", crate::render::shown(&lines.collect::<Vec<_>>().join("; ")));
            }
        }
    }
}

fn sending(one: &ReplicationStatus) -> Option<String> {
    let snapshot = one.sending.as_ref()?;
    let total = one.total_bytes.unwrap_or(0).max(one.sent_bytes);
    let percent = one.sent_bytes * 100 / total.max(1);
    let snapshot = render::shown(snapshot);
    let silent = one.silent_ms.map(|silence| {
        let silence = render::duration(silence / 1000);
        format!(", and nothing has moved for {silence}: is the other side there?")
    });
    let (sent, total) = (ByteSize(one.sent_bytes), ByteSize(total));
    Some(format!("{snapshot}: {sent} of about {total} ({percent} %){}", silent.unwrap_or_default()))
}

fn shown(all: &[ReplicationStatus]) -> String {
    if all.is_empty() {
        return "nothing is replicated; begin with: larder replicate add VOLUME PLACE".to_owned();
    }
    let mut rows = vec![["VOLUME", "TO", "NEWEST THERE", "OF", "STATE"].map(str::to_owned).to_vec()];
    for one in all {
        rows.push(vec![
            one.volume.clone(),
            one.to.clone(),
            one.newest.clone().unwrap_or_else(|| "-".to_owned()),
            one.newest_ms.map_or_else(|| "-".to_owned(), times::local),
            state(one),
        ]);
    }
    let faults = all.iter().filter_map(|one| {
        let again = one.again_ms.map(|at| format!("; tried again at {}", times::local(at))).unwrap_or_default();
        let fault = one.fault.as_ref()?;
        // Another machine may have said it.
        Some(format!("{} to {}: {}{again}\n", one.volume, one.to, render::shown(fault)))
    });
    format!("{}{}", render::table(&rows, &[]), faults.collect::<String>())
}

fn state(one: &ReplicationStatus) -> String {
    let late = if one.late { "LATE, " } else { "" };
    match (sending(one), &one.fault, one.behind) {
        (Some(sending), _, _) => format!("{late}sending {sending}"),
        (None, Some(_), _) => format!("{late}failed"),
        (None, None, None) => "waiting".to_owned(),
        (None, None, Some(0)) => "up to date".to_owned(),
        (None, None, Some(behind)) => format!("{late}{behind} to send"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_retention() {
        let counts = SnapshotCounts { hourly: 24, daily: 30, ..SnapshotCounts::default() };
        assert_eq!(parse_counts("hourly=24,daily=30"), Ok(counts));
        assert!(parse_counts("24").is_err() && parse_counts("yearly=1").is_err() && parse_counts("daily=x").is_err());
    }

    #[test]
    fn states_are_told() {
        let one = |behind, fault: Option<&str>| ReplicationStatus {
            volume: "tank/files".into(),
            to: "cold/files".into(),
            behind,
            fault: fault.map(str::to_owned),
            ..ReplicationStatus::default()
        };
        let text = shown(&[one(Some(0), None), one(Some(3), None), one(None, Some("the host is gone"))]);
        let want = "VOLUME      TO          NEWEST THERE  OF  STATE
tank/files  cold/files  -             -   up to date
tank/files  cold/files  -             -   3 to send
tank/files  cold/files  -             -   failed
tank/files to cold/files: the host is gone
";
        assert_eq!(text, want);
        let sends = ReplicationStatus {
            sending: Some("a".into()),
            sent_bytes: 1 << 20,
            total_bytes: Some(4 << 20),
            late: true,
            ..one(Some(1), None)
        };
        assert_eq!(state(&sends), "LATE, sending a: 1.00 MiB of about 4.00 MiB (25 %)");
        let text = state(&ReplicationStatus { silent_ms: Some(35_900), ..sends });
        assert!(text.ends_with("(25 %), and nothing has moved for 35 s: is the other side there?"), "{text}");
    }
}
