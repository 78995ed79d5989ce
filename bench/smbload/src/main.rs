//! smbload: drives one SMB workload over ONE signed SMB 3.1.1 connection with a fixed number of requests in flight.
//!
//! The twin of `nfsload.c`: same workloads where they exist in SMB, same contents (every MiB is a window of a
//! random pool at its own offset), same JSON on stdout.
//!
//! Invariants
//!   L1  At most `depth` operations are in flight, on one connection.
//!   L2  The session is signed, not encrypted and not compressed; anything else is an error, not a result.
//!   L3  The clock covers the operations, including the final FLUSH and CLOSE of a sequential write.
//!   L4  Any failed operation ends the run: a fast failure is not a result.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use smb2::client::{ClientConfig, Connection, SmbClient, Tree};

mod create;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const MIB: u64 = 1 << 20;
const POOL_BYTES: u64 = 16 * MIB;
const PAGE_BYTES: usize = 4096;

struct Options {
    addr: String,
    user: String,
    password: String,
    share: String,
    size_bytes: u64,
    count: u64,
    depth: u64,
    seed: u64,
    verify: bool,
    workload: String,
    path: String,
}

fn number(text: &str) -> Outcome<u64> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1u64),
    };
    Ok(digits.parse::<u64>().map_err(|_| format!("not a number: {text}"))? * unit)
}

fn options() -> Outcome<Options> {
    let mut o = Options {
        addr: "127.0.0.1:445".into(),
        user: String::new(),
        password: String::new(),
        share: String::new(),
        size_bytes: 64 * MIB,
        count: 1000,
        depth: 16,
        seed: 1,
        verify: false,
        workload: String::new(),
        path: String::new(),
    };
    let mut args = std::env::args().skip(1);
    let mut plain = Vec::new();
    while let Some(arg) = args.next() {
        let Some(key) = arg.strip_prefix("--") else {
            plain.push(arg);
            continue;
        };
        let value = args.next().ok_or_else(|| format!("--{key} wants a value"))?;
        match key {
            "addr" => o.addr = value,
            "user" => o.user = value,
            "password" => o.password = value,
            "share" => o.share = value,
            "size" => o.size_bytes = number(&value)?,
            "count" => o.count = number(&value)?,
            "depth" => o.depth = number(&value)?.max(1),
            "seed" => o.seed = number(&value)?,
            "verify" => o.verify = value == "1",
            _ => return Err(format!("unknown option --{key}").into()),
        }
    }
    match <[String; 2]>::try_from(plain) {
        Ok([workload, path]) => (o.workload, o.path) = (workload, path),
        Err(_) => return Err("usage: smbload [OPTIONS] seqwrite|seqread|create|stat|delete FILE-OR-DIR".into()),
    }
    Ok(o)
}

fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The random pool and the windows into it (see `nfsload.c`).
struct Contents {
    pool: Vec<u8>,
    seed: u64,
}

impl Contents {
    fn new(seed: u64) -> Self {
        let mut x = 0x0123_4567;
        let words = (0..(POOL_BYTES + MIB) / 8).map(|i| {
            x = mix(x + i % 7);
            x
        });
        Self { pool: words.flat_map(u64::to_le_bytes).collect(), seed }
    }

    fn block(&self, n: u64, len: usize) -> &[u8] {
        let at = (mix(self.seed.wrapping_mul(1_000_003).wrapping_add(n)) % (POOL_BYTES / 8) * 8) as usize;
        &self.pool[at..at + len]
    }
}

struct Load {
    o: Options,
    contents: Contents,
    conn: Connection,
    tree: Arc<Tree>,
}

#[derive(Default)]
struct Tally {
    ops: u64,
    bytes: u64,
    latencies_us: Vec<u64>,
}

fn file_name(dir: &str, item: u64) -> String {
    format!("{dir}/f{:08x}.{item}", mix(item) & 0xffff_ffff)
}

async fn seqwrite(load: &Load) -> Outcome<Tally> {
    let mut writer = load
        .tree
        .create_file_writer(load.conn.clone(), &load.o.path)
        .await?
        .with_write_behind(smb2::WriteBehind::Fixed(load.o.depth as usize))
        .with_chunk_size(MIB as u32);
    let blocks = load.o.size_bytes / MIB;
    for n in 0..blocks {
        writer.write_chunk(load.contents.block(n, MIB as usize)).await?;
    }
    let bytes = writer.finish().await?;
    if bytes != blocks * MIB {
        return Err(format!("wrote {bytes} bytes of {}", blocks * MIB).into());
    }
    Ok(Tally { ops: blocks, bytes, latencies_us: vec![] })
}

async fn seqread(load: &Load) -> Outcome<Tally> {
    let mut conn = load.conn.clone();
    let mut download = load
        .tree
        .download(&mut conn, &load.o.path)
        .await?
        .with_read_ahead(smb2::ReadAhead::Fixed(load.o.depth as usize))
        .with_chunk_size(MIB as u32);
    let mut tally = Tally::default();
    while let Some(chunk) = download.next_chunk().await {
        let chunk = chunk?;
        if load.o.verify && chunk != load.contents.block(tally.ops, chunk.len()) {
            return Err(format!("wrong bytes in MiB {}", tally.ops).into());
        }
        tally.ops += 1;
        tally.bytes += chunk.len() as u64;
    }
    if tally.bytes != load.o.size_bytes {
        return Err(format!("read {} bytes of {}", tally.bytes, load.o.size_bytes).into());
    }
    Ok(tally)
}

