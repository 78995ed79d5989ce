//! `larder serve`, and what it shares with `up`: running a daemon until it is told to stop.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use larder_api::{Failure, Ready};
use larder_base::task;
use tokio::signal::unix::{SignalKind, signal};

use super::args::{Global, ServeArgs};
use super::reach::absolute;
use crate::out;
use larder_config::Config;
use larder_config::machine;
use larder_copies::box_record;
use larder_copies::bucket::LOST_EXIT;
use larder_copies::standby::stand_by;
use larder_daemon::notify;
use larder_daemon::{Daemon, End, Running};
use larder_document::folder::{self, DataFolder};

/// Offers a set-up at an address, beside a daemon that has nothing to serve.
pub(super) type Offer = fn(&Global, &Arc<Daemon>, Option<&str>) -> Result<(), Failure>;

pub(super) async fn run(global: &Global, args: ServeArgs, offer: Offer) -> Result<(), Failure> {
    let is_named = args.config.is_some();
    let file = match args.config {
        Some(file) => file,
        None => global.data_named().unwrap_or_else(|| PathBuf::from(folder::DEFAULT)).join(folder::CONFIG_NAME),
    };
    let file = absolute(&file)?;
    if let Some(data) = file.parent() {
        box_record::contents::finish_pending(data)?;
    }
    // A service after its installation. A file that was named and is missing is a fault: its disk may be away.
    if !is_named && !file.exists() {
        return super::up::set_up(global).await;
    }
    let mut config = Config::load(&file)?;
    if let Some(data) = global.data_named() {
        config.data = absolute(&data)?;
    }
    let (standby, read_only) = (args.standby, args.read_only);
    let set = move |config: &mut Config| {
        config.stores.iter_mut().for_each(|store| larder_config::set_store(store, standby, read_only))
    };
    set(&mut config);
    if !args.idle && config.pools.is_empty() && config.stores.is_empty() && config.shares.is_empty() {
        return Err(Failure::invalid(format!("{} names no pool, no store and no share", file.display())).action(
            "make a pool with: larder pool create tank DIR... --layout raidz1; then add: [[pool]] name = \"tank\" disks = [...]; \
             or share a folder of this machine: [[share]] name = \"photos\" folder = \"/srv/photos\"",
        ));
    }
    let folder = DataFolder::claim(&config.data)?;
    let data = folder.path().to_owned();
    let overrides = Box::new(move |config: &mut Config| {
        config.data = data.clone();
        set(config);
    });
    notify::tell("STATUS=opening pools and stores");
    let stood_by = stand_by(&config, &folder).await?;
    let daemon = Daemon::new(folder, file, config, overrides).await?;
    match args.idle {
        true => daemon.open_those_that_can(false, false).await?,
        false => daemon.open_pools(false, false).await?,
    }
    drop(stood_by);
    daemon.apply_config().await?;
    let json = global.json;
    until_stopped(daemon, async |daemon| {
        let ready = ready(daemon, None, None).await;
        if json {
            announce_json(&ready)?;
        } else {
            out::say(&format!(
                "larder serves {} share(s); data folder {}",
                daemon.sharing.list().len(),
                ready.data.display()
            ));
        }
        match args.idle && daemon.blank_config().await.is_ok() {
            true => offer(global, daemon, args.setup.as_deref()),
            false => Ok(()),
        }
    })
    .await
}

