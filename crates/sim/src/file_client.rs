//! A client of a volume: random operations, and what the model makes of their answers. Its bytes are in `file_bytes.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder_fs::{Attr, CreateMode, Cred, FsError, Ino, NameMatch, RenameMode, SetAttr};
use larder_volume::{OpenFile, Volume};
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;

use crate::front::Front;
use crate::history::Model;
use crate::objects::Content;
use crate::session::{Outcome, Run, Stop};
use crate::snapshots::Shots;
use crate::tree_model::{Body, NAMED_PREFIX, TOP, Tree};
use crate::turns::elapsed;

const NAMES: [&str; 7] = ["a", "b", "B", "c", "d", "\u{e9}", "e"];
const PLACES_TRIED: u32 = 8;
const NAMED: [&str; 2] = ["one", "two"];
const XATTRS: [&str; 3] = ["user.one", "user.two", "user.three"];
/// Age at which dirty data is flushed. A client that waits a little less meets the flush under way.
const FLUSH_AGE_MS: u64 = 3000;

pub struct Client {
    pub(crate) run: Arc<Run>,
    pub(crate) model: Arc<Mutex<Model>>,
    pub(crate) front: Front,
    pub(crate) cred: Cred,
    /// Changes of names and attributes are answered before they are durable.
    pub(crate) is_relaxed: bool,
    pub(crate) shots: Arc<Mutex<Shots>>,
    number: usize,
    /// A file that is open, and perhaps without a name.
    open: Mutex<Option<(u64, OpenFile)>>,
    content_next: Mutex<u64>,
    /// It clones ranges again and again.
    clones: bool,
    /// The one who changes things is done.
    is_done: AtomicBool,
}

pub(crate) type Fs<T> = Result<T, FsError>;

impl Client {
    pub fn new(
        run: Arc<Run>,
        (model, shots): (Arc<Mutex<Model>>, Arc<Mutex<Shots>>),
        front: Front,
        is_relaxed: bool,
        number: usize,
    ) -> Self {
        let content_next = Mutex::new(run.draw(|random| random.random()));
        let clones = run.one_in(3);
        let (open, is_done) = (Mutex::default(), AtomicBool::new(false));
        Self { run, model, front, cred: Cred::root(), is_relaxed, shots, number, open, content_next, clones, is_done }
    }

    /// One changes things, the others commit what there is.
    pub async fn work(self) {
        let committers = (0..self.run.plan.committers).map(|_| self.commit_now_and_then());
        let all = futures::future::join_all(committers);
        tokio::join!(self.change_things(), all);
    }

    async fn change_things(&self) {
        for _ in 0..self.run.plan.operations {
            if self.run.is_shut() || self.ends(self.operate().await) {
                break;
            }
            self.run.answer();
            self.run.pause().await;
            if self.run.one_in(25) {
                let wait_ms = self.run.draw(|random| random.random_range(FLUSH_AGE_MS - 10..FLUSH_AGE_MS + 60));
                tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            }
        }
        self.is_done.store(true, Ordering::Relaxed);
        // Idle clients let the flusher catch up, sometimes.
        if self.run.one_in(2) && !self.run.is_shut() {
            tokio::time::sleep(Duration::from_secs(8)).await;
        }
    }

    async fn commit_now_and_then(&self) {
        for _ in 0..2 * self.run.plan.operations {
            self.run.pause().await;
            if self.is_done.load(Ordering::Relaxed) || self.run.is_shut() {
                return;
            }
            let done = match self.run.draw(|random| random.random_range(0..8)) {
                0..5 => self.commit().await,
                5..7 => self.commit_directory().await,
                _ => self.sync().await,
            };
            if self.ends(done) {
                return;
            }
            self.run.answer();
        }
    }

    /// Whether it was the last operation.
    fn ends(&self, done: Outcome<()>) -> bool {
        match done {
            Ok(()) => false,
            Err(stop) => {
                if let Stop::Failed(why) = stop {
                    self.run.fail(format!("client {}: {why}", self.number));
                }
                true
            }
        }
    }

