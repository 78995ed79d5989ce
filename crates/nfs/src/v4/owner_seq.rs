//! Sequence numbers of owners in NFSv4.0 (RFC 7530 9.1.7): an owner's requests come one after the other, and the last is
//! answered again when it comes again. NFSv4.1 has slots instead and ignores these numbers.

use super::types::NfsStat;

/// An answer that is kept: the operation's result. LOCK's denial with its owner is the longest.
pub const OWNER_REPLY_BYTES_MAX: usize = 2048;

/// Numbers of one owner.
#[derive(Debug, Default)]
pub struct OwnerSeq {
    /// The last number, and the answer to it where it was kept.
    last: Option<(u32, Box<[u8]>)>,
}

/// What an owner's number says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerOrder {
    New,
    /// The last request again: its result.
    Replayed(Box<[u8]>),
}

impl OwnerSeq {
    /// A new owner begins with any number.
    pub fn check(&self, seqid: u32) -> Result<OwnerOrder, NfsStat> {
        match &self.last {
            None => Ok(OwnerOrder::New),
            Some((last, _)) if seqid == last.wrapping_add(1) => Ok(OwnerOrder::New),
            Some((last, reply)) if seqid == *last && !reply.is_empty() => Ok(OwnerOrder::Replayed(reply.clone())),
            Some(_) => Err(NfsStat::BadSeqId),
        }
    }

    /// The request with this number is answered so. Failures that say nothing about the owner leave the number
    /// (RFC 7530 9.1.7).
    pub fn finish(&mut self, seqid: u32, status: NfsStat, result: &[u8]) {
        if advances(status) {
            let kept = if result.len() <= OWNER_REPLY_BYTES_MAX { result } else { &[] };
            self.last = Some((seqid, kept.into()));
        }
    }

    /// An owner that has not confirmed its first OPEN begins again.
    pub fn restart(&mut self) {
        self.last = None;
    }
}

fn advances(status: NfsStat) -> bool {
    !matches!(
        status,
        NfsStat::StaleClientId
            | NfsStat::StaleStateId
            | NfsStat::BadStateId
            | NfsStat::BadSeqId
            | NfsStat::BadXdr
            | NfsStat::Resource
            | NfsStat::NoFileHandle
            | NfsStat::Moved
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_last_request_is_answered_again() {
        let mut seq = OwnerSeq::default();
        assert_eq!(seq.check(77), Ok(OwnerOrder::New), "any number begins");
        seq.finish(77, NfsStat::Ok, b"opened");
        assert_eq!(seq.check(77), Ok(OwnerOrder::Replayed(b"opened"[..].into())));
        assert_eq!(seq.check(78), Ok(OwnerOrder::New));
        for wrong in [76, 79, 0] {
            assert_eq!(seq.check(wrong), Err(NfsStat::BadSeqId));
        }
        seq.finish(78, NfsStat::BadStateId, b"no");
        assert_eq!(seq.check(78), Ok(OwnerOrder::New), "the number is still free");
        seq.finish(78, NfsStat::ShareDenied, b"denied");
        assert_eq!(seq.check(78), Ok(OwnerOrder::Replayed(b"denied"[..].into())), "a refusal is an answer");
        seq.finish(79, NfsStat::Ok, &[0; OWNER_REPLY_BYTES_MAX + 1]);
        assert_eq!(seq.check(79), Err(NfsStat::BadSeqId), "too long to keep");
        seq.finish(u32::MAX, NfsStat::Ok, b"max");
        assert_eq!(seq.check(0), Ok(OwnerOrder::New));
        seq.restart();
        assert_eq!(seq.check(5), Ok(OwnerOrder::New));
    }
}
