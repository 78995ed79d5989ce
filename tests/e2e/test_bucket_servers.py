"""Volumes in buckets of real S3 servers: checked, filled, killed, compared, snapshotted, taken over.

Each server that is built (`make servers`) has these tests, and the server of ours always. The report's header says which are not
built; `make bucket` asks for all of them by LARDER_S3_WANTED, and then one that is missing is a failure.
"""

import json
import os
import signal
import subprocess
import threading
import time

import pytest
import s3servers
from conftest import client, payload
from larderd import Larder, binary
from nfs3 import FILE_SYNC
from test_bucket import Bucket, failover
from trees import describe, fill

# What a server lacks. It is refused by these names, and nothing else is tried.
LACKS = {name: ["conditional create", "conditional update"] for name in ("garage", "unconditional")}


class Ours(Bucket):
    """The server in memory under the interface of the others."""

    name = "larder-test-bucket"
    kinds = ("plain",)

    def __init__(self, _folder, *faults):
        super().__init__(*faults)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def make_bucket(self, _name, _kind):
        pass


class Unconditional(Ours):
    """As servers do that ignore what they do not know."""

    name = "unconditional"

    def __init__(self, folder):
        super().__init__(folder, "unconditional=1")


def real(make):
    def start(folder):
        return make(folder / "server", folder / "objects")

    start.kinds, start.name = make.kinds, make.name
    return start


BUILT = [Ours, Unconditional, *(real(make) for make in s3servers.SERVERS if make.is_built())]


def cases(lacking):
    """Pairs of a server and a kind of bucket, of servers that lack something or of those that lack nothing."""
    chosen = [make for make in BUILT if bool(LACKS.get(make.name)) == lacking]
    return [pytest.param((make, kind), id=f"{make.name}-{kind}") for make in chosen for kind in make.kinds]


@pytest.fixture
def server(request, folder):
    make, kind = request.param
    with make(folder) as made:
        made.make_bucket("pantry", kind)
        made.url, made.kind = "s3://pantry/nas", kind
        yield made


def reach(server, *more):
    return ["--store", server.url, "--endpoint", server.endpoint, *more]


def store_check(server):
    command = [binary(), "store", "check", server.url, "--endpoint", server.endpoint, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **server.env}, timeout=120)
    assert done.returncode in (0, 4), done.stderr
    return done.returncode, {probe["name"]: probe for probe in json.loads(done.stdout)["probes"]}


def test_servers_that_are_wanted_are_built():
    wanted = os.environ.get("LARDER_S3_WANTED", "").split()
    missing = [name for name in wanted if name not in [make.name for make in BUILT]]
    assert not missing, f"not in {s3servers.FOLDER}: {' '.join(missing)}; build them with: make servers"


@pytest.mark.parametrize("server", cases(lacking=False), indirect=True)
def test_a_server_has_all_that_is_needed(server):
    code, probes = store_check(server)
    missing = [probe for probe in probes.values() if probe["state"] == "MISSING"]
    assert code == 0 and not missing, missing
    # What is deleted stays, and is paid for: the keeper of the bucket hears of it.
    assert probes["old versions"]["state"] == ("ok" if server.kind == "plain" else "warning"), probes["old versions"]


class Steady(threading.Thread):
    """Durable files by one NFS client that waits as long as its server does. `done` has those that were acknowledged."""

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.nfs = client(daemon, timeout_s=120)
        self.done, self.stopped = {}, threading.Event()

    def run(self):
        n = 0
        while not self.stopped.is_set():
            data = payload(2000, n)
            handle = self.nfs.create(self.nfs.root, f"steady{n}").handle
            self.nfs.write(handle, 0, data, FILE_SYNC)
            self.done[f"steady{n}"] = data
            n += 1


@pytest.mark.parametrize("server", cases(lacking=False), indirect=True)
def test_a_volume_is_filled_killed_and_compared(server, folder):
    mount = folder / "mnt"
    mount.mkdir()
    options = ["--mount", str(mount), "--squash", "none"]
    daemon = Larder([], folder / "data", extra=reach(server, *options)).start(env=server.env)
    try:
        tree = fill(mount)
        for top, _, names in os.walk(mount):
            for name in names:
                path = os.path.join(top, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    with open(path, "rb") as file:
                        os.fsync(file.fileno())
        directory = os.open(mount, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        daemon.run("snap", "create", "store/files@monday", check=True)
        big = payload(12 << 20, 5)
        with client(daemon) as nfs:
            nfs.write_all(nfs.create(nfs.root, "over-nfs").handle, big)
            nfs.commit(nfs.lookup(nfs.root, "over-nfs").handle)
        writer = Steady(daemon)
        writer.start()
        time.sleep(1)
        if isinstance(server, s3servers.S3Server):
            # The server dies and comes back: writers wait and lose nothing.
            server.process.kill()
            server.process.wait()
            time.sleep(2)
            server.start()
            before = len(writer.done)
            end = time.monotonic() + 60
            while len(writer.done) < before + 20 and time.monotonic() < end:
                time.sleep(0.1)
            assert len(writer.done) >= before + 20, "writes go on once the server is back"
        writer.stopped.set()
        writer.join(60)
        assert not writer.is_alive() and writer.done
        daemon.kill()
        subprocess.run(["umount", "-l", str(mount)], check=False)
        daemon = Larder([], folder / "data", extra=reach(server, *options)).start(env=server.env)
        found = describe(mount)
        assert {name: about for name, about in found.items() if name in tree} == tree
        assert (mount / "over-nfs").read_bytes() == big
        for name, data in writer.done.items():
            assert (mount / name).read_bytes() == data, f"{name} was acknowledged"
        assert "monday" in daemon.run("snap", "list", "store/files", check=True).stdout
        daemon.run("check", "--read-data", check=True, timeout_s=300)
        # What is deleted goes, and the volume is whole without it.
        for name in writer.done:
            (mount / name).unlink()
        daemon.run("snap", "destroy", "store/files@monday", check=True)
        daemon.run("check", "--read-data", check=True, timeout_s=300)
        assert daemon.stop() == 0
    finally:
        daemon.end()
        subprocess.run(["umount", "-l", str(mount)], check=False, capture_output=True)


@pytest.mark.parametrize("server", cases(lacking=False), indirect=True)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_standby_takes_over(server, folder, how):
    failover(server, folder, 0 if how == signal.SIGKILL else 1)


@pytest.mark.parametrize("server", cases(lacking=True), indirect=True)
def test_what_a_server_lacks_is_named(server, folder):
    code, probes = store_check(server)
    missing = [name for name, probe in probes.items() if probe["state"] == "MISSING"]
    assert code == 4 and missing == LACKS[server.name], probes
