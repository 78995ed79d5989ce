//! Who has what open over NFSv4, for people who look after the server.

use std::net::IpAddr;

use larder_files::Files;
use larder_fs::Ino;

use super::file_key::ShareBits;
use super::server::NfsV4;

/// An open of a client of NFSv4.
#[derive(Clone)]
pub struct NfsOpen {
    /// Of this run of the server.
    pub number: u64,
    /// The client's own name for itself.
    pub client: String,
    /// From where it was opened first.
    pub address: IpAddr,
    /// The user who opened it first, as the share sees that user.
    pub uid: u32,
    /// The service of its volume.
    pub files: Files,
    /// The directory and the name by which it was opened; `None`: by its handle alone.
    pub name: Option<(Ino, Box<[u8]>)>,
    /// It may read,
    pub reads: bool,
    /// and it may write;
    pub writes: bool,
    /// nobody else may read meanwhile,
    pub denies_reads: bool,
    /// or write.
    pub denies_writes: bool,
    /// Owners of locks that have locked ranges of it.
    pub lock_owners: usize,
    /// Its client also caches the file under a delegation.
    pub is_delegated: bool,
}

impl NfsV4 {
    /// The newest opens, so many at most, and how many more there are (`server.lock_waits_for_nobody`).
    pub fn open_list(&self, count_max: usize) -> (Vec<NfsOpen>, usize) {
        let mut state = self.lock();
        let state = &mut *state;
        let mut entries: Vec<_> = state.states.open_list().collect();
        entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.serial));
        let more = entries.len().saturating_sub(count_max);
        entries.truncate(count_max);
        let mut opens = Vec::with_capacity(entries.len());
        for entry in entries {
            let client = state.clients.name(entry.client).unwrap_or_default();
            let files = state.exported.files_of(entry.file.volume);
            let Some((held, files)) = state.states.held(entry.number).zip(files) else { continue };
            opens.push(NfsOpen {
                number: entry.serial,
                client,
                address: held.address,
                uid: held.uid,
                files,
                name: held.name.clone(),
                reads: entry.access.has(ShareBits::READ),
                writes: entry.access.has(ShareBits::WRITE),
                denies_reads: entry.deny.has(ShareBits::READ),
                denies_writes: entry.deny.has(ShareBits::WRITE),
                lock_owners: entry.lock_owners,
                is_delegated: entry.is_delegated,
            });
        }
        (opens, more)
    }

    /// Ends an open with its locks. `false`: there is none of this number.
    pub fn end_open(&self, number: u64) -> bool {
        self.lock().states.end_open(number)
    }
}
