use super::*;
use crate::bench::result::{Caches, Layer, Note, Run};
use crate::bench::show::{Style, sample, words};
use crate::stats;

/// Every rate of it times `factor(run, repeat)`.
fn scaled(result: &BenchResult, factor: impl Fn(&Run, usize) -> f64) -> BenchResult {
    let mut result = result.clone();
    for run in &mut result.runs {
        let factors: Vec<f64> = (0..run.repeats.len()).map(|n| factor(run, n)).collect();
        for (repeat, by) in run.repeats.iter_mut().zip(factors) {
            repeat.bytes_per_s *= by;
            repeat.operations_per_s *= by;
            for moment in &mut repeat.over_time {
                moment.bytes_per_s *= by;
                moment.operations_per_s *= by;
            }
        }
    }
    result
}

fn verdicts(comparison: &Comparison) -> Vec<Verdict> {
    comparison.rows.iter().map(|r| r.verdict).collect()
}

#[test]
fn a_result_is_never_faster_than_itself() {
    for (name, result) in sample::all() {
        let found = compare(&result, &result);
        assert_eq!(found.rows.len(), result.runs.len(), "{name}");
        assert!(found.only_a.is_empty() && found.only_b.is_empty() && found.differences.is_empty());
        for row in &found.rows {
            assert_eq!(row.ratio, Some(1.0), "{name}");
            assert!(!matches!(row.verdict, Verdict::Faster | Verdict::Slower), "{name}: {row:?}");
        }
    }
}

#[test]
fn what_is_clearly_faster_is_called_so() {
    let a = sample::box_d();
    let found = compare(&a, &scaled(&a, |_, _| 1.4));
    assert!(verdicts(&found).iter().all(|v| *v == Verdict::Faster), "{:?}", verdicts(&found));
    for row in &found.rows {
        let [low, high] = row.interval.unwrap();
        assert!(low > 1.2 && high < 1.6 && (low..high).contains(&1.4), "{row:?}");
        assert!(row.p_adjusted.unwrap() >= row.p.unwrap());
    }
    let back = compare(&scaled(&a, |_, _| 1.4), &a);
    assert!(verdicts(&back).iter().all(|v| *v == Verdict::Slower));
}

/// Repeats of one bench do not show what was in the way of all of them.
#[test]
fn what_disturbed_a_whole_bench_is_said_beside_a_change() {
    let mut a = sample::box_d();
    a.notes.push(Note { code: "machine-busy".into(), text: "busy".into(), misleading: false });
    let found = compare(&a, &scaled(&a, |_, _| 0.86));
    assert!(found.rows.iter().all(|r| r.why.ends_with("both were disturbed (machine-busy), which may be all of it")));
    assert!(found.summary.contains("Both were disturbed (machine-busy)"), "{}", found.summary);
    let mut calm = a.clone();
    calm.notes.clear();
    let found = compare(&calm, &scaled(&a, |_, _| 0.86));
    assert!(found.summary.contains("B was disturbed"), "{}", found.summary);
    assert!(!compare(&calm, &scaled(&calm, |_, _| 0.86)).summary.contains("disturbed"));
}

#[test]
fn three_repeats_are_decided_by_their_spread() {
    let a = sample::box_a();
    // Repeats that differ by half cannot tell a tenth.
    let noisy = scaled(&a, |_, n| [1.1, 0.75, 1.45][n]);
    let found = compare(&a, &noisy);
    assert!(verdicts(&found).iter().all(|v| matches!(v, Verdict::CannotTell | Verdict::NotComparable)));
    let row = &found.rows[0];
    assert!(row.why.contains("cannot tell with 3 repeats"), "{}", row.why);
    // Half the rate with small spread can be told.
    let slow = compare(&a, &scaled(&a, |_, _| 0.5));
    assert!(verdicts(&slow).iter().all(|v| matches!(v, Verdict::Slower | Verdict::NotComparable)));
}

/// Repeats that vary by 3 % as one standard deviation, each pair of results from another seed.
fn noisy_pair(repeats: usize, factor: f64, seed: u64) -> Comparison {
    let mut a = sample::box_d();
    for run in &mut a.runs {
        let first = run.repeats[0].clone();
        run.repeats = vec![first; repeats];
        run.repeats.iter_mut().for_each(|repeat| repeat.over_time.clear());
    }
    let mut random = stats::Random::new(seed);
    let noise = |factor: f64, random: &mut stats::Random| {
        let mut noisy = a.clone();
        for repeat in noisy.runs.iter_mut().flat_map(|run| &mut run.repeats) {
            let by = factor * (0.03 * random.normal()).exp();
            repeat.bytes_per_s *= by;
            repeat.operations_per_s *= by;
        }
        noisy
    };
    compare(&noise(1.0, &mut random), &noise(factor, &mut random))
}

