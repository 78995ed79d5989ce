"""Two machines at one store: a volume is handed over while it is written to, and whatever is killed meanwhile."""

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
from test_bucket import KEYS, Bucket, env
from waiting import wait_for

CUTS = int(os.environ.get("LARDER_HANDOVER_CUTS", "6"))
STALE = 70


@pytest.fixture
def bucket():
    server = Bucket()
    yield server
    server.end()


class Pair:
    """A machine at the first seat and one at `b`, each with a folder of its own."""

    def __init__(self, bucket, folder):
        self.bucket, self.folder, self.up = bucket, folder, {}

    def start(self, seat, *extra):
        at = [] if seat == "first" else ["--seat", seat]
        where = ["--store", self.bucket.url, "--endpoint", self.bucket.endpoint, "--memory", "64MiB", *at, *extra]
        self.up[seat] = Larder([], self.folder / seat, extra=where).start(120, KEYS)
        return self.up[seat]

    def __getitem__(self, seat):
        return self.up[seat]

    def end(self):
        for daemon in self.up.values():
            daemon.end()

    def log(self):
        return "\n".join(f"--- {seat}\n{daemon.log()[-4000:]}" for seat, daemon in self.up.items())


@pytest.fixture
def pair(bucket, folder):
    machines = Pair(bucket, folder)
    yield machines
    machines.end()


def store_notes(daemon):
    pools = json.loads(daemon.run("pool", "status", "-v", "--json", check=True).stdout)
    return " ".join(next(pool for pool in pools if pool["name"] == "store")["notes"])


def other(seat):
    return "b" if seat == "first" else "first"


def served(daemon):
    return sorted(v["name"] for v in json.loads(daemon.run("volume", "list", "--json", check=True).stdout))


def share(daemon, name):
    return Nfs3.mount("127.0.0.1", daemon.nfs_port, f"/{name}")


class Writer(threading.Thread):
    """A client with handles that never change, which writes durably wherever the volume is served. `done` has what was acknowledged."""

    def __init__(self, pair, root, first=0):
        super().__init__(daemon=True)
        self.pair, self.root, self.n, self.done, self.failed, self.ends = pair, root, first, {}, None, False
        self.seat, self.links, self.waited = "first", {}, 0.0

    def link(self):
        """A connection to the machine that was good last. None: it is down."""
        daemon = self.pair.up.get(self.seat)
        if daemon is None or not getattr(daemon, "nfs_port", None):
            return None
        if self.seat not in self.links or self.links[self.seat][0] is not daemon:
            try:
                self.links[self.seat] = (daemon, Nfs3("127.0.0.1", daemon.nfs_port))
            except OSError:
                return None
        return self.links[self.seat][1]

    def call(self, what):
        """Until some machine does it. One that has not the volume says so, or is down; then the other one is asked."""
        since = time.monotonic()
        while not self.ends:
            link = self.link()
            try:
                if link is not None:
                    return what(link)
            except NfsError as error:
                if error.status not in (JUKEBOX, STALE):
                    raise
            except OSError:
                self.links.pop(self.seat, None)
            self.seat = other(self.seat)
            self.waited = max(self.waited, time.monotonic() - since)
            time.sleep(0.03)
        return None

    def run(self):
        try:
            while not self.ends:
                name, data = f"r{self.n}", f"record {self.n} ".encode() * 40
                try:
                    made = self.call(lambda link: link.create(self.root, name))
                except NfsError as error:
                    # Made by a try whose answer was lost.
                    if error.status != 17:
                        raise
                    made = self.call(lambda link: link.lookup(self.root, name))
                if made is None or self.call(lambda link: link.write(made.handle, 0, data, FILE_SYNC)) is None:
                    return
                self.done[name] = (made.handle, data)
                self.n += 1
        except Exception as error:  # noqa: BLE001
            self.failed = error

    def stop(self):
        self.ends = True
        self.join(60)
        assert not self.is_alive() and self.failed is None, self.failed


def move(pair, seat, to, *options, check=True):
    done = pair[seat].run("volume", "move", "store/files", to, *options)
    assert not check or done.returncode == 0, done.stdout + done.stderr + pair.log()
    return done


