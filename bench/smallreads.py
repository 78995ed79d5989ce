#!/usr/bin/python3
"""What a small cold read costs, for several larders by turns.

    bench/smallreads.py FOLDER NAME=PROGRAM... [--rounds 3] [--mib 768] [--layout raidz1] [--disks 3]

Each program gets a pool of its own on the same disks: XFS on loop devices in FOLDER, past the host's cache. A round writes one
file over NFS, reads it in order with caches dropped and the server restarted, then 4 KiB of it at random, cold again, one read at
a time and 32 at a time. The file does not compress. Bytes and requests are those of the devices' own counters. As root.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from rates import Disk, drop_caches  # noqa: E402
from servers import Larder, cpu_s  # noqa: E402

MIB = 1 << 20
READS = 3000


def reads_of(disk):
    """(requests, bytes) read since the device was made."""
    fields = Path(f"/sys/block/{Path(disk.device).name}/stat").read_text().split()
    return int(fields[0]), int(fields[2]) * 512


class Round:
    def __init__(self, options, program, disks, name):
        self.options, self.disks, self.name = options, disks, name
        folders = [disk.folder_for(name) for disk in disks]
        home = Path(options.folder) / f"home-{name}"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        self.server = Larder(home, folders, options.layout, name, program)
        self.found = {}

    def load(self, workload, **options):
        port, mount_port, export = self.server.nfs()
        command = [options.pop("program"), "--port", port, "--mount-port", mount_port, "--export", export]
        for key, value in options.items():
            command += [f"--{key}", value]
        done = subprocess.run([*map(str, command), workload, "big"], text=True, capture_output=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{workload} on {self.name}: {done.stderr}")
        return json.loads(done.stdout) if done.stdout.strip() else {}

    def cold(self):
        self.server.stop()
        drop_caches()
        self.server.start()
        self.server.settle()

    def measure(self, workload, **options):
        before, cpu = [reads_of(disk) for disk in self.disks], cpu_s(self.server.pid)
        result = self.load(workload, **options)
        after = [reads_of(disk) for disk in self.disks]
        requests = sum(now[0] - then[0] for now, then in zip(after, before))
        read = sum(now[1] - then[1] for now, then in zip(after, before))
        return result["seconds"], cpu_s(self.server.pid) - cpu, requests, read

    def run(self, client):
        size = self.options.mib * MIB
        load = dict(program=client, size=size)
        self.server.start()
        self.load("drop", **load)
        seconds, cpu, _, _ = self.measure("seqwrite", depth=8, xfer=MIB, **load)
        self.note("write MB/s", size / 1e6 / seconds)
        self.note("write CPU s/GiB", cpu / (size / (1 << 30)))
        self.server.settle()
        self.cold()
        seconds, cpu, _, _ = self.measure("seqread", depth=8, xfer=MIB, **load)
        self.note("cold read MB/s", size / 1e6 / seconds)
        self.note("cold read CPU s/GiB", cpu / (size / (1 << 30)))
        seconds, _, _, _ = self.measure("seqread", depth=8, xfer=MIB, **load)
        self.note("warm read MB/s", size / 1e6 / seconds)
        for depth in (1, 32):
            self.cold()
            # A first read opens the file and fetches its extents.
            self.load("randread", depth=1, count=1, seed=77, xfer=4096, **load)
            seconds, cpu, requests, read = self.measure("randread", depth=depth, count=READS, seed=depth, xfer=4096, **load)
            self.note(f"4 KiB depth {depth}: op/s", READS / seconds)
            self.note(f"4 KiB depth {depth}: KiB of disk per read", read / 1024 / READS)
            self.note(f"4 KiB depth {depth}: disk requests per read", requests / READS)
            self.note(f"4 KiB depth {depth}: CPU us per read", cpu * 1e6 / READS)
        self.load("drop", **load)
        self.server.stop()

    def note(self, what, value):
        self.found.setdefault(what, []).append(value)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("programs", nargs="+", metavar="NAME=PROGRAM")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mib", type=int, default=768)
    parser.add_argument("--layout", default="raidz1")
    parser.add_argument("--disks", type=int, default=3)
    options = parser.parse_args()
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    client = folder / "nfsload"
    subprocess.run(["cc", "-O2", "-o", str(client), str(Path(__file__).resolve().parent / "nfsload.c")], check=True)
    disks = [Disk(folder / f"disk{n}", options.mib * 3 * MIB, False, True) for n in range(options.disks)]
    try:
        pairs = [pair.split("=", 1) for pair in options.programs]
        rounds = [Round(options, program, disks, name) for name, program in pairs]
        for number in range(options.rounds):
            for one in rounds if number % 2 == 0 else rounds[::-1]:
                one.run(client)
    finally:
        for disk in disks:
            disk.close()
    for what in rounds[0].found:
        values = [f"{one.name} " + ", ".join(f"{value:.4g}" for value in one.found[what]) for one in rounds]
        medians = [statistics.median(one.found[what]) for one in rounds]
        ratio = f"ratio {medians[-1] / medians[0]:.2f}" if len(rounds) > 1 and medians[0] else ""
        print(f"{what:40} {'; '.join(values)}  {ratio}")


if __name__ == "__main__":
    main()
