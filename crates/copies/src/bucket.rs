//! This process as the owner of a store in a bucket.
//!
//! - `bucket.loser_ends`: a process whose store was taken over ends at once, before it answers anything. What it has in memory is
//!   no longer true, its clients find their store elsewhere, and a crash is what every other part is made for. Whatever started it
//!   may start it again: it stands by then, or says who has the store.

use larder_api::Failure;
use larder_keep::bucket::Taking;
use larder_store::{BucketError, Machine};

use larder_config::machine;
use larder_document::DataFolder;

/// The exit code of a process that lost its store (`bucket.loser_ends`), or gave it up when it was asked (`bucket.asked_ends`).
pub const LOST_EXIT: i32 = 5;
/// Tells this data folder from a copy on a machine that has the same name and id, as containers may.
const FOLDER_ID: &str = "store-id";

/// This daemon, as others see it in a bucket.
pub fn this_machine(folder: &DataFolder) -> Result<Machine, Failure> {
    let name = machine::host_name();
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_else(|_| name.clone());
    let file = folder.path().join(FOLDER_ID);
    let own = match std::fs::read_to_string(&file) {
        Ok(own) if !own.trim().is_empty() => own.trim().to_owned(),
        _ => {
            let own = uuid::Uuid::new_v4().simple().to_string();
            larder_config::edit::replace_file(&file, own.as_bytes(), 0o600)?;
            own
        }
    };
    Ok(Machine { id: format!("{}:{own}:{}", id.trim(), folder.path().display()), name })
}

/// How a command takes a store: no pool is open whose journal could answer for it.
pub fn taking(machine: Machine, take_over: bool) -> Taking {
    Taking { machine, take_over, journal: None, on_loss: end_loser }
}

/// `bucket.loser_ends`
pub fn end_loser(name: &str, error: &BucketError) {
    tracing::error!("the store '{name}': {error}; larder ends, and answers nothing more");
    std::process::exit(LOST_EXIT);
}
