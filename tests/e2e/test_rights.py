"""The rights that a daemon of root keeps, and that everything which needs one still works."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

import larderd
from conftest import client, make
from nfs3 import GUARDED
from test_access import add_user
from test_folder_share import Host, place  # noqa: F401
from waiting import wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to drop")

# linux/capability.h
NUMBERS = {
    "CHOWN": 0, "DAC_OVERRIDE": 1, "DAC_READ_SEARCH": 2, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7,
    "NET_BIND_SERVICE": 10, "IPC_LOCK": 14, "SYS_RAWIO": 17, "SYS_ADMIN": 21, "MKNOD": 27,
}
KEPT = sum(1 << number for number in NUMBERS.values())


def rights(status):
    lines = (line.split(":\t") for line in Path(status).read_text().splitlines() if line.startswith("Cap"))
    return {name: int(value, 16) for name, value in lines}


def check_rights(pid):
    """Of every thread: a right of one is a right of all. Threads that act as a user have fewer for that moment."""
    ours = rights("/proc/self/status")
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    assert len(tasks) > 3, tasks
    for task in tasks:
        try:
            found = rights(task / "status")
        except FileNotFoundError:
            continue
        kept = KEPT & ours["CapPrm"]
        assert found["CapPrm"] == kept and found["CapEff"] & ~kept == 0, (task, found)
        assert found["CapBnd"] == KEPT & ours["CapBnd"], (task, found)
        assert found["CapInh"] == 0 and found["CapAmb"] == 0, (task, found)


def is_free(port):
    try:
        socket.create_server(("127.0.0.1", port)).close()
        return True
    except OSError:
        return False


def test_a_pool_is_served_without_the_rest(folder, loop_disks):
    """Disks are filesystems on devices; doors below 1024 are bound, and bound again after a restart."""
    disks = [disk.folder for disk in loop_disks(300, 300, 300)]
    port = next(port for port in range(1023, 600, -1) if is_free(port))
    daemon = larderd.Larder(disks, folder / "data", layout="raidz1", extra=["--webdav", f"127.0.0.1:{port}", "--squash", "none"])
    try:
        for _ in range(2):
            daemon.start()
            check_rights(daemon.pid)
            assert daemon.info["webdav"]["port"] == port
            with client(daemon) as nfs:
                name = f"f{port}-{daemon.pid}"
                nfs.write_all(nfs.create(nfs.root, name, GUARDED).handle, b"x" * 100_000)
            daemon.run("reload", check=True)
            socket.create_connection(("127.0.0.1", port), 5).close()
            check_rights(daemon.pid)
            assert daemon.status()["state"] == "ONLINE"
            assert daemon.stop() == 0
    finally:
        daemon.end()


def test_folders_belong_to_their_users(place):  # noqa: F811
    host = Host(place).start()
    try:
        check_rights(host.pid)
        add_user(host, "ann")
        with host.nfs(uid=4321, gid=4322) as nfs:
            nfs.write_all(nfs.create(nfs.root, "theirs", GUARDED, mode=0o600).handle, b"abc")
        made = (host.photos / "theirs").stat()
        assert (made.st_uid, made.st_gid, made.st_mode & 0o777, made.st_size) == (4321, 4322, 0o600, 3)
        secret = host.photos / "secret"
        secret.write_text("x")
        secret.chmod(0o600)
        with host.nfs(uid=4321, gid=4322) as nfs, pytest.raises(Exception, match="(?i)acces"):
            nfs.read(nfs.lookup(nfs.root, "secret").handle, 0, 1)
        check_rights(host.pid)
    finally:
        host.end()


def test_mounts_are_made_and_taken_away(folder):
    if not Path("/dev/fuse").exists():
        pytest.skip("this kernel has no FUSE")
    daemon = make(folder, count=1, layout="single").start()
    mount = folder / "mnt"
    mount.mkdir()
    try:
        daemon.run("mount", str(mount), check=True)
        (mount / "file").write_text("by way of the kernel")
        check_rights(daemon.pid)
        daemon.run("umount", str(mount), check=True)
        assert not os.path.ismount(mount)
    finally:
        subprocess.run(["umount", "-l", mount], check=False, stderr=subprocess.DEVNULL)
        daemon.end()


def test_programs_of_the_configuration_get_no_more(folder):
    """A command that larder starts as root has what larder has."""
    daemon = make(folder, count=1, layout="single").start()
    said, program = folder / "said", folder / "program"
    program.write_text(f"#!/bin/sh\ngrep Cap /proc/self/status > {said}.part\nmv {said}.part {said}\n")
    program.chmod(0o755)
    config = daemon.data / "larder.toml"
    try:
        config.write_text(config.read_text() + f'\n[[alert]]\nkind = "command"\ncommand = ["{program}"]\n')
        daemon.run("reload", check=True)
        daemon.run("alerts", "test")
        wait_for(said.exists, 30)
        found = rights(said)
        assert found["CapEff"] & ~KEPT == 0 and found["CapBnd"] & ~KEPT == 0, found
    finally:
        daemon.end()
