//! Quotas count names, symbolic links and attributes (`room.names_count`).

use super::*;
use crate::charge::{ATTRIBUTE_BYTES, INODE_BYTES, NAME_BYTES};

const FILE_BYTES: u64 = INODE_BYTES + NAME_BYTES;
const QUOTA_BYTES: u64 = 64 << 10;
const ANN: u32 = 1000;

/// The quota of the whole volume, of a user, of a group.
fn each_quota() -> [Properties; 3] {
    let owners = |users, groups| OwnerQuotas { users, groups };
    let quota = |id| vec![OwnerQuota { id, bytes: QUOTA_BYTES }];
    let with = |owner_quotas| Properties { owner_quotas, ..Properties::default() };
    [
        Properties { quota_bytes: Some(QUOTA_BYTES), ..Properties::default() },
        with(owners(quota(ANN), vec![])),
        with(owners(vec![], quota(100))),
    ]
}

fn ann() -> Cred {
    Cred::new(ANN, 100, [])
}

async fn open_with(quota: &Properties) -> (Box_, Registry, Volume, Ino) {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let set = SetAttr { mode: Some(0o700), uid: Some(ANN), gid: Some(100), ..SetAttr::default() };
    let home = volume.mkdir(&root(), Ino::ROOT, b"ann", set).await.unwrap().0.id.ino;
    registry.set("v", quota.clone()).await.unwrap();
    (place, registry, volume, home)
}

async fn charged(volume: &Volume) -> u64 {
    volume.owners().await.unwrap();
    volume.quota_used(&ann())
}

/// Repeats `change` until a quota refuses it. Returns how often it was made.
async fn fill(mut change: impl AsyncFnMut(u64) -> FsResult<()>) -> u64 {
    for n in 0..QUOTA_BYTES / 64 {
        match change(n).await {
            Ok(()) => {}
            Err(FsError::Quota) => return n,
            Err(error) => panic!("change {n}: {error}"),
        }
    }
    panic!("no quota refused it");
}

fn nothing() -> SetAttr {
    SetAttr::default()
}

async fn make(volume: &Volume, dir: Ino, name: &[u8]) -> FsResult<Ino> {
    volume.create(&ann(), dir, name, CreateMode::Guarded, nothing()).await.map(|made| made.0.id.ino)
}

