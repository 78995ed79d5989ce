//! What cannot be true is asked about, with the figures, and nothing is concluded from it.

use super::diagnosis;

const HDD: &str = "name = \"x\"\n[[disk]]\nname = \"d\"\nkind = \"hdd\"\ncount = 2\nread = \"150MB/s\"\n";
const GIGABIT: &str = "[network]\nname = \"gigabit Ethernet\"\nlimit = \"940Mbit/s\"\n";

fn measured(path: &str, what: &str, rest: &str) -> String {
    format!("[[measured]]\npath = \"{path}\"\nwhat = \"{what}\"\n{rest}\n")
}

fn disk(kind: &str, rest: &str) -> String {
    format!("name = \"x\"\n[[disk]]\nname = \"d\"\nkind = \"{kind}\"\n{rest}\n")
}

/// The code of the first question, and what its text has.
fn check(text: &str, code: &str, words: &[&str]) {
    let found = diagnosis(text);
    let codes: Vec<&str> = found.questions.iter().map(|q| q.code).collect();
    assert_eq!(codes.first(), Some(&code), "{codes:?}\n{text}");
    let question = &found.questions[0].text;
    assert!(words.iter().all(|w| question.contains(w)) && question.ends_with('?'), "{question}\n{words:?}");
    assert!(found.verdict.starts_with("the description contradicts itself"), "{}", found.verdict);
    assert!(found.advice.is_empty(), "{:#?}", found.advice);
}

#[test]
fn disks_beyond_physics_are_asked_about() {
    check(&disk("nvme", "read = \"40GB/s\""), "disk-too-fast", &["40.00 GB/s", "15.75 GB/s"]);
    check(&disk("hdd", "random_read = 50000"), "disk-too-fast", &["50000 operations/s", "cache", "SSD"]);
    check(&disk("sata-ssd", "read = \"3GB/s\""), "disk-too-fast", &["600 MB/s", "bits"]);
    let cache = "write = \"500MB/s\"\nwrite_cached = \"100MB/s\"\ncache = \"40GB\"";
    check(&disk("qlc", cache), "cache-slower", &["exchanged"]);
}

#[test]
fn measurements_beyond_a_stage_are_asked_about() {
    let share = measured("share", "read", "rate = \"900MB/s\"");
    check(&format!("{HDD}{GIGABIT}{share}"), "beyond-stage", &["900 MB/s", "118 MB/s", "900 Mbit/s"]);
    check(&format!("{HDD}{}", measured("local", "read", "rate = \"900MB/s\"")), "beyond-stage", &["300 MB/s"]);
    let hub = "[[link]]\nname = \"hub\"\ntype = \"USB 2.0\"\n";
    let text = format!("{HDD}via = [\"hub\"]\n{hub}{}", measured("disks", "read", "rate = \"300MB/s\""));
    check(&text, "beyond-stage", &["hub allows 40 MB/s"]);
    let iops = measured("local", "random-read", "iops = 50000");
    check(&format!("{HDD}{iops}"), "beyond-disks", &["50.0k operations/s", "1.4k"]);
    let net = measured("network", "read", "rate = \"3Gbit/s\"");
    check(&format!("{HDD}{GIGABIT}{net}"), "beyond-stage", &["375 MB/s"]);
}

#[test]
fn mixed_units_are_asked_about() {
    let share = measured("share", "read", "rate = \"105MB/s\"");
    let network = |limit: &str| format!("[network]\nname = \"gigabit\"\nlimit = \"{limit}\"\n");
    check(&format!("{HDD}{}{share}", network("940MB/s")), "beyond-wire", &["Do you mean 940 Mbit/s?"]);
    check(&format!("{HDD}{}{share}", network("117Mbit/s")), "bits-or-bytes", &["do you mean 117 MB/s?"]);
    // A gigabit card that got 100 Mbit/s is no mistake of units.
    let slow = measured("share", "read", "rate = \"11.2MB/s\"");
    assert!(diagnosis(&format!("{HDD}{}{slow}", network("94Mbit/s"))).questions.is_empty());
}

#[test]
fn layers_that_go_up_are_asked_about() {
    let layers = measured("local", "read", "rate = \"50MB/s\"") + &measured("share", "read", "rate = \"105MB/s\"");
    check(&format!("{HDD}{GIGABIT}{layers}"), "layers-reversed", &["105 MB/s", "50 MB/s", "memory"]);
    // One request at a time below says nothing of many above.
    let depth = measured("local", "read", "rate = \"50MB/s\"\ndepth = 1\nblock = \"4KiB\"")
        + &measured("share", "read", "rate = \"105MB/s\"\ndepth = 16\nblock = \"1MiB\"");
    assert!(diagnosis(&format!("{HDD}{GIGABIT}{depth}")).questions.is_empty());
}

