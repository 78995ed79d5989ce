//! Tables and the status tree, as text. Pure: values in, text out.

use larder_api::{CheckResult, PoolListed, PoolStatus, ShareStatus, UserStatus, VolumeStatus};
use larder_base::units::ByteSize;

#[cfg(test)]
mod tests;

/// Escape sequences, or nothing.
#[derive(Clone, Copy)]
pub(crate) struct Paint {
    pub(crate) colour: bool,
}

impl Paint {
    fn state(self, state: &str, width: usize) -> String {
        let padded = format!("{state:<width$}");
        let code = match state {
            _ if !self.colour => return padded,
            "ONLINE" => "32",
            "DEGRADED" | "STALE" | "RESILVERING" | "READONLY" | "FULL" => "33",
            _ => "31",
        };
        format!("\x1b[{code}m{padded}\x1b[0m")
    }

    fn count(self, errors: u64, width: usize) -> String {
        let padded = format!("{:>width$}", short_count(errors));
        if self.colour && errors > 0 { format!("\x1b[31m{padded}\x1b[0m") } else { padded }
    }
}

/// 1234 errors read "1.2K", as in zpool.
fn short_count(n: u64) -> String {
    let (value, unit) = match n {
        0..1000 => return n.to_string(),
        1000..1_000_000 => (n as f64 / 1e3, 'K'),
        1_000_000..1_000_000_000 => (n as f64 / 1e6, 'M'),
        _ => (n as f64 / 1e9, 'G'),
    };
    format!("{value:.1}{unit}")
}

/// As `zpool status` shows it.
pub(crate) fn pool_status(pool: &PoolStatus, paint: Paint) -> String {
    let mut text = String::new();
    let mut line = |label: &str, value: &str| text.push_str(&format!("{label:>7}: {value}\n"));
    line("pool", &pool.name);
    line("state", &paint.state(&pool.state, 0));
    if let Some(status) = &pool.status {
        line("status", &folded(status));
    }
    if let Some(action) = &pool.action {
        line("action", &folded(action));
    }
    line("layout", &pool.layout);
    if let Some(scan) = &pool.scan {
        line("scan", &folded(scan));
    }
    let (used, total, available) =
        (ByteSize(pool.used_bytes), ByteSize(pool.total_bytes), ByteSize(pool.available_bytes));
    line("space", &format!("{used} used of {total}, {available} available"));
    text.push_str("disks:\n\n");
    text.push_str(&disk_tree(pool, paint));
    for note in &pool.notes {
        text.push_str(&format!("\n   note: {}\n", folded(note)));
    }
    let errors: u64 = pool.disks.iter().map(|d| d.read_errors + d.write_errors + d.checksum_errors).sum();
    let summary =
        if errors == 0 { "none known".to_owned() } else { format!("{errors} counted since they were cleared") };
    text.push_str(&format!("\nerrors: {summary}\n"));
    text
}

