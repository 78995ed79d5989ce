//! Names, errors, permissions, times.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_life_of_a_file() {
    let (registry, volume) = fresh().await;
    let cred = Cred::new(1000, 100, []);
    let (attr, created, changed) = volume
        .create(&root(), Ino::ROOT, b"a", CreateMode::Guarded, SetAttr { mode: Some(0o640), ..SetAttr::default() })
        .await
        .unwrap();
    assert!(created && changed.after.mtime >= changed.before.mtime && changed.after.change > changed.before.change);
    assert_eq!((attr.mode, attr.nlink, attr.size, attr.kind), (0o640, 1, 0, FileKind::File));
    assert_eq!(
        err(volume.create(&root(), Ino::ROOT, b"a", CreateMode::Guarded, SetAttr::default()).await),
        "file exists"
    );
    let ino = attr.id.ino;
    volume.write(&root(), ino, 0, bytes("hello"), Stability::FileSync).await.unwrap();
    assert_eq!(read_all(&volume, ino).await, b"hello");
    assert_eq!(err(volume.access(&cred, ino, ACCESS_READ).await), "permission denied");
    let (linked, _) = volume.link(&root(), ino, Ino::ROOT, b"b").await.unwrap();
    assert_eq!(linked.nlink, 2);
    assert_eq!(list(&volume, Ino::ROOT).await, ["a", "b"]);
    let (left, _) = volume.unlink(&root(), Ino::ROOT, b"a").await.unwrap();
    assert_eq!(left.nlink, 1);
    let open = volume.open(ino).await.unwrap();
    volume.unlink(&root(), Ino::ROOT, b"b").await.unwrap();
    assert_eq!(volume.getattr(ino).await.unwrap().nlink, 0);
    assert_eq!(read_all(&volume, ino).await, b"hello");
    drop(open);
    assert_eq!(err(volume.getattr(ino).await), "stale file handle");
    assert_eq!(err(volume.lookup(&root(), Ino::ROOT, b"b", NameMatch::Exact).await), "no such file or directory");
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    check_clean(&registry).await;
    assert_eq!(registry.check("v", false).await.unwrap().inodes, 1);
    registry.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_names() {
    let (_registry, volume) = fresh().await;
    let f = file(&volume, Ino::ROOT, "f").await;
    let d = dir(&volume, Ino::ROOT, "d").await;
    file(&volume, d, "x").await;
    let set = SetAttr::default();
    let long = vec![b'n'; 256];
    let make = async |dir: Ino, name: &[u8]| err(volume.create(&root(), dir, name, CreateMode::Guarded, set).await);
    assert_eq!(make(Ino::ROOT, &long).await, "name too long");
    assert_eq!(make(Ino::ROOT, &long[..255]).await, "ok");
    assert!(make(Ino::ROOT, b"").await.starts_with("invalid"));
    assert!(make(Ino::ROOT, b"a/b").await.starts_with("invalid"));
    assert!(make(Ino::ROOT, b"a\0b").await.starts_with("invalid"));
    assert_eq!(make(Ino::ROOT, b".").await, "file exists");
    assert_eq!(make(f, b"x").await, "not a directory");
    assert_eq!(make(Ino(999_999), b"x").await, "stale file handle");
    let r = root();
    assert_eq!(err(volume.unlink(&r, Ino::ROOT, b"d").await), "is a directory");
    assert_eq!(err(volume.unlink(&r, Ino::ROOT, b"nope").await), "no such file or directory");
    assert_eq!(err(volume.rmdir(&r, Ino::ROOT, b"d").await), "directory not empty");
    assert_eq!(err(volume.rmdir(&r, Ino::ROOT, b"f").await), "not a directory");
    assert!(err(volume.rmdir(&r, Ino::ROOT, b".").await).starts_with("invalid"));
    assert_eq!(err(volume.rmdir(&r, Ino::ROOT, b"..").await), "directory not empty");
    assert_eq!(err(volume.link(&r, d, Ino::ROOT, b"hard").await), "operation not permitted");
    assert_eq!(err(volume.link(&r, f, Ino::ROOT, b"d").await), "file exists");
    assert_eq!(err(volume.setattr(&r, d, SetAttr { size: Some(0), ..set }).await), "is a directory");
    assert_eq!(err(volume.read(d, 0, 1).await), "is a directory");
    assert_eq!(err(volume.write(&r, f, u64::MAX - 1, bytes("xx"), Stability::Unstable).await), "file too large");
    assert!(err(volume.readlink(f).await).starts_with("invalid"));
    assert_eq!(volume.lookup(&r, d, b"..", NameMatch::Exact).await.unwrap().id.ino, Ino::ROOT);
    assert_eq!(volume.lookup(&r, d, b".", NameMatch::Exact).await.unwrap().id.ino, d);
}

