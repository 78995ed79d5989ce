//! `larder debug`: every structure on the disks, decoded. Reads only; nothing is locked, healed or repaired.
//!
//! Damaged input is no failure of the command: it is told as a fault with its place, and the exit code is 4.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::{Args, Subcommand};
use futures::TryStreamExt;
use larder_api::Failure;
use larder_base::units::ByteSize;
use larder_base::{Sheet, task};
use larder_pool::disk::FileDisks;
use larder_pool::disk::{DiskIo, DiskOpener};
use larder_pool::salvage::inspect as of_pool;
use larder_pool::salvage::{Damage, ObjectFound, Salvage};
use larder_volume::inspect as of_volume;
use larder_volume::salvage as volumes;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt};

use super::args::{Global, KeyArgs};
use super::reach::{Outcome, absolute};
use super::recover::{OfBucket, Remains, list_volumes, open_pool, open_volume, pool_text, wanted};
use crate::render;

/// No structure that is read whole is longer.
const FILE_BYTES_MAX: u64 = 256 << 20;
const LABELS: [&str; 2] = ["larder.label", "larder.label.2"];

/// The disks of a pool that is looked into.
#[derive(Clone, Debug, Args)]
pub(crate) struct OfDisks {
    /// A disk of the pool [repeat for each disk]
    #[arg(long = "disk", value_name = "DIR", required = true, num_args = 1..)]
    disks: Vec<PathBuf>,
    /// The pool's name or id, where the disks hold several
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DebugCommand {
    /// The identity of a disk: both copies of its label
    Label {
        /// A disk, or a file
        #[arg(value_name = "DIR|FILE")]
        path: PathBuf,
    },
    /// A shard file: name, header, and the checksum of each block
    Shard { file: PathBuf },
    /// Segments, batches and records of a journal
    Journal {
        /// A disk, its journal folder, or one segment file
        #[arg(value_name = "DIR|FILE")]
        path: PathBuf,
        /// Also what each entry holds: rows of the metadata, objects that were deleted
        #[arg(long)]
        entries: bool,
    },
    /// The pool's history, as a disk has it
    History {
        /// A disk, or a file
        #[arg(value_name = "DIR|FILE")]
        path: PathBuf,
    },
    /// The progress of the scrub, as a disk has it
    Scrub {
        /// A disk, or a file
        #[arg(value_name = "DIR|FILE")]
        path: PathBuf,
    },
    /// A segment of file data: header, index, footer, and the checksum of each record
    #[command(override_usage = "larder debug segment <FILE|OBJECT> [--disk <DIR>... [--pool <NAME>]]")]
    Segment {
        /// A file with the object's bytes, or with --disk the object's path or number
        #[arg(value_name = "FILE|OBJECT")]
        object: String,
        #[arg(long = "disk", value_name = "DIR", num_args = 1..)]
        disks: Vec<PathBuf>,
        #[arg(long, value_name = "NAME")]
        pool: Option<String>,
        #[command(flatten)]
        bucket: OfBucket,
    },
    /// Objects of a pool: where their shards are
    #[command(override_usage = "larder debug object [PATH] [--verify] --disk <DIR>... [--pool <NAME>]")]
    Object {
        /// Objects whose path begins so [default: all]
        #[arg(value_name = "PATH", default_value = "")]
        prefix: String,
        /// Also read every block of every shard
        #[arg(long)]
        verify: bool,
        #[command(flatten)]
        of: OfDisks,
    },
    /// Rows of the metadata engine, keys and values in words
    Meta {
        /// The volume's name or id [default: all]
        #[arg(long, value_name = "NAME")]
        volume: Option<String>,
        /// Only keys that begin so: a letter for the table (I inodes, D names, E extents ...) and an inode's number
        #[arg(long, value_name = "LETTER[NUMBER]", default_value = "", value_parser = parse_prefix)]
        prefix: KeyPrefix,
        /// At most so many rows of each volume
        #[arg(long, default_value_t = 100_000)]
        limit: usize,
        #[arg(long = "disk", value_name = "DIR", required_unless_present = "store", num_args = 1..)]
        disks: Vec<PathBuf>,
        #[arg(long, value_name = "NAME")]
        pool: Option<String>,
        #[command(flatten)]
        bucket: OfBucket,
        #[command(flatten)]
        key: KeyArgs,
    },
    /// The volumes that a pool knows
    Registry {
        /// A file with its bytes, instead of disks
        #[arg(value_name = "FILE", conflicts_with_all = ["disks", "store"], required_unless_present_any = ["disks", "store"])]
        file: Option<PathBuf>,
        #[arg(long = "disk", value_name = "DIR", num_args = 1..)]
        disks: Vec<PathBuf>,
        #[arg(long, value_name = "NAME")]
        pool: Option<String>,
        #[command(flatten)]
        bucket: OfBucket,
    },
}

/// The first bytes of keys.
#[derive(Clone, Debug)]
pub(crate) struct KeyPrefix(Vec<u8>);

fn parse_prefix(text: &str) -> Result<KeyPrefix, String> {
    let mut bytes = Vec::new();
    if let Some(letter) = text.chars().next() {
        if !letter.is_ascii_uppercase() {
            return Err("a table is one capital letter, as I, D or E".to_owned());
        }
        bytes.push(letter as u8);
        if text.len() > 1 {
            let number: u64 =
                text.get(1..).unwrap_or_default().parse().map_err(|_| "the number of an inode is missing")?;
            bytes.extend_from_slice(&number.to_be_bytes());
        }
    }
    Ok(KeyPrefix(bytes))
}

pub(super) async fn run(global: &Global, command: DebugCommand) -> Result<Outcome, Failure> {
    match command {
        DebugCommand::Label { path } => sheets(global, labels(&path)?),
        DebugCommand::Shard { file } => {
            let (disk, name) = parent(&file)?;
            sheets(global, vec![of_pool::shard(&*disk, &name).map_err(|error| Failure::io(file.display(), &error))?])
        }
        DebugCommand::Journal { path, entries } => sheets(global, journal(&path, entries)?),
        DebugCommand::History { path } => {
            sheets(global, vec![of_pool::history(&read(&on_disk(&path, "larder.history"))?)])
        }
        DebugCommand::Scrub { path } => sheets(global, vec![of_pool::scrub(&read(&on_disk(&path, "larder.scrub"))?)]),
        DebugCommand::Segment { object, disks, pool, bucket } => {
            let bytes = match disks.is_empty() && bucket.store.is_none() {
                true => read(Path::new(&object))?.into(),
                false => segment_object(&Remains::open(&disks, pool, &bucket).await?, &object).await?,
            };
            sheets(global, vec![of_volume::segment(&bytes)])
        }
        DebugCommand::Object { prefix, verify, of } => objects(global, &prefix, verify, of).await,
        DebugCommand::Meta { volume, prefix, limit, disks, pool, bucket, key } => {
            let remains = Remains::open(&disks, pool, &bucket).await?;
            meta(global, volume, &prefix, limit, &remains, &key).await
        }
        DebugCommand::Registry { file: Some(file), .. } => sheets(global, vec![of_volume::registry(&read(&file)?)]),
        DebugCommand::Registry { file: None, disks, pool, bucket } => {
            let remains = Remains::open(&disks, pool, &bucket).await?;
            let bytes = object(&remains, &ObjectPath::from("registry.json")).await?;
            sheets(global, vec![of_volume::registry(&bytes)])
        }
    }
}

// ------------------------------------------------------------------------------------------- files

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error: std::io::Error| Failure::io(path.display(), &error);
    let mut bytes = Vec::new();
    // A device has no length.
    let limited = std::fs::File::open(path).map(|file| file.take(FILE_BYTES_MAX + 1));
    limited.and_then(|mut file| file.read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Failure::invalid(format!(
            "{} has more than {FILE_BYTES_MAX} bytes: no such structure is as long",
            path.display()
        )));
    }
    Ok(bytes)
}

