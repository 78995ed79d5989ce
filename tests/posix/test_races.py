"""Programs that meet in one file or one name. They end in time, and each sees what a local filesystem shows."""

import errno
import mmap
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest
from waiting import wait_for

E2E = Path(__file__).resolve().parent.parent / "e2e"
SECONDS = 4
PAGE = 4096
PART = 512


def together(*programs, seconds=SECONDS):
    """Runs each function in a process of its own until the time is over, and returns what each returned (a small number).
    One that does not end is a fault of the filesystem."""
    end = time.monotonic() + seconds
    running = []
    for program in programs:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(read)
                os.write(write, str(program(end) or 0).encode())
                os._exit(0)
            except BaseException:
                traceback.print_exc(file=sys.stderr)
                sys.stderr.flush()
                os._exit(1)
        os.close(write)
        running.append((pid, read, program.__name__))
    results, failed = [], []
    deadline = end + 30
    for pid, read, name in running:
        status = None
        while status is None and time.monotonic() < deadline:
            done, code = os.waitpid(pid, os.WNOHANG)
            status = code if done else time.sleep(0.02)
        if status is None:
            os.kill(pid, signal.SIGKILL)
            stack = Path(f"/proc/{pid}/stack").read_text()
            failed.append(f"{name} does not end; it waits in\n{stack}")
        elif status:
            failed.append(f"{name} failed")
        else:
            results.append(int(os.read(read, 100)))
        os.close(read)
    assert not failed, "\n".join(failed)
    return results


def toggling(tool, name="f", writers=2):
    """The program that sets O_DIRECT while it writes, until the time is over. Its pages are the first 16 of each writer."""
    program = tool("toggle")

    def toggle(end):
        left = max(1, round(end - time.monotonic()))
        return int(subprocess.run([program, name, str(left), str(writers)], check=True, stdout=subprocess.PIPE).stdout)

    return toggle


def writing(open_file, first, pages=16):
    """Writes parts of pages in turn, and reads each back: nobody else writes them."""

    def write_parts(end):
        fd, count = open_file(), 0
        while time.monotonic() < end:
            at = (first + count % pages) * PAGE + count % 8 * PART
            told = bytes([count % 251]) * PART
            assert os.pwrite(fd, told, at) == PART
            assert os.pread(fd, PART, at) == told, f"page {at // PAGE}, write {count}"
            count += 1
        return count

    return write_parts


def opened():
    return os.open("f", os.O_RDWR | os.O_CREAT)


@pytest.mark.parametrize("writers", [1, 2, 8])
def test_direct_is_set_while_a_write_is_under_way(here, tool, writers):
    """The kernel begins a write with pages, and asks for it as one past them when the flag of the open file changes."""
    assert together(toggling(tool, writers=writers))[0] > 20


def test_direct_is_set_by_several_programs(here, tool):
    counts = together(toggling(tool), toggling(tool, "g"), toggling(tool, "h"))
    assert min(counts) > 20, counts


