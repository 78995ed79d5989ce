//! One connection to an SMB server, any number of requests in flight.
//!
//! A request waits for its credits, takes its message ids, is signed or encrypted and queued in one
//! go, and waits for the answer with its message id. Two tasks live beside the requests: one writes
//! what is queued, the other reads, checks and hands out. Payloads are sent from the pool of
//! contents and checked in the receive buffer: neither is copied unless it is encrypted.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use larder_smb_wire::answers;
use larder_smb_wire::crypto::encrypt::is_transform;
use larder_smb_wire::crypto::{PreauthIntegrity, SessionCipher, SigningAlgo, sign_pieces, verify};
use larder_smb_wire::framing::{FRAME_HEADER_LEN, decode_frame_header, frame_header};
use larder_smb_wire::header::{
    Command, HeaderTail, SMB2_FLAGS_RELATED_OPERATIONS, SMB2_FLAGS_SIGNED, SMB2_HEADER_LEN, Smb2Header,
};
use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

use super::failure::{Failure, STATUS_MORE_PROCESSING_REQUIRED, STATUS_PENDING, STATUS_SUCCESS};
use super::requests::{Request, TRANSFER_BYTES_MAX};
use crate::client::outbox::{Outbox, send_all};
use crate::client::patience::{FLUSH_TIME_MAX, REPLY_TIME_MAX};

const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Small answers are read together.
const RECEIVE_BYTES: usize = 64 << 10;
/// The largest READ, or a chain of smaller answers, with headers.
const FRAME_BYTES_MAX: u32 = TRANSFER_BYTES_MAX + (64 << 10);
/// 32 MiB in flight on one connection. A server may grant fewer.
const CREDITS_WANTED: u32 = 512;
/// MS-SMB2 3.2.5.1.2: the message id of a break, which this client never causes.
const NOT_AN_ANSWER: u64 = u64::MAX;

pub(super) struct Answer {
    pub header: Smb2Header,
    /// With its header.
    pub message: Bytes,
}

impl Answer {
    pub fn status(&self) -> u32 {
        self.header.channel_sequence_status
    }

    pub fn body(&self) -> &[u8] {
        &self.message[SMB2_HEADER_LEN..]
    }

    pub fn failure(&self) -> Failure {
        Failure::Refused { status: self.status(), command: self.header.command }
    }

    pub fn success(self) -> Result<Self, Failure> {
        if self.status() == STATUS_SUCCESS { Ok(self) } else { Err(self.failure()) }
    }
}

/// The protection of requests, and the one that answers must have.
pub(super) enum Protection {
    None,
    Signed([u8; 16], SigningAlgo),
    Encrypted(SessionCipher),
}

struct State {
    outbox: Outbox,
    waiting: HashMap<u64, (Command, oneshot::Sender<Answer>)>,
    message_id: u64,
    /// Neither spent nor waited for: those of the semaphore.
    credits: u32,
    large_mtu: bool,
    session_id: u64,
    tree_id: u32,
    protection: Protection,
    preauth: PreauthIntegrity,
    broken: Option<Failure>,
}

struct Shared {
    state: RefCell<State>,
    credits: Semaphore,
}

