//! An S3 server in memory, with faults, for tests: `larder-test-bucket PORT [latency_ms=20] [seed=7] [slow_down=50] ...`.
//!
//! It prints its address and serves until it is ended. Whatever key signs a request is welcome. `GET /_counts` tells the requests
//! so far, `POST /_faults?NAME=VALUE&...` changes the faults, `POST /_reset` forgets the counts.
use std::sync::Arc;

mod server;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let port: u16 = args.next().and_then(|port| port.parse().ok()).unwrap_or(0);
    let server = Arc::new(server::Server::default());
    for arg in args {
        if let Some((name, value)) = arg.split_once('=') {
            server.set_fault(name, value);
        }
    }
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("http://{}", listener.local_addr()?);
    server.serve(listener).await;
    Ok(())
}
