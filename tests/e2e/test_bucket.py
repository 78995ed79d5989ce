"""Volumes in a bucket: served, killed, overtaken while stopped, followed by a standby, and silent when nobody works."""

import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import client, payload
from larderd import Larder, binary, run
from nfs3 import FILE_SYNC, Nfs3
from test_metrics import scrape, total
from waiting import wait_for

LOST = 5  # the exit code of a daemon whose store was taken over
FAILOVERS = int(os.environ.get("LARDER_FAILOVERS", "10"))
AT_ONCE = 10

KEYS = {"AWS_ACCESS_KEY_ID": "pantry", "AWS_SECRET_ACCESS_KEY": "Marmalade-Secret-77"}


class Bucket:
    """An S3 server in memory, with faults."""

    env = KEYS

    def __init__(self, *faults):
        program = os.environ.get("LARDER_TEST_BUCKET") or Path(binary()).parent / "larder-test-bucket"
        self.process = subprocess.Popen([program, "0", *faults], stdout=subprocess.PIPE, text=True)
        self.endpoint = self.process.stdout.readline().strip()
        self.url = "s3://pantry/nas"

    def ask(self, path, method="GET"):
        with urllib.request.urlopen(urllib.request.Request(self.endpoint + path, method=method), timeout=10) as answer:
            return json.load(answer)

    def requests(self):
        return sum(self.ask("/_counts").values())

    def faults(self, **faults):
        self.ask("/_faults?" + "&".join(f"{name}={value}" for name, value in faults.items()), "POST")

    def end(self):
        self.process.kill()
        self.process.wait()

    def larder(self, data, *extra):
        where = ["--store", self.url, "--endpoint", self.endpoint, *extra]
        return Larder([], data, extra=where).start(env=KEYS)


@pytest.fixture
def bucket():
    server = Bucket()
    yield server
    server.end()


def names(nfs):
    return [entry.name.decode() for entry in nfs.list(nfs.root)]


def quiet(bucket, seconds, limit_s=60):
    """Waits until nothing is asked of the bucket for so long."""
    seen = [0, time.monotonic()]

    def rests():
        now = bucket.requests()
        if now != seen[0]:
            seen[:] = now, time.monotonic()
        return time.monotonic() - seen[1] > seconds

    wait_for(rests, limit_s, told=lambda: f"requests: {bucket.ask('/_counts')}")


def env():
    return {**os.environ, **KEYS}


def test_check_names_what_a_store_lacks(bucket):
    command = [binary(), "store", "check", bucket.url, "--endpoint", bucket.endpoint]
    good = subprocess.run(command, capture_output=True, text=True, env=env())
    assert good.returncode == 0 and "conditional create" in good.stdout, good.stdout + good.stderr
    bucket.faults(unconditional=1)
    bad = subprocess.run([*command, "--json"], capture_output=True, text=True, env=env())
    assert bad.returncode == 4, bad.stderr
    told = json.loads(bad.stdout)
    assert not told["usable"]
    assert [p["name"] for p in told["probes"] if p["state"] == "MISSING"] == ["conditional create", "conditional update"]
    clear = run("store", "check", bucket.url, "--endpoint", "http://nas.example:9000")
    assert clear.returncode == 1 and "--allow-http" in clear.stderr


def test_a_volume_is_served_killed_and_idle(bucket, folder):
    bucket.faults(seed=5, slow_down=10, cut_after=10)
    daemon = bucket.larder(folder / "data")
    data = payload(3 << 20)
    try:
        with client(daemon) as nfs:
            file = nfs.create(nfs.root, "big").handle
            nfs.write_all(file, data)
            for n in range(20):
                nfs.create(nfs.root, f"small{n}")
        daemon.run("snap", "create", "store/files@monday", check=True)
        daemon.run("volume", "create", "second", "--quota", "1GiB", check=True)
        assert "bucket" in daemon.run("pool", "status", check=True).stdout
        daemon.kill()
        daemon = bucket.larder(folder / "data")
        with client(daemon) as nfs:
            assert nfs.read_all(nfs.lookup(nfs.root, "big").handle) == data
            assert len([name for name in names(nfs) if name.startswith("small")]) == 20
        daemon.run("check", "--read-data", check=True)
        assert "monday" in daemon.run("snap", "list", "store/files", check=True).stdout
        _, values = scrape(daemon.run("metrics", check=True).stdout)
        assert total(values, "larder_store_requests_total", "put") > 0
        # Nobody works: nothing is asked, once the tables are in order.
        bucket.faults(slow_down=0, cut_after=0)
        quiet(bucket, 10)
        everything = b"".join(path.read_bytes() for path in (folder / "data").rglob("*") if path.is_file())
        assert KEYS["AWS_SECRET_ACCESS_KEY"].encode() not in everything, "the key is in a file"
        assert daemon.stop() == 0
    finally:
        daemon.end()


