//! SFTP over SSH. The transport is crate `russh`; the file protocol is ours, because handles are bytes, not text, and
//! because nothing may come between as many requests in flight as were asked for.

mod connect;
mod packet;
mod session;

use futures::stream::{self, StreamExt, TryStreamExt};
use russh::client::Handle;

use super::error::{ClientError, Outcome};
use super::patience;
use super::share::{Entry, Identity, Share, Target, check_listing, ended_early, parts};
use crate::workload::Workload;
pub(super) use connect::SftpTarget;
use connect::Watch;
use packet::{Reply, Request};
use session::Session;

/// The transfer size that every server takes (draft 3); OpenSSH says how much more it takes.
const TRANSFER_BYTES: u64 = 32 << 10;
const TRANSFER_BYTES_MAX: u64 = 255 << 10;
const PARTS_AT_ONCE: usize = 16;
const LISTING_PARTS_MAX: u32 = 1_000_000;
const LIMITS: &str = "limits@openssh.com";
const FSYNC: &str = "fsync@openssh.com";

impl Target for SftpTarget {
    type Share = SftpShare;
    const ACCESS: &'static str = "sftp";

    async fn connect(&self, _: Option<&Workload>) -> Outcome<SftpShare> {
        let (handle, channel) = patience::reply(&self.url.host, self.channel()).await?;
        let session = patience::reply(&self.url.host, Session::open(channel, &self.url.host)).await?;
        let mut share = SftpShare {
            can_sync: session.extensions.iter().any(|e| e == FSYNC),
            session,
            base: self.base.clone(),
            read_bytes_max: TRANSFER_BYTES,
            write_bytes_max: TRANSFER_BYTES,
            _handle: handle,
        };
        share.ask_limits().await?;
        share.list_exists().await?;
        if let Ok(mut transfers) = self.transfers.lock() {
            *transfers = Some((share.read_bytes_max, share.write_bytes_max));
        }
        Ok(share)
    }

    fn describe(&self) -> String {
        let (fingerprint, cipher) = match self.seen.lock() {
            Ok(seen) => (seen.fingerprint.clone(), seen.cipher.clone()),
            Err(_) => Default::default(),
        };
        let transfers = self.transfers.lock().ok().and_then(|t| *t).unwrap_or((TRANSFER_BYTES, TRANSFER_BYTES));
        format!(
            "SFTP to {}, folder {}, as {}, cipher {cipher}, host key {fingerprint} (not compared with known_hosts), reads of up to {} KiB, writes of up to {} KiB",
            self.url.address(self.port),
            self.base,
            self.user,
            transfers.0 >> 10,
            transfers.1 >> 10
        )
    }

    fn encryption(&self) -> String {
        let cipher = self.seen.lock().map(|seen| seen.cipher.clone()).unwrap_or_default();
        cipher.split('@').next().unwrap_or_default().to_owned()
    }
}

pub(super) struct SftpShare {
    session: Session,
    base: String,
    can_sync: bool,
    read_bytes_max: u64,
    write_bytes_max: u64,
    /// Holds the connection.
    _handle: Handle<Watch>,
}

pub(super) struct SftpFile {
    handle: Vec<u8>,
    name: String,
}

impl SftpShare {
    fn path(&self, path: &str) -> String {
        if path.is_empty() { self.base.clone() } else { format!("{}/{path}", self.base.trim_end_matches('/')) }
    }

    fn unexpected(&self, what: &str) -> ClientError {
        ClientError::protocol(what, "the server answers something else than was asked")
    }

    async fn ask_limits(&mut self) -> Outcome<()> {
        if !self.session.extensions.iter().any(|e| e == LIMITS) {
            return Ok(());
        }
        let reply = self.session.ask(packet::EXTENDED, 0, |r| r.string(LIMITS.as_bytes())).await?;
        if let Reply::Extended(body) = reply
            && let Ok((read, write)) = packet::limits(&body)
        {
            let size = |n: u64| if n == 0 { TRANSFER_BYTES } else { n.clamp(4096, TRANSFER_BYTES_MAX) / 4096 * 4096 };
            (self.read_bytes_max, self.write_bytes_max) = (size(read), size(write));
        }
        Ok(())
    }

    /// Lists the folder, so that a fault of it is reported at once.
    async fn list_exists(&self) -> Outcome<()> {
        let base = self.path("");
        let found = self.session.ask(packet::STAT, 0, |r| r.string(base.as_bytes())).await?;
        match found {
            Reply::Status { code, text } => packet::check(code, &text, &base),
            _ => Ok(()),
        }
    }

    async fn status(&self, kind: u8, what: &str, build: impl FnOnce(&mut Request)) -> Outcome<()> {
        match self.session.ask(kind, 0, build).await? {
            Reply::Status { code, text } => packet::check(code, &text, what),
            _ => Err(self.unexpected(what)),
        }
    }

    async fn handle(&self, kind: u8, what: &str, build: impl FnOnce(&mut Request)) -> Outcome<Vec<u8>> {
        match self.session.ask(kind, 0, build).await? {
            Reply::Handle(handle) => Ok(handle),
            Reply::Status { code, text } => {
                Err(packet::check(code, &text, what).err().unwrap_or_else(|| self.unexpected(what)))
            }
            _ => Err(self.unexpected(what)),
        }
    }

    async fn open_as(&self, path: &str, flags: u32) -> Outcome<SftpFile> {
        let full = self.path(path);
        let build = |r: &mut Request| {
            r.string(full.as_bytes());
            r.u32(flags);
            r.u32(0);
        };
        Ok(SftpFile { handle: self.handle(packet::OPEN, path, build).await?, name: path.to_owned() })
    }

    async fn close_handle(&self, handle: &[u8], what: &str) -> Outcome<()> {
        self.status(packet::CLOSE, what, |r| r.string(handle)).await
    }

