//! Schedules. All of one follows from its seed.

use std::time::Duration;

use larder_pool::Layout;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::chance;
use crate::disk::{DiskPlan, Health};

/// The kind of store: objects and log entries straight in a pool, or files in a volume on it; or in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pool,
    Volume,
    /// Files in a volume in a bucket.
    Bucket,
}

/// Troubles beside the power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    None,
    /// Disks fail reads, writes or syncs now and then.
    Errors,
    /// Bits flip, writes are lost or go astray, and nobody is told.
    Silent,
    /// Disks are pulled, and come back later as they were.
    Gone,
    /// Disks say that they have flushed and have not.
    Liar,
    /// There is little room, and others take it.
    Full,
    /// Slow disks, and a clock that is set back and forth.
    Time,
    /// More disks are away than the layout survives.
    Exceeded,
    /// While the pool is closed copies of the journal are removed, emptied or zeroed, and disks replaced by older states of
    /// themselves or taken away.
    Journal,
    /// Sets of disks that do not know of each other open the pool by turns.
    Split,
}

/// Bounds that a person or the shrinker sets.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub sessions: u32,
    pub clients: u32,
    pub operations: u32,
    pub has_trouble: bool,
    /// Whether machines sit at seats of one store; by default the seed decides.
    pub seats: Option<bool>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sessions: u32::MAX, clients: u32::MAX, operations: u32::MAX, has_trouble: true, seats: None }
    }
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub kind: Kind,
    pub layout: Layout,
    pub disks: Vec<DiskPlan>,
    /// How many of the disks, the last ones, are empty at first; `None`: the disks of the pool stay as they are.
    pub new_disks: Option<usize>,
    pub trouble: Trouble,
    /// The disks that the trouble strikes.
    pub victims: Vec<usize>,
    /// Lives of the process, the last of which ends well.
    pub sessions: u32,
    pub clients: u32,
    /// Of each client in each session.
    pub operations: u32,
    /// Clients store objects of the same names at once.
    pub contends: bool,
    /// Disks do not fail calls, they never answer them.
    pub hangs: bool,
    /// Beside each client of a volume: those that commit what it does.
    pub committers: u32,
    /// The volume is encrypted.
    pub is_sealed: bool,
    /// Clients take snapshots of the volume.
    pub has_snapshots: bool,
    /// Files come and go at a high rate while snapshots are taken.
    pub churns: bool,
    /// Machines sit at several seats of a store in a bucket.
    pub has_seats: bool,
}

const CAPACITY_BYTES: u64 = 64 << 20;
const SMALL_BYTES: u64 = 24 << 20;

impl Plan {
    pub fn new(seed: u64, kind: Option<Kind>, limits: Limits) -> Self {
        let random = &mut chance::generator(seed, "plan");
        let drawn = if random.random_range(0..5) == 0 { Kind::Volume } else { Kind::Pool };
        let kind = kind.unwrap_or(drawn);
        let (layout, count) = layout(random);
        let m = usize::from(layout.failures());
        let trouble = match if limits.has_trouble { trouble(random, m) } else { Trouble::None } {
            Trouble::None if limits.has_trouble && is_full_instead(seed) => Trouble::Full,
            Trouble::None | Trouble::Gone if m > 0 && limits.has_trouble && hits_journals(seed) => Trouble::Journal,
            trouble => trouble,
        };
        let trouble = if limits.has_trouble && kind == Kind::Pool && splits(seed, trouble, count, m) {
            Trouble::Split
        } else {
            trouble
        };
        let capacity_bytes = if trouble == Trouble::Full { SMALL_BYTES } else { CAPACITY_BYTES };
        // A device that lies does so for all folders on it.
        let may_share = trouble != Trouble::Liar;
        let mut disks = disks(random, count, capacity_bytes, may_share);
        let new_disks = new_disks(seed, trouble);
        if let Some(last) = disks.last().cloned() {
            let filesystem = |extra: usize| if last.filesystem == 1 { 1 } else { last.filesystem + 1 + extra as u64 };
            disks.extend(
                (0..new_disks.unwrap_or(0)).map(|extra| DiskPlan { filesystem: filesystem(extra), ..last.clone() }),
            );
        }
        let mut victims: Vec<usize> = (0..count).collect();
        victims.shuffle(random);
        victims.truncate(match trouble {
            Trouble::None | Trouble::Split => 0,
            Trouble::Full => random.random_range(1..=count),
            Trouble::Time => 1,
            Trouble::Exceeded => random.random_range(m + 1..=count),
            // One disk at least knows how new the others should be. Where more are struck than the layout survives, the pool has
            // to refuse, or to have everything.
            Trouble::Journal => random.random_range(1..count),
            _ => random.random_range(1..=m.max(1)),
        });
        let most = if kind == Kind::Pool { 50 } else { 80 };
        let plan = Self {
            kind,
            layout,
            disks,
            new_disks,
            trouble,
            victims,
            sessions: random.random_range(2..=6).min(limits.sessions),
            clients: random.random_range(1..=4).min(limits.clients),
            operations: random.random_range(5..=most).min(limits.operations),
            contends: chance::generator(seed, "contended").random(),
            hangs: trouble == Trouble::Errors && chance::generator(seed, "hangs").random_range(0..3) == 0,
            committers: chance::generator(seed, "committers").random_range(0..=2),
            is_sealed: chance::generator(seed, "sealed").random_range(0..3) == 0,
            has_snapshots: chance::generator(seed, "snapshots").random(),
            churns: kind == Kind::Volume && chance::generator(seed, "churn").random(),
            has_seats: kind == Kind::Bucket && limits.seats.unwrap_or_else(|| has_seats(seed)),
        };
        if kind == Kind::Bucket { plan.in_a_bucket() } else { plan }
    }

