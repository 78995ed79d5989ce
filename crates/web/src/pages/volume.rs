//! One volume: properties, who takes it up, and its snapshots as a time line.

use std::collections::BTreeMap;

use askama::Template;
use larder_api::endpoints::{
    ChangeSnapshots, CloneSnapshot, DestroyVolume, DiffSnapshots, GetOwners, GetShares, GetSnapshots, GetVolumes,
    SetVolume,
};
use larder_api::share::WEBDAV;
use larder_api::{
    CloneRequest, DiffEntry, DiffRequest, Failure, OwnerKind, OwnerUse, ShareStatus, SnapshotStatus, SnapshotsRequest,
    TakeAway, VolumeChange, VolumeStatus,
};
use serde::{Deserialize, Serialize};

use super::keys::KeysView;
use super::storage::{size_of, size_text, traits};
use crate::base::BASE;
use crate::edit::{Edit, stamp};
use crate::form::{Form, encoded};
use crate::note::Note;
use crate::text::{Moment, grouped, size};
use crate::visit::{Answer, Frame, Local, Visit, page as show};

/// Snapshots on one page; older ones are a link away.
const SNAPSHOTS_SHOWN_MAX: usize = 100;
/// Of the picture of the time line, in its own units.
const LINE_WIDTH: u64 = 1000;

pub struct SnapshotView {
    pub name: String,
    pub href: String,
    pub at: Moment,
    pub used: String,
    pub referenced: String,
    pub written: String,
    pub holds: Vec<(String, Option<Moment>)>,
    pub clones: Vec<String>,
}

impl SnapshotView {
    fn of(volume: &str, snapshot: &SnapshotStatus) -> Self {
        let until = |secs: Option<i64>| secs.map(|secs| Moment::of_ms(secs.saturating_mul(1000)));
        Self {
            name: snapshot.name.clone(),
            href: format!("{BASE}/snapshot?volume={}&name={}", encoded(volume), encoded(&snapshot.name)),
            at: Moment::of_ms_unsigned(snapshot.created_ms),
            used: size(snapshot.used_bytes),
            referenced: size(snapshot.referenced_bytes),
            written: size(snapshot.written_bytes),
            holds: snapshot.holds.iter().map(|hold| (hold.reason.clone(), until(hold.until))).collect(),
            clones: snapshot.clones.clone(),
        }
    }
}

pub struct OwnerView {
    pub kind: &'static str,
    pub name: String,
    pub used: String,
    pub inodes: String,
    pub quota: String,
}

impl OwnerView {
    fn of(owner: &OwnerUse) -> Self {
        Self {
            kind: if owner.kind == OwnerKind::User { "user" } else { "group" },
            name: owner.name.clone().unwrap_or_else(|| owner.id.to_string()),
            used: size(owner.used_bytes),
            inodes: grouped(owner.inodes),
            quota: owner.quota_bytes.map_or_else(|| "\u{2013}".to_owned(), size),
        }
    }
}

/// The fields of the form that changes properties, as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PropertyFields {
    /// Empty: none.
    quota: String,
    compression: String,
    sync: String,
}

impl PropertyFields {
    fn of(volume: &VolumeStatus) -> Self {
        Self {
            quota: volume.quota_bytes.map(size_text).unwrap_or_default(),
            compression: volume.compression.clone(),
            sync: volume.sync.clone(),
        }
    }

    fn typed(form: &Form) -> Self {
        let text = |field| form.text(field).to_owned();
        Self { quota: text("quota"), compression: text("compression"), sync: text("sync") }
    }
}

#[derive(Template)]
#[template(path = "volume.html")]
struct VolumePage {
    frame: Frame,
    name: String,
    used: String,
    stored: String,
    available: String,
    quota: String,
    compression: String,
    sync: String,
    form: PropertyFields,
    /// The state that `form` is about (`edit.only_changes_sent`).
    shown: String,
    /// The form was refused and waits for another answer.
    is_refused: bool,
    traits: Vec<String>,
    owners: Vec<OwnerView>,
    keys: KeysView,
    /// Newest first.
    snapshots: Vec<SnapshotView>,
    snapshot_count: usize,
    /// Places of all snapshots on the picture of the time line.
    marks: Vec<u64>,
    first: Option<Moment>,
    older: Option<usize>,
    /// The name within an address.
    older_name: String,
    fault: Option<String>,
}

pub async fn page(visit: &Visit<'_>) -> Answer {
    show(&volume_page(visit, visit.query.text("name"), None).await?)
}

