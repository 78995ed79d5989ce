#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use larder_base::SystemClock;
use larder_fs::FileId;
use larder_fs::acl::{Acl, READ_DATA, Rule, Who};
use larder_volume::{Backing, MemoryBudget, Properties, Registry, Space};
use object_store::memory::InMemory;

use super::*;
use crate::Services;

struct Plenty;

impl Space for Plenty {
    fn space(&self) -> (u64, u64) {
        (1 << 40, 1 << 39)
    }
}

const NEVER: Stop<'static> = &|| false;
/// Deeper than native stacks reached.
const DEEP: usize = 4000;

/// Two volumes, each with a folder of ann's.
struct Fixture {
    one: Files,
    other: Files,
    ann: Cred,
    home: Ino,
    other_home: Ino,
    _registry: Registry,
}

fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
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
        let (services, ann, mut made) = (Services::default(), Cred::new(1000, 1000, [1000]), Vec::new());
        for name in ["one", "other"] {
            registry.create(name, Properties::default()).await.unwrap();
            let files = services.of(registry.volume(name).await.unwrap()).ordered();
            let set = SetAttr { uid: Some(1000), gid: Some(1000), ..mode(0o755) };
            let home = files.mkdir(&Cred::root(), Ino::ROOT, b"ann", set).await.unwrap().0.id.ino;
            made.push((files, home));
        }
        let (Some((other, other_home)), Some((one, home))) = (made.pop(), made.pop()) else { unreachable!() };
        Fixture { one, other, ann, home, other_home, _registry: registry }
    }

    fn copying(&self, from: &Files, to: &Files, keep: Keep) -> Copying {
        let (reader, writer) = (self.ann.clone(), self.ann.clone());
        let (from, to) = (from.clone(), to.clone());
        Copying { from, reader, to, writer, keep, heir: None, is_shallow: false, mtime: None }
    }

    async fn file(&self, dir: Ino, name: &str, data: &[u8]) -> Attr {
        let made = self.one.create(&self.ann, dir, name.as_bytes(), CreateMode::Guarded, mode(0o640)).await;
        let ino = made.unwrap().0.id.ino;
        let data = vec![Bytes::copy_from_slice(data)];
        self.one.write(&self.ann, ino, 0, data, Stability::Unstable).await.unwrap();
        self.one.getattr(ino).await.unwrap()
    }

    async fn dir(&self, dir: Ino, name: &str) -> Attr {
        self.one.mkdir(&self.ann, dir, name.as_bytes(), mode(0o755)).await.unwrap().0
    }

    async fn chain(&self, levels: usize) -> Attr {
        let top = self.dir(self.home, "deep").await;
        let mut at = top.id.ino;
        for _ in 1..levels {
            at = self.dir(at, "d").await.id.ino;
        }
        self.file(at, "leaf", b"down here").await;
        top
    }
}

async fn depth(files: &Files, top: Ino) -> usize {
    let (mut at, mut levels) = (top, 1);
    while let Ok(below) = files.lookup(&Cred::root(), at, b"d", NameMatch::Exact).await {
        (at, levels) = (below.id.ino, levels + 1);
    }
    assert!(files.lookup(&Cred::root(), at, b"leaf", NameMatch::Exact).await.is_ok());
    levels
}

async fn content(files: &Files, ino: Ino) -> Vec<u8> {
    files.read(ino, 0, 1 << 20).await.unwrap().chunks.concat()
}

