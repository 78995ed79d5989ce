//! Extended attributes of a file (FileFullEaInformation, MS-FSCC 2.4.16): names of ASCII letters with small values.

use crate::door::handle::FileHandle;
use crate::error::SmbError;
use crate::words::ExtendedAttribute;
use larder_smb_wire::ntstatus;

/// NextEntryOffset, Flags, EaNameLength, EaValueLength.
const HEADER: usize = 8;
/// Attributes of one request, each of which is a change of its own. Windows keeps 64 KiB of them for a file.
const ATTRIBUTES_MAX: usize = 256;

/// The chain that a client sets, or makes a file with. `Err` is the status it fails with.
pub(super) fn parse(buffer: &[u8]) -> Result<Vec<ExtendedAttribute>, u32> {
    let mut found = Vec::new();
    let mut rest = buffer;
    loop {
        let Some((header, body)) = rest.split_first_chunk::<HEADER>() else {
            return Err(ntstatus::STATUS_EA_LIST_INCONSISTENT);
        };
        let next = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let (name_len, value_len) = (usize::from(header[5]), usize::from(u16::from_le_bytes([header[6], header[7]])));
        let name = body.get(..name_len);
        let value = body.get(name_len + 1..name_len + 1 + value_len);
        let (Some(name), Some(0), Some(value)) = (name, body.get(name_len), value) else {
            return Err(ntstatus::STATUS_EA_LIST_INCONSISTENT);
        };
        // Flags are not kept, and clients send what they like in them.
        if !is_valid(name) {
            return Err(ntstatus::STATUS_INVALID_EA_NAME);
        }
        if found.len() == ATTRIBUTES_MAX {
            return Err(ntstatus::STATUS_EA_TOO_LARGE);
        }
        found.push(ExtendedAttribute { name: name.to_vec(), value: value.to_vec() });
        if next == 0 {
            return Ok(found);
        }
        // Forward, past this entry: a chain that goes back would never end.
        if next < HEADER + name_len + 1 + value_len {
            return Err(ntstatus::STATUS_EA_LIST_INCONSISTENT);
        }
        rest = rest.get(next..).ok_or(ntstatus::STATUS_EA_LIST_INCONSISTENT)?;
    }
}

/// MS-FSCC 2.4.16.1: as a file name of ASCII, without wildcards.
fn is_valid(name: &[u8]) -> bool {
    let is_letter = |c: &u8| (0x20..0x7f).contains(c) && !b"\\/:*?\"<>|,+=[];".contains(c);
    !name.is_empty() && name.iter().all(is_letter)
}

/// The chain as a client reads it. Attributes that do not fit its form are left out.
pub(super) fn encode(attributes: &[ExtendedAttribute]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut last = None;
    for ExtendedAttribute { name, value } in attributes {
        let (Ok(name_len), Ok(value_len)) = (u8::try_from(name.len()), u16::try_from(value.len())) else { continue };
        if !is_valid(name) {
            continue;
        }
        if let Some(last) = last {
            out.resize(out.len().next_multiple_of(4), 0);
            let next = (out.len() - last) as u32;
            out[last..last + 4].copy_from_slice(&next.to_le_bytes());
        }
        last = Some(out.len());
        out.extend_from_slice(&[0, 0, 0, 0, 0, name_len]);
        out.extend_from_slice(&value_len.to_le_bytes());
        out.extend_from_slice(name);
        out.push(0);
        out.extend_from_slice(value);
    }
    out
}

/// FileFullEaInformation of a file: STATUS_NO_EAS_ON_FILE if it has none (MS-FSA 2.1.5.12.15).
pub(super) async fn query(handle: &FileHandle) -> Result<Vec<u8>, u32> {
    match handle.extended_attributes().await {
        Ok(attributes) => match encode(&attributes) {
            none if none.is_empty() => Err(ntstatus::STATUS_NO_EAS_ON_FILE),
            chain => Ok(chain),
        },
        Err(SmbError::NotSupported) => Err(ntstatus::STATUS_NO_EAS_ON_FILE),
        Err(error) => Err(error.to_nt_status()),
    }
}

/// The size of that, which FileEaInformation and others tell; 0 if there are none.
pub(super) async fn size(handle: &FileHandle) -> u32 {
    let chain = handle.extended_attributes().await.map(|attributes| encode(&attributes));
    chain.ok().and_then(|chain| u32::try_from(chain.len()).ok()).unwrap_or(0)
}

/// Sets each; one without a value is removed (MS-FSA 2.1.5.15.6).
pub(super) async fn set(handle: &FileHandle, attributes: Vec<ExtendedAttribute>) -> Result<(), u32> {
    for attribute in attributes {
        match handle.set_extended_attribute(attribute).await {
            Ok(()) => {}
            Err(SmbError::NotSupported) => return Err(ntstatus::STATUS_EAS_NOT_SUPPORTED),
            Err(error) => return Err(error.to_nt_status()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(name: &str, value: &[u8]) -> ExtendedAttribute {
        ExtendedAttribute { name: name.as_bytes().to_vec(), value: value.to_vec() }
    }

    #[test]
    fn chains_there_and_back() {
        let all = [attribute("COMMENT", b"a picture"), attribute("E", b""), attribute("with space", &[7; 300])];
        let chain = encode(&all);
        assert_eq!(parse(&chain).unwrap(), all);
        assert_eq!(chain[..4], 28u32.to_le_bytes(), "aligned to four bytes");
        assert!(encode(&[attribute("bad:name", b"x"), attribute(&"n".repeat(256), b"x")]).is_empty());
    }

    #[test]
    fn chains_that_contradict_themselves_are_refused() {
        let good = encode(&[attribute("A", b"12"), attribute("B", b"34")]);
        for cut in 0..good.len() {
            assert!(parse(&good[..cut]).is_err() || cut == good.len(), "{cut}");
        }
        for (at, byte) in [(0, 3), (0, 255), (5, 200), (6, 200), (9, b'x'), (8, b'*')] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(parse(&bad).is_err(), "{at} {byte}");
        }
        assert!(parse(&[]).is_err());
        let chain = |count: usize| encode(&vec![attribute("A", b"1"); count]);
        assert_eq!(parse(&chain(ATTRIBUTES_MAX)).unwrap().len(), ATTRIBUTES_MAX);
        assert_eq!(parse(&chain(ATTRIBUTES_MAX + 1)), Err(ntstatus::STATUS_EA_TOO_LARGE));
    }
}
