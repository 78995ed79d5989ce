//! Placement: which disks an object goes to, and how much fits in all.
//!
//! The rule is greedy: the `n` disks with the most room, at most `width` of them. When fewer than
//! `width` disks have room the object is narrowed (smaller `k`, same `m`), down to `m + 1` disks.
//!
//! - `placement.one_shard_a_disk`: no two shards of an object lie on one disk.
//! - `placement.capacity_is_reachable`: [`capacity`] is the room that the rule can really place.
//!   For a fixed `n` the most layers `t` that fit satisfy `sum(min(free_i, t)) >= n * t`, and
//!   taking from the disks with the most room first reaches that bound. The rest lies on fewer than
//!   `n` disks and is used by narrower objects.

use crate::object::layout::Layout;

/// The room of one disk, as placement sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    pub slot: u8,
    pub free_bytes: u64,
}

/// The disks for one object and its shape. `slots.len()` may be less than `k + m` only when so
/// few disks are alive that full redundancy is impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub k: u8,
    pub m: u8,
    pub slots: Vec<u8>,
}

/// Chooses disks for an object of `size_bytes`, `None` when too few disks have room. `alive` is
/// the number of disks that are writable at all, full ones included; `rotate` spreads ties and
/// the role of each disk within the stripe.
pub fn choose(
    layout: Layout,
    width: u8,
    rooms: &[Room],
    alive: usize,
    rotate: u64,
    shard_bytes: impl Fn(u8) -> u64,
) -> Option<Choice> {
    let m = usize::from(layout.failures());
    let need_min = (m + 1).min(alive).max(1);
    let mut sorted: Vec<Room> = rooms.to_vec();
    if sorted.is_empty() {
        return None;
    }
    let turn = (rotate % sorted.len() as u64) as usize;
    sorted.rotate_left(turn);
    sorted.sort_by_key(|room| std::cmp::Reverse(room.free_bytes));
    let mut candidates = sorted.len().min(usize::from(width));
    // Narrower stripes need more room per disk, so a width that fails may not succeed narrower;
    // but the fullest disk may drop out, which is the usual case.
    while candidates >= need_min {
        let (k, m) = layout.shape(width, candidates);
        let shards = candidates.min(usize::from(k) + usize::from(m));
        let need = shard_bytes(k);
        if sorted.iter().take(shards).all(|room| room.free_bytes >= need) {
            let mut slots: Vec<u8> = sorted.iter().take(shards).map(|room| room.slot).collect();
            slots.rotate_left((rotate % shards as u64) as usize);
            assert!(slots.len() >= usize::from(k), "`write.acknowledged_with_k`: fewer shards than `k` are no object");
            return Some(Choice { k, m, slots });
        }
        candidates -= 1;
    }
    None
}

/// Object bytes that fit on disks with this much room each.
pub fn capacity(layout: Layout, width: u8, free_bytes: &[u64], alive: usize) -> u64 {
    fill(layout, width, free_bytes, alive).0
}

/// Object bytes that fit, and the bytes used of each disk when all is full.
pub fn fill(layout: Layout, width: u8, free_bytes: &[u64], alive: usize) -> (u64, Vec<u64>) {
    let need_min = (usize::from(layout.failures()) + 1).min(alive).max(1);
    let mut left = free_bytes.to_vec();
    let mut total = 0u64;
    loop {
        let candidates = left.iter().filter(|&&free| free > 0).count().min(usize::from(width));
        if candidates < need_min {
            break;
        }
        let (k, m) = layout.shape(width, candidates);
        let n = candidates.min(usize::from(k) + usize::from(m)) as u64;
        let layers = layers_max(&left, n);
        if layers == 0 {
            break;
        }
        total = total.saturating_add(layers.saturating_mul(u64::from(k)));
        take_layers(&mut left, layers, n);
    }
    let used = free_bytes.iter().zip(&left).map(|(&all, &left)| all - left).collect();
    (total, used)
}

/// The largest `t` with `sum(min(free, t)) >= n * t` (`placement.capacity_is_reachable`).
fn layers_max(free_bytes: &[u64], n: u64) -> u64 {
    let fits = |t: u64| {
        let sum: u128 = free_bytes.iter().map(|&free| u128::from(free.min(t))).sum();
        sum >= u128::from(n) * u128::from(t)
    };
    let all: u128 = free_bytes.iter().copied().map(u128::from).sum();
    let (mut low, mut high) = (0u64, u64::try_from(all / u128::from(n)).unwrap_or(u64::MAX));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

/// Removes `n * layers` units, at most `layers` from each disk, the emptiest disks keeping most.
fn take_layers(left: &mut [u64], layers: u64, n: u64) {
    let mut order: Vec<usize> = (0..left.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(left[i]));
    let mut due = u128::from(n) * u128::from(layers);
    for i in order {
        let take = u128::from(left[i].min(layers)).min(due);
        left[i] -= take as u64;
        due -= take;
    }
    assert_eq!(due, 0, "`placement.capacity_is_reachable`: the disks have room for all layers");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const TB: u64 = 1_000_000_000_000;

    #[test]
    fn unequal_disks_are_used_to_the_full() {
        let check = |layout: Layout, width: u8, disks: &[u64], usable: u64| {
            let disks: Vec<u64> = disks.iter().map(|d| d * TB).collect();
            let got = capacity(layout, width, &disks, disks.len());
            assert!(got.abs_diff(usable * TB) < 100, "{layout} {disks:?}: {got}");
        };
        check(Layout::Mirror2, 2, &[1, 2, 3], 3);
        check(Layout::Mirror2, 2, &[1, 1, 10], 2);
        check(Layout::Mirror3, 3, &[1, 2, 3, 4], 3);
        check(Layout::Stripe, 3, &[1, 2, 3], 6);
        check(Layout::Raidz1, 3, &[1, 1, 1], 2);
        check(Layout::Raidz1, 3, &[1, 2, 3], 3);
        check(Layout::Raidz2, 4, &[4, 4, 4, 4], 8);
        check(Layout::Raidz1, 8, &[3; 8], 21);
    }

    fn place_all(layout: Layout, width: u8, disks: &[u64]) -> u64 {
        let mut left = disks.to_vec();
        let mut placed = 0;
        for turn in 0.. {
            let rooms: Vec<Room> =
                left.iter().enumerate().map(|(i, &f)| Room { slot: i as u8, free_bytes: f }).collect();
            // Objects whose shard is one unit whatever the shape.
            let Some(choice) = choose(layout, width, &rooms, disks.len(), turn, |_| 1) else { break };
            let mut seen = std::collections::BTreeSet::new();
            for slot in &choice.slots {
                assert!(seen.insert(*slot), "`placement.one_shard_a_disk`");
                left[usize::from(*slot)] -= 1;
            }
            placed += u64::from(choice.k);
        }
        placed
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn capacity_is_what_placement_reaches(
            layout in prop::sample::select(Layout::ALL.to_vec()),
            disks in prop::collection::vec(0u64..60, 1..9),
            narrower in 0u8..3,
        ) {
            prop_assume!(disks.len() >= layout.disks_min());
            let width = layout.width_default(disks.len()).saturating_sub(narrower).max(layout.failures() + 1);
            let promised = capacity(layout, width, &disks, disks.len());
            let placed = place_all(layout, width, &disks);
            // Whole units against a continuous bound: one layer of each width may differ.
            let slack = u64::from(width) * u64::from(width);
            prop_assert!(placed.abs_diff(promised) <= slack, "promised {promised}, placed {placed}");
        }
    }
}
