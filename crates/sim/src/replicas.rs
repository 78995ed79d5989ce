//! Replicas in a schedule: when all is well again, every snapshot is sent to another store and promoted there.
//!
//! - `replicas.as_sent`: each snapshot shows there what it was found to show here, whatever power and disks did to the volume
//!   meanwhile, and however the stream was cut before it came whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use larder_fs::{FsError, FsResult, Ino};
use larder_volume::{Backing, MemoryBudget, Registry, Space};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use rand::Rng;

use crate::sealing::SimKeys;
use crate::session::{Outcome, Run, Stop};
use crate::snapshots::{Shots, read};
use crate::tree_model::explore;
use crate::turns::SimClock;

const REPLICA: &str = "replica";
const MEMORY_BYTES: u64 = 32 << 20;
/// Where keys of the other side begin to count openings: apart from those of this side.
const FAR_OPENINGS: u32 = 1 << 20;

struct Endless;

impl Space for Endless {
    fn space(&self) -> (u64, u64) {
        (1 << 40, 1 << 39)
    }
}

/// A receiver refuses an encrypted volume without a keyring. The simulator keeps its keys itself, so this one is a placeholder.
pub async fn lay_keyring(run: &Run, near: &Registry, volume: &str, store: &Arc<dyn ObjectStore>) -> Outcome<()> {
    let failed = |error: String| Stop::Failed(format!("a keyring to send: {error}"));
    let listed = run.powered(near.list()).await?.map_err(|error| failed(error.to_string()))?;
    let Some(info) = listed.into_iter().find(|info| info.name == volume && info.sealed) else { return Ok(()) };
    let path = Path::from(info.prefix().trim_end_matches('/')).join("keyring.json");
    run.powered(store.put(&path, Bytes::from_static(b"keys of a simulation").into()))
        .await?
        .map_err(|error| failed(error.to_string()))?;
    Ok(())
}

/// Sends the snapshots in order, each whole or from one before it, and compares what comes of them.
pub async fn replicate(run: &Run, near: &Registry, volume: &str, shots: &parking_lot::Mutex<Shots>) -> Outcome<()> {
    let failed = |what: &str, error: FsError| Stop::Failed(format!("{what}: {error}"));
    let names: Vec<(u64, String)> = {
        let volume = run.powered(near.volume(volume)).await?.map_err(|error| failed("opening to send", error))?;
        volume.snapshots().into_iter().map(|info| (info.number, info.name)).collect()
    };
    let far = far(run).await.map_err(|error| failed("the other store", error))?;
    let mut sent: BTreeMap<u64, String> = BTreeMap::new();
    for (number, name) in names {
        if !sent.is_empty() && run.one_in(4) {
            continue;
        }
        let earlier: Vec<String> = sent.values().cloned().collect();
        let from =
            (!earlier.is_empty()).then(|| earlier[run.draw(|random| random.random_range(0..earlier.len()))].clone());
        run.world.note(|| format!("sends {name} from {from:?}"));
        let stream = run.powered(whole(near, volume, &name, from.as_deref())).await?;
        let stream = stream.map_err(|error| failed(&format!("sending {name}"), error))?;
        if run.one_in(2) {
            let cut = run.draw(|random| random.random_range(0..stream.len()));
            match receive(&far, &stream[..cut]).await {
                Err(FsError::Io(_)) => {}
                other => return Err(Stop::Failed(format!("a stream cut at piece {cut}: {other:?}"))),
            }
        }
        receive(&far, &stream).await.map_err(|error| failed(&format!("receiving {name}"), error))?;
        sent.insert(number, name);
    }
    if sent.is_empty() {
        return Ok(());
    }
    far.promote(REPLICA).await.map_err(|error| failed("promoting", error))?;
    let copy = far.volume(REPLICA).await.map_err(|error| failed("opening the copy", error))?;
    for (number, name) in &sent {
        let found = read(&copy, name).await.map_err(|error| failed(&format!("reading {name} of the copy"), error))?;
        let same = shots.lock().whole(name).map(|whole| found.is_as(whole, false));
        same.unwrap_or(Ok(())).map_err(|why| Stop::Failed(format!("snapshot {name} of the copy: {why}")))?;
        if sent.keys().next_back() == Some(number) {
            let head = explore(&copy, Ino::ROOT).await.map_err(|error| failed("reading the copy", error))?;
            head.is_as(&found, false).map_err(|why| Stop::Failed(format!("the copy is not {name}: {why}")))?;
        }
    }
    drop(copy);
    let report = far.check(REPLICA, true).await.map_err(|error| failed("checking the copy", error))?;
    if let Some(problem) = report.problems.first() {
        return Err(Stop::Failed(format!("check of the copy: {problem}")));
    }
    run.done("replicate");
    far.close().await.map_err(|error| failed("closing the copy", error))
}

async fn far(run: &Run) -> FsResult<Registry> {
    let backing =
        Backing { store: Arc::new(InMemory::new()), log: None, space: Arc::new(Endless), clock: Arc::new(SimClock) };
    let keys = Arc::new(SimKeys::new(run.seed, FAR_OPENINGS, Arc::clone(&run.ring)));
    Registry::open_sealed(backing, MemoryBudget { total_bytes: MEMORY_BYTES }, keys).await
}

async fn whole(near: &Registry, volume: &str, name: &str, from: Option<&str>) -> FsResult<Vec<Bytes>> {
    near.send(volume, name, from, None).await?.stream.try_collect().await
}

async fn receive(far: &Registry, stream: &[Bytes]) -> FsResult<()> {
    let pieces: Vec<FsResult<Bytes>> = stream.iter().cloned().map(Ok).collect();
    far.receive(REPLICA, futures::stream::iter(pieces).boxed()).await.map(drop)
}
