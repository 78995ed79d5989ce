"""What a client of one door holds means to the others: the table of docs/sharing.md, cell by cell.

The SMB client here keeps what it writes to itself, as its oplock allows, and sends it when it is asked to.
"""

import contextlib
import errno
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import threading

import pytest
from impacket import smb3structs as smb2
from impacket.smb3 import SessionError
from impacket.smbconnection import SMBConnection

import nfs3
import nfs4
from conftest import client, make
from waiting import wait_for

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
    daemon.nfs4 = nfs4.Nfs4("127.0.0.1", daemon.nfs_port).session()
    yield daemon
    daemon.nfs.close()
    daemon.nfs4.close()
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


class Nfs4:
    """A client of NFSv4.1 that opens what it uses."""

    def __init__(self, doors, name):
        self.nfs, self.path = doors.nfs4, [doors.share, name]

    def opened(self, access, act):
        file = self.nfs.open(self.path, access=access)
        try:
            return act(file)
        finally:
            self.nfs.close_file(file)

    def read(self):
        return self.opened(nfs4.READ, lambda file: self.nfs.read(file, 0, 100).data)

    def size(self):
        return self.nfs.attr(self.path).size

    def append(self, data):
        self.opened(nfs4.WRITE, lambda file: self.nfs.write(file, self.size(), data))

    def overwrite(self, data):
        self.opened(nfs4.WRITE, lambda file: self.nfs.write(file, 0, data))


DOORS = pytest.mark.parametrize("door", [Nfs, Nfs4, Mount, OtherShare])


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


@pytest.mark.parametrize("door", ["nfs", "nfs4", "mount"])
def test_who_removes_asks_first(doors, keeper, name, door):
    keeper.keep(0, b"kept to itself")
    if door == "nfs":
        while_asked(keeper, lambda: doors.nfs.remove(doors.nfs.root, name.encode()))
    elif door == "nfs4":
        while_asked(keeper, lambda: doors.nfs4.remove([doors.share, name]))
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


# ---- share modes ----

SHARE_READ, SHARE_WRITE, SHARE_DELETE = 1, 2, 4
LOCK_NOT_GRANTED = 0xC0000055


class Smb:
    """An SMB client without oplocks, and one file that it has open."""

    def __init__(self, doors, share, name, access=READ | WRITE | DELETE, sharing=SHARE_ALL, options=NON_DIRECTORY):
        self.connection = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=doors.smb_port, preferredDialect=smb2.SMB2_DIALECT_21)
        self.connection.login(doors.user, doors.password)
        self.low = self.connection.getSMBServer()
        self.tree = self.low.connectTree(share)
        try:
            self.file = self.low.create(self.tree, name, access, sharing, options, smb2.FILE_OPEN_IF, 0x80)
        except BaseException:
            self.connection.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        self.connection.close()

    def close(self):
        if self.file is not None:
            self.low.close(self.tree, self.file)
            self.file = None

    def ask_for_locks(self, *ranges):
        """Sends a LOCK request; ranges are (offset, length, flags)."""
        packet = self.low.SMB_PACKET()
        packet["Command"], packet["TreeID"] = smb2.SMB2_LOCK, self.tree
        body = struct.pack("<HHI", 48, len(ranges), 0) + bytes(self.file)
        packet["Data"] = body + b"".join(struct.pack("<QQII", offset, length, flags, 0) for offset, length, flags in ranges)
        return self.low.sendSMB(packet)

    def lock(self, offset, length, exclusive=True):
        """The status of a lock that does not wait."""
        kind = smb2.SMB2_LOCKFLAG_EXCLUSIVE_LOCK if exclusive else smb2.SMB2_LOCKFLAG_SHARED_LOCK
        return self.low.recvSMB(self.ask_for_locks((offset, length, kind | smb2.SMB2_LOCKFLAG_FAIL_IMMEDIATELY)))["Status"]

    def unlock(self, offset, length):
        return self.low.recvSMB(self.ask_for_locks((offset, length, smb2.SMB2_LOCKFLAG_UNLOCK)))["Status"]


def refused_by_smb(status):
    return pytest.raises(SessionError, match=status)


@pytest.fixture
def file(doors, name):
    path = doors.mounts[0] / name
    path.write_bytes(b"x" * 100)
    path.chmod(0o666)
    return path


