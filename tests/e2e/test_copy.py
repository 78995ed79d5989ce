"""Copies, moves and what comes back from a snapshot keep what a file has, through every entrance that copies on the server.

  C1  A WebDAV MOVE to a share of another volume keeps times, time of creation, HIDDEN, named streams, attributes and access lists.
  C2  A move between shares of one volume is a rename: the inode stays, and with it everything.
  C3  A restore by COPY from `.snapshots` (what the file view asks for) has the dates and all else of the snapshot; in place, the file keeps
      its owner, its rights and its time of creation.
  C4  SMB copies data on the server, as its protocol says; a client sets the dates of then by itself, and they stay.
"""

import os
import re
import struct
import subprocess
import time

import pytest

from conftest import make
from test_acl import descriptor
from test_smb import logged_in, smb
from test_webdav import Dav

PAST_NS = 1_000_000_000_500_000_000
SECURITY, DACL = 3, 4
EVERYONE = struct.pack("<BB6BI", 1, 1, 0, 0, 0, 0, 0, 1, 0)
READ_ALL = 0x0012_0089


@pytest.fixture
def house(folder):
    daemon = make(folder, extra=["--squash", "none", "--webdav", "127.0.0.1:0"]).start()
    daemon.run("volume", "create", "second", check=True)
    daemon.tops = {}
    for volume in ("files", "second"):
        at = folder / f"mnt-{volume}"
        at.mkdir()
        daemon.run("mount", str(at), "--volume", volume, check=True)
        daemon.tops[volume] = at
    yield daemon
    for at in daemon.tops.values():
        daemon.run("umount", str(at))
    assert daemon.stop() == 0
    assert "panicked" not in daemon.log()


def opened(low, tree, path, access):
    return low.create(tree, path.replace("/", "\\"), access, 7, 0, 1, 0)


def set_rules(daemon, share, path, rules):
    with logged_in(daemon) as connection:
        low = connection.getSMBServer()
        tree = low.connectTree(share)
        file = opened(low, tree, path, 0x0004_0000)
        assert low.setInfo(tree, file, descriptor(rules), SECURITY, 0, DACL)
        low.close(tree, file)


def rules_of(daemon, share, path):
    with logged_in(daemon) as connection:
        low = connection.getSMBServer()
        tree = low.connectTree(share)
        file = opened(low, tree, path, 0x0002_0000)
        data = low.queryInfo(tree, file, infoType=SECURITY, fileInfoClass=0, additionalInformation=DACL)
        low.close(tree, file)
    return data[struct.unpack_from("<I", data, 16)[0]:]


def facts(daemon, volume, path):
    """What a file or folder has, as a mount and an SMB client see it."""
    at = daemon.tops[volume] / path
    stat = os.stat(at)
    # It also asks for the file as it was in each snapshot, and may not find it there.
    info = smb(daemon, f'allinfo "{path}"', share=volume, check=False)
    word = re.search(r"^attributes: (\S*)", info, re.MULTILINE)[1]
    created = re.search(r"^create_time:\s*(.*)$", info, re.MULTILINE)[1]
    streams = sorted(re.findall(r"^stream: \[(:.+:\$DATA)\], (\d+) bytes", info, re.MULTILINE))
    attributes = {name: os.getxattr(at, name) for name in os.listxattr(at) if name.startswith("user.")}
    return {
        "mtime": stat.st_mtime_ns, "mode": stat.st_mode, "owner": (stat.st_uid, stat.st_gid), "size": stat.st_size,
        "word": word, "created": created, "streams": streams, "attributes": attributes, "rules": rules_of(daemon, volume, path),
    }


def folder_in(daemon, volume, path):
    """A folder that every user may change."""
    at = daemon.tops[volume] / path
    at.mkdir()
    at.chmod(0o777)
    return at


def dressed(daemon, folder, path):
    """A file that has everything, in the volume `files`."""
    (folder / "f").write_bytes(b"pixels")
    (folder / "s").write_bytes(b"ZoneId=3")
    smb(daemon, f"put {folder}/f {path}; put {folder}/s {path}:Zone.Identifier", share="files")
    at = daemon.tops["files"] / path
    os.setxattr(at, "user.color", b"red")
    os.truncate(at, 3 << 20)
    set_rules(daemon, "files", path, [(0, 0, 0x001F_01FF, EVERYONE)])
    smb(daemon, f"setmode {path} +h", share="files")
    os.utime(at, ns=(PAST_NS, PAST_NS))
    time.sleep(1.1)
    return facts(daemon, "files", path)


