//! Results as benches of boxes from the field would have left them: for tests, and for looking at.
//!
//! The medians are those that the boxes' builders published; what lies between them (noise, latencies, samples of
//! processor and disks) is made up so that it fits them. Everything comes from fixed seeds.

use crate::bench::result::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SECONDS: u64 = 30;

/// One workload, as it is told to [`Bench::run`].
#[derive(Clone)]
struct Told<'a> {
    layer: Layer,
    subject: &'a str,
    access: &'a str,
    kind: Kind,
    block: u64,
    depth: u32,
    jobs: u32,
    /// In what the kind counts: bytes or operations per second.
    rate: f64,
    /// Percent of each core, at the highest.
    cores: &'a [f64],
    /// Rate before the knee and when it is reached, in seconds.
    knee: Option<(f64, f64)>,
    variant: &'a [(&'a str, &'a str)],
    /// Standard deviation between repeats, as a part of the rate.
    noise: f64,
}

impl<'a> Told<'a> {
    fn of(layer: Layer, subject: &'a str, access: &'a str, kind: Kind, rate: f64) -> Self {
        let random = matches!(kind, Kind::RandomRead | Kind::RandomWrite | Kind::RandomMixed);
        let (block, depth) = if random { (4096, 64) } else { (MIB, 16) };
        Self {
            layer,
            subject,
            access,
            kind,
            block,
            depth,
            jobs: 1,
            rate,
            cores: &[35.0, 12.0, 8.0, 5.0],
            knee: None,
            variant: &[],
            noise: 0.012,
        }
    }

    fn busy(self, cores: &'a [f64]) -> Self {
        Self { cores, ..self }
    }
}

struct Bench {
    result: BenchResult,
    at_ms: u64,
    seed: u64,
    repeats: u32,
    disks: Vec<String>,
}

impl Bench {
    fn new(id: &str, title: &str, preset: &str, machine: MachineFacts, disks: &[&str]) -> Self {
        let result = BenchResult {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            id: id.to_owned(),
            title: title.to_owned(),
            preset: preset.to_owned(),
            started_ms: 1_795_334_510_000,
            ended_ms: 0,
            larder: "0.1.0".to_owned(),
            interrupted: false,
            machine,
            far_machine: None,
            ciphers: Vec::new(),
            runs: Vec::new(),
            notes: Vec::new(),
        };
        let seed = id.bytes().fold(0x9e37_79b9_7f4a_7c15, |seed: u64, b| seed.rotate_left(7) ^ u64::from(b));
        let disks = disks.iter().map(|d| (*d).to_owned()).collect();
        Self { result, at_ms: 0, seed, repeats: 3, disks }
    }

    /// Nearly normal with a mean of 0 and a deviation of 1: the sum of twelve.
    fn noise(&mut self) -> f64 {
        let sum: f64 = (0..12).map(|_| self.uniform()).sum();
        sum - 6.0
    }

