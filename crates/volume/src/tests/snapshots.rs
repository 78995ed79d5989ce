//! Snapshots as callers see them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::TryStreamExt;
use larder_base::Timestamp;
use object_store::ObjectStoreExt;

use super::*;

/// The root of a snapshot, by the way that a client takes.
pub(super) async fn view(volume: &Volume, name: &str) -> FsResult<Ino> {
    let catalog = volume.lookup(&root(), Ino::ROOT, b".snapshots", NameMatch::Exact).await?;
    Ok(volume.lookup(&root(), catalog.id.ino, name.as_bytes(), NameMatch::Exact).await?.id.ino)
}

pub(super) async fn find(volume: &Volume, dir: Ino, name: &str) -> FsResult<Ino> {
    Ok(volume.lookup(&root(), dir, name.as_bytes(), NameMatch::Exact).await?.id.ino)
}

pub(super) async fn put(volume: &Volume, ino: Ino, offset: u64, bytes: Vec<u8>, stability: Stability) {
    volume.write(&root(), ino, offset, vec![bytes.into()], stability).await.unwrap();
}

pub(super) async fn store_bytes(place: &Box_) -> u64 {
    place
        .store
        .list(None)
        .map_ok(|object| object.size)
        .try_fold(0, |sum, size| async move { Ok(sum + size) })
        .await
        .unwrap()
}

/// Every path below `dir` with the content of files.
pub(super) async fn tree(volume: &Volume, dir: Ino) -> BTreeMap<String, Vec<u8>> {
    let mut out = BTreeMap::new();
    let mut dirs = vec![(dir, String::new())];
    while let Some((dir, path)) = dirs.pop() {
        for name in list(volume, dir).await {
            let path = format!("{path}/{name}");
            let attr = volume.lookup(&root(), dir, name.as_bytes(), NameMatch::Exact).await.unwrap();
            match attr.kind {
                FileKind::Directory => {
                    out.insert(path.clone(), Vec::new());
                    dirs.push((attr.id.ino, path));
                }
                _ => {
                    let content = read_all(volume, attr.id.ino).await;
                    assert_eq!(content.len() as u64, attr.size, "{path}");
                    out.insert(path, content);
                }
            }
        }
    }
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_keeps_what_was_there() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let folder = dir(&volume, Ino::ROOT, "folder").await;
    let (durable, dirty, tiny) = (
        file(&volume, folder, "durable").await,
        file(&volume, folder, "dirty").await,
        file(&volume, folder, "tiny").await,
    );
    put(&volume, durable, 0, vec![1; 300_000], Stability::FileSync).await;
    put(&volume, dirty, 0, vec![2; 300_000], Stability::FileSync).await;
    put(&volume, dirty, 100_000, vec![3; 5000], Stability::Unstable).await;
    put(&volume, dirty, 299_999, vec![4; 200_000], Stability::Unstable).await;
    put(&volume, tiny, 0, b"small".to_vec(), Stability::Unstable).await;
    volume.setxattr(&root(), durable, b"user.a", b"then", XattrMode::Create).await.unwrap();
    let then = tree(&volume, Ino::ROOT).await;
    let attr = volume.getattr(dirty).await.unwrap();
    assert!(find(&volume, Ino::ROOT, ".snapshots").await.is_err(), "there is none yet");

    let info = volume.snapshot("first").await.unwrap();
    assert_eq!((info.name.as_str(), info.number), ("first", 1));
    assert!(matches!(volume.snapshot("first").await, Err(FsError::Exists)));
    assert!(matches!(volume.snapshot("a/b").await, Err(FsError::Invalid(_))));

    // Everything changes.
    volume.setattr(&root(), durable, SetAttr { size: Some(10), ..SetAttr::default() }).await.unwrap();
    put(&volume, dirty, 0, vec![9; 400_000], Stability::FileSync).await;
    volume.unlink(&root(), folder, b"tiny").await.unwrap();
    volume.removexattr(&root(), durable, b"user.a").await.unwrap();
    volume.rename(&root(), folder, b"dirty", Ino::ROOT, b"moved", RenameMode::Replace).await.unwrap();
    file(&volume, folder, "new").await;

    for round in 0..2 {
        let top = view(&volume, "first").await.unwrap();
        assert_eq!(tree(&volume, top).await, then, "round {round}");
        let folder = find(&volume, top, "folder").await.unwrap();
        let old = volume.getattr(find(&volume, folder, "dirty").await.unwrap()).await.unwrap();
        assert_eq!((old.size, old.mode, old.mtime), (attr.size, attr.mode, attr.mtime));
        let durable = find(&volume, folder, "durable").await.unwrap();
        assert_eq!(&volume.getxattr(&root(), durable, b"user.a").await.unwrap()[..], b"then");
        volume.sync().await.unwrap();
    }
    drop(volume);
    registry.close().await.unwrap();

    // It is still there when the volume is opened again, and goes when it is told to.
    let (registry, volume) = place.open().await;
    let top = view(&volume, "first").await.unwrap();
    assert_eq!(tree(&volume, top).await, then);
    check_clean(&registry).await;
    volume.destroy_snapshot("first").await.unwrap();
    assert!(matches!(volume.getattr(top).await, Err(FsError::Stale)));
    assert!(view(&volume, "first").await.is_err());
    assert!(volume.snapshots().is_empty());
    check_clean(&registry).await;
    assert_eq!(volume.snapshot("first").await.unwrap().number, 2, "a number is never used again");
}

