"""Snapshots sent from one larder to another, kept there as a replica, and promoted.

  R1  What `larder send` sends and `larder receive` of another daemon takes is the volume of then, byte for byte, once it is promoted.
  R2  An encrypted volume is replicated sealed: the receiver has no key, scrubs what it has, heals it, and reads nothing; a key opens the copy.
  R3  A stream that is cut, or a daemon that is killed, changes nothing; what has come is not sent again.
  R4  What does not fit is refused, and the answer says what would.
"""

import json
import os
import subprocess

import pytest

from conftest import make
from larderd import binary
from test_encryption import PASSPHRASE, typed, volumes
from test_snapshots import contents
from trees import fill
from waiting import remove_folder, wait_for

pytestmark = pytest.mark.usefixtures("small_machine")


@pytest.fixture
def pair(folder):
    """A daemon with a mounted volume, and another one that has none of it."""
    near = make(folder / "near", extra=["--squash", "none"]).start()
    far = make(folder / "far", extra=["--squash", "none"]).start()
    near.mounts, far.mounts = [], []
    yield near, far
    for daemon in (near, far):
        for at in daemon.mounts:
            daemon.run("umount", str(at))
        if daemon.alive():
            daemon.stop()


def mounted(daemon, volume, name):
    at = daemon.data.parent / name
    at.mkdir()
    daemon.run("mount", str(at), "--volume", volume, check=True)
    daemon.mounts.append(at)
    return at


def called(daemon, *arguments, data=None, check=True):
    """A command whose streams are bytes."""
    command = [binary(), "--data", str(daemon.data), *arguments]
    done = subprocess.run(command, input=data, capture_output=True, timeout=300)
    assert not check or done.returncode == 0, done.stderr.decode()
    return done


def sent(daemon, *arguments):
    return called(daemon, "send", *arguments).stdout


def snap(daemon, volume, name):
    daemon.run("snap", "create", f"{volume}@{name}", check=True)


def snapshots(daemon, volume):
    return [s["name"] for s in json.loads(daemon.run("--json", "snap", "list", volume, check=True).stdout)[0]["snapshots"]]


def test_a_replica_is_the_volume_of_then(pair):
    """R1, R4"""
    near, far = pair
    top = mounted(near, "files", "mnt")
    fill(top / "tree", big_bytes=5_000_000)
    (top / "note").write_text("one")
    # What is dirty then, a snapshot stores for itself alone.
    wait_for(lambda: volumes(near)["files"]["stored_bytes"] > 5_000_000)
    snap(near, "files", "a")
    one = contents(top)
    first = sent(near, "files@a")
    called(far, "receive", "copy", data=first)
    (top / "note").write_text("two")
    os.rename(top / "tree", top / "moved")
    snap(near, "files", "b")
    two = contents(top)
    (top / "note").unlink()
    second = sent(near, "files@b", "--from", "a")
    assert len(second) < 300_000 < len(first), "what did not change is not sent"
    # R4: the order counts, and each refusal says what would do.
    refused = called(far, "receive", "files", data=first, check=False)
    assert refused.returncode != 0 and b"not a replica" in refused.stderr
    refused = called(far, "receive", "copy", data=first, check=False)
    assert b"already" in refused.stderr
    refused = called(far, "receive", "other", data=second, check=False)
    assert b"whole, without --from" in refused.stderr
    called(far, "receive", "copy", data=second)
    assert snapshots(far, "copy") == ["a", "b"]
    listed = volumes(far)
    assert listed["copy"]["replica"] and not listed["files"]["replica"]
    assert "replica" in far.run("volume", "list", check=True).stdout
    refused = far.run("mount", str(far.data), "--volume", "copy")
    assert refused.returncode != 0 and "promote" in refused.stderr
    assert "a replica" in far.run("check", check=True).stdout
    # After a start it is what it was.
    far.stop()
    far.start()
    far.run("volume", "promote", "copy", check=True)
    copy = mounted(far, "copy", "copy")
    assert contents(copy) == two
    assert contents(copy / ".snapshots" / "a") == one
    (copy / "note").write_text("its own")
    far.run("check", "copy", "--read-data", check=True)
    refused = called(far, "receive", "copy", data=sent(near, "files@b", "--from", "a"), check=False)
    assert b"not a replica" in refused.stderr
    far.run("snap", "rollback", "copy@a", "--yes", "--force", check=True)