#[test]
fn little_s_law_is_a_law() {
    let text = disk("nvme", "") + &measured("disks", "random-read", "iops = 100000\ndepth = 4\nlatency = \"1ms\"");
    check(&text, "in-flight", &["100 in flight", "there were 4"]);
}

#[test]
fn a_pool_beyond_its_measured_disks_is_asked_about() {
    let ssd = "name = \"x\"\ndisk = [{ name = \"D\", kind = \"sata-ssd\", count = 2 }]\n";
    let one = measured("disks", "read", "disks = [[\"D\", 1]]\nrate = \"250MB/s\"");
    let both = measured("disks", "read", "rate = \"490MB/s\"");
    let pool = measured("local", "read", "rate = \"900MB/s\"");
    check(&format!("{ssd}{one}{both}{pool}"), "beyond-stage", &["900 MB/s", "490 MB/s", "memory"]);
    check(&format!("{ssd}{one}{pool}"), "beyond-stage", &["900 MB/s", "500 MB/s"]);
    check(&format!("{ssd}{both}{pool}"), "beyond-stage", &["900 MB/s", "490 MB/s"]);
    let one_hdd = disk("hdd", "") + &measured("disks", "read", "rate = \"100MB/s\"");
    check(
        &(one_hdd.clone() + &measured("local", "read", "rate = \"180MB/s\"")),
        "beyond-stage",
        &["180 MB/s", "100 MB/s"],
    );
    // A little more is read-ahead.
    let text = one_hdd + &measured("local", "read", "rate = \"112MB/s\"");
    assert!(diagnosis(&text).questions.is_empty());
}

#[test]
fn operations_are_bytes_too() {
    for block in ["64KiB", "4TiB"] {
        let iops = measured("local", "random-read", &format!("iops = 90000\nblock = \"{block}\"\ndepth = 32"));
        check(&(disk("sata-ssd", "") + &iops), "beyond-disks", &["90.0k operations/s", "600 MB/s"]);
    }
    check(
        &disk("sata-ssd", "read = \"100MB/s\"\nrandom_read = 90000"),
        "random-beyond-read",
        &["369 MB/s", "100 MB/s"],
    );
    let given = disk("nvme", "read = \"500MB/s\"\nrandom_read = 100000");
    let large = measured("local", "random-read", "iops = 20000\nblock = \"64KiB\"");
    check(&(given + &large), "beyond-stage", &["20.0k operations/s", "7.6k"]);
    check(&disk("hdd", "read = \"500MB/s\"\nconnection = \"SATA 1.5G\""), "disk-too-fast", &["500 MB/s", "330 MB/s"]);
    // Bits are not guessed from operations.
    let share = measured("share", "random-read", "iops = 45000\nblock = \"16KiB\"");
    let nvme = disk("nvme", "");
    check(&format!("{nvme}{GIGABIT}{share}"), "beyond-stage", &["45.0k operations/s", "are blocks smaller"]);
}

#[test]
fn a_core_does_not_work_and_wait() {
    let both = measured("local", "read", "rate = \"100MB/s\"\ncores = [100, 100]\niowait = 100");
    check(&format!("{HDD}{both}"), "busy-and-waiting", &["100 %", "waited"]);
    let one = measured("local", "read", "rate = \"100MB/s\"\ncores = [95, 40]\niowait = 40");
    assert!(diagnosis(&format!("{HDD}{one}")).questions.is_empty());
}

#[test]
fn times_and_queues_that_do_not_fit_are_asked_about() {
    check(&disk("hdd", "latency = \"10us\""), "answers-too-soon", &["10 us", "2.0 ms", "unit"]);
    let queue = measured("local", "random-read", "iops = 1000\ndepth = 32\nlatency = \"100us\"");
    check(&(disk("nvme", "random_read = 500000") + &queue), "queue-not-kept", &["0.1 in flight", "32 are said"]);
    let sync = measured("local", "random-write", "iops = 20000\ndepth = 1\nsync = true");
    let ssd = disk("sata-ssd", "random_write = 80000\nflush = \"2ms\"");
    check(&format!("{ssd}{sync}"), "beyond-stage", &["20.0k operations/s", "500 operations/s", "is a flush faster"]);
    let flushed = measured("local", "random-write", "iops = 5000\ndepth = 1\nsync = true");
    check(&(disk("hdd", "") + &flushed), "too-quick", &["5.0k operations/s", "at least 2.00 ms", "answer the flush"]);
    let in_order = measured("local", "write", "rate = \"80MB/s\"\nblock = \"4KiB\"\ndepth = 1\nsync = true");
    check(&(disk("hdd", "") + &in_order), "too-quick", &["80 MB/s", "500 operations/s"]);
    // Many at once may be flushed together, and a capacitor answers for flash.
    let many = measured("local", "random-write", "iops = 5000\ndepth = 32\nsync = true");
    assert!(diagnosis(&(disk("hdd", "") + &many)).questions.is_empty());
    assert!(diagnosis(&(disk("nvme", "") + &flushed)).questions.is_empty());
}

