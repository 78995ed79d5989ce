//! The commands, each with the arguments that its own file or [`super::args`] defines.

use clap::{Parser, Subcommand};

use super::args::*;

#[derive(Debug, Parser)]
#[command(
    name = "larder",
    version,
    about = "Turns disks into a redundant NAS: NFS, SMB and a local mount from one binary"
)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 4 `check`, `debug` or a scrub found problems, `recover`\n\
    could not bring all back, or `disk check` found a disk that is not fit.\n\
    Most commands talk to the running daemon; without one they work on the disks directly."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a pool from folders or disks on the first run, and serve it
    Up(Box<UpArgs>),
    /// Serve what a configuration file says
    Serve(ServeArgs),
    /// Pools of disks
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Stores of volumes in buckets
    #[command(subcommand)]
    Store(StoreCommand),
    /// Volumes: filesystems on a pool
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Snapshots: a volume as it was at a moment
    #[command(subcommand)]
    Snap(super::snap::SnapCommand),
    /// Copy a folder of this machine into a volume, and again what changed since
    Import(super::import::ImportArgs),
    /// Send a snapshot, whole or what changed since another, to standard output
    Send(super::replica::SendArgs),
    /// Receive a snapshot from standard input into a replica
    Receive(super::replica::ReceiveArgs),
    /// Keep volumes on another pool or machine: now, or after each snapshot
    Replicate(Box<super::replicate::ReplicateArgs>),
    /// Verify every invariant of volumes
    Check(CheckArgs),
    /// Read files back from whatever is left of a pool's disks, which are not changed
    Recover(super::recover::RecoverArgs),
    /// Decode structures on disks; damage is reported with its place
    #[command(subcommand)]
    Debug(super::debug::DebugCommand),
    /// Mount a volume of the running daemon on a folder of this machine
    Mount(MountArgs),
    /// Take a mount away
    #[command(visible_alias = "unmount")]
    Umount(UmountArgs),
    /// People who may log in
    #[command(subcommand)]
    User(UserCommand),
    /// Groups of users, which shares name as @NAME
    #[command(subcommand)]
    Group(super::group::GroupCommand),
    /// App tokens: what a program logs in with in place of its user's password
    #[command(subcommand)]
    Token(super::token::TokenCommand),
    /// Links to files that users made in the browser
    #[command(subcommand)]
    Link(super::link::LinkCommand),
    /// Folders shared over NFS, SMB, SFTP and WebDAV
    #[command(subcommand)]
    Share(ShareCommand),
    /// Disks: what they are, whether they are fit for a pool, making one ready
    #[command(subcommand)]
    Disk(super::disk::DiskCommand),
    /// Measure storage from the disk up: disks, pool, wire, shares
    #[command(subcommand)]
    Bench(Box<super::bench::BenchCommand>),
    /// Power and cost of the box: watts, money, comparisons, and processes that keep it awake
    #[command(subcommand)]
    Power(super::power::PowerCommand),
    /// Find the bottleneck of this machine, a bench of it or a described box, and remedies
    Doctor(super::doctor::DoctorArgs),
    /// Connections of clients, live, and what limits each
    Top(super::top::TopArgs),
    /// Throughput, disks, watts and temperature of an hour, a day, a month or a year
    Charts(super::charts::ChartsArgs),
    /// The newest lines of the daemon's log
    Log(super::log::LogArgs),
    /// Files that clients have open or locked, and closing one
    Opens(super::opens::OpensArgs),
    /// What is the matter with this box, what to do about it, and who is told
    Alerts(super::alerts::AlertsArgs),
    /// Files that lost data, also those that are restored or removed since
    Damage,
    /// The battery behind this machine, and when larder stops on it
    Ups,
    /// What was done, who logged in, and who was refused
    Audit(super::alerts::AuditArgs),
    /// Counters of the running daemon, as Prometheus reads them
    Metrics,
    /// The schema of the daemon's API, in the form of OpenAPI 3.1
    Api,
    /// The configuration file
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Make the running daemon read its configuration again
    Reload,
    /// Print another link of the set-up, while larder has nothing to serve yet
    SetupLink,
    /// Write manual pages and completions, for packages
    #[command(hide = true)]
    Generate {
        /// The folder; man and completions are made in it
        dir: std::path::PathBuf,
    },
}
