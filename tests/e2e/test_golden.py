"""Pools that older versions of larder made: each must be opened for ever, with every file as it was.

The images and how to make new ones are in tests/golden; one that is committed is never made anew.
"""

import shutil
import sys
from pathlib import Path

import pytest

from larderd import Larder, run
from trees import describe

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


def test_it_is_recovered(image, folder):
    disks, tree = image
    done = run("recover", "--disk", *disks, "--to", folder / "to")
    assert done.returncode == 0, done.stdout + done.stderr
    assert plain(describe(folder / "to/files")) == tree
