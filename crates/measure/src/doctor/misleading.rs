//! Measurements that could not have measured what they say (B5).

use larder_base::units::ByteSize;

use super::describe::{Caching, Described, Measured, Path};
use super::stages::client_of;

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
    if let Some(memory) = described.memory_bytes.filter(too_small) {
        let (file, memory) = (ByteSize(file), ByteSize(memory));
        return Some(format!("a file of {file} beside {memory} of memory measures memory: take one of twice that"));
    }
    // What a client has read or written just now it may still have.
    let client = client_of(described, measured).filter(|_| measured.path == Path::Share);
    let (file, memory) = (ByteSize(file), ByteSize(client?.memory_bytes.filter(too_small)?));
    Some(format!("a file of {file} beside {memory} of the client's memory measures that: take one of twice that"))
}
