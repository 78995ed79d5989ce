//! What a CREATE asks for (MS-SMB2 2.2.13), checked against its tree (3.3.5.9).

use std::sync::Arc;

use tracing::warn;
use uuid::Uuid;

use crate::conn::state::{Connection, TreeConnect};
use crate::door::view::VisitedShare;
use crate::files::{LeaseRequest, LeaseState, LeaseVersion, Sharing};
use crate::handlers::create_contexts::{ContextQueries, DurableAsk, lease_request, oplock_request};
use crate::handlers::reconnect::Reconnect;
use crate::handlers::shared::{RequestTree, lookup_session};
use crate::share::ShareBindings;
use crate::words::{OpenIntent, OpenOptions};
use larder_smb_wire::access_mask::{
    DELETE, FILE_APPEND_DATA, FILE_EXECUTE, FILE_READ_DATA, FILE_WRITE_DATA, MAXIMUM_ALLOWED, granted_access,
    maximal_access,
};
use larder_smb_wire::file_info::{FILE_ATTRIBUTE_READONLY, VALID_SET_ATTRIBUTES};
use larder_smb_wire::header::Smb2Header;
use larder_smb_wire::messages::{CreateRequest, Dialect, FileId, OplockLevel};
use larder_smb_wire::ntstatus;
use larder_smb_wire::path::SmbPath;
use larder_smb_wire::text::utf16le_to_units;

// CreateOptions
const FILE_DIRECTORY_FILE: u32 = 0x0000_0001;
const FILE_WRITE_THROUGH: u32 = 0x0000_0002;
pub(crate) const FILE_NO_INTERMEDIATE_BUFFERING: u32 = 0x0000_0008;
const FILE_SYNCHRONOUS_IO_ALERT: u32 = 0x0000_0010;
const FILE_SYNCHRONOUS_IO_NONALERT: u32 = 0x0000_0020;
const FILE_NON_DIRECTORY_FILE: u32 = 0x0000_0040;
const FILE_COMPLETE_IF_OPLOCKED: u32 = 0x0000_0100;
const FILE_OPEN_REMOTE_INSTANCE: u32 = 0x0000_0400;
const FILE_DELETE_ON_CLOSE: u32 = 0x0000_1000;
const FILE_OPEN_BY_FILE_ID: u32 = 0x0000_2000;
const FILE_OPEN_FOR_BACKUP_INTENT: u32 = 0x0000_4000;
const FILE_NO_COMPRESSION: u32 = 0x0000_8000;
const FILE_OPEN_REQUIRING_OPLOCK: u32 = 0x0001_0000;
const FILE_DISALLOW_EXCLUSIVE: u32 = 0x0002_0000;
const FILE_RESERVE_OPFILTER: u32 = 0x0010_0000;
const FILE_OPEN_REPARSE_POINT: u32 = 0x0020_0000;
const FILE_OPEN_FOR_FREE_SPACE_QUERY: u32 = 0x0080_0000;

/// CreateOptions allowed with FILE_DIRECTORY_FILE (MS-SMB2 2.2.13), and the
/// flags the server ignores.
const DIRECTORY_OPTIONS: u32 = FILE_DIRECTORY_FILE
    | FILE_WRITE_THROUGH
    | FILE_OPEN_FOR_BACKUP_INTENT
    | FILE_DELETE_ON_CLOSE
    | FILE_OPEN_REPARSE_POINT
    | FILE_NO_COMPRESSION
    | FILE_SYNCHRONOUS_IO_ALERT
    | FILE_SYNCHRONOUS_IO_NONALERT
    | FILE_COMPLETE_IF_OPLOCKED
    | FILE_OPEN_REMOTE_INSTANCE
    | FILE_OPEN_REQUIRING_OPLOCK
    | FILE_DISALLOW_EXCLUSIVE
    | FILE_OPEN_FOR_FREE_SPACE_QUERY;

/// CreateOptions under which every write through the open reaches storage
/// before it completes.
pub(crate) const WRITE_THROUGH_OPTIONS: u32 = FILE_WRITE_THROUGH | FILE_NO_INTERMEDIATE_BUFFERING;

