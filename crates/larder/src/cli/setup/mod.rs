//! The first run in a browser: `larder up` without folders, or a service without a configuration.
//!
//! The pages are those of [`larder_web::Setup`], on a port of their own (`front`). What a person confirmed there is made by the
//! code of `larder up DIR...` (`task` prepares it), and then served by this process. The pages stay until the last of them
//! was read, and end with it.
//!
//! - `setup.plan_first`: the plan is written into the data folder, without the password, before anything is made. Whoever
//!   begins again after a crash is offered to go on.
//! - `setup.one_process`: making fails back to the pages; it never ends the process.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use larder_api::{Failure, FailureKind, SetupImport, SetupNfs, SetupPlan, SetupSecure, SetupServed, SnapshotCounts};
use larder_base::SystemClock;
use larder_web::Setup;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::args::{Global, UpArgs};
use super::reborn::Import;
use super::serve::{Signals, Word, ready, until_stopped};
use super::up::{self, Wishes};
use crate::out;
use larder_config::machine;
use larder_config::{
    NFS_PORT, PAGE_PORT, REPLICATION_PORT, SFTP_PORT, SMB_PORT, WEBDAV_PORT, WEBDAVS_PORT, parse_listen,
};
use larder_copies::box_record::found;
use larder_daemon::Daemon;
use larder_document::folder::DataFolder;

pub(super) mod beside;
mod front;
mod task;

use front::Front;
use task::{Order, Ordered, Task, Wanted};

const PORT: u16 = 10444;
/// How long the last page can be read.
const LAST_PAGE_TIME: Duration = Duration::from_secs(900);
/// Windows before 11 knows this port of SMB alone.
const SMB_PORT_OF_WINDOWS: u16 = 445;
/// The schedule of a person who asked for snapshots and for no schedule.
const SNAPSHOTS: SnapshotCounts = SnapshotCounts { hourly: 24, daily: 30, weekly: 8, monthly: 12 };

/// The line of `--json` while a box waits for its set-up.
#[derive(Serialize)]
struct Waiting<'a> {
    pid: u32,
    page: Page<'a>,
    fingerprint: &'a str,
    data: &'a Path,
}

#[derive(Serialize)]
struct Page<'a> {
    url: Option<&'a str>,
    setup: &'a str,
}

pub(super) async fn run(global: &Global, args: UpArgs, data: &Path) -> Result<(), Failure> {
    let mut folder = Some(DataFolder::claim(data)?);
    let data = folder.as_ref().map_or(data, DataFolder::path).to_owned();
    let host = args.listen.unwrap_or([0, 0, 0, 0].into());
    let addr = args.setup.as_ref().map(|text| parse_listen(text, host, PORT).map_err(Failure::invalid)).transpose()?;
    let front = match addr {
        Some(Some(addr)) => Front::open(addr, &data)?,
        Some(None) => {
            return Err(Failure::invalid("there is no configuration, no folder is named, and --setup is off").action(
                "name one folder for each disk: larder up DIR...; or leave --setup out and set it up in a browser",
            ));
        }
        None => Front::open_near((host, PORT).into(), &data)?,
    };
    check_apart(front.addr(), &args, host)?;
    let (task, mut orders) = Task::new(&data, global.json);
    let (setup, token) = Setup::new(task.clone(), Arc::new(SystemClock::default()), true);
    announce(global, &front, &token, &data)?;
    let stop = CancellationToken::new();
    let tls = front.tls();
    let serving = larder_base::task::spawn(front.serve(setup, stop.clone()));
    let mut signals = Signals::new()?;
    let made = loop {
        let Some(order) = next(&mut signals, &mut orders).await else { break None };
        let claimed = match folder.take() {
            Some(folder) => folder,
            None => DataFolder::claim(&data)?,
        };
        let deed = order.deed();
        tokio::select! {
            made = carry_out(global, &args, claimed, order, &task) => match made {
                Ok(made) => {
                    made.daemon.watch.set_up(deed, Ok(())).await;
                    break Some(made);
                }
                Err((step, failure)) => {
                    tracing::warn!("the set-up failed: {}", failure.message);
                    deed.failed(&data, &failure);
                    task.failed(step, failure);
                }
            },
            () = stopped(&mut signals) => break None,
        }
    };
    drop(signals);
    let Some(made) = made else {
        stop.cancel();
        let _ = serving.await;
        return Ok(());
    };
    let closing = {
        let (stop, left) = (stop.clone(), task.left());
        larder_base::task::spawn(async move {
            tokio::select! {
                () = left.cancelled() => {}
                () = tokio::time::sleep(LAST_PAGE_TIME) => {}
                () = stop.cancelled() => {}
            }
            stop.cancel();
        })
    };
    let Made { daemon, args, user, nfs_from } = made;
    let served = until_stopped(daemon, async |daemon| {
        let pin = tls.pin();
        task.served(reachable(daemon, &user, nfs_from, pin).await);
        // A password that a person typed in a browser stays out of logs.
        up::greet(global, &args, daemon, user, up::Told::default()).await
    })
    .await;
    stop.cancel();
    let _ = (serving.await, closing.await);
    served
}

