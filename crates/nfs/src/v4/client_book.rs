//! The durable record of the clients of a volume, which the volume keeps; of folders of the host a file of the daemon:
//!
//! ```text
//! larder nfs4 clients 2
//! of 6f1c...                      the volume's id in handles, or the server's name to clients: 16 bytes
//! scope 6f1c...                   in a file, where the server has an older name among servers
//! epoch 12
//! recovering 11                   while grace lasts
//! client 12 sessions 4c696e75..   the epoch, the family, a digest of the client's name for itself
//! client 12 lockers 00000000..    a client of NFS v3 with locks: its address, IPv4 as mapped into IPv6
//! checksum 0123456789abcdef       of all lines before it
//! ```
//!
//! The first version named the server and had the clients' whole names.
//!
//! - `clientbook.older_file_is_everybodys`: a file of the first version is the record of each volume without one of its
//!   own, once.
//! - `clientbook.replaced_whole`: each write replaces the record, durably. Writes are as rare as clients.
//! - `clientbook.damage_is_said`: a record that does not read is reported, and a file is put aside. Its clients reclaim
//!   nothing.
//! - `clientbook.of_this_volume`: the record of another volume, of which this one is a clone, says nothing.
//! - `clientbook.unwritable_is_remembered`: a volume that nobody can change keeps no record; its clients reclaim nothing.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use larder_base::checksum::checksum;
use larder_base::{hex, shell, task};
use larder_files::Files;
use larder_fs::FsError;

use super::clients::{Family4, OwnerKey, OwnerName};
use super::grace::ReclaimBook;

const HEADER: &str = "larder nfs4 clients 2";
const HEADER_OF_1: &str = "larder nfs4 clients 1";
const SEED: u64 = 0x6e66_7334_626f_6f6b;
/// Names of [`super::clients::CLIENTS_MAX`] clients in two epochs as the first version had them, with room to spare.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// The name of a server, or of a volume in handles.
pub type BookName = [u8; 16];

/// A change could not be made durable: whatever needed it must not be answered as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record of NFSv4 clients could not be written")]
pub struct BookFailed;

/// A record as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BookRecord {
    pub of: BookName,
    pub scope: Option<BookName>,
    pub book: ReclaimBook,
    /// Written by the first version.
    is_older: bool,
}

impl BookRecord {
    pub fn new(of: BookName, scope: Option<BookName>, book: ReclaimBook) -> Self {
        Self { of, scope, book, is_older: false }
    }
}

/// The place of a record.
pub enum BookPlace {
    /// Nothing outlives the process.
    Memory,
    File(PathBuf),
    Volume(Files),
    /// Writes wait for the gate, and are counted.
    #[cfg(test)]
    Gated(std::sync::Arc<tokio::sync::Semaphore>, std::sync::Arc<std::sync::atomic::AtomicUsize>),
}

/// A record's place, and whether it takes writes.
pub struct BookStore {
    place: BookPlace,
    /// The last write failed, which was said.
    has_failed: AtomicBool,
}

/// The daemon's file as it was found.
pub struct FoundFile {
    pub store: BookStore,
    pub record: BookRecord,
    /// Clients of an older larder, whose volumes are not known (`clientbook.older_file_is_everybodys`).
    pub of_all: Option<ReclaimBook>,
}

/// Opens the daemon's file, or begins one with `fresh` as the server's name.
pub fn open_file(path: Option<&Path>, fresh: BookName) -> FoundFile {
    let begun = BookRecord { of: fresh, ..BookRecord::default() };
    let place = path.map_or(BookPlace::Memory, |path| BookPlace::File(path.to_owned()));
    let store = BookStore { place, has_failed: AtomicBool::new(false) };
    let record = match path.map(read) {
        None => begun,
        Some(Ok(None)) => {
            // The server's name lasts from its first start on.
            if let Some((path, error)) = path.and_then(|path| Some((path, replace(path, &encode(&begun)).err()?))) {
                tracing::warn!(file = %shell::word(path), %error, "the record of NFSv4 clients cannot be written");
            }
            begun
        }
        Some(Ok(Some(record))) => record,
        Some(Err(error)) => {
            path.inspect(|path| put_aside(path, &error));
            begun
        }
    };
    let of_all = (record.is_older && !record.book.names.is_empty()).then(|| record.book.clone());
    FoundFile { store, record, of_all }
}

fn put_aside(path: &Path, error: &io::Error) {
    let aside = path.with_extension("damaged");
    tracing::warn!(
        file = %shell::word(path), %error, aside = %shell::word(&aside),
        "the record of NFSv4 clients does not read and is put aside: clients from before this start \
         cannot take back their locks"
    );
    if let Err(error) = std::fs::rename(path, &aside) {
        tracing::warn!(file = %shell::word(path), %error, "it could not be put aside");
    }
}

impl BookStore {
    pub fn of_volume(files: Files) -> Self {
        Self { place: BookPlace::Volume(files), has_failed: AtomicBool::new(false) }
    }

