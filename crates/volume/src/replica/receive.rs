//! Receiving a snapshot into a replica.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use larder_base::features::Features;
use larder_base::{Clock, Timestamp, boxed};
use larder_fs::*;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};
use ulid::Ulid;
use uuid::Uuid;

use super::document::{self, Document, KEYRING, Partial, Received};
use super::limits::{Budget, IMAGE_BYTES_MAX, ReceiveLimits, check_count, check_header, refused};
use super::send::below;
use super::stream::{Decoder, End, Frame, Header, Identity};
use super::{ReplicaInfo, ReplicaSnapshot, Resume, image_path, numbers_of, ranges_of, segment_path, time_of};
use crate::alone::Alone;
use crate::features;
use crate::layout::prefix_of;
use crate::properties::VolumeInfo;
use crate::registry::document::{VolumeEntry, check_features, mark, store_error};
use crate::registry::{HAS_CLONES, Registry, check_properties, check_volume_name};
use crate::snapshots::holds::{self, is_held};
use crate::snapshots::row::NAME_LEN_MAX;

/// Longer objects are put in parts of this length.
const PART_BYTES: u64 = 8 << 20;
/// No object is longer.
const OBJECT_BYTES_MAX: u64 = 1 << 36;
/// An image may be sealed, which makes it a little longer.
const IMAGE_OBJECT_BYTES_MAX: u64 = IMAGE_BYTES_MAX + IMAGE_BYTES_MAX / 8;
/// The longest keyring: thirty-two slots and thousands of keys are far shorter.
const KEYRING_BYTES_MAX: u64 = 1 << 20;
/// Changes of the owner's that a keyring gives way to.
const KEYRING_TRIES: u32 = 16;
/// A reception that the owner interrupts ends within moments: it waits for the network, mostly.
const INTERRUPTION_MAX: Duration = Duration::from_secs(30);
const INTERRUPTION_LOOK: Duration = Duration::from_millis(10);

/// A stream that goes into a replica.
struct Reception<'a> {
    name: &'a str,
    header: &'a Header,
    limits: ReceiveLimits,
    prefix: Path,
    /// An earlier attempt has left a part of the same snapshot.
    resumed: bool,
}

impl Registry {
    pub(crate) fn receive_alone(&self, name: &str) -> FsResult<Alone> {
        let why = FsError::Busy("a snapshot is being received into it, or sent on from it");
        Alone::take(&self.receiving, name).ok_or(why)
    }

    /// As [`Registry::receive_alone`], for the owner: a reception is interrupted, since its sender could keep it up for ever. It is
    /// resumed later.
    pub(crate) async fn alone_for_owner(&self, name: &str) -> FsResult<Alone> {
        let end = tokio::time::Instant::now() + INTERRUPTION_MAX;
        while tokio::time::Instant::now() < end {
            let bell = self.receiving.lock().get(name).cloned();
            match bell.filter(|bell| bell.is_heard.load(Ordering::Acquire)) {
                Some(bell) => bell.rings.notify_one(),
                None => break,
            }
            tokio::time::sleep(INTERRUPTION_LOOK).await;
        }
        self.receive_alone(name)
    }

