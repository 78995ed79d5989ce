//! `larder up`: from folders to a NAS in one command, again and again.
//!
//! The first run makes the pool, a volume, a share and a user, and writes larder.toml into the data
//! folder; later runs read it. Without folders, a person says in a browser what to make (`setup`). Every step looks first for the result of an earlier run, so the next run
//! finishes one that was interrupted. Options of later runs hold for that run.
//!
//! - `up.looks_first`: nothing is made before this process has the ports and has looked at every
//!   folder.
//! - `up.file_last`: larder.toml is written last. While it is missing, the run before was not
//!   finished.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Parser;
use larder_api::{Done, Failure, MountRequest, Ready, SetupDoors, SnapshotCounts, VolumeChange};
use larder_base::shell;
use larder_base::units::ByteSize;
use larder_keep::Store;
use larder_pool::{CreateOptions, FoundPool, LastLives, Layout, OpenOptions, Pool};

use super::args::{Global, UpArgs};
use super::command::{Cli, Command};
use super::reach::absolute;
use super::serve::{announce_json, ready, until_stopped};
use super::{password, place, reborn, setup};
use crate::{out, welcome};
use larder_config::edit::{self, Editor};
use larder_config::machine;
use larder_config::user::{Accounts, NewUser, first_user, new_user};
use larder_config::{
    BEHIND_SECONDS, BUDGET_BYTES, CONNECTIONS, CacheSettings, Config, Listen, NFS_PORT, PAGE_PORT, PageConfig,
    PageListen, PoolConfig, REPLICATION_PORT, SFTP_PORT, SMB_PORT, Schedule, StoreSettings, VolumeConfig, VolumeName,
    WEBDAV_PORT, WEBDAVS_PORT, parse_listen, parse_networks, parse_page_listen, private_networks,
};
use larder_copies::box_record::contents::finish_pending;
use larder_copies::box_record::found;
use larder_copies::bucket::{taking, this_machine};
use larder_copies::standby::stand_by;
use larder_daemon::disks::layout_default;
use larder_daemon::people::fit_password;
use larder_daemon::{Daemon, default_share, translate};
use larder_document::Overrides;
use larder_document::folder::{self, DataFolder};
use larder_document::last_lives::Remembered;
use larder_people::Door;
use larder_servers::mounts::is_dead;

const VOLUME: &str = "files";
const USER: &str = "larder";
const PORTMAPPER_PORT: u16 = 111;

pub(super) async fn run(global: &Global, args: UpArgs) -> Result<(), Failure> {
    let args = UpArgs {
        mount: args.mount.as_deref().map(absolute).transpose()?,
        cache: args.cache.as_deref().map(absolute).transpose()?,
        ..args
    };
    no_addresses(&args.disks)?;
    place::no_devices(&args.disks)?;
    let disks = args.disks.iter().map(|d| absolute(d)).collect::<Result<Vec<_>, _>>()?;
    let data = absolute(&data_folder(global, &disks))?;
    let file = data.join(folder::CONFIG_NAME);
    // Files that a crash left half put back.
    finish_pending(&data)?;
    let args = match args.import {
        true => {
            let stores = stores_of(&args, &data);
            if reborn::run(global, &args, (disks.clone(), stores), &data).await? == reborn::Begins::AsService {
                return began_as_service(global, &data);
            }
            // The secret was for the record.
            UpArgs { password_file: None, ..args }
        }
        false => args,
    };
    let known = file.exists().then(|| Config::load(&file)).transpose()?;
    let first = known.is_none();
    let mut moved = Vec::new();
    if let Some(config) = known.as_ref().filter(|_| !args.import) {
        moved = same_disks(config, &disks, &data)?;
        same_store(config, &args, &data)?;
    }
    let is_named = first && (args.trial || !args.disks.is_empty() || args.store.is_some());
    if let Some(dir) = &args.mount {
        look_at_mount(dir)?;
    }
    // Nobody says what to serve: a person says it in a browser.
    if first && !is_named {
        drop(overrides(&args)?);
        return setup::run(global, args, &data).await;
    }
    let overrides = overrides(&args)?;
    let mut config = match known {
        Some(config) => config,
        None => fresh(&args, &data, disks),
    };
    overrides(&mut config);
    if first && !config.pools.is_empty() {
        look_at_disks(&args, &config, global.json)?;
    }

    let folder = DataFolder::claim(&data)?;
    if !moved.is_empty() {
        config = with_moved(&file, &moved)?;
        overrides(&mut config);
    }
    // Who says --force does not wait for the owner.
    let stood_by = if args.force { None } else { stand_by(&config, &folder).await? };
    let file = folder.path().join(folder::CONFIG_NAME);
    let daemon = Daemon::new(folder, file, config.clone(), overrides).await?;
    let served = serve(global, &args, &daemon, config, first.then(Wishes::default).as_ref()).await;
    drop(stood_by);
    match served {
        Ok((user, password)) => {
            // Before the record is written, which takes a second.
            let recovery_key = daemon.record.first_recovery_key().await?;
            let told = Told { password, recovery_key, first };
            until_stopped(daemon, async |daemon| greet(global, &args, daemon, user, told).await).await
        }
        Err(failure) => {
            let _ = daemon.storage.close().await;
            Err(failure)
        }
    }
}

