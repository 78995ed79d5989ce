"""The guard of a share: programs that ruin files are told about and stopped, and backups, imports and editors are not."""

import contextlib
import json
import os
import random
import subprocess

import pytest
from impacket.smbconnection import SessionError, SMBConnection

from conftest import client, make, payload
from guard_loads import HARMFUL, HARMLESS, answer, attack, places, told
from nfs3 import FILE_SYNC
from test_sftp import Client
from test_webdav import Dav

SIZE = 60


@contextlib.contextmanager
def served(folder, mode=None):
    """A larder whose share is mounted twice: locally, past every share, and by SFTP."""
    local, mount = folder / "local", folder / "mount"
    local.mkdir()
    mount.mkdir()
    daemon = make(folder, count=1, layout="single", extra=["--sftp", "127.0.0.1:0", "--mount", str(local)]).start()
    try:
        daemon.mounted = local
        os.chmod(local, 0o1777)
        if mode:
            daemon.run("share", "set", daemon.share, "--guard", mode, check=True)
        keeper = Client(daemon, folder)
        keeper.run("sshfs", *keeper.options(), "-o", "cache=no", "-p", keeper.port, keeper.at(f"/{daemon.share}"), mount)
        try:
            yield daemon, mount
        finally:
            subprocess.run(["fusermount3", "-u", "-z", str(mount)], check=True)
        log = daemon.log()
        assert daemon.stop() == 0, log[-4000:]
        assert "panicked" not in log, log[-4000:]
    finally:
        daemon.end()


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    with served(tmp_path_factory.mktemp("guard")) as both:
        yield both


@pytest.mark.parametrize("load", HARMLESS, ids=lambda load: load.__name__)
def test_no_false_alarm(watched, folder, load):
    daemon, mount = watched
    load(*places(daemon, mount, load, folder), random.Random(7), SIZE)
    assert told(daemon) == []


@pytest.mark.parametrize("load", HARMFUL, ids=lambda load: load.__name__)
def test_harm_is_told_once(folder, load):
    with served(folder) as (daemon, mount):
        attack(load, *places(daemon, mount, load, folder), random.Random(7), SIZE)
        [alert] = told(daemon)
        assert (alert["severity"], "keeper at 127.0.0.1" in alert["subject"]) == ("critical", True)
        assert "There is no snapshot" in alert["text"], alert["text"]
        answer(daemon)
        assert told(daemon) == []


def test_one_client_is_blocked_until_somebody_answers(folder):
    larder = make(folder, count=1, layout="single").start()
    try:
        volume = json.loads(larder.run("share", "list", "--json", check=True).stdout)[0]["volume"]
        larder.run("share", "set", larder.share, "--guard", "block", check=True)
        text = b"These are words that somebody can read. " * 100
        with client(larder) as nfs:
            for n in range(120):
                nfs.write_all(nfs.create(nfs.root, f"f{n}", mode=0o666).handle, text)
            larder.run("snap", "create", f"{volume}@before", check=True)

            smb = SMBConnection("*S", "127.0.0.1", sess_port=larder.smb_port)
            smb.login(larder.user, larder.password)
            tree, ruined = smb.connectTree(larder.share), 0
            with pytest.raises(SessionError, match="ACCESS_DENIED"):
                for n in range(120):
                    file = smb.openFile(tree, f"f{n}", desiredAccess=0x12019F)
                    smb.writeFile(tree, file, payload(4000, seed=n))
                    smb.closeFile(tree, file)
                    ruined += 1
            assert 40 <= ruined < 60, ruined
            # It may read, and everybody else may write.
            file = smb.openFile(tree, "f110", desiredAccess=0x120089)
            assert smb.readFile(tree, file, 0, len(text)) == text
            smb.closeFile(tree, file)
            for refused in (lambda: smb.deleteFile(larder.share, "f111"), lambda: smb.createFile(tree, "new"),
                            lambda: smb.rename(larder.share, "f112", "x"), lambda: smb.createDirectory(larder.share, "d")):
                with pytest.raises(SessionError, match="ACCESS_DENIED"):
                    refused()
            assert nfs.lookup(nfs.root, "f111").handle
            nfs.write(nfs.create(nfs.root, "still", mode=0o666).handle, 0, text, FILE_SYNC)

        [alert] = told(larder)
        assert "may not write" in alert["text"] and f"{volume}@before" in alert["text"], alert["text"]
        assert larder.run("snap", "destroy", f"{volume}@before").returncode != 0, "it is held"
        assert larder.stop() == 0
        larder.start()
        smb = SMBConnection("*S", "127.0.0.1", sess_port=larder.smb_port)
        smb.login(larder.user, larder.password)
        tree = smb.connectTree(larder.share)
        with pytest.raises(SessionError, match="ACCESS_DENIED"):
            smb.createFile(tree, "after")
        [same] = told(larder)
        assert same["id"] == alert["id"]
        assert larder.run("alerts", "release", "9999").returncode != 0
        larder.run("alerts", "release", str(alert["id"]), check=True)
        assert told(larder) == []
        smb.createFile(tree, "after")
        assert larder.stop() == 0
    finally:
        larder.end()


def test_files_replaced_over_webdav_count_for_their_client(folder):
    larder = make(folder, count=1, layout="single", extra=["--webdav", "127.0.0.1:0"]).start()
    try:
        larder.run("share", "set", larder.share, "--guard", "block", check=True)
        with client(larder) as nfs:
            for n in range(120):
                nfs.write_all(nfs.create(nfs.root, f"f{n}", mode=0o666).handle, b"These are words that somebody can read. " * 100)
        dav, done = Dav(larder), []
        for n in range(120):
            done.append(dav("PUT", f"/{larder.share}/f{n}", payload(4000, seed=n)).status)
        ruined = done.count(204)
        assert 40 <= ruined < 60 and done == [204] * ruined + [403] * (120 - ruined), done
        [alert] = told(larder)
        assert "keeper at 127.0.0.1" in alert["subject"], alert
        for method, more in [("COPY", {"Destination": f"/{larder.share}/f119", "Overwrite": "T"}), ("DELETE", {})]:
            assert dav(method, f"/{larder.share}/f0", **more).status == 403, method
        assert larder.stop() == 0
    finally:
        larder.end()


def test_removals_over_smb_count_for_their_client(folder):
    larder = make(folder, count=1, layout="single").start()
    try:
        larder.run("share", "set", larder.share, "--guard", "off", check=True)
        with client(larder) as nfs:
            for n in range(60):
                nfs.write_all(nfs.create(nfs.root, f"f{n}", mode=0o666).handle, b"Words of a letter. " * 200)
        larder.run("share", "set", larder.share, "--guard", "alert", check=True)
        smb = SMBConnection("*S", "127.0.0.1", sess_port=larder.smb_port)
        smb.login(larder.user, larder.password)
        tree = smb.connectTree(larder.share)
        for n in range(60):
            file = smb.createFile(tree, f"f{n}.locked")
            smb.writeFile(tree, file, payload(4000, seed=n))
            smb.closeFile(tree, file)
            smb.deleteFile(larder.share, f"f{n}")
        [alert] = told(larder)
        assert alert["subject"].endswith("keeper at 127.0.0.1")
        assert larder.stop() == 0
    finally:
        larder.end()
