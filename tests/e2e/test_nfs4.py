"""NFS version 4.0 to 4.2: the pseudo root, opens and locks among clients and with other doors, sessions, and restarts."""

import fcntl
import itertools
import os
import socket
import subprocess
import threading

import pytest
from impacket import smb3structs as smb2
from impacket.smbconnection import SMBConnection, SessionError

import nfs3
import nfs4
from conftest import client, make, payload
from nfs3 import Rpc, RpcError, opaque, u32, u64
from nfs4 import (ANONYMOUS, BOTH, CURRENT, DATA, EXCLUSIVE_WITH_ATTRS, GET, GUARDED, HOLE, READ, READ_LOCK, ROOT, UNCHECKED, WRITE,
                  WRITE_LOCK, Nfs4, Nfs4Error, getattr_, lookup, nothing, put, refused)
from waiting import wait_for


def connect(daemon, **options):
    nfs = Nfs4("127.0.0.1", daemon.nfs_port, **options)
    return nfs.session() if nfs.minor > 0 else nfs


@pytest.fixture
def four(larder):
    with connect(larder, minor=2) as nfs:
        yield nfs


@pytest.fixture
def other(larder):
    with connect(larder, minor=1) as nfs:
        yield nfs


@pytest.fixture
def top(larder):
    """The path of the export."""
    return [larder.export.strip("/")]


@pytest.fixture
def here(four, top, request):
    path = [*top, request.node.name.replace("[", "-").rstrip("]")]
    four.mkdir(path, mode=0o777)
    return path


# ---- names and attributes ----


def test_the_pseudo_root_leads_to_the_shares(larder, four, top):
    root, (share,) = four.attr([]), [entry for entry in four.readdir([], numbers=nfs4.USUAL).entries if entry.name.decode() == top[0]]
    inside = four.attr(top)
    assert root.type == 2 and root.mode == 0o555
    assert inside.fsid != root.fsid and share.attr.fsid == inside.fsid, "a share is a file system of its own"
    assert share.attr.mounted_on == inside.mounted_on != inside.fileid
    with client(larder) as v3:
        assert four.handle(top) == v3.root, "one handle over both versions"
        made = v3.create(v3.root, "by-v3")
        assert four.handle([*top, "by-v3"]) == made.handle
        v3.remove(v3.root, "by-v3")
    assert four.compound(*four.walk(top), (nfs4.LOOKUPP, b"", nothing), getattr_())[-1].fileid == root.fileid
    with refused("NOENT"):
        four.handle(["nowhere"])
    with refused("ROFS"):
        four.mkdir(["nowhere"])
    with refused("NOENT"):
        four.compound(ROOT, (nfs4.LOOKUPP, b"", nothing))
    with refused("XDEV"):
        four.rename([*top, "x"], ["x"])


def test_every_operation_on_names(four, here):
    file = four.open([*here, "a"], create=GUARDED, mode=0o640)
    assert four.write(file, 0, b"hello world").count == 11
    assert four.read(file, 6, 100).data == b"world" and four.read(file, 6, 100).eof
    attr = four.attr(file.handle)
    assert (attr.type, attr.mode, attr.size, attr.nlink, attr.owner) == (1, 0o640, 11, 1, b"0")
    four.compound(put(file.handle), (nfs4.VERIFY, nfs4.fattr(size=11), nothing))
    with refused("SAME"):
        four.compound(put(file.handle), (nfs4.NVERIFY, nfs4.fattr(size=11), nothing))
    four.setattr(file.handle, mode=0o600, owner="1000", group="100")
    assert four.attr(file.handle).owner == b"1000" and four.attr(file.handle).group == b"100"
    four.setattr(file.handle, file.stateid, size=5)
    assert four.read(file, 0, 100).data == b"hello"
    four.compound(*four.walk([*here, "a"]), nfs4.SAVE, *four.walk(here), (nfs4.LINK, opaque("b"), nfs4.change))
    assert four.attr(file.handle).nlink == 2
    link = (nfs4.CREATE, u32(5) + opaque("b/../a") + opaque("s") + nfs4.fattr(), lambda r: (nfs4.change(r), nfs4.read_bitmap(r)))
    target = four.compound(*four.walk(here), link, (nfs4.READLINK, b"", lambda r: r.opaque()))[-1]
    assert target == b"b/../a"
    moved = four.rename([*here, "b"], [*here, "c"])
    assert all(one.atomic and one.after > one.before for one in moved)
    assert sorted(four.names(here)) == [b"a", b"c", b"s"]
    four.mkdir([*here, "d"])
    with refused("EXIST"):
        four.mkdir([*here, "d"])
    for name in ("a", "c", "s", "d"):
        four.remove([*here, name])
    assert four.names(here) == []
    four.close_file(file)
    with refused("STALE"):
        four.read(file, 0, 1)
    for bad, why in (("", "INVAL"), (".", "BADNAME"), ("a/b", "BADCHAR"), ("x" * 256, "NAMETOOLONG"), ("missing", "NOENT")):
        with refused(why):
            four.handle([*here, bad])
    # A time of backup, which no file has.
    with refused("ATTRNOTSUPP"):
        four.compound(*four.walk(here), (nfs4.SETATTR, ANONYMOUS + nfs4.bitmap([49]) + opaque(u64(1) + u32(0)), nfs4.read_bitmap))


def test_a_listing_loses_and_repeats_nothing_while_entries_go(four, here):
    names = [f"n{n:04}".encode() for n in range(300)]
    with_v3 = four.handle(here)
    for name in names:
        four.compound(*four.walk(here), (nfs4.CREATE, u32(7) + opaque(name) + nfs4.fattr(mode=0o600), lambda r: (nfs4.change(r), nfs4.read_bitmap(r))))
    for dircount, numbers in ((50, nfs4.USUAL), (0, (nfs4.FILEID,)), (1000, (nfs4.RDATTR_ERROR, nfs4.FILEHANDLE))):
        assert sorted(four.names(with_v3, dircount=dircount, maxcount=3000, numbers=numbers)) == names
    seen, cookie, verifier = [], 0, bytes(8)
    while True:
        page = four.readdir(with_v3, cookie, verifier, dircount=700)
        for entry in page.entries:
            seen.append(entry.name)
            four.remove([*here, entry.name.decode()])
        if page.eof:
            break
        cookie, verifier = page.entries[-1].cookie, page.verifier
    assert sorted(seen) == names and four.names(with_v3) == []
    with refused("TOOSMALL"):
        four.compound(*four.walk(here[:1]), (nfs4.READDIR, u64(0) + bytes(8) + u32(0) + u32(8) + nfs4.bitmap([]), nfs4.entries))
    with refused("BAD_COOKIE"):
        four.readdir(with_v3, cookie=2)


def test_create_modes(four, here):
    verifier = b"12345678"
    first = four.open([*here, "x"], create=EXCLUSIVE_WITH_ATTRS, verifier=verifier, mode=0o640)
    again = four.open([*here, "x"], create=EXCLUSIVE_WITH_ATTRS, verifier=verifier, mode=0o640)
    assert again.handle == first.handle and four.attr(first.handle, [nfs4.MODE, nfs4.MTIME]).mode == 0o640
    assert abs(four.attr(first.handle, [nfs4.MTIME]).mtime[0] - os.stat("/proc/self").st_mtime) < 1e6, "no date made of a verifier"
    with refused("EXIST"):
        four.open([*here, "x"], create=EXCLUSIVE_WITH_ATTRS, verifier=b"87654321")
    with refused("EXIST"):
        four.open([*here, "x"], create=GUARDED)
    four.write(again, 0, b"data")
    kept = four.open([*here, "x"], create=UNCHECKED, owner=b"second")
    assert four.attr(first.handle).size == 4 and kept.handle == first.handle
    four.open([*here, "x"], create=UNCHECKED, owner=b"second", size=0)
    assert four.attr(first.handle).size == 0
    with refused("ISDIR"):
        four.open(here, access=READ)
    with refused("NOENT"):
        four.open([*here, "missing"], access=READ)
    with refused("INVAL"):
        four.open([*here, "x"], access=0)


