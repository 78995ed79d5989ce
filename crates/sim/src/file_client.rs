//! A client of a volume: random operations, and what the model makes of their answers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_volume::{
    AllocateMode, Attr, CreateMode, Cred, FileId, FsError, Ino, NameMatch, OpenFile, RenameMode, SetAttr, Stability,
    Volume, XattrMode,
};
use parking_lot::Mutex;
use rand::Rng;

use crate::objects::Content;
use crate::session::{Outcome, Run, Stop};
use crate::tree_model::{Body, TOP, Tree, read_all};

/// A file grows to about this.
const FILE_BYTES_MAX: usize = 300_000;
const NAMES: [&str; 7] = ["a", "b", "B", "c", "d", "\u{e9}", "e"];
const XATTRS: [&str; 3] = ["user.one", "user.two", "user.three"];

/// What a client knows.
pub struct Model {
    pub tree: Tree,
    /// How things are if the operation under way happens.
    pub after: Option<Tree>,
    /// Inodes that had no name any more when they were let go, or when the power went.
    pub unlinked: Vec<FileId>,
}

impl Default for Model {
    fn default() -> Self {
        Self::new(Tree::new(None))
    }
}

impl Model {
    pub fn new(tree: Tree) -> Self {
        Self { tree, after: None, unlinked: Vec::new() }
    }
}

pub struct Client {
    run: Arc<Run>,
    model: Arc<Mutex<Model>>,
    volume: Volume,
    number: usize,
    cred: Cred,
    /// A file that is open, and perhaps without a name.
    open: Mutex<Option<(u64, OpenFile)>>,
    content_next: Mutex<u64>,
}

type Fs<T> = Result<T, FsError>;

impl Client {
    pub fn new(run: Arc<Run>, model: Arc<Mutex<Model>>, volume: Volume, number: usize) -> Self {
        let content_next = Mutex::new(run.draw(|random| random.random()));
        Self { run, model, volume, number, cred: Cred::root(), open: Mutex::default(), content_next }
    }

    pub async fn work(self) {
        for _ in 0..self.run.plan.operations {
            if let Err(stop) = self.operate().await {
                if let Stop::Failed(why) = stop {
                    self.run.fail(format!("client {}: {why}", self.number));
                }
                return;
            }
            *self.run.answered.lock() += 1;
            self.run.pause().await;
        }
        // Idle clients let the flusher catch up, sometimes.
        if self.run.one_in(2) {
            tokio::time::sleep(Duration::from_secs(8)).await;
        }
    }

    async fn operate(&self) -> Outcome<()> {
        match self.run.draw(|random| random.random_range(0..40)) {
            0..5 => self.create().await,
            5..12 => self.write().await,
            12..14 => self.append().await,
            14..17 => self.truncate().await,
            17..20 => self.commit().await,
            20..23 => self.read().await,
            23 => self.zero().await,
            24 | 25 => self.mkdir().await,
            26 => self.rmdir().await,
            27..30 => self.unlink().await,
            30 => self.link().await,
            31..34 => self.rename().await,
            34 => self.symlink().await,
            35 => self.chmod().await,
            36 => self.xattr().await,
            37 => self.sync().await,
            38 => self.open_or_close().await,
            _ => self.look().await,
        }
    }

    // ---- choosing ---------------------------------------------------------------------------

