//! `pool status` and `pool scrub status`, in the order and words that users of zpool know.

use larder_api::{ByteRange, Damage, PoolScrub, PoolStatus, ScrubStatus};
use larder_base::printed::{padded, width};
use larder_base::units::{ByteSize, Elapsed};

use super::{Paint, advice, folded, moving, shown};
use larder_config::times;

/// Damaged files that are listed without being asked for all.
const LISTED: usize = 10;
/// Cells of the progress bar.
const BAR_CELLS: u64 = 30;

/// As `zpool status` shows it; with `verbose` every file that has lost data.
pub(crate) fn pool(pool: &PoolStatus, verbose: bool, paint: Paint) -> String {
    let mut text = String::new();
    let mut line = |label: &str, value: &str| text.push_str(&format!("{label:>7}: {value}\n"));
    line("pool", &pool.name);
    line("state", &paint.state(&pool.state, 0));
    if let Some(status) = &pool.status {
        line("status", &folded(status));
    }
    if let Some(action) = &pool.action {
        line("action", advice(action).trim_start());
    }
    line("scan", &folded(&scan(pool)));
    if let Some(shards) = &pool.moving {
        line("moving", &folded(&moving(shards)));
    }
    line("layout", &pool.layout);
    let (used, total, available) =
        (ByteSize(pool.used_bytes), ByteSize(pool.total_bytes), ByteSize(pool.available_bytes));
    line("space", &format!("{used} used of {total}, {available} available"));
    text.push_str(" config:\n\n");
    text.push_str(&disk_tree(pool, paint));
    for spare in &pool.spares {
        text.push_str(&format!("    spare: {}\n", spare.display()));
    }
    for note in &pool.notes {
        text.push_str(&format!("\n   note: {}\n", advice(note)));
    }
    text.push_str(&format!("\nerrors: {}", errors(&pool.damage, if verbose { usize::MAX } else { LISTED })));
    text
}

/// No disk is out of use or has errors, and nothing is lost.
pub(crate) fn is_well(pool: &PoolStatus) -> bool {
    pool.state == "ONLINE" && pool.status.is_none() && pool.damage.count() == 0
}

/// One line for each pool that is not well.
pub(crate) fn unwell(pools: &[PoolStatus]) -> String {
    let line = |pool: &PoolStatus| {
        let state = pool.state.to_lowercase();
        let why = pool.status.as_deref().unwrap_or("see: larder pool status").replace('\n', " ");
        format!("pool '{}' is {state}: {why}", pool.name)
    };
    let lines: Vec<String> = pools.iter().filter(|pool| !is_well(pool)).map(line).collect();
    if lines.is_empty() { "all pools are healthy".to_owned() } else { lines.join("\n") }
}

fn scan(pool: &PoolStatus) -> String {
    let scrub = pool.scrub.as_ref().map_or_else(|| "none requested".to_owned(), scrub_text);
    match &pool.scan {
        Some(repair) => format!("{repair}\n{scrub}"),
        None => scrub,
    }
}

/// The progress or the result of a scrub.
fn scrub_text(scrub: &ScrubStatus) -> String {
    let repaired = ByteSize(scrub.repaired_bytes);
    let (done, total) = (ByteSize(scrub.bytes_done), ByteSize(scrub.bytes_total));
    let percent = percent(scrub);
    let at = times::local(scrub.ended_ms.unwrap_or(scrub.started_ms));
    match scrub.phase.as_str() {
        "running" => {
            let rate = ByteSize(scrub.bytes_per_second);
            let left = scrub.seconds_left.map_or("time to go unknown".to_owned(), |s| format!("{} to go", Elapsed(s)));
            format!(
                "scrub in progress since {at}\n{done} of {total} read at {rate}/s\n\
                 {repaired} repaired, {percent:.2} % done, {left}"
            )
        }
        "paused" => {
            format!("scrub paused since {at}\n{done} of {total} read, {repaired} repaired, {percent:.2} % done")
        }
        "stopped" => format!("scrub stopped at {at}, {percent:.2} % done, {repaired} repaired"),
        _ => {
            let took = Elapsed(scrub.elapsed_ms / 1000);
            let errors = match scrub.unrepaired {
                1 => "1 error".to_owned(),
                n => format!("{n} errors"),
            };
            let rate = ByteSize(scrub.bytes_per_second);
            format!("scrub repaired {repaired} in {took} with {errors} on {at} ({done} read at {rate}/s)")
        }
    }
}

fn percent(scrub: &ScrubStatus) -> f64 {
    match scrub.bytes_total {
        0 => 100.0,
        total => scrub.bytes_done as f64 * 100.0 / total as f64,
    }
}

