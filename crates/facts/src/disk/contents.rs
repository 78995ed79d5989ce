//! What lies on a disk, as udev remembers it: no disk is asked, so that none wakes up, and nobody has to be root.

use serde::Serialize;

use crate::Machine;
use crate::machine::{BlockDevice, Udev};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contents {
    /// udev looked, and found neither a filesystem nor partitions.
    Empty,
    /// One phrase each, such as `ext4 'photos' on sdb1`.
    Holds(Vec<String>),
    /// Nobody looked; it is taken for data.
    Unknown,
}

impl Contents {
    pub fn is_empty(&self) -> bool {
        *self == Self::Empty
    }

    pub fn phrases(&self) -> &[String] {
        match self {
            Self::Holds(phrases) => phrases,
            Self::Empty | Self::Unknown => &[],
        }
    }
}

/// What is on a whole device and its partitions.
pub fn contents(machine: &Machine, device: &BlockDevice) -> Contents {
    let partitions = device.partitions(machine);
    let numbers = device.numbers(machine);
    let names = std::iter::once(None).chain(partitions.iter().map(Some));
    let mut phrases: Vec<String> =
        numbers.iter().zip(names).filter_map(|(number, name)| phrase(machine, number, name)).collect();
    if !partitions.is_empty() && phrases.is_empty() {
        phrases.push(format!("partitions: {}", partitions.join(", ")));
    }
    match phrases.is_empty() {
        false => Contents::Holds(phrases),
        true if Udev::has_looked(machine, &device.number) => Contents::Empty,
        true => Contents::Unknown,
    }
}

/// A filesystem, a member of a RAID or of LVM, an encrypted container, or a table of partitions without any.
fn phrase(machine: &Machine, number: &str, partition: Option<&String>) -> Option<String> {
    let udev = Udev::read(machine, number);
    let place = partition.map(|name| format!(" on {name}")).unwrap_or_default();
    if let Some(kind) = udev.get("ID_FS_TYPE") {
        let label = udev.get("ID_FS_LABEL").map(|label| format!(" '{label}'")).unwrap_or_default();
        return Some(format!("{kind}{label}{place}"));
    }
    let table = udev.get("ID_PART_TABLE_TYPE").filter(|_| partition.is_none());
    table.map(|kind| format!("a table of partitions ({kind})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fixture::Fixture;

    #[test]
    fn udev_says_what_is_on_a_disk_and_silence_is_no_emptiness() {
        let fixture = Fixture::new(include_str!("../../fixtures/smr-disks.txt"));
        let of = |name: &str| contents(&fixture.machine, &BlockDevice::read(&fixture.machine, name).unwrap());
        assert_eq!(of("sdb"), Contents::Unknown);
        fixture.write("/run/udev/data/b8:16", "E:ID_MODEL=X\n");
        assert_eq!(of("sdb"), Contents::Empty);
        fixture.write("/run/udev/data/b8:16", "E:ID_FS_TYPE=xfs\nE:ID_FS_LABEL=my <b>\n");
        assert_eq!(of("sdb"), Contents::Holds(vec!["xfs 'my <b>'".to_owned()]));
        fixture.write("/run/udev/data/b8:0", "E:ID_PART_TABLE_TYPE=gpt\n");
        fixture.write("/run/udev/data/b8:1", "E:ID_FS_TYPE=ext4\n");
        let both = ["a table of partitions (gpt)", "ext4 on sda1"].map(str::to_owned).to_vec();
        assert_eq!(of("sda"), Contents::Holds(both));
        fixture.write("/run/udev/data/b8:0", "");
        fixture.write("/run/udev/data/b8:1", "");
        assert_eq!(
            of("sda"),
            Contents::Holds(vec!["partitions: sda1".to_owned()]),
            "partitions are data whatever is in them"
        );
    }
}
