//! Folders of the host, as doors see them.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use larder_folder::{BY_HOST, Folder};
use larder_fs::{
    ACCESS_READ, ACCESS_WRITE, AllocateMode, Attr, CreateMode, Cred, Event, FileKind, FsError, FsResult, Ino,
    NameMatch, RenameMode, SeekTo, SetAttr, SetTime, Stability, XattrMode,
};
use tempfile::TempDir;
use tokio::sync::broadcast;

use crate::Age;
use crate::folders::Folders;
use crate::tree::Kind;
use crate::{Files, Services};

struct Fixture {
    dir: TempDir,
    files: Files,
    top: Ino,
}

/// A folder with handles of the kernel where the machine has them, and one without.
fn both() -> Vec<Fixture> {
    let with = Fixture::new(tempfile::tempdir().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let (folder, ino) = Folder::open_without_handles(dir.path()).unwrap();
    let files = Services::default().of_folder(folder);
    vec![with, Fixture { dir, files, top: ino }]
}

impl Fixture {
    fn new(dir: TempDir) -> Fixture {
        let found = Folders::default().open(dir.path()).unwrap();
        Fixture { dir, files: found.files, top: found.top }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    async fn lookup(&self, dir: Ino, name: &str) -> FsResult<Attr> {
        self.files.lookup(&Cred::root(), dir, name.as_bytes(), NameMatch::Exact).await
    }

    async fn create(&self, dir: Ino, name: &str) -> Attr {
        let set = SetAttr { mode: Some(0o640), uid: Some(7), gid: Some(8), ..SetAttr::default() };
        self.files.create(&Cred::root(), dir, name.as_bytes(), CreateMode::Guarded, set).await.unwrap().0
    }

    async fn mkdir(&self, dir: Ino, name: &str, mode: u32) -> Ino {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.files.mkdir(&Cred::root(), dir, name.as_bytes(), set).await.unwrap().0.id.ino
    }

    async fn write(&self, ino: Ino, offset: u64, data: &'static [u8]) -> Attr {
        let data = vec![Bytes::from_static(data)];
        self.files.write(&Cred::root(), ino, offset, data, Stability::Unstable).await.unwrap().changed.after
    }

    async fn names(&self, dir: Ino, page: usize, with_attrs: bool) -> Vec<String> {
        names_of(&self.files, dir, page, with_attrs).await
    }
}

async fn names_of(files: &Files, dir: Ino, page: usize, with_attrs: bool) -> Vec<String> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let listing = files.readdir(&Cred::root(), dir, cookie, page, with_attrs).await.unwrap();
        for entry in &listing.entries {
            assert!(entry.cookie >= 3 && entry.cookie <= i64::MAX as u64);
            assert_eq!(entry.attr.is_some(), with_attrs);
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        }
        match listing.entries.last() {
            Some(last) if !listing.eof => cookie = last.cookie,
            _ => break,
        }
    }
    names.sort();
    names
}

async fn content(files: &Files, ino: Ino, offset: u64, len: usize) -> Vec<u8> {
    files.read(ino, offset, len).await.unwrap().chunks.concat()
}

#[tokio::test]
async fn a_file_is_the_same_on_the_host() {
    for f in both() {
        let made = f.create(f.top, "a").await;
        assert_eq!((made.mode, made.uid, made.gid, made.kind), (0o640, 7, 8, FileKind::File));
        let after = f.write(made.id.ino, 3, b"defg").await;
        assert_eq!(after.size, 7);
        f.files.commit(made.id.ino).await.unwrap();
        assert_eq!(std::fs::read(f.path("a")).unwrap(), b"\0\0\0defg");
        let on_host = std::fs::metadata(f.path("a")).unwrap();
        assert_eq!((on_host.ino(), on_host.uid(), on_host.gid()), (made.id.ino.0, 7, 8));
        assert_eq!(on_host.mode() & 0o7777, 0o640);
        // What others write there is seen at once.
        std::fs::write(f.path("a"), "from the host").unwrap();
        assert_eq!(content(&f.files, made.id.ino, 5, 100).await, b"the host");
        let end = f.files.read(made.id.ino, 0, 13).await.unwrap();
        assert!(end.eof && end.attr.unwrap().size == 13);
        std::fs::remove_file(f.path("a")).unwrap();
        assert!(matches!(f.files.resolve(made.id).await, Err(FsError::Stale)));
        assert!(matches!(f.lookup(f.top, "a").await, Err(FsError::NotFound)));
    }
}

#[tokio::test]
async fn appends_get_places_of_their_own() {
    for f in both() {
        let ino = f.create(f.top, "log").await.id.ino;
        let append = |text: String| {
            let files = f.files.clone();
            async move {
                let data = vec![Bytes::from(text.clone())];
                let (at, _) = files.append(&Cred::root(), ino, data, Stability::Unstable).await.unwrap();
                (at, text)
            }
        };
        let lines = (0..40).map(|n| append(format!("line {n:03}\n")));
        for (at, text) in futures::future::join_all(lines).await {
            assert_eq!(content(&f.files, ino, at, text.len()).await, text.as_bytes());
        }
    }
}

#[tokio::test]
async fn handles_survive_renames_and_restarts() {
    let f = Fixture::new(tempfile::tempdir().unwrap());
    let dir = f.mkdir(f.top, "d", 0o755).await;
    let file = f.create(dir, "f").await;
    let moved = f.mkdir(f.top, "e", 0o755).await;
    f.files.rename(&Cred::root(), dir, b"f", moved, b"g", RenameMode::Replace).await.unwrap();
    assert_eq!(f.files.resolve(file.id).await.unwrap().id, file.id);
    std::fs::rename(f.path("e/g"), f.path("h")).unwrap();
    let again = Folders::default().open(f.dir.path()).unwrap();
    assert!(again.survives_restart, "these tests need a filesystem with handles, and CAP_DAC_READ_SEARCH");
    assert_eq!(again.files.resolve(file.id).await.unwrap().id, file.id);
    assert_ne!(again.files.verifier(), f.files.verifier());
    let other = larder_fs::FileId { generation: file.id.generation ^ 1, ..file.id };
    assert!(matches!(again.files.resolve(other).await, Err(FsError::Stale)));
    std::fs::remove_file(f.path("h")).unwrap();
    assert!(matches!(again.files.resolve(file.id).await, Err(FsError::Stale)));
}

