//! Verdict, evidence and fixes for a terminal. Pure: values in, text out, and nothing wider than the terminal.

use larder_base::units::ByteSize;

use super::sentences::what_words;
use super::{
    Advice, Assumed, Confidence, Diagnosis, Examination, Examples, Finding, Gain, NamedStage, Notice, Plan, ToldGoal,
    bytes_words, rate_words,
};
use crate::bench::show::text::{Align, Cell, Paint, Table, finished};
use crate::bench::show::words::{clean, folded, width};
use crate::bench::show::{Style, capital};
use larder_facts::disk::Level;
use larder_facts::machine::ZfsPool;
use larder_facts::reading::{Drive, Reading};

/// A terminal narrower than this breaks lines by itself.
const COLUMNS_MIN: usize = 40;
const GAP: &str = "  ";
/// Even a crowded table shows so much of a cell.
const CELL_MIN: usize = 10;

/// The chain of every row: each stage's limit and how it is known, and what decided.
pub fn why(found: &Diagnosis, style: &Style) -> String {
    let style = &Style { width: style.width.max(COLUMNS_MIN), ..*style };
    let mut text = String::new();
    for finding in &found.findings {
        let what = finding.measured.what;
        let rate = rate_words(finding.measured.rate, what);
        let lead = format!("{} ({rate}): {}", finding.title, finding.limit);
        text.push_str(&format!("{}\n", Paint::Bold.over(&folded(&clean(&lead), style.width).join("\n"), style)));
        let mut rows = vec![["STAGE", "ALLOWS", "REACHED", "KNOWN", ""].map(str::to_owned)];
        for NamedStage { name, known, stage } in &finding.stages {
            let most = rate_words(stage.limit, what);
            let allows =
                if stage.is_range() { format!("{} to {most}", rate_words(stage.limit_low, what)) } else { most };
            let reached = format!("{:.0} %", finding.measured.rate / stage.limit * 100.0);
            let crossed = match stage.crossings {
                once if (once - 1.0).abs() < 0.005 => String::new(),
                times => format!(", {times:.2} bytes for each"),
            };
            rows.push([clean(name), allows, reached, clean(&format!("{known}{crossed}")), String::new()]);
        }
        text.push_str(&if rows.len() > 1 { wrapped(&rows, style) } else { "  no stage is known\n".to_owned() });
        text.push_str(&indented(&format!("decided: {} ({})", finding.decided, finding.why), "  ", style));
        text.push('\n');
    }
    if found.findings.is_empty() {
        text.push_str("nothing was measured, so nothing was decided\n");
    }
    finished(&text, style)
}

pub fn assumed(found: &Assumed, style: &Style) -> String {
    let style = &Style { width: style.width.max(COLUMNS_MIN), ..*style };
    let mut text = indented(&format!("{} with {}", found.name, found.assumptions.join(", ")), "", style);
    text.push('\n');
    let mut rows = vec![["WAY", "NOW", "THEN", "THEN LIMITED BY", ""].map(str::to_owned)];
    for way in &found.ways {
        let now = rate_words(way.rate_now, way.of);
        let now = if way.is_measured { now } else { format!("{now} on paper") };
        rows.push([clean(&way.title), now, rate_words(way.rate_then, way.of), clean(&way.limit), String::new()]);
    }
    text.push_str(&wrapped(&rows, style));
    finished(&text, style)
}

pub fn plan(found: &Plan, style: &Style) -> String {
    let style = &Style { width: style.width.max(COLUMNS_MIN), ..*style };
    let mut text = indented(&format!("{}: what its parts would give, on paper", found.name), "", style);
    let mut told: Vec<(&Option<String>, &String)> = Vec::new();
    for group in found.ways.iter().map(|way| (&way.client, &way.network)) {
        if told.contains(&group) {
            continue;
        }
        told.push(group);
        let client = group.0.as_deref().unwrap_or("any client");
        text.push_str(&format!("\n{}", indented(&format!("{client}, network {}", group.1), "", style)));
        let mut rows = vec![["WHAT", "AT MOST", "LIMITED BY", "NEXT", ""].map(str::to_owned)];
        for way in found.ways.iter().filter(|way| (&way.client, &way.network) == group) {
            let rate = match way.rate_low < way.rate * 0.99 {
                true => format!("{} to {}", rate_words(way.rate_low, way.of), rate_words(way.rate, way.of)),
                false => rate_words(way.rate, way.of),
            };
            let next = way.next.clone().unwrap_or_default();
            rows.push([what_words(way.of).to_owned(), rate, clean(&way.limit), clean(&next), String::new()]);
        }
        text.push_str(&wrapped(&rows, style));
    }
    finished(&text, style)
}

