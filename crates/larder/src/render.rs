//! Tables and the status tree, as text. Pure: values in, text out.

use larder_api::share::{SFTP, WEBDAV};
use larder_api::{
    CheckResult, GroupStatus, KeySlot, KeysStatus, OwnerKind, OwnerUse, PoolChangePlan, PoolHistory, PoolListed,
    PoolMoving, PoolWorth, SealingStatus, ShareStatus, TokenStatus, UserKey, UserStatus, VolumeStatus,
};
pub(crate) use larder_base::printed::{shown, table};
use larder_base::units::ByteSize;

use larder_config::times;

pub(crate) mod status;
#[cfg(test)]
mod tests;
pub(crate) mod top;
pub(crate) mod watch;

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

/// Further lines are indented under the first, and long ones broken at blanks.
fn folded(text: &str) -> String {
    text.lines().flat_map(folded_line).collect::<Vec<_>>().join(LINE_BREAK)
}

/// As `folded`, with each command whole on a line of its own, to be copied. After a colon it goes on to the end of the line or to
/// a semicolon.
fn advice(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for mut rest in text.lines() {
        while let Some((words, after)) = rest.split_once(": larder ") {
            let (command, more) = after.split_once("; ").unwrap_or((after, ""));
            lines.extend(folded_line(&format!("{words}:")));
            lines.push(format!("  larder {command}"));
            rest = more;
        }
        match rest {
            "" => {}
            command if ["larder ", "mount "].iter().any(|word| command.starts_with(word)) => {
                lines.push(format!("  {command}"));
            }
            words => lines.extend(folded_line(words)),
        }
    }
    lines.join(LINE_BREAK)
}

const LINE_BREAK: &str = "\n         ";

fn folded_line(text: &str) -> Vec<String> {
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
    lines
}

/// The properties of a pool before and after a change, and the work in between.
pub(crate) fn change_plan(plan: &PoolChangePlan) -> String {
    let (before, after) = (&plan.before, &plan.after);
    let row = |name: &str, before: String, after: String| vec![name.to_owned(), before, after];
    let layout = |worth: &PoolWorth| format!("{} over {}", worth.layout, worth.width);
    let survives = |worth: &PoolWorth| match worth.failures_survived {
        0 => "no failed disk".to_owned(),
        1 => "1 failed disk".to_owned(),
        n => format!("{n} failed disks"),
    };
    let mut text = table(
        &[
            row("", "BEFORE".to_owned(), "AFTER".to_owned()),
            row("disks", before.disks.to_string(), after.disks.to_string()),
            row("layout", layout(before), layout(after)),
            row("usable", ByteSize(before.usable_bytes).to_string(), ByteSize(after.usable_bytes).to_string()),
            row("survives", survives(before), survives(after)),
        ],
        &[],
    );
    let time = plan.seconds.map(|seconds| format!(", about {}", duration(seconds))).unwrap_or_default();
    match plan.move_bytes {
        0 => text.push_str("\nnothing has to be moved\n"),
        bytes => text.push_str(&format!("\nto move: {}{time}\n", ByteSize(bytes))),
    }
    text
}

/// One line about shards on their way.
pub(crate) fn moving(moving: &PoolMoving) -> String {
    let percent = (moving.objects_done * 100).checked_div(moving.objects).unwrap_or(0);
    let mut text = format!("{}: {percent} % looked at, {} moved", moving.why, ByteSize(moving.moved_bytes));
    if let Some(left) = moving.seconds_left {
        text.push_str(&format!(", about {} to go", duration(left)));
    }
    if let Some(stuck) = &moving.stuck {
        text.push_str(&format!("; {stuck}"));
    }
    text
}

/// Seconds as a person says them.
pub(crate) fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
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

pub(crate) fn history(pools: &[PoolHistory]) -> String {
    let mut rows = vec![row(["TIME", "POOL", "EVENT", "WHAT"])];
    for pool in pools {
        for event in &pool.events {
            rows.push(vec![times::local(event.at_ms), pool.pool.clone(), event.kind.clone(), event.text.clone()]);
        }
    }
    if rows.len() == 1 { "nothing is known to have happened".to_owned() } else { table(&rows, &[]) }
}

