"""Attributes over NFS version 4: access lists, owners by name, quotas, flags, and snapshots as a file system of their own."""

import os
import signal

import pytest

import nfs4
from conftest import client, make
from nfs4 import BOTH, GUARDED, READ, UNCHECKED, WRITE, Nfs4, ace, put, refused
from waiting import wait_for

ANN, BOB, FAMILY = 2001, 2002, 2100
DOMAIN = "home.lan"
ALLOW, DENY, AUDIT = 0, 1, 2
FILES, DIRECTORIES, INHERIT_ONLY, GROUP, INHERITED = 1, 2, 8, 0x40, 0x80
READ_DATA, WRITE_DATA, APPEND, EXECUTE, FULL = 1, 2, 4, 0x20, 0x1F_01FF
MIB = 1 << 20


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """One larder with two users and a group, first without a domain of owners."""
    folder = tmp_path_factory.mktemp("attributes")
    daemon = make(folder, extra=["--squash", "none"]).start()
    secret = folder / "secret"
    secret.write_text("a good password\n")
    for name, uid in (("ann", ANN), ("bob", BOB)):
        daemon.run("user", "add", name, "--uid", str(uid), "--password-file", secret, "--force", check=True)
    daemon.run("group", "add", "family", "--gid", str(FAMILY), check=True)
    daemon.mnt = folder / "mnt"
    daemon.mnt.mkdir()
    daemon.run("mount", daemon.mnt, check=True)
    os.chmod(daemon.mnt, 0o777)
    yield daemon
    assert daemon.stop() == 0, daemon.log()[-4000:]
    assert "panicked" not in daemon.log()


def connect(daemon, minor=2, **options):
    nfs = Nfs4("127.0.0.1", daemon.nfs_port, minor=minor, **options)
    return nfs.session() if minor > 0 else nfs


@pytest.fixture
def four(house):
    with connect(house) as nfs:
        yield nfs


@pytest.fixture
def here(house, four, request):
    path = [house.export.strip("/"), request.node.name.replace("[", "-").rstrip("]")]
    four.mkdir(path, mode=0o777)
    return path


def look(nfs, place, *numbers):
    return nfs.attr(place, numbers)


def as_user(house, uid, gid=100):
    return connect(house, uid=uid, gid=gid)


# ---- access lists ----


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o077, 0o755, 0o000, 0o4711])
def test_a_mode_is_a_list_and_a_list_may_be_a_mode(four, here, mode):
    file = four.open([*here, "f"], create=GUARDED, mode=mode)
    shown = look(four, file.handle, nfs4.ACL, nfs4.ACLSUPPORT, nfs4.DACL, nfs4.SACL)
    assert shown.acl_support == 3 and shown.dacl == (0, shown.acl) and shown.sacl == (0, [])
    assert [rule[3] for rule in shown.acl if rule[0] == ALLOW] == [b"OWNER@", b"GROUP@", b"EVERYONE@"]
    other = four.open([*here, "other"], create=GUARDED, mode=0o640, owner=b"second")
    four.setattr(other.handle, acl=shown.acl)
    assert four.attr(other.handle).mode == mode & 0o777, "the same list is the same mode"
    assert look(four, other.handle, nfs4.ACL).acl == shown.acl


def test_a_list_decides_at_every_door(house, four, here):
    file = four.open([*here, "f"], create=GUARDED, mode=0o600, owner=b"o")
    rules = [ace(DENY, 0, WRITE_DATA | APPEND, str(BOB)), ace(ALLOW, 0, READ_DATA | WRITE_DATA | APPEND | 0x12_0080, str(ANN)),
             ace(ALLOW, 0, READ_DATA | 0x12_0080, str(BOB)), ace(ALLOW, 0, FULL & ~EXECUTE, "OWNER@")]
    four.setattr(file.handle, acl=rules)
    assert look(four, file.handle, nfs4.ACL).acl == rules
    for uid, access, works in ((ANN, BOTH, True), (BOB, READ, True), (BOB, WRITE, False), (4711, READ, False)):
        with as_user(house, uid) as user:
            if works:
                user.close_file(user.open([*here, "f"], access=access))
            else:
                with refused("ACCESS"):
                    user.open([*here, "f"], access=access)
    with client(house, uid=BOB, gid=100) as v3:
        assert v3.access(file.handle, 0x3F) & 0xD == 0x1, "version 3 asks the same list"
    with as_user(house, ANN) as ann, refused("PERM"):
        ann.setattr(file.handle, acl=[ace(ALLOW, 0, FULL, str(ANN))])
    four.setattr(file.handle, acl=[ace(ALLOW, 0, FULL, str(ANN)), *rules])
    with as_user(house, ANN) as ann:
        # Its rights include the one to change the list.
        ann.setattr(file.handle, acl=rules)
    assert look(four, file.handle, nfs4.ACL).acl == rules
    four.setattr(file.handle, mode=0o640)
    assert [rule[3] for rule in look(four, file.handle, nfs4.ACL).acl if rule[0] == ALLOW] == [b"OWNER@", b"GROUP@", b"EVERYONE@"]


