//! Calls of this server to the lock and status programs of a client. The client's port mapper says where they listen
//! (RFC 1833).
//!
//! - `callout.same_machine`: only the address that the client calls from is connected to, whatever a port mapper says:
//!   nobody makes this server call others.
//! - `callout.from_where_it_called`: the call leaves from the address that the client knows the server by. Linux compares.
//! - `callout.bounded`: each step has its time ([`STEP_MAX`]), and an answer its length.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::time::timeout;

use super::super::rpc::{LAST_FRAGMENT, call_with, reply_results};
use super::super::xdr::{Reader, Writer};

const PORT_MAPPER_PORT: u16 = 111;
const PORT_MAPPER_PROGRAM: u32 = 100_000;
const GET_PORT: (u32, u32, u32) = (PORT_MAPPER_PROGRAM, 2, 3);
/// RPCBPROC_GETADDR of version 3, which knows IPv6.
const GET_ADDRESS: (u32, u32, u32) = (PORT_MAPPER_PROGRAM, 3, 3);
const TCP: u32 = 6;
const UDP: u32 = 17;
/// To connect, and for an answer. A machine of the same network needs milliseconds; one that just starts some seconds.
const STEP_MAX: Duration = Duration::from_secs(5);
/// Answers have a cookie and a word; those of a port mapper an address.
const ANSWER_BYTES_MAX: usize = 4096;

/// A call without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// It was not sent.
    NotSent,
    /// The client may have carried it out.
    Sent,
}

/// A way to the programs of a client.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub client: IpAddr,
    /// The address that the client called; `None`: the kernel chooses.
    pub from: Option<IpAddr>,
}

impl Way {
    /// Calls a procedure of a program; the results of its answer.
    pub async fn call(&self, what: (u32, u32, u32), args: &[u8]) -> Result<Vec<u8>, NoAnswer> {
        let (program, version, _) = what;
        let machine = credential();
        if let Some(port) = self.port(program, version, TCP).await {
            return self.over_tcp(port, what, Some(&machine), args).await;
        }
        let port = self.port(program, version, UDP).await.ok_or(NoAnswer::NotSent)?;
        self.over_udp(port, what, Some(&machine), args).await
    }

    async fn port(&self, program: u32, version: u32, protocol: u32) -> Option<u16> {
        let mut w = Writer::default();
        let is_new = self.client.is_ipv6();
        w.u32(program);
        w.u32(version);
        if is_new {
            w.opaque(if protocol == TCP { b"tcp6" } else { b"udp6" });
            w.opaque(b"");
            w.opaque(b"");
        } else {
            w.u32(protocol);
            w.u32(0);
        }
        let (what, args) = (if is_new { GET_ADDRESS } else { GET_PORT }, w.into_inner());
        let found = match self.over_tcp(PORT_MAPPER_PORT, what, None, &args).await {
            Ok(found) => found,
            Err(_) => self.over_udp(PORT_MAPPER_PORT, what, None, &args).await.ok()?,
        };
        port_in(&found, is_new)
    }

    async fn over_tcp(
        &self,
        port: u16,
        what: (u32, u32, u32),
        cred: Option<&[u8]>,
        args: &[u8],
    ) -> Result<Vec<u8>, NoAnswer> {
        let connecting = async {
            let socket = if self.client.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            if let Some(from) = self.from.filter(|from| from.is_ipv4() == self.client.is_ipv4()) {
                socket.bind(SocketAddr::new(from, 0))?;
            }
            socket.connect(SocketAddr::new(self.client, port)).await
        };
        let connected = timeout(STEP_MAX, connecting).await;
        let Ok(Ok(mut stream)) = connected else { return Err(NoAnswer::NotSent) };
        let call = call_with(rand::random(), what, cred, args);
        let answering = async {
            stream.write_all(&call).await?;
            let mark = stream.read_u32().await?;
            let bytes = usize::try_from(mark & !LAST_FRAGMENT).unwrap_or(usize::MAX);
            if mark & LAST_FRAGMENT == 0 || bytes > ANSWER_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut answer = vec![0; bytes];
            stream.read_exact(&mut answer).await?;
            Ok::<_, io::Error>(answer)
        };
        let answer = timeout(STEP_MAX, answering).await;
        let Ok(Ok(answer)) = answer else { return Err(NoAnswer::Sent) };
        results(&call, &answer)
    }

