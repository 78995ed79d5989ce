//! Shares and their doors.

use askama::Template;
use larder_api::endpoints::{AddShare, GetInfo, GetShares, GetVolumes, RemoveShare, SetShare};
use larder_api::{DaemonInfo, Failure, ShareAdd, ShareChange, ShareChanged, ShareStatus, ShareUsers};
use serde::{Deserialize, Serialize};

use super::pools::Level;
use crate::edit::{Edit, stamp};
use crate::form::Form;
use crate::note::Note;
use crate::shell_words::on_page;
use crate::visit::{Answer, Frame, Local, Visit, page as show};

pub struct DoorView {
    pub name: &'static str,
    pub field: &'static str,
    pub is_open: bool,
    /// In the form.
    pub is_checked: bool,
    /// The daemon answers there at all.
    pub is_served: bool,
}

pub struct ShareView {
    pub name: String,
    pub place: String,
    pub doors: [DoorView; 4],
    pub nfs_rule: String,
    pub smb_rule: String,
    pub options: Vec<String>,
    pub form: ShareForm,
    /// The state that `form` is about (`edit.only_changes_sent`).
    pub shown: String,
    /// The form was refused and waits for another answer.
    pub is_refused: bool,
    pub fault: Option<String>,
    pub action: Option<String>,
    pub level: Level,
}

/// The lists of people, which mean something together alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeopleFields {
    pub everybody: bool,
    /// Users and @groups who may write, unless the share is read-only.
    pub users: Vec<String>,
    pub readers: Vec<String>,
}

impl PeopleFields {
    fn typed(form: &Form) -> Self {
        let (users, readers) = (form.words("users"), form.words("readers"));
        Self { everybody: form.is_checked("everybody"), users, readers }
    }

    fn users(&self) -> ShareUsers {
        if self.everybody { ShareUsers::All } else { ShareUsers::Listed(self.users.clone()) }
    }

    /// Refuses a name whose two entries contradict each other.
    fn check(&self) -> Result<(), Failure> {
        let Some(name) = self.readers.iter().find(|name| !self.everybody && self.users.contains(name)) else {
            return Ok(());
        };
        let failure =
            Failure::invalid(format!("{name} is in both lists: of those who write and of those who only read"));
        Err(failure.action(format!("Take {name} out of one of them")))
    }
}

/// The fields of the form that changes a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareForm {
    pub nfs: bool,
    pub smb: bool,
    pub sftp: bool,
    pub webdav: bool,
    pub read_only: bool,
    pub snapshots_shown: bool,
    /// Empty where there is no bin.
    pub recycle_days: String,
    pub people: PeopleFields,
    pub networks: Vec<String>,
}

impl ShareForm {
    fn of(share: &ShareStatus) -> Self {
        let readers = share.read_only_users.clone();
        let users = share.users.iter().filter(|name| !readers.contains(name)).cloned().collect();
        Self {
            nfs: share.nfs.is_some(),
            smb: share.smb.is_some(),
            sftp: share.sftp,
            webdav: share.webdav,
            read_only: share.read_only,
            snapshots_shown: share.snapshots_shown,
            recycle_days: share.recycle_days.map(|days| days.to_string()).unwrap_or_default(),
            people: PeopleFields { everybody: share.everybody, users, readers },
            networks: share.networks.clone(),
        }
    }

    /// The form has all doors and boxes, so an absent one was unchecked.
    fn typed(form: &Form) -> Self {
        Self {
            nfs: form.is_checked("nfs"),
            smb: form.is_checked("smb"),
            sftp: form.is_checked("sftp"),
            webdav: form.is_checked("webdav"),
            read_only: form.is_checked("read_only"),
            snapshots_shown: form.is_checked("snapshots_shown"),
            recycle_days: form.text("recycle_days").to_owned(),
            people: PeopleFields::typed(form),
            networks: form.words("networks"),
        }
    }
}

