"""Scrubs: what rots is made good, what cannot be is named by its files; what is told about it, and to whom."""

import json
import random
import re
import time
from pathlib import Path

import nfs3
import pytest
from conftest import client, make, payload
from waiting import remove_folder, wait_for

def shards(disk):
    return sorted(p for p in Path(disk).rglob("objects/*/*") if p.is_file())


def flip(path, offset):
    with open(path, "r+b") as f:
        f.seek(offset)
        byte = f.read(1)
        f.seek(offset)
        f.write(bytes([byte[0] ^ 0x10]))


def scrub(daemon, *words, code=0):
    done = daemon.run("pool", "scrub", "start", "--wait", "--json", *words)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)[0]


def test_bit_rot_is_repaired_by_one_scrub(folder, session_seed):
    """One page of a hundred of one disk; afterwards another disk may go."""
    rng, data = random.Random(session_seed), payload(24 << 20)
    daemon = make(folder).start()
    try:
        with client(daemon) as nfs:
            nfs.write_all(nfs.create(nfs.root, "a").handle, data)
            for n in range(50):
                nfs.create(nfs.root, f"small{n}")
        assert daemon.stop() == 0
        for path in shards(daemon.disks[1]):
            for page in range(0, path.stat().st_size, 4096):
                if rng.random() < 0.01:
                    flip(path, min(page + rng.randrange(4096), path.stat().st_size - 1))
        daemon.start()
        assert "none requested" in daemon.run("pool", "status").stdout
        found = scrub(daemon)
        assert found["damage"] == {"files": [], "metadata": [], "more": 0, "out_of_reach": 0}
        result = found["scrub"]
        assert result["phase"] == "finished" and result["unrepaired"] == 0, result
        assert result["errors"] > 10 and result["repaired"] > 0, result
        # What was damaged, in blocks of 8 KiB; not the whole shards that were rewritten.
        assert 10 * 4096 < result["repaired_bytes"] <= result["errors"] * (8 << 10), result
        assert result["bytes_done"] == result["bytes_total"] > len(data) * 3 // 2
        assert daemon.disk_status(daemon.disks[1])["checksum_errors"] >= result["errors"]
        again = scrub(daemon)["scrub"]
        assert (again["errors"], again["repaired"]) == (0, 0), again
        text = daemon.run("pool", "status").stdout
        assert re.search(r"scan: scrub repaired 0 B in 0:\d\d with 0 errors on \d{4}-", text), text
        assert "errors: No known data errors" in text
        # The disk has returned errors until that is cleared.
        unwell = daemon.run("pool", "status", "-x")
        assert unwell.returncode == 1 and "pool 'tank' is online" in unwell.stdout, unwell.stdout
        daemon.run("pool", "clear", "tank", check=True)
        well = daemon.run("pool", "status", "-x")
        assert (well.returncode, well.stdout) == (0, "all pools are healthy\n")
        kinds = [e["kind"] for e in json.loads(daemon.run("pool", "history", "--json", check=True).stdout)[0]["events"]]
        for kind in ("created", "opened", "errors", "scrub-started", "scrub-finished", "cleared"):
            assert kind in kinds, kinds
        assert daemon.stop() == 0
        # The same without a daemon.
        assert "scrub-finished" in daemon.run("pool", "history", *daemon.disks, check=True).stdout
        remove_folder(daemon.disks[2])
        daemon.start()
        with client(daemon) as nfs:
            assert nfs.read_all(nfs.walk("a")) == data
    finally:
        daemon.end()


