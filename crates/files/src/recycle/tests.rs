#![allow(clippy::unwrap_used)]

use larder_base::SystemClock;
use larder_fs::{CreateMode, FsError, SNAPSHOTS_NAME, SetTime, Stability};
use larder_volume::{Backing, MemoryBudget, Properties, Registry, Space};
use object_store::memory::InMemory;

use super::*;

struct Plenty;

impl Space for Plenty {
    fn space(&self) -> (u64, u64) {
        (1 << 40, 1 << 39)
    }
}

const ANN: u32 = 1000;
const BOB: u32 = 1001;

/// A volume, and its files with a bin at the top `share`.
struct Fixture {
    files: Files,
    top: Ino,
    registry: Registry,
}

impl Fixture {
    async fn new() -> Fixture {
        let backing = Backing {
            store: Arc::new(InMemory::new()),
            log: None,
            space: Arc::new(Plenty),
            clock: Arc::new(SystemClock::default()),
        };
        let registry = Registry::open(backing, MemoryBudget { total_bytes: 64 << 20 }).await.unwrap();
        registry.create("v", Properties::default()).await.unwrap();
        let files = Files::alone(registry.volume("v").await.unwrap());
        let top = files.mkdir(&Cred::root(), Ino::ROOT, b"share", mode(0o1777)).await.unwrap().0.id.ino;
        Fixture { files: files.recycling(top), top, registry }
    }

    async fn dir(&self, who: &Cred, dir: Ino, name: &str, bits: u32) -> Ino {
        self.files.mkdir(who, dir, name.as_bytes(), mode(bits)).await.unwrap().0.id.ino
    }

    async fn file(&self, who: &Cred, dir: Ino, name: &str, data: &str) -> Attr {
        let made = self.files.create(who, dir, name.as_bytes(), CreateMode::Guarded, mode(0o640)).await;
        let attr = made.unwrap().0;
        let data = vec![Bytes::copy_from_slice(data.as_bytes())];
        self.files.write(who, attr.id.ino, 0, data, Stability::FileSync).await.unwrap();
        self.files.getattr(attr.id.ino).await.unwrap()
    }

    async fn find(&self, path: &str) -> FsResult<Attr> {
        let mut at = self.files.getattr(self.top).await.unwrap();
        for name in path.split('/') {
            at = self.files.lookup(&Cred::root(), at.id.ino, name.as_bytes(), NameMatch::Exact).await?;
        }
        Ok(at)
    }

    async fn names(&self, dir: Ino) -> Vec<String> {
        let listing = self.files.readdir(&Cred::root(), dir, 0, 1000, false).await.unwrap();
        listing.entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect()
    }

    async fn text(&self, path: &str) -> String {
        let attr = self.find(path).await.unwrap();
        let read = self.files.read(attr.id.ino, 0, 100).await.unwrap();
        String::from_utf8(read.chunks.concat()).unwrap()
    }
}

fn mode(bits: u32) -> SetAttr {
    SetAttr { mode: Some(bits), ..SetAttr::default() }
}

fn user(uid: u32) -> Cred {
    Cred::new(uid, uid, [])
}

