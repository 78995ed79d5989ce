//! `replica.json` of a replica: the snapshots that it has, and the objects that they need.
//!
//! - `replica.objects_before_document`: a snapshot is in the document once all of its objects are durable, and an object is
//!   deleted once no snapshot of the document needs it.
//! - `replica.one_range_an_object`: the snapshots that need an object lie side by side, from `first` to `last`. One between
//!   them that was never received, or that does not need it, costs nothing but room.

use std::collections::{BTreeMap, BTreeSet};

use larder_base::Timestamp;
use larder_fs::{FsError, FsResult, Hold};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use serde::{Deserialize, Serialize};

use super::arrival::ReceiverTime;
use super::stream::Identity;
use crate::registry::document::store_text;

const FORMAT: u32 = 1;
/// The keyring of an encrypted volume, below its prefix.
pub(super) const KEYRING: &str = "keyring.json";
/// A larger document is not ours.
const DOCUMENT_BYTES_MAX: u64 = 1 << 30;

/// A snapshot of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Received {
    #[serde(flatten)]
    pub(super) identity: Identity,
    /// The snapshot that its image lies over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) over: Option<u64>,
    /// The snapshot that it was sent from. `None`: it came whole, or before this was written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<u64>,
    /// The moment it arrived, by the replica's time ([`ReceiverTime`]). `None`: an older program took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) arrived: Option<i64>,
    /// The reasons to keep it here (feature `replica-holds`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) holds: Vec<Held>,
}

/// A [`Hold`], as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    reason: String,
    /// Seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<i64>,
}

impl Received {
    pub(super) fn holds(&self) -> Vec<Hold> {
        let hold =
            |held: &Held| Hold { reason: held.reason.clone(), until: held.until.map(|secs| Timestamp::new(secs, 0)) };
        self.holds.iter().map(hold).collect()
    }

    pub(super) fn set_holds(&mut self, holds: &[Hold]) {
        let held = |hold: &Hold| Held { reason: hold.reason.clone(), until: hold.until.map(|until| until.secs) };
        self.holds = holds.iter().map(held).collect();
    }
}

/// An object, and the first and the last snapshot that need it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) bytes: u64,
    pub(super) first: u64,
    pub(super) last: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Document {
    format: u32,
    /// See `Header::source`.
    pub(super) source: uuid::Uuid,
    /// Oldest first.
    pub(super) snapshots: Vec<Received>,
    /// By their paths below the replica's prefix.
    pub(super) objects: BTreeMap<String, Kept>,
    /// A snapshot of which a part may be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) partial: Option<Partial>,
    /// A promotion has begun: images are as it wrote them, and have other lengths than those that came.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) promoting: bool,
    /// The replica's time when this was written. `None`: an older program wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) time: Option<ReceiverTime>,
}

/// A snapshot that began to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Partial {
    pub(super) to: Identity,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<Identity>,
}

pub(crate) fn path(prefix: &Path) -> Path {
    prefix.clone().join("replica.json")
}

impl Document {
    pub(super) fn new(source: uuid::Uuid) -> Self {
        Self {
            format: FORMAT,
            source,
            snapshots: Vec::new(),
            objects: BTreeMap::new(),
            partial: None,
            promoting: false,
            time: None,
        }
    }

    /// The replica's time now, in seconds since 1970.
    pub(super) fn now(&self, wall: Timestamp) -> i64 {
        ReceiverTime::after(self.time.as_ref(), wall).now()
    }

    /// Brings the replica's time up to the present, and returns it in seconds since 1970 (`arrival.unknown_is_now`).
    pub(super) fn tick(&mut self, wall: Timestamp) -> i64 {
        let time = ReceiverTime::after(self.time.as_ref(), wall);
        let now = time.now();
        self.time = Some(time);
        self.snapshots.iter_mut().for_each(|received| {
            received.arrived.get_or_insert(now);
        });
        now
    }

