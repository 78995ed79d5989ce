"""Replicas as files: snapshots copied into a volume of another pool that has its own compression, record size and key.

  F1  A copy has every file of every snapshot, with all that a file has, and packs harder than its volume.
  F2  It is brought up to date by itself, from where a kill -9 left it; a snapshot of it is whole or not there.
  F3  Its own settings can be changed; those that would do nothing are refused, and so is all that a copy is not.
  F4  It becomes a volume, with all of its snapshots.
"""

import json
import os
import random

import pytest

from conftest import make
from test_encryption import PASSPHRASE, typed
from test_replica import mounted, snap, snapshots
from test_replicate import holds, replicate, status, up_to_date
from trees import describe, fill
from waiting import wait_for

STEMS = ("pantry", "shelf", "barley", "honey", "salt", "crate")
WORDS = [f"{stem}{ending}" for stem in STEMS for ending in ("", "s", "ed", "ing")]


def text(count, seed):
    """Text that zstd packs better than LZ4, and harder levels better still."""
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) + str(rng.randrange(50)) for _ in range(count)).encode()


@pytest.fixture
def box(folder):
    """Two pools of one machine."""
    daemon = make(folder / "box", extra=["--squash", "none"]).start()
    daemon.mounts = []
    daemon.run("pool", "create", "cold", str(folder / "second"), "--layout", "stripe", check=True)
    daemon.run("pool", "import", str(folder / "second"), check=True)
    yield daemon
    for at in daemon.mounts:
        daemon.run("umount", str(at))
    assert daemon.stop() == 0
    assert "panicked" not in daemon.log(), daemon.log()[-4000:]


def listed(daemon, name):
    return next(v for v in json.loads(daemon.run("--json", "volume", "list", check=True).stdout) if v["name"] == name)


def add_more(top):
    """What `fill` does not make."""
    for number in range(6):
        (top / f"words-{number}").write_bytes(text(150_000, number))
    os.setxattr(top / "words-2", "user.long", b"x" * 3000)
    os.setxattr(top / "words-3", "user.DosStream.notes:$DATA", b"a named stream")
    if os.geteuid() == 0:
        os.mknod(top / "device", 0o600 | 0o020000, os.makedev(1, 3))
    with open(top / "holes", "wb") as file:
        file.truncate(1 << 30)
        for at in (0, 5 << 20, 700 << 20):
            file.seek(at)
            file.write(text(200, at))


