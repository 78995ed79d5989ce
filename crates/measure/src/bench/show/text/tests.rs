use super::*;
use crate::bench::result::{Kind, Layer, Moment, Repeat, Samples, Saturation};
use crate::bench::show::sample;
use words::width;

fn style(width: usize, unicode: bool) -> Style {
    Style { width, colour: false, unicode, cores: false }
}

#[test]
fn nothing_is_wider_than_the_terminal() {
    for (name, result) in sample::all() {
        for columns in [60, 80, 100, 140] {
            let text = text(&result, &style(columns, true));
            for line in text.lines() {
                assert!(width(line) <= columns, "{name} at {columns}: {} columns: {line}", width(line));
            }
        }
    }
}

#[test]
fn ascii_is_ascii_and_colour_only_when_asked() {
    for (_, result) in sample::all() {
        assert!(text(&result, &style(100, false)).is_ascii());
        assert!(!text(&result, &style(100, true)).contains('\x1b'));
        let coloured = text(&result, &Style { width: 100, colour: true, unicode: true, cores: false });
        assert!(coloured.contains("\x1b["));
        // Without its escape sequences it is the same text.
        let mut plain = String::new();
        for (n, part) in coloured.split("\x1b[").enumerate() {
            plain.push_str(if n == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) });
        }
        assert_eq!(plain, text(&result, &style(100, true)));
    }
}

#[test]
fn the_pi_box_reads_as_its_builder_found() {
    let text = text(&sample::box_a(), &Style { cores: true, ..style(100, true) });
    let order: Vec<usize> = ["\nDISK ", "\nDISKS TOGETHER ", "\nPOOL ", "\nNET ", "\nSHARE ", "\nBOTH "]
        .iter()
        .map(|h| text.find(h).unwrap_or_else(|| panic!("{h} is missing")))
        .collect();
    assert!(order.is_sorted(), "{order:?}");
    let flowing = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "the sum of each alone (24 %): they share a limit",
        "core 0 had no more to give for 93 %",
        "/mnt/qlc1: knee after 9 s and",
        "! misleading: The server's memory",
        "Reading over the network, larder's smb3 client (92 MB/s) is not explained",
    ] {
        assert!(flowing.contains(said), "{said} is missing in {text}");
    }
}

/// Tables of cores are there on demand; without them a line says what was full, and the headline stands at both ends.
#[test]
fn a_long_result_ends_with_its_headline() {
    let (short, long) = (style(80, true), Style { cores: true, ..style(80, true) });
    let (said, all) = (text(&sample::box_a(), &short), text(&sample::box_a(), &long));
    assert!(said.lines().count() < all.lines().count() && all.contains("BUSY OVER TIME"), "{said}");
    assert!(!said.contains("BUSY OVER TIME") && said.contains("\nFULL ") && said.contains("core 0"), "{said}");
    let headline = words::folded(&view::headline(&sample::box_a()), 80).join("\n");
    assert!(said.matches(&headline).count() == 2 && said.trim_end().ends_with(&headline), "{said}");
}

/// A wire that is shaped in one direction is told of in the headline.
#[test]
fn an_uneven_wire_is_in_the_headline() {
    let mut result = sample::box_a();
    let of = |result: &crate::bench::result::BenchResult| view::headline(result).contains("The wire sends");
    assert!(!of(&result), "{}", view::headline(&result));
    for run in result.runs.iter_mut().filter(|run| run.layer == Layer::Net && run.workload.kind == Kind::Receive) {
        run.repeats.iter_mut().for_each(|repeat| repeat.bytes_per_s /= 3.0);
    }
    assert!(of(&result), "{}", view::headline(&result));
}

