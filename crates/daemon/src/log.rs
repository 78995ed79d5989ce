//! The newest lines of the log, in memory: `larder log` and the page show them without a look at a disk.
//!
//! - `log.bounded`: at most [`LINES_MAX`] lines are kept, of [`LINE_BYTES_MAX`] each, [`BYTES_MAX`] together.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use larder_api::{LogKept, LogLevel, LogLine};
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// A healthy day logs a page; a bad hour fits.
const LINES_MAX: usize = 2000;
/// Longer lines are traces of panics, whose head says what happened.
const LINE_BYTES_MAX: usize = 4 << 10;
const BYTES_MAX: usize = 512 << 10;

static KEPT: Mutex<Kept> = Mutex::new(Kept { lines: VecDeque::new(), bytes: 0, dropped: 0 });

struct Kept {
    lines: VecDeque<LogLine>,
    bytes: usize,
    dropped: u64,
}

impl Kept {
    /// `log.bounded`
    fn add(&mut self, line: LogLine) {
        self.bytes += line.text.len();
        self.lines.push_back(line);
        while self.lines.len() > LINES_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.text.len();
            self.dropped += 1;
        }
    }
}

/// Oldest first.
pub fn kept() -> LogKept {
    let kept = KEPT.lock();
    LogKept { lines: kept.lines.iter().cloned().collect(), dropped: kept.dropped }
}

/// Keeps what the filter lets through.
pub struct KeepLines;

impl<S: Subscriber> Layer<S> for KeepLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let line = LogLine { at_ms, level: level(*event.metadata().level()), text: text.finish() };
        KEPT.lock().add(line);
    }
}

fn level(level: Level) -> LogLevel {
    match level {
        Level::ERROR => LogLevel::Error,
        Level::WARN => LogLevel::Warn,
        Level::INFO => LogLevel::Info,
        Level::DEBUG | Level::TRACE => LogLevel::Debug,
    }
}

/// The message, and the other fields behind it.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn finish(mut self) -> String {
        self.message.push_str(&self.fields);
        if self.message.len() > LINE_BYTES_MAX {
            let end = self.message.floor_char_boundary(LINE_BYTES_MAX);
            self.message.truncate(end);
            self.message.push_str(" ...");
        }
        self.message
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> LogLine {
        LogLine { at_ms: 1, level: LogLevel::Info, text: text.to_owned() }
    }

    #[test]
    fn lines_are_bounded_by_count_and_bytes() {
        let mut kept = Kept { lines: VecDeque::new(), bytes: 0, dropped: 0 };
        (0..LINES_MAX + 5).for_each(|n| kept.add(line(&n.to_string())));
        assert_eq!((kept.lines.len(), kept.dropped, kept.lines[0].text.as_str()), (LINES_MAX, 5, "5"));
        (0..LINES_MAX).for_each(|_| kept.add(line(&"x".repeat(LINE_BYTES_MAX))));
        assert!(kept.bytes <= BYTES_MAX && kept.lines.len() == BYTES_MAX / LINE_BYTES_MAX);
        assert_eq!(kept.bytes, kept.lines.iter().map(|line| line.text.len()).sum::<usize>());
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let text = Text { message: "\u{e4}".repeat(LINE_BYTES_MAX), fields: " a=1".to_owned() }.finish();
        assert!(text.len() <= LINE_BYTES_MAX + 4 && text.ends_with(" ..."));
    }
}
