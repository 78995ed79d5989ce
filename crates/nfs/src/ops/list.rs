//! READDIR and READDIRPLUS (RFC 1813 3.3.16, 3.3.17).
//!
//! Cookies are the volume's: stable for the life of an entry. 1 and 2 stand behind "." and "..",
//! which the volume does not list. So no cookie ever grows stale. The verifier is where the listing ends: the cookie that
//! entries made after its first page begin at, so that a client that renames or adds files while it lists comes to an end.
//! Zeros, which clients send that do not care, stand for no end.

use larder_fs::{Attr, DirEntry, FileId, FileKind, Ino};

use super::super::handle::HANDLE_BYTES;
use super::super::proto::{Fail, POST_ATTR_BYTES, Status};
use super::super::xdr::{Writer, padding};
use super::data::IO_BYTES_MAX;
use super::{Answer, Call};

const COOKIE_DOT: u64 = 1;
const COOKIE_DOT_DOT: u64 = 2;
/// READDIR3resok without entries: dir_attributes, cookieverf, end of the list, eof.
const FRAME_BYTES: usize = POST_ATTR_BYTES + 8 + 4 + 4;
/// Of an entry: "one follows", fileid, length of the name, cookie.
const ENTRY_BYTES: usize = 4 + 8 + 4 + 8;
/// READDIRPLUS adds post_op_attr and post_op_fh3.
const PLUS_BYTES: usize = POST_ATTR_BYTES + 4 + 4 + HANDLE_BYTES;
/// A guess for how many entries will fit.
const NAME_BYTES_GUESSED: usize = 12;
/// Entries asked of the volume at once.
const BATCH_MAX: usize = 4096;

/// Entries as they are packed into one reply.
struct Page<'a> {
    call: &'a Call,
    w: &'a mut Writer,
    plus: bool,
    /// The rest of READDIR's count or READDIRPLUS's maxcount.
    room_bytes: usize,
    /// The rest of READDIRPLUS's dircount, which counts file ids, names and cookies alone.
    names_room_bytes: usize,
    entries: usize,
}

impl Page<'_> {
    fn guess(&self) -> usize {
        let entry = ENTRY_BYTES + NAME_BYTES_GUESSED + if self.plus { PLUS_BYTES } else { 0 };
        let fit = (self.room_bytes / entry).min(self.names_room_bytes / (ENTRY_BYTES - 4 + NAME_BYTES_GUESSED));
        fit.saturating_add(1).min(BATCH_MAX)
    }

    /// False when the entry does not fit any more. dircount is a wish: one entry always passes it.
    fn push(&mut self, cookie: u64, name: &[u8], ino: Ino, attr: Option<&Attr>) -> bool {
        let name_bytes = name.len() + padding(name.len());
        let plus_bytes = match (self.plus, attr) {
            (false, _) => 0,
            (true, None) => 8,
            (true, Some(_)) => PLUS_BYTES,
        };
        let (bytes, names_bytes) = (ENTRY_BYTES + name_bytes + plus_bytes, ENTRY_BYTES - 4 + name_bytes);
        if bytes > self.room_bytes || (names_bytes > self.names_room_bytes && self.entries > 0) {
            return false;
        }
        self.room_bytes -= bytes;
        self.names_room_bytes = self.names_room_bytes.saturating_sub(names_bytes);
        self.entries += 1;
        self.w.bool(true);
        self.w.u64(ino.0);
        self.w.opaque(name);
        self.w.u64(cookie);
        if self.plus {
            self.w.post_attr(attr, self.call.fsid());
            self.w.bool(attr.is_some());
            if let Some(attr) = attr {
                self.w.opaque(&self.call.handle(attr.id));
            }
        }
        true
    }

    fn push_entry(&mut self, entry: &DirEntry) -> bool {
        self.push(entry.cookie, &entry.name, entry.ino, entry.attr.as_ref())
    }
}

impl Call {
    pub(super) async fn read_dir(&self, out: &mut Answer) -> Result<(), Fail> {
        let mut args = self.args();
        let (cookie, verifier, count) = (args.u64()?, args.fixed()?, args.u32()?);
        self.list(out, cookie, verifier, u32::MAX, count, false).await
    }

    pub(super) async fn read_dir_plus(&self, out: &mut Answer) -> Result<(), Fail> {
        let mut args = self.args();
        let (cookie, verifier) = (args.u64()?, args.fixed()?);
        let (dircount, maxcount) = (args.u32()?, args.u32()?);
        self.list(out, cookie, verifier, dircount, maxcount, true).await
    }

    async fn list(
        &self,
        out: &mut Answer,
        cookie: u64,
        verifier: [u8; 8],
        dircount: u32,
        maxcount: u32,
        plus: bool,
    ) -> Result<(), Fail> {
        let dir = self.resolve().await?;
        if dir.kind != FileKind::Directory {
            return Err(Status::NotDir.into());
        }
        let asked_end = match (cookie, u64::from_be_bytes(verifier)) {
            (0, _) | (_, 0) => u64::MAX,
            (_, end) => end,
        };
        let room_bytes = (maxcount.min(IO_BYTES_MAX) as usize).checked_sub(FRAME_BYTES).ok_or(Status::TooSmall)?;
        let w = &mut out.w;
        let mut page = Page { call: self, w, plus, room_bytes, names_room_bytes: dircount as usize, entries: 0 };
        let mut behind = if cookie <= COOKIE_DOT_DOT { 0 } else { cookie };
        let files = self.files();
        let mut listing = files.readdir_before(&self.cred, self.id.ino, behind, asked_end, page.guess(), plus).await?;
        if asked_end != u64::MAX && asked_end > listing.end {
            return Err(Status::BadCookie.into());
        }
        let end = if cookie == 0 { listing.end } else { asked_end };
        page.w.status(Status::Ok);
        page.w.post_attr(Some(&listing.dir), self.fsid());
        page.w.fixed(&if cookie == 0 { end.to_be_bytes() } else { verifier });

        let mut full = cookie < COOKIE_DOT && !page.push(COOKIE_DOT, b".", dir.id.ino, Some(&dir));
        if cookie < COOKIE_DOT_DOT && !full {
            let parent = self.parent(&dir).await?;
            full = !page.push(COOKIE_DOT_DOT, b"..", parent.id.ino, Some(&parent));
        }
        let eof = loop {
            for entry in &listing.entries {
                full = full || !page.push_entry(entry);
                if full {
                    break;
                }
                behind = entry.cookie;
            }
            // A batch without entries ends the list, whatever it says: there is nothing to resume behind.
            if full || listing.eof || listing.entries.is_empty() {
                break !full;
            }
            listing = files.readdir_before(&self.cred, self.id.ino, behind, end, page.guess(), plus).await?;
        };
        if page.entries == 0 && !eof {
            return Err(Status::TooSmall.into());
        }
        page.w.bool(false);
        page.w.bool(eof);
        Ok(())
    }

    /// The directory behind "..". The parent of the export's root is that root; a parent that is being removed shows as the
    /// directory itself.
    async fn parent(&self, dir: &Attr) -> Result<Attr, Fail> {
        let parent = self.parent_within(dir.id.ino).await?;
        Ok(self.files().getattr(parent).await.unwrap_or(Attr { id: FileId { ino: parent, ..dir.id }, ..*dir }))
    }
}