#[test]
fn the_headline_says_what_there_is() {
    let mut result = sample::box_a();
    result.runs.retain(|run| run.layer == Layer::Disk);
    result.runs.truncate(1);
    result.runs[0].workload.kind = Kind::CreateFiles;
    let said = view::headline(&result);
    assert!(said.ends_with('.') && !said.contains(": ."), "{said}");
    // Depths of one kind: the best of them, not the first.
    let first = result.runs[0].clone();
    for (kind, part) in [(Kind::RandomRead, 0.5), (Kind::RandomRead, 8.0), (Kind::RandomMixed, 2.0)] {
        let mut run = first.clone();
        run.workload.kind = kind;
        run.repeats.iter_mut().for_each(|repeat| repeat.operations_per_s = 1000.0 * part);
        result.runs.push(run);
    }
    assert_eq!(view::headline(&result), "Disk: random reads 8k IOPS, random 75/25 2k IOPS.");
    let mut share = sample::box_a();
    share.runs.retain(|run| run.layer == Layer::Share && run.workload.kind == Kind::Read);
    share.runs.iter_mut().for_each(|run| {
        run.notes.clear();
        run.workload.caches = crate::bench::result::Caches::Warm;
    });
    let said = view::headline(&share);
    assert!(said.contains(" from its server's memory"), "{said}");
}

#[test]
fn empty_and_hostile_results_are_shown() {
    let mut result = sample::box_a();
    result.runs.clear();
    assert!(text(&result, &Style::default()).contains("Nothing was measured"));
    let mut result = sample::box_a();
    result.title = "\x1b]0;owned\x07 写真 \u{202e}".into();
    result.machine.host = "h\n\n\nEVIL".into();
    for run in &mut result.runs {
        run.subject = format!("/mnt/写真{}\x1b[2J", "写".repeat(500));
        run.repeats.truncate(1);
        run.repeats[0].latency = None;
    }
    let shown = text(&result, &style(80, true));
    assert!(!shown.contains('\x1b') && !shown.contains('\u{7}') && !shown.contains("\nEVIL"));
    assert!(shown.contains("1 repeat"));
    assert!(shown.lines().all(|l| width(l) <= 80), "{shown}");
}

#[test]
fn holes_and_absurd_numbers_are_survived() {
    for value in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e-300, 1e300, f64::MAX] {
        let mut result = sample::box_a();
        for run in &mut result.runs {
            for repeat in &mut run.repeats {
                (repeat.bytes_per_s, repeat.operations_per_s) = (value, value);
                repeat.over_time.iter_mut().for_each(|m| m.bytes_per_s = value);
            }
            run.samples.cores.iter_mut().for_each(|c| c.user.iter_mut().for_each(|u| *u = value));
        }
        let shown = text(&result, &Style::default());
        assert!(shown.lines().all(|l| width(l) <= 100) && shown.len() > 1000, "{value}");
    }
}

#[test]
fn a_bench_of_days_is_a_bounded_text() {
    let mut result = sample::box_a();
    let run = result.runs.iter_mut().find(|r| r.repeats[0].knee.is_some()).unwrap();
    run.repeats[0].over_time =
        (0..500_000).map(|n| Moment { at_ms: n * 500, bytes_per_s: 1e8, operations_per_s: 1e2 }).collect();
    run.repeats.resize(200, Repeat::default());
    run.samples = Samples::default();
    assert!(text(&result, &Style::default()).len() < 60_000);
    let run = result.runs[0].clone();
    result.runs = vec![run; 5000];
    let shown = text(&result, &Style::default());
    assert!(shown.contains("4400 more runs are not shown") && shown.len() < 200_000);
}

#[test]
fn a_sweep_is_a_plot_with_a_table() {
    let result = sample::box_e();
    let sweeps = view::sweeps(&result);
    assert_eq!(sweeps.len(), 1);
    let sizes: Vec<usize> = sweeps[0].lines.iter().map(|l| l.points().len()).collect();
    assert_eq!(sizes, [14; 4]);
    assert_eq!(sweeps[0].kind, Kind::Read);
    // In the layers' tables one of them stands for all.
    let main = view::main_runs(&result);
    assert_eq!(main.len(), 4);
    assert!(main.iter().all(|r| r.workload.block_bytes == 1 << 20));
    let shown = text(&result, &Style::default());
    for name in ["local", "nfs3", "smb3", "sftp", "32 MiB"] {
        assert!(shown.contains(name), "{name}");
    }
}