#[tokio::test]
async fn a_removed_file_stays_as_it_is_below_its_old_path() {
    let f = Fixture::new().await;
    let ann = user(ANN);
    let docs = f.dir(&ann, f.top, "docs", 0o750).await;
    let deep = f.dir(&ann, docs, "deep", 0o700).await;
    let file = f.file(&ann, deep, "a.txt", "one").await;
    f.files.setxattr(&ann, file.id.ino, b"user.k", b"v", larder_fs::XattrMode::Set).await.unwrap();
    let streams = f.files.named_dir(file.id.ino, true).await.unwrap().unwrap();
    f.file(&Cred::root(), streams, "stream", "beside").await;
    f.files.link(&ann, file.id.ino, f.top, b"other name").await.unwrap();
    let old = SetTime::To(larder_base::Timestamp::new(1_000_000_000, 5));
    f.files.setattr(&ann, file.id.ino, SetAttr { mtime: Some(old), ..SetAttr::default() }).await.unwrap();
    let before = f.files.getattr(file.id.ino).await.unwrap();

    let (after, changed) = f.files.unlink(&ann, deep, b"a.txt").await.unwrap();
    assert_eq!((after.id, after.nlink), (before.id, 2), "the other name counts as before");
    assert_eq!(changed.after.id.ino, deep);
    assert!(matches!(f.find("docs/deep/a.txt").await, Err(FsError::NotFound)));
    let kept = f.find(".recycle/docs/deep/a.txt").await.unwrap();
    assert_eq!((kept.uid, kept.mode, kept.mtime, kept.size), (ANN, 0o640, before.mtime, 3));
    assert_eq!(&f.files.getxattr(&ann, kept.id.ino, b"user.k").await.unwrap()[..], b"v");
    assert_eq!(f.files.named_dir(kept.id.ino, false).await.unwrap(), Some(streams), "its streams come along");
    assert_eq!(f.text(".recycle/docs/deep/a.txt").await, "one");
    for (path, bits) in [(".recycle", 0o1777), (".recycle/docs", 0o750), (".recycle/docs/deep", 0o700)] {
        let folder = f.find(path).await.unwrap();
        assert_eq!(folder.mode, bits, "{path} is as open as what it stands for");
    }

    // A name that is taken, and the same of a folder that has the name of a file in the bin.
    f.file(&ann, deep, "a.txt", "two").await;
    f.files.unlink(&ann, deep, b"a.txt").await.unwrap();
    assert_eq!(f.text(".recycle/docs/deep/a.txt").await, "one");
    assert_eq!(f.text(".recycle/docs/deep/a (2).txt").await, "two");
    f.files.rmdir(&ann, docs, b"deep").await.unwrap();
    assert!(matches!(f.find("docs/deep").await, Err(FsError::NotFound)));
    f.file(&ann, f.top, "x", "file").await;
    f.files.unlink(&ann, f.top, b"x").await.unwrap();
    let x = f.dir(&ann, f.top, "x", 0o755).await;
    f.file(&ann, x, "in it", "y").await;
    f.files.unlink(&ann, x, b"in it").await.unwrap();
    assert_eq!(f.text(".recycle/x (2)/in it").await, "y");

    // A renamed folder is known by its new name.
    f.files.rename(&ann, f.top, b"docs", f.top, b"papers", larder_fs::RenameMode::NoReplace).await.unwrap();
    f.file(&ann, docs, "b", "z").await;
    f.files.unlink(&ann, docs, b"b").await.unwrap();
    assert_eq!(f.text(".recycle/papers/b").await, "z");
}

#[tokio::test]
async fn removals_in_the_bin_and_of_streams_are_real() {
    let f = Fixture::new().await;
    let ann = user(ANN);
    let file = f.file(&ann, f.top, "f", "1").await;
    let streams = f.files.named_dir(file.id.ino, true).await.unwrap().unwrap();
    f.file(&Cred::root(), streams, "s", "1").await;
    f.files.unlink(&Cred::root(), streams, b"s").await.unwrap();
    assert!(matches!(f.find(".recycle").await, Err(FsError::NotFound)), "a stream of a file is not kept");
    let empty = f.dir(&ann, f.top, "empty", 0o755).await;
    let streams = f.files.named_dir(empty, true).await.unwrap().unwrap();
    f.file(&Cred::root(), streams, "s", "1").await;
    f.files.unlink(&Cred::root(), streams, b"s").await.unwrap();
    assert!(matches!(f.find(".recycle").await, Err(FsError::NotFound)), "nor is one of a folder");

    f.files.rmdir(&ann, f.top, b"empty").await.unwrap();
    assert_eq!(f.find(".recycle/empty").await.unwrap().id.ino, empty, "an empty folder is kept");
    f.files.unlink(&ann, f.top, b"f").await.unwrap();
    let bin = f.find(".recycle").await.unwrap().id.ino;
    f.files.unlink(&ann, bin, b"f").await.unwrap();
    f.files.rmdir(&ann, bin, b"empty").await.unwrap();
    assert_eq!(f.names(bin).await, Vec::<String>::new());
    assert!(matches!(f.files.getattr(file.id.ino).await, Err(FsError::Stale)));
    f.files.rmdir(&Cred::root(), f.top, b".recycle").await.unwrap();
    assert_eq!(f.names(f.top).await, Vec::<String>::new());

    // Without a bin, and beside the share, nothing is kept.
    f.file(&ann, f.top, "g", "1").await;
    f.files.outright().unlink(&ann, f.top, b"g").await.unwrap();
    let root = Cred::root();
    f.file(&root, Ino::ROOT, "h", "1").await;
    f.files.unlink(&root, Ino::ROOT, b"h").await.unwrap();
    assert_eq!((f.names(f.top).await, f.names(Ino::ROOT).await), (vec![], vec!["share".to_owned()]));
}