// CreateDisposition
pub(super) const FILE_SUPERSEDE: u32 = 0x0000_0000;
const FILE_OPEN: u32 = 0x0000_0001;
const FILE_CREATE: u32 = 0x0000_0002;
const FILE_OPEN_IF: u32 = 0x0000_0003;
pub(super) const FILE_OVERWRITE: u32 = 0x0000_0004;
const FILE_OVERWRITE_IF: u32 = 0x0000_0005;

/// The greatest ImpersonationLevel (MS-SMB2 2.2.13).
const IMPERSONATION_DELEGATE: u32 = 3;

/// Access that makes a version 2 durable open one a replayed CREATE may
/// name (MS-SMB2 3.3.5.9.10, Open.IsReplayEligible).
pub(super) const REPLAYABLE_ACCESS: u32 = FILE_READ_DATA | FILE_EXECUTE | FILE_WRITE_DATA | FILE_APPEND_DATA | DELETE;

/// Caching the server grants in a lease.
pub(super) const GRANTABLE_LEASE: LeaseState = LeaseState::RWH;

/// A validated CREATE request: what each attempt to open needs.
pub(in crate::handlers) struct CreateArgs {
    pub(in crate::handlers) path: SmbPath,
    pub(super) intent: OpenIntent,
    pub(super) options: u32,
    pub(super) create_disposition: u32,
    pub(super) open_access: u32,
    pub(in crate::handlers) maximal: u32,
    pub(super) delete_on_close: bool,
    /// Attributes for a file this CREATE makes or overwrites.
    pub(super) new_attributes: u32,
    pub(super) opts: OpenOptions,
    /// The tree that the request came on.
    pub(in crate::handlers) tree: Arc<TreeConnect>,
    /// The rights MAXIMUM_ALLOWED added, which the file's own permissions
    /// may take back.
    pub(super) added_access: u32,
    pub(super) sharing: Sharing,
    pub(in crate::handlers) queries: ContextQueries,
    pub(in crate::handlers) lease: Option<LeaseRequest>,
    /// The configured name of the session's user; `None` for anonymous.
    pub(in crate::handlers) owner: Option<String>,
    /// Connection.ClientGuid.
    pub(super) client: Uuid,
}

/// What a CREATE asks for.
pub(super) enum Request {
    Open(CreateArgs),
    Reconnect(Reconnect),
}

