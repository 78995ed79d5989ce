//! The life of one `larder up`: first run, commands, SIGTERM, second run with the same data.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const LARDER: &str = env!("CARGO_BIN_EXE_larder");
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// A running daemon; killed if a test fails in the middle.
struct Up {
    child: Child,
    ready: Value,
    out: BufReader<std::process::ChildStdout>,
}

impl Up {
    fn start(folder: &Path, args: &[&str]) -> Up {
        let mut child = Command::new(LARDER)
            .current_dir(folder)
            .args(["up", "--json", "--nfs", "127.0.0.1:0", "--smb", "127.0.0.1:0", "--memory", "128MiB"])
            .args(args)
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|e| panic!("not one line of JSON ({e}): {line:?}"));
        Up { child, ready, out }
    }

    /// SIGTERM; nothing more on standard output, and exit 0.
    fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < STOP_LIMIT, "did not stop");
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(status.success(), "{status}");
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn larder(folder: &Path, args: &[&str]) -> Output {
    Command::new(LARDER).current_dir(folder).args(args).stdin(Stdio::null()).output().unwrap()
}

fn answer(folder: &Path, args: &[&str]) -> Value {
    let output = larder(folder, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(folder: &Path, args: &[&str], words: &[&str]) {
    let output = larder(folder, args);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{args:?} was not refused");
    assert!(!text.contains("panic"), "{text}");
    for word in words {
        assert!(text.contains(word), "{args:?}: '{word}' is missing in: {text}");
    }
}

#[test]
fn first_run_commands_second_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let first = Up::start(folder, &["--trial"]);
    assert_eq!(first.ready["pid"], first.child.id());
    assert_eq!(first.ready["nfs"]["export"], "/files");
    assert_eq!(first.ready["smb"]["share"], "files");
    assert_eq!(first.ready["user"], "larder");
    let password = first.ready["password"].as_str().unwrap().to_owned();
    assert_eq!(password.len(), 19);

    let status = answer(folder, &["pool", "status", "--json"]);
    assert_eq!((&status[0]["name"], &status[0]["state"]), (&"tank".into(), &"ONLINE".into()));
    assert_eq!(status[0]["disks"].as_array().unwrap().len(), 3);
    let text = String::from_utf8(larder(folder, &["pool", "status"]).stdout).unwrap();
    assert!(text.contains("state: ONLINE") && text.contains("CKSUM") && !text.contains('\x1b'), "{text}");

    answer(folder, &["volume", "create", "films", "--record-size", "1M", "--json"]);
    let volumes = answer(folder, &["volume", "list", "--json"]);
    assert_eq!(volumes.as_array().unwrap().len(), 2);
    let shares = answer(folder, &["share", "list", "--json"]);
    assert_eq!(shares[1]["nfs"], "/films");
    answer(folder, &["volume", "set", "films", "--quota", "1GiB", "--json"]);
    refused(folder, &["volume", "create", "films"], &["films"]);
    refused(folder, &["volume", "destroy", "films"], &["--yes"]);
    refused(folder, &["volume", "set", "nothing", "--sync", "relaxed"], &["tank/nothing"]);

    std::fs::write(folder.join("pw"), "of her own\n").unwrap();
    answer(folder, &["user", "add", "ann", "--uid", "1001", "--password-file", "pw", "--json"]);
    let users = answer(folder, &["user", "list", "--json"]);
    assert_eq!((&users[1]["name"], &users[1]["has_password"]), (&"ann".into(), &true.into()));
    refused(folder, &["user", "add", "ann", "--password-file", "pw"], &["ann", "passwd"]);
    refused(folder, &["pool", "status", "nowhere"], &["nowhere", "tank"]);

    refused(folder, &["up", "--nfs", ":0", "--smb", ":0"], &[&first.child.id().to_string(), "--data"]);
    first.stop();

    let second = Up::start(folder, &[]);
    assert_eq!((&second.ready["user"], &second.ready["nfs"]["export"]), (&"larder".into(), &"/files".into()));
    assert_eq!(second.ready["password"], password);
    let volumes = answer(folder, &["volume", "list", "--json"]);
    assert_eq!((&volumes[1]["name"], &volumes[1]["quota_bytes"]), (&"films".into(), &(1 << 30).into()));
    answer(folder, &["user", "remove", "ann", "--json"]);
    answer(folder, &["volume", "destroy", "films", "--yes", "--json"]);
    assert_eq!(answer(folder, &["share", "list", "--json"]).as_array().unwrap().len(), 1);
    second.stop();

    let check = answer(folder, &["check", "--read-data", "--json"]);
    assert_eq!(check[0]["problems"], Value::Array(Vec::new()));
    let config = std::fs::read_to_string(folder.join("larder-data/larder.toml")).unwrap();
    assert!(config.starts_with("# What larder serves.") && config.contains("disks = [\"disk1\""), "{config}");
    assert!(!config.contains(&password));
}

#[test]
fn folders_of_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let up = Up::start(folder, &["a", "b", "--user", "ann", "--password-file", "pw"]);
    let made = std::fs::read_to_string(folder.join("pw")).unwrap();
    assert_eq!(up.ready["password"], made.trim());
    assert_eq!(answer(folder, &["pool", "status", "--json"])[0]["layout"], "mirror");
    assert_eq!(answer(folder, &["pool", "status", "a", "b", "--json"])[0]["name"], "tank");
    up.stop();
    refused(folder, &["up", "a", "b", "c", "--json", "--nfs", ":0", "--smb", ":0"], &["is not one of them", "--data"]);
    Up::start(folder, &["b", "a"]).stop();
}

#[test]
fn what_is_wrong_is_named_and_nothing_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::create_dir(folder.join("full")).unwrap();
    std::fs::write(folder.join("full/holiday.jpg"), "x").unwrap();
    let with = |args: &[&'static str]| [&["up", "--nfs", "127.0.0.1:0", "--smb", "127.0.0.1:0"], args].concat();
    refused(folder, &with(&["full", "b", "c"]), &["full", "not empty"]);
    refused(folder, &with(&["b", "b", "c"]), &["/b ", "twice"]);
    refused(folder, &with(&["b", "c", "--layout", "raidz2"]), &["raidz2", "4 disks"]);
    refused(folder, &with(&["b", "--layout", "raid5"]), &["raidz1", "3 disks"]);
    refused(folder, &with(&["no/b", "no/c"]), &["no", "mkdir -p"]);
    refused(folder, &with(&["--mount", "nowhere"]), &["nowhere", "mkdir -p"]);
    refused(folder, &with(&["--memory", "1M"]), &["64.0 MiB"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    refused(folder, &["up", "--trial", "--nfs", &port, "--smb", "127.0.0.1:0"], &[&port, "in use", "--nfs"]);
    refused(folder, &["up", "--setup", "off"], &["no configuration", "larder up DIR"]);
    refused(folder, &["up", "--setup", &port], &[&port, "in use", "--setup"]);
    for made in ["b", "c", "larder-data/disk1", "larder-data/larder.toml"] {
        assert!(!folder.join(made).exists(), "{made} was made");
    }
    refused(folder, &["--data", "nothing", "pool", "status"], &["nothing"]);
    refused(folder, &["serve", "--config", "missing.toml"], &["missing.toml"]);
}
