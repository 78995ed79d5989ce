//! Results of a bench: which layer was the limit.

use larder_facts::reading::{ReadOptions, Reading};
use std::time::Duration;

use super::super::*;
use crate::bench::BenchResult;
use crate::bench::result::*;
use crate::fixture::Fixture;

fn run(layer: Layer, subject: &str, kind: Kind, rate: f64) -> Run {
    let operations = if kind.counts_operations() { rate } else { rate / 1048576.0 };
    let bytes = if kind.counts_operations() { rate * 4096.0 } else { rate };
    Run {
        layer,
        subject: subject.to_owned(),
        access: if layer == Layer::Share { "nfs3" } else { "local" }.to_owned(),
        here: None,
        variant: Default::default(),
        workload: Workload {
            kind,
            block_bytes: if kind.counts_operations() { 4096 } else { 1 << 20 },
            depth: 16,
            jobs: 1,
            data_bytes: 64 << 30,
            files: 1,
            caches: Caches::Bypassed,
            compressible: false,
            synced: true,
        },
        with: "fio 3.33".to_owned(),
        repeats: vec![Repeat {
            seconds: 10.0,
            bytes: (bytes * 10.0) as u64,
            bytes_per_s: bytes,
            operations_per_s: operations,
            ..Repeat::default()
        }],
        samples: Samples::default(),
        far_samples: None,
        saturated: Vec::new(),
        notes: Vec::new(),
    }
}

fn result(runs: Vec<Run>) -> BenchResult {
    BenchResult {
        schema: SCHEMA.to_owned(),
        version: VERSION,
        id: "x".to_owned(),
        title: "all".to_owned(),
        preset: "quick".to_owned(),
        started_ms: 0,
        ended_ms: 1,
        larder: "0".to_owned(),
        interrupted: false,
        machine: MachineFacts { host: "elsewhere".to_owned(), memory_bytes: 8 << 30, ..MachineFacts::default() },
        far_machine: None,
        ciphers: Vec::new(),
        runs,
        notes: Vec::new(),
    }
}

/// Two cores: the first moves between them where `moving`.
fn cores(busy: [f64; 2], moving: bool) -> Samples {
    let series = |core: u32| {
        let at = |n: u64| if moving && n % 2 == 1 { busy[1 - core as usize] } else { busy[core as usize] };
        let zeros = vec![0.0; 10];
        CoreSeries {
            core,
            user: (0..10).map(at).collect(),
            nice: zeros.clone(),
            system: zeros.clone(),
            iowait: zeros.clone(),
            irq: zeros.clone(),
            steal: zeros,
            others: Vec::new(),
            waited: Vec::new(),
        }
    };
    Samples { at_ms: (1..=10).map(|n| n * 1000).collect(), cores: vec![series(0), series(1)], ..Samples::default() }
}

fn diagnosed(runs: Vec<Run>) -> Diagnosis {
    examined(result(runs))
}

/// With the other end watched, by name.
fn watched(runs: Vec<Run>) -> Diagnosis {
    let far = FarMachine { name: "nas".to_owned(), version: 1, ..FarMachine::default() };
    examined(BenchResult { far_machine: Some(far), ..result(runs) })
}

fn examined(result: BenchResult) -> Diagnosis {
    let fixture = Fixture::new(include_str!("../../../../facts/fixtures/virtual-machine.txt"));
    let reading = Reading::of(&fixture.machine, ReadOptions { smart: false, watch: Duration::ZERO });
    // Through JSON, as a file would come.
    let bench = serde_json::from_str(&serde_json::to_string(&result).unwrap()).unwrap();
    examine(&fixture.machine, reading, &Sources { bench: Some(&bench), client: None, now: None }).unwrap().diagnosis
}

#[test]
fn a_slow_wire_is_named() {
    let found = diagnosed(vec![
        run(Layer::Pool, "/mnt/a", Kind::Read, 800e6),
        run(Layer::Net, "nas", Kind::Receive, 11.7e6),
        run(Layer::Share, "nfs://nas/data", Kind::Read, 11.2e6),
    ]);
    assert!(found.verdict.contains("limited by 100 Mbit Ethernet"), "{}", found.verdict);
    assert!(found.advice[0].what.contains("gigabit Ethernet"), "{:?}", found.advice);
}