#[tokio::test]
async fn refusals_are_those_of_removals() {
    let f = Fixture::new().await;
    let (ann, bob) = (user(ANN), user(BOB));
    let docs = f.dir(&ann, f.top, "docs", 0o755).await;
    f.file(&ann, docs, "a", "1").await;
    f.file(&ann, f.top, "b", "1").await;
    assert!(matches!(f.files.unlink(&bob, docs, b"a").await, Err(FsError::Access)));
    assert!(matches!(f.files.unlink(&bob, f.top, b"b").await, Err(FsError::NotPermitted)), "the sticky bit");
    assert!(matches!(f.files.unlink(&ann, f.top, b"docs").await, Err(FsError::IsDirectory)));
    assert!(matches!(f.files.rmdir(&ann, f.top, b"b").await, Err(FsError::NotDirectory)));
    assert!(matches!(f.files.rmdir(&ann, f.top, b"docs").await, Err(FsError::NotEmpty)));
    assert!(matches!(f.files.unlink(&ann, f.top, b"none").await, Err(FsError::NotFound)));
    assert!(matches!(f.find(".recycle").await, Err(FsError::NotFound)), "what is refused leaves nothing in the bin");

    // The right to remove is enough: the folders of the bin are made for the user.
    f.files.setattr(&ann, docs, mode(0o777)).await.unwrap();
    f.files.unlink(&bob, docs, b"a").await.unwrap();
    let kept = f.find(".recycle/docs/a").await.unwrap();
    assert_eq!(kept.uid, ANN);
    // A folder that was closed since is closed in the bin too.
    f.files.setattr(&ann, docs, mode(0o700)).await.unwrap();
    f.file(&ann, docs, "c", "1").await;
    f.files.unlink(&ann, docs, b"c").await.unwrap();
    let closed = f.find(".recycle/docs").await.unwrap();
    assert_eq!((closed.mode, closed.uid), (0o700, ANN));
    assert!(matches!(f.files.lookup(&bob, closed.id.ino, b"c", NameMatch::Exact).await, Err(FsError::Access)));

    // Somebody's file has the name of the bin: nothing is removed.
    let f = Fixture::new().await;
    f.file(&ann, f.top, ".recycle", "mine").await;
    f.file(&ann, f.top, "a", "1").await;
    assert!(matches!(f.files.unlink(&ann, f.top, b"a").await, Err(FsError::Exists)));
    assert_eq!(f.text("a").await, "1");
}

/// By a clock that was always right.
pub(crate) fn before(second: i64) -> Age {
    Age { before: second, when: |ctime| ctime }
}

/// A file was removed while the clock said 1970, or the year after this one: the box knows when that was.
#[tokio::test]
async fn thinning_goes_by_what_really_passed() {
    let f = Fixture::new().await;
    let ann = user(ANN);
    f.file(&ann, f.top, "a", "1").await;
    f.files.unlink(&ann, f.top, b"a").await.unwrap();
    // By the wall clock it is older than all times of the box.
    let just_now = Age { before: i64::MAX - 1, when: |_| i64::MAX - 1 };
    assert!(f.files.bin_is_due(just_now), "nobody has looked yet");
    assert_eq!(f.files.thin_bin(just_now).await.unwrap(), 0);
    assert!(!f.files.bin_is_due(just_now), "the oldest is known, and how old it is");
    let long_ago = Age { before: i64::MIN + 1, when: |_| i64::MIN };
    assert!(f.files.bin_is_due(long_ago));
    assert_eq!(f.files.thin_bin(long_ago).await.unwrap(), 1);
}

