"""What a client of NFS version 4 holds means at every other door, and what they hold means to it: docs/sharing.md, cell by cell."""

import contextlib
import fcntl
import os
import socket
import threading

import pytest
from impacket import smb3structs as smb2
from impacket.smb3 import SessionError
from impacket.smbconnection import SMBConnection

import nfs3
import nfs4
from conftest import client, make
from nfs4 import BOTH, READ, UNCHECKED, WRITE, WRITE_LOCK, Nfs4, Nfs4Error, refused
from test_nfs4 import BACK_CHANNEL, delegated, while_recalled, written
from test_sftp import Client as Sftp
from test_sharing import LOCK_NOT_GRANTED, Smb
from test_webdav import Dav
from waiting import wait_for

READ_SMB, WRITE_SMB, DELETE_SMB, ALL_SMB = 0x0012_0089, 0x0012_0116, 0x0011_0000, 7


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    folder = tmp_path_factory.mktemp("doors4")
    daemon = make(folder, extra=["--squash", "none", "--sftp", "127.0.0.1:0", "--webdav", "127.0.0.1:0"]).start()
    daemon.folder, daemon.mnt = folder, folder / "mnt"
    daemon.mnt.mkdir()
    daemon.run("mount", daemon.mnt, check=True)
    os.chmod(daemon.mnt, 0o777)
    yield daemon
    assert daemon.stop() == 0, daemon.log()[-4000:]
    assert "panicked" not in daemon.log()


@pytest.fixture
def reader(house):
    with Nfs4("127.0.0.1", house.nfs_port) as nfs:
        yield nfs.session(flags=BACK_CHANNEL)


@pytest.fixture
def four(house):
    with Nfs4("127.0.0.1", house.nfs_port, minor=2) as nfs:
        yield nfs.session()


@pytest.fixture
def name(request):
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


@pytest.fixture
def path(house, name):
    return [house.export.strip("/"), name]


# ---- delegations ----


class V3:
    def __init__(self, house, name):
        self.name, self.nfs = name, client(house)
        self.handle = self.nfs.lookup(self.nfs.root, name).handle

    def open_and_read(self):
        return self.nfs.read(self.handle, 0, 10)

    def write(self):
        return self.nfs.write(self.handle, 0, b"x", nfs3.FILE_SYNC)

    def truncate(self):
        return self.nfs.setattr(self.handle, size=0)

    def remove(self):
        return self.nfs.remove(self.nfs.root, self.name)

    def rename(self):
        return self.nfs.rename(self.nfs.root, self.name, self.nfs.root, self.name + "-renamed")

    def end(self):
        self.nfs.close()


class Mount:
    def __init__(self, house, name):
        self.path = house.mnt / name

    def open_and_read(self):
        return self.path.read_bytes()

    def write(self):
        with open(self.path, "r+b", buffering=0) as file:
            file.write(b"x")

    def truncate(self):
        os.truncate(self.path, 0)

    def remove(self):
        self.path.unlink()

    def rename(self):
        self.path.rename(self.path.with_suffix(".renamed"))

    def end(self):
        pass


class OverSmb:
    def __init__(self, house, name):
        self.house, self.name = house, name
        self.connection = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=house.smb_port, preferredDialect=smb2.SMB2_DIALECT_21)
        self.connection.login(house.user, house.password)
        self.share, self.tree = house.share, self.connection.connectTree(house.share)

    def opened(self, access, act, disposition=smb2.FILE_OPEN):
        file = self.connection.openFile(self.tree, self.name, access, ALL_SMB, creationDisposition=disposition)
        try:
            return act(file)
        finally:
            self.connection.closeFile(self.tree, file)

    def open_and_read(self):
        return self.opened(READ_SMB, lambda file: self.connection.readFile(self.tree, file, 0, 10))

    def write(self):
        return self.opened(WRITE_SMB, lambda file: self.connection.writeFile(self.tree, file, b"x", 0))

    def truncate(self):
        return self.opened(WRITE_SMB, lambda _: None, smb2.FILE_OVERWRITE)

    def remove(self):
        with Smb(self.house, self.share, self.name, DELETE_SMB, ALL_SMB, smb2.FILE_DELETE_ON_CLOSE):
            pass

    def rename(self):
        with Smb(self.house, self.share, self.name, DELETE_SMB, ALL_SMB) as file:
            name = (self.name + "-renamed").encode("utf-16-le")
            renamed = bytes(16) + len(name).to_bytes(4, "little") + name
            file.low.setInfo(file.tree, file.file, renamed, smb2.SMB2_0_INFO_FILE, smb2.SMB2_FILE_RENAME_INFO, 0)

    def end(self):
        self.connection.close()


class OverSftp:
    def __init__(self, house, name):
        self.sftp, self.path = Sftp(house, house.folder), f"/{house.share}/{name}"
        self.local = house.folder / "local"
        self.local.write_bytes(b"x")

    def run(self, line):
        return self.sftp.sftp(line)

    def open_and_read(self):
        return self.run(f"get {self.path} {self.local}-read")

    def write(self):
        return self.run(f"put {self.local} {self.path}")

    truncate = write

    def remove(self):
        return self.run(f"rm {self.path}")

    def rename(self):
        return self.run(f"rename {self.path} {self.path}-renamed")

    def end(self):
        pass