def test_a_volume_is_handed_over_and_back(bucket, pair):
    first = pair.start("first")
    big = payload(5 << 20)
    nfs = share(first, "files")
    root = nfs.root
    file = nfs.create(root, "big").handle
    nfs.write_all(file, big)
    nfs.commit(file)
    first.run("snap", "create", "store/files@monday", check=True)
    first.run("volume", "create", "store/stays", check=True)
    second = pair.start("b")
    assert served(first) == ["files", "stays"] and served(second) == []
    refused = second.run("volume", "destroy", "store/files", "--yes")
    assert refused.returncode != 0
    told = second.run("volume", "move", "store/files", "b")
    assert "the seat 'first'" in told.stderr and "larder volume move store/files b" in told.stderr, told.stderr
    nobody = move(pair, "first", "c", check=False)
    assert nobody.returncode != 0 and "first (" in nobody.stderr and "b (" in nobody.stderr, nobody.stderr
    writer = Writer(pair, root)
    writer.start()
    wait_for(lambda: len(writer.done) > 10)
    took = []
    for seat in ("first", "b", "first"):
        seen = len(writer.done)
        begun = time.monotonic()
        told = move(pair, seat, other(seat)).stdout
        took.append(time.monotonic() - begun)
        assert "handed 'store/files' over to the seat" in told and "shared by" in told, told
        wait_for(lambda: len(writer.done) > seen + 20, told=lambda: f"{writer.failed}\n{pair.log()}")
        assert "files" in served(pair[other(seat)]) and "files" not in served(pair[seat])
        # The handles from before are good at the new machine, and ask to wait at the old one.
        assert Nfs3("127.0.0.1", pair[other(seat)].nfs_port).read(file, 0, 100).data == big[:100]
        with pytest.raises(NfsError) as waits:
            Nfs3("127.0.0.1", pair[seat].nfs_port).read(file, 0, 100)
        assert waits.value.status == JUKEBOX
        assert "monday" in pair[other(seat)].run("snap", "list", "store/files", check=True).stdout
        again = move(pair, seat, other(seat)).stdout
        assert "is served by the seat" in again, again
    writer.stop()
    print(f"moves took {', '.join(f'{one:.1f}' for one in took)} s; a client waited {writer.waited:.1f} s at most")
    nfs = share(pair["b"], "files")
    for name, (handle, data) in writer.done.items():
        assert nfs.read_all(handle) == data, f"{name} was acknowledged"
    assert nfs.read_all(file) == big
    assert pair["first"].run("check", "store/stays", check=True)
    pair["b"].run("check", "store/files", "--read-data", check=True)
    asked = [first.program, "store", "status", bucket.url, "--endpoint", bucket.endpoint]
    seats = subprocess.run(asked, capture_output=True, text=True, env=env(), check=True).stdout
    assert "seat 'b'" in seats, seats
    notes = {seat: store_notes(pair[seat]) for seat in ("first", "b")}
    assert "owned by this machine at the seat 'b'" in notes["b"], notes
    assert "owned by this machine, epoch" in notes["first"], notes
    for seat in ("first", "b"):
        assert pair[seat].stop() == 0, pair.log()
    # Each finds its own again.
    pair.start("first"), pair.start("b")
    assert served(pair["first"]) == ["stays"] and served(pair["b"]) == ["files"]


def test_locks_of_nfs_4_go_with_the_volume(pair):
    first, second, path = pair.start("first"), pair.start("b"), ["files", "f"]
    _, file = nfs4.hold(first, path)
    refused = move(pair, "first", "b", check=False)
    if refused.returncode != 0:
        assert "open for writing" in refused.stderr, refused.stderr
        move(pair, "first", "b", "--force")
    nfs4.take_back(second, path, file)


