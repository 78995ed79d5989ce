//! The requests of the bench (MS-SMB2 2.2), as bytes behind their header.

use bytes::Bytes;
use larder_smb_wire::error::ProtoResult;
use larder_smb_wire::header::Command;
use larder_smb_wire::messages::{
    CloseRequest, CreateRequest, FileId, FlushRequest, InfoType, QueryDirectoryRequest, QueryInfoRequest, ReadRequest,
    SetInfoRequest, WriteRequest,
};

/// MS-SMB2 2.2.13, 2.2.13.1.
pub(super) mod access {
    pub const READ_DATA: u32 = 0x01;
    pub const WRITE_DATA: u32 = 0x02;
    pub const READ_ATTRIBUTES: u32 = 0x80;
    pub const WRITE_ATTRIBUTES: u32 = 0x100;
    pub const DELETE: u32 = 0x1_0000;
    pub const SYNCHRONIZE: u32 = 0x10_0000;
}
pub(super) const FILE_OPEN: u32 = 1;
pub(super) const FILE_CREATE: u32 = 2;
pub(super) const FILE_OVERWRITE_IF: u32 = 5;
pub(super) const DIRECTORY_FILE: u32 = 0x01;
pub(super) const NON_DIRECTORY_FILE: u32 = 0x40;
/// A link itself, never its target.
pub(super) const OPEN_REPARSE_POINT: u32 = 0x20_0000;
/// Everybody may read, write and delete beside us: each connection opens the same files.
pub(super) const SHARE_ALL: u32 = 7;
pub(super) const SHARE_DELETE: u32 = 4;

/// Of one READ or WRITE.
pub(super) const TRANSFER_BYTES_MAX: u32 = 1 << 20;

const IMPERSONATION: u32 = 2;
const ATTRIBUTE_NORMAL: u32 = 0x80;
/// The first byte behind the fixed fields, from the header on.
const CREATE_NAME_OFFSET: u16 = 0x78;
const DIRECTORY_NAME_OFFSET: u16 = 0x60;
const SET_INFO_BUFFER_OFFSET: u16 = 0x60;
const READ_DATA_OFFSET: u8 = 0x50;
/// MS-FSCC 2.4, 2.5.
const FILE_DISPOSITION_INFORMATION: u8 = 13;
const FILE_ID_BOTH_DIRECTORY_INFORMATION: u8 = 37;
const FILE_FS_FULL_SIZE_INFORMATION: u8 = 7;
const LISTING_BYTES: u32 = 64 << 10;

pub(super) struct Request {
    pub command: Command,
    pub body: Vec<u8>,
    /// Belongs to the body: sent behind it.
    pub payload: Vec<Bytes>,
    /// The most data that the answer may have.
    answer_bytes: u32,
}

impl Request {
    /// MS-SMB2 3.2.4.1.5: a credit pays for so many bytes.
    pub const CREDIT_BYTES: u32 = 64 << 10;

    pub fn new(command: Command, write: impl FnOnce(&mut Vec<u8>) -> ProtoResult<()>) -> ProtoResult<Self> {
        let mut body = Vec::with_capacity(128);
        write(&mut body)?;
        Ok(Self { command, body, payload: Vec::new(), answer_bytes: 0 })
    }

    pub fn credits(&self, large_mtu: bool) -> u32 {
        let sent: usize = self.payload.iter().map(Bytes::len).sum();
        let bytes = self.answer_bytes.max(sent as u32);
        if large_mtu { bytes.div_ceil(Self::CREDIT_BYTES).max(1) } else { 1 }
    }
}

pub(super) struct Open {
    pub access: u32,
    pub share: u32,
    pub disposition: u32,
    pub options: u32,
}

