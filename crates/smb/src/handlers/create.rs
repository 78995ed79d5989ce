//! CREATE handler: open or create a file/directory and allocate a FileId.

use std::sync::Arc;

use crate::proto::header::{SMB2_FLAGS_REPLAY_OPERATION, Smb2Header};
use crate::proto::messages::{CreateContext, CreateRequest, DurableResponse, FileId, OplockLevel};
use tokio::time::Instant;
use tracing::{debug, warn};
use uuid::Uuid;

use crate::access_mask::{
    DELETE, FILE_APPEND_DATA, FILE_EXECUTE, FILE_READ_DATA, FILE_WRITE_ATTRIBUTES, FILE_WRITE_DATA, MAXIMUM_ALLOWED,
    granted_access, maximal_access,
};
use crate::backend::{
    FILE_ATTRIBUTE_ARCHIVE, FILE_ATTRIBUTE_READONLY, FileTimes, Handle, Located, OpenAction, OpenIntent, OpenOptions,
    ShareBackend, VALID_SET_ATTRIBUTES,
};
use crate::conn::limits::MAX_OPENS_PER_CONNECTION;
use crate::conn::pending::{Stop, stopped};
use crate::conn::state::{Connection, Open};
use crate::error::{SmbError, SmbResult};
use crate::files::{
    Begun, BreakWait, CONTENT_CHANGED, Durability, FileRef, LeaseId, LeaseRef, LeaseRequest, LeaseState, LeaseVersion,
    MAX_BREAK_WAIT, OpenRequest, OpenSlot, Refused, Sharing, Trigger, v2_timeout,
};
use crate::handlers::apple;
use crate::handlers::create_contexts::{
    ContextQueries, DurableAsk, FILE_CREATED, FILE_OPENED, FILE_OVERWRITTEN, FILE_SUPERSEDED, caching_response,
    durable_v2_response, encode_response, lease_request, oplock_request,
};
use crate::handlers::extended;
use crate::handlers::reconnect::{self, Reconnect};
use crate::handlers::replay::{self, Replay};
use crate::handlers::response::{HandlerResponse, Outcome, Pending};
use crate::handlers::shared::{lookup_session, lookup_session_tree};
use crate::info_class::VOLUME_SERIAL_NUMBER;
use crate::ntstatus;
use crate::path::SmbPath;
use crate::share::ShareBindings;
use crate::state::ServerState;
use crate::utils::utf16le_to_units;

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
const FILE_SUPERSEDE: u32 = 0x0000_0000;
const FILE_OPEN: u32 = 0x0000_0001;
const FILE_CREATE: u32 = 0x0000_0002;
const FILE_OPEN_IF: u32 = 0x0000_0003;
const FILE_OVERWRITE: u32 = 0x0000_0004;
const FILE_OVERWRITE_IF: u32 = 0x0000_0005;

/// The greatest ImpersonationLevel (MS-SMB2 2.2.13).
const IMPERSONATION_DELEGATE: u32 = 3;

/// Access that makes a version 2 durable open one a replayed CREATE may
/// name (MS-SMB2 3.3.5.9.10, Open.IsReplayEligible).
const REPLAYABLE_ACCESS: u32 = FILE_READ_DATA | FILE_EXECUTE | FILE_WRITE_DATA | FILE_APPEND_DATA | DELETE;

/// Caching the server grants in a lease.
const GRANTABLE_LEASE: LeaseState = LeaseState::RWH;

/// A validated CREATE request: what each attempt to open needs.
pub(super) struct CreateArgs {
    pub(super) path: SmbPath,
    intent: OpenIntent,
    options: u32,
    create_disposition: u32,
    open_access: u32,
    pub(super) maximal: u32,
    delete_on_close: bool,
    /// Attributes for a file this CREATE makes or overwrites.
    new_attributes: u32,
    opts: OpenOptions,
    /// The rights MAXIMUM_ALLOWED added, which the file's own permissions
    /// may take back.
    added_access: u32,
    sharing: Sharing,
    pub(super) queries: ContextQueries,
    pub(super) lease: Option<LeaseRequest>,
    /// The configured name of the session's user; `None` for anonymous.
    pub(super) owner: Option<String>,
    /// Connection.ClientGuid.
    client: Uuid,
}

/// What a CREATE asks for.
enum Request {
    Open(CreateArgs),
    Reconnect(Reconnect),
}

