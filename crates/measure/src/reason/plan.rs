//! What a box would give: nobody measured it, or something in it is assumed to be different.
//!
//! Both are answers of the same chain. What was measured further down counts as long as it did not cross what changes.

use super::chain::{Stage, chain};
use super::rig::Rig;
use super::table::Table;
use crate::doctor::describe::{Described, Measured, Path, What};

/// The chain of a way that nobody measured: to this client, or to any.
pub(crate) fn expected(described: &Described, path: Path, what: What, client: Option<&str>) -> Vec<Stage> {
    let mut imagined = described.clone();
    let mut measured = Measured::imagined(path, what);
    measured.how.client = client.map(str::to_owned);
    imagined.measured.push(measured);
    let row = imagined.measured.len() - 1;
    chain(Rig::new(&imagined), &Table::of(&imagined), row)
}
