"""Volumes that larder keeps on another pool or machine by itself.

  P1  `larder replicate` brings a replica up to date: on this larder, over ssh, and at a paired machine; twice is once.
  P2  What is configured follows each snapshot; the snapshot that the next stream goes on from stays; retention at the target is the target's.
  P3  A machine that was not paired, or was paired for another replica, gets nothing done. A code is good once.
  P4  The line is cut ten times and both sides are killed: the replica is the volume, file by file, and nothing is sent twice that came whole.
  P5  What is in the way is said, in the answer and in the status.
  P6  What opens an encrypted volume opens its replica: a change goes there also when nothing else has changed, whoever is killed meanwhile.
"""

import json
import os
import socket
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from conftest import make
from larderd import binary
from others import Sshd
from test_encryption import PASSPHRASE, typed
from test_replica import mounted, snap, snapshots
from test_snapshots import contents
from trees import fill
from waiting import wait_for

pytestmark = pytest.mark.usefixtures("small_machine")


@pytest.fixture
def pair(folder):
    """A daemon with a volume, and another that listens to other machines."""
    near = make(folder / "near", extra=["--squash", "none"]).start()
    far = make(folder / "far", extra=["--squash", "none", "--replication", "127.0.0.1:0"]).start()
    near.mounts, far.mounts = [], []
    yield near, far
    for daemon in (near, far):
        for at in daemon.mounts:
            daemon.run("umount", str(at))
        if daemon.alive():
            assert daemon.stop() == 0
            assert "panicked" not in daemon.log(), daemon.log()[-4000:]


def replicate(daemon, *words, check=True):
    done = daemon.run("--json", "replicate", *words)
    assert not check or done.returncode == 0, done.stderr
    return done


def status(daemon):
    return json.loads(replicate(daemon, "status").stdout)["replications"]


def holds(daemon, volume):
    listed = json.loads(daemon.run("--json", "snap", "list", volume, check=True).stdout)[0]["snapshots"]
    return [s["name"] for s in listed if s.get("holds")]


def up_to_date(daemon, newest):
    wait_for(
        lambda: [(one.get("newest"), one.get("behind")) for one in status(daemon)] == [(newest, 0)],
        told=lambda: str(status(daemon)),
    )


def test_a_replica_on_the_same_larder_follows_each_snapshot(pair):
    """P1, P2, P5"""
    near, _ = pair
    top = mounted(near, "files", "mnt")
    fill(top / "tree", big_bytes=2_000_000)
    # Once: a snapshot is taken where anything has changed since the newest.
    (one,) = json.loads(replicate(near, "files", "tank/copy").stdout)["replications"]
    assert one["behind"] == 0 and one["newest"].startswith("auto-")
    assert snapshots(near, "files") == snapshots(near, "copy") == [one["newest"]]
    replicate(near, "files", "tank/copy")
    assert len(snapshots(near, "copy")) == 1, "nothing has changed"
    assert holds(near, "files") == []
    # For good.
    replicate(near, "add", "files", "tank/copy", "--limit", "100MiB")
    assert 'to = "tank/copy"' in (near.data / "larder.toml").read_text()
    (top / "note").write_text("one")
    snap(near, "files", "a")
    up_to_date(near, "a")
    assert holds(near, "files") == ["a"], "the next stream goes on from it"
    refused = near.run("snap", "destroy", "files@a")
    assert refused.returncode != 0 and "held" in refused.stderr
    (top / "note").write_text("two")
    snap(near, "files", "b")
    up_to_date(near, "b")
    assert holds(near, "files") == ["b"] and snapshots(near, "copy")[1:] == ["a", "b"]
    near.run("snap", "destroy", "files@a", check=True)
    # To look into it, it is cloned, and goes on receiving.
    near.run("snap", "clone", "copy@a", "look", check=True)
    look = mounted(near, "look", "look")
    assert (look / "note").read_text() == "one"
    refused = near.run("snap", "destroy", "copy@a")
    assert refused.returncode != 0 and "clones" in refused.stderr
    # What must not go there is held there, whatever becomes of it here.
    near.run("snap", "hold", "copy@b", "taxes", "--until", "2d", check=True)
    refused = near.run("snap", "release", "copy@b", "taxes")
    assert refused.returncode != 0 and "sooner" in refused.stderr
    refused = near.run("snap", "destroy", "copy@b")
    assert refused.returncode != 0 and "held" in refused.stderr
    refused = near.run("volume", "destroy", "copy", "--yes", "--force")
    assert refused.returncode != 0 and ("held" in refused.stderr or "clones" in refused.stderr)
    assert holds(near, "copy") == ["b"]
    (top / "note").write_text("three")
    snap(near, "files", "c")
    up_to_date(near, "c")
    # The daemon goes on by itself after a start.
    for at in near.mounts:
        near.run("umount", str(at), check=True)
    near.mounts.clear()
    near.stop()
    near.start()
    up_to_date(near, "c")
    # What is in the way: a snapshot of the replica that the volume never had is none, but another history is.
    near.run("volume", "create", "other", "--no-share", check=True)
    snap(near, "other", "x")
    refused = replicate(near, "other", "tank/copy", "--no-snapshot", check=False)
    assert refused.returncode != 0 and "no snapshot in common" in refused.stderr
    refused = replicate(near, "files", "tank/other", check=False)
    assert "not a replica" in refused.stderr
    refused = replicate(near, "files", "elsewhere/copy", check=False)
    assert "no pool 'elsewhere'" in refused.stderr
    assert "VOLUME" in near.run("replicate", "status", check=True).stdout
    replicate(near, "remove", "files", "tank/copy")
    assert holds(near, "files") == [] and status(near) == []
    near.run("volume", "promote", "copy", check=True)
    copy = mounted(near, "copy", "copy")
    assert (copy / "note").read_text() == "three" and (copy / ".snapshots" / "a" / "note").read_text() == "one"