#[tokio::test]
async fn nothing_in_a_snapshot_changes() {
    let (_registry, volume) = fresh().await;
    let folder = dir(&volume, Ino::ROOT, "folder").await;
    let inner = file(&volume, folder, "inner").await;
    put(&volume, inner, 0, b"content".to_vec(), Stability::FileSync).await;
    volume.snapshot("s").await.unwrap();
    let top = view(&volume, "s").await.unwrap();
    let catalog = find(&volume, Ino::ROOT, ".snapshots").await.unwrap();
    let folder = find(&volume, top, "folder").await.unwrap();
    let inner = find(&volume, folder, "inner").await.unwrap();
    let cred = root();
    let set = SetAttr { mode: Some(0), ..SetAttr::default() };
    let read_only = |text: String| assert!(text.starts_with("read-only volume"), "{text}");
    read_only(err(volume.write(&cred, inner, 0, bytes("x"), Stability::Unstable).await));
    read_only(err(volume.append(&cred, inner, bytes("x"), Stability::Unstable).await));
    read_only(err(volume.setattr(&cred, inner, set).await));
    read_only(err(volume.setattr(&cred, inner, SetAttr { size: Some(0), ..SetAttr::default() }).await));
    read_only(err(volume.set_acl(&cred, inner, set, None).await));
    read_only(err(volume.allocate(&cred, inner, 0, 10, AllocateMode::PunchHole).await));
    read_only(err(volume.setxattr(&cred, inner, b"user.x", b"", XattrMode::Set).await));
    read_only(err(volume.removexattr(&cred, inner, b"user.x").await));
    read_only(err(volume.named_dir(inner, true).await));
    for dir in [top, folder, catalog] {
        read_only(err(volume.create(&cred, dir, b"new", CreateMode::Unchecked, set).await));
        read_only(err(volume.create_unnamed(&cred, dir, set).await));
        read_only(err(volume.mkdir(&cred, dir, b"new", set).await));
        read_only(err(volume.symlink(&cred, dir, b"new", b"to", set).await));
        read_only(err(volume.unlink(&cred, dir, b"inner").await));
        read_only(err(volume.rmdir(&cred, dir, b"folder").await));
        read_only(err(volume.rename(&cred, dir, b"inner", Ino::ROOT, b"out", RenameMode::Replace).await));
        read_only(err(volume.rename(&cred, Ino::ROOT, b"folder", dir, b"in", RenameMode::Replace).await));
        read_only(err(volume.link(&cred, inner, dir, b"new").await));
    }
    read_only(err(volume.link(&cred, inner, Ino::ROOT, b"new").await));
    read_only(err(volume.rmdir(&cred, Ino::ROOT, b".snapshots").await));
    read_only(err(volume.rename(&cred, Ino::ROOT, b".snapshots", Ino::ROOT, b"other", RenameMode::Replace).await));
    assert_eq!(err(volume.mkdir(&cred, Ino::ROOT, b".snapshots", set).await), "file exists");
    assert_eq!(read_all(&volume, inner).await, b"content");
    volume.commit(inner).await.unwrap();
    // The way up, and listings.
    assert_eq!(volume.parent(folder).await.unwrap(), top);
    assert_eq!(volume.parent(top).await.unwrap(), catalog);
    assert_eq!(volume.parent(catalog).await.unwrap(), Ino::ROOT);
    assert_eq!(list(&volume, catalog).await, ["s"]);
    assert_eq!(list(&volume, Ino::ROOT).await, ["folder"], "the directory of snapshots is not listed");
    assert_eq!(find(&volume, catalog, "s").await.unwrap(), top);
    let folded = volume.lookup(&cred, catalog, b"S", NameMatch::Folded).await.unwrap();
    assert_eq!(folded.id.ino, top);
}

