"""Three users through every door, twelve operations: what happens is what `share explain` said before."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from conftest import make
from nfs3 import Nfs3, NfsError
from test_access import add_user, as_, share
from test_people import ANN, basic, get, larder
from test_sftp import Client

USERS = ("ann", "bob", "eve")
FILE_OPERATIONS = ("see", "read", "write", "truncate", "set-times", "set-mode", "rename", "remove")
FOLDER_OPERATIONS = ("list", "enter", "add-file", "add-folder")
TIME = 1_700_000_000


@pytest.fixture(scope="module")
def house():
    place = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    place.chmod(0o755)  # processes of others go through it
    mount = place / "mnt"
    mount.mkdir()
    extra = ["--sftp", "127.0.0.1:0", "--webdav", "127.0.0.1:0", "--mount", str(mount)]
    daemon = make(place, extra=extra).start()
    daemon.mounted, daemon.place = mount, place
    for name in USERS:
        add_user(daemon, name)
    larder(daemon, "group", "add", "family", "--member", "ann", "--member", "bob")
    os.chmod(mount, 0o755)
    (mount / "m").mkdir()
    share(daemon, "add", "m", "--folder", "m", "--users", "@family", "--read-only-users", "eve", "--network", "127.0.0.0/8")
    users = {user["name"]: user for user in json.loads(larder(daemon, "user", "list", "--json"))}
    daemon.uids = {name: users[name]["uid"] for name in USERS}
    daemon.family = json.loads(larder(daemon, "group", "list", "--json"))[0]["gid"]
    yield daemon
    log = daemon.log()
    code = daemon.stop()
    shutil.rmtree(place, ignore_errors=True)
    assert code == 0 and "panicked" not in log, log[-3000:]


def explained(daemon, user, path):
    answer = json.loads(larder(daemon, "share", "explain", user, path, "--json"))
    return {door["door"]: {o["name"]: o["allowed"] for o in door["operations"]} for door in answer["doors"]}


def fresh(daemon, mode, folder_mode, owner):
    """The folder d with the file f, as every attempt finds them."""
    top = daemon.mounted / "m" / "d"
    shutil.rmtree(top, ignore_errors=True)
    top.mkdir()
    (top / "f").write_bytes(b"content")
    for path, bits in ((top / "f", mode), (top, folder_mode)):
        os.chown(path, daemon.uids[owner], daemon.family)
        os.chmod(path, bits)


class Smb:
    def __init__(self, daemon, user):
        self.daemon, self.user = daemon, user

    def __call__(self, operation):
        local = self.daemon.place / "local"
        local.write_bytes(b"other")
        commands = {
            "see": "allinfo d/f", "read": "get d/f got", "write": "put local d/f", "truncate": "put empty d/f",
            "set-times": 'utimes d/f -1 -1 2023:11:14-22:13:20 -1', "rename": "rename d/f d/g", "remove": "del d/f",
            "list": "ls d/*", "enter": "allinfo d/f", "add-file": "put local d/new", "add-folder": "mkdir d/newdir",
        }
        if operation not in commands:
            return None
        (self.daemon.place / "empty").write_bytes(b"")
        out = as_(self.daemon, self.user, commands[operation], share="m", cwd=self.daemon.place, check=False)
        return "NT_STATUS_" not in out


class Sftp:
    def __init__(self, daemon, user):
        self.daemon, self.client = daemon, Client(daemon, daemon.place, user=user, password=ANN)

    def __call__(self, operation):
        place = self.daemon.place
        (place / "local").write_bytes(b"other")
        os.utime(place / "local", (TIME, TIME))
        commands = {
            "see": "ls -l /m/d/f", "read": f"get /m/d/f {place}/got", "write": f"put {place}/local /m/d/f",
            "set-mode": "chmod 640 /m/d/f", "rename": "rename /m/d/f /m/d/g", "remove": "rm /m/d/f", "list": "ls /m/d",
            "enter": "ls -l /m/d/f", "add-file": f"put {place}/local /m/d/new", "add-folder": "mkdir /m/d/newdir",
        }
        if operation not in commands:
            return None
        return self.client.sftp(commands[operation], check=False).returncode == 0


class Dav:
    def __init__(self, daemon, user):
        self.daemon, self.user = daemon, user

    def request(self, method, path, body=None, **headers):
        import http.client

        connection = http.client.HTTPConnection("127.0.0.1", self.daemon.info["webdav"]["port"], timeout=30)
        connection.request(method, path, body, {"Authorization": basic(self.user, ANN), **headers})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, body

    def __call__(self, operation):
        times = ('<D:propertyupdate xmlns:D="DAV:" xmlns:Z="urn:schemas-microsoft-com:"><D:set><D:prop><Z:Win32LastModifiedTime>'
                 "Tue, 14 Nov 2023 22:13:20 GMT</Z:Win32LastModifiedTime></D:prop></D:set></D:propertyupdate>")
        port = self.daemon.info["webdav"]["port"]
        requests = {
            "see": ("PROPFIND", "/m/d/f", None, {"Depth": "0"}), "read": ("GET", "/m/d/f", None, {}),
            "write": ("PUT", "/m/d/f", "other", {}), "set-times": ("PROPPATCH", "/m/d/f", times, {}),
            "rename": ("MOVE", "/m/d/f", None, {"Destination": f"http://127.0.0.1:{port}/m/d/g"}),
            "remove": ("DELETE", "/m/d/f", None, {}), "list": ("PROPFIND", "/m/d/", None, {"Depth": "1"}),
            "enter": ("PROPFIND", "/m/d/f", None, {"Depth": "0"}), "add-file": ("PUT", "/m/d/new", "x", {}),
            "add-folder": ("MKCOL", "/m/d/newdir", None, {}),
        }
        if operation not in requests:
            return None
        method, path, body, headers = requests[operation]
        status, answer = self.request(method, path, body, **headers)
        return status < 300 and not (status == 207 and b"HTTP/1.1 4" in answer)


class Nfs:
    """As the machine of an NFS client, which names the user's uid and groups."""

    def __init__(self, daemon, user):
        self.daemon, self.user = daemon, user
        groups = (daemon.family,) if user in ("ann", "bob") else ()
        self.who = dict(uid=daemon.uids[user], gid=daemon.uids[user], groups=groups)

    def __call__(self, operation):
        with Nfs3.mount("127.0.0.1", self.daemon.nfs_port, "/m", **self.who) as nfs:
            try:
                d = nfs.lookup(nfs.root, "d").handle
                if operation == "list":
                    return bool(nfs.readdir(d).entries)
                if operation == "add-file":
                    return bool(nfs.create(d, "new"))
                if operation == "add-folder":
                    return bool(nfs.mkdir(d, "newdir"))
                f = nfs.lookup(d, "f").handle
                {
                    "see": lambda: nfs.getattr(f), "enter": lambda: None, "read": lambda: nfs.read(f, 0, 100),
                    "write": lambda: nfs.write(f, 0, b"other"), "truncate": lambda: nfs.setattr(f, size=0),
                    "set-times": lambda: nfs.setattr(f, mtime_ns=TIME * 1_000_000_000), "set-mode": lambda: nfs.setattr(f, mode=0o640),
                    "rename": lambda: nfs.rename(d, "f", d, "g"), "remove": lambda: nfs.remove(d, "f"),
                }[operation]()
                return True
            except NfsError as error:
                assert error.status in (1, 13, 30), error
                return False


