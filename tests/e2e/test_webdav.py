"""WebDAV by its real clients (curl, rclone, davfs2, cadaver, litmus) and by raw sockets. What they write is compared through a mount, NFS and SMB."""

import base64
import concurrent.futures
import fcntl
import http.client
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from impacket.smbconnection import SessionError, SMBConnection

from conftest import client as nfs_client
from conftest import make
from larderd import StartFailed
from test_access import add_user
from test_sftp import some_tree, top, tree
from trees import payload
from waiting import wait_for

ANN = "Pantry-Shelf-43"
NAME_255 = "ä" * 127 + "x"
D = "{DAV:}"


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def xml(self):
        return ET.fromstring(self.body)

    def hrefs(self):
        return [urllib.parse.unquote(e.text) for e in self.xml().iter(D + "href")]


class Dav:
    """Requests of one user, each over the same connection."""

    def __init__(self, daemon, user="keeper", password=None):
        self.daemon, self.user = daemon, user
        self.port = daemon.info["webdav"]["port"]
        self.password = daemon.password if password is None else password
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        words = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        self.authorization = f"Basic {words}"

    def __call__(self, method, path, body=None, **headers):
        headers = {name.replace("_", "-"): str(value) for name, value in headers.items()}
        headers.setdefault("Authorization", self.authorization)
        self.connection.request(method, urllib.parse.quote(path), body=body, headers=headers)
        answer = self.connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())

    def put(self, path, body, **headers):
        answer = self("PUT", path, body, **headers)
        assert answer.status in (201, 204), (answer.status, answer.body)
        return answer

    def url(self, path="/"):
        return f"http://127.0.0.1:{self.port}{urllib.parse.quote(path)}"

    def lock(self, path, scope="exclusive", timeout=600, depth="0", **headers):
        body = (f'<lockinfo xmlns="DAV:"><lockscope><{scope}/></lockscope><locktype><write/></locktype>'
                f"<owner>{self.user}</owner></lockinfo>")
        return self("LOCK", path, body, Timeout=f"Second-{timeout}", Depth=depth, **headers)

    def run(self, *command, check=True, timeout_s=300, **more):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout_s,
                              stdin=None if "input" in more else subprocess.DEVNULL, **more)
        assert not check or done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}\n{self.daemon.log()[-3000:]}"
        return done

    def rclone(self, *words, check=True, vendor="owncloud"):
        obscured = subprocess.run(["rclone", "obscure", self.password], capture_output=True, text=True, check=True).stdout.strip()
        remote = ["--webdav-url", self.url("/"), "--webdav-user", self.user, "--webdav-pass", obscured, "--webdav-vendor", vendor]
        return self.run("rclone", "--config", "/dev/null", *words, *remote, check=check)


@pytest.fixture(scope="module")
def place():
    path = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def daemon(place):
    """One larder with WebDAV and a mount, by which the tests look at what the clients did."""
    mount = place / "mnt"
    mount.mkdir()
    daemon = make(place, extra=["--webdav", "127.0.0.1:0", "--mount", str(mount), "--squash", "none"]).start()
    daemon.mounted = mount
    os.chmod(mount, 0o1777)
    yield daemon
    log = daemon.log()
    code = daemon.stop()
    assert code == 0, log[-4000:]
    assert "panicked" not in log, log[-4000:]


@pytest.fixture
def keeper(daemon):
    return Dav(daemon)


def raw(port, data, timeout=10):
    """Everything that is answered to these bytes."""
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.settimeout(timeout)
        s.sendall(data)
        got = b""
        try:
            while chunk := s.recv(65536):
                got += chunk
        except (TimeoutError, ConnectionResetError):
            pass
        return got


def test_a_file_goes_up_and_comes_down_whole_and_in_ranges(daemon, keeper):
    seen, data = top(daemon, "basic"), payload(3_000_000, 5)
    path = f"/{daemon.share}/basic/a file ü%.bin"
    made = keeper.put(path, data)
    assert made.status == 201 and made.headers["ETag"].startswith('"')
    assert (seen / "a file ü%.bin").read_bytes() == data
    got = keeper("GET", path)
    assert (got.status, got.body, got.headers["ETag"]) == (200, data, made.headers["ETag"])
    head = keeper("HEAD", path)
    assert (head.status, head.body, head.headers["Content-Length"]) == (200, b"", "3000000")
    part = keeper("GET", path, Range="bytes=1000-1999")
    assert (part.status, part.body, part.headers["Content-Range"]) == (206, data[1000:2000], "bytes 1000-1999/3000000")
    assert keeper("GET", path, Range="bytes=-5").body == data[-5:]
    outside = keeper("GET", path, Range="bytes=3000000-")
    assert (outside.status, outside.headers["Content-Range"]) == (416, "bytes */3000000")
    several = keeper("GET", path, Range="bytes=0-9,20-29")
    boundary = re.search("boundary=(.*)", several.headers["Content-Type"])[1].encode()
    parts = several.body.split(b"--" + boundary)
    assert several.status == 206 and len(several.body) == int(several.headers["Content-Length"])
    assert [p.split(b"\r\n\r\n")[1][:10] for p in parts[1:3]] == [data[:10], data[20:30]] and parts[3] == b"--\r\n"
    again = keeper.put(path, b"short")
    assert again.status == 204 and (seen / "a file ü%.bin").read_bytes() == b"short"
    empty = keeper.put(f"/{daemon.share}/basic/empty", b"")
    assert empty.status == 201 and keeper("GET", f"/{daemon.share}/basic/empty").body == b""


