//! Less work for a processor, or more of it, at either end.

use super::{Candidate, Means, STORAGE, candidate, forget};
use crate::doctor::describe::{Described, Measured, Path, Side};
use crate::doctor::stages::Stage;

pub(super) fn at_processor(described: &Described, measured: &Measured) -> Vec<Candidate> {
    let after = forget(described, STORAGE);
    let mut all = Vec::new();
    let cores = &measured.cores_percent;
    let busy: f64 = cores.iter().sum();
    if cores.len() > 1 && busy > 0.0 && busy < 90.0 * cores.len() as f64 {
        let how = match measured.path {
            Path::Share => {
                "mount -o nconnect=4 ... (NFS), multichannel (SMB), more server threads; IRQs of the card off cpu0: larder doctor --fix"
            }
            _ => "more jobs at once, so that more than one core works",
        };
        let mut spread = candidate("the work spread over the idle cores", Means::Command, how, after.clone(), measured);
        spread.at_most = measured.rate * cores.len() as f64 * 100.0 / busy;
        all.push(spread);
    }
    let how = "a processor with faster cores; before that: governor performance (larder doctor --fix), no compression or a lighter cipher";
    let what =
        if all.is_empty() { "a faster processor, or less work for it" } else { "a faster core, or less work for it" };
    all.push(candidate(what, Means::Purchase, how, after, measured));
    all
}

pub(super) fn at_client(described: &Described, measured: &Measured) -> Candidate {
    let mut after = described.clone();
    after.clients.clear();
    after.work.retain(|w| w.at == Side::Server);
    let how = "measure with another client; then its card, its processor and its program one by one";
    candidate("a faster client", Means::Change, how, after, measured)
}

/// Than a cipher or a compressor makes.
pub(super) fn less_work(described: &Described, measured: &Measured, stage: &Stage) -> Candidate {
    let mut after = forget(described, STORAGE);
    after.work.retain(|w| !stage.name.starts_with(&w.name));
    let what = format!("less work for the processor than {}", stage.name);
    let how = "a lighter setting of it, or a processor with instructions for it";
    candidate(what, Means::Change, how, after, measured)
}
