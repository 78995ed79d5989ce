//! The table of mounts, from `/proc/self/mountinfo` (proc(5)).

use std::path::{Path, PathBuf};

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// `8:1`; filesystems without a device of their own have major 0.
    pub number: String,
    pub point: PathBuf,
    /// Not the filesystem as a whole: a bind mount, a subvolume.
    pub part: bool,
    pub filesystem: String,
    /// The mounted device or share: `/dev/sda1`, `server:/export`, `tank/data`.
    pub source: String,
    /// Of this mount and of the filesystem, each once.
    pub options: Vec<String>,
}

impl Mount {
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|o| o == option)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Mounts(Vec<Mount>);

impl Mounts {
    pub fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(parse_line).collect())
    }

    pub fn all(&self) -> &[Mount] {
        &self.0
    }

    /// The mount that a path without links lies on. Of two on the same folder the later hides the earlier.
    pub fn of(&self, path: &Path) -> Option<&Mount> {
        let around = self.0.iter().filter(|m| path.starts_with(&m.point));
        around.max_by_key(|m| m.point.components().count())
    }

    /// The mounts of the device of this number.
    pub fn of_number(&self, number: &str) -> Vec<&Mount> {
        self.0.iter().filter(|m| m.number == number).collect()
    }
}

/// `36 35 98:0 /root /mnt rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(2);
    let (number, root, point, own) = (before.next()?, before.next()?, before.next()?, before.next()?);
    let mut after = after.split(' ');
    let (filesystem, source, its) = (after.next()?, after.next()?, after.next().unwrap_or_default());
    let mut options: Vec<String> = Vec::new();
    for option in own.split(',').chain(its.split(',')).filter(|o| !o.is_empty()) {
        if !options.iter().any(|o| o == option) {
            options.push(option.to_owned());
        }
    }
    Some(Mount {
        number: number.to_owned(),
        point: PathBuf::from(unescaped(point)),
        part: root != "/",
        filesystem: filesystem.to_owned(),
        source: unescaped(source),
        options,
    })
}

/// Blanks, tabs, newlines and backslashes are written as three octal digits.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|d| std::str::from_utf8(d).ok()).and_then(|d| u8::from_str_radix(d, 8).ok());
        match octal {
            Some(byte) if first == b'\\' => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
28 27 0:25 / /mnt ro,nosuid shared:4 master:2 - tmpfs none rw,size=4k
29 27 8:1 / /mnt/my\\040disk rw,noatime shared:9 - xfs /dev/sda1 rw,prjquota
30 27 8:17 / /mnt/my\\040disk rw - ext4 /dev/sdb1 rw
nonsense
31 27 8:33 /sub /mnt/mydisk rw - ext4 /dev/sdc1 rw";

    #[test]
    fn the_deepest_and_latest_mount_counts() {
        let mounts = Mounts::parse(TEXT);
        assert_eq!(mounts.all().len(), 5);
        let check = |path: &str, number: &str| {
            assert_eq!(mounts.of(Path::new(path)).unwrap().number, number, "{path}");
        };
        check("/home/x", "254:0");
        check("/mnt/other", "0:25");
        check("/mnt/my disk/larder", "8:17");
        check("/mnt/mydisk", "8:33");
        assert!(mounts.of(Path::new("relative")).is_none());
        let xfs = mounts.of_number("8:1");
        assert_eq!(xfs[0].point, Path::new("/mnt/my disk"));
        assert!(xfs[0].has("prjquota") && xfs[0].has("noatime") && !xfs[0].has("ro"));
        assert_eq!(xfs[0].options, ["rw", "noatime", "prjquota"]);
    }
}