def test_conditions(daemon, keeper):
    seen, path = top(daemon, "conditions"), f"/{daemon.share}/conditions/f"
    assert keeper("PUT", path, b"one", If_Match="*").status == 412
    tag = keeper.put(path, b"one", If_None_Match="*").headers["ETag"]
    assert keeper("PUT", path, b"two", If_None_Match="*").status == 412
    assert keeper("PUT", path, b"two", If_Match='"x"').status == 412
    assert keeper("GET", path, If_None_Match=tag).status == 304
    modified = keeper("HEAD", path).headers["Last-Modified"]
    assert keeper("GET", path, If_Modified_Since=modified).status == 304
    assert keeper("GET", path, Range="bytes=0-0", If_Range=tag).status == 206
    assert keeper("GET", path, Range="bytes=0-0", If_Range='"x"').status == 200
    assert keeper("DELETE", path, If_Match='"x"').status == 412
    second = keeper.put(path, b"two", If_Match=tag).headers["ETag"]
    assert second != tag and (seen / "f").read_bytes() == b"two"
    (seen / "f").write_bytes(b"by the mount")
    assert keeper("PUT", path, b"three", If_Match=second).status == 412
    assert (seen / "f").read_bytes() == b"by the mount"


def test_one_of_many_puts_that_want_a_new_name_makes_it(daemon, keeper):
    top(daemon, "race")
    path = f"/{daemon.share}/race/f"

    def attempt(n):
        return Dav(daemon)("PUT", path, f"{n}".encode() * 10_000, If_None_Match="*").status

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(attempt, range(16)))
    assert sorted(statuses) == [201] + [412] * 15


def test_statuses_of_what_cannot_be(daemon, keeper):
    seen, at = top(daemon, "cannot"), f"/{daemon.share}/cannot"
    (seen / "folder/full").mkdir(parents=True)
    (seen / "file").write_text("x")
    for method, path, body, headers, status in [
        ("GET", f"{at}/missing", None, {}, 404),
        ("PUT", f"{at}/missing/f", b"x", {}, 409),
        ("PUT", f"{at}/folder", b"x", {}, 405),
        ("PUT", f"{at}/folder/", b"x", {}, 405),
        ("PUT", f"{at}/f", b"x", {"Content_Range": "bytes 0-0/5"}, 400),
        ("PUT", "/at the top", b"x", {}, 403),
        ("PUT", "/no share/f", b"x", {}, 409),
        ("MKCOL", f"{at}/folder", None, {}, 405),
        ("MKCOL", f"{at}/file", None, {}, 405),
        ("MKCOL", f"{at}/a/b", None, {}, 409),
        ("MKCOL", f"{at}/new", b"<x/>", {}, 415),
        ("MKCOL", "/share", None, {}, 403),
        ("DELETE", f"{at}/missing", None, {}, 404),
        ("DELETE", f"{at}/folder", None, {"Depth": "0"}, 400),
        ("DELETE", f"/{daemon.share}", None, {}, 403),
        ("COPY", f"{at}/file", None, {}, 400),
        ("COPY", f"{at}/file", None, {"Destination": f"{at}/file"}, 403),
        ("COPY", f"{at}/file", None, {"Destination": "http://elsewhere/x"}, 502),
        ("COPY", f"{at}/file", None, {"Destination": f"{at}/a/b"}, 409),
        ("COPY", f"{at}/file", None, {"Destination": f"{at}/folder", "Overwrite": "F"}, 412),
        ("MOVE", f"{at}/folder", None, {"Destination": f"{at}/folder/full/x"}, 403),
        ("MOVE", f"{at}/folder/full", None, {"Destination": f"{at}/folder"}, 403),
        ("PROPFIND", f"{at}/missing", None, {"Depth": "0"}, 404),
        ("PROPFIND", at, b"<not closed", {"Depth": "0"}, 400),
        ("PROPFIND", at, None, {"Depth": "7"}, 400),
        ("PROPFIND", at, b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>', {"Depth": "0"}, 400),
        ("PROPFIND", at, b"x" * (2 << 20), {"Depth": "0"}, 413),
        ("UNLOCK", f"{at}/file", None, {"Lock_Token": "<urn:uuid:none>"}, 409),
        ("POST", f"{at}/file", b"x", {}, 405),
        ("NONSENSE", f"{at}/file", None, {}, 501),
    ]:
        answer = Dav(daemon)(method, path, body, **headers)
        assert answer.status == status, (method, path, headers, answer.status, answer.body)
    top_of_all = keeper("PROPFIND", "/", Depth="infinity")
    assert top_of_all.status == 403 and b"propfind-finite-depth" in top_of_all.body
    assert sorted(p.name for p in seen.iterdir()) == ["file", "folder"] and (seen / "file").read_text() == "x"


def test_depth_infinity_of_a_small_tree(daemon, keeper):
    """All of it in one answer, as RFC 4918 has it; what is large is asked for folder by folder."""
    seen, at = top(daemon, "deep"), f"/{daemon.share}/deep"
    expected = {f"{at}/"}
    for folder in ("a", "a/b", "a/b/c", "d"):
        (seen / folder).mkdir()
        expected.add(f"{at}/{folder}/")
        for n in range(20):
            (seen / folder / f"f{n}").write_text("x")
            expected.add(f"{at}/{folder}/f{n}")
    os.symlink("a/f1", seen / "link")
    expected.add(f"{at}/link")
    for headers in ({"Depth": "infinity"}, {}):
        deep = keeper("PROPFIND", at, **headers)
        assert deep.status == 207 and sorted(deep.hrefs()) == sorted(expected), headers
    assert keeper("PROPFIND", f"{at}/a/f1", Depth="infinity").hrefs() == [f"{at}/a/f1"]
    daemon.run("snap", "create", "files@deep", check=True)
    assert sorted(keeper("PROPFIND", at, Depth="infinity").hrefs()) == sorted(expected), "without the past"
    # A link to a folder may lead back into the tree.
    os.symlink("..", seen / "a/b/up")
    looped = keeper("PROPFIND", at, Depth="infinity")
    assert looped.status == 403 and b"propfind-finite-depth" in looped.body
    os.unlink(seen / "a/b/up")
    (seen / "wide").mkdir()
    for n in range(10_000):
        os.mknod(seen / "wide" / str(n))
    wide = keeper("PROPFIND", at, Depth="infinity")
    assert wide.status == 403 and b"propfind-finite-depth" in wide.body
    assert len(keeper("PROPFIND", f"{at}/wide", Depth="1").hrefs()) == 10_001
    # Not the user's to read: it is listed, and what it holds is not.
    (seen / "closed").mkdir()
    (seen / "closed" / "secret").write_text("x")
    os.chmod(seen / "closed", 0o700)
    shutil.rmtree(seen / "wide")
    hrefs = keeper("PROPFIND", at, Depth="infinity").hrefs()
    assert f"{at}/closed/" in hrefs and f"{at}/closed/secret" not in hrefs


def test_a_lock_where_smb_denies_writing(daemon, keeper):
    """The lock is a promise that its holder may write: where an open of SMB denies that, there is none. Readers that come later
    are let in, though they deny writing as many programs do, and are in the way of a PUT while they read."""
    seen, at = top(daemon, "denied"), f"/{daemon.share}/denied"
    keeper.put(f"{at}/f", b"one")
    smb = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=daemon.smb_port)
    smb.login(daemon.user, daemon.password)
    tree = smb.connectTree(daemon.share)
    read_only = {"desiredAccess": 0x0012_0089, "shareMode": 1, "creationDisposition": 1}
    held = smb.openFile(tree, "denied/f", **read_only)
    assert keeper.lock(f"{at}/f").status == 423
    assert keeper("PUT", f"{at}/f", b"two").status == 423
    smb.closeFile(tree, held)
    locked = keeper.lock(f"{at}/f")
    assert locked.status == 200
    token = locked.headers["lock-token"]
    reader = smb.openFile(tree, "denied/f", **read_only)
    assert smb.readFile(tree, reader) == b"one"
    assert keeper("PUT", f"{at}/f", b"two", If=f"({token})").status == 423
    smb.closeFile(tree, reader)
    shared = smb.openFile(tree, "denied/f", desiredAccess=0x0012_0089, shareMode=7, creationDisposition=1)
    assert keeper("PUT", f"{at}/f", b"two", If=f"({token})").status == 204
    smb.closeFile(tree, shared)
    assert keeper("UNLOCK", f"{at}/f", Lock_Token=token).status == 204
    smb.closeFile(tree, smb.openFile(tree, "denied/f", **read_only))
    smb.close()
    assert (seen / "f").read_bytes() == b"two"


