"""The table of docs/sharing.md: what a client of one door holds, and what each act of each other door then comes to.

The document is what was seen here. `LARDER_WRITE_TABLE=1` writes it anew; read the difference before it is committed.
"""

import contextlib
import errno
import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import threading
import time

import pytest
from impacket import smb3structs as smb2
from impacket.smb3 import SessionError

import nfs3
import nlm
from conftest import client, make
from nfs4 import ANONYMOUS, BOTH, READ, WRITE, WRITE_LOCK, Nfs4, Nfs4Error
from larderd import ROOT
from nlm import Machine
from test_nfs4 import BACK_CHANNEL
from test_nlm import port_mapper
from test_sftp import Client as Sftp
from test_sharing import READ as READ_SMB
from test_sharing import WRITE as WRITE_SMB
from test_sharing import HANDLES, READS, LeasedDirectory, Smb
from test_webdav import Dav

# Clients of NLM have a port mapper, on port 111.
pytestmark = [pytest.mark.xdist_group("port-111"), pytest.mark.long]

DOCUMENT = ROOT / "docs/sharing.md"
IS_WRITTEN = bool(os.environ.get("LARDER_WRITE_TABLE"))
BEGIN, END = "<!-- what each act comes to -->", "<!-- end -->"
DELETE_SMB, ALL_SMB, SHARES_READING, DELETE = 0x0011_0000, 7, 1, 4
# Of a lease, beside READS and HANDLES.
WRITES = 4
DUPLICATE_EXTENTS = 0x0009_8344
ACTS = ["open to write", "deny writing", "lock", "write", "truncate", "clone into", "rename", "remove"]
LONG_S = 30
# Its ports below 1024 are its own: closed ones are not free for a minute.
HOLDER = "127.0.0.2"
TAKES_A_LOCK = """
import fcntl, sys
try:
    fcntl.lockf(open(sys.argv[1], "r+b"), fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)
except OSError as error:
    sys.exit(print(error.errno) or 1)
"""


class Refused(Exception):
    """A refusal that a client's library does not raise."""


def checked(status, names):
    if status != 0:
        raise Refused(names.get(status, hex(status)))


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    options = ["--squash", "none", "--sftp", "127.0.0.1:0", "--webdav", "127.0.0.1:0", port_mapper()]
    daemon = make(folder, extra=options).start()
    daemon.run("share", "add", "second", "--volume", "files", check=True)
    daemon.folder, daemon.mnt = folder, folder / "mnt"
    daemon.mnt.mkdir()
    daemon.run("mount", daemon.mnt, check=True)
    os.chmod(daemon.mnt, 0o777)
    (daemon.mnt / "source").write_bytes(b"s" * 65536)
    os.chmod(daemon.mnt / "source", 0o666)
    with client(daemon) as daemon.nfs, Nfs4("127.0.0.1", daemon.nfs_port, minor=2).session() as daemon.nfs4:
        yield daemon
    assert daemon.stop() == 0, daemon.log()[-4000:]
    assert "panicked" not in daemon.log()


# ---- doors that act ----


