//! The load generators against real servers: each has to pass the same suite.

#![allow(clippy::unwrap_used)]

mod servers;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_load::Control;
use larder_load::client::{ClientError, ClientOptions, ShareClient, open};
use larder_load::workload::{Caches, Kind, Repeat, RunLimits, Workload};
use servers::Server;

const LIMITS: RunLimits = RunLimits { warm_up: Duration::ZERO, measure_max: Duration::from_secs(30), again: false };
const SHORT: RunLimits =
    RunLimits { warm_up: Duration::from_millis(100), measure_max: Duration::from_millis(400), again: false };
const MIB: u64 = 1 << 20;

fn workload(kind: Kind, block_bytes: u64, data_bytes: u64, files: u64) -> Workload {
    Workload {
        kind,
        block_bytes,
        depth: 8,
        jobs: 2,
        data_bytes,
        files,
        caches: Caches::Unknown,
        compressible: false,
        synced: true,
    }
}

fn control() -> Control {
    Control::new(|_| ())
}

fn run(client: &mut dyn ShareClient, workload: &Workload, limits: &RunLimits) -> Repeat {
    let control = control();
    client.prepare(workload, &control).unwrap_or_else(|e| panic!("preparing {workload:?}: {e}"));
    let repeat = client.run(workload, limits, &control).unwrap_or_else(|e| panic!("{workload:?}: {e}"));
    assert!(repeat.seconds > 0.0 && repeat.operations > 0, "{workload:?}: {repeat:?}");
    assert!(!repeat.over_time.is_empty() && repeat.over_time.is_sorted_by_key(|m| m.at_ms), "{repeat:?}");
    assert!(repeat.load_cpu_s.is_some_and(|s| s >= 0.0), "{repeat:?}");
    let rate = repeat.bytes as f64 / repeat.seconds;
    assert!((repeat.bytes_per_s - rate).abs() <= rate * 1e-6);
    repeat
}

/// Sequential workloads move everything once, and exactly that; what is written is what is read.
fn sequential(client: &mut dyn ShareClient) {
    let data = 12 * MIB;
    for (kind, block, files) in
        [(Kind::Write, MIB, 2), (Kind::Read, MIB, 2), (Kind::Read, 3 * MIB, 2), (Kind::Cat, 256 << 10, 2)]
    {
        let repeat = run(client, &workload(kind, block, data, files), &LIMITS);
        assert_eq!((repeat.bytes, repeat.operations), (data, data / block), "{kind:?}");
        let latency = repeat.latency;
        let streams = kind == Kind::Write && client.access() == "webdav";
        assert!(streams || latency.is_some_and(|l| l.p50_us > 0.0 && l.p50_us <= l.max_us), "{kind:?}: {latency:?}");
    }
}

/// A write that the clock ended leaves nothing half for who reads next.
fn cut_short(client: &mut dyn ShareClient) {
    run(client, &workload(Kind::Write, MIB, 12 * MIB, 2), &SHORT);
    run(client, &workload(Kind::Read, MIB, 12 * MIB, 2), &LIMITS);
}

/// Little data lasts as long as is wanted, and is whole afterwards.
fn over_again(client: &mut dyn ShareClient) {
    let limits = RunLimits { warm_up: Duration::ZERO, measure_max: Duration::from_secs(1), again: true };
    for kind in [Kind::Write, Kind::Read, Kind::Cat] {
        let repeat = run(client, &workload(kind, MIB, 2 * MIB, 2), &limits);
        assert!(repeat.seconds >= 1.0 && repeat.bytes > 2 * MIB, "{kind:?}: {repeat:?}");
    }
    run(client, &workload(Kind::Read, MIB, 2 * MIB, 2), &LIMITS);
}

