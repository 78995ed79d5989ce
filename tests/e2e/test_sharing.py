"""What a client of one door holds means to the others: the table of docs/sharing.md, cell by cell.

The SMB client here keeps what it writes to itself, as its oplock allows, and sends it when it is asked to.
"""

import os
import struct
import threading

import pytest
from impacket import smb3structs as smb2
from impacket.smbconnection import SMBConnection

from conftest import client, make

READ, WRITE, DELETE = 0x0012_0089, 0x0012_0116, 0x0001_0000
SHARE_ALL = 7
NON_DIRECTORY = 0x40


class Keeper:
    """An SMB client with a batch oplock on one file."""

    def __init__(self, daemon, share, name, access=READ | WRITE | DELETE):
        self.connection = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=daemon.smb_port, preferredDialect=smb2.SMB2_DIALECT_21)
        self.connection.login(daemon.user, daemon.password)
        self.low = self.connection.getSMBServer()
        self.tree = self.low.connectTree(share)
        granted = []
        original = self.low.recvSMB

        def seen(packet=None):
            answer = original(packet)
            if answer["Command"] == smb2.SMB2_CREATE:
                granted.append(answer["Data"][2])
            return answer

        self.low.recvSMB = seen
        self.file = self.low.create(self.tree, name, access, SHARE_ALL, NON_DIRECTORY, smb2.FILE_OPEN_IF, 0x80,
                                    oplockLevel=smb2.SMB2_OPLOCK_LEVEL_BATCH)
        self.low.recvSMB = original
        self.level = granted[-1]
        self.kept = []

    def keep(self, offset, data):
        """Writes into its own cache."""
        assert self.level == smb2.SMB2_OPLOCK_LEVEL_BATCH, "nothing may be kept without an oplock"
        self.kept.append((offset, data))

    def give_back(self):
        """Waits for the break, sends what was kept and acknowledges."""
        packet = self.low.recvSMB()
        assert packet["Command"] == smb2.SMB2_OPLOCK_BREAK, packet["Command"]
        # It answers no request and charges nothing, which the library does not expect.
        self.low._Connection["SequenceWindow"] += 1
        level = packet["Data"][2]
        for offset, data in self.kept:
            self.low.write(self.tree, self.file, data, offset, len(data))
        self.kept.clear()
        answer = self.low.SMB_PACKET()
        answer["Command"], answer["TreeID"] = smb2.SMB2_OPLOCK_BREAK, self.tree
        body = smb2.SMB2OplockBreakAcknowledgment()
        body["OplockLevel"], body["FileID"] = level, self.file
        answer["Data"] = body
        done = self.low.recvSMB(self.low.sendSMB(answer))
        assert done["Status"] == 0, hex(done["Status"])
        self.level = level
        return level

    def end(self):
        self.low.close(self.tree, self.file)
        self.connection.close()


def while_asked(keeper, action):
    """What `action` of another door returns; the client is asked meanwhile, and must be."""
    outcome = []

    def act():
        try:
            outcome.append((action(), None))
        except BaseException as error:  # noqa: BLE001: raised again below
            outcome.append((None, error))

    other = threading.Thread(target=act)
    other.start()
    level = keeper.give_back()
    other.join(20)
    assert outcome, "the other door does not go on after the client has given back what it kept"
    value, error = outcome[0]
    if error:
        raise error
    return value, level


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    """NFS, two shares of one volume over SMB, and two mounts."""
    folder = tmp_path_factory.mktemp("sharing")
    daemon = make(folder, extra=["--squash", "none"]).start()
    daemon.run("share", "add", "second", "--volume", "files", check=True)
    daemon.mounts = [folder / "mnt1", folder / "mnt2"]
    for mnt in daemon.mounts:
        mnt.mkdir()
        daemon.run("mount", mnt, check=True)
    os.chmod(daemon.mounts[0], 0o777)
    daemon.nfs = client(daemon)
    yield daemon
    daemon.nfs.close()
    assert daemon.stop() == 0, daemon.log()[-4000:]
    assert "panicked" not in daemon.log()


@pytest.fixture
def name(request):
    return request.node.name.replace("[", "-").rstrip("]")


@pytest.fixture
def keeper(doors, name):
    one = Keeper(doors, doors.share, name)
    yield one
    one.end()


class Nfs:
    def __init__(self, doors, name):
        self.nfs = doors.nfs
        self.handle = self.nfs.lookup(self.nfs.root, name.encode()).handle

    def read(self):
        return self.nfs.read(self.handle, 0, 100).data

    def size(self):
        return self.nfs.getattr(self.handle).size

    def append(self, data):
        self.nfs.write(self.handle, self.size(), data)

    def overwrite(self, data):
        self.nfs.write(self.handle, 0, data)


class Mount:
    def __init__(self, doors, name):
        self.path = doors.mounts[0] / name

    def read(self):
        return self.path.read_bytes()

    def size(self):
        with open(self.path, "rb") as f:
            return os.fstat(f.fileno()).st_size

    def append(self, data):
        with open(self.path, "ab", buffering=0) as f:
            f.write(data)

    def overwrite(self, data):
        with open(self.path, "r+b", buffering=0) as f:
            f.write(data)