class OverDav:
    def __init__(self, house, name):
        self.dav, self.path = Dav(house), f"/{house.share}/{name}"

    def open_and_read(self):
        answer = self.dav("GET", self.path)
        assert answer.status == 200, answer.status

    def write(self):
        self.dav.put(self.path, b"x")

    truncate = write

    def remove(self):
        assert self.dav("DELETE", self.path).status == 204

    def rename(self):
        answer = self.dav("MOVE", self.path, Destination=self.dav.url(self.path + "-renamed"))
        assert answer.status == 201, answer.status

    def end(self):
        self.dav.connection.close()


DOORS = pytest.mark.parametrize("door", [V3, Mount, OverSmb, OverSftp, OverDav])
CHANGES = ["write", "truncate", "remove", "rename"]


@contextlib.contextmanager
def at(door, house, name):
    one = door(house, name)
    yield one
    one.end()


@DOORS
def test_reading_goes_on_beside_a_delegation_to_read(house, reader, path, name, door):
    delegated(reader, path)
    with at(door, house, name) as other:
        other.open_and_read()
    reader.socket.settimeout(0.5)
    with pytest.raises(OSError):
        reader.await_recall(0.5)


@DOORS
@pytest.mark.parametrize("what", CHANGES)
def test_a_change_waits_for_a_delegation_to_read(house, reader, path, name, door, what):
    opened = delegated(reader, path)
    with at(door, house, name) as other:
        while_recalled(reader, opened, lambda: [getattr(other, what)()])


@DOORS
@pytest.mark.parametrize("what", ["open_and_read", *CHANGES])
def test_everything_waits_for_a_delegation_to_write(house, reader, path, name, door, what):
    opened = written(reader, path)
    reader.write(opened, 0, b"sent", stateid=opened.delegation.stateid)
    with at(door, house, name) as other:
        while_recalled(reader, opened, lambda: [getattr(other, what)()])


@pytest.mark.parametrize("what", ["open", "write", "setattr", "remove", "rename", "link"])
def test_another_client_of_this_door_tries_again(reader, four, path, what):
    opened = written(reader, path)
    above, renamed = path[:-1], [*path[:-1], path[-1] + "-renamed"]
    changes = {
        "open": lambda: four.open(path, access=WRITE), "setattr": lambda: four.setattr(opened.handle, mode=0o600),
        "write": lambda: four.write(opened, 0, b"x", stateid=nfs4.ANONYMOUS), "remove": lambda: four.remove(path),
        "rename": lambda: four.rename(path, renamed),
        "link": lambda: four.compound(*four.walk(path), nfs4.SAVE, *four.walk(above), (nfs4.LINK, nfs4.opaque(renamed[-1]), nfs4.change)),
    }
    with refused("DELAY"):
        changes[what]()
    stateid, handle = reader.await_recall()
    with refused("DELAY"):
        changes[what]()
    reader.return_delegation(handle, stateid)
    if what == "write":
        reader.close_file(opened)
    changes[what]()


# ---- share modes and locks ----


@pytest.fixture
def file(house, four, path):
    """A file that is closed, as everybody may use it."""
    made = four.open(path, access=BOTH, create=UNCHECKED, mode=0o666)
    four.write(made, 0, b"x" * 100)
    four.close_file(made)
    return made


def closed_at_a_mount(act):
    """A mount's close is told to the server a moment later."""
    def tried():
        try:
            return act() or True
        except (Nfs4Error, SessionError):
            return None
    return wait_for(tried)


def test_what_an_smb_open_denies_is_denied_to_version_4(house, four, file, path, name):
    for sharing, denied, allowed in ((0b110, READ, WRITE), (0b101, WRITE, READ)):
        with Smb(house, house.share, name, READ_SMB | WRITE_SMB, sharing):
            with refused("SHARE_DENIED"):
                four.open(path, access=denied)
            four.close_file(four.open(path, access=allowed))
    with Smb(house, house.share, name, READ_SMB, 0b011):
        for act in (lambda: four.remove(path), lambda: four.rename(path, [path[0], name + "2"])):
            with refused("FILE_OPEN"):
                act()
    four.close_file(four.open(path, access=BOTH))


