//! A pool made for a bench: a larder of our own on folders of the disks, mounted here, and gone afterwards.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::Machine;
use larder_load::BenchError;
use larder_load::Control;
use larder_load::Scratch;
use larder_load::process::{self, Running};

/// For making a pool: directories and journals on every disk.
const START_TIME_MAX: Duration = Duration::from_secs(120);
/// For writing what is in memory to the disks.
const STOP_TIME_MAX: Duration = Duration::from_secs(120);
const COMMAND_TIME_MAX: Duration = Duration::from_secs(60);
const READY_BYTES_MAX: u64 = 64 << 10;
const VOLUME: &str = "files";
const POOL: &str = "bench";
const SEALED: &str = "sealed";
const GOCRYPTFS: &str = "gocryptfs";
/// For mounting a folder on a folder.
const MOUNT_TIME_MAX: Duration = Duration::from_secs(20);
const KEY_BYTES: u64 = 64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolSpec {
    /// As `larder up --layout` takes it; `None`: what it chooses.
    pub(super) layout: Option<String>,
    pub(super) compression: Option<String>,
    pub(super) encryption: Encryption,
    pub(super) memory_bytes: u64,
}

/// Where the files of a pool that is made for a bench are encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Encryption {
    #[default]
    None,
    /// By larder: a volume with this cipher.
    Volume(String),
    /// By gocryptfs, on a plain volume.
    Gocryptfs,
}

impl Encryption {
    /// `none`, `gocryptfs`, or a cipher as `larder volume create --encrypt` takes it.
    pub(super) fn named(name: &str) -> Self {
        match name {
            "none" => Self::None,
            GOCRYPTFS => Self::Gocryptfs,
            cipher => Self::Volume(cipher.to_owned()),
        }
    }

    /// Every kind that this machine can measure, by name.
    pub(super) fn all(machine: &Machine) -> Vec<String> {
        let gocryptfs = machine.program(GOCRYPTFS).map(|_| GOCRYPTFS);
        ["none", "aes-128-gcm", "aes-256-gcm", "chacha20-poly1305"]
            .into_iter()
            .chain(gocryptfs)
            .map(str::to_owned)
            .collect()
    }
}

/// Running; ended and unmounted when this goes.
pub(super) struct TemporaryPool {
    /// gocryptfs above the pool's own mount; ended before the server.
    above: Option<Running>,
    server: Option<Running>,
    mount: PathBuf,
    data: PathBuf,
    /// Gone after the server, since they hold its disks.
    _disks: Vec<Scratch>,
}

impl TemporaryPool {
    /// `program`: the larder to run, which is this one.
    pub(super) fn start(
        machine: &Machine,
        program: &Path,
        folders: &[PathBuf],
        spec: &PoolSpec,
        control: &Control,
    ) -> Result<Self, BenchError> {
        let disks = folders.iter().map(|f| Scratch::make(machine, f, control)).collect::<Result<Vec<_>, _>>()?;
        let first = disks.first().ok_or_else(|| BenchError::invalid("a pool needs disks", "name a folder on each"))?;
        let (data, mount) = (first.path().join("data"), first.path().join("mount"));
        for folder in [&data, &mount] {
            std::fs::create_dir(folder).map_err(|e| BenchError::at("make the folder", folder, e))?;
        }
        let password = secret(machine, &data)?;
        let args = arguments(&disks, &data, &mount, &password, spec);
        let server = Some(Running::start(machine, &program.to_string_lossy(), &args)?);
        let mut pool = Self { above: None, server, mount, data, _disks: disks };
        pool.wait(control)?;
        let larder = |words: &[OsString]| command(machine, &program.to_string_lossy(), &pool.data, words, control);
        if let Encryption::Volume(cipher) = &spec.encryption {
            let (key, sealed) = (pool.key()?, pool.folder("sealed")?);
            let encrypt = format!("--encrypt={cipher}").into();
            let options = [encrypt, "--key-file".into(), key.into(), "--no-recovery-key".into(), "--no-share".into()];
            larder(&[&["volume".into(), "create".into(), SEALED.into()], &options[..]].concat())?;
            larder(&["mount".into(), "--volume".into(), SEALED.into(), sealed.clone().into()])?;
            pool.mount = sealed;
        }
        if let Some(kind) = &spec.compression {
            let volume = if matches!(spec.encryption, Encryption::Volume(_)) { SEALED } else { VOLUME };
            command(
                machine,
                &program.to_string_lossy(),
                &pool.data,
                &["volume".into(), "set".into(), volume.into(), "--compression".into(), kind.into()],
                control,
            )?;
        }
        if spec.encryption == Encryption::Gocryptfs {
            pool.encrypt_above(machine, control)?;
        }
        Ok(pool)
    }