/// `larder up` without a word, for a service that finds no configuration.
pub(super) async fn set_up(global: &Global) -> Result<(), Failure> {
    run(global, no_words()?).await
}

pub(super) fn no_words() -> Result<UpArgs, Failure> {
    let parsed = Cli::try_parse_from(["larder", "up"]).map_err(|e| Failure::internal(e.to_string()))?;
    match parsed.command {
        Command::Up(args) => Ok(*args),
        _ => Err(Failure::internal("'larder up' is another command")),
    }
}

/// What a first run makes beside what the options say.
pub(super) struct Wishes {
    /// In place of one from a file, or a generated one.
    pub(super) password: Option<String>,
    /// The name of the first share.
    pub(super) share: Option<String>,
    pub(super) snapshots: Option<SnapshotCounts>,
    pub(super) box_name: Option<String>,
    /// Told before each step, by its number in [`STEPS`].
    pub(super) steps: Box<dyn Fn(usize) + Send + Sync>,
}

/// The steps of a first run, as [`Wishes::steps`] counts them.
pub(super) const STEPS: [&str; 3] = ["Make the pool", "Make the share and the user", "Open the doors"];

impl Default for Wishes {
    fn default() -> Self {
        Self { password: None, share: None, snapshots: None, box_name: None, steps: Box::new(|_| {}) }
    }
}

/// A first run on folders that a person chose: everything that [`run`] does before it serves.
pub(super) async fn make(
    global: &Global,
    args: &UpArgs,
    folder: DataFolder,
    wishes: &Wishes,
) -> Result<(Daemon, String, Option<String>), Failure> {
    let overrides = overrides(args)?;
    let mut config = fresh(args, folder.path(), args.disks.clone());
    overrides(&mut config);
    config.discovery.name.clone_from(&wishes.box_name);
    look_at_disks(args, &config, global.json)?;
    let file = folder.path().join(folder::CONFIG_NAME);
    let daemon = Daemon::new(folder, file, config.clone(), overrides).await?;
    match serve(global, args, &daemon, config, Some(wishes)).await {
        Ok((user, password)) => Ok((daemon, user, password)),
        Err(failure) => {
            let _ = daemon.storage.close().await;
            Err(failure)
        }
    }
}

/// The service that had nothing to serve is the box from its next start on (`reborn.doors_stay`).
fn began_as_service(global: &Global, data: &Path) -> Result<(), Failure> {
    global.out().answer(&Done {}, |Done {}| {
        format!(
            "The box is in {} now, at the doors of its service. Start it: sudo systemctl start larder, or: larder --data {} serve",
            data.display(),
            larder_base::shell::word(data)
        )
    })
}

/// A start of the box that an import has just put into the data folder.
pub(super) async fn resume(global: &Global, args: &UpArgs, data: &Path) -> Result<(Daemon, String), Failure> {
    let overrides = overrides(args)?;
    let file = data.join(folder::CONFIG_NAME);
    let mut config = Config::load(&file)?;
    overrides(&mut config);
    let daemon = Daemon::new(DataFolder::claim(data)?, file, config.clone(), overrides).await?;
    match serve(global, args, &daemon, config, None).await {
        Ok((user, _)) => Ok((daemon, user)),
        Err(failure) => {
            let _ = daemon.storage.close().await;
            Err(failure)
        }
    }
}

