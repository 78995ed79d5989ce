//! Keys and values of the metadata engine: pure codecs, big-endian so that the order of keys has
//! meaning.
//!
//! - `keys.one_tag_per_table`: the first byte of a key names its table ([`tag`]). Tables never
//!   share a prefix.
//! - `keys.version_first`: every value begins with its version. An unknown version, or a value that
//!   does not decode to its last byte, is damage: an I/O error that names the key, never a guess.
//! - `keys.folded_name_ends`: a 0 byte separates a folded name from the name in a folded key. No
//!   name holds a 0 byte, so one folded name is never the prefix of another.
//!
//! FORMAT.md, "Volume: names", has the field tables.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use larder_base::Timestamp;
use larder_fs::acl::{ACL_BYTES_MAX, Acl};
use larder_fs::*;

use crate::charge::ATTRIBUTES_BYTES_MAX;
use crate::inode_core::{FIRST_COOKIE, InodeCore};
use crate::meta::{Ticket, Usage};

/// The tables.
pub(crate) mod tag {
    pub(crate) const SUPERBLOCK: u8 = b'S';
    pub(crate) const NEXT_INO: u8 = b'N';
    pub(crate) const USAGE: u8 = b'U';
    pub(crate) const INODE: u8 = b'I';
    pub(crate) const ENTRY: u8 = b'D';
    pub(crate) const COOKIE: u8 = b'C';
    pub(crate) const FOLDED: u8 = b'F';
    pub(crate) const XATTR: u8 = b'X';
    pub(crate) const ORPHAN: u8 = b'O';
    pub(crate) const NOTHING: u8 = b'-';
    pub(crate) const EXTENT: u8 = b'E';
    pub(crate) const RESERVED: u8 = b'R';
    pub(crate) const INTENT: u8 = b'W';
    pub(crate) const SEGMENT: u8 = b'G';
    pub(crate) const BLOCK: u8 = b'B';
    pub(crate) const CHANGE_BASE: u8 = b'A';
    pub(crate) const SNAPSHOT: u8 = b'P';
    pub(crate) const CHANGED: u8 = b'H';
    pub(crate) const SAVED: u8 = b'V';
    pub(crate) const SHARER: u8 = b'T';
}

// `keys.one_tag_per_table`
const _: () = {
    use tag::*;
    let tags = [
        SUPERBLOCK,
        NEXT_INO,
        USAGE,
        INODE,
        ENTRY,
        COOKIE,
        FOLDED,
        XATTR,
        ORPHAN,
        NOTHING,
        EXTENT,
        RESERVED,
        INTENT,
        SEGMENT,
        BLOCK,
        CHANGE_BASE,
        SNAPSHOT,
        CHANGED,
        SAVED,
        SHARER,
    ];
    let mut at = 0;
    while at < tags.len() {
        let mut other = at + 1;
        while other < tags.len() {
            assert!(tags[at] != tags[other]);
            other += 1;
        }
        at += 1;
    }
};

