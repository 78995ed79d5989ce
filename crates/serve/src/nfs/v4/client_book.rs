//! The durable record of clients, a file of the daemon:
//!
//! ```text
//! larder nfs4 clients 1
//! server 6f1c...                  the server's name to clients, 16 bytes
//! epoch 12
//! recovering 11                   while grace lasts
//! client 12 sessions 4c696e7578   the epoch, the family, the client's name for itself
//! checksum 0123456789abcdef       of all lines before it
//! ```
//!
//! - `clientbook.replaced_whole`: each change writes the file anew, flushes it and takes the place of the one before.
//!   Changes are as rare as clients.
//! - `clientbook.damage_is_said`: a file that does not read is put aside with a warning. Its clients reclaim nothing.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use larder_base::checksum::checksum;
use larder_base::{hex, shell};

use super::clients::{Family4, OwnerName};
use super::grace::{BookChange, BookFailed, ReclaimBook, ReclaimRecords};

const HEADER: &str = "larder nfs4 clients 1";
const SEED: u64 = 0x6e66_7334_626f_6f6b;
/// Names of [`super::clients::CLIENTS_MAX`] clients in two epochs, a kibibyte each in hexadecimal, with room to spare.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// The name by which clients know the server over its restarts.
pub type ServerName = [u8; 16];

#[derive(Debug)]
pub struct ClientBook {
    /// `None`: nothing outlives the process.
    path: Option<PathBuf>,
    server: ServerName,
    book: ReclaimBook,
    /// The last write failed, which was said.
    has_failed: bool,
}

impl ClientBook {
    /// Opens the file, or begins one with `fresh` as the server's name.
    pub fn open(path: Option<&Path>, fresh: ServerName) -> Self {
        let begun = |path| Self { path, server: fresh, book: ReclaimBook::default(), has_failed: false };
        let Some(path) = path else { return begun(None) };
        match read(path) {
            Ok(None) => begun(Some(path.to_owned())),
            Ok(Some((server, book))) => Self { path: Some(path.to_owned()), server, book, has_failed: false },
            Err(error) => {
                let aside = path.with_extension("damaged");
                tracing::warn!(
                    file = %shell::word(path), %error, aside = %shell::word(&aside),
                    "the record of NFSv4 clients does not read and is put aside: clients from before this start \
                     cannot take back their locks"
                );
                if let Err(error) = std::fs::rename(path, &aside) {
                    tracing::warn!(file = %shell::word(path), %error, "it could not be put aside");
                }
                begun(Some(path.to_owned()))
            }
        }
    }

    pub fn server(&self) -> ServerName {
        self.server
    }
}

impl ReclaimRecords for ClientBook {
    fn load(&self) -> Result<ReclaimBook, BookFailed> {
        Ok(self.book.clone())
    }

    fn apply(&mut self, change: &BookChange) -> Result<(), BookFailed> {
        let mut book = self.book.clone();
        book.apply(change);
        if let Some(path) = &self.path
            && let Err(error) = replace(path, &encode(&self.server, &book))
        {
            if !std::mem::replace(&mut self.has_failed, true) {
                tracing::warn!(
                    file = %shell::word(path), %error,
                    "the record of NFSv4 clients cannot be written: clients that open files over NFSv4 wait until it \
                     can"
                );
            }
            return Err(BookFailed);
        }
        (self.book, self.has_failed) = (book, false);
        Ok(())
    }
}

fn encode(server: &ServerName, book: &ReclaimBook) -> String {
    let mut text = format!("{HEADER}\nserver {}\nepoch {}\n", hex::encode(server), book.epoch);
    if let Some(epoch) = book.recovering {
        let _ = writeln!(text, "recovering {epoch}");
    }
    for (epoch, owner) in &book.names {
        let family = match owner.family {
            Family4::Zero => "zero",
            Family4::Sessions => "sessions",
        };
        let _ = writeln!(text, "client {epoch} {family} {}", hex::encode(&owner.id));
    }
    let sum = checksum(SEED, text.as_bytes());
    let _ = writeln!(text, "checksum {sum:016x}");
    text
}

