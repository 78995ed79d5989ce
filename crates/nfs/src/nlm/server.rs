//! Calls of NLM, carried out on files.
//!
//! - `nlm.recorded_before_answered`: a machine is in the volume's durable record before it is told that it has a lock or
//!   waits for one, so a restart is announced to it.
//! - `nlm.taken_and_noted_at_once`: a lock is taken, also after a wait, under the lock of the book that says whose it is.
//! - `nlm.told_until_it_answers`: a client that waited is called until it answers, gives up, asks again or restarts.
//!   Where an answer may have been lost, a client that then denies is taken to have the lock: it cancels what it gives up.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use larder_base::task;
use larder_files::locks::LockError;
use larder_files::{Caches, Files, Open, Uses};
use larder_fs::{ACCESS_READ, ACCESS_WRITE, Cred, FileId, FileKind, FsError};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::super::handle::ExportKey;
use super::super::outbox::Reply;
use super::super::rpc::{AcceptStat, begin_accepted, set_record_mark};
use super::super::v4::{KnownVolume, NfsV4};
use super::super::xdr::Writer;
use super::call_out::{NoAnswer, Way};
use super::life::first_life;
use super::lock_book::{Attempt, ClientKey, LockBook, LockedKey, Target, WantedLock, stat_of};
use super::wire::{
    GRANTED, LockAction, LockAnswer, LockArg, LockCall, LockStat, NLM_PROGRAM, NLM_V4, Request, ShareCall,
    decode_granted, encode_granted, encode_share,
};

/// Between calls to a client that waited and does not answer. Linux asks by itself after 30 s.
const TELL_AGAIN_MAX: Duration = Duration::from_secs(30);
/// A client that restarts itself says so, and is called again later.
const IN_GRACE_THERE: Duration = Duration::from_secs(5);
/// Answers by calls under way. A client that cannot be reached has one for some seconds.
const ANSWERS_MAX: usize = 256;
/// An owner that has no locks.
const NOBODY: u64 = 0;

/// The lock manager and the status monitor of a server.
pub struct Nlm {
    pub(super) v4: Arc<NfsV4>,
    pub(super) book: Mutex<LockBook>,
    /// There are machines to look after.
    pub(super) used: Notify,
    /// The number of this server's life, as status monitors count it.
    pub(super) life: AtomicU32,
    /// For answers by calls under way.
    answers: Arc<Semaphore>,
}

/// What a call is about, for somebody whom the export admits.
pub struct LockAccess {
    pub export: ExportKey,
    /// As the door of these locks sees it.
    pub files: Files,
    pub id: FileId,
    pub cred: Cred,
    pub read_only: bool,
}

/// A call that may have to wait.
pub struct NlmCall {
    pub nlm: Arc<Nlm>,
    pub xid: u32,
    pub client: IpAddr,
    /// The address that was called.
    pub local: Option<IpAddr>,
    pub request: Request,
    /// `None` where the call is about no file.
    pub access: Option<Result<LockAccess, LockStat>>,
    pub scratch: Vec<u8>,
}

/// Carries out a call.
pub async fn run(call: NlmCall) -> Reply {
    let NlmCall { nlm, xid, client, local, request, access, scratch } = call;
    let mut w = Writer::new(scratch);
    w.truncate(0);
    begin_accepted(&mut w, xid, AcceptStat::Success);
    let access = access.unwrap_or(Err(LockStat::StaleHandle));
    match request {
        Request::Lock(call) => {
            let answer = match access {
                Ok(access) => Box::pin(nlm.lock_call(client, local, &access, &call)).await,
                Err(stat) => LockAnswer::Stat(stat),
            };
            match call.answer_by {
                None => answer.encode(&mut w, &call.cookie),
                Some(procedure) => nlm.answer_by_call(Way { client, from: local }, procedure, &call, &answer),
            }
        }
        Request::Share(call) => {
            let stat = match access {
                Ok(access) => Box::pin(nlm.share_call(client, &access, &call)).await,
                Err(stat) => Err(stat),
            };
            encode_share(&mut w, &call.cookie, stat.err().unwrap_or(LockStat::Granted));
        }
        Request::FreeAll { name, life } => nlm.client_restarted(client, &name, life),
        Request::Ignored => {}
    }
    set_record_mark(&mut w, 0);
    Reply { head: w.into_inner(), ..Reply::default() }
}

