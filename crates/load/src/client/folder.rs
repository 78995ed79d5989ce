//! The bench's folder on a share: made, filled with what a workload needs, and removed.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use larder_base::units::ByteSize;

use super::contents::{Contents, GENERATIONS};
use super::drive::drive;
use super::error::{ClientError, Outcome};
use super::job::Job;
use super::layout::{LARGE_FILES_MAX, Layout, Shape, is_made};
use super::leftover;
use super::options::ClientOptions;
use super::patience::{self, CLEAN_UP_TIME_MAX, OPEN_TIME_MAX, PRESENCE_TIME_MAX, within};
use super::runtime::block_on;
use super::share::{Entry, Identity, Share, Target, check_supported};
use super::share_client::ShareClient;
use super::steps::{self, Steps};
use crate::control::Control;
use crate::workload::{Caches, Kind, Repeat, RunLimits, Workload};

/// Files are prepared in parallel, in large blocks.
const FILL_DEPTH: u32 = 16;
const FILL_BLOCK_BYTES: u64 = 1 << 20;
/// Of a protocol that writes files as a whole: seconds on a slow share.
const UPLOAD_BYTES_MAX: u64 = 64 << 20;
const REMOVE_DEPTH: usize = 16;
/// Folders into which servers move what is removed: larder and Samba, Synology, QNAP.
const BINS: [&str; 3] = [".recycle", "#recycle", "@Recycle"];
/// More folders than a bench makes.
const BIN_FOLDERS_MAX: usize = 10_000;
const ABORT_LOOK: Duration = Duration::from_millis(20);

pub(super) struct Client<T: Target> {
    target: T,
    description: String,
    connections: Option<u32>,
    verify_all: bool,
    /// `.larder-bench-...`
    folder: String,
    made: bool,
    /// Whether there may be something to remove.
    tried: bool,
    files: Option<Files>,
    generation: u64,
    /// Before anything was made.
    free_bytes: Option<u64>,
}

/// The contents of the folder.
struct Files {
    layout: Layout,
    contents: Arc<Contents>,
    /// Every file is there and full.
    complete: bool,
}