/// A first run in a daemon that serves nothing yet: its file keeps what it says, and its doors stay where they are.
/// `doors`: those at which the first share is.
pub(super) async fn make_beside(
    daemon: &Daemon,
    args: &UpArgs,
    doors: &SetupDoors,
    wishes: &Wishes,
) -> Result<String, Failure> {
    let mut config = daemon.blank_config().await?;
    config.pools.push(PoolConfig { name: args.name.clone(), disks: args.disks.clone(), scrub: Schedule::default() });
    config.discovery.name.clone_from(&wishes.box_name);
    look_at_disks(args, &config, true)?;
    let password = wishes.password.as_deref();
    password.map(|password| fit_password(password, false)).transpose()?;
    (wishes.steps)(0);
    let opened = open_or_create(args, &config.pools[0], daemon.folder().path(), daemon.memory_per_pool(1)).await?;
    config.pools[0].name.clone_from(&opened.name);
    daemon.adopt(opened);
    let user = args.user.clone().unwrap_or_else(|| USER.to_owned());
    let finish = async {
        (wishes.steps)(1);
        complete(&mut config, daemon, &user, wishes).await?;
        share_options(args)?(&mut config);
        for share in &mut config.shares {
            let doors = [
                (Door::SMB, doors.smb),
                (Door::Webdav, doors.webdav),
                (Door::Sftp, doors.sftp),
                (Door::NFS, doors.nfs),
            ];
            doors.into_iter().for_each(|(door, is_open)| share.offer(door, is_open));
        }
        daemon.people.ensure_password(&user, password).await?;
        (wishes.steps)(2);
        daemon.set_up(&config).await
    };
    let finished = finish.await;
    if finished.is_err() {
        daemon.give_back(&config.pools[0].name).await;
    }
    finished.map(|()| user)
}

/// Opens or makes everything; afterwards larder.toml says what is there. `wishes`: of a first run.
async fn serve(
    global: &Global,
    args: &UpArgs,
    daemon: &Daemon,
    mut config: Config,
    wishes: Option<&Wishes>,
) -> Result<(String, Option<String>), Failure> {
    let given = match wishes.and_then(|wishes| wishes.password.clone()) {
        Some(password) => Some(password),
        None => args.password_file.as_deref().map(password::read_or_make).transpose()?,
    };
    let of_file = |failure: Failure| match &args.password_file {
        Some(file) => Failure { message: format!("{}: {}", file.display(), failure.message), ..failure },
        None => failure,
    };
    // Before anything is made (`up.looks_first`).
    if let (Some(_), Some(password)) = (wishes, &given) {
        fit_password(password, false).map_err(|failure| of_file(Failure { action: None, ..failure }))?;
    }
    let name = match &args.user {
        Some(name) => name.clone(),
        None => config.users.first().map_or(USER.to_owned(), |u| u.name.clone()),
    };
    if let Some(wishes) = wishes {
        (wishes.steps)(0);
        let memory = args.memory.unwrap_or_else(machine::memory_default);
        let memory = ByteSize(memory.0 / (config.pools.len() + config.stores.len()).max(1) as u64);
        for store in &config.stores {
            // Refused before a pool is made.
            let machine = this_machine(daemon.folder())?;
            daemon.adopt(Store::start_bucket(store, taking(machine, args.force), memory).await?);
        }
        for pool in &mut config.pools {
            let opened = open_or_create(args, pool, daemon.folder().path(), memory).await?;
            pool.name = opened.name.clone();
            if found::is_there(&*opened.store()).await? {
                let text = "these disks hold a box with its users and shares, and this is a new one with their data; to be that box \
                            again: larder up --import DIR... with another data folder (--data DIR)";
                out::warn(text, global.json);
            }
            daemon.adopt(opened);
        }
        (wishes.steps)(1);
        complete(&mut config, daemon, &name, wishes).await?;
        share_options(args)?(&mut config);
        // The password comes before the file (`up.file_last`), so that a user in the file can log
        // in.
        let told = daemon.people.ensure_password(&name, given.as_deref()).await.map_err(of_file)?;
        let text = edit::fresh(&config, daemon.folder().path());
        edit::replace_file(&daemon.folder().path().join(folder::CONFIG_NAME), text.as_bytes(), 0o600)?;
        (wishes.steps)(2);
        daemon.applying.reload().await?;
        return Ok((name, told));
    }
    daemon.open_pools(args.force, args.degraded).await?;
    let told = daemon.people.ensure_password(&name, given.as_deref()).await.map_err(of_file)?;
    if !config.users.iter().any(|u| u.name == name) {
        let mut editor = Editor::open(&daemon.folder().path().join(folder::CONFIG_NAME))?;
        editor.add_user(&new_user(&name, NewUser::default(), &config, &Accounts::of_machine()));
        editor.save()?;
        daemon.applying.reload().await?;
    } else {
        daemon.apply_config().await?;
    }
    if args.layout.is_some() && !global.json {
        tracing::info!("--layout only says how a new pool is made: this one stays as it is");
    }
    Ok((name, told))
}