def test_a_file_that_is_not_shared_for_deleting_stays(doors, file, name):
    """Against every door; and goes when it is closed."""
    with Smb(doors, doors.share, name, READ, SHARE_READ | SHARE_WRITE):
        with pytest.raises(OSError) as refused:
            file.unlink()
        assert refused.value.errno == errno.EBUSY
        with pytest.raises(OSError) as refused:
            file.rename(file.with_suffix(".new"))
        assert refused.value.errno == errno.EBUSY
        other = file.with_suffix(".other")
        other.write_bytes(b"y")
        with pytest.raises(OSError) as refused:
            other.rename(file)
        assert refused.value.errno == errno.EBUSY
        with pytest.raises(nfs3.NfsError) as refused:
            doors.nfs.remove(doors.nfs.root, name.encode())
        assert refused.value.status == nfs3.ACCES
        with pytest.raises(nfs3.NfsError) as refused:
            doors.nfs.rename(doors.nfs.root, name.encode(), doors.nfs.root, b"elsewhere")
        assert refused.value.status == nfs3.ACCES
        with refused_by_smb("STATUS_SHARING_VIOLATION"):
            Smb(doors, "second", name, DELETE)
        assert file.read_bytes() == b"x" * 100
    doors.nfs.remove(doors.nfs.root, name.encode())
    assert not file.exists()


def test_a_file_that_is_not_shared_for_writing_is_not_opened_for_it(doors, file, name):
    with Smb(doors, doors.share, name, READ, SHARE_READ | SHARE_DELETE) as smb:
        for mode in ("r+b", "ab"):
            with pytest.raises(OSError) as refused:
                open(file, mode)
            assert refused.value.errno == errno.EBUSY
        with refused_by_smb("STATUS_SHARING_VIOLATION"):
            Smb(doors, "second", name, WRITE)
        assert file.read_bytes() == b"x" * 100, "reading is shared"
        handle = doors.nfs.lookup(doors.nfs.root, name.encode()).handle
        doors.nfs.write(handle, 0, b"nfs")
        assert smb.low.read(smb.tree, smb.file, 0, 3) == b"nfs", "NFS v3 has no opens: its writes go on"
    with open(file, "r+b") as f:
        f.write(b"mount")


@pytest.mark.parametrize("holder", ["mount", "other share"])
def test_what_others_have_open_is_not_denied_to_them(doors, file, name, holder):
    held = open(file, "r+b") if holder == "mount" else Smb(doors, "second", name, READ | WRITE)
    with held:
        with refused_by_smb("STATUS_SHARING_VIOLATION"):
            Smb(doors, doors.share, name, READ, SHARE_READ)
        with Smb(doors, doors.share, name, READ, SHARE_READ | SHARE_WRITE):
            pass
    with Smb(doors, doors.share, name, READ, SHARE_READ):
        pass


def test_a_client_that_keeps_a_file_open_for_later_closes_it_for_others(doors, name):
    """Its share mode is that of an open which its program has closed: the server asks for it first."""
    keeper = Keeper(doors, doors.share, name)
    while_asked(keeper, lambda: os.rename(doors.mounts[0] / name, doors.mounts[0] / "kept-and-renamed"))
    keeper.end()


def test_a_file_that_is_to_be_deleted_opens_for_no_share(doors, file, name):
    with Smb(doors, doors.share, name, READ | DELETE, options=NON_DIRECTORY | 0x1000) as first, Smb(doors, "second", name, READ):
        first.close()
        with refused_by_smb("STATUS_DELETE_PENDING"):
            Smb(doors, "second", name, READ)
        assert file.exists(), "the other share has it open still"
    wait_for(lambda: not file.exists(), 10, lambda: "the file goes with its last open")


# ---- locks ----


def posix(f, kind, start=0, length=0, waits=False):
    fcntl.lockf(f, kind if waits or kind == fcntl.LOCK_UN else kind | fcntl.LOCK_NB, length, start)


def is_locked(f, kind, start=0, length=0):
    try:
        posix(f, kind, start, length)
    except BlockingIOError:
        return True
    posix(f, fcntl.LOCK_UN, start, length)
    return False


def holder_of(f, start, length):
    """(kind, start, length, pid) as F_GETLK tells it."""
    asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, start, length, 0)
    kind, _, start, length, pid = struct.unpack("hhqqi4x", fcntl.fcntl(f, fcntl.F_GETLK, asked))
    return kind, start, length, pid


