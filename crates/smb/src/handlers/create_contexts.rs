//! The create contexts of a CREATE and its response: the durable handles and leases it asks for, and the answers to its queries.

use std::time::Duration;

use uuid::Uuid;

use crate::files::{Granted, LeaseId, LeaseRequest, LeaseState, LeaseVersion};
use crate::handlers::{apple, extended};
use crate::words::ExtendedAttribute;
use larder_smb_wire::file_info::{FILE_ATTRIBUTE_DIRECTORY, FileInfo};
use larder_smb_wire::messages::{
    CreateContext, CreateResponse, Dialect, DurableReconnect, DurableReconnectV2, DurableRequest, DurableRequestV2,
    DurableResponseV2, FileId, LeaseContext, OplockLevel,
};
use larder_smb_wire::moment::Moment;
use larder_smb_wire::ntstatus;
use larder_smb_wire::security::SecurityDescriptor;

// CreateAction in response (MS-SMB2 2.2.14)
pub(super) const FILE_SUPERSEDED: u32 = 0x0000_0000;
pub(super) const FILE_OPENED: u32 = 0x0000_0001;
pub(super) const FILE_CREATED: u32 = 0x0000_0002;
pub(super) const FILE_OVERWRITTEN: u32 = 0x0000_0003;

/// Offset of the response create contexts from the start of the SMB2
/// header: 64 + 88.
const RESPONSE_CONTEXTS_OFFSET: u32 = 0x98;

/// Create contexts of a request that the response answers (MS-SMB2
/// 3.3.5.9.5, 3.3.5.9.9) or that fail it. Other contexts are ignored.
#[derive(Clone)]
pub(super) struct ContextQueries {
    /// QUERY_MAXIMAL_ACCESS, with its timestamp if it has one.
    pub(super) maximal_access: Option<Option<u64>>,
    pub(super) query_on_disk_id: bool,
    /// Extended attributes that the file is made with (MS-SMB2 3.3.5.9.1), or
    /// the status of a chain that is none.
    pub(super) extended: Result<Vec<ExtendedAttribute>, u32>,
    /// The descriptor that a file is made with (MS-SMB2 2.2.13.2.2), or the
    /// status of a context that is none.
    pub(super) security: Result<Option<SecurityDescriptor>, u32>,
    /// A timewarp token (MS-SMB2 2.2.13.2.7), with its moment unless no snapshot can have it.
    pub(super) timewarp: Option<Option<Moment>>,
    /// Data of a lease request.
    pub(super) lease: Option<Vec<u8>>,
    pub(super) durable: DurableAsk,
    /// What a Mac asks about the server.
    pub(super) apple: Option<u64>,
}

/// The durable handle a CREATE asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DurableAsk {
    None,
    /// DHnQ (MS-SMB2 3.3.5.9.6).
    V1,
    /// DH2Q, on SMB 3.x (MS-SMB2 3.3.5.9.10).
    V2(DurableRequestV2),
    /// DHnC: reconnect the open named (MS-SMB2 3.3.5.9.7).
    Reconnect(DurableReconnect),
    /// DH2C, on SMB 3.x (MS-SMB2 3.3.5.9.12).
    ReconnectV2(DurableReconnectV2),
}

