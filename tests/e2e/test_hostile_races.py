"""Local users exchange names in folders of the host while larder works on them: nothing of others changes hands.

On ext4, XFS and btrfs, with larder's calls slowed down around the moments in which a name may be exchanged. Each attack runs for a moment, or for LARDER_RACES_S seconds each. The victims are a folder of root's and a
file of bob's that lie where mallory may rename them; nobody but their owners may read, write, change or remove them.
"""

import json
import os
import shutil
import stat
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import nfs3
from larderd import Larder
from nfs3 import FIFO, FILE_SYNC, GUARDED, SOCK, UNCHECKED, Nfs3, NfsError
from test_access import add_user
from test_sftp import Client
from test_smb import smb
from test_webdav import Dav
from waiting import wait_for

HERE = Path(__file__).parent
PASSWORD = "Pantry-Shelf-43"
SECONDS = float(os.environ.get("LARDER_RACES_S", "0.2"))
KINDS = ("ext4", "xfs", "btrfs")
SECRET = b"a secret of somebody else"
SHARE = """
[[share]]
name = "{kind}"
folder = "{folder}"
squash = "none"
"""
LISTEN = """
[listen]
nfs = "127.0.0.1:0"
smb = "127.0.0.1:0"
sftp = "127.0.0.1:0"
webdav = "127.0.0.1:0"
"""


class Host(Larder):
    """A larder without a pool: one share on each kind of filesystem."""

    user, share = "mallory", "ext4"

    def __init__(self, place):
        super().__init__([], place / "data", password=PASSWORD)
        self.place = place
        shares = [SHARE.format(kind=kind, folder=place / kind) for kind in KINDS]
        (self.data / "larder.toml").write_text(LISTEN + "".join(shares))

    def command(self):
        return [self.program, "serve", "--config", self.data / "larder.toml", "--json"]


