//! The wire alone: iperf3 between this machine and another.

use std::ffi::OsString;
use std::time::Duration;

use serde_json::Value;

use super::control::Progress;
use super::error::BenchError;
use super::load::{Load, Scene};
use super::process;
use crate::Machine;
use crate::workload::{Kind, Moment, Repeat, RunLimits, Workload};

pub const PORT: u16 = 5201;
/// For connecting, and for its own beginning and end.
const SLACK: Duration = Duration::from_secs(30);
const CONNECT_MS: u32 = 5000;
const INTERVALS_MAX: usize = 100_000;
/// iperf3 takes no more streams.
const STREAMS_MAX: u32 = 128;

pub struct NetLoad {
    pub host: String,
    pub port: u16,
    version: String,
    /// Why it is not tried again: each try waits until its time is over.
    gone: Option<(String, String)>,
}

impl NetLoad {
    pub fn new(machine: &Machine, host: &str, port: u16) -> Result<Self, BenchError> {
        checked_host(host)?;
        Ok(Self { host: host.to_owned(), port, version: version(machine)?, gone: None })
    }
}

pub fn checked_host(host: &str) -> Result<(), BenchError> {
    let odd = |c: char| c.is_whitespace() || c.is_control() || c == '/';
    match host.is_empty() || host.starts_with('-') || host.contains(odd) {
        true => Err(BenchError::invalid(format!("'{host}' is not a host"), "give a name or an address")),
        false => Ok(()),
    }
}

/// "iperf3 3.12".
pub fn version(machine: &Machine) -> Result<String, BenchError> {
    let missing = || BenchError::Missing { program: "iperf3".to_owned(), package: "iperf3".to_owned() };
    let said = machine.run("iperf3", &["--version"], "version").map_err(|_| missing())?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let number = text.split_whitespace().nth(1).filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    number
        .map(|number| format!("iperf3 {number}"))
        .ok_or_else(|| BenchError::answer("iperf3", "its version is not a number"))
}

impl Load for NetLoad {
    fn access(&self) -> String {
        "tcp".to_owned()
    }

    fn with(&self, _kind: Kind) -> String {
        self.version.clone()
    }

    fn prepare(&mut self, _workload: &Workload, _scene: &Scene) -> Result<(), BenchError> {
        Ok(())
    }

    fn run(&mut self, workload: &Workload, limits: &RunLimits, scene: &Scene) -> Result<Repeat, BenchError> {
        if let Some((what, action)) = self.gone.clone() {
            return Err(BenchError::Invalid { what, action });
        }
        let args = self.arguments(workload, limits);
        let time_max = limits.warm_up + limits.measure_max + SLACK;
        let mut said = |_: &str| {};
        scene.control.tell(Progress { done: Some(0.0), ..Progress::default() });
        let done = process::run(scene.machine, "iperf3", &args, time_max, scene.control, &mut said)?;
        let kept = scene.keep.join(format!("run{:03}-{}.json", scene.run, scene.repeat + 1));
        std::fs::write(&kept, &done.stdout).map_err(|e| BenchError::at("write", &kept, e))?;
        let repeat = parse(&done.stdout, workload.kind).map_err(|error| self.explained(error));
        if let Err(BenchError::Invalid { what, action }) = &repeat
            && what.contains("unable to connect")
        {
            self.gone = Some((what.clone(), action.clone()));
        }
        let repeat = repeat?;
        let (bytes_per_s, operations_per_s) = (repeat.bytes_per_s, 0.0);
        scene.control.tell(Progress { done: Some(1.0), bytes_per_s, operations_per_s });
        Ok(repeat)
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        Ok(())
    }
}