/// Reads the durable handle contexts of a CREATE on `dialect`. The version
/// 2 contexts count on SMB 3.x only (MS-SMB2 2.2.13.2.11, 2.2.13.2.12). A
/// reconnect ignores a DHnQ next to it (MS-SMB2 3.3.5.9.7); any other two
/// of them together, or one of the wrong size, fail the CREATE with
/// STATUS_INVALID_PARAMETER (MS-SMB2 3.3.5.9.6, 3.3.5.9.7, 3.3.5.9.10).
pub(crate) fn durable_ask(contexts: &[CreateContext], dialect: Option<Dialect>) -> Result<DurableAsk, u32> {
    let v3 = matches!(dialect, Some(Dialect::Smb300 | Dialect::Smb302 | Dialect::Smb311));
    let find =
        |name: &[u8; 4], counts: bool| contexts.iter().find(|c| counts && c.name == name).map(|c| c.data.as_slice());
    let invalid = |_| ntstatus::STATUS_INVALID_PARAMETER;
    let dhnq = find(CreateContext::NAME_DHNQ, true).map(DurableRequest::parse).transpose().map_err(invalid)?;
    let dhnc = find(CreateContext::NAME_DHNC, true).map(DurableReconnect::parse).transpose().map_err(invalid)?;
    let dh2q = find(CreateContext::NAME_DH2Q, v3).map(DurableRequestV2::parse).transpose().map_err(invalid)?;
    let dh2c = find(CreateContext::NAME_DH2C, v3).map(DurableReconnectV2::parse).transpose().map_err(invalid)?;
    Ok(match (dhnq, dhnc, dh2q, dh2c) {
        (None, None, None, None) => DurableAsk::None,
        (Some(_), None, None, None) => DurableAsk::V1,
        (_, Some(reconnect), None, None) => DurableAsk::Reconnect(reconnect),
        (None, None, Some(request), None) => DurableAsk::V2(request),
        (None, None, None, Some(reconnect)) => DurableAsk::ReconnectV2(reconnect),
        _ => return Err(ntstatus::STATUS_INVALID_PARAMETER),
    })
}

impl ContextQueries {
    /// `None` if a context is malformed or the durable handle contexts do
    /// not go together.
    pub(super) fn parse(chain: &[u8], dialect: Option<Dialect>) -> Option<Self> {
        let contexts = CreateContext::parse_chain(chain).ok()?;
        let find = |name: &[u8; 4]| contexts.iter().find(|c| c.name == name);
        // The data is empty or one FILETIME (MS-SMB2 2.2.13.2.5).
        let maximal_access = match find(CreateContext::NAME_MXAC) {
            None => None,
            Some(c) if c.data.is_empty() => Some(None),
            Some(c) => Some(Some(u64::from_le_bytes(c.data.as_slice().try_into().ok()?))),
        };
        let timewarp = match find(CreateContext::NAME_TWRP) {
            None => None,
            Some(c) => Some(Moment::from_filetime(u64::from_le_bytes(c.data.as_slice().try_into().ok()?))),
        };
        // Skipped when the request reconnects a durable open.
        let query_on_disk_id = find(CreateContext::NAME_QFID).is_some()
            && find(CreateContext::NAME_DHNC).is_none()
            && find(CreateContext::NAME_DH2C).is_none();
        Some(Self {
            maximal_access,
            query_on_disk_id,
            extended: find(CreateContext::NAME_EXTA).map_or(Ok(Vec::new()), |c| extended::parse(&c.data)),
            security: find(CreateContext::NAME_SECD)
                .map(|c| SecurityDescriptor::parse_present(&c.data).ok_or(ntstatus::STATUS_INVALID_SECURITY_DESCR))
                .transpose(),
            timewarp,
            lease: find(CreateContext::NAME_RQLS).map(|c| c.data.clone()),
            durable: durable_ask(&contexts, dialect).ok()?,
            apple: find(CreateContext::NAME_AAPL).and_then(|c| apple::query(&c.data)),
        })
    }

    /// Response contexts for an open of a file with `info` on a tree whose
    /// MaximalAccess is `maximal`, on the volume with serial number
    /// `volume_serial`.
    pub(super) fn answer(&self, info: &FileInfo, maximal: u32, volume_serial: u32) -> Vec<CreateContext> {
        let mut out = Vec::new();
        if let Some(timestamp) = self.maximal_access {
            let (status, access) = if timestamp == Some(info.change_time) {
                (ntstatus::STATUS_NONE_MAPPED, 0)
            } else {
                (ntstatus::STATUS_SUCCESS, maximal)
            };
            let mut data = status.to_le_bytes().to_vec();
            data.extend_from_slice(&access.to_le_bytes());
            out.push(CreateContext { name: CreateContext::NAME_MXAC.to_vec(), data });
        }
        if self.query_on_disk_id {
            // DiskFileId, VolumeId, 16 reserved bytes.
            let mut data = vec![0; 32];
            data[..8].copy_from_slice(&info.file_index.to_le_bytes());
            data[8..16].copy_from_slice(&u64::from(volume_serial).to_le_bytes());
            out.push(CreateContext { name: CreateContext::NAME_QFID.to_vec(), data });
        }
        out
    }
}

