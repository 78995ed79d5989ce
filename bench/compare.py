#!/usr/bin/python3
"""Compares larder with nfs-ganesha and smbd: same machine, same filesystem below, same client.

    bench/compare.py [--quick] [--reps N] [--only nfs|nfs4|smb] [--workloads a,b] [--json FILE] [--peers-only]

Rules that make a ratio mean something:
  C1  Servers take turns within each workload (A B A B ...); the one that waits is stopped (SIGSTOP), after it
      finished what it had put off. Each figure is the median of its repetitions, printed with its spread.
  C2  Every run starts from a synced filesystem, and warm runs from a cache that a run of the same kind filled.
      A cold run follows a restart of the server with the kernel's caches dropped.
  C3  The client is the same program for both, over one connection; when it uses more than 80 % of a core of its own
      the row is marked, because then the client was measured.
  C4  Larder's metadata operations are durable when answered; ganesha's and smbd's are not. The ratios do not
      make up for that.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from servers import Ganesha, Larder, Scratch, Smbd, cpu_s, larderd, rss_bytes, tree  # noqa: E402

HERE = Path(__file__).resolve().parent
MIB, GIB = 1 << 20, 1 << 30

# The SMB client allocates a MiB per message; without these half its time is page faults.
CLIENT_MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "1073741824",
    "MALLOC_TOP_PAD_": "67108864", "MALLOC_ARENA_MAX": "1",
}


@dataclass
class Sizes:
    """Chosen so that one run takes a second or more on the slower server."""

    big_bytes: int = 2 * GIB
    reads: int = 60_000
    writes: int = 30_000
    creates_sync: int = 4_000
    creates: int = 10_000
    lookups: int = 30_000
    smb_files: int = 4_000
    image_bytes: int = 24 * GIB


QUICK = Sizes(256 * MIB, 10_000, 5_000, 1_000, 2_000, 6_000, 600, 6 * GIB)


@dataclass
class Row:
    """One line of the table: a workload, its measure and what the ratio larder : peer should be."""

    key: str
    title: str
    unit: str
    target: float
    lower_is_better: bool = False
    samples: dict = field(default_factory=dict)

    def ratio(self, ours, peer):
        a, b = self.samples.get(ours), self.samples.get(peer)
        if not a or not b or not statistics.median(b):
            return None
        return statistics.median(a) / statistics.median(b)


def rows_of_nfs():
    return [
        Row("seqwrite", "NFS sequential write + COMMIT", "MB/s", 0.9),
        Row("seqwrite-stripe", "  the same, one-folder stripe pool", "MB/s", 1.2),
        Row("seqread-warm", "NFS sequential read, warm", "MB/s", 1.3),
        Row("seqread-cold", "NFS sequential read, cold", "MB/s", 1.0),
        Row("cpu-read", "  server CPU s per GiB read warm", "s/GiB", 0.7, True),
        Row("randread", "NFS random 4 KiB read, warm, depth 32", "op/s", 2.0),
        Row("randwrite", "NFS random 4 KiB write + COMMIT, depth 32", "op/s", 1.5),
        Row("create-sync", "NFS create + write 4 KiB FILE_SYNC, depth 32", "file/s", 3.0),
        Row("create-unstable", "NFS create + write 4 KiB UNSTABLE, depth 32", "file/s", 2.0),
        Row("lookup", "NFS LOOKUP + GETATTR, depth 32", "pair/s", 3.0),
        Row("remove", "NFS REMOVE, depth 32", "op/s", 2.0),
    ]


def rows_of_nfs4():
    """NFSv4.1, by one session over one connection, without delegations."""
    return [
        Row("v4-seqwrite", "NFSv4.1 sequential write + COMMIT", "MB/s", 0.9),
        Row("v4-seqread-warm", "NFSv4.1 sequential read, warm", "MB/s", 1.4),
        Row("v4-seqread-cold", "NFSv4.1 sequential read, cold", "MB/s", 1.1),
        Row("v4-cpu-read", "  server CPU s per GiB read warm", "s/GiB", 0.7, True),
        Row("v4-randread", "NFSv4.1 random 4 KiB read, warm, depth 32", "op/s", 4.0),
        Row("v4-randwrite", "NFSv4.1 random 4 KiB write + COMMIT, depth 32", "op/s", 3.0),
        Row("v4-create-sync", "NFSv4.1 OPEN + write 4 KiB FILE_SYNC + CLOSE, depth 32", "file/s", 2.5),
        Row("v4-create-unstable", "NFSv4.1 OPEN + write 4 KiB UNSTABLE + CLOSE, depth 32", "file/s", 2.0),
        Row("v4-lookup", "NFSv4.1 LOOKUP + GETATTR, depth 32", "op/s", 4.0),
        Row("v4-remove", "NFSv4.1 REMOVE, depth 32", "op/s", 1.7),
    ]


def rows_of_smb():
    return [
        Row("smb-read", "SMB sequential read, warm, signed", "MB/s", 1.0),
        Row("smb-write", "SMB sequential write + FLUSH, signed", "MB/s", 0.8),
        Row("smb-create", "SMB create 4 KiB, depth 32", "file/s", 3.0),
        Row("smb-stat", "SMB stat, depth 32", "op/s", 2.0),
        Row("smb-delete", "SMB delete, depth 32", "op/s", 2.0),
    ]


class Bench:
    def __init__(self, args, sizes, work, scratch):
        self.args, self.sizes, self.work, self.scratch = args, sizes, work, scratch
        self.wanted = set(args.workloads.split(",")) if args.workloads else None
        self.details = []
        self.client_share = {}
        self.serial = 0
        # Of NFS, with what its rows and files begin with.
        self.version, self.prefix = 3, ""
        self.nfsload = self._compile()

    def _compile(self):
        program = self.work / "nfsload"
        subprocess.run(["cc", "-O2", "-o", str(program), str(HERE / "nfsload.c")], check=True)
        return str(program)

    def wants(self, key):
        return self.wanted is None or key in self.wanted

    # ---- one run ----

    def load(self, command, server, workload):
        done = subprocess.run(
            command, text=True, capture_output=True, check=False, timeout=900, env={**os.environ, **CLIENT_MALLOC}
        )
        if done.returncode != 0:
            raise RuntimeError(f"{workload} on {server.name}: {done.stderr.strip()}")
        return json.loads(done.stdout) if done.stdout.strip() else {}

    def nfs(self, server, workload, path, **options):
        port, mount_port, export = server.nfs(self.version)
        command = [self.nfsload, "--vers", self.version, "--port", port, "--mount-port", mount_port, "--export", export]
        for key, value in options.items():
            command += [f"--{key}", value]
        return self.load([*map(str, command), workload, path], server, workload)

    def smb(self, server, workload, path, **options):
        port, share, user, password = server.smb()
        command = [str(Path(os.environ.get("CARGO_TARGET_DIR", HERE / "smbload/target")) / "release/smbload"), "--addr", f"127.0.0.1:{port}", "--share", share]
        command += ["--user", user, "--password", password]
        for key, value in options.items():
            command += [f"--{key}", value]
        return self.load([*map(str, command), workload, path], server, f"smb {workload}")

    def measured(self, row_key, server, run):
        """Runs once and records time, CPU, memory, bytes and flushes, what is put off included."""
        self.scratch.sync()
        profile = self.profile(row_key, server)
        cpu, (written, flushes) = cpu_s(server.pid), self.scratch.counters()
        try:
            result = run()
        finally:
            if profile:
                profile.send_signal(signal.SIGINT)
                profile.wait()
        busy = cpu_s(server.pid) - cpu
        rss = rss_bytes(server.pid)
        server.settle()
        self.scratch.sync()
        written_after, flushes_after = self.scratch.counters()
        result.update(
            row=row_key, server=server.name, server_cpu_s=round(busy, 3),
            server_cpu_with_deferred_s=round(cpu_s(server.pid) - cpu, 3), rss_bytes=rss,
            disk_written_bytes=written_after - written, disk_flushes=flushes_after - flushes,
        )
        share = result["client_cpu_s"] / result["seconds"]
        self.client_share[row_key] = max(share, self.client_share.get(row_key, 0))
        self.details.append(result)
        if self.args.verbose:
            print(json.dumps(result), file=sys.stderr)
        return result

    def profile(self, row_key, server):
        """With --perf ROW: where the server's time goes in that row, one file per server and repetition."""
        if self.args.perf != row_key:
            return None
        self.serial += 1
        self.args.perf_dir.mkdir(parents=True, exist_ok=True)
        data = self.args.perf_dir / f"{row_key}-{server.name}-{self.serial}.data"
        pids = ",".join(map(str, tree(server.pid)))
        command = ["perf", "record", "-q", "-F", "1999", "-g", "-o", str(data), "-p", pids]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def turns(self, row, servers, run, measure):
        """C1. `run(server, repetition)` gives one result of nfsload or smbload."""
        if not self.wants(row.key):
            return
        for repetition in range(self.args.reps):
            for server in servers:
                server.resume()
                try:
                    result = run(server, repetition)
                    row.samples.setdefault(server.name, []).append(measure(result))
                finally:
                    if server.pid:
                        server.pause()
        print(".", end="", file=sys.stderr, flush=True)

    # ---- NFS ----

    def nfs_write(self, row, servers, keep):
        """Each repetition writes a new file; the last one stays under the name `keep` for the reads."""

        def run(server, repetition):
            last = repetition == self.args.reps - 1
            name = keep if last else f"w{repetition}"
            result = self.measured(
                row.key, server, lambda: self.nfs(server, "seqwrite", name, size=self.sizes.big_bytes, depth=16)
            )
            if not last:
                self.nfs(server, "drop", name)
                server.settle()
            return result

        self.turns(row, servers, run, lambda r: r["mb_per_s"])

    def nfs_read_warm(self, rows, servers):
        def run(server, repetition):
            read = lambda **more: self.nfs(server, "seqread", "big", size=self.sizes.big_bytes, depth=16, **more)
            if repetition == 0:
                read(verify=1)
            result = self.measured(self.prefix + "seqread-warm", server, read)
            gib = result["bytes"] / GIB
            rows["cpu-read"].samples.setdefault(server.name, []).append(result["server_cpu_s"] / gib)
            return result

        self.turns(rows["seqread-warm"], servers, run, lambda r: r["mb_per_s"])

    def nfs_read_cold(self, row, servers):
        def run(server, _):
            server.restart()
            server.settle()
            self.scratch.sync()
            Path("/proc/sys/vm/drop_caches").write_text("3\n")
            return self.measured(
                row.key, server, lambda: self.nfs(server, "seqread", "big", size=self.sizes.big_bytes, depth=16)
            )

        self.turns(row, servers, run, lambda r: r["mb_per_s"])

    def nfs_random(self, rows, servers):
        def read(server, repetition):
            if repetition == 0:
                self.nfs(server, "seqread", "big", size=self.sizes.big_bytes, depth=16)
            options = dict(size=self.sizes.big_bytes, count=self.sizes.reads, depth=32, xfer="4k", seed=7 + repetition)
            return self.measured(self.prefix + "randread", server, lambda: self.nfs(server, "randread", "big", **options))

        def write(server, repetition):
            options = dict(size=self.sizes.big_bytes, count=self.sizes.writes, depth=32, xfer="4k", seed=77 + repetition)
            return self.measured(self.prefix + "randwrite", server, lambda: self.nfs(server, "randwrite", "big", **options))

        self.turns(rows["randread"], servers, read, lambda r: r["ops_per_s"])
        self.turns(rows["randwrite"], servers, write, lambda r: r["ops_per_s"])

    def nfs_files(self, rows, servers):
        def create(kind, count):
            def run(server, repetition):
                options = dict(count=count, depth=32, seed=repetition + 1)
                path = f"{self.prefix}{kind}{repetition}"
                return self.measured(self.prefix + kind, server, lambda: self.nfs(server, kind, path, **options))

            return run

        def lookup(server, repetition):
            options = dict(count=self.sizes.lookups, files=self.sizes.creates, depth=32)
            path = f"{self.prefix}create-unstable0"
            if repetition == 0:
                self.nfs(server, "lookup", path, **options)
            return self.measured(self.prefix + "lookup", server, lambda: self.nfs(server, "lookup", path, **options))

        def remove(server, repetition):
            options = dict(count=self.sizes.creates, depth=32)
            path = f"{self.prefix}create-unstable{repetition}"
            return self.measured(self.prefix + "remove", server, lambda: self.nfs(server, "remove", path, **options))

        rate = lambda r: r["ops_per_s"]
        self.turns(rows["create-sync"], servers, create("create-sync", self.sizes.creates_sync), rate)
        self.turns(rows["create-unstable"], servers, create("create-unstable", self.sizes.creates), rate)
        self.turns(rows["lookup"], servers, lookup, rate)
        self.turns(rows["remove"], servers, remove, rate)

    def run_nfs(self, peer, ours, stripe, version=3):
        self.version, self.prefix = version, "v4-" if version == 4 else ""
        found = rows_of_nfs4() if version == 4 else rows_of_nfs()
        rows = {row.key.removeprefix(self.prefix): row for row in found}
        servers = [peer] + ([ours] if ours else [])
        self.nfs_write(rows["seqwrite"], servers, "big")
        self.nfs_read_warm(rows, servers)
        self.nfs_read_cold(rows["seqread-cold"], servers)
        self.nfs_random(rows, servers)
        self.nfs_files(rows, servers)
        for server in servers:
            server.resume()
            self.nfs(server, "drop", "big")
            server.settle()
            server.pause()
        if stripe:
            self.nfs_write(rows["seqwrite-stripe"], [peer, stripe], "big2")
        return list(rows.values())

    # ---- SMB ----

    def run_smb(self, peer, ours):
        rows = {row.key: row for row in rows_of_smb()}
        servers = [peer] + ([ours] if ours else [])
        big, files = self.sizes.big_bytes, self.sizes.smb_files

        def write(server, _):
            return self.measured("smb-write", server, lambda: self.smb(server, "seqwrite", "smb-big", size=big, depth=16))

        def read(server, repetition):
            run = lambda **more: self.smb(server, "seqread", "smb-big", size=big, depth=16, **more)
            if repetition == 0:
                run(verify=1)
            return self.measured("smb-read", server, run)

        def on_files(workload):
            def run(server, repetition):
                path = f"smb{repetition}"
                return self.measured(
                    f"smb-{workload}", server, lambda: self.smb(server, workload, path, count=files, depth=32)
                )

            return run

        self.turns(rows["smb-write"], servers, write, lambda r: r["mb_per_s"])
        self.turns(rows["smb-read"], servers, read, lambda r: r["mb_per_s"])
        for workload in ("create", "stat", "delete"):
            self.turns(rows[f"smb-{workload}"], servers, on_files(workload), lambda r: r["ops_per_s"])
        return list(rows.values())