impl<T: Target + 'static> Client<T> {
    pub fn open(target: T, options: &ClientOptions) -> Outcome<Box<dyn ShareClient>> {
        let ask = async |share: T::Share| Ok(share.free_bytes().await.unwrap_or(None));
        let free_bytes = on_thread(&target, Until::At(OPEN_TIME_MAX), ask)?;
        Ok(Box::new(Self {
            description: target.describe(),
            target,
            connections: options.connections.filter(|n| *n > 0),
            verify_all: options.verify_all,
            folder: leftover::new_name(),
            made: false,
            tried: false,
            files: None,
            generation: 0,
            // Nothing at all is what servers say that do not know.
            free_bytes: free_bytes.filter(|bytes| *bytes > 0),
        }))
    }

    fn layout(&self, workload: &Workload) -> Outcome<Layout> {
        check_supported::<T>(workload)?;
        let mut workload = workload.clone();
        if T::STREAMS && is_large(workload.kind) {
            workload.files = uploads(&workload);
        }
        let layout = Layout::of(&workload, T::ACCESS)?;
        match self.free_bytes {
            Some(free) if layout.data_bytes() > free / 2 => Err(ClientError::NoSpace {
                what: format!(
                    "{} of data, where {} are free and half of it stays",
                    ByteSize(layout.data_bytes()),
                    ByteSize(free)
                ),
            }),
            _ => Ok(layout),
        }
    }

    /// Until the files are as the workload must find them.
    fn ready(&mut self, workload: &Workload, control: &Control) -> Outcome<Arc<Contents>> {
        let layout = self.layout(workload)?;
        if !self.made {
            self.make_folder(control)?;
        }
        if self.files.as_ref().is_some_and(|files| files.layout != layout) || makes_files(workload.kind) {
            self.empty(control)?;
        }
        let contents = match &self.files {
            Some(files) => files.contents.clone(),
            None => Arc::new(Contents::new(seed(&self.folder), layout.compressible, self.verify_all)),
        };
        let complete = self.files.as_ref().is_some_and(|files| files.complete);
        self.files = Some(Files { layout, contents: contents.clone(), complete });
        match workload.kind {
            Kind::CreateFiles => self.make_folders(&layout, control)?,
            Kind::CopyTreeIn => {}
            Kind::Write => self.truncate(&layout, control)?,
            _ if complete => {}
            _ => self.fill(layout, contents.clone(), control)?,
        }
        Ok(contents)
    }

    /// Also sweeps what a killed bench left (`load.one_folder`).
    fn make_folder(&mut self, control: &Control) -> Outcome<()> {
        let folder = self.folder.clone();
        self.tried = true;
        on_thread(&self.target, Until::Stopped(control), async move |share: T::Share| {
            // A folder that could not be swept is reported at the end.
            let _ = sweep(&share).await;
            share.make_folder(&folder).await
        })?;
        self.made = true;
        Ok(())
    }

    /// Removes all of the bench's but the folder itself.
    fn empty(&mut self, control: &Control) -> Outcome<()> {
        let folder = self.folder.clone();
        if self.files.take().is_none() {
            return Ok(());
        }
        on_thread(&self.target, Until::Stopped(control), async move |share: T::Share| {
            remove_tree(&share, &folder, "").await?;
            share.make_folder(&folder).await
        })
    }

    fn make_folders(&self, layout: &Layout, control: &Control) -> Outcome<()> {
        let folders: Vec<String> = layout.folders().iter().map(|f| format!("{}/{f}", self.folder)).collect();
        on_thread(&self.target, Until::Stopped(control), async move |share: T::Share| {
            for folder in folders {
                share.make_folder(&folder).await?;
            }
            Ok(())
        })
    }

    /// The files of a sequential write exist and are empty before its clock begins. Uploads make their own, and those
    /// of the last one go first: nothing is replaced but what was uploaded in the same repeat.
    fn truncate(&mut self, layout: &Layout, control: &Control) -> Outcome<()> {
        if let Some(files) = &mut self.files {
            files.complete = false;
        }
        let names: Vec<String> = (0..layout.files).map(|f| format!("{}/{}", self.folder, layout.name(f))).collect();
        on_thread(&self.target, Until::Stopped(control), async move |share: T::Share| {
            for name in names {
                if T::STREAMS {
                    match share.remove(&name).await {
                        Err(error) if !error.is_not_found() => return Err(error),
                        _ => continue,
                    }
                }
                let file = share.create(&name).await?;
                share.close(file).await?;
            }
            Ok(())
        })
    }

    fn fill(&mut self, layout: Layout, contents: Arc<Contents>, control: &Control) -> Outcome<()> {
        let kind = match layout.shape {
            Shape::Large => Kind::Write,
            Shape::Small => Kind::CreateFiles,
            Shape::Tree => Kind::CopyTreeIn,
        };
        match layout.shape {
            Shape::Large => self.truncate(&layout, control)?,
            Shape::Small => self.make_folders(&layout, control)?,
            Shape::Tree => {}
        }
        let streams = T::STREAMS && layout.shape == Shape::Large;
        let workload = Workload {
            kind,
            block_bytes: fill_block_bytes(&layout),
            depth: FILL_DEPTH,
            jobs: if streams { layout.files.min(4) as u32 } else { 1 },
            data_bytes: layout.data_bytes(),
            files: layout.files,
            caches: Caches::Bypassed,
            compressible: layout.compressible,
            // Small files one by one would take hours on a disk: the folder is what has to be there, not its safety.
            synced: layout.shape == Shape::Large,
        };
        let limits = RunLimits { warm_up: Duration::ZERO, measure_max: Duration::MAX, again: false };
        drive(&self.target, self.job(workload, layout, contents, 0, limits.again), &limits, control)?;
        if let Some(files) = &mut self.files {
            files.complete = true;
        }
        Ok(())
    }

    fn job(&self, workload: Workload, layout: Layout, contents: Arc<Contents>, generation: u64, again: bool) -> Job {
        let folder = format!("{}/", self.folder);
        Job { workload, layout, folder, contents, generation, again, connections: self.connections }
    }
}

