//! The speed to expect of disks that are not a pool yet, by their kinds alone.

use larder_facts::machine::{BlockDevice, Bus, Medium};
use serde::Serialize;

use super::{Described, PlannedWay, What, plan};
use crate::describe::limits::DiskKind;
use crate::reason::Basis;

/// The rates of a layout, as far as the kinds of its disks say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindRates {
    /// Bytes per second, low and high.
    pub read: (f64, f64),
    pub write: (f64, f64),
    /// Operations of 4 KiB per second.
    pub random_read: (f64, f64),
    /// Where the figures come from.
    pub source: String,
}

/// The kind of a disk that nobody has asked yet; `None` where host, controller or kernel hide it.
pub fn kind_of(device: &BlockDevice, is_shingled: bool) -> Option<DiskKind> {
    Some(match (device.bus, device.medium) {
        _ if device.curtain.is_some() => return None,
        (_, Medium::HardDisk) if is_shingled => DiskKind::Smr,
        (_, Medium::HardDisk) => DiskKind::Hdd,
        (Bus::Nvme, _) => DiskKind::Nvme,
        (Bus::Mmc, _) => DiskKind::SdCard,
        (Bus::Sata | Bus::Usb, Medium::Flash) => DiskKind::SataSsd,
        _ => return None,
    })
}

/// As people call it.
pub fn kind_name(kind: DiskKind) -> &'static str {
    kind.physical().name
}

/// The rates of a layout of larder over disks of these kinds. A record of larder lies on one disk, so a random read
/// asks one disk, whatever the layout: that of `raid5`. `None` for layouts and kinds of which nothing is known.
pub fn kind_rates(layout: &str, kinds: &[DiskKind]) -> Option<KindRates> {
    let (long, random) = match layout {
        "stripe" => ("layout = \"stripe\"", "layout = \"stripe\""),
        "mirror" => ("layout = \"mirror\"", "layout = \"mirror\""),
        "mirror3" => ("layout = \"mirror\"\ncopies = 3", "layout = \"mirror\"\ncopies = 3"),
        "raidz1" => ("layout = \"raidz1\"", "layout = \"raid5\""),
        "raidz2" => ("layout = \"raidz2\"", "layout = \"raid6\""),
        "raidz3" => ("layout = \"raidz3\"", "layout = \"raid6\""),
        _ => return None,
    };
    let (long, random) = (ways(long, kinds)?, ways(random, kinds)?);
    let of = |ways: &[PlannedWay], what: What| {
        let way = ways.iter().find(|way| way.of == what)?;
        (way.basis == Basis::Usual && way.rate.is_finite()).then_some((way.rate_low.min(way.rate), way.rate))
    };
    let mut names: Vec<&str> = kinds.iter().map(|kind| kind_name(*kind)).collect();
    names.sort_unstable();
    names.dedup();
    Some(KindRates {
        read: of(&long, What::Read)?,
        write: of(&long, What::Write)?,
        random_read: of(&random, What::RandomRead)?,
        source: format!("usual of a {}; nothing was measured yet", names.join(" and a ")),
    })
}

fn ways(layout: &str, kinds: &[DiskKind]) -> Option<Vec<PlannedWay>> {
    let mut text = format!("name = \"a new pool\"\n{layout}\n");
    for (at, kind) in kinds.iter().enumerate() {
        let kind = serde_json::to_value(kind).ok()?;
        text.push_str(&format!("[[disk]]\nname = \"disk{at}\"\nkind = {kind}\n"));
    }
    Some(plan(&Described::parse(&text).ok()?).ways)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_from_kinds_and_layout() {
        let of = |layout: &str, kinds: &[DiskKind]| kind_rates(layout, kinds).unwrap();
        let three = [DiskKind::Hdd; 3];
        let (stripe, raidz1) = (of("stripe", &three), of("raidz1", &three));
        assert!((stripe.read.1 - 3.0 * 285e6).abs() < 1e6, "{stripe:?}");
        assert!((raidz1.read.1 - 2.0 * 285e6).abs() < 1e6, "two of three units are data: {raidz1:?}");
        assert!(raidz1.random_read.1 > 2.0 * 300.0, "each disk answers for itself: {raidz1:?}");
        assert!(of("mirror", &three).write.1 < stripe.write.1);
        assert!(stripe.source.contains("hard disk") && stripe.source.contains("nothing was measured"));
        let fast = of("mirror", &[DiskKind::Nvme; 2]);
        assert!(fast.random_read.0 > raidz1.random_read.1, "{fast:?}");
        assert!(of("raidz1", &[DiskKind::Hdd, DiskKind::Hdd, DiskKind::Smr]).write.1 < raidz1.write.1);
        assert!(kind_rates("raid5", &three).is_none() && kind_rates("stripe", &[]).is_none());
    }
}
