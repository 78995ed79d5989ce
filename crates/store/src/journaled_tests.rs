//! The journal before a bucket: what it answers for, what it leaves to the next process, and what it never drops.
#![allow(clippy::unwrap_used, clippy::panic)]

use larder_base::log::MemLog;
use object_store::memory::InMemory;

use super::*;
use crate::Bucket;
use crate::server::Server;

/// A pool and a bucket.
struct Places {
    server: Arc<Server>,
    bucket: Bucket,
    journal: MemLog,
    objects: Arc<dyn ObjectStore>,
}

impl Places {
    async fn new() -> Self {
        let (server, bucket) = crate::tests::fresh().await;
        Self { server, bucket, journal: MemLog::default(), objects: Arc::new(InMemory::new()) }
    }

    fn local(&self) -> Local {
        Local::new("s3://test/some/where", Arc::new(self.journal.clone()), Arc::clone(&self.objects))
    }

    fn bucket_log(&self) -> BucketLog {
        BucketLog::new(Arc::clone(&self.bucket.store), None)
    }

    async fn recovered(&self) -> JournaledLog {
        JournaledLog::recover(self.bucket_log(), self.local()).await.unwrap()
    }

    /// A process that has read stream `v` and begins to write it. Returns what it has read, without fences, and the next id.
    async fn opened(&self) -> (JournaledLog, Vec<String>, u64) {
        let log = self.recovered().await;
        let (read, next) = begun(&log).await;
        (log, read, next)
    }

    fn waiting(&self) -> usize {
        let streams = self.journal.streams();
        streams.iter().map(|stream| self.journal.held_bytes(stream)).filter(|bytes| *bytes > 0).count()
    }
}

async fn begun(log: &dyn LogStore) -> (Vec<String>, u64) {
    let read = log.replay("v", 0).await.unwrap();
    let fence = read.last().map_or(1, |entry| entry.id + 1);
    log.append("v", fence, vec![Bytes::from_static(b"fence")]).await.unwrap();
    let text = |entry: LogEntry| String::from_utf8(entry.payload.to_vec()).unwrap();
    (read.into_iter().map(text).filter(|text| text != "fence").collect(), fence + 1)
}

async fn append(log: &JournaledLog, ids: std::ops::Range<u64>) {
    for id in ids {
        log.append("v", id, vec![format!("{id}").into()]).await.unwrap();
    }
}