def test_what_version_4_denies_is_denied_at_every_door(house, four, file, path, name):
    other = Nfs4("127.0.0.1", house.nfs_port).session()
    for denied, access, mode in ((READ, READ_SMB, "rb"), (WRITE, WRITE_SMB, "r+b")):
        held = four.open(path, access=BOTH, deny=denied)
        with pytest.raises(SessionError, match="STATUS_SHARING_VIOLATION"):
            Smb(house, house.share, name, access, ALL_SMB)
        with pytest.raises(OSError) as busy:
            open(house.mnt / name, mode)
        assert busy.value.errno == 16
        with refused("SHARE_DENIED"):
            other.open(path, access=denied)
        with refused("LOCKED"):
            if denied == READ:
                other.read(file, 0, 1, stateid=nfs4.ANONYMOUS)
            else:
                other.write(file, 0, b"x", stateid=nfs4.ANONYMOUS)
        with at(V3, house, name) as v3:
            v3.open_and_read() if denied == READ else v3.write()
        with at(OverDav, house, name) as dav:
            if denied == READ:
                assert dav.dav("GET", dav.path).status == 423
            else:
                assert dav.dav("PUT", dav.path, b"other").status == 423
                assert dav.dav.lock(dav.path).status == 423
                dav.dav.put(dav.path + "-source", b"other")
                assert dav.dav("COPY", dav.path + "-source", Destination=dav.dav.url(dav.path)).status == 423
        with at(OverSftp, house, name) as sftp:
            for act in (sftp.open_and_read,) if denied == READ else (sftp.write, sftp.truncate):
                with pytest.raises(AssertionError, match="(?i)permission denied"):
                    act()
        assert other.attr(file.handle).size == 100, "nothing has changed it"
        four.close_file(held)
    other.close()
    with at(OverDav, house, name) as dav:
        dav.write()


def test_a_denial_that_comes_during_an_upload(house, four, file, path, name):
    """The content is there when the name is asked for: what version 4 denies by then holds."""
    dav = Dav(house)
    with socket.create_connection(("127.0.0.1", dav.port), timeout=60) as upload:
        upload.sendall(f"PUT /{house.share}/{name} HTTP/1.1\r\nHost: x\r\nAuthorization: {dav.authorization}\r\nContent-Length: 10\r\n"
                       "Expect: 100-continue\r\n\r\n".encode())
        assert upload.recv(100).startswith(b"HTTP/1.1 100"), "it waits for the content"
        held = four.open(path, access=READ, deny=WRITE)
        upload.sendall(b"0123456789")
        assert upload.recv(100).startswith(b"HTTP/1.1 423")
    assert four.read(held, 0, 200).data == b"x" * 100
    four.close_file(held)
    dav.connection.close()


def test_an_open_of_a_mount_is_not_denied(house, four, file, path, name):
    with open(house.mnt / name, "r+b"):
        for deny in (READ, WRITE):
            with refused("SHARE_DENIED"):
                four.open(path, access=READ, deny=deny)
    closed_at_a_mount(lambda: four.close_file(four.open(path, access=READ, deny=WRITE)))


def test_ranges_of_smb_and_of_version_4_refuse_each_other(house, four, file, path, name):
    mine = four.open(path, access=BOTH)
    with Smb(house, house.share, name) as theirs:
        assert theirs.lock(0, 10) == 0
        with refused("DENIED") as denial:
            four.lock(mine, WRITE_LOCK, 5, 10)
        assert (denial.error.detail.offset, denial.error.detail.length) == (0, 10)
        assert four.read(mine, 0, 10).data == b"x" * 10 and four.write(mine, 0, b"y" * 10).count == 10, "reads and writes go on"
        assert theirs.unlock(0, 10) == 0
        held = four.lock(mine, WRITE_LOCK, 5, 10)
        assert theirs.lock(0, 10) == LOCK_NOT_GRANTED
        four.unlock(mine, held, WRITE_LOCK, 5, 10)
        assert theirs.lock(0, 10) == 0


def test_a_lock_of_version_4_holds_at_a_mount_and_the_reverse(house, four, file, path, name):
    mine = four.open(path, access=BOTH)
    held = four.lock(mine, WRITE_LOCK, 0, 10)
    with open(house.mnt / name, "r+b") as local:
        with pytest.raises(BlockingIOError):
            fcntl.lockf(local, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)
        waited = threading.Thread(target=lambda: fcntl.lockf(local, fcntl.LOCK_EX, 10, 0))
        waited.start()
        four.unlock(mine, held, WRITE_LOCK, 0, 10)
        waited.join(20)
        assert not waited.is_alive(), "a mount that waits has it then"
        with refused("DENIED"):
            four.lock(mine, WRITE_LOCK, 0, 10, held=None, owner=b"another")
    four.lock(mine, WRITE_LOCK, 0, 10, owner=b"another")


def test_a_webdav_lock_is_a_denial_of_writing(house, four, file, path, name):
    mine = four.open(path, access=READ)
    dav = Dav(house)
    locked = dav.lock(f"/{house.share}/{name}")
    assert locked.status == 200, locked.status
    with refused("SHARE_DENIED"):
        four.open(path, access=WRITE, owner=b"second")
    with refused("DENIED"):
        four.lock(mine, nfs4.READ_LOCK, 0, 10)
    assert four.read(mine, 0, 1).data == b"x"
    token = locked.headers["Lock-Token"]
    assert dav("UNLOCK", f"/{house.share}/{name}", Lock_Token=token).status == 204
    four.lock(mine, nfs4.READ_LOCK, 0, 10)
    assert dav.lock(f"/{house.share}/{name}").status == 423, "another door has a range of it locked"
    dav.connection.close()
