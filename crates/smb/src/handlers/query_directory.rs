//! QUERY_DIRECTORY handler (MS-SMB2 3.3.5.18, MS-FSA 2.1.5.6.3).

use std::collections::VecDeque;
use std::sync::Arc;

use larder_smb_wire::messages::{QueryDirectoryRequest, QueryDirectoryResponse};

use crate::conn::state::{Connection, DirCursor, Open};
use crate::door::handle::FileHandle;
use crate::door::view::VisitedShare;
use crate::handlers::response::{Answered, HandlerResponse};
use crate::handlers::shared::{RequestTree, lookup_open};
use crate::words::{DirPage, OpenOptions};
use larder_smb_wire::access_mask::FILE_LIST_DIRECTORY;
use larder_smb_wire::file_info::{DirEntry, FileInfo};
use larder_smb_wire::info_class::{align8, dir_entry_name_offset, encode_dir_entry};
use larder_smb_wire::ntstatus;
use larder_smb_wire::path::is_valid_pattern;
use larder_smb_wire::text::utf16le_to_units;
use larder_smb_wire::wildcard::Pattern;

/// Classes MS-SMB2 3.3.5.18 lists that this server does not encode:
/// FileIdExtdDirectoryInformation, FileId64ExtdDirectoryInformation,
/// FileId64ExtdBothDirectoryInformation, FileIdAllExtdDirectoryInformation
/// and FileIdAllExtdBothDirectoryInformation.
const UNSUPPORTED_CLASSES: [u8; 5] = [0x3C, 0x4E, 0x4F, 0x50, 0x51];

/// Most entries of a page: some 360 KiB while the request lasts.
const PAGE_ENTRIES_MAX: usize = 1024;

/// Of 16 characters, until a listing has shown its own.
const USUAL_NAME_BYTES: usize = 32;

pub async fn handle(conn: &Arc<Connection>, tree: &RequestTree, body: &[u8]) -> Answered {
    list(conn, tree, body).await.map(Answer::response)
}

async fn list(conn: &Connection, tree: &RequestTree, body: &[u8]) -> Result<Answer, u32> {
    let req = QueryDirectoryRequest::parse(body).map_err(|_| ntstatus::STATUS_INVALID_PARAMETER)?;
    let tree = tree.as_ref().map_err(|status| *status)?;
    let open = lookup_open(tree, req.file_id).ok_or(ntstatus::STATUS_FILE_CLOSED)?;
    let mut open = open.write().await;
    let mut answer = Answer::to(&req, conn, &open)?;
    let requested = utf16le_to_units(&req.file_name).ok_or(ntstatus::STATUS_INVALID_PARAMETER)?;
    let requested = String::from_utf16(&requested).map_err(|_| ntstatus::STATUS_OBJECT_NAME_INVALID)?;

    let reopen = req.flags & QueryDirectoryRequest::FLAG_REOPEN != 0;
    let restart = reopen || req.flags & QueryDirectoryRequest::FLAG_RESTART_SCANS != 0;
    // FileIndex and SMB2_INDEX_SPECIFIED are ignored, as MS-SMB2 3.3.5.18
    // allows.
    let first_query = open.search_state.is_none() || reopen;
    let mut first_page = None;
    // MS-FSA 2.1.5.6.3: the first query sets the pattern ("*" when empty); a
    // restart replaces it only with a non-empty one.
    if first_query || (restart && !requested.is_empty()) {
        if !requested.is_empty() && !is_valid_pattern(&requested) {
            return Err(ntstatus::STATUS_OBJECT_NAME_INVALID);
        }
        let pattern = (!requested.is_empty() && requested != "*").then_some(requested);
        first_page = start_scan(&mut open, tree.view()?, pattern, &answer).await?;
    } else if restart {
        let pattern = open.search_state.as_mut().and_then(|c| c.pattern.take());
        first_page = start_scan(&mut open, tree.view()?, pattern, &answer).await?;
    }

    let Open { handle, search_state, .. } = &mut *open;
    let cursor = search_state.as_mut().expect("scan started");
    let handle = handle.as_deref().ok_or(ntstatus::STATUS_FILE_CLOSED)?;
    let filled = answer.fill(handle, cursor, first_page).await;
    if answer.count == 0 {
        let nothing = if first_query { ntstatus::STATUS_NO_SUCH_FILE } else { ntstatus::STATUS_NO_MORE_FILES };
        return Err(filled.err().unwrap_or(nothing));
    }
    // What came before a failure is sent first.
    cursor.entry_bytes = answer.buf.len() / answer.count;
    Ok(answer)
}

