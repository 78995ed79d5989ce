//! Two measurements with one thing different.

use super::*;
use crate::stats;

fn boxed(rest: &str) -> Boxed {
    Boxed::parse(&format!(
        "name = \"box\"\ndisk = [{{ name = \"d\", kind = \"nvme\", read = \"3GB/s\", write = \"3GB/s\" }}]\n{rest}"
    ))
}

fn with_disks(text: &str) -> Boxed {
    Boxed::parse(&format!("name = \"box\"\n{text}"))
}

fn contrast(one: &Boxed, row: usize) -> Option<(Property, usize)> {
    match one.verdict(row).evidence {
        Evidence::Contrast { property, row, .. } => Some((property, row)),
        _ => None,
    }
}

/// A client whose sending side is held to 730 Mbit/s, whatever the number of streams.
#[test]
fn an_asymmetric_wire_is_an_answer() {
    let one = boxed(
        r#"
        network = { name = "gigabit" }
        measured = [{ path = "network", what = "read", rate = "940Mbit/s", jobs = 1 },
                    { path = "network", what = "read", rate = "941Mbit/s", jobs = 4 },
                    { path = "network", what = "write", rate = "728Mbit/s", jobs = 1 },
                    { path = "network", what = "write", rate = "730Mbit/s", jobs = 4 }]"#,
    );
    for (row, other) in [(2, 0), (3, 1)] {
        assert_eq!(contrast(&one, row), Some((Property::Direction, other)), "{:?}", one.verdict(row));
        assert_eq!(one.kind(row), "network");
    }
    assert_eq!(one.kind(0), "network");
    let fixes = fixes(one.rig(), &one.table, 3, &one.verdict(3));
    assert_eq!(fixes[0].remedy, Remedy::BothDirections, "{fixes:?}");
    assert!(fixes.iter().all(|fix| fix.remedy != Remedy::FasterNetwork), "{fixes:?}");
}

#[test]
fn what_alone_differs_is_named() {
    let two = |first: &str, second: &str| {
        boxed(&format!(
            r#"
            network = {{ name = "10 GbE" }}
            client = [{{ name = "mac" }}, {{ name = "pc" }}]
            measured = [{{ path = "share", what = "read", rate = "400MB/s", {first} }},
                        {{ path = "share", what = "read", rate = "520MB/s", {second} }}]"#
        ))
    };
    let clients = two("client = \"mac\"", "client = \"pc\"");
    assert_eq!(contrast(&clients, 0), Some((Property::Client, 1)));
    let programs = two("client = \"mac\", with = \"Finder\"", "client = \"mac\", with = \"rsync\"");
    assert_eq!(contrast(&programs, 0), Some((Property::Program, 1)));
    // Two things differ, and neither alone explains the difference.
    let both = two("client = \"mac\", depth = 1, block = \"1MiB\"", "client = \"pc\", depth = 16, block = \"1MiB\"");
    assert!(contrasts(&both.table, 0).is_empty());
    // Within the spread nothing differs.
    let alike = boxed(
        r#"
        network = { name = "10 GbE" }
        client = [{ name = "mac" }, { name = "pc" }]
        measured = [{ path = "share", what = "read", rate = "400MB/s", client = "mac" },
                    { path = "share", what = "read", rate = "440MB/s", client = "pc" }]"#,
    );
    assert!(contrasts(&alike.table, 0).is_empty());
}