impl<T: Target + 'static> ShareClient for Client<T> {
    fn access(&self) -> &str {
        T::ACCESS
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn encryption(&self) -> String {
        self.target.encryption()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.free_bytes
    }

    fn prepare(&mut self, workload: &Workload, control: &Control) -> Outcome<()> {
        self.ready(workload, control).map(drop)
    }

    fn run(&mut self, workload: &Workload, limits: &RunLimits, control: &Control) -> Outcome<Repeat> {
        let contents = self.ready(workload, control)?;
        let layout = self.layout(workload)?;
        self.generation = (self.generation + 1) % GENERATIONS;
        let job = self.job(workload.clone(), layout, contents, self.generation, limits.again);
        let outcome = drive(&self.target, job, limits, control);
        if let Some(files) = &mut self.files {
            let all = outcome.as_ref().is_ok_and(|r| is_everything(workload, &layout, r));
            match workload.kind {
                Kind::DeleteFiles => files.complete = false,
                kind if kind == Kind::Write || makes_files(kind) => files.complete = all,
                _ => {}
            }
        }
        outcome
    }

    fn prepare_copy(&mut self, workload: &Workload, source: bool, control: &Control) -> Outcome<()> {
        let layout = self.layout(workload)?;
        if !self.made {
            self.make_folder(control)?;
        }
        if !source || self.files.as_ref().is_some_and(|files| files.layout != layout) {
            self.empty(control)?;
        }
        if self.files.is_none() {
            let contents = Arc::new(Contents::new(seed(&self.folder), layout.compressible, self.verify_all));
            self.files = Some(Files { layout, contents, complete: false });
        }
        match &self.files {
            Some(files) if source && !files.complete => self.fill(layout, files.contents.clone(), control),
            _ => Ok(()),
        }
    }

    fn serve_copy(&mut self, workload: &Workload, steps: Steps) -> Outcome<()> {
        let layout = self.layout(workload)?;
        let Some(contents) = self.files.as_ref().map(|files| files.contents.clone()) else {
            return Err(ClientError::Local { what: T::ACCESS.into(), reason: "nothing was made ready to copy".into() });
        };
        self.generation = (self.generation + 1) % GENERATIONS;
        let identity = |file| Identity { contents: &contents, file, generation: self.generation };
        let (folder, block_bytes) = (self.folder.clone(), workload.block_bytes);
        T::block_on(async {
            let share = self.target.connect(None).await?;
            steps::Worker { share, layout, folder, block_bytes, identity: &identity }.work::<T>(steps).await
        })
    }

    fn clean_up(&mut self) -> Outcome<()> {
        self.files = None;
        let (folder, tried) = (self.folder.clone(), self.tried);
        let left = on_thread(&self.target, Until::Left(CLEAN_UP_TIME_MAX), async move |share: T::Share| {
            patience::reply_within(PRESENCE_TIME_MAX, T::ACCESS, share.list("")).await?;
            let mut left = sweep(&share).await;
            if tried && let Some(found) = remove_tree(&share, &folder, "").await? {
                left = Some((folder, found));
            } else if tried {
                empty_bins(&share, &folder).await;
            }
            Ok(left)
        })?;
        (self.made, self.tried) = (false, false);
        left.map_or(Ok(()), |(folder, found)| Err(ClientError::Left { folder, found }))
    }
}

fn is_large(kind: Kind) -> bool {
    matches!(kind, Kind::Read | Kind::Write | Kind::RandomRead)
}

