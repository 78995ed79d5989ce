//! The side that snapshots are sent to: a pool of this process, or a daemon elsewhere.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::Either;
use futures::stream::BoxStream;
use larder_api::endpoints::{GetReplica, ReceiveRecord, ReceiveSnapshot};
use larder_api::{Client, Done, Failure, ReceiveQuery, Received, ReplicaState, SentRecord};
use larder_keep::Store;
use larder_volume::replica::ReceiveLimits;
use tokio::sync::mpsc;

use crate::box_record::beside::keep_beside;
use larder_config::VolumeName;

/// Pieces that wait for a slow receiver.
const PIECES_MAX: usize = 8;
/// A receiver that answers a question no sooner is not there.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// A receiver that takes no piece for so long is not there. Its disks may have to wake.
const STALL_MAX: Duration = Duration::from_secs(180);
/// After the last piece a receiver makes everything durable, and removes what it needs no more.
const END_MAX: Duration = Duration::from_secs(1800);

/// A snapshot's bytes, or why there are no more.
pub(super) type Stream<'a> = BoxStream<'a, Result<Bytes, String>>;

#[derive(Clone)]
pub enum Receiver {
    Pool(Arc<Store>, String, ReceiveLimits),
    /// With a quota that counts beside the one in its configuration.
    Daemon(Client, VolumeName, Option<u64>),
}

impl Receiver {
    /// The copy as files that this leads to.
    pub(super) async fn copy(&self) -> Result<Option<(&Arc<Store>, &str)>, Failure> {
        match self {
            Self::Pool(pool, volume, _) if pool.is_copy(volume).await? => Ok(Some((pool, volume))),
            Self::Pool(..) | Self::Daemon(..) => Ok(None),
        }
    }

    /// What the replica has; nothing, where there is none yet.
    pub async fn state(&self) -> Result<ReplicaState, Failure> {
        match self {
            Self::Pool(pool, volume, _) => pool.replica_state(volume).await,
            Self::Daemon(client, replica, _) => {
                let replica = replica.to_string();
                let answer = tokio::time::timeout(ANSWER_MAX, client.call(GetReplica, &replica, &())).await;
                answer.unwrap_or_else(|_| Err(gone("it did not answer within a minute")))
            }
        }
    }

    /// Keeps the record of the sending box beside the replica.
    pub(crate) async fn keep_record(&self, sent: &SentRecord) -> Result<Done, Failure> {
        match self {
            Self::Pool(pool, volume, _) => keep_beside(pool, volume, sent).await.map(|()| Done {}),
            Self::Daemon(client, replica, _) => client.call(ReceiveRecord, &replica.to_string(), sent).await,
        }
    }

    pub async fn receive(&self, stream: Stream<'_>) -> Result<Received, Failure> {
        match self {
            Self::Pool(pool, volume, limits) => pool.receive(volume, *limits, stream).await,
            Self::Daemon(client, replica, quota_bytes) => {
                let (out, pieces) = mpsc::channel(PIECES_MAX);
                let (replica, query) = (replica.to_string(), ReceiveQuery { quota_bytes: *quota_bytes });
                let answer = std::pin::pin!(client.upload(ReceiveSnapshot, &replica, &query, pieces));
                let forward = std::pin::pin!(forward(stream, out));
                match futures::future::select(answer, forward).await {
                    Either::Left((answer, _)) => answer,
                    Either::Right((forwarded, answer)) => {
                        forwarded?;
                        let answer = tokio::time::timeout(END_MAX, answer).await;
                        answer.unwrap_or_else(|_| Err(gone("it did not say that it has all")))
                    }
                }
            }
        }
    }
}

/// The end of the channel is the end of the stream. One that was cut lacks the end that its receiver asks for.
async fn forward(mut stream: Stream<'_>, out: mpsc::Sender<Bytes>) -> Result<(), Failure> {
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(Failure::unavailable)?;
        match tokio::time::timeout(STALL_MAX, out.send(piece)).await {
            Ok(Ok(())) => {}
            // It answers already.
            Ok(Err(_)) => return Ok(()),
            Err(_) => return Err(gone("it took nothing for three minutes")),
        }
    }
    Ok(())
}

fn gone(why: &str) -> Failure {
    Failure::unavailable(format!("the receiver went away: {why}"))
}