    #[cfg(test)]
    pub fn gated(
        gate: std::sync::Arc<tokio::sync::Semaphore>,
        writes: std::sync::Arc<std::sync::atomic::AtomicUsize>,
    ) -> Self {
        Self { place: BookPlace::Gated(gate, writes), has_failed: AtomicBool::new(false) }
    }

    /// Whether nothing is written, so that all is as durable as it will be.
    pub fn is_memory(&self) -> bool {
        matches!(self.place, BookPlace::Memory)
    }

    /// The volume's record; of one without a record `of_all`, and that it is so. Nothing in what cannot be read or belongs to
    /// another volume.
    pub async fn load(&self, of: BookName, of_all: Option<&ReclaimBook>) -> (ReclaimBook, bool) {
        match self.read(of).await {
            Some(book) => (book, false),
            None => (of_all.cloned().unwrap_or_default(), of_all.is_some()),
        }
    }

    async fn read(&self, of: BookName) -> Option<ReclaimBook> {
        let BookPlace::Volume(files) = &self.place else { return None };
        let volume = files.id();
        let record = match files.nfs_clients().await {
            Ok(None) => return None,
            Ok(Some(record)) => std::str::from_utf8(&record).ok().and_then(decode),
            Err(error) => {
                tracing::warn!(%volume, %error, "the volume's record of NFSv4 clients cannot be read");
                return Some(ReclaimBook::default());
            }
        };
        Some(match record {
            // `clientbook.of_this_volume`
            Some(record) if record.of != of => ReclaimBook::default(),
            Some(record) => record.book,
            None => {
                tracing::warn!(
                    %volume,
                    "the volume's record of NFSv4 clients does not read: clients from before this start cannot take \
                     back their locks"
                );
                ReclaimBook::default()
            }
        })
    }

    /// Durable when it returns.
    pub async fn write(&self, record: &BookRecord) -> Result<(), BookFailed> {
        let text = encode(record);
        let done = match &self.place {
            BookPlace::Memory => Ok(()),
            #[cfg(test)]
            BookPlace::Gated(gate, writes) => {
                gate.acquire().await.map_err(|_| BookFailed)?.forget();
                writes.fetch_add(1, Relaxed);
                Ok(())
            }
            BookPlace::File(path) => {
                let path = path.clone();
                let written = task::blocking(move || replace(&path, &text)).await;
                written.map_err(io::Error::other).flatten().map_err(|error| error.to_string())
            }
            BookPlace::Volume(files) => match files.set_nfs_clients(text.as_bytes()).await {
                // `clientbook.unwritable_is_remembered`
                Ok(()) | Err(FsError::ReadOnly(_)) => Ok(()),
                Err(error) => Err(error.to_string()),
            },
        };
        let has_failed = done.is_err();
        if let Err(error) = &done
            && !self.has_failed.load(Relaxed)
        {
            tracing::warn!(
                place = %self.name(), %error,
                "the record of NFSv4 clients cannot be written: clients that open files over NFSv4 wait until it can"
            );
        }
        self.has_failed.store(has_failed, Relaxed);
        done.map_err(|_| BookFailed)
    }

    fn name(&self) -> String {
        match &self.place {
            BookPlace::Memory => "memory".to_owned(),
            #[cfg(test)]
            BookPlace::Gated(..) => "a gate".to_owned(),
            BookPlace::File(path) => shell::word(path).to_string(),
            BookPlace::Volume(files) => format!("volume {}", files.id()),
        }
    }
}

fn encode(record: &BookRecord) -> String {
    let book = &record.book;
    let mut text = format!("{HEADER}\nof {}\n", hex::encode(&record.of));
    if let Some(scope) = record.scope {
        let _ = writeln!(text, "scope {}", hex::encode(&scope));
    }
    let _ = writeln!(text, "epoch {}", book.epoch);
    if let Some(epoch) = book.recovering {
        let _ = writeln!(text, "recovering {epoch}");
    }
    for (epoch, owner) in &book.names {
        let family = match owner.family {
            Family4::Zero => "zero",
            Family4::Sessions => "sessions",
            Family4::Lockers => "lockers",
        };
        let _ = writeln!(text, "client {epoch} {family} {}", hex::encode(&owner.digest));
    }
    let sum = checksum(SEED, text.as_bytes());
    let _ = writeln!(text, "checksum {sum:016x}");
    text
}

