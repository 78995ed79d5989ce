"""`larder top` names what limits a transfer: each thing that can be wrong, over each door.

The suite runs a case of each kind. `make top-trials` runs all of them ten times each, and prints the table.
"""

import contextlib
import json
import os
import time

import pytest

import transfers
from larderd import Larder
from transfers import HERE, THERE, control_group, disk_rate, processor_part, relayed, shaped, sh, transfer, two_machines

TRIALS = int(os.environ.get("LARDER_TOP_TRIALS", "0"))
DOORS = ("nfs", "smb", "sftp", "webdav")
MIB = 1 << 20


class Box(Larder):
    """A larder in a namespace. `ip netns exec` becomes the program, so its pid is the daemon's."""

    space = None

    def command(self):
        words = super().command()
        for door in ("--nfs", "--smb"):
            words[words.index(door) + 1] = f"{HERE}:0"
        return ["ip", "netns", "exec", self.space, *words]


def up(folder, spaces, disks, layout, memory="256M"):
    box = Box(disks, folder / "data", layout=layout, extra=["--sftp", f"{HERE}:0", "--webdav", f"{HERE}:0", "--insecure-http", "--memory", memory])
    box.space = spaces[0]
    box.start()
    box.run("share", "set", "files", "--network", f"{THERE}/32", check=True)
    return box


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("top")


@pytest.fixture(scope="module")
def spaces():
    with two_machines() as names:
        yield names


@pytest.fixture(scope="module")
def box(place, spaces):
    """On a disk of its own that nothing slows, with a file that stays in memory."""
    daemon = up(place, spaces, [place / "disk"], "single")
    try:
        fill(spaces, daemon, "file", 32)
        yield daemon
    finally:
        daemon.end()


def fill(spaces, daemon, name, mib):
    """Writes a file from the client's machine."""
    there = f"import sys; sys.path.insert(0, {os.path.dirname(transfers.__file__)!r}); import nfs3, os;"
    act = (f"n = nfs3.Nfs3.mount({HERE!r}, {daemon.nfs_port}, '/{daemon.share}', reserved=True); h = n.create(n.root, {name!r}, mode=0o666).handle;"
           f"n.write_all(h, os.urandom({mib} << 20)); n.commit(h); n.setattr(n.root, mode=0o777)")
    sh("ip", "netns", "exec", spaces[1], "/usr/bin/python3", "-c", there + act)


def look(daemon, door):
    """What top says of the busiest connection of a door; nothing while there is none."""
    top = json.loads(daemon.run("top", "--once", "--json", check=True).stdout)
    ours = [one for one in top["connections"] if one["door"] == door and one["limited_by"] != "nothing"]
    return ours[0] if ours else None


def trials(daemon, door, count, settle_s=2.0):
    """So many looks, once the transfer runs."""
    end = time.monotonic() + 30
    while look(daemon, door) is None and time.monotonic() < end:
        time.sleep(0.2)
    time.sleep(settle_s)
    return [look(daemon, door) for _ in range(count)]


def judge(seen, limits):
    """How many are right, and what the others said."""
    right = [one for one in seen if one and one["limited_by"] in limits]
    wrong = [one and (one["limited_by"], one["cause"], one["sentence"], one["time"], one["figures"]) for one in seen if one not in right]
    return len(right), wrong


# Each makes one thing wrong with the ways between `spaces` and the box, and says how a client has to ask.


@contextlib.contextmanager
def wire(space, *discipline, **how):
    with shaped(space, *discipline):
        yield how


@contextlib.contextmanager
def far(spaces, delay_s, loss, **how):
    with relayed(spaces, delay_s, loss):
        yield how


TBF = ("tbf", "rate", "40mbit", "burst", "16k", "latency", "40ms")
# Each way: half of the round trip.
LOSSY = (0.0025, 0.03)
LATE = (0.002, 0)


def case_shaped_read(box, spaces):
    return wire(spaces[0], *TBF, deed="read", block=MIB, depth=8, file="file")


def case_shaped_write(box, spaces):
    return wire(spaces[1], *TBF, deed="write", block=MIB, depth=8, file="new")


def case_lossy_read(box, spaces):
    return far(spaces, *LOSSY, deed="read", block=MIB, depth=8, file="file")


