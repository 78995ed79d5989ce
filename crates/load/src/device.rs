//! A block device as a subject: read only, unless it is empty and its serial number was typed (`bench.serial_typed`).

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::OFlags;

use super::error::BenchError;
use crate::Machine;
use crate::workload::Note;
use larder_facts::disk::{Use, uses};
use larder_facts::machine::{BlockDevice, Medium, SmartAnswer};

const ZERO_BYTES: u64 = 1 << 20;

/// Ours alone until this goes: nobody can mount it or build on it meanwhile. Emptied of what was written at the latest
/// then.
#[derive(Debug)]
struct Claim {
    file: File,
    /// From the beginning of the device.
    written_bytes: AtomicU64,
}

impl Claim {
    /// Through the file that was claimed: a name may mean another disk by now.
    fn empty(&self) -> std::io::Result<()> {
        let bytes = self.written_bytes.load(Ordering::Acquire);
        if bytes == 0 {
            return Ok(());
        }
        let zeros = vec![0u8; ZERO_BYTES as usize];
        let mut at = 0;
        while at < bytes {
            let length = (bytes - at).min(ZERO_BYTES);
            self.file.write_all_at(zeros.get(..length as usize).unwrap_or_default(), at)?;
            at += length;
        }
        self.file.sync_all()?;
        self.written_bytes.store(0, Ordering::Release);
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = self.empty();
    }
}

#[derive(Clone, Debug)]
pub struct Device {
    pub path: PathBuf,
    /// "Samsung SSD 870 (sdb), serial S5XYZ".
    pub title: String,
    pub size_bytes: u64,
    /// The text that permits writing to it: its serial number, or its path where it has none.
    pub token: String,
    pub name: String,
    empty: bool,
    medium: Medium,
    /// Once writing is permitted.
    claim: Option<Arc<Claim>>,
}

pub fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

impl Device {
    /// Looks, and writes nothing.
    pub fn look(machine: &Machine, path: &Path) -> Result<Self, BenchError> {
        let show = path.display();
        let no = || BenchError::invalid(format!("{show} is not a whole disk"), "whole disks are in: larder disk list");
        let name = machine.device_name(path).ok_or_else(no)?;
        let device = read(machine, &name).filter(|d| d.size_bytes > 0).ok_or_else(no)?;
        let serial = device.serial.as_ref().map_or("no serial number".to_owned(), |s| format!("serial {}", s.text));
        let readable = OpenOptions::new().read(true).open(path);
        readable.map_err(|e| BenchError::at("read", path, e))?;
        Ok(Self {
            title: format!("{}, {serial}", device.title()),
            size_bytes: device.size_bytes,
            token: token(&device),
            empty: uses(machine, &device).is_empty(),
            medium: device.medium,
            path: device.path,
            name,
            claim: None,
        })
    }

    /// Whether anything speaks against writing, looked at anew each time.
    pub fn permit_writing(&mut self, machine: &Machine, typed: Option<&str>) -> Result<(), BenchError> {
        let show = self.path.display().to_string();
        match typed.map(str::trim) {
            Some(typed) if typed == self.token => {}
            Some(typed) => {
                let what = format!("'{typed}' is not the serial number of {show}");
                return Err(BenchError::invalid(what, "nothing was written; serial numbers are in: larder disk list"));
            }
            None => {
                let what = format!("writing to {} destroys whatever is on it", self.title);
                return Err(BenchError::invalid(what, format!("if you mean it, add: --serial {}", self.token)));
            }
        }
        self.check_unused(machine)?;
        let file = claim(&self.path)?;
        // Between looking and claiming it may have been pulled out, and another be there now, or in use.
        let device = self.check_unused(machine)?;
        let number = file.metadata().map_err(|e| BenchError::at("look at", &self.path, e))?.rdev();
        let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        if number != device.number || token(&device) != self.token {
            let what = format!("{show} is another disk than it was: its serial number is now {}", token(&device));
            return Err(BenchError::invalid(what, "nothing was written; look again with: larder disk list"));
        }
        self.claim = Some(Arc::new(Claim { file, written_bytes: AtomicU64::new(0) }));
        Ok(())
    }

    fn check_unused(&self, machine: &Machine) -> Result<BlockDevice, BenchError> {
        let show = self.path.display();
        let device = read(machine, &self.name);
        let device = device.ok_or_else(|| BenchError::invalid(format!("{show} has gone away"), ""))?;
        let found = uses(machine, &device);
        if !found.is_empty() {
            let reasons = found.iter().map(Use::text).collect::<Vec<_>>().join("; ");
            let action = "measure it without --write-device, or a folder on it; an empty disk has no partitions and no filesystem";
            return Err(BenchError::invalid(format!("{show} carries data, and is not written to: {reasons}"), action));
        }
        Ok(device)
    }