    /// A key file of random bytes, beside the password.
    fn key(&self) -> Result<PathBuf, BenchError> {
        let path = self.data.join("key");
        let mut key = Vec::new();
        let random = std::fs::File::open("/dev/urandom").and_then(|file| file.take(KEY_BYTES).read_to_end(&mut key));
        let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let written = random.and(made).and_then(|mut file| file.write_all(&key));
        written.map(|()| path.clone()).map_err(|e| BenchError::at("write", &path, e))
    }

    fn folder(&self, name: &str) -> Result<PathBuf, BenchError> {
        let path = self.mount.with_file_name(name);
        std::fs::create_dir(&path).map(|()| path.clone()).map_err(|e| BenchError::at("make the folder", &path, e))
    }

    fn encrypt_above(&mut self, machine: &Machine, control: &Control) -> Result<(), BenchError> {
        let (sealed, plain) = (self.mount.join(SEALED), self.folder("plain")?);
        std::fs::create_dir(&sealed).map_err(|e| BenchError::at("make the folder", &sealed, e))?;
        let password = self.data.join("password");
        let common: [OsString; 3] = ["-q".into(), "-passfile".into(), password.into()];
        let words = [&["-init".into()], &common[..], &[sealed.clone().into()]].concat();
        let done = process::run(machine, GOCRYPTFS, &words, COMMAND_TIME_MAX, control, &mut |_| {})?;
        if done.code != Some(0) {
            return Err(BenchError::tool(GOCRYPTFS, done.stderr));
        }
        let words = [&["-fg".into()], &common[..], &[sealed.into(), plain.clone().into()]].concat();
        self.above = Some(Running::start(machine, GOCRYPTFS, &words)?);
        let end = Instant::now() + MOUNT_TIME_MAX;
        while machine.mounts().of(&plain).is_none_or(|mount| mount.point != plain) {
            if control.is_stopped() {
                return Err(BenchError::Stopped);
            }
            if Instant::now() >= end {
                let reason = format!("it had mounted nothing after {} s", MOUNT_TIME_MAX.as_secs());
                return Err(BenchError::tool(GOCRYPTFS, reason));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.mount = plain;
        Ok(())
    }

    pub(super) fn mount(&self) -> &Path {
        &self.mount
    }

    /// The data folder of its daemon.
    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    pub(super) fn name(&self) -> &str {
        POOL
    }

    /// Until it says that it is ready, or why it is not.
    fn wait(&mut self, control: &Control) -> Result<(), BenchError> {
        let Some(server) = &mut self.server else { return Ok(()) };
        let (sender, said) = channel();
        let (stdout, stderr) = (server.child.stdout.take(), server.child.stderr.take());
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = stdout.map(|out| BufReader::new(out.take(READY_BYTES_MAX)).read_line(&mut line));
            let _ = sender.send(matches!(read, Some(Ok(1..))).then_some(line));
        });
        let (complain, complaint) = channel();
        std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut pipe) = stderr {
                let _ = (&mut pipe).take(READY_BYTES_MAX).read_to_end(&mut text);
                let _ = std::io::copy(&mut pipe, &mut std::io::sink());
            }
            let _ = complain.send(String::from_utf8_lossy(&text).into_owned());
        });
        let end = Instant::now() + START_TIME_MAX;
        loop {
            match said.recv_timeout(Duration::from_millis(100)) {
                Ok(Some(_ready)) => return Ok(()),
                Ok(None) | Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                    let text = complaint.recv_timeout(Duration::from_secs(2)).unwrap_or_default();
                    return Err(BenchError::tool("larder up", told(&text)));
                }
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            }
            if control.is_stopped() {
                return Err(BenchError::Stopped);
            }
            if Instant::now() >= end {
                let reason = format!("it was not ready within {} s", START_TIME_MAX.as_secs());
                return Err(BenchError::tool("larder up", reason));
            }
        }
    }
}

impl Drop for TemporaryPool {
    fn drop(&mut self) {
        if let Some(mut above) = self.above.take() {
            let _ = above.end(STOP_TIME_MAX);
        }
        if let Some(mut server) = self.server.take() {
            let _ = server.end(STOP_TIME_MAX);
        }
    }
}