    /// As [`Registry::receive_within`], without bounds of the owner's.
    #[boxed]
    pub async fn receive<'a>(&'a self, name: &str, input: BoxStream<'a, FsResult<Bytes>>) -> FsResult<ReplicaSnapshot> {
        self.receive_within(name, ReceiveLimits::default(), input).await
    }

    /// Receives a snapshot into the replica `name`, which a stream that needs nothing makes. Nothing of it counts before the stream
    /// has ended well; what has come by then stays for [`Registry::resume`]. [`FsError::Refused`] says why a stream does not fit, and
    /// what would; a replica without a snapshot goes then.
    #[boxed]
    pub async fn receive_within<'a>(
        &'a self,
        name: &str,
        limits: ReceiveLimits,
        input: BoxStream<'a, FsResult<Bytes>>,
    ) -> FsResult<ReplicaSnapshot> {
        check_volume_name(name)?;
        let mut frames = Decoder::new(input).await?;
        let Frame::Header(header) = frames.next().await? else {
            return Err(refused("the stream does not begin with a header".into()));
        };
        check_header(&header)?;
        let alone = self.receive_alone(name)?;
        // A bell that rings before the objects come is heard when they do.
        alone.bell.is_heard.store(true, Ordering::Release);
        let (entry, document) = self.receiver(name, &header).await?;
        let prefix = prefix_of(entry.info.id);
        if header.keyring_only {
            return self.take_keyring_alone(name, &header, &prefix, &document, &mut frames).await;
        }
        let is_first = document.snapshots.is_empty();
        let mut reception = Reception { name, header: &header, limits, prefix, resumed: false };
        let received = self.take_stream(&mut reception, document, &mut frames, &alone).await;
        if let (Err(error), true) = (&received, is_first) {
            self.leave_nothing(&entry, error).await;
        }
        received
    }

    /// The frames after the header, into the replica that `document` is of.
    async fn take_stream(
        &self,
        reception: &mut Reception<'_>,
        mut document: Document,
        frames: &mut Decoder<'_>,
        alone: &Alone,
    ) -> FsResult<ReplicaSnapshot> {
        let (header, prefix, store) = (reception.header, reception.prefix.clone(), &*self.backing.store);
        check_count(reception.name, &document, document.now(self.backing.clock.now()))?;
        reception.resumed = document.begin(header);
        document.write(store, &prefix).await?;
        if !reception.resumed {
            // What another attempt has left is not taken for a part of this one.
            sweep(store, &prefix, &document).await?;
        }
        let (end, came, keyring) = tokio::select! {
            taken = take_objects(reception, &document, frames, store) => taken?,
            () = alone.bell.rings.notified() => return Err(FsError::Busy("the owner of the replica changes it: send the snapshot again")),
        };
        document.enter(header, &end, &came, self.backing.clock.now())?;
        if let Some(keyring) = keyring {
            self.renew_keyring(&prefix, &keyring).await?;
        }
        // `replica.objects_before_document`
        document.write(store, &prefix).await?;
        let info = info_of(&document, &*self.backing.clock);
        info.snapshots.into_iter().last().ok_or(FsError::NotFound)
    }

    /// A stream that brings nothing but the volume's keyring (`replica.keyring_follows`).
    async fn take_keyring_alone(
        &self,
        name: &str,
        header: &Header,
        prefix: &Path,
        document: &Document,
        frames: &mut Decoder<'_>,
    ) -> FsResult<ReplicaSnapshot> {
        let Frame::Object { path, bytes } = frames.next().await? else {
            return Err(refused("the stream has a frame where none may be".into()));
        };
        check_path(&path, bytes, header)?;
        if path != KEYRING {
            return Err(refused("the stream brings more than a keyring".into()));
        }
        let keyring = take_keyring(frames, bytes).await?;
        let Frame::End(_) = frames.next().await? else {
            return Err(refused("the stream has a frame where none may be".into()));
        };
        self.renew_keyring(prefix, &keyring).await?;
        let info = info_of(document, &*self.backing.clock);
        let has = |snapshot: &ReplicaSnapshot| snapshot.number == header.to.number;
        info.snapshots.into_iter().find(has).ok_or_else(|| refused(format!("'{name}' has no snapshot of these keys")))
    }

    /// Puts the keyring that a stream brought in the place of the replica's, if it is a later one of the same volume's
    /// (`replica.keyring_follows`). The owner may change it meanwhile.
    async fn renew_keyring(&self, prefix: &Path, came: &[u8]) -> FsResult<()> {
        let (store, at) = (&self.backing.store, prefix.clone().join(KEYRING));
        for _ in 0..KEYRING_TRIES {
            let got = store.get(&at).await.map_err(|error| store_error(&error))?;
            let version = UpdateVersion { e_tag: got.meta.e_tag.clone(), version: got.meta.version.clone() };
            let own = got.bytes().await.map_err(|error| store_error(&error))?;
            if own == came {
                return Ok(());
            }
            let Some(renewed) = self.seals.renewed_keyring(&own, came)? else { return Ok(()) };
            match store.put_opts(&at, renewed.into(), PutMode::Update(version).into()).await {
                Err(object_store::Error::Precondition { .. }) => {}
                put => return put.map(drop).map_err(|error| store_error(&error)),
            }
        }
        Err(FsError::Busy("the keyring of the replica is being changed"))
    }

    /// After a first stream that failed: a replica that can never be resumed goes.
    async fn leave_nothing(&self, entry: &VolumeEntry, error: &FsError) {
        let is_refused = matches!(error, FsError::Refused(_) | FsError::Invalid(_) | FsError::Unsupported(_));
        let removed = async {
            let prefix = prefix_of(entry.info.id);
            let mut parts = self.backing.store.list(Some(&prefix));
            let own = document::path(&prefix);
            let mut is_empty = true;
            while let (true, Some(object)) = (is_empty, parts.next().await) {
                is_empty = object.map_err(|error| store_error(&error))?.location == own;
            }
            drop(parts);
            if !is_refused && !is_empty {
                return Ok(());
            }
            self.update(|registry| {
                let own = registry.volumes.iter_mut().filter(|other| other.info.id == entry.info.id);
                own.for_each(|own| own.doomed = true);
                Ok(())
            })
            .await?;
            self.delete_doomed(entry.info.id).await
        };
        if let Err(error) = removed.await {
            let replica = &entry.info.name;
            tracing::warn!(replica, %error, "a replica that received nothing stays for now");
        }
    }

    /// The replica that a stream goes into, and what it has.
    async fn receiver(&self, name: &str, header: &Header) -> FsResult<(VolumeEntry, Document)> {
        let names = header.features.iter().cloned().collect::<BTreeSet<String>>();
        let features = features::received(&names.into_iter().collect::<Vec<_>>());
        check_features("the snapshot", &features, true)?;
        check_properties(&header.properties)?;
        let (mut registry, _) = self.read().await?;
        let entry = match self.find(&mut registry, name) {
            Ok(entry) => entry.clone(),
            Err(_) if header.from.is_none() && !header.keyring_only => {
                self.enter_replica(name, header, features.clone()).await?
            }
            Err(error) => return Err(error),
        };
        if entry.has(features::COPY) {
            return Err(refused(format!(
                "'{name}' is a copy as files, which takes no streams: receive into a new name"
            )));
        }
        if !entry.info().replica {
            return Err(refused(format!(
                "'{name}' is a volume of its own, not a replica: receive into a new name, or one that was only ever received into"
            )));
        }
        let prefix = prefix_of(entry.info.id);
        let known = Document::read(&*self.backing.store, &prefix).await?;
        let document = known.unwrap_or_else(|| Document::new(header.source));
        if header.sealed != entry.info().sealed {
            let is = |sealed| if sealed { "encrypted" } else { "not encrypted" };
            let (own, theirs) = (is(entry.info().sealed), is(header.sealed));
            return Err(refused(format!("'{name}' is {own}, and the stream is {theirs}: receive into a new name")));
        }
        check_fit(name, header, &document)?;
        self.add_features(&entry, &features).await?;
        Ok((entry, document))
    }

    /// What the volume has come to use since the snapshot before is known of the replica before an object that uses it is there.
    async fn add_features(&self, entry: &VolumeEntry, features: &Features) -> FsResult<()> {
        let names = || features.read_only_compatible.iter().chain(&features.incompatible);
        if names().all(|name| entry.has(name)) {
            return Ok(());
        }
        self.update(|document| {
            let known = self.find(document, &entry.info.name)?;
            names().for_each(|name| known.add(name));
            Ok(())
        })
        .await
    }

    async fn enter_replica(&self, name: &str, header: &Header, mut features: Features) -> FsResult<VolumeEntry> {
        features.incompatible.push(features::REPLICA.to_owned());
        if header.sealed {
            features.incompatible.push(features::ENCRYPTION.to_owned());
        }
        let info = VolumeInfo {
            name: name.to_owned(),
            id: Uuid::new_v4(),
            properties: header.properties.clone(),
            sealed: header.sealed,
            sealing: None,
            replica: true,
            copy: false,
            origin: None,
        };
        let entry = VolumeEntry {
            info,
            formatted: false,
            doomed: false,
            features,
            source: Some(header.source),
            handles: None,
            former_sources: Vec::new(),
            sealing: None,
            origin: None,
            seat: self.seat().clone(),
            handover: None,
        };
        self.update(|document| {
            if document.volumes.iter().any(|other| other.info.name == name && !other.doomed) {
                return Err(FsError::Exists);
            }
            document.volumes.push(entry.clone());
            Ok(())
        })
        .await?;
        Ok(entry)
    }

    /// What a replica has. [`FsError::NotFound`] if there is none of this name.
    #[boxed]
    pub async fn replica(&self, name: &str) -> FsResult<ReplicaInfo> {
        if let Some(entry) = self.copy_entry(name).await? {
            return self.copy_info(&entry).await;
        }
        let (entry, document) = self.replica_document(name).await?;
        let source = entry.source.unwrap_or(entry.info.id);
        let mut info = info_of(&document.unwrap_or_else(|| Document::new(source)), &*self.backing.clock);
        for (number, clone) in self.read().await?.0.clones_of(entry.info.id) {
            let of = info.snapshots.iter_mut().find(|snapshot| snapshot.number == number);
            of.into_iter().for_each(|snapshot| snapshot.clones.push(clone.clone()));
        }
        Ok(info)
    }

    /// What came of a snapshot that did not come whole, for the sender; `None`: nothing did.
    #[boxed]
    pub async fn resume(&self, name: &str) -> FsResult<Option<Resume>> {
        if self.copy_entry(name).await?.is_some() {
            return Ok(None);
        }
        let (entry, document) = self.replica_document(name).await?;
        let Some((document, partial)) = document.and_then(|document| {
            let partial = document.partial.clone()?;
            Some((document, partial))
        }) else {
            return Ok(None);
        };
        let mut segments = BTreeSet::new();
        let mut listed = self.backing.store.list(Some(&prefix_of(entry.info.id).join("seg")));
        while let Some(object) = listed.next().await {
            let object = object.map_err(|error| store_error(&error))?;
            let number = object.location.filename().and_then(|name| u64::from_str_radix(name, 16).ok());
            segments.extend(number.filter(|number| !document.objects.contains_key(&segment_path(*number))));
        }
        let Partial { to, from } = partial;
        Ok(Some(Resume { source: document.source, to, from, segments: ranges_of(segments) }))
    }

    /// Removes snapshots of a replica, by name, and the objects that only they need.
    #[boxed]
    pub async fn forget_received(&self, name: &str, snapshots: &[String]) -> FsResult<()> {
        let alone = self.alone_for_owner(name).await?;
        if self.copy_entry(name).await?.is_some() {
            let destroyed = self.copied(name).await?.destroy_snapshots(snapshots).await;
            return destroyed.map_err(|(_, error)| error);
        }
        let (_, document) = self.replica_document(name).await?;
        let document = document.ok_or(FsError::NotFound)?;
        let number = |name: &String| document.number_of(name).ok_or(FsError::NotFound);
        let numbers = snapshots.iter().map(number).collect::<FsResult<Vec<u64>>>()?;
        self.forget_numbers(name, &numbers, &alone).await
    }

    /// As [`Registry::forget_received`], by number, and [`FsError::Busy`] while a snapshot is received.
    #[boxed]
    pub async fn thin_received(&self, name: &str, numbers: &[u64]) -> FsResult<()> {
        let alone = self.receive_alone(name)?;
        if self.copy_entry(name).await?.is_some() {
            let copy = self.copied(name).await?;
            let names = copy.state.catalog.names().into_iter().filter(|(number, _)| numbers.contains(number));
            let destroyed = copy.destroy_snapshots(&names.map(|(_, name)| name).collect::<Vec<_>>()).await;
            return destroyed.map_err(|(_, error)| error);
        }
        self.forget_numbers(name, numbers, &alone).await
    }

    async fn forget_numbers(&self, name: &str, numbers: &[u64], _alone: &Alone) -> FsResult<()> {
        let (entry, document) = self.replica_document(name).await?;
        let mut document = document.ok_or(FsError::NotFound)?;
        let now = self.backing.clock.box_now();
        let goes = |received: &&Received| numbers.contains(&received.identity.number);
        if document.snapshots.iter().filter(goes).any(|received| is_held(&received.holds(), now)) {
            return Err(FsError::Busy("the snapshot is held"));
        }
        let clones = self.read().await?.0.clones_of(entry.info.id);
        if clones.iter().any(|(number, _)| numbers.contains(number)) {
            return Err(FsError::Busy(HAS_CLONES));
        }
        let unneeded = document.remove(numbers);
        let (store, prefix) = (&*self.backing.store, prefix_of(entry.info.id));
        document.write(store, &prefix).await?;
        for path in unneeded {
            match store.delete(&below(&prefix, &path)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => tracing::warn!(path, %error, "an object of a snapshot that is gone stays for now"),
            }
        }
        Ok(())
    }

    /// Keeps a snapshot of a replica from being removed, as [`Volume::hold_snapshot`](crate::Volume::hold_snapshot) does at its volume.
    #[boxed]
    pub async fn hold_received(
        &self,
        name: &str,
        snapshot: &str,
        reason: &str,
        until: Option<Timestamp>,
    ) -> FsResult<()> {
        if self.copy_entry(name).await?.is_some() {
            return self.copied(name).await?.hold_snapshot(snapshot, reason, until).await;
        }
        let now = self.backing.clock.box_now();
        let until = holds::kept(until, self.backing.clock.ahead_secs());
        self.change_holds(name, snapshot, |held| holds::add(held, reason, until, now)).await
    }

    /// Ends a hold, as [`Volume::release_snapshot`](crate::Volume::release_snapshot) does.
    #[boxed]
    pub async fn release_received(&self, name: &str, snapshot: &str, reason: &str) -> FsResult<()> {
        if self.copy_entry(name).await?.is_some() {
            return self.copied(name).await?.release_snapshot(snapshot, reason).await;
        }
        let now = self.backing.clock.box_now();
        self.change_holds(name, snapshot, |held| holds::release(held, reason, now)).await
    }

    async fn change_holds(
        &self,
        name: &str,
        snapshot: &str,
        change: impl FnOnce(&mut Vec<Hold>) -> FsResult<()>,
    ) -> FsResult<()> {
        let _alone = self.alone_for_owner(name).await?;
        let (entry, document) = self.replica_document(name).await?;
        let mut document = document.ok_or(FsError::NotFound)?;
        let received = document.named(snapshot).ok_or(FsError::NotFound)?;
        let mut held = received.holds();
        change(&mut held)?;
        received.set_holds(&held);
        mark(&*self.backing.store, entry.info.id, features::REPLICA_HOLDS).await?;
        document.write(&*self.backing.store, &prefix_of(entry.info.id)).await
    }

    /// The entry of a copy as files; `None`: it is another kind of volume.
    async fn copy_entry(&self, name: &str) -> FsResult<Option<VolumeEntry>> {
        let (mut registry, _) = self.read().await?;
        let entry = self.find(&mut registry, name)?;
        Ok(entry.has(features::COPY).then(|| entry.clone()))
    }

    pub(crate) async fn replica_document(&self, name: &str) -> FsResult<(VolumeEntry, Option<Document>)> {
        let (mut registry, _) = self.read().await?;
        let entry = self.find(&mut registry, name)?.clone();
        if entry.has(features::COPY) {
            return Err(refused(format!(
                "'{name}' is a copy as files: make a volume of it first with larder volume promote {name}"
            )));
        }
        if !entry.info().replica {
            return Err(refused(format!("'{name}' is a volume of its own, not a replica")));
        }
        let document = Document::read(&*self.backing.store, &prefix_of(entry.info.id)).await?;
        Ok((entry, document))
    }
}

