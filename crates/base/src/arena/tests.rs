#![allow(clippy::unwrap_used)]
use std::time::Instant;

use super::*;

const SLOT_BYTES: usize = 128 << 10;
const PER_REGION: usize = REGION_BYTES / SLOT_BYTES;

/// An arena of a test's own.
fn arena() -> &'static Arena {
    Box::leak(Box::new(Arena::new()))
}

fn usage_of(arena: &Arena) -> (usize, usize) {
    let state = arena.state.lock();
    (state.regions.resident_bytes(), state.regions.used_bytes())
}

fn wait_until(what: impl Fn() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(60);
    while !what() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    what()
}

#[test]
fn slots_are_apart_aligned_and_come_back_with_the_last_slice() {
    let arena = arena();
    let mut slots: Vec<Slot> = (0..2 * PER_REGION).map(|_| arena.take(SLOT_BYTES).unwrap()).collect();
    for (i, slot) in slots.iter_mut().enumerate() {
        assert!(slot.as_ptr().addr().is_multiple_of(SLOT_BYTES));
        slot.fill(i as u8);
    }
    assert!(slots.iter().enumerate().all(|(i, slot)| slot.iter().all(|&byte| byte == i as u8)));
    assert_eq!(usage_of(arena).1, 2 * REGION_BYTES);
    let last = slots.pop().unwrap().freeze();
    let slice = last.slice(7..9);
    drop((last, slots));
    assert_eq!(usage_of(arena).1, SLOT_BYTES);
    drop(slice);
    assert_eq!(usage_of(arena).1, 0);
    assert!(usage_of(arena).0 >= 2 * REGION_BYTES, "it stays resident");
}

#[test]
fn each_length_has_the_shortest_slot_that_holds_it() {
    let arena = arena();
    for (length, bytes) in
        [(0, 8 << 10), (8 << 10, 8 << 10), (8193, 32 << 10), (100_000, 128 << 10), (131_073, 1 << 20)]
    {
        let slot = arena.take(length).unwrap();
        assert_eq!((slot.len(), arena.slot_bytes(&slot)), (length, Some(bytes)));
    }
    assert_eq!(arena.take(SLOT_BYTES_MAX).unwrap().len(), SLOT_BYTES_MAX);
    assert!(arena.take(SLOT_BYTES_MAX + 1).is_none());
    assert_eq!(arena.slot_bytes(&[1, 2, 3]), None);
    assert_eq!(Arena::new().slot_bytes(&[1, 2, 3]), None);
}

#[test]
fn bytes_belong_to_the_slot_that_holds_all_of_them() {
    let arena = arena();
    let (first, second) = (arena.take(8192).unwrap(), arena.take(8192).unwrap());
    assert_eq!(first.as_ptr().addr() + 8192, second.as_ptr().addr());
    assert_eq!(arena.slot_bytes(&first[100..]), Some(8192));
    drop(second);
    assert_eq!(arena.slot_bytes(&first[8000..]), Some(8192));
}

/// `arena.touched_ahead`
#[test]
fn regions_are_touched_ahead_and_more_of_them_the_faster_they_go() {
    let arena = arena();
    let first = arena.take(SLOT_BYTES).unwrap();
    assert!(wait_until(|| arena.state.lock().regions.warm(Purpose::Keep) >= AHEAD_MIN));
    let kept: Vec<Slot> = (0..AHEAD_MIN * PER_REGION).map(|_| arena.take(SLOT_BYTES).unwrap()).collect();
    assert!(wait_until(|| arena.state.lock().regions.warm(Purpose::Keep) >= AHEAD_MIN / 2));
    drop((first, kept));
    assert!(arena.state.lock().ahead <= AHEAD_MAX);
}

