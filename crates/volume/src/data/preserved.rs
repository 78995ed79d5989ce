//! The proof that the last cut has its copy of an inode (`cut.before_change`).

use std::marker::PhantomData;

/// Only [`copies`] makes one, after it has copied, and it cannot outlive the gate of cuts.
pub(super) struct Preserved<'a>(PhantomData<&'a ()>);

pub(super) mod copies;
