//! The pages of the steps: values as their templates show them.

use std::net::IpAddr;
use std::path::PathBuf;

use askama::Template;
use hyper::StatusCode;
use larder_api::{
    DiskFound, DiskNote, DisksFound, FolderFound, LayoutPreview, LayoutsPreview, PoolOnDisks, SetupCheck, SetupPlan,
    SetupProgress, SetupServed,
};

use super::draft::{Draft, Names};
use super::outcome::{Answer, Outcome};
use super::ways::{System, Way, ways};
use crate::base::BASE;
use crate::text::{counted, percent, size};
use crate::visit::{Frame, rendered};

/// Columns of a picture; further disks are told in words.
const COLUMNS_MAX: usize = 12;

fn show(template: &impl Template) -> Answer {
    Ok(Outcome::Page(StatusCode::OK, rendered(template)?))
}

#[derive(Template)]
#[template(path = "setup_welcome.html")]
struct WelcomePage<'a> {
    frame: Frame,
    token: &'a str,
}

pub fn welcome(frame: Frame, token: &str) -> Outcome {
    let text = WelcomePage { frame, token }.render().unwrap_or_default();
    Outcome::Page(StatusCode::OK, text)
}

#[derive(Template)]
#[template(path = "setup_closed.html")]
struct ClosedPage<'a> {
    frame: Frame,
    text: &'a str,
    action: &'a str,
}

pub fn closed(frame: Frame, status: StatusCode, text: &str, action: &str) -> Outcome {
    let page = ClosedPage { frame, text, action };
    Outcome::Page(status, page.render().unwrap_or_default())
}

#[derive(Template)]
#[template(path = "setup_disks.html")]
struct DisksPage {
    frame: Frame,
    pools: Vec<PoolView>,
    disks: Vec<DiskView>,
    folders: Vec<FolderView>,
}

struct PoolView {
    name: String,
    about: String,
    line: String,
    /// A set-up made it, and was cut off.
    goes_on: bool,
}

struct DiskView {
    id: String,
    device: String,
    title: String,
    facts: String,
    /// Empty where there is nothing to lose.
    holds: String,
    notes: Vec<NoteView>,
    refused: Option<String>,
    checked: bool,
}

struct FolderView {
    id: String,
    path: String,
    facts: String,
    notes: Vec<NoteView>,
    refused: Option<String>,
    checked: bool,
}

struct NoteView {
    class: &'static str,
    text: String,
}

impl NoteView {
    fn of(note: &DiskNote) -> Self {
        let class = match note.level.as_str() {
            "refuse" => "bad",
            "warning" => "warn",
            _ => "dim",
        };
        Self { class, text: note.text.clone() }
    }
}

impl DiskView {
    fn of(at: usize, disk: &DiskFound, draft: &Draft) -> Self {
        let mut facts = vec![size(disk.size_bytes)];
        facts.extend(disk.kind.clone());
        // "SATA SSD" says it already.
        if disk.bus != "?" && !disk.kind.as_ref().is_some_and(|kind| kind.contains(&disk.bus)) {
            facts.push(disk.bus.clone());
        }
        facts.extend(disk.serial.as_ref().map(|serial| format!("serial {serial}")));
        facts.push(disk.device.display().to_string());
        let holds = match disk.is_contents_known {
            _ if disk.refused.is_some() => String::new(),
            true => disk.holds.join(", "),
            false => "nobody looked what is on it".to_owned(),
        };
        Self {
            id: format!("disk{at}"),
            device: disk.device.display().to_string(),
            title: disk.model.clone().unwrap_or_else(|| disk.device.display().to_string()),
            facts: facts.join(" · "),
            holds,
            notes: disk.notes.iter().map(NoteView::of).collect(),
            refused: disk.refused.clone(),
            checked: draft.is_chosen_device(disk),
        }
    }
}

