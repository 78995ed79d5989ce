//! Changes: creating and opening a pool, other disks, other layouts, and moving the data
//! accordingly.

pub mod create;
pub mod disks;
pub mod diverged;
pub mod forecast;
pub mod mover;
pub mod moving;
pub mod open;
pub mod recover;
