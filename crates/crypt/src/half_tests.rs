use std::collections::BTreeMap;

use object_store::memory::InMemory;
use object_store::{ObjectStoreExt, integration};
use uuid::Uuid;

use super::*;
use crate::cipher::Cipher;
use crate::keys::VolumeKey;

fn keys() -> Arc<Keys> {
    Arc::new(Keys::new(Uuid::from_u128(1), Cipher::Aes256Gcm, BTreeMap::from([(1, VolumeKey::new([1; 32]))])))
}

fn half(inner: &Arc<InMemory>) -> HalfSealed {
    HalfSealed::new(Arc::clone(inner) as _, Path::from("volumes/v"), keys(), true)
}

fn at(name: &str) -> Path {
    Path::from("volumes/v/seg").join(name)
}

#[tokio::test]
async fn it_is_an_object_store() {
    let whole = || HalfSealed::new(Arc::new(InMemory::new()), Path::default(), keys(), true);
    integration::put_get_delete_list(&whole()).await;
    integration::get_opts(&whole()).await;
    integration::put_opts(&whole(), true).await;
    integration::list_with_delimiter(&whole()).await;
    integration::rename_and_copy(&whole()).await;
    integration::copy_if_not_exists(&whole()).await;
    integration::stream_get(&whole()).await;
}

#[tokio::test]
async fn both_kinds_are_read_alike_and_one_that_is_sealed_meanwhile_is_looked_at_again() {
    let inner = Arc::new(InMemory::new());
    let sealed = SealedStore::new(Arc::clone(&inner) as _, Path::from("volumes/v"), keys());
    let content: Vec<u8> = (0..20_000).map(|at| (at % 251) as u8).collect();
    // Content that looks like a sealed object of another key.
    let other = Keys::new(Uuid::nil(), Cipher::Aes256Gcm, BTreeMap::from([(1, VolumeKey::new([9; 32]))]));
    let alike = crate::object::seal(&other, "seg/alike", &PutPayload::from(content.clone())).expect("seals");
    let alike: Vec<u8> = alike.iter().flat_map(|piece| piece.to_vec()).collect();
    for (name, content) in [("short", &b"x"[..]), ("empty", b""), ("long", &content), ("alike", &alike)] {
        let store = half(&inner);
        inner.put(&at(name), content.to_vec().into()).await.expect("puts");
        let ranges = if content.len() > 9000 { vec![0..1, 5000..9000] } else { Vec::new() };
        for round in 0..3 {
            if round == 1 {
                sealed.put(&at(name), content.to_vec().into()).await.expect("puts");
            }
            for range in &ranges {
                let wanted = &content[range.start as usize..range.end as usize];
                assert_eq!(store.get_range(&at(name), range.clone()).await.expect("reads"), wanted, "{name}");
            }
            let many = store.get_ranges(&at(name), &ranges).await.expect("reads");
            assert_eq!(
                many.concat(),
                ranges.iter().flat_map(|r| &content[r.start as usize..r.end as usize]).copied().collect::<Vec<_>>()
            );
            assert_eq!(store.get(&at(name)).await.expect("reads").bytes().await.expect("reads"), content, "{name}");
            assert_eq!(store.head(&at(name)).await.expect("is there").size, content.len() as u64);
            let listed: Vec<ObjectMeta> = store.list(Some(&at(name))).try_collect().await.expect("lists");
            let listed = [listed, half(&inner).list(None).try_collect().await.expect("lists")].concat();
            let sizes: Vec<u64> = listed.iter().filter(|one| one.location == at(name)).map(|one| one.size).collect();
            assert_eq!(sizes, [content.len() as u64], "{name}, round {round}");
        }
    }
}
