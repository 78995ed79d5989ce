//! Members of a tar stream: POSIX ustar headers (IEEE 1003.1 pax) with extended records where a field is too small.
//!
//! Sparse files are those of GNU tar's format 1.0, extended attributes have the names of star and GNU tar (`SCHILY.xattr`).
//! Pure: values in, bytes out.

use larder_base::Timestamp;
use larder_fs::{Attr, FileKind};

pub(super) const BLOCK_BYTES: usize = 512;
const NAME_BYTES: usize = 100;
/// The greatest numbers of a field's octal digits.
const SIZE_END: u64 = 1 << 33;
const ID_END: u64 = 1 << 21;

/// Bytes from here to there of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// One name of the stream.
pub(super) struct Member<'a> {
    pub(super) path: &'a [u8],
    pub(super) attr: &'a Attr,
    /// The target of a symbolic link, or the first name of a file that has several.
    pub(super) target: Option<&'a [u8]>,
    /// It is another name of `target`.
    pub(super) is_link: bool,
    pub(super) user: Option<&'a str>,
    pub(super) group: Option<&'a str>,
    /// The parts that are stored, if the file has holes.
    pub(super) extents: Option<&'a [Extent]>,
    /// Further records: keys and values.
    pub(super) records: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Member<'_> {
    /// Everything before the data: extended records, the header, the map of a sparse file.
    pub(super) fn head(mut self) -> Vec<u8> {
        let is_file = self.attr.kind == FileKind::File && !self.is_link;
        let map = self.extents.map(|extents| sparse_map(extents, self.attr.size));
        let stored: u64 = match self.extents {
            Some(extents) => extents.iter().map(|extent| extent.bytes).sum(),
            None if is_file => self.attr.size,
            None => 0,
        };
        let size = stored + map.as_ref().map_or(0, |map| map.len() as u64);
        let mut records = std::mem::take(&mut self.records);
        let mut name = self.path.to_vec();
        if map.is_some() {
            records.push(text("GNU.sparse.major", "1"));
            records.push(text("GNU.sparse.minor", "0"));
            records.push((b"GNU.sparse.name".to_vec(), name));
            records.push(text("GNU.sparse.realsize", &self.attr.size.to_string()));
            name = [&b"./GNUSparseFile.0/"[..], short(last_name(self.path), NAME_BYTES - 18)].concat();
        } else if name.len() > NAME_BYTES || !name.is_ascii() {
            records.push((b"path".to_vec(), name.clone()));
        }
        let target = self.target.unwrap_or_default();
        if target.len() > NAME_BYTES || !target.is_ascii() {
            records.push((b"linkpath".to_vec(), target.to_vec()));
        }
        if std::str::from_utf8(self.path).is_err() || std::str::from_utf8(target).is_err() {
            records.insert(0, text("hdrcharset", "BINARY"));
        }
        self.numbers(&mut records, size);
        let records = extended(&records);
        let pax_name = [&b"./PaxHeaders/"[..], short(last_name(self.path), NAME_BYTES - 13)].concat();
        let mut out = Header { name: &pax_name, size: records.len() as u64, kind: b'x', ..Header::default() }.bytes();
        out.extend_from_slice(&records);
        pad(&mut out);
        let (uid, gid) = (u64::from(self.attr.uid), u64::from(self.attr.gid));
        let header = Header {
            name: &name,
            mode: self.attr.mode & 0o7777,
            uid: if uid < ID_END { uid } else { 0 },
            gid: if gid < ID_END { gid } else { 0 },
            size: if size < SIZE_END { size } else { 0 },
            mtime: u64::try_from(self.attr.mtime.secs).ok().filter(|secs| *secs < SIZE_END).unwrap_or(0),
            kind: self.kind(),
            target,
            user: self.user.unwrap_or_default(),
            group: self.group.unwrap_or_default(),
            device: self.attr.rdev,
        };
        out.extend_from_slice(&header.bytes());
        out.extend(map.into_iter().flatten());
        out
    }

    fn kind(&self) -> u8 {
        match self.attr.kind {
            _ if self.is_link => b'1',
            FileKind::Symlink => b'2',
            FileKind::CharDevice => b'3',
            FileKind::BlockDevice => b'4',
            FileKind::Directory => b'5',
            FileKind::Fifo => b'6',
            FileKind::File | FileKind::Socket => b'0',
        }
    }

    /// Times to the nanosecond, and numbers and names that do not fit their fields.
    fn numbers(&self, records: &mut Vec<(Vec<u8>, Vec<u8>)>, size: u64) {
        let attr = self.attr;
        records.push(text("mtime", &time(attr.mtime)));
        records.push(text("atime", &time(attr.atime)));
        if size >= SIZE_END {
            records.push(text("size", &size.to_string()));
        }
        for (key, id) in [("uid", attr.uid), ("gid", attr.gid)] {
            if u64::from(id) >= ID_END {
                records.push(text(key, &id.to_string()));
            }
        }
        for (key, name) in [("uname", self.user), ("gname", self.group)] {
            if let Some(name) = name.filter(|name| name.len() >= 32 || !name.is_ascii()) {
                records.push(text(key, name));
            }
        }
    }
}

