//! The ports, doors and mounts of this process: bound, fed with what they serve, closed for a volume
//! that goes away, stopped; and the page as their guest.

pub mod answer;
pub mod closing;
pub mod doors;
pub mod json;
pub mod links;
pub mod mounts;
pub mod page;
pub mod passwords;
mod port_holder;
mod processes;
pub mod remote;
mod servers;

pub use closing::VolumeDoors;
pub use mounts::Mounts;
pub use servers::{Servers, Serving, own_names};
