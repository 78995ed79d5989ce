//! Programs that make load: watched while they run, and ended when the bench is.
//!
//! Each has a process group of its own, so that Ctrl-C reaches us alone and we end it in order. `setpriv`, where it
//! is installed, has the kernel end it should we be killed.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::control::Control;
use super::error::BenchError;
use crate::Machine;

/// iperf3 tells every second of every stream.
const OUTPUT_BYTES_MAX: usize = 32 << 20;
const LINE_BYTES_MAX: usize = 4096;
const LINES_MAX: usize = 64;
const POLL: Duration = Duration::from_millis(50);
/// Between asking a program to end and ending it.
const GRACE: Duration = Duration::from_secs(2);
/// A killed process ends only when its disk answers: some disks never do.
const KILL_TIME_MAX: Duration = Duration::from_secs(30);
/// For what is still in a pipe once all of its writers are gone.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);

pub struct Finished {
    /// `None` when a signal ended it.
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

/// A program that runs; ended with its whole group when this goes.
pub struct Running {
    pub child: Child,
    program: String,
    /// Not waited for.
    left: bool,
}

impl Running {
    /// Starts a program found in the system's folders, or at a path.
    pub fn start(machine: &Machine, program: &str, args: &[OsString]) -> Result<Self, BenchError> {
        let missing = || BenchError::Missing { program: program.to_owned(), package: program.to_owned() };
        let path = match program.contains('/') {
            true => program.into(),
            false => machine.program(program).ok_or_else(missing)?,
        };
        let mut command = match machine.program("setpriv") {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "TERM", "--"]).arg(path);
                command
            }
            None => Command::new(path),
        };
        command.args(args).env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.process_group(0).spawn();
        let child = child.map_err(|e| BenchError::io(format!("cannot run {program}"), e))?;
        Ok(Self { child, program: program.to_owned(), left: false })
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(pid, signal);
        }
    }

    /// Asked to end, then made to; whatever it started ends with it.
    pub fn end(&mut self, grace: Duration) -> Result<(), BenchError> {
        if self.left || self.ended_within(Duration::ZERO) {
            return Ok(());
        }
        self.signal(Signal::TERM);
        let in_order = self.ended_within(grace);
        self.signal(Signal::KILL);
        if in_order || self.ended_within(KILL_TIME_MAX) {
            return Ok(());
        }
        let reason = format!("it was killed, and is still there after {} s: a disk hangs", KILL_TIME_MAX.as_secs());
        Err(BenchError::tool(&self.program, reason))
    }

    fn ended_within(&mut self, time_max: Duration) -> bool {
        let until = Instant::now() + time_max;
        loop {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.end(GRACE);
    }
}

/// Runs a program to its end. `said` gets each line of its output as it comes; what comes too fast is left out.
pub fn run(
    machine: &Machine,
    program: &str,
    args: &[OsString],
    time_max: Duration,
    control: &Control,
    said: &mut dyn FnMut(&str),
) -> Result<Finished, BenchError> {
    let mut running = Running::start(machine, program, args)?;
    let (sender, lines) = sync_channel(LINES_MAX);
    let stdout = drain(running.child.stdout.take(), Some(sender));
    let stderr = drain(running.child.stderr.take(), None);
    let code = wait(&mut running, time_max, control, &lines, said)?;
    // Its children would hold its pipes open.
    running.signal(Signal::KILL);
    let until = Instant::now() + DRAIN_TIME_MAX;
    let (stdout, stderr) = (drained(stdout, until), drained(stderr, until));
    Ok(Finished { code, stdout, stderr: String::from_utf8_lossy(&stderr).trim().to_owned() })
}

/// Runs a program that changes nothing and says nothing. Whoever stops does not wait for it: it ends when it can.
pub fn run_and_leave(machine: &Machine, program: &str, control: &Control) -> Result<(), BenchError> {
    let mut running = Running::start(machine, program, &[])?;
    loop {
        match running.child.try_wait() {
            Ok(None) if control.is_stopped() => {
                running.signal(Signal::KILL);
                running.left = true;
                return Err(BenchError::Stopped);
            }
            Ok(None) => std::thread::sleep(POLL / 10),
            Ok(Some(_)) => return Ok(()),
            Err(e) => return Err(BenchError::io(format!("cannot wait for {program}"), e)),
        }
    }
}

/// A reader that does not end is left behind: whoever holds the pipe is out of our reach.
fn drained(reader: JoinHandle<Vec<u8>>, until: Instant) -> Vec<u8> {
    while !reader.is_finished() {
        if Instant::now() >= until {
            return Vec::new();
        }
        std::thread::sleep(POLL / 10);
    }
    reader.join().unwrap_or_default()
}