def accepted(far, replica, *words):
    answer = json.loads(replicate(far, "accept", replica, *words).stdout)
    return f"larder://{answer['addr']}/{replica}", answer["code"]


def test_paired_machines(pair, folder):
    """P1, P2, P3"""
    near, far = pair
    top = mounted(near, "files", "mnt")
    fill(top / "tree", big_bytes=2_000_000)
    place, code = accepted(far, "tank/copy", "--keep", "hourly=2")
    # Nobody is let in without a code, with a wrong one, or twice with the same.
    refused = replicate(near, "files", place, check=False)
    assert refused.returncode != 0 and "not known" in refused.stderr and "accept" in refused.stderr
    wrong = code[:-1] + ("0" if code[-1] != "0" else "1")
    refused = replicate(near, "add", "files", place, "--code", wrong, check=False)
    assert "not good any more" in refused.stderr
    other = "0" * 32 + code[32:]
    refused = replicate(near, "add", "files", place, "--code", other, check=False)
    assert "another machine" in refused.stderr
    replicate(near, "add", "files", place, "--code", code)
    refused = replicate(near, "add", "files", place, "--code", code, check=False)
    assert "not good any more" in refused.stderr
    # The key is nobody else's.
    assert stat.S_IMODE((near.data / "machine.json").stat().st_mode) == 0o600
    snap(near, "files", "a")
    up_to_date(near, "a")
    # Paired for one replica is paired for one.
    elsewhere = place.replace("tank/copy", "tank/other")
    text = (near.data / "larder.toml").read_text()
    (near.data / "larder.toml").write_text(text.replace(place.split("://")[1], elsewhere.split("://")[1]))
    near.run("reload", check=True)
    wait_for(lambda: "may not send" in (status(near)[0].get("fault") or ""), told=lambda: str(status(near)))
    assert "tried again at" in near.run("replicate", "status", check=True).stdout
    assert 'larder_replication_failing{volume="tank/files"' in near.run("metrics", check=True).stdout
    (near.data / "larder.toml").write_text(text)
    near.run("reload", check=True)
    # Retention is the target's, by the target's clock: each stays for a day there, whatever its name says.
    hours = [f"auto-2026-11-25_0{hour}-00Z" for hour in (1, 2, 3)]
    for hour in hours:
        (top / "note").write_text(hour)
        snap(near, "files", hour)
        up_to_date(near, hour)
    assert snapshots(far, "copy")[-4:] == ["a", *hours]
    want = contents(top)
    far.stop()
    far.extra[-1] = place.split("://")[1].split("/")[0]
    far.start()
    (top / "note").write_text("after its start")
    want = contents(top)
    snap(near, "files", "b")
    up_to_date(near, "b")
    far.run("volume", "promote", "copy", check=True)
    assert contents(mounted(far, "copy", "copy")) == want
    snap(near, "files", "c")
    wait_for(lambda: "not a replica" in (status(near)[0].get("fault") or ""), told=lambda: str(status(near)))


