use std::collections::BTreeMap;

use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use uuid::Uuid;

use super::*;
use crate::cipher::Cipher;
use crate::keys::VolumeKey;
use crate::{HalfSealed, SealedStore};

fn keys(newest: u32) -> Arc<Keys> {
    let generations =
        (1..=newest).map(|number| (number, VolumeKey::new([number as u8; 32]))).collect::<BTreeMap<_, _>>();
    Arc::new(Keys::new(Uuid::from_u128(1), Cipher::Aes256Gcm, generations))
}

fn prefix() -> Path {
    Path::from("volumes/v")
}

fn resealing(store: &Arc<InMemory>, newest: u32, from_clear: bool) -> Resealing {
    Resealing { store: Arc::clone(store) as _, prefix: prefix(), keys: keys(newest), from_clear }
}

fn contents() -> Vec<(Path, Vec<u8>)> {
    let lengths = [0, 1, 4095, 4096, 4097, 8192, 100_000, 3 << 20];
    let of = |(number, len): (usize, usize)| {
        let content = (0..len).map(|at| (at * 7 + number) as u8).collect();
        (prefix().join("seg").join(format!("{number:016x}")), content)
    };
    lengths.into_iter().enumerate().map(of).collect()
}

async fn check(store: &Arc<InMemory>, reader: &dyn ObjectStore, newest: u32) {
    for (path, content) in contents() {
        let raw = store.get(&path).await.expect("is there").bytes().await.expect("reads");
        assert_eq!(Header::decode(&raw).expect("sealed").generation, newest, "{path}");
        assert_eq!(reader.get(&path).await.expect("reads").bytes().await.expect("reads"), content, "{path}");
    }
}

#[tokio::test]
async fn objects_in_clear_and_of_an_older_key_are_sealed_with_the_newest() {
    let store = Arc::new(InMemory::new());
    for (path, content) in contents() {
        store.put(&path, content.into()).await.expect("puts");
    }
    let beside = prefix().join("keyring.json");
    store.put(&beside, "in clear".into()).await.expect("puts");
    let strict = resealing(&store, 1, false).pass(|_| {}).await.expect("passes");
    assert_eq!((strict.sealed, strict.faults.len()), (0, contents().len()), "what is in clear is no accident");
    let mut seen = Vec::new();
    let passed = resealing(&store, 1, true).pass(|progress| seen.push(progress)).await.expect("passes");
    assert_eq!(passed, Passed { sealed: contents().len() as u64, faults: Vec::new() });
    let last = seen.last().copied().expect("progress");
    assert!(
        last.done_bytes == last.total_bytes && last.done_objects == 8 && seen.is_sorted_by_key(|one| one.done_bytes)
    );
    check(&store, &SealedStore::new(Arc::clone(&store) as _, prefix(), keys(1)), 1).await;
    assert_eq!(resealing(&store, 1, true).pass(|_| {}).await.expect("passes"), Passed::default());
    let passed = resealing(&store, 2, false).pass(|_| {}).await.expect("passes");
    assert_eq!(passed.sealed, 8);
    check(&store, &SealedStore::new(Arc::clone(&store) as _, prefix(), keys(2)), 2).await;
    let old = SealedStore::new(Arc::clone(&store) as _, prefix(), keys(1));
    for (path, _) in contents() {
        assert!(old.get_range(&path, 0..1).await.is_err(), "the old key opens nothing");
    }
    assert_eq!(store.get(&beside).await.expect("is there").bytes().await.expect("reads"), "in clear");
}

/// Cut off after each put: every object is whole, in clear or sealed, and the next pass ends the work.
#[tokio::test]
async fn a_pass_that_is_cut_off_anywhere_is_ended_by_the_next_one() {
    for from_clear in [true, false] {
        for cut in 0..contents().len() {
            let store = Arc::new(InMemory::new());
            let first = SealedStore::new(Arc::clone(&store) as _, prefix(), keys(1));
            let begun: &dyn ObjectStore = if from_clear { &*store } else { &first };
            for (path, content) in contents() {
                begun.put(&path, content.into()).await.expect("puts");
            }
            let newest = if from_clear { 1 } else { 2 };
            let resealing = resealing(&store, newest, from_clear);
            for (path, _) in contents().into_iter().take(cut) {
                assert!(resealing.object(&path).await.expect("seals"));
            }
            let reader: Box<dyn ObjectStore> = match from_clear {
                true => Box::new(HalfSealed::new(Arc::clone(&store) as _, prefix(), keys(1), true)),
                false => Box::new(SealedStore::new(Arc::clone(&store) as _, prefix(), keys(2))),
            };
            for (path, content) in contents() {
                assert_eq!(reader.get(&path).await.expect("reads").bytes().await.expect("reads"), content);
            }
            let passed = resealing.pass(|_| {}).await.expect("passes");
            assert_eq!(passed, Passed { sealed: (contents().len() - cut) as u64, faults: Vec::new() });
            check(&store, &*reader, newest).await;
        }
    }
}

#[tokio::test]
async fn a_damaged_object_is_named_and_left() {
    let store = Arc::new(InMemory::new());
    let sealed = SealedStore::new(Arc::clone(&store) as _, prefix(), keys(1));
    let (path, content) = contents().swap_remove(6);
    sealed.put(&path, content.into()).await.expect("puts");
    let mut raw = store.get(&path).await.expect("is there").bytes().await.expect("reads").to_vec();
    raw[50_000] ^= 1;
    store.put(&path, raw.clone().into()).await.expect("puts");
    let passed = resealing(&store, 2, false).pass(|_| {}).await.expect("passes");
    assert!(passed.sealed == 0 && passed.faults.len() == 1 && passed.faults[0].contains(path.as_ref()), "{passed:?}");
    assert_eq!(store.get(&path).await.expect("is there").bytes().await.expect("reads"), raw);
}