@pytest.mark.parametrize("other", ["mapped", "truncated", "allocated", "read", "appended", "direct", "copied"])
def test_direct_is_set_while_others_use_the_file(here, tool, other):
    def mapped(end):
        fd, count = opened(), 0
        os.ftruncate(fd, 512 * PAGE)
        memory = mmap.mmap(fd, 512 * PAGE)
        while time.monotonic() < end:
            memory[(300 + count % 100) * PAGE] = count % 256
            memory[(count % 16) * PAGE + 1]
            if count % 50 == 0:
                memory.flush()
            count += 1

    def truncated(end):
        fd = opened()
        while time.monotonic() < end:
            os.ftruncate(fd, 300 * PAGE)
            os.ftruncate(fd, 257 * PAGE)

    def allocated(end):
        fd = opened()
        while time.monotonic() < end:
            os.posix_fallocate(fd, 0, 512 * PAGE)
            subprocess.run(["fallocate", "-p", "-o", str(400 * PAGE), "-l", str(PAGE), "f"], check=True)

    def read(end):
        fd = os.open("f", os.O_RDONLY | os.O_CREAT)
        while time.monotonic() < end:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.pread(fd, 64 * PAGE, 0)

    def appended(end):
        fd = os.open("f", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        while time.monotonic() < end and os.fstat(fd).st_size < 64 << 20:
            os.write(fd, b"line\n")

    def direct(end):
        fd = os.open("f", os.O_RDWR | os.O_DIRECT | os.O_CREAT)
        page = mmap.mmap(-1, PAGE)
        while time.monotonic() < end:
            os.pwritev(fd, [page], 300 * PAGE)

    def copied(end):
        fd = opened()
        while time.monotonic() < end:
            os.copy_file_range(fd, fd, 4 * PAGE, 0, 300 * PAGE)

    together(toggling(tool), writing(opened, 200), locals()[other])


def test_bits_are_cleared_while_others_write(here, tool):
    """A write by an ordinary user clears the setuid bit, which the kernel has to hear, while it holds the page."""
    fd = opened()
    os.chmod("f", 0o6777)
    os.chmod(".", 0o777)

    def as_user(uid):
        def open_as_user():
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            return opened()

        return open_as_user

    def set_again(end):
        while time.monotonic() < end:
            os.fchmod(fd, 0o6777)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    together(writing(as_user(4321), 100), writing(as_user(4322), 200), toggling(tool), set_again)
    os.close(fd)


@pytest.fixture
def nfs(daemon):
    if daemon is None:
        pytest.fail("needs a larder: run without POSIX_DIR")
    from nfs3 import Nfs3

    return lambda: Nfs3.mount("127.0.0.1", daemon.nfs_port, daemon.export)


def by_nfs(nfs, path, act):
    """A process that acts as an NFS client until the time is over: `act` gets the client, the folder and the file."""

    def an_nfs_client(end):
        client = nfs()
        folder = client.root
        for part in path.parts[:-1]:
            folder = client.lookup(folder, part.encode()).handle
        count = 0
        while time.monotonic() < end:
            act(client, folder, path.name.encode(), count)
            count += 1
        return count

    return an_nfs_client


@pytest.mark.parametrize("stable", [0, 2])
def test_direct_is_set_while_another_door_writes(here, mount, tool, nfs, stable):
    os.close(opened())
    path = (here / "f").relative_to(mount)

    def write(client, folder, name, count):
        """Pages of the program that toggles, and others."""
        handle = client.lookup(folder, name).handle
        client.write(handle, (count % 32) * PAGE + PAGE - 8, b"n" * 8, stable=stable)
        client.write(handle, 300 * PAGE, b"n" * PAGE, stable=stable)

    def truncate(client, folder, name, count):
        client.setattr(client.lookup(folder, name).handle, size=(400 + count % 3) * PAGE)

    began = time.monotonic()
    counts = together(
        toggling(tool, writers=2), writing(opened, 200), by_nfs(nfs, path, write), by_nfs(nfs, path, truncate)
    )
    assert time.monotonic() - began < SECONDS + 4
    assert min(counts) > 20, f"somebody waited all the time: {counts}"


def test_a_waiting_notification_does_not_outlive_a_kill(own, tool):
    """The kernel is told of another door's writes while a program holds the pages. A kill at any moment ends the process, and
    all that is asked of the mount from then on fails at once."""
    for count in range(6):
        path = own.mnt / f"f{count}"
        programs = [subprocess.Popen([tool("toggle"), path, "60", "2"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)]
        wait_for(lambda: path.exists() and path.stat().st_size)
        writer = subprocess.Popen([sys.executable, "-c", NFS_WRITER, str(E2E), str(own.nfs_port), own.export, path.name])
        time.sleep(0.5 + count / 10)
        own.process.kill()
        assert own.process.wait(20) == -signal.SIGKILL, "the process does not end"
        for program in (*programs, writer):
            assert program.wait(20) is not None, "a program hangs after the server died"
        began = time.monotonic()
        with pytest.raises(OSError) as dead:
            os.statvfs(own.mnt)
        assert dead.value.errno == errno.ENOTCONN and time.monotonic() - began < 1
        own.kill()
        own.start()
        assert path.exists(), "the next start mounts at the same place"


NFS_WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from nfs3 import Nfs3
client = Nfs3.mount("127.0.0.1", int(sys.argv[2]), sys.argv[3])
handle = client.lookup(client.root, sys.argv[4].encode()).handle
count = 0
try:
    while True:
        client.write(handle, count % 16 * 4096, b"n" * 4096, stable=0)
        count += 1
except (OSError, EOFError):
    pass
"""


def replacing(name, kind="file"):
    """Replaces one name as fast as it can."""

    def replace(end):
        new, count = f"{name}.new-{os.getpid()}", 0
        while time.monotonic() < end:
            if kind == "file":
                with open(new, "wb") as file:
                    file.write(b"x" * (count % 5000))
            elif kind == "link":
                os.symlink(f"target-{count}", new)
            else:
                os.mkdir(new)
            os.rename(new, name)
            count += 1
        return count

    return replace


FILE_USES = {
    "opened": lambda: os.close(os.open("f", os.O_RDONLY)),
    "opened for writing": lambda: os.close(os.open("f", os.O_RDWR)),
    "opened or made": lambda: os.close(os.open("f", os.O_RDWR | os.O_CREAT)),
    "read": lambda: open("f", "rb").read(),
    "stat": lambda: os.stat("f"),
    "attributes": lambda: os.listxattr("f"),
    "chmod": lambda: os.chmod("f", 0o640),
    "utime": lambda: os.utime("f", (1, 1)),
    "truncate": lambda: os.truncate("f", 10),
    "statfs": lambda: os.statvfs("f"),
    "listed": lambda: os.listdir(".").index("f"),
    "listed with attributes": lambda: {entry.name: entry.stat() for entry in os.scandir(".") if ".new" not in entry.name}["f"],
}


def using(uses, failures):
    """Counts failures of each use into a file: a program that meets one goes on."""

    def use(end):
        count = 0
        while time.monotonic() < end:
            for name, act in uses.items():
                try:
                    act()
                except (OSError, ValueError, KeyError) as error:
                    with open(failures, "a") as out:
                        out.write(f"{name}: {error!r}\n")
                count += 1
        return count

    return use


@pytest.mark.parametrize("replacers", [1, 2])
def test_a_name_that_is_replaced_is_always_there(here, tmp_path, replacers):
    Path("f").write_bytes(b"first")
    failures = tmp_path / "failures"
    counts = together(*[replacing("f")] * replacers, *[using(FILE_USES, failures)] * 2)
    assert not failures.exists(), f"in {counts}: {failures.read_text()[:2000]}"
    assert min(counts) > 20, counts


def test_a_link_that_is_replaced_is_always_there(here, tmp_path):
    os.symlink("target", "l")
    failures = tmp_path / "failures"
    uses = {"readlink": lambda: os.readlink("l"), "lstat": lambda: os.lstat("l")}
    counts = together(replacing("l", "link"), replacing("l", "link"), using(uses, failures), using(uses, failures))
    assert not failures.exists(), f"in {counts}: {failures.read_text()[:2000]}"


def test_a_folder_that_is_replaced_is_always_there(here, tmp_path):
    os.mkdir("d")
    failures = tmp_path / "failures"
    uses = {"stat": lambda: os.stat("d"), "listed": lambda: os.listdir("d"), "opened": lambda: os.close(os.open("d", os.O_RDONLY))}
    counts = together(replacing("d", "folder"), replacing("d", "folder"), using(uses, failures))
    assert not failures.exists(), f"in {counts}: {failures.read_text()[:2000]}"


def test_a_name_that_another_door_replaces_is_always_there(here, mount, nfs, tmp_path):
    Path("f").write_bytes(b"first")
    failures = tmp_path / "failures"

    def replace(client, folder, name, count):
        new = f"f.new-{os.getpid()}".encode()
        made = client.create(folder, new)
        client.write(made.handle, 0, b"y" * (count % 3000), stable=0)
        client.rename(folder, new, folder, name)

    path = (here / "f").relative_to(mount)
    counts = together(by_nfs(nfs, path, replace), by_nfs(nfs, path, replace), *[using(FILE_USES, failures)] * 2)
    assert not failures.exists(), f"in {counts}: {failures.read_text()[:2000]}"
    assert min(counts) > 20, counts


def test_removed_files_leave_when_the_kernel_forgets_them(own):
    """The kernel has looked them up, so they stay for a moment; then their room comes back."""
    for n in range(40):
        (own.mnt / f"f{n}").write_bytes(os.urandom(1 << 20))
    os.sync()
    free = os.statvfs(own.mnt).f_bfree
    for n in range(40):
        os.unlink(own.mnt / f"f{n}")
    wait_for(lambda: (os.statvfs(own.mnt).f_bfree - free) * os.statvfs(own.mnt).f_frsize > 20 << 20)
    os.mkdir(own.mnt / "dir")
    held = os.open(own.mnt / "dir", os.O_RDONLY | os.O_DIRECTORY)
    os.rmdir(own.mnt / "dir")
    assert os.listdir(held) == [] and os.fstat(held).st_nlink == 0
    os.close(held)
