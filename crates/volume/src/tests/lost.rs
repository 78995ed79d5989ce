//! What a crash takes away: no two contents of a file have one identity (`inode.lost_is_another`).

use std::collections::HashMap;

use larder_base::Timestamp;

use super::snapshots::{put, view};
use super::*;

const FILE_BYTES: usize = 300_000;

/// What clients, snapshots and copies tell contents of one file apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Identity {
    ino: Ino,
    size: u64,
    mtime: Timestamp,
    ctime: Timestamp,
    change: u64,
}

fn identity(attr: &Attr) -> Identity {
    let Attr { id, size, mtime, ctime, change, .. } = *attr;
    Identity { ino: larder_fs::places::then(id.ino), size, mtime, ctime, change }
}

/// Every state of files that anybody has seen, over all lives of the volume.
#[derive(Default)]
struct Seen {
    contents: HashMap<Identity, u64>,
    /// The newest number of changes that was told of each file, and the content that it stands for.
    told: HashMap<Ino, (u64, u64)>,
}

impl Seen {
    async fn look(&mut self, volume: &Volume, files: &[Ino]) {
        for &ino in files {
            let attr = volume.getattr(ino).await.unwrap();
            let content = sum(&read_all(volume, ino).await);
            self.note(&attr, content);
            let told = volume.change_base() + attr.change;
            let (before, was) = self.told.insert(ino, (told, content)).unwrap_or((0, content));
            assert!(told > before || told == before && was == content, "{ino:?}: {before} was told, then {told}");
        }
    }

    async fn look_back(&mut self, volume: &Volume, snapshot: &str) {
        let top = view(volume, snapshot).await.unwrap();
        for name in list(volume, top).await {
            let attr = volume.lookup(&root(), top, name.as_bytes(), NameMatch::Exact).await.unwrap();
            let content = sum(&read_all(volume, attr.id.ino).await);
            self.note(&attr, content);
        }
    }

    fn note(&mut self, attr: &Attr, content: u64) {
        let identity = identity(attr);
        let was = *self.contents.entry(identity).or_insert(content);
        assert_eq!(was, content, "{identity:?} stands for two contents");
    }
}

fn sum(bytes: &[u8]) -> u64 {
    larder_base::checksum::checksum_slices(0, [bytes].into_iter())
}

/// Splitmix64: the same sequence for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        crate::numbers::mix(self.0) % end
    }
}

/// A client that asks for nothing to be durable changes a file whose record becomes durable by another change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_a_crash_took_leave_another_state() {
    let place = Box_::new();
    let mut lost = 0;
    for round in 0..4 {
        let (registry, volume) = place.open().await;
        let f = file(&volume, Ino::ROOT, &format!("f{round}")).await;
        put(&volume, f, 0, vec![1; FILE_BYTES], Stability::FileSync).await;
        put(&volume, f, 5000, vec![2; 100_000], Stability::Unstable).await;
        let old = SetTime::To(Timestamp::new(1_000_000_000, 0));
        volume.setattr(&root(), f, SetAttr { mtime: Some(old), ..SetAttr::default() }).await.unwrap();
        let (then, before) = (volume.getattr(f).await.unwrap(), read_all(&volume, f).await);
        let told = volume.change_base() + then.change;
        let snapshot = format!("s{round}");
        volume.snapshot(&snapshot).await.unwrap();
        drop((registry, volume));

        let (registry, volume) = place.open().await;
        let now = volume.getattr(f).await.unwrap();
        let top = view(&volume, &snapshot).await.unwrap();
        let kept = volume.lookup(&root(), top, format!("f{round}").as_bytes(), NameMatch::Exact).await.unwrap();
        assert_eq!(identity(&kept), identity(&then), "the snapshot shows what was seen");
        assert!(volume.change_base() + now.change > told, "NFSv4 clients read again");
        if read_all(&volume, f).await != before {
            lost += 1;
            assert!(now.mtime.secs != then.mtime.secs && now.ctime != then.ctime && now.change != then.change);
            let diff = volume.diff(&snapshot, None).await.unwrap();
            assert!(diff.iter().any(|found| found.path == format!("/f{round}")), "{diff:?}");
        } else {
            assert_eq!(identity(&now), identity(&then));
        }
        check_clean(&registry).await;
        drop((registry, volume));
    }
    assert!(lost > 0, "everything was stored before the crashes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_identity_stands_for_two_contents_over_crashes() {
    for seed in 0..3 {
        let (place, mut dice, mut seen) = (Box_::new(), Dice(seed), Seen::default());
        let mut files = Vec::new();
        for life in 0..5 {
            let (registry, volume) = place.open().await;
            if life == 0 {
                for n in 0..4 {
                    files.push(file(&volume, Ino::ROOT, &format!("f{n}")).await);
                }
            }
            seen.look(&volume, &files).await;
            for step in 0..dice.below(30) {
                change(&volume, &mut dice, &files).await;
                seen.look(&volume, &files).await;
                if dice.below(8) == 0 {
                    let name = format!("s{life}-{step}");
                    volume.snapshot(&name).await.unwrap();
                    seen.look_back(&volume, &name).await;
                }
            }
            for snapshot in volume.snapshots() {
                seen.look_back(&volume, &snapshot.name).await;
            }
            if dice.below(4) == 0 {
                registry.close().await.unwrap();
            }
            drop((registry, volume));
        }
    }
}

