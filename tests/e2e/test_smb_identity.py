"""An open SMB file is its inode, with the name that it has now, whoever renames it or a folder above it.

A client holds a file or folder open. Somebody else renames it, a folder above it, or puts another file in its place. All
that the client then does through its open acts on what it opened, and never on what has the old name now.
"""

import os
import shutil
import struct
import tempfile
import time
from pathlib import Path

import pytest
from impacket import smb3structs as smb2
from impacket.smb3 import SessionError
from impacket.smbconnection import SMBConnection

from conftest import client, make
from test_access import add_user
from test_folder_share import Host
from test_notify import ADDED, ByDav, ByNfs, ByPrograms, BySftp, Watcher
from waiting import wait_for

ALL = 7
DELETE, READ, WRITE = 0x0001_0000, 0x0012_0089, 0x0012_0116
NON_DIRECTORY, DIRECTORY, ON_CLOSE = 0x40, 0x01, 0x1000
BASIC, STANDARD, RENAME, LINK, DISPOSITION, EVERYTHING, ALTERNATE = 4, 5, 10, 11, 13, 18, 21
NOT_FOUND, DENIED = 0xC000_0034, 0xC000_0022


class Session:
    """One SMB client."""

    def __init__(self, daemon, share=None):
        self.connection = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=daemon.smb_port, preferredDialect=smb2.SMB2_DIALECT_21, timeout=30)
        self.connection.login(daemon.user, daemon.password)
        self.low = self.connection.getSMBServer()
        self.share = share or daemon.share
        self.tree = self.low.connectTree(self.share)

    def open(self, path, access=READ | WRITE | DELETE, sharing=ALL, options=0, disposition=smb2.FILE_OPEN):
        return Held(self, self.low.create(self.tree, path.replace("/", "\\"), access, sharing, options, disposition, 0))

    def end(self):
        self.connection.close()


class Held:
    """An open of a client."""

    def __init__(self, session, file):
        self.session, self.low, self.tree, self.file = session, session.low, session.tree, file

    def info(self, kind, fixed=0):
        data = self.low.queryInfo(self.tree, self.file, fileInfoClass=kind)
        return data if isinstance(data, bytes) else data.getData()

    def path(self):
        data = self.info(EVERYTHING)
        length, = struct.unpack_from("<I", data, 96)
        return data[100:100 + length].decode("utf-16le").replace("\\", "/").lstrip("/")

    def last_name(self):
        data = self.info(ALTERNATE)
        length, = struct.unpack_from("<I", data)
        return data[4:4 + length].decode("utf-16le")

    def set(self, kind, data):
        """The status."""
        try:
            self.low.setInfo(self.tree, self.file, fileInfoClass=kind, inputBlob=data)
            return 0
        except SessionError as error:
            return error.get_error_code()

    def named(self, kind, to, replace):
        name = to.replace("/", "\\").encode("utf-16le")
        return self.set(kind, struct.pack("<B15xI", replace, len(name)) + name)

    def rename(self, to, replace=False):
        return self.named(RENAME, to, replace)

    def link(self, to, replace=False):
        return self.named(LINK, to, replace)

    def delete(self):
        status = self.set(DISPOSITION, b"\1")
        self.close()
        return status

    def write_time(self, filetime):
        return self.set(BASIC, struct.pack("<4QI4x", 0, 0, filetime, 0, 0))

    def read(self):
        return self.low.read(self.tree, self.file, 0, 100)

    def list(self):
        entries = self.low.queryDirectory(self.tree, self.file, "*", maxBufferSize=65535)
        names, at = set(), 0
        while True:
            following, = struct.unpack_from("<I", entries, at)
            length, = struct.unpack_from("<I", entries, at + 8)
            names.add(entries[at + 12:at + 12 + length].decode("utf-16le"))
            if not following:
                return names - {".", ".."}
            at += following

    def close(self):
        self.low.close(self.tree, self.file)


class ByAnotherShare:
    """Another SMB client, on another share of the volume."""

    def __init__(self, daemon, place, folder):
        self.session, self.top = Session(daemon, getattr(daemon, "second", None)), folder

    def rename(self, path, name, new):
        held = self.session.open(f"{self.top}/{path}/{name}", DELETE | 0x80)
        assert held.rename(f"{self.top}/{path}/{new}") == 0
        held.close()

    def move(self, path, name, to):
        held = self.session.open(f"{self.top}/{path}/{name}", DELETE | 0x80)
        assert held.rename(f"{self.top}/{to}/{name}") == 0
        held.close()

    def remove(self, path, name):
        self.session.connection.deleteFile(self.session.share, f"{self.top}/{path}/{name}".replace("/", "\\"))


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
    daemon.run("share", "add", "second", "--volume", "files", check=True)
    daemon.local, daemon.second, daemon.as_nfs = mount, "second", lambda: client(daemon)
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