/// At most one report of twenty claims a difference between two runs of the same thing.
#[test]
fn the_same_thing_is_rarely_called_different() {
    let reports = 200;
    let claims = |seed: &u64| noisy_pair(3, 1.0, *seed).rows.iter().any(|row| row.verdict.is_change());
    let wrong = (0..reports).filter(claims).count();
    assert!(wrong <= 10, "{wrong} of {reports}");
}

#[test]
fn a_tenth_is_found_at_five_repeats() {
    let (mut found, mut all) = (0, 0);
    for seed in 0..100 {
        let rows = noisy_pair(5, 0.9, seed).rows;
        found += rows.iter().filter(|row| row.verdict == Verdict::Slower).count();
        all += rows.len();
    }
    assert!(found * 10 >= all * 9, "{found} of {all}");
}

#[test]
fn one_repeat_cannot_tell() {
    let mut a = sample::box_a();
    a.runs.iter_mut().for_each(|r| r.repeats.truncate(1));
    let found = compare(&a, &scaled(&a, |_, _| 3.0));
    let row = &found.rows[0];
    assert_eq!((row.verdict, row.interval, row.p), (Verdict::CannotTell, None, None));
    assert!(row.why.starts_with("cannot tell with 1 repeat"), "{}", row.why);
    let [low, high] = row.interval_within.unwrap();
    assert!(low > 2.8 && high < 3.2 && low < high, "{low} to {high}");
}

/// Repeats that agree to the last bit, whose moments do not: the interval is as wide as the moments make it.
#[test]
fn lucky_repeats_are_not_believed_more_than_their_moments() {
    let mut a = sample::box_d();
    let first = a.runs[0].repeats[0].clone();
    a.runs.truncate(1);
    a.runs[0].repeats = vec![first; 5];
    let row = &compare(&a, &scaled(&a, |_, _| 1.001)).rows[0];
    let [low, high] = row.interval.unwrap();
    assert!(high - low > 0.004, "{low} to {high}");
    assert_eq!(row.verdict, Verdict::Same);
}

#[test]
fn another_method_is_named_and_has_no_verdict() {
    let a = sample::box_a();
    let check = |change: fn(&mut Run), what: &str| {
        let mut b = scaled(&a, |_, _| 2.0);
        change(&mut b.runs[0]);
        let found = compare(&a, &b);
        let row = found.rows.iter().find(|r| r.verdict == Verdict::NotComparable && r.subject_a == "/mnt/qlc1");
        let row = row.unwrap_or_else(|| panic!("{what} went unnoticed"));
        assert!(row.why.contains(what) && !row.comparable && row.p_adjusted.is_none(), "{what}: {}", row.why);
        assert!(row.ratio.is_some(), "figures stay");
    };
    check(|r| r.workload.caches = Caches::Warm, "caches: caches bypassed and caches warm");
    check(|r| r.workload.block_bytes = 65536, "block size: 1 MiB and 64 KiB");
    check(|r| r.workload.depth = 1, "requests in flight");
    check(|r| r.workload.compressible = true, "compressible data: no and yes");
    check(|r| r.workload.synced = true, "flushed at the end");
    check(|r| r.workload.data_bytes /= 8, "amount of data: 32 GiB and 4 GiB");
    check(|r| r.with = "dd 9.1".into(), "made by: fio 3.33 and dd 9.1");
    check(
        |r| r.notes.push(Note { code: "memory-measured".into(), text: "memory".into(), misleading: true }),
        "misleading: no and memory-measured",
    );
    // The same mistake in both proves as little.
    let row = compare(&a, &a).rows.into_iter().find(|r| r.verdict == Verdict::NotComparable).unwrap();
    assert!(row.why.contains("misleading: caches-warm in both"), "{}", row.why);
}

#[test]
fn another_box_is_compared_but_not_as_a_change() {
    let a = sample::box_d();
    let mut b = scaled(&a, |_, _| 1.5);
    b.machine.kernel = "FreeBSD 14.1".into();
    b.runs.iter_mut().for_each(|r| r.subject = "other".into());
    let found = compare(&a, &b);
    assert!(found.rows.iter().all(|r| r.verdict == Verdict::Faster && !r.comparable));
    assert!(found.summary.contains("Not the same box (kernel): this compares boxes"), "{}", found.summary);
    assert_eq!(found.rows[0].subject_b, "other", "matched by the part it plays");
}

#[test]
fn what_has_no_counterpart_is_listed() {
    let (a, e) = (sample::box_a(), sample::box_e());
    let found = compare(&a, &e);
    assert_eq!(found.rows.len() + found.only_a.len(), a.runs.len());
    assert_eq!(found.rows.len() + found.only_b.len(), e.runs.len());
    let mut empty = a.clone();
    empty.runs.clear();
    let found = compare(&empty, &empty);
    assert_eq!(found.summary, "The two have no run in common.");
    assert!(html(&found).contains("no run in common"));
}

