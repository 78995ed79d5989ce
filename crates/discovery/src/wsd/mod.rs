//! WS-Discovery 2005/04 with the Devices Profile: Hello and Bye by multicast, answers to Probe and Resolve, and the metadata
//! over HTTP that names the computer.

mod computer;
mod http;
pub(crate) mod message;
mod udp;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::interfaces::{Address, addresses};
use computer::{Computer, HTTP_PORT};
use udp::Speaker;

/// How often addresses are looked at (`discovery.idle`).
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// A Bye is sent at once.
const STOP_WAIT_MAX: Duration = Duration::from_secs(2);

pub(crate) struct Wsd {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Wsd {
    pub(crate) async fn start(name: &str, uuid: Uuid, interfaces: &[String]) -> std::io::Result<Wsd> {
        let computer = Arc::new(Computer::new(name, uuid));
        let listener = http::bind(HTTP_PORT).await?;
        let stop = CancellationToken::new();
        let (own, interfaces) = (stop.clone(), interfaces.to_vec());
        let task = tokio::spawn(async move {
            let metadata = tokio::spawn(http::serve(listener, Arc::clone(&computer), own.clone()));
            follow(&computer, &interfaces, &own).await;
            let _ = metadata.await;
        });
        Ok(Wsd { stop, task })
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        let _ = tokio::time::timeout(STOP_WAIT_MAX, self.task).await;
    }
}

/// Speaks from the addresses that there are, and from others when they change.
async fn follow(computer: &Arc<Computer>, interfaces: &[String], stop: &CancellationToken) {
    let mut speakers: Vec<(Address, Speaker)> = Vec::new();
    while !stop.is_cancelled() {
        let now = addresses(interfaces);
        speakers.retain(|(address, _)| now.contains(address));
        for address in now {
            if speakers.iter().any(|(known, _)| *known == address) {
                continue;
            }
            match Speaker::start(address, Arc::clone(computer)).await {
                Ok(speaker) => speakers.push((address, speaker)),
                Err(error) => tracing::debug!("WS-Discovery does not speak from {}: {error}", address.ip),
            }
        }
        let _ = tokio::time::timeout(LOOK_EVERY, stop.cancelled()).await;
    }
    for (_, speaker) in speakers {
        speaker.bye().await;
    }
}
