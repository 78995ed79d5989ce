#![allow(clippy::unwrap_used)]
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use super::document::{FORMAT, REGISTRY, decode_document, find, read_document};
use super::*;
use crate::tests::{Box_, err, file, fresh};

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_made_listed_set_and_destroyed() {
    let place = Box_::new();
    let registry = place.registry().await;
    for bad in ["", ".a", "A", "a/b", &"x".repeat(65)] {
        assert!(err(registry.create(bad, Properties::default()).await).starts_with("invalid"), "{bad}");
    }
    let odd = Properties { record_bytes: 5000, ..Properties::default() };
    assert!(err(registry.create("a", odd).await).starts_with("invalid"));
    let a = registry.create("a", Properties::default()).await.unwrap();
    let b = registry.create("b-2.x_", Properties::default()).await.unwrap();
    assert_ne!(a.id, b.id);
    assert_eq!(err(registry.create("a", Properties::default()).await), "file exists");
    let volume = registry.volume("a").await.unwrap();
    file(&volume, Ino::ROOT, "only-in-a").await;
    let other = registry.volume("b-2.x_").await.unwrap();
    assert!(other.lookup(&Cred::root(), Ino::ROOT, b"only-in-a", NameMatch::Exact).await.is_err());
    let small = Properties { record_bytes: 4096, ..Properties::default() };
    assert_eq!(registry.set("a", small.clone()).await.unwrap().properties, small);
    assert_eq!(registry.list().await.unwrap().len(), 2);
    assert!(err(registry.destroy("a").await).starts_with("busy"));
    drop(volume);
    registry.destroy("a").await.unwrap();
    assert_eq!(err(registry.volume("a").await), "no such file or directory");
    let left = place.store.list(Some(&prefix_of(a.id))).count().await;
    assert_eq!(left, 0);
    assert_eq!(registry.list().await.unwrap().len(), 1);
    registry.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_metadata_is_damage_not_a_new_volume() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let id = volume.id();
    registry.close().await.unwrap();
    drop((registry, volume));
    let paths: Vec<_> = place.store.list(Some(&prefix_of(id))).try_collect().await.unwrap();
    for object in paths {
        place.store.delete(&object.location).await.unwrap();
    }
    let registry = place.registry().await;
    assert!(err(registry.volume("v").await).contains("lost its metadata"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_registry_is_damage_not_an_empty_store() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    drop(volume);
    registry.close().await.unwrap();
    place.store.delete(&Path::from(REGISTRY)).await.unwrap();
    // A handle from before does not make a new one, and opening it fails.
    assert!(err(registry.create("w", Properties::default()).await).contains("registry.json is gone"));
    assert!(
        err(Registry::open(place.backing(), MemoryBudget { total_bytes: 0 }).await).contains("registry.json is gone")
    );
    assert!(place.store.head(&Path::from(REGISTRY)).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doomed_volume_is_buried_at_the_next_opening() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let id = volume.id();
    drop(volume);
    let doom = registry.update(|document| {
        find(document, "v")?.doomed = true;
        Ok(())
    });
    doom.await.unwrap();
    drop(registry);
    let registry = place.registry().await;
    assert_eq!(registry.list().await.unwrap(), []);
    assert_eq!(place.store.list(Some(&prefix_of(id))).count().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_who_change_the_registry_at_once_both_succeed() {
    let place = Box_::new();
    let (one, other) = (place.registry().await, place.registry().await);
    let (a, b) = tokio::join!(one.create("a", Properties::default()), other.create("b", Properties::default()));
    a.unwrap();
    b.unwrap();
    assert_eq!(one.list().await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_names_what_is_wrong() {
    use crate::keys;
    use crate::meta::Batch;
    let (registry, volume) = fresh().await;
    let f = file(&volume, Ino::ROOT, "f").await;
    let g = file(&volume, Ino::ROOT, "G").await;
    let meta = std::sync::Arc::clone(&volume.state.meta);
    let mut batch = Batch::default();
    batch.delete(keys::inode_key(f));
    batch.delete(keys::folded_prefix(Ino::ROOT, b"g").to_vec().into_iter().chain(*b"G").collect::<Vec<u8>>());
    batch.put(keys::orphan_key(g), keys::MARK);
    batch.put(keys::cookie_key(Ino::ROOT, 99), keys::encode_cookie(g, FileKind::File, b"ghost"));
    batch.put(keys::inode_key(Ino(77)), vec![9, 9]);
    let mut extent = bytes::BytesMut::new();
    let place = crate::data::Place::Inline(b"xx".as_slice().into());
    crate::data::put_extent(&mut extent, &crate::data::Extent { len: 2, skip: 0, place });
    let key = [&[crate::data::EXTENT_TAG][..], &g.0.to_be_bytes(), &0u64.to_be_bytes()].concat();
    batch.put(key, extent.freeze());
    meta.submit(batch).unwrap();
    let report = registry.check("v", false).await.unwrap();
    let all = report.problems.join("\n");
    for expected in [
        "'f' in directory 1 leads to inode",
        "case-folded names that do not agree",
        "is marked as orphan and has 1 links",
        "'ghost' in directory 1 (/) is listed but does not exist",
        "metadata record I/000000000000004d is damaged",
        "(/G): an extent ends at 2, the file at 0",
        "statfs tells a wrong number",
    ] {
        assert!(all.contains(expected), "{expected}\n---\n{all}");
    }
}

/// Writes the registry as another program would.
async fn rewrite(place: &Box_, change: impl Fn(&mut Document)) {
    let (mut document, _) = read_document(&*place.store).await.unwrap();
    change(&mut document);
    let text = serde_json::to_vec(&document).unwrap();
    place.store.put(&Path::from(REGISTRY), PutPayload::from(text)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn features_that_nobody_knows_here() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    drop(volume);
    registry.close().await.unwrap();
    // Compatible: used, and kept when the registry is written.
    rewrite(&place, |document| document.volumes[0].features.compatible = vec!["colour".into()]).await;
    let registry = place.registry().await;
    registry.volume("v").await.unwrap();
    registry.create("w", Properties::default()).await.unwrap();
    rewrite(&place, |document| assert_eq!(document.volumes[0].features.compatible, ["colour"])).await;
    registry.close().await.unwrap();
    // Read-only compatible: told, not opened, since opening writes.
    rewrite(&place, |document| document.volumes[0].features.read_only_compatible = vec!["tally".into()]).await;
    let registry = place.registry().await;
    let refused = err(registry.volume("v").await);
    assert!(refused.contains("tally") && refused.contains("larder recover"), "{refused}");
    registry.volume("w").await.unwrap();
    assert_eq!(crate::salvage::volumes(&place.store).await.unwrap().0.len(), 2);
    // Incompatible: refused.
    rewrite(&place, |document| document.volumes[0].features.incompatible = vec!["spiral".into()]).await;
    assert!(err(crate::salvage::volumes(&place.store).await).contains("spiral"));
    let refused = err(registry.volume("v").await);
    assert!(refused.contains("spiral") && refused.contains("newer larder"), "{refused}");
    registry.close().await.unwrap();
    // The registry itself.
    rewrite(&place, |document| document.features.read_only_compatible = vec!["index".into()]).await;
    let registry = place.registry().await;
    assert!(err(registry.create("x", Properties::default()).await).contains("index"));
    assert_eq!(registry.list().await.unwrap().len(), 2);
    rewrite(&place, |document| document.features.incompatible = vec!["shards".into()]).await;
    assert!(err(registry.list().await).contains("shards"));
}

#[test]
fn golden_document() {
    let info = VolumeInfo {
        name: "v".into(),
        id: Uuid::from_u128(1),
        properties: Properties::default(),
        sealed: false,
        sealing: None,
        replica: false,
        copy: false,
        origin: None,
    };
    let entry = VolumeEntry {
        info,
        formatted: true,
        doomed: false,
        features: Features::default(),
        source: None,
        handles: None,
        former_sources: Vec::new(),
        sealing: None,
        origin: None,
        seat: Seat::default(),
        handover: None,
    };
    let document = Document { format: FORMAT, features: Features::default(), volumes: vec![entry], changes: 0 };
    let golden = concat!(
        r#"{"format":1,"volumes":[{"name":"v","id":"00000000-0000-0000-0000-000000000001","#,
        r#""properties":{"record_bytes":131072,"compression":"lz4","quota_bytes":null,"sync":"standard"},"#,
        r#""formatted":true,"doomed":false}]}"#
    );
    assert_eq!(serde_json::to_string(&document).unwrap(), golden);
    assert_eq!(serde_json::to_string(&decode_document(golden.as_bytes()).unwrap()).unwrap(), golden);
}
