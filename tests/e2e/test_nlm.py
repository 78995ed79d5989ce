"""Locks of NFS v3 clients (NLM 4, NSM): among each other, with other doors, waiting, restarts of either side, and strangers."""

import fcntl
import queue
import socket
import time

import pytest
from impacket import smb3structs as smb2

import nlm
from conftest import client, make
from nfs3 import Rpc, RpcError, opaque, u32
from nfs4 import BOTH, READ, READ_LOCK, WRITE, WRITE_LOCK, Nfs4, refused
from nlm import BLOCKED, DEADLOCK, DENIED, FAILED, FBIG, GRACE, NOLOCKS, OK, ROFS, STALE, Machine, Programs
from test_sharing import LOCK_NOT_GRANTED, Smb, is_locked, posix
from waiting import wait_for

# Clients have a port mapper, on port 111: no other server's may run beside them.
pytestmark = [pytest.mark.xdist_group("port-111"), pytest.mark.long]

# CREATE_SESSION4_FLAG_CONN_BACK_CHAN: who cannot be called back gets no delegation.
BACK_CHANNEL = 2
ONE, TWO, THREE = "127.0.0.2", "127.0.0.3", "127.0.0.4"
# Programs may be told late on a machine that is busy.
TOLD_S = 30


def port_mapper():
    """An option of larder: without a port mapper nobody finds its locks, and it hears no datagrams."""
    with socket.socket() as free:
        free.bind(("127.0.0.5", 0))
        return f"--portmapper=127.0.0.5:{free.getsockname()[1]}"


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    """NFS, a share over SMB, and a mount."""
    folder = tmp_path_factory.mktemp("nlm")
    daemon = make(folder, extra=["--squash", "none", port_mapper()]).start()
    daemon.mount = folder / "mnt"
    daemon.mount.mkdir()
    daemon.run("mount", daemon.mount, check=True)
    daemon.mount.chmod(0o777)
    yield daemon
    assert daemon.stop() == 0, daemon.log()[-4000:]
    assert "panicked" not in daemon.log()


@pytest.fixture
def one(doors):
    with Machine(ONE, doors) as machine:
        yield machine
        machine.free_all()


@pytest.fixture
def two(doors):
    with Machine(TWO, doors) as machine:
        yield machine
        machine.free_all()


@pytest.fixture
def name(request):
    return request.node.name.replace("[", "-").rstrip("]")


def made(daemon, name, **attributes):
    with client(daemon) as nfs:
        return nfs.create(nfs.root, name, **{"mode": 0o666, **attributes}).handle


@pytest.fixture
def file(doors, name):
    return made(doors, name)


# ---- among clients ----


def test_locks_of_two_machines_exclude_each_other(one, two, file):
    assert one.lock(file, 10, 10) == OK
    assert two.lock(file, 19, 1) == DENIED and two.lock(file, 20, 0) == OK
    stat, holder = two.test(file, 0, 15, exclusive=False)
    assert (stat, vars(holder)) == (DENIED, {"exclusive": True, "process": 1, "owner": f"1@{one.name}".encode(), "start": 10, "length": 10})
    assert one.lock(file, 0, 100) == DENIED
    assert one.test(file, 30, 1)[1].length == 0, "a lock to the end of the file"
    assert one.unlock(file, 12, 3) == OK, "the middle of a lock"
    assert two.lock(file, 12, 3) == OK and two.lock(file, 11, 1) == DENIED and two.lock(file, 15, 1) == DENIED
    assert two.unlock(file) == OK
    assert one.lock(file, 10, 10, exclusive=False) == OK, "its own lock is replaced"
    assert two.lock(file, 10, 10, exclusive=False) == OK and two.lock(file, 10, 10) == DENIED
    assert one.lock(file, 5, 5, process=2) == OK and one.lock(file, 10, 1, process=2) == DENIED, "another process of one machine"
    assert one.lock(file, 5, 5, process=2, owner="another") == DENIED, "another owner of one process"
    assert one.test(file, 10, 10, exclusive=False) == (OK, None)
    assert one.unlock(file, 1 << 40, 5) == OK and one.unlock(file, process=77) == OK, "what nobody has"


def test_ranges_that_no_file_has(one, two, file):
    last = (1 << 64) - 1
    assert one.lock(file, last, 2) == FBIG and one.lock(file, 2, last) == FBIG and one.unlock(file, last, last) == FBIG
    assert one.lock(file, last, 1) == OK and two.lock(file, last - 1, 0) == DENIED and two.lock(file, 0, last) == OK