/// One of the program's own commands, to the daemon of `data`.
fn command(
    machine: &Machine,
    program: &str,
    data: &Path,
    words: &[OsString],
    control: &Control,
) -> Result<Vec<u8>, BenchError> {
    let all: Vec<OsString> = [&["--json".into(), "--data".into(), data.into()], words].concat();
    let done = process::run(machine, program, &all, COMMAND_TIME_MAX, control, &mut |_| {})?;
    let name =
        words.iter().take(2).fold("larder".to_owned(), |name, word| format!("{name} {}", word.to_string_lossy()));
    if done.code == Some(0) { Ok(done.stdout) } else { Err(BenchError::tool(&name, told(&done.stderr))) }
}

/// The cipher of each volume of the daemon that serves here, by `POOL/VOLUME`: `none` where there is none.
pub(super) fn ciphers_of_volumes(
    machine: &Machine,
    program: &Path,
    data: Option<&Path>,
    control: &Control,
) -> std::collections::BTreeMap<String, String> {
    let mut words: Vec<OsString> = vec!["--json".into()];
    words.extend(data.iter().flat_map(|data| ["--data".into(), data.into()]));
    words.extend(["volume".into(), "list".into()]);
    let done = process::run(machine, &program.to_string_lossy(), &words, COMMAND_TIME_MAX, control, &mut |_| {});
    let said = done.ok().filter(|done| done.code == Some(0)).map(|done| done.stdout).unwrap_or_default();
    let volumes: Vec<serde_json::Value> = serde_json::from_slice(&said).unwrap_or_default();
    let cipher = |volume: &serde_json::Value| {
        let name = format!("{}/{}", volume["pool"].as_str()?, volume["name"].as_str()?);
        Some((name, volume["encryption"].as_str().unwrap_or("none").to_owned()))
    };
    volumes.iter().filter_map(cipher).collect()
}

fn arguments(disks: &[Scratch], data: &Path, mount: &Path, password: &Path, spec: &PoolSpec) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["--json".into(), "--data".into(), data.into(), "up".into()];
    args.extend(disks.iter().map(|disk| disk.path().join("disk").into()));
    for (key, value) in [("--nfs", "off"), ("--smb", "off"), ("--user", "bench"), ("--name", POOL)] {
        args.extend([key.into(), value.into()]);
    }
    args.extend(["--memory".into(), spec.memory_bytes.to_string().into()]);
    args.extend(["--password-file".into(), password.into(), "--mount".into(), mount.into()]);
    if let Some(layout) = &spec.layout {
        args.extend(["--layout".into(), layout.into()]);
    }
    args
}

/// Nobody will ever log in with it: no server listens.
fn secret(machine: &Machine, data: &Path) -> Result<PathBuf, BenchError> {
    let path = data.join("password");
    let uuid = machine.random_uuid().unwrap_or_default();
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let written = made.and_then(|mut file| file.write_all(format!("Bench-{uuid}\n").as_bytes()));
    written.map(|()| path.clone()).map_err(|e| BenchError::at("write", &path, e))
}

/// `{"error": {"message": ...}}` on the last line, or whatever it is.
pub(super) fn told(stderr: &str) -> String {
    let last = stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    let json: serde_json::Value = serde_json::from_str(last).unwrap_or_default();
    json["error"]["message"].as_str().unwrap_or(last).to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_server_that_does_not_start_says_why() {
        let machine = Machine::this();
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("larder");
        let start = |script: &str| {
            std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
            let control = Control::new(|_| {});
            TemporaryPool::start(&machine, &program, &[folder.path().to_owned()], &PoolSpec::default(), &control)
        };
        let error = start(r#"echo '{"error": {"kind": "busy", "message": "the pool is held"}}' >&2; exit 1"#);
        assert_eq!(error.err().map(|e| e.to_string()).unwrap(), "larder up failed: the pool is held");
        let pool = start("echo '{}'; exec sleep 60").unwrap();
        let scratch = pool.mount().parent().unwrap().to_owned();
        assert!(scratch.join("data/password").exists());
        drop(pool);
        assert!(!scratch.exists());
    }

    #[test]
    fn its_arguments_are_those_of_up() {
        let folder = tempfile::tempdir().unwrap();
        let disks = [Scratch::make(&Machine::this(), folder.path(), &Control::new(|_| {})).unwrap()];
        let spec = PoolSpec {
            layout: Some("mirror".into()),
            compression: None,
            encryption: Encryption::None,
            memory_bytes: 1 << 28,
        };
        let args = arguments(&disks, Path::new("/d"), Path::new("/m"), Path::new("/p"), &spec);
        let words: Vec<_> = args.iter().map(|a| a.to_string_lossy()).collect();
        let disk = disks[0].path().join("disk");
        assert!(words.join(" ").starts_with(&format!("--json --data /d up {} --nfs off", disk.display())));
        assert!(words.join(" ").ends_with("--memory 268435456 --password-file /p --mount /m --layout mirror"));
    }
}
