"""The servers that bench/compare.py measures, each a process tree of the bench's own on loopback."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "e2e"))
import larderd  # noqa: E402  (the tests and the bench start larder the same way)

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


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


def tree(pid):
    """A process and its descendants."""
    pids = [pid]
    for at in pids:
        for task in Path(f"/proc/{at}/task").glob("*/children"):
            try:
                pids += [int(child) for child in task.read_text().split()]
            except OSError:
                pass
    return pids


def cpu_s(pid):
    """User and system seconds of a process tree, with those of its children that have ended."""
    ticks = 0
    for at in tree(pid):
        try:
            fields = Path(f"/proc/{at}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        ticks += sum(int(fields[n]) for n in (11, 12, 13, 14))
    return ticks / TICKS_PER_S


def rss_bytes(pid):
    total = 0
    for at in tree(pid):
        try:
            lines = Path(f"/proc/{at}/status").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
    return total


class Server:
    """What compare.py needs of each: where it listens, what it costs, how to stop and go on."""

    name = "?"
    pid = None
    log_path = None

    def start(self):
        raise NotImplementedError

    def stop(self):
        raise NotImplementedError

    def nfs(self):
        """(port, mount port, export)"""
        raise NotImplementedError

    def smb(self):
        """(port, share, user, password)"""
        raise NotImplementedError

    def restart(self):
        self.stop()
        self.start()

    def pause(self):
        """While another server is measured this one has no share of the CPU."""
        for pid in tree(self.pid):
            os.kill(pid, signal.SIGSTOP)

    def resume(self):
        for pid in tree(self.pid):
            os.kill(pid, signal.SIGCONT)

    def settle(self, limit_s=20.0):
        """Until what was put off (destaging, collection) is done: half a second with under 2 % of a core."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            before = cpu_s(self.pid)
            time.sleep(0.5)
            if cpu_s(self.pid) - before <= 0.01:
                return
        print(f"note: {self.name} is still busy {limit_s:.0f} s after its run", file=sys.stderr)


class Process(Server):
    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process = None

    def spawn(self, *command):
        with open(self.folder / "output.log", "ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def stop(self):
        if self.process is None:
            return
        self.resume()
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = self.pid = None


class Ganesha(Process):
    name = "nfs-ganesha"

    def __init__(self, folder, export):
        super().__init__(folder)
        self.export = Path(export)
        self.export.mkdir(parents=True, exist_ok=True)
        self.port, self.mount_port = free_port(), free_port()
        self.rpcbind = None

    def start(self):
        # Ganesha does not start where no portmapper answers.
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", 111)) != 0:
                self.rpcbind = self.spawn("rpcbind", "-f")
                wait_for_port(111, self.rpcbind)
        config = self.folder / "ganesha.conf"
        config.write_text(
            f"NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {self.port}; MNT_Port = {self.mount_port};"
            " Enable_NLM = false; Enable_RQUOTA = false; Bind_addr = 127.0.0.1; }\n"
            "EXPORT_DEFAULTS { Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Transports = TCP; Protocols = 3; }\n"
            f"EXPORT {{ Export_Id = 1; Path = {self.export}; Pseudo = /bench; FSAL {{ Name = VFS; }} }}\n"
            "LOG { Default_Log_Level = EVENT; }\n"
        )
        log, pid_file = self.folder / "ganesha.log", self.folder / "ganesha.pid"
        self.process = self.spawn("ganesha.nfsd", "-F", "-f", str(config), "-L", str(log), "-p", str(pid_file))
        self.pid = self.process.pid
        wait_for_port(self.port, self.process)

    def stop(self):
        super().stop()
        if self.rpcbind is not None:
            self.rpcbind.terminate()
            self.rpcbind.wait()
            self.rpcbind = None

    def nfs(self):
        return self.port, self.mount_port, str(self.export)


class Smbd(Process):
    name = "smbd"
    password = "Pantry-Shelf-42"

    def __init__(self, folder, export):
        super().__init__(folder)
        self.export = Path(export)
        self.export.mkdir(parents=True, exist_ok=True)
        self.port = free_port()

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
            f"log file = {self.folder}/smbd.log\npassdb backend = smbpasswd:{self.folder}/private/smbpasswd\n"
            f"[bench]\npath = {self.export}\nread only = no\nforce user = root\n"
        )
        subprocess.run(
            ["smbpasswd", "-c", str(config), "-s", "-a", "root"], input=f"{self.password}\n{self.password}\n",
            text=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        # It makes itself a session, and ends its whole process group when it is told to stop.
        self.process = self.spawn("smbd", "-F", "-s", str(config))
        self.pid = self.process.pid
        wait_for_port(self.port, self.process)

    def smb(self):
        return self.port, "bench", "root", self.password


class Larder(Server):
    def __init__(self, folder, disks, layout, name, program):
        self.name = name
        self.daemon = larderd.Larder(disks, folder, layout=layout, program=program)

    def start(self):
        self.daemon.start()
        self.pid = self.daemon.pid

    def stop(self):
        if self.daemon.process is not None:
            self.resume()
            code = self.daemon.stop()
            if code != 0:
                raise RuntimeError(f"{self.name} ended with {code}: {self.daemon.log()[-2000:]}")
        self.pid = None

    def nfs(self):
        return self.daemon.nfs_port, self.daemon.nfs_port, self.daemon.export

    def smb(self):
        return self.daemon.smb_port, self.daemon.share, self.daemon.user, self.daemon.password


class Scratch:
    """One XFS filesystem for all servers, on a loop device over a preallocated file: same disk, same filesystem, and
    counters (bytes, flushes) that nobody else's work disturbs. The device bypasses the page cache below it."""

    def __init__(self, folder, size_bytes):
        self.folder = Path(folder)
        self.mount = self.folder / "xfs"
        self.mount.mkdir(parents=True, exist_ok=True)
        self.image = self.folder / "xfs.img"
        self._fill(size_bytes)
        done = subprocess.run(
            ["losetup", "--find", "--show", "--direct-io=on", str(self.image)], check=True, text=True, capture_output=True
        )
        self.device = done.stdout.strip()
        # Discarding would punch out what was just allocated.
        subprocess.run(["mkfs.xfs", "-q", "-K", "-f", self.device], check=True)
        subprocess.run(["mount", "-o", "nodiscard,noatime", self.device, str(self.mount)], check=True)

    def _fill(self, size_bytes):
        free = shutil.disk_usage(self.folder).free
        if free < size_bytes * 1.2:
            raise RuntimeError(f"{self.folder} has {free >> 30} GiB free, {size_bytes >> 30} GiB and some are needed")
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={self.image}", "bs=4M", f"count={size_bytes >> 22}", "oflag=direct"],
            check=True, stderr=subprocess.DEVNULL,
        )

    def counters(self):
        """(bytes written, flushes) of the device since it was made."""
        fields = Path(f"/sys/block/{Path(self.device).name}/stat").read_text().split()
        return int(fields[6]) * 512, int(fields[15])

    def sync(self):
        subprocess.run(["sync", "-f", str(self.mount)], check=True)

    def close(self):
        subprocess.run(["umount", str(self.mount)], check=False)
        subprocess.run(["losetup", "-d", self.device], check=False)
        self.image.unlink(missing_ok=True)
