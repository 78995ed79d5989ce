"""Data and attributes of files: times, mappings, locks, appends, holes, extended attributes."""

import ctypes
import errno
import fcntl
import hashlib
import json
import mmap
import os
import random
import stat
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest
from users import ANN, BOB, outcome, run_as

LIBC = ctypes.CDLL(None, use_errno=True)
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16


def fallocate(fd, mode, offset, length):
    if LIBC.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def write(path, content=b"x"):
    with open(path, "wb") as f:
        f.write(content)


def times(path):
    st = os.lstat(path)
    return {"a": st.st_atime_ns, "m": st.st_mtime_ns, "c": st.st_ctime_ns}


def moved_by(path, action):
    """Which of the three times `action` moves, as a string such as "mc"."""
    before = times(path)
    time.sleep(0.012)
    action()
    after = times(path)
    return "".join(name for name in "amc" if after[name] > before[name])


def test_which_times_move(here):
    os.mkdir("d")
    write("f", b"content")
    fd = os.open("f", os.O_RDWR)
    wrong = []
    table = [
        ("f", "mc", "write", lambda: os.write(fd, b"y")),
        ("f", "mc", "pwrite in the middle", lambda: os.pwrite(fd, b"z", 2)),
        ("f", "mc", "ftruncate", lambda: os.ftruncate(fd, 3)),
        ("f", "mc", "ftruncate to the same size", lambda: os.ftruncate(fd, 3)),
        ("f", "mc", "truncate, longer", lambda: os.truncate("f", 5000)),
        ("f", "mc", "O_TRUNC", lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC))),
        ("f", "mc", "O_TRUNC of nothing", lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC))),
        ("f", "", "write of nothing", lambda: os.write(fd, b"")),
        ("f", "c", "chmod", lambda: os.chmod("f", 0o600)),
        ("f", "c", "chown", lambda: os.chown("f", 1, 1)),
        ("f", "c", "link", lambda: os.link("f", "g")),
        ("f", "c", "unlink of another name", lambda: os.unlink("g")),
        ("f", "c", "rename", lambda: os.rename("f", "g") or os.rename("g", "f")),
        ("f", "c", "setxattr", lambda: os.setxattr("f", "user.a", b"1")),
        ("f", "c", "removexattr", lambda: os.removexattr("f", "user.a")),
        ("f", "", "stat", lambda: os.stat("f")),
        ("f", "", "open and close", lambda: os.close(os.open("f", os.O_RDONLY))),
        ("d", "mc", "create in it", lambda: write("d/x")),
        ("d", "", "write to a file in it", lambda: write("d/x", b"longer")),
        ("d", "mc", "link in it", lambda: os.link("f", "d/l")),
        ("d", "mc", "symlink in it", lambda: os.symlink("f", "d/s")),
        ("d", "mc", "mkdir in it", lambda: os.mkdir("d/e")),
        ("d", "mc", "mkfifo in it", lambda: os.mkfifo("d/p")),
        ("d", "mc", "rename in it", lambda: os.rename("d/x", "d/y")),
        ("d", "mc", "rename out of it", lambda: os.rename("d/y", "y")),
        ("d", "mc", "rename into it", lambda: os.rename("y", "d/y")),
        ("d", "mc", "unlink in it", lambda: os.unlink("d/y")),
        ("d", "mc", "rmdir in it", lambda: os.rmdir("d/e")),
        ("d", "", "failing mkdir in it", lambda: outcome(lambda: os.mkdir("d/p"))),
    ]
    for path, expected, name, action in table:
        got = moved_by(path, action)
        if got != expected:
            wrong.append(f"{name}: {got or 'none'} moved, not {expected or 'none'}")
    os.close(fd)
    assert not wrong, "\n".join(wrong)


def test_access_time_is_relative(here):
    """relatime: the first read after a change moves it, the next does not."""
    write("f", b"content")
    time.sleep(0.012)
    assert "a" in moved_by("f", lambda: open("f", "rb").read())
    assert moved_by("f", lambda: open("f", "rb").read()) == ""
    write("f", b"changed")
    assert "a" in moved_by("f", lambda: open("f", "rb").read())


