//! Answers that were frozen and are no verdict on a measurement: notices of machines, and questions about figures.
//! `reason/tests.rs` has the verdicts and the fixes.

use larder_facts::reading::{ReadOptions, Reading};
use std::time::Duration;

use super::super::*;
use crate::boxes;
use crate::fixture::Fixture;

const MACHINES: &[(&str, &str)] = &[
    ("nvme-desktop", include_str!("../../../../facts/fixtures/nvme-desktop.txt")),
    ("pi-usb", include_str!("../../../../facts/fixtures/pi-usb.txt")),
    ("smr-disks", include_str!("../../../../facts/fixtures/smr-disks.txt")),
    ("virtual-machine", include_str!("../../../../facts/fixtures/virtual-machine.txt")),
    ("zfs-box", include_str!("../../../../facts/fixtures/zfs-box.txt")),
];
const FROZEN: &str = include_str!("../../../fixtures/boxes/frozen.tsv");

/// The last field of the lines of this box and row.
fn frozen<'a>(name: &'a str, row: &'a str) -> impl Iterator<Item = &'static str> + 'a {
    let fields = FROZEN.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    fields.filter(move |f| f.first() == Some(&name) && f.get(1) == Some(&row)).filter_map(|f| f.last().copied())
}

#[test]
fn notices_are_those_that_were_frozen() {
    for (name, machine) in MACHINES {
        let fixture = Fixture::new(machine);
        let reading = Reading::of(&fixture.machine, ReadOptions { smart: true, watch: Duration::ZERO });
        let codes: Vec<&str> = notices(&reading).iter().map(|notice| notice.code).collect();
        let was: Vec<&str> = frozen(&format!("machine-{name}"), "notices").collect();
        assert_eq!(was, [codes.join(" ")], "{name}");
    }
}

/// Figures of a description that cannot be true are asked about, and nothing else is.
#[test]
fn questions_are_those_that_were_frozen() {
    for (name, text) in boxes::all() {
        let asked = questions::questions(&Described::parse(&text).unwrap());
        let codes: Vec<&str> = asked.iter().map(|question| question.code).collect();
        assert_eq!(codes, frozen(name, "question").collect::<Vec<_>>(), "{name}");
        assert!(asked.iter().all(|question| question.text.ends_with('?')), "{asked:?}");
    }
}