def test_a_move_to_another_volume_keeps_everything(house, folder):
    """C1"""
    want = dressed(house, folder, "photo")
    assert want["mtime"] == PAST_NS and "H" in want["word"] and want["attributes"]["user.color"] == b"red"
    assert (":Zone.Identifier:$DATA", "8") in want["streams"]
    keeper = Dav(house)
    assert keeper("MOVE", "/files/photo", Destination="/second/photo").status == 201
    assert not (house.tops["files"] / "photo").exists()
    assert facts(house, "second", "photo") == want
    moved = house.tops["second"] / "photo"
    assert moved.read_bytes()[:6] == b"pixels" and os.stat(moved).st_blocks * 512 < 1 << 20, "the hole stays one"
    smb(house, f"get photo:Zone.Identifier {folder}/got", share="second")
    assert (folder / "got").read_bytes() == b"ZoneId=3"
    # A folder with it, and back.
    folder_in(house, "second", "album")
    assert keeper("MOVE", "/second/photo", Destination="/second/album/photo").status == 201
    os.utime(house.tops["second"] / "album", ns=(PAST_NS, PAST_NS))
    assert keeper("MOVE", "/second/album", Destination="/files/album").status == 201
    assert facts(house, "files", "album/photo") == want
    assert os.stat(house.tops["files"] / "album").st_mtime_ns == PAST_NS


def test_a_move_within_a_volume_is_a_rename(house, folder):
    """C2"""
    for name in ("a", "b"):
        folder_in(house, "files", name)
    house.run("share", "add", "also", "--volume", "files", check=True)
    want = dressed(house, folder, "a/photo")
    inode = os.stat(house.tops["files"] / "a/photo").st_ino
    os.link(house.tops["files"] / "a/photo", house.tops["files"] / "other-name")
    assert Dav(house)("MOVE", "/also/a/photo", Destination="/files/b/photo").status == 201
    assert os.stat(house.tops["files"] / "b/photo").st_ino == inode == os.stat(house.tops["files"] / "other-name").st_ino
    assert facts(house, "files", "b/photo") == want


def test_what_comes_back_from_a_snapshot_has_its_dates(house, folder):
    """C3"""
    folder_in(house, "files", "album")
    want = dressed(house, folder, "album/photo")
    os.utime(house.tops["files"] / "album", ns=(PAST_NS, PAST_NS))
    house.run("snap", "create", "files@then", check=True)
    keeper, past = Dav(house), "/files/.snapshots/then"
    # Beside.
    assert keeper("COPY", f"{past}/album/photo", Destination="/files/album/photo-1", Overwrite="F").status == 201
    assert facts(house, "files", "album/photo-1") == want
    # A folder, with what is in it; and to another volume.
    for destination, volume in (("/files/again", "files"), ("/second/again", "second")):
        assert keeper("COPY", f"{past}/album", Destination=destination, Overwrite="F").status == 201
        assert facts(house, volume, "again/photo") == want
        assert os.stat(house.tops[volume] / "again").st_mtime_ns == PAST_NS
    # In place: the file of now keeps who owns it, who may read it, and when it was made.
    now = house.tops["files"] / "album/photo"
    now.unlink()
    time.sleep(1.1)
    now.write_bytes(b"scribble")
    os.chown(now, *want["owner"])
    before = facts(house, "files", "album/photo")
    assert keeper("COPY", f"{past}/album/photo", Destination="/files/album/photo", Overwrite="T").status == 204
    after = facts(house, "files", "album/photo")
    assert (after["mtime"], after["size"]) == (PAST_NS, 3 << 20) and now.read_bytes()[:6] == b"pixels"
    assert {key: after[key] for key in ("owner", "created")} == {key: before[key] for key in ("owner", "created")}
    # With a date of the client's own.
    answer = keeper("COPY", f"{past}/album/photo", Destination="/files/dated", X_OC_Mtime="1100000000")
    assert (answer.status, answer.headers["X-OC-Mtime"]) == (201, "accepted")
    assert os.stat(house.tops["files"] / "dated").st_mtime_ns == 1_100_000_000 * 10**9
    # A mount copies as the system does, and may keep the dates.
    subprocess.run(["cp", "-a", house.tops["files"] / ".snapshots/then/album/photo", house.tops["files"] / "by-cp"], check=True)
    assert os.stat(house.tops["files"] / "by-cp").st_mtime_ns == PAST_NS


def test_smb_copies_data_and_a_client_sets_its_dates(house, folder):
    """C4: FSCTL_SRV_COPYCHUNK names ranges of two open files, and nothing else of them (MS-SMB2 3.3.5.15.6)."""
    dressed(house, folder, "photo")
    time.sleep(1.1)
    house.run("snap", "create", "files@then", check=True)
    moment = re.findall(r"^(@GMT-[-.0-9]{19})$", smb(house, 'allinfo "photo"', share="files"), re.MULTILINE)[0]
    smb(house, "del photo", share="files")
    smb(house, f"scopy {moment}\\photo back", share="files")
    back = house.tops["files"] / "back"
    assert back.read_bytes()[:6] == b"pixels" and os.stat(back).st_size == 3 << 20
    assert os.stat(back).st_mtime_ns > PAST_NS and os.listxattr(back) == []
    # As Explorer does behind the copy.
    smb(house, 'utimes back -1 -1 "2001:09:09-01:46:40" -1', share="files")
    assert os.stat(back).st_mtime_ns // 10**9 in range(10**9 - 15 * 3600, 10**9 + 15 * 3600)
