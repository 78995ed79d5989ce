"""`durability = "journal"`: a bucket that answers from the journal of a local pool, killed, overtaken, and without its pool."""

import json
import os
import subprocess
import time

import pytest
from larderd import Larder, binary
from nfs3 import FILE_SYNC, Nfs3
from test_bucket import KEYS, Bucket, env, quiet
from test_metrics import scrape, total
from waiting import wait_for


@pytest.fixture
def bucket():
    server = Bucket()
    yield server
    server.end()


def hold(bucket, part):
    """Requests for these objects wait until they are let go."""
    bucket.ask(f"/_hold?part={part}", "POST")


def let_go(bucket):
    bucket.ask("/_let_go", "POST")


def drop_held(bucket):
    """Whatever is held never arrives."""
    hold(bucket, "nothing")


def side_by_side(bucket, folder, *extra):
    """A daemon with a pool, and a bucket that answers from its journal; not yet started."""
    disks = [folder / f"disk{n}" for n in (1, 2, 3)]
    where = ["--store", bucket.url, "--endpoint", bucket.endpoint]
    first = Larder(disks, folder / "data", extra=where).start(env=KEYS)
    assert first.stop() == 0
    config = first.data / "larder.toml"
    text = config.read_text().replace("[[store]]\n", '[[store]]\ndurability = "journal"\n')
    config.write_text(text)
    return Larder(disks, folder / "data", extra=[*where, *extra])


def client(daemon):
    """The volume in the bucket, whose share stands behind that of the pool."""
    return Nfs3.mount("127.0.0.1", daemon.nfs_port, "/store-files")


def make(nfs, names):
    for name in names:
        nfs.write(nfs.create(nfs.root, name).handle, 0, name.encode() * 20, FILE_SYNC)


def names(nfs):
    return {entry.name.decode() for entry in nfs.list(nfs.root)} - {".", ".."}


def store_status(daemon):
    pools = json.loads(daemon.run("pool", "status", "-v", "--json", check=True).stdout)
    return next(pool for pool in pools if pool["name"] == "store")


def undrained(daemon):
    _, values = scrape(daemon.run("metrics", check=True).stdout)
    return total(values, "larder_store_undrained_entries")


def test_answers_come_from_the_journal(bucket, folder):
    daemon = side_by_side(bucket, folder).start(env=KEYS)
    try:
        nfs = client(daemon)
        make(nfs, ["first"])
        wait_for(lambda: undrained(daemon) == 0)
        bucket.faults(latency_ms=400)
        begun = time.monotonic()
        make(nfs, [f"quick{n}" for n in range(10)])
        took = time.monotonic() - begun
        # Twenty durable changes, each of which would wait for the bucket for 400 ms.
        assert took < 4, f"20 changes took {took:.1f} s"
        print(f"20 durable changes in {took:.2f} s, with a bucket that takes 0.4 s for each request")
        bucket.faults(latency_ms=0)
        hold(bucket, "log/volume")
        make(nfs, ["held"])
        waits = " ".join(store_status(daemon)["notes"])
        assert "journal of the pool 'tank'" in waits and "not in the bucket yet" in waits, waits
        assert undrained(daemon) > 0
        command = [binary(), "store", "status", bucket.url, "--endpoint", bucket.endpoint]
        told = subprocess.run(command, capture_output=True, text=True, env=env(), timeout=60).stdout
        assert "the bucket has all changes up to" in told, told
        let_go(bucket)
        wait_for(lambda: undrained(daemon) == 0)
        # A pool whose journal answers for a store stays.
        refused = daemon.run("pool", "export", "tank", "--force")
        assert refused.returncode == 1 and "answers from the journal" in refused.stderr, refused.stderr
        quiet(bucket, 8)
        daemon.run("check", "--read-data", check=True)
        assert daemon.stop() == 0
        told = subprocess.run(command, capture_output=True, text=True, env=env(), timeout=60).stdout
        assert "given back" in told and "journal" not in told, told
    finally:
        daemon.end()


