//! SMB 2 and 3, signed or encrypted, on the codec of larder's own server: many requests in flight
//! on one connection.
//!
//! ```text
//!   mod.rs         the operations of a share
//!   session.rs     NEGOTIATE, logon, share, keys
//!   connection.rs  credits, message ids, signatures, answers
//!   requests.rs    requests as bytes; their answers are `larder_smb_wire::answers`
//!   failure.rs     statuses, and what they mean to a person
//! ```

use std::sync::Mutex;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use larder_smb_wire::answers;
use larder_smb_wire::error::ProtoResult;
use larder_smb_wire::messages::{CreateResponse, FileId};

use super::error::{ClientError, Outcome};
use super::options::ClientOptions;
use super::share::{Entry, Identity, Share, Target, check_listing, ended_early, parts};
use super::url::ShareUrl;
use crate::workload::Workload;

mod connection;
mod failure;
mod requests;
mod session;

use connection::{Answer, Connection};
use failure::{Failure, failure};
use requests::{Open, Request, access};
use session::Session;

const PORT: u16 = 445;
const PARTS_AT_ONCE: usize = 8;
/// MS-FSCC 2.6, and 2.1.2.1: a tag with this bit leads elsewhere.
const ATTRIBUTE_DIRECTORY: u32 = 0x10;
const ATTRIBUTE_REPARSE_POINT: u32 = 0x400;
const NAME_SURROGATE: u32 = 0x2000_0000;
/// Some QNAP refuse the CLOSE of one of several files that are removed at once, once.
const REMOVAL_PAUSE: Duration = Duration::from_millis(100);

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
}

impl Target for SmbTarget {
    type Share = SmbShare;
    const ACCESS: &'static str = "smb3";

    async fn connect(&self, _: Option<&Workload>) -> Outcome<SmbShare> {
        let address = self.url.address(self.url.port.unwrap_or(PORT));
        let at = |error: Failure| failure::of_connecting(&address, &self.user, error);
        let encrypt =
            |session: &Session, connection: &Connection, wanted: bool| match wanted && !connection.is_encrypted() {
                true => session.encrypt(connection).map_err(|reason| ClientError::Unsupported {
                    access: Self::ACCESS.to_owned(),
                    reason: reason.to_owned(),
                }),
                false => Ok(()),
            };
        let connection = Connection::open(&address).await.map_err(at)?;
        let negotiated = session::negotiate(&connection).await.map_err(at)?;
        let session = session::log_on(&connection, negotiated, &self.user, &self.password).await.map_err(at)?;
        encrypt(&session, &connection, self.encrypt)?;
        let tree = session::connect_tree(&connection, &self.url.host, &self.share).await;
        let wants_encryption = tree.map_err(|e| failure::of_share(&address, &self.share, e))?;
        encrypt(&session, &connection, wants_encryption)?;
        let (read_bytes_max, write_bytes_max) = session.transfer_bytes_max(&connection);
        if let Ok(mut found) = self.found.lock() {
            let (dialect, protection) = (session.dialect(), session.protection(&connection));
            let description = format!(
                "{dialect} to {address}, share {}, {protection}, reads of up to {} KiB, writes of up to {} KiB",
                self.share,
                read_bytes_max >> 10,
                write_bytes_max >> 10
            );
            *found = Some(Found { protection, description });
        }
        Ok(SmbShare { connection, base: self.base.clone(), read_bytes_max, write_bytes_max })
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
    base: String,
    read_bytes_max: u64,
    write_bytes_max: u64,
}

pub(super) struct SmbFile {
    id: FileId,
    name: String,
}

impl SmbShare {
    async fn call(&self, request: ProtoResult<Request>) -> Result<Answer, Failure> {
        let [answer] = self.connection.call([request?]).await?;
        answer.success()
    }

    /// Opens, does something with the file, closes: one way there and back. All of it succeeded.
    async fn call_chain<const N: usize>(&self, requests: [ProtoResult<Request>; N]) -> Result<[Answer; N], Failure> {
        let requests: Vec<Request> = requests.into_iter().collect::<ProtoResult<_>>()?;
        let requests = requests.try_into().map_err(|_| Failure::broken("a chain of requests"))?;
        let answers = self.connection.call::<N>(requests).await?;
        let Some(refused) = answers.iter().map(|answer| answer.status()).position(|s| s != failure::STATUS_SUCCESS)
        else {
            return Ok(answers);
        };
        // Where the last request closes the file, a failure of one before it may have left it open.
        if refused > 0 && answers[N - 1].status() != failure::STATUS_SUCCESS {
            let opened = CreateResponse::parse(answers[0].body())?;
            let _ = self.call(requests::close(opened.file_id)).await;
        }
        Err(answers[refused].failure())
    }