/// `larder-data` here; with folders of the user's own it lies beside the first of them.
fn data_folder(global: &Global, disks: &[PathBuf]) -> PathBuf {
    if let Some(data) = global.data_named() {
        return data;
    }
    match disks.first().and_then(|disk| disk.parent()) {
        Some(beside) => beside.join(folder::DEFAULT),
        None => PathBuf::from(folder::DEFAULT),
    }
}

/// A pool, and the folders where its disks are now.
type Moved = (String, Vec<PathBuf>);

/// On later runs folders may be named again, but not others. A disk that is mounted elsewhere now is known by its label.
/// Returns the pools whose disks are elsewhere than the file says.
fn same_disks(config: &Config, disks: &[PathBuf], data: &Path) -> Result<Vec<Moved>, Failure> {
    let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let known: Vec<PathBuf> = config.pools.iter().flat_map(|p| p.disks.iter().map(real)).collect();
    let strange: Vec<&PathBuf> = disks.iter().filter(|disk| !known.contains(&real(disk))).collect();
    let moved = if strange.is_empty() || known.is_empty() { Vec::new() } else { moved_disks(config, disks) };
    let is_moved = |disk: &&&PathBuf| moved.iter().flat_map(|(_, disks)| disks).any(|at| real(at) == real(disk));
    match strange.iter().find(|disk| !is_moved(disk)) {
        None => Ok(moved),
        Some(_) if known.is_empty() => Err(no_disks_yet(disks, data)),
        Some(other) => {
            let names: Vec<String> = known.iter().map(|d| d.display().to_string()).collect();
            let failure = Failure::invalid(format!(
                "the data folder {} serves the disks {}, and {} is not one of them",
                data.display(),
                names.join(", "),
                other.display()
            ));
            let found = Pool::scan(disks);
            Err(match found.iter().find(|pool| config.pools.iter().any(|known| known.name == pool.name)) {
                Some(pool) => {
                    let words: Vec<String> = disks.iter().map(|disk| shell::word(disk)).collect();
                    let (name, data, words) = (&pool.name, shell::word(data), words.join(" "));
                    failure.action(format!(
                        "if disks of '{name}' have moved: larder --data {data} pool import {words}; for another pool name another data folder with --data DIR"
                    ))
                }
                None => {
                    failure.action("for another pool name another data folder with --data DIR; or leave the disks out")
                }
            })
        }
    }
}

/// Has the file name the disks where they are.
fn with_moved(file: &Path, moved: &[Moved]) -> Result<Config, Failure> {
    let mut editor = Editor::open(file)?;
    for (name, disks) in moved {
        let places: Vec<String> = disks.iter().map(|disk| disk.display().to_string()).collect();
        tracing::warn!("disks of '{name}' are mounted elsewhere than before: they are {}", places.join(", "));
        editor.set_pool_disks(name, disks);
    }
    editor.save()
}

/// The pools of the file some of whose disks are in other folders than it says, by their labels.
fn moved_disks(config: &Config, disks: &[PathBuf]) -> Vec<Moved> {
    let moved = |pool: &PoolConfig| {
        let of = |places: &[PathBuf]| Pool::scan(places).into_iter().find(|found| found.name == pool.name);
        // Another pool may have that name: one disk at least is where the file says.
        let known = of(&pool.disks)?;
        let found = of(&[&pool.disks[..], disks].concat()).filter(|found| found.id == known.id)?;
        // A disk that is where it was is not also elsewhere: that is a copy of it.
        let stays = |id| known.disks.iter().find(|disk| disk.present && disk.id == id).map(|disk| disk.path.clone());
        let places: Vec<PathBuf> = found.disks.into_iter().map(|disk| stays(disk.id).unwrap_or(disk.path)).collect();
        (places != pool.disks).then(|| (pool.name.clone(), places))
    };
    config.pools.iter().filter_map(moved).collect()
}

