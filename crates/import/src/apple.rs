//! AppleDouble: parts of a Mac's file beside its data, as macOS writes them where streams cannot be kept (`._NAME`), and as
//! Samba's `vfs_fruit` and netatalk do (RFC 1740, appendix A and B; the block of extended attributes is macOS's own).
//!
//! Each part becomes the stream that SMB clients of Apple ask for: Finder information AFP_AfpInfo, the resource fork
//! AFP_Resource, and each extended attribute a stream of its name.

const MAGIC: u32 = 0x0005_1607;
const VERSION: u32 = 0x0002_0000;
const HEADER_BYTES: usize = 26;
const ENTRY_BYTES: usize = 12;
/// More entries than Apple has numbers for.
const ENTRIES_MAX: usize = 32;
const RESOURCE_FORK: u32 = 2;
const FINDER_INFO: u32 = 9;
const FINDER_INFO_BYTES: usize = 32;
/// Behind Finder information and two bytes that align it.
const ATTRIBUTES_AT: usize = 34;
const ATTRIBUTES_MAGIC: &[u8] = b"ATTR";
/// To the first attribute, from the magic on.
const ATTRIBUTES_HEADER_BYTES: usize = 36;
const ATTRIBUTE_BYTES: usize = 11;
/// Where a file has no resource fork, macOS writes one that says so.
const LEFT_BLANK: &[u8] = b"This resource fork intentionally left blank";
const LEFT_BLANK_BYTES: usize = 286;

/// A name and its bytes.
pub(crate) type NameAndValue = (Vec<u8>, Vec<u8>);

/// The streams of an AppleDouble file, sorted; `None` where it is none, or a part of it does not lie within it.
pub(crate) fn streams(file: &[u8]) -> Option<Vec<NameAndValue>> {
    let mut found = Vec::new();
    for (id, part) in entries(file)? {
        match id {
            FINDER_INFO => {
                let info = part.get(..FINDER_INFO_BYTES)?;
                if info.iter().any(|byte| *byte != 0) {
                    found.push((b"AFP_AfpInfo".to_vec(), afp_info(info)));
                }
                if part.get(ATTRIBUTES_AT..ATTRIBUTES_AT + 4) == Some(ATTRIBUTES_MAGIC) {
                    found.extend(attributes(file, &part[ATTRIBUTES_AT..])?);
                }
            }
            RESOURCE_FORK if !part.is_empty() && !is_left_blank(part) => {
                found.push((b"AFP_Resource".to_vec(), part.to_vec()));
            }
            _ => {}
        }
    }
    found.sort_unstable();
    found.dedup_by(|second, first| second.0 == first.0);
    Some(found)
}

/// Whether a file that begins so can be one.
pub(crate) fn begins_so(head: &[u8]) -> bool {
    u32_at(head, 0) == Some(MAGIC) && u32_at(head, 4) == Some(VERSION)
}

/// The number and bytes of each part.
fn entries(file: &[u8]) -> Option<Vec<(u32, &[u8])>> {
    let count = usize::from(u16_at(file, 24)?);
    if !begins_so(file) || count > ENTRIES_MAX {
        return None;
    }
    let entry = |n: usize| {
        let at = HEADER_BYTES + n * ENTRY_BYTES;
        let (offset, length) = (u32_at(file, at + 4)? as usize, u32_at(file, at + 8)? as usize);
        Some((u32_at(file, at)?, file.get(offset..offset.checked_add(length)?)?))
    };
    within((0..count).map(entry).collect::<Option<Vec<_>>>()?, file, |(_, part)| part.len())
}

/// Parts that lie on one another would make more of a file than it has.
fn within<T>(parts: Vec<T>, file: &[u8], bytes: impl Fn(&T) -> usize) -> Option<Vec<T>> {
    (parts.iter().map(bytes).sum::<usize>() <= file.len()).then_some(parts)
}

/// The stream of Finder information: 60 bytes, of which macOS reads these 32.
fn afp_info(finder_info: &[u8]) -> Vec<u8> {
    let mut info = Vec::with_capacity(60);
    info.extend(b"AFP\0");
    // Apple's is 0x0001_0000, of a little-endian machine.
    info.extend(0x0000_0100u32.to_be_bytes());
    info.extend([0; 4]);
    // Never backed up.
    info.extend(0x8000_0000u32.to_be_bytes());
    info.extend(finder_info);
    info.extend([0; 12]);
    info
}

fn is_left_blank(fork: &[u8]) -> bool {
    fork.len() == LEFT_BLANK_BYTES && fork.windows(LEFT_BLANK.len()).any(|window| window == LEFT_BLANK)
}

/// The attributes in the block at `block`; they name their values by the place in the file.
fn attributes(file: &[u8], block: &[u8]) -> Option<Vec<NameAndValue>> {
    let count = usize::from(u16_at(block, ATTRIBUTES_HEADER_BYTES - 2)?);
    let mut found: Vec<(&[u8], &[u8])> = Vec::new();
    let mut at = ATTRIBUTES_HEADER_BYTES;
    for _ in 0..count {
        let (offset, length) = (u32_at(block, at)? as usize, u32_at(block, at + 4)? as usize);
        let name_bytes = usize::from(*block.get(at + 10)?);
        let name = block.get(at + ATTRIBUTE_BYTES..at + ATTRIBUTE_BYTES + name_bytes)?;
        let name = name.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
        found.push((name, file.get(offset..offset.checked_add(length)?)?));
        // Entries begin at multiples of four.
        at += (ATTRIBUTE_BYTES + name_bytes).next_multiple_of(4);
    }
    let found = within(found, file, |(_, value)| value.len())?;
    Some(found.into_iter().map(|(name, value)| (stream_name(name), value.to_vec())).collect())
}

