"""SMB listings: whole with any buffer, while names come and go, and without memory for the opens that are within one."""

import fnmatch
import os
import shutil
import struct
import tempfile
from pathlib import Path

import pytest
from impacket.smb3structs import FILE_DIRECTORY_FILE, FILE_OPEN, SMB2_QUERY_DIRECTORY, SMB2QueryDirectory
from impacket.smb3structs import SMB2QueryDirectory_Response
from impacket.smbconnection import SMBConnection

from conftest import client, make
from test_access import add_user
from test_webdav import ANN

FILES = 1500
OPENS = 2000
NAMES, BOTH, ID_BOTH = 0x0C, 0x03, 0x25
NAME_OFFSET = {NAMES: 12, BOTH: 94, ID_BOTH: 104}
LENGTH_OFFSET = {NAMES: 8, BOTH: 60, ID_BOTH: 60}
RESTART, SINGLE, REOPEN = 0x01, 0x02, 0x10
OK, OVERFLOW, NO_MORE_FILES, NO_SUCH_FILE = 0, 0x80000005, 0x80000006, 0xC000000F
DOTS = {".", ".."}


def name_of(n):
    """Of every length, so that responses end anywhere."""
    return f"{n:05}" + "abcdefghij" * (n % 24)


class Listing:
    """An open of a directory."""

    def __init__(self, server, tree, path):
        self.server, self.tree, self.kept = server, tree, []
        self.file = server.create(tree, path, 0x0012_0089, 7, FILE_DIRECTORY_FILE, FILE_OPEN, 0)

    def query(self, size=65536, flags=0, pattern="*", kind=ID_BOTH):
        """The status, and the names of one response."""
        packet = self.server.SMB_PACKET()
        packet["Command"], packet["TreeID"] = SMB2_QUERY_DIRECTORY, self.tree
        packet["CreditCharge"] = 1 + (size - 1) // 65536
        asked = SMB2QueryDirectory()
        asked["FileInformationClass"], asked["Flags"], asked["FileID"] = kind, flags, self.file
        asked["OutputBufferLength"] = size
        asked["FileNameLength"], asked["Buffer"] = 2 * len(pattern), pattern.encode("utf-16le")
        packet["Data"] = asked
        answer = self.server.recvSMB(self.server.sendSMB(packet))
        if answer["Status"] not in (OK, OVERFLOW):
            return answer["Status"], []
        data = SMB2QueryDirectory_Response(answer["Data"])["Buffer"]
        assert len(data) <= size
        names, at = [], 0
        while True:
            (length,) = struct.unpack_from("<I", data, at + LENGTH_OFFSET[kind])
            name = data[at + NAME_OFFSET[kind]:][:length]
            names.append(name.decode("utf-16le"))
            (step,) = struct.unpack_from("<I", data, at)
            if step == 0:
                return answer["Status"], names
            at += step

    def rest(self, size=65536, flags=0, **options):
        """All names from here on."""
        names = []
        while True:
            status, more = self.query(size, flags, **options)
            if status in (NO_MORE_FILES, NO_SUCH_FILE):
                return names
            assert status == OK and (len(more) == 1 or not flags & SINGLE), (hex(status), more)
            names += more
            flags &= ~(RESTART | REOPEN)

    def close(self):
        self.server.close(self.tree, self.file)


class Volume:
    """A volume's directory, changed through NFS."""

    path = "many"

    def __init__(self, daemon):
        self.share, self.nfs = daemon.share, client(daemon)
        self.dir = self.nfs.mkdir(self.nfs.root, "many", mode=0o777).handle

    def create(self, name):
        self.nfs.create(self.dir, name)

    def remove(self, name):
        self.nfs.remove(self.dir, name)


class Folder:
    """A folder of the host, changed there."""

    share, path = "photos", "many"

    def __init__(self, daemon, place):
        self.dir = place / "photos" / "many"
        self.dir.mkdir(parents=True)
        daemon.run("share", "add", self.share, "--folder", place / "photos", check=True)

    def create(self, name):
        (self.dir / name).touch()

    def remove(self, name):
        os.unlink(self.dir / name)


@pytest.fixture(scope="module")
def place():
    place = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def daemon(place):
    daemon = make(place, extra=["--squash", "none"]).start()
    add_user(daemon, "ann", "--uid", "1001", password=ANN)
    yield daemon
    log, code = daemon.log(), daemon.stop()
    assert code == 0 and "panicked" not in log, log[-4000:]


@pytest.fixture(scope="module", params=["volume", "folder"])
def many(request, daemon, place):
    many = Volume(daemon) if request.param == "volume" else Folder(daemon, place)
    for n in range(FILES):
        many.create(name_of(n))
    return many


@pytest.fixture
def connection(daemon):
    connection = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=daemon.smb_port)
    connection.login("ann", ANN)
    yield connection
    connection.close()


@pytest.fixture
def opened(connection, many):
    server, tree = connection.getSMBServer(), connection.connectTree(many.share)
    return lambda: Listing(server, tree, many.path)


