//! Input that the NFS server decodes: records, calls, arguments, handles, the mount protocol.

use std::net::{Ipv4Addr, SocketAddr};
use std::task::{Context, Poll, Waker};

use larder_fs::{FileId, Ino};

use super::export::Exports;
use super::handle::{self, ExportKey};
use super::mount::{self, Mounts};
use super::proto::check_name;
use super::record::Receiver;
use super::rpc::parse_call;
use super::xdr::{Reader, Writer};

const MESSAGE_BYTES_MAX: usize = 1 << 20;
const PAYLOAD_BYTES_MAX: usize = 1 << 19;

/// A stream of records, received in one piece and byte by byte: the same messages.
pub fn rpc_record(data: &[u8]) {
    let (whole, bytewise) = (receive(data, data.len()), receive(data, 7));
    assert_eq!(whole, bytewise);
}

/// Lengths of the messages, and whether the stream was refused in the end.
fn receive(stream: &[u8], step: usize) -> (Vec<usize>, bool) {
    let mut receiver = Receiver::new(PAYLOAD_BYTES_MAX, MESSAGE_BYTES_MAX);
    let mut messages = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    let mut at = 0;
    while at < stream.len() {
        let mut part = &stream[at..stream.len().min(at + step.max(1))];
        let Poll::Ready(Ok(count @ 1..)) = receiver.poll_fill(&mut part, &mut cx) else { break };
        at += count;
        loop {
            match receiver.next() {
                Ok(Some(message)) => {
                    let payload = message.tail.iter().flatten().map(|chunk| chunk.len()).sum::<usize>();
                    let length = message.head.len() + payload + message.after.len();
                    assert!(length <= MESSAGE_BYTES_MAX);
                    messages.push(length);
                }
                Ok(None) => break,
                Err(_) => return (messages, true),
            }
        }
    }
    (messages, false)
}

/// The header of a call (RFC 5531, 9); the claimed groups stay within the bound of AUTH_SYS.
pub fn rpc_call(data: &[u8]) {
    if let Ok(call) = parse_call(data) {
        assert!(call.args.remaining() <= data.len());
        if let super::rpc::Auth::Sys { gids, raw, .. } = call.auth {
            assert!(gids.iter().count() <= 16 && raw.len() <= data.len());
        }
    }
}

/// A datagram to the portmapper: the answer is short, whatever was asked.
pub fn portmap(data: &[u8]) {
    const ANSWER_BYTES_MAX: usize = 1024;
    let Ok(call) = parse_call(data) else { return };
    let mut answer = Writer::new(Vec::new());
    let address = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff).into();
    let at = super::portmap::CalledAt { port: 2049, client: address, local: Some(address), is_datagram: true };
    super::portmap::answer(&call, at, &mut answer);
    assert!(answer.into_inner().len() <= ANSWER_BYTES_MAX);
}

/// Each kind of argument, one after the other as long as there are bytes.
pub fn nfs_arguments(data: &[u8]) {
    let mut reader = Reader::new(data);
    let _ = reader.set_attr();
    let mut reader = Reader::new(data);
    while let Ok(name) = reader.name() {
        let _ = check_name(name);
        if reader.time().is_err() || reader.bool().is_err() {
            break;
        }
    }
    let mut reader = Reader::new(data);
    while reader.opaque(64).is_ok() && reader.length(16).is_ok() && reader.u64().is_ok() {}
}

/// A handle that is right.
pub fn some_handle() -> Vec<u8> {
    handle::encode(
        &ExportKey { volume: [7; 16], fsid: 2 },
        &handle::Seal::none(),
        FileId { ino: Ino(9), generation: 5 },
    )
    .to_vec()
}

/// File handles. A handle that is taken encodes to itself.
pub fn nfs_handle(data: &[u8]) {
    if let Some((key, id)) = handle::decode(data) {
        let none = handle::Seal::none();
        assert!(handle::encode(&key, &none, id) == *data || !handle::is_of(data, id.ino, &none));
    }
}

/// Calls of the mount protocol (RFC 1813, 5).
pub fn mount(data: &[u8]) {
    let Ok(call) = parse_call(data) else { return };
    let (exports, mounts) = (Exports::default(), Mounts::default());
    mount::answer(&call, &exports, &mounts, SocketAddr::from((Ipv4Addr::LOCALHOST, 700)), Vec::new());
}

/// Requests of NFSv4.
pub fn nfs4_compound(data: &[u8]) {
    super::v4::fuzz::compound(data);
}