class OverSmb:
    """A client of another share of the volume."""

    def __init__(self, house, name):
        self.house, self.name = house, name

    def opened(self, act=lambda file: None, access=WRITE_SMB | READ_SMB, options=0x40, sharing=ALL_SMB):
        with Smb(self.house, "second", self.name, access, sharing, options) as file:
            return act(file)

    def open_to_write(self):
        self.opened()

    def deny_writing(self):
        self.opened(access=READ_SMB, sharing=SHARES_READING | DELETE)

    def lock(self):
        self.opened(lambda file: checked(file.lock(0, 10), {0xC0000055: "LOCK_NOT_GRANTED", 0xC0000054: "FILE_LOCK_CONFLICT"}))

    def write(self):
        self.opened(lambda file: file.low.write(file.tree, file.file, b"x", 0, 1))

    def truncate(self):
        self.opened(lambda file: self.set_info(file, bytes(8), smb2.SMB2_FILE_END_OF_FILE_INFO))

    def clone_into(self):
        def cloned(file):
            source = file.low.create(file.tree, "source", READ_SMB, ALL_SMB, 0x40, smb2.FILE_OPEN, 0x80)
            what = bytes(source) + struct.pack("<QQQ", 0, 0, 65536)
            file.low.ioctl(file.tree, file.file, DUPLICATE_EXTENTS, 1, what, 4096)

        self.opened(cloned)

    def rename(self):
        name = (self.name + "-renamed").encode("utf-16-le")
        renamed = bytes(16) + len(name).to_bytes(4, "little") + name
        self.opened(lambda file: self.set_info(file, renamed, smb2.SMB2_FILE_RENAME_INFO), DELETE_SMB)

    def remove(self):
        self.opened(access=DELETE_SMB, options=0x1040)

    @staticmethod
    def set_info(file, what, kind):
        file.low.setInfo(file.tree, file.file, what, smb2.SMB2_0_INFO_FILE, kind, 0)


class Over3:
    open_to_write = clone_into = None

    def __init__(self, house, name):
        self.house, self.name = house, name
        self.nfs = house.nfs
        self.handle = self.nfs.lookup(self.nfs.root, name).handle

    def deny_writing(self):
        with Machine("127.0.0.3", self.house) as machine:
            try:
                checked(machine.share(self.handle, mode=2, access=1), {nlm.DENIED: "DENIED"})
            finally:
                machine.free_all()

    def lock(self):
        with Machine("127.0.0.3", self.house) as machine:
            try:
                checked(machine.lock(self.handle, 0, 10), {nlm.DENIED: "DENIED"})
            finally:
                machine.free_all()

    def write(self):
        self.nfs.write(self.handle, 0, b"x", nfs3.FILE_SYNC)

    def truncate(self):
        self.nfs.setattr(self.handle, size=0)

    def rename(self):
        self.nfs.rename(self.nfs.root, self.name, self.nfs.root, self.name + "-renamed")

    def remove(self):
        self.nfs.remove(self.nfs.root, self.name)


class Over4:
    def __init__(self, house, name):
        self.nfs, self.above = house.nfs4, [house.export.strip("/")]
        self.path, self.renamed = [*self.above, name], [*self.above, name + "-renamed"]

    def opened(self, act=lambda file: None, access=WRITE, deny=0):
        file = self.again(lambda: self.nfs.open(self.path, access=access, deny=deny))
        try:
            return self.again(lambda: act(file))
        finally:
            self.nfs.close_file(file)

    @staticmethod
    def again(act):
        """NFS4ERR_DELAY is no answer (RFC 8881 15.1.1.3)."""
        end = time.monotonic() + LONG_S
        while True:
            try:
                return act()
            except Nfs4Error as error:
                if "DELAY" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def open_to_write(self):
        self.opened()

    def deny_writing(self):
        self.opened(access=READ, deny=WRITE)

    def lock(self):
        self.opened(lambda file: self.nfs.unlock(file, self.nfs.lock(file, WRITE_LOCK, 0, 10), WRITE_LOCK, 0, 10), BOTH)

    def write(self):
        handle = self.nfs.handle(self.path)
        file = type("File", (), {"handle": handle})
        self.again(lambda: self.nfs.write(file, 0, b"x", stateid=ANONYMOUS))

    def truncate(self):
        handle = self.nfs.handle(self.path)
        self.again(lambda: self.nfs.setattr(handle, size=0))

    def clone_into(self):
        source = self.nfs.open([*self.above, "source"], access=READ)
        try:
            self.opened(lambda file: self.nfs.copy(source, file, synchronous=True))
        finally:
            self.nfs.close_file(source)

    def rename(self):
        self.again(lambda: self.nfs.rename(self.path, self.renamed))

    def remove(self):
        self.again(lambda: self.nfs.remove(self.path))


