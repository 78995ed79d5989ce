//! DOS attributes and the time of creation, in the extended attribute in which Samba keeps them.
//!
//! - `dos.as_samba`: the bytes are `xattr_DOSATTRIB` of Samba's `librpc/idl/xattr.idl`. All its versions are read; version 4 is
//!   written, which Samba since 4.11 and ksmbd read. A file that Samba served keeps its attributes here, and the reverse.
//! - `dos.default_unwritten`: a file without the attribute shows ARCHIVE, a folder nothing. A change that comes to this writes
//!   nothing, so files that clients merely made are plain files of the host.
//!
//! ```text
//! text     attributes as "0x20", or empty; ends with a zero byte, and fills up to 2 bytes
//! u16      version        u16  version again        fills up to 4 bytes
//! 1: u32 attributes, u32, u64, u64, u64 created, u64
//! 2: u32, then as 1, u64, text
//! 3: u32 valid, then as 1
//! 4: u32 valid, u32 attributes, u64 itime, u64 created
//! 5: u32 valid, u32 attributes, u64 created
//! ```

use std::os::fd::AsFd;

use larder_base::Timestamp;
use larder_fs::{Attr, FsResult};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::Folder;
use crate::host::{Node, bears_user, by_number, failed};
use crate::kernel::xattr;

pub(crate) const NAME: &[u8] = b"user.DOSATTRIB";
/// Longer than any version with its text. A longer value is none of Samba's.
const BYTES_MAX: usize = 1024;
/// The version without numbers: of the text alone.
const TEXT_ALONE: u16 = 0xFFFF;
const WRITTEN: u16 = 4;

const VALID_ATTRIBUTES: u32 = 0x1;
const VALID_CREATED: u32 = 0x10;
const VALID_ITIME: u32 = 0x40;

/// READONLY, HIDDEN, SYSTEM, ARCHIVE, TEMPORARY, SPARSE, OFFLINE, NOT_CONTENT_INDEXED (MS-FSCC 2.6): the others follow from
/// the file.
const KEPT: u32 = 0x1 | 0x2 | 0x4 | 0x20 | 0x100 | 0x200 | 0x1000 | 0x2000;
const DIRECTORY: u32 = 0x10;
const ARCHIVE: u32 = 0x20;

/// From 1601-01-01 to 1970-01-01.
const EPOCH_SECS: i64 = 11_644_473_600;
const TICKS_PER_SEC: i64 = 10_000_000;
const NANOS_PER_TICK: u32 = 100;

/// The parts of the attribute that mean something here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Dos {
    attributes: Option<u32>,
    /// As NTTIME. Never 0.
    created: Option<u64>,
    /// Of Samba alone, which makes numbers of files from it.
    itime: Option<u64>,
}

#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz_attribute(data: &[u8]) {
    let Some(dos) = Dos::parse(data) else { return };
    assert_eq!(Dos::parse(&dos.encode()), Some(dos));
}

/// Reads little-endian numbers; `None` past the end.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(N)?)?.try_into().ok()?;
        self.at += N;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }
}

impl Dos {
    /// `None` for bytes that are none of Samba's.
    fn parse(bytes: &[u8]) -> Option<Dos> {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let text = bytes.get(..end)?;
        let mut rest = Reader { bytes, at: end + 1 };
        rest.align(2);
        let version = rest.u16().unwrap_or(TEXT_ALONE);
        if version == TEXT_ALONE {
            let hex = std::str::from_utf8(text).ok()?.strip_prefix("0x")?;
            return Some(Dos { attributes: Some(u32::from_str_radix(hex, 16).ok()?), ..Dos::default() });
        }
        if rest.u16()? != version {
            return None;
        }
        rest.align(4);
        let valid = match version {
            1 => VALID_ATTRIBUTES | VALID_CREATED,
            2 => rest.u32().map(|_| VALID_ATTRIBUTES | VALID_CREATED)?,
            3..=5 => rest.u32()?,
            _ => return None,
        };
        let attributes = rest.u32()?;
        let itime = match version {
            4 => Some(rest.u64()?),
            5 => None,
            _ => {
                let _sizes = (rest.u32()?, rest.u64()?, rest.u64()?);
                None
            }
        };
        let created = rest.u64()?;
        let is_valid = |flag| valid & flag != 0;
        Some(Dos {
            attributes: is_valid(VALID_ATTRIBUTES).then_some(attributes),
            created: Some(created).filter(|created| is_valid(VALID_CREATED) && *created != 0),
            itime: itime.filter(|_| is_valid(VALID_ITIME)),
        })
    }

