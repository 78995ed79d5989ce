//! `larder up --import`: a box comes back from its disks, or from its bucket, on a machine that is no box yet.
//!
//! - `reborn.looks_first`: nothing is written into the data folder before the record was opened and a person, or `--yes`, said so.
//! - `reborn.once`: from then on the data folder has everything together, and a start that follows a crash goes on with it
//!   (`contents.whole_or_nothing`).
//! - `reborn.own_pools_alone`: of the pools on the disks the box takes those that hold its record, never one of another box, whatever
//!   their names are: two boxes usually have a pool 'tank' each. A pool that stays out is closed, and a note names it.
//! - `reborn.doors_stay`: a service that serves nothing yet, as a package leaves it, becomes the box in its own data folder, at the
//!   addresses of its own configuration. It is started by its service manager, not by the import.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_api::{BoxFound, Failure, FailureKind, PoolImport};
use larder_base::shell;
use larder_crypt::Secret;
use larder_keep::Store;
use larder_pool::{Event, EventKind, FoundPool, Pool};

use super::args::{Global, UpArgs};
use super::password;
use super::reach::memory;
use crate::out;
use larder_config::times;
use larder_config::{Config, StoreSettings};
use larder_copies::box_record::contents::PENDING;
use larder_copies::box_record::found::{self, OpenedBox};
use larder_copies::box_record::versions;
use larder_copies::bucket::{taking, this_machine};
use larder_daemon::{import_options, open_pool};
use larder_document::folder::{CONFIG_NAME, DataFolder};

/// A history is shorter.
const HISTORY_BYTES_MAX: u64 = 8 << 20;

/// A box that was found and opened, with its pools open.
pub(super) struct Import {
    folder: DataFolder,
    pools: Vec<Candidate>,
    opened: OpenedBox,
}

/// A pool on the disks, or a store, that was opened.
struct Candidate {
    pool: Store,
    /// The pool in words.
    described: String,
}

/// A pool on the disks that could not be opened.
struct Refused {
    name: String,
    failure: Failure,
}

/// The whole of `--import`: finds, asks, and makes the data folder that of the box. The caller starts it.
pub(super) async fn run(
    global: &Global,
    args: &UpArgs,
    (disks, stores): (Vec<PathBuf>, Vec<StoreSettings>),
    data: &Path,
) -> Result<Begins, Failure> {
    let service = may_begin(data)?;
    let secret = secret_of(args)?;
    let folder = DataFolder::claim(data).map_err(|failure| match service {
        Some(_) if failure.kind == FailureKind::Busy => failure.action(
            "stop the service (sudo systemctl stop larder), repeat this command, and start it again: it becomes the box, at its \
             own doors. Or name another data folder with --data DIR",
        ),
        _ => failure,
    })?;
    let import = Import::open(args, (disks, stores), folder, secret).await?;
    let found = import.shown()?;
    if !args.yes {
        if global.json {
            import.close().await?;
            return Err(Failure::invalid("nobody is asked with --json; nothing was changed")
                .action("if you mean it, add --yes"));
        }
        if !confirmed(&found)? {
            import.close().await?;
            return Err(Failure::invalid("nothing was changed"));
        }
    } else if !global.json {
        out::say(&text(&found));
    }
    let begins = if service.is_some() { Begins::AsService } else { Begins::Here };
    import.finish(service.as_deref()).await?;
    Ok(begins)
}

/// Who starts the box that an import made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begins {
    Here,
    /// Whoever started the service that had nothing to serve.
    AsService,
}

/// The configuration of a service that serves nothing yet, if there is one (`reborn.doors_stay`).
fn may_begin(data: &Path) -> Result<Option<String>, Failure> {
    let file = data.join(CONFIG_NAME);
    if !file.exists() {
        return Ok(None);
    }
    if Config::load(&file)?.is_blank() {
        let text = std::fs::read_to_string(&file).map_err(|error| Failure::io(file.display(), &error))?;
        return Ok(Some(text));
    }
    let message = format!("the data folder {} is that of a box already", data.display());
    Err(Failure::exists(message).action(format!(
        "start that one with: larder --data {} up; for the box of these disks name another folder with --data DIR",
        shell::word(data)
    )))
}