    fn path(&self, path: &str) -> String {
        match (self.base.is_empty(), path.is_empty()) {
            (true, _) => path.to_owned(),
            (false, true) => self.base.clone(),
            (false, false) => format!("{}/{path}", self.base),
        }
    }

    async fn open_as(&self, path: &str, access: u32, disposition: u32) -> Outcome<SmbFile> {
        let options = requests::NON_DIRECTORY_FILE;
        let open = Open { access, share: requests::SHARE_ALL, disposition, options };
        let answer = self.call(requests::create(&self.path(path), open)).await;
        let opened = answer.and_then(|answer| Ok(CreateResponse::parse(answer.body())?));
        Ok(SmbFile { id: opened.map_err(|e| failure(path, e))?.file_id, name: path.to_owned() })
    }

    async fn stat(&self, path: &str) -> Result<CreateResponse, Failure> {
        let open = Open {
            access: 0,
            share: requests::SHARE_ALL,
            disposition: requests::FILE_OPEN,
            options: requests::OPEN_REPARSE_POINT,
        };
        let chain = [requests::create(&self.path(path), open), requests::close(FileId::any())];
        let [opened, _] = self.call_chain(chain).await?;
        Ok(CreateResponse::parse(opened.body())?)
    }

    /// First with nobody else: a client that caches the open file gives it back then. Samba takes
    /// FILE_DELETE_ON_CLOSE for a folder that is not empty, and does nothing.
    async fn delete(&self, path: &str, options: u32) -> Outcome<()> {
        let attempt = async |share| {
            let options = options | requests::OPEN_REPARSE_POINT;
            let open = Open { access: access::DELETE, share, disposition: requests::FILE_OPEN, options };
            let create = requests::create(&self.path(path), open);
            let chain = [create, requests::mark_deleted(FileId::any()), requests::close(FileId::any())];
            self.call_chain(chain).await.map(drop)
        };
        let mut outcome = attempt(requests::SHARE_DELETE).await;
        let status = |outcome: &Result<(), Failure>| outcome.as_ref().err().and_then(Failure::status);
        // Windows answers so where the break of a lease would have to be awaited within a chain
        // (MS-SMB2 3.3.5.2.7).
        if let Some(failure::STATUS_SHARING_VIOLATION | failure::STATUS_INTERNAL_ERROR) = status(&outcome) {
            outcome = attempt(requests::SHARE_ALL).await;
        }
        if status(&outcome) == Some(failure::STATUS_UNSUCCESSFUL) {
            tokio::time::sleep(REMOVAL_PAUSE).await;
            outcome = attempt(requests::SHARE_ALL).await;
        }
        outcome.map_err(|e| failure(path, e))
    }

    async fn entries(&self, path: &str, folder: FileId) -> Outcome<Vec<Entry>> {
        let sound = |name: &str| name != "." && name != ".." && !name.contains(['/', '\\']);
        let mut entries = Vec::new();
        loop {
            let answer = match self.call(requests::list(folder)).await {
                Err(e) if e.status() == Some(failure::STATUS_NO_MORE_FILES) => return Ok(entries),
                answer => answer.map_err(|e| failure(path, e))?,
            };
            let found = answers::output(&answer.message).and_then(answers::entries);
            let found = found.map_err(|e| ClientError::protocol(path, e))?;
            if found.is_empty() {
                return Err(ClientError::protocol(path, "a listing without entries"));
            }
            entries.extend(found.into_iter().filter(|entry| sound(&entry.name)).map(|entry| {
                let is_link = entry.attributes & ATTRIBUTE_REPARSE_POINT != 0 && entry.tag & NAME_SURROGATE != 0;
                Entry { folder: entry.attributes & ATTRIBUTE_DIRECTORY != 0 && !is_link, name: entry.name }
            }));
            check_listing(path, entries.len())?;
        }
    }

    async fn read_part(&self, file: &SmbFile, mut at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        let end = at + len;
        while at < end {
            let answer = match self.call(requests::read(file.id, at, (end - at) as u32)).await {
                Err(e) if e.status() == Some(failure::STATUS_END_OF_FILE) => return Err(ended_early(&file.name, at)),
                answer => answer.map_err(|e| failure(&file.name, e))?,
            };
            let data = answers::read_data(&answer.message).map_err(|e| ClientError::protocol(&file.name, e))?;
            if data.is_empty() || data.len() as u64 > end - at {
                return Err(ended_early(&file.name, at));
            }
            identity.check(&file.name, at, &data)?;
            at += data.len() as u64;
        }
        Ok(())
    }