def case_lossy_write(box, spaces):
    return far(spaces, *LOSSY, deed="write", block=MIB, depth=8, file="new")


@contextlib.contextmanager
def case_slow_reader(box, spaces):
    yield {"deed": "read", "block": 256 << 10, "depth": 4, "pace": 3_000_000, "file": "file"}


@contextlib.contextmanager
def case_slow_writer(box, spaces):
    yield {"deed": "write", "block": 128 << 10, "depth": 4, "pace": 3_000_000, "file": "new"}


def case_small_reads(box, spaces):
    return far(spaces, *LATE, deed="read", block=32 << 10, depth=1, file="file")


def case_small_writes(box, spaces):
    return far(spaces, *LATE, deed="write", block=32 << 10, depth=1, file="new")


@contextlib.contextmanager
def case_busy_core(box, spaces):
    # Less than the slowest client of these can take.
    with control_group("cpu", processor_part(0.02), box.pid):
        yield {"deed": "read", "block": MIB, "depth": 8, "file": "file"}


@contextlib.contextmanager
def case_durable(box, spaces):
    yield {"deed": "sync", "block": 16 << 10, "depth": 1, "file": "new"}


CASES = {
    "shaped wire, read": (case_shaped_read, {"wire"}, DOORS),
    "shaped wire, write": (case_shaped_write, {"wire"}, DOORS),
    "lossy wire, read": (case_lossy_read, {"wire"}, DOORS),
    "lossy wire, write": (case_lossy_write, {"wire"}, DOORS),
    "slow reader": (case_slow_reader, {"client"}, DOORS),
    "slow writer": (case_slow_writer, {"client"}, DOORS),
    "small requests, read": (case_small_reads, {"client"}, DOORS),
    "small requests, write": (case_small_writes, {"client"}, ("nfs", "smb", "sftp")),
    "busy core": (case_busy_core, {"processor"}, DOORS),
    "durable writes": (case_durable, {"durability"}, ("nfs",)),
}
# Of a kind the quickest. A core that is busy is named in one look of three over SMB: `make top-trials` has it.
QUICK = [("shaped wire, read", "nfs"), ("shaped wire, write", "smb"), ("lossy wire, read", "webdav"), ("slow reader", "webdav"),
         ("slow writer", "nfs"), ("small requests, read", "sftp"), ("durable writes", "nfs")]
ALL = [(name, door) for name, (_, _, doors) in CASES.items() for door in doors]


def run(box, spaces, name, door, count):
    make_case, limits, _ = CASES[name]
    with make_case(box, spaces) as how, transfer(spaces[1], box, door, **how):
        seen = trials(box, door, count)
    return judge(seen, limits)


@pytest.mark.alone
@pytest.mark.skipif(TRIALS > 0, reason="the trials have all of them")
@pytest.mark.parametrize("name, door", QUICK)
def test_a_limit_is_named(box, spaces, name, door):
    right, wrong = run(box, spaces, name, door, 3)
    assert right >= 2, wrong


@contextlib.contextmanager
def slow_disk(place, spaces, mib=512, bytes_per_s=4_000_000):
    """A box on a loop device that the daemon gets so many bytes a second of."""
    image, mount = place / "slow.img", place / "slow"
    with open(image, "wb") as file:
        file.truncate(mib * MIB)
    mount.mkdir()
    # Otherwise it reads its file through memory, and that would be what is measured.
    loop = sh("losetup", "-f", "--show", "--direct-io=on", image).strip()
    try:
        sh("mkfs.ext4", "-q", loop)
        sh("mount", loop, mount)
        (place / "slowbox").mkdir()
        daemon = up(place / "slowbox", spaces, [mount / "disk"], "single", memory="128M")
        try:
            fill(spaces, daemon, "file", 192)
            daemon.stop()
            daemon.start()
            with control_group("blkio", disk_rate(loop, bytes_per_s), daemon.pid):
                yield daemon
        finally:
            daemon.end()
    finally:
        sh("umount", "-l", mount)
        sh("losetup", "-d", loop)