PRICES = 'prices = { put = 5.0, get = 0.4, gib_month = 0.023, egress_gib = 0.09, currency = "EUR" }'


@pytest.mark.long
def test_the_bill(bucket, folder):
    """Money by the prices of the configuration; without prices not a word of it, and while nobody works none is spent."""
    daemon = bucket.larder(folder / "data")
    try:
        told = daemon.run("pool", "status", "-v", check=True).stdout
        assert "requests since it was opened" in told and "cost" not in told and "EUR" not in told, told
        assert daemon.stop() == 0
        config = daemon.data / "larder.toml"
        text = config.read_text()
        config.write_text(text.replace("[[store]]", "[[store]]\n" + PRICES, 1))
        daemon = bucket.larder(folder / "data")
        with client(daemon) as nfs:
            nfs.write_all(nfs.create(nfs.root, "big").handle, payload(80 << 20))
        told = daemon.run("pool", "status", "-v", check=True).stdout
        said = " ".join(told.split())
        assert "cost since then:" in said and "EUR an hour of use" in said, told
        assert "for a GiB written" in said and "EUR a month" in said, told
        _, values = scrape(daemon.run("metrics", check=True).stdout)
        requests = {kind: total(values, "larder_store_requests_total", kind) for kind in ("put", "post", "list", "get")}
        want = 5.0 / 1000 * (requests["put"] + requests["post"] + requests["list"]) + 0.4 / 1000 * requests["get"]
        cost = total(values, "larder_store_cost_millionths_total", "requests") / 1e6
        # The status and the metrics are two moments.
        assert abs(cost - want) < 0.2 * want + 0.01, (cost, want, requests)
        assert total(values, "larder_store_month_cost_millionths", "EUR") > 0.023e6 * 80 / 1024 * 0.9
        status = subprocess.run(
            [binary(), "store", "status", bucket.url, "--endpoint", bucket.endpoint],
            capture_output=True, text=True, env=env(), timeout=60)
        assert status.returncode == 0 and "here: cost since then:" in status.stdout, status.stdout + status.stderr
        # What nothing needs any more is gone by then.
        quiet(bucket, 35, limit_s=180)
        before = bucket.requests()
        time.sleep(15)
        assert bucket.requests() == before, "an idle volume costs nothing"
        config.write_text(text.replace("[[store]]", "[[store]]\nprices = { put = -1, get = 0.4 }", 1))
        refused = daemon.run("config", "check")
        assert refused.returncode != 0 and "is not a price" in refused.stderr, refused.stderr
        config.write_text(text)
        assert daemon.stop() == 0
    finally:
        daemon.end()


def test_another_machine_takes_over_a_stopped_owner(bucket, folder):
    old = bucket.larder(folder / "one")
    new = None
    try:
        with client(old) as nfs:
            nfs.create(nfs.root, "before")
        reader = client(old)
        reader.getattr(reader.root)
        os.kill(old.pid, signal.SIGSTOP)
        refused = Larder([], folder / "two", extra=["--store", bucket.url, "--endpoint", bucket.endpoint])
        told = subprocess.run(refused.command(), capture_output=True, text=True, env=env(), timeout=60)
        assert told.returncode == 1 and "belongs to" in told.stderr and "--force" in told.stderr, told.stderr
        new = bucket.larder(folder / "three", "--force")
        with client(new) as nfs:
            assert "before" in names(nfs)
            nfs.create(nfs.root, "after")
        os.kill(old.pid, signal.SIGCONT)
        # Not even from memory: it ends before it answers.
        with pytest.raises(OSError):
            reader.getattr(reader.root)
        assert old.process.wait(20) == LOST, old.log()
        assert "taken over by" in old.log()
        with client(new) as nfs:
            assert sorted(names(nfs)) == ["after", "before"]
        new.run("check", "--read-data", check=True)
        # What was overtaken does not give the store back for its successor.
        old.end()
        new.run("volume", "create", "more", check=True)
        assert new.stop() == 0
        next_one = bucket.larder(folder / "four")
        next_one.end()
    finally:
        os.kill(old.pid, signal.SIGCONT) if old.alive() else None
        old.end()
        if new:
            new.end()


class Writer(threading.Thread):
    """Durable records by one client, until the server is gone. `done` has those that were acknowledged."""

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.nfs = client(daemon)
        self.done = {}

    def run(self):
        n = 0
        while True:
            data = f"record {n} ".encode() * 40
            try:
                handle = self.nfs.create(self.nfs.root, f"r{n}").handle
                self.nfs.write(handle, 0, data, FILE_SYNC)
            except OSError:
                return
            self.done[f"r{n}"] = data
            n += 1