def test_names(daemon, keeper):
    seen, at = top(daemon, "names"), f"/{daemon.share}/names"
    for name in [NAME_255, "with blank", "per%cent", "question?hash#", "quote\"'<&>", "日本語", "a+b;c=d", "..."]:
        keeper.put(f"{at}/{name}", name.encode())
        assert (seen / name).read_text() == name
        assert keeper("GET", f"{at}/{name}").body == name.encode()
    listed = keeper("PROPFIND", at, Depth="1").hrefs()
    assert sorted(h.rsplit("/", 1)[1] for h in listed if not h.endswith("/")) == sorted(p.name for p in seen.iterdir())
    assert keeper("PUT", f"{at}/{'x' * 256}", b"").status == 414
    for path in ["/../../etc/passwd", f"{at}/../../../etc/passwd", f"/{daemon.share}/%2e%2e/%2e%2e/etc/passwd"]:
        got = raw(keeper.port, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: {keeper.authorization}\r\n\r\n".encode())
        assert b" 404 " in got.split(b"\r\n")[0] and b"root:" not in got, got
    up = raw(keeper.port, f"GET {at}/x/../../names/%2e%2e%2e HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: {keeper.authorization}\r\n\r\n".encode())
    assert up.endswith(b"..."), up
    for bad in ["%00", "%2f", "%zz", "%"]:
        got = raw(keeper.port, f"GET {at}/{bad} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: {keeper.authorization}\r\n\r\n".encode())
        assert b" 400 " in got.split(b"\r\n")[0], got


def test_what_replaces_a_file_keeps_its_rules(daemon, keeper):
    seen, at = top(daemon, "rules"), f"/{daemon.share}/rules"
    file, link = seen / "f", seen / "hard"
    file.write_text("old")
    os.chmod(file, 0o4666)
    os.chown(file, 4321, 4322)
    os.setxattr(file, "user.colour", b"green")
    os.link(file, link)
    keeper.put(f"{at}/f", b"new")
    about = file.stat()
    assert (about.st_mode & 0o7777, about.st_uid, about.st_gid) == (0o666, 4321, 4322)
    assert os.getxattr(file, "user.colour") == b"green"
    assert file.read_text() == "new" and link.read_text() == "old", "other names keep the old content"
    os.chmod(file, 0o644)
    assert keeper("PUT", f"{at}/f", b"newer").status == 403
    assert file.read_text() == "new"
    os.symlink("f", seen / "link")
    assert keeper("GET", f"{at}/link").body == b"new"
    os.symlink("/etc/passwd", seen / "away")
    assert keeper("GET", f"{at}/away").status == 404
    assert "away" not in "".join(keeper("PROPFIND", at, Depth="1").hrefs())


def test_copies_and_moves(daemon, keeper):
    seen, at = top(daemon, "moves"), f"/{daemon.share}/moves"
    some_tree(seen / "source")
    expected = tree(seen / "source")
    for path in seen.rglob("*"):
        os.chown(path, keeper_uid(daemon, keeper), -1)
    os.chown(seen / "source", keeper_uid(daemon, keeper), -1)
    plain = lambda found: {name: (kind, what) for name, (kind, _, what) in found.items()}
    assert keeper("COPY", f"{at}/source", Destination=keeper.url(f"{at}/copy")).status == 201
    assert plain(tree(seen / "copy")) == plain(expected)
    assert keeper("COPY", f"{at}/source", Destination=f"{at}/flat", Depth="0").status == 201
    assert list((seen / "flat").iterdir()) == []
    (seen / "copy/extra").write_text("goes")
    assert keeper("COPY", f"{at}/source/", Destination=f"{at}/copy/").status == 204
    assert plain(tree(seen / "copy")) == plain(expected), "a copy replaces, it does not merge"
    assert keeper("MOVE", f"{at}/copy", Destination=f"{at}/moved").status == 201
    assert not (seen / "copy").exists() and plain(tree(seen / "moved")) == plain(expected)
    assert keeper("MOVE", f"{at}/moved", Destination=f"{at}/source").status == 204
    assert plain(tree(seen / "source")) == plain(expected)
    assert keeper("MOVE", f"{at}/source/file-1", Destination=f"{at}/source/file-2").status == 204
    assert keeper("COPY", f"{at}/source/file-2", Destination=f"{at}/source/deep").status == 204
    assert (seen / "source/deep").is_file()
    assert keeper("DELETE", f"{at}/source").status == 204
    assert sorted(p.name for p in seen.iterdir()) == ["flat"]


def keeper_uid(daemon, keeper):
    probe = daemon.mounted / "probe-of-uid"
    keeper.put(f"/{daemon.share}/probe-of-uid", b"")
    uid = probe.stat().st_uid
    probe.unlink()
    return uid


def test_what_may_not_be_removed_stays_and_is_named(daemon, keeper):
    seen, at = top(daemon, "partly"), f"/{daemon.share}/partly"
    (seen / "a/closed").mkdir(parents=True)
    (seen / "a/closed/theirs").write_text("x")
    (seen / "a/mine").write_text("x")
    uid = keeper_uid(daemon, keeper)
    os.chown(seen / "a", uid, -1)
    done = keeper("DELETE", f"{at}/a")
    assert done.status == 207 and f"{at}/a/closed/theirs" in done.hrefs(), done.body
    assert (seen / "a/closed/theirs").exists() and not (seen / "a/mine").exists()
    assert keeper("MOVE", f"{at}/a", Destination=f"{at}/b").status == 201


PATCH = '<D:propertyupdate xmlns:D="DAV:" xmlns:z="urn:z">{}</D:propertyupdate>'


def test_properties_that_clients_make_up_are_kept(daemon, keeper):
    seen, at = top(daemon, "props"), f"/{daemon.share}/props"
    keeper.put(f"{at}/f", b"x")
    body = PATCH.format('<D:set><D:prop><z:a xml:lang="de"><z:b>1 &lt; 2</z:b></z:a><c xmlns="">d</c></D:prop></D:set>')
    done = keeper("PROPPATCH", f"{at}/f", body)
    assert done.status == 207 and b"200 OK" in done.body
    assert sorted(os.listxattr(seen / "f")) == ["user.dav.{urn:z}a", "user.dav.{}c"]
    ask = '<propfind xmlns="DAV:"><prop><a xmlns="urn:z"/><c xmlns=""/><none xmlns="urn:z"/></prop></propfind>'
    found = keeper("PROPFIND", f"{at}/f", ask, Depth="0").xml()
    assert found.find(".//{urn:z}b").text == "1 < 2" and found.find(".//c").text == "d"
    assert [s.text for s in found.iter(D + "status")] == ["HTTP/1.1 200 OK", "HTTP/1.1 404 Not Found"]
    # All of a change or none of it.
    body = PATCH.format("<D:set><D:prop><z:a>new</z:a><D:getetag>mine</D:getetag><z:x>y</z:x></D:prop></D:set>")
    done = keeper("PROPPATCH", f"{at}/f", body)
    assert b"403 Forbidden" in done.body and done.body.count(b"424 Failed Dependency") == 1
    assert keeper("PROPFIND", f"{at}/f", ask, Depth="0").xml().find(".//{urn:z}b").text == "1 < 2"
    # A copy and a new content keep them; removing what is not there is no error.
    keeper.put(f"{at}/f", b"newer")
    assert keeper("COPY", f"{at}/f", Destination=f"{at}/g").status == 201
    assert keeper("PROPFIND", f"{at}/g", ask, Depth="0").xml().find(".//{urn:z}b").text == "1 < 2"
    body = PATCH.format("<D:remove><D:prop><z:a/><z:never/></D:prop></D:remove>")
    assert b"200 OK" in keeper("PROPPATCH", f"{at}/f", body).body
    assert os.listxattr(seen / "f") == ["user.dav.{}c"]
    # Other doors can write anything there: it is not passed on.
    os.setxattr(seen / "f", "user.dav.{urn:z}a", b"</D:prop><evil/>")
    assert keeper("PROPFIND", f"{at}/f", Depth="0").xml().find(".//evil") is None
    huge = PATCH.format(f"<D:set><D:prop><z:a>{'x' * 40_000}</z:a></D:prop></D:set>")
    assert b"507 " in keeper("PROPPATCH", f"{at}/f", huge).body
    assert keeper("PROPPATCH", f"{at}/f", huge.replace("x", "x" * 10)).status == 413
    quota = keeper("PROPFIND", at, '<propfind xmlns="DAV:"><prop><quota-available-bytes/><quota-used-bytes/></prop></propfind>', Depth="0").xml()
    assert int(quota.find(f".//{D}quota-available-bytes").text) > 0 and int(quota.find(f".//{D}quota-used-bytes").text) >= 0


def test_a_lock_keeps_out_who_has_no_token(daemon, keeper):
    top(daemon, "locks")
    # First: a change of a share ends its locks.
    add_user(daemon, "ann")
    ann = Dav(daemon, "ann", ANN)
    path = f"/{daemon.share}/locks/f"
    made = keeper.lock(path)
    token = made.headers["Lock-Token"]
    assert made.status == 201 and b"activelock" in made.body
    assert keeper("PUT", path, b"x").status == 423
    assert keeper("DELETE", path).status == 423
    assert keeper("MOVE", path, Destination=path + "2").status == 423
    assert keeper.lock(path).status == 423
    assert ann("PUT", path, b"x", If=f"({token})").status == 423, "a token is its user's alone"
    assert ann("UNLOCK", path, Lock_Token=token).status == 403
    for n in range(3):
        keeper.put(path, f"{n}".encode(), If=f"({token})")
    assert keeper("PUT", path, b"y", If="(<urn:uuid:other>)").status == 412
    refreshed = keeper("LOCK", path, If=f"({token})", Timeout="Second-100")
    assert refreshed.status == 200 and b"Second-100<" in refreshed.body
    assert token.strip("<>") in keeper("PROPFIND", path, Depth="0").body.decode()
    assert keeper("UNLOCK", path, Lock_Token=token).status == 204
    keeper.put(path, b"free")
    # A folder's lock covers what is made in it.
    folder = f"/{daemon.share}/locks/folder"
    assert keeper("MKCOL", folder).status == 201
    token = keeper.lock(folder, depth="infinity").headers["Lock-Token"]
    assert keeper("PUT", folder + "/f", b"x").status == 423
    keeper.put(folder + "/f", b"x", If=f"<{folder}> ({token})")
    assert keeper("DELETE", folder).status == 423
    assert keeper("DELETE", folder, If=f"({token})").status == 204
    assert keeper("MKCOL", folder).status == 201, "its lock is gone with it"
    short = keeper.lock(path, timeout=1).headers["Lock-Token"]
    assert short and keeper("PUT", path, b"x").status == 423
    wait_for(lambda: keeper("PUT", path, b"x").status == 204, 10)


def test_a_move_leaves_the_locks_of_the_destination(daemon, keeper):
    """RFC 4918 7.6: what comes to a locked name is locked. The lock may be another's, shared with the one that moves."""
    seen = top(daemon, "moved-over")
    add_user(daemon, "mia")
    mia, at = Dav(daemon, "mia", ANN), f"/{daemon.share}/moved-over"
    for name in ["new", "newer", "f", "free"]:
        keeper.put(f"{at}/{name}", name.encode())
    os.chmod(seen / "f", 0o666)
    seen.chmod(0o777)
    hers, his = (who.lock(f"{at}/f", scope="shared").headers["Lock-Token"] for who in (mia, keeper))
    assert keeper("MOVE", f"{at}/new", Destination=f"{at}/f", If=f"<{at}/f> ({his})").status == 204
    assert keeper("GET", f"{at}/f").body == b"new"
    found = keeper("PROPFIND", f"{at}/f", Depth="0").body.decode()
    assert hers.strip("<>") in found and his.strip("<>") in found
    with pytest.raises(OSError):
        open(seen / "f", "r+b")
    assert keeper("UNLOCK", f"{at}/f", Lock_Token=his).status == 204
    assert keeper("MOVE", f"{at}/newer", Destination=f"{at}/f").status == 423
    assert keeper("PUT", f"{at}/f", b"x").status == 423
    assert mia("UNLOCK", f"{at}/f", Lock_Token=hers).status == 204
    # A lock does not go with what is moved away.
    token = keeper.lock(f"{at}/newer").headers["Lock-Token"]
    assert keeper("MOVE", f"{at}/newer", Destination=f"{at}/f", If=f"({token})").status == 204
    keeper.put(f"{at}/f", b"free again")


def opened_alone(smb, tree_id, path):
    """The open of an SMB client that shares nothing, or `None` while somebody else has the file open."""
    try:
        return smb.openFile(tree_id, path, desiredAccess=0x0012_01bf, shareMode=0)
    except SessionError as error:
        assert "SHARING_VIOLATION" in str(error)
        return None


def test_locks_and_opens_of_other_doors(daemon, keeper):
    seen = top(daemon, "doors")
    path, file = f"/{daemon.share}/doors/f", seen / "f"
    file.write_text("0123456789")
    os.chmod(file, 0o666)
    token = keeper.lock(path).headers["Lock-Token"]
    # A mount may read and not write; the lock of a program waits.
    assert file.read_text() == "0123456789"
    with pytest.raises(OSError):
        open(file, "r+b")
    with pytest.raises(OSError):
        file.unlink()
    with open(file, "rb") as f, pytest.raises(OSError):
        fcntl.lockf(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
    smb = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=daemon.smb_port)
    smb.login(daemon.user, daemon.password)
    tree_id = smb.connectTree(daemon.share)
    with pytest.raises(Exception, match="SHARING_VIOLATION"):
        smb.openFile(tree_id, "doors\\f", desiredAccess=0x0012_0116)
    handle = smb.openFile(tree_id, "doors\\f", desiredAccess=0x0012_0089)
    smb.closeFile(tree_id, handle)
    # It goes with the name to the new content.
    keeper.put(path, b"by the holder", If=f"({token})")
    with pytest.raises(OSError):
        open(file, "r+b")
    assert keeper("UNLOCK", path, Lock_Token=token).status == 204
    with open(file, "r+b") as f:
        fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert keeper("PUT", path, b"x").status == 423, "the lock of a program"
        assert keeper.lock(path).status == 423
    # An SMB client that shares nothing. The kernel tells the mount of a close after the program went on.
    handle = wait_for(lambda: opened_alone(smb, tree_id, "doors\\f"))
    for method in ["GET", "PUT", "DELETE"]:
        assert Dav(daemon)(method, path, b"x" if method == "PUT" else None).status == 423, method
    assert keeper.lock(path).status == 423
    smb.closeFile(tree_id, handle)
    assert keeper("GET", path).body == b"by the holder"
    smb.close()


def test_a_tree_by_rclone_is_the_same_through_every_door(daemon, keeper, folder):
    seen, source = top(daemon, "tree"), some_tree(folder / "source")
    keeper.rclone("copy", source, f":webdav:/{daemon.share}/tree")
    assert tree(seen) == tree(source)
    checked = keeper.rclone("check", "--download", source, f":webdav:/{daemon.share}/tree")
    assert "0 differences" in checked.stderr, checked.stderr
    keeper.rclone("copy", f":webdav:/{daemon.share}/tree", folder / "back")
    assert tree(folder / "back") == tree(source)
    smb = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=daemon.smb_port)
    smb.login(daemon.user, daemon.password)
    with nfs_client(daemon) as nfs:
        at = nfs.lookup(nfs.root, b"tree").handle
        for path in sorted(source.glob("file-*")):
            data, handle, got = path.read_bytes(), nfs.lookup(at, path.name.encode()).handle, b""
            while chunk := nfs.read(handle, len(got), 65536).data:
                got += chunk
            assert got == data
            by_smb = []
            smb.getFile(daemon.share, f"tree\\{path.name}", by_smb.append)
            assert b"".join(by_smb) == data
    smb.close()
    keeper.rclone("purge", f":webdav:/{daemon.share}/tree/deep")
    assert not (seen / "deep").exists()