/// Refuses a stream that does not fit what is there.
fn check_fit(name: &str, header: &Header, document: &Document) -> FsResult<()> {
    if header.former_sources.contains(&document.source) {
        return Err(refused(format!(
            "the volume was encrypted or re-keyed after the newest snapshot of '{name}', which lacks its keys: send a whole snapshot \
             without --from into a new name, then destroy '{name}'"
        )));
    }
    if document.source != header.source {
        return Err(refused(format!("'{name}' is a replica of another volume: receive into a new name")));
    }
    let to = &header.to;
    if header.keyring_only {
        return match document.find(to) {
            Some(_) if header.sealed && header.from.is_none() => Ok(()),
            _ => Err(refused(format!(
                "'{name}' lacks the snapshot '{}', whose keys come: send the snapshot first",
                to.name
            ))),
        };
    }
    if document.find(to).is_some() {
        return Err(refused(format!("'{name}' has the snapshot '{}' already", to.name)));
    }
    let newest = document.newest().map(|received| &received.identity);
    if let Some(newest) = newest.filter(|newest| newest.number >= to.number) {
        let way_out = match header.from.as_ref().filter(|from| document.find(from).is_some()) {
            Some(base) => format!(
                "the stream goes on from '{}', which both have: remove the later ones with larder snap destroy {name}@{}, then send it again",
                base.name, newest.name
            ),
            None => format!("send from '{}' on", newest.name),
        };
        return Err(refused(format!(
            "'{name}' has the snapshot '{}', which is newer than '{}' or of another history: {way_out}",
            newest.name, to.name
        )));
    }
    match (&header.from, newest) {
        (Some(from), _) if document.find(from).is_none() => Err(refused(match newest {
            Some(newest) => format!(
                "the stream goes on from the snapshot '{}', which '{name}' does not have; the newest it has is '{}': send with --from {}",
                from.name, newest.name, newest.name
            ),
            None => format!(
                "the stream goes on from the snapshot '{}', and '{name}' has none: send without --from",
                from.name
            ),
        })),
        (None, Some(newest)) => Err(refused(format!(
            "the stream begins anew, and '{name}' has the snapshot '{}': send with --from {}, or receive into a new name",
            newest.name, newest.name
        ))),
        _ => Ok(()),
    }
}

