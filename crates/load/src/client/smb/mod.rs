//! SMB 3, signed or encrypted, with crate `smb2`: requests of our own making, many in flight on one connection.

use std::sync::Mutex;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use smb2::Session;
use smb2::client::{Connection, DirectoryEntry, Tree};
use smb2::msg::close::{CloseRequest, CloseResponse};
use smb2::msg::create::{CreateDisposition, CreateRequest, CreateResponse, ImpersonationLevel, ShareAccess};
use smb2::msg::flush::{FlushRequest, FlushResponse};
use smb2::msg::read::{ReadRequest, ReadResponse};
use smb2::msg::write::{WriteRequest, WriteResponse};
use smb2::pack::{Pack, ReadCursor, Unpack};
use smb2::transport::ConnectOptions;
use smb2::types::flags::FileAccessMask;
use smb2::types::status::NtStatus;
use smb2::types::{Command, CreditCharge, FileId, OplockLevel};

use super::error::{ClientError, Outcome};
use super::options::ClientOptions;
use super::patience;
use super::share::{Entry, Identity, Share, Target, ended_early, parts};
use super::url::ShareUrl;
use crate::workload::Workload;

mod failure;
mod seal;

use failure::failure;

const PORT: u16 = 445;
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
const TRANSFER_BYTES_MIN: u32 = 64 << 10;
const PARTS_AT_ONCE: usize = 8;
/// MS-SMB2 3.2.4.1.5: a credit pays for so many bytes.
const CREDIT_BYTES: u64 = 64 << 10;
/// Everybody may read, write and delete beside us: each connection opens the same files.
const SHARE_ALL: u32 = 7;
/// MS-SMB2 2.2.13: FILE_NON_DIRECTORY_FILE; an attribute: NORMAL; where a WRITE's data begins behind its header.
const NO_FOLDER: u32 = 0x40;
const NORMAL: u32 = 0x80;
const WRITE_DATA_OFFSET: u16 = 0x70;

pub(super) struct SmbTarget {
    url: ShareUrl,
    share: String,
    base: String,
    user: String,
    password: String,
    encrypt: bool,
    found: Mutex<Option<Found>>,
}

/// The negotiated dialect and sizes, for a person.
#[derive(Clone)]
struct Found {
    protection: String,
    description: String,
}

impl SmbTarget {
    pub fn new(url: &ShareUrl, options: &ClientOptions) -> Outcome<Self> {
        let parts = url.parts()?;
        let Some((share, base)) = parts.split_first() else {
            let reason = "it names no share: smb://host/share".to_owned();
            return Err(ClientError::BadUrl { url: format!("smb://{}", url.host), reason });
        };
        Ok(Self {
            share: (*share).to_owned(),
            base: base.join("/"),
            user: url.user.clone().or_else(|| options.user.clone()).unwrap_or_default(),
            password: url.password.clone().or_else(|| options.password.clone()).unwrap_or_default(),
            encrypt: url.option("encrypt").is_some_and(|v| v != "0"),
            found: Mutex::new(None),
            url: url.clone(),
        })
    }

    /// Encrypts although the server does not ask for it.
    fn force_encryption(connection: &mut Connection, session: &Session) -> Outcome<()> {
        let impossible = |reason: &str| ClientError::Unsupported { access: "smb3".into(), reason: reason.to_owned() };
        let cipher = connection.params().and_then(|p| p.cipher);
        let cipher = cipher.ok_or_else(|| {
            impossible("the server agreed to no cipher: turn encryption on there (Samba: server smb encrypt = desired)")
        })?;
        let (Some(there), Some(back)) = (session.encryption_key.clone(), session.decryption_key.clone()) else {
            return Err(impossible("a session without a user has no keys to encrypt with: give a user and a password"));
        };
        connection.activate_encryption(there, back, cipher);
        Ok(())
    }

    /// A share may want encryption although its server does not (SMB2_SHAREFLAG_ENCRYPT_DATA, MS-SMB2 2.2.10).
    fn protect(&self, connection: &mut Connection, session: &Session, wanted: bool) -> Outcome<()> {
        match wanted && !connection.should_encrypt() {
            true => Self::force_encryption(connection, session),
            false => Ok(()),
        }
    }

    /// As it was negotiated, for a person.
    fn protection(connection: &Connection, session: &Session) -> String {
        let Some(params) = connection.params() else { return String::new() };
        match (connection.should_encrypt(), params.cipher) {
            (true, Some(cipher)) => format!("encrypted with {cipher:?}"),
            (true, None) => "encrypted with Aes128Ccm".into(),
            (false, _) if session.should_sign && params.gmac_negotiated => "signed with AES-GMAC".into(),
            (false, _) if session.should_sign => "signed".into(),
            (false, _) => "neither signed nor encrypted".into(),
        }
    }
}

impl Target for SmbTarget {
    type Share = SmbShare;
    const ACCESS: &'static str = "smb3";