def test_a_replication_rests_where_the_volume_is_not(pair):
    first = pair.start("first")
    pair.start("b")

    def write(name, seat):
        nfs = share(pair[seat], "files")
        nfs.write_all(nfs.create(nfs.root, name).handle, b"text", FILE_SYNC)
        pair[seat].run("snap", "create", f"store/files@{name}", check=True)

    def copied():
        listed = json.loads(first.run("snap", "list", "store/copy", "--json").stdout or "[]")
        return [one["name"] for volume in listed for one in volume["snapshots"]]

    write("one", "first")
    first.run("replicate", "add", "store/files", "store/copy", check=True)
    wait_for(lambda: copied() == ["one"], told=first.log)
    move(pair, "first", "b")
    write("two", "b")
    # A wake-up, and nothing is said of the volume that is not there.
    first.run("volume", "create", "store/wakes", check=True)
    time.sleep(3)
    assert "is not replicated" not in first.log(), first.log()
    move(pair, "b", "first")
    wait_for(lambda: copied() == ["one", "two"], told=lambda: f"{copied()} {first.log()}")


def test_nobody_answers(pair):
    pair.start("first")
    pair.start("b").kill()
    told = move(pair, "first", "b", check=False)
    assert told.returncode != 0 and "nobody answers at the seat 'b'" in told.stderr, told.stderr
    nfs = share(pair["first"], "files")
    nfs.write(nfs.create(nfs.root, "still").handle, 0, b"here", FILE_SYNC)
    # The offer of then means nothing later.
    pair.start("b")
    time.sleep(4)
    assert served(pair["first"]) == ["files"] and served(pair["b"]) == []
    nfs.write(nfs.create(nfs.root, "and").handle, 0, b"now", FILE_SYNC)


@pytest.mark.long
def test_a_handover_is_cut_off_at_any_moment(bucket, pair, session_seed):
    """One machine or both are killed at any moment of it. Whatever was acknowledged is there, one machine serves it, and the same
    command ends what was begun."""
    print(f"seed {session_seed}")
    chance = random.Random(session_seed)
    bucket.faults(latency_ms=8, seed=chance.randrange(1 << 30), cut_after=3, slow_down=2)
    first = pair.start("first")
    nfs = share(first, "files")
    root, files = nfs.root, {}
    pair.start("b")
    wait_for(lambda: "files" in served(pair["first"]))
    begun = time.monotonic()
    move(pair, "first", "b")
    lasts, source, went, waited = time.monotonic() - begun, "b", 0, 0.0
    for cut in range(CUTS):
        target = other(source)
        writer = Writer(pair, root, first=cut * 10_000)
        writer.seat = source
        writer.start()
        wait_for(lambda: len(writer.done) > 3, told=lambda: f"{writer.failed}\n{pair.log()}")
        command = [pair[source].program, "--data", pair[source].data, "volume", "move", "store/files", target]
        asked = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        victims = chance.choice([[source], [target], [source, target]])
        time.sleep(chance.uniform(0, lasts * 1.2))
        for seat in victims:
            pair[seat].kill()
        # What is killed is gone for a while, sometimes.
        time.sleep(chance.choice([0, 0, 1.5]))
        for seat in victims:
            pair.start(seat)
        said = asked.communicate(timeout=120)[0]
        having = [seat for seat in ("first", "b") if "files" in served(pair[seat])]
        assert len(having) == 1, f"cut {cut} of {victims}: served by {having}\n{said}\n{pair.log()}"
        went += having == [target]
        told = move(pair, source, target, check=False)
        if told.returncode != 0 or "files" not in served(pair[target]):
            raise AssertionError(f"cut {cut} of {victims}: the command did not end it: {told.stdout}{told.stderr}\nbefore: {said}\n{pair.log()}")
        seen = len(writer.done)
        wait_for(lambda: len(writer.done) > seen + 3, told=lambda: f"{writer.failed}\n{pair.log()}")
        writer.stop()
        waited = max(waited, writer.waited)
        files.update(writer.done)
        link = Nfs3("127.0.0.1", pair[target].nfs_port)
        for name, (handle, data) in files.items():
            assert link.read_all(handle) == data, f"{name} was acknowledged (cut {cut})"
        pair[target].run("check", "store/files", check=True)
        source = target
    print(f"{CUTS} cuts, {went} of them after the volume had changed hands; {len(files)} acknowledged files; a handover takes {lasts:.1f} s, a client waited {waited:.1f} s at most")
    pair[source].run("check", "store/files", "--read-data", check=True)
    for seat in ("first", "b"):
        assert pair[seat].stop() == 0, pair.log()
