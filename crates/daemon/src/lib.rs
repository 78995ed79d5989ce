//! The daemon: pools open, shares served, the API answered, until a signal says stop.
//!
//! - `daemon.faults_are_named`: a pool, volume or share that cannot be served is a fault with a
//!   name; the others are served.
//! - `daemon.stop_in_order`: the daemon stops announcements, servers, mounts, volumes and pools in this order.
//!   Nothing is closed while it is in use.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use larder_api::{DaemonInfo, Failure};
use larder_base::units::ByteSize;
use larder_keep::{Storage, Store};
use tokio::sync::Mutex;

#[cfg(test)]
use larder_facts::Machine;

use applying::Applying;
use benches::Benches;
use care::Care;
use charts::ChartState;
use explain::Explaining;
use mounting::Mounting;
use open_files::OpenList;
use parts::{Given, Reconciler};
use people::UserAdmin;
use pools::Pools;
use restoring::Restoring;
use schedule::Scrubs;
use sharing::Sharing;
use snapshot_schedule::Snapshots;
use time_machine::Backups;
use top::TopState;
use volumes::Volumes;

use larder_config::Config;
use larder_config::machine;
use larder_copies::replication::invitations::Invitations;
use larder_copies::replication::moving::Moves;
use larder_copies::{BoxRecord, Replication, Seats};
use larder_document::{DataFolder, Document, Look, Overrides, Standings};
use larder_servers::links::HeldLinks;
use larder_servers::{Servers, Serving, VolumeDoors};
use larder_watch::{Watch, Watcher};

mod acts;
pub mod api;
mod applying;
mod ask;
pub mod bench_progress;
mod bench_runs;
pub mod bench_words;
mod benches;
pub mod care;
mod chart_samples;
pub mod charts;
pub mod direct;
mod discovery;
pub mod disks;
pub mod erase;
mod explain;
mod explain_words;
pub mod factors;
#[cfg(test)]
#[path = "../../facts/src/machine/fixture.rs"]
mod fixture;
pub mod groups;
pub mod imports;
pub mod keys;
pub mod log;
mod memory;
mod metrics;
mod mounting;
pub mod notify;
mod open_files;
mod owner_quotas;
mod owners;
mod parts;
pub mod people;
mod pools;
pub mod power_text;
pub mod power_words;
mod recycle;
mod reopening;
mod restoring;
mod rollback;
mod running;
mod schedule;
mod sealing;
mod setting_up;
mod setup_offer;
mod shares;
pub mod sharing;
mod snapshot_schedule;
mod time_machine;
mod told;
mod top;
pub mod translate;
pub mod user_keys;
mod volumes;

pub use parts::volumes::create_volume;
pub use pools::{check_free, check_names, import_options, open_configured, open_pool};
pub use running::{End, Running};
pub use shares::{default_share, take_in};

/// The parts of a running larder. Each sees what it was given here, and nothing else.
pub struct Daemon {
    folder: Arc<DataFolder>,
    started: Instant,
    document: Arc<Document>,
    pub storage: Arc<Storage>,
    pub servers: Arc<Servers>,
    pub watch: Arc<Watch>,
    charts: Arc<ChartState>,
    pub pools: Arc<Pools>,
    pub sharing: Sharing,
    pub people: UserAdmin,
    pub record: Arc<BoxRecord>,
    pub mounting: Mounting,
    /// While there is nothing to serve.
    pub setup_offer: Arc<setup_offer::SetupOffer>,
    standings: Standings,
    announcer: Arc<discovery::Announcer>,
    links: Arc<HeldLinks>,
    volumes: Arc<Volumes>,
    moves: Arc<Moves>,
    seats: Arc<Seats>,
    snapshots: Arc<Snapshots>,
    scrubs: Arc<Scrubs>,
    backups: Arc<Backups>,
    replication: Arc<Replication>,
    pub applying: Arc<Applying>,
    restoring: Restoring,
    pub watcher: Arc<Watcher>,
    top: Arc<TopState>,
    care: Care,
    opens: OpenList,
    explaining: Explaining,
}

/// Gives a part clones of what it names; what is behind the semicolon becomes its own.
macro_rules! given {
    ($part:ident { $($field:ident),* $(; $($own:ident),+)? }) => {
        $part { $($field: $field.clone(),)* $($($own),+)? }
    };
}

/// The parts that open, close and watch what is stored.
struct OnStorage {
    pools: Arc<Pools>,
    volumes: Arc<Volumes>,
    snapshots: Arc<Snapshots>,
    backups: Arc<Backups>,
    seats: Arc<Seats>,
    moves: Arc<Moves>,
}

impl OnStorage {
    fn new(given: Given, document: &Arc<Document>, memory: ByteSize) -> Self {
        let Given { folder, storage, servers, standings, mounts, schedules, runs, wake_backups, .. } = given;
        let doors = Arc::new(given!(VolumeDoors { servers, mounts, schedules }));
        let pools = given!(Pools { document, storage, mounts, doors, schedules, standings, folder; memory });
        let replication = runs.clone();
        let volumes = given!(Volumes { document, storage, mounts, doors, schedules, replication, standings });
        let (pools, volumes) = (Arc::new(pools), Arc::new(volumes));
        let snapshots = given!(Snapshots { document, storage, mounts, volumes, replication, schedules, standings });
        let snapshots = Arc::new(snapshots);
        let backups = Arc::new(given!(Backups { document, storage, snapshots; wake_backups }));
        let moving = Arc::<Mutex<()>>::default();
        let seats = Arc::new(given!(Seats { document, storage, servers, mounts, doors, standings; moving }));
        let moves = Arc::new(given!(Moves { document, storage, folder, doors, runs, seats }));
        Self { pools, volumes, snapshots, backups, seats, moves }
    }
}

