//! The codec of SFTP version 3 (draft-ietf-secsh-filexfer-02) with the extensions of OpenSSH (its file PROTOCOL, section 4).
//!
//! - `packet.bounded`: a packet is at most [`PACKET_BYTES_MAX`] long, which is checked before memory
//!   is taken for it. A decoded field is a slice of its packet.
//! - `packet.nothing_left`: bytes behind the last field are ignored, as OpenSSH does: later versions
//!   of an extension may add fields.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The longest packet: that of OpenSSH, which clients take for granted.
pub const PACKET_BYTES_MAX: usize = 256 << 10;
/// The longest read and write that the server names (`limits@openssh.com`): the headers fit beside it.
pub const IO_BYTES_MAX: u32 = (PACKET_BYTES_MAX - 1024) as u32;
/// The version that is spoken.
pub const VERSION: u32 = 3;
/// Users or groups that one request may ask for.
const IDS_MAX: usize = 4096;

/// The extensions, each with its version (PROTOCOL 4).
const EXTENSIONS: [(&str, &str); 11] = [
    ("posix-rename@openssh.com", "1"),
    ("statvfs@openssh.com", "2"),
    ("fstatvfs@openssh.com", "2"),
    ("hardlink@openssh.com", "1"),
    ("fsync@openssh.com", "1"),
    ("lsetstat@openssh.com", "1"),
    ("limits@openssh.com", "1"),
    ("expand-path@openssh.com", "1"),
    ("copy-data", "1"),
    ("home-directory", "1"),
    ("users-groups-by-id@openssh.com", "1"),
];

/// Types of answers (section 3).
const VERSION_REPLY: u8 = 2;
const STATUS: u8 = 101;
const HANDLE: u8 = 102;
const DATA: u8 = 103;
const NAME: u8 = 104;
const ATTRS: u8 = 105;
const EXTENDED_REPLY: u8 = 201;

/// Flags of OPEN (6.3).
pub const OPEN_READ: u32 = 0x01;
pub const OPEN_WRITE: u32 = 0x02;
pub const OPEN_APPEND: u32 = 0x04;
pub const OPEN_CREATE: u32 = 0x08;
pub const OPEN_TRUNCATE: u32 = 0x10;
pub const OPEN_EXCLUSIVE: u32 = 0x20;

/// Flags of ATTRS (5).
const ATTR_SIZE: u32 = 0x01;
const ATTR_IDS: u32 = 0x02;
const ATTR_MODE: u32 = 0x04;
const ATTR_TIMES: u32 = 0x08;
const ATTR_EXTENDED: u32 = 0x8000_0000;

/// Status codes (7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
    Ok = 0,
    Eof = 1,
    NoSuchFile = 2,
    PermissionDenied = 3,
    Failure = 4,
    BadMessage = 5,
    Unsupported = 8,
}

/// The stream is none of packets: nothing that follows can be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Garbage;

/// Attributes as a client sends and reads them (5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attrs {
    pub size: Option<u64>,
    pub ids: Option<(u32, u32)>,
    /// With the type of the file, as in st_mode.
    pub mode: Option<u32>,
    /// Of the last access and the last change, in seconds.
    pub times: Option<(u32, u32)>,
}

/// The number of an open file or directory.
pub type HandleId = u32;

/// A request, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Init {
        version: u32,
    },
    Open {
        path: Bytes,
        flags: u32,
        attrs: Attrs,
    },
    Close {
        handle: HandleId,
    },
    Read {
        handle: HandleId,
        offset: u64,
        len: u32,
    },
    Write {
        handle: HandleId,
        offset: u64,
        data: Bytes,
    },
    Stat {
        path: Bytes,
        follow: bool,
    },
    FStat {
        handle: HandleId,
    },
    SetStat {
        path: Bytes,
        attrs: Attrs,
        follow: bool,
    },
    FSetStat {
        handle: HandleId,
        attrs: Attrs,
    },
    OpenDir {
        path: Bytes,
    },
    ReadDir {
        handle: HandleId,
    },
    Remove {
        path: Bytes,
    },
    MkDir {
        path: Bytes,
        attrs: Attrs,
    },
    RmDir {
        path: Bytes,
    },
    RealPath {
        path: Bytes,
    },
    Rename {
        from: Bytes,
        to: Bytes,
        replace: bool,
    },
    ReadLink {
        path: Bytes,
    },
    Symlink {
        target: Bytes,
        link: Bytes,
    },
    HardLink {
        old: Bytes,
        new: Bytes,
    },
    FSync {
        handle: HandleId,
    },
    StatVfs {
        path: Bytes,
    },
    FStatVfs {
        handle: HandleId,
    },
    CopyData {
        from: HandleId,
        offset: u64,
        len: u64,
        to: HandleId,
        to_offset: u64,
    },
    Limits,
    ExpandPath {
        path: Bytes,
    },
    HomeDirectory,
    Names {
        uids: Vec<u32>,
        gids: Vec<u32>,
    },
    /// It can be answered, and cannot be carried out.
    Unknown,
}