pub(crate) fn volume_list(volumes: &[VolumeStatus]) -> String {
    if volumes.is_empty() {
        return "no volumes".to_owned();
    }
    let size = |bytes: Option<u64>| bytes.map_or("-".to_owned(), |b| ByteSize(b).to_string());
    let mut rows =
        vec![row(["NAME", "USED", "RATIO", "AVAIL", "QUOTA", "RECORD", "COMPRESSION", "SYNC", "ENCRYPTION"])];
    let has_clones = volumes.iter().any(|v| v.origin.is_some());
    rows[0].extend(has_clones.then(|| "CLONE OF".to_owned()));
    for v in volumes {
        rows.push(vec![
            format!("{}/{}", v.pool, v.name),
            size(if v.replica && !v.copy { v.stored_bytes } else { v.used_bytes }),
            v.compression_ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}x")),
            size(v.available_bytes),
            v.quota_bytes.map_or("none".to_owned(), |b| ByteSize(b).to_string()),
            ByteSize(u64::from(v.record_bytes)).to_string(),
            v.compression.clone(),
            match (v.copy, v.replica) {
                (true, _) => "copy".to_owned(),
                (false, true) => "replica".to_owned(),
                (false, false) => v.sync.clone(),
            },
            match &v.encryption {
                Some(cipher) if v.sealing.is_some() => {
                    let sealing = v.sealing.as_ref().map(self::sealing).unwrap_or_default();
                    format!("{cipher}, {sealing}")
                }
                Some(cipher) if v.locked => format!("{cipher}, locked"),
                Some(cipher) => cipher.clone(),
                None => "none".to_owned(),
            },
        ]);
        let origin = has_clones.then(|| v.origin.clone().unwrap_or_else(|| "-".to_owned()));
        rows.last_mut().into_iter().for_each(|row| row.extend(origin.clone()));
    }
    table(&rows, &[1, 2, 3, 4, 5])
}

pub(crate) fn owners(owners: &[OwnerUse]) -> String {
    let mut rows = vec![row(["OWNER", "NAME", "USED", "QUOTA", "FULL", "FILES"])];
    for owner in owners {
        let kind = match owner.kind {
            OwnerKind::User => "user",
            OwnerKind::Group => "group",
        };
        let full = |quota: u64| format!("{}%", (owner.used_bytes as f64 / quota.max(1) as f64 * 100.0).round());
        rows.push(vec![
            kind.to_owned(),
            owner.name.clone().unwrap_or_else(|| owner.id.to_string()),
            ByteSize(owner.used_bytes).to_string(),
            owner.quota_bytes.map_or("none".to_owned(), |bytes| ByteSize(bytes).to_string()),
            owner.quota_bytes.map_or("-".to_owned(), full),
            owner.inodes.to_string(),
        ]);
    }
    table(&rows, &[2, 3, 4, 5])
}

/// How far a volume is whose objects are being sealed anew.
pub(crate) fn sealing(sealing: &SealingStatus) -> String {
    let word = if sealing.rekey { "being re-keyed" } else { "being encrypted" };
    if !sealing.running {
        return format!("{word}: unlock it to go on");
    }
    let percent = sealing.done_bytes.saturating_mul(100).checked_div(sealing.total_bytes).unwrap_or(0);
    match &sealing.fault {
        Some(fault) => format!("{word}, {percent} %, tried again later: {fault}"),
        None => format!("{word}, {percent} %"),
    }
}

pub(crate) fn keys(keys: &KeysStatus) -> String {
    let state = if keys.locked { "locked" } else { "unlocked" };
    let sealing = keys.sealing.as_ref().map(|sealing| format!(", {}", self::sealing(sealing))).unwrap_or_default();
    let mut rows = vec![row(["KIND", "LABEL", "ID"])];
    for slot in &keys.slots {
        let note = if slot.here_only { ", of this replica only" } else { "" };
        // They may come from another machine.
        rows.push(vec![format!("{}{note}", slot.kind), slot.name.clone(), slot.id.clone()]);
    }
    let table = table(&rows, &[]);
    format!("{}/{}: {}, {state}{sealing}\n{table}{}", keys.pool, keys.volume, keys.cipher, opened_with(keys))
}

/// Whether it is open by a way that the volume has no longer.
pub(crate) fn opened_with(keys: &KeysStatus) -> String {
    let of = format!("{}/{}", keys.pool, keys.volume);
    if keys.opened_with_removed {
        return format!("it is open by a way that was removed since: close it with larder volume lock {of}\n");
    }
    let is_it = |slot: &&KeySlot| slot.here_only && Some(&slot.id) == keys.opened_with.as_ref();
    keys.slots.iter().find(is_it).map_or_else(String::new, |slot| {
        format!(
            "it was opened by the {} '{}', which this replica has and its volume does not: it was added here, or removed there\n",
            slot.kind,
            shown(&slot.name)
        )
    })
}

