use std::path::{Path, PathBuf};

use super::answer::{parse, progress};
use super::*;

/// The output of fio 3.33 for two jobs of 75/25 random I/O, with fewer bins.
const MIXED: &str = include_str!("mixed.json");

fn job(kind: Kind) -> FioJob {
    FioJob {
        kind,
        block_bytes: 4096,
        depth: 16,
        jobs: 2,
        targets: vec![Target { path: PathBuf::from("/mnt/a:b/data"), bytes: 64 << 20 }],
        direct: true,
        engine: "libaio",
        compressible: false,
        warm_up_s: 1.0,
        seconds: 3.0,
    }
}

#[test]
fn an_answer_is_added_up_over_jobs_and_directions() {
    let found = parse(MIXED.as_bytes()).unwrap();
    assert!((found.seconds - 3.001).abs() < 1e-9, "{found:?}");
    assert!((20_000.0..80_000.0).contains(&found.operations_per_s()));
    assert!((found.bytes as f64 / found.operations as f64 - 4096.0).abs() < 10.0, "{found:?}");
    let latency = found.latency.unwrap();
    let rising = [latency.p50_us, latency.p95_us, latency.p99_us, latency.p999_us];
    assert!(rising.is_sorted() && rising[0] > 100.0 && rising[3] <= 9000.0, "{latency:?}");
    assert!(latency.mean_us > 100.0 && latency.max_us >= latency.p99_us, "{latency:?}");
    // Three reads for each write, and both have times of their own.
    let mixed = repeat(&job(Kind::RandomMixed), &found, &[]);
    let (read, write) = (mixed.read.unwrap(), mixed.write.unwrap());
    assert_eq!((read.operations + write.operations, read.bytes + write.bytes), (mixed.operations, mixed.bytes));
    assert!((2.8..3.2).contains(&(read.operations_per_s / write.operations_per_s)), "{read:?} {write:?}");
    assert!(read.latency.unwrap().p50_us > 0.0 && write.latency.unwrap().p50_us > 0.0);
    assert!(repeat(&job(Kind::RandomRead), &found, &[]).read.is_none());
    // Two threads at 15 to 25 % for three seconds.
    assert!((0.5..2.0).contains(&found.cpu_s), "{found:?}");
}

#[test]
fn what_is_no_answer_is_an_error() {
    let check = |text: &str, reason: &str| {
        let error = parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    };
    check("", "not understood");
    check("fio: it broke", "not understood");
    check("{\"jobs\": []}", "there are no jobs");
    check("{\"jobs\": [{\"jobname\": \"a\", \"error\": 28}]}", "No space left");
    check("{\"jobs\": [{\"read\": {\"runtime\": 0}}]}", "nothing was read");
    check("{\"jobs\": [{\"read\": {\"runtime\": \"x\", \"io_bytes\": -1, \"lat_ns\": []}}]}", "nothing was read");
}

#[test]
fn the_line_of_progress_is_understood() {
    let line = "Jobs: 2 (f=2): [m(2)][60.0%][r=158MiB/s,w=52.7MiB/s][r=40.5k,w=13.5k IOPS][eta 00m:02s]";
    let found = progress(line).unwrap();
    assert_eq!((found.done, found.operations_per_s), (Some(0.6), 54_000.0));
    assert!((found.bytes_per_s / (1 << 20) as f64 - 210.7).abs() < 1e-6);
    assert_eq!(progress("Jobs: 2 (f=0)"), None);
    assert_eq!(progress("anything [60%]"), None);
    let odd = progress("Jobs: 1 (f=1): [R(1)][x%][100.0%][r=1QiB/s][r=x IOPS]").unwrap();
    assert_eq!((odd.done, odd.bytes_per_s, odd.operations_per_s), (Some(1.0), 0.0, 0.0));
}

