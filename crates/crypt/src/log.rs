//! [`SealedLog`]: a log whose entries are sealed in another one.
//!
//! ```text
//!   0 format 1 | 1 cipher | 2 0 | 3 0 | 4 generation u32 | 8 salt [32] | 40 number u64     48 bytes, little-endian
//!  48 the entry, encrypted | tag [16]
//! ```
//! The salt is that of a session: a [`SealedLog`] draws one when it is made, and numbers what it seals. So an entry that is written
//! again after a restart, or after a log was put back as it was, has another key. An entry authenticates with its stream and its id:
//! it cannot be passed off as another one. That entries at the end are missing, the log itself notices (`LogStore::last`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use larder_base::log::{LogEntry, LogError, LogStore, MAX_PAYLOAD_BYTES, Receipt, Tenure};

use crate::SealError;
use crate::cipher::{Cipher, FrameKey, TAG_BYTES};
use crate::keys::{Keys, SALT_BYTES};

const HEADER_BYTES: usize = 48;
const FORMAT: u8 = 1;
const PURPOSE: &str = "larder log";
/// Bytes that a sealed entry is longer than its payload.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + TAG_BYTES;
/// The largest payload that still fits once it is sealed.
pub const PAYLOAD_BYTES_MAX: usize = MAX_PAYLOAD_BYTES - OVERHEAD_BYTES;

pub struct SealedLog {
    inner: Arc<dyn LogStore>,
    keys: Arc<Keys>,
    salt: [u8; SALT_BYTES],
    key: FrameKey,
    /// The number of the next entry under this salt.
    next: AtomicU64,
}

impl SealedLog {
    pub fn new(inner: Arc<dyn LogStore>, keys: Arc<Keys>) -> Result<Self, SealError> {
        let salt = keys.salt()?;
        let key = keys.derive(keys.newest(), keys.cipher(), &salt, PURPOSE, "")?;
        Ok(Self { inner, keys, salt, key, next: AtomicU64::new(0) })
    }

    fn seal(&self, stream: &str, id: u64, payload: &[Bytes]) -> Result<Bytes, SealError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let len: usize = payload.iter().map(Bytes::len).sum();
        let mut sealed = Vec::with_capacity(len + OVERHEAD_BYTES);
        sealed.extend_from_slice(&[FORMAT, self.keys.cipher().code(), 0, 0]);
        sealed.extend_from_slice(&self.keys.newest().to_le_bytes());
        sealed.extend_from_slice(&self.salt);
        sealed.extend_from_slice(&number.to_le_bytes());
        payload.iter().for_each(|piece| sealed.extend_from_slice(piece));
        let aad = identity(stream, id);
        let tag = self.key.seal(&mut sealed[HEADER_BYTES..], u128::from(number), &aad)?;
        sealed.extend_from_slice(&tag);
        Ok(sealed.into())
    }
}

/// Opens entries of `stream`, in their order. Those that do not open are left out, and said why: for whoever reads what is left.
pub fn open_entries(keys: &Keys, stream: &str, entries: &[LogEntry]) -> (Vec<LogEntry>, Vec<LogError>) {
    let (mut session, mut opened, mut faults) = (None, Vec::new(), Vec::new());
    for entry in entries {
        match open(keys, stream, entry, &mut session) {
            Ok(payload) => opened.push(LogEntry { id: entry.id, payload }),
            Err(error) => faults.push(io(stream, entry.id, error)),
        }
    }
    (opened, faults)
}

/// Opens one entry; `session` keeps the key of the session that wrote the one before.
fn open(keys: &Keys, stream: &str, entry: &LogEntry, session: &mut Option<Session>) -> Result<Bytes, SealError> {
    let (header, sealed) = entry.payload.split_first_chunk::<HEADER_BYTES>().ok_or(SealError::NotSealed)?;
    if header[0] != FORMAT {
        return Err(SealError::UnknownFormat(header[0]));
    }
    let id = Session::of_header(header)?;
    if session.as_ref().is_none_or(|session| session.id != id) {
        let key = keys.derive(id.generation, id.cipher, &id.salt, PURPOSE, "")?;
        *session = Some(Session { id, key });
    }
    let Some(session) = session else { return Err(SealError::Forged) };
    let mut number = [0; 8];
    number.copy_from_slice(&header[40..]);
    let (sealed, tag) = sealed.split_at_checked(sealed.len().wrapping_sub(TAG_BYTES)).ok_or(SealError::Forged)?;
    let mut content = vec![0; sealed.len()];
    let nonce = u128::from(u64::from_le_bytes(number));
    session.key.open(sealed, tag, nonce, &identity(stream, entry.id), &mut content)?;
    Ok(content.into())
}

struct Session {
    id: SessionId,
    key: FrameKey,
}

#[derive(PartialEq, Eq)]
struct SessionId {
    cipher: Cipher,
    generation: u32,
    salt: [u8; SALT_BYTES],
}

impl Session {
    fn of_header(header: &[u8; HEADER_BYTES]) -> Result<SessionId, SealError> {
        let cipher = Cipher::of_code(header[1]).ok_or(SealError::UnknownFormat(header[1]))?;
        if header[2..4] != [0; 2] {
            return Err(SealError::Forged);
        }
        let generation = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let mut salt = [0; SALT_BYTES];
        salt.copy_from_slice(&header[8..40]);
        Ok(SessionId { cipher, generation, salt })
    }
}

fn identity(stream: &str, id: u64) -> Vec<u8> {
    [&id.to_le_bytes()[..], stream.as_bytes()].concat()
}