async fn volume_of(visit: &Visit<'_>, name: &str) -> Result<VolumeStatus, Failure> {
    let all = visit.ask(GetVolumes).await?;
    let volume = all.into_iter().find(|volume| format!("{}/{}", volume.pool, volume.name) == name);
    volume.ok_or_else(|| Failure::not_found(format!("there is no volume {name}")))
}

/// The page of a volume, with the entries of a form that was refused.
async fn volume_page(visit: &Visit<'_>, name: &str, refused: Option<PropertyFields>) -> Result<VolumePage, Failure> {
    let name = name.to_owned();
    let volume = &volume_of(visit, &name).await?;
    let now = PropertyFields::of(volume);
    // A locked volume, and a replica, has properties and not all else.
    let owners = visit.about(GetOwners, &name).await.unwrap_or_default();
    let (snapshots, fault) = match visit.about(GetSnapshots, &name).await {
        Ok(status) => (status.snapshots, None),
        Err(failure) => (Vec::new(), Some(failure.message)),
    };
    let skipped: usize = visit.query.text("skip").parse().unwrap_or(0);
    let shown = snapshots.iter().rev().skip(skipped).take(SNAPSHOTS_SHOWN_MAX);
    let older = skipped.saturating_add(SNAPSHOTS_SHOWN_MAX);
    let or_dash = |bytes: Option<u64>| bytes.map_or_else(|| "\u{2013}".to_owned(), size);
    let keys = KeysView::of(visit, &name, volume).await;
    Ok(VolumePage {
        frame: visit.frame("storage", name.clone()),
        shown: stamp(&now),
        is_refused: refused.is_some(),
        form: refused.unwrap_or(now),
        keys,
        used: or_dash(volume.used_bytes),
        stored: or_dash(volume.stored_bytes),
        available: or_dash(volume.available_bytes),
        quota: volume.quota_bytes.map_or_else(|| "none".to_owned(), size),
        compression: volume.compression.clone(),
        sync: volume.sync.clone(),
        traits: traits(volume),
        owners: owners.iter().map(OwnerView::of).collect(),
        snapshots: shown.map(|snapshot| SnapshotView::of(&name, snapshot)).collect(),
        snapshot_count: snapshots.len(),
        marks: marks(&snapshots, visit.server.clock.now().secs),
        first: snapshots.first().map(|first| Moment::of_ms_unsigned(first.created_ms)),
        older_name: encoded(&name),
        older: (older < snapshots.len()).then_some(older),
        fault,
        name,
    })
}

/// Paths on the page that differ between a snapshot and now.
const CHANGES_SHOWN_MAX: usize = 500;

#[derive(Template)]
#[template(path = "snapshot.html")]
struct SnapshotPage {
    frame: Frame,
    volume: String,
    volume_href: String,
    snapshot: SnapshotView,
    /// Shares over the volume, with their folders as they were then.
    shares: Vec<(String, String)>,
    /// Other snapshots to compare with, the newest first.
    others: Vec<String>,
    compared: String,
    /// Where a comparison was asked for.
    changes: Option<Vec<DiffEntry>>,
    more: Option<String>,
}

pub async fn snapshot(visit: &Visit<'_>) -> Answer {
    let (volume, name) = (visit.query.text("volume").to_owned(), visit.query.text("name").to_owned());
    let all = visit.about(GetSnapshots, &volume).await?;
    let snapshot = all.snapshots.iter().find(|snapshot| snapshot.name == name);
    let snapshot = snapshot.ok_or_else(|| Failure::not_found(format!("{volume} has no snapshot {name}")))?;
    let view = SnapshotView::of(&volume, snapshot);
    let with = visit.query.text("with").to_owned();
    let mut changes = match visit.query.is_checked("compare") {
        true => Some(visit.call(DiffSnapshots, &volume, &difference(&all.snapshots, snapshot, &with)?).await?),
        false => None,
    };
    let shares = visit.ask(GetShares).await?;
    let newest = all.snapshots.iter().rev().filter(|other| other.name != name).take(SNAPSHOTS_SHOWN_MAX);
    let more = changes.as_ref().map_or(0, |changes| changes.len().saturating_sub(CHANGES_SHOWN_MAX));
    if let Some(changes) = &mut changes {
        changes.truncate(CHANGES_SHOWN_MAX);
    }
    show(&SnapshotPage {
        frame: visit.frame("storage", name.clone()),
        volume_href: Local::with("/volume", "name", &volume).path().to_owned(),
        shares: as_it_was(visit, &shares, &volume, &view.name),
        others: newest.map(|other| other.name.clone()).collect(),
        compared: if with.is_empty() { "now".to_owned() } else { with },
        volume,
        snapshot: view,
        changes,
        more: (more > 0).then(|| grouped(more as u64)),
    })
}