/// `path` has `/`.
pub(super) fn create(path: &str, open: Open) -> ProtoResult<Request> {
    let name: Vec<u8> =
        path.encode_utf16().map(|unit| if unit == 0x2f { 0x5c } else { unit }).flat_map(u16::to_le_bytes).collect();
    let request = CreateRequest {
        structure_size: 57,
        security_flags: 0,
        requested_oplock_level: 0,
        impersonation_level: IMPERSONATION,
        smb_create_flags: 0,
        reserved: 0,
        desired_access: open.access | access::READ_ATTRIBUTES | access::SYNCHRONIZE,
        file_attributes: ATTRIBUTE_NORMAL,
        share_access: open.share,
        create_disposition: open.disposition,
        create_options: open.options,
        name_offset: CREATE_NAME_OFFSET,
        name_length: name.len() as u16,
        create_contexts_offset: 0,
        create_contexts_length: 0,
        // Its buffer has a byte at least.
        name: if name.is_empty() { vec![0] } else { name },
        create_contexts: Vec::new(),
    };
    Request::new(Command::Create, |body| request.write_to(body))
}

pub(super) fn close(file_id: FileId) -> ProtoResult<Request> {
    let request = CloseRequest { structure_size: 24, flags: 0, reserved: 0, file_id };
    Request::new(Command::Close, |body| request.write_to(body))
}

pub(super) fn flush(file: FileId) -> ProtoResult<Request> {
    let (file_id_persistent, file_id_volatile) = (file.persistent, file.volatile);
    let request = FlushRequest { structure_size: 24, reserved1: 0, reserved2: 0, file_id_persistent, file_id_volatile };
    Request::new(Command::Flush, |body| request.write_to(body))
}

pub(super) fn read(file_id: FileId, offset: u64, length: u32) -> ProtoResult<Request> {
    let request = ReadRequest {
        structure_size: 49,
        padding: READ_DATA_OFFSET,
        flags: 0,
        length,
        offset,
        file_id,
        minimum_count: 1,
        channel: 0,
        remaining_bytes: 0,
        read_channel_info_offset: 0,
        read_channel_info_length: 0,
        buffer: vec![0],
    };
    Ok(Request { answer_bytes: length, ..Request::new(Command::Read, |body| request.write_to(body))? })
}

pub(super) fn write(file_id: FileId, offset: u64, payload: Vec<Bytes>) -> ProtoResult<Request> {
    let request = WriteRequest {
        structure_size: 49,
        data_offset: WriteRequest::STANDARD_DATA_OFFSET,
        length: payload.iter().map(Bytes::len).sum::<usize>() as u32,
        offset,
        file_id,
        channel: 0,
        remaining_bytes: 0,
        write_channel_info_offset: 0,
        write_channel_info_length: 0,
        flags: 0,
        data: Vec::new(),
    };
    Ok(Request { payload, ..Request::new(Command::Write, |body| request.write_to(body))? })
}

/// The file goes when it is closed, and what forbids that is said now.
pub(super) fn mark_deleted(file_id: FileId) -> ProtoResult<Request> {
    let request = SetInfoRequest {
        structure_size: 33,
        info_type: InfoType::File as u8,
        file_information_class: FILE_DISPOSITION_INFORMATION,
        buffer_length: 1,
        buffer_offset: SET_INFO_BUFFER_OFFSET,
        reserved: 0,
        additional_information: 0,
        file_id,
        buffer: vec![1],
    };
    Request::new(Command::SetInfo, |body| request.write_to(body))
}

/// The next entries of a folder.
pub(super) fn list(file_id: FileId) -> ProtoResult<Request> {
    let pattern = vec![b'*', 0];
    let request = QueryDirectoryRequest {
        structure_size: 33,
        file_information_class: FILE_ID_BOTH_DIRECTORY_INFORMATION,
        flags: 0,
        file_index: 0,
        file_id,
        file_name_offset: DIRECTORY_NAME_OFFSET,
        file_name_length: pattern.len() as u16,
        output_buffer_length: LISTING_BYTES,
        file_name: pattern,
    };
    Ok(Request { answer_bytes: LISTING_BYTES, ..Request::new(Command::QueryDirectory, |body| request.write_to(body))? })
}

pub(super) fn query_size(file_id: FileId) -> ProtoResult<Request> {
    let request = QueryInfoRequest {
        structure_size: 41,
        info_type: InfoType::FileSystem as u8,
        file_information_class: FILE_FS_FULL_SIZE_INFORMATION,
        output_buffer_length: 32,
        input_buffer_offset: 0,
        reserved: 0,
        input_buffer_length: 0,
        additional_information: 0,
        flags: 0,
        file_id,
        input_buffer: Vec::new(),
    };
    Request::new(Command::QueryInfo, |body| request.write_to(body))
}
