"""Snapshots as SMB clients know them: Explorer's Previous Versions, `@GMT` names and timewarp tokens.

  V1  A client lists the moments of a file and reads what it was at each.
  V2  A tree that was removed comes back from the past, by a client alone.
  V3  Nothing is changed in the past, and a broken or made-up moment leads nowhere.
"""

import random
import re
import struct
import time

import pytest
from impacket.smb3 import SessionError

from conftest import client
from test_smb import Raw, logged_in, needs_torture, smb, torture
from test_snapshots import snap

ENUMERATE = 0x00144064
READ, WRITE = 1, 2
OPEN = 1
INVALID_PARAMETER, NAME_NOT_FOUND, PATH_NOT_FOUND = 0xC000000D, 0xC0000034, 0xC000003A
NAME_INVALID, WRITE_PROTECTED = 0xC0000033, 0xC00000A2


def moments(daemon, name):
    """What `allinfo` lists, newest first."""
    return re.findall(r"^(@GMT-[-.0-9]{19})$", smb(daemon, f'allinfo "{name}"'), re.MULTILINE)


def take(daemon, name):
    """A snapshot that is the only one of its second: its component of a path."""
    time.sleep(1.1)
    snap(daemon, "create", f"files@{name}")
    return moments(daemon, "\\")[0]


def test_versions_of_a_file(fresh, folder):
    """V1"""
    assert moments(fresh, "\\") == []
    (folder / "f").write_bytes(b"first")
    smb(fresh, "mkdir d; put f d/f", cwd=folder)
    first = take(fresh, "one")
    (folder / "f").write_bytes(b"the second")
    smb(fresh, "put f d/f; put f d/later", cwd=folder)
    second = take(fresh, "two")
    smb(fresh, "del d/f")
    assert moments(fresh, "d") == [second, first] != [first, second]
    told = smb(fresh, "allinfo d/later", check=False)
    assert "size: 10" in told and rf"pathinfo({first}\d\later) failed: NT_STATUS_OBJECT_NAME_NOT_FOUND" in told, told
    for path, content in ((f"{first}/d/f", b"first"), (f"d/{first}/F", b"first"), (f"d/f/{second}", b"the second")):
        smb(fresh, f"get {path} got", cwd=folder)
        assert (folder / "got").read_bytes() == content, path
    listed = smb(fresh, f"ls {first}/d/*")
    assert " f " in listed and "later" not in listed, listed
    assert "later" in smb(fresh, f"cd {second}/d; ls")
    for gone in (f"{first}/d/later", "@GMT-2001.02.03-04.05.06/d/f"):
        assert "NOT_FOUND" in smb(fresh, f"get {gone} got", cwd=folder, check=False), gone
    # A second snapshot of one second is not listed twice.
    for name in ("three", "four", "five"):
        snap(fresh, "create", f"files@{name}")
    listed = moments(fresh, "\\")
    assert listed == sorted(set(listed), reverse=True) and listed[-2:] == [second, first]
    snap(fresh, "destroy", "files@one")
    assert first not in moments(fresh, "\\")
    assert "NOT_FOUND" in smb(fresh, f"get {first}/d/f got", cwd=folder, check=False)


def test_a_tree_is_restored_by_a_client(fresh, folder):
    """V2"""
    rng = random.Random(20)
    for path in ("tree/f", "tree/docs/with ä and spaces.txt", "tree/docs/deep/er/empty", "tree/docs/deep/er/large"):
        file = folder / "out" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(rng.randbytes({"empty": 0, "large": 2_000_000}.get(file.name, 5000)))
    (folder / "in").mkdir()
    smb(fresh, f"lcd {folder}/out; recurse on; prompt off; mput *")
    smb(fresh, f"lcd {folder}/in; recurse on; prompt off; mget *")
    before = {path: path.read_bytes() for path in sorted((folder / "in").rglob("*")) if path.is_file()}
    assert len(before) == 4
    moment = take(fresh, "good")
    smb(fresh, "deltree tree")
    assert "tree" not in smb(fresh, "ls")
    (folder / "back").mkdir()
    smb(fresh, f"cd {moment}; lcd {folder}/back; recurse on; prompt off; mget *")
    smb(fresh, f"lcd {folder}/back; recurse on; prompt off; mput *")
    (folder / "again").mkdir()
    smb(fresh, f"lcd {folder}/again; recurse on; prompt off; mget *")
    after = {folder / "in" / path.relative_to(folder / "again"): path.read_bytes()
             for path in sorted((folder / "again").rglob("*")) if path.is_file()}
    assert after == before


