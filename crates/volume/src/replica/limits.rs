//! Bounds on all that a stream can say. Its sender may be in the hands of somebody else (`replica.sender_is_a_stranger`).

use std::collections::BTreeMap;

use larder_fs::{FsError, FsResult};

use super::OBJECTS_MAX;
use super::document::Document;
use super::stream::{Header, Identity};
use crate::registry::check_volume_name;
use crate::snapshots::create::check_name;

/// Snapshots of a replica. Four kinds of a schedule at their largest are as many; every reception writes the list anew.
pub(super) const SNAPSHOTS_MAX: usize = 10_000;
/// Snapshots that arrive within an hour. A first replication of a long history is spread over a few hours.
pub(super) const SNAPSHOTS_AN_HOUR_MAX: usize = 1_000;
/// An object counts for at least this much of a quota: many tiny ones cost room in lists and on disks, too.
const OBJECT_CHARGE_BYTES: u64 = 4 << 10;
/// A volume that took a snapshot each second would reach it after millions of years; beyond it numbers could overflow.
const NUMBER_MAX: u64 = 1 << 48;
/// The longest image that is ever read (`snapshots::image`).
pub(super) const IMAGE_BYTES_MAX: u64 = 1 << 30;
/// Features that a stream names, and the letters of one.
const FEATURES_MAX: usize = 64;
const FEATURE_BYTES_MAX: usize = 64;
/// Quotas of users and groups that come with a volume.
const OWNER_QUOTAS_MAX: usize = 10_000;
const HOUR_SECS: i64 = 3600;

/// The owner's bounds on a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveLimits {
    /// The most bytes of the store, before redundancy, that the replica may take up. `None`: as many as there are.
    pub quota_bytes: Option<u64>,
}

pub(super) fn refused(why: String) -> FsError {
    FsError::Refused(why.into())
}

/// Whether all that the header says may be kept and shown.
pub(super) fn check_header(header: &Header) -> FsResult<()> {
    let Header { volume, features, from, to, properties, .. } = header;
    if check_volume_name(volume).is_err() {
        return Err(refused(format!("the stream names a volume \"{}\", which none can have", volume.escape_debug())));
    }
    check_identity(to)?;
    from.as_ref().map_or(Ok(()), check_identity)?;
    if from.as_ref().is_some_and(|from| from.number >= to.number) {
        return Err(refused("the stream goes on from a snapshot that is not older than its own".into()));
    }
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_feature = |name: &String| name.len() <= FEATURE_BYTES_MAX && name.bytes().all(legal);
    if features.len() > FEATURES_MAX || !features.iter().all(is_feature) {
        return Err(refused("the stream names features that no volume has".into()));
    }
    let quotas = &properties.owner_quotas;
    if quotas.users.len() + quotas.groups.len() > OWNER_QUOTAS_MAX {
        return Err(refused(format!("the stream has more than {OWNER_QUOTAS_MAX} quotas of users and groups")));
    }
    Ok(())
}

fn check_identity(identity: &Identity) -> FsResult<()> {
    if check_name(&identity.name).is_err() {
        let name = identity.name.chars().take(64).collect::<String>();
        return Err(refused(format!(
            "the stream names a snapshot \"{}\", which none can have: a name is 1 to 200 of A-Z, a-z, 0-9, '_', '.', '+', '-'; \
             rename it at the sender with larder snap rename",
            name.escape_debug()
        )));
    }
    if identity.number >= NUMBER_MAX {
        return Err(refused(format!("the stream has a snapshot with the impossible number {}", identity.number)));
    }
    Ok(())
}

/// Whether one more snapshot may come into the replica now, in seconds of its own time.
pub(super) fn check_count(name: &str, document: &Document, now: i64) -> FsResult<()> {
    if document.snapshots.len() >= SNAPSHOTS_MAX {
        return Err(refused(format!(
            "the replica '{name}' has {SNAPSHOTS_MAX} snapshots, as many as one may have: remove some there with larder snap destroy \
             {name}@FIRST..LAST"
        )));
    }
    let is_recent = |arrived: &i64| now.saturating_sub(*arrived) < HOUR_SECS;
    let recent = document.snapshots.iter().filter_map(|received| received.arrived).filter(is_recent).count();
    if recent >= SNAPSHOTS_AN_HOUR_MAX {
        return Err(refused(format!(
            "the replica '{name}' took {SNAPSHOTS_AN_HOUR_MAX} snapshots within an hour, as many as it may: the next comes in later, and \
             nothing needs to be done"
        )));
    }
    Ok(())
}

/// The room and the objects that a stream has left. Kept while it arrives.
pub(super) struct Budget<'a> {
    name: &'a str,
    quota_bytes: Option<u64>,
    /// Charged bytes of what the replica has, and of what came.
    used_bytes: u64,
    objects: u64,
    /// Objects that an earlier attempt left, which count until they are replaced.
    left_over: &'a BTreeMap<String, u64>,
}

