//! Users and contents of a device. Asked before anything is written to it (`disk.users_looked_for`).

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::Machine;
use crate::machine::BlockDevice;

/// Labels of volume managers, RAID and partition tables lie at the ends of a device.
const END_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "use", content = "what", rename_all = "kebab-case")]
pub enum Use {
    /// In use now: nobody may write to it, whatever is typed.
    Busy(String),
    /// Something lies on it.
    Data(String),
    /// Could not be looked at, and is taken for data.
    Unknown(String),
}

impl Use {
    pub fn text(&self) -> &str {
        match self {
            Self::Busy(text) | Self::Data(text) | Self::Unknown(text) => text,
        }
    }
}

/// Everything that speaks against writing to a device; empty: nothing does.
pub fn uses(machine: &Machine, device: &BlockDevice) -> Vec<Use> {
    let mut found = busy(machine, device);
    let partitions = device.partitions(machine);
    if !partitions.is_empty() {
        found.push(Use::Data(format!("it has partitions: {}", partitions.join(", "))));
    }
    found.extend(signatures(machine, device));
    if machine.is_live() {
        match ends_are_zero(&device.path, device.size_bytes) {
            Ok(true) => {}
            Ok(false) => found.push(Use::Data("its first or last MiB is not empty".to_owned())),
            Err(e) => found.push(Use::Unknown(format!("it cannot be read: {e}"))),
        }
    }
    found
}

/// Mounts, swap, and what is built on it (LVM, md), of the device and its partitions.
pub(super) fn busy(machine: &Machine, device: &BlockDevice) -> Vec<Use> {
    let mounts = machine.mounts();
    let mut found = Vec::new();
    for number in device.numbers(machine) {
        found.extend(
            mounts.of_number(&number).iter().map(|m| Use::Busy(format!("it is mounted at {}", m.point.display()))),
        );
    }
    // btrfs numbers its mounts itself: there the source tells.
    let names: Vec<String> = device.partitions(machine).into_iter().chain([device.name.clone()]).collect();
    let of_us = |source: &str| machine.device_name(Path::new(source)).is_some_and(|name| names.contains(&name));
    let btrfs = mounts.all().iter().filter(|m| m.filesystem == "btrfs" && of_us(&m.source));
    found.extend(btrfs.map(|m| Use::Busy(format!("it is mounted at {} (btrfs)", m.point.display()))));
    let swaps = machine.read("/proc/swaps").unwrap_or_default();
    let swap = swaps.lines().skip(1).filter_map(|l| l.split_whitespace().next()).filter(|source| of_us(source));
    found.extend(swap.map(|source| Use::Busy(format!("{source} is swap space"))));
    let holders = device.holders(machine);
    if !holders.is_empty() {
        found.push(Use::Busy(format!("{} is built on it", holders.join(", "))));
    }
    found
}

/// Filesystems, RAID members and partition tables, as `wipefs` knows them. Nothing is wiped here.
fn signatures(machine: &Machine, device: &BlockDevice) -> Vec<Use> {
    let path = device.path.to_string_lossy();
    let said = match machine.run("wipefs", &["--no-act", "--json", &path], &device.name) {
        Ok(said) if said.code == Some(0) => said,
        Ok(said) => return vec![Use::Unknown(format!("wipefs cannot look at it: {}", said.stderr))],
        Err(error) => return vec![Use::Unknown(error.to_string())],
    };
    if said.stdout.iter().all(u8::is_ascii_whitespace) {
        return Vec::new();
    }
    let Ok(answer) = serde_json::from_slice::<Value>(&said.stdout) else {
        return vec![Use::Unknown("wipefs answers in a way that is not understood".to_owned())];
    };
    let list = answer["signatures"].as_array().map(Vec::as_slice).unwrap_or_default();
    let describe = |s: &Value| {
        let kind = s["type"].as_str().unwrap_or("unknown");
        let label = s["label"].as_str().map(|l| format!(" '{l}'")).unwrap_or_default();
        Use::Data(format!("it holds {kind}{label}"))
    };
    let mut found: Vec<Use> = Vec::new();
    for signature in list.iter().map(describe) {
        if !found.contains(&signature) {
            found.push(signature);
        }
    }
    found
}

fn ends_are_zero(path: &Path, size_bytes: u64) -> std::io::Result<bool> {
    let mut file = File::open(path)?;
    let length = END_BYTES.min(size_bytes);
    let mut zero_at = |from: u64| -> std::io::Result<bool> {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        (&mut file).take(length).read_to_end(&mut bytes)?;
        Ok(bytes.iter().all(|&b| b == 0))
    };
    Ok(zero_at(0)? && zero_at(size_bytes - length)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_looked_at() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let size = 3 << 20;
        let check = |at: Option<u64>, zero: bool| {
            let mut bytes = vec![0u8; size];
            if let Some(at) = at {
                bytes[at as usize] = 1;
            }
            std::fs::write(file.path(), &bytes).unwrap();
            assert_eq!(ends_are_zero(file.path(), size as u64).unwrap(), zero, "{at:?}");
        };
        check(None, true);
        check(Some(0), false);
        check(Some((1 << 20) + 5), true);
        check(Some((3 << 20) - 1), false);
    }
}
