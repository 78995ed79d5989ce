"""One request of a user takes bounded memory and work, whatever it names and however often, and whatever lies on the file."""

import http.client
import re
import shutil
import socket
import struct
import tempfile
import threading
import time
from pathlib import Path

import pytest
from impacket.smb3 import SessionError
from impacket.smb3structs import FILE_OPEN_IF
from impacket.smbconnection import SMBConnection

from conftest import client, make
from test_access import add_user
from test_webdav import ANN, Dav

GROWTH_BYTES_MAX = 64 << 20
ROW_BYTES_MAX = 1 << 20
STATUS_EA_TOO_LARGE = 0xC0000050
EA_INFORMATION, FULL_EA_INFORMATION = 7, 15


@pytest.fixture(scope="module")
def daemon():
    place = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    daemon = make(place, extra=["--webdav", "127.0.0.1:0", "--squash", "none"]).start()
    add_user(daemon, "ann", "--uid", "1001", password=ANN)
    with client(daemon) as nfs:
        nfs.mkdir(nfs.root, "all", mode=0o777)
    yield daemon
    log, code = daemon.log(), daemon.stop()
    shutil.rmtree(place, ignore_errors=True)
    assert code == 0 and "panicked" not in log, log[-4000:]


@pytest.fixture
def at(daemon):
    return f"/{daemon.share}/all"


@pytest.fixture
def ann(daemon):
    return Dav(daemon, "ann", ANN)


class Peak:
    """How much more memory the daemon has had meanwhile."""

    def __init__(self, daemon):
        self.daemon, self.over = daemon, threading.Event()

    def __enter__(self):
        self.before = self.most = self.daemon.rss_bytes()
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()
        return self

    def watch(self):
        while not self.over.is_set():
            self.most = max(self.most, self.daemon.rss_bytes())
            time.sleep(0.005)

    def __exit__(self, *_):
        self.over.set()
        self.watcher.join()
        self.growth = self.most - self.before


def propfind(inner):
    return f'<propfind xmlns="DAV:" xmlns:u="urn:x">{inner}</propfind>'


def test_many_shared_locks_are_told_in_bounds(daemon, ann, at):
    assert ann("MKCOL", f"{at}/locked/").status == 201
    body = ('<lockinfo xmlns="DAV:"><lockscope><shared/></lockscope><locktype><write/></locktype>'
            f'<owner>{"x" * 3900}</owner></lockinfo>')
    locks = [ann("LOCK", f"{at}/locked/", body, Depth="infinity").headers["Lock-Token"] for _ in range(500)]
    assert len(set(locks)) == 500 and None not in locks
    with Peak(daemon) as peak:
        answer = ann("PROPFIND", f"{at}/locked/", propfind(f"<prop>{'<lockdiscovery/>' * 256}</prop>"), Depth="0")
    assert answer.status == 207 and locks[0].strip("<>") in answer.body.decode()
    assert answer.body.count(b"<D:lockdiscovery>") == 1
    assert len(answer.body) < ROW_BYTES_MAX and peak.growth < GROWTH_BYTES_MAX, (len(answer.body), peak.growth)
    # What is not told counts all the same.
    assert Dav(daemon)("DELETE", f"{at}/locked/").status == 423
    for token in locks:
        assert ann("UNLOCK", f"{at}/locked/", Lock_Token=token).status == 204


def test_many_locks_below_a_folder_are_told_in_bounds(daemon, ann, at):
    path = f"{at}/folder"
    for name in ["", *("ä" * 100 for _ in range(8))]:
        path += name and f"/{name}"
        assert ann("MKCOL", f"{path}/").status == 201
    tokens = [(n, ann.lock(f"{path}/f{n}").headers["Lock-Token"]) for n in range(300)]
    refused = Dav(daemon)("DELETE", f"{at}/folder/")
    assert refused.status == 207 and 1 <= refused.body.count(b"<D:response>") <= 100, refused.body.count(b"<D:response>")
    assert len(refused.body) < ROW_BYTES_MAX
    for n, token in tokens:
        assert ann("UNLOCK", f"{path}/f{n}", Lock_Token=token).status == 204
    assert ann("DELETE", f"{at}/folder/").status == 204


