//! How a command reaches a running daemon, or else the pools of a configuration or of disks that were named.

use std::path::{Path, PathBuf};

use futures::StreamExt;
use larder_api::endpoint::Param;
use larder_api::endpoints::GetInfo;
use larder_api::{Client, Failure, SOCKET_NAME};
use larder_keep::Storage;
use larder_pool::OpenOptions;

use super::args::{Disks, Global};
use crate::out::Out;
use larder_config::Config;
use larder_config::machine;
use larder_daemon::direct::{Direct, DirectDownload, Outgoing};
use larder_document::folder;
pub(crate) use larder_document::folder::absolute;

/// The outcome of a command that did not fail.
pub(crate) enum Outcome {
    Done,
    /// `check` or `debug` found problems, or `recover` could not bring all back.
    Problems,
    /// `pool status -x` found pools that are not well.
    Unwell,
}

impl Global {
    pub(crate) fn out(&self) -> Out {
        Out { json: self.json }
    }

    /// The data folder that was named, by option or environment.
    pub(crate) fn data_named(&self) -> Option<PathBuf> {
        let from_env = || std::env::var_os("LARDER_DATA").filter(|v| !v.is_empty()).map(PathBuf::from);
        self.data.clone().or_else(from_env)
    }
}

/// The answering side of a command.
pub(crate) enum Target {
    Daemon(Client),
    /// No daemon: the pools of this configuration.
    Config(Box<Config>),
}

/// The daemon of the data folder named; else of ./larder-data; else the configuration there; else the only
/// daemon running; else that of the package. `None`: there is none of these.
pub(crate) async fn maybe_target(global: &Global) -> Result<Option<Target>, Failure> {
    let named = global.data_named();
    let folder = named.clone().unwrap_or_else(|| PathBuf::from(folder::DEFAULT));
    if let Some(client) = Client::connect(&folder.join(SOCKET_NAME)).await? {
        return Ok(Some(Target::Daemon(client)));
    }
    let file = folder.join(folder::CONFIG_NAME);
    if file.exists() {
        return Config::load(&absolute(&file)?).map(|config| Some(Target::Config(Box::new(config))));
    }
    if named.is_some() {
        return Ok(None);
    }
    match running().await.as_slice() {
        [(_, client)] => Ok(Some(Target::Daemon(client.clone()))),
        [] => of_package(Path::new(folder::OF_PACKAGE)).await,
        many => {
            let pids: Vec<String> = many.iter().map(|(pid, _)| pid.to_string()).collect();
            Err(Failure::invalid(format!("several larders are running (pids {})", pids.join(", ")))
                .action("say which with --data DIR"))
        }
    }
}

/// The larder of the package, whether it runs or not.
async fn of_package(folder: &Path) -> Result<Option<Target>, Failure> {
    if let Some(client) = Client::connect(&folder.join(SOCKET_NAME)).await? {
        return Ok(Some(Target::Daemon(client)));
    }
    let file = folder.join(folder::CONFIG_NAME);
    match file.exists() {
        true => Config::load(&file).map(|config| Some(Target::Config(Box::new(config)))),
        false => Ok(None),
    }
}

pub(crate) async fn target(global: &Global) -> Result<Target, Failure> {
    let found = maybe_target(global).await?;
    found.ok_or_else(|| match global.data_named() {
        Some(folder) => {
            let message =
                format!("{} is not a data folder of larder: it has no {}", folder.display(), folder::CONFIG_NAME);
            Failure::not_found(message).action("start a larder there with: larder up --data DIR")
        }
        None => Failure::not_found("no larder is running here, and there is no ./larder-data")
            .action("start one with: larder up; or name its data folder with --data DIR, or the disks"),
    })
}

/// The daemons of this user that answer.
pub(crate) async fn running() -> Vec<(u32, Client)> {
    let mut found = Vec::new();
    for (pid, socket) in folder::announced() {
        if let Ok(Some(client)) = Client::connect(&socket).await {
            found.push((pid, client));
        }
    }
    found
}

/// A daemon, for what only a daemon can do.
pub(crate) async fn daemon(global: &Global) -> Result<Client, Failure> {
    match target(global).await? {
        Target::Daemon(client) => Ok(client),
        Target::Config(config) => {
            let data = &config.data;
            Err(Failure::not_found(format!("no larder is running on the data folder {}", data.display()))
                .action(format!("start it with: larder up --data {}", larder_base::shell::word(data))))
        }
    }
}

