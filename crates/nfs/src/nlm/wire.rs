//! The codec of NLM version 4 and NSM version 1 (X/Open, Protocols for Interworking: XNFS, chapters 10, 11 and 14): bytes
//! in, values out, nothing waits.
//!
//! - `nlmwire.bounded`: names and opaque objects are as long as the protocol allows ([`OBJECT_BYTES_MAX`]), so what a
//!   call keeps in memory is bounded.

use larder_files::locks::Range;

use super::super::xdr::{Garbage, Reader, Writer};

pub const NLM_PROGRAM: u32 = 100_021;
/// Versions 1 to 3 are for handles of NFS version 2.
pub const NLM_V4: u32 = 4;
pub const NSM_PROGRAM: u32 = 100_024;
pub const NSM_V1: u32 = 1;

/// `LM_MAXSTRLEN` and `MAXNETOBJ_SZ`, which are the same.
pub const OBJECT_BYTES_MAX: usize = 1024;

/// NLM4_GRANTED, the call of a server to a client.
pub const GRANTED: u32 = 5;
/// NLM4_GRANTED_MSG, the last one of the calls that are answered by a call.
const GRANTED_MSG: u32 = 10;
/// From a call that is answered by a call to its answer.
const FROM_MSG_TO_RES: u32 = 5;
/// SM_NOTIFY.
pub const NOTIFY: u32 = 6;

/// `nlm4_stats` (XNFS 14.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LockStat {
    Granted = 0,
    Denied = 1,
    DeniedNoLocks = 2,
    Blocked = 3,
    DeniedGracePeriod = 4,
    Deadlock = 5,
    ReadOnly = 6,
    StaleHandle = 7,
    TooBig = 8,
    Failed = 9,
}

impl LockStat {
    const ALL: [Self; 10] = [
        Self::Granted,
        Self::Denied,
        Self::DeniedNoLocks,
        Self::Blocked,
        Self::DeniedGracePeriod,
        Self::Deadlock,
        Self::ReadOnly,
        Self::StaleHandle,
        Self::TooBig,
        Self::Failed,
    ];

    fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|stat| *stat as u32 == number)
    }
}

/// `nlm4_lock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockArg {
    pub caller_name: Box<[u8]>,
    pub handle: Box<[u8]>,
    /// The owner, opaque.
    pub owner: Box<[u8]>,
    /// The process of the owner.
    pub process: u32,
    pub offset: u64,
    /// 0: to the end of the file.
    pub length: u64,
}

impl LockArg {
    /// The bytes that are meant. [`LockStat::TooBig`]: no file has them.
    pub fn range(&self) -> Result<Range, LockStat> {
        let last = match self.length {
            0 => u64::MAX,
            length => self.offset.checked_add(length - 1).ok_or(LockStat::TooBig)?,
        };
        Ok(Range { start: self.offset, last })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAction {
    Test {
        exclusive: bool,
    },
    Lock {
        /// The client is called when the lock is free.
        waits: bool,
        exclusive: bool,
        reclaim: bool,
        /// The number of the client's life, from its status monitor.
        life: u32,
        /// The client is called after a restart; NM_LOCK asks for none.
        monitored: bool,
    },
    Cancel {
        exclusive: bool,
    },
    Unlock,
}

/// A call about a byte range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockCall {
    pub cookie: Box<[u8]>,
    pub action: LockAction,
    pub lock: LockArg,
    /// The procedure of the call with which the client is answered, where the reply says nothing.
    pub answer_by: Option<u32>,
}

/// SHARE and UNSHARE: a share mode as DOS has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareCall {
    pub cookie: Box<[u8]>,
    pub caller_name: Box<[u8]>,
    pub handle: Box<[u8]>,
    pub owner: Box<[u8]>,
    /// Denied to others: 1 reading, 2 writing.
    pub mode: u32,
    /// Wanted: 1 reading, 2 writing.
    pub access: u32,
    pub reclaim: bool,
    pub ends: bool,
}

/// A call of NLM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Lock(LockCall),
    Share(ShareCall),
    /// All locks of a client end: it has restarted.
    FreeAll {
        name: Box<[u8]>,
        life: u32,
    },
    /// An answer to a call that this server does not make, or a call to clients.
    Ignored,
}