/// Serves, calls `when_ready`, waits for a signal or a fault, and stops in order.
pub(super) async fn until_stopped(
    daemon: Daemon,
    when_ready: impl AsyncFnOnce(&Arc<Daemon>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let daemon = Arc::new(daemon);
    let mut running = Running::begin(daemon.clone()).await?;
    let started = match running.answer() {
        Ok(()) => when_ready(&daemon).await,
        Err(failure) => Err(failure),
    };
    let watchdog = task::spawn(notify::run_watchdog());
    let end = match started {
        Err(failure) => Some(End::Fault(failure)),
        Ok(()) => {
            notify::tell("READY=1\nSTATUS=serving");
            loop {
                tokio::select! {
                    end = running.end() => break Some(end),
                    word = signals.next() => match word {
                        Word::Stop => break None,
                        Word::Reload => reload(&daemon).await,
                    },
                }
            }
        }
    };
    tracing::info!("stopping");
    let after_ups = daemon.watcher.after_ups();
    notify::tell("STOPPING=1\nSTATUS=writing what is not yet durable");
    // A person who signals again means it: whatever is not yet durable was not yet answered.
    let stopped = tokio::select! {
        stopped = running.stop() => stopped,
        () = signals.stop_again() => {
            eprintln!("stopped at once at a second signal; the next start recovers what was durable");
            std::process::exit(130);
        }
    };
    watchdog.abort();
    if let Some(End::Fault(failure)) = end {
        return Err(failure);
    }
    stopped?;
    if let Some((disks, then)) = after_ups {
        larder_watch::afterwards(&disks, &then);
    }
    if let Some(End::Asked(asked)) = end {
        asked.given_back().await;
        std::process::exit(LOST_EXIT);
    }
    Ok(())
}

async fn reload(daemon: &Daemon) {
    let reread = daemon.applying.reload().await;
    daemon.watch.config_read("file", reread.as_ref().map(drop));
    match reread {
        Ok(_) => tracing::info!("read the configuration again"),
        Err(failure) => tracing::error!("the configuration was not read again: {}", failure.message),
    }
}

/// Signals closer together than this are one.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

pub(super) enum Word {
    Stop,
    Reload,
}

pub(super) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    pub(super) fn new() -> Result<Signals, Failure> {
        let listen = |kind| signal(kind).map_err(|e| Failure::io("cannot listen to signals", &e));
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) -> Word {
        tokio::select! {
            _ = self.interrupt.recv() => Word::Stop,
            _ = self.terminate.recv() => Word::Stop,
            _ = self.hangup.recv() => Word::Reload,
        }
    }

    /// timeout(1) and terminals signal a process and its group: two signals that mean one stop.
    async fn stop_again(&mut self) {
        let until = tokio::time::Instant::now() + SAME_SIGNAL;
        while matches!(self.next().await, Word::Reload) || tokio::time::Instant::now() < until {}
    }
}

/// The line of `--json` once everything is being served.
pub(super) async fn ready(daemon: &Daemon, user: Option<String>, password: Option<String>) -> Ready {
    let shares = daemon.sharing.list();
    let export = shares.iter().filter(|s| s.fault.is_none()).find_map(|s| s.export().map(str::to_owned));
    let share = shares.iter().filter(|s| s.fault.is_none()).find_map(|s| s.smb.clone());
    let nfs = daemon.servers.nfs_addr();
    let smb = daemon.servers.smb_addr();
    let sftp = daemon.servers.sftp_addr();
    let webdav = daemon.servers.webdav_addr();
    let webdavs = daemon.servers.webdavs_addr();
    Ready {
        pid: std::process::id(),
        nfs: nfs.map(|a| larder_api::NfsEndpoint { host: machine::host_local(a), port: a.port(), export }),
        smb: smb.map(|a| larder_api::SmbEndpoint { host: machine::host_local(a), port: a.port(), share }),
        sftp: sftp.map(|a| larder_api::SftpEndpoint { host: machine::host_local(a), port: a.port() }),
        webdav: webdav.map(|a| larder_api::WebdavEndpoint { host: machine::host_local(a), port: a.port() }),
        webdavs: webdavs.map(|a| larder_api::WebdavEndpoint { host: machine::host_local(a), port: a.port() }),
        page: daemon.servers.page_url().map(|url| larder_api::PageEndpoint { url, setup: None }),
        user,
        password,
        recovery_key: None,
        mount: daemon.mounting.list().into_iter().next().map(|m| m.dir),
        data: daemon.folder().path().to_owned(),
    }
}

pub(super) fn announce_json(ready: &Ready) -> Result<(), Failure> {
    out::say_json(ready)
}