/// Only what the server has answered is on its disks, so no upload is cut short, and none is long. Jobs get as many each.
fn uploads(workload: &Workload) -> u64 {
    let jobs = u64::from(workload.jobs.max(1));
    let most = (LARGE_FILES_MAX / jobs).min(workload.data_bytes / workload.block_bytes.max(1) / jobs).max(1);
    let wanted = workload.data_bytes.div_ceil(UPLOAD_BYTES_MAX).max(workload.files);
    wanted.div_ceil(jobs).min(most) * jobs
}

/// Whether a run left every file there, whole.
fn is_everything(workload: &Workload, layout: &Layout, repeat: &Repeat) -> bool {
    match layout.shape {
        Shape::Large => repeat.bytes >= layout.data_bytes() && layout.file_bytes.is_multiple_of(workload.block_bytes),
        Shape::Small | Shape::Tree => repeat.operations >= layout.files,
    }
}

fn makes_files(kind: Kind) -> bool {
    matches!(kind, Kind::CreateFiles | Kind::CopyTreeIn)
}

/// The largest power of two that fills a file without a rest.
fn fill_block_bytes(layout: &Layout) -> u64 {
    match layout.shape {
        Shape::Large => {
            let block = 1u64 << layout.file_bytes.trailing_zeros().min(20);
            block.clamp(4096.min(layout.file_bytes.max(1)), FILL_BLOCK_BYTES)
        }
        _ => FILL_BLOCK_BYTES,
    }
}

fn seed(folder: &str) -> u64 {
    folder.bytes().fold(0, |h, b| super::contents::mix(h ^ u64::from(b)))
}

/// The end of a piece of work before its time: by a person, or by a clock where nobody is asked any more.
enum Until<'a> {
    Stopped(&'a Control),
    At(Duration),
    /// The same, of a server that was there before.
    Left(Duration),
}

/// Runs `work` on a thread with a runtime of its own: the caller may have one already.
fn on_thread<T: Target, R: Send>(
    target: &T,
    until: Until<'_>,
    work: impl AsyncFnOnce(T::Share) -> Outcome<R> + Send,
) -> Outcome<R> {
    let job = async || {
        let share = match until {
            Until::Left(_) => patience::reply_within(PRESENCE_TIME_MAX, T::ACCESS, target.connect(None)).await?,
            Until::Stopped(_) | Until::At(_) => target.connect(None).await?,
        };
        work(share).await
    };
    let bounded = async || match until {
        Until::At(time_max) | Until::Left(time_max) => within(time_max, T::ACCESS, job()).await,
        Until::Stopped(control) => tokio::select! {
            outcome = job() => outcome,
            () = stopped(control) => Err(ClientError::Stopped),
        },
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| block_on(bounded()));
        let defect = |_| ClientError::Local { what: T::ACCESS.into(), reason: "a defect in the bench's client".into() };
        thread.join().map_err(defect)?
    })
}

async fn stopped(control: &Control) {
    while !control.is_stopped() {
        tokio::time::sleep(ABORT_LOOK).await;
    }
}

/// Removes what killed benches of this machine left. What cannot be removed stays: it is not what was asked for.
/// One that holds more than a bench makes, and what that is.
async fn sweep<S: Share>(share: &S) -> Option<(String, String)> {
    let mut left = None;
    for bin in BINS {
        for entry in share.list(bin).await.unwrap_or_default() {
            if entry.folder && leftover::is_orphan(&entry.name) {
                let _ = empty_bin(share, &join(bin, &entry.name)).await;
            }
        }
    }
    for entry in share.list("").await.unwrap_or_default() {
        if entry.folder
            && leftover::is_orphan(&entry.name)
            && let Ok(Some(found)) = remove_tree(share, &entry.name, "").await
        {
            left = Some((entry.name, found));
        }
    }
    left
}

