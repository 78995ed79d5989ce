//! `larder send`, `larder receive`, and promotion of what was received.

use std::io::{IsTerminal, Read, Write};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use futures::StreamExt;
use larder_api::endpoints::{ExportSnapshot, GetReplica, PromoteReplica, ReceiveSnapshot, SendSnapshot};
use larder_api::{ExportRequest, Failure, ReceiveQuery, Received, SendRequest};
use larder_base::units::ByteSize;
use larder_volume::replica::ReceiveLimits;
use tokio::sync::mpsc;

use super::args::{Disks, Global};
use super::reach::{self, Backend, closing};
use super::volume_name::split;
use crate::render;
use larder_config::{VolumeName, parse_quota_wanted};
use larder_copies::replication::{Receiver, door};
use larder_daemon::direct::Outgoing;

/// Pieces that wait for a slow side.
const PIECES_MAX: usize = 16;
/// As much as a pipe holds.
const PIECE_BYTES: usize = 64 << 10;
/// How often progress is shown.
const SHOW_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// VOLUME@NAME
    snapshot: String,
    /// The name of a snapshot that the receiver has: only what changed since is sent
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
    /// Leave out what came before the receiver was cut off: the answer of `larder receive ... --token`
    #[arg(long, value_name = "TOKEN")]
    resume: Option<String>,
    /// Only what opens the volume, into a replica that has the snapshot: passphrases and keys have changed
    #[arg(long, conflicts_with_all = ["from", "resume"])]
    keys_only: bool,
    /// Bytes a second at most, such as 10M
    #[arg(long, value_name = "RATE")]
    limit: Option<ByteSize>,
    #[command(flatten)]
    disks: Disks,
}

#[derive(Debug, Args)]
pub(crate) struct ReceiveArgs {
    /// POOL/NAME of the replica; the first snapshot makes it
    name: String,
    /// Receive nothing: print what a sender needs to go on where it was cut off
    #[arg(long)]
    token: bool,
    /// Answer the requests of another larder about this replica, on standard input and output: `replicate` to ssh:// starts it
    #[arg(long, conflicts_with = "token")]
    serve: bool,
    /// Bytes that the replica may take up, such as 2TiB, before redundancy; a smaller quota in its configuration counts as well
    #[arg(long, value_name = "SIZE", conflicts_with = "token", value_parser = parse_quota_wanted)]
    quota: Option<u64>,
    #[command(flatten)]
    disks: Disks,
}

/// How far a stream has come, on a terminal.
struct Progress {
    began: Instant,
    shown: Instant,
    done: u64,
    total: Option<u64>,
    is_shown: bool,
}

impl Progress {
    fn of(total: Option<u64>) -> Self {
        let now = Instant::now();
        Self { began: now, shown: now, done: 0, total, is_shown: std::io::stderr().is_terminal() }
    }

    fn add(&mut self, bytes: usize) {
        self.done += bytes as u64;
        if self.is_shown && self.shown.elapsed() >= SHOW_EVERY {
            self.shown = Instant::now();
            eprint!("\r{}\x1b[K", self.text());
        }
    }

    fn text(&self) -> String {
        let seconds = self.began.elapsed().as_secs_f64().max(0.001);
        let rate = self.done as f64 / seconds;
        let done = ByteSize(self.done);
        match self.total.filter(|total| *total > 0) {
            Some(total) => {
                let left = Duration::from_secs((total.saturating_sub(self.done) as f64 / rate.max(1.0)) as u64);
                let percent = (self.done as f64 / total as f64 * 100.0).min(100.0);
                format!(
                    "{done} of about {} ({percent:.0} %), {}/s, {} left",
                    ByteSize(total),
                    ByteSize(rate as u64),
                    render::duration(left.as_secs())
                )
            }
            None => format!("{done}, {}/s", ByteSize(rate as u64)),
        }
    }

    fn end(&self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }
}

/// Writes to standard output, no faster than `limit` bytes a second.
struct Output {
    limit: Option<ByteSize>,
    began: Instant,
    written: u64,
}

impl Output {
    async fn write(&mut self, piece: &[u8]) -> Result<(), Failure> {
        let failed = |error: &std::io::Error| Failure::io("cannot write the stream", error);
        std::io::stdout().write_all(piece).map_err(|error| failed(&error))?;
        self.written += piece.len() as u64;
        if let Some(limit) = self.limit {
            let due = Duration::from_secs_f64(self.written as f64 / limit.0.max(1) as f64);
            tokio::time::sleep(due.saturating_sub(self.began.elapsed())).await;
        }
        Ok(())
    }
}

impl Output {
    /// Writes a stream to its end.
    async fn pour(&mut self, Outgoing { bytes, mut pieces }: Outgoing) -> Result<(), Failure> {
        let mut progress = Progress::of(bytes);
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            self.write(&piece).await?;
            progress.add(piece.len());
        }
        progress.end();
        std::io::stdout().flush().map_err(|error| Failure::io("cannot write the stream", &error))
    }
}

