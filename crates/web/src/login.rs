//! The check of a password, which the page leaves to whoever keeps users: one table counts the guesses at all doors.

use std::net::IpAddr;
use std::time::Duration;

use futures::future::BoxFuture;

use larder_api::Failure;

use crate::Role;

/// What a user is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub role: Role,
    /// Changes with the password, so that sessions of an older one end.
    pub generation: u64,
    /// Never given again: tells users apart who had the same name.
    pub uid: u32,
    /// Without one somebody logs in by the issuer or a passkey alone.
    pub has_password: bool,
}

/// Reasons not to let somebody in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The name or the password; the answer does not say which.
    Wrong,
    /// Too many wrong guesses from this address or for this user.
    Wait(Duration),
    /// The check could not be made.
    Unavailable(String),
}

pub trait LogIn: Send + Sync + 'static {
    /// Takes the same time for a user that does not exist.
    fn check(&self, name: String, password: String, from: IpAddr) -> BoxFuture<'_, Result<Standing, Refusal>>;

    /// Asked at every request, from memory. `None`: there is no such user any more.
    fn standing(&self, name: &str) -> Option<Standing>;

    /// Somebody came in without the password: `by` says how. Others hear of it as of a log-in by password.
    fn entered(&self, name: &str, from: IpAddr, by: &str);

    /// Makes the second factors durable (`factors.kept_first`). They have secrets.
    fn keep_factors(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<(), Failure>>;

    /// Makes the sessions durable (`browsers.end_before_the_answer`). They open nothing.
    fn keep_sessions(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<(), Failure>>;
}