fn io(stream: &str, id: u64, error: SealError) -> LogError {
    LogError::Damaged { stream: stream.to_owned(), why: format!("entry {id}: {error}") }
}

#[async_trait]
impl LogStore for SealedLog {
    async fn begin(&self, stream: &str, id: u64, payload: Vec<Bytes>) -> Result<Receipt, LogError> {
        let sealed = self.seal(stream, id, &payload).map_err(|error| io(stream, id, error))?;
        self.inner.begin(stream, id, vec![sealed]).await
    }

    async fn replay(&self, stream: &str, after: u64) -> Result<Vec<LogEntry>, LogError> {
        let mut session = None;
        let entries = self.inner.replay(stream, after).await?;
        let opened = entries.iter().map(|entry| {
            let payload = open(&self.keys, stream, entry, &mut session).map_err(|error| io(stream, entry.id, error))?;
            Ok(LogEntry { id: entry.id, payload })
        });
        opened.collect()
    }

    async fn trim(&self, stream: &str, through: u64) -> Result<(), LogError> {
        self.inner.trim(stream, through).await
    }

    async fn remove(&self, stream: &str) -> Result<(), LogError> {
        self.inner.remove(stream).await
    }

    fn is_proven(&self) -> bool {
        self.inner.is_proven()
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    async fn check_owner(&self) -> Result<(), LogError> {
        self.inner.check_owner().await
    }

    fn tenure(&self) -> Option<Arc<dyn Tenure>> {
        self.inner.tenure()
    }

    fn last(&self, stream: &str) -> Option<u64> {
        self.inner.last(stream)
    }

    fn usage(&self) -> (u64, u64) {
        self.inner.usage()
    }

    fn held_bytes(&self, stream: &str) -> u64 {
        self.inner.held_bytes(stream)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use larder_base::log::MemLog;
    use uuid::Uuid;

    use super::*;
    use crate::keys::VolumeKey;

    fn keys(key: u8) -> Arc<Keys> {
        Arc::new(Keys::new(Uuid::nil(), Cipher::Aes256Gcm, BTreeMap::from([(1, VolumeKey::new([key; 32]))])))
    }

    async fn written(entries: &[(u64, &str)]) -> (MemLog, SealedLog) {
        let inner = MemLog::default();
        let log = SealedLog::new(Arc::new(inner.clone()), keys(1)).expect("a log");
        for (id, text) in entries {
            let (a, b) = text.as_bytes().split_at(text.len() / 2);
            log.append("s", *id, vec![Bytes::copy_from_slice(a), Bytes::copy_from_slice(b)]).await.expect("appends");
        }
        (inner, log)
    }

    #[tokio::test]
    async fn entries_come_back_also_to_later_sessions_and_lie_in_clear_nowhere() {
        let (inner, log) = written(&[(3, "the first secret"), (4, ""), (9, "another secret")]).await;
        let later = SealedLog::new(Arc::new(inner.clone()), keys(1)).expect("a log");
        later.append("s", 10, vec![Bytes::from_static(b"of a later session")]).await.expect("appends");
        for log in [&log, &later] {
            let got = log.replay("s", 2).await.expect("replays");
            let texts: Vec<_> =
                got.iter().map(|entry| (entry.id, String::from_utf8_lossy(&entry.payload).into_owned())).collect();
            let expected = [(3, "the first secret"), (4, ""), (9, "another secret"), (10, "of a later session")];
            assert_eq!(texts, expected.map(|(id, text)| (id, text.to_owned())));
        }
        assert_eq!(later.replay("s", 9).await.expect("replays").len(), 1);
        for entry in inner.replay("s", 0).await.expect("replays") {
            assert!(!entry.payload.windows(6).any(|window| window == b"secret"));
        }
    }

    #[tokio::test]
    async fn other_keys_open_nothing() {
        let (inner, _) = written(&[(1, "secret")]).await;
        let other = SealedLog::new(Arc::new(inner), keys(2)).expect("a log");
        assert!(matches!(other.replay("s", 0).await, Err(LogError::Damaged { .. })));
    }

    #[tokio::test]
    async fn a_changed_or_moved_entry_is_noticed() {
        let (inner, _) = written(&[(1, "one"), (2, "two")]).await;
        let entries = inner.replay("s", 0).await.expect("replays");
        let replayed = async |stream: &str, id: u64, payload: Vec<u8>| {
            let forged = MemLog::default();
            forged.append(stream, id, vec![payload.into()]).await.expect("appends");
            SealedLog::new(Arc::new(forged), keys(1)).expect("a log").replay(stream, 0).await
        };
        assert!(replayed("s", 1, entries[0].payload.to_vec()).await.is_ok());
        assert!(replayed("s", 1, entries[1].payload.to_vec()).await.is_err(), "another id");
        assert!(replayed("t", 1, entries[0].payload.to_vec()).await.is_err(), "another stream");
        for at in 0..entries[0].payload.len() {
            let mut changed = entries[0].payload.to_vec();
            changed[at] ^= 0x10;
            assert!(replayed("s", 1, changed).await.is_err(), "byte {at}");
        }
    }

    #[tokio::test]
    async fn what_is_sealed_again_has_another_key_stream() {
        let (one, _) = written(&[(1, "the same")]).await;
        let (two, _) = written(&[(1, "the same")]).await;
        let payload = async |log: &MemLog| log.replay("s", 0).await.expect("replays")[0].payload.slice(HEADER_BYTES..);
        assert_ne!(payload(&one).await, payload(&two).await);
    }
}