@pytest.mark.alone
@pytest.mark.skipif(TRIALS > 0, reason="the trials have all of them")
def test_a_slow_disk_is_named(place, spaces):
    with slow_disk(place, spaces) as box, transfer(spaces[1], box, "nfs", "read", file="file"):
        seen = trials(box, "nfs", 3)
        said = box.run("doctor", "--now", "--no-smart").stdout
    right, wrong = judge(seen, {"disks"})
    assert right >= 2, wrong
    named = [one["sentence"] for one in seen if one]
    assert any("slow/disk" in sentence for sentence in named), named
    # The doctor says the same.
    assert "the read of" in said and THERE in said, said


@pytest.mark.skipif(TRIALS > 0, reason="the trials have all of them")
def test_one_look_is_a_table_of_eighty_columns_and_idle_connections_are_counted(box, spaces):
    assert box.run("top", "--once", check=True).stdout.strip().endswith(("Nothing is transferred.", "idle."))
    with transfer(spaces[1], box, "sftp", "read", block=32 << 10, depth=1, file="file"):
        trials(box, "sftp", 0)
        text = box.run("top", "--once", check=True).stdout
    assert THERE in text and "keeper" in text and "sftp" in text and "LIMITED BY" in text, text
    assert all(len(line) <= 80 for line in text.splitlines()), text


@pytest.mark.skipif(TRIALS > 0, reason="the trials have all of them")
def test_users_of_nfs_are_named(box, spaces):
    """The client of the tests is root, whom the machine knows."""
    with transfer(spaces[1], box, "nfs", "read", file="file"):
        seen = trials(box, "nfs", 1)
    assert [one["user"] for one in seen] == ["root"], seen


@pytest.mark.skipif(TRIALS > 0, reason="the trials have all of them")
def test_transfers_are_kept_over_a_restart(place, spaces):
    (place / "kept").mkdir()
    daemon = up(place / "kept", spaces, [place / "kept" / "disk"], "single")
    try:
        fill(spaces, daemon, "file", 32)
        assert "No transfer" in daemon.run("top", "--yesterday", check=True).stdout
        with shaped(spaces[0], *TBF), transfer(spaces[1], daemon, "webdav", "read", file="file"):
            trials(daemon, "webdav", 1)
        daemon.stop()
        daemon.start()
        kept = json.loads(daemon.run("top", "--yesterday", "--json", check=True).stdout)
        assert [(one["address"], one["door"], one["does"]) for one in kept] == [(THERE, "webdav", "read")], kept
        text = " ".join(daemon.run("top", "--yesterday", check=True).stdout.split())
        assert f"from {THERE} (keeper) over webdav was limited by" in text, text
    finally:
        daemon.end()


@pytest.mark.skipif(TRIALS > 0, reason="the trials have all of them")
def test_looks_cost_little(box, spaces):
    """Live for some seconds beside an idle connection: under a hundredth of a core, and the command itself apart."""
    def used():
        with open(f"/proc/{box.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    fill(spaces, box, "other", 1)
    before, began = used(), time.monotonic()
    for _ in range(6):
        box.run("top", "--once", "--json", check=True)
    share = (used() - before) / (time.monotonic() - began)
    assert share < 0.02, share


if TRIALS:
    @pytest.mark.alone
    @pytest.mark.timeout(3600)
    @pytest.mark.parametrize("name, door", ALL)
    def test_trials(box, spaces, name, door):
        right, wrong = run(box, spaces, name, door, TRIALS)
        print(f"TRIALS {name} | {door} | {right}/{TRIALS} | {wrong[:2]}")
        assert right >= TRIALS * 0.9, wrong

    @pytest.mark.alone
    @pytest.mark.timeout(3600)
    def test_trials_on_a_slow_disk(place, spaces):
        results = {}
        with slow_disk(place, spaces) as box:
            for door in DOORS:
                for deed, file in (("read", "file"), ("write", "new")):
                    with transfer(spaces[1], box, door, deed, file=file):
                        seen = trials(box, door, TRIALS, settle_s=8 if deed == "write" else 2)
                    results[door, deed] = judge(seen, {"disks"})
            with transfer(spaces[1], box, "nfs", "sync", block=64 << 10, depth=16, file="new"):
                results["nfs", "full journal"] = judge(trials(box, "nfs", TRIALS, settle_s=15), {"durability"})
        for (door, deed), (right, wrong) in results.items():
            print(f"TRIALS throttled disk, {deed} | {door} | {right}/{TRIALS} | {wrong[:2]}")
        assert all(right >= TRIALS * 0.9 for right, _ in results.values()), results