def failover(bucket, folder, n):
    """An owner under load ends, or is stopped and wakes up when its standby has the store."""
    url = f"{bucket.url}-pair{n}"
    extra = ["--store", url, "--endpoint", bucket.endpoint, "--standby", "--memory", "64MiB"]
    owner, standby = Larder([], folder / f"{n}a", extra=extra), Larder([], folder / f"{n}b", extra=extra)
    try:
        owner.start(timeout_s=120, env=bucket.env)
        with ThreadPoolExecutor(1) as starter:
            started = starter.submit(standby.start, 240, bucket.env)
            wait_for(lambda: standby.log_path.exists() and b"stands by" in standby.log_path.read_bytes())
            writer, reader = Writer(owner), client(owner)
            writer.start()
            wait_for(lambda: len(writer.done) > 5)
            verifier = reader.commit(reader.lookup(reader.root, "r0").handle).verifier
            assert not started.done()
            os.kill(owner.pid, signal.SIGSTOP if n % 2 else signal.SIGKILL)
            begun = time.monotonic()
            started.result()
            took = time.monotonic() - begun
        if n % 2:
            os.kill(owner.pid, signal.SIGCONT)
            with pytest.raises(OSError):
                reader.getattr(reader.root)
            assert owner.process.wait(30) == LOST, owner.log()
        writer.join(30)
        assert not writer.is_alive()
        with client(standby) as nfs:
            # By the handles of before.
            for name, data in writer.done.items():
                handle = nfs.lookup(writer.nfs.root, name).handle
                assert nfs.read_all(handle) == data, f"{name} was acknowledged"
            assert nfs.commit(handle).verifier != verifier, "what was unstable is gone, and clients are told"
            nfs.create(nfs.root, "goes on")
        assert standby.stop() == 0
        return took
    finally:
        if owner.alive():
            os.kill(owner.pid, signal.SIGCONT)
        owner.end()
        standby.end()


def test_a_standby_takes_over(bucket, folder):
    with ThreadPoolExecutor(min(AT_ONCE, FAILOVERS)) as pairs:
        took = sorted(pairs.map(lambda n: failover(bucket, folder, n), range(FAILOVERS)))
    print(f"{len(took)} standbys served after {took[0]:.1f} to {took[-1]:.1f} s")
    assert took[0] > 6, "an owner that renews its record is not silent for so short a time"


def test_a_store_is_handed_over_by_hand(bucket, folder):
    def store(*words):
        command = [binary(), "store", *words, bucket.url, "--endpoint", bucket.endpoint]
        return subprocess.run(command, capture_output=True, text=True, env=env(), timeout=60)

    assert "no owner" in store("status").stdout
    daemon = bucket.larder(folder / "one")
    try:
        assert "in use" in store("status").stdout
        refused = store("takeover")
        assert refused.returncode == 1 and "--force" in refused.stderr, refused.stderr
        freed = store("takeover", "--force")
        assert freed.returncode == 0 and "free" in freed.stdout, freed.stderr
        with pytest.raises(OSError):
            with client(daemon) as nfs:
                names(nfs)
        assert daemon.process.wait(20) == LOST
        assert "given back" in store("status").stdout
        bucket.larder(folder / "two").end()
    finally:
        daemon.end()