def test_garbage_at_the_door_for_machines(pair):
    """P3"""
    _, far = pair
    _, port = accepted(far, "tank/copy")[0].split("://")[1].split("/")[0].split(":")
    for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(5000), b"\x16\x03\x01\xff\xff" + b"x" * 70000):
        with socket.create_connection(("127.0.0.1", int(port)), timeout=20) as there:
            try:
                there.sendall(garbage)
                there.shutdown(socket.SHUT_WR)
                while there.recv(4096):
                    pass
            except OSError:
                pass
    # More than may be connected at once, and none says anything.
    silent = [socket.create_connection(("127.0.0.1", int(port)), timeout=20) for _ in range(60)]
    far.run("pool", "status", check=True)
    for there in silent:
        there.close()
    # Whoever speaks TLS without a certificate is nobody.
    done = subprocess.run(
        ["curl", "-sk", "--max-time", "20", f"https://127.0.0.1:{port}/v1/receive/tank/copy"], capture_output=True, check=False
    )
    assert done.returncode != 0 and done.stdout == b""


class Line:
    """A line to a port. Each connection is cut after `most` bytes towards the port."""

    def __init__(self, port):
        self.to, self.most, self.carried, self.cuts = port, None, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                near.close()
                continue
            threading.Thread(target=self.carry, args=(near, far, self.most), daemon=True).start()
            threading.Thread(target=self.carry, args=(far, near, None), daemon=True).start()

    def carry(self, source, target, most):
        carried = 0
        try:
            while data := source.recv(65536):
                carried += len(data)
                if most is not None and carried > most:
                    self.cuts += 1
                    source.shutdown(socket.SHUT_RDWR)
                    break
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR if most is not None and carried > most else socket.SHUT_WR)
        except OSError:
            pass
        self.carried += carried if most is not None else 0


@pytest.mark.long
def test_a_cut_line_and_killed_daemons(pair):
    """P4"""
    near, far = pair
    top = mounted(near, "files", "mnt")
    # More than comes through all the cuts, also where an attempt ends by itself on a busy machine.
    for number in range(8):
        (top / f"f{number}").write_bytes(os.urandom(70_000_000))
        os.sync()
    place, code = accepted(far, "tank/copy")
    port = int(place.split("://")[1].split("/")[0].split(":")[1])
    line = Line(port)
    place = f"larder://127.0.0.1:{line.port}/tank/copy"
    replicate(near, "add", "files", place, "--code", code)
    # Anywhere: before the first request, in it, in the middle of an object. Four times an object or more come whole.
    anywhere = [0, 700, 5_000, 100_000, 3_000_000, 40_000_000, *[90_000_000] * 4]
    line.most = anywhere[0]
    snap(near, "files", "a")
    while line.cuts < 10:
        before = line.cuts
        line.most = anywhere[before]
        cut = replicate(near, "files", place, "--no-snapshot", check=False)
        assert cut.returncode != 0, "the line was cut"
        # The daemon has begun by itself, and this is the end of that.
        wait_for(lambda: line.cuts > before)
        wait_for(lambda: not any(one.get("sending") for one in status(near)))
        if before == 3:
            far.kill()
            far.extra[-1] = f"127.0.0.1:{port}"
            far.start()
    assert snapshots(far, "copy") == []
    # In the middle of the rest the sender is killed.
    with open(top / "more", "wb") as more:
        more.write(os.urandom(500_000))
        more.flush()
        os.fsync(more.fileno())
    sender = subprocess.Popen([binary(), "--data", str(near.data), "replicate", "files", place], stderr=subprocess.PIPE)
    wait_for(lambda: sender.poll() is not None or any(one.get("sending") for one in status(near)))
    near.kill()
    sender.communicate(timeout=60)
    subprocess.run(["umount", "-l", str(top)], check=False)
    near.mounts.clear()
    line.most = 1 << 40
    line.carried = 0
    near.start()
    top = mounted(near, "files", "again")
    # The receiver may not have noticed yet that the sender it knew is gone.
    wait_for(lambda: replicate(near, "files", place, check=False).returncode == 0, told=lambda: str(status(near)))
    assert snapshots(far, "copy") == snapshots(near, "files")
    wait_for(lambda: line.carried > 0)
    assert line.carried < 230_000_000, "what came whole is not sent again"
    far.run("check", check=True)
    want = contents(top)
    far.run("volume", "promote", "copy", check=True)
    assert contents(mounted(far, "copy", "copy")) == want


