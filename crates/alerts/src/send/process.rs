//! Programs that take a message or give a secret, and what goes wrong on the way.

use std::process::Stdio;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Of a file or command that has a secret.
pub(super) const OUTPUT_BYTES_MAX: u64 = 4096;

/// Why a message was not delivered. No secret is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Worth trying again.
    #[error("{0}")]
    Later(String),
    /// The receiver does not want this message.
    #[error("{0}")]
    Refused(String),
}

/// Runs a program with this on its standard input, and returns what it wrote, if that is wanted. It has a group of its own: one that
/// takes too long is killed with its children.
pub(super) async fn run(words: &[String], input: &[u8], output: Stdio) -> Result<Vec<u8>, SendError> {
    let program = words.first().map(String::as_str).unwrap_or_default();
    let failed = |e: std::io::Error| SendError::Later(format!("cannot run {program}: {e}"));
    let mut command = tokio::process::Command::new(program);
    command.args(words.get(1..).unwrap_or_default());
    command.stdin(Stdio::piped()).stdout(output).stderr(Stdio::null()).current_dir("/");
    let mut child = command.process_group(0).kill_on_drop(true).spawn().map_err(failed)?;
    let group = Group(child.id());
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read what it is told may still do its work.
        let _ = stdin.write_all(input).await;
    }
    let mut written = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(OUTPUT_BYTES_MAX).read_to_end(&mut written).await.map_err(failed)?;
    }
    let status = child.wait().await.map_err(failed)?;
    drop(group);
    match status.success() {
        true => Ok(written),
        false => Err(SendError::Later(format!("{program} ended with {status}"))),
    }
}

/// The processes of a command, ended with it.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let pid = self.0.and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // Nothing is left of it, mostly.
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}
