"""Disks of one pool that are used apart from each other: nothing that was answered on either side goes by itself.

  K1  A disk that went on without the pool is DIVERGED: left as it is, with its files, until somebody discards it.
  K2  Opening with fewer disks than had everything needs a yes, unless this machine ran the pool last.
  K3  Two pools of one name live side by side under two names.
"""

import hashlib
import json
import os
from pathlib import Path

import pytest

from conftest import client, make
from larderd import Larder, StartFailed, run
from nfs3 import FILE_SYNC
from waiting import wait_for


def put(daemon, name, data):
    with client(daemon) as nfs:
        assert nfs.write(nfs.create(nfs.root, name).handle, 0, data, FILE_SYNC).count == len(data)


def names(daemon):
    with client(daemon) as nfs:
        return sorted(entry.name.decode() for entry in nfs.list(nfs.root))


def away(disk):
    return Path(f"{disk}.away")


def only(disks, here):
    """Takes disks away, and puts back all others."""
    for disk in disks:
        if disk in here and away(disk).exists():
            os.rename(away(disk), disk)
        elif disk not in here and Path(disk).exists():
            os.rename(disk, away(disk))


def digest(disk):
    found = hashlib.sha256()
    for path in sorted(Path(disk).rglob("*")):
        if path.is_file():
            found.update(str(path.relative_to(disk)).encode() + path.read_bytes())
    return found.hexdigest()


def states(daemon):
    return {Path(disk["path"]).name: disk["state"] for disk in daemon.status()["disks"]}


def settled(daemon):
    wait_for(lambda: daemon.status()["state"] == "ONLINE", told=lambda: daemon.run("pool", "status").stdout)


def went_apart(folder, layout, count, a, b, restarts=0):
    """`b` was written alone, then `a` on another machine, which runs; `b` is away."""
    first = make(folder, count=count, layout=layout).start()
    put(first, "common", b"c" * 5000)
    first.stop()
    disks = first.disks
    side = lambda numbers: [disks[number] for number in numbers]
    only(disks, side(b))
    first.start()
    put(first, "of-b", b"b" * 5000)
    first.stop()
    for _ in range(restarts):
        first.start()
        first.stop()
    only(disks, side(a))
    second = Larder(disks, folder / "elsewhere", layout=layout)
    second.disks = side(a)
    return first, second, side(a), side(b)


CASES = [
    ("mirror", 2, [0], [1], 0, True),
    ("mirror", 2, [0], [1], 6, False),
    ("mirror3", 3, [0], [1, 2], 1, True),
    ("raidz2", 4, [0, 1], [2, 3], 2, False),
]


@pytest.mark.parametrize("layout,count,a,b,restarts,running", CASES)
def test_what_each_side_answered_stays(folder, layout, count, a, b, restarts, running):
    """K1, K2: whichever way the disks come back."""
    first, second, a, b = went_apart(folder, layout, count, a, b, restarts)
    try:
        with pytest.raises(StartFailed):
            second.start()
        assert "--degraded" in second.log(), second.log()
        second.end()
        second.extra = ["--degraded"]
        second.start()
        second.extra = []
        put(second, "of-a", b"a" * 5000)
        before = [digest(away(disk)) for disk in b]
        if not running:
            second.stop()
        only(first.disks, first.disks)
        if not running:
            second.start()
        wait_for(lambda: "DIVERGED" in second.run("pool", "status").stdout)
        said = second.run("pool", "status").stdout
        assert said.count("DIVERGED") == len(b), said
        assert "went on without this pool since 20" in said and "online --discard tank" in said, said
        assert "no known data errors" not in said, said
        assert second.run("pool", "status", "-x").returncode == 1
        assert names(second) == ["common", "of-a"]
        word = str(b[0])
        for refused in (["online", "tank", word], ["replace", "tank", word], ["add", "tank", word]):
            done = second.run("pool", *refused)
            assert done.returncode != 0 and "--discard" in done.stderr, done.stderr
        second.run("pool", "clear", "tank", check=True)
        assert states(second)[b[0].name] == "DIVERGED"
        assert before == [digest(disk) for disk in b], "they were touched"
        # Its files can be read beside the pool that runs.
        listed = second.run("recover", *(word for disk in b for word in ("--disk", disk)), "--list")
        assert listed.returncode in (0, 4), listed.stderr
        to = folder / "out"
        done = second.run("recover", *(word for disk in b for word in ("--disk", disk)), "--to", to)
        found = {path.name: path.read_bytes() for path in to.rglob("*") if path.is_file()}
        assert found.get("of-b") == b"b" * 5000 and "of-a" not in found, (done.stderr, sorted(found))
        second.stop()
        second.start()
        assert states(second)[b[0].name] == "DIVERGED"
        for disk in b:
            second.run("pool", "online", "--discard", "tank", disk, check=True)
        settled(second)
        assert names(second) == ["common", "of-a"]
        assert "gives its side up" not in second.run("pool", "status").stdout
        done = second.run("pool", "online", "--discard", "tank", word)
        assert "has not diverged" in done.stderr
        assert second.stop() == 0
    finally:
        first.end()
        second.end()


