//! Figures of the volumes of a store.

use std::sync::atomic::Ordering::Relaxed;

use larder_base::metrics::Metrics;
use larder_fs::Cred;

use crate::registry::Registry;
use crate::volume::Volume;

impl Registry {
    /// Bytes that clients wrote to the open volumes, and bytes of their objects. Does no I/O; `None` while a volume is being opened.
    pub fn totals(&self) -> Option<(u64, u64)> {
        let open = self.open_now()?;
        let written = open.iter().map(|volume| volume.state.data.counts().written_bytes.get()).sum();
        let tables = |volume: &Volume| volume.state.meta.tables().iter().map(|(_, bytes)| bytes).sum::<u64>();
        let stored = open.iter().map(|volume| volume.state.data.usage().segment_bytes + tables(volume)).sum();
        Some((written, stored))
    }

    /// The open volumes by name, each with its quota in bytes, if it has one. Does no I/O; `None` while a volume is being opened.
    pub fn open_with_quotas(&self) -> Option<Vec<(String, Volume, Option<u64>)>> {
        let open = self.open_now()?;
        let quota = |volume: &Volume| Some(volume.state.quota_bytes.load(Relaxed)).filter(|bytes| *bytes != u64::MAX);
        Some(open.into_iter().map(|volume| (volume.state.name.clone(), volume.clone(), quota(&volume))).collect())
    }

    /// Adds the figures of the open volumes of `pool`. Does no I/O.
    pub async fn metrics(&self, pool: &str, out: &mut Metrics) {
        let labels = [("pool", pool)];
        let memory = self.memory();
        let (hits, misses) = (memory.counts.hits.get(), memory.counts.misses.get());
        out.counter("larder_volume_cache_hits_total", "Records of reads that were in memory.", &labels, hits);
        out.counter("larder_volume_cache_misses_total", "Records of reads that had to be fetched.", &labels, misses);
        let (dirty, dirty_max) = (memory.dirty_used(), memory.dirty_max());
        out.gauge("larder_volume_dirty_bytes", "Memory taken by data that is not stored yet.", &labels, dirty);
        out.gauge("larder_volume_dirty_max_bytes", "Where writers have to wait.", &labels, dirty_max);
        let cache = memory.cache_bytes();
        out.gauge("larder_volume_cache_max_bytes", "The most memory that records take.", &labels, cache);
        for (name, volume) in self.open_volumes().await {
            let name = format!("{pool}/{name}");
            one(&name, &volume, out);
        }
    }
}

fn one(name: &str, volume: &Volume, out: &mut Metrics) {
    let labels = [("volume", name)];
    let counts = &volume.state.data.counts();
    out.counter("larder_volume_reads_total", "Reads of files.", &labels, counts.reads.get());
    out.counter("larder_volume_read_bytes_total", "Bytes read from files.", &labels, counts.read_bytes.get());
    out.counter("larder_volume_writes_total", "Writes to files.", &labels, counts.writes.get());
    out.counter("larder_volume_written_bytes_total", "Bytes written to files.", &labels, counts.written_bytes.get());
    out.counter("larder_volume_commits_total", "Files made durable on request.", &labels, counts.commits.get());
    let flushed = counts.flushed_bytes.get();
    out.counter("larder_volume_flushed_bytes_total", "Bytes of segments stored, compressed.", &labels, flushed);
    out.latency("larder_volume_flush_seconds", "Time to store a segment.", &labels, &counts.flush);
    let collected = counts.collected_bytes.get();
    out.counter("larder_volume_collected_bytes_total", "Garbage given back by moving what lived.", &labels, collected);
    let usage = volume.state.data.usage();
    out.gauge("larder_volume_segments", "Segment objects.", &labels, usage.segments);
    out.gauge("larder_volume_segment_bytes", "Bytes of segment objects.", &labels, usage.segment_bytes);
    out.gauge("larder_volume_garbage_bytes", "Bytes in them that nothing refers to.", &labels, usage.dead_bytes);
    if let Some(engine) = volume.state.meta.engine() {
        let counts = engine.counts;
        out.counter("larder_metadata_gets_total", "Rows looked up in tables.", &labels, counts.gets.get());
        out.counter("larder_metadata_scans_total", "Ranges of rows read.", &labels, counts.scans.get());
        out.counter("larder_metadata_batches_total", "Changes of metadata.", &labels, counts.batches.get());
        out.latency("larder_metadata_commit_seconds", "Waits until changes were durable.", &labels, &counts.commit);
        out.gauge("larder_metadata_young_tables", "Tables not merged yet.", &labels, engine.young_tables);
        out.gauge("larder_metadata_runs", "Runs of merged tables.", &labels, engine.runs);
    }
    let room = volume.statfs(&Cred::root());
    out.gauge("larder_volume_size_bytes", "Size of the volume as clients see it.", &labels, room.total_bytes);
    out.gauge("larder_volume_available_bytes", "Room in the volume as clients see it.", &labels, room.available_bytes);
}