#[test]
fn a_busy_core_is_named_wherever_it_is() {
    for (samples, far, words) in [
        (cores([99.0, 20.0], false), None, "the client's processor: 1 of 2 cores full"),
        (
            cores([10.0, 20.0], false),
            Some(cores([99.0, 5.0], false)),
            "limited by the server's processor: 1 of 2 cores full",
        ),
        // One thread that the scheduler moves about.
        (
            cores([10.0, 20.0], false),
            Some(cores([99.0, 5.0], true)),
            "limited by the server's processor: 1 of 2 cores full",
        ),
        (cores([10.0, 20.0], false), Some(cores([99.0, 98.0], false)), "all 2 cores full"),
    ] {
        let mut share = run(Layer::Share, "nfs://nas/data", Kind::Write, 60e6);
        (share.samples, share.far_samples) = (samples, far);
        let runs =
            vec![run(Layer::Pool, "/mnt/a", Kind::Write, 400e6), run(Layer::Net, "nas", Kind::Send, 117e6), share];
        let found = diagnosed(runs);
        assert!(found.verdict.contains(words), "{words}: {}", found.verdict);
    }
}

/// Nobody need watch cores that were watched, and what filled them is told.
#[test]
fn cores_full_of_others_work_are_told() {
    let mut disk = run(Layer::Disk, "/mnt/a", Kind::Read, 400e6);
    disk.samples = cores([100.0, 99.0], false);
    disk.repeats.iter_mut().for_each(|repeat| repeat.load_cpu_s = Some(0.01));
    let mut short = run(Layer::Disk, "/mnt/a", Kind::Cat, 380e6);
    short.samples = cores([100.0, 99.0], false);
    short.notes.push(Note { code: "too-short".into(), text: "too short".into(), misleading: true });
    let found = diagnosed(vec![disk, short]);
    assert!(found.verdict.contains("full of somebody else's work: stop that"), "{}", found.verdict);
    assert!(!found.verdict.contains("watch"), "{}", found.verdict);
}

/// A write rate, as people mean it, is no tree of small files, and `cat` alone is no reading.
#[test]
fn bulk_speaks_where_trees_and_cat_were_measured_too() {
    use Kind::*;
    let of = |kinds: &[(Kind, f64)]| {
        let runs = kinds.iter().map(|(kind, rate)| run(Layer::Pool, "/mnt/tank", *kind, *rate)).collect();
        diagnosed(runs).findings.iter().map(|f| f.measured.rate / 1e6).collect::<Vec<_>>()
    };
    let standard = [(Write, 448e6), (Read, 828e6), (Cat, 102e6), (CopyTreeIn, 112e6), (CopyTreeOut, 844e6)];
    assert_eq!(of(&standard), [102.0, 448.0, 828.0]);
    assert_eq!(of(&standard[2..]), [102.0, 112.0, 844.0]);
    let runs = standard.iter().map(|(kind, rate)| run(Layer::Pool, "/mnt/tank", *kind, *rate)).collect();
    let found = diagnosed(runs);
    assert!(found.verdict.contains("448 MB/s") && found.verdict.contains("828 MB/s"), "{}", found.verdict);
    assert!(!found.verdict.contains("112 MB/s"), "{}", found.verdict);
}

