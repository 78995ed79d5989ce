//! Words for what was measured, and how text from elsewhere is made harmless.
//!
//! Titles, paths, host names and notes come from files and other machines. [`clean`] takes away what moves a
//! terminal's cursor or turns text around; the HTML report escapes what is left (`html/escape.rs`).

pub(crate) use larder_base::printed::width;
use unicode_width::UnicodeWidthChar;

use super::units;
use crate::bench::result::{Caches, Kind, Layer, Run, Workload};

/// From the bottom to the top.
pub(crate) const LAYERS: [Layer; 7] =
    [Layer::Disk, Layer::Disks, Layer::Pool, Layer::Net, Layer::Share, Layer::Both, Layer::Copy];

pub(crate) fn layer(layer: Layer) -> &'static str {
    match layer {
        Layer::Disk => "disk",
        Layer::Disks => "disks together",
        Layer::Pool => "pool",
        Layer::Net => "net",
        Layer::Share => "share",
        Layer::Both => "both",
        Layer::Copy => "copy",
    }
}

pub(crate) fn layer_meaning(layer: Layer) -> &'static str {
    match layer {
        Layer::Disk => "each disk by itself",
        Layer::Disks => "all disks at once, without a pool",
        Layer::Pool => "through the pool, on the machine itself",
        Layer::Net => "the wire, without storage",
        Layer::Share => "over the wire, through a protocol",
        Layer::Both => "disks and wire at the same time",
        Layer::Copy => "read at one end, written at the other, flushed at last",
    }
}

pub(crate) fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "read",
        Kind::Write => "write",
        Kind::RandomRead => "random read",
        Kind::RandomWrite => "random write",
        Kind::RandomMixed => "random 75/25",
        Kind::Cat => "cat",
        Kind::CreateFiles => "create files",
        Kind::ReadFiles => "read files",
        Kind::StatFiles => "stat files",
        Kind::DeleteFiles => "delete files",
        Kind::CopyTreeIn => "copy tree in",
        Kind::CopyTreeOut => "copy tree out",
        Kind::Copy => "copy",
        Kind::Scrub => "scrub",
        Kind::Send => "send",
        Kind::Receive => "receive",
        Kind::SendReceive => "send and receive",
    }
}

/// `random read 4 KiB x64`: what is done, in which blocks, and how many requests are in flight.
pub(crate) fn workload(work: &Workload) -> String {
    let mut text = kind(work.kind).to_owned();
    if matches!(work.kind, Kind::Send | Kind::Receive | Kind::SendReceive) {
        let plural = if work.jobs == 1 { "" } else { "s" };
        return format!("{text}, {} stream{plural}", work.jobs);
    }
    if work.kind == Kind::Copy {
        return if work.files > 1 { format!("copy {} files", work.files) } else { "copy a large file".to_owned() };
    }
    if work.block_bytes > 0 {
        text.push_str(&format!(" {}", units::size(work.block_bytes as f64)));
    }
    let flight = u64::from(work.depth.max(1)) * u64::from(work.jobs.max(1));
    if flight > 1 {
        text.push_str(&format!(" x{flight}"));
    }
    text
}

pub(crate) fn caches(caches: Caches) -> &'static str {
    match caches {
        Caches::Bypassed => "caches bypassed",
        Caches::Dropped => "caches dropped",
        Caches::TooSmall => "data larger than memory",
        Caches::Warm => "caches warm: memory was measured",
        Caches::Unknown => "the far machine's caches unknown",
    }
}

/// `/mnt/a`, `nas, nfs3`, with the values of its variant behind: what tells a run from its neighbours.
pub(crate) fn subject(run: &Run) -> String {
    let mut text = several(&run.subject);
    let told = |scheme: &str| run.access.starts_with(scheme) || (run.access == "webdav" && scheme.starts_with("dav"));
    let told = run.subject.split_once("://").is_some_and(|(scheme, _)| told(scheme));
    if !told && !matches!(run.access.as_str(), "" | "local" | "tcp") {
        text.push_str(&format!(", {}", clean(&run.access)));
    }
    let told: Vec<String> = told_variant(run).map(|(_, value)| clean(value)).collect();
    if !told.is_empty() {
        text.push_str(&format!(" ({})", told.join(", ")));
    }
    text
}

/// `8 disks: nvme0n1 to nvme7n1` instead of all of them.
pub(crate) fn several(subject: &str) -> String {
    let names: Vec<&str> = subject.split(", ").collect();
    match names[..] {
        [first, _, .., last] => format!("{} disks: {} to {}", names.len(), clean(first), clean(last)),
        _ => clean(subject),
    }
}

/// The properties of a run that neither its subject nor its layer says already.
pub(crate) fn told_variant(run: &Run) -> impl Iterator<Item = (&String, &String)> {
    run.variant.iter().filter(|(key, value)| **value != run.subject && *key != "beside")
}

/// `compression zstd, encryption none`
pub(crate) fn variant(run: &Run) -> String {
    let pairs: Vec<String> = run.variant.iter().map(|(k, v)| format!("{} {}", clean(k), clean(v))).collect();
    pairs.join(", ")
}