def test_who_waits_is_told(one, two, file):
    assert one.lock(file, 0, 10) == OK
    assert two.lock(file, 5, 10, waits=True) == BLOCKED
    assert two.lock(file, 5, 10, waits=True) == BLOCKED, "a client asks again"
    assert two.granted.empty()
    assert one.unlock(file, 0, 10) == OK
    call = two.granted.get(timeout=TOLD_S)
    assert call.caller == "127.0.0.1", "from the address that was called"
    assert (call.exclusive, call.name, call.handle, call.owner) == (True, two.name.encode(), file, f"1@{two.name}".encode())
    assert (call.process, call.start, call.length) == (1, 5, 10)
    assert one.lock(file, 5, 1) == DENIED
    time.sleep(3)
    assert two.granted.empty(), "it is told once"
    assert two.unlock(file, 5, 10) == OK and one.lock(file, 5, 1) == OK


def test_who_gives_up_waiting_gets_nothing(one, two, file):
    assert one.lock(file) == OK and two.lock(file, waits=True) == BLOCKED
    assert two.cancel(file, 0, 5) == DENIED, "another range"
    assert two.cancel(file) == OK and two.cancel(file) == DENIED
    assert one.unlock(file) == OK
    assert one.lock(file, process=5) == OK
    with pytest.raises(queue.Empty):
        two.granted.get(timeout=2)


def test_a_client_that_does_not_want_the_lock_any_more_loses_it(one, two, file):
    two.programs.answer = DENIED
    assert one.lock(file) == OK and two.lock(file, waits=True) == BLOCKED
    assert one.unlock(file) == OK
    two.granted.get(timeout=TOLD_S)
    wait_for(lambda: one.test(file)[0] == OK, TOLD_S, lambda: "it is free")


def test_a_client_is_told_until_it_answers(doors, one, file):
    with Machine(THREE, doors, programs=False) as deaf:
        assert one.lock(file) == OK and deaf.lock(file, waits=True) == BLOCKED
        assert one.unlock(file) == OK
        wait_for(lambda: one.test(file)[0] == DENIED, TOLD_S, lambda: "the lock is taken")
        time.sleep(2)
        deaf.programs = Programs(THREE)
        deaf.programs.answer = None
        deaf.granted.get(timeout=TOLD_S)
        deaf.programs.answer = OK
        deaf.granted.get(timeout=60)
        assert one.lock(file) == DENIED
        # And one that asks by itself needs no call.
        assert deaf.unlock(file) == OK and one.lock(file) == OK
        deaf.programs.answer = None
        assert deaf.lock(file, waits=True) == BLOCKED and one.unlock(file) == OK
        deaf.granted.get(timeout=60)
        assert deaf.lock(file, waits=True) == OK
        assert deaf.unlock(file) == OK and one.lock(file) == OK
        deaf.free_all()


def test_a_ring_of_waits_is_refused(one, two, name, doors):
    first, second = made(doors, name + "1"), made(doors, name + "2")
    assert one.lock(first) == OK and two.lock(second) == OK
    assert one.lock(second, waits=True) == BLOCKED
    assert two.lock(first, waits=True) == DEADLOCK
    assert two.lock(first) == DENIED
    assert two.unlock(second) == OK
    one.granted.get(timeout=TOLD_S)


def test_calls_that_are_answered_by_calls(one, two, file):
    lock = one.lock_arguments(file, 0, 10, True, 1, None, False, False)
    assert one.ask_by_message(nlm.LOCK_MSG, lock) == (nlm.LOCK_RES, OK)
    assert two.lock(file, 0, 1) == DENIED
    lock = two.lock_arguments(file, 0, 10, True, 1, None, True, False)
    assert two.ask_by_message(nlm.LOCK_MSG, lock) == (nlm.LOCK_RES, BLOCKED)
    assert two.ask_by_message(nlm.TEST_MSG, u32(1) + two.file(file, 1, None, 0, 1)) == (nlm.TEST_RES, DENIED)
    assert two.ask_by_message(nlm.CANCEL_MSG, u32(1) + u32(1) + two.file(file, 1, None, 0, 10)) == (nlm.CANCEL_RES, OK)
    assert one.ask_by_message(nlm.UNLOCK_MSG, one.file(file, 1, None, 0, 10)) == (nlm.UNLOCK_RES, OK)
    assert two.lock(file, 0, 1) == OK


