//! The metrics of a pool.

use std::sync::atomic::Ordering;

use larder_base::LogStore;
use larder_base::metrics::Metrics;

use crate::heal::scrub::ScrubPhase;
use crate::member::member_disk::{DiskState, MemberDisk};
use crate::pool::Pool;

/// How often a disk of a pool was called, and how long that took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskTimes {
    /// Its folder.
    pub path: std::path::PathBuf,
    /// Calls so far.
    pub calls: u64,
    /// The time that they took together, in microseconds.
    pub took_us: u64,
    /// Bytes written so far.
    pub written_bytes: u64,
}

impl Pool {
    /// What its disks were asked so far, and how long they took: of one that is in use and up to date. Touches no disk.
    pub fn disk_times(&self) -> Vec<DiskTimes> {
        let in_use = self.core.members.iter().filter(|member| member.state() == DiskState::Online);
        let times = |member: &MemberDisk| {
            let counts = &member.counts;
            let all = [&counts.read_time, &counts.write_time, &counts.sync_time].map(|latency| latency.totals());
            DiskTimes {
                path: member.path.read().clone(),
                calls: all.iter().map(|(calls, _)| calls).sum(),
                took_us: all.iter().map(|(_, us)| us).sum(),
                written_bytes: counts.written_bytes.get(),
            }
        };
        in_use.map(times).collect()
    }

    /// Adds the pool's counters and states. Touches no disk, but asks its filesystem for the free
    /// room.
    pub fn metrics(&self, out: &mut Metrics) {
        let core = &self.core;
        let pool = core.members.name.as_str();
        for member in core.members.iter() {
            disk(pool, member, out);
        }
        let labels = [("pool", pool)];
        let (total, available) = core.space();
        let (objects, bytes) = {
            let index = core.objects.index();
            (index.objects.len() as u64, index.bytes)
        };
        out.gauge("larder_pool_objects", "Objects stored.", &labels, objects);
        out.gauge("larder_pool_stored_bytes", "Bytes of objects, before redundancy.", &labels, bytes);
        out.gauge("larder_pool_size_bytes", "Bytes of objects that fit, stored ones included.", &labels, total);
        out.gauge("larder_pool_available_bytes", "Bytes of objects that can still be written.", &labels, available);
        let repaired = core.repairs.repaired();
        out.counter("larder_pool_repaired_shards_total", "Shards made anew.", &labels, repaired);
        let owed = core.owed_objects();
        out.gauge("larder_pool_owed_objects", "Objects with less redundancy than they should have.", &labels, owed);
        let repairing = u64::from(!core.repairs.is_idle());
        out.gauge("larder_pool_repairing", "1 while something is being repaired or resilvered.", &labels, repairing);
        let (checked, total) = core.repairs.progress();
        out.gauge("larder_pool_resilver_checked_objects", "Objects the last pass has looked at.", &labels, checked);
        out.gauge("larder_pool_resilver_objects", "Objects the last pass has to look at.", &labels, total);
        if let Some(moving) = core.moving() {
            out.gauge(
                "larder_pool_moving_objects",
                "Objects that a change of disks looks at.",
                &labels,
                moving.objects,
            );
            let done = moving.objects_done;
            out.gauge("larder_pool_moving_done_objects", "Those that are where they should be.", &labels, done);
            out.gauge("larder_pool_moved_bytes", "Bytes that it has written.", &labels, moving.moved_bytes);
        }
        self.scrub_metrics(pool, out);
        self.journal_metrics(pool, out);
    }

