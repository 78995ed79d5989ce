#![allow(clippy::unwrap_used)]
use super::*;
use crate::meta::Ticket;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn sample() -> InodeCore {
    let t = |secs| Timestamp::new(secs, 5);
    let attr = Attr {
        id: FileId { ino: Ino(7), generation: 0x0102 },
        kind: FileKind::Symlink,
        mode: 0o1755,
        nlink: 2,
        uid: 1000,
        gid: 100,
        size: 3,
        allocated: 0,
        rdev: (8, 1),
        atime: t(-1),
        mtime: t(2),
        ctime: t(3),
        btime: t(4),
        change: 9,
        dos: 0x20,
    };
    InodeCore {
        attr,
        attr_dirty: false,
        size_stored: None,
        has_unstable: false,
        stored_bytes: 0,
        has_reserved: false,
        recorded: None,
        acl: None,
        ticket: Ticket(0),
        gone: false,
        parent: Ino(1),
        verifier: Some(*b"verifier"),
        next_cookie: 3,
        entries: 0,
        negative_names: None,
        xattrs: 1,
        xattr_bytes: 0,
        target: Bytes::from_static(b"abc"),
    }
}

#[test]
fn golden_keys() {
    let check = |key: Bytes, golden: &str| assert_eq!(hex(&key), golden);
    check(inode_key(Ino(1)), "490000000000000001");
    check(entry_key(Ino(2), b"ab"), "4400000000000000026162");
    check(cookie_key(Ino(2), 3), "4300000000000000020000000000000003");
    check(folded_key(Ino(2), b"ab", b"aB"), "4600000000000000026162006142");
    check(xattr_key(Ino(3), b"user.a"), "580000000000000003757365722e61");
    check(orphan_key(Ino(4)), "4f0000000000000004");
}

#[test]
fn golden_values() {
    let check = |value: Bytes, golden: &str| assert_eq!(hex(&value), golden);
    check(encode_inode(Ino(7), &sample()).1, GOLDEN_INODE);
    let core = InodeCore { xattr_bytes: 0x0102, ..sample() };
    check(
        encode_inode(Ino(7), &core).1,
        &GOLDEN_INODE.replace("00000001000000000000000076", "00000001000000000000010276"),
    );
    check(encode_entry(Entry { ino: Ino(7), kind: FileKind::File, cookie: 4 }), "010100000000000000070000000000000004");
    check(encode_cookie(Ino(7), FileKind::Directory, b"d"), "0102000000000000000764");
    check(encode_xattr(b"v"), "0176");
    check(encode_next_ino(256), "010000000000000100");
    check(encode_block(0x0102_0304), "0101020304");
    let usage = Usage { inodes: 1, logical_bytes: 2, stored_bytes: -1, reserved_bytes: 0 };
    check(encode_usage(usage), "0100000000000000010000000000000002ffffffffffffffff");
    let usage = Usage { reserved_bytes: 0x30, ..usage };
    check(encode_usage(usage), "0100000000000000010000000000000002ffffffffffffffff0000000000000030");
    let superblock = Superblock { id: uuid::Uuid::from_u128(1), created: Timestamp::new(1, 2) };
    check(encode_superblock(superblock), "014c4152444552564f00000000000000000000000000000001000000000000000100000002");
}

const GOLDEN_INODE: &str = concat!(
    "01030103ed",
    "0000000000000102",
    "00000002",
    "000003e8",
    "00000064",
    "0000000000000003",
    "0000000000000000",
    "0000000800000001",
    "ffffffffffffffff00000005",
    "000000000000000200000005",
    "000000000000000300000005",
    "000000000000000400000005",
    "0000000000000009",
    "00000020",
    "0000000000000001",
    "0000000000000003",
    "0000000000000000",
    "00000001",
    "0000000000000000",
    "7665726966696572",
    "0003616263"
);

#[test]
fn records_round_trip_and_damage_is_named() {
    let (key, value) = encode_inode(Ino(7), &sample());
    let core = decode_inode(Ino(7), &value).unwrap();
    assert_eq!(encode_inode(Ino(7), &core), (key, value.clone()));
    for len in 0..value.len() {
        let error = decode_inode(Ino(7), &value[..len]).err().unwrap().to_string();
        assert!(error.contains("I/0000000000000007"), "{error}");
    }
    for (bytes, is_sound) in [(0, true), (77, true), (1 << 33, true), ((1 << 33) + 1, false), (u64::MAX, false)] {
        let (_, value) = encode_inode(Ino(7), &InodeCore { xattr_bytes: bytes, ..sample() });
        let found = decode_inode(Ino(7), &value).map(|core| core.xattr_bytes).ok();
        assert_eq!(found, is_sound.then_some(bytes));
    }
    let mut longer = value.to_vec();
    longer.push(0);
    assert!(decode_inode(Ino(7), &longer).is_err());
    let entry = Entry { ino: Ino(u64::MAX), kind: FileKind::Fifo, cookie: 77 };
    assert_eq!(decode_entry(b"D", &encode_entry(entry)).unwrap(), entry);
    assert!(decode_entry(b"D", &[2; 18]).is_err());
    assert!(decode_cookie(&cookie_key(Ino(1), 4), &encode_cookie(Ino(1), FileKind::File, b"")).is_err());
    assert_eq!(decode_xattr(b"X", &encode_xattr(b"")).unwrap(), Bytes::new());
    for reserved_bytes in [0, 7, -7] {
        let usage = Usage { inodes: 5, logical_bytes: 1, stored_bytes: 0, reserved_bytes };
        assert_eq!(decode_usage(&encode_usage(usage)).unwrap(), usage);
    }
}

#[test]
fn ranges_hold_exactly_their_keys() {
    let (from, to) = range_of(tag::ENTRY, Ino(255));
    assert!(from <= entry_key(Ino(255), b"a") && entry_key(Ino(255), &[0xFF; 255]) < to);
    assert!(entry_key(Ino(256), b"a") >= to);
    let (_, to) = range_of(tag::ENTRY, Ino(u64::MAX));
    assert!(entry_key(Ino(u64::MAX), &[0xFF; 20]) < to && to <= Bytes::from_static(b"E"));
}
