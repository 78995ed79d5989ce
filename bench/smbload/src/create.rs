//! CREATE, WRITE, CLOSE as three requests of one task, the way most clients do it (the crate's own small-file
//! write adds a FLUSH, which is not what is measured).

use smb2::client::{Connection, Tree};
use smb2::msg::close::CloseRequest;
use smb2::msg::create::{CreateDisposition, CreateRequest, CreateResponse, ImpersonationLevel, ShareAccess};
use smb2::msg::write::{WriteRequest, WriteResponse};
use smb2::pack::{Pack, ReadCursor, Unpack};
use smb2::types::flags::FileAccessMask;
use smb2::types::status::NtStatus;
use smb2::types::{Command, OplockLevel};

use crate::Outcome;

async fn call<R: Unpack>(conn: &Connection, tree: &Tree, command: Command, body: &dyn Pack) -> Outcome<R> {
    let frame = conn.execute(command, body, Some(tree.tree_id)).await?;
    if frame.header.status != NtStatus::SUCCESS {
        return Err(format!("{command:?}: {:?}", frame.header.status).into());
    }
    Ok(R::unpack(&mut ReadCursor::new(&frame.body))?)
}

pub async fn create(conn: &Connection, tree: &Tree, name: &str, data: &[u8]) -> Outcome<u64> {
    let open = CreateRequest {
        requested_oplock_level: OplockLevel::None,
        impersonation_level: ImpersonationLevel::Impersonation,
        desired_access: FileAccessMask::new(
            FileAccessMask::FILE_WRITE_DATA | FileAccessMask::FILE_WRITE_ATTRIBUTES | FileAccessMask::SYNCHRONIZE,
        ),
        file_attributes: 0x80, // NORMAL
        share_access: ShareAccess(0),
        create_disposition: CreateDisposition::FileCreate,
        create_options: 0x40, // FILE_NON_DIRECTORY_FILE
        name: name.replace('/', "\\"),
        create_contexts: vec![],
    };
    let made: CreateResponse = call(conn, tree, Command::Create, &open).await?;
    let write = WriteRequest {
        data_offset: 0x70,
        offset: 0,
        file_id: made.file_id,
        channel: 0,
        remaining_bytes: 0,
        write_channel_info_offset: 0,
        write_channel_info_length: 0,
        flags: 0,
        data: data.to_vec(),
    };
    let written: WriteResponse = call(conn, tree, Command::Write, &write).await?;
    let close = CloseRequest { flags: 0, file_id: made.file_id };
    let _: smb2::msg::close::CloseResponse = call(conn, tree, Command::Close, &close).await?;
    if written.count as usize != data.len() {
        return Err(format!("{name}: {} bytes written", written.count).into());
    }
    Ok(data.len() as u64)
}
