//! The other end of a wire: iperf3's server, and this machine's samples beside it.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder_load::{BenchError, Control, iperf3_version, process};

use super::far::Listener;
use crate::Machine;

/// The port at which the other end offers its samples, unless a person says otherwise.
pub fn samples_port(port: u16) -> u16 {
    port.checked_add(1).unwrap_or(port - 1)
}

/// The other end, until it is stopped or the time is over: iperf3's server, and what this machine does meanwhile.
pub fn listen(
    machine: &Machine,
    port: u16,
    samples_port: u16,
    time_max: Duration,
    control: &Control,
) -> Result<(), BenchError> {
    iperf3_version(machine)?;
    let samples = Listener::bind(samples_port)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| samples.serve(machine, &|| over.load(Ordering::Acquire) || control.is_stopped()));
        let ended = serve_iperf3(machine, port, time_max, control);
        over.store(true, Ordering::Release);
        ended
    })
}

fn serve_iperf3(machine: &Machine, port: u16, time_max: Duration, control: &Control) -> Result<(), BenchError> {
    let args: Vec<OsString> = ["--server", "--port", &port.to_string()].iter().map(OsString::from).collect();
    match process::run(machine, "iperf3", &args, time_max, control, &mut |_| {}) {
        Err(BenchError::Stopped) => Ok(()),
        // The time was over.
        Err(BenchError::Tool { .. }) => Ok(()),
        Err(error) => Err(error),
        Ok(done) => {
            let said =
                if done.stderr.is_empty() { String::from_utf8_lossy(&done.stdout).into_owned() } else { done.stderr };
            let reason = said.lines().next().unwrap_or("it ended").trim_start_matches("iperf3: error - ").to_owned();
            let what = format!("iperf3 cannot listen on port {port}: {reason}");
            Err(BenchError::invalid(what, "choose another with --port PORT"))
        }
    }
}
