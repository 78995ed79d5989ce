//! Which duties each operation does, and in which order.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use futures::future::BoxFuture;
use larder_base::SystemClock;
use larder_fs::NameMatch;
use larder_opens::{Caches, Door};
use larder_volume::{Backing, MemoryBudget, Properties, Registry, Space};
use object_store::memory::InMemory;

use super::*;
use crate::Services;
use crate::audit::{FileAct, FileActs, FileAudit};
use crate::facts::DONE;
use crate::folders::Folders;
use crate::guard::{Guard, GuardMode, Suspect};

struct Plenty;

impl Space for Plenty {
    fn space(&self) -> (u64, u64) {
        (1 << 40, 1 << 39)
    }
}

/// Another door.
struct Other;

impl Door for Other {}

const BYTES: usize = 512 << 10;
// As they are stored, and as the client calls them.
const TEXT: (&str, &str) = ("te\u{301}xt", "t\u{e9}xt");
const NOISE: (&str, &str) = ("no\u{308}ise", "n\u{f6}ise");
const EMPTY: (&str, &str) = ("e\u{301}mpty", "\u{e9}mpty");
const NEW: &[u8] = "n\u{e9}w".as_bytes();

/// A share with everything on, and a client that the guard suspects.
struct Share {
    files: Files,
    guard: Arc<Guard>,
    ann: Cred,
    top: Ino,
    text: Ino,
    noise: Ino,
    _other: Arc<Other>,
    _registry: Option<Registry>,
}

impl Share {
    async fn of_volume() -> Share {
        let clock = Arc::new(SystemClock::default());
        let backing = Backing { store: Arc::new(InMemory::new()), log: None, space: Arc::new(Plenty), clock };
        let registry = Registry::open(backing, MemoryBudget { total_bytes: 64 << 20 }).await.unwrap();
        registry.create("v", Properties::default()).await.unwrap();
        let files = Services::default().of(registry.volume("v").await.unwrap());
        Share { _registry: Some(registry), ..Self::of(files, Ino::ROOT).await }
    }

    async fn of(files: Files, top: Ino) -> Share {
        let root = Cred::root();
        let mut made = Vec::new();
        for (name, data) in [(TEXT.0, b"Dear Ann, ".repeat(BYTES / 10)), (NOISE.0, noise())] {
            let file =
                files.create(&root, top, name.as_bytes(), CreateMode::Guarded, SetAttr::default()).await.unwrap();
            made.push(file.0.id.ino);
            files.write(&root, file.0.id.ino, 0, vec![data.into()], Stability::Unstable).await.unwrap();
        }
        files.mkdir(&root, top, EMPTY.0.as_bytes(), SetAttr::default()).await.unwrap();
        let other = Arc::new(Other);
        files.for_door(8).add_door(Arc::downgrade(&(Arc::clone(&other) as Arc<dyn Door>)));
        let guard = Guard::new(Arc::new(SystemClock::default()), |_| {});
        let ann = Cred::root().of_client(Some([10, 0, 0, 9].into()), Some("ann"));
        for n in 0..8 {
            guard.count(&ann, |record| record.wrote_formless(Ino(9000 + n), true, None));
        }
        let audit = FileAudit::new(top, |_| {});
        audit.set_acts(FileActs::of(FileAct::ALL));
        let files = files.for_door(7).guarded(Arc::clone(&guard)).audited(audit).ignoring_forms().bounded(1 << 30);
        let (text, noise) = (made[0], made[1]);
        Share { files: files.recycling(top), guard, ann, top, text, noise, _other: other, _registry: None }
    }

    /// The duties of an operation, each once where it comes twice in a row.
    async fn duties(&self, act: &Act) -> (String, FsResult<()>) {
        DONE.take();
        let done = act(self).await;
        let mut duties = DONE.take();
        duties.dedup();
        (duties.iter().map(word).collect::<Vec<_>>().join(" "), done)
    }
}

