"""Quotas of users and groups: whose a file is decides, through every door, also after a kill and a restart."""

import errno
import json
import os
import struct
import subprocess

import pytest
from impacket import smb3structs as smb2

import nfs4
from conftest import client, make
from larderd import Larder
from nfs3 import DQUOT, FILE_SYNC, Nfs3, NfsError
from test_access import add_user
from test_hostile_depth import Web
from test_sftp import Client
from test_smb import logged_in, smb
from test_webdav import Dav
from waiting import wait_for

MIB = 1 << 20
KIB = 1 << 10
# A file or directory with one name counts for this much beside its data.
EMPTY = KIB
PASSWORD = "Pantry-Shelf-43"
VOLUME = "tank/files"
SET_PROPERTY = """<propertyupdate xmlns="DAV:"><set><prop><own{0} xmlns="urn:x">{1}</own{0}></prop></set></propertyupdate>"""


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    place = tmp_path_factory.mktemp("quota")
    daemon = make(place, extra=["--squash", "none", "--sftp", "127.0.0.1:0", "--webdav", "127.0.0.1:0"])
    daemon.start()
    for name in ("ann", "bob"):
        add_user(daemon, name)
    yield daemon
    assert daemon.stop() == 0


def mounted(daemon, uid=0, gid=0):
    return Nfs3.mount("127.0.0.1", daemon.nfs_port, daemon.export, uid=uid, gid=gid)


def uid(daemon, name):
    users = json.loads(daemon.run("user", "list", "--json", check=True).stdout)
    return next(user["uid"] for user in users if user["name"] == name)


def used(daemon, kind, name):
    owners = json.loads(daemon.run("volume", "quota", VOLUME, "--json", check=True).stdout)
    return next((one for one in owners if one["kind"] == kind and one.get("name") == name), None)


def refused(nfs, handle, offset):
    with pytest.raises(NfsError) as error:
        nfs.write(handle, offset, os.urandom(MIB), FILE_SYNC)
    assert error.value.status == DQUOT


def test_a_quota_binds_through_every_door_and_is_what_df_says(house, tmp_path):
    ann = uid(house, "ann")
    block = os.urandom(MIB)
    with mounted(house, uid=ann, gid=ann) as nfs:
        mine = nfs.mkdir(nfs.root, "ann").handle
        file = nfs.create(mine, "nfs").handle
        for n in range(3):
            nfs.write(file, n * MIB, block, FILE_SYNC)
        # What was there before counts.
        table = house.run("volume", "set", VOLUME, "--user-quota", "ann=5122KiB", check=True).stdout
        assert any(line.split()[:2] == ["user", "ann"] and "60%" in line for line in table.splitlines()), table
        for n in (3, 4):
            nfs.write(file, n * MIB, block, FILE_SYNC)
        refused(nfs, file, 5 * MIB)
        nfs.write(file, 0, block, FILE_SYNC)
        room = nfs.fsstat(nfs.root)
        assert (room.total_bytes, room.available_bytes) == (5 * MIB + 2 * EMPTY, 0)
    big = tmp_path / "big"
    big.write_bytes(os.urandom(2 * MIB))
    assert "NT_STATUS_DISK_FULL" in smb(house, "put big ann/smb", user="ann", password=PASSWORD, cwd=tmp_path, check=False)
    sftp = Client(house, tmp_path, user="ann", password=PASSWORD)
    done = sftp.sftp(f"put {big} /files/ann/sftp", check=False)
    assert done.returncode != 0, done.stdout
    assert "100%" in sftp.sftp("df /files").stdout
    assert Dav(house, user="ann", password=PASSWORD)("PUT", "/files/ann/dav", big.read_bytes()).status == 507
    assert used(house, "user", "ann")["used_bytes"] == 5 * MIB + 2 * EMPTY
    # Nobody else is held back.
    bob = Client(house, tmp_path, user="bob", password=PASSWORD)
    bob.sftp("mkdir /files/bob", f"put {big} /files/bob/sftp")
    assert used(house, "user", "bob")["used_bytes"] == 2 * MIB + 2 * EMPTY
    # Room comes back with what is deleted; a file is handed only to somebody who has room.
    with mounted(house) as nfs:
        given = nfs.lookup(nfs.lookup(nfs.root, "bob").handle, "sftp").handle
        with pytest.raises(NfsError) as error:
            nfs.setattr(given, uid=ann)
        assert error.value.status == DQUOT
        nfs.remove(nfs.lookup(nfs.root, "ann").handle, "nfs")
        nfs.setattr(given, uid=ann)
    assert used(house, "user", "ann")["used_bytes"] == 2 * MIB + 2 * EMPTY
    assert used(house, "user", "bob")["inodes"] == 1
    # Streams are those of the user of their file, and go with it.
    (tmp_path / "base").touch()
    put = lambda name: smb(house, f"put {name}", user="ann", password=PASSWORD, cwd=tmp_path, check=False)
    assert "NT_STATUS" not in put("base ann/base") + put("big ann/base:one")
    assert used(house, "user", "ann")["used_bytes"] > 4 * MIB
    assert "NT_STATUS_DISK_FULL" in put("big ann/base:two")
    with mounted(house) as nfs:
        mine = nfs.lookup(nfs.root, "ann").handle
        nfs.setattr(nfs.lookup(mine, "base").handle, uid=uid(house, "bob"))
        assert used(house, "user", "ann")["used_bytes"] == 2 * MIB + 2 * EMPTY
        assert used(house, "user", "bob")["used_bytes"] > 2 * MIB
        nfs.remove(mine, "base")
    wait_for(lambda: used(house, "user", "bob")["used_bytes"] < MIB)