def test_davfs2_mounts_it(daemon, keeper, folder):
    seen, at = top(daemon, "davfs"), folder / "mnt"
    at.mkdir()
    config, secrets = folder / "davfs2.conf", folder / "secrets"
    # It gives up root's rights before it opens its cache.
    folder.chmod(0o755)
    config.write_text(f"cache_dir {folder}/cache\nsecrets {secrets}\ndelay_upload 0\nuse_locks 1\n")
    (folder / "cache").mkdir()
    (folder / "cache").chmod(0o777)
    secrets.write_text(f'{keeper.url(f"/{daemon.share}/davfs")} {keeper.user} "{keeper.password}"\n')
    secrets.chmod(0o600)
    keeper.run("mount.davfs", "-o", f"conf={config},uid=0,gid=0", keeper.url(f"/{daemon.share}/davfs"), at)
    try:
        (at / "folder").mkdir()
        (at / "folder/f").write_bytes(payload(500_000, 3))
        (at / "ü").write_text("name")
        wait_for(lambda: (seen / "folder/f").exists() and (seen / "folder/f").stat().st_size == 500_000, 30)
        assert (seen / "folder/f").read_bytes() == payload(500_000, 3)
        os.rename(at / "folder/f", at / "moved")
        # davfs2 1.6 lists no folder on kernels from 6.18 on, whatever server it mounts: names are asked for one by one.
        assert all((at / name).exists() for name in ["folder", "moved", "ü"]) and not (at / "none").exists()
    finally:
        keeper.run("umount", at, timeout_s=60)
    wait_for(lambda: sorted(p.name for p in seen.iterdir()) == ["folder", "moved", "ü"], 30)