/// The verdict, the evidence, and what would help: the greatest gain first.
pub fn diagnosis(found: &Diagnosis, style: &Style) -> String {
    let style = &Style { width: style.width.max(COLUMNS_MIN), ..*style };
    finished(&answer(found, style), style)
}

pub fn examination(found: &Examination, style: &Style) -> String {
    let style = &Style { width: style.width.max(COLUMNS_MIN), ..*style };
    let mut text = answer(&found.diagnosis, style);
    if let Some(reading) = &found.reading {
        text.push_str(&machine(reading, style));
    }
    if !found.notices.is_empty() {
        text.push_str("\nnoticed:\n");
    }
    text.extend(found.notices.iter().map(|notice| noticed(notice, style)));
    finished(&text, style)
}

fn answer(found: &Diagnosis, style: &Style) -> String {
    let (name, verdict) = (clean(&found.name), clean(&found.verdict));
    let lines = folded(&format!("{name}: {verdict}"), style.width).join("\n");
    let mut text = match lines.strip_prefix(&name) {
        Some(rest) => format!("{}{rest}\n", Paint::Bold.over(&name, style)),
        None => format!("{lines}\n"),
    };
    if !found.questions.is_empty() {
        text.push_str("\nplease answer, by changing the description:\n");
        text.extend(found.questions.iter().map(|question| indented(&question.text, "  ", style)));
    }
    text.push_str(&evidence(&found.findings, style));
    text.extend(found.remarks.iter().map(|remark| indented(remark, "  ", style)));
    text.push_str(&help(&found.advice, style));
    text.push_str(&goals(&found.goals, style));
    text
}

pub fn examples(found: &Examples, style: &Style) -> String {
    let style = &Style { width: style.width.max(COLUMNS_MIN), ..*style };
    if found.found.is_empty() {
        let subjects = found.subjects.join(", ");
        let said = format!("no report has '{}'; there are: {subjects}", clean(&found.word));
        return finished(&indented(&said, "", style), style);
    }
    let mut text = String::new();
    for one in &found.found {
        let head = format!("{} ({})", clean(&one.name).replace('-', " "), clean(&one.subject));
        text.push_str(&indented(&capital(&head), "", style));
        text.extend(one.measured.iter().map(|row| indented(row, "  ", style)));
        text.push_str(&indented(&format!("found: {}", one.solution), "  ", style));
        // An address that is broken is none.
        text.push_str(&format!("  {}\n\n", clean(&one.source)));
    }
    if found.more > 0 {
        text.push_str(&format!("and {} more\n", found.more));
    }
    finished(text.trim_end(), style)
}

fn goals(goals: &[ToldGoal], style: &Style) -> String {
    let told: String = goals.iter().map(|goal| indented(&capital(&goal.sentence), "  ", style)).collect();
    if told.is_empty() { told } else { format!("\ngoals:\n{told}") }
}

/// Lines with this before each.
fn indented(text: &str, indent: &str, style: &Style) -> String {
    let lines = folded(&clean(text), style.width.saturating_sub(indent.len()));
    lines.iter().map(|line| format!("{indent}{line}\n")).collect()
}

fn evidence(findings: &[Finding], style: &Style) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let mut rows = vec![["MEASURED", "RATE", "LIMIT", "WHY", "SURE"].map(str::to_owned)];
    rows.extend(findings.iter().map(|finding| {
        let m = &finding.measured;
        let rate = match m.what.is_random() {
            true => crate::bench::show::units::iops(m.rate),
            false => bytes_words(m.rate),
        };
        [&finding.title, &rate, &finding.limit, &finding.why, finding.confidence.word()].map(|cell: &str| clean(cell))
    }));
    format!("\n{}", wrapped(&rows, style))
}

impl Confidence {
    pub fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Maybe => "maybe",
            Self::Likely => "likely",
            Self::Certain => "certain",
        }
    }

    fn paint(self) -> Paint {
        match self {
            Self::Open => Paint::Bad,
            Self::Maybe | Self::Likely => Paint::Warn,
            Self::Certain => Paint::Good,
        }
    }
}