#[test]
fn the_busy_end_has_its_name() {
    let (full, idle) = (cores([99.0, 5.0], false), cores([10.0, 20.0], false));
    let wire = |near: &Samples, far: &Samples| {
        let mut net = run(Layer::Net, "nas", Kind::Receive, 300e6);
        (net.samples, net.far_samples) = (near.clone(), Some(far.clone()));
        net
    };
    let pool = || run(Layer::Pool, "/mnt/a", Kind::Read, 400e6);
    let share = || run(Layer::Share, "nfs://nas/data", Kind::Read, 290e6);
    // Whoever measures a wire alone, or a share beside it, is the client.
    for others in [vec![], vec![pool(), share()]] {
        let found = |near, far| {
            let found = watched(others.iter().cloned().chain([wire(near, far)]).collect());
            let net = found.findings.into_iter().find(|f| f.measured.path == Path::Net).unwrap();
            (net.measured.what, net.sentence)
        };
        let (what, sentence) = found(&idle, &full);
        assert!(
            what == What::Read && sentence.contains("limited by the processor of nas: 1 of 2 cores full"),
            "{sentence}"
        );
        let (_, sentence) = found(&full, &idle);
        assert!(sentence.contains("limited by the client's processor (elsewhere): 1 of 2 cores full"), "{sentence}");
    }
    // A slow wire is named where the share shows it.
    let found = watched(vec![wire(&idle, &full), share()]);
    assert!(found.verdict.contains("limited by the processor of nas: the wire alone"), "{}", found.verdict);
    // Whoever measures disks and no share is the box: what it receives is written to it.
    let found = watched(vec![pool(), wire(&full, &idle)]);
    let net = found.findings.iter().find(|f| f.measured.path == Path::Net).unwrap();
    assert_eq!(net.measured.what, What::Write);
    assert!(net.sentence.contains("limited by the processor of elsewhere: 1 of 2 cores full"), "{}", net.sentence);
}

#[test]
fn a_slow_disk_is_named() {
    let mut disk = run(Layer::Disk, "/mnt/a", Kind::Read, 20e6);
    disk.samples = cores([5.0, 3.0], false);
    let runs = vec![
        disk,
        run(Layer::Net, "nas", Kind::Receive, 117e6),
        run(Layer::Share, "nfs://127.0.0.1/data", Kind::Read, 19.5e6),
    ];
    let found = diagnosed(runs);
    assert!(found.verdict.contains("limited by the disk itself: 98 % of the 20 MB/s"), "{}", found.verdict);
}

/// Disks say something of a share of their own machine only.
#[test]
fn a_share_of_another_machine_is_not_held_against_disks_here() {
    let found = |subject: &str, here: Option<bool>| {
        let mut share = run(Layer::Share, subject, Kind::Read, 60e6);
        share.here = here;
        let runs = vec![
            run(Layer::Disk, "/mnt/a", Kind::Read, 20e6),
            run(Layer::Pool, "/mnt/p", Kind::Read, 63e6),
            run(Layer::Net, "nas", Kind::Receive, 117e6),
            share,
        ];
        let found = diagnosed(runs);
        found.findings.into_iter().find(|f| f.measured.path == Path::Share).unwrap()
    };
    let of_disks = |f: &Finding| f.stages.iter().any(|s| s.stage.resource == ResourceId::Disks);
    for (subject, here) in [
        ("nfs://nas/data", None),
        ("smb://me@10.0.0.5:445/data", Some(false)),
        ("/mnt/nas", Some(false)),
        ("nfs://elsewhere/data", Some(false)),
    ] {
        let share = found(subject, here);
        assert!(!of_disks(&share) && share.measured.how.elsewhere.is_some(), "{subject}: {:#?}", share.stages);
        assert!(matches!(share.evidence, Evidence::Missing(_)), "{:?}", share.evidence);
        assert!(share.sentence.contains("there: cat FILE"), "{}", share.sentence);
    }
    for (subject, here) in [
        ("nfs://127.0.0.1:2049/data", None),
        ("smb://me@elsewhere.lan/data", None),
        ("nfs://[::1]/data", None),
        ("nfs://nas/data", Some(true)),
        ("/mnt/a", Some(true)),
    ] {
        let share = found(subject, here);
        assert!(of_disks(&share) && share.measured.how.elsewhere.is_none(), "{subject}: {:#?}", share.stages);
    }
}

#[test]
fn what_memory_answered_proves_nothing() {
    let mut warm = run(Layer::Pool, "/mnt/a", Kind::Read, 9e9);
    warm.workload.caches = Caches::Warm;
    let found = diagnosed(vec![warm]);
    assert!(found.findings[0].evidence == Evidence::Doubtful, "{found:?}");
    // A share alone, of which nobody knows the disks, is no contradiction.
    let alone = diagnosed(vec![run(Layer::Share, "nfs://nas/data", Kind::Read, 80e6)]);
    assert!(alone.questions.is_empty() && matches!(alone.findings[0].evidence, Evidence::Missing(_)), "{alone:#?}");
    assert!(diagnosed(Vec::new()).verdict.contains("nothing was measured"));
}