def command(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def host():
    place = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    place.chmod(0o755)
    command("cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", place / "exchanger", HERE / "exchanger.c")
    daemon, mounted = Host(place), []
    try:
        for kind in KINDS:
            (place / kind).mkdir()
            command("truncate", "-s", "400M", place / f"{kind}.image")
            command(f"mkfs.{kind}", "-q", place / f"{kind}.image")
            command("mount", "-o", "loop", place / f"{kind}.image", place / kind)
            mounted.append(place / kind)
            (place / kind).chmod(0o755)
        daemon.start()
        for name in ("mallory", "bob"):
            add_user(daemon, name)
        users = daemon.run("user", "list", "--json", check=True).stdout
        daemon.users = {user["name"]: user["uid"] for user in json.loads(users)}
        yield daemon
        log = daemon.log()
        assert daemon.stop() == 0, log[-4000:]
        assert "panicked" not in log, log[-4000:]
    finally:
        daemon.end()
        for mount in mounted:
            command("umount", mount)
        shutil.rmtree(place, ignore_errors=True)


class Scene:
    """A folder of mallory's with things of others in it."""

    def __init__(self, host, kind, name, mode=0o777, owner=None):
        self.host, self.kind, self.name = host, kind, name
        self.mallory, self.bob = host.users["mallory"], host.users["bob"]
        self.path = host.place / kind / name
        self.path.mkdir()
        os.chown(self.path, *((self.mallory, self.mallory) if owner is None else (owner, owner)))
        self.path.chmod(mode)
        self.vault = host.place / kind / f"{name}-vault"
        self.vault.mkdir(mode=0o700)
        self.victims = {}

    def victim(self, path, owner, mode):
        os.chown(path, owner, owner, follow_symlinks=False)
        if not path.is_symlink():
            path.chmod(mode)
        if not path.is_dir():
            # mallory may remove any name in a folder of his own. The file itself has another one.
            os.link(path, self.vault / path.name, follow_symlinks=False)
        self.victims[path.name] = (path.lstat().st_ino, self.state(path))
        return path

    @staticmethod
    def state(path):
        about = path.lstat()
        content = None
        if stat.S_ISREG(about.st_mode):
            content = path.read_bytes()
        elif stat.S_ISDIR(about.st_mode):
            content = sorted((one.name, one.read_bytes()) for one in path.iterdir() if one.is_file())
        xattrs = {name: os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path, follow_symlinks=False)
                  if name != "security.selinux"}
        return about.st_uid, about.st_gid, about.st_mode, about.st_mtime_ns if content is None else content, xattrs

    def root_folder(self, name="evil", mode=0o700):
        path = self.path / name
        path.mkdir()
        (path / "inside").write_bytes(SECRET)
        return self.victim(path, 0, mode)

    def bobs_file(self, name="evil", mode=0o600):
        path = self.path / name
        path.write_bytes(SECRET)
        return self.victim(path, self.bob, mode)

    def bobs_fifo(self, name="evil"):
        os.mkfifo(self.path / name)
        return self.victim(self.path / name, self.bob, 0o600)

    def check(self):
        """Each victim is somewhere in the folder, as it was."""
        for name, (ino, state) in self.victims.items():
            places = [*self.path.rglob("*"), *self.vault.iterdir()]
            found = [path for path in places if path.lstat().st_ino == ino]
            assert found, f"{self.kind}: {name} was removed"
            assert self.state(found[0]) == state, f"{self.kind}: {name} was changed"

    def nfs(self, uid=None):
        uid = self.mallory if uid is None else uid
        return Nfs3.mount("127.0.0.1", self.host.nfs_port, f"/{self.kind}", uid=uid, gid=uid)

    @contextmanager
    def role(self, user, *words, at=None):
        """A local user with a role of exchanger.c; its last line ends up in `.said`."""
        uid = self.host.users[user]
        program = [str(word) for word in (self.host.place / "exchanger", words[0], at or self.path, *words[1:])]
        process = subprocess.Popen(program, user=uid, group=uid, extra_groups=[], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.terminate()
            process.said = tuple(int(word) for word in process.communicate()[0].split())


def repeat(*steps, times=1):
    """All steps in turn for a while, whatever they answer."""
    end, rounds = time.monotonic() + SECONDS * times, 0
    while time.monotonic() < end:
        for step in steps:
            with suppress(NfsError):
                step()
        rounds += 1
    return rounds


@pytest.fixture(scope="module")
def slowed(host):
    """A moment passes before a name is removed or renamed, and after it was made: time for whoever exchanges names."""
    before, after = "unlinkat,renameat,renameat2,linkat", "mkdirat,mknodat,symlinkat"
    injected = (f"inject={before}:delay_enter=1500", f"inject={after}:delay_exit=1500")
    words = ["strace", "-f", "-qq", "-o", host.place / "strace", "-p", host.pid, "-e", f"trace={before},{after}"]
    tracer = subprocess.Popen([str(word) for word in (*words, "-e", injected[0], "-e", injected[1])])
    status = Path(f"/proc/{host.pid}/status")
    wait_for(lambda: f"TracerPid:\t{tracer.pid}" in status.read_text())
    yield host
    tracer.terminate()
    tracer.wait()


@pytest.fixture(params=KINDS)
def scene(request, host):
    made = []

    def make(name, **how):
        made.append(Scene(host, request.param, name, **how))
        return made[-1]

    yield make
    for one in made:
        one.check()


MAKING = {
    "folder": lambda nfs, at: nfs.mkdir(at, "x", mode=0o755),
    "folder with times": lambda nfs, at: nfs.mkdir(at, "x", mode=0o2777, mtime_ns=10**18),
    "fifo": lambda nfs, at: nfs.mknod(at, "x", FIFO, mode=0o666),
    "socket": lambda nfs, at: nfs.mknod(at, "x", SOCK, mode=0o6777, mtime_ns=10**18),
    "link": lambda nfs, at: nfs.symlink(at, "x", "somewhere", mtime_ns=10**18),
    "file": lambda nfs, at: nfs.create(at, "x", GUARDED, mode=0o666),
    "file over": lambda nfs, at: nfs.create(at, "x", UNCHECKED, mode=0o666, size=0),
}


@pytest.mark.parametrize("what", MAKING)
def test_nothing_made_gives_away_what_takes_its_place(scene, what, slowed):
    """The name of a new node is exchanged for a folder of root's, then for a file of bob's."""
    for evil in ("root_folder", "bobs_file"):
        at = scene(f"make-{what}-{evil}")
        getattr(at, evil)()
        with at.nfs() as nfs, at.role("mallory", "exchange", "x", "evil"):
            here = nfs.walk(at.name)
            repeat(lambda: MAKING[what](nfs, here), lambda: nfs.remove(here, "x"), lambda: nfs.rmdir(here, "x"))
        at.check()


def test_root_of_a_client_gives_nothing_away(scene, slowed):
    """A client whose root is trusted makes folders for mallory in a folder of mallory's."""
    at = scene("by-root")
    at.root_folder()
    with at.nfs(uid=0) as nfs, at.role("mallory", "exchange", "x", "evil"):
        here = nfs.walk(at.name)

        def make():
            nfs.mkdir(here, "x", mode=0o2777, uid=at.mallory, gid=at.mallory, mtime_ns=10**18)

        def remove():
            for path in (at.path / "x", at.path / "evil"):
                with suppress(OSError):
                    path.rmdir()

        repeat(make, remove)
    at.check()


def test_only_their_owners_lose_names_in_a_sticky_folder(scene, slowed):
    """mallory's file comes and goes under a name that bob's file takes in between."""
    for what in ("remove", "rename", "replace"):
        at = scene(f"sticky-{what}", mode=0o1777, owner=0)
        tries, end = 0, time.monotonic() + 60
        # Two users meet by chance alone: that may take several rounds.
        while tries < 5 and time.monotonic() < end:
            with at.nfs() as nfs, at.role("mallory", "flicker", "x", "y"), at.role("bob", "claim", "x") as bob:
                here = nfs.walk(at.name)
                with suppress(NfsError):
                    nfs.mkdir(here, "mine", mode=0o755)
                mine = nfs.walk(f"{at.name}/mine")
                steps = {
                    "remove": [lambda: nfs.remove(here, "x")],
                    "rename": [lambda: nfs.rename(here, "x", mine, "got")],
                    "replace": [lambda: nfs.create(here, "z", mode=0o666), lambda: nfs.rename(here, "z", here, "x")],
                }
                repeat(*steps[what], times=3)
            claimed, lost = bob.said
            tries += claimed
            assert lost == 0, f"{what}: bob lost {lost} of {claimed} names"
        assert tries > 0, f"{what}: bob never had the name"


def test_nothing_is_read_through_an_exchanged_name(scene, host):
    """x is mallory's file, then bob's; sub is mallory's folder, then root's, then a link to a folder of root's."""
    at = scene("reading")
    at.bobs_file()
    # One of the two is exchanged; the other shows that mallory reads what is her own.
    for name in ("x", "still"):
        (at.path / name).write_bytes(b"mine")
        os.chown(at.path / name, at.mallory, at.mallory)
    outside = host.place / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "inside").write_bytes(SECRET)
    for name, make in (("sub", lambda path: path.mkdir()), ("out", lambda path: path.symlink_to(outside))):
        make(at.path / name)
        os.chown(at.path / name, at.mallory, at.mallory, follow_symlinks=False)
    at.root_folder("dir")
    before = sorted(outside.iterdir())
    dav, got = Dav(host, "mallory"), set()
    with at.nfs() as nfs, at.role("mallory", "exchange", "x", "evil"), at.role("mallory", "exchange", "sub", "out"):
        here = nfs.walk(at.name)

        def read():
            found = nfs.lookup(here, "x").handle
            with suppress(NfsError):
                got.add(bytes(nfs.read(found, 0, 100).data))
            nfs.write(found, 0, b"mine", FILE_SYNC)

        def visit():
            for name in ("x", "still", "sub/inside"):
                got.add(dav("GET", f"/{at.kind}/reading/{name}").body)
            dav("PUT", f"/{at.kind}/reading/sub/new", b"new")
            dav("MKCOL", f"/{at.kind}/reading/sub/folder")

        repeat(read, visit)
    with at.nfs() as nfs, at.role("mallory", "exchange", "sub", "dir"):
        repeat(visit)
    assert not [data for data in got if SECRET in data]
    assert sorted(outside.iterdir()) == before and b"mine" in got


