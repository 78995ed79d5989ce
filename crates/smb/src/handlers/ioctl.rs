//! IOCTL handler (MS-SMB2 3.3.5.15): FSCTL_VALIDATE_NEGOTIATE_INFO,
//! FSCTL_SRV_ENUMERATE_SNAPSHOTS, server-side copies, sparse
//! files, object ids, STATUS_FS_DRIVER_REQUIRED for DFS referrals. The rest is answered as
//! Windows does: a file system's control code with
//! STATUS_INVALID_DEVICE_REQUEST, any other with STATUS_NOT_SUPPORTED.

use std::sync::Arc;

use larder_smb_wire::header::{SMB2_HEADER_LEN, Smb2Header};
use larder_smb_wire::messages::{Dialect, FileId, Fsctl, IoctlRequest, IoctlResponse};
use tracing::warn;

use crate::conn::state::{Connection, Open};
use crate::door::view::VisitedShare;
use crate::handlers::interfaces;
use crate::handlers::negotiate::{select_dialect, server_capabilities, server_security_mode};
use crate::handlers::response::{Answered, HandlerResponse};
use crate::handlers::shared::{RequestTree, begin_change, lookup_open};
use crate::handlers::{copychunk, snapshots, sparse};
use crate::state::ServerState;
use larder_smb_wire::ntstatus;

/// The device type in a file system's control codes (MS-FSCC 2.3).
const FILE_DEVICE_FILE_SYSTEM: u32 = 0x9;

const FSCTL_GET_COMPRESSION: u32 = 0x0009_003C;
const FSCTL_SET_COMPRESSION: u32 = 0x0009_C040;
const COMPRESSION_FORMAT_NONE: [u8; 2] = [0; 2];

const FSCTL_CREATE_OR_GET_OBJECT_ID: u32 = 0x0009_00C0;
/// Size of a FILE_OBJECTID_BUFFER (MS-FSCC 2.1.3).
const OBJECT_ID_LEN: usize = 64;

/// Size of the fixed part of an IOCTL request, before Buffer.
const IOCTL_FIXED_LEN: usize = 56;

/// Size of a VALIDATE_NEGOTIATE_INFO response (MS-SMB2 2.2.32.6).
const VALIDATE_NEGOTIATE_RESPONSE_LEN: u32 = 24;

/// Offset of the response Buffer from the start of the SMB2 header.
const RESPONSE_BUFFER_OFFSET: u32 = 0x70;