fn wait(
    running: &mut Running,
    time_max: Duration,
    control: &Control,
    lines: &Receiver<String>,
    said: &mut dyn FnMut(&str),
) -> Result<Option<i32>, BenchError> {
    let end = Instant::now() + time_max;
    loop {
        match lines.recv_timeout(POLL) {
            Ok(line) => said(&line),
            // Its output has ended before it: nothing to wait on but time.
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => std::thread::sleep(POLL),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
        }
        if control.is_stopped() {
            running.end(GRACE)?;
            return Err(BenchError::Stopped);
        }
        let status = running.child.try_wait();
        let status = status.map_err(|e| BenchError::io(format!("cannot wait for {}", running.program), e))?;
        if let Some(status) = status {
            return Ok(status.code());
        }
        if Instant::now() >= end {
            running.end(GRACE)?;
            let reason = format!("it did not finish within {} s", time_max.as_secs());
            return Err(BenchError::tool(&running.program, reason));
        }
    }
}

/// Empties a pipe, keeps as much as is allowed, and passes lines on (carriage returns end one, too).
fn drain(pipe: Option<impl Read + Send + 'static>, lines: Option<SyncSender<String>>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let Some(mut pipe) = pipe else { return Vec::new() };
        let (mut kept, mut line, mut lines) = (Vec::new(), Vec::new(), lines);
        let mut buffer = [0u8; 16 << 10];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            let chunk = buffer.get(..count).unwrap_or_default();
            kept.extend(chunk.iter().take(OUTPUT_BYTES_MAX.saturating_sub(kept.len())));
            for &byte in chunk {
                if byte == b'\n' || byte == b'\r' {
                    let text = String::from_utf8_lossy(&line).into_owned();
                    line.clear();
                    if lines.as_ref().is_some_and(|l| matches!(l.try_send(text), Err(TrySendError::Disconnected(_)))) {
                        lines = None;
                    }
                } else if line.len() < LINE_BYTES_MAX {
                    line.push(byte);
                }
            }
        }
        kept
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<OsString> {
        list.iter().map(OsString::from).collect()
    }

    #[test]
    fn lines_come_as_they_are_said() {
        let control = Control::new(|_| {});
        let mut said = Vec::new();
        let args = words(&["-c", "printf 'a\\rb\\n'; echo wrong >&2; exit 3"]);
        let done = run(&Machine::this(), "sh", &args, Duration::from_secs(20), &control, &mut |line| {
            said.push(line.to_owned());
        })
        .unwrap();
        assert_eq!((done.code, done.stdout.as_slice(), done.stderr.as_str()), (Some(3), b"a\rb\n".as_slice(), "wrong"));
        // The last lines may still be on their way when it ends.
        assert!(said.is_empty() || said[0] == "a", "{said:?}");
    }

    #[test]
    fn nobody_waits_for_what_it_left_running() {
        let control = Control::new(|_| {});
        let started = Instant::now();
        let args = words(&["-c", "sleep 61 & echo said"]);
        let done = run(&Machine::this(), "sh", &args, Duration::from_secs(50), &control, &mut |_| {}).unwrap();
        assert_eq!((done.code, done.stdout.as_slice()), (Some(0), b"said\n".as_slice()));
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn what_is_left_is_not_waited_for() {
        let control = Control::new(|_| {});
        run_and_leave(&Machine::this(), "sync", &control).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("slow");
        std::fs::write(&program, "#!/bin/sh\ntrap '' TERM\nsleep 61 & wait\n").unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let started = Instant::now();
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                control.stop();
            });
            run_and_leave(&Machine::this(), &program.display().to_string(), &control)
        });
        assert!(matches!(ended, Err(BenchError::Stopped)));
        assert!(started.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn whatever_it_started_ends_with_it() {
        let control = Control::new(|_| {});
        let started = Instant::now();
        let late = run(
            &Machine::this(),
            "sh",
            &words(&["-c", "sleep 61 & sleep 61"]),
            Duration::from_millis(200),
            &control,
            &mut |_| {},
        );
        assert!(matches!(late, Err(BenchError::Tool { .. })));
        control.stop();
        let stopped = run(&Machine::this(), "sleep", &words(&["61"]), Duration::from_secs(61), &control, &mut |_| {});
        assert!(matches!(stopped, Err(BenchError::Stopped)));
        assert!(started.elapsed() < Duration::from_secs(20));
        let missing = run(&Machine::this(), "no-such-program", &[], Duration::from_secs(1), &control, &mut |_| {});
        assert!(matches!(missing, Err(BenchError::Missing { .. })));
    }
}
