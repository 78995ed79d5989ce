//! The command line: one definition per flag, from which help is generated.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use larder_api::UserRole;
use larder_base::units::ByteSize;

use super::share_options::ShareOptions;
use larder_config::{self as config, Squash};

#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// The data folder of the daemon: configuration, sealed passwords, socket [default: ./larder-data, or the
    /// only daemon running; also from LARDER_DATA]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Answer with one line of JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct UpArgs {
    /// One folder per disk, each empty or of an existing pool. Without them the first run is set up in a browser, by a
    /// link that is printed
    #[arg(value_name = "DIR")]
    pub(crate) disks: Vec<PathBuf>,
    /// stripe, mirror, mirror3, raidz1, raidz2 or raidz3; only used when the pool is made [default: raidz1, with
    /// two disks mirror, with one stripe]
    #[arg(long)]
    pub(crate) layout: Option<larder_pool::Layout>,
    /// Be again the box that these disks (or the bucket of --store) hold: its users, shares, keys. Asks once before it begins
    #[arg(long, conflicts_with_all = ["trial", "layout", "name", "user", "setup"])]
    pub(crate) import: bool,
    /// With --import: the recovery key of the box; the password of one of its owners does as well (--password-file)
    #[arg(long, value_name = "FILE", requires = "import", conflicts_with = "password_file")]
    pub(crate) recovery_key_file: Option<PathBuf>,
    /// With --import: do not ask
    #[arg(long, requires = "import")]
    pub(crate) yes: bool,
    /// Make three folders disk1, disk2 and disk3 in the data folder, to try larder out
    #[arg(long, conflicts_with = "disks")]
    pub(crate) trial: bool,
    /// The address of the pages of a first run without folders, ADDR:PORT or :PORT [default: 0.0.0.0:10444]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) setup: Option<String>,
    /// The name of the pool, when it is made
    #[arg(long, default_value = "tank", value_parser = name_parser)]
    pub(crate) name: String,
    /// The address that every server listens on
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<std::net::IpAddr>,
    /// Address for NFS: ADDR:PORT, :PORT (0 takes a free one) or off [default: 0.0.0.0:12049]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) nfs: Option<String>,
    /// Address for SMB, in the same forms [default: 0.0.0.0:14445]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) smb: Option<String>,
    /// Also serve SFTP (for scp, sshfs, rclone) at this address, in the same forms, such as :10022 [default: off]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) sftp: Option<String>,
    /// Also serve WebDAV and pages for browsers over TLS at this address, in the same forms, such as :10443 [default: off]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) webdavs: Option<String>,
    /// The same without TLS, such as 127.0.0.1:10080: passwords are sent in clear [default: off]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) webdav: Option<String>,
    /// Address of the page, over HTTPS, in the same forms, or off [default: 0.0.0.0:10443, or where --webdavs is; off if
    /// that port is in use]. Private networks alone are answered, unless [page] in larder.toml says otherwise
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) page: Option<String>,
    /// Let --webdav answer other machines too
    #[arg(long)]
    pub(crate) insecure_http: bool,
    /// Also take snapshots from other machines that are paired, at this address, such as :12077 [default: off]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) replication: Option<String>,
    /// Also answer the portmapper protocol [default address: 0.0.0.0:111]
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, require_equals = true, default_missing_value = ":111")]
    pub(crate) portmapper: Option<String>,
    /// The user to make on the first run
    #[arg(long, value_name = "NAME", value_parser = user_parser)]
    pub(crate) user: Option<String>,
    /// The user's password; made (mode 0600) with a generated one when it is missing
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// Whom NFS takes its callers for: root = root becomes the share's owner, all = everybody does, none
    #[arg(long, value_parser = squash_parser())]
    pub(crate) squash: Option<Squash>,
    /// A machine or network to export NFS to, beside this machine: ADDRESS, ADDRESS/PREFIX or private; anybody there is
    /// whoever he says [repeat for each; for shares for all users; default: none]
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    pub(crate) nfs_allow: Vec<String>,
    /// Let NFS clients use any port, for libnfs without root and Macs without resvport [default: ports below 1024]
    #[arg(long)]
    pub(crate) nfs_any_port: bool,
    /// Also mount the volume here
    #[arg(long, value_name = "DIR")]
    pub(crate) mount: Option<PathBuf>,
    /// Caches and unwritten data of all volumes together [default: a quarter of RAM]
    #[arg(long, value_name = "SIZE", value_parser = config::parse_memory_here)]
    pub(crate) memory: Option<ByteSize>,
    /// Keep volumes in a bucket, s3://BUCKET/PREFIX: instead of a pool, or beside it when folders are named. Keys come from the
    /// environment, a profile or the machine's role
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<larder_store::BucketUrl>,
    /// The name of the store, when it is first used
    #[arg(long, value_name = "NAME", default_value = "store", value_parser = name_parser)]
    pub(crate) store_name: String,
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// Sit beside other machines at the store, each of which serves volumes of its own: a name for this seat
    #[arg(long, value_name = "NAME", requires = "store", conflicts_with = "read_only")]
    pub(crate) seat: Option<larder_base::Seat>,
    /// Share the store with another machine: wait while that one has it, and take over when it ends or falls silent
    #[arg(long, requires = "store")]
    pub(crate) standby: bool,
    /// Serve what another machine keeps in the store, read-only and some seconds behind. Nothing is written there
    #[arg(long, requires = "store", conflicts_with_all = ["standby", "force"])]
    pub(crate) read_only: bool,
    /// Keep what is read from the store in this folder on a local disk, too
    #[arg(long, value_name = "DIR", requires = "store")]
    pub(crate) cache: Option<PathBuf>,
    /// What the cache may take
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = config::parse_cache_bytes)]
    pub(crate) cache_size: ByteSize,
    /// Import a pool, or take a store, that another machine did not give back; make a pool even where a disk should be mounted
    /// and is not
    #[arg(long)]
    pub(crate) force: bool,
    /// Also without disks that had everything when the pool was last used (see: larder pool import --help)
    #[arg(long)]
    pub(crate) degraded: bool,
}

