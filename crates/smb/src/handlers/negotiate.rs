//! NEGOTIATE handler.

use std::sync::Arc;

use binrw::meta::WriteEndian;
use binrw::{BinRead, BinWrite};
use larder_smb_wire::auth::spnego::encode_init_response;
use larder_smb_wire::crypto::{Cipher, SigningAlgo};
use larder_smb_wire::header::{SMB2_HEADER_LEN, Smb2Header};
use larder_smb_wire::messages::{
    Dialect, EncryptionCapabilities, NegotiateContext, NegotiateRequest, NegotiateResponse,
    PreauthIntegrityCapabilities, SigningCapabilities,
};
use tracing::info;

use crate::conn::negotiated::{ClientNegotiate, Negotiated, SIGNING_REQUIRED};
use crate::conn::state::Connection;
use crate::handlers::response::HandlerResponse;
use crate::state::ServerState;
use crate::utils::{fill_random, now_filetime};
use larder_smb_wire::ntstatus;

/// SecurityMode bit (MS-SMB2 2.2.4).
const SIGNING_ENABLED: u16 = 0x0001;

const CAP_LEASING: u32 = 0x0000_0002;
const CAP_DIRECTORY_LEASING: u32 = 0x0000_0020;
const CAP_LARGE_MTU: u32 = 0x0000_0004;
const CAP_MULTI_CHANNEL: u32 = 0x0000_0008;
const CAP_ENCRYPTION: u32 = 0x0000_0040;

/// Size of the fixed part of a NEGOTIATE request, before Dialects.
const NEGOTIATE_FIXED_LEN: usize = 36;

/// SecurityMode the server sends (Connection.ServerSecurityMode).
pub(crate) fn server_security_mode(server: &ServerState) -> u16 {
    if server.auth.settings.require_signing { SIGNING_ENABLED | SIGNING_REQUIRED } else { SIGNING_ENABLED }
}

/// Capabilities the server sends for `dialect` to a client that sent
/// `client_capabilities` (Connection.ServerCapabilities). LEASING is not
/// defined for SMB 2.0.2, and LARGE_MTU needs multi-credit support, which
/// SMB 2.0.2 lacks. MULTI_CHANNEL and DIRECTORY_LEASING go to SMB 3.x clients that have them.
/// ENCRYPTION goes to SMB 3.0 and 3.0.2 clients that have it; 3.1.1 negotiates
/// a cipher instead.
pub(crate) fn server_capabilities(dialect: Dialect, client_capabilities: u32) -> u32 {
    let mut caps = match dialect {
        Dialect::Smb202 => 0,
        _ => CAP_LEASING | CAP_LARGE_MTU,
    };
    if matches!(dialect, Dialect::Smb300 | Dialect::Smb302 | Dialect::Smb311) {
        caps |= client_capabilities & (CAP_MULTI_CHANNEL | CAP_DIRECTORY_LEASING);
    }
    if matches!(dialect, Dialect::Smb300 | Dialect::Smb302) && client_capabilities & CAP_ENCRYPTION != 0 {
        caps |= CAP_ENCRYPTION;
    }
    caps
}

/// Connection.CipherId for an SMB 3.0 or 3.0.2 connection: AES-128-CCM
/// when the client has the ENCRYPTION capability.
fn cipher_30(client_capabilities: u32) -> Option<Cipher> {
    (client_capabilities & CAP_ENCRYPTION != 0).then_some(Cipher::Aes128Ccm)
}

/// The first cipher in the client's list that the server implements.
fn select_cipher(ciphers: &[u16]) -> Option<Cipher> {
    ciphers.iter().find_map(|&id| Cipher::from_id(id))
}

/// What the client's 3.1.1 NegotiateContextList asks of the response.
struct ClientContexts {
    /// The signing algorithm picked from the client's
    /// SMB2_SIGNING_CAPABILITIES, when it sent one.
    signing_algorithm: Option<u16>,
    /// The cipher picked from the client's SMB2_ENCRYPTION_CAPABILITIES,
    /// when it sent one: `Some(None)` when no cipher is in common.
    cipher: Option<Option<Cipher>>,
}

