//! Objects: how they are cut into shards, where these go, and how an object is written, read,
//! listed and deleted.

pub mod attributes;
pub mod gather;
pub mod geometry;
pub mod group;
pub mod index;
pub mod intact;
pub mod layout;
pub mod objects;
pub mod parity;
pub mod placement;
pub mod read;
pub mod reaper;
pub mod refusal;
pub mod shard;
pub mod shard_files;
pub mod shard_writer;
pub mod store;
pub mod tombstones;
pub mod upload;
pub mod versions;
pub mod write;