fn disk_tree(pool: &PoolStatus, paint: Paint) -> String {
    let names: Vec<String> = pool.disks.iter().map(|d| d.path.display().to_string()).collect();
    let width = names.iter().map(|n| n.chars().count() + 2).chain([pool.name.chars().count(), 4]).max().unwrap_or(4);
    let state_width = pool.disks.iter().map(|d| d.state.len()).chain([pool.state.len(), 8]).max().unwrap_or(8);
    let mut text = format!(
        "    {:<width$}  {:<state_width$}  {:>5} {:>5} {:>5}  {:>8}\n",
        "NAME", "STATE", "READ", "WRITE", "CKSUM", "FREE"
    );
    let zero = paint.count(0, 5);
    text.push_str(&format!(
        "    {:<width$}  {}  {zero} {zero} {zero}\n",
        pool.name,
        paint.state(&pool.state, state_width)
    ));
    for (disk, name) in pool.disks.iter().zip(&names) {
        let name = format!("  {name}");
        let row = format!(
            "    {name:<width$}  {}  {} {} {}  {:>8}{}",
            paint.state(&disk.state, state_width),
            paint.count(disk.read_errors, 5),
            paint.count(disk.write_errors, 5),
            paint.count(disk.checksum_errors, 5),
            ByteSize(disk.free_bytes).to_string(),
            disk.note.as_ref().map(|n| format!("  {n}")).unwrap_or_default(),
        );
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// Further lines are indented under the first, and long ones broken at blanks.
fn folded(text: &str) -> String {
    const WIDTH: usize = 100;
    let mut lines: Vec<String> = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split(' ') {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines.join("\n         ")
}

/// Columns aligned: the first row is the header, right-aligned columns are named by index.
pub(crate) fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, (cell, width)) in row.iter().zip(&widths).enumerate() {
            if c > 0 {
                line.push_str("  ");
            }
            if right.contains(&c) {
                line.push_str(&format!("{cell:>width$}"));
            } else {
                line.push_str(&format!("{cell:<width$}"));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.iter().map(|&c| c.to_owned()).collect()
}

pub(crate) fn pool_list(pools: &[PoolListed]) -> String {
    if pools.is_empty() {
        return "no pools".to_owned();
    }
    let mut rows = vec![row(["NAME", "LAYOUT", "STATE", "SIZE", "USED", "AVAIL", "DISKS"])];
    for pool in pools {
        let disks: Vec<String> = pool.disks.iter().map(|d| d.display().to_string()).collect();
        let size = |bytes: u64| if pool.total_bytes == 0 { "-".to_owned() } else { ByteSize(bytes).to_string() };
        rows.push(vec![
            pool.name.clone(),
            pool.layout.clone(),
            pool.state.clone(),
            size(pool.total_bytes),
            size(pool.used_bytes),
            size(pool.available_bytes),
            disks.join(" "),
        ]);
    }
    table(&rows, &[3, 4, 5])
}

pub(crate) fn volume_list(volumes: &[VolumeStatus]) -> String {
    if volumes.is_empty() {
        return "no volumes".to_owned();
    }
    let size = |bytes: Option<u64>| bytes.map_or("-".to_owned(), |b| ByteSize(b).to_string());
    let mut rows = vec![row(["NAME", "USED", "AVAIL", "QUOTA", "RECORD", "COMPRESSION", "SYNC"])];
    for v in volumes {
        rows.push(vec![
            format!("{}/{}", v.pool, v.name),
            size(v.used_bytes),
            size(v.available_bytes),
            v.quota_bytes.map_or("none".to_owned(), |b| ByteSize(b).to_string()),
            ByteSize(u64::from(v.record_bytes)).to_string(),
            v.compression.clone(),
            v.sync.clone(),
        ]);
    }
    table(&rows, &[1, 2, 3, 4])
}

pub(crate) fn share_list(shares: &[ShareStatus]) -> String {
    if shares.is_empty() {
        return "no shares".to_owned();
    }
    let mut rows = vec![row(["NAME", "VOLUME", "NFS", "SMB", "ACCESS", "SQUASH", "USERS", "FAULT"])];
    for s in shares {
        rows.push(vec![
            s.name.clone(),
            s.volume.clone(),
            s.nfs.clone().unwrap_or("-".to_owned()),
            s.smb.clone().unwrap_or("-".to_owned()),
            if s.read_only { "read-only" } else { "read-write" }.to_owned(),
            s.squash.clone(),
            if s.users.is_empty() { "all".to_owned() } else { s.users.join(" ") },
            s.fault.clone().unwrap_or_default(),
        ]);
    }
    table(&rows, &[])
}

pub(crate) fn user_list(users: &[UserStatus]) -> String {
    if users.is_empty() {
        return "no users".to_owned();
    }
    let mut rows = vec![row(["NAME", "UID", "GID", "GROUPS", "PASSWORD"])];
    for u in users {
        let groups: Vec<String> = u.groups.iter().map(u32::to_string).collect();
        let password = if u.has_password { "set" } else { "none: cannot log in" };
        rows.push(vec![u.name.clone(), u.uid.to_string(), u.gid.to_string(), groups.join(" "), password.to_owned()]);
    }
    table(&rows, &[1, 2])
}

pub(crate) fn check_results(results: &[CheckResult]) -> String {
    let mut text = String::new();
    for r in results {
        text.push_str(&format!(
            "{}/{}: {} inodes, {} entries, {} extents, {} segments, {} of data: ",
            r.pool,
            r.volume,
            r.inodes,
            r.entries,
            r.extents,
            r.segments,
            ByteSize(r.data_bytes)
        ));
        match r.problems.len() {
            0 => text.push_str("no problems\n"),
            1 => text.push_str("1 problem\n"),
            n => text.push_str(&format!("{n} problems\n")),
        }
        for problem in &r.problems {
            text.push_str(&format!("  {problem}\n"));
        }
        if r.rebuilt > 0 {
            let (n, pool) = (r.rebuilt, &r.pool);
            text.push_str(&format!(
                "  {n} damaged or missing pieces of pool {pool} were rebuilt; the disks: larder pool status {pool}\n"
            ));
        }
    }
    text
}
