//! How fast a server is for larder's client with nothing above it: `larder-test-bucket bare s3://BUCKET/PREFIX ENDPOINT [mib=1024]`.
//!
//! Objects that do not compress are put and read, 16 at a time, and deleted. Keys come from the environment.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use larder_store::{Bucket, BucketError, BucketSettings};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

const OBJECT_BYTES: usize = 8 << 20;
const IN_FLIGHT: usize = 16;

pub async fn run(url: &str, endpoint: &str, mib: usize) -> Result<String, BucketError> {
    let settings = BucketSettings {
        url: url.parse()?,
        endpoint: Some(endpoint.to_owned()),
        region: None,
        allow_http: true,
        virtual_hosted: false,
    };
    let store = Bucket::open(&settings)?.store;
    let count = (mib << 20).div_ceil(OBJECT_BYTES);
    let data: Vec<u8> = (0..OBJECT_BYTES).map(|_| rand::random()).collect();
    let (data, all) = (Bytes::from(data), || futures::stream::iter(0..count));
    let failed = |source| BucketError::Store { what: "measuring".to_owned(), source };
    let rate = |begun: Instant| (count * OBJECT_BYTES) as f64 / begun.elapsed().as_secs_f64() / 1e6;
    let begun = Instant::now();
    let puts = all().map(|n| put(&store, n, data.clone())).buffer_unordered(IN_FLIGHT);
    puts.try_collect::<Vec<()>>().await.map_err(failed)?;
    let written = rate(begun);
    let begun = Instant::now();
    let gets = all().map(|n| get(&store, n)).buffer_unordered(IN_FLIGHT);
    gets.try_collect::<Vec<()>>().await.map_err(failed)?;
    let read = rate(begun);
    let deletes = all().map(|n| delete(&store, n)).buffer_unordered(IN_FLIGHT);
    deletes.try_collect::<Vec<()>>().await.map_err(failed)?;
    Ok(format!("{{\"put_mb_s\":{written:.1},\"get_mb_s\":{read:.1}}}"))
}

fn at(n: usize) -> Path {
    Path::from(format!("bare/{n}"))
}

async fn put(store: &Arc<dyn ObjectStore>, n: usize, data: Bytes) -> object_store::Result<()> {
    store.put(&at(n), data.into()).await.map(drop)
}

/// Nobody keeps what is read, as a server's client does not.
async fn get(store: &Arc<dyn ObjectStore>, n: usize) -> object_store::Result<()> {
    let mut body = store.get(&at(n)).await?.into_stream();
    while body.next().await.transpose()?.is_some() {}
    Ok(())
}

async fn delete(store: &Arc<dyn ObjectStore>, n: usize) -> object_store::Result<()> {
    store.delete(&at(n)).await
}
