//! Files that share extents: crashes after every batch, and collection.

use larder_base::seam;

use super::*;
use crate::data::clone_range::CloneSpan;

const KIB: usize = 1024;

async fn clone(world: &World, from: &Arc<Inode>, to: &Arc<Inode>, span: (usize, usize, usize)) -> FsResult<Ticket> {
    let span = CloneSpan { from: span.0 as u64, to: span.1 as u64, len: span.2 as u64, data: span.2 as u64 };
    world.data.clone_range(from, to, span, |attr| attr.change += 1).await.map(|(_, ticket)| ticket)
}

async fn world() -> World {
    World::new(16 << 10, Compression::None, 64 << 20, 0).await
}

/// A file of many extents is there whole or not at all, wherever a crash comes.
#[tokio::test]
async fn a_crash_leaves_all_of_a_clone_or_nothing() {
    seam::simulate(Some(|| Box::pin(tokio::task::yield_now())));
    let content = noise(1, 200 * KIB);
    let mut seen = (0, 0);
    for extra in 0..12 {
        let world = world().await;
        let (a, b) = (world.create(1).await, world.create(2).await);
        world.write(&a, 0, &content).await;
        world.write(&b, 0, &[7; 5000]).await;
        world.data.sync_all().await.unwrap();
        clone(&world, &a, &b, (0, 8 * KIB, content.len())).await.unwrap();
        let world = world.crash(extra).await;
        let b = world.inode(2).await;
        let size = b.core.lock().attr.size as usize;
        if size == 5000 {
            seen.0 += 1;
            assert_eq!(world.read(&b, 0..5000).await, [7; 5000]);
            // What was laid behind the end does not come to light.
            world.data.truncate(&b, 300 * KIB as u64, |_| {}).await.unwrap();
            assert!(world.read(&b, 5000..300 * KIB as u64).await.iter().all(|&byte| byte == 0), "{extra}");
        } else {
            seen.1 += 1;
            assert_eq!(size, 8 * KIB + content.len());
            assert!(world.read(&b, 8 * KIB as u64..size as u64).await == content);
        }
        world.check(true).await;
        let a = world.inode(1).await;
        assert!(world.read(&a, 0..content.len() as u64).await == content);
    }
    assert!(seen.0 > 3 && seen.1 > 1, "{seen:?}");
    seam::simulate(None);
}

#[tokio::test]
async fn what_is_shared_is_collected_once() {
    let world = world().await;
    let (a, b, c) = (world.create(1).await, world.create(2).await, world.create(3).await);
    let (mut one, len) = (noise(1, 8 << 20), 8 << 20);
    world.write(&a, 0, &one).await;
    world.data.sync_all().await.unwrap();
    clone(&world, &a, &b, (0, 4 * KIB, len)).await.unwrap();
    clone(&world, &a, &c, (3, 0, 1 << 20)).await.unwrap();
    let mut other = [vec![0; 4 * KIB], one.clone()].concat();
    let third = one[3..3 + (1 << 20)].to_vec();
    // Three quarters of both go.
    for at in (0..len).step_by(64 * KIB) {
        let fresh = noise(at as u64, 48 * KIB);
        world.write(&a, at as u64, &fresh).await;
        one[at..at + fresh.len()].copy_from_slice(&fresh);
        let at = at + 4 * KIB;
        world.write(&b, at as u64, &fresh[1..]).await;
        other[at..at + fresh.len() - 1].copy_from_slice(&fresh[1..]);
    }
    world.data.sync_all().await.unwrap();
    world.data.0.collect_garbage_now().await.unwrap();
    world.check(true).await;
    let in_use = world.data.usage().segment_bytes as usize;
    // Fresh data of both, a quarter that they share, and the third's.
    assert!(in_use < 2 * len / 4 * 3 + len / 4 + (2 << 20), "{in_use}");
    assert!(world.read(&a, 0..len as u64).await == one);
    assert!(world.read(&b, 0..other.len() as u64).await == other);
    assert!(world.read(&c, 0..1 << 20).await == third);
    let world = world.reopen().await;
    let (a, b, c) = (world.inode(1).await, world.inode(2).await, world.inode(3).await);
    assert!(world.read(&a, 0..len as u64).await == one && world.read(&b, 0..other.len() as u64).await == other);
    assert!(world.read(&c, 0..1 << 20).await == third);
    world.check(true).await;
}
