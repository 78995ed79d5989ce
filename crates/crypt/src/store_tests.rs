use std::collections::BTreeMap;

use object_store::integration;
use object_store::memory::InMemory;
use uuid::Uuid;

use super::*;
use crate::cipher::Cipher;
use crate::frames::FRAME_BYTES;
use crate::keys::VolumeKey;

const PREFIX: &str = "volumes/v";

fn keys(key: u8) -> Arc<Keys> {
    let generations = BTreeMap::from([(1, VolumeKey::new([key; 32]))]);
    Arc::new(Keys::new(Uuid::from_u128(1), Cipher::Aes256Gcm, generations))
}

fn sealed() -> (Arc<InMemory>, SealedStore) {
    let inner = Arc::new(InMemory::new());
    let store = SealedStore::new(Arc::clone(&inner) as _, Path::from(PREFIX), keys(1));
    (inner, store)
}

/// As if the whole store were one volume: the suites name their objects themselves.
fn whole() -> SealedStore {
    SealedStore::new(Arc::new(InMemory::new()), Path::default(), keys(1))
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 131 % 251) as u8).collect()
}

fn at(name: &str) -> Path {
    Path::from(PREFIX).join(name)
}

#[tokio::test]
async fn it_is_an_object_store() {
    integration::put_get_delete_list(&whole()).await;
    integration::get_opts(&whole()).await;
    integration::put_opts(&whole(), true).await;
    integration::put_get_attributes(&whole()).await;
    integration::list_uses_directories_correctly(&whole()).await;
    integration::list_with_delimiter(&whole()).await;
    integration::list_with_offset_exclusivity(&whole()).await;
    integration::rename_and_copy(&whole()).await;
    integration::copy_if_not_exists(&whole()).await;
    integration::copy_rename_nonexistent_object(&whole()).await;
    integration::multipart_race_condition(&whole(), true).await;
    integration::multipart_out_of_order(&whole()).await;
    integration::stream_get(&whole()).await;
}

#[tokio::test]
async fn ranges_of_all_kinds_are_those_of_the_content() {
    let (_, store) = sealed();
    for len in [1, 4095, 4096, 4097, 20_000] {
        let path = at("object");
        store.put(&path, PutPayload::from(content(len))).await.expect("puts");
        let len = len as u64;
        let ranges = [0..1, 0..len, len - 1..len, len / 2..len, len / 3..(len / 3 + FRAME_BYTES).min(len)];
        for range in ranges.into_iter().filter(|range| range.start < range.end) {
            let expected = &content(len as usize)[range.start as usize..range.end as usize];
            assert_eq!(store.get_range(&path, range.clone()).await.expect("reads"), expected, "{range:?} of {len}");
            let many = store.get_ranges(&path, &[range.clone(), 0..1]).await.expect("reads");
            assert_eq!((&many[0][..], &many[1][..]), (expected, &content(1)[..]));
            for wanted in [
                GetRange::Offset(range.start),
                GetRange::Suffix(len - range.start),
                GetRange::Bounded(range.start..len + 9),
            ] {
                let options = GetOptions { range: Some(wanted), ..GetOptions::default() };
                let got = store.get_opts(&path, options).await.expect("reads");
                assert_eq!((got.range.clone(), got.meta.size), (range.start..len, len));
                assert_eq!(got.bytes().await.expect("reads"), &content(len as usize)[range.start as usize..]);
            }
        }
        assert_eq!(store.head(&path).await.expect("is there").size, len);
        assert!(store.get_range(&path, len..len + 1).await.is_err());
    }
}

#[tokio::test]
async fn an_object_that_was_replaced_is_read_as_it_is_now() {
    let (inner, store) = sealed();
    let other = SealedStore::new(inner as _, Path::from(PREFIX), keys(1));
    let path = at("object");
    store.put(&path, PutPayload::from(content(9000))).await.expect("puts");
    store.get_range(&path, 5000..5001).await.expect("its key is known now");
    for len in [9000, 100, 20_000] {
        let new: Vec<u8> = content(len).iter().map(|byte| byte ^ 0xff).collect();
        other.put(&path, PutPayload::from(new.clone())).await.expect("puts");
        let end = new.len() as u64;
        assert_eq!(store.get_range(&path, end - 50..end).await.expect("reads"), &new[len - 50..]);
        other.put(&path, PutPayload::from(content(len))).await.expect("puts");
        let ranges = store.get_ranges(&path, &[1..2, end - 50..end]).await.expect("reads");
        assert_eq!(ranges[1], &content(len)[len - 50..]);
    }
}

#[tokio::test]
async fn neither_content_nor_names_of_keys_reach_the_store_below() {
    let (inner, store) = sealed();
    let secret = b"nobody may read this sentence".repeat(1000);
    store.put(&at("a"), PutPayload::from(secret.clone())).await.expect("puts");
    let mut upload = store.put_multipart(&at("b")).await.expect("begins");
    for part in secret.chunks(7000) {
        upload.put_part(PutPayload::from(part.to_vec())).await.expect("a part");
    }
    upload.complete().await.expect("completes");
    assert_eq!(store.get(&at("b")).await.expect("reads").bytes().await.expect("reads"), secret);
    for name in ["a", "b"] {
        let raw = inner.get(&at(name)).await.expect("is there").bytes().await.expect("reads");
        assert!(!raw.windows(8).any(|window| secret[..40].windows(8).any(|part| part == window)));
    }
}

#[tokio::test]
async fn what_is_not_sealed_with_these_keys_at_this_place_is_an_error() {
    let (inner, store) = sealed();
    store.put(&at("a"), PutPayload::from(content(9000))).await.expect("puts");
    let raw = inner.get(&at("a")).await.expect("is there").bytes().await.expect("reads");
    inner.put(&at("moved"), raw.clone().into()).await.expect("puts");
    inner
        .put(&at("clear"), PutPayload::from_static(b"never sealed, and longer than any header of an object"))
        .await
        .expect("puts");
    inner.put(&at("short"), PutPayload::from_static(b"x")).await.expect("puts");
    inner.put(&at("cut"), raw.slice(..raw.len() - 1).into()).await.expect("puts");
    for name in ["moved", "clear", "short", "cut"] {
        let got = store.get(&at(name)).await;
        let read = async || got?.bytes().await;
        assert!(read().await.is_err(), "{name}");
        assert!(store.get_range(&at(name), 0..1).await.is_err(), "{name}");
        assert!(store.get_ranges(&at(name), std::slice::from_ref(&(0..1))).await.is_err(), "{name}");
    }
    assert!(store.put(&Path::from("volumes/other/a"), PutPayload::from_static(b"")).await.is_err(), "another volume");
    let locked = SealedStore::new(inner as _, Path::from(PREFIX), keys(2));
    assert!(locked.get(&at("a")).await.expect("begins").bytes().await.is_err());
}
