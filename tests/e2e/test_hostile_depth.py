"""Folders nested 4,000 deep, and cycles through links and shares, at every door. What one request meets ends none of the others.

  D1  4,000 levels: each door walks, copies, moves and removes them, or refuses with an answer. The daemon lives, in bounded memory.
  D2  A copy or move into itself is refused by inode: by a symbolic link, a second share over the same folder, overlapping shares.
  D3  A cycle of symbolic links ends in listings, searches, archives.
  D4  A copy whose client has left is taken back.
"""

import contextlib
import http.client
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest

from conftest import make
from nfs3 import Nfs3, NfsError
from test_access import add_user
from test_sftp import Client
from test_webdav import ANN, Answer, Dav
from waiting import wait_for

LEVELS = int(os.environ.get("LARDER_LEVELS", "4000"))
# A path of a client has 4,096 bytes: deeper folders are reached by their top alone.
SHALLOW = 900
MEMORY_BYTES_MAX = 256 << 20


@pytest.fixture(scope="module")
def daemon():
    place = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    daemon = make(place, extra=["--sftp", "127.0.0.1:0", "--webdav", "127.0.0.1:0", "--mount", str(place / "mnt")])
    (place / "mnt").mkdir()
    daemon.start()
    add_user(daemon, "ann", "--uid", "1001", password=ANN)
    daemon.run("volume", "create", "second", check=True)
    share = json.loads(daemon.run("share", "list", "--json", check=True).stdout)
    if "second" not in [s["name"] for s in share]:
        daemon.run("share", "add", "second", "--volume", "second", check=True)
    yield daemon
    pid, log, code = daemon.pid, daemon.log(), daemon.stop()
    subprocess.run(["umount", "-l", str(place / "mnt")], stderr=subprocess.DEVNULL, check=False)
    shutil.rmtree(place, ignore_errors=True)
    assert code == 0 and "panicked" not in log and "overflow" not in log, (pid, log[-4000:])


@pytest.fixture
def nfs(daemon):
    with Nfs3.mount("127.0.0.1", daemon.nfs_port, daemon.export) as nfs:
        yield nfs


@pytest.fixture
def keeper(daemon):
    return Web(daemon)


@pytest.fixture(autouse=True)
def lives(daemon):
    """The same process serves before and after."""
    pid, before = daemon.pid, daemon.rss_bytes()
    yield
    assert daemon.alive() and daemon.pid == pid, daemon.log()[-4000:]
    assert daemon.rss_bytes() < before + MEMORY_BYTES_MAX
    assert Dav(daemon)("PROPFIND", f"/{daemon.share}/", Depth="0").status == 207


class Web(Dav):
    """Paths with queries, as they are."""

    def __call__(self, method, path, body=None, **headers):
        headers = {name.replace("_", "-"): str(value) for name, value in headers.items()}
        headers.setdefault("Authorization", self.authorization)
        self.connection.request(method, path, body=body, headers=headers)
        answer = self.connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())


def chain(nfs, name, levels=LEVELS, leaf=b"down here"):
    """A chain of folders, with a file in the deepest. Returns the handle of the top."""
    top = at = nfs.mkdir(nfs.root, name).handle
    for _ in range(levels - 1):
        at = nfs.mkdir(at, "d").handle
    nfs.write(nfs.create(at, "leaf").handle, 0, leaf)
    return top


@pytest.fixture(scope="module")
def template(daemon):
    """A chain of LEVELS that is copied, which takes less time than making another one."""
    with Nfs3.mount("127.0.0.1", daemon.nfs_port, daemon.export) as nfs:
        chain(nfs, "template")
    return f"/{daemon.share}/template"


def copied(nfs, daemon, template, name):
    """As `chain`. That copies are whole is the first test's business."""
    assert Dav(daemon)("COPY", template, Destination=f"/{daemon.share}/{name}").status == 201
    return nfs.lookup(nfs.root, name).handle


