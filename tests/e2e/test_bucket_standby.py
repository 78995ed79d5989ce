"""`durability = "journal"` together with `standby = true`: nothing is dropped that only the journal of the owner has, unless a person says so."""

import json
import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nfs4
import pytest
from larderd import Larder, binary
from nfs3 import FILE_SYNC, Nfs3
from test_bucket import KEYS, LOST, Bucket, env
from test_bucket_journal import client, names, store_status, undrained
from waiting import wait_for

# A takeover: 10 s of silence, a look every 2 s, and opening the pool and the volumes.
TAKEN_WITHIN_S = 16
# So long that a standby would have taken over twice.
NOT_TAKEN_FOR_S = 22


@pytest.fixture
def bucket():
    server = Bucket()
    yield server
    server.end()


class Way:
    """A longer way to the bucket, for one machine."""

    def __init__(self, bucket):
        program = os.environ.get("LARDER_TEST_BUCKET") or Path(binary()).parent / "larder-test-bucket"
        target = bucket.endpoint.removeprefix("http://")
        self.process = subprocess.Popen([program, "via", "0", target], stdout=subprocess.PIPE, text=True)
        self.endpoint = self.process.stdout.readline().strip()

    def latency(self, ms):
        request = f"{self.endpoint}/_faults?latency_ms={ms}"
        subprocess.run(["curl", "-fsS", "-X", "POST", request], check=True, stdout=subprocess.DEVNULL, timeout=10)

    def end(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def way(bucket):
    way = Way(bucket)
    yield way
    way.end()


def machine(bucket, folder, endpoint):
    """A machine with a pool whose journal answers for the store, and a standby; not yet started."""
    disks = [folder / f"disk{n}" for n in (1, 2, 3)]
    where = ["--store", bucket.url, "--endpoint", endpoint, "--memory", "128MiB"]
    first = Larder(disks, folder / "data", extra=where).start(env=KEYS)
    assert first.stop() == 0
    config = first.data / "larder.toml"
    said = '[[store]]\ndurability = "journal"\nstandby = true\n'
    config.write_text(config.read_text().replace("[[store]]\n", said))
    return Larder(disks, folder / "data", extra=where)


class Pair:
    """An owner, its standby, and clients of the owner."""

    def __init__(self, bucket, folder, way):
        self.bucket = bucket
        self.owner = machine(bucket, folder / "a", way.endpoint)
        self.standby = machine(bucket, folder / "b", bucket.endpoint)
        self.starter = ThreadPoolExecutor(2)
        self.owner.start(env=KEYS)
        self.serves = self.begin(self.standby)
        wait_for(lambda: "stands by" in self.log(self.standby))

    def log(self, machine):
        return machine.log_path.read_text() if machine.log_path.exists() else ""

    def begin(self, machine):
        return self.starter.submit(machine.start, 240, KEYS)

    def store(self, *words):
        command = [binary(), "store", *words, self.bucket.url, "--endpoint", self.bucket.endpoint]
        return subprocess.run(command, capture_output=True, text=True, env=env(), timeout=180)

    def end(self):
        for machine in (self.owner, self.standby):
            if machine.process:
                machine.process.kill()
        self.starter.shutdown()
        self.owner.end()
        self.standby.end()


@pytest.fixture
def pair(bucket, folder, way):
    pair = Pair(bucket, folder, way)
    yield pair
    pair.end()


class Writer(threading.Thread):
    """Durable records of one client, one after the other, until the server is gone."""

    def __init__(self, daemon, label):
        super().__init__(daemon=True)
        self.nfs, self.label, self.done = client(daemon), label, []

    def data(self, n):
        return f"{self.label} {n} ".encode() * 30

    def run(self):
        n = 0
        while True:
            try:
                handle = self.nfs.create(self.nfs.root, f"{self.label}{n:05}").handle
                self.nfs.write(handle, 0, self.data(n), FILE_SYNC)
            except OSError:
                return
            self.done.append(n)
            n += 1


def load(daemon, count=3):
    writers = [Writer(daemon, label) for label in "xyz"[:count]]
    for writer in writers:
        writer.start()
    return writers


def check_prefix(daemon, writers):
    """What is there is an earlier moment, whole. Returns how many acknowledged records are not there."""
    nfs, missing = client(daemon), 0
    there = names(nfs)
    for writer in writers:
        own = sorted(name for name in there if name.startswith(writer.label))
        assert own == [f"{writer.label}{n:05}" for n in range(len(own))], "an earlier one is missing"
        for n, name in enumerate(own):
            read = nfs.read_all(nfs.lookup(nfs.root, name).handle)
            # Of the newest one, the data may be what is missing.
            assert read == writer.data(n) or (read == b"" and n == len(own) - 1), name
            missing += n in writer.done and read == b""
        missing += len([n for n in writer.done if n >= len(own)])
    return missing


def all_there(daemon, writers):
    assert sum(len(writer.done) for writer in writers) > 10, "there was load"
    assert check_prefix(daemon, writers) == 0, "acknowledged, and not there"


def kill_with_a_rest(pair, way):
    """The bucket is far away, and the owner is killed with much that only its journal has."""
    writers = load(pair.owner)
    wait_for(lambda: sum(len(writer.done) for writer in writers) > 30)
    way.latency(2000)
    wait_for(lambda: undrained(pair.owner) > 60)
    pair.owner.kill()
    way.latency(0)
    for writer in writers:
        writer.join(60)
    return writers


def kill_when_its_record_says(pair, owner, at_rest):
    """Kills an owner whose record in the bucket says that it has everything, or that changes may be missing.

    It is stopped before the look that counts: its flusher and its renewals change the record at any moment.
    """
    def says_so():
        return ("the bucket has everything" in pair.store("status").stdout) == at_rest

    def stopped_while_it_says_so():
        if not says_so():
            return False
        owner.process.send_signal(signal.SIGSTOP)
        # By the second look, a request that was under way has arrived.
        if says_so() and says_so():
            return True
        owner.process.send_signal(signal.SIGCONT)
        return False

    wait_for(stopped_while_it_says_so, 30)
    owner.kill()


def test_an_owner_that_is_stopped_leaves_nothing_behind(pair):
    writers = load(pair.owner)
    wait_for(lambda: sum(len(writer.done) for writer in writers) > 100)
    assert pair.owner.stop() == 0
    begun = time.monotonic()
    pair.serves.result()
    print(f"stopped under load: the standby served {time.monotonic() - begun:.1f} s later")
    all_there(pair.standby, writers)
    assert "missing" not in pair.standby.log() + " ".join(store_status(pair.standby)["notes"])
    pair.standby.run("check", "store/files", "--read-data", check=True)
    # Now the other way: the first one stands by, and is asked for the store by nobody.
    serves = pair.begin(pair.owner)
    wait_for(lambda: "stands by" in pair.owner.log())
    assert pair.standby.stop() == 0
    serves.result()
    all_there(pair.owner, writers)


def test_a_store_is_handed_over_in_order(pair):
    writers = load(pair.owner)
    wait_for(lambda: sum(len(writer.done) for writer in writers) > 100)
    begun = time.monotonic()
    handed = pair.store("takeover")
    took = time.monotonic() - begun
    assert handed.returncode == 0 and "nothing is missing" in handed.stdout, handed.stdout + handed.stderr
    pair.serves.result()
    print(f"handed over under load in {took:.1f} s, served after {time.monotonic() - begun:.1f} s")
    assert pair.owner.process.wait(30) == LOST, pair.owner.log()
    assert "is asked for the store" in pair.owner.log(), pair.owner.log()
    all_there(pair.standby, writers)
    assert "may be missing" not in pair.standby.log()
    pair.owner.end()
    serves = pair.begin(pair.owner)
    wait_for(lambda: "stands by" in pair.owner.log())
    assert not serves.done()


@pytest.mark.long
def test_a_standby_waits_for_what_only_the_journal_has(pair, way):
    writers = kill_with_a_rest(pair, way)
    time.sleep(NOT_TAKEN_FOR_S)
    assert not pair.serves.done(), "it has taken over what only the disks of the owner have"
    log = pair.standby.log()
    assert "the owner has been silent since" in log and "may be missing" in log and "takeover" in log, log
    told = pair.store("status").stdout
    assert "silent since" in told and "may be missing" in told and "log entries" in told and "--force" in told, told
    refused = pair.store("takeover")
    assert refused.returncode == 1 and "no sign of life" in refused.stderr and "--force" in refused.stderr, refused.stderr
    pair.owner.start(env=KEYS)
    all_there(pair.owner, writers)
    assert "may be missing" not in pair.owner.log()
    assert not pair.serves.done()
    wait_for(lambda: "renewed for a standby" in pair.store("status").stdout)


def test_a_person_gives_the_journal_up(pair, way):
    writers = kill_with_a_rest(pair, way)
    wait_for(lambda: "the owner has been silent since" in pair.standby.log())
    forced = pair.store("takeover", "--force")
    assert forced.returncode == 0 and "may be missing" in forced.stdout and "tank" in forced.stdout, forced.stdout
    pair.serves.result()
    missing = check_prefix(pair.standby, writers)
    assert missing > 0, "the test wants changes that only the journal has"
    print(f"{missing} acknowledged records were on the lost disks alone")
    assert "may be missing" in pair.standby.log()
    assert "may be missing" in " ".join(store_status(pair.standby)["notes"])
    with client(pair.standby) as nfs:
        nfs.write(nfs.create(nfs.root, "after").handle, 0, b"after", FILE_SYNC)
    pair.standby.run("check", "--read-data", check=True)
    # The first one comes back, keeps its rest, stands by and says so.
    serves = pair.begin(pair.owner)
    wait_for(lambda: "stands by" in pair.owner.log(), told=lambda: pair.owner.log())
    assert "may not be in the bucket: they are kept in the pool" in pair.owner.log(), pair.owner.log()
    time.sleep(3)
    assert not serves.done()
    assert pair.standby.stop() == 0
    serves.result()
    assert "after" in names(client(pair.owner))
    assert check_prefix(pair.owner, writers) == missing
    status = store_status(pair.owner)
    assert "may have been acknowledged, never reached the bucket" in status["status"] and "larder store forget store" in status["action"], status
    pair.owner.run("store", "forget", "store", check=True)
    assert not store_status(pair.owner).get("status")
    pair.owner.run("check", "--read-data", check=True)


def test_an_idle_owner_is_taken_over_from_at_once(pair):
    writers = load(pair.owner)
    wait_for(lambda: sum(len(writer.done) for writer in writers) > 100)
    # The clients go, and the bucket gets everything.
    for writer in writers:
        writer.nfs.close()
        writer.join(30)
    kill_when_its_record_says(pair, pair.owner, at_rest=True)
    begun = time.monotonic()
    pair.serves.result()
    took = time.monotonic() - begun
    print(f"killed while idle: the standby served after {took:.1f} s")
    assert took < TAKEN_WITHIN_S, took
    all_there(pair.standby, writers)
    assert "may be missing" not in pair.standby.log()


@pytest.mark.long
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_client_of_nfs_4_keeps_its_locks_over_a_takeover_and_back(pair, how):
    """What it had open, locked and half written is its own at the standby, and again at the one that comes back: a pause."""
    owner, other, serves = pair.owner, pair.standby, pair.serves
    for life in range(2):
        path = ["store-files", f"f{life}"]
        _, file = nfs4.hold(owner, path)
        if how == "stopped":
            assert owner.stop() == 0
        else:
            kill_when_its_record_says(pair, owner, at_rest=True)
        begun = time.monotonic()
        serves.result()
        # The client is known there, so nobody gets its file before; and grace is over with its last word.
        for link in nfs4.take_back(other, path, file):
            link.leave()
            link.close()
        print(f"{how}: everything is back {time.monotonic() - begun:.1f} s later")
        assert time.monotonic() - begun < (TAKEN_WITHIN_S + 4 if how == "killed" else TAKEN_WITHIN_S)
        assert "panicked" not in other.log()
        if life == 0:
            serves = pair.begin(owner)
            wait_for(lambda: "stands by" in pair.log(owner))
            owner, other = other, owner


@pytest.mark.long
def test_owners_change_under_load(pair):
    """Killed again and again, working or resting: whoever serves in the end has everything."""
    machines, writers = [pair.owner, pair.standby], []
    serves = pair.serves
    for life in range(4):
        owner, other = machines
        round_ = [Writer(owner, f"{label}{life}-") for label in "xy"]
        for writer in round_:
            writer.start()
        wait_for(lambda: sum(len(writer.done) for writer in round_) > 40)
        writers += round_
        if life % 2:
            for writer in round_:
                writer.nfs.close()
                writer.join(30)
        kill_when_its_record_says(pair, owner, at_rest=bool(life % 2))
        for writer in round_:
            writer.join(30)
        if not life % 2:
            # The bucket may have everything, but its record says that changes may be missing.
            time.sleep(NOT_TAKEN_FOR_S)
            assert not serves.done(), other.log()
            owner.start(env=KEYS)
            all_there(owner, writers)
            continue
        serves.result()
        all_there(other, writers)
        serves = pair.begin(owner)
        wait_for(lambda: "stands by" in owner.log())
        machines.reverse()
    machines[0].run("check", "--read-data", check=True)