/// Disks for a data folder that serves none: its pool was exported, or it never had one.
fn no_disks_yet(disks: &[PathBuf], data: &Path) -> Failure {
    let folder = data.display();
    let words: Vec<String> = disks.iter().map(|disk| shell::word(disk)).collect();
    let (data, words) = (shell::word(data), words.join(" "));
    match Pool::scan(disks).first() {
        Some(pool) => Failure::invalid(format!(
            "the configuration of the data folder {folder} names no pool: '{}' was exported, or never was in it",
            pool.name
        ))
        .action(format!("take the pool in, then repeat the command: larder --data {data} pool import {words}")),
        None => Failure::invalid(format!(
            "the data folder {folder} is in use already, and its configuration names no pool"
        ))
        .action(format!(
            "make one: larder --data {data} pool create tank {words} --layout LAYOUT; or name another data folder with --data DIR"
        )),
    }
}

/// On later runs the store may be named again, but not another one.
fn same_store(config: &Config, args: &UpArgs, data: &Path) -> Result<(), Failure> {
    let Some(url) = &args.store else { return Ok(()) };
    if config.stores.iter().any(|store| store.bucket.url == *url) {
        return Ok(());
    }
    let file = data.join(folder::CONFIG_NAME);
    Err(Failure::invalid(format!("{} names no store {url}", file.display()))
        .action("add it to that file, as [[store]] with name and url; or name another data folder with --data DIR"))
}

/// The store that the options name.
pub(super) fn stores_of(args: &UpArgs, data: &Path) -> Vec<StoreSettings> {
    fresh(args, data, Vec::new()).stores
}

/// Settings that the options override for this run.
fn overrides(args: &UpArgs) -> Result<Overrides, Failure> {
    let host = args.listen.unwrap_or(IpAddr::from([0, 0, 0, 0]));
    let parse = |text: &Option<String>, port: u16| {
        text.as_ref().map(|text| parse_listen(text, host, port).map_err(Failure::invalid)).transpose()
    };
    let nfs = parse(&args.nfs, NFS_PORT)?;
    let smb = parse(&args.smb, SMB_PORT)?;
    let sftp = parse(&args.sftp, SFTP_PORT)?;
    let webdav = parse(&args.webdav, WEBDAV_PORT)?;
    let webdavs = parse(&args.webdavs, WEBDAVS_PORT)?;
    let page = args.page.as_ref().map(|text| parse_page_listen(text, host).map_err(Failure::invalid)).transpose()?;
    let insecure_http = args.insecure_http;
    let replication = parse(&args.replication, REPLICATION_PORT)?;
    let portmapper = parse(&args.portmapper, PORTMAPPER_PORT)?;
    let (listen, memory) = (args.listen, args.memory);
    let of_shares = share_options(args)?;
    let (of, read_only) = (args.store.clone(), args.read_only);
    Ok(Box::new(move |config: &mut Config| {
        let at = |addr: Option<SocketAddr>| match (addr, listen) {
            (Some(addr), Some(ip)) => Some(SocketAddr::new(ip, addr.port())),
            (addr, _) => addr,
        };
        config.listen.nfs = nfs.unwrap_or(at(config.listen.nfs));
        config.listen.smb = smb.unwrap_or(at(config.listen.smb));
        config.listen.sftp = sftp.unwrap_or(at(config.listen.sftp));
        config.listen.webdav = webdav.unwrap_or(at(config.listen.webdav));
        config.listen.webdavs = webdavs.unwrap_or(at(config.listen.webdavs));
        let said = page.or(config.page.listen);
        config.page.listen = Some(match said.unwrap_or(PageListen::Usual(SocketAddr::new(host, PAGE_PORT))) {
            PageListen::At(addr) if page.is_none() => PageListen::At(at(Some(addr)).unwrap_or(addr)),
            said => said,
        });
        config.webdav.insecure_http |= insecure_http;
        config.listen.replication = replication.unwrap_or(at(config.listen.replication));
        config.listen.portmapper = portmapper.unwrap_or(at(config.listen.portmapper));
        config.memory = memory.or(config.memory);
        let named = config.stores.iter_mut().filter(|store| read_only && of.as_ref() == Some(&store.bucket.url));
        named.for_each(|store| larder_config::set_store(store, false, read_only));
        of_shares(config);
    }))
}