#[tokio::test]
async fn a_number_that_the_host_uses_again_is_the_new_file() {
    for f in both() {
        for round in 0..8 {
            let name = format!("round {round}");
            std::fs::write(f.path(&name), "").unwrap();
            let old = f.lookup(f.top, &name).await.unwrap();
            std::fs::remove_file(f.path(&name)).unwrap();
            // Without handles the time of birth tells them apart, which is as fine as the kernel's ticks.
            tokio::time::sleep(Duration::from_millis(12)).await;
            std::fs::write(f.path("next"), name).unwrap();
            let listing = f.files.readdir(&Cred::root(), f.top, 0, 9, false).await.unwrap();
            assert_eq!(listing.entries.len(), 1);
            let new = f.files.getattr(listing.entries[0].ino).await.unwrap();
            assert_eq!((new.size, new.id == old.id), (7, false));
            let found = f.files.resolve(old.id).await;
            assert!(matches!(found, Err(FsError::Stale)), "round {round}: {old:?} is {found:?}, {new:?}");
            std::fs::remove_file(f.path("next")).unwrap();
        }
    }
}

#[tokio::test]
async fn a_number_that_the_host_is_giving_away_is_stale() {
    let f = Fixture::new(tempfile::tempdir().unwrap());
    // Numbers that are free come back at once.
    let churned = f.path("churn");
    let is_over = Arc::new(AtomicBool::new(false));
    let churn = std::thread::spawn({
        let is_over = is_over.clone();
        move || {
            while !is_over.load(Ordering::Relaxed) {
                std::fs::write(&churned, "").unwrap();
                std::fs::remove_file(&churned).unwrap();
            }
        }
    });
    let started = std::time::Instant::now();
    let mut wrong = None;
    let mut rounds = 0;
    while wrong.is_none() && started.elapsed() < Duration::from_secs(2) {
        let old = f.create(f.top, "old").await;
        std::fs::remove_file(f.path("old")).unwrap();
        for _ in 0..10 {
            let found = f.files.resolve(old.id).await;
            if !matches!(found, Err(FsError::Stale)) {
                wrong = Some(found);
            }
        }
        rounds += 1;
    }
    is_over.store(true, Ordering::Relaxed);
    churn.join().unwrap();
    assert!(wrong.is_none() && rounds > 10, "{rounds} rounds: {wrong:?}");
}

#[tokio::test]
async fn a_number_that_is_held_is_not_given_to_another_file() {
    for f in both() {
        std::fs::write(f.path("old"), "old").unwrap();
        let old = f.lookup(f.top, "old").await.unwrap();
        f.files.access(&Cred::root(), old.id.ino, ACCESS_READ).await.unwrap();
        let held = f.files.hold(old.id).await.unwrap();
        std::fs::remove_file(f.path("old")).unwrap();
        for n in 0..50 {
            std::fs::write(f.path(&format!("new {n}")), "new").unwrap();
        }
        assert!(!f.names(f.top, 100, true).await.contains(&"old".to_owned()));
        assert_eq!(content(&f.files, old.id.ino, 0, 9).await, b"old", "what was judged is what is read");
        drop(held);
        assert!(matches!(f.files.hold(old.id).await, Err(FsError::Stale)));
        // A call leaves the descriptor for the next one, unless the file is gone.
        let kept = f.lookup(f.top, "new 1").await.unwrap();
        let held = f.files.hold(kept.id).await.unwrap();
        content(&f.files, kept.id.ino, 0, 9).await;
        drop(held);
        let Kind::Folder(folder) = &f.files.tree.0 else { unreachable!() };
        assert!(folder.is_cached(kept.id.ino));
        let held = f.files.hold(kept.id).await.unwrap();
        f.files.unlink(&Cred::root(), f.top, b"new 1").await.unwrap();
        content(&f.files, kept.id.ino, 0, 9).await;
        drop(held);
        assert!(!folder.is_cached(kept.id.ino));
    }
}

#[tokio::test]
async fn without_handles_nodes_are_found_by_name() {
    let f = both().pop().unwrap();
    let dir = f.mkdir(f.top, "d", 0o755).await;
    let file = f.create(dir, "f").await;
    f.files.rename(&Cred::root(), f.top, b"d", f.top, b"e", RenameMode::Replace).await.unwrap();
    assert_eq!(f.files.resolve(file.id).await.unwrap().id, file.id);
    std::fs::rename(f.path("e"), f.path("z")).unwrap();
    assert!(matches!(f.files.resolve(file.id).await, Err(FsError::Stale)));
    // Another file has the name.
    let dir = f.lookup(f.top, "z").await.unwrap().id.ino;
    f.lookup(dir, "f").await.unwrap();
    std::fs::write(f.path("n"), "").unwrap();
    std::fs::rename(f.path("n"), f.path("z/f")).unwrap();
    assert!(matches!(f.files.getattr(file.id.ino).await, Err(FsError::Stale)));
}

#[tokio::test]
async fn nothing_leads_out() {
    for f in both() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "secret").unwrap();
        symlink(outside.path(), f.path("out")).unwrap();
        symlink("../../../../etc/passwd", f.path("up")).unwrap();
        let out = f.lookup(f.top, "out").await.unwrap();
        assert_eq!(out.kind, FileKind::Symlink);
        assert!(matches!(f.lookup(out.id.ino, "secret").await, Err(FsError::NotDirectory)));
        assert!(f.files.read(out.id.ino, 0, 10).await.is_err());
        let up = f.lookup(f.top, "up").await.unwrap();
        assert!(f.files.read(up.id.ino, 0, 10).await.is_err());
        assert_eq!(f.files.readlink(up.id.ino).await.unwrap(), "../../../../etc/passwd");
        assert_eq!(f.lookup(f.top, "..").await.unwrap().id.ino, f.top);
        assert_eq!(f.files.parent(f.top).await.unwrap(), f.top);
        for bad in ["../x", "a/b", "", "a\0"] {
            assert!(matches!(f.lookup(f.top, bad).await, Err(FsError::Invalid(_))), "{bad:?}");
        }
        // A link in the way of a create is not written through.
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        symlink(outside.path().join("secret"), f.path("trap")).unwrap();
        let done = f.files.create(&Cred::root(), f.top, b"trap", CreateMode::Unchecked, set).await;
        assert!(matches!(done, Err(FsError::Exists)));
        let mode = SetAttr { mode: Some(0o777), atime: Some(SetTime::Now), ..SetAttr::default() };
        let trap = f.lookup(f.top, "trap").await.unwrap().id.ino;
        f.files.setattr(&Cred::root(), trap, mode).await.unwrap();
        let secret = outside.path().join("secret");
        assert_eq!(std::fs::read(&secret).unwrap(), b"secret");
        assert_eq!(std::fs::metadata(&secret).unwrap().mode() & 0o777, 0o644);
    }
}