#[test]
fn the_best_of_a_sweep_counts() {
    let mut small = run(Layer::Pool, "/mnt/a", Kind::Read, 50e6);
    small.workload.block_bytes = 4096;
    let found =
        diagnosed(vec![small, run(Layer::Pool, "/mnt/a", Kind::Read, 800e6), run(Layer::Both, "x", Kind::Read, 1e6)]);
    assert_eq!(found.findings.len(), 1);
    assert_eq!(found.findings[0].measured.rate, 800e6);
}

/// The predicted rate of a pool's disks, by its layout.
fn disks_allow(kind: Kind, layout: &str) -> f64 {
    let disks = ["a", "b", "c", "d"];
    let mut runs: Vec<Run> = disks.iter().map(|disk| run(Layer::Disk, disk, kind, 100e6)).collect();
    let mut pool = run(Layer::Pool, &disks.join(", "), kind, 90e6);
    pool.variant.insert("layout".to_owned(), layout.to_owned());
    runs.push(pool);
    let found = diagnosed(runs).findings.into_iter().find(|f| f.measured.path == Path::Local).unwrap();
    found.stages.iter().find(|s| s.stage.resource == ResourceId::Disks).unwrap().stage.limit
}

#[test]
fn a_pool_counts_with_its_own_layout() {
    for (kind, layout, mb_per_s) in [
        (Kind::Read, "stripe", 400.0),
        (Kind::Read, "raidz1", 300.0),
        (Kind::Write, "raidz2", 200.0),
        (Kind::Write, "mirror", 200.0),
        (Kind::Read, "mirror", 400.0),
        // An unknown layout is taken for a stripe.
        (Kind::Read, "x", 400.0),
    ] {
        assert_eq!(disks_allow(kind, layout) / 1e6, mb_per_s, "{kind:?} {layout}");
    }
}

/// A bench that knows the other end's memory says so in its workload, and the wire is named all the same.
#[test]
fn a_server_that_is_known_to_have_it_in_memory_is_no_reason_to_name_nothing() {
    let mut warm = run(Layer::Share, "nfs://nas/data", Kind::Read, 117e6);
    (warm.access, warm.workload.caches) = ("nfs3".to_owned(), Caches::Warm);
    let found = diagnosed(vec![run(Layer::Net, "nas", Kind::Receive, 117e6), warm]);
    let share = found.findings.iter().find(|f| f.measured.path == Path::Share).unwrap();
    assert!(share.evidence != Evidence::Doubtful, "{:?}", share.evidence);
}

/// A file that the server has in memory still had to come over the wire, and through its processor.
#[test]
fn what_memory_answered_says_nothing_of_disks_alone() {
    let share = |rate: f64| {
        let mut share = run(Layer::Share, "nfs://nas/data", Kind::Read, rate);
        (share.workload.caches, share.workload.data_bytes) = (Caches::Unknown, 64 << 20);
        share
    };
    let wire = || run(Layer::Net, "nas", Kind::Receive, 11.7e6);
    let found = diagnosed(vec![wire(), share(11.2e6)]);
    assert!(found.verdict.contains("limited by 100 Mbit Ethernet"), "{}", found.verdict);
    assert!(found.findings[1].sentence.contains("its disks may be slower"), "{found:#?}");
    let mut busy = share(60e6);
    busy.far_samples = Some(cores([99.0, 5.0], false));
    let found = diagnosed(vec![run(Layer::Net, "nas", Kind::Receive, 117e6), busy]);
    assert!(found.verdict.contains("limited by the server's processor: 1 of 2 cores full"), "{}", found.verdict);
    // Nothing was at its end: then it may be memory as well.
    let found = diagnosed(vec![run(Layer::Net, "nas", Kind::Receive, 117e6), share(60e6)]);
    assert!(found.findings[1].evidence == Evidence::Doubtful, "{found:#?}");
    // A mounted share may have been in the client's memory.
    let mut mounted = share(11.2e6);
    (mounted.access, mounted.subject) = ("mount".to_owned(), "/mnt/nas".to_owned());
    let found = diagnosed(vec![wire(), mounted]);
    assert!(found.findings[1].evidence == Evidence::Doubtful, "{found:#?}");
}