def labels(daemon, volume):
    listed = json.loads(daemon.run("--json", "volume", "key", "list", volume, check=True).stdout)
    return sorted(slot["name"] for slot in listed["slots"])


def opens(daemon, volume, phrase):
    daemon.run("volume", "lock", volume)
    return typed(daemon, "volume", "unlock", volume, lines=[phrase], check=False).returncode == 0


@pytest.mark.long
def test_a_changed_passphrase_reaches_a_replica(pair):
    """P6"""
    near, far = pair
    second, third, there = "another good phrase", "a third good phrase", "a phrase of the far side"
    typed(near, "volume", "create", "secret", "--encrypt", "--no-recovery-key", "--no-share")
    top = mounted(near, "secret", "mnt")
    fill(top / "tree", big_bytes=1_000_000)
    snap(near, "secret", "a")
    place, code = accepted(far, "tank/copy")
    far.extra[-1] = f"127.0.0.1:{place.split('://')[1].split('/')[0].split(':')[1]}"
    replicate(near, "add", "secret", place, "--code", code)
    up_to_date(near, "a")
    # The replica has a way of its own, and is open by the one that goes.
    typed(far, "volume", "key", "add", "copy", "--label", "there", lines=[PASSPHRASE, there])
    typed(far, "volume", "unlock", "copy")
    typed(near, "volume", "key", "add", "secret", "--label", "second", lines=[PASSPHRASE, second])
    typed(near, "volume", "key", "remove", "secret", "first", lines=[second])
    wait_for(lambda: labels(far, "copy") == ["second", "there"], told=lambda: f"{labels(far, 'copy')} {status(near)}")
    assert snapshots(far, "copy") == ["a"], "nothing else has changed"
    assert "removed since" in far.run("volume", "key", "list", "copy", check=True).stdout
    wait_for(lambda: not any(one.get("fault") for one in status(near)), told=lambda: str(status(near)))
    assert [opens(far, "copy", phrase) for phrase in (PASSPHRASE, second)] == [False, True]
    assert "removed since" not in far.run("volume", "key", "list", "copy", check=True).stdout
    far.run("volume", "lock", "copy", check=True)
    own = typed(far, "volume", "unlock", "copy", lines=[there])
    assert "its volume does not" in own.stdout, own
    # With a snapshot as well, and the receiver is killed at some moment of each change.
    was = second
    for round_, phrase in enumerate([third, second, third]):
        typed(near, "volume", "key", "add", "secret", "--label", f"round-{round_}", lines=[was, phrase])
        typed(near, "volume", "key", "remove", "secret", "second" if round_ == 0 else f"round-{round_ - 1}", lines=[phrase])
        if round_ == 1:
            (top / "more").write_bytes(os.urandom(100_000))
            snap(near, "secret", "b")
        far.kill()
        far.start()
        assert opens(far, "copy", was) or opens(far, "copy", phrase), "nobody is locked out"
        assert opens(far, "copy", there)
        want = sorted([f"round-{round_}", "there"])
        wait_for(lambda: replicate(near, "secret", "--no-snapshot", check=False).returncode == 0, told=lambda: str(status(near)))
        assert labels(far, "copy") == want  # noqa: B023
        was = phrase
    assert [opens(far, "copy", phrase) for phrase in (PASSPHRASE, second, third)] == [False, False, True]
    want = contents(top)
    far.run("volume", "promote", "copy", check=True)
    assert contents(mounted(far, "copy", "copy")) == want
    # It is a volume now, and these are its ways.
    typed(far, "volume", "key", "add", "copy", "--label", "last", lines=[there, "a fourth good phrase"])
    assert labels(far, "copy") == sorted(["last", "round-2", "there"])


