//! The boxes of the field notes, and the verdicts that their builders reached by hand.

use super::*;

mod bench;
mod contradictions;
mod frozen;
mod held;
mod judged;
mod machine;
mod rare;
mod together;
mod unseen;
mod waiting;

fn diagnosis(text: &str) -> Diagnosis {
    diagnose(&Described::parse(text).unwrap())
}

fn pi() -> Diagnosis {
    diagnosis(include_str!("../../../fixtures/boxes/pi.toml"))
}

/// The cause of each measurement, in short.
fn causes(found: &Diagnosis) -> Vec<String> {
    let short = |cause: &Cause| match cause {
        Cause::Stage(stage) => stage.name.clone(),
        Cause::Processor { full, watched } => format!("{full} of {watched} cores"),
        Cause::Unexplained => "unexplained".to_owned(),
        Cause::Misleading(_) => "misleading".to_owned(),
        Cause::Suspected(s) => format!("{}: {}", s.code, s.what),
        Cause::Client { .. } => "client".to_owned(),
        Cause::BothEnds { .. } => "both ends".to_owned(),
        Cause::Asked(_) => "asked".to_owned(),
    };
    found.findings.iter().map(|f| short(&f.cause)).collect()
}

#[test]
fn the_pi_box_is_explained_as_its_builder_did() {
    let found = pi();
    let lane = "the PCIe 2.0 x1 link";
    let expected =
        [lane, "the disk itself", lane, lane, "gigabit Ethernet", "1 of 4 cores", "misleading", "unexplained"];
    assert_eq!(causes(&found)[..8], expected);
    // Four disks give no more random operations than one.
    assert_eq!(causes(&found)[8], format!("shared-link: {lane} and the controller behind it"));
    assert!(
        found.verdict.contains("reading over the network (108 MB/s) is capped by gigabit Ethernet: 92 %"),
        "{}",
        found.verdict
    );
    assert!(
        found.verdict.contains("writing over the network (97 MB/s) is capped by the processor: 1 core"),
        "{}",
        found.verdict
    );
}

#[test]
fn a_faster_card_on_the_same_lane_helps_reading_only_so_far() {
    let found = pi();
    let card: Vec<&Advice> = found.advice.iter().filter(|a| a.what.contains("2.5 GbE")).collect();
    assert_eq!(card.len(), 1, "{card:#?}");
    // The lane has each direction to itself and the card could 294, but half of a core was busy at 108.
    assert_eq!((card[0].of, card[0].rate_after), (What::Read, 216e6));
    assert!(card[0].sentence.contains("one core was busy 50 % already"), "{}", card[0].sentence);
    // A lane that carries one direction at a time is halved.
    let half = include_str!("../../../fixtures/boxes/pi.toml")
        .replace("limit = \"450MB/s\"", "limit = \"450MB/s\"\nduplex = \"half\"")
        .replace("cores = [50, 10, 5, 5]", "cores = [10, 10, 5, 5]");
    let found = diagnosis(&half);
    let card = found.advice.iter().find(|a| a.what.contains("2.5 GbE")).unwrap();
    assert_eq!(card.rate_after, 225e6);
    assert!(card.sentence.contains("which disks and network share"), "{}", card.sentence);
}

#[test]
fn the_nvme_box_is_held_by_its_processor_and_its_slowest_disk() {
    let found = diagnosis(include_str!("../../../fixtures/boxes/nvme.toml"));
    let causes = causes(&found);
    assert_eq!(causes[1], "the PCIe 3.0 x4 connection of the disk");
    assert!(causes[2].starts_with("shared-link: something the disks share"), "{causes:?}");
    assert_eq!(causes[3], "8 of 8 cores");
    assert!(causes[5].starts_with("one disk, the slowest"), "{causes:?}");
    let gib = |rate: f64| rate / (1u64 << 30) as f64;
    // All at once: the sum of the disks. Through RAIDZ2: six times the slowest.
    assert!((gib(found.findings[2].stages[0].capacity) - 30.7).abs() < 0.01);
    assert!((gib(found.findings[4].stages[0].capacity) - 6.0 * 2.7).abs() < 0.01);
    assert!(found.verdict.contains("all 8 cores are busy"), "{}", found.verdict);
    assert!(found.remarks[0].starts_with("'NVMe in the PCIe 3.0 slot' is an outlier"), "{:?}", found.remarks);
    assert_eq!(found.advice[0].what, "mirrors instead of parity");
}

#[test]
fn the_freebsd_box_fills_its_wire() {
    let found = diagnosis(include_str!("../../../fixtures/boxes/raidz.toml"));
    assert!(found.verdict.starts_with("nothing is wrong, the wire is full"), "{}", found.verdict);
    // cat asks for one thing at a time: latency, not bandwidth.
    assert_eq!(causes(&found)[2], "one request at a time, each 90 us");
}

#[test]
fn the_slow_laptop_is_to_blame_itself() {
    let found = diagnosis(include_str!("../../../fixtures/boxes/laptop.toml"));
    assert!(causes(&found)[2].starts_with("client-differs: the client's side"), "{:?}", causes(&found));
    assert!(found.verdict.contains("capped by the client's side (laptop (SMB client A))"), "{}", found.verdict);
    assert_eq!((found.advice[0].rate_after, found.advice[0].gain_percent), (95e6, 375.0));
}