def test_what_is_made_inherits(house, four, here):
    handed_on = FILES | DIRECTORIES
    rules = [ace(ALLOW, handed_on, FULL, "OWNER@"), ace(ALLOW, handed_on | GROUP, READ_DATA | EXECUTE | 0x12_0080, str(FAMILY)),
             ace(ALLOW, handed_on | INHERIT_ONLY, READ_DATA | 0x12_0080, "EVERYONE@"), ace(ALLOW, 0, READ_DATA | EXECUTE, "EVERYONE@")]
    four.mkdir([*here, "d"])
    folder = four.handle([*here, "d"])
    four.setattr(folder, dacl=(1, rules))
    assert look(four, folder, nfs4.DACL).dacl == (1, rules)
    four.mkdir([*here, "d", "below"])
    below = look(four, [*here, "d", "below"], nfs4.DACL).dacl
    assert below[0] == 1 and all(flag & INHERITED for _, flag, _, _ in below[1])
    assert [(flag & 0xF, who) for _, flag, _, who in below[1]] == [(3, b"OWNER@"), (3, str(FAMILY).encode()), (3, b"EVERYONE@")]
    four.open([*here, "d", "f"], create=GUARDED, mode=0o664)
    assert [flag & ~GROUP for _, flag, _, _ in look(four, [*here, "d", "f"], nfs4.DACL).dacl[1]] == [INHERITED] * 3
    with connect(house, minor=0) as old:
        assert all(flag & INHERITED == 0 for _, flag, _, _ in look(old, [*here, "d", "f"], nfs4.ACL).acl), "4.0 has no such flag"
    private = four.open([*here, "d", "private"], create=GUARDED, mode=0o600, owner=b"p")
    assert look(four, private.handle, nfs4.DACL).dacl[0] == 0, "a private file stays private"


def test_a_umask_counts_where_nothing_is_inherited(four, here):
    four.mkdir([*here, "plain"])
    four.mkdir([*here, "handing"])
    everyone = ace(ALLOW, FILES | DIRECTORIES, READ_DATA | WRITE_DATA | APPEND | 0x12_0080, "EVERYONE@")
    four.setattr(four.handle([*here, "handing"]), acl=[ace(ALLOW, 3, FULL, "OWNER@"), everyone])
    for folder in ("plain", "handing"):
        four.open([*here, folder, "f"], create=GUARDED, mode=None, mode_umask=(0o666, 0o077), owner=folder.encode())
    assert four.attr([*here, "plain", "f"]).mode == 0o600
    assert four.attr([*here, "handing", "f"]).mode & 0o006 == 0o006, "the list of the folder decides"
    with refused("INVAL"):
        four.setattr(four.handle([*here, "plain", "f"]), mode_umask=(0o666, 0o077))
    four.setattr(four.handle([*here, "plain", "f"]), mode_masked=(0o040, 0o070))
    assert four.attr([*here, "plain", "f"]).mode == 0o640
    with refused("INVAL"):
        look(four, here, nfs4.MODE_SET_MASKED)


def test_something_is_made_with_its_list(four, here):
    rules = [ace(ALLOW, 0, FULL, "OWNER@"), ace(ALLOW, 0, READ_DATA | 0x12_0080, str(ANN))]
    file = four.open([*here, "f"], create=GUARDED, acl=rules)
    assert nfs4.ACL in file.set and look(four, file.handle, nfs4.ACL).acl == rules
    four.mkdir([*here, "d"], acl=rules)
    assert look(four, [*here, "d"], nfs4.ACL).acl == rules
    listed = {entry.name: entry.attr.acl for entry in four.readdir(here, numbers=(nfs4.ACL,)).entries}
    assert listed == {b"f": rules, b"d": rules}
    verify = (nfs4.VERIFY, nfs4.fattr(acl=rules), nfs4.nothing)
    four.compound(put(file.handle), verify)
    with refused("NOT_SAME"):
        four.compound(put(file.handle), (nfs4.VERIFY, nfs4.fattr(acl=rules[:1]), nfs4.nothing))