    async fn connect(&self, _: Option<&Workload>) -> Outcome<SmbShare> {
        let address = self.url.address(self.url.port.unwrap_or(PORT));
        let at = |error: smb2::Error| failure::of_connecting(&address, &self.user, error);
        let options = ConnectOptions::with_timeout(CONNECT_TIME_MAX);
        let mut connection = seal::connect(&address, &self.url.host, options).await.map_err(at)?;
        let session = Session::setup(&mut connection, &self.user, &self.password, "").await.map_err(at)?;
        self.protect(&mut connection, &session, self.encrypt)?;
        let tree = Tree::connect(&mut connection, &self.share).await;
        let tree = tree.map_err(|e| failure::of_share(&address, &self.share, e))?;
        self.protect(&mut connection, &session, tree.encrypt_data)?;
        let params =
            connection.params().ok_or_else(|| ClientError::protocol(address.clone(), "nothing was negotiated"))?;
        let size = |n: u32| n.clamp(TRANSFER_BYTES_MIN, TRANSFER_BYTES_MAX);
        let (read, write) = (size(params.max_read_size), size(params.max_write_size));
        if let Ok(mut found) = self.found.lock() {
            let (dialect, protection) = (params.dialect, Self::protection(&connection, &session));
            let description = format!(
                "{dialect} to {address}, share {}, {protection}, reads of up to {} KiB, writes of up to {} KiB",
                self.share,
                read >> 10,
                write >> 10
            );
            *found = Some(Found { protection, description });
        }
        Ok(SmbShare {
            connection,
            tree,
            base: self.base.clone(),
            read_bytes_max: u64::from(read),
            write_bytes_max: u64::from(write),
        })
    }

    fn describe(&self) -> String {
        let found = self.found.lock().ok().and_then(|found| found.clone());
        found.map_or_else(|| format!("SMB to {}", self.url.host), |found| found.description)
    }

    fn encryption(&self) -> String {
        let found = self.found.lock().ok().and_then(|found| found.clone());
        found.map_or_else(|| "unknown".to_owned(), |found| found.protection)
    }
}

pub(super) struct SmbShare {
    connection: Connection,
    tree: Tree,
    base: String,
    read_bytes_max: u64,
    write_bytes_max: u64,
}

pub(super) struct SmbFile {
    id: FileId,
    name: String,
}

fn credits(bytes: u64) -> CreditCharge {
    CreditCharge(bytes.div_ceil(CREDIT_BYTES).clamp(1, 1024) as u16)
}

impl SmbShare {
    async fn call<R: Unpack>(&self, command: Command, body: &dyn Pack, bytes: u64, what: &str) -> Outcome<R> {
        let failed = |e: smb2::Error| failure(what, e);
        let tree = Some(self.tree.tree_id);
        let asking = self.connection.execute_with_credits(command, body, tree, credits(bytes));
        let time_max = if command == Command::Flush { patience::FLUSH_TIME_MAX } else { patience::REPLY_TIME_MAX };
        let frame = patience::reply_within(time_max, what, async { asking.await.map_err(failed) }).await?;
        if frame.header.status != NtStatus::SUCCESS {
            return Err(failure(what, smb2::Error::Protocol { status: frame.header.status, command }));
        }
        R::unpack(&mut ReadCursor::new(&frame.body)).map_err(failed)
    }

    fn path(&self, path: &str) -> String {
        match (self.base.is_empty(), path.is_empty()) {
            (true, _) => path.to_owned(),
            (false, true) => self.base.clone(),
            (false, false) => format!("{}/{path}", self.base),
        }
    }

    async fn open_as(&self, path: &str, access: u32, disposition: CreateDisposition) -> Outcome<(SmbFile, u64)> {
        let request = CreateRequest {
            requested_oplock_level: OplockLevel::None,
            impersonation_level: ImpersonationLevel::Impersonation,
            desired_access: FileAccessMask::new(
                access | FileAccessMask::SYNCHRONIZE | FileAccessMask::FILE_READ_ATTRIBUTES,
            ),
            file_attributes: NORMAL,
            share_access: ShareAccess(SHARE_ALL),
            create_disposition: disposition,
            create_options: NO_FOLDER,
            name: self.path(path).replace('/', "\\"),
            create_contexts: Vec::new(),
        };
        let opened: CreateResponse = self.call(Command::Create, &request, 0, path).await?;
        Ok((SmbFile { id: opened.file_id, name: path.to_owned() }, opened.end_of_file))
    }

    async fn read_part(&self, file: &SmbFile, mut at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        let end = at + len;
        while at < end {
            let request = ReadRequest {
                padding: 0x50,
                flags: 0,
                length: (end - at) as u32,
                offset: at,
                file_id: file.id,
                minimum_count: 1,
                channel: 0,
                remaining_bytes: 0,
                read_channel_info: Vec::new(),
            };
            let answer: ReadResponse = match self.call(Command::Read, &request, end - at, &file.name).await {
                Err(error) if failure::is_end_of_file(&error) => return Err(ended_early(&file.name, at)),
                answer => answer?,
            };
            if answer.data.is_empty() || answer.data.len() as u64 > end - at {
                return Err(ended_early(&file.name, at));
            }
            identity.check(&file.name, at, &answer.data)?;
            at += answer.data.len() as u64;
        }
        Ok(())
    }

