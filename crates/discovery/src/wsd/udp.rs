//! The multicast side, from one address of this machine.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::computer::Computer;
use super::message::{self, Request};
use crate::interfaces::Address;

const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 255, 255, 250), 3702);
/// A longer message is none for us: requests have one to two kilobytes.
const DATAGRAM_BYTES_MAX: usize = 8192;
/// Answers a second (`discovery.answers_bounded`): a house full of machines that start at once asks less.
const ANSWERS_PER_SECOND_MAX: u32 = 50;
/// A client sends each request several times, as UDP may lose it; the ids of so many are remembered.
const IDS_MAX: usize = 64;
/// SOAP-over-UDP 1.1, 2: multicast messages are sent more than once.
const REPEAT_AFTER: Duration = Duration::from_millis(200);

/// Announces the computer on one interface until it is dropped.
pub(crate) struct Speaker {
    address: Address,
    out: Arc<UdpSocket>,
    computer: Arc<Computer>,
    task: JoinHandle<()>,
}

impl Drop for Speaker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Speaker {
    pub(crate) async fn start(address: Address, computer: Arc<Computer>) -> std::io::Result<Speaker> {
        let listening = listen(address.ip)?;
        let out = Arc::new(UdpSocket::bind(SocketAddrV4::new(address.ip, 0)).await?);
        sockopt::set_ip_multicast_if(&out, &address.ip)?;
        out.set_multicast_ttl_v4(1)?;
        let (sender, about) = (Arc::clone(&out), Arc::clone(&computer));
        let task = tokio::spawn(async move {
            twice(&sender, &message::hello(&about, address.ip)).await;
            answer_all(&listening, &sender, &about, address).await;
        });
        Ok(Speaker { address, out, computer, task })
    }

    pub(crate) async fn bye(self) {
        tracing::debug!("WS-Discovery ends on {}", self.address.ip);
        twice(&self.out, &message::bye(&self.computer)).await;
    }
}

/// Hears what is sent to the group on the interface that has `address`. Another program may listen, too.
fn listen(address: Ipv4Addr) -> std::io::Result<UdpSocket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    // Bound to the group: neither other groups nor other interfaces' unicast are heard.
    rustix::net::bind(&socket, &SocketAddr::V4(GROUP))?;
    sockopt::set_ip_add_membership(&socket, GROUP.ip(), &address)?;
    UdpSocket::from_std(std::net::UdpSocket::from(socket))
}

async fn twice(out: &UdpSocket, text: &str) {
    let _ = out.send_to(text.as_bytes(), GROUP).await;
    tokio::time::sleep(REPEAT_AFTER).await;
    let _ = out.send_to(text.as_bytes(), GROUP).await;
}

async fn answer_all(listening: &UdpSocket, out: &UdpSocket, computer: &Computer, address: Address) {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let mut heard = Heard::default();
    let own = computer.address();
    loop {
        let (len, from) = match listening.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                tracing::debug!("WS-Discovery hears nothing on {}: {error}", address.ip);
                return;
            }
        };
        let whole = buffer.get(..len).filter(|_| len < DATAGRAM_BYTES_MAX && address.is_on_link(from.ip()));
        let Some(request) = whole.and_then(|bytes| message::parse(bytes, &own)) else { continue };
        if request.what != message::What::Get && heard.is_new(&request, Instant::now()) {
            let _ = out.send_to(message::answer(computer, &request, address.ip).as_bytes(), from).await;
        }
    }
}

/// Requests of late, and how many answers this second has had.
#[derive(Default)]
struct Heard {
    ids: VecDeque<String>,
    second: Option<Instant>,
    answers: u32,
}

impl Heard {
    fn is_new(&mut self, request: &Request, now: Instant) -> bool {
        if self.ids.contains(&request.id) {
            return false;
        }
        if self.second.is_none_or(|began| now.saturating_duration_since(began) >= Duration::from_secs(1)) {
            (self.second, self.answers) = (Some(now), 0);
        }
        if self.answers >= ANSWERS_PER_SECOND_MAX {
            return false;
        }
        self.answers += 1;
        if self.ids.len() >= IDS_MAX {
            self.ids.pop_front();
        }
        self.ids.push_back(request.id.clone());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wsd::message::What;

    #[test]
    fn a_request_is_answered_once_and_floods_are_not() {
        let (mut heard, start) = (Heard::default(), Instant::now());
        let request = |n: u32| Request { id: format!("urn:{n}"), what: What::Probe };
        assert!(heard.is_new(&request(0), start) && !heard.is_new(&request(0), start));
        let answered = (1..1000).filter(|n| heard.is_new(&request(*n), start)).count();
        assert_eq!(answered, ANSWERS_PER_SECOND_MAX as usize - 1);
        assert!(heard.is_new(&request(2000), start + Duration::from_secs(1)));
        assert!(heard.ids.len() <= IDS_MAX);
    }
}
