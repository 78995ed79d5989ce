//! Schedules of objects and log entries, straight in a pool.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::TryStreamExt;
use futures::future::BoxFuture;
use larder_base::{LogError, LogStore};
use larder_pool::{Pool, PoolState, PoolStatus};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::changes;
use crate::contended::Contended;
use crate::early::EarlyStore;
use crate::objects::{Content, Known, Objects, Stream};
use crate::plan::{Trouble, cut_point};
use crate::session::{Outcome, Run, Stop, text};

/// Objects of each client.
const PATHS: u64 = 6;
/// Objects that all clients store.
/// An upload is written so often before it is refused (`write.outrun`).
const UPLOAD_ROUNDS: usize = 4;
const CONTENDED: u64 = 2;
/// Until objects have all shards, once there is room for them.
const OWED_MAX: Duration = Duration::from_secs(60);
/// Of the journal: beyond it a client trims before it appends.
const LOG_USED_MAX_PERCENT: u64 = 50;

pub struct PoolRun {
    run: Arc<Run>,
    model: Arc<Mutex<Objects>>,
    content_next: Arc<Mutex<u64>>,
}

/// The state of a client.
struct Client {
    run: Arc<Run>,
    /// Gone with the process.
    pool: Weak<Pool>,
    model: Arc<Mutex<Objects>>,
    content_next: Arc<Mutex<u64>>,
    number: u64,
    store: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
}

impl PoolRun {
    pub fn new(run: Arc<Run>) -> Self {
        Self { run, model: Arc::default(), content_next: Arc::new(Mutex::new(1)) }
    }

    /// A life that goes on from what this model knows.
    pub fn over(run: Arc<Run>, model: Arc<Mutex<Objects>>, content_next: Arc<Mutex<u64>>) -> Self {
        Self { run, model, content_next }
    }

    /// One life of the process.
    pub async fn session(&self, life: u32) -> Outcome<()> {
        let run = &self.run;
        let is_last = life + 1 == run.plan.sessions;
        if is_last {
            run.end_trouble();
        } else if life > 0 {
            run.trouble_at_start();
        }
        if run.is_beyond() {
            return self.beyond(life).await;
        }
        let Some(pool) = self.start(life, is_last).await? else { return Ok(()) };
        let pool = Arc::new(pool);
        self.verify(&pool).await?;
        if !is_last || run.plan.sessions == 1 {
            run.choose_end(3000);
            run.catch_up(&pool).await?;
            self.work(&pool).await?;
            if run.plan.trouble == Trouble::Full && run.one_in(2) {
                run.end_trouble();
                self.given(&pool).await?;
            }
        }
        self.end(pool, is_last).await
    }

    /// More is struck than the layout survives: the pool refuses, or has everything. Then somebody puts all back as it was.
    async fn beyond(&self, life: u32) -> Outcome<()> {
        let run = &self.run;
        let before = self.model.lock().clone();
        if let Ok(pool) = run.open(life).await? {
            self.verify(&pool).await?;
        }
        *self.model.lock() = before;
        run.undo();
        Ok(())
    }

    /// `None`: refused, as it must be.
    async fn start(&self, life: u32, is_last: bool) -> Outcome<Option<Pool>> {
        let run = &self.run;
        if life == 0 {
            return run.create().await.map(Some);
        }
        if !is_last && run.one_in(3) {
            run.world.cut_after(Some(run.draw(|random| cut_point(random, 300))));
        }
        match run.open(life).await? {
            Ok(pool) => Ok(Some(pool)),
            Err(_) if run.plan.trouble == Trouble::Exceeded && !is_last => Ok(None),
            Err(error) => Err(run.unexpected("opening the pool", text(&error))),
        }
    }

    pub async fn work(&self, pool: &Arc<Pool>) -> Outcome<()> {
        let mut tasks: Vec<BoxFuture<'static, ()>> = Vec::new();
        for number in 0..u64::from(self.run.plan.clients) {
            let client = Client {
                run: self.run.clone(),
                pool: Arc::downgrade(pool),
                model: self.model.clone(),
                content_next: self.content_next.clone(),
                number,
                store: EarlyStore::over(pool.store(), self.run.world.planted()),
                log: pool.log(),
            };
            tasks.push(Box::pin(client.work()));
        }
        tasks.push(Box::pin(administer(self.run.clone(), pool.clone())));
        self.run.all(tasks).await
    }