pub async fn handle(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    (hdr, tree): (&Smb2Header, &RequestTree),
    body: &[u8],
) -> Answered {
    let tree = tree.as_ref().map_err(|status| *status)?;
    let req = IoctlRequest::parse(body).map_err(|_| ntstatus::STATUS_INVALID_PARAMETER)?;
    if req.flags != IoctlRequest::FLAG_IS_FSCTL {
        return Err(ntstatus::STATUS_NOT_SUPPORTED);
    }

    let fsctl = req.fsctl();
    let open = if takes_no_file(fsctl) {
        if req.file_id != FileId::any() {
            return Err(ntstatus::STATUS_INVALID_PARAMETER);
        }
        None
    } else {
        Some(lookup_open(tree, req.file_id).ok_or(ntstatus::STATUS_FILE_CLOSED)?)
    };

    let _under_way = match &open {
        Some(open) => begin_change(conn, hdr, &*open.read().await)?,
        None => None,
    };
    let max_transact = conn.max_read_size;
    if req.input_count > max_transact || req.max_input_response > max_transact || req.max_output_response > max_transact
    {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let input = input_buffer(&req, body).ok_or(ntstatus::STATUS_INVALID_PARAMETER)?;

    let of_file = open.as_ref().ok_or(ntstatus::STATUS_FILE_CLOSED);
    Ok(match fsctl {
        Fsctl::ValidateNegotiateInfo => validate_negotiate_info(server, conn, &req, input).await,
        Fsctl::QueryNetworkInterfaceInfo => {
            let interfaces = server.interfaces.as_ref().map(|list| list()).unwrap_or_default();
            if interfaces.is_empty() {
                return Err(ntstatus::STATUS_NOT_SUPPORTED);
            }
            match interfaces::encode(&interfaces, req.max_output_response as usize) {
                none if none.is_empty() => return Err(ntstatus::STATUS_BUFFER_TOO_SMALL),
                out => response(req.ctl_code, req.file_id, out),
            }
        }
        Fsctl::SrvEnumerateSnapshots => {
            let file_id = match &open {
                Some(open) => open.read().await.file_id,
                None => req.file_id,
            };
            let moments = tree.view().map(VisitedShare::moments).unwrap_or_default();
            let array = snapshots::array(&moments, req.max_output_response as usize);
            response(req.ctl_code, file_id, array.ok_or(ntstatus::STATUS_INVALID_PARAMETER)?)
        }
        Fsctl::DfsGetReferrals | Fsctl::DfsGetReferralsEx => return Err(ntstatus::STATUS_FS_DRIVER_REQUIRED),
        Fsctl::SrvCopychunk | Fsctl::SrvCopychunkWrite => {
            copychunk::copy(conn, hdr.session_id, &req, input, of_file?).await
        }
        Fsctl::DuplicateExtents => copychunk::duplicate(conn, hdr.session_id, &req, input, of_file?).await,
        _ => match &open {
            Some(open) => on_file(&req, input, &*open.read().await).await,
            None => return Err(ntstatus::STATUS_NOT_SUPPORTED),
        },
    })
}

/// The control codes that work on one open.
async fn on_file(req: &IoctlRequest, input: &[u8], open: &Open) -> HandlerResponse {
    match req.fsctl() {
        Fsctl::SrvRequestResumeKey => copychunk::resume_key(req, open),
        Fsctl::SetSparse => sparse::set_sparse(req, input, open).await,
        Fsctl::SetZeroData => sparse::set_zero_data(req, input, open).await,
        Fsctl::QueryAllocatedRanges => sparse::allocated_ranges(req, input, open).await,
        // MS-FSA 2.1.5.10.9, 2.1.5.10.33: a store that compresses nothing.
        Fsctl::Other(FSCTL_GET_COMPRESSION) if req.max_output_response < 2 => {
            HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER)
        }
        Fsctl::Other(FSCTL_GET_COMPRESSION) => response(req.ctl_code, req.file_id, vec![0; 2]),
        Fsctl::Other(FSCTL_SET_COMPRESSION) if input == COMPRESSION_FORMAT_NONE => {
            response(req.ctl_code, req.file_id, Vec::new())
        }
        Fsctl::Other(FSCTL_SET_COMPRESSION) => HandlerResponse::err(ntstatus::STATUS_NOT_SUPPORTED),
        Fsctl::Other(FSCTL_CREATE_OR_GET_OBJECT_ID) => object_id(req, open).await,
        Fsctl::Other(code) if code >> 16 == FILE_DEVICE_FILE_SYSTEM => {
            HandlerResponse::err(ntstatus::STATUS_INVALID_DEVICE_REQUEST)
        }
        _ => HandlerResponse::err(ntstatus::STATUS_NOT_SUPPORTED),
    }
}

/// The file's number as its ObjectId and BirthObjectId, which never change; no
/// BirthVolumeId or DomainId (MS-FSCC 2.1.3.1).
async fn object_id(req: &IoctlRequest, open: &Open) -> HandlerResponse {
    if (req.max_output_response as usize) < OBJECT_ID_LEN {
        return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let Some(handle) = &open.handle else {
        return HandlerResponse::err(ntstatus::STATUS_FILE_CLOSED);
    };
    let index = match handle.stat().await {
        Ok(info) => info.file_index.to_le_bytes(),
        Err(e) => return HandlerResponse::err(e.to_nt_status()),
    };
    let mut buffer = vec![0; OBJECT_ID_LEN];
    buffer[..8].copy_from_slice(&index);
    buffer[32..40].copy_from_slice(&index);
    response(req.ctl_code, req.file_id, buffer)
}

/// Whether `fsctl` names no open: its FileId must be all 0xFF (MS-SMB2
/// 3.3.5.15).
pub(super) fn takes_no_file(fsctl: Fsctl) -> bool {
    matches!(
        fsctl,
        Fsctl::DfsGetReferrals
            | Fsctl::DfsGetReferralsEx
            | Fsctl::QueryNetworkInterfaceInfo
            | Fsctl::ValidateNegotiateInfo
            | Fsctl::PipeWait
    )
}

/// The request's input buffer, located by InputOffset, or `None` when the
/// offset and count break the rules of MS-SMB2 3.3.5.15.
pub(super) fn input_buffer<'a>(req: &IoctlRequest, body: &'a [u8]) -> Option<&'a [u8]> {
    if req.input_count == 0 {
        return Some(&[]);
    }
    let offset = req.input_offset as usize;
    if offset < SMB2_HEADER_LEN + IOCTL_FIXED_LEN || !offset.is_multiple_of(8) {
        return None;
    }
    let start = offset - SMB2_HEADER_LEN;
    let end = start.checked_add(req.input_count as usize)?;
    body.get(start..end)
}

