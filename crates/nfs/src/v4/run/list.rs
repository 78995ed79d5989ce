//! READDIR (RFC 8881 18.23). Cookies and verifiers are those of version 3 (see `ops/list.rs`): stable for the life of
//! an entry.

use larder_fs::{Attr, DirEntry, FsError, Listing};

use super::super::asked::has_write_only;
use super::super::attrs::{FileAttrs, number};
use super::super::bitmap::Bitmap;
use super::super::compound::CompoundReply;
use super::super::convert::{kind_of, stat_of};
use super::super::ops::{OpNumber, ReadDirArgs, ResOp};
use super::super::place::{Object, Place, PseudoDir, PseudoEntry};
use super::super::shown::{Texts, attrs_of, attrs_of_entry, attrs_of_pseudo, needs_list, needs_look, supported};
use super::super::types::{NfsStat, Verifier};
use super::super::wire::{Xdr, XdrOut};
use super::{IO_BYTES_MAX, Run};
use crate::xdr::padding;

/// `READDIR4resok` without entries: verifier, end of the list, eof.
const FRAME_BYTES: usize = 8 + 4 + 4;
/// Of an entry: "one follows", cookie, length of the name.
const ENTRY_BYTES: usize = 4 + 8 + 4;
/// Guesses for how many entries will fit.
const NAME_BYTES_GUESSED: usize = 12;
const ATTR_BYTES_GUESSED: usize = 8;
/// Entries asked of the volume at once.
const BATCH_MAX: usize = 4096;
/// Cookies up to this are reserved (RFC 8881 18.23.3).
const COOKIE_RESERVED_MAX: u64 = 2;

/// Entries as they are packed into one reply.
struct Page {
    out: XdrOut,
    room_bytes: usize,
    /// The rest of `dircount`: names and cookies alone. A wish: one entry always passes it.
    names_room_bytes: usize,
    entries: usize,
}

impl Page {
    /// `false` when the entry does not fit any more.
    fn push(&mut self, cookie: u64, name: &[u8], attrs: &FileAttrs<'_>, wanted: &Bitmap) -> bool {
        let names_bytes = 8 + 4 + name.len() + padding(name.len());
        if names_bytes > self.names_room_bytes && self.entries > 0 {
            return false;
        }
        let before = self.out.mark();
        let had = self.out.len();
        self.out.writer().bool(true);
        self.out.writer().u64(cookie);
        self.out.writer().opaque(name);
        attrs.put_wanted(wanted, &mut self.out);
        let bytes = self.out.len() - had;
        if bytes > self.room_bytes {
            self.out.rewind(before);
            return false;
        }
        self.room_bytes -= bytes;
        self.names_room_bytes = self.names_room_bytes.saturating_sub(names_bytes);
        self.entries += 1;
        true
    }

    fn guess(&self, wanted: &Bitmap) -> usize {
        let entry = ENTRY_BYTES + NAME_BYTES_GUESSED + 8 + ATTR_BYTES_GUESSED * wanted.iter().count();
        let fit = (self.room_bytes / entry).min(self.names_room_bytes / (ENTRY_BYTES - 4 + NAME_BYTES_GUESSED));
        fit.saturating_add(1).min(BATCH_MAX)
    }
}

impl<'m> Run<'m> {
    pub(super) async fn read_dir(&mut self, args: &ReadDirArgs, reply: &mut CompoundReply) {
        match Box::pin(self.list(args)).await {
            Ok(body) => {
                let room = self.bounds.bytes_max.saturating_add(4);
                reply.push_encoded(OpNumber::ReadDir, &body, room, self.bounds.too_big);
                let failed = reply.status() != NfsStat::Ok;
                self.caller.shared.stats.count_operation(OpNumber::ReadDir.number(), failed);
            }
            Err(status) => self.push(reply, &ResOp::ReadDir(Err(status))),
        }
    }

    /// `READDIR4resok`, encoded.
    async fn list(&self, args: &ReadDirArgs) -> Result<Vec<u8>, NfsStat> {
        if (1..=COOKIE_RESERVED_MAX).contains(&args.cookie) {
            return Err(NfsStat::BadCookie);
        }
        if has_write_only(&args.wanted) {
            return Err(NfsStat::Inval);
        }
        let place = self.place()?;
        let bytes_max = args.bytes_max.min(IO_BYTES_MAX) as usize;
        let room_bytes = bytes_max.checked_sub(FRAME_BYTES).ok_or(NfsStat::TooSmall)?;
        // A count of 0 wishes for nothing.
        let names_room_bytes = if args.entry_bytes == 0 { usize::MAX } else { args.entry_bytes as usize };
        let mut page = Page { out: XdrOut::default(), room_bytes, names_room_bytes, entries: 0 };
        let (end, eof) = match place {
            Place::Pseudo(dir) => (0, self.list_pseudo(dir, args, &mut page).await?),
            Place::Object(object) => self.list_object(object, args, &mut page).await?,
        };
        if page.entries == 0 && !eof {
            return Err(NfsStat::TooSmall);
        }
        let mut out = XdrOut::new(Vec::with_capacity(page.out.len() + FRAME_BYTES));
        let verifier: Verifier = if args.cookie == 0 { end.to_be_bytes() } else { args.verifier };
        verifier.put(&mut out);
        out.writer().fixed(&page.out.into_bytes());
        out.writer().bool(false);
        out.writer().bool(eof);
        Ok(out.into_bytes())
    }

