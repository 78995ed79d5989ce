#!/usr/bin/python3
"""Scrub and rebuild against what the disks themselves do.

    bench/rates.py FOLDER [--layout raidz2] [--disks 5] [--data 6] [--limit MB/s] [--scrubs N | --beside] [--quick]

Each disk is an XFS of its own on a loop device in FOLDER, past the host's cache, and says that it does not seek; `--limit`
holds each of them to the rate of a hard disk (control group, blkio), so that not the processor is measured but how well the
disks are used, and lets it say that it does. `--scrubs` measures so many scrubs and nothing else, `--beside` what a reader keeps
of his speed while one runs; `--quick` shows that all of this works, on so little data that its figures mean nothing.

  R1  The ideal of a scrub is fio reading one large file of every disk at once, 1 MiB at a time.
  R2  The ideal of a rebuild is fio doing what the rebuild did, as many bytes read from each disk and written to the new one, at once.
  R3  Bytes are those of the devices' own counters. As root; nothing else may run.
  R4  Who reads does so by the mount, each file once, since then it is in larder's memory; by turns with and without a scrub.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from servers import Scratch, cpu_s, larderd  # noqa: E402

GROUP = Path("/sys/fs/cgroup/blkio") / f"larder-rates-{os.getpid()}"
GIB, MIB = 1 << 30, 1 << 20


class Disk(Scratch):
    def __init__(self, folder, size_bytes, seeks, is_sparse):
        self.is_sparse = is_sparse
        super().__init__(folder, size_bytes)
        (Path("/sys/block") / Path(self.device).name / "queue/rotational").write_text("1" if seeks else "0")

    def _fill(self, size_bytes):
        if not self.is_sparse:
            return super()._fill(size_bytes)
        with self.image.open("wb") as image:
            image.truncate(size_bytes)

    def folder_for(self, name):
        folder = self.mount / name
        folder.mkdir(exist_ok=True)
        return folder

    def bytes(self):
        """(read, written) since the device was made."""
        fields = Path(f"/sys/block/{Path(self.device).name}/stat").read_text().split()
        return int(fields[2]) * 512, int(fields[6]) * 512


@contextlib.contextmanager
def limited(disks, limit):
    """Everything this process starts is held to the limit on each disk."""
    if not limit:
        yield
        return
    GROUP.mkdir()
    home = Path("/sys/fs/cgroup/blkio/cgroup.procs")
    try:
        for disk in disks:
            number = Path(f"/sys/block/{Path(disk.device).name}/dev").read_text().strip()
            for way in ("read", "write"):
                (GROUP / f"blkio.throttle.{way}_bps_device").write_text(f"{number} {limit * 1_000_000}")
        (GROUP / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        home.write_text(str(os.getpid()))
        time.sleep(0.5)
        GROUP.rmdir()


def fio(jobs):
    """Runs (file, 'read' or 'write', bytes) jobs at once; returns the seconds that took."""
    lines = ["[global]", "direct=1", "ioengine=libaio", "iodepth=8", "bs=1m", "thread"]
    for number, (file, way, size) in enumerate(jobs):
        lines += [f"[job{number}]", f"filename={file}", f"rw={way}", f"io_size={size}"]
        lines += [f"size={min(size, os.path.getsize(file)) if way == 'read' else size}"]
    with tempfile.NamedTemporaryFile("w", suffix=".fio") as job:
        job.write("\n".join(lines) + "\n")
        job.flush()
        out = subprocess.run(["fio", "--output-format=json", job.name], check=True, text=True, capture_output=True).stdout
    done = json.loads(out[out.index("{"):])["jobs"]
    return max(side["runtime"] for one in done for side in (one["read"], one["write"])) / 1e3


def drop_caches():
    subprocess.run(["sync"], check=True)
    Path("/proc/sys/vm/drop_caches").write_text("3")


def wait(is_done, limit_s=3600):
    end = time.monotonic() + limit_s
    while not is_done():
        if time.monotonic() > end:
            sys.exit("it does not end")
        time.sleep(0.1)


class Meter:
    """What the disks and the server did meanwhile."""

    def __init__(self, daemon, disks):
        self.daemon, self.disks = daemon, disks
        drop_caches()
        self.start, self.cpu, self.before = time.monotonic(), cpu_s(daemon.pid), [disk.bytes() for disk in disks]

    def stop(self):
        self.seconds = time.monotonic() - self.start
        self.cores = (cpu_s(self.daemon.pid) - self.cpu) / self.seconds
        moved = [(disk.bytes(), before) for disk, before in zip(self.disks, self.before)]
        self.read = [now[0] - then[0] for now, then in moved]
        self.written = [now[1] - then[1] for now, then in moved]
        return self


def read_by_turns(options, daemon, mount):
    """Medians of what one reader gets, in MB/s, alone and beside a scrub (R4)."""
    rates = {False: [], True: []}
    for number in range(options.files):
        is_beside = number % 2 == 1
        drop_caches()
        if is_beside:
            daemon.run("pool", "scrub", "start", check=True)
        rates[is_beside].append(options.file_bytes / 1e6 / fio([(mount / str(number), "read", options.file_bytes)]))
        if is_beside:
            if daemon.status()["scrub"]["phase"] != "running":
                print("note: the scrub was over before the reader was", file=sys.stderr)
            else:
                daemon.run("pool", "scrub", "stop", check=True)
    return [statistics.median(rates[is_beside]) for is_beside in (False, True)]


def report(name, meter, ideal_s, amount):
    ratio = ideal_s / meter.seconds
    print(f"{name:9} {amount / 1e6 / meter.seconds:8.0f} MB/s   ideal {amount / 1e6 / ideal_s:8.0f} MB/s   {ratio:5.2f}   "
          f"{amount / GIB:5.2f} GiB   {meter.cores:4.2f} cores", flush=True)


def measure(options, disks, spare, work):
    daemon = larderd.Larder([disk.folder_for("larder") for disk in disks], work / "data", layout=options.layout)
    raw = [disk.folder_for("raw") / "file" for disk in disks + [spare]]
    data_bytes = options.files * options.file_bytes
    raw_bytes = data_bytes // len(disks)
    fio([(file, "write", raw_bytes) for file in raw])
    mount = work / "mount"
    mount.mkdir()
    daemon.extra = ["--mount", str(mount)]
    daemon.start()
    try:
        for number in range(options.files):
            blocks = f"count={options.file_bytes >> 20}"
            subprocess.run(["dd", "if=/dev/urandom", f"of={mount}/{number}", "bs=1M", blocks, "conv=fsync", "status=none"], check=True)
        # What was put off is done.
        while True:
            before = cpu_s(daemon.pid)
            time.sleep(1)
            if cpu_s(daemon.pid) - before < 0.03:
                break
        print(f"{options.layout} of {len(disks)} disks, {data_bytes / GIB:.2g} GiB of files, "
              + (f"each disk held to {options.limit} MB/s" if options.limit else "disks as fast as they are"))

        if options.beside:
            # Larder's memory forgets what was written.
            daemon.stop()
            daemon.start()
            alone, beside = read_by_turns(options, daemon, mount)
            print(f"a reader  {alone:8.0f} MB/s alone   {beside:8.0f} MB/s beside a scrub   {beside / alone:5.2f}")
            return
        for _ in range(options.scrubs or 1):
            meter = Meter(daemon, disks)
            daemon.run("pool", "scrub", "start", "--wait", check=True, timeout_s=3600)
            meter.stop()
            drop_caches()
            share = sum(meter.read) // len(disks)
            report("scrub", meter, fio([(file, "read", share) for file in raw[:-1]]), sum(meter.read))
        if options.scrubs:
            return

        meter = Meter(daemon, disks + [spare])
        daemon.run("pool", "replace", disks[0].folder_for("larder"), spare.folder_for("larder"), check=True)
        wait(lambda: (lambda now: now["moving"] is None and now["state"] == "ONLINE")(daemon.status()))
        meter.stop()
        drop_caches()
        jobs = [(file, "read", read) for file, read in zip(raw, meter.read) if read > MIB]
        jobs.append((raw[-1].with_name("new"), "write", meter.written[-1]))
        report("replace", meter, fio(jobs), meter.written[-1])
        raw[-1].with_name("new").unlink()

        # One that is gone: its shards are computed from the others.
        gone, fresh = disks[1].folder_for("larder"), disks[0].folder_for("fresh")
        # The daemon may write there meanwhile.
        wait(lambda: subprocess.run(["rm", "-rf", str(gone)], stderr=subprocess.DEVNULL).returncode == 0)
        daemon.run("pool", "status")
        meter = Meter(daemon, disks + [spare])
        daemon.run("pool", "replace", gone, fresh, check=True)
        wait(lambda: (lambda now: now["moving"] is None and now["state"] == "ONLINE")(daemon.status()))
        meter.stop()
        drop_caches()
        jobs = [(file, "read", read) for file, read in zip(raw, meter.read) if read > MIB]
        jobs.append((raw[0].with_name("new"), "write", meter.written[0]))
        report("rebuild", meter, fio(jobs), meter.written[0])
        if daemon.stop():
            sys.exit(daemon.log()[-2000:])
    finally:
        daemon.end()
        subprocess.run(["umount", "-l", str(mount)], stderr=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layout", default="raidz2")
    parser.add_argument("--disks", type=int, default=5)
    parser.add_argument("--data", type=int, default=6, help="GiB of files")
    parser.add_argument("--limit", type=int, default=0, help="MB/s of each disk")
    parser.add_argument("--scrubs", type=int, default=0, help="so many, and nothing else")
    parser.add_argument("--beside", action="store_true", help="what a reader keeps while a scrub runs, and nothing else")
    parser.add_argument("--quick", action="store_true", help="64 MiB of files on small disks")
    options = parser.parse_args()
    options.files, options.file_bytes = (4, 16 * MIB) if options.quick else (options.data, GIB)
    # The smallest XFS that mkfs makes has 300 MiB.
    disk_bytes = 512 * MIB if options.quick else (options.data * 3 // options.disks + 2) * GIB
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        work, disks = Path(name), []
        try:
            for number in range(options.disks + 1):
                disks.append(Disk(work / f"disk{number}", disk_bytes, seeks=options.limit > 0, is_sparse=options.quick))
            with limited(disks, options.limit):
                measure(options, disks[:-1], disks[-1], work)
        finally:
            for disk in disks:
                disk.close()


if __name__ == "__main__":
    main()
