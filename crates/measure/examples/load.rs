//! One workload over one URL, for measurements of the load generators themselves (bench/generators.py):
//!
//!     load URL KIND [--block N] [--depth N] [--jobs N] [--size N] [--files N] [--seconds N] [--warm N]
//!          [--caches bypassed|dropped|warm] [--repeats N] [--sync 0|1] [--connections N] [--verify-all 0|1] [--password P] [--any-certificate 1]
//!          [--wait 1]
//!
//! Prints one JSON line for each repeat: what `Repeat` holds. With `--wait` it says `ready` before each, and begins when it is sent
//! a line; its files are there until its input ends.

use std::time::Duration;

use larder_measure::bench::Control;
use larder_measure::bench::client::{ClientOptions, RunLimits, open};
use larder_measure::bench::result::{Caches, Kind, Workload};

type Failure = Box<dyn std::error::Error>;

fn number(text: &str) -> Result<u64, Failure> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    Ok(digits.parse::<u64>()? * unit)
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let (Some(url), Some(kind)) = (args.next(), args.next()) else { return Err("load URL KIND [OPTIONS]".into()) };
    let kind: Kind = serde_json::from_value(kind.into())?;
    let mut workload = Workload {
        kind,
        block_bytes: 1 << 20,
        depth: 16,
        jobs: 1,
        data_bytes: 1 << 30,
        files: 1,
        caches: Caches::Bypassed,
        compressible: false,
        synced: true,
    };
    let mut limits = RunLimits { warm_up: Duration::ZERO, measure_max: Duration::from_secs(10), again: false };
    let (mut repeats, mut wait, mut options) = (1, false, ClientOptions::default());
    while let (Some(key), Some(value)) = (args.next(), args.next()) {
        match key.as_str() {
            "--block" => workload.block_bytes = number(&value)?,
            "--depth" => workload.depth = number(&value)? as u32,
            "--jobs" => workload.jobs = number(&value)? as u32,
            "--size" => workload.data_bytes = number(&value)?,
            "--files" => workload.files = number(&value)?,
            "--seconds" => limits.measure_max = Duration::from_secs(number(&value)?),
            "--warm" => limits.warm_up = Duration::from_secs(number(&value)?),
            "--caches" => workload.caches = serde_json::from_value(value.into())?,
            "--wait" => wait = value == "1",
            "--repeats" => repeats = number(&value)?,
            "--sync" => workload.synced = value == "1",
            "--connections" => options.connections = Some(number(&value)? as u32),
            "--verify-all" => options.verify_all = value == "1",
            "--password" => options.password = Some(value),
            "--key" => options.key_file = Some(value.into()),
            "--any-certificate" => options.any_certificate = value == "1",
            _ => return Err(format!("unknown option {key}").into()),
        }
    }
    let control = Control::new(|_| ());
    let mut client = open(&url, &options)?;
    eprintln!("{}: {}", client.access(), client.describe());
    let outcome = (|| {
        client.prepare(&workload, &control)?;
        for _ in 0..repeats {
            if wait {
                println!("ready");
                let _ = std::io::stdin().read_line(&mut String::new());
            }
            let repeat = client.run(&workload, &limits, &control)?;
            println!("{}", serde_json::to_string(&repeat).unwrap_or_default());
        }
        if wait {
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        Ok::<(), larder_measure::bench::client::ClientError>(())
    })();
    client.clean_up()?;
    Ok(outcome?)
}
