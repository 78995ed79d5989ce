"""A folder of the host over SMB: DOS attributes, times of creation and streams, as Samba keeps them, and lists that POSIX can say."""

import contextlib
import os
import struct
import subprocess
import threading
import time

import pytest
from impacket import smb3structs as smb2
from impacket.smb3 import SessionError
from impacket.smbconnection import SMBConnection

from test_access import add_user
from test_acl import DACL, DENIED, EVERYONE, FOR_ALL_BELOW, FULL, READ, SECURITY, descriptor, rule, sid
from test_folder_share import Host, host, place, top  # noqa: F401 (fixtures)
from test_smb import smb
from test_webdav import Dav
from trees import payload
from waiting import wait_for

NOT_SUPPORTED = 0xC000_00BB
# Written by Samba 4.17: version 5, hidden and archive, created 2023-04-09 10:00:00 UTC.
CREATED = 133255080000000000
BY_SAMBA = bytes.fromhex("0000050005000000") + struct.pack("<IIQ", 0x11, 0x22, CREATED)
# As vfs_fruit writes it for a Mac: the type and creator of a file.
AFP_INFO = b"AFP\0\0\1\0\0" + bytes(8) + b"TEXTttxt" + bytes(36)


def attributes(host, path):
    """The word behind `attributes:` and the creation time, by smbclient."""
    info = dict(line.split(":", 1) for line in smb(host, f"allinfo {path}", share="photos").splitlines() if ":" in line)
    return info["attributes"].split()[0], info["create_time"].strip()


def xattrs(path):
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


def test_attributes_that_samba_wrote_are_shown_and_kept(host):
    at = top(host, "dos")
    (at / "plain").write_bytes(b"x")
    (at / "hidden").write_bytes(b"x")
    os.chown(at / "hidden", host.users["ann"], host.users["ann"])
    os.setxattr(at / "hidden", "user.DOSATTRIB", BY_SAMBA)
    assert attributes(host, "dos/plain")[0] == "A"
    word, created = attributes(host, "dos/hidden")
    assert word == "HA" and "2023" in created and "Apr  9 10:00:00" in created, created
    smb(host, "setmode dos/hidden +r-h", share="photos")
    assert attributes(host, "dos/hidden") == ("RA", created)
    raw = os.getxattr(at / "hidden", "user.DOSATTRIB")
    assert raw == bytes.fromhex("0000040004000000") + struct.pack("<IIQQ", 0x11, 0x21, 0, CREATED), raw.hex()
    refused = smb(host, "put /etc/hostname dos/hidden", share="photos", check=False)
    assert "NT_STATUS_ACCESS_DENIED" in refused, "it is read-only"


def test_files_that_are_merely_made_stay_plain(host, place):
    at = top(host, "plain")
    (place / "file").write_bytes(b"data")
    smb(host, f"mkdir plain/d; put {place}/file plain/f; put {place}/file plain/f", share="photos")
    assert attributes(host, "plain/f")[0] == "A"
    assert xattrs(at / "f") == {} and xattrs(at / "d") == {}
    smb(host, "setmode plain/d +h", share="photos")
    assert attributes(host, "plain/d")[0] == "HD"
    assert os.getxattr(at / "d", "user.DOSATTRIB")[12:16] == struct.pack("<I", 0x12)


def test_streams_are_those_of_samba(host, place):
    at = top(host, "streams")
    (place / "info").write_bytes(AFP_INFO)
    (place / "f").write_bytes(b"the file")
    smb(host, f"put {place}/f streams/f; put {place}/info streams/f:AFP_AfpInfo; put {place}/f streams/f:Zone.Identifier",
        share="photos")
    assert xattrs(at / "f") == {
        "user.DosStream.AFP_AfpInfo:$DATA": AFP_INFO + b"\0",
        "user.DosStream.Zone.Identifier:$DATA": b"the file\0",
    }
    assert (at / "f").read_bytes() == b"the file"
    os.setxattr(at / "f", "user.DosStream.com.apple.metadata:$DATA", b"by samba\0")
    listed = smb(host, "allinfo streams/f", share="photos")
    for name, size in (("AFP_AfpInfo", 60), ("Zone.Identifier", 8), ("com.apple.metadata", 8), ("", 8)):
        assert f"stream: [:{name}:$DATA], {size} bytes" in listed, listed
    smb(host, f"get streams/f:afp_afpinfo {place}/got; get streams/f:com.apple.metadata {place}/got2", share="photos")
    assert (place / "got").read_bytes() == AFP_INFO and (place / "got2").read_bytes() == b"by samba"
    smb(host, "del streams/f:Zone.Identifier", share="photos", check=False)
    # Over the other doors and as extended attributes of SMB they are not to be seen.
    found = Dav(host, "ann")("PROPFIND", "/photos/streams/f", Depth="0")
    assert found.status == 207 and b"DosStream" not in found.body and b"DOSATTRIB" not in found.body
    # Overwriting the file takes its streams along.
    smb(host, f"put {place}/f streams/f", share="photos")
    assert xattrs(at / "f") == {}
    # A folder has streams, too.
    smb(host, f"put {place}/info streams:AFP_AfpInfo", share="photos")
    assert xattrs(at)["user.DosStream.AFP_AfpInfo:$DATA"] == AFP_INFO + b"\0"