fn random(client: &mut dyn ShareClient, writes: bool) {
    let kinds: &[Kind] =
        if writes { &[Kind::RandomWrite, Kind::RandomMixed, Kind::RandomRead] } else { &[Kind::RandomRead] };
    for kind in kinds {
        let repeat = run(client, &workload(*kind, 4096, 12 * MIB, 2), &SHORT);
        assert_eq!(repeat.bytes, repeat.operations * 4096);
        assert!(repeat.seconds < 5.0, "{kind:?} ends by time: {repeat:?}");
        let sides = repeat.read.as_ref().zip(repeat.write.as_ref()).map(|(r, w)| (r.operations, w.operations));
        let told = sides.is_none_or(|(read, written)| read + written == repeat.operations && read > written);
        assert!(told && sides.is_some() == (*kind == Kind::RandomMixed), "{repeat:?}");
    }
    if writes {
        // Whatever was overwritten at random reads well.
        run(client, &workload(Kind::Read, MIB, 12 * MIB, 2), &LIMITS);
    } else {
        let refused = client.prepare(&workload(Kind::RandomWrite, 4096, MIB, 1), &control());
        assert!(matches!(refused, Err(ClientError::Unsupported { .. })), "{refused:?}");
    }
}

fn many_files(client: &mut dyn ShareClient) {
    let (files, bytes) = (70, 70 * 5000);
    for kind in
        [Kind::CreateFiles, Kind::ReadFiles, Kind::StatFiles, Kind::DeleteFiles, Kind::DeleteFiles, Kind::CreateFiles]
    {
        let repeat = run(client, &workload(kind, 4096, bytes, files), &LIMITS);
        assert_eq!(repeat.operations, files, "{kind:?}");
        let moved = matches!(kind, Kind::CreateFiles | Kind::ReadFiles);
        assert_eq!(repeat.bytes, if moved { bytes } else { 0 }, "{kind:?}");
    }
    let trees =
        [Kind::CopyTreeIn, Kind::CopyTreeOut].map(|k| run(client, &workload(k, 64 << 10, 4 * MIB, 120), &LIMITS));
    assert_eq!((trees[0].operations, trees[0].bytes), (120, trees[1].bytes));
}

/// Within a tenth of a second, and a bit for a machine that has other things to do: such a machine gets three chances.
fn stops(client: &mut dyn ShareClient) {
    let wanted = workload(Kind::RandomRead, 4096, 12 * MIB, 2);
    client.prepare(&wanted, &control()).unwrap();
    let late: Vec<Duration> = (0..3).map(|_| stopped_after(client, &wanted)).collect();
    assert!(late.iter().any(|late| *late < Duration::from_millis(300)), "{late:?}");
}

/// How long a run goes on after it was stopped.
fn stopped_after(client: &mut dyn ShareClient, wanted: &Workload) -> Duration {
    let control = Arc::new(control());
    let stopper = std::thread::spawn({
        let control = control.clone();
        move || {
            std::thread::sleep(Duration::from_millis(400));
            control.stop();
            Instant::now()
        }
    });
    let outcome = client.run(wanted, &RunLimits { measure_max: Duration::from_secs(60), ..LIMITS }, &control);
    let ended = Instant::now();
    assert!(matches!(outcome, Err(ClientError::Stopped)), "{outcome:?}");
    ended.duration_since(stopper.join().unwrap())
}

fn conform(server: &Server, url: &str) {
    let mut client = open(url, &server.options).unwrap_or_else(|e| panic!("{url}: {e}"));
    eprintln!("{}", client.describe());
    assert!(!client.describe().contains(servers::PASSWORD));
    let writes_at_random = client.access() != "webdav";
    sequential(&mut *client);
    cut_short(&mut *client);
    over_again(&mut *client);
    random(&mut *client, writes_at_random);
    many_files(&mut *client);
    stops(&mut *client);
    if let Some(names) = server.names() {
        assert!(names.iter().any(|n| n.starts_with(".larder-bench-")), "{names:?}");
    }
    client.clean_up().unwrap();
    client.clean_up().unwrap();
    assert_eq!(server.names().unwrap_or_default(), Vec::<String>::new());
    if let Some(files) = &server.files {
        sweeps(files, url, &server.options);
    }
}