def test_share_modes_of_dos(doors, one, two, file, name):
    assert one.share(file, mode=2, access=1) == OK, "reads, and lets nobody write"
    assert two.share(file, mode=0, access=2) == DENIED and two.share(file, mode=0, access=1) == OK
    with Nfs4("127.0.0.1", doors.nfs_port).session() as four, refused("SHARE_DENIED"):
        four.open([doors.share, name], access=WRITE)
    assert two.share(file, mode=1, access=1) == DENIED
    assert one.share(file, 0, 0, procedure=nlm.UNSHARE) == OK
    assert two.share(file, mode=2, access=2) == OK
    with pytest.raises(RpcError, match="GARBAGE"):
        two.share(file, mode=4, access=1)
    two.free_all()
    assert one.share(file, mode=3, access=3) == OK


# ---- with other doors ----


def test_nfs4(doors, one, file, name):
    with Nfs4("127.0.0.1", doors.nfs_port).session() as four:
        opened = four.open([doors.share, name], access=BOTH)
        held = four.lock(opened, WRITE_LOCK, 0, 10)
        assert one.lock(file, 5, 1) == DENIED and one.test(file, 5, 1)[1].length == 10
        assert one.lock(file, 5, 1, waits=True) == BLOCKED and one.lock(file, 10, 10) == OK
        with refused("DENIED"):
            four.lock(opened, READ_LOCK, 15, 1, owner=b"other")
        held = four.unlock(opened, held, WRITE_LOCK, 0, 10)
        assert one.granted.get(timeout=TOLD_S).start == 5
        with refused("DENIED"):
            four.lock(opened, WRITE_LOCK, 0, 10, held=held)
        assert one.unlock(file) == OK
        four.lock(opened, WRITE_LOCK, 0, 10, owner=b"third")


def test_the_end_of_an_open_takes_no_lock_of_another_along(doors, one, file, name):
    """Opens and owners of locks have numbers of their own, whatever they are."""
    with Nfs4("127.0.0.1", doors.nfs_port).session() as four:
        opened = four.open([doors.share, name], access=BOTH)
        for n in range(8):
            four.lock(opened, WRITE_LOCK, n, 1, owner=f"owner {n}".encode())
        for n in range(64):
            four.close_file(four.open([doors.share, name], access=READ, owner=f"opener {n}".encode()))
        assert [one.lock(file, n, 1) for n in range(8)] == [DENIED] * 8


def test_smb(doors, one, file, name):
    with Smb(doors, doors.share, name) as smb:
        assert smb.lock(0, 10) == 0
        assert one.lock(file, 9, 1) == DENIED and one.lock(file, 9, 1, waits=True) == BLOCKED
        assert smb.unlock(0, 10) == 0
        one.granted.get(timeout=TOLD_S)
        assert smb.lock(9, 1) == LOCK_NOT_GRANTED and smb.lock(9, 1, exclusive=False) == LOCK_NOT_GRANTED
        waiting = smb.ask_for_locks((9, 1, smb2.SMB2_LOCKFLAG_EXCLUSIVE_LOCK))
        assert one.unlock(file, 9, 1) == OK
        assert smb.low.recvSMB(waiting)["Status"] == 0
        assert one.lock(file, 0, 0) == DENIED


def test_a_mount(doors, one, file, name):
    with open(doors.mount / name, "r+b") as f:
        posix(f, fcntl.LOCK_EX, 10, 10)
        stat, holder = one.test(file, 19, 1)
        assert (stat, holder.exclusive, holder.start, holder.length) == (DENIED, True, 10, 10)
        assert one.lock(file, 0, 10) == OK and one.lock(file, 10, 1, waits=True) == BLOCKED
        assert is_locked(f, fcntl.LOCK_SH, 5, 1)
        posix(f, fcntl.LOCK_UN, 10, 10)
        one.granted.get(timeout=TOLD_S)
        assert is_locked(f, fcntl.LOCK_EX, 10, 1)
        one.free_all()
        assert not is_locked(f, fcntl.LOCK_EX)