fn labels(path: &Path) -> Result<Vec<Sheet>, Failure> {
    if !path.is_dir() {
        return Ok(vec![of_pool::label(&read(path)?)]);
    }
    let copy = |name: &str| {
        let mut sheet = match read(&path.join(name)) {
            Ok(bytes) => of_pool::label(&bytes),
            Err(failure) => {
                let mut sheet = Sheet::default();
                sheet.fault(0, failure.message);
                sheet
            }
        };
        sheet.what = format!("label {name}");
        sheet
    };
    Ok(LABELS.iter().map(|name| copy(name)).collect())
}

/// A file that lies on every disk.
fn on_disk(path: &Path, name: &str) -> PathBuf {
    if path.is_dir() { path.join(name) } else { path.to_owned() }
}

/// The folder of a file as a disk, and its name there.
fn parent(file: &Path) -> Result<(std::sync::Arc<dyn DiskIo>, String), Failure> {
    let file = absolute(file)?;
    let show = file.display();
    let (Some(folder), Some(name)) = (file.parent(), file.file_name().and_then(|name| name.to_str())) else {
        return Err(Failure::invalid(format!("{show} is no file")));
    };
    Ok((FileDisks.open_disk(folder).map_err(|error| Failure::io(show, &error))?, name.to_owned()))
}