/// A table whose cells go on in the next line where the terminal has no room for them. The second column is of figures;
/// the last one says how sure a row is.
fn wrapped<const N: usize>(rows: &[[String; N]], style: &Style) -> String {
    let room = style.width.saturating_sub(2 + GAP.len() * N.saturating_sub(1));
    let natural = |column: usize| rows.iter().map(|row| width(&row[column])).max().unwrap_or(0);
    let mut widths: [usize; N] = std::array::from_fn(natural);
    // The widest gives way first; the last column is one word.
    while widths.iter().sum::<usize>() > room {
        let Some(widest) = (0..N - 1).filter(|c| widths[*c] > CELL_MIN).max_by_key(|c| widths[*c]) else { break };
        widths[widest] -= 1;
    }
    if widths.iter().sum::<usize>() > room {
        return stacked(rows, style);
    }
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let cells: [Vec<String>; N] = std::array::from_fn(|column| folded(&row[column], widths[column].max(1)));
        let lines = cells.iter().map(Vec::len).max().unwrap_or(0);
        for line in 0..lines {
            let mut drawn = String::new();
            for (column, cell) in cells.iter().enumerate() {
                let part = cell.get(line).map_or("", String::as_str);
                let fill = " ".repeat(widths[column].saturating_sub(width(part)));
                drawn.push_str(if column == 0 { "" } else { GAP });
                match column {
                    1 => drawn.push_str(&format!("{fill}{part}")),
                    last if last + 1 == N && at > 0 => drawn.push_str(&sure(part, style)),
                    _ if at == 0 => drawn.push_str(&format!("{}{fill}", Paint::Dim.over(part, style))),
                    _ => drawn.push_str(&format!("{part}{fill}")),
                }
            }
            text.push_str(&format!("  {}\n", drawn.trim_end()));
        }
    }
    text
}

/// The same below each other, for a terminal that has no room for the columns.
fn stacked<const N: usize>(rows: &[[String; N]], style: &Style) -> String {
    let mut text = String::new();
    let names = rows.first().map(|names| names.each_ref().map(|name| name.to_lowercase()));
    for (row, names) in rows.iter().skip(1).zip(names.iter().cycle()) {
        text.push_str(&indented(&row[0], "  ", style));
        for (name, cell) in names.iter().zip(row).skip(1).filter(|(_, cell)| !cell.is_empty()) {
            text.push_str(&indented(format!("{name} {cell}").trim(), "    ", style));
        }
    }
    text
}

fn sure(word: &str, style: &Style) -> String {
    let all = [Confidence::Certain, Confidence::Likely, Confidence::Maybe, Confidence::Open];
    all.into_iter().find(|sure| sure.word() == word).map_or(String::new(), |sure| sure.paint().over(word, style))
}

fn help(advice: &[Advice], style: &Style) -> String {
    let mut text = if advice.is_empty() { String::new() } else { "\nwould help, the most first:\n".to_owned() };
    for (at, one) in advice.iter().enumerate() {
        let lines = folded(&clean(&one.sentence), style.width.saturating_sub(5));
        let how = folded(&clean(&one.how), style.width.saturating_sub(5));
        text.push_str(&format!("  {}. {}\n", at + 1, lines.join("\n     ")));
        text.push_str(&format!("     {}\n", how.join("\n     ")));
    }
    text
}