def test_cadaver_and_curl(daemon, keeper, folder):
    seen = top(daemon, "others")
    (folder / ".netrc").write_text(f"machine 127.0.0.1 login {keeper.user} password {keeper.password}\n")
    (folder / ".netrc").chmod(0o600)
    (folder / "local").write_text("by cadaver")
    done = keeper.run("cadaver", keeper.url(f"/{daemon.share}/others/"), cwd=folder, env={**os.environ, "HOME": str(folder)},
                      input="mkcol made\nput local made/there\nlock made/there\nunlock made/there\ncopy made/there two\nls\nquit\n")
    assert "failed" not in done.stdout.lower(), done.stdout
    assert (seen / "made/there").read_text() == "by cadaver" and (seen / "two").read_text() == "by cadaver"
    url, auth = keeper.url(f"/{daemon.share}/others/curl"), f"{keeper.user}:{keeper.password}"
    keeper.run("curl", "-sSf", "-u", auth, "-T", "-", "-H", "Expect: 100-continue", url, input="a stream of unknown length")
    assert keeper.run("curl", "-sSf", "-u", auth, url).stdout == "a stream of unknown length"
    assert keeper.run("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", url).stdout == "401"


LITMUS = ["basic", "copymove", "props", "locks", "http"]


@pytest.mark.parametrize("suite", LITMUS)
def test_litmus(daemon, keeper, suite):
    top(daemon, f"litmus-{suite}")
    done = keeper.run("litmus", keeper.url(f"/{daemon.share}/litmus-{suite}/"), keeper.user, keeper.password,
                      env={**os.environ, "TESTS": suite}, check=False, cwd=tempfile.mkdtemp())
    summary = re.search(r"summary for `.*': of (\d+) tests run: (\d+) passed, (\d+) failed", done.stdout)
    assert summary and int(summary[3]) == 0 and int(summary[2]) == int(summary[1]), done.stdout + done.stderr