/// Only objects that a snapshot is made of, so that nothing else of the store is in anybody's reach.
fn check_path(path: &str, bytes: u64, header: &Header) -> FsResult<()> {
    let hex = |text: &str| text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_known = match path.split_once('/') {
        Some(("seg", number)) => hex(number),
        Some(("snap", _)) => path == image_path(header.to.number) && bytes <= IMAGE_OBJECT_BYTES_MAX,
        Some(("meta", table)) => {
            let id = table.strip_prefix("compacted/").and_then(|name| name.strip_suffix(".sst"));
            id.is_some_and(|id| Ulid::from_string(id).is_ok_and(|ulid| ulid.to_string() == id)) && !header.is_delta
        }
        Some(_) => false,
        None => header.sealed && path == KEYRING && bytes <= KEYRING_BYTES_MAX,
    };
    if is_known && (1..=OBJECT_BYTES_MAX).contains(&bytes) {
        return Ok(());
    }
    Err(refused(format!("the stream has an object '{}' that no snapshot has", path.escape_default())))
}

/// A keyring, which is short.
async fn take_keyring(frames: &mut Decoder<'_>, bytes: u64) -> FsResult<Bytes> {
    let mut keyring = BytesMut::new();
    let mut left = bytes;
    while left > 0 {
        keyring.extend_from_slice(&data_of(frames, &mut left).await?);
    }
    Ok(keyring.freeze())
}

