//! From facts to findings. Nothing in here looks at the machine.

pub(super) mod device;
pub(super) mod filesystem;
pub(super) mod flush;
pub(super) mod health;
pub(super) mod together;
