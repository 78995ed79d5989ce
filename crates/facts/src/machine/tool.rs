//! Other people's programs: found in the system's folders, run with a bound on time and output.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Folders in which programs are looked for. `$PATH` belongs to the caller, and root must not run programs from there.
const FOLDERS: [&str; 6] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"];
/// For a question. A disk that has to spin up first needs ten seconds.
pub(super) const QUESTION_TIME_MAX: Duration = Duration::from_secs(60);
/// For work. Some disks take many minutes to discard all that they hold, which mkfs asks of them.
pub(super) const WORK_TIME_MAX: Duration = Duration::from_secs(2 * 3600);
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
const POLL: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub struct ToolOutput {
    /// `None` when a signal ended it.
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum ToolError {
    #[error("{program} is not installed")]
    Missing { program: String },
    #[error("{program} did not finish within {} s", time_max.as_secs())]
    TimedOut { program: String, time_max: Duration },
    #[error("{program} could not be run: {reason}")]
    Failed { program: String, reason: String },
}

pub(super) fn find(program: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| PathBuf::from(folder).join(program)).find(|path| path.is_file())
}

pub(super) fn run(program: &str, args: &[&str], time_max: Duration) -> Result<ToolOutput, ToolError> {
    let path = find(program).ok_or_else(|| ToolError::Missing { program: program.to_owned() })?;
    let failed = |e: std::io::Error| ToolError::Failed { program: program.to_owned(), reason: e.to_string() };
    let mut child = Command::new(path)
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // Both pipes are emptied while it runs: a full one would stop it.
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let status = match wait(&mut child, time_max).map_err(failed)? {
        Some(status) => status,
        None => return Err(ToolError::TimedOut { program: program.to_owned(), time_max }),
    };
    let stdout = stdout.join().unwrap_or_default();
    let stderr = stderr.join().unwrap_or_default();
    Ok(ToolOutput { code: status.code(), stdout, stderr: String::from_utf8_lossy(&stderr).trim().to_owned() })
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            let mut pipe = pipe.take(OUTPUT_BYTES_MAX);
            let _ = pipe.read_to_end(&mut bytes);
            // Output beyond the bound is read and dropped, or the program would wait for us for ever.
            let _ = std::io::copy(&mut pipe.into_inner(), &mut std::io::sink());
        }
        bytes
    })
}

/// `None`: it took too long and was ended.
fn wait(child: &mut Child, time_max: Duration) -> std::io::Result<Option<std::process::ExitStatus>> {
    let end = Instant::now() + time_max;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_run_with_bounded_output() {
        let run = |program: &str, args: &[&str]| run(program, args, QUESTION_TIME_MAX);
        let said = run("sh", &["-c", "echo out; echo err >&2; exit 3"]).unwrap();
        assert_eq!((said.code, said.stdout.as_slice(), said.stderr.as_str()), (Some(3), b"out\n".as_slice(), "err"));
        let long = run("head", &["-c", "3000000", "/dev/zero"]).unwrap();
        assert_eq!((long.code, long.stdout.len()), (Some(0), 1 << 20));
        assert!(matches!(run("no-such-program", &[]), Err(ToolError::Missing { .. })));
        let slow = super::run("sleep", &["60"], Duration::from_millis(50));
        assert!(matches!(slow, Err(ToolError::TimedOut { .. })), "{slow:?}");
    }
}