/// Checks the 3.1.1 NegotiateContextList of `req` (MS-SMB2 3.3.5.4).
/// `body` is the request after the SMB2 header.
fn read_contexts(body: &[u8], req: &NegotiateRequest) -> Result<ClientContexts, u32> {
    let invalid = ntstatus::STATUS_INVALID_PARAMETER;
    let field = req.negotiate_context_offset_or_client_start_time;
    let offset = (field & 0xFFFF_FFFF) as usize;
    let count = ((field >> 32) & 0xFFFF) as u16;
    let dialects_end = NEGOTIATE_FIXED_LEN + 2 * req.dialects.len();
    let start = offset.checked_sub(SMB2_HEADER_LEN).ok_or(invalid)?;
    if start < dialects_end || start > body.len() {
        return Err(invalid);
    }
    let list = NegotiateContext::parse_list(&body[start..], count).map_err(|_| invalid)?;

    let of_type = |t: u16| list.iter().filter(move |c| c.context_type == t);
    let mut preauth = of_type(NegotiateContext::TYPE_PREAUTH_INTEGRITY);
    let (Some(preauth), None) = (preauth.next(), preauth.next()) else {
        return Err(invalid);
    };
    for t in [
        NegotiateContext::TYPE_ENCRYPTION,
        NegotiateContext::TYPE_COMPRESSION,
        NegotiateContext::TYPE_RDMA_TRANSFORM,
        NegotiateContext::TYPE_SIGNING,
    ] {
        if of_type(t).count() > 1 {
            return Err(invalid);
        }
    }

    let caps = PreauthIntegrityCapabilities::read(&mut std::io::Cursor::new(&preauth.data)).map_err(|_| invalid)?;
    if !caps.hash_algorithms.contains(&PreauthIntegrityCapabilities::HASH_SHA512) {
        return Err(ntstatus::STATUS_SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP);
    }

    let signing_algorithm = match of_type(NegotiateContext::TYPE_SIGNING).next() {
        Some(ctx) => {
            let caps = SigningCapabilities::read(&mut std::io::Cursor::new(&ctx.data)).map_err(|_| invalid)?;
            if caps.signing_algorithm_count == 0 {
                return Err(invalid);
            }
            // The client's first choice among those implemented; AES-CMAC
            // when it lists none of them.
            let known = [
                SigningCapabilities::ALGORITHM_AES_GMAC,
                SigningCapabilities::ALGORITHM_AES_CMAC,
                SigningCapabilities::ALGORITHM_HMAC_SHA256,
            ];
            let mut offered = caps.signing_algorithms.iter().copied();
            Some(offered.find(|a| known.contains(a)).unwrap_or(SigningCapabilities::ALGORITHM_AES_CMAC))
        }
        None => None,
    };
    let cipher = match of_type(NegotiateContext::TYPE_ENCRYPTION).next() {
        Some(ctx) => {
            let caps = EncryptionCapabilities::read(&mut std::io::Cursor::new(&ctx.data)).map_err(|_| invalid)?;
            if caps.cipher_count == 0 {
                return Err(invalid);
            }
            Some(select_cipher(&caps.ciphers))
        }
        None => None,
    };
    Ok(ClientContexts { signing_algorithm, cipher })
}

pub async fn handle(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    _hdr: &Smb2Header,
    body: &[u8],
) -> HandlerResponse {
    let req = match NegotiateRequest::parse(body) {
        Ok(r) => r,
        Err(_) => return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER),
    };
    if req.dialects.is_empty() {
        return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER);
    }

    let Some(dialect) = select_dialect(&req.dialects) else {
        return HandlerResponse::err(ntstatus::STATUS_NOT_SUPPORTED);
    };
    let contexts = if dialect == Dialect::Smb311 {
        match read_contexts(body, &req) {
            Ok(c) => Some(c),
            Err(status) => return HandlerResponse::err(status),
        }
    } else {
        None
    };

    let signing_algo = signing_algo(dialect, contexts.as_ref());
    let cipher = match (dialect, &contexts) {
        (Dialect::Smb300 | Dialect::Smb302, _) => cipher_30(req.capabilities),
        (Dialect::Smb311, Some(c)) => c.cipher.flatten(),
        _ => None,
    };
    let client = ClientNegotiate {
        capabilities: req.capabilities,
        security_mode: req.security_mode,
        guid: req.client_guid,
        dialects: req.dialects.clone(),
    };
    conn.negotiated.set(Negotiated { dialect, signing_algo, cipher, client });

    let answers = match contexts.as_ref().map(response_contexts).transpose() {
        Ok(answers) => answers,
        Err(status) => return HandlerResponse::err(status),
    };
    let body_out = match response_body(server, conn, dialect, req.capabilities, answers) {
        Ok(body) => body,
        Err(status) => return HandlerResponse::err(status),
    };
    info!(?dialect, "NEGOTIATE complete");
    let mut hr = HandlerResponse::ok(body_out);
    hr.skip_signing = true;
    hr
}

