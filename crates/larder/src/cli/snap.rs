//! `larder snap`: snapshots of volumes.

use std::io::{IsTerminal, Write};

use clap::Subcommand;
use larder_api::endpoints::{
    ChangeSnapshots, CloneSnapshot, DiffSnapshots, GetSnapshotSchedules, GetSnapshots, GetVolumes, SetSnapshotSchedule,
};
use larder_api::{
    CloneRequest, DiffEntry, DiffRequest, Failure, SnapshotCounts, SnapshotSchedule, SnapshotScheduleSet,
    SnapshotStatus, SnapshotsRequest, SnapshotsStatus, VolumeStatus,
};
use larder_base::units::ByteSize;

use super::args::{Disks, Global};
use super::reach::{self, Backend};
use super::volume_name::split;
use crate::{out, render};
use larder_config::times;

#[derive(Debug, Subcommand)]
pub(crate) enum SnapCommand {
    /// Keep a volume as it is now, for as long as you want
    Create {
        /// VOLUME or VOLUME@NAME; without a name it is called after the time, in UTC
        snapshot: String,
        #[command(flatten)]
        disks: Disks,
    },
    /// The snapshots of a volume, or of all
    List {
        /// NAME or POOL/NAME [default: all]
        volume: Option<String>,
        /// Also why they are kept
        #[arg(long)]
        holds: bool,
        #[command(flatten)]
        disks: Disks,
    },
    /// Delete snapshots, and get back the room that nothing else needs
    Destroy {
        /// VOLUME@NAME, or VOLUME@FIRST%LAST, or several of these behind one @ with commas between
        snapshots: String,
        /// Only say which, and how much room that gives back
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        disks: Disks,
    },
    /// Give a snapshot another name
    Rename {
        /// VOLUME@NAME
        snapshot: String,
        /// The new name
        to: String,
        #[command(flatten)]
        disks: Disks,
    },
    /// Make a volume that begins as a snapshot and shares its data
    Clone {
        /// VOLUME@NAME
        snapshot: String,
        /// The name of the new volume, in the same pool
        name: String,
        #[command(flatten)]
        disks: Disks,
    },
    /// What differs between two snapshots, or a snapshot and now: + created, M modified, - removed, R renamed
    Diff {
        /// VOLUME@NAME, the older one
        earlier: String,
        /// The name of the newer one [default: the volume as it is now]
        later: Option<String>,
        #[command(flatten)]
        disks: Disks,
    },
    /// Make a volume what it was: everything changed since is gone from it, and kept as a snapshot of its own
    Rollback {
        /// VOLUME@NAME
        snapshot: String,
        /// Destroy the snapshots that are later than this one
        #[arg(long)]
        destroy_later: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        /// Even if somebody writes to it, or a program uses a mount of it: they get errors from then on
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        disks: Disks,
    },
    /// Write a snapshot to standard output in a format of others
    Export {
        /// VOLUME@NAME
        snapshot: String,
        /// As tar (POSIX pax): with holes, links, times, owners and extended attributes
        #[arg(long, required = true)]
        tar: bool,
        #[command(flatten)]
        disks: Disks,
    },
    /// Keep a snapshot from being destroyed
    Hold {
        /// VOLUME@NAME
        snapshot: String,
        /// Why; a snapshot may be held for several reasons
        #[arg(default_value = "keep")]
        reason: String,
        /// Until this day (2027-01-31, its end in UTC) or for so long (90d, 12h): nobody can end it sooner
        #[arg(long, value_name = "WHEN", value_parser = times::until)]
        until: Option<i64>,
        #[command(flatten)]
        disks: Disks,
    },
    /// End a hold
    Release {
        /// VOLUME@NAME
        snapshot: String,
        /// The reason of the hold
        #[arg(default_value = "keep")]
        reason: String,
        #[command(flatten)]
        disks: Disks,
    },
    /// Snapshots that are taken by themselves: how many are kept, the newest, and the next; with numbers, another schedule
    #[command(
        override_usage = "larder snap schedule [VOLUME] [--hourly N] [--daily N] [--weekly N] [--monthly N] [--none]"
    )]
    Schedule {
        /// NAME or POOL/NAME [default: all]
        volume: Option<String>,
        /// Keep the newest snapshot of each of so many hours
        #[arg(long, value_name = "N", requires = "volume")]
        hourly: Option<u32>,
        /// Of so many days
        #[arg(long, value_name = "N", requires = "volume")]
        daily: Option<u32>,
        /// Of so many weeks
        #[arg(long, value_name = "N", requires = "volume")]
        weekly: Option<u32>,
        /// Of so many months
        #[arg(long, value_name = "N", requires = "volume")]
        monthly: Option<u32>,
        /// Take none any more; those that are there stay
        #[arg(long, requires = "volume", conflicts_with_all = ["hourly", "daily", "weekly", "monthly"])]
        none: bool,
    },
}