impl CreateArgs {
    /// Checks the request against the tree it targets (MS-SMB2 3.3.5.9).
    async fn parse(conn: &Arc<Connection>, hdr: &Smb2Header, body: &[u8]) -> Result<Request, u32> {
        let req = CreateRequest::parse(body).map_err(|_| ntstatus::STATUS_INVALID_PARAMETER)?;
        let tree_arc = lookup_session_tree(conn, hdr)?;
        let tree_access = tree_arc.granted_access;
        let share = Arc::clone(&tree_arc.share);
        let owner = lookup_session(conn, hdr.session_id)?.identity.user().map(str::to_owned);
        let dialect = conn.negotiated.dialect();
        let client = conn.negotiated.client_guid();

        let mut queries =
            ContextQueries::parse(&req.create_contexts, dialect).ok_or(ntstatus::STATUS_INVALID_PARAMETER)?;
        // A reconnect skips the checks of the name and of the open itself
        // (MS-SMB2 3.3.5.9.7, 3.3.5.9.12).
        let reconnect = match queries.durable {
            DurableAsk::Reconnect(r) => Some((r.file_id, None)),
            DurableAsk::ReconnectV2(r) => Some((r.file_id, Some(r.create_guid))),
            _ => None,
        };
        if let Some((file_id, create_guid)) = reconnect {
            let lease = lease_request(queries.lease.as_deref(), dialect, client, 0)?;
            let name = utf16le_to_units(&req.name).and_then(|u| SmbPath::from_utf16(&u).ok());
            return Ok(Request::Reconnect(Reconnect {
                file_id,
                create_guid,
                name,
                owner,
                client,
                lease,
                queries,
                replayed: None,
            }));
        }

        // MS-SMB2 2.2.13: anonymous, identification, impersonation, delegate.
        if req.impersonation_level > IMPERSONATION_DELEGATE {
            return Err(ntstatus::STATUS_BAD_IMPERSONATION_LEVEL);
        }
        // Decode path.
        let units = utf16le_to_units(&req.name).ok_or(ntstatus::STATUS_INVALID_PARAMETER)?;
        // MS-SMB2 3.3.5.9: names are relative to the share.
        if units.first() == Some(&u16::from(b'\\')) {
            return Err(ntstatus::STATUS_INVALID_PARAMETER);
        }
        let path = SmbPath::from_utf16(&units).map_err(|e| e.to_nt_status())?;
        if path.stream().is_some() && !share.backend.capabilities().named_streams {
            return Err(ntstatus::STATUS_OBJECT_NAME_INVALID);
        }

        // Translate disposition.
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
        let asks_for_data = names_data(&units);
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

        // MS-SMB2 3.3.5.9.4.
        let path = match queries.timewarp {
            Some(Some(moment)) => path.at(moment).map_err(|e| e.to_nt_status())?,
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
        let lease = if !share.leases {
            None
        } else if req.requested_oplock_level == OplockLevel::Lease as u8 {
            lease_request(queries.lease.as_deref(), dialect, client, req.file_attributes)?
        } else {
            oplock_request(req.requested_oplock_level)
        }
        .filter(|lease| !directory || lease.version == LeaseVersion::V2);

        let maximal = maximal_access(tree_access);
        let delete_on_close = options & FILE_DELETE_ON_CLOSE != 0;
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
        if options & FILE_NO_INTERMEDIATE_BUFFERING != 0 {
            open_access &= !FILE_APPEND_DATA;
        }
        // Disposition that creates: requires write permission.
        if !tree_access.allows_write()
            && matches!(
                intent,
                OpenIntent::Create | OpenIntent::OpenOrCreate | OpenIntent::OverwriteOrCreate | OpenIntent::Truncate
            )
        {
            return Err(ntstatus::STATUS_ACCESS_DENIED);
        }

        let new_attributes = req.file_attributes & VALID_SET_ATTRIBUTES;
        if delete_on_close {
            // MS-FSA 2.1.5.1: the open itself must request DELETE.
            if open_access & DELETE == 0 {
                return Err(ntstatus::STATUS_INVALID_PARAMETER);
            }
            // MS-FSA 2.1.5.1: a file created read-only cannot be deleted.
            if intent != OpenIntent::Open && new_attributes & FILE_ATTRIBUTE_READONLY != 0 {
                return Err(ntstatus::STATUS_CANNOT_DELETE);
            }
        }

        let write = open_access & (FILE_WRITE_DATA | FILE_APPEND_DATA) != 0;
        let opts = OpenOptions {
            read: open_access & (FILE_READ_DATA | FILE_EXECUTE) != 0 || !write,
            write,
            write_attributes: open_access & FILE_WRITE_ATTRIBUTES != 0,
            access: named_access & open_access,
            intent,
            directory,
            non_directory,
            delete_on_close,
            attributes: new_attributes,
            security,
        };
        Ok(Request::Open(Self {
            path,
            intent,
            options,
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

/// Where an attempt to open stands.
enum Stage {
    Start,
    /// A sharing violation broke handle caching. Another violation waits
    /// while that break is in progress and fails the CREATE once it is
    /// over (MS-FSA 2.1.5.1.2).
    AfterHandleBreak,
    /// The open is in the file table, waiting for other clients to give up
    /// write caching (MS-FSA 2.1.4.12, OPEN). Staying in the table keeps
    /// its sharing mode in force and keeps those clients from regaining
    /// write caching meanwhile.
    Reserved(Box<Reserved>),
}

/// What a CREATE waiting in the file table holds.
struct Reserved {
    file: FileRef,
    slot: OpenSlot,
    lease_ref: Option<LeaseRef>,
    /// The backend open, when it already ran. An open that truncates runs
    /// it after the wait, so data the clients write back first is not lost
    /// to the truncation.
    opened: Option<(HeldHandle, OpenAction)>,
}

/// A backend handle a waiting CREATE keeps. One dropped without
/// [`HeldHandle::take`], when the CREATE's task is cancelled or aborted, is
/// closed on the current runtime.
struct HeldHandle(Option<Box<dyn Handle>>);

impl HeldHandle {
    fn take(mut self) -> Box<dyn Handle> {
        self.0.take().expect("a held handle is taken once")
    }
}

impl Drop for HeldHandle {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move {
                let _ = handle.close().await;
            });
        }
    }
}

impl Stage {
    fn break_handles(&self) -> bool {
        matches!(self, Stage::Start)
    }

    /// Gives up what a waiting CREATE holds, closing its backend handle.
    async fn release(self) {
        if let Stage::Reserved(reserved) = self {
            let Reserved { file, opened, .. } = *reserved;
            if let Some((handle, _)) = opened {
                let _ = handle.take().close().await;
            }
            drop(file);
        }
    }
}

/// How an attempt ended.
enum Step {
    Done(HandlerResponse),
    /// A lease break has to complete first.
    Wait(BreakWait, Stage),
}

pub async fn handle(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    hdr: &Smb2Header,
    body: &[u8],
    retained: usize,
) -> Outcome {
    let args = match CreateArgs::parse(conn, hdr, body).await {
        Ok(Request::Open(args)) => args,
        Ok(Request::Reconnect(r)) => {
            return reconnect::handle(server, conn, hdr, r, retained).await;
        }
        Err(status) => return Outcome::Done(HandlerResponse::err(status)),
    };
    // MS-SMB2 3.3.5.9.10: a version 2 request that repeats the CreateGuid of
    // a live durable open of the same client fails unless it is marked as a
    // replay, which that open answers.
    if let DurableAsk::V2(request) = args.queries.durable
        && let Some(found) = server.durable.replayable(args.client, request.create_guid)
    {
        if hdr.flags & SMB2_FLAGS_REPLAY_OPERATION == 0 {
            return Outcome::Done(HandlerResponse::err(ntstatus::STATUS_DUPLICATE_OBJECTID));
        }
        let replay = Replay {
            create_guid: request.create_guid,
            path: &args.path,
            owner: args.owner.as_deref(),
            lease: args.lease,
            queries: &args.queries,
            maximal: args.maximal,
        };
        return replay::handle(server, conn, hdr, found, replay, retained).await;
    }
    let mut begun = None;
    if let DurableAsk::V2(request) = args.queries.durable
        && !args.client.is_nil()
    {
        match server.replays.begin(args.client, request.create_guid) {
            Ok(first) => begun = Some(first),
            Err(place) => return replay::again(conn, hdr, &place, &args).await,
        }
    }
    let (wait, stage) = match attempt(server, conn, hdr, &args, &mut begun, Stage::Start).await {
        Step::Done(response) => return Outcome::Done(response),
        Step::Wait(wait, stage) => (wait, stage),
    };
    // MS-SMB2 3.3.4.2: past its limits the connection gets no more
    // asynchronous requests.
    let Some((op, mut stop)) = conn.pending.reserve(hdr, None, retained) else {
        warn!("too many waiting requests on the connection");
        stage.release().await;
        return Outcome::Done(HandlerResponse::err(ntstatus::STATUS_INSUFFICIENT_RESOURCES));
    };
    let (server, conn, hdr) = (Arc::clone(server), Arc::clone(conn), *hdr);
    // The wait ends when the breaks complete, which their acknowledgment
    // timers bound. A wait that runs out with nothing changed on the file,
    // or one that outlasts [`MAX_BREAK_WAIT`], fails the CREATE as a sharing
    // violation.
    let work = async move {
        let give_up = Instant::now() + MAX_BREAK_WAIT;
        let mut wait = wait;
        let mut stage = stage;
        loop {
            let changed = tokio::select! {
                biased;
                why = stopped(&mut stop) => {
                    if why == Stop::Cancelled {
                        stage.release().await;
                        return HandlerResponse::err(ntstatus::STATUS_CANCELLED);
                    }
                    true
                }
                changed = wait.changed() => changed,
                () = tokio::time::sleep_until(give_up) => false,
            };
            match attempt(&server, &conn, &hdr, &args, &mut begun, stage).await {
                Step::Done(response) => return response,
                Step::Wait(_, left) if !changed => {
                    left.release().await;
                    return HandlerResponse::err(ntstatus::STATUS_SHARING_VIOLATION);
                }
                Step::Wait(next, left) => {
                    wait = next;
                    stage = left;
                }
            }
        }
    };
    Outcome::Pending(Pending { op, work: Box::pin(work) })
}

/// One try at opening the file. Runs the session and tree checks again, so
/// a CREATE that waited fails once its session or tree is gone.
async fn attempt(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    hdr: &Smb2Header,
    args: &CreateArgs,
    begun: &mut Option<Begun<tokio::sync::RwLock<Open>>>,
    stage: Stage,
) -> Step {
    let fail = |status| Step::Done(HandlerResponse::err(status));
    let tree_arc = match lookup_session_tree(conn, hdr) {
        Ok(t) => t,
        Err(s) => {
            stage.release().await;
            return fail(s);
        }
    };
    let (share, backend) = (Arc::clone(&tree_arc.share), Arc::clone(&tree_arc.backend));
    let path = &args.path;
    // No rename of a client runs from the first backend call until the open is in the
    // file table, so a rename of a directory sees every open below it.
    let names = share.names_lock().await;

    let owner = conn.notified(hdr.session_id, &share);
    let parent_lease = args.lease.and_then(|lease| lease.parent_lease());
    let open_request = |overwrite, break_handles| OpenRequest {
        sharing: args.sharing,
        owner: owner.clone(),
        lease: args.lease.map(|l| l.id),
        parent_lease,
        overwrite,
        break_handles,
    };
    let break_handles = stage.break_handles();
    let refused = |refused: Refused, stage: Stage| match refused.wait {
        Some(wait) => Step::Wait(wait, stage),
        None => fail(refused.status),
    };

    let open_failed = async |e: SmbError| {
        debug!(error = %e, path = %path, "backend open failed");
        if matches!(e, SmbError::Exists)
            && let Ok(Located { file: Some(file), .. }) = backend.locate(path).await
            && share.files.delete_pending(file)
        {
            return fail(ntstatus::STATUS_DELETE_PENDING);
        }
        fail(e.to_nt_status())
    };

    let (slot, lease_ref, reserved, opened, registered) = match stage {
        Stage::Reserved(reserved) => {
            match reserved.file.end_wait() {
                // Write caching other clients still hold keeps it waiting.
                Ok(Some(wait)) => return Step::Wait(wait, Stage::Reserved(reserved)),
                Ok(None) => {}
                Err(status) => {
                    Stage::Reserved(reserved).release().await;
                    return fail(status);
                }
            }
            let Reserved { file, slot, lease_ref, opened } = *reserved;
            let opened = opened.map(|(handle, action)| (handle.take(), action));
            let registered = opened.is_some();
            (slot, lease_ref, Some(file), opened, registered)
        }
        Stage::Start | Stage::AfterHandleBreak => {
            let limit = MAX_OPENS_PER_CONNECTION;
            let Some(slot) = OpenSlot::acquire(&conn.open_count, limit) else {
                warn!(limit, "open limit reached");
                return fail(ntstatus::STATUS_INSUFFICIENT_RESOURCES);
            };
            let lease_ref = match &args.lease {
                Some(l) => {
                    match server.leases.acquire(l.id, &share, leased_file(server, backend.as_ref(), l.id, path).await) {
                        Ok(lease_ref) => Some(lease_ref),
                        Err(status) => return fail(status),
                    }
                }
                None => None,
            };
            let truncating = matches!(args.intent, OpenIntent::Truncate | OpenIntent::OverwriteOrCreate);
            // An open that truncates checks the file and takes its place
            // in the table first, so a refused open leaves the file as it
            // was, no other open slips in while the backend truncates, and
            // clients caching writes write back before it does. A file
            // that is missing is created instead; one that appears
            // meanwhile is checked again.
            let mut tries = 0;
            let (reserved, opened) = loop {
                if !truncating {
                    break (None, None);
                }
                let request = open_request(true, break_handles);
                match reserve_existing(&share, backend.as_ref(), path, args.opts.clone(), request).await {
                    Ok(Probe::Reserved(file, Some(wait))) => {
                        let reserved = Reserved { file, slot, lease_ref, opened: None };
                        return Step::Wait(wait, Stage::Reserved(Box::new(reserved)));
                    }
                    Ok(Probe::Reserved(file, None)) => break (Some(file), None),
                    Ok(Probe::Missing(e)) if args.intent == OpenIntent::Truncate => {
                        return open_failed(e).await;
                    }
                    Ok(Probe::Missing(_)) => {
                        let create = OpenOptions { intent: OpenIntent::Create, ..args.opts.clone() };
                        match open_reported(&share, backend.as_ref(), path, create, parent_lease).await {
                            Ok(opened) => break (None, Some(opened)),
                            Err(SmbError::Exists) if tries < 2 => tries += 1,
                            Err(e) => return open_failed(e).await,
                        }
                    }
                    Err(r) => return refused(r, Stage::AfterHandleBreak),
                }
            };
            (slot, lease_ref, reserved, opened, false)
        }
    };

    // The open this attempt made, or the one a waiting CREATE kept.
    let (handle, action) = match opened {
        Some(opened) => opened,
        None => match open_reported(&share, backend.as_ref(), path, args.opts.clone(), parent_lease).await {
            Ok(opened) => opened,
            Err(e) => return open_failed(e).await,
        },
    };

    // Stat for the response.
    let mut info = match handle.stat().await {
        Ok(i) => i,
        Err(e) => {
            let _ = handle.close().await;
            return fail(e.to_nt_status());
        }
    };
    // MS-FSA 2.1.5.1.2.1: a read-only file cannot be opened for deletion.
    if args.delete_on_close && info.read_only {
        let _ = handle.close().await;
        return fail(ntstatus::STATUS_CANNOT_DELETE);
    }
    if !handle.claim(args.sharing.access, args.sharing.share) {
        let _ = handle.close().await;
        return fail(ntstatus::STATUS_SHARING_VIOLATION);
    }
    let mut file = match reserved {
        Some(file) if registered || file.is_for(&info) => file,
        // The file was replaced between the two opens, or did not exist.
        reserved => {
            drop(reserved);
            let overwrite = action == OpenAction::Overwritten;
            match FileRef::register(&share, &info, handle.name(), open_request(overwrite, break_handles)) {
                Ok((file, None)) => file,
                Ok((file, Some(wait))) => {
                    let reserved = Reserved { file, slot, lease_ref, opened: Some((HeldHandle(Some(handle)), action)) };
                    return Step::Wait(wait, Stage::Reserved(Box::new(reserved)));
                }
                Err(r) => {
                    let _ = handle.close().await;
                    return refused(r, Stage::AfterHandleBreak);
                }
            }
        }
    };
    drop(names);
    let mut granted = None;
    let mut after_send = None;
    if let (Some(lease), Some(lease_ref)) = (args.lease, lease_ref)
        && (!info.is_directory || lease.version == LeaseVersion::V2)
    {
        match server.leases.grant(lease_ref, &mut file, &lease, || match handle.is_open_elsewhere() {
            true => GRANTABLE_LEASE.without(LeaseState::W),
            false => GRANTABLE_LEASE,
        }) {
            Ok((lease, guard)) => {
                granted = Some(lease);
                after_send = Some(guard);
            }
            Err(status) => {
                drop(file);
                let _ = handle.close().await;
                return fail(status);
            }
        }
    }
    // MS-SMB2 3.3.5.9.6, 3.3.5.9.10: an open asking for a durable handle
    // gets one when its lease or oplock caches handles; any other open gets none and
    // no durable context in the response. Anonymous sessions get none,
    // since they all count as one user, and neither does a client without a
    // ClientGuid. The PERSISTENT flag of a version 2 request is ignored:
    // no share is continuously available.
    let durability = match args.queries.durable {
        DurableAsk::V1 => {
            Some(Durability { create_guid: None, timeout: server.durable.timeout, replay_eligible: false })
        }
        DurableAsk::V2(request) => Some(Durability {
            create_guid: Some(request.create_guid),
            timeout: v2_timeout(request.timeout_ms, server.durable.timeout),
            replay_eligible: args.open_access & REPLAYABLE_ACCESS != 0,
        }),
        _ => None,
    };
    let durable = match (&granted, &args.owner, durability) {
        (Some(lease), Some(owner), Some(durability))
            if lease.state.contains(LeaseState::H) && !info.is_directory && !args.client.is_nil() =>
        {
            let lease = (lease.id, lease.version);
            server.durable.register((owner, args.client), &share, lease, durability, conn).map(|reg| (reg, durability))
        }
        _ => None,
    };
    if let Some((reg, _)) = &durable {
        file.mark_durable(&server.durable, reg.id());
    }
    // An overwrite that took the file's place in the table before the
    // backend truncated it broke the leases then; one granted since breaks
    // now, so it does not keep the old contents cached.
    if action == OpenAction::Overwritten {
        file.break_leases(Trigger::Open { overwrite: true });
    }

    // MS-FSA 2.1.5.1.1: what makes or overwrites a file marks it for archiving.
    let new_attributes = match args.new_attributes {
        0 => 0,
        _ if path.stream().is_some() => 0,
        asked if info.is_directory => asked,
        asked => asked | FILE_ATTRIBUTE_ARCHIVE,
    };
    if action != OpenAction::Opened && new_attributes != 0 && new_attributes != info.attributes() & VALID_SET_ATTRIBUTES
    {
        apply_attributes(handle.as_ref(), new_attributes, path).await;
        if let Ok(updated) = handle.stat().await {
            info = updated;
        }
    }

    if action != OpenAction::Opened
        && let Ok(attributes) = &args.queries.extended
        && let Err(status) = extended::set(handle.as_ref(), attributes.clone()).await
    {
        debug!(status, path = %path, "extended attributes of a new file not kept");
    }

    // The on-disk id carries the serial number FileFsVolumeInformation
    // reports.
    let volume_serial = if args.queries.query_on_disk_id {
        backend.volume_info().await.map_or(VOLUME_SERIAL_NUMBER, |v| v.serial_number)
    } else {
        VOLUME_SERIAL_NUMBER
    };

    // Allocate FileId, register Open. A tree disconnected or revoked while
    // the backend worked takes no new opens.
    let allowed = handle.maximal_access();
    let granted_access = args.open_access & !(args.added_access & !allowed);
    let placed = 'placed: {
        let mut opens = tree_arc.opens_mut();
        if opens.closed {
            break 'placed Err((file, handle));
        }
        let file_id = match &durable {
            Some((reg, _)) => FileId::new(reg.id(), tree_arc.alloc_volatile()),
            None => tree_arc.alloc_file_id(),
        };
        file.set_file_id(file_id);
        let (durable, durability) = durable.unzip();
        let create_action = match action {
            OpenAction::Opened => FILE_OPENED,
            OpenAction::Created => FILE_CREATED,
            OpenAction::Overwritten if args.create_disposition == FILE_SUPERSEDE => FILE_SUPERSEDED,
            OpenAction::Overwritten => FILE_OVERWRITTEN,
        };
        let open = Open {
            file_id,
            handle: Some(handle),
            granted_access,
            is_directory: info.is_directory,
            delete_on_close: args.delete_on_close,
            search_state: None,
            fixed_times: FileTimes::default(),
            create_options: args.options,
            file: Some(file),
            slot: Some(slot),
            durable,
            begun: begun.take().filter(|_| args.open_access & REPLAYABLE_ACCESS != 0),
            watch: None,
            wrote: Default::default(),
            create_action,
            marked_deleted: Default::default(),
            position: Default::default(),
            lock_sequences: Default::default(),
            channel_sequence: Arc::default(),
        };
        let open_arc = Arc::new(tokio::sync::RwLock::new(open));
        // Nobody else has it yet.
        if let Ok(open) = open_arc.try_read()
            && let Some(begun) = &open.begun
        {
            begun.made(&open_arc);
        }
        opens.files.insert(file_id, open_arc);
        Ok((file_id, create_action, durability))
    };
    let (file_id, create_action, durability) = match placed {
        Ok(placed) => placed,
        Err((file, handle)) => {
            // The open leaves the table, ending a lease it alone held, before
            // the guard could send a break held back for that lease.
            drop(file);
            drop(after_send);
            let _ = handle.close().await;
            return fail(ntstatus::STATUS_NETWORK_NAME_DELETED);
        }
    };

    let mut answers = args.queries.answer(&info, args.maximal & allowed, volume_serial);
    if let Some(wanted) = args.queries.apple {
        conn.outbound.set_mac();
        let data = apple::answer(wanted, share.backend.capabilities());
        answers.push(CreateContext { name: CreateContext::NAME_AAPL.to_vec(), data });
    }
    let (oplock_level, lease_context) = caching_response(granted.as_ref());
    answers.extend(lease_context);
    if let Some(durability) = durability {
        debug!(
            id = file_id.persistent,
            timeout = ?durability.timeout,
            v2 = durability.create_guid.is_some(),
            "durable open granted"
        );
        answers.push(match durability.create_guid {
            None => CreateContext { name: CreateContext::NAME_DHNQ.to_vec(), data: DurableResponse.encode() },
            Some(_) => durable_v2_response(durability.timeout),
        });
    }
    let buf = encode_response(&info, file_id, oplock_level, create_action, &answers);
    let mut response = HandlerResponse::ok(buf);
    if let Some(guard) = after_send {
        response.after_send.push(Box::new(guard));
    }
    Step::Done(response)
}

/// Opens `path` on the backend with `opts` and tells the watchers of
/// `share` when that overwrote it (MS-FSA 2.1.5.1.2), right after the backend
/// call, so a CREATE that then waits for a lease break, or fails, tells of the
/// change it made once. The backend tells of a creation.
async fn open_reported(
    share: &ShareBindings,
    backend: &dyn ShareBackend,
    path: &SmbPath,
    opts: OpenOptions,
    parent_lease: Option<LeaseId>,
) -> SmbResult<(Box<dyn Handle>, OpenAction)> {
    let opened = backend.open(path, opts).await;
    if let Ok((_, OpenAction::Overwritten)) = &opened {
        share.modified(path, CONTENT_CHANGED).await;
    }
    if let Ok((handle, OpenAction::Created | OpenAction::Overwritten)) = &opened
        && share.files.has_leased_directories()
        && path.stream().is_none()
        && let Some(dir) = handle.name().dir().await
    {
        share.files.entry_changed(dir, parent_lease);
    }
    opened
}

/// What `path` leads to, where that decides whether the lease `id` is held on the same file.
async fn leased_file(server: &ServerState, backend: &dyn ShareBackend, id: LeaseId, path: &SmbPath) -> Option<u64> {
    match server.leases.exists(id) {
        true => backend.locate(path).await.ok().and_then(|located| located.file),
        false => None,
    }
}

fn names_data(name: &[u16]) -> bool {
    let suffix: Vec<u16> = "::$DATA".encode_utf16().collect();
    let Some(end) = name.len().checked_sub(suffix.len()).map(|at| &name[at..]) else { return false };
    String::from_utf16_lossy(end).eq_ignore_ascii_case("::$DATA")
}

fn is_missing(e: &SmbError) -> bool {
    matches!(e, SmbError::NotFound | SmbError::PathNotFound)
}

/// What the check before a truncating CREATE found.
enum Probe {
    /// No file at the path; the error the open reported.
    Missing(SmbError),
    /// The open is in the table, with a wait when clients caching writes
    /// have to write back first.
    Reserved(FileRef, Option<BreakWait>),
}

/// Before a CREATE that truncates the file at `path`, opens the existing
/// file without truncating it, checks it against delete-on-close and the
/// opens already on it, and enters the new open in the share's table. That
/// open asks for reading, and for the access the CREATE was granted when
/// reading is refused. Only a missing file passes without an entry; any
/// other failure fails the CREATE, as the truncating open would.
async fn reserve_existing(
    share: &Arc<ShareBindings>,
    backend: &dyn ShareBackend,
    path: &SmbPath,
    opts: OpenOptions,
    req: OpenRequest,
) -> Result<Probe, Refused> {
    let probe = OpenOptions { intent: OpenIntent::Open, delete_on_close: false, security: None, ..opts };
    let read_only =
        OpenOptions { read: true, write: false, write_attributes: false, access: FILE_READ_DATA, ..probe.clone() };
    let mut opened = backend.open(path, read_only).await;
    if matches!(opened, Err(ref e) if !is_missing(e)) && probe.write {
        opened = backend.open(path, probe).await;
    }
    let handle = match opened {
        Ok((handle, _)) => handle,
        Err(e) if is_missing(&e) => return Ok(Probe::Missing(e)),
        Err(e) => return Err(e.to_nt_status().into()),
    };
    let result = match handle.stat().await {
        Ok(info) if opts.delete_on_close && info.read_only => Err(ntstatus::STATUS_CANNOT_DELETE.into()),
        Ok(_) if !handle.claim(req.sharing.access, req.sharing.share) => Err(ntstatus::STATUS_SHARING_VIOLATION.into()),
        Ok(info) => FileRef::register(share, &info, handle.name(), req).map(|(file, wait)| Probe::Reserved(file, wait)),
        Err(e) => Err(e.to_nt_status().into()),
    };
    let _ = handle.close().await;
    result
}

/// Gives a file this CREATE made or overwrote the requested attributes. A
/// backend that cannot store all of them gets READONLY alone, when asked
/// for; the CREATE succeeds either way.
async fn apply_attributes(handle: &dyn Handle, attributes: u32, path: &SmbPath) {
    let mut result = handle.set_attributes(attributes).await;
    if matches!(result, Err(SmbError::NotSupported))
        && attributes & FILE_ATTRIBUTE_READONLY != 0
        && attributes != FILE_ATTRIBUTE_READONLY
    {
        result = handle.set_attributes(FILE_ATTRIBUTE_READONLY).await;
    }
    if let Err(e) = result {
        debug!(error = %e, path = %path, attributes, "create attributes not applied");
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use tokio::sync::{Notify, Semaphore};

    use super::*;
    use crate::access_mask::Access;
    use crate::backend::BackendCapabilities;
    use crate::conn::state::{Session, TreeConnect};
    use crate::error::SmbResult;
    use crate::proto::auth::ntlm::Identity;
    use crate::proto::header::{Command, HeaderTail};
    use crate::tests::memfs::MemFsBackend;
    use crate::{Share, SmbServer};

    /// Memory backend whose truncating opens tell `waiting` they have
    /// arrived and then wait for a permit from `go`.
    struct HoldTruncate {
        inner: MemFsBackend,
        waiting: Arc<Notify>,
        go: Arc<Semaphore>,
    }

    #[async_trait]
    impl ShareBackend for HoldTruncate {
        async fn open(&self, path: &SmbPath, opts: OpenOptions) -> SmbResult<(Box<dyn Handle>, OpenAction)> {
            if opts.intent == OpenIntent::Truncate {
                self.waiting.notify_one();
                self.go.acquire().await.expect("gate").forget();
            }
            self.inner.open(path, opts).await
        }

        async fn locate(&self, path: &SmbPath) -> SmbResult<Located> {
            self.inner.locate(path).await
        }

        async fn is_within(&self, dir: u64, top: u64) -> bool {
            self.inner.is_within(dir, top).await
        }

        fn capabilities(&self) -> BackendCapabilities {
            self.inner.capabilities()
        }
    }

    fn create_body(name: &str, disposition: u32) -> Vec<u8> {
        let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let req = CreateRequest {
            structure_size: 57,
            security_flags: 0,
            requested_oplock_level: 0,
            impersonation_level: 2,
            smb_create_flags: 0,
            reserved: 0,
            desired_access: FILE_READ_DATA | FILE_WRITE_DATA,
            file_attributes: 0,
            share_access: 7,
            create_disposition: disposition,
            create_options: 0,
            name_offset: 0x78,
            name_length: name.len() as u16,
            create_contexts_offset: 0,
            create_contexts_length: 0,
            name,
            create_contexts: Vec::new(),
        };
        let mut body = Vec::new();
        req.write_to(&mut body).expect("encoding into a Vec cannot fail");
        body
    }

    #[tokio::test]
    async fn a_truncating_create_holds_the_file_while_the_backend_truncates() {
        let waiting = Arc::new(Notify::new());
        let go = Arc::new(Semaphore::new(0));
        let backend = HoldTruncate {
            inner: MemFsBackend::new().with_file("f.txt", b"precious"),
            waiting: Arc::clone(&waiting),
            go: Arc::clone(&go),
        };
        let server = SmbServer::builder()
            .listen("127.0.0.1:0".parse().unwrap())
            .share(Share::new("s", backend).public())
            .build()
            .unwrap();
        let state = server.state();
        let share = state.find_share("s").await.unwrap();
        let conn = Arc::new(Connection::new(
            state.config.server_guid,
            state.config.max_read_size,
            state.config.max_write_size,
        ));
        let session = Session::new(Identity::Anonymous, [0; 16], false);
        let tree = TreeConnect::new(1, Arc::clone(&share), Access::ReadWrite);
        session.trees.change().await.insert(1, Arc::new(tree));
        conn.sessions.change().await.insert(1, Arc::new(session));

        let hdr =
            Smb2Header { command: Command::Create, tail: HeaderTail::sync(1), session_id: 1, ..Smb2Header::default() };
        let body = create_body("f.txt", FILE_OVERWRITE);
        let truncating = tokio::spawn({
            let state = Arc::clone(&state);
            let conn = Arc::clone(&conn);
            async move {
                match handle(&state, &conn, &hdr, &body, 0).await {
                    Outcome::Done(response) => response.status,
                    Outcome::Pending(_) => panic!("the CREATE waits"),
                }
            }
        });
        waiting.notified().await;

        // Another connection's exclusive open arrives while the backend
        // truncates.
        let path: SmbPath = "f.txt".parse().unwrap();
        let (probe, _) = share.backend.open(&path, OpenOptions::default()).await.unwrap();
        let info = probe.stat().await.unwrap();
        let exclusive =
            FileRef::register(&share, &info, probe.name(), Sharing { access: FILE_READ_DATA, share: 0 }.into());
        assert_eq!(exclusive.err().map(|r| r.status), Some(ntstatus::STATUS_SHARING_VIOLATION));

        go.add_permits(1);
        assert_eq!(truncating.await.unwrap(), ntstatus::STATUS_SUCCESS);
        assert_eq!(probe.stat().await.unwrap().end_of_file, 0);
    }
}