/// Refuses a door of the box at the place of the pages, before anybody has gone through them: it could not be opened at their end.
fn check_apart(pages: SocketAddr, args: &UpArgs, host: IpAddr) -> Result<(), Failure> {
    let usual = |given: &Option<String>, port: u16| Some(given.clone().unwrap_or_else(|| format!(":{port}")));
    let doors = [
        ("--smb", usual(&args.smb, SMB_PORT_OF_WINDOWS), SMB_PORT_OF_WINDOWS),
        ("--smb", usual(&args.smb, SMB_PORT), SMB_PORT),
        ("--nfs", usual(&args.nfs, NFS_PORT), NFS_PORT),
        ("--sftp", usual(&args.sftp, SFTP_PORT), SFTP_PORT),
        ("--webdavs", usual(&args.webdavs, WEBDAVS_PORT), WEBDAVS_PORT),
        ("--webdav", args.webdav.clone(), WEBDAV_PORT),
        ("--page", usual(&args.page, PAGE_PORT), PAGE_PORT),
        ("--replication", args.replication.clone(), REPLICATION_PORT),
    ];
    for (option, text, port) in doors {
        let Some(text) = text else { continue };
        let Some(door) = parse_listen(&text, host, port).map_err(Failure::invalid)? else { continue };
        let is_one_host = door.ip() == pages.ip() || door.ip().is_unspecified() || pages.ip().is_unspecified();
        if door.port() == pages.port() && is_one_host {
            let message =
                format!("the pages of the set-up and the door of {option} cannot both have port {}", door.port());
            return Err(Failure::invalid(message)
                .action(format!("name another port for one of them: --setup :PORT, or {option} :PORT")));
        }
    }
    Ok(())
}

/// The addresses of the pages.
struct Way {
    here: String,
    outward: String,
    port: u16,
    fingerprint: String,
}

impl Way {
    fn of(front: &Front) -> Self {
        let (here, outward) = (machine::host_local(front.addr()), machine::host_outward(front.addr()));
        Self { here, outward, port: front.addr().port(), fingerprint: front.fingerprint() }
    }

    fn link(&self, host: &str, token: &str) -> String {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        format!("https://{host}:{}/setup/{token}", self.port)
    }
}

/// A box that is made.
struct Made {
    daemon: Daemon,
    args: UpArgs,
    user: String,
    nfs_from: Option<std::net::IpAddr>,
}

/// `None`: larder is told to stop.
async fn next(signals: &mut Signals, orders: &mut Ordered) -> Option<Order> {
    tokio::select! {
        order = orders.recv() => order,
        () = stopped(signals) => None,
    }
}

async fn stopped(signals: &mut Signals) {
    while matches!(signals.next().await, Word::Reload) {}
}

