"""A watch of a whole tree over SMB hears of changes at any depth, whichever door makes them."""

import io
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from impacket import smb3structs as smb2
from impacket.smbconnection import SMBConnection

from conftest import client, make
from test_folder_share import Host
from test_access import add_user
from test_sftp import Client
from test_webdav import Dav

ADDED, REMOVED, MODIFIED, OLD_NAME, NEW_NAME = 1, 2, 3, 4, 5
NAMES = 3
LAST_WRITE = 0x10
TREE = 1
ENUM_DIR = 0x10C
LIST = 0x0010_0001


class Watcher:
    """Watches a folder. Each answer is asked for before what is to be heard happens."""

    def __init__(self, daemon, share, path, tree=True, kinds=NAMES):
        self.tree, self.kinds = tree, kinds
        self.connection = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=daemon.smb_port, preferredDialect=smb2.SMB2_DIALECT_30, timeout=20)
        self.connection.login(daemon.user, daemon.password)
        self.low = self.connection.getSMBServer()
        self.share = self.low.connectTree(share)
        self.dir = self.low.create(self.share, path.replace("/", "\\"), LIST, 7, 1, smb2.FILE_OPEN, 0)
        self.ask()

    def ask(self):
        packet = self.low.SMB_PACKET()
        packet["Command"], packet["TreeID"] = smb2.SMB2_CHANGE_NOTIFY, self.share
        body = smb2.SMB2ChangeNotify()
        body["Flags"], body["OutputBufferLength"], body["FileID"], body["CompletionFilter"] = TREE * self.tree, 65536, self.dir, self.kinds
        packet["Data"] = body
        self.asked = self.low.sendSMB(packet)

    def hear(self, count):
        """The next changes, at least `count` of them, as (action, path)."""
        changes = []
        while len(changes) < count:
            answer = self.low.recvSMB(self.asked)
            assert answer["Status"] != ENUM_DIR, "changes are lost"
            assert answer["Status"] == 0, hex(answer["Status"])
            data, at = smb2.SMB2ChangeNotify_Response(answer["Data"])["Buffer"], 0
            while True:
                following, action, length = (int.from_bytes(data[at + n:at + n + 4], "little") for n in (0, 4, 8))
                changes.append((action, data[at + 12:at + 12 + length].decode("utf-16-le").replace("\\", "/")))
                if not following:
                    break
                at += following
            self.ask()
        return changes

    def end(self):
        self.connection.close()


class ByNfs:
    def __init__(self, daemon, place, folder):
        self.nfs = daemon.as_nfs()
        self.top = folder

    def dir(self, path):
        return self.nfs.walk(f"{self.top}/{path}")

    def make(self, path, name):
        self.nfs.create(self.dir(path), name)

    def make_folder(self, path, name):
        self.nfs.mkdir(self.dir(path), name)

    def rename(self, path, name, new):
        self.nfs.rename(self.dir(path), name, self.dir(path), new)

    def move(self, path, name, to):
        self.nfs.rename(self.dir(path), name, self.dir(to), name)

    def remove(self, path, name):
        self.nfs.remove(self.dir(path), name)


class BySftp:
    def __init__(self, daemon, place, folder):
        self.client = Client(daemon, place, user=daemon.user)
        self.top, self.empty = f"/{daemon.share}/{folder}", place / "empty"
        self.empty.write_bytes(b"")

    def make(self, path, name):
        self.client.sftp(f"put {self.empty} {self.top}/{path}/{name}")

    def make_folder(self, path, name):
        self.client.sftp(f"mkdir {self.top}/{path}/{name}")

    def rename(self, path, name, new):
        self.client.sftp(f"rename {self.top}/{path}/{name} {self.top}/{path}/{new}")

    def move(self, path, name, to):
        self.client.sftp(f"rename {self.top}/{path}/{name} {self.top}/{to}/{name}")

    def remove(self, path, name):
        self.client.sftp(f"rm {self.top}/{path}/{name}")


