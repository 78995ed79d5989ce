"""Copies by the server for clients of NFS version 4.2: ranges that share extents, and those that go on behind their answer."""

import time

import pytest

import nfs4
from conftest import make, payload
from nfs3 import u64
from nfs4 import BOTH, READ, SAVE, UNCHECKED, Nfs4, nothing, put, refused
from waiting import wait_for

BACK_CHANNEL = 2
MIB = 1 << 20
# What one WRITE and one READ of a session take.
PIECE = 512 << 10


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    daemon = make(tmp_path_factory.mktemp("copies4"), extra=["--squash", "none"]).start()
    daemon.run("volume", "create", "other", check=True)
    yield daemon
    assert daemon.stop() == 0, daemon.log()[-4000:]
    assert "panicked" not in daemon.log()


def connect(house, **options):
    nfs = Nfs4("127.0.0.1", house.nfs_port, minor=2)
    return nfs.session(**{"flags": BACK_CHANNEL, **options})


@pytest.fixture
def four(house):
    with connect(house) as nfs:
        yield nfs


@pytest.fixture
def name(request):
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


def made(nfs, path):
    """A new file, without the delegation that its client is granted."""
    file = nfs.open(path, access=BOTH, create=UNCHECKED, mode=0o666)
    if file.delegation:
        nfs.return_delegation(file.handle, file.delegation.stateid)
    return file


def filled(nfs, path, data):
    file = made(nfs, path)
    for at in range(0, len(data), PIECE):
        nfs.write(file, at, data[at:at + PIECE], stable=nfs4.UNSTABLE)
    return file


def sparse(nfs, path, size):
    """A large file without data."""
    file = made(nfs, path)
    nfs.setattr(file.handle, file.stateid, size=size)
    return file


def content(nfs, file, size):
    return b"".join(nfs.read(file, at, PIECE).data for at in range(0, size, PIECE))


def both(house, nfs, name, data):
    """A source in one share, and an empty target in another, of another volume."""
    source = filled(nfs, [house.share, name], data)
    return source, made(nfs, ["other", name])


def test_a_copy_to_another_share_goes_on_behind_its_answer(house, four, name):
    data = payload(20 * MIB + 777, 5)
    source, target = both(house, four, name, data)
    copy = four.copy(source, target)
    assert copy.stateid and copy.count == 0
    four.answer_until(lambda: four.offloaded)
    told, = four.offloaded
    assert (told.handle, told.stateid, told.status, told.count) == (target.handle, copy.stateid, 0, len(data))
    (session, ((_, slot),)), = told.referred
    assert (session, slot) == (four.session_id, 0), "the request that it answered"
    assert told.verifier == copy.verifier
    assert content(four, target, len(data)) == data
    # Its stateid has gone with the answer.
    wait_for(lambda: gone(four, target, copy.stateid), 10)
    # A part, to another place.
    copy = four.copy(source, target, source_at=3, target_at=len(data), count=8 * MIB)
    four.answer_until(lambda: four.offloaded[1:])
    assert four.offloaded[1].count == 8 * MIB
    assert content(four, target, len(data) + 8 * MIB) == data + data[3:3 + 8 * MIB]


def gone(nfs, target, stateid):
    try:
        nfs.offload_status(target, stateid)
    except nfs4.Nfs4Error as error:
        assert error.status == nfs4.STATUS["BAD_STATEID"]
        return True
    return False


def test_who_wants_it_at_once_or_cannot_be_called_waits(house, four, name):
    data = payload(6 * MIB, 6)
    source, target = both(house, four, name, data)
    done = four.copy(source, target, synchronous=True)
    assert done.stateid is None and done.count == len(data)
    assert content(four, target, len(data)) == data
    with connect(house, flags=0) as deaf:
        mine, theirs = deaf.open([house.share, name], access=READ), deaf.open(["other", name], access=BOTH)
        done = deaf.copy(mine, theirs)
        assert done.stateid is None and done.count == len(data)
    short = four.copy(source, target, count=MIB)
    assert short.stateid is None and short.count == MIB


def test_a_copy_is_cancelled(house, four, name):
    source = sparse(four, [house.share, name], 64 << 30)
    target = made(four, ["other", name])
    copy = four.copy(source, target)
    wait_for(lambda: four.offload_status(target, copy.stateid)[0] > 0, 20)
    with refused("BAD_STATEID"):
        four.offload_status(source, copy.stateid)
    with connect(house) as other, refused("BAD_STATEID"):
        other.offload_cancel(target, copy.stateid)
    four.offload_cancel(target, copy.stateid)
    size = four.attr(target.handle).size
    with refused("BAD_STATEID"):
        four.offload_status(target, copy.stateid)
    time.sleep(1)
    assert four.attr(target.handle).size == size < 64 << 30, "nothing is written any more"
    assert not four.offloaded
    four.remove(["other", name])
    four.remove([house.share, name])