    /// `None`: nothing was received whole.
    pub(super) async fn read(store: &dyn ObjectStore, prefix: &Path) -> FsResult<Option<Self>> {
        let failed =
            |error: object_store::Error| FsError::Io(format!("the replica's document: {}", store_text(&error)).into());
        let got = match store.get(&path(prefix)).await {
            Ok(got) => got,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        if got.meta.size > DOCUMENT_BYTES_MAX {
            return Err(FsError::Io("the replica's document is larger than one can be".into()));
        }
        Self::decode(&got.bytes().await.map_err(failed)?).map(Some)
    }

    pub(super) fn decode(text: &[u8]) -> FsResult<Self> {
        let damaged = |why: String| FsError::Io(format!("the replica's document is damaged: {why}").into());
        let document: Self = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
        if document.format != FORMAT {
            let why = format!("the replica's document has format {}: a newer larder is needed", document.format);
            return Err(FsError::Unsupported(why.into()));
        }
        // `replica.one_range_an_object`: there is no range from a later snapshot to an earlier one.
        match document.objects.iter().find(|(_, kept)| kept.first > kept.last) {
            Some((path, _)) => Err(damaged(format!("no snapshot can need {path:?}"))),
            None => Ok(document),
        }
    }

    pub(super) async fn write(&self, store: &dyn ObjectStore, prefix: &Path) -> FsResult<()> {
        let text = serde_json::to_vec(self).map_err(|error| FsError::Io(error.to_string().into()))?;
        let put = store.put(&path(prefix), text.into()).await;
        put.map(drop).map_err(|error| FsError::Io(format!("the replica's document: {}", store_text(&error)).into()))
    }

    pub(super) fn named(&mut self, name: &str) -> Option<&mut Received> {
        self.snapshots.iter_mut().find(|received| received.identity.name == name)
    }

    pub(super) fn newest(&self) -> Option<&Received> {
        self.snapshots.last()
    }

    pub(super) fn find(&self, wanted: &Identity) -> Option<&Received> {
        self.snapshots.iter().find(|received| received.identity.is(wanted))
    }

    /// The number of the snapshot of this name.
    pub(crate) fn number_of(&self, name: &str) -> Option<u64> {
        let named = self.snapshots.iter().find(|received| received.identity.name == name);
        named.map(|received| received.identity.number)
    }

    /// No segment has a greater number.
    pub(crate) fn newest_segment(&self) -> u64 {
        let numbers = self.objects.keys().filter_map(|path| u64::from_str_radix(path.strip_prefix("seg/")?, 16).ok());
        numbers.max().unwrap_or(0)
    }

    /// Whether a snapshot needs the object at `at`.
    pub(super) fn has(&self, prefix: &Path, at: &Path) -> bool {
        let parts: Vec<_> = at.prefix_match(prefix).into_iter().flatten().collect();
        let path = parts.iter().map(|part| part.as_ref()).collect::<Vec<_>>().join("/");
        self.objects.contains_key(&path)
    }

    /// The snapshot needs the object, which is there.
    pub(super) fn keep(&mut self, path: &str, bytes: u64, number: u64) {
        let kept = self.objects.entry(path.to_owned()).or_insert(Kept { bytes, first: number, last: number });
        kept.bytes = bytes;
        (kept.first, kept.last) = (kept.first.min(number), kept.last.max(number));
    }

    /// Objects other than segments that reading a snapshot needs: images and tables.
    pub(super) fn metadata_of(&self, number: u64) -> Vec<(String, u64)> {
        let is_metadata = |path: &str| path.starts_with("snap/") || path.starts_with("meta/");
        let of =
            self.objects.iter().filter(|(path, kept)| is_metadata(path) && (kept.first..=kept.last).contains(&number));
        of.map(|(path, kept)| (path.clone(), kept.bytes)).collect()
    }

    /// Bytes that each snapshot alone needs.
    pub(super) fn used(&self) -> BTreeMap<u64, u64> {
        let numbers: BTreeSet<u64> = self.snapshots.iter().map(|received| received.identity.number).collect();
        let mut out = BTreeMap::new();
        for kept in self.objects.values() {
            let mut readers = numbers.range(kept.first..=kept.last);
            if let (Some(&one), None) = (readers.next(), readers.next()) {
                *out.entry(one).or_default() += kept.bytes;
            }
        }
        out
    }

    /// Bytes of the segments that each snapshot needs.
    pub(super) fn referenced(&self) -> BTreeMap<u64, u64> {
        // How many bytes begin and end to be needed at each number.
        let mut steps: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (_, kept) in self.objects.iter().filter(|(path, _)| path.starts_with("seg/")) {
            let begins = &mut steps.entry(kept.first).or_default().0;
            *begins = begins.saturating_add(kept.bytes);
            let ends = &mut steps.entry(kept.last.saturating_add(1)).or_default().1;
            *ends = ends.saturating_add(kept.bytes);
        }
        let (mut steps, mut now) = (steps.into_iter().peekable(), 0u64);
        let mut out = BTreeMap::new();
        for received in &self.snapshots {
            let number = received.identity.number;
            while let Some((_, (begin, end))) = steps.next_if(|(at, _)| *at <= number) {
                now = now.saturating_add(begin).saturating_sub(end);
            }
            out.insert(number, now);
        }
        out
    }

    /// Takes snapshots away, and returns the objects that nobody needs any more.
    pub(super) fn remove(&mut self, numbers: &[u64]) -> Vec<String> {
        self.snapshots.retain(|received| !numbers.contains(&received.identity.number));
        let left: BTreeSet<u64> = self.snapshots.iter().map(|received| received.identity.number).collect();
        let mut unneeded = Vec::new();
        self.objects.retain(|path, kept| {
            let is_needed = left.range(kept.first..=kept.last).next().is_some();
            unneeded.extend((!is_needed).then(|| path.clone()));
            is_needed
        });
        unneeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(number: u64) -> Received {
        Received {
            identity: Identity { number, name: format!("s{number}"), created_ns: 1 },
            over: None,
            from: None,
            arrived: None,
            holds: Vec::new(),
        }
    }

    #[test]
    fn a_snapshot_of_an_older_program_arrived_when_it_is_first_seen() {
        let mut document = Document::new(uuid::Uuid::from_u128(1));
        document.snapshots = vec![received(1), Received { arrived: Some(5), ..received(2) }];
        let now = document.tick(Timestamp::new(1_000_000, 0));
        assert_eq!(now, 1_000_000);
        let arrived = |document: &Document| document.snapshots.iter().map(|one| one.arrived).collect::<Vec<_>>();
        assert_eq!(arrived(&document), [Some(now), Some(5)]);
        document.tick(Timestamp::new(9_000_000, 0));
        assert_eq!(arrived(&document), [Some(now), Some(5)]);
    }

    #[test]
    fn an_object_goes_with_the_last_snapshot_that_needs_it() {
        let mut document = Document::new(uuid::Uuid::from_u128(1));
        document.snapshots = vec![received(1), received(3), received(4)];
        document.keep("seg/a", 10, 1);
        document.keep("seg/a", 10, 3);
        document.keep("snap/b", 10, 4);
        assert_eq!(document.metadata_of(4), [("snap/b".to_owned(), 10)]);
        assert_eq!(document.referenced(), BTreeMap::from([(1, 10), (3, 10), (4, 0)]));
        assert_eq!(document.remove(&[1]), Vec::<String>::new());
        assert_eq!(document.remove(&[3]), ["seg/a"]);
        assert_eq!(document.remove(&[4]), ["snap/b"]);
        assert!(document.objects.is_empty() && document.newest().is_none());
    }

    #[test]
    fn a_range_that_ends_before_it_begins_is_damage() {
        let mut document = Document::new(uuid::Uuid::from_u128(1));
        document.keep("seg/a", 10, 3);
        let text = serde_json::to_string(&document).unwrap_or_default();
        assert_eq!(Document::decode(text.as_bytes()).ok(), Some(document));
        assert!(Document::decode(text.replace("\"last\":3", "\"last\":2").as_bytes()).is_err());
    }

    #[test]
    fn golden_text() {
        let mut document = Document::new(uuid::Uuid::from_u128(1));
        document.snapshots = vec![Received { over: Some(2), from: Some(2), ..received(3) }];
        document.snapshots[0].set_holds(&[Hold { reason: "tax".into(), until: Some(Timestamp::new(5, 0)) }]);
        document.keep("seg/a", 10, 3);
        let golden = concat!(
            r#"{"format":1,"source":"00000000-0000-0000-0000-000000000001","#,
            r#""snapshots":[{"number":3,"name":"s3","created_ns":1,"over":2,"from":2,"holds":[{"reason":"tax","until":5}]}],"#,
            r#""objects":{"seg/a":{"bytes":10,"first":3,"last":3}}}"#
        );
        assert_eq!(serde_json::to_string(&document).ok().as_deref(), Some(golden));
    }
}
