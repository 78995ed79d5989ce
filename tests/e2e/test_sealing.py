"""Volumes that are encrypted after the fact, and volumes that get a new key: in place, while they are served.

  S1  Once it is done nothing that the pool lists is in clear, and files, snapshots and handles are what they were.
  S2  Killed at any place: unlocked with the same secrets it is whole, and the work goes on to its end.
  S3  A secret that was let go opens nothing afterwards; the others open as before.
  S4  What would lose data, or lock somebody out, is refused and says what would do.
  S5  Clients of NFS wait for the moment of the change and go on with their handles; others connect again. Who holds the volume is named.
"""

import json
import os
import subprocess
import threading
import time

import pytest

import nfs3
from conftest import make
from larderd import binary
from test_encryption import PASSPHRASE, everything_on, synced, typed, volumes
from test_replica import called, mounted, pair, sent, snap  # noqa: F401
from test_sharing import READ, Keeper
from test_snapshots import contents
from trees import fill
from waiting import wait_for

pytestmark = pytest.mark.usefixtures("small_machine")

JUKEBOX = 10008


def sealing(daemon, volume):
    return json.loads(daemon.run("--json", "volume", "key", "list", volume, check=True).stdout).get("sealing")


def ended(daemon, volume):
    wait_for(lambda: sealing(daemon, volume) is None, told=lambda: str(sealing(daemon, volume)))


def shards_with(daemon, words):
    """Files of objects, journals left out: those keep what was written to them until it is overwritten."""
    found = []
    for path, content in everything_on(daemon.disks):
        if "journal" not in str(path) and any(word in content for word in words):
            found.append(path)
    return found


@pytest.fixture
def daemon(folder):
    daemon = make(folder, extra=["--squash", "none"]).start()
    daemon.mounts = []
    yield daemon
    for at in daemon.mounts:
        daemon.run("umount", str(at))
    if daemon.alive():
        daemon.stop()


def test_a_volume_in_clear_is_encrypted_where_it_is(daemon):
    """S1, S4"""
    secret = b"the plaintext that nobody may find "
    top = mounted(daemon, "files", "mnt")
    fill(top / "tree", big_bytes=3_000_000)
    (top / "telling-name").mkdir()
    (top / "telling-name" / "letter").write_bytes(b"".join(secret + os.urandom(3000) for _ in range(900)))
    os.sync()
    snap(daemon, "files", "a")
    one = contents(top)
    # Content that looks like a sealed object.
    (top / "alike").write_bytes(b"LRDSEAL\0\1\1\0\0\1\0\0\0" + os.urandom(300_000))
    (top / "telling-name" / "letter").unlink()
    two = contents(top)
    with nfs3.Nfs3.mount("127.0.0.1", daemon.nfs_port, "/files") as nfs:
        handle = nfs.lookup(nfs.root, b"alike").handle
    stream = sent(daemon, "files@a")
    assert shards_with(daemon, [secret, b"telling-name"]), "the search finds it before"
    with open(top / "alike", "rb"):
        busy = typed(daemon, "volume", "encrypt", "files", check=False)
        assert busy.returncode != 0 and "--force" in busy.stderr, busy.stderr
    daemon.run("umount", str(top), check=True)
    done = typed(daemon, "volume", "encrypt", "files", "--wait")
    assert "Recovery key: " in done.stdout and "until it is overwritten" in done.stdout, done.stdout
    recovery = done.stdout.split("Recovery key: ")[1].split("\n")[0]
    assert sealing(daemon, "files") is None and volumes(daemon)["files"]["encryption"]
    wait_for(lambda: not shards_with(daemon, [secret, b"telling-name"]), told=lambda: str(shards_with(daemon, [secret, b"telling-name"])))
    daemon.run("mount", str(top), "--volume", "files", check=True)
    assert contents(top) == two and contents(top / ".snapshots" / "a") == one
    with nfs3.Nfs3.mount("127.0.0.1", daemon.nfs_port, "/files") as nfs:
        assert nfs.read(handle, 0, 8).data == b"LRDSEAL\0", "handles of before are good"
    synced(top / "after", b"written since")
    # S4: a replica of before lacks the keys.
    called(daemon, "receive", "copy", data=stream)
    snap(daemon, "files", "b")
    refused = called(daemon, "receive", "copy", data=sent(daemon, "files@b", "--from", "a"), check=False)
    assert refused.returncode != 0 and b"new name" in refused.stderr, refused.stderr
    again = typed(daemon, "volume", "encrypt", "files", check=False)
    assert again.returncode != 0 and "already" in again.stderr
    daemon.kill()
    subprocess.run(["umount", "-l", str(top)], check=False)
    daemon.start()
    assert volumes(daemon)["files"]["locked"]
    typed(daemon, "volume", "unlock", "files", "--recovery-key", lines=[recovery])
    daemon.run("mount", str(top), "--volume", "files", check=True)
    assert contents(top / ".snapshots" / "a") == one and (top / "after").read_bytes() == b"written since"
    assert "no problems" in daemon.run("check", "files", "--read-data").stdout


