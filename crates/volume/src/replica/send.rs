//! Sending a snapshot: its objects as they lie in the store, and one image made for the way.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use larder_base::{boxed, task};
use larder_fs::*;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::sync::mpsc;
use ulid::Ulid;

use super::document::KEYRING;
use super::stream::{DATA_BYTES_MAX, Encoder, End, Frame, Header, Identity};
use super::{Had, Resume, delta, image_path, ns_of, ranges_of, segment_path};
use crate::backing::Beneath;
use crate::features;
use crate::keys::MARK;
use crate::layout::prefix_of;
use crate::registry::Registry;
use crate::registry::document::{self, VolumeEntry, find, store_error};
use crate::snapshots::changes;
use crate::snapshots::image::{self, Ground, Image};
use crate::snapshots::row::{self, Row};
use crate::state::State;

/// Images over images in a row, at most: whoever reads the last reads all of them.
pub(super) const CHAIN_MAX: u64 = 256;
/// The rows of a delta, in bytes: whoever reads them holds them in memory.
const DELTA_BYTES_MAX: u64 = 32 << 20;
/// A delta saves nothing where the tables are shorter.
const DELTA_BYTES_MIN: u64 = 1 << 20;
/// Pieces on their way to a slow receiver.
const PIECES_MAX: usize = 8;

/// A snapshot on its way out.
pub struct Outgoing {
    /// About how long it will be, in bytes.
    pub bytes: u64,
    /// The stream. It ends after an error.
    pub stream: BoxStream<'static, FsResult<Bytes>>,
}

/// An object to be sent.
pub(super) enum Item {
    /// As it lies in the store.
    Stored(String),
    Made(String, Bytes),
}

pub(super) struct Job {
    pub(super) registry: Arc<dyn ObjectStore>,
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) prefix: Path,
    pub(super) header: Header,
    pub(super) items: Vec<Item>,
    pub(super) end: End,
    /// Keeps the objects there while they are sent.
    pub(super) _kept: Box<dyn Any + Send + Sync>,
}

impl Registry {
    /// Sends a snapshot of a volume: all of it, or what a receiver lacks that has the snapshot `from`. `resume` leaves out what came
    /// before. [`FsError::NotFound`] if there is no such snapshot, [`FsError::Invalid`] if `from` is not older, or `resume` is about
    /// others. The volume must be unlocked: the names of its snapshots are sealed, too. A replica needs no key, and sends its snapshots
    /// on as they came.
    #[boxed]
    pub async fn send(
        &self,
        volume: &str,
        snapshot: &str,
        from: Option<&str>,
        resume: Option<&Resume>,
    ) -> FsResult<Outgoing> {
        let open = match self.volume(volume).await {
            Err(FsError::Replica) => return self.send_on(volume, snapshot, from, resume).await,
            open => open?,
        };
        let (mut document, _) = self.read().await?;
        let entry = self.find(&mut document, volume)?.clone();
        entry.check_not_sealing()?;
        let state = Arc::clone(&open.state);
        let (to, row) = state.sent_row(snapshot).await?;
        let from = match from {
            Some(from) => Some(state.sent_row(from).await?.0),
            None => None,
        };
        if from.as_ref().is_some_and(|from| from.number >= to.number) {
            return Err(FsError::Invalid("the snapshot to begin with is not older than the one to send"));
        }
        let sent = state
            .catalog
            .send([Some(to.number), from.as_ref().map(|from| from.number)].into_iter().flatten().collect());
        let source = entry.source.unwrap_or(entry.info.id);
        let had = match resume {
            Some(resume) if resume.is_about(source, &to, from.as_ref()) => Had::of(&resume.segments)?,
            Some(_) => return Err(FsError::Invalid("the token to resume with is about another snapshot")),
            None => Had::of(&[])?,
        };
        let (image, is_delta) = state.image_to_send(from.as_ref().map(|from| from.number), to.number, &row).await?;
        let needed = state.data.read_by(to.number);
        let known: BTreeSet<u64> = match &from {
            Some(from) => state.data.read_by(from.number).into_iter().map(|(id, _)| id.0).collect(),
            None => BTreeSet::new(),
        };
        let mut items = Vec::new();
        let mut bytes = image.len() as u64;
        if entry.info().sealed {
            items.push(Item::Stored(KEYRING.to_owned()));
        }
        for (id, length) in needed.iter().filter(|(id, _)| !known.contains(&id.0) && !had.contains(id.0)) {
            items.push(Item::Stored(segment_path(id.0)));
            bytes += length;
        }
        let mut end = End { segments: ranges_of(needed.iter().map(|(id, _)| id.0)), ..End::default() };
        if !is_delta {
            for table in &row.tables {
                end.tables.push(table_path(table.id));
                items.push(Item::Stored(table_path(table.id)));
                bytes += table.bytes;
            }
        }
        let at = image_path(to.number);
        let image = self.sealed(&entry, &at, image).await?;
        items.push(Item::Made(at, image));
        end.objects = items.len() as u64;
        let header = Header {
            source,
            former_sources: entry.former_sources.clone(),
            volume: entry.info.name.clone(),
            properties: entry.info.properties.clone(),
            sealed: entry.info().sealed,
            features: features::to_send(&entry.features),
            from,
            to,
            is_delta,
            bytes,
            keyring_only: false,
        };
        let store = self.beneath_of(&entry);
        let registry = Arc::clone(&self.backing.store);
        let job = Job {
            registry,
            store,
            prefix: prefix_of(entry.info.id),
            header,
            items,
            end,
            _kept: Box::new((open, sent)),
        };
        Ok(job.begin(bytes))
    }