fn word(duty: &Duty) -> String {
    match duty {
        Duty::Recall(what) => {
            let words = [
                (Caches::DATA, "data"),
                (Caches::WRITES, "writes"),
                (Caches::HANDLES, "handles"),
                (Caches::ATTRIBUTES, "attributes"),
            ];
            let word = words.into_iter().find(|(caches, _)| caches == what).unwrap().1;
            format!("recall:{word}")
        }
        Duty::Audit(act) => format!("audit:{}", act.word()),
        other => format!("{other:?}").to_lowercase(),
    }
}

/// Bytes that pass for encrypted ones.
fn noise() -> Vec<u8> {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..BYTES).map(|_| next()).collect()
}

/// A POSIX list that is no more than mode 0644.
fn posix_list() -> Vec<u8> {
    let entries = [(1_u16, 6_u16), (4, 4), (0x20, 4)];
    let entry = |(tag, bits): (u16, u16)| [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &[255; 4]].concat();
    [2_u32.to_le_bytes().to_vec(), entries.into_iter().flat_map(entry).collect()].concat()
}

type Act = for<'s> fn(&'s Share) -> BoxFuture<'s, FsResult<()>>;

macro_rules! acts {
    ($($name:literal => $duties:literal, $share:ident: $act:expr;)*) => {
        [$(($name, $duties, (|$share| Box::pin(async move { $act.await.map(drop) })) as Act)),*]
    };
}

fn set(size: Option<u64>, mode: Option<u32>) -> SetAttr {
    SetAttr { size, mode, ..SetAttr::default() }
}