def test_files_that_have_lost_data_are_named(folder):
    """By all their names; and no longer when they are gone."""
    daemon = make(folder).start()
    try:
        with client(daemon) as nfs:
            home = nfs.mkdir(nfs.mkdir(nfs.root, "deep").handle, "er").handle
            lost = nfs.create(home, "lost").handle
            nfs.write_all(lost, payload(8 << 20, 1))
            nfs.link(lost, nfs.root, "other name")
            nfs.link(lost, nfs.root, "errors: none\n\x1b[2Jname")
        assert daemon.stop() == 0
        big = max(shards(daemon.disks[0]), key=lambda p: p.stat().st_size)
        name = big.name.split("~")[0]
        for disk in daemon.disks[:2]:
            [path] = [p for p in shards(disk) if p.name.split("~")[0] == name]
            flip(path, 1 << 20)
        daemon.start()
        with client(daemon) as nfs:
            nfs.write_all(nfs.create(nfs.root, "unharmed").handle, payload(1 << 20, 2))
        found = scrub(daemon, code=4)
        [file] = found["damage"]["files"]
        assert file["volume"] == "tank/files", file
        assert sorted(file["paths"]) == ["/deep/er/lost", "/errors: none\n\x1b[2Jname", "/other name"], file
        assert found["scrub"]["unrepaired"] == 1 and 0 < sum(r["end"] - r["start"] for r in file["ranges"]) <= 512 << 10
        status = daemon.run("pool", "status", "-v").stdout
        assert "tank/files:/deep/er/lost" in status and "tank/files:/other name" in status and "unharmed" not in status
        assert r"tank/files:/errors: none\n\u{1b}[2Jname" in status and "\x1b" not in status, status
        assert "status: 1 file has lost data" in status and "Restore what is listed" in status, status
        assert daemon.run("pool", "status", "-x").returncode == 1
        [kept] = json.loads(daemon.run("damage", "--json", check=True).stdout)["entries"]
        assert kept["place"] == "tank/files" and sorted(kept["paths"]) == sorted(file["paths"]) and kept.get("ended_ms") is None
        assert "\x1b" not in daemon.run("damage", check=True).stdout
        assert daemon.stop() == 0
        daemon.start()
        assert "/deep/er/lost" in daemon.run("pool", "scrub", "status").stdout
        with client(daemon) as nfs:
            nfs.remove(nfs.root, "other name")
            nfs.remove(nfs.root, "errors: none\n\x1b[2Jname")
            nfs.remove(nfs.walk("deep/er"), "lost")
        end = time.monotonic() + 20
        while "No known data errors" not in daemon.run("pool", "status").stdout:
            assert time.monotonic() < end, daemon.run("pool", "status").stdout
            time.sleep(0.5)
        # It is remembered when it is over, and over a restart.
        wait_for(lambda: json.loads(daemon.run("damage", "--json", check=True).stdout)["entries"][0].get("ended_ms"))
        daemon.kill()
        daemon.start()
        [kept] = json.loads(daemon.run("damage", "--json", check=True).stdout)["entries"]
        assert kept["ended_ms"] and "restored or removed" in daemon.run("damage", check=True).stdout
    finally:
        daemon.end()


def remove_everywhere(daemon, name):
    """All shards of an object, by the beginning of their names."""
    found = [p for disk in daemon.disks for p in shards(disk) if p.name.split("~")[0] == name]
    [path.unlink() for path in found]
    return len(found)


@pytest.mark.parametrize("online", (True, False), ids=("online", "offline"))
def test_files_whose_objects_are_gone_from_all_disks_are_named(folder, online):
    """Nothing of them is left that a scrub could read: the volume knows what it needs."""
    daemon = make(folder).start()
    try:
        with client(daemon) as nfs:
            nfs.write_all(nfs.create(nfs.root, "lost").handle, payload(8 << 20, 1))
        assert daemon.stop() == 0
        big = max(shards(daemon.disks[0]), key=lambda p: p.stat().st_size)
        assert remove_everywhere(daemon, big.name.split("~")[0]) == 3
        if online:
            daemon.start()
            unwell = daemon.run("pool", "status", "-x", "-v")
            assert unwell.returncode == 1, unwell.stdout
            status = daemon.run("pool", "status", "-v").stdout
            assert "tank/files:/lost" in status and "1 file has lost data" in status, status
            assert "is gone from all disks" in daemon.run("pool", "history").stdout
            found = scrub(daemon, code=4)
        else:
            found = scrub(daemon, *daemon.disks, code=4)
        [file] = found["damage"]["files"]
        assert file["paths"] == ["/lost"] and found["scrub"]["unrepaired"] == 1, found
        if not online:
            daemon.start()
        assert "tank/files:/lost" in daemon.run("pool", "scrub", "status").stdout
        with client(daemon) as nfs:
            nfs.remove(nfs.root, "lost")
        end = time.monotonic() + 20
        while "No known data errors" not in daemon.run("pool", "status").stdout:
            assert time.monotonic() < end, daemon.run("pool", "status").stdout
            time.sleep(0.5)
        assert scrub(daemon)["scrub"]["unrepaired"] == 0
        assert daemon.run("pool", "status", "-x").returncode == 0
    finally:
        daemon.end()