# ---- the report ----


def spread(samples):
    """Median and half the range, in per cent of the median."""
    if not samples:
        return "-"
    middle = statistics.median(samples)
    half = (max(samples) - min(samples)) / 2 / middle * 100 if middle else 0
    digits = 2 if middle < 10 else 0
    return f"{middle:,.{digits}f} ±{half:.0f}%"


def verdict(row, ratio):
    if ratio is None:
        return "-"
    good = ratio <= row.target if row.lower_is_better else ratio >= row.target
    return "pass" if good else "MISS"


def pair_of(row):
    if row.key.startswith("smb-"):
        return "larder", "smbd"
    return ("larder-stripe" if row.key == "seqwrite-stripe" else "larder"), "nfs-ganesha"


def table(rows, client_share):
    lines = [("workload", "unit", "peer", "larder", "ratio", "target", "")]
    misses = 0
    for row in rows:
        ours, peer = pair_of(row)
        if not row.samples:
            continue
        ratio = row.ratio(ours, peer)
        result = verdict(row, ratio)
        misses += result == "MISS"
        note = " (client-bound)" if client_share.get(row.key, 0) > 0.8 else ""
        lines.append((
            row.title, row.unit, spread(row.samples.get(peer)), spread(row.samples.get(ours)),
            "-" if ratio is None else f"{ratio:.2f}", f"{'<=' if row.lower_is_better else '>='} {row.target:g}", result + note,
        ))
    widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
    text = []
    for line in lines:
        cells = [cell.ljust(w) if n < 2 or n == 6 else cell.rjust(w) for n, (cell, w) in enumerate(zip(line, widths))]
        text.append("  ".join(cells).rstrip())
    return "\n".join(text), misses


