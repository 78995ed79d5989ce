//! Who may come in: users, shares, and the one function that decides.
//!
//! - `entrance.decided_once`: [`Share::entrance`] decides for every door. A door asks it where its clients come in, and
//!   `share explain` prints what it says. No door has rules of its own.
//! - `entrance.fails_closed`: each rule can shut out, and no rule lets in what another one has shut out.
//!
//! What files then allow is decided by the volume, below the rights that an entrance gives.
#![warn(missing_docs)]

mod door;
mod entrance;
mod error;
mod key;
mod network;
mod password;
mod share;
pub mod token;
mod user;

pub use door::Door;
pub use entrance::{Entrance, Reason, Rights, Who, Why};
pub use error::PeopleError;
pub use key::{AuthorizedKey, check_strength, public_key};
pub use network::{LOOPBACK, Network};
pub use password::PasswordHash;
pub use share::{Field, GROUP_SIGN, Listed, NOBODY, Share, Squash, Squashing, Writers};
pub use user::{NtHash, User};