/// The lease a CREATE asks for (MS-SMB2 3.3.5.9, 3.3.5.9.8, 3.3.5.9.11),
/// on a connection from `client` at `dialect`. Leases need SMB 2.1 or
/// later, and the version 2 context SMB 3.x. A request with an all-zero
/// key gets no lease. A version 2 request whose `file_attributes` name a
/// directory asks for no write caching. A context of the wrong size fails
/// the CREATE with STATUS_INVALID_PARAMETER.
pub(super) fn lease_request(
    data: Option<&[u8]>,
    dialect: Option<Dialect>,
    client: Uuid,
    file_attributes: u32,
) -> Result<Option<LeaseRequest>, u32> {
    let (Some(data), Some(dialect)) = (data, dialect) else {
        return Ok(None);
    };
    if matches!(dialect, Dialect::Smb202 | Dialect::Smb2Wildcard) {
        return Ok(None);
    }
    let ctx = LeaseContext::parse(data).map_err(|_| ntstatus::STATUS_INVALID_PARAMETER)?;
    if (ctx.v2 && dialect == Dialect::Smb210) || ctx.key == [0; 16] {
        return Ok(None);
    }
    let Some(id) = LeaseId::of_client(client, ctx.key) else {
        return Ok(None);
    };
    let mut state = LeaseState::requested(ctx.state);
    let (version, parent) = if ctx.v2 {
        let parent = (ctx.flags & LeaseContext::FLAG_PARENT_LEASE_KEY_SET != 0).then_some(ctx.parent_key);
        if file_attributes & FILE_ATTRIBUTE_DIRECTORY != 0 {
            state = state.without(LeaseState::W);
        }
        (LeaseVersion::V2, parent)
    } else {
        (LeaseVersion::V1, None)
    };
    Ok(Some(LeaseRequest { id, state, version, epoch: ctx.epoch, parent }))
}

/// The oplock a CREATE asks for with `level` (MS-SMB2 2.2.13
/// RequestedOplockLevel), as a lease of the open's own.
pub(super) fn oplock_request(level: u8) -> Option<LeaseRequest> {
    let state = LeaseState::of_oplock(level);
    (state != LeaseState::NONE).then(|| LeaseRequest {
        id: LeaseId::new_oplock(),
        state,
        version: LeaseVersion::Oplock,
        epoch: 0,
        parent: None,
    })
}

/// The OplockLevel of a CREATE response and its lease context, if any, for
/// an open that was granted `granted` (MS-SMB2 2.2.14).
pub(super) fn caching_response(granted: Option<&Granted>) -> (OplockLevel, Option<CreateContext>) {
    match granted {
        None => (OplockLevel::None, None),
        Some(granted) if granted.version == LeaseVersion::Oplock => (granted.state.oplock_level(), None),
        Some(granted) => (OplockLevel::Lease, Some(lease_response(granted))),
    }
}

/// The response lease context for `granted`, in the lease's version
/// (MS-SMB2 2.2.14.2.10, 2.2.14.2.11).
fn lease_response(granted: &Granted) -> CreateContext {
    let v2 = granted.version == LeaseVersion::V2;
    let mut flags = 0;
    if granted.breaking {
        flags |= LeaseContext::FLAG_BREAK_IN_PROGRESS;
    }
    if v2 && granted.parent.is_some() {
        flags |= LeaseContext::FLAG_PARENT_LEASE_KEY_SET;
    }
    let ctx = LeaseContext {
        key: granted.id.key,
        state: granted.state.bits(),
        flags,
        parent_key: granted.parent.unwrap_or_default(),
        epoch: if v2 { granted.epoch } else { 0 },
        v2,
    };
    CreateContext { name: CreateContext::NAME_RQLS.to_vec(), data: ctx.encode() }
}

/// The response context of a version 2 durable open kept for `timeout`.
pub(super) fn durable_v2_response(timeout: Duration) -> CreateContext {
    CreateContext {
        name: CreateContext::NAME_DH2Q.to_vec(),
        data: DurableResponseV2 { timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX), flags: 0 }
            .encode(),
    }
}