class Mount:
    """As a process of the user on this machine."""

    def __init__(self, daemon, user):
        self.daemon, self.uid = daemon, daemon.uids[user]
        self.gids = [daemon.family] if user in ("ann", "bob") else []

    def __call__(self, operation):
        d = self.daemon.mounted / "m" / "d"
        attempts = {
            "see": lambda: os.stat(d / "f"), "enter": lambda: os.stat(d / "f"), "read": lambda: (d / "f").read_bytes(),
            "write": lambda: os.close(os.open(d / "f", os.O_WRONLY)), "truncate": lambda: os.truncate(d / "f", 0),
            "set-times": lambda: os.utime(d / "f", (TIME, TIME)), "set-mode": lambda: os.chmod(d / "f", 0o640),
            "rename": lambda: os.rename(d / "f", d / "g"), "remove": lambda: os.unlink(d / "f"),
            "list": lambda: os.listdir(d), "add-file": lambda: (d / "new").touch(), "add-folder": lambda: (d / "newdir").mkdir(),
        }
        child = os.fork()
        if child == 0:
            try:
                os.setgroups(self.gids)
                os.setresgid(self.uid, self.uid, self.uid)
                os.setresuid(self.uid, self.uid, self.uid)
                attempts[operation]()
                os._exit(0)
            except PermissionError:
                os._exit(1)
            except BaseException:
                os._exit(2)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, 1), f"{operation}: {code}"
        return code == 0


