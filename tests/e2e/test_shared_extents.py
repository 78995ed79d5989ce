"""Copies within a volume share extents: they take no time and no room, and survive kill -9."""

import os
import random
import threading
import time

import pytest

import nfs4
from conftest import make, payload
from nfs3 import Disconnected, u32, u64
from nfs4 import UNCHECKED, Nfs4, nothing, put

MIB = 1 << 20
SIZE = 256 * MIB
# With its header a request is smaller than a session allows.
PIECE = MIB // 2


@pytest.fixture
def daemon(tmp_path):
    daemon = make(tmp_path, extra=["--squash", "none"]).start()
    yield daemon
    if daemon.alive():
        assert daemon.stop() == 0, daemon.log()[-4000:]


def connect(daemon):
    """One client through all restarts: the grace after one ends with its word that it takes nothing back."""
    return Nfs4("127.0.0.1", daemon.nfs_port, minor=2, owner=b"the only one").session()


def copy(four, source, target, count, at=0):
    arguments = source.stateid + target.stateid + u64(0) + u64(at) + u64(count) + u32(1) + u32(1) + u32(0)
    ok = lambda r: (r.u32(), r.u64(), r.u32(), r.take(8), r.u32(), r.u32())
    return four.compound(put(source.handle), nfs4.SAVE, put(target.handle), (nfs4.COPY, arguments, ok))[-1][1]


def clone(four, source, target, count=0, at=0):
    arguments = source.stateid + target.stateid + u64(0) + u64(at) + u64(count)
    four.compound(put(source.handle), nfs4.SAVE, put(target.handle), (nfs4.CLONE, arguments, nothing))


def fill(four, top, name, size=SIZE, piece=PIECE):
    file = four.open([top, name], create=UNCHECKED, owner=name.encode())
    data = payload(piece)
    for at in range(0, size, piece):
        four.write(file, at, at.to_bytes(8, "big") + data[8:], stable=0)
    four.compound(put(file.handle), (nfs4.COMMIT, u64(0) + u32(0), lambda r: r.take(8)))
    return file


def is_whole(four, file, size=SIZE, piece=PIECE):
    data = payload(piece)
    for at in range(0, size, piece):
        if four.read(file, at, piece).data != at.to_bytes(8, "big") + data[8:]:
            return False
    return True


def used(daemon):
    return sum(os.stat(os.path.join(folder, name)).st_blocks * 512
               for disk in daemon.disks for folder, _, names in os.walk(disk / "objects") for name in names)


def test_a_copy_takes_no_time_and_no_room(daemon):
    with connect(daemon) as four:
        top = daemon.export.strip("/")
        source = fill(four, top, "source")
        before = used(daemon)
        target = four.open([top, "target"], create=UNCHECKED, owner=b"target")
        began = time.monotonic()
        assert copy(four, source, target, SIZE) == SIZE
        second = four.open([top, "second"], create=UNCHECKED, owner=b"second")
        clone(four, source, second)
        assert time.monotonic() - began < 4
        assert used(daemon) - before < SIZE / 8
        daemon.kill()
    daemon.start()
    with connect(daemon) as four:
        for name in ("source", "target", "second"):
            assert is_whole(four, four.open([top, name], access=nfs4.READ)), name
        four.remove([top, "source"])
        four.remove([top, "second"])
        assert is_whole(four, four.open([top, "target"], access=nfs4.READ))
    assert daemon.stop() == 0
    assert daemon.check("--read-data").returncode == 0


def test_a_clone_under_way_at_a_kill_is_whole_or_not_there(daemon):
    chance = random.Random(7)
    top = daemon.export.strip("/")
    with connect(daemon) as four:
        # Records of 4 KiB: many extents.
        source = fill(four, top, "source", size=64 * MIB)
    for turn in range(6):
        acknowledged = set()

        def work():
            try:
                with connect(daemon) as four:
                    source = four.open([top, "source"], access=nfs4.READ)
                    for number in range(200):
                        name = f"{turn}-{number}"
                        target = four.open([top, name], create=UNCHECKED, owner=name.encode())
                        clone(four, source, target)
                        acknowledged.add(name)
            except (Disconnected, OSError):
                pass

        worker = threading.Thread(target=work)
        worker.start()
        time.sleep(chance.uniform(0.3, 1.5))
        daemon.kill()
        worker.join()
        daemon.start()
        with connect(daemon) as four:
            names = [name.decode() for name in four.names([top]) if name.decode().startswith(f"{turn}-")]
            assert acknowledged <= set(names)
            for name in names:
                file = four.open([top, name], access=nfs4.READ)
                size = four.attr(file.handle).size
                assert size == 64 * MIB or size == 0 and name not in acknowledged, (name, size)
                four.close_file(file)
            for name in chance.sample(names, min(3, len(names))):
                file = four.open([top, name], access=nfs4.READ)
                assert four.attr(file.handle).size == 0 or is_whole(four, file, 64 * MIB)
            for name in names:
                four.remove([top, name])
    assert daemon.stop() == 0
    assert daemon.check("--read-data").returncode == 0