/// One line without control characters, without characters that reverse the direction of others or have no width
/// at all, and not endless.
pub(crate) fn clean(text: &str) -> String {
    const LONGEST: usize = 400;
    let visible = |c: char| !is_trick(c);
    let blank = |c: char| if c.is_control() || c.is_whitespace() { ' ' } else { c };
    let mut out: String = text.chars().map(blank).filter(|c| visible(*c)).take(LONGEST).collect();
    if text.chars().nth(LONGEST).is_some() {
        out.push('…');
    }
    out.trim().to_owned()
}

/// Marks and overrides of direction (Unicode TR 36), invisible joiners, tags, the byte order mark.
fn is_trick(c: char) -> bool {
    matches!(c,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{061c}' | '\u{e0000}'..='\u{e007f}')
}

/// No wider than `columns`; what was cut is an ellipsis in the middle, where paths are least telling.
pub(crate) fn shortened(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    if columns <= 1 {
        return "…".repeat(columns);
    }
    let head = fitting(text.chars(), (columns - 1) / 2);
    let tail: Vec<char> = fitting(text.chars().rev(), columns - 1 - width(&head.iter().collect::<String>()));
    head.into_iter().chain(['…']).chain(tail.into_iter().rev()).collect()
}

/// All of a column, none wider than `columns`. Names that have to be cut lose what they begin with alike, as often as it
/// takes to tell them apart.
pub(crate) fn told_apart(names: &[&str], columns: usize) -> Vec<String> {
    let mut short: Vec<String> = names.iter().map(|name| shortened(name, columns)).collect();
    let wide: Vec<usize> = (0..names.len()).filter(|at| width(names[*at]) > columns).collect();
    let mut groups = vec![wide];
    while let Some(group) = groups.pop() {
        let all: Vec<Vec<char>> = group.iter().map(|at| names[*at].chars().collect()).collect();
        let Some(first) = all.first().filter(|first| all.iter().any(|other| other != *first)) else { continue };
        let alike = (0..first.len()).take_while(|n| all.iter().all(|other| other.get(*n) == first.get(*n))).count();
        let mut cut: std::collections::BTreeMap<String, Vec<usize>> = std::collections::BTreeMap::new();
        for (at, name) in group.iter().zip(&all) {
            short[*at] = without_beginning(name, alike, columns);
            cut.entry(short[*at].clone()).or_default().push(*at);
        }
        // Each has a longer beginning in common than all together.
        groups.extend(cut.into_values().filter(|alike| alike.len() > 1 && alike.len() < group.len()));
    }
    short
}

/// The rest of a name behind its first `skipped` characters, of which a few stay.
fn without_beginning(name: &[char], skipped: usize, columns: usize) -> String {
    const STAY: usize = 3;
    let from = skipped.saturating_sub(STAY);
    if from == 0 {
        return shortened(&name.iter().collect::<String>(), columns);
    }
    let rest: String = name.iter().skip(from).collect();
    let room = columns.saturating_sub(1);
    match width(&rest) <= room {
        true => format!("…{rest}"),
        false => format!("…{}…", fitting(rest.chars(), room.saturating_sub(1)).into_iter().collect::<String>()),
    }
}

fn fitting(chars: impl Iterator<Item = char>, columns: usize) -> Vec<char> {
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= columns
    };
    chars.take_while(fits).collect()
}

/// Broken at blanks, each line no wider than `columns`; a word that is wider is cut.
pub(crate) fn folded(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split(' ').filter(|w| !w.is_empty()) {
        let word = &shortened(word, columns);
        if !line.is_empty() && width(&line) + 1 + width(word) > columns {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_stay_different() {
        let names =
            ["smb://nas/data/films (signed with AES-GMAC)", "smb://nas/data/films (encrypted with AES-GCM)", "/mnt/a"];
        let other = "smb://nas/data/sound (signed with AES-GMAC)";
        for columns in [8, 12, 20, 30, 44] {
            let told = told_apart(&[names[0], names[1], names[2], other], columns);
            assert!(told.iter().all(|name| width(name) <= columns), "{told:?}");
            assert!(told[0] != told[1] && told[0] != told[3] && told[2] == "/mnt/a", "{told:?}");
        }
        assert_eq!(told_apart(&["x", "x"], 8), ["x", "x"]);
    }

    #[test]
    fn hostile_text_is_one_visible_line() {
        assert_eq!(clean("a\x1b[31mb\r\nc\td"), "a [31mb  c d");
        assert_eq!(clean("safe\u{202e}txt.exe\u{200b}"), "safetxt.exe");
        assert_eq!(width(&clean(&"x".repeat(10_000))), 401);
        assert_eq!(clean(" \u{7} "), "");
    }

    #[test]
    fn wide_names_are_cut_by_columns() {
        assert_eq!(shortened("/mnt/写真", 9), "/mnt/写真");
        assert_eq!(width("/mnt/写真"), 9);
        let cut = shortened("/mnt/写真写真写真", 9);
        assert!(width(&cut) <= 9 && cut.contains('…'), "{cut}");
        assert_eq!(shortened("abcdef", 0), "");
        assert_eq!(shortened("abcdef", 1), "…");
        assert_eq!(shortened("abcdefghij", 7), "abc…hij");
    }

    #[test]
    fn long_lines_are_broken_at_blanks() {
        assert_eq!(folded("one two three", 7), ["one two", "three"]);
        assert_eq!(folded("unbreakable", 3), ["u…e"]);
        assert_eq!(folded("", 3), [""]);
    }
}