pub(super) async fn send(global: &Global, args: SendArgs) -> Result<(), Failure> {
    if std::io::stdout().is_terminal() {
        return Err(Failure::invalid("a snapshot is sent to standard output, which is a terminal").action(
            "larder send VOLUME@NAME | ssh HOST larder receive POOL/NAME; or: larder send VOLUME@NAME > FILE",
        ));
    }
    let Some((volume, snapshot)) = args.snapshot.split_once('@').filter(|(_, name)| !name.is_empty()) else {
        return Err(Failure::invalid(format!("'{}' names no snapshot", args.snapshot)).action("write VOLUME@NAME"));
    };
    split(volume)?;
    let from = args.from.map(|name| name.rsplit('@').next().unwrap_or_default().to_owned());
    let request = SendRequest { snapshot: snapshot.to_owned(), from, resume: args.resume, keys_only: args.keys_only };
    let mut output = Output { limit: args.limit, began: Instant::now(), written: 0 };
    let sending = async |backend: &Backend| output.pour(backend.download(SendSnapshot, volume, request).await?).await;
    Backend::of(global, &args.disks).await?.closing(sending).await
}

/// `larder snap export`: a snapshot as a tar stream.
pub(super) async fn export(global: &Global, volume: &str, snapshot: String, disks: &Disks) -> Result<(), Failure> {
    if std::io::stdout().is_terminal() {
        return Err(Failure::invalid("the tar goes to standard output, which is a terminal").action(
            "larder snap export VOLUME@NAME --tar > FILE; or: ... | tar -x --xattrs --xattrs-include='*' -C DIR",
        ));
    }
    let request = ExportRequest { snapshot };
    let mut output = Output { limit: None, began: Instant::now(), written: 0 };
    let sending = async |backend: &Backend| output.pour(backend.download(ExportSnapshot, volume, request).await?).await;
    Backend::of(global, disks).await?.closing(sending).await
}

/// Standard input in pieces, read on a thread of its own: it may block for hours.
fn input() -> mpsc::Receiver<Bytes> {
    let (out, pieces) = mpsc::channel(PIECES_MAX);
    std::thread::spawn(move || {
        let mut progress = Progress::of(None);
        let mut stdin = std::io::stdin().lock();
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            // An error ends the stream in the middle, and the receiver says so.
            let Ok(read) = stdin.read(&mut piece) else { break };
            piece.truncate(read);
            if read == 0 || out.blocking_send(piece.into()).is_err() {
                break;
            }
            progress.add(read);
        }
        progress.end();
    });
    pieces
}

pub(super) async fn receive(global: &Global, args: ReceiveArgs) -> Result<(), Failure> {
    split(&args.name)?;
    if args.token {
        return token(global, &args).await;
    }
    if args.serve {
        return serve(global, &args).await;
    }
    if std::io::stdin().is_terminal() {
        return Err(Failure::invalid("a snapshot is received from standard input, which is a terminal")
            .action("larder send VOLUME@NAME | larder receive POOL/NAME"));
    }
    let pieces = input();
    let received: Received = match Backend::of(global, &args.disks).await? {
        Backend::Daemon(client) => {
            let query = ReceiveQuery { quota_bytes: args.quota };
            client.upload(ReceiveSnapshot, &args.name, &query, pieces).await?
        }
        Backend::Direct(storage) => {
            closing(storage, async |storage| {
                let (pool, volume) = storage.named(&args.name)?;
                let input = futures::stream::unfold(pieces, |mut pieces| async move {
                    pieces.recv().await.map(|piece| (Ok(piece), pieces))
                });
                let limits = ReceiveLimits { quota_bytes: args.quota.filter(|bytes| *bytes > 0) };
                pool.receive(&volume, limits, input.boxed()).await
            })
            .await?
        }
    };
    let Received { pool, volume, snapshot } = &received;
    // The sender has chosen the name.
    let snapshot = render::shown(snapshot);
    global.out().answer(&received, |_| format!("received the snapshot {pool}/{volume}@{snapshot}"))
}

async fn serve(global: &Global, args: &ReceiveArgs) -> Result<(), Failure> {
    let replica = VolumeName::parse(&args.name).map_err(Failure::invalid)?;
    let receiver = Receiver::Daemon(reach::daemon(global).await?, replica.clone(), args.quota);
    let streams = tokio::io::join(tokio::io::stdin(), tokio::io::stdout());
    let served = door::serve(streams, &replica.to_string(), receiver).await;
    served.map_err(|why| Failure::unavailable(format!("the other side has gone away: {why}")))
}

async fn token(global: &Global, args: &ReceiveArgs) -> Result<(), Failure> {
    let state = reach::call(global, &args.disks, GetReplica, &args.name, ()).await?;
    let Some(token) = state.token.clone() else {
        return Err(Failure::not_found(format!("'{}' waits for the rest of no snapshot", args.name)));
    };
    global.out().answer(&state, |_| token.clone())
}

pub(super) async fn promote(global: &Global, name: &str, disks: &Disks) -> Result<(), Failure> {
    split(name)?;
    let done = reach::call(global, disks, PromoteReplica, name, ()).await?;
    let share = format!("share it with: larder share add NAME --volume {name}");
    global.out().answer(&done, |_| format!("'{name}' is a volume of its own now; {share}"))
}
