"""Clones: volumes that begin as a snapshot of another and share its data.

  C1  A clone shows the snapshot, is written and snapshotted like any volume, and neither sees the other's changes, kill -9 included.
  C2  What it needs cannot go: the snapshot, the volume. Promotion makes it independent, and then they can.
  C3  Of an encrypted volume it is encrypted, and opened by the same secrets.
  C4  `recover` reads the files of a clone back from the disks alone.
"""

import json
import os
import subprocess

import pytest

from conftest import make
from larderd import binary
from test_encryption import PASSPHRASE, sealed, synced, typed, volumes  # noqa: F401
from test_snapshots import contents
from trees import fill

pytestmark = pytest.mark.usefixtures("small_machine")


@pytest.fixture
def daemon(folder):
    daemon = make(folder, extra=["--squash", "none"]).start()
    daemon.mounts = []
    yield daemon
    for at in daemon.mounts:
        daemon.run("umount", str(at))
    if daemon.alive():
        assert daemon.stop() == 0


def mounted(daemon, volume):
    at = daemon.data.parent / f"mnt-{volume}-{len(daemon.mounts)}"
    at.mkdir(exist_ok=True)
    daemon.run("mount", str(at), "--volume", volume, check=True)
    daemon.mounts.append(at)
    return at


def used(daemon):
    return daemon.status()["used_bytes"]


def test_a_clone_goes_its_own_way(daemon, folder):
    """C1, C2, C4"""
    top = mounted(daemon, "files")
    fill(top / "tree", big_bytes=30_000_000)
    daemon.run("snap", "create", "files@a", check=True)
    then = contents(top)
    (top / "tree" / "later").write_text("later")
    before = used(daemon)
    daemon.run("snap", "clone", "files@a", "work", check=True)
    assert used(daemon) - before < 3_000_000, "its data is shared"
    refused = daemon.run("snap", "clone", "files@a", "work")
    assert refused.returncode != 0 and "exists" in refused.stderr
    refused = daemon.run("snap", "clone", "files@b", "other")
    assert "no snapshot" in refused.stderr
    clone = mounted(daemon, "work")
    assert contents(clone) == then
    synced(clone / "tree" / "own", os.urandom(3_000_000))
    subprocess.run(["rm", "-r", str(top / "tree")], check=True)
    of_clone = contents(clone)
    daemon.run("snap", "create", "work@mine", check=True)
    assert volumes(daemon)["work"]["origin"] == "files@a"
    assert "files@a" in daemon.run("volume", "list", check=True).stdout
    assert "clone work" in daemon.run("snap", "list", "files", "--holds", check=True).stdout
    for command in (["snap", "destroy", "files@a"], ["volume", "destroy", "files", "--yes", "--force"]):
        refused = daemon.run(*command)
        assert refused.returncode != 0 and "promote" in refused.stderr, refused.stderr
    assert volumes(daemon)["files"], "its shares are there, too"
    daemon.kill()
    for at in daemon.mounts:
        subprocess.run(["umount", "-l", str(at)], check=False)
    daemon.mounts.clear()
    # C4: from the disks alone.
    to = folder / "rescued"
    disks = [word for disk in daemon.disks for word in ("--disk", str(disk))]
    done = subprocess.run([binary(), "recover", *disks, "--to", str(to), "--volume", "work"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    assert contents(to / "work")["tree/own"][5:] == of_clone["tree/own"][5:]
    assert set(contents(to / "work")) == set(of_clone)
    daemon.start()
    clone = mounted(daemon, "work")
    assert contents(clone) == of_clone
    daemon.run("check", "--read-data", check=True)
    # C2
    daemon.run("volume", "promote", "work", check=True)
    refused = daemon.run("volume", "promote", "work")
    assert "of its own already" in refused.stderr
    daemon.run("snap", "destroy", "files@a", check=True)
    daemon.run("volume", "destroy", "files", "--yes", "--force", check=True)
    assert contents(clone) == of_clone
    daemon.run("umount", str(clone), check=True)
    daemon.mounts.clear()
    daemon.stop()
    daemon.start()
    assert contents(mounted(daemon, "work")) == of_clone
    daemon.run("check", "--read-data", check=True)
    assert "origin" not in volumes(daemon)["work"]


def test_a_clone_of_an_encrypted_volume(sealed):  # noqa: F811
    """C3"""
    sealed.run("mount", str(sealed.mount), "--volume", "secret", check=True)
    secret = b"the plaintext that nobody may find " * 3000
    (sealed.mount / "letter").write_bytes(secret)
    sealed.run("snap", "create", "secret@a", check=True)
    sealed.run("umount", str(sealed.mount), check=True)
    sealed.run("snap", "clone", "secret@a", "twin", check=True)
    sealed.run("mount", str(sealed.mount), "--volume", "twin", check=True)
    assert (sealed.mount / "letter").read_bytes() == secret
    (sealed.mount / "second").write_bytes(secret * 2)
    sealed.run("umount", str(sealed.mount), check=True)
    sealed.stop()
    found = subprocess.run(["grep", "-r", "-l", "-a", "plaintext that nobody", *map(str, sealed.disks)], capture_output=True, check=False)
    assert found.returncode == 1, found.stdout
    sealed.start()
    assert volumes(sealed)["twin"]["locked"]
    refused = sealed.run("volume", "promote", "twin")
    assert refused.returncode != 0 and "locked" in refused.stderr
    typed(sealed, "volume", "unlock", "twin", lines=[PASSPHRASE])
    sealed.run("mount", str(sealed.mount), "--volume", "twin", check=True)
    assert (sealed.mount / "letter").read_bytes() == secret and (sealed.mount / "second").read_bytes() == secret * 2
    sealed.run("volume", "promote", "twin", check=True)
    typed(sealed, "volume", "unlock", "secret", lines=[PASSPHRASE])
    refused = sealed.run("volume", "destroy", "secret", "--yes", "--force")
    assert refused.returncode != 0 and "secret@" in refused.stderr and "--with-snapshots" in refused.stderr, refused.stderr
    sealed.run("volume", "destroy", "secret", "--yes", "--force", "--with-snapshots", check=True)
    assert (sealed.mount / "letter").read_bytes() == secret
    listed = json.loads(sealed.run("--json", "check", "--read-data", check=True).stdout)
    assert all(not one["problems"] for one in listed)
