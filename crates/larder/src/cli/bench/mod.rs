//! `larder bench ...`: measuring storage from the disk up.

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use larder_api::Failure;
use larder_base::task;
use larder_facts::Machine;
use larder_load::client::{ClientOptions, password_in};
use larder_load::{BenchError, Control, Device};
use larder_measure::bench::{self, DiskTarget, FarEnd, Finished, Host, PoolTarget, Request, Subjects, history};
use tokio::signal::unix::{SignalKind, signal};

use super::args::Global;
use super::reach::absolute;
use crate::out;

pub(crate) mod args;
pub(crate) mod show;

pub(crate) use args::BenchCommand;
use args::{AllArgs, DiskArgs, How, KeptArgs, Login, NetArgs, PoolArgs, ShareArgs};
use larder_daemon::bench_progress::{Drawing, Shown};
use larder_daemon::bench_words::{disk_target, failure, keep_page, share_target};
use show::Form;

/// How long the other end of the wire waits to be measured.
const LISTEN_S: f64 = 3600.0;

pub(super) async fn run(global: &Global, command: BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Disk(args) => {
            let subjects = Subjects { disks: disks(&args)?, ..Subjects::default() };
            measure(global, "disk", subjects, &args.how, ClientOptions::default()).await
        }
        BenchCommand::Pool(args) => {
            let subjects = Subjects { pool: Some(pool(&args)?), ..Subjects::default() };
            measure(global, "pool", subjects, &args.how, ClientOptions::default()).await
        }
        BenchCommand::Net(args) => net(global, args).await,
        BenchCommand::Share(args) => share(global, args).await,
        BenchCommand::All(args) => all(global, args).await,
        BenchCommand::Copy(args) => {
            let copy = Some([share_target(&args.from)?, share_target(&args.to)?]);
            measure(global, "copy", Subjects { copy, ..Subjects::default() }, &args.how, login(&args.login)?).await
        }
        BenchCommand::Scrub(args) => {
            let folders = args.folders.iter().map(|f| absolute(f)).collect::<Result<_, _>>()?;
            let layouts = args.layout.iter().map(ToString::to_string).collect();
            let scrub = Some(PoolTarget { folders, layouts, ..PoolTarget::default() });
            let subjects = Subjects { scrub, ..Subjects::default() };
            measure(global, "scrub", subjects, &args.how, ClientOptions::default()).await
        }
        BenchCommand::History { kept } => list(global, &kept),
        BenchCommand::Show { id, html, markdown, cores, title, kept } => {
            let form = Form { page: html.as_deref(), markdown, cores };
            show::one(global, &folder(global, &kept)?, &id, title, form)
        }
        BenchCommand::Compare { a, b, html, markdown, kept } => {
            let form = Form { page: html.as_deref(), markdown, cores: false };
            show::two(global, &folder(global, &kept)?, [&a, &b], form)
        }
    }
}

async fn net(global: &Global, args: NetArgs) -> Result<(), Failure> {
    let Some(name) = args.host.clone().filter(|_| !args.listen) else {
        return listen(&args).await;
    };
    let far = Some(FarEnd { name: name.clone(), port: args.samples.beside(args.port) });
    let subjects = Subjects { host: Some(Host { name, port: args.port }), far, ..Subjects::default() };
    measure(global, "net", subjects, &args.how, ClientOptions::default()).await
}

async fn listen(args: &NetArgs) -> Result<(), Failure> {
    let (port, samples_port) = (args.port, args.samples.beside(args.port));
    let seconds = args.how.changes().seconds.unwrap_or(LISTEN_S);
    if port == samples_port {
        return Err(Failure::invalid(format!("port {port} cannot be that of iperf3 and that of the samples"))
            .action("give another with --samples-port PORT"));
    }
    let control = Arc::new(Control::new(|_| {}));
    let ours = control.clone();
    eprintln!(
        "waiting to be measured on port {port}, telling what this machine does meanwhile on port {samples_port}, for {seconds:.0} s at most; Ctrl-C ends it"
    );
    let time_max = Duration::from_secs_f64(seconds);
    let work = move || bench::listen(&Machine::this(), port, samples_port, time_max, &ours);
    stoppable(&control, || {}, work).await?.map_err(|e| failure(&e))
}