@pytest.mark.parametrize("ns", [0, 1, 999_999_999, 1_700_000_000_123_456_789, 4_102_444_800_000_000_001, -1, -1_000_000_001, 15_000_000_000_000_000_000])
def test_times_are_kept_to_the_nanosecond(here, ns):
    write("f")
    os.mkdir("d")
    os.symlink("f", "s")
    for name in ("f", "d", "s"):
        os.utime(name, ns=(ns, ns + 5), follow_symlinks=False)
        st = os.lstat(name)
        assert (st.st_atime_ns, st.st_mtime_ns) == (ns, ns + 5), name


def test_the_time_of_creation_is_told(here):
    (here / "f").write_bytes(b"x")
    born = birth_of("f")
    os.utime("f", ns=(5, 5))
    (here / "f").write_bytes(b"more")
    os.chmod("f", 0o600)
    assert birth_of("f") == born, "nothing changes it"
    os.rename("f", "g")
    os.link("g", "h")
    assert birth_of("h") == born
    os.mkdir("d")
    os.symlink("d", "l")
    assert abs(birth_of("d") - time.time()) < 60 and abs(birth_of("l") - time.time()) < 60


def birth_of(path):
    told = subprocess.run(["stat", "-c", "%.W", path], text=True, capture_output=True, check=True).stdout
    assert float(told.replace(",", ".")) > 0, "not told"
    return float(told.replace(",", "."))


def test_no_time_is_too_extreme(here):
    """The farthest times that utimensat(2) can be asked for are kept or clamped, and harm nothing."""
    write("f")
    for secs, nanos in ((-(2**63), 0), (-(2**63), 1), (-(2**63) + 1, 999_999_999), (2**63 - 1, 999_999_999)):
        spec = struct.pack("=qq", secs, nanos) * 2
        assert LIBC.utimensat(-100, b"f", spec, 0) == 0
        os.stat("f")
    os.utime("f")


def test_truncate_both_ways(here):
    write("f", b"a" * 10000)
    os.truncate("f", 4097)
    os.truncate("f", 20000)
    content = open("f", "rb").read()
    assert content == b"a" * 4097 + bytes(20000 - 4097)
    os.truncate("f", 0)
    os.truncate("f", 5)
    assert open("f", "rb").read() == bytes(5)


def test_files_beyond_4_gib_and_sparse(here):
    fd = os.open("f", os.O_RDWR | os.O_CREAT)
    spots = [0, (1 << 32) - 3, (1 << 32) + 5, (5 << 32) + 4095, 100 << 30, (1 << 43) - 8192]
    for spot in spots:
        assert os.pwrite(fd, struct.pack("<Q", spot + 1), spot) == 8
    os.fsync(fd)
    for spot in spots:
        assert os.pread(fd, 8, spot) == struct.pack("<Q", spot + 1)
    st = os.fstat(fd)
    assert st.st_size == spots[-1] + 8 and st.st_blocks * 512 < 16 << 20
    assert os.pread(fd, 4096, 50 << 30) == bytes(4096)
    # Data is found from every hole; holes may be finer or coarser.
    for spot in spots[1:]:
        found = os.lseek(fd, spot - (1 << 20) if spot > 1 << 33 else spot, os.SEEK_DATA)
        assert found <= spot
    assert outcome(lambda: os.lseek(fd, st.st_size, os.SEEK_DATA)) == "ENXIO"
    assert os.lseek(fd, st.st_size - 1, os.SEEK_HOLE) == st.st_size
    assert os.lseek(fd, 0, os.SEEK_HOLE) <= 1 << 20
    os.close(fd)


