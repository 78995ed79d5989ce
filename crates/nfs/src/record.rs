//! Record marking (RFC 5531 section 11), the receiving side: a byte stream in, messages out.
//!
//! Small messages are cut from one shared buffer. The payload of a large WRITE is recognised while it
//! arrives and received straight into slots that end where the file's records end. The volume keeps
//! them as dirty data and then as cached records: no copy, no growth, nothing filled with zeros
//! first.
//!
//! - `record.memory_follows_receipt`: memory grows with the bytes received, not with the bytes
//!   announced. The payload of a WRITE takes one slot at a time, of at most a record.
//! - `record.bounded_message`: no message exceeds the limit, in any number of fragments. The
//!   exception is a WRITE in one fragment: its payload beyond wtmax is dropped as it arrives, and
//!   its reply counts the bytes kept (RFC 1813 3.3.7).
//! - `record.no_pinning`: a message that the volume keeps never pins the shared buffer for less
//!   than a quarter of it ([`payload`] copies small ones).
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation, clippy::panic)]

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use larder_base::arena::Received;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use super::rpc::{LAST_FRAGMENT, parse_call};
use super::v4::payload_place;
use super::xdr::padding;

/// Size of the shared buffer.
pub const BUFFER_BYTES: usize = 64 << 10;
/// Messages above this which are not complete yet are looked at for a payload.
const LARGE_BYTES: usize = 16 << 10;
/// The header of any WRITE fits: RPC header (24), credential and verifier (408 + 408), handle (68),
/// offset, count, stable_how and length (20).
const HEAD_BYTES_MAX: usize = 1024;
/// How much is read at a time between large payloads: headers, but little of the next payload.
const BETWEEN_BYTES: usize = 4 << 10;
/// The longest WRITE of which the beginning is kept. Nobody sends more than wtmax on purpose; some round it.
const WRITE_BYTES_MAX: usize = 16 << 20;
/// Fragments without data in one message: legal, but a stream of them is not a client's.
const EMPTY_FRAGMENTS_MAX: u32 = 16;

const _: () =
    assert!(HEAD_BYTES_MAX < LARGE_BYTES && LARGE_BYTES + 4 <= BUFFER_BYTES && BETWEEN_BYTES > HEAD_BYTES_MAX);

/// One call as it came. `tail`, where there is one, is the payload of a WRITE. Nothing but padding follows it in
/// version 3; in version 4 it stands among other operations, and `after` is the rest of the message.
#[derive(Debug)]
pub struct Message {
    pub head: Bytes,
    pub tail: Option<Vec<Bytes>>,
    pub after: Vec<u8>,
}

impl Message {
    pub fn whole(head: Bytes) -> Self {
        Self { head, tail: None, after: Vec::new() }
    }
}