async fn carry_out(
    global: &Global,
    args: &UpArgs,
    folder: DataFolder,
    order: Order,
    task: &Arc<Task>,
) -> Result<Made, (&'static str, Failure)> {
    match order.wanted {
        Wanted::Make(plan) => make(global, args, folder, plan, task).await,
        Wanted::Import(import) => {
            reborn(global, args, folder, import, task).await.map_err(|failure| ("disks", failure))
        }
    }
}

/// The box that these disks hold, as `larder up --import` has it.
async fn reborn(
    global: &Global,
    args: &UpArgs,
    folder: DataFolder,
    import: SetupImport,
    task: &Arc<Task>,
) -> Result<Made, Failure> {
    let data = folder.path().to_owned();
    let SetupImport { folders, secret, force } = import;
    let args = UpArgs { force: force || args.force, password_file: None, ..args.clone() };
    let stores = up::stores_of(&args, &data);
    let opened = Import::open(&args, (folders, stores), folder, found::secret_of(&secret)).await?;
    opened.finish(None).await?;
    task.reached(1);
    let (daemon, user) = up::resume(global, &args, &data).await?;
    Ok(Made { daemon, args, user, nfs_from: None })
}

/// Disks first, then all that `larder up` does. A failure comes with the step of the pages that can mend it.
async fn make(
    global: &Global,
    args: &UpArgs,
    folder: DataFolder,
    plan: SetupPlan,
    task: &Arc<Task>,
) -> Result<Made, (&'static str, Failure)> {
    let disks = task.prepare(&plan).await.map_err(|failure| ("disks", failure))?;
    let nfs_from = plan.doors.nfs_from;
    let args = arguments(args, &plan, disks).map_err(|failure| ("names", failure))?;
    let wishes = wishes(plan, task);
    let made = up::make(global, &args, folder, &wishes).await;
    let (daemon, user, _) = made.map_err(|failure| ("names", failure))?;
    task.forget_plan();
    Ok(Made { daemon, args, user, nfs_from })
}

fn wishes(plan: SetupPlan, task: &Arc<Task>) -> Wishes {
    let (task, before) = (Arc::clone(task), task.steps_of_devices(&plan));
    Wishes {
        password: Some(plan.password),
        share: Some(plan.share),
        snapshots: plan.snapshots.then_some(SNAPSHOTS),
        box_name: Some(plan.box_name).filter(|name| !name.is_empty()),
        steps: Box::new(move |step| task.reached(before + step)),
    }
}

/// What a person chose, as the options of `larder up` say it. Options that were given stay.
fn arguments(args: &UpArgs, plan: &SetupPlan, disks: Vec<PathBuf>) -> Result<UpArgs, Failure> {
    let door = |is_open: bool, given: &Option<String>, port: u16| match is_open {
        false => Some("off".to_owned()),
        true => given.clone().or_else(|| Some(format!(":{port}"))),
    };
    let smb_port = if may_bind(SMB_PORT_OF_WINDOWS) { SMB_PORT_OF_WINDOWS } else { SMB_PORT };
    let layout = plan.layout.parse().map_err(|e: larder_pool::ParseLayoutError| Failure::invalid(e.to_string()))?;
    Ok(UpArgs {
        disks,
        layout: Some(layout),
        user: Some(plan.user.clone()),
        smb: door(plan.doors.smb, &args.smb, smb_port),
        nfs: door(plan.doors.nfs, &args.nfs, NFS_PORT),
        sftp: door(plan.doors.sftp, &args.sftp, SFTP_PORT),
        webdavs: door(plan.doors.webdav, &args.webdavs, WEBDAVS_PORT),
        nfs_allow: args.nfs_allow.iter().cloned().chain(plan.doors.nfs_from.map(|addr| addr.to_string())).collect(),
        // Named by the person, whatever an option says.
        password_file: None,
        ..args.clone()
    })
}

fn may_bind(port: u16) -> bool {
    std::net::TcpListener::bind(("0.0.0.0", port)).is_ok()
}

