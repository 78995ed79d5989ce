//! Pools on disks of this machine that are not in use: seen before one says yes.

use askama::Template;
use larder_api::endpoints::{GetDisks, GetPoolsKnown, ImportPool};
use larder_api::{Failure, PoolImport, PoolOnDisks, PoolStatus};

use crate::note::Note;
use crate::text::counted;
use crate::visit::{Answer, Frame, Local, Visit, page as show};

pub struct FoundView {
    pub name: String,
    pub layout: String,
    pub folders: Vec<String>,
    /// Names the pool in the form: another may be called the same.
    pub first_folder: String,
    pub disks: String,
    pub missing: String,
    pub is_importable: bool,
}

impl FoundView {
    fn of(pool: &PoolOnDisks) -> Self {
        Self {
            name: pool.name.clone(),
            layout: pool.layout.clone(),
            folders: pool.folders.iter().map(|folder| folder.display().to_string()).collect(),
            first_folder: pool.folders.first().map(|first| first.display().to_string()).unwrap_or_default(),
            disks: counted(pool.folders.len(), "disk is there", "disks are there"),
            missing: match pool.missing {
                0 => String::new(),
                count => counted(count, "disk is missing", "disks are missing"),
            },
            is_importable: pool.is_importable,
        }
    }
}

#[derive(Template)]
#[template(path = "found.html")]
struct FoundPage {
    frame: Frame,
    pools: Vec<FoundView>,
}

/// Those that the box does not have yet, by whatever path their disks are reached. A pool that cannot be opened is known by its disks
/// alone.
async fn unused(visit: &Visit<'_>) -> Result<Vec<PoolOnDisks>, Failure> {
    let known = visit.ask(GetPoolsKnown).await?;
    let is_known = |found: &PoolOnDisks| {
        let has_disk = |pool: &PoolStatus| pool.disks.iter().any(|disk| found.folders.contains(&disk.path));
        known.iter().any(|pool| pool.id == found.id || has_disk(pool))
    };
    let mut found = visit.ask(GetDisks).await?.pools;
    found.retain(|pool| !is_known(pool));
    Ok(found)
}

/// Reads labels: it is asked for, not shown with each page.
pub async fn page(visit: &Visit<'_>) -> Answer {
    let pools = unused(visit).await?.iter().map(FoundView::of).collect();
    show(&FoundPage { frame: visit.frame("storage", "Pools on disks"), pools })
}

/// Opens one of those that are shown, and no other folders.
pub async fn import(visit: &Visit<'_>) -> Answer {
    let change = async {
        let (name, folder) = (visit.required("pool", "the pool")?, visit.required("folder", "a folder of the pool")?);
        visit.typed(&name)?;
        let found = unused(visit).await?;
        let is_it = |pool: &&PoolOnDisks| {
            pool.name == name && pool.folders.first().and_then(|first| first.to_str()) == Some(folder.as_str())
        };
        let pool =
            found.iter().find(is_it).ok_or_else(|| Failure::not_found(format!("no disks hold the pool {name} now")))?;
        let request = PoolImport {
            disks: pool.folders.clone(),
            force: visit.form.is_checked("force"),
            degraded: visit.form.is_checked("degraded"),
            pool: Some(name.clone()),
            rename: visit.form.filled("rename"),
            accept_loss: None,
        };
        let opened = visit.call(ImportPool, (), &request).await?;
        let lines = opened.notes.clone();
        Ok(Note::done(format!("The pool {} is open, with its volumes and snapshots.", opened.name)).with(lines))
    };
    match change.await {
        Ok(note) => visit.back(Local::of("/storage"), Ok(note)),
        Err(failure) => visit.back(Local::of("/storage/found"), Err(failure)),
    }
}