/// Nobody varied anything: the verdict names what to measure next.
#[test]
fn not_explained_names_the_next_measurement() {
    let share = |rest: &str| {
        boxed(&format!(
            r#"
            network = {{ name = "10 GbE" }}
            measured = [{{ path = "share", what = "read", rate = "400MB/s", cores = [30, 20, 10, 0] {rest} }}]"#
        ))
    };
    assert_eq!(share("").verdict(0).evidence, Evidence::Missing(Property::Layer));
    let unwatched = boxed(
        r#"
        network = { name = "10 GbE" }
        measured = [{ path = "share", what = "read", rate = "400MB/s" }]"#,
    );
    assert_eq!(unwatched.verdict(0).evidence, Evidence::Missing(Property::Layer));
    // Disks and wire are faster, and nobody looked at the cores: it is either end.
    let ends = |cores: &str| {
        boxed(&format!(
            r#"
            network = {{ name = "10 GbE" }}
            measured = [{{ path = "share", what = "read", rate = "100MB/s" {cores} }},
                        {{ path = "network", what = "read", rate = "9.4Gbit/s" }},
                        {{ path = "local", what = "read", rate = "900MB/s" }}]"#
        ))
    };
    assert_eq!(ends("").verdict(0).evidence, Evidence::Missing(Property::Ends));
    // Idle cores of the server leave the client, by exclusion.
    let idle = ends(", cores = [20, 10, 5, 5]").verdict(0);
    assert_eq!((idle.resource, idle.confidence), (Some(ResourceId::ClientSide), Confidence::Maybe));
}

/// The cipher costs a share its rate, where the same without it was faster.
#[test]
fn plain_against_encrypted_is_a_contrast() {
    let one = boxed(
        r#"
        network = { name = "10 GbE" }
        measured = [{ path = "share", what = "read", rate = "310MB/s", encryption = "AES-128-GCM", cores = [60, 20] },
                    { path = "share", what = "read", rate = "620MB/s", cores = [60, 20] }]"#,
    );
    assert_eq!(contrast(&one, 0), Some((Property::Encryption, 1)), "{:?}", one.verdict(0));
    let fixes = fixes(one.rig(), &one.table, 0, &one.verdict(0));
    assert_eq!((fixes[0].remedy, fixes[0].rate_after), (Remedy::LessWork, 620e6), "{fixes:?}");
    // The faster one is no worse for the other.
    assert_ne!(contrast(&one, 1), Some((Property::Encryption, 0)));
}

/// A single difference outranks "not explained".
#[test]
fn any_single_difference_is_named() {
    let pairs = [
        ("block = \"4KiB\", depth = 4", "block = \"1MiB\", depth = 4", Property::Block),
        ("block = \"1MiB\", depth = 4", "block = \"1MiB\", depth = 32", Property::InFlight),
    ];
    for (slow, fast, property) in pairs {
        let one = boxed(&format!(
            r#"
            network = {{ name = "10 GbE" }}
            measured = [{{ path = "share", what = "read", rate = "200MB/s", {slow}, cores = [30, 20] }},
                        {{ path = "share", what = "read", rate = "500MB/s", {fast}, cores = [30, 20] }}]"#
        ));
        assert_eq!(contrast(&one, 0), Some((property, 1)), "{:?}", one.verdict(0));
        assert!(matches!(one.verdict(1).evidence, Evidence::Missing(_)), "{:?}", one.verdict(1));
    }
}

/// A disk is hot by its own limit, and by its kind's where that is not known.
#[test]
fn hot_is_what_the_disk_calls_so() {
    let disk = |more: &str| {
        Boxed::parse(&format!(
            r#"
            name = "box"
            disk = [{{ name = "d", kind = "nvme", read = "3GB/s", temperature = 74 {more} }}]
            measured = [{{ path = "disks", what = "read", rate = "900MB/s", cores = [20, 10] }}]"#
        ))
    };
    let hot = |one: &Boxed| matches!(one.verdict(0).evidence, Evidence::Reached { mode: Mode::Hot, .. });
    assert!(hot(&disk("")) && hot(&disk(", temperature_limit = 72")) && !hot(&disk(", temperature_limit = 85")));
}

