//! Names of volumes, as a person writes them.

use larder_api::Failure;

use larder_config::check_name;

/// NAME or POOL/NAME, both checked.
pub(super) fn split(name: &str) -> Result<(Option<String>, String), Failure> {
    let (pool, volume) = match name.split_once('/') {
        Some((pool, volume)) => (Some(pool), volume),
        None => (None, name),
    };
    for part in pool.iter().copied().chain([volume]) {
        check_name(part).map_err(Failure::invalid)?;
    }
    Ok((pool.map(str::to_owned), volume.to_owned()))
}
