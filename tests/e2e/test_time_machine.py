"""Time Machine: the calls of a Mac's backup over SMB, replayed: the sparse bundle, bands of 8 MiB, locks, full flushes, the rename of the
bundle while it is open, the bound that is shown and kept, and the snapshot by itself after each finished backup."""

import json
import struct
import time

import pytest
from impacket import smb3structs as smb2
from impacket.smb3 import SessionError
from impacket.smbconnection import SMBConnection

from conftest import client, make, payload
from test_clocks import Clock
from test_smb import server_query
from waiting import wait_for

BAND = 8 << 20
HISTORY = "com.apple.TimeMachine.SnapshotHistory.plist"
ALL = 0x1F01FF
OPEN_IF, CREATE, OPEN = 3, 2, 1
# MS-FSCC 2.5.4
FULL_SIZE_INFORMATION = 7


class Mac:
    """A session as macOS keeps it: reads and writes in pieces, byte ranges locked, FLUSH with its F_FULLFSYNC."""

    def __init__(self, larder):
        self.smb = SMBConnection("*S", "127.0.0.1", sess_port=larder.smb_port, timeout=60)
        self.smb.login(larder.user, larder.password)
        self.tree = self.smb.connectTree(larder.share)
        self.raw = self.smb.getSMBServer()
        # Says that it is a Mac, which may rename folders with open files.
        self.raw.close(self.tree, self.raw.create(self.tree, "", 0x80, 7, 1, OPEN, 0, createContexts=[server_query()]))

    def open(self, path, how=OPEN_IF, directory=False):
        options = smb2.FILE_DIRECTORY_FILE if directory else smb2.FILE_NON_DIRECTORY_FILE
        # A Mac shares everything, deletion too: it renames the bundle while its files are open.
        return self.raw.create(self.tree, path, ALL if not directory else 0x1200A9 | smb2.DELETE, 7, options, how, 0)

    def write(self, file, at, data):
        for start in range(0, len(data), 1 << 16):
            piece = data[start:start + (1 << 16)]
            self.raw.write(self.tree, file, piece, at + start, len(piece))

    def full_sync(self, file):
        """FLUSH with 0xFFFF in Reserved1, which asks for F_FULLFSYNC."""
        packet = self.raw.SMB_PACKET()
        packet["Command"], packet["TreeID"] = smb2.SMB2_FLUSH, self.tree
        flush = smb2.SMB2Flush()
        flush["FileID"], flush["Reserved1"] = file, 0xFFFF
        packet["Data"] = flush
        answer = self.raw.recvSMB(self.raw.sendSMB(packet))
        assert answer["Status"] == 0, hex(answer["Status"])

    def lock(self, file, exclusive=True, unlock=False):
        packet = self.raw.SMB_PACKET()
        packet["Command"], packet["TreeID"] = smb2.SMB2_LOCK, self.tree
        lock = smb2.SMB2Lock()
        lock["FileID"], lock["LockCount"], lock["LockSequence"] = file, 1, 0
        flags = 4 if unlock else (2 if exclusive else 1) | 0x10
        lock["Locks"] = struct.pack("<QQLL", 0, (1 << 63) - 1, flags, 0)
        packet["Data"] = lock
        return self.raw.recvSMB(self.raw.sendSMB(packet))["Status"]

    def rename(self, file, to):
        name = to.encode("utf-16-le")
        info = struct.pack("<B7xQL", 0, 0, len(name)) + name
        self.raw.setInfo(self.tree, file, inputBlob=info, infoType=smb2.SMB2_0_INFO_FILE, fileInfoClass=smb2.SMB2_FILE_RENAME_INFO)

    def close(self, file):
        self.raw.close(self.tree, file)

    def put(self, path, data):
        file = self.open(path)
        self.write(file, 0, data)
        self.full_sync(file)
        self.close(file)

    def room(self):
        """Total and free bytes, as the Mac's picker and its free room have them."""
        file = self.open("", OPEN, directory=True)
        blob = self.raw.queryInfo(self.tree, file, infoType=smb2.SMB2_0_INFO_FILESYSTEM, fileInfoClass=FULL_SIZE_INFORMATION)
        self.close(file)
        total, free, _, sectors, sector = struct.unpack("<QQQLL", blob[:32])
        return total * sectors * sector, free * sectors * sector


