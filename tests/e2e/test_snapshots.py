"""Snapshots through every door: what they show, that nothing changes in them, and that they survive what disks and programs do.

  P1  `.snapshots/NAME` at the top of every share shows the volume as it was, read-only, through the mount, NFS and SMB.
  P2  A snapshot that was answered is there, whole, after kill -9 and the loss of a disk; also of an encrypted volume.
  P4  A volume goes back to a snapshot whole or not at all, and what was there before is kept.
  P3  What is destroyed gives back the room that it said it would; what is held stays.
"""

import errno
import json
import os
import subprocess
import time

import pytest

import nfs3
from conftest import client, make
from test_encryption import sealed, typed  # noqa: F401
from larderd import binary
from test_smb import smb
from trees import describe, fill


@pytest.fixture
def daemon(folder):
    daemon = make(folder, extra=["--squash", "none"]).start()
    daemon.mount = folder / "mnt"
    daemon.mount.mkdir()
    daemon.run("mount", str(daemon.mount), check=True)
    yield daemon
    daemon.run("umount", str(daemon.mount))
    if daemon.alive():
        daemon.stop()


def snap(daemon, *arguments, check=True):
    done = daemon.run("--json", "snap", *arguments)
    assert not check or done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout else None


def snapshots(daemon, volume="files"):
    return {s["name"]: s for s in snap(daemon, "list", volume)[0]["snapshots"]}


def contents(top):
    """Everything below a folder but the directory of snapshots, without inode numbers and times of reading."""
    return describe(top)


def test_the_doors_show_it(daemon):
    """P1: through the mount, NFS and SMB, while the volume goes on."""
    top = daemon.mount
    fill(top / "tree", big_bytes=2_000_000)
    (top / "note").write_text("before")
    with open(top / "log", "w") as log:
        log.write("unstable")
        log.flush()
        then = contents(top)
        snap(daemon, "create", "files@one")
    (top / "note").write_text("after!")
    os.unlink(top / "log")
    subprocess.run(["rm", "-r", str(top / "tree")], check=True)
    (top / "new").mkdir()
    view = top / ".snapshots" / "one"
    assert os.listdir(top / ".snapshots") == ["one"]
    assert ".snapshots" not in os.listdir(top), "it is not listed"
    assert contents(view) == then
    assert (top / "note").read_text() == "after!"
    assert os.stat(view / "note").st_ino != os.stat(top / "note").st_ino
    for change in (
        lambda: (view / "note").write_text("x"),
        lambda: os.unlink(view / "note"),
        lambda: os.mkdir(view / "d"),
        lambda: os.rename(view / "note", view / "n"),
        lambda: os.chmod(view / "note", 0),
        lambda: os.setxattr(view / "note", "user.a", b""),
        lambda: os.rmdir(view),
        lambda: os.truncate(view / "note", 0),
    ):
        with pytest.raises(OSError) as refused:
            change()
        assert refused.value.errno == errno.EROFS
    # Back from the past, as people do it.
    subprocess.run(["cp", "-a", str(view / "tree"), str(top / "tree")], check=True)
    assert describe(top / "tree") == describe(view / "tree")

    with client(daemon) as nfs:
        where = nfs.lookup(nfs.lookup(nfs.root, b".snapshots").handle, b"one").handle
        handle = nfs.lookup(where, b"note").handle
        assert nfs.read(handle, 0, 100).data == b"before"
        with pytest.raises(nfs3.NfsError) as refused:
            nfs.create(where, b"x")
        assert refused.value.status == nfs3.ROFS
    daemon.run("umount", str(top), check=True)
    daemon.stop()
    daemon.start()
    with client(daemon) as nfs:
        assert nfs.read(handle, 0, 100).data == b"before", "the handle is good after a restart"
    listed = smb(daemon, "cd .snapshots/one; ls; get note -")
    assert "before" in listed and "tree" in listed
    refused = smb(daemon, "cd .snapshots/one; mkdir x", check=False)
    assert "MEDIA_WRITE_PROTECTED" in refused or "ACCESS_DENIED" in refused
    # A removal that is answered as done is done: nothing can be removed there.
    for removal in ("del note", "rmdir tree", "deltree tree"):
        assert "NT_STATUS_" in smb(daemon, f"cd .snapshots/one; {removal}", check=False), removal
    assert "note" in smb(daemon, "cd .snapshots/one; ls")