def test_a_range_of_an_smb_client_refuses_the_locks_of_others(doors, file, name):
    with Smb(doors, doors.share, name) as smb, Smb(doors, "second", name) as second, open(file, "r+b", buffering=0) as f:
        assert smb.lock(10, 10) == 0
        assert is_locked(f, fcntl.LOCK_SH, 19, 1) and is_locked(f, fcntl.LOCK_EX)
        assert not is_locked(f, fcntl.LOCK_EX, 0, 10) and not is_locked(f, fcntl.LOCK_EX, 20, 10)
        assert holder_of(f, 0, 100)[:3] == (fcntl.F_WRLCK, 10, 10)
        assert second.lock(15, 1) == LOCK_NOT_GRANTED
        with refused_by_smb("STATUS_FILE_LOCK_CONFLICT"):
            second.low.write(second.tree, second.file, b"no", 12, 2)
        os.pwrite(f.fileno(), b"posix", 12)
        assert smb.low.read(smb.tree, smb.file, 12, 5) == b"posix", "reads and writes of a mount are not blocked"

        assert smb.lock(40, 10, exclusive=False) == 0
        assert not is_locked(f, fcntl.LOCK_SH, 40, 10) and is_locked(f, fcntl.LOCK_EX, 40, 10)
        assert smb.unlock(10, 10) == 0 and smb.unlock(40, 10) == 0
        assert not is_locked(f, fcntl.LOCK_EX)
        assert smb.lock(0, 1) == 0
        smb.close()
        assert not is_locked(f, fcntl.LOCK_EX), "they end with the open"


def test_a_lock_of_a_mount_refuses_the_ranges_of_smb_clients(doors, file, name):
    with Smb(doors, doors.share, name) as smb, open(file, "r+b") as f:
        posix(f, fcntl.LOCK_EX, 10, 10)
        assert smb.lock(19, 1) == LOCK_NOT_GRANTED and smb.lock(15, 1, exclusive=False) == LOCK_NOT_GRANTED
        assert smb.lock(20, 5) == 0 and smb.unlock(20, 5) == 0
        posix(f, fcntl.LOCK_SH, 10, 10)
        assert smb.lock(15, 1, exclusive=False) == 0 and smb.lock(16, 1) == LOCK_NOT_GRANTED
        waiting = smb.ask_for_locks((12, 2, smb2.SMB2_LOCKFLAG_EXCLUSIVE_LOCK))
        with Smb(doors, "second", name) as second:
            assert second.lock(12, 2) == LOCK_NOT_GRANTED
        posix(f, fcntl.LOCK_UN, 10, 10)
        assert smb.low.recvSMB(waiting)["Status"] == 0
        assert is_locked(f, fcntl.LOCK_EX, 12, 1)


