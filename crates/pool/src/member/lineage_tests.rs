//! Lineages of labels alone: disks open a pool by turns, labels are cut short anywhere, and each disk remembers the
//! answers that it took part in.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use uuid::Uuid;

use super::label::tests::example;
use super::label::{Diverged, Label, Life, Member, winner};
use crate::object::layout::Layout;

struct Disk {
    label: Label,
    /// Answers that it has.
    has: BTreeSet<u64>,
}

struct Model {
    random: StdRng,
    disks: Vec<Disk>,
    next: u64,
    diverged: u64,
}

fn id(disk: usize) -> Uuid {
    Uuid::from_u128(disk as u128 + 1)
}

impl Model {
    fn new(seed: u64, layout: Layout, count: usize) -> Self {
        let first = Label {
            layout,
            width: layout.width_default(count),
            members: (0..count).map(|disk| Member::new(id(disk), "/d".into())).collect(),
            lives: vec![Life { mark: 1, since_ms: 0, batch: 0, generation: 1, before_ms: 0 }],
            present: (0..count).map(id).collect(),
            ..example(1)
        };
        let disk = |at| Disk { label: Label { disk: id(at), ..first.clone() }, has: BTreeSet::new() };
        Self { random: StdRng::seed_from_u64(seed), disks: (0..count).map(disk).collect(), next: 1, diverged: 0 }
    }

    fn advance(&mut self, label: &mut Label) {
        label.advance(self.random.random());
        label.written_ms += 1;
    }

    /// Writes a label to these disks in this order; whether power lasted.
    fn write(&mut self, label: &Label, disks: &[usize]) -> bool {
        let cut =
            if self.random.random_range(0..6) == 0 { self.random.random_range(0..=disks.len()) } else { usize::MAX };
        for (at, disk) in disks.iter().enumerate() {
            if at == cut {
                return false;
            }
            self.disks[*disk].label = Label { disk: id(*disk), ..label.clone() };
        }
        cut > disks.len()
    }

    fn set_in_sync(label: &mut Label, disks: &[usize]) {
        for member in &mut label.members {
            member.in_sync = disks.iter().any(|disk| id(*disk) == member.id);
        }
    }

    /// One opening with some of the disks.
    fn life(&mut self) {
        let count = self.disks.len();
        let mut here: Vec<usize> = (0..count).collect();
        here.shuffle(&mut self.random);
        here.truncate(self.random.random_range(1..=count));
        let labels: Vec<Label> = here.iter().map(|disk| self.disks[*disk].label.clone()).collect();
        let mut label = winner(&labels, |_| false).unwrap().clone();
        let (side, apart): (Vec<usize>, Vec<usize>) =
            here.into_iter().partition(|disk| label.knows_life_of(&self.disks[*disk].label));
        let is_in_sync = |disk: &usize| {
            let own = &self.disks[*disk].label;
            label.members[*disk].in_sync && label.descends_from(own) && !label.is_rolled_back(own)
        };
        let (mut current, stale): (Vec<usize>, Vec<usize>) = side.iter().copied().partition(is_in_sync);
        if current.len() + usize::from(label.failures()) < count {
            return;
        }
        self.judge(&current, &stale, &label);
        self.diverged += apart.len() as u64;
        for disk in apart {
            label.members[disk].diverged = Some(Diverged::of(&self.disks[disk].label));
        }
        current.shuffle(&mut self.random);
        if !self.begin(&mut label, &current) {
            return;
        }
        for _ in 0..self.random.random_range(0..3) {
            self.answer(&current);
        }
        // A disk fails, and the pool goes on without it.
        if current.len() + usize::from(label.failures()) > count && self.random.random() {
            current.pop();
            if !self.begin(&mut label, &current) {
                return;
            }
            self.answer(&current);
            return;
        }
        // Those that were away are brought up to date: each that has its label counts.
        let (has, before) = (self.disks[current[0]].has.clone(), label.generation);
        current.extend(&stale);
        self.begin(&mut label, &current);
        for disk in stale.into_iter().filter(|disk| self.disks[*disk].label.generation > before).collect::<Vec<_>>() {
            self.disks[disk].has.clone_from(&has);
        }
    }

    fn answer(&mut self, current: &[usize]) {
        for disk in current {
            self.disks[*disk].has.insert(self.next);
        }
        self.next += 1;
    }

    /// As `Members::write_labels` does.
    fn begin(&mut self, label: &mut Label, current: &[usize]) -> bool {
        Self::set_in_sync(label, current);
        let present: BTreeSet<Uuid> = current.iter().map(|disk| id(*disk)).collect();
        self.advance(label);
        if label.needs_life(&present) {
            label.announce(self.random.random(), label.written_ms);
            label.present.clone_from(&present);
            if !self.write(label, current) {
                return false;
            }
            label.settled = label.generation;
            self.advance(label);
            label.begin_life();
        }
        label.present = present;
        let done = self.write(label, current);
        if done {
            label.settled = label.generation;
        }
        done
    }

    fn judge(&self, current: &[usize], stale: &[usize], label: &Label) {
        let Some(first) = current.first() else { return };
        for disk in current {
            assert_eq!(self.disks[*disk].has, self.disks[*first].has, "disks {first} and {disk} in sync: {label:?}");
        }
        for disk in stale {
            let lost: Vec<_> = self.disks[*disk].has.difference(&self.disks[*first].has).collect();
            assert!(lost.is_empty(), "answers {lost:?} of disk {disk} would be lost: {label:?}");
        }
    }
}

#[test]
fn no_answer_is_lost_whichever_disks_open_the_pool() {
    let layouts = [
        (Layout::Mirror2, 2),
        (Layout::Mirror2, 3),
        (Layout::Mirror3, 3),
        (Layout::Mirror3, 4),
        (Layout::Raidz1, 2),
        (Layout::Raidz2, 4),
        (Layout::Raidz2, 5),
        (Layout::Raidz3, 6),
    ];
    let mut diverged = 0;
    for (layout, disks) in layouts {
        for seed in 0..300 {
            let mut model = Model::new(seed, layout, disks);
            (0..40).for_each(|_| model.life());
            diverged += model.diverged;
        }
    }
    assert!(diverged > 1000, "{diverged}");
}