def test_rights_are_asked_at_open_and_kept_after_it(larder, four, here):
    with connect(larder, uid=1000, gid=1000) as ann:
        made = ann.open([*here, "locked"], create=GUARDED, mode=0o444)
        assert ann.write(made, 0, b"its maker").count == 9
        with refused("ACCESS"):
            ann.open([*here, "locked"], access=WRITE, owner=b"second")
        ann.close_file(made)
        secret = four.open([*here, "secret"], create=GUARDED, mode=0o600)
        with refused("ACCESS"):
            ann.open([*here, "secret"], access=READ)
        with refused("ACCESS"):
            ann.read(secret, 0, 1, stateid=ANONYMOUS)
        four.setattr(secret.handle, mode=0o644)
        held = ann.open([*here, "secret"], access=READ)
        four.setattr(secret.handle, mode=0o600)
        assert ann.read(held, 0, 1).data == b"", "an open outlives its mode"
        # A client that writes parts of pages reads through an open for writing, if its user may read.
        box = four.open([*here, "box"], create=GUARDED, mode=0o602)
        four.write(box, 0, b"secret")
        dropped = ann.open([*here, "box"], access=WRITE, owner=b"third")
        assert ann.write(dropped, 6, b"!").count == 1
        with refused("ACCESS"):
            ann.read(dropped, 0, 6)
        ann.write(dropped, 7, b"!")
        with refused("ACCESS"):
            ann.read(dropped, 0, 6)
        four.setattr(box.handle, mode=0o606)
        assert ann.read(dropped, 0, 6).data == b"secret"
        # Whoever guesses the word of an exclusive create is not its maker.
        guarded = four.open([*here, "new"], create=EXCLUSIVE_WITH_ATTRS, verifier=b"12345678", mode=0o600)
        with refused("ACCESS"):
            ann.open([*here, "new"], create=EXCLUSIVE_WITH_ATTRS, verifier=b"12345678", mode=0o600, owner=b"fourth")
        four.write(guarded, 0, b"kept")
        with refused("EXIST"):
            four.open([*here, "new"], create=EXCLUSIVE_WITH_ATTRS, verifier=b"12345678", mode=0o600, owner=b"fifth")


@pytest.mark.parametrize("minor", [0, 2])
def test_users_of_one_owner_have_their_own_rights(larder, four, here, minor):
    """A client names its owners as it likes: two of its users open a file as one owner."""
    ann, bob = (1000, 1000), (2000, 2000)
    anything = lambda r: r.take(len(r.data) - r.at)
    with connect(larder, minor=minor) as nfs:
        seqid = itertools.count(1)
        if minor == 0:
            set_client(nfs, b"shared-" + os.urandom(8))

        def opened(user, name, **how):
            nfs.as_user(*user)
            file = nfs.open([*here, name], seqid=next(seqid), owner=b"shared", **how)
            if file.flags & 2:
                confirm = (nfs4.OPEN_CONFIRM, file.stateid + u32(next(seqid)), nfs4.stateid)
                file.stateid = nfs.compound(put(file.handle), confirm)[-1]
            return file

        def refused_to(user, file, *operations):
            nfs.as_user(*user)
            for operation in operations:
                with refused("ACCESS"):
                    nfs.compound(*(operation if isinstance(operation, list) else [put(file.handle), operation]))

        def a_lock(file, kind):
            locker = u32(1) + u32(next(seqid)) + file.stateid + u32(1) + u64(nfs.client) + opaque(b"l" + os.urandom(4))
            return (nfs4.LOCK, u32(kind) + u32(0) + u64(0) + u64(10) + locker, anything)

        # The first user may read, the second one writes: the first one still may not.
        made = four.open([*here, "theirs"], create=GUARDED, mode=0o644)
        four.setattr(made.handle, owner="2000", group="2000")
        four.write(made, 0, b"as it was")
        opened(ann, "theirs", access=READ)
        both = opened(bob, "theirs", access=BOTH)
        refused_to(
            ann, both, (nfs4.WRITE_OP, both.stateid + u64(0) + u32(2) + opaque(b"mine"), anything),
            (nfs4.SETATTR, both.stateid + nfs4.fattr(size=0), anything), a_lock(both, WRITE_LOCK))
        source = four.open([*here, "source"], create=GUARDED, mode=0o666)
        four.write(source, 0, b"mine")
        if minor > 0:
            span = both.stateid + u64(0) + u64(0) + u64(4)
            to_theirs = [put(source.handle), nfs4.SAVE, put(both.handle)]
            refused_to(
                ann, both, (nfs4.ALLOCATE, both.stateid + u64(0) + u64(100), anything),
                (nfs4.DEALLOCATE, both.stateid + u64(0) + u64(100), anything),
                [*to_theirs, (nfs4.CLONE, ANONYMOUS + span, anything)],
                [*to_theirs, (nfs4.COPY, ANONYMOUS + span + u32(1) + u32(1) + u32(0), anything)])
        assert nfs.read(both, 0, 100).data == b"as it was", "the first user reads on"
        nfs.as_user(*bob)
        nfs.write(both, 0, b"As")
        # The first user may write, the second one reads: the first one still may not, nor by what was judged before.
        made = four.open([*here, "box"], create=GUARDED, mode=0o602)
        four.setattr(made.handle, owner="2000", group="2000")
        four.write(made, 0, b"secret")
        first = opened(ann, "box", access=WRITE)
        nfs.write(first, 6, b"!")
        box = opened(bob, "box", access=READ)
        assert nfs.read(box, 0, 100).data == b"secret!"
        refused_to(ann, box, (nfs4.READ_OP, box.stateid + u64(0) + u32(100), anything), a_lock(box, READ_LOCK))
        if minor > 0:
            span = u64(0) + u64(0) + u64(4)
            from_box = [put(box.handle), nfs4.SAVE, put(source.handle)]
            refused_to(
                ann, box, (nfs4.READ_PLUS, box.stateid + u64(0) + u32(100), anything),
                (nfs4.SEEK, box.stateid + u64(0) + u32(DATA), anything), (nfs4.IO_ADVISE, box.stateid + u64(0) + u64(9) + u32(0), anything),
                [*from_box, (nfs4.CLONE, box.stateid + ANONYMOUS + span, anything)],
                [*from_box, (nfs4.COPY, box.stateid + ANONYMOUS + span + u32(1) + u32(1) + u32(0), anything)])
        nfs.write(box, 7, b"?")
        four.setattr(made.handle, mode=0o600)
        nfs.write(box, 8, b"?")
    assert four.read(made, 0, 100).data == b"secret!??"
    assert four.read(four.open([*here, "theirs"], access=READ), 0, 100).data == b"As it was"


def test_what_has_sessions_is_not_touched_without_them(larder, four, here):
    """A stranger who counts stateids and speaks the older minor version."""
    file = four.open([*here, "f"], access=BOTH, deny=WRITE, create=GUARDED, mode=0o600)
    held = four.lock(file, WRITE_LOCK, 0, 100)
    with connect(larder, minor=0, uid=6666, gid=6666) as stranger:
        with refused("BAD_STATEID"):
            stranger.unlock(file, held, WRITE_LOCK, 0, 100)
        with refused("BAD_STATEID"):
            stranger.close_file(file)
        with refused("STALE_CLIENTID"):
            stranger.raw([(nfs4.RENEW, u64(four.client), nothing)])
        stranger.client = four.client
        with refused("STALE_CLIENTID"):
            stranger.open([*here, "g"], create=UNCHECKED, seqid=1, owner=b"stranger")
    assert four.test_stateids(file.stateid, held) == ["OK", "OK"]