#[test]
fn a_quota_that_the_bench_saw_is_named() {
    let mut share = run(Layer::Share, "nfs://nas/data", Kind::Read, 30e6);
    let what = "the quota of larder (pid 7), 0.05 cores".to_owned();
    share.saturated = vec![Saturation { what, share: 0.9, from_ms: 0, to_ms: 9000 }];
    share.samples = cores([99.0, 99.0], false);
    let found = diagnosed(vec![run(Layer::Net, "nas", Kind::Receive, 117e6), share]);
    assert!(found.verdict.contains("that its control group allows"), "{}", found.verdict);
    assert!(found.findings[1].why.contains("0.05 cores was used up in 90 % of the time"), "{found:#?}");
}

#[test]
fn doubts_of_the_bench_keep_their_words() {
    let mut short = run(Layer::Pool, "/mnt/a", Kind::Read, 800e6);
    short.notes = vec![Note { code: "too-short".into(), text: "too short for more".into(), misleading: true }];
    let found = diagnosed(vec![short]);
    assert!(found.findings[0].why == "too short for more", "{found:#?}");
}

/// Two folders of one disk: what was asked of both at once is no contradiction, and no second disk.
#[test]
fn two_folders_of_one_disk_are_one_disk() {
    let latency = |mut run: Run, ms: f64| {
        run.repeats[0].latency = Some(Latency { mean_us: ms * 1e3, ..Latency::default() });
        run
    };
    let mut both = latency(run(Layer::Disks, "vda, vda", Kind::RandomRead, 145_280.0), 0.44);
    let text = "/a and /b lie on the same disk (vda): all at once, they share it".to_owned();
    both.notes = vec![Note { code: "same-disk".into(), text: text.clone(), misleading: true }];
    let runs = vec![
        latency(run(Layer::Disk, "vda", Kind::RandomRead, 92_000.0), 0.17),
        latency(run(Layer::Disk, "/dev/vda", Kind::RandomRead, 145_000.0), 0.11),
        both,
    ];
    let found = diagnosed(runs);
    assert!(found.questions.is_empty(), "{:#?}", found.questions);
    assert_eq!(found.remarks.iter().filter(|r| **r == text).count(), 1, "{:?}", found.remarks);
    let titles: Vec<&str> = found.findings.iter().map(|f| f.title.as_str()).collect();
    assert_eq!(titles, ["random reading vda by itself"]);
    assert_eq!(found.findings[0].measured.rate, 145_000.0);
    // Several disks have the depth each.
    let both = latency(run(Layer::Disks, "x, y", Kind::RandomRead, 72_000.0), 0.44);
    assert!(diagnosed(vec![both]).questions.is_empty());
}

/// A bench's figures are of moments: what a disk gave in one a pool may exceed in the next, but not by so much.
#[test]
fn a_pool_may_exceed_what_its_disk_gave_before_by_a_little() {
    for (pool, questions) in [(150e6, 0), (300e6, 1)] {
        let runs = vec![run(Layer::Disk, "vda", Kind::Read, 100e6), run(Layer::Pool, "vda", Kind::Read, pool)];
        assert_eq!(diagnosed(runs).questions.len(), questions, "{pool}");
    }
}

/// Latency and rate of different moments would be requests that nobody made.
#[test]
fn figures_of_one_measurement_are_of_one_moment() {
    let repeat = |rate: f64, ms: f64| Repeat {
        seconds: 10.0,
        bytes: (rate * 40960.0) as u64,
        bytes_per_s: rate * 4096.0,
        operations_per_s: rate,
        latency: Some(Latency { mean_us: ms * 1e3, ..Latency::default() }),
        ..Repeat::default()
    };
    for repeats in [vec![(10_000.0, 1.6), (9_800.0, 1.63), (900.0, 17.7)], vec![(10_000.0, 1.6), (900.0, 17.7)]] {
        let mut disk = run(Layer::Disk, "vda", Kind::RandomRead, 1.0);
        disk.repeats = repeats.into_iter().map(|(rate, ms)| repeat(rate, ms)).collect();
        let found = diagnosed(vec![disk]);
        assert!(found.questions.is_empty(), "{:#?}", found.questions);
    }
}

