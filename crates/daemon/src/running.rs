//! The daemon at work: its servers, listeners and loops. They begin in the order in which they
//! stand here, and end in it.

use std::sync::Arc;

use larder_api::Failure;
use larder_base::task;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::recycle::Bins;
use super::{
    Daemon, api, chart_samples, memory, metrics, recycle, reopening, schedule, snapshot_schedule, time_machine, top,
};
use larder_copies::standby::Asked;
use larder_copies::{box_record, replication, seats};
use larder_servers::Serving;
use larder_watch::Watching;

/// Why a daemon ends without a signal.
pub enum End {
    /// A server ended, or a pool needs a new process (`servers.end_is_a_fault`,
    /// `reopening.tried_on`).
    Fault(Failure),
    /// The power is away, and the battery is nearly empty.
    Power,
    /// Another machine asks for a store (`bucket.asked_ends`).
    Asked(Asked),
}

pub struct Running {
    daemon: Arc<Daemon>,
    serving: Serving,
    loops: Vec<JoinHandle<()>>,
    reopening: JoinHandle<Failure>,
    watching: Watching,
    listeners: CancellationToken,
}

impl Running {
    /// Begins everything but the API.
    pub async fn begin(daemon: Arc<Daemon>) -> Result<Self, Failure> {
        let serving = daemon.servers.serve();
        let listeners = CancellationToken::new();
        daemon.folder.announce();
        let config = daemon.document.config();
        if let Some(addr) = config.listen.metrics {
            metrics::listen(daemon.clone(), addr, listeners.clone()).await?;
        }
        if let Some(listener) = daemon.servers.take_replication() {
            replication::machines::listen(daemon.replication.clone(), listener, listeners.clone())?;
        }
        let page = daemon.begin_page();
        let page = async move {
            if let Some(page) = page {
                page.keep_all_sessions().await;
            }
        };
        let Daemon { document, storage, servers, standings, .. } = &*daemon;
        let (document, storage, standings) = (document.clone(), storage.clone(), standings.clone());
        let bins = Bins { document, storage: storage.clone(), servers: servers.clone(), standings };
        let charts = (daemon.charts.clone(), storage.clone(), daemon.watch.clone());
        let loops = vec![
            task::spawn(page),
            task::spawn(schedule::run(daemon.scrubs.clone(), daemon.pools.clone())),
            task::spawn(snapshot_schedule::run(daemon.snapshots.clone())),
            task::spawn(memory::run(storage.clone())),
            task::spawn(replication::run(daemon.replication.clone())),
            task::spawn(recycle::run(bins)),
            task::spawn(time_machine::run(daemon.backups.clone())),
            task::spawn(seats::run(daemon.seats.clone())),
            task::spawn(box_record::run(daemon.record.clone())),
            task::spawn(chart_samples::keep(charts, config.power.clone())),
        ];
        let reopening = task::spawn_for(reopening::run(daemon.pools.clone()));
        let watching = larder_watch::start(daemon.watcher.clone(), top::keep(daemon.top.clone()))?;
        Ok(Self { daemon, serving, loops, reopening, watching, listeners })
    }

    /// Answers the API from now on.
    pub fn answer(&self) -> Result<(), Failure> {
        api::listen(self.daemon.clone(), self.listeners.clone())
    }

    /// Waits until the daemon has to end.
    pub async fn end(&mut self) -> End {
        tokio::select! {
            why = self.serving.broken() => End::Fault(Failure::internal(why)),
            why = &mut self.reopening => {
                End::Fault(why.unwrap_or_else(|error| Failure::internal(error.to_string())))
            }
            () = self.daemon.watch.ups.ends() => End::Power,
            by = Asked::any(&self.daemon.storage) => End::Asked(by),
        }
    }

    /// Makes everything durable and closes it, in order (`daemon.stop_in_order`).
    pub async fn stop(self) -> Result<(), Failure> {
        self.loops.iter().for_each(JoinHandle::abort);
        self.reopening.abort();
        self.watching.end().await;
        self.daemon.charts.write();
        self.daemon.top.end();
        self.listeners.cancel();
        self.daemon.stop(self.serving).await?;
        self.daemon.watch.stopped().await;
        Ok(())
    }
}