def test_a_volume_that_has_lost_objects_is_destroyed_with_its_damage(folder):
    daemon = make(folder).start()
    try:
        daemon.run("volume", "create", "second", check=True)
        with client(daemon) as nfs:
            nfs.write_all(nfs.create(nfs.root, "kept").handle, payload(1 << 20, 1))
        with nfs3.Nfs3.mount("127.0.0.1", daemon.nfs_port, "/second") as nfs:
            nfs.write_all(nfs.create(nfs.root, "lost").handle, payload(8 << 20, 2))
        assert daemon.stop() == 0
        big = max(shards(daemon.disks[0]), key=lambda p: p.stat().st_size)
        remove_everywhere(daemon, big.name.split("~")[0])
        daemon.start()
        assert "tank/second:/lost" in daemon.run("pool", "status", "-v").stdout
        daemon.run("volume", "destroy", "second", "--yes", check=True)
        assert daemon.run("pool", "status", "-x").returncode == 0, daemon.run("pool", "status", "-v").stdout
    finally:
        daemon.end()


def test_a_shard_that_was_removed_is_counted_and_made_anew(folder):
    daemon = make(folder).start()
    try:
        data = payload(8 << 20, 1)
        with client(daemon) as nfs:
            nfs.write_all(nfs.create(nfs.root, "a").handle, data)
        assert daemon.stop() == 0
        big = max(shards(daemon.disks[1]), key=lambda p: p.stat().st_size)
        big.unlink()
        daemon.start()
        end = time.monotonic() + 20
        while not big.exists():
            assert time.monotonic() < end, "it is not made anew"
            time.sleep(0.1)
        assert [daemon.disk_status(disk)["checksum_errors"] for disk in daemon.disks] == [0, 1, 0]
        assert daemon.run("pool", "status", "-x").returncode == 1
        history = daemon.run("pool", "history").stdout
        assert f"{daemon.disks[1]}: first checksum error" in history and "is gone" in history, history
        daemon.run("pool", "clear", "tank", check=True)
        assert daemon.run("pool", "status", "-x").returncode == 0
        assert daemon.stop() == 0
        daemon.start()
        assert daemon.run("pool", "status", "-x").returncode == 0, "once is enough"
        remove_folder(daemon.disks[0])
        with client(daemon) as nfs:
            assert nfs.read_all(nfs.walk("a")) == data
    finally:
        daemon.end()


def test_a_scrub_survives_a_kill(folder):
    daemon = make(folder).start()
    try:
        with client(daemon) as nfs:
            nfs.write_all(nfs.create(nfs.root, "a").handle, payload(48 << 20))
        assert daemon.stop() == 0
        daemon.start()
        assert daemon.run("pool", "scrub", "pause").returncode == 1
        daemon.run("pool", "scrub", "start", check=True)
        daemon.kill()
        daemon.start()
        done = json.loads(daemon.run("pool", "scrub", "status", "--wait", "--json", check=True).stdout)[0]["scrub"]
        assert done["phase"] == "finished" and done["bytes_done"] == done["bytes_total"], done
        # Without a daemon one has to wait for it.
        assert daemon.stop() == 0
        refused = daemon.run("pool", "scrub", "start", *daemon.disks)
        assert refused.returncode == 1 and "--wait" in refused.stderr
        assert "with 0 errors" in daemon.run("pool", "scrub", "start", "--wait", *daemon.disks, check=True).stdout
    finally:
        daemon.end()
