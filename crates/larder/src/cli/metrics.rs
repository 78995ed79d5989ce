//! `larder metrics`

use larder_api::Failure;
use larder_api::endpoints::GetMetrics;

use super::args::Global;
use super::reach::daemon;

pub(super) async fn run(global: &Global) -> Result<(), Failure> {
    let text = daemon(global).await?.text(GetMetrics).await?;
    // The text is the form that programs read: with --json it is a string.
    global.out().answer(&text, Clone::clone)
}