/// The entries of one response.
#[derive(Default)]
struct Answer {
    class: u8,
    /// Bytes of an entry before its name.
    name_offset: usize,
    cap: usize,
    single_entry: bool,
    buf: Vec<u8>,
    count: usize,
    last_entry: usize,
    /// The only entry has a part of its name.
    is_cut: bool,
}

impl Answer {
    /// An empty one, of the form that is asked for.
    fn to(req: &QueryDirectoryRequest, conn: &Connection, open: &Open) -> Result<Self, u32> {
        // NEGOTIATE advertises MaxTransactSize equal to MaxReadSize.
        if !open.is_directory || req.output_buffer_length > conn.max_read_size {
            return Err(ntstatus::STATUS_INVALID_PARAMETER);
        }
        if open.granted_access & FILE_LIST_DIRECTORY == 0 {
            return Err(ntstatus::STATUS_ACCESS_DENIED);
        }
        let class = req.file_information_class;
        let Some(name_offset) = dir_entry_name_offset(class) else {
            let is_known = UNSUPPORTED_CLASSES.contains(&class);
            return Err(if is_known { ntstatus::STATUS_NOT_SUPPORTED } else { ntstatus::STATUS_INVALID_INFO_CLASS });
        };
        let cap = req.output_buffer_length as usize;
        if cap < name_offset {
            return Err(ntstatus::STATUS_INFO_LENGTH_MISMATCH);
        }
        let single_entry = req.flags & QueryDirectoryRequest::FLAG_RETURN_SINGLE_ENTRY != 0;
        Ok(Self { class, name_offset, cap, single_entry, ..Self::default() })
    }

    fn response(self) -> HandlerResponse {
        let resp = QueryDirectoryResponse {
            structure_size: 9,
            output_buffer_offset: 64 + 8,
            output_buffer_length: self.buf.len() as u32,
            buffer: self.buf,
        };
        let mut out = Vec::new();
        resp.write_to(&mut out).expect("encode");
        let mut response = HandlerResponse::ok(out);
        if self.is_cut {
            response.status = ntstatus::STATUS_BUFFER_OVERFLOW;
        }
        response
    }

    /// Takes entries of the listing until the response is full or the listing ends. `first_page` is the
    /// page at the cursor's position, if it was read already.
    async fn fill(
        &mut self,
        handle: &FileHandle,
        cursor: &mut DirCursor,
        mut first_page: Option<DirPage>,
    ) -> Result<(), u32> {
        while let Some(entry) = cursor.entries.front() {
            if !self.push(entry) {
                return Ok(());
            }
            cursor.entries.pop_front();
        }
        cursor.entries = VecDeque::new();
        let matcher = cursor.pattern.as_deref().map(|p| Pattern::new(p, true));
        let mut wanted = self.room_for(cursor.entry_bytes);
        while let (Some(after), false) = (cursor.position, self.is_full(cursor.entry_bytes)) {
            let page = match first_page.take() {
                Some(page) => page,
                None => handle.list_page(after, wanted).await?,
            };
            let before = self.count;
            for entry in &page.entries {
                let is_listed = !matches!(entry.info.name.as_str(), "." | "..");
                if is_listed && matcher.as_ref().is_none_or(|m| m.matches(&entry.info.name)) && !self.push(entry) {
                    // It is read again by the next request.
                    return Ok(());
                }
                cursor.position = Some(entry.position);
            }
            cursor.position = (!page.end).then_some(page.next);
            // A pattern that little matches makes the pages larger, not many.
            wanted = if self.count == before { wanted * 2 } else { self.room_for(cursor.entry_bytes) };
            wanted = wanted.min(PAGE_ENTRIES_MAX);
        }
        Ok(())
    }

