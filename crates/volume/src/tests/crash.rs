//! Acknowledged changes survive a crash: everything is dropped without being closed, and opened
//! again.

use larder_base::LogError;
use larder_base::log::{LogEntry, Receipt};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_changes_survive() {
    for log in [true, false] {
        let mut place = Box_::new();
        if !log {
            place.log = None;
        }
        let mut id = None;
        for round in 0..3 {
            let (registry, volume) = place.open().await;
            if round == 0 {
                let d = dir(&volume, Ino::ROOT, "d").await;
                let f = file(&volume, d, "f").await;
                volume.write(&root(), f, 0, bytes("durable"), Stability::FileSync).await.unwrap();
                volume.symlink(&root(), d, b"l", b"f", SetAttr::default()).await.unwrap();
                id = Some(volume.getattr(f).await.unwrap().id);
            }
            let attr = volume.resolve(id.unwrap()).await.unwrap();
            assert_eq!((attr.size, read_all(&volume, attr.id.ino).await), (7, b"durable".to_vec()));
            let d = volume.lookup(&root(), Ino::ROOT, b"d", NameMatch::Exact).await.unwrap().id.ino;
            assert_eq!(list(&volume, d).await.len(), 2 + round);
            file(&volume, d, &format!("round{round}")).await;
            check_clean(&registry).await;
            drop((registry, volume));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_closed_cleanly_opens_again() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let f = file(&volume, Ino::ROOT, "f").await;
    volume.write(&root(), f, 0, bytes("unstable"), Stability::Unstable).await.unwrap();
    let verifier = volume.verifier();
    registry.close().await.unwrap();
    assert!(err(volume.mkdir(&root(), Ino::ROOT, b"late", SetAttr::default()).await).contains("closed"));
    drop((registry, volume));
    let (registry, volume) = place.open().await;
    assert_eq!(read_all(&volume, f).await, b"unstable");
    assert_ne!(volume.verifier(), verifier);
    let new = file(&volume, Ino::ROOT, "g").await;
    assert!(new > f);
    check_clean(&registry).await;
    registry.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn open_and_unlinked_files_are_swept() {
    let place = Box_::new();
    {
        let (registry, volume) = place.open().await;
        let f = file(&volume, Ino::ROOT, "f").await;
        volume.write(&root(), f, 0, bytes("orphan"), Stability::FileSync).await.unwrap();
        let open = volume.open(f).await.unwrap();
        volume.unlink(&root(), Ino::ROOT, b"f").await.unwrap();
        std::mem::forget(open);
        drop((registry, volume));
    }
    let (registry, _volume) = place.open().await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let report = registry.check("v", true).await.unwrap();
    assert_eq!((report.inodes, report.problems), (1, vec![]));
}

/// 32 tasks make, link, rename and remove; at a random moment everything is dropped.
#[tokio::test(flavor = "multi_thread")]
async fn crashes_under_load() {
    let place = Box_::new();
    for round in 0..4u64 {
        let (registry, volume) = place.open().await;
        let acknowledged = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..32 {
            let (volume, acknowledged) = (volume.clone(), Arc::clone(&acknowledged));
            tasks.spawn(async move {
                for i in 0.. {
                    let name = format!("{round}-{task}-{i}");
                    let f = file(&volume, Ino::ROOT, &name).await;
                    if i % 3 == 0 {
                        volume.write(&root(), f, 0, bytes(&name), Stability::FileSync).await.unwrap();
                    }
                    let moved = format!("m{name}");
                    volume
                        .rename(&root(), Ino::ROOT, name.as_bytes(), Ino::ROOT, moved.as_bytes(), RenameMode::Replace)
                        .await
                        .unwrap();
                    if i % 2 == 1 {
                        volume.unlink(&root(), Ino::ROOT, moved.as_bytes()).await.unwrap();
                    } else {
                        acknowledged.lock().push((moved, i % 3 == 0, name));
                    }
                }
            });
        }
        tokio::time::sleep(std::time::Duration::from_millis(150 + 70 * round)).await;
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
        let acknowledged = std::mem::take(&mut *acknowledged.lock());
        drop((registry, volume));
        let (registry, volume) = place.open().await;
        assert!(!acknowledged.is_empty());
        for (name, written, content) in acknowledged {
            let attr = volume.lookup(&root(), Ino::ROOT, name.as_bytes(), NameMatch::Exact).await.unwrap();
            if written {
                assert_eq!(read_all(&volume, attr.id.ino).await, content.as_bytes());
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        check_clean(&registry).await;
        drop((registry, volume));
    }
}

/// `meta.poison_after_failure`: a volume whose log failed for a while is opened anew in the same process, with all
/// that was acknowledged and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_stopped_storing_is_opened_anew() {
    let mut place = Box_::new();
    let log = Arc::new(FailingLog { inner: MemLog::default(), fails: false.into() });
    place.log = Some(log.clone());
    let (registry, mut volume) = place.open().await;
    let verifier = volume.verifier();
    let f = file(&volume, Ino::ROOT, "f").await;
    for round in 0..3u8 {
        volume.write(&root(), f, u64::from(round), bytes("durable"), Stability::FileSync).await.unwrap();
        assert!(registry.failed().is_empty() && volume.fault().is_none());
        log.fails.store(true, Ordering::SeqCst);
        assert!(volume.write(&root(), f, 0, bytes("gone"), Stability::FileSync).await.is_err());
        assert!(volume.mkdir(&root(), Ino::ROOT, b"gone", SetAttr::default()).await.is_err());
        log.fails.store(false, Ordering::SeqCst);
        assert!(volume.mkdir(&root(), Ino::ROOT, b"later", SetAttr::default()).await.is_err(), "it says so");
        // The engine's end is told by a task of its own.
        for _ in 0..200 {
            if !registry.failed().is_empty() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert_eq!(registry.failed(), ["v"]);
        assert!(matches!(registry.open_anew("v").await, Err(FsError::Busy(_))), "somebody uses it");
        drop(volume);
        registry.open_anew("v").await.unwrap();
        volume = registry.volume("v").await.unwrap();
        assert_ne!(volume.verifier(), verifier);
        let mut expected = b"dd"[..usize::from(round)].to_vec();
        expected.extend(b"durable");
        assert_eq!(read_all(&volume, f).await, expected);
        assert!(volume.lookup(&root(), Ino::ROOT, b"gone", NameMatch::Exact).await.is_err());
        file(&volume, Ino::ROOT, &format!("after{round}")).await;
    }
    registry.open_anew("v").await.unwrap();
    check_clean(&registry).await;
    drop(volume);
    registry.close().await.unwrap();
}

/// A log on disks that are away for a while.
struct FailingLog {
    inner: MemLog,
    fails: std::sync::atomic::AtomicBool,
}

#[async_trait::async_trait]
impl LogStore for FailingLog {
    async fn begin(&self, stream: &str, id: u64, payload: Vec<Bytes>) -> Result<Receipt, LogError> {
        match self.fails.load(Ordering::SeqCst) {
            true => Err(LogError::Poisoned("its disks are away".into())),
            false => self.inner.begin(stream, id, payload).await,
        }
    }

    async fn replay(&self, stream: &str, after: u64) -> Result<Vec<LogEntry>, LogError> {
        self.inner.replay(stream, after).await
    }

    async fn trim(&self, stream: &str, through: u64) -> Result<(), LogError> {
        self.inner.trim(stream, through).await
    }

    async fn remove(&self, stream: &str) -> Result<(), LogError> {
        self.inner.remove(stream).await
    }

    fn usage(&self) -> (u64, u64) {
        self.inner.usage()
    }

    fn held_bytes(&self, stream: &str) -> u64 {
        self.inner.held_bytes(stream)
    }
}
