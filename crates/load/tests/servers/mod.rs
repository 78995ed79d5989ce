//! Real servers on loopback, each a process of the test's own, ended by its own handle.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use larder_load::client::ClientOptions;

pub const PASSWORD: &str = "Pantry-Shelf-42";
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// Killed when dropped, with its folder.
pub struct Server {
    pub url: String,
    pub options: ClientOptions,
    /// Where its files lie, if they lie anywhere as such.
    pub files: Option<PathBuf>,
    process: Child,
    /// What it cannot run without.
    helper: Option<Child>,
    /// Nobody else has such a server meanwhile.
    _turn: Option<fs::File>,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.process);
        if let Some(helper) = &mut self.helper {
            end(helper);
        }
    }
}

impl Server {
    pub fn kill(&mut self) {
        self.process.kill().expect("a process of our own");
        self.process.wait().expect("a process of our own");
    }

    /// Names in the share's folder, where somebody can look.
    pub fn names(&self) -> Option<Vec<String>> {
        let entries = fs::read_dir(self.files.as_ref()?).expect("the folder of the share");
        Some(entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect())
    }
}

/// SIGTERM, because some have processes of their own to end; then SIGKILL.
fn end(process: &mut Child) {
    let _ = Command::new("kill").arg(process.id().to_string()).stderr(Stdio::null()).status();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(10) {
        if !matches!(process.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = process.kill();
    let _ = process.wait();
}

fn program(name: &str) -> Option<PathBuf> {
    let found = ["/usr/sbin", "/usr/bin", "/sbin"].iter().map(|f| Path::new(f).join(name)).find(|p| p.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: {name} is not installed (make packages-test installs it)");
    }
    found
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: this server can only be started by root");
    }
    root
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn spawn(command: &mut Command, log: &Path) -> Child {
    let log = fs::File::options().create(true).append(true).open(log).unwrap();
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().expect("the server starts")
}

fn wait_for(port: u16, process: &mut Child, log: &Path) {
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        let ended = process.try_wait().unwrap();
        assert!(ended.is_none() && began.elapsed() < START_TIME_MAX, "{}", fs::read_to_string(log).unwrap_or_default());
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// `$LARDER`, or what `make build` left.
fn larder_program() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../release/larder");
    let found = std::env::var_os("LARDER").map_or(built, PathBuf::from);
    if !found.is_file() {
        eprintln!("SKIPPED: no larder at {}: make build, or set LARDER", found.display());
        return None;
    }
    Some(found)
}

/// Over NFS and over SMB.
pub fn larder() -> Option<(Server, String)> {
    let program = larder_program()?;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("data")).unwrap();
    fs::write(at("password"), format!("{PASSWORD}\n")).unwrap();
    fs::set_permissions(at("password"), fs::Permissions::from_mode(0o600)).unwrap();
    let mut process = Command::new(program)
        .args([
            "up",
            "--layout",
            "stripe",
            "--nfs",
            "127.0.0.1:0",
            "--smb",
            "127.0.0.1:0",
            "--user",
            "keeper",
            "--json",
        ])
        .args(["--squash", "none", "--password-file"])
        .args([at("password"), "--data".into(), at("data"), at("disk1")])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(at("log")).unwrap())
        .spawn()
        .expect("larder starts");
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let info: serde_json::Value = serde_json::from_str(&line)
        .unwrap_or_else(|e| panic!("{e}: {line:?} {}", fs::read_to_string(at("log")).unwrap_or_default()));
    let text = |what: &serde_json::Value| what.as_str().unwrap().to_owned();
    let url = format!("nfs://127.0.0.1:{}{}", info["nfs"]["port"], text(&info["nfs"]["export"]));
    let smb = format!("smb://keeper:{PASSWORD}@127.0.0.1:{}/{}", info["smb"]["port"], text(&info["smb"]["share"]));
    Some((Server { url, options: options(), files: None, process, helper: None, _turn: None, _folder: folder }, smb))
}

/// All that is read is compared.
pub fn options() -> ClientOptions {
    ClientOptions { verify_all: true, ..ClientOptions::default() }
}

fn with_files(folder: &tempfile::TempDir) -> PathBuf {
    let files = folder.path().join("files");
    fs::create_dir(&files).unwrap();
    files
}

/// With MOUNT on another port than NFS, as others have it.
pub fn ganesha() -> Option<Server> {
    let (program, rpcbind) = (program("ganesha.nfsd")?, program("rpcbind")?);
    if !is_root() {
        return None;
    }
    // There is one portmapper to a machine: a test that ends takes it from under another's server.
    let turn = fs::File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("ganesha")).unwrap();
    turn.lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (files, log) = (with_files(&folder), folder.path().join("log"));
    let (port, mount_port) = (free_port(), free_port());
    // It does not start where no portmapper answers.
    let helper = TcpStream::connect("127.0.0.1:111").is_err().then(|| {
        let mut helper = spawn(Command::new(rpcbind).arg("-f"), &log);
        wait_for(111, &mut helper, &log);
        helper
    });
    let config = format!(
        "NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {port}; MNT_Port = {mount_port}; Enable_NLM = false;
            Enable_RQUOTA = false; Bind_addr = 127.0.0.1; }}
         EXPORT_DEFAULTS {{ Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Transports = TCP; Protocols = 3; }}
         EXPORT {{ Export_Id = 1; Path = {}; Pseudo = /bench; FSAL {{ Name = VFS; }} }}
         LOG {{ Default_Log_Level = EVENT; }}\n",
        files.display()
    );
    let path = folder.path().join("ganesha.conf");
    fs::write(&path, config).unwrap();
    let pid = folder.path().join("pid");
    let mut process =
        spawn(Command::new(program).arg("-F").arg("-f").arg(path).arg("-L").arg(&log).arg("-p").arg(pid), &log);
    wait_for(port, &mut process, &log);
    fs::create_dir(files.join("inside")).unwrap();
    // A folder within the export: it has to be found by walking there.
    let url = format!("nfs://127.0.0.1:{port}{}/inside?mountport={mount_port}", files.display());
    let files = Some(files.join("inside"));
    Some(Server { url, options: options(), files, process, helper, _turn: Some(turn), _folder: folder })
}

