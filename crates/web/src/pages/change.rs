//! The disks and the layout of a pool, changed in steps: the wish, what it would do, the change.
//!
//! - `change.dry_run_first`: the form that changes a pool is on the page of the dry run, and nowhere else.
//! - `change.named_by_serial`: where a disk is pulled, the page names it by model and serial number.

use std::path::PathBuf;

use askama::Template;
use larder_api::endpoints::{ChangePool, GetDiskHealth, GetDisks, GetPoolsKnown};
use larder_api::{
    DiskHealth, DiskStatus, DisksFound, Failure, PoolChange, PoolChangePlan, PoolChangeRequest, PoolStatus,
};

use crate::base::BASE;
use crate::form::{Form, encoded};
use crate::note::Note;
use crate::shell_words::on_page;
use crate::text::{duration, size};
use crate::visit::{Answer, Frame, Local, Visit, page as show};

/// A kind of change, as the page asks for it.
pub struct Kind {
    pub word: &'static str,
    pub title: &'static str,
    pub lead: &'static str,
    /// Asks for a disk of the pool, for new disks, for a layout.
    pub takes_disk: bool,
    pub takes_new: bool,
    pub takes_layout: bool,
    /// What has to be typed before it is done.
    typed: Typed,
    /// The disk can be pulled: when.
    pull: Option<&'static str>,
    verb: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Typed {
    Nothing,
    Disk,
    Pool,
}

const fn kind(word: &'static str, title: &'static str, lead: &'static str, verb: &'static str) -> Kind {
    let (takes_disk, takes_new, takes_layout, typed, pull) = (false, false, false, Typed::Nothing, None);
    Kind { word, title, lead, takes_disk, takes_new, takes_layout, typed, pull, verb }
}

static KINDS: [Kind; 8] = [
    Kind {
        takes_disk: true,
        takes_new: true,
        typed: Typed::Disk,
        pull: Some("Pull this one, once the pool no longer lists it"),
        ..kind(
            "replace",
            "Replace a disk",
            "A new disk takes the place of one that fails or is too small. The old one serves until the new one has everything.",
            "Replace disk",
        )
    },
    Kind {
        takes_new: true,
        ..kind("add", "Add disks", "The pool grows, and data moves until all disks are equally full.", "Add disks")
    },
    Kind {
        takes_new: true,
        ..kind(
            "spare",
            "Add a spare",
            "A spare holds nothing and takes the place of the next disk that fails.",
            "Add spare",
        )
    },
    Kind {
        takes_disk: true,
        typed: Typed::Disk,
        pull: Some("Pull this one, once the pool no longer lists it"),
        ..kind(
            "remove",
            "Remove a disk",
            "What lies on the disk moves to the others. Then the pool forgets it.",
            "Remove disk",
        )
    },
    Kind {
        takes_disk: true,
        ..kind("keep", "Keep a disk", "A disk that is being removed stays after all.", "Keep disk")
    },
    Kind {
        takes_disk: true,
        typed: Typed::Disk,
        pull: Some("Pull this one now, and no other"),
        ..kind(
            "offline",
            "Take a disk offline",
            "The pool works without the disk until it is online again.",
            "Take offline",
        )
    },
    Kind {
        takes_disk: true,
        ..kind(
            "online",
            "Take a disk online",
            "A disk that was offline returns, and gets what it missed.",
            "Take online",
        )
    },
    Kind {
        takes_layout: true,
        typed: Typed::Pool,
        ..kind(
            "layout",
            "Change the layout",
            "All data is written anew, while it is served. A snapshot of each volume is taken first.",
            "Change layout",
        )
    },
];

/// Those that the page offers for a pool in any state; `keep` and `online` have a disk to begin from.
pub const OFFERED: [(&str, &str); 6] = [
    ("replace", "Replace a disk"),
    ("add", "Add disks"),
    ("spare", "Add a spare"),
    ("remove", "Remove a disk"),
    ("offline", "Take offline"),
    ("layout", "Change the layout"),
];

const LAYOUTS: [(&str, &str); 6] = [
    ("stripe", "no redundancy"),
    ("mirror", "each object twice"),
    ("mirror3", "each object three times"),
    ("raidz1", "one disk may fail"),
    ("raidz2", "two disks may fail"),
    ("raidz3", "three disks may fail"),
];

fn kind_of(form: &Form) -> Result<&'static Kind, Failure> {
    let word = form.text("change");
    let found = KINDS.iter().find(|kind| kind.word == word);
    found.ok_or_else(|| Failure::invalid(format!("'{word}' is no change of a pool")))
}

