"""Pools that older versions of larder made: each must be opened for ever, with every file as it was.

The images and how to make new ones are in tests/golden; one that is committed is never made anew.
"""

import os
import shutil
import sys
from pathlib import Path

import pytest

from larderd import Larder, run
from trees import describe, payload

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
sys.path.insert(0, str(GOLDEN))
from make import plain, unpack  # noqa: E402

IMAGES = sorted(path.name.removesuffix(".json") for path in GOLDEN.glob("*.json"))


def test_there_are_images():
    kinds = {name.rsplit("-", 1)[1] for name in IMAGES}
    assert kinds == {"clean", "crash", "degraded"}, IMAGES


@pytest.fixture(params=IMAGES)
def image(request, folder):
    disks, tree = unpack(request.param, folder)
    assert len(disks) == 3
    return disks, tree


def serve(folder, disks):
    mount = folder / "mnt"
    mount.mkdir()
    # The image of a crash says that another machine has it open.
    options = ["--mount", str(mount), "--squash", "none", "--force"]
    return Larder(disks, folder / "data", extra=options).start(), mount


def test_it_is_served_and_checked(image, folder):
    disks, tree = image
    daemon, mount = serve(folder, disks)
    assert plain(describe(mount)) == tree
    (mount / "and it can be written").write_text("yes")
    assert daemon.stop() == 0
    done = daemon.check("--read-data")
    assert done.returncode == 0, done.stdout


def test_it_is_served_with_one_disk_less(image, folder):
    disks, tree = image
    # Of the degraded pool the stale disk: one more than it survives is another test's.
    shutil.rmtree(disks.pop())
    daemon, mount = serve(folder, disks)
    assert plain(describe(mount)) == tree
    assert daemon.stop() == 0


def test_it_goes_on_being_written(image, folder):
    """Parts of old records are overwritten, new ones come beside them, and a snapshot keeps the tree of before."""
    disks, tree = image
    daemon, mount = serve(folder, disks)
    daemon.run("snap", "create", "files@before", check=True)
    big, text = (bytearray((mount / name).read_bytes()) for name in ("big.bin", "docs/text.txt"))
    for content, name, at, length in [(big, "big.bin", 5000, 20_000), (big, "big.bin", 70_001, 1),
                                      (text, "docs/text.txt", 40_000, 3), (text, "docs/text.txt", 300_000, 90_000)]:
        content[at:at + length] = payload(length, at)
        with open(mount / name, "r+b") as f:
            f.seek(at)
            f.write(payload(length, at))
            os.fsync(f.fileno())
    (mount / "docs/more.txt").write_bytes(b"the same line over and over again\n" * 30_000)
    (mount / "more.bin").write_bytes(payload(700_000, 3))
    after = describe(mount)
    assert (after["big.bin"][5], after["docs/text.txt"][5]) == (bytes(big), bytes(text))
    assert daemon.stop() == 0
    done = daemon.check("--read-data")
    assert done.returncode == 0, done.stdout
    daemon.start()
    assert describe(mount) == after
    assert plain(describe(mount / ".snapshots/before")) == tree
    assert daemon.stop() == 0
    # With one disk less, all that was written is computed from the others.
    shutil.rmtree(disks[1])
    daemon.start()
    assert describe(mount) == after
    assert plain(describe(mount / ".snapshots/before")) == tree
    assert daemon.stop() == 0


def test_it_is_recovered(image, folder):
    disks, tree = image
    done = run("recover", "--disk", *disks, "--to", folder / "to")
    assert done.returncode == 0, done.stdout + done.stderr
    assert plain(describe(folder / "to/files")) == tree