def test_users_see_their_shares_and_readers_change_nothing(daemon, keeper):
    add_user(daemon, "rita")
    daemon.run("volume", "create", "hers", "--no-share", check=True)
    daemon.run("share", "add", "hers", "--volume", "hers", "--users", "rita", check=True)
    daemon.run("share", "add", "look", "--volume", "files", "--users", "keeper", "--read-only-users", "rita", check=True)
    rita = Dav(daemon, "rita", ANN)
    names = lambda dav: sorted(h.strip("/") for h in dav("PROPFIND", "/", Depth="1").hrefs())
    assert names(rita) == ["", daemon.share, "hers", "look"] and "hers" not in names(keeper)
    assert keeper("GET", "/hers/").status == 404
    rita.put("/hers/f", b"hers")
    assert keeper("COPY", "/look/", Destination="/hers/x").status in (403, 404, 409)
    keeper.put("/look/seen", b"seen")
    assert rita("GET", "/look/seen").body == b"seen"
    for method, headers in [("PUT", {}), ("DELETE", {}), ("MOVE", {"Destination": "/look/b"}), ("COPY", {"Destination": "/look/b"}),
                            ("PROPPATCH", {})]:
        body = PATCH.format("<D:set><D:prop><z:a>1</z:a></D:prop></D:set>") if method == "PROPPATCH" else b"x" if method == "PUT" else None
        answer = rita(method, "/look/seen", body, **headers)
        assert answer.status == 403 or b"403 Forbidden" in answer.body, (method, answer.status)
    assert rita("MKCOL", "/look/c").status == 403 and rita.lock("/look/seen").status == 403
    assert keeper("GET", "/look/seen").body == b"seen"
    # From one share to another is a copy and a removal.
    assert rita("COPY", "/look/seen", Destination="/hers/copied").status == 201
    assert rita("GET", "/hers/copied").body == b"seen"
    # What is offered to nobody any more is gone at once; so is a user.
    daemon.run("share", "remove", "look", check=True)
    assert keeper("GET", "/look/seen").status == 404
    daemon.run("user", "remove", "rita", check=True)
    assert rita("GET", "/hers/f").status == 401


