//! What wires and disks can do at all, from what was published about them.
//!
//! A wire has two figures: the line's, which nothing exceeds, and the practical one, which is what is left for
//! data after coding, framing and protocols. The first finds contradictions, the second caps.

mod disks;
mod wires;

pub(crate) use disks::{DiskKind, Physical};
pub(crate) use wires::{BOT, Duplex, Wire};
