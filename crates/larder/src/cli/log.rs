//! `larder log`: the newest lines of the daemon's log.

use clap::Args;
use larder_api::endpoints::GetLog;
use larder_api::{Failure, LogKept, LogLevel};

use super::args::Global;
use super::reach::daemon;
use crate::render::shown;
use larder_config::times;

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// The mildest level shown: error, warn, info or debug
    #[arg(long, default_value = "debug", value_parser = level)]
    level: LogLevel,
    /// Lines since then: 2h, 1d, or a day such as 2026-11-22 [default: all that are kept]
    #[arg(long, value_name = "TIME", value_parser = times::ago)]
    since: Option<u64>,
}

fn level(text: &str) -> Result<LogLevel, String> {
    let found = LogLevel::ALL.into_iter().find(|level| level.word() == text);
    found.ok_or_else(|| format!("'{text}' is not a level: use one of error, warn, info, debug"))
}

pub(super) async fn run(global: &Global, args: LogArgs) -> Result<(), Failure> {
    let mut kept = daemon(global).await?.ask(GetLog).await?;
    kept.lines.retain(|line| line.level <= args.level && args.since.is_none_or(|since| line.at_ms >= since));
    global.out().answer(&kept, text)
}

fn text(kept: &LogKept) -> String {
    if kept.lines.is_empty() {
        return "no line of the log is kept that fits".to_owned();
    }
    let line = |line: &larder_api::LogLine| {
        format!("{}  {:<5}  {}\n", times::local(line.at_ms), line.level.word().to_uppercase(), shown(&line.text))
    };
    kept.lines.iter().map(line).collect()
}