DOORS = {"NFS": Nfs, "SMB": Smb, "SFTP": Sftp, "WebDAV": Dav, "mount": Mount}


# The owner, a member of the group and a reader of the share: by the mode, by a folder on the way, and by a sticky folder.
@pytest.mark.parametrize("mode, folder_mode", [(0o640, 0o770), (0o664, 0o1775)])
def test_what_is_explained_is_what_happens(house, mode, folder_mode):
    wrong = []
    for user in USERS:
        fresh(house, mode, folder_mode, "ann")
        said = explained(house, user, "/m/d/f"), explained(house, user, "/m/d")
        for name, door in DOORS.items():
            attempt = door(house, user)
            for operation in FILE_OPERATIONS + FOLDER_OPERATIONS:
                expected = said[operation in FOLDER_OPERATIONS][name][operation]
                if expected is None:
                    continue
                fresh(house, mode, folder_mode, "ann")
                happened = attempt(operation)
                if happened is not None and happened != expected:
                    wrong.append(f"{user} by {name}: {operation} was {'done' if happened else 'refused'}, said {expected}")
    assert not wrong, "\n".join(wrong)


def test_the_reasons_name_what_decides(house):
    fresh(house, 0o640, 0o770, "ann")

    def text(*words):
        return larder(house, "share", "explain", *words)

    eve = text("eve", "/m/d/f")
    assert "search permission" in eve and "folder 'm/d'" in eve and "others ---" in eve, eve
    assert "read_only_users names eve" in eve
    bob = text("bob", "tank/" + house.share + "/m/d/f")
    assert "users names @family, and bob is in it" in bob and "family" in bob and "r--" in bob, bob
    assert f"SMB of {house.share}" in bob and "SMB of m" in bob, "every share that reaches it"
    assert "belongs to ann" in bob
    far = text("ann", "/m/d/f", "--from", "8.8.8.8")
    assert "8.8.8.8 is in none of the networks 127.0.0.0/8" in far, far
    share(house, "set", "m", "--sftp=no")
    assert "not offered over SFTP (sftp = false)" in text("ann", "/m/d/f")
    share(house, "set", "m", "--sftp", "--read-only")
    assert "the share is read-only" in text("ann", "/m/d/f")
    share(house, "set", "m", "--read-only=no")
    for words, says in ((("mia", "/m"), "no user 'mia'"), (("ann", "/nowhere/x"), "no share 'nowhere'"),
                        (("ann", "/m/d/nothing"), "no 'm/d/nothing'"), (("ann", "/m/../x"), "goes back")):
        done = house.run("share", "explain", *words)
        assert done.returncode == 1 and says in done.stderr, done.stderr
    larder(house, "snap", "create", f"{house.share}@then")
    past = text("ann", "/" + house.share + "/.snapshots/then/m/d/f")
    assert "it belongs to a snapshot" in past, past
    lines = text("bob", "/m/d/f").splitlines()
    header = next(line for line in lines if line.startswith("DOOR"))
    for line in lines[lines.index(header) + 1 : lines.index(header) + 6]:
        assert all(line[at - 1] == " " for at in (header.index("READ"), header.index("REMOVE"))), "columns stand under each other"
