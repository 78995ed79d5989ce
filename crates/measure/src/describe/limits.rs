//! Kinds of disks: what the best of them reach, and what an ordinary one does where nothing is known of it. Beside them
//! the wires.

pub(crate) use larder_facts::wires::{BOT, Duplex, Wire};
use serde::{Deserialize, Serialize};

use super::way::What;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskKind {
    Hdd,
    /// A shingled hard disk.
    #[serde(alias = "hdd-smr")]
    Smr,
    #[serde(alias = "ssd", alias = "tlc")]
    SataSsd,
    /// Four bits a cell, on whatever bus.
    Qlc,
    #[serde(alias = "nvme-ssd")]
    Nvme,
    #[serde(alias = "sd", alias = "microsd")]
    SdCard,
    Emmc,
    UsbStick,
}

/// Bytes and operations per second. `most`: none does better; `usual`: an ordinary one, low and high.
#[derive(Debug)]
pub(crate) struct Physical {
    pub(crate) most_bytes_per_s: f64,
    pub(crate) most_random_per_s: f64,
    /// Of one random read that waits for the medium.
    pub(crate) least_latency_s: f64,
    pub(crate) usual_read: (f64, f64),
    pub(crate) usual_write: (f64, f64),
    pub(crate) usual_random_read: (f64, f64),
    pub(crate) usual_random_write: (f64, f64),
    pub(crate) name: &'static str,
    pub(crate) why: &'static str,
}

const HDD: Physical = Physical {
    // Toshiba MG11: 309 MiB/s. Two sets of heads (Seagate Exos 2X18) are two disks in one case.
    most_bytes_per_s: 330e6,
    // Half a turn and a seek each: 5 to 13 ms. Queues of 32 reorder them into three times as many.
    most_random_per_s: 700.0,
    // 15 000 turns a minute: half of one is 2 ms.
    least_latency_s: 2e-3,
    usual_read: (80e6, 285e6),
    usual_write: (80e6, 285e6),
    usual_random_read: (55.0, 300.0),
    usual_random_write: (55.0, 450.0),
    name: "hard disk",
    why: "a head gives 80 (inside) to 285 MB/s (outside), the fastest 325, and two sets of heads count as two disks; a random access waits for a seek and half a turn, 8 to 14 ms",
};

const SMR: Physical = Physical {
    usual_write: (5e6, 60e6),
    usual_random_write: (5.0, 100.0),
    name: "shingled hard disk",
    why: "once its cache region is full a shingled disk rewrites whole bands: a few MB/s to a few tens remain",
    ..HDD
};

const SATA_SSD: Physical = Physical {
    most_bytes_per_s: 600e6,
    most_random_per_s: 110e3,
    least_latency_s: 30e-6,
    usual_read: (400e6, 560e6),
    usual_write: (300e6, 530e6),
    usual_random_read: (20e3, 100e3),
    usual_random_write: (8e3, 90e3),
    name: "SATA SSD",
    why: "SATA carries 600 MB/s after coding, and 32 commands at once",
};

const QLC: Physical = Physical {
    most_bytes_per_s: 15.75e9,
    most_random_per_s: 3.5e6,
    least_latency_s: 30e-6,
    usual_read: (400e6, 7e9),
    usual_write: (80e6, 450e6),
    usual_random_read: (20e3, 900e3),
    usual_random_write: (1e3, 100e3),
    name: "QLC SSD",
    why: "after its fast cache is full, four bits a cell are written at 80 to 450 MB/s",
};

const NVME: Physical = Physical {
    // PCIe 5.0 x4 after coding.
    most_bytes_per_s: 15.75e9,
    most_random_per_s: 3.5e6,
    // Phase change memory; flash takes 40 us and more.
    least_latency_s: 6e-6,
    usual_read: (1.5e9, 14e9),
    usual_write: (0.8e9, 13e9),
    usual_random_read: (50e3, 2e6),
    usual_random_write: (30e3, 2e6),
    name: "NVMe SSD",
    why: "four lanes of PCIe 5.0 carry 15.75 GB/s after coding",
};

const SD: Physical = Physical {
    // SD Express has PCIe; UHS-II ends at 312 MB/s.
    most_bytes_per_s: 985e6,
    most_random_per_s: 20e3,
    least_latency_s: 60e-6,
    usual_read: (20e6, 95e6),
    usual_write: (8e6, 90e6),
    usual_random_read: (500.0, 4000.0),
    usual_random_write: (100.0, 1000.0),
    name: "memory card",
    why: "SD's UHS-I ends at 104 MB/s, the older high speed mode at 25: 22 to 23 MB/s were measured on small boards",
};

const EMMC: Physical = Physical {
    most_bytes_per_s: 400e6,
    most_random_per_s: 40e3,
    least_latency_s: 50e-6,
    usual_read: (80e6, 330e6),
    usual_write: (20e6, 200e6),
    usual_random_read: (2e3, 15e3),
    usual_random_write: (1e3, 15e3),
    name: "eMMC",
    why: "HS400 carries 400 MB/s (JEDEC JESD84-B51)",
};

const STICK: Physical = Physical {
    most_bytes_per_s: 2.4e9,
    most_random_per_s: 100e3,
    least_latency_s: 30e-6,
    // The best are SSDs in a small case; what is sold as a stick is not.
    usual_read: (20e6, 200e6),
    usual_write: (5e6, 55e6),
    usual_random_read: (500.0, 5000.0),
    usual_random_write: (10.0, 110.0),
    name: "USB stick",
    why: "sticks write small pieces by rewriting large blocks",
};

/// The best of all kinds, for a disk without a kind.
pub(crate) const ANY: &Physical = &Physical { name: "disk", ..NVME };

impl DiskKind {
    pub(crate) fn physical(self) -> &'static Physical {
        match self {
            Self::Hdd => &HDD,
            Self::Smr => &SMR,
            Self::SataSsd => &SATA_SSD,
            Self::Qlc => &QLC,
            Self::Nvme => &NVME,
            Self::SdCard => &SD,
            Self::Emmc => &EMMC,
            Self::UsbStick => &STICK,
        }
    }

    pub(crate) fn turns(self) -> bool {
        matches!(self, Self::Hdd | Self::Smr)
    }

    /// Takes the beginning of what is written faster than its rest.
    pub(crate) fn has_fast_cache(self) -> bool {
        !matches!(self, Self::Hdd)
    }
}

impl Physical {
    /// The rates of an ordinary one, low and high.
    pub(crate) fn usual(&self, what: What) -> (f64, f64) {
        match what {
            What::Read => self.usual_read,
            What::Write => self.usual_write,
            What::RandomRead => self.usual_random_read,
            What::RandomWrite => self.usual_random_write,
        }
    }

    pub(crate) fn of(kind: Option<DiskKind>) -> &'static Self {
        kind.map_or(ANY, DiskKind::physical)
    }
}