def seen(top):
    """As `describe` says it; of the file of holes the places of its data instead of its zeros."""
    found = describe_without(top, "holes")
    fd, places, at = os.open(top / "holes", os.O_RDONLY), [], 0
    try:
        while True:
            try:
                at = os.lseek(fd, at, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(fd, at, os.SEEK_HOLE)
            places.append((at, os.pread(fd, end - at, at).rstrip(b"\0")))
            at = end
        found["holes"] = (os.fstat(fd).st_size, os.fstat(fd).st_mtime_ns, places)
    finally:
        os.close(fd)
    return found


def describe_without(top, name):
    """`describe` reads whole files; a GiB of zeros is not one of them."""
    found = {}
    for entry in sorted(set(os.listdir(top)) - {name, ".snapshots"}):
        path = top / entry
        if path.is_dir() and not path.is_symlink():
            found[entry] = (path.lstat().st_mode, path.lstat().st_mtime_ns, describe(path))
            continue
        found[entry] = one(path)
    return found


def one(path):
    about = path.lstat()
    facts = [about.st_mode, about.st_uid, about.st_gid, about.st_mtime_ns, about.st_ctime_ns, about.st_nlink, about.st_rdev]
    if path.is_symlink():
        return [*facts, os.readlink(path)]
    if path.is_file():
        return [*facts, path.read_bytes(), {name: os.getxattr(path, name) for name in os.listxattr(path)}]
    return facts


def test_a_copy_as_files_packs_harder_and_survives_kills(box):
    """F1, F2, F4"""
    top = mounted(box, "tank/files", "mnt")
    fill(top / "tree", big_bytes=2_000_000)
    add_more(top)
    snap(box, "tank/files", "a")
    want = {"a": seen(top)}
    harder = ["--compression", "zstd:9", "--record-size", "1M"]
    done = replicate(box, "add", "tank/files", "cold/copy", "--as-files", *harder, "--limit", "2MiB")
    assert json.loads(done.stdout)["replications"][0]["to"] == "cold/copy"
    config = (box.data / "larder.toml").read_text()
    assert "as_files = true" in config
    # Killed in the middle of the first, and again.
    for _ in range(2):
        wait_for(lambda: status(box)[0]["sent_bytes"] > 1 << 20, told=lambda: str(status(box)))
        assert snapshots(box, "cold/copy") == []
        box.run("umount", str(top))
        box.kill()
        box.start()
        box.run("mount", str(top), "--volume", "tank/files", check=True)
    box.run("replicate", "remove", "tank/files", check=True)
    replicate(box, "add", "tank/files", "cold/copy", "--as-files")
    up_to_date(box, "a")
    wait_for(lambda: holds(box, "tank/files") == ["a"], told=lambda: "the next goes on from it")
    copy, own = listed(box, "copy"), listed(box, "files")
    assert (copy["compression"], copy["record_bytes"], copy["copy"]) == ("zstd:9", 1 << 20, True)
    assert copy["compression_ratio"] > own["compression_ratio"] * 1.1, (copy, own)
    # What changes afterwards.
    (top / "words-0").unlink()
    with open(top / "words-4", "r+b") as file:
        file.seek(300_000)
        file.write(text(1000, 77))
    os.rename(top / "tree" / "docs", top / "moved")
    os.truncate(top / "holes", 600 << 20)
    snap(box, "tank/files", "b")
    want["b"] = seen(top)
    up_to_date(box, "b")
    assert snapshots(box, "cold/copy") == ["a", "b"]
    # A snapshot that is gone before it was copied is none of it.
    box.run("replicate", "remove", "tank/files", check=True)
    (top / "passing").write_bytes(text(5000, 5))
    snap(box, "tank/files", "c")
    box.run("snap", "destroy", "tank/files@c", check=True)
    (top / "passing").unlink()
    (top / "last").write_bytes(text(5000, 6))
    snap(box, "tank/files", "d")
    want["d"] = seen(top)
    replicate(box, "tank/files", "cold/copy")
    assert snapshots(box, "cold/copy") == ["a", "b", "d"]
    checked = json.loads(box.run("--json", "check", "--volume", "cold/copy", "--read-data").stdout or "null")
    assert checked is None or all(result["problems"] == [] for result in checked), checked
    box.run("volume", "promote", "cold/copy", check=True)
    promoted = mounted(box, "cold/copy", "promoted")
    assert seen(promoted) == want["d"]
    for name in ("a", "b"):
        assert seen(promoted / ".snapshots" / name) == want[name], name
    (promoted / "own").write_text("a volume like any other")


def test_a_copy_says_what_it_is_and_what_it_takes(box):
    """F3"""
    top = mounted(box, "tank/files", "mnt")
    (top / "note").write_bytes(text(20_000, 1))
    snap(box, "tank/files", "a")

    def refused(*words):
        done = box.run(*words)
        assert done.returncode != 0, done.stdout
        return done.stderr

    assert "--as-files" in refused("replicate", "add", "tank/files", "cold/copy", "--compression", "zstd:9")
    assert "1 to 19" in refused("replicate", "add", "tank/files", "cold/copy", "--as-files", "--compression", "zstd:20")
    assert "pools of one machine" in refused("replicate", "add", "tank/files", "ssh://root@localhost/cold/copy", "--as-files")
    assert "exists already" in refused("replicate", "add", "tank/files", "tank/files", "--as-files")
    replicate(box, "add", "tank/files", "cold/copy", "--as-files", "--compression", "zstd:12")
    up_to_date(box, "a")
    assert "keeps its settings" in refused("replicate", "add", "tank/files", "cold/copy", "--as-files", "--compression", "lz4")
    assert "copy as files" in refused("replicate", "add", "tank/files", "cold/copy")
    assert "only the compression" in refused("volume", "set", "cold/copy", "--quota", "1GiB")
    box.run("volume", "set", "cold/copy", "--compression", "zstd:19", check=True)
    assert listed(box, "copy")["compression"] == "zstd:19"
    assert "replica" in refused("mount", str(box.data / "nowhere"), "--volume", "cold/copy")
    assert "replica" in refused("snap", "create", "cold/copy@own")
    assert "larder volume promote" in refused("send", "cold/copy@a")
    box.run("snap", "hold", "cold/copy@a", "taxes", check=True)
    assert "held" in refused("volume", "destroy", "cold/copy", "--yes", "--force")
    box.run("snap", "release", "cold/copy@a", "taxes", check=True)
    box.run("volume", "destroy", "cold/copy", "--yes", check=True)
    assert "is gone" in refused("replicate", "tank/files")
    box.run("replicate", "remove", "tank/files", check=True)
    assert holds(box, "tank/files") == []


def test_a_copy_has_a_key_of_its_own(box):
    """F1, F3"""
    typed(box, "volume", "create", "tank/secret", "--encrypt", "--no-recovery-key", "--no-share")
    top = mounted(box, "tank/secret", "mnt")
    (top / "note").write_bytes(text(20_000, 1))
    snap(box, "tank/secret", "a")
    refused = box.run("replicate", "add", "tank/secret", "cold/copy", "--as-files")
    assert refused.returncode != 0 and "would lie open" in refused.stderr and "--encrypt" in refused.stderr
    phrase = box.data / "phrase"
    phrase.write_text("another long passphrase\n")
    phrase.chmod(0o600)
    done = box.run("replicate", "add", "tank/secret", "cold/copy", "--as-files", "--encrypt", "--passphrase-file", str(phrase))
    assert done.returncode == 0 and "Recovery key:" in done.stdout, done.stderr
    up_to_date(box, "a")
    assert listed(box, "copy")["encryption"]
    box.run("volume", "promote", "cold/copy", check=True)
    promoted = mounted(box, "cold/copy", "promoted")
    assert (promoted / "note").read_bytes() == text(20_000, 1)
