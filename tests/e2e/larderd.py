"""Starts, stops and kills one `larder up` on folders of a test's own.

Shared by the end-to-end tests and bench/compare.py. Every process is ended by its pid.
"""

import json
import os
import select
import signal
import subprocess
import time
import weakref
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def binary():
    """The larder under test: $LARDER, or what the Makefile built."""
    named = os.environ.get("LARDER")
    target = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
    candidates = [Path(named)] if named else [target / kind / "larder" for kind in ("release", "debug")]
    for path in candidates:
        if path.exists():
            return str(path)
    raise FileNotFoundError(f"no larder binary at {' or '.join(map(str, candidates))}: run `cargo build --release`")


class StartFailed(Exception):
    """`larder up` ended or said nothing; the text is what it wrote to stderr."""


# Every daemon that still is somebody's, for the report of a test that failed.
DAEMONS = weakref.WeakSet()


def report():
    """What each daemon is, and the end of what it said."""
    for daemon in list(DAEMONS):
        state = f"running as {daemon.pid}" if daemon.alive() else "not running"
        try:
            said = daemon.log(since_start=False)[-6000:]
        except OSError as error:
            said = f"no log: {error}"
        yield f"larder on {daemon.data} ({daemon.layout}), {state}", f"{json.dumps(daemon.info)}\n{said}"


class Larder:
    """One daemon. `disks` are folders; `data` is where it keeps config and state."""

    def __init__(self, disks, data, layout="raidz1", extra=(), password="Pantry-Shelf-42", program=None):
        self.disks = [Path(d) for d in disks]
        self.data = Path(data)
        self.layout = layout
        self.extra = list(extra)
        self.password = password
        self.program = program or binary()
        self.process = None
        self.info = None
        self.data.mkdir(parents=True, exist_ok=True)
        self.log_path = self.data / "stderr.log"
        DAEMONS.add(self)
        self.password_file = self.data / "password"
        if not self.password_file.exists():
            self.password_file.write_text(password + "\n")
            self.password_file.chmod(0o600)

    def command(self):
        # Its usual port is one, and tests run side by side.
        page = [] if any(word in self.extra for word in ("--page", "--webdavs")) else ["--page", "off"]
        return [
            self.program, "up", *map(str, self.disks), "--layout", self.layout, "--data", str(self.data),
            "--nfs", "127.0.0.1:0", "--smb", "127.0.0.1:0", "--user", "keeper",
            "--password-file", str(self.password_file), "--json", *page, *self.extra,
        ]

    def start(self, timeout_s=60, env=None):
        assert self.process is None, "already running"
        for disk in self.disks:
            disk.parent.mkdir(parents=True, exist_ok=True)
        log = open(self.log_path, "ab")
        self.log_start = log.tell()
        self.process = subprocess.Popen(
            self.command(), stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})}, cwd=self.data,
        )
        log.close()
        line = self._first_line(timeout_s)
        try:
            self.info = json.loads(line)
        except ValueError:
            self._reap()
            raise StartFailed(f"no JSON line within {timeout_s} s, got {line!r}\n{self.log()}") from None
        return self

    def _first_line(self, timeout_s):
        end, line = time.monotonic() + timeout_s, b""
        pipe = self.process.stdout.fileno()
        while not line.endswith(b"\n") and time.monotonic() < end:
            if select.select([pipe], [], [], 0.2)[0]:
                chunk = os.read(pipe, 65536)
                if not chunk:
                    break
                line += chunk
        return line

    def log(self, since_start=True):
        with open(self.log_path, "rb") as f:
            if since_start:
                f.seek(self.log_start)
            return f.read().decode(errors="replace")

    @property
    def pid(self):
        return self.process.pid

    @property
    def nfs_port(self):
        return self.info["nfs"]["port"]

    @property
    def export(self):
        return self.info["nfs"]["export"]

    @property
    def smb_port(self):
        return self.info["smb"]["port"]

    @property
    def share(self):
        return self.info["smb"]["share"]

    @property
    def user(self):
        return self.info["user"]

    def _reap(self):
        if self.process.poll() is None:
            self.process.kill()
        code = self.process.wait()
        self.process.stdout.close()
        self.process = None
        return code

    def reap(self):
        """The exit code of a daemon that has ended by itself."""
        assert self.process.poll() is not None, "it runs"
        return self._reap()

    def stop(self, timeout_s=60):
        """SIGTERM and the exit code; a daemon that does not stop in time is killed and reported."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._reap()
            raise AssertionError(f"larder did not stop within {timeout_s} s of SIGTERM\n{self.log()[-4000:]}") from None
        return self._reap()

    def kill(self):
        """kill -9: what a crash of the process leaves behind."""
        self.process.send_signal(signal.SIGKILL)
        self._reap()

    def end(self):
        """For tear-down: whatever state it is in, it is gone afterwards."""
        if self.process is not None:
            self._reap()

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def rss_bytes(self):
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def run(self, *args, check=False, timeout_s=120):
        """A larder command aimed at this daemon."""
        return run("--data", self.data, *args, program=self.program, cwd=self.data, check=check, timeout_s=timeout_s)

    def status(self):
        """The pool as `larder pool status --json` has it."""
        found = json.loads(self.run("pool", "status", "--json", check=True).stdout)
        return found[0] if isinstance(found, list) else found

    def disk_status(self, disk):
        """One disk of it, by folder."""
        return next(d for d in self.status()["disks"] if Path(d["path"]) == Path(disk))

    def check(self, *options):
        """`larder check` on the disks of a daemon that is stopped."""
        assert self.process is None
        disks = [word for disk in self.disks for word in ("--disk", disk)]
        return run("--data", self.data, "check", *options, *disks, program=self.program, cwd=self.data, timeout_s=600)


def run(*args, program=None, cwd=None, check=False, timeout_s=120):
    done = subprocess.run(
        [program or binary(), *map(str, args)], cwd=cwd, timeout=timeout_s, text=True, capture_output=True,
        stdin=subprocess.DEVNULL, check=False,
    )
    if check and done.returncode != 0:
        raise AssertionError(f"larder {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done
