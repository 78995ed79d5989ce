//! `larder replicate`: volumes kept on other pools and machines.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use larder_api::endpoints::{AcceptReplica, ChangeReplications, GetReplications, ReplicateNow};
use larder_api::{
    Accept, Accepted, AsFiles, Client, Encrypt, Failure, Replicate, ReplicationChange, ReplicationStatus, Replications,
    SnapshotCounts, VolumeChange,
};
use larder_base::units::ByteSize;

use super::args::{Disks, Global};
use super::keys;
use super::reach::{self, Backend, closing};
use super::volume_name::split;
use crate::render;
use larder_config::times;
use larder_config::{parse_compression, parse_limit, parse_quota, parse_record_size};
use larder_copies::replication;

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
        /// Copy its files into a volume with settings of its own, in a pool of this machine; without, snapshots are sent as they lie in
        /// the store, which takes less work
        #[arg(long, conflicts_with = "code")]
        as_files: bool,
        #[command(flatten)]
        copy: CopyArgs,
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

/// Settings of a copy as files.
#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// Of the copy: lz4, zstd, none, or zstd:1 to zstd:19, which packs harder and takes longer [default: as the volume's]
    #[arg(long, requires = "as_files", value_parser = parse_compression)]
    compression: Option<String>,
    /// Of the copy: bytes per record, a power of two from 4K to 1M; larger ones pack better [default: as the volume's]
    #[arg(long, requires = "as_files", value_name = "SIZE", value_parser = parse_record_size)]
    record_size: Option<u32>,
    /// Encrypt the copy, with a key of its own: aes-256-gcm, aes-128-gcm or chacha20-poly1305 [default: the safe one that this machine is
    /// quickest at]. Asks for a passphrase unless a key file is named
    #[arg(long, requires = "as_files", value_name = "CIPHER", num_args = 0..=1, require_equals = true)]
    encrypt: Option<Option<String>>,
    /// A file of random bytes that opens the copy, instead of a passphrase
    #[arg(long, value_name = "FILE", requires = "encrypt")]
    key_file: Option<PathBuf>,
    /// Its passphrase is the first line of this file, which only its owner may read
    #[arg(long, value_name = "FILE", requires = "encrypt", conflicts_with = "key_file")]
    passphrase_file: Option<PathBuf>,
    /// Print no recovery key
    #[arg(long, requires = "encrypt")]
    no_recovery_key: bool,
}

impl CopyArgs {
    fn chosen(self, to: &str) -> Result<AsFiles, Failure> {
        let encrypt = match self.encrypt {
            Some(cipher) => Some(Encrypt {
                cipher,
                secret: keys::new_secret(to, self.key_file.as_deref(), self.passphrase_file.as_deref())?,
                recovery: !self.no_recovery_key,
            }),
            None => None,
        };
        let properties =
            VolumeChange { record_bytes: self.record_size, compression: self.compression, ..VolumeChange::default() };
        Ok(AsFiles { properties, encrypt })
    }
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
        Some(ReplicateCommand::Add { volume, to, code, limit, as_files, copy }) => {
            split(&volume)?;
            let limit = limit.map(|limit| limit.0.to_string());
            let as_files = if as_files { Some(Box::new(copy.chosen(&to)?)) } else { None };
            let done = if as_files.is_some() { "copied as files" } else { "replicated" };
            let change = ReplicationChange::Add { volume: volume.clone(), to: to.clone(), limit, code, as_files };
            let all = reach::daemon(global).await?.call(ChangeReplications, (), &change).await?;
            out.answer(&all, |all: &Replications| {
                let recovery = all.recovery_key.as_deref().map(keys::recovery_text);
                format!(
                    "'{volume}' is {done} to {to} after each snapshot; see how far it is: larder replicate status{}",
                    recovery.unwrap_or_default()
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
    let host = larder_config::machine::host_outward(*addr);
    let port = addr.port();
    let at = if port == larder_config::REPLICATION_PORT { host } else { format!("{host}:{port}") };
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
    let snapshot = render::shown(snapshot);
    let silent = one.silent_ms.map(|silence| {
        let silence = render::duration(silence / 1000);
        format!(", and nothing has moved for {silence}: is the other side there?")
    });
    let of = one.total_bytes.map(|total| {
        let total = total.max(one.sent_bytes);
        format!(" of about {} ({} %)", ByteSize(total), one.sent_bytes * 100 / total.max(1))
    });
    let (of, silent) = (of.unwrap_or_default(), silent.unwrap_or_default());
    Some(format!("{snapshot}: {}{of}{silent}", ByteSize(one.sent_bytes)))
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
