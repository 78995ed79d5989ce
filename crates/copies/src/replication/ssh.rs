//! The way to another machine by its SSH server: `larder receive --serve` is started there, and answers on its standard output.

use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use larder_api::{Connect, Connecting, Connection};
use larder_base::task;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use larder_config::VolumeName;

/// So much is kept of what ssh complains about.
const COMPLAINT_BYTES_MAX: usize = 1000;

pub(super) struct Ssh {
    pub(super) login: String,
    pub(super) port: Option<u16>,
    pub(super) replica: VolumeName,
}

impl Connect for Ssh {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let mut command = Command::new("ssh");
            // Nobody is there to answer a question. A line that is dead is noticed.
            command.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=30"]);
            if let Some(port) = self.port {
                command.args(["-p", &port.to_string()]);
            }
            // Names of pools and volumes have no letter that a shell minds.
            command.args(["--", &self.login, "larder", "receive", "--serve", &self.replica.to_string()]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
            let mut child = command.spawn().map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => {
                    io::Error::other("there is no ssh on this machine: install an OpenSSH client")
                }
                _ => error,
            })?;
            let missing = || io::Error::other("ssh has no standard streams");
            let input = child.stdin.take().ok_or_else(missing)?;
            let output = child.stdout.take().ok_or_else(missing)?;
            let complaint = Arc::<Mutex<String>>::default();
            let stderr = child.stderr.take().ok_or_else(missing)?;
            let listening = task::spawn(listen(stderr, Arc::clone(&complaint)));
            Ok(Box::new(Session { child, input, output, complaint, listening }) as Box<dyn Connection>)
        })
    }

    fn place(&self) -> String {
        self.login.clone()
    }
}

async fn listen(mut stderr: ChildStderr, complaint: Arc<Mutex<String>>) {
    let mut piece = [0; 256];
    while let Ok(read @ 1..) = stderr.read(&mut piece).await {
        let mut complaint = complaint.lock();
        if complaint.len() < COMPLAINT_BYTES_MAX {
            complaint.push_str(&String::from_utf8_lossy(piece.get(..read).unwrap_or_default()));
        }
    }
}

struct Session {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    complaint: Arc<Mutex<String>>,
    listening: JoinHandle<()>,
}

impl Session {
    /// The reason for the end of the output, where it is none that ssh is content with.
    fn end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let waited = std::pin::pin!(self.child.wait()).poll(cx);
        let status = ready!(waited)?;
        if status.success() {
            return Poll::Ready(Ok(()));
        }
        // All that it has said; the end of it is no failure.
        if !self.listening.is_finished() {
            let _ = ready!(Pin::new(&mut self.listening).poll(cx));
        }
        let complaint = self.complaint.lock();
        let lines = complaint.lines().map(str::trim).filter(|line| !line.is_empty());
        let said = lines.collect::<Vec<_>>().join("; ");
        let said = if said.is_empty() { "it said nothing".to_owned() } else { said.escape_debug().to_string() };
        Poll::Ready(Err(io::Error::other(format!("ssh ended ({status}): {said}"))))
    }
}

impl AsyncRead for Session {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.output).poll_read(cx, buf))?;
        if buf.filled().len() > before || buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        self.end(cx)
    }
}

impl AsyncWrite for Session {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.input).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_shutdown(cx)
    }
}
