//! larder: a NAS in one binary. This crate is the command line; the daemon, and everything that stores or serves, is in
//! the crates below it.

use std::process::ExitCode;

use clap::Parser;
use larder_api::Failure;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// In place of std's, which end the process when nobody reads its standard error any more.
macro_rules! eprint {
    ($($text:tt)*) => { $crate::out::to_stderr(format_args!($($text)*)) };
}

/// As `eprint`, and the end of the line.
macro_rules! eprintln {
    () => { $crate::out::to_stderr(format_args!("\n")) };
    ($($text:tt)*) => { $crate::out::to_stderr(format_args!("{}\n", format_args!($($text)*))) };
}

mod allocator;
mod cli;
mod log_filter;
mod out;
mod render;
mod render_explain;
mod rights;
mod welcome;

use cli::command::{Cli, Command};

#[global_allocator]
static ALLOCATOR: allocator::Wiping = allocator::Wiping;

/// Read by jemalloc when it starts: freed memory goes back to the system after five seconds, in one
/// step, so that resident memory is flat after a burst, and buffers that are used again soon stay
/// mapped. Bulk bytes are the arena's (`arena.*`). A thread of its own sees to it while nobody
/// allocates anything; `allocator::start_thread` starts it, once rights are dropped.
// SAFETY: the name and the type (a pointer to a string that ends in NUL) are those that jemalloc declares for it.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static MALLOC_CONF: &[u8; 62] = b"dirty_decay_ms:5000,muzzy_decay_ms:0,max_background_threads:1\0";

/// Set to anything, it lets a daemon leave core files, which hold keys and the contents of files: for developers.
const KEEP_CORES: &str = "LARDER_KEEP_CORES";

/// The exit code of `check`, `debug` and `recover` when they worked and not all is well.
const EXIT_PROBLEMS: u8 = 4;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let json = cli.global.json;
    let is_daemon = matches!(cli.command, Command::Up(_) | Command::Serve(_));
    start_log(is_daemon);
    if is_daemon && std::env::var_os(KEEP_CORES).is_none_or(|value| value.is_empty()) {
        larder_config::machine::leave_no_dumps();
    }
    if is_daemon {
        rights::drop_unneeded();
    }
    allocator::start_thread();
    log_panics();
    larder_config::machine::raise_descriptor_limit();
    let result = match runtime() {
        Ok(runtime) => {
            let result = runtime.block_on(cli::run(cli));
            // Whatever is left by now is background work that nobody waits for.
            runtime.shutdown_timeout(std::time::Duration::from_secs(2));
            result
        }
        Err(error) => Err(Failure::io("cannot start threads", &error)),
    };
    match result {
        Ok(_) if out::was_lost() => ExitCode::FAILURE,
        Ok(cli::Outcome::Done) => ExitCode::SUCCESS,
        Ok(cli::Outcome::Unwell) => ExitCode::FAILURE,
        Ok(cli::Outcome::Problems) => ExitCode::from(EXIT_PROBLEMS),
        Err(failure) => {
            out::complain(&failure, json);
            ExitCode::FAILURE
        }
    }
}

/// Reports arguments that make no command, as JSON where scripts ask. Help and version are no mistakes.
fn usage(error: &clap::Error) -> ExitCode {
    let json = std::env::args_os().any(|word| word == "--json");
    if !error.use_stderr() || !json {
        let _ = error.print();
    } else {
        let text = error.render().to_string();
        let what = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
        out::complain(&Failure::invalid(what.trim()).action("see what there is with: larder --help"), true);
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// One worker per core; blocking disk work has threads of its own.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("larder").build()
}

/// To standard error; LARDER_LOG selects the entries, see [`log_filter`]. Commands log errors only.
fn start_log(daemon: bool) {
    let usual = if daemon { "info,slatedb=warn,larder_smb=error,larder_smb::door=info" } else { "error" };
    let (filter, refused) = log_filter::chosen(std::env::var_os(log_filter::VARIABLE), usual);
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(move || LogLines { has_colour: ansi })
        .with_ansi(ansi)
        .with_target(false);
    tracing_subscriber::registry().with(lines).with(filter).with(larder_daemon::log::KeepLines).init();
    if let Some(refused) = refused {
        tracing::error!("{refused}");
    }
}

/// Standard error, with each entry as [`larder_base::printed::entry`] has it.
struct LogLines {
    has_colour: bool,
}

impl std::io::Write for LogLines {
    /// The layer hands over one entry at a time. One that nobody can read, since the reader of a pipe is gone or the disk of the log
    /// is full, is lost: larder goes on without it.
    fn write(&mut self, entry: &[u8]) -> std::io::Result<usize> {
        let text = larder_base::printed::entry(&String::from_utf8_lossy(entry), self.has_colour);
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
        Ok(entry.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let _ = std::io::stderr().flush();
        Ok(())
    }
}

/// A panic of a task ends that task; it must not end in silence.
fn log_panics() {
    std::panic::set_hook(Box::new(|info| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("unnamed");
        let trace = std::backtrace::Backtrace::capture();
        tracing::error!("panic in thread '{name}': {info}\n{trace}");
    }));
}
