//! NFSv3 over TCP, from the socket up: nothing has to be mounted, and it costs less than what it measures.

mod attach;
mod proto;
mod records;
mod rpc;
#[cfg(test)]
mod tests;
mod xdr;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};

use super::contents::Contents;
use super::error::{ClientError, Outcome};
use super::share::{Entry, Identity, Share, check_listing, ended_early, parts};
use proto::Handle;
use rpc::{Answer, Connection, Expected};
use xdr::{Reader, Short, Writer};

pub(super) use attach::NfsTarget;

/// Requests of one block that is larger than a transfer.
const PARTS_AT_ONCE: usize = 8;
const BUSY_RETRIES: u32 = 100;
const BUSY_WAIT: Duration = Duration::from_millis(100);
/// Written and not committed: remembered, because a server that restarts may forget it.
const UNCOMMITTED_MAX: usize = 1 << 18;
const LISTING_BYTES: u32 = 64 << 10;
const LISTING_PARTS_MAX: u32 = 100_000;

pub(super) struct NfsShare {
    connection: Connection,
    root: Handle,
    folders: RefCell<HashMap<String, Handle>>,
    read_bytes_max: u64,
    write_bytes_max: u64,
    address: String,
}

pub(super) struct NfsFile {
    name: String,
    handle: Handle,
    /// Writes that COMMIT has to confirm, with the verifier that the server gave (RFC 1813 4.8).
    uncommitted: RefCell<Vec<Written>>,
    verifier: Cell<Option<u64>>,
    forgot: Cell<bool>,
}

#[derive(Clone, Copy)]
struct Written {
    file: u64,
    generation: u64,
    at: u64,
    len: u64,
}

impl NfsFile {
    fn new(name: &str, handle: Handle) -> Self {
        Self {
            name: name.to_owned(),
            handle,
            uncommitted: RefCell::default(),
            verifier: Cell::new(None),
            forgot: Cell::new(false),
        }
    }

    /// Another verifier than before: what was not committed may be lost.
    fn saw(&self, verifier: u64) {
        if self.verifier.replace(Some(verifier)).is_some_and(|before| before != verifier) {
            self.forgot.set(true);
        }
    }
}

impl NfsShare {
    fn malformed(&self, _: Short) -> ClientError {
        ClientError::protocol(self.address.clone(), "an NFS reply that is cut short or makes no sense")
    }

    /// Status and results of one call; asked again while the server says that it is busy.
    async fn ask(&self, procedure: u32, arguments: impl Fn(&mut Writer)) -> Outcome<(u32, Vec<u8>)> {
        for _ in 0..BUSY_RETRIES {
            let answer = self.connection.call(proto::NFS, procedure, &arguments, &[], None).await?;
            let Answer::Body(body) = answer else { return Err(self.malformed(Short)) };
            let mut r = Reader(&body);
            match r.u32().map_err(|e| self.malformed(e))? {
                proto::JUKEBOX => tokio::time::sleep(BUSY_WAIT).await,
                status => return Ok((status, r.0.to_vec())),
            }
        }
        Ok((proto::JUKEBOX, Vec::new()))
    }

