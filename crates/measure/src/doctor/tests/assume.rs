//! Other parts, asked of the same chain.

use super::super::*;
use crate::bench::show::Style;
use crate::boxes;

const PI: &str = include_str!("../../../fixtures/boxes/pi.toml");
const RAIDZ: &str = include_str!("../../../fixtures/boxes/raidz.toml");

fn assumed(text: &str, what: &[&str]) -> Result<Assumed, BadDescription> {
    let what: Vec<String> = what.iter().map(|text| (*text).to_owned()).collect();
    assume(&Described::parse(text).unwrap(), &what)
}

#[test]
fn another_card_is_answered_by_the_chain_of_the_box() {
    let found = assumed(PI, &["nic=2.5g"]).unwrap();
    let read = found.ways.iter().find(|way| way.of == What::Read).unwrap();
    // Half of a core was busy at 108 MB/s.
    assert_eq!((read.rate_now, read.rate_then, read.limit.as_str()), (108e6, 216e6, "the server's processor"));
    // A slower one is the limit itself.
    let found = assumed(PI, &["nic=100m"]).unwrap();
    let read = found.ways.iter().find(|way| way.of == What::Read).unwrap();
    assert_eq!((read.rate_then, read.limit.as_str()), (11.7e6, "100 Mbit Ethernet"));
}

/// An assumption that changes nothing promises nothing beyond what the chain allows already.
#[test]
fn an_assumption_stays_within_the_chain() {
    for (name, text) in boxes::all() {
        let described = Described::parse(&text).unwrap();
        if !diagnose(&described).questions.is_empty() {
            continue;
        }
        for what in ["nic=10g", "nic=100m", "kind=hdd", "record=16KiB"] {
            let Ok(found) = assume(&described, &[what.to_owned()]) else { continue };
            for way in &found.ways {
                assert!(way.rate_then.is_finite() && way.rate_then > 0.0, "{name} {what}: {way:?}");
                assert!(!way.limit.is_empty(), "{name} {what}: {way:?}");
                let slow = what == "nic=100m" && way.title.contains("over the network") && !way.of.is_random();
                assert!(!slow || way.rate_then <= 12.5e6, "{name} {what}: {way:?}");
            }
        }
    }
}

#[test]
fn what_cannot_be_assumed_is_refused_by_name() {
    let error = assumed(PI, &["colour=red"]).unwrap_err().to_string();
    assert!(error.contains("'colour' cannot be assumed: write nic, client, disks"), "{error}");
    let error = assumed(PI, &["nic=fast"]).unwrap_err().to_string();
    assert!(error.contains("'nic=fast' does not fit this box: nic= takes 2.5g"), "{error}");
    assert!(assumed(PI, &["disks"]).is_err() && assumed(PI, &["disks=0"]).is_err());
}

#[test]
fn a_plan_says_what_each_client_would_get() {
    let text = r#"
        name = "planned"
        memory = "32GiB"
        layout = "raidz1"
        disk = [{ name = "d", kind = "hdd", count = 4, read = "250MB/s", write = "240MB/s", random_read = 180, random_write = 180 }]
        network = { name = "10 GbE" }
        client = [{ name = "desk", type = "10 GbE" }, { name = "sofa", type = "Wi-Fi 6" }]"#;
    let found = plan(&Described::parse(text).unwrap());
    let of = |client: &str, what: What| {
        found.ways.iter().find(|way| way.client.as_deref() == Some(client) && way.of == what).unwrap()
    };
    assert_eq!((of("desk", What::Read).rate, of("desk", What::Read).limit.as_str()), (750e6, "the disks"));
    assert_eq!(of("sofa", What::Read).limit, "the network card of sofa");
    // A record lies on all disks: random reads are one disk's.
    assert_eq!(of("desk", What::RandomRead).rate, 180.0);
    assert!(of("desk", What::Read).next.as_ref().is_some_and(|next| next.contains("10 GbE")), "{found:#?}");
}

/// Each stage says how it is known, and each verdict what decided.
#[test]
fn why_shows_the_chain() {
    for (name, text) in boxes::all() {
        let found = diagnose(&Described::parse(&text).unwrap());
        for width in [60, 100] {
            let style = Style { width, ..Style::default() };
            let shown = text::why(&found, &style) + &text::plan(&plan(&Described::parse(&text).unwrap()), &style);
            let wide = shown.lines().find(|line| crate::bench::show::words::width(line) > width);
            assert_eq!(wide, None, "{name}");
        }
        for finding in &found.findings {
            assert!(!finding.decided.is_empty() && finding.stages.iter().all(|s| !s.known.is_empty()), "{name}");
        }
    }
    let shown = text::why(&diagnose(&Described::parse(RAIDZ).unwrap()), &Style::default());
    for said in ["KNOWN", "measured: reading all disks side by side", "decided: a limit is reached (93 %"] {
        assert!(shown.contains(said), "{said} is missing in {shown}");
    }
}
