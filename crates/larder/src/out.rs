//! Everything that goes to standard output. A reader that went away (`| head`) is no error.

use std::io::{IsTerminal, Write};

use larder_api::Failure;
use serde::Serialize;

/// How a command answers: for people or for scripts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out {
    pub(crate) json: bool,
}

impl Out {
    /// One JSON line for scripts, or the text for people.
    pub(crate) fn answer<T: Serialize>(self, value: &T, text: impl FnOnce(&T) -> String) -> Result<(), Failure> {
        if self.json {
            let line = serde_json::to_string(value).map_err(|e| Failure::internal(e.to_string()))?;
            say(&line);
        } else {
            let text = text(value);
            if !text.is_empty() {
                say(text.trim_end_matches('\n'));
            }
        }
        Ok(())
    }
}

pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
}

/// To standard error: a sentence and the way out, or the same as JSON.
pub(crate) fn complain(failure: &Failure, json: bool) {
    if json {
        let line = serde_json::json!({ "error": failure });
        eprintln!("{line}");
        return;
    }
    let (red, plain) =
        if std::io::stderr().is_terminal() && colour_wanted() { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
    eprintln!("{red}error:{plain} {}", failure.message);
    if let Some(action) = &failure.action {
        eprintln!("action: {action}");
    }
}

/// Colour only where a person looks and has not asked for none.
pub(crate) fn colour() -> bool {
    std::io::stdout().is_terminal() && colour_wanted()
}

fn colour_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()) && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}
