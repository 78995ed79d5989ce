//! What the servers of all protocols share at their doors: who may wait there, for how long, with how much memory, and who
//! the client is.
//!
//! - Before a login: [`strangers`] bounds connections without a right, [`handshake`] and [`turns`] the work that each may
//!   ask for, [`login`] the guesses at passwords.
//! - After it: [`parties`] shares a door's places, [`residents`] ends idle connections where a place is needed, [`unread`]
//!   bounds the answers that no client takes.
//! - [`share`] and [`tree`] are the shares as doors of names and paths show them, [`steps`] the links on the way.
//! - [`door`] logs who came in and who was refused, [`counted`] and [`stats`] count operations.
#![warn(missing_docs)]

pub mod counted;
pub mod door;
pub mod handshake;
pub mod login;
pub mod parties;
mod password;
pub mod residents;
pub mod share;
pub mod stats;
pub mod steps;
pub mod strangers;
pub mod tree;
pub mod turns;
pub mod unread;