DOORS = [("volume", ByNfs), ("volume", BySftp), ("volume", ByDav), ("volume", ByPrograms), ("volume", ByAnotherShare),
         ("host", ByNfs), ("host", ByPrograms)]


def shown(value):
    return value if isinstance(value, str) else value.__name__


class Scene:
    """Folders `a/b` and `c` with the file `a/b/f`, a client that holds something of it open, and somebody else."""

    def __init__(self, daemon, place, door, name):
        self.daemon, self.name, self.top = daemon, name, daemon.local / name
        for folder in (self.top, self.top / "a", self.top / "a/b", self.top / "c"):
            folder.mkdir()
            folder.chmod(0o777)
        self.write("a/b/f", b"opened")
        self.session = Session(daemon)
        self.other = door(daemon, place, name)

    def write(self, path, data):
        (self.top / path).write_bytes(data)
        (self.top / path).chmod(0o666)

    def open(self, path, *args, **options):
        return self.session.open(f"{self.name}/{path}", *args, **options)

    def at(self, path):
        return f"{self.name}/{path}"

    def has(self, path):
        return (self.top / path).exists()

    def content(self, path):
        return (self.top / path).read_bytes()


@pytest.fixture(params=DOORS, ids=lambda door: f"{door[0]}-{door[1].__name__}")
def scene(request, place):
    which, door = request.param
    name = request.node.name.replace("[", "-").replace(" ", "-").rstrip("]")[:120]
    one = Scene(request.getfixturevalue(which), place, door, name)
    yield one
    one.session.end()


# What others do to `a/b/f`, and where the file is then.
def file_renamed(scene):
    scene.other.rename("a/b", "f", "g")
    return "a/b/g"


def file_renamed_and_replaced(scene):
    scene.other.rename("a/b", "f", "g")
    scene.write("a/b/f", b"stranger")
    return "a/b/g"


def file_moved(scene):
    scene.other.move("a/b", "f", "c")
    return "c/f"


def folder_renamed(scene):
    scene.other.rename("a", "b", "d")
    return "a/d/f"


def folder_above_moved_and_replaced(scene):
    scene.other.move("", "a", "c")
    for folder in ("a", "a/b"):
        (scene.top / folder).mkdir()
        (scene.top / folder).chmod(0o777)
    scene.write("a/b/f", b"stranger")
    return "c/a/b/f"


def file_and_folders_renamed(scene):
    scene.other.rename("a/b", "f", "1")
    scene.other.rename("a", "b", "2")
    scene.other.rename("a/2", "1", "3")
    scene.other.rename("", "a", "4")
    return "4/2/3"


CHANGES = [file_renamed, file_renamed_and_replaced, file_moved, folder_renamed, folder_above_moved_and_replaced,
           file_and_folders_renamed]
EVERY_CHANGE = pytest.mark.parametrize("change", CHANGES, ids=shown)


def changed(scene, change):
    """Renames of folders with open files wait for nobody but other SMB clients, who are refused them."""
    if isinstance(scene.other, ByAnotherShare) and change not in (file_renamed, file_renamed_and_replaced, file_moved):
        pytest.skip("an SMB client renames no folder in which somebody has a file open")
    return change(scene)


@EVERY_CHANGE
def test_it_is_renamed_from_where_it_is(scene, change):
    held = scene.open("a/b/f")
    now = changed(scene, change)
    old_is_there = scene.has("a/b/f")
    assert held.rename(scene.at("c/mine")) == 0
    assert scene.content("c/mine") == b"opened"
    assert not scene.has(now)
    assert scene.has("a/b/f") == old_is_there and (not old_is_there or scene.content("a/b/f") == b"stranger")
    assert held.path() == scene.at("c/mine")
    assert held.rename(scene.at("c/again")) == 0
    assert scene.content("c/again") == b"opened"
    held.close()