/// Writers that never stop: each writes a number into one file and then into another, not durably, and every few numbers
/// makes a file of that name. Whatever the moment of a snapshot, it shows one point of that order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_one_moment() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut writers = Vec::new();
    for writer in 0..8u64 {
        let home = dir(&volume, Ino::ROOT, &format!("w{writer}")).await;
        let (one, two) = (file(&volume, home, "one").await, file(&volume, home, "two").await);
        let (volume, stop) = (volume.clone(), Arc::clone(&stop));
        writers.push(tokio::spawn(async move {
            let mut number = 0u64;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                // Of many pieces, and longer every few rounds.
                let mut content = vec![(number % 251) as u8; 5000 + (number % 97) as usize * 100];
                content[..8].copy_from_slice(&number.to_be_bytes());
                put(&volume, one, 0, content.clone(), Stability::Unstable).await;
                put(&volume, two, 0, content, Stability::Unstable).await;
                if number.is_multiple_of(5) {
                    file(&volume, home, &format!("n{number}")).await;
                }
                if number.is_multiple_of(7) {
                    volume.commit(if number.is_multiple_of(2) { one } else { two }).await.unwrap();
                }
                if number.is_multiple_of(11) {
                    volume.setattr(&root(), one, SetAttr { size: Some(8), ..SetAttr::default() }).await.unwrap();
                    put(&volume, one, 0, number.to_be_bytes().to_vec(), Stability::Unstable).await;
                }
                tokio::task::yield_now().await;
            }
            number
        }));
    }
    let mut answered = Vec::new();
    for at in 0..12 {
        tokio::time::sleep(Duration::from_millis(40)).await;
        let name = format!("s{at}");
        let began = std::time::Instant::now();
        volume.snapshot(&name).await.unwrap();
        answered.push((name, began.elapsed()));
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        assert!(writer.await.unwrap() > 20);
    }
    let number_in = |content: &[u8]| content.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    let mut opened = (registry, volume);
    for reopened in [false, true] {
        if reopened {
            drop(opened.1);
            opened.0.close().await.unwrap();
            opened = place.open().await;
        }
        let volume = &opened.1;
        let mut last = [0; 8];
        for (name, took) in &answered {
            let top = view(volume, name).await.unwrap();
            for (writer, last) in last.iter_mut().enumerate() {
                let home = find(volume, top, &format!("w{writer}")).await.unwrap();
                let one = read_all(volume, find(volume, home, "one").await.unwrap()).await;
                let two = read_all(volume, find(volume, home, "two").await.unwrap()).await;
                let (first, second) = (number_in(&one), number_in(&two));
                assert!(first == second || first == second + 1, "{name}, writer {writer}: {first} and {second}");
                assert!(second >= *last, "{name}, writer {writer}: {second} after {last}");
                let made = list(volume, home).await;
                let newest =
                    made.iter().filter_map(|name| name.strip_prefix('n')?.parse::<u64>().ok()).max().unwrap_or(0);
                assert!(
                    newest <= first && newest + 5 >= first.saturating_sub(1),
                    "{name}, writer {writer}: {newest} at {first}, {took:?}"
                );
                *last = second;
            }
        }
        check_clean(&opened.0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_comes_back() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let ino = file(&volume, Ino::ROOT, "f").await;
    let random = |seed: u8| {
        let words = (0..250_000u64).map(|at| crate::numbers::mix(at ^ u64::from(seed) << 40));
        words.flat_map(u64::to_be_bytes).collect::<Vec<u8>>()
    };
    put(&volume, ino, 0, random(0), Stability::FileSync).await;
    volume.sync().await.unwrap();
    let base = store_bytes(&place).await;
    for round in 1..=6u8 {
        volume.snapshot(&format!("r{round}")).await.unwrap();
        put(&volume, ino, 0, random(round), Stability::FileSync).await;
        volume.sync().await.unwrap();
    }
    let infos = volume.snapshots();
    let used: Vec<u64> = infos.iter().map(|info| info.used_bytes).collect();
    assert!(used.iter().all(|used| (1_900_000..2_500_000).contains(used)), "{used:?}");
    assert!(store_bytes(&place).await > base + 6 * 1_900_000);
    // Each gives back what it said that it alone keeps.
    for name in ["r3", "r1", "r6", "r2", "r5", "r4"] {
        let before = store_bytes(&place).await;
        let used = volume.snapshots().iter().find(|info| info.name == name).unwrap().used_bytes;
        volume.destroy_snapshot(name).await.unwrap();
        let mut freed = 0;
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            freed = before.saturating_sub(store_bytes(&place).await);
            if freed >= 1_900_000 {
                break;
            }
        }
        assert!(freed >= 1_900_000 && freed <= used + 100_000, "{name}: {freed} of {used}");
    }
    check_clean(&registry).await;
    assert_eq!(read_all(&volume, ino).await, random(6));
}

async fn tables(place: &Box_) -> usize {
    let objects: Vec<_> = place.store.list(None).try_collect().await.unwrap();
    objects.iter().filter(|object| object.location.as_ref().ends_with(".sst")).count()
}