/// How a bucket is reached.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Reach {
    /// The address of the bucket's server [default: AWS, or what the environment says]
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// The region of the bucket [default: what the environment or the profile says]
    #[arg(long, value_name = "NAME")]
    pub(crate) region: Option<String>,
    /// Let files cross the network in clear: the endpoint may be http:// on another machine
    #[arg(long)]
    pub(crate) allow_http: bool,
    /// Address the bucket as BUCKET.server instead of server/BUCKET
    #[arg(long)]
    pub(crate) virtual_hosted: bool,
}

impl Reach {
    pub(crate) fn settings(&self, url: larder_store::BucketUrl) -> larder_store::BucketSettings {
        larder_store::BucketSettings {
            url,
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            allow_http: self.allow_http,
            virtual_hosted: self.virtual_hosted,
        }
    }
}

/// What is done with stores in buckets.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Try whether a bucket has what larder needs, in a folder of its own that is removed afterwards
    Check {
        /// s3://BUCKET/PREFIX
        #[arg(value_name = "URL")]
        url: larder_store::BucketUrl,
        #[command(flatten)]
        reach: Reach,
    },
    /// Who has a store
    Status {
        /// s3://BUCKET/PREFIX
        #[arg(value_name = "URL")]
        url: larder_store::BucketUrl,
        #[command(flatten)]
        reach: Reach,
    },
    /// Have the machine that has a store give it back in order, so that any other may start or stand in. That machine ends its larder
    Takeover {
        /// s3://BUCKET/PREFIX
        #[arg(value_name = "URL")]
        url: larder_store::BucketUrl,
        #[command(flatten)]
        reach: Reach,
        /// The seat at the store to take [default: the first]
        #[arg(long, value_name = "NAME")]
        seat: Option<larder_base::Seat>,
        /// Take it without asking its owner: changes that only its journal has may be missing then
        #[arg(long)]
        force: bool,
    },
    /// Let go of changes that were acknowledged from a journal here and never reached the store: larder pool status says of which time
    Forget {
        /// The store's name in larder.toml
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The configuration [default: larder.toml in the data folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// As `standby = true` in [[store]]: wait while another machine has the store, and take over when it ends or falls silent
    #[arg(long)]
    pub(crate) standby: bool,
    /// As `read_only = true` in [[store]]: serve what another machine keeps in the store, and write nothing there
    #[arg(long, conflicts_with = "standby")]
    pub(crate) read_only: bool,
    /// Also when the configuration names no pool, no store and no share yet, or none of its pools opens: they come by commands
    #[arg(long)]
    pub(crate) idle: bool,
    /// The address of the pages of a set-up, which --idle offers as long as the configuration names nothing at all, and no user:
    /// ADDR:PORT, :PORT or off [default: 0.0.0.0:10444]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) setup: Option<String>,
}

/// Which disks, when no daemon is asked.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Disks {
    /// Work on the pool of these disks, not on a daemon's [repeat for each disk]
    #[arg(long = "disk", value_name = "DIR")]
    pub(crate) disks: Vec<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Make a pool from empty folders, one per disk
    Create {
        /// NAME DIR...: the pool's name (left out: tank) and its disks
        #[arg(required = true, value_name = "NAME|DIR")]
        words: Vec<String>,
        /// stripe, mirror, mirror3, raidz1, raidz2 or raidz3
        #[arg(long)]
        layout: Option<larder_pool::Layout>,
        /// How many disks one object lies on [default: chosen from the number of disks]
        #[arg(long)]
        width: Option<u8>,
        /// Only say what would be made: capacity and survivable failures
        #[arg(long)]
        dry_run: bool,
        /// Even where a disk should be mounted and is not
        #[arg(long)]
        force: bool,
    },
    /// Health, errors and space of pools, and what to do about them
    Status {
        /// A pool's name, or the folders of its disks
        #[arg(value_name = "POOL|DIR")]
        words: Vec<String>,
        /// One line on pools that are not well; the exit code is 1 if there are any, else 0
        #[arg(short = 'x')]
        unwell: bool,
        /// Name all files that have lost data
        #[arg(short = 'v', long)]
        verbose: bool,
    },
    /// Read and verify everything, and repair what is damaged
    #[command(subcommand)]
    Scrub(ScrubCommand),
    /// Pools of the daemon, or found on folders
    List {
        /// Folders to look at
        #[arg(value_name = "DIR")]
        dirs: Vec<PathBuf>,
    },
    /// Take a pool into the configuration (and the running daemon)
    #[command(override_usage = "larder pool import [OPTIONS] DIR...")]
    Import {
        /// The folders of its disks
        #[arg(required_unless_present = "accept_loss", value_name = "DIR")]
        dirs: Vec<PathBuf>,
        /// Even if another machine did not export it
        #[arg(long)]
        force: bool,
        /// Also without disks that had everything when it was last used: a second history of the pool begins, and one of
        /// the two has to be given up when they are back
        #[arg(long, alias = "yes")]
        degraded: bool,
        /// The pool's name or id, where the folders hold several
        #[arg(long, value_name = "POOL")]
        pool: Option<String>,
        /// Its name from now on, where another pool has its name
        #[arg(long = "as", value_name = "NAME")]
        rename: Option<String>,
        /// Open this pool although acknowledged changes are lost, as the refusal says: gives them up for good
        #[arg(long, value_name = "POOL")]
        accept_loss: Option<String>,
    },
    /// Give a pool another name; volumes, shares, schedules and replications follow
    Rename {
        /// Its name
        #[arg(value_name = "OLD")]
        old: String,
        /// Its name from now on
        #[arg(value_name = "NEW")]
        new: String,
        /// Even if programs use a mount of it: they get errors from then on
        #[arg(long)]
        force: bool,
    },
    /// Stop serving a pool and mark it as ready for another machine
    Export {
        /// A pool's name, or the folders of its disks
        #[arg(required = true, value_name = "POOL|DIR")]
        words: Vec<String>,
        /// Even if programs use a mount of it: they get errors from then on
        #[arg(long)]
        force: bool,
    },
    /// Delete a pool and everything in it
    Destroy {
        /// A pool's name
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        /// Even if programs use a mount of it: they get errors from then on
        #[arg(long)]
        force: bool,
    },
    /// Take new disks in: empty folders, or disks mounted there
    #[command(override_usage = "larder pool add [OPTIONS] [POOL] DISK...")]
    Add {
        /// POOL DISK...: the pool (left out: the only one) and the new disks
        #[arg(required = true, value_name = "POOL|DISK")]
        words: Vec<String>,
        /// They wait until a disk of the pool has been out of use for 5 minutes, and then take its place
        #[arg(long)]
        spare: bool,
        /// Even where a disk should be mounted and is not
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        how: ChangeHow,
    },
    /// Put a new disk in the place of another, which may be gone
    #[command(override_usage = "larder pool replace [OPTIONS] [POOL] OLD [NEW]")]
    Replace {
        /// POOL OLD NEW: the pool (left out: the only one), a disk of it, and an empty folder. With OLD alone: an empty disk is
        /// mounted where the old one was
        #[arg(required = true, value_name = "POOL|OLD|NEW", num_args = 1..=3)]
        words: Vec<String>,
        /// Even where a disk should be mounted and is not
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        how: ChangeHow,
    },
    /// Empty a disk and take it out of the pool
    #[command(override_usage = "larder pool remove [OPTIONS] [POOL] DISK")]
    Remove {
        /// POOL DISK: the pool (left out: the only one) and the disk
        #[arg(required = true, value_name = "POOL|DISK", num_args = 1..=2)]
        words: Vec<String>,
        /// It stays after all
        #[arg(long, conflicts_with_all = ["dry_run", "wait"])]
        stop: bool,
        #[command(flatten)]
        how: ChangeHow,
    },
    /// Do not use a disk until told otherwise; it may be unmounted
    #[command(override_usage = "larder pool offline [OPTIONS] [POOL] DISK")]
    Offline {
        /// The pool (left out: the only one) and one disk of it
        #[arg(required = true, value_name = "POOL|DISK", num_args = 1..=2)]
        words: Vec<String>,
    },
    /// Use a disk again; it is brought up to date
    #[command(override_usage = "larder pool online [OPTIONS] [POOL] DISK")]
    Online {
        /// Give up for good what a disk that has diverged wrote without the pool
        #[arg(long)]
        discard: bool,
        /// The pool (left out: the only one) and one disk of it
        #[arg(required = true, value_name = "POOL|DISK", num_args = 1..=2)]
        words: Vec<String>,
    },
    /// Lay out everything anew: over disks that were added, evenly, or in another layout
    Rebalance {
        /// The pool [default: the only one]
        pool: Option<String>,
        /// Go over to stripe, mirror, mirror3, raidz1, raidz2 or raidz3
        #[arg(long)]
        layout: Option<larder_pool::Layout>,
        /// How many disks one object lies on
        #[arg(long)]
        width: Option<u8>,
        #[command(flatten)]
        how: ChangeHow,
    },
    /// The history of pools: disks that left and came back, first errors, scrubs, changes
    History {
        /// A pool's name, or the folders of its disks [default: all pools]
        #[arg(value_name = "POOL|DIR")]
        words: Vec<String>,
        /// Only the last N events of each pool
        #[arg(short = 'n', value_name = "N")]
        last: Option<usize>,
    },
    /// Set the error counters back to zero
    Clear {
        #[arg(required = true, value_name = "POOL|DIR")]
        words: Vec<String>,
    },
}