/// A call under way keeps its machine in the book.
struct UnderWay<'n> {
    nlm: &'n Nlm,
    client: IpAddr,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.nlm.book.lock().end_call(self.client, Instant::now());
    }
}

impl Nlm {
    pub fn new(v4: Arc<NfsV4>) -> Self {
        Self {
            v4,
            book: Mutex::default(),
            used: Notify::new(),
            life: AtomicU32::new(first_life()),
            answers: Arc::new(Semaphore::new(ANSWERS_MAX)),
        }
    }

    fn begin(&self, client: IpAddr) -> Result<UnderWay<'_>, LockStat> {
        self.book.lock().begin_call(client, Instant::now())?;
        self.used.notify_one();
        Ok(UnderWay { nlm: self, client })
    }

    async fn lock_call(
        self: &Arc<Self>,
        client: IpAddr,
        local: Option<IpAddr>,
        access: &LockAccess,
        call: &LockCall,
    ) -> LockAnswer {
        let key = ClientKey { address: client, name: call.lock.caller_name.clone() };
        let target = target(&key, access, call.lock.process, &call.lock.owner);
        let done = match call.action {
            LockAction::Test { exclusive } => return self.test(&target, access, &call.lock, exclusive).await,
            LockAction::Lock { .. } => self.lock(&target, access, local, call).await,
            LockAction::Cancel { exclusive } => self.cancel(&target, &call.lock, exclusive),
            LockAction::Unlock => call.lock.range().map(|range| self.book.lock().unlock(&target, range)),
        };
        LockAnswer::Stat(done.unwrap_or_else(|stat| stat))
    }

    async fn test(&self, target: &Target<'_>, access: &LockAccess, lock: &LockArg, exclusive: bool) -> LockAnswer {
        let tested = async {
            let range = lock.range()?;
            access.check(false).await?;
            let volume = self.v4.volume(target.files).await.map_err(|_| LockStat::StaleHandle)?;
            if self.v4.is_in_grace(volume.number) {
                // What was locked before the restart is not known yet.
                return Err(LockStat::DeniedGracePeriod);
            }
            // `files.locks_asked_for`
            target.files.recall(target.key.ino, Caches::of_lock(exclusive)).await;
            let book = self.book.lock();
            let owner = book.owner(target).unwrap_or(NOBODY);
            let held = target.files.test_lock(target.key.ino, owner, range, exclusive);
            Ok(held.map(|held| book.holder(target.files, &held)))
        };
        match tested.await {
            Ok(None) => LockAnswer::Stat(LockStat::Granted),
            Ok(Some(holder)) => LockAnswer::Held(holder),
            Err(stat) => LockAnswer::Stat(stat),
        }
    }

    async fn lock(
        self: &Arc<Self>,
        target: &Target<'_>,
        access: &LockAccess,
        local: Option<IpAddr>,
        call: &LockCall,
    ) -> Result<LockStat, LockStat> {
        let LockAction::Lock { waits, exclusive, reclaim, life, monitored } = call.action else {
            return Err(LockStat::Failed);
        };
        let wanted = WantedLock { range: call.lock.range()?, exclusive };
        access.check(exclusive).await?;
        let client = target.client.address;
        let _under_way = self.begin(client)?;
        let (how, volume) = self.may_take(client, target.files, reclaim, monitored).await?;
        let mut open = Some(open(target.files, access.id, exclusive).await?);
        target.files.recall(target.key.ino, Caches::of_lock(exclusive)).await;
        let mut book = self.book.lock();
        if how == Attempt::Reclaim && !self.v4.may_reclaim_locks(client, &volume) {
            // Grace has ended meanwhile.
            return Err(LockStat::DeniedGracePeriod);
        }
        let done = match book.lock(target, wanted, how, &mut open) {
            Err(LockStat::Denied) if waits && how == Attempt::New => {
                self.wait(&mut book, target, wanted, &mut open, (call, local))
            }
            done => done.map(|()| LockStat::Granted),
        };
        if done.is_ok() {
            book.lives(target.client, life);
        }
        if done.is_ok() && reclaim {
            book.reclaimed(client, Instant::now());
        }
        done
    }

    /// How a client may take something now. It is in the volume's record then (`nlm.recorded_before_answered`).
    async fn may_take(
        &self,
        client: IpAddr,
        files: &Files,
        reclaim: bool,
        monitored: bool,
    ) -> Result<(Attempt, Arc<KnownVolume>), LockStat> {
        let volume = self.v4.volume(files).await.map_err(|_| LockStat::StaleHandle)?;
        let how = match (self.v4.is_in_grace(volume.number), reclaim) {
            (true, false) => return Err(LockStat::DeniedGracePeriod),
            (true, true) if self.v4.may_reclaim_locks(client, &volume) => Attempt::Reclaim,
            (true, true) => return Err(LockStat::Denied),
            (false, true) => Attempt::IfHeld,
            (false, false) => Attempt::New,
        };
        if monitored {
            let recorded = self.v4.record_locker(client, &volume).await;
            recorded.map_err(|_| LockStat::DeniedNoLocks)?;
            self.book.lock().is_recorded(client);
        }
        Ok((how, volume))
    }

    /// The client waits, if that is not for ever.
    fn wait(
        self: &Arc<Self>,
        book: &mut LockBook,
        target: &Target<'_>,
        wanted: WantedLock,
        open: &mut Option<Open>,
        (call, local): (&LockCall, Option<IpAddr>),
    ) -> Result<LockStat, LockStat> {
        if book.find_wait(target, wanted).is_some() {
            // It asks again.
            return Ok(LockStat::Blocked);
        }
        let (number, owner, stop) = book.begin_wait(target, wanted, open)?;
        let (files, ino, process) = (target.locking(), target.key.ino, target.process);
        let mut waiting: Waiting =
            Box::pin(async move { files.lock_when_free(ino, owner, wanted.range, wanted.exclusive, process).await });
        // Now it says at once if it would wait for ever, or was freed meanwhile.
        let polled = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        match polled {
            Poll::Ready(Ok(())) => {
                book.end_wait(number, false);
                return Ok(LockStat::Granted);
            }
            Poll::Ready(Err(error)) => {
                book.end_wait(number, false);
                return Err(stat_of(error));
            }
            Poll::Pending => {}
        }
        let granted = encode_granted(&call.cookie, wanted.exclusive, &call.lock);
        let way = Way { client: target.client.address, from: local };
        let nlm = Arc::clone(self);
        task::spawn(async move {
            if nlm.is_granted(number, waiting, &stop).await {
                nlm.tell(number, way, &granted, &stop).await;
            }
        });
        Ok(LockStat::Blocked)
    }

    /// `nlm.taken_and_noted_at_once`. Whether the client is to be told.
    async fn is_granted(&self, number: u64, mut waiting: Waiting, stop: &CancellationToken) -> bool {
        let taking = poll_fn(|cx| {
            let mut book = self.book.lock();
            if !book.waits(number) {
                return Poll::Ready(false);
            }
            let done = std::task::ready!(waiting.as_mut().poll(cx));
            match done {
                Ok(()) => book.granted(number),
                // The client asks again and hears why.
                Err(_) => book.end_wait(number, false),
            }
            Poll::Ready(done.is_ok())
        });
        tokio::select! {
            biased;
            () = stop.cancelled() => false,
            is_granted = taking => is_granted,
        }
    }

    /// `nlm.told_until_it_answers`
    async fn tell(&self, number: u64, way: Way, granted: &[u8], stop: &CancellationToken) {
        let telling = async {
            let mut pause = Duration::from_secs(1);
            let mut may_have_it = false;
            loop {
                let answer = way.call((NLM_PROGRAM, NLM_V4, GRANTED), granted).await;
                match answer.map(|results| decode_granted(&results)) {
                    Ok(Some(LockStat::DeniedGracePeriod)) => tokio::time::sleep(IN_GRACE_THERE).await,
                    Ok(Some(LockStat::Granted)) => return false,
                    Ok(Some(_)) => return !may_have_it,
                    Ok(None) | Err(NoAnswer::Sent) => may_have_it = true,
                    Err(NoAnswer::NotSent) => {}
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(TELL_AGAIN_MAX);
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            gives_up = telling => self.book.lock().end_wait(number, gives_up),
        }
    }

    fn cancel(&self, target: &Target<'_>, lock: &LockArg, exclusive: bool) -> Result<LockStat, LockStat> {
        let wanted = WantedLock { range: lock.range()?, exclusive };
        let mut book = self.book.lock();
        let (number, _) = book.find_wait(target, wanted).ok_or(LockStat::Denied)?;
        book.end_wait(number, true);
        Ok(LockStat::Granted)
    }

    async fn share_call(&self, client: IpAddr, access: &LockAccess, call: &ShareCall) -> Result<(), LockStat> {
        let key = ClientKey { address: client, name: call.caller_name.clone() };
        let target = target(&key, access, 0, &call.owner);
        if call.ends {
            self.book.lock().unshare(&target);
            return Ok(());
        }
        let (does, denies) = (uses(call.access), uses(call.mode));
        access.check(call.access & WRITES != 0).await?;
        let _under_way = self.begin(client)?;
        let (how, _) = self.may_take(client, target.files, call.reclaim, true).await?;
        let open = target.files.open_judged(access.id, does).await.map_err(|error| refusal(&error))?;
        let claimed = open.claim_asking(target.files, does, denies, false).await;
        let mut book = self.book.lock();
        if let Some(former) = book.shared(&target) {
            drop(open);
            return former.claim(does, denies, false).map_err(|_| LockStat::Denied);
        }
        if how == Attempt::IfHeld {
            return Err(LockStat::DeniedGracePeriod);
        }
        claimed.map_err(|_| LockStat::Denied)?;
        book.share(&target, open)?;
        if call.reclaim {
            book.reclaimed(client, Instant::now());
        }
        Ok(())
    }

    /// The client hears the results by a call. One that does not hear them asks again.
    fn answer_by_call(self: &Arc<Self>, way: Way, procedure: u32, call: &LockCall, answer: &LockAnswer) {
        let mut w = Writer::default();
        answer.encode(&mut w, &call.cookie);
        let results = w.into_inner();
        // It asks again where there are too many.
        let Ok(permit) = Arc::clone(&self.answers).try_acquire_owned() else { return };
        task::spawn(async move {
            let _permit = permit;
            let _ = way.call((NLM_PROGRAM, NLM_V4, procedure), &results).await;
        });
    }
}

type Waiting = Pin<Box<dyn Future<Output = Result<(), LockError>> + Send>>;

/// Of `access` and `mode` in SHARE.
const READS: u32 = 1;
const WRITES: u32 = 2;

fn uses(bits: u32) -> Uses {
    Uses::NOTHING.and_if(bits & READS != 0, Uses::READ).and_if(bits & WRITES != 0, Uses::WRITE)
}

fn target<'a>(client: &'a ClientKey, access: &'a LockAccess, process: u32, owner: &'a [u8]) -> Target<'a> {
    let key = LockedKey { export: access.export, ino: access.id.ino };
    Target { client, process, owner, key, files: &access.files }
}