fn text(key: &str, value: &str) -> (Vec<u8>, Vec<u8>) {
    (key.as_bytes().to_vec(), value.as_bytes().to_vec())
}

fn last_name(path: &[u8]) -> &[u8] {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

fn short(name: &[u8], bytes_max: usize) -> &[u8] {
    &name[..name.len().min(bytes_max)]
}

/// Seconds since 1970 and their fraction, as one decimal number.
fn time(at: Timestamp) -> String {
    match at.secs {
        secs if secs < 0 && at.nanos > 0 => format!("-{}.{:09}", -(secs + 1), 1_000_000_000 - at.nanos),
        secs => format!("{secs}.{:09}", at.nanos),
    }
}

/// "LENGTH KEY=VALUE\n", where the length counts itself.
fn extended(records: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while rest + length.to_string().len() > length {
            length += 1;
        }
        out.extend_from_slice(format!("{length} ").as_bytes());
        out.extend_from_slice(key);
        out.push(b'=');
        out.extend_from_slice(value);
        out.push(b'\n');
    }
    out
}

/// The number of parts, then offset and length of each, in lines; the end of the file is a part without bytes.
fn sparse_map(extents: &[Extent], size: u64) -> Vec<u8> {
    let ends = extents.last().is_none_or(|last| last.offset + last.bytes < size);
    let last = ends.then_some(Extent { offset: size, bytes: 0 });
    let mut map = format!("{}\n", extents.len() + usize::from(ends)).into_bytes();
    for Extent { offset, bytes } in extents.iter().copied().chain(last) {
        map.extend_from_slice(format!("{offset}\n{bytes}\n").as_bytes());
    }
    pad(&mut map);
    map
}

/// Zeros up to a whole block.
pub(super) fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(BLOCK_BYTES), 0);
}

/// The fields of a ustar header.
#[derive(Default)]
struct Header<'a> {
    name: &'a [u8],
    mode: u32,
    uid: u64,
    gid: u64,
    size: u64,
    mtime: u64,
    kind: u8,
    target: &'a [u8],
    user: &'a str,
    group: &'a str,
    device: (u32, u32),
}

impl Header<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut out = vec![0; BLOCK_BYTES];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, short(self.name, NAME_BYTES));
        put(100, &octal(self.mode.into(), 7));
        put(108, &octal(self.uid, 7));
        put(116, &octal(self.gid, 7));
        put(124, &octal(self.size, 11));
        put(136, &octal(self.mtime, 11));
        put(148, b"        ");
        put(156, &[self.kind]);
        put(157, short(self.target, NAME_BYTES));
        put(257, b"ustar\x0000");
        put(265, short(self.user.as_bytes(), 31));
        put(297, short(self.group.as_bytes(), 31));
        put(329, &octal(self.device.0.into(), 7));
        put(337, &octal(self.device.1.into(), 7));
        let sum: u32 = out.iter().map(|&byte| u32::from(byte)).sum();
        out[148..154].copy_from_slice(&octal(sum.into(), 6));
        out[154..156].copy_from_slice(b"\0 ");
        out
    }
}

/// The last `digits` octal digits.
fn octal(number: u64, digits: usize) -> Vec<u8> {
    let text = format!("{number:0digits$o}").into_bytes();
    text[text.len() - digits..].to_vec()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn records_count_themselves() {
        let check = |key: &str, value: &str, expected: &str| {
            assert_eq!(extended(&[text(key, value)]), expected.as_bytes(), "{key}");
        };
        check("a", "b", "6 a=b\n");
        check("path", "12", "11 path=12\n");
        check("k", &"x".repeat(92), &format!("98 k={}\n", "x".repeat(92)));
        check("k", &"x".repeat(94), &format!("101 k={}\n", "x".repeat(94)));
    }

    #[test]
    fn times_are_decimal_numbers() {
        assert_eq!(time(Timestamp::new(5, 7)), "5.000000007");
        assert_eq!(time(Timestamp::new(-2, 500_000_000)), "-1.500000000");
        assert_eq!(time(Timestamp::new(-1, 250_000_000)), "-0.750000000");
        assert_eq!(time(Timestamp::new(-3, 0)), "-3.000000000");
    }

    #[test]
    fn a_map_ends_where_the_file_does() {
        let lines = |extents: &[Extent], size| {
            let map = sparse_map(extents, size);
            assert_eq!(map.len() % BLOCK_BYTES, 0);
            String::from_utf8(map).unwrap().trim_end_matches('\0').to_owned()
        };
        let extent = |offset, bytes| Extent { offset, bytes };
        assert_eq!(lines(&[], 10), "1\n10\n0\n");
        assert_eq!(lines(&[extent(4096, 6)], 4102), "1\n4096\n6\n");
        assert_eq!(lines(&[extent(0, 1), extent(8, 1)], 10), "3\n0\n1\n8\n1\n10\n0\n");
    }
}