    pub async fn end(&self, pool: Arc<Pool>, is_last: bool) -> Outcome<()> {
        let run = &self.run;
        if is_last {
            return self.last(pool).await;
        }
        match run.draw(|random| random.random_range(0..4)) {
            // The process is killed.
            0 => Ok(()),
            1 => match run.powered(pool.close()).await? {
                Ok(()) => Ok(()),
                Err(_) if run.may_refuse() => Ok(()),
                Err(error) => Err(run.unexpected("closing the pool", text(&error))),
            },
            _ => {
                run.world.cut_now();
                Err(Stop::Cut)
            }
        }
    }

    /// All is well again: what can be repaired is, and then any m disks may go.
    async fn last(&self, pool: Arc<Pool>) -> Outcome<()> {
        let run = &self.run;
        let what = "with all disks back";
        run.powered(pool.clear()).await?.map_err(|error| run.unexpected(what, text(&error)))?;
        run.powered(pool.repaired()).await?;
        self.given(&pool).await?;
        if run.plan.new_disks.is_some() {
            changes::conclude(run, &pool).await?;
        }
        let scrub =
            || async { run.powered(pool.scrub()).await?.map_err(|error| run.unexpected("scrub", text(&error))) };
        let first = scrub().await?.repaired;
        run.powered(pool.repaired()).await?;
        if run.plan.trouble == Trouble::Full && first > 0 {
            return Err(Stop::Failed(format!("a scrub made {first} pieces that nobody said were owed")));
        }
        let rebuilt = scrub().await?.repaired;
        if rebuilt > 0 {
            return Err(Stop::Failed(format!("a second scrub repaired {rebuilt} pieces more")));
        }
        let status = pool.status();
        let is_whole = status.state == PoolState::Online;
        if !is_whole && !run.may_lose_a_label() {
            return Err(Stop::Failed(format!("after the repair the pool is {:?}: {}", status.state, status.status)));
        }
        self.verify(&pool).await?;
        run.powered(pool.close()).await?.map_err(|error| run.unexpected("closing", text(&error)))?;
        drop(pool);
        if is_whole { self.without_some(&status).await } else { Ok(()) }
    }

    /// All disks are well and have room: what is owed is made within a minute (`repair.owed_until_given`).
    async fn given(&self, pool: &Pool) -> Outcome<()> {
        let owed = || pool.status().owed_objects;
        let since = tokio::time::Instant::now();
        while owed() > 0 {
            if since.elapsed() > OWED_MAX {
                return Err(Stop::Failed(format!("{} objects are owed shards for a minute", owed())));
            }
            self.run.powered(tokio::time::sleep(Duration::from_millis(100))).await?;
        }
        Ok(())
    }

    async fn without_some(&self, status: &PoolStatus) -> Outcome<()> {
        let run = &self.run;
        let gone = run.take_some_away(status);
        let opened = run.open(u32::MAX).await?;
        let pool = opened.map_err(|error| run.unexpected(&format!("opening without disks {gone:?}"), text(&error)))?;
        self.verify(&pool).await
    }

    // ---- judging ----------------------------------------------------------------------------

    /// Everything is as the model says; what was uncertain is certain now.
    pub async fn verify(&self, pool: &Pool) -> Outcome<()> {
        self.verify_objects(pool).await?;
        self.verify_contended(pool).await?;
        self.verify_streams(pool).await
    }

    async fn verify_objects(&self, pool: &Pool) -> Outcome<()> {
        let run = &self.run;
        let store = pool.store();
        let listed: Vec<String> = run
            .powered(store.list(None).map_ok(|meta| meta.location.to_string()).try_collect())
            .await?
            .map_err(|error: Error| run.unexpected("listing", text(&error)))?;
        let (mut paths, contended): (Vec<String>, Vec<String>) = {
            let model = self.model.lock();
            (model.known.keys().cloned().collect(), model.contended.keys().cloned().collect())
        };
        if let Some(unknown) = listed.iter().find(|path| !paths.contains(path) && !contended.contains(path)) {
            return Err(Stop::Failed(format!("object {unknown} was never put")));
        }
        paths.shuffle(&mut *run.random.lock());
        for path in paths {
            let judged = match run.powered(read(&*store, &path)).await? {
                Ok(found) => {
                    let mut model = self.model.lock();
                    let known = model.known.get_mut(&path);
                    known.map_or(Ok(()), |known| known.settle(found.as_deref())).map_err(Stop::Failed)
                }
                Err(_) if run.may_not_read() => continue,
                Err(error) => Err(run.unexpected("reading it", text(&error))),
            };
            let was_deleted = self.model.lock().known.get(&path).is_some_and(|known| known.may_be.contains(&None));
            match judged {
                Err(Stop::Failed(_)) if self.may_be_back(was_deleted) => {
                    self.delete_again(&*store, &path).await?;
                    self.model.lock().known.entry(path).and_modify(|known| known.is(None));
                }
                Err(Stop::Failed(why)) => return Err(Stop::Failed(format!("object {path}: {why}"))),
                other => other?,
            }
        }
        Ok(())
    }

