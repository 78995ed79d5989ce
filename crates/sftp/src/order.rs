//! Which requests of a session may overlap.
//!
//! The draft (section 6): "an implementation MUST process requests relating to the same file in the
//! order in which they are received [...] For example, the server may process non-overlapping
//! read/write requests to the same file in parallel, but overlapping reads and writes cannot be
//! reordered or parallelized."
//!
//! - `order.same_file_in_order`: a request waits for every earlier one that touches the same thing if
//!   one of the two changes it. Things are ranges of open files, and names with everything below.
//! - `order.only_earlier`: a request waits for earlier ones alone, so no two wait for each other.
//!
//! Names are compared as the client wrote them: two that reach one file by links are two things.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Part of what a request touches.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Thing {
    /// Bytes of an open file.
    Data(u64, Range<u64>),
    /// A name with everything below, without slashes at its ends.
    Name(Bytes),
    /// The name that an open file was opened by: for requests that name it, not for other uses of open files.
    OpenedBy(Bytes),
}

/// What a request touches, and whether it changes it.
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    things: Vec<(Thing, bool)>,
}

/// All bytes of a file.
pub const WHOLE: Range<u64> = 0..u64::MAX;

impl Footprint {
    pub fn data(mut self, file: u64, range: Range<u64>, changes: bool) -> Self {
        self.things.push((Thing::Data(file, range), changes));
        self
    }

    pub fn name(mut self, name: Bytes, changes: bool) -> Self {
        self.things.push((Thing::Name(name), changes));
        self
    }

    pub fn opened_by(mut self, name: Bytes, changes: bool) -> Self {
        self.things.push((Thing::OpenedBy(name), changes));
        self
    }

    fn meets(&self, other: &Footprint) -> bool {
        self.things.iter().any(|(thing, changes)| {
            other.things.iter().any(|(with, changed)| (*changes || *changed) && thing.meets(with))
        })
    }
}

impl Thing {
    fn meets(&self, other: &Thing) -> bool {
        match (self, other) {
            (Thing::Data(file, a), Thing::Data(with, b)) => file == with && a.start < b.end && b.start < a.end,
            (Thing::Name(a), Thing::Name(b) | Thing::OpenedBy(b)) | (Thing::OpenedBy(a), Thing::Name(b)) => {
                is_within(a, b) || is_within(b, a)
            }
            _ => false,
        }
    }
}

/// Whether `name` is `top` or below it.
fn is_within(name: &[u8], top: &[u8]) -> bool {
    name.strip_prefix(top).is_some_and(|rest| top.is_empty() || rest.is_empty() || rest.starts_with(b"/"))
}

struct Entry {
    number: u64,
    footprint: Footprint,
    over: CancellationToken,
}

#[derive(Default)]
struct Running {
    entries: Vec<Entry>,
    next: u64,
}

/// The requests under way, in the order in which they came.
#[derive(Clone, Default)]
pub struct Order(Arc<Mutex<Running>>);

/// A request under way: over when dropped.
pub struct Place {
    order: Order,
    number: u64,
}

impl Order {
    /// Takes the next place. Returns the ends of the requests to wait for (`order.same_file_in_order`).
    pub fn enter(&self, footprint: Footprint) -> (Place, Vec<CancellationToken>) {
        let mut running = self.0.lock();
        let before = running.entries.iter().filter(|entry| entry.footprint.meets(&footprint));
        let waits = before.map(|entry| entry.over.clone()).collect();
        let number = running.next;
        running.next += 1;
        running.entries.push(Entry { number, footprint, over: CancellationToken::new() });
        (Place { order: self.clone(), number }, waits)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut running = self.order.0.lock();
        if let Some(at) = running.entries.iter().position(|entry| entry.number == self.number) {
            running.entries.remove(at).over.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &'static str, changes: bool) -> Footprint {
        Footprint::default().name(Bytes::from_static(text.as_bytes()), changes)
    }

    fn data(file: u64, range: Range<u64>, changes: bool) -> Footprint {
        Footprint::default().data(file, range, changes)
    }

    #[test]
    fn what_touches_the_same_waits() {
        let check = |a: Footprint, b: Footprint, waits: bool| {
            let order = Order::default();
            let (_first, _) = order.enter(a.clone());
            let (_second, ends) = order.enter(b.clone());
            assert_eq!(ends.len(), usize::from(waits), "{a:?} {b:?}");
        };
        check(data(1, 0..10, true), data(1, 10..20, true), false);
        check(data(1, 0..10, true), data(1, 9..20, false), true);
        check(data(1, 0..10, false), data(1, 0..10, false), false);
        check(data(1, 0..10, true), data(2, 0..10, true), false);
        check(data(1, 5..10, true), data(1, WHOLE, false), true);
        check(name("s/a", true), name("s/a", false), true);
        check(name("s/a", true), name("s/a/b/c", false), true);
        check(name("s/a/b", true), name("s/a", true), true);
        check(name("s/a", true), name("s/ab", true), false);
        check(name("s/a", false), name("s/a", false), false);
        check(name("s/a", true), name("s/b", true), false);
        check(name("", false), name("s/b", true), true);
        check(name("s/a", true), data(1, WHOLE, true), false);
        let write = |range| data(1, range, true).opened_by(Bytes::from_static(b"s/a"), true);
        check(write(0..10), name("s/a", false), true);
        check(write(0..10), write(10..20), false);
    }

    #[test]
    fn the_end_of_a_request_lets_the_next_one_go() {
        let order = Order::default();
        let (first, none) = order.enter(name("a", true));
        let (second, one) = order.enter(name("a", true));
        let (_third, two) = order.enter(name("a", true));
        assert_eq!((none.len(), one.len(), two.len()), (0, 1, 2));
        drop(first);
        assert!(one[0].is_cancelled() && !two[1].is_cancelled());
        drop(second);
        assert!(two.iter().all(CancellationToken::is_cancelled));
    }
}
