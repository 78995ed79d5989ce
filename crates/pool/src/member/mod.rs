//! Members: the disks that belong to a pool, the labels that say so, and the other files that each
//! disk keeps beside its shards.

pub mod adopt;
pub mod divergence;
pub mod faults;
pub mod found;
pub mod label;
pub mod labels;
pub mod life_file;
#[cfg(test)]
mod lineage_tests;
pub mod member_disk;
pub mod members;
pub mod reserve;
pub mod room;
pub mod side_file;
pub mod slots;
pub mod waiting;
