"""Operations on the files of a share that is audited: told by every door with who and from where, as chosen, bounded, and silent when idle."""

import json
import os
import re
import stat
import time

import pytest
from impacket.smbconnection import SMBConnection

from conftest import client, make
from test_notify import ByDav, ByNfs, BySftp, deep, ended
from waiting import wait_for


class BySmb:
    def __init__(self, daemon, _place, folder):
        self.smb = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=daemon.smb_port)
        self.smb.login(daemon.user, daemon.password)
        self.share, self.top = daemon.share, folder

    def at(self, *parts):
        return "\\".join([self.top, *(part.replace("/", "\\") for part in parts if part)])

    def make(self, path, name):
        tree = self.smb.connectTree(self.share)
        self.smb.closeFile(tree, self.smb.createFile(tree, self.at(path, name)))

    def make_folder(self, path, name):
        self.smb.createDirectory(self.share, self.at(path, name))

    def rename(self, path, name, new):
        self.smb.rename(self.share, self.at(path, name), self.at(path, new))

    def move(self, path, name, to):
        self.smb.rename(self.share, self.at(path, name), self.at(to, name))

    def remove(self, path, name):
        self.smb.deleteFile(self.share, self.at(path, name))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("audit")


@pytest.fixture(scope="module")
def volume(place):
    mount = place / "mnt"
    mount.mkdir()
    extra = ["--squash", "none", "--sftp", "127.0.0.1:0", "--webdav", "127.0.0.1:0", "--mount", str(mount)]
    daemon = make(place / "pool", extra=extra).start()
    daemon.local, daemon.as_nfs = mount, lambda: client(daemon)
    os.chmod(mount, 0o1777)
    yield daemon
    ended(daemon)


def records(daemon, *options):
    lines = daemon.run("audit", "--json", *options, check=True).stdout.splitlines()
    return [one for one in map(json.loads, lines) if one["kind"] == "file"]


def audited(daemon, what):
    daemon.run("share", "set", daemon.share, f"--audit={what}", check=True)


@pytest.mark.parametrize("door", [ByNfs, BySmb, BySftp, ByDav])
def test_every_door_is_audited(volume, place, door):
    top = f"by-{door.__name__}"
    deep(volume, top)
    audited(volume, "all")
    act = door(volume, place, top)
    before = len(records(volume))
    act.make("a/b", "f")
    act.rename("a/b", "f", "g")
    act.move("a", "b", "c")
    act.make_folder("c/b", "new")
    act.make("c/b/new", "in")
    act.remove("c/b", "g")
    new = records(volume)[before:]
    share = f"{volume.share}/{top}"
    assert [(one["what"], one["target"]) for one in new if one["what"] != "permissions"] == [
        ("created", f"{share}/a/b/f"),
        ("renamed", f"{share}/a/b/f -> {share}/a/b/g"),
        ("renamed", f"{share}/a/b -> {share}/c/b"),
        ("created", f"{share}/c/b/new"),
        ("created", f"{share}/c/b/new/in"),
        ("removed", f"{share}/c/b/g"),
    ]
    who = "uid 0" if door is ByNfs else volume.user
    assert {(one["who"], one["from"], one["by"], one["result"]) for one in new} == {
        (who, "127.0.0.1", door.__name__[2:].lower().replace("dav", "webdav"), "done")
    }
    # What the local mount does is of no share.
    (volume.local / top / "local").touch()
    time.sleep(1.5)
    assert len(records(volume)) == before + len(new)
    audited(volume, "off")


def test_permissions_and_what_is_chosen(volume):
    audited(volume, "removed,permissions")
    before = len(records(volume))
    with client(volume) as nfs:
        at = nfs.create(nfs.root, "chosen").handle
        nfs.setattr(at, mode=0o600)
        nfs.remove(nfs.root, "chosen")
    said = [(one["what"], one["target"]) for one in records(volume)[before:]]
    assert said == [("permissions", f"{volume.share}/chosen"), ("removed", f"{volume.share}/chosen")]
    assert 'audit = "removed,permissions"' in (volume.data / "larder.toml").read_text()
    shown = json.loads(volume.run("share", "list", "--json", check=True).stdout)[0]
    assert shown["audit"] == "removed,permissions"
    wrong = volume.run("share", "set", volume.share, "--audit=everything")
    assert wrong.returncode != 0 and "'everything' is not audited: use off, all, or some of" in wrong.stderr
    lines = [line for line in volume.run("audit", "--syslog", check=True).stdout.splitlines() if " file " in line]
    form = re.compile(r"<110>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [!-~]+ larder - file - (\{.*\})")
    assert json.loads(form.fullmatch(lines[-1]).group(1))["target"] == f"{volume.share}/chosen"
    assert f"removed {volume.share}/chosen" in volume.run("audit", "--since", "1h", check=True).stdout
    audited(volume, "off")
    before = len(records(volume))
    with client(volume) as nfs:
        nfs.create(nfs.root, "silent")
    time.sleep(1.5)
    assert len(records(volume)) == before


def test_a_flood_is_kept_in_batches_and_pushes_out_no_act(volume):
    audited(volume, "all")
    log = volume.data / "watch/audit-files.jsonl"
    wait_for(log.exists)
    before = len(records(volume))
    with client(volume) as nfs:
        for n in range(2000):
            nfs.create(nfs.root, f"flood-{n}")
    said = records(volume)[before:]
    told = [one["target"] for one in said if one["what"] == "created"]
    left_out = [int(one["what"].split()[0]) for one in said if "came too fast" in one["what"]]
    assert len(told) + sum(left_out) == 2000 and told[0] == f"{volume.share}/flood-0"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    # An idle share writes nothing.
    written = log.stat()
    time.sleep(3)
    assert (log.stat().st_size, log.stat().st_mtime_ns) == (written.st_size, written.st_mtime_ns)
    numbers = [one["number"] for one in map(json.loads, volume.run("audit", "--json", check=True).stdout.splitlines())]
    assert numbers == sorted(set(numbers))
    audited(volume, "off")


def test_the_last_operations_before_a_stop_are_there_after_it(place):
    daemon = make(place / "stopped").start()
    try:
        audited(daemon, "created")
        with client(daemon) as nfs:
            nfs.create(nfs.root, "last")
        assert daemon.stop() == 0
        assert records(daemon)[-1]["target"] == f"{daemon.share}/last", "read without a daemon"
    finally:
        daemon.end()