def test_nothing_that_speaks_for_a_client_counts_up(larder, four, here):
    """A stranger learns from its own ids nothing of those that others have."""
    far_apart = lambda ids: min(abs(a - b) for a, b in itertools.combinations(ids, 2)) > 1 << 24
    files = [four.open([*here, f"f{n}"], create=GUARDED) for n in range(16)]
    locks = [four.lock(file, WRITE_LOCK, 0, 10) for file in files]
    stateids = [file.stateid for file in files] + locks
    assert len({stateid[4:8] for stateid in stateids}) == 1, "of one life of the server"
    assert far_apart([int.from_bytes(stateid[8:16]) for stateid in stateids])
    clients = []
    for n in range(8):
        with connect(larder) as nfs, connect(larder, minor=0) as old:
            set_client(old, b"counted-" + os.urandom(8))
            clients += [nfs.client, old.client]
            with refused("STALE_CLIENTID"):
                old.raw([(nfs4.RENEW, u64(old.client + 2), nothing)])
            nfs.leave()
    assert far_apart(clients)


# ---- opens, locks, other doors ----


def test_share_reservations_among_clients(four, other, here):
    path = [*here, "f"]
    first = four.open(path, access=READ, deny=WRITE, create=UNCHECKED)
    with refused("SHARE_DENIED"):
        other.open(path, access=WRITE)
    with refused("SHARE_DENIED"):
        other.open(path, access=READ, deny=READ)
    with refused("LOCKED"):
        other.write(first, 0, b"x", stateid=ANONYMOUS)
    with refused("OPENMODE"):
        four.write(first, 0, b"x")
    second = other.open(path, access=READ)
    with refused("SHARE_DENIED"):
        four.open(path, access=BOTH, deny=READ)
    both = four.open(path, access=BOTH, deny=WRITE)
    down = four.compound(put(both.handle), (nfs4.OPEN_DOWNGRADE, both.stateid + u32(0) + u32(READ) + u32(WRITE), nfs4.stateid))[-1]
    first.stateid = down
    with refused("SHARE_DENIED"):
        other.open(path, access=WRITE)
    # A denied open with a size of 0 leaves the file alone.
    holder = four.open([*here, "g"], access=BOTH, deny=WRITE, create=GUARDED)
    four.write(holder, 0, b"kept")
    with refused("SHARE_DENIED"):
        other.open([*here, "g"], access=WRITE, create=UNCHECKED, size=0)
    assert four.attr(holder.handle).size == 4
    four.close_file(first)
    other.close_file(second)
    other.close_file(other.open(path, access=WRITE))


def test_locks_among_clients(four, other, here):
    file = four.open([*here, "f"], create=UNCHECKED)
    theirs = other.open_handle(file.handle)
    held = four.lock(file, WRITE_LOCK, 10, 10)
    with refused("DENIED") as denial:
        other.lock(theirs, READ_LOCK, 15, 100)
    assert (denial.error.detail.offset, denial.error.detail.length, denial.error.detail.kind) == (10, 10, WRITE_LOCK)
    assert denial.error.detail.owner == b"locker" and denial.error.detail.client == 0, "its id is its own secret"
    with refused("DENIED") as denial:
        four.lock(file, READ_LOCK, 15, 100, owner=b"another")
    assert denial.error.detail.client == four.client
    with refused("DENIED"):
        other.test_lock(file.handle, READ_LOCK, 19, 1)
    four.test_lock(file.handle, WRITE_LOCK, 10, 10, owner=b"locker")
    other.test_lock(file.handle, WRITE_LOCK, 20, 5)
    held = four.lock(file, READ_LOCK, 10, 10, held=held)
    mine = other.lock(theirs, READ_LOCK, 0, 15)
    with refused("DENIED"):
        four.lock(file, WRITE_LOCK, 0, 20, held=held)
    with refused("LOCKS_HELD"):
        other.compound((nfs4.FREE_STATEID, mine, nothing))
    other.close_file(theirs)
    four.lock(file, WRITE_LOCK, 0, 20, held=held)
    for offset, length, why in ((0, 0, "INVAL"), ((1 << 64) - 1, 2, "INVAL")):
        with refused(why):
            four.lock(file, WRITE_LOCK, offset, length, owner=b"odd")


def test_a_client_that_leaves_leaves_nothing(larder, four, other, here):
    path = [*here, "f"]
    held = other.open(path, access=BOTH, deny=BOTH, create=UNCHECKED)
    other.lock(held, WRITE_LOCK)
    with refused("SHARE_DENIED"):
        four.open(path, access=READ)
    other.raw([(nfs4.DESTROY_SESSION, other.session_id, nothing)])
    with refused("CLIENTID_BUSY"):
        other.raw([(nfs4.DESTROY_CLIENTID, u64(other.client), nothing)])
    # The same machine after it was restarted: the state of its former life goes when it has a session.
    with Nfs4("127.0.0.1", larder.nfs_port, owner=other.owner) as anew:
        anew.session()
        mine = four.open(path, access=BOTH, deny=BOTH)
        four.lock(mine, WRITE_LOCK)
        anew.leave()


@pytest.fixture
def mounted(larder, tmp_path):
    larder.run("mount", tmp_path, check=True)
    yield tmp_path
    larder.run("unmount", tmp_path, check=True)


@pytest.fixture
def smb(larder):
    connection = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=larder.smb_port, preferredDialect=smb2.SMB2_DIALECT_21)
    connection.login(larder.user, larder.password)
    yield connection
    connection.close()


def test_locks_and_denials_hold_at_other_doors(larder, four, here, mounted, smb):
    file = four.open([*here, "f"], create=UNCHECKED, mode=0o666)
    four.write(file, 0, bytes(100))
    path, name = mounted / here[1] / "f", f"{here[1]}/f"
    held = four.lock(file, WRITE_LOCK, 0, 10)
    with open(path, "r+b") as local:
        with pytest.raises(BlockingIOError):
            fcntl.lockf(local, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 5)
        four.unlock(file, held, WRITE_LOCK)
        fcntl.lockf(local, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 5)
        with refused("DENIED") as denial:
            four.test_lock(file.handle, WRITE_LOCK)
        assert (denial.error.detail.offset, denial.error.detail.length) == (5, 5)
        with refused("SHARE_DENIED"):
            four.open([*here, "f"], access=READ, deny=WRITE)
    four.close_file(file)

    def deny_writing():
        """A mount's close is told to the server a moment later."""
        try:
            return four.open([*here, "f"], access=READ, deny=WRITE)
        except Nfs4Error as error:
            assert error.status == nfs4.STATUS["SHARE_DENIED"]

    denying = wait_for(deny_writing)
    with pytest.raises(OSError):
        open(path, "r+b")
    tree = smb.connectTree(larder.share)
    with pytest.raises(SessionError):
        smb.openFile(tree, name, desiredAccess=smb2.FILE_WRITE_DATA, shareMode=7)
    four.close_file(denying)
    opened = smb.openFile(tree, name, desiredAccess=smb2.FILE_READ_DATA, shareMode=smb2.FILE_SHARE_READ)
    with refused("SHARE_DENIED"):
        four.open([*here, "f"], access=WRITE)
    with refused("FILE_OPEN"):
        four.remove([*here, "f"])
    smb.closeFile(tree, opened)
    four.remove([*here, "f"])


# ---- delegations ----


BACK_CHANNEL = 2


@pytest.fixture
def reader(larder):
    """A client that can be called back."""
    with Nfs4("127.0.0.1", larder.nfs_port) as nfs:
        yield nfs.session(flags=BACK_CHANNEL)