/// What the options say about shares: written to the file on the first run, and for this run alone later.
fn share_options(args: &UpArgs) -> Result<impl Fn(&mut Config) + Send + Sync + 'static, Failure> {
    let allowed = parse_networks(&args.nfs_allow).map_err(|why| {
        Failure::invalid(why)
            .action("--nfs-allow names a machine or a network that NFS trusts: --nfs-allow 192.168.1.7")
    })?;
    let (squash, any_port) = (args.squash, args.nfs_any_port);
    Ok(move |config: &mut Config| {
        for share in &mut config.shares {
            share.squash = squash.unwrap_or(share.squash);
            share.secure &= !any_port;
            share.allow(&allowed);
        }
    })
}

/// The configuration of a first run, before its pool is known.
fn fresh(args: &UpArgs, data: &Path, disks: Vec<PathBuf>) -> Config {
    let stores: Vec<StoreSettings> = args
        .store
        .iter()
        .map(|url| StoreSettings {
            name: args.store_name.clone(),
            bucket: args.reach.settings(url.clone()),
            seat: args.seat.clone().unwrap_or_default(),
            standby: args.standby,
            cache: args.cache.clone().map(|dir| CacheSettings { dir, bytes: args.cache_size }),
            journal: None,
            read_only: args.read_only.then_some(BEHIND_SECONDS),
            prices: None,
        })
        .collect();
    let has_pool = stores.is_empty() || !disks.is_empty();
    let disks = match disks.is_empty() {
        true => (1..=3).map(|n| data.join(format!("disk{n}"))).collect(),
        false => disks,
    };
    let any = |port| Some(SocketAddr::new(IpAddr::from([0, 0, 0, 0]), port));
    Config {
        data: data.to_owned(),
        listen: Listen {
            nfs: any(NFS_PORT),
            smb: any(SMB_PORT),
            sftp: None,
            webdav: None,
            webdavs: None,
            replication: None,
            portmapper: None,
            metrics: None,
        },
        memory: None,
        connections: CONNECTIONS,
        strangers: ByteSize(BUDGET_BYTES as u64),
        pools: has_pool
            .then(|| PoolConfig { name: args.name.clone(), disks, scrub: Schedule::default() })
            .into_iter()
            .collect(),
        stores,
        volumes: Vec::new(),
        shares: Vec::new(),
        users: Vec::new(),
        groups: Vec::new(),
        ssh_ca_keys: Vec::new(),
        mounts: Vec::new(),
        replicates: Vec::new(),
        replicas: Vec::new(),
        next_uid: 0,
        nfs_domain: None,
        webdav: Default::default(),
        page: PageConfig { listen: None, networks: private_networks(), hosts: Vec::new(), oidc: None, may_run: false },
        discovery: Default::default(),
        alerts: Default::default(),
        ups: None,
        self_tests: Default::default(),
        power: Default::default(),
    }
}

fn layout(args: &UpArgs, disks: usize) -> Layout {
    args.layout.unwrap_or_else(|| layout_default(disks))
}

fn create_options(args: &UpArgs, pool: &PoolConfig) -> CreateOptions {
    CreateOptions::new(&pool.name, layout(args, pool.disks.len()), pool.disks.clone())
}

/// Checks, before anything is made, that the disks belong to one pool or can become one
/// (`up.looks_first`).
fn look_at_disks(args: &UpArgs, config: &Config, json: bool) -> Result<(), Failure> {
    let pool = &config.pools[0];
    no_disk_twice(&pool.disks)?;
    let found = Pool::scan(&pool.disks);
    if !found.is_empty() {
        return no_strangers(&pool.disks, &found);
    }
    // Only the last component of a path is made: a longer one is more likely a typo or a disk not mounted.
    if !args.disks.is_empty()
        && let Some(parent) = pool.disks.iter().filter_map(|disk| disk.parent()).find(|parent| !parent.is_dir())
    {
        let word = shell::word(parent);
        return Err(Failure::not_found(format!("there is no folder {}", parent.display()))
            .action(format!("if a disk belongs there, mount it; for plain folders: mkdir -p {word}")));
    }
    place::fit(&args.disks.iter().map(|disk| absolute(disk)).collect::<Result<Vec<_>, _>>()?, args.force)?;
    pool.disks.iter().try_for_each(|disk| writable(disk))?;
    Pool::plan(&create_options(args, pool)).map_err(|e| translate::pool_error(&e))?;
    match args.disks.is_empty() {
        // Nobody takes them for three disks who is told so once.
        true => out::warn(
            "disk1, disk2 and disk3 are folders on one disk: right for trying larder out, and no help when that disk \
             fails; for real disks: larder up DIR... with one folder on each",
            json,
        ),
        false => super::disk::warn_of(&pool.disks, &[], json),
    }
    Ok(())
}