impl FolderView {
    fn of(at: usize, folder: &FolderFound, draft: &Draft) -> Self {
        let mut facts = Vec::new();
        if folder.size_bytes > 0 {
            facts.push(format!("{} free of {}", size(folder.available_bytes), size(folder.size_bytes)));
        }
        facts.extend(folder.filesystem.clone());
        facts.extend(folder.disks.iter().cloned());
        Self {
            id: format!("folder{at}"),
            path: folder.path.display().to_string(),
            facts: facts.join(" · "),
            notes: folder.notes.iter().map(NoteView::of).collect(),
            refused: folder.refused.clone(),
            checked: draft.is_chosen(&folder.path),
        }
    }
}

pub fn disks(
    frame: Frame,
    draft: &Draft,
    found: &DisksFound,
    named: &[FolderFound],
    unfinished: Option<&SetupPlan>,
    import_line: &dyn Fn(&[PathBuf]) -> String,
) -> Answer {
    let pool = |pool: &PoolOnDisks| {
        let (there, all) = (pool.folders.len(), pool.folders.len() + pool.missing);
        let is_whole = match pool.is_importable {
            true => "",
            false if pool.missing == 0 => "; too many of them are out of date to open it",
            false => "; too few to open it",
        };
        let ours = |plan: &SetupPlan| there > 0 && pool.folders.iter().all(|path| plan.folders.contains(path));
        PoolView {
            name: pool.name.clone(),
            about: format!("{}, {there} of {} there{is_whole}", pool.layout, counted(all, "disk", "disks")),
            line: import_line(&pool.folders),
            goes_on: pool.missing == 0 && unfinished.is_some_and(ours),
        }
    };
    let mut disks: Vec<DiskView> =
        found.disks.iter().enumerate().map(|(at, disk)| DiskView::of(at, disk, draft)).collect();
    // What can be chosen comes first.
    disks.sort_by_key(|disk| disk.refused.is_some());
    let folders = found.folders.iter().chain(named);
    let folders = folders.enumerate().map(|(at, folder)| FolderView::of(at, folder, draft)).collect();
    show(&DisksPage { frame, pools: found.pools.iter().map(pool).collect(), disks, folders })
}

#[derive(Template)]
#[template(path = "setup_layout.html")]
struct LayoutPage {
    frame: Frame,
    disks: String,
    layouts: Vec<LayoutView>,
    refused: Vec<(String, String)>,
    notes: Vec<NoteView>,
    source: Option<String>,
}

