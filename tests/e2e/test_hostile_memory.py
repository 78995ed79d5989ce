"""The memory of a daemon: nothing of a closed encrypted volume is left in it, and nobody gets it as a core file."""

import os
import random
import re
import resource
import stat
import subprocess
from pathlib import Path

import pytest

import nfs3
from conftest import make
from nfs3 import Nfs3
from test_encryption import PASSPHRASE, typed, volumes
from test_smb import smb
from waiting import wait_for

# Copies of a mark in a file, and files with one each.
COPIES, SMALL = 16_000, 300


def memory(pid):
    """All that a process may write, piece by piece, with an overlap for what lies across two pieces."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            start, end, rights = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line).groups()
            if "w" not in rights or "[v" in line:
                continue
            at, end, tail = int(start, 16), int(end, 16), b""
            while at < end:
                try:
                    mem.seek(at)
                    piece = mem.read(min(16 << 20, end - at))
                except OSError:
                    break
                yield tail + piece
                tail = piece[-64:]
                at += len(piece)


def copies(pid, *marks):
    """How often each mark is in the memory."""
    found = [0] * len(marks)
    for piece in memory(pid):
        for n, mark in enumerate(marks):
            found[n] += piece.count(mark)
    return found


def mark(kind):
    return f"{kind}-{random.randrange(1 << 60):x}".encode()


@pytest.fixture
def vault(folder):
    """A daemon with an unlocked volume `secret`, which is shared."""
    daemon = make(folder, extra=["--squash", "none"]).start()
    typed(daemon, "volume", "create", "secret", "--encrypt")
    yield daemon
    if daemon.alive():
        daemon.stop()


def fill(daemon, folder, large, small, name):
    """Marks in contents and names, through several doors, written and read again."""
    body = b"".join(large + os.urandom(256 - len(large)) for _ in range(COPIES))
    with Nfs3.mount("127.0.0.1", daemon.nfs_port, "/secret") as nfs:
        file = nfs.create(nfs.root, name + b"-large").handle
        nfs.write_all(file, body)
        for n in range(SMALL):
            nfs.write(nfs.create(nfs.root, name + b"-%d" % n).handle, 0, small, nfs3.FILE_SYNC)
        assert nfs.read_all(file) == body
        assert len(nfs.list(nfs.root, plus=True)) == SMALL + 1
    (folder / "put").write_bytes(small * 50)
    smb(daemon, f"put put by-smb; get {(name + b'-large').decode()} got", share="secret", cwd=folder)
    assert (folder / "got").read_bytes() == body


@pytest.mark.parametrize("end", ["lock", "destroy", "rollback"])
def test_a_closed_volume_leaves_nothing_in_memory(vault, folder, end):
    large, small, name = mark("large"), mark("small"), mark("name")
    if end == "rollback":
        vault.run("snap", "create", "secret@before", check=True)
    fill(vault, folder, large, small, name)
    before = copies(vault.pid, large, small, name)
    assert before[0] > COPIES // 2 and min(before) > 0, before
    typed(vault, *{
        "lock": ("volume", "lock", "secret"),
        "destroy": ("volume", "destroy", "secret", "--yes"),
        "rollback": ("snap", "rollback", "secret@before", "--yes"),
    }[end])
    left = [1]

    def is_gone():
        left[:] = copies(vault.pid, large, small, name, PASSPHRASE.encode())
        # A volume that went back is open again, and may have read blocks of tables that still hold rows of before.
        few = 0 if end != "rollback" else sum(before) // 200
        return left[0] + left[3] == 0 and sum(left) <= few

    wait_for(is_gone, limit_s=20, told=lambda: f"copies of large, small, name, passphrase: {before} before, {left} now")
    if end == "lock":
        assert volumes(vault)["secret"]["locked"]
        typed(vault, "volume", "unlock", "secret")
        with Nfs3.mount("127.0.0.1", vault.nfs_port, "/secret") as nfs:
            assert nfs.read(nfs.walk((name + b"-7").decode()), 0, 100).data == small


def locked_kib(pid):
    return int(re.search(r"VmLck:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


def test_keys_are_locked_in_memory(vault):
    assert 16 <= locked_kib(vault.pid) <= 64


def test_a_system_that_locks_no_memory_is_no_fault(folder):
    daemon = make(folder)
    command = daemon.command
    # Without CAP_IPC_LOCK root has the limits of everybody.
    daemon.command = lambda: ["setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock", "prlimit", "--memlock=0:0", *command()]
    daemon.start()
    try:
        typed(daemon, "volume", "create", "secret", "--encrypt")
        typed(daemon, "volume", "lock", "secret")
        typed(daemon, "volume", "unlock", "secret")
        assert locked_kib(daemon.pid) == 0
        assert daemon.log().count("may reach the swap") == 1 and "LimitMEMLOCK" in daemon.log()
    finally:
        daemon.end()


def test_the_daemon_leaves_no_core_and_lets_nobody_look(folder):
    daemon = make(folder)

    def limits(pid):
        return resource.prlimit(pid, resource.RLIMIT_CORE)

    before = limits(os.getpid())
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        daemon.start()
        assert limits(daemon.pid) == (0, 0)
        # The files of a process that is not dumpable belong to root.
        assert os.stat(f"/proc/{daemon.pid}/mem").st_uid == 0
        assert daemon.stop() == 0
        daemon.start(env={"LARDER_KEEP_CORES": "1"})
        assert limits(daemon.pid) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
        daemon.end()


def test_another_process_of_the_same_user_cannot_read_the_memory(tmp_path):
    """As an ordinary user: the daemon is his, and its memory is not."""
    place = tmp_path / "of-1234"
    place.mkdir()
    for path in (tmp_path, *tmp_path.parents):
        if path.owner() == "root" and str(path).startswith("/tmp/pytest"):
            path.chmod(0o755)
    os.chown(place, 1234, 1234)
    daemon = make(place)
    command = daemon.command
    as_user = ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups"]
    daemon.command = lambda: [*as_user, *command()]
    for path in (daemon.data, daemon.password_file):
        os.chown(path, 1234, 1234)
    try:
        daemon.start()
        look = subprocess.run([*as_user, "head", "-c1", f"/proc/{daemon.pid}/environ"], capture_output=True, text=True)
        assert look.returncode != 0 and "denied" in look.stderr, look
    finally:
        daemon.end()


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_files_keep_their_modes_and_the_data_folder_is_closed(folder):
    """A command that changes the configuration opens it to nobody."""
    data = folder / "data"
    daemon = make(folder)
    data.chmod(0o755)
    daemon.start()
    try:
        assert f"{data} is open to other users" in daemon.log() and "chmod 700" in daemon.log()
        file = data / "larder.toml"
        assert mode(file) == 0o600
        daemon.run("share", "set", daemon.share, "--read-only", check=True)
        assert mode(file) == 0o600
        file.chmod(0o640)
        os.chown(file, 0, 1234)
        daemon.run("share", "set", daemon.share, "--read-only=no", check=True)
        assert (mode(file), file.stat().st_uid, file.stat().st_gid) == (0o640, 0, 1234)
        daemon.run("group", "add", "family", check=True)
        assert (mode(file), file.stat().st_gid) == (0o640, 1234)
        for name in ("secrets", "secrets.key", "larder.sock"):
            assert mode(data / name) == 0o600, name
    finally:
        daemon.end()
    bare = folder / "bare"
    bare.mkdir(mode=0o755)
    daemon = make(folder / "other")
    command = daemon.command
    daemon.command = lambda: [str(bare) if word == str(daemon.data) else word for word in command()]
    daemon.start()
    try:
        assert mode(bare) == 0o700
    finally:
        daemon.end()


def test_a_pool_needs_no_privilege(tmp_path):
    """As the unit of the guide has it: an ordinary user, no capability, none to be had."""
    for path in (tmp_path, *tmp_path.parents):
        if str(path).startswith("/tmp/pytest"):
            path.chmod(0o755)
    place = tmp_path / "nobody"
    place.mkdir()
    daemon = make(place)
    for path in (place, daemon.data, daemon.password_file):
        os.chown(path, 65534, 65534)
    command = daemon.command
    daemon.command = lambda: ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "--bounding-set=-all", *command()]
    daemon.start()
    try:
        status = Path(f"/proc/{daemon.pid}/status").read_text()
        assert re.search(r"CapEff:\s+0+\n", status) and re.search(r"CapBnd:\s+0+\n", status) and "NoNewPrivs:\t1" in status
        with Nfs3.mount("127.0.0.1", daemon.nfs_port, daemon.export) as nfs:
            nfs.write_all(nfs.create(nfs.root, "a").handle, b"kept")
            assert nfs.read_all(nfs.walk("a")) == b"kept"
        typed(daemon, "volume", "create", "secret", "--encrypt")
        daemon.run("share", "set", daemon.share, "--read-only", check=True)
        assert daemon.stop() == 0
    finally:
        daemon.end()