def test_no_client_locks_alone_beside_a_lock(doors, one, two, file, name):
    """A delegation would let an NFSv4 client grant its own locks."""
    with Nfs4("127.0.0.1", doors.nfs_port).session(flags=BACK_CHANNEL) as four:
        opened = four.open([doors.share, name], access=READ)
        assert opened.delegation
        with Machine(THREE, doors, programs=False) as third:
            sent = third.send(nlm.NLM, 4, nlm.LOCK, opaque(b"c") + third.lock_arguments(file, 0, 1, True, 1, None, False, False))
            returned, handle = four.await_recall()
            four.return_delegation(handle, returned)
            xid, r = third.receive()
            assert (xid == sent, r.opaque(), r.u32()) == (True, b"c", OK)
            third.free_all()
        another = made(doors, name + "-another")
        for exclusive, access, granted in ((True, READ, False), (False, READ, True), (False, BOTH, False)):
            assert one.lock(another, 0, 1, exclusive=exclusive) == OK
            found = four.open([doors.share, name + "-another"], access=access, owner=f"{exclusive} {access}".encode())
            assert bool(found.delegation) == granted, (exclusive, access)
            if granted:
                four.return_delegation(another, found.delegation.stateid)
            four.close_file(found)
            assert one.unlock(another) == OK


# ---- who may ----


def test_another_address_is_another_client(doors, one, file):
    """Whatever it calls itself."""
    assert one.lock(file, 0, 10) == OK
    with Machine(TWO, doors, name=one.name) as thief:
        assert thief.unlock(file) == OK and thief.lock(file, 0, 10) == DENIED
        thief.free_all()
        assert thief.restarted(life=99)
        assert thief.lock(file, 0, 10) == DENIED and thief.lock(file, 0, 10, reclaim=True) == GRACE
        assert thief.lock(file, 0, 10, waits=True) == BLOCKED
        assert one.cancel(file, 0, 10) == DENIED
        thief.free_all()
    assert one.lock(file, 0, 10) == OK


def test_the_caller_must_be_allowed_to_use_the_file(doors, one, name):
    own = made(doors, name, mode=0o600)
    assert one.lock(own) == OK and one.unlock(own) == OK
    one.as_user(1234, 1234)
    assert one.lock(own) == FAILED and one.lock(own, exclusive=False) == FAILED and one.test(own)[0] == FAILED
    one.as_user(0, 0)
    with client(doors) as nfs:
        folder = nfs.mkdir(nfs.root, name + "-folder").handle
        nfs.remove(nfs.root, name)
    assert one.lock(folder) == FAILED
    assert one.lock(own) == STALE and one.unlock(own) == OK
    assert one.lock(b"no handle") == STALE and one.lock(own[:-1] + bytes([own[-1] ^ 1])) == STALE


def test_shares_decide_as_for_files(folder):
    daemon = make(folder, extra=[port_mapper()]).start()
    try:
        daemon.run("share", "set", daemon.share, "--squash", "none", check=True)
        file = made(daemon, "f", mode=0o600)
        with Machine(ONE, daemon, programs=False) as one:
            assert one.lock(file) == OK
            daemon.run("share", "set", daemon.share, "--squash", "root", check=True)
            assert one.lock(file, 0, 5, process=2) == FAILED, "root is nobody"
            daemon.run("share", "set", daemon.share, "--squash", "none", "--read-only", check=True)
            assert one.lock(file, 0, 5) == ROFS and one.lock(file, 0, 5, exclusive=False) == OK
            daemon.run("share", "set", daemon.share, "--network", TWO, check=True)
            assert one.lock(file, 0, 5, exclusive=False) == FAILED
            with pytest.raises(RpcError, match="credential"):
                one.free_all()
        with Machine(TWO, daemon, programs=False, reserved=False) as two:
            assert two.lock(file, exclusive=False) == FAILED, "a port of anybody"
        with Machine(TWO, daemon, programs=False) as two:
            assert two.lock(file, 0, 5, exclusive=False) == OK
            assert not two.restarted(reserved=False)
        assert daemon.stop() == 0 and "panicked" not in daemon.log()
    finally:
        daemon.end()


def test_what_a_share_had_locked_goes_with_it(folder):
    daemon = make(folder, extra=["--squash", "none", port_mapper()]).start()
    try:
        file = made(daemon, "f")
        with Machine(ONE, daemon) as one, Machine(TWO, daemon, programs=False) as two:
            assert one.lock(file) == OK and two.lock(file, waits=True) == BLOCKED
            daemon.run("share", "remove", daemon.share, check=True)
            assert one.lock(file) == STALE
            daemon.run("share", "add", daemon.share, "--volume", "files", "--squash", "none", check=True)
            assert two.lock(file) == GRACE, "as after a restart: who had locks may take them back first"
            assert one.lock(file, reclaim=True) == OK
        assert daemon.stop() == 0 and "panicked" not in daemon.log()
    finally:
        daemon.end()


# ---- restarts ----