/// The CREATE response body for an open of a file with `info`, granted
/// `oplock_level`, with the response contexts `answers`.
pub(super) fn encode_response(
    info: &FileInfo,
    file_id: FileId,
    oplock_level: OplockLevel,
    create_action: u32,
    answers: &[CreateContext],
) -> Vec<u8> {
    let mut contexts = Vec::new();
    CreateContext::encode_chain(answers, &mut contexts).expect("encoding into a Vec cannot fail");
    let resp = CreateResponse {
        structure_size: 89,
        oplock_level: oplock_level as u8,
        flags: 0,
        create_action,
        creation_time: info.creation_time,
        last_access_time: info.last_access_time,
        last_write_time: info.last_write_time,
        change_time: info.change_time,
        allocation_size: info.allocation_size,
        end_of_file: info.end_of_file,
        file_attributes: info.attributes(),
        reserved2: 0,
        file_id,
        create_contexts_offset: if contexts.is_empty() { 0 } else { RESPONSE_CONTEXTS_OFFSET },
        create_contexts_length: contexts.len() as u32,
        create_contexts: contexts,
    };
    let mut buf = Vec::new();
    resp.write_to(&mut buf).expect("encode");
    buf
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_2_request_for_a_directory_asks_for_no_write_caching() {
        let context = |v2| LeaseContext { key: [1; 16], state: 0x7, v2, ..LeaseContext::default() }.encode();
        let state = |v2, attributes| {
            lease_request(Some(&context(v2)), Some(Dialect::Smb311), Uuid::nil(), attributes).unwrap().unwrap().state
        };
        assert_eq!(state(true, FILE_ATTRIBUTE_DIRECTORY), LeaseState::RH);
        assert_eq!(state(true, 0), LeaseState::RWH);
        assert_eq!(state(false, FILE_ATTRIBUTE_DIRECTORY), LeaseState::RWH);
    }

    fn ctx(name: &[u8; 4], len: usize) -> CreateContext {
        CreateContext { name: name.to_vec(), data: vec![0; len] }
    }

    #[test]
    fn durable_contexts_are_read_by_dialect_and_combination() {
        use DurableAsk as A;
        let q = || ctx(CreateContext::NAME_DHNQ, 16);
        let c = || ctx(CreateContext::NAME_DHNC, 16);
        let q2 = || ctx(CreateContext::NAME_DH2Q, 32);
        let c2 = || ctx(CreateContext::NAME_DH2C, 36);
        let invalid = Err(ntstatus::STATUS_INVALID_PARAMETER);
        let reconnect = Ok(A::Reconnect(DurableReconnect::default()));
        let reconnect_v2 = Ok(A::ReconnectV2(DurableReconnectV2::default()));
        for dialect in [Dialect::Smb202, Dialect::Smb210, Dialect::Smb300, Dialect::Smb302, Dialect::Smb311] {
            let v3 = !matches!(dialect, Dialect::Smb202 | Dialect::Smb210);
            let ask = |list: Vec<CreateContext>| durable_ask(&list, Some(dialect));
            assert_eq!(ask(vec![]), Ok(A::None));
            assert_eq!(ask(vec![q()]), Ok(A::V1));
            assert_eq!(ask(vec![c()]), reconnect);
            assert_eq!(ask(vec![c(), q()]), reconnect, "{dialect:?}");
            assert_eq!(ask(vec![ctx(CreateContext::NAME_DHNQ, 15)]), invalid);
            assert_eq!(ask(vec![ctx(CreateContext::NAME_DHNC, 17)]), invalid);
            if v3 {
                assert_eq!(ask(vec![q2()]), Ok(A::V2(DurableRequestV2::default())));
                assert_eq!(ask(vec![c2()]), reconnect_v2);
                for pair in [
                    vec![c(), q2()],
                    vec![c(), c2()],
                    vec![c2(), q()],
                    vec![c2(), q2()],
                    vec![q2(), q()],
                    vec![ctx(CreateContext::NAME_DH2Q, 31)],
                    vec![ctx(CreateContext::NAME_DH2C, 35)],
                ] {
                    assert_eq!(ask(pair), invalid, "{dialect:?}");
                }
            } else {
                // The version 2 contexts do not exist before SMB 3.x.
                assert_eq!(ask(vec![q2()]), Ok(A::None));
                assert_eq!(ask(vec![c2(), q()]), Ok(A::V1));
                assert_eq!(ask(vec![c(), ctx(CreateContext::NAME_DH2Q, 31)]), reconnect);
            }
        }
    }
}
