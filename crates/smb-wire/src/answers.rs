//! A server's answers, as a client takes them. Every offset and length in one is checked against
//! the message, and data stays where it lies. A `message` begins with its SMB2 header, from which
//! offsets count.

use bytes::Bytes;

use crate::crypto::{Cipher, SigningAlgo};
use crate::error::{ProtoError, ProtoResult};
use crate::header::{SMB2_HEADER_LEN, Smb2Header};
use crate::messages::{Dialect, NegotiateContext, NegotiateResponse, SigningCapabilities};

/// MS-SMB2 2.2.4.
const CAP_LARGE_MTU: u32 = 0x04;
const CAP_ENCRYPTION: u32 = 0x40;
const SIGNING_REQUIRED: u16 = 0x02;
/// MS-FSCC 2.4.17, FileIdBothDirectoryInformation: where its fields are.
const ENTRY_ATTRIBUTES: usize = 56;
const ENTRY_NAME_LENGTH: usize = 60;
const ENTRY_TAG: usize = 64;
const ENTRY_NAME: usize = 104;

const SHORT: ProtoError = ProtoError::Malformed("an answer ends too early");

fn u16_at(bytes: &[u8], at: usize) -> ProtoResult<u16> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u16::from_le_bytes(*word)).ok_or(SHORT)
}

fn u32_at(bytes: &[u8], at: usize) -> ProtoResult<u32> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u32::from_le_bytes(*word)).ok_or(SHORT)
}

fn u64_at(bytes: &[u8], at: usize) -> ProtoResult<u64> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u64::from_le_bytes(*word)).ok_or(SHORT)
}

fn range(message: &[u8], at: usize, len: usize) -> ProtoResult<std::ops::Range<usize>> {
    let range = at..at.checked_add(len).ok_or(SHORT)?;
    if len == 0 {
        return Ok(0..0);
    }
    match at >= SMB2_HEADER_LEN && range.end <= message.len() {
        true => Ok(range),
        false => Err(ProtoError::Malformed("a buffer lies outside of its answer")),
    }
}

/// The messages of a frame (MS-SMB2 3.2.5.1.9).
pub fn split(mut frame: Bytes) -> ProtoResult<Vec<(Smb2Header, Bytes)>> {
    let mut messages = Vec::with_capacity(1);
    loop {
        let header = Smb2Header::parse(&frame)?.0;
        match header.next_command as usize {
            0 => {
                messages.push((header, frame));
                return Ok(messages);
            }
            next if next < SMB2_HEADER_LEN || next % 8 != 0 || next > frame.len() => {
                return Err(ProtoError::Malformed("NextCommand leads nowhere"));
            }
            next => messages.push((header, frame.split_to(next))),
        }
    }
}

/// What a server chose in NEGOTIATE (MS-SMB2 2.2.4).
#[derive(Clone, Debug)]
pub struct Negotiated {
    pub dialect: Dialect,
    pub signing_required: bool,
    /// Requests may pay with several credits.
    pub large_mtu: bool,
    pub read_bytes_max: u32,
    pub write_bytes_max: u32,
    pub cipher: Option<Cipher>,
    pub signing: SigningAlgo,
}

pub fn negotiated(message: &[u8]) -> ProtoResult<Negotiated> {
    let body = message.get(SMB2_HEADER_LEN..).ok_or(SHORT)?;
    let answer = NegotiateResponse::parse(body)?;
    let dialect = match Dialect::from_u16(answer.dialect_revision) {
        None | Some(Dialect::Smb2Wildcard) => {
            return Err(ProtoError::Malformed("it chose a dialect that nobody offered"));
        }
        Some(dialect) => dialect,
    };
    let (mut cipher, mut signing) = match dialect {
        Dialect::Smb300 | Dialect::Smb302 => {
            ((answer.capabilities & CAP_ENCRYPTION != 0).then_some(Cipher::Aes128Ccm), SigningAlgo::AesCmac)
        }
        Dialect::Smb311 => (None, SigningAlgo::AesCmac),
        _ => (None, SigningAlgo::HmacSha256),
    };
    if dialect == Dialect::Smb311 {
        let at = answer.negotiate_context_offset_or_reserved2 as usize;
        let list = message.get(at..).filter(|_| at >= SMB2_HEADER_LEN).ok_or(SHORT)?;
        for context in NegotiateContext::parse_list(list, answer.negotiate_context_count_or_reserved)? {
            // Both have a count of algorithms before them, which is one in an answer.
            match context.context_type {
                NegotiateContext::TYPE_ENCRYPTION => cipher = Cipher::from_id(u16_at(&context.data, 2)?),
                NegotiateContext::TYPE_SIGNING => {
                    signing = match u16_at(&context.data, 2)? {
                        SigningCapabilities::ALGORITHM_HMAC_SHA256 => SigningAlgo::HmacSha256,
                        SigningCapabilities::ALGORITHM_AES_GMAC => SigningAlgo::AesGmac,
                        _ => SigningAlgo::AesCmac,
                    }
                }
                _ => {}
            }
        }
    }
    Ok(Negotiated {
        dialect,
        signing_required: answer.security_mode & SIGNING_REQUIRED != 0,
        large_mtu: answer.capabilities & CAP_LARGE_MTU != 0,
        read_bytes_max: answer.max_read_size,
        write_bytes_max: answer.max_write_size,
        cipher,
        signing,
    })
}