/// Jumbo frames carry 987 Mbit/s on gigabit; a record size of a pool says nothing of a raw disk.
#[test]
fn what_is_possible_is_no_contradiction() {
    let jumbo = boxed(
        "network = { name = \"gigabit\" }\nmeasured = [{ path = \"network\", what = \"read\", rate = \"987Mbit/s\" }]",
    );
    assert_eq!(jumbo.kind(0), "network", "{:?}", jumbo.verdict(0));
    let raw = Boxed::parse(
        r#"
        name = "box"
        record = "1MiB"
        disk = [{ name = "d", kind = "nvme", read = "3GB/s", random_read = 500000 }]
        measured = [{ path = "disks", what = "random-read", iops = 480000, depth = 64, block = "4KiB" }]"#,
    );
    assert_eq!(raw.kind(0), "disks", "{:?}", raw.verdict(0));
}

/// Two clients on one wire, of which one carries less in one direction: its adapter, and not the wire.
#[test]
fn a_client_that_carries_less_than_another_is_the_limit() {
    let one = boxed(
        r#"
        network = { name = "2.5 GbE" }
        client = [{ name = "tower" }, { name = "mac" }]
        measured = [{ path = "network", what = "read", rate = "2350Mbit/s", client = "tower", jobs = 4 },
                    { path = "network", what = "read", rate = "1480Mbit/s", client = "mac", jobs = 4 },
                    { path = "network", what = "write", rate = "2340Mbit/s", client = "mac", jobs = 4 },
                    { path = "share", what = "read", rate = "180MB/s", client = "mac" }]"#,
    );
    assert_eq!(contrast(&one, 1), Some((Property::Client, 0)), "{:?}", one.verdict(1));
    assert_eq!((one.kind(1), one.kind(3)), ("client", "client"), "{:?}", one.verdict(3));
    let fix = one.first_fix().unwrap();
    assert_eq!((fix.remedy, fix.rate_after), (Remedy::WithoutAdapter, 293.75e6), "{fix:?}");
}

/// An enclosure or adapter that nobody described: what lies before and behind it is faster, and both directions are
/// alike. One direction alone proves no such thing.
#[test]
fn something_between_two_faster_things_has_a_rate_of_its_own() {
    let enclosure = |rows: &str| {
        Boxed::parse(&format!(
            r#"
            name = "box"
            disk = [{{ name = "d", kind = "nvme", read = "4800MB/s", write = "4500MB/s", connection = "USB 3.2 Gen 2" }}]
            measured = [{rows}]"#
        ))
    };
    let read = r#"{ path = "disks", what = "read", rate = "705MB/s", depth = 16, block = "1MiB", cores = [20, 5] }"#;
    let write = read.replace("\"read\"", "\"write\"").replace("705", "698");
    let both = enclosure(&format!("{read}, {write}"));
    for row in [0, 1] {
        let verdict = both.verdict(row);
        assert!(matches!(verdict.evidence, Evidence::Reached { mode: Mode::Between, .. }), "{verdict:?}");
        assert_eq!(both.kind(row), "link");
    }
    // No fix promises more than the port carries.
    assert_eq!(both.first_fix().map(|fix| (fix.remedy, fix.rate_after)), Some((Remedy::WithoutAdapter, 1050e6)));
    assert_eq!(enclosure(read).kind(0), "unexplained");
    let wire = boxed(
        r#"
        network = { name = "10 GbE" }
        measured = [{ path = "network", what = "read", rate = "3.1Gbit/s", jobs = 4, cores = [30, 20], client_cores = [20, 20] },
                    { path = "network", what = "write", rate = "3.2Gbit/s", jobs = 4, cores = [30, 20], client_cores = [20, 20] }]"#,
    );
    assert_eq!((wire.kind(0), wire.kind(1)), ("link", "link"), "{:?}", wire.verdict(0));
}

/// Many things give the rate of a lower standard. It is named where something else speaks for it, too.
#[test]
fn a_slower_standard_needs_a_second_witness() {
    let share = |rows: &str| boxed(&format!("network = {{ name = \"gigabit\" }}\nmeasured = [{rows}]"));
    let read = r#"{ path = "share", what = "read", rate = "11.3MB/s" }"#;
    let alone = share(read);
    assert_eq!(alone.verdict(0).evidence, Evidence::Missing(Property::Negotiated));
    let idle = share(&read.replace(" }", ", cores = [12, 7] }"));
    let other_way = share(&format!("{read}, {}", read.replace("\"read\"", "\"write\"")));
    for one in [idle, other_way] {
        let verdict = one.verdict(0);
        assert!(matches!(verdict.evidence, Evidence::Reached { mode: Mode::SlowerStandard, .. }), "{verdict:?}");
    }
}

