"""The mount as a mount: coherent with other protocols, unmounted cleanly, dead without a hang."""

import errno
import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from waiting import wait_for


@pytest.fixture
def nfs(daemon):
    if daemon is None:
        pytest.fail("needs a larder: run without POSIX_DIR")
    from nfs3 import Nfs3

    client = Nfs3.mount("127.0.0.1", daemon.nfs_port, daemon.export)
    yield client
    client.close()


def handle_of(nfs, path):
    """By a path below the mount."""
    handle = nfs.root
    for part in path.parts:
        handle = nfs.lookup(handle, part.encode()).handle
    return handle


def error_of(action):
    try:
        action()
    except OSError as error:
        return error.errno
    return None


def test_what_nfs_changes_is_seen_at_once(here, mount, nfs):
    top = handle_of(nfs, here.relative_to(mount))
    for n in range(100):
        assert not (here / "a").exists()  # the absence is cached now
        handle = nfs.create(top, b"a", mode=0o644).handle
        assert (here / "a").exists(), n
        assert (here / "a").read_bytes() == b""
        nfs.write(handle, 0, b"one", stable=2)
        assert (here / "a").read_bytes() == b"one", n
        nfs.write(handle, 0, b"TWO", stable=0)
        assert (here / "a").read_bytes() == b"TWO", n
        nfs.setattr(handle, mode=0o600)
        assert (here / "a").stat().st_mode & 0o777 == 0o600, n
        nfs.setattr(handle, size=1)
        assert (here / "a").stat().st_size == 1, n
        assert (here / "a").read_bytes() == b"T", n
        nfs.rename(top, b"a", top, b"b")
        assert not (here / "a").exists() and (here / "b").exists(), n
        assert os.listdir(here) == ["b"]
        nfs.remove(top, b"b")
        assert not (here / "b").exists(), n


def test_pages_of_an_open_file_follow_nfs(here, mount, nfs):
    data = bytearray(random.Random(1).randbytes(1 << 20))
    (here / "f").write_bytes(data)
    handle = handle_of(nfs, (here / "f").relative_to(mount))
    with open(here / "f", "rb", buffering=0) as f:
        assert os.pread(f.fileno(), len(data), 0) == data
        for n in range(200):
            offset = (0, 5000, 777_777, len(data) - 10)[n % 4]
            told = b"%08d" % n
            nfs.write(handle, offset, told, stable=0)
            data[offset : offset + 8] = told
            assert os.pread(f.fileno(), len(data), 0) == data, n


def test_nfs_sees_what_the_mount_wrote(here, mount, nfs):
    (here / "f").write_bytes(b"through the kernel")
    handle = handle_of(nfs, (here / "f").relative_to(mount))
    assert nfs.read(handle, 0, 100).data == b"through the kernel"