    /// SplitMix64.
    fn uniform(&mut self) -> f64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as f64 / u64::MAX as f64
    }

    fn run(&mut self, told: &Told<'_>) -> &mut Run {
        let start_ms = self.at_ms;
        let repeats: Vec<Repeat> = (0..self.repeats).map(|_| self.repeat(told)).collect();
        let samples = self.samples(told, start_ms);
        let full = told.cores.iter().enumerate().filter(|(_, busy)| **busy >= 97.0);
        let saturated = full.map(|(core, _)| Saturation {
            what: format!("core {core}"),
            share: 0.93,
            from_ms: start_ms + 2000,
            to_ms: self.at_ms - 1000,
        });
        let workload = Workload {
            kind: told.kind,
            block_bytes: told.block,
            depth: told.depth,
            jobs: told.jobs,
            data_bytes: 32 * GIB,
            files: 1,
            caches: if told.layer == Layer::Share { Caches::TooSmall } else { Caches::Bypassed },
            compressible: false,
            synced: matches!(told.kind, Kind::Write),
        };
        let with = match (told.layer, told.access) {
            (Layer::Net, _) => "iperf3 3.12",
            (_, "nfs3" | "smb3" | "sftp" | "webdav") => "larder 0.1.0",
            _ => "fio 3.33",
        };
        let run = Run {
            layer: told.layer,
            subject: told.subject.to_owned(),
            access: told.access.to_owned(),
            here: None,
            variant: told.variant.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            workload,
            with: with.to_owned(),
            repeats,
            samples,
            far_samples: None,
            saturated: saturated.collect(),
            notes: Vec::new(),
        };
        self.result.runs.push(run);
        let last = self.result.runs.len() - 1;
        &mut self.result.runs[last]
    }

    fn repeat(&mut self, told: &Told<'_>) -> Repeat {
        let rate = told.rate * (1.0 + told.noise * self.noise());
        let operations = told.kind.counts_operations();
        let block = told.block.max(1) as f64;
        let mut drift = 0.0;
        let mut over_time = Vec::new();
        for second in 1..=SECONDS * 2 {
            let at_s = second as f64 / 2.0;
            drift = 0.7 * drift + 0.015 * self.noise();
            let level = match told.knee {
                Some((before, at)) if at_s <= at => before,
                _ => rate,
            };
            let value = level * (1.0 + drift);
            let (bytes_per_s, operations_per_s) =
                if operations { (value * block, value) } else { (value, value / block) };
            over_time.push(Moment { at_ms: second * 500, bytes_per_s, operations_per_s });
        }
        let (bytes_per_s, operations_per_s) = if operations { (rate * block, rate) } else { (rate, rate / block) };
        let flight = f64::from(told.depth * told.jobs);
        let mean_us = flight / operations_per_s.max(1e-9) * 1e6;
        let start_ms = self.at_ms;
        self.at_ms += SECONDS * 1000 + 2000;
        Repeat {
            start_ms,
            seconds: SECONDS as f64,
            bytes: (bytes_per_s * SECONDS as f64) as u64,
            operations: (operations_per_s * SECONDS as f64) as u64,
            bytes_per_s,
            operations_per_s,
            latency: (told.layer != Layer::Net).then(|| Latency {
                mean_us,
                p50_us: mean_us * 0.86,
                p95_us: mean_us * 1.7,
                p99_us: mean_us * (3.0 + self.uniform()),
                p999_us: mean_us * (7.0 + 3.0 * self.uniform()),
                max_us: mean_us * (25.0 + 40.0 * self.uniform()),
            }),
            knee: told.knee.map(|(before, at_s)| Knee {
                at_s,
                bytes: (before * at_s) as u64,
                before_bytes_per_s: before,
                after_bytes_per_s: rate,
            }),
            over_time,
            load_cpu_s: Some(bytes_per_s * SECONDS as f64 / GIB as f64 * (0.4 + 0.05 * self.uniform())),
            retransmits: None,
            read: None,
            write: None,
        }
    }

    fn samples(&mut self, told: &Told<'_>, start_ms: u64) -> Samples {
        let at_ms: Vec<u64> = (1..).map(|n| start_ms + n * 1000).take_while(|at| *at <= self.at_ms).collect();
        // Between repeats nothing happens.
        let load: Vec<f64> = at_ms
            .iter()
            .map(|at| if (at - start_ms) % (SECONDS * 1000 + 2000) > SECONDS * 1000 { 0.03 } else { 1.0 })
            .collect();
        let writes = matches!(told.kind, Kind::Write | Kind::RandomWrite | Kind::CopyTreeIn | Kind::Send);
        let bytes = if told.kind.counts_operations() { told.rate * told.block as f64 } else { told.rate };
        let (disk_used, net_used) =
            (told.layer != Layer::Net, matches!(told.layer, Layer::Net | Layer::Share | Layer::Both));
        let cores = told.cores.iter().enumerate().map(|(core, busy)| self.core(core, *busy, &load)).collect();
        let names = self.disks.clone();
        let mut series = |peak: f64, wobble: f64| -> Vec<f64> {
            load.iter().map(|part| (part * peak * (1.0 + wobble * self.noise())).max(0.0)).collect()
        };
        let mut disks = Vec::new();
        for disk in names {
            let mine = disk_used && (told.layer != Layer::Disk || told.subject.contains(&disk));
            let peak = if mine { bytes / if told.layer == Layer::Disk { 1.0 } else { 4.0 } } else { 0.0 };
            disks.push(DiskSeries {
                busy: series(if mine { 78.0 } else { 0.0 }, 0.08).into_iter().map(|b| b.min(100.0)).collect(),
                read_bytes_per_s: series(if writes { 0.0 } else { peak }, 0.03),
                write_bytes_per_s: series(if writes { peak } else { 0.0 }, 0.03),
                latency_ms: series(if mine { 1.8 } else { 0.0 }, 0.15),
                disk,
            });
        }
        let net = if net_used { bytes } else { 2000.0 };
        let mut samples = Samples {
            cores,
            disks,
            nets: vec![NetSeries {
                interface: "eth0".to_owned(),
                receive_bytes_per_s: series(if writes { net } else { net * 0.01 }, 0.02),
                send_bytes_per_s: series(if writes { net * 0.01 } else { net }, 0.02),
                retransmits: series(if net_used { 2.0 } else { 0.0 }, 0.9).into_iter().map(f64::round).collect(),
                bytes_per_s_max: None,
            }],
            clocks: vec![Series { name: "core 0".to_owned(), values: series(1500.0, 0.01) }],
            quotas: Vec::new(),
            watts: Some(Series {
                name: "shelly plug".to_owned(),
                values: load.iter().map(|l| 17.0 + 7.0 * l).collect(),
            }),
            temperatures: vec![Series {
                name: "cpu".to_owned(),
                values: at_ms.iter().enumerate().map(|(n, _)| 62.0 - 14.0 * (-(n as f64) / 40.0).exp()).collect(),
            }],
            at_ms,
            throttled: 0,
        };
        // One sample was missed: a hole in every plot.
        if let Some(value) = samples.disks.first_mut().and_then(|d| d.busy.get_mut(7)) {
            *value = f64::NAN;
        }
        samples
    }

    fn core(&mut self, core: usize, busy: f64, load: &[f64]) -> CoreSeries {
        let mut made = CoreSeries { core: core as u32, ..CoreSeries::default() };
        for part in load {
            let busy = (busy * part * (1.0 + 0.04 * self.noise())).clamp(0.0, 100.0);
            let irq = if core == 0 { 0.3 } else { 0.05 };
            made.user.push(busy * 0.12);
            made.nice.push(0.0);
            made.system.push(busy * (0.88 - irq));
            made.irq.push(busy * irq);
            made.iowait.push((100.0 - busy) * 0.3 * part);
            made.steal.push(0.0);
        }
        made
    }

    fn end(mut self) -> BenchResult {
        self.result.ended_ms = self.result.started_ms + self.at_ms;
        self.result
    }
}

