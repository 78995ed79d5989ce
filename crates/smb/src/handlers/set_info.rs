//! SET_INFO handler.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_smb_wire::header::Smb2Header;
use larder_smb_wire::messages::{InfoType, SetInfoRequest, SetInfoResponse};

use crate::conn::pending::{Stop, stopped};
use crate::conn::state::{Connection, Open, TreeConnect};
use crate::door::open_name::EntryName;
use crate::door::view::VisitedShare;
use crate::files::{BreakWait, CONTENT_CHANGED, FileRef, LeaseId, MAX_BREAK_WAIT, Trigger};
use crate::handlers::extended;
use crate::handlers::response::{HandlerResponse, Outcome, Pending};
use crate::handlers::shared::{RequestTree, begin_change, lookup_open, still_connected};
use crate::share::ShareBindings;
use crate::words::{FileTimes, Located};
use larder_smb_wire::access_mask::{
    DELETE, FILE_WRITE_ATTRIBUTES, FILE_WRITE_DATA, FILE_WRITE_EA, WRITE_DAC, WRITE_OWNER,
};
use larder_smb_wire::file_info::{FILE_ATTRIBUTE_DIRECTORY, FILE_ATTRIBUTE_TEMPORARY, FileInfo, VALID_SET_ATTRIBUTES};
use larder_smb_wire::info_class as ic;
use larder_smb_wire::messages::FileId;
use larder_smb_wire::messages::change_notify::{
    FILE_NOTIFY_CHANGE_ATTRIBUTES, FILE_NOTIFY_CHANGE_CREATION, FILE_NOTIFY_CHANGE_EA, FILE_NOTIFY_CHANGE_LAST_ACCESS,
    FILE_NOTIFY_CHANGE_LAST_WRITE, FILE_NOTIFY_CHANGE_SECURITY,
};
use larder_smb_wire::ntstatus;
use larder_smb_wire::path::SmbPath;
use larder_smb_wire::security::{Parts, SecurityDescriptor};
use larder_smb_wire::text::utf16le_to_units;
use tokio::sync::RwLock;
use tracing::warn;

/// Classes MS-FSCC 2.4 lists as settable: Basic, Rename, Link, Disposition,
/// Position, FullEa, Mode, Allocation, EndOfFile, Pipe, Quota,
/// ValidDataLength, ShortName, DispositionEx and RenameEx.
const SETTABLE_CLASSES: [u8; 15] = [4, 10, 11, 13, 14, 15, 16, 19, 20, 23, 32, 39, 40, 64, 65];

/// File information classes SET_INFO applies.
enum Class {
    Basic,
    EndOfFile,
    Disposition,
    Rename,
    Link,
    Allocation,
    Extended,
    Position,
}

pub async fn handle(
    conn: &Arc<Connection>,
    (hdr, tree): (&Smb2Header, &RequestTree),
    body: &[u8],
    retained: usize,
) -> Outcome {
    match set(conn, (hdr, tree), body).await {
        Ok(response) => Outcome::Done(response),
        Err(waits) => wait_for_rename(conn, hdr, waits.0, waits.1, retained),
    }
}