fn object(r: &mut Reader<'_>) -> Result<Box<[u8]>, Garbage> {
    r.opaque(OBJECT_BYTES_MAX).map(Into::into)
}

fn lock_arg(r: &mut Reader<'_>) -> Result<LockArg, Garbage> {
    Ok(LockArg {
        caller_name: object(r)?,
        handle: object(r)?,
        owner: object(r)?,
        process: r.u32()?,
        offset: r.u64()?,
        length: r.u64()?,
    })
}

impl Request {
    /// The call of a procedure but NULL; `None` for one that there is not.
    pub fn decode(procedure: u32, mut args: Reader<'_>) -> Result<Option<Self>, Garbage> {
        let r = &mut args;
        Ok(Some(match procedure {
            1..=4 => Self::lock(procedure, None, r)?,
            // NLM4_GRANTED and its asynchronous form are for clients.
            5 | GRANTED_MSG => Self::Ignored,
            6..=9 => Self::lock(procedure - FROM_MSG_TO_RES, Some(procedure + FROM_MSG_TO_RES), r)?,
            11..=15 => Self::Ignored,
            20 | 21 => Self::share(procedure == 21, r)?,
            22 => Self::lock(procedure, None, r)?,
            23 => Self::FreeAll { name: object(r)?, life: r.u32()? },
            _ => return Ok(None),
        }))
    }

    fn lock(procedure: u32, answer_by: Option<u32>, r: &mut Reader<'_>) -> Result<Self, Garbage> {
        let cookie = object(r)?;
        let (action, lock) = match procedure {
            1 => (LockAction::Test { exclusive: r.bool()? }, lock_arg(r)?),
            3 => {
                let _waits = r.bool()?;
                (LockAction::Cancel { exclusive: r.bool()? }, lock_arg(r)?)
            }
            4 => (LockAction::Unlock, lock_arg(r)?),
            _ => {
                let (waits, exclusive) = (r.bool()?, r.bool()?);
                let lock = lock_arg(r)?;
                let (reclaim, life) = (r.bool()?, r.u32()?);
                let monitored = procedure == 2;
                // XNFS 10.4: NM_LOCK does not wait, and is not taken back after a restart.
                let (waits, reclaim) = (waits && monitored, reclaim && monitored);
                (LockAction::Lock { waits, exclusive, reclaim, life, monitored }, lock)
            }
        };
        Ok(Self::Lock(LockCall { cookie, action, lock, answer_by }))
    }

    fn share(ends: bool, r: &mut Reader<'_>) -> Result<Self, Garbage> {
        const BOTH: u32 = 3;
        let (cookie, caller_name, handle, owner) = (object(r)?, object(r)?, object(r)?, object(r)?);
        let (mode, access, reclaim) = (r.u32()?, r.u32()?, r.bool()?);
        if mode > BOTH || access > BOTH {
            return Err(Garbage);
        }
        Ok(Self::Share(ShareCall { cookie, caller_name, handle, owner, mode, access, reclaim, ends }))
    }

    /// The file that the call is about.
    pub fn handle(&self) -> Option<&[u8]> {
        match self {
            Self::Lock(call) => Some(&call.lock.handle),
            Self::Share(call) => Some(&call.handle),
            Self::FreeAll { .. } | Self::Ignored => None,
        }
    }
}

/// `nlm4_holder`: the lock that is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    pub exclusive: bool,
    pub process: u32,
    pub owner: Box<[u8]>,
    pub range: Range,
}

/// The results of a call about a byte range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockAnswer {
    Stat(LockStat),
    /// Of TEST: in the way.
    Held(LockHolder),
}

impl LockAnswer {
    pub fn encode(&self, w: &mut Writer, cookie: &[u8]) {
        w.opaque(cookie);
        match self {
            Self::Stat(stat) => w.u32(*stat as u32),
            Self::Held(holder) => {
                w.u32(LockStat::Denied as u32);
                w.bool(holder.exclusive);
                w.u32(holder.process);
                w.opaque(&holder.owner);
                w.u64(holder.range.start);
                w.u64(length_of(holder.range));
            }
        }
    }
}

fn length_of(range: Range) -> u64 {
    match range.last {
        u64::MAX => 0,
        last => last - range.start + 1,
    }
}