async fn share(global: &Global, args: ShareArgs) -> Result<(), Failure> {
    let shares = args.targets.iter().map(|t| share_target(t)).collect::<Result<_, _>>()?;
    let client = login(&args.login)?;
    let far = args.host.map(|name| FarEnd { name, port: args.samples.beside(larder_load::PORT) });
    measure(global, "share", Subjects { shares, far, ..Subjects::default() }, &args.how, client).await
}

async fn all(global: &Global, args: AllArgs) -> Result<(), Failure> {
    let targets = args.targets.iter().map(|t| disk_target(t)).collect::<Result<Vec<_>, _>>()?;
    let folders: Vec<PathBuf> = targets
        .iter()
        .filter_map(|target| match target {
            DiskTarget::Folder(folder) => Some(folder.clone()),
            DiskTarget::Device(_) => None,
        })
        .collect();
    let pool = (!args.no_pool && !folders.is_empty() && folders.len() == targets.len()).then(|| PoolTarget {
        folders,
        layouts: args.layouts.iter().map(ToString::to_string).collect(),
        compressions: args.compressions.clone(),
        encryptions: Vec::new(),
    });
    let subjects = Subjects {
        both: args.host.is_some() && !targets.is_empty(),
        disks: targets,
        pool,
        far: args.host.clone().map(|name| FarEnd { name, port: args.samples.beside(args.port) }),
        host: args.host.map(|name| Host { name, port: args.port }),
        shares: args.shares.iter().map(|t| share_target(t)).collect::<Result<_, _>>()?,
        ..Subjects::default()
    };
    let client = login(&args.login)?;
    measure(global, "all", subjects, &args.how, client).await
}

fn disks(args: &DiskArgs) -> Result<Vec<DiskTarget>, Failure> {
    let mut targets = args.targets.iter().map(|t| disk_target(t)).collect::<Result<Vec<_>, _>>()?;
    if !args.write_device {
        return Ok(targets);
    }
    let [DiskTarget::Device(device)] = targets.as_mut_slice() else {
        return Err(
            Failure::invalid("--write-device is for one device").action("name one empty disk, such as /dev/sdb")
        );
    };
    let typed = match std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
        true => asked_twice(device, args.serial.as_deref())?,
        false => args.serial.clone(),
    };
    device.permit_writing(&Machine::this(), typed.as_deref()).map_err(|e| failure(&e))?;
    Ok(targets)
}

/// The serial number once more than it was given, and then a word.
fn asked_twice(device: &Device, given: Option<&str>) -> Result<Option<String>, Failure> {
    let changed_mind = || Failure::invalid("nothing was written: that was not what was asked for");
    let typed = ask(&format!("The bench will write to {}. Type its serial number to go on: ", device.title))?;
    if given.is_some_and(|given| given != typed) {
        return Err(changed_mind());
    }
    match ask(&format!("Whatever is on {} will be gone. Type yes: ", device.path.display()))?.as_str() {
        "yes" => Ok(Some(typed)),
        _ => Err(changed_mind()),
    }
}

fn ask(question: &str) -> Result<String, Failure> {
    out::ask(question);
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|e| Failure::io("cannot read the answer", &e))?;
    Ok(line.trim().to_owned())
}

fn pool(args: &PoolArgs) -> Result<PoolTarget, Failure> {
    Ok(PoolTarget {
        folders: args.folders.iter().map(|f| absolute(f)).collect::<Result<_, _>>()?,
        layouts: args.layouts.iter().map(ToString::to_string).collect(),
        compressions: args.compressions.clone(),
        encryptions: args.encryptions.clone(),
    })
}

fn login(login: &Login) -> Result<ClientOptions, Failure> {
    let read = |path: &PathBuf| password_in(path).map_err(|e| Failure::invalid(e.to_string()));
    Ok(ClientOptions {
        user: login.user.clone(),
        password: login.password_file.as_ref().map(read).transpose()?,
        key_file: login.key_file.clone(),
        any_certificate: login.any_certificate,
        ..ClientOptions::default()
    })
}