def test_clients_at_work_go_on(daemon):
    """S5"""
    top = mounted(daemon, "files", "mnt")
    (top / "open").write_bytes(b"kept open over SMB")
    (top / "open").chmod(0o666)
    written, faults, stop = [], [], threading.Event()

    def write():
        with nfs3.Nfs3.mount("127.0.0.1", daemon.nfs_port, "/files") as nfs:
            handle = nfs.create(nfs.root, b"growing").handle
            while not stop.is_set():
                data = os.urandom(8192)
                try:
                    nfs.write(handle, 8192 * len(written), data, stable=nfs3.FILE_SYNC)
                    written.append(data)
                except nfs3.NfsError as error:
                    if error.status != JUKEBOX:
                        faults.append(error)
                        return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_for(lambda: len(written) > 20)
        keeper = Keeper(daemon, "files", "open")
        refused = typed(daemon, "volume", "encrypt", "files", check=False)
        assert refused.returncode != 0 and "open for writing" in refused.stderr and "--force" in refused.stderr, refused.stderr
        typed(daemon, "volume", "encrypt", "files", "--force", "--wait")
        assert sealing(daemon, "files") is None
        before = len(written)
        wait_for(lambda: len(written) > before + 20 or faults)
    finally:
        stop.set()
        writer.join()
    assert not faults
    with pytest.raises(Exception):
        keeper.low.read(keeper.tree, keeper.file, 0, 4)
    again = Keeper(daemon, "files", "open", access=READ)
    assert again.low.read(again.tree, again.file, 0, 18) == b"kept open over SMB"
    assert top.is_mount(), "a mount that somebody made by hand is back"
    assert (top / "growing").read_bytes() == b"".join(written)


