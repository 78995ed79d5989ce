//! The frames that answer a chain in which a request waits (`chain.interim_alone`), read as a client reads them.

use std::sync::Arc;

use super::async_requests::{DELETE, READ_ATTRIBUTES, READ_WRITE, SHARE_READ_WRITE, close_body, create_body, server};
use super::notify::split;
use crate::state::ServerState;
use crate::tests::peer::{KEY, Peer, header, status};
use larder_smb_wire::crypto::encrypt::is_transform;
use larder_smb_wire::crypto::{SessionCipher, SigningAlgo, sign, verify};
use larder_smb_wire::header::{
    Command, SMB2_FLAGS_ASYNC_COMMAND, SMB2_FLAGS_RELATED_OPERATIONS, SMB2_FLAGS_SIGNED, Smb2Header,
};
use larder_smb_wire::messages::{FileId, LockElement, LockRequest};
use larder_smb_wire::ntstatus::{STATUS_PENDING, STATUS_SUCCESS};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protection {
    Clear,
    Signed,
    Sealed,
}

/// A client that takes frames apart, checks what protects each, and counts the credits it is granted.
struct Client {
    peer: Peer,
    protection: Protection,
    cipher: Option<SessionCipher>,
    granted: u64,
}

/// A request of a chain, and whether it relates to the one before it.
type Request = (Command, Vec<u8>, bool);

/// A response of a frame.
type Seen = (Command, u32);

impl Client {
    async fn new(state: &Arc<ServerState>, protection: Protection) -> Self {
        let (peer, cipher) = match protection {
            Protection::Clear => (Peer::new(state, false).await, None),
            Protection::Signed => (Peer::new(state, true).await, None),
            Protection::Sealed => {
                let (peer, cipher) = Peer::sealed(state).await;
                (peer, Some(cipher))
            }
        };
        Self { peer, protection, cipher, granted: 0 }
    }

    /// One frame of `requests`.
    fn chain(&mut self, requests: &[Request]) -> Vec<u8> {
        let mut frame = Vec::new();
        for (index, (command, body, related)) in requests.iter().enumerate() {
            let (_, mut message) = self.peer.message(*command, body);
            if *related {
                message[0x10] |= SMB2_FLAGS_RELATED_OPERATIONS as u8;
            }
            if index + 1 < requests.len() {
                message.resize(message.len().next_multiple_of(8), 0);
                let next = message.len() as u32;
                message[0x14..0x18].copy_from_slice(&next.to_le_bytes());
            }
            if self.protection == Protection::Signed {
                sign(&mut message, &KEY, SigningAlgo::AesCmac).expect("sign");
            }
            frame.extend_from_slice(&message);
        }
        match &self.cipher {
            Some(cipher) => cipher.encrypt(1, &[frame]).expect("sealed"),
            None => frame,
        }
    }

    /// The responses of a frame. An interim one is alone in it and unsigned; the first relates to nothing.
    fn take(&mut self, frame: Vec<u8>) -> Vec<Seen> {
        let frame = match &self.cipher {
            Some(cipher) => {
                assert!(is_transform(&frame), "an answer to a sealed request is sealed");
                cipher.decrypt(frame.into()).expect("opened").to_vec()
            }
            None => frame,
        };
        let responses = split(&frame);
        assert_eq!(header(responses[0]).flags & SMB2_FLAGS_RELATED_OPERATIONS, 0);
        let alone = responses.len() == 1;
        responses.into_iter().map(|response| self.one(response, alone)).collect()
    }

    fn one(&mut self, response: &[u8], alone: bool) -> Seen {
        let Smb2Header { command, flags, credit_request_response: granted, .. } = header(response);
        self.granted += u64::from(granted);
        if status(response) == STATUS_PENDING {
            assert!(alone, "an interim response stands beside others: {command:?}");
            assert_eq!(flags & SMB2_FLAGS_SIGNED, 0);
            assert!(granted > 0, "the interim response grants the credits");
        } else {
            let is_final = flags & SMB2_FLAGS_ASYNC_COMMAND != 0;
            assert_eq!(granted == 0, is_final, "the final response grants none: {command:?}");
            if self.protection == Protection::Signed {
                assert!(verify(response, &KEY, SigningAlgo::AesCmac).is_ok(), "{command:?}");
            }
        }
        (command, status(response))
    }

    /// Sends `requests`, ends the connection of the next of `holders` at each interim response, and returns the frames
    /// up to the answer of each request.
    async fn frames(&mut self, state: &Arc<ServerState>, requests: &[Request], holders: &[&Peer]) -> Vec<Vec<Seen>> {
        let available = |client: &Self| client.peer.conn.credits.lock().expect("credits").available();
        let before = available(self);
        let chain = self.chain(requests);
        let mut next = self.peer.dispatch(state, &chain).await.expect("an answer");
        let (mut frames, mut holders, mut answered) = (Vec::new(), holders.iter(), 0);
        loop {
            let seen = self.take(next);
            answered += seen.iter().filter(|(_, status)| *status != STATUS_PENDING).count();
            let waits = seen.iter().any(|(_, status)| *status == STATUS_PENDING);
            frames.push(seen);
            if waits {
                holders.next().expect("a holder that it waits for").drop_connection(state).await;
            }
            if answered == requests.len() {
                break;
            }
            next = self.peer.next().await;
        }
        assert_eq!(available(self), before - requests.len() as u64 + self.granted);
        assert_eq!(self.peer.conn.pending.len(), 0);
        frames
    }
}