fn note(code: &str, text: &str, misleading: bool) -> Note {
    Note { code: code.to_owned(), text: text.to_owned(), misleading }
}

fn pi() -> MachineFacts {
    MachineFacts {
        host: "pi-nas".to_owned(),
        model: "Raspberry Pi Compute Module 4 Rev 1.0".to_owned(),
        processor: "Cortex-A72".to_owned(),
        cores: 4,
        memory_bytes: 8 * GIB,
        kernel: "6.1.21-v8+".to_owned(),
    }
}

const QLC: [&str; 4] = ["/mnt/qlc1", "/mnt/qlc2", "/mnt/qlc3", "/mnt/qlc4"];
const ALL_QLC: &str = "/mnt/qlc1, /mnt/qlc2, /mnt/qlc3, /mnt/qlc4";

/// Box A: four QLC disks behind one PCIe lane, gigabit Ethernet.
pub fn box_a() -> BenchResult {
    use {Kind::*, Layer::*};
    let mut bench =
        Bench::new("20261122-080150-all", "all /srv/raid0", "standard", pi(), &["qlc1", "qlc2", "qlc3", "qlc4"]);
    for (n, disk) in QLC.iter().enumerate() {
        let off = 1.0 - 0.01 * n as f64;
        bench.run(&Told::of(Disk, disk, "local", Read, 418e6 * off));
        bench.run(&Told { knee: Some((404e6, 9.0)), ..Told::of(Disk, disk, "local", Write, 196e6 * off) });
        bench.run(&Told::of(Disk, disk, "local", RandomRead, 23_700.0 * off).busy(&[62.0, 20.0, 9.0, 5.0]));
    }
    bench.run(&Told::of(Disks, ALL_QLC, "local", Read, 402e6));
    bench.run(&Told::of(Disks, ALL_QLC, "local", Write, 386e6));
    bench.run(&Told::of(Pool, "/srv/raid0", "local", Read, 395e6));
    bench.run(&Told::of(Pool, "/srv/raid0", "local", Write, 381e6));
    bench.run(&Told::of(Pool, "/srv/raid0", "local", RandomRead, 21_700.0).busy(&[70.0, 24.0, 12.0, 8.0]));
    bench.run(&Told::of(Pool, "/srv/raid0", "local", RandomWrite, 7330.0));
    bench.run(&Told::of(Net, "laptop", "tcp", Send, 116.9e6).busy(&[44.0, 6.0, 4.0, 3.0]));
    bench.run(&Told::of(Net, "laptop", "tcp", Receive, 116.8e6).busy(&[58.0, 6.0, 4.0, 3.0]));
    bench.run(&Told::of(Share, "nfs://pi-nas/raid0", "nfs3", Read, 108e6).busy(&[52.0, 14.0, 9.0, 6.0]));
    let write = Told { noise: 0.02, ..Told::of(Share, "nfs://pi-nas/raid0", "nfs3", Write, 96.7e6) };
    bench.run(&write.clone().busy(&[100.0, 48.0, 27.0, 12.0]));
    bench.run(
        &Told { noise: 0.03, ..Told::of(Share, "smb://pi-nas/raid0", "smb3", Read, 93e6) }
            .busy(&[88.0, 30.0, 20.0, 9.0]),
    );
    let warm = bench.run(
        &Told { access: "smb3", subject: "smb://pi-nas/raid0", rate: 88e6, ..write }.busy(&[98.0, 51.0, 30.0, 14.0]),
    );
    warm.notes.push(note(
        "caches-warm",
        "The server's memory took what was written: write at least 16 GiB to measure its disks.",
        true,
    ));
    bench.run(&Told::of(Both, "/srv/raid0 and laptop", "local", Read, 312e6));
    bench.result.notes.push(note(
        "governor",
        "The processor's governor is ondemand: clocks rose only under load.",
        false,
    ));
    bench.end()
}

