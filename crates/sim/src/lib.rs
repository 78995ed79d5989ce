//! A whole pool and volume in one process, on simulated disks, from one seed.
//!
//! ```text
//! main.rs      commands                       plan.rs      what a schedule is
//! many.rs      many schedules, figures        session.rs   the lives of a process
//! schedule.rs  one schedule                   pool_run.rs, objects.rs, contended.rs   a pool and its model
//! chance.rs    randomness and clocks          volume_run.rs, file_client.rs, file_bytes.rs   files in a volume
//! turns.rs     who is next                    history.rs, tree_model.rs, file_model.rs       and their model
//! split.rs     sets of disks that open a pool by turns
//! snapshots.rs, snapshot_client.rs, churn.rs   snapshots in a volume
//! disk/        disks, power, faults           early.rs, front.rs   bugs that tests plant
//! bucket/      volumes in a bucket, and machines that fight for it
//! ```
//!
//! docs/simulator.md says what is simulated, and what no simulation of this kind can see.

mod bucket;
pub mod chance;
mod changes;
mod churn;
mod clones;
mod contended;
pub mod disk;
mod early;
mod file_bytes;
mod file_client;
mod file_model;
pub mod front;
mod history;
pub mod many;
mod objects;
pub mod plan;
mod pool_run;
mod replicas;
pub mod schedule;
mod sealing;
mod session;
mod snapshot_client;
mod snapshots;
mod split;
mod tree_model;
mod turns;
mod volume_run;