WAITER = """
import fcntl, sys
f = open(sys.argv[1], "r+b")
print("waits", flush=True)
fcntl.lockf(f, fcntl.LOCK_EX)
print("has it", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def waiter(path):
    """Another program that waits for the whole file."""
    program = subprocess.Popen([sys.executable, "-c", WAITER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout.readline() == "waits\n"
        wait_for(lambda: "locks_lock_inode_wait" in stack(program.pid) or "fuse" in stack(program.pid), 10, lambda: "it waits in the kernel")
        yield program
    finally:
        program.kill()
        program.wait(10)
        program.stdin.close()
        program.stdout.close()


def stack(pid):
    with open(f"/proc/{pid}/stack") as f:
        return f.read()


@pytest.mark.parametrize("holder", ["other mount", "smb"])
def test_who_waits_for_a_lock_gets_it_when_it_is_free(doors, file, name, holder):
    with contextlib.ExitStack() as held:
        if holder == "smb":
            smb = held.enter_context(Smb(doors, doors.share, name))
            assert smb.lock(5, 5) == 0
        else:
            other = held.enter_context(open(doors.mounts[1] / name, "r+b"))
            posix(other, fcntl.LOCK_SH, 50, 1)
        program = held.enter_context(waiter(file))
        if holder == "smb":
            assert smb.unlock(5, 5) == 0
        else:
            posix(other, fcntl.LOCK_UN, 50, 1)
        assert program.stdout.readline() == "has it\n"
        with open(doors.mounts[1] / name, "r+b") as f:
            assert is_locked(f, fcntl.LOCK_SH, 99, 1)
            assert holder_of(f, 0, 0) == (fcntl.F_WRLCK, 0, 0, program.pid)
            program.kill()
            program.wait(10)
            assert not is_locked(f, fcntl.LOCK_EX), "the locks of a program end with it"


def test_who_waits_for_a_lock_can_be_killed(doors, file, name):
    with open(doors.mounts[1] / name, "r+b") as other:
        posix(other, fcntl.LOCK_EX)
        with waiter(file) as program:
            program.kill()
            assert program.wait(10) == -signal.SIGKILL
        posix(other, fcntl.LOCK_UN)
        assert not is_locked(other, fcntl.LOCK_EX), "who was killed has not got it"


def test_a_signal_ends_waiting_for_a_lock(doors, file, name):
    class Rang(Exception):
        pass

    def ring(*_):
        raise Rang

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with open(doors.mounts[1] / name, "r+b") as other, open(file, "r+b") as f:
            child = subprocess.Popen([sys.executable, "-c", WAITER, doors.mounts[1] / name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert [child.stdout.readline() for _ in range(2)] == ["waits\n", "has it\n"]
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(Rang):
                posix(f, fcntl.LOCK_EX, waits=True)
            child.communicate("", timeout=10)
            assert not is_locked(other, fcntl.LOCK_EX)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_locks_end_as_posix_has_it(doors, file, name):
    """With an unlock of a part, with any close of the file by its process, and for those of an open file with its last close."""
    with open(doors.mounts[1] / name, "r+b") as other:
        f = open(file, "r+b")
        posix(f, fcntl.LOCK_EX, 0, 30)
        posix(f, fcntl.LOCK_UN, 10, 10)
        assert [is_locked(other, fcntl.LOCK_EX, at, 10) for at in (0, 10, 20)] == [True, False, True]
        posix(f, fcntl.LOCK_SH, 20, 10)
        assert not is_locked(other, fcntl.LOCK_SH, 20, 10) and is_locked(other, fcntl.LOCK_EX, 20, 10)
        open(file, "rb").close()
        assert not is_locked(other, fcntl.LOCK_EX), "another descriptor of the same process was closed"

        open_file_lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
        fcntl.fcntl(f, fcntl.F_OFD_SETLK, open_file_lock)
        open(file, "rb").close()
        assert is_locked(other, fcntl.LOCK_EX), "it belongs to the open file"
        f.close()
        wait_for(lambda: not is_locked(other, fcntl.LOCK_EX), 10, lambda: "it goes with the open file")


def test_an_inherited_descriptor_does_not_take_away_a_later_lock(doors, file, name):
    """A child still has the file open that its parent has closed; what the parent locks by another descriptor stays when the child ends."""
    with open(doors.mounts[1] / name, "r+b") as other:
        first = open(file, "r+b")
        posix(first, fcntl.LOCK_EX)
        os.set_inheritable(first.fileno(), True)
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[first.fileno()])
        first.close()
        assert not is_locked(other, fcntl.LOCK_EX)
        with open(file, "r+b") as second:
            posix(second, fcntl.LOCK_EX)
            child.communicate(b"", timeout=10)
            assert is_locked(other, fcntl.LOCK_EX)


def test_the_locks_of_a_mount_end_with_it(doors, file, name, tmp_path):
    """Also when it is torn from its programs, which the kernel tells nobody of."""
    third = tmp_path / "third"
    third.mkdir()
    doors.run("mount", third, check=True)
    child = subprocess.Popen([sys.executable, "-c", WAITER, third / name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert [child.stdout.readline() for _ in range(2)] == ["waits\n", "has it\n"]
        with open(file, "r+b") as f:
            assert is_locked(f, fcntl.LOCK_EX)
            # It is busy and stays, but its connection is aborted.
            subprocess.run(["umount", "-f", third], stderr=subprocess.DEVNULL)
            wait_for(lambda: not is_locked(f, fcntl.LOCK_EX), 20)
    finally:
        child.kill()
        child.wait(10)
        child.stdin.close()
        child.stdout.close()
        subprocess.run(["umount", "-l", third], stderr=subprocess.DEVNULL)


def test_who_would_wait_for_each_other_for_ever_is_told(doors, file, name):
    with waiter_that_has(doors.mounts[1] / name, 0) as child, open(file, "r+b") as f:
        posix(f, fcntl.LOCK_EX, 50, 1)
        child.stdin.write("50\n")
        child.stdin.flush()
        wait_for(lambda: "fuse" in stack(child.pid), 10, lambda: "the other waits")
        # Whoever comes second to the daemon is told; mostly that is this one.
        try:
            posix(f, fcntl.LOCK_EX, 0, 1, waits=True)
        except OSError as refused:
            assert refused.errno == errno.EDEADLK
        else:
            assert child.wait(10) == errno.EDEADLK, "one of the two is told"


STEPS = """
import fcntl, sys
f = open(sys.argv[1], "r+b")
fcntl.lockf(f, fcntl.LOCK_EX, 1, int(sys.argv[2]))
print("has it", flush=True)
try:
    fcntl.lockf(f, fcntl.LOCK_EX, 1, int(sys.stdin.readline()))
