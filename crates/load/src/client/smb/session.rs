//! From a connection to a share: NEGOTIATE, a logon by NTLM, TREE_CONNECT (MS-SMB2 3.2.4.2).

use std::time::UNIX_EPOCH;

use larder_smb_wire::answers::{self, Negotiated};
use larder_smb_wire::auth::ntlm::{Direction, NtlmMac};
use larder_smb_wire::auth::ntlm_client::{Fresh, Logon, authenticate, negotiate_message};
use larder_smb_wire::auth::spnego;
use larder_smb_wire::crypto::{Cipher, SessionCipher, SigningAlgo, random, signing_key_30, signing_key_311, verify};
use larder_smb_wire::header::{Command, SMB2_FLAGS_SIGNED};
use larder_smb_wire::messages::{
    Dialect, NegotiateContext, NegotiateRequest, PreauthIntegrityCapabilities, SessionSetupRequest,
    SessionSetupResponse, SigningCapabilities, TreeConnectRequest, TreeConnectResponse,
};

use super::connection::{Answer, Connection, Protection};
use super::failure::{Failure, STATUS_MORE_PROCESSING_REQUIRED};
use super::requests::{Request, TRANSFER_BYTES_MAX};

const DIALECTS: [Dialect; 5] = [Dialect::Smb202, Dialect::Smb210, Dialect::Smb300, Dialect::Smb302, Dialect::Smb311];
/// What the processors of both ends do fastest comes first.
const CIPHERS: [Cipher; 4] = [Cipher::Aes128Gcm, Cipher::Aes128Ccm, Cipher::Aes256Gcm, Cipher::Aes256Ccm];
const SIGNING: [u16; 3] = [
    SigningCapabilities::ALGORITHM_AES_GMAC,
    SigningCapabilities::ALGORITHM_AES_CMAC,
    SigningCapabilities::ALGORITHM_HMAC_SHA256,
];
/// MS-SMB2 2.2.3: SMB2_NEGOTIATE_SIGNING_ENABLED; LARGE_MTU and ENCRYPTION. Without the latter
/// Samba agrees to no cipher.
const SIGNING_ENABLED: u8 = 1;
const CAPABILITIES: u32 = 0x04 | 0x40;
/// The first byte behind the fixed fields, from the header on.
const CONTEXTS_OFFSET: u64 = 112;
const TOKEN_OFFSET: u16 = 88;
const TREE_PATH_OFFSET: u16 = 72;
const SALT_BYTES: usize = 32;
/// MS-SMB2 2.2.6, 2.2.10.
const SESSION_ENCRYPTS: u16 = 0x04;
const SHARE_ENCRYPTS: u32 = 0x8000;
/// Between the FILETIME's beginning and 1970.
const FILETIME_1970_S: u64 = 11_644_473_600;

fn contexts() -> Result<Vec<u8>, Failure> {
    let ciphers = CIPHERS.map(Cipher::id);
    let of = |context_type, words: &[u16], rest: &[u8]| {
        let data: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).chain(rest.iter().copied()).collect();
        NegotiateContext { context_type, data_length: data.len() as u16, reserved: 0, data }
    };
    let hash = [1, SALT_BYTES as u16, PreauthIntegrityCapabilities::HASH_SHA512];
    let list = [
        of(NegotiateContext::TYPE_PREAUTH_INTEGRITY, &hash, &random::<SALT_BYTES>()?),
        of(NegotiateContext::TYPE_ENCRYPTION, &[&[ciphers.len() as u16][..], &ciphers].concat(), &[]),
        of(NegotiateContext::TYPE_SIGNING, &[&[SIGNING.len() as u16][..], &SIGNING].concat(), &[]),
    ];
    let mut out = Vec::new();
    NegotiateContext::encode_list(&list, &mut out)?;
    Ok(out)
}