def test_space_is_given_back(here):
    fd = os.open("f", os.O_RDWR | os.O_CREAT)
    data = random.Random(5).randbytes(8 << 20)
    os.pwrite(fd, data, 0)
    os.fsync(fd)
    assert os.fstat(fd).st_blocks * 512 >= 7 << 20
    fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 1 << 20, 6 << 20)
    os.fsync(fd)
    deadline = time.monotonic() + 15
    while os.fstat(fd).st_blocks * 512 > 3 << 20 and time.monotonic() < deadline:
        time.sleep(0.5)
    assert os.fstat(fd).st_blocks * 512 <= 3 << 20
    assert os.fstat(fd).st_size == 8 << 20
    assert os.pread(fd, 9 << 20, 0) == data[: 1 << 20] + bytes(6 << 20) + data[7 << 20 :]
    os.close(fd)


def test_fallocate(here):
    fd = os.open("f", os.O_RDWR | os.O_CREAT)
    fallocate(fd, KEEP_SIZE, 0, 100000)
    assert os.fstat(fd).st_size == 0
    fallocate(fd, 0, 5000, 5000)
    assert os.fstat(fd).st_size == 10000 and os.pread(fd, 20000, 0) == bytes(10000)
    os.pwrite(fd, b"x" * 10000, 0)
    fallocate(fd, 0, 0, 5000)
    assert os.pread(fd, 20000, 0) == b"x" * 10000
    fallocate(fd, ZERO_RANGE, 9000, 3000)
    assert os.pread(fd, 20000, 0) == b"x" * 9000 + bytes(3000)
    fallocate(fd, ZERO_RANGE | KEEP_SIZE, 8000, 10000)
    assert os.pread(fd, 20000, 0) == b"x" * 8000 + bytes(4000)
    assert outcome(lambda: fallocate(fd, 0, 0, 0)) == "EINVAL"
    os.close(fd)


def test_what_is_reserved_is_counted_and_given_back(here, daemon):
    mib = 1 << 20
    fd = os.open("f", os.O_RDWR | os.O_CREAT)
    blocks = lambda: os.fstat(fd).st_blocks * 512
    # Not what statvfs calls free: others write to the disk below.
    used = lambda: json.loads(daemon.run("volume", "list", "--json", check=True).stdout)[0]["used_bytes"] if daemon else 0
    os.sync()
    before = used()
    fallocate(fd, 0, 0, 64 * mib)
    assert blocks() == os.fstat(fd).st_size == 64 * mib
    # The figures of a volume follow its changes.
    until = time.monotonic() + 15
    while daemon and used() < 64 * mib and time.monotonic() < until:
        time.sleep(0.1)
    assert not daemon or used() >= 64 * mib
    fallocate(fd, KEEP_SIZE, 64 * mib, mib)
    assert blocks() == 65 * mib and os.fstat(fd).st_size == 64 * mib
    # It reads as a hole, and is one to whoever looks for data.
    assert os.pread(fd, 4096, 5 * mib) == bytes(4096)
    assert outcome(lambda: os.lseek(fd, 0, os.SEEK_DATA)) == "ENXIO"
    assert os.lseek(fd, 0, os.SEEK_HOLE) == 0
    # Written, it is counted once.
    os.pwrite(fd, random.Random(1).randbytes(mib), 8 * mib)
    os.fsync(fd)
    assert 65 * mib <= blocks() <= 65 * mib + 65536
    assert os.lseek(fd, 0, os.SEEK_DATA) == 8 * mib
    fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 20 * mib, 10 * mib)
    assert 55 * mib <= blocks() <= 55 * mib + 65536
    # Zeros keep the room.
    fallocate(fd, ZERO_RANGE, 8 * mib, mib)
    os.fsync(fd)
    assert os.pread(fd, mib, 8 * mib) == bytes(mib)
    until = time.monotonic() + 15
    while blocks() != 55 * mib and time.monotonic() < until:
        time.sleep(0.1)
    assert blocks() == 55 * mib
    os.ftruncate(fd, 4 * mib)
    assert blocks() == 4 * mib, "what lies behind the end went with it"
    os.close(fd)
    os.unlink("f")
    until = time.monotonic() + 15
    while used() > before and time.monotonic() < until:
        time.sleep(0.1)
    assert used() <= before, "the room is back"


