//! The moments of rounds that nobody waits for: an idle machine wakes once for all of them.
//!
//! - `rounds.together`: rounds of one length begin at the same moments, and those of twice that length at every other one.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;

/// Sleeps until the next round of those that are `every` apart (`rounds.together`).
pub async fn sleep(every: Duration) {
    tokio::time::sleep_until(next(every)).await;
}

/// The beginning of the next round. It is at most `every` away.
pub fn next(every: Duration) -> Instant {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let now = Instant::now();
    now + until_next(now.saturating_duration_since(*FIRST.get_or_init(|| now)), every)
}

/// `since`: the first round.
fn until_next(since: Duration, every: Duration) -> Duration {
    let every_ms = every.as_millis().max(1);
    let over_ms = since.as_millis() % every_ms;
    Duration::from_millis(u64::try_from(every_ms - over_ms).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_begin_together() {
        let check = |since_ms: u64, every_ms: u64, want_ms: u64| {
            let found = until_next(Duration::from_millis(since_ms), Duration::from_millis(every_ms));
            assert_eq!(found, Duration::from_millis(want_ms), "{since_ms} {every_ms}");
        };
        check(0, 30_000, 30_000);
        check(1, 30_000, 29_999);
        check(30_000, 30_000, 30_000);
        check(45_000, 30_000, 15_000);
        check(45_000, 60_000, 15_000);
        check(u64::MAX, 60_000, 60_000 - u64::MAX % 60_000);
    }

    #[tokio::test(start_paused = true)]
    async fn sleepers_of_different_lengths_meet() {
        sleep(Duration::from_secs(30)).await;
        tokio::time::sleep(Duration::from_secs(7)).await;
        let began = Instant::now();
        tokio::join!(sleep(Duration::from_secs(30)), sleep(Duration::from_secs(30)));
        assert_eq!(began.elapsed().as_secs(), 23);
    }
}
