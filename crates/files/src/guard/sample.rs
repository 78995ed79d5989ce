//! A look at a few bytes of a file: whether they have a form that a program could read, or could be anything, as encrypted
//! bytes could.
//!
//! Two random bytes are equal once in 256 times. The figure here is how much more often bytes of the sample are (their index of
//! coincidence): 1 for encrypted and compressed bytes, 5 to 20 for text, more for tables and programs. Compressed files of all kinds
//! begin with bytes that name the kind, which tells them from encrypted ones.

use bytes::Bytes;

/// Bytes of a file that are looked at: one block of most ciphers' programs, and less than a microsecond.
pub(crate) const SAMPLE_BYTES: usize = 1024;
/// Fewer say nothing.
const SAMPLE_BYTES_MIN: usize = 64;
/// The figure of random bytes is below 1 + `NOISE` / bytes but for one sample in 10^5, and `MARGIN` is for headers that encrypting
/// programs add.
const NOISE: f64 = 100.0;
const MARGIN: f64 = 0.1;
/// The figure of bytes with a form is beyond that, and beyond twice the limit of random ones.
const FORM: f64 = 1.6;

/// How files begin that programs read, by kind. Where a kind begins with a length, its name is at the place that is given.
const KINDS: &[(usize, &[u8])] = &[
    (0, b"\xff\xd8\xff"),
    (0, b"\x89PNG"),
    (0, b"GIF8"),
    (0, b"II*\0"),
    (0, b"MM\0*"),
    (0, b"II+\0"),
    (0, b"IIU\0"),
    (0, b"FUJIFILM"),
    (0, b"RIFF"),
    (4, b"ftyp"),
    (4, b"moov"),
    (4, b"mdat"),
    (4, b"wide"),
    (0, b"\x1a\x45\xdf\xa3"),
    (0, b"\x00\x00\x01\xba"),
    (0, b"OggS"),
    (0, b"fLaC"),
    (0, b"ID3"),
    (0, b"\xff\xfb"),
    (0, b"\xff\xf3"),
    (0, b"\xff\xf1"),
    (0, b"%PDF"),
    (0, b"PK\x03\x04"),
    (0, b"\xd0\xcf\x11\xe0"),
    (0, b"\x1f\x8b"),
    (0, b"BZh"),
    (0, b"\xfd7zXZ"),
    (0, b"7z\xbc\xaf"),
    (0, b"\x28\xb5\x2f\xfd"),
    (0, b"\x04\x22\x4d\x18"),
    (0, b"Rar!"),
    (0, b"PACK"),
    (0, b"\xfftOc"),
    (0, b"BORG_SEG"),
    (0, b"LUKS"),
    (0, b"SQLite"),
    (0, b"\x7fELF"),
    (0, b"MZ"),
    (0, b"\xca\xfe\xba\xbe"),
    (0, b"\xcf\xfa\xed\xfe"),
    (0, b"wOF2"),
];

/// What a sample looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Zeros alone, or nothing: to write over it loses nothing.
    Empty,
    /// Bytes as random as encrypted ones.
    Formless,
    /// A program can read it.
    Formed,
    /// Too short or in between.
    Unclear,
}

/// Of bytes that lie at `offset` of their file.
pub(crate) fn look(bytes: &[u8], offset: u64) -> Look {
    let bytes = bytes.get(..SAMPLE_BYTES).unwrap_or(bytes);
    if bytes.iter().all(|byte| *byte == 0) {
        return Look::Empty;
    }
    let is_kind = |(at, name): &(usize, &[u8])| bytes.get(*at..).is_some_and(|rest| rest.starts_with(name));
    if offset == 0 && KINDS.iter().any(is_kind) {
        return Look::Formed;
    }
    if bytes.len() < SAMPLE_BYTES_MIN {
        return Look::Unclear;
    }
    let mut counts = [0_u32; 256];
    for byte in bytes {
        counts[usize::from(*byte)] += 1;
    }
    let equal_pairs: u32 = counts.iter().map(|count| count * count.saturating_sub(1)).sum();
    let len = bytes.len() as f64;
    let coincidence = f64::from(equal_pairs) * 256.0 / (len * (len - 1.0));
    let random = 1.0 + MARGIN + NOISE / len;
    match coincidence {
        value if value <= random => Look::Formless,
        value if value >= FORM.max(2.0 * random) => Look::Formed,
        _ => Look::Unclear,
    }
}

/// Of data that a client sends, without copying it together where the first piece is enough.
pub(crate) fn look_at(data: &[Bytes], offset: u64) -> Look {
    match data {
        [] => Look::Empty,
        [first, ..] if first.len() >= SAMPLE_BYTES || data.len() == 1 => look(first, offset),
        pieces => {
            let mut sample = [0; SAMPLE_BYTES];
            let mut len = 0;
            for piece in pieces {
                let room = &mut sample[len..];
                let taken = piece.len().min(room.len());
                room[..taken].copy_from_slice(&piece[..taken]);
                len += taken;
            }
            look(&sample[..len], offset)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that pass for encrypted ones.
    fn random(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ (mixed >> 31)) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn random_bytes_have_no_form_and_others_have() {
        for len in [64, 100, 256, 1024, 5000] {
            let formless = (0..2000).filter(|seed| look(&random(*seed, len), 4096) == Look::Formless).count();
            assert!(formless >= 1995, "{formless} of 2000 samples of {len} bytes");
            let text: Vec<u8> = b"In the beginning was the file, and the file was with the owner. ".repeat(80);
            assert_eq!(look(&text[..len], 0), Look::Formed, "text of {len} bytes");
            assert_eq!(look(&vec![0; len], 0), Look::Empty);
        }
        let numbers: Vec<u8> = (0..256_u32).flat_map(|n| (n * 77).to_le_bytes()).collect();
        assert_eq!(look(&numbers, 0), Look::Formed);
        assert_eq!(look(b"short", 0), Look::Unclear);
        assert_eq!(look(b"", 0), Look::Empty);
    }

    #[test]
    fn a_compressed_file_is_known_by_its_beginning() {
        let photo = [b"\xff\xd8\xff\xe1".as_slice(), &random(1, 2000)].concat();
        assert_eq!((look(&photo, 0), look(&photo, 4096)), (Look::Formed, Look::Formless));
        let film = [b"\0\0\0\x20ftypisom".as_slice(), &random(2, 2000)].concat();
        assert_eq!(look(&film, 0), Look::Formed);
        let ransom = [b"WANACRY!\0\x01\0\0".as_slice(), &random(3, 2000)].concat();
        assert_eq!(look(&ransom, 0), Look::Formless, "a name that nothing reads");
    }

    #[test]
    fn pieces_are_one_sample() {
        let bytes = random(5, 900);
        let pieces: Vec<Bytes> = bytes.chunks(100).map(Bytes::copy_from_slice).collect();
        assert_eq!(look_at(&pieces, 0), look(&bytes, 0));
        assert_eq!(look_at(&[], 0), Look::Empty);
    }
}
