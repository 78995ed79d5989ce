//! `larder recover`: files out of whatever is left of a pool, into a folder of their own.
//!
//! The disks are opened for reading only, so trying costs nothing. What was found and how much of it is written to
//! `report.json` and `report.txt` beside the files; nothing that is not whole is silent about it.

mod output;
mod report;
mod tree;

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use futures::TryStreamExt;
use larder_api::Failure;
use larder_base::log::LogEntry;
use larder_base::task;
use larder_keep::keyrings;
use larder_pool::salvage::{Salvage, SalvageOptions, SalvageReport};
use larder_store::{Bucket, BucketError, BucketUrl, ReadOnly, left_of_log};
use larder_volume::salvage::{self as volumes, SalvageParts, VolumeFound};
use object_store::ObjectStore;

use super::args::{Global, KeyArgs, Reach};
use super::keys::secret;
use super::reach::{Outcome, absolute};
use crate::render;
use larder_daemon::translate;
use larder_daemon::translate::bucket_error;
use report::{Report, Summary};

#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    /// A disk of the pool, or what is left of it [repeat for each disk]
    #[arg(long = "disk", value_name = "DIR", required_unless_present = "store", num_args = 1..)]
    pub(crate) disks: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) bucket: OfBucket,
    /// Target folder: empty or missing, and not on these disks
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    pub(crate) to: Option<PathBuf>,
    /// The pool's name or id, where the disks hold several
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
    /// The volume's name or id [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) volume: Option<String>,
    /// Only say what is there
    #[arg(long)]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) key: KeyArgs,
}

/// A bucket instead of disks.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct OfBucket {
    /// The volumes in this bucket, s3://BUCKET/PREFIX, instead of disks. Nothing is written there, and its owner may go on
    #[arg(long, value_name = "URL", conflicts_with = "disks")]
    pub(crate) store: Option<BucketUrl>,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// What volumes are read back from.
#[derive(Clone)]
pub(crate) enum Remains {
    Pool(Salvage),
    Bucket { store: Arc<dyn ObjectStore>, report: SalvageReport },
}

/// The layout in the report of a bucket.
const BUCKET: &str = "bucket";

impl Remains {
    pub(crate) async fn open(disks: &[PathBuf], pool: Option<String>, bucket: &OfBucket) -> Result<Remains, Failure> {
        let Some(url) = &bucket.store else { return open_pool(disks, pool).await.map(Remains::Pool) };
        let name = url.to_string();
        let opened = Bucket::open(&bucket.reach.settings(url.clone())).map_err(|error| bucket_error(&name, &error))?;
        let store: Arc<dyn ObjectStore> = Arc::new(ReadOnly(opened.store));
        let counted = store.list(None).try_fold(0, |count, _| async move { Ok(count + 1) }).await;
        let objects = counted.map_err(|source| {
            let what = "listing its objects".to_owned();
            bucket_error(&name, &BucketError::Store { what, source })
        })?;
        let report = SalvageReport {
            pool: uuid::Uuid::nil(),
            name: Some(name),
            layout: Some(BUCKET.to_owned()),
            disks: Vec::new(),
            missing: Vec::new(),
            objects,
            objects_incomplete: 0,
            notes: Vec::new(),
        };
        Ok(Remains::Bucket { store, report })
    }

    pub(crate) fn store(&self) -> Arc<dyn ObjectStore> {
        match self {
            Remains::Pool(pool) => pool.store(),
            Remains::Bucket { store, .. } => Arc::clone(store),
        }
    }

    pub(crate) fn report(&self) -> &SalvageReport {
        match self {
            Remains::Pool(pool) => pool.report(),
            Remains::Bucket { report, .. } => report,
        }
    }

    /// The entries of a stream of the log, and what is wrong with it.
    async fn log(&self, stream: String) -> Result<(Vec<LogEntry>, Vec<String>), Failure> {
        let pool = match self {
            Remains::Pool(pool) => pool.clone(),
            Remains::Bucket { store, .. } => return Ok(left_of_log(&**store, &stream).await),
        };
        let log = task::blocking(move || pool.log(&stream)).await;
        let log = log.map_err(|error| Failure::internal(error.to_string()))?;
        Ok((log.entries, log.faults))
    }
}

/// The answer of `--list`.
#[derive(serde::Serialize)]
struct Listing {
    pool: SalvageReport,
    volumes: Vec<VolumeFound>,
    faults: Vec<String>,
}

