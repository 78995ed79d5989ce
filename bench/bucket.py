#!/usr/bin/python3
"""Mounts of a bucket: larder beside rclone mount, s3fs and, where it is built (`make peers`), JuiceFS, all on one local S3 server.

Each subject has a bucket of its own on the same server, is reached through one `larder-test-bucket via` (which counts requests and adds
latency), and is measured by turns; a row is the median of the turns. What is read does not compress. `cold` means: mounted anew, and the
kernel's cache dropped. Every write counts until fsync and close have returned. Run as root, beside an idle machine:

    LARDER=target/release/larder bench/bucket.py [--server versitygw] [--latency-ms 20] [--size-mib 512] [--files 500] [--reps 3]
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "e2e"))
import s3servers  # noqa: E402
from larderd import Larder, binary  # noqa: E402
from servers import cpu_s  # noqa: E402

ROUND_READS, IN_FLIGHT = 200, 16


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stdout}\n{done.stderr}")
    return done.stdout


def drop_caches():
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


class Via:
    """The way to the server, with its latency and its counts."""

    def __init__(self, server, latency_ms):
        program = Path(binary()).parent / "larder-test-bucket"
        command = [program, "via", "0", f"127.0.0.1:{server.port}", f"latency_ms={latency_ms}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.endpoint = self.process.stdout.readline().strip()

    def counts(self):
        with urllib.request.urlopen(f"{self.endpoint}/_counts", timeout=10) as answer:
            return json.load(answer)

    def end(self):
        self.process.kill()
        self.process.wait()


class Subject:
    """A program that shows a bucket as a folder."""

    name = "?"

    def __init__(self, folder, endpoint, env):
        self.folder, self.endpoint = folder / self.name, endpoint
        # What the caller has set for servers elsewhere is not for this one.
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | env
        self.mount = self.folder / "mnt"
        self.mount.mkdir(parents=True)
        self.process = None

    def spawn(self, *command):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen([str(c) for c in command], stdout=log, stderr=log, env=self.env)
        end = time.monotonic() + 60
        while not os.path.ismount(self.mount):
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{self.name} did not mount: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    @property
    def pid(self):
        return self.process.pid

    def stop(self):
        """Unmounts, and so writes whatever was put off."""
        run("umount", self.mount)
        self.process.wait(120)

    def end(self):
        """For tear-down: whatever state it is in, it is gone afterwards."""
        subprocess.run(["umount", "-l", self.mount], check=False, capture_output=True)
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class OurMount(Subject):
    name = "larder"

    def start(self):
        extra = ["--store", "s3://larder/nas", "--endpoint", self.endpoint, "--mount", str(self.mount), "--squash", "none"]
        self.daemon = Larder([], self.folder / "data", extra=extra).start(env=self.env)

    @property
    def pid(self):
        return self.daemon.pid

    def stop(self):
        code = self.daemon.stop(120)
        if code:
            raise SystemExit(f"larder ended with {code}: {self.daemon.log()[-2000:]}")

    def end(self):
        subprocess.run(["umount", "-l", self.mount], check=False, capture_output=True)
        if hasattr(self, "daemon"):
            self.daemon.end()


class Rclone(Subject):
    """Without a cache of files, so that close waits until the bucket has the file."""

    name = "rclone"

    def start(self):
        self.spawn("rclone", "mount", f":s3,provider=Other,env_auth=true,region={s3servers.REGION},endpoint='{self.endpoint}':rclone",
                   self.mount, "--vfs-cache-mode", "off", "--config", "/dev/null", "--s3-force-path-style")


class S3fs(Subject):
    name = "s3fs"

    def start(self):
        keys = self.folder / "keys"
        keys.write_text(f"{s3servers.ACCESS}:{s3servers.SECRET}\n")
        keys.chmod(0o600)
        self.spawn("s3fs", "s3fs", self.mount, "-f", "-o", f"url={self.endpoint}", "-o", "use_path_request_style",
                   "-o", f"passwd_file={keys}", "-o", f"endpoint={s3servers.REGION}", "-o", f"parallel_count={IN_FLIGHT}",
                   "-o", "multireq_max=50", "-o", "tmpdir=" + str(self.folder))


class JuiceFs(Subject):
    """Blocks in the bucket; names and attributes in a Redis on this machine, whose log is written through at each change, as fsync of the others is."""

    name = "juicefs"
    program = s3servers.FOLDER / "juicefs"
    redis = None

    def start(self):
        place = f"unix://{self.folder}/redis.sock?db=1"
        if self.redis is None:
            self.redis = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", self.folder / "redis.sock", "--dir", self.folder, "--save", "",
                                           "--appendonly", "yes", "--appendfsync", "always"], stdout=subprocess.DEVNULL)
            while not (self.folder / "redis.sock").exists():
                time.sleep(0.05)
            keys = {"ACCESS_KEY": s3servers.ACCESS, "SECRET_KEY": s3servers.SECRET}
            run(self.program, "format", "--storage", "s3", "--bucket", f"{self.endpoint}/juicefs", "--trash-days", "0", place, "juicefs",
                env=self.env | keys)
        # Cold: nothing is left of the blocks that it kept.
        shutil.rmtree(self.folder / "cache", ignore_errors=True)
        self.spawn(self.program, "mount", place, self.mount, "--cache-dir", self.folder / "cache", "--max-uploads", IN_FLIGHT, "--backup-meta", "0",
                   "--no-usage-report", "--no-syslog")

    def end(self):
        super().end()
        if self.redis:
            self.redis.kill()
            self.redis.wait()


SUBJECTS = [OurMount, Rclone, S3fs] + [JuiceFs] * JuiceFs.program.exists()


def write_file(path, source):
    with open(source, "rb") as data, open(path, "wb", buffering=0) as file:
        while chunk := data.read(1 << 20):
            file.write(chunk)
        os.fsync(file.fileno())


def read_file(path):
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


def read_at(path, places, threads):
    """4 KiB at each place, by so many threads."""
    def some(part):
        file = os.open(path, os.O_RDONLY)
        for at in part:
            assert len(os.pread(file, 4096, at)) == 4096
        os.close(file)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(some, [places[n::threads] for n in range(threads)]))


def create_files(folder, names, threads):
    def some(part):
        for name in part:
            with open(folder / name, "wb", buffering=0) as file:
                file.write(os.urandom(4096))
                os.fsync(file.fileno())

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(some, [names[n::threads] for n in range(threads)]))


def append_durably(path, times):
    with open(path, "ab", buffering=0) as file:
        for _ in range(times):
            file.write(os.urandom(4096))
            os.fsync(file.fileno())


class Turn:
    """The rows of one subject: {row: (seconds, CPU seconds, requests)}."""

    def __init__(self, subject, via, asked, source, turn):
        self.subject, self.via, self.asked, self.source, self.turn = subject, via, asked, source, turn
        self.rows = {}

    def time(self, row, work):
        os.sync()
        requests, cpu, begun = self.via.counts(), cpu_s(self.subject.pid), time.monotonic()
        work()
        took, cpu = time.monotonic() - begun, cpu_s(self.subject.pid) - cpu
        requests = {kind: n - requests.get(kind, 0) for kind, n in self.via.counts().items() if n != requests.get(kind, 0)}
        self.rows[row] = (took, cpu, requests)

    def again(self):
        """Cold."""
        self.subject.stop()
        drop_caches()
        self.subject.start()

    def measure(self):
        subject, asked = self.subject, self.asked
        subject.start()
        big, many = subject.mount / f"big{self.turn}", subject.mount / f"many{self.turn}"
        rng = random.Random(self.turn)
        places = [rng.randrange(asked.size_mib << 8) << 12 for _ in range(ROUND_READS)]
        names = [f"file-{n:05}" for n in range(asked.files)]
        few = [f"alone-{n:05}" for n in range(max(20, asked.files // 10))]
        self.time("sequential write", lambda: write_file(big, self.source))
        self.again()
        self.time("sequential read, cold", lambda: read_file(big))
        self.again()
        self.time("random 4 KiB read, cold", lambda: read_at(big, places, 1))
        drop_caches()
        self.time("random 4 KiB read, the same again", lambda: read_at(big, places, 1))
        self.again()
        self.time(f"random 4 KiB read, cold, {IN_FLIGHT} at once", lambda: read_at(big, places, IN_FLIGHT))
        many.mkdir()
        self.time("create 4 KiB with fsync", lambda: create_files(many, few, 1))
        self.time(f"create 4 KiB with fsync, {IN_FLIGHT} at once", lambda: create_files(many, names, IN_FLIGHT))
        self.time("append 4 KiB and fsync", lambda: append_durably(subject.mount / f"grows{self.turn}", 40))
        self.again()
        self.time("list, cold", lambda: os.listdir(many))
        self.time("stat", lambda: [os.stat(many / name) for name in names])
        self.time("unlink", lambda: [os.unlink(many / name) for name in few])
        subject.stop()
        return self.rows


def units(row, asked):
    """(how many units a row is of, their name)"""
    few, bytes_ = max(20, asked.files // 10), asked.size_mib << 20
    if row.startswith("sequential"):
        return bytes_ / 1e6, "MB/s"
    if row.startswith("random"):
        return ROUND_READS, "read/s"
    if row.startswith("append"):
        return 40, "fsync/s"
    if row.startswith("list"):
        return asked.files + few, "name/s"
    if row.startswith("unlink") or row == "create 4 KiB with fsync":
        return few, "file/s"
    return asked.files, "file/s"


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--server", default="versitygw", choices=[make.program for make in s3servers.SERVERS])
    words.add_argument("--latency-ms", type=int, default=0)
    words.add_argument("--size-mib", type=int, default=512)
    words.add_argument("--files", type=int, default=500)
    words.add_argument("--reps", type=int, default=3)
    words.add_argument("--only", nargs="*", default=[make.name for make in SUBJECTS])
    words.add_argument("--folder", type=Path, default=Path("/tmp"))
    asked = words.parse_args()
    make = next(make for make in s3servers.SERVERS if make.program == asked.server)
    at = Path(tempfile.mkdtemp(prefix="larder-bucket-", dir=asked.folder))
    source = at / "source"
    with open(source, "wb") as file:
        for _ in range(asked.size_mib):
            file.write(os.urandom(1 << 20))
    results, bare = {}, []
    with make(at / "server", at / "objects") as server:
        for name in ["bare", *asked.only]:
            server.make_bucket(name)
        via = Via(server, asked.latency_ms)
        subjects = [kind(at, via.endpoint, server.env) for kind in SUBJECTS if kind.name in asked.only]
        try:
            for turn in range(asked.reps):
                program = Path(binary()).parent / "larder-test-bucket"
                told = run(program, "bare", "s3://bare/x", via.endpoint, f"mib={asked.size_mib}", env={**os.environ, **server.env})
                bare.append(json.loads(told))
                for subject in subjects:
                    rows = Turn(subject, via, asked, source, turn).measure()
                    for row, seen in rows.items():
                        results.setdefault(row, {}).setdefault(subject.name, []).append(seen)
                    print(f"turn {turn}, {subject.name}: {json.dumps(rows)}", file=sys.stderr, flush=True)
        finally:
            for subject in subjects:
                subject.end()
            via.end()
    shutil.rmtree(at, ignore_errors=True)
    show(results, bare, asked)


def show(results, bare, asked):
    median = statistics.median
    put, get = (median(one[key] for one in bare) for key in ("put_mb_s", "get_mb_s"))
    print(f"\n{asked.server}, {asked.latency_ms} ms, {asked.size_mib} MiB, {asked.files} files, {asked.reps} turns")
    print(f"bare client, 16 in flight: put {put:.0f}, get {get:.0f} MB/s\n")
    names = asked.only
    print(f"| | unit | {' | '.join(names)} | larder / best other | CPU ms a unit: {', '.join(names)} | requests a unit: {', '.join(names)} |")
    print("|---|---|" + "---:|" * len(names) + "---:|---|---|")
    for row, seen in results.items():
        count, unit = units(row, asked)
        rate = {name: count / median(one[0] for one in seen[name]) for name in names if name in seen}
        cpu = [f"{median(one[1] for one in seen[name]) * 1000 / count:.2f}" for name in rate]
        requests = [f"{median(sum(one[2].values()) for one in seen[name]) / count:.2f}" for name in rate]
        others = [rate[name] for name in rate if name != "larder"]
        ratio = f"{rate['larder'] / max(others):.2f}" if others and "larder" in rate else ""
        print(f"| {row} | {unit} | {' | '.join(f'{rate[name]:.0f}' for name in rate)} | {ratio} | {', '.join(cpu)} | {', '.join(requests)} |")
    for row, kind in (("sequential write", put), ("sequential read, cold", get)):
        if "larder" in results.get(row, {}):
            rate = units(row, asked)[0] / median(one[0] for one in results[row]["larder"])
            print(f"{row}: {rate / kind:.2f} of the bare client")


if __name__ == "__main__":
    main()