impl NetLoad {
    fn arguments(&self, workload: &Workload, limits: &RunLimits) -> Vec<OsString> {
        let mut words = vec!["--client".to_owned(), self.host.clone(), "--json".to_owned()];
        let mut put = |key: &str, value: u64| words.extend([key.to_owned(), value.to_string()]);
        put("--port", u64::from(self.port));
        put("--connect-timeout", u64::from(CONNECT_MS));
        put("--time", limits.measure_max.as_secs().max(1));
        put("--omit", limits.warm_up.as_secs());
        put("--parallel", u64::from(workload.jobs.clamp(1, STREAMS_MAX)));
        match workload.kind {
            Kind::Receive => words.push("--reverse".to_owned()),
            Kind::SendReceive => words.push("--bidir".to_owned()),
            _ => {}
        }
        words.into_iter().map(OsString::from).collect()
    }

    fn explained(&self, error: BenchError) -> BenchError {
        let BenchError::Tool { reason, .. } = &error else { return error };
        let (host, port) = (&self.host, self.port);
        let action = match reason {
            r if r.contains("refused") || r.contains("timed out") => {
                format!(
                    "start the other end: larder bench net --listen --port {port} (or iperf3 -s -p {port}) on {host}"
                )
            }
            r if r.contains("busy") => "somebody else measures with it now: wait until that is done".to_owned(),
            _ => String::new(),
        };
        BenchError::invalid(format!("iperf3 cannot measure the way to {host} port {port}: {reason}"), action)
    }
}

/// `--json` of iperf3 3.x.
fn parse(bytes: &[u8], kind: Kind) -> Result<Repeat, BenchError> {
    let json: Value = serde_json::from_slice(bytes).map_err(|e| BenchError::answer("iperf3", e.to_string()))?;
    if let Some(error) = json["error"].as_str() {
        return Err(BenchError::tool("iperf3", error.trim_start_matches("error - ").to_owned()));
    }
    let end = &json["end"];
    // Received bytes count; sent ones may still be on their way.
    let ways: &[(&str, &str)] = match kind {
        Kind::SendReceive => &[("sum_received", "sum_sent"), ("sum_received_bidir_reverse", "sum_sent_bidir_reverse")],
        _ => &[("sum_received", "sum_sent")],
    };
    let mut repeat = Repeat::default();
    let mut retransmits = None;
    for (arrived, sent) in ways {
        let (arrived, sent) = (&end[*arrived], &end[*sent]);
        let seconds = arrived["seconds"].as_f64().unwrap_or(0.0);
        let bytes = arrived["bytes"].as_u64().unwrap_or(0);
        if !seconds.is_finite() || seconds <= 0.0 {
            return Err(BenchError::answer("iperf3", "it does not say how long it took"));
        }
        repeat.seconds = repeat.seconds.max(seconds);
        repeat.bytes = repeat.bytes.saturating_add(bytes);
        repeat.bytes_per_s += bytes as f64 / seconds;
        if let Some(count) = sent["retransmits"].as_u64() {
            retransmits = Some(retransmits.unwrap_or(0u64).saturating_add(count));
        }
    }
    repeat.retransmits = retransmits;
    repeat.over_time = over_time(&json["intervals"]);
    // Percent of one core, while it ran.
    repeat.load_cpu_s =
        end["cpu_utilization_percent"]["host_total"].as_f64().map(|percent| percent / 100.0 * repeat.seconds);
    Ok(repeat)
}

fn over_time(intervals: &Value) -> Vec<Moment> {
    let list = intervals.as_array().map(Vec::as_slice).unwrap_or_default();
    let counted = list.iter().filter(|i| !i["sum"]["omitted"].as_bool().unwrap_or(false));
    let moment = |i: &Value| {
        let at_s = i["sum"]["end"].as_f64().filter(|s| s.is_finite() && *s >= 0.0)?;
        let bits = |key: &str| i[key]["bits_per_second"].as_f64().unwrap_or(0.0);
        let bytes_per_s = (bits("sum") + bits("sum_bidir_reverse")) / 8.0;
        Some(Moment { at_ms: (at_s * 1e3) as u64, bytes_per_s, operations_per_s: 0.0 })
    };
    counted.take(INTERVALS_MAX).filter_map(moment).collect()
}

#[cfg(test)]
mod tests;
