//! Draws bench results: `report NAME|FILE.json DIR` writes NAME.txt, NAME.html, NAME.json and one SVG for each plot;
//! `report A B DIR` compares two and writes compare.txt, compare.html and compare.json.
//! NAME is one of the samples that the tests use: box-a, box-b, box-d, box-e.

use std::error::Error;
use std::path::Path;

use larder_measure::bench;
use larder_measure::bench::show::{Style, html, svg, svg_names, text};
use larder_measure::bench::{BenchResult, compare};

#[path = "../src/bench/show/sample.rs"]
mod sample;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [what, folder] => report(what, Path::new(folder)),
        [a, b, folder] => compared(a, b, Path::new(folder)),
        _ => Err("usage: report NAME|FILE.json [NAME|FILE.json] DIR".into()),
    }
}

fn read(what: &str) -> Result<BenchResult, Box<dyn Error>> {
    match sample::all().into_iter().find(|(name, _)| *name == what) {
        Some((_, result)) => Ok(result),
        None => Ok(serde_json::from_slice(&std::fs::read(what)?)?),
    }
}

fn report(what: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let result = read(what)?;
    let stem = Path::new(what).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join(format!("{stem}.txt")), text(&result, &Style::default()))?;
    std::fs::write(folder.join(format!("{stem}.html")), html(&result))?;
    std::fs::write(folder.join(format!("{stem}.json")), serde_json::to_string(&result)?)?;
    for name in svg_names(&result) {
        let drawn = svg(&result, &name).unwrap_or_default();
        std::fs::write(folder.join(format!("{stem}-{name}.svg")), drawn)?;
    }
    Ok(())
}

fn compared(a: &str, b: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let found = compare::compare(&read(a)?, &read(b)?);
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("compare.txt"), compare::text(&found, &Style::default()))?;
    std::fs::write(folder.join("compare.html"), compare::html(&found))?;
    std::fs::write(folder.join("compare.json"), serde_json::to_string(&found)?)?;
    Ok(())
}