    /// How many entries to read for the room that is left.
    fn room_for(&self, entry_bytes: usize) -> usize {
        if self.single_entry {
            return 1;
        }
        let room = self.cap.saturating_sub(self.buf.len());
        (room / entry_bytes.max(self.name_offset)).clamp(1, PAGE_ENTRIES_MAX)
    }

    /// Whether the little room that is left is not worth another page.
    fn is_full(&self, entry_bytes: usize) -> bool {
        let room = self.cap.saturating_sub(self.buf.len());
        self.count > 0 && (self.single_entry || room < entry_bytes.max(self.cap / 16))
    }

    /// False if the entry does not fit in, or with a part of its name alone; it is returned again by the
    /// next query then.
    fn push(&mut self, entry: &DirEntry) -> bool {
        if self.single_entry && self.count > 0 {
            return false;
        }
        let mut bytes = encode_dir_entry(self.class, entry);
        let start = align8(self.buf.len());
        if self.count > 0 && start + bytes.len() > self.cap {
            return false;
        }
        self.is_cut = bytes.len() > self.cap;
        if self.is_cut {
            let name_room = (self.cap - self.name_offset) & !1;
            bytes.truncate(self.name_offset + name_room);
        }
        self.buf.resize(start, 0);
        if self.count > 0 {
            let delta = (start - self.last_entry) as u32;
            self.buf[self.last_entry..self.last_entry + 4].copy_from_slice(&delta.to_le_bytes());
        }
        self.last_entry = start;
        self.buf.extend_from_slice(&bytes);
        self.count += 1;
        !self.is_cut
    }
}

/// Lists the directory of `open` from the start with `pattern` (`None`
/// matches every name) and stores the listing as its search state. On the
/// first query and every restart the listing starts with "." and "..",
/// when the pattern matches them. At the share root, ".." describes the
/// share root itself, with file id 0. Returns the first page of a listing by
/// pages, for `answer`.
async fn start_scan(
    open: &mut Open,
    view: &VisitedShare,
    pattern: Option<String>,
    answer: &Answer,
) -> Result<Option<DirPage>, u32> {
    let handle = open.handle.as_ref().ok_or(ntstatus::STATUS_FILE_CLOSED)?;
    let wild = |p: &str| p.contains(['*', '?', '<', '>', '"']);
    let entry_bytes = answer.name_offset + USUAL_NAME_BYTES;
    let (page, listed) = match pattern.as_deref().filter(|p| !wild(p)) {
        None => (Some(handle.list_page(0, answer.room_for(entry_bytes)).await?), None),
        Some(name) => (None, handle.list_one(name).await?),
    };

    let mut entries = VecDeque::new();
    let matcher = pattern.as_deref().map(|p| Pattern::new(p, true));
    let matches = |name: &str| matcher.as_ref().is_none_or(|m| m.matches(name));
    if matches(".") || matches("..") {
        let mut this = handle.stat().await?;
        this.name = ".".to_string();
        let mut parent = parent_info(view, open).await.unwrap_or_else(|| {
            let mut info = this.clone();
            info.file_index = 0;
            info
        });
        parent.name = "..".to_string();
        if matches(".") {
            entries.push_back(DirEntry { info: this, position: 0 });
        }
        if matches("..") {
            entries.push_back(DirEntry { info: parent, position: 0 });
        }
    }
    entries.extend(listed);

    let position = page.is_some().then_some(0);
    open.search_state = Some(DirCursor { entries, pattern, position, entry_bytes });
    Ok(page)
}

/// File info of the parent directory of `open`, or `None` at the share root
/// or if the parent cannot be opened.
async fn parent_info(view: &VisitedShare, open: &Open) -> Option<FileInfo> {
    let parent = open.path().await.ok()?.parent()?;
    let opts = OpenOptions { directory: true, ..OpenOptions::default() };
    let (handle, _) = view.open(&parent, opts).await.ok()?;
    handle.stat().await.ok()
}