def test_snapshots_are_seen_and_stay(daemon, keeper):
    seen, at = top(daemon, "past"), f"/{daemon.share}"
    (seen / "f").write_text("before")
    daemon.run("snap", "create", "files@then", check=True)
    (seen / "f").write_text("after")
    then = f"{at}/.snapshots/then/past/f"
    assert keeper("GET", then).body == b"before"
    for method, body in [("PUT", b"x"), ("DELETE", None)]:
        assert keeper(method, then, body).status == 403
    assert keeper("MKCOL", f"{at}/.snapshots/then/new").status == 403
    assert keeper("COPY", then, Destination=f"{at}/past/back").status == 201
    assert (seen / "back").read_text() == "before"


def test_many_entries(daemon, keeper):
    seen = top(daemon, "many")
    # The files are root's: with the sticky bit nobody else removes them.
    seen.chmod(0o777)
    for n in range(10_000):
        (seen / f"{n:05}").touch()
    begun = time.monotonic()
    listed = keeper("PROPFIND", f"/{daemon.share}/many", Depth="1")
    took = time.monotonic() - begun
    assert listed.status == 207 and len(listed.hrefs()) == 10_001
    print(f"PROPFIND of 10,000 entries: {took:.2f} s, {len(listed.body)} bytes")
    gone = keeper("DELETE", f"/{daemon.share}/many")
    assert gone.status == 204, gone.body[:1000]


def test_a_file_of_more_than_four_gib(daemon, keeper):
    seen, far = top(daemon, "large"), (4 << 30) + 12_345
    with open(seen / "sparse", "wb") as f:
        f.seek(far)
        f.write(b"end")
    path = f"/{daemon.share}/large/sparse"
    assert keeper("HEAD", path).headers["Content-Length"] == str(far + 3)
    part = keeper("GET", path, Range=f"bytes={far - 5}-")
    assert (part.status, part.body) == (206, b"\0" * 5 + b"end")
    assert keeper("GET", path, Range="bytes=4294967295-4294967297").body == b"\0" * 3


def test_guesses_are_slow_and_locked_out(folder):
    larder = make(folder, extra=["--webdav", "127.0.0.1:0"]).start()
    try:
        keeper = Dav(larder)
        assert keeper("OPTIONS", "/").status == 200
        asked = Dav(larder)("GET", "/", Authorization="Bearer x")
        assert asked.status == 401 and asked.headers["WWW-Authenticate"].startswith("Basic")
        statuses = [Dav(larder, password="wrong")("GET", "/").status for _ in range(11)]
        assert statuses == [401] * 10 + [429]
        assert keeper("GET", "/").status == 200, "who is in stays in"
        assert Dav(larder, user="nobody", password=larder.password)("GET", "/").status == 429
        assert "wrong name or password" in larder.log() and "wrong'" not in larder.log() and larder.password not in larder.log()
    finally:
        larder.end()


