//! Mounts a volume that lives in memory: `fuse_mem DIR [RAM_MIB]`. For tests and profiling of the mount without disks.
//! Prints one line when it is ready; ends on SIGINT or SIGTERM, or when it is unmounted.

use std::path::PathBuf;
use std::sync::Arc;

use larder_base::{MemLog, SystemClock};
use larder_files::Files;
use larder_fuse::{FuseMount, MountOptions};
use larder_volume::{Backing, MemoryBudget, Properties, Registry, Space};
use tokio::signal::unix::{SignalKind, signal};

struct Room;

impl Space for Room {
    fn space(&self) -> (u64, u64) {
        (64 << 30, 32 << 30)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let dir = PathBuf::from(args.next().ok_or("usage: fuse_mem DIR [RAM_MIB]")?);
    let ram_mib: u64 = args.next().and_then(|mib| mib.to_str()?.parse().ok()).unwrap_or(1024);
    let backing = Backing {
        store: Arc::new(object_store::memory::InMemory::new()),
        log: Some(Arc::new(MemLog::default())),
        space: Arc::new(Room),
        clock: Arc::new(SystemClock::default()),
    };
    let registry = Registry::open(backing, MemoryBudget { total_bytes: ram_mib << 20 }).await?;
    registry.create("mem", Properties::default()).await?;
    let files = Files::alone(registry.volume("mem").await?);
    let runtime = tokio::runtime::Handle::current();
    let mount = tokio::task::spawn_blocking(move || FuseMount::mount(files, &dir, MountOptions::default(), runtime));
    let mount = Arc::new(mount.await??);
    println!("mounted on {}", mount.dir().display());
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        () = mount.ended() => {}
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    tokio::task::spawn_blocking(move || drop(mount)).await?;
    registry.close().await?;
    Ok(())
}
