"""Disks are pulled, corrupted, truncated and made read-only while a copy runs; the copy is compared byte by byte.

  D1  With up to m disks damaged every read gives the right bytes, before and after a restart.
  D2  Writes go on meanwhile and are as safe as the remaining disks allow.
  D3  `pool status` names the damaged disk and an action.
  D4  With more than m gone the answer is a refusal, never wrong bytes.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from conftest import client, make, payload
from larderd import Larder, StartFailed
from nfs3 import FILE_SYNC, NfsError, RpcError
from test_encryption import typed, volumes
from waiting import remove_folder, wait_for

FILES, FILE_BYTES = 24, 2 << 20
LAYOUTS = [("raidz1", 3, 1), ("raidz2", 4, 2), ("mirror", 2, 1)]


def pull(disk, rng):
    """Everything on it is gone, the daemon's open files included; also labels that the daemon writes meanwhile."""
    while Path(disk).exists():
        shutil.rmtree(disk, ignore_errors=True)


def rename_away(disk, rng):
    os.rename(disk, f"{disk}.away")


def files_of(disk):
    return [p for p in sorted(Path(disk).rglob("*")) if p.is_file() and p.stat().st_size]


def corrupt(disk, rng):
    """Random bytes over a few places of every file, label and journal included."""
    for path in files_of(disk):
        try:
            with open(path, "r+b") as f:
                size = f.seek(0, os.SEEK_END)
                for _ in range(1 + size // (256 << 10)):
                    f.seek(rng.randrange(size))
                    f.write(rng.randbytes(rng.choice((1, 16, 4096))))
        except FileNotFoundError:
            pass


def truncate(disk, rng):
    for path in files_of(disk):
        try:
            os.truncate(path, rng.randrange(path.stat().st_size))
        except FileNotFoundError:
            pass


DAMAGES = [pull, rename_away, corrupt, truncate]


class Copy:
    """A copy of a tree into the share that goes on while disks are damaged."""

    def __init__(self, daemon, seed, files=FILES):
        self.daemon, self.files = daemon, files
        self.data = [payload(FILE_BYTES + n * 1234, seed + n) for n in range(files)]
        self.halfway, self.error = threading.Event(), None
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            with client(self.daemon, timeout_s=120) as nfs:
                home = nfs.mkdir(nfs.root, "copy").handle
                for n, data in enumerate(self.data):
                    if n == self.files // 3:
                        self.halfway.set()
                        time.sleep(0.2)
                    nfs.write_all(nfs.create(home, f"file{n}").handle, data)
                    nfs.create(home, f"small{n}")
        except Exception as error:  # told by `finish`
            self.error = error
        self.halfway.set()

    def start(self):
        self.thread.start()
        self.halfway.wait(120)
        return self

    def finish(self):
        self.thread.join(300)
        assert not self.thread.is_alive(), "the copy hangs"
        assert self.error is None, f"the copy failed: {self.error!r}\n{self.daemon.log()[-3000:]}"

    def compare(self):
        with client(self.daemon, timeout_s=120) as nfs:
            home = nfs.walk("copy")
            assert len(nfs.list(home)) == 2 * self.files
            for n, data in enumerate(self.data):
                assert nfs.read_all(nfs.lookup(home, f"file{n}").handle) == data, f"file{n} differs"


def has_error(disk):
    return disk["state"] != "ONLINE" or disk["read_errors"] + disk["write_errors"] + disk["checksum_errors"] > 0


def assert_named(daemon, disks):
    """D3. Errors that only a read can find have been found by `compare`; those in parity alone, which no read needs, by a scrub."""
    if not all(has_error(daemon.disk_status(disk)) for disk in disks):
        daemon.run("pool", "scrub", "start", "--wait")
    status = daemon.status()
    text = daemon.run("pool", "status").stdout
    for disk in disks:
        assert has_error(daemon.disk_status(disk)), f"{disk} looks healthy:\n{text}"
        assert str(disk) in text
    assert status["status"] and status["action"], text
    assert "status:" in text and "action:" in text


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("layout,count,failures", LAYOUTS, ids=[l[0] for l in LAYOUTS])
def test_damage_while_a_copy_runs(folder, session_seed, layout, count, failures, damage):
    rng = random.Random(session_seed)
    daemon = make(folder, count=count, layout=layout).start()
    try:
        copy = Copy(daemon, session_seed).start()
        victims = rng.sample(daemon.disks, failures)
        for disk in victims:
            damage(disk, rng)
        copy.finish()
        copy.compare()
        # Cold: what a cache answered before must come from the disks now.
        assert daemon.stop() == 0
        daemon.start()
        copy.compare()
        assert_named(daemon, victims)
        with client(daemon) as nfs:
            nfs.write_all(nfs.create(nfs.root, "afterwards").handle, b"still writable" * 1000)
        assert "panicked" not in daemon.log()
    finally:
        daemon.end()


def test_a_disk_turns_read_only_while_a_copy_runs(loop_disks, folder, session_seed):
    disks = loop_disks(400, 400, 400)
    daemon = Larder([d.folder for d in disks], folder / "data").start()
    try:
        copy = Copy(daemon, session_seed).start()
        disks[1].fail_read_only()
        copy.finish()
        copy.compare()
        assert_named(daemon, [disks[1].folder])
        assert daemon.stop() == 0
        daemon.start()
        copy.compare()
    finally:
        daemon.end()


@pytest.mark.parametrize("kill", (False, True), ids=("stopped", "killed"))
@pytest.mark.parametrize("victim", (0, 1, 2))
def test_damage_between_runs(folder, session_seed, victim, kill):
    """Also of the journal's copies that are replayed at the start, and of what lay only in them."""
    rng = random.Random(session_seed)
    daemon = make(folder).start()
    try:
        copy = Copy(daemon, session_seed, files=8).start()
        copy.finish()
        if kill:
            daemon.kill()
        else:
            assert daemon.stop() == 0
        rng.choice((corrupt, truncate))(daemon.disks[victim], rng)
        daemon.start()
        copy.compare()
        assert_named(daemon, [daemon.disks[victim]])
    finally:
        daemon.end()


def wait_until_repaired(daemon, limit_s=60):
    """Until all disks are online and nothing is left to repair."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        status = daemon.status()
        if status["state"] == "ONLINE" and all(d["state"] == "ONLINE" for d in status["disks"]):
            # Data that no read has touched is repaired by reading it.
            return
        time.sleep(0.5)
    raise AssertionError(f"not repaired within {limit_s} s:\n{daemon.run('pool', 'status').stdout}")


def test_a_disk_that_returns_is_brought_up_to_date(folder, session_seed):
    daemon = make(folder).start()
    away = daemon.disks[0]
    try:
        copy = Copy(daemon, session_seed, files=12).start()
        os.rename(away, f"{away}.away")
        copy.finish()
        with client(daemon) as nfs:
            home = nfs.walk("copy")
            nfs.remove(home, "small0")
            nfs.create(home, "small0")
        assert daemon.stop() == 0
        shutil.rmtree(away, ignore_errors=True)  # whatever was made in its place meanwhile
        os.rename(f"{away}.away", away)
        daemon.start()
        wait_until_repaired(daemon)
        copy.compare()
        assert daemon.stop() == 0
        # Now another one goes: what the first one missed must be on it.
        remove_folder(daemon.disks[1])
        daemon.start()
        copy.compare()
    finally:
        daemon.end()


def test_more_gone_than_the_layout_survives(folder, session_seed):
    daemon = make(folder).start()
    try:
        copy = Copy(daemon, session_seed, files=6).start()
        copy.finish()
        assert daemon.stop() == 0
        os.rename(daemon.disks[0], f"{daemon.disks[0]}.away")
        os.rename(daemon.disks[2], f"{daemon.disks[2]}.away")
        with pytest.raises(StartFailed) as refusal:
            daemon.start(timeout_s=30)
        text = str(refusal.value)
        assert str(daemon.disks[0]) in text and str(daemon.disks[2]) in text and "panicked" not in text, text
        for disk in (daemon.disks[0], daemon.disks[2]):
            shutil.rmtree(disk, ignore_errors=True)
            os.rename(f"{disk}.away", disk)
        daemon.start()
        copy.compare()
        # The same while it runs: errors, not wrong bytes, and the daemon lives.
        pull(daemon.disks[0], None)
        pull(daemon.disks[1], None)

        def noticed():
            """A disk that is gone is noticed by those who need it."""
            with client(daemon, timeout_s=60) as nfs:
                home = nfs.walk("copy")
                for n, data in enumerate(copy.data):
                    try:
                        found = nfs.read_all(nfs.lookup(home, f"file{n}").handle)
                        assert found == data, "wrong bytes instead of an error"
                    except NfsError:
                        pass
            assert daemon.alive(), daemon.log()[-3000:]
            return daemon.status()["state"] not in ("ONLINE", "DEGRADED")

        wait_for(noticed)
    finally:
        daemon.end()


@pytest.mark.long
def test_stopping_when_the_disks_are_gone(folder):
    """What cannot be stored any more does not keep the daemon from ending, and it says so."""
    daemon = make(folder).start()
    try:
        with client(daemon) as nfs:
            nfs.write_all(nfs.create(nfs.root, "unstable").handle, payload(3 << 20))
        for disk in daemon.disks:
            pull(disk, None)
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(60) == 1
        assert "did not take" in daemon.process.stdout.read().decode() + daemon.log()
    finally:
        daemon.end()


@pytest.mark.long
@pytest.mark.parametrize("by", ["itself", "a person"])
@pytest.mark.parametrize("layout,count", [("raidz1", 3), ("mirror", 2)])
def test_all_disks_fail_while_files_are_written_and_come_back(loop_disks, folder, layout, count, by):
    """As when a hub is unplugged. All that was acknowledged is there, what is there is read meanwhile, and the same process stores
    again once the disks are back: an encrypted volume too, and clients go on."""
    disks = loop_disks(*[400] * count)
    daemon = Larder([disk.folder for disk in disks], folder / "data", layout=layout)
    daemon.start()
    acknowledged = {}
    try:
        typed(daemon, "volume", "create", "secret", "--encrypt")
        pool = json.loads(daemon.run("pool", "list", "--json", check=True).stdout)[0]["name"]
        with client(daemon, timeout_s=120) as nfs:
            home = nfs.mkdir(nfs.root, "home").handle

            def write(n):
                """A pool looks for its disks when somebody writes. Returns whether it could not be."""
                try:
                    data = payload(70_000 + n, n)
                    nfs.write_all(nfs.create(home, f"f{n}").handle, data)
                    acknowledged[f"f{n}"] = data
                except (NfsError, RpcError, OSError):
                    return True
                return False

            for n in range(20):
                assert not write(n)
            for disk in disks:
                disk.unplug()
            wait_for(lambda: write(20), 30)
            # Until the disks are back it is said what is wrong, and that a command does nothing about it.
            cleared = daemon.run("pool", "clear", pool)
            assert cleared.returncode == 1 and "nothing was mended" in cleared.stderr, cleared
            events = lambda: [alert["event"] for alert in json.loads(daemon.run("alerts", "--json").stdout)["open"]]
            wait_for(lambda: "volume-stopped" in events(), 150)
            # Whatever is read anew now finds no volume.
            daemon.run("reload", check=True)
            for disk in disks:
                disk.plug_in()
            if by == "itself":
                wait_for(lambda: not write(21), 330)
            else:
                daemon.run("pool", "clear", pool, check=True)
                assert not write(21)
            wait_for(lambda: "volume-stopped" not in events(), 60)
            wait_for(lambda: daemon.run("pool", "status", "-x").returncode == 0, 60)
            for name, data in acknowledged.items():
                assert nfs.read_all(nfs.lookup(home, name).handle) == data, name
        assert daemon.alive(), "nobody started it again"
        assert not volumes(daemon)["secret"]["locked"]
        assert daemon.run("check").returncode == 0
        daemon.kill()
        daemon.start()
        with client(daemon, timeout_s=60) as nfs:
            home = nfs.walk("home")
            for name, data in acknowledged.items():
                assert nfs.read_all(nfs.lookup(home, name).handle) == data, name
            nfs.write_all(nfs.create(home, "after").handle, b"after")
        assert daemon.stop() == 0
    finally:
        daemon.end()


def test_disks_are_back_for_those_who_only_make_names(loop_disks, folder):
    """Nothing is written while they are away, so nothing fails that would find them again; and no disk is full."""
    disks = loop_disks(400, 400, 400)
    daemon = Larder([disk.folder for disk in disks], folder / "data", layout="raidz1").start()
    try:
        with client(daemon, timeout_s=60) as nfs:
            nfs.write_all(nfs.create(nfs.root, "before").handle, payload(100_000, 1))
            for disk in disks:
                disk.unplug()
            # It is looked which are there.
            daemon.run("pool", "status")
            with pytest.raises(NfsError) as refused:
                nfs.create(nfs.root, "meanwhile")
            assert refused.value.status == 5, "no disk is full"
            assert daemon.run("volume", "list").returncode == 0
            for disk in disks:
                disk.plug_in()

            def made():
                try:
                    return bool(nfs.create(nfs.root, "after"))
                except (NfsError, RpcError):
                    return False

            wait_for(made, 60)
            assert nfs.read_all(nfs.lookup(nfs.root, "before").handle) == payload(100_000, 1)
        assert daemon.stop() == 0
    finally:
        daemon.end()


def test_foreign_duplicated_and_swapped_disks(folder):
    """A disk of another pool is named; a copy of a disk is not taken for the missing one; order does not matter."""
    daemon = make(folder / "a").start()
    other = make(folder / "b").start()
    with client(daemon) as nfs:
        nfs.write_all(nfs.create(nfs.root, "mine").handle, b"mine")
    assert daemon.stop() == 0 and other.stop() == 0
    try:
        disks = list(daemon.disks)
        daemon.disks = [disks[0], disks[1], other.disks[0]]
        try:
            daemon.start(timeout_s=30)
        except StartFailed as refusal:
            assert str(other.disks[0]) in str(refusal) and "panicked" not in str(refusal)
        else:
            assert str(other.disks[0]) in daemon.run("pool", "status").stdout
            assert daemon.stop() == 0
        shutil.copytree(disks[0], folder / "twin")
        daemon.disks = [disks[0], disks[1], folder / "twin"]
        try:
            daemon.start(timeout_s=30)
        except StartFailed as refusal:
            assert "twin" in str(refusal) and "panicked" not in str(refusal)
        else:
            assert daemon.stop() == 0
        daemon.disks = [disks[2], disks[0], disks[1]]
        daemon.start()
        with client(daemon) as nfs:
            assert nfs.read_all(nfs.walk("mine")) == b"mine"
        assert daemon.stop() == 0
    finally:
        daemon.end()
        other.end()


def fsfreeze(how, disk):
    subprocess.run(["fsfreeze", how, str(disk.mount)], check=True)


@pytest.mark.long
def test_a_disk_that_does_not_answer(loop_disks, folder, session_seed):
    """Its filesystem is frozen: no call that writes returns. After 30 s all goes on without it, until it answers again."""
    disks = loop_disks(400, 400, 400)
    daemon = Larder([d.folder for d in disks], folder / "data").start()
    frozen = disks[0]
    try:
        copy = Copy(daemon, session_seed, files=8).start()
        fsfreeze("-f", frozen)
        began = time.monotonic()
        try:
            copy.finish()
            with client(daemon, timeout_s=90) as nfs:
                for n in range(20):
                    handle = nfs.create(nfs.root, f"sync{n}").handle
                    nfs.write(handle, 0, payload(5000, n), FILE_SYNC)
            assert time.monotonic() - began < 60
            status = daemon.status()
            one = daemon.disk_status(frozen.folder)
            assert (status["state"], one["state"]) == ("DEGRADED", "FAULTED"), status
            assert "it does not answer" in daemon.run("pool", "status").stdout
            copy.compare()
        finally:
            fsfreeze("-u", frozen)
        time.sleep(1)
        done = daemon.run("pool", "online", daemon.status()["name"], str(frozen.folder))
        assert done.returncode == 0, done.stdout + done.stderr
        wait_until_repaired(daemon)
        done = daemon.run("pool", "scrub", "start", "--wait")
        assert done.returncode == 0, done.stdout + done.stderr
        assert daemon.stop() == 0
        # Now another one goes: what the first one missed must be on it.
        remove_folder(daemon.disks[1])
        daemon.start()
        copy.compare()
        with client(daemon) as nfs:
            for n in range(20):
                assert nfs.read_all(nfs.walk(f"sync{n}")) == payload(5000, n)
        assert "panicked" not in daemon.log()
    finally:
        daemon.end()


@pytest.mark.long
def test_a_pool_is_opened_without_a_disk_that_does_not_answer(loop_disks, folder, session_seed):
    """Frozen before the start: it serves without it after 30 s, says so, and takes it back when it answers."""
    disks = loop_disks(400, 400, 400)
    daemon = Larder([d.folder for d in disks], folder / "data").start()
    frozen = disks[1]
    try:
        copy = Copy(daemon, session_seed, files=4).start()
        copy.finish()
        assert daemon.stop() == 0
        fsfreeze("-f", frozen)
        try:
            daemon.start(timeout_s=90)
            began = time.monotonic()
            text = daemon.run("pool", "status").stdout
            assert time.monotonic() - began < 10 and "it does not answer" in text, text
            assert daemon.status()["state"] == "DEGRADED"
            copy.compare()
            with client(daemon) as nfs:
                nfs.write_all(nfs.create(nfs.root, "meanwhile").handle, payload(3 << 20, 5))
        finally:
            fsfreeze("-u", frozen)
        time.sleep(1)
        done = daemon.run("pool", "online", daemon.status()["name"], str(frozen.folder))
        assert done.returncode == 0, done.stdout + done.stderr
        wait_until_repaired(daemon)
        assert daemon.stop() == 0
        remove_folder(daemon.disks[0])
        daemon.start()
        copy.compare()
        with client(daemon) as nfs:
            assert nfs.read_all(nfs.walk("meanwhile")) == payload(3 << 20, 5)
        assert "panicked" not in daemon.log()
    finally:
        daemon.end()


def test_objects_that_were_removed_are_made_anew_and_nothing_is_left_to_say(folder, session_seed):
    daemon = make(folder).start()
    try:
        copy = Copy(daemon, session_seed, files=4).start()
        copy.finish()
        for disk, is_running in ((daemon.disks[0], True), (daemon.disks[1], False)):
            if not is_running:
                assert daemon.stop() == 0
            remove_folder(disk / "objects")
            if not is_running:
                daemon.start()
            daemon.status()
            wait_until_repaired(daemon)
            assert "is gone" not in daemon.run("pool", "status").stdout
            assert daemon.run("pool", "status", "-x").returncode == 0
            assert "its folder 'objects' is gone" in daemon.run("pool", "history").stdout
        copy.compare()
    finally:
        daemon.end()