    /// The results of a call that must succeed.
    async fn results<R>(
        &self,
        procedure: u32,
        what: &str,
        arguments: impl Fn(&mut Writer),
        parse: impl Fn(&mut Reader<'_>) -> Result<R, Short>,
    ) -> Outcome<R> {
        match self.ask(procedure, arguments).await? {
            (proto::OK, body) => parse(&mut Reader(&body)).map_err(|e| self.malformed(e)),
            (status, _) => Err(proto::failure(status, what)),
        }
    }

    async fn lookup(&self, folder: &Handle, name: &str, path: &str) -> Outcome<Handle> {
        let arguments = |w: &mut Writer| put_place(w, folder, name);
        self.results(proto::LOOKUP, path, arguments, proto::handle).await
    }

    async fn folder(&self, path: &str) -> Outcome<Handle> {
        if path.is_empty() {
            return Ok(self.root.clone());
        }
        if let Some(handle) = self.folders.borrow().get(path) {
            return Ok(handle.clone());
        }
        let (parent, name) = split(path);
        let parent = Box::pin(self.folder(parent)).await?;
        let handle = self.lookup(&parent, name, path).await?;
        self.folders.borrow_mut().insert(path.to_owned(), handle.clone());
        Ok(handle)
    }

    async fn make_file(&self, path: &str) -> Outcome<Handle> {
        let (folder, name) = split(path);
        let folder = self.folder(folder).await?;
        let arguments = |w: &mut Writer| {
            put_place(w, &folder, name);
            // UNCHECKED: one that is there is cut to nothing.
            w.u32(0);
            proto::put_new_attributes(w, 0o644, true);
        };
        match self.results(proto::CREATE, path, arguments, proto::made).await? {
            Some(handle) => Ok(handle),
            None => self.lookup(&folder, name, path).await,
        }
    }

    /// Writes until everything is there: a server may take less than it is given.
    async fn write_part(&self, file: &NfsFile, part: Written, identity: Identity<'_>, stable: u32) -> Outcome<()> {
        let Written { mut at, len, .. } = part;
        let end = at + len;
        let mut busy = 0;
        while at < end {
            let payload = payload(identity, at, end - at);
            let count = (end - at) as u32;
            let arguments = |w: &mut Writer| {
                w.opaque(&file.handle.0);
                w.u64(at);
                w.u32(count);
                w.u32(stable);
                w.u32(count);
            };
            let answer = self.connection.call(proto::NFS, proto::WRITE, arguments, &payload, None).await?;
            let Answer::Body(body) = answer else { return Err(self.malformed(Short)) };
            let mut r = Reader(&body);
            match r.u32().map_err(|e| self.malformed(e))? {
                proto::OK => {}
                proto::JUKEBOX if busy < BUSY_RETRIES => {
                    busy += 1;
                    tokio::time::sleep(BUSY_WAIT).await;
                    continue;
                }
                status => return Err(proto::failure(status, &file.name)),
            }
            let (written, committed, verifier) = proto::written(&mut r).map_err(|e| self.malformed(e))?;
            if written == 0 || written > count {
                return Err(self.malformed(Short));
            }
            if stable == proto::UNSTABLE && committed == proto::UNSTABLE {
                file.saw(verifier);
                let written = Written { at, len: u64::from(written), ..part };
                file.uncommitted.borrow_mut().push(written);
            }
            at += u64::from(written);
        }
        Ok(())
    }

    async fn write_parts(&self, file: &NfsFile, at: u64, len: u64, identity: Identity<'_>, stable: u32) -> Outcome<()> {
        let part = |at, len| Written { file: identity.file, generation: identity.generation, at, len };
        if len <= self.write_bytes_max {
            return self.write_part(file, part(at, len), identity, stable).await;
        }
        let parts = parts(at, len, self.write_bytes_max)
            .map(|(at, len)| self.write_part(file, part(at, len), identity, stable));
        stream::iter(parts).buffer_unordered(PARTS_AT_ONCE).try_collect().await
    }

    async fn read_part(&self, file: &NfsFile, at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        let (mut at, end, mut busy) = (at, at + len, 0);
        while at < end {
            let count = (end - at) as u32;
            let arguments = |w: &mut Writer| {
                w.opaque(&file.handle.0);
                w.u64(at);
                w.u32(count);
            };
            let expected =
                Expected { contents: identity.contents.clone(), file: identity.file, offset: at, len: count };
            let got = match self.connection.call(proto::NFS, proto::READ, arguments, &[], Some(expected)).await? {
                Answer::Data { first_wrong: Some(offset), .. } => return Err(ended_early(&file.name, offset)),
                Answer::Data { count, .. } => count,
                Answer::Body(body) => match Reader(&body).u32().map_err(|e| self.malformed(e))? {
                    proto::OK => return Err(self.malformed(Short)),
                    proto::JUKEBOX if busy < BUSY_RETRIES => {
                        busy += 1;
                        tokio::time::sleep(BUSY_WAIT).await;
                        continue;
                    }
                    status => return Err(proto::failure(status, &file.name)),
                },
            };
            if got == 0 {
                return Err(ended_early(&file.name, at));
            }
            at += u64::from(got);
        }
        Ok(())
    }

    async fn commit(&self, file: &NfsFile) -> Outcome<u64> {
        let arguments = |w: &mut Writer| {
            w.opaque(&file.handle.0);
            w.u64(0);
            w.u32(0);
        };
        self.results(proto::COMMIT, &file.name, arguments, proto::committed).await
    }

    /// A server that restarted between WRITE and COMMIT has forgotten data: it is sent again, to stay.
    async fn flush_with(&self, file: &NfsFile, contents: &Arc<Contents>) -> Outcome<()> {
        let uncommitted = file.uncommitted.take();
        let before = file.verifier.take();
        let verifier = self.commit(file).await?;
        let lost = file.forgot.take() || before.is_some_and(|before| before != verifier);
        if !lost {
            return Ok(());
        }
        let again = uncommitted.into_iter().map(|part| {
            let identity = Identity { contents, file: part.file, generation: part.generation };
            self.write_part(file, part, identity, proto::FILE_SYNC)
        });
        stream::iter(again).buffer_unordered(PARTS_AT_ONCE).try_collect().await
    }

    async fn remove_with(&self, procedure: u32, path: &str) -> Outcome<()> {
        let (folder, name) = split(path);
        let folder = self.folder(folder).await?;
        self.results(procedure, path, |w: &mut Writer| put_place(w, &folder, name), |_| Ok(())).await
    }
}

/// diropargs3
fn put_place(w: &mut Writer, folder: &Handle, name: &str) {
    w.opaque(&folder.0);
    w.opaque(name.as_bytes());
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn payload(identity: Identity<'_>, at: u64, len: u64) -> Vec<Bytes> {
    let mut pieces = Vec::with_capacity(2);
    let mut done = 0;
    while done < len {
        let piece = identity.contents.piece(identity.file, identity.generation, at + done, (len - done) as usize);
        done += piece.len() as u64;
        pieces.push(piece);
    }
    pieces
}

impl Share for NfsShare {
    type File = NfsFile;

    async fn make_folder(&self, path: &str) -> Outcome<()> {
        let (parent, name) = split(path);
        let parent = self.folder(parent).await?;
        let arguments = |w: &mut Writer| {
            put_place(w, &parent, name);
            proto::put_new_attributes(w, 0o755, false);
        };
        match self.ask(proto::MKDIR, arguments).await? {
            (proto::OK | proto::EXIST, _) => Ok(()),
            (status, _) => Err(proto::failure(status, path)),
        }
    }

    async fn list(&self, path: &str) -> Outcome<Vec<Entry>> {
        let folder = self.folder(path).await?;
        let (mut cookie, mut verifier, mut entries) = (0, 0, Vec::new());
        for _ in 0..LISTING_PARTS_MAX {
            let arguments = |w: &mut Writer| {
                w.opaque(&folder.0);
                w.u64(cookie);
                w.u64(verifier);
                w.u32(LISTING_BYTES / 8);
                w.u32(LISTING_BYTES);
            };
            let part = self.results(proto::READDIRPLUS, path, arguments, |r| proto::listing(r, cookie)).await?;
            let stuck = part.cookie == cookie;
            (cookie, verifier) = (part.cookie, part.verifier);
            entries.extend(part.entries);
            check_listing(path, entries.len())?;
            if part.end {
                return Ok(entries);
            }
            if stuck {
                break;
            }
        }
        Err(ClientError::protocol(path, "a folder's listing does not end"))
    }

    async fn free_bytes(&self) -> Outcome<Option<u64>> {
        let arguments = |w: &mut Writer| w.opaque(&self.root.0);
        self.results(proto::FSSTAT, "the export", arguments, proto::free_bytes).await.map(Some)
    }

    async fn remove(&self, path: &str) -> Outcome<()> {
        self.remove_with(proto::REMOVE, path).await
    }

    async fn remove_folder(&self, path: &str) -> Outcome<()> {
        self.folders.borrow_mut().remove(path);
        self.remove_with(proto::RMDIR, path).await
    }

    async fn size(&self, path: &str) -> Outcome<u64> {
        let (folder, name) = split(path);
        let folder = self.folder(folder).await?;
        let parse = |r: &mut Reader<'_>| {
            let handle = proto::handle(r)?;
            Ok((handle, proto::maybe_attributes(r)?))
        };
        let (handle, attributes) =
            self.results(proto::LOOKUP, path, |w: &mut Writer| put_place(w, &folder, name), parse).await?;
        match attributes {
            Some((_, size)) => Ok(size),
            None => {
                let arguments = |w: &mut Writer| w.opaque(&handle.0);
                self.results(proto::GETATTR, path, arguments, proto::attributes).await.map(|(_, size)| size)
            }
        }
    }

    async fn create(&self, path: &str) -> Outcome<NfsFile> {
        Ok(NfsFile::new(path, self.make_file(path).await?))
    }

    async fn open(&self, path: &str, _to_write: bool) -> Outcome<NfsFile> {
        let (folder, name) = split(path);
        let folder = self.folder(folder).await?;
        Ok(NfsFile::new(path, self.lookup(&folder, name, path).await?))
    }

    async fn read(&self, file: &NfsFile, at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        if len <= self.read_bytes_max {
            return self.read_part(file, at, len, identity).await;
        }
        let parts = parts(at, len, self.read_bytes_max).map(|(at, len)| self.read_part(file, at, len, identity));
        stream::iter(parts).buffer_unordered(PARTS_AT_ONCE).try_collect().await
    }

    async fn write(&self, file: &NfsFile, at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        self.write_parts(file, at, len, identity, proto::UNSTABLE).await?;
        if file.uncommitted.borrow().len() >= UNCOMMITTED_MAX {
            self.flush_with(file, identity.contents).await?;
        }
        Ok(())
    }

    async fn flush(&self, file: &NfsFile, identity: Identity<'_>) -> Outcome<()> {
        self.flush_with(file, identity.contents).await
    }

    async fn close(&self, _file: NfsFile) -> Outcome<()> {
        Ok(())
    }

    /// A file that fits into one request is written and flushed with it, as by any client.
    async fn put(
        &self,
        path: &str,
        len: u64,
        block: u64,
        sync: bool,
        identity: Identity<'_>,
        told: &dyn Fn(u64) -> bool,
    ) -> Outcome<()> {
        let file = NfsFile::new(path, self.make_file(path).await?);
        if len <= block.min(self.write_bytes_max) && sync {
            self.write_parts(&file, 0, len, identity, proto::FILE_SYNC).await?;
            told(len);
            return Ok(());
        }
        let mut at = 0;
        while at < len {
            let part = block.min(len - at);
            self.write(&file, at, part, identity).await?;
            at += part;
            if !told(part) {
                break;
            }
        }
        if sync { self.flush_with(&file, identity.contents).await } else { Ok(()) }
    }
}
