"""Volumes moved between a pool and a bucket of one daemon: served meanwhile, killed meanwhile, with their snapshots and handles."""

import json
import os
import random
import subprocess
import threading
import time

import nfs4
import pytest
from conftest import payload
from larderd import Larder
from nfs3 import FILE_SYNC, JUKEBOX, NfsError, Nfs3
from test_bucket import KEYS, Bucket
from waiting import wait_for

KILLS = int(os.environ.get("LARDER_MOVE_KILLS", "10"))


@pytest.fixture
def bucket():
    server = Bucket()
    yield server
    server.end()


def both(bucket, folder, *extra):
    """A daemon with a pool and a bucket."""
    disks = [folder / f"disk{n}" for n in (1, 2, 3)]
    where = ["--store", bucket.url, "--endpoint", bucket.endpoint, *extra]
    return Larder(disks, folder / "data", extra=where).start(env=KEYS)


def share(daemon, name, **options):
    return Nfs3.mount("127.0.0.1", daemon.nfs_port, f"/{name}", **options)


def patient(call, *args):
    """As a client that tries again when it is asked to (RFC 1813, 2.6)."""
    while True:
        try:
            return call(*args)
        except NfsError as error:
            if error.status != JUKEBOX:
                raise
            time.sleep(0.05)


class Writer(threading.Thread):
    """Durable records by one client that keeps its handles. `done` has those that were acknowledged."""

    def __init__(self, daemon, name, first=0):
        super().__init__(daemon=True)
        self.nfs = share(daemon, name)
        self.n, self.done, self.failed, self.ends = first, {}, None, False

    def run(self):
        while not self.ends:
            name, data = f"r{self.n}", f"record {self.n} ".encode() * 40
            try:
                handle = patient(self.nfs.create, self.nfs.root, name).handle
                patient(self.nfs.write, handle, 0, data, FILE_SYNC)
            except OSError:
                return
            except NfsError as error:
                self.failed = error
                return
            self.done[name] = (handle, data)
            self.n += 1

    def stop(self):
        self.ends = True
        self.join(60)
        assert not self.is_alive() and self.failed is None, self.failed


def volumes(daemon):
    return sorted(f"{v['pool']}/{v['name']}" for v in json.loads(daemon.run("volume", "list", "--json", check=True).stdout))


def move(daemon, source, target, *options, check=True):
    return daemon.run("volume", "move", source, target, *options, check=check)


def test_a_volume_moves_to_a_bucket_and_back(bucket, folder):
    daemon = both(bucket, folder)
    big = payload(5 << 20)
    try:
        daemon.run("volume", "create", "tank/work", "--quota", "4GiB", check=True)
        nfs = share(daemon, "work")
        handle = nfs.create(nfs.root, "big").handle
        nfs.write_all(handle, big)
        nfs.commit(handle)
        daemon.run("snap", "create", "tank/work@monday", check=True)
        daemon.run("snap", "hold", "tank/work@monday", "for the auditor", check=True)
        nfs.write(handle, 100, b"since monday", FILE_SYNC)
        writer = Writer(daemon, "work")
        writer.start()
        wait_for(lambda: len(writer.done) > 20)
        by_hand = folder / "mnt"
        by_hand.mkdir()
        daemon.run("mount", str(by_hand), "--volume", "tank/work", check=True)
        for source, target in (("tank/work", "store/work"), ("store/work", "tank/work")):
            told = move(daemon, source, target).stdout
            assert f"moved '{source}' to '{target}'" in told and "still there" not in told, told + daemon.log()[-3000:]
            seen = len(writer.done)
            wait_for(lambda: len(writer.done) > seen + 20, told=lambda: f"{writer.failed}")
            assert target in volumes(daemon) and source not in volumes(daemon)
            listed = daemon.run("snap", "list", target, "--holds", check=True).stdout
            assert "monday" in listed and "for the auditor" in listed and "moving-" not in listed, listed
            text = (daemon.data / "larder.toml").read_text()
            assert f'volume = "{target}"' in text and f'"{source}"' not in text, text
            assert (by_hand / "big").read_bytes()[100:112] == b"since monday", "the mount is back"
            # By the handles that the client has from before.
            assert nfs.read(handle, 100, 12).data == b"since monday"
            daemon.run("check", target, check=True)
        daemon.run("umount", str(by_hand), check=True)
        writer.stop()
        for name, (file, data) in writer.done.items():
            assert nfs.read_all(file) == data, f"{name} was acknowledged"
        assert not (daemon.data / "moves.json").exists() or json.loads((daemon.data / "moves.json").read_text()) == []
        assert move(daemon, "tank/work", "store/work", "--keep").stdout.count("still there") == 1
        assert {"tank/work", "store/work"} <= set(volumes(daemon))
        taken = move(daemon, "tank/work", "store/work", check=False)
        assert taken.returncode == 1 and "already" in taken.stderr, taken.stderr
        assert daemon.stop() == 0
        daemon = both(bucket, folder)
        nfs = share(daemon, "work")
        assert nfs.read(handle, 0, 100).data == big[:100]
        daemon.run("check", "--read-data", check=True)
        assert daemon.stop() == 0
    finally:
        daemon.end()