/// Beside the disks of a pool each folder that is named must be one, too: it would not be used, and who named it would not know.
fn no_strangers(disks: &[PathBuf], found: &[FoundPool]) -> Result<(), Failure> {
    let [pool] = found else {
        let names: Vec<&str> = found.iter().map(|pool| pool.name.as_str()).collect();
        return Err(Failure::invalid(format!("these are disks of several pools: {}", names.join(", ")))
            .action("name those of one pool; which is which: larder pool list DIR..."));
    };
    // One that is away counts by its last path, one whose label is damaged by what else lies on it.
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let known: Vec<PathBuf> = pool.disks.iter().map(|disk| real(&disk.path)).collect();
    let may_be = |disk: &PathBuf| known.contains(&real(disk)) || disk.join("objects").is_dir();
    let Some(stranger) = disks.iter().find(|disk| !may_be(disk)) else { return Ok(()) };
    let (name, show) = (&pool.name, shell::word(stranger));
    Err(Failure::invalid(format!("{} is no disk of the pool '{name}', which the others belong to", stranger.display()))
        .action(format!("leave it out; to make it one, when larder is running: larder pool add {name} {show}")))
}

/// The checks of a person's folders before anything is made: as [`look_at_disks`], for folders that are no pool's.
pub(super) fn look_at_new(disks: &[PathBuf]) -> Result<(), Failure> {
    no_addresses(disks)?;
    place::no_devices(disks)?;
    no_disk_twice(disks)?;
    place::fit(disks, false)?;
    disks.iter().try_for_each(|disk| writable(disk))
}

/// Said before anything about room: a read-only filesystem has none either.
fn writable(disk: &Path) -> Result<(), Failure> {
    let there = if disk.exists() { Some(disk) } else { disk.parent() };
    let flags = there.and_then(|path| rustix::fs::statvfs(path).ok()).map(|stat| stat.f_flag);
    match flags {
        Some(flags) if flags.contains(rustix::fs::StatVfsMountFlags::RDONLY) => {
            let show = disk.display();
            Err(Failure::unavailable(format!("{show} lies on a read-only filesystem")).action(format!(
                "mount it for writing: mount -o remount,rw $(stat -c %m {})",
                disk.parent().unwrap_or(disk).display()
            )))
        }
        _ => Ok(()),
    }
}

/// Two names of one folder would be two copies on one disk.
fn no_disk_twice(disks: &[PathBuf]) -> Result<(), Failure> {
    let mut seen = std::collections::HashMap::new();
    for disk in disks {
        let real = disk.canonicalize().unwrap_or_else(|_| disk.clone());
        if let Some(other) = seen.insert(real, disk) {
            let (a, b) = (other.display(), disk.display());
            let message = if other == disk {
                format!("the disk {a} is named twice")
            } else {
                format!("{a} and {b} are one folder: a disk is named twice")
            };
            return Err(Failure::invalid(message).action("name each disk once"));
        }
    }
    Ok(())
}

/// `--portmapper ADDR:PORT` takes its address with `=` only, and a disk of that name is nobody's wish.
fn no_addresses(disks: &[PathBuf]) -> Result<(), Failure> {
    let is_address = |text: &str| {
        text.parse::<SocketAddr>().is_ok() || text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
    };
    match disks.iter().filter_map(|disk| disk.to_str()).find(|text| is_address(text)) {
        Some(text) => Err(Failure::invalid(format!("{text} is an address, not a folder"))
            .action(format!("did you mean --portmapper={text}? For a folder: ./{text}"))),
        None => Ok(()),
    }
}

fn look_at_mount(dir: &Path) -> Result<(), Failure> {
    let show = dir.display();
    match std::fs::metadata(dir) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(Failure::invalid(format!("cannot mount on {show}: it is not a folder"))),
        Err(e) if is_dead(&e) => Ok(()),
        Err(e) => Err(Failure::io(format_args!("cannot mount on {show}"), &e)
            .action(format!("make the folder: mkdir -p {}", shell::word(dir)))),
    }
}

