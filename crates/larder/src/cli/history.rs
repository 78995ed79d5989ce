//! `larder pool history`

use std::path::PathBuf;

use larder_api::endpoints::{GetInfo, GetPoolHistory};
use larder_api::{Client, Failure, PoolHistory};
use larder_pool::Pool;

use super::args::Global;
use super::pool::{as_dirs, held_by_daemon};
use super::reach::{Target, target};
use crate::render;
use larder_config::check_name;
use larder_daemon::translate;

pub(super) async fn run(global: &Global, words: &[String], last: Option<usize>) -> Result<(), Failure> {
    let mut pools = histories(global, words).await?;
    if let Some(last) = last {
        for pool in &mut pools {
            pool.events.drain(..pool.events.len().saturating_sub(last));
        }
    }
    global.out().answer(&pools, |pools| render::history(pools))
}

/// Without a daemon the files on the disks are read: nothing is opened, so looking is no event.
async fn histories(global: &Global, words: &[String]) -> Result<Vec<PoolHistory>, Failure> {
    if let Some(dirs) = as_dirs(words)? {
        return Ok(vec![match held_by_daemon(&dirs).await {
            Some((client, name)) => of_daemon(&client, &name).await?,
            None => of_disks(&dirs)?,
        }]);
    }
    words.iter().try_for_each(|word| check_name(word)).map_err(Failure::invalid)?;
    let mut histories = Vec::new();
    match target(global).await? {
        Target::Daemon(client) => {
            let names = match words {
                [] => client.ask(GetInfo).await?.pools,
                words => words.to_vec(),
            };
            for name in names {
                histories.push(of_daemon(&client, &name).await?);
            }
        }
        Target::Config(config) => {
            if let Some(word) = words.iter().find(|word| config.pool(word).is_none()) {
                return Err(Failure::not_found(format!("there is no pool '{word}' in {}", config.data.display())));
            }
            for pool in config.pools.iter().filter(|pool| words.is_empty() || words.contains(&pool.name)) {
                histories.push(of_disks(&pool.disks)?);
            }
        }
    }
    Ok(histories)
}

async fn of_daemon(client: &Client, name: &str) -> Result<PoolHistory, Failure> {
    client.call(GetPoolHistory, name, &()).await
}

fn of_disks(disks: &[PathBuf]) -> Result<PoolHistory, Failure> {
    let (name, events) = Pool::history_of(disks).map_err(|e| translate::pool_error(&e))?;
    Ok(translate::history(&name, events))
}