fn secret_of(args: &UpArgs) -> Result<Secret, Failure> {
    let typed = match (&args.password_file, &args.recovery_key_file) {
        (Some(file), _) | (None, Some(file)) => password::passphrase_in(file)?,
        (None, None) => {
            use std::io::IsTerminal;
            if !std::io::stdin().is_terminal() {
                return Err(Failure::invalid("the record of a box opens with a secret, and nobody is there to type it").action(
                    "name a file: --password-file FILE (of an owner of the box) or --recovery-key-file FILE; without either the data \
                     opens, and people are asked for anew: larder up DIR...",
                ));
            }
            password::secret_line("Password of an owner of the box, or its recovery key", false)?
        }
    };
    match found::secret_of(&typed) {
        Secret::Passphrase(_) if args.recovery_key_file.is_some() => {
            Err(Failure::invalid("this is no recovery key: it has eleven groups of five; look for a typing error"))
        }
        secret => Ok(secret),
    }
}

impl Import {
    /// Opens the pools on `disks`, whatever the order or paths, or the store, and the box in them.
    pub(super) async fn open(
        args: &UpArgs,
        (disks, stores): (Vec<PathBuf>, Vec<StoreSettings>),
        folder: DataFolder,
        secret: Secret,
    ) -> Result<Self, Failure> {
        if folder.path().join(PENDING).exists() {
            return Err(Failure::busy("an import into this data folder was cut off after its confirmation")
                .action(format!("go on with it: larder --data {} up", shell::word(folder.path()))));
        }
        let (pools, refused) = open_pools(args, (&disks, &stores), &folder).await?;
        match newest(&pools, &Arc::new(secret)).await {
            Ok(mut opened) => {
                let pools = keep_own(pools, refused, &mut opened).await?;
                Ok(Self { folder, pools, opened })
            }
            Err(failure) => {
                close(&pools).await?;
                // The record of the box may be in the pool that was refused.
                Err(refused.into_iter().next().map_or(failure, |refused| refused.failure))
            }
        }
    }

    pub(super) fn shown(&self) -> Result<BoxFound, Failure> {
        let described = self.pools.iter().map(|one| one.described.clone()).collect();
        self.opened.shown(self.folder.path(), described)
    }

    pub(super) async fn close(self) -> Result<(), Failure> {
        close(&self.pools).await
    }

    /// Makes the data folder that of the box, at the doors of `service`, and closes the pools.
    pub(super) async fn finish(self, service: Option<&str>) -> Result<(), Failure> {
        let Self { folder, pools, opened, .. } = self;
        let data = folder.path();
        let places: Vec<(String, Vec<PathBuf>)> = pools
            .iter()
            .filter(|one| one.pool.has_disks())
            .map(|one| (one.pool.name.clone(), one.pool.disks_staying()))
            .collect();
        let made = opened.config_for(data, &places, service).and_then(|text| Ok((text, opened.next_life()?)));
        // Before the files are there: a start goes on with closed pools.
        close(&pools).await?;
        let (text, own) = made?;
        opened.contents.with_config(text).put_back(data, &data.join(CONFIG_NAME), Some(own))
    }
}

async fn close(pools: &[Candidate]) -> Result<(), Failure> {
    let mut closed = Ok(());
    for one in pools {
        closed = closed.and(one.pool.close().await);
    }
    closed
}

