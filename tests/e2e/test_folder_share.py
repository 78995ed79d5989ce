"""A folder of the host behind every door: what one writes the others read, and the host as well; nothing leads out of it."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from impacket.smb3 import SessionError

import nfs3
from larderd import Larder, run
from nfs3 import FILE_SYNC, GUARDED, UNSTABLE, Nfs3, NfsError
from test_access import add_user
from test_sftp import Client
from test_sharing import DELETE, READ, Keeper
from test_smb import smb
from test_webdav import Dav
from trees import payload

PASSWORD = "Pantry-Shelf-43"
LONG = "ä" * 127 + "x"
CONFIG = """
[listen]
nfs = "127.0.0.1:0"
smb = "127.0.0.1:0"
sftp = "127.0.0.1:0"
webdav = "127.0.0.1:0"

[[share]]
name = "photos"
folder = "{photos}"
squash = "none"
"""


class Host(Larder):
    """A larder without a pool."""

    def __init__(self, place):
        super().__init__([], place / "data", password=PASSWORD)
        self.photos = place / "photos"
        self.photos.mkdir()
        self.photos.chmod(0o1777)
        (self.data / "larder.toml").write_text(CONFIG.format(photos=self.photos))

    def command(self):
        return [self.program, "serve", "--config", self.data / "larder.toml", "--json"]

    user = "ann"
    share = "photos"

    def nfs(self, uid=0, gid=0, **options):
        return Nfs3.mount("127.0.0.1", self.nfs_port, "/photos", uid=uid, gid=gid, **options)


@pytest.fixture(scope="module")
def place():
    path = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def host(place):
    daemon = Host(place).start()
    for name in ("ann", "bob"):
        add_user(daemon, name)
    daemon.users = {u["name"]: u["uid"] for u in json.loads(daemon.run("user", "list", "--json", check=True).stdout)}
    yield daemon
    log = daemon.log()
    assert daemon.stop() == 0, log[-4000:]
    assert "panicked" not in log, log[-4000:]


def top(host, name):
    """A folder of the test's own, open to everybody."""
    path = host.photos / name
    path.mkdir()
    path.chmod(0o1777)
    return path


def contents(at):
    return {str(path.relative_to(at)): path.read_bytes() for path in sorted(at.rglob("*")) if path.is_file()}


def test_each_door_reads_what_each_other_wrote(host, place):
    """Every door writes a small tree, and every door reads all of it."""
    at = top(host, "doors")
    files = {"empty": b"", "small": b"x" * 17, "big": payload(3_000_000, 1), LONG: b"a long name", "with blank & ü": b"odd"}
    source = place / "source"
    (source / "deep").mkdir(parents=True)
    for name, data in files.items():
        (source / "deep" / name).write_bytes(data)
    sftp, dav = Client(host, place, user="ann"), Dav(host, "ann")
    with host.nfs(uid=host.users["ann"], gid=host.users["ann"]) as nfs:
        made = nfs.mkdir(nfs.mkdir(nfs.walk("doors"), "nfs", mode=0o755).handle, "deep", mode=0o755).handle
        for name, data in files.items():
            file = nfs.create(made, name, GUARDED, mode=0o644).handle
            nfs.write_all(file, data)
            nfs.commit(file)
    sftp.sftp("mkdir /photos/doors/sftp", f"put -r {source}/deep /photos/doors/sftp/")
    assert dav("MKCOL", "/photos/doors/webdav").status == 201 and dav("MKCOL", "/photos/doors/webdav/deep").status == 201
    for name, data in files.items():
        dav.put(f"/photos/doors/webdav/deep/{name}", data)
    smb(host, f'cd doors; mkdir smb; cd smb; lcd {source}; recurse; prompt; mput deep', share="photos")
    doors = ("nfs", "sftp", "webdav", "smb")
    wanted = {f"{door}/deep/{name}": data for door in doors for name, data in files.items()}
    assert contents(at) == wanted, "as the host sees it"
    assert {path.stat().st_uid for path in at.rglob("*")} == {host.users["ann"]}, "all is the user's"
    with host.nfs() as nfs:
        for name, data in wanted.items():
            assert nfs.read_all(nfs.walk(f"doors/{name}")) == data, name
    got = place / "got"
    got.mkdir()
    sftp.sftp(f"get -r /photos/doors {got}/sftp")
    assert contents(got / "sftp") == wanted
    for name, data in wanted.items():
        answer = dav("GET", f"/photos/doors/{name}")
        assert (answer.status, answer.body) == (200, data), name
    (got / "smb").mkdir()
    smb(host, f"cd doors; lcd {got}/smb; recurse; prompt; mget *", share="photos")
    assert contents(got / "smb") == wanted
    # The host writes, and every door sees it at once.
    (at / "nfs/deep/small").write_bytes(b"from the host")
    with host.nfs() as nfs:
        assert nfs.read_all(nfs.walk("doors/nfs/deep/small")) == b"from the host"
    assert dav("GET", "/photos/doors/nfs/deep/small").body == b"from the host"
    # And removals of each door are removals.
    sftp.sftp("rm /photos/doors/sftp/deep/small", "rename /photos/doors/sftp/deep/big /photos/doors/moved")
    assert dav("DELETE", "/photos/doors/webdav").status == 204
    smb(host, "cd doors/SMB/Deep; del SMALL; cd ..; rename deep deeper", share="photos")
    assert not (at / "webdav").exists() and not (at / "sftp/deep/small").exists()
    assert (at / "moved").read_bytes() == files["big"] and (at / "smb/deeper/big").exists()
    assert not (at / "smb/deeper/small").exists()


