//! Knowledge of certain models, with its source. Tables, no code: add a line with its source.

/// Hard disks that shingle their tracks (SMR) without telling the computer. They take writes into a cache region and
/// rewrite whole bands later: a rebuild, which is hours of writing, slows to a few MB/s or ends in time-outs.
pub(super) struct Shingled {
    /// The model begins with this.
    pub(super) model: &'static str,
    pub(super) source: &'static str,
}

const WD: &str = "Western Digital, list of SMR models, April 2020";
const SEAGATE: &str = "Seagate, table of CMR and SMR models";
const TOSHIBA: &str = "Toshiba, statement on SMR models, April 2020";

pub(super) const SHINGLED: &[Shingled] = &[
    Shingled { model: "WDC WD20EFAX", source: WD },
    Shingled { model: "WDC WD30EFAX", source: WD },
    Shingled { model: "WDC WD40EFAX", source: WD },
    Shingled { model: "WDC WD60EFAX", source: WD },
    Shingled { model: "WDC WD20EZAZ", source: WD },
    Shingled { model: "WDC WD60EZAZ", source: WD },
    Shingled { model: "WDC WD10SPZX", source: WD },
    Shingled { model: "WDC WD20SPZX", source: WD },
    Shingled { model: "WDC WD10SPSX", source: WD },
    Shingled { model: "ST500LM030", source: SEAGATE },
    Shingled { model: "ST1000LM035", source: SEAGATE },
    Shingled { model: "ST1000LM048", source: SEAGATE },
    Shingled { model: "ST2000LM015", source: SEAGATE },
    Shingled { model: "ST3000LM024", source: SEAGATE },
    Shingled { model: "ST4000LM024", source: SEAGATE },
    Shingled { model: "ST5000LM000", source: SEAGATE },
    Shingled { model: "ST2000DM005", source: SEAGATE },
    Shingled { model: "ST2000DM008", source: SEAGATE },
    Shingled { model: "ST3000DM007", source: SEAGATE },
    Shingled { model: "ST4000DM004", source: SEAGATE },
    Shingled { model: "ST6000DM003", source: SEAGATE },
    Shingled { model: "ST8000DM004", source: SEAGATE },
    Shingled { model: "ST5000AS0011", source: SEAGATE },
    Shingled { model: "ST6000AS0002", source: SEAGATE },
    Shingled { model: "ST8000AS0002", source: SEAGATE },
    Shingled { model: "TOSHIBA HDWD240", source: TOSHIBA },
    Shingled { model: "TOSHIBA HDWD260", source: TOSHIBA },
    Shingled { model: "TOSHIBA DT02ABA400", source: TOSHIBA },
    Shingled { model: "TOSHIBA DT02ABA600", source: TOSHIBA },
    Shingled { model: "TOSHIBA HDWL110", source: TOSHIBA },
    Shingled { model: "TOSHIBA HDWL120", source: TOSHIBA },
    Shingled { model: "TOSHIBA MQ04", source: TOSHIBA },
];

/// The maker's word is a second one in some outputs ("WDC WD40EFAX-68JH4N1") and missing in others.
pub(super) fn shingled(model: &str) -> Option<&'static Shingled> {
    let bare = |name: &'static str| name.split_once(' ').map_or(name, |(_, rest)| rest);
    SHINGLED
        .iter()
        .find(|known| model.starts_with(known.model) || model.split(' ').any(|w| w.starts_with(bare(known.model))))
}

/// USB bridges for which Linux needs exceptions.
pub(super) struct Bridge {
    /// As `lsusb` shows it.
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    pub(super) trouble: &'static str,
}

/// From the kernel's list of exceptions, `drivers/usb/storage/unusual_uas.h`.
const NO_PASS_THROUGH: &str = "cannot pass ATA commands on while it speaks UAS: no SMART, no early warning";
const NO_UAS: &str = "answers wrongly when it speaks UAS: the kernel falls back to one command at a time";
const BROKEN_FUA: &str = "fails at forced writes (FUA), which the kernel has to avoid";
const CONFUSED: &str = "hangs at a question that every disk must answer; the kernel avoids it";