fn all() -> Vec<(&'static str, &'static str, Act)> {
    let data = acts! {
        "write, formless" => "block bound guard recall:data tree guard witnesses",
            s: s.files.write(&s.ann, s.text, 0, vec![noise().into()], Stability::Unstable);
        "write, with a form" => "block bound recall:data tree witnesses",
            s: s.files.write(&s.ann, s.text, 0, vec![b"Dear Bob, ".repeat(400).into()], Stability::Unstable);
        "write, far behind" => "block bound recall:data tree witnesses",
            s: s.files.write(&s.ann, s.text, 1 << 20, vec![noise().into()], Stability::Unstable);
        // Nothing that was there is lost (`guard.loss_counts`).
        "append" => "block bound recall:data tree witnesses",
            s: s.files.append(&s.ann, s.text, vec![noise().into()], Stability::Unstable);
        "allocate" => "block bound recall:data tree witnesses",
            s: s.files.allocate(&s.ann, s.text, 0, 1 << 20, AllocateMode::Zero);
        "empty" => "block guard recall:data tree guard witnesses",
            s: s.files.setattr(&s.ann, s.text, set(Some(0), None));
        "make longer" => "block recall:data tree witnesses",
            s: s.files.setattr(&s.ann, s.text, set(Some(1 << 20), None));
        "clone a range" => "block bound guard recall:writes recall:data tree guard witnesses",
            s: s.files.clone_range(&s.ann, (s.noise, 0), (s.text, 0), BYTES as u64);
        "copy a range" => "block bound guard recall:writes recall:data tree guard witnesses",
            s: s.files.copy_range(&s.ann, (s.noise, 0), (s.text, 0), BYTES as u64);
        "copy a range with a form" => "block bound guard recall:writes recall:data tree witnesses",
            s: s.files.copy_range(&s.ann, (s.text, 0), (s.noise, 0), BYTES as u64);
    };
    let attributes = acts! {
        "set the mode" => "block recall:attributes tree audit:permissions witnesses",
            s: s.files.setattr(&s.ann, s.text, set(None, Some(0o600)));
        "set no right" => "block recall:attributes tree witnesses",
            s: s.files.setattr(&s.ann, s.text, SetAttr::default());
        "set a list" => "block recall:attributes tree audit:permissions witnesses",
            s: s.files.set_acl(&s.ann, s.text, SetAttr::default(), None);
        "set an attribute" => "block recall:attributes tree witnesses",
            s: s.files.setxattr(&s.ann, s.text, b"user.a", b"1", XattrMode::Set);
        "set a list as an attribute" => "block recall:attributes tree audit:permissions witnesses",
            s: s.files.setxattr(&s.ann, s.text, b"system.posix_acl_access", &posix_list(), XattrMode::Set);
        "remove an attribute" => "block recall:attributes tree witnesses",
            s: async {
                s.files.tree.setxattr(&s.ann, s.text, b"user.a", b"1", XattrMode::Set).await?;
                s.files.removexattr(&s.ann, s.text, b"user.a").await
            };
        "remove all streams" => "block recall:attributes tree witnesses",
            s: s.files.remove_named(&s.ann, s.text);
    };
    let names = acts! {
        "create" => "block spelling tree guard audit:created witnesses",
            s: s.files.create(&s.ann, s.top, NEW, CreateMode::Guarded, SetAttr::default());
        "create over a file" => "block spelling guard recall:data tree guard witnesses",
            s: s.files.create(&s.ann, s.top, TEXT.1.as_bytes(), CreateMode::Unchecked, set(Some(0), None));
        "create where a file is" => "block spelling tree witnesses",
            s: s.files.create(&s.ann, s.top, TEXT.1.as_bytes(), CreateMode::Unchecked, SetAttr::default());
        // Nobody sees it yet.
        "create without a name" => "block tree guard",
            s: s.files.create_unnamed(&s.ann, s.top, SetAttr::default());
        "make without a name" => "block tree guard",
            s: s.files.make_unnamed(&s.ann, s.top, Unnamed::File, SetAttr::default());
        "mkdir" => "block spelling tree audit:created witnesses",
            s: s.files.mkdir(&s.ann, s.top, NEW, SetAttr::default());
        "mknod" => "block spelling tree audit:created witnesses",
            s: s.files.mknod(&s.ann, s.top, NEW, FileKind::Fifo, (0, 0), SetAttr::default());
        "symlink" => "block spelling tree audit:created witnesses",
            s: s.files.symlink(&s.ann, s.top, NEW, b"to", SetAttr::default());
        "link" => "block spelling recall:attributes tree audit:created witnesses",
            s: s.files.link(&s.ann, s.text, s.top, NEW);
        "relink" => "block spelling guard recall:handles tree guard audit:created witnesses",
            s: s.files.relink(&s.ann, s.noise, s.top, TEXT.1.as_bytes());
        "relink over a file" => "block spelling guard recall:handles tree guard audit:created witnesses",
            s: s.files.relink_over(&s.ann, s.noise, s.top, TEXT.1.as_bytes(), s.text);
        "unlink" => "block spelling guard recall:handles bin guard audit:removed witnesses",
            s: s.files.unlink(&s.ann, s.top, TEXT.1.as_bytes());
        "rmdir" => "block spelling guard recall:handles bin guard audit:removed witnesses",
            s: s.files.rmdir(&s.ann, s.top, EMPTY.1.as_bytes());
        "unlink for good" => "block spelling guard recall:handles tree guard audit:removed witnesses",
            s: async { s.files.outright().unlink(&s.ann, s.top, TEXT.1.as_bytes()).await };
        "rmdir for good" => "block spelling guard recall:handles tree guard audit:removed witnesses",
            s: async { s.files.outright().rmdir(&s.ann, s.top, EMPTY.1.as_bytes()).await };
        "rename" => "block spelling guard recall:handles tree guard audit:renamed witnesses",
            s: s.files.rename(&s.ann, s.top, NOISE.1.as_bytes(), s.top, TEXT.1.as_bytes(), RenameMode::Replace);
        "exchange" => "block spelling guard recall:handles tree guard audit:renamed witnesses",
            s: s.files.rename(&s.ann, s.top, NOISE.1.as_bytes(), s.top, TEXT.1.as_bytes(), RenameMode::Exchange);
    };
    data.into_iter().chain(attributes).chain(names).collect()
}

