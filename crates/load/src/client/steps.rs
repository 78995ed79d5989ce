//! The steps of a copy, as one of its ends does them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use futures::stream::{StreamExt, TryStreamExt, iter};
use tokio::sync::mpsc::UnboundedReceiver;

use super::error::{ClientError, Outcome};
use super::layout::Layout;
use super::share::{Identity, Share, Target};

/// A kernel's client reads ahead and writes behind about as much.
const DEPTH: usize = 8;
/// Between two looks at the other end, or at a wish to stop.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// A request to one end; the number is that of a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Folders,
    Read(u64),
    Write(u64),
    /// Everything that was written is on a disk afterwards.
    Flush,
}

/// The requests to one end, and its progress.
pub struct Steps {
    pub(super) asked: UnboundedReceiver<Step>,
    pub(super) done: Sender<()>,
    pub(super) bytes: std::sync::Arc<AtomicU64>,
    pub(super) stopped: std::sync::Arc<AtomicBool>,
}

/// How one end does its steps.
pub(super) struct Worker<'a, S: Share> {
    pub share: S,
    pub layout: Layout,
    pub folder: String,
    pub block_bytes: u64,
    pub identity: &'a dyn Fn(u64) -> Identity<'a>,
}

impl<S: Share> Worker<'_, S> {
    /// Until nobody asks any more.
    pub async fn work<T: Target>(&self, mut steps: Steps) -> Outcome<()> {
        let stopped = steps.stopped.clone();
        let work = async {
            while let Some(step) = steps.asked.recv().await {
                self.step::<T>(step, &steps.bytes).await?;
                let _ = steps.done.send(());
            }
            Ok(())
        };
        tokio::select! {
            outcome = work => outcome,
            () = async { while !stopped.load(Ordering::Acquire) { T::sleep(LOOK).await } } => Err(ClientError::Stopped),
        }
    }

    async fn step<T: Target>(&self, step: Step, bytes: &AtomicU64) -> Outcome<()> {
        match step {
            Step::Folders => {
                for folder in self.layout.folders() {
                    self.share.make_folder(&format!("{}/{folder}", self.folder)).await?;
                }
                Ok(())
            }
            Step::Read(file) => self.read(file).await,
            Step::Write(file) => self.write::<T>(file, bytes).await,
            // An upload is on the server's disks when it is answered, or nobody can say.
            Step::Flush if T::STREAMS => Ok(()),
            Step::Flush => self.flush().await,
        }
    }

    fn path(&self, file: u64) -> String {
        format!("{}/{}", self.folder, self.layout.name(file))
    }

    /// Offset and length of each of its blocks.
    fn blocks(&self, file: u64) -> impl Iterator<Item = (u64, u64)> + use<S> {
        let (len, block) = (self.layout.bytes(file), self.block_bytes.max(1));
        (0..len.div_ceil(block)).map(move |n| (n * block, block.min(len - n * block)))
    }

    async fn read(&self, file: u64) -> Outcome<()> {
        let (opened, identity) = (self.share.open(&self.path(file), false).await?, (self.identity)(file));
        let block = |(at, len)| self.share.read(&opened, at, len, identity);
        iter(self.blocks(file)).map(block).buffer_unordered(DEPTH).try_collect::<()>().await?;
        self.share.close(opened).await
    }

    async fn write<T: Target>(&self, file: u64, bytes: &AtomicU64) -> Outcome<()> {
        let identity = (self.identity)(file);
        let count = |len| bytes.fetch_add(len, Ordering::Relaxed);
        if T::STREAMS {
            let told = |len| {
                count(len);
                true
            };
            let len = self.layout.bytes(file);
            return self.share.put(&self.path(file), len, self.block_bytes, true, identity, &told).await;
        }
        let opened = self.share.create(&self.path(file)).await?;
        let block = async |(at, len)| {
            self.share.write(&opened, at, len, identity).await?;
            count(len);
            Ok(())
        };
        iter(self.blocks(file)).map(block).buffer_unordered(DEPTH).try_collect::<()>().await?;
        self.share.close(opened).await
    }

    async fn flush(&self) -> Outcome<()> {
        if self.share.flush_all().await? {
            return Ok(());
        }
        for file in 0..self.layout.files {
            let opened = self.share.open(&self.path(file), true).await?;
            self.share.flush(&opened, (self.identity)(file)).await?;
            self.share.close(opened).await?;
        }
        Ok(())
    }
}