    async fn verify_contended(&self, pool: &Pool) -> Outcome<()> {
        let run = &self.run;
        let store = pool.store();
        let paths: Vec<String> = self.model.lock().contended.keys().cloned().collect();
        for path in paths {
            let found = run.powered(read(&*store, &path)).await?;
            let (judged, was_deleted) = {
                let mut model = self.model.lock();
                let object = model.contended.entry(path.clone()).or_default();
                object.died();
                let was_deleted = object.possible().contains(&None);
                let judged = match found {
                    Ok(found) => object.settle(found.as_deref()).map_err(Stop::Failed),
                    Err(_) if run.may_not_read() => continue,
                    Err(error) => Err(run.unexpected("reading it", text(&error))),
                };
                (judged, was_deleted)
            };
            match judged {
                Err(Stop::Failed(_)) if self.may_be_back(was_deleted) => {
                    self.delete_again(&*store, &path).await?;
                    self.model.lock().contended.entry(path).or_default().settle_as(None);
                }
                Err(Stop::Failed(why)) => return Err(Stop::Failed(format!("object {path}: {why}"))),
                other => other?,
            }
        }
        Ok(())
    }

    /// A disk that lies about flushes, or an older state of one, can bring back what was deleted, whole or in parts: see
    /// docs/simulator.md.
    fn may_be_back(&self, was_deleted: bool) -> bool {
        matches!(self.run.plan.trouble, Trouble::Liar | Trouble::Journal) && was_deleted
    }

    async fn delete_again(&self, store: &dyn ObjectStore, path: &str) -> Outcome<()> {
        let deleted = self.run.powered(store.delete(&Path::from(path))).await?;
        deleted.map_err(|error| self.run.unexpected("deleting once more", text(&error)))
    }

    async fn verify_streams(&self, pool: &Pool) -> Outcome<()> {
        let run = &self.run;
        let log = pool.log();
        let numbers: Vec<u64> = self.model.lock().streams.keys().copied().collect();
        for number in numbers {
            let entries = match run.powered(log.replay(&stream_name(number), 0)).await? {
                Ok(entries) => entries,
                Err(_) if run.may_not_read() => continue,
                Err(error) => return Err(run.unexpected("replaying a stream", text(&error))),
            };
            let entries: Vec<(u64, Vec<u8>)> = entries.into_iter().map(|e| (e.id, e.payload.to_vec())).collect();
            let mut model = self.model.lock();
            let Some(stream) = model.streams.get_mut(&number) else { continue };
            stream.settle(number, &entries).map_err(|why| Stop::Failed(format!("stream {number}: {why}")))?;
        }
        Ok(())
    }
}

