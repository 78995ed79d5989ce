"""NFS handles that a client makes up, changes, keeps or takes elsewhere: each leads to nothing that its sender may not reach."""

import json
import random
import struct

import pytest

import nfs3
from conftest import make
from larderd import Larder
from nfs3 import GUARDED, Nfs3, NfsError
from test_golden import unpack
from test_snapshots import snap

ANN, ANONYMOUS = 2001, 3001
SECRET = b"ann diary: top secret"
MASK = (1 << 64) - 1
REFUSED = (nfs3.BADHANDLE, nfs3.STALE)


def checksum(body, seed=0x6C61726465726E66):
    """XXH3-64 of 33 to 64 bytes: the checksum in the handles of older larders."""
    secret = bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
        "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    )

    def mix(at, of):
        low, high = struct.unpack_from("<QQ", body, at)
        one, two = struct.unpack_from("<QQ", secret, of)
        product = (low ^ (one + seed & MASK)) * (high ^ (two - seed & MASK))
        return (product ^ product >> 64) & MASK

    last = len(body)
    total = last * 0x9E3779B185EBCA87 + mix(16, 32) + mix(last - 32, 48) + mix(0, 0) + mix(last - 16, 16) & MASK
    total = (total ^ total >> 37) * 0x165667919E3779F9 & MASK
    return total ^ total >> 32


def test_the_checksum_is_that_of_older_larders():
    body = b"LN31" + bytes([7] * 16) + struct.pack(">QQQ", 0x0102, 0x1122, 5)
    assert checksum(body) == 0x8F0AF5C624AE925A