impl CreateArgs {
    /// Checks the request against the tree it targets (MS-SMB2 3.3.5.9).
    pub(super) fn parse(
        conn: &Arc<Connection>,
        (hdr, tree): (&Smb2Header, &RequestTree),
        body: &[u8],
    ) -> Result<Request, u32> {
        let req = CreateRequest::parse(body).map_err(|_| ntstatus::STATUS_INVALID_PARAMETER)?;
        let tree = tree.clone()?;
        let owner = lookup_session(conn, hdr.session_id)?.identity.user().map(str::to_owned);
        let dialect = conn.negotiated.dialect();
        let client = conn.negotiated.client_guid();
        let mut queries =
            ContextQueries::parse(&req.create_contexts, dialect).ok_or(ntstatus::STATUS_INVALID_PARAMETER)?;
        if let Some(of) = reconnected(&queries) {
            return Ok(Request::Reconnect(reconnect(&req, of, tree, (owner, client, dialect), queries)?));
        }

        // MS-SMB2 2.2.13: anonymous, identification, impersonation, delegate.
        if req.impersonation_level > IMPERSONATION_DELEGATE {
            return Err(ntstatus::STATUS_BAD_IMPERSONATION_LEVEL);
        }
        let (units, path) = relative_path(&req, &tree.share)?;
        let form = Form::of(&req, &units, &path)?;
        // MS-SMB2 3.3.5.9.4.
        let path = match queries.timewarp {
            Some(Some(moment)) => path.at(moment)?,
            Some(None) => return Err(ntstatus::STATUS_OBJECT_NAME_NOT_FOUND),
            None => path,
        };
        if path.moment().is_some() {
            // A client that lost its connection opens the past again: nobody changes it meanwhile.
            queries.durable = DurableAsk::None;
        }
        queries.extended.as_ref().map_err(|status| *status)?;
        let security = queries.security.clone()?;
        // Shares that turn leases off grant none, and neither oplocks nor
        // leases of version 1 are granted on directories (`dirlease.no_writes`).
        let lease = if !tree.share.leases {
            None
        } else if req.requested_oplock_level == OplockLevel::Lease as u8 {
            lease_request(queries.lease.as_deref(), dialect, client, req.file_attributes)?
        } else {
            oplock_request(req.requested_oplock_level)
        }
        .filter(|lease| !form.directory || lease.version == LeaseVersion::V2);

        let Granting { open_access, named_access, maximal } = Granting::of(&req, &form, &tree, &path)?;
        let delete_on_close = form.delete_on_close(&req);
        let new_attributes = req.file_attributes & VALID_SET_ATTRIBUTES;
        let opts = OpenOptions {
            access: named_access & open_access,
            intent: form.intent,
            directory: form.directory,
            non_directory: form.non_directory,
            delete_on_close,
            attributes: new_attributes,
            security,
        };
        Ok(Request::Open(Self {
            tree,
            path,
            intent: form.intent,
            options: req.create_options,
            create_disposition: req.create_disposition,
            open_access,
            maximal,
            delete_on_close,
            new_attributes,
            opts,
            added_access: open_access & !named_access,
            sharing: Sharing { access: open_access, share: req.share_access },
            queries,
            lease,
            owner,
            client,
        }))
    }
}

/// The open that a request wants back.
fn reconnected(queries: &ContextQueries) -> Option<(FileId, Option<[u8; 16]>)> {
    match queries.durable {
        DurableAsk::Reconnect(r) => Some((r.file_id, None)),
        DurableAsk::ReconnectV2(r) => Some((r.file_id, Some(r.create_guid))),
        _ => None,
    }
}

/// A reconnect skips the checks of the name and of the open itself
/// (MS-SMB2 3.3.5.9.7, 3.3.5.9.12).
fn reconnect(
    req: &CreateRequest,
    (file_id, create_guid): (FileId, Option<[u8; 16]>),
    tree: Arc<TreeConnect>,
    (owner, client, dialect): (Option<String>, Uuid, Option<Dialect>),
    queries: ContextQueries,
) -> Result<Reconnect, u32> {
    let lease = lease_request(queries.lease.as_deref(), dialect, client, 0)?;
    let name = utf16le_to_units(&req.name).and_then(|u| SmbPath::from_utf16(&u).ok());
    Ok(Reconnect { tree, file_id, create_guid, name, owner, client, lease, queries, replayed: None })
}