async fn measure(
    global: &Global,
    verb: &str,
    subjects: Subjects,
    how: &How,
    client: ClientOptions,
) -> Result<(), Failure> {
    let meter = super::power::all_sources(global).await?;
    let request = Request {
        verb: verb.to_owned(),
        subjects,
        preset: how.preset,
        changes: how.changes(),
        ciphers: how.ciphers,
        labels: how.labels.iter().cloned().collect(),
        title: how.title.clone(),
        client,
        history: folder(global, &how.kept)?,
        program: std::env::current_exe().map_err(|e| Failure::io("cannot find this program", &e))?,
        data: global.data_named().map(|data| absolute(&data)).transpose()?,
        meter: Some(Arc::new(Mutex::new(meter))),
    };
    let shown = Shown::new(global.json);
    let telling = shown.clone();
    let control = Arc::new(Control::new(move |progress| telling.tell(progress)));
    let ours = control.clone();
    let waiting = shown.clone();
    let finished = stoppable(
        &control,
        move || waiting.waits(),
        move || {
            let _drawing = Drawing::start(&shown);
            bench::run(&Machine::this(), &request, &ours, shown.as_ref())
        },
    );
    finish(global, finished.await?.map_err(|e| failure(&e))?, (how.markdown, how.cores))
}

fn finish(global: &Global, finished: Finished, (markdown, cores): (bool, bool)) -> Result<(), Failure> {
    global.out().answer(&finished.result, |result| show::result_text(result, markdown, cores))?;
    let page = keep_page(&finished.folder, &finished.result);
    if !global.json {
        let kept = page.unwrap_or_else(|| finished.folder.clone());
        eprintln!("kept, with plots: {}", kept.display());
    }
    match finished.failure {
        None => Ok(()),
        Some(BenchError::Stopped) => Err(Failure::unavailable("the bench was stopped: its result is not whole")
            .action(format!("what was measured is in {}; what was written is removed", finished.folder.display()))),
        Some(error) => Err(failure(&error)),
    }
}

/// Work that does not end sooner than this when it is stopped says what it waits for.
const STOP_TIME: Duration = Duration::from_secs(1);
/// As a shell reports what was ended by SIGINT.
const EXIT_INTERRUPTED: i32 = 130;

/// Does work on a thread of its own; Ctrl-C and SIGTERM stop it in order, so that it cleans up. Asked a second time it is
/// not waited for any more: a disk may never answer.
async fn stoppable<T: Send + 'static>(
    control: &Control,
    waits: impl Fn(),
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let listen = |kind| signal(kind).map_err(|e| Failure::io("cannot listen to signals", &e));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let mut hangup = listen(SignalKind::hangup())?;
    let mut work = task::blocking(work);
    let mut told = false;
    loop {
        let stopped = control.is_stopped();
        tokio::select! {
            done = &mut work => return done.map_err(|e| Failure::internal(e.to_string())),
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            // A terminal that goes away says so once to each process in it, and its shell may say it again.
            _ = hangup.recv() => {
                control.stop();
                continue;
            }
            () = tokio::time::sleep(STOP_TIME), if stopped && !told => {
                told = true;
                waits();
                continue;
            }
        }
        if stopped {
            leave(control);
        }
        control.stop();
    }
}

/// At once, whatever is under way.
fn leave(control: &Control) -> ! {
    let left = control.abandon();
    eprintln!("\nerror: the bench was ended before it could end in order: nothing of it is kept");
    left.iter().for_each(|text| eprintln!("status: {text}"));
    std::process::exit(EXIT_INTERRUPTED)
}

/// The folder in which results are kept.
fn folder(global: &Global, kept: &KeptArgs) -> Result<PathBuf, Failure> {
    if let Some(output) = &kept.output {
        return absolute(output);
    }
    if let Some(data) = global.data_named() {
        return absolute(&data.join("bench"));
    }
    let named = |key: &str| std::env::var_os(key).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = named("XDG_STATE_HOME").or_else(|| named("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("larder/bench")).ok_or_else(|| {
        Failure::invalid("nobody knows where results are kept: there is no $HOME").action("say where with --output DIR")
    })
}

fn list(global: &Global, kept: &KeptArgs) -> Result<(), Failure> {
    let found = history::list(&folder(global, kept)?);
    global.out().answer(&found, |found| {
        let mut rows = vec![["ID", "WHAT", "PRESET", "TOOK", "RUNS"].map(str::to_owned).to_vec()];
        for one in found {
            let whole = if one.interrupted { " (not whole)" } else { "" };
            let took = crate::render::duration(one.seconds as u64);
            rows.push(vec![
                one.id.clone(),
                format!("{}{whole}", one.title),
                one.preset.clone(),
                took,
                one.runs.to_string(),
            ]);
        }
        if found.is_empty() { "no results are kept".to_owned() } else { crate::render::table(&rows, &[3, 4]) }
    })
}