/// The volume and the name behind the @.
fn split_name(text: &str) -> Result<(String, Option<String>), Failure> {
    let (volume, name) = match text.split_once('@') {
        Some((volume, name)) => (volume, Some(name.to_owned())),
        None => (text, None),
    };
    split(volume)?;
    Ok((volume.to_owned(), name))
}

fn named(text: &str) -> Result<(String, String), Failure> {
    match split_name(text)? {
        (volume, Some(name)) => Ok((volume, name)),
        (volume, None) => Err(Failure::invalid(format!("'{text}' names no snapshot"))
            .action(format!("write it as {volume}@NAME; see which there are with: larder snap list {volume}"))),
    }
}

pub(super) async fn run(global: &Global, command: SnapCommand) -> Result<(), Failure> {
    let out = global.out();
    match command {
        SnapCommand::List { volume, holds, disks } => {
            let all = list(global, volume, &disks).await?;
            out.answer(&all, |all| shown(all, holds))
        }
        SnapCommand::Create { snapshot, disks } => {
            let (volume, name) = split_name(&snapshot)?;
            let status = change(global, &volume, SnapshotsRequest::Create { name }, &disks).await?;
            out.answer(&status, |status| format!("took the snapshot {}", concerned(status)))
        }
        SnapCommand::Destroy { snapshots, dry_run, disks } => {
            let (volume, names) = named(&snapshots)?;
            let status = change(global, &volume, SnapshotsRequest::Destroy { names, dry_run }, &disks).await?;
            out.answer(&status, |status| {
                let freed = ByteSize(status.freed_bytes.unwrap_or(0));
                match dry_run {
                    true => format!("this would destroy {} and give back {freed}", concerned(status)),
                    false => format!("destroyed {}; this gives back {freed}", concerned(status)),
                }
            })
        }
        SnapCommand::Rename { snapshot, to, disks } => {
            let (volume, name) = named(&snapshot)?;
            let status = change(global, &volume, SnapshotsRequest::Rename { name, to }, &disks).await?;
            out.answer(&status, |status| format!("{snapshot} is called {} now", concerned(status)))
        }
        SnapCommand::Clone { snapshot, name, disks } => {
            let (volume, from) = named(&snapshot)?;
            let request = CloneRequest { snapshot: from, name };
            let status = reach::call(global, &disks, CloneSnapshot, &volume, request).await?;
            out.answer(&status, |status| {
                let name = format!("{}/{}", status.pool, status.name);
                format!("made the volume {name} as it was at {snapshot}; share it with: larder share add NAME --volume {name}")
            })
        }
        SnapCommand::Export { snapshot, tar: _, disks } => {
            let (volume, name) = named(&snapshot)?;
            super::replica::export(global, &volume, name, &disks).await
        }
        SnapCommand::Diff { earlier, later, disks } => {
            let (volume, earlier) = named(&earlier)?;
            // Written in full it is as good.
            let later = later.map(|name| name.split_once('@').map_or(name.clone(), |(_, name)| name.to_owned()));
            let request = DiffRequest { earlier, later };
            let found = reach::call(global, &disks, DiffSnapshots, &volume, request).await?;
            out.answer(&found, |found| diff_text(found))
        }
        SnapCommand::Rollback { snapshot, destroy_later, yes, force, disks } => {
            let (volume, name) = named(&snapshot)?;
            let what = format!("make {volume} what it was in {snapshot}; what is there now is kept as a snapshot");
            if !yes && !confirmed(&what)? {
                return Err(Failure::invalid("nothing was changed"));
            }
            let request = SnapshotsRequest::Rollback { name, destroy_later, force };
            let status = change(global, &volume, request, &disks).await?;
            out.answer(&status, |status| {
                let full = format!("{}/{}", status.pool, status.volume);
                let kept = match &status.saved_as {
                    Some(saved) => format!("what was there before is kept as {full}@{saved}"),
                    None => "the newest snapshot has what was there before".to_owned(),
                };
                format!("{full} is what it was in {}; {kept}", concerned(status))
            })
        }
        SnapCommand::Hold { snapshot, reason, until, disks } => {
            let (volume, name) = named(&snapshot)?;
            let request = SnapshotsRequest::Hold { name, reason: reason.clone(), until };
            let status = change(global, &volume, request, &disks).await?;
            out.answer(&status, |status| match until {
                Some(until) => format!(
                    "{} is held until {}: nobody can destroy it before ({reason})",
                    concerned(status),
                    times::local_secs(until)
                ),
                None => format!("{} is held until it is released ({reason})", concerned(status)),
            })
        }
        SnapCommand::Release { snapshot, reason, disks } => {
            let (volume, name) = named(&snapshot)?;
            let request = SnapshotsRequest::Release { name, reason: reason.clone() };
            let status = change(global, &volume, request, &disks).await?;
            out.answer(&status, |status| format!("{} is no longer held ({reason})", concerned(status)))
        }
        SnapCommand::Schedule { volume: Some(volume), none: true, .. } => {
            schedule(global, SnapshotScheduleSet { volume: volume.clone(), keep: None }).await?;
            out.answer(&volume, |volume| format!("no snapshots of {volume} are taken by themselves any more"))
        }
        SnapCommand::Schedule { volume: Some(volume), hourly, daily, weekly, monthly, .. }
            if [hourly, daily, weekly, monthly].iter().any(Option::is_some) =>
        {
            let [hourly, daily, weekly, monthly] = [hourly, daily, weekly, monthly].map(Option::unwrap_or_default);
            let keep = Some(SnapshotCounts { hourly, daily, weekly, monthly });
            schedule(global, SnapshotScheduleSet { volume: volume.clone(), keep }).await?;
            out.answer(&schedules(global, Some(volume)).await?, |schedules| scheduled(schedules))
        }
        SnapCommand::Schedule { volume, .. } => {
            let schedules = schedules(global, volume).await?;
            out.answer(&schedules, |schedules| scheduled(schedules))
        }
    }
}

