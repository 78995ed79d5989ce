//! Measurements that could not have measured what they say (B5).

use larder_base::units::ByteSize;

use super::describe::{Caching, Described, Measured, Path};
use super::stages::client_of;

/// No machine that serves files has less: what it has in memory where nobody knows how much that is.
const SERVER_MEMORY_MIN: u64 = 512 << 20;

/// Tools that measure something else than disks and networks.
const MISLEADING: &[(&str, &str)] = &[
    ("cp", "time cp ends when the data is in memory"),
    ("hdparm", "hdparm -t reads a few megabytes of the fastest tracks"),
    ("scp", "scp measures the cipher"),
    ("sftp", "sftp measures the cipher"),
    ("internet", "a download measures the Internet"),
];

pub(super) fn misleading(described: &Described, measured: &Measured) -> Option<String> {
    if measured.how.doubt.is_some() {
        return measured.how.doubt.clone();
    }
    if measured.how.caches == Some(Caching::Warm) {
        return Some(
            "the caches were warm, so it measures memory: drop them or take a file of twice the memory".to_owned(),
        );
    }
    in_memory(described, measured).or_else(|| {
        let with = measured.with.as_deref()?.trim().to_lowercase();
        let tool = with.split([' ', '/']).next().unwrap_or_default();
        MISLEADING.iter().find(|(known, _)| *known == tool).map(|(_, why)| (*why).to_owned())
    })
}

/// Whether the disks alone were left out: what then crossed the network is still held up by all that comes after them.
pub(super) fn from_memory(described: &Described, measured: &Measured) -> bool {
    let honest = Measured { file_bytes: None, ..measured.clone() };
    measured.path == Path::Share
        && measured.how.past_client
        && in_memory(described, measured).is_some()
        && misleading(described, &honest).is_none()
}

fn in_memory(described: &Described, measured: &Measured) -> Option<String> {
    let writes = measured.what.writes();
    let honest = match (measured.path, measured.how.caches) {
        (Path::Net, _) => true,
        // What the client passes by, the server still caches.
        (Path::Disks | Path::Local, Some(Caching::Bypassed)) => true,
        (_, Some(Caching::Dropped)) => !writes,
        _ => writes && measured.how.sync,
    };
    let file = measured.file_bytes?;
    let too_small = |memory: &u64| !honest && file < memory.saturating_mul(2);
    let elsewhere = measured.how.elsewhere.is_some();
    let server = if elsewhere { measured.how.server_memory_bytes } else { described.memory_bytes };
    if let Some(memory) = server.filter(too_small) {
        let (file, memory) = (ByteSize(file), ByteSize(memory));
        return Some(format!("a file of {file} beside {memory} of memory measures memory: take one of twice that"));
    }
    if elsewhere && server.is_none() && too_small(&SERVER_MEMORY_MIN) {
        let file = ByteSize(file);
        return Some(format!("a file of {file} fits into any server's memory: take one of twice what that has"));
    }
    // What a client has read or written just now it may still have.
    let client = client_of(described, measured).and_then(|client| client.memory_bytes);
    let client = measured.how.client_memory_bytes.or(client).filter(|_| measured.path == Path::Share);
    let (file, memory) = (ByteSize(file), ByteSize(client.filter(too_small)?));
    Some(format!("a file of {file} beside {memory} of the client's memory measures that: take one of twice that"))
}
