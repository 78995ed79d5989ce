//! Apple's extension of CREATE, by which macOS learns what a server can do (context AAPL; as Apple's open `smbfs` client sends it,
//! and Samba's and Netatalk's documentation describe it). A Mac that gets an answer keeps a Time Machine disk on the share only if the server
//! says that a flush reaches the disk.

use larder_smb_wire::text::utf16le;

/// What is asked: the only command a client sends outside of a query for one file.
const SERVER_QUERY: u32 = 1;

// What the answer has: a bit mask in request and answer.
const SERVER_CAPABILITIES: u64 = 1;
const VOLUME_CAPABILITIES: u64 = 2;
const MODEL: u64 = 4;

// Volume capabilities, without the one of names whose case matters.
/// F_FULLFSYNC: FLUSH makes durable, whatever lies between.
const FULL_SYNC: u64 = 4;

/// By this name macOS chooses a picture.
const MODEL_NAME: &str = "RackMac";

/// What a client asked for: a bit mask. `None` if it is no server query.
pub(super) fn query(data: &[u8]) -> Option<u64> {
    let data: &[u8; 24] = data.try_into().ok()?;
    let command = u32::from_le_bytes(*data.first_chunk()?);
    let wanted = u64::from_le_bytes(data[8..16].try_into().ok()?);
    (command == SERVER_QUERY).then_some(wanted & (SERVER_CAPABILITIES | VOLUME_CAPABILITIES | MODEL))
}

pub(super) fn answer(wanted: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.extend_from_slice(&SERVER_QUERY.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&wanted.to_le_bytes());
    if wanted & SERVER_CAPABILITIES != 0 {
        // Neither attributes in listings, nor copies of whole files, nor modes in descriptors.
        out.extend_from_slice(&0u64.to_le_bytes());
    }
    if wanted & VOLUME_CAPABILITIES != 0 {
        out.extend_from_slice(&FULL_SYNC.to_le_bytes());
    }
    if wanted & MODEL != 0 {
        let model = utf16le(MODEL_NAME);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(model.len() as u32).to_le_bytes());
        out.extend_from_slice(&model);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_learns_that_a_flush_reaches_the_disk() {
        let mut asked = vec![1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
        asked.extend([0; 8]);
        assert_eq!(query(&asked), Some(7));
        assert_eq!(query(&asked[..23]), None);
        let answer = answer(7);
        assert_eq!(answer[..16], asked[..16]);
        assert_eq!(answer[24..32], FULL_SYNC.to_le_bytes());
        assert_eq!(answer[36..40], 14u32.to_le_bytes());
        assert_eq!(answer.len(), 40 + 14);
        asked[0] = 2;
        assert_eq!(query(&asked), None, "another command");
    }
}