class OverMount:
    deny_writing = None

    def __init__(self, house, name):
        self.path, self.source = house.mnt / name, house.mnt / "source"

    def open_to_write(self):
        os.close(os.open(self.path, os.O_WRONLY))

    def lock(self):
        # By another process: one that holds a lock has it as often as it asks.
        done = subprocess.run([sys.executable, "-c", TAKES_A_LOCK, self.path], capture_output=True, text=True)
        if done.returncode != 0:
            raise OSError(int(done.stdout), "")

    def write(self):
        with open(self.path, "r+b", buffering=0) as file:
            file.write(b"x")

    def truncate(self):
        os.truncate(self.path, 0)

    def clone_into(self):
        with open(self.source, "rb") as source, open(self.path, "r+b") as file:
            assert os.copy_file_range(source.fileno(), file.fileno(), 65536) == 65536

    def rename(self):
        self.path.rename(self.path.with_name(self.path.name + "-renamed"))

    def remove(self):
        self.path.unlink()


class OverSftp:
    open_to_write = deny_writing = lock = None

    def __init__(self, house, name):
        self.sftp, self.above, self.name = Sftp(house, house.folder), f"/{house.share}", name
        self.local = house.folder / "local"
        # Longer than the file: what is missing there is sent.
        self.local.write_bytes(b"x" * 65537)

    def run(self, line):
        done = self.sftp.sftp(line, check=False)
        if done.returncode != 0:
            # The client's words: `remote open "/files/x": Permission denied`.
            raise Refused(done.stderr.strip().splitlines()[-1].rsplit(": ", 1)[-1].lower())

    def write(self):
        self.run(f"reput {self.local} {self.above}/{self.name}")

    def truncate(self):
        self.run(f"put {self.local} {self.above}/{self.name}")

    def clone_into(self):
        self.run(f"cp {self.above}/source {self.above}/{self.name}")

    def rename(self):
        self.run(f"rename {self.above}/{self.name} {self.above}/{self.name}-renamed")

    def remove(self):
        self.run(f"rm {self.above}/{self.name}")


class OverDav:
    open_to_write = deny_writing = truncate = None

    def __init__(self, house, name):
        self.dav, self.above, self.path = Dav(house), f"/{house.share}", f"/{house.share}/{name}"

    def asked(self, method, path, *body, **headers):
        status = self.dav(method, path, *body, **headers).status
        if status >= 300:
            raise Refused(str(status))

    def lock(self):
        answer = self.dav.lock(self.path)
        if answer.status != 200:
            raise Refused(str(answer.status))
        self.asked("UNLOCK", self.path, Lock_Token=answer.headers["Lock-Token"])

    def write(self):
        self.asked("PUT", self.path, b"x")

    def clone_into(self):
        self.asked("COPY", f"{self.above}/source", Destination=self.dav.url(self.path))

    def rename(self):
        self.asked("MOVE", self.path, Destination=self.dav.url(self.path + "-renamed"))

    def remove(self):
        self.asked("DELETE", self.path)


DOORS = {"SMB": OverSmb, "NFS v3": Over3, "NFS v4": Over4, "mount": OverMount, "SFTP": OverSftp, "WebDAV": OverDav}


def outcome(act):
    try:
        act()
    except SessionError as error:
        return re.search(r"STATUS_(\w+)", str(error))[1]
    except (Nfs4Error, nfs3.NfsError) as error:
        return str(error).split("ERR_")[1].split()[0]
    except Refused as error:
        return str(error)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "goes on"


# ---- holders ----


class Held:
    """Something that a client holds of a file. `serve` answers what it is asked, if that comes within `seconds`.

    `back`: takes it back after a restart of the server. `renew`: says that the client is there still.
    """

    def __init__(self, end, back=None):
        self.end, self.back, self.asked, self.renew = end, back and (lambda: back(self)), False, lambda: None

    def serve(self, seconds):
        pass