def test_an_encrypted_volume_is_replicated_without_its_key(pair):
    """R2"""
    near, far = pair
    typed(near, "volume", "create", "secret", "--encrypt")
    top = mounted(near, "secret", "mnt")
    secret = b"the plaintext that nobody may find " * 3000
    (top / "a folder with a telling name").mkdir()
    (top / "a folder with a telling name" / "letter").write_bytes(secret)
    snap(near, "secret", "a")
    first = sent(near, "secret@a")
    (top / "new").write_bytes(os.urandom(200_000))
    snap(near, "secret", "b")
    want = contents(top)
    second = sent(near, "secret@b", "--from", "a")
    for stream in (first, second):
        assert b"plaintext that nobody" not in stream and b"telling name" not in stream
    called(far, "receive", "copy", data=first)
    called(far, "receive", "copy", data=second)
    # A disk is lost, and the pool heals what it cannot read.
    far.stop()
    remove_folder(far.disks[1])
    far.start()
    spare = far.data.parent / "disk9"
    spare.mkdir()
    far.run("pool", "replace", str(far.disks[1]), str(spare), check=True)
    wait_for(lambda: far.status()["state"] == "ONLINE" and not far.status()["moving"], told=lambda: str(far.status()))
    assert far.status()["status"] is None
    for disk in (far.disks[0], far.disks[2], spare):
        words = ["-e", "plaintext that nobody", "-e", "telling name"]
        found = subprocess.run(["grep", "-r", "-l", "-a", *words, str(disk)], capture_output=True, check=False)
        assert found.returncode == 1, found.stdout
    refused = far.run("volume", "promote", "copy")
    assert refused.returncode != 0 and "locked" in refused.stderr
    typed(far, "volume", "unlock", "copy", lines=[PASSPHRASE])
    far.run("volume", "promote", "copy", check=True)
    copy = mounted(far, "copy", "copy")
    assert contents(copy) == want
    assert (copy / ".snapshots" / "a" / "a folder with a telling name" / "letter").read_bytes() == secret