/// Cuts a stream into packets, each without its length.
#[derive(Default)]
pub struct Frames {
    head: [u8; 4],
    head_len: usize,
    body: BytesMut,
    missing: usize,
}

impl Frames {
    /// Takes bytes off `data`. Returns a packet once it is whole; `None` when `data` is used up.
    pub fn next(&mut self, data: &mut &[u8]) -> Result<Option<Bytes>, Garbage> {
        while self.missing == 0 {
            let Some((first, rest)) = data.split_first() else { return Ok(None) };
            *data = rest;
            if let Some(place) = self.head.get_mut(self.head_len) {
                *place = *first;
            }
            self.head_len += 1;
            if self.head_len == self.head.len() {
                let len = u32::from_be_bytes(self.head) as usize;
                // A type at least (`packet.bounded`).
                if len == 0 || len > PACKET_BYTES_MAX {
                    return Err(Garbage);
                }
                (self.head_len, self.missing) = (0, len);
                self.body = BytesMut::with_capacity(len);
            }
        }
        let (taken, rest) = data.split_at(self.missing.min(data.len()));
        self.body.extend_from_slice(taken);
        self.missing -= taken.len();
        *data = rest;
        Ok((self.missing == 0).then(|| std::mem::take(&mut self.body).freeze()))
    }

    /// Bytes of a packet that has not come whole.
    pub fn partial(&self) -> usize {
        self.body.len()
    }
}

/// Reads fields off the front of a packet.
struct Fields(Bytes);

impl Fields {
    fn u32(&mut self) -> Result<u32, Garbage> {
        if self.0.len() < 4 { Err(Garbage) } else { Ok(self.0.get_u32()) }
    }

    fn u64(&mut self) -> Result<u64, Garbage> {
        if self.0.len() < 8 { Err(Garbage) } else { Ok(self.0.get_u64()) }
    }

    fn string(&mut self) -> Result<Bytes, Garbage> {
        let len = self.u32()? as usize;
        if self.0.len() < len { Err(Garbage) } else { Ok(self.0.split_to(len)) }
    }

    /// Of a handle of another length there is no file: it is never given out.
    fn handle(&mut self) -> Result<HandleId, Garbage> {
        let bytes = self.string()?;
        Ok(bytes.as_ref().try_into().map_or(0, HandleId::from_be_bytes))
    }

    fn attrs(&mut self) -> Result<Attrs, Garbage> {
        let flags = self.u32()?;
        let mut attrs = Attrs::default();
        if flags & ATTR_SIZE != 0 {
            attrs.size = Some(self.u64()?);
        }
        if flags & ATTR_IDS != 0 {
            attrs.ids = Some((self.u32()?, self.u32()?));
        }
        if flags & ATTR_MODE != 0 {
            attrs.mode = Some(self.u32()?);
        }
        if flags & ATTR_TIMES != 0 {
            attrs.times = Some((self.u32()?, self.u32()?));
        }
        if flags & ATTR_EXTENDED != 0 {
            for _ in 0..self.u32()? {
                self.string()?;
                self.string()?;
            }
        }
        Ok(attrs)
    }

    /// Attributes that old clients leave out.
    fn attrs_if_any(&mut self) -> Result<Attrs, Garbage> {
        if self.0.is_empty() { Ok(Attrs::default()) } else { self.attrs() }
    }

    fn ids(&mut self) -> Result<Vec<u32>, Garbage> {
        let list = self.string()?;
        if list.len() % 4 != 0 || list.len() / 4 > IDS_MAX {
            return Err(Garbage);
        }
        Ok(list.chunks_exact(4).map(|id| id.iter().fold(0, |all, byte| all << 8 | u32::from(*byte))).collect())
    }
}

/// Decodes a packet: its id, and the request or that its fields are wrong. [`Garbage`] if there is not even an id.
pub fn decode(packet: Bytes) -> Result<(u32, Result<Request, Garbage>), Garbage> {
    let mut fields = Fields(packet);
    if fields.0.is_empty() {
        return Err(Garbage);
    }
    let kind = fields.0.get_u8();
    // Of INIT this is the version (4).
    let id = fields.u32()?;
    if kind == 1 {
        return Ok((0, Ok(Request::Init { version: id })));
    }
    Ok((id, request(kind, &mut fields)))
}

