//! One try at opening the file of a CREATE (MS-SMB2 3.3.5.9, MS-FSA 2.1.5.1), which a lease break may make wait.

use std::sync::Arc;

use tracing::debug;

use super::request::{CreateArgs, FILE_SUPERSEDE, GRANTABLE_LEASE, REPLAYABLE_ACCESS};
use crate::conn::outbound::Notified;
use crate::conn::state::{Connection, Open, TreeConnect};
use crate::door::handle::FileHandle;
use crate::door::view::VisitedShare;
use crate::error::{SmbError, SmbResult};
use crate::files::{
    Begun, BreakWait, CONTENT_CHANGED, Durability, DurableReg, FileRef, GrantGuard, Granted, LeaseId, LeaseRef,
    LeaseState, LeaseVersion, OpenRequest, OpenSlot, Refused, Trigger, v2_timeout,
};
use crate::handlers::apple;
use crate::handlers::create_contexts::{
    DurableAsk, FILE_CREATED, FILE_OPENED, FILE_OVERWRITTEN, FILE_SUPERSEDED, caching_response, durable_v2_response,
    encode_response,
};
use crate::handlers::extended;
use crate::handlers::response::HandlerResponse;
use crate::handlers::shared::still_connected;
use crate::share::ShareBindings;
use crate::state::ServerState;
use crate::words::{FileTimes, Located, OpenAction, OpenIntent, OpenOptions};
use larder_smb_wire::access_mask::{FILE_APPEND_DATA, FILE_READ_DATA, FILE_WRITE_DATA};
use larder_smb_wire::file_info::{FILE_ATTRIBUTE_ARCHIVE, FILE_ATTRIBUTE_READONLY, FileInfo, VALID_SET_ATTRIBUTES};
use larder_smb_wire::header::Smb2Header;
use larder_smb_wire::info_class::VOLUME_SERIAL_NUMBER;
use larder_smb_wire::messages::{CreateContext, DurableResponse, FileId};
use larder_smb_wire::ntstatus;
use larder_smb_wire::path::SmbPath;

/// Where an attempt to open stands.
pub(super) enum Stage {
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
pub(super) struct Reserved {
    file: FileRef,
    slot: OpenSlot,
    lease_ref: Option<LeaseRef>,
    /// The open of the file, when it already ran. An open that truncates runs
    /// it after the wait, so data the clients write back first is not lost
    /// to the truncation.
    opened: Option<(Box<FileHandle>, OpenAction)>,
}

impl Stage {
    fn break_handles(&self) -> bool {
        matches!(self, Stage::Start)
    }
}

/// How an attempt ended.
pub(super) enum Step {
    Done(HandlerResponse),
    /// A lease break has to complete first.
    Wait(BreakWait, Stage),
}

impl Step {
    fn fail(status: u32) -> Self {
        Step::Done(HandlerResponse::err(status))
    }
}

/// The place of a CREATE by its CreateGuid, which the open takes over.
pub(super) type BegunOpen = Option<Begun<tokio::sync::RwLock<Open>>>;

/// One try at opening the file. A CREATE that waited fails once its session or tree is gone.
pub(super) async fn attempt(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    hdr: &Smb2Header,
    args: &CreateArgs,
    begun: &mut BegunOpen,
    stage: Stage,
) -> Step {
    let tree = Arc::clone(&args.tree);
    if let Err(status) = still_connected(conn, hdr, &tree) {
        return Step::fail(status);
    }
    let attempt = Attempt {
        owner: conn.notified(hdr.session_id, &tree.share),
        parent_lease: args.lease.and_then(|lease| lease.parent_lease()),
        break_handles: stage.break_handles(),
        server,
        conn,
        args,
        tree,
    };
    match attempt.run(begun, stage).await {
        Ok(response) => Step::Done(response),
        Err(ended) => *ended,
    }
}

struct Attempt<'a> {
    server: &'a Arc<ServerState>,
    conn: &'a Arc<Connection>,
    args: &'a CreateArgs,
    tree: Arc<TreeConnect>,
    /// Where breaks of the open's lease go.
    owner: Notified,
    parent_lease: Option<LeaseId>,
    break_handles: bool,
}

/// An open before its file is certain: its place among the connection's opens, and as far as a CREATE that truncates has
/// got before it truncates.
struct Claimed {
    slot: OpenSlot,
    lease_ref: Option<LeaseRef>,
    /// Its place in the file table.
    reserved: Option<FileRef>,
    opened: Option<(Box<FileHandle>, OpenAction)>,
    /// `reserved` was entered for `opened`.
    is_registered: bool,
}