fn charge(bytes: u64) -> u64 {
    bytes.max(OBJECT_CHARGE_BYTES)
}

impl<'a> Budget<'a> {
    pub(super) fn new(
        name: &'a str,
        limits: ReceiveLimits,
        document: &Document,
        left_over: &'a BTreeMap<String, u64>,
    ) -> Self {
        let kept = document.objects.values().map(|kept| kept.bytes);
        let used_bytes = kept.chain(left_over.values().copied()).map(charge).fold(0, u64::saturating_add);
        let objects = (document.objects.len() + left_over.len()) as u64;
        Self { name, quota_bytes: limits.quota_bytes, used_bytes, objects, left_over }
    }

    /// An object of `bytes` bytes is to come; `before` is its length if the stream had one of this path already.
    pub(super) fn take(&mut self, path: &str, bytes: u64, before: Option<u64>) -> FsResult<()> {
        let replaced = before.or_else(|| self.left_over.get(path).copied());
        self.used_bytes = self.used_bytes.saturating_sub(replaced.map_or(0, charge)).saturating_add(charge(bytes));
        self.objects += u64::from(replaced.is_none());
        let Self { name, used_bytes, .. } = self;
        if self.objects > OBJECTS_MAX {
            return Err(refused(format!("the replica '{name}' would have more than {OBJECTS_MAX} objects")));
        }
        match self.quota_bytes {
            Some(quota) if *used_bytes > quota => Err(refused(format!(
                "the replica '{name}' would take up {used_bytes} bytes, more than its quota of {quota}: remove snapshots there with larder snap \
                 destroy {name}@NAME, or give it more with larder replicate accept {name} --quota SIZE"
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::properties::Properties;

    fn header(name: &str) -> Header {
        Header {
            source: uuid::Uuid::from_u128(1),
            former_sources: Vec::new(),
            volume: "v".into(),
            properties: Properties::default(),
            sealed: false,
            features: vec!["snapshots".into()],
            from: Some(Identity { number: 1, name: "before".into(), created_ns: 1 }),
            to: Identity { number: 2, name: name.into(), created_ns: 5 },
            is_delta: false,
            bytes: 9,
            keyring_only: false,
        }
    }

    #[test]
    fn names_of_a_stream_are_those_that_a_snapshot_can_have() {
        assert!(check_header(&header("auto-2026-11-25_04-00Z")).is_ok());
        let long = "x".repeat(201);
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "../x",
            "a\nb",
            "a\0b",
            "\u{1b}]0;owned\u{7}",
            "a\u{202e}b",
            "a b",
            "a@b",
            "ä",
            &long,
        ] {
            let why = check_header(&header(name)).unwrap_err().to_string();
            assert!(why.bytes().all(|byte| (b' '..=b'~').contains(&byte)) || name == "ä", "{why:?}");
            let from = Some(Identity { number: 1, name: name.to_owned(), created_ns: 1 });
            assert!(check_header(&Header { from, ..header("a") }).is_err(), "{name:?}");
            assert!(check_header(&Header { volume: name.to_owned(), ..header("a") }).is_err(), "{name:?}");
            let features = vec![name.to_owned()];
            assert!(name.is_empty() || check_header(&Header { features, ..header("a") }).is_err(), "{name:?}");
        }
    }

    #[test]
    fn numbers_and_counts_are_bounded() {
        let numbered = |number| Header { to: Identity { number, ..header("a").to }, ..header("a") };
        assert!(check_header(&numbered(NUMBER_MAX - 1)).is_ok());
        for number in [0, 1, NUMBER_MAX, u64::MAX] {
            assert!(check_header(&numbered(number)).is_err(), "{number}");
        }
        let many = Header { features: vec!["snapshots".into(); FEATURES_MAX + 1], ..header("a") };
        assert!(check_header(&many).is_err());
    }

    #[test]
    fn a_quota_counts_all_that_comes() {
        let document = Document::new(uuid::Uuid::from_u128(1));
        let left_over = BTreeMap::from([("seg/1".to_owned(), 10_000)]);
        let limits = ReceiveLimits { quota_bytes: Some(30_000) };
        let mut budget = Budget::new("r", limits, &document, &left_over);
        budget.take("seg/1", 12_000, None).unwrap();
        budget.take("seg/1", 12_000, Some(12_000)).unwrap();
        budget.take("seg/2", 12_000, None).unwrap();
        budget.take("seg/3", 1, None).unwrap();
        let why = budget.take("seg/4", 1, None).unwrap_err().to_string();
        assert!(why.contains("quota of 30000") && why.contains("'r'"), "{why}");
        assert!(Budget::new("r", limits, &document, &left_over).take("seg/9", u64::MAX, None).is_err());
    }
}