/// Reading at the full rate of a wire is no fault; the slower direction is, and its repair stands before a purchase.
#[test]
fn a_repair_stands_before_a_faster_wire_for_what_fills_it() {
    let one = boxed(
        r#"
        network = { name = "gigabit" }
        measured = [{ path = "network", what = "read", rate = "941Mbit/s", jobs = 4 },
                    { path = "network", what = "write", rate = "610Mbit/s", jobs = 4 },
                    { path = "share", what = "read", rate = "112MB/s" },
                    { path = "share", what = "write", rate = "71MB/s" }]"#,
    );
    let fixes = one.fixes();
    assert_eq!(fixes[0].remedy, Remedy::BothDirections, "{fixes:?}");
    assert!(fixes.iter().any(|fix| fix.remedy == Remedy::FasterNetwork), "{fixes:?}");
}

/// One request at a time is no limit of a disk that gives what is usual of it.
#[test]
fn block_sizes_are_a_contrast() {
    let one = Boxed::parse(
        r#"
        name = "box"
        disk = [{ name = "d", kind = "sata-ssd" }]
        measured = [{ path = "disks", what = "read", rate = "520MB/s", block = "1MiB", depth = 1, caches = "bypassed" },
                    { path = "disks", what = "read", rate = "46MB/s", block = "4KiB", depth = 1, caches = "bypassed" }]"#,
    );
    assert_eq!(one.kind(0), "disks", "{:?}", one.verdict(0));
    assert_eq!(contrast(&one, 1), Some((Property::Block, 0)));
}

/// Repeats prove a smaller difference than 20 %, and unprove a larger one that is their own spread.
#[test]
fn repeats_decide_what_differs() {
    let mut one = boxed(
        r#"
        network = { name = "10 GbE" }
        client = [{ name = "mac" }, { name = "pc" }]
        measured = [{ path = "share", what = "read", rate = "400MB/s", client = "mac" },
                    { path = "share", what = "read", rate = "440MB/s", client = "pc" }]"#,
    );
    let mut with = |rates: [&[f64]; 2]| {
        for (row, rates) in one.table.rows.iter_mut().zip(rates) {
            row.rate = rates[rates.len() / 2];
            row.sample = stats::Sample { logs: rates.iter().map(|rate| rate.ln()).collect(), within: Vec::new() };
        }
        contrasts(&one.table, 0).len()
    };
    assert_eq!(with([&[399.0, 400.0, 401.0], &[438.0, 440.0, 441.0]]), 1);
    assert_eq!(with([&[250.0, 400.0, 610.0], &[300.0, 520.0, 640.0]]), 0);
    assert_eq!(with([&[399.0, 400.0, 401.0], &[408.0, 409.0, 410.0]]), 0, "less than 5 % is no difference");
}