pub(super) async fn negotiate(connection: &Connection) -> Result<Negotiated, Failure> {
    let request = NegotiateRequest {
        structure_size: 36,
        dialect_count: DIALECTS.len() as u16,
        security_mode: SIGNING_ENABLED.into(),
        reserved: 0,
        capabilities: CAPABILITIES,
        client_guid: random()?,
        // NegotiateContextOffset and NegotiateContextCount.
        negotiate_context_offset_or_client_start_time: CONTEXTS_OFFSET | 3 << 32,
        dialects: DIALECTS.map(Dialect::as_u16).to_vec(),
    };
    let contexts = contexts()?;
    let request = Request::new(Command::Negotiate, |body| {
        request.write_to(body)?;
        body.resize(CONTEXTS_OFFSET as usize - 64, 0);
        body.extend_from_slice(&contexts);
        Ok(())
    })?;
    let [answer] = connection.call([request]).await?;
    let negotiated = answers::negotiated(&answer.success()?.message)?;
    connection.set_large_mtu(negotiated.large_mtu);
    Ok(negotiated)
}

/// A logon that succeeded, with its keys.
pub(super) struct Session {
    negotiated: Negotiated,
    is_stranger: bool,
    is_signed: bool,
    key: [u8; 16],
    preauth_hash: [u8; 64],
}

async fn set_up(connection: &Connection, token: Vec<u8>) -> Result<Answer, Failure> {
    let request = SessionSetupRequest {
        structure_size: 25,
        flags: 0,
        security_mode: SIGNING_ENABLED,
        capabilities: 0,
        channel: 0,
        security_buffer_offset: TOKEN_OFFSET,
        security_buffer_length: token.len() as u16,
        previous_session_id: 0,
        security_buffer: token,
    };
    let [answer] = connection.call([Request::new(Command::SessionSetup, |body| request.write_to(body))?]).await?;
    connection.set_session(answer.header.session_id);
    Ok(answer)
}

/// Without a user: as a guest. A user that a server takes for a guest is refused.
pub(super) async fn log_on(
    connection: &Connection,
    negotiated: Negotiated,
    user: &str,
    password: &str,
) -> Result<Session, Failure> {
    let first = negotiate_message();
    let answer = set_up(connection, spnego::encode_init_token(Some(&first))).await?;
    if answer.status() != STATUS_MORE_PROCESSING_REQUIRED {
        return Err(answer.failure());
    }
    let token = spnego::decode_resp_token(answers::session_setup(&answer.message)?.1)?;
    let challenge = token.response_token.ok_or_else(|| Failure::broken("it challenges without a challenge"))?;
    let now = UNIX_EPOCH.elapsed().unwrap_or_default();
    let time = (now.as_secs() + FILETIME_1970_S) * 10_000_000;
    let fresh = Fresh { challenge: random()?, session_key: random()?, time };
    let logon = Logon { user, password, domain: "" };
    let sent = authenticate(&logon, &first, &challenge, &fresh)?;
    let mic = NtlmMac::new(sent.flags, &sent.session_key, Direction::ClientToServer);
    let mic = mic.map(|mut mic| mic.mac(&spnego::ntlm_mech_types()));
    let state = spnego::NegState::AcceptIncomplete;
    let token = spnego::encode_resp_token(state, None, Some(&sent.message), mic.as_ref().map(|mic| &mic[..]));
    let answer = set_up(connection, token).await?.success()?;

    let (flags, _) = answers::session_setup(&answer.message)?;
    let is_stranger = flags & (SessionSetupResponse::FLAG_IS_GUEST | SessionSetupResponse::FLAG_IS_NULL) != 0;
    let is_named = !user.is_empty() && !user.eq_ignore_ascii_case("guest");
    if is_stranger && is_named {
        return Err(Failure::GuestOnly);
    }
    let is_signed = negotiated.signing_required || !is_stranger;
    let preauth_hash = connection.preauth_hash();
    let session = Session { negotiated, is_stranger, is_signed, key: sent.session_key, preauth_hash };
    let (key, algo) = session.signing();
    // The flags above say whether anything is protected from here on: they are proven first.
    let is_proven = answer.header.flags & SMB2_FLAGS_SIGNED != 0;
    if is_named && is_proven {
        verify(&answer.message, &key, algo)?;
    } else if is_named && session.negotiated.dialect.as_u16() >= Dialect::Smb300.as_u16() {
        return Err(Failure::broken("the answer to the logon is not signed"));
    }
    if is_signed {
        connection.protect(Protection::Signed(key, algo));
    }
    if flags & SESSION_ENCRYPTS != 0 {
        session.encrypt(connection).map_err(Failure::broken)?;
    }
    Ok(session)
}