def test_nothing_changes_in_the_past(fresh, folder):
    """V3"""
    (folder / "f").write_bytes(b"then")
    smb(fresh, "mkdir d; put f d/f", cwd=folder)
    moment = take(fresh, "one")
    for change in (f"put f {moment}/d/f", f"put f {moment}/new", f"mkdir {moment}/x", f"del {moment}/d/f", f"rmdir {moment}/d",
                   f"deltree {moment}/d", f"rename {moment}/d/f e", f"rename d/f {moment}/e", f"hardlink d/f {moment}/e"):
        assert "NT_STATUS_" in smb(fresh, change, cwd=folder, check=False), change
    assert "f" in smb(fresh, f"ls {moment}/d/f") and "f" in smb(fresh, "ls d/f")
    with client(fresh) as nfs:
        assert sorted(entry.name for entry in nfs.list(nfs.root)) == [b"d"]


def test_hostile_moments(fresh, folder):
    """V3: lengths of the answer, tokens and names as no client sends them."""
    (folder / "f").write_bytes(b"then")
    smb(fresh, "put f f", cwd=folder)
    moment = take(fresh, "one")
    ticks = (int(time.mktime(time.strptime(moment, "@GMT-%Y.%m.%d-%H.%M.%S"))) - time.timezone + 11_644_473_600) * 10_000_000

    def token(data):
        return [Raw(struct.pack("<IHHHHI", 0, 16, 4, 0, 24, len(data)) + b"TWrp" + bytes(4) + data)]

    with logged_in(fresh) as connection:
        low = connection.getSMBServer()
        tree = low.connectTree(fresh.share)

        def opens(name, contexts=None, access=READ):
            return low.create(tree, name, access, 7, 0, OPEN, 0, createContexts=contexts)

        def refused(status, name, contexts=None):
            with pytest.raises(SessionError) as error:
                opens(name, contexts)
            assert error.value.get_error_code() == status, (hex(error.value.get_error_code()), name)

        file = opens("f")
        for room, wanted in ((16, 16), (63, 16), (64, 64), (65_536, 64)):
            answer = low.ioctl(tree, file, ENUMERATE, 1, b"", 0, room)
            answer = answer if isinstance(answer, bytes) else answer.encode("latin-1")
            assert len(answer) == wanted, (room, answer)
            assert struct.unpack_from("<III", answer) == (1, int(wanted == 64), 52)
        assert answer[12:60].decode("utf-16-le") == moment
        with pytest.raises(SessionError) as error:
            low.ioctl(tree, file, ENUMERATE, 1, b"", 0, 15)
        assert error.value.get_error_code() == INVALID_PARAMETER

        exact = struct.pack("<Q", ticks)
        past = opens("f", token(exact), READ | WRITE)
        assert low.read(tree, past, 0, 4) == b"then"
        with pytest.raises(SessionError) as error:
            low.write(tree, past, b"x", 0, 1)
        assert error.value.get_error_code() == WRITE_PROTECTED
        opens("", token(exact))
        for broken in (b"", exact[:7], exact + b"\0"):
            refused(INVALID_PARAMETER, "f", token(broken))
        for nowhere in (0, 1, ticks - 10_000_000, ticks + 10_000_000, (1 << 63) - 1, (1 << 64) - 1):
            refused(NAME_NOT_FOUND, "f", token(struct.pack("<Q", nowhere)))
        refused(NAME_INVALID, f"{moment}\\f", token(exact))
        refused(NAME_INVALID, f"{moment}\\f\\{moment}")
        refused(PATH_NOT_FOUND, f".snapshots\\one\\{moment}")
        refused(NAME_NOT_FOUND, f"{moment}\\.snapshots")
        refused(NAME_NOT_FOUND, "@GMT-2026.13.41-25.61.61")
    assert "NT_STATUS_" in smb(fresh, "rename f @GMT-2001.02.03-04.05.06", check=False)
    assert fresh.alive() and "panicked" not in fresh.log()


@needs_torture
def test_conformance_of_the_past(fresh, folder):
    (folder / "f").write_bytes(b"x" * 100)
    # The test of listings looks for subdir/hardlink, today and then.
    smb(fresh, "put f f; put f f:stream; mkdir subdir; put f subdir/hardlink", cwd=folder)
    moment = take(fresh, "one")
    smb(fresh, "del f")
    options = [f"--option=torture:{option}" for option in
               (f"twrp_snapshot={moment}", "twrp_file=f", "twrp_stream=stream", "twrp_stream_size=100")]
    assert torture(fresh, "smb2.twrp.write", "smb2.twrp.stream", "smb2.twrp.openroot", "smb2.twrp.listdir", options=options) == []