def test_a_browser_lists_it(host):
    at = top(host, "seen")
    (at / "a photo.jpg").write_bytes(b"jpeg")
    page = Dav(host, "ann")("GET", "/photos/seen/", Accept="text/html")
    assert page.status == 200 and b"a photo.jpg" in page.body, page.status


def test_a_sparse_file_beyond_4_gib(host):
    at, far = top(host, "sparse"), (5 << 30) + 3
    with host.nfs() as nfs:
        file = nfs.create(nfs.walk("sparse"), "s").handle
        nfs.write(file, far, b"end", FILE_SYNC)
    about = (at / "s").stat()
    assert about.st_size == far + 3 and about.st_blocks * 512 < 1 << 20
    answer = Dav(host, "ann")("GET", "/photos/sparse/s", Range=f"bytes={far - 2}-{far + 2}")
    assert (answer.status, answer.body) == (206, b"\0\0end")


def test_nothing_leads_out(host, place):
    """Links and `..` of every door end within the folder."""
    at = top(host, "escape")
    outside = place / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (at / "out").symlink_to(outside)
    (at / "file").symlink_to(outside / "secret")
    with host.nfs() as nfs:
        here = nfs.walk("escape")
        out = nfs.lookup(here, "out")
        assert out.attr.type == nfs3.LNK and nfs.readlink(out.handle) == str(outside).encode()
        for handle in (out.handle, nfs.lookup(here, "file").handle):
            with pytest.raises(NfsError):
                nfs.read(handle, 0, 10)
            with pytest.raises(NfsError):
                nfs.lookup(handle, "secret")
        assert nfs.lookup(nfs.root, "..").attr.fileid == nfs.getattr(nfs.root).fileid
        forged = bytearray(nfs.root)
        forged[-1] ^= 1
        with pytest.raises(NfsError):
            nfs.getattr(bytes(forged))
        (at / "trap").symlink_to(outside / "made")
        with pytest.raises(NfsError):
            nfs.create(here, "trap")
    dav, sftp = Dav(host, "ann"), Client(host, place, user="ann")
    for path in ("/photos/escape/out/secret", "/photos/escape/file", "/photos/../../etc/passwd", "/photos/escape/../../outside/secret"):
        answer = dav("GET", path)
        assert answer.status >= 300 and b"root:" not in answer.body, (path, answer.status)
        got = place / "leaked"
        sftp.sftp(f'get "{path}" {got}', check=False)
        assert not got.exists(), path
    dav("PUT", "/photos/escape/trap", b"x")
    assert not (outside / "made").exists()
    assert (outside / "secret").read_text() == "secret"


def test_rights_are_those_of_the_host(host, place):
    at, ann, bob = top(host, "rights"), host.users["ann"], host.users["bob"]
    (at / "private").write_text("ann's")
    (at / "shared").write_text("both")
    os.chown(at / "private", ann, ann)
    os.chown(at / "shared", ann, bob)
    (at / "private").chmod(0o600)
    (at / "shared").chmod(0o640)
    (at / "listed").write_text("by a list")
    os.chown(at / "listed", ann, ann)
    (at / "listed").chmod(0o600)
    subprocess.run(["setfacl", "-m", f"u:{bob}:r", at / "listed"], check=True)
    for user, wanted in (("ann", {"private": True, "shared": True, "listed": True}),
                         ("bob", {"private": False, "shared": True, "listed": True})):
        uid, dav = host.users[user], Dav(host, user)
        sftp = Client(host, place, user=user)
        for name, may in wanted.items():
            with host.nfs(uid=uid, gid=uid) as nfs:
                try:
                    assert nfs.read_all(nfs.walk(f"rights/{name}")) and may, (user, name)
                except NfsError as error:
                    assert error.status == nfs3.ACCES and not may, (user, name)
            assert (dav("GET", f"/photos/rights/{name}").status == 200) == may, (user, name)
            got = place / f"{user}-{name}"
            sftp.sftp(f"get /photos/rights/{name} {got}", check=False)
            smb(host, f"cd rights; get {name} {got}.smb", share="photos", user=user, password=PASSWORD, check=False)
            read = [file.exists() and file.stat().st_size > 0 for file in (got, Path(f"{got}.smb"))]
            assert read == [may, may], (user, name)
    with host.nfs(uid=bob, gid=bob) as nfs, pytest.raises(NfsError):
        nfs.remove(nfs.walk("rights"), "shared")
    told = host.run("share", "explain", "bob", "/photos/rights/private", check=True).stdout
    assert "0600" in told and "bob" in told, told


