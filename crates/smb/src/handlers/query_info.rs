//! QUERY_INFO handler (MS-SMB2 3.3.5.20).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_smb_wire::header::Smb2Header;
use larder_smb_wire::messages::{Dialect, InfoType, QueryInfoRequest, QueryInfoResponse};

use crate::conn::state::{Connection, Open};
use crate::door::handle::ALLOCATION_BYTES;
use crate::door::view::VisitedShare;
use crate::error::SmbError;
use crate::handlers::extended;
use crate::handlers::response::{Answered, HandlerResponse};
use crate::handlers::shared::{RequestTree, lookup_open, note_channel};
use crate::share::ShareBindings;
use larder_smb_wire::access_mask::READ_CONTROL;
use larder_smb_wire::file_info::StreamInfo;
use larder_smb_wire::info_class as ic;
use larder_smb_wire::ntstatus;
use larder_smb_wire::security::Parts;

/// Bytes of a sector, as disks have them that no program is surprised by.
const SECTOR_BYTES: u32 = 512;
const SECTORS_PER_UNIT: u32 = ALLOCATION_BYTES as u32 / SECTOR_BYTES;
/// The longest name, in characters.
const NAME_LETTERS_MAX: u32 = 255;

const FILE_DEVICE_DISK: u32 = 0x0000_0007;
const FILE_REMOTE_DEVICE: u32 = 0x0000_0010;

// FS attribute flags (MS-FSCC §2.5.1)
const FILE_CASE_PRESERVED_NAMES: u32 = 0x0000_0002;
const FILE_UNICODE_ON_DISK: u32 = 0x0000_0004;
const FILE_SUPPORTS_BLOCK_REFCOUNTING: u32 = 0x0800_0000;
const FILE_SUPPORTS_SPARSE_FILES: u32 = 0x0000_0040;
const FILE_NAMED_STREAMS: u32 = 0x0004_0000;

// Access mask bits (MS-SMB2 2.2.13.1.1)
const FILE_READ_EA: u32 = 0x0000_0008;
const FILE_READ_ATTRIBUTES: u32 = 0x0000_0080;

/// How a reply longer than OutputBufferLength is cut down.
#[derive(Clone, Copy)]
enum Overflow {
    /// Fixed size: the minimum length is the whole reply.
    Never,
    /// The trailing name is cut to fit, with STATUS_BUFFER_OVERFLOW.
    Truncate,
    /// Only whole entries are returned, with STATUS_BUFFER_OVERFLOW.
    WholeEntries,
}