#[test]
fn job_files_say_what_is_measured() {
    let check = |job: FioJob, has: &[&str], lacks: &[&str]| {
        let text = job.text(Path::new("/keep/fio"));
        let lines: Vec<&str> = text.lines().collect();
        has.iter().for_each(|line| assert!(lines.contains(line), "no {line} in\n{text}"));
        lacks.iter().for_each(|start| assert!(!lines.iter().any(|l| l.starts_with(start)), "{start} in\n{text}"));
    };
    check(
        job(Kind::RandomMixed),
        &[
            "rw=randrw",
            "rwmixread=75",
            "bs=4096",
            "iodepth=16",
            "numjobs=2",
            "direct=1",
            "refill_buffers=1",
            "runtime=4",
            "time_based=1",
            "filename=/mnt/a\\:b/data",
            "size=67108864",
            "end_fsync=1",
            "fsync=16384",
        ],
        &["offset_increment", "buffer_compress", "ramp_time"],
    );
    // Sequential jobs divide the file; what is only read is not refilled; the whole of a sequential write is seen.
    check(
        job(Kind::Read),
        &["rw=read", "size=33554432", "offset_increment=33554432", "ramp_time=1", "runtime=3"],
        &["refill_buffers", "end_fsync", "fsync"],
    );
    // Data is on the disk before it is written again: after each pass over a job's part there is a flush.
    check(job(Kind::Write), &["rw=write", "runtime=4", "time_based=1", "fsync=8192"], &["ramp_time"]);
    // Without direct I/O nothing is read a second time.
    let cached = FioJob { direct: false, jobs: 1, compressible: true, ..job(Kind::Write) };
    check(cached, &["direct=0", "buffer_compress_percentage=50"], &["time_based", "ramp_time", "offset_increment"]);
    assert!(job(Kind::RandomMixed).writes() && !job(Kind::RandomRead).writes());
}

#[test]
fn paths_that_a_job_file_cannot_carry_are_refused() {
    use std::os::unix::ffi::OsStrExt;
    let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    let with = |target: &[u8], logs: &[u8]| {
        let job = FioJob { targets: vec![Target { path: path(target), bytes: 1 }], ..job(Kind::Read) };
        job.check(&path(logs))
    };
    assert!(with(b"/mnt/my disk:1/data", b"/keep/\xc3\xa4/fio").is_ok());
    let odd: [&[u8]; 9] = [b"/a\xff", b"/a\nrw=write", b"/a;b", b"/a#b", b"/a${b}", b"/a\\b", b"/a\"b", b"/a ", b" /a"];
    for bytes in odd {
        for refused in [with(bytes, b"/l"), with(b"/d", bytes)] {
            let error = refused.unwrap_err();
            assert!(error.to_string().contains("cannot carry the path") && error.action().is_some(), "{error}");
        }
    }
}

#[test]
fn only_writing_jobs_may_write() {
    let args = |kind| arguments(&job(kind), Path::new("a.fio"), Path::new("a.json"));
    assert!(args(Kind::Read).contains(&"--readonly".into()) && !args(Kind::Write).contains(&"--readonly".into()));
}

#[test]
fn a_fast_cache_is_told_apart_from_the_disk() {
    let rate = |i: u64| if i < 40 { 400e6 } else { 100e6 };
    let moments: Vec<_> = (0..120)
        .map(|i| crate::workload::Moment { at_ms: (i + 1) * 500, bytes_per_s: rate(i), operations_per_s: 1.0 })
        .collect();
    let found = answer::Answer { seconds: 60.0, bytes: 12_000_000_000, operations: 120, ..Default::default() };
    let direct = repeat(&job(Kind::Write), &found, &moments);
    assert_eq!(direct.knee.unwrap().at_s, 20.0);
    assert!((direct.bytes_per_s - 100e6).abs() < 1.0 && direct.seconds == 40.0);
    let cached = repeat(&FioJob { direct: false, ..job(Kind::Write) }, &found, &moments);
    assert!(cached.knee.is_none() && (cached.bytes_per_s - 200e6).abs() < 1.0);
}

#[test]
fn what_memory_took_counts_when_it_is_on_the_disk() {
    use crate::workload::Moment;
    // Direct I/O into a pool's memory: 3 GB/s for four seconds, then two minutes of flushing at 100 MB/s.
    let rates = |rate: &dyn Fn(u64) -> f64, moments: u64, seconds: f64, kind| {
        let of = |i| Moment { at_ms: (i + 1) * 500, bytes_per_s: rate(i), operations_per_s: rate(i) / 4096.0 };
        let moments: Vec<_> = (0..moments).map(of).collect();
        let bytes = moments.iter().map(|m| m.bytes_per_s / 2.0).sum::<f64>() as u64;
        let found = answer::Answer { seconds, bytes, operations: bytes / 4096, ..Default::default() };
        repeat(&job(kind), &found, &moments)
    };
    for kind in [Kind::Write, Kind::RandomWrite] {
        let found = rates(&|_| 3e9, 8, 124.0, kind);
        assert!((found.bytes_per_s / 1e6 - 96.8).abs() < 0.1 && found.seconds == 124.0, "{found:?}");
    }
    // Memory was full after three seconds: what followed is faster than what became durable.
    let found = rates(&|i| if i < 6 { 3e9 } else { 400e6 }, 16, 60.0, Kind::Write);
    assert!(found.knee.is_none() && (found.bytes_per_s / 1e6 - 183.3).abs() < 0.1, "{found:?}");
}
