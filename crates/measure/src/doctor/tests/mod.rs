//! The boxes of the field notes, and the verdicts that their builders reached by hand.

use super::*;
use crate::bench::show::Style;
use crate::boxes;
use crate::describe;

mod assume;
mod bench;
mod frozen;
mod machine;
mod reality;

fn diagnosis(text: &str) -> Diagnosis {
    diagnose(&Described::parse(text).unwrap())
}

fn limits(found: &Diagnosis) -> Vec<&str> {
    found.findings.iter().map(|f| f.limit.as_str()).collect()
}

#[test]
fn the_pi_box_is_explained_as_its_builder_did() {
    let found = diagnosis(include_str!("../../../fixtures/boxes/pi.toml"));
    let lane = "the PCIe 2.0 x1 link";
    let expected = [lane, "the disk itself", lane, lane, "gigabit Ethernet", "the server's processor"];
    assert_eq!(limits(&found)[..6], expected);
    // Four disks give no more random operations than one.
    assert_eq!(limits(&found)[8], lane);
    let said = "writing over the network (97 MB/s) is limited by the server's processor: 1 of 4 cores full; \
                reading (108 MB/s) by gigabit Ethernet";
    assert_eq!(found.verdict, said);
    let card = found.advice.iter().find(|advice| advice.what.contains("2.5 GbE")).unwrap();
    // The lane has each direction to itself and the card could 294, but half of a core was busy at 108.
    assert_eq!((card.of, card.rate_after), (What::Read, 216e6));
    assert!(card.sentence.contains("one core is busy 50 % already"), "{}", card.sentence);
}

#[test]
fn boxes_of_the_field_have_their_builders_verdicts() {
    for (text, said) in [
        (include_str!("../../../fixtures/boxes/nvme.toml"), "all 8 cores full"),
        (include_str!("../../../fixtures/boxes/raidz.toml"), "nothing is wrong, the wire is full"),
        (
            include_str!("../../../fixtures/boxes/laptop.toml"),
            "limited by the client's side: SMB client B gets 95 MB/s",
        ),
        (include_str!("../../../fixtures/boxes/usb.toml"), "reading (12 MB/s) by 100 Mbit Ethernet"),
    ] {
        let found = diagnosis(text);
        assert!(found.verdict.contains(said), "{}", found.verdict);
    }
    let found = diagnosis(include_str!("../../../fixtures/boxes/nvme.toml"));
    assert!(found.remarks.iter().any(|r| r.starts_with("NVMe in the PCIe 3.0 slot is slower")), "{:?}", found.remarks);
}

/// A full wire is no good news beside a direction that nobody explains, and one slow disk of many is on top.
#[test]
fn nothing_slow_hides_behind_a_full_wire() {
    let text = |write: &str| {
        format!(
            "name = \"x\"\ndisk = [{{ name = \"d\", kind = \"nvme\", read = \"3GB/s\", write = \"3GB/s\" }}]\n\
             network = {{ name = \"gigabit\" }}\n\
             measured = [{{ path = \"network\", what = \"read\", rate = \"940Mbit/s\", jobs = 4 }},\n\
             {{ path = \"network\", what = \"write\", rate = \"{write}\", jobs = 4 }},\n\
             {{ path = \"share\", what = \"read\", rate = \"113MB/s\" }}]"
        )
    };
    let full = |text: &str| diagnosis(text).verdict.starts_with("nothing is wrong");
    assert!(full(&text("940Mbit/s")) && !full(&text("730Mbit/s")), "{}", diagnosis(&text("730Mbit/s")).verdict);
    let disks: String = (1..=8)
        .map(|n| {
            let rate = if n == 5 { "120MB/s" } else { "210MB/s" };
            format!("{{ path = \"disks\", what = \"read\", disks = [[\"d{n}\", 1]], rate = \"{rate}\" }},\n")
        })
        .collect();
    let kinds: String = (1..=8).map(|n| format!("{{ name = \"d{n}\", kind = \"hdd\" }}, ")).collect();
    let found = diagnosis(&format!(
        "name = \"x\"\ndisk = [{kinds}]\nmeasured = [{disks}{{ path = \"local\", what = \"read\", rate = \"900MB/s\" }}]"
    ));
    assert!(found.verdict.contains("d5 is slower than its siblings"), "{}", found.verdict);
}

/// The answer fits two lines, and a fix neither promises too much nor costs money where a free one gains as much.
#[test]
fn answers_are_short_and_fixes_few() {
    for (name, text) in boxes::all() {
        let found = diagnosis(&text);
        let lines = crate::bench::show::words::folded(&format!("{}: {}", found.name, found.verdict), 80);
        assert!(lines.len() <= 2, "{name}: {}", found.verdict);
        for width in [60, 80, 120] {
            let shown = text::diagnosis(&found, &Style { width, ..Style::default() });
            let wide = shown.lines().find(|line| crate::bench::show::words::width(line) > width);
            assert_eq!(wide, None, "{name}");
        }
        assert!(found.advice.len() <= 3, "{name}: {:#?}", found.advice);
        for advice in &found.advice {
            assert!(advice.rate_after > advice.rate_before && !advice.how.is_empty(), "{name}: {advice:?}");
            assert!(!advice.sentence.contains('{'), "{name}: {advice:?}");
        }
        for finding in &found.findings {
            assert!(!finding.limit.is_empty() && !finding.why.is_empty(), "{name}: {finding:#?}");
        }
    }
}

#[test]
fn a_contradiction_is_asked_about_and_nothing_is_concluded() {
    let found = diagnosis(
        "name = \"x\"\ndisk = [{ name = \"d\", kind = \"hdd\", count = 4, read = \"200MB/s\" }]\n\
         network = { name = \"gigabit\", limit = \"940Mbit/s\" }\n\
         measured = [{ path = \"share\", what = \"read\", rate = \"900MB/s\" }]",
    );
    assert!(found.verdict.starts_with("the description contradicts itself"), "{}", found.verdict);
    assert!(found.questions[0].text.contains("Do you mean 900 Mbit/s"), "{:?}", found.questions);
    assert!(found.advice.is_empty());
}

#[test]
fn without_measurements_the_paper_is_asked() {
    let text = "name = \"x\"\n[[disk]]\nname = \"d\"\ncount = 2\nread = \"3GB/s\"\n[network]\nname = \"10 GbE\"\nlimit = \"9.4Gbit/s\"";
    let found = diagnosis(text);
    assert!(found.verdict.contains("On paper, over the network: reading 1.18 GB/s"), "{}", found.verdict);
    // A figure that nobody gave is not infinite: no hard disk writes what 10 GbE carries.
    let text = "name = \"x\"\nmemory = \"8GiB\"\ndisk = [{ name = \"d\", kind = \"hdd\", read = \"180MB/s\" }]\n\
        network = { name = \"10 GbE\" }\n\
        measured = [{ path = \"share\", what = \"read\", rate = \"870MB/s\", file = \"4GB\" }]";
    let found = diagnosis(text);
    assert!(
        found.verdict.contains("reading 180 MB/s and writing at most 285 MB/s, by the disk itself"),
        "{}",
        found.verdict
    );
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
        (format!("memory = \"8000TiB\"\n{disk}"), "is the unit right?"),
        (format!("{disk}cache = \"400000GB\"\nwrite = \"1MB/s\"\nwrite_cached = \"2MB/s\""), "more than any disk has"),
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
