//! Conclusions about a disk from the measured time of its flushes.

use crate::disk::flush::{FlushRate, SPINNING_PER_S_MAX};
use crate::disk::report::{Finding, Level, Unknown};
use crate::machine::{BlockDevice, Bus, Medium, Smart, WriteCache};

/// Slower than this, and small synchronous writes are felt.
const FLUSH_US_SLOW: u64 = 30_000;

pub(in crate::disk) fn flush(rate: &FlushRate, disks: &[&BlockDevice], layers: &[String]) -> Vec<Finding> {
    let measured = format!("{:.0} flushes/s of 4 KiB (one takes {})", rate.per_s, millis(rate.median_us));
    let hidden = disks.is_empty() || disks.iter().any(|d| d.curtain.is_some());
    let spinning = !hidden && disks.iter().all(|d| d.medium == Medium::HardDisk);
    if spinning && rate.per_s > SPINNING_PER_S_MAX {
        let bridge = disks.iter().any(|d| d.bus == Bus::Usb);
        let culprit = if bridge { "the bridge or the disk" } else { "the disk, or something above it," };
        let why = format!(
            "no platter turns that often: {culprit} says 'stored' while it is not, unless its cache outlives a power cut"
        );
        let action = match layers.is_empty() {
            true => "switch its write cache off (hdparm -W0 DEVICE), or use another bridge",
            false => "check what lies between (bcache, dm-writecache), then the write cache: hdparm -W0 DEVICE",
        };
        return vec![Finding::new(Level::Warning, "false-flush", measured, why).action(action)];
    }
    let level = if rate.median_us > FLUSH_US_SLOW { Level::Note } else { Level::Ok };
    let why = if level == Level::Note { "small synchronous writes (databases, NFS) will be felt" } else { "" };
    vec![Finding::new(level, "flush", measured, why)]
}

/// Flash answers a flush in microseconds whether it is honest or not.
pub(in crate::disk) fn unknown(disk: &BlockDevice, smart: Option<&Smart>) -> Option<Unknown> {
    if disk.curtain.is_some() || disk.medium != Medium::Flash {
        return None;
    }
    let no_cache = disk.bus == Bus::Nvme && disk.write_cache == Some(WriteCache::Through);
    if no_cache || smart.is_some_and(|s| s.power_loss_protection) {
        return None;
    }
    Some(Unknown {
        what: format!("whether {} keeps what it has flushed when the power goes", disk.title()),
        why: "time tells nothing on flash, and it names no protection against power loss".to_owned(),
        action: None,
    })
}

/// A disk that says that its cache outlives a power cut.
pub(in crate::disk) fn protected(disk: &BlockDevice, smart: Option<&Smart>) -> Option<Finding> {
    let says = |how: &str| {
        let what = format!("{} {how}", disk.title());
        Some(Finding::new(Level::Ok, "power-loss-protection", what, ""))
    };
    if disk.bus == Bus::Nvme && disk.write_cache == Some(WriteCache::Through) {
        return says("has no volatile write cache");
    }
    if smart.is_some_and(|s| s.power_loss_protection) {
        return says("tests a capacitor against power loss");
    }
    None
}

fn millis(us: u64) -> String {
    if us >= 1000 { format!("{:.1} ms", us as f64 / 1e3) } else { format!("{us} µs") }
}
