//! Public reports whose culprit was found, as examples: `doctor --examples wifi`.
//!
//! They are the files of `fixtures/reality`. What is shown is the author's: the figures, the solution and the thread.

use serde::Serialize;

use super::sentences::Words;
use super::words::rate_words;
use crate::describe::Described;
use crate::reason::{Rig, Table};

/// As many as a screen holds.
const SHOWN_MAX: usize = 5;

macro_rules! reports {
    ($($name:literal,)*) => {
        &[$(($name, include_str!(concat!("../../fixtures/reality/", $name, ".toml"))),)*]
    };
}

/// Name and text of each.
pub(super) const REPORTS: &[(&str, &str)] = reports![
    "aes-ccm-mirror",
    "aes-gcm-debian",
    "aes-gcm-mac",
    "aes-gcm-sandy-bridge",
    "afp-out-of-a-vm",
    "afp-over-old-wifi",
    "antivirus-at-close",
    "bind-mount-of-a-mac",
    "browser-uploads-slowly",
    "cache-beats-the-slot",
    "cache-beats-usb",
    "cache-of-a-laptop",
    "chunk-server-flushes",
    "cosmic-through-gvfs",
    "evo-after-its-cache",
    "ext3-in-fragments",
    "ext4-in-user-space",
    "flash-drive-mounted-sync",
    "flash-without-capacitors",
    "four-disks-behind-one-lane",
    "fuse-over-nfs",
    "gadget-ethernet-by-ncm",
    "gluster-in-small-pieces",
    "gocryptfs-in-512-bytes",
    "gocryptfs-on-sshfs",
    "gocryptfs-reads-back",
    "half-a-record-again",
    "iperf-on-one-core",
    "iperf3-beside-iperf2-100g",
    "iperf3-beside-iperf2-10g",
    "jmicron-with-uas",
    "libsmb2-signs",
    "nautilus-beside-windows",
    "nautilus-over-davs",
    "nemo-beside-rsync",
    "nemo-through-gvfs",
    "nfs-on-a-bond",
    "nfs-waits-for-its-disks",
    "nfs-waits-iscsi-does-not",
    "nic-driver-one-way",
    "ntfs-in-a-usb3-case",
    "ntfs-mounted-sync",
    "offload-in-a-vm",
    "one-guest-of-several",
    "one-stream-in-a-guest",
    "one-upload-for-each-chunk",
    "phone-by-a-charging-cable",
    "php-is-full",
    "pi-flow-control",
    "pi3-on-wifi",
    "pi4-on-demand",
    "pi4-without-powerd",
    "pi5-gen2-beside-gen3",
    "pi5-link-fell-to-gen2",
    "plug-the-other-way-round",
    "pool-that-says-84-degrees",
    "postgres-one-page-at-a-time",
    "qvo-after-its-cache",
    "rclone-far-away",
    "rclone-on-one-connection",
    "record-of-128k",
    "replicas-over-gigabit",
    "restic-on-one-connection",
    "router-between-two-networks",
    "router-port-at-100",
    "rsync-compares-over-nfs",
    "samba-to-one-ubuntu",
    "slog-too-slow",
    "smbd-on-a-router",
    "smbj-signs",
    "smr-resilvers",
    "smr-while-plotting",
    "ssd-in-a-usb2-port",
    "ssd-never-trimmed",
    "ssh-cipher-gigabit",
    "sshfs-asks-for-4k",
    "sshfs-far-away",
    "sshfs-waits-for-each-answer",
    "sync-client-draws-its-window",
    "sync-client-encrypts",
    "syncthing-on-armv5",
    "torrent-in-pieces",
    "uas-turned-off",
    "udp-in-small-frames",
    "usb-disk-mounted-sync",
    "usb-nic-on-an-atom",
    "wireguard-on-a-router",
    "wsl2-through-9p",
];

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Examples {
    pub version: u32,
    pub word: String,
    /// The nearest first.
    pub found: Vec<Example>,
    /// More that have the word.
    pub more: usize,
    /// The subjects that there are, where nothing was found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<String>,
}

/// A report of somebody else.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Example {
    pub name: String,
    pub subject: String,
    pub measured: Vec<String>,
    pub solution: String,
    pub source: String,
}

pub fn examples(word: &str) -> Examples {
    let wanted = plain(word);
    let mut found: Vec<(usize, &str, &str)> =
        REPORTS.iter().map(|(name, text)| (nearness(name, text, &wanted), *name, *text)).collect();
    found.retain(|(nearness, ..)| *nearness > 0);
    found.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let mut subjects: Vec<String> = REPORTS.iter().map(|(_, text)| header(text, "kind").to_owned()).collect();
    subjects.sort();
    subjects.dedup();
    if !found.is_empty() {
        subjects.clear();
    }
    let more = found.len().saturating_sub(SHOWN_MAX);
    let shown = found.into_iter().take(SHOWN_MAX).map(|(_, name, text)| example(name, text));
    Examples { version: 1, word: word.to_owned(), found: shown.collect(), more, subjects }
}

fn example(name: &str, text: &str) -> Example {
    Example {
        name: name.to_owned(),
        subject: header(text, "kind").to_owned(),
        measured: Described::parse(text).map(|described| figures(&described)).unwrap_or_default(),
        solution: header(text, "solution").to_owned(),
        source: header(text, "source").to_owned(),
    }
}

/// Each row as the doctor would name it. Nothing is judged.
fn figures(described: &Described) -> Vec<String> {
    let table = Table::of(described);
    let words = Words { rig: Rig::new(described), table: &table };
    let rows = words.titles().into_iter().zip(&described.measured);
    rows.map(|(title, m)| format!("{title}: {}", rate_words(m.rate, m.what))).collect()
}

fn header<'a>(text: &'a str, key: &str) -> &'a str {
    let line = |line: &'a str| line.strip_prefix("# ")?.strip_prefix(key)?.strip_prefix(": ");
    text.lines().find_map(line).unwrap_or_default()
}

/// `Wi-Fi`, `wifi` and `WIFI` are one word.
fn plain(text: &str) -> String {
    text.to_lowercase().replace(['-', '_', ' '], "")
}

/// The subject says most, then the name, then what was found, then the description.
fn nearness(name: &str, text: &str, wanted: &str) -> usize {
    let has = |text: &str| usize::from(!wanted.is_empty() && plain(text).contains(wanted));
    let body: String = text.lines().filter(|line| !line.starts_with('#')).collect();
    has(header(text, "kind")) * 8
        + has(name) * 4
        + has(header(text, "solution")).max(has(header(text, "cause"))) * 2
        + has(&body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_report_is_an_example_and_can_be_read() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/reality");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<String> = files.filter_map(|file| Some(file.strip_suffix(".toml")?.to_owned())).collect();
        files.sort();
        let names: Vec<&str> = REPORTS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, files);
        for (name, text) in REPORTS {
            let one = example(name, text);
            assert!(!one.measured.is_empty(), "{name}: {:?}", Described::parse(text).err());
            assert!(
                one.source.starts_with("https://") && !one.solution.is_empty() && !one.subject.is_empty(),
                "{name}"
            );
        }
    }

    #[test]
    fn the_nearest_come_first() {
        for word in ["wifi", "Wi-Fi", "WIFI"] {
            let found = examples(word);
            assert!(found.found.iter().take(2).any(|one| one.subject == "wifi"), "{found:?}");
        }
        let nothing = examples("zeppelin");
        assert!(nothing.found.is_empty() && nothing.subjects.contains(&"wifi".to_owned()), "{nothing:?}");
        assert!(examples("").found.is_empty());
    }
}