/// Waits until what was removed is given back.
async fn given_back(volume: &Volume, before: u64) {
    for _ in 0..100 {
        if charged(volume).await == before {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("{} bytes are charged, and {before} were before", charged(volume).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_files_end_in_the_quota_and_are_given_back() {
    for quota in each_quota() {
        let (place, registry, volume, home) = open_with(&quota).await;
        let before = charged(&volume).await;
        let name = |n: u64| format!("{n:0200}").into_bytes();
        let made = fill(async |n| make(&volume, home, &name(n)).await.map(drop)).await;
        assert_eq!(made, (QUOTA_BYTES - before) / FILE_BYTES);
        assert_eq!(charged(&volume).await, before + made * FILE_BYTES);
        assert!(volume.statfs(&ann()).available_bytes < FILE_BYTES);
        // Other changes go on.
        let elsewhere = [b"e", &name(0)[..]].concat();
        volume.rename(&ann(), home, &name(0), home, &elsewhere, RenameMode::Replace).await.unwrap();
        volume.rename(&ann(), home, &elsewhere, home, &name(1), RenameMode::Replace).await.unwrap();
        assert_eq!(charged(&volume).await, before + (made - 1) * FILE_BYTES);
        make(&volume, home, b"again").await.unwrap();
        assert_eq!(err(make(&volume, home, b"more").await), "quota exceeded");
        // As it was counted, after it was counted anew.
        drop(volume);
        registry.close().await.unwrap();
        let (registry, volume) = place.open().await;
        assert_eq!(charged(&volume).await, before + made * FILE_BYTES);
        assert_eq!(err(make(&volume, home, b"more").await), "quota exceeded");
        for n in 1..made {
            volume.unlink(&ann(), home, &name(n)).await.unwrap();
        }
        volume.unlink(&ann(), home, b"again").await.unwrap();
        given_back(&volume, before).await;
        check_clean(&registry).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_links_and_targets_count() {
    for quota in each_quota() {
        let (_place, registry, volume, home) = open_with(&quota).await;
        let empty = charged(&volume).await;
        let file = make(&volume, home, b"file").await.unwrap();
        let before = charged(&volume).await;
        let name = |kind: &str, n: u64| format!("{kind}{n}").into_bytes();
        let left = QUOTA_BYTES - before;
        // Each kind alone.
        let names = fill(async |n| volume.link(&ann(), file, home, &name("link", n)).await.map(drop)).await;
        assert_eq!(names, left / NAME_BYTES);
        for n in 0..names {
            volume.unlink(&ann(), home, &name("link", n)).await.unwrap();
        }
        given_back(&volume, before).await;
        let target = vec![b't'; 3000];
        let links =
            fill(async |n| volume.symlink(&ann(), home, &name("symlink", n), &target, nothing()).await.map(drop));
        let links = links.await;
        assert_eq!(links, left / (FILE_BYTES + 3000));
        for n in 0..links {
            volume.unlink(&ann(), home, &name("symlink", n)).await.unwrap();
        }
        given_back(&volume, before).await;
        let dirs = fill(async |n| volume.mkdir(&ann(), home, &name("dir", n), nothing()).await.map(drop)).await;
        assert_eq!(dirs, left / FILE_BYTES);
        for n in 0..dirs {
            volume.rmdir(&ann(), home, &name("dir", n)).await.unwrap();
        }
        given_back(&volume, before).await;
        // Without a name it counts while it is open.
        let mut open = Vec::new();
        fill(async |_| volume.create_unnamed(&ann(), home, nothing()).await.map(|made| open.push(made))).await;
        assert!(open.len() as u64 >= left / FILE_BYTES, "{}", open.len());
        drop(open);
        given_back(&volume, before).await;
        volume.unlink(&ann(), home, b"file").await.unwrap();
        given_back(&volume, empty).await;
        check_clean(&registry).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_count() {
    for quota in each_quota() {
        let (place, registry, volume, home) = open_with(&quota).await;
        let file = make(&volume, home, b"file").await.unwrap();
        let before = charged(&volume).await;
        let name = |n: u64| format!("user.{n:095}").into_bytes();
        let set = async |n: u64, value: &[u8]| volume.setxattr(&ann(), file, &name(n), value, XattrMode::Set).await;
        // Without values.
        let made = fill(async |n| set(n, b"").await).await;
        assert_eq!(made, (QUOTA_BYTES - before) / (ATTRIBUTE_BYTES + 100));
        for n in 0..made {
            volume.removexattr(&ann(), file, &name(n)).await.unwrap();
        }
        assert_eq!(charged(&volume).await, before);
        // With long ones, which may be replaced at the quota by others that are no longer.
        let value = vec![7; 10_000];
        let made = fill(async |n| set(n, &value).await).await;
        assert_eq!(made, (QUOTA_BYTES - before) / (ATTRIBUTE_BYTES + 100 + 10_000));
        let full = charged(&volume).await;
        assert_eq!(full, before + made * (ATTRIBUTE_BYTES + 100 + 10_000));
        set(0, &vec![8; 10_000]).await.unwrap();
        assert_eq!(err(set(0, &vec![8; 30_000]).await), "quota exceeded");
        assert_eq!(charged(&volume).await, full);
        set(0, b"short").await.unwrap();
        assert_eq!(charged(&volume).await, full - 10_000 + 5);
        set(0, &value).await.unwrap();
        drop(volume);
        registry.close().await.unwrap();
        let (registry, volume) = place.open().await;
        assert_eq!(charged(&volume).await, full);
        check_clean(&registry).await;
        // They go with their file.
        volume.unlink(&ann(), home, b"file").await.unwrap();
        given_back(&volume, before - FILE_BYTES).await;
        check_clean(&registry).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn access_lists_count() {
    use larder_fs::acl::{Acl, Rule, Who};
    let [_, quota, _] = each_quota();
    let (_place, registry, volume, home) = open_with(&quota).await;
    let file = make(&volume, home, b"file").await.unwrap();
    let before = charged(&volume).await;
    let list = |rules: u32| {
        let rule = |n: u32| Rule { who: Who::User(n), allows: true, flags: 0, rights: 1 };
        Acl { is_protected: false, marks_inherited: false, rules: (0..rules).map(rule).collect() }
    };
    volume.set_acl(&ann(), file, nothing(), Some(list(500))).await.unwrap();
    assert_eq!(charged(&volume).await, before + 5001);
    fill(async |n| make(&volume, home, format!("{n}").as_bytes()).await.map(drop)).await;
    assert_eq!(err(volume.set_acl(&ann(), file, nothing(), Some(list(800))).await), "quota exceeded");
    volume.set_acl(&ann(), file, nothing(), Some(list(400))).await.unwrap();
    volume.set_acl(&ann(), file, nothing(), None).await.unwrap();
    volume.set_acl(&ann(), file, nothing(), Some(list(500))).await.unwrap();
    check_clean(&registry).await;
}

/// Named attributes are files.
#[tokio::test(flavor = "multi_thread")]
async fn named_attributes_count() {
    for quota in each_quota() {
        let (_place, registry, volume, home) = open_with(&quota).await;
        let empty = charged(&volume).await;
        let file = make(&volume, home, b"file").await.unwrap();
        let dir = volume.named_dir(file, true).await.unwrap().unwrap();
        let checked = Cred { checked: true, ..ann() };
        let add = async |n: u64| {
            let name = format!("stream{n}").into_bytes();
            volume.create(&checked, dir, &name, CreateMode::Guarded, nothing()).await.map(drop)
        };
        fill(add).await;
        volume.unlink(&ann(), home, b"file").await.unwrap();
        given_back(&volume, empty).await;
        check_clean(&registry).await;
    }
}

/// `named.of_its_user`: made by root for ann, given to bob.
#[tokio::test(flavor = "multi_thread")]
async fn named_attributes_are_of_the_user_of_their_file() {
    const BOB: u32 = 1001;
    let [_, quota, _] = each_quota();
    let (_place, registry, volume, home) = open_with(&quota).await;
    let (free, ids) = (charged(&volume).await, |attr: Attr| (attr.uid, attr.gid));
    let file = make(&volume, home, b"file").await.unwrap();
    let dir = volume.named_dir(file, true).await.unwrap().unwrap();
    let own = SetAttr { uid: Some(ANN), gid: Some(100), ..nothing() };
    let make = async |name: &[u8]| volume.create(&root(), dir, name, CreateMode::Guarded, own).await;
    let streams = [make(b"one").await.unwrap().0.id.ino, make(b"two").await.unwrap().0.id.ino];
    let fill = fill(async |n| make(format!("more{n}").as_bytes()).await.map(drop)).await;
    assert!(fill > 10, "{fill}");
    volume.setattr(&root(), file, SetAttr { uid: Some(BOB), gid: Some(7), ..nothing() }).await.unwrap();
    for ino in [file, dir, streams[0], streams[1]] {
        assert_eq!(ids(volume.getattr(ino).await.unwrap()), (BOB, 7));
    }
    given_back(&volume, free).await;
    // As older programs made them, and as a crash leaves them.
    for ino in [dir, streams[0]] {
        volume.setattr(&root(), ino, SetAttr { uid: Some(0), gid: Some(0), ..nothing() }).await.unwrap();
    }
    assert_eq!(volume.named_dir(file, false).await.unwrap(), Some(dir));
    assert_eq!(ids(volume.getattr(streams[0]).await.unwrap()), (0, 0));
    assert_eq!(volume.named_dir(file, true).await.unwrap(), Some(dir));
    for ino in [dir, streams[0]] {
        assert_eq!(ids(volume.getattr(ino).await.unwrap()), (BOB, 7));
    }
    check_clean(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_given_with_its_charge() {
    let [_, quota, _] = each_quota();
    let (_place, registry, volume, home) = open_with(&quota).await;
    let big = file(&volume, Ino::ROOT, "big").await;
    for n in 0..2 {
        let name = format!("user.{n}").into_bytes();
        volume.setxattr(&root(), big, &name, &vec![1; 40_000], XattrMode::Set).await.unwrap();
    }
    let give = async || volume.setattr(&root(), big, SetAttr { uid: Some(ANN), ..nothing() }).await;
    assert_eq!(err(give().await), "quota exceeded");
    volume.removexattr(&root(), big, b"user.1").await.unwrap();
    give().await.unwrap();
    make(&volume, home, b"file").await.unwrap();
    assert_eq!(charged(&volume).await, 3 * FILE_BYTES + ATTRIBUTE_BYTES + 40_006);
    check_clean(&registry).await;
}

/// Over a quota that was lowered, and over one that did not count names before.
#[tokio::test(flavor = "multi_thread")]
async fn what_adds_nothing_is_not_refused() {
    for quota in each_quota() {
        let (_place, registry, volume, home) = open_with(&Properties::default()).await;
        // Of everybody, and of one owner.
        let empty = if quota.quota_bytes.is_some() { charged(&volume).await } else { FILE_BYTES };
        let file = make(&volume, home, b"file").await.unwrap();
        // It does not compress: quotas of owners count the bytes that are stored.
        let noise = |n: u32| larder_base::checksum::checksum(1, &n.to_be_bytes()) as u8;
        let mut data = vec![Bytes::from((0..100_000).map(noise).collect::<Vec<u8>>())];
        volume.write(&ann(), file, 0, data.clone(), Stability::FileSync).await.unwrap();
        volume.setxattr(&ann(), file, b"user.a", b"1234", XattrMode::Set).await.unwrap();
        registry.set("v", quota).await.unwrap();
        charged(&volume).await;
        volume.write(&ann(), file, 0, data.clone(), Stability::FileSync).await.unwrap();
        volume.setxattr(&ann(), file, b"user.a", b"123", XattrMode::Set).await.unwrap();
        volume.setattr(&ann(), file, SetAttr { mode: Some(0o600), ..nothing() }).await.unwrap();
        volume.rename(&ann(), home, b"file", home, b"renamed", RenameMode::Replace).await.unwrap();
        data.push(Bytes::from(vec![3; 1]));
        assert_eq!(err(volume.write(&ann(), file, 0, data, Stability::FileSync).await), "quota exceeded");
        assert_eq!(err(volume.setxattr(&ann(), file, b"user.a", b"12345", XattrMode::Set).await), "quota exceeded");
        volume.removexattr(&ann(), file, b"user.a").await.unwrap();
        volume.setattr(&ann(), file, SetAttr { size: Some(10), ..nothing() }).await.unwrap();
        volume.unlink(&ann(), home, b"renamed").await.unwrap();
        given_back(&volume, empty).await;
        check_clean(&registry).await;
    }
}

/// A record of a program that did not count the bytes of attributes: the first change counts them.
#[tokio::test(flavor = "multi_thread")]
async fn attributes_of_older_programs_are_counted_with_the_first_change() {
    let [_, quota, _] = each_quota();
    let (place, registry, volume, home) = open_with(&quota).await;
    let file = make(&volume, home, b"file").await.unwrap();
    for n in 0..3 {
        let name = format!("user.{n}").into_bytes();
        volume.setxattr(&ann(), file, &name, &[n; 1000], XattrMode::Set).await.unwrap();
    }
    let before = charged(&volume).await;
    // As such a program writes it.
    let inode = volume.state.inode(file).await.unwrap();
    inode.core.lock().xattr_bytes = 0;
    drop(inode);
    volume.setattr(&ann(), file, SetAttr { mode: Some(0o600), ..nothing() }).await.unwrap();
    assert_eq!(charged(&volume).await, before - 3 * 1006);
    check_clean(&registry).await;
    drop(volume);
    registry.close().await.unwrap();
    let (registry, volume) = place.open().await;
    assert_eq!(charged(&volume).await, before - 3 * 1006);
    volume.setxattr(&ann(), file, b"user.0", b"", XattrMode::Set).await.unwrap();
    assert_eq!(charged(&volume).await, before - 1000);
    volume.removexattr(&ann(), file, b"user.0").await.unwrap();
    assert_eq!(charged(&volume).await, before - 1000 - 6 - ATTRIBUTE_BYTES);
    check_clean(&registry).await;
}

/// A count that does not fit the rows is a finding of `larder check`.
#[tokio::test(flavor = "multi_thread")]
async fn check_finds_a_wrong_count() {
    let (_place, registry, volume, home) = open_with(&Properties::default()).await;
    let file = make(&volume, home, b"file").await.unwrap();
    volume.setxattr(&ann(), file, b"user.a", b"1234", XattrMode::Set).await.unwrap();
    volume.state.inode(file).await.unwrap().core.lock().xattr_bytes = 9;
    volume.setattr(&ann(), file, SetAttr { mode: Some(0o600), ..nothing() }).await.unwrap();
    let problems = registry.check("v", true).await.unwrap().problems;
    assert!(problems.len() == 1 && problems[0].contains("9 bytes") && problems[0].contains("10"), "{problems:?}");
}
