//! `larder pool ...`

use std::path::{Path, PathBuf};
use std::time::Duration;

use larder_api::endpoints::{ClearPool, ExportPool, GetInfo, GetPools, ImportPool, ListPools, RenamePool};
use larder_api::{
    Done, Failure, LayoutSpeed, LayoutsPreview, LayoutsRequest, PoolImport, PoolListed, PoolRename, PoolStatus,
    SpeedRange, TakeAway, VolumeStatus,
};
use larder_base::units::ByteSize;
use larder_facts::Machine;
use larder_measure::doctor::{What, rate_words};
use larder_pool::{CreateOptions, Layout, OpenOptions, Plan, Pool};

use super::args::{Disks, Global, PoolCommand};
use super::change;
use super::reach::{Backend, Outcome, Target, absolute, closing, direct, is_path, maybe_target, target};
use crate::out;
use crate::render::{self, Paint};
use larder_config::edit::{Editor, fresh, replace_file};
use larder_config::{Config, PoolConfig, Schedule, check_name};
use larder_daemon::disks;
use larder_daemon::{check_names, import_options, open_configured, open_pool, take_in, translate};
use larder_document::folder::{self, DataFolder};
use larder_document::last_lives::Remembered;

/// How long each running daemon has for saying which disks it serves.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) async fn run(global: &Global, command: PoolCommand) -> Result<Outcome, Failure> {
    match command {
        PoolCommand::Create { words, layout, width, dry_run, force } => {
            create(global, &words, layout, width, dry_run, force).await?;
        }
        PoolCommand::Status { words, unwell, verbose } => return status(global, &words, unwell, verbose).await,
        PoolCommand::Scrub(command) => return super::scrub::run(global, command).await,
        PoolCommand::List { dirs } => list(global, &dirs).await?,
        PoolCommand::Import { dirs, force, degraded, pool, rename, accept_loss } => {
            let disks = absolute_all(&dirs)?;
            import(global, PoolImport { disks, force, degraded, pool, rename, accept_loss }).await?;
        }
        PoolCommand::Rename { old, new, force } => rename(global, &old, new, force).await?,
        PoolCommand::Export { words, force } => export(global, &words, force).await?,
        PoolCommand::Destroy { name, yes, force } => {
            super::destroy::run(global, &name, yes, TakeAway { force, with_snapshots: true }).await?
        }
        PoolCommand::History { words, last } => super::history::run(global, &words, last).await?,
        PoolCommand::Clear { words } => clear(global, &words).await?,
        other => change::run(global, other).await?,
    }
    Ok(Outcome::Done)
}

/// NAME DIR..., or DIR... when the first word is a path.
fn name_and_dirs(words: &[String]) -> Result<(String, Vec<PathBuf>), Failure> {
    let (name, dirs) = match words.split_first() {
        Some((name, dirs)) if !is_path(name) => (name.clone(), dirs),
        _ => ("tank".to_owned(), words),
    };
    check_name(&name).map_err(Failure::invalid)?;
    if dirs.is_empty() {
        return Err(Failure::invalid(format!("pool '{name}' has no disks"))
            .action(format!("name them: larder pool create {name} DIR... --layout raidz1")));
    }
    Ok((name, absolute_all(dirs)?))
}

fn absolute_all<P: AsRef<Path>>(dirs: &[P]) -> Result<Vec<PathBuf>, Failure> {
    dirs.iter().map(|dir| absolute(dir.as_ref())).collect()
}

