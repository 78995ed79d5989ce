use std::sync::Mutex;

use super::super::result::CoreSeries;
use super::*;

struct Quiet;

impl Watch for Quiet {
    fn planned(&self, _: f64) {}
    fn began(&self, _: &str, _: u32, _: u32, _: f64) {}
    fn ended(&self, _: &Run) {}
    fn noted(&self, _: &Note) {}
}

/// A load that gives the rates it was told to, then an error.
struct Told {
    rates: Mutex<Vec<f64>>,
    prepared: u32,
}

impl Load for Told {
    fn access(&self) -> String {
        "local".to_owned()
    }

    fn with(&self, _: Kind) -> String {
        "told".to_owned()
    }

    fn prepare(&mut self, _: &Workload, _: &Scene) -> Result<(), BenchError> {
        self.prepared += 1;
        Ok(())
    }

    fn run(&mut self, _: &Workload, _: &RunLimits, scene: &Scene) -> Result<Repeat, BenchError> {
        let rate = self.rates.lock().unwrap().pop().ok_or_else(|| BenchError::tool("told", "nothing more"))?;
        if rate == 0.0 {
            scene.control.stop();
            return Err(BenchError::Stopped);
        }
        Ok(Repeat { seconds: 5.0, bytes_per_s: rate, ..Repeat::default() })
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        Ok(())
    }
}

fn workload() -> Workload {
    Workload {
        kind: Kind::Read,
        block_bytes: 1 << 20,
        depth: 16,
        jobs: 1,
        data_bytes: 1 << 30,
        files: 1,
        caches: Caches::Warm,
        compressible: false,
        synced: false,
    }
}

fn measured(rates: &[f64]) -> (Result<(), BenchError>, Vec<Run>, Vec<Note>) {
    measured_in(Spare::default(), rates)
}

fn measured_in(spare: Spare, rates: &[f64]) -> (Result<(), BenchError>, Vec<Run>, Vec<Note>) {
    let (machine, control) = (Machine::this(), Control::new(|_| {}));
    let folder = tempfile::tempdir().unwrap();
    let mut runner = Runner::new(&machine, &control, &Quiet, folder.path().to_owned(), None);
    runner.spare = spare;
    let mut load = Told { rates: Mutex::new(rates.iter().rev().copied().collect()), prepared: 0 };
    let limits = RunLimits { warm_up: Duration::from_secs(1), measure_max: Duration::from_secs(5), again: true };
    let spec = Spec {
        layer: Layer::Disk,
        subject: "/mnt/a".to_owned(),
        variant: BTreeMap::new(),
        workload: workload(),
        limits,
        repeats: 3,
        notes: Vec::new(),
        far: false,
    };
    let ended = runner.measure(&mut load, spec);
    assert_eq!(load.prepared, 1);
    runner.note_unmeasured();
    (ended, runner.runs, runner.notes)
}

#[test]
fn what_was_measured_before_it_ended_is_kept() {
    let (ended, runs, notes) = measured(&[100.0, 110.0, 105.0]);
    assert!(ended.is_ok() && notes.is_empty());
    assert_eq!((runs[0].repeats.len(), runs[0].median()), (3, Some(105.0)));
    // Stopped in the second repeat: the first is good.
    let (ended, runs, _) = measured(&[100.0, 0.0]);
    assert!(matches!(ended, Err(BenchError::Stopped)) && runs[0].repeats.len() == 1);
    // An error of a load is noted, and the bench goes on.
    let (ended, runs, notes) = measured(&[100.0, 110.0]);
    assert!(ended.is_ok() && runs[0].repeats.len() == 2);
    assert!(notes[0].code == "not-measured" && notes[0].text.contains("nothing more"), "{notes:?}");
    let (ended, runs, notes) = measured(&[]);
    assert!(ended.is_ok() && runs.is_empty() && notes.len() == 1);
}

#[test]
fn repeats_that_disagree_are_made_again_while_time_is_left() {
    let odd = [141.0, 79.9, 110.0, 139.0, 140.0, 140.0, 7.0, 8.0];
    let (ended, runs, _) = measured_in(Spare::of(60.0), &odd);
    assert!(ended.is_ok() && runs[0].repeats.len() == 5, "{:?}", runs[0].values());
    assert_eq!(runs[0].median(), Some(139.0));
    let note = runs[0].notes.iter().find(|note| note.code == "measured-again").unwrap();
    assert!(
        note.text.contains("the first 3 repeats disagreed") && note.text.contains("2 more repeats"),
        "{}",
        note.text
    );
    // Repeats that agree need no more of them, and without an end there is one.
    let (_, runs, _) = measured_in(Spare::of(60.0), &[141.0, 139.0, 140.0, 1.0]);
    assert_eq!(runs[0].repeats.len(), 3);
    let (_, runs, _) = measured_in(Spare::of(1e6), &[9.0, 5.0, 2.0, 1.0, 14.0, 20.0, 30.0]);
    assert_eq!(runs[0].repeats.len(), 6);
}