pub async fn handle(conn: &Arc<Connection>, hdr: &Smb2Header, tree: &RequestTree, body: &[u8]) -> Answered {
    let req = QueryInfoRequest::parse(body).map_err(|_| ntstatus::STATUS_INVALID_PARAMETER)?;
    let info_type = req.info_type_enum().ok_or(ntstatus::STATUS_INVALID_INFO_CLASS)?;
    let tree = tree.as_ref().map_err(|status| *status)?;
    let open_arc = lookup_open(tree, req.file_id).ok_or(ntstatus::STATUS_FILE_CLOSED)?;
    // NEGOTIATE advertises MaxTransactSize equal to MaxReadSize.
    if req.output_buffer_length > conn.max_read_size {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let smb311 = conn.negotiated.dialect() == Some(Dialect::Smb311);
    let cap = req.output_buffer_length as usize;

    let open = open_arc.read().await;
    note_channel(conn, hdr, &open);
    let result = match info_type {
        // MS-SMB2 3.3.5.20.1.
        InfoType::File if !smb311 && req.file_information_class == ic::FILE_NORMALIZED_NAME_INFORMATION => {
            Err(ntstatus::STATUS_NOT_SUPPORTED)
        }
        InfoType::File => query_file(&open, req.file_information_class, cap).await,
        InfoType::FileSystem => match tree.view() {
            Ok(view) => query_filesystem(&open, &tree.share, view, req.file_information_class, cap).await,
            Err(status) => Err(status),
        },
        InfoType::Security => {
            let descriptor = query_security(&open, Parts(req.additional_information)).await?;
            return Ok(match descriptor.len() > cap {
                true => buffer_too_small(descriptor.len(), smb311),
                false => answer(descriptor),
            });
        }
        InfoType::Quota => Err(ntstatus::STATUS_NOT_SUPPORTED),
    };
    drop(open);
    let (mut buf, overflow) = match result {
        Ok(reply) => reply,
        Err(ntstatus::STATUS_INFO_LENGTH_MISMATCH) => return Ok(info_length_mismatch(smb311)),
        Err(status) => return Err(status),
    };

    let mut status = ntstatus::STATUS_SUCCESS;
    if buf.len() > cap {
        match overflow {
            Overflow::Never => return Ok(info_length_mismatch(smb311)),
            Overflow::Truncate => buf.truncate(cap),
            Overflow::WholeEntries => ic::keep_whole_entries(&mut buf, cap),
        }
        status = ntstatus::STATUS_BUFFER_OVERFLOW;
    }

    let mut response = answer(buf);
    response.status = status;
    Ok(response)
}

fn answer(buffer: Vec<u8>) -> HandlerResponse {
    let resp = QueryInfoResponse {
        structure_size: 9,
        output_buffer_offset: 64 + 8,
        output_buffer_length: buffer.len() as u32,
        buffer,
    };
    let mut out = Vec::new();
    resp.write_to(&mut out).expect("QUERY_INFO response encodes");
    HandlerResponse::ok(out)
}

/// SMB2_0_INFO_SECURITY (MS-SMB2 3.3.5.20.3, MS-FSA 2.1.5.14): the `parts`
/// of the descriptor, whatever the size of the client's buffer. There are no
/// SACLs, and no right to read one is ever granted.
async fn query_security(open: &Open, parts: Parts) -> Result<Vec<u8>, u32> {
    let readable = Parts::OWNER | Parts::GROUP | Parts::DACL;
    if parts.has(Parts::SACL) || (parts.has(readable) && open.granted_access & READ_CONTROL == 0) {
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    }
    let handle = open.handle.as_ref().ok_or(ntstatus::STATUS_FILE_CLOSED)?;
    match handle.security().await {
        Ok(descriptor) => Ok(descriptor.encode(parts)),
        Err(SmbError::NotSupported) => Err(ntstatus::STATUS_INVALID_DEVICE_REQUEST),
        Err(e) => Err(e.to_nt_status()),
    }
}

/// STATUS_BUFFER_TOO_SMALL with the size that is needed as error data
/// (MS-SMB2 3.3.5.20.3, 2.2.2), on SMB 3.1.1 in an error context.
fn buffer_too_small(needed: usize, smb311: bool) -> HandlerResponse {
    let mut response = HandlerResponse::err(ntstatus::STATUS_BUFFER_TOO_SMALL);
    let needed = (needed as u32).to_le_bytes();
    // StructureSize, ErrorContextCount, Reserved, ByteCount.
    let mut body = 9u16.to_le_bytes().to_vec();
    body.push(u8::from(smb311));
    body.push(0);
    if smb311 {
        // ErrorDataLength 4 and ErrorId 0 before the data.
        body.extend_from_slice(&12u32.to_le_bytes());
        body.extend_from_slice(&4u32.to_le_bytes());
        body.extend_from_slice(&[0; 4]);
    } else {
        body.extend_from_slice(&4u32.to_le_bytes());
    }
    body.extend_from_slice(&needed);
    response.body = body;
    response
}

/// STATUS_INFO_LENGTH_MISMATCH with the error data of MS-SMB2 3.3.5.20.1:
/// on SMB 3.1.1 one empty error context, otherwise none.
pub(super) fn info_length_mismatch(smb311: bool) -> HandlerResponse {
    let mut response = HandlerResponse::err(ntstatus::STATUS_INFO_LENGTH_MISMATCH);
    if smb311 {
        // StructureSize, ErrorContextCount, Reserved, ByteCount, then an
        // ERROR Context with ErrorDataLength 0 and ErrorId 0.
        let mut body = Vec::with_capacity(16);
        body.extend_from_slice(&9u16.to_le_bytes());
        body.push(1);
        body.push(0);
        body.extend_from_slice(&8u32.to_le_bytes());
        body.extend_from_slice(&[0; 8]);
        response.body = body;
    }
    response
}

/// A reply and how to cut it down when it is longer than OutputBufferLength.
type Reply = Result<(Vec<u8>, Overflow), u32>;

/// What a class of a file needs: bytes of room, what to do beyond it, and rights.
fn terms(class: u8) -> Result<(usize, Overflow, u32), u32> {
    Ok(match class {
        ic::FILE_BASIC_INFORMATION => (40, Overflow::Never, FILE_READ_ATTRIBUTES),
        ic::FILE_STANDARD_INFORMATION => (24, Overflow::Never, 0),
        ic::FILE_INTERNAL_INFORMATION => (8, Overflow::Never, 0),
        ic::FILE_EA_INFORMATION => (4, Overflow::Never, 0),
        ic::FILE_ACCESS_INFORMATION => (4, Overflow::Never, 0),
        ic::FILE_POSITION_INFORMATION => (8, Overflow::Never, 0),
        ic::FILE_MODE_INFORMATION => (4, Overflow::Never, 0),
        ic::FILE_ALIGNMENT_INFORMATION => (4, Overflow::Never, 0),
        // BlockAlign(FieldOffset(NameInformation.FileName) + 2, 8).
        ic::FILE_ALL_INFORMATION => (104, Overflow::Truncate, FILE_READ_ATTRIBUTES),
        ic::FILE_NETWORK_OPEN_INFORMATION => (56, Overflow::Never, FILE_READ_ATTRIBUTES),
        ic::FILE_STREAM_INFORMATION => (24, Overflow::WholeEntries, 0),
        ic::FILE_FULL_EA_INFORMATION => (0, Overflow::WholeEntries, FILE_READ_EA),
        ic::FILE_ALTERNATE_NAME_INFORMATION => (8, Overflow::Truncate, 0),
        ic::FILE_NORMALIZED_NAME_INFORMATION => (8, Overflow::Truncate, 0),
        ic::FILE_COMPRESSION_INFORMATION => (16, Overflow::Never, 0),
        ic::FILE_ATTRIBUTE_TAG_INFORMATION => (8, Overflow::Never, FILE_READ_ATTRIBUTES),
        // MS-FSA 2.1.5.12.19: not available to remote clients.
        ic::FILE_NAME_INFORMATION => return Err(ntstatus::STATUS_NOT_SUPPORTED),
        c if is_file_class(c) => return Err(ntstatus::STATUS_NOT_SUPPORTED),
        _ => return Err(ntstatus::STATUS_INVALID_INFO_CLASS),
    })
}

/// SMB2_0_INFO_FILE (MS-SMB2 3.3.5.20.1) for an OutputBufferLength of `cap`.
async fn query_file(open: &Open, class: u8, cap: usize) -> Reply {
    let (min_len, overflow, access) = terms(class)?;
    if open.granted_access & access != access {
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    }
    if cap < min_len {
        return Err(ntstatus::STATUS_INFO_LENGTH_MISMATCH);
    }
    let handle = open.handle.as_ref().ok_or(ntstatus::STATUS_FILE_CLOSED)?;
    let info = handle.stat().await?;
    let position = open.position.load(Ordering::Relaxed);
    let buf = match class {
        ic::FILE_BASIC_INFORMATION => ic::encode_file_basic_information(&info),
        ic::FILE_STANDARD_INFORMATION | ic::FILE_ALL_INFORMATION => {
            let links = handle.link_count().await?;
            // One that somebody else has removed lasts as long as its opens.
            let delete_pending = open.delete_pending() || links == 0;
            if class == ic::FILE_STANDARD_INFORMATION {
                ic::encode_file_standard_information(&info, links, delete_pending)
            } else {
                let path = open.path().await.unwrap_or_else(|_| handle.name().opened_as().clone());
                ic::encode_file_all_information(
                    &info,
                    open.granted_access,
                    links,
                    delete_pending,
                    position,
                    extended::size(handle.as_ref()).await,
                    &format!("\\{path}"),
                )
            }
        }
        ic::FILE_INTERNAL_INFORMATION => info.file_index.to_le_bytes().to_vec(),
        ic::FILE_EA_INFORMATION => extended::size(handle.as_ref()).await.to_le_bytes().to_vec(),
        ic::FILE_ACCESS_INFORMATION => open.granted_access.to_le_bytes().to_vec(),
        ic::FILE_POSITION_INFORMATION => position.to_le_bytes().to_vec(),
        ic::FILE_MODE_INFORMATION => ic::NO_MODE.to_le_bytes().to_vec(),
        ic::FILE_ALIGNMENT_INFORMATION => ic::FILE_BYTE_ALIGNMENT.to_le_bytes().to_vec(),
        ic::FILE_NETWORK_OPEN_INFORMATION => ic::encode_file_network_open_information(&info),
        ic::FILE_STREAM_INFORMATION => {
            let streams = match handle.streams().await {
                Err(SmbError::NotSupported) if info.is_directory => Vec::new(),
                Err(SmbError::NotSupported) => vec![StreamInfo {
                    name: String::new(),
                    size: info.end_of_file,
                    allocation_size: info.allocation_size,
                }],
                streams => streams?,
            };
            ic::encode_file_stream_information(&streams)
        }
        // The name as it is, without a backslash first (MS-FSCC 2.4.36).
        ic::FILE_NORMALIZED_NAME_INFORMATION => {
            let path = open.path().await?;
            ic::encode_file_name_information(&path.display_backslash())
        }
        ic::FILE_COMPRESSION_INFORMATION => ic::encode_file_compression_information(&info),
        ic::FILE_ATTRIBUTE_TAG_INFORMATION => ic::encode_file_attribute_tag_information(&info),
        ic::FILE_FULL_EA_INFORMATION => extended::query(handle.as_ref()).await?,
        // MS-FSA 2.1.5.12.4. Files here have no 8.3 short name; the name
        // itself is one that opens the file. (`smbclient`'s allinfo gives
        // up on a file without an answer.)
        ic::FILE_ALTERNATE_NAME_INFORMATION => {
            let path = open.path().await.unwrap_or_else(|_| handle.name().opened_as().clone());
            ic::encode_file_name_information(path.file_name().unwrap_or_default())
        }
        _ => unreachable!("class checked above"),
    };
    Ok((buf, overflow))
}

/// SMB2_0_INFO_FILESYSTEM (MS-SMB2 3.3.5.20.2) for an OutputBufferLength
/// of `cap`. The room is the user's: `view` is the share as the user sees it.
async fn query_filesystem(open: &Open, share: &ShareBindings, view: &VisitedShare, class: u8, cap: usize) -> Reply {
    let (min_len, overflow) = match class {
        // BlockAlign(FieldOffset(VolumeLabel), 8).
        ic::FS_VOLUME_INFORMATION => (24, Overflow::Truncate),
        ic::FS_SIZE_INFORMATION => (24, Overflow::Never),
        ic::FS_DEVICE_INFORMATION => (8, Overflow::Never),
        // The size of the structure in C, which has room for two letters.
        ic::FS_ATTRIBUTE_INFORMATION => (16, Overflow::Truncate),
        ic::FS_CONTROL_INFORMATION => (48, Overflow::Never),
        ic::FS_OBJECT_ID_INFORMATION => (64, Overflow::Never),
        ic::FS_FULL_SIZE_INFORMATION => (32, Overflow::Never),
        ic::FS_SECTOR_SIZE_INFORMATION => (28, Overflow::Never),
        // FileFsLabelInformation, FileFsDriverPathInformation and
        // FileFsVolumeFlagsInformation.
        2 | 9 | 10 => return Err(ntstatus::STATUS_NOT_SUPPORTED),
        _ => return Err(ntstatus::STATUS_INVALID_INFO_CLASS),
    };
    if cap < min_len {
        return Err(ntstatus::STATUS_INFO_LENGTH_MISMATCH);
    }
    if class == ic::FS_DEVICE_INFORMATION {
        let buf = ic::encode_fs_device_information(FILE_DEVICE_DISK, FILE_REMOTE_DEVICE);
        return Ok((buf, overflow));
    }
    if class == ic::FS_CONTROL_INFORMATION {
        return Ok((ic::encode_fs_control_information(), overflow));
    }
    let volume = view.volume_info();
    let buf = match class {
        ic::FS_VOLUME_INFORMATION => {
            let handle = open.handle.as_ref().ok_or(ntstatus::STATUS_FILE_CLOSED)?;
            let creation_time = handle.stat().await.map_or(0, |i| i.creation_time);
            ic::encode_fs_volume_information(creation_time, volume.serial_number, &share.name)
        }
        ic::FS_SIZE_INFORMATION => ic::encode_fs_size_information(
            volume.total_allocation_units,
            volume.caller_available_allocation_units,
            SECTORS_PER_UNIT,
            SECTOR_BYTES,
        ),
        ic::FS_ATTRIBUTE_INFORMATION => {
            let mut attributes = FILE_CASE_PRESERVED_NAMES | FILE_UNICODE_ON_DISK | FILE_SUPPORTS_SPARSE_FILES;
            if view.shares_extents() {
                attributes |= FILE_SUPPORTS_BLOCK_REFCOUNTING;
            }
            if view.keeps_streams() {
                attributes |= FILE_NAMED_STREAMS;
            }
            ic::encode_fs_attribute_information(attributes, NAME_LETTERS_MAX, "NTFS")
        }
        ic::FS_FULL_SIZE_INFORMATION => ic::encode_fs_full_size_information(
            volume.total_allocation_units,
            volume.caller_available_allocation_units,
            volume.actual_available_allocation_units,
            SECTORS_PER_UNIT,
            SECTOR_BYTES,
        ),
        ic::FS_OBJECT_ID_INFORMATION => ic::encode_fs_object_id_information(volume.serial_number),
        ic::FS_SECTOR_SIZE_INFORMATION => ic::encode_fs_sector_size_information(SECTOR_BYTES),
        _ => unreachable!("class checked above"),
    };
    Ok((buf, overflow))
}

/// True if MS-FSCC 2.4 documents `class` as a file information class.
fn is_file_class(class: u8) -> bool {
    matches!(class, 1..=29 | 31..=40 | 44..=46 | 48 | 50 | 54 | 59 | 60 | 64 | 65 | 78..=81)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_error_on_smb311_carries_one_empty_error_context() {
        let response = info_length_mismatch(true);
        assert_eq!(response.status, ntstatus::STATUS_INFO_LENGTH_MISMATCH);
        assert_eq!(response.body, [9, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let response = info_length_mismatch(false);
        assert_eq!(response.body, [9, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
