//! How long a server is waited for: one that hangs must not take the bench with it.

use std::time::Duration;

use super::error::{ClientError, Outcome};

/// Disks that sleep take up to half of it to wake.
pub(super) const REPLY_TIME_MAX: Duration = Duration::from_secs(60);
/// A server's memory may hold minutes of its disks' work.
pub(super) const FLUSH_TIME_MAX: Duration = Duration::from_secs(600);
/// Of a first connection, which asks several things.
pub(super) const OPEN_TIME_MAX: Duration = Duration::from_secs(120);
/// Of the first connection once all was measured: whoever is silent then has hung in the middle, and is not asleep.
pub(super) const PRESENCE_TIME_MAX: Duration = Duration::from_secs(15);
/// Of removing everything: each reply may be just in time.
pub(super) const CLEAN_UP_TIME_MAX: Duration = Duration::from_secs(600);

/// A server's reply, within the time for one reply.
pub(super) async fn reply<R>(server: &str, answer: impl Future<Output = Outcome<R>>) -> Outcome<R> {
    reply_within(REPLY_TIME_MAX, server, answer).await
}

pub(super) async fn reply_within<R>(
    time_max: Duration,
    server: &str,
    answer: impl Future<Output = Outcome<R>>,
) -> Outcome<R> {
    tokio::time::timeout(time_max, answer).await.unwrap_or_else(|_| Err(silent(server, time_max)))
}

pub(super) fn silent(server: &str, time_max: Duration) -> ClientError {
    ClientError::Silent { what: server.to_owned(), seconds: time_max.as_secs() }
}

/// Several requests together.
pub(super) async fn within<R>(time_max: Duration, what: &str, work: impl Future<Output = Outcome<R>>) -> Outcome<R> {
    let late = || ClientError::lost(what, format!("it was not done after {} s", time_max.as_secs()));
    tokio::time::timeout(time_max, work).await.unwrap_or_else(|_| Err(late()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_server_is_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let never = || std::future::pending::<Outcome<()>>();
        let error = runtime.block_on(async { within(Duration::from_millis(20), "nas", never()).await }).unwrap_err();
        assert!(matches!(error, ClientError::Lost { .. }), "{error}");
        let silence = |never| async { reply_within(Duration::from_millis(20), "nas", never).await };
        let error = runtime.block_on(silence(never())).unwrap_err();
        assert!(error.is_final() && error.to_string().contains("see whether it still runs"), "{error}");
        assert!(runtime.block_on(async { reply("nas", async { Ok(()) }).await }).is_ok());
        assert!(silent("nas", REPLY_TIME_MAX).to_string().contains("did not answer for 60 s"));
    }
}