def test_names_ranges_and_holds(daemon):
    """P3: what commands say and do."""
    top = daemon.mount
    for number in range(5):
        (top / "f").write_bytes(os.urandom(3_000_000))
        os.sync()
        snap(daemon, "create", f"files@s{number}")
    (top / "f").write_bytes(b"")
    os.sync()
    all_of_them = snapshots(daemon)
    assert list(all_of_them) == [f"s{number}" for number in range(5)]
    for snapshot in all_of_them.values():
        assert 2_900_000 < snapshot["used_bytes"] < 3_600_000
        assert snapshot["written_bytes"] >= 2_900_000
    unnamed = snap(daemon, "create", "files")["concerned"][0]
    assert unnamed.startswith("20") and unnamed.endswith("Z")
    again = daemon.run("snap", "create", "files@s0")
    assert again.returncode == 1 and "already" in again.stderr
    bad = daemon.run("snap", "create", "files@a/b")
    assert bad.returncode == 1 and "name" in bad.stderr
    none = daemon.run("snap", "destroy", "files@nope")
    assert none.returncode == 1 and "there is no snapshot" in none.stderr and "snap list" in none.stderr

    would = snap(daemon, "destroy", "files@s1%s3", "--dry-run")
    assert would["concerned"] == ["s1", "s2", "s3"] and would["freed_bytes"] > 8_700_000
    assert len(snapshots(daemon)) == 6
    snap(daemon, "hold", "files@s2", "tax")
    held = daemon.run("snap", "destroy", "files@s2")
    assert held.returncode == 1 and "held" in held.stderr and "release" in held.stderr
    snap(daemon, "release", "files@s2", "tax")
    snap(daemon, "hold", "files@s4", "law", "--until", "1d")
    for attempt in (("release", "files@s4", "law"), ("hold", "files@s4", "law", "--until", "1h"), ("destroy", "files@s4")):
        refused = daemon.run("snap", *attempt)
        assert refused.returncode == 1, attempt
    for destroy in (("volume", "destroy", "files", "--yes", "--force"), ("pool", "destroy", "tank", "--yes", "--force")):
        refused = daemon.run(*destroy)
        assert refused.returncode == 1 and "held" in refused.stderr, destroy
    assert (top / "f").exists()
    used = daemon.status()["used_bytes"]
    snap(daemon, "destroy", "files@s1%s3")
    assert list(snapshots(daemon)) == ["s0", "s4", unnamed]
    deadline = time.monotonic() + 20
    while daemon.status()["used_bytes"] > used - 8_700_000 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert daemon.status()["used_bytes"] <= used - 8_700_000
    snap(daemon, "rename", "files@s0", "first")
    assert os.listdir(top / ".snapshots") == ["first", "s4", unnamed]
    daemon.run("umount", str(top), check=True)
    daemon.stop()
    assert daemon.check().returncode == 0


def test_it_survives_kill_9_and_a_lost_disk(daemon):
    """P2: snapshots taken while files are written, the daemon killed again and again."""
    top = daemon.mount
    then = {}
    for life in range(4):
        fill(top / f"life{life}", files=15, big_bytes=1_000_000)
        name = f"life{life}"
        snap(daemon, "create", f"files@{name}")
        then[name] = contents(top)
        subprocess.run(["rm", "-r", str(top / f"life{life}")], check=True)
        writer = subprocess.Popen(["dd", "if=/dev/urandom", f"of={top}/busy", "bs=64k", "count=400"], stderr=subprocess.DEVNULL)
        time.sleep(0.1 * life)
        daemon.kill()
        writer.wait()
        subprocess.run(["umount", "-l", str(top)], check=False)
        daemon.start()
        daemon.run("mount", str(top), check=True)
        assert list(snapshots(daemon)) == list(then)
        for name, wanted in then.items():
            found = contents(top / ".snapshots" / name)
            found.pop("busy", None), wanted.pop("busy", None)
            assert found == wanted, name
    daemon.run("umount", str(top), check=True)
    daemon.stop()
    subprocess.run(["mv", str(daemon.disks[0]), f"{daemon.disks[0]}.away"], check=True)
    daemon.start()
    daemon.run("mount", str(top), check=True)
    found = contents(top / ".snapshots" / "life0")
    assert found == then["life0"]
    daemon.run("check", check=True)