/// An IOCTL response carrying `output` (MS-SMB2 2.2.32).
pub(super) fn response(ctl_code: u32, file_id: FileId, output: Vec<u8>) -> HandlerResponse {
    let resp = IoctlResponse {
        structure_size: 49,
        reserved: 0,
        ctl_code,
        file_id,
        input_offset: RESPONSE_BUFFER_OFFSET,
        input_count: 0,
        output_offset: RESPONSE_BUFFER_OFFSET,
        output_count: output.len() as u32,
        flags: 0,
        reserved2: 0,
        output,
    };
    let mut buf = Vec::new();
    resp.write_to(&mut buf).expect("IOCTL response encodes");
    HandlerResponse::ok(buf)
}

/// MS-SMB2 3.3.5.15.12. Every mismatch with the NEGOTIATE the client sent
/// closes the connection: it means the negotiation was tampered with.
async fn validate_negotiate_info(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    req: &IoctlRequest,
    input: &[u8],
) -> HandlerResponse {
    let dialect = conn.negotiated.dialect();
    let client = conn.negotiated.client();
    let terminate = |reason: &str| {
        warn!(reason, "VALIDATE_NEGOTIATE_INFO failed; closing the connection");
        conn.request_disconnect();
        HandlerResponse::err(ntstatus::STATUS_ACCESS_DENIED)
    };

    let (Some(dialect), Some(client)) = (dialect, client) else {
        return terminate("no negotiated dialect");
    };
    if dialect == Dialect::Smb311 {
        return terminate("not used with SMB 3.1.1");
    }
    if req.max_output_response < VALIDATE_NEGOTIATE_RESPONSE_LEN {
        return terminate("MaxOutputResponse too small");
    }
    let Some(request) = ValidateNegotiateRequest::parse(input) else {
        return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER);
    };
    if request.dialects != client.dialects {
        return terminate("dialects differ");
    }
    if select_dialect(&request.dialects) != Some(dialect) {
        return terminate("dialect differs");
    }
    if request.guid != client.guid {
        return terminate("client GUID differs");
    }
    if request.security_mode != client.security_mode {
        return terminate("security mode differs");
    }
    if request.capabilities != client.capabilities {
        return terminate("capabilities differ");
    }

    let mut out = Vec::with_capacity(VALIDATE_NEGOTIATE_RESPONSE_LEN as usize);
    out.extend_from_slice(&server_capabilities(dialect, client.capabilities).to_le_bytes());
    out.extend_from_slice(conn.server_guid.as_bytes());
    out.extend_from_slice(&server_security_mode(server).to_le_bytes());
    out.extend_from_slice(&dialect.as_u16().to_le_bytes());
    response(Fsctl::VALIDATE_NEGOTIATE_INFO, FileId::any(), out)
}

/// VALIDATE_NEGOTIATE_INFO request (MS-SMB2 2.2.31.4).
struct ValidateNegotiateRequest {
    capabilities: u32,
    guid: [u8; 16],
    security_mode: u16,
    dialects: Vec<u16>,
}

impl ValidateNegotiateRequest {
    fn parse(input: &[u8]) -> Option<Self> {
        let fixed = input.get(..24)?;
        let count = u16::from_le_bytes([fixed[22], fixed[23]]) as usize;
        let list = input.get(24..24 + 2 * count)?;
        Some(Self {
            capabilities: u32::from_le_bytes(fixed[0..4].try_into().ok()?),
            guid: fixed[4..20].try_into().ok()?,
            security_mode: u16::from_le_bytes([fixed[20], fixed[21]]),
            dialects: list.chunks_exact(2).map(|d| u16::from_le_bytes([d[0], d[1]])).collect(),
        })
    }
}

