//! The format of ZIP archives (PKWARE's APPNOTE 6.3), as much of it as a stream of stored files
//! needs.
//!
//! - `zip.streamed`: the size and checksum of a file follow it (4.4.4, bit 3), so that nothing has
//!   to be read before it is sent. All sizes and places have 8 bytes (ZIP64, 4.5.3).
//! - `zip.names_stay_below`: a name is relative, in UTF-8 (bit 11), and has no `..` and no
//!   backslash, which some programs take for a slash.

use chrono::{DateTime, Datelike, Timelike};
use crc32fast::Hasher;
use larder_base::Timestamp;

const LOCAL: u32 = 0x0403_4b50;
const DESCRIPTOR: u32 = 0x0807_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END64: u32 = 0x0606_4b50;
const LOCATOR64: u32 = 0x0706_4b50;
const END: u32 = 0x0605_4b50;
/// 4.5, the first with ZIP64; made by Unix.
const NEEDED: u16 = 45;
const MADE_BY: u16 = 3 << 8 | NEEDED;
const FLAGS: u16 = 1 << 3 | 1 << 11;
/// Bytes of the directory at the end, which is kept until then.
const DIRECTORY_BYTES_MAX: usize = 32 << 20;
pub const NAME_BYTES_MAX: usize = 4096;

/// The archive would need more memory than it may have.
#[derive(Debug, PartialEq, Eq)]
pub struct TooMany;

/// An archive that is being written.
#[derive(Default)]
pub struct Zip {
    at: u64,
    entries: u64,
    directory: Vec<u8>,
}

/// A file within it that is being written.
pub struct Member {
    name: Vec<u8>,
    begin: u64,
    time: [u8; 4],
    unix_time: i32,
    mode: u32,
    is_folder: bool,
    hasher: Hasher,
    size: u64,
}

/// Makes a name of the server one of an archive (`zip.names_stay_below`). Bytes that are no UTF-8
/// become `%XX`.
pub fn name_of(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        out.extend(chunk.valid().chars().map(|char| if char == '\\' { '_' } else { char }));
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("%{byte:02X}")));
    }
    let names = out.split('/').filter(|name| !name.is_empty() && *name != "." && *name != "..");
    names.collect::<Vec<_>>().join("/")
}

/// 4.4.6: two seconds, local or not; from 1980 on. In UTC, since a server knows no other zone of
/// its readers.
fn dos_time(time: Timestamp) -> [u8; 4] {
    let field = |value: u32| u16::try_from(value).unwrap_or_default();
    const FIRST: (u16, u16) = (0, 1 << 5 | 1);
    const LAST: (u16, u16) = (23 << 11 | 59 << 5 | 29, 127 << 9 | 12 << 5 | 31);
    let (clock, date) = match DateTime::from_timestamp(time.secs, 0) {
        None if time.secs < 0 => FIRST,
        None => LAST,
        Some(at) if at.year() < 1980 => FIRST,
        Some(at) if at.year() > 2107 => LAST,
        Some(at) => (
            field(at.hour() << 11 | at.minute() << 5 | (at.second() / 2)),
            field((at.year().unsigned_abs() - 1980) << 9 | at.month() << 5 | at.day()),
        ),
    };
    let ([a, b], [c, d]) = (u16::to_le_bytes(clock), u16::to_le_bytes(date));
    [a, b, c, d]
}

struct Out(Vec<u8>);