/// Reads the data of one object, and puts it at `at`.
async fn take_object(frames: &mut Decoder<'_>, store: &dyn ObjectStore, at: &Path, bytes: u64) -> FsResult<()> {
    if bytes <= PART_BYTES {
        let whole = take_part(frames, bytes, &mut { bytes }).await?;
        return store.put(at, whole).await.map(drop).map_err(|error| store_error(&error));
    }
    let mut upload = store.put_multipart(at).await.map_err(|error| store_error(&error))?;
    match take_parts(frames, &mut *upload, bytes).await {
        Ok(()) => upload.complete().await.map(drop).map_err(|error| store_error(&error)),
        Err(error) => {
            // The first error is the one to tell.
            let _ = upload.abort().await;
            Err(error)
        }
    }
}

async fn take_parts(frames: &mut Decoder<'_>, upload: &mut dyn MultipartUpload, bytes: u64) -> FsResult<()> {
    let mut left = bytes;
    while left > 0 {
        let part = take_part(frames, PART_BYTES, &mut left).await?;
        upload.put_part(part).await.map_err(|error| store_error(&error))?;
    }
    Ok(())
}

/// At least `bytes` of an object of which `left` are to come, if there are as many.
async fn take_part(frames: &mut Decoder<'_>, bytes: u64, left: &mut u64) -> FsResult<PutPayload> {
    let (mut pieces, mut length) = (Vec::new(), 0);
    while *left > 0 && length < bytes {
        let data = data_of(frames, left).await?;
        length += data.len() as u64;
        pieces.push(data);
    }
    Ok(PutPayload::from_iter(pieces))
}