def test_what_cannot_be_reserved_is_refused_at_once(here):
    fd = os.open("f", os.O_RDWR | os.O_CREAT)
    for mode in (0, KEEP_SIZE, ZERO_RANGE, ZERO_RANGE | KEEP_SIZE):
        started = time.monotonic()
        assert outcome(lambda: fallocate(fd, mode, 4096, 1 << 50)) == "ENOSPC"
        assert time.monotonic() - started < 5
    st = os.fstat(fd)
    assert (st.st_size, st.st_blocks) == (0, 0), "nothing of it was done"
    for mode in (8, 0x20):  # collapse, insert
        assert outcome(lambda: fallocate(fd, mode, 0, 4096)) == errno.errorcode[errno.EOPNOTSUPP]
    os.close(fd)


def test_shared_mappings_and_files_agree(here):
    size = 1 << 20
    write("f", bytes(size))
    with open("f", "r+b") as f, mmap.mmap(f.fileno(), size) as map:
        map[5000:5005] = b"mapped"[:5]
        assert os.pread(f.fileno(), 5, 5000) == b"mappe"
        os.pwrite(f.fileno(), b"written", 70000)
        assert map[70000:70007] == b"written"
        map.flush()
    with open("f", "rb") as f:
        f.seek(5000)
        assert f.read(5) == b"mappe"
    # A mapping outlives its descriptor and the file's name.
    fd = os.open("f", os.O_RDWR)
    map = mmap.mmap(fd, size)
    os.close(fd)
    os.unlink("f")
    map[size - 4 : size] = b"tail"
    assert map[size - 4 : size] == b"tail"
    map.close()


def test_two_processes_share_a_mapping(here):
    write("f", bytes(4096))
    fd = os.open("f", os.O_RDWR)
    map = mmap.mmap(fd, 4096)
    pid = os.fork()
    if pid == 0:
        map[100:105] = b"child"
        os._exit(0)
    os.waitpid(pid, 0)
    assert map[100:105] == b"child" and os.pread(fd, 5, 100) == b"child"
    map.close()
    os.close(fd)


def test_appends_of_several_processes_do_not_tear(here):
    """Every record is there once, whole."""
    writers, records, width = 8, 200, 64

    def writer(number):
        fd = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        for record in range(records):
            os.write(fd, f"{number:04d}-{record:06d}".ljust(width - 1, ".").encode() + b"\n")
        os._exit(0)

    write("log", b"")
    pids = []
    for number in range(writers):
        pid = os.fork()
        if pid == 0:
            writer(number)
        pids.append(pid)
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0
    lines = open("log").read().split("\n")
    assert lines.pop() == ""
    assert len(lines) == writers * records and len(set(lines)) == len(lines)
    assert all(len(line) == width - 1 for line in lines)


def test_concurrent_writers_of_one_file_keep_out_of_each_others_way(here):
    """Blocks of many processes interleave in one file."""
    block, blocks, writers = 5000, 60, 6
    write("f", b"")
    pids = []
    for number in range(writers):
        pid = os.fork()
        if pid == 0:
            fd = os.open("f", os.O_WRONLY)
            for index in range(number, blocks * writers, writers):
                os.pwrite(fd, bytes([number + 1]) * block, index * block)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0
    content = open("f", "rb").read()
    expected = b"".join(bytes([index % writers + 1]) * block for index in range(blocks * writers))
    assert hashlib.sha256(content).digest() == hashlib.sha256(expected).digest()


def locked_elsewhere(kind, start, length):
    def attempt():
        fd = os.open("f", os.O_RDWR)
        fcntl.lockf(fd, kind | fcntl.LOCK_NB, length, start)
        return "got it"

    return run_as((0, 0, ()), attempt)


