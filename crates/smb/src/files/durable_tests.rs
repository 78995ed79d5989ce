//! Tests of [`super`].

use larder_fs::Ino;
use larder_opens::Caches;

use super::*;
use crate::conn::outbound::{Notified, Outbound};
use crate::door::view::VisitedShare;
use crate::files::entries::Sharing;
use crate::files::file_ref::{FileRef, OpenRequest};
use crate::files::lease::{LeaseRequest, LeaseState, LeaseVersion};
use crate::files::leases::LeaseTable;
use crate::share::Share;
use crate::words::{FileTimes, OpenOptions};
use larder_smb_wire::access_mask::{FILE_READ_DATA, FILE_WRITE_DATA};
use larder_smb_wire::file_info::FileInfo;
use larder_smb_wire::messages::FileId;
use larder_smb_wire::path::SmbPath;

struct Fixture {
    table: Arc<DurableTable>,
    conn: Arc<Connection>,
    leases: Arc<LeaseTable>,
    share: Arc<ShareBindings>,
    view: VisitedShare,
    outbound: Arc<Outbound>,
}

async fn fixture(max_detached: usize) -> Fixture {
    let view = VisitedShare::in_memory().await;
    let share = ShareBindings::from_share(Share::of("s", view.clone()).public());
    Fixture {
        table: Arc::new(DurableTable::new(Duration::from_secs(60), max_detached)),
        conn: Arc::new(Connection::new(Uuid::nil(), 1 << 16, 1 << 16)),
        leases: Arc::default(),
        share,
        view,
        outbound: Arc::default(),
    }
}

const V1: Durability = Durability { create_guid: None, timeout: Duration::from_secs(60), replay_eligible: false };

fn lease(n: u8) -> LeaseId {
    LeaseId { client: Uuid::from_bytes([1; 16]), key: [n; 16] }
}

impl Fixture {
    /// A durable open of `name` by `owner` holding the lease `n` with
    /// `state`, as CREATE builds it.
    async fn open(&self, name: &str, owner: &str, n: u8, state: LeaseState) -> Arc<RwLock<Open>> {
        let path: SmbPath = name.parse().unwrap();
        let opts = OpenOptions { intent: crate::words::OpenIntent::OpenOrCreate, ..OpenOptions::default() };
        let (handle, _) = self.view.open(&path, opts).await.unwrap();
        let mut info = FileInfo::new("");
        info.file_index = u64::from(n);
        let lease_ref = self.leases.acquire(lease(n), &self.share, Some(u64::from(n))).unwrap();
        let req = OpenRequest {
            sharing: Sharing { access: FILE_READ_DATA | FILE_WRITE_DATA, share: 7 },
            owner: Notified::new(&self.outbound, None),
            lease: Some(lease(n)),
            ..OpenRequest::default()
        };
        let mut file = FileRef::register(&self.share, &info, handle.name(), req).unwrap().0;
        let request = LeaseRequest { id: lease(n), state, version: LeaseVersion::V2, epoch: 0, parent: None };
        let (granted, guard) = self.leases.grant(lease_ref, &mut file, &request, LeaseState::RWH).unwrap();
        drop(guard);
        assert_eq!(granted.state, state);
        let leased = (lease(n), LeaseVersion::V2);
        let reg = self.table.register((owner, lease(1).client), &self.share, leased, V1, &self.conn).unwrap();
        file.mark_durable(&self.table, reg.id());
        Arc::new(RwLock::new(Open {
            file_id: FileId::new(reg.id(), 1),
            handle: Some(handle),
            granted_access: FILE_READ_DATA | FILE_WRITE_DATA,
            is_directory: false,
            delete_on_close: false,
            search_state: None,
            fixed_times: FileTimes::default(),
            create_options: 0,
            file: Some(file),
            slot: None,
            durable: Some(reg),
            watch: None,
            wrote: Default::default(),
            create_action: 1,
            marked_deleted: Default::default(),
            begun: None,
            position: Default::default(),
            lock_sequences: Default::default(),
            channel_sequence: Arc::default(),
        }))
    }

    fn counts(&self) -> (usize, usize, usize) {
        let inner = self.table.inner();
        (inner.entries.len(), inner.detached, inner.detached_by_user.values().sum())
    }
}

async fn id_of(open: &Arc<RwLock<Open>>) -> u64 {
    open.read().await.durable.as_ref().unwrap().id()
}

/// Lets spawned closes run.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn ids_are_random_unique_and_never_reserved_values() {
    let f = fixture(8).await;
    let regs: Vec<_> = (0..64)
        .map(|n| {
            let leased = (lease(n), LeaseVersion::V2);
            f.table.register(("alice", lease(1).client), &f.share, leased, V1, &f.conn).unwrap()
        })
        .collect();
    let mut ids: Vec<u64> = regs.iter().map(DurableReg::id).collect();
    assert!(ids.iter().all(|&id| id != 0 && id != u64::MAX));
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 64);
    drop(regs);
    assert_eq!(f.counts(), (0, 0, 0));
}