pub fn smbd() -> Option<Server> {
    let (program, smbpasswd) = (program("smbd")?, program("smbpasswd")?);
    if !is_root() {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let (files, log, port) = (with_files(&folder), folder.path().join("log"), free_port());
    let home = folder.path().display();
    for sub in ["private", "lock", "state", "cache", "pid", "ncalrpc"] {
        fs::create_dir(folder.path().join(sub)).unwrap();
    }
    let config = format!(
        "[global]\nserver role = standalone server\nworkgroup = BENCH\nmap to guest = never\nlog level = 0
        interfaces = 127.0.0.1\nbind interfaces only = yes\nsmb ports = {port}\nserver min protocol = SMB3_11
        server smb encrypt = if_required
        disable spoolss = yes\nload printers = no\nprinting = bsd\nprintcap name = /dev/null
        private dir = {home}/private\nlock directory = {home}/lock\nstate directory = {home}/state
        cache directory = {home}/cache\npid directory = {home}/pid\nncalrpc dir = {home}/ncalrpc
        log file = {home}/smbd.log\npassdb backend = smbpasswd:{home}/private/smbpasswd
        [bench]\npath = {}\nread only = no\nforce user = root\n",
        files.display()
    );
    let path = folder.path().join("smb.conf");
    fs::write(&path, config).unwrap();
    let mut adding = Command::new(smbpasswd)
        .args(["-c".as_ref(), path.as_os_str(), "-s".as_ref(), "-a".as_ref(), "root".as_ref()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    write!(adding.stdin.take().unwrap(), "{PASSWORD}\n{PASSWORD}\n").unwrap();
    assert!(adding.wait().unwrap().success());
    let mut process = spawn(Command::new(program).arg("-F").arg("-s").arg(path), &log);
    wait_for(port, &mut process, &log);
    let url = format!("smb://root@127.0.0.1:{port}/bench");
    let options = ClientOptions { password: Some(PASSWORD.into()), ..options() };
    Some(Server { url, options, files: Some(files), process, helper: None, _turn: None, _folder: folder })
}

/// Not the system's service: another port, other keys, another configuration.
pub fn sshd() -> Option<Server> {
    let (program, keygen) = (program("sshd")?, program("ssh-keygen")?);
    if !is_root() {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let (files, log, port) = (with_files(&folder), folder.path().join("log"), free_port());
    let home = folder.path().display();
    for key in ["host", "user"] {
        let made =
            Command::new(&keygen).args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.path().join(key)).status();
        assert!(made.unwrap().success());
    }
    // It wants this folder to be there, whatever its configuration says.
    fs::create_dir_all("/run/sshd").unwrap();
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {home}/host\nAuthorizedKeysFile {home}/user.pub\nPidFile {home}/pid
        StrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\nMaxStartups 100\nSubsystem sftp internal-sftp\n"
    );
    let path = folder.path().join("sshd.conf");
    fs::write(&path, config).unwrap();
    let mut process = spawn(Command::new(program).arg("-D").arg("-e").arg("-f").arg(path), &log);
    wait_for(port, &mut process, &log);
    let url = format!("sftp://root@127.0.0.1:{port}{}", files.display());
    let options = ClientOptions { key_file: Some(folder.path().join("user")), ..options() };
    Some(Server { url, options, files: Some(files), process, helper: None, _turn: None, _folder: folder })
}

/// With a certificate of its own making, if wanted.
pub fn webdav(secure: bool) -> Option<Server> {
    let (program, openssl) = (program("rclone")?, program("openssl")?);
    let folder = tempfile::tempdir().unwrap();
    let (files, log, port) = (with_files(&folder), folder.path().join("log"), free_port());
    let mut command = Command::new(program);
    command.args(["serve", "webdav", "--user", "me", "--pass", PASSWORD, "--addr"]).arg(format!("127.0.0.1:{port}"));
    // Others may change the folder too.
    command.args(["--dir-cache-time", "0s"]).arg("--config").arg(folder.path().join("none")).arg(&files);
    if secure {
        let (cert, key) = (folder.path().join("cert"), folder.path().join("key"));
        let made = Command::new(openssl)
            .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=nas", "-keyout"])
            .arg(&key)
            .arg("-out")
            .arg(&cert)
            .stderr(Stdio::null())
            .status();
        assert!(made.unwrap().success());
        command.arg("--cert").arg(cert).arg("--key").arg(key);
    }
    let mut process = spawn(&mut command, &log);
    wait_for(port, &mut process, &log);
    let scheme = if secure { "https" } else { "dav" };
    let url = format!("{scheme}://me:{PASSWORD}@127.0.0.1:{port}/");
    let options = ClientOptions { any_certificate: secure, ..options() };
    Some(Server { url, options, files: Some(files), process, helper: None, _turn: None, _folder: folder })
}
