"""Who comes into a share, with which rights: at each door by real clients, and as `share explain` says."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from impacket.nmb import NetBIOSError
from impacket.smbconnection import SessionError, SMBConnection

from conftest import make
from nfs3 import Nfs3, NfsError
from test_access import add_user, as_, share
from test_people import ANN, basic, get, larder
from test_sftp import Client

# ann and bob are the family; eve is not, and may log in.
USERS = ("ann", "bob", "eve")
HERE = "127.0.0.1"
TRUSTED = ("--network", "127.0.0.0/8")
# The options of one share each, in folders that every user may read and change.
SHARES = {
    "plain": (),
    "trusted": TRUSTED,
    "one": ("--users", "ann", *TRUSTED),
    "group": ("--users", "@family", "--read-only-users", "eve", *TRUSTED),
    "named": ("--users", "@family", "--read-only-users", "bob"),
    "nobody": ("--users", "none"),
    "readers": ("--read-only-users", "@family"),
    "frozen": ("--read-only", *TRUSTED),
    "guests": ("--users", "none", "--guest"),
    "common": ("--common", "--anon-uid", "4242", "--anon-gid", "4243", *TRUSTED),
    "squashed": ("--squash", "all", "--anon-uid", "4242", "--anon-gid", "4243", *TRUSTED),
    "near": ("--only-from", "127.0.0.0/8", *TRUSTED),
    "far": ("--only-from", "192.0.2.0/24", "--network", "0.0.0.0/0"),
    "sealed": ("--encrypt",),
    "closed": ("--nfs=no", "--smb=no", "--sftp=no", "--webdav=no"),
}


@pytest.fixture(scope="module")
def house():
    place = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    mount = place / "mnt"
    mount.mkdir()
    daemon = make(place, extra=["--sftp", "127.0.0.1:0", "--webdav", "127.0.0.1:0", "--mount", str(mount)]).start()
    daemon.mounted, daemon.place = mount, place
    for name in USERS:
        add_user(daemon, name)
    larder(daemon, "group", "add", "family", "--member", "ann", "--member", "bob")
    for name, options in SHARES.items():
        open_folder(daemon, name)
        share(daemon, "add", name, "--folder", name, *options)
        os.chmod(mount / name, 0o777)
    daemon.uids = {user["name"]: user["uid"] for user in json.loads(larder(daemon, "user", "list", "--json"))}
    (place / "local").write_bytes(b"x")
    yield daemon
    log = daemon.log()
    code = daemon.stop()
    shutil.rmtree(place, ignore_errors=True)
    assert code == 0 and "panicked" not in log, log[-3000:]


def open_folder(daemon, name):
    (daemon.mounted / name).mkdir(exist_ok=True)
    os.chmod(daemon.mounted / name, 0o777)


def explained(daemon, user, name):
    """By door: None if it is shut, or whether the user may add files, and the numbers it acts under."""
    answer = json.loads(larder(daemon, "share", "explain", user, f"/{name}", "--from", HERE, "--json"))
    doors = {}
    for door in answer["doors"]:
        if door["share"] == name:
            operations = {one["name"]: one["allowed"] for one in door["operations"]}
            doors[door["door"]] = door["acts_as"] and (operations["add-file"], tuple(door["acts_as"]))
    return doors


def by_nfs(daemon, user, name, file):
    uid = daemon.uids[user]
    try:
        with Nfs3.mount(HERE, daemon.nfs_port, f"/{name}", uid=uid, gid=uid) as nfs:
            nfs.readdir(nfs.root)
            try:
                nfs.create(nfs.root, file)
                return True
            except NfsError as error:
                assert error.status == 30, error
                return False
    except NfsError as error:
        assert error.status in (2, 13), error
        return None


def by_smb(daemon, user, name, file):
    out = as_(daemon, user, f"ls; put local {file}", share=name, cwd=daemon.place, check=False)
    if "tree connect failed" in out:
        assert "ACCESS_DENIED" in out or "BAD_NETWORK_NAME" in out, out
        return None
    assert "blocks of size" in out, out
    return "NT_STATUS_" not in out


def by_sftp(daemon, user, name, file):
    client = Client(daemon, daemon.place, user=user, password=ANN)
    if client.sftp(f"ls /{name}", check=False).returncode != 0:
        return None
    return client.sftp(f"put {daemon.place}/local /{name}/{file}", check=False).returncode == 0


def by_webdav(daemon, user, name, file):
    status, _ = get(daemon, f"{name}/", basic(user, ANN))
    if status != 200:
        assert status == 404, status
        return None
    status, _ = get(daemon, f"{name}/{file}", basic(user, ANN), "PUT", b"x")
    assert status in (201, 403), status
    return status == 201


DOORS = {"NFS": by_nfs, "SMB": by_smb, "SFTP": by_sftp, "WebDAV": by_webdav}


@pytest.mark.parametrize("name", SHARES)
def test_each_door_decides_as_it_is_explained(house, name):
    wrong = []
    for user in USERS:
        said = explained(house, user, name)
        for door, attempt in DOORS.items():
            file = f"{user}-{door}"
            happened = attempt(house, user, name, file)
            if happened:
                made = (house.mounted / name / file).stat()
                happened = (True, (made.st_uid, made.st_gid))
            expected = said[door]
            if expected and not expected[0]:
                expected = False
            if happened != expected:
                wrong.append(f"{user} by {door}: said {said[door]}, happened {happened}")
    assert not wrong, "\n".join(wrong)


def test_the_table_has_every_answer(house):
    """What is shut, read-only and open is as the options mean it: both sides of the comparison cannot be wrong alike."""
    def answers(name):
        found = [explained(house, user, name) for user in USERS]
        return [[doors[door] and doors[door][0] for doors in found] for door in DOORS]

    yes, no, shut = True, False, None
    for name, nfs, others in (
        ("plain", [yes] * 3, [yes] * 3), ("one", [yes] * 3, [yes, shut, shut]), ("group", [yes] * 3, [yes, yes, no]),
        ("named", [shut] * 3, [yes, no, shut]), ("nobody", [shut] * 3, [shut] * 3), ("readers", [shut] * 3, [no, no, yes]),
        ("frozen", [no] * 3, [no] * 3), ("guests", [yes] * 3, [yes] * 3), ("near", [yes] * 3, [yes] * 3),
        ("far", [shut] * 3, [shut] * 3), ("sealed", [yes] * 3, [yes] * 3), ("closed", [shut] * 3, [shut] * 3),
    ):
        assert answers(name) == [nfs, others, others, others], name
    for name, doors in (("common", DOORS), ("squashed", ["NFS"])):
        said = explained(house, "ann", name)
        assert all(said[door][1] == (4242, 4243) for door in doors), said


def test_guests_come_in_where_they_may(house):
    def guest(name):
        out = subprocess.run(
            ["smbclient", f"//{HERE}/{name}", "-p", str(house.smb_port), "-N", "-c", "ls; put local by-a-guest"],
            capture_output=True, text=True, timeout=60, cwd=house.place,
        )
        return "blocks of size" in out.stdout and "NT_STATUS_" not in out.stdout

    assert guest("guests") and not guest("plain") and not guest("nobody")
    made = (house.mounted / "guests" / "by-a-guest").stat()
    assert (made.st_uid, made.st_gid) == (65534, 65534)
    share(house, "set", "guests", "--only-from", "192.0.2.0/24")
    assert not guest("guests")
    share(house, "set", "guests", "--only-from", "anywhere", "--read-only")
    assert not guest("guests")
    share(house, "set", "guests", "--read-only=no")
    assert guest("guests")


class OpenSftp:
    """sftp(1), connected."""

    def __init__(self, daemon, user):
        client = Client(daemon, daemon.place, user=user, password=ANN)
        command = ["sftp", *client.options(), "-P", str(client.port), "-o", "BatchMode=no", f"{user}@{HERE}"]
        self.process = subprocess.Popen(command, env=client.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, bufsize=1)

    def says(self, command):
        """What it answers to a command: all lines until the next one that it is given."""
        try:
            self.process.stdin.write(f"{command}\npwd\n")
        except BrokenPipeError:
            return "Connection closed"
        lines = []
        for line in self.process.stdout:
            if "Remote working directory" in line:
                break
            lines.append(line)
        return "".join(lines)

    def end(self):
        self.process.kill()
        self.process.wait(30)


def test_a_rule_that_changes_holds_for_those_who_are_connected(house):
    name = "changing"
    open_folder(house, name)
    share(house, "add", name, "--folder", name, "--users", "@family", *TRUSTED)
    os.chmod(house.mounted / name, 0o777)
    smb = {}
    for user in ("ann", "bob"):
        smb[user] = SMBConnection(HERE, HERE, sess_port=house.smb_port)
        smb[user].login(user, ANN)
    trees = {user: connection.connectTree(name) for user, connection in smb.items()}
    sftp = {user: OpenSftp(house, user) for user in ("ann", "bob")}
    nfs = Nfs3.mount(HERE, house.nfs_port, f"/{name}", uid=house.uids["bob"], gid=house.uids["bob"])

    def smb_makes(user, folder):
        try:
            file = smb[user].createFile(trees[user], folder)
            smb[user].closeFile(trees[user], file)
            return True
        except (NetBIOSError, SessionError):  # The first: the connection is ended.
            return False

    assert smb_makes("ann", "a1") and smb_makes("bob", "b1")
    assert all("b1" in one.says(f"ls /{name}") for one in sftp.values())
    assert get(house, f"{name}/", basic("bob", ANN))[0] == 200

    # bob leaves the family: bob's connections end, and ann's go on.
    larder(house, "group", "remove-member", "family", "bob")
    assert not smb_makes("bob", "b2") and smb_makes("ann", "a2")
    assert "b1" not in sftp["bob"].says(f"ls /{name}")
    assert "a2" in sftp["ann"].says(f"ls /{name}")
    assert get(house, f"{name}/", basic("bob", ANN))[0] == 404
    assert explained(house, "bob", name)["SMB"] is None
    larder(house, "group", "add-member", "family", "bob")

    # The share becomes read-only under all of them.
    share(house, "set", name, "--read-only")
    assert not smb_makes("ann", "a3")
    sftp["ann"].says(f"mkdir /{name}/made")
    assert not (house.mounted / name / "made").exists()
    with pytest.raises(NfsError) as error:
        nfs.create(nfs.root, "n1")
    assert error.value.status == 30
    assert get(house, f"{name}/w", basic("ann", ANN), "PUT", b"x")[0] == 403
    share(house, "set", name, "--read-only=no")
    nfs.create(nfs.root, "n2")

    # A bound that the clients are outside of.
    share(house, "set", name, "--only-from", "192.0.2.0/24")
    with pytest.raises(NfsError) as error:
        nfs.getattr(nfs.root)
    assert error.value.status == 13
    assert "a2" not in sftp["ann"].says(f"ls /{name}")
    assert get(house, f"{name}/", basic("ann", ANN))[0] == 404
    assert not smb_makes("ann", "a4")
    assert all(door is None for door in explained(house, "ann", name).values())
    for one in sftp.values():
        one.end()
