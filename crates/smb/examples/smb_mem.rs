//! Serves an empty volume in memory over SMB: for trying clients out, and for measuring the protocol
//! without a disk below it.
//!
//!     cargo run -p larder-smb --example smb_mem -- 127.0.0.1:4445
//!     smbclient //127.0.0.1/share -p 4445 -U user%pass
//!
//! Shares: `share`, `secret` (encryption required), `readonly`, `public` (guests). Users, all with the
//! password `pass`: `user` (the owner of everything), `other` (may read `share` and write as POSIX lets it).

use std::error::Error;
use std::sync::Arc;

use larder_base::SystemClock;
use larder_doors::share::ServedShare;
use larder_files::Files;
use larder_fs::{Cred, Ino, SetAttr};
use larder_people::{NtHash, Share, User};
use larder_smb::door::{SmbConfig, SmbServer};
use larder_smb_wire::auth::ntlm::nt_hash;
use larder_volume::{Backing, MemoryBudget, Properties, Registry, Space, SyncMode};
use object_store::memory::InMemory;
use tokio_util::sync::CancellationToken;

struct Plenty;

impl Space for Plenty {
    fn space(&self) -> (u64, u64) {
        (1 << 40, 1 << 39)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listen = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:4445".to_owned());
    let level = std::env::var("RUST_LOG").ok().and_then(|level| level.parse().ok());
    tracing_subscriber::fmt().with_max_level(level.unwrap_or(tracing_subscriber::filter::LevelFilter::ERROR)).init();
    let registry = registry().await?;
    registry.create("mem", Properties { sync: SyncMode::Relaxed, ..Properties::default() }).await?;
    let files = Files::alone(registry.volume("mem").await?);
    let owned = SetAttr { uid: Some(1000), gid: Some(1000), mode: Some(0o775), ..SetAttr::default() };
    files.setattr(&Cred::root(), Ino::ROOT, owned).await?;

    let users = vec![user("user", 1000), user("other", 1001)];
    let server = SmbServer::start(SmbConfig::new(listen.parse()?), users, shares(&files)).await?;
    println!("{}", server.local_addr());
    let stop = CancellationToken::new();
    tokio::spawn({
        let stop = stop.clone();
        async move {
            let _ = tokio::signal::ctrl_c().await;
            stop.cancel();
        }
    });
    server.serve(stop).await?;
    registry.close().await?;
    Ok(())
}

async fn registry() -> Result<Registry, Box<dyn Error>> {
    let backing = Backing {
        store: Arc::new(InMemory::new()),
        log: None,
        space: Arc::new(Plenty),
        clock: Arc::new(SystemClock::default()),
    };
    Ok(Registry::open(backing, MemoryBudget { total_bytes: 1 << 30 }).await?)
}

fn user(name: &str, id: u32) -> User {
    User { nt_hash: Some(NtHash(nt_hash("pass"))), gids: vec![1000], ..User::new(name, id, id) }
}

fn shares(files: &Files) -> Vec<ServedShare> {
    let shares = [
        Share::new("share"),
        Share { encrypt: true, ..Share::new("secret") },
        Share { read_only: true, ..Share::new("readonly") },
        Share { guest: true, ..Share::new("public") },
    ];
    let served = |share| ServedShare { share: Arc::new(share), files: files.clone(), root: Ino::ROOT };
    shares.map(served).into()
}