const VERSION: u8 = 1;
// Lengths that stand in a record in 16 bits.
const _: () = assert!(SYMLINK_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(ACL_BYTES_MAX <= u16::MAX as usize);
/// The value of a key whose presence is all that matters.
pub(crate) const MARK: Bytes = Bytes::from_static(&[VERSION]);

pub(crate) const SUPERBLOCK_KEY: &[u8] = &[tag::SUPERBLOCK];
pub(crate) const NEXT_INO_KEY: &[u8] = &[tag::NEXT_INO];
/// The next block of segments' numbers (`segment.numbers_of_an_opening`).
pub(crate) const BLOCK_KEY: &[u8] = &[tag::BLOCK];
/// What numbers of changes are added to in this opening; coded as the next inode is.
pub(crate) const CHANGE_BASE_KEY: &[u8] = &[tag::CHANGE_BASE];
/// The number of the snapshot that was taken for a rollback which has not been asked for yet (`rollback.saved_for_nothing_goes`).
pub(crate) const SAVED_KEY: &[u8] = &[tag::SAVED];
pub(crate) const USAGE_KEY: &[u8] = &[tag::USAGE];
/// Never has a value: to delete it changes nothing, and is written all the same.
pub(crate) const NOTHING_KEY: &[u8] = &[tag::NOTHING];

const MAGIC: [u8; 8] = *b"LARDERVO";

// ---------------------------------------------------------------------------------------------- keys

fn key_of(tag: u8, ino: Ino, rest: &[u8]) -> Bytes {
    let mut key = BytesMut::with_capacity(9 + rest.len());
    key.put_u8(tag);
    key.put_u64(ino.0);
    key.put_slice(rest);
    key.freeze()
}

pub(crate) fn inode_key(ino: Ino) -> Bytes {
    key_of(tag::INODE, ino, &[])
}

pub(crate) fn entry_key(dir: Ino, name: &[u8]) -> Bytes {
    key_of(tag::ENTRY, dir, name)
}

pub(crate) fn cookie_key(dir: Ino, cookie: u64) -> Bytes {
    key_of(tag::COOKIE, dir, &cookie.to_be_bytes())
}

/// Where the entries begin whose names fold to `folded`: `folded` 0, then the name itself.
pub(crate) fn folded_prefix(dir: Ino, folded: &[u8]) -> Bytes {
    let mut key = BytesMut::with_capacity(10 + folded.len());
    key.put_u8(tag::FOLDED);
    key.put_u64(dir.0);
    key.put_slice(folded);
    key.put_u8(0);
    key.freeze()
}

pub(crate) fn folded_key(dir: Ino, folded: &[u8], name: &[u8]) -> Bytes {
    let mut key = BytesMut::from(&folded_prefix(dir, folded)[..]);
    key.put_slice(name);
    key.freeze()
}

pub(crate) fn xattr_key(ino: Ino, name: &[u8]) -> Bytes {
    key_of(tag::XATTR, ino, name)
}

pub(crate) fn orphan_key(ino: Ino) -> Bytes {
    key_of(tag::ORPHAN, ino, &[])
}

/// The keys of `tag` that belong to `ino`: `from <= key < to`.
pub(crate) fn range_of(tag: u8, ino: Ino) -> (Bytes, Bytes) {
    (key_of(tag, ino, &[]), key_after(&key_of(tag, ino, &[])))
}

/// The whole table.
pub(crate) fn table_range(tag: u8) -> (Bytes, Bytes) {
    (Bytes::copy_from_slice(&[tag]), Bytes::copy_from_slice(&[tag + 1]))
}

/// The least key above every key that begins with `prefix` (which is not all 0xFF: it begins with a
/// tag).
pub(crate) fn key_after(prefix: &[u8]) -> Bytes {
    let mut key = prefix.to_vec();
    while key.last() == Some(&0xFF) {
        key.pop();
    }
    if let Some(last) = key.last_mut() {
        *last += 1;
    }
    key.into()
}

/// The number in a key of the form tag, ino, rest.
pub(crate) fn ino_of(key: &[u8]) -> FsResult<Ino> {
    let bytes = key.get(1..9).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
    bytes.map(|bytes| Ino(u64::from_be_bytes(bytes))).ok_or_else(|| damaged(key, "the key is too short"))
}

/// The bytes after tag and ino.
pub(crate) fn rest_of(key: &Bytes) -> Bytes {
    if key.len() < 9 { Bytes::new() } else { key.slice(9..) }
}

// -------------------------------------------------------------------------------------------- values

pub(crate) fn damaged(key: &[u8], why: &str) -> FsError {
    let tag = key.first().map(|&tag| char::from(tag)).unwrap_or('?');
    let hex: String = key.iter().skip(1).take(24).map(|byte| format!("{byte:02x}")).collect();
    FsError::Io(format!("metadata record {tag}/{hex} is damaged: {why}").into())
}

/// Reads a value front to back; every step checks.
pub(crate) struct Reader<'a> {
    key: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(key: &'a [u8], value: &'a [u8]) -> FsResult<Self> {
        Self::with_version(key, value, VERSION)
    }

    pub(crate) fn with_version(key: &'a [u8], value: &'a [u8], version: u8) -> FsResult<Self> {
        let mut reader = Self { key, rest: value };
        match reader.u8()? {
            found if found == version => Ok(reader),
            other => Err(damaged(key, &format!("version {other} is unknown to this program"))),
        }
    }

    pub(crate) fn bytes(&mut self, len: usize) -> FsResult<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(len).ok_or_else(|| damaged(self.key, "it is cut short"))?;
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> FsResult<[u8; N]> {
        let key = self.key;
        self.bytes(N)?.try_into().map_err(|_| damaged(key, "it is cut short"))
    }

    pub(crate) fn u8(&mut self) -> FsResult<u8> {
        Ok(u8::from_be_bytes(self.array()?))
    }
    pub(crate) fn u16(&mut self) -> FsResult<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }
    pub(crate) fn u32(&mut self) -> FsResult<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }
    pub(crate) fn u64(&mut self) -> FsResult<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }
    pub(crate) fn i64(&mut self) -> FsResult<i64> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    fn time(&mut self) -> FsResult<Timestamp> {
        Ok(Timestamp::new(self.i64()?, self.u32()?))
    }

    fn kind(&mut self) -> FsResult<FileKind> {
        let raw = self.u8()?;
        kind_from(raw).ok_or_else(|| damaged(self.key, &format!("{raw} is no file type")))
    }

    pub(crate) fn remaining(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn finish(self) -> FsResult<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(damaged(self.key, "there are bytes behind its end")) }
    }
}

