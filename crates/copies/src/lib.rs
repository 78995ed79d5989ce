//! Copies of a box on other pools and machines: volumes that are replicated, seats in a bucket and the
//! machines that stand by for it, and the record of the box itself.

pub mod box_record;
pub mod bucket;
mod followed;
#[cfg(test)]
mod fuzz;
pub mod replication;
pub mod seats;
pub mod standby;

pub use box_record::BoxRecord;
pub use replication::Replication;
pub use seats::Seats;