def told_in(answer):
    """Properties with a value."""
    return len(re.findall(rb"</\w+:p\d+>", answer.body))


def test_large_properties_are_told_in_bounds(daemon, ann, at):
    ann.put(f"{at}/file", b"content")
    for n in range(40):
        value = f'<u:p{n} xmlns:u="urn:x">{chr(65 + n % 26) * 30_000}</u:p{n}>'
        done = ann("PROPPATCH", f"{at}/file", f'<propertyupdate xmlns="DAV:"><set><prop>{value}</prop></set></propertyupdate>')
        assert b"200 OK" in done.body, done.body
    everything = ann("PROPFIND", f"{at}/file", Depth="0")
    told, left_out = told_in(everything), everything.body.count(b"507 Insufficient Storage")
    assert 8 <= told < 40 and left_out == 1, (told, left_out)
    assert len(everything.body) < ROW_BYTES_MAX
    # Everything is named, and what was left out is told to those who ask for it.
    assert all(f":p{n}".encode() in everything.body for n in range(40))
    rest = "".join(f"<u:p{n}/>" for n in range(32, 40))
    again = ann("PROPFIND", f"{at}/file", propfind(f"<prop>{rest}</prop>"), Depth="0")
    assert told_in(again) == 8 and b"507" not in again.body
    often = ann("PROPFIND", f"{at}/file", propfind(f"<prop>{'<u:p1/>' * 256}</prop>"), Depth="0")
    assert told_in(often) == 1 and len(often.body) < 40_000
    # The same for a folder of such files that nobody takes.
    for n in range(10):
        assert ann("COPY", f"{at}/file", Destination=f"{at}/copy{n}").status == 201
    readers = [Dav(daemon, "ann", ANN) for _ in range(8)]
    with Peak(daemon) as peak:
        for reader in readers:
            reader.connection.request("PROPFIND", f"{at}/", headers={"Authorization": reader.authorization, "Depth": "1"})
        time.sleep(1)
    for reader in readers:
        reader.connection.close()
    assert peak.growth < GROWTH_BYTES_MAX, peak.growth


def attributes(count):
    """FileFullEaInformation (MS-FSCC 2.4.16)."""
    entries = []
    for n in range(count):
        name = b"%06x" % n
        entry = struct.pack("<BBH", 0, len(name), 1) + name + b"\0v"
        entries.append(entry + b"\0" * (-(4 + len(entry)) % 4))
    return b"".join(struct.pack("<I", 0 if n == count - 1 else 4 + len(entry)) + entry for n, entry in enumerate(entries))


def test_extended_attributes_of_a_request_are_counted(daemon):
    connection = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=daemon.smb_port)
    connection.login("ann", ANN)
    server, tree = connection.getSMBServer(), connection.connectTree(daemon.share)
    file = server.create(tree, "all\\attributes", 0x1F01FF, 7, 0x40, FILE_OPEN_IF, 0)

    def set_them(count):
        began = time.monotonic()
        try:
            server.setInfo(tree, file, attributes(count), fileInfoClass=FULL_EA_INFORMATION)
            status = 0
        except SessionError as error:
            status = error.get_error_code()
        return status, time.monotonic() - began

    assert set_them(200)[0] == 0
    status, took = set_them(4000)
    assert status == STATUS_EA_TOO_LARGE and took < 5, (hex(status), took)
    server.close(tree, file)
    connection.logoff()


