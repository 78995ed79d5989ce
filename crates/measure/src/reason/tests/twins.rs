//! Twins: a box of the field notes with one figure moved past the point where the answer must change.

use super::*;

/// The file, the row, its kind; what is replaced by what, and the kind afterwards.
const TWINS: &[(&str, usize, &str, &str, &str, &str)] = &[
    // With cores to spare, 97 MB/s of 117 are the wire's.
    ("pi.toml", 5, "processor", "cores = [100, 50, 25, 5]", "cores = [60, 50, 25, 5]", "network"),
    // Half of the wire's rate is not the wire's.
    ("pi.toml", 4, "network", "rate = \"108MB/s\"", "rate = \"60MB/s\"", "unexplained"),
    // With a wide link nothing explains why the disk gives less than its figure.
    ("pi.toml", 0, "link", "limit = \"450MB/s\"", "limit = \"4GB/s\"", "unexplained"),
    // Cores that are half idle hold nothing back.
    (
        "nvme.toml",
        3,
        "processor",
        "cores = [100, 100, 100, 100, 100, 100, 100, 100]",
        "cores = [50, 50, 50, 50, 50, 50, 50, 50]",
        "unexplained",
    ),
    // In a slot of the same generation as the others the disk's wire is no limit.
    (
        "nvme.toml",
        1,
        "link",
        "connection = \"PCIe 3.0 x4\"\nread = \"4GiB/s\"",
        "connection = \"PCIe 5.0 x4\"\nread = \"2.8GiB/s\"",
        "disks",
    ),
    ("usb.toml", 1, "network", "rate = \"11.5MB/s\"", "rate = \"5MB/s\"", "unexplained"),
    // Cores that are full, beside a wire that is not quite full, are the limit.
    ("raidz.toml", 1, "network", "cores = [70, 65, 60, 60]", "cores = [100, 100, 99, 99]", "processor"),
    // Many requests at once have the disks' bandwidth.
    (
        "raidz.toml",
        2,
        "waiting",
        "rate = \"1.2GB/s\"\nblock = \"128KiB\"\ndepth = 1",
        "rate = \"9.5GB/s\"\nblock = \"128KiB\"\ndepth = 64",
        "disks",
    ),
    // As fast as the other program: the client is not to blame.
    ("laptop.toml", 2, "client", "rate = \"20MB/s\"", "rate = \"95MB/s\"", "network"),
];

#[test]
fn one_figure_past_the_point_changes_the_answer() {
    for (file, row, before, from, to, after) in TWINS {
        let text = fixture(file);
        assert!(text.contains(from), "{file} has no {from}");
        let (one, twin) = (Boxed::parse(&text), Boxed::parse(&text.replacen(from, to, 1)));
        let told = |boxed: &Boxed| format!("{file} {row}: {:#?}", boxed.verdict(*row));
        assert_eq!(one.kind(*row), *before, "{}", told(&one));
        assert_eq!(twin.kind(*row), *after, "{}", told(&twin));
    }
}