async fn create(
    global: &Global,
    words: &[String],
    layout: Option<Layout>,
    width: Option<u8>,
    dry_run: bool,
    force: bool,
) -> Result<(), Failure> {
    let (name, disks) = name_and_dirs(words)?;
    let here = maybe_target(global).await.ok().flatten();
    check_free(here.as_ref(), &name, &disks).await?;
    // Before the layout: who comes from zpool names devices, and no layout.
    super::place::no_devices(&disks)?;
    if layout.is_none() && dry_run {
        return preview(global, disks);
    }
    let layout = layout.ok_or_else(|| {
        Failure::invalid(format!("pool '{name}' has no layout")).action(
            "choose one with --layout: mirror (2 copies), mirror3, raidz1, raidz2, raidz3 (1 to 3 disks may fail) or stripe (none may); \
             what each gives: --dry-run",
        )
    })?;
    let options = CreateOptions { width, ..CreateOptions::new(name, layout, disks.clone()) };
    let plan = Pool::plan(&options).map_err(|e| translate::pool_error(&e))?;
    super::place::fit(&disks, force)?;
    super::disk::warn_of(&disks, &[], global.json);
    if dry_run {
        return global.out().answer(&plan, |plan| plan_text(&options, plan));
    }
    let pool = Pool::create(options).await.map_err(|e| translate::pool_error(&e))?;
    let status = translate::pool_status(pool.status());
    pool.close().await.map_err(|e| translate::pool_error(&e))?;
    let dirs: Vec<String> = disks.iter().map(|d| d.display().to_string()).collect();
    global.out().answer(&status, |status| {
        let paint = Paint { colour: out::colour() };
        let tree = render::status::pool(status, false, paint);
        // A daemon, or a data folder, serves other pools already.
        let serve = if here.is_some() { "larder pool import" } else { "larder up" };
        format!("{tree}\nnext: serve it with: {serve} {}", dirs.join(" "))
    })
}

/// What each layout would make of the disks.
fn preview(global: &Global, folders: Vec<PathBuf>) -> Result<(), Failure> {
    let request = LayoutsRequest { folders, devices: Vec::new() };
    let preview = disks::layouts(&Machine::this(), &request)?;
    global.out().answer(&preview, preview_text)
}

