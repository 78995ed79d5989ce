"""Servers of other makes on loopback, each a process tree of its own, for the tests and the bench.

What they serve lies in a plain folder (`export`), so that a test can look at what is left there. Every process is ended by
its pid.
"""

import contextlib
import os
import random
import socket
import subprocess
import time
from pathlib import Path

PASSWORD = "Pantry-Shelf-42"


def free_port(count=1):
    """The first of `count` ports in a row that nobody has. Below those that the kernel gives to connections (32768 on): it
    would give one of ours to somebody else before the server that is to have it starts."""
    while True:
        port = random.randrange(20000, 32000)
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for one in range(port, port + count):
                held.enter_context(socket.socket()).bind(("127.0.0.1", one))
            return port


def wait_for_port(port, process, timeout_s=30):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args[0]} ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"{process.args[0]} does not listen on {port}")


class Process:
    """A server that serves the folder `export` and keeps its own files in `folder`."""

    name = "?"

    def __init__(self, folder, export):
        self.folder, self.export = Path(folder), Path(export)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.export.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.process = self.pid = None

    def spawn(self, *command):
        with open(self.folder / "output.log", "ab") as log:
            return subprocess.Popen([str(c) for c in command], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def serve(self, *command):
        self.process = self.spawn(*command)
        self.pid = self.process.pid
        wait_for_port(self.port, self.process)

    def start(self):
        raise NotImplementedError

    def stop(self):
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = self.pid = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()


class Ganesha(Process):
    name = "nfs-ganesha"

    def __init__(self, folder, export):
        super().__init__(folder, export)
        self.mount_port = free_port()
        self.rpcbind = None

    def start(self):
        # Ganesha does not start where no portmapper answers.
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", 111)) != 0:
                self.rpcbind = self.spawn("rpcbind", "-f")
                wait_for_port(111, self.rpcbind)
        config = self.folder / "ganesha.conf"
        config.write_text(
            f"NFS_CORE_PARAM {{ Protocols = 3, 4; NFS_Port = {self.port}; MNT_Port = {self.mount_port};"
            " Enable_NLM = false; Enable_RQUOTA = false; Bind_addr = 127.0.0.1; }\n"
            "EXPORT_DEFAULTS { Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Transports = TCP; Protocols = 3, 4; }\n"
            f"EXPORT {{ Export_Id = 1; Path = {self.export}; Pseudo = /bench; FSAL {{ Name = VFS; }} }}\n"
            # Nobody has anything to reclaim here.
            f"NFSv4 {{ Minor_Versions = 1, 2; Graceless = true; RecoveryBackend = fs; RecoveryRoot = {self.folder}; }}\n"
            "LOG { Default_Log_Level = EVENT; }\n"
        )
        log, pid_file = self.folder / "ganesha.log", self.folder / "ganesha.pid"
        self.serve("ganesha.nfsd", "-F", "-f", config, "-L", log, "-p", pid_file)

    def stop(self):
        super().stop()
        if self.rpcbind is not None:
            self.rpcbind.terminate()
            self.rpcbind.wait()
            self.rpcbind = None

    @property
    def url(self):
        return f"nfs://127.0.0.1:{self.port}{self.export}?mountport={self.mount_port}"

    # The path of the export in version 4.
    pseudo = "/bench"


class Smbd(Process):
    """Shares `bench`, read-only `sealed`, and those of `more`: a folder for each name. `settings` are lines for all of them."""

    name = "smbd"
    password = PASSWORD
    more = {}
    settings = ""

    def start(self):
        for sub in ("private", "lock", "state", "cache", "pid", "ncalrpc"):
            (self.folder / sub).mkdir(exist_ok=True)
        config = self.folder / "smb.conf"
        config.write_text(
            "[global]\n"
            "server role = standalone server\nworkgroup = BENCH\nmap to guest = never\nlog level = 0\n"
            f"interfaces = 127.0.0.1\nbind interfaces only = yes\nsmb ports = {self.port}\n"
            "server min protocol = SMB3_11\nserver signing = mandatory\nserver smb encrypt = off\n"
            "disable spoolss = yes\nload printers = no\nprinting = bsd\nprintcap name = /dev/null\n"
            f"private dir = {self.folder}/private\nlock directory = {self.folder}/lock\n"
            f"state directory = {self.folder}/state\ncache directory = {self.folder}/cache\n"
            f"pid directory = {self.folder}/pid\nncalrpc dir = {self.folder}/ncalrpc\n"
            f"{self.settings}log file = {self.folder}/smbd.log\npassdb backend = smbpasswd:{self.folder}/private/smbpasswd\n"
            f"[bench]\npath = {self.export}\nread only = no\nforce user = root\n"
            f"[sealed]\npath = {self.export}\nread only = yes\n"
            + "".join(f"[{name}]\npath = {path}\nread only = no\nforce user = root\n" for name, path in self.more.items())
        )
        subprocess.run(
            ["smbpasswd", "-c", str(config), "-s", "-a", "root"], input=f"{self.password}\n{self.password}\n",
            text=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        # It makes itself a session, and ends its whole process group when it is told to stop.
        self.serve("smbd", "-F", "-s", config)

    @property
    def url(self):
        return self.url_of("bench")

    def url_of(self, share):
        return f"smb://root@127.0.0.1:{self.port}/{share}"


class Sshd(Process):
    """Not the system's service: another port, other keys, another configuration; only the key in `key` opens it.

    `environment` is what a session finds, beside what it always has."""

    name = "sshd"
    environment = {}

    @property
    def key(self):
        return self.folder / "user"

    def start(self):
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key)], check=True)
        # It wants this folder to be there, whatever its configuration says.
        os.makedirs("/run/sshd", exist_ok=True)
        config = self.folder / "sshd.conf"
        config.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.folder}/host\nAuthorizedKeysFile {self.key}.pub\n"
            f"PidFile {self.folder}/pid\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n"
            "MaxStartups 100\nSubsystem sftp internal-sftp\n"
            # Of several such lines the first would count.
            + (f"SetEnv {' '.join(f'{name}={value}' for name, value in self.environment.items())}\n" if self.environment else "")
        )
        self.serve("/usr/sbin/sshd", "-D", "-e", "-f", config)

    @property
    def url(self):
        return f"sftp://root@127.0.0.1:{self.port}{self.export}"


class WebDav(Process):
    name = "rclone"
    password = "Bread-Bin-17"

    def start(self):
        # Others may change the folder too.
        self.serve("rclone", "serve", "webdav", "--user", "me", "--pass", self.password, "--addr", f"127.0.0.1:{self.port}",
                   "--dir-cache-time", "0s", "--config", self.folder / "none", self.export)

    @property
    def url(self):
        return f"dav://me@127.0.0.1:{self.port}/"