/// Connection.SigningAlgorithmId (MS-SMB2 3.3.5.4).
fn signing_algo(dialect: Dialect, contexts: Option<&ClientContexts>) -> SigningAlgo {
    let signing_algorithm = contexts.and_then(|c| c.signing_algorithm);
    match (dialect, signing_algorithm) {
        (Dialect::Smb202 | Dialect::Smb210, _) => SigningAlgo::HmacSha256,
        (_, Some(SigningCapabilities::ALGORITHM_AES_GMAC)) => SigningAlgo::AesGmac,
        (_, Some(SigningCapabilities::ALGORITHM_HMAC_SHA256)) => SigningAlgo::HmacSha256,
        _ => SigningAlgo::AesCmac,
    }
}

/// The negotiate contexts of a 3.1.1 response (MS-SMB2 2.2.4).
fn response_contexts(client: &ClientContexts) -> Result<Vec<NegotiateContext>, u32> {
    let mut salt = [0u8; 32];
    if let Err(e) = fill_random(&mut salt) {
        tracing::error!(error = %e, "OS RNG failed; cannot generate preauth salt");
        return Err(ntstatus::STATUS_INTERNAL_ERROR);
    }
    let preauth = PreauthIntegrityCapabilities {
        hash_algorithm_count: 1,
        salt_length: 32,
        hash_algorithms: vec![PreauthIntegrityCapabilities::HASH_SHA512],
        salt: salt.to_vec(),
    };
    let mut contexts = vec![context(NegotiateContext::TYPE_PREAUTH_INTEGRITY, &preauth)];
    // SIGNING_CAPABILITIES goes back only to a client that sent one.
    if let Some(algorithm) = client.signing_algorithm {
        let signing = SigningCapabilities { signing_algorithm_count: 1, signing_algorithms: vec![algorithm] };
        contexts.push(context(NegotiateContext::TYPE_SIGNING, &signing));
    }
    // ENCRYPTION_CAPABILITIES too, with cipher 0 when none is in common.
    if let Some(cipher) = client.cipher {
        let ciphers = vec![cipher.map_or(0, Cipher::id)];
        let encryption = EncryptionCapabilities { cipher_count: 1, ciphers };
        contexts.push(context(NegotiateContext::TYPE_ENCRYPTION, &encryption));
    }
    Ok(contexts)
}

fn context(context_type: u16, capabilities: &(impl for<'a> BinWrite<Args<'a> = ()> + WriteEndian)) -> NegotiateContext {
    let mut data = std::io::Cursor::new(Vec::new());
    capabilities.write(&mut data).expect("encoding into a Vec cannot fail");
    let data = data.into_inner();
    NegotiateContext { context_type, data_length: data.len() as u16, reserved: 0, data }
}

