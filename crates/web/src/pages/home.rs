//! The first page: one sentence, and the box as a picture.

use std::sync::Arc;

use askama::Template;
use futures::future::BoxFuture;
use larder_api::endpoints::{GetAlerts, GetInfo, GetPoolsKnown, GetReplications, GetShares, GetSnapshotSchedules};
use larder_api::{AlertStatus, DaemonInfo, Failure, PoolStatus, ReplicationStatus, ShareStatus, SnapshotSchedule};

use super::alerts::level;
use super::connections::{self, Connections};
use super::pools::{self, Level, PoolView};
use crate::ask;
use crate::live::{self, Look, Watch};
use crate::shell_words::on_page;
use crate::text::{counted, duration, percent, size};
use crate::visit::{Answer, Frame, Server, Visit, page as show, rendered};

/// Alerts of what pools, shares, schedules and replications say themselves.
const TOLD_ABOVE: [&str; 10] = [
    "disk-missing",
    "disk-failed",
    "disk-out-of-use",
    "disk-errors",
    "pool-degraded",
    "pool-faulted",
    "data-lost",
    "replica-late",
    "snapshots-failing",
    "share-down",
];

/// Something that is wrong, what helps, and the page where it is done.
pub struct Concern {
    pub level: Level,
    pub title: String,
    pub text: String,
    pub action: Vec<String>,
    pub href: &'static str,
    pub link: &'static str,
}

#[derive(Template)]
#[template(path = "parts/overview.html")]
struct Overview {
    level: Level,
    headline: String,
    room: String,
    concerns: Vec<Concern>,
    pools: Vec<PoolView>,
    doors: Vec<Door>,
    shares: Vec<String>,
    version: String,
    uptime: String,
    memory: String,
    /// Absent until a stream brings it: a look takes a second, which no page waits for.
    connections: Option<String>,
}

pub struct Door {
    pub name: &'static str,
    pub addr: String,
}

#[derive(Template)]
#[template(path = "home.html")]
struct HomePage {
    frame: Frame,
    overview: String,
}

pub async fn page(visit: &Visit<'_>) -> Answer {
    let info = visit.ask(GetInfo).await?;
    let pools = visit.ask(GetPoolsKnown).await?;
    let shares = visit.ask(GetShares).await?;
    let schedules = visit.ask(GetSnapshotSchedules).await?;
    let replications = visit.ask(GetReplications).await?;
    let alerts = visit.ask(GetAlerts).await?.open;
    let others = concerns(&shares, &schedules, &replications.replications, &alerts);
    show(&HomePage {
        frame: visit.frame("home", "Home"),
        overview: rendered(&overview(&pools, others, (info, &shares), None))?,
    })
}

/// Concerns that are not of pools stay as the page has them until it is loaded again: they change by no scrub.
pub async fn live(visit: &Visit<'_>) -> Answer {
    let shares = visit.ask(GetShares).await?;
    let schedules = visit.ask(GetSnapshotSchedules).await?;
    let replications = visit.ask(GetReplications).await?.replications;
    let alerts = visit.ask(GetAlerts).await?.open;
    live::stream(visit, HomeWatch { shares, schedules, replications, alerts })
}

/// Draws pools, connections and the time since the start anew as they change (`live.wakes_nothing`).
struct HomeWatch {
    shares: Vec<ShareStatus>,
    schedules: Vec<SnapshotSchedule>,
    replications: Vec<ReplicationStatus>,
    alerts: Vec<AlertStatus>,
}

impl Watch for HomeWatch {
    fn look<'a>(&'a mut self, server: &'a Arc<Server>) -> BoxFuture<'a, Result<Look, Failure>> {
        Box::pin(async move {
            let top = connections::look(server).await?;
            let pools = ask::call(&*server.ask, None, GetPoolsKnown, (), None).await?;
            let others = concerns(&self.shares, &self.schedules, &self.replications, &self.alerts);
            let info = ask::call(&*server.ask, None, GetInfo, (), None).await?;
            let connections = rendered(&Connections::of(&top))?;
            let fragment = rendered(&overview(&pools, others, (info, &self.shares), Some(connections)))?;
            Ok(Look { fragment, again: pools::again(&pools).min(connections::again(&top)) })
        })
    }
}