def test_a_stream_that_does_not_fit_loses_nothing(host, place):
    at = top(host, "large")
    (place / "f").write_bytes(b"the file")
    (place / "huge").write_bytes(bytes(200_000))
    smb(host, f"put {place}/f large/f; put {place}/f large/f:small", share="photos")
    said = smb(host, f"put {place}/huge large/f:huge", share="photos", check=False)
    assert "NT_STATUS_DISK_FULL" in said, said
    kept = xattrs(at / "f")
    assert kept["user.DosStream.small:$DATA"] == b"the file\0" and (at / "f").read_bytes() == b"the file"


def test_who_may_not_write_sets_neither(host, place):
    at = top(host, "theirs")
    (at / "f").write_bytes(b"root's")
    (place / "f").write_bytes(b"x")
    for command in ("setmode theirs/f +h", f"put {place}/f theirs/f:s"):
        assert "NT_STATUS_ACCESS_DENIED" in smb(host, command, share="photos", check=False), command
    assert xattrs(at / "f") == {}


def command(*args):
    return subprocess.run(args, check=True, capture_output=True)


@contextlib.contextmanager
def opened(host, path, access):
    connection = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=host.smb_port, preferredDialect=smb2.SMB2_DIALECT_30)
    connection.login("ann", host.password)
    low = connection.getSMBServer()
    tree = low.connectTree("photos")
    file = low.create(tree, path.replace("/", "\\"), access, 7, 0, smb2.FILE_OPEN, 0)
    yield low, tree, file
    low.close(tree, file)
    connection.close()


def rules_of(host, path):
    """The rules as they came, each a byte string."""
    with opened(host, path, 0x0002_0000) as (low, tree, file):
        data = low.queryInfo(tree, file, infoType=SECURITY, fileInfoClass=0, additionalInformation=DACL)
    at, rules = struct.unpack_from("<I", data, 16)[0], []
    count, at = struct.unpack_from("<H", data, at + 4)[0], at + 8
    for _ in range(count):
        kind, flags, size, mask = struct.unpack_from("<BBHI", data, at)
        rules.append((kind, flags, mask, data[at + 8:at + size]))
        at += size
    return rules


def set_rules(host, path, rules):
    with opened(host, path, 0x0004_0000) as (low, tree, file):
        assert low.setInfo(tree, file, descriptor(rules), SECURITY, 0, DACL)


def posix_list(path):
    return set(command("getfacl", "-cnpE", path).stdout.decode().split())


def test_lists_that_posix_can_say_are_set_over_smb(host, place):
    """As Explorer does: bob is added to a folder, and what is made in it is his as well."""
    at, ann, bob = top(host, "lists"), host.users["ann"], host.users["bob"]
    (at / "d").mkdir(mode=0o750)
    os.chown(at / "d", ann, ann)
    set_rules(host, "lists/d", [rule(bob, FULL, FOR_ALL_BELOW), *rules_of(host, "lists/d")])
    assert posix_list(at / "d") == {
        "user::rwx", f"user:{bob}:rwx", "group::r-x", "mask::rwx", "other::---", "default:user::rwx",
        f"default:user:{bob}:rwx", "default:group::r-x", "default:mask::rwx", "default:other::---",
    }
    assert sid(bob) in [who for *_, who in rules_of(host, "lists/d")]
    before = posix_list(at / "d")
    set_rules(host, "lists/d", rules_of(host, "lists/d"))
    assert posix_list(at / "d") == before, "what is shown can be set again"
    (place / "f").write_bytes(b"x")
    smb(host, f"put {place}/f lists/d/f", share="photos")
    assert posix_list(at / "d/f") == {"user::rw-", f"user:{bob}:rwx", "group::r-x", "mask::rw-", "other::---"}
    smb(host, f"put {place}/f lists/d/f", user="bob", share="photos")
    # DELETE alone has no bit. The list stays as it was.
    with pytest.raises(SessionError) as refused:
        set_rules(host, "lists/d/f", [rule(bob, 0x0001_0000, kind=DENIED), *rules_of(host, "lists/d/f")])
    assert refused.value.get_error_code() == NOT_SUPPORTED
    assert f"user:{bob}:rwx" in posix_list(at / "d/f")
    # A list that bits can say takes the POSIX list away.
    set_rules(host, "lists/d/f", [rule(ann, FULL), rule(EVERYONE, READ)])
    assert posix_list(at / "d/f") == {"user::rw-", "group::r--", "other::r--"}


