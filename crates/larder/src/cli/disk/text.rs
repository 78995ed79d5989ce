//! Disks for people to read. Pure: values in, text out.

use larder_base::units::ByteSize;
use larder_facts::disk::{CheckReport, Contents, DiskReport, Finding, Level, Listed, Prepare, Prepared};

use crate::render::table;

pub(super) fn list(disks: &[Listed]) -> String {
    if disks.is_empty() {
        return "no disks".to_owned();
    }
    let header = ["DEVICE", "BUS", "KIND", "MODEL", "SERIAL", "USED", "HOLDS", "SIZE"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for disk in disks {
        let device = &disk.device;
        let dash = || "-".to_owned();
        rows.push(vec![
            device.path.display().to_string(),
            device.bus.word().to_owned(),
            device.medium.word().to_owned(),
            device.model.clone().unwrap_or_else(dash),
            device.serial.as_ref().map_or_else(dash, |s| s.text.clone()),
            used(disk),
            holds(&disk.contents),
            ByteSize(device.size_bytes).to_string(),
        ]);
    }
    table(&rows, &[7])
}

fn holds(contents: &Contents) -> String {
    match contents {
        Contents::Empty => "nothing".to_owned(),
        Contents::Holds(phrases) => phrases.join(", "),
        Contents::Unknown => "not known".to_owned(),
    }
}

fn used(disk: &Listed) -> String {
    let bare = |text: &String| text.trim_start_matches("it is ").to_owned();
    let mut words: Vec<String> = disk.used.iter().map(bare).collect();
    words.dedup();
    if disk.system {
        words.insert(0, "system".to_owned());
    }
    match (words.is_empty(), disk.partitions.len()) {
        (false, _) => words.join(", "),
        (true, 0) => "no".to_owned(),
        (true, n) => format!("no, but has {n} partitions"),
    }
}

pub(super) fn report(report: &CheckReport, colour: bool) -> String {
    let disks: Vec<String> = report.disks.iter().map(|disk| one(disk, colour)).collect();
    let verdict = match report.verdict {
        Level::Ok => "fit for a pool",
        Level::Note => "fit for a pool; see the notes",
        Level::Warning => "usable, with the warnings above in mind",
        Level::Refuse => "not fit for a pool as it is",
    };
    format!("{}\nverdict: {}", disks.join("\n"), painted(report.verdict, verdict, colour))
}

/// A statement, and the disks of which it is true.
type Fact<'a> = (&'a str, Vec<String>);

/// One line for each kind of warning, with all disks that it concerns.
pub(super) fn warnings(report: &CheckReport) -> Vec<String> {
    // Each kind once, and in it each fact with the disks that it is true of.
    let mut kinds: Vec<(&Finding, Vec<Fact>)> = Vec::new();
    for disk in &report.disks {
        let path = disk.given.display().to_string();
        for finding in disk.findings.iter().filter(|finding| finding.level >= Level::Warning) {
            let at = kinds.iter().position(|(known, _)| known.code == finding.code).unwrap_or_else(|| {
                kinds.push((finding, Vec::new()));
                kinds.len() - 1
            });
            let Some((_, facts)) = kinds.get_mut(at) else { continue };
            match facts.iter_mut().find(|(what, _)| *what == finding.what) {
                Some((_, paths)) if paths.contains(&path) => {}
                Some((_, paths)) => paths.push(path.clone()),
                None => facts.push((&finding.what, vec![path.clone()])),
            }
        }
    }
    let line = |(finding, facts): (&Finding, Vec<Fact>)| {
        let facts: Vec<String> = facts.iter().map(|(what, paths)| format!("{}: {what}", paths.join(", "))).collect();
        let why = if finding.why.is_empty() { String::new() } else { format!(" ({})", finding.why) };
        let action = finding.action.as_ref().map(|action| format!("; {action}")).unwrap_or_default();
        format!("{}{why}{action}", facts.join("; "))
    };
    kinds.into_iter().map(line).collect()
}

fn one(disk: &DiskReport, colour: bool) -> String {
    let mut text = format!("{}\n", disk.given.display());
    for device in &disk.devices {
        let device = &device.device;
        let serial = device.serial.as_ref().map_or("no serial number".to_owned(), |s| format!("serial {}", s.text));
        let size = ByteSize(device.size_bytes);
        text.push_str(&format!(
            "  on {}: {} {}, {serial}, {size}\n",
            device.title(),
            device.bus.word(),
            device.medium.word()
        ));
    }
    for finding in &disk.findings {
        text.push_str(&found(finding, colour));
    }
    for unknown in &disk.unknown {
        text.push_str(&format!("  unknown  {}\n           why: {}\n", unknown.what, unknown.why));
        text.extend(unknown.action.iter().map(|action| format!("           action: {action}\n")));
    }
    text
}

fn found(finding: &Finding, colour: bool) -> String {
    let word = painted(finding.level, &format!("{:<7}", finding.level.word()), colour);
    let mut text = format!("  {word}  {}\n", finding.what);
    if !finding.why.is_empty() {
        text.push_str(&format!("           why: {}\n", finding.why));
    }
    text.extend(finding.action.iter().map(|action| format!("           action: {action}\n")));
    text
}

fn painted(level: Level, text: &str, colour: bool) -> String {
    let code = match level {
        _ if !colour => return text.to_owned(),
        Level::Ok => "32",
        Level::Note => "36",
        Level::Warning => "33",
        Level::Refuse => "31",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

pub(super) fn plan(plan: &Prepare) -> String {
    let mut text = format!("{}\n", plan.title());
    match plan.is_empty() {
        true => text.push_str("  is empty\n"),
        false => text.extend(plan.uses.iter().map(|u| format!("  {}\n", u.text()))),
    }
    text.push_str("would be done:\n");
    text.extend(plan.commands.iter().map(|command| format!("  {command}\n")));
    if !plan.is_empty() {
        text.push_str(&format!("needs: --serial {}\n", plan.token));
    }
    text
}

pub(super) fn prepared(done: &Prepared) -> String {
    let (device, at, fstab) = (done.device.display(), done.mount.display(), done.fstab.display());
    let folder = larder_base::shell::word(&done.mount.join("larder"));
    let kept = done.fstab_backup.as_ref().map(|b| format!(" (before: {})", b.display())).unwrap_or_default();
    format!(
        "{device} is XFS '{}' now, mounted at {at}, and at every start by {fstab}{kept}\nnext: mkdir {folder} && larder disk check {folder}",
        done.label
    )
}