def test_what_a_client_of_nfs_4_writes_holds_a_move_back(bucket, folder):
    daemon = both(bucket, folder)
    try:
        daemon.run("volume", "create", "tank/work", check=True)
        nfs, file = nfs4.hold(daemon, ["work", "f"])
        kept = move(daemon, "tank/work", "store/work", check=False)
        assert kept.returncode != 0 and "open for writing" in kept.stderr, kept.stderr
        assert nfs.read(file, 0, 100, stateid=file.locked).data == b"half of ", "as if nobody had asked"
        nfs.close_file(file)
        # An open for reading goes with the volume that it was of: the client hears so, and opens it again.
        reading = nfs.open(["work", "f"], access=nfs4.READ)
        move(daemon, "tank/work", "store/work")
        with nfs4.refused("BAD_STATEID"):
            nfs.read(reading, 0, 8)
        again = nfs.open_handle(reading.handle, access=nfs4.READ)
        assert nfs.read(again, 0, 8).data == b"half of "
        assert daemon.stop() == 0
    finally:
        daemon.end()


def test_an_encrypted_volume_moves(bucket, folder):
    daemon = both(bucket, folder)
    key = folder / "key"
    key.write_bytes(os.urandom(64))
    try:
        secret = ["--encrypt", "--key-file", str(key), "--no-recovery-key", "--compression", "none"]
        daemon.run("volume", "create", "tank/secret", *secret, check=True)
        nfs = share(daemon, "secret")
        handle = nfs.create(nfs.root, "letter").handle
        nfs.write_all(handle, b"for nobody else " * 50000)
        move(daemon, "tank/secret", "store/secret")
        assert nfs.read(handle, 0, 16).data == b"for nobody else "
        assert daemon.stop() == 0
        daemon = both(bucket, folder)
        daemon.run("volume", "unlock", "store/secret", "--key-file", str(key), check=True)
        nfs = share(daemon, "secret")
        assert nfs.read_all(handle) == b"for nobody else " * 50000
        daemon.run("check", "store/secret", "--read-data", check=True)
        assert daemon.stop() == 0
    finally:
        daemon.end()


@pytest.mark.long
def test_a_move_is_killed_at_any_moment(bucket, folder, session_seed):
    """Whatever was acknowledged is there after each restart, under one name, and the move goes on when it is asked for again."""
    chance = random.Random(session_seed)
    bucket.faults(latency_ms=5)
    daemon = both(bucket, folder)
    daemon.run("volume", "create", "tank/work", check=True)
    nfs = share(daemon, "work")
    files = {}
    for n in range(40):
        handle = nfs.create(nfs.root, f"file{n}").handle
        files[f"file{n}"] = (handle, payload(64 << 10)[n:])
        nfs.write(handle, 0, files[f"file{n}"][1], FILE_SYNC)
    daemon.run("snap", "create", "tank/work@monday", check=True)
    # How long it takes, so that the kills come everywhere in it.
    begun = time.monotonic()
    move(daemon, "tank/work", "store/work")
    lasts = time.monotonic() - begun
    source, target, where = "store/work", "tank/work", []
    try:
        for kill in range(KILLS):
            writer = Writer(daemon, "work", first=kill * 10_000)
            writer.start()
            wait_for(lambda: len(writer.done) > 3)
            command = [daemon.program, "--data", daemon.data, "volume", "move", source, target]
            asked = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(chance.uniform(0, lasts * 1.3))
            daemon.kill()
            asked.wait(60)
            writer.join(60)
            assert writer.failed is None, writer.failed
            files.update(writer.done)
            daemon = both(bucket, folder)
            nfs = share(daemon, "work")
            for name, (handle, data) in files.items():
                assert nfs.read_all(handle) == data, f"{name} was acknowledged (kill {kill})"
            text = (daemon.data / "larder.toml").read_text()
            served = [name for name in (source, target) if f'volume = "{name}"' in text]
            assert len(served) == 1, text
            where.append(served[0] == target)
            told = move(daemon, source, target, check=False)
            if source in volumes(daemon) or target not in volumes(daemon):
                raise AssertionError(f"the move did not go on: {told.stdout}{told.stderr}\n{daemon.log()[-3000:]}")
            assert "monday" in daemon.run("snap", "list", target, check=True).stdout
            daemon.run("check", target, check=True)
            source, target = target, source
        print(f"{KILLS} kills, {sum(where)} of them after the new volume counted; a move takes {lasts:.2f} s")
        daemon.run("check", "--read-data", check=True)
        assert daemon.stop() == 0
    finally:
        daemon.end()