    fn encode(&self) -> Vec<u8> {
        let flag = |is_there: bool, flag| if is_there { flag } else { 0 };
        let valid = flag(self.attributes.is_some(), VALID_ATTRIBUTES)
            | flag(self.created.is_some(), VALID_CREATED)
            | flag(self.itime.is_some(), VALID_ITIME);
        let mut bytes = vec![0, 0];
        bytes.extend(WRITTEN.to_le_bytes());
        bytes.extend(WRITTEN.to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend(valid.to_le_bytes());
        bytes.extend(self.attributes.unwrap_or(0).to_le_bytes());
        bytes.extend(self.itime.unwrap_or(0).to_le_bytes());
        bytes.extend(self.created.unwrap_or(0).to_le_bytes());
        bytes
    }

    /// Of an open node. `None` if it has none, or bytes that mean nothing here.
    fn of(node: &Node) -> FsResult<Option<Dos>> {
        if !bears_user(node) {
            return Ok(None);
        }
        match xattr(node.fd.as_fd(), NAME, BYTES_MAX) {
            Ok(bytes) => Ok(Dos::parse(&bytes)),
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Attributes and time of creation of a file that Samba served, each where it is said. `None`: the bytes are none of Samba's.
pub(crate) fn meaning(value: &[u8]) -> Option<(Option<u32>, Option<Timestamp>)> {
    let dos = Dos::parse(value)?;
    Some((dos.attributes.map(|attributes| attributes & KEPT), dos.created.map(timestamp)))
}

/// The attributes of a file that has none of its own.
pub(crate) fn default_of(attr: &Attr) -> u32 {
    if attr.kind == larder_fs::FileKind::File { ARCHIVE } else { 0 }
}

fn shown(attr: Attr, dos: Option<Dos>) -> Attr {
    let dos = dos.unwrap_or_default();
    Attr {
        dos: dos.attributes.map_or_else(|| default_of(&attr), |attributes| attributes & KEPT),
        btime: dos.created.map_or(attr.btime, timestamp),
        ..attr
    }
}

/// MS-DTYP 2.3.3. Times before 1601 are 1601 plus one tick: 0 is no time.
fn nttime(time: Timestamp) -> u64 {
    let secs = i128::from(time.secs) + i128::from(EPOCH_SECS);
    let ticks = secs * i128::from(TICKS_PER_SEC) + i128::from(time.nanos / NANOS_PER_TICK);
    ticks.clamp(1, i128::from(i64::MAX)) as u64
}

fn timestamp(nttime: u64) -> Timestamp {
    let ticks = i64::try_from(nttime).unwrap_or(i64::MAX);
    Timestamp::new(ticks / TICKS_PER_SEC - EPOCH_SECS, (ticks % TICKS_PER_SEC) as u32 * NANOS_PER_TICK)
}

impl Folder {
    /// The attributes of a node as this door shows them. Those that cannot be read are as if none were set.
    pub(crate) fn shown(&self, node: &Node) -> Attr {
        if self.shows_dos { self.with_dos_of(node) } else { node.attr }
    }

    pub(crate) fn with_dos_of(&self, node: &Node) -> Attr {
        shown(node.attr, Dos::of(node).unwrap_or_default())
    }

    /// Sets DOS attributes and the time of creation; both are written, as Samba does. A host without extended attributes
    /// keeps neither. Returns whether anything was written (`dos.default_unwritten`).
    pub(crate) fn set_dos(&self, node: &Node, dos: Option<u32>, created: Option<Timestamp>) -> FsResult<bool> {
        if dos.is_none() && created.is_none() || !bears_user(node) {
            return Ok(false);
        }
        let _turn = self.host.turn(node.ino()).lock();
        let known = Dos::of(node)?;
        let now = shown(node.attr, known);
        let wanted = Attr { dos: dos.map_or(now.dos, |dos| dos & KEPT), btime: created.unwrap_or(now.btime), ..now };
        if (wanted.dos, nttime(wanted.btime)) == (now.dos, nttime(now.btime)) {
            return Ok(false);
        }
        let directory = if node.is_dir() { DIRECTORY } else { 0 };
        let itime = known.and_then(|known| known.itime);
        let kept = Dos { attributes: Some(wanted.dos | directory), created: Some(nttime(wanted.btime)), itime };
        match rustix::fs::setxattr(by_number(node.fd.as_fd()), NAME, &kept.encode(), XattrFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let hex: String = hex.split_whitespace().collect();
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    const CREATED: u64 = 0x01d9_aabb_ccdd_eeff;

    /// Written by Samba 4.17 (version 5 by its server, the others by its Python module, here behind a text).
    #[test]
    fn all_versions_of_samba_are_read() {
        let numbers = "22000000 04030201 1817161514131211 2827262524232221 ffeeddccbbaad901 3837363534333231";
        let both = Dos { attributes: Some(0x22), created: Some(CREATED), itime: None };
        let cases = [
            (format!("0000 0100 0100 0000 {numbers}"), both),
            (format!("30783232 0000 0100 0100 0000 {numbers}"), both),
            (format!("0000 0200 0200 0000 00000000 {numbers} 4847464544434241 00"), both),
            (format!("0000 0300 0300 0000 11000000 {numbers}"), both),
            (format!("30783230 0000 0300 0300 0000 01000000 {numbers}"), Dos { created: None, ..both }),
            (
                "0000 0400 0400 0000 51000000 22000000 665544332211d801 ffeeddccbbaad901".into(),
                Dos { itime: Some(0x01d8_1122_3344_5566), ..both },
            ),
            (
                "0000 0400 0400 0000 10000000 22000000 0000000000000000 ffeeddccbbaad901".into(),
                Dos { attributes: None, ..both },
            ),
            ("0000 0500 0500 0000 11000000 22000000 ffeeddccbbaad901".into(), both),
            ("0000 0500 0500 0000 11000000 22000000 0000000000000000".into(), Dos { created: None, ..both }),
            ("30783232 00".into(), Dos { created: None, ..both }),
            ("30783232".into(), Dos { created: None, ..both }),
            ("30783232 0000 ffff ffff".into(), Dos { created: None, ..both }),
        ];
        for (hex, wanted) in cases {
            assert_eq!(Dos::parse(&bytes(&hex)), Some(wanted), "{hex}");
        }
    }

    #[test]
    fn other_bytes_are_none_of_sambas() {
        let whole = bytes("0000 0400 0400 0000 51000000 22000000 665544332211d801 ffeeddccbbaad901");
        for len in 0..whole.len() {
            assert_eq!(Dos::parse(&whole[..len]), None, "{len} bytes");
        }
        for hex in
            ["0000 0600 0600 0000 11000000 22000000 ffeeddccbbaad901", "0000 0500 0400 0000", "3078", "ff", "30787a"]
        {
            assert_eq!(Dos::parse(&bytes(hex)), None, "{hex}");
        }
    }

    #[test]
    fn the_version_that_is_written() {
        let dos = Dos { attributes: Some(0x22), created: Some(CREATED), itime: None };
        assert_eq!(dos.encode(), bytes("0000 0400 0400 0000 11000000 22000000 0000000000000000 ffeeddccbbaad901"));
        let with_itime = Dos { itime: Some(7), ..dos };
        for dos in [dos, with_itime, Dos { created: None, ..dos }] {
            assert_eq!(Dos::parse(&dos.encode()), Some(dos));
        }
    }

    #[test]
    fn times_come_back() {
        for ticks in [1, CREATED, i64::MAX as u64] {
            assert_eq!(nttime(timestamp(ticks)), ticks);
        }
        assert_eq!(nttime(Timestamp::new(i64::MIN, 0)), 1);
        assert_eq!(timestamp(u64::MAX), timestamp(i64::MAX as u64));
    }
}