    fn choose<T: Copy>(&self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| self.run.draw(|random| from[random.random_range(0..from.len())]))
    }

    fn directory(&self) -> (u64, Ino) {
        let model = self.model.lock();
        let directories = model.tree.directories();
        let number = self.choose(&directories).unwrap_or(TOP);
        (number, model.tree.ino(number).unwrap_or(Ino::ROOT))
    }

    fn name(&self) -> &'static str {
        self.choose(&NAMES).unwrap_or("a")
    }

    fn file(&self) -> Option<(u64, Ino)> {
        let model = self.model.lock();
        let number = self.choose(&model.tree.files())?;
        Some((number, model.tree.ino(number)?))
    }

    fn content(&self, length: usize) -> Vec<u8> {
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

    /// An operation on names: `expected` is the error that it must give, `change` what it does to the tree otherwise.
    async fn names<T>(
        &self,
        what: String,
        expected: Option<FsError>,
        change: impl FnOnce(&mut Tree),
        operation: impl Future<Output = Fs<T>>,
    ) -> Outcome<Option<T>> {
        self.run.world.note(|| format!("client{} {what}", self.number));
        if expected.is_none() {
            let mut model = self.model.lock();
            let mut after = model.tree.clone();
            change(&mut after);
            model.after = Some(after);
        }
        let result = operation.await;
        self.run.check_power()?;
        self.run.world.note(|| format!("client{} {what}: {:?}", self.number, result.as_ref().err()));
        match (result, expected) {
            (Ok(value), None) => {
                let mut model = self.model.lock();
                if let Some(after) = model.after.take() {
                    model.tree = after;
                }
                Ok(Some(value))
            }
            (Err(error), Some(expected)) if error.to_string() == expected.to_string() => Ok(None),
            (Err(error), expected) => self.refused(&what, &error, expected.is_some()).map(|()| None),
            (Ok(_), Some(expected)) => Err(Stop::Failed(format!("{what} worked, it should say: {expected}"))),
        }
    }

    /// An error that was not foreseen. Where it may be, this client stops: what it changed is uncertain until the next opening.
    fn refused(&self, what: &str, error: &FsError, is_known: bool) -> Outcome<()> {
        self.run.check_power()?;
        if !self.run.may_refuse() {
            return Err(Stop::Failed(format!("{what}: {error}")));
        }
        if matches!(error, FsError::NoSpace(_) | FsError::Quota) || is_known {
            // Refused whole.
            self.model.lock().after = None;
            return Ok(());
        }
        Err(Stop::Cut)
    }

    /// As `names`, for the bytes of a file, of which the model knows already what may be.
    async fn bytes<T>(&self, what: String, operation: impl Future<Output = Fs<T>>) -> Outcome<Option<T>> {
        self.run.world.note(|| format!("client{} {what}", self.number));
        let result = operation.await;
        self.run.check_power()?;
        self.run.world.note(|| format!("client{} {what}: {:?}", self.number, result.as_ref().err()));
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) => self.refused(&what, &error, false).map(|()| None),
        }
    }

    fn with_file<T>(&self, number: u64, change: impl FnOnce(&mut crate::file_model::FileModel) -> T) -> Option<T> {
        self.model.lock().tree.file(number).map(change)
    }

    fn learn(&self, directory: u64, name: &str, attr: &Attr) {
        let mut model = self.model.lock();
        let number = model.tree.get(directory, name);
        if let Some(node) = number.and_then(|number| model.tree.nodes.get_mut(&number)) {
            node.id = Some(attr.id);
        }
    }

    fn exists(&self, directory: u64, name: &str) -> Option<u64> {
        self.model.lock().tree.get(directory, name)
    }

    fn is_directory(&self, number: u64) -> bool {
        self.model.lock().tree.names(number).is_some()
    }

    fn is_empty(&self, number: u64) -> bool {
        self.model.lock().tree.names(number).is_none_or(|names| names.is_empty())
    }

    // ---- names ------------------------------------------------------------------------------

    async fn create(&self) -> Outcome<()> {
        let ((directory, ino), name) = (self.directory(), self.name());
        let expected = self.exists(directory, name).map(|_| FsError::Exists);
        let set = SetAttr { mode: Some(0o640), ..SetAttr::default() };
        let change = |tree: &mut Tree| {
            tree.add(directory, name, Body::File(Default::default()), 0o640);
        };
        let operation = self.volume.create(&self.cred, ino, name.as_bytes(), CreateMode::Guarded, set);
        let made = self.names(format!("create {directory}/{name}"), expected, change, operation).await?;
        made.iter().for_each(|(attr, _, _)| self.learn(directory, name, attr));
        Ok(())
    }

    async fn mkdir(&self) -> Outcome<()> {
        let ((directory, ino), name) = (self.directory(), self.name());
        let expected = self.exists(directory, name).map(|_| FsError::Exists);
        let set = SetAttr { mode: Some(0o755), ..SetAttr::default() };
        let change = |tree: &mut Tree| {
            tree.add(directory, name, Body::Directory(Default::default()), 0o755);
        };
        let operation = self.volume.mkdir(&self.cred, ino, name.as_bytes(), set);
        let made = self.names(format!("mkdir {directory}/{name}"), expected, change, operation).await?;
        made.iter().for_each(|(attr, _)| self.learn(directory, name, attr));
        Ok(())
    }

    async fn symlink(&self) -> Outcome<()> {
        let ((directory, ino), name, target) = (self.directory(), self.name(), self.name());
        let expected = self.exists(directory, name).map(|_| FsError::Exists);
        let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        let change = |tree: &mut Tree| {
            tree.add(directory, name, Body::Symlink(target.to_owned()), 0o777);
        };
        let operation = self.volume.symlink(&self.cred, ino, name.as_bytes(), target.as_bytes(), set);
        let made = self.names(format!("symlink {directory}/{name}"), expected, change, operation).await?;
        made.iter().for_each(|(attr, _)| self.learn(directory, name, attr));
        Ok(())
    }

    async fn rmdir(&self) -> Outcome<()> {
        let ((directory, ino), name) = (self.directory(), self.name());
        let expected = match self.exists(directory, name) {
            None => Some(FsError::NotFound),
            Some(target) if !self.is_directory(target) => Some(FsError::NotDirectory),
            Some(target) if !self.is_empty(target) => Some(FsError::NotEmpty),
            Some(_) => None,
        };
        let change = |tree: &mut Tree| tree.unlink(directory, name, None);
        let operation = self.volume.rmdir(&self.cred, ino, name.as_bytes());
        self.names(format!("rmdir {directory}/{name}"), expected, change, operation).await.map(drop)
    }

    async fn unlink(&self) -> Outcome<()> {
        let ((directory, ino), name) = (self.directory(), self.name());
        let target = self.exists(directory, name);
        let expected = match target {
            None => Some(FsError::NotFound),
            Some(target) if self.is_directory(target) => Some(FsError::IsDirectory),
            Some(_) => None,
        };
        let kept = self.kept();
        let id = target.and_then(|number| self.model.lock().tree.nodes.get(&number)?.id);
        let change = |tree: &mut Tree| tree.unlink(directory, name, kept);
        let operation = self.volume.unlink(&self.cred, ino, name.as_bytes());
        let done = self.names(format!("unlink {directory}/{name}"), expected, change, operation).await?;
        let mut model = self.model.lock();
        if done.is_some() && target.is_some_and(|number| model.tree.links(number) == 0) {
            // A file without a name must not come back.
            model.unlinked.extend(id);
        }
        Ok(())
    }

    async fn link(&self) -> Outcome<()> {
        let Some((number, source)) = self.file() else { return Ok(()) };
        if self.model.lock().tree.links(number) == 0 {
            return Ok(());
        }
        let ((directory, ino), name) = (self.directory(), self.name());
        let expected = self.exists(directory, name).map(|_| FsError::Exists);
        let change = |tree: &mut Tree| tree.link(directory, name, number);
        let operation = self.volume.link(&self.cred, source, ino, name.as_bytes());
        self.names(format!("link {number} {directory}/{name}"), expected, change, operation).await.map(drop)
    }

    async fn rename(&self) -> Outcome<()> {
        let ((from, from_ino), from_name) = (self.directory(), self.name());
        let ((to, to_ino), to_name) = (self.directory(), self.name());
        let (source, target) = (self.exists(from, from_name), self.exists(to, to_name));
        let Some(source) = source else {
            let operation = self.volume.rename(
                &self.cred,
                from_ino,
                from_name.as_bytes(),
                to_ino,
                to_name.as_bytes(),
                RenameMode::Replace,
            );
            let what = format!("rename {from}/{from_name} {to}/{to_name}");
            return self.names(what, Some(FsError::NotFound), |_| {}, operation).await.map(drop);
        };
        if self.model.lock().tree.is_within(to, source) {
            return Ok(());
        }
        let expected = match target {
            Some(target) if target == source => None,
            Some(target) => match (self.is_directory(source), self.is_directory(target)) {
                (true, false) => Some(FsError::NotDirectory),
                (false, true) => Some(FsError::IsDirectory),
                (true, true) if !self.is_empty(target) => Some(FsError::NotEmpty),
                _ => None,
            },
            None => None,
        };
        let kept = self.kept();
        let change = |tree: &mut Tree| tree.rename((from, from_name), (to, to_name), kept);
        let operation = self.volume.rename(
            &self.cred,
            from_ino,
            from_name.as_bytes(),
            to_ino,
            to_name.as_bytes(),
            RenameMode::Replace,
        );
        let what = format!("rename {from}/{from_name} {to}/{to_name}");
        self.names(what, expected, change, operation).await.map(drop)
    }

    async fn chmod(&self) -> Outcome<()> {
        let Some((number, ino)) = self.file() else { return Ok(()) };
        let mode = self.run.draw(|random| random.random_range(0..0o1000));
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        let change = |tree: &mut Tree| tree.nodes.get_mut(&number).into_iter().for_each(|node| node.mode = mode);
        let operation = self.volume.setattr(&self.cred, ino, set);
        self.names(format!("chmod {number} {mode:o}"), None, change, operation).await.map(drop)
    }

    async fn xattr(&self) -> Outcome<()> {
        let Some((number, ino)) = self.file() else { return Ok(()) };
        let name = self.choose(&XATTRS).unwrap_or("user.one");
        let has = self.model.lock().tree.nodes.get(&number).is_some_and(|node| node.xattrs.contains_key(name));
        if has && self.run.one_in(2) {
            let change = |tree: &mut Tree| {
                tree.nodes.get_mut(&number).into_iter().for_each(|node| drop(node.xattrs.remove(name)));
            };
            let operation = self.volume.removexattr(&self.cred, ino, name.as_bytes());
            return self.names(format!("removexattr {number} {name}"), None, change, operation).await.map(drop);
        }
        let value = self.content(self.run.draw(|random| random.random_range(0..500)));
        let change = |tree: &mut Tree| {
            tree.nodes.get_mut(&number).into_iter().for_each(|n| drop(n.xattrs.insert(name.to_owned(), value.clone())));
        };
        let operation = self.volume.setxattr(&self.cred, ino, name.as_bytes(), &value, XattrMode::Set);
        self.names(format!("setxattr {number} {name}"), None, change, operation).await.map(drop)
    }

    // ---- bytes ------------------------------------------------------------------------------

    async fn write(&self) -> Outcome<()> {
        let Some((number, ino)) = self.file() else { return Ok(()) };
        let (offset, length, stability) = self.run.draw(|random| {
            let length = if random.random_range(0..4) == 0 { 100_000 } else { 9_000 };
            let stability = [Stability::Unstable, Stability::Unstable, Stability::DataSync, Stability::FileSync];
            (
                random.random_range(0..FILE_BYTES_MAX) / [1, 4096][random.random_range(0..2)],
                random.random_range(1..length),
                stability[random.random_range(0..stability.len())],
            )
        });
        let content = self.content(length);
        self.with_file(number, |file| file.begin_write(offset, &content));
        let data = vec![Bytes::from(content.clone())];
        let what = format!("write {number} {offset}+{length} {stability:?}");
        let written = self.bytes(what, self.volume.write(&self.cred, ino, offset as u64, data, stability)).await?;
        if let Some(written) = written {
            let is_stable = written.stability >= Stability::DataSync;
            self.with_file(number, |file| file.wrote(offset, &content, is_stable));
        }
        Ok(())
    }

    async fn append(&self) -> Outcome<()> {
        let Some((number, ino)) = self.file() else { return Ok(()) };
        let content = self.content(self.run.draw(|random| random.random_range(1..5_000)));
        let Some(end) = self.with_file(number, |file| file.bytes().len()) else { return Ok(()) };
        self.with_file(number, |file| file.begin_write(end, &content));
        let data = vec![Bytes::from(content.clone())];
        let what = format!("append {number} {end}+{}", content.len());
        let appended = self.bytes(what, self.volume.append(&self.cred, ino, data, Stability::Unstable)).await?;
        match appended {
            Some((offset, _)) if offset != end as u64 => {
                Err(Stop::Failed(format!("appended to file {number} at {offset}, its end is {end}")))
            }
            Some((_, written)) => {
                let is_stable = written.stability >= Stability::DataSync;
                self.with_file(number, |file| file.wrote(end, &content, is_stable));
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn truncate(&self) -> Outcome<()> {
        let Some((number, ino)) = self.file() else { return Ok(()) };
        let length =
            self.run.draw(|random| random.random_range(0..FILE_BYTES_MAX) / [1, 50][random.random_range(0..2)]);
        self.with_file(number, |file| file.begin_resize(length));
        let set = SetAttr { size: Some(length as u64), ..SetAttr::default() };
        let done = self.bytes(format!("truncate {number} {length}"), self.volume.setattr(&self.cred, ino, set)).await?;
        if done.is_some() {
            self.with_file(number, |file| file.resized(length));
        }
        Ok(())
    }

    async fn zero(&self) -> Outcome<()> {
        let Some((number, ino)) = self.file() else { return Ok(()) };
        let (start, length, mode) = self.run.draw(|random| {
            let modes = [AllocateMode::PunchHole, AllocateMode::Zero];
            (random.random_range(0..FILE_BYTES_MAX), random.random_range(1..100_000), modes[random.random_range(0..2)])
        });
        let grows = mode == AllocateMode::Zero;
        self.with_file(number, |file| file.begin_zero(start..start + length, grows));
        let operation = self.volume.allocate(&self.cred, ino, start as u64, length as u64, mode);
        let done = self.bytes(format!("zero {number} {start}+{length} {mode:?}"), operation).await?;
        if done.is_some() {
            self.with_file(number, |file| file.zeroed(start..start + length, grows));
        }
        Ok(())
    }

    async fn commit(&self) -> Outcome<()> {
        let Some((number, ino)) = self.file() else { return Ok(()) };
        let done = self.bytes(format!("commit {number}"), self.volume.commit(ino)).await?;
        if done.is_some() {
            self.with_file(number, |file| file.committed());
        }
        Ok(())
    }

    async fn sync(&self) -> Outcome<()> {
        let done = self.bytes("sync".to_owned(), self.volume.sync()).await?;
        done.iter().for_each(|()| self.model.lock().tree.committed());
        Ok(())
    }

    async fn read(&self) -> Outcome<()> {
        let Some((number, ino)) = self.file() else { return Ok(()) };
        let Some(found) = self.bytes(format!("read {number}"), read_all(&self.volume, ino)).await? else {
            return Ok(());
        };
        let wrong = self.with_file(number, |file| {
            let expected = file.bytes();
            let at = expected.iter().zip(&found).position(|(a, b)| a != b);
            (expected != found).then_some((expected.len(), at))
        });
        match wrong.flatten() {
            Some((length, at)) if !self.run.may_refuse() => {
                let found = found.len();
                Err(Stop::Failed(format!("file {number} has {found} of {length} bytes, the first wrong one at {at:?}")))
            }
            _ => Ok(()),
        }
    }

    // ---- the rest ---------------------------------------------------------------------------

    async fn open_or_close(&self) -> Outcome<()> {
        let closing = self.open.lock().take();
        if let Some((number, file)) = closing {
            drop(file);
            self.model.lock().tree.forget(Some(number), None);
            return Ok(());
        }
        let Some((number, ino)) = self.file() else { return Ok(()) };
        let opened = self.bytes(format!("open {number}"), self.volume.open(ino)).await?;
        *self.open.lock() = opened.map(|file| (number, file));
        Ok(())
    }

    async fn look(&self) -> Outcome<()> {
        let ((directory, ino), name) = (self.directory(), self.name());
        let known = self.exists(directory, name);
        let expected = known.is_none().then_some(FsError::NotFound);
        let operation = self.volume.lookup(&self.cred, ino, name.as_bytes(), NameMatch::Exact);
        let found = self.names(format!("lookup {directory}/{name}"), expected, |_| {}, operation).await?;
        let id = known.and_then(|number| self.model.lock().tree.nodes.get(&number)?.id);
        match found {
            Some(attr) if id.is_some_and(|id| id != attr.id) => {
                Err(Stop::Failed(format!("{directory}/{name} is {:?}, it should be {id:?}", attr.id)))
            }
            _ => Ok(()),
        }
    }
}
