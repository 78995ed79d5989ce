//! State of open files shared by every connection, and closing an open.

mod closing;
mod directories;
mod durable;
mod entries;
mod file_ref;
mod late;
mod lease;
mod leases;
mod pending_delete;
mod replays;
mod sequences;
mod slots;
mod table;
mod watch;
mod watch_table;

pub(crate) use closing::{close_open, close_opens, end_opens};
pub(crate) use durable::{Claim, Durability, DurableReg, DurableTable, Replayable, Unclaimed, v2_timeout};
pub(crate) use entries::Sharing;
pub use file_ref::Standing;
pub(crate) use file_ref::{FileRef, OpenRequest, Refused};
#[cfg(test)]
pub(crate) use late::LATE_FOR;
pub(crate) use late::{Late, Punctual};
pub(crate) use lease::{Granted, LeaseId, LeaseRequest, LeaseState, LeaseVersion, Trigger};
#[cfg(test)]
pub(crate) use leases::LEASE_BREAK_TIMEOUT;
pub(crate) use leases::{AfterSend, BreakWait, GrantGuard, LeaseRef, LeaseTable, MAX_BREAK_WAIT, Notices};
pub(crate) use replays::{Begun, Place, Replays};
pub(crate) use sequences::{ChannelSequence, LockSequences, UnderWay};
pub(crate) use slots::{OpenBudget, OpenSlot, Party};
pub use table::FileTable;
#[cfg(test)]
pub(crate) use watch::MAX_WATCHES_PER_CONNECTION;
pub(crate) use watch::{Answer, CONTENT_CHANGED, NotifyAccount, NotifyBudget, Watch};
#[cfg(test)]
pub(crate) use watch_table::Observed;
pub(crate) use watch_table::WatchReg;
pub use watch_table::{Above, Notice, NoticeKind, Watches, Watching};
