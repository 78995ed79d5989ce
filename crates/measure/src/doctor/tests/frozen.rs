//! Today's answers, frozen: the measure of every other way to find them.
//!
//! `LARDER_FREEZE=1 cargo test -p larder-measure frozen` writes `fixtures/boxes/frozen.tsv` anew. Columns: box, row (of
//! the table of measurements, or `fix`), kind of the limiting resource, confidence or rate after the fix, and the
//! resource or the fix in words.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use super::super::stages::{Basis, StageKind};
use super::super::*;
use crate::bench::BenchResult;
use crate::machine::fixture::Fixture;

const MACHINES: &[(&str, &str)] = &[
    ("nvme-desktop", include_str!("../../../fixtures/nvme-desktop.txt")),
    ("pi-usb", include_str!("../../../fixtures/pi-usb.txt")),
    ("smr-disks", include_str!("../../../fixtures/smr-disks.txt")),
    ("virtual-machine", include_str!("../../../fixtures/virtual-machine.txt")),
    ("zfs-box", include_str!("../../../fixtures/zfs-box.txt")),
];

#[test]
fn answers_are_those_that_were_frozen() {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/boxes/frozen.tsv"));
    let now = answers();
    if std::env::var_os("LARDER_FREEZE").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let frozen = std::fs::read_to_string(&path).unwrap();
    let differ: Vec<String> = now
        .lines()
        .zip(frozen.lines())
        .filter(|(now, frozen)| now != frozen)
        .map(|(now, frozen)| format!("was {frozen}\nis  {now}"))
        .collect();
    assert!(differ.is_empty() && now.lines().count() == frozen.lines().count(), "{}", differ.join("\n"));
}

fn answers() -> String {
    let mut text = String::new();
    for (name, box_text) in crate::boxes::all() {
        diagnosed(&mut text, name, &super::diagnosis(&box_text));
    }
    for (name, result) in crate::boxes::results() {
        diagnosed(&mut text, &format!("result-{name}"), &examined(&result));
    }
    for (name, machine) in MACHINES {
        let fixture = Fixture::new(machine);
        let reading = Reading::of(&fixture.machine, ReadOptions { smart: true, watch: Duration::ZERO });
        let found = examine(&fixture.machine, reading, &Evidence::default()).unwrap();
        let codes: Vec<&str> = found.notices.iter().map(|notice| notice.code).collect();
        writeln!(text, "machine-{name}\tnotices\t-\t-\t{}", codes.join(" ")).unwrap();
        writeln!(text, "machine-{name}\tverdict\t-\t-\t{}", found.diagnosis.verdict).unwrap();
    }
    text
}

fn examined(result: &BenchResult) -> Diagnosis {
    let fixture = Fixture::new(include_str!("../../../fixtures/virtual-machine.txt"));
    let reading = Reading::of(&fixture.machine, ReadOptions { smart: false, watch: Duration::ZERO });
    examine(&fixture.machine, reading, &Evidence { bench: Some(result), client: None }).unwrap().diagnosis
}

fn diagnosed(text: &mut String, name: &str, found: &Diagnosis) {
    for (row, finding) in found.findings.iter().enumerate() {
        let (kind, sure) = (kind(found, finding), finding.confidence.word());
        writeln!(text, "{name}\t{row}\t{kind}\t{sure}\t{}", finding.cause.name()).unwrap();
    }
    for question in found.questions.iter().filter(|q| q.measured.is_none()) {
        writeln!(text, "{name}\tquestion\tasked\t-\t{}", question.code).unwrap();
    }
    match found.advice.first() {
        Some(fix) => writeln!(text, "{name}\tfix\t-\t{:.0}\t{}", fix.rate_after, fix.what),
        None => writeln!(text, "{name}\tfix\t-\t-\t"),
    }
    .unwrap();
}

/// The kind of the limiting resource. A limit that was measured further down is of the kind that was found there.
fn kind(found: &Diagnosis, finding: &Finding) -> &'static str {
    match &finding.cause {
        Cause::Processor { .. } => "processor",
        Cause::Client { .. } => "client",
        Cause::BothEnds { .. } => "both-ends",
        Cause::Unexplained => "unexplained",
        Cause::Misleading(_) => "doubtful",
        Cause::Asked(_) => "asked",
        Cause::Suspected(suspicion) => of_pattern(suspicion, finding),
        Cause::Stage(stage) => {
            let below = stage.basis == Basis::Measured && stage.kind != StageKind::Disks;
            let root = found
                .findings
                .iter()
                .filter(|f| !std::ptr::eq(*f, finding) && f.measured.path != finding.measured.path);
            let mut root =
                root.filter(|f| below && stage.name.starts_with(f.cause.name().split(" (").next().unwrap_or("x")));
            if let Some(root) = root
                .next_back()
                .filter(|f| !matches!(f.cause, Cause::Unexplained | Cause::Misleading(_) | Cause::Asked(_)))
            {
                return kind(found, root);
            }
            match stage.kind {
                StageKind::Disks | StageKind::Storage => "disks",
                StageKind::Link => "link",
                StageKind::Network => "network",
                StageKind::Latency => "waiting",
                StageKind::Processor => "processor",
                StageKind::Client => "client",
            }
        }
    }
}

fn of_pattern(suspicion: &Suspicion, finding: &Finding) -> &'static str {
    match suspicion.code {
        "rung-below" if suspicion.what.starts_with("a connection") => "link",
        "retransmits" | "duplex-mismatch" | "one-direction" | "one-of-a-bond" | "rung-below" | "wifi" => "network",
        "client-wifi" | "client-differs" | "client-core-nearly-full" | "other-end" => "client",
        "one-core-irq"
        | "core-nearly-full"
        | "one-thread"
        | "processor-elsewhere"
        | "host-steals"
        | "throttled"
        | "cpu-quota" => "processor",
        "one-connection" | "one-in-flight" | "one-at-a-time" => "waiting",
        "link-rung" | "shared-link" => "link",
        "hot-disk"
        | "smr"
        | "fast-cache"
        | "qlc"
        | "flush"
        | "degraded"
        | "reads-before-writes"
        | "slower-disks"
        | "disks-wait"
        | "one-copy" => "disks",
        other => panic!("{other} of {finding:?}"),
    }
}