class ByDav:
    def __init__(self, daemon, place, folder):
        self.dav, self.top = Dav(daemon, user=daemon.user), f"/{daemon.share}/{folder}"

    def ask(self, method, path, *body, **headers):
        answer = self.dav(method, f"{self.top}/{path}", *body, **headers)
        assert answer.status in (201, 204), (method, path, answer.status, answer.body)

    def make(self, path, name):
        self.ask("PUT", f"{path}/{name}", b"")

    def make_folder(self, path, name):
        self.ask("MKCOL", f"{path}/{name}")

    def rename(self, path, name, new):
        self.ask("MOVE", f"{path}/{name}", Destination=self.dav.url(f"{self.top}/{path}/{new}"))

    def move(self, path, name, to):
        self.ask("MOVE", f"{path}/{name}", Destination=self.dav.url(f"{self.top}/{to}/{name}"))

    def remove(self, path, name):
        self.ask("DELETE", f"{path}/{name}")


class ByPrograms:
    """On a mount, or in the folder of the host."""

    def __init__(self, daemon, place, folder):
        self.top = daemon.local / folder

    def make(self, path, name):
        (self.top / path / name).touch()

    def make_folder(self, path, name):
        (self.top / path / name).mkdir()

    def rename(self, path, name, new):
        (self.top / path / name).rename(self.top / path / new)

    def move(self, path, name, to):
        (self.top / path / name).rename(self.top / to / name)

    def remove(self, path, name):
        (self.top / path / name).unlink()


@pytest.fixture(scope="module")
def place():
    path = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def ended(daemon):
    log = daemon.log()
    assert daemon.stop() == 0, log[-4000:]
    assert "panicked" not in log, log[-4000:]


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


@pytest.fixture(scope="module")
def host(place):
    (place / "host").mkdir()
    (place / "host").chmod(0o755)
    daemon = Host(place / "host").start()
    add_user(daemon, "ann")
    daemon.local, daemon.as_nfs = daemon.photos, daemon.nfs
    yield daemon
    ended(daemon)


def deep(daemon, name):
    """Folders of the test's own, open to everybody."""
    top = daemon.local / name
    for folder in (top, top / "a", top / "a/b", top / "c"):
        folder.mkdir()
        folder.chmod(0o777)


def heard_by_all_means(daemon, place, door, name):
    deep(daemon, name)
    act = door(daemon, place, name)
    watcher, entries = Watcher(daemon, daemon.share, name), Watcher(daemon, daemon.share, name, tree=False)
    act.make("a/b", "f")
    assert watcher.hear(1) == [(ADDED, "a/b/f")]
    act.rename("a/b", "f", "g")
    assert watcher.hear(2) == [(OLD_NAME, "a/b/f"), (NEW_NAME, "a/b/g")]
    act.move("a", "b", "c")
    assert watcher.hear(2) == [(REMOVED, "a/b"), (ADDED, "c/b")]
    act.make_folder("c/b", "new")
    assert watcher.hear(1) == [(ADDED, "c/b/new")]
    act.make("c/b/new", "in")
    assert watcher.hear(1) == [(ADDED, "c/b/new/in")]
    act.remove("c/b", "g")
    assert watcher.hear(1) == [(REMOVED, "c/b/g")]
    act.make("", "top")
    assert watcher.hear(1) == [(ADDED, "top")]
    # A watch of the entries hears of them alone.
    assert entries.hear(1) == [(ADDED, "top")]
    watcher.end()
    entries.end()


@pytest.mark.parametrize("door", [ByNfs, BySftp, ByDav, ByPrograms])
def test_a_watch_of_a_tree_hears_of_every_door(volume, place, door):
    heard_by_all_means(volume, place, door, f"tree-{door.__name__}")


def test_a_watch_of_a_tree_hears_of_another_share(volume, place):
    volume.run("share", "add", "second", "--volume", "files", check=True)
    deep(volume, "second-share")
    watcher = Watcher(volume, "second", "second-share")
    low = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=volume.smb_port)
    low.login(volume.user, volume.password)
    for share in (volume.share, "second"):
        low.createDirectory(share, f"second-share\\a\\b\\{share}")
        assert watcher.hear(1) == [(ADDED, f"a/b/{share}")], "once"
    low.close()
    watcher.end()


def test_a_watch_of_a_tree_of_the_host_hears_of_doors(host, place):
    heard_by_all_means(host, place, ByNfs, "nfs")


