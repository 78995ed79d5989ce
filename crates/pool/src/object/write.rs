//! Writing objects.
//!
//! ```text
//!   temp files written and synced on all disks -> renamed, directories synced -> in the index
//!        (a crash leaves temps: removed)      (a crash leaves >= k or < k shards)  acknowledged
//! ```
//!
//! - `write.durable_before_named`: no shard gets its final name before every shard of the object is
//!   durable under a temporary one. So a version with too few final names and no temporary ones is
//!   damage, not a crash.
//! - `write.old_version_stays`: the replaced version stays whole until the new one is in the index.
//! - `write.retry_excludes_a_disk`: a put that meets a failing disk starts again on the others.
//!   Bytes handed over as parts cannot be asked for twice, so an upload goes on with its remaining
//!   shards, at least `k`. Where a disk had no room, it is written again from these on others.
//! - `write.acknowledged_with_k`: an object is acknowledged with all its shards. Where a disk fails
//!   between renaming and syncing, or too few disks are alive, it is acknowledged with at least `k`
//!   and is owed the rest (`repair.owed_until_given`). Want of room is no such failure
//!   (`room.full_is_not_dead`).
//! - `write.outrun`: the version that is stored last has the highest number, because at the next
//!   opening the highest lives, and a tombstone names all numbers up to one. A writer that a later
//!   version has outrun writes again with a new number. A put does so while no other may commit, so
//!   it is outrun at most once; an upload reads back the bytes that it has written.

use crate::history::now_ms;
use std::io;
use std::sync::Arc;

use larder_base::group_commit::GroupCommit;
use object_store::{Attributes, PutMode};
use tokio::sync::MutexGuard;

use crate::core::Core;
use crate::disk::is_no_room;
use crate::disk::watch::hangs;
use crate::error::PoolError;
use crate::member::member_disk::MemberDisk;
use crate::member::reserve;
use crate::member::room::{Avoid, Placed};
use crate::object::gather::Gather;
use crate::object::geometry::{Geometry, MIRROR_BYTES_MAX, OBJECT_BYTES_MAX};
use crate::object::index::{NO_SLOT, NewObject, Object};
use crate::object::refusal::Refused;
use crate::object::shard::{self, HEADER_BYTES_MAX};
use crate::object::shard_writer::{Failure, Headers, ShardWriters};

/// More paths are not refused while a pool is open: it has lost more disks than it survives.
const REFUSED_MAX: usize = 65_536;
/// Blocks of such an object are sealed in place: another thread would cost more.
const INLINE_BYTES_MAX: u64 = MIRROR_BYTES_MAX;

/// How often one put of a small object has room given up for it (`reserve.no_more_than_needed`).
const GIVE_UPS_MAX: u8 = 4;

/// An object on its way: where its shards are being written.
pub struct Draft {
    pub object: Object,
    pub attributes: Vec<(String, String)>,
    _placed: Placed,
}

impl Draft {
    /// The headers of all shards.
    pub fn headers(&self) -> Headers {
        let header = |index: u8| self.object.header(index, self.attributes.clone()).encode();
        self.object.placed().map(|(index, _)| (index, header(index))).collect()
    }
}

/// The request of a caller that stores an object.
#[derive(Clone)]
pub struct Request {
    pub path: String,
    pub attributes: Attributes,
    pub mode: PutMode,
    /// A long object may be made durable with others.
    pub group: Option<GroupCommit>,
}

/// How a commit ended that was not refused.
pub enum Commit {
    Stored(Arc<Object>),
    /// A later version has come, and perhaps gone, while this one was being written
    /// (`write.outrun`). Its shards still have their temporary names.
    Outrun(Arc<Draft>),
}

impl Core {
    /// Stores an object whose bytes are all here.
    pub async fn put(self: &Arc<Self>, request: &Request, data: Gather) -> Result<Arc<Object>, Refused> {
        let _busy = self.activity.enter();
        self.put_quietly(request, data).await
    }

