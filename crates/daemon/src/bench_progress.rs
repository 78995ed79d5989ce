//! How far a bench is: one line that is drawn anew on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use larder_base::units::Elapsed;
use larder_load::{Note, Progress};
use larder_measure::bench::result::Run;
use larder_measure::bench::{Watch, title};

const REDRAW: Duration = Duration::from_millis(200);
const BAR_CHARS: usize = 20;
/// Of a plan, as if so much of it had gone as it says.
const BELIEVED_PART: f64 = 0.1;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Line,
    Plain,
    Quiet,
}

/// How far a bench is, as a terminal and the page show it.
pub struct State {
    began: Instant,
    planned_s: f64,
    /// Planned seconds of all repeats that are over.
    past_s: f64,
    pub what: String,
    pub repeat: (u32, u32),
    repeat_began: Instant,
    repeat_s: f64,
    pub live: Progress,
}

pub struct Shown {
    manner: Manner,
    state: Mutex<State>,
}

impl Shown {
    pub fn new(json: bool) -> Arc<Self> {
        let now = Instant::now();
        let manner = match (std::io::stderr().is_terminal(), json) {
            (true, _) => Manner::Line,
            (false, true) => Manner::Quiet,
            (false, false) => Manner::Plain,
        };
        Arc::new(Self { manner, state: Mutex::new(State::new(now)) })
    }

    pub fn tell(&self, progress: Progress) {
        self.state().live = progress;
    }

    /// Of a bench that was stopped, and goes on.
    pub fn waits(&self) {
        let what = self.state().what.clone();
        let of = if what.is_empty() { String::new() } else { format!(" ({what})") };
        self.say(&format!(
            "stopping: what was asked of the disk or the other end{of} has not been answered yet. Then what was written is removed; Ctrl-C once more leaves at once"
        ));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Above the line that is drawn anew.
    fn say(&self, text: &str) {
        let start = if self.manner == Manner::Line { "\r\x1b[K" } else { "" };
        if self.manner != Manner::Quiet {
            let _ = writeln!(std::io::stderr().lock(), "{start}{text}");
        }
    }

    fn draw(&self) {
        let width =
            rustix::termios::tcgetwinsize(std::io::stderr()).map_or(80, |size| usize::from(size.ws_col).max(20));
        let text = self.state().text(Instant::now(), width - 1);
        let mut out = std::io::stderr().lock();
        let _ = write!(out, "\r\x1b[K{text}").and_then(|()| out.flush());
    }
}

impl State {
    pub fn new(now: Instant) -> Self {
        Self {
            began: now,
            planned_s: 0.0,
            past_s: 0.0,
            what: String::new(),
            repeat: (0, 0),
            repeat_began: now,
            repeat_s: 0.0,
            live: Progress::default(),
        }
    }

    pub fn planned(&mut self, seconds: f64) {
        self.planned_s = seconds;
    }

    pub fn began(&mut self, what: &str, repeat: u32, repeats: u32, seconds: f64) {
        self.past_s += self.repeat_s;
        (self.what, self.repeat) = (what.to_owned(), (repeat, repeats));
        (self.repeat_began, self.repeat_s) = (Instant::now(), seconds);
        self.live = Progress::default();
    }

    pub fn elapsed_s(&self, now: Instant) -> f64 {
        (now - self.began).as_secs_f64()
    }

    /// The part that is over, 0 to 1, and the seconds that are left.
    pub fn part_and_left(&self, now: Instant) -> (f64, f64) {
        let past = self.past_s + self.part(now) * self.repeat_s;
        let whole = self.planned_s.max(past).max(1.0);
        // The rest of the plan will run late by the same factor as the part that is done. The first minute goes almost
        // entirely into making data, which happens once: until more is known the plan is believed.
        let believed_s = whole * BELIEVED_PART;
        let stretch = (self.elapsed_s(now) + believed_s) / (past + believed_s);
        (past / whole, (whole - past) * stretch.clamp(1.0, 3.0))
    }

    /// The part of the present repeat that is over, by what the load says or by the clock.
    fn part(&self, now: Instant) -> f64 {
        let by_clock = (now - self.repeat_began).as_secs_f64() / self.repeat_s.max(0.1);
        self.live.done.unwrap_or(by_clock).clamp(0.0, 1.0)
    }