/// The results of SHARE and UNSHARE. The sequence means nothing (XNFS 10.4).
pub fn encode_share(w: &mut Writer, cookie: &[u8], stat: LockStat) {
    w.opaque(cookie);
    w.u32(stat as u32);
    w.u32(0);
}

/// The arguments of NLM4_GRANTED.
pub fn encode_granted(cookie: &[u8], exclusive: bool, lock: &LockArg) -> Vec<u8> {
    let mut w = Writer::default();
    w.opaque(cookie);
    w.bool(exclusive);
    [&lock.caller_name, &lock.handle, &lock.owner].into_iter().for_each(|bytes| w.opaque(bytes));
    w.u32(lock.process);
    w.u64(lock.offset);
    w.u64(lock.length);
    w.into_inner()
}

/// The client's answer to NLM4_GRANTED.
pub fn decode_granted(results: &[u8]) -> Option<LockStat> {
    let mut r = Reader::new(results);
    let _cookie = r.opaque(OBJECT_BYTES_MAX).ok()?;
    LockStat::from_number(r.u32().ok()?)
}

/// A call of NSM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MonitorRequest {
    /// SM_STAT, SM_MON: whether somebody can be watched.
    Watch,
    /// SM_UNMON, SM_UNMON_ALL.
    Unwatch,
    /// SM_SIMU_CRASH.
    Simulate,
    Notify {
        name: Box<[u8]>,
        life: u32,
    },
}

impl MonitorRequest {
    /// The call of a procedure but NULL; `None` for one that there is not.
    pub fn decode(procedure: u32, mut args: Reader<'_>) -> Result<Option<Self>, Garbage> {
        let r = &mut args;
        Ok(Some(match procedure {
            1 | 2 => object(r).map(|_| Self::Watch)?,
            3 | 4 => object(r).map(|_| Self::Unwatch)?,
            5 => Self::Simulate,
            NOTIFY => Self::Notify { name: object(r)?, life: r.u32()? },
            _ => return Ok(None),
        }))
    }
}

