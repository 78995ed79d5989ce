//! `larder share ...`

use larder_api::{Failure, ShareStatus};

use super::args::{Global, ShareCommand};
use super::daemon;
use crate::render;

pub(super) async fn run(global: &Global, command: ShareCommand) -> Result<(), Failure> {
    let ShareCommand::List = command;
    let shares: Vec<ShareStatus> = daemon(global).await?.get("/v1/shares").await?;
    global.out().answer(&shares, |shares| render::share_list(shares))
}