#[test]
fn what_is_no_number_is_not_kept() {
    let (_, runs, _) = measured(&[100.0, f64::NAN, 105.0]);
    let (_, broken, _) = measured(&[f64::INFINITY]);
    let (machine, control) = (Machine::this(), Control::new(|_| {}));
    let mut runner = Runner::new(&machine, &control, &Quiet, PathBuf::new(), None);
    runner.runs = runs.into_iter().chain(broken).collect();
    runner.drop_odd_repeats();
    assert_eq!((runner.runs.len(), runner.runs[0].repeats.len()), (1, 2));
    assert!(runner.notes.len() == 2 && runner.notes.iter().all(|n| n.code == "not-a-number"), "{:?}", runner.notes);
}

#[test]
fn a_run_says_what_is_odd_about_it() {
    let (_, runs, _) = measured(&[100.0, 110.0, 105.0]);
    let check = |what: &str, change: &dyn Fn(&mut Run), code: Option<&str>| {
        let mut run = runs[0].clone();
        run.samples = Samples::default();
        change(&mut run);
        let found = after(&run, Duration::from_secs(5));
        assert_eq!(found.first().map(|n| n.code.as_str()), code, "{what}: {found:?}");
    };
    check("nothing", &|_| {}, None);
    check("short", &|r| r.repeats[0].seconds = 0.4, Some("too-short"));
    let share = |r: &mut Run| {
        (r.layer, r.access, r.workload.caches) = (Layer::Share, "nfs3".to_owned(), Caches::Unknown);
        r.repeats[0].bytes = 3 << 30;
    };
    check("again", &share, Some("read-again"));
    check("uneven", &|r| r.repeats[0].bytes_per_s = 30.0, Some("uneven"));
    check("throttled", &|r| r.samples.throttled = 2, Some("throttled"));
    let stolen = |r: &mut Run| r.samples.cores = vec![CoreSeries { steal: vec![20.0, f64::NAN], ..Default::default() }];
    check("stolen", &stolen, Some("stolen"));
    let beside =
        |r: &mut Run| r.samples.cores = vec![CoreSeries { others: vec![60.0, f64::NAN], ..Default::default() }];
    check("beside others", &beside, Some("others-work"));
    check("few retransmits", &|r| (r.repeats[0].bytes, r.repeats[0].retransmits) = (1 << 30, Some(100)), None);
    check(
        "retransmits",
        &|r| (r.repeats[0].bytes, r.repeats[0].retransmits) = (1 << 30, Some(9000)),
        Some("retransmits"),
    );
}

#[test]
fn advice_for_what_is_too_short_works() {
    let check = |data_bytes: u64, seconds: f64, planned_s: u64, way_out: &str| {
        let (_, runs, _) = measured(&[100.0]);
        let mut run = runs[0].clone();
        run.workload.data_bytes = data_bytes;
        run.repeats[0].seconds = seconds;
        let note = short(&run, Duration::from_secs(planned_s)).unwrap();
        assert!(note.text.ends_with(way_out), "{}", note.text);
    };
    // The data was gone through in no time: more time gives none.
    check(1 << 30, 0.5, 10, "--size 4096M");
    check(1 << 30, 0.9, 5, "--size 4096M");
    check(1 << 30, 1.5, 1, "--seconds 5");
    check(1 << 30, 0.5, 1, "--seconds 5");
    check(0, 0.5, 5, "--seconds 5");
}

#[test]
fn the_other_ends_memory_is_held_against_the_data() {
    let check = |kind, data_gib: u64, memory_gib: u64, caches, note: Option<bool>| {
        let (_, runs, _) = measured(&[100.0]);
        let mut run = runs[0].clone();
        run.layer = Layer::Share;
        run.workload = Workload { kind, data_bytes: data_gib << 30, caches: Caches::Unknown, ..run.workload };
        let unknown = Note { code: "server-memory".to_owned(), text: "not known".to_owned(), misleading: false };
        run.notes = vec![unknown.clone()];
        know_memory(&mut run, "nas", memory_gib << 30);
        assert_eq!(run.notes.contains(&unknown), memory_gib == 0, "known is not unknown: {kind:?}");
        let found = run.notes.first().filter(|found| **found != unknown).map(|found| found.misleading);
        assert_eq!((run.workload.caches, found), (caches, note), "{kind:?} {data_gib} {memory_gib}: {:?}", run.notes);
        run.notes.iter().filter(|n| **n != unknown).for_each(|n| {
            assert!(n.text.starts_with("nas has 24.0 GiB of memory") && n.text.ends_with("--size 48G"), "{}", n.text);
        });
    };
    check(Kind::RandomRead, 1, 24, Caches::Warm, Some(true));
    // A wire carries cached data as well as any other.
    check(Kind::Read, 1, 24, Caches::Warm, Some(false));
    check(Kind::Read, 48, 24, Caches::TooSmall, None);
    check(Kind::Write, 1, 24, Caches::Unknown, None);
    check(Kind::RandomRead, 1, 0, Caches::Unknown, None);
}

#[test]
fn workloads_have_names() {
    assert_eq!(title(&workload()), "read 1 MiB x16");
    assert_eq!(title(&Workload { kind: Kind::Send, jobs: 4, ..workload() }), "send, 4 streams");
    assert_eq!(title(&Workload { kind: Kind::StatFiles, files: 7, ..workload() }), "stat files (7 files)");
}