#[tokio::test]
async fn a_kept_open_counts_until_it_is_closed() {
    let f = fixture(8).await;
    let open = f.open("a", "alice", 1, LeaseState::RH).await;
    let id = id_of(&open).await;
    assert!(f.table.preserve(open, f.table.sweeps()).await.is_none());
    assert_eq!(f.counts(), (1, 1, 1));
    assert_eq!(f.view.open_handles(), 1);
    f.table.purge(id);
    assert_eq!(f.counts().1, 0);
    settle().await;
    assert_eq!(f.view.open_handles(), 0);
    assert_eq!(f.counts(), (0, 0, 0));
    assert!(!f.leases.exists(lease(1)));
}

/// Another door waits for no client that has gone: the kept open is closed, and its promise ends with it.
#[tokio::test]
async fn another_door_takes_what_a_kept_open_caches() {
    let f = fixture(8).await;
    let held = &f.share.files.held;
    for (n, what) in [(1, Caches::WRITES), (2, Caches::DATA), (3, Caches::HANDLES)] {
        let open = f.open(&format!("f{n}"), "alice", n, LeaseState::RWH).await;
        assert!(f.table.preserve(open, f.table.sweeps()).await.is_none());
        let ino = Ino(u64::from(n));
        assert!(held.others(ino, 99).is_open, "it keeps what it has without a connection");
        held.given_back(99, ino, what).await;
        settle().await;
        assert_eq!(f.counts(), (0, 0, 0));
        assert!(!held.others(ino, 99).is_open);
    }
}

#[tokio::test]
async fn opens_past_the_limits_are_not_kept() {
    // A limit of 6 gives each user 2, and the last of them to one who has none.
    let f = fixture(6).await;
    for n in 0..3 {
        let open = f.open(&format!("a{n}"), "alice", n, LeaseState::RH).await;
        let kept = f.table.preserve(open, f.table.sweeps()).await;
        assert_eq!(kept.is_none(), n < 2, "alice {n}");
    }
    for n in 3..8 {
        let user = ["bob", "carol", "dave"][usize::from(n - 3) / 2];
        let open = f.open(&format!("b{n}"), user, n, LeaseState::RH).await;
        let kept = f.table.preserve(open, f.table.sweeps()).await;
        assert_eq!(kept.is_none(), n != 6, "{user} {n}");
    }
    assert_eq!(f.counts().1, 6);
    let opens = f.table.take_for(None, None);
    assert_eq!(opens.len(), 6);
    drop(opens);
    settle().await;
    assert_eq!(f.counts(), (0, 0, 0));
}

#[tokio::test]
async fn opens_without_handle_caching_are_not_kept() {
    let f = fixture(8).await;
    let open = f.open("a", "alice", 1, LeaseState::R).await;
    assert!(f.table.preserve(open, f.table.sweeps()).await.is_some());
    assert_eq!(f.counts().1, 0);
}

#[tokio::test]
async fn an_open_whose_session_left_before_a_sweep_is_not_kept() {
    let f = fixture(8).await;
    let open = f.open("a", "alice", 1, LeaseState::RH).await;
    let since = f.table.sweeps();
    // The sweep runs while the session is gone but the open is not kept
    // yet, so it cannot see the open.
    assert!(f.table.take_for(None, Some("alice")).is_empty());
    assert!(f.table.preserve(open, since).await.is_some());
    let open = f.open("b", "alice", 2, LeaseState::RH).await;
    assert!(f.table.preserve(open, f.table.sweeps()).await.is_none());
    assert_eq!(f.counts().1, 1);
}

#[tokio::test]
async fn take_for_picks_by_share_and_user() {
    let f = fixture(64).await;
    let other = fixture(64).await;
    for (n, user) in [(1, "alice"), (2, "alice"), (3, "bob")] {
        let open = f.open(&format!("f{n}"), user, n, LeaseState::RH).await;
        assert!(f.table.preserve(open, f.table.sweeps()).await.is_none());
    }
    assert!(f.table.take_for(Some(&other.share), None).is_empty());
    assert!(f.table.take_for(None, Some("carol")).is_empty());
    assert_eq!(f.table.take_for(Some(&f.share), Some("bob")).len(), 1);
    assert_eq!(f.table.take_for(None, Some("alice")).len(), 2);
    assert_eq!(f.counts().1, 0);
}

