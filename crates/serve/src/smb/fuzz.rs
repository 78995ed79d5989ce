//! Input that the SMB server decodes: frames, requests and their contents, logons, remote procedure calls. The decoders
//! are the library's (`larder_smb::fuzzing`); names, rules and times are ours.

use larder_smb::fuzzing as library;

use super::{names, times};

/// A frame: requests one after the other.
pub fn smb_frame(data: &[u8]) {
    library::frame(data);
    library::header(data);
    library::requests(data);
}

/// The body of any request.
pub fn smb_request(data: &[u8]) {
    library::bodies(data);
}

/// Contents of requests: security descriptors, copy-chunk, targets of renames, paths, patterns.
pub fn smb_input(data: &[u8]) {
    library::inputs(data);
}

/// Contexts of a CREATE, and the answers to breaks.
pub fn smb_context(data: &[u8]) {
    library::durable_ask(data);
    library::durable_context(data);
    library::lease_context(data);
    library::lease_ack(data);
}

/// Tokens of a logon: SPNEGO (RFC 4178) and NTLM (MS-NLMP).
pub fn smb_logon(data: &[u8]) {
    library::spnego(data);
    library::ntlm(data);
}

/// The header of an encrypted message (MS-SMB2 2.2.41).
pub fn smb_encrypted(data: &[u8]) {
    library::transform(data);
}

/// Remote procedure calls over a pipe: their packets, associations, and requests to the server service (MS-SRVS).
pub fn smb_rpc(data: &[u8]) {
    library::rpc_pdu(data);
    library::rpc_association(data);
    library::srvsvc_request(data);
}

/// Names and times. The shown form of a name leads back to the name (`names.listed_is_found`).
pub fn smb_name(data: &[u8]) {
    if !data.iter().any(|byte| matches!(byte, 0 | b'/')) {
        let shown = names::shown(data);
        assert!(*names::stored(&shown) == *data || names::verbatim(&shown) == Some(data), "{shown:?}");
    }
    if let Some(ticks) = data.first_chunk::<8>() {
        let _ = times::timestamp(u64::from_le_bytes(*ticks));
    }
}
