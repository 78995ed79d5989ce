"""Disks are added, replaced, removed and taken offline, and the layout changed, while a copy runs; files are compared.

  G1  Every file reads the same before, while and after shards move.
  G2  What was asked goes on after kill -9, without anybody asking again.
  G3  `--dry-run` changes nothing and says what the change then does.
  G4  A disk that has left is an empty folder, and the next start does not miss it.
"""

import json
import os
import random
import threading
import time

from conftest import client, make
from larderd import run
from test_degraded import Copy, pull
from waiting import wait_for


def change(daemon, *words, check=True):
    return daemon.run("pool", *words, check=check)


def planned(daemon, *words):
    before = daemon.status()["disks"]
    plan = json.loads(change(daemon, *words, "--dry-run", "--json").stdout)
    assert [d["path"] for d in daemon.status()["disks"]] == [d["path"] for d in before], "G3"
    return plan


def settled(daemon, limit_s=120):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        status = daemon.status()
        if status["moving"] is None and status["state"] == "ONLINE":
            return status
        time.sleep(0.3)
    raise AssertionError(f"not settled within {limit_s} s:\n{daemon.run('pool', 'status').stdout}")


def folders(*paths):
    for path in paths:
        path.mkdir()
    return list(paths)


def scrub_finds_nothing(daemon):
    for result in json.loads(daemon.run("check", "--read-data", "--json", check=True).stdout):
        assert result["problems"] == [] and result["rebuilt"] == 0, result


def test_two_of_six_are_deleted_during_a_copy_and_replaced(folder, session_seed):
    """The bad day: raidz2, rm -rf of two disks while files arrive, two new disks, every file compared."""
    daemon = make(folder, count=6, layout="raidz2").start()
    try:
        copy = Copy(daemon, session_seed).start()
        victims = random.Random(session_seed).sample(daemon.disks, 2)
        for disk in victims:
            pull(disk, None)
        copy.finish()
        copy.compare()
        new = folders(folder / "new1", folder / "new2")
        # A disk that is gone is noticed by those who need it.
        wait_for(lambda: planned(daemon, "replace", victims[0], new[0])["before"]["failures_survived"] == 0, told=lambda: daemon.run("pool", "status").stdout)
        plan = planned(daemon, "replace", victims[0], new[0])
        assert (plan["before"]["failures_survived"], plan["after"]["failures_survived"]) == (0, 1), plan
        assert plan["move_bytes"] > 1 << 20
        change(daemon, "replace", victims[0], new[0])
        change(daemon, "replace", victims[1], new[1])
        # A crash while both are rebuilt.
        time.sleep(0.3)
        daemon.kill()
        daemon.disks = [d for d in daemon.disks if d not in victims] + new
        daemon.start()
        status = settled(daemon)
        assert {d["path"] for d in status["disks"]} == {str(d) for d in daemon.disks}
        copy.compare()
        scrub_finds_nothing(daemon)
        # Any two others may go now.
        for disk in random.Random(session_seed + 1).sample(daemon.disks, 2):
            pull(disk, None)
        copy.compare()
        assert "panicked" not in daemon.log()
    finally:
        daemon.end()


def test_growing_from_three_to_six_under_load_and_shrinking_again(folder, session_seed):
    daemon = make(folder, count=3).start()
    try:
        copy = Copy(daemon, session_seed).start()
        new = folders(*(folder / f"disk{n}" for n in (4, 5, 6)))
        plan = planned(daemon, "add", *new)
        assert (plan["before"]["width"], plan["after"]["width"]) == (3, 6) and plan["move_bytes"] == 0
        change(daemon, "add", *new)
        copy.finish()
        copy.compare()
        # Readers while everything is laid out anew: G1.
        stop, errors = threading.Event(), []

        def read():
            try:
                while not stop.is_set():
                    copy.compare()
            except Exception as error:
                errors.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        text = change(daemon, "rebalance", "--wait").stdout
        stop.set()
        reader.join(120)
        assert not errors and "raidz1 over 6" in text, (errors, text)
        status = settled(daemon)
        used = [sum(f.stat().st_size for f in (d / "objects").rglob("*") if f.is_file()) for d in daemon.disks + new]
        assert max(used) < 1.5 * min(used) + (4 << 20), used
        scrub_finds_nothing(daemon)
        change(daemon, "remove", "tank", daemon.disks[0], "--wait")
        assert len(daemon.status()["disks"]) == len(status["disks"]) - 1
        assert list(daemon.disks[0].iterdir()) == [], "G4"
        copy.compare()
        assert daemon.stop() == 0
        daemon.disks = daemon.disks[1:] + new
        daemon.start()
        assert daemon.status()["state"] == "ONLINE" and not daemon.status()["notes"], daemon.status()
        copy.compare()
    finally:
        daemon.end()


