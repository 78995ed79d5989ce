//! Shard files: their names, their headers, their checksums. FORMAT.md has the diagrams.
//!
//! The name alone says all that the index needs, so a pool opens without opening its files. The
//! header repeats it and adds what a name cannot hold (long paths, attributes, the pool's id), so
//! that a shard found anywhere explains itself.
//!
//! - `shard.version_never_reused`: a version is never used twice in a pool, so path + version name
//!   immutable bytes.
//! - `shard.block_bound_to_its_place`: a block's checksum is seeded by pool, version, shard index
//!   and block number. A stale, misdirected or swapped block fails it.

use larder_base::checksum;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use crate::object::geometry::{BlockSize, Geometry, OBJECT_BYTES_MAX};

pub const MAGIC: [u8; 8] = *b"LARDSHRD";
/// Of shards in blocks of 32 KiB, the only ones that the first programs knew.
const FORMAT_VERSION_FIRST: u32 = 1;
/// Of shards whose name and header say the size of their blocks.
const FORMAT_VERSION: u32 = 2;
/// Fixed part of the header.
const FIXED_BYTES: usize = 96;
const HEADER_ALIGN_BYTES: usize = 64;
/// Longest header: bounds a read on the word of a file name.
pub const HEADER_BYTES_MAX: usize = 256 << 10;
/// Longest file name used; most filesystems stop at 255.
const NAME_BYTES_MAX: usize = 250;
/// Directories that objects are spread over.
pub const FANOUT: u16 = 256;
/// Never the first character of a shard's name: `escape` leaves none.
const TEMP_PREFIX: &str = "!";
const REBUILT_SUFFIX: &str = ".r";

/// Everything that the name of a shard file tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardName {
    pub path: PathName,
    pub version: u64,
    pub modified_ms: u64,
    pub geometry: Geometry,
    pub index: u8,
    pub header_bytes: u32,
    pub has_attributes: bool,
}

/// The object's path, or its hash where the path is too long for a file name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathName {
    Plain(String),
    Hashed(u64),
}

/// The kinds of file in an `objects/xx` directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Shard(ShardName),
    /// Left by a writer that did not finish.
    Temp,
    /// Not ours: left alone.
    Unknown,
}

/// The contents of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub pool: Uuid,
    pub version: u64,
    pub modified_ms: u64,
    pub geometry: Geometry,
    pub index: u8,
    pub path: String,
    pub attributes: Vec<(String, String)>,
}

/// The directory that holds the shards of `path`.
pub fn directory(path: &str) -> String {
    format!("objects/{:02x}", xxh3_64(path.as_bytes()) % u64::from(FANOUT))
}

pub fn temp_name(path: &str, version: u64, index: u8) -> String {
    format!("{}/{TEMP_PREFIX}{version:016x}.{index:02x}", directory(path))
}

/// The file name of a shard, without its directory.
pub fn file_name(header: &Header, header_bytes: usize) -> String {
    let Geometry { size, k, m, block } = header.geometry;
    let attributes = if header.attributes.is_empty() { "" } else { "a" };
    let tail = format!(
        "~{:x}~{size:x}~{:x}~{k:02x}{m:02x}{:02x}{block}~{header_bytes:x}{attributes}",
        header.version,
        header.modified_ms,
        header.index,
        block = if block == BlockSize::Kib32 { String::new() } else { format!("{:02x}", block as u8) },
        attributes = if attributes.is_empty() { String::new() } else { format!("~{attributes}") },
    );
    let escaped = escape(&header.path);
    assert!(tail.len() + 20 <= NAME_BYTES_MAX, "a hashed path fits every name");
    if escaped.len() + tail.len() <= NAME_BYTES_MAX {
        escaped + &tail
    } else {
        format!("={:016x}=h{tail}", xxh3_64(header.path.as_bytes()))
    }
}

/// Where a shard of an object that is stored is made anew: its version is not one that was cut
/// short.
pub fn rebuilt_name(path: &str, version: u64, index: u8) -> String {
    temp_name(path, version, index) + REBUILT_SUFFIX
}