def test_of_an_encrypted_volume(sealed):  # noqa: F811
    """P2: locked, the snapshot is as closed as the volume; unlocked, it is there."""
    sealed.run("mount", str(sealed.mount), "--volume", "secret", check=True)
    (sealed.mount / "a").write_bytes(b"plain words " * 5000)
    snap(sealed, "create", "secret@s")
    (sealed.mount / "a").unlink()
    sealed.kill()
    subprocess.run(["umount", "-l", str(sealed.mount)], check=False)
    for disk in sealed.disks:
        found = subprocess.run(["grep", "-rlF", "plain words", str(disk)], capture_output=True, text=True)
        assert not found.stdout, found.stdout
    sealed.start()
    locked = sealed.run("snap", "list", "secret")
    assert locked.returncode == 1 and "locked" in locked.stderr
    typed(sealed, "volume", "unlock", "secret")
    sealed.run("mount", str(sealed.mount), "--volume", "secret", check=True)
    assert (sealed.mount / ".snapshots/s/a").read_bytes() == b"plain words " * 5000


def test_a_volume_goes_back(daemon):
    """P4: a `rm -rf` undone by rollback, with a mount in use, and killed on the way."""
    top = daemon.mount
    wanted = fill(top / "tree", files=30, big_bytes=1_000_000)
    (top / "note").write_text("then")
    snap(daemon, "create", "files@good")
    subprocess.run(["rm", "-rf", str(top / "tree")], check=True)
    (top / "note").write_text("later and longer")
    (top / "new").mkdir()
    asked = daemon.run("snap", "rollback", "files@good")
    assert asked.returncode == 1 and "--yes" in asked.stderr
    with open(top / "open", "w") as held:
        held.write("x")
        held.flush()
        busy = daemon.run("snap", "rollback", "files@good", "--yes")
        assert busy.returncode == 1 and ("in use" in busy.stderr or "open for writing" in busy.stderr), busy.stderr
        assert (top / "note").read_text() == "later and longer", "nothing has changed"
    told = daemon.run("snap", "diff", "files@good", check=True).stdout.splitlines()
    assert "M  /note" in told and "+  /new/" in told and "-  /tree/" in told and "-  /tree/docs/file-3" in told
    assert daemon.run("snap", "diff", "files@nope").returncode == 1
    back = snap(daemon, "rollback", "files@good", "--yes")
    saved = back["saved_as"]
    assert saved.startswith("before-rollback-")
    assert top.is_mount(), "a mount that somebody made by hand is back"
    assert describe(top / "tree") == wanted
    assert (top / "note").read_text() == "then" and not (top / "new").exists()
    assert (top / ".snapshots" / saved / "note").read_text() == "later and longer"
    assert list(snapshots(daemon)) == ["good", saved]
    # Forward again, killed on the way.
    daemon.run("umount", str(top), check=True)
    for attempt in range(3):
        to = (saved, "good", saved)[attempt]
        going = subprocess.Popen([binary(), "--data", str(daemon.data), "snap", "rollback", f"files@{to}", "--yes"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.02 + 0.05 * attempt)
        daemon.kill()
        going.wait()
        daemon.start()
        daemon.run("mount", str(top), check=True)
        note = (top / "note").read_text()
        assert note in ("then", "later and longer")
        assert (top / "tree").exists() == (note == "then") and (top / "new").exists() == (note != "then"), "one or the other"
        if note == "then":
            assert describe(top / "tree") == wanted
        daemon.run("umount", str(top), check=True)
        daemon.run("check", check=True)
    with client(daemon) as nfs:
        assert nfs.lookup(nfs.root, b"note").attr
    daemon.stop()
    assert daemon.check().returncode == 0