pub(super) async fn run(global: &Global, args: RecoverArgs) -> Result<Outcome, Failure> {
    let pool = Remains::open(&args.disks, args.pool, &args.bucket).await?;
    let (found, faults) = list_volumes(&pool).await?;
    if args.list {
        let listing = Listing { pool: pool.report().clone(), volumes: found, faults };
        global.out().answer(&listing, listing_text)?;
        return Ok(Outcome::Done);
    }
    let wanted = wanted(found, args.volume.as_deref())?;
    let Some(to) = &args.to else { return Err(Failure::invalid("--to is missing")) };
    let to = claim_folder(&absolute(to)?, &args.disks)?;
    let mut report = Report::create(&to, pool.report(), &faults)?;
    for volume in wanted {
        let salvage = match open_volume(&pool, &volume, &args.key).await {
            Ok(salvage) => salvage,
            // One key is seldom that of all: the others are recovered all the same.
            Err(failure) if args.volume.is_none() => {
                report.locked(volume.label(), failure.message)?;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        report.begin_volume(&volume, &salvage)?;
        tree::rescue(&salvage, &to.join(folder_name(&volume)), &mut report).await?;
        report.end_volume()?;
    }
    let summary = report.finish()?;
    global.out().answer(&summary, Summary::text)?;
    Ok(if summary.is_complete() { Outcome::Done } else { Outcome::Problems })
}

/// The remains of the pool on these disks, for reading only. Also for `debug`.
pub(crate) async fn open_pool(disks: &[PathBuf], pool: Option<String>) -> Result<Salvage, Failure> {
    let disks = disks.iter().map(|disk| absolute(disk)).collect::<Result<Vec<_>, _>>()?;
    let options = SalvageOptions { pool, ..SalvageOptions::new(disks) };
    let opened = task::blocking(move || Salvage::open(&options)).await;
    let opened = opened.map_err(|error| Failure::internal(error.to_string()))?;
    opened.map_err(|error| translate::pool_error(&error))
}

/// The volumes of the pool, and what is wrong with the registry.
pub(crate) async fn list_volumes(pool: &Remains) -> Result<(Vec<VolumeFound>, Vec<String>), Failure> {
    let listed = volumes::volumes(&pool.store()).await;
    listed.map_err(|error| Failure::unavailable(error.to_string()))
}

/// The volume's metadata, with what is left of its log. Of an encrypted volume only with `key`.
pub(crate) async fn open_volume(
    pool: &Remains,
    volume: &VolumeFound,
    key: &KeyArgs,
) -> Result<volumes::Salvage, Failure> {
    let (entries, log_faults) = pool.log(volumes::log_stream(volume.id)).await?;
    let store = volumes::store_of(pool.store(), volume.id).await;
    let mut parts = SalvageParts { store, id: volume.id, entries, log_faults };
    // A registry that is lost does not say whether a volume is encrypted; its keyring does.
    if volume.sealed || keyrings::keyring(&*parts.store, volume.id).await?.is_some() {
        unseal(&mut parts, volume, key).await?;
    }
    Ok(volumes::Salvage::open(parts).await)
}

/// Opens the store and the log of an encrypted volume.
async fn unseal(parts: &mut SalvageParts, volume: &VolumeFound, key: &KeyArgs) -> Result<(), Failure> {
    let label = volume.label();
    let (ring, _) = keyrings::keyring(&*parts.store, volume.id).await?.ok_or_else(|| {
        Failure::unavailable(format!("the keyring of '{label}' is lost: nothing opens this volume"))
            .action("name all disks that can still be read, each with --disk DIR; other volumes are recovered with --volume NAME")
    })?;
    let secret = keyrings::secret_of(secret(&label, key)?)?;
    let opened = Arc::new(keyrings::keys_of(ring, secret).await?);
    let stream = volumes::log_stream(volume.id);
    let (entries, faults) = larder_crypt::log::open_entries(&opened, &stream, &parts.entries);
    parts.entries = entries;
    parts.log_faults.extend(faults.iter().map(ToString::to_string));
    let beneath = larder_volume::Beneath { store: Arc::clone(&parts.store), log: None };
    // Without a registry nothing says whether all is sealed.
    let is_half = volume.half_sealed || volume.name.is_none();
    let mixture = if is_half { keyrings::Mixture::HalfExact } else { keyrings::Mixture::Sealed };
    let decorated = keyrings::decorated(volume.id, beneath, opened, mixture);
    parts.store = decorated.map_err(|error| Failure::unavailable(error.to_string()))?.store;
    Ok(())
}

/// The volume of that name or id, or all.
pub(crate) fn wanted(found: Vec<VolumeFound>, name: Option<&str>) -> Result<Vec<VolumeFound>, Failure> {
    let Some(name) = name else {
        return if found.is_empty() {
            Err(Failure::not_found("no objects of a volume are left on these disks")
                .action("name all disks that can still be read, each with --disk DIR"))
        } else {
            Ok(found)
        };
    };
    let labels: Vec<String> = found.iter().map(VolumeFound::label).collect();
    let is_it = |volume: &VolumeFound| volume.name.as_deref() == Some(name) || volume.id.to_string() == name;
    let chosen: Vec<VolumeFound> = found.into_iter().filter(is_it).collect();
    if chosen.is_empty() {
        let message = format!("there is no volume '{name}' on these disks (there are: {})", labels.join(", "));
        return Err(Failure::not_found(message));
    }
    Ok(chosen)
}

/// Names in a damaged registry may be anything.
fn folder_name(volume: &VolumeFound) -> String {
    let plain =
        |name: &String| !name.contains('/') && !name.contains('\0') && !matches!(name.as_str(), "" | "." | "..");
    let taken = |name: &String| matches!(name.as_str(), report::JSON_NAME | report::TEXT_NAME);
    volume.name.clone().filter(|name| plain(name) && !taken(name)).unwrap_or_else(|| volume.id.to_string())
}

/// Makes the folder for what is recovered. Never on the disks: what is written there could cover what is to be read.
fn claim_folder(to: &Path, disks: &[PathBuf]) -> Result<PathBuf, Failure> {
    let show = to.display();
    // A missing folder will lie in its nearest ancestor that exists.
    let real = to.ancestors().find_map(|folder| folder.canonicalize().ok()).unwrap_or_else(|| to.to_owned());
    for disk in disks {
        if disk.canonicalize().is_ok_and(|disk| real.starts_with(disk)) {
            let message = format!("{show} lies on the disk {}: nothing is written there", disk.display());
            return Err(Failure::invalid(message).action("name a folder on another disk with --to DIR"));
        }
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(to).map_err(|e| Failure::io(&show, &e))?;
    let mut entries = std::fs::read_dir(to).map_err(|e| Failure::io(&show, &e))?;
    if entries.next().is_some() {
        let message = format!("{show} is not empty: recovered files go to a folder of their own");
        return Err(Failure::exists(message).action("name an empty or new folder with --to DIR"));
    }
    to.canonicalize().map_err(|e| Failure::io(&show, &e))
}

fn listing_text(listing: &Listing) -> String {
    let mut text = pool_text(&listing.pool);
    text.push_str("\nvolumes:\n\n");
    let mut rows = vec![vec!["NAME".to_owned(), "ID".to_owned()]];
    for volume in &listing.volumes {
        rows.push(vec![volume.name.clone().unwrap_or_else(|| "(lost)".to_owned()), volume.id.to_string()]);
    }
    text.push_str(&render::table(&rows, &[]));
    for fault in &listing.faults {
        text.push_str(&format!("\nfault: {fault}\n"));
    }
    text
}

/// The disks and what is wrong with them.
pub(crate) fn pool_text(pool: &SalvageReport) -> String {
    let name = pool.name.clone().unwrap_or_else(|| "(no label left)".to_owned());
    if pool.layout.as_deref() == Some(BUCKET) {
        return format!("store: {name}\nobjects: {}\n", pool.objects);
    }
    let layout = pool.layout.clone().unwrap_or_else(|| "unknown".to_owned());
    let mut text = format!(" pool: {name}\n   id: {}\nlayout: {layout}\n", pool.pool);
    let incomplete = match pool.objects_incomplete {
        0 => String::new(),
        n => format!(", {n} with too few shards"),
    };
    text.push_str(&format!("objects: {}{incomplete}\ndisks:\n\n", pool.objects));
    let mut rows = vec![vec!["DISK".to_owned(), "ID".to_owned(), "SHARDS".to_owned(), "NOTE".to_owned()]];
    for disk in &pool.disks {
        let id = disk.id.map_or_else(|| "?".to_owned(), |id| id.to_string());
        rows.push(vec![disk.path.display().to_string(), id, disk.shards.to_string(), disk.note.clone()]);
    }
    for path in &pool.missing {
        rows.push(vec![path.display().to_string(), "?".to_owned(), "-".to_owned(), "not given".to_owned()]);
    }
    text.push_str(&render::table(&rows, &[2]));
    for note in &pool.notes {
        text.push_str(&format!("\nnote: {note}\n"));
    }
    text
}
