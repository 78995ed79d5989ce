#!/usr/bin/python3
"""Makes golden images: small pools as today's larder leaves them, for every later larder to open.

    tests/golden/make.py PREFIX      makes PREFIX-clean, PREFIX-crash and PREFIX-degraded, each .tar.xz and .json

An image that was committed is never made anew: it stands for what is on people's disks. New ones are added when the
format changes, under the version of larder that wrote them. Needs root and FUSE.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from larderd import Larder  # noqa: E402
from trees import describe, fill, payload  # noqa: E402


def plain(tree):
    """A description that JSON can hold: contents as hashes, names of any bytes."""
    def one(about):
        return [hashlib.sha256(part).hexdigest() if isinstance(part, bytes)
                else {name: value.hex() for name, value in part.items()} if isinstance(part, dict)
                else part for part in about]
    return {os.fsencode(name).hex(): one(about) for name, about in tree.items()}


def pack(folder, name, tree):
    """The disks without what only this run has: locks."""
    for disk in sorted(folder.glob("disk*")):
        (disk / "larder.lock").unlink(missing_ok=True)
    with tarfile.open(HERE / f"{name}.tar.xz", "w:xz", preset=9) as tar:
        for disk in sorted(folder.glob("disk*")):
            tar.add(disk, disk.name)
    (HERE / f"{name}.json").write_text(json.dumps(plain(tree), indent=0) + "\n")
    print(name, (HERE / f"{name}.tar.xz").stat().st_size, "bytes")


def unpack(name, folder):
    """The disks of an image, and the tree that is on them."""
    with tarfile.open(HERE / f"{name}.tar.xz") as tar:
        tar.extractall(folder)
    return sorted(Path(folder).glob("disk*")), json.loads((HERE / f"{name}.json").read_text())


def start(folder, disks=3):
    mount = folder / "mnt"
    mount.mkdir(exist_ok=True)
    options = ["--mount", str(mount), "--squash", "none"]
    return Larder([folder / f"disk{n}" for n in range(1, disks + 1)], folder / "data", extra=options).start(), mount


def small(mount):
    return fill(mount, files=12, sizes=(0, 1, 900, 5000, 9000), big_bytes=100_000)


def make_clean(folder, name):
    daemon, mount = start(folder)
    tree = small(mount)
    assert daemon.stop() == 0
    pack(folder, name, tree)


def make_crash(folder, name):
    """Killed with changes in the journal alone, intents, and a shard half written."""
    daemon, mount = start(folder)
    small(mount)
    assert daemon.stop() == 0
    daemon, mount = start(folder)
    for n in range(20):
        with open(mount / f"late-{n}", "wb") as f:
            f.write(payload(40 * n, n))
            f.flush()
            os.fsync(f.fileno())
    with open(mount / "docs/file-3", "r+b") as f:
        f.write(b"over")
        f.flush()
        os.fsync(f.fileno())
    os.rename(mount / "docs/file-1", mount / "moved")
    os.unlink(mount / "docs/file-2")
    tree = describe(mount)
    daemon.kill()
    subprocess.run(["umount", "-l", str(mount)], check=True)
    for n in (1, 2):
        (folder / f"disk{n}/objects/00").mkdir(exist_ok=True)
        (folder / f"disk{n}/objects/00/!000000ffffffffff.0{n}").write_bytes(payload(5000, n))
    pack(folder, name, tree)


def make_degraded(folder, name):
    """The third disk was away while files were changed; it is back, and stale."""
    daemon, mount = start(folder)
    small(mount)
    assert daemon.stop() == 0
    os.rename(folder / "disk3", folder / "away")
    daemon, mount = start(folder, disks=2)
    (mount / "docs/file-4").write_bytes(payload(40_000, 4))
    (mount / "new").write_bytes(payload(3000, 5))
    os.unlink(mount / "docs/file-5")
    os.sync()
    tree = describe(mount)
    assert daemon.stop() == 0
    os.rename(folder / "away", folder / "disk3")
    pack(folder, name, tree)


def main():
    prefix, = sys.argv[1:]
    for kind, make in (("clean", make_clean), ("crash", make_crash), ("degraded", make_degraded)):
        if (HERE / f"{prefix}-{kind}.json").exists():
            sys.exit(f"{prefix}-{kind} is there already: a golden image is never made anew")
        folder = Path(tempfile.mkdtemp(prefix="larder-golden-"))
        try:
            make(folder, f"{prefix}-{kind}")
        finally:
            time.sleep(0.1)
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