fn request(kind: u8, fields: &mut Fields) -> Result<Request, Garbage> {
    Ok(match kind {
        3 => Request::Open { path: fields.string()?, flags: fields.u32()?, attrs: fields.attrs_if_any()? },
        4 => Request::Close { handle: fields.handle()? },
        5 => Request::Read { handle: fields.handle()?, offset: fields.u64()?, len: fields.u32()? },
        6 => Request::Write { handle: fields.handle()?, offset: fields.u64()?, data: fields.string()? },
        7 => Request::Stat { path: fields.string()?, follow: false },
        8 => Request::FStat { handle: fields.handle()? },
        9 => Request::SetStat { path: fields.string()?, attrs: fields.attrs()?, follow: true },
        10 => Request::FSetStat { handle: fields.handle()?, attrs: fields.attrs()? },
        11 => Request::OpenDir { path: fields.string()? },
        12 => Request::ReadDir { handle: fields.handle()? },
        13 => Request::Remove { path: fields.string()? },
        14 => Request::MkDir { path: fields.string()?, attrs: fields.attrs_if_any()? },
        15 => Request::RmDir { path: fields.string()? },
        16 => Request::RealPath { path: fields.string()? },
        17 => Request::Stat { path: fields.string()?, follow: true },
        18 => Request::Rename { from: fields.string()?, to: fields.string()?, replace: false },
        19 => Request::ReadLink { path: fields.string()? },
        // The target first, as OpenSSH has it and every client sends it: the draft says the opposite (PROTOCOL 4.1).
        20 => Request::Symlink { target: fields.string()?, link: fields.string()? },
        200 => extended(fields)?,
        _ => Request::Unknown,
    })
}

fn extended(fields: &mut Fields) -> Result<Request, Garbage> {
    let name = fields.string()?;
    Ok(match name.as_ref() {
        b"posix-rename@openssh.com" => Request::Rename { from: fields.string()?, to: fields.string()?, replace: true },
        b"statvfs@openssh.com" => Request::StatVfs { path: fields.string()? },
        b"fstatvfs@openssh.com" => Request::FStatVfs { handle: fields.handle()? },
        b"hardlink@openssh.com" => Request::HardLink { old: fields.string()?, new: fields.string()? },
        b"fsync@openssh.com" => Request::FSync { handle: fields.handle()? },
        b"lsetstat@openssh.com" => Request::SetStat { path: fields.string()?, attrs: fields.attrs()?, follow: false },
        b"limits@openssh.com" => Request::Limits,
        b"expand-path@openssh.com" => Request::ExpandPath { path: fields.string()? },
        b"home-directory" => Request::HomeDirectory,
        b"copy-data" => Request::CopyData {
            from: fields.handle()?,
            offset: fields.u64()?,
            len: fields.u64()?,
            to: fields.handle()?,
            to_offset: fields.u64()?,
        },
        b"users-groups-by-id@openssh.com" => Request::Names { uids: fields.ids()?, gids: fields.ids()? },
        _ => Request::Unknown,
    })
}

/// An answer as it is encoded: its length is filled in at the end.
pub struct Reply(BytesMut);

impl Reply {
    fn new(kind: u8, id: u32, room: usize) -> Self {
        let mut bytes = BytesMut::with_capacity(9 + room);
        bytes.put_u32(0);
        bytes.put_u8(kind);
        bytes.put_u32(id);
        Self(bytes)
    }

    fn string(&mut self, bytes: &[u8]) {
        self.0.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.put_slice(bytes);
    }

    fn attrs(&mut self, attrs: &Attrs) {
        let flag = |is_there: bool, flag: u32| if is_there { flag } else { 0 };
        self.0.put_u32(
            flag(attrs.size.is_some(), ATTR_SIZE)
                | flag(attrs.ids.is_some(), ATTR_IDS)
                | flag(attrs.mode.is_some(), ATTR_MODE)
                | flag(attrs.times.is_some(), ATTR_TIMES),
        );
        if let Some(size) = attrs.size {
            self.0.put_u64(size);
        }
        for (first, second) in attrs.ids.into_iter() {
            self.0.put_u32(first);
            self.0.put_u32(second);
        }
        if let Some(mode) = attrs.mode {
            self.0.put_u32(mode);
        }
        if let Some((atime, mtime)) = attrs.times {
            self.0.put_u32(atime);
            self.0.put_u32(mtime);
        }
    }

