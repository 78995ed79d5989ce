//! Predictions for a box that nobody measured, or with a part that is assumed to be different.
//!
//! Both are answers of the same chain. Measurements further down count as long as they did not cross a part that changes.

use super::chain::chain;
use super::rig::Rig;
use super::stage::Stage;
use super::table::Table;
use crate::describe::{Described, Measured, Path, What};

/// The chain of a way that nobody measured: to this client, or to any.
pub(crate) fn expected(described: &Described, path: Path, what: What, client: Option<&str>) -> Vec<Stage> {
    let mut imagined = described.clone();
    let mut measured = Measured::imagined(path, what);
    measured.how.client = client.map(str::to_owned);
    imagined.measured.push(measured);
    let row = imagined.measured.len() - 1;
    chain(Rig::new(&imagined), &Table::of(&imagined), row)
}