pub(crate) fn share_list(shares: &[ShareStatus]) -> String {
    if shares.is_empty() {
        return "no shares".to_owned();
    }
    let mut rows = vec![row(["NAME", "VOLUME", "NFS FROM", "NFS ROOT", "SMB FOR", "ALSO", "OPTIONS", "FAULT"])];
    for s in shares {
        rows.push(vec![
            s.name.clone(),
            if s.volume.is_empty() { s.folder.clone() } else { s.volume.clone() },
            s.nfs_rule.clone(),
            s.root_over_nfs().to_owned(),
            s.smb_rule.clone(),
            also(s),
            if s.options.is_empty() { "-".to_owned() } else { s.options.join(", ") },
            s.fault.clone().unwrap_or_default(),
        ]);
    }
    let mut text = table(&rows, &[]);
    for (share, way) in shares.iter().flat_map(|s| s.reached.iter().map(|way| (&s.name, way))) {
        text.push_str(&format!("\n'{}' is for certain users, and its files are reached {}", shown(share), shown(way)));
    }
    if shares.iter().any(|s| !s.machines().is_empty()) {
        text.push_str("\nNFS asks for no password: anybody on these machines is whoever he says");
    }
    text
}

/// The doors that show all shares that a user may use, at one address.
fn also(share: &ShareStatus) -> String {
    match (share.is_on(&SFTP), share.is_on(&WEBDAV)) {
        (true, true) => "SFTP WebDAV",
        (true, false) => "SFTP",
        (false, true) => "WebDAV",
        (false, false) => "-",
    }
    .to_owned()
}

pub(crate) fn user_list(users: &[UserStatus]) -> String {
    if users.is_empty() {
        return "no users".to_owned();
    }
    let mut rows = vec![row(["NAME", "UID", "GID", "GROUPS", "ROLE", "KEYS", "PASSWORD"])];
    for u in users {
        let groups: Vec<String> = u.groups.iter().map(u32::to_string).collect();
        let groups = if u.group_names.is_empty() { groups.join(" ") } else { u.group_names.join(" ") };
        let password = match (u.has_password, u.keys) {
            (true, _) if u.needs_password_for_smb => "set it again for SMB",
            (true, _) => "set",
            (false, 0) => "none: cannot log in",
            (false, _) => "none: keys alone",
        };
        let (uid, gid) = (u.uid.to_string(), u.gid.to_string());
        rows.push(vec![
            u.name.clone(),
            uid,
            gid,
            groups,
            u.role.word().to_owned(),
            u.keys.to_string(),
            password.to_owned(),
        ]);
    }
    table(&rows, &[1, 2, 5])
}

pub(crate) fn group_list(groups: &[GroupStatus]) -> String {
    if groups.is_empty() {
        return "no groups".to_owned();
    }
    let mut rows = vec![row(["NAME", "GID", "MEMBERS", "SHARES"])];
    for group in groups {
        let (members, shares) = (group.members.join(" "), group.shares.join(" "));
        rows.push(vec![group.name.clone(), group.gid.to_string(), members, shares]);
    }
    table(&rows, &[1])
}

pub(crate) fn user_keys(keys: &[UserKey]) -> String {
    if keys.is_empty() {
        return "no keys".to_owned();
    }
    let mut rows = vec![row(["FINGERPRINT", "KIND", "COMMENT"])];
    rows.extend(keys.iter().map(|key| vec![key.fingerprint.clone(), key.kind.clone(), key.comment.clone()]));
    table(&rows, &[])
}

pub(crate) fn token_list(tokens: &[TokenStatus]) -> String {
    if tokens.is_empty() {
        return "no tokens".to_owned();
    }
    let mut rows = vec![row(["ID", "USER", "NAME", "SHARE", "MAY", "CREATED", "UNTIL"])];
    for token in tokens {
        let all = if token.scope.is_some() { "-" } else { "all" };
        let share = token.share.clone().unwrap_or(all.to_owned());
        let may = match token.scope {
            Some(scope) => format!("API: {}", scope.word()),
            None if token.read_only => "read".to_owned(),
            None => "read and write".to_owned(),
        };
        let at = |secs: u64| larder_config::times::local(secs.saturating_mul(1000));
        let end = match token.expires_secs {
            None => "revoked".to_owned(),
            Some(end) => format!("{}{}", at(end), if token.expired { " (over)" } else { "" }),
        };
        let (id, user, name) = (token.id.clone(), token.user.clone(), token.name.clone());
        rows.push(vec![id, user, name, share, may, at(token.created_secs), end]);
    }
    table(&rows, &[])
}

pub(crate) fn check_results(results: &[CheckResult]) -> String {
    let mut text = String::new();
    for r in results {
        if r.locked {
            let name = format!("{}/{}", r.pool, r.volume);
            text.push_str(&format!("{name}: locked, not checked; open it with: larder volume unlock {name}\n"));
            continue;
        }
        if r.replica {
            let name = format!("{}/{}", r.pool, r.volume);
            text.push_str(&format!("{name}: a replica of {} objects, {} in all: ", r.segments, ByteSize(r.data_bytes)));
        } else {
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
        }
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