    /// Sends the keyring of an encrypted volume, or of a replica, to a replica that has the snapshot. Needs no key.
    #[boxed]
    pub async fn send_keyring(&self, volume: &str, snapshot: &str) -> FsResult<Outgoing> {
        let (mut document, _) = self.read().await?;
        let entry = self.find(&mut document, volume)?.clone();
        if !entry.info().sealed {
            return Err(FsError::Invalid("the volume is not encrypted: it has no keyring"));
        }
        let (source, to, kept): (_, _, Box<dyn Any + Send + Sync>) = match entry.info().replica {
            true => {
                let alone = self.receive_alone(volume)?;
                let document = self.replica_document(volume).await?.1.ok_or(FsError::NotFound)?;
                let to = document.snapshots.iter().find(|one| one.identity.name == snapshot);
                (document.source, to.ok_or(FsError::NotFound)?.identity.clone(), Box::new(alone))
            }
            false => {
                entry.check_not_sealing()?;
                let open = self.volume(volume).await?;
                let to = open.state.sent_row(snapshot).await?.0;
                (entry.source.unwrap_or(entry.info.id), to, Box::new(open))
            }
        };
        let header = Header {
            source,
            former_sources: entry.former_sources.clone(),
            volume: entry.info.name.clone(),
            properties: entry.info.properties.clone(),
            sealed: true,
            features: features::to_send(&entry.features),
            from: None,
            to,
            is_delta: false,
            bytes: 0,
            keyring_only: true,
        };
        let store = Arc::clone(&self.backing.store);
        let items = vec![Item::Stored(KEYRING.to_owned())];
        let end = End { objects: 1, ..End::default() };
        let job = Job {
            registry: Arc::clone(&store),
            store,
            prefix: prefix_of(entry.info.id),
            header,
            items,
            end,
            _kept: kept,
        };
        Ok(job.begin(0))
    }

    /// An object as the volume's store would have it under that path.
    async fn sealed(&self, entry: &VolumeEntry, path: &str, bytes: Bytes) -> FsResult<Bytes> {
        let info = entry.info();
        if !info.sealed {
            return Ok(bytes);
        }
        let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let beneath = Beneath { store: Arc::clone(&memory), log: None };
        let at = below(&prefix_of(info.id), path);
        self.seals.decorate(&info, beneath)?.store.put(&at, bytes.into()).await.map_err(|error| store_error(&error))?;
        let sealed = memory.get(&at).await.map_err(|error| store_error(&error))?;
        sealed.bytes().await.map_err(|error| store_error(&error))
    }
}

/// `path` may have several parts.
pub(super) fn below(prefix: &Path, path: &str) -> Path {
    path.split('/').fold(prefix.clone(), |at, part| at.join(part))
}

pub(super) fn table_path(id: Ulid) -> String {
    format!("meta/compacted/{id}.sst")
}

impl Resume {
    pub(super) fn is_about(&self, source: uuid::Uuid, to: &Identity, from: Option<&Identity>) -> bool {
        let is_same = match (&self.from, from) {
            (Some(own), Some(from)) => own.is(from),
            (own, from) => own.is_none() && from.is_none(),
        };
        self.source == source && self.to.is(to) && is_same
    }
}

impl State {
    /// A snapshot by its name, and its row with the names of tables.
    async fn sent_row(&self, name: &str) -> FsResult<(Identity, Row)> {
        let number = self.catalog.find(name).ok_or(FsError::NotFound)?;
        let key = row::snapshot_key(number);
        let value = self.meta.get(&key).await?.ok_or(FsError::NotFound)?;
        let row = row::decode(&key, &value)?;
        Ok((Identity { number, name: row.name.clone(), created_ns: ns_of(row.created) }, row))
    }