def test_what_the_journal_had_reaches_the_bucket_after_a_kill(bucket, folder):
    daemon = side_by_side(bucket, folder).start(env=KEYS)
    made = set()
    try:
        for life in range(4):
            nfs = client(daemon)
            make(nfs, [f"before{life}"])
            wait_for(lambda: undrained(daemon) == 0)
            hold(bucket, "log/volume")
            wanted = {f"life{life}-{n}" for n in range(30)}
            make(nfs, sorted(wanted))
            nfs.remove(nfs.root, f"before{life}")
            made |= wanted
            daemon.kill()
            drop_held(bucket) if life % 2 else let_go(bucket)
            daemon = side_by_side_again(daemon)
            assert names(client(daemon)) == made, f"after kill {life}"
        daemon.run("check", "store/files", "--read-data", check=True)
        assert daemon.stop() == 0
        # All of it is in the bucket: a machine without the pool has it.
        other = bucket.larder(folder / "other")
        try:
            assert names(Nfs3.mount("127.0.0.1", other.nfs_port, "/files")) == made
            other.run("check", "--read-data", check=True)
        finally:
            other.end()
    finally:
        daemon.end()


def side_by_side_again(daemon, *extra):
    return Larder(daemon.disks, daemon.data, extra=[*daemon.extra, *extra]).start(env=KEYS)


def test_another_machine_takes_the_bucket_without_the_journal(bucket, folder):
    daemon = side_by_side(bucket, folder).start(env=KEYS)
    other = None
    try:
        nfs = client(daemon)
        make(nfs, ["early"])
        wait_for(lambda: undrained(daemon) == 0)
        hold(bucket, "log/volume")
        make(nfs, [f"late{n}" for n in range(5)])
        daemon.kill()
        drop_held(bucket)
        takeover = [binary(), "store", "takeover", bucket.url, "--endpoint", bucket.endpoint]
        refused = subprocess.run(takeover, capture_output=True, text=True, env=env(), timeout=60)
        assert refused.returncode == 1 and "--force" in refused.stderr, refused.stderr
        other = Larder([], folder / "other", extra=["--store", bucket.url, "--endpoint", bucket.endpoint, "--force"])
        other.start(env=KEYS)
        assert "may be missing" in other.log(), other.log()
        assert "may be missing" in " ".join(store_status(other)["notes"])
        with Nfs3.mount("127.0.0.1", other.nfs_port, "/files") as theirs:
            assert names(theirs) == {"early"}
            make(theirs, ["theirs"])
        other.run("check", "--read-data", check=True)
        # The first one comes back while the other has the store: what it had is kept, and it says so.
        daemon = side_by_side_again(daemon)
        assert "kept in the pool until this machine has the store" in daemon.log(), daemon.log()
        assert daemon.stop() == 0
        assert other.stop() == 0
        for _ in range(2):
            daemon = side_by_side_again(daemon)
            assert names(client(daemon)) == {"early", "theirs"}
            status = store_status(daemon)
            assert "may have been acknowledged, never reached the bucket" in status["status"] and "larder store forget store" in status["action"], status
            assert daemon.stop() == 0
        daemon = side_by_side_again(daemon)
        daemon.run("store", "forget", "store", check=True)
        assert not store_status(daemon).get("status")
        daemon.run("check", "--read-data", check=True)
        assert daemon.stop() == 0
    finally:
        daemon.end()
        if other:
            other.end()


def test_the_store_is_not_served_without_its_journal(bucket, folder):
    daemon = side_by_side(bucket, folder).start(env=KEYS)
    try:
        nfs = client(daemon)
        make(nfs, ["early"])
        wait_for(lambda: undrained(daemon) == 0)
        hold(bucket, "log/volume")
        make(nfs, ["late"])
        daemon.kill()
        drop_held(bucket)
        config = daemon.data / "larder.toml"
        text = config.read_text()
        config.write_text(text.replace('durability = "journal"\n', ""))
        daemon = side_by_side_again(daemon)
        faults = daemon.log()
        assert "changes after" in faults and "may be missing" in faults and "'tank'" in faults, faults
        assert daemon.stop() == 0
        config.write_text(text)
        daemon = side_by_side_again(daemon)
        assert names(client(daemon)) == {"early", "late"}
        daemon.kill()
        # The disks are gone for good, and somebody says so.
        config.write_text(text.replace('durability = "journal"\n', ""))
        daemon = side_by_side_again(daemon, "--force")
        assert "may be missing" in " ".join(store_status(daemon)["notes"])
        assert daemon.stop() == 0
    finally:
        daemon.end()
