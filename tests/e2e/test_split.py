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

import test_bucket_journal as journal
from conftest import client, make
from larderd import Larder, StartFailed, run
from nfs3 import FILE_SYNC
from test_bucket import KEYS, Bucket
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
        done = daemon.run("pool", "replace", "tank", b, new[1])
        # An empty pool is copied in an instant: the first disk may have left by now.
        assert done.returncode != 0 and ("replaced" in done.stderr or "is none of its disks" in done.stderr), done.stderr
        assert str(new[0]) in done.stderr, done.stderr
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


def test_a_renamed_pool_keeps_mounts_schedules_and_replications(folder):
    """K3: whatever larder.toml says of the pool goes with its name, and works: with a daemon, after a restart, and when the
    pool that holds the replica is renamed, too."""
    mount = folder / "mnt"
    mount.mkdir()
    daemon = make(folder, count=2, layout="mirror").start()
    try:
        put(daemon, "first", b"1" * 100)
        daemon.run("pool", "create", "vault", folder / "v1", folder / "v2", "--layout", "mirror", check=True)
        daemon.run("pool", "import", folder / "v1", folder / "v2", check=True)
        daemon.run("mount", mount, "--volume", "tank/files", "--at-start", check=True)
        daemon.run("replicate", "add", "tank/files", "vault/copy", check=True)
        config = daemon.data / "larder.toml"
        text = config.read_text()
        entry = 'name = "tank/files"\n'
        text = text.replace(entry, f"{entry}snapshots = {{ hourly = 3 }}\n") if entry in text else f'{text}\n[[volume]]\n{entry}snapshots = {{ hourly = 3 }}\n'
        config.write_text(text)
        daemon.run("reload", check=True)
        counted = lambda volume: json.loads(daemon.run("--json", "snap", "list", volume, check=True).stdout)
        assert "tank/files" in daemon.run("snap", "schedule", check=True).stdout

        daemon.run("pool", "rename", "tank", "fast", check=True)
        assert (mount / "first").read_bytes() == b"1" * 100, "the mount came back"
        (mount / "second").write_bytes(b"2" * 100)
        text = config.read_text()
        assert "tank" not in text, text
        daemon.run("replicate", "fast/files", "vault/copy", check=True)
        assert "fast/files" in daemon.run("replicate", "status", check=True).stdout
        assert "fast/files" in daemon.run("snap", "schedule", check=True).stdout
        newest = counted("vault/copy")
        daemon.run("pool", "rename", "vault", "safe", check=True)
        assert "vault" not in config.read_text(), config.read_text()
        (mount / "third").write_bytes(b"3" * 100)
        daemon.run("replicate", "fast/files", "safe/copy", check=True)
        assert counted("safe/copy") != newest

        daemon.run("umount", mount)
        daemon.stop()
        daemon.start()
        wait_for(lambda: (mount / "third").exists(), 20)
        assert (mount / "third").read_bytes() == b"3" * 100
        assert sorted(names(daemon)) == ["first", "second", "third"]
        daemon.run("umount", mount, check=True)
        assert daemon.stop() == 0
    finally:
        daemon.run("umount", mount)
        daemon.end()


def test_a_volume_that_one_of_two_pools_has_needs_no_pool(folder):
    daemon = make(folder, count=2, layout="mirror").start()
    try:
        daemon.run("pool", "create", "vault", folder / "v1", folder / "v2", "--layout", "mirror", check=True)
        daemon.run("pool", "import", folder / "v1", folder / "v2", check=True)
        daemon.run("volume", "create", "vault/films", check=True)
        daemon.run("snap", "create", "films@one", check=True)
        daemon.run("snap", "create", "files@two", check=True)
        for running in (True, False):
            if not running:
                daemon.stop()
            assert "vault/films@one" in daemon.run("snap", "list", "films", check=True).stdout
            assert "tank/files@two" in daemon.run("snap", "list", "files", check=True).stdout
            missing = daemon.run("snap", "list", "nothing")
            assert missing.returncode == 1 and "no pool has a volume 'nothing'" in missing.stderr, missing.stderr
        daemon.start()
        daemon.run("volume", "set", "films", "--quota", "1GiB", check=True)
        # Where both have it, or it is to be made, the pool is named.
        made = daemon.run("volume", "create", "new")
        assert made.returncode == 1 and "several" in made.stderr, made.stderr
        daemon.run("volume", "create", "vault/files", "--no-share", check=True)
        done = daemon.run("snap", "list", "files")
        assert done.returncode == 1 and "tank/files" in done.stderr and "vault/files" in done.stderr, done.stderr
        assert daemon.stop() == 0
    finally:
        daemon.end()


@pytest.fixture
def bucket():
    server = Bucket()
    yield server
    server.end()


def test_a_store_is_not_served_from_the_journal_of_the_other_side(bucket, folder):
    """`durability = "journal"`: one disk of a mirror answered for the bucket, and the other one opens the pool. It has another
    journal, though it is the same pool: what was answered may be missing, and that is said before anything is served."""
    where = ["--store", bucket.url, "--endpoint", bucket.endpoint]
    disks = [folder / "disk1", folder / "disk2"]
    daemon = Larder(disks, folder / "data", layout="mirror", extra=where).start(env=KEYS)
    try:
        assert daemon.stop() == 0
        config = daemon.data / "larder.toml"
        config.write_text(config.read_text().replace("[[store]]\n", '[[store]]\ndurability = "journal"\n'))
        a, b = disks
        only(disks, [b])
        daemon.start(env=KEYS)
        nfs = journal.client(daemon)
        journal.make(nfs, ["before"])
        wait_for(lambda: journal.undrained(daemon) == 0)
        journal.hold(bucket, "log/volume")
        journal.make(nfs, ["answered"])
        daemon.kill()
        journal.drop_held(bucket)
        only(disks, [a])
        daemon.extra = [*where, "--degraded"]
        with pytest.raises(StartFailed):
            daemon.start(env=KEYS)
            # Where the pool alone is served, the store is not.
            raise StartFailed(daemon.log())
        said = daemon.log()
        assert "may be missing" in said and "only that pool has what the bucket does not" in said, said
        daemon.end()
        # The side that answered has all of it.
        only(disks, [b])
        daemon.start(env=KEYS)
        assert journal.names(journal.client(daemon)) == {"before", "answered"}
        wait_for(lambda: journal.undrained(daemon) == 0)
        assert daemon.stop() == 0
    finally:
        daemon.end()
