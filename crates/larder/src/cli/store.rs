//! `larder store check`

use larder_api::Failure;
use larder_store::{Bucket, Probe, ProbeState};
use serde::Serialize;

use super::args::{Global, StoreCommand};
use super::reach::Outcome;
use crate::daemon::bucket::bucket_failure;
use crate::render;

/// What `--json` prints.
#[derive(Serialize)]
struct Checked {
    url: String,
    usable: bool,
    probes: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    name: &'static str,
    state: &'static str,
    seen: String,
}

pub(super) async fn run(global: &Global, command: StoreCommand) -> Result<Outcome, Failure> {
    let StoreCommand::Check { url, reach } = command;
    let name = url.to_string();
    let bucket = Bucket::open(&reach.settings(url)).map_err(|error| bucket_failure(&name, &error))?;
    let probes = larder_store::check(bucket.store).await;
    let usable = probes.iter().all(|probe| probe.state != ProbeState::Missing);
    let checked = Checked { url: name, usable, probes: probes.into_iter().map(line).collect() };
    global.out().answer(&checked, text)?;
    Ok(if usable { Outcome::Done } else { Outcome::Problems })
}

fn line(probe: Probe) -> Line {
    let state = match probe.state {
        ProbeState::Ok => "ok",
        ProbeState::Warn => "warning",
        ProbeState::Missing => "MISSING",
    };
    Line { name: probe.name, state, seen: probe.seen }
}

fn text(checked: &Checked) -> String {
    let header = ["WHAT LARDER NEEDS", "STATE", "SEEN"].map(str::to_owned).to_vec();
    let lines = checked.probes.iter().map(|line| vec![line.name.to_owned(), line.state.to_owned(), line.seen.clone()]);
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(lines).collect();
    let missing: Vec<&str> =
        checked.probes.iter().filter(|line| line.state == "MISSING").map(|line| line.name).collect();
    let end = match missing.is_empty() {
        true => format!("{} can keep volumes: larder up --store {}", checked.url, checked.url),
        false => format!("{} cannot keep volumes: it lacks {}", checked.url, missing.join(", ")),
    };
    format!("{}\n{end}", render::table(&rows, &[]))
}
