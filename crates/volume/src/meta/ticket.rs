//! The order of batches.

/// A place in the order of batches; `Ticket(0)` is durable from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u64);