/// One line that is drawn over itself while somebody waits.
pub(crate) fn progress(scrub: &ScrubStatus) -> String {
    let cells = (percent(scrub) * BAR_CELLS as f64 / 100.0) as usize;
    let bar = format!("{}{}", "#".repeat(cells), "-".repeat(BAR_CELLS as usize - cells.min(BAR_CELLS as usize)));
    let left = scrub.seconds_left.map_or_else(String::new, |s| format!(", {} to go", Elapsed(s)));
    let (done, rate) = (ByteSize(scrub.bytes_done), ByteSize(scrub.bytes_per_second));
    format!("[{bar}] {:5.1} %  {done} at {rate}/s{left}", percent(scrub))
}

pub(crate) fn scrubs(pools: &[PoolScrub]) -> String {
    let text = |pool: &PoolScrub| {
        let scan = pool.scrub.as_ref().map_or_else(|| "none requested".to_owned(), scrub_text);
        format!("   pool: {}\n   scan: {}\nerrors: {}", pool.pool, folded(&scan), errors(&pool.damage, LISTED))
    };
    let texts: Vec<String> = pools.iter().map(text).collect();
    if texts.is_empty() { "no pools".to_owned() } else { texts.join("\n") }
}

/// The losses, at most `listed` lines of them.
fn errors(damage: &Damage, listed: usize) -> String {
    if damage.count() == 0 {
        return "No known data errors\n".to_owned();
    }
    let files = damage.files.iter().flat_map(|file| {
        let names = match file.paths.as_slice() {
            [] => vec![format!("{}: <removed file, inode {}>", file.volume, file.inode)],
            paths => paths.iter().map(|path| format!("{}:{}", file.volume, shown(path))).collect(),
        };
        names.into_iter().map(|name| format!("{name}  ({})", ranges(&file.ranges)))
    });
    let metadata = damage.metadata.iter().map(|one| {
        let of = one.volume.as_deref().unwrap_or("the pool");
        format!("<metadata of {of}> {}  ({})", one.object, ranges(&one.ranges))
    });
    let lines: Vec<String> = files.chain(metadata).collect();
    let mut text = match damage.out_of_reach {
        0 => "Permanent errors have been found in the following files:\n\n".to_owned(),
        _ => {
            "The following files cannot be read, not all of them for good: too few disks have them now:\n\n".to_owned()
        }
    };
    for line in lines.iter().take(listed) {
        text.push_str(&format!("        {line}\n"));
    }
    let more = lines.len().saturating_sub(listed) as u64 + damage.more;
    if more > 0 {
        text.push_str(&format!("        and {more} more (all of them: --json)\n"));
    }
    text
}

fn ranges(ranges: &[ByteRange]) -> String {
    let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let first = ranges.first().map_or(0, |range| range.start);
    let places = if ranges.len() > 1 { format!(" in {} places", ranges.len()) } else { String::new() };
    format!("{}{places} from byte {first} on", ByteSize(bytes))
}

fn disk_tree(pool: &PoolStatus, paint: Paint) -> String {
    let names: Vec<String> = pool.disks.iter().map(|d| shown(&d.path.display().to_string()).into_owned()).collect();
    let widths = names.iter().map(|name| width(name) + 2).chain([width(&pool.name), 4]);
    let columns = widths.max().unwrap_or(4);
    let state_width = pool.disks.iter().map(|d| d.state.len()).chain([pool.state.len(), 8]).max().unwrap_or(8);
    let mut text = format!(
        "    {:<columns$}  {:<state_width$}  {:>5} {:>5} {:>5}  {:>8}\n",
        "NAME", "STATE", "READ", "WRITE", "CKSUM", "FREE"
    );
    let zero = paint.count(0, 5);
    text.push_str(&format!(
        "    {}  {}  {zero} {zero} {zero}\n",
        padded(&pool.name, columns, false),
        paint.state(&pool.state, state_width)
    ));
    for (disk, name) in pool.disks.iter().zip(&names) {
        let name = padded(&format!("  {name}"), columns, false);
        let row = format!(
            "    {name}  {}  {} {} {}  {:>8}{}{}",
            paint.state(&disk.state, state_width),
            paint.count(disk.read_errors, 5),
            paint.count(disk.write_errors, 5),
            paint.count(disk.checksum_errors, 5),
            ByteSize(disk.free_bytes).to_string(),
            if disk.shares_room { "*" } else { "" },
            disk.note.as_ref().map(|n| format!("  {n}")).unwrap_or_default(),
        );
        text.push_str(row.trim_end());
        text.push('\n');
    }
    if pool.disks.iter().any(|disk| disk.shares_room) {
        text.push_str("\n    * on one filesystem: this room is there once\n");
    }
    text
}