class OtherShare:
    def __init__(self, doors, name):
        self.doors, self.name = doors, name
        self.connection = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=doors.smb_port, preferredDialect=smb2.SMB2_DIALECT_21)
        self.connection.login(doors.user, doors.password)
        self.tree = self.connection.connectTree("second")

    def opened(self, act):
        file = self.connection.openFile(self.tree, self.name, READ | WRITE, SHARE_ALL)
        try:
            return act(file)
        finally:
            self.connection.closeFile(self.tree, file)

    def read(self):
        return self.opened(lambda file: self.connection.readFile(self.tree, file, 0, 100))

    def size(self):
        return len(self.read())

    def append(self, data):
        self.opened(lambda file: self.connection.writeFile(self.tree, file, data, len(self.connection.readFile(self.tree, file, 0, 100))))

    def overwrite(self, data):
        self.opened(lambda file: self.connection.writeFile(self.tree, file, data, 0))


DOORS = pytest.mark.parametrize("door", [Nfs, Mount, OtherShare])


@DOORS
def test_what_a_client_keeps_is_read_by_others(doors, keeper, name, door):
    other = door(doors, name)
    keeper.keep(0, b"kept to itself")
    content, _ = while_asked(keeper, other.read)
    assert content == b"kept to itself"


@DOORS
def test_the_size_that_others_see_counts_what_a_client_keeps(doors, keeper, name, door):
    other = door(doors, name)
    keeper.keep(0, b"0123456789")
    size, _ = while_asked(keeper, other.size)
    assert size == 10


@DOORS
def test_an_append_is_not_lost_under_what_a_client_keeps(doors, keeper, name, door):
    other = door(doors, name)
    keeper.keep(0, b"kept to itself, ")
    while_asked(keeper, lambda: other.append(b"then appended"))
    assert other.read() == b"kept to itself, then appended"


@DOORS
def test_a_write_comes_after_what_a_client_keeps(doors, keeper, name, door):
    other = door(doors, name)
    keeper.keep(0, b"kept to itself")
    while_asked(keeper, lambda: other.overwrite(b"KEPT"))
    assert other.read() == b"KEPT to itself"


@pytest.mark.parametrize("door", ["nfs", "mount"])
def test_who_removes_asks_first(doors, keeper, name, door):
    keeper.keep(0, b"kept to itself")
    if door == "nfs":
        while_asked(keeper, lambda: doors.nfs.remove(doors.nfs.root, name.encode()))
    else:
        while_asked(keeper, lambda: os.unlink(doors.mounts[0] / name))
    assert not (doors.mounts[0] / name).exists()


def test_nobody_keeps_writes_of_a_file_that_a_mount_has_open(doors, name):
    with open(doors.mounts[0] / name, "wb") as f:
        os.fchmod(f.fileno(), 0o666)
        one = Keeper(doors, doors.share, name)
        assert one.level in (smb2.SMB2_OPLOCK_LEVEL_NONE, smb2.SMB2_OPLOCK_LEVEL_II), one.level
        one.end()
    one = Keeper(doors, doors.share, name)
    assert one.level == smb2.SMB2_OPLOCK_LEVEL_BATCH, "it is closed"
    one.end()


def test_two_mounts_see_each_others_changes(doors, name):
    """At once, although both kernels cache names, attributes and data."""
    first, second = (mnt / name for mnt in doors.mounts)
    for mine, theirs in ((first, second), (second, first)) * 20:
        assert not theirs.exists()
        mine.write_bytes(b"one")
        assert theirs.read_bytes() == b"one"
        mine.write_bytes(b"another")
        assert theirs.read_bytes() == b"another" and theirs.stat().st_size == 7
        mine.chmod(0o600)
        assert theirs.stat().st_mode & 0o777 == 0o600
        mine.rename(mine.with_suffix(".new"))
        assert not theirs.exists() and theirs.with_suffix(".new").exists()
        theirs.with_suffix(".new").unlink()
        assert not mine.with_suffix(".new").exists()


def test_two_mounts_change_one_folder_without_waiting_for_each_other(doors, name):
    first, second = (mnt / name for mnt in doors.mounts)
    first.mkdir()

    def churn(folder, tag):
        for count in range(150):
            (folder / f"{tag}{count}").write_bytes(b"x")
            if count % 3:
                (folder / f"{tag}{count}").unlink()

    threads = [threading.Thread(target=churn, args=args) for args in ((first, "a"), (second, "b"))]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert not any(thread.is_alive() for thread in threads), "two mounts wait for each other"
    names = sorted(f"{tag}{count}" for tag in "ab" for count in range(0, 150, 3))
    assert sorted(os.listdir(first)) == sorted(os.listdir(second)) == names


def test_an_acl_changed_over_smb_is_seen_by_mounts(doors, name):
    one = Keeper(doors, doors.share, name, READ | 0x0004_0000)
    assert [mnt.joinpath(name).stat().st_mode & 0o777 for mnt in doors.mounts] == [0o644] * 2
    everybody_may_everything = struct.pack("<BBH4I", 1, 0, 0x8004, 0, 0, 0, 0)
    assert one.low.setInfo(one.tree, one.file, everybody_may_everything, smb2.SMB2_0_INFO_SECURITY, 0, 4)
    assert [mnt.joinpath(name).stat().st_mode & 0o777 for mnt in doors.mounts] == [0o666] * 2
    one.end()
