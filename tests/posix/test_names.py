"""Making, linking, renaming and removing: what is refused, with which error, and what changes."""

import ctypes
import errno
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from users import ANN, BOB, CAT, ROOT, outcome, run_as

LIBC = ctypes.CDLL(None, use_errno=True)
NOREPLACE, EXCHANGE = 1, 2


def renameat2(a, b, flags):
    if LIBC.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), flags):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def write(path, text="x"):
    with open(path, "w") as f:
        f.write(text)


def plant():
    """One of everything, in the working directory."""
    write("file", "file")
    write("other", "other")
    os.mkdir("empty")
    os.mkdir("full")
    write("full/inside")
    os.mkdir("full/sub")
    os.symlink("file", "link")
    os.symlink("nowhere", "dangling")
    os.symlink("loop", "loop")
    os.mkfifo("fifo")


REFUSED = [
    # what, error
    (lambda: os.mkdir("file"), "EEXIST"),
    (lambda: os.mkdir("link"), "EEXIST"),
    (lambda: os.mkdir("dangling"), "EEXIST"),
    (lambda: os.mkdir("missing/x"), "ENOENT"),
    (lambda: os.mkdir("file/x"), "ENOTDIR"),
    (lambda: os.mkdir("loop/x"), "ELOOP"),
    (lambda: os.mkdir("n" * 256), "ENAMETOOLONG"),
    (lambda: os.mkdir(""), "ENOENT"),
    (lambda: os.mkdir("."), "EEXIST"),
    (lambda: os.mkdir("empty/.."), "EEXIST"),
    (lambda: os.rmdir("missing"), "ENOENT"),
    (lambda: os.rmdir("file"), "ENOTDIR"),
    (lambda: os.rmdir("link"), "ENOTDIR"),
    (lambda: os.rmdir("full"), "ENOTEMPTY"),
    (lambda: os.rmdir("empty/."), "EINVAL"),
    (lambda: os.rmdir("n" * 256), "ENAMETOOLONG"),
    (lambda: os.unlink("missing"), "ENOENT"),
    (lambda: os.unlink("empty"), "EISDIR"),
    (lambda: os.unlink("file/x"), "ENOTDIR"),
    (lambda: os.unlink("n" * 256), "ENAMETOOLONG"),
    (lambda: os.link("missing", "new"), "ENOENT"),
    (lambda: os.link("file", "other"), "EEXIST"),
    (lambda: os.link("file", "empty"), "EEXIST"),
    (lambda: os.link("empty", "new"), "EPERM"),
    (lambda: os.link("file", "missing/new"), "ENOENT"),
    (lambda: os.link("file", "other/new"), "ENOTDIR"),
    (lambda: os.link("file", "n" * 256), "ENAMETOOLONG"),
    (lambda: os.symlink("x", "file"), "EEXIST"),
    (lambda: os.symlink("x", "link"), "EEXIST"),
    (lambda: os.symlink("x", "n" * 256), "ENAMETOOLONG"),
    (lambda: os.symlink("x" * 4096, "new"), "ENAMETOOLONG"),
    (lambda: os.symlink("", "new"), "ENOENT"),
    (lambda: os.readlink("file"), "EINVAL"),
    (lambda: os.readlink("missing"), "ENOENT"),
    (lambda: os.mkfifo("file"), "EEXIST"),
    (lambda: os.rename("missing", "new"), "ENOENT"),
    (lambda: os.rename("file", "empty"), "EISDIR"),
    (lambda: os.rename("empty", "file"), "ENOTDIR"),
    (lambda: os.rename("empty", "full"), "ENOTEMPTY"),
    (lambda: os.rename("full", "full/sub/new"), "EINVAL"),
    (lambda: os.rename("full", "full/new"), "EINVAL"),
    (lambda: os.rename("full/sub", "full"), "ENOTEMPTY"),
    (lambda: os.rename("file", "missing/new"), "ENOENT"),
    (lambda: os.rename("file", "other/new"), "ENOTDIR"),
    (lambda: os.rename("file", "n" * 256), "ENAMETOOLONG"),
    (lambda: os.rename("n" * 256, "file"), "ENAMETOOLONG"),
    (lambda: renameat2("file", "other", NOREPLACE), "EEXIST"),
    (lambda: renameat2("empty", "full", NOREPLACE), "EEXIST"),
    (lambda: renameat2("file", "missing", EXCHANGE), "ENOENT"),
    (lambda: renameat2("full", "full/sub", EXCHANGE), "EINVAL"),
    (lambda: renameat2("full/sub", "full", EXCHANGE), "EINVAL"),
    (lambda: renameat2("file", "other", NOREPLACE | EXCHANGE), "EINVAL"),
    (lambda: os.open("file", os.O_CREAT | os.O_EXCL | os.O_WRONLY), "EEXIST"),
    (lambda: os.open("dangling", os.O_CREAT | os.O_EXCL | os.O_WRONLY), "EEXIST"),
    (lambda: os.open("empty", os.O_WRONLY), "EISDIR"),
    (lambda: os.open("empty", os.O_CREAT | os.O_RDONLY), "EISDIR"),
    (lambda: os.open("file", os.O_DIRECTORY), "ENOTDIR"),
    (lambda: os.open("link", os.O_NOFOLLOW), "ELOOP"),
    (lambda: os.open("loop", os.O_RDONLY), "ELOOP"),
    (lambda: os.open("fifo", os.O_WRONLY | os.O_NONBLOCK), "ENXIO"),
    (lambda: os.truncate("missing", 0), "ENOENT"),
    (lambda: os.truncate("empty", 0), "EISDIR"),
    (lambda: os.truncate("file", -1), "EINVAL"),
    (lambda: os.truncate("file/x", 0), "ENOTDIR"),
    (lambda: os.chmod("missing", 0o600), "ENOENT"),
    (lambda: os.listdir("file"), "ENOTDIR"),
    (lambda: os.stat("file/"), "ENOTDIR"),
    (lambda: os.stat("n" * 256), "ENAMETOOLONG"),
]


