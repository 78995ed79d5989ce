"""Ten shares are in use at every door, with open files, locks and transfers, while an eleventh one is changed: nobody of the ten notices."""

import base64
import json
import os
import socket
import subprocess
import threading
import time

import pytest

from conftest import make
from nfs4 import BOTH, READ, READ_LOCK, UNCHECKED, WRITE_LOCK, Nfs4, refused
from test_api import ask
from test_sharing import LOCK_NOT_GRANTED, Smb

# How often the eleventh one is changed (the full campaign: 1000).
CHANGES = int(os.environ.get("LARDER_SHARE_CHANGES", "100"))
SHARES = [f"used{n}" for n in range(10)]
# What one change after the other says; each kind of change comes again and again.
CHANGED = [
    {"read_only": True}, {"read_only": False}, {"smb": False}, {"smb": True}, {"nfs": False}, {"nfs": True},
    {"sftp": False}, {"sftp": True}, {"webdav": False}, {"webdav": True}, {"users": {"listed": ["keeper"]}}, {"users": "all"},
    {"guard": "alert"}, {"guard": "off"}, {"recycle_days": 3}, {"recycle_days": 0}, {"snapshots_shown": True}, {"snapshots_shown": False},
    {"audit": "all"}, {"audit": "off"}, {"folder": "elsewhere"}, {"folder": "eleventh"}, None, {"networks": ["127.0.0.0/8"]},
]
STEP = b"0123456789abcdef" * 256


@pytest.fixture
def busy(folder):
    doors = ["--sftp", "127.0.0.1:0", "--webdav", "127.0.0.1:0"]
    daemon = make(folder, layout="mirror", count=2, extra=doors).start()
    for name in [*SHARES, "eleventh"]:
        add(daemon, name)
    asked(daemon, "POST", "/v1/shares", {"name": "beside", "folder": "elsewhere", "change": {}})
    yield daemon
    daemon.end()


def asked(daemon, method, path, what=None):
    status, _, text = ask(daemon, method, path, None if what is None else json.dumps(what))
    assert status == 200, (method, path, what, text)
    return json.loads(text)


def add(daemon, name):
    return asked(daemon, "POST", "/v1/shares", {"name": name, "folder": name, "change": {"sftp": True, "webdav": True}})


def change(daemon, number):
    what = CHANGED[number % len(CHANGED)]
    if what is None:
        asked(daemon, "DELETE", "/v1/shares/eleventh")
        add(daemon, "eleventh")
    else:
        asked(daemon, "PATCH", "/v1/shares/eleventh", what)


class OfNfs:
    """A session of NFS 4.1 with a file that is open, locked and written again and again."""

    def __init__(self, daemon, share):
        self.daemon, self.path, self.steps = daemon, [share, "nfs"], 0
        self.client = Nfs4("127.0.0.1", daemon.nfs_port, owner=share.encode()).session()
        self.file = self.client.open(self.path, access=BOTH, create=UNCHECKED, mode=0o666)
        self.locked = self.client.lock(self.file, WRITE_LOCK, 0, 100)

    def step(self):
        self.client.write(self.file, self.steps * len(STEP), STEP, stateid=self.locked)
        self.steps += 1

    def end(self):
        stranger = Nfs4("127.0.0.1", self.daemon.nfs_port).session()
        theirs = stranger.open(self.path, access=READ)
        with refused("DENIED"):
            stranger.test_lock(theirs.handle, READ_LOCK)
        stranger.close_file(theirs)
        self.client.close_file(self.file)


class OfSmb:
    """A connection of SMB with a file that is open, locked and written again and again."""

    def __init__(self, daemon, share):
        self.daemon, self.share, self.steps = daemon, share, 0
        self.client = Smb(daemon, share, "smb")
        assert self.client.lock(0, 1 << 30) == 0

    def step(self):
        written = self.client.low.write(self.client.tree, self.client.file, STEP, self.steps * len(STEP), len(STEP))
        assert written == len(STEP)
        self.steps += 1

    def end(self):
        with Smb(self.daemon, self.share, "smb") as stranger:
            assert stranger.lock(0, 1) == LOCK_NOT_GRANTED, "its lock is held"
        assert self.client.unlock(0, 1 << 30) == 0
        self.client.close()
        self.client.connection.close()