def test_appends_of_the_mount_and_of_nfs_do_not_overwrite(here, mount, nfs):
    fd = os.open(here / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    handle = handle_of(nfs, (here / "log").relative_to(mount))
    expected = b""
    for n in range(100):
        line = f"mount {n}\n".encode()
        os.write(fd, line)
        expected += line
        line = f"nfs {n}\n".encode()
        nfs.write(handle, len(expected), line, stable=0)
        expected += line
    os.close(fd)
    assert (here / "log").read_bytes() == expected


# From here on each test has a daemon of its own.
def test_a_killed_server_does_not_hang_its_users(own):
    fd = os.open(own.mnt / "f", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"kept")
    os.fsync(fd)
    stuck = []

    def busy():
        while True:
            error = error_of(lambda: (own.mnt / "g").write_bytes(b"x" * 100_000))
            if error:
                stuck.append(error)
                return

    worker = threading.Thread(target=busy, daemon=True)
    worker.start()
    time.sleep(0.3)
    own.kill()
    worker.join(10)
    assert not worker.is_alive(), "a write hangs after the server died"
    dead = (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO)
    assert stuck[0] in dead
    assert error_of(lambda: os.fsync(fd) or os.pread(fd, 10, 0)) in dead
    assert error_of(lambda: os.stat(own.mnt / "f")) in dead
    assert error_of(lambda: os.close(fd)) in (None, *dead)
    own.start()
    assert (own.mnt / "f").read_bytes() == b"kept", "the next start mounts there again"


def test_a_clean_stop_unmounts_and_keeps_everything(own):
    (own.mnt / "f").write_bytes(b"unsynced " * 1000)
    assert own.stop() == 0
    assert not os.path.ismount(own.mnt) and os.listdir(own.mnt) == []
    own.start()
    assert (own.mnt / "f").read_bytes() == b"unsynced " * 1000


def test_a_clean_stop_does_not_wait_for_open_files(own):
    fd = os.open(own.mnt / "f", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"held open")
    started = time.monotonic()
    assert own.stop() == 0
    assert time.monotonic() - started < 25
    assert not os.path.ismount(own.mnt)
    assert error_of(lambda: os.pread(fd, 10, 0) and os.fstat(fd) and os.write(fd, b"x")) is not None
    assert error_of(lambda: os.close(fd)) in (None, errno.ENOTCONN, errno.ECONNABORTED)
    own.start()
    assert (own.mnt / "f").read_bytes() == b"held open"


def test_umount_by_hand(own):
    (own.mnt / "f").write_bytes(b"x")
    subprocess.run(["umount", str(own.mnt)], check=True)
    assert not os.path.ismount(own.mnt)
    assert own.stop() == 0


def test_umount_by_command_keeps_everything(own):
    (own.mnt / "f").write_bytes(b"unsynced " * 1000)
    own.run("umount", own.mnt, check=True)
    assert not os.path.ismount(own.mnt)
    own.kill()
    own.start()
    assert (own.mnt / "f").read_bytes() == b"unsynced " * 1000


def held_elsewhere(mnt):
    """A process of another mount namespace, in which the mount is too."""
    holder = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-c", "echo; exec sleep 600"], stdout=subprocess.PIPE)
    holder.stdout.readline()
    assert f" {mnt} " in Path(f"/proc/{holder.pid}/mountinfo").read_text()
    return holder


def test_a_mount_held_by_another_namespace(own):
    """It is gone when this namespace's mount table says so: it can be made again, and stopping does not wait for the other."""
    (own.mnt / "f").write_bytes(b"kept")
    holders = [held_elsewhere(own.mnt)]
    try:
        subprocess.run(["umount", str(own.mnt)], check=True)
        done = own.run("umount", own.mnt)
        assert done.returncode != 0 and "not a mount" in done.stderr, done.stderr
        own.run("mount", own.mnt, check=True)
        assert (own.mnt / "f").read_bytes() == b"kept"
        holders.append(held_elsewhere(own.mnt))
        started = time.monotonic()
        own.run("umount", own.mnt, check=True)
        own.run("mount", own.mnt, check=True)
        assert own.stop() == 0
        assert time.monotonic() - started < 5, "each wait for the end of a mount that is held lasts 5 s"
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()


def test_the_end_of_a_mount_leaves_the_next_one_alone(own):
    """The kernel gives the next mount the number of the one that has just ended."""
    (own.mnt / "f").write_bytes(b"kept")
    for _ in range(10):
        subprocess.run(["umount", str(own.mnt)], check=True)
        own.run("mount", own.mnt, check=True)
        assert (own.mnt / "f").read_bytes() == b"kept"
        device = os.stat(own.mnt).st_dev
    time.sleep(0.3)
    assert (os.stat(own.mnt).st_dev, (own.mnt / "f").read_bytes()) == (device, b"kept")


def test_a_stopping_daemon_leaves_the_mount_of_another(own, tmp_path):
    from larderd import Larder

    other = Larder([tmp_path / "other-disk"], tmp_path / "other", layout="stripe", extra=["--mount", str(own.mnt)]).start()
    try:
        (own.mnt / "of-the-other").write_bytes(b"kept")
        assert own.stop() == 0
        assert (own.mnt / "of-the-other").read_bytes() == b"kept"
        assert other.stop() == 0, other.log()
    finally:
        other.end()


def test_mount_options(own, tmp_path):
    (own.mnt / "f").write_bytes(b"x")
    os.utime(own.mnt / "f", (1, 1))
    second = tmp_path / "second"
    second.mkdir()
    done = own.run("mount", "-o", "noatime,shiny", second)
    assert done.returncode == 2 or done.returncode == 1
    assert "'shiny' is not a mount option of larder: use ro, rw, noatime" in done.stderr
    own.run("mount", "-o", "noatime,noexec,nosuid,nodev", second, check=True)
    words = next(row.split()[3].split(",") for row in Path("/proc/mounts").read_text().splitlines() if f" {second} " in row)
    assert {"noatime", "noexec", "nosuid", "nodev", "rw", "allow_other"} <= set(words), words
    (second / "f").read_bytes()
    assert os.stat(second / "f").st_atime == 1
    own.run("umount", second, check=True)
    own.run("mount", "-o", "ro", second, check=True)
    assert error_of(lambda: (second / "g").write_bytes(b"x")) == errno.EROFS


def test_options_for_access_times(own, tmp_path):
    """Each read moves them with strictatime; directories' stay with nodiratime."""
    second = tmp_path / "second"
    second.mkdir()
    (own.mnt / "d").mkdir()
    (own.mnt / "d" / "f").write_bytes(b"x")
    old = 1_000_000_000 * 10**9

    def moved(options, past=old):
        own.run("mount", "-o", options, second, check=True)
        for name in ("d", "d/f"):
            os.utime(second / name, ns=(past, os.stat(second / name).st_mtime_ns))
        (second / "d/f").read_bytes()
        os.listdir(second / "d")
        done = tuple(os.stat(second / name).st_atime_ns != past for name in ("d", "d/f"))
        own.run("umount", second, check=True)
        return done

    assert moved("relatime") == (True, True)
    assert moved("nodiratime") == (False, True)
    assert moved("noatime") == (False, False)
    recently = time.time_ns() - 10**9
    assert moved("relatime", recently + 3600 * 10**9) == (False, False)
    assert moved("strictatime", recently + 3600 * 10**9) == (True, True)
    assert moved("strictatime,nodiratime", recently + 3600 * 10**9) == (False, True)


def test_nothing_of_a_snapshot_is_changed(own, tmp_path):
    """By root, for whom no mode is in the way."""
    (own.mnt / "d").mkdir()
    (own.mnt / "d" / "f").write_bytes(b"then")
    os.symlink("f", own.mnt / "d" / "l")
    os.setxattr(own.mnt / "d" / "f", "user.a", b"1")
    own.run("snap", "create", "files@one", check=True)
    (own.mnt / "now").write_bytes(b"now")
    past = own.mnt / ".snapshots" / "one" / "d"
    assert (past / "f").read_bytes() == b"then"
    for name, act in {
        "open for writing": lambda: os.open(past / "f", os.O_WRONLY),
        "open for both": lambda: os.open(past / "f", os.O_RDWR),
        "open and truncate": lambda: os.open(past / "f", os.O_RDWR | os.O_TRUNC),
        "open and append": lambda: os.open(past / "f", os.O_WRONLY | os.O_APPEND),
        "open past the cache": lambda: os.open(past / "f", os.O_RDWR | os.O_DIRECT),
        "open or make": lambda: os.open(past / "f", os.O_RDWR | os.O_CREAT),
        "make": lambda: os.open(past / "g", os.O_RDWR | os.O_CREAT),
        "make without a name": lambda: os.open(past, os.O_RDWR | os.O_TMPFILE),
        "truncate": lambda: os.truncate(past / "f", 0),
        "setxattr": lambda: os.setxattr(past / "f", "user.a", b"2"),
        "removexattr": lambda: os.removexattr(past / "f", "user.a"),
        "utime": lambda: os.utime(past / "f"),
        "chmod": lambda: os.chmod(past / "f", 0o600),
        "chown": lambda: os.chown(past / "f", 1, 1),
        "chmod of a folder": lambda: os.chmod(past, 0o700),
        "chmod of the snapshot": lambda: os.chmod(past.parent, 0o700),
        "chmod of all snapshots": lambda: os.chmod(own.mnt / ".snapshots", 0o700),
        "link within": lambda: os.link(past / "f", past / "g"),
        "link into": lambda: os.link(own.mnt / "now", past / "g"),
        "rename within": lambda: os.rename(past / "f", past / "g"),
        "rename into": lambda: os.rename(own.mnt / "now", past / "g"),
        "rename over": lambda: os.rename(own.mnt / "now", past / "f"),
        "rename out": lambda: os.rename(past / "f", own.mnt / "g"),
        "remove": lambda: os.unlink(past / "f"),
        "rmdir": lambda: os.rmdir(past),
        "mkdir": lambda: os.mkdir(past / "new"),
        "mkdir beside snapshots": lambda: os.mkdir(own.mnt / ".snapshots" / "new"),
        "mkfifo": lambda: os.mkfifo(past / "fifo"),
        "symlink": lambda: os.symlink("x", past / "link"),
    }.items():
        assert error_of(act) == errno.EROFS, f"{name}: {errno.errorcode.get(error_of(act))}"
    assert (past / "f").read_bytes() == b"then" and os.listdir(past) == ["f", "l"]


def test_listed_snapshots_are_no_part_of_the_tree(own, tmp_path):
    """Programs that stay on one filesystem do not walk through the past."""
    second = tmp_path / "second"
    second.mkdir()
    (own.mnt / "f").write_bytes(os.urandom(1 << 20))
    own.run("mount", "-o", "snapshots", second, check=True)
    assert os.listdir(second) == ["f"], "there are none yet"
    for n in range(5):
        own.run("snap", "create", f"files@s{n}", check=True)
    assert sorted(os.listdir(second)) == [".snapshots", "f"]
    assert sorted(os.listdir(second / ".snapshots")) == [f"s{n}" for n in range(5)]
    assert (second / ".snapshots" / "s3" / "f").read_bytes() == (own.mnt / "f").read_bytes()
    assert {entry.name: entry.is_symlink() for entry in os.scandir(second)} == {".snapshots": True, "f": False}
    out = lambda *words: subprocess.run(words, capture_output=True, text=True, check=True, cwd=second).stdout
    assert out("find", ".", "-xdev").split() == out("find", ".").split() == [".", "./f", "./.snapshots"]
    assert int(out("du", "-xsk", ".").split()[0]) < 2048
    out("rsync", "-ax", ".", f"{tmp_path}/copy/")
    assert sorted(os.listdir(tmp_path / "copy")) == [".snapshots", "f"] and os.path.islink(tmp_path / "copy" / ".snapshots")
    assert "total" in out("ls", "-la", ".")
    for act in (lambda: os.unlink(second / ".snapshots"), lambda: os.rename(second / ".snapshots", second / "x"),
                lambda: os.utime(second / ".snapshots", (1, 1), follow_symlinks=False),
                lambda: os.chown(second / ".snapshots", 1, 1, follow_symlinks=False)):
        assert error_of(act) == errno.EROFS
    assert os.listxattr(second / ".snapshots", follow_symlinks=False) == []


@pytest.fixture
def small(tmp_path):
    """A larder whose disks are small, mounted at `mnt`."""
    from larderd import Larder

    disks = [tmp_path / f"small{n}" for n in (1, 2, 3)]
    for disk in disks:
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", disk], check=True)
    (tmp_path / "mnt").mkdir()
    larder = Larder(disks, tmp_path / "data", extra=["--mount", str(tmp_path / "mnt"), "--squash", "none"]).start()
    larder.mnt = tmp_path / "mnt"
    yield larder
    larder.end()
    for place in (larder.mnt, *disks):
        subprocess.run(["umount", "-l", place], stderr=subprocess.DEVNULL)


def test_all_that_df_shows_can_be_allocated(small):
    room = os.statvfs(small.mnt)
    fd = os.open(small.mnt / "f", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, room.f_bavail * room.f_frsize)
    assert os.statvfs(small.mnt).f_bavail * room.f_frsize < 16 << 20
    # What was promised is there.
    block = os.urandom(1 << 20)
    for offset in range(0, 64 << 20, len(block)):
        assert os.pwrite(fd, block, offset) == len(block)
    os.fsync(fd)
    os.close(fd)
    os.unlink(small.mnt / "f")
    wait_for(lambda: os.statvfs(small.mnt).f_bavail > room.f_bavail * 9 // 10)


def test_a_mount_of_the_configuration_is_back_after_a_restart(own, tmp_path):
    second = tmp_path / "second"
    second.mkdir()
    own.run("mount", "--at-start", "-o", "ro", second, check=True)
    (own.mnt / "f").write_bytes(b"kept")
    assert own.stop() == 0
    own.start()
    assert (second / "f").read_bytes() == b"kept"
    assert error_of(lambda: (second / "g").write_bytes(b"x")) == errno.EROFS
    own.kill()
    own.start()
    assert (second / "f").read_bytes() == b"kept"
    own.run("umount", "--at-start", second, check=True)
    assert own.stop() == 0
    own.start()
    assert not os.path.ismount(second) and os.path.ismount(own.mnt)
    assert "[[mount]]" not in (own.data / "larder.toml").read_text()


def test_options_of_the_first_start_are_in_the_configuration(own):
    assert 'squash = "none"' in (own.data / "larder.toml").read_text()


def test_a_mount_in_use_is_not_taken_away_unasked(own):
    """It is said to be in use, and nothing has changed; when nobody uses it, the pool goes. A daemon of root may not look who does."""
    (own.mnt / "f").write_bytes(b"kept")
    in_folder = subprocess.Popen(["sleep", "600"], cwd=own.mnt)
    with_file = subprocess.Popen(["sleep", "600"], stdin=open(own.mnt / "f", "rb"))
    try:
        for words in (("pool", "export", "tank"), ("volume", "destroy", "files", "--yes"), ("umount", own.mnt)):
            done = own.run(*words)
            assert done.returncode != 0, words
            if os.geteuid() == 0:
                assert f"{own.mnt} is in use" in done.stderr, done.stderr
                continue
            for process in (in_folder, with_file):
                assert f"sleep (process {process.pid})" in done.stderr, done.stderr
            assert f"{own.mnt} is in use by" in done.stderr
        assert "larder pool export tank --force" in own.run("pool", "export", "tank").stderr
        assert "larder volume destroy tank/files --force" in own.run("volume", "destroy", "files", "--yes").stderr
        assert os.path.ismount(own.mnt) and (own.mnt / "f").read_bytes() == b"kept"
        (own.mnt / "g").write_bytes(b"written since")
        assert own.status()["state"] == "ONLINE"
    finally:
        for process in (in_folder, with_file):
            process.kill()
            process.wait()
    done = own.run("pool", "export", "tank")
    assert done.returncode == 0, done.stderr
    assert not os.path.ismount(own.mnt)


def test_export_by_force(own):
    fd = os.open(own.mnt / "f", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"kept")
    done = own.run("pool", "export", "tank", "--force")
    assert done.returncode == 0 and not os.path.ismount(own.mnt), done.stderr
    assert error_of(lambda: os.write(fd, b"x")) in (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO)
    error_of(lambda: os.close(fd))


def test_destroying_by_force(own):
    fd = os.open(own.mnt / "f", os.O_RDWR | os.O_CREAT)
    done = own.run("volume", "destroy", "files", "--yes", "--force")
    assert done.returncode == 0 and not os.path.ismount(own.mnt), done.stderr
    error_of(lambda: os.close(fd))
    assert "files" not in own.run("volume", "list", check=True).stdout


def test_umount_takes_the_remains_of_a_killed_server_away(own):
    # The kernel goes on telling the attributes that it has seen.
    os.stat(own.mnt)
    own.kill()
    assert error_of(lambda: os.statvfs(own.mnt)) == errno.ENOTCONN
    own.run("umount", own.mnt, check=True)
    assert os.listdir(own.mnt) == []


def test_fsynced_data_survives_kill(own):
    expected = {}
    for n in range(40):
        path = own.mnt / f"f{n}"
        data = random.Random(n).randbytes(1000 + n * 3000)
        with open(path, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        expected[path.name] = data
    os.mkdir(own.mnt / "dir")
    os.rename(own.mnt / "f0", own.mnt / "dir" / "moved")
    expected.pop("f0")
    # As on any local filesystem: names are durable with the directory, and what follows without fsync is a prefix of it.
    fd = os.open(own.mnt / "dir", os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)
    later = [f"later{n:03}" for n in range(200)]
    for name in later:
        os.close(os.open(own.mnt / "dir" / name, os.O_CREAT | os.O_WRONLY))
    own.process.send_signal(signal.SIGKILL)
    own.kill()
    own.start()
    found = sorted(os.listdir(own.mnt / "dir"))
    assert found[-1] == "moved", found
    assert found[:-1] == later[: len(found) - 1]
    for name, data in expected.items():
        assert Path(own.mnt / name).read_bytes() == data, name