pub(crate) fn kind_from(raw: u8) -> Option<FileKind> {
    use FileKind::*;
    [File, Directory, Symlink, Fifo, Socket, CharDevice, BlockDevice].into_iter().find(|&kind| kind as u8 == raw)
}

fn put_time(out: &mut BytesMut, time: Timestamp) {
    out.put_i64(time.secs);
    out.put_u32(time.nanos);
}

const INODE_FIXED_BYTES: usize = 192;
const FLAG_VERIFIER: u8 = 1;
const FLAG_RESERVED: u8 = 2;
const FLAG_ACL: u8 = 4;

/// The inode's key and its record.
pub(crate) fn encode_inode(ino: Ino, core: &InodeCore) -> (Bytes, Bytes) {
    let attr = &core.attr;
    assert_eq!(attr.id.ino, ino, "a record lies under its own number");
    assert!(attr.size <= FILE_BYTES_MAX, "every change of a size is checked before");
    let mut out = BytesMut::with_capacity(INODE_FIXED_BYTES + core.target.len());
    out.put_u8(VERSION);
    out.put_u8(attr.kind as u8);
    let verifier = if core.verifier.is_some() { FLAG_VERIFIER } else { 0 };
    let reserved = if core.has_reserved { FLAG_RESERVED } else { 0 };
    let acl = core.acl.as_ref().map(|acl| acl.encode());
    out.put_u8(verifier | reserved | if acl.is_some() { FLAG_ACL } else { 0 });
    out.put_u16((attr.mode & 0o7777) as u16);
    out.put_u64(attr.id.generation);
    out.put_u32(attr.nlink);
    out.put_u32(attr.uid);
    out.put_u32(attr.gid);
    out.put_u64(core.size_stored.unwrap_or(attr.size).min(attr.size));
    out.put_u64(core.stored_bytes);
    out.put_u32(attr.rdev.0);
    out.put_u32(attr.rdev.1);
    let (mtime, ctime, change) = core.recorded_state();
    for time in [attr.atime, mtime, ctime, attr.btime] {
        put_time(&mut out, time);
    }
    out.put_u64(change);
    out.put_u32(attr.dos);
    out.put_u64(core.parent.0);
    out.put_u64(core.next_cookie);
    out.put_u64(core.entries);
    out.put_u32(core.xattrs);
    out.put_u64(core.xattr_bytes);
    if let Some(verifier) = core.verifier {
        out.put_slice(&verifier);
    }
    out.put_u16(core.target.len() as u16);
    out.put_slice(&core.target);
    if let Some(acl) = acl {
        out.put_u16(acl.len() as u16);
        out.put_slice(&acl);
    }
    (inode_key(ino), out.freeze())
}

