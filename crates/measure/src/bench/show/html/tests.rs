use super::parts::json;
use super::*;
use crate::bench::result::{BenchResult, FarMachine, Note};
use crate::bench::show::{sample, words};
use larder_facts::base64;
use sha2::{Digest, Sha256};

/// A browser runs the script and uses the sheet only if these are right.
#[test]
fn the_policy_names_style_and_script() {
    let hash = |text: &str| base64::encode(&Sha256::digest(text.as_bytes()));
    assert_eq!(hash(&page::style()), page::STYLE_HASH, "page.css or plot.css changed");
    assert_eq!(hash(page::script()), page::SCRIPT_HASH, "page.js changed");
}

#[test]
fn nothing_is_loaded_and_nothing_is_inline() {
    for (name, result) in sample::all() {
        let page = html(&result);
        let outside: Vec<&str> =
            page.match_indices("http").map(|(at, _)| &page[at..(at + 40).min(page.len())]).collect();
        let known = |s: &&str| s.starts_with("http://www.w3.org/2000/svg") || s.starts_with("http-equiv");
        assert!(outside.iter().all(known), "{name}: {outside:?}");
        for banned in [" style=\"", " onclick=", " onload=", "@import", "url(http", "<iframe", "eval("] {
            assert!(!page.contains(banned), "{name}: {banned}");
        }
    }
}

fn hostile() -> BenchResult {
    const EVIL: &str = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>&\u{2028}\u{202e}";
    let mut result = sample::box_a();
    (result.title, result.id, result.preset) = (EVIL.into(), EVIL.into(), EVIL.into());
    (result.machine.host, result.machine.model, result.larder) = (EVIL.into(), EVIL.into(), EVIL.into());
    result.far_machine =
        Some(FarMachine { name: EVIL.into(), version: 1, larder: EVIL.into(), machine: result.machine.clone() });
    for run in &mut result.runs {
        (run.subject, run.access, run.with) = (EVIL.into(), EVIL.into(), EVIL.into());
        run.variant.insert(EVIL.into(), EVIL.into());
        run.notes.push(Note { code: EVIL.into(), text: EVIL.into(), misleading: true });
        run.saturated.iter_mut().for_each(|s| s.what = EVIL.into());
        run.samples.disks.iter_mut().for_each(|d| d.disk = EVIL.into());
        run.samples.temperatures.iter_mut().for_each(|t| t.name = EVIL.into());
        run.far_samples = Some(run.samples.clone());
    }
    result
}

#[test]
fn hostile_names_stay_text() {
    let result = hostile();
    let page = html(&result);
    assert!(!page.contains("<script>alert") && !page.contains("<img"));
    // Ours: the policy's one script and the data; each is closed.
    assert_eq!(page.matches("<script>").count(), 1);
    assert_eq!(page.matches("<script").count(), page.matches("</script>").count());
    for name in svg_names(&result) {
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{name}");
        let svg = svg(&result, &name).unwrap();
        assert!(!svg.contains("<script") && !svg.contains("<img"), "{name}");
    }
}

#[test]
fn the_result_can_be_taken_out_again() {
    for result in [sample::box_d(), hostile()] {
        let page = html(&result);
        let (_, rest) = page.split_once("id=\"result\">").unwrap();
        let (json, _) = rest.split_once("</script>").unwrap();
        let back: BenchResult = serde_json::from_str(json).unwrap();
        let facts = |r: &BenchResult| (r.title.clone(), r.machine.clone(), r.runs.len(), r.notes.clone());
        assert_eq!(facts(&back), facts(&result));
        let letter = |json: &str, code: u8| json.replace(&format!("\\u{code:04x}"), &char::from(code).to_string());
        let plain = letter(&letter(&letter(json, b'<'), b'>'), b'&').replace("\\u2028", "\u{2028}");
        assert_eq!(plain, serde_json::to_string(&result).unwrap());
    }
}

