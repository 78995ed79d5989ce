//! Healing: repair of objects that lack shards, the scrub that looks for damage, and misplaced
//! shards.

pub mod misplaced;
pub mod rebuilt;
pub mod repair;
pub mod repair_queue;
pub mod scrub;