fn journal(path: &Path, entries: bool) -> Result<Vec<Sheet>, Failure> {
    let failed = |error: std::io::Error| Failure::io(path.display(), &error);
    let (disk, files) = match path.is_dir() {
        true => {
            let disk = FileDisks.open_disk(path).map_err(failed)?;
            let files = of_pool::journal_files(&*disk).map_err(failed)?;
            (disk, files)
        }
        false => parent(path).map(|(disk, name)| (disk, vec![name]))?,
    };
    if files.is_empty() {
        return Err(Failure::not_found(format!("{} holds no segments of a journal", path.display()))
            .action("only some disks of a pool have a copy: try the others"));
    }
    let of_volumes = |stream: &str, id: u64, payload: &Bytes| {
        stream.starts_with("volume-").then(|| of_volume::log_entry(stream, id, payload))
    };
    let mut sheets = Vec::new();
    for file in &files {
        sheets.push(of_pool::journal_segment(&*disk, file).map_err(failed)?);
        if entries {
            sheets.extend(of_pool::journal_entries(&*disk, file, of_volumes).map_err(failed)?);
        }
    }
    Ok(sheets)
}

// ----------------------------------------------------------------------------------------- objects

async fn object(pool: &Remains, path: &ObjectPath) -> Result<Bytes, Failure> {
    let store = pool.store();
    let failed = |error: object_store::Error| match error {
        object_store::Error::NotFound { .. } => Failure::not_found(format!("there is no object {path}"))
            .action("list them with: larder debug object --disk DIR..."),
        other => Failure::unavailable(format!("{path}: {other}")),
    };
    let got = store.get(path).await.map_err(failed)?;
    if got.meta.size > FILE_BYTES_MAX {
        return Err(Failure::invalid(format!("{path} has {}: no such structure is as long", ByteSize(got.meta.size))));
    }
    got.bytes().await.map_err(failed)
}

/// By path, or by number where only one volume has it.
async fn segment_object(remains: &Remains, name: &str) -> Result<Bytes, Failure> {
    let ending = match u64::from_str_radix(name, 16) {
        Ok(number) => format!("/seg/{number:016x}"),
        Err(_) => name.to_owned(),
    };
    let all: Vec<String> = match remains {
        Remains::Pool(pool) => pool.objects("").into_iter().map(|object| object.path).collect(),
        Remains::Bucket { store, .. } => {
            let listed = store.list(None).map_ok(|object| object.location.to_string()).try_collect().await;
            listed.map_err(|error| Failure::unavailable(error.to_string()))?
        }
    };
    let found: Vec<String> = all.into_iter().filter(|path| path.ends_with(&ending)).collect();
    match found.as_slice() {
        [one] => object(remains, &ObjectPath::from(one.as_str())).await,
        [] => Err(Failure::not_found(format!("there is no object {name}"))),
        many => Err(Failure::invalid(format!("several objects end in {name}: {}", many.join(", ")))),
    }
}

#[derive(serde::Serialize)]
struct ObjectAnswer {
    #[serde(flatten)]
    object: ObjectFound,
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<Vec<Damage>>,
}

async fn objects(global: &Global, prefix: &str, verify: bool, of: OfDisks) -> Result<Outcome, Failure> {
    let pool = open_pool(&of.disks, of.pool).await?;
    let of_task = pool.clone();
    let prefix = prefix.to_owned();
    let found = task::blocking(move || {
        let answer = |object: ObjectFound| {
            let damage = verify.then(|| of_task.verify(&object.path));
            ObjectAnswer { object, damage }
        };
        of_task.objects(&prefix).into_iter().map(answer).collect::<Vec<_>>()
    });
    let found = found.await.map_err(|error| Failure::internal(error.to_string()))?;
    global.out().answer(&found, |found| objects_text(&pool, found))?;
    let well = found.iter().all(|answer| answer.damage.as_ref().is_none_or(Vec::is_empty));
    Ok(if well { Outcome::Done } else { Outcome::Problems })
}

fn objects_text(pool: &Salvage, found: &[ObjectAnswer]) -> String {
    let mut text = pool_text(pool.report());
    let mut rows = vec![["PATH", "SIZE", "VERSION", "SHAPE", "SHARDS (shard:disk)"].map(str::to_owned).to_vec()];
    for ObjectAnswer { object, .. } in found {
        let shards: Vec<String> = object.shards.iter().map(|s| format!("{}:{}", s.shard, s.disk)).collect();
        rows.push(vec![
            object.path.clone(),
            object.size_bytes.to_string(),
            format!("{:x}", object.version),
            format!("{}+{}", object.data, object.parity),
            shards.join(" "),
        ]);
    }
    text.push_str(&format!("\n{}", render::table(&rows, &[1])));
    for ObjectAnswer { object, damage } in found {
        for damage in damage.iter().flatten() {
            let disk = damage.disk.map_or_else(String::new, |disk| format!(" on disk {disk}"));
            let at = damage.offset_bytes.map_or_else(String::new, |at| format!(" at byte {at}"));
            text.push_str(&format!("fault: {}: shard {}{disk}{at}: {}\n", object.path, damage.shard, damage.why));
        }
    }
    text
}