def test_what_cannot_be_kept_is_refused(four, here):
    file = four.open([*here, "f"], create=GUARDED)
    good = ace(ALLOW, 0, READ_DATA, str(ANN))
    for rule, why in ((ace(AUDIT, 0x10, READ_DATA, str(ANN)), "ATTRNOTSUPP"), (ace(9, 0, READ_DATA, str(ANN)), "INVAL"),
                      (ace(ALLOW, FILES, READ_DATA, str(ANN)), "INVAL"), (ace(ALLOW, 0, 0x8000_0000, str(ANN)), "INVAL"),
                      (ace(ALLOW, 0, READ_DATA, "ann@nowhere"), "BADOWNER"), (ace(ALLOW, 0, READ_DATA, "NETWORK@"), "BADOWNER")):
        with refused(why):
            four.setattr(file.handle, acl=[good, rule])
        with refused(why):
            four.open([*here, "made"], create=GUARDED, acl=[good, rule], owner=b"m")
    with refused("NOENT"):
        four.handle([*here, "made"])
    with refused("INVAL"):
        four.setattr(file.handle, acl=[good], dacl=(0, [good]))
    with refused("ATTRNOTSUPP"):
        four.setattr(file.handle, sacl=(0, [good]))
    four.setattr(file.handle, sacl=(0, []))
    with refused("INVAL"):
        four.setattr(file.handle, acl=[good] * 2000)
    four.setattr(file.handle, acl=[good] * 600)
    assert len(look(four, file.handle, nfs4.ACL).acl) == 600


# ---- flags, quotas ----


def test_flags_are_those_of_windows(house, four, here):
    file = four.open([*here, "f"], create=GUARDED, hidden=1)
    numbers = (nfs4.HIDDEN, nfs4.SYSTEM, nfs4.ARCHIVE)
    flags = lambda: tuple(vars(look(four, file.handle, *numbers)).get(name) for name in ("hidden", "system", "archive"))
    assert flags() == (True, False, False)
    four.setattr(file.handle, archive=1, hidden=0)
    assert flags() == (False, False, True)
    four.setattr(file.handle, btime=(1_000_000, 5))
    assert look(four, file.handle, nfs4.TIME_CREATE).btime == (1_000_000, 5)
    with as_user(house, ANN) as ann, refused("PERM"):
        ann.setattr(file.handle, hidden=1)


def test_quotas_are_shown_to_whom_they_bind(house, four, here):
    numbers = (nfs4.QUOTA_AVAIL_HARD, nfs4.QUOTA_AVAIL_SOFT, nfs4.QUOTA_USED, nfs4.SPACE_AVAIL, nfs4.SPACE_TOTAL)
    house.run("volume", "set", "files", "--user-quota", "ann=8MiB", check=True)
    with as_user(house, ANN) as ann:
        file = ann.open([*here, "f"], create=GUARDED)
        for at in range(3):
            ann.write(file, at << 19, os.urandom(1 << 19))
        shown = lambda: look(ann, here, *numbers)
        wait_for(lambda: shown().quota_used >= 3 << 19)
        room = shown()
        assert room.quota_hard == room.quota_soft == room.avail <= 8 * MIB - (3 << 19) and room.total <= 8 * MIB
        assert room.quota_used < 3 * MIB
    of_volume = look(four, here, *numbers)
    assert of_volume.total > 8 * MIB and of_volume.quota_used >= room.quota_used
    house.run("volume", "set", "files", "--user-quota", "ann=none", "--quota", "64MiB", check=True)
    bound = look(four, here, *numbers)
    assert bound.total == 64 * MIB and bound.quota_hard <= 64 * MIB
    house.run("volume", "set", "files", "--quota", "none", check=True)


