//! What the daemon makes of its configuration, part by part.
//!
//! ```text
//! file, people --wants--> Part --make, take_away--> standings --> alerts, page, commands, metrics
//! ```
//!
//! - `parts.in_order`: what is not wanted any more is taken away first: shares from their doors.
//!   Then volumes are made, people and shares told to the doors, mounts made, links and announcements
//!   brought in line, and those woken that look at the configuration by themselves.
//! - `parts.saved_first`: the file is saved before it is applied (`daemon.one_lock`). A thing that
//!   cannot be made leaves a standing, and is tried again with the next change; nothing is half
//!   between.

mod mounts;
mod people;
mod shares;
pub mod volumes;
mod waits;

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use larder_api::Failure;
use larder_base::units::ByteSize;
use larder_keep::Storage;
use larder_keep::snapshot_runs::SnapshotRuns;
use tokio::sync::Notify;

use larder_document::things::{Part, Things};
use larder_document::{DataFolder, Kind, Look, Reconcile, Source, Standing, Standings};
use larder_people::Door;
use mounts::MountPart;
use people::PeoplePart;
use shares::SharePart;
use volumes::VolumePart;

use crate::discovery::Announcer;
use crate::setup_offer::SetupOffer;
use crate::shares::{closed_to_others, without_nt_hash, without_password};
use larder_config::Config;
use larder_copies::replication::runs::Runs;
use larder_servers::Mounts;
use larder_servers::Servers;
use larder_servers::links::HeldLinks;
use larder_watch::Watch;

/// What is given to the parts.
#[derive(Clone)]
pub struct Given {
    pub folder: Arc<DataFolder>,
    pub storage: Arc<Storage>,
    pub servers: Arc<Servers>,
    pub watch: Arc<Watch>,
    pub standings: Standings,
    pub mounts: Mounts,
    pub setup_offer: Arc<SetupOffer>,
    pub links: Arc<HeldLinks>,
    pub announcer: Arc<Announcer>,
    pub schedules: Arc<SnapshotRuns>,
    pub runs: Arc<Runs>,
    pub wake_record: Arc<Notify>,
    pub wake_backups: Arc<Notify>,
}

impl Given {
    /// Takes the ports (`servers.ports_first`), and opens nothing yet.
    pub async fn new(folder: DataFolder, config: &Config, memory: ByteSize) -> Result<Self, Failure> {
        let limits = (config.connections, config.strangers, memory);
        let servers = Servers::bind(&config.listen, (&config.webdav, &config.page), limits, folder.path()).await?;
        let (folder, servers) = (Arc::new(folder), Arc::new(servers));
        let (storage, standings, setup_offer, schedules, wake_record, wake_backups) = Default::default();
        Ok(Self {
            watch: Arc::new(Watch::open(folder.path())?),
            links: Arc::new(HeldLinks { servers: Arc::clone(&servers), folder: folder.path().to_owned() }),
            announcer: Arc::new(Announcer::new(&folder, &servers)),
            mounts: Mounts::new(&storage, &standings),
            runs: Arc::new(Runs::new(&standings)),
            standings,
            folder,
            storage,
            servers,
            setup_offer,
            schedules,
            wake_record,
            wake_backups,
        })
    }

    /// Those who look at the configuration by themselves look again.
    fn wake_all(&self) {
        self.schedules.wake();
        self.runs.wake();
        self.watch.wake();
        self.wake_record.notify_one();
        self.wake_backups.notify_one();
    }
}

/// The parts that follow the configuration, in the order in which they do (`parts.in_order`).
pub struct Reconciler {
    given: Given,
    volumes: Things<VolumePart>,
    people: PeoplePart,
    shares: Things<SharePart>,
    mounts: Things<MountPart>,
    /// Remarks on this configuration that are in the log already.
    noted: Vec<String>,
}

impl Reconciler {
    pub fn new(given: Given) -> Self {
        let Given { storage, servers, watch, standings, mounts, .. } = &given;
        let volumes = Things::new(VolumePart { storage: Arc::clone(storage) }, standings);
        let people = PeoplePart { servers: Arc::clone(servers), told: None };
        let shares = Things::new(SharePart::new(storage, servers, watch), standings);
        let mounts = MountPart { storage: Arc::clone(storage), mounts: mounts.clone() };
        Self { volumes, people, shares, mounts: Things::new(mounts, standings), noted: Vec::new(), given }
    }

    async fn tell_shares(&mut self, source: &Source<'_>) {
        let people = self.people.tell(source).await;
        if let Ok(true) = people {
            self.shares.part.tell_nfs();
        }
        let shares = self.shares.part.tell(source.config).await;
        let Err(failure) = people.and(shares) else { return };
        for share in source.config.shares.iter().filter(|share| share.offers(Door::SMB)) {
            if self.given.standings.of(Kind::Share, &share.name).is_ok() {
                self.given.standings.set(Kind::Share, &share.name, Standing::Failed(failure.clone()));
            }
        }
    }

    fn note(&mut self, source: &Source<'_>) {
        let Source { config, secrets, .. } = source;
        let mut notes = config.notes();
        notes.extend(without_password(config, secrets));
        notes.extend(without_nt_hash(config, secrets));
        notes.extend(self.given.servers.nfs_addr().and_then(|addr| closed_to_others(config, addr)));
        for note in notes.iter().filter(|note| !self.noted.contains(note)) {
            tracing::warn!("{note}");
        }
        self.noted = notes;
    }
}

impl Reconcile for Reconciler {
    /// `parts.in_order`
    fn reconcile<'a>(&'a mut self, source: &'a Source<'a>, look: Look) -> BoxFuture<'a, ()> {
        async move {
            self.given.setup_offer.look_at(source.config);
            self.note(source);
            let (wanted, mounts) = (SharePart::wants(source), MountPart::wants(source));
            self.mounts.take_away(&mounts);
            if self.shares.take_away(&wanted) {
                self.tell_shares(source).await;
            }
            if look != Look::Shares {
                let wanted = VolumePart::wants(source);
                self.volumes.take_away(&wanted);
                self.volumes.make(wanted, look == Look::All).await;
            }
            self.shares.make(wanted, look != Look::Changes).await;
            self.tell_shares(source).await;
            self.mounts.make(mounts, false).await;
            if look != Look::Changes {
                for pool in self.given.storage.all() {
                    pool.look_for_gone().await;
                }
            }
            self.given.links.keep_makers(source.config).await;
            self.given.announcer.set(source.config, &self.given.standings).await;
            self.given.wake_all();
        }
        .boxed()
    }
}