/// SessionFlags and the token of a SESSION_SETUP (MS-SMB2 2.2.6).
pub fn session_setup(message: &[u8]) -> ProtoResult<(u16, &[u8])> {
    let field = |at| u16_at(message, SMB2_HEADER_LEN + at);
    let token = range(message, field(4)?.into(), field(6)?.into())?;
    Ok((field(2)?, &message[token]))
}

/// The data of a READ (MS-SMB2 2.2.20).
pub fn read_data(message: &Bytes) -> ProtoResult<Bytes> {
    let at = usize::from(*message.get(SMB2_HEADER_LEN + 2).ok_or(SHORT)?);
    let len = u32_at(message, SMB2_HEADER_LEN + 4)?;
    Ok(message.slice(range(message, at, len as usize)?))
}

/// The bytes that a WRITE wrote (MS-SMB2 2.2.22).
pub fn written(message: &[u8]) -> ProtoResult<u32> {
    u32_at(message, SMB2_HEADER_LEN + 4)
}

/// The buffer of a QUERY_DIRECTORY or a QUERY_INFO (MS-SMB2 2.2.34, 2.2.38).
pub fn output(message: &[u8]) -> ProtoResult<&[u8]> {
    let (at, len) = (u16_at(message, SMB2_HEADER_LEN + 2)?, u32_at(message, SMB2_HEADER_LEN + 4)?);
    Ok(&message[range(message, at.into(), len as usize)?])
}

/// The bytes that the caller may write, of FileFsFullSizeInformation (MS-FSCC 2.5.4).
pub fn free_bytes(output: &[u8]) -> ProtoResult<u64> {
    let unit = u64::from(u32_at(output, 24)?).saturating_mul(u32_at(output, 28)?.into());
    Ok(u64_at(output, 8)?.saturating_mul(unit))
}

/// One name of a folder; `tag` means something with FILE_ATTRIBUTE_REPARSE_POINT alone.
pub struct Entry {
    pub name: String,
    pub attributes: u32,
    pub tag: u32,
}

/// The entries of FileIdBothDirectoryInformation (MS-FSCC 2.4.17).
pub fn entries(mut output: &[u8]) -> ProtoResult<Vec<Entry>> {
    let mut entries = Vec::new();
    while !output.is_empty() {
        let len = u32_at(output, ENTRY_NAME_LENGTH)? as usize;
        let name = output.get(ENTRY_NAME..).and_then(|rest| rest.get(..len)).ok_or(SHORT)?;
        let units: Vec<u16> = name.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
        entries.push(Entry {
            name: String::from_utf16_lossy(&units),
            attributes: u32_at(output, ENTRY_ATTRIBUTES)?,
            tag: u32_at(output, ENTRY_TAG)?,
        });
        output = match u32_at(output, 0)? as usize {
            0 => break,
            next if next < ENTRY_NAME => return Err(ProtoError::Malformed("NextEntryOffset leads back")),
            next => output.get(next..).ok_or(SHORT)?,
        };
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, next: u32) -> Vec<u8> {
        let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut entry = vec![0; ENTRY_NAME];
        entry[..4].copy_from_slice(&next.to_le_bytes());
        entry[ENTRY_ATTRIBUTES] = 0x10;
        entry[ENTRY_NAME_LENGTH..][..4].copy_from_slice(&(name.len() as u32).to_le_bytes());
        [entry, name].concat()
    }

    #[test]
    fn entries_end_where_they_say_and_lead_only_forward() {
        let mut two = entry("a", 112);
        two.resize(112, 0);
        two.extend(entry("bcd", 0));
        let found = entries(&two).unwrap();
        assert_eq!(found.iter().map(|e| (&e.name[..], e.attributes)).collect::<Vec<_>>(), [("a", 16), ("bcd", 16)]);
        assert!((1..two.len()).filter(|cut| *cut != 112).all(|cut| entries(&two[..cut]).is_err()));
        assert!(entries(&entry("a", 8)).is_err() && entries(&[]).unwrap().is_empty());
    }

    #[test]
    fn data_outside_of_a_message_is_refused() {
        let answer = |at: u8, len: u32| {
            let mut message = vec![0; 100];
            message[66] = at;
            message[68..72].copy_from_slice(&len.to_le_bytes());
            read_data(&Bytes::from(message)).map(|data| data.len())
        };
        assert_eq!((answer(80, 20).ok(), answer(0, 0).ok()), (Some(20), Some(0)));
        assert!(answer(80, 21).is_err() && answer(10, 4).is_err() && answer(255, u32::MAX).is_err());
        assert!(output(&[0; 70]).is_err() && session_setup(&[0; 71]).is_err() && negotiated(&[0; 64]).is_err());
    }

    #[test]
    fn a_frame_splits_into_its_messages() {
        let message = |next| {
            let mut out = Vec::new();
            Smb2Header { next_command: next, ..Smb2Header::default() }.write(&mut out).unwrap();
            out
        };
        let lengths = |frame: Vec<u8>| split(frame.into()).map(|all| all.iter().map(|(_, m)| m.len()).collect());
        let chain = [message(72), vec![0; 8], message(0), vec![0; 3]].concat();
        assert_eq!(lengths(chain).ok(), Some(vec![72, 67]));
        for next in [8, 63, 68, 72, u32::MAX] {
            assert!(lengths(message(next)).is_err(), "{next}");
        }
        // The chain ends where the frame does.
        assert!(lengths(message(64)).is_err());
    }
}
