//! The set-up beside a daemon that serves nothing yet: a service after its installation.
//!
//! - `setup.doors_stay`: the service's doors are open already, at the addresses of its configuration. Choosing doors
//!   says at which of them the share is.

use std::path::Path;
use std::sync::Arc;

use larder_api::endpoints::DrawSetupLink;
use larder_api::{Failure, SetupDoors, SetupImport, SetupLink, SetupPlan};
use larder_base::{SystemClock, shell, task};
use larder_web::Setup;
use tokio_util::sync::CancellationToken;

use super::front::Front;
use super::task::{Order, Ordered, Task, Wanted};
use super::{LAST_PAGE_TIME, PORT, Page, Waiting, Way, arguments, reachable, wishes};
use crate::cli::args::Global;
use crate::cli::reach::{Target, maybe_target};
use crate::cli::up;
use crate::out;
use larder_config::machine;
use larder_config::parse_listen;
use larder_daemon::Daemon;
use larder_document::folder::OF_PACKAGE;

/// Offers the set-up beside a daemon that serves nothing yet: a service after its installation. That daemon makes what a
/// person confirms, and its doors stay where they are.
pub(in crate::cli) fn offer(global: &Global, daemon: &Arc<Daemon>, addr: Option<&str>) -> Result<(), Failure> {
    let data = daemon.folder().path().to_owned();
    let host = [0, 0, 0, 0].into();
    let front = match addr.map(|text| parse_listen(text, host, PORT).map_err(Failure::invalid)).transpose()? {
        Some(None) => return Ok(()),
        Some(Some(addr)) => Front::open(addr, &data)?,
        None => Front::open_near((host, PORT).into(), &data)?,
    };
    let (task, orders) = Task::new(&data, global.json);
    let (setup, token) = Setup::new(task.clone(), Arc::new(SystemClock::default()), true);
    let way = Way::of(&front);
    if global.json {
        let page = Page { url: None, setup: &way.link(&way.here, &token) };
        out::say_json(&Waiting { pid: std::process::id(), page, fingerprint: &way.fingerprint, data: &data })?;
    } else {
        out::say(&offered(&way, &token, global.data.as_deref()));
    }
    let draw = {
        let setup = setup.clone();
        Box::new(move || SetupLink { url: way.link(&way.outward, &setup.draw()), fingerprint: way.fingerprint.clone() })
    };
    let work = run(Arc::clone(daemon), (front, setup), task, orders);
    daemon.setup_offer.begin(draw, work);
    Ok(())
}

fn offered(way: &Way, token: &str, data: Option<&Path>) -> String {
    let link = way.link(&way.outward, token);
    let data = match data {
        Some(data) if data != Path::new(OF_PACKAGE) => format!(" --data {}", shell::word(data)),
        _ => String::new(),
    };
    format!(
        "Nothing is set up yet. Open this link in a browser in the network of this machine:\n\n  {link}\n\n\
         It is good for one browser and for an hour; another one: sudo {}{data} setup-link\n\
         The browser warns of the certificate: it is right if its SHA-256 is\n{}",
        machine::program(),
        way.fingerprint
    )
}

/// Until the last page was read, or there is something to serve in another way.
async fn run(daemon: Arc<Daemon>, (front, setup): (Front, Setup), task: Arc<Task>, mut orders: Ordered) {
    let (stop, over, configured) =
        (daemon.setup_offer.stop(), CancellationToken::new(), daemon.setup_offer.configured());
    let pin = front.tls().pin();
    let serving = task::spawn(front.serve(setup, over.clone()));
    let made = loop {
        let order = tokio::select! {
            order = orders.recv() => order,
            () = configured.cancelled() => None,
            () = stop.cancelled() => None,
        };
        let Some(order) = order else { break None };
        let deed = order.deed();
        let making = carry_out(&daemon, order, &task);
        let made = tokio::select! {
            made = making => made,
            () = stop.cancelled() => break None,
        };
        daemon.watch.set_up(deed, made.as_ref().map(drop).map_err(|(_, failure)| failure)).await;
        match made {
            Ok(made) => break Some(made),
            Err((step, failure)) => {
                tracing::warn!("the set-up failed: {}", failure.message);
                task.failed(step, failure);
            }
        }
    };
    daemon.setup_offer.withdraw();
    if let Some(Made { user, doors }) = made {
        let mut served = reachable(&daemon, &user, doors.nfs_from, pin).await;
        // All doors are open here; the share is not at each.
        served.smb_port = served.smb_port.filter(|_| doors.smb);
        served.sftp = served.sftp.filter(|_| doors.sftp);
        served.webdavs = served.webdavs.filter(|_| doors.webdav);
        task.served(served);
        let left = task.left();
        tokio::select! {
            () = left.cancelled() => {}
            () = tokio::time::sleep(LAST_PAGE_TIME) => {}
            () = stop.cancelled() => {}
        }
    }
    over.cancel();
    let _ = serving.await;
    tracing::info!("the pages of the set-up are closed");
}

/// A box that is made.
struct Made {
    user: String,
    doors: SetupDoors,
}

async fn carry_out(daemon: &Daemon, order: Order, task: &Arc<Task>) -> Result<Made, (&'static str, Failure)> {
    match order.wanted {
        Wanted::Make(plan) => make(daemon, plan, task).await,
        Wanted::Import(import) => Err(("disks", not_while_running(daemon, &import))),
    }
}

/// The doors, keys and numbers of a box are those that its daemon began with.
fn not_while_running(daemon: &Daemon, import: &SetupImport) -> Failure {
    let data = shell::word(daemon.folder().path());
    let folders: Vec<String> = import.folders.iter().map(|folder| shell::word(folder).to_string()).collect();
    Failure::busy("a service that runs does not become another box").action(format!(
        "stop it (sudo systemctl stop larder), then: {} --data {data} up --import {}",
        machine::program(),
        folders.join(" ")
    ))
}

/// A failure comes with the step of the pages that can mend it.
async fn make(daemon: &Daemon, plan: SetupPlan, task: &Arc<Task>) -> Result<Made, (&'static str, Failure)> {
    daemon.blank_config().await.map_err(|failure| ("names", failure))?;
    let disks = task.prepare(&plan).await.map_err(|failure| ("disks", failure))?;
    let args = up::no_words().and_then(|args| arguments(&args, &plan, disks));
    let args = args.map_err(|failure| ("names", failure))?;
    let doors = plan.doors.clone();
    let wishes = wishes(plan, task);
    let user = up::make_beside(daemon, &args, &doors, &wishes).await.map_err(|failure| ("names", failure))?;
    task.forget_plan();
    daemon.watch.config_fault(Ok(()));
    Ok(Made { user, doors })
}

/// `larder setup-link`
pub(in crate::cli) async fn print_link(global: &Global) -> Result<(), Failure> {
    match maybe_target(global).await? {
        Some(Target::Daemon(client)) => global.out().answer(&client.ask(DrawSetupLink).await?, |link| {
            format!(
                "{}\n\nIt is good for one browser and for an hour; links before this one are good no more.\n\
                 The browser warns of the certificate: it is right if its SHA-256 is\n{}\n",
                link.url, link.fingerprint
            )
        }),
        _ => Err(Failure::not_found("no larder is running here, so there is no set-up")
            .action("start it: sudo systemctl start larder; without a service: larder up")),
    }
}