    async fn over_udp(
        &self,
        port: u16,
        what: (u32, u32, u32),
        cred: Option<&[u8]>,
        args: &[u8],
    ) -> Result<Vec<u8>, NoAnswer> {
        let any = if self.client.is_ipv4() { IpAddr::from([0; 4]) } else { Ipv6Addr::UNSPECIFIED.into() };
        let from = self.from.filter(|from| from.is_ipv4() == self.client.is_ipv4()).unwrap_or(any);
        let call = call_with(rand::random(), what, cred, args);
        let sending = async {
            let socket = UdpSocket::bind(SocketAddr::new(from, 0)).await?;
            socket.connect(SocketAddr::new(self.client, port)).await?;
            // A datagram has no record mark.
            socket.send(call.get(4..).unwrap_or_default()).await?;
            Ok::<_, io::Error>(socket)
        };
        let Ok(socket) = sending.await else { return Err(NoAnswer::NotSent) };
        let mut answer = [0; ANSWER_BYTES_MAX];
        let Ok(Ok(bytes)) = timeout(STEP_MAX, socket.recv(&mut answer)).await else { return Err(NoAnswer::Sent) };
        results(&call, answer.get(..bytes).unwrap_or_default())
    }
}

/// The results of the answer to this very call.
fn results(call: &[u8], answer: &[u8]) -> Result<Vec<u8>, NoAnswer> {
    let is_answer = call.get(4..8) == answer.get(..4);
    let results = reply_results(answer).filter(|_| is_answer);
    // A refusal was read, but nothing was carried out.
    results.map(<[u8]>::to_vec).ok_or(if is_answer { NoAnswer::NotSent } else { NoAnswer::Sent })
}

/// AUTH_SYS of root: some clients refuse calls of nobody.
fn credential() -> Vec<u8> {
    let mut w = Writer::default();
    w.u32(0);
    w.opaque(b"larder");
    [0; 3].into_iter().for_each(|word| w.u32(word));
    w.into_inner()
}

/// The port in an answer of a port mapper: of version 2 a number, of version 3 the end of a universal address
/// (`callout.same_machine`).
pub fn port_in(results: &[u8], is_new: bool) -> Option<u16> {
    const ADDRESS_BYTES_MAX: usize = 256;
    let mut r = Reader::new(results);
    let port = match is_new {
        false => u16::try_from(r.u32().ok()?).ok()?,
        true => {
            let address = std::str::from_utf8(r.opaque(ADDRESS_BYTES_MAX).ok()?).ok()?;
            let mut parts = address.rsplit('.');
            let (low, high) = (parts.next()?.parse::<u8>().ok()?, parts.next()?.parse::<u8>().ok()?);
            u16::from_be_bytes([high, low])
        }
    };
    (port != 0).then_some(port)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ports_of_port_mappers() {
        let new = |address: &str| {
            let mut w = Writer::default();
            w.opaque(address.as_bytes());
            port_in(&w.into_inner(), true)
        };
        assert_eq!(new("::1.3.7"), Some(3 * 256 + 7));
        assert_eq!(["", "::1", "::1.0.0", "1.2.3.4.300.1", "x"].map(new), [None; 5]);
        assert_eq!(port_in(&2049u32.to_be_bytes(), false), Some(2049));
        assert_eq!(port_in(&0u32.to_be_bytes(), false), None);
        assert_eq!(port_in(&70_000u32.to_be_bytes(), false), None);
    }
}