fn decode(text: &str) -> Option<BookRecord> {
    let at = text.rfind("checksum ")?;
    let (body, last) = text.split_at_checked(at)?;
    let sum = last.strip_prefix("checksum ")?.strip_suffix('\n')?;
    if u64::from_str_radix(sum, 16) != Ok(checksum(SEED, body.as_bytes())) {
        return None;
    }
    let mut lines = body.lines();
    let is_older = match lines.next()? {
        HEADER => false,
        HEADER_OF_1 => true,
        _ => return None,
    };
    let name = |hexadecimal: &str| hex::decode(hexadecimal)?.try_into().ok();
    let of: BookName = name(lines.next()?.strip_prefix(if is_older { "server " } else { "of " })?)?;
    let mut record = BookRecord { of, scope: is_older.then_some(of), book: ReclaimBook::default(), is_older };
    let (mut epoch, mut names) = (None, BTreeSet::new());
    for line in lines {
        let (word, rest) = line.split_once(' ')?;
        match word {
            "scope" => record.scope = Some(name(rest)?),
            "epoch" => epoch = Some(rest.parse().ok()?),
            "recovering" => record.book.recovering = Some(rest.parse().ok()?),
            "client" => {
                let mut words = rest.split(' ');
                let written = words.next()?.parse().ok()?;
                let family = match words.next()? {
                    "zero" => Family4::Zero,
                    "sessions" => Family4::Sessions,
                    "lockers" => Family4::Lockers,
                    _ => return None,
                };
                let id = hex::decode(words.next()?)?;
                let owner = match is_older {
                    true => OwnerName { family, id: id.into() }.key(),
                    false => OwnerKey { family, digest: id.try_into().ok()? },
                };
                names.insert((written, owner));
            }
            _ => return None,
        }
    }
    (record.book.epoch, record.book.names) = (epoch?, names);
    Some(record)
}

fn read(path: &Path) -> io::Result<Option<BookRecord>> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(about) if about.len() > FILE_BYTES_MAX => return Err(io::Error::other("it is too long")),
        Ok(_) => {}
    }
    let text = std::fs::read_to_string(path)?;
    decode(&text).map(Some).ok_or_else(|| io::Error::other("its checksum or a line is wrong"))
}

/// `clientbook.replaced_whole`
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn record() -> BookRecord {
        let mut book = ReclaimBook { epoch: 12, recovering: Some(11), names: BTreeSet::new() };
        book.names.insert((11, OwnerKey { family: Family4::Zero, digest: [0xa0; 16] }));
        book.names.insert((12, OwnerKey { family: Family4::Sessions, digest: [0xb1; 16] }));
        book.names.insert((12, OwnerKey::of_address("10.0.0.7".parse().unwrap())));
        BookRecord { of: [0x6f; 16], scope: None, book, is_older: false }
    }

    #[test]
    fn golden_text() {
        let text = encode(&record());
        let (name, zero, sessions) = ("6f".repeat(16), "a0".repeat(16), "b1".repeat(16));
        let body = format!(
            "larder nfs4 clients 2\nof {name}\nepoch 12\nrecovering 11\nclient 11 zero {zero}\nclient 12 sessions \
             {sessions}\nclient 12 lockers 00000000000000000000ffff0a000007\n"
        );
        assert_eq!(text, format!("{body}checksum {:016x}\n", checksum(SEED, body.as_bytes())));
        assert_eq!(decode(&text), Some(record()));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1);
            assert!(String::from_utf8(bytes).is_ok_and(|text| decode(&text).is_none()), "byte {at}");
            assert!(text.get(..at).is_some_and(|text| decode(text).is_none()), "{at} bytes");
        }
        let scoped = BookRecord { scope: Some([3; 16]), ..record() };
        assert_eq!(decode(&encode(&scoped)), Some(scoped));
    }

    /// `clientbook.older_file_is_everybodys`
    #[test]
    fn the_file_of_an_older_larder() {
        let body = "larder nfs4 clients 1\nserver 6f6f6f6f6f6f6f6f6f6f6f6f6f6f6f6f\nepoch 12\n\
                    client 12 sessions 4c696e7578\n";
        let text = format!("{body}checksum {:016x}\n", checksum(SEED, body.as_bytes()));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nfs4-clients");
        std::fs::write(&path, text).unwrap();
        let found = open_file(Some(&path), [1; 16]);
        let owner = OwnerName { family: Family4::Sessions, id: b"Linux"[..].into() }.key();
        assert_eq!((found.record.of, found.record.scope), ([0x6f; 16], Some([0x6f; 16])));
        assert_eq!(found.of_all.unwrap().names, BTreeSet::from([(12, owner)]));
    }

    #[tokio::test]
    async fn a_record_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nfs4-clients");
        let found = open_file(Some(&path), [1; 16]);
        assert_eq!((found.record.of, found.of_all.is_none()), ([1; 16], true));
        found.store.write(&record()).await.unwrap();
        let again = open_file(Some(&path), [2; 16]);
        assert_eq!((again.record, again.of_all), (record(), None));
        std::fs::write(&path, "nonsense").unwrap();
        assert_eq!(open_file(Some(&path), [3; 16]).record.of, [3; 16]);
        assert!(path.with_extension("damaged").exists());
    }

    #[tokio::test]
    async fn a_failure_to_write_is_one() {
        let found = open_file(Some(Path::new("/proc/nowhere/nfs4-clients")), [1; 16]);
        assert_eq!(found.store.write(&record()).await, Err(BookFailed));
    }
}
