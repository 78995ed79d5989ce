//! Operations of the server on its clients: RFC 7530 16 (CB_GETATTR, CB_RECALL), RFC 8881 20, RFC 7862 16.

use super::super::xdr::{Garbage, Reader};
use super::bitmap::Bitmap;
use super::ops::{OpenDelegation, operations};
use super::types::{
    ENTRIES_MAX, Fattr, Foreign, FsId4, Handle4, LayoutIoMode, NfsStat, OpResult, Outcome, SessionId, StateId,
    StateOwner, Text, WriteResponse,
};
use super::wire::{Xdr, XdrList, XdrOut, xdr_struct, xdr_union};

/// Calls of one session that a call-back refers to.
pub const REFERRING_MAX: usize = 64;
/// Operations of one call-back. Ours have two.
pub const CALLBACKS_MAX: usize = 16;

xdr_union! {
    /// `layoutrecall4`.
    LayoutRecalled<'a> {
        File = 1: LayoutRecallFile<'a>,
        FileSystem = 2: FsId4,
        All = 3: (),
    }
}

xdr_struct! {
    CbGetAttrArgs<'a> { handle: Handle4<'a>, wanted: Bitmap, }
    CbRecallArgs<'a> { stateid: StateId, truncate: bool, handle: Handle4<'a>, }
    LayoutRecallFile<'a> { handle: Handle4<'a>, offset: u64, length: u64, stateid: StateId, }
    CbLayoutRecallArgs<'a> { layout_kind: u32, mode: LayoutIoMode, changed: bool, recalled: LayoutRecalled<'a>, }
    /// `notify4`: the values are a list that the mask describes.
    Notification<'a> { mask: Bitmap, values: Foreign<'a>, }
    CbNotifyArgs<'a> {
        stateid: StateId,
        handle: Handle4<'a>,
        changes: XdrList<'a, Notification<'a>, ENTRIES_MAX>,
    }
    CbPushDelegArgs<'a> { handle: Handle4<'a>, delegation: OpenDelegation<'a>, }
    /// CB_RECALL_ANY, CB_RECALLABLE_OBJ_AVAIL.
    CbRecallAnyArgs { keep: u32, kinds: Bitmap, }
    ReferringCall { sequence: u32, slot: u32, }
    /// Calls of the client whose replies the call-back may overtake (RFC 8881 2.10.6.3).
    ReferringCalls<'a> { session: SessionId, calls: XdrList<'a, ReferringCall, REFERRING_MAX>, }
    CbSequenceArgs<'a> {
        session: SessionId,
        sequence: u32,
        slot: u32,
        highest_slot: u32,
        cache_this: bool,
        referring: XdrList<'a, ReferringCalls<'a>, REFERRING_MAX>,
    }
    CbSequenceOk { session: SessionId, sequence: u32, slot: u32, highest_slot: u32, target_highest_slot: u32, }
    CbWantsCancelledArgs { contended: bool, resourced: bool, }
    CbNotifyLockArgs<'a> { handle: Handle4<'a>, owner: StateOwner<'a>, }
    /// `CB_COMPOUND4args`. The identifier is NFSv4.0's, from SETCLIENTID; it is 0 in later versions.
    CbCompound<'a> { tag: Text<'a>, minor: u32, ident: u32, ops: XdrList<'a, CbArgOp<'a>, CALLBACKS_MAX>, }
    /// `CB_COMPOUND4res`.
    CbCompoundResult<'a> { status: NfsStat, tag: Text<'a>, results: XdrList<'a, CbResOp<'a>, CALLBACKS_MAX>, }
    CbOffloadArgs<'a> { handle: Handle4<'a>, stateid: StateId, info: OffloadInfo, }
}

/// `offload_info4`: the end of an asynchronous copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadInfo {
    Done(WriteResponse),
    Failed { status: NfsStat, bytes_copied: u64 },
}

impl<'a> Xdr<'a> for OffloadInfo {
    fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
        Ok(match NfsStat::get(r)? {
            NfsStat::Ok => OffloadInfo::Done(Xdr::get(r)?),
            status => OffloadInfo::Failed { status, bytes_copied: r.u64()? },
        })
    }

    fn put(&self, out: &mut XdrOut) {
        match self {
            OffloadInfo::Done(response) => {
                NfsStat::Ok.put(out);
                response.put(out);
            }
            OffloadInfo::Failed { status, bytes_copied } => {
                status.put(out);
                out.writer().u64(*bytes_copied);
            }
        }
    }
}

operations! {
    CbNumber CbArgOp CbResOp (
        GetAttr = 3 since 0: CbGetAttrArgs<'a> => OpResult<Fattr<'a>>;
        Recall = 4 since 0: CbRecallArgs<'a> => OpResult<()>;
        LayoutRecall = 5 since 1: CbLayoutRecallArgs<'a> => OpResult<()>;
        Notify = 6 since 1: CbNotifyArgs<'a> => OpResult<()>;
        PushDeleg = 7 since 1: CbPushDelegArgs<'a> => OpResult<()>;
        RecallAny = 8 since 1: CbRecallAnyArgs => OpResult<()>;
        RecallableObjAvail = 9 since 1: CbRecallAnyArgs => OpResult<()>;
        RecallSlot = 10 since 1: u32 => OpResult<()>;
        Sequence = 11 since 1: CbSequenceArgs<'a> => OpResult<CbSequenceOk>;
        WantsCancelled = 12 since 1: CbWantsCancelledArgs => OpResult<()>;
        NotifyLock = 13 since 1: CbNotifyLockArgs<'a> => OpResult<()>;
        NotifyDeviceId = 14 since 1: XdrList<'a, Notification<'a>, ENTRIES_MAX> => OpResult<()>;
        Offload = 15 since 2: CbOffloadArgs<'a> => OpResult<()>;
    )
}