/// Nothing is written after the snapshots are destroyed (`maintain.snapshots_room_returns`): while the volume is open,
/// and after it was closed at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_destroyed_snapshots_go_from_an_idle_volume() {
    let check = async |reopens: bool| {
        let place = Box_::new();
        for life in 0..7u64 {
            let (registry, volume) = place.open().await;
            for name in 0..40 {
                file(&volume, Ino::ROOT, &format!("f{life}-{name}")).await;
            }
            volume.snapshot(&format!("s{life}")).await.unwrap();
            registry.close().await.unwrap();
        }
        let (mut registry, volume) = place.open().await;
        // Until the tables are merged, those that snapshots read stay.
        tokio::time::sleep(Duration::from_secs(12)).await;
        let before = tables(&place).await;
        let names: Vec<String> = volume.snapshots().into_iter().map(|info| info.name).collect();
        for name in names {
            volume.destroy_snapshot(&name).await.unwrap();
        }
        if reopens {
            registry.close().await.unwrap();
            registry = place.open().await.0;
        }
        let mut left = before;
        for _ in 0..300 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            left = tables(&place).await;
            if left < before {
                break;
            }
        }
        assert!(left < before, "of {before} tables {left} are left, opened again {reopens}");
        registry.close().await.unwrap();
    };
    tokio::join!(check(false), check(true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_leaves_a_whole_snapshot_or_none() {
    let place = Box_::new();
    let mut kept: BTreeMap<String, BTreeMap<String, Vec<u8>>> = BTreeMap::new();
    for life in 0..8u64 {
        let (registry, volume) = place.open().await;
        let known: Vec<String> = volume.snapshots().into_iter().map(|info| info.name).collect();
        for (name, then) in &kept {
            assert!(known.contains(name), "life {life}: {name} is gone");
            assert_eq!(&tree(&volume, view(&volume, name).await.unwrap()).await, then, "life {life}: {name}");
        }
        check_clean(&registry).await;
        for round in 0..3 {
            let name = format!("f{}", (life * 3 + round) % 5);
            let ino = match find(&volume, Ino::ROOT, &name).await {
                Ok(ino) => ino,
                Err(_) => file(&volume, Ino::ROOT, &name).await,
            };
            put(&volume, ino, life * 1000, vec![(life * 3 + round) as u8; 50_000], Stability::Unstable).await;
            if round == 1 {
                let then = tree(&volume, Ino::ROOT).await;
                let name = format!("life{life}");
                volume.snapshot(&name).await.unwrap();
                kept.insert(name, then);
            }
        }
        if life % 3 == 2 {
            let oldest = kept.keys().next().unwrap().clone();
            volume.destroy_snapshot(&oldest).await.unwrap();
            kept.remove(&oldest);
        }
        // One more is on its way when the process dies.
        let late = tokio::spawn({
            let volume = volume.clone();
            async move { volume.snapshot(&format!("late{life}")).await }
        });
        tokio::time::sleep(Duration::from_millis(life)).await;
        late.abort();
        drop((registry, volume));
    }
}

/// Back and forth between snapshots, with changes of every kind in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_goes_back_and_forth() {
    let place = Box_::new();
    let (registry, mut volume) = place.open().await;
    let mut random = 7u64;
    let mut next = |max: u64| {
        random = crate::numbers::mix(random + 1);
        random % max
    };
    let mut then = BTreeMap::new();
    let mut change = 0;
    for round in 0..8u64 {
        let folder = dir(&volume, Ino::ROOT, &format!("d{round}")).await;
        for at in 0..12u64 {
            let name = format!("f{}", next(10));
            let at_home = if next(2) == 0 { Ino::ROOT } else { folder };
            let ino = match find(&volume, at_home, &name).await {
                Ok(ino) => ino,
                Err(_) => file(&volume, at_home, &name).await,
            };
            match next(7) {
                0 => drop(volume.unlink(&root(), at_home, name.as_bytes()).await.unwrap()),
                1 => drop(
                    volume
                        .rename(&root(), at_home, name.as_bytes(), folder, b"moved", RenameMode::Replace)
                        .await
                        .unwrap(),
                ),
                2 => volume.setxattr(&root(), ino, b"user.round", &[round as u8], XattrMode::Set).await.unwrap(),
                3 => {
                    let set = SetAttr { size: Some(next(50_000)), ..SetAttr::default() };
                    volume.setattr(&root(), ino, set).await.unwrap();
                }
                4 => drop(volume.link(&root(), ino, folder, format!("link{at}").as_bytes()).await),
                5 => {
                    volume.allocate(&root(), ino, next(10_000), 30_000, AllocateMode::PunchHole).await.unwrap();
                }
                _ => {
                    let bytes = (0..next(60_000) + 1).map(|at| crate::numbers::mix(at ^ round) as u8).collect();
                    put(&volume, ino, next(80_000), bytes, Stability::Unstable).await;
                }
            }
        }
        let name = format!("s{round}");
        then.insert(name.clone(), tree(&volume, Ino::ROOT).await);
        volume.snapshot(&name).await.unwrap();
        if round % 3 == 2 {
            // Beside what was stored, something that never was.
            let ino = file(&volume, folder, "late").await;
            put(&volume, ino, 0, vec![9; 4000], Stability::Unstable).await;
            let back = format!("s{}", next(round + 1));
            let held = volume.open(ino).await.unwrap();
            assert!(matches!(registry.roll_back("v", &back).await, Err(FsError::Busy(_))));
            drop((held, volume));
            registry.roll_back("v", &back).await.unwrap();
            volume = registry.volume("v").await.unwrap();
            assert_eq!(tree(&volume, Ino::ROOT).await, then[&back], "round {round}");
            check_clean(&registry).await;
            for (name, then) in &then {
                assert_eq!(
                    &tree(&volume, view(&volume, name).await.unwrap()).await,
                    then,
                    "{name} after going back to {back}"
                );
            }
        }
        let now = volume.getattr(Ino::ROOT).await.unwrap().change;
        assert!(now >= change, "change numbers never go back");
        change = now;
    }
    assert!(matches!(registry.roll_back("v", "none").await, Err(FsError::Busy(_))));
    drop(volume);
    assert!(matches!(registry.roll_back("v", "none").await, Err(FsError::NotFound)));
    // The newest that there is, forward again.
    registry.roll_back("v", "s7").await.unwrap();
    let volume = registry.volume("v").await.unwrap();
    assert_eq!(tree(&volume, Ino::ROOT).await, then["s7"]);
    for name in then.keys() {
        volume.destroy_snapshot(name).await.unwrap();
    }
    check_clean(&registry).await;
    assert_eq!(tree(&volume, Ino::ROOT).await, then["s7"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_differs_is_told_by_path() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let (a, b) = (dir(&volume, Ino::ROOT, "a").await, dir(&volume, Ino::ROOT, "b").await);
    let mut made = BTreeMap::new();
    for name in ["same", "written", "gone", "moved", "linked", "dirty", "listed", "chmod"] {
        let ino = file(&volume, a, name).await;
        put(&volume, ino, 0, name.as_bytes().to_vec(), Stability::FileSync).await;
        made.insert(name, ino);
    }
    put(&volume, made["dirty"], 0, vec![1; 100_000], Stability::Unstable).await;
    let deep = dir(&volume, b, "deep").await;
    file(&volume, deep, "inside").await;
    volume.snapshot("one").await.unwrap();
    assert_eq!(volume.diff("one", None).await.unwrap(), [], "storing what was dirty is no change");
    put(&volume, made["written"], 3, b"x".to_vec(), Stability::Unstable).await;
    volume.unlink(&root(), a, b"gone").await.unwrap();
    volume.rename(&root(), a, b"moved", b, b"here", RenameMode::Replace).await.unwrap();
    volume.link(&root(), made["linked"], b, b"second").await.unwrap();
    volume.setxattr(&root(), made["listed"], b"user.a", b"1", XattrMode::Create).await.unwrap();
    volume.setattr(&root(), made["chmod"], SetAttr { mode: Some(0o600), ..SetAttr::default() }).await.unwrap();
    volume.rename(&root(), b, b"deep", a, b"deeper", RenameMode::Replace).await.unwrap();
    let new = dir(&volume, Ino::ROOT, "new").await;
    file(&volume, new, "file").await;
    read_all(&volume, made["same"]).await;
    // Replaced under its name, as editors do it.
    let draft = file(&volume, a, "draft").await;
    put(&volume, draft, 0, b"better".to_vec(), Stability::FileSync).await;
    volume.rename(&root(), a, b"draft", a, b"dirty", RenameMode::Replace).await.unwrap();
    let shown = |all: Vec<Difference>| -> Vec<String> {
        let letter = |change| match change {
            DiffKind::Created => "+",
            DiffKind::Modified => "M",
            DiffKind::Removed => "-",
            DiffKind::Renamed => "R",
        };
        all.into_iter()
            .map(|d| {
                format!("{} {}{}", letter(d.change), d.path, d.from.map_or(String::new(), |f| format!(" from {f}")))
            })
            .collect()
    };
    let want = [
        "M /",
        "M /a",
        "M /a/chmod",
        "R /a/deeper from /b/deep",
        "+ /a/dirty",
        "- /a/dirty",
        "- /a/gone",
        "M /a/listed",
        "M /a/written",
        "M /b",
        "R /b/here from /a/moved",
        "+ /b/second",
        "+ /new",
        "+ /new/file",
    ];
    assert_eq!(shown(volume.diff("one", None).await.unwrap()), want);
    volume.snapshot("two").await.unwrap();
    assert_eq!(shown(volume.diff("one", Some("two")).await.unwrap()), want);
    assert_eq!(volume.diff("two", None).await.unwrap(), []);
    assert!(matches!(volume.diff("two", Some("one")).await, Err(FsError::Invalid(_))));
    assert!(matches!(volume.diff("none", None).await, Err(FsError::NotFound)));
    drop(volume);
    registry.roll_back("v", "one").await.unwrap();
    let volume = registry.volume("v").await.unwrap();
    let back: Vec<String> = shown(volume.diff("two", None).await.unwrap());
    assert!(
        back.contains(&"R /b/deep from /a/deeper".to_owned()) && back.contains(&"+ /a/gone".to_owned()),
        "{back:?}"
    );
}

/// `nfsclients.with_the_volume`, `handles.with_the_volume`
#[tokio::test]
async fn records_of_the_volumes_own_do_not_go_back() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    volume.snapshot("none").await.unwrap();
    volume.set_nfs_clients(b"then").await.unwrap();
    volume.snapshot("older").await.unwrap();
    volume.set_nfs_clients(b"now").await.unwrap();
    volume.setxattr(&root(), Ino::ROOT, b"user.a", b"later", XattrMode::Set).await.unwrap();
    let handles = volume.handle_key();
    drop(volume);
    for snapshot in ["older", "none"] {
        registry.roll_back("v", snapshot).await.unwrap();
        let volume = registry.volume("v").await.unwrap();
        assert_eq!(volume.nfs_clients().await.unwrap().as_deref(), Some(&b"now"[..]), "{snapshot}");
        assert_eq!(volume.handle_key(), handles);
        assert!(volume.listxattr(&root(), Ino::ROOT).await.unwrap().is_empty());
        drop(volume);
        check_clean(&registry).await;
    }
}

#[tokio::test]
async fn a_file_that_goes_back_is_another() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let (same, changed) = (file(&volume, Ino::ROOT, "same").await, file(&volume, Ino::ROOT, "changed").await);
    put(&volume, same, 0, b"same".to_vec(), Stability::FileSync).await;
    put(&volume, changed, 0, b"then".to_vec(), Stability::FileSync).await;
    volume.snapshot("s").await.unwrap();
    put(&volume, changed, 0, b"later".to_vec(), Stability::Unstable).await;
    let created = file(&volume, Ino::ROOT, "created").await;
    let mut ids = Vec::new();
    for ino in [same, changed, created, Ino::ROOT] {
        ids.push(volume.getattr(ino).await.unwrap().id);
    }
    drop(volume);
    registry.roll_back("v", "s").await.unwrap();
    let volume = registry.volume("v").await.unwrap();
    let mut kept = Vec::new();
    for id in ids {
        kept.push(volume.resolve(id).await.is_ok());
    }
    assert_eq!(kept, [true, false, false, true], "handles of what was put back, or is gone, are stale");
    assert_eq!(read_all(&volume, changed).await, b"then");
}

/// What a share of a folder shows, and what it never leads to.
#[tokio::test]
async fn every_directory_leads_to_its_own_past() {
    let (_registry, volume) = fresh().await;
    let shared = dir(&volume, Ino::ROOT, "shared").await;
    let inner = dir(&volume, shared, "inner").await;
    let secret = file(&volume, Ino::ROOT, "secret").await;
    volume.snapshot("a").await.unwrap();
    let late = dir(&volume, shared, "late").await;
    volume.rename(&root(), Ino::ROOT, b"shared", inner, b"x", RenameMode::Replace).await.unwrap_err();
    volume.rename(&root(), Ino::ROOT, b"shared", Ino::ROOT, b"moved", RenameMode::Replace).await.unwrap();
    volume.unlink(&root(), Ino::ROOT, b"secret").await.unwrap();
    volume.snapshot("b").await.unwrap();
    let names_of = async |dir: Ino| list(&volume, find(&volume, dir, ".snapshots").await.unwrap()).await;
    assert_eq!(names_of(shared).await, ["a", "b"]);
    assert_eq!(names_of(late).await, ["b"], "it was not there before");
    let catalog = find(&volume, late, ".snapshots").await.unwrap();
    assert!(matches!(find(&volume, catalog, "a").await, Err(FsError::NotFound)));
    let catalog = find(&volume, shared, ".snapshots").await.unwrap();
    let then = find(&volume, catalog, "a").await.unwrap();
    assert_eq!(list(&volume, then).await, ["inner"]);
    // The way up ends at the top of the door.
    let inner_then = find(&volume, then, "inner").await.unwrap();
    assert_eq!(volume.parent_within(inner_then, shared).await.unwrap(), then);
    assert_eq!(volume.parent_within(then, shared).await.unwrap(), catalog);
    assert_eq!(volume.parent_within(catalog, shared).await.unwrap(), shared);
    assert_eq!(volume.parent_within(shared, shared).await.unwrap(), shared);
    let above = volume.parent(then).await.unwrap();
    assert!(matches!(volume.parent_within(above, shared).await, Err(FsError::Stale)));
    assert!(matches!(volume.parent_within(Ino::ROOT, shared).await, Err(FsError::Stale)));
    assert_eq!(
        volume.getattr(find(&volume, above, "secret").await.unwrap()).await.unwrap().id.ino.0 & 0xFF_FFFF_FFFF,
        secret.0
    );
    assert!(find(&volume, then, ".snapshots").await.is_err(), "the past has no past");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_lost_of_a_snapshot_is_named() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let ino = file(&volume, Ino::ROOT, "f").await;
    put(&volume, ino, 0, (0..200_000u32).map(|at| crate::numbers::mix(at.into()) as u8).collect(), Stability::FileSync)
        .await;
    volume.sync().await.unwrap();
    volume.snapshot("s").await.unwrap();
    volume.unlink(&root(), Ino::ROOT, b"f").await.unwrap();
    volume.sync().await.unwrap();
    assert_eq!(registry.missing_objects().await.unwrap().objects, []);
    check_clean(&registry).await;
    let objects: Vec<_> = place.store.list(None).map_ok(|object| object.location).try_collect().await.unwrap();
    for kind in ["/seg/", "/snap/"] {
        let path = objects.iter().find(|path| path.as_ref().contains(kind)).unwrap();
        let bytes = place.store.get(path).await.unwrap().bytes().await.unwrap();
        place.store.delete(path).await.unwrap();
        drop(volume.state.catalog.view(1).await);
        let missing = registry.missing_objects().await.unwrap();
        assert_eq!(missing.objects.iter().map(|object| object.path.as_str()).collect::<Vec<_>>(), [path.as_ref()]);
        if kind == "/seg/" {
            let report = registry.check("v", true).await.unwrap();
            assert!(report.problems.iter().any(|problem| problem.contains("missing in the store")), "{report:?}");
            let damage = registry.damaged_files(&missing.objects).await.unwrap();
            assert_eq!(damage.files[0].paths, ["/.snapshots/s"]);
        }
        place.store.put(path, bytes.into()).await.unwrap();
    }
    check_clean(&registry).await;
}

#[tokio::test]
async fn a_volume_knows_whether_it_changed() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let ino = file(&volume, Ino::ROOT, "f").await;
    put(&volume, ino, 0, vec![1; 200_000], Stability::Unstable).await;
    assert!(volume.changed_since_snapshot(), "there is none");
    volume.snapshot("a").await.unwrap();
    assert!(!volume.changed_since_snapshot());
    // Storing what was dirty, and reading, change nothing.
    volume.sync().await.unwrap();
    assert_eq!(read_all(&volume, ino).await.len(), 200_000);
    tree(&volume, view(&volume, "a").await.unwrap()).await;
    volume.rename_snapshot("a", "b").await.unwrap();
    assert!(!volume.changed_since_snapshot());
    volume.setattr(&root(), ino, SetAttr { mode: Some(0o600), ..SetAttr::default() }).await.unwrap();
    assert!(volume.changed_since_snapshot());
    volume.snapshot("c").await.unwrap();
    put(&volume, ino, 0, vec![2; 10], Stability::Unstable).await;
    assert!(volume.changed_since_snapshot());
    drop((registry, volume));
    let (_registry, volume) = place.open().await;
    assert!(volume.changed_since_snapshot(), "nobody knows");
}