def test_the_layout_changes_while_it_is_killed_again_and_again(folder, session_seed):
    rng = random.Random(session_seed)
    daemon = make(folder, count=4, layout="mirror").start()
    try:
        copy = Copy(daemon, session_seed, files=12).start()
        copy.finish()
        for layout, survives in (("raidz2", 2), ("raidz1", 1)):
            plan = planned(daemon, "rebalance", "--layout", layout)
            assert plan["after"]["layout"] == layout and plan["after"]["failures_survived"] == survives
            assert "snapshots" not in plan, "a dry run takes none"
            before = json.loads(daemon.run("--json", "pool", "rebalance", "tank", "--layout", layout, check=True).stdout)["snapshots"]
            assert len(before) == 1 and before[0].startswith("tank/files@before-layout-"), before
            assert before[0].split("@")[1] in daemon.run("snap", "list", "files", check=True).stdout
            for _ in range(3):
                time.sleep(rng.uniform(0.05, 0.8))
                daemon.kill()
                daemon.layout = layout
                daemon.start()
                copy.compare()
            assert settled(daemon)["layout"] == layout
            scrub_finds_nothing(daemon)
        for disk in rng.sample(daemon.disks, 1):
            pull(disk, None)
        copy.compare()
    finally:
        daemon.end()


def test_offline_online_and_what_is_refused(folder, session_seed):
    daemon = make(folder, count=3).start()
    try:
        copy = Copy(daemon, session_seed, files=6).start()
        copy.finish()
        one, two, three = daemon.disks
        change(daemon, "offline", one)
        status = daemon.status()
        assert status["state"] == "DEGRADED" and f"larder pool online tank {one}" in status["action"]
        # Nobody uses it now: it may be unmounted.
        os.rename(one, f"{one}.elsewhere")
        os.rename(f"{one}.elsewhere", one)
        with client(daemon) as nfs:
            nfs.write_all(nfs.create(nfs.root, "meanwhile").handle, b"x" * 3_000_000)
        for words, says in (
            (("offline", two), "out of reach"),
            (("replace", folder / "strange", folder / "new"), "none of its disks"),
            (("add", one), "is a disk of it already"),
            (("rebalance",), "not usable"),
            (("rebalance", "no-such-pool"), "no-such-pool"),
            (("add", folder / "typo"), "mkdir"),
            (("replace", one, folder / "typo"), "mkdir"),
            (("remove", two), "needs 3 disks"),
        ):
            done = change(daemon, *words, check=False)
            assert done.returncode == 1 and says in done.stderr, (words, done.stderr)
        assert not (folder / "typo").exists()
        assert not (folder / "new").exists() or not list((folder / "new").iterdir())
        change(daemon, "online", one)
        settled(daemon)
        scrub_finds_nothing(daemon)
        pull(two, None)
        copy.compare()
    finally:
        daemon.end()


def test_without_a_daemon(folder):
    """The same on the disks directly: it comes back when everything is in place."""
    daemon = make(folder, count=3, layout="mirror").start()
    try:
        with client(daemon) as nfs:
            nfs.write_all(nfs.create(nfs.root, "photo").handle, b"only copy" * 100_000)
        assert daemon.stop() == 0
        at = ("--data", daemon.data)
        folders(folder / "third", folder / "new")
        run(*at, "pool", "add", "tank", folder / "third", check=True)
        run(*at, "pool", "remove", "tank", daemon.disks[1], check=True)
        run(*at, "pool", "replace", "tank", daemon.disks[0], folder / "new", check=True)
        assert list(daemon.disks[1].iterdir()) == [] and list(daemon.disks[0].iterdir()) == []
        daemon.disks = [folder / "new", folder / "third", daemon.disks[2]]
        daemon.start()
        with client(daemon) as nfs:
            assert nfs.read_all(nfs.walk("photo")) == b"only copy" * 100_000
        assert daemon.status()["state"] == "ONLINE"
    finally:
        daemon.end()


def test_the_configuration_follows_a_spare(folder):
    """Where a spare took a place the file names a folder that is gone; the labels know better."""
    daemon = make(folder, count=3).start()
    try:
        assert daemon.stop() == 0
        file = daemon.data / "larder.toml"
        text = file.read_text()
        assert str(daemon.disks[2]) in text
        file.write_text(text.replace(str(daemon.disks[2]), str(folder / "replaced")))
        named, daemon.disks = daemon.disks, []
        daemon.start()
        end = time.monotonic() + 10
        while str(named[2]) not in file.read_text():
            assert time.monotonic() < end, file.read_text()
            time.sleep(0.2)
        assert str(folder / "replaced") not in file.read_text()
        assert daemon.stop() == 0
        daemon.start()
        assert daemon.status()["state"] == "ONLINE" and not daemon.status()["notes"], daemon.status()
    finally:
        daemon.end()