/// Reads the data of an object that a snapshot of the replica needs already: it must be the same
/// (`replica.nothing_overwritten`).
async fn compare_object(frames: &mut Decoder<'_>, store: &dyn ObjectStore, at: &Path, bytes: u64) -> FsResult<()> {
    let mut own = store.get(at).await.map_err(|error| store_error(&error))?.into_stream();
    let (mut held, mut left, mut is_same) = (Bytes::new(), bytes, true);
    while left > 0 {
        let mut data = data_of(frames, &mut left).await?;
        while is_same && !data.is_empty() {
            if held.is_empty() {
                match own.next().await {
                    Some(more) => held = more.map_err(|error| store_error(&error))?,
                    None => is_same = false,
                }
                continue;
            }
            let count = held.len().min(data.len());
            is_same = held.split_to(count) == data.split_to(count);
        }
    }
    if is_same && held.is_empty() && own.next().await.is_none() {
        return Ok(());
    }
    Err(refused(format!(
        "the stream has another {at} than the replica: their histories differ; receive into a new name"
    )))
}

/// The next piece of an object of which `left` bytes are to come.
async fn data_of(frames: &mut Decoder<'_>, left: &mut u64) -> FsResult<Bytes> {
    let Frame::Data(data) = frames.next().await? else {
        return Err(refused("the stream cuts an object short".into()));
    };
    *left = left
        .checked_sub(data.len() as u64)
        .filter(|_| !data.is_empty())
        .ok_or_else(|| refused("the stream has more of an object than it said".into()))?;
    Ok(data)
}