pub(crate) fn decode_inode(ino: Ino, value: &[u8]) -> FsResult<InodeCore> {
    let key = inode_key(ino);
    let mut r = Reader::new(&key, value)?;
    let kind = r.kind()?;
    let flags = r.u8()?;
    let mode = u32::from(r.u16()?) & 0o7777;
    let generation = r.u64()?;
    let (nlink, uid, gid) = (r.u32()?, r.u32()?, r.u32()?);
    let (size, allocated) = (r.u64()?, r.u64()?);
    if size > FILE_BYTES_MAX {
        return Err(damaged(&key, "the size is beyond the largest file"));
    }
    let rdev = (r.u32()?, r.u32()?);
    let (atime, mtime, ctime, btime) = (r.time()?, r.time()?, r.time()?, r.time()?);
    let (change, dos, parent) = (r.u64()?, r.u32()?, Ino(r.u64()?));
    let (next_cookie, entries, xattrs, xattr_bytes) = (r.u64()?, r.u64()?, r.u32()?, r.u64()?);
    if xattr_bytes > ATTRIBUTES_BYTES_MAX {
        return Err(damaged(&key, "it has more bytes of attributes than any inode"));
    }
    let verifier = if flags & FLAG_VERIFIER != 0 { Some(r.array()?) } else { None };
    let target_len = usize::from(r.u16()?);
    let target = Bytes::copy_from_slice(r.bytes(target_len)?);
    let acl = if flags & FLAG_ACL != 0 {
        let len = usize::from(r.u16()?);
        let acl = Acl::decode(r.bytes(len)?).ok_or_else(|| damaged(&key, "its access control list does not decode"))?;
        Some(Arc::new(acl))
    } else {
        None
    };
    r.finish()?;
    let id = FileId { ino, generation };
    let attr = Attr { id, kind, mode, nlink, uid, gid, size, allocated, rdev, atime, mtime, ctime, btime, change, dos };
    let mut core = InodeCore {
        attr,
        attr_dirty: false,
        size_stored: None,
        has_unstable: false,
        stored_bytes: allocated,
        has_reserved: flags & FLAG_RESERVED != 0,
        recorded: None,
        ticket: Ticket(0),
        gone: false,
        parent,
        verifier,
        next_cookie: next_cookie.max(FIRST_COOKIE),
        entries,
        negative_names: None,
        xattrs,
        xattr_bytes,
        target,
        acl,
    };
    core.recorded = Some(core.owned());
    Ok(core)
}

/// The entry of a directory for one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
    pub(crate) cookie: u64,
}

pub(crate) fn encode_entry(entry: Entry) -> Bytes {
    let mut out = BytesMut::with_capacity(18);
    out.put_u8(VERSION);
    out.put_u8(entry.kind as u8);
    out.put_u64(entry.ino.0);
    out.put_u64(entry.cookie);
    out.freeze()
}

pub(crate) fn decode_entry(key: &[u8], value: &[u8]) -> FsResult<Entry> {
    let mut r = Reader::new(key, value)?;
    let (kind, ino, cookie) = (r.kind()?, Ino(r.u64()?), r.u64()?);
    r.finish()?;
    Ok(Entry { ino, kind, cookie })
}

pub(crate) fn encode_cookie(ino: Ino, kind: FileKind, name: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(10 + name.len());
    out.put_u8(VERSION);
    out.put_u8(kind as u8);
    out.put_u64(ino.0);
    out.put_slice(name);
    out.freeze()
}

/// An entry of a listing from its by-cookie record.
pub(crate) fn decode_cookie(key: &[u8], value: &Bytes) -> FsResult<DirEntry> {
    let mut r = Reader::new(key, value)?;
    let (kind, ino) = (r.kind()?, Ino(r.u64()?));
    let name = value.slice_ref(r.remaining());
    let cookie = key.get(9..17).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
    let cookie = cookie.map(u64::from_be_bytes).ok_or_else(|| damaged(key, "the key is too short"))?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(damaged(key, "the name has an impossible length"));
    }
    Ok(DirEntry { cookie, name, ino, kind, attr: None })
}

