"""Cached data stays while there is memory, whoever else strains against a limit, and goes when the machine is short of it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import make, payload
from larderd import binary
from nfs3 import Nfs3
from test_metrics import scrape, total
from waiting import wait_for

# Both watch how short the memory of the whole machine is.
pytestmark = pytest.mark.xdist_group("memory")

MIB = 1 << 20
FILE = 96 * MIB
STRAIN = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
view = mmap.mmap(file, 0, prot=mmap.PROT_READ)
while True:
    sum(view[at] for at in range(0, len(view), 4096))
"""


@pytest.fixture
def group():
    """A control group that may have 64 MiB."""
    new = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    path = Path("/sys/fs/cgroup" if new else "/sys/fs/cgroup/memory") / f"larder-test-{os.getpid()}"
    path.mkdir()
    (path / ("memory.max" if new else "memory.limit_in_bytes")).write_text(str(64 * MIB))
    yield path
    wait_for(lambda: not (path / "cgroup.procs").read_text().strip())
    path.rmdir()


def stalls_us():
    """Microseconds that some task of the machine has waited for memory."""
    some = Path("/proc/pressure/memory").read_text().splitlines()[0]
    return int(some.rsplit("total=", 1)[1])


@pytest.fixture
def strain(group, folder):
    """A neighbour that reads a file through a map that does not fit in its group: the whole machine's pressure rises."""
    big = folder / "map"
    with open(big, "wb") as file:
        file.write(os.urandom(MIB) * 256)
        os.fsync(file.fileno())
        # What is cached already would be on our account.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    started = []

    def start():
        neighbour = subprocess.Popen([sys.executable, "-c", STRAIN, str(big)])
        (group / "cgroup.procs").write_text(str(neighbour.pid))
        started.append(neighbour)
        before = stalls_us()
        # Several windows of two seconds that fire.
        wait_for(lambda: stalls_us() - before > 3_000_000, limit_s=60)

    yield start
    for neighbour in started:
        neighbour.kill()
        neighbour.wait()


def misses(daemon):
    _, values = scrape(daemon.run("metrics", check=True).stdout)
    return total(values, "larder_volume_cache_misses_total")


@pytest.fixture
def meminfo(folder):
    """What the daemon under test sees as /proc/meminfo, and a larder that sees it."""
    seen = folder / "meminfo"
    seen.write_text(Path("/proc/meminfo").read_text())
    program = folder / "larder"
    program.write_text(
        f'#!/bin/sh\nexec unshare -m sh -c \'mount --bind "{seen}" /proc/meminfo && exec "{binary()}" "$@"\' sh "$@"\n'
    )
    program.chmod(0o755)
    return seen, program


def cached_film(nfs):
    """A file that is in the cache, since it was read more than once."""
    handle = nfs.create(nfs.root, b"film").handle
    nfs.write_all(handle, payload(FILE))
    nfs.commit(handle)
    for _ in range(3):
        assert len(nfs.read_all(handle)) == FILE
    return handle


OPTIONS = ["--squash", "none", "--memory", "512MiB"]


def test_a_neighbour_at_its_own_limit_costs_no_cache(folder, strain):
    daemon = make(folder, extra=OPTIONS).start()
    try:
        with Nfs3.mount("127.0.0.1", daemon.nfs_port, daemon.export) as nfs:
            handle = cached_film(nfs)
            strain()
            before = misses(daemon)
            assert len(nfs.read_all(handle)) == FILE
            assert misses(daemon) == before, "the cache was thrown away for somebody else's limit"
        assert "memory is short" not in daemon.log()
    finally:
        daemon.end()


def test_a_machine_that_is_short_gets_the_cache(folder, strain, meminfo):
    seen, program = meminfo
    daemon = make(folder, extra=OPTIONS, program=str(program)).start()
    try:
        with Nfs3.mount("127.0.0.1", daemon.nfs_port, daemon.export) as nfs:
            handle = cached_film(nfs)
            before = misses(daemon)
            assert len(nfs.read_all(handle)) == FILE
            assert misses(daemon) == before
            text = seen.read_text()
            scarce = re.sub(r"(?m)^MemAvailable:.*$", "MemAvailable:      65536 kB", text)
            assert scarce != text
            # In place: the daemon has this very file.
            with open(seen, "r+") as file:
                file.write(scarce)
                file.truncate()
            strain()
            wait_for(lambda: "memory is short" in daemon.log(), told=daemon.log)
            assert len(nfs.read_all(handle)) == FILE
            assert misses(daemon) > before, "the cache is still there"
    finally:
        daemon.end()