fn doors(info: &DaemonInfo) -> Vec<Door> {
    let all = [
        ("NFS", info.nfs),
        ("SMB", info.smb),
        ("SFTP", info.sftp),
        ("WebDAV", info.webdavs),
        ("WebDAV, no TLS", info.webdav),
    ];
    all.into_iter().filter_map(|(name, addr)| Some(Door { name, addr: addr?.to_string() })).collect()
}

fn concerns(
    shares: &[ShareStatus],
    schedules: &[SnapshotSchedule],
    replications: &[ReplicationStatus],
    alerts: &[AlertStatus],
) -> Vec<Concern> {
    let mut all = Vec::new();
    for share in shares.iter().filter(|share| !share.rests) {
        let Some(fault) = &share.fault else { continue };
        all.push(Concern {
            level: if share.locked { Level::Warn } else { Level::Bad },
            title: format!("The share {} is not served", share.name),
            text: on_page(fault),
            action: share.action.iter().map(|action| on_page(action)).collect(),
            href: "/+/sharing",
            link: "Open shares",
        });
    }
    for schedule in schedules {
        let Some(fault) = &schedule.fault else { continue };
        all.push(Concern {
            level: Level::Warn,
            title: format!("Snapshots of {}/{} are behind", schedule.pool, schedule.volume),
            text: on_page(fault),
            action: Vec::new(),
            href: "/+/care",
            link: "Open care",
        });
    }
    for one in replications {
        let text = match (&one.fault, one.late) {
            (Some(fault), _) => on_page(fault),
            (None, true) => "The newest snapshot there is older than it may be.".to_owned(),
            (None, false) => continue,
        };
        all.push(Concern {
            level: Level::Warn,
            title: format!("The replica of {} on {} is behind", one.volume, one.to),
            text,
            action: Vec::new(),
            href: "/+/care",
            link: "Open care",
        });
    }
    let is_told = |alert: &&AlertStatus| TOLD_ABOVE.contains(&alert.event.as_str());
    let worth_a_look = alerts.iter().filter(|alert| level(alert) > Level::Fine && !alert.acknowledged);
    all.extend(worth_a_look.filter(|alert| !is_told(alert)).map(|alert| Concern {
        level: level(alert),
        title: alert.text.clone(),
        text: on_page(&alert.action),
        action: Vec::new(),
        href: "/+/alerts",
        link: "Open alerts",
    }));
    all
}

fn overview(
    pools: &[PoolStatus],
    others: Vec<Concern>,
    (info, shares): (DaemonInfo, &[ShareStatus]),
    connections: Option<String>,
) -> Overview {
    let views: Vec<PoolView> = pools.iter().map(PoolView::of).collect();
    let of_pools = views.iter().filter(|pool| pool.level > Level::Fine).map(|pool| Concern {
        level: pool.level,
        title: format!(
            "The pool {} is {}",
            pool.name,
            if pool.state == "ONLINE" { "online, with a fault" } else { &pool.state }
        ),
        text: pool.status.clone().unwrap_or_default(),
        action: pool.action.clone(),
        href: "/+/storage",
        link: "Open storage",
    });
    let concerns: Vec<Concern> = of_pools.chain(others).collect();
    let sum = |bytes: fn(&PoolStatus) -> u64| pools.iter().fold(0u64, |sum, pool| sum.saturating_add(bytes(pool)));
    let (used, total) = (sum(|pool| pool.used_bytes), sum(|pool| pool.total_bytes));
    let level = concerns.iter().map(|concern| concern.level).max().unwrap_or(Level::Fine);
    let headline = match (pools.is_empty(), concerns.len()) {
        (true, 0) => "There is no pool yet.".to_owned(),
        (false, 0) => "Everything is healthy.".to_owned(),
        (_, count) => format!("{} your attention.", counted(count, "thing needs", "things need")),
    };
    let room = match pools.is_empty() {
        true => "A pool is made of disks by the command larder up.".to_owned(),
        false => {
            let part = if u128::from(used) * 100 < u128::from(total) {
                "less than 1".to_owned()
            } else {
                percent(used, total).to_string()
            };
            format!("{} of {} used, {part} %.", size(used), size(total))
        }
    };
    Overview {
        level,
        headline,
        room,
        concerns,
        pools: views,
        doors: doors(&info),
        shares: shares.iter().filter(|share| share.fault.is_none()).map(|share| share.name.clone()).collect(),
        uptime: duration(info.uptime_secs),
        memory: size(info.memory_bytes),
        version: info.version,
        connections,
    }
}