def test_a_client_that_restarts_has_nothing(one, two, file):
    assert one.lock(file, 0, 10) == OK and one.lock(file, 20, 10, process=2) == OK
    assert two.lock(file, 0, 10, waits=True) == BLOCKED
    assert one.restarted(life=1), "the life that the locks are from: a message that came twice"
    assert two.lock(file, 20, 10) == DENIED
    assert one.restarted(life=3, name=one.name + ".home")
    two.granted.get(timeout=TOLD_S)
    assert two.lock(file, 20, 10) == OK
    assert one.lock(file, 30, 1) == OK
    assert one.restarted(life=3), "again"
    assert two.lock(file, 30, 1) == DENIED


def life_told(machine):
    """The number of the server's life, which a client hears by all names of the server. It knows one of them: Linux' monitors the
    address of its mount, others the name in it."""
    told, names = {}, {"127.0.0.1", socket.gethostname()}
    while set(told) != names:
        name, life = machine.notified.get(timeout=TOLD_S)
        if name in names:
            told[name] = life
    life, = set(told.values())
    assert life % 2 == 1
    return life


def test_locks_come_back_after_a_crash_and_after_the_next(folder, tmp_path):
    mount = tmp_path / "mount"
    mount.mkdir()
    daemon = make(folder, extra=["--squash", "none", port_mapper()]).start()
    try:
        file = made(daemon, "f")
        with Machine(ONE, daemon) as one, Machine(TWO, daemon) as two, Machine(THREE, daemon, programs=False) as third:
            assert one.lock(file, 0, 10) == OK and two.lock(file, 10, 10) == OK
            lives = []
            for crash in range(2):
                daemon.kill()
                daemon.start()
                for machine in (one, two, third):
                    machine.connect_again()
                for machine in (one, two):
                    lives.append(life_told(machine))
                assert third.lock(file, 500, 1) == GRACE and third.test(file)[0] == GRACE
                assert third.lock(file, 0, 1, reclaim=True) == DENIED, "it had nothing"
                with Nfs4("127.0.0.1", daemon.nfs_port).session() as four, refused("GRACE"):
                    four.open([daemon.share, "f"], access=READ)
                daemon.run("mount", mount, check=True)
                with open(mount / "f", "r+b") as local:
                    assert is_locked(local, fcntl.LOCK_EX, 500, 5)
                daemon.run("unmount", mount, check=True)
                assert one.lock(file, 0, 10, reclaim=True) == OK
                if crash == 1:
                    assert two.lock(file, 10, 10, reclaim=True) == OK
            assert lives[2] > lives[0]
            # All have taken back what they had, and it ends before its minute is over.
            back = time.monotonic()
            wait_for(lambda: third.lock(file, 500, 1) == OK, 45, lambda: "grace is over")
            assert time.monotonic() - back < 40
            assert third.lock(file, 0, 1) == DENIED and third.lock(file, 10, 1) == DENIED
            assert two.lock(file, 10, 10, reclaim=True) == OK, "it has it still"
            assert third.lock(file, 700, 1, process=2, reclaim=True) == GRACE, "too late"
        assert daemon.stop() == 0 and "panicked" not in daemon.log()
    finally:
        daemon.end()


def test_nobody_waits_for_clients_without_locks(folder):
    daemon = make(folder, extra=["--squash", "none", port_mapper()]).start()
    try:
        file = made(daemon, "f")
        with Machine(ONE, daemon, programs=False) as one:
            assert one.lock(file) == OK and one.unlock(file) == OK
            # A minute without locks, and the next look.
            time.sleep(75)
            daemon.kill()
            daemon.start()
        with Machine(TWO, daemon, programs=False) as two:
            assert two.lock(file) == OK
    finally:
        daemon.end()


# ---- hostile clients ----


def test_what_is_no_call(doors, one, file):
    good = one.lock_arguments(file, 0, 10, True, 1, None, False, False)
    for procedure, arguments, why in [
        (16, b"", "PROC_UNAVAIL"), (99, b"", "PROC_UNAVAIL"), (2, b"", "GARBAGE"), (2, opaque(bytes(1025)) + good, "GARBAGE"),
        (2, opaque(b"c") + good[:-4], "GARBAGE"), (2, opaque(b"c") + u32(2) + good[4:], "GARBAGE"), (4, u32(1 << 31), "GARBAGE"),
    ]:
        with pytest.raises(RpcError, match=why):
            one.nlm(procedure, arguments)
    for version in (1, 3, 5):
        with pytest.raises(RpcError, match="MISMATCH"):
            one.call(nlm.NLM, version, 0, b"")
    one.nlm(0, b"").done()
    for procedure in (5, 10, 11, 15):
        one.nlm(procedure, b"anything").done()
    with pytest.raises(RpcError, match="MISMATCH"):
        one.call(nlm.NSM, 2, 0, b"")
    assert [one.call(nlm.NSM, 1, procedure, opaque("any")).u32() for procedure in (1, 2)] == [1, 1]
    assert [one.call(nlm.NSM, 1, procedure, opaque("any")).u32() % 2 for procedure in (3, 4)] == [1, 1]
    one.call(nlm.NSM, 1, 5, b"").done()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        for datagram in (b"", b"x", bytes(4000), bytes(8) + u32(2) + u32(nlm.NLM) + u32(4) + u32(2) + bytes(16)):
            link.sendto(datagram, ("127.0.0.1", doors.nfs_port))
    assert one.lock(file) == OK