/// How a change of disks is made.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct ChangeHow {
    /// Only say what it would do: capacity and survivable failures before and after, bytes to move, time
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Come back when everything is where it should be
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScrubCommand {
    /// Begin a scrub, or go on with one that is paused
    Start {
        /// A pool's name, or the folders of its disks [default: all pools]
        #[arg(value_name = "POOL|DIR")]
        words: Vec<String>,
        /// Show progress and wait for the end; the exit code is 4 if something could not be repaired
        #[arg(long)]
        wait: bool,
    },
    /// Interrupt it; `start` goes on where it was
    Pause {
        #[arg(value_name = "POOL|DIR")]
        words: Vec<String>,
    },
    /// How often pools are scrubbed by themselves, or another schedule for one
    Schedule {
        /// The pool's name [default: all]
        pool: Option<String>,
        /// off, daily, weekly, monthly or quarterly
        #[arg(long, value_name = "WHEN", requires = "pool")]
        every: Option<String>,
    },
    /// Give it up
    Stop {
        #[arg(value_name = "POOL|DIR")]
        words: Vec<String>,
    },
    /// How far it is or what the last one found, and the files that have lost data
    Status {
        #[arg(value_name = "POOL|DIR")]
        words: Vec<String>,
        /// Wait for the end of one that runs
        #[arg(long)]
        wait: bool,
    },
}