def snapshot(top="."):
    found = {}
    for folder, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            found[path] = (st.st_ino, st.st_mode, st.st_nlink, st.st_size)
    return found


def test_refusals_name_the_reason_and_change_nothing(here):
    plant()
    before = snapshot()
    wrong = []
    for number, (action, expected) in enumerate(REFUSED):
        got = outcome(action)
        if got != expected:
            wrong.append(f"row {number} ({expected}): {got}")
        if snapshot() != before:
            wrong.append(f"row {number} ({expected}) changed something")
            before = snapshot()
    assert not wrong, "\n".join(wrong)


def test_names_of_255_bytes_and_odd_ones(here):
    names = [b"n" * 255, "ü".encode() * 127, b"\xff\xfe\x01", b" ", b"a\nb", b"*?[", b"..x", b"~", b"-rf", "日本".encode()]
    for name in names:
        with open(name, "wb") as f:
            f.write(name)
    assert sorted(os.listdir(b".")) == sorted(names)
    for name in names:
        assert open(name, "rb").read() == name
        os.rename(name, b"moved")
        os.rename(b"moved", name)
        os.unlink(name)
    assert os.listdir(b".") == []


def test_case_is_kept_and_told_apart(here):
    write("Name", "upper")
    write("name", "lower")
    assert open("Name").read() == "upper" and open("name").read() == "lower"


def test_links_count(here):
    write("a")
    os.link("a", "b")
    os.mkdir("d")
    os.link("b", "d/c")
    assert {os.stat(p).st_ino for p in ("a", "b", "d/c")} == {os.stat("a").st_ino}
    assert os.stat("a").st_nlink == 3
    os.unlink("a")
    assert os.stat("b").st_nlink == 2
    assert os.stat("d").st_nlink == 2
    os.mkdir("d/e")
    os.mkdir("d/f")
    assert os.stat("d").st_nlink == 4
    os.rename("d/e", "e")
    assert os.stat("d").st_nlink == 3
    os.rmdir("d/f")
    assert os.stat("d").st_nlink == 2
    os.symlink("b", "s")
    os.link("s", "s2", follow_symlinks=False)
    assert os.lstat("s2").st_nlink == 2 and os.readlink("s2") == "b"


def test_rename_replaces(here):
    write("a", "a")
    write("b", "b")
    kept = os.open("b", os.O_RDONLY)
    ino = os.stat("a").st_ino
    os.rename("a", "b")
    assert os.stat("b").st_ino == ino and not os.path.exists("a")
    assert os.read(kept, 10) == b"b" and os.fstat(kept).st_nlink == 0
    os.close(kept)
    os.mkdir("d1")
    os.mkdir("d2")
    os.rename("d1", "d2")
    assert sorted(os.listdir(".")) == ["b", "d2"]
    os.symlink("b", "s")
    write("c", "c")
    os.rename("c", "s")
    assert not os.path.islink("s") and open("b").read() == "a"


def test_rename_of_two_names_of_one_file_is_nothing(here):
    write("a")
    os.link("a", "b")
    os.rename("a", "b")
    assert sorted(os.listdir(".")) == ["a", "b"]