fn decode(text: &str) -> Option<(ServerName, ReclaimBook)> {
    let at = text.rfind("checksum ")?;
    let (body, last) = text.split_at_checked(at)?;
    let sum = last.strip_prefix("checksum ")?.strip_suffix('\n')?;
    if u64::from_str_radix(sum, 16) != Ok(checksum(SEED, body.as_bytes())) {
        return None;
    }
    let mut lines = body.lines();
    if lines.next() != Some(HEADER) {
        return None;
    }
    let server = hex::decode(lines.next()?.strip_prefix("server ")?)?.try_into().ok()?;
    let epoch = lines.next()?.strip_prefix("epoch ")?.parse().ok()?;
    let (mut recovering, mut names) = (None, BTreeSet::new());
    for line in lines {
        if let Some(epoch) = line.strip_prefix("recovering ") {
            recovering = Some(epoch.parse().ok()?);
            continue;
        }
        let mut words = line.strip_prefix("client ")?.split(' ');
        let written = words.next()?.parse().ok()?;
        let family = match words.next()? {
            "zero" => Family4::Zero,
            "sessions" => Family4::Sessions,
            _ => return None,
        };
        names.insert((written, OwnerName { family, id: hex::decode(words.next()?)?.into() }));
    }
    Some((server, ReclaimBook { epoch, recovering, names }))
}

fn read(path: &Path) -> io::Result<Option<(ServerName, ReclaimBook)>> {
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

    fn owner(family: Family4, name: &[u8]) -> OwnerName {
        OwnerName { family, id: name.into() }
    }

    #[test]
    fn golden_text() {
        let mut book = ReclaimBook { epoch: 12, recovering: Some(11), names: BTreeSet::new() };
        book.names.insert((11, owner(Family4::Zero, b"\x00\xff")));
        book.names.insert((12, owner(Family4::Sessions, b"Linux")));
        let text = encode(&[0x6f; 16], &book);
        let body = "larder nfs4 clients 1\nserver 6f6f6f6f6f6f6f6f6f6f6f6f6f6f6f6f\nepoch 12\nrecovering 11\n\
                    client 11 zero 00ff\nclient 12 sessions 4c696e7578\n";
        assert_eq!(text, format!("{body}checksum {:016x}\n", checksum(SEED, body.as_bytes())));
        assert_eq!(decode(&text), Some(([0x6f; 16], book)));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1);
            assert!(String::from_utf8(bytes).is_ok_and(|text| decode(&text).is_none()), "byte {at}");
            assert!(text.get(..at).is_some_and(|text| decode(text).is_none()), "{at} bytes");
        }
    }

    #[test]
    fn a_change_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nfs4-clients");
        let mut book = ClientBook::open(Some(&path), [1; 16]);
        book.apply(&BookChange::Begin { epoch: 1, recovering: 0 }).unwrap();
        book.apply(&BookChange::Add(owner(Family4::Sessions, b"a"))).unwrap();
        let again = ClientBook::open(Some(&path), [2; 16]);
        assert_eq!((again.server(), again.load()), ([1; 16], book.load()));
        std::fs::write(&path, "nonsense").unwrap();
        let fresh = ClientBook::open(Some(&path), [3; 16]);
        assert_eq!((fresh.server(), fresh.load()), ([3; 16], Ok(ReclaimBook::default())));
        assert!(path.with_extension("damaged").exists());
    }

    #[test]
    fn what_cannot_be_written_is_not_kept() {
        let mut book = ClientBook::open(Some(Path::new("/proc/nowhere/nfs4-clients")), [1; 16]);
        assert_eq!(book.apply(&BookChange::Add(owner(Family4::Sessions, b"a"))), Err(BookFailed));
        assert_eq!(book.load(), Ok(ReclaimBook::default()));
    }
}