/// The bytes of an object; `None` where there is none.
async fn read(store: &dyn ObjectStore, path: &str) -> Result<Option<Vec<u8>>, Error> {
    match store.get(&Path::from(path)).await {
        Ok(got) => Ok(Some(got.bytes().await?.to_vec())),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn stream_name(number: u64) -> String {
    format!("client-{number}")
}

/// The administrator's commands meanwhile.
async fn administer(run: Arc<Run>, pool: Arc<Pool>) {
    for _ in 0..run.plan.operations / 8 {
        run.pause().await;
        if run.plan.new_disks.is_some() && run.one_in(2) {
            changes::change(&run, &pool).await;
            continue;
        }
        let result = match run.draw(|random| random.random_range(0..5)) {
            0 => pool.scrub().await.map(|_| ()),
            1 => pool.reconnect().await.map(|_| ()),
            2 => pool.clear().await,
            3 => pool.check().await,
            _ => {
                let status = pool.status();
                if status.objects > 1000 {
                    run.fail("objects out of nothing".to_owned())
                }
                Ok(())
            }
        };
        if let Err(error) = result
            && !run.may_refuse()
        {
            run.fail(format!("an administrator's command: {}", text(&error)));
        }
    }
}

impl Client {
    async fn work(self) {
        for _ in 0..self.run.plan.operations {
            let done = match self.run.draw(|random| random.random_range(0..20)) {
                // An append, which the kill is to strike.
                _ if self.run.world.kills_at_commit() && self.run.one_in(2) => self.append().await,
                _ if self.run.plan.contends && self.run.one_in(3) => self.contend().await,
                0..7 => self.put().await,
                7..10 => self.delete().await,
                10..14 => self.get().await,
                14 => self.copy().await,
                15 => self.trim().await,
                _ => self.append().await,
            };
            if let Err(stop) = done {
                if let Stop::Failed(why) = stop {
                    self.run.fail(why);
                }
                return;
            }
            self.run.answer();
            self.run.pause().await;
        }
    }

    fn path(&self) -> String {
        let number = self.run.draw(|random| random.random_range(0..PATHS));
        // One of them too long for the name of a file.
        let tail = if number == 0 { "/long-name".repeat(26) } else { String::new() };
        format!("c{}/o{number}{tail}", self.number)
    }

    fn known<T>(&self, path: &str, look: impl FnOnce(&mut Known) -> T) -> T {
        let mut model = self.model.lock();
        look(model.known.entry(path.to_owned()).or_insert_with(|| Known { may_be: vec![None] }))
    }

    fn content(&self) -> Content {
        let mut next = self.content_next.lock();
        *next += 1;
        Content { number: *next, length: self.run.draw(size) }
    }

    /// Judges an error: allowed, or what is wrong.
    fn refused(&self, what: &str, error: &Error) -> Outcome<()> {
        self.run.check_power()?;
        if self.run.may_refuse() {
            return Ok(());
        }
        Err(Stop::Failed(format!("{what}: {}", text(error))))
    }

    async fn put(&self) -> Outcome<()> {
        let (path, content) = (self.path(), self.content());
        let certain = self.known(&path, |known| known.certain());
        let creates = self.run.one_in(4);
        self.run.world.note(|| format!("client{} puts {path}: {content:?}, create {creates}", self.number));
        self.known(&path, |known| known.begin(Some(content)));
        let mode = if creates { PutMode::Create } else { PutMode::Overwrite };
        let result = if content.length > 200_000 && !creates && self.run.one_in(2) {
            self.upload(&path, content).await
        } else {
            let payload = PutPayload::from(content.bytes());
            self.store.put_opts(&Path::from(path.as_str()), payload, mode.into()).await.map(|_| ())
        };
        self.run.check_power()?;
        self.run.world.note(|| format!("client{} put {path}: {:?}", self.number, result.is_ok()));
        match (result, certain) {
            (Ok(()), Some(Some(_))) if creates => Err(Stop::Failed(format!("{path} was created over what was there"))),
            (Ok(()), _) => {
                self.known(&path, |known| known.is(Some(content)));
                self.is_whole(&path)
            }
            (Err(Error::AlreadyExists { .. }), Some(None)) => {
                Err(Stop::Failed(format!("{path} exists, though it was deleted or never put")))
            }
            (Err(Error::AlreadyExists { .. }), _) if creates => {
                self.known(&path, |known| known.may_be.retain(|state| *state != Some(content)));
                Ok(())
            }
            (Err(error), _) => self.refused(&format!("putting {path}"), &error),
        }
    }

    /// A disk that is merely full costs no object its redundancy (`room.full_is_not_dead`).
    fn is_whole(&self, path: &str) -> Outcome<()> {
        let is_owed = self.run.plan.trouble == Trouble::Full && self.pool.upgrade().is_some_and(|p| p.is_owed(path));
        if is_owed {
            Err(Stop::Failed(format!("{path} was acknowledged with less redundancy than it has room for")))
        } else {
            Ok(())
        }
    }

    async fn upload(&self, path: &str, content: Content) -> Result<(), Error> {
        let mut upload = self.store.put_multipart(&Path::from(path)).await?;
        let bytes = content.bytes();
        let part = bytes.len().div_ceil(3).max(1);
        for part in bytes.chunks(part) {
            upload.put_part(PutPayload::from(part.to_vec())).await?;
        }
        upload.complete().await.map(|_| ())
    }

    async fn delete(&self) -> Outcome<()> {
        let path = self.path();
        self.run.world.note(|| format!("client{} deletes {path}", self.number));
        self.known(&path, |known| known.begin(None));
        let result = self.store.delete(&Path::from(path.as_str())).await;
        self.run.check_power()?;
        self.run.world.note(|| format!("client{} deleted {path}: {:?}", self.number, result.is_ok()));
        match result {
            Ok(()) | Err(Error::NotFound { .. }) => {
                self.known(&path, |known| known.is(None));
                Ok(())
            }
            Err(error) => self.refused(&format!("deleting {path}"), &error),
        }
    }

    async fn get(&self) -> Outcome<()> {
        let path = self.path();
        let certain = self.known(&path, |known| known.certain());
        let result = match certain {
            Some(Some(content)) if self.run.one_in(2) && content.length > 0 => {
                return self.get_range(&path, content).await;
            }
            _ => read(&*self.store, &path).await,
        };
        self.run.check_power()?;
        match (result, certain) {
            (Ok(found), _) => {
                let judged = self.known(&path, |known| known.clone().settle(found.as_deref()));
                judged.map_err(|why| Stop::Failed(format!("reading {path}: {why}")))
            }
            (Err(error), _) => self.refused(&format!("reading {path}"), &error),
        }
    }

    async fn get_range(&self, path: &str, content: Content) -> Outcome<()> {
        let (start, end) = self.run.draw(|random| {
            let (a, b) = (random.random_range(0..content.length), random.random_range(0..content.length));
            (a.min(b), a.max(b) + 1)
        });
        let result = self.store.get_range(&Path::from(path), start as u64..end as u64).await;
        self.run.check_power()?;
        match result {
            Ok(bytes) if bytes == content.bytes()[start..end] => Ok(()),
            Ok(_) => Err(Stop::Failed(format!("bytes {start} to {end} of {path} are wrong"))),
            Err(error) => self.refused(&format!("reading {path}"), &error),
        }
    }

    async fn copy(&self) -> Outcome<()> {
        let (from, to) = (self.path(), self.path());
        let Some(Some(content)) = self.known(&from, |known| known.certain()) else { return Ok(()) };
        if from == to {
            return Ok(());
        }
        self.run.world.note(|| format!("client{} copies {from} to {to}", self.number));
        self.known(&to, |known| known.begin(Some(content)));
        let result = self.store.copy(&Path::from(from.as_str()), &Path::from(to.as_str())).await;
        self.run.check_power()?;
        match result {
            Ok(()) => {
                self.known(&to, |known| known.is(Some(content)));
                Ok(())
            }
            Err(error) => self.refused(&format!("copying {from} to {to}"), &error),
        }
    }

    // ---- what others store, too -------------------------------------------------------------

    async fn contend(&self) -> Outcome<()> {
        let path = format!("all/o{}", self.run.draw(|random| random.random_range(0..CONTENDED)));
        match self.run.draw(|random| random.random_range(0..10)) {
            0..5 => self.put_contended(&path).await,
            5 => self.delete_contended(&path).await,
            _ => self.get_contended(&path).await,
        }
    }

    fn contended<T>(&self, path: &str, look: impl FnOnce(&mut Contended) -> T) -> T {
        look(self.model.lock().contended.entry(path.to_owned()).or_default())
    }

    async fn put_contended(&self, path: &str) -> Outcome<()> {
        let content = self.content();
        let (creates, uploads) = (self.run.one_in(5), self.run.one_in(2));
        self.run.world.note(|| format!("client{} puts {path}: {content:?}, create {creates}", self.number));
        let under = self.contended(path, |object| object.begin_write(Some(content)));
        let result = if uploads && !creates {
            self.upload(path, content).await
        } else {
            let mode = if creates { PutMode::Create } else { PutMode::Overwrite };
            self.store.put_opts(&Path::from(path), PutPayload::from(content.bytes()), mode.into()).await.map(|_| ())
        };
        self.run.check_power()?;
        self.run.world.note(|| format!("client{} put {path}: {:?}", self.number, result.is_ok()));
        let since = self.contended(path, |object| object.since(&under));
        match result {
            Ok(()) if creates && !since.contains(&None) => {
                Err(Stop::Failed(format!("{path} was created over what was there")))
            }
            Err(Error::AlreadyExists { .. }) if creates && since.iter().any(Option::is_some) => {
                self.contended(path, |object| object.never(&under));
                Ok(())
            }
            // Quicker writers overtook it as often as an upload bears: it is refused whole, and says so.
            Err(Error::Precondition { .. }) if uploads && !creates && since.len() > UPLOAD_ROUNDS => {
                self.contended(path, |object| object.never(&under));
                Ok(())
            }
            result => {
                self.contended(path, |object| object.end_write(&under, result.is_ok()));
                match result {
                    Ok(()) => self.is_whole(path),
                    Err(error) => self.refused(&format!("putting {path}"), &error),
                }
            }
        }
    }

    async fn delete_contended(&self, path: &str) -> Outcome<()> {
        self.run.world.note(|| format!("client{} deletes {path}", self.number));
        let under = self.contended(path, |object| object.begin_write(None));
        let result = self.store.delete(&Path::from(path)).await;
        self.run.check_power()?;
        self.run.world.note(|| format!("client{} deleted {path}: {:?}", self.number, result.is_ok()));
        let result = if matches!(result, Err(Error::NotFound { .. })) { Ok(()) } else { result };
        self.contended(path, |object| object.end_write(&under, result.is_ok()));
        result.or_else(|error| self.refused(&format!("deleting {path}"), &error))
    }

    async fn get_contended(&self, path: &str) -> Outcome<()> {
        let under = self.contended(path, Contended::begin_read);
        let result = read(&*self.store, path).await;
        self.run.check_power()?;
        match result {
            Ok(found) => {
                let judged = self.contended(path, |object| object.judge(&under, found.as_deref()));
                judged.map_err(|why| Stop::Failed(format!("reading {path}: {why}")))
            }
            Err(error) => self.refused(&format!("reading {path}"), &error),
        }
    }

    // ---- the log ----------------------------------------------------------------------------

    async fn append(&self) -> Outcome<()> {
        let (used, total) = self.log.usage();
        if used * 100 > total * LOG_USED_MAX_PERCENT {
            self.trim().await?;
        }
        let id = {
            let mut model = self.model.lock();
            let stream = model.streams.entry(self.number).or_default();
            stream.started = stream.started.max(stream.acknowledged) + 1;
            stream.started
        };
        let payload = Stream::content(self.number, id).bytes();
        self.run.world.note(|| format!("client{} appends entry {id}", self.number));
        let result = self.log.append(&stream_name(self.number), id, vec![payload.into()]).await;
        self.run.check_power()?;
        self.run.world.note(|| format!("client{} appended entry {id}: {:?}", self.number, result.is_ok()));
        match result {
            Ok(()) => {
                if let Some(stream) = self.model.lock().streams.get_mut(&self.number) {
                    stream.acknowledged = id;
                }
                Ok(())
            }
            Err(error) if self.run.may_refuse() || matches!(error, LogError::Full(_)) => self.lift_poison().await,
            Err(error) => Err(Stop::Failed(format!("appending entry {id} of stream {}: {error}", self.number))),
        }
    }

    /// After an error a stream is read again before it takes more, which goes on behind what is found.
    async fn lift_poison(&self) -> Outcome<()> {
        let replayed = self.log.replay(&stream_name(self.number), 0).await;
        self.run.check_power()?;
        let Ok(entries) = replayed else { return Ok(()) };
        let mut model = self.model.lock();
        if let Some(stream) = model.streams.get_mut(&self.number) {
            let last = entries.last().map_or(stream.trimmed, |entry| entry.id);
            if last < stream.acknowledged {
                return Err(Stop::Failed(format!("stream {}: entry {} is gone", self.number, stream.acknowledged)));
            }
            stream.started = last;
        }
        Ok(())
    }

    async fn trim(&self) -> Outcome<()> {
        let through = {
            let mut model = self.model.lock();
            let stream = model.streams.entry(self.number).or_default();
            let through = self.run.draw(|random| random.random_range(stream.trimmed..=stream.acknowledged));
            stream.trimmed = through;
            through
        };
        let result = self.log.trim(&stream_name(self.number), through).await;
        self.run.check_power()?;
        result.map_err(|error| Stop::Failed(format!("trimming: {error}")))
    }
}

/// Mostly small; now and then several stripes.
fn size(random: &mut StdRng) -> usize {
    match random.random_range(0..40) {
        0 => 0,
        1..20 => random.random_range(1..5_000),
        20..34 => random.random_range(5_000..140_000),
        34..39 => random.random_range(140_000..600_000),
        _ => random.random_range(600_000..3_000_000),
    }
}