    async fn write_part(&self, file: &SmbFile, mut at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        let end = at + len;
        while at < end {
            let mut payload = Vec::with_capacity(2);
            let mut gathered = at;
            while gathered < end {
                let rest = (end - gathered) as usize;
                let piece = identity.contents.piece(identity.file, identity.generation, gathered, rest);
                gathered += piece.len() as u64;
                payload.push(piece);
            }
            let answer = self.call(requests::write(file.id, at, payload)).await;
            let count = answer.and_then(|answer| Ok(answers::written(&answer.message)?));
            let count = u64::from(count.map_err(|e| failure(&file.name, e))?);
            if count == 0 || count > end - at {
                return Err(ClientError::protocol(&file.name, format!("{count} bytes written of {}", end - at)));
            }
            at += count;
        }
        Ok(())
    }
}

impl Share for SmbShare {
    type File = SmbFile;

    async fn make_folder(&self, path: &str) -> Outcome<()> {
        let open = Open {
            access: 0,
            share: requests::SHARE_ALL,
            disposition: requests::FILE_CREATE,
            options: requests::DIRECTORY_FILE,
        };
        match self.call_chain([requests::create(&self.path(path), open), requests::close(FileId::any())]).await {
            Err(e) if e.status() == Some(failure::STATUS_OBJECT_NAME_COLLISION) => Ok(()),
            outcome => outcome.map(drop).map_err(|e| failure(path, e)),
        }
    }

    async fn list(&self, path: &str) -> Outcome<Vec<Entry>> {
        let open = Open {
            access: access::READ_DATA,
            share: requests::SHARE_ALL,
            disposition: requests::FILE_OPEN,
            options: requests::DIRECTORY_FILE,
        };
        let opened = self.call(requests::create(&self.path(path), open)).await;
        let opened = opened.and_then(|opened| Ok(CreateResponse::parse(opened.body())?));
        let folder = opened.map_err(|e| failure(path, e))?.file_id;
        let entries = self.entries(path, folder).await;
        let _ = self.call(requests::close(folder)).await;
        entries
    }

    /// Samba lists a link as what it leads to; asked for by name, it is known.
    async fn is_own_folder(&self, path: &str) -> Outcome<bool> {
        let found = self.stat(path).await.map_err(|e| failure(path, e))?;
        Ok(found.file_attributes & (ATTRIBUTE_DIRECTORY | ATTRIBUTE_REPARSE_POINT) == ATTRIBUTE_DIRECTORY)
    }

    async fn free_bytes(&self) -> Outcome<Option<u64>> {
        let open = Open {
            access: 0,
            share: requests::SHARE_ALL,
            disposition: requests::FILE_OPEN,
            options: requests::DIRECTORY_FILE,
        };
        let any = FileId::any();
        let chain = [requests::create("", open), requests::query_size(any), requests::close(any)];
        let found = self.call_chain(chain).await;
        let free = found.and_then(|[_, size, _]| Ok(answers::free_bytes(answers::output(&size.message)?)?));
        free.map(Some).map_err(|e| failure("", e))
    }

    async fn remove(&self, path: &str) -> Outcome<()> {
        self.delete(path, requests::NON_DIRECTORY_FILE).await
    }

    async fn remove_folder(&self, path: &str) -> Outcome<()> {
        self.delete(path, requests::DIRECTORY_FILE).await
    }

    async fn size(&self, path: &str) -> Outcome<u64> {
        self.stat(path).await.map(|found| found.end_of_file).map_err(|e| failure(path, e))
    }

    async fn create(&self, path: &str) -> Outcome<SmbFile> {
        self.open_as(path, access::WRITE_DATA | access::WRITE_ATTRIBUTES, requests::FILE_OVERWRITE_IF).await
    }

    async fn open(&self, path: &str, to_write: bool) -> Outcome<SmbFile> {
        let write = if to_write { access::WRITE_DATA } else { 0 };
        self.open_as(path, access::READ_DATA | write, requests::FILE_OPEN).await
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
        self.call(requests::flush(file.id)).await.map(drop).map_err(|e| failure(&file.name, e))
    }

    async fn close(&self, file: SmbFile) -> Outcome<()> {
        self.call(requests::close(file.id)).await.map(drop).map_err(|e| failure(&file.name, e))
    }
}