def depth(nfs, top):
    """Levels of a chain, and whether its file is there."""
    at, levels = top, 1
    while True:
        try:
            at = nfs.lookup(at, "d").handle
        except NfsError:
            break
        levels += 1
    return levels, nfs.read_all(nfs.lookup(at, "leaf").handle)


def is_there(nfs, name):
    try:
        return bool(nfs.lookup(nfs.root, name))
    except NfsError:
        return False


def test_webdav_copies_moves_and_removes_what_is_deep(daemon, nfs, keeper, template):
    at = f"/{daemon.share}"
    assert keeper("COPY", template, Destination=f"{at}/one").status == 201
    assert depth(nfs, nfs.lookup(nfs.root, "one").handle) == (LEVELS, b"down here")
    assert keeper("COPY", f"{at}/one", Destination=f"{at}/two").status == 201
    # Onto something that is there, which goes.
    assert keeper("COPY", f"{at}/one", Destination=f"{at}/two").status == 204
    assert keeper("MOVE", f"{at}/one", Destination="/second/one").status == 201
    assert not is_there(nfs, "one")
    assert keeper("MOVE", "/second/one", Destination=f"{at}/three").status == 201
    assert depth(nfs, nfs.lookup(nfs.root, "three").handle) == (LEVELS, b"down here")
    assert keeper("PROPFIND", f"{at}/three/", Depth="1").status == 207
    assert keeper("PROPFIND", f"{at}/three/", Depth="infinity").status == 403
    token = keeper.lock(f"{at}/three", depth="infinity").headers["Lock-Token"]
    assert keeper("DELETE", f"{at}/three").status == 423
    assert keeper("DELETE", f"{at}/three", If=f"({token})").status == 204
    assert keeper("DELETE", f"{at}/two").status == 204
    assert not is_there(nfs, "two") and not is_there(nfs, "three")


def test_search_and_archives_of_what_is_deep(daemon, nfs, keeper, template):
    at = f"/{daemon.share}"
    copied(nfs, daemon, template, "found")
    page = keeper("GET", f"{at}/found/?q=leaf", Accept="text/html")
    assert page.status == 200 and b"match" in page.body
    # Longer names than an archive can have: the download breaks off, and is not taken for whole.
    with pytest.raises(http.client.IncompleteRead):
        Web(daemon)("GET", f"{at}/found?zip")
    chain(nfs, "packed", SHALLOW)
    names = zipfile.ZipFile(io.BytesIO(Web(daemon)("GET", f"{at}/packed?zip").body)).namelist()
    assert len(names) == SHALLOW + 1 and names[-1].endswith("/d/leaf")
    for name in ("found", "packed"):
        assert Dav(daemon)("DELETE", f"{at}/{name}").status == 204


def test_sftp_smb_and_nfs_meet_what_is_deep(daemon, nfs, folder, template):
    chain(nfs, "sftp", SHALLOW)
    at = f"/{daemon.share}"
    client = Client(daemon, folder)
    client.sftp(f"rename {at}/sftp {at}/moved", f"ls {at}/moved" + "/d" * (SHALLOW - 1))
    refused = client.sftp(f"rename {at}/moved {at}/moved/d/d/within", check=False)
    assert refused.returncode != 0 and is_there(nfs, "moved")
    done = subprocess.run(
        ["smbclient", f"//127.0.0.1/{daemon.share}", "-p", str(daemon.smb_port), "-U", f"{daemon.user}%{daemon.password}", "-t", "30",
         "-c", "recurse on; ls moved/*; rename moved again; deltree again"],
        capture_output=True, text=True, timeout=120, check=False)
    # The client has a limit of its own; the server answers each of its questions.
    assert "NT_STATUS_IO_TIMEOUT" not in done.stdout + done.stderr
    for name in ("moved", "again"):
        if is_there(nfs, name):
            Dav(daemon)("DELETE", f"{at}/{name}")
    # NFS: down by handles, and a folder is not moved below itself.
    top = copied(nfs, daemon, template, "nfs")
    deep = nfs.walk("/".join(["d"] * (LEVELS - 1)), top)
    with pytest.raises(NfsError):
        nfs.rename(nfs.root, "nfs", deep, "within")
    nfs.rename(nfs.root, "nfs", nfs.root, "renamed")
    assert depth(nfs, top) == (LEVELS, b"down here")
    assert Dav(daemon)("DELETE", f"{at}/renamed").status == 204