/// The pool that is on the disks, or a new one.
async fn open_or_create(args: &UpArgs, config: &PoolConfig, data: &Path, memory: ByteSize) -> Result<Store, Failure> {
    let last_lives: Option<Arc<dyn LastLives>> = Some(Remembered::of(data));
    if Pool::scan(&config.disks).is_empty() {
        let options = CreateOptions { last_lives, ..create_options(args, config) };
        let pool = Pool::create(options).await.map_err(|e| translate::pool_error(&e))?;
        return Store::start(pool, memory).await;
    }
    let options = OpenOptions {
        force: args.force,
        degraded: args.degraded,
        last_lives,
        ..OpenOptions::new(config.disks.clone())
    };
    larder_daemon::open_pool(options, memory).await
}

/// A volume, shares of all volumes, and the user: what is missing from a first run.
async fn complete(config: &mut Config, daemon: &Daemon, user: &str, wishes: &Wishes) -> Result<(), Failure> {
    config.users.push(first_user(user));
    let mut pools = daemon.storage.all();
    pools.sort_by_key(|pool| !pool.has_disks());
    for pool in pools {
        let mut names: Vec<String> = pool.volumes().await?.into_iter().map(|v| v.name).collect();
        if names.is_empty() && pool.is_read_only() {
            let message = format!("there is no volume in the store '{}', and nothing is made there", pool.name);
            return Err(
                Failure::not_found(message).action("make one on the machine that writes it: larder volume create NAME")
            );
        }
        let elsewhere = pool.elsewhere().await?;
        if names.is_empty() && elsewhere.is_empty() {
            names.push(VOLUME.to_owned());
        }
        // The volumes of other machines may come here one day: their shares are ready, and rest until then.
        let own = names.len();
        for (at, volume) in names.into_iter().chain(elsewhere.into_iter().map(|(name, _)| name)).enumerate() {
            let name = VolumeName { pool: pool.name.clone(), volume: volume.clone() };
            let change = VolumeChange::default();
            if !pool.is_read_only() && at < own {
                let snapshots = wishes.snapshots;
                config.volumes.push(VolumeConfig { name: name.clone(), change, key: None, snapshots });
            }
            // A pool and a bucket side by side have a volume of the same name each.
            let is_taken = config.shares.iter().any(|share| share.name.eq_ignore_ascii_case(&volume));
            let wished = wishes.share.clone().filter(|_| config.shares.is_empty());
            let share = match wished {
                Some(share) => share,
                None if is_taken => format!("{}-{volume}", pool.name),
                None => volume,
            };
            let share = default_share(&share, Some(name), config);
            config.shares.push(share);
        }
    }
    Ok(())
}

/// Secrets that are said once.
#[derive(Default)]
pub(super) struct Told {
    password: Option<String>,
    recovery_key: Option<String>,
    /// It is the run that made the box.
    first: bool,
}

/// Mounts, and tells scripts or people that everything is there.
pub(super) async fn greet(
    global: &Global,
    args: &UpArgs,
    daemon: &Daemon,
    user: String,
    told: Told,
) -> Result<(), Failure> {
    if let Some(dir) = &args.mount {
        let request = MountRequest {
            dir: dir.clone(),
            volume: mount_volume(daemon).await,
            options: Vec::new(),
            at_start: false,
            snapshot: None,
        };
        daemon.mounting.mount(request).await?;
    }
    // Served, or why not: where nothing can be, the start has failed. What fails beside others is in the log (`daemon.faults_are_named`).
    let shares = daemon.sharing.list();
    let is_served = shares.iter().any(|share| share.locked || share.rests || share.fault.is_none());
    let faults = shares.into_iter().filter_map(|share| Some((share.fault?, share.action)));
    if let Some((fault, action)) = faults.into_iter().next().filter(|_| !is_served) {
        let failure = Failure::unavailable(fault);
        return Err(match action {
            Some(action) => failure.action(action),
            None => failure,
        });
    }
    let Told { password, recovery_key, first } = told;
    let ready = Ready { recovery_key, ..ready(daemon, Some(user), password).await };
    if global.json {
        return announce_json(&ready);
    }
    let pools = daemon.pools.statuses().await;
    let told = first || args.password_file.is_some();
    out::say(&welcome::text(&ready, &pools, &daemon.sharing.list(), &daemon.servers, told));
    Ok(())
}

/// The volume of the first share.
async fn mount_volume(daemon: &Daemon) -> Option<String> {
    daemon.sharing.list().into_iter().map(|share| share.volume).find(|volume| !volume.is_empty())
}
