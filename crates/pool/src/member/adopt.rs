//! Disks whose label is damaged: recognised by the shards and journal files on them.
//!
//! - `adopt.headers_prove_it`: a directory is adopted only if headers on it carry this pool's id,
//!   none carries another pool's, its lock is free, and no other directory claims the disk's id.
//! - `adopt.never_over_another_life`: a disk that may have gone on without this pool is not adopted: it has diverged, as far
//!   as anybody can tell. Its newest life is known by `larder.life`. Where that is damaged, too, it may have diverged if
//!   the disks without labels could have opened the pool by themselves.
//! - `adopt.away_since_the_beginning`: an adopted disk counts as away since the beginning. Disks in
//!   sync decide what exists, and it is in sync again only after each shard on it was read and
//!   verified. So it does no harm when, of several lost members, a directory is taken for another
//!   of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use uuid::Uuid;

use crate::disk::{DiskIo, read_file};
use crate::error::PoolError;
use crate::journal;
use crate::member::divergence::Divergence;
use crate::member::label::{Diverged, Label};
use crate::member::life_file;
use crate::member::member_disk::{DiskState, ErrorKind, MemberDisk};
use crate::object::shard::{self, Found, HEADER_BYTES_MAX, Header};

/// Headers that must agree before the rest is believed.
const AGREEING: usize = 16;
/// Headers looked at in all: bounds the wait for a disk on which nearly all are damaged.
const HEADERS_MAX: usize = 1024;

/// The reason why a directory without a label is not used, or is used only because of its files.
pub const UNLABELLED: &str = "its labels are gone";

/// A directory with a label that cannot be read, or without one where there should be one.
pub struct Damaged {
    pub path: PathBuf,
    pub disk: Arc<dyn DiskIo>,
    pub why: &'static str,
}

impl Damaged {
    pub fn note(&self) -> String {
        format!("{}: {}", self.path.display(), self.why)
    }
}

/// Whether a directory without a label may have been a disk.
pub fn is_in_use(disk: &dyn DiskIo) -> bool {
    ["objects", "journal"].into_iter().any(|name| disk.list(name).is_ok_and(|names| !names.is_empty()))
}

/// Whether the files of a disk prove that it is this pool's (`adopt.headers_prove_it`).
pub fn belongs_to(disk: &dyn DiskIo, pool: Uuid) -> bool {
    let (mut seen, mut ours) = (0, 0);
    for directory in disk.list("objects").unwrap_or_default() {
        let directory = format!("objects/{directory}");
        for name in disk.list(&directory).unwrap_or_default() {
            let Found::Shard(shard) = shard::parse_name(&name) else { continue };
            let bytes_max = u64::from(shard.header_bytes).min(HEADER_BYTES_MAX as u64);
            let bytes = read_file(disk, &format!("{directory}/{name}"), bytes_max).unwrap_or_default();
            match Header::decode(&bytes) {
                Some(header) if header.pool != pool => return false,
                Some(_) => ours += 1,
                None => {}
            }
            seen += 1;
            if ours >= AGREEING || seen >= HEADERS_MAX {
                return ours > 0;
            }
        }
    }
    ours > 0 || journal::belongs_to(disk, pool)
}

/// Whether a disk whose labels cannot be read may have gone on without this pool
/// (`adopt.never_over_another_life`). `out` members are not read now.
pub fn may_have_diverged(disk: &dyn DiskIo, ours: &Label, member: Uuid, out: usize) -> Option<Diverged> {
    let noted = ours.members.iter().find(|known| known.id == member).and_then(|known| known.diverged);
    if noted.is_some() {
        return noted;
    }
    match life_file::read(disk, ours.pool) {
        Some(mark) => (!ours.knows_mark(mark)).then_some(Diverged { mark, generation: 0 }),
        None => {
            let could_open = out + usize::from(ours.failures()) >= ours.members.len();
            (could_open && !ours.lives.is_empty()).then_some(Diverged { mark: 0, generation: 0 })
        }
    }
}

/// Gives the directories in `damaged` that are this pool's to members that no other directory
/// claims: first each to the member last seen there, then the rest in order.
pub fn adopt(
    winner: &Label,
    members: &[MemberDisk],
    claimed: &[Uuid],
    damaged: Vec<Damaged>,
    owner: &str,
    notes: &mut Vec<String>,
) -> Result<(), PoolError> {
    let lost = |member: &&MemberDisk| member.state() == DiskState::Missing && !claimed.contains(&member.id);
    let (at_home, elsewhere): (Vec<_>, Vec<_>) =
        damaged.into_iter().partition(|found| members.iter().any(|member| *member.path.read() == found.path));
    let out = members.iter().filter(|member| !member.is_readable()).count();
    let mut seen = Vec::new();
    for found in at_home.into_iter().chain(elsewhere) {
        let identity = found.disk.identity().ok();
        if identity.is_some() && seen.contains(&identity) {
            continue;
        }
        seen.push(identity);
        let home = members.iter().filter(lost).find(|member| *member.path.read() == found.path);
        if let Some(member) = home {
            found.why.clone_into(&mut member.last_error.lock());
        }
        // A directory without a label may also be the remains of a removed disk: only its path
        // tells which member it was.
        let anywhere = || members.iter().find(lost).filter(|_| found.why != UNLABELLED);
        let member = home.or_else(anywhere);
        let Some(member) = member.filter(|_| belongs_to(&*found.disk, winner.pool)) else {
            notes.push(format!("{}: not used", found.note()));
            continue;
        };
        if let Some(diverged) = may_have_diverged(&*found.disk, winner, member.id, out) {
            let divergence = Divergence::without_labels(winner, diverged);
            notes.push(format!("{}: it {}: left as it is", found.path.display(), divergence.what()));
            *member.divergence.lock() = Some(divergence);
            *member.path.write() = found.path;
            member.set_state(DiskState::Diverged);
            continue;
        }
        let lock = match found.disk.lock(owner) {
            Ok(lock) => lock,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                let holder = error.to_string();
                return Err(PoolError::Locked { pool: winner.name.clone(), path: found.path, holder });
            }
            Err(error) => {
                notes.push(format!("{}, and it cannot be locked: {error}", found.note()));
                continue;
            }
        };
        notes.push(format!("{}; what lies on it is this pool's: all of it is being verified", found.note()));
        member.count(ErrorKind::Checksum, found.why);
        member.suspect.store(true, Ordering::Release);
        member.attach(member.watched(found.disk), lock, found.path);
        member.set_state(DiskState::Resilvering);
    }
    Ok(())
}