    /// At most `width` characters: of a long name the end, because the workload and how fast it goes are there.
    fn text(&self, now: Instant, width: usize) -> String {
        let (part, left) = self.part_and_left(now);
        let filled = (part * BAR_CHARS as f64) as usize;
        let bar = format!("{}{}", "#".repeat(filled.min(BAR_CHARS)), ".".repeat(BAR_CHARS - filled.min(BAR_CHARS)));
        let rate = match (self.live.bytes_per_s, self.live.operations_per_s) {
            (b, o) if o > 0.0 && b > 0.0 => format!("  {:.1} MB/s  {o:.0} IOPS", b / 1e6),
            (b, _) if b > 0.0 => format!("  {:.1} MB/s", b / 1e6),
            (_, o) if o > 0.0 => format!("  {o:.0}/s"),
            _ => String::new(),
        };
        let repeat = match self.repeat {
            (0, _) => String::new(),
            (n, of) => format!(" {n}/{of}"),
        };
        let (before, after) = (format!("[{bar}] about {} to go  ", Elapsed(left as u64)), format!("{repeat}{rate}"));
        let room = width.saturating_sub(before.chars().count() + after.chars().count());
        let what = match self.what.chars().count() {
            long if long > room => {
                "...".chars().chain(self.what.chars().skip(long - room.saturating_sub(3).min(long))).collect()
            }
            _ => self.what.clone(),
        };
        format!("{before}{what}{after}").chars().take(width).collect()
    }
}

impl Watch for Shown {
    fn planned(&self, seconds: f64) {
        self.state().planned(seconds);
    }

    fn began(&self, what: &str, repeat: u32, repeats: u32, seconds: f64) {
        self.state().began(what, repeat, repeats, seconds);
    }

    fn ended(&self, run: &Run) {
        self.say(&line(run));
    }

    fn noted(&self, note: &Note) {
        self.say(&format!("note: {}", note.text));
    }
}

/// Draws the line until it is dropped.
pub struct Drawing {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drawing {
    pub fn start(shown: &Arc<Shown>) -> Self {
        let over = Arc::new(AtomicBool::new(shown.manner != Manner::Line));
        let (flag, shown) = (over.clone(), shown.clone());
        let thread = std::thread::spawn(move || {
            while !flag.load(Ordering::Acquire) {
                shown.draw();
                std::thread::sleep(REDRAW);
            }
        });
        Self { over, thread: Some(thread) }
    }
}

impl Drop for Drawing {
    fn drop(&mut self) {
        let drew = !self.over.swap(true, Ordering::AcqRel);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if drew {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}

/// The result of a run, in a line.
pub fn line(run: &Run) -> String {
    let median = run.median().unwrap_or(0.0);
    let figure = match run.workload.kind {
        kind if kind.counts_files() => format!("{median:.0} files/s"),
        kind if kind.counts_operations() => format!("{median:.0} IOPS"),
        _ => format!("{:.1} MB/s", median / 1e6),
    };
    let variant: Vec<String> =
        run.variant.iter().filter(|(key, _)| *key != "disk").map(|(k, v)| format!("{k}={v}")).collect();
    let variant = if variant.is_empty() { String::new() } else { format!(" [{}]", variant.join(" ")) };
    format!("{}, {}{variant}, {figure}", run.subject, title(&run.workload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_and_how_far() {
        let shown = Shown::new(true);
        shown.planned(20.0);
        shown.began("/mnt/a: read", 1, 2, 10.0);
        shown.tell(Progress { done: Some(0.5), bytes_per_s: 123.4e6, operations_per_s: 118.0 });
        let text = shown.state().text(Instant::now(), 120);
        assert_eq!(text, "[#####...............] about 0:15 to go  /mnt/a: read 1/2  123.4 MB/s  118 IOPS");
        shown.began("/mnt/a: read", 2, 2, 10.0);
        shown.tell(Progress { done: Some(1.0), bytes_per_s: 0.0, operations_per_s: 7.0 });
        let text = shown.state().text(Instant::now(), 120);
        assert_eq!(text, "[####################] about 0:00 to go  /mnt/a: read 2/2  7/s");
        // A name that is too long loses its beginning, not what is done and how fast.
        let check = |width: usize, wanted: &str| assert_eq!(shown.state().text(Instant::now(), width), wanted);
        check(58, "[####################] about 0:00 to go  ... read 2/2  7/s");
        check(30, "[####################] about 0");
    }

    #[test]
    fn the_data_that_is_made_first_is_not_held_against_all_the_rest() {
        let shown = Shown::new(true);
        shown.planned(600.0);
        shown.began("/mnt/a: write: making data", 0, 3, 0.0);
        let left_s = |after_s: u64| {
            let mut state = shown.state();
            state.live.done = Some(0.0);
            let text = state.text(state.began + Duration::from_secs(after_s), 120);
            let (minutes, seconds) =
                text.split("about ").nth(1).unwrap().split_once(' ').unwrap().0.split_once(':').unwrap();
            minutes.parse::<u64>().unwrap() * 60 + seconds.parse::<u64>().unwrap()
        };
        assert_eq!((left_s(0), left_s(15)), (600, 750));
        // A plan that takes three times as long throughout is believed to go on so.
        shown.began("/mnt/a: write", 1, 3, 200.0);
        shown.began("/mnt/a: write", 2, 3, 200.0);
        assert!((900..1100).contains(&left_s(600)), "{}", left_s(600));
    }
}
