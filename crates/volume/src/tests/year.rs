//! Hourly snapshots with retention under constant change: days of it in every run, a year with `LARDER_YEAR_HOURS=8760`
//! (`make soak`). At the end every snapshot that is kept shows what it showed, and the store holds what is referenced and
//! little else.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::snapshots::{put, store_bytes, tree, view};
use super::*;

/// Enough for each kind of period to thin.
const HOURS: u64 = 80;
const FILES: u64 = 24;
const HOURLY: u64 = 24;
const DAILY: u64 = 30;
const MONTHLY: u64 = 12;
const DAY: u64 = 24;
const MONTH: u64 = 30 * DAY;

/// Hours whose snapshots stay: the newest ones of the newest hours, days and months.
fn kept(hours: &[u64]) -> Vec<u64> {
    let newest_of = |period: u64, count: u64| {
        let newest: BTreeMap<u64, u64> = hours.iter().map(|&hour| (hour / period, hour)).collect();
        newest.into_values().rev().take(count as usize).collect::<Vec<_>>()
    };
    let kinds = [newest_of(1, HOURLY), newest_of(DAY, DAILY), newest_of(MONTH, MONTHLY)].concat();
    hours.iter().copied().filter(|hour| kinds.contains(hour)).collect()
}

/// Changes of an hour: files are rewritten, cut, renamed, removed and made anew.
async fn an_hour(volume: &Volume, folder: Ino, hour: u64) {
    for step in 0..6 {
        let chance = crate::numbers::mix(hour * 100 + step);
        let name = format!("f{}", chance % FILES);
        let found = volume.lookup(&root(), folder, name.as_bytes(), NameMatch::Exact).await;
        let Ok(attr) = found else {
            file(volume, folder, &name).await;
            continue;
        };
        let content = (0..(chance >> 8) % 60_000 + 1).map(|at| crate::numbers::mix(at ^ chance) as u8).collect();
        let stability = if chance >> 3 & 1 == 0 { Stability::Unstable } else { Stability::FileSync };
        match (chance >> 16) % 10 {
            0 => drop(volume.unlink(&root(), folder, name.as_bytes()).await.unwrap()),
            1 => {
                let size = SetAttr { size: Some((chance >> 24) % 50_000), ..SetAttr::default() };
                volume.setattr(&root(), attr.id.ino, size).await.unwrap();
            }
            2 => {
                let to = format!("f{}", (chance >> 32) % FILES);
                let moved = volume.rename(&root(), folder, name.as_bytes(), folder, to.as_bytes(), RenameMode::Replace);
                moved.await.unwrap();
            }
            _ => put(volume, attr.id.ino, (chance >> 40) % 100_000, content, stability).await,
        }
    }
}

fn name_of(hour: u64) -> String {
    format!("h{hour:05}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_year_of_hourly_snapshots() {
    let hours = std::env::var("LARDER_YEAR_HOURS").ok().and_then(|hours| hours.parse().ok()).unwrap_or(HOURS);
    let place = Box_::new();
    let (mut registry, mut volume) = place.open().await;
    let folder = dir(&volume, Ino::ROOT, "folder").await;
    let mut expected: BTreeMap<u64, BTreeMap<String, Vec<u8>>> = BTreeMap::new();
    let mut bytes_max = 0;
    for hour in 0..hours {
        an_hour(&volume, folder, hour).await;
        volume.snapshot(&name_of(hour)).await.unwrap();
        expected.insert(hour, tree(&volume, Ino::ROOT).await);
        let there: Vec<u64> = expected.keys().copied().collect();
        let stays = kept(&there);
        let goes: Vec<String> = there.iter().filter(|hour| !stays.contains(hour)).map(|&hour| name_of(hour)).collect();
        volume.destroy_snapshots(&goes).await.map_err(|(name, error)| format!("{name}: {error}")).unwrap();
        expected.retain(|hour, _| stays.contains(hour));
        bytes_max = bytes_max.max(store_bytes(&place).await);
        if hour % 500 == 250 {
            drop(volume);
            registry.close().await.unwrap();
            (registry, volume) = place.open().await;
        }
    }
    let names: Vec<String> = volume.snapshots().into_iter().map(|info| info.name).collect();
    assert_eq!(names, expected.keys().map(|&hour| name_of(hour)).collect::<Vec<_>>());
    for (&hour, content) in &expected {
        let top = view(&volume, &name_of(hour)).await.unwrap();
        assert!(tree(&volume, top).await == *content, "hour {hour} is not what it was");
    }
    check_clean(&registry).await;

    // Without snapshots and files the store is as small as that of a new volume that was as busy.
    volume.destroy_snapshots(&names).await.map_err(|(name, error)| format!("{name}: {error}")).unwrap();
    let referenced: u64 = tree(&volume, Ino::ROOT).await.values().map(|content| content.len() as u64).sum();
    drop(volume);
    registry.close().await.unwrap();
    let (registry, volume) = place.open().await;
    let until = Instant::now() + Duration::from_secs(60);
    let allowed = referenced * 2 + (8 << 20);
    while store_bytes(&place).await > allowed {
        assert!(Instant::now() < until, "{} bytes for {referenced}, of {bytes_max}", store_bytes(&place).await);
        volume.sync().await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    check_clean(&registry).await;
    drop(volume);
    registry.close().await.unwrap();
}

#[test]
fn retention_keeps_the_newest_of_each_period() {
    let mut there = Vec::new();
    for hour in 0..3 * MONTH {
        there.push(hour);
        there = kept(&there);
    }
    assert_eq!(there.len() as u64, HOURLY + DAILY - 1 + 2);
    assert_eq!(there.last(), Some(&(3 * MONTH - 1)));
    assert!(there.contains(&(MONTH - 1)), "the last of the first month");
}