async fn change(volume: &Volume, dice: &mut Dice, files: &[Ino]) {
    let one = |dice: &mut Dice| files[dice.below(files.len() as u64) as usize];
    let f = one(dice);
    let at = dice.below(FILE_BYTES as u64);
    let set = SetAttr::default();
    match dice.below(12) {
        0..=4 => {
            let len = 1 + dice.below(60_000) as usize;
            put(volume, f, at, vec![dice.below(256) as u8; len], Stability::Unstable).await;
        }
        5 => put(volume, f, at, vec![dice.below(256) as u8; 3000], Stability::FileSync).await,
        6 => drop(volume.commit(f).await.unwrap()),
        7 => drop(volume.setattr(&root(), f, SetAttr { size: Some(at), ..set }).await.unwrap()),
        8 => drop(volume.setattr(&root(), f, SetAttr { mode: Some(at as u32 & 0o777), ..set }).await.unwrap()),
        9 => {
            let mtime = Some(SetTime::To(Timestamp::new(7, 0)));
            volume.setattr(&root(), f, SetAttr { mtime, ..set }).await.unwrap();
        }
        10 => drop(volume.allocate(&root(), f, at, 10_000, AllocateMode::PunchHole).await.unwrap()),
        _ => {
            let from = one(dice);
            let size = volume.getattr(from).await.unwrap().size / 4096 * 4096;
            if from != f && size > 0 {
                volume.clone_range(&root(), (from, 0), (f, 0), size).await.unwrap();
            }
        }
    }
}

/// A clock without a battery: the base of what NFSv4 clients are told grows all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_that_were_told_grow_with_a_clock_that_goes_back() {
    struct Far(i64);
    impl larder_base::Clock for Far {
        fn now(&self) -> Timestamp {
            Timestamp::new(self.0, 0)
        }
        fn elapsed(&self) -> std::time::Duration {
            larder_base::clock::since_boot()
        }
    }
    let (place, mut before) = (Box_::new(), 0);
    for secs in [4_000_000_000, 1_700_000_000, 0, 5, 1_700_000_000, 4_000_000_000] {
        let backing = Backing { clock: Arc::new(Far(secs)), ..place.backing() };
        let registry = Registry::open(backing, MemoryBudget { total_bytes: 64 << 20 }).await.unwrap();
        let _ = registry.create("v", Properties::default()).await;
        let volume = registry.volume("v").await.unwrap();
        assert!(volume.change_base() > before, "{secs}: {} after {before}", volume.change_base());
        before = volume.change_base();
        drop((registry, volume));
    }
}