#[tokio::test]
async fn holds_keep_a_snapshot() {
    let (registry, volume) = fresh().await;
    volume.snapshot("s").await.unwrap();
    volume.hold_snapshot("s", "backup", None).await.unwrap();
    assert_eq!(err(volume.destroy_snapshot("s").await), "busy: the snapshot is held");
    volume.snapshot("free").await.unwrap();
    let (name, error) = volume.destroy_snapshots(&["free".into(), "s".into()]).await.unwrap_err();
    assert_eq!((name.as_str(), error.to_string().as_str()), ("s", "busy: the snapshot is held"));
    assert!(volume.snapshots().iter().any(|info| info.name == "free"), "all of them or none");
    volume.destroy_snapshots(&["free".into()]).await.unwrap();
    volume.rename_snapshot("s", "t").await.unwrap();
    assert_eq!(err(volume.release_snapshot("s", "backup").await), "no such file or directory");
    volume.release_snapshot("t", "backup").await.unwrap();
    let in_an_hour = Timestamp::new(volume.state.now().secs + 3600, 0);
    volume.hold_snapshot("t", "law", Some(in_an_hour)).await.unwrap();
    // Nobody shortens it.
    assert_eq!(err(volume.release_snapshot("t", "law").await), "operation not permitted");
    let sooner = Timestamp::new(in_an_hour.secs - 1, 0);
    assert_eq!(err(volume.hold_snapshot("t", "law", Some(sooner)).await), "operation not permitted");
    assert_eq!(err(volume.hold_snapshot("t", "law", None).await), "operation not permitted");
    volume.hold_snapshot("t", "law", Some(Timestamp::new(in_an_hour.secs + 1, 0))).await.unwrap();
    assert_eq!(err(volume.destroy_snapshot("t").await), "busy: the snapshot is held");
    let past = Timestamp::new(1, 0);
    assert!(matches!(volume.hold_snapshot("t", "old", Some(past)).await, Err(FsError::Invalid(_))));
    assert_eq!(volume.snapshots()[0].holds.len(), 1);
    assert!(view(&volume, "t").await.is_ok() && view(&volume, "s").await.is_err());
    drop(volume);
    assert_eq!(err(registry.destroy("v").await), "busy: a snapshot of the volume is held");
    assert!(registry.volume("v").await.is_ok());
}

