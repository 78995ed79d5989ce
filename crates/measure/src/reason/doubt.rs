//! Measurements that could not have measured what they say: of memory, or of another thing than disks and networks.

use crate::describe::{Caching, Described, Measured, Path};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Doubt {
    /// In the words of the program that measured.
    Reported(String),
    WarmCaches,
    /// The file fits into the memory of the machine that served, or of the client.
    FileInMemory {
        file_bytes: u64,
        memory_bytes: u64,
        of: MemoryOf,
    },
    /// A program that measures something else. Index of [`MISLEADING`].
    Program(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryOf {
    Server,
    /// Nobody knows how much the server has: the least that any has.
    AnyServer,
    Client,
}

impl MemoryOf {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Server => "of the server",
            Self::AnyServer => "that any server has",
            Self::Client => "of the client",
        }
    }
}

const INTERNET: &str = "internet";

/// A program's name, and the reason why its figure says nothing of disks and networks.
pub(crate) const MISLEADING: &[(&str, &str)] = &[
    ("cp", "cp ends when the data is in memory"),
    ("hdparm", "hdparm -t reads a few megabytes of the fastest tracks"),
    ("scp", "scp measures its cipher"),
    ("sftp", "sftp measures its cipher"),
    (INTERNET, "a download measures the Internet"),
];

/// A file must exceed the memory by this factor: half of it may still be cached.
const FILE_PER_MEMORY: u64 = 2;
/// The least memory that a server has, where nobody knows how much it is.
const SERVER_MEMORY_BYTES_MIN: u64 = 512 << 20;

pub(super) fn doubt(described: &Described, measured: &Measured) -> Option<Doubt> {
    if let Some(text) = &measured.how.doubt {
        return Some(Doubt::Reported(text.clone()));
    }
    if measured.how.caches == Some(Caching::Warm) {
        return Some(Doubt::WarmCaches);
    }
    in_memory(described, measured).or_else(|| program(measured))
}

fn program(measured: &Measured) -> Option<Doubt> {
    let with = measured.with.as_deref()?.trim().to_lowercase();
    let tool = with.split([' ', '/']).next().unwrap_or_default();
    // A browser has the word in its name.
    let is = |name: &str| if name == INTERNET { with == INTERNET } else { tool == name };
    MISLEADING.iter().position(|(name, _)| is(name)).map(Doubt::Program)
}

fn in_memory(described: &Described, measured: &Measured) -> Option<Doubt> {
    let file_bytes = measured.file_bytes.filter(|_| !passes_memory(measured))?;
    let how = &measured.how;
    let server = match (&how.elsewhere, how.server_memory_bytes) {
        (None, _) => described.memory_bytes.map(|bytes| (bytes, MemoryOf::Server)),
        (Some(_), Some(bytes)) => Some((bytes, MemoryOf::Server)),
        (Some(_), None) => Some((SERVER_MEMORY_BYTES_MIN, MemoryOf::AnyServer)),
    };
    let named = |name: &String| described.clients.iter().find(|client| client.name == *name);
    let client = match (&how.client, described.clients.as_slice()) {
        (Some(name), _) => named(name),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    let client = how.client_memory_bytes.or(client.and_then(|client| client.memory_bytes));
    let client = client.filter(|_| measured.path == Path::Share).map(|bytes| (bytes, MemoryOf::Client));
    let too_small = |(memory, _): &(u64, MemoryOf)| file_bytes < memory.saturating_mul(FILE_PER_MEMORY);
    let (memory_bytes, of) = [server, client].into_iter().flatten().find(too_small)?;
    Some(Doubt::FileInMemory { file_bytes, memory_bytes, of })
}

/// Whether no cache can have answered, whatever the size of the file.
fn passes_memory(measured: &Measured) -> bool {
    match (measured.path, measured.how.caches) {
        (Path::Net, _) => true,
        // A request that passes the client's cache may still be answered from the server's.
        (Path::Disks | Path::Local, Some(Caching::Bypassed)) => true,
        (_, Some(Caching::Dropped)) => !measured.what.writes(),
        _ => measured.what.writes() && measured.how.sync,
    }
}