def test_garbage_and_slow_clients_harm_nobody(daemon, keeper):
    port = keeper.port
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
    for junk in [b"\0" * 5000, os.urandom(50_000), b"GET /\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"SSH-2.0-x\r\n\r\n",
                 b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n", b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n",
                 b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
                 b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                 b"PROPFIND / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"]:
        got = raw(port, junk, timeout=3)
        assert not got or got.startswith(b"HTTP/1.1 4"), got[:200]
    seen = top(daemon, "slow")
    # One that stops in the middle of a body leaves nothing.
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(f"PUT /{daemon.share}/slow/half HTTP/1.1\r\nHost: x\r\nAuthorization: {keeper.authorization}\r\nContent-Length: 1000000\r\n\r\n".encode())
        s.sendall(b"x" * 500_000)
    # One that takes nothing of a long answer costs little.
    (seen / "long").write_bytes(payload(64 << 20, 1))
    before, readers = daemon.rss_bytes(), []
    for _ in range(20):
        s = socket.create_connection(("127.0.0.1", port))
        s.sendall(f"GET /{daemon.share}/slow/long HTTP/1.1\r\nHost: x\r\nAuthorization: {keeper.authorization}\r\n\r\n".encode())
        readers.append(s)
    time.sleep(2)
    assert daemon.rss_bytes() - before < 200 << 20
    for s in readers + held:
        s.close()
    keeper.put(f"/{daemon.share}/slow/fine", b"fine")
    wait_for(lambda: sorted(p.name for p in seen.iterdir()) == ["fine", "long"], 10)


def test_a_browser_is_shown_folders(daemon, keeper):
    seen, at = top(daemon, "page"), f"/{daemon.share}/page"
    (seen / '<img src=x onerror=alert(1)>"').write_text("x")
    (seen / "b").write_bytes(b"x" * 3000)
    (seen / "sub").mkdir()
    page = keeper("GET", at + "/")
    text = page.body.decode()
    assert page.status == 200 and page.headers["Content-Type"].startswith("text/html")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'nonce-" in policy and "unsafe" not in policy
    assert "<img" not in text and "2.9 KiB" in text and "./sub/" in text
    assert keeper("GET", at).headers["Location"] == at + "/"
    assert daemon.share in keeper("GET", "/").body.decode()
    assert "sandbox" in keeper("GET", at + "/b").headers["Content-Security-Policy"]


def test_a_kill_under_a_put_leaves_the_old_file_whole(folder):
    larder = make(folder, extra=["--webdav", "127.0.0.1:0"]).start()
    try:
        keeper, old = Dav(larder), payload(3_000_000, 1)
        path = f"/{larder.share}/f"
        keeper.put(path, old)
        new = payload(40_000_000, 2)
        stop = threading.Event()

        def send():
            with socket.create_connection(("127.0.0.1", keeper.port)) as s:
                s.sendall(f"PUT {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {keeper.authorization}\r\nContent-Length: {len(new)}\r\n\r\n".encode())
                try:
                    s.sendall(new[:30_000_000])
                    stop.wait(20)
                except OSError:
                    pass

        sender = threading.Thread(target=send)
        sender.start()
        time.sleep(2)
        used = larder.status()
        assert used and keeper("GET", path).body == old, "nobody sees half a file"
        larder.kill()
        stop.set()
        sender.join()
        larder.start()
        keeper = Dav(larder)
        assert keeper("GET", path).body == old
        assert [h for h in keeper("PROPFIND", f"/{larder.share}", Depth="1").hrefs() if not h.endswith("/")] == [path]
        # What was answered is there after a kill.
        for n in range(20):
            keeper.put(f"/{larder.share}/{n}", payload(100_000, n))
        larder.kill()
        larder.start()
        keeper = Dav(larder)
        for n in range(20):
            assert keeper("GET", f"/{larder.share}/{n}").body == payload(100_000, n)
        larder.stop()
        assert larder.check().returncode == 0
    finally:
        larder.end()


def test_tls_with_a_certificate_of_its_own_and_with_the_owners(folder):
    larder = make(folder, extra=["--webdavs", "127.0.0.1:0"]).start()
    try:
        port = larder.info["webdavs"]["port"]
        url, auth = f"https://localhost:{port}/{larder.share}/f", f"{larder.user}:{larder.password}"
        own = larder.data / "webdav_certificate.pem"
        assert own.stat().st_mode & 0o777 == 0o644 and (larder.data / "webdav_key.pem").stat().st_mode & 0o777 == 0o600

        def curl(*words, trusts=own):
            return subprocess.run(["curl", "-sSf", "--cacert", trusts, "-u", auth, *words, url], capture_output=True, text=True)

        done = curl("-T", str(own))
        assert done.returncode == 0, done.stderr
        assert curl().stdout == own.read_text()
        before = own.read_text()
        assert larder.stop() == 0
        larder.start()
        assert own.read_text() == before, "it is made once"
        # Plain HTTP and garbage at this port end.
        assert not raw(larder.info["webdavs"]["port"], b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", timeout=3).startswith(b"HTTP")
        # Files that a renewal changed are read again.
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", larder.data / "webdav_key.pem",
                        "-out", own], check=True, capture_output=True)
        url = f"https://localhost:{larder.info['webdavs']['port']}/{larder.share}/f"
        wait_for(lambda: subprocess.run(["curl", "-sSf", "--cacert", own, "-u", auth, "-o", "/dev/null", url], capture_output=True).returncode == 0, 40)
    finally:
        larder.end()


def test_passwords_do_not_cross_a_network_in_clear_unasked(folder):
    larder = make(folder, extra=["--webdav", "0.0.0.0:0"])
    with pytest.raises(StartFailed, match="in clear"):
        larder.start()
    larder.end()
    larder.extra.append("--insecure-http")
    try:
        assert Dav(larder.start())("OPTIONS", "/").status == 200
    finally:
        larder.end()