except OSError as refused:
    sys.exit(refused.errno)
"""


@contextlib.contextmanager
def waiter_that_has(path, start):
    child = subprocess.Popen([sys.executable, "-c", STEPS, path, str(start)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "has it\n"
        yield child
    finally:
        child.kill()
        child.wait(10)
        child.stdin.close()
        child.stdout.close()


def test_programs_that_rely_on_locks_do_on_a_mount(doors, name):
    """Two programs add up in one SQLite file, each by its own mount."""
    import sqlite3

    path = doors.mounts[0] / (name + ".db")
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("create table t (n integer)")
        db.execute("insert into t values (0)")
    adds = ("import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)\n"
            "for _ in range(40): db.execute('begin immediate'); db.execute('update t set n = n + 1'); db.execute('commit')\n")
    programs = [subprocess.Popen([sys.executable, "-c", adds, mnt / path.name]) for mnt in doors.mounts]
    assert [program.wait(100) for program in programs] == [0, 0]
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("select n from t").fetchone() == (80,)
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)


def test_what_durable_handles_hold_is_free_after_a_kill(fresh):
    """Such a handle outlives its connection, and not the server: what was flushed is there, and what was denied is allowed."""
    held = [Keeper(fresh, fresh.share, f"held{n}") for n in range(8)]
    for n, one in enumerate(held):
        assert one.level == smb2.SMB2_OPLOCK_LEVEL_BATCH
        one.low.write(one.tree, one.file, b"flushed", 0, 7)
        one.low.flush(one.tree, one.file)
        one.low.write(one.tree, one.file, b"not flushed", 100 * (n + 1), 11)
    denying = Smb(fresh, fresh.share, "denied", sharing=0)
    fresh.kill()
    for one in [*held, denying]:
        with contextlib.suppress(OSError, SessionError):
            one.low.close_session()
    check = fresh.check()
    assert check.returncode == 0, check.stdout
    fresh.start()
    with client(fresh) as nfs:
        for n in range(8):
            assert nfs.read(nfs.lookup(nfs.root, f"held{n}".encode()).handle, 0, 7).data == b"flushed"
            nfs.remove(nfs.root, f"held{n}".encode())
        nfs.remove(nfs.root, b"denied")
    with Smb(fresh, fresh.share, "denied", sharing=0):
        pass


# ---- leases of directories ----

READS, HANDLES = 1, 2


class LeasedDirectory:
    """An SMB client that caches the entries of one directory; or a file, by other words of its CREATE."""

    def __init__(self, doors, share, name, key=b"d" * 16, caching=READS | HANDLES, create=(READ, 1, 0x10)):
        self.connection = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=doors.smb_port, preferredDialect=smb2.SMB2_DIALECT_30)
        self.connection.login(doors.user, doors.password)
        self.low = self.connection.getSMBServer()
        self.tree = self.low.connectTree(share)
        self.key = key
        self.directory, self.state = self.open(name, *create, key, caching)

    def open(self, name, access, options, attributes, key, caching, parent=None, disposition=smb2.FILE_OPEN_IF):
        """The FileId, and the state that is granted to a lease of version 2."""
        path = name.encode("utf-16-le")
        padded = path + bytes(-len(path) % 8)
        lease = key + struct.pack("<IIQ", caching, 4 if parent else 0, 0) + (parent or bytes(16)) + bytes(4)
        context = struct.pack("<IHHHHI", 0, 16, 4, 0, 24, len(lease)) + b"RqLs" + bytes(4) + lease
        body = struct.pack("<HBBIQQIIIIIHHII", 57, 0, 0xFF, 2, 0, 0, access, attributes, SHARE_ALL, disposition, options,
                           0x78, len(path), 0x78 + len(padded), len(context))
        data = self.ask(smb2.SMB2_CREATE, body + padded + context)
        at = struct.unpack_from("<I", data, 80)[0] - 64
        tag = data.index(b"RqLs", at)
        return data[64:80], struct.unpack_from("<I", data, tag + 8 + 16)[0]

    def ask(self, command, body):
        packet = self.low.SMB_PACKET()
        packet["Command"], packet["TreeID"], packet["Data"] = command, self.tree, body
        answer = self.low.recvSMB(self.low.sendSMB(packet))
        assert answer["Status"] == 0, hex(answer["Status"])
        return answer["Data"]

    def write(self, file, data):
        self.ask(smb2.SMB2_WRITE, struct.pack("<HHIQ16sIIHHI", 49, 0x70, len(data), 0, file, 0, 0, 0, 0, 0) + data)

    def close(self, file):
        self.ask(smb2.SMB2_CLOSE, struct.pack("<HHI16s", 24, 0, 0, file))

    def broken(self):
        """Waits until the server breaks the lease; returns the states before and after."""
        # It may have come before the answer to what this client itself asked for.
        early = self.low._Connection["OutstandingResponses"].pop(0xFFFF_FFFF_FFFF_FFFF, None)
        packet = early or self.low.recvSMB()
        assert packet["Command"] == smb2.SMB2_OPLOCK_BREAK, packet["Command"]
        self.low._Connection["SequenceWindow"] += 1
        size, _epoch, flags, key, before, after = struct.unpack_from("<HHI16sII", packet["Data"])
        assert (size, key) == (44, self.key)
        self.state = after
        if flags & 1:
            self.ask(smb2.SMB2_OPLOCK_BREAK, struct.pack("<HHI16sIQ", 36, 0, 0, key, after, 0))
        return before, after

    def untouched(self, seconds=0.3):
        """Nothing comes."""
        return not select.select([self.low._NetBIOSSession.get_socket()], [], [], seconds)[0]

    def end(self):
        self.connection.close()


@pytest.mark.parametrize("change", ["nfs create", "nfs remove", "nfs rename", "nfs write", "mount", "second share", "smb create", "smb delete"])
def test_a_change_of_an_entry_breaks_the_lease_of_its_directory(doors, change):
    folder = f"leased-{change.replace(' ', '-')}"
    with client(doors) as nfs:
        directory = nfs.mkdir(nfs.root, folder.encode(), mode=0o777).handle
        file = nfs.create(directory, b"old", mode=0o666).handle
        holder = LeasedDirectory(doors, doors.share, folder)
        assert holder.state == READS | HANDLES
        assert holder.untouched()
        match change:
            case "nfs create":
                nfs.create(directory, b"new")
            case "nfs remove":
                nfs.remove(directory, b"old")
            case "nfs rename":
                nfs.rename(directory, b"old", nfs.root, b"moved out")
            case "nfs write":
                nfs.write(file, 0, b"longer", stable=nfs3.FILE_SYNC)
            case "mount":
                (doors.mounts[0] / folder / "new").touch()
            case "second share":
                Smb(doors, "second", f"{folder}\\new").connection.close()
            case "smb create":
                Smb(doors, doors.share, f"{folder}\\new").connection.close()
            case "smb delete":
                Smb(doors, doors.share, f"{folder}\\old", options=NON_DIRECTORY | smb2.FILE_DELETE_ON_CLOSE).connection.close()
        assert holder.broken() == (READS | HANDLES, 0)
        holder.end()


def test_a_client_keeps_the_lease_of_a_directory_whose_entries_it_changes_itself(doors):
    """It says so by naming the lease as its parent's; without that, or with another, its own change breaks it."""
    with client(doors) as nfs:
        nfs.mkdir(nfs.root, b"mine", mode=0o777)
    holder = LeasedDirectory(doors, doors.share, "mine")
    file, state = holder.open("mine\\one", READ | WRITE | DELETE, NON_DIRECTORY, 0x80, b"f" * 16, 7, parent=holder.key)
    assert state == 7
    holder.write(file, b"data")
    holder.close(file)
    assert holder.untouched()
    assert holder.state == READS | HANDLES
    holder.open("mine\\two", READ | WRITE, NON_DIRECTORY, 0x80, b"g" * 16, 7, parent=b"x" * 16)
    assert holder.broken() == (READS | HANDLES, 0)
    holder.end()


def test_a_directory_is_never_leased_for_writing(doors):
    with client(doors) as nfs:
        nfs.mkdir(nfs.root, b"greedy", mode=0o777)
    holder = LeasedDirectory(doors, doors.share, "greedy", caching=7)
    assert holder.state == READS | HANDLES
    holder.end()