fn preview_text(preview: &LayoutsPreview) -> String {
    let header = ["LAYOUT", "USABLE", "MAY FAIL", "READS", "WRITES", "RANDOM READS"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let mut refused = String::new();
    for one in &preview.layouts {
        if let Some(why) = &one.refused {
            refused.push_str(&format!("{} is not possible: {why}\n", one.layout));
            continue;
        }
        let up_to = |range: fn(&LayoutSpeed) -> SpeedRange, of| {
            one.speed
                .as_ref()
                .map_or("not known".to_owned(), |speed| format!("up to {}", rate_words(range(speed).high, of)))
        };
        rows.push(vec![
            one.layout.clone(),
            ByteSize(one.usable_bytes).to_string(),
            one.failures_survived.to_string(),
            up_to(|speed| speed.read, What::Read),
            up_to(|speed| speed.write, What::Write),
            up_to(|speed| speed.random_read, What::RandomRead),
        ]);
    }
    let mut text = render::table(&rows, &[1, 2]);
    text.push_str(&format!("\n{refused}"));
    if let Some(speed) = preview.layouts.iter().find_map(|one| one.speed.as_ref()) {
        text.push_str(&format!("speed: {}\n", speed.source));
    }
    text.push_str("nothing was changed: this was a dry run; make one with --layout");
    text
}

/// Refuses a name that a pool or store has here.
async fn check_free(here: Option<&Target>, name: &str, disks: &[PathBuf]) -> Result<(), Failure> {
    let is_taken = match here {
        Some(Target::Daemon(client)) => {
            let pools = client.ask(GetPools).await?;
            pools.iter().any(|pool| pool.name == name)
        }
        Some(Target::Config(config)) => config.has_ground(name),
        None => false,
    };
    if !is_taken {
        return Ok(());
    }
    let words: Vec<String> = disks.iter().map(|disk| larder_base::shell::word(disk)).collect();
    Err(Failure::exists(format!("a pool or store is called '{name}' here already")).action(format!(
        "choose another name: larder pool create NAME {}; see which there are with: larder pool list",
        words.join(" ")
    )))
}

/// Gives a pool another name, and the configuration with it.
async fn rename(global: &Global, old: &str, new: String, force: bool) -> Result<(), Failure> {
    check_name(&new).map_err(Failure::invalid)?;
    let status = match target(global).await? {
        Target::Daemon(client) => {
            let request = PoolRename { name: new.clone(), force };
            client.call(RenamePool, old, &request).await?
        }
        Target::Config(config) => {
            let Some(pool) = config.pool(old) else {
                return Err(Failure::not_found(format!("there is no pool '{old}' in {}", config.data.display())));
            };
            larder_daemon::check_free(&config, &new)?;
            let mut editor = Editor::open(&absolute(&config.data.join(folder::CONFIG_NAME))?)?;
            editor.rename_pool(old, &new);
            let staged = editor.stage()?;
            let options = OpenOptions {
                name: Some(old.to_owned()),
                rename: Some(new.clone()),
                last_lives: Some(Remembered::of(&config.data)),
                ..OpenOptions::new(pool.disks.clone())
            };
            let open = open_pool(options, super::reach::memory()).await?;
            let status = open.status();
            open.close().await?;
            staged.commit()?;
            status
        }
    };
    let text = format!("'{old}' is called '{new}' now; its volumes, shares, schedules and replications follow");
    global.out().answer(&status, |_| text.clone())
}

fn plan_text(options: &CreateOptions, plan: &Plan) -> String {
    let mut text = format!(
        "would make the pool '{}': {} over {} disks, {} data + {} redundant per object\n",
        options.name,
        plan.layout,
        plan.disks.len(),
        plan.data,
        plan.parity
    );
    text.push_str(&format!("  raw        {}\n", ByteSize(plan.raw_bytes)));
    text.push_str(&format!("  usable     {}\n", ByteSize(plan.usable_bytes)));
    let survives = match plan.failures_survived {
        0 => "no disk may fail".to_owned(),
        1 => "any 1 disk may fail".to_owned(),
        n => format!("any {n} disks may fail"),
    };
    text.push_str(&format!("  survives   {survives}\n\n"));
    let mut rows = vec![vec!["DISK".to_owned(), "SIZE".to_owned(), "USED FOR DATA".to_owned()]];
    for disk in &plan.disks {
        let used = ByteSize(disk.used_bytes).to_string();
        rows.push(vec![disk.path.display().to_string(), ByteSize(disk.size_bytes).to_string(), used]);
    }
    text.push_str(&render::table(&rows, &[1, 2]));
    for warning in &plan.warnings {
        text.push_str(&format!("warning: {warning}\n"));
    }
    text.push_str("\nnothing was changed: this was a dry run\n");
    text
}

/// The pools that the words name: folders, a pool, or all.
async fn statuses(global: &Global, words: &[String]) -> Result<Vec<PoolStatus>, Failure> {
    if let Some(dirs) = as_dirs(words)? {
        return match held_by_daemon(&dirs).await {
            Some((client, name)) => {
                let all = client.ask(GetPools).await?;
                Ok(all.into_iter().filter(|p| p.name == name).collect())
            }
            None => closing(direct(&dirs).await?, async |storage| Ok(storage.statuses().await)).await,
        };
    }
    let all: Vec<PoolStatus> = match target(global).await? {
        Target::Daemon(client) => client.ask(GetPools).await?,
        Target::Config(config) => {
            let mut all = Vec::new();
            for pool in &config.pools {
                all.push(match open_configured(pool, &config.data, false, false, super::reach::memory()).await {
                    Ok(open) => {
                        let status = open.status_with_damage().await;
                        open.close().await?;
                        status
                    }
                    Err(failure) => translate::unavailable_pool(&pool.name, &pool.disks, &failure),
                });
            }
            all
        }
    };
    let Some(unknown) = words.iter().find(|word| all.iter().all(|p| p.name != **word)) else {
        return Ok(all.into_iter().filter(|p| words.is_empty() || words.contains(&p.name)).collect());
    };
    let names: Vec<&str> = all.iter().map(|p| p.name.as_str()).collect();
    Err(Failure::not_found(format!("there is no pool '{unknown}' here (there are: {})", names.join(", "))))
}

async fn status(global: &Global, words: &[String], unwell: bool, verbose: bool) -> Result<Outcome, Failure> {
    let pools = statuses(global, words).await?;
    global.out().answer(&pools, |pools| {
        let paint = Paint { colour: out::colour() };
        let texts: Vec<String> = pools.iter().map(|p| render::status::pool(p, verbose, paint)).collect();
        match texts.is_empty() {
            true => "no pools".to_owned(),
            false if unwell => render::status::unwell(pools),
            false => texts.join("\n"),
        }
    })?;
    let all_well = pools.iter().all(render::status::is_well);
    Ok(if unwell && !all_well { Outcome::Unwell } else { Outcome::Done })
}

/// Words that are all folders, made absolute; `None` if they name pools (or there are none).
pub(super) fn as_dirs(words: &[String]) -> Result<Option<Vec<PathBuf>>, Failure> {
    let dir = |word: &String| is_path(word) || Path::new(word).is_dir();
    if words.is_empty() || !words.iter().all(dir) {
        return Ok(None);
    }
    absolute_all(words).map(Some)
}

/// The daemon that serves the pool on these disks, and its name there.
pub(super) async fn held_by_daemon(dirs: &[PathBuf]) -> Option<(larder_api::Client, String)> {
    let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let wanted: Vec<PathBuf> = dirs.iter().map(real).collect();
    for (_, client) in super::reach::running().await {
        // One that hangs must not hold up a question about other disks; its own disks are locked, which says so.
        let asked = tokio::time::timeout(PROBE_TIMEOUT, client.ask(GetInfo)).await;
        let Ok(Ok(info)) = asked else { continue };
        let ours = |disks: &[PathBuf]| disks.iter().any(|d| wanted.contains(&real(d)));
        if let Some((name, _)) = info.disks.into_iter().find(|(_, disks)| ours(disks)) {
            return Some((client, name));
        }
    }
    None
}

/// The backend that has the pools, and their names; all of them where none is named.
pub(super) async fn backend(global: &Global, words: &[String]) -> Result<(Backend, Vec<String>), Failure> {
    let backend = match as_dirs(words)? {
        Some(dirs) => match held_by_daemon(&dirs).await {
            Some((client, name)) => return Ok((Backend::Daemon(client), vec![name])),
            None => {
                let backend = Backend::Direct(direct(&dirs).await?);
                let names = backend.pools().await?;
                return Ok((backend, names));
            }
        },
        None => {
            words.iter().try_for_each(|word| check_name(word)).map_err(Failure::invalid)?;
            Backend::of(global, &Disks::default()).await?
        }
    };
    let names = if words.is_empty() { backend.pools().await? } else { words.to_vec() };
    Ok((backend, names))
}

async fn list(global: &Global, dirs: &[PathBuf]) -> Result<(), Failure> {
    let pools = match dirs.is_empty() {
        false => found(&absolute_all(dirs)?),
        true => match target(global).await? {
            Target::Daemon(client) => client.ask(ListPools).await?,
            Target::Config(config) => found(&config.pools.iter().flat_map(|p| p.disks.clone()).collect::<Vec<_>>()),
        },
    };
    global.out().answer(&pools, |pools| render::pool_list(pools))
}

/// Pools by their labels alone: nothing is opened.
fn found(dirs: &[PathBuf]) -> Vec<PoolListed> {
    Pool::scan(dirs).into_iter().map(translate::found_pool).collect()
}

/// With `accept_loss` the pool of that name is opened once although changes are lost; the pool itself remembers what follows
/// from that.
async fn import(global: &Global, request: PoolImport) -> Result<(), Failure> {
    let mut next = "serve it with: larder serve";
    let status = match maybe_target(global).await? {
        Some(Target::Daemon(client)) => {
            next = "what is shared of it: larder share list";
            client.call(ImportPool, (), &request).await?
        }
        configured => {
            let config = match configured {
                Some(Target::Config(config)) => *config,
                _ => new_config(global)?,
            };
            check_names(&config, &config.data, &request)?;
            // The labels may change at the import: a file that cannot be written is found before.
            drop(Editor::open(&absolute(&config.data.join(folder::CONFIG_NAME))?)?.stage()?);
            let mut options = import_options(&request, &config.data);
            if let Some(name) = &request.accept_loss {
                options.disks = config.disks_of(name, request.disks.clone())?;
            }
            let pool = open_pool(options, super::reach::memory()).await?;
            let status = pool.status();
            let volumes = pool.volumes().await;
            let disks = pool.disks_staying();
            pool.close().await?;
            add_to_config(
                &config,
                &PoolConfig { name: status.name.clone(), disks, scrub: Schedule::default() },
                &volumes?,
            )?;
            status
        }
    };
    global.out().answer(&status, |status| {
        let notes: String = status.notes.iter().map(|note| format!("{note}\n")).collect();
        format!("{notes}imported the pool '{}' ({}); {next}", status.name, status.state)
    })
}

fn add_to_config(config: &Config, pool: &PoolConfig, volumes: &[VolumeStatus]) -> Result<(), Failure> {
    let mut editor = Editor::open(&absolute(&config.data.join(folder::CONFIG_NAME))?)?;
    take_in(&mut editor, config, pool, volumes);
    editor.save().map(drop)
}

/// An empty configuration in the data folder, which is made.
fn new_config(global: &Global) -> Result<Config, Failure> {
    let data = absolute(&global.data_named().unwrap_or_else(|| PathBuf::from(folder::DEFAULT)))?;
    let folder = DataFolder::claim(&data)?;
    let file = folder.path().join(folder::CONFIG_NAME);
    let config = Config::parse("", &file)?;
    replace_file(&file, fresh(&config, folder.path()).as_bytes(), 0o600)?;
    Ok(config)
}

async fn export(global: &Global, words: &[String], force: bool) -> Result<(), Failure> {
    let request = TakeAway { force, ..TakeAway::default() };
    if let Some(dirs) = as_dirs(words)? {
        match held_by_daemon(&dirs).await {
            Some((client, name)) => client.call(ExportPool, &name, &request).await?,
            None => closing_export(direct(&dirs).await?).await?,
        };
        return global.out().answer(&Done {}, |_| "exported: the disks may be moved to another machine".to_owned());
    }
    for name in words {
        check_name(name).map_err(Failure::invalid)?;
        match target(global).await? {
            Target::Daemon(client) => {
                client.call(ExportPool, name, &request).await?;
            }
            Target::Config(config) => {
                let Some(pool) = config.pool(name) else {
                    return Err(Failure::not_found(format!("there is no pool '{name}' in {}", config.data.display())));
                };
                let mut editor = Editor::open(&absolute(&config.data.join(folder::CONFIG_NAME))?)?;
                editor.remove_pool(name);
                let staged = editor.stage()?;
                closing_export(direct(&pool.disks).await?).await?;
                staged.commit()?;
            }
        }
    }
    global.out().answer(&Done {}, |_| "exported: the disks may be moved to another machine".to_owned())
}

async fn closing_export(storage: larder_keep::Storage) -> Result<Done, Failure> {
    for pool in storage.all() {
        pool.export().await?;
    }
    Ok(Done {})
}

async fn clear(global: &Global, words: &[String]) -> Result<(), Failure> {
    let (backend, names) = backend(global, words).await?;
    let clearing = async |backend: &Backend| {
        for name in &names {
            backend.call(ClearPool, name, ()).await?;
        }
        match backend {
            Backend::Daemon(client) => client.ask(GetPools).await,
            Backend::Direct(storage) => Ok(storage.statuses().await),
        }
    };
    let pools = backend.closing(clearing).await?;
    global.out().answer(&Done {}, |_| {
        let mut text = "error counters are zero again".to_owned();
        // That mends no disk that is away.
        for pool in pools.iter().filter(|pool| names.contains(&pool.name) && pool.state != "ONLINE") {
            text.push_str(&format!("\n{} is {}", pool.name, pool.state));
            let more = [("; ", &pool.status), ("\n", &pool.action)];
            more.into_iter()
                .for_each(|(before, said)| said.iter().for_each(|said| text.push_str(&format!("{before}{said}"))));
        }
        text
    })
}