pub(super) struct Connection {
    shared: Rc<Shared>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Connection {
    /// Must be called within a `LocalSet`.
    pub async fn open(address: &str) -> Result<Self, Failure> {
        let connecting = tokio::time::timeout(CONNECT_TIME_MAX, TcpStream::connect(address)).await;
        let stream = connecting.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())).map_err(Failure::lost)?;
        stream.set_nodelay(true).map_err(Failure::lost)?;
        let (read, write) = stream.into_split();
        let state = State {
            outbox: Outbox::default(),
            waiting: HashMap::new(),
            message_id: 0,
            credits: 1,
            large_mtu: false,
            session_id: 0,
            tree_id: 0,
            protection: Protection::None,
            preauth: PreauthIntegrity::new(),
            broken: None,
        };
        let shared = Rc::new(Shared { state: RefCell::new(state), credits: Semaphore::new(1) });
        let tasks = [
            tokio::task::spawn_local(receive(shared.clone(), read)),
            tokio::task::spawn_local(send(shared.clone(), write)),
        ];
        Ok(Self { shared, tasks })
    }

    /// The answers, whatever they say. More than one request are a chain, each about the file of
    /// the one before it.
    pub async fn call<const N: usize>(&self, requests: [Request; N]) -> Result<[Answer; N], Failure> {
        let is_flush = requests.iter().any(|request| request.command == Command::Flush);
        let time_max = if is_flush { FLUSH_TIME_MAX } else { REPLY_TIME_MAX };
        let answers = tokio::time::timeout(time_max, self.call_patiently(requests)).await;
        answers.unwrap_or(Err(Failure::Silent(time_max)))
    }

    async fn call_patiently<const N: usize>(&self, requests: [Request; N]) -> Result<[Answer; N], Failure> {
        let large_mtu = self.shared.state.borrow().large_mtu;
        let credits = requests.iter().map(|request| request.credits(large_mtu)).sum();
        let taken = self.shared.credits.acquire_many(credits).await;
        taken.map_err(|_| self.shared.failure())?.forget();
        let waiters = self.shared.state.borrow_mut().send(requests)?;
        let mut answers = Vec::with_capacity(N);
        for waiter in waiters {
            answers.push(waiter.await.map_err(|_| self.shared.failure())?);
        }
        answers.try_into().map_err(|_| self.shared.failure())
    }

    /// With the credits that an idle connection has.
    pub fn transfer_bytes_max(&self) -> u32 {
        let state = self.shared.state.borrow();
        if state.large_mtu { state.credits.saturating_mul(Request::CREDIT_BYTES) } else { Request::CREDIT_BYTES }
    }

    pub fn set_large_mtu(&self, large_mtu: bool) {
        self.shared.state.borrow_mut().large_mtu = large_mtu;
    }

    pub fn set_session(&self, session_id: u64) {
        self.shared.state.borrow_mut().session_id = session_id;
    }

    pub fn set_tree(&self, tree_id: u32) {
        self.shared.state.borrow_mut().tree_id = tree_id;
    }

    /// From the next request on.
    pub fn protect(&self, protection: Protection) {
        self.shared.state.borrow_mut().protection = protection;
    }

    pub fn is_encrypted(&self) -> bool {
        matches!(self.shared.state.borrow().protection, Protection::Encrypted(_))
    }

    /// Of all messages that established the session (MS-SMB2 3.2.5.3.1).
    pub fn preauth_hash(&self) -> [u8; 64] {
        self.shared.state.borrow().preauth.snapshot()
    }
}

impl State {
    fn send<const N: usize>(&mut self, requests: [Request; N]) -> Result<Vec<oneshot::Receiver<Answer>>, Failure> {
        let mut pieces = Vec::with_capacity(N + 1);
        let mut waiters = Vec::with_capacity(N);
        for (number, request) in requests.into_iter().enumerate() {
            let credits = request.credits(self.large_mtu);
            let mut len = SMB2_HEADER_LEN + request.body.len();
            let mut header = Smb2Header {
                credit_charge: if self.large_mtu { credits as u16 } else { 0 },
                command: request.command,
                credit_request_response: (credits + CREDITS_WANTED.saturating_sub(self.credits)) as u16,
                message_id: self.message_id,
                tail: HeaderTail::sync(self.tree_id),
                session_id: self.session_id,
                ..Smb2Header::default()
            };
            if number > 0 {
                header.flags |= SMB2_FLAGS_RELATED_OPERATIONS;
            }
            if number + 1 < N {
                len = len.next_multiple_of(8);
                header.next_command = len as u32;
            }
            if matches!(self.protection, Protection::Signed(..)) {
                header.flags |= SMB2_FLAGS_SIGNED;
            }
            let mut head = Vec::with_capacity(len);
            header.write(&mut head)?;
            head.extend_from_slice(&request.body);
            head.resize(len, 0);
            if let Protection::Signed(key, algo) = &self.protection {
                sign_pieces(&mut head, request.payload.iter().map(|piece| &piece[..]), key, *algo)?;
            }
            if is_setting_up(request.command) {
                self.preauth.update(&head);
            }
            let (sender, waiter) = oneshot::channel();
            self.waiting.insert(self.message_id, (request.command, sender));
            waiters.push(waiter);
            self.message_id += u64::from(credits);
            self.credits = self.credits.saturating_sub(credits);
            pieces.push(Bytes::from(head));
            pieces.extend(request.payload);
        }
        if let Protection::Encrypted(cipher) = &self.protection {
            pieces = vec![cipher.encrypt(self.session_id, &pieces)?.into()];
        }
        let frame = frame_header(pieces.iter().map(Bytes::len).sum())?;
        self.outbox.push(std::iter::once(Bytes::copy_from_slice(&frame)).chain(pieces));
        Ok(waiters)
    }