def test_large_extended_attributes_are_read_in_bounds(daemon):
    """Beyond what Windows keeps for a file they are not shown, and nobody's memory is filled with them."""
    connection = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=daemon.smb_port)
    connection.login("ann", ANN)
    server, tree = connection.getSMBServer(), connection.connectTree(daemon.share)
    file = server.create(tree, "all\\large", 0x1F01FF, 7, 0x40, FILE_OPEN_IF, 0)
    for n in range(1000):
        entry = struct.pack("<IBBH", 0, 0, 6, 60_000) + b"%06x\0" % n + bytes(60_000)
        server.setInfo(tree, file, entry, fileInfoClass=FULL_EA_INFORMATION)
    with Peak(daemon) as peak:
        sizes = [struct.unpack("<I", server.queryInfo(tree, file, fileInfoClass=EA_INFORMATION))[0] for _ in range(5)]
    assert len(set(sizes)) == 1 and 60_000 < sizes[0] < 200_000, sizes
    # One query read 60 MB.
    assert peak.growth < 16 << 20, peak.growth
    server.close(tree, file)
    connection.logoff()


class Local(http.client.HTTPConnection):
    """The daemon's API on its socket."""

    def __init__(self, daemon):
        super().__init__("localhost", timeout=60)
        self.path = daemon.data / "larder.sock"

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


def ask_api(daemon, method, path, body):
    """The status. A body that is an iterator goes without a length."""
    connection = Local(daemon)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request(method, path, body, headers, encode_chunked=not isinstance(body, bytes))
        return connection.getresponse().status
    except (BrokenPipeError, ConnectionResetError):
        # Refused before all of it was taken.
        return 413
    finally:
        connection.close()


# All that take JSON, for names that nobody has.
API = [
    ("POST", "/v1/pools/import"), ("POST", "/v1/pools/none/export"), ("POST", "/v1/pools/none/rename"),
    ("POST", "/v1/pools/none/change"), ("POST", "/v1/pools/none/destroy"), ("POST", "/v1/pools/none/scrub"),
    ("POST", "/v1/volumes"), ("PATCH", "/v1/volumes/none/none"), ("DELETE", "/v1/volumes/none/none"),
    ("POST", "/v1/move"), ("POST", "/v1/keys/none/none"), ("POST", "/v1/snapshots/none/none"),
    ("POST", "/v1/diff/none/none"), ("POST", "/v1/send/none/none"), ("POST", "/v1/export/none/none"),
    ("POST", "/v1/import/none/none"), ("POST", "/v1/clone/none/none"), ("POST", "/v1/replications"),
    ("POST", "/v1/replicate"), ("POST", "/v1/accept"), ("POST", "/v1/shares"), ("PATCH", "/v1/shares/none"),
    ("POST", "/v1/explain"), ("POST", "/v1/users"), ("POST", "/v1/users/none/password"),
    ("POST", "/v1/users/none/keys"), ("POST", "/v1/groups"), ("PATCH", "/v1/groups/none"), ("POST", "/v1/tokens"),
    ("POST", "/v1/mounts"), ("POST", "/v1/unmount"),
]
DEPTH = 200_000
DEEP = [b"[" * DEPTH, b'{"a":' * DEPTH, b'{"name":' + b"[" * DEPTH + b"]" * DEPTH + b"}",
        b'{"nobody asked for":' + b'{"a":' * DEPTH + b"1" + b"}" * DEPTH + b"}"]


@pytest.mark.parametrize("method, path", API)
def test_bodies_of_the_api_are_bounded(daemon, method, path):
    with Peak(daemon) as peak:
        for body in DEEP:
            assert 400 <= ask_api(daemon, method, path, body) < 500, body[:30]
    assert peak.growth < 32 << 20, peak.growth
    assert daemon.run("pool", "list").returncode == 0


def test_a_body_of_the_api_has_a_length(daemon):
    piece = b" " * (1 << 20)
    with Peak(daemon) as peak:
        for _ in range(3):
            assert ask_api(daemon, "POST", "/v1/users", piece * 40) == 413
            assert ask_api(daemon, "POST", "/v1/users", iter([piece] * 40)) == 413
    assert peak.growth < GROWTH_BYTES_MAX, peak.growth
    assert daemon.run("pool", "list").returncode == 0
