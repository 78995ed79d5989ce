//! Access control lists: what a volume makes of them over the life of a file (the rules of
//! [`larder_fs::acl`]).

use larder_fs::acl::{
    self, Acl, DIRECTORY_INHERIT, EVERYTHING, FILE_INHERIT, READ_DATA, Rights, Rule, WRITE_DATA, Who,
};
use object_store::ObjectStoreExt;

use super::*;

const ANN: u32 = 30;
const BOB: u32 = 31;

fn cred(uid: u32) -> Cred {
    Cred::new(uid, uid, [])
}

fn allow(who: Who, rights: Rights) -> Rule {
    Rule { allows: true, flags: FILE_INHERIT | DIRECTORY_INHERIT, rights, who }
}

/// Ann may everything, Bob may read.
fn shared() -> Acl {
    let reading = READ_DATA | acl::EXECUTE;
    Acl { rules: vec![allow(Who::User(ANN), EVERYTHING), allow(Who::User(BOB), reading)], ..Acl::default() }
}

async fn may(volume: &Volume, uid: u32, ino: Ino, mask: AccessMask) -> bool {
    volume.access(&cred(uid), ino, mask).await.is_ok()
}

fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_inherited_decides_and_is_there_again() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let top = dir(&volume, Ino::ROOT, "d").await;
    volume.set_acl(&root(), top, SetAttr::default(), Some(shared())).await.unwrap();
    assert_eq!(volume.getattr(top).await.unwrap().mode, 0, "nobody is sure to be one of the two");
    let (made, ..) = volume.create(&cred(ANN), top, b"f", CreateMode::Guarded, mode(0o644)).await.unwrap();
    let inner = volume.mkdir(&cred(ANN), top, b"in", mode(0o755)).await.unwrap().0.id.ino;
    let deep = volume.create(&cred(ANN), inner, b"f", CreateMode::Guarded, mode(0o644)).await.unwrap().0.id.ino;
    let private = volume.create(&cred(ANN), top, b"key", CreateMode::Guarded, mode(0o600)).await.unwrap().0.id.ino;
    refused(volume.create(&cred(BOB), top, b"g", CreateMode::Guarded, mode(0o644)).await);
    refused(volume.unlink(&cred(BOB), top, b"f").await);
    check_clean(&registry).await;
    drop((registry, volume));

    let entry = place.store.get(&object_store::path::Path::from("registry.json")).await.unwrap().bytes().await.unwrap();
    assert!(String::from_utf8_lossy(&entry).contains("access-lists"), "older programs are kept out");
    let (registry, volume) = place.open().await;
    for ino in [made.id.ino, deep] {
        assert!(may(&volume, ANN, ino, ACCESS_READ | ACCESS_WRITE).await);
        assert!(may(&volume, BOB, ino, ACCESS_READ).await && !may(&volume, BOB, ino, ACCESS_WRITE).await);
        assert!(!may(&volume, 99, ino, ACCESS_READ).await);
    }
    assert!(!may(&volume, BOB, private, ACCESS_READ).await, "its maker wanted it private");
    assert_eq!(volume.acl(private).await.unwrap().1, None);
    // Writing, renaming, linking and growing leave it alone.
    volume.write(&cred(ANN), deep, 0, bytes("data"), Stability::FileSync).await.unwrap();
    volume.rename(&cred(ANN), inner, b"f", top, b"g", RenameMode::Replace).await.unwrap();
    volume.setattr(&cred(ANN), deep, SetAttr { size: Some(9), ..SetAttr::default() }).await.unwrap();
    assert!(may(&volume, BOB, deep, ACCESS_READ).await);
    check_clean(&registry).await;
}

fn refused<T: std::fmt::Debug>(result: FsResult<T>) {
    assert!(matches!(result, Err(FsError::Access)), "{result:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn chmod_takes_it_away_and_what_changes_no_bit_does_not() {
    let (_registry, volume) = fresh().await;
    let everyone =
        Acl { rules: vec![allow(Who::Owner, EVERYTHING), allow(Who::Everyone, READ_DATA)], ..Acl::default() };
    let f = file(&volume, Ino::ROOT, "f").await;
    let list = || async { volume.acl(f).await.unwrap().1 };
    volume.set_acl(&root(), f, SetAttr { uid: Some(ANN), ..SetAttr::default() }, Some(everyone.clone())).await.unwrap();
    let attr = volume.getattr(f).await.unwrap();
    assert_eq!((attr.uid, attr.mode), (ANN, 0o644));
    volume.setattr(&cred(ANN), f, mode(0o644)).await.unwrap();
    let both = SetAttr { size: Some(5), uid: Some(BOB), ..SetAttr::default() };
    let after = volume.setattr(&root(), f, both).await.unwrap().after;
    assert_eq!((after.size, after.uid, after.mode), (5, BOB, 0o644), "the owner's rule is the new owner's");
    assert_eq!(list().await.as_deref(), Some(&everyone));
    refused(volume.access(&cred(ANN), f, ACCESS_WRITE).await);
    let after = volume.setattr(&root(), f, SetAttr { size: Some(4), ..mode(0o640) }).await.unwrap().after;
    assert_eq!((after.size, after.mode, list().await), (4, 0o640, None));
    assert!(volume.set_acl(&cred(ANN), f, SetAttr::default(), Some(everyone)).await.is_err(), "not the owner");
}

/// RFC 1813 3.3.8: the mode comes with the SETATTR after an exclusive create.
#[tokio::test(flavor = "multi_thread")]
async fn the_mode_after_an_exclusive_create_is_that_of_the_create() {
    let (_registry, volume) = fresh().await;
    let top = dir(&volume, Ino::ROOT, "d").await;
    volume.set_acl(&root(), top, SetAttr::default(), Some(shared())).await.unwrap();
    for (name, asked, kept) in [(b"f", 0o644, true), (b"g", 0o600, false)] {
        let how = CreateMode::Exclusive([7; 8]);
        let ino = volume.create(&cred(ANN), top, name, how, SetAttr::default()).await.unwrap().0.id.ino;
        volume.setattr(&cred(ANN), ino, mode(asked)).await.unwrap();
        assert_eq!(may(&volume, BOB, ino, ACCESS_READ).await, kept, "{asked:o}");
        // The next one is a chmod.
        volume.setattr(&cred(ANN), ino, mode(0o604)).await.unwrap();
        assert_eq!(volume.acl(ino).await.unwrap().1, None);
    }
    let long = Acl { rules: vec![allow(Who::User(ANN), WRITE_DATA); 1000], ..Acl::default() };
    assert!(matches!(volume.set_acl(&root(), top, SetAttr::default(), Some(long)).await, Err(FsError::TooBig)));
}