/// The name of the request, and as a path of the share.
fn relative_path(req: &CreateRequest, share: &ShareBindings) -> Result<(Vec<u16>, SmbPath), u32> {
    let units = utf16le_to_units(&req.name).ok_or(ntstatus::STATUS_INVALID_PARAMETER)?;
    // MS-SMB2 3.3.5.9: names are relative to the share.
    if units.first() == Some(&u16::from(b'\\')) {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let path = SmbPath::from_utf16(&units)?;
    if path.stream().is_some() && !share.view().is_some_and(VisitedShare::keeps_streams) {
        return Err(ntstatus::STATUS_OBJECT_NAME_INVALID);
    }
    Ok((units, path))
}

/// What CreateDisposition and CreateOptions ask for.
struct Form {
    intent: OpenIntent,
    directory: bool,
    non_directory: bool,
}

impl Form {
    fn of(req: &CreateRequest, units: &[u16], path: &SmbPath) -> Result<Self, u32> {
        let intent = match req.create_disposition {
            FILE_SUPERSEDE | FILE_OVERWRITE_IF => OpenIntent::OverwriteOrCreate,
            FILE_OPEN => OpenIntent::Open,
            FILE_CREATE => OpenIntent::Create,
            FILE_OPEN_IF => OpenIntent::OpenOrCreate,
            FILE_OVERWRITE => OpenIntent::Truncate,
            _ => return Err(ntstatus::STATUS_INVALID_PARAMETER),
        };
        let options = req.create_options;
        if options & (FILE_OPEN_BY_FILE_ID | FILE_RESERVE_OPFILTER) != 0 {
            return Err(ntstatus::STATUS_NOT_SUPPORTED);
        }
        let directory = options & FILE_DIRECTORY_FILE != 0;
        // `name::$DATA` is the data of a file, which a directory has none of.
        let asks_for_data = names_data(units);
        if directory && (asks_for_data || path.stream().is_some()) {
            return Err(ntstatus::STATUS_NOT_A_DIRECTORY);
        }
        let non_directory = options & FILE_NON_DIRECTORY_FILE != 0 || asks_for_data;
        if directory
            && (options & !DIRECTORY_OPTIONS != 0
                || !matches!(intent, OpenIntent::Create | OpenIntent::OpenOrCreate | OpenIntent::Open))
        {
            return Err(ntstatus::STATUS_INVALID_PARAMETER);
        }
        Ok(Self { intent, directory, non_directory })
    }

    fn delete_on_close(&self, req: &CreateRequest) -> bool {
        req.create_options & FILE_DELETE_ON_CLOSE != 0
    }

    fn may_write(&self) -> bool {
        !matches!(self.intent, OpenIntent::Open)
    }
}

/// The access of the open, as far as the tree decides it.
struct Granting {
    open_access: u32,
    /// Of that, the rights named one by one and not by MAXIMUM_ALLOWED.
    named_access: u32,
    maximal: u32,
}

impl Granting {
    fn of(req: &CreateRequest, form: &Form, tree: &TreeConnect, path: &SmbPath) -> Result<Self, u32> {
        let maximal = maximal_access(tree.granted_access);
        let delete_on_close = form.delete_on_close(req);
        // MS-SMB2 3.3.5.9: the tree must allow DELETE.
        if delete_on_close && maximal & DELETE == 0 {
            warn!(path = %path, "delete-on-close open on read-only tree");
            return Err(ntstatus::STATUS_ACCESS_DENIED);
        }
        if req.desired_access == 0 {
            return Err(ntstatus::STATUS_ACCESS_DENIED);
        }
        let Some(mut open_access) = granted_access(req.desired_access, maximal) else {
            warn!(path = %path, "requested access exceeds tree access");
            return Err(ntstatus::STATUS_ACCESS_DENIED);
        };
        let named_access = granted_access(req.desired_access & !MAXIMUM_ALLOWED, maximal).unwrap_or(0);
        if req.create_options & FILE_NO_INTERMEDIATE_BUFFERING != 0 {
            open_access &= !FILE_APPEND_DATA;
        }
        // Disposition that creates: requires write permission.
        if !tree.granted_access.allows_write() && form.may_write() {
            return Err(ntstatus::STATUS_ACCESS_DENIED);
        }
        if delete_on_close {
            // MS-FSA 2.1.5.1: the open itself must request DELETE.
            if open_access & DELETE == 0 {
                return Err(ntstatus::STATUS_INVALID_PARAMETER);
            }
            // MS-FSA 2.1.5.1: a file created read-only cannot be deleted.
            if form.intent != OpenIntent::Open && req.file_attributes & FILE_ATTRIBUTE_READONLY != 0 {
                return Err(ntstatus::STATUS_CANNOT_DELETE);
            }
        }
        Ok(Self { open_access, named_access, maximal })
    }
}

fn names_data(name: &[u16]) -> bool {
    let suffix: Vec<u16> = "::$DATA".encode_utf16().collect();
    let Some(end) = name.len().checked_sub(suffix.len()).map(|at| &name[at..]) else { return false };
    String::from_utf16_lossy(end).eq_ignore_ascii_case("::$DATA")
}