#[test]
fn absurd_values_give_no_verdict_and_no_panic() {
    for value in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        let a = sample::box_d();
        let found = compare(&a, &scaled(&a, |_, _| value));
        assert!(verdicts(&found).iter().all(|v| *v == Verdict::CannotTell), "{value}");
        assert!(
            serde_json::to_string(&found).unwrap().starts_with("{\"schema\":\"larder-bench-comparison\",\"version\":1")
        );
    }
    for value in [1e-300, 1e200] {
        let a = sample::box_d();
        let found = compare(&a, &scaled(&a, |_, _| value));
        assert_eq!(found.rows.len(), a.runs.len());
        assert!(text(&found, &Style::default()).len() > 1000 && html(&found).contains("<svg"));
    }
}

#[test]
fn text_and_page_show_every_row() {
    let a = sample::box_a();
    let b = scaled(&a, |r, _| if r.access == "nfs3" { 1.3 } else { 1.0 });
    let found = compare(&a, &b);
    for width in [60, 100] {
        let shown = text(&found, &Style { width, colour: false, unicode: true, cores: false });
        assert!(shown.lines().all(|l| words::width(l) <= width), "{shown}");
        assert!(shown.contains("faster") && shown.contains("NOT COMPARABLE"));
    }
    assert!(text(&found, &Style { width: 100, colour: false, unicode: false, cores: false }).is_ascii());
    let page = html(&found);
    assert_eq!(page.matches("<script>").count(), 1);
    assert!(page.contains("id=\"ratios-w\"") && page.contains("id=\"ratios-n\""));
    let mut hostile = b;
    hostile.title = "</script><script>alert(1)</script>".into();
    assert!(!html(&compare(&a, &hostile)).contains("<script>alert"));
}

#[test]
fn a_mixed_workload_is_compared_by_its_sides_too() {
    let mut a = sample::box_d();
    a.runs.truncate(1);
    for repeat in &mut a.runs[0].repeats {
        let side = |part: f64| {
            let rate = repeat.operations_per_s.max(1.0) * part;
            Some(super::super::result::Side {
                operations_per_s: rate,
                bytes_per_s: rate * 4096.0,
                ..Default::default()
            })
        };
        (repeat.read, repeat.write) = (side(0.75), side(0.25));
    }
    a.runs[0].workload.kind = crate::bench::result::Kind::RandomMixed;
    let mut b = a.clone();
    for repeat in &mut b.runs[0].repeats {
        let write = repeat.write.as_mut().unwrap();
        (write.operations_per_s, write.bytes_per_s) = (write.operations_per_s * 2.0, write.bytes_per_s * 2.0);
    }
    let found = compare(&a, &b);
    let told: Vec<(bool, Option<f64>)> =
        found.rows.iter().map(|r| (r.workload.ends_with("its writes"), r.ratio)).collect();
    assert_eq!(told, [(false, Some(1.0)), (false, Some(1.0)), (true, Some(2.0))]);
    let shown = super::super::show::text(&b, &Style::default());
    assert!(shown.contains("its reads") && shown.contains("its writes"), "{shown}");
}

/// Two benches of two folders, as they come: each names its own.
#[test]
fn what_one_property_tells_apart_is_compared() {
    let bench = |subject: &str, variant: &[(&str, &str)]| {
        let mut result = sample::box_d();
        result.runs.truncate(2);
        for run in &mut result.runs {
            (run.layer, run.subject) = (Layer::Disk, subject.to_owned());
            run.variant = variant.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        }
        result
    };
    let plain = bench("/mnt/plain", &[("disk", "/mnt/plain")]);
    let check = |b: &BenchResult, name: &str, told: usize| {
        let found = compare(&plain, &scaled(b, |_, _| 0.6));
        assert_eq!(verdicts(&found), [Verdict::Slower; 2], "{name}: {}", found.summary);
        assert!(found.only_a.is_empty() && found.only_b.is_empty());
        assert_eq!(found.rows[0].variant, name);
        assert_eq!(found.rows[0].differences.len(), told, "{:?}", found.rows[0].differences);
    };
    check(&plain, "", 0);
    check(&bench("/mnt/luks", &[("disk", "/mnt/luks")]), "", 0);
    check(&bench("/mnt/plain", &[("disk", "/mnt/plain"), ("encryption", "xts")]), "encryption - / xts", 1);
    // With one equal and one other run on both sides, like goes with like.
    let both = bench("/mnt/plain", &[("layout", "mirror")]);
    let mut more = bench("/mnt/plain", &[("layout", "raidz1")]);
    more.runs.extend(both.runs.clone());
    let found = compare(&both, &more);
    assert_eq!((found.rows.len(), found.rows[0].variant.as_str()), (2, "layout mirror"));
    assert_eq!((found.only_a.len(), found.only_b.len()), (0, 2));
    // Two properties at once say nothing of either.
    let two = bench("/mnt/plain", &[("layout", "raidz1"), ("compression", "zstd")]);
    assert!(compare(&both, &two).rows.is_empty());
}
