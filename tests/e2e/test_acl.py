"""Access control lists, as Windows' users set them, and what they mean to the other doors."""

import contextlib
import os
import struct

import pytest
from impacket import smb3structs as smb2
from impacket.smb3 import SessionError
from impacket.smbconnection import SMBConnection

import nfs3
import nfs4
from conftest import client, make
from test_smb import smb

ACCES = 13
ACCESS_DENIED, INVALID_OWNER = 0xC000_0022, 0xC000_005A
ANN, BOB, EVE = 2001, 2002, 2003
FULL, CHANGE, READ = 0x001F_01FF, 0x0013_01BF, 0x0012_00A9
FOR_ALL_BELOW = 3
PASSWORD = "a good password"


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    folder = tmp_path_factory.mktemp("acl")
    daemon = make(folder, extra=["--squash", "none"])
    daemon.start()
    secret = folder / "secret"
    secret.write_text(f"{PASSWORD}\n")
    for name, uid in (("ann", ANN), ("bob", BOB), ("eve", EVE)):
        daemon.run("user", "add", name, "--uid", str(uid), "--password-file", secret, "--force", check=True)
    daemon.run("share", "add", "common", "--volume", "files", "--users", "ann,bob,eve", check=True)
    daemon.mnt = folder / "mnt"
    daemon.mnt.mkdir()
    daemon.run("mount", daemon.mnt, check=True)
    os.chmod(daemon.mnt, 0o777)
    yield daemon
    assert daemon.stop() == 0, daemon.log()[-4000:]
    assert "panicked" not in daemon.log()


def commands(house, user, text, **options):
    return smb(house, text, user=user, password=PASSWORD, share="common", **options)


ALLOWED, DENIED = 0, 1
EVERYONE = struct.pack("<BBHII", 1, 1, 0, 0x0100_0000, 0)
SECURITY, OWNER, DACL = smb2.SMB2_0_INFO_SECURITY, 1, 4


def sid(uid):
    """S-1-22-1-uid: a user of this system (MS-DTYP 2.4.2.2)."""
    return struct.pack("<BB6sII", 1, 2, bytes([0, 0, 0, 0, 0, 22]), 1, uid)


def rule(who, mask, flags=0, kind=ALLOWED):
    return kind, flags, mask, who if isinstance(who, bytes) else sid(who)


def descriptor(rules=None, owner=None):
    """Self-relative, with the parts that are given (MS-DTYP 2.4.6)."""
    owner, control, acl = owner or b"", 0x8000, b""
    if rules is not None:
        aces = b"".join(struct.pack("<BBHI", kind, flags, 8 + len(who), mask) + who for kind, flags, mask, who in rules)
        acl, control = struct.pack("<BBHHH", 2, 0, 8 + len(aces), len(rules), 0) + aces, control | 4
    at_owner = 20 if owner else 0
    at_acl = 20 + len(owner) if acl else 0
    return struct.pack("<BBH4I", 1, 0, control, at_owner, 0, 0, at_acl) + owner + acl


@contextlib.contextmanager
def opened(house, user, path, access):
    connection = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=house.smb_port, preferredDialect=smb2.SMB2_DIALECT_30)
    connection.login(user, PASSWORD)
    low = connection.getSMBServer()
    tree = low.connectTree("common")
    file = low.create(tree, path.replace("/", "\\"), access, 7, 0, smb2.FILE_OPEN, 0)
    yield low, tree, file
    low.close(tree, file)
    connection.close()


def set_rules(house, user, path, rules):
    with opened(house, user, path, 0x0004_0000) as (low, tree, file):
        assert low.setInfo(tree, file, descriptor(rules), SECURITY, 0, DACL)


def rules_of(house, user, path):
    with opened(house, user, path, 0x0002_0000) as (low, tree, file):
        data = low.queryInfo(tree, file, infoType=SECURITY, fileInfoClass=0, additionalInformation=DACL)
    at = struct.unpack_from("<I", data, 16)[0]
    count, rules = struct.unpack_from("<H", data, at + 4)[0], []
    at += 8
    for _ in range(count):
        kind, flags, size, mask = struct.unpack_from("<BBHI", data, at)
        rules.append((kind, flags, mask, data[at + 8:at + size]))
        at += size
    return rules


def shared(house, name):
    """A folder of Ann's that Bob may change and Eve may read."""
    commands(house, "ann", f"mkdir {name}")
    set_rules(house, "ann", name, [rule(ANN, FULL, FOR_ALL_BELOW), rule(BOB, CHANGE, FOR_ALL_BELOW), rule(EVE, READ, FOR_ALL_BELOW)])
    return house.mnt / name


def nfs_as(house, uid):
    connection = client(house)
    connection.as_user(uid, uid)
    return connection