/// The document, whose changes the parts follow.
fn document(given: Given, file: (PathBuf, Overrides), config: Config) -> Result<Document, Failure> {
    let folder = Arc::clone(&given.folder);
    Document::open(file, config, folder.path(), Box::new(Reconciler::new(given)))
}

impl Daemon {
    /// A daemon that has its folder and ports, and nothing open yet.
    pub async fn new(
        folder: DataFolder,
        file: PathBuf,
        config: Config,
        overrides: Overrides,
    ) -> Result<Daemon, Failure> {
        let memory = config.memory.map_or_else(machine::memory_default, |memory| memory.min(machine::memory_total()));
        larder_base::arena::configure(memory.0);
        let given = Given::new(folder, &config, memory).await?;
        let started_with = config.clone();
        let document = Arc::new(document(given.clone(), (file, overrides), config)?);
        let on_storage = OnStorage::new(given.clone(), &document, memory);
        let Given { folder, storage, servers, watch, standings, runs, wake_record, .. } = given;
        let Given { links, announcer, setup_offer, mounts, .. } = given;
        let OnStorage { pools, volumes, snapshots, backups, seats, moves } = on_storage;
        let record = Arc::new(BoxRecord::open(&folder, &document, &storage, (&runs, &standings, wake_record))?);
        let invitations = Arc::<Invitations>::default();
        let replication = given!(Replication { document, storage, servers, folder, record, runs; invitations });
        let replication = Arc::new(replication);
        let applying = Arc::new(given!(Applying { document, storage, mounts, standings, folder; started_with }));
        let top = Arc::new(TopState::open(folder.path(), &document, &storage));
        let replicas = replication.clone();
        let told: larder_watch::Told = Box::new(move || told::late(&replicas));
        let watcher = given!(Watcher { watch, document, storage, servers, folder, standings; told });
        let benches = Arc::<Benches>::default();
        Ok(Daemon {
            scrubs: Arc::new(given!(Scrubs { document, storage, standings })),
            sharing: given!(Sharing { document, storage, standings }),
            people: given!(UserAdmin { document, record, links, servers, folder }),
            mounting: given!(Mounting { document, storage, mounts }),
            care: given!(Care { document, folder, pools, top; benches }),
            opens: given!(OpenList { document, storage, servers }),
            explaining: given!(Explaining { document, storage, servers, mounts }),
            restoring: given!(Restoring { document, storage, folder, record, applying, links }),
            watcher: Arc::new(watcher),
            charts: Arc::new(ChartState::open(folder.path())),
            started: Instant::now(),
            folder,
            document,
            storage,
            servers,
            watch,
            standings,
            announcer,
            links,
            setup_offer,
            pools,
            volumes,
            moves,
            seats,
            snapshots,
            backups,
            replication,
            record,
            applying,
            top,
        })
    }

    pub fn folder(&self) -> &DataFolder {
        &self.folder
    }

    /// Each pool's part of the memory.
    pub fn memory_per_pool(&self, pools: usize) -> ByteSize {
        self.pools.memory_per_pool(pools)
    }

    /// Opens the pools of the configuration. Those that fail have standings
    /// (`daemon.faults_are_named`); it is an error if all do.
    pub async fn open_pools(&self, force: bool, degraded: bool) -> Result<(), Failure> {
        self.open_those_that_can(force, degraded).await?;
        match self.standings.unopened().into_iter().next() {
            Some((_, failure)) if self.storage.all().is_empty() => Err(failure),
            _ => Ok(()),
        }
    }

    /// Opens the pools of the configuration, even if none of them can be opened: a service that goes on shows its page and
    /// raises the alert `pool-unavailable`.
    pub async fn open_those_that_can(&self, force: bool, degraded: bool) -> Result<(), Failure> {
        let mut state = self.document.lock().await;
        self.pools.open(&state.config, force, degraded).await;
        self.moves.settle(&mut state).await
    }

    /// Takes in a pool opened elsewhere (made by `up`).
    pub fn adopt(&self, pool: Store) {
        self.storage.add(pool);
    }

    /// Makes the volumes that the file names and that are missing, applies their properties, and serves the shares.
    pub async fn apply_config(&self) -> Result<(), Failure> {
        self.document.lock().await.reconcile(Look::All).await;
        Ok(())
    }

    /// Waits for nothing: a command that looks for the daemon of some disks asks every daemon.
    pub fn info(&self) -> DaemonInfo {
        DaemonInfo {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            data: self.folder.path().to_owned(),
            uptime_secs: self.started.elapsed().as_secs(),
            nfs: self.servers.nfs_addr(),
            smb: self.servers.smb_addr(),
            sftp: self.servers.sftp_addr(),
            webdav: self.servers.webdav_addr(),
            webdavs: self.servers.webdavs_addr(),
            page: self.servers.page_addr(),
            memory_bytes: self.pools.memory.0,
            pools: self.storage.all().iter().map(|p| p.name.clone()).collect(),
            disks: self.pools.disks(),
        }
    }

    /// Makes everything durable and closes it, in order (`daemon.stop_in_order`).
    async fn stop(&self, serving: Serving) -> Result<(), Failure> {
        self.setup_offer.end().await;
        self.care.benches.end().await;
        self.announcer.stop().await;
        self.servers.end_page_streams();
        serving.stop().await;
        self.servers.end_page();
        self.servers.set_exports(Vec::new());
        if let Err(failure) = self.servers.set_shares(Vec::new()).await {
            tracing::warn!("{failure}");
        }
        self.mounting.mounts.remove_of(|_| true).await;
        self.record.keep_at_last().await;
        self.storage.close().await
    }
}