/// Box B: eight NVMe disks as RAIDZ2, one of them in a slower slot.
pub fn box_b() -> BenchResult {
    use {Kind::*, Layer::*};
    let machine = MachineFacts {
        host: "workstation".to_owned(),
        model: "AMD Ryzen 9 7950X 16-Core Processor".to_owned(),
        processor: "AMD Ryzen 9 7950X".to_owned(),
        cores: 16,
        memory_bytes: 128 * GIB,
        kernel: "6.6.13".to_owned(),
    };
    let names: Vec<String> = (0..8).map(|n| format!("nvme{n}n1")).collect();
    let disks: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut bench = Bench::new("20261122-091500-all", "all tank", "throughput", machine, &disks);
    let gib = GIB as f64;
    let busy = [96.0, 97.5, 95.0, 94.0, 98.0, 96.0, 92.0, 97.0, 95.0, 96.0, 94.0, 93.0, 97.0, 96.0, 95.0, 94.0];
    for (n, disk) in disks.iter().enumerate() {
        let rate = if n == 5 { 2.7 * gib } else { (3.96 + 0.01 * n as f64) * gib };
        bench.run(&Told {
            jobs: 4,
            depth: 64,
            variant: &[("disk", disk)],
            ..Told::of(Disk, disk, "local", Read, rate)
        });
    }
    bench.run(&Told { jobs: 32, depth: 64, ..Told::of(Disks, &disks.join(", "), "local", Read, 23.5 * gib) });
    let pool = |kind, rate| Told { jobs: 16, ..Told::of(Pool, "tank", "local", kind, rate) };
    bench.run(&pool(Write, 5495.0 * MIB as f64).busy(&busy));
    bench.run(&pool(Read, 6653.0 * MIB as f64).busy(&busy[3..]));
    bench.run(&Told { depth: 256, ..pool(RandomRead, 99_700.0) });
    bench.run(&Told { depth: 256, ..pool(RandomWrite, 44_100.0) });
    bench.end()
}