/// Opens all pools on the disks, and the stores. A pool that is refused stops the import only if the box needs it ([`keep_own`]).
async fn open_pools(
    args: &UpArgs,
    (disks, stores): (&[PathBuf], &[StoreSettings]),
    folder: &DataFolder,
) -> Result<(Vec<Candidate>, Vec<Refused>), Failure> {
    let found = Pool::scan(disks);
    if found.is_empty() && stores.is_empty() {
        return Err(Failure::not_found("none of these folders is a disk of a pool")
            .action("name the folders that the pool was made of, wherever they are now; look at them with: larder pool list DIR..."));
    }
    let (mut pools, mut refused) = (Vec::new(), Vec::new());
    for one in &found {
        let request = PoolImport {
            disks: disks_for(one, disks),
            force: args.force,
            degraded: args.degraded,
            pool: Some(one.id.to_string()),
            rename: None,
            accept_loss: None,
        };
        match open_pool(import_options(&request, folder.path()), memory()).await {
            Ok(pool) => pools.push(Candidate { pool, described: describe(one) }),
            Err(failure) => refused.push(Refused { name: one.name.clone(), failure: in_words(failure, one) }),
        }
    }
    for store in stores {
        let opened = match this_machine(folder) {
            Ok(machine) => Store::start_bucket(store, taking(machine, args.force), memory()).await,
            Err(failure) => Err(failure),
        };
        match opened {
            Ok(pool) => {
                let described = format!("store {} ({})", pool.name, store.bucket.url);
                pools.push(Candidate { pool, described });
            }
            Err(failure) => {
                close(&pools).await?;
                return Err(failure);
            }
        }
    }
    match (pools.is_empty(), refused.is_empty()) {
        (true, false) => Err(refused.swap_remove(0).failure),
        _ => Ok((pools, refused)),
    }
}

/// The folders of a pool, and those of no pool: a label may be damaged.
fn disks_for(pool: &FoundPool, disks: &[PathBuf]) -> Vec<PathBuf> {
    let of_another = |disk: &PathBuf| Pool::scan(std::slice::from_ref(disk)).iter().any(|found| found.id != pool.id);
    disks.iter().filter(|disk| !of_another(disk)).cloned().collect()
}

/// Whose record a pool holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holds {
    AnotherBox,
    /// No record, or none that can be read.
    NoBox,
    /// With the number of the newest version, and when it was written.
    This(u64, i64),
}

async fn holds(pool: &Store, opened: &OpenedBox) -> Result<Holds, Failure> {
    let store = pool.store();
    let all = versions::list(&*store, None).await?;
    let is_of_others = !all.is_empty() && all.iter().all(|one| one.place.box_id != opened.contents.box_id);
    Ok(match opened.newest_of(&all, &store).await? {
        Some((number, written_secs)) => Holds::This(number, written_secs),
        None if is_of_others => Holds::AnotherBox,
        None => Holds::NoBox,
    })
}

/// The pools of this box (`reborn.own_pools_alone`); the others are closed. A pool that the box names and that was refused is the
/// failure of the import.
async fn keep_own(
    pools: Vec<Candidate>,
    refused: Vec<Refused>,
    opened: &mut OpenedBox,
) -> Result<Vec<Candidate>, Failure> {
    let mut ranked = Vec::new();
    let mut failed = None;
    for one in pools {
        let holds = match one.pool.has_disks() {
            true => holds(&one.pool, opened).await.unwrap_or_else(|failure| {
                failed.get_or_insert(failure);
                Holds::AnotherBox
            }),
            // Somebody named it.
            false => Holds::This(u64::MAX, 0),
        };
        ranked.push((holds, one));
    }
    // Of two pools of one name the one with the newer record.
    ranked.sort_by_key(|(holds, _)| std::cmp::Reverse(*holds));
    let named = opened.pool_names()?;
    let (mut kept, mut out, mut taken) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (holds, one) in ranked {
        let is_own = match holds {
            Holds::This(number, _) => named.contains(&one.pool.name) || number >= opened.contents.number,
            // Its record could not be written, perhaps.
            Holds::NoBox => named.contains(&one.pool.name),
            Holds::AnotherBox => false,
        };
        match is_own && taken.insert(one.pool.name.clone()) {
            true => kept.push(one),
            false => out.push((holds, one)),
        }
    }
    let mut notes = BTreeSet::new();
    for one in &kept {
        notes.extend(one.pool.notes());
    }
    for Refused { name, failure } in refused {
        if named.contains(&name) && !taken.contains(&name) {
            failed.get_or_insert(failure);
        } else {
            notes.insert(format!(
                "pool '{name}' is none of this box and stays out; it was not opened: {}",
                failure.message
            ));
        }
    }
    for (holds, one) in &out {
        let why = match holds {
            Holds::AnotherBox => "belongs to another box",
            Holds::NoBox | Holds::This(..) => "is not in the configuration of this box",
        };
        let name = &one.pool.name;
        notes.insert(format!(
            "{}: '{name}' {why}, and stays out; take it in later with: larder pool import",
            one.described
        ));
    }
    let out: Vec<Candidate> = out.into_iter().map(|(_, one)| one).collect();
    let closed = close(&out).await;
    if let Some(failure) = failed {
        close(&kept).await?;
        return Err(failure);
    }
    closed?;
    opened.notes.extend(notes);
    Ok(kept)
}