def test_a_share_mode_of_one_door_holds_against_the_others(host):
    top(host, "modes")
    keeper = Keeper(host, "photos", r"modes\kept", access=READ | DELETE)
    try:
        keeper.low.close(keeper.tree, keeper.file)
        held = keeper.low.create(keeper.tree, r"modes\kept", READ, 0, 0x40, 1, 0x80)
        dav = Dav(host, "ann")
        assert dav("DELETE", "/photos/modes/kept").status in (409, 423, 500, 503), "SMB has it open and shares nothing"
        assert (host.photos / "modes/kept").exists()
        with pytest.raises(SessionError):
            keeper.low.create(keeper.tree, r"modes\kept", READ, 7, 0x40, 1, 0x80)
        keeper.low.close(keeper.tree, held)
        assert dav("DELETE", "/photos/modes/kept").status == 204
    finally:
        keeper.connection.close()


def test_a_kill_loses_nothing_that_was_committed_and_handles_stay(host):
    at = top(host, "crash")
    data = payload(1_000_000, 7)
    nfs = host.nfs()
    here = nfs.walk("crash")
    made = nfs.create(here, "f", GUARDED, mode=0o640).handle
    before = nfs.write(made, 0, data, UNSTABLE)
    nfs.commit(made)
    nfs.rename(here, "f", here, "g")
    root = nfs.root
    host.kill()
    host.start()
    with Nfs3("127.0.0.1", host.nfs_port) as nfs:
        assert nfs.read_all(made) == data, "the handle of before, and what was committed"
        assert nfs.lookup(here, "g").handle == made and nfs.getattr(root).type == nfs3.DIR
        assert nfs.write(made, 0, b"y").verifier != before.verifier
        os.rename(at / "g", host.photos / "elsewhere")
        assert nfs.getattr(made).size == len(data), "the host moved it"
        (host.photos / "elsewhere").unlink()
        with pytest.raises(NfsError) as gone:
            nfs.getattr(made)
        assert gone.value.status == nfs3.STALE


def test_commands_know_it(host, place):
    other = place / "other"
    other.mkdir()
    said = host.run("share", "add", "more", "--folder", other, "--recycle=7", check=True).stdout
    assert str(other) in said, said
    shares = {share["name"]: share for share in json.loads(host.run("share", "list", "--json", check=True).stdout)}
    assert (shares["more"]["volume"], shares["more"]["folder"], shares["more"]["fault"]) == ("", str(other), None)
    other.chmod(0o1777)
    dav = Dav(host, "ann")
    dav.put("/more/f", b"kept")
    assert dav("DELETE", "/more/f").status == 204
    assert (other / ".recycle/f").read_bytes() == b"kept"
    host.run("share", "set", "more", "--read-only", check=True)
    assert dav("PUT", "/more/g", b"x").status == 403
    refused = host.run("share", "add", "none", "--folder", place / "missing")
    assert refused.returncode != 0 and "there is no folder" in refused.stderr, refused.stderr
    refused = host.run("share", "add", "own", "--folder", host.data)
    assert refused.returncode != 0 and "larder's own data" in refused.stderr, refused.stderr
    host.run("share", "remove", "more", check=True)
    assert (other / ".recycle/f").exists()
    (place / "conf").mkdir()
    file = place / "conf" / "odd.toml"
    file.write_text(f'[[share]]\nname = "x"\nfolder = "{other}"\nsnapshots_shown = true\n')
    checked = run("config", "check", file)
    assert checked.returncode != 0 and "no snapshots" in checked.stderr, checked.stderr
    file.write_text('[[share]]\nname = "x"\nfolder = "photos"\n')
    checked = run("config", "check", file)
    assert checked.returncode != 0 and "absolute path" in checked.stderr, checked.stderr