/// Box D: what encryption and compression cost.
pub fn box_d() -> BenchResult {
    use {Kind::*, Layer::*};
    let machine = MachineFacts {
        host: "freebsd".to_owned(),
        model: "Intel Core i3-9100T".to_owned(),
        processor: "Intel Core i3-9100T".to_owned(),
        cores: 4,
        memory_bytes: 32 * GIB,
        kernel: "FreeBSD 13.2".to_owned(),
    };
    let mut bench =
        Bench::new("20261122-101000-pool", "pool tank", "encryption", machine, &["nvd0", "nvd1", "nvd2", "nvd3"]);
    bench.repeats = 5;
    let kinds = [
        ("none", 3.9e9, 2.6e9),
        ("aes-256-xts (geli)", 2.1e9, 1.5e9),
        ("aes-256-gcm", 1.7e9, 1.1e9),
        ("aes-128-gcm", 1.9e9, 1.2e9),
    ];
    for (name, read, write) in kinds {
        for (compression, gain) in [("off", 1.0), ("lz4", 1.04)] {
            let variant = [("encryption", name), ("compression", compression)];
            bench.run(&Told { variant: &variant, ..Told::of(Pool, "tank", "local", Read, read * gain) });
            bench.run(&Told { variant: &variant, ..Told::of(Pool, "tank", "local", Write, write * gain) });
        }
    }
    bench.end()
}

/// Box E: the block size swept over several ways of access.
pub fn box_e() -> BenchResult {
    let mut bench = Bench::new("20261122-113000-share", "share pi4", "blocksize", pi(), &["sda"]);
    // Peak rate, and what one request costs besides its bytes.
    let ways = [
        (Layer::Disk, "local", 340e6, 55e-6),
        (Layer::Share, "nfs3", 112e6, 260e-6),
        (Layer::Share, "smb3", 96e6, 420e-6),
        (Layer::Share, "sftp", 41e6, 700e-6),
    ];
    for (layer, access, peak, cost_s) in ways {
        for exponent in 12..=25 {
            let block = 1u64 << exponent;
            let rate = block as f64 / (block as f64 / peak + cost_s);
            let subject = if layer == Layer::Disk { "/mnt/usb" } else { "pi4/usb" };
            bench.run(&Told { block, depth: 1, ..Told::of(layer, subject, access, Kind::Read, rate) });
        }
    }
    bench.end()
}

/// All of them, with names for files.
pub fn all() -> [(&'static str, BenchResult); 4] {
    [("box-a", box_a()), ("box-b", box_b()), ("box-d", box_d()), ("box-e", box_e())]
}