/// Segments that an earlier attempt has stored, and their lengths.
async fn left_over(store: &dyn ObjectStore, prefix: &Path, document: &Document) -> FsResult<BTreeMap<String, u64>> {
    let mut out = BTreeMap::new();
    let mut listed = store.list(Some(&prefix.clone().join("seg")));
    while let Some(object) = listed.next().await {
        let object = object.map_err(|error| store_error(&error))?;
        let path = object.location.filename().map(|name| format!("seg/{name}"));
        out.extend(path.filter(|path| !document.objects.contains_key(path)).map(|path| (path, object.size)));
    }
    Ok(out)
}

/// The objects of a stream up to its end, what the snapshot finds there beside what the replica had, and the volume's keyring, if the
/// replica has one already.
async fn take_objects(
    reception: &Reception<'_>,
    document: &Document,
    frames: &mut Decoder<'_>,
    store: &dyn ObjectStore,
) -> FsResult<(End, BTreeMap<String, u64>, Option<Bytes>)> {
    let Reception { name, header, limits, prefix, resumed } = reception;
    let left_over = if *resumed { left_over(store, prefix, document).await? } else { BTreeMap::new() };
    let mut budget = Budget::new(name, *limits, document, &left_over);
    let mut came: BTreeMap<String, u64> = BTreeMap::new();
    let mut keyring = None;
    let end = loop {
        match frames.next().await? {
            Frame::Object { path, bytes } => {
                check_path(&path, bytes, header)?;
                let at = below(prefix, &path);
                if path == KEYRING && !document.snapshots.is_empty() {
                    keyring = Some(take_keyring(frames, bytes).await?);
                } else if document.objects.contains_key(&path) {
                    compare_object(frames, store, &at, bytes).await?;
                } else {
                    budget.take(&path, bytes, came.get(&path).copied())?;
                    take_object(frames, store, &at, bytes).await?;
                }
                came.insert(path, bytes);
            }
            Frame::End(end) => break end,
            _ => return Err(refused("the stream has a frame where none may be".into())),
        }
    };
    if end.objects != came.len() as u64 {
        return Err(refused("the stream lacks objects that it promised".into()));
    }
    // Segments that an earlier attempt has stored. The first that is nowhere is the reason to refuse the stream.
    for number in numbers_of(&end.segments)? {
        let path = segment_path(number);
        match left_over.get(&path) {
            Some(&bytes) => drop(came.entry(path).or_insert(bytes)),
            None if came.contains_key(&path) || document.objects.contains_key(&path) => {}
            None => break,
        }
    }
    Ok((end, came, keyring))
}

impl Document {
    /// A snapshot begins to come. Whether a part of it is there already.
    fn begin(&mut self, header: &Header) -> bool {
        let is_same = |partial: &Partial| partial.to.is(&header.to);
        let resumed = self.partial.as_ref().is_some_and(is_same);
        self.partial = Some(Partial { to: header.to.clone(), from: header.from.clone() });
        resumed
    }

