//! A client's operations on the bytes of files, and its commits.

use bytes::Bytes;
use larder_fs::{AllocateMode, FsError, SetAttr, Stability};
use rand::Rng;

use crate::file_client::{Client, Fs, first};
use crate::file_model::Change;
use crate::history::Promise;
use crate::session::{Outcome, Stop};
use crate::tree_model::read_all;
use crate::turns::elapsed;

/// A file grows to about this.
const FILE_BYTES_MAX: usize = 300_000;
/// One file in three stays as small as fits into its extents.
const TINY_EVERY: u64 = 3;
const TINY_BYTES_MAX: usize = 900;

fn bytes_max(number: u64) -> usize {
    if number.is_multiple_of(TINY_EVERY) { TINY_BYTES_MAX } else { FILE_BYTES_MAX }
}

impl Client {
    /// An operation of which the model knows already what may be.
    pub(crate) async fn bytes<T>(&self, what: String, operation: impl Future<Output = Fs<T>>) -> Outcome<Option<T>> {
        self.note(|| what.clone());
        let begun = elapsed();
        let result = operation.await;
        self.run.check_power()?;
        self.note(|| format!("{what}: {:?}", result.as_ref().err()));
        match result {
            Ok(value) => {
                // With nothing to store, a sync promises nothing new and asks nobody.
                self.run.judge_answer((what != "sync").then_some(begun));
                Ok(Some(value))
            }
            Err(error) => self.refused(&what, &error, false).map(|()| None),
        }
    }

    fn begin(&self, number: u64, change: Change) {
        self.model.lock().file(number).begin(change);
    }

    fn answered(&self, number: u64, is_durable: bool) {
        self.model.lock().file(number).answered(is_durable, elapsed());
        self.run.judge_answer(None);
    }

    fn stability(&self) -> Stability {
        let all = [Stability::Unstable, Stability::Unstable, Stability::DataSync, Stability::FileSync];
        self.choose(&all).unwrap_or(Stability::FileSync)
    }

    pub(crate) async fn write(&self) -> Outcome<()> {
        let Some((number, ino)) = self.file() else { return Ok(()) };
        let bytes_max = bytes_max(number);
        let (offset, length) = self.run.draw(|random| {
            // Now and then more than a commit makes an intent of.
            let length = [9_000, 9_000, 9_000, 9_000, 9_000, 9_000, 100_000, 290_000][random.random_range(0..8)];
            let offset = random.random_range(0..bytes_max) / [1, 4096][random.random_range(0..2)];
            (offset, random.random_range(1..length.min(bytes_max)))
        });
        let stability = self.stability();
        let content = self.content(length);
        self.begin(number, Change::Write(offset, content.as_slice().into()));
        let what = format!("write {number} {offset}+{length} {stability:?}");
        let write = self.front.write(&self.cred, ino, offset as u64, vec![Bytes::from(content)], stability);
        if let Some(written) = self.bytes(what, write).await? {
            self.answered(number, written.stability >= Stability::DataSync);
            self.run.done("write");
        }
        Ok(())
    }