/// An open file that has its place in the file table.
struct Opened {
    handle: Box<FileHandle>,
    action: OpenAction,
    info: FileInfo,
    file: FileRef,
    slot: OpenSlot,
    lease_ref: Option<LeaseRef>,
}

/// What the response to a CREATE tells of its open.
struct Placed {
    file_id: FileId,
    create_action: u32,
    durability: Option<Durability>,
}

/// An open whose tree has closed meanwhile.
type Unplaced = Box<(FileRef, Box<FileHandle>)>;

/// The lease that was granted, and what holds back its breaks until the response is queued.
type Lease = (Option<Granted>, Option<GrantGuard>);

impl Attempt<'_> {
    async fn run(&self, begun: &mut BegunOpen, stage: Stage) -> Result<HandlerResponse, Box<Step>> {
        let share = &self.tree.share;
        // No rename of a client runs from the first look at the store until the open is in the
        // file table, so a rename of a directory sees every open below it.
        let names = share.names_lock().await;
        let claimed = match stage {
            Stage::Reserved(reserved) => resume(reserved).await?,
            Stage::Start | Stage::AfterHandleBreak => self.claim().await?,
        };
        let mut opened = self.open(claimed).await?;
        drop(names);

        let (granted, after_send);
        (opened, (granted, after_send)) = self.grant_lease(opened)?;
        let durable = self.make_durable(&opened, granted.as_ref());
        // An overwrite that took the file's place in the table before the
        // file was truncated broke the leases then; one granted since breaks
        // now, so it does not keep the old contents cached.
        if opened.action == OpenAction::Overwritten {
            opened.file.break_leases(Trigger::Open { overwrite: true });
        }
        self.set_new_attributes(&mut opened).await;
        // The on-disk id carries the serial number FileFsVolumeInformation
        // reports.
        let volume_serial = if self.args.queries.query_on_disk_id {
            self.tree.view().map_or(VOLUME_SERIAL_NUMBER, |view| view.volume_info().serial_number)
        } else {
            VOLUME_SERIAL_NUMBER
        };
        let allowed = opened.handle.maximal_access();
        let info = opened.info.clone();
        let placed = match self.place(opened, durable, begun) {
            Ok(placed) => placed,
            Err(unplaced) => {
                // The open leaves the table, ending a lease it alone held, before
                // the guard could send a break held back for that lease.
                drop(unplaced);
                drop(after_send);
                return fail(ntstatus::STATUS_NETWORK_NAME_DELETED);
            }
        };
        let mut response = self.response(&info, &placed, granted.as_ref(), allowed, volume_serial);
        if let Some(guard) = after_send {
            response.after_send.push(Box::new(guard));
        }
        Ok(response)
    }

    fn view(&self) -> Result<&VisitedShare, Box<Step>> {
        self.tree.view().or_else(fail)
    }

    fn open_request(&self, action: OpenAction) -> OpenRequest {
        OpenRequest {
            sharing: self.args.sharing,
            owner: self.owner.clone(),
            held: None,
            holder: self.server.holder(self.conn, self.args.owner.as_deref()),
            lease: self.args.lease.map(|l| l.id),
            parent_lease: self.parent_lease,
            overwrite: action == OpenAction::Overwritten,
            created: action == OpenAction::Created,
            break_handles: self.break_handles,
        }
    }

    async fn open_failed<T>(&self, e: SmbError) -> Result<T, Box<Step>> {
        debug!(error = %e, path = %self.args.path, "open failed");
        if matches!(e, SmbError::Exists)
            && let Ok(view) = self.tree.view()
            && let Ok(Located { file: Some(file), .. }) = view.locate(&self.args.path).await
            && self.tree.share.files.delete_pending(file)
        {
            return fail(ntstatus::STATUS_DELETE_PENDING);
        }
        fail(e.to_nt_status())
    }

    /// Claims what an open needs before the file is opened: a place among the connection's opens,
    /// its lease, and for an open that truncates its place in the file table.
    async fn claim(&self) -> Result<Claimed, Box<Step>> {
        let (server, share, view) = (self.server, &self.tree.share, self.view()?);
        let slot = server.open_slot(self.conn, self.args.owner.as_deref()).or_else(fail)?;
        let lease_ref = match &self.args.lease {
            Some(l) => {
                let file = leased_file(server, view, l.id, &self.args.path).await;
                Some(server.leases.acquire(l.id, share, file).or_else(fail)?)
            }
            None => None,
        };
        let claimed = Claimed { slot, lease_ref, reserved: None, opened: None, is_registered: false };
        match self.args.intent {
            OpenIntent::Truncate | OpenIntent::OverwriteOrCreate => self.claim_before_truncation(claimed).await,
            _ => Ok(claimed),
        }
    }

    /// An open that truncates checks the file and takes its place
    /// in the table first, so a refused open leaves the file as it
    /// was, no other open slips in while the file is truncated, and
    /// clients caching writes write back before it does. A file
    /// that is missing is created instead; one that appears
    /// meanwhile is checked again.
    async fn claim_before_truncation(&self, claimed: Claimed) -> Result<Claimed, Box<Step>> {
        let (share, view) = (&self.tree.share, self.view()?);
        let (path, opts) = (&self.args.path, &self.args.opts);
        let mut tries = 0;
        loop {
            match reserve_existing(share, view, path, opts.clone(), self.open_request(OpenAction::Overwritten)).await {
                Ok(Probe::Reserved(file, Some(wait))) => {
                    let Claimed { slot, lease_ref, .. } = claimed;
                    let reserved = Reserved { file: *file, slot, lease_ref, opened: None };
                    return Err(Box::new(Step::Wait(wait, Stage::Reserved(Box::new(reserved)))));
                }
                Ok(Probe::Reserved(file, None)) => return Ok(Claimed { reserved: Some(*file), ..claimed }),
                Ok(Probe::Missing(e)) if self.args.intent == OpenIntent::Truncate => {
                    return self.open_failed(e).await;
                }
                Ok(Probe::Missing(_)) => {
                    let create = OpenOptions { intent: OpenIntent::Create, ..opts.clone() };
                    match open_reported(share, view, path, create, self.parent_lease).await {
                        Ok(opened) => return Ok(Claimed { opened: Some(opened), ..claimed }),
                        Err(SmbError::Exists) if tries < 2 => tries += 1,
                        Err(e) => return self.open_failed(e).await,
                    }
                }
                Err(r) => return refused(r),
            }
        }
    }

    /// Opens the file, unless that is done, and enters the open in the file table, unless it is
    /// there.
    async fn open(&self, claimed: Claimed) -> Result<Opened, Box<Step>> {
        let (share, view, args) = (&self.tree.share, self.view()?, self.args);
        let Claimed { slot, lease_ref, reserved, opened, is_registered } = claimed;
        // The open this attempt made, or the one a waiting CREATE kept.
        let (mut handle, action) = match opened {
            Some(opened) => opened,
            None => match open_reported(share, view, &args.path, args.opts.clone(), self.parent_lease).await {
                Ok(opened) => opened,
                Err(e) => return self.open_failed(e).await,
            },
        };
        // Stat for the response.
        let info = match handle.stat().await {
            Ok(info) => info,
            Err(e) => return fail(e.to_nt_status()),
        };
        // MS-FSA 2.1.5.1.2.1: a read-only file cannot be opened for deletion.
        if args.delete_on_close && info.read_only {
            return fail(ntstatus::STATUS_CANNOT_DELETE);
        }
        let file = match reserved {
            Some(file) if is_registered || file.is_for(&info) => file,
            // The file was replaced between the two opens, or did not exist.
            reserved => {
                drop(reserved);
                let req = OpenRequest { held: handle.take_entry(), ..self.open_request(action) };
                match FileRef::register(share, &info, handle.name(), req) {
                    Ok((file, None)) => file,
                    Ok((file, Some(wait))) => {
                        let reserved = Reserved { file, slot, lease_ref, opened: Some((handle, action)) };
                        return Err(Box::new(Step::Wait(wait, Stage::Reserved(Box::new(reserved)))));
                    }
                    Err(r) => return refused(r),
                }
            }
        };
        // A place that was taken before the file was truncated stays the open's only one.
        drop(handle.take_entry());
        Ok(Opened { handle, action, info, file, slot, lease_ref })
    }

    /// Grants the lease or oplock that the CREATE asks for (MS-SMB2 3.3.5.9.8, 3.3.5.9.11).
    fn grant_lease(&self, mut opened: Opened) -> Result<(Opened, Lease), Box<Step>> {
        let (Some(lease), Some(lease_ref)) = (self.args.lease, opened.lease_ref.take()) else {
            return Ok((opened, (None, None)));
        };
        if opened.info.is_directory && lease.version != LeaseVersion::V2 {
            return Ok((opened, (None, None)));
        }
        let Opened { handle, file, .. } = &mut opened;
        let grantable = match handle.is_past() {
            true => GRANTABLE_LEASE.without(LeaseState::W),
            false => GRANTABLE_LEASE,
        };
        match self.server.leases.grant(lease_ref, file, &lease, grantable) {
            Ok((lease, guard)) => Ok((opened, (Some(lease), Some(guard)))),
            Err(status) => fail(status),
        }
    }

    /// MS-SMB2 3.3.5.9.6, 3.3.5.9.10: an open asking for a durable handle
    /// gets one when its lease or oplock caches handles; any other open gets none and
    /// no durable context in the response. Anonymous sessions get none,
    /// since they all count as one user, and neither does a client without a
    /// ClientGuid. The PERSISTENT flag of a version 2 request is ignored:
    /// no share is continuously available.
    fn make_durable(&self, opened: &Opened, granted: Option<&Granted>) -> Option<(DurableReg, Durability)> {
        let (args, table) = (self.args, &self.server.durable);
        let durability = match args.queries.durable {
            DurableAsk::V1 => Durability { create_guid: None, timeout: table.timeout, replay_eligible: false },
            DurableAsk::V2(request) => Durability {
                create_guid: Some(request.create_guid),
                timeout: v2_timeout(request.timeout_ms, table.timeout),
                replay_eligible: args.open_access & REPLAYABLE_ACCESS != 0,
            },
            _ => return None,
        };
        let (lease, owner) = (granted?, args.owner.as_deref()?);
        if !lease.state.contains(LeaseState::H) || opened.info.is_directory || args.client.is_nil() {
            return None;
        }
        let lease = (lease.id, lease.version);
        let reg = table.register((owner, args.client), &self.tree.share, lease, durability, self.conn)?;
        opened.file.mark_durable(table, reg.id());
        Some((reg, durability))
    }

    /// Gives a file that the CREATE made or overwrote its attributes and extended attributes.
    async fn set_new_attributes(&self, opened: &mut Opened) {
        let (args, path) = (self.args, &self.args.path);
        if opened.action == OpenAction::Opened {
            return;
        }
        // MS-FSA 2.1.5.1.1: what makes or overwrites a file marks it for archiving.
        let new_attributes = match args.new_attributes {
            0 => 0,
            _ if path.stream().is_some() => 0,
            asked if opened.info.is_directory => asked,
            asked => asked | FILE_ATTRIBUTE_ARCHIVE,
        };
        if new_attributes != 0 && new_attributes != opened.info.attributes() & VALID_SET_ATTRIBUTES {
            apply_attributes(opened.handle.as_ref(), new_attributes, path).await;
            if let Ok(updated) = opened.handle.stat().await {
                opened.info = updated;
            }
        }
        if let Ok(attributes) = &args.queries.extended
            && let Err(status) = extended::set(opened.handle.as_ref(), attributes.clone()).await
        {
            debug!(status, path = %path, "extended attributes of a new file not kept");
        }
    }

    /// Allocates the FileId and adds the open to its tree. A tree
    /// disconnected or revoked while the store worked takes no new opens:
    /// what is to be closed is given back.
    fn place(
        &self,
        opened: Opened,
        durable: Option<(DurableReg, Durability)>,
        begun: &mut BegunOpen,
    ) -> Result<Placed, Unplaced> {
        let (tree, args) = (&self.tree, self.args);
        let Opened { handle, action, info, file, slot, .. } = opened;
        let allowed = handle.maximal_access();
        let mut opens = tree.opens_mut();
        if opens.closed {
            return Err(Box::new((file, handle)));
        }
        let file_id = match &durable {
            Some((reg, _)) => FileId::new(reg.id(), tree.alloc_volatile()),
            None => tree.alloc_file_id(),
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
            granted_access: args.open_access & !(args.added_access & !allowed),
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
        let open = Arc::new(tokio::sync::RwLock::new(open));
        // Nobody else has it yet.
        if let Ok(made) = open.try_read()
            && let Some(begun) = &made.begun
        {
            begun.made(&open);
        }
        opens.files.insert(file_id, open);
        Ok(Placed { file_id, create_action, durability })
    }

    fn response(
        &self,
        info: &FileInfo,
        placed: &Placed,
        granted: Option<&Granted>,
        allowed: u32,
        volume_serial: u32,
    ) -> HandlerResponse {
        let args = self.args;
        let mut answers = args.queries.answer(info, args.maximal & allowed, volume_serial);
        if let Some(wanted) = args.queries.apple {
            self.conn.outbound.set_mac();
            let data = apple::answer(wanted);
            answers.push(CreateContext { name: CreateContext::NAME_AAPL.to_vec(), data });
        }
        let (oplock_level, lease_context) = caching_response(granted);
        answers.extend(lease_context);
        if let Some(durability) = &placed.durability {
            debug!(
                id = placed.file_id.persistent,
                timeout = ?durability.timeout,
                v2 = durability.create_guid.is_some(),
                "durable open granted"
            );
            answers.push(match durability.create_guid {
                None => CreateContext { name: CreateContext::NAME_DHNQ.to_vec(), data: DurableResponse.encode() },
                Some(_) => durable_v2_response(durability.timeout),
            });
        }
        let body = encode_response(info, placed.file_id, oplock_level, placed.create_action, &answers);
        HandlerResponse::ok(body)
    }
}

