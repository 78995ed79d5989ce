//! The command line of `larder bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use larder_base::units::ByteSize;
use larder_daemon::bench_words::{REPEATS_MAX, SECONDS_MAX, kind, title};
use larder_load::{Kind, PORT};
use larder_measure::bench::{Changes, Preset, samples_port};

/// No bench takes longer, and no clock counts further.
/// What encrypts the files of a pool that is made for a bench.
const ENCRYPTIONS: [&str; 5] = ["none", "aes-128-gcm", "aes-256-gcm", "chacha20-poly1305", "gocryptfs"];

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Disks: each alone, then all at once
    Disk(DiskArgs),
    /// A pool, on the machine itself: one that is mounted, or one made for this on folders of its disks
    Pool(PoolArgs),
    /// The wire to another machine, in both directions
    Net(NetArgs),
    /// Shares of any make: a URL (nfs, smb, sftp, webdav), or a folder where one is mounted
    Share(ShareArgs),
    /// From the bottom to the top: disks, pool, wire, shares, then disks and wire at the same time
    All(AllArgs),
    /// A copy from one place to another, as people copy, flushed at the end
    Copy(CopyArgs),
    /// A scrub of a pool: its rate, and what is left for others while it runs
    Scrub(ScrubArgs),
    /// Results that were kept
    History {
        #[command(flatten)]
        kept: KeptArgs,
    },
    /// One result
    Show {
        /// The beginning of its id, `last`, `last~1`, or the path of a result.json
        #[arg(default_value = "last")]
        id: String,
        /// A page with plots instead, which needs nothing else
        #[arg(long, value_name = "FILE", conflicts_with = "markdown")]
        html: Option<PathBuf>,
        /// One table in Markdown instead, for a forum
        #[arg(long, conflicts_with = "json")]
        markdown: bool,
        /// Also a table of every core, for each run that filled one
        #[arg(long)]
        cores: bool,
        /// Called so here
        #[arg(long, value_name = "TEXT", value_parser = title)]
        title: Option<String>,
        #[command(flatten)]
        kept: KeptArgs,
    },
    /// Two results beside each other: what changed, and whether that means anything
    Compare {
        /// The earlier one, named as for `show`
        a: String,
        /// The later one
        #[arg(default_value = "last")]
        b: String,
        /// A page instead
        #[arg(long, value_name = "FILE", conflicts_with = "markdown")]
        html: Option<PathBuf>,
        /// One table in Markdown instead, for a forum
        #[arg(long, conflicts_with = "json")]
        markdown: bool,
        #[command(flatten)]
        kept: KeptArgs,
    },
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct KeptArgs {
    /// The folder where results are kept [default: bench in the data folder, if one is named;
    /// else $XDG_STATE_HOME/larder/bench]
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

/// How it is measured.
#[derive(Clone, Debug, Args)]
pub(crate) struct How {
    /// quick (two minutes); for each subject: standard (10), thorough (two hours), throughput (10), iops (12), blocksize (7), access (5) or encryption (7)
    #[arg(long, default_value = "quick")]
    pub(crate) preset: Preset,
    /// Data on each subject
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<ByteSize>,
    /// Of each repeat
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
    /// How often each workload is measured
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=REPEATS_MAX))]
    repeats: Option<u32>,
    /// Only these: read, write, random-read, random-write, random-mixed, cat, create-files, read-files, stat-files,
    /// delete-files, copy-tree-in, copy-tree-out, copy, scrub, send, receive, send-receive
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = kind)]
    only: Vec<Kind>,
    /// Block sizes in the place of the preset's
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = block)]
    block: Vec<ByteSize>,
    /// Requests in flight in the place of the preset's
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: Vec<u32>,
    /// Data that can be compressed to half
    #[arg(long)]
    compressible: bool,
    /// Also measure what one core of this machine encrypts, in memory
    #[arg(long = "cipher")]
    pub(crate) ciphers: bool,
    /// Kept with every run, for comparisons, such as encryption=aes-256-gcm [repeat for each]
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Title of the result [default: the subject that is measured]
    #[arg(long, value_name = "TEXT", value_parser = title)]
    pub(crate) title: Option<String>,
    /// The result as one table in Markdown, for a forum
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
    /// Also a table of every core, for each run that filled one
    #[arg(long)]
    pub(crate) cores: bool,
    #[command(flatten)]
    pub(crate) kept: KeptArgs,
}

impl How {
    pub(crate) fn changes(&self) -> Changes {
        Changes {
            size_bytes: self.size.map(|s| s.0),
            seconds: self.seconds,
            repeats: self.repeats,
            kinds: self.only.clone(),
            block_bytes: self.block.iter().map(|b| b.0).collect(),
            depths: self.depth.clone(),
            compressible: self.compressible,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct DiskArgs {
    /// A folder on each disk, or block devices, which are only read
    #[arg(required = true, value_name = "PATH|DEVICE")]
    pub(crate) targets: Vec<PathBuf>,
    /// Also write to the device, which has to be empty. Needs --serial
    #[arg(long)]
    pub(crate) write_device: bool,
    /// The serial number of the device that is written to; its path, if it has none
    #[arg(long, value_name = "SERIAL", requires = "write_device")]
    pub(crate) serial: Option<String>,
    #[command(flatten)]
    pub(crate) how: How,
}

#[derive(Debug, Args)]
pub(crate) struct PoolArgs {
    /// The folder where a pool is mounted, or a folder on each disk for a pool that is made for this
    /// [default: the only pool that is mounted]
    #[arg(value_name = "DIR")]
    pub(crate) folders: Vec<PathBuf>,
    /// Layouts to compare: stripe, mirror, mirror3, raidz1, raidz2, raidz3
    #[arg(long, value_name = "LAYOUT", value_delimiter = ',')]
    pub(crate) layouts: Vec<larder_pool::Layout>,
    /// Kinds of compression to compare: lz4, zstd, none
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = larder_config::parse_compression)]
    pub(crate) compressions: Vec<String>,
    /// Kinds of encryption to compare: none, aes-128-gcm, aes-256-gcm, chacha20-poly1305, gocryptfs
    /// [default: all that are here with the preset encryption]
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = ENCRYPTIONS)]
    pub(crate) encryptions: Vec<String>,
    #[command(flatten)]
    pub(crate) how: How,
}