#[test]
fn a_bus_for_disk_and_network_is_halved() {
    let found = diagnosis(include_str!("../../../fixtures/boxes/usb.toml"));
    assert_eq!(causes(&found), ["the USB 2.0 bus", "100 Mbit Ethernet", "unexplained", "misleading"]);
    let faster = found.advice.iter().find(|a| a.what.starts_with("gigabit") && a.of == What::Read).unwrap();
    assert_eq!(faster.rate_after, 20e6);
    assert!(found.findings[2].sentence.contains("look at the other end"), "{}", found.findings[2].sentence);
    // The greatest gain comes first.
    let gains: Vec<f64> = found.advice.iter().map(|a| a.rate_after / a.rate_before).collect();
    assert!(gains.windows(2).all(|pair| pair[0] >= pair[1]), "{gains:?}");
}

/// A file that is no description may be one line of megabytes.
#[test]
fn an_error_fits_a_screen() {
    let error = Described::parse(&"x".repeat(2 << 20)).unwrap_err().to_string();
    assert!(error.len() < 1000 && error.contains("line 1"), "{} bytes: {error:.300}", error.len());
}

#[test]
fn descriptions_that_make_no_sense_are_refused() {
    let disk = "name = \"x\"\n[[disk]]\nname = \"d\"\nread = \"1MB/s\"\n";
    for (text, message) in [
        ("name = \"x\"".to_owned(), "without disks"),
        (format!("{disk}via = [\"nowhere\"]"), "no link 'nowhere'"),
        (format!("{disk}[[measured]]\npath = \"share\"\nwhat = \"read\"\nrate = \"1MB/s\""), "add a [network]"),
        (format!("{disk}[[measured]]\npath = \"local\"\nwhat = \"read\"\niops = 1.0"), "needs rate ="),
        (format!("{disk}[[disk]]\nname = \"d\""), "two disks 'd'"),
        (
            format!(
                "{disk}via = [\"a\"]\n[[link]]\nname=\"a\"\nlimit=\"1MB/s\"\nvia=[\"b\"]\n[[link]]\nname=\"b\"\nlimit=\"1MB/s\"\nvia=[\"a\"]"
            ),
            "leads back to itself",
        ),
        (format!("{disk}[[link]]\nname=\"a\""), "how fast is the link"),
        (format!("{disk}connection = \"a string\""), "names no wire"),
        (format!("layout=\"raidz2\"\n{disk}"), "at least 3 disks"),
        (format!("{disk}[[measured]]\npath = \"local\"\nwhat = \"read\"\nrate = \"fast\""), "'fast' is not a rate"),
        (
            format!("{disk}[[measured]]\npath = \"local\"\nwhat = \"read\"\nrate = \"1MB/s\"\ndisks = [[\"d\", 2]]"),
            "2 disks 'd' measured, and the box has 1",
        ),
        (format!("{disk}colour = 1"), "unknown field"),
        (format!("slots = 1\n{disk}count = 2"), "slots = 1, and there are 2 disks"),
        (format!("{disk}connection = \"PCIe 3.0 x4\"\ncould = \"PCIe 3.0 x1\""), "no more than what it has"),
        (format!("{disk}temperature = 900"), "how many degrees Celsius?"),
        (format!("{disk}count = 0"), "how many of it are in the box?"),
        (format!("degraded = true\n{disk}"), "what was on the missing disk is lost"),
        (format!("layout = \"mirror\"\n{disk}"), "a mirror of 2 copies on 1 disk:"),
        (format!("memory = \"8\"\n{disk}"), "'8' is not a size"),
        (format!("memory = \"8KiB\"\n{disk}"), "memory of the box is 8.00 KiB: is the unit right?"),
        (format!("{disk}connection = \"Wi-Fi 6\""), "a disk hangs on PCIe, SATA, SAS or USB"),
        (format!("{disk}random_read = nan"), "how many operations does it do"),
        (format!("{disk}random_read = \"90k\""), "operations and percents are plain numbers"),
        (format!("{disk}[[measured]]\npath = \"local\"\nwhat = \"read\"\nrate = 50"), "in quotes and have a unit"),
        (
            format!("{disk}[[measured]]\npath = \"local\"\nwhat = \"random-read\"\nrate = \"5MB/s\"\niops = 9"),
            "which of the two was measured?",
        ),
        (format!("{disk}[network]\nname = \"n\"\nlimit = \"1Gbps\"\nwindow = \"64KiB\""), "needs round_trip ="),
        (
            format!(
                "{disk}[network]\nname = \"gigabit\"\n[[measured]]\npath = \"share\"\nwhat = \"read\"\nrate = \"1MB/s\"\nclient = \"bob\""
            ),
            "no client 'bob'",
        ),
    ] {
        let error = Described::parse(&text).unwrap_err().to_string();
        assert!(error.contains(message), "{text}\n{error}");
    }
    assert_eq!(describe::rate("935Mbit/s").unwrap(), 935e6 / 8.0);
    assert_eq!(describe::rate("1.5 GB/s").unwrap(), 1.5e9);
    for bad in ["", "/s", "x/s", "-1MB/s", "1Mbit", "0MB/s", "é/s", "ébit/s"] {
        assert!(describe::rate(bad).is_err(), "{bad}");
    }
}