@pytest.fixture
def cable():
    """A wire to a namespace: its name, the device at this end, and the address at the other."""
    box, device = f"larder-far-{os.getpid()}", f"lf{os.getpid() % 1_000_000}"
    ip = lambda *words: subprocess.run(["ip", *words], check=True)
    ip("netns", "add", box)
    try:
        ip("link", "add", device, "type", "veth", "peer", "name", "lan", "netns", box)
        ip("addr", "add", "10.213.8.1/24", "dev", device)
        ip("link", "set", device, "up")
        ip("-n", box, "addr", "add", "10.213.8.2/24", "dev", "lan")
        for name in ("lan", "lo"):
            ip("-n", box, "link", "set", name, "up")
        yield box, device, "10.213.8.2"
    finally:
        subprocess.run(["ip", "netns", "del", box], check=False)
        subprocess.run(["ip", "link", "del", device], check=False, stderr=subprocess.DEVNULL)


@pytest.mark.long
def test_a_cable_that_is_out_is_mentioned(folder, cable):
    """P5"""
    box, device, address = cable
    near = make(folder / "near", extra=["--squash", "none"]).start()
    far = make(folder / "far", extra=["--squash", "none", "--replication", f"{address}:12077"])
    words = far.command()
    far.command = lambda: ["ip", "netns", "exec", box, *words]
    far.start()
    near.mounts = []
    try:
        top = mounted(near, "files", "mnt")
        (top / "big").write_bytes(os.urandom(150_000_000))
        os.sync()
        _, code = accepted(far, "tank/copy")
        place = f"larder://{address}/tank/copy"
        replicate(near, "add", "files", place, "--code", code, "--limit", "8MiB")
        snap(near, "files", "a")
        wait_for(lambda: any(one["sent_bytes"] > 20_000_000 for one in status(near)), told=lambda: str(status(near)))
        assert "nothing has moved" not in near.run("replicate", "status", check=True).stdout
        subprocess.run(["ip", "link", "set", device, "down"], check=True)
        wait_for(lambda: any(one.get("silent_ms", 0) >= 15_000 for one in status(near)), 60, told=lambda: str(status(near)))
        said = near.run("replicate", "status", check=True).stdout
        assert "sending a:" in said and "nothing has moved for" in said and "is the other side there?" in said, said
        subprocess.run(["ip", "link", "set", device, "up"], check=True)
        wait_for(lambda: [one.get("behind") for one in status(near)] == [0], 120, told=lambda: str(status(near)))
        assert "nothing has moved" not in near.run("replicate", "status", check=True).stdout
    finally:
        for at in near.mounts:
            near.run("umount", str(at))
        near.stop()
        far.stop()


def test_over_ssh(pair, folder, monkeypatch):
    """P1, P5"""
    near, far = pair
    programs = folder / "bin"
    programs.mkdir()
    (programs / "larder").symlink_to(binary())
    Sshd.environment = {"PATH": f"{programs}:/usr/bin:/bin", "LARDER_DATA": str(far.data)}
    try:
        sshd = Sshd(folder / "sshd", folder / "files")
        sshd.__enter__()
    finally:
        Sshd.environment = {}
    try:
        # A user has the key and the host in ~/.ssh; the test has them in a file of its own.
        (folder / "ssh.conf").write_text(
            f"IdentityFile {sshd.key}\nStrictHostKeyChecking accept-new\nUserKnownHostsFile {folder}/known\n"
        )
        ssh = programs / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/ssh.conf "$@"\n')
        ssh.chmod(0o755)
        near.stop()
        near.start(env={"PATH": f"{programs}:{os.environ['PATH']}"})
        top = mounted(near, "files", "mnt")
        fill(top / "tree", big_bytes=3_000_000)
        place = f"ssh://root@127.0.0.1:{sshd.port}/tank/copy"
        replicate(near, "add", "files", place)
        snap(near, "files", "a")
        up_to_date(near, "a")
        (top / "note").write_text("two")
        snap(near, "files", "b")
        up_to_date(near, "b")
        want = contents(top)
        # Another host, no host, no larder: the answer says what ssh said.
        refused = replicate(near, "files", f"ssh://root@127.0.0.1:{sshd.port + 1}/tank/copy", check=False)
        assert "refused" in refused.stderr, refused.stderr
        (programs / "larder").unlink()
        refused = replicate(near, "files", place, check=False)
        assert "not found" in refused.stderr, refused.stderr
        far.run("volume", "promote", "copy", check=True)
        assert contents(mounted(far, "copy", "copy")) == want
    finally:
        sshd.__exit__(None, None, None)