/// `arena.kept_until_idle`
#[test]
fn free_memory_goes_back_when_memory_is_short() {
    let arena = arena();
    let mut slots: Vec<Slot> = (0..2 * PER_REGION).map(|_| arena.take(SLOT_BYTES).unwrap()).collect();
    slots.iter_mut().for_each(|slot| slot.fill(9));
    let kept = slots.pop().unwrap();
    drop(slots);
    arena.shed();
    assert!(wait_until(|| usage_of(arena) == (REGION_BYTES, SLOT_BYTES)), "{:?}", usage_of(arena));
    assert!(kept.iter().all(|byte| *byte == 9));
    let again: Vec<Slot> = (0..2 * PER_REGION).map(|_| arena.take(SLOT_BYTES).unwrap()).collect();
    assert_eq!(again.iter().filter(|slot| slot[0] == 9).count(), PER_REGION - 1, "the others came back empty");
}

/// `arena.kept_until_idle`
#[test]
fn more_than_the_limit_goes_back_at_once() {
    let arena = arena();
    arena.configure(16 << 20);
    let slots: Vec<Slot> = (0..20 * PER_REGION).map(|_| arena.take(SLOT_BYTES).unwrap()).collect();
    assert!(usage_of(arena).0 >= 40 << 20, "slots in use may be more");
    drop(slots);
    assert!(wait_until(|| usage_of(arena).0 <= 16 << 20));
}

/// `arena.kept_until_idle`
#[test]
fn all_goes_back_when_nothing_was_taken_for_a_while_and_half_of_what_was_not_needed() {
    let arena = arena();
    let slots: Vec<Slot> = (0..8 * PER_REGION).map(|_| arena.take(SLOT_BYTES).unwrap()).collect();
    drop(slots);
    let settled = || !arena.state.lock().has_work();
    assert!(wait_until(settled));
    let mut state = arena.state.lock();
    state.ahead = 0;
    state.regions.forget_lowest();
    let warm = state.regions.warm(Purpose::Keep);
    state.is_used = true;
    arena.give_back_unused(state);
    assert_eq!(arena.state.lock().regions.warm(Purpose::Keep), warm / 2);
    let mut state = arena.state.lock();
    state.is_used = false;
    arena.give_back_unused(state);
    assert_eq!(usage_of(arena), (0, 0));
}

/// `arena.wiped`
#[test]
fn marked_slots_are_zeroed_before_they_are_free() {
    let arena = arena();
    let mut slots: Vec<Slot> = (0..5).map(|_| arena.take(SLOT_BYTES).unwrap()).collect();
    slots.iter_mut().for_each(|slot| slot.fill(7));
    let _holds_the_region = slots.pop();
    let marked = slots.remove(1).freeze();
    let slice = marked.slice(5..6);
    assert!(arena.wipe_when_freed(&slice));
    assert!(!arena.wipe_when_freed(&[7]));
    drop(marked);
    assert_eq!(slice[0], 7);
    drop((slots, slice));
    let again: Vec<Slot> = (0..4).map(|_| arena.take(SLOT_BYTES).unwrap()).collect();
    let zeroed: Vec<bool> = again.iter().map(|slot| slot.iter().all(|byte| *byte == 0)).collect();
    assert_eq!(zeroed, [false, true, false, false]);
    assert!(again[0].iter().all(|byte| *byte == 7));
    drop(again);
    let third = arena.take(SLOT_BYTES).unwrap();
    assert_eq!(third[0], 7, "a mark lasts for one use");
}

#[test]
fn slots_of_many_threads_are_apart() {
    let arena = arena();
    let work = move |seed: u8| {
        for round in 0..200_usize {
            let lengths = [100, 20_000, SLOT_BYTES, 300_000];
            let mut slots: Vec<Slot> = lengths.iter().map(|length| arena.take(*length).unwrap()).collect();
            slots.iter_mut().for_each(|slot| slot.fill(seed));
            if round.is_multiple_of(50) {
                arena.shed();
            }
            assert!(slots.iter().all(|slot| slot.iter().all(|byte| *byte == seed)));
        }
    };
    std::thread::scope(|scope| (1..5).for_each(|seed| drop(scope.spawn(move || work(seed)))));
    assert_eq!(usage_of(arena).1, 0);
}