/// What a server put into a recycle bin of the share when this bench removed it. Only the bench's own folder there is
/// touched: nobody else makes one of its name (`load.one_folder`).
async fn empty_bins<S: Share>(share: &S, folder: &str) {
    for bin in BINS {
        let _ = empty_bin(share, &join(bin, folder)).await;
    }
}

/// Names there may have got numbers, so all that is in the folder goes.
async fn empty_bin<S: Share>(share: &S, root: &str) -> Outcome<()> {
    let mut folders = vec![root.to_owned()];
    let mut at = 0;
    while let Some(folder) = folders.get(at).cloned() {
        at += 1;
        let Some(entries) = list_own(share, &folder).await? else { return Ok(()) };
        let (inner, files): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.folder);
        folders.extend(
            inner
                .iter()
                .map(|entry| join(&folder, &entry.name))
                .take(BIN_FOLDERS_MAX - folders.len().min(BIN_FOLDERS_MAX)),
        );
        remove_files(share, &folder, files).await?;
    }
    for folder in folders.iter().rev() {
        share.remove_folder(folder).await?;
    }
    Ok(())
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Removes what a bench makes in `root/below`, and that folder too if nothing else is in it; otherwise says what is.
/// Fine if it is gone already.
async fn remove_tree<S: Share>(share: &S, root: &str, below: &str) -> Outcome<Option<String>> {
    let folder = if below.is_empty() { root.to_owned() } else { join(root, below) };
    let entries = match list_own(share, &folder).await {
        Err(error) if error.is_not_found() => return Ok(None),
        entries => entries?,
    };
    let Some(entries) = entries else { return Ok(Some(folder)) };
    let (ours, foreign): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|entry| is_made(&join(below, &entry.name), entry.folder));
    let (folders, files): (Vec<_>, Vec<_>) = ours.into_iter().partition(|entry| entry.folder);
    let mut left = foreign.first().map(|entry| join(&folder, &entry.name));
    for inner in folders {
        // No deeper than names of our own go.
        let found = Box::pin(remove_tree(share, root, &join(below, &inner.name))).await?;
        left = left.or(found);
    }
    remove_files(share, &folder, files).await?;
    if left.is_some() {
        return Ok(left);
    }
    match share.remove_folder(&folder).await {
        // There is something in it that its listing leaves out.
        Err(ClientError::Protocol { .. } | ClientError::Local { .. } | ClientError::Unsupported { .. }) => {
            Ok(Some(folder))
        }
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(None),
    }
}

/// Nothing of a folder that is a link.
async fn list_own<S: Share>(share: &S, folder: &str) -> Outcome<Option<Vec<Entry>>> {
    match share.is_own_folder(folder).await? {
        true => share.list(folder).await.map(Some),
        false => Ok(None),
    }
}

async fn remove_files<S: Share>(share: &S, folder: &str, files: Vec<Entry>) -> Outcome<()> {
    let mut names = files.into_iter().map(|file| join(folder, &file.name));
    let remove = async |name: String| share.remove(&name).await;
    let mut running: FuturesUnordered<_> = names.by_ref().take(REMOVE_DEPTH).map(&remove).collect();
    while let Some(outcome) = running.next().await {
        match outcome {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => running.extend(names.next().map(&remove)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock may have to wait for seconds of uploading, and every job has as many files.
    #[test]
    fn uploads_are_short() {
        for (data_mib, block_kib, jobs, files, found) in [
            (1024, 1024, 1, 1, 16),
            (1024, 1024, 4, 1, 16),
            (1100, 1024, 4, 1, 20),
            (12, 1024, 1, 2, 2),
            (64, 32 << 10, 4, 1, 4),
        ] {
            let (block_bytes, data_bytes) = (block_kib << 10, data_mib << 20);
            let workload = Workload {
                kind: Kind::Write,
                block_bytes,
                depth: 1,
                jobs,
                data_bytes,
                files,
                caches: Caches::Unknown,
                compressible: false,
                synced: true,
            };
            assert_eq!(uploads(&workload), found, "{workload:?}");
        }
    }
}