/// The page for a kind of change of a pool.
pub fn path_for(pool: &str, change: &str) -> String {
    format!("{BASE}/storage/change?pool={}&change={change}", encoded(pool))
}

pub struct Choice {
    pub value: String,
    pub text: String,
    pub is_chosen: bool,
}

pub struct PlanView {
    /// What it is about, before, and after.
    pub rows: Vec<(&'static str, String, String)>,
    pub moves: Option<String>,
    pub warnings: Vec<String>,
}

impl PlanView {
    fn of(plan: &PoolChangePlan) -> Self {
        let (before, after) = (&plan.before, &plan.after);
        let failures = |count: u8| if count == 1 { "1 disk".to_owned() } else { format!("{count} disks") };
        let rows = vec![
            (
                "Layout",
                format!("{}, {} wide", before.layout, before.width),
                format!("{}, {} wide", after.layout, after.width),
            ),
            ("Disks", before.disks.to_string(), after.disks.to_string()),
            ("Room for files", size(before.usable_bytes), size(after.usable_bytes)),
            ("May fail without loss", failures(before.failures_survived), failures(after.failures_survived)),
        ];
        let takes = plan.seconds.map(|secs| format!(", about {}", duration(secs))).unwrap_or_default();
        let moves = (plan.move_bytes > 0).then(|| format!("{} move between disks{takes}.", size(plan.move_bytes)));
        Self { rows, moves, warnings: plan.warnings.iter().map(|warning| on_page(warning)).collect() }
    }
}

#[derive(Template)]
#[template(path = "change.html")]
struct ChangePage {
    frame: Frame,
    pool: String,
    kind: &'static Kind,
    disks: Vec<Choice>,
    folders: Vec<Choice>,
    /// Folders that somebody typed.
    other: String,
    /// Whole disks that are free, and the command that prepares one.
    unprepared: Vec<(String, String)>,
    layouts: Vec<Choice>,
    width: String,
    plan: Option<PlanView>,
    refusal: Option<Note>,
    /// The fields of the wish, for the form that does it.
    wish: Vec<(&'static str, String)>,
    /// When a disk is pulled, and which.
    pull: Option<(&'static str, Vec<String>)>,
    typed: Option<String>,
}

/// The disk of the pool that a form names, by its id or, for a spare, by its path.
fn disk_of<'a>(pool: &'a PoolStatus, form: &Form) -> Option<(String, Option<&'a DiskStatus>)> {
    let name = form.text("disk");
    if let Some(disk) = pool.disks.iter().find(|disk| disk.id == name) {
        return Some((disk.path.display().to_string(), Some(disk)));
    }
    let spare = pool.spares.iter().find(|path| path.display().to_string() == name)?;
    Some((spare.display().to_string(), None))
}

fn new_of(form: &Form) -> Vec<PathBuf> {
    let typed = form.text("other").lines().map(str::trim).filter(|line| !line.is_empty());
    form.all("new").chain(typed).map(PathBuf::from).collect()
}

/// The change that a form is about; `None` while it is not complete.
fn wish(kind: &Kind, pool: &PoolStatus, form: &Form) -> Result<Option<PoolChange>, Failure> {
    let new = new_of(form);
    if kind.takes_disk && form.text("disk").is_empty() || kind.takes_new && new.is_empty() {
        return Ok(None);
    }
    let disk = match kind.takes_disk {
        true => {
            let named = disk_of(pool, form);
            named.ok_or_else(|| Failure::not_found(format!("{} has no such disk", pool.name)))?;
            form.text("disk").to_owned()
        }
        false => String::new(),
    };
    let single = |new: Vec<PathBuf>| match <[PathBuf; 1]>::try_from(new) {
        Ok([new]) => Ok(new),
        Err(_) => Err(Failure::invalid("one disk takes the place of one: name a single new disk")),
    };
    Ok(Some(match kind.word {
        "replace" => PoolChange::Replace { old: disk, new: single(new)? },
        "add" => PoolChange::Add { disks: new, spare: false },
        "spare" => PoolChange::Add { disks: new, spare: true },
        "remove" => PoolChange::Remove { disk },
        "keep" => PoolChange::Keep { disk },
        "offline" => PoolChange::Offline { disk },
        "online" => PoolChange::Online { disk, discard: false },
        _ => {
            let width = match form.text("width") {
                "" => None,
                text => Some(text.parse().map_err(|_| Failure::invalid(format!("'{text}' is no number of disks")))?),
            };
            if form.text("layout").is_empty() {
                return Ok(None);
            }
            PoolChange::Rebalance { layout: form.filled("layout"), width }
        }
    }))
}

async fn pool_of(visit: &Visit<'_>, name: &str) -> Result<PoolStatus, Failure> {
    let pools = visit.ask(GetPoolsKnown).await?;
    let found = pools.into_iter().find(|pool| pool.name == name);
    found.ok_or_else(|| Failure::not_found(format!("there is no pool {name}")))
}

/// What has to be typed for a change.
fn typed(kind: &Kind, pool: &PoolStatus, form: &Form) -> Option<String> {
    match kind.typed {
        Typed::Nothing => None,
        Typed::Disk => disk_of(pool, form).map(|(path, _)| path),
        Typed::Pool => Some(pool.name.clone()),
    }
}

pub async fn page(visit: &Visit<'_>) -> Answer {
    let form = &visit.query;
    let (pool, kind) = (pool_of(visit, form.text("pool")).await?, kind_of(form)?);
    let found = if kind.takes_new { visit.ask(GetDisks).await.unwrap_or_default() } else { DisksFound::default() };
    let dry_run = async {
        let Some(change) = wish(kind, &pool, form)? else { return Ok(None) };
        let request = PoolChangeRequest { change, dry_run: true };
        visit.call(ChangePool, &pool.name, &request).await.map(Some)
    };
    let (plan, refusal) = match dry_run.await {
        Ok(plan) => (plan.as_ref().map(PlanView::of), None),
        Err(failure) => (None, Some(Note::from(failure))),
    };
    let pulled = match (kind.pull, disk_of(&pool, form)) {
        (Some(when), Some((path, _))) => {
            let health = visit.ask(GetDiskHealth).await.unwrap_or_default();
            Some((when, hardware(&path, &health)))
        }
        _ => None,
    };
    let title = kind.title;
    show(&ChangePage {
        frame: visit.frame("storage", title),
        disks: disks(kind, &pool, form),
        folders: folders(&found, form),
        other: form.get("other").unwrap_or_default().to_owned(),
        unprepared: unprepared(&found),
        layouts: layouts(&pool, form),
        width: form.text("width").to_owned(),
        wish: fields(form),
        typed: typed(kind, &pool, form),
        pool: pool.name,
        kind,
        plan,
        refusal,
        pull: pulled,
    })
}

/// The hardware below a folder (`change.named_by_serial`).
fn hardware(path: &str, health: &[DiskHealth]) -> Vec<String> {
    let below = health.iter().filter(|disk| disk.folders.iter().any(|folder| folder.display().to_string() == path));
    let named = below.map(|disk| {
        let model = disk.model.as_deref().unwrap_or("a disk without a model");
        let serial = disk
            .serial
            .as_deref()
            .map_or_else(|| "without a serial number".to_owned(), |s| format!("serial number {s}"));
        format!("{model}, {serial}, {} ({})", size(disk.size_bytes), disk.path.display())
    });
    let mut lines: Vec<String> = named.collect();
    if lines.is_empty() {
        lines.push(format!("the disk below {path}; nothing is known of its hardware"));
    }
    lines
}

fn disks(kind: &Kind, pool: &PoolStatus, form: &Form) -> Vec<Choice> {
    if !kind.takes_disk {
        return Vec::new();
    }
    let chosen = form.text("disk");
    let choice = |value: String, text: String| Choice { is_chosen: value == chosen, value, text };
    let of_pool = pool.disks.iter().map(|disk| {
        choice(disk.id.clone(), format!("{}, {}, {}", disk.path.display(), disk.state, size(disk.size_bytes)))
    });
    let spares = pool
        .spares
        .iter()
        .filter(|_| kind.word == "remove")
        .map(|path| choice(path.display().to_string(), format!("{}, spare", path.display())));
    of_pool.chain(spares).collect()
}

fn folders(found: &DisksFound, form: &Form) -> Vec<Choice> {
    let chosen: Vec<&str> = form.all("new").collect();
    let fit = found.folders.iter().filter(|folder| folder.refused.is_none());
    fit.map(|folder| {
        let value = folder.path.display().to_string();
        let disks = if folder.disks.is_empty() { String::new() } else { format!(" on {}", folder.disks.join(", ")) };
        let text = format!("{value}, {} free{disks}", size(folder.available_bytes));
        Choice { is_chosen: chosen.contains(&value.as_str()), value, text }
    })
    .collect()
}

fn unprepared(found: &DisksFound) -> Vec<(String, String)> {
    let free = found.disks.iter().filter(|disk| disk.refused.is_none());
    free.map(|disk| {
        let model = disk.model.as_deref().unwrap_or("Disk");
        let serial = disk.serial.as_deref().map(|serial| format!(", serial number {serial}")).unwrap_or_default();
        let text = format!("{model}, {}{serial}", size(disk.size_bytes));
        (text, format!("larder disk prepare {}", disk.device.display()))
    })
    .collect()
}

fn layouts(pool: &PoolStatus, form: &Form) -> Vec<Choice> {
    let chosen = form.filled("layout").unwrap_or_else(|| pool.layout.clone());
    LAYOUTS
        .iter()
        .map(|(value, text)| Choice {
            value: (*value).to_owned(),
            text: format!("{value}: {text}"),
            is_chosen: *value == chosen,
        })
        .collect()
}

fn fields(form: &Form) -> Vec<(&'static str, String)> {
    let single = ["pool", "change", "disk", "layout", "width"];
    let single = single.into_iter().filter_map(|name| Some((name, form.filled(name)?)));
    single.chain(new_of(form).into_iter().map(|path| ("new", path.display().to_string()))).collect()
}

pub async fn apply(visit: &Visit<'_>) -> Answer {
    let change = async {
        let form = &visit.form;
        let (pool, kind) = (pool_of(visit, form.text("pool")).await?, kind_of(form)?);
        let change = wish(kind, &pool, form)?.ok_or_else(|| Failure::invalid("the change is not complete"))?;
        if let Some(name) = typed(kind, &pool, form) {
            visit.typed(&name)?;
        }
        let plan = visit.call(ChangePool, &pool.name, &PoolChangeRequest { change, dry_run: false }).await?;
        let taken = plan.snapshots.iter().map(|name| format!("Snapshot taken before: {name}"));
        let lines = plan.warnings.iter().cloned().chain(taken).collect();
        Ok(Note::done(format!("{}: begun.", kind.title)).with(lines))
    };
    visit.back(Local::of("/storage"), change.await)
}