def test_a_stream_that_is_cut_is_resumed(pair):
    """R3"""
    near, far = pair
    top = mounted(near, "files", "mnt")
    for number in range(6):
        (top / f"f{number}").write_bytes(os.urandom(30_000_000))
        os.sync()
    snap(near, "files", "a")
    whole = sent(near, "files@a")
    cut = called(far, "receive", "copy", data=whole[: len(whole) * 2 // 3], check=False)
    assert cut.returncode != 0 and b"ends in the middle" in cut.stderr
    # Killed in the middle of another attempt.
    command = [binary(), "--data", str(far.data), "receive", "copy"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(whole[: len(whole) // 2])
    process.stdin.flush()
    far.kill()
    process.stdin.close()
    assert process.wait(timeout=60) != 0
    far.start()
    assert snapshots(far, "copy") == []
    token = called(far, "receive", "copy", "--token").stdout.decode().strip()
    refused = called(near, "send", "files@a", "--resume", token[:-2], check=False)
    assert b"token" in refused.stderr
    rest = sent(near, "files@a", "--resume", token)
    assert len(rest) < len(whole) * 2 // 3
    called(far, "receive", "copy", data=rest)
    far.run("volume", "promote", "copy", check=True)
    copy = mounted(far, "copy", "copy")
    assert contents(copy) == contents(top)


def test_what_opens_a_volume_goes_with_its_snapshots(pair):
    """R2, R4: by hand, also without a snapshot. An older stream that comes late brings nothing back."""
    near, far = pair
    typed(near, "volume", "create", "secret", "--encrypt", "--no-recovery-key")
    top = mounted(near, "secret", "mnt")
    snap(near, "secret", "a")
    called(far, "receive", "copy", data=sent(near, "secret@a"))
    (top / "new").write_bytes(os.urandom(200_000))
    snap(near, "secret", "b")
    before = sent(near, "secret@a", "--keys-only")
    typed(near, "volume", "key", "add", "secret", "--label", "second", lines=[PASSPHRASE, "another good phrase"])
    typed(near, "volume", "key", "remove", "secret", "first", lines=["another good phrase"])
    alone = sent(near, "secret@a", "--keys-only")
    assert len(alone) < 10_000
    cut = called(far, "receive", "copy", data=alone[:-20], check=False)
    assert cut.returncode != 0
    assert typed(far, "volume", "unlock", "copy").returncode == 0, "it is as it was"
    called(far, "receive", "copy", data=alone)
    called(far, "receive", "copy", data=before)
    far.run("volume", "lock", "copy", check=True)
    assert typed(far, "volume", "unlock", "copy", check=False).returncode != 0
    typed(far, "volume", "unlock", "copy", lines=["another good phrase"])
    typed(near, "volume", "key", "add", "secret", "--label", "third", lines=["another good phrase", "a third good phrase"])
    called(far, "receive", "copy", data=sent(near, "secret@b", "--from", "a"))
    far.run("volume", "lock", "copy", check=True)
    typed(far, "volume", "unlock", "copy", lines=["a third good phrase"])
    # Keys of another volume, and keys for a snapshot that is not there.
    typed(near, "volume", "create", "other", "--encrypt", "--no-recovery-key")
    snap(near, "other", "a")
    refused = called(far, "receive", "copy", data=sent(near, "other@a", "--keys-only"), check=False)
    assert refused.returncode != 0 and b"another volume" in refused.stderr, refused.stderr
    snap(near, "secret", "c")
    refused = called(far, "receive", "copy", data=sent(near, "secret@c", "--keys-only"), check=False)
    assert refused.returncode != 0 and b"send the snapshot first" in refused.stderr, refused.stderr
    assert near.run("send", "files@x", "--keys-only").returncode != 0
    assert "no problems" in far.run("check", "copy", "--read-data").stdout
    want = contents(top)
    far.run("volume", "promote", "copy", check=True)
    assert contents(mounted(far, "copy", "copy")) == want


def test_a_replica_says_what_it_is_and_what_it_takes(pair):
    """R4: its room is shown, settings that do nothing are refused, and a cut stream's advice fits what is there."""
    near, far = pair
    top = mounted(near, "files", "mnt")
    (top / "f").write_bytes(os.urandom(3_000_000))
    snap(near, "files", "a")
    first = sent(near, "files@a")
    cut = called(far, "receive", "copy", data=first[:500], check=False)
    assert cut.returncode != 0 and b"send it again" in cut.stderr and b"--resume" not in cut.stderr, cut.stderr
    cut = called(far, "receive", "copy", data=first[:-100], check=False)
    assert b"send 'a' again" in cut.stderr and b"VOLUME@a --resume" in cut.stderr and b"if it is gone" in cut.stderr, cut.stderr
    token = called(far, "receive", "copy", "--token").stdout.decode().strip()
    snap(near, "files", "b")
    near.run("snap", "destroy", "files@a", check=True)
    gone = called(near, "send", "files@a", "--resume", token, check=False)
    assert gone.returncode != 0 and b"without --resume" in gone.stderr, gone.stderr
    called(far, "receive", "copy", data=sent(near, "files@b"))
    (one,) = json.loads(far.run("--json", "snap", "list", "copy", check=True).stdout)[0]["snapshots"]
    assert 3_000_000 <= one["referenced_bytes"] < 6_000_000, one
    for words in (["--compression", "zstd"], ["--record-size", "1MiB"], ["--quota", "1GiB"]):
        refused = far.run("volume", "set", "copy", *words)
        assert refused.returncode != 0 and "would do nothing" in refused.stderr and "volume promote" in refused.stderr, refused.stderr
    far.run("volume", "promote", "copy", check=True)
    far.run("volume", "set", "copy", "--compression", "zstd", check=True)


def test_a_snapshot_that_is_being_sent_stays(pair):
    """A slow receiver: the snapshot is not destroyed under it, and a sender that goes away frees it."""
    near, _ = pair
    top = mounted(near, "files", "mnt")
    (top / "f").write_bytes(os.urandom(60_000_000))
    snap(near, "files", "a")
    process = subprocess.Popen([binary(), "--data", str(near.data), "send", "files@a"], stdout=subprocess.PIPE)
    assert process.stdout.read(8) == b"LARDSEND"
    refused = near.run("snap", "destroy", "files@a")
    assert refused.returncode != 0 and "sent" in refused.stderr
    process.kill()
    process.wait()
    process.stdout.close()
    wait_for(lambda: near.run("snap", "destroy", "files@a").returncode == 0)


def test_a_chain_of_sealed_replicas_with_secrets_of_their_own(pair):
    """R2: what is changed at a replica stays there, and none of the machines behind the first one needs a key."""
    near, far = pair
    typed(near, "volume", "create", "secret", "--encrypt", "--no-recovery-key")
    top = mounted(near, "secret", "mnt")
    base = []
    for name in ("a", "b", "c"):
        (top / name).write_bytes(os.urandom(300_000))
        (top / "log").write_text(f"until {name}")
        snap(near, "secret", name)
        called(far, "receive", "copy", data=sent(near, f"secret@{name}", *base))
        if name == "a":
            # The passphrase is changed at the replica, between two streams.
            typed(far, "volume", "key", "add", "copy", "--label", "there", lines=[PASSPHRASE, "a phrase of its own"])
            typed(far, "volume", "key", "remove", "copy", "first", lines=["a phrase of its own"])
        base = ["--from", name]
    want = contents(top)
    far.stop()
    far.start()
    assert volumes(far)["copy"]["locked"]
    refused = called(far, "send", "copy@c", check=False)
    assert refused.returncode != 0 and b"--from b" in refused.stderr, refused.stderr
    for name, base in (("a", []), ("b", ["--from", "a"]), ("c", ["--from", "b"])):
        called(near, "receive", "third", data=sent(far, f"copy@{name}", *base))
    for daemon, name in ((far, "copy"), (near, "third")):
        wrong = typed(daemon, "volume", "unlock", name, lines=[PASSPHRASE], check=False)
        assert wrong.returncode != 0, "it was taken away at the first replica"
        typed(daemon, "volume", "unlock", name, lines=["a phrase of its own"])
        daemon.run("volume", "promote", name, check=True)
        assert contents(mounted(daemon, name, name)) == want
        assert "no problems" in daemon.run("check", name, "--read-data").stdout
