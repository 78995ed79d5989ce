//! Healing: repair of objects that lack shards, the scrub that looks for damage, and shards that lie in wrong places.

pub mod misplaced;
pub mod repair;
pub mod scrub;
