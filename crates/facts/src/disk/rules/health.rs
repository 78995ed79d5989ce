//! A disk's own account of its health.

use crate::disk::report::{Finding, Level};
use crate::machine::{BlockDevice, Medium, Smart};

const WEAR_PERCENT_MAX: u64 = 90;
const HARD_DISK_C_WARM: i64 = 50;
const HARD_DISK_C_HOT: i64 = 60;
const FLASH_C_HOT: i64 = 70;
/// Five years of running.
const HARD_DISK_HOURS_OLD: u64 = 5 * 365 * 24;

pub(in crate::disk) fn health(disk: &BlockDevice, smart: &Smart) -> Vec<Finding> {
    let title = disk.title();
    let mut found = Vec::new();
    found.extend(failing(&title, smart));
    found.extend(errors(&title, smart));
    found.extend(wear(&title, smart));
    found.extend(temperature(&title, disk.medium, smart));
    if disk.medium == Medium::HardDisk
        && let Some(hours) = smart.power_on_hours.filter(|&hours| hours > HARD_DISK_HOURS_OLD)
    {
        let years = hours / (365 * 24);
        let why = "hard disks fail more often as they grow old";
        found.push(Finding::new(Level::Note, "old", format!("{title} has been running for {years} years"), why));
    }
    if found.iter().all(|f| f.level < Level::Warning) && smart.passed == Some(true) {
        let degrees = smart.temperature_c.map(|c| format!(", {c} °C")).unwrap_or_default();
        let worn = smart.wear_percent.map(|p| format!(", {p} % worn")).unwrap_or_default();
        found.push(Finding::new(Level::Ok, "smart", format!("{title} says that it is well{degrees}{worn}"), ""));
    }
    found
}

fn failing(title: &str, smart: &Smart) -> Option<Finding> {
    let refuse = |what: String, why: &str| {
        Some(
            Finding::new(Level::Refuse, "failing", what, why)
                .action("do not use it; where it holds data, copy that first"),
        )
    };
    if let Some(bits) = smart.critical_warning.filter(|&bits| bits != 0) {
        return refuse(format!("{title} warns: {}", critical(bits)), "the disk itself says that it fails");
    }
    if smart.passed == Some(false) {
        return refuse(format!("{title} says that it is failing (SMART)"), "the disk expects to die soon");
    }
    if !smart.failing.is_empty() {
        return refuse(
            format!("{title}: {} below the maker's limit", smart.failing.join(", ")),
            "the maker expects it to die",
        );
    }
    None
}

/// NVM Express Base Specification 2.0, 5.16.1.3, Critical Warning.
fn critical(bits: u64) -> String {
    const MEANINGS: [&str; 6] = [
        "spare blocks used up",
        "too hot or too cold",
        "unreliable after errors",
        "read-only",
        "its backup power failed",
        "persistent memory failed",
    ];
    let set = MEANINGS.iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0);
    let words: Vec<&str> = set.map(|(_, words)| *words).collect();
    if words.is_empty() { format!("{bits:#x}") } else { words.join(", ") }
}

fn errors(title: &str, smart: &Smart) -> Vec<Finding> {
    let counted = |count: Option<u64>, what: &str, why: &str, action: &str| {
        let count = count.filter(|&n| n > 0)?;
        let what = format!("{title}: {count} {what}");
        Some(Finding::new(Level::Warning, "errors", what, why).action(action))
    };
    let watch = "watch whether the number grows; replace the disk if it does";
    [
        counted(
            smart.pending_sectors,
            "sectors cannot be read",
            "they are read again from redundancy, while there is any",
            watch,
        ),
        counted(smart.uncorrectable_sectors, "sectors were lost", "the disk could not mend them", watch),
        counted(smart.reallocated_sectors, "sectors were replaced by spare ones", "the surface is going", watch),
        counted(smart.media_errors, "media errors", "flash that could not be read", watch),
        counted(
            smart.crc_errors,
            "transfers were damaged on the way",
            "a bad cable or plug; the count never goes back",
            "another cable; fine if the number stays",
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn wear(title: &str, smart: &Smart) -> Option<Finding> {
    let worn = smart.wear_percent.filter(|&percent| percent >= WEAR_PERCENT_MAX)?;
    let what = format!("{title} has used {worn} % of its rated writes");
    Some(
        Finding::new(Level::Warning, "worn", what, "worn flash forgets, first while it is switched off")
            .action("plan its replacement"),
    )
}

fn temperature(title: &str, medium: Medium, smart: &Smart) -> Option<Finding> {
    let degrees = smart.temperature_c?;
    let (level, why) = match medium {
        Medium::HardDisk if degrees >= HARD_DISK_C_HOT => (Level::Warning, "beyond what makers allow"),
        Medium::HardDisk if degrees >= HARD_DISK_C_WARM => (Level::Note, "warm for a hard disk"),
        Medium::Flash | Medium::Unknown if degrees >= FLASH_C_HOT => {
            (Level::Warning, "flash slows down when it is hot")
        }
        _ => return None,
    };
    Some(
        Finding::new(level, "hot", format!("{title} is at {degrees} °C"), why)
            .action("air: a fan, or room between disks"),
    )
}
