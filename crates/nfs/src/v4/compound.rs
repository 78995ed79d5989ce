//! COMPOUND (RFC 7530 15.2, RFC 8881 16.2): a request is read operation by operation, as each is carried out.
//!
//! - `compound.read_as_carried_out`: operations before one that does not decode are carried out. The one that does not is
//!   answered with NFS4ERR_BADXDR or NFS4ERR_OP_ILLEGAL and is the last.
//! - `compound.payload_anywhere`: the payload of a WRITE is recognised at any position while the request arrives. It is
//!   received apart, and what follows it is read as if it had come in one piece.

use bytes::Bytes;

use super::super::xdr::{Garbage, Reader, padding};
use super::ops::{ArgOp, OpNumber, ResOp, WriteArgs};
use super::types::{NfsStat, StableHow, StateId, Text};
#[cfg(any(test, fuzzing))]
use super::wire::XdrList;
use super::wire::{FileData, Opaque, Xdr, XdrMark, XdrOut, xdr_struct};

/// Operations of one request. Linux sends 16 at most; a session's own limit is lower.
pub const OPERATIONS_MAX: u32 = 256;

/// A request as it was received: in one piece, or with one payload apart.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// From the beginning of the arguments to the payload, or all of them.
    pub before: &'a [u8],
    /// The payload and what comes behind it, from its padding on.
    pub apart: Option<(&'a [Bytes], &'a [u8])>,
}

/// `COMPOUND4args`.
#[derive(Clone, Copy, Debug)]
pub struct Compound<'a> {
    pub tag: Text<'a>,
    pub minor: u32,
    /// Operations that the request announces.
    pub count: u32,
    left: u32,
    r: Reader<'a>,
    apart: Option<(&'a [Bytes], &'a [u8])>,
}

/// An operation that is answered with a failure, and ends its request (`compound.read_as_carried_out`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecodable {
    pub number: OpNumber,
    pub status: NfsStat,
}

impl<'a> Compound<'a> {
    /// Fails where RPC answers GARBAGE_ARGS. The number of operations is for the caller to judge: its status depends on
    /// the minor version.
    pub fn parse(arrived: Arrived<'a>) -> Result<Self, Garbage> {
        let mut r = Reader::new(arrived.before);
        let (tag, minor, count) = (Text::get(&mut r)?, r.u32()?, r.u32()?);
        Ok(Self { tag, minor, count, left: count, r, apart: arrived.apart })
    }

    /// The next operation, until one fails to decode.
    pub fn next_op(&mut self) -> Option<Result<ArgOp<'a>, Undecodable>> {
        self.left = self.left.checked_sub(1)?;
        let op = self.decode();
        if op.is_err() {
            self.left = 0;
        }
        Some(op)
    }

    /// Whether operations follow.
    pub fn has_more(&self) -> bool {
        self.left > 0
    }

    fn decode(&mut self) -> Result<ArgOp<'a>, Undecodable> {
        let bad = |number, status| Undecodable { number, status };
        let number = self.r.u32().map_err(|_| bad(OpNumber::Illegal, NfsStat::OpIllegal))?;
        let number = OpNumber::from_number(number, self.minor).ok_or(bad(OpNumber::Illegal, NfsStat::OpIllegal))?;
        let decoded = match (number, self.apart) {
            (OpNumber::Write, Some((payload, after))) => self.write(payload, after),
            _ => ArgOp::get_arguments(number, &mut self.r),
        };
        decoded.map_err(|_| bad(number, NfsStat::BadXdr))
    }

    /// A WRITE of a request that has a payload apart: this one's, or that of a later WRITE.
    fn write(&mut self, payload: &'a [Bytes], after: &'a [u8]) -> Result<ArgOp<'a>, Garbage> {
        let mut ahead = self.r;
        let front = WriteFront::get(&mut ahead)?;
        if ahead.remaining() > 0 {
            return ArgOp::get_arguments(OpNumber::Write, &mut self.r);
        }
        let data = FileData::Chunks(payload);
        if data.len() != usize::try_from(front.bytes).map_err(|_| Garbage)? {
            return Err(Garbage);
        }
        (self.r, self.apart) = (Reader::new(after), None);
        self.r.skip(padding(data.len()))?;
        let WriteFront { stateid, offset, stable, .. } = front;
        Ok(ArgOp::Write(WriteArgs { stateid, offset, stable, data }))
    }
}

xdr_struct! {
    /// The arguments of WRITE as far as the payload's length.
    WriteFront { stateid: StateId, offset: u64, stable: StableHow, bytes: u32, }
}