/// Properties of a volume.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Properties {
    /// Bytes per record of new data: a power of two from 4K to 1M [default: 128K]
    #[arg(long, value_name = "SIZE", value_parser = config::parse_record_size)]
    pub(crate) record_size: Option<u32>,
    /// lz4, zstd, none, or zstd:1 to zstd:19, which packs harder and takes longer (zstd is zstd:3) [default: lz4]
    #[arg(long, value_parser = config::parse_compression)]
    pub(crate) compression: Option<String>,
    /// The most it may hold; none takes the limit away
    #[arg(long, value_name = "SIZE", value_parser = config::parse_quota_wanted)]
    pub(crate) quota: Option<u64>,
    /// The most that the files of a user may take up, by name or number, as in ann=10GB; none takes the limit away. May be
    /// given again
    #[arg(long, value_name = "USER=SIZE", value_parser = config::parse_owner_quota)]
    pub(crate) user_quota: Vec<(String, u64)>,
    /// The most that the files of a group may take up
    #[arg(long, value_name = "GROUP=SIZE", value_parser = config::parse_owner_quota)]
    pub(crate) group_quota: Vec<(String, u64)>,
    /// standard: changes are durable when answered; relaxed: within 5 s (fsync still waits) [default: standard]
    #[arg(long, value_parser = config::parse_sync)]
    pub(crate) sync: Option<String>,
}