fn announce(global: &Global, front: &Front, token: &str, data: &Path) -> Result<(), Failure> {
    let way = Way::of(front);
    let (here, outward) = (way.link(&way.here, token), way.link(&way.outward, token));
    let fingerprint = way.fingerprint;
    if global.json {
        let page = Page { url: None, setup: &here };
        return out::say_json(&Waiting { pid: std::process::id(), page, fingerprint: &fingerprint, data });
    }
    let mut text = format!("This box is not set up yet. Open this link in a browser in its network:\n\n  {outward}\n");
    if here != outward {
        text.push_str(&format!("\nOn this machine itself:\n\n  {here}\n"));
    }
    text.push_str(&format!(
        "\nIt is good for one browser and for an hour. The browser warns of the certificate: it is right if its SHA-256 is\n\
         {fingerprint}\n\nOr name one folder for each disk: {} up DIR...\nStop with Ctrl-C.",
        machine::program()
    ));
    out::say(&text);
    Ok(())
}

async fn reachable(
    daemon: &Daemon,
    user: &str,
    nfs_from: Option<std::net::IpAddr>,
    pin: Option<String>,
) -> SetupServed {
    let ready = ready(daemon, None, None).await;
    let servers = &daemon.servers;
    let share = daemon.sharing.list().into_iter().next();
    let any = [servers.smb_addr(), servers.webdavs_addr(), servers.sftp_addr(), servers.nfs_addr()];
    let host = any.into_iter().flatten().next().map_or_else(machine::host_name, machine::host_outward);
    let secure = |port: u16, fingerprint: Option<&str>| SetupSecure {
        port,
        fingerprint: fingerprint.unwrap_or_default().to_owned(),
    };
    let recovery_key = daemon.record.first_recovery_key().await.unwrap_or_else(|failure| {
        tracing::warn!("{}", failure.message);
        None
    });
    SetupServed {
        recovery_key,
        host,
        user: user.to_owned(),
        share: share.map(|share| share.name).unwrap_or_default(),
        smb_port: ready.smb.map(|smb| smb.port),
        nfs: ready.nfs.and_then(|nfs| Some(SetupNfs { port: nfs.port, export: nfs.export?, from: nfs_from })),
        sftp: ready.sftp.map(|sftp| secure(sftp.port, servers.sftp_fingerprint())),
        webdavs: ready.webdavs.map(|webdavs| secure(webdavs.port, servers.webdavs_fingerprint())),
        page_port: servers.page_addr().map(|addr| addr.port()),
        pin,
    }
}

/// A failure of a file in the data folder or of a port, with the way out.
fn port_failure(addr: std::net::SocketAddr, error: &std::io::Error) -> Failure {
    let failure = Failure::io(format_args!("the set-up cannot listen on {addr}"), error);
    match failure.kind {
        FailureKind::Busy => failure.action("choose another port: larder up --setup :PORT"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_door_at_the_place_of_the_pages_is_refused() {
        let check = |pages: &str, change: fn(&mut UpArgs), refused: Option<&str>| {
            let mut args = up::no_words().unwrap();
            change(&mut args);
            let checked = check_apart(pages.parse().unwrap(), &args, [0, 0, 0, 0].into());
            let said = checked.err().map(|failure| failure.message);
            assert_eq!(said.is_some(), refused.is_some(), "{pages}: {said:?}");
            assert!(refused.is_none_or(|word| said.unwrap().contains(word)), "{pages}");
        };
        check("0.0.0.0:10444", |_| (), None);
        check("0.0.0.0:9443", |args| args.webdavs = Some(":9443".to_owned()), Some("--webdavs"));
        check("0.0.0.0:9443", |args| args.webdav = Some("127.0.0.1:9443".to_owned()), Some("--webdav "));
        check("127.0.0.1:9443", |args| args.webdavs = Some("127.0.0.2:9443".to_owned()), None);
        // The usual ports are doors, too, unless they are elsewhere or shut.
        check("0.0.0.0:10443", |_| (), Some("10443"));
        check("0.0.0.0:10022", |_| (), Some("--sftp"));
        check("0.0.0.0:10022", |args| args.sftp = Some("off".to_owned()), None);
        check("0.0.0.0:12077", |_| (), None);
    }
}