#[tokio::test]
async fn only_a_closing_or_kept_entry_is_purged() {
    let f = fixture(8).await;
    let open = f.open("a", "alice", 1, LeaseState::RH).await;
    let id = id_of(&open).await;
    // Still in a session: nothing happens.
    f.table.purge(id);
    assert_eq!(f.counts(), (1, 0, 0));
    assert!(f.table.preserve(Arc::clone(&open), f.table.sweeps()).await.is_none());
    f.table.purge(id);
    f.table.purge(id);
    drop(open);
    settle().await;
    assert_eq!(f.counts(), (0, 0, 0));
}

fn claim<'a>(
    share: &'a Arc<ShareBindings>,
    user: Option<&'a str>,
    client: Uuid,
    lease: Option<(LeaseId, LeaseVersion)>,
) -> Claim<'a> {
    Claim { share, user, client, lease, create_guid: None, file: Some(1) }
}

#[test]
fn a_version_2_timeout_is_the_request_up_to_a_cap() {
    let s = Duration::from_secs;
    let ms = Duration::from_millis;
    assert_eq!(v2_timeout(0, s(120)), s(120));
    assert_eq!(v2_timeout(1, s(120)), ms(1));
    assert_eq!(v2_timeout(300_000, s(120)), s(300));
    assert_eq!(v2_timeout(300_001, s(120)), s(300));
    assert_eq!(v2_timeout(u32::MAX, s(120)), s(300));
    // A longer server default raises the cap.
    assert_eq!(v2_timeout(400_000, s(600)), s(400));
    assert_eq!(v2_timeout(900_000, s(600)), s(600));
}

#[tokio::test]
async fn a_version_2_claim_names_the_create_guid() {
    let f = fixture(8).await;
    let guid = [7; 16];
    let v1 = f.open("a", "alice", 1, LeaseState::RH).await;
    let v1_id = id_of(&v1).await;
    let v2 = f.open("b", "alice", 2, LeaseState::RH).await;
    let v2_id = id_of(&v2).await;
    // Turn the second into a version 2 open.
    f.table.inner().entries.get_mut(&v2_id).unwrap().durability.create_guid = Some(guid);
    for open in [v1, v2] {
        assert!(f.table.preserve(open, f.table.sweeps()).await.is_none());
    }
    let me = lease(1).client;
    let with = |n, create_guid| Claim {
        create_guid,
        file: Some(u64::from(n)),
        ..claim(&f.share, Some("alice"), me, Some((lease(n), LeaseVersion::V2)))
    };
    let not_found = ntstatus::STATUS_OBJECT_NAME_NOT_FOUND;
    assert_eq!(status(f.table.claim(v1_id, &with(1, Some(guid)))), not_found);
    assert_eq!(status(f.table.claim(v2_id, &with(2, Some([8; 16])))), not_found);
    assert_eq!(status(f.table.claim(v2_id, &with(2, Some(guid)))), 0);
    // A version 1 reconnect of a version 1 open checks no CreateGuid.
    assert_eq!(status(f.table.claim(v1_id, &with(1, None))), 0);
}

#[tokio::test]
async fn the_file_is_compared_before_the_owner() {
    let f = fixture(8).await;
    let open = f.open("a", "alice", 1, LeaseState::RH).await;
    let id = id_of(&open).await;
    assert!(f.table.preserve(open, f.table.sweeps()).await.is_none());
    let bob = |create_guid, file| Claim {
        create_guid,
        file,
        ..claim(&f.share, Some("bob"), lease(1).client, Some((lease(1), LeaseVersion::V2)))
    };
    assert_eq!(status(f.table.claim(id, &bob(None, Some(2)))), ntstatus::STATUS_INVALID_PARAMETER);
    assert_eq!(
        status(f.table.claim(id, &bob(None, None))),
        ntstatus::STATUS_INVALID_PARAMETER,
        "a name that leads to nothing matches nothing"
    );
    assert_eq!(status(f.table.claim(id, &bob(None, Some(1)))), ntstatus::STATUS_ACCESS_DENIED);
    assert_eq!(f.counts().1, 1, "refusals change nothing");
}

#[tokio::test]
async fn a_create_guid_in_use_is_one_of_a_live_replay_eligible_open() {
    let f = fixture(8).await;
    let guid = [7; 16];
    let open = f.open("a", "alice", 1, LeaseState::RH).await;
    let id = id_of(&open).await;
    let me = lease(1).client;
    assert!(f.table.replayable(me, guid).is_none());
    let set = |eligible| {
        let mut inner = f.table.inner();
        let durability = &mut inner.entries.get_mut(&id).unwrap().durability;
        durability.create_guid = Some(guid);
        durability.replay_eligible = eligible;
    };
    set(false);
    assert!(f.table.replayable(me, guid).is_none(), "not eligible");
    set(true);
    assert!(f.table.replayable(me, guid).is_some());
    assert!(f.table.replayable(Uuid::nil(), guid).is_none(), "another client");
    assert!(f.table.replayable(me, [8; 16]).is_none());
    // Kept opens count as well.
    assert!(f.table.preserve(open, f.table.sweeps()).await.is_none());
    assert!(f.table.replayable(me, guid).is_some());
    assert_eq!(f.table.take_for(None, None).len(), 1);
    assert!(f.table.replayable(me, guid).is_none(), "closing");
}