impl Properties {
    pub(crate) fn change(self) -> larder_api::VolumeChange {
        larder_api::VolumeChange {
            record_bytes: self.record_size,
            compression: self.compression,
            quota_bytes: self.quota,
            sync: self.sync,
            user_quotas: self.user_quota.into_iter().collect(),
            group_quotas: self.group_quota.into_iter().collect(),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Make a volume
    Create {
        /// NAME or POOL/NAME
        name: String,
        #[command(flatten)]
        properties: Properties,
        /// Do not share it
        #[arg(long)]
        no_share: bool,
        /// Encrypt everything in it: aes-256-gcm, aes-128-gcm or chacha20-poly1305 [default: the safe one that this
        /// machine is quickest at]. Asks for a passphrase unless a key file is named
        #[arg(long, value_name = "CIPHER", num_args = 0..=1, require_equals = true)]
        encrypt: Option<Option<String>>,
        /// A file of random bytes that opens it, instead of a passphrase
        #[arg(long, value_name = "FILE", requires = "encrypt")]
        key_file: Option<PathBuf>,
        /// Its passphrase is the first line of this file, which only its owner may read
        #[arg(long, value_name = "FILE", requires = "encrypt", conflicts_with = "key_file")]
        passphrase_file: Option<PathBuf>,
        /// Print no recovery key
        #[arg(long, requires = "encrypt")]
        no_recovery_key: bool,
        #[command(flatten)]
        disks: Disks,
    },
    /// Volumes, their room and properties
    List {
        #[command(flatten)]
        disks: Disks,
    },
    /// What the files of each user and group take up, and their quotas
    Quota {
        /// NAME or POOL/NAME
        name: String,
        #[command(flatten)]
        disks: Disks,
    },
    /// Change properties
    Set {
        /// NAME or POOL/NAME
        name: String,
        #[command(flatten)]
        properties: Properties,
        #[command(flatten)]
        disks: Disks,
    },
    /// Open an encrypted volume, and serve its shares
    Unlock {
        /// NAME or POOL/NAME
        name: String,
        #[command(flatten)]
        key: KeyArgs,
    },
    /// Forget the keys of an encrypted volume: its shares and mounts go, its files cannot be read until it is unlocked
    Lock {
        /// NAME or POOL/NAME
        name: String,
        /// Even if programs use a mount of it: they get errors from then on
        #[arg(long)]
        force: bool,
    },
    /// The keys of an encrypted volume
    #[command(subcommand)]
    Key(KeyCommand),
    /// Encrypt a volume that is not, with its snapshots, while it is served; it closes for a moment at the beginning
    Encrypt {
        /// NAME or POOL/NAME
        name: String,
        /// aes-256-gcm, aes-128-gcm or chacha20-poly1305 [default: the safe one that this machine is quickest at]
        #[arg(long, value_name = "CIPHER")]
        cipher: Option<String>,
        /// A file of random bytes that opens it, instead of a passphrase
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
        /// Its passphrase is the first line of this file, which only its owner may read
        #[arg(long, value_name = "FILE", conflicts_with = "key_file")]
        passphrase_file: Option<PathBuf>,
        /// Print no recovery key
        #[arg(long)]
        no_recovery_key: bool,
        #[command(flatten)]
        how: SealingArgs,
    },
    /// Give an encrypted volume a new key, and encrypt all that is stored anew; asks for the secret of each way to open it that stays
    Rekey {
        /// NAME or POOL/NAME
        name: String,
        /// Another cipher [default: the one of before]
        #[arg(long, value_name = "CIPHER")]
        cipher: Option<String>,
        /// A key file that opens it; may be given again
        #[arg(long, value_name = "FILE")]
        key_file: Vec<PathBuf>,
        /// A file with a passphrase that opens it, which only its owner may read; may be given again
        #[arg(long, value_name = "FILE")]
        passphrase_file: Vec<PathBuf>,
        /// Let this way to open it go: its label, its id, or the beginning of its id; may be given again
        #[arg(long, value_name = "SLOT")]
        drop: Vec<String>,
        /// Make another recovery key, which is printed once; name the one of before with --drop
        #[arg(long)]
        new_recovery_key: bool,
        #[command(flatten)]
        how: SealingArgs,
    },
    /// Make a volume of its own of a replica, which then receives no more, or of a clone, which then needs the other volume no more
    Promote {
        /// NAME or POOL/NAME
        name: String,
        #[command(flatten)]
        disks: Disks,
    },
    /// Move a volume with its snapshots to another pool or store of this larder while it is served; it closes for a moment at the end.
    /// Or hand it over to another machine at the same store, without copying
    Move {
        /// NAME or POOL/NAME
        name: String,
        /// POOL/NAME: where it is from then on; or MACHINE, the seat or the host name of another machine at the same store
        #[arg(value_name = "TO")]
        to: String,
        /// Leave the old volume there, unused
        #[arg(long)]
        keep: bool,
        /// Even if clients have files open for writing, or programs use a mount of it
        #[arg(long)]
        force: bool,
        /// Bytes a second at most, such as 10MiB
        #[arg(long, value_name = "RATE", value_parser = larder_config::parse_limit)]
        limit: Option<ByteSize>,
    },
    /// Delete a volume and everything in it
    Destroy {
        /// NAME or POOL/NAME
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        /// Even if programs use a mount of it: they get errors from then on
        #[arg(long)]
        force: bool,
        /// Even if it has snapshots: they are deleted with it
        #[arg(long)]
        with_snapshots: bool,
        #[command(flatten)]
        disks: Disks,
    },
}

/// What happens while a volume is sealed anew.
#[derive(Debug, Args)]
pub(crate) struct SealingArgs {
    /// Even if programs use a mount of it, or write to it: they get errors from then on
    #[arg(long)]
    pub(crate) force: bool,
    /// Wait until all is encrypted
    #[arg(long)]
    pub(crate) wait: bool,
}

/// A secret that opens an encrypted volume; without an option a passphrase, typed or from standard input.
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// Open it with this key file
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Open it with the passphrase in the first line of this file, which only its owner may read; /dev/fd/N is a descriptor
    #[arg(long, value_name = "FILE", conflicts_with = "key_file")]
    pub(crate) passphrase_file: Option<PathBuf>,
    /// Open it with the recovery key, typed or from standard input
    #[arg(long, conflicts_with_all = ["key_file", "passphrase_file"])]
    pub(crate) recovery_key: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// The ways to open it
    List {
        /// NAME or POOL/NAME
        name: String,
        #[command(flatten)]
        disks: Disks,
    },
    /// Another way to open it: a passphrase, a key file or a recovery key
    Add {
        /// NAME or POOL/NAME
        name: String,
        /// A name for it
        #[arg(long, value_name = "LABEL", default_value = "")]
        label: String,
        /// The new way is this key file
        #[arg(long, value_name = "FILE")]
        new_key_file: Option<PathBuf>,
        /// The new way is the passphrase in the first line of this file, which only its owner may read
        #[arg(long, value_name = "FILE", conflicts_with = "new_key_file")]
        new_passphrase_file: Option<PathBuf>,
        /// The new way is a recovery key, which is printed once
        #[arg(long, conflicts_with_all = ["new_key_file", "new_passphrase_file"])]
        new_recovery_key: bool,
        #[command(flatten)]
        key: KeyArgs,
        #[command(flatten)]
        disks: Disks,
    },
    /// Take a way to open it away; the last one stays
    Remove {
        /// NAME or POOL/NAME
        name: String,
        /// Its label, its id, or the beginning of its id
        slot: String,
        #[command(flatten)]
        key: KeyArgs,
        #[command(flatten)]
        disks: Disks,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// POOL, VOLUME or POOL/VOLUME [default: all]; behind --disk also more disks
    #[arg(value_name = "NAME|DIR")]
    pub(crate) words: Vec<String>,
    /// Also read all data and verify its checksums
    #[arg(long, visible_alias = "data-too")]
    pub(crate) read_data: bool,
    #[command(flatten)]
    pub(crate) disks: Disks,
}

#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// An existing folder
    pub(crate) dir: PathBuf,
    /// VOLUME or POOL/VOLUME [default: the only one]
    #[arg(long)]
    pub(crate) volume: Option<String>,
    /// A snapshot of it, read-only
    #[arg(long, value_name = "NAME")]
    pub(crate) snapshot: Option<String>,
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Only the user who runs the daemon may look in
    #[arg(long)]
    pub(crate) private: bool,
    /// As mount(8) has them: ro, noatime, strictatime, nodiratime, nosuid, nodev, noexec, sync, allow_other and their opposites; snapshots lists .snapshots
    #[arg(short = 'o', long, value_name = "OPTION", value_delimiter = ',')]
    pub(crate) options: Vec<String>,
    /// Now and at every start of larder
    #[arg(long)]
    pub(crate) at_start: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UmountArgs {
    /// The folder on which it is mounted
    pub(crate) dir: PathBuf,
    /// Nor mount it at the next start of larder
    #[arg(long)]
    pub(crate) at_start: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Make a user; the password is read from --password-file, from a pipe, or asked for
    Add {
        #[arg(value_parser = user_parser)]
        name: String,
        /// Owner of the files this user makes [default: a number that nobody else has]
        #[arg(long)]
        uid: Option<u32>,
        /// Group of these files [default: the same number]
        #[arg(long)]
        gid: Option<u32>,
        /// Further groups
        #[arg(long = "group", value_name = "GID")]
        groups: Vec<u32>,
        /// On the page: owner (all), looker (sees all) or user (the own files) [default: user]
        #[arg(long)]
        role: Option<UserRole>,
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        /// Even as root (uid or group 0), or with a password that anybody guesses
        #[arg(long)]
        force: bool,
    },
    /// Change what a user is on the page
    Set {
        name: String,
        /// owner sees and changes everything, looker sees it, user has the own files alone
        #[arg(long, required = true)]
        role: Option<UserRole>,
    },
    /// Set a user's password, and end the user's sessions, links, passkeys and codes
    Passwd {
        name: String,
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        /// Even a password that anybody guesses
        #[arg(long)]
        force: bool,
        /// Links that the user made in the browser go on [default: they end, as sessions of browsers do]
        #[arg(long)]
        keep_links: bool,
        /// Passkeys and codes of the user go on [default: they end, as somebody who took the account over may have
        /// added some]. App tokens and SSH keys stay in any case
        #[arg(long)]
        keep_factors: bool,
    },
    /// Users
    List,
    /// Take a user away; files stay
    Remove { name: String },
    /// Public keys that let a user in over SFTP
    #[command(subcommand)]
    Key(super::user_key::UserKeyCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ShareCommand {
    /// Shares, who comes in by which door, and whether they are being served
    List,
    /// Share a volume, a folder of it, or a folder of this machine
    Add {
        #[arg(value_parser = share_parser)]
        name: String,
        /// VOLUME or POOL/VOLUME [default: the only one]
        #[arg(long)]
        volume: Option<String>,
        /// A folder of the volume, such as photos/2024; made when it is missing [default: all of the volume]. Without
        /// --volume, an absolute path is a folder of this machine, which has to be there
        #[arg(long, value_name = "FOLDER")]
        folder: Option<String>,
        #[command(flatten)]
        options: ShareOptions,
    },
    /// Change a share; what is not named stays
    Set {
        name: String,
        /// Add a user, or a group as @NAME, to those who may use it [repeat for each]
        #[arg(long = "add-user", value_name = "NAME", conflicts_with = "users")]
        add_users: Vec<String>,
        /// Take a user off its lists [repeat for each]
        #[arg(long = "remove-user", value_name = "NAME", conflicts_with = "users")]
        remove_users: Vec<String>,
        /// Share another folder of the volume, where / is all of it, or another folder of this machine
        #[arg(long)]
        folder: Option<String>,
        /// Share another volume: POOL/VOLUME
        #[arg(long)]
        volume: Option<String>,
        #[command(flatten)]
        options: ShareOptions,
    },
    /// What a user may do with a file through each door, and why
    Explain {
        user: String,
        /// /SHARE/inside, or POOL/VOLUME/inside
        path: String,
        /// As from this address [default: from one that may come in]
        #[arg(long, value_name = "ADDRESS")]
        from: Option<std::net::IpAddr>,
    },
    /// Stop sharing; files stay
    Remove { name: String },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Is it valid, and does it say what is probably meant? Nothing is changed
    Check {
        /// The file [default: larder.toml in the data folder]
        file: Option<PathBuf>,
    },
    /// The versions of this box that its pools keep: what changed when, and what opens them on another machine
    History,
    /// Make this box what it was in one version: its configuration, people, passwords, tokens and links
    Restore {
        /// The number of a version (larder config history); with --from of one beside the replica, the newest otherwise
        #[arg(required_unless_present = "from")]
        number: Option<u64>,
        /// Become the box that sends into this replica, POOL/NAME, when larder starts again
        #[arg(long, value_name = "REPLICA")]
        from: Option<String>,
        /// With --from: a file with the password of an owner of that box, where an older larder sent the record
        #[arg(long, value_name = "FILE", requires = "from")]
        password_file: Option<PathBuf>,
        /// With --from: a file with the recovery key of that box
        #[arg(long, value_name = "FILE", requires = "from", conflicts_with = "password_file")]
        recovery_key_file: Option<PathBuf>,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        /// Write changes that take effect when larder starts again, too
        #[arg(long)]
        at_next_start: bool,
    },
    /// Make a new recovery key for this box, and show it once. The one before opens nothing any more
    RecoveryKey,
    /// Show the file, or a version of it
    Show {
        /// The file, or the number of a version (larder config history) [default: larder.toml in the data folder]
        file: Option<PathBuf>,
        /// With each key that is not there, and its default
        #[arg(long)]
        defaults: bool,
    },
    /// What a file would change, whom that would interrupt, and what no file changes. Nothing is changed
    Diff {
        /// The file; - reads standard input
        file: PathBuf,
    },
    /// Make a file larder's configuration, as a whole or not at all, without a restart
    Apply {
        /// The file; - reads standard input
        file: PathBuf,
        /// Do not ask before clients are interrupted
        #[arg(long)]
        yes: bool,
        /// Write changes that take effect when larder starts again, too
        #[arg(long)]
        at_next_start: bool,
    },
    /// The JSON schema of larder.toml, for editors
    Schema,
}

fn squash_parser() -> impl TypedValueParser<Value = Squash> {
    let says = |squash| match squash {
        Squash::Root => "Root becomes the anonymous user; everybody else stays who they are",
        Squash::All => "Everybody becomes the anonymous user",
        Squash::None => "Nobody is changed: root of every client in the networks is root here",
    };
    let words = Squash::EACH.map(|squash| PossibleValue::new(squash.word()).help(says(squash)));
    PossibleValuesParser::new(words).try_map(|word| config::parse_squash(&word))
}

fn share_parser(text: &str) -> Result<String, String> {
    config::check_share_name(text).map(|()| text.to_owned())
}

fn name_parser(text: &str) -> Result<String, String> {
    config::check_name(text).map(|()| text.to_owned())
}

fn user_parser(text: &str) -> Result<String, String> {
    config::check_user_name(text).map(|()| text.to_owned())
}