#[tokio::test]
async fn parents_end_at_the_outermost_share() {
    let f = Fixture::new(tempfile::tempdir().unwrap());
    let dir = f.mkdir(f.top, "d", 0o755).await;
    let deep = f.mkdir(dir, "e", 0o755).await;
    assert_eq!(f.files.parent_within(deep, f.top).await.unwrap(), dir);
    assert_eq!(f.files.parent_within(deep, dir).await.unwrap(), dir);
    assert!(matches!(f.files.parent_within(dir, deep).await, Err(FsError::Stale)));
    assert!(matches!(f.files.parent_within(f.top, dir).await, Err(FsError::Stale)));
    let folders = Folders::default();
    let inner = folders.open(&f.path("d/e")).unwrap();
    assert_eq!(inner.files.lookup(&Cred::root(), deep, b"..", NameMatch::Exact).await.unwrap().id.ino, deep);
    let outer = folders.open(f.dir.path()).unwrap();
    assert_eq!(outer.files.id(), inner.files.id(), "one filesystem is one tree");
    assert_eq!(outer.files.parent(deep).await.unwrap(), dir);
    let shared = outer.files.rmdir(&Cred::root(), dir, b"e").await;
    assert!(matches!(shared, Err(FsError::Busy(_))), "{shared:?}");
}

