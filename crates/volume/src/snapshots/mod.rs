//! Snapshots: the whole volume as it was at one moment, for as long as it is kept.
//!
//! ```text
//! epochs     1        2        3        4 (now)
//!            |--------|--------|--------|----->      each snapshot closes an epoch and has its number
//!                 snapshot 1   2        3
//! segment A  [birth 1 ............ death 3)          kept for snapshots 1 and 2
//! ```
//!
//! - `snap.one_moment`: a snapshot holds every change that was answered before it was asked for, and none that was asked for
//!   after its answer, as if the volume had stood still ([`crate::data`] keeps copies of dirty ranges that change meanwhile:
//!   `cut.before_change`).
//! - `snap.row_is_the_snapshot`: a snapshot exists from the moment when its row is durable until the row's removal is. What
//!   it needs is durable before, and is deleted afterwards.
//! - `snap.epochs_rise`: the number of an epoch is never used again. The first batch after a cut carries the next one, so
//!   nothing of an epoch is durable before its number is.
//! - `snap.number_before_image`: an image is put, and deleted, once the epoch after it is durable. Its name is of no other opening
//!   then, whoever takes the volume over; a sweep leaves numbers alone that were not given out before its opening.
//! - `snap.segments_between`: a segment is kept while a snapshot's number lies from its birth up to, without, its death. An
//!   unfinished snapshot counts.
//! - `snap.tables_pinned`: a table of the engine is kept while a snapshot between its first and its last one is there
//!   (`pins`).
//! - `snap.numbers_hold_the_epoch`: a file in a snapshot has the inode number of the file then, with the number of the
//!   snapshot in its upper bits ([`number`]). So every door, cache and handle tells them apart, and one volume serves all.
//! - `snap.read_only`: an inode with such a number is never changed: each operation asks [`larder_fs::places::check_changeable`] first, and
//!   [`route`] refuses batches about it.
//!
//! Rooms: `number`, `row`, `image` are pure; `view` reads one snapshot, `route` leads each key to the head or to a view;
//! `compare` finds the rows that differ; `catalog` knows which there are; `create`, `manage`, `rollback` and `diff` are the operations; `changes` says what may
//! differ between two moments.

mod catalog;
pub(crate) mod changes;
pub(crate) mod compare;
pub(crate) mod create;
mod diff;
pub(crate) mod holds;
pub(crate) mod image;
mod manage;
pub(crate) mod rollback;
pub(crate) mod route;
pub(crate) mod row;
mod view;

pub(crate) use catalog::Catalog;
pub(crate) use view::View;