struct LayoutView {
    layout: String,
    title: &'static str,
    about: &'static str,
    checked: bool,
    is_proposed: bool,
    usable: String,
    raw: String,
    usable_percent: u8,
    survives: String,
    survives_class: &'static str,
    columns: Vec<Column>,
    /// Names of speeds, their figures, and how long their bars are.
    speeds: Vec<(&'static str, String, u8)>,
    warnings: Vec<String>,
    /// Of the picture.
    width: usize,
}

/// A disk of a picture.
struct Column {
    x: usize,
    /// Where redundancy ends and data begins, from the top.
    data_y: u32,
    data_height: u32,
    /// It may fail.
    may_fail: bool,
}

const HEIGHT: u32 = 40;

fn words_of(layout: &str) -> (&'static str, &'static str) {
    match layout {
        "stripe" => ("Stripe", "All room, and no second copy: one failed disk loses what lies on it."),
        "mirror" => ("Mirror", "Two copies of everything, on two disks. Quick to rebuild."),
        "mirror3" => ("Mirror of three", "Three copies of everything. For little data that must not be lost."),
        "raidz1" => ("Single parity", "Much room, one disk of redundancy. The usual choice for three disks and more."),
        "raidz2" => ("Double parity", "Two disks of redundancy: one may fail while another is rebuilt."),
        "raidz3" => ("Triple parity", "Three disks of redundancy, for many large disks."),
        _ => ("Layout", ""),
    }
}

fn rate(bytes_per_s: f64) -> String {
    match bytes_per_s {
        rate if rate >= 1e9 => format!("{:.1} GB/s", rate / 1e9),
        rate => format!("{:.0} MB/s", (rate / 1e6).max(1.0)),
    }
}

fn per_second(count: f64) -> String {
    match count {
        count if count >= 1e6 => format!("{:.1} million a second", count / 1e6),
        count if count >= 1e4 => format!("{:.0},000 a second", count / 1e3),
        count => format!("{count:.0} a second"),
    }
}

fn bar(value: f64, most: f64) -> u8 {
    percent((value.max(0.0) / 1000.0) as u64 + 1, (most.max(1.0) / 1000.0) as u64 + 1)
}

impl LayoutView {
    fn of(one: &LayoutPreview, disks: usize, draft: &Draft, all: &[LayoutPreview]) -> Self {
        let (title, about) = words_of(&one.layout);
        let most = |figure: fn(&larder_api::LayoutSpeed) -> f64| {
            all.iter().filter_map(|one| one.speed.as_ref()).map(figure).fold(0.0, f64::max)
        };
        let speeds = one.speed.as_ref().map_or_else(Vec::new, |speed| {
            let between = |low: String, high: String| if low == high { high } else { format!("{low} to {high}") };
            vec![
                (
                    "Reads",
                    between(rate(speed.read.low), rate(speed.read.high)),
                    bar(speed.read.high, most(|s| s.read.high)),
                ),
                (
                    "Writes",
                    between(rate(speed.write.low), rate(speed.write.high)),
                    bar(speed.write.high, most(|s| s.write.high)),
                ),
                (
                    "Random reads",
                    between(per_second(speed.random_read.low), per_second(speed.random_read.high)),
                    bar(speed.random_read.high * 1e3, most(|s| s.random_read.high) * 1e3),
                ),
            ]
        });
        let units = u32::from(one.data) + u32::from(one.parity);
        let data_height = (HEIGHT * u32::from(one.data)).checked_div(units).unwrap_or(0).max(1);
        let columns = disks.min(COLUMNS_MAX);
        let column = |at: usize| Column {
            x: 2 + at * 22,
            data_y: 2 + HEIGHT - data_height,
            data_height,
            may_fail: at < usize::from(one.failures_survived),
        };
        Self {
            layout: one.layout.clone(),
            title,
            about,
            checked: if draft.layout.is_empty() { one.is_proposed } else { draft.layout == one.layout },
            is_proposed: one.is_proposed,
            usable: size(one.usable_bytes),
            raw: size(one.raw_bytes),
            usable_percent: percent(one.usable_bytes, one.raw_bytes),
            survives: match one.failures_survived {
                0 => "No disk may fail".to_owned(),
                1 => "Any 1 disk may fail".to_owned(),
                n => format!("Any {n} disks may fail"),
            },
            survives_class: if one.failures_survived == 0 { "warn" } else { "fine" },
            columns: (0..columns).map(column).collect(),
            speeds,
            warnings: one.warnings.clone(),
            width: columns * 22 + 2,
        }
    }
}

pub fn layouts(frame: Frame, draft: &Draft, preview: &LayoutsPreview) -> Answer {
    let possible: Vec<LayoutPreview> = preview.layouts.iter().filter(|one| one.refused.is_none()).cloned().collect();
    // What is true of all of them is said once, above.
    let common = |warning: &String| possible.iter().all(|one| one.warnings.contains(warning));
    let warnings: Vec<String> =
        possible.iter().take(1).flat_map(|one| &one.warnings).filter(|w| common(w)).cloned().collect();
    let possible: Vec<LayoutPreview> = possible
        .iter()
        .map(|one| {
            let own = one.warnings.iter().filter(|warning| !warnings.contains(warning)).cloned().collect();
            LayoutPreview { warnings: own, ..one.clone() }
        })
        .collect();
    let views = possible.iter().map(|one| LayoutView::of(one, preview.disks.len(), draft, &possible)).collect();
    let refused =
        preview.layouts.iter().filter_map(|one| Some((words_of(&one.layout).0.to_owned(), one.refused.clone()?)));
    // Two folders of one filesystem have its size once.
    let total = possible.first().map_or(0, |one| one.raw_bytes);
    let notes = preview.notes.iter().map(NoteView::of);
    let warnings = warnings.into_iter().map(|text| NoteView { class: "warn", text });
    show(&LayoutPage {
        frame,
        disks: format!("{}, {} in all", counted(preview.disks.len(), "disk", "disks"), size(total)),
        layouts: views,
        refused: refused.collect(),
        notes: notes.chain(warnings).collect(),
        source: possible.iter().find_map(|one| one.speed.as_ref()).map(|speed| speed.source.clone()),
    })
}

#[derive(Template)]
#[template(path = "setup_names.html")]
struct NamesPage<'a> {
    frame: Frame,
    names: &'a Names,
    /// The browser's machine, if it is another than the box.
    from: Option<String>,
    back: &'static str,
}