@pytest.fixture(scope="module")
def everything():
    return DOTS | {name_of(n) for n in range(FILES)}


def once(names):
    assert len(names) == len(set(names)), "a name came twice"
    return set(names)


@pytest.mark.parametrize("size, kind", [(700, NAMES), (700, ID_BOTH), (5000, BOTH), (65536, ID_BOTH), (1 << 20, ID_BOTH)])
def test_a_listing_is_whole_with_any_buffer(opened, everything, size, kind):
    listing = opened()
    names = listing.rest(size, kind=kind)
    assert names[:2] == [".", ".."] and once(names) == everything
    assert listing.query(size, kind=kind) == (NO_MORE_FILES, [])
    assert listing.rest(size, RESTART, kind=kind) == names
    listing.close()


def test_single_entries_and_sizes_may_be_mixed(opened, everything):
    listing, names, sizes = opened(), [], [700, 65536, 1200, 9000]
    for n in range(10_000):
        status, more = listing.query(sizes[n % 4], SINGLE if n % 8 else 0)
        if status == NO_MORE_FILES:
            break
        assert status == OK
        names += more
    assert names[:2] == [".", ".."] and once(names) == everything
    listing.close()


@pytest.mark.parametrize("flags, pattern", [
    (0, "*"), (0, "*7"), (SINGLE, "0127?"), (0, "01499*"), (SINGLE, "?????"), (0, "*.*"), (SINGLE, "nothing*"), (0, "*h*"),
])
def test_patterns_are_kept_over_responses(opened, everything, flags, pattern):
    wanted = {name for name in everything if fnmatch.fnmatchcase(name, pattern)}
    listing = opened()
    names = listing.rest(4000, flags, pattern=pattern)
    assert once(names) == wanted
    if wanted:
        status, first = listing.query(4000, RESTART, pattern="")
        assert (status, first) == (OK, names[:len(first)])
    else:
        assert listing.query(4000, REOPEN, pattern=pattern) == (NO_SUCH_FILE, [])
    listing.close()


def test_a_scan_begins_again_from_anywhere(opened, everything):
    listing = opened()
    assert listing.query(5000)[0] == listing.query(5000)[0] == OK
    assert once(listing.rest(5000, RESTART)) == everything
    listing.query(5000, REOPEN, "00*")
    listing.query(5000)
    # A restart keeps the pattern unless it has another; a reopen takes the one that it has.
    assert once(listing.rest(5000, RESTART, pattern="")) == {name for name in everything if name.startswith("00")}
    assert once(listing.rest(5000, RESTART, pattern="01*")) == {name for name in everything if name.startswith("01")}
    assert once(listing.rest(5000, REOPEN)) == everything
    assert listing.rest(5000, REOPEN, pattern=name_of(77)) == [name_of(77)]
    assert listing.query(5000, REOPEN, "none") == (NO_SUCH_FILE, [])
    listing.close()


def test_a_name_that_is_cut_comes_again(opened):
    listing = opened()
    whole = name_of(23)
    assert listing.query(NAME_OFFSET[ID_BOTH] + 21, pattern=whole[:5] + "*") == (OVERFLOW, [whole[:10]])
    assert listing.query(NAME_OFFSET[ID_BOTH] + 8) == (OVERFLOW, [whole[:4]])
    assert listing.query() == (OK, [whole])
    assert listing.query() == (NO_MORE_FILES, [])
    listing.close()


def test_names_that_come_and_go_meanwhile(opened, many, everything):
    """Names that are there all the time are listed once; the others once at most."""
    listing, names, kept = opened(), [], set(everything)
    made = []
    for round in range(1000):
        status, more = listing.query(20_000)
        if status == NO_MORE_FILES:
            break
        names += more
        ahead = sorted(kept - set(names) - DOTS)
        # Of those that were listed, the last one too; and of those that follow.
        for name in {more[0], more[-1], *ahead[:2]} & everything - DOTS:
            many.remove(name)
            kept.discard(name)
        made.append(f"made {round:04}")
        many.create(made[-1])
    listed = once(names)
    assert kept <= listed <= everything | set(made)
    listing.close()
    gone = everything - kept
    assert len(gone) > 40
    again = opened()
    assert once(again.rest()) == kept | set(made)
    again.close()
    for name in made:
        many.remove(name)
    for name in gone:
        many.create(name)


def test_opens_within_a_listing_keep_no_entries(daemon, connection, many, everything):
    """Each kept a page of 1,024 entries: 0.36 MiB, and a connection has 16,384 opens."""
    server, tree = connection.getSMBServer(), connection.connectTree(many.share)
    opens = [Listing(server, tree, many.path) for _ in range(OPENS)]
    before = daemon.rss_bytes()
    began = [listing.query(2000)[1] for listing in opens]
    growth = daemon.rss_bytes() - before
    assert growth < 32 << 20, growth
    for listing, names in list(zip(opens, began))[::100]:
        assert once(names + listing.rest()) == everything
