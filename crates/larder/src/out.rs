//! Everything that goes to standard output. A reader that went away (`| head`) is no error.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use larder_api::Failure;
use larder_measure::bench::show::Style;
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
    let written = out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            LOST.store(true, Ordering::Relaxed);
            complain(&Failure::io("the answer could not be written to standard output", &error), false);
        }
        _ => {}
    }
}

/// Something that was said did not arrive: the command has failed, whatever it did.
pub(crate) fn was_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

static LOST: AtomicBool = AtomicBool::new(false);

/// To standard error: what is not wrong, and perhaps not meant.
pub(crate) fn warn(text: &str, json: bool) {
    match json {
        true => eprintln!("{}", serde_json::json!({ "warning": text })),
        false => eprintln!("warning: {}", steady(text)),
    }
}

/// Text with line breaks, without anything else that steers a terminal: names in it may come from anywhere.
fn steady(text: &str) -> String {
    text.split('\n').map(crate::render::shown).collect::<Vec<_>>().join("\n")
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
    eprintln!("{red}error:{plain} {}", steady(&failure.message));
    if let Some(action) = &failure.action {
        eprintln!("action: {}", steady(action));
    }
}

/// How text is drawn: as wide as the terminal, 100 columns where there is none.
pub(crate) fn style() -> Style {
    let width = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    let width = width.filter(|columns| *columns > 0).unwrap_or(Style::default().width);
    Style { width, colour: colour(), unicode: speaks_unicode() }
}

/// Unless the locale says otherwise: the first of these that is set counts (POSIX, XBD 8.2).
fn speaks_unicode() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    locale.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// Colour only where a person looks and has not asked for none.
pub(crate) fn colour() -> bool {
    std::io::stdout().is_terminal() && colour_wanted()
}

fn colour_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()) && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}