#[test]
fn every_plot_has_title_description_and_figures() {
    for (name, result) in sample::all() {
        let page = html(&result);
        let figures = figures::all(&result);
        assert!(figures.len() > 3, "{name}");
        let mut ids: Vec<&String> = figures.iter().map(|f| &f.id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), figures.len(), "{name}: ids are unique");
        for figure in &figures {
            let narrow = format!("id=\"{}-n\"", figure.id);
            assert_eq!(page.matches(&narrow).count(), 1, "{name}: {narrow}");
            assert!(!figure.title.is_empty() && !figure.desc.is_empty(), "{name}: {}", figure.id);
            assert!(!figure.grid.rows.is_empty(), "{name}: {}", figure.id);
            assert!(figure.grid.rows.iter().all(|r| r.len() == figure.grid.head.len()), "{name}: {}", figure.id);
        }
        assert!(page.len() < 12_000_000, "{name}: {} bytes", page.len());
    }
}

#[test]
fn empty_results_are_pages_too() {
    let mut result = sample::box_a();
    result.runs.clear();
    result.notes.clear();
    let page = html(&result);
    assert!(page.contains("Nothing was measured") && !page.contains("<svg"));
    assert_eq!(svg(&result, "overview"), None);
    assert!(svg(&sample::box_a(), "overview").unwrap().contains("<style>"));
}

#[test]
fn paths_break_between_folders_alone() {
    let check = |text: &str, expected: &str| assert_eq!(wrapped(text), expected);
    check("/tmp/a-b/c", "/tmp/<wbr>a-b/<wbr>c");
    check("all /mnt/a /mnt/b/", "all /mnt/<wbr>a /mnt/<wbr>b/");
    check("smb://me@nas/data", "smb://<wbr>me@nas/<wbr>data");
    check("417 MB/s, <b> & /tmp", "417 MB/s, &lt;b&gt; &amp; /tmp");
    check("/a/<b>/c", "/a/<wbr>&lt;b&gt;/<wbr>c");
    check("", "");
}

#[test]
fn data_for_scripts_cannot_end_its_element() {
    assert_eq!(json("</script>\u{2028}&"), "\\u003c/script\\u003e\\u2028\\u0026");
    assert_eq!(words::clean("\u{2028}"), "");
}

#[test]
fn without_a_chain_the_page_says_why() {
    let part = |result: &BenchResult| {
        let page = html(result);
        let begin = page.find("<section id=\"overview-part\">").unwrap();
        page[begin..begin + page[begin..].find("</section>").unwrap()].to_owned()
    };
    let mut result = sample::box_a();
    assert!(!part(&result).contains("class=\"none\""));
    for run in &mut result.runs {
        run.notes.clear();
        let text = "a repeat took less than 1 s: too short".to_owned();
        run.notes.push(Note { code: "too-short".into(), text, misleading: true });
    }
    let wrong = part(&result);
    assert!(wrong.contains("bulk transfers prove nothing") && wrong.contains("less than 1 s: too short."), "{wrong}");
    result.runs.retain(|run| run.workload.kind.counts_operations());
    assert!(!result.runs.is_empty() && part(&result).contains("No bulk transfer was measured"), "{}", part(&result));
}

/// A person who reads only the beginning has to know that somebody else's work is in every figure.
#[test]
fn what_was_in_the_way_of_all_figures_stands_above_them() {
    for code in ["machine-busy", "governor", "on-battery"] {
        let mut result = sample::box_a();
        result.notes.push(Note { code: code.into(), text: "all of it was disturbed".into(), misleading: false });
        let page = html(&result);
        assert_eq!(page.matches("all of it was disturbed").count(), 2, "{code}: told once, and in the data");
        let at = |what: &str| page.find(what).unwrap();
        assert!(at("What to know first") < at("all of it was disturbed"), "{code}");
        assert!(at("all of it was disturbed") < at("<section id=\"overview-part\">"), "{code}");
    }
}