// -------------------------------------------------------------------------------------------- meta

#[derive(serde::Serialize)]
struct MetaAnswer {
    volume: String,
    id: uuid::Uuid,
    metadata: volumes::Verdict,
    faults: Vec<String>,
    rows: Vec<RowAnswer>,
}

#[derive(serde::Serialize)]
struct RowAnswer {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

async fn meta(
    global: &Global,
    volume: Option<String>,
    prefix: &KeyPrefix,
    limit: usize,
    remains: &Remains,
    key: &KeyArgs,
) -> Result<Outcome, Failure> {
    let (found, _) = list_volumes(remains).await?;
    let mut answers = Vec::new();
    for volume in wanted(found, volume.as_deref())? {
        let salvage = open_volume(remains, &volume, key).await?;
        let mut rows = Vec::new();
        let each = |key: &Bytes, value: &Bytes| {
            let (key, text) = of_volume::row(key, value);
            let (value, fault) = text.map_or_else(|why| (None, Some(why)), |text| (Some(text), None));
            rows.push(RowAnswer { key, value, fault });
            rows.len() < limit
        };
        salvage.rows(&prefix.0, each).await;
        let (volume, id, metadata) = (volume.label(), volume.id, salvage.verdict());
        answers.push(MetaAnswer { volume, id, metadata, faults: salvage.faults().to_vec(), rows });
    }
    global.out().answer(&answers, |answers| answers.iter().map(meta_text).collect())?;
    let well = answers.iter().all(|a| a.faults.is_empty() && a.rows.iter().all(|row| row.fault.is_none()));
    Ok(if well { Outcome::Done } else { Outcome::Problems })
}

fn meta_text(answer: &MetaAnswer) -> String {
    let mut text = format!("volume {} ({})\n\n", answer.volume, answer.id);
    let mut rows = vec![vec!["KEY".to_owned(), "VALUE".to_owned()]];
    for row in &answer.rows {
        let value = row.fault.as_ref().map(|why| format!("FAULT {why}")).or_else(|| row.value.clone());
        rows.push(vec![row.key.clone(), value.unwrap_or_default()]);
    }
    text.push_str(&render::table(&rows, &[]));
    answer.faults.iter().for_each(|fault| text.push_str(&format!("fault: {fault}\n")));
    text.push('\n');
    text
}

// ------------------------------------------------------------------------------------------ sheets

fn sheets(global: &Global, sheets: Vec<Sheet>) -> Result<Outcome, Failure> {
    global.out().answer(&sheets, |sheets| sheets.iter().map(sheet_text).collect::<Vec<_>>().join("\n"))?;
    let well = sheets.iter().all(|sheet| sheet.faults.is_empty());
    Ok(if well { Outcome::Done } else { Outcome::Problems })
}

fn sheet_text(sheet: &Sheet) -> String {
    let mut text = format!("{}\n\n", sheet.what);
    if !sheet.fields.is_empty() {
        let mut rows = vec![vec!["BYTE".to_owned(), "FIELD".to_owned(), "VALUE".to_owned()]];
        for field in &sheet.fields {
            let at = field.at_byte.map_or_else(|| "-".to_owned(), |at| at.to_string());
            rows.push(vec![at, field.name.clone(), field.value.clone()]);
        }
        text.push_str(&render::table(&rows, &[0]));
    }
    if !sheet.rows.is_empty() {
        let head = sheet.columns.iter().map(|&name| name.to_owned()).collect();
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(sheet.rows.iter().cloned()).collect();
        text.push_str(&format!("\n{}", render::table(&rows, &[])));
    }
    for fault in &sheet.faults {
        let at = fault.at_byte.map_or_else(String::new, |at| format!("at byte {at}: "));
        text.push_str(&format!("fault: {at}{}\n", fault.why));
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn prefixes_of_keys() {
        assert_eq!(parse_prefix("").unwrap().0, b"");
        assert_eq!(parse_prefix("I").unwrap().0, b"I");
        assert_eq!(parse_prefix("E258").unwrap().0, b"E\0\0\0\0\0\0\x01\x02");
        assert!(parse_prefix("e1").is_err() && parse_prefix("Ex").is_err());
    }

    #[test]
    fn a_sheet_as_text() {
        let mut sheet = Sheet::new("thing");
        sheet.field(8, "version", 1);
        sheet.columns = vec!["A", "B"];
        sheet.rows.push(vec!["x".into(), "y".into()]);
        sheet.fault(16, "wrong");
        let text = sheet_text(&sheet);
        assert!(
            text.starts_with("thing\n") && text.contains("version") && text.ends_with("fault: at byte 16: wrong\n"),
            "{text}"
        );
    }
}