pub(super) const BRIDGES: &[Bridge] = &[
    Bridge { id: "0984:0301", name: "Apricorn", trouble: NO_UAS },
    Bridge { id: "0bc2:2312", name: "Seagate Expansion Desk", trouble: NO_PASS_THROUGH },
    Bridge { id: "0bc2:3312", name: "Seagate Expansion Desk", trouble: NO_PASS_THROUGH },
    Bridge { id: "0bc2:331a", name: "Seagate Expansion Desk", trouble: CONFUSED },
    Bridge { id: "0bc2:3320", name: "Seagate Expansion Desk", trouble: NO_PASS_THROUGH },
    Bridge { id: "0bc2:a003", name: "Seagate Backup Plus", trouble: NO_PASS_THROUGH },
    Bridge { id: "0bc2:a013", name: "Seagate Backup Plus", trouble: NO_PASS_THROUGH },
    Bridge { id: "0bc2:a0a4", name: "Seagate Backup Plus Desk", trouble: NO_PASS_THROUGH },
    Bridge { id: "0bc2:ab20", name: "Seagate Backup Plus", trouble: NO_PASS_THROUGH },
    Bridge { id: "0bc2:ab21", name: "Seagate Backup Plus", trouble: NO_PASS_THROUGH },
    Bridge { id: "0bc2:ab2a", name: "Seagate Backup Plus Fast", trouble: NO_PASS_THROUGH },
    Bridge { id: "13fd:3940", name: "Initio INIC-3069", trouble: NO_PASS_THROUGH },
    Bridge { id: "152d:0539", name: "JMicron JMS539", trouble: CONFUSED },
    Bridge { id: "152d:0567", name: "JMicron JMS567", trouble: BROKEN_FUA },
    Bridge { id: "152d:0578", name: "JMicron JMS578", trouble: BROKEN_FUA },
    Bridge { id: "2109:0711", name: "VIA VL711", trouble: NO_PASS_THROUGH },
    Bridge { id: "357d:7788", name: "JMicron JMS566", trouble: CONFUSED },
    Bridge { id: "4971:1012", name: "Hitachi external disk", trouble: NO_UAS },
    Bridge { id: "4971:8017", name: "SimpleTech external disk", trouble: CONFUSED },
];

pub(super) fn bridge(id: &str) -> Option<&'static Bridge> {
    BRIDGES.iter().find(|known| known.id == id)
}

/// How a filesystem suits a pool.
pub(super) enum Suits {
    Well,
    /// It works; this is why another would be better.
    SoSo(&'static str),
    /// It cannot keep the promises of a pool.
    No(&'static str),
}

const MEMORY: &str = "it is memory: everything on it is gone when the machine stops";
const NETWORK: &str =
    "it lies on another machine: what a flush, a lock or a rename is worth there cannot be known from here";
const LAYER: &str = "it is a layer of a container or a live system, and goes away with it";
const FOREIGN: &str =
    "it has no journal of its own that survives a power cut, and no permissions or no durable renames";
const PROGRAM: &str = "a program stands in between (FUSE), and decides whether a flush reaches the disk";

pub(super) fn suits(filesystem: &str) -> Suits {
    match filesystem {
        "xfs" | "ext4" => Suits::Well,
        "ext3" => Suits::SoSo("an old filesystem: no extents, slow deletes of large files"),
        "ext2" => Suits::SoSo("it has no journal: after a power cut it needs a check of hours, and may lose files"),
        "btrfs" => {
            Suits::SoSo("it copies on write what larder never overwrites: its checksums and the pool's are kept twice")
        }
        "zfs" => Suits::SoSo("checksums and copies are kept twice, and two caches compete for memory"),
        "f2fs" => Suits::SoSo("made for flash without a controller; little tried under a pool"),
        "bcachefs" => Suits::SoSo("young; little tried under a pool"),
        "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs" => Suits::No(MEMORY),
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "virtiofs" | "ceph" | "afs" | "lustre" | "gfs2" | "ocfs2" => {
            Suits::No(NETWORK)
        }
        "overlay" | "aufs" | "unionfs" => Suits::No(LAYER),
        "squashfs" | "erofs" | "iso9660" | "udf" | "cramfs" => Suits::No("it can only be read"),
        "vfat" | "msdos" | "exfat" | "ntfs" | "ntfs3" | "hfs" | "hfsplus" => Suits::No(FOREIGN),
        fuse if fuse.starts_with("fuse") => Suits::No(PROGRAM),
        _ => Suits::SoSo("nobody has tried it under a pool"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_known_with_and_without_their_maker() {
        for (model, known) in [
            ("WDC WD40EFAX-68JH4N1", true),
            ("WD40EFAX-68JH4N1", true),
            ("WDC WD80EFAX-68KNBN0", false),
            ("WDC WD40EFRX-68N32N0", false),
            ("ST8000DM004-2CX188", true),
            ("Seagate ST8000DM004-2CX188", true),
            ("ST8000VN004-2M2101", false),
            ("TOSHIBA MQ04UBD200", true),
            ("Samsung SSD 870 QVO 8TB", false),
            ("", false),
        ] {
            assert_eq!(shingled(model).is_some(), known, "{model}");
        }
        assert_eq!(bridge("152d:0578").map(|b| b.name), Some("JMicron JMS578"));
        assert!(bridge("0000:0000").is_none());
    }
}