/// Version and shard of a temporary file, and whether a stored object's shard was being made anew.
pub fn parse_temp(name: &str) -> Option<(u64, u8, bool)> {
    let name = name.strip_prefix(TEMP_PREFIX)?;
    let draft = name.strip_suffix(REBUILT_SUFFIX);
    let (version, index) = draft.unwrap_or(name).split_once('.')?;
    Some((u64::from_str_radix(version, 16).ok()?, u8::from_str_radix(index, 16).ok()?, draft.is_some()))
}

/// Reads a directory entry of `objects/xx`.
pub fn parse_name(name: &str) -> Found {
    if name.starts_with(TEMP_PREFIX) {
        return Found::Temp;
    }
    parse_shard(name).map_or(Found::Unknown, Found::Shard)
}

fn parse_shard(name: &str) -> Option<ShardName> {
    let mut fields = name.split('~');
    let path = parse_path(fields.next()?)?;
    let hex = |text: Option<&str>| u64::from_str_radix(text?, 16).ok();
    let version = hex(fields.next())?;
    let size = hex(fields.next())?;
    let modified_ms = hex(fields.next())?;
    let shape = fields.next()?;
    let byte = |at: usize| u8::from_str_radix(shape.get(at..at + 2)?, 16).ok();
    let (k, m, index) = (byte(0)?, byte(2)?, byte(4)?);
    let block = match shape.get(6..)? {
        "" => BlockSize::Kib32,
        "0d" => BlockSize::Kib8,
        _ => return None,
    };
    let header_bytes = u32::try_from(hex(fields.next())?).ok()?;
    let has_attributes = match fields.next() {
        None => false,
        Some("a") => true,
        Some(_) => return None,
    };
    let geometry = valid_geometry(size, k, m, block)?;
    let sane = index < geometry.shards() && (FIXED_BYTES..=HEADER_BYTES_MAX).contains(&(header_bytes as usize));
    (sane && fields.next().is_none()).then_some(ShardName {
        path,
        version,
        modified_ms,
        geometry,
        index,
        header_bytes,
        has_attributes,
    })
}

fn valid_geometry(size: u64, k: u8, m: u8, block: BlockSize) -> Option<Geometry> {
    let sane = (1..=32).contains(&k) && m <= 3 && (k + m) <= 32 && size <= OBJECT_BYTES_MAX;
    sane.then_some(Geometry { size, k, m, block })
}

fn parse_path(text: &str) -> Option<PathName> {
    if let Some(hash) = text.strip_prefix('=').and_then(|rest| rest.strip_suffix("=h")) {
        return u64::from_str_radix(hash, 16).ok().map(PathName::Hashed);
    }
    unescape(text).map(PathName::Plain)
}

/// Letters, digits, `.`, `_` and `-` stand for themselves, `/` becomes `+`, other bytes `=XX`. A
/// leading dot is escaped too.
fn escape(path: &str) -> String {
    let mut out = String::with_capacity(path.len() + 8);
    for (at, byte) in path.bytes().enumerate() {
        match byte {
            b'.' if at == 0 => out.push_str("=2e"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => out.push(byte as char),
            b'/' => out.push('+'),
            _ => out.push_str(&format!("={byte:02x}")),
        }
    }
    out
}

fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => out.push(byte),
            b'+' => out.push(b'/'),
            b'=' => {
                let digits = [bytes.next()?, bytes.next()?];
                out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            }
            _ => return None,
        }
    }
    String::from_utf8(out).ok()
}

/// The seed that all blocks of one shard share (`shard.block_bound_to_its_place`); combine with the
/// block number.
pub fn shard_seed(pool: Uuid, version: u64, index: u8) -> u64 {
    let mut id = [0u8; 25];
    id[..16].copy_from_slice(pool.as_bytes());
    id[16..24].copy_from_slice(&version.to_le_bytes());
    id[24] = index;
    xxh3_64(&id)
}