def test_waits_owners_and_names_are_bounded(doors, one, two, file):
    assert one.lock(file) == OK
    before = doors.rss_bytes()
    blocked = [two.lock(file, n, 1, process=n, waits=True) for n in range(300)]
    assert blocked.count(BLOCKED) == 256 and blocked[256:] == [NOLOCKS] * 44
    names = []
    for n in range(80):
        two.name = f"{n}".rjust(1000, "x")
        names.append(two.lock(file, 0, 1, waits=True))
    assert set(names) == {NOLOCKS}
    assert doors.rss_bytes() - before < 64 << 20
    two.name = f"machine-{TWO}"
    two.free_all()
    assert one.unlock(file) == OK
    assert two.lock(file) == OK, "nothing is left of them"


def test_one_client_that_hangs_holds_up_nobody(doors, one, two, file):
    """It neither answers nor ends its connections."""
    two.programs.answer = None
    assert one.lock(file, 0, 10) == OK
    for process in range(20):
        assert two.lock(file, process % 10, 1, process=process, waits=True) == BLOCKED
    assert one.unlock(file) == OK
    began = time.monotonic()
    assert one.lock(file, 100, 1) == OK and one.unlock(file, 100, 1) == OK
    assert time.monotonic() - began < 5


# ---- being found ----


def test_the_port_mapper_names_them(folder):
    option = port_mapper()
    port = int(option.rpartition(":")[2])
    daemon = make(folder, extra=[option]).start()
    try:
        with Rpc("127.0.0.5", port) as mapper:
            def found(program, version, protocol):
                return mapper.call(nlm.MAPPER, 2, 3, u32(program) + u32(version) + u32(protocol) + u32(0)).u32()

            assert found(nlm.NLM, 4, 6) == found(nlm.NSM, 1, 6) == found(nlm.NSM, 1, 17) == daemon.nfs_port
            assert found(nlm.NLM, 4, 17) == 0
    finally:
        daemon.end()


def test_the_port_mapper_has_universal_addresses(folder):
    """As clients over IPv6 ask for them: versions 3 and 4."""
    with socket.socket(socket.AF_INET6) as free:
        free.bind(("::1", 0))
        port = free.getsockname()[1]
    daemon = make(folder, extra=[f"--portmapper=[::1]:{port}"]).start()
    try:
        high, low = divmod(daemon.nfs_port, 256)
        with Rpc("::1", port) as mapper:
            def found(version, program, number, net_id):
                asked = u32(program) + u32(number) + opaque(net_id) + opaque("") + opaque("")
                return mapper.call(nlm.MAPPER, version, 3, asked).opaque().decode()

            for version in (3, 4):
                for program, number in ((100003, 3), (100003, 4), (100005, 3), (nlm.NLM, 4), (nlm.NSM, 1)):
                    assert found(version, program, number, "tcp6") == found(version, program, number, "") == f"::1.{high}.{low}"
                assert found(version, nlm.NLM, 4, "udp6") == found(version, 100009, 1, "tcp6") == ""
                listed, r = set(), mapper.call(nlm.MAPPER, version, 4, b"")
                while r.bool():
                    listed.add((r.u32(), r.u32(), r.opaque().decode(), r.opaque().decode(), r.opaque()))
                assert (100003, 4, "tcp6", f"::1.{high}.{low}", b"superuser") in listed
                assert (nlm.NSM, 1, "udp6", f"::1.{high}.{low}", b"superuser") in listed
            with pytest.raises(RpcError):
                mapper.call(nlm.MAPPER, 5, 3, b"")
        assert daemon.stop() == 0 and "panicked" not in daemon.log()
    finally:
        daemon.end()
