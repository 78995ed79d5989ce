#!/usr/bin/python3
"""What snapshots cost, and what sending one costs beside others.

    bench/snapshots.py FOLDER [--program larder] [--rounds 5] [--mib 64] [--files 2000] [--counts 0,1,100,1000] [--json FILE]

  N1  One volume for each count of snapshots, all in one pool of folders and served by one larder through mounts. Each snapshot follows
      a small change. Rounds go over the volumes by turns, so that whatever else the machine does meets all of them.
  N2  A round writes a file with fsync, reads it after the caches of the kernel are dropped, and creates files. Medians of all rounds.
  N3  The same tree on larder and on btrfs (a loop device): the whole of it sent, nothing changed, one file of 200 changed, all of them
      rewritten. `btrfs send` and `larder send` write to a pipe that counts, restic backs the btrfs snapshot up into a new repository.

As root, with btrfs-progs and restic. Figures are for comparison within one run only.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "e2e"))
from larderd import Larder  # noqa: E402

MIB = 1 << 20
FILE_BYTES = 16 << 10


def timed(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def drop_caches():
    subprocess.run(["sync"], check=True)
    Path("/proc/sys/vm/drop_caches").write_text("1")


def noise(size, seed):
    return random.Random(seed).randbytes(size)


class Doors:
    """The volumes with their snapshots, mounted."""

    def __init__(self, daemon, folder, counts):
        self.mounts = {}
        for count in counts:
            name = f"v{count}"
            daemon.run("volume", "create", name, "--no-share", check=True)
            mount = folder / name
            mount.mkdir()
            daemon.run("mount", str(mount), "--volume", name, check=True)
            (mount / "base").mkdir()
            for n in range(200):
                (mount / "base" / f"f{n}").write_bytes(noise(FILE_BYTES, n))
            for number in range(count):
                (mount / "base" / f"f{number % 200}").write_bytes(noise(FILE_BYTES, 1000 + number))
                daemon.run("snap", "create", f"{name}@s{number}", check=True)
            self.mounts[count] = mount

    def round(self, count, number, options):
        mount = self.mounts[count]
        data = noise(options.mib * MIB, number)

        def write():
            with open(mount / "big", "wb") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())

        def create():
            (mount / f"d{number}").mkdir()
            for n in range(options.files // 4):
                (mount / f"d{number}" / f"n{n}").write_bytes(b"x" * 100)
            folder = os.open(mount / f"d{number}", os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)

        took = {"write": timed(write)}
        drop_caches()
        took["read"] = timed(lambda: (mount / "big").read_bytes())
        took["create"] = timed(create)
        return took


def piped(command):
    """(seconds, bytes) of a command's output."""
    began, count = time.perf_counter(), 0
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        while piece := process.stdout.read(1 << 20):
            count += len(piece)
    if process.returncode != 0:
        sys.exit(f"{command} failed")
    return time.perf_counter() - began, count


def change(top, share, seed, files):
    """Rewrites one file of `share`."""
    for n in range(0, files, share):
        (top / f"d{n % 20}" / f"f{n}").write_bytes(noise(FILE_BYTES, seed * 100_000 + n))
    subprocess.run(["sync", "-f", str(top)], check=True)


STEPS = (("whole", None), ("unchanged", None), ("1 of 200", 200), ("rewritten", 1))


def sends(options, daemon, folder, mount):
    image, other, repository = folder / "btrfs.img", folder / "btrfs", folder / "restic"
    with image.open("wb") as f:
        f.truncate(2 << 30)
    other.mkdir()
    subprocess.run(["mkfs.btrfs", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(other)], check=True)
    try:
        subprocess.run(["btrfs", "-q", "subvolume", "create", str(other / "v")], check=True)
        tops = (mount / "tree", other / "v" / "tree")
        for top in tops:
            for n in range(20):
                (top / f"d{n}").mkdir(parents=True)
            change(top, 1, 0, options.files)
        environment = {**os.environ, "RESTIC_PASSWORD": "x", "RESTIC_REPOSITORY": str(repository),
                       "RESTIC_CACHE_DIR": str(folder / "restic-cache")}
        subprocess.run(["restic", "-q", "init"], env=environment, check=True)
        larder = [daemon.program, "--data", daemon.data, "send"]
        rows, last = {}, None
        for number, (step, share) in enumerate(STEPS):
            if share:
                for top in tops:
                    change(top, share, number, options.files)
            name = f"b{number}"
            daemon.run("snap", "create", f"v0@{name}", check=True)
            past = other / name
            subprocess.run(["btrfs", "-q", "subvolume", "snapshot", "-r", str(other / "v"), str(past)], check=True)
            subprocess.run(["sync"], check=True)
            row = {"larder send": piped([*larder, f"v0@{name}", *(["--from", last] if last else [])])}
            row["btrfs send"] = piped(["btrfs", "send", *(["-p", other / last] if last else []), past])
            # Always at one path, as restic goes by it.
            view = folder / "view"
            view.mkdir(exist_ok=True)
            subprocess.run(["mount", "--bind", str(past), str(view)], check=True)
            held = sum(f.stat().st_size for f in repository.rglob("*") if f.is_file())
            backup = ["restic", "-q", "backup", str(view)]
            took = timed(lambda: subprocess.run(backup, env=environment, check=True))
            subprocess.run(["umount", str(view)], check=True)
            row["restic backup"] = took, sum(f.stat().st_size for f in repository.rglob("*") if f.is_file()) - held
            rows[step], last = row, name
        return rows
    finally:
        subprocess.run(["umount", str(other)], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--program", default=os.environ.get("LARDER"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--counts", default="0,1,100,1000")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    counts = sorted({0, *map(int, options.counts.split(","))})
    folder = options.folder / f"snapshots-{os.getpid()}"
    folder.mkdir(parents=True)
    disks = [folder / f"disk{n}" for n in range(3)]
    daemon = Larder(disks, folder / "data", program=options.program, extra=["--squash", "none"]).start()
    try:
        doors = Doors(daemon, folder, counts)
        took = {count: {"write": [], "read": [], "create": []} for count in counts}
        for number in range(options.rounds):
            for count in counts if number % 2 == 0 else counts[::-1]:
                for kind, seconds in doors.round(count, number, options).items():
                    took[count][kind].append(seconds)
        medians = {count: {kind: statistics.median(all_of) for kind, all_of in kinds.items()} for count, kinds in took.items()}
        print(f"{'snapshots':>10} {'write':>8} {'read':>8} {'create':>8}   times as long as without")
        for count in counts:
            ratios = [medians[count][kind] / medians[0][kind] for kind in ("write", "read", "create")]
            print(f"{count:>10} " + " ".join(f"{ratio:8.2f}" for ratio in ratios))
        sent = sends(options, daemon, folder, doors.mounts[0])
        print(f"\n{'':>10}  " + "  ".join(f"{name:>24}" for name in sent["whole"]))
        for step, row in sent.items():
            print(f"{step:>10}  " + "  ".join(f"{seconds:9.3f} s {count:>12,}" for seconds, count in row.values()))
        if options.json:
            options.json.write_text(json.dumps({"medians_s": medians, "sends": sent}, indent=1))
    finally:
        for count in counts:
            daemon.run("umount", str(folder / f"v{count}"))
        daemon.end()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