#[tokio::test]
async fn mode_bits_and_posix_lists_decide() {
    for f in both() {
        let dir = f.mkdir(f.top, "d", 0o755).await;
        let file = f.create(dir, "f").await.id.ino;
        let (owner, member, other) = (Cred::new(7, 1, []), Cred::new(5, 1, [8]), Cred::new(5, 1, []));
        let may = async |cred: &Cred, mask| f.files.access(cred, file, mask).await.is_ok();
        assert!(may(&owner, ACCESS_READ | ACCESS_WRITE).await);
        assert!(may(&member, ACCESS_READ).await && !may(&member, ACCESS_WRITE).await);
        assert!(!may(&other, ACCESS_READ).await);
        let set = SetAttr { mode: Some(0o666), ..SetAttr::default() };
        assert!(matches!(f.files.setattr(&other, file, set).await, Err(FsError::NotPermitted)));
        assert!(matches!(f.files.unlink(&owner, dir, b"f").await, Err(FsError::Access)));
        let made = f.files.create(&owner, dir, b"g", CreateMode::Guarded, SetAttr::default()).await;
        assert!(matches!(made, Err(FsError::Access)));
        assert_eq!(f.files.readdir(&other, dir, 0, 9, false).await.unwrap().entries.len(), 1);
        // user::rw- user:5:rw- group::r-- mask::rw- other::---
        let entry =
            |tag: u16, perm: u16, id: u32| [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat();
        let entries = [entry(1, 6, 0), entry(2, 6, 5), entry(4, 4, 0), entry(16, 6, 0), entry(32, 0, 0)];
        let list = [&2u32.to_le_bytes()[..], &entries.concat()].concat();
        let path = f.path("d/f");
        rustix::fs::setxattr(&path, "system.posix_acl_access", &list, rustix::fs::XattrFlags::empty()).unwrap();
        assert!(may(&other, ACCESS_READ | ACCESS_WRITE).await, "the host's list names the user");
        assert!(!may(&Cred::new(6, 1, []), ACCESS_READ).await);
        f.files.set_acl(&Cred::root(), file, SetAttr::default(), None).await.unwrap();
        assert!(!may(&other, ACCESS_READ).await, "the list is gone");
    }
}

#[tokio::test]
async fn setuid_goes_when_others_write() {
    let f = Fixture::new(tempfile::tempdir().unwrap());
    let file = f.create(f.top, "f").await.id.ino;
    let user = Cred::new(7, 1, []);
    for change in 0..2 {
        let set = SetAttr { mode: Some(0o6755), ..SetAttr::default() };
        f.files.setattr(&Cred::root(), file, set).await.unwrap();
        if change == 0 {
            f.files.write(&user, file, 0, vec![Bytes::from_static(b"x")], Stability::FileSync).await.unwrap();
        } else {
            f.files.setattr(&user, file, SetAttr { size: Some(9), ..SetAttr::default() }).await.unwrap();
        }
        assert_eq!(f.files.getattr(file).await.unwrap().mode, 0o755);
    }
}

#[tokio::test]
async fn listings_go_on_where_they_stopped() {
    for f in both() {
        let mut wanted: Vec<String> = (0..300).map(|n| format!("file {n} {}", "x".repeat(n % 200))).collect();
        wanted.push("é".repeat(127));
        wanted.push("n".repeat(255));
        wanted.iter().for_each(|name| std::fs::write(f.path(name), "").unwrap());
        wanted.sort();
        for (page, with_attrs) in [(1, false), (7, true), (1000, true)] {
            assert_eq!(f.names(f.top, page, with_attrs).await, wanted);
        }
        // Listed without attributes, they are found all the same.
        let again = Fixture { files: Folders::default().open(f.dir.path()).unwrap().files, dir: f.dir, top: f.top };
        let listing = again.files.readdir(&Cred::root(), again.top, 0, 400, false).await.unwrap();
        for entry in listing.entries.iter().take(5) {
            let attr = again.files.getattr(entry.ino).await.unwrap();
            assert_eq!(again.files.resolve(attr.id).await.unwrap().kind, FileKind::File);
        }
        let long = "n".repeat(256);
        assert!(matches!(again.lookup(again.top, &long).await, Err(FsError::NameTooLong)));
    }
}

#[tokio::test]
async fn names_without_regard_to_case() {
    let f = Fixture::new(tempfile::tempdir().unwrap());
    std::fs::write(f.path("Straße.TXT"), "").unwrap();
    std::fs::write(f.path("readme"), "1").unwrap();
    let folded = async |name: &str| f.files.lookup(&Cred::root(), f.top, name.as_bytes(), NameMatch::Folded).await;
    assert_eq!(f.files.stored_name(f.top, "STRAßE.txt".as_bytes()).await.unwrap(), "Straße.TXT".as_bytes());
    let readme = folded("README").await.unwrap();
    assert!(matches!(folded("other").await, Err(FsError::NotFound)));
    // Larder's own changes count at once, and the exact name goes first.
    let other = f.create(f.top, "Other").await;
    assert_eq!(folded("OTHER").await.unwrap().id, other.id);
    let exact = f.create(f.top, "README").await;
    assert_eq!(folded("README").await.unwrap().id, exact.id);
    assert_eq!(folded("readme").await.unwrap().id, readme.id);
    f.files.unlink(&Cred::root(), f.top, b"README").await.unwrap();
    assert_eq!(folded("README").await.unwrap().id, readme.id);
    // Those of the host after a second at most.
    std::fs::rename(f.path("readme"), f.path("gone")).unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert!(matches!(folded("README").await, Err(FsError::NotFound)));
}

#[tokio::test]
async fn names_move_and_go() {
    for f in both() {
        let root = Cred::root();
        let (a, b) = (f.mkdir(f.top, "a", 0o755).await, f.mkdir(f.top, "b", 0o755).await);
        let file = f.create(a, "f").await;
        f.create(b, "g").await;
        let taken = f.files.rename(&root, a, b"f", b, b"g", RenameMode::NoReplace).await;
        assert!(matches!(taken, Err(FsError::Exists)));
        f.files.rename(&root, a, b"f", b, b"g", RenameMode::Exchange).await.unwrap();
        assert_eq!(f.lookup(b, "g").await.unwrap().id, file.id);
        f.files.rename(&root, b, b"g", a, b"f", RenameMode::Replace).await.unwrap();
        assert_eq!(f.names(b, 9, true).await, [""; 0]);
        let into = f.files.rename(&root, f.top, b"a", a, b"x", RenameMode::Replace).await;
        assert!(matches!(into, Err(FsError::Invalid(_))), "{into:?}");
        assert!(matches!(f.files.rmdir(&root, f.top, b"a").await, Err(FsError::NotEmpty)));
        assert!(matches!(f.files.unlink(&root, f.top, b"a").await, Err(FsError::IsDirectory)));
        assert!(matches!(f.files.rmdir(&root, a, b"f").await, Err(FsError::NotDirectory)));
        let (linked, _) = f.files.link(&root, file.id.ino, b, b"two").await.unwrap();
        assert_eq!((linked.id, linked.nlink), (file.id, 2));
        assert_eq!(f.files.unlink(&root, a, b"f").await.unwrap().0.nlink, 1);
        f.files.symlink(&root, a, b"s", b"somewhere", SetAttr::default()).await.unwrap();
        f.files.mknod(&root, a, b"p", FileKind::Fifo, (0, 0), SetAttr::default()).await.unwrap();
        assert_eq!(f.lookup(a, "p").await.unwrap().kind, FileKind::Fifo);
        assert_eq!(std::fs::read_link(f.path("a/s")).unwrap().to_str().unwrap(), "somewhere");
        let gone = f.files.unlink(&root, b, b"two").await.unwrap().0;
        assert_eq!(gone.nlink, 0);
        f.files.rmdir(&root, f.top, b"b").await.unwrap();
        assert!(!f.path("b").exists());
    }
}

#[tokio::test]
async fn an_open_file_outlives_its_name() {
    for f in both() {
        let file = f.create(f.top, "f").await;
        f.write(file.id.ino, 0, b"kept").await;
        let open = f.files.open(file.id.ino, crate::Uses::READ).await.unwrap();
        f.files.unlink(&Cred::root(), f.top, b"f").await.unwrap();
        assert_eq!(content(&f.files, file.id.ino, 0, 9).await, b"kept");
        assert_eq!(f.files.getattr(file.id.ino).await.unwrap().nlink, 0);
        drop(open);
        assert!(matches!(f.files.getattr(file.id.ino).await, Err(FsError::Stale)));
        // One that never had a name takes that of another.
        f.create(f.top, "old").await;
        let set = SetAttr { mode: Some(0o600), uid: Some(9), ..SetAttr::default() };
        let (made, open) = f.files.create_unnamed(&Cred::root(), f.top, set).await.unwrap();
        f.write(made.id.ino, 0, b"new").await;
        let (attr, _) = f.files.relink(&Cred::root(), made.id.ino, f.top, b"old").await.unwrap();
        assert_eq!((attr.id, attr.nlink, attr.uid), (made.id, 1, 9));
        drop(open);
        assert_eq!(std::fs::read(f.path("old")).unwrap(), b"new");
        assert_eq!(f.names(f.top, 9, true).await, ["old"]);
    }
}

#[tokio::test]
async fn an_exclusive_create_finds_its_file_again() {
    for f in both() {
        let create = async |verifier| {
            let mode = CreateMode::Exclusive(verifier);
            f.files.create(&Cred::root(), f.top, b"x", mode, SetAttr::default()).await
        };
        let (made, is_new, _) = create([1, 2, 3, 4, 5, 6, 7, 8]).await.unwrap();
        assert!(is_new);
        let (again, is_new, _) = create([1, 2, 3, 4, 5, 6, 7, 8]).await.unwrap();
        assert_eq!((again.id, is_new), (made.id, false));
        assert!(matches!(create([9; 8]).await, Err(FsError::Exists)));
    }
}

#[tokio::test]
async fn holes_and_large_offsets() {
    let f = Fixture::new(tempfile::tempdir().unwrap());
    let ino = f.create(f.top, "sparse").await.id.ino;
    let far = (5 << 30) + 7;
    f.write(ino, far, b"end").await;
    assert_eq!(content(&f.files, ino, far, 9).await, b"end");
    assert!(f.files.getattr(ino).await.unwrap().allocated < 1 << 20);
    assert_eq!(f.files.seek(ino, 0, SeekTo::Hole).await.unwrap(), 0);
    assert!(f.files.seek(ino, 0, SeekTo::Data).await.unwrap() > 4 << 30);
    assert!(matches!(f.files.seek(ino, far + 3, SeekTo::Data).await, Err(FsError::NotFound)));
    let root = Cred::root();
    f.files.allocate(&root, ino, 0, 1 << 16, AllocateMode::KeepSize).await.unwrap();
    f.files.allocate(&root, ino, far - 7, 1 << 16, AllocateMode::PunchHole).await.unwrap();
    assert_eq!(content(&f.files, ino, far, 3).await, b"\0\0\0");
    let too_far = f.files.write(&root, ino, i64::MAX as u64, vec![Bytes::from_static(b"x")], Stability::Unstable).await;
    assert!(matches!(too_far, Err(FsError::FileTooLarge)));
}

#[tokio::test]
async fn times_attributes_and_guards() {
    let f = Fixture::new(tempfile::tempdir().unwrap());
    let file = f.create(f.top, "f").await;
    let (ino, root) = (file.id.ino, Cred::root());
    let then = larder_base::Timestamp::new(1_000_000_000, 123_456_789);
    let set = SetAttr { mtime: Some(SetTime::To(then)), guard_ctime: Some(file.ctime), ..SetAttr::default() };
    assert_eq!(f.files.setattr(&root, ino, set).await.unwrap().after.mtime, then);
    let stale = SetAttr { guard_ctime: Some(then), ..set };
    assert!(matches!(f.files.setattr(&root, ino, stale).await, Err(FsError::NotSync)));
    f.files.setxattr(&root, ino, b"user.a", b"1", XattrMode::Create).await.unwrap();
    let twice = f.files.setxattr(&root, ino, b"user.a", b"2", XattrMode::Create).await;
    assert!(matches!(twice, Err(FsError::Exists)));
    assert_eq!(f.files.getxattr(&root, ino, b"user.a").await.unwrap(), "1");
    assert_eq!(f.files.listxattr(&root, ino).await.unwrap(), ["user.a"]);
    let foreign = f.files.setxattr(&root, ino, b"trusted.a", b"2", XattrMode::Set).await;
    assert!(matches!(foreign, Err(FsError::NotSupported)));
    f.files.removexattr(&root, ino, b"user.a").await.unwrap();
    assert!(matches!(f.files.getxattr(&root, ino, b"user.a").await, Err(FsError::NoAttribute)));
    let room = f.files.statfs(&Cred::root());
    assert!(room.total_bytes > 0 && room.available_bytes <= room.free_bytes);
}

#[tokio::test]
async fn removals_are_kept_in_the_bin() {
    let f = Fixture::new(tempfile::tempdir().unwrap());
    let dir = f.mkdir(f.top, "d", 0o750).await;
    let file = f.create(dir, "f.txt").await;
    let kept = f.files.recycling(f.top);
    kept.unlink(&Cred::root(), dir, b"f.txt").await.unwrap();
    let bin = f.path(".recycle/d/f.txt");
    assert_eq!(std::fs::metadata(&bin).unwrap().ino(), file.id.ino.0);
    assert_eq!(std::fs::metadata(f.path(".recycle/d")).unwrap().permissions().mode() & 0o7777, 0o750);
    assert_eq!(kept.thin_bin(Age { before: i64::MAX, when: |ctime| ctime }).await.unwrap(), 2);
    assert!(!bin.exists());
}

#[tokio::test]
async fn a_bin_is_nothing_that_somebody_put_in_its_place() {
    let f = Fixture::new(tempfile::tempdir().unwrap());
    let (seven, everybody) = (Cred::new(7, 7, []), std::fs::Permissions::from_mode(0o777));
    std::os::unix::fs::chown(f.dir.path(), Some(7), Some(7)).unwrap();
    std::fs::set_permissions(f.dir.path(), everybody).unwrap();
    let secret = |at: &str| {
        let path = f.path(at);
        let about = std::fs::metadata(&path).unwrap();
        assert_eq!((about.uid(), about.mode() & 0o7777), (0, 0o700), "{at} is root's alone");
        assert_eq!(std::fs::read(path.join("kept")).unwrap(), b"kept");
    };
    std::fs::create_dir(f.path(".recycle")).unwrap();
    std::fs::set_permissions(f.path(".recycle"), std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(f.path(".recycle/kept"), "kept").unwrap();
    f.create(f.top, "f").await;
    let kept = f.files.recycling(f.top);
    let done = kept.unlink(&seven, f.top, b"f").await;
    assert!(matches!(done, Err(FsError::Exists)), "{done:?}");
    assert_eq!(kept.thin_bin(Age { before: i64::MAX, when: |ctime| ctime }).await.unwrap(), 0);
    secret(".recycle");
    // With its name free, larder makes one, and marks it.
    std::fs::rename(f.path(".recycle"), f.path("evil")).unwrap();
    kept.unlink(&seven, f.top, b"f").await.unwrap();
    assert_eq!(std::fs::metadata(f.path(".recycle")).unwrap().uid(), 7);
    assert!(f.path(".recycle/f").exists());
    // The same below: the next name is taken.
    let dir = f.mkdir(f.top, "d", 0o755).await;
    f.create(dir, "x").await;
    std::fs::rename(f.path("evil"), f.path(".recycle/d")).unwrap();
    kept.unlink(&Cred::root(), dir, b"x").await.unwrap();
    assert!(f.path(".recycle/d (2)/x").exists());
    secret(".recycle/d");
    // A mode that changes is followed where larder made the folder for this one.
    std::fs::set_permissions(f.path("d"), std::fs::Permissions::from_mode(0o750)).unwrap();
    f.create(dir, "y").await;
    kept.unlink(&Cred::root(), dir, b"y").await.unwrap();
    assert_eq!(std::fs::metadata(f.path(".recycle/d (2)")).unwrap().mode() & 0o7777, 0o750);
    assert_eq!(
        kept.thin_bin(Age { before: i64::MAX, when: |ctime| ctime }).await.unwrap(),
        4,
        "f, x, y and their folder"
    );
    secret(".recycle/d");
}

#[tokio::test]
async fn what_is_made_has_its_owner_from_birth() {
    for f in both() {
        let (seven, eight) = (Cred::new(7, 8, [9]), Cred::new(8, 8, []));
        std::fs::set_permissions(f.dir.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        let set = SetAttr { mode: Some(0o666), gid: Some(9), ..SetAttr::default() };
        f.files.create(&seven, f.top, b"file", CreateMode::Guarded, set).await.unwrap();
        f.files.mkdir(&seven, f.top, b"dir", SetAttr { mode: Some(0o2777), ..set }).await.unwrap();
        f.files.mknod(&seven, f.top, b"fifo", FileKind::Fifo, (0, 0), set).await.unwrap();
        f.files.symlink(&seven, f.top, b"link", b"file", set).await.unwrap();
        for (name, mode) in [("file", 0o666), ("dir", 0o2777), ("fifo", 0o666), ("link", 0o777)] {
            let about = std::fs::symlink_metadata(f.path(name)).unwrap();
            assert_eq!((about.uid(), about.gid(), about.mode() & 0o7777), (7, 9, mode), "{name}");
        }
        // Root makes for another, with times.
        let then = larder_base::Timestamp::new(1_000_000_000, 0);
        let set = SetAttr { uid: Some(7), mode: Some(0o2750), mtime: Some(SetTime::To(then)), ..set };
        let (made, _) = f.files.mkdir(&Cred::root(), f.top, b"for another", set).await.unwrap();
        assert_eq!((made.uid, made.gid, made.mode, made.mtime), (7, 9, 0o2750, then));
        // Names go by the rights of the host as well.
        assert!(f.files.unlink(&eight, f.top, b"file").await.is_err());
        assert!(f.files.rename(&eight, f.top, b"file", f.top, b"g", RenameMode::Replace).await.is_err());
        let file = f.lookup(f.top, "file").await.unwrap().id.ino;
        f.files.link(&eight, file, f.top, b"may be written").await.unwrap();
        std::fs::set_permissions(f.path("file"), std::fs::Permissions::from_mode(0o644)).unwrap();
        let refused = f.files.link(&eight, file, f.top, b"not his").await;
        assert!(matches!(refused, Err(FsError::NotPermitted)), "{refused:?}");
        f.files.unlink(&seven, f.top, b"file").await.unwrap();
    }
}

#[tokio::test]
async fn a_name_is_taken_from_the_judged_file_alone() {
    let f = Fixture::new(tempfile::tempdir().unwrap());
    let (old, root) = (f.create(f.top, "old").await, Cred::root());
    let (made, _open) = f.files.create_unnamed(&root, f.top, SetAttr::default()).await.unwrap();
    std::fs::rename(f.path("old"), f.path("judged")).unwrap();
    std::fs::write(f.path("old"), "of somebody else").unwrap();
    let done = f.files.relink_over(&root, made.id.ino, f.top, b"old", old.id.ino).await;
    assert!(matches!(done, Err(FsError::NotFound)), "{done:?}");
    assert_eq!(std::fs::read(f.path("old")).unwrap(), b"of somebody else");
    f.files.relink_over(&root, made.id.ino, f.top, b"judged", old.id.ino).await.unwrap();
    assert_eq!(f.names(f.top, 9, false).await, ["judged", "old"]);
    assert_eq!(f.lookup(f.top, "judged").await.unwrap().id, made.id);
}

#[tokio::test]
async fn other_filesystems_are_not_part_of_it() {
    // Nothing is mounted below a fresh folder; the machine's own top has mounts.
    let found = Folders::default().open(Path::new("/")).unwrap();
    for with_attrs in [false, true] {
        let listing = found.files.readdir(&Cred::root(), found.top, 0, 1000, with_attrs).await.unwrap();
        let names: Vec<_> = listing.entries.iter().map(|entry| entry.name.clone()).collect();
        assert!(!names.iter().any(|name| name == "proc"), "{names:?}");
        assert!(names.iter().any(|name| name == "usr"), "{names:?}");
    }
    let proc = found.files.lookup(&Cred::root(), found.top, b"proc", NameMatch::Exact).await;
    assert!(matches!(proc, Err(FsError::NotFound)), "{proc:?}");
}

/// The fixture as a door that shows DOS attributes, if its filesystem keeps attributes of users.
fn with_dos(f: &Fixture) -> Option<Files> {
    f.files.keeps_streams().then(|| f.files.with_dos())
}

#[tokio::test]
async fn dos_attributes_are_kept_and_hidden() {
    for f in both() {
        let Some(files) = with_dos(&f) else { continue };
        let (root, owner) = (Cred::root(), Cred::new(7, 8, vec![8]));
        let ino = f.create(f.top, "f").await.id.ino;
        let plain = files.getattr(ino).await.unwrap();
        assert_eq!(plain.dos, 0x20);
        let hidden = SetAttr { dos: Some(0x22), ..SetAttr::default() };
        let stranger = files.setattr(&Cred::new(9, 9, vec![9]), ino, hidden).await;
        assert!(matches!(stranger, Err(FsError::NotPermitted)));
        let same = SetAttr { dos: Some(0x20), btime: Some(plain.btime), ..SetAttr::default() };
        files.setattr(&owner, ino, same).await.unwrap();
        let list = || rustix::fs::listxattr(f.path("f"), &mut [0u8; 256][..]).unwrap();
        assert_eq!(list(), 0, "nothing is written that says nothing");
        files.setattr(&owner, ino, hidden).await.unwrap();
        let born = larder_base::Timestamp::new(1_000_000_000, 700);
        files.setattr(&owner, ino, SetAttr { btime: Some(born), ..SetAttr::default() }).await.unwrap();
        let marked = files.lookup(&root, f.top, b"F", NameMatch::Folded).await.unwrap();
        assert_eq!((marked.dos, marked.btime), (0x22, born));
        let listed = files.readdir(&root, f.top, 0, 10, true).await.unwrap().entries.remove(0).attr.unwrap();
        assert_eq!((listed.dos, listed.btime), (0x22, born));
        assert_eq!(f.files.getattr(ino).await.unwrap().dos, 0, "other doors do not look");
        assert!(list() > 0 && f.files.listxattr(&root, ino).await.unwrap().is_empty());
        let name = b"user.DOSATTRIB";
        assert!(matches!(f.files.getxattr(&root, ino, name).await, Err(FsError::NoAttribute)));
        assert!(matches!(f.files.removexattr(&root, ino, name).await, Err(FsError::NoAttribute)));
        let set = f.files.setxattr(&root, ino, name, b"x", XattrMode::Set).await;
        assert!(matches!(set, Err(FsError::NotSupported)));
        // What is damaged is as if it were not there.
        rustix::fs::setxattr(f.path("f"), "user.DOSATTRIB", b"\0\0\x04", rustix::fs::XattrFlags::empty()).unwrap();
        assert_eq!(files.getattr(ino).await.unwrap().dos, 0x20);
    }
}

#[tokio::test]
async fn streams_are_files_of_a_directory_of_their_own() {
    for f in both() {
        let Some(files) = with_dos(&f) else { continue };
        let root = Cred::root();
        let ino = f.create(f.top, "f").await.id.ino;
        assert_eq!(files.named_dir(ino, false).await.unwrap(), None);
        let dir = files.named_dir(ino, true).await.unwrap().unwrap();
        let guarded = CreateMode::Guarded;
        let (made, is_new, _) = files.create(&root, dir, b"One", guarded, SetAttr::default()).await.unwrap();
        assert!(is_new && made.size == 0 && made.uid == 7);
        let twice = files.create(&root, dir, b"One", guarded, SetAttr::default()).await;
        assert!(matches!(twice, Err(FsError::Exists)));
        let one = made.id.ino;
        let open = files.open(one, crate::Uses::NOTHING).await.unwrap();
        let write = |at: u64, data: &'static [u8]| {
            let (files, data) = (files.clone(), vec![Bytes::from_static(data)]);
            async move { files.write(&Cred::root(), one, at, data, Stability::Unstable).await }
        };
        assert_eq!(write(3, b"defg").await.unwrap().changed.after.size, 7);
        write(0, b"abc").await.unwrap();
        files.commit(one).await.unwrap();
        assert_eq!(content(&files, one, 2, 100).await, b"cdefg");
        let value = |name: &str| {
            let mut value = [0u8; 4096];
            let len = rustix::fs::getxattr(f.path("f"), name, &mut value[..]).ok()?;
            Some(value[..len].to_vec())
        };
        assert_eq!(value("user.DosStream.One:$DATA").unwrap(), b"abcdefg\0");
        let found = files.lookup(&root, dir, b"oNE", NameMatch::Folded).await.unwrap();
        assert_eq!((found.id, found.size), (made.id, 7));
        // Too much for the host, or for any: what was there stays.
        assert!(matches!(write(0, &[7; 65_536]).await, Err(FsError::NoSpace(_))));
        let far = files.setattr(&root, one, SetAttr { size: Some(1 << 40), ..SetAttr::default() }).await;
        assert!(matches!(far, Err(FsError::NoSpace(_))));
        assert!(matches!(write(u64::MAX - 5, b"far off").await, Err(FsError::NoSpace(_) | FsError::FileTooLarge)));
        assert_eq!(content(&files, one, 0, 100).await, b"abcdefg");
        files.setattr(&root, one, SetAttr { size: Some(2), ..SetAttr::default() }).await.unwrap();
        files.rename(&root, dir, b"One", dir, b"two", RenameMode::NoReplace).await.unwrap();
        assert_eq!(
            (value("user.DosStream.One:$DATA"), value("user.DosStream.two:$DATA").unwrap()),
            (None, b"ab\0".to_vec())
        );
        assert_eq!(content(&files, one, 0, 100).await, b"ab", "an open stream goes with its name");
        files.create(&root, dir, b"three", guarded, SetAttr::default()).await.unwrap();
        assert_eq!(names_of(&files, dir, 1, true).await, ["three", "two"]);
        assert!(files.listxattr(&root, ino).await.unwrap().is_empty());
        files.unlink(&root, dir, b"two").await.unwrap();
        assert!(matches!(files.read(one, 0, 1).await, Err(FsError::Stale)));
        let (again, ..) = files.create(&root, dir, b"two", guarded, SetAttr::default()).await.unwrap();
        assert_ne!(again.id.ino, one, "a number is not given twice");
        drop(open);
        files.remove_named(&Cred::root(), ino).await.unwrap();
        assert_eq!((value("user.DosStream.two:$DATA"), value("user.DosStream.three:$DATA")), (None, None));
        for name in [&b""[..], b"a:b", b"a/b", &[b'x'; 250]] {
            assert!(files.create(&root, dir, name, guarded, SetAttr::default()).await.is_err());
        }
        std::fs::remove_file(f.path("f")).unwrap();
        assert!(matches!(
            files.lookup(&root, dir, b"two", NameMatch::Exact).await,
            Err(FsError::Stale | FsError::NotFound)
        ));
    }
}

/// What is told until the name `end` comes, without what no name is known of: by whom, what, and of which name.
async fn told(events: &mut broadcast::Receiver<Event>, end: &str) -> Vec<(u32, &'static str, String)> {
    let mut all = Vec::new();
    loop {
        let event = tokio::time::timeout(Duration::from_secs(10), events.recv()).await;
        let event = event.unwrap_or_else(|_| panic!("'{end}' is not heard, but {all:?}")).unwrap();
        let origin = event.origin();
        let (what, name) = match event {
            Event::Added { name, .. } if name == end => return all,
            Event::Added { name, .. } => ("added", name),
            Event::Removed { name, .. } => ("removed", name),
            Event::Renamed { to_name, .. } => ("renamed", to_name),
            Event::Modified { name, what: larder_fs::Aspects::DATA, .. } => ("data", name),
            Event::Modified { name, .. } => ("attributes", name),
            Event::Lost { .. } => ("lost", Bytes::new()),
            Event::Attr { .. } | Event::Data { .. } => continue,
        };
        all.push((origin, what, String::from_utf8(name.to_vec()).unwrap()));
    }
}

#[tokio::test]
async fn changes_by_other_programs_are_events() {
    let f = Fixture::new(tempfile::tempdir().unwrap());
    let mut events = f.files.events();
    std::fs::write(f.path("unheard"), "").unwrap();
    let watches =
        [f.files.watch_host(f.top).await.unwrap().unwrap(), f.files.watch_host(f.top).await.unwrap().unwrap()];
    let wanted = async |events: &mut _, end: &str, wanted: &[(&'static str, &str)]| {
        std::fs::write(f.path(end), "").unwrap();
        let wanted: Vec<_> = wanted.iter().map(|(what, name)| (BY_HOST, *what, (*name).to_owned())).collect();
        assert_eq!(told(events, end).await, wanted);
    };
    std::fs::write(f.path("a"), "1").unwrap();
    wanted(&mut events, "1", &[("added", "a"), ("data", "a")]).await;
    std::fs::rename(f.path("a"), f.path("b")).unwrap();
    std::fs::create_dir(f.path("d")).unwrap();
    std::fs::rename(f.path("b"), f.path("d/b")).unwrap();
    std::fs::set_permissions(f.path("d"), std::fs::Permissions::from_mode(0o700)).unwrap();
    wanted(&mut events, "2", &[("renamed", "b"), ("added", "d"), ("removed", "b"), ("attributes", "d")]).await;
    std::fs::remove_dir_all(f.path("d")).unwrap();
    wanted(&mut events, "3", &[("removed", "d")]).await;
    // The last watch takes the descriptor along, and the next one begins anew.
    drop(watches);
    std::fs::write(f.path("unheard, too"), "").unwrap();
    let _watch = f.files.watch_host(f.top).await.unwrap().unwrap();
    wanted(&mut events, "4", &[]).await;
    let file = f.create(f.top, "file").await.id.ino;
    assert!(matches!(f.files.watch_host(file).await, Err(FsError::NotDirectory)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_by_doors_are_told_once_and_by_their_doors_while_others_change_the_folder() {
    const DOOR: u32 = 7;
    const NAMES: usize = 60;
    let f = Fixture::new(tempfile::tempdir().unwrap());
    let files = f.files.for_door(DOOR);
    let mut events = f.files.events();
    let _watch = f.files.watch_host(f.top).await.unwrap().unwrap();
    let other = {
        let place = f.dir.path().to_owned();
        std::thread::spawn(move || {
            for n in 0..NAMES {
                let (made, moved) = (place.join(format!("other{n}")), place.join(format!("others{n}")));
                std::fs::write(&made, "1").unwrap();
                std::fs::rename(made, &moved).unwrap();
                std::fs::remove_file(moved).unwrap();
            }
        })
    };
    let (root, top) = (Cred::root(), f.top);
    let mut heard = Vec::new();
    for n in 0..NAMES {
        let [made, moved] = [format!("own{n}"), format!("owns{n}")];
        let ino = f.create(top, &made).await.id.ino;
        files.write(&root, ino, 0, vec![Bytes::from("data")], Stability::Unstable).await.unwrap();
        let set = SetAttr { mode: Some(0o600), size: Some(1), ..SetAttr::default() };
        files.setattr(&root, ino, set).await.unwrap();
        files.setxattr(&root, ino, b"user.x", b"1", XattrMode::Set).await.unwrap();
        files.rename(&root, top, made.as_bytes(), top, moved.as_bytes(), RenameMode::Replace).await.unwrap();
        files.link(&root, ino, top, made.as_bytes()).await.unwrap();
        files.unlink(&root, top, made.as_bytes()).await.unwrap();
        let dir = files.mkdir(&root, top, b"dir", SetAttr::default()).await.unwrap().0.id.ino;
        files.rename(&root, top, moved.as_bytes(), dir, b"in", RenameMode::Replace).await.unwrap();
        files.unlink(&root, dir, b"in").await.unwrap();
        files.rmdir(&root, top, b"dir").await.unwrap();
        let end = format!("end{n}");
        std::fs::write(f.path(&end), "").unwrap();
        heard.extend(told(&mut events, &end).await);
    }
    other.join().unwrap();
    std::fs::write(f.path("end"), "").unwrap();
    heard.extend(told(&mut events, "end").await);
    let by = |origin: &dyn Fn(u32) -> bool, what: &str, name: &str| {
        heard.iter().filter(|(by, kind, of)| origin(*by) && *kind == what && of.starts_with(name)).count()
    };
    let (anybody, host) = (|_: u32| true, |by: u32| by == BY_HOST);
    assert!(!heard.iter().any(|(by, _, name)| host(*by) && (name.starts_with("own") || name == "dir")), "{heard:?}");
    // `Fixture::create` is another door than the rest.
    let counts = ["added", "removed", "renamed"].map(|what| by(&anybody, what, "own"));
    assert_eq!(counts, [2 * NAMES, NAMES, NAMES], "{heard:?}");
    // A rename that was read in halves is a removal and an addition.
    let [added, removed, renamed] = ["added", "removed", "renamed"].map(|what| by(&host, what, "other"));
    assert_eq!((added + renamed, removed + renamed), (2 * NAMES, 2 * NAMES), "{heard:?}");
    assert_eq!(by(&|by| by == DOOR, "removed", "dir"), NAMES);
    assert_eq!(by(&anybody, "lost", ""), 0);
}

#[tokio::test]
async fn a_queue_of_the_kernel_that_overflows_is_told() {
    let f = Fixture::new(tempfile::tempdir().unwrap());
    let _watch = f.files.watch_host(f.top).await.unwrap().unwrap();
    let mut events = f.files.events();
    let max: usize = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    // Nobody reads meanwhile: this thread is the only one.
    for n in 0..max / 2 + 10 {
        std::fs::write(f.path(&format!("f{n}")), "").unwrap();
        std::fs::remove_file(f.path(&format!("f{n}"))).unwrap();
    }
    let mut is_lost = false;
    while !is_lost {
        let event = tokio::time::timeout(Duration::from_secs(10), events.recv()).await.unwrap();
        is_lost = matches!(event, Ok(Event::Lost { .. }));
    }
}