class HeldLease(Held):
    """An SMB client with a lease; its program has closed the file."""

    def __init__(self, house, name, caching):
        self.client = LeasedDirectory(house, house.share, name, os.urandom(16), caching, (READ_SMB | WRITE_SMB, 0x40, 0x80))
        assert self.client.state == caching
        self.file = self.client.directory
        super().__init__(self.client.end)

    def serve(self, seconds):
        if self.file and not self.client.untouched(seconds):
            self.client.low.recvSMB()
            # A break is no answer to anything, which the library does not expect.
            self.client.low._Connection["SequenceWindow"] += 1
            self.asked = True
            if self.client.state & WRITES:
                self.client.write(self.file, b"kept")
            self.client.close(self.file)
            self.file = None


class HeldDelegation(Held):
    def __init__(self, house, name, access):
        self.nfs = Nfs4("127.0.0.1", house.nfs_port, source=HOLDER).session(flags=BACK_CHANNEL)
        self.opened = self.nfs.open([house.export.strip("/"), name], access=access)
        assert self.opened.delegation, "nobody else has it open"
        super().__init__(lambda: ended(self.nfs), lambda held: taken_back(held, house, self.nfs, self.opened, access))

    def serve(self, seconds):
        if not self.asked and select.select([self.nfs.socket], [], [], seconds)[0]:
            stateid, handle = self.nfs.await_recall()
            self.asked = True
            # Its program has closed the file: the client closes it, and returns the delegation.
            self.nfs.close_file(self.opened)
            self.nfs.return_delegation(handle, stateid)


def ended(nfs):
    with nfs:
        nfs.leave()


def smb(house, name, sharing=ALL_SMB, lock=False):
    file = Smb(house, house.share, name, READ_SMB if sharing != ALL_SMB else READ_SMB | WRITE_SMB, sharing)
    if lock:
        assert file.lock(0, 10) == 0
    return Held(lambda: file.__exit__())


def four(house, name, deny=0, lock=False):
    nfs = Nfs4("127.0.0.1", house.nfs_port, source=HOLDER).session()
    opened = nfs.open([house.export.strip("/"), name], access=BOTH, deny=deny)
    if lock:
        nfs.lock(opened, WRITE_LOCK, 0, 10)
    return Held(lambda: ended(nfs), lambda held: taken_back(held, house, nfs, opened, BOTH, deny, lock))


def taken_back(held, house, nfs, opened, access, deny=0, lock=False):
    """An NFS v4 client after a restart of the server (RFC 8881 8.4.2.1)."""
    nfs.close()
    nfs = Nfs4("127.0.0.1", house.nfs_port, owner=nfs.owner, source=HOLDER).session(complete=False)
    opened = nfs.open_handle(opened.handle, reclaim=True, access=access, deny=deny)
    if lock:
        nfs.lock(opened, WRITE_LOCK, 0, 10, reclaim=True)
    nfs.reclaim_complete()
    held.end, held.renew = lambda: ended(nfs), nfs.compound


def three(house, name, address, act):
    machine, file = Machine(address, house), house.nfs.lookup(house.nfs.root, name).handle
    assert act(machine, file) == nlm.OK

    def end():
        machine.free_all()
        machine.close()

    def back(_):
        machine.connect_again()
        checked(act(machine, file, reclaim=True), {nlm.STALE: "STALE"})

    return Held(end, back)


def mounted(house, name, lock=False):
    file = open(house.mnt / name, "r+b")
    if lock:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)
    return Held(file.close)


def dav(house, name):
    one, path = Dav(house), f"/{house.share}/{name}"
    locked = one.lock(path)
    assert locked.status == 200, locked.status
    return Held(lambda: one("UNLOCK", path, Lock_Token=locked.headers["Lock-Token"]))