/// A payload that the volume may keep: a slice of the message where it is most of the buffer that
/// it would pin, a copy where it is not (`record.no_pinning`).
pub fn payload(message: &Bytes, data: &[u8]) -> Bytes {
    if data.len() < BUFFER_BYTES / 4 { Bytes::copy_from_slice(data) } else { message.slice_ref(data) }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RecordError {
    #[error("a message of more than {0} bytes")]
    TooLong(usize),
    #[error("fragments without data")]
    EmptyFragments,
}

/// A message in the making.
enum Partial {
    None,
    /// The payload of a WRITE, as much of it as is kept, then what else the message holds: padding, and behind it other
    /// operations of version 4.
    Payload {
        head: Bytes,
        data: Received,
        dropped_left: usize,
        after: Vec<u8>,
        after_left: usize,
    },
    /// Anything else that is large or comes in several fragments.
    Assembled {
        data: Vec<u8>,
        fragment_left: usize,
        last: bool,
        empty: u32,
    },
}

pub struct Receiver {
    buf: BytesMut,
    partial: Partial,
    /// The last message had a payload of its own; so will the next.
    after_payload: bool,
    /// An export has admitted the client.
    is_trusted: bool,
    /// A longer payload of a WRITE is cut to this many bytes.
    payload_bytes_max: usize,
    message_bytes_max: usize,
}

impl Receiver {
    /// `payload_bytes_max` is wtmax, and an RPC header fits beside it into a message.
    pub fn new(payload_bytes_max: usize, message_bytes_max: usize) -> Self {
        Self {
            buf: BytesMut::new(),
            partial: Partial::None,
            after_payload: false,
            is_trusted: false,
            payload_bytes_max,
            message_bytes_max,
        }
    }

    /// Payloads count whole as soon as they begin from now on.
    pub fn trust(&mut self) {
        self.is_trusted = true;
    }

    /// What a message that has not arrived completely holds, or will.
    pub fn held_bytes(&self) -> usize {
        match &self.partial {
            Partial::None if self.buf.is_empty() => 0,
            Partial::None => BUFFER_BYTES,
            // Counted once, not slot by slot.
            Partial::Payload { data, after, .. } if self.is_trusted => {
                BUFFER_BYTES + data.held_bytes() + data.to_come() + after.capacity()
            }
            Partial::Payload { data, after, .. } => BUFFER_BYTES + data.held_bytes() + after.capacity(),
            // Where it has grown, its smaller predecessor is not given back at once.
            Partial::Assembled { data, .. } => BUFFER_BYTES + data.capacity() / 2 * 3,
        }
    }

    /// Between messages: nothing is half received.
    pub fn is_idle(&self) -> bool {
        self.buf.is_empty() && matches!(self.partial, Partial::None)
    }

    pub fn has_buffer(&self) -> bool {
        self.buf.capacity() != 0
    }

    pub fn give_buffer(&mut self, buf: BytesMut) {
        self.buf = buf;
    }

    /// The shared buffer, when nothing is in it or refers to it.
    pub fn take_buffer(&mut self) -> Option<BytesMut> {
        (self.is_idle() && self.buf.try_reclaim(BUFFER_BYTES)).then(|| std::mem::take(&mut self.buf))
    }

    /// Reads once from the socket to where the bytes belong.
    pub fn poll_fill<R: AsyncRead + Unpin>(&mut self, socket: &mut R, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Partial::Payload { data, .. } = &mut self.partial
            && data.missing() > 0
        {
            let mut space = ReadBuf::new(data.space());
            std::task::ready!(Pin::new(socket).poll_read(cx, &mut space))?;
            let count = space.filled().len();
            data.advance(count);
            return Poll::Ready(Ok(count));
        }
        if self.buf.capacity() - self.buf.len() < BETWEEN_BYTES {
            self.buf.reserve(BUFFER_BYTES);
        }
        let room = self.buf.capacity() - self.buf.len();
        let mut space = (&mut self.buf).limit(if self.after_payload { BETWEEN_BYTES } else { room });
        pin!(socket.read_buf(&mut space)).poll(cx)
    }

    /// The next complete message, or `None` until more was received.
    pub fn next(&mut self) -> Result<Option<Message>, RecordError> {
        loop {
            match &mut self.partial {
                Partial::None => {
                    if let Some(message) = self.start()? {
                        self.after_payload = false;
                        return Ok(Some(message));
                    }
                    if matches!(self.partial, Partial::None) {
                        return Ok(None);
                    }
                }
                Partial::Payload { data, dropped_left, after, after_left, .. } => {
                    let here = data.fill_from(&self.buf);
                    self.buf.advance(here);
                    let dropped = self.buf.len().min(*dropped_left);
                    self.buf.advance(dropped);
                    *dropped_left -= dropped;
                    if data.missing() > 0 || *dropped_left > 0 {
                        return Ok(None);
                    }
                    let behind = self.buf.split_to(self.buf.len().min(*after_left));
                    after.extend_from_slice(&behind);
                    *after_left -= behind.len();
                    if *after_left > 0 {
                        return Ok(None);
                    }
                    if let Partial::Payload { head, data, after, .. } =
                        std::mem::replace(&mut self.partial, Partial::None)
                    {
                        self.after_payload = true;
                        return Ok(Some(Message { head, tail: Some(data.into_chunks()), after }));
                    }
                }
                Partial::Assembled { .. } => return self.assemble(),
            }
        }
    }

    /// Looks at the front of the buffer: a complete message is cut out, a large one is begun.
    fn start(&mut self) -> Result<Option<Message>, RecordError> {
        let Some((mark, rest)) = self.buf.split_first_chunk::<4>() else { return Ok(None) };
        let mark = u32::from_be_bytes(*mark);
        let (len, last) = match self.parse_mark(mark, 0) {
            Err(too_long) => return self.start_oversized(mark, too_long),
            Ok(mark) => mark,
        };
        if last && rest.len() >= len {
            self.buf.advance(4);
            return Ok(Some(Message::whole(self.buf.split_to(len).freeze())));
        }
        if last && len <= LARGE_BYTES {
            let missing = len + 4 - self.buf.len();
            self.buf.reserve(missing);
            return Ok(None);
        }
        if last && rest.len() < HEAD_BYTES_MAX {
            return Ok(None);
        }
        match if last { write_payload(rest, len) } else { None } {
            Some(payload) => self.start_payload(&payload, payload.size, payload.padding_bytes()),
            None => {
                self.buf.advance(4);
                let empty = u32::from(len == 0);
                self.partial = Partial::Assembled { data: Vec::new(), fragment_left: len, last, empty };
            }
        }
        Ok(None)
    }

    fn start_payload(&mut self, payload: &WritePayload, kept: usize, dropped_left: usize) {
        self.buf.advance(4);
        let head = self.buf.split_to(payload.head_bytes).freeze();
        let (data, after_left) = (Received::new(payload.offset, kept), payload.after_bytes.unwrap_or(0));
        self.partial = Partial::Payload { head, data, dropped_left, after: Vec::new(), after_left };
    }

    /// Begins a WRITE; the length is an error for anything else (`record.bounded_message`).
    fn start_oversized(&mut self, mark: u32, too_long: RecordError) -> Result<Option<Message>, RecordError> {
        let len = usize::try_from(mark & !LAST_FRAGMENT).unwrap_or(usize::MAX);
        if mark & LAST_FRAGMENT == 0 || len > WRITE_BYTES_MAX {
            return Err(too_long);
        }
        let Some(rest) = self.buf.get(4..).filter(|rest| rest.len() >= HEAD_BYTES_MAX) else { return Ok(None) };
        // Version 4 has a bound of its own on requests, which clients are told.
        let payload = write_payload(rest, len).filter(|payload| payload.after_bytes.is_none()).ok_or(too_long)?;
        let kept = payload.size.min(self.payload_bytes_max);
        self.start_payload(&payload, kept, payload.size - kept + padding(payload.size));
        Ok(None)
    }

    /// Length and last-fragment bit, where `before` bytes of the message came in earlier fragments.
    fn parse_mark(&self, mark: u32, before: usize) -> Result<(usize, bool), RecordError> {
        let too_long = RecordError::TooLong(self.message_bytes_max);
        let len = usize::try_from(mark & !LAST_FRAGMENT).unwrap_or(usize::MAX);
        if len > self.message_bytes_max.saturating_sub(before) {
            return Err(too_long);
        }
        Ok((len, mark & LAST_FRAGMENT != 0))
    }

    fn assemble(&mut self) -> Result<Option<Message>, RecordError> {
        loop {
            let Partial::Assembled { data, fragment_left, last, empty } = &mut self.partial else { return Ok(None) };
            let here = self.buf.split_to(self.buf.len().min(*fragment_left));
            data.extend_from_slice(&here);
            *fragment_left -= here.len();
            if *fragment_left > 0 {
                return Ok(None);
            }
            if *last {
                let head = Bytes::from(std::mem::take(data));
                self.partial = Partial::None;
                return Ok(Some(Message::whole(head)));
            }
            if *empty > EMPTY_FRAGMENTS_MAX {
                return Err(RecordError::EmptyFragments);
            }
            let (before, empty_before) = (data.len(), *empty);
            let Some(mark) = self.buf.first_chunk::<4>().copied() else { return Ok(None) };
            let (len, is_last) = self.parse_mark(u32::from_be_bytes(mark), before)?;
            self.buf.advance(4);
            if let Partial::Assembled { fragment_left, last, empty, .. } = &mut self.partial {
                (*fragment_left, *last, *empty) = (len, is_last, empty_before + u32::from(len == 0));
            }
        }
    }
}

const NFS_PROGRAM: u32 = 100_003;
const NFS_V3: u32 = 3;
const PROC_WRITE: u32 = 7;
const NFS_V4: u32 = 4;
const PROC_COMPOUND: u32 = 1;

/// Where the payload of a WRITE begins in its message, how long it is, where it belongs in the
/// file. In version 4 the bytes of the message behind it are kept, padding included.
struct WritePayload {
    head_bytes: usize,
    size: usize,
    offset: u64,
    after_bytes: Option<usize>,
}

impl WritePayload {
    /// Bytes behind the payload that are dropped.
    fn padding_bytes(&self) -> usize {
        if self.after_bytes.is_some() { 0 } else { padding(self.size) }
    }
}

/// Of a message of `len` bytes that begins with `start`, if it is a WRITE (RFC 1813 3.3.7) whose
/// payload ends it, or a COMPOUND with a WRITE.
fn write_payload(start: &[u8], len: usize) -> Option<WritePayload> {
    let call = parse_call(start).ok()?;
    if (call.prog, call.vers, call.proc_num) == (NFS_PROGRAM, NFS_V4, PROC_COMPOUND) {
        let header_bytes = start.len().checked_sub(call.args.remaining())?;
        let place = payload_place(start.get(header_bytes..)?, len.checked_sub(header_bytes)?)?;
        let head_bytes = header_bytes.checked_add(place.before)?;
        return Some(WritePayload {
            head_bytes,
            size: place.bytes,
            offset: place.file_offset,
            after_bytes: Some(place.after),
        });
    }
    if (call.prog, call.vers, call.proc_num) != (NFS_PROGRAM, NFS_V3, PROC_WRITE) {
        return None;
    }
    let mut args = call.args;
    args.opaque(64).ok()?;
    let offset = args.u64().ok()?;
    args.skip(4 + 4).ok()?;
    let size = args.length(len).ok()?;
    let head_bytes = start.len().checked_sub(args.remaining())?;
    let ends = head_bytes.checked_add(size)?.checked_add(padding(size))? == len;
    ends.then_some(WritePayload { head_bytes, size, offset, after_bytes: None })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::cast_possible_truncation)]
    use super::super::rpc::tests::call;
    use super::super::xdr::Writer;
    use super::*;
    use proptest::prelude::*;

    const PAYLOAD_MAX: usize = 1 << 19;
    const MAX: usize = 1 << 20;

    fn write_call(xid: u32, size: usize) -> Vec<u8> {
        let mut args = Writer::default();
        args.opaque(&[5; 52]);
        args.u64(0);
        args.u32(size as u32);
        args.u32(0);
        args.opaque(&(0..size).map(|i| i as u8).collect::<Vec<_>>());
        call(xid, NFS_PROGRAM, NFS_V3, PROC_WRITE, Some((1, 1, &[1, 2])), &args.into_inner())
    }

    /// `message` in fragments of at most `fragment` bytes.
    fn marked(message: &[u8], fragment: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let mut parts = message.chunks(fragment.max(1)).peekable();
        while let Some(part) = parts.next() {
            let last = if parts.peek().is_none() { LAST_FRAGMENT } else { 0 };
            out.extend_from_slice(&(part.len() as u32 | last).to_be_bytes());
            out.extend_from_slice(part);
        }
        out
    }

    /// Feeds `stream` in reads of at most `step` bytes.
    fn receive(stream: &[u8], step: usize) -> Result<Vec<Message>, RecordError> {
        let mut receiver = Receiver::new(PAYLOAD_MAX, MAX);
        let mut messages = Vec::new();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut at = 0;
        while at < stream.len() {
            let mut part = &stream[at..stream.len().min(at + step)];
            let Poll::Ready(Ok(n)) = receiver.poll_fill(&mut part, &mut cx) else {
                panic!("reads from memory are ready")
            };
            assert!(n > 0);
            at += n;
            while let Some(message) = receiver.next()? {
                messages.push(message);
            }
        }
        assert!(receiver.is_idle());
        Ok(messages)
    }

    fn whole(message: &Message) -> Vec<u8> {
        let mut all = message.head.to_vec();
        if let Some(tail) = &message.tail {
            all.extend(tail.concat());
            all.resize(all.len() + padding(tail.concat().len()), 0);
        }
        all
    }

    #[test]
    fn messages_come_out_as_they_went_in() {
        let sent: Vec<Vec<u8>> = [0, 5, 4096, 70_001, 300_000, 16, 20_000, 32_768]
            .iter()
            .enumerate()
            .map(|(xid, &size)| write_call(xid as u32, size))
            .collect();
        for fragment in [usize::MAX, 1000, 65_536] {
            let stream: Vec<u8> = sent.iter().flat_map(|message| marked(message, fragment)).collect();
            for step in [1, 7, 1500, 65_536, usize::MAX >> 1] {
                if step < 100 && fragment < 2000 {
                    continue;
                }
                let got = receive(&stream, step).unwrap();
                assert_eq!(got.len(), sent.len());
                for (got, sent) in got.iter().zip(&sent) {
                    let mut padded = whole(got);
                    padded.truncate(sent.len());
                    assert!(padded == *sent, "step {step}, fragment {fragment}");
                }
            }
        }
    }

    #[test]
    fn large_payloads_have_slots_of_their_own() {
        let got = receive(&marked(&write_call(1, 1 << 19), usize::MAX), 100_000).unwrap();
        let tail = got[0].tail.as_ref().unwrap();
        assert!(tail.iter().all(|chunk| larder_base::arena::slot_bytes(chunk) == Some(chunk.len())));
        let tail = tail.concat();
        assert_eq!(tail.len(), 1 << 19);
        assert!(tail.iter().enumerate().all(|(i, &byte)| byte == i as u8));
    }

    #[test]
    fn lengths_are_bounded() {
        let mark = |len: u32| len.to_be_bytes().to_vec();
        let mut no_write = mark(LAST_FRAGMENT | (MAX as u32 + 1));
        no_write.resize(4 + HEAD_BYTES_MAX, 0);
        assert_eq!(receive(&no_write, 9).err(), Some(RecordError::TooLong(MAX)));
        assert_eq!(receive(b"GET / HTTP/1.1\r\n\r\n", 99).err(), Some(RecordError::TooLong(MAX)));
        assert_eq!(receive(&mark(0).repeat(100), 9).err(), Some(RecordError::EmptyFragments));
        let mut many = mark(1 << 19);
        many.resize(4 + (1 << 19), 0);
        many.extend(mark(1 << 19));
        many.resize(8 + (2 << 19), 0);
        many.extend(mark(LAST_FRAGMENT | 1));
        assert_eq!(receive(&many, 99_999).err(), Some(RecordError::TooLong(MAX)));
    }

    #[test]
    fn of_a_write_beyond_the_limit_the_beginning_is_kept() {
        for size in [MAX - 20, MAX, MAX + 1, WRITE_BYTES_MAX - 200] {
            let mut stream = marked(&write_call(1, size), usize::MAX);
            stream.extend(marked(&write_call(2, 100_000), usize::MAX));
            stream.extend(marked(&write_call(3, 10), usize::MAX));
            for step in [1500, 65_536, usize::MAX >> 1] {
                let got = receive(&stream, step).unwrap();
                let tail = got[0].tail.as_ref().unwrap().concat();
                assert!(tail.len() == PAYLOAD_MAX && tail.iter().enumerate().all(|(i, &byte)| byte == i as u8));
                assert_eq!(got[0].head[got[0].head.len() - 4..], (size as u32).to_be_bytes());
                assert!(whole(&got[1]) == write_call(2, 100_000) && whole(&got[2]) == write_call(3, 10));
            }
        }
        let too_long = Some(RecordError::TooLong(MAX));
        let in_pieces = marked(&write_call(1, MAX + 1), MAX / 2);
        let beyond = marked(&write_call(1, WRITE_BYTES_MAX), usize::MAX);
        let other = marked(&call(1, NFS_PROGRAM, NFS_V3, PROC_WRITE + 1, None, &vec![0; MAX]), usize::MAX);
        for stream in [in_pieces, beyond, other] {
            assert_eq!(receive(&stream, 4096).err(), too_long);
        }
    }

    /// A COMPOUND of PUTROOTFH, WRITE and GETATTR with this payload.
    fn compound_call(xid: u32, size: usize) -> Vec<u8> {
        let mut args = Writer::default();
        [0, 1, 3, 24, 38, 1, 2, 3, 4, 0, 9, 2].iter().for_each(|word| args.u32(*word));
        args.opaque(&(0..size).map(|i| i as u8).collect::<Vec<_>>());
        [9, 1, 2].iter().for_each(|word| args.u32(*word));
        call(xid, NFS_PROGRAM, NFS_V4, PROC_COMPOUND, None, &args.into_inner())
    }

    #[test]
    fn a_payload_among_other_operations() {
        for size in [100_000, 100_001, PAYLOAD_MAX - 3] {
            let stream = [compound_call(1, size), write_call(2, 10), compound_call(3, size)];
            let stream = stream.map(|call| marked(&call, usize::MAX)).concat();
            for step in [1, 1500, 65_536, usize::MAX >> 1].into_iter().skip(usize::from(size > 100_001)) {
                let got = receive(&stream, step).unwrap();
                for message in [&got[0], &got[2]] {
                    let tail = message.tail.as_ref().unwrap().concat();
                    assert!(tail.len() == size && tail.iter().enumerate().all(|(i, &byte)| byte == i as u8));
                    assert_eq!(message.after.len(), padding(size) + 12, "its padding and the GETATTR");
                    assert!(message.after.ends_with(&[0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2]));
                }
                assert!(whole(&got[1]) == write_call(2, 10));
            }
        }
        let too_long = marked(&compound_call(1, MAX), usize::MAX);
        assert_eq!(receive(&too_long, 4096).err(), Some(RecordError::TooLong(MAX)), "clients are told the bound");
    }

    proptest! {
        #[test]
        fn no_stream_panics(stream in proptest::collection::vec(any::<u8>(), 0..2000), step in 1usize..500) {
            let mut receiver = Receiver::new(PAYLOAD_MAX, MAX);
            let mut cx = Context::from_waker(std::task::Waker::noop());
            for mut part in stream.chunks(step) {
                let _ = receiver.poll_fill(&mut part, &mut cx);
                while let Ok(Some(_)) = receiver.next() {}
            }
        }
    }
}
