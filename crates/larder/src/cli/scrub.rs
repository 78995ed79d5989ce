//! `larder pool scrub ...`

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use larder_api::{Client, DaemonInfo, Failure, PoolScrub, ScrubRequest};

use super::args::{Disks, Global, ScrubCommand};
use super::pool::{as_dirs, held_by_daemon};
use super::reach::{Backend, Outcome, closing};
use crate::config::check_name;
use crate::daemon::storage::Storage;
use crate::render;

/// How often somebody who waits looks: the end of a short one is seen soon.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(20);
const LOOK_EVERY_MAX: Duration = Duration::from_millis(300);

pub(super) async fn run(global: &Global, command: ScrubCommand) -> Result<Outcome, Failure> {
    let (action, words, wait) = match command {
        ScrubCommand::Start { words, wait } => (Some("start"), words, wait),
        ScrubCommand::Pause { words } => (Some("pause"), words, false),
        ScrubCommand::Stop { words } => (Some("stop"), words, false),
        ScrubCommand::Status { words, wait } => (None, words, wait),
    };
    let pools = match backend(global, &words).await? {
        (Backend::Daemon(client), names) => ask(&client, &names, action, wait, global.json).await?,
        (Backend::Direct(storage), names) => {
            if action == Some("start") && !wait {
                storage.close().await?;
                return Err(Failure::invalid("no daemon serves this pool, so nobody would go on with the scrub")
                    .action("wait for it: larder pool scrub start --wait; or start a daemon with: larder up"));
            }
            closing(storage, async |storage| direct(storage, &names, action, wait).await).await?
        }
    };
    global.out().answer(&pools, |pools| render::status::scrubs(pools))?;
    let is_lost = |pool: &PoolScrub| pool.scrub.as_ref().is_some_and(|scrub| scrub.unrepaired > 0);
    Ok(if wait && pools.iter().any(is_lost) { Outcome::Problems } else { Outcome::Done })
}

/// The backend that has the pools, and their names; all of them where none is named.
async fn backend(global: &Global, words: &[String]) -> Result<(Backend, Vec<String>), Failure> {
    let backend = match as_dirs(words)? {
        Some(dirs) => match held_by_daemon(&dirs).await {
            Some((client, name)) => return Ok((Backend::Daemon(client), vec![name])),
            None => return on_disks(dirs).await,
        },
        None => {
            words.iter().try_for_each(|word| check_name(word)).map_err(Failure::invalid)?;
            Backend::of(global, &Disks::default()).await?
        }
    };
    let names = match (&backend, words) {
        (Backend::Daemon(client), []) => client.get::<DaemonInfo>("/v1/info").await?.pools,
        (Backend::Direct(storage), []) => names_of(storage),
        (_, words) => words.to_vec(),
    };
    Ok((backend, names))
}

async fn on_disks(dirs: Vec<PathBuf>) -> Result<(Backend, Vec<String>), Failure> {
    let storage = super::reach::direct(&dirs).await?;
    let names = names_of(&storage);
    Ok((Backend::Direct(storage), names))
}

fn names_of(storage: &Storage) -> Vec<String> {
    storage.all().iter().map(|pool| pool.name.clone()).collect()
}

async fn direct(
    storage: &Storage,
    names: &[String],
    action: Option<&str>,
    wait: bool,
) -> Result<Vec<PoolScrub>, Failure> {
    let mut pools = Vec::new();
    for name in names {
        let pool = storage.pool(Some(name))?;
        if let Some(action) = action {
            pool.scrub_do(action, "asked for").await?;
        }
        if wait {
            pool.scrub_wait().await;
        }
        pools.push(pool.scrub_status().await);
    }
    Ok(pools)
}

async fn ask(
    client: &Client,
    names: &[String],
    action: Option<&str>,
    wait: bool,
    json: bool,
) -> Result<Vec<PoolScrub>, Failure> {
    let mut pools = Vec::new();
    for name in names {
        let path = format!("/v1/pools/{name}/scrub");
        if let Some(action) = action {
            client.post::<PoolScrub>(&path, &ScrubRequest { action: action.to_owned() }).await?;
        }
    }
    for name in names {
        let path = format!("/v1/pools/{name}/scrub");
        let bar = wait && !json && std::io::stderr().is_terminal();
        pools.push(loop {
            let pool: PoolScrub = client.get(&path).await?;
            let running = pool.scrub.as_ref().filter(|scrub| wait && scrub.phase == "running");
            let Some(scrub) = running else { break pool };
            if bar {
                // Drawn over itself; the rest of the line is erased.
                eprint!("\r{name}: {}\x1b[K", render::status::progress(scrub));
                let _ = std::io::stderr().flush();
            }
            let pause = Duration::from_millis(scrub.elapsed_ms / 32);
            tokio::time::sleep(pause.clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX)).await;
        });
        if bar {
            eprint!("\r\x1b[K");
        }
    }
    Ok(pools)
}