    async fn read_part(&self, file: &SftpFile, mut at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        let end = at + len;
        while at < end {
            let build = |r: &mut Request| {
                r.string(&file.handle);
                r.u64(at);
                r.u32((end - at) as u32);
            };
            match self.session.ask(packet::READ, 0, build).await? {
                Reply::Data(data) if !data.is_empty() && data.len() as u64 <= end - at => {
                    identity.check(&file.name, at, &data)?;
                    at += data.len() as u64;
                }
                Reply::Status { code: packet::STATUS_EOF, .. } => return Err(ended_early(&file.name, at)),
                Reply::Status { code, text } => packet::check(code, &text, &file.name)?,
                _ => return Err(self.unexpected(&file.name)),
            }
        }
        Ok(())
    }

    async fn write_part(&self, file: &SftpFile, at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        let build = |r: &mut Request| {
            r.string(&file.handle);
            r.u64(at);
            r.u32(len as u32);
            let mut done = 0;
            while done < len {
                let piece =
                    identity.contents.piece(identity.file, identity.generation, at + done, (len - done) as usize);
                r.raw(&piece);
                done += piece.len() as u64;
            }
        };
        match self.session.ask(packet::WRITE, len as usize, build).await? {
            Reply::Status { code, text } => packet::check(code, &text, &file.name),
            _ => Err(self.unexpected(&file.name)),
        }
    }

    async fn list_open(&self, handle: &[u8], path: &str) -> Outcome<Vec<Entry>> {
        let mut entries = Vec::new();
        for _ in 0..LISTING_PARTS_MAX {
            match self.session.ask(packet::READDIR, 0, |r| r.string(handle)).await? {
                Reply::Names(names) if !names.is_empty() => {
                    entries.extend(names);
                    check_listing(path, entries.len())?;
                }
                // A part that held only "." and "..".
                Reply::Names(_) => {}
                Reply::Status { code: packet::STATUS_EOF, .. } => return Ok(entries),
                Reply::Status { code, text } => packet::check(code, &text, path)?,
                _ => return Err(self.unexpected(path)),
            }
        }
        Err(ClientError::protocol(path, "a folder's listing does not end"))
    }
}

impl Share for SftpShare {
    type File = SftpFile;

    async fn make_folder(&self, path: &str) -> Outcome<()> {
        let full = self.path(path);
        let build = |r: &mut Request| {
            r.string(full.as_bytes());
            r.u32(0);
        };
        match self.status(packet::MKDIR, path, build).await {
            // Version 3 has no status for "it is there".
            Err(error) => match self.size(path).await {
                Ok(_) => Ok(()),
                Err(_) => Err(error),
            },
            outcome => outcome,
        }
    }

    async fn list(&self, path: &str) -> Outcome<Vec<Entry>> {
        let full = self.path(path);
        let handle = self.handle(packet::OPENDIR, path, |r| r.string(full.as_bytes())).await?;
        let entries = self.list_open(&handle, path).await;
        self.close_handle(&handle, path).await?;
        entries
    }

    async fn remove(&self, path: &str) -> Outcome<()> {
        let full = self.path(path);
        self.status(packet::REMOVE, path, |r| r.string(full.as_bytes())).await
    }

    async fn remove_folder(&self, path: &str) -> Outcome<()> {
        let full = self.path(path);
        self.status(packet::RMDIR, path, |r| r.string(full.as_bytes())).await
    }

    async fn size(&self, path: &str) -> Outcome<u64> {
        let full = self.path(path);
        match self.session.ask(packet::STAT, 0, |r| r.string(full.as_bytes())).await? {
            Reply::Size(size) => Ok(size.unwrap_or(0)),
            Reply::Status { code, text } => {
                Err(packet::check(code, &text, path).err().unwrap_or_else(|| self.unexpected(path)))
            }
            _ => Err(self.unexpected(path)),
        }
    }

    async fn create(&self, path: &str) -> Outcome<SftpFile> {
        self.open_as(path, packet::OPEN_WRITE | packet::OPEN_CREATE | packet::OPEN_TRUNCATE).await
    }

    async fn open(&self, path: &str, to_write: bool) -> Outcome<SftpFile> {
        self.open_as(path, packet::OPEN_READ | if to_write { packet::OPEN_WRITE } else { 0 }).await
    }

    async fn read(&self, file: &SftpFile, at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        if len <= self.read_bytes_max {
            return self.read_part(file, at, len, identity).await;
        }
        let parts = parts(at, len, self.read_bytes_max).map(|(at, len)| self.read_part(file, at, len, identity));
        stream::iter(parts).buffer_unordered(PARTS_AT_ONCE).try_collect().await
    }

    async fn write(&self, file: &SftpFile, at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        if len <= self.write_bytes_max {
            return self.write_part(file, at, len, identity).await;
        }
        let parts = parts(at, len, self.write_bytes_max).map(|(at, len)| self.write_part(file, at, len, identity));
        stream::iter(parts).buffer_unordered(PARTS_AT_ONCE).try_collect().await
    }

    async fn flush(&self, file: &SftpFile, _: Identity<'_>) -> Outcome<()> {
        if !self.can_sync {
            let reason = format!(
                "the server has no {FSYNC}, so nobody knows when data is on its disks: measure without a flush"
            );
            return Err(ClientError::Unsupported { access: "sftp".into(), reason });
        }
        let build = |r: &mut Request| {
            r.string(FSYNC.as_bytes());
            r.string(&file.handle);
        };
        self.status(packet::EXTENDED, &file.name, build).await
    }

    async fn close(&self, file: SftpFile) -> Outcome<()> {
        self.close_handle(&file.handle, &file.name).await
    }
}
