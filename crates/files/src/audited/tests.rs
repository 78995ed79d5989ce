#![allow(clippy::unwrap_used)]

use larder_base::SystemClock;
use larder_fs::{CreateMode, RenameMode, SetAttr};
use larder_volume::{Backing, MemoryBudget, Properties, Registry, Space};
use object_store::memory::InMemory;

use super::*;
use crate::audit::{FileActs, NAMES_MAX, Names};
use parking_lot::Mutex;

struct Plenty;

impl Space for Plenty {
    fn space(&self) -> (u64, u64) {
        (1 << 40, 1 << 39)
    }
}

/// An audited share of a folder of a volume, and what was told.
struct Share {
    files: Files,
    audit: Arc<FileAudit>,
    told: Arc<Mutex<Vec<FileOperation>>>,
    top: Ino,
    _registry: Registry,
}

impl Share {
    async fn new() -> Share {
        let clock = Arc::new(SystemClock::default());
        let backing = Backing { store: Arc::new(InMemory::new()), log: None, space: Arc::new(Plenty), clock };
        let registry = Registry::open(backing, MemoryBudget { total_bytes: 64 << 20 }).await.unwrap();
        registry.create("v", Properties::default()).await.unwrap();
        let files = Files::alone(registry.volume("v").await.unwrap());
        let top = files.mkdir(&Cred::root(), Ino::ROOT, b"shared", SetAttr::default()).await.unwrap().0.id.ino;
        let told: Arc<Mutex<Vec<FileOperation>>> = Arc::default();
        let teller = Arc::clone(&told);
        let audit = FileAudit::new(top, move |operation| teller.lock().push(operation));
        Share { files: files.for_door(7).audited(Arc::clone(&audit)), audit, told, top, _registry: registry }
    }

    fn take(&self) -> Vec<String> {
        let told = std::mem::take(&mut *self.told.lock());
        let line = |one: FileOperation| {
            assert_eq!((one.door, one.address), (7, Some([10, 0, 0, 9].into())));
            let to = one.to.map_or_else(String::new, |to| format!(" -> {to}"));
            format!("{} {} {}{to}", one.user, one.act.word(), one.path)
        };
        told.into_iter().map(line).collect()
    }
}

fn ann() -> Cred {
    Cred::root().of_client(Some([10, 0, 0, 9].into()), Some("ann"))
}

async fn made(files: &Files, dir: Ino, name: &str) -> Ino {
    let set = SetAttr::default();
    files.create(&ann(), dir, name.as_bytes(), CreateMode::Guarded, set).await.unwrap().0.id.ino
}

#[tokio::test]
async fn each_act_is_told_with_its_paths() {
    let share = Share::new().await;
    let (files, set) = (&share.files, SetAttr::default());
    made(files, share.top, "before").await;
    assert!(share.take().is_empty(), "nothing is audited yet");
    share.audit.set_acts(FileActs::of(FileAct::ALL));
    let dir = files.mkdir(&ann(), share.top, b"letters", set).await.unwrap().0.id.ino;
    let file = made(files, dir, "a").await;
    assert!(files.create(&ann(), dir, b"a", CreateMode::Guarded, set).await.is_err(), "not done, not told");
    files.create(&ann(), dir, b"a", CreateMode::Unchecked, set).await.unwrap();
    files.setattr(&ann(), file, SetAttr { mode: Some(0o600), ..set }).await.unwrap();
    files.setattr(&ann(), file, SetAttr { size: Some(9), ..set }).await.unwrap();
    files.link(&ann(), file, share.top, b"b").await.unwrap();
    files.rename(&ann(), dir, b"a", share.top, b"c", RenameMode::Replace).await.unwrap();
    files.rename(&ann(), share.top, b"letters", share.top, b"notes", RenameMode::Replace).await.unwrap();
    made(files, dir, "d").await;
    files.unlink(&ann(), dir, b"d").await.unwrap();
    files.rmdir(&ann(), share.top, b"notes").await.unwrap();
    let expected = [
        "ann created letters",
        "ann created letters/a",
        "ann permissions letters/a",
        "ann created b",
        "ann renamed letters/a -> c",
        "ann renamed letters -> notes",
        "ann created notes/d",
        "ann removed notes/d",
        "ann removed notes",
    ];
    assert_eq!(share.take(), expected);
    share.audit.set_acts(FileActs::of([FileAct::Removed]));
    made(files, share.top, "e").await;
    files.unlink(&ann(), share.top, b"e").await.unwrap();
    assert_eq!(share.take(), ["ann removed e"], "only what was chosen");
}

/// `fileaudit.never_waits`
#[tokio::test]
async fn a_handle_from_before_the_start_has_its_path() {
    let share = Share::new().await;
    let set = SetAttr::default();
    let mut dir = share.top;
    for name in ["a", "b", "c"] {
        dir = share.files.mkdir(&ann(), dir, name.as_bytes(), set).await.unwrap().0.id.ino;
    }
    let file = made(&share.files, dir, "f").await;
    share.audit.set_acts(FileActs::of(FileAct::ALL));
    made(&share.files, dir, "new").await;
    share.files.setattr(&ann(), dir, SetAttr { mode: Some(0o700), ..set }).await.unwrap();
    share.files.setattr(&ann(), file, SetAttr { mode: Some(0o600), ..set }).await.unwrap();
    share.files.lookup(&ann(), dir, b"f", NameMatch::Exact).await.unwrap();
    share.files.setattr(&ann(), file, SetAttr { mode: Some(0o600), ..set }).await.unwrap();
    let unnamed = format!("ann permissions <inode {}>", file.0);
    assert_eq!(share.take(), ["ann created a/b/c/new", "ann permissions a/b/c", &unnamed, "ann permissions a/b/c/f"]);
}

/// `fileaudit.names_bounded`
#[test]
fn names_are_bounded_and_those_in_use_stay() {
    let mut names = Names::default();
    for n in 0..NAMES_MAX as u64 * 3 {
        names.put(Ino(n), Ino(1), b"x");
        if n % 100 == 0 {
            names.put(Ino(7), Ino(1), b"seven");
        }
    }
    assert!(names.young.len() + names.old.len() <= NAMES_MAX);
    assert_eq!(names.get(Ino(7)), Some((Ino(1), Bytes::from_static(b"seven"))));
    assert_eq!(names.get(Ino(8)), None);
}