/// The status a claim fails with, 0 for success and `u32::MAX` for a
/// wait.
fn status(claimed: Result<Arc<RwLock<Open>>, Unclaimed>) -> u32 {
    match claimed {
        Ok(_) => 0,
        Err(Unclaimed::Status(status)) => status,
        Err(Unclaimed::Wait(_) | Unclaimed::WaitBriefly(_)) => u32::MAX,
    }
}

#[tokio::test]
async fn a_claim_checks_the_reconnect_in_the_order_of_the_spec() {
    let f = fixture(8).await;
    let other = fixture(8).await;
    let open = f.open("a", "alice", 1, LeaseState::RH).await;
    let id = id_of(&open).await;
    let me = lease(1).client;
    let v2 = Some((lease(1), LeaseVersion::V2));
    let not_found = ntstatus::STATUS_OBJECT_NAME_NOT_FOUND;
    let alice = claim(&f.share, Some("alice"), me, v2);

    // Still in a session on a connection that is not closing.
    assert!(matches!(f.table.claim(id, &alice), Err(Unclaimed::WaitBriefly(_))));
    assert!(f.table.preserve(open, f.table.sweeps()).await.is_none());
    assert_eq!(status(f.table.claim(id ^ 1, &alice)), not_found);
    for refused in [
        claim(&f.share, Some("alice"), Uuid::nil(), v2),
        claim(&f.share, Some("alice"), me, None),
        claim(&f.share, Some("alice"), me, Some((lease(2), LeaseVersion::V2))),
        claim(&f.share, Some("alice"), me, Some((lease(1), LeaseVersion::V1))),
        claim(&other.share, Some("alice"), me, v2),
    ] {
        assert_eq!(status(f.table.claim(id, &refused)), not_found);
    }
    for user in [Some("bob"), None] {
        let refused = claim(&f.share, user, me, v2);
        assert_eq!(status(f.table.claim(id, &refused)), ntstatus::STATUS_ACCESS_DENIED);
    }
    assert_eq!(f.counts().1, 1, "refusals change nothing");

    let open = f.table.claim(id, &alice).unwrap();
    assert_eq!(f.counts().1, 0);
    assert_eq!(status(f.table.claim(id, &alice)), not_found, "claimed once");
    f.table.purge(id);
    assert!(f.table.take_for(None, None).is_empty());
    let owner = Notified::new(&f.outbound, None);
    let reattached = open.read().await.file.as_ref().unwrap().reattach(owner);
    assert!(reattached.is_some());
    drop(reattached);
    f.table.attached(id, &f.conn);
    assert_eq!(status(f.table.claim(id, &alice)), u32::MAX, "attached");
    // In a session again, it can be kept again.
    assert!(f.table.preserve(open, f.table.sweeps()).await.is_none());
    assert_eq!(f.counts().1, 1);
}

#[tokio::test]
async fn a_claim_on_a_closing_connection_waits_for_the_open_to_be_kept() {
    let f = fixture(8).await;
    let open = f.open("a", "alice", 1, LeaseState::RH).await;
    let id = id_of(&open).await;
    let alice = claim(&f.share, Some("alice"), lease(1).client, Some((lease(1), LeaseVersion::V2)));
    f.conn.mark_closing();
    let Err(Unclaimed::Wait(wait)) = f.table.claim(id, &alice) else {
        panic!("a claim on a closing connection waits");
    };
    assert!(!wait.has_changed().unwrap());
    assert!(f.table.preserve(open, f.table.sweeps()).await.is_none());
    assert!(wait.has_changed().unwrap());
    assert!(f.table.claim(id, &alice).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_released_claim_keeps_the_open_until_its_first_deadline() {
    let f = fixture(8).await;
    let open = f.open("a", "alice", 1, LeaseState::RH).await;
    let id = id_of(&open).await;
    let alice = claim(&f.share, Some("alice"), lease(1).client, Some((lease(1), LeaseVersion::V2)));
    assert!(f.table.preserve(open, f.table.sweeps()).await.is_none());
    tokio::time::sleep(Duration::from_secs(40)).await;
    let open = f.table.claim(id, &alice).unwrap();
    // The claim stopped the timer: the deadline passes with the open out.
    tokio::time::sleep(Duration::from_secs(30)).await;
    settle().await;
    assert_eq!(f.view.open_handles(), 1);
    f.table.release_claim(id, open).await;
    assert_eq!(f.counts().1, 1);
    // Put back past its deadline, it expires at once.
    settle().await;
    assert_eq!(f.view.open_handles(), 0);
    assert_eq!(f.counts(), (0, 0, 0));
}
