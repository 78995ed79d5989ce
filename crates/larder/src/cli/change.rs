//! `larder pool add|replace|remove|offline|online|rebalance`: what is asked, what it means, and waiting for its end.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use larder_api::endpoints::{ChangePool, GetPools};
use larder_api::{Client, Failure, PoolChange, PoolChangePlan, PoolChangeRequest, PoolStatus};

use super::args::{ChangeHow, Global, PoolCommand};
use super::reach::{Target, absolute, is_path, target};
use crate::render;
use larder_config::Config;
use larder_config::edit::Editor;
use larder_daemon::translate;
use larder_document::folder;

/// How often the progress of a change is asked for.
const ASK_EVERY: Duration = Duration::from_millis(500);

pub(super) async fn run(global: &Global, command: PoolCommand) -> Result<(), Failure> {
    let none = ChangeHow::default();
    match command {
        PoolCommand::Add { words, spare, force, how } => {
            let (pool, disks) = match words.as_slice() {
                [disk] => (None, std::slice::from_ref(disk)),
                words => pool_and_disks(words),
            };
            let disks = disks.iter().map(|disk| absolute(Path::new(disk))).collect::<Result<Vec<PathBuf>, _>>()?;
            super::place::no_devices(&disks)?;
            super::place::fit(&disks, force)?;
            make(global, pool, PoolChange::Add { disks, spare }, how).await
        }
        PoolCommand::Replace { words, force, how } => {
            let (pool, disks) = pool_and_disks(&words);
            let (old, new) = match disks {
                [old, new] => (old, new),
                [both] => (both, both),
                _ => return Err(Failure::invalid("which disk?").action("larder pool replace POOL OLD NEW")),
            };
            let new = absolute(Path::new(new))?;
            super::place::no_devices(std::slice::from_ref(&new))?;
            super::place::fit(std::slice::from_ref(&new), force)?;
            let change = PoolChange::Replace { old: named(old)?, new };
            make(global, pool, change, how).await
        }
        PoolCommand::Remove { words, stop, how } => {
            let (pool, disk) = pool_and_disk(&words)?;
            let change = if stop { PoolChange::Keep { disk } } else { PoolChange::Remove { disk } };
            make(global, pool, change, how).await
        }
        PoolCommand::Offline { words } => {
            let (pool, disk) = pool_and_disk(&words)?;
            make(global, pool, PoolChange::Offline { disk }, none).await
        }
        PoolCommand::Online { words, discard } => {
            let (pool, disk) = pool_and_disk(&words)?;
            make(global, pool, PoolChange::Online { disk, discard }, none).await
        }
        PoolCommand::Rebalance { pool, layout, width, how } => {
            let change = PoolChange::Rebalance { layout: layout.map(|layout| layout.to_string()), width };
            make(global, pool, change, how).await
        }
        _ => Err(Failure::internal("this is no change of disks")),
    }
}

/// The first word names the pool unless it is a path.
fn pool_and_disks(words: &[String]) -> (Option<String>, &[String]) {
    match words.split_first() {
        Some((pool, disks)) if !is_path(pool) => (Some(pool.clone()), disks),
        _ => (None, words),
    }
}

fn pool_and_disk(words: &[String]) -> Result<(Option<String>, String), Failure> {
    match pool_and_disks(words) {
        (pool, [disk]) => Ok((pool, named(disk)?)),
        // A lone word that is no path: the beginning of a disk's id.
        (Some(id), []) => Ok((None, id)),
        _ => Err(Failure::invalid("name one disk of the pool").action("see its disks with: larder pool status")),
    }
}

/// A disk of the pool: its path, made absolute, or letters of its id.
fn named(disk: &str) -> Result<String, Failure> {
    match is_path(disk) || Path::new(disk).exists() {
        true => Ok(absolute(Path::new(disk))?.to_string_lossy().into_owned()),
        false => Ok(disk.to_owned()),
    }
}

async fn make(global: &Global, pool: Option<String>, change: PoolChange, how: ChangeHow) -> Result<(), Failure> {
    let done = match target(global).await? {
        Target::Daemon(client) => by_daemon(&client, pool, &change, how, global.json).await?,
        Target::Config(config) => directly(&config, pool, &change, how, global.json).await?,
    };
    global.out().answer(&done.plan, |plan| text(&change, plan, how, &done))
}

/// Disks that are to join are looked at beside those that stay.
fn look_at(change: &PoolChange, members: impl Iterator<Item = PathBuf>, json: bool) {
    let (joining, leaving) = match change {
        PoolChange::Add { disks, .. } => (disks.as_slice(), None),
        PoolChange::Replace { old, new } => (std::slice::from_ref(new), Some(Path::new(old))),
        _ => return,
    };
    let stays = |disk: &PathBuf| Some(disk.as_path()) != leaving && !joining.contains(disk);
    super::disk::warn_of(joining, &members.filter(stays).collect::<Vec<_>>(), json);
}

struct Made {
    pool: String,
    plan: PoolChangePlan,
    /// Everything is where it should be.
    waited: bool,
}

