//! The page over plain HTTP on loopback, against the socket of a larder that runs: to look at it while it is being made.
//!
//!     cargo run --release -p larder-web --example page -- DATA-FOLDER [PORT]
//!
//! Everybody logs in with the password `look`; the name says the role: `looker`, `user`, or any other for the owner.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use larder_base::SystemClock;
use larder_web::{LogIn, Options, Peer, Refusal, Role, Standing, Web};
use tokio::net::TcpListener;

struct Trial;

fn standing_of(name: &str) -> Standing {
    let role = match name {
        "looker" => Role::Looker,
        "user" => Role::User,
        _ => Role::Owner,
    };
    Standing { role, generation: 0, uid: 0, has_password: true }
}

impl LogIn for Trial {
    fn check(&self, name: String, password: String, _: IpAddr) -> BoxFuture<'_, Result<Standing, Refusal>> {
        Box::pin(async move { if password == "look" { Ok(standing_of(&name)) } else { Err(Refusal::Wrong) } })
    }

    fn standing(&self, name: &str) -> Option<Standing> {
        Some(standing_of(name))
    }

    fn entered(&self, _: &str, _: std::net::IpAddr, _: &str) {}

    /// They end with this process, as sessions do.
    fn keep_factors(&self, _: Vec<u8>) -> BoxFuture<'_, Result<(), larder_api::Failure>> {
        Box::pin(async { Ok(()) })
    }

    fn keep_sessions(&self, _: Vec<u8>) -> BoxFuture<'_, Result<(), larder_api::Failure>> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let data = args.next().ok_or("name the data folder of a larder that runs")?;
    let port: u16 = args.next().map_or(Ok(0), |port| port.parse())?;
    let socket = Path::new(&data).join(larder_api::SOCKET_NAME);
    let client = larder_api::Client::connect(&socket).await?.ok_or("no larder answers there")?;
    let web = Web::new(
        Arc::new(client),
        Arc::new(Trial),
        Arc::new(SystemClock::default()),
        Options { is_secure: false, files: Some("/?shares") },
    );
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    println!("http://{}/", listener.local_addr()?);
    loop {
        let (stream, addr) = listener.accept().await?;
        let web = web.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let web = web.clone();
                async move { Ok::<_, std::convert::Infallible>(web.answer(request, Peer { addr: addr.ip() }).await) }
            });
            let served =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            if let Err(e) = served {
                eprintln!("{addr}: {e}");
            }
        });
    }
}
