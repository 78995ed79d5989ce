//! Shares and their doors.

use askama::Template;
use larder_api::endpoints::{AddShare, GetInfo, GetShares, GetVolumes, RemoveShare, SetShare};
use larder_api::{DaemonInfo, Failure, ShareAdd, ShareChange, ShareChanged, ShareStatus, ShareUsers};

use super::pools::Level;
use crate::note::Note;
use crate::shell_words::on_page;
use crate::visit::{Answer, Frame, Local, Visit, page as show};

pub struct DoorView {
    pub name: &'static str,
    pub field: &'static str,
    pub is_open: bool,
    /// The daemon answers there at all.
    pub is_served: bool,
}

pub struct ShareView {
    pub name: String,
    pub place: String,
    pub doors: [DoorView; 4],
    pub nfs_rule: String,
    pub smb_rule: String,
    pub users: String,
    pub networks: String,
    pub everybody: bool,
    pub read_only: bool,
    pub snapshots_shown: bool,
    pub options: Vec<String>,
    /// As the form has it: empty where there is no bin.
    pub recycle_days: String,
    pub fault: Option<String>,
    pub action: Option<String>,
    pub level: Level,
}

impl ShareView {
    fn of(share: &ShareStatus, info: &DaemonInfo) -> Self {
        let place = match (share.volume.is_empty(), share.folder.is_empty()) {
            (true, _) => format!("folder {} of this machine", share.folder),
            (false, true) => share.volume.clone(),
            (false, false) => format!("{}/{}", share.volume, share.folder),
        };
        let door = |name, field, is_open, is_served| DoorView { name, field, is_open, is_served };
        Self {
            name: share.name.clone(),
            place,
            doors: [
                door("NFS", "nfs", share.nfs.is_some(), info.nfs.is_some()),
                door("SMB", "smb", share.smb.is_some(), info.smb.is_some()),
                door("SFTP", "sftp", share.sftp, info.sftp.is_some()),
                door("WebDAV", "webdav", share.webdav, info.webdav.or(info.webdavs).is_some()),
            ],
            nfs_rule: share.nfs_rule.clone(),
            smb_rule: share.smb_rule.clone(),
            users: share.users.join(", "),
            networks: share.networks.join(", "),
            everybody: share.everybody,
            read_only: share.read_only,
            snapshots_shown: share.snapshots_shown,
            options: share.options.clone(),
            recycle_days: share.recycle_days.map(|days| days.to_string()).unwrap_or_default(),
            level: match (&share.fault, share.locked || share.rests) {
                (None, _) => Level::Fine,
                (Some(_), true) => Level::Warn,
                (Some(_), false) => Level::Bad,
            },
            fault: share.fault.as_deref().map(on_page),
            action: share.action.as_deref().map(on_page),
        }
    }
}

#[derive(Template)]
#[template(path = "sharing.html")]
struct SharingPage {
    frame: Frame,
    shares: Vec<ShareView>,
    volumes: Vec<String>,
}

pub async fn page(visit: &Visit<'_>) -> Answer {
    let info = visit.ask(GetInfo).await?;
    let shares = visit.ask(GetShares).await?;
    let volumes = visit.ask(GetVolumes).await?;
    show(&SharingPage {
        frame: visit.frame("sharing", "Shares"),
        shares: shares.iter().map(|share| ShareView::of(share, &info)).collect(),
        volumes: volumes.iter().map(|volume| format!("{}/{}", volume.pool, volume.name)).collect(),
    })
}

fn told(changed: ShareChanged, done: &str) -> Note {
    Note::done(format!("The share {} {done}.", changed.share.name)).with(changed.notes)
}

fn users(visit: &Visit<'_>) -> ShareUsers {
    if visit.form.is_checked("everybody") { ShareUsers::All } else { ShareUsers::Listed(visit.form.words("users")) }
}

pub async fn add(visit: &Visit<'_>) -> Answer {
    let change = async {
        let request = ShareAdd {
            name: visit.required("name", "the name of the share")?,
            volume: visit.form.filled("volume"),
            folder: visit.form.filled("folder"),
            change: ShareChange {
                users: Some(users(visit)),
                read_only: visit.form.is_checked("read_only").then_some(true),
                ..ShareChange::default()
            },
        };
        Ok(told(visit.call(AddShare, (), &request).await?, "is there"))
    };
    visit.back(Local::of("/sharing"), change.await)
}

/// The form has all doors and both boxes, so an absent one was unchecked. What is as it was is not asked for.
pub async fn set(visit: &Visit<'_>) -> Answer {
    let change = async {
        let name = visit.required("share", "the share")?;
        let shares = visit.ask(GetShares).await?;
        let before = shares.iter().find(|share| share.name == name);
        let before = before.ok_or_else(|| Failure::not_found(format!("there is no share {name}")))?;
        let wanted = |field: &str, is: bool| Some(visit.form.is_checked(field)).filter(|wanted| *wanted != is);
        let users = users(visit);
        let as_before = match &users {
            ShareUsers::All => before.everybody,
            ShareUsers::Listed(names) => !before.everybody && *names == before.users,
        };
        let recycle_days = match visit.form.text("recycle_days") {
            "" => 0,
            days => days.parse().map_err(|_| Failure::invalid(format!("'{days}' is no number of days")))?,
        };
        let networks = visit.form.words("networks");
        let request = ShareChange {
            nfs: wanted("nfs", before.nfs.is_some()),
            smb: wanted("smb", before.smb.is_some()),
            sftp: wanted("sftp", before.sftp),
            webdav: wanted("webdav", before.webdav),
            read_only: wanted("read_only", before.read_only),
            users: (!as_before).then_some(users),
            recycle_days: Some(recycle_days).filter(|days| *days != before.recycle_days.unwrap_or(0)),
            snapshots_shown: wanted("snapshots_shown", before.snapshots_shown),
            usual_networks: networks.is_empty() && !before.networks.is_empty(),
            networks: Some(networks).filter(|networks| !networks.is_empty() && *networks != before.networks),
            ..ShareChange::default()
        };
        Ok(told(visit.call(SetShare, &name, &request).await?, "is changed"))
    };
    visit.back(Local::of("/sharing"), change.await)
}

pub async fn remove(visit: &Visit<'_>) -> Answer {
    let change = async {
        let name = visit.required("share", "the share")?;
        visit.typed(&name)?;
        visit.about(RemoveShare, &name).await?;
        Ok(Note::done(format!("The share {name} has ended. Its files stay.")))
    };
    visit.back(Local::of("/sharing"), change.await)
}
