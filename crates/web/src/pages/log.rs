//! The newest lines of the log, from memory.

use askama::Template;
use larder_api::endpoints::GetLog;
use larder_api::{LogLevel, LogLine};

use super::pools::Level;
use crate::text::{Moment, counted};
use crate::visit::{Answer, Frame, Visit, page as show};

/// Lines on the page, the newest first.
const LINES_SHOWN_MAX: usize = 200;
/// Choices of how far back, in hours, and their names.
const SPANS: [(&str, &str, u64); 4] = [
    ("1", "the last hour", 1),
    ("24", "the last day", 24),
    ("168", "the last week", 168),
    ("", "all that are kept", 0),
];

pub struct LineView {
    pub at: Moment,
    pub level: Level,
    pub word: String,
    pub text: String,
}

impl LineView {
    fn of(line: &LogLine) -> Self {
        Self {
            at: Moment::of_ms_unsigned(line.at_ms),
            level: match line.level {
                LogLevel::Error => Level::Bad,
                LogLevel::Warn => Level::Warn,
                LogLevel::Info | LogLevel::Debug => Level::Fine,
            },
            word: line.level.word().to_owned(),
            text: line.text.clone(),
        }
    }
}

#[derive(Template)]
#[template(path = "log.html")]
struct LogPage {
    frame: Frame,
    level: &'static str,
    since: &'static str,
    lines: Vec<LineView>,
    left_out: String,
}

impl LogPage {
    fn levels(&self) -> [&'static str; 4] {
        LogLevel::ALL.map(LogLevel::word)
    }

    fn spans(&self) -> [(&'static str, &'static str, u64); 4] {
        SPANS
    }
}

pub async fn page(visit: &Visit<'_>) -> Answer {
    let kept = visit.ask(GetLog).await?;
    let word = visit.query.text("level");
    let level = LogLevel::ALL.into_iter().find(|level| level.word() == word).unwrap_or(LogLevel::Debug);
    let given = visit.query.text("since");
    let (since, _, hours) = SPANS.into_iter().find(|(value, ..)| *value == given).unwrap_or(SPANS[3]);
    let now_ms = u64::try_from(visit.server.clock.now().secs).unwrap_or(0).saturating_mul(1000);
    let from_ms = if hours == 0 { 0 } else { now_ms.saturating_sub(hours * 3_600_000) };
    let fits = |line: &&LogLine| line.level <= level && line.at_ms >= from_ms;
    let found: Vec<&LogLine> = kept.lines.iter().rev().filter(fits).collect();
    let more = found.len().saturating_sub(LINES_SHOWN_MAX);
    let left_out = match more {
        0 => String::new(),
        more => format!("{} that fit are not shown: larder log has them.", counted(more, "older line", "older lines")),
    };
    show(&LogPage {
        frame: visit.frame("care", "Log"),
        level: level.word(),
        since,
        lines: found.into_iter().take(LINES_SHOWN_MAX).map(LineView::of).collect(),
        left_out,
    })
}