/// The response of a NEGOTIATE that chose `dialect`, with the security blob: mechanisms alone, advertising NTLMSSP.
fn response_body(
    server: &ServerState,
    conn: &Connection,
    dialect: Dialect,
    client_capabilities: u32,
    contexts: Option<Vec<NegotiateContext>>,
) -> Result<Vec<u8>, u32> {
    let security_blob = encode_init_response();
    let security_buffer_offset: u16 = 64 + 64; // SMB2 header + fixed NEG response (64 bytes)
    let security_buffer_length: u16 = security_blob.len() as u16;
    // The contexts go after the security buffer, at the next multiple of 8 from the start of the SMB2 header.
    let after_security = u32::from(security_buffer_offset) + u32::from(security_buffer_length);
    let negotiate_context_offset = contexts.as_ref().map_or(0, |_| after_security.next_multiple_of(8));

    let max_read_size = conn.max_read_size;
    let max_write_size = conn.max_write_size;
    let max_transact_size = max_read_size;

    let resp = NegotiateResponse {
        structure_size: 65,
        security_mode: server_security_mode(server),
        dialect_revision: dialect.as_u16(),
        negotiate_context_count_or_reserved: contexts.as_ref().map_or(0, |contexts| contexts.len() as u16),
        server_guid: *server.config.server_guid.as_bytes(),
        capabilities: server_capabilities(dialect, client_capabilities),
        max_transact_size,
        max_read_size,
        max_write_size,
        system_time: now_filetime(),
        server_start_time: 0,
        security_buffer_offset,
        security_buffer_length,
        negotiate_context_offset_or_reserved2: negotiate_context_offset,
        security_buffer: security_blob,
    };

    let mut body_out = Vec::new();
    if let Err(e) = resp.write_to(&mut body_out) {
        tracing::error!(error = %e, "encode NEGOTIATE response");
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    if let Some(contexts) = contexts {
        // Padding up to `negotiate_context_offset`, which counts the header.
        body_out.resize(body_out.len().max(negotiate_context_offset as usize - SMB2_HEADER_LEN), 0);
        let mut encoded = Vec::new();
        if let Err(e) = NegotiateContext::encode_list(&contexts, &mut encoded) {
            tracing::error!(error = %e, "encode_list failed");
            return Err(ntstatus::STATUS_INVALID_PARAMETER);
        }
        body_out.extend_from_slice(&encoded);
    }
    Ok(body_out)
}

/// The greatest dialect in `offered` that the server implements.
pub(crate) fn select_dialect(offered: &[u16]) -> Option<Dialect> {
    const SUPPORTED: &[u16] = &[0x0202, 0x0210, 0x0300, 0x0302, 0x0311];
    offered.iter().copied().filter(|d| SUPPORTED.contains(d)).max().and_then(Dialect::from_u16)
}

/// Build the SMB2 NEGOTIATE response sent in reply to an SMB1 multi-protocol
/// NEGOTIATE_REQUEST that listed an SMB2 dialect (MS-SMB2 §3.3.5.3.1).
///
/// Leaves the connection dialect unset. The client follows up with an SMB2
/// NEGOTIATE, which goes through [`handle`].
pub async fn multi_protocol_response(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    chosen: u16,
) -> HandlerResponse {
    let security_blob = encode_init_response();
    let security_buffer_offset: u16 = 64 + 64;
    let security_buffer_length: u16 = security_blob.len() as u16;
    let max_read_size = conn.max_read_size;
    let max_write_size = conn.max_write_size;
    let max_transact_size = max_read_size;

    let resp = NegotiateResponse {
        structure_size: 65,
        security_mode: server_security_mode(server),
        dialect_revision: chosen,
        negotiate_context_count_or_reserved: 0,
        server_guid: *server.config.server_guid.as_bytes(),
        // MS-SMB2 3.3.5.3.1: the "SMB 2.???" reply advertises leasing.
        capabilities: if chosen == Dialect::Smb2Wildcard.as_u16() { CAP_LEASING } else { 0 },
        max_transact_size,
        max_read_size,
        max_write_size,
        system_time: now_filetime(),
        server_start_time: 0,
        security_buffer_offset,
        security_buffer_length,
        negotiate_context_offset_or_reserved2: 0,
        security_buffer: security_blob,
    };

    let mut body_out = Vec::new();
    if let Err(e) = resp.write_to(&mut body_out) {
        tracing::error!(error = %e, "encode multi-protocol NEGOTIATE response");
        return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    info!(
        chosen = %format_args!("0x{chosen:04X}"),
        "SMB1 multi-protocol -> SMB2"
    );
    let mut hr = HandlerResponse::ok(body_out);
    hr.skip_signing = true;
    hr
}