    /// For background work: does not count as use of the pool.
    pub async fn put_quietly(self: &Arc<Self>, request: &Request, data: Gather) -> Result<Arc<Object>, Refused> {
        self.check_open()?;
        self.check_condition(request)?;
        let Ok(_permit) = self.objects.writers.acquire().await else {
            return Err(PoolError::Closed(self.members.name.clone()).into());
        };
        self.reconnect_if_due();
        self.reserves.make_if_due(&self.members);
        let data = Arc::new(data);
        let mut avoid = Avoid::default();
        let mut give_ups = if data.length <= reserve::OBJECT_BYTES_MAX { GIVE_UPS_MAX } else { 0 };
        let mut held = None;
        loop {
            let draft = self.draft_with_room(request, data.length, &mut avoid, &mut give_ups).await?;
            let draft = Arc::new(draft);
            let failures = self.write_shards(&draft, &data, request.group).await?;
            if failures.is_empty() {
                let order = match held.take() {
                    Some(order) => order,
                    None => self.objects.commit_lock(&request.path).lock().await,
                };
                match self.commit(&order, draft, request).await? {
                    Commit::Stored(object) => return Ok(object),
                    // No other commits before this one (`write.outrun`).
                    Commit::Outrun(draft) => {
                        self.discard(&draft).await?;
                        held = Some(order);
                        continue;
                    }
                }
            }
            // Every round excludes at least one more disk (`write.retry_excludes_a_disk`).
            self.discard(&draft).await?;
            let is_new = failures.iter().any(|(slot, _)| !avoid.contains(*slot));
            assert!(is_new, "`write.retry_excludes_a_disk`: so the rounds end");
            avoid.extend(&failures);
            self.blocking(move |core| {
                failures.iter().for_each(|(slot, error)| core.members.write_failed(*slot, error))
            })
            .await?;
        }
    }

    /// As [`Self::draft`], after all that can make room for it.
    async fn draft_with_room(
        self: &Arc<Self>,
        request: &Request,
        bytes: u64,
        avoid: &mut Avoid,
        give_ups: &mut u8,
    ) -> Result<Draft, PoolError> {
        match self.draft(request, bytes, avoid) {
            Err(error) if error.is_no_space() => {}
            other => return other,
        }
        // Files deleted just now may not be unlinked yet, or their room may not be seen yet.
        self.objects.graveyard.barrier().await;
        self.members.iter().for_each(MemberDisk::forget_space);
        match self.draft(request, bytes, avoid) {
            Err(error) if error.is_no_space() && *give_ups > 0 => {
                *give_ups -= 1;
                if self.blocking(move |core| core.reserves.give_up(&core.members, bytes)).await? {
                    // A disk that had no room may have some now.
                    avoid.full.clear();
                }
                self.draft(request, bytes, avoid)
            }
            other => other,
        }
    }

    /// A version with a higher number is there, or has been deleted (`write.outrun`).
    fn is_outrun(&self, object: &Object) -> bool {
        let is_deleted = self.objects.deleted.lock().get(&object.path).is_some_and(|deleted| *deleted > object.version);
        is_deleted || self.objects.index().get(&object.path).is_some_and(|current| current.version > object.version)
    }

    /// Fails early where the commit would fail anyway.
    pub fn check_condition(&self, request: &Request) -> Result<(), Refused> {
        let index = self.objects.index();
        let current = index.get(&request.path);
        match &request.mode {
            PutMode::Overwrite => Ok(()),
            PutMode::Create if current.is_none() => Ok(()),
            PutMode::Create => Err(Refused::Exists),
            PutMode::Update(version) => {
                let e_tag = current.map(|object| object.e_tag());
                if e_tag.is_some() && e_tag == version.e_tag { Ok(()) } else { Err(Refused::Changed(e_tag)) }
            }
        }
    }