const PROTECTIONS: [Protection; 3] = [Protection::Clear, Protection::Signed, Protection::Sealed];
const ECHO: (Command, u32) = (Command::Echo, STATUS_SUCCESS);

fn echo() -> Request {
    (Command::Echo, vec![4, 0, 0, 0], false)
}

/// A holder of a lease with handle caching, for which an open that deletes waits.
async fn lease_holder(state: &Arc<ServerState>) -> Peer {
    let mut holder = Peer::new(state, false).await;
    let (_, held) = holder.request(state, Command::Create, &create_body(READ_WRITE, SHARE_READ_WRITE, true)).await;
    assert_eq!(status(&held), STATUS_SUCCESS);
    holder
}

/// A chain of `ahead` ECHOs, a CREATE that waits, and `behind` ECHOs.
async fn create_waits(protection: Protection, ahead: usize, behind: usize) -> Vec<Vec<Seen>> {
    let state = server().await;
    let holder = lease_holder(&state).await;
    let mut client = Client::new(&state, protection).await;
    let create = (Command::Create, create_body(DELETE | READ_ATTRIBUTES, 0x7, false), false);
    let mut requests = vec![echo(); ahead];
    requests.push(create);
    requests.extend(vec![echo(); behind]);
    client.frames(&state, &requests, &[&holder]).await
}

#[tokio::test]
async fn a_create_that_waits_is_answered_in_frames_of_its_own() {
    let pending = vec![(Command::Create, STATUS_PENDING)];
    let created = (Command::Create, STATUS_SUCCESS);
    for protection in PROTECTIONS {
        let first = create_waits(protection, 0, 2).await;
        assert_eq!(first, [pending.clone(), vec![created, ECHO, ECHO]], "{protection:?}");
        let middle = create_waits(protection, 1, 1).await;
        assert_eq!(middle, [vec![ECHO], pending.clone(), vec![created, ECHO]], "{protection:?}");
        let last = create_waits(protection, 2, 0).await;
        assert_eq!(last, [vec![ECHO, ECHO], pending.clone(), vec![created]], "{protection:?}");
        let alone = create_waits(protection, 0, 0).await;
        assert_eq!(alone, [pending.clone(), vec![created]], "{protection:?}");
    }
}

fn lock_body(offset: u64) -> Vec<u8> {
    let element = LockElement { offset, length: 1, flags: LockElement::FLAG_EXCLUSIVE_LOCK, reserved: 0 };
    let file_id = FileId::any();
    let request = LockRequest { structure_size: 48, lock_count: 1, lock_sequence: 0, file_id, locks: vec![element] };
    let mut body = Vec::new();
    request.write_to(&mut body).expect("lock");
    body
}

fn open() -> Request {
    (Command::Create, create_body(READ_WRITE, 0x7, false), false)
}

fn lock(offset: u64) -> Request {
    (Command::Lock, lock_body(offset), true)
}

/// A holder of the lock of one byte.
async fn lock_holder(state: &Arc<ServerState>, offset: u64) -> Client {
    let mut holder = Client::new(state, Protection::Clear).await;
    let chain = holder.chain(&[open(), lock(offset)]);
    let held = holder.peer.dispatch(state, &chain).await.expect("an answer");
    assert_eq!(holder.take(held), [(Command::Create, STATUS_SUCCESS), (Command::Lock, STATUS_SUCCESS)]);
    holder
}

/// A related chain as clients send it, with two waits: the second begins in what runs behind the first.
#[tokio::test]
async fn each_wait_of_a_related_chain_has_a_frame_of_its_own() {
    let (pending, locked) = ((Command::Lock, STATUS_PENDING), (Command::Lock, STATUS_SUCCESS));
    for protection in PROTECTIONS {
        let state = server().await;
        let (first, second) = (lock_holder(&state, 0).await, lock_holder(&state, 1).await);
        let mut client = Client::new(&state, protection).await;
        let close = (Command::Close, close_body(FileId::any()), true);
        let requests = [open(), lock(0), lock(1), close];
        let frames = client.frames(&state, &requests, &[&first.peer, &second.peer]).await;
        let expected = [
            vec![(Command::Create, STATUS_SUCCESS)],
            vec![pending],
            vec![locked],
            vec![pending],
            vec![locked, (Command::Close, STATUS_SUCCESS)],
        ];
        assert_eq!(frames, expected, "{protection:?}");
    }
}