/// Runs `change` between the engine's point of the next snapshot and its new epoch.
async fn snapshot_with_a_change_within(volume: &Volume, name: &str, change: impl Future<Output = ()> + Send + 'static) {
    static STEPS: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);
    let step = |step: u8| async move {
        while STEPS.load(Ordering::SeqCst) != step {
            tokio::task::yield_now().await;
        }
    };
    STEPS.store(0, Ordering::SeqCst);
    larder_base::seam::simulate(Some(|| {
        Box::pin(async {
            STEPS.store(1, Ordering::SeqCst);
            while STEPS.load(Ordering::SeqCst) != 2 {
                tokio::task::yield_now().await;
            }
        })
    }));
    let within = tokio::spawn(async move {
        step(1).await;
        // What waits for the cut goes on after it.
        let mut change = std::pin::pin!(change);
        let waited = tokio::time::timeout(Duration::from_millis(50), &mut change).await;
        STEPS.store(2, Ordering::SeqCst);
        if waited.is_err() {
            change.await;
        }
    });
    volume.snapshot(name).await.unwrap();
    within.await.unwrap();
    larder_base::seam::simulate(None);
}

/// A file that is removed, or replaced, at the very moment of a snapshot is in it whole: its size is durable by a SETATTR and
/// its data is in memory alone.
#[tokio::test]
async fn a_file_that_goes_at_the_moment_of_a_snapshot_is_whole_in_it() {
    let (registry, volume) = fresh().await;
    let content = vec![7; 145_089];
    for (round, replaced) in [false, true].into_iter().enumerate() {
        let (gone, other) = (file(&volume, Ino::ROOT, "gone").await, file(&volume, Ino::ROOT, "other").await);
        let set = SetAttr { size: Some(content.len() as u64), ..SetAttr::default() };
        volume.setattr(&root(), gone, set).await.unwrap();
        put(&volume, gone, 0, content.clone(), Stability::Unstable).await;
        put(&volume, other, 0, vec![1; 10], Stability::Unstable).await;
        let name = format!("s{round}");
        let same = volume.clone();
        let change = async move {
            match replaced {
                false => drop(same.unlink(&root(), Ino::ROOT, b"gone").await.unwrap()),
                true => {
                    same.rename(&root(), Ino::ROOT, b"other", Ino::ROOT, b"gone", RenameMode::Replace).await.unwrap();
                }
            }
        };
        snapshot_with_a_change_within(&volume, &name, change).await;
        let top = view(&volume, &name).await.unwrap();
        let kept = read_all(&volume, find(&volume, top, "gone").await.unwrap()).await;
        let wrong = kept.iter().filter(|byte| **byte != 7).count();
        assert_eq!((kept.len(), wrong), (content.len(), 0), "replaced: {replaced}");
        let _ = volume.unlink(&root(), Ino::ROOT, if replaced { &b"gone"[..] } else { &b"other"[..] }).await;
    }
    check_clean(&registry).await;
}