HOLDERS = {
    "An SMB open that shares reading alone (MS-FSA 2.1.5.1.2.2)": lambda house, name: smb(house, name, SHARES_READING),
    "An SMB byte range (MS-FSA 2.1.5.8)": lambda house, name: smb(house, name, lock=True),
    "An SMB client that keeps its handle, a lease RH (MS-SMB2 3.3.5.9.8)": lambda house, name: HeldLease(house, name, READS | HANDLES),
    "An SMB client that keeps what it writes, a lease RWH (MS-SMB2 3.3.5.9.8)":
        lambda house, name: HeldLease(house, name, READS | HANDLES | WRITES),
    "An NFS v4 open that denies writing (RFC 8881 9.7)": lambda house, name: four(house, name, deny=WRITE),
    "An NFS v4 byte range (RFC 8881 9.1)": lambda house, name: four(house, name, lock=True),
    "An NFS v4 delegation to read (RFC 8881 10.4)": lambda house, name: HeldDelegation(house, name, READ),
    "An NFS v4 delegation to write (RFC 8881 10.4)": lambda house, name: HeldDelegation(house, name, BOTH),
    "An NFS v3 client's byte range (XNFS 14)": lambda house, name: three(house, name, "127.0.0.4", lambda one, file, **how: one.lock(file, 0, 10, **how)),
    "An NFS v3 client's share mode that denies writing (XNFS 14)":
        lambda house, name: three(house, name, "127.0.0.5", lambda one, file, **how: one.share(file, mode=2, access=1, **how)),
    "A mount's open to write (POSIX open)": mounted,
    "A mount's byte range (POSIX fcntl)": lambda house, name: mounted(house, name, lock=True),
    "A WebDAV lock (RFC 4918 6)": dav,
}


def made(house, name):
    path = house.mnt / name
    path.write_bytes(b"x" * 65536)
    path.chmod(0o666)


def comes_to(held, act):
    """What an act comes to beside what is held."""
    seen = []
    actor = threading.Thread(target=lambda: seen.append(outcome(act)))
    actor.start()
    end = time.monotonic() + LONG_S
    while actor.is_alive() and time.monotonic() < end:
        actor.join(0.01)
        held.serve(0)
    assert seen, f"{act} has not ended"
    # What is said on another connection may come a moment after the answer.
    held.serve(0.3)
    if not held.asked:
        return seen[0]
    return "asks" if seen == ["goes on"] else f"asks, {seen[0]}"


def cell(house, name, hold, door, method):
    """On a file of its own."""
    made(house, name)
    held = hold(house, name)
    try:
        return comes_to(held, getattr(door(house, name), method))
    finally:
        with contextlib.suppress(Nfs4Error):
            held.end()


def table(house, title, hold):
    number = list(HOLDERS).index(title)
    lines = [f"### {title}", "", "| | " + " | ".join(DOORS) + " |", "|---" * (len(DOORS) + 1) + "|"]
    for act in ACTS:
        cells = []
        for at, door in enumerate(DOORS.values()):
            method = act.replace(" ", "_")
            does = getattr(door, method) is not None
            cells.append(cell(house, f"t{number}-{at}-{method}", hold, door, method) if does else "")
        lines.append(f"| {act} | " + " | ".join(cells) + " |")
    return [*lines, ""]


@pytest.fixture(scope="module")
def document():
    """The tables by title; those that were seen are written at the end."""
    before, rest = DOCUMENT.read_text().split(BEGIN + "\n\n")
    inside, after = rest.split(END + "\n")
    tables = {part.split("\n", 1)[0]: "### " + part for part in inside.split("### ")[1:]}
    yield tables
    if IS_WRITTEN:
        DOCUMENT.write_text(f"{before}{BEGIN}\n\n" + "".join(tables.get(title, "") for title in HOLDERS) + f"{END}\n{after}")


@pytest.mark.parametrize("title", HOLDERS)
def test_the_document_says_what_each_act_comes_to(house, document, title):
    seen = "\n".join(table(house, title, HOLDERS[title])) + "\n"
    if IS_WRITTEN:
        document[title] = seen
    assert document.get(title) == seen
