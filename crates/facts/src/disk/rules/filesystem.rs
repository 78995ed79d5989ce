//! The filesystem below a folder: its kind, its mount options, its room.

use larder_base::units::ByteSize;

use crate::disk::known::{Suits, suits};
use crate::disk::report::{Finding, Level, Space};
use crate::machine::Mount;

/// Less than this fills up before it is worth a disk of a pool.
const ROOM_BYTES_MIN: u64 = 1 << 30;
const BLOCK_BYTES_MIN: u64 = 4096;
/// A shard is a file: fewer than this many free inodes end a pool long before its room does.
const INODES_MIN: u64 = 10_000;

pub(in crate::disk) fn mount(mount: &Mount) -> Vec<Finding> {
    let at = mount.point.display();
    let kind = &mount.filesystem;
    let mut found = Vec::new();
    match suits(kind) {
        Suits::Well => found.push(Finding::new(Level::Ok, "filesystem", format!("{kind} mounted at {at}"), "")),
        Suits::SoSo(why) => found.push(
            Finding::new(Level::Note, "filesystem", format!("the filesystem at {at} is {kind}"), why)
                .action("XFS or ext4 are what larder is tested on"),
        ),
        Suits::No(why) => found.push(
            Finding::new(Level::Refuse, "filesystem", format!("the filesystem at {at} is {kind}"), why)
                .action("use a folder on a disk's own XFS or ext4 filesystem: larder disk prepare DEVICE"),
        ),
    }
    found.extend(OPTIONS.iter().filter(|rule| mount.has(rule.option)).map(|rule| {
        let what = format!("{at} is mounted with '{}'", rule.option);
        Finding::new(rule.level, rule.code, what, rule.why).action(rule.action.replace("{at}", &at.to_string()))
    }));
    found
}

struct OptionRule {
    option: &'static str,
    level: Level,
    code: &'static str,
    why: &'static str,
    action: &'static str,
}

const fn rule(
    option: &'static str,
    level: Level,
    code: &'static str,
    why: &'static str,
    action: &'static str,
) -> OptionRule {
    OptionRule { option, level, code, why, action }
}

const NO_BARRIER: &str = "flushes do not reach the disk: what was answered as stored is lost in a power cut";
const WITH_BARRIER: &str = "take the option out of /etc/fstab and mount again: umount {at} && mount {at}";
const NO_LOG: &str = "what its journal holds is not read: files may be damaged, and nothing may be written";
const QUOTA: &str = "a quota may end the room before the disk is full";

const OPTIONS: &[OptionRule] = &[
    rule("ro", Level::Refuse, "read-only", "nothing can be written to it", "mount -o remount,rw {at}"),
    rule("nobarrier", Level::Refuse, "no-barrier", NO_BARRIER, WITH_BARRIER),
    rule("barrier=0", Level::Refuse, "no-barrier", NO_BARRIER, WITH_BARRIER),
    rule("fsync_mode=nobarrier", Level::Refuse, "no-barrier", NO_BARRIER, WITH_BARRIER),
    rule("norecovery", Level::Refuse, "no-recovery", NO_LOG, WITH_BARRIER),
    rule("noload", Level::Refuse, "no-recovery", NO_LOG, WITH_BARRIER),
    rule(
        "data=writeback",
        Level::Warning,
        "data-writeback",
        "after a power cut files may hold old bytes; checksums find them, and every one costs a repair",
        "mount it with data=ordered, the default",
    ),
    rule(
        "journal_async_commit",
        Level::Warning,
        "async-commit",
        "its journal may be committed before it is whole",
        "take the option out of /etc/fstab",
    ),
    rule(
        "sync",
        Level::Warning,
        "mounted-sync",
        "every single write is flushed, where larder flushes once for many",
        "mount -o remount,async {at}",
    ),
    rule(
        "dirsync",
        Level::Warning,
        "mounted-sync",
        "every change of a folder is flushed by itself",
        "take the option out of /etc/fstab",
    ),
    rule(
        "strictatime",
        Level::Note,
        "atime",
        "every read writes a time that nobody asks for",
        "mount -o remount,noatime {at}",
    ),
    rule("usrquota", Level::Note, "quota", QUOTA, "see: quota"),
    rule("grpquota", Level::Note, "quota", QUOTA, "see: quota"),
    rule("prjquota", Level::Note, "quota", QUOTA, "see: xfs_quota"),
    rule("pquota", Level::Note, "quota", QUOTA, "see: xfs_quota"),
];

pub(in crate::disk) fn space(space: &Space) -> Vec<Finding> {
    let mut found = Vec::new();
    let (available, total) = (ByteSize(space.available_bytes), ByteSize(space.total_bytes));
    let what = format!("{available} of {total} are free");
    if space.available_bytes == 0 {
        found
            .push(Finding::new(Level::Refuse, "full", what, "there is no room for anything").action("make room first"));
    } else if space.available_bytes < ROOM_BYTES_MIN {
        let why = format!("with less than {} a pool is full at once", ByteSize(ROOM_BYTES_MIN));
        found.push(Finding::new(Level::Warning, "full", what, why).action("make room, or use another disk"));
    } else {
        found.push(Finding::new(Level::Ok, "room", what, ""));
    }
    if space.inodes > 0 && space.inodes_free < INODES_MIN {
        let level = if space.inodes_free == 0 { Level::Refuse } else { Level::Warning };
        let what = format!("{} of {} inodes are free", space.inodes_free, space.inodes);
        found.push(
            Finding::new(level, "inodes", what, "every piece of an object is a file")
                .action("remove files, or make the filesystem anew as XFS, which makes inodes as needed"),
        );
    }
    if space.block_bytes < BLOCK_BYTES_MIN {
        let what = format!("the filesystem's blocks are {}", ByteSize(space.block_bytes));
        found.push(
            Finding::new(
                Level::Warning,
                "block-size",
                what,
                "direct writes are 4 KiB: smaller blocks cost metadata and fragment files",
            )
            .action("make the filesystem anew with blocks of 4096 bytes"),
        );
    }
    found
}

/// The layers between the filesystem and the disks.
pub(in crate::disk) fn layers(layers: &[String], devices: usize) -> Vec<Finding> {
    let mut found = Vec::new();
    let path = layers.join(" on ");
    if let Some(file) = layers.iter().find(|l| l.contains("(the file ")) {
        found.push(
            Finding::new(
                Level::Warning,
                "loop",
                format!("it lies in a file: {file}"),
                "two filesystems flush one after the other, and both must be right",
            )
            .action("fine for trying out; use the disk itself for data that matters"),
        );
    }
    let striped = layers.iter().any(|l| l.contains("(raid0)") || l.contains("(linear)"));
    if devices > 1 && (striped || layers.iter().any(|l| l.contains("(LVM "))) {
        found.push(
            Finding::new(
                Level::Warning,
                "spans-disks",
                format!("it lies on {devices} disks through {path}"),
                "each of them that fails takes this member of the pool with it",
            )
            .action("give the pool each disk by itself: it does the spreading"),
        );
    } else if devices > 1 {
        found.push(Finding::new(
            Level::Note,
            "spans-disks",
            format!("it lies on {devices} disks through {path}"),
            "the pool cannot tell which of them returns wrong bytes, and redundancy is paid for twice",
        ));
    }
    found
}
