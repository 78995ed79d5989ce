//! What happens to a box over time, and telling somebody: events, alerts and their messages, the audit log, the health of disks.
//!
//! The daemon says what is the case now ([`Condition`]); this crate decides what is news, keeps it, and delivers it. Nothing
//! here looks at pools, volumes or shares, and nothing here asks a disk on its own.
//!
//! - `watch.state_not_lines`: an alert is raised and cleared by what is the case at a look, not by lines of a log. So a restart in
//!   the middle repeats nothing, and what went well meanwhile is cleared.
//! - `watch.saved_before_sent`: the state with a new message is durable before the message is sent, and the delivery is durable before
//!   the next. A crash between delivery and its record sends one message twice; none is lost.
//! - `watch.receivers_apart`: each receiver has a task of its own, with a time limit for each try. One that is slow, dead or
//!   hostile delays nobody else.
//! - `watch.secrets_elsewhere`: a secret is a file or a command of the configuration, read when it is needed. It is in no message, log
//!   line or state file.
#![forbid(unsafe_code)]

pub mod alerts;
pub mod audit;
pub mod damage;
pub mod digest;
pub mod disk;
pub mod event;
pub mod message;
pub mod queue;
mod saved;
pub mod send;
pub mod space;
pub mod ups;

pub use alerts::{Alert, Alerts, Change, Condition, Key, NoAlert, Unknown};
pub use event::{EVENTS, Event, EventKind, Severity};
pub use message::{Message, MessageKind};
pub use saved::{SaveError, load, replace, save};
