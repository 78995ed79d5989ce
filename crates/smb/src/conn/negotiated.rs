//! What NEGOTIATE fixes for the life of a connection. It is set once, so requests read it without a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use uuid::Uuid;

use larder_smb_wire::crypto::{Cipher, SigningAlgo};
use larder_smb_wire::messages::Dialect;

/// SecurityMode bit (MS-SMB2 2.2.3, 2.2.4).
pub(crate) const SIGNING_REQUIRED: u16 = 0x0002;

/// Values from the client's NEGOTIATE request (MS-SMB2 3.3.5.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientNegotiate {
    pub capabilities: u32,
    pub security_mode: u16,
    pub guid: [u8; 16],
    pub dialects: Vec<u16>,
}

impl ClientNegotiate {
    /// Connection.ShouldSign: the client set SMB2_NEGOTIATE_SIGNING_REQUIRED.
    pub fn should_sign(&self) -> bool {
        self.security_mode & SIGNING_REQUIRED != 0
    }
}

/// The outcome of a NEGOTIATE that chose a dialect.
#[derive(Debug)]
pub(crate) struct Negotiated {
    pub dialect: Dialect,
    pub signing_algo: SigningAlgo,
    /// Connection.CipherId: the cipher SMB 3.x sessions encrypt with, `None`
    /// when the client cannot encrypt.
    pub cipher: Option<Cipher>,
    /// For FSCTL_VALIDATE_NEGOTIATE_INFO and the session signing rules.
    pub client: ClientNegotiate,
}

/// A connection's negotiation.
#[derive(Debug, Default)]
pub(crate) struct Negotiation {
    /// SMB1's NEGOTIATE asked for "SMB 2.???": the one of SMB 2 is still to come (MS-SMB2 3.3.5.3.1).
    is_wildcard: AtomicBool,
    done: OnceLock<Negotiated>,
}

impl Negotiation {
    pub(crate) fn set_wildcard(&self) {
        self.is_wildcard.store(true, Ordering::Release);
    }

    /// A connection negotiates once: another NEGOTIATE ends it before it gets here.
    pub(crate) fn set(&self, negotiated: Negotiated) {
        let _ = self.done.set(negotiated);
    }

    /// Connection.Dialect; `None` before the first NEGOTIATE.
    pub(crate) fn dialect(&self) -> Option<Dialect> {
        match self.done.get() {
            Some(done) => Some(done.dialect),
            None => self.is_wildcard.load(Ordering::Acquire).then_some(Dialect::Smb2Wildcard),
        }
    }

    pub(crate) fn signing_algo(&self) -> SigningAlgo {
        self.done.get().map_or(SigningAlgo::HmacSha256, |done| done.signing_algo)
    }

    pub(crate) fn cipher(&self) -> Option<Cipher> {
        self.done.get().and_then(|done| done.cipher)
    }

    /// What the client sent, once a dialect is chosen.
    pub(crate) fn client(&self) -> Option<&ClientNegotiate> {
        self.done.get().map(|done| &done.client)
    }

    /// Connection.ClientGuid; nil before NEGOTIATE.
    pub(crate) fn client_guid(&self) -> Uuid {
        self.client().map_or(Uuid::nil(), |client| Uuid::from_bytes(client.guid))
    }
}

#[cfg(test)]
impl Negotiation {
    /// As the negotiation of a client without a name ends.
    pub(crate) fn set_dialect(&self, dialect: Dialect, signing_algo: SigningAlgo) {
        let client = ClientNegotiate { capabilities: 0, security_mode: 0, guid: [0; 16], dialects: Vec::new() };
        self.set(Negotiated { dialect, signing_algo, cipher: None, client });
    }
}