def test_a_cache_on_a_local_disk(bucket, folder):
    """Warm after a restart; sealed as in the bucket; thrown away when its disk is full."""
    cache = folder / "cache"
    extra = ["--cache", str(cache), "--cache-size", "64MiB", "--memory", "64MiB"]
    data, secret, key = payload(3 << 20), b"not for whoever finds the disk " * 9000, folder / "key"
    key.write_bytes(os.urandom(64))
    daemon = bucket.larder(folder / "data", *extra)
    try:
        with client(daemon) as nfs:
            nfs.write_all(nfs.create(nfs.root, "big").handle, data)
        encrypted = ["volume", "create", "store/secret", "--encrypt", "--key-file", str(key), "--compression", "none"]
        daemon.run(*encrypted, check=True)
        with Nfs3.mount("127.0.0.1", daemon.nfs_port, "/secret") as nfs:
            nfs.write_all(nfs.create(nfs.root, "letter").handle, secret)
        config = daemon.data / "larder.toml"
        text = config.read_text()
        config.write_text(text + f'\n[[volume]]\nname = "store/secret"\nkey_file = "{key}"\n')
        assert daemon.stop() == 0
        daemon = bucket.larder(folder / "data", *extra)
        with client(daemon) as nfs:
            assert nfs.read_all(nfs.lookup(nfs.root, "big").handle) == data
        with Nfs3.mount("127.0.0.1", daemon.nfs_port, "/secret") as nfs:
            assert nfs.read_all(nfs.lookup(nfs.root, "letter").handle) == secret
        assert daemon.stop() == 0
        kept = (cache / "data").read_bytes()
        assert data[100_000:100_200] in kept and secret[:100] not in kept
        daemon = bucket.larder(folder / "data", *extra)
        with client(daemon) as nfs:
            handle = nfs.lookup(nfs.root, "big").handle
            nfs.read(handle, 0, 4096)
            # What an opening looks up is over.
            quiet(bucket, 2)
            before = bucket.ask("/_counts")
            for at in range(0, len(data), 256 << 10):
                assert nfs.read(handle, at, 4096).data == data[at : at + 4096]
            asked = {kind: n - before.get(kind, 0) for kind, n in bucket.ask("/_counts").items() if n != before.get(kind, 0)}
        # A proof of ownership is all that is asked for.
        assert sum(asked.values()) <= 1, f"{asked} for what the cache has"
        _, values = scrape(daemon.run("metrics", check=True).stdout)
        assert total(values, "larder_store_cache_reads_total", "hit") > 0
        daemon.run("check", "--read-data", check=True)
        assert daemon.stop() == 0
        for file in cache.iterdir():
            file.unlink()
        # A disk that is too small for it.
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(cache)], check=True)
        try:
            daemon = bucket.larder(folder / "data", *extra)
            with client(daemon) as nfs:
                assert nfs.read_all(nfs.lookup(nfs.root, "big").handle) == data
            wait_for(lambda: "is not used" in json.dumps(daemon.status()), told=lambda: json.dumps(daemon.status()))
            assert daemon.stop() == 0
        finally:
            daemon.end()
            subprocess.run(["umount", str(cache)], check=True)
    finally:
        daemon.end()


def test_recover_and_debug_read_a_bucket(bucket, folder):
    """What an owner that was killed has acknowledged comes back out of the bucket; so does data whose tables are lost."""
    data, small = payload(3 << 20), b"in the log alone"

    def command(*words):
        where = ["--store", bucket.url, "--endpoint", bucket.endpoint]
        return subprocess.run([binary(), *words, *where], capture_output=True, text=True, env=env(), timeout=120)

    daemon = bucket.larder(folder / "data")
    try:
        with client(daemon) as nfs:
            nfs.write_all(nfs.create(nfs.root, "big").handle, data)
            inner = nfs.mkdir(nfs.root, "dir").handle
            nfs.write(nfs.create(inner, "small").handle, 0, small, FILE_SYNC)
        assert daemon.stop() == 0
        daemon = bucket.larder(folder / "data")
        with client(daemon) as nfs:
            nfs.write(nfs.create(nfs.root, "late").handle, 0, small, FILE_SYNC)
        daemon.kill()
        before = {kind: n for kind, n in bucket.ask("/_counts").items() if kind not in ("get", "head", "list")}
        listed = command("recover", "--list")
        assert listed.returncode == 0 and "files" in listed.stdout and bucket.url in listed.stdout, listed.stderr
        done = command("recover", "--to", str(folder / "out"))
        assert done.returncode == 0, done.stdout + done.stderr
        out = folder / "out" / "files"
        assert (out / "big").read_bytes() == data
        assert (out / "dir" / "small").read_bytes() == small and (out / "late").read_bytes() == small
        registry = command("debug", "registry", "--json")
        assert registry.returncode == 0 and "files" in registry.stdout, registry.stderr
        meta = command("debug", "meta", "--prefix", "D", "--json")
        assert meta.returncode == 0 and "late" in meta.stdout, meta.stdout + meta.stderr
        with urllib.request.urlopen(f"{bucket.endpoint}/pantry?list-type=2", timeout=10) as answer:
            keys = re.findall(r"<Key>(.*?)</Key>", answer.read().decode())
        segment = next(key for key in keys if "/seg/" in key)
        shown = command("debug", "segment", segment.removeprefix("nas/"))
        assert shown.returncode == 0 and "fault" not in shown.stdout, shown.stdout + shown.stderr
        after = {kind: n for kind, n in bucket.ask("/_counts").items() if kind not in ("get", "head", "list")}
        assert after == before, "reading changes nothing"
        # The tables are lost: what the segments say of their records is left.
        for key in keys:
            if "/meta/" in key:
                urllib.request.urlopen(
                    urllib.request.Request(f"{bucket.endpoint}/pantry/{key}", method="DELETE"), timeout=10)
        torn = command("recover", "--to", str(folder / "torn"))
        assert torn.returncode == 4, torn.stdout + torn.stderr
        left = [path.read_bytes() for path in (folder / "torn").rglob("*") if path.is_file()]
        assert data in left, "a file that its segments name comes back whole"
    finally:
        daemon.end()
