//! One delegation (RFC 7530 10.4, RFC 8881 10.4), from its grant to its end.
//!
//! ```text
//!          recall           sent                 returned
//!   Held ---------> Queued -----------> Sent ---------------> gone
//!                     ^                  |   the deadline, from Queued or Sent
//!                     +------------------+ ---------------> Revoked --FREE_STATEID--> gone
//!                       no answer, or another than NFS4_OK
//! ```
//!
//! - `delegation.deadline_never_set_back`: a client has its time from the first try to send a recall. Neither the end of its
//!   connection, nor one that is bound anew, nor any answer changes that: the time is other clients' wait.
//! - `delegation.sent_again_after_pause`: a recall that was not answered with NFS4_OK is sent again after [`AGAIN_AFTER`].

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

/// `delegation.sent_again_after_pause`
const AGAIN_AFTER: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Recall {
    /// The first try to send it (`delegation.deadline_never_set_back`).
    since: Option<Moment>,
    is_under_way: bool,
    /// It is not sent again before this moment.
    not_before: Moment,
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
            self.phase = Phase::Recalled(Recall::default());
        }
    }

    /// Whether a recall has to be sent at `now`.
    pub fn is_to_be_sent(&self, now: Moment) -> bool {
        matches!(self.phase, Phase::Recalled(recall) if !recall.is_under_way && now >= recall.not_before)
    }

    /// The recall has left.
    pub fn sent(&mut self) {
        if let Phase::Recalled(recall) = &mut self.phase {
            recall.is_under_way = true;
        }
    }

    /// Its connection ended before the client answered, or the answer was no consent.
    pub fn lost(&mut self, now: Moment) {
        if let Phase::Recalled(recall) = &mut self.phase {
            (recall.is_under_way, recall.not_before) = (false, now.after(AGAIN_AFTER));
        }
    }

    /// Whether the client's time is over at `now`. Asked before each try to send; the first begins the time.
    pub fn is_overdue(&mut self, now: Moment, term: Duration) -> bool {
        let Phase::Recalled(recall) = &mut self.phase else { return false };
        now.since(*recall.since.get_or_insert(now)) >= term
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
    fn a_deadline_begins_with_the_first_try() {
        let mut one = Delegation::new(Delegated::Write);
        assert!(!one.is_overdue(at(1000), TERM), "nobody has asked");
        one.recall();
        assert!(one.is_to_be_sent(at(5000)) && !one.is_held());
        assert!(!one.is_overdue(at(5000), TERM));
        one.sent();
        assert!(!one.is_to_be_sent(at(5000)) && !one.is_overdue(at(5089), TERM));
        assert!(one.is_overdue(at(5090), TERM));
        one.revoke();
        assert!(one.is_revoked() && !one.is_overdue(at(9000), TERM));
        one.recall();
        assert!(one.is_revoked(), "nothing comes back");
    }

    /// Whatever the client does with its connections and answers.
    #[test]
    fn nothing_sets_a_deadline_back() {
        let never_sent = |_: &mut Delegation, _: u64| {};
        let answers_later = |one: &mut Delegation, secs| {
            if one.is_to_be_sent(at(secs)) {
                one.sent();
                one.lost(at(secs));
            }
        };
        let comes_back_at_last = |one: &mut Delegation, secs| {
            if secs == 85 {
                one.sent();
            }
        };
        let each: [fn(&mut Delegation, u64); 3] = [never_sent, answers_later, comes_back_at_last];
        for does in each {
            let mut one = Delegation::new(Delegated::Read);
            one.recall();
            for secs in 0..90 {
                assert!(!one.is_overdue(at(secs), TERM), "{secs}");
                does(&mut one, secs);
            }
            assert!(one.is_overdue(at(90), TERM));
        }
    }

    #[test]
    fn a_recall_is_sent_again_after_a_pause() {
        let mut one = Delegation::new(Delegated::Read);
        one.recall();
        one.sent();
        one.lost(at(10));
        assert!(!one.is_to_be_sent(at(10)) && one.is_to_be_sent(at(10).after(AGAIN_AFTER)));
    }
}