/// The payload of a WRITE in a request that is still arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadPlace {
    /// Bytes of the arguments before it.
    pub before: usize,
    pub bytes: usize,
    /// The place in the file.
    pub file_offset: u64,
    /// Bytes of the arguments behind it, its padding included.
    pub after: usize,
}

/// The first payload that begins in `start` and does not end there, of arguments that are `len` bytes long
/// (`compound.payload_anywhere`).
pub fn payload_place(start: &[u8], len: usize) -> Option<PayloadPlace> {
    let mut compound = Compound::parse(Arrived { before: start, apart: None }).ok()?;
    for _ in 0..compound.count.min(OPERATIONS_MAX) {
        let mut ahead = compound.r;
        if ahead.u32().ok()? == OpNumber::Write.number() {
            let front = WriteFront::get(&mut ahead).ok()?;
            let bytes = usize::try_from(front.bytes).ok()?;
            if bytes.checked_add(padding(bytes))? > ahead.remaining() {
                let before = start.len().checked_sub(ahead.remaining())?;
                let after = len.checked_sub(before)?.checked_sub(bytes)?;
                let fits = after >= padding(bytes);
                return fits.then_some(PayloadPlace { before, bytes, file_offset: front.offset, after });
            }
        }
        compound.next_op()?.ok()?;
    }
    None
}

/// `COMPOUND4res` in the making.
#[derive(Debug)]
pub struct CompoundReply {
    out: XdrOut,
    status: NfsStat,
    status_at: XdrMark,
    count: u32,
    count_at: XdrMark,
}

impl CompoundReply {
    /// Behind what `out` holds: the header of the reply.
    pub fn begin(mut out: XdrOut, tag: Text<'_>) -> Self {
        let status_at = out.mark();
        NfsStat::Ok.put(&mut out);
        tag.put(&mut out);
        let count_at = out.mark();
        0u32.put(&mut out);
        Self { out, status: NfsStat::Ok, status_at, count: 0, count_at }
    }

    /// The request's status is that of its last operation.
    pub fn push(&mut self, result: &ResOp<'_>) {
        debug_assert!(self.status == NfsStat::Ok, "nothing follows a failure");
        result.put(&mut self.out);
        self.status = result.status();
        self.count += 1;
    }

    /// As [`CompoundReply::push`] unless the reply would exceed `bytes_max`: then the operation fails with `too_big`
    /// (RFC 8881 2.10.6.4), of which the reply always has room for one.
    pub fn push_within(&mut self, result: &ResOp<'_>, bytes_max: usize, too_big: NfsStat) {
        let before = self.out.mark();
        result.put(&mut self.out);
        if self.out.len() > bytes_max {
            self.out.rewind(before);
            self.push(&ResOp::failed(result.number(), too_big));
            return;
        }
        self.status = result.status();
        self.count += 1;
    }

    /// As [`CompoundReply::push_within`], of a success whose value was encoded before.
    pub fn push_encoded(&mut self, number: OpNumber, value: &[u8], bytes_max: usize, too_big: NfsStat) {
        if self.out.len() + 8 + value.len() > bytes_max {
            return self.push(&ResOp::failed(number, too_big));
        }
        self.out.writer().u32(number.number());
        NfsStat::Ok.put(&mut self.out);
        self.out.writer().fixed(value);
        self.count += 1;
    }

    /// A whole result that was encoded before.
    pub fn push_result(&mut self, result: &[u8]) {
        let mut r = Reader::new(result);
        let status = r.u32().and_then(|_| NfsStat::get(&mut r)).unwrap_or(NfsStat::ServerFault);
        self.out.writer().fixed(result);
        self.status = status;
        self.count += 1;
    }

    pub fn status(&self) -> NfsStat {
        self.status
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// A request that is refused as a whole, as one of a minor version that there is not.
    pub fn refuse(&mut self, status: NfsStat) {
        self.status = status;
    }

    pub fn finish(mut self) -> XdrOut {
        self.out.set_u32(self.status_at, self.status as u32);
        self.out.set_u32(self.count_at, self.count);
        self.out
    }
}

#[cfg(any(test, fuzzing))]
xdr_struct! {
    /// `COMPOUND4args` as a client has it.
    CompoundArgs<'a> { tag: Text<'a>, minor: u32, ops: XdrList<'a, ArgOp<'a>, { OPERATIONS_MAX as usize }>, }

    /// `COMPOUND4res` as a client has it.
    CompoundResult<'a> { status: NfsStat, tag: Text<'a>, results: XdrList<'a, ResOp<'a>, { OPERATIONS_MAX as usize }>, }
}

/// The tag of a request without one.
pub const NO_TAG: Text<'static> = Opaque(b"");