    pub fn draft(self: &Arc<Self>, request: &Request, size: u64, avoid: &Avoid) -> Result<Draft, PoolError> {
        let attributes = crate::object::attributes::to_pairs(&request.attributes);
        let header_bytes = shard::header_bytes(&request.path, &attributes);
        if header_bytes > HEADER_BYTES_MAX || size > OBJECT_BYTES_MAX {
            let why = "its name, attributes or size are beyond all bounds".to_owned();
            return Err(PoolError::CannotWrite { pool: self.members.name.clone(), object: request.path.clone(), why });
        }
        let placed = self.place(size, avoid)?;
        let new = NewObject {
            pool: self.members.id,
            path: request.path.clone(),
            version: self.objects.versions.next(),
            modified_ms: now_ms(),
            geometry: Geometry::new(size, placed.choice.k, placed.choice.m),
            header_bytes: header_bytes as u32,
            has_attributes: !attributes.is_empty(),
        };
        let object = Object::new(new, &placed.choice.slots, self.objects.graveyard.clone());
        assert!(object.crowded().is_empty(), "`placement.one_shard_a_disk`");
        let _ = object.attributes.set(request.attributes.clone());
        Ok(Draft { object, attributes, _placed: placed })
    }

    /// Writes and syncs all shards under temporary names, those of a long object with others of its `group`.
    async fn write_shards(
        self: &Arc<Self>,
        draft: &Arc<Draft>,
        data: &Arc<Gather>,
        group: Option<GroupCommit>,
    ) -> Result<Vec<Failure>, PoolError> {
        let geometry = draft.object.geometry;
        let are_small = ShardWriters::are_small(self, &draft.object);
        let member = match group.filter(|_| !are_small) {
            Some(terms) => Some(self.objects.groups.join(terms).await),
            None => None,
        };
        let mut writers = ShardWriters::of_whole(self, &draft.object, draft.headers());
        if are_small && data.length <= INLINE_BYTES_MAX {
            writers.write_stripes(geometry, data, 0);
        } else {
            if !are_small {
                writers = writers.open(self).await?;
            }
            let data = data.clone();
            let write = move |_: &Arc<Self>| {
                // Otherwise it begins again on other disks (`write.retry_excludes_a_disk`).
                if writers.failures().is_empty() {
                    writers.write_stripes(geometry, &data, 0);
                }
                writers
            };
            writers = self.blocking(write).await?;
        }
        if let Some(member) = member {
            if writers.failures().is_empty() {
                writers = writers.end(self).await?;
            }
            if writers.failures().is_empty() {
                member.written(data.length).await;
                writers = writers.sync(self).await?;
            }
        } else if writers.failures().is_empty() {
            writers = writers.finish(self, Headers::new()).await?;
        }
        Ok(writers.into_failures())
    }

    /// Removes the files of a failed attempt.
    pub async fn discard(self: &Arc<Self>, draft: &Arc<Draft>) -> Result<(), PoolError> {
        self.discard_shards(draft, draft.object.placed().collect()).await
    }

    pub async fn discard_shards(self: &Arc<Self>, draft: &Arc<Draft>, shards: Vec<(u8, u8)>) -> Result<(), PoolError> {
        let object = &draft.object;
        let name = |index| shard::temp_name(&object.path, object.version, index);
        let files: Vec<(u8, String)> = shards.iter().map(|(index, slot)| (*slot, name(*index))).collect();
        let slots: Vec<u8> = files.iter().map(|(slot, _)| *slot).collect();
        // Files on a disk that hangs are unlinked when it is back.
        self.blocking_on(slots, move |core| {
            for (slot, file) in files {
                if let Some(io) = core.members.member(slot).and_then(|member| member.io().ok()) {
                    let _ = io.remove(&file);
                }
            }
        })
        .await
        .map(drop)
    }