impl Out {
    fn short(mut self, value: u16) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn word(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn long(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

fn short(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

impl Zip {
    /// The head of a member. Its bytes come next, then [`Zip::end`]. `name` is of [`name_of`].
    pub fn begin(
        &mut self,
        name: &str,
        is_folder: bool,
        mode: u32,
        mtime: Timestamp,
    ) -> Result<(Member, Vec<u8>), TooMany> {
        let mut name = name.as_bytes().to_vec();
        if is_folder {
            name.push(b'/');
        }
        if name.len() > NAME_BYTES_MAX || self.directory.len() + name.len() + 128 > DIRECTORY_BYTES_MAX {
            return Err(TooMany);
        }
        let unix_time = i32::try_from(mtime.secs).unwrap_or(if mtime.secs < 0 { i32::MIN } else { i32::MAX });
        let (begin, time) = (self.at, dos_time(mtime));
        // A folder has nothing behind its head, and so no descriptor.
        let (flags, size) = if is_folder { (1 << 11, 0) } else { (FLAGS, u32::MAX) };
        let extra = if is_folder { Vec::new() } else { Out(Vec::new()).short(1).short(16).long(0).long(0).0 };
        let extra = Out(extra).short(0x5455).short(5).bytes(&[1]).bytes(&unix_time.to_le_bytes()).0;
        let head = Out(Vec::with_capacity(30 + name.len() + extra.len()))
            .word(LOCAL)
            .short(NEEDED)
            .short(flags)
            .short(0)
            .bytes(&time)
            .word(0)
            .word(size)
            .word(size)
            .short(short(name.len()))
            .short(short(extra.len()))
            .bytes(&name)
            .bytes(&extra)
            .0;
        self.at += head.len() as u64;
        Ok((Member { name, begin, time, unix_time, mode, is_folder, hasher: Hasher::new(), size: 0 }, head))
    }

    /// What follows the bytes of a member.
    pub fn end(&mut self, member: Member) -> Vec<u8> {
        let (crc, size) = (member.hasher.finalize(), member.size);
        self.at += size;
        let tail = match member.is_folder {
            true => Vec::new(),
            false => Out(Vec::new()).word(DESCRIPTOR).word(crc).long(size).long(size).0,
        };
        self.at += tail.len() as u64;
        let extra = Out(Vec::new()).short(1).short(24).long(size).long(size).long(member.begin).0;
        let extra = Out(extra).short(0x5455).short(5).bytes(&[1]).bytes(&member.unix_time.to_le_bytes()).0;
        let kind = if member.is_folder { 0o040_000 } else { 0o100_000 };
        let attributes = (kind | member.mode & 0o777) << 16 | if member.is_folder { 0x10 } else { 0 };
        let record = Out(std::mem::take(&mut self.directory))
            .word(CENTRAL)
            .short(MADE_BY)
            .short(NEEDED)
            .short(if member.is_folder { 1 << 11 } else { FLAGS })
            .short(0)
            .bytes(&member.time)
            .word(crc)
            .word(u32::MAX)
            .word(u32::MAX)
            .short(short(member.name.len()))
            .short(short(extra.len()))
            .short(0)
            .short(0)
            .short(0)
            .word(attributes)
            .word(u32::MAX)
            .bytes(&member.name)
            .bytes(&extra);
        self.directory = record.0;
        self.entries += 1;
        tail
    }

    /// The directory and the end of the archive.
    pub fn finish(self) -> Vec<u8> {
        let (begin, size) = (self.at, self.directory.len() as u64);
        Out(self.directory)
            .word(END64)
            .long(44)
            .short(MADE_BY)
            .short(NEEDED)
            .word(0)
            .word(0)
            .long(self.entries)
            .long(self.entries)
            .long(size)
            .long(begin)
            .word(LOCATOR64)
            .word(0)
            .long(begin + size)
            .word(1)
            .word(END)
            .short(0)
            .short(0)
            .short(u16::MAX)
            .short(u16::MAX)
            .word(u32::MAX)
            .word(u32::MAX)
            .short(0)
            .0
    }
}

impl Member {
    /// Bytes of it that are sent.
    pub fn add(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_of_archives_stay_below() {
        for (path, name) in [
            ("a/b.txt".as_bytes(), "a/b.txt"),
            (b"../../etc/./x", "etc/x"),
            (b"..\\..\\x", ".._.._x"),
            (b"/abs//y", "abs/y"),
            (b"caf\xe9", "caf%E9"),
            ("ä\n".as_bytes(), "ä\n"),
        ] {
            assert_eq!(name_of(path), name);
        }
    }

    #[test]
    fn places_and_sizes_are_those_of_the_bytes() {
        let (mut zip, mut out) = (Zip::default(), Vec::new());
        for (name, is_folder, data) in [("d", true, &b""[..]), ("d/a", false, b"hello"), ("d/b", false, b"")] {
            let (mut member, head) = zip.begin(name, is_folder, 0o644, Timestamp::new(1_700_000_001, 0)).unwrap();
            out.extend(head);
            member.add(data);
            out.extend_from_slice(data);
            out.extend(zip.end(member));
        }
        assert_eq!(zip.at, out.len() as u64);
        let (begin, directory) = (out.len(), zip.directory.len());
        out.extend(zip.finish());
        assert_eq!(&out[begin..begin + 4], CENTRAL.to_le_bytes());
        assert_eq!(&out[begin + directory..begin + directory + 4], END64.to_le_bytes());
        assert_eq!(&out[out.len() - 22..out.len() - 18], END.to_le_bytes());
        // The checksum of "hello".
        assert!(out.windows(4).any(|word| word == 0x3610_a686_u32.to_le_bytes()));
    }

    #[test]
    fn times_before_and_after_what_it_knows() {
        assert_eq!(dos_time(Timestamp::new(0, 0)), [0, 0, 0x21, 0]);
        // 2023-11-14 22:13:20.
        assert_eq!(dos_time(Timestamp::new(1_700_000_000, 0)), [0xaa, 0xb1, 0x6e, 0x57]);
        assert_eq!(dos_time(Timestamp::new(1 << 40, 0)), [0x7d, 0xbf, 0x9f, 0xff]);
    }

    #[test]
    fn the_directory_is_bounded() {
        let mut zip = Zip::default();
        assert_eq!(zip.begin(&"x".repeat(NAME_BYTES_MAX + 1), false, 0, Timestamp::new(0, 0)).err(), Some(TooMany));
        let name = "x".repeat(NAME_BYTES_MAX);
        let mut count = 0;
        while let Ok((member, _)) = zip.begin(&name, false, 0o644, Timestamp::new(0, 0)) {
            zip.end(member);
            count += 1;
        }
        assert!(count > 5000 && zip.directory.len() <= DIRECTORY_BYTES_MAX);
    }
}
