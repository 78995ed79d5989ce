//! FSCTL_SRV_ENUMERATE_SNAPSHOTS (MS-SMB2 3.3.5.15.1).

use larder_smb_wire::moment::{LABEL_LEN, Moment};
use larder_smb_wire::text::utf16le;

/// NumberOfSnapShots, NumberOfSnapShotsReturned, SnapShotArraySize.
const HEADER_BYTES: usize = 12;
/// Clients take a shorter answer for a broken one.
const ANSWER_BYTES_MIN: usize = 16;
/// A moment in UTF-16 with its NUL.
const ENTRY_BYTES: usize = 2 * (LABEL_LEN + 1);

/// SRV_SNAPSHOT_ARRAY (MS-SMB2 2.2.32.2): all `moments`, or only their count and size where they do not fit `room` bytes. `None`:
/// there is not even room for these.
pub(super) fn array(moments: &[Moment], room: usize) -> Option<Vec<u8>> {
    if room < ANSWER_BYTES_MIN {
        return None;
    }
    // The array ends with a NUL of its own.
    let array_bytes = if moments.is_empty() { 0 } else { moments.len() * ENTRY_BYTES + 2 };
    let fits = HEADER_BYTES + array_bytes <= room;
    let returned = if fits { moments } else { &[] };
    let answer_bytes = if fits { ANSWER_BYTES_MIN.max(HEADER_BYTES + array_bytes) } else { ANSWER_BYTES_MIN };
    let mut out = Vec::with_capacity(answer_bytes);
    for count in [moments.len(), returned.len(), array_bytes] {
        out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
    }
    for moment in returned {
        out.extend_from_slice(&utf16le(&moment.label()));
        out.extend_from_slice(&[0; 2]);
    }
    out.resize(answer_bytes, 0);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(count: i64) -> Vec<Moment> {
        (0..count).rev().map(|second| Moment::new(second).unwrap()).collect()
    }

    fn counts(answer: &[u8]) -> Vec<u32> {
        answer[..12].chunks(4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap())).collect()
    }

    #[test]
    fn an_empty_list_has_sixteen_bytes() {
        assert_eq!(array(&[], 15), None);
        for room in [16, 4096] {
            assert_eq!(array(&[], room).unwrap(), [0; 16], "{room}");
        }
    }

    #[test]
    fn a_list_that_does_not_fit_is_counted() {
        for (count, room, returned) in
            [(1, 16, 0), (1, 63, 0), (1, 64, 1), (2, 113, 0), (2, 114, 2), (1000, 65_536, 1000)]
        {
            let answer = array(&moments(i64::from(count)), room).unwrap();
            assert_eq!(counts(&answer), [count, returned, count * 50 + 2], "{count} in {room}");
            assert!(answer.len() <= room);
            assert_eq!(answer.len(), if returned == 0 { 16 } else { 12 + 50 * returned as usize + 2 });
        }
        assert_eq!(array(&moments(1), 15), None);
    }

    #[test]
    fn the_bytes_of_one() {
        let answer = array(&moments(1), 100).unwrap();
        let text: Vec<u16> = answer[12..].chunks(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
        assert_eq!(String::from_utf16(&text).unwrap(), "@GMT-1970.01.01-00.00.00\0\0");
    }
}
