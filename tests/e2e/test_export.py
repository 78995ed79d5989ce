"""Snapshots for other programs: mounted by themselves, and as tar.

  X1  `larder mount --snapshot` shows a snapshot as the top of a mount, read-only, and holds it there until it is unmounted.
  X2  `larder snap export --tar`, unpacked by GNU tar, is the snapshot: data, holes, links, times, owners, attributes, odd names.
  X3  A stream that is cut is no whole tar.
"""

import os
import socket
import subprocess

import pytest

from conftest import make, payload
from test_snapshots import snap, snapshots
from trees import describe, fill


@pytest.fixture
def daemon(folder):
    daemon = make(folder, extra=["--squash", "none"]).start()
    daemon.mounted = folder / "mnt"
    daemon.mounted.mkdir()
    daemon.run("mount", str(daemon.mounted), check=True)
    yield daemon
    daemon.run("umount", str(daemon.mounted))
    assert daemon.stop() == 0
    assert "panicked" not in daemon.log()


def test_a_snapshot_is_mounted(daemon, folder):
    """X1"""
    top, past = daemon.mounted, folder / "past"
    past.mkdir()
    fill(top / "tree", files=8, big_bytes=400_000)
    then = describe(top)
    snap(daemon, "create", "files@one")
    subprocess.run(["rm", "-r", str(top / "tree")], check=True)
    (top / "new").write_text("now")
    said = daemon.run("mount", str(past), "--snapshot", "one", "--at-start", check=True).stdout
    assert "files@one" in said and "read-only" in said
    assert describe(past) == then
    assert subprocess.run(["findmnt", "-no", "SOURCE", str(past)], capture_output=True, text=True, check=True).stdout.strip() \
        == "tank/files@one"
    with pytest.raises(OSError):
        (past / "x").write_text("x")
    (top / "new").write_text("later")
    assert sorted(os.listdir(past)) == ["tree"], "a change of today is none there"
    for refused in (("snap", "destroy", "files@one"), ("snap", "rename", "files@one", "two")):
        busy = daemon.run(*refused)
        assert busy.returncode == 1 and "mounted on" in busy.stderr and "larder umount" in busy.stderr, busy.stderr
    daemon.run("umount", str(top), check=True)
    assert daemon.stop() == 0
    daemon.start()
    daemon.run("mount", str(top), check=True)
    assert describe(past) == then, "at every start"
    daemon.run("umount", str(past), "--at-start", check=True)
    none = daemon.run("mount", str(past), "--snapshot", "nope")
    assert none.returncode == 1 and "there is no snapshot" in none.stderr
    snap(daemon, "destroy", "files@one")
    assert snapshots(daemon) == {}


def special(top):
    """What only some programs get right."""
    odd = top / "odd"
    odd.mkdir()
    (odd / ("long" * 60)).mkdir()
    (odd / ("long" * 60) / ("name" * 60)).write_text("deep")
    for name in (b"new\nline", b"\xff\xfe raw", "ümlaut".encode(), b"-dash", b"star*", b"back\\slash", b" blank "):
        with open(os.fsencode(odd) + b"/" + name, "wb") as f:
            f.write(name)
    os.symlink("x" * 300, odd / "long link")
    os.link(odd / "long link", odd / "second link")
    os.mkfifo(odd / "fifo", 0o640)
    os.mknod(odd / "zero", 0o020600, os.makedev(1, 5))
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(odd / "sock"))
    for name, parts in (("holes", [(0, 5000), (1 << 20, 70_000), (9 << 30, 10)]), ("end hole", [(4096, 1)]), ("all hole", [])):
        with open(odd / name, "wb") as f:
            for at, count in parts:
                f.seek(at)
                f.write(payload(count, at + 1))
            f.truncate({"holes": (9 << 30) + 10, "end hole": 1 << 20, "all hole": 123_457}[name])
    os.chown(odd / "-dash", 3_000_000, 4_000_000)
    os.utime(odd / "star*", ns=(1_500_000_000_123_456_789, -1_500_000_000))
    os.setxattr(odd / "star*", "user.binary", bytes(range(256)))
    os.setxattr(odd / "star*", "trusted.own", b"t")
    os.setxattr(odd, "user.folder", b"yes")


def described(top):
    """As `describe`, without reading holes of gigabytes, and without sockets."""
    found = {}
    for name in sorted(os.fsencode(path) for path in top.rglob("*")):
        stat = os.lstat(name)
        about = [oct(stat.st_mode), stat.st_uid, stat.st_gid, stat.st_mtime_ns, stat.st_size if stat.st_mode & 0o100000 else 0]
        if os.path.islink(name):
            about.append(os.readlink(name))
        elif os.path.isfile(name):
            about.append({n: os.getxattr(name, n) for n in os.listxattr(name)})
            about.append(subprocess.run(["sha256sum"], stdin=open(name, "rb"), capture_output=True, check=True).stdout
                         if stat.st_size < 1 << 30 else parts(name))
        found[os.path.relpath(name, os.fsencode(top))] = about
    return found


def parts(name):
    """The data of a file with large holes, where a filesystem says that it is not zeros."""
    with open(name, "rb") as f:
        size, at, found = f.seek(0, 2), 0, []
        while at < size:
            try:
                start = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(f.fileno(), start, os.SEEK_HOLE)
            f.seek(start)
            data = f.read(end - start)
            # Filesystems differ in where a hole begins.
            found.append((start + len(data) - len(data.lstrip(b"\0")), data.strip(b"\0")))
            at = end
        return found


def test_tar_restores_a_snapshot(daemon, folder):
    """X2, X3"""
    top, out = daemon.mounted, folder / "out"
    out.mkdir()
    fill(top / "tree", files=20, big_bytes=3_000_000)
    special(top)
    os.utime(top, ns=(1, 1_111_111_111_000_000_007))
    snap(daemon, "create", "files@one")
    subprocess.run(["rm", "-r", str(top / "tree")], check=True)
    command = [daemon.program, "--data", str(daemon.data), "snap", "export", "files@one", "--tar"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as export:
        unpacked = subprocess.run(["tar", "-x", "-C", str(out), "--xattrs", "--xattrs-include=*", "-p"],
                                  stdin=export.stdout, capture_output=True, text=True, check=False)
    assert export.returncode == 0 and unpacked.returncode == 0, unpacked.stderr
    view = top / ".snapshots" / "one"
    want, got = described(view), described(out)
    assert b"odd/sock" in want and b"odd/sock" not in got, "tar knows no sockets"
    del want[b"odd/sock"]
    # The socket was an entry of its folder: nothing else differs.
    assert got == want
    assert out.stat().st_mtime_ns == 1_111_111_111_000_000_007
    assert (out / "odd/holes").stat().st_blocks * 512 < 10 << 20, "holes stay holes"
    assert (out / "tree/big.bin").stat().st_ino == (out / "tree/docs/deep/second-name").stat().st_ino
    assert os.lstat(out / "odd/long link").st_ino == os.lstat(out / "odd/second link").st_ino
    zero = os.lstat(out / "odd/zero")
    assert (os.major(zero.st_rdev), os.minor(zero.st_rdev)) == (1, 5)

    whole = subprocess.run(command, capture_output=True, check=True).stdout
    assert len(whole) % 512 == 0 and whole.endswith(bytes(1024)) and len(whole) < 40 << 20
    none = daemon.run("snap", "export", "files@nope", "--tar")
    assert none.returncode == 1 and "there is no snapshot" in none.stderr