pub fn names(frame: Frame, draft: &Draft, from: IpAddr) -> Answer {
    let from = (!from.is_loopback()).then(|| from.to_canonical().to_string());
    let back = if draft.goes_on { "/disks" } else { "/layout" };
    show(&NamesPage { frame, names: &draft.names, from, back })
}

#[derive(Template)]
#[template(path = "setup_review.html")]
struct ReviewPage<'a> {
    frame: Frame,
    deeds: &'a [String],
    erased: Vec<ErasedView>,
    names: &'a Names,
    strength: &'static str,
    strength_class: &'static str,
}

struct ErasedView {
    field: String,
    title: String,
    holds: String,
    token: String,
}

pub fn review(frame: Frame, draft: &Draft, check: &SetupCheck) -> Answer {
    let erased = check.erased.iter().enumerate().map(|(at, erased)| ErasedView {
        field: format!("typed{at}"),
        title: erased.title.clone(),
        holds: erased.holds.join("; "),
        token: erased.token.clone(),
    });
    let strength = draft.strength();
    show(&ReviewPage {
        frame,
        deeds: &check.deeds,
        erased: erased.collect(),
        names: &draft.names,
        strength: strength.word(),
        strength_class: if strength >= super::password::Strength::Good { "fine" } else { "warn" },
    })
}

#[derive(Template)]
#[template(path = "setup_progress.html")]
struct ProgressPage<'a> {
    frame: Frame,
    steps: Vec<(&'static str, &'a str)>,
    percent: u8,
}

pub fn progress(frame: Frame, progress: &SetupProgress) -> Answer {
    let steps = progress.steps.iter().enumerate().map(|(at, step)| {
        let state = match at {
            at if at < progress.done => "done",
            at if at == progress.done => "now",
            _ => "next",
        };
        (state, step.as_str())
    });
    let percent = percent(progress.done as u64, progress.steps.len() as u64);
    show(&ProgressPage { frame, steps: steps.collect(), percent })
}

#[derive(Template)]
#[template(path = "setup_done.html")]
struct DonePage<'a> {
    frame: Frame,
    system: &'static str,
    ways: Vec<Way>,
    others: Vec<(&'static str, Vec<Way>)>,
    served: &'a SetupServed,
    host: &'a str,
}

pub fn done(frame: Frame, served: &SetupServed, host: &str, agent: &str, is_here: bool) -> Answer {
    let system = System::of_agent(agent);
    let others = System::ALL.into_iter().filter(|other| *other != system);
    // Other computers reach the box by its own address, whatever this browser calls it.
    let elsewhere = if is_here { served.host.as_str() } else { host };
    let others = others.map(|other| (other.name(), ways(other, elsewhere, served, false)));
    show(&DonePage {
        frame,
        system: system.name(),
        ways: ways(system, host, served, is_here),
        others: others.filter(|(_, ways)| !ways.is_empty()).collect(),
        served,
        host,
    })
}

/// Of the page; without it, of the files in a browser.
fn address(served: &SetupServed, host: &str) -> Option<String> {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let page = served.page_port.map(|port| format!("https://{host}:{port}{BASE}/"));
    page.or_else(|| served.webdavs.as_ref().map(|door| format!("https://{host}:{}/", door.port)))
}

#[derive(Template)]
#[template(path = "setup_left.html")]
struct LeftPage {
    frame: Frame,
    address: Option<String>,
}

pub fn left(frame: Frame, served: &SetupServed, host: &str) -> Answer {
    show(&LeftPage { frame, address: address(served, host) })
}
