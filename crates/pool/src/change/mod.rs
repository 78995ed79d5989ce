//! Changes: creating and opening a pool, other disks, other layouts, and moving what lies on the
//! disks accordingly.

pub mod create;
pub mod disks;
pub mod forecast;
pub mod mover;
pub mod moving;
pub mod open;
pub mod recover;