def test_what_each_version_supports(house, four, here):
    second = set(look(four, here, nfs4.SUPPORTED).supported)
    assert {nfs4.CLONE_BLKSIZE, nfs4.MODE_UMASK, 82} <= second
    with connect(house, minor=1) as one, connect(house, minor=0) as zero:
        first, none = (set(look(nfs, here, nfs4.SUPPORTED).supported) for nfs in (one, zero))
    assert {nfs4.DACL, nfs4.SACL, nfs4.MODE_SET_MASKED, nfs4.FS_CHARSET_CAP} <= first and nfs4.MODE_UMASK not in first
    assert max(none) == nfs4.MOUNTED_ON and {nfs4.ACL, nfs4.ACLSUPPORT, nfs4.QUOTA_USED, nfs4.HIDDEN} <= none
    assert none < first < second
    write_only = {nfs4.TIME_ACCESS_SET, nfs4.TIME_MODIFY_SET, nfs4.MODE_SET_MASKED, nfs4.MODE_UMASK}
    known = sorted((second - write_only) & set(nfs4.ATTRIBUTES))
    assert len(vars(look(four, here, *known))) == len(known), "whatever is supported has a value"


# ---- snapshots ----


def test_snapshots_are_a_file_system_of_their_own(house, four, here):
    top = here[:1]
    four.open([*here, "f"], create=GUARDED)
    house.run("snap", "create", f"files@{here[1][:40]}", check=True)
    share, catalog = four.attr(top), four.attr([*top, ".snapshots"])
    then = four.attr([*top, ".snapshots", here[1][:40], *here[1:], "f"])
    assert catalog.fsid == then.fsid != share.fsid and catalog.fsid[0] == share.fsid[0]
    assert catalog.mounted_on != share.fileid
    assert four.attr([*here, ".snapshots"]).fsid == catalog.fsid, "of every folder"
    with client(house) as v3:
        of = lambda *names: v3.getattr(nfs3_walk(v3, *names))
        assert of().fsid != of(".snapshots").fsid == of(".snapshots", here[1][:40]).fsid
        assert of(".snapshots", here[1][:40], "..").fsid != of().fsid
    house.run("share", "set", top[0], "--snapshots-shown", check=True)
    listed = {entry.name: entry.attr for entry in four.readdir(top, numbers=(nfs4.FSID, nfs4.FILEID, nfs4.MOUNTED_ON)).entries}
    assert listed[b".snapshots"].fsid == catalog.fsid and listed[here[1].encode()].fsid == share.fsid
    house.run("share", "set", top[0], "--snapshots-shown=no", check=True)


def nfs3_walk(v3, *names):
    handle = v3.root
    for name in names:
        handle = v3.lookup(handle, name.encode()).handle
    return handle


# ---- owners; last, since it names a domain ----


def test_owners_are_numbers_unless_a_domain_is_named(house, four, here):
    file = four.open([*here, "f"], create=GUARDED)
    four.setattr(file.handle, owner=str(ANN), group=str(FAMILY))
    assert (four.attr(file.handle).owner, four.attr(file.handle).group) == (b"2001", b"2100")
    with refused("BADOWNER"):
        four.setattr(file.handle, owner=f"bob@{DOMAIN}")
    config = house.data / "larder.toml"
    config.write_text(f'{config.read_text()}\n[nfs]\ndomain = "{DOMAIN}"\n')
    os.kill(house.pid, signal.SIGHUP)
    owner = lambda: four.attr(file.handle).owner
    wait_for(lambda: owner() == f"ann@{DOMAIN}".encode())
    assert four.attr(file.handle).group == f"family@{DOMAIN}".encode()
    for text, shown in ((f"bob@{DOMAIN}", f"bob@{DOMAIN}"), (f"root@{DOMAIN.upper()}", f"root@{DOMAIN}"), ("4711", "4711"),
                        (str(ANN), f"ann@{DOMAIN}"), (f"nobody@{DOMAIN}", f"nobody@{DOMAIN}")):
        four.setattr(file.handle, owner=text)
        assert owner() == shown.encode(), text
    for unknown in (f"eve@{DOMAIN}", "ann@elsewhere", "ann", "-1", "4294967295"):
        with refused("BADOWNER"):
            four.setattr(file.handle, owner=unknown)
    with refused("INVAL"):
        four.setattr(file.handle, owner="")
    rules = [ace(ALLOW, 0, READ_DATA, f"ann@{DOMAIN}"), ace(ALLOW, GROUP, READ_DATA, f"family@{DOMAIN}")]
    four.setattr(file.handle, acl=rules)
    assert look(four, file.handle, nfs4.ACL).acl == rules
    with client(house) as v3:
        assert v3.getattr(file.handle).uid == 65534, "version 3 has numbers"