    /// The snapshot is there with all that it needs, or it is refused.
    fn enter(&mut self, header: &Header, end: &End, came: &BTreeMap<String, u64>, wall: Timestamp) -> FsResult<()> {
        let number = header.to.number;
        if header.sealed && header.from.is_none() && !came.contains_key(KEYRING) {
            return Err(refused(
                "the stream is of an encrypted volume and lacks its keyring: nobody could unlock it".into(),
            ));
        }
        if let Some(other) = end.tables.iter().find(|path| !path.starts_with("meta/")) {
            return Err(refused(format!("the stream has a table '{}', which no snapshot has", other.escape_default())));
        }
        // The keyring is everybody's.
        let beside: Vec<&String> = came.keys().chain(self.objects.keys()).filter(|path| !path.contains('/')).collect();
        let needed = numbers_of(&end.segments)?.map(segment_path).chain(end.tables.iter().cloned());
        let needed = needed.chain([image_path(number)]).chain(beside.into_iter().cloned());
        let mut kept = BTreeMap::new();
        for path in needed {
            let there = came.get(&path).copied().or_else(|| self.objects.get(&path).map(|kept| kept.bytes));
            let bytes = there.ok_or_else(|| {
                refused(format!(
                    "the stream needs {path}, which is neither in it nor in the replica: send it again, whole"
                ))
            })?;
            kept.insert(path, bytes);
        }
        if let Some(unneeded) = came.keys().find(|path| !kept.contains_key(*path)) {
            return Err(refused(format!("the stream has {unneeded}, which its snapshot does not need")));
        }
        if header.is_delta {
            let from = header.from.as_ref().ok_or_else(|| refused("the stream has a part of nothing".into()))?;
            kept.extend(self.metadata_of(from.number));
        } else if end.tables.is_empty() {
            return Err(refused("the stream has no metadata".into()));
        }
        kept.into_iter().for_each(|(path, bytes)| self.keep(&path, bytes, number));
        let over = header.from.as_ref().filter(|_| header.is_delta).map(|from| from.number);
        let from = header.from.as_ref().map(|from| from.number);
        let arrived = Some(self.tick(wall));
        let identity = Identity { name: self.free_name(&header.to), ..header.to.clone() };
        self.snapshots.push(Received { identity, over, from, arrived, holds: Vec::new() });
        self.partial = None;
        Ok(())
    }

    /// The name of a snapshot that arrives. Two of one name would be mistaken for each other, so the later one gets its number, too.
    fn free_name(&self, identity: &Identity) -> String {
        let mut name = identity.name.clone();
        let mut number = identity.number;
        while self.number_of(&name).is_some() {
            let ending = format!("-{number}");
            let kept = identity.name.len().min(NAME_LEN_MAX - ending.len());
            name = format!("{}{ending}", identity.name.get(..kept).unwrap_or_default());
            number += 1;
        }
        name
    }
}

fn info_of(document: &Document, clock: &dyn Clock) -> ReplicaInfo {
    let here = document.now(clock.now());
    let (used, referenced) = (document.used(), document.referenced());
    let snapshot = |received: &Received| ReplicaSnapshot {
        name: received.identity.name.clone(),
        number: received.identity.number,
        created: time_of(received.identity.created_ns),
        arrived: received.arrived.unwrap_or(here),
        used_bytes: used.get(&received.identity.number).copied().unwrap_or(0),
        referenced_bytes: referenced.get(&received.identity.number).copied().unwrap_or(0),
        holds: holds::shown(received.holds(), clock),
        clones: Vec::new(),
    };
    ReplicaInfo {
        source: document.source,
        now: here,
        snapshots: document.snapshots.iter().map(snapshot).collect(),
        bytes: document.objects.values().map(|kept| kept.bytes).sum(),
        unfinished: document.partial.as_ref().map(|partial| partial.to.name.clone()),
    }
}

/// Deletes what no snapshot needs: an attempt that was given up has left it, or a crash while snapshots were forgotten.
async fn sweep(store: &dyn ObjectStore, prefix: &Path, document: &Document) -> FsResult<()> {
    let own = document::path(prefix);
    let mut listed = store.list(Some(prefix));
    let mut unknown = Vec::new();
    while let Some(object) = listed.next().await {
        let at = object.map_err(|error| store_error(&error))?.location;
        if at != own && !document.has(prefix, &at) {
            unknown.push(at);
        }
    }
    for at in unknown {
        store.delete(&at).await.map_err(|error| store_error(&error))?;
    }
    Ok(())
}