/// Answers to call-backs of NFSv4.
pub fn nfs4_callback(data: &[u8]) {
    super::v4::fuzz::callback(data);
}

/// Attributes of NFSv4.
pub fn nfs4_attributes(data: &[u8]) {
    super::v4::fuzz::attributes(data);
}

/// Requests of NFSv4 that the fuzzer begins with.
pub fn some_nfs4_requests() -> Vec<Vec<u8>> {
    super::v4::fuzz::some_requests()
}

/// Calls of NLM and NSM: a procedure's number and its arguments.
pub fn lock_call(data: &[u8]) {
    super::nlm::fuzz::lock_call(data);
}

/// Answers of clients of NLM, and of their port mappers.
pub fn lock_answer(data: &[u8]) {
    super::nlm::fuzz::lock_answer(data);
}

#[cfg(test)]
#[path = "../../../fuzz/driver.rs"]
mod driver;

#[cfg(test)]
mod tests {
    /// The addresses of the arena are no memory that an input asked for: they are there before it is measured.
    fn drive(name: &str, seeds: &[Vec<u8>], entry: fn(&[u8])) {
        drop(larder_base::arena::take(1));
        super::driver::drive(name, seeds, entry);
    }

    /// A call of NFS v3 procedure `number`, with one word of arguments.
    fn call(program: u32, version: u32, number: u32) -> Vec<u8> {
        let words = [7, 0, 2, program, version, number, 1, 24, 1, 0, 0, 0, 1, 5, 0, 0, 4, 0x6162_6364];
        words.iter().flat_map(|word: &u32| word.to_be_bytes()).collect()
    }

    fn marked(message: &[u8]) -> Vec<u8> {
        [&(message.len() as u32 | 1 << 31).to_be_bytes(), message].concat()
    }

    #[test]
    fn fuzz_rpc_record() {
        let two = [marked(&call(100_003, 3, 7)), marked(&call(100_005, 3, 1))].concat();
        drive("rpc_record", &[marked(&call(100_003, 3, 1)), two], super::rpc_record);
    }

    #[test]
    fn fuzz_rpc_call() {
        drive("rpc_call", &[call(100_003, 3, 1), call(100_000, 2, 3)], super::rpc_call);
    }

    #[test]
    fn fuzz_nfs_arguments() {
        let words = [1u32, 0o644, 0, 1, 5, 1, 0, 99, 2, 3, 4, 1];
        drive(
            "nfs_arguments",
            &[words.iter().flat_map(|w| w.to_be_bytes()).collect(), b"\0\0\0\x03abc\0".to_vec()],
            super::nfs_arguments,
        );
    }

    #[test]
    fn fuzz_nfs_handle() {
        drive("nfs_handle", &[super::some_handle()], super::nfs_handle);
    }

    #[test]
    fn fuzz_nfs4_compound() {
        drive("nfs4_compound", &super::some_nfs4_requests(), super::nfs4_compound);
    }

    #[test]
    fn fuzz_nfs4_callback() {
        // CB_SEQUENCE and CB_RECALL: the answer to a recall.
        let words = [0u32, 0, 2, 11, 0, 1, 2, 3, 4, 5, 6, 7, 8, 4, 0];
        drive("nfs4_callback", &[words.iter().flat_map(|word| word.to_be_bytes()).collect()], super::nfs4_callback);
    }

    #[test]
    fn fuzz_nfs4_attributes() {
        // Type and size, then an access list of one entry and an owner.
        let words: [&[u32]; 2] = [&[1, 0x12, 12, 2, 0, 7], &[2, 0x1000, 0x10, 28, 1, 0, 0, 7, 1, 0x6100_0000, 0]];
        let seeds = words.map(|words| words.iter().flat_map(|word| word.to_be_bytes()).collect());
        drive("nfs4_attributes", &seeds, super::nfs4_attributes);
    }

    #[test]
    fn fuzz_mount() {
        drive("mount", &[call(100_005, 3, 1), call(100_005, 3, 5), call(100_005, 1, 3)], super::mount);
    }

    #[test]
    fn fuzz_lock_call() {
        drive("lock_call", &[], super::lock_call);
    }

    #[test]
    fn fuzz_lock_answer() {
        drive("lock_answer", &[], super::lock_answer);
    }

    #[test]
    fn fuzz_portmap() {
        drive("portmap", &[call(100_000, 2, 3), call(100_000, 2, 4), call(100_000, 3, 0)], super::portmap);
    }
}
