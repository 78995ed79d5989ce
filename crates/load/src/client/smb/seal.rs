//! Says in NEGOTIATE that this client encrypts (SMB2_GLOBAL_CAP_ENCRYPTION, MS-SMB2 2.2.3). The library leaves it out
//! although it offers ciphers, and Samba agrees to none without it.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use smb2::client::Connection;
use smb2::crypto::kdf::PreauthHasher;
use smb2::transport::{ConnectOptions, ReceiveProgress, TcpTransport, TransportReceive, TransportSend};

/// MS-SMB2 2.2.1.2: the command, and its number for NEGOTIATE; 2.2.3: where a NEGOTIATE has its capabilities.
const COMMAND_AT: usize = 12;
const NEGOTIATE: [u8; 2] = [0, 0];
const CAPABILITIES_AT: usize = 64 + 8;
const CAP_ENCRYPTION: u8 = 0x40;

/// The exchanged messages: keys are derived from every byte of them (MS-SMB2 3.1.4.4.1).
#[derive(Default)]
struct Negotiation {
    request: Vec<u8>,
    response: Vec<u8>,
}

struct Sealing {
    tcp: TcpTransport,
    seen: Arc<Mutex<Negotiation>>,
}

/// A NEGOTIATE that says so; nothing for any other message.
fn sealing(message: &[u8]) -> Option<Vec<u8>> {
    if message.get(COMMAND_AT..COMMAND_AT + 2)? != NEGOTIATE || !message.starts_with(b"\xfeSMB") {
        return None;
    }
    let mut changed = message.to_vec();
    *changed.get_mut(CAPABILITIES_AT)? |= CAP_ENCRYPTION;
    Some(changed)
}

/// Both halves of one connection.
struct Half(Arc<Sealing>);

#[async_trait]
impl TransportSend for Half {
    async fn send(&self, data: &[u8]) -> smb2::Result<()> {
        let Some(changed) = sealing(data) else { return self.0.tcp.send(data).await };
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner).request.clone_from(&changed);
        self.0.tcp.send(&changed).await
    }
}

#[async_trait]
impl TransportReceive for Half {
    async fn receive(&self) -> smb2::Result<Vec<u8>> {
        let frame = self.0.tcp.receive().await?;
        let mut seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.response.is_empty() {
            seen.response.clone_from(&frame);
        }
        Ok(frame)
    }

    fn receive_progress(&self) -> Option<Arc<ReceiveProgress>> {
        self.0.tcp.receive_progress()
    }
}

/// Connected and negotiated.
pub(super) async fn connect(address: &str, host: &str, options: ConnectOptions) -> smb2::Result<Connection> {
    let tcp = TcpTransport::connect_with(address, options).await?;
    let seen: Arc<Mutex<Negotiation>> = Arc::default();
    let transport = Arc::new(Sealing { tcp, seen: seen.clone() });
    let mut connection = Connection::from_transport(Box::new(Half(transport.clone())), Box::new(Half(transport)), host);
    connection.set_response_timeout(Some(crate::client::patience::FLUSH_TIME_MAX));
    connection.negotiate().await?;
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    connection.with_preauth_hasher_mut(|hasher| {
        *hasher = PreauthHasher::new();
        hasher.update(&seen.request);
        hasher.update(&seen.response);
    });
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_negotiate_is_changed() {
        let mut message = vec![0u8; 100];
        message[..4].copy_from_slice(b"\xfeSMB");
        let changed = sealing(&message).unwrap();
        assert_eq!((changed[CAPABILITIES_AT], changed.len()), (CAP_ENCRYPTION, 100));
        assert_eq!(sealing(&message[..70]), None);
        message[COMMAND_AT] = 1;
        assert_eq!(sealing(&message), None);
        assert_eq!(sealing(b"\xfdSMB"), None);
    }
}