def test_one_list_shows_at_smb_and_at_nfs(house):
    folder = shared(house, "both")
    (folder / "f").write_text("x")
    with nfs4.Nfs4("127.0.0.1", house.nfs_port, minor=1).session() as four:
        top = [house.export.strip("/"), "both"]
        acl = lambda path: four.attr(path, (nfs4.ACL,)).acl
        who = lambda uid: str(uid).encode()
        assert acl(top) == [(ALLOWED, 3, FULL, who(ANN)), (ALLOWED, 3, CHANGE, who(BOB)), (ALLOWED, 3, READ, who(EVE))]
        rules = [(DENIED, 0, 2, who(BOB)), (ALLOWED, 3, FULL, b"OWNER@"), (ALLOWED, 0x43, READ, b"GROUP@"), (ALLOWED, 0, READ, b"EVERYONE@")]
        four.setattr(four.handle(top), acl=rules)
        # An owner's rule that is handed on is two rules there.
        group = struct.pack("<BB6sII", 1, 2, bytes([0, 0, 0, 0, 0, 22]), 2, os.stat(folder).st_gid)
        creator = lambda number: struct.pack("<BB6sI", 1, 1, bytes([0, 0, 0, 0, 0, 3]), number)
        assert rules_of(house, "ann", "both") == [
            rule(BOB, 2, kind=DENIED), rule(ANN, FULL), rule(creator(0), FULL, 0xB), rule(group, READ), rule(creator(1), READ, 0xB),
            rule(EVERYONE, READ)]
        set_rules(house, "ann", "both", rules_of(house, "ann", "both"))
        shown = [(kind, flags & ~0x40, mask, who) for kind, flags, mask, who in acl(top)]
        assert (ALLOWED, 0xB, FULL, b"S-1-3-0") in shown and (ALLOWED, 0, FULL, who(ANN)) in shown
        four.setattr(four.handle(top), acl=acl(top))
        assert [(kind, flags & ~0x40, mask, who) for kind, flags, mask, who in acl(top)] == shown, "SIDs are taken back"


def test_rules_decide_over_smb_and_nfs(house, tmp_path):
    shared(house, "a")
    (tmp_path / "f").write_text("hello")
    commands(house, "ann", "cd a; put f; mkdir deep; cd deep; put f", cwd=tmp_path)
    # What is made below has the same rules, on its own.
    for path in ("a/f", "a/deep/f"):
        assert rules_of(house, "ann", path) == [rule(ANN, FULL), rule(BOB, CHANGE), rule(EVE, READ)]
        commands(house, "bob", f"get {path} back; put f {path}", cwd=tmp_path)
        commands(house, "eve", f"get {path} back", cwd=tmp_path)
        assert "ACCESS_DENIED" in commands(house, "eve", f"put f {path}", cwd=tmp_path, check=False)
    assert "ACCESS_DENIED" in commands(house, "eve", "cd a; put f new", cwd=tmp_path, check=False)
    for uid, may_write in ((BOB, True), (EVE, False), (4000, None)):
        with nfs_as(house, uid) as nfs:
            top = nfs.lookup(nfs.root, b"a").handle
            if may_write is None:
                with pytest.raises(nfs3.NfsError) as refused:
                    nfs.lookup(top, b"f")
                assert refused.value.status == ACCES
                continue
            file = nfs.lookup(top, b"f").handle
            assert nfs.read(file, 0, 10).data == b"hello"
            if may_write:
                nfs.write(file, 0, b"HELLO")
                nfs.write(file, 0, b"hello")
            else:
                with pytest.raises(nfs3.NfsError) as refused:
                    nfs.write(file, 0, b"HELLO")
                assert refused.value.status == ACCES


def test_a_denial_comes_first_and_mounts_promise_no_more(house, tmp_path):
    (tmp_path / "f").write_text("hello")
    commands(house, "ann", "put f denied", cwd=tmp_path)
    set_rules(house, "ann", "denied", [rule(EVE, FULL, kind=DENIED), rule(ANN, FULL), rule(EVERYONE, FULL)])
    assert (house.mnt / "denied").stat().st_mode & 0o777 == 0o600, "anybody may be Eve to a kernel that knows bits alone"
    commands(house, "bob", "get denied back", cwd=tmp_path)
    assert "ACCESS_DENIED" in commands(house, "eve", "get denied back", cwd=tmp_path, check=False)


def test_chmod_takes_the_rules_away_and_a_restart_does_not(house, tmp_path):
    mnt = shared(house, "c")
    (tmp_path / "f").write_text("hello")
    commands(house, "ann", "cd c; put f", cwd=tmp_path)
    (mnt / "g").write_text("made on the mount")
    before = rules_of(house, "ann", "c/g")
    assert rule(BOB, CHANGE) in before
    house.run("umount", house.mnt, check=True)
    house.kill()
    assert house.check().returncode == 0
    house.start()
    house.run("mount", house.mnt, check=True)
    assert rules_of(house, "ann", "c/g") == before
    commands(house, "bob", "cd c; get g back", cwd=tmp_path)
    os.chmod(mnt / "g", 0o600)
    assert "ACCESS_DENIED" in commands(house, "bob", "cd c; get g back", cwd=tmp_path, check=False)


def test_who_may_change_what(house):
    shared(house, "d")
    with pytest.raises(SessionError) as refused:
        set_rules(house, "eve", "d", [rule(EVE, FULL)])
    assert refused.value.get_error_code() == ACCESS_DENIED
    set_rules(house, "ann", "d", [rule(ANN, FULL), rule(EVE, FULL)])
    # Files are taken by whom the rules let, and given to nobody.
    for user, owner, allowed in (("ann", BOB, False), ("eve", EVE, True)):
        with opened(house, user, "d", 0x0008_0000) as (low, tree, file):
            change = lambda: low.setInfo(tree, file, descriptor(owner=sid(owner)), SECURITY, 0, OWNER)  # noqa: B023, E731
            if allowed:
                assert change()
            else:
                with pytest.raises(SessionError) as refused:
                    change()
                assert refused.value.get_error_code() == INVALID_OWNER
    assert (house.mnt / "d").stat().st_uid == EVE
