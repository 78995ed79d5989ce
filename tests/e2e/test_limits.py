"""Large files, large directories, full disks, long runs, and idleness.

LARDER_ENTRIES sets the size of the large directory (100,000), LARDER_SOAK_S the length of the soak (60 s), LARDER_PASSES how often
a nearly full volume is overwritten (4).
"""

import errno
import json
import os
import random
import shutil
import subprocess
import threading
import time
from pathlib import Path

import nfs3
import pytest
from conftest import client, payload
from larderd import Larder, StartFailed
from waiting import wait_for
from nfs3 import CREATE, DQUOT, FILE_SYNC, NOSPC, REMOVE, UNSTABLE, WRITE, NfsError, opaque, sattr, u32, u64

ENTRIES = int(os.environ.get("LARDER_ENTRIES", "100000"))
SOAK_S = float(os.environ.get("LARDER_SOAK_S", "60"))
PASSES = int(os.environ.get("LARDER_PASSES", "4"))


def test_a_sparse_file_of_100_gb(fresh):
    size, rng = 100_000_000_000, random.Random(5)
    with client(fresh) as nfs:
        free = nfs.fsstat(nfs.root).free_bytes
        file = nfs.create(nfs.root, "sparse").handle
        nfs.setattr(file, size=size)
        marks = {rng.randrange(0, size - 70_000): rng.randbytes(rng.choice((1, 4096, 65_536))) for _ in range(40)}
        for at, data in marks.items():
            nfs.write(file, at, data)
        nfs.commit(file)
    assert fresh.stop() == 0
    fresh.start()
    with client(fresh) as nfs:
        a = nfs.getattr(file)
        assert a.size == size and a.used < 64 << 20, f"{a.used >> 20} MiB used"
        assert free - nfs.fsstat(nfs.root).free_bytes < 256 << 20
        for at, data in marks.items():
            assert nfs.read(file, at, len(data)).data == data, f"at {at}"
        assert nfs.read(file, size - 10, 100).eof and nfs.read(file, size // 3, 1 << 20).data.count(0) >= (1 << 20) - 70_000
        started = time.monotonic()
        nfs.setattr(file, size=0)
        nfs.remove(nfs.root, "sparse")
        assert time.monotonic() - started < 10


def smb_count(daemon, folder):
    """Entries of a folder as smbclient lists them."""
    done = subprocess.run(
        ["smbclient", f"//127.0.0.1/{daemon.share}", "-p", str(daemon.smb_port), "-U", f"{daemon.user}%{daemon.password}",
         "-m", "SMB3", "-c", f"ls {folder}\\*"],
        capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return sum(1 for line in done.stdout.splitlines() if line.startswith("  entry-"))


def test_a_large_directory(fresh):
    with client(fresh, timeout_s=300) as nfs:
        home = nfs.mkdir(nfs.root, "large").handle
        create = lambda n: (CREATE, opaque(home) + opaque(f"entry-{n:07}") + u32(0) + sattr(mode=0o644))
        started = time.monotonic()
        for first in range(0, ENTRIES, 10_000):
            assert set(nfs.pipeline([create(n) for n in range(first, min(first + 10_000, ENTRIES))], depth=128)) == {0}
        made_s = time.monotonic() - started
        started = time.monotonic()
        names = [e.name for e in nfs.list(home)]
        listed_s = time.monotonic() - started
        assert len(names) == len(set(names)) == ENTRIES
        assert sum(1 for _ in nfs.list(home, plus=True)) == ENTRIES
        for n in random.Random(3).sample(range(ENTRIES), 200):
            nfs.lookup(home, f"entry-{n:07}")
        started = time.monotonic()
        for n in range(100):
            nfs.create(home, f"late-{n}")
        assert time.monotonic() - started < 10, "creating is slow in a large directory"
        for n in range(100):
            nfs.remove(home, f"late-{n}")
    assert smb_count(fresh, "large") == ENTRIES
    print(f"{ENTRIES} entries made in {made_s:.1f} s, listed in {listed_s:.1f} s, {fresh.rss_bytes() >> 20} MiB resident")
    assert fresh.stop() == 0
    fresh.start()
    with client(fresh, timeout_s=300) as nfs:
        assert len(nfs.list(home)) == ENTRIES
        remove = lambda n: (REMOVE, opaque(home) + opaque(f"entry-{n:07}"))
        assert set(nfs.pipeline([remove(n) for n in range(min(ENTRIES, 20_000))], depth=128)) == {0}


def fill(nfs, home, seed, kept, limit=2000):
    """Files of 1 MiB until there is no room; `kept` gets what was committed. Returns the status of the refusal, or 0."""
    for n in range(limit):
        name, data = f"fill{seed}-{n}", payload(1 << 20, seed * 10_000 + n)
        try:
            nfs.write(nfs.create(home, name).handle, 0, data, FILE_SYNC)
        except NfsError as error:
            return error.status
        kept[name] = data
    return 0


def assert_kept(nfs, home, kept):
    for name, data in kept.items():
        assert nfs.read_all(nfs.lookup(home, name).handle) == data, f"{name} differs"


@pytest.mark.long
def test_disk_full(loop_disks, folder):
    """Full in the middle of writing: a clean NOSPC, nothing lost, and room again after deleting."""
    disks = loop_disks(320, 320, 320)
    daemon = Larder([d.folder for d in disks], folder / "data").start()
    kept = {}
    try:
        with client(daemon, timeout_s=120) as nfs:
            home = nfs.mkdir(nfs.root, "d").handle
            promised = nfs.fsstat(nfs.root).available_bytes
            assert fill(nfs, home, 1, kept) == NOSPC
            assert len(kept) << 20 > promised * 0.6, f"full after {len(kept)} MiB of {promised >> 20} MiB promised"
            assert_kept(nfs, home, kept)
            # Flushed and collected, there may be some room again: what status and statfs promise can be written.
            time.sleep(4)
            promised = nfs.fsstat(nfs.root).available_bytes
            assert abs(daemon.status()["available_bytes"] - promised) < 2 << 20
            before = len(kept)
            assert fill(nfs, home, 2, kept) == NOSPC
            # Whole files of 1 MiB are counted, and a file needs room for its rows too: the last two MiB may hold none.
            assert len(kept) - before >= (promised >> 20) * 0.6 - 2, f"{len(kept) - before} of {promised >> 20} MiB promised"
            assert_kept(nfs, home, kept)
            # An unstable write may be taken and refused at COMMIT; either way it says so.
            try:
                file = nfs.create(home, "unstable").handle
                nfs.write_all(file, payload(8 << 20, 9))
            except NfsError as error:
                assert error.status == NOSPC
        assert daemon.stop() == 0
        daemon.start()
        with client(daemon, timeout_s=120) as nfs:
            assert_kept(nfs, home, kept)
            for name in sorted(kept)[: len(kept) // 2]:
                nfs.remove(home, name)
                del kept[name]
            end = time.monotonic() + 60
            while nfs.fsstat(nfs.root).available_bytes < 20 << 20 and time.monotonic() < end:
                time.sleep(0.5)
            data = payload(10 << 20, 77)
            nfs.write_all(nfs.create(home, "room-again").handle, data)
            assert nfs.read_all(nfs.lookup(home, "room-again").handle) == data
            assert_kept(nfs, home, kept)
        assert daemon.stop() == 0
        assert daemon.check().returncode == 0
    finally:
        daemon.end()


def test_snapshots_of_a_full_pool_are_destroyed(loop_disks, folder):
    """What they alone hold comes back, where nothing else gives room any more."""
    disks = loop_disks(128, 128, 128)
    daemon = Larder([d.folder for d in disks], folder / "data").start()
    kept = {}
    try:
        with client(daemon, timeout_s=120) as nfs:
            home = nfs.mkdir(nfs.root, "d").handle
            fill(nfs, home, 1, kept, limit=40)
            daemon.run("snap", "create", "files@first", check=True)
            for name in list(kept):
                nfs.remove(home, name)
                del kept[name]
            fill(nfs, home, 2, kept, limit=30)
            daemon.run("snap", "create", "files@second", check=True)
            assert fill(nfs, home, 3, kept) == NOSPC
            status = daemon.status()
            assert status["available_bytes"] < status["total_bytes"] * 0.05, status
            for name in sorted(kept)[:10]:
                nfs.remove(home, name)
                del kept[name]
            daemon.run("snap", "destroy", "files@first", check=True)
            daemon.run("snap", "destroy", "files@second", check=True)
            wait_for(lambda: daemon.status()["available_bytes"] > 30 << 20, told=lambda: str(daemon.status()))
            assert fill(nfs, home, 4, kept, limit=25) == 0
            assert_kept(nfs, home, kept)
        assert daemon.stop() == 0
        assert daemon.check().returncode == 0
    finally:
        daemon.end()


def test_a_full_pool_takes_what_room_was_reserved_for(loop_disks, folder):
    """Others fill the pool to the brim; what fallocate asked for can be written all the same, after kill -9 too."""
    disks, mib = loop_disks(320, 320, 320), 1 << 20
    mnt = folder / "mnt"
    mnt.mkdir()
    options = ["--mount", str(mnt), "--squash", "none"]
    daemon = Larder([d.folder for d in disks], folder / "data", extra=options).start()
    kept = {}
    try:
        fd = os.open(mnt / "reserved", os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(fd, 0, 100 * mib)
        assert os.fstat(fd).st_blocks * 512 == 100 * mib
        with client(daemon, timeout_s=120) as nfs:
            home = nfs.mkdir(nfs.root, "d").handle
            assert fill(nfs, home, 1, kept) == NOSPC
        # In any order and in odd pieces.
        data, rng = random.Random(3).randbytes(100 * mib), random.Random(4)
        cuts = sorted({0, 100 * mib, *(rng.randrange(100 * mib) for _ in range(300))})
        pieces = list(zip(cuts, cuts[1:]))
        rng.shuffle(pieces)
        for start, end in pieces[:100]:
            assert os.pwrite(fd, data[start:end], start) == end - start
        os.fsync(fd)
        daemon.kill()
        with pytest.raises(OSError):
            os.close(fd)
        daemon.start()
        with client(daemon, timeout_s=120) as nfs:
            assert fill(nfs, home, 2, kept) == NOSPC
        fd = os.open(mnt / "reserved", os.O_RDWR)
        assert os.fstat(fd).st_blocks * 512 >= 100 * mib
        for start, end in pieces[100:]:
            assert os.pwrite(fd, data[start:end], start) == end - start
        os.fsync(fd)
        assert os.pread(fd, 50 * mib, 0) + os.pread(fd, 50 * mib, 50 * mib) == data
        os.close(fd)
        with client(daemon, timeout_s=120) as nfs:
            assert_kept(nfs, home, kept)
        assert daemon.stop() == 0
        checked = daemon.check()
        assert checked.returncode == 0, checked.stdout
    finally:
        daemon.end()
        subprocess.run(["umount", "-l", str(mnt)], stderr=subprocess.DEVNULL, check=False)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_four_fifths_full_and_overwritten_again_and_again(loop_disks, folder):
    """At random, in pieces down to 4 KiB: nobody is refused, nobody waits long, and it reads back."""
    disks, rng = loop_disks(128, 128, 128), random.Random(8)
    noise = rng.randbytes(16 << 20)
    daemon = Larder([d.folder for d in disks], folder / "data").start()
    try:
        with client(daemon, timeout_s=120) as nfs:
            whole = nfs.fsstat(nfs.root).total_bytes * 4 // 5 >> 20 << 20
            file, content = nfs.create(nfs.root, "f").handle, bytearray(rng.randbytes(whole))
            nfs.write_all(file, content)
            written, slowest_s, left = 0, 0, []
            while written < PASSES * whole:
                calls, before = [], written
                # Replies may come in any order: pieces of one batch do not overlap.
                for block in rng.sample(range(whole >> 16), 128):
                    size = rng.choice((4096, 16_384, 65_536))
                    at, of = (block << 16) + rng.randrange(0, (65_536 - size >> 12) + 1) * 4096, rng.randrange(0, len(noise) - size)
                    content[at : at + size] = data = noise[of : of + size]
                    calls.append((WRITE, opaque(file) + u64(at) + u32(size) + u32(UNSTABLE) + opaque(data)))
                    written += size
                started = time.monotonic()
                assert set(nfs.pipeline(calls)) == {0}, f"refused after {written >> 20} MiB; left before: {left}"
                slowest_s = max(slowest_s, time.monotonic() - started)
                if written // whole > before // whole:
                    left.append(nfs.fsstat(nfs.root).available_bytes >> 20)
            nfs.commit(file)
            print(f"{written >> 20} MiB, the slowest 128 writes {slowest_s:.1f} s, MiB left after each time: {left}")
            assert slowest_s < 20 and nfs.read_all(file) == content
        assert daemon.stop() == 0
        assert daemon.check().returncode == 0
    finally:
        daemon.end()


def fill_filesystem(disk):
    """Somebody else takes all that is left."""
    with open(disk.mount / "others", "ab", buffering=0) as others:
        for size in (1 << 20, 4096, 512):
            try:
                while others.write(bytes(size)) == size:
                    pass
            except OSError:
                pass


def test_filesystems_that_others_have_filled(loop_disks, folder):
    """A full pool opens, reads and deletes; where nothing at all is left it says so at once."""
    disks = loop_disks(96, 96, 96)
    daemon = Larder([d.folder for d in disks], folder / "data").start()
    data = payload(8 << 20, 5)
    try:
        with client(daemon) as nfs:
            for name in ("kept", "gone"):
                nfs.write_all(nfs.create(nfs.root, name).handle, data)
        assert daemon.stop() == 0
        for _ in range(3):
            [fill_filesystem(disk) for disk in disks]
            daemon.start(timeout_s=20)
            with client(daemon) as nfs:
                assert nfs.read_all(nfs.lookup(nfs.root, "kept").handle) == data
            assert daemon.stop() == 0
        daemon.start(timeout_s=20)
        with client(daemon) as nfs:
            nfs.remove(nfs.root, "gone")
            end = time.monotonic() + 30
            while disks[0].free_bytes() < 2 << 20:
                assert time.monotonic() < end, "deleting makes no room"
                time.sleep(0.2)
            assert nfs.read_all(nfs.lookup(nfs.root, "kept").handle) == data
        assert daemon.stop() == 0
        for disk in disks:
            [file.unlink() for file in disk.folder.glob("larder.reserve-*")]
            fill_filesystem(disk)
        begun = time.monotonic()
        with pytest.raises(StartFailed) as refused:
            daemon.start(timeout_s=30)
        assert time.monotonic() - begun < 20
        said = str(refused.value)
        assert "is full" in said and str(disks[1].folder) in said, said
        assert "larder recover" not in said and "take other files off" in said, said
        done = daemon.check()
        assert done.returncode == 1 and "take other files off" in done.stderr, done
    finally:
        daemon.end()


def take_all_inodes(disk):
    """Somebody else makes so many files that no more can be made. Returns them."""
    taken = disk.mount / "others"
    taken.mkdir(exist_ok=True)
    try:
        for n in range(1 << 20):
            (taken / f"{n}").touch(exist_ok=False)
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    assert os.statvfs(disk.mount).f_ffree == 0
    return taken


@pytest.mark.parametrize("layout,full", [("mirror", [1]), ("raidz1", [1, 2])])
def test_a_disk_without_inodes_costs_nothing_its_redundancy(loop_disks, folder, layout, full):
    """Disks with free bytes and without inodes are full. What is acknowledged survives the loss of the disk that has room."""
    disks = loop_disks(*[128] * (len(full) + 1))
    daemon = Larder([disk.folder for disk in disks], folder / "data", layout=layout).start()
    acknowledged, refused = {}, []

    def write(nfs, name, size):
        data = payload(size, len(name) + size)
        try:
            nfs.write_all(nfs.create(nfs.root, name).handle, data, all_taken=True)
            acknowledged[name] = data
        except NfsError as error:
            assert error.status in (NOSPC, DQUOT), error
            refused.append(name)

    owed = lambda: daemon.status()["owed_objects"]
    try:
        with client(daemon, timeout_s=300) as nfs:
            write(nfs, "before", 3 << 20)
            taken = [take_all_inodes(disks[n]) for n in full]
            for n in range(20):
                write(nfs, f"small{n}", 20_000)
            for n in range(6):
                write(nfs, f"large{n}", 5 << 20)
            assert refused, "no more data than the reserve and the journal have room for"
            assert owed() == 0, daemon.status()
            [shutil.rmtree(folder) for folder in taken]
            # Room again: whatever waits is stored, and new files as well.
            wait_for(lambda: write(nfs, "after", 3 << 20) or "after" in acknowledged, 60)
            assert daemon.run("snap", "create", "files@after").returncode == 0
            wait_for(lambda: owed() == 0, 60)
            daemon.run("pool", "status", "-x", check=True)
        assert daemon.stop() == 0
        disks[0].unplug()
        daemon.start()
        with client(daemon, timeout_s=60) as nfs:
            for name, data in acknowledged.items():
                assert nfs.read_all(nfs.lookup(nfs.root, name).handle) == data, name
        assert "files@after" in daemon.run("snap", "list", check=True).stdout
        assert daemon.stop() == 0
    finally:
        daemon.end()


@pytest.mark.long
def test_unequal_disks_are_used_to_the_full(loop_disks, folder):
    """Mirrored 1 : 2 : 3 holds as much as the largest disk: 3."""
    disks = loop_disks(300, 600, 900)
    daemon = Larder([d.folder for d in disks], folder / "data", layout="mirror").start()
    kept = {}
    try:
        with client(daemon, timeout_s=120) as nfs:
            home = nfs.mkdir(nfs.root, "d").handle
            promised = nfs.fsstat(nfs.root).available_bytes
            assert promised > 600 << 20, f"{promised >> 20} MiB promised of 900"
            assert fill(nfs, home, 2, kept) == NOSPC
            assert len(kept) << 20 > promised * 0.93, f"full after {len(kept)} MiB of {promised >> 20} MiB promised"
            # What was held for data on its way comes back when it is stored: what is said to be available can be written.
            for again in range(5):
                available = nfs.fsstat(home).available_bytes
                if available < 4 << 20:
                    break
                assert fill(nfs, home, 30 + again, kept) == NOSPC
            assert available < 4 << 20, f"full, and still {available >> 20} MiB are available"
            # What is deleted can be used at once, and comes back although nobody writes.
            for name in sorted(kept)[:100]:
                nfs.remove(home, name)
                del kept[name]
            assert fill(nfs, home, 4, kept, limit=60) == 0
            for name in sorted(kept)[:300]:
                nfs.remove(home, name)
                del kept[name]
            end = time.monotonic() + 20
            while sum(d.used_bytes() for d in disks) > 3 * len(kept) << 20 and time.monotonic() < end:
                time.sleep(0.2)
            assert sum(d.used_bytes() for d in disks) <= 3 * len(kept) << 20
        assert daemon.stop() == 0
        daemon.start()
        with client(daemon, timeout_s=120) as nfs:
            assert_kept(nfs, home, kept)
    finally:
        daemon.end()


def test_quota(fresh):
    volume = fresh.run("volume", "list", "--json", check=True)
    name = json.loads(volume.stdout)[0]["name"]
    fresh.run("volume", "set", name, "--quota", "40M", check=True)
    kept = {}
    with client(fresh) as nfs:
        home = nfs.mkdir(nfs.root, "d").handle
        assert fill(nfs, home, 3, kept, limit=80) in (DQUOT, NOSPC)
        assert 20 <= len(kept) <= 42
        assert_kept(nfs, home, kept)
    fresh.run("volume", "set", name, "--quota", "none", check=True)
    with client(fresh) as nfs:
        nfs.write_all(nfs.create(nfs.root, "after").handle, payload(4 << 20))


def test_a_quota_is_of_what_files_hold(fresh):
    """Overwriting and replacing files takes no more of a quota than they took before."""
    fresh.run("volume", "set", "tank/files", "--quota", "40M", check=True)
    data = payload(1 << 20)
    with client(fresh) as nfs:
        file = nfs.create(nfs.root, "file").handle
        for n in range(128):
            nfs.write(file, (n % 32) << 20, data)
        nfs.create(nfs.root, "file", size=0)
        for n in range(38):
            nfs.write(file, n << 20, data)
        nfs.commit(file)
        with pytest.raises(NfsError) as error:
            for n in range(38, 42):
                nfs.write(file, n << 20, data)
        assert error.value.status == DQUOT
        nfs.remove(nfs.root, "file")
        file = nfs.create(nfs.root, "next").handle
        for n in range(38):
            nfs.write(file, n << 20, data)


def process_figures(pid):
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return {
        "rss_mib": int(status["VmRSS"].split()[0]) / 1024, "threads": int(status["Threads"]),
        "fds": len(os.listdir(f"/proc/{pid}/fd")), "cpu_s": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
    }


@pytest.mark.long
def test_soak_with_stable_memory(folder, session_seed):
    """A day's kinds of work, compressed: create, overwrite, read, rename, list, delete by four clients."""
    # A small budget, so that caches are full well before the first half is over.
    daemon = Larder([folder / f"disk{n}" for n in (1, 2, 3)], folder / "data", extra=["--memory", "256M"]).start()
    stop, failures, operations = threading.Event(), [], [0] * 4

    def work(n):
        rng, model = random.Random(f"{session_seed}-{n}"), {}
        try:
            with client(daemon) as nfs:
                home = nfs.mkdir(nfs.root, f"client{n}").handle
                while not stop.is_set():
                    operations[n] += 1
                    name = f"f{rng.randrange(200)}"
                    kind = rng.random()
                    if kind < 0.5 or name not in model:
                        data = rng.randbytes(rng.choice((100, 4096, 60_000, 700_000)))
                        file = nfs.create(home, name, size=0).handle
                        nfs.write_all(file, data, chunk=131_072)
                        model[name] = data
                    elif kind < 0.8:
                        assert nfs.read_all(nfs.lookup(home, name).handle) == model[name], name
                    elif kind < 0.9:
                        nfs.remove(home, name)
                        del model[name]
                    elif kind < 0.95:
                        nfs.rename(home, name, home, "renamed")
                        nfs.rename(home, "renamed", home, name)
                    else:
                        assert {e.name.decode() for e in nfs.list(home)} == set(model)
        except Exception as error:  # told below
            failures.append(f"client {n}: {error!r}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    samples = []
    try:
        for thread in threads:
            thread.start()
        end = time.monotonic() + SOAK_S
        while time.monotonic() < end and not failures:
            time.sleep(0.5)
            samples.append(process_figures(daemon.pid))
        stop.set()
        for thread in threads:
            thread.join(60)
        assert not failures, (failures, session_seed)
        half = len(samples) // 2
        early, late = (max(s["rss_mib"] for s in part) for part in (samples[:half], samples[half:]))
        print(f"{sum(operations)} operations, resident {early:.0f} then {late:.0f} MiB, {samples[-1]['fds']} files open")
        assert late < early * 1.25 + 48, f"resident memory grew from {early:.0f} to {late:.0f} MiB"
        assert late < 900, f"{late:.0f} MiB resident with a budget of 256 MiB"
        # Shard files are kept open for reading, up to some hundreds.
        assert samples[-1]["fds"] < 700 and samples[-1]["threads"] < samples[half]["threads"] + 50
        assert daemon.stop() == 0
        assert daemon.check().returncode == 0
    finally:
        stop.set()
        daemon.end()


def stamps(daemon):
    """Length and time of change of every file on the disks: a write that goes past the cache shows here, too."""
    files = (path for disk in daemon.disks for path in Path(disk).rglob("*"))
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in files}


def test_idle_is_idle(fresh):
    """Nobody asks for anything: no disk writes and next to no CPU, so that disks can sleep."""
    with client(fresh) as nfs:
        nfs.write_all(nfs.create(nfs.root, "a").handle, payload(8 << 20))
        time.sleep(12)  # what was put off may be done now
        before, disks_before = process_figures(fresh.pid), stamps(fresh)
        time.sleep(10)
        after, disks_after = process_figures(fresh.pid), stamps(fresh)
    # The kernel's count of written bytes would have the lines of the log in it.
    assert disks_after == disks_before and len(disks_after) > 10
    assert after["cpu_s"] - before["cpu_s"] <= 0.1, f"{after['cpu_s'] - before['cpu_s']:.2f} s of CPU in 10 s"