@pytest.mark.long
def test_what_holds_the_volume_is_named(daemon):
    """S5: a tar that nobody reads on keeps its volume; the command waits for its end and goes on."""
    top = mounted(daemon, "files", "mnt")
    (top / "big").write_bytes(os.urandom(30_000_000))
    os.sync()
    snap(daemon, "files", "a")
    daemon.run("umount", str(top), check=True)
    export = subprocess.Popen([binary(), "--data", str(daemon.data), "snap", "export", "files@a", "--tar"], stdout=subprocess.PIPE)
    export.stdout.read(1000)
    command = subprocess.Popen([binary(), "--data", str(daemon.data), "volume", "encrypt", "files", "--wait"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    command.stdin.write(f"{PASSPHRASE}\n")
    command.stdin.close()
    said = command.stderr.readline()
    assert "in use by the export of tank/files@a" in said and "trying again" in said, said
    assert "encryption" not in volumes(daemon)["files"], "it is as it was"
    export.kill()
    export.wait()
    assert command.wait(timeout=60) == 0, command.stderr.read()
    assert volumes(daemon)["files"]["encryption"]


@pytest.mark.parametrize("work", ["encrypt", "rekey"])
def test_killed_at_any_place_it_goes_on_when_it_is_unlocked(folder, work):
    """S2: each time a little later, with writers at it meanwhile."""
    daemon = make(folder, extra=["--squash", "none"]).start()
    top = folder / "mnt"
    top.mkdir()
    if work == "rekey":
        typed(daemon, "volume", "create", "v", "--encrypt", "--no-recovery-key")
    else:
        daemon.run("volume", "create", "v", check=True)
    daemon.run("mount", str(top), "--volume", "v", check=True)
    for number in range(8):
        (top / f"f{number}").write_bytes(os.urandom(3_000_000))
        os.sync()
    snap(daemon, "v", "a")
    want = contents(top)
    daemon.run("umount", str(top), check=True)
    lines = [PASSPHRASE]
    rounds = 0
    began = False
    for pause_s in (0.0, 0.03, 0.1, 0.3):
        if not began or sealing(daemon, "v") is None:
            command = subprocess.Popen([binary(), "--data", str(daemon.data), "volume", work, "v"], stdin=subprocess.PIPE,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            command.stdin.write("".join(f"{line}\n" for line in lines).encode())
            command.stdin.close()
            if rounds > 0:
                command.wait(timeout=60)
        time.sleep(pause_s)  # The moment of a kill is the point of this test.
        daemon.kill()
        # Without a daemon it does the work itself, and has the pool meanwhile.
        command.wait(timeout=60)
        rounds += 1
        daemon.start()
        listed = volumes(daemon)["v"]
        began = listed.get("encryption") is not None
        if began:
            assert listed["locked"]
            typed(daemon, "volume", "unlock", "v")
        daemon.run("mount", str(top), "--volume", "v", check=True)
        assert contents(top) == want and contents(top / ".snapshots" / "a") == {k: v for k, v in want.items()}
        name = f"during{rounds}"
        (top / name).write_bytes(os.urandom(100_000))
        (top / name).unlink()
        daemon.run("umount", str(top), check=True)
        if work == "encrypt" and began and sealing(daemon, "v") is None:
            break
    ended(daemon, "v")
    daemon.run("volume", "lock", "v", check=True)
    typed(daemon, "volume", "unlock", "v")
    assert "no problems" in daemon.run("check", "v", "--read-data").stdout
    assert daemon.stop() == 0


def test_a_new_key_leaves_nothing_to_a_secret_that_was_let_go(folder):
    """S3, S4"""
    daemon = make(folder, extra=["--squash", "none"]).start()
    key = folder / "key"
    key.write_bytes(os.urandom(64))
    made = typed(daemon, "--json", "volume", "create", "v", "--encrypt")
    recovery = json.loads(made.stdout)["recovery_key"]
    typed(daemon, "volume", "key", "add", "v", "--new-key-file", str(key), "--label", "stick")
    typed(daemon, "volume", "key", "add", "v", "--label", "stolen", lines=[PASSPHRASE, "a phrase that was stolen"])
    top = folder / "mnt"
    top.mkdir()
    daemon.run("mount", str(top), "--volume", "v", check=True)
    fill(top)
    want = contents(top)
    daemon.run("umount", str(top), check=True)
    snap(daemon, "v", "a")
    # S4: nobody is locked out unasked.
    lacking = typed(daemon, "volume", "rekey", "v", "--drop", "stolen", lines=[PASSPHRASE, recovery], check=False)
    assert lacking.returncode != 0 and "'stick'" in lacking.stderr and "--key-file" in lacking.stderr, lacking.stderr
    wrong = typed(daemon, "volume", "rekey", "v", "--drop", "stolen", "--key-file", str(key), lines=["not the phrase", recovery], check=False)
    assert wrong.returncode != 0 and "'first'" in wrong.stderr, wrong.stderr
    done = typed(daemon, "volume", "rekey", "v", "--drop", "stolen", "--key-file", str(key), "--cipher", "chacha20-poly1305", "--wait",
                 lines=[PASSPHRASE, recovery])
    assert "chacha20-poly1305" in done.stdout, done.stdout
    assert volumes(daemon)["v"]["encryption"] == "chacha20-poly1305" and sealing(daemon, "v") is None
    for option, lines in (([], [PASSPHRASE]), (["--recovery-key"], [recovery]), (["--key-file", str(key)], [])):
        daemon.run("volume", "lock", "v", check=True)
        stolen = typed(daemon, "volume", "unlock", "v", lines=["a phrase that was stolen"], check=False)
        assert stolen.returncode != 0
        typed(daemon, "volume", "unlock", "v", *option, lines=lines)
    daemon.run("mount", str(top), "--volume", "v", check=True)
    assert contents(top) == want and contents(top / ".snapshots" / "a") == want
    daemon.run("umount", str(top), check=True)
    refused = called(daemon, "receive", "elsewhere", data=sent(daemon, "v@a"))
    assert refused.returncode == 0
    assert daemon.stop() == 0