/// Twins: many small fragments explain a slow read of a hard disk, few do not, and nobody who looked is asked to look.
#[test]
fn a_file_in_many_fragments_is_read_slowly() {
    let read = |rest: &str| {
        with_disks(&format!(
            r#"
            disk = [{{ name = "HDD", kind = "hdd", read = "180MB/s" }}]
            measured = [{{ path = "local", what = "read", rate = "16MB/s", file = "8.51GiB" {rest} }}]"#
        ))
    };
    assert_eq!(read("").verdict(0).evidence, Evidence::Missing(Property::Pieces));
    let many = read(", fragments = 122935").verdict(0);
    assert!(matches!(many.evidence, Evidence::Reached { mode: Mode::InPieces, .. }), "{many:?}");
    assert_eq!((many.resource, many.confidence), (Some(ResourceId::Disks), Confidence::Likely));
    for other in [", fragments = 12", ", fragments = 122935, cores = [100, 4]"] {
        let verdict = read(other).verdict(0);
        let explained = matches!(verdict.evidence, Evidence::Reached { mode: Mode::InPieces, .. });
        assert!(!explained && verdict.evidence != Evidence::Missing(Property::Pieces), "{other}: {verdict:?}");
    }
    for senseless in [
        r#"{ path = "local", what = "read", rate = "9MB/s", fragments = 5 }"#,
        r#"{ path = "local", what = "read", rate = "9MB/s", file = "1GB", fragments = 0 }"#,
        r#"{ path = "local", what = "random-read", iops = 9, file = "1GB", fragments = 5 }"#,
    ] {
        let text = format!("name = \"b\"\ndisk = [{{ name = \"d\" }}]\nmeasured = [{senseless}]");
        assert!(Described::parse(&text).is_err(), "{senseless}");
    }
}

/// A port, cable or enclosure that another one outdoes is named, and promises no more than the other one gave.
#[test]
fn another_port_or_cable_names_the_first() {
    let one = with_disks(
        r#"
        disk = [{ name = "SSD", kind = "sata-ssd" }]
        measured = [{ path = "disks", what = "read", rate = "9MB/s", port = "the hub" },
                    { path = "disks", what = "read", rate = "410MB/s", port = "the board" }]"#,
    );
    let verdict = one.verdict(0);
    assert_eq!(verdict.resource, Some(ResourceId::UnknownLink));
    assert!(matches!(verdict.evidence, Evidence::Contrast { property: Property::Port, row: 1, .. }), "{verdict:?}");
    let found = crate::doctor::diagnose(&one.described);
    assert!(found.verdict.contains("the hub: the board gave 410 MB/s"), "{}", found.verdict);
    assert!(found.advice.iter().all(|advice| advice.rate_after <= 410e6), "{:?}", found.advice);
}

/// Names of a folder lie many to a block, so their number contradicts no disk.
#[test]
fn many_names_a_second_are_no_contradiction() {
    let listed = |kind: &str| {
        let text = format!(
            "disk = [{{ name = \"HDD\", kind = \"hdd\", count = 2 }}]\nlayout = \"linear\"\n\
             measured = [{{ path = \"local\", {kind} }}]"
        );
        with_disks(&text).verdict(0).evidence
    };
    let contradicts = |evidence: Evidence| matches!(evidence, Evidence::Contradiction { .. });
    assert!(!contradicts(listed("what = \"list\", files = 5000")));
    assert!(contradicts(listed("what = \"random-read\", iops = 5000")));
}

/// Twins: a small write that takes longer than a seek was synchronous, a fast one ended in memory.
#[test]
fn small_writes_that_take_long_wait_for_a_flush() {
    let write = |rate: &str| {
        let text = format!(
            "disk = [{{ name = \"HDD\", kind = \"hdd\" }}]\n\
             measured = [{{ path = \"local\", what = \"write\", rate = \"{rate}\", block = \"8KiB\", depth = 1 }}]"
        );
        let verdict = with_disks(&text).verdict(0);
        (matches!(verdict.evidence, Evidence::Reached { mode: Mode::Flush, .. }), verdict.confidence)
    };
    assert_eq!(write("98.8kB/s"), (true, Confidence::Maybe));
    assert!(!write("20MB/s").0);
}

/// Two ways through one filesystem that are alike are held by the same thing, which need not be the disk.
#[test]
fn as_slow_without_encryption_is_not_the_disk() {
    let one = with_disks(
        r#"
        disk = [{ name = "SSD", kind = "nvme" }]
        measured = [{ path = "disks", what = "read", rate = "1000MB/s" },
                    { path = "local", what = "write", rate = "22MB/s", encryption = "aes-xts" },
                    { path = "local", what = "write", rate = "22MB/s" }]"#,
    );
    assert_eq!(one.verdict(1).evidence, Evidence::Missing(Property::CoresWatched));
}
