//! Schedules of volumes in a bucket, for which machines fight.
//!
//! ```text
//! s3.rs      the objects            process.rs   a machine's process: a runtime and a clock of its own
//! net.rs     fates of requests      life.rs      the life of a process: takes the store, verifies, serves clients
//! store.rs   a machine's client     known.rs     what is known of the volume across owners, and judged
//! run.rs     two machines, from the seed     journal.rs   their pools, whose journals answer
//! seated.rs  the life of a process at one of several seats, which hands volumes over
//! ledger.rs  judges each state of the registry
//! ```
//!
//! - `bucketrun.judged_by_the_next`: what an owner acknowledged, whenever it did, is there when the next one has opened the volume.
//! - `bucketrun.no_stale_answers`: an owner answers nothing that was asked of it after its successor began to serve.

mod journal;
mod known;
mod ledger;
mod life;
mod net;
mod process;
mod run;
mod s3;
mod seated;
mod store;
#[cfg(test)]
mod tests;

pub use run::run;