#[tokio::test]
async fn a_copy_has_everything() {
    let f = Fixture::new().await;
    let (root, ann) = (Cred::root(), &f.ann);
    let folder = f.dir(f.home, "album").await;
    let file = f.file(folder.id.ino, "photo", b"pixels").await;
    let (ino, time) = (file.id.ino, |secs| SetTime::To(Timestamp::new(secs, 7)));
    // A hole at its end, a stream, an attribute, a list, times, and what Windows knows of it.
    f.one.setattr(ann, ino, SetAttr { size: Some(3 << 20), ..SetAttr::default() }).await.unwrap();
    for of in [ino, folder.id.ino] {
        let streams = f.one.named_dir(of, true).await.unwrap().unwrap();
        let stream = f.one.create(&root, streams, b"Zone.Identifier", CreateMode::Guarded, mode(0o600)).await;
        let data = vec![Bytes::from_static(b"ZoneId=3")];
        f.one.write(&root, stream.unwrap().0.id.ino, 0, data, Stability::Unstable).await.unwrap();
        f.one.setxattr(ann, of, b"user.color", b"red", XattrMode::Set).await.unwrap();
        let rule = Rule { allows: true, flags: 0, rights: READ_DATA, who: Who::Everyone };
        let list = Acl { is_protected: true, marks_inherited: false, rules: vec![rule] };
        f.one.set_acl(ann, of, SetAttr::default(), Some(list)).await.unwrap();
        let btime = Some(Timestamp::new(5, 0));
        let set = SetAttr { atime: Some(time(10)), mtime: Some(time(20)), btime, dos: Some(2), ..SetAttr::default() };
        f.one.setattr(ann, of, set).await.unwrap();
    }
    f.one.symlink(ann, f.home, b"link", b"album/photo", SetAttr::default()).await.unwrap();
    // The list lets nobody enter the folder, not even ann: root copies, and ann's copy fails.
    let denied = f.copying(&f.one, &f.other, Keep::Everything).tree(&folder, (f.other_home, b"no"), NEVER).await.0;
    assert!(matches!(denied.failures.as_slice(), [(path, FsError::Access)] if path.is_empty()), "{denied:?}");
    let as_root =
        Copying { reader: root.clone(), writer: root.clone(), ..f.copying(&f.one, &f.other, Keep::Everything) };
    let (report, made) = as_root.tree(&folder, (f.other_home, b"album"), NEVER).await;
    assert!(report.is_whole(), "{report:?}");
    let copy = made.unwrap().id.ino;
    let photo = f.other.lookup(&root, copy, b"photo", NameMatch::Exact).await.unwrap().id.ino;
    for (source, copy) in [(folder.id.ino, copy), (ino, photo)] {
        let (was, is) = (f.one.getattr(source).await.unwrap(), f.other.getattr(copy).await.unwrap());
        let facts = |a: &Attr| (a.mode, a.uid, a.gid, a.atime, a.mtime, a.btime, a.dos);
        assert_eq!(facts(&was), facts(&is));
        assert_eq!(f.one.acl(source).await.unwrap().1, f.other.acl(copy).await.unwrap().1);
        assert_eq!(&f.other.getxattr(&root, copy, b"user.color").await.unwrap()[..], b"red");
        let streams = f.other.named_dir(copy, false).await.unwrap().unwrap();
        let stream = f.other.lookup(&root, streams, b"Zone.Identifier", NameMatch::Exact).await.unwrap();
        assert_eq!(content(&f.other, stream.id.ino).await, b"ZoneId=3");
    }
    let photo = f.other.getattr(photo).await.unwrap();
    assert_eq!((photo.size, content(&f.other, photo.id.ino).await.get(..6).unwrap()), (3 << 20, &b"pixels"[..]));
    assert!(photo.allocated < 1 << 20, "the hole takes no room: {}", photo.allocated);
}

#[tokio::test]
async fn depth_costs_no_stack() {
    let f = Fixture::new().await;
    let top = f.chain(DEEP).await;
    for (to, dir) in [(&f.other, f.other_home), (&f.one, f.home)] {
        let (report, made) = f.copying(&f.one, to, Keep::Possible).tree(&top, (dir, b"copy"), NEVER).await;
        assert!(report.is_whole(), "{report:?}");
        let made = made.unwrap();
        assert_eq!(depth(to, made.id.ino).await, DEEP);
        let report = to.remove_tree(&f.ann, (dir, b"copy"), &made, None, NEVER).await;
        assert!(report.is_whole(), "{report:?}");
        assert!(matches!(to.lookup(&f.ann, dir, b"copy", NameMatch::Exact).await, Err(FsError::NotFound)));
    }
}