/// The daemon, or the pools opened by ourselves.
pub(crate) enum Backend {
    Daemon(Client),
    Direct(Storage),
}

impl Backend {
    pub(crate) async fn of(global: &Global, disks: &Disks) -> Result<Backend, Failure> {
        if !disks.disks.is_empty() {
            return Ok(Backend::Direct(direct(&disks.disks).await?));
        }
        match target(global).await? {
            Target::Daemon(client) => Ok(Backend::Daemon(client)),
            Target::Config(config) => {
                let storage = Storage::default();
                larder_document::box_time::begin(&config.data);
                for pool in &config.pools {
                    let opened = larder_daemon::open_configured(pool, &config.data, false, false, memory()).await;
                    match opened {
                        Ok(open) => drop(storage.add(open)),
                        Err(failure) => {
                            storage.close().await?;
                            return Err(failure);
                        }
                    }
                }
                Ok(Backend::Direct(storage))
            }
        }
    }

    /// A daemon, for what only a daemon can do.
    pub(crate) fn daemon(self) -> Option<Client> {
        match self {
            Backend::Daemon(client) => Some(client),
            Backend::Direct(_) => None,
        }
    }

    pub(crate) async fn call<E: Direct>(
        &self,
        endpoint: E,
        param: <E::Param as Param>::Given<'_>,
        request: E::Request,
    ) -> Result<E::Response, Failure> {
        match self {
            Backend::Daemon(client) => client.call(endpoint, param, &request).await,
            Backend::Direct(storage) => E::direct(storage, E::Param::of(param), request).await,
        }
    }

    pub(crate) async fn download<E: DirectDownload>(
        &self,
        endpoint: E,
        param: <E::Param as Param>::Given<'_>,
        request: E::Request,
    ) -> Result<Outgoing, Failure> {
        match self {
            Backend::Daemon(client) => {
                let answer = client.download(endpoint, param, &request).await?;
                let bytes = answer.bytes;
                let pieces = futures::stream::unfold(answer, |mut answer| async move {
                    let piece = answer.next().await?;
                    Some((piece, answer))
                });
                Ok(Outgoing { bytes, pieces: pieces.boxed() })
            }
            Backend::Direct(storage) => E::direct(storage, E::Param::of(param), request).await,
        }
    }

    /// The names of all pools.
    pub(crate) async fn pools(&self) -> Result<Vec<String>, Failure> {
        match self {
            Backend::Daemon(client) => Ok(client.ask(GetInfo).await?.pools),
            Backend::Direct(storage) => Ok(storage.all().iter().map(|pool| pool.name.clone()).collect()),
        }
    }

    /// Does `work`, and closes what was opened by ourselves whatever came of it.
    pub(crate) async fn closing<T>(self, work: impl AsyncFnOnce(&Backend) -> Result<T, Failure>) -> Result<T, Failure> {
        let result = work(&self).await;
        let closed = match &self {
            Backend::Daemon(_) => Ok(()),
            Backend::Direct(storage) => storage.close().await,
        };
        let value = result?;
        closed.map(|()| value)
    }
}

/// Calls one endpoint: of the daemon, or on pools opened for it.
pub(crate) async fn call<E: Direct>(
    global: &Global,
    disks: &Disks,
    endpoint: E,
    param: <E::Param as Param>::Given<'_>,
    request: E::Request,
) -> Result<E::Response, Failure> {
    Backend::of(global, disks).await?.closing(async |backend| backend.call(endpoint, param, request).await).await
}

/// The pool on these disks, opened by ourselves.
pub(crate) async fn direct(disks: &[PathBuf]) -> Result<Storage, Failure> {
    let disks = disks.iter().map(|d| absolute(d)).collect::<Result<Vec<_>, _>>()?;
    let storage = Storage::default();
    storage.add(larder_daemon::open_pool(OpenOptions::new(disks), memory()).await?);
    Ok(storage)
}

/// A command needs less than a daemon.
pub(crate) fn memory() -> larder_base::units::ByteSize {
    larder_base::units::ByteSize(machine::memory_default().0.min(256 << 20))
}

/// Does `work` on pools opened by ourselves, and closes them whatever came of it.
pub(crate) async fn closing<T>(
    storage: Storage,
    work: impl AsyncFnOnce(&Storage) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let result = work(&storage).await;
    let closed = storage.close().await;
    let value = result?;
    closed.map(|()| value)
}

/// A word that names a folder rather than a pool.
pub(crate) fn is_path(word: &str) -> bool {
    word.contains('/') || word == "." || word == ".."
}
