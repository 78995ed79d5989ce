//! `larder check`

use std::path::{Path, PathBuf};

use larder_api::{CheckRequest, CheckResult, Failure};

use super::args::{CheckArgs, Global};
use super::reach::{Backend, Outcome, closing, is_path};
use crate::render;

pub(super) async fn run(global: &Global, mut args: CheckArgs) -> Result<Outcome, Failure> {
    let (more, names): (Vec<String>, Vec<String>) =
        args.words.iter().cloned().partition(|word| !args.disks.disks.is_empty() && is_folder(word));
    args.disks.disks.extend(more.iter().map(PathBuf::from));
    let name = match names.as_slice() {
        [] => None,
        [name] => Some(name.as_str()),
        [_, other, ..] => {
            return Err(Failure::invalid(format!("'{other}': one pool or volume at a time"))
                .action("leave the names out to check all; disks follow --disk"));
        }
    };
    let results: Vec<CheckResult> = match Backend::of(global, &args.disks).await? {
        Backend::Daemon(client) => {
            let pools: Vec<larder_api::PoolListed> = client.get("/v1/pools/list").await?;
            let request = request(name, |name| pools.iter().any(|p| p.name == name), args.read_data);
            client.post("/v1/check", &request).await?
        }
        Backend::Direct(storage) => {
            closing(storage, async |storage| {
                let is_pool = |name: &str| storage.pool(Some(name)).is_ok();
                let request = request(name, is_pool, args.read_data);
                storage.check(request.pool.as_deref(), request.volume.as_deref(), request.read_data).await
            })
            .await?
        }
    };
    global.out().answer(&results, |results| render::check_results(results))?;
    let clean = results.iter().all(|r| r.problems.is_empty());
    Ok(if clean { Outcome::Done } else { Outcome::Problems })
}

fn is_folder(word: &str) -> bool {
    is_path(word) && Path::new(word).is_dir() || Path::new(word).is_absolute()
}

/// A single word is a pool if there is one of that name, a volume otherwise.
fn request(name: Option<&str>, is_pool: impl Fn(&str) -> bool, read_data: bool) -> CheckRequest {
    let (pool, volume) = match name {
        None => (None, None),
        Some(name) => match name.split_once('/') {
            Some((pool, volume)) => (Some(pool), Some(volume)),
            None if is_pool(name) => (Some(name), None),
            None => (None, Some(name)),
        },
    };
    CheckRequest { pool: pool.map(str::to_owned), volume: volume.map(str::to_owned), read_data }
}