#[derive(Debug, Args)]
pub(crate) struct NetArgs {
    /// The machine at the other end, where `larder bench net --listen` or `iperf3 -s` runs
    #[arg(required_unless_present = "listen", conflicts_with = "listen")]
    pub(crate) host: Option<String>,
    /// Be the other end, for an hour or --seconds: iperf3's server, and what this machine does meanwhile
    #[arg(long)]
    pub(crate) listen: bool,
    #[arg(long, default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    #[command(flatten)]
    pub(crate) samples: SamplesPort,
    #[command(flatten)]
    pub(crate) how: How,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SamplesPort {
    /// Port at which the other end reports the load of its machine [default: the port after that of iperf3]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    samples_port: Option<u16>,
}

impl SamplesPort {
    pub(crate) fn beside(self, port: u16) -> u16 {
        self.samples_port.unwrap_or_else(|| samples_port(port))
    }
}

/// How to log in.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Login {
    /// User who logs in, if the URL names none
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// The first line is the password, where the URL does not say. For shares with passwords of their own:
    /// smb://USER@HOST/SHARE?password-file=FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// A private key in OpenSSH's format, for SFTP
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Take any certificate and host key
    #[arg(long)]
    pub(crate) any_certificate: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShareArgs {
    /// nfs://HOST/EXPORT, smb://USER@HOST/SHARE, sftp://..., http(s)://..., or a folder
    #[arg(required = true, value_name = "URL|MOUNTPOINT")]
    pub(crate) targets: Vec<String>,
    /// The machine that has them: watched, too, where `larder bench net --listen` runs on it
    #[arg(long)]
    pub(crate) host: Option<String>,
    #[command(flatten)]
    pub(crate) samples: SamplesPort,
    #[command(flatten)]
    pub(crate) login: Login,
    #[command(flatten)]
    pub(crate) how: How,
}

#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// Source, in which the bench makes files: a folder, or a URL as for `bench share`
    #[arg(value_name = "FROM")]
    pub(crate) from: String,
    /// Target of the copy: a folder or a URL
    #[arg(value_name = "TO")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) login: Login,
    #[command(flatten)]
    pub(crate) how: How,
}

#[derive(Debug, Args)]
pub(crate) struct ScrubArgs {
    /// The folder where a pool is mounted, or a folder on each disk for a pool that is made for this
    /// [default: the only pool that is mounted]
    #[arg(value_name = "DIR")]
    pub(crate) folders: Vec<PathBuf>,
    /// The layout of a pool that is made for this
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) layout: Option<larder_pool::Layout>,
    #[command(flatten)]
    pub(crate) how: How,
}

#[derive(Debug, Args)]
pub(crate) struct AllArgs {
    /// A folder on each disk, or block devices, which are only read; none, to measure another machine from here
    #[arg(required_unless_present_any = ["host", "shares"], value_name = "DISK")]
    pub(crate) targets: Vec<PathBuf>,
    /// The machine at the other end of the wire
    #[arg(long)]
    pub(crate) host: Option<String>,
    /// Port of `larder bench net --listen` or iperf3 there
    #[arg(long, default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    #[command(flatten)]
    pub(crate) samples: SamplesPort,
    /// A share, as for `bench share` [repeat for each]
    #[arg(long = "share", value_name = "URL|MOUNTPOINT")]
    pub(crate) shares: Vec<String>,
    /// Do not make a pool on the folders
    #[arg(long, conflicts_with_all = ["layouts", "compressions"])]
    pub(crate) no_pool: bool,
    /// Layouts of the pool to compare: stripe, mirror, mirror3, raidz1, raidz2, raidz3
    #[arg(long, value_name = "LAYOUT", value_delimiter = ',')]
    pub(crate) layouts: Vec<larder_pool::Layout>,
    /// Kinds of compression of the pool to compare: lz4, zstd, none
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = larder_config::parse_compression)]
    pub(crate) compressions: Vec<String>,
    #[command(flatten)]
    pub(crate) login: Login,
    #[command(flatten)]
    pub(crate) how: How,
}

fn seconds(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|s| (1.0..=SECONDS_MAX).contains(s));
    value.ok_or_else(|| format!("'{text}' is not a number of seconds from 1 to {SECONDS_MAX}"))
}

fn size(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|e: larder_base::units::ParseSizeError| e.to_string())?;
    match size.0 >= 1 << 20 {
        true => Ok(size),
        false => Err(format!("{size} of data is too little to measure with: give at least 1 MiB")),
    }
}

fn block(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|e: larder_base::units::ParseSizeError| e.to_string())?;
    match size.0.is_multiple_of(512) && (512..=64 << 20).contains(&size.0) {
        true => Ok(size),
        false => Err(format!("{size} is not a block: give a multiple of 512 bytes up to 64 MiB")),
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty());
    pair.map(|(k, v)| (k.to_owned(), v.to_owned())).ok_or_else(|| format!("'{text}' is not KEY=VALUE"))
}
