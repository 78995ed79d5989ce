//! OPLOCK_BREAK handler (MS-SMB2 3.3.5.22): acknowledgments of oplock and
//! lease breaks.

use std::sync::Arc;

use larder_smb_wire::messages::OplockBreakAck;
use larder_smb_wire::messages::{Dialect, LeaseBreakAck, LeaseBreakResponse};

use crate::conn::state::Connection;
use crate::files::{LeaseId, Notices};
use crate::handlers::response::HandlerResponse;
use crate::handlers::shared::{RequestTree, lookup_open};
use crate::ntstatus;
use crate::state::ServerState;

/// StructureSize of an oplock break acknowledgment.
const OPLOCK_ACK_SIZE: u16 = 24;
/// StructureSize of a lease break acknowledgment.
const LEASE_ACK_SIZE: u16 = 36;

pub async fn handle(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    tree: &RequestTree,
    body: &[u8],
) -> HandlerResponse {
    let tree = match tree {
        Ok(tree) => tree,
        Err(status) => return HandlerResponse::err(*status),
    };
    let structure_size = body.get(..2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    let dialect = conn.negotiated.dialect();
    match structure_size {
        // MS-SMB2 3.3.5.22.2.
        Some(LEASE_ACK_SIZE) if dialect != Some(Dialect::Smb202) => {
            let Ok(ack) = LeaseBreakAck::parse(body) else {
                return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER);
            };
            let client = conn.negotiated.client_guid();
            let Some(id) = LeaseId::of_client(client, ack.lease_key) else {
                return HandlerResponse::err(ntstatus::STATUS_OBJECT_NAME_NOT_FOUND);
            };
            match server.leases.acknowledge(id, ack.lease_state) {
                Ok((state, breaks)) => {
                    let mut buf = Vec::new();
                    LeaseBreakResponse {
                        structure_size: LEASE_ACK_SIZE,
                        reserved: 0,
                        flags: 0,
                        lease_key: ack.lease_key,
                        lease_state: state.bits(),
                        lease_duration: 0,
                    }
                    .write_to(&mut buf)
                    .expect("encoding into a Vec cannot fail");
                    // A further break follows the response.
                    let mut response = HandlerResponse::ok(buf);
                    response.after_send.push(Box::new(breaks));
                    response
                }
                Err(status) => HandlerResponse::err(status),
            }
        }
        // MS-SMB2 3.3.5.22.1.
        Some(OPLOCK_ACK_SIZE | LEASE_ACK_SIZE) => {
            let Ok(ack) = OplockBreakAck::parse(body) else {
                return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER);
            };
            let Some(open) = lookup_open(tree, ack.file_id) else {
                return HandlerResponse::err(ntstatus::STATUS_FILE_CLOSED);
            };
            let open = open.read().await;
            let Some(file) = &open.file else {
                return HandlerResponse::err(ntstatus::STATUS_FILE_CLOSED);
            };
            match file.acknowledge_oplock(ack.oplock_level) {
                Ok(breaks) => oplock_response(&ack, breaks),
                Err(status) => HandlerResponse::err(status),
            }
        }
        _ => HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER),
    }
}

/// The response to `ack` (MS-SMB2 2.2.25.1); `breaks` follow it.
fn oplock_response(ack: &OplockBreakAck, breaks: Notices) -> HandlerResponse {
    let mut buf = Vec::new();
    OplockBreakAck {
        structure_size: OPLOCK_ACK_SIZE,
        oplock_level: ack.oplock_level,
        reserved: 0,
        reserved2: 0,
        file_id: ack.file_id,
    }
    .write_to(&mut buf)
    .expect("encoding into a Vec cannot fail");
    let mut response = HandlerResponse::ok(buf);
    response.after_send.push(Box::new(breaks));
    response
}