/// A snapshot beside another, the older first; beside now where none is named.
fn difference(all: &[SnapshotStatus], one: &SnapshotStatus, with: &str) -> Result<DiffRequest, Failure> {
    if with.is_empty() {
        return Ok(DiffRequest { earlier: one.name.clone(), later: None });
    }
    let place = |name: &str| all.iter().position(|snapshot| snapshot.name == name);
    let (Some(this), Some(that)) = (place(&one.name), place(with)) else {
        return Err(Failure::not_found(format!("there is no snapshot {with}")));
    };
    let (earlier, later) = if this <= that { (one.name.as_str(), with) } else { (with, one.name.as_str()) };
    Ok(DiffRequest { earlier: earlier.to_owned(), later: Some(later.to_owned()) })
}

/// The shares over a volume as the file view shows them at a snapshot. There, files are taken back one by one.
pub fn as_it_was(visit: &Visit<'_>, shares: &[ShareStatus], volume: &str, snapshot: &str) -> Vec<(String, String)> {
    let served = |share: &&ShareStatus| share.volume == volume && share.is_on(&WEBDAV) && share.fault.is_none();
    let shares = shares.iter().filter(|_| visit.server.options.files.is_some()).filter(served);
    let href = |share: &ShareStatus| format!("/{}/.snapshots/{}/", encoded(&share.name), encoded(snapshot));
    shares.map(|share| (share.name.clone(), href(share))).collect()
}

/// From the first snapshot, at 0, to now, at the end.
fn marks(snapshots: &[SnapshotStatus], now_secs: i64) -> Vec<u64> {
    let Some(first) = snapshots.first().map(|first| first.created_ms) else { return Vec::new() };
    let now = u64::try_from(now_secs).unwrap_or(0).saturating_mul(1000);
    let span = now.saturating_sub(first).max(1);
    let place = |ms: u64| {
        let place = u128::from(ms.saturating_sub(first)) * u128::from(LINE_WIDTH) / u128::from(span);
        u64::try_from(place).unwrap_or(LINE_WIDTH).min(LINE_WIDTH)
    };
    let mut places: Vec<u64> = snapshots.iter().map(|snapshot| place(snapshot.created_ms)).collect();
    places.dedup();
    places
}

/// The page of the volume that a form is about.
fn here(visit: &Visit<'_>) -> Local {
    Local::with("/volume", "name", visit.form.text("volume"))
}

async fn change(visit: &Visit<'_>, request: SnapshotsRequest, done: impl Into<String>) -> Result<Note, Failure> {
    let volume = visit.required("volume", "the volume")?;
    let status = visit.call(ChangeSnapshots, &volume, &request).await?;
    let saved = status.saved_as.map(|name| format!("What was there is kept as the snapshot {name}."));
    Ok(Note::done(done).with(saved.into_iter().collect()))
}

pub async fn set(visit: &Visit<'_>) -> Answer {
    let read = async {
        let volume = visit.required("volume", "the volume")?;
        let now = PropertyFields::of(&volume_of(visit, &volume).await?);
        Ok((Edit::of(&visit.form, PropertyFields::typed(&visit.form), now)?, volume))
    };
    let (edit, volume) = match read.await {
        Ok(read) => read,
        Err(failure) => return visit.back(here(visit), Err(failure)),
    };
    let change = async {
        edit.check(&format!("the volume {volume}"))?;
        let filled = |text: &String| !text.is_empty();
        let quota = edit.changed(|form| form.quota.clone());
        let request = VolumeChange {
            // An empty field takes the quota away.
            quota_bytes: quota.map(|text| size_of(&text)).transpose()?.map(|bytes| bytes.unwrap_or(0)),
            compression: edit.changed(|form| form.compression.clone()).filter(filled),
            sync: edit.changed(|form| form.sync.clone()).filter(filled),
            ..VolumeChange::default()
        };
        if request == VolumeChange::default() {
            return Ok::<_, Failure>(Note::done("Nothing was changed."));
        }
        visit.call(SetVolume, &volume, &request).await?;
        Ok(Note::done("The properties are set."))
    };
    match change.await {
        Ok(note) => visit.back(here(visit), Ok(note)),
        Err(failure) => {
            let mut page = volume_page(visit, &volume, Some(edit.merged())).await?;
            page.frame.note = Some(Note::from(failure));
            show(&page)
        }
    }
}

