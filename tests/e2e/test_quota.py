"""Quotas of users and groups: whose a file is decides, through every door, also after a kill and a restart."""

import json
import os
import struct

import pytest
from impacket import smb3structs as smb2

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
PASSWORD = "Pantry-Shelf-43"
VOLUME = "tank/files"


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
        table = house.run("volume", "set", VOLUME, "--user-quota", "ann=5MiB", check=True).stdout
        assert any(line.split()[:2] == ["user", "ann"] and "60%" in line for line in table.splitlines()), table
        for n in (3, 4):
            nfs.write(file, n * MIB, block, FILE_SYNC)
        refused(nfs, file, 5 * MIB)
        nfs.write(file, 0, block, FILE_SYNC)
        room = nfs.fsstat(nfs.root)
        assert (room.total_bytes, room.available_bytes) == (5 * MIB, 0)
    big = tmp_path / "big"
    big.write_bytes(os.urandom(2 * MIB))
    assert "NT_STATUS_DISK_FULL" in smb(house, "put big ann/smb", user="ann", password=PASSWORD, cwd=tmp_path, check=False)
    sftp = Client(house, tmp_path, user="ann", password=PASSWORD)
    done = sftp.sftp(f"put {big} /files/ann/sftp", check=False)
    assert done.returncode != 0, done.stdout
    assert "100%" in sftp.sftp("df /files").stdout
    assert Dav(house, user="ann", password=PASSWORD)("PUT", "/files/ann/dav", big.read_bytes()).status == 507
    assert used(house, "user", "ann")["used_bytes"] == 5 * MIB
    # Nobody else is held back.
    bob = Client(house, tmp_path, user="bob", password=PASSWORD)
    bob.sftp("mkdir /files/bob", f"put {big} /files/bob/sftp")
    assert used(house, "user", "bob")["used_bytes"] == 2 * MIB
    # Room comes back with what is deleted; a file is handed only to somebody who has room.
    with mounted(house) as nfs:
        given = nfs.lookup(nfs.lookup(nfs.root, "bob").handle, "sftp").handle
        with pytest.raises(NfsError) as error:
            nfs.setattr(given, uid=ann)
        assert error.value.status == DQUOT
        nfs.remove(nfs.lookup(nfs.root, "ann").handle, "nfs")
        nfs.setattr(given, uid=ann)
    assert used(house, "user", "ann")["used_bytes"] == 2 * MIB
    assert used(house, "user", "bob")["inodes"] == 1


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
    house.run("volume", "set", VOLUME, "--user-quota", "cat=8MiB", check=True)
    with mounted(house) as nfs:
        nfs.setattr(mine, uid=cat)
        file = nfs.create(mine, "file").handle
        nfs.setattr(file, uid=cat)
    with mounted(house, uid=cat, gid=cat) as nfs:
        for n in range(3):
            nfs.write(file, n * MIB, os.urandom(MIB), FILE_SYNC)
    (total, left), (full_total, caller, actual) = smb_room(house, "cat")
    assert (total, left) == (full_total, caller) == (8 * MIB, 5 * MIB)
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
    house.run("volume", "set", VOLUME, "--group-quota", "family=4MiB", "--user-quota", "ann=none", check=True)
    with mounted(house, uid=bob, gid=gid) as nfs:
        file = nfs.create(nfs.lookup(nfs.root, "bob").handle, "shared").handle
        for n in range(4):
            nfs.write(file, n * MIB, os.urandom(MIB), FILE_SYNC)
        refused(nfs, file, 4 * MIB)
    before = used(house, "group", "family")
    assert (before["used_bytes"], before["quota_bytes"]) == (4 * MIB, 4 * MIB)
    house.kill()
    config = house.data / "larder.toml"
    table = f'[[volume]]\nname = "{VOLUME}"\n'
    text = config.read_text()
    assert table in text
    config.write_text(text.replace(table, table + 'user_quotas = { bob = "6MiB" }\n'))
    house.start()
    assert used(house, "group", "family") == before
    assert used(house, "user", "bob")["quota_bytes"] == 6 * MIB
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
