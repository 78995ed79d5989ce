#!/usr/bin/env python3
"""Our own load generators beside fio and nfsload: is the generator ever the bottleneck?

    bench/generators.py FOLDER [--size 4g] [--seconds 5] [--rounds 5] [--only WORDS]
        ours and fio (libaio) by turns, on one and the same file

Prints, for each workload, the median of both, their ratio, and what each request cost in processor time. Ours must be
within 3 % of fio and cost no more. Build it first: cargo build --release -p larder-measure --example load
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOAD = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/examples/load"
# name, ours, fio's, block, depth, jobs
WORKLOADS = [
    ("sequential read", "read", "read", "1m", 16, 1),
    ("sequential write", "write", "write", "1m", 16, 1),
    ("random read 4 KiB", "random-read", "randread", "4k", 32, 1),
    ("random write 4 KiB", "random-write", "randwrite", "4k", 32, 1),
    ("random read 4 KiB, 2 jobs", "random-read", "randread", "4k", 16, 2),
]


def fio(file, options, rw, block, depth, jobs):
    """(bytes per second, microseconds of processor per request)"""
    if rw == "write":
        # Ours is cut to nothing, too: writing anew is not overwriting.
        file.write_bytes(b"")
    # Only the measurement itself is in fio's own figures; its start and its random buffers are not.
    out = subprocess.run(
        ["fio", "--name=x", f"--filename={file}", f"--size={options.size}", "--direct=1", "--ioengine=libaio", f"--rw={rw}",
         f"--bs={block}", f"--iodepth={depth}", f"--numjobs={jobs}", "--thread", "--group_reporting", "--time_based",
         f"--runtime={options.seconds}", "--ramp_time=1", "--output-format=json", "--norandommap", "--randrepeat=0", "--fallocate=none"],
        check=True, text=True, capture_output=True,
    )
    job = json.loads(out.stdout[out.stdout.index("{"):])["jobs"][0]
    side = job["read"] if "read" in rw else job["write"]
    # Percent of one job's running time; all jobs run as long.
    used = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1e3
    return side["bw_bytes"], used / max(side["total_ios"], 1) * 1e6


def by_turns(options, kind, rw, block, depth, jobs):
    """Both on one and the same file, so that what else the machine does meets both."""
    command = [str(LOAD), str(options.folder), kind, "--block", block, "--depth", str(depth), "--jobs", str(jobs), "--size", options.size,
               "--seconds", str(options.seconds), "--warm", "1", "--sync", "0", "--repeats", str(options.rounds), "--wait", "1"]
    rounds = []
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as ours:
        while len(rounds) < options.rounds and ours.stdout.readline() == "ready\n":
            [file] = options.folder.glob(".larder-bench-*/large0")
            # Who comes first changes: the second finds what the first left to be written.
            theirs = fio(file, options, rw, block, depth, jobs) if len(rounds) % 2 == 0 else None
            ours.stdin.write("\n")
            ours.stdin.flush()
            repeat = json.loads(ours.stdout.readline())
            theirs = theirs or fio(file, options, rw, block, depth, jobs)
            rounds.append((theirs, (repeat["bytes_per_s"], repeat["load_cpu_s"] / repeat["operations"] * 1e6)))
        # It keeps its files until then.
        ours.stdin.close()
    if ours.returncode or len(rounds) < options.rounds:
        sys.exit(f"the load ended with {ours.returncode}")
    return rounds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", default="4g")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="workloads whose names hold this")
    options = parser.parse_args()
    if not LOAD.exists():
        sys.exit(f"there is no {LOAD}: cargo build --release -p larder-measure --example load")
    print(f"{'workload':28} {'fio MB/s':>9} {'ours MB/s':>9} {'ratio':>6} {'fio us':>7} {'ours us':>7} {'ratio':>6}")
    for name, kind, rw, block, depth, jobs in filter(lambda workload: options.only in workload[0], WORKLOADS):
        rounds = by_turns(options, kind, rw, block, depth, jobs)
        fio_rate, fio_cpu, rate, cpu = (statistics.median(pair[who][what] for pair in rounds) for who in (0, 1) for what in (0, 1))
        print(f"{name:28} {fio_rate / 1e6:9.1f} {rate / 1e6:9.1f} {rate / fio_rate:6.3f} {fio_cpu:7.2f} {cpu:7.2f} {cpu / fio_cpu:6.2f}",
              flush=True)


if __name__ == "__main__":
    main()