def test_rename_moves_directories_between_parents(here):
    os.makedirs("p/q/r")
    os.mkdir("z")
    os.rename("p/q", "z/q")
    assert os.path.samefile("z/q/..", "z") and os.path.samefile("z/q/r/../..", "z")
    assert os.stat("p").st_nlink == 2 and os.stat("z").st_nlink == 3


def test_rename_flags(here):
    write("a", "a")
    os.mkdir("d")
    write("d/in")
    renameat2("a", "d", EXCHANGE)
    assert os.path.isdir("a") and open("d").read() == "a" and os.listdir("a") == ["in"]
    os.mkdir("deep")
    renameat2("a", "deep/new", NOREPLACE)
    assert os.listdir("deep/new") == ["in"]
    write("f", "f")
    renameat2("deep/new", "f", EXCHANGE)
    assert open("deep/new").read() == "f" and os.stat("deep").st_nlink == 2 and os.stat(".").st_nlink == 4


def test_special_files(here):
    os.mkfifo("fifo", 0o640)
    os.mknod("char", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.mknod("block", stat.S_IFBLK | 0o600, os.makedev(259, 70000))
    os.mknod("sock", stat.S_IFSOCK | 0o600)
    os.mknod("plain", stat.S_IFREG | 0o600)
    assert stat.S_ISFIFO(os.stat("fifo").st_mode) and os.stat("fifo").st_mode & 0o777 == 0o640
    assert stat.S_ISCHR(os.stat("char").st_mode) and os.stat("char").st_rdev == os.makedev(1, 3)
    assert stat.S_ISBLK(os.stat("block").st_mode) and os.stat("block").st_rdev == os.makedev(259, 70000)
    assert stat.S_ISSOCK(os.stat("sock").st_mode) and stat.S_ISREG(os.stat("plain").st_mode)
    os.chmod(".", 0o777)
    assert run_as(ANN, lambda: os.mknod("mine", stat.S_IFCHR | 0o600, os.makedev(1, 3))) == "EPERM"
    reader = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
    with open("fifo", "w") as f:
        f.write("through")
    assert os.read(reader, 20) == b"through"
    os.close(reader)


def test_unlinked_but_open(here):
    fd = os.open("f", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"still here")
    os.unlink("f")
    assert os.fstat(fd).st_nlink == 0
    write("f", "another")
    os.pwrite(fd, b"STILL", 0)
    os.ftruncate(fd, 8)
    os.fsync(fd)
    assert os.pread(fd, 100, 0) == b"STILL he" and open("f").read() == "another"
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    assert os.read(again, 5) == b"STILL"
    os.close(again)
    os.close(fd)


def give_name(fd, name):
    """linkat() with AT_SYMLINK_FOLLOW, which Python passes only beside a folder."""
    folder = os.open(".", os.O_RDONLY)
    try:
        os.link(f"/proc/self/fd/{fd}", name, src_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def test_files_without_a_name(here):
    """O_TMPFILE: a file that nobody sees until it is given a name, whole."""
    os.mkdir("d")
    fd = os.open("d", os.O_RDWR | os.O_TMPFILE, 0o640)
    os.write(fd, b"whole")
    assert os.fstat(fd).st_nlink == 0 and os.listdir("d") == []
    give_name(fd, "d/f")
    assert os.fstat(fd).st_nlink == 1 and (here / "d" / "f").read_bytes() == b"whole"
    assert os.stat("d/f").st_mode & 0o777 == 0o640
    os.write(fd, b", and more")
    os.close(fd)
    assert (here / "d" / "f").read_bytes() == b"whole, and more"
    for flags in (0, os.O_EXCL):
        fd = os.open(".", os.O_RDWR | os.O_TMPFILE | flags)
        os.write(fd, b"x" * 300_000)
        assert os.pread(fd, 10, 299_995) == b"x" * 5
        if flags:
            assert outcome(lambda: give_name(fd, "never")) == "ENOENT"
        os.close(fd)
    assert os.listdir(".") == ["d"]
    os.chmod("d", 0o755)
    assert run_as(ANN, lambda: os.open("d", os.O_RDWR | os.O_TMPFILE)) == "EACCES"


def test_removed_directory_that_is_open(here):
    os.mkdir("d")
    fd = os.open("d", os.O_RDONLY | os.O_DIRECTORY)
    os.rmdir("d")
    assert os.listdir(fd) == []
    assert outcome(lambda: os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=fd)) == "ENOENT"
    os.close(fd)


def test_what_the_kernel_holds_outlives_its_name(here):
    """A FIFO that is open, O_PATH, a working directory: the file system is told of none of them."""
    os.mkfifo("fifo")
    write("file")
    os.symlink("some where", "link")
    os.mkdir("dir")
    held = [os.open("fifo", os.O_RDWR)]
    held += [os.open(name, os.O_PATH | os.O_NOFOLLOW) for name in ("file", "link", "dir")]
    os.chdir("dir")
    os.unlink("../fifo")
    write("../another")
    os.rename("../another", "../file")
    os.unlink("../link")
    os.rmdir("../dir")
    assert [os.fstat(fd).st_nlink for fd in held] == [0, 0, 0, 0]
    os.fchmod(held[0], 0o601)
    assert stat.S_IMODE(os.fstat(held[0]).st_mode) == 0o601
    assert os.readlink("", dir_fd=held[2]) == "some where"
    assert os.stat(".").st_nlink == 0 and os.listdir(".") == []
    assert outcome(lambda: write("new")) == "ENOENT"
    os.chdir("/")
    for fd in held:
        os.close(fd)


def test_listing_survives_changes(here):
    """Names there from start to end are listed exactly once, whatever comes and goes beside them."""
    for n in range(3000):
        write(f"stay-{n}")
    seen, made = [], 0
    with os.scandir(".") as listing:
        for count, entry in enumerate(listing):
            seen.append(entry.name)
            if count % 10 == 0:
                write(f"new-{made}")
                made += 1
            if count % 10 == 5 and entry.name.startswith("new-"):
                os.unlink(entry.name)
    stay = [name for name in seen if name.startswith("stay-")]
    assert len(stay) == len(set(stay)) == 3000


def test_dot_entries_and_types(here):
    plant()
    os.chdir("full")
    out = os.popen("ls -aif --time-style=+ 2>/dev/null").read().split()
    inodes = dict(zip(out[1::2], map(int, out[::2])))
    assert inodes["."] == os.stat(".").st_ino and inodes[".."] == os.stat("..").st_ino
    os.chdir("..")
    with os.scandir(".") as listing:
        for entry in listing:
            assert entry.inode() == os.lstat(entry.name).st_ino
            assert entry.is_dir(follow_symlinks=False) == stat.S_ISDIR(os.lstat(entry.name).st_mode)


# Sticky directories: who may remove or rename whose file. The directory belongs to dir_owner.
@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("dir_owner", [ROOT, ANN])
def test_sticky(here, sticky, dir_owner):
    wrong = []
    for owner in (ANN, BOB):
        for actor in (ROOT, ANN, BOB, CAT):
            allowed = not sticky or actor in (ROOT, owner, dir_owner)
            for what in ("unlink", "rename", "replace", "rmdir", "move"):
                os.mkdir("d")
                os.chmod("d", 0o1777 if sticky else 0o777)
                os.chown("d", dir_owner[0], dir_owner[1])
                os.mkdir("elsewhere")
                os.chmod("elsewhere", 0o777)
                os.mkdir("d/f") if what == "rmdir" else write("d/f")
                os.chown("d/f", owner[0], owner[1])
                if what == "replace":
                    write("d/mine")
                    os.chown("d/mine", actor[0], actor[1])
                actions = {
                    "unlink": lambda: os.unlink("d/f"),
                    "rename": lambda: os.rename("d/f", "d/g"),
                    "replace": lambda: os.rename("d/mine", "d/f"),
                    "rmdir": lambda: os.rmdir("d/f"),
                    "move": lambda: os.rename("d/f", "elsewhere/f"),
                }
                got = run_as(actor, actions[what])
                if (got is None) != allowed or got not in (None, "EPERM", "EACCES"):
                    wrong.append(f"{what} by {actor[0]} of {owner[0]}'s: {got}, allowed {allowed}")
                os.system("rm -rf d elsewhere")
    assert not wrong, "\n".join(wrong)


def test_renaming_while_listing_ends(here):
    """Each of many files is renamed once by a loop over the listing."""
    top = Path.cwd()
    names = [f"f{at}" for at in range(3000)]
    for name in names:
        (top / name).touch()
    with os.scandir(top) as entries:
        for entry in entries:
            os.rename(entry.path, entry.path + ".bak")
    assert sorted(os.listdir(top)) == sorted(name + ".bak" for name in names)


def test_truncating_a_running_program_is_refused_whole(here):
    top = Path.cwd()
    program = top / "sleep"
    shutil.copy(shutil.which("sleep"), program)
    size = program.stat().st_size
    running = subprocess.Popen([program, "60"])
    try:
        os.stat(f"/proc/{running.pid}/exe")
        with pytest.raises(OSError) as refused:
            os.close(os.open(program, os.O_RDONLY | os.O_TRUNC))
        assert refused.value.errno == errno.ETXTBSY
        assert program.stat().st_size == size
    finally:
        running.kill()
        running.wait()
