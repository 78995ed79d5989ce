//! The boxes that answers are tested with: those of the field notes, invented ones, and results of benches.

use crate::bench::BenchResult;

const FIELD_NOTES: &[(&str, &str)] = &[
    ("field-pi", include_str!("../fixtures/boxes/pi.toml")),
    ("field-nvme", include_str!("../fixtures/boxes/nvme.toml")),
    ("field-usb", include_str!("../fixtures/boxes/usb.toml")),
    ("field-raidz", include_str!("../fixtures/boxes/raidz.toml")),
    ("field-laptop", include_str!("../fixtures/boxes/laptop.toml")),
];
const INVENTED: &str = include_str!("../fixtures/boxes/invented.txt");
const WRITTEN: &str = include_str!("../fixtures/boxes/written.txt");
const RESULTS: &str = include_str!("../fixtures/boxes/results.jsonl");

/// Name and description of every box.
pub(crate) fn all() -> Vec<(&'static str, String)> {
    let field = FIELD_NOTES.iter().map(|(name, text)| (*name, (*text).to_owned()));
    let sections = INVENTED.split("\n=== ").skip(1);
    let invented = sections.map(|section| section.split_once('\n').expect("a name, then a description"));
    field.chain(invented.map(|(name, text)| (name, text.to_owned()))).collect()
}

/// Name, what limits the slowest row that somebody asked about, and description: the answer was written down first.
pub(crate) fn written() -> Vec<(&'static str, &'static str, &'static str)> {
    let box_of = |section: &'static str| {
        let (head, text) = section.split_once('\n')?;
        let (name, kind) = head.split_once(": ")?;
        Some((name, kind, text))
    };
    WRITTEN.split("\n=== ").skip(1).map(|section| box_of(section).expect("a name, an answer, a description")).collect()
}

pub(crate) fn results() -> Vec<(String, BenchResult)> {
    #[derive(serde::Deserialize)]
    struct Kept {
        name: String,
        result: BenchResult,
    }
    let kept =
        RESULTS.lines().map(|line| serde_json::from_slice::<Kept>(line.as_bytes()).expect("a result of a bench"));
    kept.map(|kept| (kept.name, kept.result)).collect()
}

/// One box in three is held back by its name: rules are written for the others, and tested with these.
pub(crate) fn is_held_back(name: &str) -> bool {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step).is_multiple_of(3)
}
