"""A pool whose journal copies are lost or old while another disk is away: it is refused, and has everything when that disk is back.

  L1  What was acknowledged is never given up silently: the pool is refused and the disk that helps is named.
  L2  A refused opening changes nothing on the disks.
  L3  Giving it up is a decision about one pool, by its name, for one opening.
"""

import os
import shutil
from pathlib import Path

import pytest

from conftest import client, make, payload
from larderd import StartFailed, run
from nfs3 import FILE_SYNC, NfsError
from waiting import remove_folder

EARLY, ALL = 5, 25


def removed(disk, older):
    remove_folder(disk / "journal")


def emptied(disk, older):
    for file in (disk / "journal").iterdir():
        file.write_bytes(b"")


def zeroed(disk, older):
    for file in (disk / "journal").iterdir():
        file.write_bytes(bytes(file.stat().st_size))


def an_older_copy(disk, older):
    remove_folder(disk)
    shutil.copytree(older, disk)


def write(daemon, numbers):
    with client(daemon) as nfs:
        for number in numbers:
            handle = nfs.create(nfs.root, f"f{number}").handle
            nfs.write(handle, 0, payload(3000, number), FILE_SYNC)


def files(daemon):
    found = []
    with client(daemon) as nfs:
        for number in range(ALL):
            try:
                handle = nfs.lookup(nfs.root, f"f{number}").handle
            except NfsError:
                continue
            assert nfs.read_all(handle) == payload(3000, number), number
            found.append(number)
    return found


def content(disk):
    return {p: p.read_bytes() for p in sorted(Path(disk).rglob("*")) if p.is_file() and p.name != "larder.lock"}


@pytest.fixture
def used(folder):
    """Closed once after 5 files and killed after 25; the journal is on disks 1 and 2, an older copy of disk 2 aside."""
    daemon = make(folder).start()
    write(daemon, range(EARLY))
    assert daemon.stop() == 0
    shutil.copytree(daemon.disks[1], folder / "older")
    daemon.start()
    write(daemon, range(EARLY, ALL))
    daemon.kill()
    assert [any((disk / "journal").iterdir()) for disk in daemon.disks] == [True, True, False]
    yield daemon
    daemon.end()


def refusal(daemon):
    with pytest.raises(StartFailed) as refused:
        daemon.start()
    return str(refused.value)


@pytest.mark.parametrize("damage", [removed, emptied, zeroed, an_older_copy])
def test_with_a_disk_away(used, folder, damage):
    first, second, third = used.disks
    os.rename(first, folder / "away")
    damage(second, folder / "older")
    before = [content(disk) for disk in (second, third)]
    said = refusal(used)
    assert str(first) in said, said
    assert "changes that were acknowledged would be lost" in said, said
    assert before == [content(disk) for disk in (second, third)], "a refused opening has changed the disks"

    os.rename(folder / "away", first)
    used.start()
    assert files(used) == list(range(ALL))
    told = used.run("pool", "history", check=True).stdout
    what = "older copy of itself" if damage is an_older_copy else "copy of the journal was missing"
    assert f"{second}: " in told and what in told, told


def test_all_copies_lost(used, folder):
    for disk in used.disks[:2]:
        removed(disk, None)
    before = [content(disk) for disk in used.disks]
    said = refusal(used)
    pool = "tank"
    assert f"larder pool import --accept-loss {pool}" in said, said
    looked = run("recover", *(word for disk in used.disks for word in ("--disk", disk)), "--to", folder / "to")
    assert "acknowledged changes" in looked.stdout + looked.stderr, looked
    other = used.run("pool", "import", "--accept-loss", "another", *used.disks)
    assert other.returncode != 0, other
    assert before == [content(disk) for disk in used.disks], "nothing was decided yet"

    done = used.run("pool", "import", "--accept-loss", pool, check=True)
    assert "acknowledged changes were lost" in done.stdout, done
    used.start()
    assert set(range(EARLY)) <= set(files(used)), "what the tables have is there"
    status = used.run("pool", "status", check=True).stdout
    assert "larder pool clear" in status, status
    assert "opened although acknowledged changes" in used.run("pool", "history", check=True).stdout
    used.run("pool", "clear", pool, check=True)
    assert "acknowledged changes" not in used.run("pool", "status", check=True).stdout
    write(used, range(EARLY, ALL))
    used.kill()
    # The decision was for that opening alone.
    for disk in used.disks[:2]:
        remove_folder(disk / "journal")
    assert "acknowledged" in refusal(used)
