//! Healing: repair of objects that lack shards, the scrub that looks for damage, and shards that
//! lie in wrong places.

pub mod misplaced;
pub mod rebuilt;
pub mod repair;
pub mod repair_queue;
pub mod scrub;