def delegated(reader, path):
    reader.close_file(reader.open(path, access=WRITE, create=UNCHECKED, mode=0o666))
    opened = reader.open(path, access=READ)
    assert opened.delegation and opened.delegation.kind == 1, "nobody else has it open"
    return opened


def while_recalled(reader, opened, change):
    """Runs a change by another door, which waits until the delegation is back."""
    done = []
    thread = threading.Thread(target=lambda: done.append(change()))
    thread.start()
    stateid, handle = reader.await_recall()
    assert handle == opened.handle and stateid == opened.delegation.stateid and not done, "nothing was changed before"
    reader.return_delegation(handle, stateid)
    thread.join(20)
    assert done, "the change goes on"


def test_a_delegation_is_recalled_by_other_clients(reader, four, here):
    path = [*here, "f"]
    opened = delegated(reader, path)
    four.close_file(four.open(path, access=READ))
    changes = (lambda: four.open(path, access=WRITE), lambda: four.setattr(opened.handle, mode=0o600), lambda: four.remove(path),
               lambda: four.write(opened, 0, b"x", stateid=ANONYMOUS), lambda: four.rename(path, [*here, "g"]),
               lambda: four.compound(*four.walk(path), nfs4.SAVE, *four.walk(here), (nfs4.LINK, opaque("l"), nfs4.change)))
    for change in changes:
        with refused("DELAY"):
            change()
    stateid, handle = reader.await_recall()
    assert reader.read(opened, 0, 1, stateid=stateid).data == b"" and not reader.recalled, "it is asked once"
    reader.return_delegation(handle, stateid)
    with refused("BAD_STATEID"):
        reader.return_delegation(handle, stateid)
    changes[0]()
    reader.close_file(opened)
    assert reader.open(path, access=READ).delegation is None, "it is written, and rests"


def test_a_delegation_is_recalled_by_other_doors(larder, reader, here, mounted):
    with client(larder) as v3:
        folder, path = v3.lookup(v3.root, here[1]).handle, mounted / here[1]
        changes = {
            "write": lambda handle: v3.write(handle, 0, b"x", nfs3.FILE_SYNC),
            "mode": lambda handle: v3.setattr(handle, mode=0o640),
            "remove": lambda _: v3.remove(folder, "remove"),
            "mounted": lambda _: (path / "mounted").write_bytes(b"x"),
            "unlinked": lambda _: (path / "unlinked").unlink() or True,
        }
        for name, change in changes.items():
            opened = delegated(reader, [*here, name])
            while_recalled(reader, opened, lambda: change(opened.handle))
            reader.close_file(opened)


def test_a_recall_goes_by_whoever_is_bound_and_starts_again(reader, four, here):
    path = [*here, "f"]
    opened = delegated(reader, path)
    # The client does not know of it yet: it is asked again.
    reader.callback_status = nfs4.STATUS["BAD_STATEID"]
    with refused("DELAY"):
        four.open(path, access=WRITE)
    reader.await_recall()
    reader.callback_status = 0
    reader.await_recall()
    # Its connection ends without the delegation being given back: another one is bound, and is asked.
    with reader.again() as second:
        second.callback_credential = reader.callback_credential
        reader.close()
        second.raw([(nfs4.BIND_CONN_TO_SESSION, second.session_id + u32(3) + u32(0), lambda r: (r.take(16), r.u32(), r.bool()))])
        second.return_delegation(opened.handle, opened.delegation.stateid)
        four.open(path, access=WRITE)


def test_a_recall_names_the_request_that_it_may_overtake(reader, four, here):
    path = [*here, "f"]
    delegated(reader, path)
    granted = (reader.slots[0], 0)
    with refused("DELAY"):
        four.open(path, access=WRITE)
    reader.await_recall()
    assert reader.referred == [[(reader.session_id, [granted])]]


def in_thread(work):
    done = []
    thread = threading.Thread(target=lambda: done.append(work()))
    thread.start()
    return thread, done


def written(reader, path):
    opened = reader.open(path, access=BOTH, create=UNCHECKED, mode=0o666)
    assert opened.delegation and opened.delegation.kind == 2, "nobody else has it open"
    return opened


def asked(reader, four, handle):
    """The attributes of a file for `four`, while its writer is asked."""
    thread, done = in_thread(lambda: four.attr(handle))
    reader.socket.settimeout(20)
    reader.answer(Rpc.record(reader))
    thread.join(20)
    return done[0]


def test_a_delegation_to_write(reader, four, here):
    path = [*here, "f"]
    opened = written(reader, path)
    reader.write(opened, 0, b"sent", stateid=opened.delegation.stateid)
    with refused("DELAY"):
        four.open(path, access=READ)
    stateid, handle = reader.await_recall()
    with refused("DELAY"):
        four.read(opened, 0, 4, stateid=ANONYMOUS)
    reader.write(opened, 4, b" last", stateid=stateid)
    reader.return_delegation(handle, stateid)
    theirs = four.open(path, access=READ)
    assert four.read(theirs, 0, 100).data == b"sent last"
    four.close_file(theirs)
    # Whom somebody else could miss gets none.
    theirs = four.open([*here, "g"], access=READ, create=UNCHECKED, mode=0o666)
    assert reader.open([*here, "g"], access=BOTH).delegation is None


def test_who_writes_under_a_delegation_is_asked_for_the_size(reader, four, here):
    opened = written(reader, [*here, "f"])
    before = reader.attr(opened.handle)
    reader.writing = (before.change, before.size)
    found = asked(reader, four, opened.handle)
    assert (found.size, found.change) == (before.size, before.change), "it has changed nothing"


def test_a_change_that_was_not_sent_yet_is_shown(reader, four, here):
    opened = written(reader, [*here, "f"])
    before = reader.attr(opened.handle)
    seen = []
    # Times of delegations, which it was not asked for (RFC 9754 4).
    reader.writing_more = [(84, u64(1) + u32(0)), (85, u64(1) + u32(0))]
    for size in (7, 7, 9):
        reader.writing = (before.change + 1, size)
        found = asked(reader, four, opened.handle)
        seen.append((found.size, found.change))
    assert [size for size, _ in seen] == [7, 7, 9]
    changes = [before.change, *(change for _, change in seen)]
    assert changes == sorted(set(changes)), "each time a new one"
    # A client that says nothing sensible loses it.
    reader.callback_status = nfs4.STATUS["BADHANDLE"]
    thread, done = in_thread(lambda: refused_delay(four, opened.handle))
    reader.answer(Rpc.record(reader))
    thread.join(20)
    assert done == [True]
    reader.callback_status = 0
    reader.return_delegation(*reversed(reader.await_recall()))
    assert four.attr(opened.handle).size == 0


def refused_delay(nfs, handle):
    with refused("DELAY"):
        nfs.attr(handle)
    return True


def test_other_doors_recall_a_delegation_to_write(larder, reader, here, mounted):
    with client(larder) as v3:
        folder, path = v3.lookup(v3.root, here[1]).handle, mounted / here[1]
        reads = {
            "attributes": lambda handle: v3.getattr(handle),
            "read": lambda handle: v3.read(handle, 0, 10),
            "mounted": lambda _: (path / "mounted").read_bytes() or True,
            "written": lambda handle: v3.write(handle, 0, b"x", nfs3.FILE_SYNC),
        }
        for name, read in reads.items():
            opened = written(reader, [*here, name])
            while_recalled(reader, opened, lambda: read(opened.handle))
            reader.close_file(opened)
        assert folder


def test_whoever_waits_for_a_lock_hears_of_it(reader, four, here):
    file = four.open([*here, "f"], create=UNCHECKED, mode=0o666)
    held = four.lock(file, WRITE_LOCK)
    mine = reader.open_handle(file.handle)
    assert mine.flags & 0x20
    with refused("DENIED"):
        reader.lock(mine, nfs4.READ_LOCK, owner=b"does not wait")
    with refused("DENIED"):
        reader.lock(mine, nfs4.WRITE_LOCK_WAIT, owner=b"waits")
    four.unlock(file, held, WRITE_LOCK)
    reader.answer_until(lambda: reader.notified)
    assert reader.notified == [(file.handle, b"waits")]
    reader.lock(mine, nfs4.WRITE_LOCK_WAIT, owner=b"waits")