pub async fn set_owner_quota(visit: &Visit<'_>) -> Answer {
    let outcome = async {
        let volume = visit.required("volume", "the volume")?;
        let owner = visit.required("owner", "the user or group")?;
        // An empty field takes the quota away.
        let quotas = BTreeMap::from([(owner.clone(), size_of(visit.form.text("quota"))?.unwrap_or(0))]);
        let request = match visit.form.text("kind") {
            "group" => VolumeChange { group_quotas: quotas, ..VolumeChange::default() },
            _ => VolumeChange { user_quotas: quotas, ..VolumeChange::default() },
        };
        visit.call(SetVolume, &volume, &request).await?;
        Ok(Note::done(format!("The quota of {owner} is set.")))
    };
    visit.back(here(visit), outcome.await)
}

pub async fn destroy(visit: &Visit<'_>) -> Answer {
    let outcome = async {
        let volume = visit.required("volume", "the volume")?;
        visit.typed(&volume)?;
        let request = TakeAway { force: false, with_snapshots: visit.form.is_checked("with_snapshots") };
        visit.call(DestroyVolume, &volume, &request).await?;
        Ok(Note::done(format!("The volume {volume} was destroyed.")))
    };
    match outcome.await {
        Ok(note) => visit.back(Local::of("/storage"), Ok(note)),
        Err(failure) => visit.back(here(visit), Err(failure)),
    }
}

pub async fn take(visit: &Visit<'_>) -> Answer {
    let request = SnapshotsRequest::Create { name: visit.form.filled("name") };
    visit.back(here(visit), change(visit, request, "The snapshot is taken.").await)
}

pub async fn destroy_snapshot(visit: &Visit<'_>) -> Answer {
    let outcome = async {
        let name = single(visit)?;
        visit.typed(&name)?;
        let done = format!("The snapshot {name} was destroyed.");
        change(visit, SnapshotsRequest::Destroy { names: name, dry_run: false }, done).await
    };
    visit.back(here(visit), outcome.await)
}

/// The endpoint also takes lists and ranges; a form names one snapshot.
fn single(visit: &Visit<'_>) -> Result<String, Failure> {
    let name = visit.required("snapshot", "the snapshot")?;
    if name.contains([',', '%']) {
        return Err(Failure::invalid("the page destroys one snapshot at a time"));
    }
    Ok(name)
}

pub async fn hold(visit: &Visit<'_>) -> Answer {
    let outcome = async {
        let name = visit.required("snapshot", "the snapshot")?;
        let reason = visit.required("reason", "the reason")?;
        let done = format!("The snapshot {name} is held.");
        change(visit, SnapshotsRequest::Hold { name, reason, until: None }, done).await
    };
    visit.back(here(visit), outcome.await)
}

pub async fn release(visit: &Visit<'_>) -> Answer {
    let outcome = async {
        let name = visit.required("snapshot", "the snapshot")?;
        let reason = visit.form.get("reason").unwrap_or_default().to_owned();
        let done = format!("The snapshot {name} is held for that reason no longer.");
        change(visit, SnapshotsRequest::Release { name, reason }, done).await
    };
    visit.back(here(visit), outcome.await)
}

pub async fn rename(visit: &Visit<'_>) -> Answer {
    let outcome = async {
        let name = visit.required("snapshot", "the snapshot")?;
        let to = visit.required("to", "the new name")?;
        let done = format!("The snapshot {name} is called {to} now.");
        change(visit, SnapshotsRequest::Rename { name, to }, done).await
    };
    visit.back(here(visit), outcome.await)
}

pub async fn roll_back(visit: &Visit<'_>) -> Answer {
    let outcome = async {
        let name = visit.required("snapshot", "the snapshot")?;
        visit.typed(&name)?;
        let destroy_later = visit.form.is_checked("destroy_later");
        let done = format!("The volume is as it was at {name}.");
        change(visit, SnapshotsRequest::Rollback { name, destroy_later, force: false }, done).await
    };
    visit.back(here(visit), outcome.await)
}

pub async fn clone(visit: &Visit<'_>) -> Answer {
    let outcome = async {
        let volume = visit.required("volume", "the volume")?;
        let snapshot = visit.required("snapshot", "the snapshot")?;
        let name = visit.required("name", "the name of the new volume")?;
        let made = visit.call(CloneSnapshot, &volume, &CloneRequest { snapshot, name }).await?;
        Ok(Note::done(format!("The volume {}/{} is there.", made.pool, made.name)))
    };
    visit.back(here(visit), outcome.await)
}
