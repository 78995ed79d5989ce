//! `larder top`

use chrono::{Days, Local};
use clap::Args;
use larder_api::endpoints::{GetTop, GetTopWorst};
use larder_api::{Failure, TopWorst};

use super::args::Global;
use super::reach::daemon;
use crate::out;
use crate::render::top as render;

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Look for a second, and end
    #[arg(long)]
    once: bool,
    /// Transfers since yesterday, and what limited each
    #[arg(long, conflicts_with = "once")]
    yesterday: bool,
    /// Also connections that transfer nothing
    #[arg(long, conflicts_with = "yesterday")]
    all: bool,
}

pub(super) async fn run(global: &Global, args: TopArgs) -> Result<(), Failure> {
    let (client, out) = (daemon(global).await?, global.out());
    if args.yesterday {
        let since_ms = yesterday_ms();
        let mut worst: Vec<TopWorst> = client.ask(GetTopWorst).await?;
        worst.retain(|one| one.at_ms + one.lasted_ms >= since_ms);
        return out.answer(&worst, |worst| render::worst(worst, out::style().width));
    }
    let is_live = !args.once && !global.json && rustix::termios::isatty(std::io::stdout());
    loop {
        let top = client.ask(GetTop).await?;
        let style = out::style();
        if is_live {
            out::clear_screen();
        }
        out.answer(&top, |top| render::top(top, args.all, style.width))?;
        if !is_live || out::was_lost() {
            return Ok(());
        }
    }
}

/// When yesterday began, by this machine's clock.
fn yesterday_ms() -> u64 {
    let day = Local::now().date_naive().checked_sub_days(Days::new(1));
    let began = day.and_then(|day| day.and_hms_opt(0, 0, 0)?.and_local_timezone(Local).earliest());
    began.and_then(|began| u64::try_from(began.timestamp_millis()).ok()).unwrap_or(0)
}