/// The arguments of SM_NOTIFY.
pub fn encode_notify(name: &[u8], life: u32) -> Vec<u8> {
    let mut w = Writer::default();
    w.opaque(name);
    w.u32(life);
    w.into_inner()
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    pub fn lock_args(action: LockAction) -> Vec<u8> {
        let lock = LockArg {
            caller_name: b"client".as_slice().into(),
            handle: vec![7; 52].into(),
            owner: b"12@client".as_slice().into(),
            process: 12,
            offset: 100,
            length: 10,
        };
        let mut w = Writer::default();
        w.opaque(b"cook");
        if let LockAction::Lock { waits, .. } = action {
            w.bool(waits);
        }
        match action {
            LockAction::Test { exclusive } | LockAction::Lock { exclusive, .. } => w.bool(exclusive),
            LockAction::Cancel { exclusive } => {
                w.bool(true);
                w.bool(exclusive);
            }
            LockAction::Unlock => {}
        }
        let granted = encode_granted(b"", false, &lock);
        w.fixed(&granted[8..]);
        if let LockAction::Lock { reclaim, life, .. } = action {
            w.bool(reclaim);
            w.u32(life);
        }
        w.into_inner()
    }

    #[test]
    fn golden_bytes() {
        let lock = LockAction::Lock { waits: true, exclusive: true, reclaim: false, life: 9, monitored: true };
        let bytes = lock_args(lock);
        let mut golden = b"\0\0\0\x04cook\0\0\0\x01\0\0\0\x01\0\0\0\x06client\0\0\0\0\0\x34".to_vec();
        golden.extend([7; 52]);
        golden.extend(b"\0\0\0\x0912@client\0\0\0\0\0\0\x0c\0\0\0\0\0\0\0\x64\0\0\0\0\0\0\0\x0a\0\0\0\0\0\0\0\x09");
        assert_eq!(bytes, golden);
        let Ok(Some(Request::Lock(call))) = Request::decode(2, Reader::new(&bytes)) else { panic!() };
        assert_eq!((call.action, &call.cookie[..], call.answer_by), (lock, &b"cook"[..], None));
        assert_eq!(call.lock.range(), Ok(Range { start: 100, last: 109 }));
        let mut w = Writer::default();
        LockAnswer::Stat(LockStat::DeniedGracePeriod).encode(&mut w, b"cook");
        assert_eq!(w.into_inner(), b"\0\0\0\x04cook\0\0\0\x04");
        let mut w = Writer::default();
        let range = Range { start: 5, last: u64::MAX };
        let holder = LockHolder { exclusive: true, process: 3, owner: b"o".as_slice().into(), range };
        LockAnswer::Held(holder).encode(&mut w, b"");
        let golden = b"\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x03\0\0\0\x01o\0\0\0\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0";
        assert_eq!(w.into_inner(), golden);
    }

    #[test]
    fn each_procedure_is_what_it_is() {
        let decode = |procedure, action| Request::decode(procedure, Reader::new(&lock_args(action))).unwrap();
        let lock = LockAction::Lock { waits: true, exclusive: false, reclaim: true, life: 1, monitored: true };
        let unmonitored =
            LockAction::Lock { waits: false, exclusive: false, reclaim: false, life: 1, monitored: false };
        let (test, cancel) = (LockAction::Test { exclusive: true }, LockAction::Cancel { exclusive: true });
        let cases = [
            (1, test, test, None),
            (2, lock, lock, None),
            (3, cancel, cancel, None),
            (4, LockAction::Unlock, LockAction::Unlock, None),
            (6, test, test, Some(11)),
            (7, lock, lock, Some(12)),
            (8, cancel, cancel, Some(13)),
            (9, LockAction::Unlock, LockAction::Unlock, Some(14)),
            (22, lock, unmonitored, None),
        ];
        for (procedure, sent, wanted, answer_by) in cases {
            let Some(Request::Lock(call)) = decode(procedure, sent) else { panic!("{procedure}") };
            assert_eq!((call.action, call.answer_by), (wanted, answer_by), "{procedure}");
        }
        for procedure in [5, 10, 11, 12, 13, 14, 15] {
            assert_eq!(decode(procedure, LockAction::Unlock), Some(Request::Ignored), "{procedure}");
        }
        for procedure in [16, 17, 18, 19, 24, u32::MAX] {
            assert_eq!(decode(procedure, LockAction::Unlock), None, "{procedure}");
        }
    }

    #[test]
    fn ranges_end_where_files_do() {
        let range = |offset, length| {
            let Ok(Some(Request::Lock(mut call))) = Request::decode(4, Reader::new(&lock_args(LockAction::Unlock)))
            else {
                panic!()
            };
            (call.lock.offset, call.lock.length) = (offset, length);
            call.lock.range().map(|range| (range.start, range.last))
        };
        assert_eq!(range(5, 0), Ok((5, u64::MAX)));
        assert_eq!(range(0, 1), Ok((0, 0)));
        assert_eq!(range(u64::MAX, 1), Ok((u64::MAX, u64::MAX)));
        assert_eq!(range(u64::MAX, 2), Err(LockStat::TooBig));
        assert_eq!(range(2, u64::MAX), Err(LockStat::TooBig));
    }

    #[test]
    fn calls_of_the_status_monitor() {
        let args = encode_notify(b"client.home", 7);
        let decode = |procedure| MonitorRequest::decode(procedure, Reader::new(&args));
        let notify = MonitorRequest::Notify { name: b"client.home".as_slice().into(), life: 7 };
        assert_eq!(decode(6), Ok(Some(notify)));
        assert_eq!([1, 2, 3, 4].map(|n| decode(n).unwrap().unwrap()).len(), 4);
        assert_eq!(decode(7), Ok(None));
        assert_eq!(MonitorRequest::decode(6, Reader::new(&args[..8])), Err(Garbage));
    }

    proptest! {
        #[test]
        fn no_input_panics(procedure in 0u32..26, bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            super::super::fuzz::lock_call(&[&procedure.to_be_bytes()[..], &bytes].concat());
        }

        #[test]
        fn what_is_cut_is_garbage(cut in 0usize..120) {
            let args = lock_args(LockAction::Unlock);
            let cut = cut.min(args.len() - 1);
            prop_assert_eq!(Request::decode(4, Reader::new(&args[..cut])), Err(Garbage));
        }
    }
}
