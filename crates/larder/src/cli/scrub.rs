//! `larder pool scrub ...`

use std::io::{IsTerminal, Write};
use std::time::Duration;

use larder_api::endpoints::{GetPoolScrub, GetScrubSchedules, ScrubPool, SetScrubSchedule};
use larder_api::{Failure, PoolScrub, ScrubRequest, ScrubSchedule};

use super::args::{Global, ScrubCommand};
use super::pool::backend;
use super::reach::{Backend, Outcome, daemon};
use crate::render;

/// How often somebody who waits looks: the end of a short one is seen soon.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(20);
const LOOK_EVERY_MAX: Duration = Duration::from_millis(300);

pub(super) async fn run(global: &Global, command: ScrubCommand) -> Result<Outcome, Failure> {
    if let ScrubCommand::Schedule { pool, every } = command {
        return schedule(global, pool, every).await;
    }
    let (action, words, wait) = match command {
        ScrubCommand::Start { words, wait } => (Some("start"), words, wait),
        ScrubCommand::Pause { words } => (Some("pause"), words, false),
        ScrubCommand::Stop { words } => (Some("stop"), words, false),
        ScrubCommand::Status { words, wait } => (None, words, wait),
        ScrubCommand::Schedule { .. } => return Ok(Outcome::Done),
    };
    let (backend, names) = backend(global, &words).await?;
    let begins_alone = matches!(backend, Backend::Direct(_)) && action == Some("start") && !wait;
    let scrubbing = async |backend: &Backend| match begins_alone {
        true => Err(Failure::invalid("no daemon serves this pool, so nobody would go on with the scrub")
            .action("wait for it: larder pool scrub start --wait; or start a daemon with: larder up")),
        false => ask(backend, &names, action, wait, global.json).await,
    };
    let pools = backend.closing(scrubbing).await?;
    global.out().answer(&pools, |pools| render::status::scrubs(pools))?;
    let is_lost = |pool: &PoolScrub| pool.scrub.as_ref().is_some_and(|scrub| scrub.unrepaired > 0);
    Ok(if wait && pools.iter().any(is_lost) { Outcome::Problems } else { Outcome::Done })
}

/// How often pools are scrubbed by themselves: shown, or changed for one. Only a daemon keeps schedules.
async fn schedule(global: &Global, pool: Option<String>, every: Option<String>) -> Result<Outcome, Failure> {
    let client = daemon(global).await?;
    let mut all = match (&pool, every) {
        (Some(pool), Some(schedule)) => {
            client.call(SetScrubSchedule, (), &ScrubSchedule { pool: pool.clone(), schedule }).await?
        }
        _ => client.ask(GetScrubSchedules).await?,
    };
    all.retain(|one| pool.as_ref().is_none_or(|pool| one.pool == *pool));
    global.out().answer(&all, |all| {
        let mut rows = vec![["POOL", "SCRUBBED"].map(str::to_owned).to_vec()];
        rows.extend(all.iter().map(|one| vec![one.pool.clone(), one.schedule.clone()]));
        render::table(&rows, &[])
    })?;
    Ok(Outcome::Done)
}

async fn ask(
    backend: &Backend,
    names: &[String],
    action: Option<&str>,
    wait: bool,
    json: bool,
) -> Result<Vec<PoolScrub>, Failure> {
    let mut pools = Vec::new();
    for name in names {
        if let Some(action) = action {
            backend.call(ScrubPool, name, ScrubRequest { action: action.to_owned() }).await?;
        }
    }
    for name in names {
        if let (Backend::Direct(storage), true) = (backend, wait) {
            storage.pool(Some(name))?.scrub_wait().await;
        }
        let bar = wait && !json && std::io::stderr().is_terminal();
        pools.push(loop {
            let pool = backend.call(GetPoolScrub, name, ()).await?;
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