def test_the_mount_meets_what_is_deep(daemon, nfs, template):
    mount = daemon.data.parent / "mnt"
    copied(nfs, daemon, template, "mounted")
    found = subprocess.run(["find", mount / "mounted", "-name", "leaf"], capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout.count("/d/") > 0 and found.stdout.endswith("/leaf\n")
    subprocess.run(["rm", "-rf", mount / "mounted"], timeout=120, check=True)
    assert not is_there(nfs, "mounted")


def test_snapshots_imports_and_check_meet_what_is_deep(daemon, nfs, template):
    daemon.run("snap", "create", "files@before", check=True)
    copied(nfs, daemon, template, "deep")
    daemon.run("snap", "create", "files@after", check=True)
    done = daemon.run("snap", "diff", "files@before", "files@after", timeout_s=120)
    assert done.returncode == 0 and "/deep" in done.stdout, done.stderr
    export = subprocess.run([daemon.program, "--data", str(daemon.data), "snap", "export", "files@after", "--tar"],
                            capture_output=True, timeout=120, check=False)
    # Deeper than 4,096 it ends in the middle, and says so.
    assert (export.returncode == 0) == (LEVELS < 4095), export.stderr
    if export.returncode == 0:
        with tarfile.open(fileobj=io.BytesIO(export.stdout)) as tar:
            assert sum(name.endswith("/leaf") for name in tar.getnames()) >= 1
    # A folder of the host, as deep; in memory, where it is made and removed in no time.
    source = Path(tempfile.mkdtemp(prefix="larder-e2e-", dir="/dev/shm"))
    source.chmod(0o755)
    (source / "top").write_text("here")
    at = os.open(source, os.O_RDONLY)
    for _ in range(LEVELS - 1):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    try:
        done = daemon.run("import", source, "files:imported", timeout_s=300)
        assert done.returncode == 0, done.stderr + done.stdout
        top = nfs.lookup(nfs.root, "imported").handle
        assert nfs.lookup(top, "top")
    finally:
        subprocess.run(["rm", "-rf", source], check=True)
    (source / "nested").mkdir(parents=True)
    done = daemon.run("import", source, "files:imported", "--delete", timeout_s=300)
    shutil.rmtree(source)
    assert done.returncode == 0, done.stderr + done.stdout
    with pytest.raises(NfsError):
        nfs.lookup(top, "d")
    assert Dav(daemon)("DELETE", f"/{daemon.share}/deep").status == 204
    checked = daemon.run("check", timeout_s=120)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.fixture
def cycle(daemon, nfs):
    """A folder `a` with a folder `x`; a link to it beside it; a second share over it, and one over what holds it."""
    held = nfs.mkdir(nfs.root, "held", mode=0o777).handle
    a = nfs.mkdir(held, "a", mode=0o777).handle
    nfs.write(nfs.create(nfs.mkdir(a, "x", mode=0o777).handle, "file", mode=0o666).handle, 0, b"content")
    nfs.symlink(held, "link", "a")
    nfs.symlink(a, "up", "..")
    for name, where in (("shared-a", "held/a"), ("shared-held", "held")):
        daemon.run("share", "add", name, "--volume", "files", "--folder", where, check=True)
    yield f"/{daemon.share}/held"
    for name in ("shared-a", "shared-held"):
        daemon.run("share", "remove", name, check=True)
    Dav(daemon)("DELETE", f"/{daemon.share}/held")


def test_nothing_is_copied_or_moved_into_itself(nfs, keeper, cycle):
    for source, destination in [
        (f"{cycle}/a", f"{cycle}/a/b"),
        (f"{cycle}/a", f"{cycle}/link/b"),
        (f"{cycle}/a", f"{cycle}/link/x/b"),
        (f"{cycle}/a", "/shared-a/b"),
        (f"{cycle}/a", "/shared-a/x/b"),
        (f"{cycle}/a", "/shared-held/a/b"),
        (f"{cycle}/a", "/shared-held/link/x/b"),
        (f"{cycle}/a", f"{cycle}/a/up/a/b"),
        ("/shared-held/a", f"{cycle}/a/b"),
        ("/shared-held/a", "/shared-a/x/b"),
        # What would be replaced holds the source.
        (f"{cycle}/a/x", "/shared-held/a"),
        ("/shared-a/x", f"{cycle}/a"),
        # One folder by two names.
        (f"{cycle}/a/x", "/shared-a/x"),
        ("/shared-held/a/x/file", "/shared-a/x/file"),
    ]:
        for method in ("COPY", "MOVE"):
            answer = keeper(method, source, Destination=destination)
            assert answer.status == 403, (method, source, destination, answer.status, answer.body)
    # A link that is copied by its name is copied as the folder that it leads to.
    assert keeper("COPY", f"{cycle}/link", Destination=f"{cycle}/a/x/b").status == 403
    assert [entry.name for entry in nfs.list(nfs.walk("held/a/x"))] == [b"file"]
    # What is no cycle goes on.
    assert keeper("COPY", f"{cycle}/a", Destination="/shared-held/copy").status == 201
    assert keeper("GET", f"{cycle}/copy/x/file").body == b"content"
    assert keeper("MOVE", f"{cycle}/copy", Destination="/shared-a/inside").status == 201
    assert keeper("GET", f"{cycle}/a/inside/x/file").body == b"content"


def test_cycles_of_links_end(daemon, keeper, cycle, folder):
    answer = keeper("GET", f"{cycle}?zip")
    names = zipfile.ZipFile(io.BytesIO(answer.body)).namelist()
    assert sum(name.endswith("/x/file") for name in names) == 1, names
    assert keeper("GET", f"{cycle}/?q=file", Accept="text/html").body.count(b"/x/file") < 4
    assert keeper("PROPFIND", f"{cycle}/a/", Depth="1").status == 207
    far = f"{cycle}/a" + "/up/a" * 60
    assert keeper("GET", f"{far}/x/file").status == 404, "forty links are followed, and no more"
    for method in ("COPY", "MOVE", "DELETE"):
        assert keeper(method, far, Destination=f"{cycle}/far").status in (403, 404, 409)
    assert Client(daemon, folder).sftp(f"ls {far}", check=False).returncode != 0


def test_a_copy_ends_with_its_client(daemon, nfs, keeper):
    many = nfs.mkdir(nfs.root, "many").handle
    data = b"x" * 100_000
    for n in range(400):
        nfs.write(nfs.create(many, f"file{n}").handle, 0, data)
    connection = http.client.HTTPConnection("127.0.0.1", keeper.port, timeout=60)
    headers = {"Authorization": keeper.authorization, "Destination": f"/{daemon.share}/left"}
    connection.request("COPY", f"/{daemon.share}/many", headers=headers)
    wait_for(lambda: is_there(nfs, "left"))
    connection.close()
    wait_for(lambda: not is_there(nfs, "left"), told=lambda: "the copy is still there")
    assert keeper("DELETE", f"/{daemon.share}/many").status == 204


def test_a_move_between_volumes_keeps_what_a_file_has(daemon, nfs, keeper):
    at = f"/{daemon.share}"
    keeper.put(f"{at}/photo", b"pixels", X_OC_Mtime="1000000000.5")
    assert keeper("MOVE", f"{at}/photo", Destination="/second/photo").status == 201
    moved = keeper("HEAD", "/second/photo")
    assert moved.headers["Last-Modified"] == "Sun, 09 Sep 2001 01:46:40 GMT"
    copied = keeper("COPY", "/second/photo", Destination="/second/copy", X_OC_Mtime="1100000000")
    assert (copied.status, copied.headers["X-OC-Mtime"]) == (201, "accepted")
    assert keeper("HEAD", "/second/copy").headers["Last-Modified"] == "Tue, 09 Nov 2004 11:33:20 GMT"
    assert keeper("GET", "/second/copy").body == b"pixels"


def test_a_folder_that_may_not_be_searched_shows_nothing(daemon, nfs, keeper):
    """Mode 0744: others may list its names, and look none of them up."""
    shut = nfs.mkdir(nfs.root, "shut", mode=0o755).handle
    inner = nfs.mkdir(shut, "inner", mode=0o755).handle
    nfs.write(nfs.create(inner, "needle.txt", mode=0o644).handle, 0, b"secret")
    nfs.setattr(shut, mode=0o744)
    ann, at = Web(daemon, "ann", ANN), f"/{daemon.share}"
    assert ann("GET", f"{at}/shut/inner/needle.txt").status == 403
    found = ann("GET", f"{at}/?q=needle", Accept="text/html")
    assert found.status == 200 and b"needle.txt" not in found.body.replace(b"value=\"needle", b"")
    for path, headers in [("/shut/", {"Accept": "text/html"}), ("/shut?zip", {}), ("/shut/?sort=size", {"Accept": "text/html"})]:
        assert ann("GET", at + path, **headers).status == 403, path
    assert ann("PROPFIND", f"{at}/shut/", Depth="1").status == 403
    assert ann("COPY", f"{at}/shut", Destination=f"{at}/stolen").status == 403
    assert keeper("DELETE", f"{at}/shut").status == 204


BIG_BYTES = 12 << 20
SAID_BYTES = 1 << 30


def refused(daemon, method, path, **headers):
    """The answer to the first BIG_BYTES of ann's body: it comes although she has not sent the rest."""
    ann = Web(daemon, "ann", ANN)
    headers = {"Authorization": ann.authorization, **{name.replace("_", "-"): str(value) for name, value in headers.items()}}
    ann.connection.putrequest(method, path)
    for name, value in {**headers, "Content-Length": str(SAID_BYTES)}.items():
        ann.connection.putheader(name, value)
    ann.connection.endheaders()
    ann.connection.sock.settimeout(20)
    with contextlib.suppress(OSError):
        ann.connection.send(os.urandom(BIG_BYTES))
    return ann.connection.getresponse().status


def test_a_quota_holds_for_a_file_that_replaces_another(daemon, keeper):
    ann, at = Web(daemon, "ann", ANN), f"/{daemon.share}"
    ann.put(f"{at}/old.txt", b"short\n")
    daemon.run("volume", "set", "files", "--user-quota", "ann=4MiB", check=True)
    try:
        assert refused(daemon, "PUT", f"{at}/old.txt") == 507
        begun = Web(daemon, "ann", ANN)("POST", f"{at}/old.txt?upload", Upload_Length=SAID_BYTES)
        assert begun.status == 201, (begun.status, begun.body)
        assert refused(daemon, "PATCH", begun.headers["Location"], Upload_Offset=0) == 507
        keeper.put(f"{at}/big", os.urandom(BIG_BYTES))
        assert Web(daemon, "ann", ANN)("COPY", f"{at}/big", Destination=f"{at}/old.txt").status == 507
        assert Web(daemon, "ann", ANN)("GET", f"{at}/old.txt").body == b"short\n"
    finally:
        daemon.run("volume", "set", "files", "--user-quota", "ann=none", check=True)