pub(crate) fn encode_xattr(value: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(1 + value.len());
    out.put_u8(VERSION);
    out.put_slice(value);
    out.freeze()
}

pub(crate) fn decode_xattr(key: &[u8], value: &Bytes) -> FsResult<Bytes> {
    let mut r = Reader::new(key, value)?;
    let rest = r.remaining();
    // Of an empty slice `slice_ref` does not know whose it is.
    Ok(if rest.is_empty() { Bytes::new() } else { value.slice_ref(rest) })
}

/// The bytes of an extended attribute's value, in a row that may be damaged.
pub(crate) fn xattr_value_bytes(row: &[u8]) -> u64 {
    row.len().saturating_sub(1) as u64
}

pub(crate) fn encode_next_ino(next: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(9);
    out.put_u8(VERSION);
    out.put_u64(next);
    out.freeze()
}

pub(crate) fn decode_next_ino(value: &[u8]) -> FsResult<u64> {
    let mut r = Reader::new(NEXT_INO_KEY, value)?;
    let next = r.u64()?;
    r.finish()?;
    Ok(next)
}

pub(crate) fn encode_block(next: u32) -> Bytes {
    let mut out = BytesMut::with_capacity(5);
    out.put_u8(VERSION);
    out.put_u32(next);
    out.freeze()
}

pub(crate) fn decode_block(value: &[u8]) -> FsResult<u32> {
    let mut r = Reader::new(BLOCK_KEY, value)?;
    let next = r.u32()?;
    r.finish()?;
    Ok(next)
}

pub(crate) fn encode_usage(usage: Usage) -> Bytes {
    let mut out = BytesMut::with_capacity(33);
    out.put_u8(VERSION);
    out.put_i64(usage.inodes);
    out.put_i64(usage.logical_bytes);
    out.put_i64(usage.stored_bytes);
    // As it was before there were reserved ranges, where there are none.
    if usage.reserved_bytes != 0 {
        out.put_i64(usage.reserved_bytes);
    }
    out.freeze()
}

pub(crate) fn decode_usage(value: &[u8]) -> FsResult<Usage> {
    let mut r = Reader::new(USAGE_KEY, value)?;
    let (inodes, logical_bytes, stored_bytes) = (r.i64()?, r.i64()?, r.i64()?);
    let reserved_bytes = match r.is_at_end() {
        true => 0,
        false => Some(r.i64()?).filter(|&bytes| bytes != 0).ok_or_else(|| damaged(USAGE_KEY, "it counts nothing"))?,
    };
    let usage = Usage { inodes, logical_bytes, stored_bytes, reserved_bytes };
    r.finish()?;
    Ok(usage)
}

/// Identifies these keys as a volume, and which one it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) id: uuid::Uuid,
    pub(crate) created: Timestamp,
}

pub(crate) fn encode_superblock(superblock: Superblock) -> Bytes {
    let mut out = BytesMut::with_capacity(37);
    out.put_u8(VERSION);
    out.put_slice(&MAGIC);
    out.put_slice(superblock.id.as_bytes());
    put_time(&mut out, superblock.created);
    out.freeze()
}

pub(crate) fn decode_superblock(value: &[u8]) -> FsResult<Superblock> {
    let mut r = Reader::new(SUPERBLOCK_KEY, value)?;
    if r.array()? != MAGIC {
        return Err(damaged(SUPERBLOCK_KEY, "the magic is not a volume's"));
    }
    let (id, created) = (uuid::Uuid::from_bytes(r.array()?), r.time()?);
    r.finish()?;
    Ok(Superblock { id, created })
}

// ------------------------------------------------------------------------------------------- folding

#[cfg(test)]
#[path = "keys_tests.rs"]
pub(crate) mod tests;
