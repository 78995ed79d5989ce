#!/usr/bin/env python3
"""Our own load generators beside fio and nfsload: is the generator ever the bottleneck?

    bench/generators.py FOLDER [--size 4g] [--seconds 5] [--rounds 5]
        local files: ours and fio (libaio) by turns, on files of the same size in the same folder

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




def fio(folder, options, rw, block, depth, jobs):
    """(bytes per second, microseconds of processor per request)"""
    name = folder / "generators.fio"
    # Only the measurement itself is in fio's own figures; its start and its random buffers are not.
    out = subprocess.run(
        ["fio", "--name=x", f"--filename={name}", f"--size={options.size}", "--direct=1", "--ioengine=libaio", f"--rw={rw}",
         f"--bs={block}", f"--iodepth={depth}", f"--numjobs={jobs}", "--thread", "--group_reporting", "--time_based",
         f"--runtime={options.seconds}", "--ramp_time=1", "--output-format=json", "--norandommap", "--randrepeat=0"],
        check=True, text=True, capture_output=True,
    )
    job = json.loads(out.stdout[out.stdout.index("{"):])["jobs"][0]
    side = job["read"] if "read" in rw else job["write"]
    # Percent of one job's running time; all jobs run as long.
    used = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1e3
    return side["bw_bytes"], used / max(side["total_ios"], 1) * 1e6


def ours(folder, options, kind, block, depth, jobs):
    out = subprocess.run(
        [str(LOAD), str(folder), kind, "--block", block, "--depth", str(depth), "--jobs", str(jobs), "--size", options.size,
         "--seconds", str(options.seconds), "--warm", "1", "--sync", "0"],
        check=True, text=True, capture_output=True,
    )
    repeat = json.loads(out.stdout.splitlines()[-1])
    return repeat["bytes_per_s"], repeat["load_cpu_s"] / repeat["operations"] * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", default="4g")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if not LOAD.exists():
        sys.exit(f"there is no {LOAD}: cargo build --release -p larder-measure --example load")
    file = options.folder / "generators.fio"
    try:
        # Written once, so that neither reads holes.
        fio(options.folder, argparse.Namespace(size=options.size, seconds=2), "write", "1m", 16, 1)
        print(f"{'workload':28} {'fio MB/s':>9} {'ours MB/s':>9} {'ratio':>6} {'fio us':>7} {'ours us':>7} {'ratio':>6}")
        for name, kind, rw, block, depth, jobs in WORKLOADS:
            # By turns, so that what else the machine does meets both.
            both = [(fio(options.folder, options, rw, block, depth, jobs), ours(options.folder, options, kind, block, depth, jobs))
                    for _ in range(options.rounds)]
            fio_rate, fio_cpu, rate, cpu = (statistics.median(pair[who][what] for pair in both) for who in (0, 1) for what in (0, 1))
            print(f"{name:28} {fio_rate / 1e6:9.1f} {rate / 1e6:9.1f} {rate / fio_rate:6.3f} {fio_cpu:7.2f} {cpu:7.2f} {cpu / fio_cpu:6.2f}",
                  flush=True)
    finally:
        file.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