def test_links_to_files_of_others_are_refused_at_every_door(scene, host):
    """As the kernel does with fs.protected_hardlinks, whatever the machine has set."""
    at = scene("links")
    at.bobs_file("private")
    at.bobs_file("readable", 0o644)
    at.bobs_file("program", 0o4777)
    at.bobs_file("group", 0o2777)
    at.bobs_fifo("fifo")
    (at.path / "shared").write_bytes(b"both")
    os.chown(at.path / "shared", at.bob, at.bob)
    (at.path / "shared").chmod(0o666)
    client = Client(host, host.place, user="mallory", password=PASSWORD)
    refused = list(at.victims)
    with at.nfs() as nfs:
        here = nfs.walk(at.name)
        for name in refused:
            with pytest.raises(NfsError) as error:
                nfs.link(nfs.walk(f"links/{name}"), here, f"{name}-nfs")
            assert error.value.status == nfs3.PERM, name
        ends = [f"-ln /{at.kind}/links/{name} /{at.kind}/links/{name}-sftp" for name in refused]
        client.sftp(*ends)
        hard = "; ".join(f"hardlink {name} {name}-smb" for name in refused)
        smb(host, f"cd links; {hard}", share=at.kind, user="mallory", password=PASSWORD, check=False)
        assert {at.path.joinpath(name).lstat().st_nlink for name in refused} == {2}
        nfs.link(nfs.walk("links/shared"), here, "mine")
        client.sftp(f"ln /{at.kind}/links/shared /{at.kind}/links/mine-sftp")
        assert (at.path / "shared").stat().st_nlink == 3
    with at.nfs(uid=at.bob) as nfs:
        nfs.link(nfs.walk("links/private"), nfs.walk("links"), "bobs own")


