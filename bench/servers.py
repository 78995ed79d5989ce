"""The servers that bench/compare.py measures, each a process tree of the bench's own on loopback."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "e2e"))
import larderd  # noqa: E402  (the tests and the bench start servers the same way)
import others  # noqa: E402

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


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

    def nfs(self, version=3):
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


class Wakes:
    """One that may be paused has to go on before it can be told to stop."""

    def stop(self):
        if self.process is not None:
            self.resume()
        super().stop()


class Ganesha(Wakes, others.Ganesha, Server):
    def nfs(self, version=3):
        return self.port, self.mount_port, self.pseudo if version == 4 else str(self.export)


class Smbd(Wakes, others.Smbd, Server):
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

    def nfs(self, version=3):
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