    /// The image for the receiver, and whether it lies over that of `from` (`replica.delta_or_tables`). With it go the snapshot's
    /// own row, and the rows of the change index since `from`.
    async fn image_to_send(&self, from: Option<u64>, to: u64, row: &Row) -> FsResult<(Bytes, bool)> {
        let tables: u64 = row.tables.iter().map(|table| table.bytes).sum();
        let bytes_max = (tables / 2).clamp(DELTA_BYTES_MIN, DELTA_BYTES_MAX);
        let rows = match from {
            Some(from) if from / CHAIN_MAX == to / CHAIN_MAX => delta::between(self, from, to, bytes_max).await?,
            _ => None,
        };
        let is_delta = rows.is_some();
        let mut image = match (rows, from) {
            (Some(rows), Some(from)) => Image { ground: Ground::Snapshot(from), rows },
            _ => self.own_image(to).await?,
        };
        image.rows.insert(row::snapshot_key(to), Some(row::encode(row)));
        if let Some(from) = from {
            let index = changes::index(&**self.catalog.head(), from, to).await?;
            image.rows.extend(index.into_iter().map(|key| (key, Some(MARK))));
        }
        Ok((image::encode(to, &image), is_delta))
    }

    async fn own_image(&self, number: u64) -> FsResult<Image> {
        let at = image::image_path(self.catalog.prefix(), number);
        let got = self.catalog.store().get(&at).await.map_err(|error| store_error(&error))?;
        image::decode(number, got.bytes().await.map_err(|error| store_error(&error))?)
    }
}

impl Job {
    pub(super) fn begin(self, bytes: u64) -> Outgoing {
        let (out, pieces) = mpsc::channel(PIECES_MAX);
        task::spawn(self.run(out));
        let next = |mut pieces: mpsc::Receiver<_>| async move { pieces.recv().await.map(|piece| (piece, pieces)) };
        Outgoing { bytes, stream: futures::stream::unfold(pieces, next).boxed() }
    }

    async fn run(self, out: mpsc::Sender<FsResult<Bytes>>) {
        if let Err(error) = self.send(&out).await {
            // Who reads it has gone away, or learns of it here.
            let _ = out.send(Err(error)).await;
        }
    }

    async fn send(&self, out: &mpsc::Sender<FsResult<Bytes>>) -> FsResult<()> {
        let gone = || FsError::Io("the receiver has gone away".into());
        let (mut encoder, head) = Encoder::new();
        out.send(Ok(head)).await.map_err(|_| gone())?;
        let mut put = async |frame: Frame| -> FsResult<()> {
            for part in encoder.frame(&frame)? {
                out.send(Ok(part)).await.map_err(|_| gone())?;
            }
            Ok(())
        };
        put(Frame::Header(self.header.clone())).await?;
        for item in &self.items {
            match item {
                Item::Made(path, bytes) => {
                    put(Frame::Object { path: path.clone(), bytes: bytes.len() as u64 }).await?;
                    for piece in pieces(bytes.clone()) {
                        put(Frame::Data(piece)).await?;
                    }
                }
                Item::Stored(path) => {
                    let got = self.store.get(&below(&self.prefix, path)).await.map_err(|error| store_error(&error))?;
                    put(Frame::Object { path: path.clone(), bytes: got.meta.size }).await?;
                    let mut data = got.into_stream();
                    while let Some(bytes) = data.next().await {
                        for piece in pieces(bytes.map_err(|error| store_error(&error))?) {
                            put(Frame::Data(piece)).await?;
                        }
                    }
                }
            }
        }
        self.check_same_keys().await?;
        put(Frame::End(self.end.clone())).await
    }

    /// Objects are sealed anew in place, also while they are sent. Nothing counts before the end of the stream, so it has none then.
    async fn check_same_keys(&self) -> FsResult<()> {
        let (mut document, _) = document::read(&*self.registry).await?;
        let entry = find(&mut document, &self.header.volume)?;
        entry.check_not_sealing()?;
        if entry.source.unwrap_or(entry.info.id) == self.header.source {
            return Ok(());
        }
        let why = format!("'{}' was encrypted or re-keyed while it was sent: send it again", self.header.volume);
        Err(FsError::Refused(why.into()))
    }
}

fn pieces(mut bytes: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || {
        let piece = bytes.split_to(bytes.len().min(DATA_BYTES_MAX));
        (!piece.is_empty()).then_some(piece)
    })
}