    /// The packet with its length.
    pub fn finish(mut self) -> Bytes {
        let len = u32::try_from(self.0.len().saturating_sub(4)).unwrap_or(u32::MAX);
        if let Some(head) = self.0.first_chunk_mut::<4>() {
            *head = len.to_be_bytes();
        }
        self.0.freeze()
    }
}

/// SSH_FXP_VERSION with the extensions.
pub fn version() -> Bytes {
    let mut reply = Reply::new(VERSION_REPLY, VERSION, 512);
    for (name, version) in EXTENSIONS {
        reply.string(name.as_bytes());
        reply.string(version.as_bytes());
    }
    reply.finish()
}

/// SSH_FXP_STATUS.
pub fn status(id: u32, code: Code, text: &str) -> Bytes {
    let mut reply = Reply::new(STATUS, id, 12 + text.len());
    reply.0.put_u32(code as u32);
    reply.string(text.as_bytes());
    reply.string(b"");
    reply.finish()
}

/// SSH_FXP_HANDLE.
pub fn handle(id: u32, handle: HandleId) -> Bytes {
    let mut reply = Reply::new(HANDLE, id, 8);
    reply.string(&handle.to_be_bytes());
    reply.finish()
}

/// SSH_FXP_DATA of the pieces of a read.
pub fn data(id: u32, chunks: &[Bytes]) -> Bytes {
    let len: usize = chunks.iter().map(Bytes::len).sum();
    let mut reply = Reply::new(DATA, id, 4 + len);
    reply.0.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
    chunks.iter().for_each(|chunk| reply.0.put_slice(chunk));
    reply.finish()
}

/// SSH_FXP_ATTRS.
pub fn attrs(id: u32, attrs: &Attrs) -> Bytes {
    let mut reply = Reply::new(ATTRS, id, 32);
    reply.attrs(attrs);
    reply.finish()
}

/// SSH_FXP_NAME, entry by entry.
pub struct Names {
    reply: Reply,
    count: u32,
}

impl Names {
    pub fn new(id: u32, room: usize) -> Self {
        let mut reply = Reply::new(NAME, id, room);
        reply.0.put_u32(0);
        Self { reply, count: 0 }
    }