async fn by_daemon(
    client: &Client,
    pool: Option<String>,
    change: &PoolChange,
    how: ChangeHow,
    json: bool,
) -> Result<Made, Failure> {
    let pools = client.ask(GetPools).await?;
    let name = one_of(pool, pools.iter().map(|pool| pool.name.as_str()))?;
    let members = pools.iter().filter(|pool| pool.name == name).flat_map(|pool| &pool.disks);
    look_at(change, members.map(|disk| disk.path.clone()), json);
    let request = PoolChangeRequest { change: change.clone(), dry_run: how.dry_run };
    let plan = client.call(ChangePool, &name, &request).await?;
    if how.wait && !how.dry_run {
        wait(async || {
            let pools = client.ask(GetPools).await?;
            Ok(pools.into_iter().find(|pool| pool.name == name))
        })
        .await?;
    }
    Ok(Made { pool: name, plan, waited: how.wait })
}

/// Without a daemon nobody else would move anything: this comes back when it is done.
async fn directly(
    config: &Config,
    pool: Option<String>,
    change: &PoolChange,
    how: ChangeHow,
    json: bool,
) -> Result<Made, Failure> {
    let name = one_of(pool, config.pools.iter().map(|pool| pool.name.as_str()))?;
    let disks = config.pool(&name).map(|pool| pool.disks.clone()).unwrap_or_default();
    look_at(change, disks.iter().cloned(), json);
    let change = translate::change(change.clone())?;
    super::reach::closing(super::reach::direct(&disks).await?, async |storage| {
        let pool = storage.pool(Some(&name))?;
        let mut plan = pool.change(&change, how.dry_run).await?;
        if !how.dry_run {
            // As the daemon does: the labels know better than the file.
            if let Err(failure) = name_disks(config, &name, &pool.disks_staying()) {
                plan.warnings.push(format!("the configuration does not name the disks as they are now: {failure}"));
            }
            wait(async || Ok(Some(pool.status()))).await?;
        }
        Ok(Made { pool: name.clone(), plan, waited: true })
    })
    .await
}

fn name_disks(config: &Config, pool: &str, disks: &[PathBuf]) -> Result<(), Failure> {
    let mut editor = Editor::open(&absolute(&config.data.join(folder::CONFIG_NAME))?)?;
    editor.set_pool_disks(pool, disks);
    editor.save().map(drop)
}

fn one_of<'a>(wanted: Option<String>, names: impl Iterator<Item = &'a str>) -> Result<String, Failure> {
    let names: Vec<&str> = names.collect();
    match (wanted, names.as_slice()) {
        (Some(name), _) if names.contains(&name.as_str()) => Ok(name),
        (Some(name), _) => {
            Err(Failure::not_found(format!("there is no pool '{name}' here (there are: {})", names.join(", "))))
        }
        (None, [only]) => Ok((*only).to_owned()),
        (None, _) => Err(Failure::invalid(format!("say which pool: {}", names.join(", ")))),
    }
}

/// Shows how far the moving is until there is nothing left to move.
async fn wait(status: impl AsyncFn() -> Result<Option<PoolStatus>, Failure>) -> Result<(), Failure> {
    let live = std::io::stderr().is_terminal();
    let mut shown = false;
    while let Some(moving) = status().await?.and_then(|pool| pool.moving) {
        if live {
            eprint!("\r\x1b[K{}", render::moving(&moving));
            let _ = std::io::stderr().flush();
            shown = true;
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
    if shown {
        eprint!("\r\x1b[K");
    }
    Ok(())
}

fn text(change: &PoolChange, plan: &PoolChangePlan, how: ChangeHow, made: &Made) -> String {
    let what = match change {
        PoolChange::Offline { disk } => {
            let word = larder_base::shell::word(Path::new(disk));
            return format!("{disk} is not used until: larder pool online {} {word}", made.pool);
        }
        PoolChange::Online { disk, discard: true } => {
            return format!("{disk} has given up its own side, and is brought up to date in the background");
        }
        PoolChange::Online { disk, .. } => {
            return format!("{disk} is used again, and brought up to date in the background");
        }
        PoolChange::Keep { disk } => return format!("{disk} stays"),
        PoolChange::Add { disks, spare: true } => format!("keep {} as a spare", paths(disks)),
        PoolChange::Add { disks, .. } => format!("add {}", paths(disks)),
        PoolChange::Replace { old, new } => format!("replace {old} with {}", new.display()),
        PoolChange::Remove { disk } => format!("remove {disk}"),
        PoolChange::Rebalance { .. } => "lay out everything anew".to_owned(),
    };
    let mut text = format!("{}{what}\n\n", if how.dry_run { "would " } else { "" });
    text.push_str(&render::change_plan(plan));
    for warning in &plan.warnings {
        text.push_str(&format!("note: {warning}\n"));
    }
    if !plan.snapshots.is_empty() {
        let all = plan.snapshots.join(", ");
        text.push_str(&format!("taken before it: {all}; once all is well: larder snap destroy NAME\n"));
    }
    text.push_str(match (how.dry_run, plan.move_bytes > 0, made.waited) {
        (true, _, _) => "\nnothing was changed: this was a dry run\n",
        (_, true, false) => "\nit goes on in the background, restarts included; see: larder pool status\n",
        _ => "\ndone\n",
    });
    text
}

fn paths(disks: &[PathBuf]) -> String {
    disks.iter().map(|disk| disk.display().to_string()).collect::<Vec<_>>().join(", ")
}