#[tokio::test(flavor = "multi_thread")]
async fn renames() {
    let (registry, volume) = fresh().await;
    let (r, top) = (root(), Ino::ROOT);
    let a = dir(&volume, top, "a").await;
    let b = dir(&volume, top, "b").await;
    let f = file(&volume, a, "f").await;
    let rename = async |from: Ino, name: &str, to: Ino, new: &str| {
        err(volume.rename(&r, from, name.as_bytes(), to, new.as_bytes(), RenameMode::Replace).await)
    };
    assert_eq!(rename(a, "f", b, "g").await, "ok");
    assert_eq!((list(&volume, a).await.len(), list(&volume, b).await), (0, vec!["g".to_owned()]));
    assert!(rename(top, "a", a, "x").await.starts_with("invalid"));
    let c = dir(&volume, a, "c").await;
    assert!(rename(top, "a", c, "x").await.starts_with("invalid"));
    assert_eq!(rename(top, "a", top, "b").await, "directory not empty");
    assert_eq!(rename(b, "g", top, "a").await, "is a directory");
    assert_eq!(rename(top, "a", b, "g").await, "not a directory");
    assert_eq!(rename(top, "nope", b, "g").await, "no such file or directory");
    // Hard links to one inode: nothing happens, both names stay.
    volume.link(&r, f, b, b"h").await.unwrap();
    assert_eq!(rename(b, "g", b, "h").await, "ok");
    assert_eq!(list(&volume, b).await.len(), 2);
    // Replacing a file, and an empty directory.
    let old = file(&volume, top, "old").await;
    assert_eq!(rename(b, "h", top, "old").await, "ok");
    assert_eq!(err(volume.getattr(old).await), "stale file handle");
    let e = dir(&volume, top, "e").await;
    assert_eq!(volume.getattr(top).await.unwrap().nlink, 5);
    assert_eq!(rename(a, "c", top, "e").await, "ok");
    assert_eq!(err(volume.getattr(e).await), "stale file handle");
    assert_eq!(volume.parent(c).await.unwrap(), top);
    assert_eq!((volume.getattr(top).await.unwrap().nlink, volume.getattr(a).await.unwrap().nlink), (5, 2));
    // The other modes.
    let no_replace = volume.rename(&r, top, b"a", top, b"b", RenameMode::NoReplace).await;
    assert_eq!(err(no_replace), "file exists");
    volume.rename(&r, top, b"old", a, b"new", RenameMode::NoReplace).await.unwrap();
    volume.rename(&r, a, b"new", top, b"e", RenameMode::Exchange).await.unwrap();
    assert_eq!(volume.lookup(&r, a, b"new", NameMatch::Exact).await.unwrap().id.ino, c);
    assert_eq!(volume.lookup(&r, top, b"e", NameMatch::Exact).await.unwrap().id.ino, f);
    assert_eq!(volume.parent(c).await.unwrap(), a);
    check_clean(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions() {
    let (_registry, volume) = fresh().await;
    let (r, user, other) = (root(), Cred::new(1000, 100, []), Cred::new(2000, 200, []));
    let set = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    volume.setattr(&r, Ino::ROOT, set(0o755)).await.unwrap();
    assert_eq!(err(volume.create(&user, Ino::ROOT, b"x", CreateMode::Guarded, set(0o644)).await), "permission denied");
    let tmp = volume.mkdir(&r, Ino::ROOT, b"tmp", set(0o1777)).await.unwrap().0.id.ino;
    let (f, _, _) = volume.create(&user, tmp, b"f", CreateMode::Guarded, set(0o644)).await.unwrap();
    assert_eq!((f.uid, f.gid), (1000, 100));
    assert_eq!(err(volume.unlink(&other, tmp, b"f").await), "operation not permitted");
    assert_eq!(err(volume.rename(&other, tmp, b"f", tmp, b"g", RenameMode::Replace).await), "operation not permitted");
    // A name that exists is said to exist even where it could not be made.
    assert_eq!(err(volume.mkdir(&user, Ino::ROOT, b"tmp", set(0o755)).await), "file exists");
    let private = volume.mkdir(&user, tmp, b"p", set(0o700)).await.unwrap().0.id.ino;
    file(&volume, private, "in").await;
    assert_eq!(err(volume.lookup(&other, private, b"in", NameMatch::Exact).await), "permission denied");
    assert_eq!(err(volume.lookup(&other, private, b"none", NameMatch::Exact).await), "permission denied");
    assert_eq!(err(volume.readdir(&other, private, 0, 10, false).await), "permission denied");
    assert_eq!(err(volume.setattr(&other, f.id.ino, set(0o777)).await), "operation not permitted");
    assert_eq!(
        err(volume.setattr(&other, f.id.ino, SetAttr { size: Some(0), ..SetAttr::default() }).await),
        "permission denied"
    );
    // Writing takes setuid away, root's writing does not.
    volume.setattr(&user, f.id.ino, set(0o4755)).await.unwrap();
    volume.write(&r, f.id.ino, 0, bytes("x"), Stability::Unstable).await.unwrap();
    assert_eq!(volume.getattr(f.id.ino).await.unwrap().mode, 0o4755);
    let written = volume.write(&user, f.id.ino, 0, bytes("x"), Stability::Unstable).await.unwrap();
    assert_eq!(written.changed.after.mode, 0o755);
    let guard = SetAttr { guard_ctime: Some(larder_base::Timestamp::new(1, 1)), ..set(0o600) };
    assert_eq!(err(volume.setattr(&user, f.id.ino, guard).await), "the file changed meanwhile");
    assert_eq!(
        err(volume.mknod(&user, tmp, b"dev", FileKind::CharDevice, (1, 3), set(0o600)).await),
        "operation not permitted"
    );
    let (dev, _) = volume.mknod(&r, tmp, b"dev", FileKind::CharDevice, (1, 3), set(0o600)).await.unwrap();
    assert_eq!((dev.kind, dev.rdev), (FileKind::CharDevice, (1, 3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn exclusive_creates_and_symlinks() {
    let (_registry, volume) = fresh().await;
    let (r, top, set) = (root(), Ino::ROOT, SetAttr::default());
    let exclusive = |v: u8| CreateMode::Exclusive([v; 8]);
    let (first, created, _) = volume.create(&r, top, b"x", exclusive(1), set).await.unwrap();
    assert!(created);
    let (again, created, _) = volume.create(&r, top, b"x", exclusive(1), set).await.unwrap();
    assert!(!created && again.id == first.id);
    assert_eq!(err(volume.create(&r, top, b"x", exclusive(2), set).await), "file exists");
    volume.setattr(&r, first.id.ino, SetAttr { mode: Some(0o600), ..set }).await.unwrap();
    assert_eq!(err(volume.create(&r, top, b"x", exclusive(1), set).await), "file exists");
    volume.write(&r, first.id.ino, 0, bytes("data"), Stability::Unstable).await.unwrap();
    let truncate = SetAttr { size: Some(0), ..set };
    let (cut, created, _) = volume.create(&r, top, b"x", CreateMode::Unchecked, truncate).await.unwrap();
    assert_eq!((cut.size, created), (0, false));
    let longer = SetAttr { size: Some(5), ..set };
    let (sized, created, _) = volume.create(&r, top, b"x", CreateMode::Unchecked, longer).await.unwrap();
    assert_eq!((sized.size, created), (5, false));
    let (link, _) = volume.symlink(&r, top, b"l", b"some/where", set).await.unwrap();
    assert_eq!((link.size, link.kind, link.mode), (10, FileKind::Symlink, 0o777));
    assert_eq!(volume.readlink(link.id.ino).await.unwrap(), "some/where");
    assert_eq!(err(volume.symlink(&r, top, b"m", &[b'x'; 4096], set).await), "name too long");
    assert_eq!(err(volume.create(&r, top, b"l", CreateMode::Unchecked, set).await), "file exists");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_ignoring_case() {
    let (registry, volume) = fresh().await;
    let top = Ino::ROOT;
    let f = file(&volume, top, "ReadMe.TXT").await;
    let g = file(&volume, top, "straße").await;
    let found =
        async |name: &str| volume.lookup(&root(), top, name.as_bytes(), NameMatch::Folded).await.map(|a| a.id.ino);
    assert_eq!(found("readme.txt").await.unwrap(), f);
    assert_eq!(found("README.TXT").await.unwrap(), f);
    assert_eq!(found("STRAßE").await.unwrap(), g);
    assert_eq!(err(found("readme").await), "no such file or directory");
    assert_eq!(volume.stored_name(top, b"README.txt").await.unwrap(), "ReadMe.TXT");
    let h = file(&volume, top, "readme.txt").await;
    assert_eq!((found("readme.txt").await.unwrap(), found("ReadMe.TXT").await.unwrap()), (h, f));
    volume.rename(&root(), top, b"readme.txt", top, b"README.TXT", RenameMode::Replace).await.unwrap();
    volume.unlink(&root(), top, b"ReadMe.TXT").await.unwrap();
    assert_eq!(found("readMe.txt").await.unwrap(), h);
    check_clean(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn extended_attributes() {
    let (registry, volume) = fresh().await;
    let f = file(&volume, Ino::ROOT, "f").await;
    let (r, user) = (root(), Cred::new(5, 5, []));
    let set = async |cred: &Cred, name: &str, value: &[u8], mode| {
        err(volume.setxattr(cred, f, name.as_bytes(), value, mode).await)
    };
    assert_eq!(set(&user, "user.a", b"1", XattrMode::Create).await, "ok");
    assert_eq!(set(&user, "user.a", b"1", XattrMode::Create).await, "file exists");
    assert_eq!(set(&user, "user.b", b"", XattrMode::Replace).await, "attribute not found");
    assert_eq!(set(&user, "user.empty", b"", XattrMode::Set).await, "ok");
    assert_eq!(set(&user, "user.big", &vec![7; XATTR_BYTES_MAX + 1], XattrMode::Set).await, "value too large");
    assert_eq!(set(&user, "trusted.t", b"1", XattrMode::Set).await, "operation not permitted");
    assert_eq!(set(&r, "trusted.t", b"1", XattrMode::Set).await, "ok");
    assert_eq!(set(&r, "other.t", b"1", XattrMode::Set).await, "not supported");
    assert_eq!(volume.getxattr(&user, f, b"user.a").await.unwrap(), "1");
    assert_eq!(volume.getxattr(&user, f, b"user.empty").await.unwrap(), "");
    assert_eq!(err(volume.getxattr(&user, f, b"trusted.t").await), "attribute not found");
    assert_eq!(volume.listxattr(&r, f).await.unwrap(), ["trusted.t", "user.a", "user.empty"]);
    assert_eq!(volume.listxattr(&user, f).await.unwrap().len(), 2);
    volume.removexattr(&r, f, b"user.a").await.unwrap();
    assert_eq!(err(volume.removexattr(&r, f, b"user.a").await), "attribute not found");
    check_clean(&registry).await;
    volume.unlink(&r, Ino::ROOT, b"f").await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    check_clean(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quota_room_and_statfs() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let f = file(&volume, Ino::ROOT, "f").await;
    let quota = Properties { quota_bytes: Some(1 << 20), ..Properties::default() };
    registry.set("v", quota).await.unwrap();
    assert_eq!(volume.statfs(&Cred::root()).total_bytes, 1 << 20);
    let half = vec![Bytes::from(vec![1u8; 600 << 10])];
    volume.write(&root(), f, 0, half.clone(), Stability::FileSync).await.unwrap();
    assert!(volume.statfs(&Cred::root()).available_bytes < 500 << 10);
    assert_eq!(err(volume.write(&root(), f, 600 << 10, half, Stability::Unstable).await), "quota exceeded");
    registry.set("v", Properties::default()).await.unwrap();
    place.room.available.store(0, Ordering::Relaxed);
    let made = volume.create(&root(), Ino::ROOT, b"g", CreateMode::Guarded, SetAttr::default()).await;
    assert!(err(made).starts_with("no space left"));
    volume.unlink(&root(), Ino::ROOT, b"f").await.unwrap();
}

/// Data that replaces other data takes no more of the quota.
#[tokio::test(flavor = "multi_thread")]
async fn a_quota_counts_what_files_hold_and_not_what_was_written() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let f = file(&volume, Ino::ROOT, "f").await;
    // Beside the names that are there.
    volume.owners().await.unwrap();
    let quota_bytes = Some(volume.contents().charged_bytes + (10 << 20));
    registry.set("v", Properties { quota_bytes, ..Properties::default() }).await.unwrap();
    let mib = |n: u64| vec![Bytes::from((0..1 << 20).map(|i: u64| (((i * i) >> 7) ^ n) as u8).collect::<Vec<u8>>())];
    let write = async |at: u64| volume.write(&root(), f, at << 20, mib(at), Stability::Unstable).await.map(drop);
    // Overwritten again and again at 80 %.
    for n in 0..40 {
        write(n % 8).await.unwrap_or_else(|error| panic!("MiB {n}: {error}"));
    }
    for n in 8..10 {
        write(n).await.unwrap();
    }
    assert_eq!(err(write(10).await), "quota exceeded");
    // Room is back as soon as it was given up: cut off, replaced or removed.
    volume.setattr(&root(), f, SetAttr { size: Some(0), ..SetAttr::default() }).await.unwrap();
    for n in 0..10 {
        write(n).await.unwrap_or_else(|error| panic!("MiB {n} after truncation: {error}"));
    }
    volume.commit(f).await.unwrap();
    volume.unlink(&root(), Ino::ROOT, b"f").await.unwrap();
    let g = file(&volume, Ino::ROOT, "g").await;
    for n in 0..10 {
        volume.write(&root(), g, n << 20, mib(n), Stability::Unstable).await.unwrap();
    }
    assert_eq!(err(volume.write(&root(), g, 10 << 20, mib(1), Stability::Unstable).await), "quota exceeded");
    // All of it is used, to the byte: what is there may still be written over, and nothing else.
    volume.commit(g).await.unwrap();
    assert_eq!(volume.statfs(&Cred::root()).available_bytes, 0);
    for n in 0..20 {
        volume.write(&root(), g, (n % 10) << 20, mib(n), Stability::Unstable).await.unwrap();
    }
    let reserve = async |at: u64, len: u64| volume.allocate(&root(), g, at, len, AllocateMode::Extend).await.map(drop);
    reserve(0, 10 << 20).await.unwrap();
    assert_eq!(err(reserve(1, 10 << 20).await), "quota exceeded");
    assert_eq!(
        err(volume.create(&root(), Ino::ROOT, b"h", CreateMode::Guarded, SetAttr::default()).await),
        "quota exceeded"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn events_and_origins() {
    let (_registry, volume) = fresh().await;
    let mut events = volume.events();
    let mine = volume.with_origin(7);
    let (attr, _) = mine.mkdir(&root(), Ino::ROOT, b"d", SetAttr::default()).await.unwrap();
    assert!(matches!(events.try_recv().unwrap(), Event::Added { origin: 7, dir: Ino::ROOT, .. }));
    volume.rmdir(&root(), Ino::ROOT, b"d").await.unwrap();
    let removed = events.try_recv().unwrap();
    assert!(matches!(removed, Event::Removed { origin: 0, ino, .. } if ino == attr.id.ino));
}

#[tokio::test(flavor = "multi_thread")]
async fn times() {
    let (_registry, volume) = fresh().await;
    let f = file(&volume, Ino::ROOT, "f").await;
    let at = larder_base::Timestamp::new(1_000, 5);
    let set = SetAttr { atime: Some(SetTime::To(at)), mtime: Some(SetTime::To(at)), ..SetAttr::default() };
    let changed = volume.setattr(&root(), f, set).await.unwrap();
    assert_eq!((changed.after.atime, changed.after.mtime), (at, at));
    assert!(changed.after.ctime > changed.before.ctime);
    volume.write(&root(), f, 0, bytes("x"), Stability::Unstable).await.unwrap();
    let written = volume.getattr(f).await.unwrap();
    assert!(written.mtime > at && written.atime == at);
    // relatime: the first read after a change moves atime, the next does not.
    volume.read(f, 0, 1).await.unwrap();
    let read = volume.getattr(f).await.unwrap();
    assert!(read.atime > at && read.ctime == written.ctime);
    volume.read(f, 0, 1).await.unwrap();
    assert_eq!(volume.getattr(f).await.unwrap().atime, read.atime);
    let before = volume.getattr(Ino::ROOT).await.unwrap();
    volume.link(&root(), f, Ino::ROOT, b"g").await.unwrap();
    let (file_after, dir_after) = (volume.getattr(f).await.unwrap(), volume.getattr(Ino::ROOT).await.unwrap());
    assert!(file_after.ctime > read.ctime && file_after.mtime == written.mtime);
    assert!(dir_after.mtime > before.mtime && dir_after.ctime > before.ctime);
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_directories() {
    let (_registry, volume) = fresh().await;
    let d = dir(&volume, Ino::ROOT, "d").await;
    let open = volume.open(d).await.unwrap();
    volume.rmdir(&root(), Ino::ROOT, b"d").await.unwrap();
    let made = volume.create(&root(), d, b"x", CreateMode::Guarded, SetAttr::default()).await;
    assert_eq!(err(made), "no such file or directory");
    assert_eq!(volume.getattr(d).await.unwrap().nlink, 0);
    drop(open);
    assert_eq!(err(volume.getattr(d).await), "stale file handle");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_goes_from_one_file_to_another_in_one_step() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let (r, top) = (root(), Ino::ROOT);
    let sub = dir(&volume, top, "d").await;
    let one = file(&volume, top, "One").await;
    let two = file(&volume, sub, "Two").await;
    volume.write(&r, two, 0, bytes("two"), Stability::FileSync).await.unwrap();
    let before = volume.readdir(&r, sub, 0, 10, false).await.unwrap().entries[0].cookie;
    assert_eq!(err(volume.relink(&r, one, sub, b"none").await), "no such file or directory");
    assert_eq!(err(volume.relink(&r, one, top, b"d").await), "is a directory");
    assert_eq!(err(volume.relink(&r, sub, sub, b"Two").await), "operation not permitted");
    volume.setattr(&r, sub, SetAttr { mode: Some(0o755), ..SetAttr::default() }).await.unwrap();
    assert_eq!(err(volume.relink(&Cred::new(9, 9, []), one, sub, b"Two").await), "permission denied");
    let open = volume.open(two).await.unwrap();
    let (attr, changed) = volume.relink(&r, one, sub, b"Two").await.unwrap();
    assert!(attr.nlink == 2 && changed.after.change > changed.before.change);
    let listed = volume.readdir(&r, sub, 0, 10, false).await.unwrap().entries;
    assert_eq!((listed.len(), listed[0].ino, listed[0].cookie), (1, one, before));
    assert_eq!(volume.lookup(&r, sub, b"tWO", NameMatch::Folded).await.unwrap().id.ino, one);
    // A client that has the other file open still reads it.
    assert_eq!(volume.getattr(two).await.unwrap().nlink, 0);
    assert_eq!(volume.read(two, 0, 10).await.unwrap().chunks.concat(), b"two");
    drop(open);
    let (again, _) = volume.relink(&r, one, sub, b"Two").await.unwrap();
    assert_eq!(again.nlink, 2);
    registry.close().await.unwrap();
    let (registry, volume) = place.open().await;
    assert_eq!(volume.lookup(&r, sub, b"two", NameMatch::Folded).await.unwrap().id.ino, one);
    assert_eq!(registry.check("v", true).await.unwrap().problems, Vec::<String>::new());
    registry.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_without_a_name_goes_unless_it_gets_one() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let (r, top) = (root(), Ino::ROOT);
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    volume.setattr(&r, top, SetAttr { mode: Some(0o755), ..SetAttr::default() }).await.unwrap();
    assert_eq!(err(volume.create_unnamed(&Cred::new(9, 9, []), top, set).await), "permission denied");
    let (attr, open) = volume.create_unnamed(&r, top, set).await.unwrap();
    let ino = attr.id.ino;
    assert_eq!((attr.nlink, attr.mode), (0, 0o600));
    volume.write(&r, ino, 0, bytes("given"), Stability::FileSync).await.unwrap();
    let (goes, other) = volume.create_unnamed(&r, top, set).await.unwrap();
    volume.write(&r, goes.id.ino, 0, bytes("gone"), Stability::FileSync).await.unwrap();
    let (crashed, third) = volume.create_unnamed(&r, top, set).await.unwrap();
    volume.write(&r, crashed.id.ino, 0, bytes("gone"), Stability::FileSync).await.unwrap();
    let (linked, _) = volume.link(&r, ino, top, b"name").await.unwrap();
    assert_eq!(linked.nlink, 1);
    drop((open, other));
    assert_eq!(read_all(&volume, ino).await, b"given");
    assert_eq!(err(volume.getattr(goes.id.ino).await), "stale file handle");
    // A file that has lost its last name gets none again.
    let held = volume.open(ino).await.unwrap();
    volume.unlink(&r, top, b"name").await.unwrap();
    assert_eq!(err(volume.link(&r, ino, top, b"again").await), "no such file or directory");
    drop(held);
    let (attr, fourth) = volume.create_unnamed(&r, top, set).await.unwrap();
    volume.write(&r, attr.id.ino, 0, bytes("kept"), Stability::Unstable).await.unwrap();
    volume.link(&r, attr.id.ino, top, b"kept").await.unwrap();
    volume.sync().await.unwrap();
    std::mem::forget((third, fourth));
    registry.close().await.unwrap();
    let (registry, volume) = place.open().await;
    assert_eq!(list(&volume, top).await, ["kept"]);
    assert_eq!(read_all(&volume, attr.id.ino).await, b"kept");
    let since = std::time::Instant::now();
    while registry.check("v", true).await.unwrap().inodes != 2 {
        assert!(since.elapsed().as_secs() < 10, "what nobody can name is swept");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    check_clean(&registry).await;
    registry.close().await.unwrap();
}

/// A listing ends although its reader renames, replaces or adds entries, and shows each lasting
/// file once.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_ends_at_what_was_there_when_it_began() {
    const FILES: usize = 300;
    let (registry, volume) = fresh().await;
    let (r, top) = (root(), Ino::ROOT);
    for at in 0..FILES {
        file(&volume, top, &format!("f{at}")).await;
    }
    let (mut cookie, mut end, mut seen) = (0, u64::MAX, Vec::new());
    loop {
        let page = volume.readdir_before(&r, top, cookie, end, 7, false).await.unwrap();
        end = end.min(page.end);
        for entry in &page.entries {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            cookie = entry.cookie;
            let to = format!("{name}.bak");
            volume.rename(&r, top, name.as_bytes(), top, to.as_bytes(), RenameMode::Replace).await.unwrap();
            file(&volume, top, &format!("{name}.new")).await;
            seen.push(name);
        }
        assert!(seen.len() <= FILES, "a listing that never ends: {:?}", seen.last());
        if page.eof {
            break;
        }
    }
    seen.sort_unstable();
    let mut made: Vec<String> = (0..FILES).map(|at| format!("f{at}")).collect();
    made.sort_unstable();
    assert_eq!(seen, made);
    // A replaced entry keeps its place: a listing that has not reached it finds it.
    let place = |names: Vec<String>, name: &str| names.iter().position(|other| other == name);
    let before = place(list(&volume, top).await, "f7.bak");
    file(&volume, top, "temporary").await;
    volume.rename(&r, top, b"temporary", top, b"f7.bak", RenameMode::Replace).await.unwrap();
    assert_eq!(place(list(&volume, top).await, "f7.bak"), before);
    check_clean(&registry).await;
    registry.close().await.unwrap();
}

async fn owned(volume: &Volume, dir: Ino, name: &str, (uid, gid): (u32, u32)) -> Ino {
    let ino = file(volume, dir, name).await;
    let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
    volume.setattr(&root(), ino, set).await.unwrap();
    ino
}

fn quotas(users: &[(u32, u64)], groups: &[(u32, u64)]) -> Properties {
    let list = |of: &[(u32, u64)]| of.iter().map(|&(id, bytes)| OwnerQuota { id, bytes }).collect();
    Properties { owner_quotas: OwnerQuotas { users: list(users), groups: list(groups) }, ..Properties::default() }
}

async fn use_of(volume: &Volume, is_group: bool, id: u32) -> (u64, u64) {
    let list = volume.owners().await.unwrap();
    let owner = list.iter().find(|owner| owner.is_group == is_group && owner.id == id);
    owner.map_or((0, 0), |owner| (owner.used_bytes, owner.inodes))
}

#[tokio::test(flavor = "multi_thread")]
async fn quotas_of_owners_bind_whose_the_file_is() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let mib = |n: u64| vec![Bytes::from((0..1 << 20).map(|i: u64| (((i * i) >> 7) ^ n) as u8).collect::<Vec<u8>>())];
    let ann = owned(&volume, Ino::ROOT, "ann", (1000, 100)).await;
    let bob = owned(&volume, Ino::ROOT, "bob", (1001, 100)).await;
    let write =
        async |ino: Ino, at: u64| volume.write(&root(), ino, at << 20, mib(at), Stability::Unstable).await.map(drop);
    // A file and its name count beside data.
    let charge = crate::charge::INODE_BYTES + crate::charge::NAME_BYTES;
    // What is there before somebody has a quota counts, too.
    write(ann, 0).await.unwrap();
    volume.commit(ann).await.unwrap();
    registry.set("v", quotas(&[(1000, (3 << 20) + charge)], &[(100, (5 << 20) + 2 * charge)])).await.unwrap();
    assert_eq!(use_of(&volume, false, 1000).await, ((1 << 20) + charge, 1));
    for n in 1..3 {
        write(ann, n).await.unwrap();
    }
    assert_eq!(err(write(ann, 3).await), "quota exceeded");
    // Written over, cut off and written again.
    for n in 0..9 {
        write(ann, n % 3).await.unwrap();
    }
    volume.setattr(&root(), ann, SetAttr { size: Some(1 << 20), ..SetAttr::default() }).await.unwrap();
    write(ann, 1).await.unwrap();
    // The group has 3 MiB left, and its user none beyond that.
    for n in 0..3 {
        write(bob, n).await.unwrap();
    }
    assert_eq!(err(write(bob, 3).await), "quota exceeded");
    let see = |uid: u32| volume.statfs(&Cred::new(uid, 100, []));
    volume.commit(ann).await.unwrap();
    volume.commit(bob).await.unwrap();
    assert_eq!((see(1000).total_bytes, see(1000).available_bytes), ((3 << 20) + charge, 0));
    assert_eq!(see(1001).total_bytes, (5 << 20) + 2 * charge);
    assert!(volume.statfs(&Cred::new(1002, 101, [])).available_bytes > 5 << 20);
    // A file is given only to somebody who has room for it; reserved bytes count.
    let give = async |ino: Ino, uid: u32, gid: u32| {
        let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        volume.setattr(&root(), ino, set).await.map(drop)
    };
    assert_eq!(err(give(bob, 1000, 100).await), "quota exceeded");
    give(bob, 1002, 101).await.unwrap();
    volume.allocate(&root(), ann, 0, 3 << 20, AllocateMode::Extend).await.unwrap();
    assert_eq!(err(volume.allocate(&root(), ann, 0, 4 << 20, AllocateMode::Extend).await), "quota exceeded");
    assert_eq!(use_of(&volume, false, 1000).await, ((3 << 20) + charge, 1));
    assert_eq!(use_of(&volume, true, 101).await, ((3 << 20) + charge, 1));
    // As it was counted, after it was counted anew; and nothing once it is removed.
    let before = volume.owners().await.unwrap();
    drop(volume);
    registry.close().await.unwrap();
    let (registry, volume) = place.open().await;
    assert_eq!(volume.owners().await.unwrap(), before);
    volume.unlink(&root(), Ino::ROOT, b"ann").await.unwrap();
    let ann = owned(&volume, Ino::ROOT, "ann", (1000, 100)).await;
    for n in 0..3 {
        volume.write(&root(), ann, n << 20, mib(n), Stability::Unstable).await.unwrap();
    }
    assert_eq!(err(volume.write(&root(), ann, 3 << 20, mib(3), Stability::Unstable).await), "quota exceeded");
    assert_eq!(
        err(registry.set("v", quotas(&[(0, 1 << 20)], &[])).await.map(drop)),
        "invalid argument: root has no quota"
    );
    registry.set("v", Properties::default()).await.unwrap();
    volume.write(&root(), ann, 3 << 20, mib(3), Stability::Unstable).await.unwrap();
    check_clean(&registry).await;
}