    /// Gives the shards their names, syncs the directories, and publishes the object. The path's
    /// commit lock is held.
    pub async fn commit(
        self: &Arc<Self>,
        _order: &MutexGuard<'_, ()>,
        draft: Arc<Draft>,
        request: &Request,
    ) -> Result<Commit, Refused> {
        if let Err(refused) = self.check_condition(request).and_then(|()| Ok(self.check_open()?)) {
            self.discard(&draft).await?;
            return Err(refused);
        }
        if self.is_outrun(&draft.object) {
            return Ok(Commit::Outrun(draft));
        }
        let failures = self.name_shards(&draft).await?;
        let lost: Vec<u8> = failures.iter().map(|(index, _, _)| *index).collect();
        lost.iter().for_each(|index| draft.object.set_slot(*index, NO_SLOT));
        let is_refused = failures.iter().any(|(_, _, error)| is_no_room(error));
        if !failures.is_empty() {
            let of_task = draft.clone();
            self.blocking(move |core| {
                for (index, slot, error) in &failures {
                    core.members.write_failed(*slot, error);
                    core.leave_no_draft(&of_task.object, *index, *slot);
                }
            })
            .await?;
        }
        if self.members.are_labels_behind() {
            self.blocking(|core| core.members.wait_for_labels()).await?;
        }
        // A disk that took its shard may have gone out of use meanwhile, and one that is not in
        // sync is not believed alone (`recover.in_sync_decides`).
        let members: Vec<_> = draft.object.placed().filter_map(|(_, slot)| self.members.member(slot)).collect();
        let kept = members.iter().filter(|member| member.is_readable()).count();
        let is_believed = kept >= usize::from(draft.object.geometry.k) && members.iter().any(|m| m.is_in_sync());
        if is_refused || !is_believed {
            draft.object.bury();
            self.remember_refused(&draft.object);
            if is_refused {
                return Err(self.members.no_space(draft.object.geometry.size).into());
            }
            let why = format!("only {kept} disks took it");
            return Err(
                PoolError::CannotWrite { pool: self.members.name.clone(), object: request.path.clone(), why }.into()
            );
        }
        let Some(draft) = Arc::into_inner(draft) else {
            return Err(PoolError::Cancelled(self.members.name.clone()).into());
        };
        let object = Arc::new(draft.object);
        let placed = object.placed().count();
        assert!(placed >= usize::from(object.geometry.k), "`write.acknowledged_with_k`: {placed} shards");
        assert!(!object.is_dead(), "`index.acknowledged_only`: a buried version is not published");
        let is_owed = {
            let mut index = self.objects.index_mut();
            index.insert(object.clone());
            index.owe(&object)
        };
        // Whatever was refused before is older.
        self.objects.refused.lock().remove(&object.path);
        if object.geometry.m < self.members.layout().failures() {
            self.mover.set_stragglers(true);
            self.mover.wake();
        }
        if is_owed {
            self.repairs.add(&object.path);
        }
        Ok(Commit::Stored(object))
    }

    /// A shard that could not be given its name. Beside a stored version its temporary file would
    /// look like a put that was cut short (`recover.newest_complete_lives`). A disk that keeps it
    /// is no longer believed, where the others can do without it. Blocks.
    fn leave_no_draft(&self, object: &Object, index: u8, slot: u8) {
        let Some(member) = self.members.member(slot).filter(|member| member.is_writable()) else { return };
        let removed = member.io().and_then(|io| {
            match io.remove(&shard::temp_name(&object.path, object.version, index)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            io.sync_directory(&shard::directory(&object.path))
        });
        if removed.is_err() {
            self.members.give_up(slot);
        }
    }

    fn remember_refused(&self, object: &Object) {
        let mut refused = self.objects.refused.lock();
        if refused.len() < REFUSED_MAX {
            refused.insert(object.path.clone(), object.shadow());
        }
    }

    /// Renames and syncs on all disks at once; (shard, disk, why) of those that failed.
    async fn name_shards(self: &Arc<Self>, draft: &Arc<Draft>) -> Result<Vec<(u8, u8, io::Error)>, PoolError> {
        let tasks = draft.object.placed().collect::<Vec<_>>().into_iter().map(|(index, slot)| {
            let object = &draft.object;
            let (temp, file) = (shard::temp_name(&object.path, object.version, index), object.file_name(index));
            let directory = shard::directory(&object.path);
            let named = self.blocking_on([slot], move |core| {
                let rename = || {
                    let io = core.members.member(slot).ok_or(io::ErrorKind::NotFound)?.io()?;
                    io.rename(&temp, &file)?;
                    io.sync_directory(&directory)
                };
                rename().err().map(|error| (index, slot, error))
            });
            async move { Ok::<_, PoolError>(named.await?.unwrap_or_else(|_| Some((index, slot, hangs())))) }
        });
        Ok(futures::future::try_join_all(tasks).await?.into_iter().flatten().collect())
    }
}