def unmix(value):
    """The inverse of splitmix64's finisher, by which older larders made generations."""

    def unshift(value, by):
        out = value
        for _ in range(64 // by):
            out = value ^ out >> by
        return out

    value = unshift(value, 31)
    value = unshift(value * pow(0x94D049BB133111EB, -1, 1 << 64) & MASK, 27)
    return unshift(value * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & MASK, 30)


def mix(value):
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK
    return value ^ value >> 31


def parts(handle):
    """Magic, volume, fsid, inode, generation, checksum or seal."""
    return struct.unpack(">4s16sQQQQ", handle)


def older(handle, **changed):
    """The handle in the form of older larders, with other fields."""
    _, volume, fsid, ino, generation, _ = parts(handle)
    fields = {"volume": volume, "fsid": fsid, "ino": ino, "generation": generation, **changed}
    body = b"LN31" + fields["volume"] + struct.pack(">QQQ", fields["fsid"], fields["ino"], fields["generation"])
    return body + struct.pack(">Q", checksum(body))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    larder = make(tmp_path_factory.mktemp("handles")).start()
    larder.run("share", "set", larder.share, "--squash", "none", check=True)
    for name, options in {
        "all": ["--squash", "all", "--anon-uid", ANONYMOUS, "--anon-gid", ANONYMOUS],
        "part": ["--folder", "part", "--squash", "none"],
        "other": ["--folder", "other", "--squash", "none"],
    }.items():
        words = [str(word) for word in ("share", "add", name, "--volume", "files", *options)]
        larder.run(*words, check=True)
    with root(larder) as nfs:
        deep = nfs.mkdir(nfs.root, "deep", mode=0o700, uid=ANN, gid=ANN).handle
        diary = nfs.create(deep, "diary", GUARDED, mode=0o644, uid=ANN, gid=ANN).handle
        nfs.write(diary, 0, SECRET, nfs3.FILE_SYNC)
        nfs.setattr(nfs.root, mode=0o1777)
        for folder in ("part", "other"):
            at = nfs.walk(folder)
            nfs.setattr(at, mode=0o1777)
            nfs.write(nfs.create(at, "inside", GUARDED, mode=0o644).handle, 0, b"inside", nfs3.FILE_SYNC)
        larder.diary, larder.deep = diary, deep
    yield larder
    log = larder.log()
    assert larder.stop() == 0 and "panicked" not in log, log[-4000:]


def root(daemon):
    return Nfs3.mount("127.0.0.1", daemon.nfs_port, daemon.export)


def export(daemon, name, uid=0):
    return Nfs3.mount("127.0.0.1", daemon.nfs_port, f"/{name}", uid=uid, gid=uid)


def answers(nfs, handle):
    """Whether a handle leads to anything: by no procedure, or it is an error."""
    statuses = set()
    for call in (nfs.getattr, lambda at: nfs.read(at, 0, 100), lambda at: nfs.lookup(at, "diary"), nfs.readdir,
                 lambda at: nfs.write(at, 0, b"forged"), lambda at: nfs.rename(at, "inside", at, "moved")):
        try:
            call(handle)
            return True
        except NfsError as error:
            statuses.add(error.status)
    assert statuses <= set(REFUSED), statuses
    return False


def test_handles_are_not_made_up_from_ones_own(daemon):
    """By name nobody of squash=all gets into ann's folder; the generation of one's own file must not open it."""
    with export(daemon, "all") as nfs:
        deep = nfs.lookup(nfs.root, "deep").handle
        with pytest.raises(NfsError) as error:
            nfs.lookup(deep, "diary")
        assert error.value.status == nfs3.ACCES
        own = nfs.create(nfs.root, "mine", GUARDED, mode=0o644).handle
        assert nfs.getattr(own).uid == ANONYMOUS
        _, _, _, ino, generation, _ = parts(own)
        seed = unmix(generation) ^ ino
        for guess in range(max(2, ino - 40), ino + 1):
            for magic in (b"LN31", b"LN3S", b"LN32"):
                forged = bytearray(older(own, ino=guess, generation=mix(seed ^ guess)))
                forged[:4] = magic
                assert not answers(nfs, bytes(forged)), f"inode {guess}"


def test_a_handle_of_another_client_does_not_help(daemon):
    """Somebody who knows inode and generation (from a packet, a log, an export that he may use) still has no seal."""
    with export(daemon, "all") as nfs:
        _, volume, _, ino, generation, seal = parts(daemon.diary)
        own = nfs.root
        assert not answers(nfs, older(own, ino=ino, generation=generation)), "without a seal"
        taken = own[:4] + volume + own[20:28] + struct.pack(">QQQ", ino, generation, seal)
        assert not answers(nfs, taken), "with the seal of another export"
        zero = own[:28] + struct.pack(">QQQ", ino, generation, 0)
        assert not answers(nfs, zero)


def test_no_bit_can_be_turned(daemon, session_seed):
    chance = random.Random(session_seed)
    with root(daemon) as nfs:
        for handle in (nfs.root, daemon.diary):
            for bit in range(len(handle) * 8):
                turned = bytearray(handle)
                turned[bit // 8] ^= 1 << bit % 8
                with pytest.raises(NfsError) as error:
                    nfs.getattr(bytes(turned))
                assert error.value.status in REFUSED, bit
        for length in (*range(0, 64), 64):
            if length != len(nfs.root):
                with pytest.raises(NfsError) as error:
                    nfs.getattr(chance.randbytes(length))
                assert error.value.status in REFUSED, length


def test_a_handle_is_good_in_its_own_export_alone(daemon):
    with export(daemon, "part") as part, export(daemon, "other") as other, root(daemon) as whole:
        inside = part.walk("inside")
        assert part.read_all(inside) == b"inside"
        foreign = other.walk("inside")
        for theirs in (foreign, other.root, daemon.diary, whole.root):
            moved = theirs[:20] + inside[20:28] + theirs[28:]
            assert not answers(part, moved), "the export's number put into the handle of another"
        with pytest.raises(NfsError):
            part.rename(part.root, "inside", foreign, "x")
        with pytest.raises(NfsError):
            part.link(inside, other.root, "x")
        moved = inside[:4] + bytes(16) + inside[20:]
        assert not answers(part, moved), "another volume"


def test_snapshots_are_not_entered_by_a_guess(daemon):
    """The directory that lists ann's snapshots has a generation that follows from the volume's id."""
    with root(daemon) as nfs:
        snap(daemon, "create", "files@then")
        past = nfs.lookup(nfs.lookup(daemon.deep, ".snapshots").handle, "then").handle
        assert nfs.read_all(nfs.lookup(past, "diary").handle) == SECRET
        listing = nfs.lookup(daemon.deep, ".snapshots").handle
    with export(daemon, "all") as nfs:
        for handle in (listing, past):
            _, _, _, ino, generation, _ = parts(handle)
            assert not answers(nfs, older(nfs.root, ino=ino, generation=generation))


def test_handles_end_with_what_they_lead_to(daemon):
    with root(daemon) as nfs:
        made = nfs.create(nfs.root, "short", GUARDED).handle
        nfs.remove(nfs.root, "short")
        assert not answers(nfs, made), "a removed file"
        again = nfs.create(nfs.root, "short", GUARDED).handle
        assert again != made and not answers(nfs, made)
    words = ("--volume", "files", "--squash", "none")
    daemon.run("share", "add", "brief", *words, check=True)
    with export(daemon, "brief") as nfs:
        handle = nfs.root
        nfs.getattr(handle)
        daemon.run("share", "remove", "brief", check=True)
        assert not answers(nfs, handle), "a removed share"
        daemon.run("share", "add", "brief", *words, "--only-from", "192.0.2.0/24", check=True)
        with pytest.raises(NfsError) as error:
            nfs.getattr(handle)
        assert error.value.status == nfs3.ACCES, "only_from was changed"
        daemon.run("share", "remove", "brief", check=True)


def test_handles_stay_over_restarts(daemon):
    with export(daemon, "part") as part, root(daemon) as whole:
        handles = (part.walk("inside"), whole.root, daemon.diary)
    daemon.kill()
    daemon.start()
    with Nfs3("127.0.0.1", daemon.nfs_port) as nfs:
        for handle in handles:
            nfs.getattr(handle)
    shares = json.loads(daemon.run("share", "list", "--json", check=True).stdout)
    assert {"all", "part", "other"} <= {share["name"] for share in shares}


def test_handles_of_an_older_larder_are_good_for_what_was_there(folder):
    """The pool of an older larder: its clients go on with their handles, and none in that form is good for a later file."""
    disks, _ = unpack("v0.2-clean", folder)
    larder = Larder(disks, folder / "data", extra=["--squash", "none"]).start()
    try:
        with root(larder) as nfs:
            there, made = nfs.walk("big.bin"), nfs.create(nfs.root, "later", GUARDED).handle
            for handle in (nfs.root, there):
                assert nfs.getattr(older(handle)).fileid == nfs.getattr(handle).fileid
            assert not answers(nfs, older(made))
            forged = older(there, generation=parts(there)[4] ^ 1)
            assert not answers(nfs, forged)
            # Going back to a snapshot keeps the seal.
            snap(larder, "create", "files@before")
            nfs.mkdir(nfs.root, "after")
        snap(larder, "rollback", "files@before", "--yes")
        with root(larder) as nfs:
            assert nfs.getattr(there) and nfs.getattr(older(there))
            with pytest.raises(NfsError):
                nfs.lookup(nfs.root, "after")
        assert larder.stop() == 0
        done = larder.check()
        assert done.returncode == 0, done.stdout
    finally:
        larder.end()