    /// Of its own at the top of the volume.
    pub(crate) fn directory_name(&self) -> String {
        format!("c{}", self.number)
    }

    async fn operate(&self) -> Outcome<()> {
        if self.run.plan.has_snapshots && self.run.one_in(12) {
            return self.snapshot_or_destroy().await;
        }
        if self.clones && self.run.one_in(4) {
            return self.clone_range().await;
        }
        match self.run.draw(|random| random.random_range(0..56)) {
            0..5 => self.create().await,
            5..12 => self.write().await,
            12..15 => self.append().await,
            15..18 => self.truncate().await,
            18..21 => self.commit().await,
            21..23 => self.read().await,
            23..25 => self.allocate().await,
            25..27 => self.mkdir().await,
            27 | 28 => self.rmdir().await,
            29..32 => self.unlink().await,
            32 | 33 => self.link().await,
            34 => self.relink().await,
            35..39 => self.rename().await,
            39 => self.symlink().await,
            40 => self.mknod().await,
            41 | 42 => self.chmod().await,
            43..46 => self.xattr().await,
            46 => self.sync().await,
            47 | 48 => self.commit_directory().await,
            49 => self.open_or_close().await,
            50 | 51 => self.named().await,
            54 | 55 => self.clone_range().await,
            _ => self.look().await,
        }
    }

    // ---- choosing ---------------------------------------------------------------------------