impl ShareView {
    fn of(share: &ShareStatus, info: &DaemonInfo, refused: Option<ShareForm>) -> Self {
        let place = match (share.volume.is_empty(), share.folder.is_empty()) {
            (true, _) => format!("folder {} of this machine", share.folder),
            (false, true) => share.volume.clone(),
            (false, false) => format!("{}/{}", share.volume, share.folder),
        };
        let now = ShareForm::of(share);
        let shown = stamp(&now);
        let is_refused = refused.is_some();
        let form = refused.unwrap_or(now);
        let door =
            |name, field, is_open, is_served, is_checked| DoorView { name, field, is_open, is_checked, is_served };
        Self {
            name: share.name.clone(),
            place,
            doors: [
                door("NFS", "nfs", share.nfs.is_some(), info.nfs.is_some(), form.nfs),
                door("SMB", "smb", share.smb.is_some(), info.smb.is_some(), form.smb),
                door("SFTP", "sftp", share.sftp, info.sftp.is_some(), form.sftp),
                door("WebDAV", "webdav", share.webdav, info.webdav.or(info.webdavs).is_some(), form.webdav),
            ],
            nfs_rule: share.nfs_rule.clone(),
            smb_rule: share.smb_rule.clone(),
            options: share.options.clone(),
            form,
            shown,
            is_refused,
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
    show(&sharing_page(visit, None).await?)
}

/// The page, with the entries of a form of one share that was refused.
async fn sharing_page(visit: &Visit<'_>, mut refused: Option<(String, ShareForm)>) -> Result<SharingPage, Failure> {
    let info = visit.ask(GetInfo).await?;
    let shares = visit.ask(GetShares).await?;
    let volumes = visit.ask(GetVolumes).await?;
    let mut view = |share: &ShareStatus| {
        let form = refused.take_if(|(name, _)| *name == share.name).map(|(_, form)| form);
        ShareView::of(share, &info, form)
    };
    Ok(SharingPage {
        frame: visit.frame("sharing", "Shares"),
        shares: shares.iter().map(&mut view).collect(),
        volumes: volumes.iter().map(|volume| format!("{}/{}", volume.pool, volume.name)).collect(),
    })
}

fn told(changed: ShareChanged, done: &str) -> Note {
    Note::done(format!("The share {} {done}.", changed.share.name)).with(changed.notes)
}

pub async fn add(visit: &Visit<'_>) -> Answer {
    let change = async {
        let people = PeopleFields::typed(&visit.form);
        people.check()?;
        let request = ShareAdd {
            name: visit.required("name", "the name of the share")?,
            volume: visit.form.filled("volume"),
            folder: visit.form.filled("folder"),
            change: ShareChange {
                users: Some(people.users()),
                read_only_users: Some(people.readers).filter(|names| !names.is_empty()),
                read_only: visit.form.is_checked("read_only").then_some(true),
                ..ShareChange::default()
            },
        };
        Ok(told(visit.call(AddShare, (), &request).await?, "is there"))
    };
    visit.back(Local::of("/sharing"), change.await)
}

/// What a form asks for (`edit.only_changes_sent`).
fn wishes(edit: &Edit<ShareForm>) -> Result<ShareChange, Failure> {
    let recycle_days = match edit.changed(|form| form.recycle_days.clone()).as_deref() {
        None => None,
        Some("") => Some(0),
        Some(days) => Some(days.parse().map_err(|_| Failure::invalid(format!("'{days}' is no number of days")))?),
    };
    let people = edit.changed(|form| form.people.clone());
    people.as_ref().map_or(Ok(()), PeopleFields::check)?;
    let writers = edit.changed(|form| form.people.users());
    let networks = edit.changed(|form| form.networks.clone());
    Ok(ShareChange {
        nfs: edit.changed(|form| form.nfs),
        smb: edit.changed(|form| form.smb),
        sftp: edit.changed(|form| form.sftp),
        webdav: edit.changed(|form| form.webdav),
        read_only: edit.changed(|form| form.read_only),
        snapshots_shown: edit.changed(|form| form.snapshots_shown),
        recycle_days,
        users: people.as_ref().filter(|people| writers.is_some() || !people.everybody).map(PeopleFields::users),
        read_only_users: people.as_ref().map(|people| people.readers.clone()),
        // Guests are everybody, too.
        guest: edit.changed(|form| form.people.everybody).filter(|everybody| !everybody),
        usual_networks: networks.as_ref().is_some_and(Vec::is_empty),
        networks: networks.filter(|networks| !networks.is_empty()),
        ..ShareChange::default()
    })
}

pub async fn set(visit: &Visit<'_>) -> Answer {
    let read = async {
        let name = visit.required("share", "the share")?;
        let shares = visit.ask(GetShares).await?;
        let now = shares.iter().find(|share| share.name == name).map(ShareForm::of);
        let now = now.ok_or_else(|| Failure::not_found(format!("there is no share {name}")))?;
        Ok((Edit::of(&visit.form, ShareForm::typed(&visit.form), now)?, name))
    };
    let (edit, name) = match read.await {
        Ok(read) => read,
        Err(failure) => return visit.back(Local::of("/sharing"), Err(failure)),
    };
    let change = async {
        edit.check(&format!("the share {name}"))?;
        visit.call(SetShare, &name, &wishes(&edit)?).await
    };
    match change.await {
        Ok(changed) => visit.back(Local::of("/sharing"), Ok(told(changed, "is changed"))),
        Err(failure) => {
            let mut page = sharing_page(visit, Some((name, edit.merged()))).await?;
            page.frame.note = Some(Note::from(failure));
            show(&page)
        }
    }
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