/// One disk, its pool and its share: what was measured above is no limit of what lies below.
#[test]
fn all_of_a_bench_on_one_disk_is_no_contradiction() {
    let found = diagnosed(vec![
        run(Layer::Disk, "vda", Kind::Read, 500e6),
        run(Layer::Pool, "vda", Kind::Read, 250e6),
        run(Layer::Share, "nfs://127.0.0.1/data", Kind::Read, 245e6),
    ]);
    assert!(found.questions.is_empty(), "{:#?}", found.questions);
    let share = found.findings.iter().find(|f| f.measured.path == Path::Share).unwrap();
    assert!(share.sentence.contains("98 % of what reading on the machine itself gave"), "{}", share.sentence);
    let disk = found.findings.iter().find(|f| f.measured.path == Path::Disks).unwrap();
    assert!(disk.stages.iter().all(|s| s.stage.limit >= 500e6), "{:#?}", disk.stages);
}

/// The memory of whoever measures is not the server's.
#[test]
fn each_machine_has_its_own_memory() {
    let share = |access: &str, size: u64| {
        let subject = if access == "mount" { "/mnt/nas" } else { "nfs://nas/data" };
        let mut share = run(Layer::Share, subject, Kind::Read, 60e6);
        (share.access, share.here) = (access.to_owned(), Some(false));
        (share.workload.caches, share.workload.data_bytes) = (Caches::Unknown, size);
        share
    };
    let cause = |runs: Vec<Run>, far_memory: u64| {
        let machine = MachineFacts { memory_bytes: far_memory, ..MachineFacts::default() };
        let far = FarMachine { name: "nas".to_owned(), version: 1, machine, ..FarMachine::default() };
        let far_machine = Some(far).filter(|_| far_memory > 0);
        let found = examined(BenchResult { far_machine, ..result(runs) });
        found.findings.into_iter().find(|f| f.measured.path == Path::Share).unwrap()
    };
    // Measured by a machine of 8 GiB.
    assert!(matches!(cause(vec![share("nfs3", 4 << 30)], 0).evidence, Evidence::Missing(_)));
    assert!(matches!(
        cause(vec![run(Layer::Disk, "vda", Kind::Read, 3e8), share("nfs3", 4 << 30)], 0).evidence,
        Evidence::Missing(_)
    ));
    assert!(matches!(cause(vec![share("nfs3", 4 << 30)], 2 << 30).evidence, Evidence::Missing(_)));
    for (share, far_memory, said) in [
        (share("nfs3", 4 << 30), 16 << 30, "16.0 GiB of memory of the server"),
        (share("mount", 4 << 30), 2 << 30, "of the client"),
        (share("nfs3", 64 << 20), 0, "that any server has"),
    ] {
        let found = cause(vec![share], far_memory);
        assert!(found.evidence == Evidence::Doubtful && found.why.contains(said), "{found:#?}");
    }
}

/// Notices about this machine belong to whichever end it is, and lift no wire that is full.
#[test]
fn notices_are_of_the_end_that_they_were_made_at() {
    let fixes = |runs: Vec<Run>| {
        let fixture = Fixture::new(include_str!("../../../../facts/fixtures/pi-usb.txt"));
        let reading = Reading::of(&fixture.machine, ReadOptions { smart: false, watch: Duration::ZERO });
        let machine = MachineFacts { host: "pi".to_owned(), memory_bytes: 4 << 30, ..MachineFacts::default() };
        let bench = BenchResult { machine, ..result(runs) };
        let found =
            examine(&fixture.machine, reading, &Sources { bench: Some(&bench), client: None, now: None }).unwrap();
        (found.diagnosis.verdict, found.diagnosis.advice.iter().map(|a| a.what.clone()).collect::<Vec<_>>().join("; "))
    };
    let share = |near, far: Option<Samples>| {
        let mut share = run(Layer::Share, "nfs://nas/data", Kind::Read, 6e6);
        (share.samples, share.far_samples) = (near, far);
        share
    };
    let (verdict, here) = fixes(vec![share(cores([99.0, 5.0], false), None)]);
    assert!(here.contains("governor"), "{verdict}: {here}");
    let (verdict, there) = fixes(vec![share(cores([10.0, 5.0], false), Some(cores([99.0, 5.0], false)))]);
    assert!(!there.contains("governor"), "{verdict}: {there}");
    let mut full = share(Samples::default(), None);
    full.repeats[0].bytes_per_s = 11.4e6;
    let (verdict, wire) = fixes(vec![full]);
    assert!(verdict.contains("the wire is full") && wire.contains("supports 1000"), "{verdict}: {wire}");
    assert!(!wire.contains("tcp_rmem"), "{wire}");
}