/// `nlm.open_beside_lock`
async fn open(files: &Files, id: FileId, exclusive: bool) -> Result<Open, LockStat> {
    let does = if exclusive { Uses::READ.and(Uses::WRITE) } else { Uses::READ };
    files.open_judged(id, does).await.map_err(|error| refusal(&error))
}

fn refusal(error: &FsError) -> LockStat {
    match error {
        FsError::Shared => LockStat::Denied,
        FsError::Stale | FsError::NotFound => LockStat::StaleHandle,
        FsError::ReadOnly(_) => LockStat::ReadOnly,
        _ => LockStat::Failed,
    }
}

impl LockAccess {
    /// A regular file, whose owner or reader or writer the caller is: as Linux has it. Exclusive locks keep writers out of
    /// what nobody may write by this share, so they are refused there.
    async fn check(&self, exclusive: bool) -> Result<(), LockStat> {
        if exclusive && self.read_only {
            return Err(LockStat::ReadOnly);
        }
        let granted = self.files.resolve_granted(&self.cred, self.id).await;
        let (attr, bits) = granted.map_err(|error| refusal(&error))?;
        let may = self.cred.uid == attr.uid || bits & (ACCESS_READ | ACCESS_WRITE) != 0;
        if may && attr.kind == FileKind::File { Ok(()) } else { Err(LockStat::Failed) }
    }
}