    async fn write_part(&self, file: &SmbFile, mut at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        let end = at + len;
        while at < end {
            let request = WriteRequest {
                data_offset: WRITE_DATA_OFFSET,
                offset: at,
                file_id: file.id,
                channel: 0,
                remaining_bytes: 0,
                write_channel_info_offset: 0,
                write_channel_info_length: 0,
                flags: 0,
                data: identity.contents.copy(identity.file, identity.generation, at, (end - at) as usize),
            };
            let answer: WriteResponse = self.call(Command::Write, &request, end - at, &file.name).await?;
            if answer.count == 0 || u64::from(answer.count) > end - at {
                return Err(ClientError::protocol(
                    &file.name,
                    format!("{} bytes written of {}", answer.count, end - at),
                ));
            }
            at += u64::from(answer.count);
        }
        Ok(())
    }
}

impl Share for SmbShare {
    type File = SmbFile;

    async fn make_folder(&self, path: &str) -> Outcome<()> {
        match self.tree.create_directory(&mut self.connection.clone(), &self.path(path)).await {
            Err(e) if e.kind() == smb2::ErrorKind::AlreadyExists => Ok(()),
            outcome => outcome.map_err(|e| failure(path, e)),
        }
    }

    async fn list(&self, path: &str) -> Outcome<Vec<Entry>> {
        let found = self.tree.list_directory(&mut self.connection.clone(), &self.path(path)).await;
        let found = found.map_err(|e| failure(path, e))?.into_iter();
        let sound = |name: &str| name != "." && name != ".." && !name.contains(['/', '\\']);
        let entry = |e: DirectoryEntry| Entry { folder: e.is_directory && !e.is_link(), name: e.name };
        Ok(found.filter(|e| sound(&e.name)).map(entry).collect())
    }

    /// Samba lists a link as what it leads to; asked for by name, it is known.
    async fn is_own_folder(&self, path: &str) -> Outcome<bool> {
        let found = self.tree.stat(&mut self.connection.clone(), &self.path(path)).await;
        found.map(|info| info.is_directory && !info.is_link()).map_err(|e| failure(path, e))
    }

    async fn free_bytes(&self) -> Outcome<Option<u64>> {
        let found = self.tree.fs_info(&mut self.connection.clone()).await;
        found.map(|info| Some(info.free_bytes)).map_err(|e| failure("", e))
    }

    async fn remove(&self, path: &str) -> Outcome<()> {
        let outcome = self.tree.delete_file(&mut self.connection.clone(), &self.path(path)).await;
        outcome.map_err(|e| failure(path, e))
    }

    async fn remove_folder(&self, path: &str) -> Outcome<()> {
        let outcome = self.tree.delete_directory(&mut self.connection.clone(), &self.path(path)).await;
        outcome.map_err(|e| failure(path, e))
    }

    async fn size(&self, path: &str) -> Outcome<u64> {
        let found = self.tree.stat(&mut self.connection.clone(), &self.path(path)).await;
        found.map(|info| info.size).map_err(|e| failure(path, e))
    }

    async fn create(&self, path: &str) -> Outcome<SmbFile> {
        let access = FileAccessMask::FILE_WRITE_DATA | FileAccessMask::FILE_WRITE_ATTRIBUTES;
        Ok(self.open_as(path, access, CreateDisposition::FileOverwriteIf).await?.0)
    }

    async fn open(&self, path: &str, to_write: bool) -> Outcome<SmbFile> {
        let write = if to_write { FileAccessMask::FILE_WRITE_DATA } else { 0 };
        Ok(self.open_as(path, FileAccessMask::FILE_READ_DATA | write, CreateDisposition::FileOpen).await?.0)
    }

    async fn read(&self, file: &SmbFile, at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        if len <= self.read_bytes_max {
            return self.read_part(file, at, len, identity).await;
        }
        let parts = parts(at, len, self.read_bytes_max).map(|(at, len)| self.read_part(file, at, len, identity));
        stream::iter(parts).buffer_unordered(PARTS_AT_ONCE).try_collect().await
    }

    async fn write(&self, file: &SmbFile, at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        if len <= self.write_bytes_max {
            return self.write_part(file, at, len, identity).await;
        }
        let parts = parts(at, len, self.write_bytes_max).map(|(at, len)| self.write_part(file, at, len, identity));
        stream::iter(parts).buffer_unordered(PARTS_AT_ONCE).try_collect().await
    }

    async fn flush(&self, file: &SmbFile, _: Identity<'_>) -> Outcome<()> {
        let request = FlushRequest { file_id: file.id };
        self.call::<FlushResponse>(Command::Flush, &request, 0, &file.name).await.map(drop)
    }

    async fn close(&self, file: SmbFile) -> Outcome<()> {
        let request = CloseRequest { flags: 0, file_id: file.id };
        self.call::<CloseResponse>(Command::Close, &request, 0, &file.name).await.map(drop)
    }
}