@pytest.fixture
def larder(folder):
    larder = make(folder, count=1, layout="single").start()
    yield larder
    larder.end()


def backup(mac, bundle, bands, seed, first):
    """One backup: attach (token, lock), write bands, note the history, detach."""
    token = mac.open(f"{bundle}\\token")
    assert mac.lock(token) == 0
    for n in range(bands):
        band = mac.open(f"{bundle}\\bands\\{n:x}")
        mac.write(band, 0, payload(BAND, seed=seed + n))
        if n % 2:
            mac.full_sync(band)
        mac.close(band)
    if first:
        # The first backup goes under its final name while the token is open and locked.
        folder = mac.open(bundle, OPEN, directory=True)
        bundle = bundle.replace(".tmp", "")
        mac.rename(folder, bundle)
        mac.close(folder)
        mac.write(token, 0, b"attached")
    mac.put(f"{bundle}\\{HISTORY}", b"<plist>%d</plist>" % seed)
    assert mac.lock(token, unlock=True) == 0
    mac.close(token)
    return bundle


def test_a_backup_from_the_first_call_to_the_last(larder):
    larder.run("share", "set", larder.share, "--time-machine", check=True)
    mac = Mac(larder)
    for folder in ("Ann.tmp.sparsebundle", "Ann.tmp.sparsebundle\\bands"):
        mac.close(mac.open(folder, CREATE, directory=True))
    for name in ("Info.plist", "Info.bckup", "com.apple.TimeMachine.MachineID.plist"):
        mac.put(f"Ann.tmp.sparsebundle\\{name}", b"<plist>band-size 8388608</plist>")
    bundle = backup(mac, "Ann.tmp.sparsebundle", 4, 100, first=True)
    assert bundle == "Ann.sparsebundle"
    other = Mac(larder)
    token = mac.open(f"{bundle}\\token")
    assert mac.lock(token) == 0
    theirs = other.open(f"{bundle}\\token")
    assert other.lock(theirs) != 0, "a second Mac does not attach it"
    other.close(theirs)
    mac.close(token)
    with client(larder) as nfs:
        at = nfs.lookup(nfs.lookup(nfs.lookup(nfs.root, bundle).handle, "bands").handle, "1").handle
        assert nfs.read_all(at) == payload(BAND, seed=101)
    assert larder.stop() == 0


def snapshots(larder):
    listed = json.loads(larder.run("snap", "list", volume(larder), "--json", check=True).stdout)
    return [one["name"] for volume in listed for one in volume["snapshots"]]


def volume(larder):
    [share] = json.loads(larder.run("share", "list", "--json", check=True).stdout)
    return share["volume"]


def new_snapshot(larder, before):
    """The one that was taken since: after ten quiet seconds, and up to a minute until its name is free. One of a day is kept."""
    [name] = wait_for(lambda: set(snapshots(larder)) - set(before), limit_s=100)
    return name


def new_bundle(mac):
    for folder in ("Ann.tmp.sparsebundle", "Ann.tmp.sparsebundle\\bands"):
        mac.close(mac.open(folder, CREATE, directory=True))
    mac.put("Ann.tmp.sparsebundle\\Info.plist", b"<plist>band-size 8388608</plist>")


def in_snapshot(larder, name, path):
    """What a file of the share holds in a snapshot."""
    with client(larder) as nfs:
        at = nfs.lookup(nfs.lookup(nfs.root, ".snapshots").handle, name).handle
        for part in path.split("/"):
            at = nfs.lookup(at, part).handle
        return nfs.read_all(at)


class SteppedClock(Clock):
    """A snapshot's name is its minute: the daemon's clock goes to where in a minute a backup is to end."""

    ahead_s = 0

    def turn_to(self, second):
        self.ahead_s += (second - (time.time() + self.ahead_s)) % 60
        self.set(f"+{self.ahead_s:.1f}")