#[tokio::test]
async fn thinning_goes_by_the_time_of_removal() {
    let f = Fixture::new().await;
    let ann = user(ANN);
    let bin_seconds = async || f.find(".recycle/docs/a").await.map(|attr| attr.ctime.secs);
    assert!(f.files.bin_is_due(before(i64::MAX)), "nobody has looked yet");
    assert_eq!(f.files.thin_bin(before(i64::MAX)).await.unwrap(), 0);
    assert!(!f.files.bin_is_due(before(i64::MAX)), "there is no bin");
    let docs = f.dir(&ann, f.top, "docs", 0o755).await;
    f.file(&ann, docs, "a", "1").await;
    let deep = f.dir(&ann, docs, "deep", 0o755).await;
    f.file(&ann, deep, "b", "1").await;
    f.files.unlink(&ann, docs, b"a").await.unwrap();
    f.files.unlink(&ann, deep, b"b").await.unwrap();
    let removed_at = bin_seconds().await.unwrap();
    assert!(f.files.bin_is_due(before(removed_at + 1)) && !f.files.bin_is_due(before(removed_at)));
    assert_eq!(f.files.thin_bin(before(removed_at - 10)).await.unwrap(), 0);
    assert!(bin_seconds().await.is_ok() && !f.files.bin_is_due(before(removed_at - 10)), "the oldest is known");
    assert!(f.files.bin_is_due(before(i64::MAX)));
    assert_eq!(f.files.thin_bin(before(i64::MAX)).await.unwrap(), 4, "two files and the folders around them");
    let bin = f.find(".recycle").await.unwrap().id.ino;
    assert_eq!(f.names(bin).await, Vec::<String>::new());
    assert!(!f.files.bin_is_due(before(i64::MAX)));
    assert!(f.find("docs/deep").await.is_ok(), "what was not removed stays");
    // All handles of one share have one bin.
    f.file(&ann, docs, "a", "1").await;
    f.files.outright().recycling(f.top).unlink(&ann, docs, b"a").await.unwrap();
    assert!(f.files.bin_is_due(before(i64::MAX)));
}

#[tokio::test]
async fn snapshots_are_listed_where_they_are_to_be() {
    let f = Fixture::new().await;
    let root = Cred::root();
    let shown = f.files.showing_snapshots(f.top);
    let list = async |files: &Files, page: usize| {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let listing = files.readdir_before(&root, f.top, cookie, u64::MAX, page, true).await.unwrap();
            assert!(listing.entries.len() <= page && listing.entries.iter().all(|entry| entry.attr.is_some()));
            names.extend(listing.entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()));
            match listing.entries.last() {
                Some(last) if !listing.eof => cookie = last.cookie,
                _ => return names,
            }
        }
    };
    for name in ["a", "b", "c"] {
        f.file(&root, f.top, name, "1").await;
    }
    assert_eq!(list(&shown, 10).await, ["a", "b", "c"], "there are no snapshots");
    f.registry.volume("v").await.unwrap().snapshot("one").await.unwrap();
    assert_eq!(list(&f.files, 10).await, ["a", "b", "c"], "not unless it is asked for");
    for page in [1, 2, 3, 4, 10] {
        assert_eq!(list(&shown, page).await, ["a", "b", "c", ".snapshots"], "pages of {page}");
    }
    let again = shown.readdir(&root, f.top, 1 << 62, 10, false).await.unwrap();
    assert!(again.entries.is_empty() && again.eof, "nothing comes behind it");
    let folder = f.dir(&root, f.top, "d", 0o755).await;
    assert!(shown.readdir(&root, folder, 0, 10, false).await.unwrap().entries.is_empty(), "only at the top");

    // A user's own entry of the name is the only one.
    let f = Fixture::new().await;
    let own = f.files.mkdir(&root, f.top, SNAPSHOTS_NAME, mode(0o755)).await.unwrap().0.id.ino;
    f.registry.volume("v").await.unwrap().snapshot("one").await.unwrap();
    let listing = f.files.showing_snapshots(f.top).readdir(&root, f.top, 0, 10, false).await.unwrap();
    assert_eq!(listing.entries.iter().map(|entry| entry.ino).collect::<Vec<_>>(), [own]);
}

#[test]
fn suffixes_stand_before_extensions() {
    let check = |name: &str, expected: &str| {
        assert_eq!(String::from_utf8_lossy(&suffixed(name.as_bytes(), "2")), expected);
    };
    check("a.txt", "a (2).txt");
    check("a", "a (2)");
    check(".profile", ".profile (2)");
    check("a.tar.gz", "a.tar (2).gz");
    check("a. a sentence with a dot in it", "a. a sentence with a dot in it (2)");
    let long = suffixed("ä".repeat(127).as_bytes(), "2");
    assert!(long.len() <= NAME_BYTES_MAX && std::str::from_utf8(&long).is_ok());
    let names: Vec<Vec<u8>> = free_names(b"x").collect();
    assert_eq!(names.len(), 1 + COUNTED_MAX - 1 + 1);
    assert_eq!(names[0], b"x");
}