fn describe(pool: &FoundPool) -> String {
    let away = pool.disks.iter().filter(|disk| !disk.present).count();
    let away = if away == 0 { String::new() } else { format!(", {away} of them away") };
    format!("pool {} ({}, {} disks{away})", pool.name, pool.layout, pool.disks.len())
}

/// Where and since when another machine has the pool open, as its disks say; and this command in place of `pool import`.
fn in_words(mut failure: Failure, pool: &FoundPool) -> Failure {
    failure.action =
        failure.action.map(|action| action.replace("larder pool import --degraded", "larder up --import --degraded"));
    if failure.kind != FailureKind::Busy {
        return failure;
    }
    let present = pool.disks.iter().filter(|disk| disk.present);
    let opened = present.filter_map(|disk| opened_at_ms(&disk.path)).max();
    let since = opened.map(|at| format!(" since {}", times::local(at))).unwrap_or_default();
    let host = pool.host.as_deref().unwrap_or("another machine");
    let message = format!("{} ('{}' is open on '{host}'{since}, as its disks say)", failure.message, pool.name);
    Failure { message, ..failure }
}

/// When the pool was opened last, as the history on one of its disks has it. Of interest to people alone.
fn opened_at_ms(disk: &Path) -> Option<u64> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(disk.join("larder.history")).ok()?;
    file.take(HISTORY_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    // Behind a header each line is an event.
    let from = bytes.iter().position(|byte| *byte == b'{')?;
    let events =
        bytes[from..].split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Event>(line).ok());
    let opening = [EventKind::Created, EventKind::Opened, EventKind::Imported].map(EventKind::name);
    events.filter(|event| opening.contains(&event.kind.as_str())).map(|event| event.at_ms).max()
}

/// Of the boxes in several pools the one that was written last.
async fn newest(pools: &[Candidate], secret: &Arc<Secret>) -> Result<OpenedBox, Failure> {
    let (mut best, mut failed) = (None::<OpenedBox>, None);
    for one in pools {
        match found::open(one.pool.store(), secret).await {
            Ok(Some(opened)) => {
                let is_newer = best.as_ref().is_none_or(|best| {
                    let age = |opened: &OpenedBox| (opened.contents.number, opened.contents.written_secs);
                    age(&opened) > age(best)
                });
                if is_newer {
                    best = Some(opened);
                }
            }
            Ok(None) => {}
            Err(failure) => failed = Some(failure),
        }
    }
    best.map_or_else(
        || {
            Err(failed.unwrap_or_else(|| {
                Failure::not_found("no box has left a record here: an older larder kept none")
                    .action("open the data, and make people anew: larder up DIR...")
            }))
        },
        Ok,
    )
}

pub(super) fn text(found: &BoxFound) -> String {
    let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let when = times::local_secs(i64::try_from(found.written_secs).unwrap_or(0));
    let mut text = format!("These disks hold the box '{}':\n\n", found.name);
    for pool in &found.pools {
        text.push_str(&format!("  {pool}\n"));
    }
    text.push_str(&format!(
        "  written  {when}, by {} (version {}, life {})\n  users    {}\n  shares   {}\n  doors    {}\n",
        found.machine,
        found.number,
        found.life,
        list(&found.users),
        list(&found.shares),
        list(&found.doors)
    ));
    found.notes.iter().for_each(|note| text.push_str(&format!("  note     {note}\n")));
    text
}

/// Asks a person; a script must say --yes.
fn confirmed(found: &BoxFound) -> Result<bool, Failure> {
    use std::io::{IsTerminal, Write};
    if !std::io::stdin().is_terminal() {
        out::say(&text(found));
        return Err(
            Failure::invalid("nobody is there to confirm it; nothing was changed").action("if you mean it, add --yes")
        );
    }
    out::ask(&format!("{}\nThis machine becomes that box. Type yes: ", text(found)));
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|e| Failure::io("cannot read the answer", &e))?;
    Ok(line.trim() == "yes")
}