class CallbackServer:
    """The call-back program of a client of NFSv4.0."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.address = f"127.0.0.1.{self.port >> 8}.{self.port & 255}"
        self.recalled = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        connection, _ = self.listener.accept()
        while mark := connection.recv(4, socket.MSG_WAITALL):
            record = connection.recv(int.from_bytes(mark, "big") & 0x7FFFFFFF, socket.MSG_WAITALL)
            r = nfs3.Reader(record)
            xid, procedure = r.u32(), [r.u32() for _ in range(5)][-1]
            assert r.u32() == 1, "AUTH_SYS"
            r.opaque(), r.u32(), r.opaque()
            body = b""
            if procedure == 1:
                tag, minor, ident, count, operation = r.opaque(), r.u32(), r.u32(), r.u32(), r.u32()
                assert (minor, ident, count, operation) == (0, 0, 1, 4)
                self.recalled.append((r.take(16), (r.u32(), r.opaque())[1]))
                body = u32(0) + opaque(tag) + u32(1) + u32(4) + u32(0)
            reply = u32(xid) + u32(1) + u32(0) + u32(0) + u32(0) + u32(0) + body
            connection.sendall(u32(0x80000000 | len(reply)) + reply)


def test_a_client_of_the_older_minor_version_is_called_on_its_own_port(larder, four, here):
    calls = CallbackServer()
    with connect(larder, minor=0) as old:
        set_client(old, b"called-" + os.urandom(4), address=calls.address)
        path = [*here, "f"]
        four.close_file(four.open(path, access=WRITE, create=UNCHECKED, mode=0o666))
        file = old.open(path, access=READ, seqid=1)
        confirmed = old.compound(put(file.handle), (nfs4.OPEN_CONFIRM, file.stateid + u32(2), nfs4.stateid))[-1]
        old.compound(put(file.handle), (nfs4.CLOSE, u32(3) + confirmed, nfs4.stateid))
        numbers = iter(range(4, 1000))

        def delegated_to_old():
            opened = old.open(path, access=READ, seqid=next(numbers))
            return opened if opened.delegation else None

        opened = wait_for(delegated_to_old)
        with refused("DELAY"):
            four.open(path, access=WRITE)
        stateid, handle = wait_for(lambda: calls.recalled[-1:])[0]
        assert (stateid, handle) == (opened.delegation.stateid, opened.handle)
        old.return_delegation(handle, stateid)
        four.open(path, access=WRITE)


def test_who_cannot_be_called_gets_no_delegation(four, here):
    four.close_file(four.open([*here, "f"], create=UNCHECKED))
    assert four.open([*here, "f"], access=READ).delegation is None


# ---- NFSv4.2 ----


def test_ranges_and_copies(four, here):
    file = four.open([*here, "sparse"], create=UNCHECKED)
    data = payload(100_000)
    four.write(file, 1 << 20, data)
    seek = lambda offset, what: four.compound(put(file.handle), (
        nfs4.SEEK, file.stateid + u64(offset) + u32(what), lambda r: (r.bool(), r.u64())))[-1]
    eof, at = seek(0, DATA)
    assert not eof and 0 < at <= 1 << 20
    assert seek(1 << 20, HOLE) == (True, (1 << 20) + len(data))
    with refused("NXIO"):
        seek(4 << 20, DATA)
    for what in (2, 1 << 31):
        with refused("UNION_NOTSUPP"):
            seek(0, what)
    read = four.compound(put(file.handle), (nfs4.READ_PLUS, file.stateid + u64(0) + u32(1 << 20), nfs4.contents))[-1]
    assert read.parts[0][0] == HOLE and read.parts[0][1] == 0 and not read.eof
    read = four.compound(put(file.handle), (nfs4.READ_PLUS, file.stateid + u64(1 << 20) + u32(1 << 20), nfs4.contents))[-1]
    assert read.eof and b"".join(part[2] for part in read.parts) == data
    punch = file.stateid + u64(0) + u64((1 << 20) + 50_000)
    four.compound(put(file.handle), (nfs4.DEALLOCATE, punch, nothing))
    assert four.read(file, 1 << 20, 100_000).data == bytes(50_000) + data[50_000:]
    four.compound(put(file.handle), (nfs4.ALLOCATE, file.stateid + u64(2 << 20) + u64(4096), nothing))
    assert four.attr(file.handle).size == (2 << 20) + 4096
    target = four.open([*here, "copy"], create=UNCHECKED, owner=b"second")
    arguments = file.stateid + target.stateid + u64(1 << 20) + u64(10) + u64(100_000) + u32(1) + u32(1) + u32(0)
    ok = lambda r: (r.u32(), r.u64(), r.u32(), r.take(8), r.u32(), r.u32())
    done = four.compound(put(file.handle), nfs4.SAVE, put(target.handle), (nfs4.COPY, arguments, ok))[-1]
    assert done[:2] == (0, 100_000)
    assert four.read(target, 0, 200_000).data == bytes(10) + bytes(50_000) + data[50_000:]
    clone = lambda source, at, count: four.compound(put(file.handle), nfs4.SAVE, put(target.handle), (
        nfs4.CLONE, file.stateid + target.stateid + u64(source) + u64(at) + u64(count), nothing))
    clone(0, 3, 0)
    whole = bytes((1 << 20) + 50_000) + data[50_000:]
    # A READ gives at most what the session allows.
    assert four.read(target, 3, 1 << 19).data + four.read(target, 3 + (1 << 19), len(whole) - (1 << 19)).data == whole
    assert four.attr(target.handle).size == (2 << 20) + 4096 + 3
    with refused("INVAL"):
        clone(10, 0, (2 << 20) + 4096)
    # Holes take up no room: a file of more bytes than the pool has is cloned and copied.
    huge = four.open([*here, "huge"], create=UNCHECKED, owner=b"huge")
    four.setattr(huge.handle, stateid=huge.stateid, size=1 << 45)
    four.write(huge, 1 << 44, b"far")
    for name in ("cloned", "copied"):
        theirs = four.open([*here, name], create=UNCHECKED, owner=name.encode())
        if name == "cloned":
            four.compound(put(huge.handle), nfs4.SAVE, put(theirs.handle), (
                nfs4.CLONE, huge.stateid + theirs.stateid + u64(0) + u64(0) + u64(0), nothing))
        else:
            assert four.copy(huge, theirs).count == 1 << 45
        assert four.attr(theirs.handle).size == 1 << 45 and four.read(theirs, 1 << 44, 3).data == b"far"
    with refused("FBIG"):
        clone(0, (1 << 63) - 10, 100)
    with refused("INVAL"):
        four.compound(put(file.handle), nfs4.SAVE, put(file.handle), (
            nfs4.CLONE, file.stateid + file.stateid + u64(0) + u64(50) + u64(100), nothing))


def test_extended_attributes(four, here, mounted):
    file = four.open([*here, "f"], create=UNCHECKED)
    setxattr = lambda how, name, value: four.compound(put(file.handle), (nfs4.SETXATTR, u32(how) + opaque(name) + opaque(value), nfs4.change))
    getxattr = lambda name: four.compound(put(file.handle), (nfs4.GETXATTR, opaque(name), lambda r: r.opaque()))[-1]
    setxattr(1, "one", b"1")
    with refused("EXIST"):
        setxattr(1, "one", b"2")
    with refused("NOXATTR"):
        setxattr(2, "two", b"2")
    setxattr(0, "two", payload(1000))
    assert getxattr("one") == b"1" and os.getxattr(mounted / here[1] / "f", "user.two") == payload(1000)
    listed = lambda cookie, room: four.compound(put(file.handle), (
        nfs4.LISTXATTRS, u64(cookie) + u32(room), lambda r: (r.u64(), [r.opaque() for _ in range(r.u32())], r.bool())))[-1]
    assert listed(0, 1000) == (2, [b"one", b"two"], True)
    assert listed(0, 26) == (1, [b"one"], False) and listed(1, 26) == (2, [b"two"], True)
    four.compound(put(file.handle), (nfs4.REMOVEXATTR, opaque("one"), nfs4.change))
    with refused("NOXATTR"):
        getxattr("one")


# ---- sessions ----


def test_a_request_is_carried_out_once(four, here):
    made = (nfs4.CREATE, u32(2) + opaque("d") + nfs4.fattr(mode=0o700), lambda r: (nfs4.change(r), nfs4.read_bitmap(r)))
    ops = [four.sequence_op(3, number=1, cache=True), *four.walk(here), made]
    first = four.call(nfs4.PROGRAM, 4, 1, four.request(ops)).data
    again = four.call(nfs4.PROGRAM, 4, 1, four.request(ops)).data
    assert again[24:] == first[24:], "the answer of before, not EXIST"
    with refused("SEQ_FALSE_RETRY"):
        four.raw([four.sequence_op(3, number=1, cache=True), *four.walk(here)])
    four.slots[3] = 1
    for number in (0, 3, 77):
        with refused("SEQ_MISORDERED"):
            four.raw([four.sequence_op(3, number=number)])
    # Not kept: carried out once all the same.
    ops = [four.sequence_op(3, number=2), *four.walk(here)]
    four.raw(ops)
    with refused("RETRY_UNCACHED_REP"):
        four.raw(ops)
    four.slots[3] = 2
    four.compound(ROOT, slot=3)


def test_what_sequence_refuses_leaves_its_slot(four, here):
    big = (nfs4.WRITE_OP, ANONYMOUS + u64(0) + u32(0) + opaque(bytes(1 << 20)), nothing)
    with refused("REQ_TOO_BIG"):
        four.raw([four.sequence_op(2, number=1), ROOT, big])
    with refused("TOO_MANY_OPS"):
        four.raw([four.sequence_op(2, number=1), *[ROOT] * 40])
    with refused("BADSLOT"):
        four.raw([four.sequence_op(64, number=1)])
    with refused("BAD_HIGH_SLOT"):
        four.raw([four.sequence_op(2, number=1, highest=1000)])
    with refused("BADSESSION"):
        four.raw([four.sequence_op(2, number=1, session=bytes(16))])
    assert four.compound(ROOT, GET, slot=2)
    # What a reply cannot hold fails alone; the request keeps its slot in order.
    with refused("REP_TOO_BIG_TO_CACHE"):
        file = four.open([*here, "f"], create=UNCHECKED)
        four.write(file, 0, bytes(50_000))
        four.compound(put(file.handle), (nfs4.READ_OP, file.stateid + u64(0) + u32(50_000), nothing), cache=True, slot=2)
    assert four.compound(ROOT, GET, slot=2)


def test_operations_stand_where_they_may(four, top):
    with refused("OP_NOT_IN_SESSION"):
        four.raw([ROOT])
    with refused("SEQUENCE_POS"):
        four.compound(ROOT, four.sequence_op(1))
    with refused("NOT_ONLY_OP"):
        four.raw([(nfs4.EXCHANGE_ID, bytes(8) + opaque("x") + u32(0) + u32(0) + u32(0), nothing), ROOT])
    with refused("OP_ILLEGAL"):
        four.compound((99, b"", nothing))
    with refused("NOTSUPP"):
        four.compound((nfs4.RENEW, u64(1), nothing))
    with refused("NOFILEHANDLE"):
        four.compound(GET)
    with refused("BADHANDLE"):
        four.compound(put(b"x" * 52))
    with refused("COMPLETE_ALREADY"):
        four.reclaim_complete()
    four.minor = 3
    with refused("MINOR_VERS_MISMATCH"):
        four.raw([ROOT])
    four.minor = 2
    # Operations before one that does not decode are carried out.
    with refused("BADXDR") as failed:
        four.compound(*four.walk(top), (nfs4.LOOKUP, u32(1 << 30), nothing))
    assert len(failed.error.results) == 2
    # A name that its message holds is read whole, however long, so the answer says what is wrong with it.
    long = opaque(b"n" * 100_000)
    device = u32(5) + long + opaque("link") + nfs4.fattr()
    for operation in (
            (nfs4.LOOKUP, long), (nfs4.REMOVE, long), (nfs4.SECINFO, long), (nfs4.CREATE, u32(2) + long + nfs4.fattr()),
            (nfs4.CREATE, device), (nfs4.GETXATTR, long), (nfs4.REMOVEXATTR, long), (nfs4.SETXATTR, u32(0) + long + opaque("value"))):
        with refused("NAMETOOLONG") as failed:
            four.compound(*four.walk(top), (*operation, nothing))
        assert len(failed.error.results) == 2
    with refused("NAMETOOLONG"):
        four.open([*top, b"n" * 100_000], create=UNCHECKED)
    for names in (opaque("a") + long, long + opaque("a")):
        with refused("NAMETOOLONG"):
            four.compound(*four.walk(top), nfs4.SAVE, (nfs4.RENAME, names, nothing))
    for flavor in (b"", u32(6) + opaque(bytes(20))):
        try:
            four.credential, kept = flavor or u32(6) + opaque(b""), four.credential
            with pytest.raises(RpcError, match="credential"):
                four.call(nfs4.PROGRAM, 4, 1, four.request([ROOT]))
        finally:
            four.credential = kept


def test_connections_share_a_session(four, top):
    with four.again() as second:
        bind = four.session_id + u32(3) + u32(0)
        assert second.raw([(nfs4.BIND_CONN_TO_SESSION, bind, lambda r: (r.take(16), r.u32(), r.bool()))])[0][1] == 3
        file = four.open([*top, "shared-session"], create=UNCHECKED)
        second.write(file, 0, b"by another connection")
        assert four.read(file, 0, 100).data == b"by another connection"
        with four.again() as third:
            with refused("CONN_NOT_BOUND_TO_SESSION"):
                third.raw([(nfs4.DESTROY_SESSION, four.session_id, nothing)])
        assert four.test_stateids(file.stateid, u32(1) + bytes(11) + b"x") == ["OK", "BAD_STATEID"]


def test_a_large_write_among_other_operations(four, here):
    file = four.open([*here, "f"], create=UNCHECKED)
    data = payload(700_001)
    write = (nfs4.WRITE_OP, file.stateid + u64(3) + u32(nfs4.UNSTABLE) + opaque(data), lambda r: (r.u32(), r.u32(), r.take(8)))
    done = four.compound(put(file.handle), write, getattr_([nfs4.SIZE]), (nfs4.COMMIT, u64(0) + u32(0), lambda r: r.take(8)))
    assert done[1][0] == len(data) and done[2].size == len(data) + 3 and done[3] == done[1][2]
    read = (nfs4.READ_OP, file.stateid + u64(0) + u32(1 << 20), lambda r: (r.bool(), r.opaque()))
    done = four.compound(put(file.handle), read, getattr_([nfs4.SIZE]))
    assert done[1] == (True, bytes(3) + data) and done[2].size == len(data) + 3


# ---- NFSv4.0 ----


def set_client(nfs, owner, address="0.0.0.0.0.0", verifier=bytes(8)):
    arguments = verifier + opaque(owner) + u32(0x40000000) + opaque("tcp") + opaque(address) + u32(0)
    client, confirm = nfs.raw([(nfs4.SETCLIENTID, arguments, lambda r: (r.u64(), r.take(8)))])[0]
    nfs.raw([(nfs4.SETCLIENTID_CONFIRM, u64(client) + confirm, nothing)])
    nfs.client = client


def test_the_older_minor_version(larder, four, here):
    with connect(larder, minor=0) as old:
        set_client(old, b"old-client")
        path = [*here, "f"]
        file = old.open(path, access=BOTH, create=UNCHECKED, seqid=7)
        assert file.flags & 2, "its first open is confirmed"
        again = old.open(path, access=BOTH, create=UNCHECKED, seqid=7)
        assert again.handle == file.handle
        confirmed = old.compound(put(file.handle), (nfs4.OPEN_CONFIRM, again.stateid + u32(8), nfs4.stateid))[-1]
        file.stateid = confirmed
        assert old.compound(put(file.handle), (nfs4.OPEN_CONFIRM, again.stateid + u32(8), nfs4.stateid))[-1] == confirmed, "answered again"
        old.write(file, 0, b"from before")
        with refused("BAD_SEQID"):
            old.open(path, access=READ, seqid=11)
        arguments = u32(WRITE_LOCK) + u32(0) + u64(0) + u64(5) + u32(1) + u32(9) + confirmed + u32(1) + u64(old.client) + opaque("l")
        old.compound(put(file.handle), (nfs4.LOCK, arguments, nfs4.stateid))
        with refused("DENIED"):
            four.test_lock(file.handle, READ_LOCK)
        old.raw([(nfs4.RENEW, u64(old.client), nothing)])
        old.compound(put(file.handle), (nfs4.CLOSE, u32(10) + confirmed, nfs4.stateid))
        four.test_lock(file.handle, READ_LOCK)
        with refused("OP_ILLEGAL"):
            old.raw([(nfs4.SEQUENCE, bytes(32), nothing)])
        with refused("STALE_CLIENTID"):
            old.raw([(nfs4.RENEW, u64(1), nothing)])
        # A CLOSE that comes again, and a file that is none.
        again = old.open(path, access=READ, seqid=11)
        close = (nfs4.CLOSE, u32(12) + again.stateid, nfs4.stateid)
        assert old.compound(put(file.handle), close) == old.compound(put(file.handle), close)
        with refused("ISDIR"):
            old.test_lock(old.handle(here), READ_LOCK)
        # A stateid of another life of the server, whoever it was given to (RFC 7530 9.1.4.4).
        of_before = again.stateid[:4] + bytes(byte ^ 0xFF for byte in again.stateid[4:8]) + again.stateid[8:]
        for locker in (u32(1) + u32(13) + of_before + u32(1) + u64(old.client) + opaque("l2"), u32(0) + of_before + u32(1)):
            arguments = u32(WRITE_LOCK) + u32(0) + u64(0) + u64(5) + locker
            with refused("STALE_STATEID"):
                old.compound(put(file.handle), (nfs4.LOCK, arguments, nfs4.stateid))
        # Its state goes with its former life, and it hears so.
        held = old.open(path, access=READ, seqid=13)
        client = old.client
        set_client(old, b"old-client", verifier=bytes(7) + b"2")
        with refused("EXPIRED"):
            old.read(held, 0, 1)
        with refused("EXPIRED"):
            old.raw([(nfs4.RENEW, u64(client), nothing)])


def test_libnfs(larder, four, here, tmp_path):
    url = f"nfs://127.0.0.1{larder.export}/{here[1]}"
    options = f"?version=4&nfsport={larder.nfs_port}"
    (tmp_path / "data").write_bytes(payload(2000))
    run = lambda *words: subprocess.run(words, check=True, timeout=60, capture_output=True)
    # Its release of Debian encodes no longer WRITE of NFSv4.
    run("nfs-cp", tmp_path / "data", f"{url}/copied{options}")
    assert b"copied" in run("nfs-ls", f"{url}{options}").stdout
    assert four.attr([*here, "copied"]).size == 2000
    large = four.open([*here, "large"], create=UNCHECKED)
    for at in range(0, 3_000_000, 500_000):
        four.write(large, at, payload(3_000_000)[at:at + 500_000], nfs4.UNSTABLE)
    assert run("nfs-cat", f"{url}/large{options}").stdout == payload(3_000_000)


# ---- restarts ----


def test_clients_take_back_what_they_had_after_a_crash(folder, tmp_path):
    mount = tmp_path / "mount"
    mount.mkdir()
    daemon = make(folder, extra=["--squash", "none"]).start()
    try:
        path = [daemon.export.strip("/"), "f"]
        one, two = connect(daemon, owner=b"one"), connect(daemon, owner=b"two")
        file = one.open(path, access=BOTH, deny=WRITE, create=UNCHECKED)
        held = one.lock(file, WRITE_LOCK, 0, 100)
        one.write(file, 0, b"before", stateid=held)
        other = two.open(path, access=READ)
        idle = connect(daemon, owner=b"idle")
        spare = path[:-1] + ["spare"]
        one.close_file(one.open(spare, access=BOTH, create=UNCHECKED))
        server = one.server
        daemon.kill()
        daemon.start()
        one, two, new = (Nfs4("127.0.0.1", daemon.nfs_port, owner=owner) for owner in (b"one", b"two", b"new"))
        one.session_id, one.client = idle.session_id, 0
        with refused("BADSESSION"):
            one.compound(ROOT)
        for nfs in (one, two, new):
            nfs.session(complete=False)
        assert one.server == server, "the same server to its clients"
        assert one.test_stateids(file.stateid, held) == ["BAD_STATEID"] * 2, "never stale: sessions have no such word"
        new.reclaim_complete()
        with refused("GRACE"):
            new.open(path, access=READ)
        # Nor by another door: what it would lock may be one's.
        daemon.run("mount", mount, check=True)
        with open(mount / "f", "r+b") as local, pytest.raises(BlockingIOError):
            fcntl.lockf(local, fcntl.LOCK_EX | fcntl.LOCK_NB, 500, 5)
        daemon.run("unmount", mount, check=True)
        with refused("RECLAIM_BAD", "NO_GRACE"):
            new.open_handle(file.handle, reclaim=True, access=READ)
        with refused("GRACE"):
            new.read(file, 0, 1, stateid=ANONYMOUS)
        # What loses its name may be one's, and would not be there any more.
        with refused("GRACE"):
            new.remove(path)
        with refused("GRACE"):
            new.rename(spare, path)
        new.rename(spare, path[:-1] + ["moved"])
        back = one.open_handle(file.handle, reclaim=True, access=BOTH, deny=WRITE)
        again = one.lock(back, WRITE_LOCK, 0, 100, reclaim=True)
        # A second crash within the grace: whoever may reclaim still may.
        daemon.kill()
        daemon.start()
        one, two = (Nfs4("127.0.0.1", daemon.nfs_port, owner=owner).session(complete=False) for owner in (b"one", b"two"))
        back = one.open_handle(file.handle, reclaim=True, access=BOTH, deny=WRITE)
        again = one.lock(back, WRITE_LOCK, 0, 100, reclaim=True)
        two.open_handle(other.handle, reclaim=True, access=READ)
        one.reclaim_complete()
        with refused("NO_GRACE"):
            one.open_handle(file.handle, reclaim=True, access=READ)
        two.reclaim_complete()
        # All are back: it ends at once.
        assert one.read(back, 0, 100, stateid=again).data == b"before"
        new = Nfs4("127.0.0.1", daemon.nfs_port, owner=b"new").session()
        with refused("SHARE_DENIED"):
            new.open(path, access=WRITE)
        with refused("DENIED"):
            new.test_lock(file.handle, READ_LOCK)
        new.open(path, access=READ)
        for nfs in (one, two, new):
            nfs.close()
        assert daemon.stop() == 0
        # Nobody reclaims: who did not come back before may not later.
        assert "panicked" not in daemon.log()
    finally:
        daemon.end()


def test_an_open_is_taken_back_by_who_may_have_it(folder):
    """Nothing is remembered of an open but its client, so the right to it is judged."""
    daemon = make(folder, extra=["--squash", "none"]).start()
    try:
        top = [daemon.export.strip("/")]
        with connect(daemon) as root:
            root.setattr(root.handle(top), mode=0o777)
            secret = root.open([*top, "secret"], create=GUARDED, mode=0o600)
            root.write(secret, 0, b"secret")
            shared = root.open([*top, "shared"], create=GUARDED, mode=0o644)
        ann = connect(daemon, owner=b"ann", uid=1000, gid=1000)
        own = ann.open([*top, "own"], create=GUARDED, mode=0o444)
        ann.write(own, 0, b"of its maker")
        daemon.kill()
        daemon.start()
        ann = Nfs4("127.0.0.1", daemon.nfs_port, owner=b"ann", uid=1000, gid=1000).session(complete=False)
        back = ann.open_handle(own.handle, reclaim=True, access=BOTH)
        for file, access in ((secret, READ), (secret, WRITE), (shared, BOTH)):
            with refused("ACCESS"):
                ann.open_handle(file.handle, reclaim=True, access=access, owner=os.urandom(8))
        ann.open_handle(shared.handle, reclaim=True, access=READ)
        ann.write(back, 0, b"Of")
        ann.reclaim_complete()
    finally:
        daemon.end()


def test_a_number_of_changes_is_told_once(folder):
    """What a crash took away counts again, by other changes: no client takes what it has read for what is there."""
    daemon = make(folder, extra=["--squash", "none"]).start()
    try:
        told = set()
        for content in (b"CCCCCCCC", b"DDDDDDDD", b"EEEEEEEE"):
            # The owner of before: grace is over when it is back.
            with connect(daemon, owner=b"one") as nfs:
                file = nfs.open([daemon.export.strip("/"), "f"], access=BOTH, create=UNCHECKED)
                for at in range(4):
                    nfs.write(file, at * 8, content, stable=nfs4.UNSTABLE)
                    change = nfs.attr(file.handle, [nfs4.CHANGE]).change
                    assert not told or change > max(told), "it grows over restarts"
                    told.add(change)
            daemon.kill()
            daemon.start()
        assert len(told) == 12
    finally:
        daemon.end()


def test_what_was_held_of_a_share_goes_with_it(folder):
    daemon = make(folder, extra=["--squash", "none"]).start()
    try:
        path = [daemon.export.strip("/"), "f"]
        with connect(daemon) as nfs, connect(daemon) as other:
            held = nfs.open(path, access=BOTH, deny=BOTH, create=UNCHECKED)
            nfs.lock(held, WRITE_LOCK)
            with refused("SHARE_DENIED"):
                other.open(path, access=READ)
            daemon.run("share", "remove", daemon.share, check=True)
            with refused("STALE"):
                nfs.read(held, 0, 1)
            with refused("NOENT"):
                other.handle(path)
            daemon.run("share", "add", daemon.share, "--volume", "files", "--squash", "none", check=True)
            with refused("BAD_STATEID"):
                nfs.read(held, 0, 1)
            mine = other.open(path, access=BOTH, deny=BOTH)
            other.lock(mine, WRITE_LOCK)
        assert daemon.stop() == 0 and "panicked" not in daemon.log()
    finally:
        daemon.end()


def test_going_back_to_a_snapshot_costs_no_grace(folder):
    """Its clients are still here, and hear that what they had is gone. A restart lets them take back what they have since."""
    daemon = make(folder, extra=["--squash", "none"]).start()
    try:
        top = [daemon.export.strip("/")]
        with connect(daemon, minor=0) as gone:
            # One that had something then, and is not here any more.
            set_client(gone, b"gone")
            file = gone.open([*top, "kept"], create=UNCHECKED, access=BOTH, seqid=1)
            gone.compound(put(file.handle), (nfs4.OPEN_CONFIRM, file.stateid + u32(2), nfs4.stateid))
        daemon.run("snap", "create", "files@then", check=True)
        with connect(daemon, minor=0) as old, connect(daemon, owner=b"new") as new:
            set_client(old, b"old")
            seqid = itertools.count(1)

            def opened(name):
                file = old.open([*top, name], create=UNCHECKED, access=BOTH, seqid=next(seqid))
                if file.flags & 2:
                    confirm = (nfs4.OPEN_CONFIRM, file.stateid + u32(next(seqid)), nfs4.stateid)
                    file.stateid = old.compound(put(file.handle), confirm)[-1]
                return file

            before = opened("later")
            held = new.open([*top, "kept"], access=READ)
            daemon.run("snap", "rollback", "files@then", "--yes", "--force", check=True)
            with refused("BAD_STATEID", "STALE"):
                old.read(before, 0, 1)
            with refused("BAD_STATEID", "STALE"):
                new.read(held, 0, 1)
            new.open([*top, "kept"], access=READ)
            kept = opened("kept")
            old.write(kept, 0, b"after")
        daemon.kill()
        daemon.start()
        with connect(daemon, minor=0) as old, connect(daemon, owner=b"other") as other:
            with refused("GRACE"):
                other.open([*top, "kept"], access=READ)
            set_client(old, b"old", verifier=b"anew    ")
            reclaim = old.open_op(b"", claim=u32(1) + u32(0), seqid=1)
            old.compound(put(kept.handle), reclaim)
    finally:
        daemon.end()


def test_a_server_without_clients_has_no_grace(folder):
    daemon = make(folder).start()
    try:
        path = [daemon.export.strip("/"), "f"]
        daemon.kill()
        daemon.start()
        with connect(daemon) as nfs:
            nfs.open(path, create=UNCHECKED, access=BOTH)
    finally:
        daemon.end()


# ---- hostile clients ----


def test_a_stranger_gets_no_word(folder):
    daemon = make(folder, extra=["--nfs-allow", "192.0.2.1"]).start()
    try:
        daemon.run("share", "set", daemon.share, "--network", "192.0.2.0/24", check=True)
        nfs = Nfs4("127.0.0.1", daemon.nfs_port)
        with pytest.raises(RpcError, match="credential"):
            nfs.exchange_id()
        assert "may not use NFSv4" in daemon.log()
    finally:
        daemon.end()


def test_sessions_and_clients_are_bounded(four, larder):
    with Nfs4("127.0.0.1", larder.nfs_port) as nfs:
        found = nfs.exchange_id()
        sequence = found.sequence
        made = 0
        with pytest.raises(Nfs4Error):
            for made in range(100):
                nfs.create_session(found.client, sequence + made, slots=1 << 20)
        assert 4 <= made <= 32
        before = larder.rss_bytes()
        for n in range(6000):
            nfs.exchange_id(owner=f"client {n}".encode() + bytes(900))
        assert larder.rss_bytes() - before < 64 << 20, "records that nobody confirms make room for each other"
    four.compound(ROOT, GET)


def test_garbage_ends_nothing_but_itself(larder, four, session_seed):
    import random
    dice = random.Random(session_seed)
    for _ in range(300):
        with Nfs4("127.0.0.1", larder.nfs_port) as nfs:
            good = nfs.request([(nfs4.PUTFH, opaque(dice.randbytes(52)), nothing), ROOT, lookup("files"), getattr_()])
            for _ in range(dice.randrange(1, 5)):
                at = dice.randrange(len(good))
                good = good[:at] + dice.randbytes(dice.randrange(1, 9)) + good[at + dice.randrange(9):]
            try:
                nfs.call(nfs4.PROGRAM, 4, 1, good)
            except (RpcError, nfs3.Disconnected):
                pass
    assert four.compound(ROOT, GET)
    assert larder.alive() and "panicked" not in larder.log()