def test_each_finished_backup_has_its_snapshot(larder, folder):
    """The first one, whose history is a new file, right after the share became a target; and a second one into the same history."""
    clock = SteppedClock(folder)
    assert larder.stop() == 0
    larder.start(env=clock.env)
    larder.run("share", "set", larder.share, "--time-machine", check=True)
    mac = Mac(larder)
    new_bundle(mac)
    clock.turn_to(20)
    bundle = backup(mac, "Ann.tmp.sparsebundle", 2, 100, first=True)
    first = new_snapshot(larder, [])
    # In the same minute, which has a name already.
    assert in_snapshot(larder, first, f"{bundle}/{HISTORY}") == b"<plist>100</plist>"
    assert in_snapshot(larder, first, f"{bundle}/bands/1") == payload(BAND, seed=101)
    backup(mac, bundle, 1, 200, first=False)
    second = new_snapshot(larder, [first])
    assert in_snapshot(larder, second, f"{bundle}/bands/0") == payload(BAND, seed=200)
    # A history that is replaced, as programs do that write a file whole, is one that changed.
    clock.turn_to(40)
    mac.put(f"{bundle}\\new", b"<plist>300</plist>")
    old = mac.open(f"{bundle}\\{HISTORY}", OPEN)
    mac.rename(old, f"{bundle}\\old")
    mac.close(old)
    new = mac.open(f"{bundle}\\new", OPEN)
    mac.rename(new, f"{bundle}\\{HISTORY}")
    mac.close(new)
    third = new_snapshot(larder, [first, second])
    assert in_snapshot(larder, third, f"{bundle}/{HISTORY}") == b"<plist>300</plist>"
    wait_for(lambda: larder.log().count("a backup in") == 3, told=larder.log)
    assert larder.stop() == 0


def test_no_snapshot_while_the_bundle_is_open(larder):
    larder.run("share", "set", larder.share, "--time-machine", check=True)
    mac = Mac(larder)
    new_bundle(mac)
    token = mac.open("Ann.tmp.sparsebundle\\other")
    bundle = backup(mac, "Ann.tmp.sparsebundle", 1, 100, first=True)
    time.sleep(15)
    assert snapshots(larder) == [], "another backup may be under way"
    mac.close(token)
    assert in_snapshot(larder, new_snapshot(larder, []), f"{bundle}/bands/0") == payload(BAND, seed=100)
    assert larder.stop() == 0


def test_a_backup_that_ended_as_larder_stopped_has_its_snapshot_after_the_start(larder):
    larder.run("share", "set", larder.share, "--time-machine", check=True)
    mac = Mac(larder)
    new_bundle(mac)
    bundle = backup(mac, "Ann.tmp.sparsebundle", 1, 100, first=True)
    assert larder.stop() == 0
    larder.start()
    assert in_snapshot(larder, new_snapshot(larder, []), f"{bundle}/bands/0") == payload(BAND, seed=100)
    # It is not taken again by another start.
    assert larder.stop() == 0
    larder.start()
    time.sleep(15)
    assert len(snapshots(larder)) == 1
    assert larder.stop() == 0


def test_the_size_is_shown_and_kept(larder):
    assert larder.run("share", "set", larder.share, "--time-machine=5MB").returncode != 0
    larder.run("share", "set", larder.share, "--time-machine=1GiB", check=True)
    mac = Mac(larder)
    total, free = mac.room()
    assert total == 1 << 30 and free <= total, (total, free)
    band = mac.open("band")
    data = payload(BAND)
    # Most of it by the quicker door: the bound is that of the share.
    written = 122 * BAND
    with client(larder) as nfs:
        filler = nfs.create(nfs.root, "filler", mode=0o666).handle
        for at in range(0, written, 1 << 20):
            nfs.write(filler, at, data[:1 << 20])
    with pytest.raises(SessionError, match="QUOTA|DISK_FULL"):
        for n in range(200):
            mac.write(band, n * BAND, data)
            written += BAND
    assert (1 << 30) - 2 * BAND <= written <= (1 << 30) + BAND, written
    mac.write(band, 0, data)
    mac.close(band)
    assert mac.room()[1] < 2 * BAND
    mac.smb.deleteFile(larder.share, "band")
    assert mac.room()[1] > BAND
    mac.put("again", data)
    assert "time_machine" in (larder.data / "larder.toml").read_text()
    larder.run("share", "set", larder.share, "--time-machine=no", check=True)
    assert Mac(larder).room()[0] > 1 << 30
    assert larder.stop() == 0