/// What a killed bench left goes, what another one uses or a person has stays.
fn sweeps(files: &Path, url: &str, options: &ClientOptions) {
    let mut client = open(url, options).unwrap();
    client.prepare(&workload(Kind::Write, 4096, MIB, 1), &control()).unwrap();
    let name = |path: fs::DirEntry| path.file_name().into_string().unwrap();
    let mine = name(fs::read_dir(files).unwrap().next().unwrap().unwrap());
    let parts: Vec<&str> = mine.rsplitn(4, '-').collect();
    let [_, _, _, machine] = parts[..] else { panic!("{mine}") };
    let dead = format!("{machine}-1-00000001-0");
    // As a killed one leaves it: whole.
    let mut killed = open(url, options).unwrap();
    killed.prepare(&workload(Kind::ReadFiles, 4096, 70 * 500, 70), &control()).unwrap();
    let others = fs::read_dir(files).unwrap().map(|e| name(e.unwrap()));
    let whole = others.into_iter().find(|n| *n != mine).unwrap();
    fs::rename(files.join(whole), files.join(&dead)).unwrap();
    let keep = [mine.clone(), ".larder-bench-00000000-1-00000001-0".to_owned(), "family".to_owned()];
    fs::create_dir(files.join(&keep[1])).unwrap();
    fs::create_dir(files.join(&keep[2])).unwrap();
    let mut other = open(url, options).unwrap();
    other.clean_up().unwrap();
    let mut left: Vec<String> = fs::read_dir(files).unwrap().map(|e| name(e.unwrap())).collect();
    left.sort();
    let mut wanted = keep.to_vec();
    wanted.sort();
    assert_eq!(left, wanted);
    client.clean_up().unwrap();
    forged(files, &dead, url, options);
}

/// Who may write to a share can make a folder that looks like a killed bench's, with links in it.
fn forged(files: &Path, dead: &str, url: &str, options: &ClientOptions) {
    let photos = files.join("Photos");
    fs::create_dir_all(photos.join("a0")).unwrap();
    for photo in ["holiday.jpg", "a0/large0.jpg"] {
        fs::write(photos.join(photo), "dear").unwrap();
    }
    let folder = files.join(dead);
    fs::create_dir_all(folder.join("tree")).unwrap();
    fs::write(folder.join("notes"), "not a bench's").unwrap();
    fs::write(folder.join("large0"), "a bench's").unwrap();
    symlink("../Photos", folder.join("small0")).unwrap();
    symlink("../../Photos", folder.join("tree/a0")).unwrap();
    symlink("Photos", files.join(dead.replace("-1-", "-2-"))).unwrap();
    let outcome = open(url, options).unwrap().clean_up();
    assert!(matches!(&outcome, Err(ClientError::Left { .. })), "{outcome:?}");
    for photo in ["holiday.jpg", "a0/large0.jpg"] {
        assert_eq!(fs::read_to_string(photos.join(photo)).unwrap(), "dear");
    }
    assert!(folder.join("notes").exists() && !folder.join("large0").exists());
}

#[test]
fn damage_is_found() {
    let wanted = workload(Kind::Read, MIB, 4 * MIB, 1);
    let mut found = Vec::new();
    let mut check = |url: &str, options: &ClientOptions, files: &Path| {
        let mut client = open(url, options).unwrap();
        client.prepare(&wanted, &control()).unwrap();
        let inner = fs::read_dir(files).unwrap().next().unwrap().unwrap().path().join("large0");
        let mut bytes = fs::read(&inner).unwrap();
        bytes[MIB as usize] ^= 1;
        fs::write(&inner, bytes).unwrap();
        found.push(client.run(&wanted, &LIMITS, &control()));
        client.clean_up().unwrap();
    };
    for server in [servers::sshd(), servers::webdav(false), servers::ganesha(), servers::smbd()].into_iter().flatten() {
        check(&server.url, &server.options, server.files.as_deref().unwrap());
    }
    for outcome in found {
        assert!(matches!(&outcome, Err(ClientError::WrongData { offset, .. }) if *offset == MIB), "{outcome:?}");
    }
}

#[test]
fn larder_over_nfs_and_smb() {
    let Some((server, smb)) = servers::larder() else { return };
    conform(&server, &server.url);
    conform(&server, &smb);
    conform(&server, &format!("{smb}?encrypt=1"));
    // What was made over one protocol is gone over the other.
    let missing = open(&smb.replace(servers::PASSWORD, "wrong"), &servers::options()).err();
    assert!(matches!(missing, Some(ClientError::WrongPassword { .. })), "{missing:?}");
}