@pytest.mark.parametrize("how", ["disposition", "on close"])
@EVERY_CHANGE
def test_it_is_deleted_where_it_is(scene, change, how):
    held = scene.open("a/b/f", options=ON_CLOSE | NON_DIRECTORY if how == "on close" else NON_DIRECTORY)
    now = changed(scene, change)
    old_is_there = scene.has("a/b/f")
    if how == "on close":
        held.close()
    else:
        assert held.delete() == 0
    assert not scene.has(now)
    assert scene.has("a/b/f") == old_is_there and (not old_is_there or scene.content("a/b/f") == b"stranger")


@EVERY_CHANGE
def test_its_name_is_the_present_one(scene, change):
    held = scene.open("a/b/f")
    assert held.path() == scene.at("a/b/f")
    now = changed(scene, change)
    assert held.path() == scene.at(now) and held.last_name() == now.rsplit("/")[-1]
    held.close()


@EVERY_CHANGE
def test_links_times_and_data_are_those_of_what_was_opened(scene, change):
    held = scene.open("a/b/f")
    now = changed(scene, change)
    assert held.link(scene.at("c/linked")) == 0
    assert (scene.top / "c/linked").stat().st_ino == (scene.top / now).stat().st_ino
    assert held.write_time(132_000_000_000_000_000) == 0
    assert int((scene.top / now).stat().st_mtime) == 132_000_000_000_000_000 // 10**7 - 11_644_473_600
    assert held.read() == b"opened"
    held.close()


@pytest.mark.parametrize("change", [folder_renamed, folder_above_moved_and_replaced], ids=shown)
def test_an_open_folder_is_listed_and_watched_and_deleted_where_it_is(scene, change):
    held = scene.open("a/b", access=0x0013_0081, options=DIRECTORY)
    watcher = Watcher(scene.daemon, scene.daemon.share, scene.at("a/b"), tree=False)
    time.sleep(0.5)  # A watch on a folder of the host stands a moment after it was asked for.
    now = os.path.dirname(changed(scene, change))
    scene.write(f"{now}/new", b"")
    assert held.list() == {"f", "new"}
    assert held.path() == scene.at(now)
    assert watcher.hear(1)[0] == (ADDED, "new")
    watcher.end()
    for name in ("f", "new"):
        (scene.top / now / name).unlink()
    assert held.delete() == 0
    wait_for(lambda: not scene.has(now), 5, lambda: f"{now} is still there")
    assert scene.has("a/b") == (change is folder_above_moved_and_replaced)


@pytest.mark.parametrize("change", [folder_renamed, folder_above_moved_and_replaced], ids=shown)
def test_an_open_folder_is_renamed_from_where_it_is(scene, change):
    held = scene.open("a/b", access=0x0013_0081, options=DIRECTORY)
    now = os.path.dirname(changed(scene, change))
    assert held.rename(scene.at("c/mine")) == 0
    assert not scene.has(now) and scene.content("c/mine/f") == b"opened"
    assert held.path() == scene.at("c/mine")
    held.close()


@EVERY_CHANGE
def test_share_modes_are_those_of_the_inode(scene, change):
    held = scene.open("a/b/f", access=READ, sharing=ALL)
    now = changed(scene, change)
    other = Session(scene.daemon)
    with pytest.raises(SessionError, match="SHARING_VIOLATION"):
        other.open(scene.at(now), access=READ, sharing=4)
    other.open(scene.at(now), access=READ).close()
    # A target that is open is not replaced, under whichever name; what has the old name now is not open.
    scene.write("c/source", b"source")
    source = other.open(scene.at("c/source"))
    assert source.rename(scene.at(now), replace=True) == DENIED
    if scene.has("a/b/f"):
        assert source.rename(scene.at("a/b/f"), replace=True) == 0
        assert scene.content("a/b/f") == b"source"
    # No folder above it is renamed by a client.
    folder = other.open(os.path.dirname(scene.at(now)), access=DELETE | 0x80)
    assert folder.rename(scene.at("elsewhere")) == DENIED
    assert held.read() == b"opened"
    held.close()
    source.close()
    assert folder.rename(scene.at("elsewhere")) == 0
    other.end()


def test_what_was_removed_is_not_found_and_its_successor_stays(scene):
    held = scene.open("a/b/f")
    scene.other.remove("a/b", "f") if not isinstance(scene.other, ByAnotherShare) else (scene.top / "a/b/f").unlink()
    scene.write("a/b/f", b"stranger")
    assert held.rename(scene.at("c/mine")) == NOT_FOUND
    assert held.link(scene.at("c/linked")) in (NOT_FOUND, DENIED)
    assert not scene.has("c/mine") and not scene.has("c/linked")
    assert held.info(STANDARD)[20] == 1, "it is shown as about to go"
    assert held.read() == b"opened"
    held.delete()
    assert scene.content("a/b/f") == b"stranger"