def test_record_locks(here):
    write("f", bytes(1000))
    fd = os.open("f", os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX, 100, 0)
    assert locked_elsewhere(fcntl.LOCK_EX, 50, 10) == "EAGAIN"
    assert locked_elsewhere(fcntl.LOCK_SH, 99, 1) == "EAGAIN"
    assert locked_elsewhere(fcntl.LOCK_EX, 100, 10) == "got it"
    fcntl.lockf(fd, fcntl.LOCK_SH, 50, 0)
    assert locked_elsewhere(fcntl.LOCK_SH, 0, 50) == "got it"
    assert locked_elsewhere(fcntl.LOCK_EX, 0, 50) == "EAGAIN"
    fcntl.lockf(fd, fcntl.LOCK_UN, 0, 0)
    assert locked_elsewhere(fcntl.LOCK_EX, 0, 0) == "got it"
    fcntl.lockf(fd, fcntl.LOCK_EX)
    os.close(os.open("f", os.O_RDONLY))  # closing any descriptor of the file lets POSIX locks go
    assert locked_elsewhere(fcntl.LOCK_EX, 0, 0) == "got it"
    os.close(fd)


def test_whole_file_locks(here):
    write("f")

    def attempt(kind):
        fd = os.open("f", os.O_RDONLY)
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
        finally:
            os.close(fd)
        return "got it"

    fd = os.open("f", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    assert outcome(lambda: attempt(fcntl.LOCK_SH)) == "got it"
    assert outcome(lambda: attempt(fcntl.LOCK_EX)) == "EAGAIN"
    fcntl.flock(fd, fcntl.LOCK_EX)
    assert outcome(lambda: attempt(fcntl.LOCK_SH)) == "EAGAIN"
    os.close(fd)
    assert outcome(lambda: attempt(fcntl.LOCK_EX)) == "got it"


def test_a_lock_is_waited_for(here):
    write("f", bytes(10))
    fd = os.open("f", os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX)
    pid = os.fork()
    if pid == 0:
        other = os.open("f", os.O_RDWR)
        fcntl.lockf(other, fcntl.LOCK_EX)
        os.pwrite(other, b"second", 0)
        os._exit(0)
    time.sleep(0.2)
    os.pwrite(fd, b"first!", 0)
    fcntl.lockf(fd, fcntl.LOCK_UN)
    os.waitpid(pid, 0)
    assert os.pread(fd, 6, 0) == b"second"
    os.close(fd)


def test_extended_attributes(here):
    write("f")
    os.mkdir("d")
    for path in ("f", "d"):
        assert os.listxattr(path) == []
        os.setxattr(path, "user.one", b"1")
        os.setxattr(path, "user.bytes", bytes(range(256)))
        os.setxattr(path, "user.empty", b"")
        os.setxattr(path, "trusted.t", b"root's")
        assert os.getxattr(path, "user.bytes") == bytes(range(256)) and os.getxattr(path, "user.empty") == b""
        assert sorted(os.listxattr(path)) == ["trusted.t", "user.bytes", "user.empty", "user.one"]
        os.setxattr(path, "user.one", b"two")
        assert os.getxattr(path, "user.one") == b"two"
        assert outcome(lambda: os.setxattr(path, "user.one", b"", os.XATTR_CREATE)) == "EEXIST"
        assert outcome(lambda: os.setxattr(path, "user.none", b"", os.XATTR_REPLACE)) == "ENODATA"
        assert outcome(lambda: os.getxattr(path, "user.none")) == "ENODATA"
        assert outcome(lambda: os.removexattr(path, "user.none")) == "ENODATA"
        os.removexattr(path, "user.one")
        assert outcome(lambda: os.getxattr(path, "user.one")) == "ENODATA"
    assert outcome(lambda: os.setxattr("f", "user." + "n" * 251, b"")) in ("ERANGE", "ENAMETOOLONG")
    assert outcome(lambda: os.setxattr("f", "nonsense.x", b"")) in ("ENOTSUP", "EOPNOTSUPP", "EPERM")


def test_extended_attributes_probe_and_range(here):
    write("f")
    os.setxattr("f", "user.v", b"v" * 100)
    name, buffer = b"user.v", ctypes.create_string_buffer(200)
    assert LIBC.getxattr(b"f", name, None, 0) == 100
    assert LIBC.getxattr(b"f", name, buffer, 99) == -1 and ctypes.get_errno() == 34
    assert LIBC.getxattr(b"f", name, buffer, 100) == 100
    assert LIBC.listxattr(b"f", None, 0) == 7
    assert LIBC.listxattr(b"f", buffer, 6) == -1 and ctypes.get_errno() == 34


def test_many_and_large_extended_attributes(here):
    write("f")
    for number in range(30):
        os.setxattr("f", f"user.n{number:03d}", str(number).encode() * 10)
    assert len(os.listxattr("f")) == 30
    write("large")
    os.setxattr("large", "user.large", b"L" * 3000)
    assert os.getxattr("large", "user.large") == b"L" * 3000
    os.link("f", "g")
    os.rename("g", "h")
    assert os.getxattr("h", "user.n029") == b"29" * 10


def test_user_attributes_need_the_mode_and_trusted_root(here):
    write("f")
    os.chown("f", ANN[0], ANN[1])
    os.chmod("f", 0o640)
    os.setxattr("f", "user.u", b"x")
    os.setxattr("f", "trusted.t", b"x")
    assert run_as(ANN, lambda: os.getxattr("f", "user.u")) == b"x"
    assert run_as(ANN, lambda: os.setxattr("f", "user.u", b"y")) is None
    assert run_as(BOB, lambda: os.getxattr("f", "user.u")) == "EACCES"
    assert run_as(BOB, lambda: os.setxattr("f", "user.u", b"y")) == "EACCES"
    assert run_as(ANN, lambda: os.getxattr("f", "trusted.t")) == "ENODATA"
    assert run_as(ANN, lambda: os.setxattr("f", "trusted.t", b"y")) == "EPERM"


def test_direct_io(here):
    fd = os.open("f", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    buffer = mmap.mmap(-1, 4 << 20)
    buffer.write(random.Random(3).randbytes(4 << 20))
    assert os.pwrite(fd, buffer, 0) == 4 << 20
    back = mmap.mmap(-1, 4 << 20)
    assert os.preadv(fd, [back], 0) == 4 << 20
    assert back[:] == buffer[:]
    assert open("f", "rb").read() == buffer[:]
    os.close(fd)


def test_direct_writes_meet_buffered_reads(here):
    """What was written past the kernel's pages is read by those who use them, although they read all the while."""
    block = 4096
    direct = os.open("f", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    buffered = os.open("f", os.O_RDONLY)
    buffer = mmap.mmap(-1, 16 * block)
    os.pwrite(direct, buffer, 0)
    done = threading.Event()

    def read():
        while not done.is_set():
            os.pread(buffered, 16 * block, 0)

    readers = [threading.Thread(target=read) for _ in range(3)]
    [reader.start() for reader in readers]
    try:
        for count in range(1500):
            at, word = count % 16 * block, count.to_bytes(8, "little")
            buffer[at:at + 8] = word
            page = memoryview(buffer)[at:at + block]
            assert os.pwritev(direct, [page], at) == block
            page.release()
            assert os.pread(buffered, 8, at) == word, f"write {count}"
    finally:
        done.set()
        [reader.join() for reader in readers]
        os.close(direct)
        os.close(buffered)


class FileHandle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_char * 128)]


def test_handles_outlive_the_kernels_memory(here):
    """name_to_handle_at(2) and open_by_handle_at(2), with the inode dropped from the kernel's cache in between."""
    libc = ctypes.CDLL(None, use_errno=True)
    os.makedirs("a/b")
    Path("a/b/f").write_bytes(b"content")
    root = os.open(here, os.O_RDONLY)
    handles = {}
    for name in ("a/b/f", "a/b"):
        handle, mount = FileHandle(bytes=128), ctypes.c_int()
        assert libc.name_to_handle_at(-100, name.encode(), ctypes.byref(handle), ctypes.byref(mount), 0) == 0, ctypes.get_errno()
        handles[name] = handle
    Path("/proc/sys/vm/drop_caches").write_text("2")
    fd = libc.open_by_handle_at(root, ctypes.byref(handles["a/b/f"]), os.O_RDONLY)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    assert os.read(fd, 100) == b"content"
    os.close(fd)
    fd = libc.open_by_handle_at(root, ctypes.byref(handles["a/b"]), os.O_RDONLY | os.O_DIRECTORY)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    assert os.listdir(fd) == ["f"]
    os.close(fd)
    os.unlink("a/b/f")
    Path("/proc/sys/vm/drop_caches").write_text("2")
    fd = libc.open_by_handle_at(root, ctypes.byref(handles["a/b/f"]), os.O_RDONLY)
    assert fd == -1 and ctypes.get_errno() == errno.ESTALE
    os.close(root)


@pytest.mark.parametrize("change", ["write", "append", "direct", "truncate", "allocate", "keep", "zero", "punch", "copy"])
def test_bits_that_a_change_clears_are_not_seen_any_more(here, change):
    """setuid and setgid, cleared when an ordinary user changes the file."""
    Path("other").write_bytes(b"y" * 8192)
    fd = os.open("f", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.write(fd, b"x" * 8192)
    os.chmod("f", 0o6777)
    os.chmod("other", 0o666)
    os.chmod(".", 0o777)
    os.close(fd)

    def act():
        flags = {"append": os.O_APPEND, "direct": os.O_DIRECT}.get(change, 0)
        fd = os.open("f", os.O_RDWR | flags)
        assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o6777
        match change:
            case "write" | "append":
                os.write(fd, b"z")
            case "direct":
                os.writev(fd, [mmap.mmap(-1, 4096)])
            case "truncate":
                os.ftruncate(fd, 10)
            case "allocate":
                fallocate(fd, 0, 0, 16384)
            case "keep":
                fallocate(fd, KEEP_SIZE, 0, 16384)
            case "zero":
                fallocate(fd, ZERO_RANGE, 0, 4096)
            case "punch":
                fallocate(fd, 3, 0, 4096)
            case "copy":
                os.copy_file_range(os.open("other", os.O_RDONLY), fd, 4096)
        assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o777, oct(os.fstat(fd).st_mode)
        os.close(fd)

    assert run_as(ANN, act) is None


def test_statfs_tells_the_truth(here):
    before = os.statvfs(".")
    assert before.f_namemax == 255 and before.f_bavail * before.f_frsize > 64 << 20
    assert before.f_blocks >= before.f_bfree >= before.f_bavail
    with open("f", "wb") as f:
        f.write(random.Random(9).randbytes(32 << 20))
        f.flush()
        os.fsync(f.fileno())
    after = os.statvfs(".")
    used = (before.f_bfree - after.f_bfree) * before.f_frsize
    assert 24 << 20 < used < 128 << 20


def test_synced_writes_and_directories(here):
    for flag in (os.O_SYNC, os.O_DSYNC):
        fd = os.open("f", os.O_RDWR | os.O_CREAT | flag)
        assert os.write(fd, b"x" * 5000) == 5000
        os.fdatasync(fd)
        os.fsync(fd)
        os.close(fd)
    fd = os.open(".", os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    subprocess.run(["sync", "-f", "."], check=True)


def test_copy_within_the_mount(here):
    data = random.Random(4).randbytes(3_000_000)
    write("a", data)
    with open("a", "rb") as a, open("b", "wb") as b:
        copied = 0
        while copied < len(data):
            copied += os.copy_file_range(a.fileno(), b.fileno(), len(data) - copied)
    assert open("b", "rb").read() == data
    subprocess.run(["cp", "--sparse=always", "--reflink=auto", "a", "c"], check=True)
    assert open("c", "rb").read() == data


def test_ioctl_is_refused_cleanly(here):
    write("f")
    fd = os.open("f", os.O_RDWR)
    assert outcome(lambda: fcntl.ioctl(fd, 0x5401, bytes(64))) == "ENOTTY"
    os.close(fd)