/// Cores that others fill hide no wire, and a wire of which nobody knows more is known by its rate.
#[test]
fn a_slow_wire_is_seen_beside_others_work() {
    let mut net = run(Layer::Net, "nas", Kind::Receive, 11.7e6);
    net.samples = cores([100.0, 99.0], false);
    let found = diagnosed(vec![net.clone()]);
    assert!(found.verdict.contains("limited by 100 Mbit Ethernet: 100 %"), "{}", found.verdict);
    net.repeats[0].load_cpu_s = Some(0.3);
    let found = diagnosed(vec![net]);
    assert!(found.verdict.contains("100 Mbit Ethernet") && !found.verdict.contains("cores"), "{}", found.verdict);
}

/// A core counts as far as the load has it, at every rate and at either end.
#[test]
fn only_the_loads_own_work_fills_a_core() {
    let beside = |percent: f64| {
        let mut samples = cores([100.0, 100.0], false);
        samples.cores.iter_mut().for_each(|core| core.others = vec![percent; 10]);
        samples
    };
    for rate in [40e6, 300e6, 2e9] {
        for (near, far, blamed) in [(90.0, 90.0, false), (2.0, 90.0, true), (90.0, 2.0, true)] {
            let mut net = run(Layer::Net, "nas", Kind::Receive, rate);
            (net.samples, net.far_samples) = (beside(near), Some(beside(far)));
            let verdict = watched(vec![net]).verdict;
            assert_eq!(verdict.contains("cores full"), blamed, "{near}, {far}: {verdict}");
            assert!(blamed || !verdict.contains("watch each core"), "{verdict}");
        }
    }
}

/// Over a wire that carries 400 Mbit/s the load takes a small part of a core: other programs fill both ends' cores.
#[test]
fn cores_that_others_fill_are_not_blamed_for_a_wire() {
    for rate in [25e6, 50e6] {
        for kind in [Kind::Receive, Kind::Send] {
            let mut net = run(Layer::Net, "nas", kind, rate);
            (net.samples, net.far_samples) = (cores([100.0, 100.0], false), Some(cores([100.0, 100.0], false)));
            net.repeats.iter_mut().for_each(|repeat| repeat.load_cpu_s = Some(0.03 * repeat.seconds));
            let found = watched(vec![net.clone()]);
            let class = found.findings[0].class;
            assert!(!matches!(class, Some(ResourceKind::Processor | ResourceKind::BothEnds)), "{}", found.verdict);
            assert!(!found.verdict.contains("cores full"), "{}", found.verdict);
            // A load that takes a core itself is held by it.
            net.repeats.iter_mut().for_each(|repeat| repeat.load_cpu_s = Some(0.99 * repeat.seconds));
            let found = watched(vec![net]);
            assert!(found.verdict.contains("cores full"), "{}", found.verdict);
        }
    }
}

#[test]
fn a_disk_that_fell_behind_its_beginning_is_named() {
    let mut pool = run(Layer::Pool, "vda", Kind::Write, 600e6);
    let knee = Knee { at_s: 9.0, bytes: 30 << 30, before_bytes_per_s: 2.1e9, after_bytes_per_s: 600e6 };
    pool.repeats[0].knee = Some(knee);
    let found = diagnosed(vec![pool]);
    let words = "the fast cache is full: it wrote 2.10 GB/s until 30.0 GiB, and 600 MB/s from then on";
    assert!(found.findings[0].sentence.contains(words), "{found:#?}");
}