def smb_room(daemon, user):
    """The bytes of FileFsSizeInformation (total, available) and of FileFsFullSizeInformation
    (total, the caller's, everybody's)."""
    with logged_in(daemon, user=user, password=PASSWORD) as connection:
        low = connection.getSMBServer()
        tree = low.connectTree(daemon.share)
        root = low.create(tree, "", 0x80, 7, 1, smb2.FILE_OPEN, 0)
        query = lambda level: low.queryInfo(tree, root, infoType=smb2.SMB2_0_INFO_FILESYSTEM, fileInfoClass=level)
        small, full = struct.unpack("<QQII", query(3)), struct.unpack("<QQQII", query(7))
        low.close(tree, root)
    unit = small[2] * small[3]
    assert small[2:] == full[3:]
    return [n * unit for n in small[:2]], [n * unit for n in full[:3]]


def test_the_free_space_over_smb_is_what_the_quota_leaves(house):
    with mounted(house) as nfs:
        all_room = nfs.fsstat(nfs.root)
        mine = nfs.mkdir(nfs.root, "cat").handle
    add_user(house, "cat")
    cat = uid(house, "cat")
    house.run("volume", "set", VOLUME, "--user-quota", "cat=8196KiB", check=True)
    with mounted(house) as nfs:
        nfs.setattr(mine, uid=cat)
        file = nfs.create(mine, "file").handle
        nfs.setattr(file, uid=cat)
    with mounted(house, uid=cat, gid=cat) as nfs:
        for n in range(3):
            nfs.write(file, n * MIB, os.urandom(MIB), FILE_SYNC)
    (total, left), (full_total, caller, actual) = smb_room(house, "cat")
    assert (total, left) == (full_total, caller)
    # In whole units.
    assert total == 8196 * KIB and 0 <= left - 5 * MIB <= 4 * KIB - 2 * EMPTY
    assert actual > all_room.total_bytes // 2 and actual > 8 * MIB, "what the volume has free for everybody"
    # A user without a quota sees the volume.
    (total, left), (_, caller, actual) = smb_room(house, "bob")
    assert total > all_room.total_bytes // 2 and left == caller > 8 * MIB


def test_groups_names_of_the_file_and_a_kill(house):
    bob = uid(house, "bob")
    house.run("group", "add", "family", "--member", "ann", "--member", "bob", check=True)
    gid = next(one["gid"] for one in json.loads(house.run("group", "list", "--json", check=True).stdout))
    for words in (["--user-quota", "eve=5M"], ["--user-quota", "bob"], ["--user-quota", "root=5M"], ["--group-quota", "eve=1G"]):
        assert house.run("volume", "set", VOLUME, *words).returncode != 0
    house.run("volume", "set", VOLUME, "--group-quota", "family=4097KiB", "--user-quota", "ann=none", check=True)
    with mounted(house, uid=bob, gid=gid) as nfs:
        file = nfs.create(nfs.lookup(nfs.root, "bob").handle, "shared").handle
        for n in range(4):
            nfs.write(file, n * MIB, os.urandom(MIB), FILE_SYNC)
        refused(nfs, file, 4 * MIB)
    before = used(house, "group", "family")
    assert (before["used_bytes"], before["quota_bytes"]) == (4 * MIB + EMPTY, 4 * MIB + EMPTY)
    house.kill()
    config = house.data / "larder.toml"
    table = f'[[volume]]\nname = "{VOLUME}"\n'
    text = config.read_text()
    assert table in text
    config.write_text(text.replace(table, table + 'user_quotas = { bob = "6146KiB" }\n'))
    house.start()
    assert used(house, "group", "family") == before
    assert used(house, "user", "bob")["quota_bytes"] == 6 * MIB + 2 * EMPTY
    with mounted(house, uid=bob, gid=gid) as nfs:
        refused(nfs, file, 4 * MIB)
        with mounted(house) as root:
            root.setattr(file, gid=bob)
        nfs.write(file, 4 * MIB, os.urandom(MIB), FILE_SYNC)
        nfs.write(file, 5 * MIB, os.urandom(MIB), FILE_SYNC)
        refused(nfs, file, 6 * MIB)
    # The file follows the command.
    house.run("volume", "set", VOLUME, "--user-quota", "bob=none", check=True)
    assert "none" in config.read_text().split("user_quotas")[1].splitlines()[0]
    with mounted(house, uid=bob, gid=gid) as nfs:
        nfs.write(file, 6 * MIB, os.urandom(MIB), FILE_SYNC)
    assert house.run("check", VOLUME).returncode == 0


