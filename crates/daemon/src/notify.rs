//! What larder tells the service manager that started it, as sd_notify(3) describes: ready, alive, stopping.
//!
//! - `notify.alive_means_scheduled`: the watchdog is fed by a task of the runtime that serves. When its threads all
//!   hang, it is not, and systemd starts larder anew. A disk that hangs is no reason: its calls wait on threads of
//!   their own.
//! - `notify.waits_a_moment`: a manager that is behind keeps a handful of messages and has no room for the next. It is given
//!   a second to read; without `READY=1` a service never counts as started.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use larder_base::rounds;

/// How long a manager that is behind is waited for (`notify.waits_a_moment`).
const WAIT: Duration = Duration::from_secs(1);

/// Whether a manager has started larder, which starts it again if it fails.
pub fn has_manager() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some_and(|socket| !socket.is_empty())
}

/// Tells the manager a state, such as `READY=1`. Without a manager nobody is told.
pub fn tell(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = send(socket.as_bytes(), state.as_bytes()) {
        tracing::debug!("the service manager was not told {state}: {error}");
    }
}

/// `@` stands for the NUL of an abstract address.
fn send(socket: &[u8], state: &[u8]) -> std::io::Result<()> {
    let address = match socket.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::path::Path::new(std::ffi::OsStr::from_bytes(socket)))?,
    };
    let from = UnixDatagram::unbound()?;
    from.set_write_timeout(Some(WAIT))?;
    from.send_to_addr(state, &address).map(drop)
}

/// Feeds the manager's watchdog, if it has one for us (`notify.alive_means_scheduled`).
pub async fn run_watchdog() {
    let variable = |name: &str| std::env::var(name).ok();
    let Some(every) = interval(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"), std::process::id()) else { return };
    loop {
        tell("WATCHDOG=1");
        rounds::sleep(every).await;
    }
}

/// Half of the time that the manager waits.
fn interval(usec: Option<String>, pid: Option<String>, own: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid.parse() != Ok(own)) {
        return None;
    }
    let usec: u64 = usec?.parse().ok()?;
    (usec > 0).then(|| Duration::from_micros(usec.div_ceil(2)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_watchdog_is_fed_twice_in_its_time() {
        let check = |usec: Option<&str>, pid: Option<&str>, want: Option<u64>| {
            let found = interval(usec.map(str::to_owned), pid.map(str::to_owned), 7);
            assert_eq!(found, want.map(Duration::from_micros), "{usec:?} {pid:?}");
        };
        check(Some("60000000"), Some("7"), Some(30_000_000));
        check(Some("60000000"), None, Some(30_000_000));
        check(Some("60000000"), Some("8"), None);
        check(Some("0"), Some("7"), None);
        check(Some("x"), None, None);
        check(None, None, None);
    }

    #[test]
    fn states_arrive_at_both_kinds_of_sockets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("larder-notify-{}", std::process::id());
        let listeners = [
            (path.as_os_str().as_bytes().to_vec(), UnixDatagram::bind(&path).unwrap()),
            (
                [b"@", name.as_bytes()].concat(),
                UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name.as_bytes()).unwrap()).unwrap(),
            ),
        ];
        for (socket, listener) in listeners {
            send(&socket, b"READY=1").unwrap();
            let mut told = [0; 16];
            let bytes = listener.recv(&mut told).unwrap();
            assert_eq!(&told[..bytes], b"READY=1");
        }
    }

    #[test]
    fn a_manager_that_is_behind_is_told_nevertheless() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let filler = UnixDatagram::unbound().unwrap();
        filler.set_nonblocking(true).unwrap();
        let filled = (0..100_000).take_while(|_| filler.send_to(b"WATCHDOG=1", &path).is_ok()).count();
        let socket = path.as_os_str().as_bytes().to_vec();
        let teller = std::thread::spawn(move || send(&socket, b"STOPPING=1"));
        std::thread::sleep(Duration::from_millis(100));
        let mut told = [0; 16];
        for _ in 0..filled {
            assert_eq!(listener.recv(&mut told).unwrap(), 10);
        }
        teller.join().unwrap().unwrap();
        let bytes = listener.recv(&mut told).unwrap();
        assert_eq!(&told[..bytes], b"STOPPING=1");
    }
}
