//! Everything that goes to standard output. A reader that went away (`| head`) is no error.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use larder_api::Failure;
use larder_base::printed;
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
            say_json(value)?;
        } else {
            let text = text(value);
            if !text.is_empty() {
                say(&printed::lines(text.trim_end_matches('\n'), colour()));
            }
        }
        Ok(())
    }
}

/// One line for scripts.
pub(crate) fn say_json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let line = serde_json::to_string(value).map_err(|e| Failure::internal(e.to_string()))?;
    say(&printed::json(&line));
    Ok(())
}

/// To standard error, whether or not anybody reads it.
pub(crate) fn to_stderr(text: std::fmt::Arguments<'_>) {
    let _ = std::io::stderr().lock().write_fmt(text);
}

/// To standard error: what a command tells or asks a person beside its answer.
pub(crate) fn tell(text: &str) {
    eprintln!("{}", printed::lines(text, false));
}

/// A question: the cursor stays behind it.
pub(crate) fn ask(text: &str) {
    eprint!("{}", printed::lines(text, false));
}

/// Empties the terminal's screen.
pub(crate) fn clear_screen() {
    say_raw("\x1b[H\x1b[J");
}

pub(crate) fn say(line: &str) {
    say_raw(&format!("{line}\n"));
}

fn say_raw(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
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
        true => eprintln!("{}", printed::json(&serde_json::json!({ "warning": text }).to_string())),
        false => tell(&format!("warning: {text}")),
    }
}

/// To standard error: a sentence and the way out, or the same as JSON.
pub(crate) fn complain(failure: &Failure, json: bool) {
    if json {
        let line = serde_json::json!({ "error": failure }).to_string();
        eprintln!("{}", printed::json(&line));
        return;
    }
    let (red, plain) =
        if std::io::stderr().is_terminal() && colour_wanted() { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
    eprintln!("{red}error:{plain} {}", printed::lines(&failure.message, false));
    if let Some(action) = &failure.action {
        tell(&format!("action: {action}"));
    }
}

/// How text is drawn: as wide as the terminal; where there is none as `COLUMNS` says (POSIX, XBD 8.3), else 100 columns.
pub(crate) fn style() -> Style {
    let terminal = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    let said = || std::env::var("COLUMNS").ok()?.trim().parse::<usize>().ok();
    let width = terminal.filter(|columns| *columns > 0).or_else(said).filter(|columns| *columns > 0);
    Style { width: width.unwrap_or(Style::default().width), colour: colour(), unicode: speaks_unicode(), cores: false }
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