fn diff_text(found: &[DiffEntry]) -> String {
    let line = |entry: &DiffEntry| {
        let letter = match entry.change.as_str() {
            "created" => "+",
            "removed" => "-",
            "renamed" => "R",
            _ => "M",
        };
        let path = |path: &str| match entry.kind.as_str() {
            "directory" if path != "/" => format!("{}/", render::shown(path)),
            _ => render::shown(path).into_owned(),
        };
        match &entry.from {
            Some(from) => format!("{letter}  {} -> {}", path(from), path(&entry.path)),
            None => format!("{letter}  {}", path(&entry.path)),
        }
    };
    if found.is_empty() { "nothing differs".to_owned() } else { found.iter().map(line).collect::<Vec<_>>().join("\n") }
}

/// Asks a person; a script must say --yes.
fn confirmed(what: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::invalid(format!("this would {what}")).action("if you mean it, add --yes"));
    }
    out::ask(&format!("This will {what}. Type yes: "));
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|e| Failure::io("cannot read the answer", &e))?;
    Ok(line.trim() == "yes")
}

/// The full names that a request was about.
fn concerned(status: &SnapshotsStatus) -> String {
    let full: Vec<String> =
        status.concerned.iter().map(|name| format!("{}/{}@{name}", status.pool, status.volume)).collect();
    match full.len() {
        0 => "no snapshot".to_owned(),
        1..=5 => full.join(", "),
        many => format!("{many} snapshots, {} to {}", full[0], full[many - 1]),
    }
}

async fn change(
    global: &Global,
    volume: &str,
    request: SnapshotsRequest,
    disks: &Disks,
) -> Result<SnapshotsStatus, Failure> {
    reach::call(global, disks, ChangeSnapshots, volume, request).await
}

/// Of one volume, or of all that can be opened.
async fn list(global: &Global, volume: Option<String>, disks: &Disks) -> Result<Vec<SnapshotsStatus>, Failure> {
    volume.as_deref().map(split).transpose()?;
    let full = |volume: VolumeStatus| format!("{}/{}", volume.pool, volume.name);
    let work = async |backend: &Backend| {
        let names = match volume {
            Some(name) => vec![name],
            None => {
                let volumes = backend.call(GetVolumes, (), ()).await?;
                volumes.into_iter().filter(|volume| !volume.locked).map(full).collect()
            }
        };
        let mut all = Vec::new();
        for name in names {
            all.push(backend.call(GetSnapshots, &name, ()).await?);
        }
        Ok(all)
    };
    Backend::of(global, disks).await?.closing(work).await
}

fn shown(all: &[SnapshotsStatus], holds: bool) -> String {
    let mut rows = vec![["NAME", "CREATED", "USED", "REFER", "WRITTEN", "HELD"].map(str::to_owned).to_vec()];
    for volume in all {
        for snapshot in &volume.snapshots {
            rows.push(vec![
                format!("{}/{}@{}", volume.pool, volume.volume, snapshot.name),
                times::local(snapshot.created_ms),
                ByteSize(snapshot.used_bytes).to_string(),
                ByteSize(snapshot.referenced_bytes).to_string(),
                ByteSize(snapshot.written_bytes).to_string(),
                held(snapshot, holds),
            ]);
        }
    }
    if rows.len() == 1 { "no snapshots".to_owned() } else { render::table(&rows, &[2, 3, 4]) }
}