/// Parses `data` as the input of FSCTL_VALIDATE_NEGOTIATE_INFO.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(data: &[u8]) {
    if let Some(request) = ValidateNegotiateRequest::parse(data) {
        assert!(2 * request.dialects.len() <= data.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::negotiated::{ClientNegotiate, Negotiated};
    use crate::conn::state::{Session, TreeConnect};
    use crate::share::ShareBindings;
    use larder_smb_wire::access_mask::Access;
    use larder_smb_wire::auth::ntlm::Identity;
    use larder_smb_wire::header::{Command, HeaderTail};

    const GUID: [u8; 16] = [0xCD; 16];
    const DIALECTS: [u16; 2] = [0x0300, 0x0302];

    async fn connection(dialect: Dialect) -> (Arc<ServerState>, Arc<Connection>) {
        offered(dialect, &DIALECTS).await
    }

    async fn offered(dialect: Dialect, dialects: &[u16]) -> (Arc<ServerState>, Arc<Connection>) {
        let server = crate::SmbServer::builder().listen("127.0.0.1:0".parse().unwrap()).build().expect("build").state();
        let conn = Arc::new(Connection::new(server.config.server_guid, 65536, 65536));
        let dialects = dialects.to_vec();
        let client = ClientNegotiate { capabilities: 0x44, security_mode: 0x0001, guid: GUID, dialects };
        let signing_algo = larder_smb_wire::crypto::SigningAlgo::HmacSha256;
        conn.negotiated.set(Negotiated { dialect, signing_algo, cipher: None, client });
        let session = Session::new(Identity::Anonymous, [0; 16], false);
        let tree = TreeConnect::new(1, ShareBindings::ipc(), Access::Read);
        session.trees.change().await.insert(1, Arc::new(tree));
        conn.sessions.change().await.insert(7, Arc::new(session));
        (server, conn)
    }

    async fn ioctl(server: &Arc<ServerState>, conn: &Arc<Connection>, body: &[u8]) -> HandlerResponse {
        let tree = conn.sessions.get(7).and_then(|session| session.trees.get(1)).ok_or(0);
        handle(server, conn, (&header(), &tree), body).await.unwrap_or_else(HandlerResponse::err)
    }

    fn header() -> Smb2Header {
        Smb2Header {
            credit_charge: 1,
            channel_sequence_status: 0,
            command: Command::Ioctl,
            credit_request_response: 1,
            flags: 0,
            next_command: 0,
            message_id: 5,
            tail: HeaderTail::sync(1),
            session_id: 7,
            signature: [0; 16],
        }
    }

    fn validate_body(caps: u32, guid: [u8; 16], mode: u16, dialects: &[u16], max: u32) -> Vec<u8> {
        let mut input = caps.to_le_bytes().to_vec();
        input.extend_from_slice(&guid);
        input.extend_from_slice(&mode.to_le_bytes());
        input.extend_from_slice(&(dialects.len() as u16).to_le_bytes());
        for d in dialects {
            input.extend_from_slice(&d.to_le_bytes());
        }
        let mut body = Vec::new();
        IoctlRequest {
            structure_size: 57,
            reserved: 0,
            ctl_code: Fsctl::VALIDATE_NEGOTIATE_INFO,
            file_id: FileId::any(),
            input_offset: 0x78,
            input_count: input.len() as u32,
            max_input_response: 0,
            output_offset: 0,
            output_count: 0,
            max_output_response: max,
            flags: IoctlRequest::FLAG_IS_FSCTL,
            reserved2: 0,
            input,
        }
        .write_to(&mut body)
        .unwrap();
        body
    }

    #[tokio::test]
    async fn validate_negotiate_info_mismatch_requests_a_disconnect() {
        let cases = [
            (0x7F, GUID, 0x0001, &DIALECTS[..], 24),
            (0x44, [0xEE; 16], 0x0001, &DIALECTS[..], 24),
            (0x44, GUID, 0x0003, &DIALECTS[..], 24),
            (0x44, GUID, 0x0001, &[0x0300][..], 24),
            (0x44, GUID, 0x0001, &DIALECTS[..], 23),
        ];
        for (caps, guid, mode, dialects, max) in cases {
            let (server, conn) = connection(Dialect::Smb302).await;
            let body = validate_body(caps, guid, mode, dialects, max);
            let resp = ioctl(&server, &conn, &body).await;
            assert_ne!(resp.status, ntstatus::STATUS_SUCCESS);
            assert!(conn.disconnect_requested(), "{caps:x} {mode} {dialects:?}");
        }

        let (server, conn) = connection(Dialect::Smb302).await;
        let body = validate_body(0x44, GUID, 0x0001, &DIALECTS, 24);
        let resp = ioctl(&server, &conn, &body).await;
        assert_eq!(resp.status, ntstatus::STATUS_SUCCESS);
        assert!(!conn.disconnect_requested());
    }

    #[tokio::test]
    async fn validate_negotiate_info_on_smb311_requests_a_disconnect() {
        let dialects = [0x0300, 0x0302, 0x0311];
        let (server, conn) = offered(Dialect::Smb311, &dialects).await;
        let body = validate_body(0x44, GUID, 0x0001, &dialects, 24);
        ioctl(&server, &conn, &body).await;
        assert!(conn.disconnect_requested());
    }
}