def test_what_another_share_writes_is_heard_by_its_name_in_order(volume, place):
    volume.run("share", "add", "third", "--volume", "files", check=True)
    deep(volume, "written")
    watcher = Watcher(volume, "third", "written", kinds=NAMES | LAST_WRITE)
    low = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=volume.smb_port)
    low.login(volume.user, volume.password)
    low.putFile(volume.share, "written\\a\\b\\File", io.BytesIO(b"data").read)
    assert watcher.hear(2) == [(ADDED, "a/b/File"), (MODIFIED, "a/b/File")]
    # The names of others do not overtake it, and it has the name that is stored.
    low.putFile(volume.share, "written\\a\\b\\FILE", io.BytesIO(b"more").read)
    (volume.local / "written/c/next").touch()
    assert watcher.hear(3) == [(MODIFIED, "a/b/File"), (MODIFIED, "a/b/File"), (ADDED, "c/next")]
    low.close()
    watcher.end()


def test_a_folder_of_the_host_tells_each_change_once_whoever_makes_it(host, place):
    deep(host, "mixed")
    nfs, programs = ByNfs(host, place, "mixed"), ByPrograms(host, place, "mixed")
    watchers = [Watcher(host, host.share, "mixed", tree=tree) for tree in (False, True)]
    low = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=host.smb_port)
    low.login(host.user, host.password)
    wanted = []
    for n in range(5):
        low.createDirectory(host.share, f"mixed\\smb{n}")
        programs.make_folder("", f"program{n}")
        nfs.make_folder("", f"nfs{n}")
        wanted += [(ADDED, f"smb{n}"), (ADDED, f"program{n}"), (ADDED, f"nfs{n}")]
        low.rename(host.share, f"mixed\\program{n}", f"mixed\\renamed{n}")
        programs.rename("", f"smb{n}", f"moved{n}")
        wanted += [(OLD_NAME, f"program{n}"), (NEW_NAME, f"renamed{n}"), (OLD_NAME, f"smb{n}"), (NEW_NAME, f"moved{n}")]
        (host.local / f"mixed/nfs{n}").rmdir()
        low.deleteDirectory(host.share, f"mixed\\moved{n}")
        wanted += [(REMOVED, f"nfs{n}"), (REMOVED, f"moved{n}")]
    for watcher in watchers:
        assert watcher.hear(len(wanted)) == wanted
        watcher.end()
    low.close()


def test_watches_of_one_user_share_a_budget_and_hear_that_changes_were_lost(volume):
    """Beyond 16 MiB a watch is told to list the folder again; nothing else is lost."""
    folder, names = "budget", [f"{n:03}" + "x" * 237 for n in range(100)]
    maker = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=volume.smb_port, preferredDialect=smb2.SMB2_DIALECT_30, timeout=20)
    maker.login(volume.user, volume.password)
    maker.createDirectory(volume.share, folder)
    low, share = maker.getSMBServer(), maker.connectTree(volume.share)

    def make_file(name):
        low.close(share, low.create(share, f"{folder}\\{name}", 0x0012_019F, 7, 0, smb2.FILE_OPEN_IF, 0))

    # 400 watches that buffer 50 KB each are 20 MB.
    connections = [Watcher(volume, volume.share, folder) for _ in range(4)]
    watches = []
    for one in connections:
        watches.append((one, one.dir, one.asked))
        for _ in range(99):
            one.dir = one.low.create(one.share, folder, LIST, 7, 1, smb2.FILE_OPEN, 0)
            one.ask()
            watches.append((one, one.dir, one.asked))
    before = volume.rss_bytes()
    for name in ("first", *names):
        make_file(name)
    assert volume.rss_bytes() - before < 200 << 20

    def ask(one, watched):
        one.dir = watched
        one.ask()
        return one.asked

    for one, _, asked in watches:
        assert one.low.recvSMB(asked)["Status"] == 0
    answers = [one.low.recvSMB(ask(one, watched)) for one, watched, _ in watches]
    told = [answer["Status"] for answer in answers]
    assert set(told) == {0, ENUM_DIR}, set(map(hex, told))
    assert all(len(smb2.SMB2ChangeNotify_Response(a["Data"])["Buffer"]) > 49_000 for a in answers if a["Status"] == 0)
    assert 300 < told.count(0) <= (16 << 20) // 49_200, told.count(0)
    # All of them hear of what happens next.
    asked = [(one, ask(one, watched)) for one, watched, _ in watches]
    make_file("next")
    assert all(one.low.recvSMB(asked)["Status"] == 0 for one, asked in asked)
    for one in connections:
        one.end()
    maker.close()