def test_copies_end_with_their_client_and_are_bounded(house, four, name):
    source = sparse(four, [house.share, name], 64 << 30)
    with connect(house) as leaving:
        mine = leaving.open([house.share, name], access=READ)
        targets = [made(leaving, ["other", f"{name}{n}"]) for n in range(9)]
        begun = [leaving.copy(mine, target) for target in targets[:8]]
        assert all(copy.stateid for copy in begun)
        ninth = leaving.copy(mine, targets[8])
        assert ninth.stateid is None and 0 < ninth.count < 64 << 30, "it waits for as much as its time allows"
        for file in (mine, *targets):
            leaving.close_file(file)
        leaving.leave()
    sizes = lambda: [four.attr(["other", f"{name}{n}"]).size for n in range(8)]
    seen = wait_for(lambda: (one := sizes()) == (time.sleep(1), sizes())[1] and one, 30)
    assert max(seen) < 64 << 30
    assert not four.offloaded
    for n in range(9):
        four.remove(["other", f"{name}{n}"])
    four.remove([house.share, name])


def test_a_copy_ends_with_its_share(house, four, name):
    house.run("volume", "create", "third", check=True)
    source = sparse(four, [house.share, name], 64 << 30)
    target = made(four, ["third", name])
    copy = four.copy(source, target)
    wait_for(lambda: four.offload_status(target, copy.stateid)[0] > 0, 20)
    house.run("share", "remove", "third", check=True)
    four.answer_until(lambda: four.offloaded)
    assert four.offloaded[0].status != 0 and 0 < four.offloaded[0].count < 64 << 30
    four.remove([house.share, name])


def test_a_copy_waits_for_delegations_of_others(house, four, name):
    data = payload(6 * MIB, 8)
    source, target = both(house, four, name, data)
    four.close_file(target)
    with connect(house) as reader:
        read = reader.open(["other", name], access=READ)
        assert read.delegation, "it is the only one who has it open"
        # The client that copies opens it by a stateid of nobody, and closes nothing: the copy itself recalls.
        target.stateid = nfs4.ANONYMOUS
        with refused("DELAY"):
            four.copy(source, target)
        stateid, handle = reader.await_recall()
        reader.return_delegation(handle, stateid)
        copy = four.copy(source, target)
        four.answer_until(lambda: four.offloaded)
        assert copy.stateid and four.offloaded[0].status == 0
        assert content(reader, read, len(data)) == data


@pytest.mark.alone
def test_ten_gibibytes_within_a_volume_take_less_than_a_second(house, four, name):
    """Really written ones: of each extent there is data, in as many extents as 10 GiB have."""
    written, whole = 128 * MIB, 10 << 30
    source = filled(four, [house.share, name], payload(written, 9))
    clone = lambda into, source_at, at, count: four.compound(put(source.handle), SAVE, put(into.handle), (
        nfs4.CLONE, source.stateid + into.stateid + u64(source_at) + u64(at) + u64(count), nothing))
    large = made(four, [house.share, name + "-large"])
    for at in range(0, whole, written):
        clone(large, 0, at, written)
    assert four.attr(large.handle).size == whole
    took = {"CLONE": [], "COPY": []}
    for n in range(3):
        for how in took:
            target = made(four, [house.share, f"{name}-{how}{n}"])
            began = time.monotonic()
            if how == "CLONE":
                four.compound(put(large.handle), SAVE, put(target.handle), (
                    nfs4.CLONE, large.stateid + target.stateid + u64(0) * 3, nothing))
            else:
                at = 0
                while at < whole:
                    done = four.copy(large, target, at, at, whole - at)
                    assert done.stateid is None and done.count > 0, "it shares extents"
                    at += done.count
            took[how].append(time.monotonic() - began)
            assert four.attr(target.handle).size == whole
            assert four.read(target, whole - 100, 100).data == four.read(source, written - 100, 100).data
    print({how: [f"{s:.3f} s" for s in times] for how, times in took.items()})
    assert min(took["CLONE"]) < 1 and min(took["COPY"]) < 1, took