def test_a_dead_disk_does_not_keep_the_box_from_starting(folder):
    """K2: the daemon that ran the pool last goes on alone, but never with a disk that is older."""
    daemon = make(folder, count=2, layout="mirror").start()
    try:
        a, b = daemon.disks
        put(daemon, "both", b"x" * 100)
        daemon.kill()
        only(daemon.disks, [a])
        daemon.start()
        put(daemon, "alone", b"x" * 100)
        daemon.kill()
        daemon.start()
        assert names(daemon) == ["alone", "both"]
        daemon.stop()
        only(daemon.disks, [b])
        with pytest.raises(StartFailed):
            daemon.start()
        assert "older than the pool as this machine last ran it" in daemon.log() and "--degraded" in daemon.log()
        daemon.end()
        only(daemon.disks, [a, b])
        daemon.start()
        settled(daemon)
        assert names(daemon) == ["alone", "both"]
        # By hand the answer is no, whatever this machine knows.
        daemon.stop()
        only(daemon.disks, [a])
        done = daemon.run("pool", "import", a)
        assert done.returncode != 0 and "--degraded" in done.stderr, done.stderr
        daemon.run("pool", "import", "--degraded", a, check=True)
        daemon.start()
        assert daemon.stop() == 0
    finally:
        daemon.end()


def test_the_wrong_disk_is_not_replaced(folder):
    """A healthy disk, while another is dead; the same disk twice."""
    daemon = make(folder, count=4, layout="raidz2").start()
    try:
        a, b, c, d = daemon.disks
        new = [folder / "new1", folder / "new2"]
        [disk.mkdir() for disk in new]
        only(daemon.disks, [a, c, d])
        wait_for(lambda: daemon.disk_status(b)["state"] != "ONLINE")
        done = daemon.run("pool", "replace", "tank", a, new[0])
        assert done.returncode != 0 and f"larder pool replace tank {b} {new[0]}" in done.stderr, done.stderr
        daemon.run("pool", "replace", "tank", b, new[0], check=True)
        assert daemon.stop() == 0
    finally:
        daemon.end()


def test_two_pools_of_one_name(folder):
    """K3: named on import, renamed, and refused where a name is taken."""
    daemon = make(folder, count=2, layout="mirror").start()
    other = Larder([folder / "old1", folder / "old2"], folder / "old-data", layout="mirror")
    try:
        put(daemon, "new", b"n" * 100)
        other.start()
        put(other, "old", b"o" * 100)
        other.stop()
        done = daemon.run("pool", "import", *other.disks)
        assert done.returncode != 0 and "--as tank-2" in done.stderr, done.stderr
        assert names(daemon) == ["new"]
        done = daemon.run("pool", "create", "tank", folder / "x1", folder / "x2", "--layout", "mirror")
        assert done.returncode != 0 and "already" in done.stderr and not (folder / "x1").exists(), done.stderr
        daemon.run("pool", "import", *other.disks, "--as", "old-tank", check=True)
        pools = {pool["name"]: pool for pool in json.loads(daemon.run("pool", "list", "--json", check=True).stdout)}
        assert sorted(pools) == ["old-tank", "tank"]
        config = (daemon.data / "larder.toml").read_text()
        assert str(daemon.disks[0].name) in config and str(other.disks[0].name) in config
        done = daemon.run("pool", "rename", "tank", "old-tank")
        assert done.returncode != 0 and "already" in done.stderr, done.stderr
        daemon.run("snap", "create", "tank/files@kept", check=True)
        daemon.run("pool", "rename", "tank", "fast", check=True)
        assert names(daemon) == ["new"]
        assert "fast/files@kept" in daemon.run("snap", "list", "fast/files", check=True).stdout
        made = daemon.run("pool", "create", "third", folder / "x1", folder / "x2", "--layout", "mirror", check=True)
        assert "larder pool import" in made.stdout, made.stdout
        daemon.stop()
        daemon.start()
        assert names(daemon) == ["new"]
        daemon.stop()
        # Without a daemon.
        daemon.run("pool", "rename", "fast", "slow", check=True)
        done = daemon.run("pool", "rename", "slow", "old-tank")
        assert done.returncode != 0 and "already" in done.stderr, done.stderr
        daemon.start()
        assert names(daemon) == ["new"]
        assert daemon.stop() == 0
    finally:
        daemon.end()
        other.end()
