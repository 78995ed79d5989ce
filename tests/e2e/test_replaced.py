"""A name that clients replace all the while leads to a file at every door, whichever door they replace it by."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
import time
import traceback
from pathlib import Path

import pytest
from impacket.smbconnection import SMBConnection

from conftest import client, make
from test_sftp import Client
from test_webdav import D, Dav

SECONDS = 6


@pytest.fixture(scope="module")
def place():
    path = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def daemon(place):
    (place / "mnt").mkdir()
    doors = ["--mount", str(place / "mnt"), "--sftp", "127.0.0.1:0", "--webdav", "127.0.0.1:0", "--squash", "none"]
    daemon = make(place, extra=doors).start()
    daemon.mounted = place / "mnt"
    os.chmod(daemon.mounted, 0o777)
    yield daemon
    log = daemon.log()
    assert daemon.stop() == 0 and "panicked" not in log, log[-4000:]


@contextlib.contextmanager
def by_mount(daemon, place, name):
    at = daemon.mounted / name

    def replace(n):
        new = at.with_name(f".{threading.get_ident()}-{name}")
        new.write_bytes(b"m" * (n % 2000))
        os.chmod(new, 0o666)
        os.rename(new, at)

    def use(n):
        assert len(at.read_bytes()) < 2000 and at.stat().st_size < 2000

    yield replace, use


@contextlib.contextmanager
def by_nfs(daemon, place, name):
    with client(daemon) as nfs:

        def replace(n):
            new = f".{threading.get_ident()}-{name}".encode()
            nfs.write(nfs.create(nfs.root, new, mode=0o666).handle, 0, b"n" * (n % 2000), stable=0)
            nfs.rename(nfs.root, new, nfs.root, name.encode())

        def use(n):
            # What a handle stands for may be gone by the next call; what a name stands for may not.
            assert nfs.lookup(nfs.root, name.encode()).handle

        yield replace, use


@contextlib.contextmanager
def by_webdav(daemon, place, name):
    dav, at = Dav(daemon), f"/{daemon.share}/{name}"

    def replace(n):
        dav.put(at, b"d" * (n % 2000))

    def use(n):
        got = dav("GET", at)
        assert got.status == 200 and len(got.body) == int(got.headers["content-length"]), (got.status, got.body)
        for depth, path in (("0", at), ("1", f"/{daemon.share}/")):
            found = dav("PROPFIND", path, Depth=depth)
            assert found.status == 207 and at in found.hrefs(), (depth, found.status)
        assert dav("HEAD", at).status == 200

    yield replace, use


@contextlib.contextmanager
def by_sftp(daemon, place, name):
    at = Path(tempfile.mkdtemp(dir=place))
    sftp = Client(daemon, place)
    sftp.run("sshfs", *sftp.options(), "-o", "cache=no,direct_io", "-p", sftp.port, sftp.at(f"/{daemon.share}"), at)

    def replace(n):
        new = at / f".{threading.get_ident()}-{name}"
        new.write_bytes(b"s" * (n % 2000))
        os.rename(new, at / name)

    def use(n):
        assert len((at / name).read_bytes()) < 2000
        assert name in os.listdir(at)

    try:
        yield replace, use
    finally:
        subprocess.run(["umount", at], check=True)


@contextlib.contextmanager
def by_smb(daemon, place, name):
    smb = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=daemon.smb_port)
    smb.login(daemon.user, daemon.password)

    def use(n):
        smb.getFile(daemon.share, name, lambda data: None, shareAccessMode=7)
        assert [f for f in smb.listPath(daemon.share, name)]

    yield None, use
    smb.close()


DOORS = {"mount": by_mount, "NFS": by_nfs, "WebDAV": by_webdav, "SFTP": by_sftp, "SMB": by_smb}


@pytest.mark.parametrize("replacing", ["mount", "NFS", "WebDAV", "SFTP"])
def test_a_replaced_name_is_always_there(daemon, place, replacing):
    name = f"by-{replacing}"
    failures, counts, end = [], dict.fromkeys([*DOORS, "replaced"], 0), None

    def work(door, act, what):
        with DOORS[door](daemon, place, name) as actions:
            ready.wait()
            n = 0
            while time.monotonic() < end:
                try:
                    actions[act](n)
                except Exception:
                    failures.append(f"{what}: {traceback.format_exc(limit=-3)}")
                n += 1
            counts[what] += n

    with DOORS[replacing](daemon, place, name) as (replace, _):
        replace(1)
    workers = [threading.Thread(target=work, args=(door, 1, door)) for door in DOORS]
    workers += [threading.Thread(target=work, args=(replacing, 0, "replaced")) for _ in range(2)]
    ready = threading.Barrier(len(workers) + 1)
    [worker.start() for worker in workers]
    end = time.monotonic() + SECONDS + 5
    ready.wait(30)
    [worker.join() for worker in workers]
    assert not failures, f"{len(failures)} in {counts}: {failures[0]}\n{failures[-1]}"
    assert all(counts.values()), counts