#[test]
fn comparisons_hold_all_but_one_property_fixed() {
    let result = sample::box_d();
    let found = view::compared(&result);
    let mut keys: Vec<(String, usize, usize)> =
        found.iter().map(|c| (c.key.clone(), c.rows.len(), c.workloads.len())).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys, [("compression".into(), 2, 2), ("encryption".into(), 4, 2)]);
    assert_eq!(found.iter().filter(|c| c.key == "encryption").count(), 2, "with and without compression");
    let disks = view::compared(&result).into_iter().find(|c| c.key == "disk");
    assert!(disks.is_none());
    let result = sample::box_b();
    let disks = view::compared(&result).into_iter().find(|c| c.key == "disk").unwrap();
    assert_eq!(disks.rows.len(), 8);
    assert!(result.runs.iter().any(|r| r.layer == Layer::Disks));
}

/// Kinds of encryption below a folder, or on the way to a share, are told apart by folder and share.
#[test]
fn kinds_of_encryption_are_a_table_of_their_own() {
    let mut result = sample::box_d();
    let told = [
        (Layer::Disk, "/mnt/plain", "local", "none"),
        (Layer::Disk, "/mnt/luks", "local", "dm-crypt"),
        (Layer::Share, "nfs://nas/data", "nfs3", "none"),
        (Layer::Share, "smb://nas/data", "smb3", "signed"),
        (Layer::Share, "smb://nas/data?encrypt=1", "smb3", "encrypted with Aes128Gcm"),
    ];
    let one = result.runs[0].clone();
    result.runs = told
        .iter()
        .map(|(layer, subject, access, encryption)| {
            let mut run = one.clone();
            (run.layer, run.subject, run.access) = (*layer, (*subject).to_owned(), (*access).to_owned());
            run.variant.clear();
            run.variant.insert("encryption".to_owned(), (*encryption).to_owned());
            if *layer == Layer::Disk {
                run.variant.insert("disk".to_owned(), (*subject).to_owned());
            }
            run
        })
        .collect();
    let rows = |result: &BenchResult, key: &str| -> Vec<usize> {
        view::compared(result).iter().filter(|c| c.key == key).map(|c| c.rows.len()).collect()
    };
    assert_eq!(rows(&result, "encryption"), [2, 3]);
    assert_eq!((rows(&result, "disk"), rows(&result, "access").len()), (vec![2], 1));
    let shown = text(&result, &Style::default());
    assert!(shown.contains("BY ENCRYPTION") && shown.contains("dm-crypt: /mnt/luks"), "{shown}");
    assert!(shown.lines().all(|l| width(l) <= 100), "{shown}");
    // All alike is no comparison.
    result.runs.iter_mut().for_each(|r| drop(r.variant.insert("encryption".to_owned(), "none".to_owned())));
    assert!(rows(&result, "encryption").is_empty());
}

#[test]
fn a_core_that_was_full_by_itself_is_named_at_either_end() {
    let check = |given: &[(&str, f64)], told: &[&str]| {
        let mut run = sample::box_a().runs.remove(0);
        let full =
            |(what, share): &(&str, f64)| Saturation { what: (*what).into(), share: *share, from_ms: 0, to_ms: 1 };
        run.saturated = given.iter().map(full).collect();
        let found = view::saturated(&run);
        assert_eq!(found.iter().map(|s| s.what.as_str()).collect::<Vec<_>>(), told, "{given:?}");
    };
    check(&[("core 1", 0.95), ("all cores", 0.8), ("core 0", 0.82)], &["core 1", "all cores"]);
    check(&[("all cores", 0.9), ("core 0", 0.95), ("core 1", 0.91)], &["all cores"]);
    check(&[("core 0", 0.3), ("disk sda", 0.3)], &["core 0", "disk sda"]);
    // One end's cores say nothing of the other's.
    check(&[("nas: all cores", 0.9), ("core 0", 0.9), ("nas: core 2", 0.9)], &["nas: all cores", "core 0"]);
    check(&[("nas: core 2", 0.9), ("all cores", 0.9), ("core 0", 0.9)], &["nas: core 2", "all cores"]);
}
