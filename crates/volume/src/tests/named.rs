//! Named attributes: the rules of [`crate::named`].

use object_store::ObjectStoreExt;

use super::*;

async fn attribute(volume: &Volume, owner: Ino, name: &str, data: &str) -> Ino {
    let dir = volume.named_dir(owner, true).await.unwrap().unwrap();
    let made = file(volume, dir, name).await;
    volume.write(&root(), made, 0, bytes(data), Stability::FileSync).await.unwrap();
    made
}

async fn inodes(volume: &Volume) -> u64 {
    let room = volume.statfs(&Cred::root());
    room.total_files - room.free_files
}

/// Reaping runs behind the answers.
async fn until_inodes(volume: &Volume, wanted: u64) {
    for _ in 0..500 {
        if inodes(volume).await == wanted {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{} inodes, not {wanted}", inodes(volume).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn they_come_with_the_first_and_go_with_their_owner() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let before = inodes(&volume).await;
    let owners = [file(&volume, Ino::ROOT, "f").await, dir(&volume, Ino::ROOT, "d").await];
    for owner in owners {
        assert_eq!(volume.named_dir(owner, false).await.unwrap(), None);
        volume.setxattr(&root(), owner, b"user.a", b"1", XattrMode::Set).await.unwrap();
        attribute(&volume, owner, "one", "first").await;
        attribute(&volume, owner, "Two", "second").await;
        assert_eq!(volume.listxattr(&root(), owner).await.unwrap(), ["user.a"], "theirs is not shown");
        let named = volume.named_dir(owner, false).await.unwrap().unwrap();
        assert_eq!(list(&volume, named).await, ["one", "Two"]);
        assert_eq!(volume.named_dir(owner, true).await.unwrap(), Some(named), "there is one");
    }
    check_clean(&registry).await;
    drop((registry, volume));

    let entry = place.store.get(&object_store::path::Path::from("registry.json")).await.unwrap().bytes().await.unwrap();
    assert!(String::from_utf8_lossy(&entry).contains("named-attributes"), "older programs are kept out");
    let (registry, volume) = place.open().await;
    let named = volume.named_dir(owners[0], false).await.unwrap().unwrap();
    let two = volume.lookup(&root(), named, b"tWO", NameMatch::Folded).await.unwrap().id.ino;
    assert_eq!(read_all(&volume, two).await, b"second");
    volume.remove_named(owners[0]).await.unwrap();
    assert!(list(&volume, named).await.is_empty());
    volume.unlink(&root(), Ino::ROOT, b"f").await.unwrap();
    volume.rmdir(&root(), Ino::ROOT, b"d").await.unwrap();
    until_inodes(&volume, before).await;
    check_clean(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_open_stays_until_it_is_closed() {
    let (registry, volume) = fresh().await;
    let before = inodes(&volume).await;
    let owner = file(&volume, Ino::ROOT, "f").await;
    let one = attribute(&volume, owner, "one", "first").await;
    attribute(&volume, owner, "two", "second").await;
    let open = volume.open(one).await.unwrap();
    volume.unlink(&root(), Ino::ROOT, b"f").await.unwrap();
    until_inodes(&volume, before + 1).await;
    assert_eq!(read_all(&volume, one).await, b"first");
    check_clean(&registry).await;
    drop(open);
    until_inodes(&volume, before).await;
    check_clean(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_owner_keeps_them() {
    let (registry, volume) = fresh().await;
    let before = inodes(&volume).await;
    let owner = file(&volume, Ino::ROOT, "f").await;
    let one = attribute(&volume, owner, "one", "first").await;
    let open = volume.open(owner).await.unwrap();
    volume.unlink(&root(), Ino::ROOT, b"f").await.unwrap();
    assert_eq!(read_all(&volume, one).await, b"first");
    assert_eq!(err(volume.named_dir(owner, true).await), "ok");
    check_clean(&registry).await;
    drop(open);
    until_inodes(&volume, before).await;
    check_clean(&registry).await;
}

/// Half reaped: what a crash between two batches leaves is finished by the next opening.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_opening_finishes_what_was_begun() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let before = inodes(&volume).await;
    let owner = file(&volume, Ino::ROOT, "f").await;
    attribute(&volume, owner, "one", "first").await;
    let open = volume.open(owner).await.unwrap();
    volume.unlink(&root(), Ino::ROOT, b"f").await.unwrap();
    volume.sync().await.unwrap();
    // As after a kill: the open file's guard never runs.
    std::mem::forget(open);
    drop((registry, volume));
    let (registry, volume) = place.open().await;
    until_inodes(&volume, before).await;
    check_clean(&registry).await;
}

/// A client that found the directory a moment before its owner was removed makes one more entry or
/// gets an error; nothing stays behind.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_made_while_its_owner_goes_does_not_stay() {
    let (registry, volume) = fresh().await;
    let before = inodes(&volume).await;
    for round in 0..50 {
        let owner = file(&volume, Ino::ROOT, "f").await;
        attribute(&volume, owner, "one", "first").await;
        let dir = volume.named_dir(owner, false).await.unwrap().unwrap();
        let making = {
            let volume = volume.clone();
            tokio::spawn(async move {
                let mut made = 0;
                for n in 0..200 {
                    let name = format!("more{n}");
                    let set = SetAttr::default();
                    match volume.create(&root(), dir, name.as_bytes(), CreateMode::Guarded, set).await {
                        Ok(_) => made += 1,
                        Err(FsError::Stale | FsError::NotFound | FsError::NotDirectory) => break,
                        Err(error) => panic!("round {round}: {error}"),
                    }
                }
                made
            })
        };
        tokio::task::yield_now().await;
        volume.unlink(&root(), Ino::ROOT, b"f").await.unwrap();
        making.await.unwrap();
        until_inodes(&volume, before).await;
    }
    check_clean(&registry).await;
}