def inotify_descriptors(host):
    links = []
    for fd in os.listdir(f"/proc/{host.process.pid}/fd"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/{host.process.pid}/fd/{fd}"))
    return sum("inotify" in link for link in links)


def test_watchers_hear_of_changes_by_programs_of_the_host(host, place):
    at = top(host, "heard")
    (place / "f").write_bytes(b"x")
    # The daemon watches its own data folder.
    own = inotify_descriptors(host)
    client = subprocess.Popen(["stdbuf", "-oL", "smbclient", "//127.0.0.1/photos", "-p", str(host.smb_port), "-U", f"ann%{host.password}", "-c",
                               "notify heard"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    threading.Thread(target=lambda: lines.extend(line.strip() for line in client.stdout), daemon=True).start()
    try:
        assert wait_for(lambda: inotify_descriptors(host) == own + 1, 10)
        (at / "new").write_bytes(b"1")
        (at / "new").rename(at / "newer")
        (at / "newer").unlink()
        wanted = ["0001 new", "0004 new", "0005 newer", "0002 newer"]
        assert wait_for(lambda: [line for line in lines if not line.startswith("0003")] == wanted, 10), lines
        # What a client of SMB does is told once, and what another door does as well.
        smb(host, f"put {place}/f heard/own", share="photos")
        with host.nfs(uid=host.users["ann"], gid=host.users["ann"]) as nfs:
            nfs.create(nfs.walk("heard"), "by-nfs", 1)
        assert wait_for(lambda: "0001 by-nfs" in lines, 10), lines
        time.sleep(0.5)
        assert (lines.count("0001 own"), lines.count("0001 by-nfs")) == (1, 1), lines
    finally:
        client.kill()
        client.wait()
    assert wait_for(lambda: inotify_descriptors(host) == own, 10), "nobody watches"


@pytest.fixture(params=["ext4", "xfs"])
def device(request, tmp_path):
    """A larder whose folder is a filesystem of its own."""
    daemon = Host(tmp_path)
    command("truncate", "-s", "400M", tmp_path / "image")
    # As on a large disk, where ext4 has blocks of 4 KiB.
    command(f"mkfs.{request.param}", "-q", *(["-b", "4096"] if request.param == "ext4" else []), tmp_path / "image")
    command("mount", "-o", "loop", tmp_path / "image", daemon.photos)
    try:
        daemon.photos.chmod(0o1777)
        daemon.start()
        add_user(daemon, "ann")
        daemon.kind = request.param
        yield daemon
        assert daemon.stop() == 0
    finally:
        command("umount", daemon.photos)


def test_streams_are_as_large_as_the_filesystem_takes(device, tmp_path):
    """ext4 keeps about 4 KiB of attributes for a file (here one block), XFS 64 KiB each."""
    fits, too_large = {"ext4": (3000, 4200), "xfs": (65_000, 65_536)}[device.kind]
    for size in (fits, too_large):
        (tmp_path / f"s{size}").write_bytes(payload(size))
    (tmp_path / "f").write_bytes(b"file")
    smb(device, f"put {tmp_path}/f f; setmode f +h; put {tmp_path}/s{fits} f:fits", share="photos")
    said = smb(device, f"put {tmp_path}/s{too_large} f:fits", share="photos", check=False)
    assert "NT_STATUS_DISK_FULL" in said, said
    # smbclient truncates a stream before it writes it anew; the file and its attributes are as they were.
    assert attributes(device, "f")[0] == "HA" and (device.photos / "f").read_bytes() == b"file"
    smb(device, f"put {tmp_path}/s{fits} f:fits; get f:fits {tmp_path}/got", share="photos")
    assert (tmp_path / "got").read_bytes() == payload(fits)
