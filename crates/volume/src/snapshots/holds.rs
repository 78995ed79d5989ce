//! Reasons to keep a snapshot: added, prolonged, ended. Pure functions of a list and a time.
//!
//! - `holds.by_box`: the end of a hold is kept by the time of the box (`passed.really`), so no clock that jumps ends one early, and
//!   none that was wrong when it was made prolongs one. People say and see it by the wall clock.

use larder_base::{Clock, Timestamp};
use larder_fs::*;

use super::row::NAME_LEN_MAX;

const HOLDS_MAX: usize = 64;

/// An end by the wall clock, which is so far ahead, as it is kept (`holds.by_box`).
pub(crate) fn kept(until: Option<Timestamp>, ahead_secs: i64) -> Option<Timestamp> {
    until.map(|until| until.earlier_by(ahead_secs))
}

/// The holds that have not ended, with ends by the wall clock (`holds.by_box`).
pub(crate) fn shown(holds: Vec<Hold>, clock: &dyn Clock) -> Vec<Hold> {
    let (now, ahead) = (clock.box_now(), clock.ahead_secs());
    let by_wall = |hold: Hold| Hold { until: hold.until.map(|until| until.earlier_by(ahead.saturating_neg())), ..hold };
    holds.into_iter().filter(|hold| is_active(hold, now)).map(by_wall).collect()
}

pub(crate) fn is_active(hold: &Hold, now: Timestamp) -> bool {
    hold.until.is_none_or(|until| until > now)
}

pub(crate) fn is_held(holds: &[Hold], now: Timestamp) -> bool {
    holds.iter().any(|hold| is_active(hold, now))
}

/// A hold with an end cannot be released before, nor its end be moved closer: [`FsError::NotPermitted`]. [`FsError::Invalid`] for an
/// impossible reason, or an end in the past.
pub(crate) fn add(holds: &mut Vec<Hold>, reason: &str, until: Option<Timestamp>, now: Timestamp) -> FsResult<()> {
    if reason.is_empty() || reason.len() > NAME_LEN_MAX {
        return Err(FsError::Invalid("the reason of a hold is 1 to 200 bytes"));
    }
    // Whole seconds are stored: rounded up, it never ends early.
    let until = until.map(|until| Timestamp::new(until.secs.saturating_add(i64::from(until.nanos > 0)), 0));
    if until.is_some_and(|until| until <= now) {
        return Err(FsError::Invalid("the end of a hold lies in the future"));
    }
    let earlier = holds.iter().find(|hold| hold.reason == reason && is_active(hold, now));
    if let Some(earlier) = earlier {
        let is_shorter = match (earlier.until, until) {
            (Some(earlier), Some(until)) => until < earlier,
            // Without an end it could be released today.
            (Some(_), None) => true,
            (None, _) => false,
        };
        if is_shorter {
            return Err(FsError::NotPermitted);
        }
    } else if holds.iter().filter(|hold| is_active(hold, now)).count() >= HOLDS_MAX {
        return Err(FsError::NoSpace("a snapshot has 64 holds at most".into()));
    }
    holds.retain(|other| other.reason != reason && is_active(other, now));
    holds.push(Hold { reason: reason.to_owned(), until });
    Ok(())
}

/// [`FsError::NotFound`] if there is none for this reason, [`FsError::NotPermitted`] if it has an end that is still to come.
pub(crate) fn release(holds: &mut Vec<Hold>, reason: &str, now: Timestamp) -> FsResult<()> {
    let hold = holds.iter().find(|hold| hold.reason == reason).ok_or(FsError::NotFound)?;
    if hold.until.is_some_and(|until| until > now) {
        return Err(FsError::NotPermitted);
    }
    holds.retain(|hold| hold.reason != reason);
    Ok(())
}
