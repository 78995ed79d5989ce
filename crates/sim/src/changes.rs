//! An administrator's changes to the disks while clients work: add, replace, remove, offline and online, other layouts.
//!
//! - `admin.promise_never_less`: the pool never promises less than the layout that the schedule
//!   began with. The administrator asks only for layouts that survive as many lost disks.
//! - `admin.finished_in_later_lives`: a requested change goes on in later lives. At the end nothing
//!   is left to move.

use std::sync::Arc;

use larder_pool::{Change, DiskState, Layout, Pool, PoolState};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::session::{Outcome, Run, Stop, text};

/// Asks for some change. A refusal is an answer: what is asked is often impossible.
pub async fn change(run: &Run, pool: &Arc<Pool>) {
    let disks: Vec<String> = pool.disks().iter().map(|disk| disk.display().to_string()).collect();
    let asked = run.draw(|random| draw(random, run, &disks));
    let answer = pool.change(&asked).await;
    run.world.note(|| match &answer {
        Ok(_) => format!("{asked:?}"),
        Err(error) => format!("{asked:?} is refused: {}", text(error)),
    });
}

fn draw(random: &mut StdRng, run: &Run, disks: &[String]) -> Change {
    let all = run.world.paths();
    let disk = disks.choose(random).cloned().unwrap_or_default();
    let new = all.choose(random).cloned().unwrap_or_default();
    match random.random_range(0..10) {
        0..2 => Change::Add { disks: vec![new], spare: random.random_range(0..8) == 0 },
        2..4 => Change::Replace { old: disk, new },
        4..6 => Change::Remove { disk },
        6 => Change::Keep { disk },
        // With a disk offline a failing one may be one too many.
        7 if run.plan.victims.is_empty() => Change::Offline { disk },
        7..9 => Change::Online { disk, discard: false },
        _ => {
            let safe = |layout: &&Layout| layout.failures() >= run.plan.layout.failures();
            let layouts: Vec<&Layout> = Layout::ALL.iter().filter(safe).collect();
            Change::Rebalance { layout: layouts.choose(random).map(|layout| **layout), width: None }
        }
    }
}

/// All disks are used again, and everything is where it should be.
pub async fn conclude(run: &Run, pool: &Pool) -> Outcome<()> {
    let offline = pool.status().disks.into_iter().filter(|disk| disk.state == DiskState::Offline);
    for disk in offline {
        let online = Change::Online { disk: disk.path.display().to_string(), discard: false };
        let answer = run.powered(pool.change(&online)).await?;
        // One that was leaving may have left meanwhile.
        let has_left = !pool.disks().contains(&disk.path);
        answer.map(drop).or_else(|error| match has_left {
            true => Ok(()),
            false => Err(run.unexpected("bringing online", text(&error))),
        })?;
    }
    run.powered(pool.repaired()).await?;
    run.powered(pool.settled()).await?;
    run.powered(pool.repaired()).await?;
    let status = pool.status();
    match status.moving {
        Some(moving) if status.state == PoolState::Online => Err(Stop::Failed(format!("{moving:?} does not end"))),
        _ => Ok(()),
    }
}