async fn one(load: &Load, item: u64) -> Outcome<u64> {
    let mut conn = load.conn.clone();
    let name = file_name(&load.o.path, item);
    match load.o.workload.as_str() {
        "create" => create::create(&conn, &load.tree, &name, load.contents.block(item, PAGE_BYTES)).await,
        "stat" => match load.tree.stat(&mut conn, &name).await?.size {
            size if size == PAGE_BYTES as u64 => Ok(0),
            size => Err(format!("{name} has {size} bytes").into()),
        },
        "delete" => Ok(load.tree.delete_file(&mut conn, &name).await.map(|()| 0)?),
        other => Err(format!("unknown workload {other}").into()),
    }
}

/// `depth` tasks take items from one counter (L1).
async fn on_files(load: Arc<Load>) -> Outcome<Tally> {
    let next = Arc::new(AtomicU64::new(0));
    let tasks = (0..load.o.depth).map(|_| {
        let (load, next) = (load.clone(), next.clone());
        tokio::spawn(async move {
            let mut tally = Tally::default();
            loop {
                let item = next.fetch_add(1, Ordering::Relaxed);
                if item >= load.o.count {
                    return Ok::<_, Box<dyn std::error::Error + Send + Sync>>(tally);
                }
                let started = Instant::now();
                tally.bytes += one(&load, item).await.map_err(|e| format!("item {item}: {e}"))?;
                tally.ops += 1;
                tally.latencies_us.push(started.elapsed().as_micros() as u64);
            }
        })
    });
    let mut sum = Tally::default();
    for task in tasks.collect::<Vec<_>>() {
        let tally = task.await??;
        sum.ops += tally.ops;
        sum.bytes += tally.bytes;
        sum.latencies_us.extend(tally.latencies_us);
    }
    Ok(sum)
}

/// User and system seconds of this process, in clock ticks of 10 ms.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or("");
    let ticks = |n: usize| after_name.split_whitespace().nth(n).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

async fn connect(o: Options) -> Outcome<Load> {
    // The remaining fields have defaults only through `connect`, so the config is spelled out.
    let config = ClientConfig {
        addr: o.addr.clone(),
        timeout: Duration::from_secs(10),
        username: o.user.clone(),
        password: o.password.clone(),
        domain: String::new(),
        auto_reconnect: false,
        compression: false,
        dfs_enabled: false,
        dfs_target_overrides: Default::default(),
        dfs_target_policy: Default::default(),
        connect_options: Default::default(),
        previous_session_id: Default::default(),
        response_timeout: Some(Duration::from_secs(60)),
    };
    let mut client = SmbClient::connect(config).await?;
    let tree = Arc::new(client.connect_share(&o.share).await?);
    let params = client.params().ok_or("nothing was negotiated")?;
    if params.dialect != smb2::types::Dialect::Smb3_1_1 {
        return Err(format!("negotiated {:?}, not SMB 3.1.1", params.dialect).into());
    }
    if client.connection().should_encrypt() || client.connection().compression_enabled() {
        return Err("the session is encrypted or compressed: not comparable".into());
    }
    eprintln!("signing: {}", if params.gmac_negotiated { "AES-128-GMAC" } else { "AES-128-CMAC" });
    let contents = Contents::new(o.seed);
    let conn = client.connection_for(&tree)?;
    Ok(Load { o, contents, conn, tree })
}

async fn run() -> Outcome<()> {
    let load = Arc::new(connect(options()?).await?);
    let o = &load.o;
    if o.workload == "create" {
        // It may be there from a run before; if it could not be made the first file will say so.
        let _ = load.tree.create_directory(&mut load.conn.clone(), &o.path).await;
    }
    let (cpu, started) = (cpu_s(), Instant::now());
    let mut tally = match o.workload.as_str() {
        "seqwrite" => seqwrite(&load).await?,
        "seqread" => seqread(&load).await?,
        _ => on_files(load.clone()).await?,
    };
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), cpu_s() - cpu);
    tally.latencies_us.sort_unstable();
    let at = |q: f64| {
        let last = tally.latencies_us.len().saturating_sub(1);
        tally.latencies_us.get((last as f64 * q) as usize).copied().unwrap_or(0)
    };
    println!(
        "{{\"workload\": \"{}\", \"seconds\": {seconds:.6}, \"ops\": {}, \"bytes\": {}, \"ops_per_s\": {:.1}, \
         \"mb_per_s\": {:.2}, \"client_cpu_s\": {cpu:.2}, \"depth\": {}, \"p50_us\": {}, \"p99_us\": {}, \"max_us\": {}}}",
        o.workload,
        tally.ops,
        tally.bytes,
        tally.ops as f64 / seconds,
        tally.bytes as f64 / seconds / 1e6,
        o.depth,
        at(0.5),
        at(0.99),
        at(1.0)
    );
    Ok(())
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    if let Err(error) = run().await {
        eprintln!("smbload: {error}");
        std::process::exit(1);
    }
}
