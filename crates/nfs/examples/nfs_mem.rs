//! Serves a volume in memory over NFS, for trying out clients and for profiling.
//!
//!     cargo run --release -p larder-nfs --example nfs_mem -- 127.0.0.1:2049
//!     nfs-ls 'nfs://127.0.0.1/tank?nfsport=2049&mountport=2049'
//!
//! Prints one JSON line when it is ready and stops on SIGINT or SIGTERM.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use larder_base::{MemLog, SystemClock};
use larder_files::Files;
use larder_fs::{Cred, Ino, SetAttr};
use larder_nfs::{Export, NfsConfig, NfsServer};
use larder_people::{Share, Squash};
use larder_volume::{Backing, MemoryBudget, Properties, Registry, Space};
use object_store::memory::InMemory;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

struct Plenty;

impl Space for Plenty {
    fn space(&self) -> (u64, u64) {
        (1 << 40, 1 << 39)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().filter_map(|arg| arg.parse::<SocketAddr>().ok()).next();
    let backing = Backing {
        store: Arc::new(InMemory::new()),
        log: Some(Arc::new(MemLog::default())),
        space: Arc::new(Plenty),
        clock: Arc::new(SystemClock::default()),
    };
    let registry = Registry::open(backing, MemoryBudget { total_bytes: 2 << 30 }).await?;
    registry.create("tank", Properties::default()).await?;
    let volume = registry.volume("tank").await?;
    let anybody = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    volume.setattr(&Cred::root(), Ino::ROOT, anybody).await?;

    let address = address.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
    let server = NfsServer::bind(address, NfsConfig::default()).await?;
    let networks = Some(vec!["0.0.0.0/0".parse()?, "::/0".parse()?]);
    let share = Share { networks, secure: false, squash: Squash::None, ..Share::new("tank") };
    server.set_exports(vec![Export {
        path: "/tank".to_owned(),
        files: Files::alone(volume),
        share: Arc::new(share),
        fsid: 1,
        root: larder_fs::Ino::ROOT,
        key: None,
        former_key: None,
        older_handles: larder_nfs::Older::Taken,
    }]);
    let (handle, port) = (server.handle(), server.local_addr().port());
    println!(r#"{{"pid": {}, "nfs": {{"host": "127.0.0.1", "port": {port}, "export": "/tank"}}}}"#, std::process::id());
    std::io::stdout().flush()?;

    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(server.serve(shutdown.clone()));
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    shutdown.cancel();
    serving.await?;
    registry.close().await?;
    eprintln!("{:#?}", handle.stats());
    Ok(())
}