fn machine(reading: &Reading, style: &Style) -> String {
    let (host, processor) = (&reading.host, &reading.processor);
    let memory = host.memory_bytes.map(|b| format!("{} of memory", ByteSize(b)));
    let kernel = host.kernel.as_ref().map(|k| format!("Linux {k}"));
    let cores = format!("{} cores", processor.cores);
    let aes = processor.aes.map(|aes| if aes { "AES".to_owned() } else { "no AES".to_owned() });
    let governor = processor.policies.first().map(|p| format!("governor {}", p.governor));
    let parts = [host.model.clone(), processor.model.clone(), Some(cores), aes, governor, memory, kernel];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let mut text =
        format!("\n{}\n", folded(&clean(&format!("machine: {}", parts.join(", "))), style.width).join("\n  "));
    use Align::{Left, Right};
    let mut drives = Table::new(&[
        ("DISK", Left),
        ("KIND", Left),
        ("WAY TO THE PROCESSOR", Left),
        ("NARROWEST", Right),
        ("QUEUE", Left),
        ("TEMP", Right),
    ]);
    reading.drives.iter().for_each(|one| drives.row(drive(one).into_iter().map(|cell| clean(&cell).into()).collect()));
    if !reading.drives.is_empty() {
        text.push_str(&drives.render(style, 2));
    }
    text.extend(reading.zfs.iter().map(|pool| indented(&zfs(pool), "  ", style)));
    if let Some(arc) = reading.arc.as_ref().filter(|_| !reading.zfs.is_empty()) {
        let hits = arc.hit_percent.map_or(String::new(), |hits| format!(", {hits:.0} % of all reads answered by it"));
        let line = format!("ZFS cache: {} of at most {}{hits}", ByteSize(arc.size_bytes), ByteSize(arc.most_bytes));
        text.push_str(&indented(&line, "  ", style));
    }
    let columns = ["NETWORK", "DRIVER", "SPEED", "DUPLEX", "MTU", "QUEUES", "ERRORS"].map(|name| (name, Left));
    let mut nics = Table::new(&columns);
    for nic in &reading.nics {
        let dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let cells = [
            nic.name.clone(),
            dash(nic.driver.clone()),
            dash(nic.speed_mbits.map(|s| format!("{s} Mbit/s"))),
            dash(nic.duplex.clone()),
            dash(nic.mtu.map(|m| m.to_string())),
            nic.receive_queues.to_string(),
            nic.errors.to_string(),
        ];
        nics.row(cells.into_iter().map(|cell| Cell::from(clean(&cell))).collect());
    }
    if !reading.nics.is_empty() {
        text.push_str(&nics.render(style, 2));
    }
    text
}

fn zfs(pool: &ZfsPool) -> String {
    let full = pool.used_percent.map_or(String::new(), |used| format!(", {used} % full"));
    format!("ZFS pool {}: {}, {}{full}", pool.name, pool.shape(), pool.state)
}

fn drive(drive: &Drive) -> Vec<String> {
    let mut way: Vec<String> = drive.hops.iter().map(|hop| format!("{} ({})", hop.now, hop.address)).collect();
    way.splice(0..0, drive.sata_now.iter().map(|s| format!("SATA {s}")));
    let way = if way.is_empty() { "-".to_owned() } else { way.join(" < ") };
    let kind = match (drive.shingled, drive.four_bits) {
        (true, _) => "SMR".to_owned(),
        (_, true) => "QLC".to_owned(),
        _ => format!("{} {}", drive.bus.word(), drive.medium.word()),
    };
    vec![
        drive.title.clone(),
        kind,
        way,
        drive.narrowest().map_or("-".to_owned(), |hop| bytes_words(hop.bytes_per_s)),
        drive.scheduler.clone().unwrap_or_else(|| "-".to_owned()),
        drive.temperature_c.map_or("-".to_owned(), |t| format!("{t} C")),
    ]
}

fn noticed(notice: &Notice, style: &Style) -> String {
    let paint = match notice.level {
        Level::Ok => Paint::Good,
        Level::Note => Paint::Dim,
        Level::Warning => Paint::Warn,
        Level::Refuse => Paint::Bad,
    };
    let gain = notice.gain.map(gain).unwrap_or_default();
    let room = style.width.saturating_sub(11).max(CELL_MIN);
    let what = folded(&clean(&format!("{}{gain}", notice.what)), room).join("\n           ");
    let mut text = format!("  {}  {what}\n", paint.over(&format!("{:<7}", notice.level.word()), style));
    let why = Some(&notice.why).filter(|why| !why.is_empty()).map(|why| format!("why: {why}"));
    let action = notice.action.as_ref().map(|action| format!("action: {action}"));
    text.extend([why, action].into_iter().flatten().map(|line| indented(&line, "           ", style)));
    text
}

fn gain(gain: Gain) -> String {
    match gain.mb_per_s {
        Some(mb) => format!(" (up to +{}, +{:.0} %, by {})", bytes_words(mb * 1e6), gain.percent, gain.rests_on),
        None => format!(" (up to +{:.0} %, by {})", gain.percent, gain.rests_on),
    }
}