#[test]
fn a_server_that_dies_ends_the_run() {
    let Some((mut server, _)) = servers::larder() else { return };
    let mut client = open(&server.url, &server.options).unwrap();
    let wanted = workload(Kind::RandomRead, 4096, 8 * MIB, 1);
    client.prepare(&wanted, &control()).unwrap();
    let (outcome, took) = std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(500));
            server.kill();
            Instant::now()
        });
        let outcome = client.run(&wanted, &RunLimits { measure_max: Duration::from_secs(60), ..LIMITS }, &control());
        (outcome, Instant::now().duration_since(killer.join().unwrap()))
    });
    assert!(matches!(outcome, Err(ClientError::Lost { .. })), "{outcome:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    let gone = client.clean_up();
    assert!(matches!(gone, Err(ClientError::Unreachable { .. })), "{gone:?}");
}

#[test]
fn ganesha() {
    let Some(server) = servers::ganesha() else { return };
    conform(&server, &server.url);
    let error = open(&server.url.replace("/inside", "-none"), &server.options).err().unwrap();
    assert!(matches!(error, ClientError::NotFound { .. }) && error.to_string().contains("the server has"), "{error}");
}

#[test]
fn samba() {
    let Some(server) = servers::smbd() else { return };
    conform(&server, &server.url);
    let encrypted = format!("{}?encrypt=1", server.url);
    let client = open(&encrypted, &server.options).unwrap_or_else(|e| panic!("encrypted: {e}"));
    assert!(client.encryption().starts_with("encrypted with Aes"), "{}", client.encryption());
    drop(client);
    let another = servers::smbd().unwrap();
    conform(&another, &format!("{}?encrypt=1", another.url));
    let error = open(&server.url.replace("/bench", "/none"), &server.options).err();
    assert!(matches!(error, Some(ClientError::NotFound { .. })), "{error:?}");
    let error = open(&server.url, &ClientOptions { password: Some("wrong".into()), ..servers::options() }).err();
    assert!(matches!(error, Some(ClientError::WrongPassword { .. })), "{error:?}");
}

#[test]
fn openssh() {
    let Some(server) = servers::sshd() else { return };
    conform(&server, &server.url);
    let client = open(&format!("{}?cipher=chacha20-poly1305@openssh.com", server.url), &server.options).unwrap();
    assert!(client.describe().contains("chacha20") && client.describe().contains("SHA256:"), "{}", client.describe());
    let error = open(&server.url, &ClientOptions { password: Some("wrong".into()), ..servers::options() }).err();
    assert!(matches!(error, Some(ClientError::WrongPassword { .. })), "{error:?}");
    let error = open(&format!("{}/none", server.url), &server.options).err();
    assert!(matches!(error, Some(ClientError::NotFound { .. })), "{error:?}");
}

#[test]
fn webdav() {
    for secure in [false, true] {
        let Some(server) = servers::webdav(secure) else { return };
        conform(&server, &server.url);
        if secure {
            let error = open(&server.url, &servers::options()).err();
            assert!(matches!(error, Some(ClientError::Unreachable { .. })), "a certificate of nobody's: {error:?}");
        }
        let error = open(&server.url.replace(servers::PASSWORD, "wrong"), &server.options).err();
        assert!(matches!(error, Some(ClientError::WrongPassword { .. })), "{error:?}");
        let error = open(&format!("{}none", server.url), &server.options).err();
        assert!(matches!(error, Some(ClientError::NotFound { .. })), "{error:?}");
    }
}

#[test]
fn nothing_there() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for url in
        ["nfs://127.0.0.1:{}/x", "smb://me:p@127.0.0.1:{}/x", "sftp://me:p@127.0.0.1:{}/x", "http://127.0.0.1:{}/x"]
    {
        let error = open(&url.replace("{}", &port.to_string()), &ClientOptions::default()).err();
        assert!(matches!(error, Some(ClientError::Unreachable { .. })), "{url}: {error:?}");
    }
    let error = open("gopher://nas/x", &ClientOptions::default()).err();
    assert!(matches!(error, Some(ClientError::UnknownScheme { .. })), "{error:?}");
    // A folder is no share: it is loaded otherwise.
    let error = open("/nowhere/at/all", &ClientOptions::default()).err();
    assert!(matches!(error, Some(ClientError::BadUrl { .. })), "{error:?}");
}