#[tokio::test]
async fn a_copy_into_itself_ends() {
    let f = Fixture::new().await;
    let top = f.dir(f.home, "a").await;
    let inner = f.dir(top.id.ino, "x").await;
    f.file(inner.id.ino, "file", b"1").await;
    assert!(f.one.lies_within(inner.id.ino, top.id.ino).await.unwrap());
    assert!(f.one.lies_within(top.id.ino, top.id.ino).await.unwrap());
    assert!(!f.one.lies_within(f.home, top.id.ino).await.unwrap());
    // A caller refuses it. If a rename makes it so meanwhile, it ends all the same.
    let (report, made) = f.copying(&f.one, &f.one, Keep::Possible).tree(&top, (inner.id.ino, b"b"), NEVER).await;
    assert!(report.is_whole(), "{report:?}");
    let copied = f.one.lookup(&f.ann, made.unwrap().id.ino, b"x", NameMatch::Exact).await.unwrap();
    let names = f.one.readdir(&f.ann, copied.id.ino, 0, 100, false).await.unwrap().entries;
    assert_eq!(names.iter().map(|entry| &entry.name[..]).collect::<Vec<_>>(), [b"file"]);
}

#[tokio::test]
async fn a_stopped_copy_is_taken_back_and_changed_files_stay() {
    let f = Fixture::new().await;
    let top = f.dir(f.home, "many").await;
    let mut since = top.ctime;
    for n in 0..300 {
        since = f.file(top.id.ino, &format!("{n}"), b"data").await.ctime;
    }
    let asked = AtomicU32::new(0);
    let stop = || asked.fetch_add(1, Ordering::Relaxed) > 100;
    let copying = f.copying(&f.one, &f.other, Keep::Everything);
    let (report, made) = copying.tree(&top, (f.other_home, b"copy"), &stop).await;
    assert!(report.is_cut && !report.is_whole());
    let undone = copying.undo((f.other_home, b"copy"), &made.unwrap()).await;
    assert!(undone.is_whole(), "{undone:?}");
    assert!(matches!(f.other.lookup(&f.ann, f.other_home, b"copy", NameMatch::Exact).await, Err(FsError::NotFound)));
    // What changed since is not removed.
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    let changed = f.file(top.id.ino, "new", b"data").await;
    let report = f.one.remove_tree(&f.ann, (f.home, b"many"), &top, Some(since), NEVER).await;
    assert!(matches!(report.failures.as_slice(), [(path, FsError::NotSync)] if path == "new"), "{report:?}");
    assert_eq!(f.one.lookup(&f.ann, top.id.ino, b"new", NameMatch::Exact).await.unwrap().id, changed.id);
}

#[tokio::test]
async fn folders_are_entered_by_those_who_may_search_them() {
    let f = Fixture::new().await;
    let folder = f.dir(f.home, "shut").await;
    let file: FileId = f.file(folder.id.ino, "file", b"secret").await.id;
    let bob = Cred::new(1001, 1001, [1001]);
    f.one.setattr(&f.ann, folder.id.ino, mode(0o744)).await.unwrap();
    let listed = f.one.readdir(&bob, folder.id.ino, 0, 10, true).await.unwrap();
    assert!(matches!(listed.entries.as_slice(), [entry] if entry.attr.is_none() && entry.ino == file.ino));
    let listed = f.one.readdir(&f.ann, folder.id.ino, 0, 10, true).await.unwrap();
    assert!(matches!(listed.entries.as_slice(), [entry] if entry.attr.is_some()));
    let copying = Copying { reader: bob, ..f.copying(&f.one, &f.one, Keep::Possible) };
    let (report, made) = copying.tree(&folder, (f.home, b"copy"), NEVER).await;
    assert!(matches!(report.failures.as_slice(), [(_, FsError::Access)]) && made.is_none(), "{report:?}");
}

/// A new file over an old one counts against the old one's owner before it has a name.
#[tokio::test]
async fn an_heir_owns_from_the_beginning() {
    let f = Fixture::new().await;
    let source = f.file(f.home, "source", b"data").await;
    let copying = Copying { heir: Some((1001, 1002)), ..f.copying(&f.one, &f.other, Keep::Possible) };
    let made = copying.file(&source, f.other_home, NEVER).await.unwrap();
    assert_eq!((made.attr.uid, made.attr.gid, made.attr.nlink), (1001, 1002, 0));
}