    pub fn may_write(&self) -> bool {
        self.claim.is_some()
    }

    /// Told before a load writes to its first `bytes`.
    pub fn will_write(&self, bytes: u64) {
        if let Some(claim) = &self.claim {
            claim.written_bytes.fetch_max(bytes.min(self.size_bytes), Ordering::AcqRel);
        }
    }

    pub fn was_written(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.written_bytes.load(Ordering::Acquire) > 0)
    }

    /// It was empty before it was written to, and is again.
    pub fn empty_again(&self) -> Result<(), BenchError> {
        let emptied = self.claim.as_ref().map_or(Ok(()), |claim| claim.empty());
        emptied.map_err(|e| BenchError::at("write zeroes to", &self.path, e))
    }

    /// A flash disk answers for blocks that were never written without looking at its flash.
    pub fn notes(&self) -> Vec<Note> {
        let unwritten = self.empty && !self.may_write() && self.medium != Medium::HardDisk;
        let text = format!(
            "{} looks empty: a flash disk answers reads of what was never written without looking, faster than it can read",
            self.path.display()
        );
        let note = Note { code: "empty-device".to_owned(), text, misleading: true };
        if unwritten { vec![note] } else { Vec::new() }
    }
}

/// With the serial number that only SMART knows of.
fn read(machine: &Machine, name: &str) -> Option<BlockDevice> {
    let mut device = BlockDevice::read(machine, name)?;
    if device.serial.is_none()
        && let SmartAnswer::Smart(smart) = machine.smart(&device)
    {
        device.serial = smart.serial.map(|text| larder_facts::machine::Serial { text, source: "smartctl" });
    }
    Some(device)
}

fn token(device: &BlockDevice) -> String {
    device.serial.as_ref().map_or_else(|| device.path.display().to_string(), |s| s.text.clone())
}

/// The kernel lends a block device exclusively to one user at a time, and refuses while it is in use.
fn claim(path: &Path) -> Result<File, BenchError> {
    let flags = i32::try_from(OFlags::EXCL.bits()).unwrap_or_default();
    let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    opened.map_err(|e| BenchError::io(format!("{} cannot be had for ourselves", path.display()), e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    fn device(machine: &Machine) -> Device {
        let device = BlockDevice::read(machine, "sdb").unwrap();
        Device {
            title: "x".to_owned(),
            size_bytes: device.size_bytes,
            token: "S5XYZ".to_owned(),
            empty: true,
            medium: device.medium,
            path: device.path,
            name: "sdb".to_owned(),
            claim: None,
        }
    }

    #[test]
    fn what_was_written_is_zeroes_again_however_it_ends() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let full = vec![7u8; (5 << 20) + 9];
        let claimed = |bytes| {
            std::fs::write(path.path(), &full).unwrap();
            let file = OpenOptions::new().read(true).write(true).open(path.path()).unwrap();
            Claim { file, written_bytes: AtomicU64::new(bytes) }
        };
        let zeroes = || std::fs::read(path.path()).unwrap().iter().filter(|b| **b == 0).count();
        drop(claimed(0));
        assert_eq!(zeroes(), 0);
        drop(claimed((2 << 20) + 5));
        assert_eq!(zeroes(), (2 << 20) + 5);
        let claim = claimed(3);
        claim.empty().unwrap();
        assert_eq!((zeroes(), claim.written_bytes.load(Ordering::Acquire)), (3, 0));
    }

    #[test]
    fn only_an_empty_device_whose_serial_was_typed_is_written_to() {
        let sys = "/sys/devices/ata1/host0/block/sdb/size = 8388608\n/sys/devices/ata1/host0/block/sdb/dev = 8:16\n\
            /sys/class/block/sdb -> /sys/devices/ata1/host0/block/sdb\n";
        let full = Fixture::new(&format!("{sys}/tools/wipefs/sdb = {{\"signatures\": [{{\"type\": \"xfs\"}}]}}\n"));
        let refused = |typed: Option<&str>, reason: &str| {
            let mut device = device(&full.machine);
            let error = device.permit_writing(&full.machine, typed).unwrap_err().to_string();
            assert!(error.contains(reason) && !device.may_write(), "{typed:?}: {error}");
        };
        refused(None, "destroys");
        refused(Some("S5XY"), "is not the serial number");
        refused(Some("S5XYZ"), "carries data, and is not written to: it holds xfs");
        // wipefs that cannot be asked is no permission.
        let unknown = Fixture::new(sys);
        let error = device(&unknown.machine).permit_writing(&unknown.machine, Some("S5XYZ")).unwrap_err().to_string();
        assert!(error.contains("wipefs is not installed"), "{error}");
    }
}