    fn scrub_metrics(&self, pool: &str, out: &mut Metrics) {
        let labels = [("pool", pool)];
        let lost = self.damage();
        let lost = lost.0.len() as u64 + lost.1;
        out.gauge("larder_pool_damaged_objects", "Objects with bytes that no redundancy gives back.", &labels, lost);
        let Some(scrub) = self.scrub_status() else { return };
        let running = u64::from(scrub.phase == ScrubPhase::Running);
        out.gauge("larder_pool_scrub_running", "1 while a scrub runs.", &labels, running);
        out.gauge(
            "larder_pool_scrub_read_bytes",
            "What the current or last scrub has read.",
            &labels,
            scrub.bytes_done,
        );
        out.gauge("larder_pool_scrub_bytes", "What it has to read.", &labels, scrub.bytes_total);
        out.gauge("larder_pool_scrub_errors", "Damage it has found.", &labels, scrub.errors);
        out.gauge(
            "larder_pool_scrub_repaired_bytes",
            "Damaged bytes that it has made good.",
            &labels,
            scrub.repaired_bytes,
        );
        let at = scrub.ended_ms.unwrap_or(0) / 1000;
        out.gauge("larder_pool_scrub_end_timestamp_seconds", "When it ended; 0 while it runs.", &labels, at);
    }

    fn journal_metrics(&self, pool: &str, out: &mut Metrics) {
        let labels = [("pool", pool)];
        let counts = self.journal.counts();
        out.counter("larder_pool_journal_batches_total", "Commits of the journal.", &labels, counts.batches.get());
        out.counter("larder_pool_journal_records_total", "Records in them.", &labels, counts.records.get());
        out.counter("larder_pool_journal_bytes_total", "Bytes in them, one copy.", &labels, counts.bytes.get());
        out.latency(
            "larder_pool_journal_commit_seconds",
            "Time to write and flush all copies.",
            &labels,
            &counts.commit,
        );
        let (used, capacity) = self.journal.usage();
        out.gauge("larder_pool_journal_used_bytes", "Journal that is not trimmed yet.", &labels, used);
        out.gauge("larder_pool_journal_size_bytes", "Journal that there is.", &labels, capacity);
    }
}

fn disk(pool: &str, member: &MemberDisk, out: &mut Metrics) {
    let path = member.path.read().display().to_string();
    let labels = [("pool", pool), ("disk", path.as_str())];
    let counts = &member.counts;
    out.counter("larder_pool_disk_reads_total", "Reads of the disk.", &labels, counts.reads.get());
    out.counter("larder_pool_disk_read_bytes_total", "Bytes read.", &labels, counts.read_bytes.get());
    let cached = counts.cached_bytes.get();
    out.counter("larder_pool_disk_cached_bytes_total", "Bytes read that the kernel had cached.", &labels, cached);
    out.counter("larder_pool_disk_writes_total", "Writes to the disk.", &labels, counts.writes.get());
    out.counter("larder_pool_disk_written_bytes_total", "Bytes written.", &labels, counts.written_bytes.get());
    out.counter("larder_pool_disk_syncs_total", "Flushes of files and directories.", &labels, counts.syncs.get());
    out.latency("larder_pool_disk_read_seconds", "Time of a read.", &labels, &counts.read_time);
    out.latency("larder_pool_disk_write_seconds", "Time of a write.", &labels, &counts.write_time);
    out.latency("larder_pool_disk_sync_seconds", "Time of a flush.", &labels, &counts.sync_time);
    let errors =
        [("read", &member.read_errors), ("write", &member.write_errors), ("checksum", &member.checksum_errors)];
    for (kind, errors) in errors {
        // Reset by `pool clear`, as counters are by a restart.
        let labels = [("pool", pool), ("disk", path.as_str()), ("kind", kind)];
        out.counter("larder_pool_disk_errors_total", "Errors of the disk.", &labels, errors.load(Ordering::Relaxed));
    }
    let online = u64::from(member.state() == DiskState::Online);
    out.gauge("larder_pool_disk_online", "1 if the disk is in use and up to date.", &labels, online);
    let space = member.space();
    out.gauge("larder_pool_disk_size_bytes", "Size of the disk's filesystem.", &labels, space.total_bytes);
    out.gauge("larder_pool_disk_free_bytes", "Free bytes of the disk's filesystem.", &labels, space.free_bytes);
}