    /// There are no disks. Whatever goes wrong may be answered by an error (`Run::may_refuse`).
    fn in_a_bucket(self) -> Self {
        let trouble = Trouble::Exceeded;
        Self { disks: Vec::new(), new_disks: None, victims: Vec::new(), hangs: false, trouble, ..self }
    }

    pub fn is_victim(&self, disk: usize) -> bool {
        self.victims.contains(&disk)
    }
}

/// One in three of those that would have no trouble. Drawn by itself, so that all other seeds mean what they meant.
fn is_full_instead(seed: u64) -> bool {
    chance::generator(seed, "full").random_range(0..3) == 0
}

/// One in four of those that would have no trouble, or whose disks would come and go.
fn hits_journals(seed: u64) -> bool {
    chance::generator(seed, "journals").random_range(0..4) == 0
}

/// One in three of those that would have no trouble, or whose disks would come and go, where disks that are away can open the
/// pool by themselves.
fn splits(seed: u64, trouble: Trouble, disks: usize, failures: usize) -> bool {
    let may_split = matches!(trouble, Trouble::None | Trouble::Gone | Trouble::Journal) && disks <= 2 * failures;
    may_split && chance::generator(seed, "split").random_range(0..3) == 0
}

/// One in three. Drawn by itself, so that all other seeds mean what they meant.
fn has_seats(seed: u64) -> bool {
    chance::generator(seed, "seats").random_range(0..3) == 0
}

/// In one schedule of four the disks change. Not where others must come back as they were, nor where there is no room.
fn new_disks(seed: u64, trouble: Trouble) -> Option<usize> {
    let random = &mut chance::generator(seed, "changes");
    let may_change =
        !matches!(trouble, Trouble::Exceeded | Trouble::Full | Trouble::Liar | Trouble::Journal | Trouble::Split);
    (random.random_range(0..4) == 0 && may_change).then(|| random.random_range(0..=3))
}

fn layout(random: &mut StdRng) -> (Layout, usize) {
    let (layout, extra) = match random.random_range(0..11) {
        0..3 => (Layout::Mirror2, 2),
        3 => (Layout::Mirror3, 1),
        4..7 => (Layout::Raidz1, 2),
        7..9 => (Layout::Raidz2, 2),
        9 => (Layout::Raidz3, 1),
        _ => (Layout::Stripe, 2),
    };
    (layout, layout.disks_min() + random.random_range(0..=extra))
}

fn trouble(random: &mut StdRng, failures: usize) -> Trouble {
    let trouble = match random.random_range(0..20) {
        0..6 => Trouble::None,
        6..9 => Trouble::Errors,
        9..12 => Trouble::Silent,
        12..15 => Trouble::Gone,
        15 => Trouble::Liar,
        16 => Trouble::Full,
        17 => Trouble::Time,
        _ => Trouble::Exceeded,
    };
    // Without redundancy nothing may go wrong but the power.
    let is_harmless = matches!(trouble, Trouble::None | Trouble::Full | Trouble::Time | Trouble::Exceeded);
    if failures == 0 && !is_harmless { Trouble::None } else { trouble }
}

fn disks(random: &mut StdRng, count: usize, capacity_bytes: u64, may_share: bool) -> Vec<DiskPlan> {
    // A pool for trying out: folders on one filesystem.
    let shares = random.random_range(0..5) == 0 && may_share;
    let has_direct = random.random_range(0..3) != 0;
    let sector_bytes = if random.random() { 512 } else { 4096 };
    (0..count as u64)
        .map(|number| DiskPlan {
            capacity_bytes,
            sector_bytes,
            filesystem: if shares { 1 } else { number + 1 },
            has_direct,
        })
        .collect()
}

/// The health of a victim from now on.
pub fn sickness(trouble: Trouble, random: &mut StdRng) -> Health {
    let mut health = Health::default();
    // Out of 65,536: from once in a while to most of the time.
    let mut chance = || 1u16 << random.random_range(6..13);
    match trouble {
        Trouble::Errors => {
            (health.read_errors, health.write_errors, health.sync_errors) = (chance(), chance(), chance());
            match random.random_range(0..5) {
                0 => (health.write_errors, health.sync_errors) = (0, 0),
                1 => (health.read_errors, health.sync_errors) = (0, 0),
                2 => (health.read_errors, health.write_errors) = (0, 0),
                3 => health = Health { is_read_only: true, ..Health::default() },
                _ => {}
            }
        }
        Trouble::Silent => {
            (health.rot, health.lost, health.misdirected) = (chance() / 4, chance(), chance());
            match random.random_range(0..4) {
                0 => (health.lost, health.misdirected) = (0, 0),
                1 => (health.rot, health.misdirected) = (0, 0),
                2 => (health.rot, health.lost) = (0, 0),
                _ => {}
            }
        }
        Trouble::Gone | Trouble::Exceeded => health.is_gone = true,
        Trouble::Liar => health.lies = true,
        Trouble::Time => health.delay = Duration::from_millis(1 << random.random_range(0..12)),
        Trouble::Full => {
            health.full = 4 * chance();
            health.no_files = random.random_range(0..3) == 0;
            match random.random_range(0..3) {
                0 => {}
                1 => health.taken_bytes = random.random_range(SMALL_BYTES / 4..=SMALL_BYTES),
                // Others take the last of it.
                _ => health.taken_bytes = SMALL_BYTES,
            }
        }
        Trouble::None | Trouble::Journal | Trouble::Split => {}
    }
    health
}

/// A number of changes after which power is cut: as often within the first ten as within the last thousand.
pub fn cut_point(random: &mut StdRng, most: u64) -> u64 {
    let magnitude = random.random_range(0.0..(most as f64).ln());
    magnitude.exp() as u64 + 1
}
