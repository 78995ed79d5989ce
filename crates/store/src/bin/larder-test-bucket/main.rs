//! An S3 server in memory, with faults, for tests: `larder-test-bucket PORT [latency_ms=20] [seed=7] [slow_down=50] ...`.
//!
//! It prints its address and serves until it is ended. Whatever key signs a request is welcome. `GET /_counts` tells the requests
//! so far, `POST /_faults?NAME=VALUE&...` changes the faults, `POST /_reset` forgets the counts.
//!
//! `larder-test-bucket via ...` is a longer way to another server ([`via`]), `larder-test-bucket bare ...` measures one ([`bare`]).
use std::io;
use std::sync::Arc;

use tokio::net::TcpListener;

mod bare;
mod server;
mod via;

#[tokio::main]
async fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (settings, words): (Vec<&str>, Vec<&str>) = args.iter().map(String::as_str).partition(is_setting);
    let settings = settings.into_iter().filter_map(|arg| arg.split_once('='));
    match words[..] {
        ["via", port, target] => {
            let via = Arc::new(via::Via::new(target));
            settings.for_each(|(name, value)| via.set(name, value));
            via.serve(listen(port).await?).await;
        }
        ["bare", url, endpoint] => {
            let mib = settings.filter(|(name, _)| *name == "mib").find_map(|(_, value)| value.parse().ok());
            println!("{}", bare::run(url, endpoint, mib.unwrap_or(1024)).await.map_err(io::Error::other)?);
        }
        _ => {
            let server = Arc::new(server::Server::default());
            settings.for_each(|(name, value)| server.set_fault(name, value));
            server.serve(listen(words.first().unwrap_or(&"0")).await?).await;
        }
    }
    Ok(())
}

/// `NAME=VALUE`
fn is_setting(arg: &&str) -> bool {
    !arg.contains("://") && arg.contains('=')
}

async fn listen(port: &str) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(("127.0.0.1", port.parse::<u16>().unwrap_or(0))).await?;
    println!("http://{}", listener.local_addr()?);
    Ok(listener)
}