/// The same from threads: what is in a snapshot of files that come and go has its data. `LARDER_SECONDS` for more of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_snapshot_holds_zeros_of_files_that_come_and_go() {
    let seconds = std::env::var("LARDER_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let until = std::time::Instant::now() + Duration::from_secs(seconds);
    let (registry, volume) = fresh().await;
    let clients = (0..4).map(|number| {
        let volume = volume.clone();
        tokio::spawn(async move {
            let mut round = 0u64;
            while std::time::Instant::now() < until {
                round += 1;
                let name = format!("c{number}-{}", round % 8);
                let ino = file(&volume, Ino::ROOT, &name).await;
                let set = SetAttr { size: Some(20_000), ..SetAttr::default() };
                // Its data is in memory before its size is durable: a snapshot has it empty or whole.
                put(&volume, ino, 0, vec![1; 20_000], Stability::Unstable).await;
                volume.setattr(&root(), ino, set).await.unwrap();
                tokio::task::yield_now().await;
                volume.unlink(&root(), Ino::ROOT, name.as_bytes()).await.unwrap();
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    let (mut taken, mut files) = (0, 0);
    while std::time::Instant::now() < until {
        taken += 1;
        let name = format!("s{taken}");
        volume.snapshot(&name).await.unwrap();
        for (path, content) in tree(&volume, view(&volume, &name).await.unwrap()).await {
            files += 1;
            let zeros = content.iter().filter(|byte| **byte == 0).count();
            assert_eq!(zeros, 0, "snapshot {taken}: {path} has zeros among {} bytes", content.len());
        }
        volume.destroy_snapshot(&name).await.unwrap();
    }
    for client in clients {
        client.await.unwrap();
    }
    assert!(taken > 0);
    println!("{taken} snapshots, {files} files in them");
    check_clean(&registry).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_for_a_rollback_that_never_came_goes_at_the_next_opening() {
    let place = Box_::new();
    let names = |volume: &Volume| volume.snapshots().into_iter().map(|info| info.name).collect::<Vec<_>>();
    let (registry, volume) = place.open().await;
    file(&volume, Ino::ROOT, "then").await;
    volume.snapshot("s").await.unwrap();
    file(&volume, Ino::ROOT, "later").await;
    volume.save_before_rollback("saved").await.unwrap();
    assert_eq!(names(&volume), ["s", "saved"]);
    // Killed before the rollback was asked for.
    drop((volume, registry));
    let (registry, volume) = place.open().await;
    assert_eq!(names(&volume), ["s"]);
    check_clean(&registry).await;
    // One that somebody holds stays, for good.
    volume.save_before_rollback("saved").await.unwrap();
    volume.hold_snapshot("saved", "tax", None).await.unwrap();
    drop((volume, registry));
    let (registry, volume) = place.open().await;
    volume.release_snapshot("saved", "tax").await.unwrap();
    drop((volume, registry));
    let (registry, volume) = place.open().await;
    assert_eq!(names(&volume), ["s", "saved"]);
    // Killed once it was asked for: the volume goes back, and the snapshot is all that is left of what it was.
    volume.save_before_rollback("again").await.unwrap();
    volume.ask_back("s").await.unwrap();
    drop((volume, registry));
    let (registry, volume) = place.open().await;
    assert_eq!(names(&volume), ["s", "saved", "again"]);
    assert!(find(&volume, Ino::ROOT, "later").await.is_err());
    registry.close().await.unwrap();
}

/// Wall time, and by how much it is ahead of the time of the box.
#[derive(Default)]
struct Jumping {
    wall: std::sync::atomic::AtomicI64,
    ahead: std::sync::atomic::AtomicI64,
}

impl Jumping {
    fn passes(&self, secs: i64) {
        self.wall.fetch_add(secs, Ordering::Relaxed);
    }

    fn jumps(&self, secs: i64) {
        self.wall.fetch_add(secs, Ordering::Relaxed);
        self.ahead.fetch_add(secs, Ordering::Relaxed);
    }
}

impl larder_base::Clock for Jumping {
    fn now(&self) -> Timestamp {
        Timestamp::new(self.wall.load(Ordering::Relaxed), 0)
    }

    fn elapsed(&self) -> Duration {
        larder_base::clock::since_boot()
    }

    fn ahead_secs(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }
}

/// `holds.by_box`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_ends_and_prolongs_no_hold() {
    const DAY: i64 = 24 * 3600;
    let (place, clock) = (Box_::new(), Arc::new(Jumping::default()));
    clock.passes(1_800_000_000);
    let backing = Backing { clock: Arc::clone(&clock) as Arc<_>, ..place.backing() };
    let registry = Registry::open(backing, MemoryBudget { total_bytes: 64 << 20 }).await.unwrap();
    registry.create("v", Properties::default()).await.unwrap();
    let volume = registry.volume("v").await.unwrap();
    let in_days = |days: i64| Some(Timestamp::new(clock.wall.load(Ordering::Relaxed) + days * DAY, 0));
    let until = |name: &str| {
        let info = volume.snapshots().into_iter().find(|info| info.name == name).unwrap();
        info.holds.first().map(|hold| hold.until)
    };
    volume.snapshot("tax").await.unwrap();
    volume.hold_snapshot("tax", "law", in_days(90)).await.unwrap();
    for jump in [365 * DAY, -730 * DAY, 365 * DAY, -50 * 365 * DAY] {
        clock.jumps(jump);
        assert!(matches!(volume.destroy_snapshot("tax").await, Err(FsError::Busy(_))), "{jump}");
        assert!(matches!(volume.release_snapshot("tax", "law").await, Err(FsError::NotPermitted)));
        assert_eq!(until("tax"), Some(in_days(90)), "as people read it");
        // What they read is no shorter one.
        volume.hold_snapshot("tax", "law", in_days(90)).await.unwrap();
        assert!(matches!(volume.hold_snapshot("tax", "law", in_days(89)).await, Err(FsError::NotPermitted)));
    }
    // Made while the clock says 1977, and while it is a century ahead: for a day of what really passes.
    volume.snapshot("past").await.unwrap();
    volume.hold_snapshot("past", "law", in_days(1)).await.unwrap();
    clock.jumps(100 * 365 * DAY);
    volume.snapshot("ahead").await.unwrap();
    volume.hold_snapshot("ahead", "law", in_days(1)).await.unwrap();
    clock.jumps(-50 * 365 * DAY);
    for name in ["past", "ahead"] {
        assert!(matches!(volume.destroy_snapshot(name).await, Err(FsError::Busy(_))), "{name}");
    }
    clock.passes(DAY + 1);
    for name in ["past", "ahead"] {
        assert_eq!(until(name), None);
        volume.destroy_snapshot(name).await.unwrap();
    }
    clock.passes(88 * DAY);
    assert!(matches!(volume.destroy_snapshot("tax").await, Err(FsError::Busy(_))));
    clock.passes(DAY);
    volume.destroy_snapshot("tax").await.unwrap();
}
