//! Requests and replies over one SSH channel, as many in flight as are asked for.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::task::{Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use russh::client::Msg;
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::packet::{self, Malformed, Reply, Request};
use crate::client::error::{ClientError, Outcome};
use crate::client::patience;

/// OpenSSH has 256 KiB; nothing that was asked for needs more.
const PACKET_BYTES_MAX: usize = 300 << 10;

#[derive(Default)]
struct Shared {
    waiting: HashMap<u32, oneshot::Sender<Outcome<Reply>>>,
    number: u32,
    out: VecDeque<Bytes>,
    writer: Option<Waker>,
    broken: Option<ClientError>,
}

impl Shared {
    fn fail_all(&mut self, error: ClientError) {
        for (_, waiter) in self.waiting.drain() {
            let _ = waiter.send(Err(error.clone()));
        }
        self.broken = Some(error);
    }
}

pub(super) struct Session {
    shared: Rc<RefCell<Shared>>,
    tasks: [JoinHandle<()>; 2],
    host: String,
    pub extensions: Vec<String>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Session {
    /// Must be called within a `LocalSet`.
    pub async fn open(channel: Channel<Msg>, host: &str) -> Outcome<Self> {
        let (mut read, write) = channel.split();
        let mut hello = Vec::from([0, 0, 0, 5, packet::INIT]);
        hello.extend_from_slice(&3u32.to_be_bytes());
        write.data_bytes(hello).await.map_err(|e| ClientError::lost(host, e))?;
        let mut packets = Packets::default();
        let first = loop {
            if let Some(first) = packets.next().map_err(|e| ClientError::protocol(host, e))? {
                break first;
            }
            packets.more(&mut read).await.ok_or_else(|| ClientError::lost(host, "no SFTP service answers there"))?;
        };
        let (version, extensions) = packet::version(&first).map_err(|e| ClientError::protocol(host, e))?;
        if version < 3 {
            return Err(ClientError::protocol(host, format!("it speaks SFTP version {version}, not 3")));
        }
        let shared = Rc::new(RefCell::new(Shared::default()));
        let tasks = [
            tokio::task::spawn_local(receive(shared.clone(), read, packets, host.to_owned())),
            tokio::task::spawn_local(send(shared.clone(), write, host.to_owned())),
        ];
        Ok(Self { shared, tasks, host: host.to_owned(), extensions })
    }

    /// `build` gets the request behind its number.
    pub async fn ask(&self, kind: u8, capacity: usize, build: impl FnOnce(&mut Request)) -> Outcome<Reply> {
        let (sender, receiver) = oneshot::channel();
        {
            let shared = &mut *self.shared.borrow_mut();
            if let Some(error) = &shared.broken {
                return Err(error.clone());
            }
            shared.number = shared.number.wrapping_add(1);
            let mut request = Request::new(kind, shared.number, capacity);
            build(&mut request);
            shared.out.push_back(request.finish());
            shared.waiting.insert(shared.number, sender);
            if let Some(writer) = shared.writer.take() {
                writer.wake();
            }
        }
        let ended = || ClientError::lost(&*self.host, "the session ended");
        let time_max = if kind == packet::EXTENDED { patience::FLUSH_TIME_MAX } else { patience::REPLY_TIME_MAX };
        patience::reply_within(time_max, &self.host, async { receiver.await.unwrap_or_else(|_| Err(ended())) }).await
    }
}

/// Data of the channel, cut into packets.
#[derive(Default)]
struct Packets {
    buffer: BytesMut,
}

impl Packets {
    fn next(&mut self) -> Result<Option<Bytes>, Malformed> {
        let Some(len) = self.buffer.first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_be_bytes(*len) as usize;
        if len > PACKET_BYTES_MAX {
            return Err(Malformed);
        }
        if self.buffer.len() < 4 + len {
            self.buffer.reserve(4 + len - self.buffer.len());
            return Ok(None);
        }
        self.buffer.advance(4);
        Ok(Some(self.buffer.split_to(len).freeze()))
    }

    /// `None` when the channel is closed.
    async fn more(&mut self, read: &mut ChannelReadHalf) -> Option<()> {
        loop {
            match read.wait().await? {
                ChannelMsg::Data { data } => {
                    self.buffer.extend_from_slice(&data);
                    return Some(());
                }
                ChannelMsg::Failure | ChannelMsg::Eof | ChannelMsg::Close => return None,
                _ => {}
            }
        }
    }
}

async fn receive(shared: Rc<RefCell<Shared>>, mut read: ChannelReadHalf, mut packets: Packets, host: String) {
    let error = loop {
        let next = packets.next().and_then(|packet| packet.map(|p| packet::reply(&p)).transpose());
        match next {
            Ok(Some((number, reply))) => {
                // Whoever asked may not want it any more.
                if let Some(waiter) = shared.borrow_mut().waiting.remove(&number) {
                    let _ = waiter.send(Ok(reply));
                }
            }
            Ok(None) => {
                if packets.more(&mut read).await.is_none() {
                    break ClientError::lost(host, "the server closed the channel");
                }
            }
            Err(error) => break ClientError::protocol(host, error),
        }
    };
    shared.borrow_mut().fail_all(error);
}

async fn send(shared: Rc<RefCell<Shared>>, write: ChannelWriteHalf<Msg>, host: String) {
    loop {
        let next = std::future::poll_fn(|cx| {
            let mut shared = shared.borrow_mut();
            match shared.out.pop_front() {
                Some(packet) => Poll::Ready(packet),
                None => {
                    shared.writer = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        });
        let packet = next.await;
        if let Err(error) = write.data_bytes(packet).await {
            shared.borrow_mut().fail_all(ClientError::lost(host, error));
            return;
        }
    }
}