#[test]
fn names_can_be_seen() {
    let wrong = |text: &str, words: &str| {
        let error = super::Described::parse(text).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    wrong("name = \"x\\u001b[31m\"\n[[disk]]\nname = \"d\"", "the name of the box 'x [31m'");
    wrong("name = \"x\"\n[[disk]]\nname = \"a\\u202eb\"", "the name of the disk 'ab'");
    wrong("name = \"x\"\n[[disk]]\nname = \" \"", "a disk has an empty name");
    wrong(&format!("name = \"{}\"\n[[disk]]\nname = \"d\"", "x".repeat(9999)), "no end");
    assert!(super::Described::parse("name = \"Kühlschrank ❄ 日本\"\n[[disk]]\nname = \"Платте\"").is_ok());
}

#[test]
fn windows_hold_what_they_hold() {
    let network = "[network]\nname = \"gigabit\"\nround_trip = \"10ms\"\nwindow = \"64KiB\"\n";
    let net = |jobs: u32| measured("network", "read", &format!("rate = \"800Mbit/s\"\njobs = {jobs}"));
    check(&format!("{HDD}{network}{}", net(1)), "beyond-stage", &["100 MB/s", "6.6 MB/s", "several connections"]);
    assert!(diagnosis(&format!("{HDD}{network}{}", net(16))).questions.is_empty());
}

#[test]
fn what_stands_beside_a_figure_goes_with_it() {
    let idle = measured("local", "read", "rate = \"280MB/s\"\ndisk_busy = 5");
    check(&format!("{HDD}{idle}"), "idle-disks", &["93 % of what the disks can", "busy 5 %"]);
    let busy = measured("local", "read", "rate = \"280MB/s\"\ndisk_busy = 88");
    assert!(diagnosis(&format!("{HDD}{busy}")).questions.is_empty());
    let again = measured("share", "read", "rate = \"112MB/s\"\nretransmits = 40");
    check(&format!("{HDD}{GIGABIT}{again}"), "sent-again", &["40 %", "187 MB/s", "125 MB/s"]);
    let few = measured("share", "read", "rate = \"112MB/s\"\nretransmits = 3");
    assert!(diagnosis(&format!("{HDD}{GIGABIT}{few}")).questions.is_empty());
    check(&disk("nvme", "connection = \"SATA 6G\""), "wrong-plug", &["M.2 SATA SSD"]);
    let client = "[[client]]\nname = \"mac\"\n";
    let here = measured("local", "read", "rate = \"100MB/s\"\nclient = \"mac\"");
    check(&format!("{HDD}{client}{here}"), "client-here", &["client = \"mac\"", "path = \"share\""]);
    let lost =
        |path: &str, percent: f64| measured(path, "read", &format!("rate = \"100MB/s\"\nretransmits = {percent}"));
    check(&format!("{HDD}{}", lost("local", 4.0)), "segments-here", &["retransmits = 4,", "path = \"share\""]);
    check(&format!("{HDD}{}", lost("disks", 0.5)), "segments-here", &["retransmits = 0.5"]);
    assert!(diagnosis(&format!("{HDD}{}", lost("local", 0.0))).questions.is_empty());
    let wire = |field: &str| measured("network", "read", &format!("rate = \"600Mbit/s\"\n{field}"));
    check(&format!("{HDD}{GIGABIT}{}", wire("disk_busy = 80")), "disks-beside-wire", &["disk_busy = 80", "what else"]);
    check(&format!("{HDD}{GIGABIT}{}", wire("iowait = 40")), "disks-beside-wire", &["iowait = 40"]);
    assert!(diagnosis(&format!("{HDD}{GIGABIT}{}", wire("disk_busy = 8"))).questions.is_empty());
    let block = measured("local", "read", "rate = \"100MB/s\"\nblock = \"1GiB\"\nfile = \"1MiB\"");
    check(&format!("{HDD}{block}"), "block-beyond-file", &["1.00 GiB", "1.00 MiB"]);
}