    /// The credits that came with a frame (MS-SMB2 3.2.5.1).
    fn take(&mut self, frame: Bytes) -> Result<u32, Failure> {
        let frame = match (&self.protection, is_transform(&frame)) {
            (Protection::Encrypted(cipher), true) => cipher.decrypt(frame)?,
            (Protection::Encrypted(_), false) => return Err(Failure::broken("an answer is not encrypted")),
            (_, true) => return Err(Failure::broken("an answer is encrypted although no request was")),
            (_, false) => frame,
        };
        let mut granted = 0;
        for (header, message) in answers::split(frame)? {
            let answer = Answer { header, message };
            if answer.header.message_id == NOT_AN_ANSWER {
                continue;
            }
            // An interim answer, which is never signed (MS-SMB2 3.2.5.1.3, 3.2.5.1.5).
            let is_interim = answer.status() == STATUS_PENDING && answer.header.async_id().is_some();
            if let Protection::Signed(key, algo) = &self.protection
                && !is_interim
            {
                if answer.header.flags & SMB2_FLAGS_SIGNED == 0 {
                    return Err(Failure::broken(&format!("an answer is not signed ({})", answer.failure())));
                }
                verify(&answer.message, key, *algo)?;
            }
            granted += u32::from(answer.header.credit_request_response);
            if is_interim {
                continue;
            }
            if is_setting_up(answer.header.command)
                && (answer.header.command == Command::Negotiate || answer.status() == STATUS_MORE_PROCESSING_REQUIRED)
            {
                self.preauth.update(&answer.message);
            }
            // Without a waiter: given up.
            match self.waiting.remove(&answer.header.message_id) {
                Some((command, _)) if command != answer.header.command => {
                    return Err(Failure::broken("an answer is to another command"));
                }
                Some((_, waiter)) => drop(waiter.send(answer)),
                None => {}
            }
        }
        self.credits = self.credits.saturating_add(granted);
        Ok(granted)
    }
}

impl Shared {
    fn failure(&self) -> Failure {
        self.state.borrow().broken.clone().unwrap_or_else(|| Failure::Lost("it was closed".into()))
    }

    /// The first failure is the reason of all that waits and comes.
    fn fail(&self, failure: Failure) {
        let mut state = self.state.borrow_mut();
        state.broken.get_or_insert(failure);
        state.waiting.clear();
        self.credits.close();
    }
}

fn is_setting_up(command: Command) -> bool {
    matches!(command, Command::Negotiate | Command::SessionSetup)
}

async fn send(shared: Rc<Shared>, mut write: OwnedWriteHalf) {
    let mut batch = VecDeque::new();
    loop {
        std::future::poll_fn(|cx| shared.state.borrow_mut().outbox.poll_take(&mut batch, cx)).await;
        if let Err(error) = send_all(&mut batch, &mut write).await {
            return shared.fail(Failure::lost(error));
        }
    }
}

async fn receive(shared: Rc<Shared>, read: OwnedReadHalf) {
    let mut read = BufReader::with_capacity(RECEIVE_BYTES, read);
    loop {
        let frame = read_frame(&mut read).await;
        let granted = frame.and_then(|frame| shared.state.borrow_mut().take(frame));
        match granted {
            Ok(granted) => shared.credits.add_permits(granted as usize),
            Err(failure) => return shared.fail(failure),
        }
    }
}

async fn read_frame(read: &mut BufReader<OwnedReadHalf>) -> Result<Bytes, Failure> {
    let mut head = [0; FRAME_HEADER_LEN];
    read.read_exact(&mut head).await.map_err(Failure::lost)?;
    let len = decode_frame_header(&head)?;
    if len > FRAME_BYTES_MAX {
        return Err(Failure::broken(&format!("an answer of {len} bytes")));
    }
    let mut frame = BytesMut::with_capacity(len as usize);
    while frame.len() < len as usize {
        let left = len as usize - frame.len();
        if read.read_buf(&mut (&mut frame).limit(left)).await.map_err(Failure::lost)? == 0 {
            return Err(Failure::lost(std::io::ErrorKind::UnexpectedEof.into()));
        }
    }
    Ok(frame.freeze())
}

#[cfg(test)]
mod tests;