/// The seed of block `block`.
pub fn block_seed(shard_seed: u64, block: u64) -> u64 {
    // Odd multiplier (2^64 / golden ratio): neighbouring blocks get unrelated seeds.
    shard_seed ^ block.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Bytes of the header for this path and these attributes.
pub fn header_bytes(path: &str, attributes: &[(String, String)]) -> usize {
    let text: usize = attributes.iter().map(|(key, value)| 8 + key.len() + value.len()).sum();
    (FIXED_BYTES + path.len() + text + 8).next_multiple_of(HEADER_ALIGN_BYTES)
}

fn is_known(format_version: u32) -> bool {
    [FORMAT_VERSION_FIRST, FORMAT_VERSION].contains(&format_version)
}

/// The length of the header that a file begins with, if these bytes begin one of a known version.
pub fn header_length(start: &[u8]) -> Option<u32> {
    let mut reader = Reader(start);
    let known = reader.take(8)? == MAGIC && is_known(reader.u32()?);
    let length = reader.u32()?;
    (known && (FIXED_BYTES..=HEADER_BYTES_MAX).contains(&(length as usize))).then_some(length)
}

impl Header {
    /// The bytes of the header: fixed part, path, attributes, zeros, checksum in the last 8 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let length = header_bytes(&self.path, &self.attributes);
        let mut out = Vec::with_capacity(length);
        out.extend_from_slice(&MAGIC);
        let is_first = self.geometry.block == BlockSize::Kib32;
        let format_version = if is_first { FORMAT_VERSION_FIRST } else { FORMAT_VERSION };
        out.extend_from_slice(&format_version.to_le_bytes());
        out.extend_from_slice(&(length as u32).to_le_bytes());
        out.extend_from_slice(self.pool.as_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.modified_ms.to_le_bytes());
        out.extend_from_slice(&self.geometry.size.to_le_bytes());
        out.extend_from_slice(&(crate::object::geometry::UNIT_BYTES as u32).to_le_bytes());
        out.extend_from_slice(&(self.geometry.block_bytes() as u32).to_le_bytes());
        out.extend_from_slice(&[self.geometry.k, self.geometry.m, self.index, 0]);
        out.extend_from_slice(&(self.path.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.attributes.len() as u32).to_le_bytes());
        assert!(out.len() <= FIXED_BYTES, "the fixed fields fit their part of the header");
        out.resize(FIXED_BYTES, 0);
        out.extend_from_slice(self.path.as_bytes());
        for (key, value) in &self.attributes {
            out.extend_from_slice(&(key.len() as u32).to_le_bytes());
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(value.as_bytes());
        }
        assert!(out.len() <= length - 8, "the header is as long as was reckoned: its blocks follow it");
        out.resize(length - 8, 0);
        let sum = checksum::checksum(0, &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// `None` for anything that is not a whole, intact header of a known version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
        if checksum::checksum(0, body).to_le_bytes() != sum {
            return None;
        }
        let mut reader = Reader(body);
        let magic = reader.take(8)?;
        let format_version = reader.u32()?;
        if magic != MAGIC || !is_known(format_version) || reader.u32()? as usize != bytes.len() {
            return None;
        }
        let pool = Uuid::from_slice(reader.take(16)?).ok()?;
        let (version, modified_ms, size) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (_unit, block) = (reader.u32()?, reader.u32()?);
        let block = match format_version {
            FORMAT_VERSION_FIRST => BlockSize::Kib32,
            _ => BlockSize::from_bytes(u64::from(block)).filter(|block| *block != BlockSize::Kib32)?,
        };
        let &[k, m, index, _] = reader.take(4)? else { return None };
        let (path_bytes, attributes_count) = (reader.u32()? as usize, reader.u32()?);
        reader.take(FIXED_BYTES - 76)?;
        let path = reader.text(path_bytes)?;
        let mut attributes = Vec::new();
        for _ in 0..attributes_count {
            let (key, value) = (reader.u32()? as usize, reader.u32()? as usize);
            attributes.push((reader.text(key)?, reader.text(value)?));
        }
        let geometry = valid_geometry(size, k, m, block)?;
        (index < geometry.shards()).then_some(Self { pool, version, modified_ms, geometry, index, path, attributes })
    }
}

/// A cursor that cannot run past the end.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    pub fn text(&mut self, length: usize) -> Option<String> {
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn example() -> Header {
        Header {
            pool: Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
            version: 0x0102_0304_0506_0708,
            modified_ms: 1_700_000_000_123,
            geometry: Geometry { size: 5000, k: 2, m: 1, block: BlockSize::Kib32 },
            index: 1,
            path: "vol/seg/7".into(),
            attributes: vec![("m:tag".into(), "x".into())],
        }
    }

    /// Golden: shards of this version must stay readable.
    #[test]
    fn golden_header_and_name() {
        let header = example();
        let bytes = header.encode();
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(bytes.len(), 128);
        assert_eq!(
            hex,
            "4c41524453485244010000008000000000112233445566778899aabbccddeeff\
             08070605040302017b68e5cf8b01000088130000000000000000100000800000\
             0201010009000000010000000000000000000000000000000000000000000000\
             766f6c2f7365672f3705000000010000006d3a7461677800c866685051a9ef4f"
        );
        assert_eq!(Header::decode(&bytes), Some(header.clone()));
        assert_eq!(file_name(&header, bytes.len()), "vol+seg+7~102030405060708~1388~18bcfe5687b~020101~80~a");

        let header = Header { geometry: Geometry { block: BlockSize::Kib8, ..header.geometry }, ..header };
        let bytes = header.encode();
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "4c41524453485244020000008000000000112233445566778899aabbccddeeff\
             08070605040302017b68e5cf8b01000088130000000000000000100000200000\
             0201010009000000010000000000000000000000000000000000000000000000\
             766f6c2f7365672f3705000000010000006d3a7461677800872e44e4f55c598e"
        );
        assert_eq!(Header::decode(&bytes), Some(header.clone()));
        let name = "vol+seg+7~102030405060708~1388~18bcfe5687b~0201010d~80~a";
        assert_eq!(file_name(&header, bytes.len()), name);
        for shape in ["0201010f", "0201010c", "020101+d", "02010", "0201010d0"] {
            assert_eq!(parse_name(&name.replace("0201010d", shape)), Found::Unknown, "{shape}");
        }
    }

    #[test]
    fn damage_is_noticed() {
        let bytes = example().encode();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert_eq!(Header::decode(&bad), None, "byte {at}");
            assert_eq!(Header::decode(&bytes[..at]), None);
        }
    }

    #[test]
    fn long_paths_are_hashed() {
        let header = Header { path: "x/".repeat(200), ..example() };
        let bytes = header.encode();
        let name = file_name(&header, bytes.len());
        assert!(name.len() <= NAME_BYTES_MAX);
        let Found::Shard(found) = parse_name(&name) else { panic!("{name}") };
        assert_eq!(found.path, PathName::Hashed(xxh3_64(header.path.as_bytes())));
    }

    proptest! {
        #[test]
        fn names_round_trip(path in "\\PC{0,60}", version: u64, size in 0u64..1 << 50, k in 1u8..29, m in 0u8..4, old: bool) {
            let block = if old { BlockSize::Kib32 } else { BlockSize::Kib8 };
            let header = Header { path: path.clone(), version, geometry: Geometry { size, k, m, block }, index: k + m - 1, ..example() };
            let length = header_bytes(&header.path, &header.attributes);
            let name = file_name(&header, length);
            let Found::Shard(found) = parse_name(&name) else { panic!("{name}") };
            if let PathName::Plain(text) = &found.path {
                prop_assert_eq!(text, &path);
            }
            prop_assert_eq!((found.version, found.geometry, found.index), (version, header.geometry, header.index));
            prop_assert_eq!(found.header_bytes as usize, length);
            prop_assert!(!name.contains('/') && name.len() <= 255 && !name.starts_with('.'));
        }

        #[test]
        fn garbage_never_panics(name in "\\PC{0,80}", bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            parse_name(&name);
            Header::decode(&bytes);
        }
    }
}