/// Applies the SET_INFO request, or returns the rename that has to wait for
/// a lease break first.
async fn set(
    conn: &Arc<Connection>,
    (hdr, tree): (&Smb2Header, &RequestTree),
    body: &[u8],
) -> Result<HandlerResponse, Box<(BreakWait, Rename)>> {
    let failed = |status| Ok(HandlerResponse::err(status));
    let Ok(req) = SetInfoRequest::parse(body) else {
        return failed(ntstatus::STATUS_INVALID_PARAMETER);
    };
    let tree = match tree {
        Ok(tree) => Arc::clone(tree),
        Err(status) => return failed(*status),
    };
    let Some(open) = lookup_open(&tree, req.file_id) else {
        return failed(ntstatus::STATUS_FILE_CLOSED);
    };
    let _under_way = match begin_change(conn, hdr, &*open.read().await) {
        Ok(change) => change,
        Err(status) => return failed(status),
    };
    if req.buffer_length == 0 {
        return failed(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let target = Target { tree, open };
    let done = match InfoType::from_u8(req.info_type) {
        Some(InfoType::Security) => target.set_security(&req.buffer, Parts(req.additional_information)).await,
        Some(InfoType::File) => match target.granted_class(req.file_information_class).await {
            Ok(Class::Rename) => match new_name(&req.buffer) {
                Ok((to, replace)) => {
                    let rename = Rename { tree: Arc::clone(&target.tree), file_id: req.file_id, to, replace };
                    match rename_attempt(conn, hdr, &rename, Stage::Start).await {
                        Renamed::Done(result) => result,
                        Renamed::Wait(wait) => return Err(Box::new((wait, rename))),
                    }
                }
                Err(status) => Err(status),
            },
            Ok(class) => target.set(class, &req.buffer).await,
            Err(status) => Err(status),
        },
        Some(_) => Err(ntstatus::STATUS_NOT_SUPPORTED),
        None => Err(ntstatus::STATUS_INVALID_INFO_CLASS),
    };
    Ok(done.map_or_else(HandlerResponse::err, |()| set_info_ok()))
}

/// MS-SMB2 3.3.5.21.1: access each class needs from Open.GrantedAccess.
/// Other classes MS-FSCC 2.4 marks settable are not supported; the rest
/// cannot be set.
fn class_and_access(class: u8) -> Result<(Class, u32), u32> {
    Ok(match class {
        ic::FILE_BASIC_INFORMATION => (Class::Basic, FILE_WRITE_ATTRIBUTES),
        ic::FILE_DISPOSITION_INFORMATION => (Class::Disposition, DELETE),
        ic::FILE_RENAME_INFORMATION => (Class::Rename, DELETE),
        ic::FILE_LINK_INFORMATION => (Class::Link, 0),
        ic::FILE_END_OF_FILE_INFORMATION => (Class::EndOfFile, FILE_WRITE_DATA),
        ic::FILE_ALLOCATION_INFORMATION => (Class::Allocation, FILE_WRITE_DATA),
        ic::FILE_FULL_EA_INFORMATION => (Class::Extended, FILE_WRITE_EA),
        ic::FILE_POSITION_INFORMATION => (Class::Position, 0),
        class if SETTABLE_CLASSES.contains(&class) => return Err(ntstatus::STATUS_NOT_SUPPORTED),
        _ => return Err(ntstatus::STATUS_INVALID_INFO_CLASS),
    })
}

/// The open that a SET_INFO changes through.
struct Target {
    tree: Arc<TreeConnect>,
    open: Arc<RwLock<Open>>,
}

impl Target {
    fn share(&self) -> &ShareBindings {
        &self.tree.share
    }

    /// The class, if the open has the access that it needs.
    async fn granted_class(&self, class: u8) -> Result<Class, u32> {
        let (class, required) = class_and_access(class)?;
        match self.open.read().await.granted_access & required == required {
            true => Ok(class),
            false => Err(ntstatus::STATUS_ACCESS_DENIED),
        }
    }

    /// Sets what no lease break delays.
    async fn set(&self, class: Class, buffer: &[u8]) -> Result<(), u32> {
        match class {
            Class::Basic => self.set_basic(buffer).await,
            Class::EndOfFile => self.resize(buffer, false).await,
            Class::Allocation => self.resize(buffer, true).await,
            Class::Extended => self.set_extended(buffer).await,
            Class::Disposition => self.dispose(buffer).await,
            Class::Position => self.set_position(buffer).await,
            Class::Link => {
                let (to, replace) = new_name(buffer)?;
                link(self.share(), self.tree.view()?, &self.open, &to, replace).await
            }
            Class::Rename => Err(ntstatus::STATUS_INTERNAL_ERROR),
        }
    }

    async fn set_security(&self, buffer: &[u8], parts: Parts) -> Result<(), u32> {
        set_security(&*self.open.read().await, buffer, parts).await?;
        report_modified(self.share(), &self.open, FILE_NOTIFY_CHANGE_SECURITY).await;
        Ok(())
    }

    /// MS-FSCC 2.4.7: four times, then the attributes.
    async fn set_basic(&self, buffer: &[u8]) -> Result<(), u32> {
        let (Some((times, _)), Some(attributes)) = (buffer.split_first_chunk::<32>(), buffer.get(32..36)) else {
            return Err(ntstatus::STATUS_INFO_LENGTH_MISMATCH);
        };
        let (times, _) = times.as_chunks::<8>();
        let times = std::array::from_fn(|at| i64::from_le_bytes(times[at]));
        let attributes = attributes.iter().rev().fold(0, |bits, byte| bits << 8 | u32::from(*byte));
        let filter = set_basic_info(&mut *self.open.write().await, times, attributes).await?;
        report_modified(self.share(), &self.open, filter).await;
        Ok(())
    }

    /// The end of the file, or with `allocation` what it takes.
    async fn resize(&self, buffer: &[u8], allocation: bool) -> Result<(), u32> {
        let size = buffer.first_chunk().ok_or(ntstatus::STATUS_INFO_LENGTH_MISMATCH)?;
        let heard = self.share().has_listeners();
        let resized = truncate(&*self.open.read().await, u64::from_le_bytes(*size), allocation, heard).await?;
        report_resized(self.share(), &self.open, resized).await;
        Ok(())
    }

    async fn set_extended(&self, buffer: &[u8]) -> Result<(), u32> {
        let attributes = extended::parse(buffer)?;
        match self.open.read().await.handle.as_deref() {
            Some(handle) => extended::set(handle, attributes).await?,
            None => return Err(ntstatus::STATUS_FILE_CLOSED),
        }
        report_modified(self.share(), &self.open, FILE_NOTIFY_CHANGE_EA).await;
        Ok(())
    }

    async fn dispose(&self, buffer: &[u8]) -> Result<(), u32> {
        let delete = *buffer.first().ok_or(ntstatus::STATUS_INFO_LENGTH_MISMATCH)? != 0;
        let open = self.open.read().await;
        set_disposition(&open, delete).await?;
        // Whichever open armed it, every watch of the directory ends (MS-FSA 2.1.5.15.3).
        if let (true, true, Some(file)) = (delete, open.is_directory, &open.file) {
            self.share().watches.end(file.index(), ntstatus::STATUS_DELETE_PENDING);
        }
        Ok(())
    }

    /// MS-FSA 2.1.5.15.10: the position is the client's own; it is kept
    /// and told, and moves nothing.
    async fn set_position(&self, buffer: &[u8]) -> Result<(), u32> {
        match buffer.first_chunk().map(|b| i64::from_le_bytes(*b)) {
            None => Err(ntstatus::STATUS_INFO_LENGTH_MISMATCH),
            Some(..0) => Err(ntstatus::STATUS_INVALID_PARAMETER),
            Some(position) => {
                self.open.read().await.position.store(position as u64, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

/// The path that a FileRenameInformation or a FileLinkInformation names,
/// and whether an entry there is replaced (MS-FSCC 2.4.42.2, 2.4.27.2):
///   ReplaceIfExists (1) | Reserved (7) | RootDirectory (8) | FileNameLength (4) | FileName...
fn new_name(buffer: &[u8]) -> Result<(SmbPath, bool), u32> {
    let short = ntstatus::STATUS_INFO_LENGTH_MISMATCH;
    let (head, name) = buffer.split_first_chunk::<20>().ok_or(short)?;
    if head[8..16] != [0; 8] {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let name_len = u32::from_le_bytes([head[16], head[17], head[18], head[19]]);
    let name = name.get(..name_len as usize).ok_or(short)?;
    let units = utf16le_to_units(name).ok_or(ntstatus::STATUS_OBJECT_NAME_INVALID)?;
    let path = SmbPath::from_utf16(&units)?;
    Ok((path, head[0] != 0))
}

/// Parses `data` as the target of a rename or of a hard link.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(data: &[u8]) {
    let _ = new_name(data);
}

/// FileLinkInformation (MS-FSA 2.1.5.15.6). A target that is open is not
/// replaced.
async fn link(
    share: &ShareBindings,
    view: &VisitedShare,
    open_arc: &RwLock<Open>,
    to: &SmbPath,
    replace: bool,
) -> Result<(), u32> {
    let _renames = share.rename_lock().await;
    let (file_index, name, spared) = {
        let open = open_arc.read().await;
        let file = open.file.as_ref().ok_or(ntstatus::STATUS_FILE_CLOSED)?;
        if open.is_directory {
            return Err(ntstatus::STATUS_FILE_IS_A_DIRECTORY);
        }
        if file.delete_pending() {
            return Err(ntstatus::STATUS_ACCESS_DENIED);
        }
        if file.name().opened_as().stream().is_some() || to.stream().is_some() {
            return Err(ntstatus::STATUS_INVALID_PARAMETER);
        }
        (file.index(), Arc::clone(file.name()), file.parent_lease())
    };
    if to.is_root() {
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    }
    let target = view.locate(to).await?;
    if replace && target.file.is_some_and(|taken| taken != file_index && share.files.is_open(taken)) {
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    }
    name.link(to, replace).await?;
    share.files.entry_changed(target.dir, spared);
    Ok(())
}

/// Tells of a change through `open_arc` that matches the filter bits
/// `filter`, if any, when anybody may hear of it.
async fn report_modified(share: &ShareBindings, open_arc: &RwLock<Open>, filter: u32) {
    if filter == 0 || !share.has_listeners() {
        return;
    }
    let told = open_arc.read().await.file.as_ref().map(FileRef::change_of_entry);
    if let Some(told) = told {
        told.tell(filter).await;
    }
}

/// Reports a size change through `open_arc` when `resized`, once; Windows
/// reports a truncation twice.
async fn report_resized(share: &ShareBindings, open_arc: &RwLock<Open>, resized: bool) {
    if resized {
        report_modified(share, open_arc, CONTENT_CHANGED).await;
    }
}

/// A FileRenameInformation request.
struct Rename {
    /// The tree that the request came on.
    tree: Arc<TreeConnect>,
    file_id: FileId,
    to: SmbPath,
    replace: bool,
}

/// Where a rename stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Start,
    /// The handle caching of an open target was broken. A target still
    /// open waits while that break is in progress and fails the rename
    /// once it is over.
    AfterHandleBreak,
}

/// How a rename attempt ended.
enum Renamed {
    Done(Result<(), u32>),
    Wait(BreakWait),
}

/// Answers a rename asynchronously while the clients caching handles to
/// its target give them up. Closing the renamed open ends the wait.
fn wait_for_rename(
    conn: &Arc<Connection>,
    hdr: &Smb2Header,
    wait: BreakWait,
    rename: Rename,
    retained: usize,
) -> Outcome {
    let Some((op, mut stop)) = conn.pending.reserve(hdr, Some(rename.file_id), retained) else {
        warn!("too many waiting requests on the connection");
        return Outcome::Done(HandlerResponse::err(ntstatus::STATUS_INSUFFICIENT_RESOURCES));
    };
    let (conn, hdr) = (Arc::clone(conn), *hdr);
    // The wait ends when the break completes, which its acknowledgment
    // timer bounds. A wait that runs out with nothing changed on the
    // target, or one that outlasts [`MAX_BREAK_WAIT`], fails the rename.
    let work = async move {
        let give_up = tokio::time::Instant::now() + MAX_BREAK_WAIT;
        let mut wait = wait;
        loop {
            let changed = tokio::select! {
                biased;
                why = stopped(&mut stop) => {
                    if why == Stop::Cancelled {
                        return HandlerResponse::err(ntstatus::STATUS_CANCELLED);
                    }
                    true
                }
                changed = wait.changed() => changed,
                () = tokio::time::sleep_until(give_up) => false,
            };
            match rename_attempt(&conn, &hdr, &rename, Stage::AfterHandleBreak).await {
                Renamed::Done(Ok(())) => return set_info_ok(),
                Renamed::Done(Err(status)) => return HandlerResponse::err(status),
                Renamed::Wait(_) if !changed => {
                    return HandlerResponse::err(ntstatus::STATUS_ACCESS_DENIED);
                }
                Renamed::Wait(next) => wait = next,
            }
        }
    };
    Outcome::Pending(Pending { op, work: Box::pin(work) })
}

/// SMB2_0_INFO_SECURITY (MS-SMB2 3.3.5.21.3, MS-FSA 2.1.5.17).
async fn set_security(open: &Open, buffer: &[u8], parts: Parts) -> Result<(), u32> {
    let mut needed = 0;
    if parts.has(Parts::OWNER | Parts::GROUP) {
        needed |= WRITE_OWNER;
    }
    if parts.has(Parts::DACL) {
        needed |= WRITE_DAC;
    }
    if parts.has(Parts::SACL) || open.granted_access & needed != needed {
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    }
    let descriptor = SecurityDescriptor::parse(buffer, parts).ok_or(ntstatus::STATUS_INVALID_SECURITY_DESCR)?;
    let handle = open.handle.as_ref().ok_or(ntstatus::STATUS_FILE_CLOSED)?;
    handle.set_security(descriptor).await.map_err(|e| e.to_nt_status())
}

fn set_info_ok() -> HandlerResponse {
    let mut buf = Vec::new();
    SetInfoResponse::default().write_to(&mut buf).expect("encode");
    HandlerResponse::ok(buf)
}

/// FileRenameInformation (MS-FSA 2.1.5.15.12). A directory with a file or
/// directory open below it is not renamed, unless only Macs are at work there
/// ([`OpenEntry::bears_rename`](crate::files)), and neither is an open target
/// replaced; when they are open only because clients cache their handles,
/// the first attempt breaks that caching and waits. The leases on the
/// renamed file give up handle caching.
async fn rename_attempt(conn: &Arc<Connection>, hdr: &Smb2Header, rename: &Rename, stage: Stage) -> Renamed {
    let tree = &rename.tree;
    if let Err(status) = still_connected(conn, hdr, tree) {
        return Renamed::Done(Err(status));
    }
    let Some(open_arc) = lookup_open(tree, rename.file_id) else {
        return Renamed::Done(Err(ntstatus::STATUS_FILE_CLOSED));
    };
    let share = Arc::clone(&tree.share);
    let view = match tree.view() {
        Ok(view) => view,
        Err(status) => return Renamed::Done(Err(status)),
    };
    if rename.to.stream().is_some() {
        return Renamed::Done(rename_stream(&share, view, &open_arc, rename).await);
    }
    let _renames = share.rename_lock().await;
    let open = open_arc.read().await;
    let checked = match Renaming::check(&open, &share, view, rename, conn.outbound.is_mac(), stage).await {
        Ok(checked) => checked,
        Err(refused) => return refused,
    };
    drop(open);
    Renamed::Done(checked.run(&share, rename).await)
}

/// A rename that nothing stands against.
struct Renaming {
    name: Arc<EntryName>,
    /// The directory that the entry leaves.
    from_dir: u64,
    target: Located,
    spared: Option<LeaseId>,
}

impl Renaming {
    async fn check(
        open: &Open,
        share: &ShareBindings,
        view: &VisitedShare,
        rename: &Rename,
        by_mac: bool,
        stage: Stage,
    ) -> Result<Renaming, Renamed> {
        let fail = |status| Renamed::Done(Err(status));
        let file = open.file.as_ref().ok_or(fail(ntstatus::STATUS_FILE_CLOSED))?;
        let name = file.name();
        if name.opened_as().is_root() || share.files.has_open_streams(file.index()) {
            return Err(fail(ntstatus::STATUS_ACCESS_DENIED));
        }
        if name.opened_as().stream().is_some() {
            return Err(fail(ntstatus::STATUS_INVALID_PARAMETER));
        }
        let start = stage == Stage::Start;
        if open.is_directory {
            let below = share.files.open_below(view, file.index(), by_mac).await;
            if !below.is_empty() {
                return Err(below.break_handles(start).map_or(fail(ntstatus::STATUS_ACCESS_DENIED), Renamed::Wait));
            }
        }
        // Windows and Samba open the directory for a rename such that one that
        // is open for DELETE refuses it.
        let from_dir = name.dir().await.ok_or(fail(ntstatus::STATUS_OBJECT_NAME_NOT_FOUND))?;
        if share.files.open_for_delete(from_dir) {
            return Err(fail(ntstatus::STATUS_SHARING_VIOLATION));
        }
        let target = view.locate(&rename.to).await.map_err(|e| fail(e.to_nt_status()))?;
        // A target that is the source itself skips this.
        if let Some(taken) = target.file.filter(|taken| rename.replace && *taken != file.index())
            && share.files.is_open(taken)
        {
            let wait = share.files.break_handles(taken, file.lease_id(), start);
            return Err(wait.map_or(fail(ntstatus::STATUS_ACCESS_DENIED), Renamed::Wait));
        }
        file.break_leases(Trigger::Handle);
        Ok(Renaming { name: Arc::clone(name), from_dir, target, spared: file.parent_lease() })
    }

    async fn run(self, share: &ShareBindings, rename: &Rename) -> Result<(), u32> {
        let to = &rename.to;
        let old_name = self.name.path().await.ok();
        self.name.rename(to, rename.replace).await?;
        let is_same = self.from_dir == self.target.dir && old_name.is_some_and(|old| old.file_name() == to.file_name());
        // The directory the entry lands in has a new write time, which Windows reports as a change of that directory.
        if let Some(into) = to.parent().filter(|into| !into.is_root() && !is_same) {
            share.modified(&into, FILE_NOTIFY_CHANGE_LAST_WRITE).await;
        }
        share.files.entry_changed(self.from_dir, self.spared);
        if self.target.dir != self.from_dir {
            share.files.entry_changed(self.target.dir, self.spared);
        }
        Ok(())
    }
}

/// Renames the open stream within its file: the new name is `:stream` alone
/// (MS-FSA 2.1.5.15.12).
async fn rename_stream(
    share: &ShareBindings,
    view: &VisitedShare,
    open_arc: &RwLock<Open>,
    rename: &Rename,
) -> Result<(), u32> {
    let _renames = share.rename_lock().await;
    let (name, index) = {
        let open = open_arc.read().await;
        let file = open.file.as_ref().ok_or(ntstatus::STATUS_FILE_CLOSED)?;
        (Arc::clone(file.name()), file.index())
    };
    let (Some(_), Some(stream)) = (name.opened_as().stream(), rename.to.stream()) else {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    };
    // As Windows answers when the name has its file before it.
    if !rename.to.components().is_empty() {
        return Err(ntstatus::STATUS_SHARING_VIOLATION);
    }
    let to = name.path().await?.with_stream(stream);
    let target = view.locate(&to).await?;
    if target.file.is_some_and(|taken| taken != index && share.files.is_open(taken)) {
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    }
    name.rename(&rename.to, rename.replace).await.map_err(|e| e.to_nt_status())
}

/// FileBasicInformation (MS-FSA 2.1.5.15.2, MS-FSCC 2.4.7). A time of 0 or -1 leaves it alone. For
/// the access and write times, -1 also keeps the time fixed against later changes made through this
/// open, -2 lets those changes update it again, and a time set through the open stays fixed. A time
/// or attribute set that equals the current one is not passed on. Returns the FILE_NOTIFY_CHANGE_*
/// bits of what changed, as a stat before and after shows it: the attributes and each time but the
/// change time (MS-FSA 2.1.5.15.2).
async fn set_basic_info(open: &mut Open, times: [i64; 4], attributes: u32) -> Result<u32, u32> {
    if times.iter().any(|&t| t < -2)
        || (attributes & FILE_ATTRIBUTE_DIRECTORY != 0 && !open.is_directory)
        || (attributes & FILE_ATTRIBUTE_TEMPORARY != 0 && open.is_directory)
    {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let handle = open.handle.as_ref().ok_or(ntstatus::STATUS_FILE_CLOSED)?;
    let current = handle.stat().await?;

    let mut passed = false;
    let wanted_attributes = attributes & VALID_SET_ATTRIBUTES;
    if attributes != 0 && wanted_attributes != current.attributes() & VALID_SET_ATTRIBUTES {
        handle.set_attributes(wanted_attributes).await?;
        passed = true;
    }

    let [creation, access, write, change] = times;
    let new_time = |t: i64, now: u64| u64::try_from(t).ok().filter(|&t| t != 0 && t != now);
    let wanted_times = FileTimes {
        creation_time: new_time(creation, current.creation_time),
        last_access_time: new_time(access, current.last_access_time),
        last_write_time: new_time(write, current.last_write_time),
        change_time: new_time(change, current.change_time),
    };
    if wanted_times != FileTimes::default() {
        handle.set_times(wanted_times).await?;
        passed = true;
    }
    // What the store keeps decides what changed: one that drops a value,
    // or does not store an attribute, reports nothing for it.
    let changed = if passed { handle.stat().await.map_or(0, |after| changed_fields(&current, &after)) } else { 0 };

    let fixed = |t: i64, now: u64, before: Option<u64>| match t {
        0 => before,
        -2 => None,
        -1 => Some(now),
        t => Some(t as u64),
    };
    let before = open.fixed_times;
    open.fixed_times.last_access_time = fixed(access, current.last_access_time, before.last_access_time);
    open.fixed_times.last_write_time = fixed(write, current.last_write_time, before.last_write_time);
    Ok(changed)
}

/// The FILE_NOTIFY_CHANGE_* bits of the fields FileBasicInformation sets
/// that differ between `before` and `after`.
fn changed_fields(before: &FileInfo, after: &FileInfo) -> u32 {
    [
        (
            before.attributes() & VALID_SET_ATTRIBUTES != after.attributes() & VALID_SET_ATTRIBUTES,
            FILE_NOTIFY_CHANGE_ATTRIBUTES,
        ),
        (before.creation_time != after.creation_time, FILE_NOTIFY_CHANGE_CREATION),
        (before.last_access_time != after.last_access_time, FILE_NOTIFY_CHANGE_LAST_ACCESS),
        (before.last_write_time != after.last_write_time, FILE_NOTIFY_CHANGE_LAST_WRITE),
    ]
    .into_iter()
    .filter(|(differs, _)| *differs)
    .fold(0, |bits, (_, bit)| bits | bit)
}

/// FileEndOfFileInformation, or FileAllocationInformation when
/// `allocation` is set (MS-FSA 2.1.5.15.1, 2.1.5.15.4). An allocation size
/// below the end of file truncates the file to it; a larger one leaves the
/// file as it is, and no space is reserved. With `measure`, returns whether
/// the size changed, from a stat before and after.
async fn truncate(open: &Open, size: u64, allocation: bool, measure: bool) -> Result<bool, u32> {
    if open.is_directory {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let handle = open.handle.as_ref().ok_or(ntstatus::STATUS_FILE_CLOSED)?;
    // MS-FSA 2.1.5.15.1, 2.1.5.15.5: the leases on the file, all but the
    // one this open holds, break even when the size stays. They break again
    // once the size has changed, so a lease granted meanwhile does not keep
    // the old contents cached.
    let break_leases = || {
        if let Some(file) = open.file.as_ref() {
            file.break_leases(Trigger::Write);
        }
    };
    break_leases();
    let before = if allocation || measure {
        let info = handle.stat().await?;
        if allocation && size >= info.end_of_file {
            return Ok(false);
        }
        info.end_of_file
    } else {
        0
    };
    let result = handle.truncate(size).await;
    break_leases();
    result?;
    open.restore_fixed_times().await;
    if !measure {
        return Ok(false);
    }
    Ok(handle.stat().await.map_or(true, |after| after.end_of_file != before))
}

/// FileDispositionInformation (MS-FSA 2.1.5.15.3). The flag belongs to the
/// file, so clearing it through any open keeps the file.
async fn set_disposition(open: &Open, delete: bool) -> Result<(), u32> {
    if delete {
        let handle = open.handle.as_ref().ok_or(ntstatus::STATUS_FILE_CLOSED)?;
        let info = handle.stat().await?;
        if info.read_only {
            return Err(ntstatus::STATUS_CANNOT_DELETE);
        }
        if !handle.asks_for_removal() {
            return Err(ntstatus::STATUS_ACCESS_DENIED);
        }
        if open.is_directory && !handle.dir_is_empty().await? {
            return Err(ntstatus::STATUS_DIRECTORY_NOT_EMPTY);
        }
    }
    let file = open.file.as_ref().ok_or(ntstatus::STATUS_FILE_CLOSED)?;
    file.set_delete_pending(delete);
    if delete && open.is_directory {
        open.marked_deleted.store(true, Ordering::Release);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::{Notify, RwLock, Semaphore};

    use super::*;
    use crate::conn::state::{Session, TreeConnect};
    use crate::files::Sharing;
    use crate::tests::seam::Step;
    use crate::words::{OpenIntent, OpenOptions};
    use crate::{Share, SmbServer};
    use larder_smb_wire::access_mask::Access;
    use larder_smb_wire::auth::ntlm::Identity;
    use larder_smb_wire::header::{Command, HeaderTail};
    use larder_smb_wire::messages::FileId;

    fn rename_body(file_id: FileId, to: &str) -> Vec<u8> {
        let name: Vec<u8> = to.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut buffer = vec![1];
        buffer.resize(16, 0);
        buffer.extend_from_slice(&(name.len() as u32).to_le_bytes());
        buffer.extend_from_slice(&name);
        let req = SetInfoRequest {
            structure_size: 33,
            info_type: 1,
            file_information_class: ic::FILE_RENAME_INFORMATION,
            buffer_length: buffer.len() as u32,
            buffer_offset: 0x60,
            reserved: 0,
            additional_information: 0,
            file_id,
            buffer,
        };
        let mut body = Vec::new();
        req.write_to(&mut body).expect("encoding into a Vec cannot fail");
        body
    }

    #[tokio::test]
    async fn renames_on_a_share_run_one_at_a_time() {
        let renames = Arc::new(AtomicUsize::new(0));
        let waiting = Arc::new(Notify::new());
        let go = Arc::new(Semaphore::new(0));
        // The first waits for a permit once it has run.
        let held = (Arc::clone(&renames), Arc::clone(&waiting), Arc::clone(&go));
        let view = VisitedShare::in_memory().await.with_file("d\\f", b"x").await.with_file("h", b"y").await;
        view.core.seam.set(move |step| {
            let held = matches!(step, Step::Renamed).then(|| held.clone());
            Box::pin(async move {
                if let Some((renames, waiting, go)) = held
                    && renames.fetch_add(1, Ordering::SeqCst) == 0
                {
                    waiting.notify_one();
                    go.acquire().await.expect("gate").forget();
                }
                Ok(())
            })
        });
        let server = SmbServer::builder()
            .listen("127.0.0.1:0".parse().unwrap())
            .share(Share::of("s", view.clone()).public())
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
        let mut file_ids = Vec::new();
        for (path, directory) in [("d\\f", false), ("h", false)] {
            let path: SmbPath = path.parse().unwrap();
            let opts = OpenOptions { directory, intent: OpenIntent::OpenOrCreate, ..OpenOptions::default() };
            let (handle, _) = view.open(&path, opts).await.unwrap();
            let info = handle.stat().await.unwrap();
            let sharing = Sharing { access: DELETE, share: 7 };
            let file = FileRef::register(&share, &info, handle.name(), sharing.into()).unwrap().0;
            let file_id = tree.alloc_file_id();
            let open = Open {
                file_id,
                handle: Some(handle),
                granted_access: DELETE,
                is_directory: directory,
                delete_on_close: false,
                search_state: None,
                fixed_times: FileTimes::default(),
                create_options: 0,
                file: Some(file),
                slot: None,
                durable: None,
                watch: None,
                wrote: Default::default(),
                create_action: 1,
                marked_deleted: Default::default(),
                begun: None,
                position: Default::default(),
                lock_sequences: Default::default(),
                channel_sequence: Arc::default(),
            };
            assert!(tree.add_file(file_id, Arc::new(RwLock::new(open))).is_ok());
            file_ids.push(file_id);
        }
        let tree = Arc::new(tree);
        session.trees.change().await.insert(1, Arc::clone(&tree));
        conn.sessions.change().await.insert(1, Arc::new(session));

        let hdr =
            Smb2Header { command: Command::SetInfo, tail: HeaderTail::sync(1), session_id: 1, ..Smb2Header::default() };
        let rename = |file_id, to: &str| {
            let conn = Arc::clone(&conn);
            let body = rename_body(file_id, to);
            let tree = Ok(Arc::clone(&tree));
            tokio::spawn(async move {
                match handle(&conn, (&hdr, &tree), &body, 0).await {
                    Outcome::Done(response) => response.status,
                    Outcome::Pending(_) => panic!("the rename waits"),
                }
            })
        };
        let file = rename(file_ids[0], "d\\g");
        waiting.notified().await;
        let other = rename(file_ids[1], "i");
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(renames.load(Ordering::SeqCst), 1, "a rename ran during another");

        go.add_permits(1);
        assert_eq!(file.await.unwrap(), ntstatus::STATUS_SUCCESS);
        assert_eq!(other.await.unwrap(), ntstatus::STATUS_SUCCESS);
        assert_eq!(renames.load(Ordering::SeqCst), 2);
        for name in ["d\\g", "i"] {
            assert!(share.files.is_open(crate::tests::index_of(&share, name).await), "{name}");
        }
    }
}