#[test]
fn golden_records() {
    let kept = Kept { term: 5, id: 9, ms: 7, payload: vec![Bytes::from_static(b"ab"), Bytes::from_static(b"c")] };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let record: Bytes = kept.record().concat().into();
    let golden = concat!("0100000000000000", "0500000000000000", "0900000000000000", "0700000000000000", "616263");
    assert_eq!(hex(&record), golden);
    let read = Kept::parse(record).unwrap();
    assert_eq!((read.term, read.id, read.ms, read.payload.concat()), (5, 9, 7, b"abc".to_vec()));
    let parked = encode_parked([&kept].into_iter());
    assert_eq!(hex(&parked[..12]), concat!("4c52445742434b31", "23000000"));
    assert_eq!(decode_parked(parked.clone()).unwrap(), [read]);
    for at in 0..parked.len() {
        let mut torn = parked.to_vec();
        torn[at] ^= 1;
        assert!(decode_parked(torn.into()).is_none(), "byte {at}");
        assert!(decode_parked(parked.slice(..at)).is_none(), "{at} bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_come_before_the_bucket_and_arrive_there_in_order() {
    let places = Places::new().await;
    let (log, _, next) = places.opened().await;
    places.server.hold("log/v/");
    append(&log, next..next + 40).await;
    assert_eq!((log.undrained().entries, places.waiting()), (40, 1));
    assert!((log.drained_ms())() <= now_ms());
    places.server.let_go();
    log.drained().await.unwrap();
    assert_eq!((log.undrained(), places.waiting()), (Undrained::default(), 0));
    let (read, _) = begun(&places.bucket_log()).await;
    assert_eq!(read, (next..next + 40).map(|id| id.to_string()).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_process_finds_what_was_acknowledged() {
    let places = Places::new().await;
    let mut want = Vec::new();
    for life in 0..4 {
        let (log, read, next) = places.opened().await;
        assert_eq!(read, want, "life {life}");
        places.server.hold(&format!("log/v/{:016x}", next + 3));
        append(&log, next..next + 10).await;
        want.extend((next..next + 10).map(|id| id.to_string()));
        if life == 2 {
            // As a process that cannot have the store now.
            assert_eq!(places.local().park().await.unwrap(), places.local().park().await.unwrap());
            assert_eq!(places.waiting(), 0);
        }
        // It ends with the last ones on their way.
        log.0.end("v", "the process ends");
        places.server.let_go();
    }
    let (_, read, _) = places.opened().await;
    assert_eq!(read, want);
    assert_eq!(places.local().lost().await.unwrap(), []);
}

/// The process ends with these acknowledged and none of them on its way.
async fn leave(places: &Places, term: u64, ids: std::ops::Range<u64>) {
    let local = places.local().stream("v");
    let last = places.journal.replay(&local, 0).await.unwrap().last().map_or(100, |entry| entry.id);
    for (n, id) in (1..).zip(ids) {
        let kept = Kept { term, id, ms: 1_000 * id, payload: vec![format!("{id}").into()] };
        places.journal.append(&local, last + n, kept.record()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_owner_has_overtaken_is_kept() {
    let places = Places::new().await;
    let (log, _, next) = places.opened().await;
    append(&log, next..next + 5).await;
    log.drained().await.unwrap();
    log.0.end("v", "the process ends");
    leave(&places, next - 1, next + 4..next + 9).await;
    // Another machine reads what the bucket has, and writes on.
    let other = places.bucket_log();
    let (read, after) = begun(&other).await;
    assert_eq!((read.len(), after), (5, next + 6));
    other.append("v", after, vec![Bytes::from_static(b"theirs")]).await.unwrap();
    let (log, read, _) = places.opened().await;
    assert_eq!(read[5..], ["theirs"]);
    log.0.end("v", "the process ends");
    let lost = places.local().lost().await.unwrap();
    let [one] = &lost[..] else { panic!("{lost:?}") };
    // The bucket had the first of them already.
    assert_eq!((one.entries, one.from_ms, one.to_ms), (4, 1_000 * (next + 5), 1_000 * (next + 8)));
    assert_eq!(places.waiting(), 0);
    // They are kept through another start, until somebody lets them go.
    places.opened().await;
    assert_eq!(places.local().lost().await.unwrap(), lost);
    places.local().forget_lost().await.unwrap();
    assert_eq!(places.local().lost().await.unwrap(), []);
}

/// The successor has trimmed the log, its fence among what is gone: the place of an entry is free again, and not its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_was_trimmed_is_not_taken_for_a_free_one() {
    let places = Places::new().await;
    let (log, _, next) = places.opened().await;
    log.0.end("v", "the process ends");
    leave(&places, next - 1, next..next + 3).await;
    let other = places.bucket_log();
    let (_, after) = begun(&other).await;
    for id in after..after + 5 {
        other.append("v", id, vec![Bytes::from_static(b"theirs")]).await.unwrap();
    }
    other.trim("v", after + 3).await.unwrap();
    let log = places.recovered().await;
    assert_eq!(log.replay("v", after + 4).await.unwrap(), []);
    let lost = places.local().lost().await.unwrap();
    assert_eq!(lost.iter().map(|one| one.entries).collect::<Vec<_>>(), [3]);
}

/// A crash between what recovery has put and what it forgets.
#[tokio::test(flavor = "multi_thread")]
async fn recovery_may_begin_again() {
    let places = Places::new().await;
    let (log, _, next) = places.opened().await;
    log.0.end("v", "the process ends");
    leave(&places, next - 1, next..next + 30).await;
    places.local().park().await.unwrap();
    leave(&places, next - 1, next + 20..next + 40).await;
    let bucket = places.bucket_log();
    for id in [next, next + 1, next + 7] {
        assert!(bucket.put_again("v", (id, next - 1), vec![format!("{id}").into()], true).await.unwrap());
    }
    let (_, read, _) = places.opened().await;
    assert_eq!(read, (next..next + 40).map(|id| id.to_string()).collect::<Vec<_>>());
    assert_eq!((places.local().lost().await.unwrap(), places.waiting()), (vec![], 0));
}

/// `journaled.failed_is_undrained`: the volume is opened again by the process that acknowledged them.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_failed_is_recovered_by_its_next_opening() {
    let places = Places::new().await;
    let (log, _, next) = places.opened().await;
    places.server.hold("log/v/");
    append(&log, next..next + 20).await;
    log.0.stream("v").unwrap().fail(LogError::Poisoned("a bad answer".into()));
    assert!(log.undrained().entries > 0 && log.drained().await.is_err(), "nobody takes them for drained");
    places.server.let_go();
    let (read, _) = begun(&log).await;
    assert_eq!(read, (next..next + 20).map(|id| id.to_string()).collect::<Vec<_>>());
    log.drained().await.unwrap();
    assert_eq!((log.undrained(), places.waiting()), (Undrained::default(), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_wait_when_the_bucket_is_far_behind() {
    let places = Places::new().await;
    let (log, _, next) = places.opened().await;
    places.server.hold("log/v/");
    let bytes = Bytes::from(vec![7; 4 << 20]);
    let many = WAITING_BYTES_MAX / (4 << 20);
    for id in next..next + many {
        log.append("v", id, vec![bytes.clone()]).await.unwrap();
    }
    let one_more = log.append("v", next + many, vec![bytes.clone()]);
    let mut one_more = std::pin::pin!(one_more);
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut one_more).await.is_err());
    places.server.let_go();
    one_more.await.unwrap();
    log.drained().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_goes_leaves_nothing_behind() {
    let places = Places::new().await;
    let (log, _, next) = places.opened().await;
    places.server.hold("log/v/");
    append(&log, next..next + 3).await;
    places.server.let_go();
    places.local().park().await.unwrap();
    log.remove("v").await.unwrap();
    assert_eq!((places.local().left().await.unwrap(), places.waiting()), (Vec::<String>::new(), 0));
}