/// Goes on with a CREATE that waited in the file table.
async fn resume(reserved: Box<Reserved>) -> Result<Claimed, Box<Step>> {
    match reserved.file.end_wait() {
        // Write caching other clients still hold keeps it waiting.
        Ok(Some(wait)) => return Err(Box::new(Step::Wait(wait, Stage::Reserved(reserved)))),
        Ok(None) => {}
        Err(status) => return fail(status),
    }
    let Reserved { file, slot, lease_ref, opened } = *reserved;
    let is_registered = opened.is_some();
    Ok(Claimed { slot, lease_ref, reserved: Some(file), opened, is_registered })
}

fn fail<T>(status: u32) -> Result<T, Box<Step>> {
    Err(Box::new(Step::fail(status)))
}

/// A sharing violation waits for the handle caching that it broke; any other refusal ends the CREATE.
fn refused<T>(refused: Refused) -> Result<T, Box<Step>> {
    match refused.wait {
        Some(wait) => Err(Box::new(Step::Wait(wait, Stage::AfterHandleBreak))),
        None => fail(refused.status),
    }
}

/// Opens `path` with `opts` and tells the watchers of
/// `share` when that overwrote it (MS-FSA 2.1.5.1.2), right after it,
/// so a CREATE that then waits for a lease break, or fails, tells of the
/// change it made once. The store tells of a creation.
async fn open_reported(
    share: &ShareBindings,
    view: &VisitedShare,
    path: &SmbPath,
    opts: OpenOptions,
    parent_lease: Option<LeaseId>,
) -> SmbResult<(Box<FileHandle>, OpenAction)> {
    let opened = view.open(path, opts).await;
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
async fn leased_file(server: &ServerState, view: &VisitedShare, id: LeaseId, path: &SmbPath) -> Option<u64> {
    match server.leases.exists(id) {
        true => view.locate(path).await.ok().and_then(|located| located.file),
        false => None,
    }
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
    Reserved(Box<FileRef>, Option<BreakWait>),
}

/// Before a CREATE that truncates the file at `path`, opens the existing
/// file without truncating it, checks it against delete-on-close and the
/// opens already on it, and enters the new open in the share's table. That
/// open asks for reading, and for the access the CREATE was granted when
/// reading is refused. Only a missing file passes without an entry; any
/// other failure fails the CREATE, as the truncating open would.
async fn reserve_existing(
    share: &Arc<ShareBindings>,
    view: &VisitedShare,
    path: &SmbPath,
    opts: OpenOptions,
    req: OpenRequest,
) -> Result<Probe, Refused> {
    let probe = OpenOptions { intent: OpenIntent::Open, delete_on_close: false, security: None, ..opts };
    let read_only = OpenOptions { access: FILE_READ_DATA, ..probe.clone() };
    let mut opened = view.open(path, read_only).await;
    if matches!(opened, Err(ref e) if !is_missing(e)) && req.sharing.access & (FILE_WRITE_DATA | FILE_APPEND_DATA) != 0
    {
        opened = view.open(path, probe).await;
    }
    let mut handle = match opened {
        Ok((handle, _)) => handle,
        Err(e) if is_missing(&e) => return Ok(Probe::Missing(e)),
        Err(e) => return Err(e.to_nt_status().into()),
    };
    match handle.stat().await {
        Ok(info) if opts.delete_on_close && info.read_only => Err(ntstatus::STATUS_CANNOT_DELETE.into()),
        Ok(info) => {
            let req = OpenRequest { held: handle.take_entry(), ..req };
            let registered = FileRef::register(share, &info, handle.name(), req);
            registered.map(|(file, wait)| Probe::Reserved(Box::new(file), wait))
        }
        Err(e) => Err(e.to_nt_status().into()),
    }
}

/// Gives a file this CREATE made or overwrote the requested attributes. A
/// store that cannot keep all of them gets READONLY alone, when asked
/// for; the CREATE succeeds either way.
async fn apply_attributes(handle: &FileHandle, attributes: u32, path: &SmbPath) {
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