/// Characters that a stream's name cannot have are those of the private area by which SMB clients of Apple stand for them.
fn stream_name(name: &[u8]) -> Vec<u8> {
    let stands_for = |byte: u8| match byte {
        b'"' => Some('\u{f020}'),
        b'*' => Some('\u{f021}'),
        b':' => Some('\u{f022}'),
        b'<' => Some('\u{f023}'),
        b'>' => Some('\u{f024}'),
        b'?' => Some('\u{f025}'),
        b'\\' => Some('\u{f026}'),
        b'|' => Some('\u{f027}'),
        _ => None,
    };
    let mut out = Vec::with_capacity(name.len());
    for byte in name {
        match stands_for(*byte) {
            Some(other) => out.extend(other.encode_utf8(&mut [0; 4]).as_bytes()),
            None => out.push(*byte),
        }
    }
    out
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A file with Finder information, attributes and a resource fork, laid out as macOS does.
    pub(crate) fn double(finder_info: [u8; 32], attributes: &[(&str, &[u8])], fork: &[u8]) -> Vec<u8> {
        let mut list = Vec::new();
        let names: usize =
            attributes.iter().map(|(name, _)| (ATTRIBUTE_BYTES + name.len() + 1).next_multiple_of(4)).sum();
        let info_at = HEADER_BYTES + 2 * ENTRY_BYTES;
        let data_at = info_at + ATTRIBUTES_AT + ATTRIBUTES_HEADER_BYTES + names;
        let (mut at, mut values) = (data_at, Vec::<u8>::new());
        for (name, value) in attributes {
            let mut entry = [(at as u32).to_be_bytes(), (value.len() as u32).to_be_bytes()].concat();
            entry.extend([0, 0, name.len() as u8 + 1]);
            entry.extend(name.as_bytes());
            entry.push(0);
            entry.resize(entry.len().next_multiple_of(4), 0);
            list.extend(entry);
            values.extend(*value);
            at += value.len();
        }
        let mut info = finder_info.to_vec();
        info.extend([0, 0]);
        info.extend(ATTRIBUTES_MAGIC);
        info.extend([0; ATTRIBUTES_HEADER_BYTES - 6]);
        info.extend((attributes.len() as u16).to_be_bytes());
        info.extend(list);
        info.extend(values);
        let mut file = [MAGIC.to_be_bytes(), VERSION.to_be_bytes()].concat();
        file.extend(b"Mac OS X        \0\x02");
        for (id, at, length) in [(FINDER_INFO, info_at, info.len()), (RESOURCE_FORK, info_at + info.len(), fork.len())]
        {
            file.extend([id.to_be_bytes(), (at as u32).to_be_bytes(), (length as u32).to_be_bytes()].concat());
        }
        file.extend(info);
        file.extend(fork);
        file
    }

    #[test]
    fn each_part_is_a_stream() {
        let mut info = [0; 32];
        info[..8].copy_from_slice(b"TEXTttxt");
        let file = double(info, &[("com.apple.metadata:tags", b"red"), ("note", b"")], b"a fork");
        let found = streams(&file).unwrap();
        let names: Vec<&[u8]> = found.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, [&b"AFP_AfpInfo"[..], b"AFP_Resource", "com.apple.metadata\u{f022}tags".as_bytes(), b"note"]);
        assert_eq!(
            (&found[0].1[..8], &found[0].1[16..24], found[0].1.len()),
            (&b"AFP\0\0\0\x01\0"[..], &b"TEXTttxt"[..], 60)
        );
        assert_eq!((&found[1].1[..], &found[2].1[..], &found[3].1[..]), (&b"a fork"[..], &b"red"[..], &b""[..]));
    }

    #[test]
    fn what_is_empty_is_no_stream() {
        let mut blank = vec![0; LEFT_BLANK_BYTES];
        blank[20..20 + LEFT_BLANK.len()].copy_from_slice(LEFT_BLANK);
        assert_eq!(streams(&double([0; 32], &[], &blank)), Some(Vec::new()));
        assert_eq!(streams(&double([0; 32], &[], b"")), Some(Vec::new()));
    }

    /// Many attributes of one value make no more of it.
    #[test]
    fn parts_on_one_another_are_refused() {
        let value = vec![7; 400];
        let mut file = double([1; 32], &[("one", &value), ("two", b"22")], b"");
        let list = HEADER_BYTES + 2 * ENTRY_BYTES + ATTRIBUTES_AT + ATTRIBUTES_HEADER_BYTES;
        let (first, second) = (list, list + (ATTRIBUTE_BYTES + 4).next_multiple_of(4));
        file.copy_within(first..first + 8, second);
        assert_eq!(streams(&file), None);
    }

    /// Whatever is cut off or changed is refused whole, or read within its bounds.
    #[test]
    fn damage_is_none() {
        let file = double([1; 32], &[("one", b"1"), ("two", b"22")], b"fork");
        (0..file.len()).for_each(|len| assert_eq!(streams(&file[..len]), None, "{len} bytes of {}", file.len()));
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] = 0xff;
            let total: usize = streams(&changed).iter().flatten().map(|(_, data)| data.len()).sum();
            assert!(total <= 2 * file.len() + 60, "byte {at}");
        }
        assert_eq!(streams(b"no such file at all, only a name that looks like one"), None);
    }
}