def until_refused(change):
    """How often `change` was made until the quota refused it."""
    for n in range(3000):
        try:
            change(n)
        except NfsError as error:
            assert error.status == DQUOT, error
            return n
        except OSError as error:
            assert error.errno == errno.EDQUOT, error
            return n
    pytest.fail("no quota refused it")


def wait_used(daemon, name, wanted):
    now = lambda: used(daemon, "user", name)["used_bytes"]
    wait_for(lambda: now() == wanted, told=lambda: f"{now()} bytes are used, {wanted} were expected")


def test_names_links_and_attributes_count(house, tmp_path):
    """Without a byte of data a quota ends, through every door, also after a kill; deleting gives it back."""
    add_user(house, "dan")
    dan = uid(house, "dan")
    quota = MIB
    house.run("volume", "set", VOLUME, "--user-quota", "dan=1MiB", check=True)
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    house.run("mount", mnt, check=True)
    with mounted(house, uid=dan, gid=dan) as nfs:
        home = nfs.mkdir(nfs.root, "dan").handle
        file = nfs.create(home, "file").handle
        # Most of the quota.
        nfs.write(nfs.create(home, "data").handle, 0, os.urandom(896 * KIB), FILE_SYNC)
        before = used(house, "user", "dan")["used_bytes"]
        assert before == 896 * KIB + 3 * EMPTY
        long_name = lambda n: f"{n:0250}"
        kinds = {
            "files": (lambda n: nfs.create(home, long_name(n)), EMPTY),
            "hard links": (lambda n: nfs.link(file, home, long_name(n)), EMPTY // 2),
            "symbolic links": (lambda n: nfs.symlink(home, long_name(n), "t" * 1000), EMPTY + 1000),
        }
        for kind, (change, charge) in kinds.items():
            made = until_refused(change)
            assert made == (quota - before) // charge, kind
            assert nfs.fsstat(nfs.root).available_bytes < charge
            for n in range(made):
                nfs.remove(home, long_name(n))
            wait_used(house, "dan", before)
        made = until_refused(lambda n: nfs.mkdir(home, long_name(n)))
        assert made == (quota - before) // EMPTY
        # The other doors at the full quota.
        (tmp_path / "empty").touch()
        assert "NT_STATUS_DISK_FULL" in smb(house, "put empty dan/smb", user="dan", password=PASSWORD, cwd=tmp_path, check=False)
        assert "NT_STATUS_DISK_FULL" in smb(house, "mkdir dan/smb", user="dan", password=PASSWORD, cwd=tmp_path, check=False)
        assert Client(house, tmp_path, user="dan", password=PASSWORD).sftp("mkdir /files/dan/sftp", check=False).returncode != 0
        dav = Dav(house, user="dan", password=PASSWORD)
        assert dav("PUT", "/files/dan/dav", b"").status == 507
        assert dav("MKCOL", "/files/dan/dav").status == 507
        assert b"507 " in dav("PROPPATCH", "/files/dan/file", SET_PROPERTY.format(0, "")).body
        with nfs4.Nfs4("127.0.0.1", house.nfs_port, minor=2, uid=dan, gid=dan) as four:
            four.session()
            with pytest.raises(nfs4.Nfs4Error) as error:
                four.mkdir([house.export.strip("/"), "dan", "four"])
            assert error.value.status == DQUOT
        with pytest.raises(OSError) as error:
            os.setxattr(mnt / "dan/file", "user.a", b"")
        assert error.value.errno == errno.EDQUOT
        full = used(house, "user", "dan")
        house.kill()
        house.start()
        assert used(house, "user", "dan") == full
    with mounted(house, uid=dan, gid=dan) as nfs:
        home = nfs.lookup(nfs.root, "dan").handle
        assert until_refused(lambda n: nfs.create(home, "more")) == 0
        for n in range(made):
            nfs.rmdir(home, long_name(n))
        wait_used(house, "dan", before)
    # Attributes and properties, of one file.
    house.run("mount", mnt, check=True)
    value = b"v" * 5000
    made = until_refused(lambda n: os.setxattr(mnt / "dan/file", f"user.{n}", value))
    assert made == (quota - before) // (5000 + 64 + len("user.10"))
    os.setxattr(mnt / "dan/file", "user.0", value[::-1])
    for n in range(made):
        os.removexattr(mnt / "dan/file", f"user.{n}")
    wait_used(house, "dan", before)
    dav = Dav(house, user="dan", password=PASSWORD)
    text = "p" * 5000
    refusals = (b"507 " in dav("PROPPATCH", "/files/dan/file", SET_PROPERTY.format(n, text)).body for n in range(100))
    assert next(n for n, refused in enumerate(refusals) if refused) > 15
    full = used(house, "user", "dan")
    assert full["used_bytes"] > quota - 6 * KIB
    house.kill()
    subprocess.run(["umount", "-l", mnt], check=True)
    house.start()
    assert used(house, "user", "dan") == full
    with mounted(house, uid=dan, gid=dan) as nfs:
        nfs.remove(nfs.lookup(nfs.root, "dan").handle, "file")
    wait_used(house, "dan", before - EMPTY)
    assert house.run("check", VOLUME).returncode == 0


def test_the_quota_of_a_volume_counts_names(house):
    """Its limit ends names of everybody; what is used says so."""
    house.run("volume", "create", "tank/small", "--quota", "1MiB", check=True)
    listed = lambda: next(one for one in json.loads(house.run("volume", "list", "--json", check=True).stdout) if one["name"] == "small")
    with Nfs3.mount("127.0.0.1", house.nfs_port, "/small") as nfs:
        nfs.write(nfs.create(nfs.root, "data").handle, 0, os.urandom(896 * KIB), FILE_SYNC)
        made = until_refused(lambda n: nfs.create(nfs.root, str(n)))
        assert 120 < made < 128
        assert MIB - 2 * EMPTY < listed()["used_bytes"] <= MIB
        house.kill()
        house.start()
    with Nfs3.mount("127.0.0.1", house.nfs_port, "/small") as nfs:
        assert until_refused(lambda n: nfs.create(nfs.root, "more")) == 0
        for n in range(made):
            nfs.remove(nfs.root, str(n))
        assert until_refused(lambda n: nfs.create(nfs.root, f"again{n}")) == made
    assert house.run("check", "tank/small").returncode == 0


def test_silent_uploads_do_not_fill_a_volume(folder, loop_disks):
    """As many as a user may have, each with a piece of a file that never comes; everybody else goes on."""
    disks = [disk.folder for disk in loop_disks(260, 260, 260)]
    daemon = Larder(disks, folder / "data", extra=["--webdav", "127.0.0.1:0", "--squash", "none"]).start()
    try:
        add_user(daemon, "ann", "--uid", "1001", password=PASSWORD)
        with client(daemon) as nfs:
            nfs.setattr(nfs.root, mode=0o1777)
            left = lambda: nfs.fsstat(nfs.root).available_bytes
            size = left() * 9 // 10 // 31
            piece = os.urandom(size)

            def begin(name):
                begun = Web(daemon, "ann", PASSWORD)("POST", f"/{daemon.share}/{name}?upload", Upload_Length=1 << 40)
                assert begun.status == 201, begun.body
                return begun.headers["Location"]

            last = begin("last")
            for n in range(31):
                sent = Web(daemon, "ann", PASSWORD)("PATCH", begin(f"silent{n}"), piece, Upload_Offset=0)
                assert sent.status in (204, 507), (n, sent.status, sent.body)
            assert Web(daemon, "ann", PASSWORD)("POST", f"/{daemon.share}/more?upload", Upload_Length=9).status == 503
            # Ten seconds after she went on with another one they make room.
            sent = [0]

            def go_on():
                done = Web(daemon, "ann", PASSWORD)("PATCH", last, b"x" * 1000, Upload_Offset=sent[0])
                sent[0] += 1000 if done.status == 204 else 0
                return daemon.log().count("a silent upload of 'ann' was given up") > 20

            wait_for(go_on, 60)
            assert Dav(daemon)("PUT", f"/{daemon.share}/keepers", os.urandom(16 * size)).status == 201
            assert sent[0] > 0, "what she goes on with goes on"
        assert daemon.stop() == 0
    finally:
        daemon.end()