class OfWebdav:
    """One PUT that goes on until the end."""

    def __init__(self, daemon, share):
        self.steps = 0
        self.socket = socket.create_connection(("127.0.0.1", daemon.info["webdav"]["port"]))
        word = base64.b64encode(f"{daemon.user}:{daemon.password}".encode()).decode()
        head = f"PUT /{share}/webdav HTTP/1.1\r\nHost: larder\r\nAuthorization: Basic {word}\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.socket.sendall(head.encode())

    def step(self):
        self.socket.sendall(b"%x\r\n" % len(STEP) + STEP + b"\r\n")
        self.steps += 1

    def end(self):
        self.socket.sendall(b"0\r\n\r\n")
        self.socket.settimeout(60)
        answer = self.socket.recv(65536)
        assert answer.startswith(b"HTTP/1.1 201"), answer
        self.socket.close()


class OfSftp:
    """One session of sftp(1) that sends a file again and again."""

    def __init__(self, daemon, share):
        self.share, self.steps, self.source = share, 0, daemon.data / "step"
        self.source.write_bytes(STEP)
        askpass = daemon.data / "askpass"
        askpass.write_text(f"#!/bin/sh\necho '{daemon.password}'\n")
        askpass.chmod(0o700)
        options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "PubkeyAuthentication=no", "BatchMode=no", "LogLevel=ERROR"]
        words = ["sftp", "-q", *(word for option in options for word in ("-o", option)), "-P", str(daemon.info["sftp"]["port"])]
        env = {**os.environ, "SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force"}
        self.client = subprocess.Popen([*words, f"{daemon.user}@127.0.0.1"], env=env, text=True, bufsize=1,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.step()

    def step(self):
        self.client.stdin.write(f"put {self.source} /{self.share}/sftp{self.steps}\npwd\n")
        said = []
        for line in self.client.stdout:
            if "Remote working directory" in line:
                break
            said.append(line)
        assert said and not any("closed" in line or "ouldn't" in line or "ailed" in line for line in said), said
        self.steps += 1

    def end(self):
        self.client.stdin.close()
        assert self.client.wait(60) == 0, self.client.stdout.read()


DOORS = [OfNfs, OfSmb, OfWebdav, OfSftp]


def test_nobody_of_ten_shares_notices_changes_of_another_one(busy):
    users = [DOORS[n % len(DOORS)](busy, share) for n, share in enumerate(SHARES)]
    over, faults = threading.Event(), []

    def use(one):
        try:
            while not over.is_set():
                one.step()
                time.sleep(0.01)
        except Exception as error:  # Told by the test.
            faults.append(f"{type(one).__name__} after {one.steps} steps: {error!r}")

    threads = [threading.Thread(target=use, args=[one]) for one in users]
    for thread in threads:
        thread.start()
    for number in range(CHANGES):
        change(busy, number)
        assert not faults, (number, CHANGED[number % len(CHANGED)], faults)
    over.set()
    for thread in threads:
        thread.join(60)
    assert not faults
    for one in users:
        one.end()
    assert all(one.steps > CHANGES // 20 for one in users), [one.steps for one in users]
    shares = asked(busy, "GET", "/v1/shares")
    assert not [share for share in shares if share.get("fault")], shares
    with_nfs = Nfs4("127.0.0.1", busy.nfs_port).session()
    for one, share in zip(users, SHARES):
        written = one.steps * len(STEP)
        name = {OfNfs: "nfs", OfSmb: "smb", OfWebdav: "webdav"}.get(type(one))
        if name is None:
            written, name = len(STEP), f"sftp{one.steps - 1}"
        file = with_nfs.open([share, name], access=READ)
        assert with_nfs.read(file, written - len(STEP), 2 * len(STEP)).data == STEP, (share, name)
        with_nfs.close_file(file)
    assert "panicked" not in busy.log()
