//! How it is said that a store may lack changes which only a journal elsewhere has.

use larder_base::units::ByteSize;
use larder_store::JournalMark;

use crate::times;

/// `owner` is the machine of the record, where the mark names none.
pub fn may_be_missing(mark: &JournalMark, owner: &str) -> String {
    let machine = if mark.machine.is_empty() { owner } else { &mark.machine };
    let (since, pool) = (times::local(mark.drained_ms), &mark.pool);
    format!(
        "changes after {since} may be missing: {machine} answered from the journal of its pool '{pool}', and only that pool has what the \
         bucket does not ({})",
        waiting(mark)
    )
}

/// How much the bucket lacked when the owner last said so.
pub fn waiting(mark: &JournalMark) -> String {
    format!("{} log entries, {}, at its last renewal; more may have followed", mark.entries, ByteSize(mark.bytes))
}
