//! OPLOCK_BREAK handler (MS-SMB2 3.3.5.22): acknowledgments of oplock and
//! lease breaks.

use std::sync::Arc;

use larder_smb_wire::messages::OplockBreakAck;
use larder_smb_wire::messages::{Dialect, LeaseBreakAck, LeaseBreakResponse};

use crate::conn::state::Connection;
use crate::files::{LeaseId, Notices};
use crate::handlers::response::{Answered, HandlerResponse};
use crate::handlers::shared::{RequestTree, open_of};
use crate::state::ServerState;
use larder_smb_wire::ntstatus;

/// StructureSize of an oplock break acknowledgment.
const OPLOCK_ACK_SIZE: u16 = 24;
/// StructureSize of a lease break acknowledgment.
const LEASE_ACK_SIZE: u16 = 36;

pub async fn handle(server: &Arc<ServerState>, conn: &Arc<Connection>, tree: &RequestTree, body: &[u8]) -> Answered {
    if let Err(status) = tree {
        return Err(*status);
    }
    let structure_size = body.get(..2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    let dialect = conn.negotiated.dialect();
    match structure_size {
        // MS-SMB2 3.3.5.22.2.
        Some(LEASE_ACK_SIZE) if dialect != Some(Dialect::Smb202) => {
            let ack = LeaseBreakAck::parse(body).map_err(|_| ntstatus::STATUS_INVALID_PARAMETER)?;
            let id = LeaseId::of_client(conn.negotiated.client_guid(), ack.lease_key);
            let id = id.ok_or(ntstatus::STATUS_OBJECT_NAME_NOT_FOUND)?;
            let (state, breaks) = server.leases.acknowledge(id, ack.lease_state)?;
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
            Ok(then(buf, breaks))
        }
        // MS-SMB2 3.3.5.22.1.
        Some(OPLOCK_ACK_SIZE | LEASE_ACK_SIZE) => {
            let ack = OplockBreakAck::parse(body).map_err(|_| ntstatus::STATUS_INVALID_PARAMETER)?;
            let open_arc = open_of(tree, ack.file_id)?;
            let open = open_arc.read().await;
            let file = open.file.as_ref().ok_or(ntstatus::STATUS_FILE_CLOSED)?;
            let breaks = file.acknowledge_oplock(ack.oplock_level)?;
            Ok(oplock_response(&ack, breaks))
        }
        _ => Err(ntstatus::STATUS_INVALID_PARAMETER),
    }
}

/// A response that further breaks follow.
fn then(body: Vec<u8>, breaks: Notices) -> HandlerResponse {
    let mut response = HandlerResponse::ok(body);
    response.after_send.push(Box::new(breaks));
    response
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
    then(buf, breaks)
}
