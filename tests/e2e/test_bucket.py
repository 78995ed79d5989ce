"""Volumes in a bucket: served over NFS and SMB, killed, overtaken while stopped, sealed, and silent when nobody works."""

import json
import os
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from conftest import client, payload
from larderd import Larder, binary, run
from test_metrics import scrape, total
from waiting import wait_for

KEYS = {"AWS_ACCESS_KEY_ID": "pantry", "AWS_SECRET_ACCESS_KEY": "Marmalade-Secret-77"}


class Bucket:
    """An S3 server in memory, with faults."""

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
        seen = [0, time.monotonic()]

        def rests():
            now = bucket.requests()
            if now != seen[0]:
                seen[:] = now, time.monotonic()
            return time.monotonic() - seen[1] > 10

        wait_for(rests, told=lambda: f"requests: {bucket.ask('/_counts')}")
        everything = b"".join(path.read_bytes() for path in (folder / "data").rglob("*") if path.is_file())
        assert KEYS["AWS_SECRET_ACCESS_KEY"].encode() not in everything, "the key is in a file"
        assert daemon.stop() == 0
    finally:
        daemon.end()


def test_another_machine_takes_over_a_stopped_owner(bucket, folder):
    old = bucket.larder(folder / "one")
    new = None
    try:
        with client(old) as nfs:
            nfs.create(nfs.root, "before")
        os.kill(old.pid, signal.SIGSTOP)
        refused = Larder([], folder / "two", extra=["--store", bucket.url, "--endpoint", bucket.endpoint])
        told = subprocess.run(refused.command(), capture_output=True, text=True, env=env(), timeout=60)
        assert told.returncode == 1 and "belongs to" in told.stderr and "--force" in told.stderr, told.stderr
        new = bucket.larder(folder / "three", "--force")
        with client(new) as nfs:
            assert "before" in names(nfs)
            nfs.create(nfs.root, "after")
        os.kill(old.pid, signal.SIGCONT)
        with pytest.raises(Exception):
            with client(old) as nfs:
                nfs.create(nfs.root, "never")
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