    pub(crate) async fn append(&self) -> Outcome<()> {
        let Some((number, ino)) = self.file() else { return Ok(()) };
        let most = bytes_max(number).min(5_000);
        let content = self.content(self.run.draw(|random| random.random_range(1..most)));
        let stability = self.stability();
        let end = self.model.lock().file(number).bytes().len();
        self.begin(number, Change::Write(end, content.as_slice().into()));
        let what = format!("append {number} {end}+{} {stability:?}", content.len());
        let append = self.front.append(&self.cred, ino, vec![Bytes::from(content.clone())], stability);
        match self.bytes(what, append).await? {
            // A refused write may have made the file longer.
            Some((offset, written)) if offset != end as u64 && self.run.may_refuse() => {
                self.begin(number, Change::Write(offset as usize, content.as_slice().into()));
                self.answered(number, written.stability >= Stability::DataSync);
                Ok(())
            }
            Some((offset, _)) if offset != end as u64 => {
                Err(Stop::Failed(format!("appended to file {number} at {offset}, its end is {end}")))
            }
            Some((_, written)) => {
                self.answered(number, written.stability >= Stability::DataSync);
                self.run.done("append");
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(crate) async fn truncate(&self) -> Outcome<()> {
        let Some((number, ino)) = self.file() else { return Ok(()) };
        let most = bytes_max(number);
        let length = self.run.draw(|random| random.random_range(0..most) / [1, 50][random.random_range(0..2)]);
        self.begin(number, Change::Resize(length));
        let set = SetAttr { size: Some(length as u64), ..SetAttr::default() };
        let truncate = self.front.set_attr(&self.cred, ino, set);
        if self.bytes(format!("truncate {number} {length}"), truncate).await?.is_some() {
            self.answered(number, !self.is_relaxed);
            self.run.done("truncate");
        }
        Ok(())
    }

    pub(crate) async fn allocate(&self) -> Outcome<()> {
        let Some((number, ino)) = self.file() else { return Ok(()) };
        let most = bytes_max(number);
        let (start, length, mode) = self.run.draw(|random| {
            use AllocateMode::{Extend, KeepSize, PunchHole, Zero, ZeroKeepSize};
            let modes = [PunchHole, Zero, ZeroKeepSize, Extend, KeepSize];
            (random.random_range(0..most), random.random_range(1..most.min(100_000)), modes[random.random_range(0..5)])
        });
        let change = match mode {
            AllocateMode::Extend => Change::Grow(start + length),
            AllocateMode::KeepSize => Change::Grow(0),
            _ => Change::Zero(start..start + length, mode == AllocateMode::Zero),
        };
        self.begin(number, change);
        let allocate = self.front.allocate(&self.cred, ino, start as u64, length as u64, mode);
        let done = self.bytes(format!("allocate {number} {start}+{length} {mode:?}"), allocate).await?;
        if done.is_some() {
            self.answered(number, !self.is_relaxed);
            if mode.reserves() && !self.is_relaxed {
                let zeroed = matches!(mode, AllocateMode::Zero | AllocateMode::ZeroKeepSize);
                self.model.lock().file(number).reserved(start..start + length, zeroed);
            }
            self.run.done("allocate");
        }
        Ok(())
    }

    /// A range of a file becomes one of another, or of itself, without a copy.
    pub(crate) async fn clone_range(&self) -> Outcome<()> {
        let (Some((source, source_ino)), Some((target, target_ino))) = (self.file(), self.file()) else {
            return Ok(());
        };
        let bytes = self.model.lock().file(source).bytes().to_vec();
        let most = bytes_max(target);
        if bytes.is_empty() {
            return Ok(());
        }
        let (from, to, length) = self.run.draw(|random| {
            let unit = [1, 1, 4096][random.random_range(0..3)];
            let from = random.random_range(0..bytes.len()) / unit * unit;
            let length =
                if random.random_range(0..3) == 0 { bytes.len() } else { random.random_range(1..=bytes.len()) };
            let to = [0, random.random_range(0..most) / unit * unit][random.random_range(0..2)];
            (from, to, length.min(bytes.len() - from).min(most))
        });
        if !self.model.lock().file(source).is_sure_of(&(from..from + length)) {
            return Ok(());
        }
        let what = format!("clone {source} {from}+{length} {target} {to}");
        let is_overlapping = source == target && from < to + length && to < from + length;
        let clone =
            self.front.clone_range(&self.cred, (source_ino, from as u64), (target_ino, to as u64), length as u64);
        if is_overlapping {
            self.note(|| what.clone());
            let done = clone.await;
            self.run.check_power()?;
            return match done {
                Err(FsError::Invalid(_)) => Ok(()),
                Err(error) => self.refused(&what, &error, false),
                Ok(_) => Err(Stop::Failed(format!("{what} overlaps itself and worked"))),
            };
        }
        self.begin(target, Change::Write(to, bytes[from..from + length].into()));
        self.note(|| what.clone());
        let begun = elapsed();
        let done = clone.await;
        self.run.check_power()?;
        self.note(|| format!("{what}: {:?}", done.as_ref().err()));
        match done {
            Ok(_) => {
                self.run.judge_answer(Some(begun));
                self.answered(target, !self.is_relaxed);
                self.run.done("clone");
                Ok(())
            }
            // Too many extents over data: nothing was changed.
            Err(FsError::FileTooLarge) => Ok(()),
            Err(error) => self.refused(&what, &error, false),
        }
    }

    pub(crate) async fn read(&self) -> Outcome<()> {
        let Some((number, ino)) = self.file() else { return Ok(()) };
        let Some(found) = self.bytes(format!("read {number}"), read_all(self.front.volume(), ino)).await? else {
            return Ok(());
        };
        let mut model = self.model.lock();
        let expected = model.file(number).bytes();
        if expected == found || self.run.may_refuse() && !self.run.is_exact() {
            return Ok(());
        }
        let at = expected.iter().zip(&found).position(|(a, b)| a != b);
        let (found, length) = (found.len(), expected.len());
        Err(Stop::Failed(format!("file {number} has {found} of {length} bytes, the first wrong one at {at:?}")))
    }

    // ---- commits ----------------------------------------------------------------------------

    pub(crate) async fn commit(&self) -> Outcome<()> {
        let Some((number, ino)) = self.file() else { return Ok(()) };
        let promise = self.model.lock().promise_of(number);
        if self.run.one_in(4) {
            let twice = first(self.front.commit_file(ino), self.front.commit_file(ino));
            return self.keep(format!("commit {number} twice"), promise, self.unless_removed(number, twice)).await;
        }
        self.keep(format!("commit {number}"), promise, self.unless_removed(number, self.front.commit_file(ino))).await
    }

    pub(crate) async fn commit_directory(&self) -> Outcome<()> {
        let (number, ino) = self.directory();
        let promise = self.model.lock().promise_of(number);
        let commit = self.unless_removed(number, self.front.commit_directory(ino));
        self.keep(format!("commit directory {number}"), promise, commit).await
    }

    /// Whoever removes it meanwhile leaves nothing to commit: then nothing is promised, and the removal itself is not durable yet.
    async fn unless_removed(&self, number: u64, commit: impl Future<Output = Fs<()>>) -> Fs<bool> {
        match commit.await {
            Err(FsError::Stale) if self.model.lock().may_be_removed(number) => Ok(false),
            other => other.map(|()| true),
        }
    }

    pub(crate) async fn sync(&self) -> Outcome<()> {
        let promise = self.model.lock().promise();
        let sync = async { self.front.sync().await.map(|()| true) };
        self.keep("sync".to_owned(), promise, sync).await
    }

    async fn keep(&self, what: String, promise: Promise, operation: impl Future<Output = Fs<bool>>) -> Outcome<()> {
        let kind = if what == "sync" { "sync" } else { "commit" };
        if self.bytes(what, operation).await? == Some(true) {
            self.model.lock().keep(&promise);
            self.run.judge_answer(None);
            self.run.done(kind);
        }
        Ok(())
    }
}
