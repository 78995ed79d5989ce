//! `larder check`

use std::path::{Path, PathBuf};

use larder_api::endpoints::{CheckVolumes, ListPools};
use larder_api::{CheckRequest, Failure};

use super::args::{CheckArgs, Global};
use super::reach::{Backend, Outcome, is_path};
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
    let results = Backend::of(global, &args.disks)
        .await?
        .closing(async |backend| {
            let pools = backend.call(ListPools, (), ()).await?;
            let request = request(name, |name| pools.iter().any(|pool| pool.name == name), args.read_data);
            backend.call(CheckVolumes, (), request).await
        })
        .await?;
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
