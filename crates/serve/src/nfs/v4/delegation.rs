//! One delegation (RFC 7530 10.4, RFC 8881 10.4), from its grant to its end.
//!
//! ```text
//!          recall           sent                 returned
//!   Held ---------> Queued -----------> Sent ---------------> gone
//!                     ^                  |   the deadline
//!                     +------------------+ ---------------> Revoked --FREE_STATEID--> gone
//!                       its connection ended
//! ```
//!
//! - `delegation.deadline_from_sending`: a client has its time from the moment at which a recall was first sent, not from
//!   its queueing.
//! - `delegation.lost_connection_no_verdict`: a recall whose connection ended is sent again by the one that is bound then.
//!   Only a client without any way back for a whole term is as good as silent.

use std::time::Duration;

use super::clock::Moment;

/// Reading alone, or writing too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delegated {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Held,
    Recalled(Recall),
    Revoked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Recall {
    /// It was sent first at this moment.
    first_sent: Option<Moment>,
    is_under_way: bool,
    /// Since when there is no way back to the client.
    unreachable_since: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delegation {
    pub kind: Delegated,
    phase: Phase,
}

impl Delegation {
    pub fn new(kind: Delegated) -> Self {
        Self { kind, phase: Phase::Held }
    }

    pub fn is_held(&self) -> bool {
        self.phase == Phase::Held
    }

    pub fn is_revoked(&self) -> bool {
        self.phase == Phase::Revoked
    }

    /// Somebody needs the file.
    pub fn recall(&mut self) {
        if self.phase == Phase::Held {
            let recall = Recall { first_sent: None, is_under_way: false, unreachable_since: None };
            self.phase = Phase::Recalled(recall);
        }
    }

    /// Whether a recall has to be sent.
    pub fn is_to_be_sent(&self) -> bool {
        matches!(self.phase, Phase::Recalled(recall) if !recall.is_under_way)
    }

    /// The recall has left (`delegation.deadline_from_sending`).
    pub fn sent(&mut self, now: Moment) {
        if let Phase::Recalled(recall) = &mut self.phase {
            recall.first_sent.get_or_insert(now);
            (recall.is_under_way, recall.unreachable_since) = (true, None);
        }
    }

    /// Its connection ended before the client answered (`delegation.lost_connection_no_verdict`).
    pub fn lost(&mut self) {
        if let Phase::Recalled(recall) = &mut self.phase {
            recall.is_under_way = false;
        }
    }

    /// Whether the client's time is over at `now`; called again and again. `is_reachable`: there is a way back.
    pub fn is_overdue(&mut self, now: Moment, term: Duration, is_reachable: bool) -> bool {
        let Phase::Recalled(recall) = &mut self.phase else { return false };
        if is_reachable || recall.is_under_way {
            recall.unreachable_since = None;
        } else {
            recall.unreachable_since.get_or_insert(now);
        }
        let is_over = |since: Option<Moment>| since.is_some_and(|since| now.since(since) >= term);
        is_over(recall.first_sent.filter(|_| recall.is_under_way)) || is_over(recall.unreachable_since)
    }

    pub fn revoke(&mut self) {
        self.phase = Phase::Revoked;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Duration = Duration::from_secs(90);

    fn at(secs: u64) -> Moment {
        Moment(Duration::from_secs(secs))
    }

    #[test]
    fn a_deadline_begins_when_the_recall_is_sent() {
        let mut one = Delegation::new(Delegated::Write);
        assert!(!one.is_overdue(at(1000), TERM, true), "nobody has asked");
        one.recall();
        assert!(one.is_to_be_sent() && !one.is_held());
        assert!(!one.is_overdue(at(5000), TERM, true), "queued behind a slow reply");
        one.sent(at(5000));
        assert!(!one.is_to_be_sent() && !one.is_overdue(at(5089), TERM, true));
        assert!(one.is_overdue(at(5090), TERM, true));
        one.revoke();
        assert!(one.is_revoked() && !one.is_overdue(at(9000), TERM, true));
        one.recall();
        assert!(one.is_revoked(), "nothing comes back");
    }

    #[test]
    fn a_lost_connection_is_no_verdict() {
        let mut one = Delegation::new(Delegated::Read);
        one.recall();
        one.sent(at(0));
        one.lost();
        assert!(one.is_to_be_sent());
        assert!(!one.is_overdue(at(95), TERM, true), "it has not been sent by the new one");
        assert!(!one.is_overdue(at(100), TERM, false) && !one.is_overdue(at(189), TERM, false));
        assert!(
            !one.is_overdue(at(189), TERM, true) && !one.is_overdue(at(250), TERM, false),
            "it came back meanwhile"
        );
        assert!(one.is_overdue(at(340), TERM, false), "nobody is there for a whole term");
        one.sent(at(341));
        assert!(one.is_overdue(at(342), TERM, true), "its time began at first");
    }
}