def costs(details):
    """What the ratios do not show: CPU, memory, bytes and flushes, medians per row and server."""
    lines = ["", "cost per run (medians): server CPU, with deferred work; private memory; disk bytes per user byte; flushes"]
    keys = list(dict.fromkeys((d["row"], d["server"]) for d in details))
    for key in keys:
        runs = [d for d in details if (d["row"], d["server"]) == key]
        middle = lambda name: statistics.median(d[name] for d in runs)
        user = middle("bytes")
        writes = "write" in key[0] or "create" in key[0]
        amplification = f"{middle('disk_written_bytes') / user:5.2f}x" if user and writes else "     -"
        lines.append(
            f"  {key[0]:<16} {key[1]:<14} {middle('server_cpu_s'):6.2f} s {middle('server_cpu_with_deferred_s'):6.2f} s"
            f" {middle('rss_bytes') / MIB:7.0f} MiB {amplification} {middle('disk_flushes'):7.0f}"
        )
    return "\n".join(lines)


def machine():
    model = next((l.split(":", 1)[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "?")
    memory = int(next(l.split()[1] for l in open("/proc/meminfo") if l.startswith("MemTotal"))) // 1024
    return {"cpu": model, "cores": os.cpu_count(), "memory_mib": memory, "kernel": platform.release(), "load": os.getloadavg()[0]}


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--quick", action="store_true", help="small sizes, one repetition: a smoke test of under two minutes")
    p.add_argument("--reps", type=int, help="repetitions of each run (3; with --quick 1)")
    p.add_argument("--only", choices=("nfs", "nfs4", "smb"), help="one protocol: NFS of version 3, or of 4.1, or SMB")
    p.add_argument("--workloads", help="comma-separated row keys, as in the JSON")
    p.add_argument("--json", type=Path, help="write every sample here")
    p.add_argument("--work", type=Path, help="where the filesystem and the logs go (a new folder under $TMPDIR)")
    p.add_argument("--larder", help="the binary to measure")
    p.add_argument("--peers-only", action="store_true", help="only the peers: checks the harness itself")
    p.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    p.add_argument("--perf", metavar="ROW", help="profile the servers in that row with perf")
    p.add_argument("--perf-dir", type=Path, default=Path("."), help="where the profiles go")
    p.add_argument("--keep-logs", action="store_true")
    p.add_argument("--verbose", action="store_true", help="print each run's figures")
    args = p.parse_args()
    args.reps = args.reps or (1 if args.quick else 3)
    return args


def missing_tools(args):
    tools = ["cc", "mkfs.xfs", "losetup"] + (["ganesha.nfsd", "rpcbind"] if args.only != "smb" else [])
    tools += ["smbd", "smbpasswd", "cargo"] if args.only in (None, "smb") else []
    return [tool for tool in tools if not shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")]


def start_all(args, work, scratch):
    """The servers, each one started and told to wait."""
    nfs, smb = args.only != "smb", args.only in (None, "smb")
    found = {}
    if nfs:
        found["ganesha"] = Ganesha(work / "ganesha", scratch.mount / "ganesha")
    if smb:
        found["smbd"] = Smbd(work / "smbd", scratch.mount / "smbd")
    if not args.peers_only:
        program = args.larder or larderd.binary()
        disks = [scratch.mount / f"disk{n}" for n in (1, 2, 3)]
        found["larder"] = Larder(work / "larder", disks, "raidz1", "larder", program)
        if nfs and args.only != "nfs4":
            found["stripe"] = Larder(work / "stripe", [scratch.mount / "single"], "stripe", "larder-stripe", program)
    return found


def main():
    args = parse()
    if os.geteuid() != 0:
        sys.exit("bench/compare.py mounts a filesystem and starts servers: run it as root")
    if missing := missing_tools(args):
        sys.exit(f"missing: {', '.join(missing)} (apt-get install nfs-ganesha nfs-ganesha-vfs rpcbind samba xfsprogs gcc)")
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if args.only in (None, "smb"):
        subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=HERE / "smbload", check=True)
    sizes = QUICK if args.quick else Sizes()
    work = args.work or Path(tempfile.mkdtemp(prefix="larder-bench-"))
    work.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    scratch = Scratch(work, sizes.image_bytes)
    servers, failed = {}, True
    try:
        servers = start_all(args, work, scratch)
        for server in servers.values():
            server.start()
            server.settle()
            server.pause()
        bench = Bench(args, sizes, work, scratch)
        rows = []
        if "ganesha" in servers and args.only != "nfs4":
            rows += bench.run_nfs(servers["ganesha"], servers.get("larder"), servers.get("stripe"))
        if "ganesha" in servers and args.only != "nfs":
            rows += bench.run_nfs(servers["ganesha"], servers.get("larder"), None, version=4)
        if "smbd" in servers:
            rows += bench.run_smb(servers["smbd"], servers.get("larder"))
        failed = False
    finally:
        for server in servers.values():
            try:
                server.stop()
            except Exception as error:  # the others must be stopped too
                print(f"{server.name}: {error}", file=sys.stderr)
        scratch.close()
        if not args.work and not args.keep_logs and not failed:
            shutil.rmtree(work, ignore_errors=True)
        elif failed or args.keep_logs:
            print(f"logs are in {work}", file=sys.stderr)
    text, misses = table(rows, bench.client_share)
    print(f"\n{text}\n{costs(bench.details)}\n\n{misses} of the targets missed, {time.monotonic() - started:.0f} s")
    if args.json:
        summary = [{"key": r.key, "title": r.title, "unit": r.unit, "target": r.target, "samples": r.samples,
                    "ratio": r.ratio(*pair_of(r))} for r in rows]
        args.json.write_text(json.dumps({"machine": machine(), "rows": summary, "runs": bench.details}, indent=1) + "\n")
    sys.exit(1 if misses and args.strict else 0)


if __name__ == "__main__":
    main()