def test_what_is_made_is_as_the_kernel_makes_it(scene):
    """Setgid folders, default lists and modes: beside what the same user makes on the host itself."""
    at = scene("kept", mode=0o2777)
    group = 4321
    os.chown(at.path, at.mallory, group)
    at.path.chmod(0o2777)
    for listed in (False, True):
        if listed:
            subprocess.run(["setfacl", "-d", "-m", f"u:{at.bob}:rwx,g::r-x,o::---", at.path], check=True)
        made, script = [], "import os; os.umask(0); "
        with at.nfs() as nfs:
            here = nfs.walk(at.name)
            # With a list, larder lets a mode with bits for others bound nothing: clients have taken an umask off.
            for mode in (0o777, 0o600) if listed else (0o755, 0o777, 0o1770, 0o600):
                ours, theirs = f"ours-{listed}-{mode:o}", f"theirs-{listed}-{mode:o}"
                nfs.mkdir(here, ours, mode=mode)
                nfs.create(here, f"{ours}.f", GUARDED, mode=mode & 0o777)
                nfs.mknod(here, f"{ours}.p", FIFO, mode=mode & 0o777)
                made.append((ours, theirs))
                script += (f"os.mkdir('{theirs}', {mode}); os.close(os.open('{theirs}.f', os.O_CREAT, {mode & 0o777})); "
                           f"os.mkfifo('{theirs}.p', {mode & 0o777}); ")
        subprocess.run(["python3", "-c", script], cwd=at.path, user=at.mallory, group=at.mallory, extra_groups=[], check=True)
        for ours, theirs in made:
            for end in ("", ".f", ".p"):
                one, two = at.path / (ours + end), at.path / (theirs + end)
                states = [(path.lstat().st_uid, path.lstat().st_gid, path.lstat().st_mode, lists(path)) for path in (one, two)]
                assert states[0] == states[1], (ours + end, states)


def lists(path):
    return {name: os.getxattr(path, name) for name in os.listxattr(path) if name.startswith("system.posix_acl")}


def test_a_read_only_filesystem_says_so(scene, host):
    at = scene("read-only")
    mount = host.place / at.kind
    # larder closes files that nobody uses after some seconds.
    wait_for(lambda: subprocess.run(["mount", "-o", "remount,ro", mount], capture_output=True).returncode == 0, 20)
    try:
        with at.nfs() as nfs:
            here = nfs.walk(at.name)
            for make in MAKING.values():
                with pytest.raises(NfsError) as error:
                    make(nfs, here)
                assert error.value.status == nfs3.ROFS
    finally:
        command("mount", "-o", "remount,rw", mount)