    pub(crate) fn choose<T: Copy>(&self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| self.run.draw(|random: &mut StdRng| from[random.random_range(0..from.len())]))
    }

    pub(crate) fn directory(&self) -> (u64, Ino) {
        let model = self.model.lock();
        let number = self.choose(&model.tree().directories()).unwrap_or(TOP);
        (number, model.tree().ino(number).unwrap_or(Ino::ROOT))
    }

    fn name(&self) -> &'static str {
        self.choose(&NAMES).unwrap_or("a")
    }

    fn place(&self) -> ((u64, Ino), &'static str) {
        (self.directory(), self.name())
    }

    /// Mostly where there is something of a kind.
    fn likely_place(&self, is_wanted: impl Fn(&Body) -> bool) -> ((u64, Ino), &'static str) {
        for _ in 0..PLACES_TRIED {
            let ((directory, ino), name) = self.place();
            let model = self.model.lock();
            let found = model.tree().get(directory, name).and_then(|number| model.tree().nodes.get(&number));
            if found.is_some_and(|node| is_wanted(&node.body)) {
                return ((directory, ino), name);
            }
        }
        self.place()
    }

    pub(crate) fn file(&self) -> Option<(u64, Ino)> {
        let model = self.model.lock();
        let number = self.choose(&model.tree().files())?;
        Some((number, model.tree().ino(number)?))
    }

    fn file_or_directory(&self) -> Option<(u64, Ino)> {
        if self.run.one_in(4) { Some(self.directory()) } else { self.file() }
    }

    pub(crate) fn content(&self, length: usize) -> Vec<u8> {
        let mut next = self.content_next.lock();
        *next = next.wrapping_add(1);
        let number = *next;
        // Now and then what compresses to next to nothing.
        if number.is_multiple_of(5) {
            vec![(number % 251) as u8 + 1; length]
        } else {
            Content { number, length }.bytes()
        }
    }

    fn kept(&self) -> Option<u64> {
        self.open.lock().as_ref().map(|(number, _)| *number)
    }

    // ---- judging ----------------------------------------------------------------------------

    /// An operation on names: `expected` is the error that it must give, `change` what it does to the tree otherwise, and to
    /// which inodes.
    async fn names<T>(
        &self,
        what: String,
        expected: Option<FsError>,
        (change, touched): (impl FnOnce(&mut Tree), Vec<u64>),
        operation: impl Future<Output = Fs<T>>,
    ) -> Outcome<Option<T>> {
        self.note(|| what.clone());
        if expected.is_none() {
            self.model.lock().begin(change, touched);
        }
        let begun = elapsed();
        let result = operation.await;
        self.run.check_power()?;
        self.note(|| format!("{what}: {:?}", result.as_ref().err()));
        match (result, expected) {
            (Ok(value), None) => {
                self.model.lock().answered(!self.is_relaxed, elapsed());
                self.run.judge_answer(Some(begun));
                self.done_kind(&what);
                Ok(Some(value))
            }
            (Err(error), Some(expected)) if error.to_string() == expected.to_string() => {
                self.run.judge_answer(Some(begun));
                Ok(None)
            }
            (Err(error), expected) => {
                self.refused(&what, &error, expected.is_some())?;
                self.model.lock().refused();
                Ok(None)
            }
            (Ok(_), Some(expected)) => Err(Stop::Failed(format!("{what} worked, it should say: {expected}"))),
        }
    }

    /// The model knows of an answer.
    pub(crate) fn done_kind(&self, what: &str) {
        self.run.done(what.split(' ').next().unwrap_or_default());
    }

    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        self.run.world.note(|| format!("client{} {}", self.number, line()));
    }

    /// An error that was not foreseen. Where it may be, this client stops: what it changed is uncertain until the next opening.
    pub(crate) fn refused(&self, what: &str, error: &FsError, is_known: bool) -> Outcome<()> {
        self.run.check_power()?;
        if !self.run.may_refuse() {
            return Err(Stop::Failed(format!("{what}: {error}")));
        }
        // Refused whole.
        if matches!(error, FsError::NoSpace(_) | FsError::Quota) || is_known { Ok(()) } else { Err(Stop::Cut) }
    }

    fn learn(&self, directory: u64, name: &str, attr: &Attr) {
        let mut model = self.model.lock();
        let number = model.tree().get(directory, name);
        if let Some(node) = number.and_then(|number| model.tree_mut().nodes.get_mut(&number)) {
            node.id = Some(attr.id);
        }
    }

    fn exists(&self, directory: u64, name: &str) -> Option<u64> {
        self.model.lock().tree().get(directory, name)
    }

    fn is_directory(&self, number: u64) -> bool {
        self.model.lock().tree().names(number).is_some()
    }

    fn is_empty(&self, number: u64) -> bool {
        self.model.lock().tree().names(number).is_none_or(|names| names.is_empty())
    }

    // ---- names ------------------------------------------------------------------------------

    /// Something new under a name.
    async fn make(
        &self,
        what: &str,
        (directory, name): (u64, &str),
        (body, mode): (Body, u32),
        operation: impl Future<Output = Fs<Attr>>,
    ) -> Outcome<()> {
        let expected = self.exists(directory, name).map(|_| FsError::Exists);
        let touched = vec![directory, self.model.lock().tree().next()];
        let change = |tree: &mut Tree| {
            tree.add(directory, name, body, mode);
        };
        let made = self.names(format!("{what} {directory}/{name}"), expected, (change, touched), operation).await?;
        made.iter().for_each(|attr| self.learn(directory, name, attr));
        Ok(())
    }

    async fn create(&self) -> Outcome<()> {
        let ((directory, ino), name) = (self.directory(), self.name());
        let set = SetAttr { mode: Some(0o640), ..SetAttr::default() };
        let is_new = self.exists(directory, name).is_none();
        let create = |mode| self.front.create(&self.cred, ino, name.as_bytes(), mode, set);
        let (place, new) = ((directory, name), (Body::File, 0o640));
        match self.run.draw(|random| random.random_range(0..6)) {
            // Sent twice: whichever answer comes first says that it is done.
            0 if is_new => {
                let twice = first(create(CreateMode::Unchecked), create(CreateMode::Unchecked));
                self.make("create twice", place, new, twice).await
            }
            1 if is_new => {
                let mode = CreateMode::Exclusive(self.run.draw(|random| random.random()));
                self.make("create exclusively and twice", place, new, first(create(mode), create(mode))).await
            }
            2 if is_new => {
                let unnamed = self.front.create_unnamed(&self.cred, ino, name.as_bytes(), set);
                self.make("create unnamed and name it", place, new, unnamed).await
            }
            _ => self.make("create", place, new, create(CreateMode::Guarded)).await,
        }
    }

    async fn mkdir(&self) -> Outcome<()> {
        let ((directory, ino), name) = (self.directory(), self.name());
        let set = SetAttr { mode: Some(0o755), ..SetAttr::default() };
        let operation = self.front.mkdir(&self.cred, ino, name.as_bytes(), set);
        self.make("mkdir", (directory, name), (Body::Directory(Default::default()), 0o755), operation).await
    }

    async fn symlink(&self) -> Outcome<()> {
        let ((directory, ino), name, target) = (self.directory(), self.name(), self.name());
        let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        let operation = self.front.symlink(&self.cred, ino, name.as_bytes(), target.as_bytes(), set);
        self.make("symlink", (directory, name), (Body::Symlink(target.to_owned()), 0o777), operation).await
    }

    async fn mknod(&self) -> Outcome<()> {
        let ((directory, ino), name) = (self.directory(), self.name());
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let operation = self.front.mknod(&self.cred, ino, name.as_bytes(), set);
        self.make("mknod", (directory, name), (Body::Special, 0o600), operation).await
    }

    async fn rmdir(&self) -> Outcome<()> {
        let ((directory, ino), name) =
            self.likely_place(|body| matches!(body, Body::Directory(names) if names.is_empty()));
        let target = self.exists(directory, name);
        let expected = match target {
            None => Some(FsError::NotFound),
            Some(target) if !self.is_directory(target) => Some(FsError::NotDirectory),
            Some(target) if !self.is_empty(target) => Some(FsError::NotEmpty),
            Some(_) => None,
        };
        let change = |tree: &mut Tree| tree.unlink(directory, name, None);
        let touched = [directory].into_iter().chain(target).collect();
        let operation = self.front.rmdir(&self.cred, ino, name.as_bytes());
        self.names(format!("rmdir {directory}/{name}"), expected, (change, touched), operation).await.map(drop)
    }

    async fn unlink(&self) -> Outcome<()> {
        let ((directory, ino), name) = self.likely_place(|body| !matches!(body, Body::Directory(_)));
        let target = self.exists(directory, name);
        let expected = match target {
            None => Some(FsError::NotFound),
            Some(target) if self.is_directory(target) => Some(FsError::IsDirectory),
            Some(_) => None,
        };
        let kept = self.kept();
        let change = |tree: &mut Tree| tree.unlink(directory, name, kept);
        let touched = [directory].into_iter().chain(target).collect();
        let operation = self.front.unlink(&self.cred, ino, name.as_bytes());
        self.names(format!("unlink {directory}/{name}"), expected, (change, touched), operation).await.map(drop)
    }

    /// A file that has a name.
    fn named_file(&self) -> Option<(u64, Ino)> {
        self.file().filter(|(number, _)| self.model.lock().tree().links(*number) > 0)
    }

    async fn link(&self) -> Outcome<()> {
        let Some((number, source)) = self.named_file() else { return Ok(()) };
        let ((directory, ino), name) = (self.directory(), self.name());
        let expected = self.exists(directory, name).map(|_| FsError::Exists);
        let change = |tree: &mut Tree| tree.link(directory, name, number);
        let operation = self.front.link(&self.cred, source, ino, name.as_bytes());
        let what = format!("link {number} {directory}/{name}");
        self.names(what, expected, (change, vec![directory, number]), operation).await.map(drop)
    }

    async fn relink(&self) -> Outcome<()> {
        let Some((number, source)) = self.named_file() else { return Ok(()) };
        let ((directory, ino), name) = self.likely_place(|body| !matches!(body, Body::Directory(_)));
        let old = self.exists(directory, name);
        let expected = match old {
            None => Some(FsError::NotFound),
            Some(old) if self.is_directory(old) => Some(FsError::IsDirectory),
            Some(_) => None,
        };
        let kept = self.kept();
        let change = |tree: &mut Tree| tree.relink(directory, name, number, kept);
        let is_same = old == Some(number);
        let touched = if is_same { Vec::new() } else { [directory, number].into_iter().chain(old).collect() };
        let operation = self.front.relink(&self.cred, source, ino, name.as_bytes());
        let what = format!("relink {number} {directory}/{name}");
        self.names(what, expected, (change, touched), operation).await.map(drop)
    }

    async fn rename(&self) -> Outcome<()> {
        let ((from, from_ino), from_name) = self.likely_place(|_| true);
        let ((to, to_ino), to_name) = if self.run.one_in(2) { self.place() } else { self.likely_place(|_| true) };
        let mode = match self.run.draw(|random| random.random_range(0..6)) {
            0 => RenameMode::NoReplace,
            1 | 2 => RenameMode::Exchange,
            _ => RenameMode::Replace,
        };
        let (source, target) = (self.exists(from, from_name), self.exists(to, to_name));
        let is_within = |directory, number| self.model.lock().tree().is_within(directory, number);
        if source.is_some_and(|source| is_within(to, source)) || target.is_some_and(|target| is_within(from, target)) {
            return Ok(());
        }
        let is_same = (from, from_name) == (to, to_name);
        let expected = match (source, target) {
            (None, _) => Some(FsError::NotFound),
            (Some(_), Some(_)) if mode == RenameMode::NoReplace && !is_same => Some(FsError::Exists),
            (Some(_), None) if mode == RenameMode::Exchange => Some(FsError::NotFound),
            (Some(source), Some(target)) if source != target && mode == RenameMode::Replace => {
                match (self.is_directory(source), self.is_directory(target)) {
                    (true, false) => Some(FsError::NotDirectory),
                    (false, true) => Some(FsError::IsDirectory),
                    (true, true) if !self.is_empty(target) => Some(FsError::NotEmpty),
                    _ => None,
                }
            }
            _ => None,
        };
        let kept = self.kept();
        let change = |tree: &mut Tree| match mode {
            RenameMode::Exchange => tree.exchange((from, from_name), (to, to_name)),
            _ => tree.rename((from, from_name), (to, to_name), kept),
        };
        let touched =
            if source == target { Vec::new() } else { [from, to].into_iter().chain(source).chain(target).collect() };
        let (old, new) = ((from_ino, from_name.as_bytes()), (to_ino, to_name.as_bytes()));
        let operation = self.front.rename(&self.cred, old, new, mode);
        let verb = if mode == RenameMode::Exchange { "exchange" } else { "rename" };
        let what = format!("{verb} {from}/{from_name} {to}/{to_name} {mode:?}");
        self.names(what, expected, (change, touched), operation).await.map(drop)
    }

    async fn chmod(&self) -> Outcome<()> {
        let Some((number, ino)) = self.file_or_directory() else { return Ok(()) };
        let mode = self.run.draw(|random| random.random_range(0..0o1000));
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        let change = |tree: &mut Tree| tree.nodes.get_mut(&number).into_iter().for_each(|node| node.mode = mode);
        let operation = self.front.set_attr(&self.cred, ino, set);
        let what = format!("chmod {number} {mode:o}");
        self.names(what, None, (change, vec![number]), operation).await.map(drop)
    }

    async fn xattr(&self) -> Outcome<()> {
        let Some((number, ino)) = self.file_or_directory() else { return Ok(()) };
        let there = || {
            let model = self.model.lock();
            let node = model.tree().nodes.get(&number)?;
            XATTRS.into_iter().find(|name| node.xattrs.contains_key(*name))
        };
        let there = if self.run.one_in(2) { there() } else { None };
        let name = there.or_else(|| self.choose(&XATTRS)).unwrap_or("user.one");
        let has = self.model.lock().tree().nodes.get(&number).is_some_and(|node| node.xattrs.contains_key(name));
        if has && self.run.one_in(2) {
            let change = |tree: &mut Tree| {
                tree.nodes.get_mut(&number).into_iter().for_each(|node| drop(node.xattrs.remove(name)));
            };
            let operation = self.front.remove_xattr(&self.cred, ino, name.as_bytes());
            let what = format!("removexattr {number} {name}");
            return self.names(what, None, (change, vec![number]), operation).await.map(drop);
        }
        let value = self.content(self.run.draw(|random| random.random_range(0..500)));
        let change = |tree: &mut Tree| {
            tree.nodes.get_mut(&number).into_iter().for_each(|n| drop(n.xattrs.insert(name.to_owned(), value.clone())));
        };
        let operation = self.front.set_xattr(&self.cred, ino, name.as_bytes(), &value);
        let what = format!("setxattr {number} {name}");
        self.names(what, None, (change, vec![number]), operation).await.map(drop)
    }

    /// Makes or removes a named attribute: to the model one more attribute, of which it knows the name alone.
    async fn named(&self) -> Outcome<()> {
        let owner = if self.run.one_in(4) { Some(self.directory()) } else { self.named_file() };
        let Some((number, ino)) = owner else { return Ok(()) };
        let name = self.choose(&NAMED).unwrap_or("one");
        let key = format!("{NAMED_PREFIX}{name}");
        let has = self.model.lock().tree().nodes.get(&number).is_some_and(|node| node.xattrs.contains_key(&key));
        // Nobody waits for them by waiting for their owner.
        let touched = Vec::new();
        if has {
            let change = |tree: &mut Tree| {
                tree.nodes.get_mut(&number).into_iter().for_each(|node| drop(node.xattrs.remove(&key)));
            };
            let operation = self.front.remove_named(&self.cred, ino, name.as_bytes());
            return self
                .names(format!("removenamed {number} {name}"), None, (change, touched), operation)
                .await
                .map(drop);
        }
        let change = |tree: &mut Tree| {
            tree.nodes.get_mut(&number).into_iter().for_each(|node| drop(node.xattrs.insert(key.clone(), Vec::new())));
        };
        let operation = self.front.make_named(&self.cred, ino, name.as_bytes());
        self.names(format!("makenamed {number} {name}"), None, (change, touched), operation).await.map(drop)
    }

    // ---- the rest ---------------------------------------------------------------------------

    async fn open_or_close(&self) -> Outcome<()> {
        let closing = self.open.lock().take();
        if let Some((number, file)) = closing {
            drop(file);
            self.model.lock().tree_mut().forget(Some(number), None);
            return Ok(());
        }
        let Some((number, ino)) = self.file() else { return Ok(()) };
        let opened = self.bytes(format!("open {number}"), self.front.open(ino)).await?;
        *self.open.lock() = opened.map(|file| (number, file));
        Ok(())
    }

    async fn look(&self) -> Outcome<()> {
        let ((directory, ino), name) = (self.directory(), self.name());
        let known = self.exists(directory, name);
        let what = format!("lookup {directory}/{name}");
        let found = self.bytes(what.clone(), look_up(self.front.volume(), &self.cred, ino, name)).await?;
        let id = known.and_then(|number| self.model.lock().tree().nodes.get(&number)?.id);
        match found {
            Some(found) if found.is_some() != known.is_some() => {
                Err(Stop::Failed(format!("{what} finds {:?}", found.map(|attr| attr.id))))
            }
            Some(Some(attr)) if id.is_some_and(|id| id != attr.id) => {
                Err(Stop::Failed(format!("{directory}/{name} is {:?}, it should be {id:?}", attr.id)))
            }
            _ => Ok(()),
        }
    }
}

/// `None`: there is nothing.
async fn look_up(volume: &Volume, cred: &Cred, directory: Ino, name: &str) -> Fs<Option<Attr>> {
    match volume.lookup(cred, directory, name.as_bytes(), NameMatch::Exact).await {
        Ok(attr) => Ok(Some(attr)),
        Err(FsError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Two at once, the one begun after the other: the answer that comes first.
pub(crate) async fn first<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        answer = one => answer,
        answer = other => answer,
    }
}