/// A share has one connection, and the wire carries several times as much by four.
#[test]
fn one_connection_of_a_share_is_named() {
    let net = |rate: f64, jobs: u32| {
        let mut run = run(Layer::Net, "nas", Kind::Receive, rate);
        (run.workload.depth, run.workload.jobs) = (1, jobs);
        run
    };
    let share = || run(Layer::Share, "nfs://nas/data", Kind::Read, 455e6);
    let found = diagnosed(vec![net(488e6, 1), net(1.17e9, 4), share()]);
    assert!(found.verdict.contains("a single TCP connection"), "{}", found.verdict);
    assert_eq!((found.findings.len(), found.advice[0].rate_after), (3, 1.17e9));
    // If one carries nearly as much, nobody needs two figures of the wire.
    let found = diagnosed(vec![net(1.1e9, 1), net(1.17e9, 4), share()]);
    assert_eq!(found.findings.len(), 2);
    assert!(!found.verdict.contains("connection"), "{}", found.verdict);
}

/// The cipher's rate on one core is a stage of a way that is encrypted.
#[test]
fn a_cipher_that_fills_a_core_is_named() {
    let share = |rate: f64, kind: &str| {
        let mut share = run(Layer::Share, "smb://nas/data", Kind::Read, rate);
        share.variant.insert("encryption".to_owned(), kind.to_owned());
        share
    };
    let ciphers = vec![CipherRate { name: "AES-128-GCM".to_owned(), bytes_per_s: 420e6 }];
    let of = |runs: Vec<Run>| examined(BenchResult { ciphers: ciphers.clone(), ..result(runs) });
    let found = of(vec![run(Layer::Net, "nas", Kind::Receive, 1.17e9), share(400e6, "encrypted with Aes128Gcm")]);
    let said = "limited by the encryption: 95 % of the 420 MB/s that one core encrypts";
    assert!(found.findings[1].sentence.contains(said), "{:#?}", found.findings[1]);
    // Beyond it several cores encrypt, and that contradicts nothing; what is plain meets no cipher.
    let found = of(vec![share(900e6, "encrypted with Aes128Gcm"), share(400e6, "signed")]);
    assert!(found.questions.is_empty(), "{:#?}", found.questions);
    assert!(
        found.findings.iter().all(|f| f.resource != Some(ResourceId::Cipher) || f.measured.how.encryption.is_some())
    );
}

/// Folders on loop devices of one disk: each is measured as a disk, and none contradicts another.
#[test]
fn loop_devices_are_disks_of_their_own() {
    let mut text = "/sys/class/block/vda -> /sys/devices/pci0000:00/block/vda\n\
        /sys/block/vda -> /sys/devices/pci0000:00/block/vda\n\
        /sys/dev/block/8:0 -> /sys/devices/pci0000:00/block/vda\n\
        /sys/devices/pci0000:00/block/vda/size = 2048\n/sys/devices/pci0000:00/block/vda/dev = 8:0\n\
        /proc/self/mountinfo = 30 1 8:0 / /srv rw - ext4 /dev/vda rw\n"
        .to_owned();
    for n in 0..4 {
        let at = format!("/sys/devices/virtual/block/loop{n}");
        text.push_str(&format!(
            "/sys/class/block/loop{n} -> {at}\n/sys/block/loop{n} -> {at}\n{at}/size = 2048\n{at}/dev = 7:{n}\n\
             {at}/loop/backing_file = /srv/{n}.img\n{at}/loop/dio = 1\n"
        ));
    }
    let fixture = Fixture::new(&text);
    let rates = [400e6, 410e6, 120e6, 405e6];
    let runs =
        (0..4).zip(rates).map(|(n, rate)| run(Layer::Disk, &format!("/dev/loop{n}"), Kind::Read, rate)).collect();
    let found = crate::doctor::from_bench::described(&result(runs), None, &fixture.machine);
    let names: Vec<&str> = found.disks.iter().map(|disk| disk.name.as_str()).collect();
    assert_eq!(names, ["loop0", "loop1", "loop2", "loop3"]);
    let of_each = |m: &crate::doctor::Measured| m.disks.len() == 1;
    assert!(found.measured.len() == 4 && found.measured.iter().all(of_each), "{:?}", found.measured);
}