#[tokio::test]
async fn each_operation_does_its_duties_in_order() {
    let mut wrong = Vec::new();
    for (name, expected, act) in all() {
        let share = Share::of_volume().await;
        let (duties, done) = share.duties(&act).await;
        done.unwrap_or_else(|error| panic!("{name}: {error}"));
        if duties != expected {
            wrong.push(format!("{name}: {duties}\n    instead of: {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn a_blocked_client_gets_to_no_other_duty() {
    for (name, _, act) in all() {
        let share = Share::of_volume().await;
        share.guard.set_mode(GuardMode::Block);
        let suspect = Suspect { user: "ann".to_owned(), address: share.ann.client.address };
        share.guard.restore(suspect, true);
        let (duties, done) = share.duties(&act).await;
        assert!(matches!(done, Err(FsError::Access)), "{name}: {done:?}");
        assert_eq!(duties, "block", "{name}");
    }
}

#[tokio::test]
async fn a_refusal_ends_the_chain_and_a_failure_does_not() {
    let rows: [(&str, Act); 5] = [
        ("block bound", |s| {
            Box::pin(async move {
                s.files.bounded(1).append(&s.ann, s.text, vec![noise().into()], Stability::Unstable).await.map(drop)
            })
        }),
        ("block bound", |s| {
            Box::pin(async move {
                let (source, target) = ((s.noise, 0), (s.text, BYTES as u64));
                s.files.bounded(1).clone_range(&s.ann, source, target, BYTES as u64).await.map(drop)
            })
        }),
        ("block spelling guard recall:handles", |s| {
            Box::pin(async move {
                let (entry, _file) = s.files.for_door(8).open(s.text, Uses::READ).await?.into_parts();
                entry.claim(Uses::READ, Uses::DELETE, false).unwrap();
                DONE.take();
                s.files.unlink(&s.ann, s.top, TEXT.1.as_bytes()).await.map(drop)
            })
        }),
        ("block spelling tree witnesses", |s| {
            Box::pin(
                async move { s.files.mkdir(&s.ann, s.top, EMPTY.1.as_bytes(), SetAttr::default()).await.map(drop) },
            )
        }),
        ("block recall:attributes tree witnesses", |s| {
            Box::pin(async move { s.files.removexattr(&s.ann, s.text, b"user.none").await })
        }),
    ];
    for (expected, act) in rows {
        let (duties, done) = Share::of_volume().await.duties(&act).await;
        assert_eq!((duties.as_str(), done.is_err()), (expected, true), "{done:?}");
    }
}

#[tokio::test]
async fn a_copy_on_the_host_does_the_duties_of_a_clone() {
    let dir = tempfile::tempdir().unwrap();
    let found = Folders::default().open(dir.path()).unwrap();
    let share = Share::of(found.files, found.top).await;
    let (_, expected, act) = all().into_iter().find(|(name, ..)| *name == "copy a range").unwrap();
    let (duties, done) = share.duties(&act).await;
    done.unwrap();
    assert_eq!(duties, expected);
}

#[tokio::test]
async fn entries_are_those_that_are_stored() {
    let share = Share::of_volume().await;
    let (files, ann) = (&share.files, &share.ann);
    let is_there =
        async |name: &str| files.tree.lookup(ann, share.top, name.as_bytes(), NameMatch::Exact).await.is_ok();
    files.rename(ann, share.top, TEXT.1.as_bytes(), share.top, NOISE.1.as_bytes(), RenameMode::Replace).await.unwrap();
    assert!(!is_there(TEXT.0).await && is_there(NOISE.0).await && !is_there(NOISE.1).await);
    // Its own other form.
    files.rename(ann, share.top, NOISE.0.as_bytes(), share.top, NOISE.1.as_bytes(), RenameMode::Replace).await.unwrap();
    assert!(!is_there(NOISE.0).await && is_there(NOISE.1).await);
}