def test_what_was_replaced_by_a_rename_is_not_found_and_its_successor_stays(scene):
    held = scene.open("a/b/f")
    scene.write("a/b/new", b"stranger")
    (scene.top / "a/b/new").rename(scene.top / "a/b/f")
    assert held.rename(scene.at("c/mine")) == NOT_FOUND
    held.delete()
    assert scene.content("a/b/f") == b"stranger" and not scene.has("c/mine")


def test_an_open_goes_by_the_name_that_it_was_made_by(scene):
    """A file with several names: the one of the open is renamed and deleted, and the others stay."""
    os.link(scene.top / "a/b/f", scene.top / "a/b/other")
    held = scene.open("a/b/f")
    if isinstance(scene.other, ByPrograms) and scene.daemon.local == getattr(scene.daemon, "photos", None):
        pytest.skip("which of several names a program of the host renamed, nobody knows")
    scene.other.rename("a/b", "f", "g")
    assert held.path() == scene.at("a/b/g")
    assert held.rename(scene.at("c/mine")) == 0
    assert scene.has("a/b/other") and scene.has("c/mine") and not scene.has("a/b/g")
    held.delete()
    assert scene.content("a/b/other") == b"opened" and not scene.has("c/mine")
    # Its own name is gone: the other one is not taken for it.
    os.link(scene.top / "a/b/other", scene.top / "a/b/f")
    held = scene.open("a/b/f")
    (scene.top / "a/b/f").unlink()
    assert held.rename(scene.at("c/mine")) == NOT_FOUND
    held.delete()
    assert scene.content("a/b/other") == b"opened"


def test_a_stream_goes_with_its_file(scene):
    held = scene.open("a/b/f:notes", disposition=smb2.FILE_CREATE)
    held.low.write(held.tree, held.file, b"stream", 0, 6)
    now = file_renamed_and_replaced(scene) if not isinstance(scene.other, ByAnotherShare) else "a/b/f"
    assert held.path() == scene.at(f"{now}:notes")
    assert held.rename(":more") == 0
    assert held.path() == scene.at(f"{now}:more")
    again = scene.open(f"{now}:more", access=READ)
    assert again.read() == b"stream"
    again.close()
    assert held.delete() == 0
    with pytest.raises(SessionError, match="OBJECT_NAME_NOT_FOUND"):
        scene.open(f"{now}:more", access=READ)
    assert scene.content(now) == b"opened"


def test_a_symbolic_link_is_what_its_open_renames_and_deletes(volume, place):
    scene = Scene(volume, place, ByNfs, "symlinks")
    (scene.top / "a/link").symlink_to("b/f")
    held = scene.open("a/link")
    assert held.read() == b"opened"
    scene.other.rename("a", "link", "renamed")
    assert held.rename(scene.at("c/link")) == 0
    assert (scene.top / "c/link").is_symlink() and scene.content("a/b/f") == b"opened"
    held.delete()
    assert not (scene.top / "c/link").is_symlink() and scene.content("a/b/f") == b"opened"
    scene.session.end()


def test_renames_while_it_deletes_and_renames(volume, place):
    """Another client exchanges the names of two files as fast as it can: what is deleted is always the opened one."""
    scene = Scene(volume, place, ByNfs, "races")
    nfs = scene.other.nfs
    folder = scene.other.dir("a/b")
    import threading

    for n in range(40):
        scene.write("a/b/f", b"opened")
        scene.write("a/b/x", b"stranger")
        held = scene.open("a/b/f")
        stop = threading.Event()

        def shuffle():
            while not stop.is_set():
                for old, new in (("f", "t"), ("x", "f"), ("f", "x"), ("t", "f")):
                    try:
                        nfs.rename(folder, old, folder, new)
                    except Exception:
                        return

        thread = threading.Thread(target=shuffle)
        thread.start()
        held.delete()
        stop.set()
        thread.join()
        left = [path.read_bytes() for path in (scene.top / "a/b").iterdir()]
        assert b"stranger" in left, (n, left)
        for path in (scene.top / "a/b").iterdir():
            path.unlink()
    scene.session.end()