    /// `long` is the line of `ls -l`.
    pub fn push(&mut self, name: &[u8], long: &[u8], attrs: &Attrs) {
        self.reply.string(name);
        self.reply.string(long);
        self.reply.attrs(attrs);
        self.count += 1;
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn finish(mut self) -> Bytes {
        let count = self.count.to_be_bytes();
        if let Some(place) = self.reply.0.get_mut(9..13) {
            place.copy_from_slice(&count);
        }
        self.reply.finish()
    }
}

/// A name alone: REALPATH, READLINK, expand-path, home-directory.
pub fn name(id: u32, name: &[u8]) -> Bytes {
    let mut names = Names::new(id, 16 + 2 * name.len());
    names.push(name, name, &Attrs::default());
    names.finish()
}

/// SSH_FXP_EXTENDED_REPLY of numbers: statvfs, limits.
pub fn numbers(id: u32, numbers: &[u64]) -> Bytes {
    let mut reply = Reply::new(EXTENDED_REPLY, id, 8 * numbers.len());
    numbers.iter().for_each(|number| reply.0.put_u64(*number));
    reply.finish()
}

/// SSH_FXP_EXTENDED_REPLY of users-groups-by-id: a name that is not known is empty.
pub fn names_of_ids(id: u32, users: &[&str], groups: &[&str]) -> Bytes {
    let mut reply = Reply::new(EXTENDED_REPLY, id, 256);
    for list in [users, groups] {
        let len: usize = list.iter().map(|name| 4 + name.len()).sum();
        reply.0.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
        list.iter().for_each(|name| reply.string(name.as_bytes()));
    }
    reply.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(parts: &[&[u8]]) -> Bytes {
        Bytes::from(parts.concat())
    }

    fn text(text: &str) -> Vec<u8> {
        [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
    }

    #[test]
    fn requests_are_those_of_the_draft() {
        let id = [0, 0, 0, 9];
        let check = |kind: u8, fields: &[&[u8]], expected: Request| {
            let packet = packet(&[&[kind], &id, &fields.concat()]);
            assert_eq!(decode(packet).unwrap(), (9, Ok(expected)));
        };
        let (a, b) = (Bytes::from_static(b"/a"), Bytes::from_static(b"/b"));
        let handle = [0, 0, 0, 4, 0, 0, 0, 7];
        let mode = [0, 0, 0, 4, 0, 0, 1, 0o244];
        let attrs = Attrs { mode: Some(0o644), ..Attrs::default() };
        check(3, &[&text("/a"), &[0, 0, 0, 0x1a], &mode], Request::Open { path: a.clone(), flags: 0x1a, attrs });
        check(5, &[&handle, &8u64.to_be_bytes(), &[0, 0, 1, 0]], Request::Read { handle: 7, offset: 8, len: 256 });
        let write = Request::Write { handle: 7, offset: 1, data: Bytes::from_static(b"xy") };
        check(6, &[&handle, &1u64.to_be_bytes(), &text("xy")], write);
        check(7, &[&text("/a")], Request::Stat { path: a.clone(), follow: false });
        check(17, &[&text("/a")], Request::Stat { path: a.clone(), follow: true });
        check(18, &[&text("/a"), &text("/b")], Request::Rename { from: a.clone(), to: b.clone(), replace: false });
        let posix = [text("posix-rename@openssh.com"), text("/a"), text("/b")].concat();
        check(200, &[&posix], Request::Rename { from: a.clone(), to: b.clone(), replace: true });
        check(20, &[&text("/a"), &text("/b")], Request::Symlink { target: a, link: b });
        let ids = [text("users-groups-by-id@openssh.com"), text("\0\0\0\x05"), text("")].concat();
        check(200, &[&ids], Request::Names { uids: vec![5], gids: vec![] });
        check(200, &[&text("nothing@example.org")], Request::Unknown);
        check(99, &[], Request::Unknown);
        let init = packet(&[&[1], &[0, 0, 0, 3]]);
        assert_eq!(decode(init).unwrap(), (0, Ok(Request::Init { version: 3 })));
    }

    #[test]
    fn a_field_that_is_cut_short_is_answered_and_no_packet_without_an_id_is() {
        let whole = [&[6u8][..], &[0, 0, 0, 9], &[0, 0, 0, 4, 0, 0, 0, 7], &1u64.to_be_bytes(), &text("xy")].concat();
        for len in 0..whole.len() {
            let decoded = decode(Bytes::copy_from_slice(&whole[..len]));
            match len {
                0..5 => assert_eq!(decoded, Err(Garbage)),
                _ => assert_eq!(decoded, Ok((9, Err(Garbage))), "{len}"),
            }
        }
        assert!(decode(Bytes::from(whole)).unwrap().1.is_ok());
        let many =
            [&[200u8][..], &[0, 0, 0, 9], &text("users-groups-by-id@openssh.com"), &[0, 0, 0, 3, 1, 2, 3]].concat();
        assert_eq!(decode(Bytes::from(many)), Ok((9, Err(Garbage))));
    }

    #[test]
    fn a_stream_is_cut_the_same_however_it_arrives() {
        let packets: Vec<Vec<u8>> = [1usize, 5, 40_000].iter().map(|len| vec![7; *len]).collect();
        let stream: Vec<u8> = packets.iter().flat_map(|p| [&(p.len() as u32).to_be_bytes()[..], p].concat()).collect();
        for step in [1, 3, 32_768, stream.len()] {
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            for mut piece in stream.chunks(step) {
                while let Some(packet) = frames.next(&mut piece).unwrap() {
                    found.push(packet.to_vec());
                }
            }
            assert_eq!(found, packets, "{step}");
        }
        for bad in [0u32, PACKET_BYTES_MAX as u32 + 1, u32::MAX] {
            assert_eq!(Frames::default().next(&mut &bad.to_be_bytes()[..]), Err(Garbage));
        }
    }

    #[test]
    fn answers_carry_their_length_and_count() {
        let mut names = Names::new(3, 0);
        names.push(b"a", b"-rw", &Attrs { size: Some(5), times: Some((1, 2)), ..Attrs::default() });
        let bytes = names.finish();
        let attrs = [0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 2];
        let body = [&[104, 0, 0, 0, 3, 0, 0, 0, 1][..], &text("a"), &text("-rw"), &attrs].concat();
        assert_eq!(bytes, [&(body.len() as u32).to_be_bytes()[..], &body].concat());
        let read = data(2, &[Bytes::from_static(b"ab"), Bytes::from_static(b"c")]);
        assert_eq!(&read[..], [&[0, 0, 0, 12, 103, 0, 0, 0, 2][..], &text("abc")].concat());
        assert_eq!(&numbers(1, &[2])[..], [0, 0, 0, 13, 201, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
        let version = version();
        assert_eq!(&version[4..9], [2, 0, 0, 0, 3]);
        assert!(version.windows(9).any(|w| w == b"copy-data"));
    }
}