fn held(snapshot: &SnapshotStatus, in_full: bool) -> String {
    if snapshot.holds.is_empty() && snapshot.clones.is_empty() {
        return "-".to_owned();
    }
    if !in_full {
        return "yes".to_owned();
    }
    let hold = |hold: &larder_api::SnapshotHold| match hold.until {
        Some(until) => format!("{} until {}", hold.reason, times::local_secs(until)),
        None => hold.reason.clone(),
    };
    let clones = snapshot.clones.iter().map(|name| format!("clone {name}"));
    snapshot.holds.iter().map(hold).chain(clones).collect::<Vec<_>>().join(", ")
}

async fn schedule(global: &Global, request: SnapshotScheduleSet) -> Result<(), Failure> {
    reach::daemon(global).await?.call(SetSnapshotSchedule, (), &request).await.map(drop)
}

/// Only a daemon keeps schedules.
async fn schedules(global: &Global, volume: Option<String>) -> Result<Vec<SnapshotSchedule>, Failure> {
    volume.as_deref().map(split).transpose()?;
    let client = reach::daemon(global).await?;
    let mut all = client.ask(GetSnapshotSchedules).await?;
    if let Some(name) = volume {
        all.retain(|one| one.volume == name || format!("{}/{}", one.pool, one.volume) == name);
        if all.is_empty() {
            return Err(Failure::not_found(format!("no snapshots of '{name}' are scheduled"))
                .action(format!("schedule some with: larder snap schedule {name} --hourly 24 --daily 30")));
        }
    }
    Ok(all)
}

fn scheduled(all: &[SnapshotSchedule]) -> String {
    if all.is_empty() {
        return "no snapshots are scheduled".to_owned();
    }
    let mut rows =
        vec![["VOLUME", "HOURLY", "DAILY", "WEEKLY", "MONTHLY", "NEWEST", "NEXT"].map(str::to_owned).to_vec()];
    let count = |kept: u32, keep: u32| if keep == 0 { "-".to_owned() } else { format!("{kept}/{keep}") };
    for one in all {
        let (kept, keep) = (&one.kept, &one.keep);
        let next = times::local(one.next_ms);
        rows.push(vec![
            format!("{}/{}", one.pool, one.volume),
            count(kept.hourly, keep.hourly),
            count(kept.daily, keep.daily),
            count(kept.weekly, keep.weekly),
            count(kept.monthly, keep.monthly),
            one.newest.clone().unwrap_or_else(|| "-".to_owned()),
            match (&one.fault, one.changed) {
                (Some(_), _) => "-".to_owned(),
                (None, true) => next,
                (None, false) => format!("{next}, if anything changes"),
            },
        ]);
    }
    let faults = all.iter().filter_map(|one| Some((one, one.fault.as_ref()?)));
    let faults = faults.map(|(one, fault)| format!("{}/{}: {fault}\n", one.pool, one.volume));
    format!("{}{}", render::table(&rows, &[1, 2, 3, 4]), faults.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_shown_with_their_faults() {
        let schedule = |volume: &str, fault: Option<&str>| SnapshotSchedule {
            pool: "tank".to_owned(),
            volume: volume.to_owned(),
            keep: SnapshotCounts { hourly: 24, daily: 30, weekly: 0, monthly: 12 },
            kept: SnapshotCounts { hourly: 24, daily: 7, weekly: 0, monthly: 1 },
            newest: fault.is_none().then(|| "auto-2026-11-25_04-00Z".to_owned()),
            next_ms: 1_795_582_805_000,
            changed: volume == "files",
            fault: fault.map(str::to_owned),
        };
        let next = times::local(1_795_582_805_000);
        let all = [schedule("files", None), schedule("idle", None), schedule("secret", Some("it is locked"))];
        let want = format!(
            "VOLUME       HOURLY  DAILY  WEEKLY  MONTHLY  NEWEST                  NEXT
tank/files    24/24   7/30       -     1/12  auto-2026-11-25_04-00Z  {next}
tank/idle     24/24   7/30       -     1/12  auto-2026-11-25_04-00Z  {next}, if anything changes
tank/secret   24/24   7/30       -     1/12  -                       -
tank/secret: it is locked
"
        );
        assert_eq!(scheduled(&all), want);
        assert_eq!(scheduled(&[]), "no snapshots are scheduled");
    }
}