impl Session {
    fn signing(&self) -> ([u8; 16], SigningAlgo) {
        let key = match self.negotiated.dialect {
            Dialect::Smb311 => signing_key_311(&self.key, &self.preauth_hash),
            Dialect::Smb300 | Dialect::Smb302 => signing_key_30(&self.key),
            _ => self.key,
        };
        (key, self.negotiated.signing)
    }

    /// From the next request on; or why not.
    pub fn encrypt(&self, connection: &Connection) -> Result<(), &'static str> {
        let cipher = self
            .negotiated
            .cipher
            .ok_or("the server agreed to no cipher: turn encryption on there (Samba: server smb encrypt = desired)")?;
        if self.is_stranger {
            return Err("a session without a user has no keys to encrypt with: give a user and a password");
        }
        let hash = (self.negotiated.dialect == Dialect::Smb311).then_some(&self.preauth_hash);
        connection.protect(Protection::Encrypted(SessionCipher::derive_for_client(cipher, &self.key, hash)));
        Ok(())
    }

    /// As it was negotiated, for a person.
    pub fn protection(&self, connection: &Connection) -> String {
        match (connection.is_encrypted(), self.negotiated.cipher) {
            (true, Some(cipher)) => format!("encrypted with {cipher:?}"),
            _ if self.is_signed && self.negotiated.signing == SigningAlgo::AesGmac => "signed with AES-GMAC".into(),
            _ if self.is_signed => "signed".into(),
            _ => "neither signed nor encrypted".into(),
        }
    }

    pub fn dialect(&self) -> &'static str {
        match self.negotiated.dialect {
            Dialect::Smb202 | Dialect::Smb2Wildcard => "SMB 2.0.2",
            Dialect::Smb210 => "SMB 2.1",
            Dialect::Smb300 => "SMB 3.0",
            Dialect::Smb302 => "SMB 3.0.2",
            Dialect::Smb311 => "SMB 3.1.1",
        }
    }

    /// The most bytes of one READ and of one WRITE.
    pub fn transfer_bytes_max(&self, connection: &Connection) -> (u64, u64) {
        let most = connection.transfer_bytes_max().min(TRANSFER_BYTES_MAX);
        let size = |told: u32| u64::from(told.clamp(1, most.max(1)));
        (size(self.negotiated.read_bytes_max), size(self.negotiated.write_bytes_max))
    }
}

/// Whether the share wants encryption although its server does not (MS-SMB2 2.2.10).
pub(super) async fn connect_tree(connection: &Connection, host: &str, share: &str) -> Result<bool, Failure> {
    let path: Vec<u8> = format!(r"\\{host}\{share}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    let (path_offset, path_length) = (TREE_PATH_OFFSET, path.len() as u16);
    let request = TreeConnectRequest { structure_size: 9, flags: 0, path_offset, path_length, path };
    let [answer] = connection.call([Request::new(Command::TreeConnect, |body| request.write_to(body))?]).await?;
    let answer = answer.success()?;
    let tree = answer.header.tree_id().ok_or_else(|| Failure::broken("a share without a number"))?;
    connection.set_tree(tree);
    Ok(TreeConnectResponse::parse(answer.body())?.share_flags & SHARE_ENCRYPTS != 0)
}