    /// The end of the listing, which is its verifier, and whether this page reaches it.
    async fn list_object(&self, object: &Object, args: &ReadDirArgs, page: &mut Page) -> Result<(u64, bool), NfsStat> {
        object.dir().await?;
        let asked_end = match (args.cookie, u64::from_be_bytes(args.verifier)) {
            (0, _) | (_, 0) => u64::MAX,
            (_, end) => end,
        };
        let wanted = args.wanted.common(&supported(self.minor));
        let looks = needs_look(&wanted, self.minor);
        let (files, cred, dir) = (object.files(), &object.cred, object.id.ino);
        let mut behind = args.cookie;
        let list = |behind, end, max| files.readdir_before(cred, dir, behind, end, max, looks);
        let mut listing: Listing =
            list(behind, asked_end, page.guess(&wanted)).await.map_err(|error| stat_of(&error))?;
        if asked_end != u64::MAX && asked_end > listing.end {
            return Err(NfsStat::BadCookie);
        }
        let end = if args.cookie == 0 { listing.end } else { asked_end };
        loop {
            let mut is_full = false;
            for entry in &listing.entries {
                is_full = !self.push_entry(page, object, entry, &wanted, looks).await?;
                if is_full {
                    break;
                }
                behind = entry.cookie;
            }
            // A batch without entries ends the list, whatever it says: there is nothing to resume behind.
            if is_full || listing.eof || listing.entries.is_empty() {
                return Ok((end, !is_full));
            }
            listing = list(behind, end, page.guess(&wanted)).await.map_err(|error| stat_of(&error))?;
        }
    }

    async fn push_entry(
        &self,
        page: &mut Page,
        object: &Object,
        entry: &DirEntry,
        wanted: &Bitmap,
        looks: bool,
    ) -> Result<bool, NfsStat> {
        let mut texts = Texts::default();
        let seen = match entry.attr {
            Some(attr) if needs_list(wanted) => match Box::pin(object.files().acl(attr.id.ino)).await {
                Ok((with_dos, acl)) => Some((Attr { dos: with_dos.dos, ..attr }, acl)),
                // It has just gone.
                Err(FsError::Stale) => return Ok(true),
                Err(error) => return Err(stat_of(&error)),
            },
            attr => attr.map(|attr| (attr, None)),
        };
        let attrs = match &seen {
            Some((attr, acl)) => attrs_of(object, (attr, acl.as_deref()), wanted, self.minor, &mut texts),
            None if !looks => attrs_of_entry(object, entry.ino.0, kind_of(entry.kind), self.minor),
            // Names are for those who may read the directory, attributes for those who may search it.
            None if wanted.has(number::RDATTR_ERROR) => {
                FileAttrs { rdattr_error: Some(NfsStat::Access), ..FileAttrs::default() }
            }
            None => return Err(NfsStat::Access),
        };
        Ok(page.push(entry.cookie, &entry.name, &attrs, wanted))
    }

    async fn list_pseudo(&self, dir: &PseudoDir, args: &ReadDirArgs, page: &mut Page) -> Result<bool, NfsStat> {
        let wanted = args.wanted.common(&supported(self.minor));
        let names = self.caller.pseudo_names(dir);
        let cookies = (COOKIE_RESERVED_MAX + 1..).zip(&names);
        for (cookie, name) in cookies.filter(|(cookie, _)| *cookie > args.cookie) {
            let mut texts = Texts::default();
            let Ok(entry) = self.caller.pseudo_lookup(dir, name.as_bytes()) else { continue };
            let fits = match entry {
                PseudoEntry::Dir(dir) => {
                    let attrs = attrs_of_pseudo(&self.caller, &dir, self.minor, &mut texts);
                    page.push(cookie, name.as_bytes(), &attrs, &wanted)
                }
                PseudoEntry::Export(export) => {
                    let seen = match self.caller.enter(&export).await {
                        Ok(object) => {
                            object.with_list(object.resolve().await, &wanted).await.map(|seen| (object, seen))
                        }
                        Err(status) => Err(status),
                    };
                    let attrs = match &seen {
                        Ok((object, (attr, acl))) => {
                            attrs_of(object, (attr, acl.as_deref()), &wanted, self.minor, &mut texts)
                        }
                        Err(status) => FileAttrs { rdattr_error: Some(*status), ..FileAttrs::default() },
                    };
                    page.push(cookie, name.as_bytes(), &attrs, &wanted)
                }
            };
            if !fits {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
