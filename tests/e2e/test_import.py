"""Folders of this machine imported into a volume: with a daemon and without one, killed in the middle, compared by rsync."""

import json
import os
import random
import struct
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest
from impacket import smb3structs as smb2
from impacket.smb3 import SessionError

from conftest import make
from others import Smbd
from test_smb_identity import BASIC, READ, WRITE, Session
from waiting import wait_for

FILES = 1500


def fill(folder, seed):
    """A tree with one of everything, and many small files."""
    rng = random.Random(seed)
    for n in range(FILES):
        path = folder / f"d{n % 30}" / f"e{n % 7}" / f"file {n}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(rng.choice([0, 5, 4096, 70_000])))
        os.utime(path, ns=(rng.randrange(2**60), rng.randrange(2**60)))
        if n % 10 == 0:
            os.chown(path, rng.randrange(60000), rng.randrange(60000))
            path.chmod(rng.choice([0o600, 0o755, 0o4711, 0o2770]))
        if n % 50 == 0:
            os.setxattr(path, "user.larder.test", rng.randbytes(200))
            os.link(path, folder / f"d{n % 13}" / f"link {n}")
    os.symlink("d0/e0/file 0", folder / "symlink")
    os.mkfifo(folder / "pipe")
    (folder / os.fsdecode(b"bytes \xff\xfe")).write_bytes(b"odd")
    with open(folder / "sparse", "wb") as f:
        f.seek(300 << 20)
        f.write(b"end")
    (folder / "large").write_bytes(rng.randbytes(40 << 20))
    os.utime(folder / "d1", ns=(1, 2))


def differences(source, copy):
    """What rsync would change to make the copy equal, by contents and all attributes but the import's own markers."""
    done = subprocess.run(
        ["rsync", "-aHXn", "--checksum", "--delete", "--numeric-ids", "--itemize-changes", "--filter=-x trusted.*", f"{source}/", f"{copy}/"],
        text=True, capture_output=True, errors="surrogateescape",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def imported(daemon, *words):
    done = daemon.run("import", *words, "--json", timeout_s=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def source(folder, session_seed):
    place = folder / "source"
    place.mkdir()
    fill(place, session_seed)
    return place


def test_killed_anywhere_it_goes_on_and_all_is_as_in_the_folder(fresh, folder, source):
    killed = 0
    for _ in range(3):
        command = threading.Thread(target=fresh.run, args=("import", source, "files:in/here"))
        progress = fresh.data / "seen"
        progress.unlink(missing_ok=True)
        command.start()
        # Some names are there, and not all.
        mount = folder / "watch"
        mount.mkdir(exist_ok=True)
        fresh.run("mount", mount, check=True)
        wait_for(lambda: any((mount / "in" / "here").rglob("file *")) or not command.is_alive(), 60)
        killed += command.is_alive()
        fresh.kill()
        command.join(60)
        fresh.run("umount", mount)
        fresh.start()
    report = imported(fresh, source, "files:in/here", "--verify")
    assert report["files_verified"] == report["files_copied"] + report["unchanged"] + report["links"] + report["symlinks"] + report["specials"]
    again = imported(fresh, source, "files:in/here", "--delete")
    assert (again["files_copied"], again["links"], again["removed"], again["attributes"]) == (0, 0, 0, 0)
    mount = folder / "mounted"
    mount.mkdir()
    fresh.run("mount", mount, check=True)
    assert differences(source, mount / "in" / "here") == []
    sparse = os.stat(mount / "in" / "here" / "sparse")
    assert sparse.st_blocks * 512 < 2 << 20
    # What changed, and what is gone.
    (source / "d2" / "e2" / "new").write_bytes(b"new")
    (source / "large").write_bytes(b"small now")
    subprocess.run(["rm", "-rf", source / "d5"], check=True)
    dry = imported(fresh, source, "files:in/here", "--delete", "--dry-run")
    real = imported(fresh, source, "files:in/here", "--delete")
    assert dry["files_copied"] == real["files_copied"] == 2 and dry["removed"] == real["removed"] > 50
    assert differences(source, mount / "in" / "here") == []
    fresh.run("umount", mount, check=True)
    assert fresh.stop() == 0
    assert fresh.check("--read-data").returncode == 0


def test_without_a_daemon_and_what_is_refused(fresh, folder, source):
    (source / "inner").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", source / "inner"], check=True)
    try:
        (source / "inner" / "file").write_text("x")
        report = imported(fresh, source, "files")
        assert [left["path"] for left in report["left_out"]] == ["inner"]
        report = imported(fresh, source, "files", "--cross")
        assert (report["files_copied"], report["left_out"]) == (1, [])
    finally:
        subprocess.run(["umount", source / "inner"], check=True)
    refused = [
        ((fresh.disks[0] / "journal", "files"), "lies on a disk of a pool"),
        ((folder / "nothing", "files"), "no such file"),
        ((source, "nothing"), "there is no volume"),
        ((source, "files:../x"), "is not a folder of a volume"),
        ((source, "files:large"), "is no folder"),
        ((source / "inner", "files:x", "--delete"), "is empty"),
    ]
    for words, why in refused:
        done = fresh.run("import", *words)
        assert done.returncode == 1 and why in done.stderr, (words, done.stderr)
    # A file of somebody else in the volume stays, and the rest is brought.
    mount = folder / "mounted"
    mount.mkdir()
    fresh.run("mount", mount, check=True)
    (mount / "large").write_bytes(b"somebody's")
    done = fresh.run("import", source, "files")
    assert done.returncode == 1 and "error: large: " in done.stderr and "--overwrite" in done.stderr, done.stderr
    assert (mount / "large").read_bytes() == b"somebody's"
    done = fresh.run("import", mount, "files:again")
    assert done.returncode == 1 and "is a volume of this larder" in done.stderr
    fresh.run("umount", mount, check=True)
    assert fresh.stop() == 0
    done = fresh.run("import", source, "tank/files", "--overwrite", "--verify", timeout_s=300)
    assert done.returncode == 0, done.stderr
    assert "read a second time and compared" in done.stdout


def test_killed_while_links_and_pipes_are_made_it_goes_on(fresh, folder, session_seed):
    """Links, pipes and devices come without a name, too: whatever the moment of a kill, the next import accepts what is there.
    Rounds begin anew or replace what the round before brought."""
    rng = random.Random(session_seed)
    source = folder / "links"
    (source / "in").mkdir(parents=True)

    def remake(n, word):
        for name in (f"link {n}", f"in/other {n}"):
            (source / name).unlink(missing_ok=True)
        os.symlink(f"{word}/{n}", source / f"link {n}")
        os.utime(source / f"link {n}", ns=(n, rng.randrange(2**60)), follow_symlinks=False)
        os.link(source / f"link {n}", source / "in" / f"other {n}", follow_symlinks=False)
        (source / f"pipe {n}").unlink(missing_ok=True)
        os.mkfifo(source / f"pipe {n}")
        os.utime(source / f"pipe {n}", ns=(n, rng.randrange(2**60)))
        if n % 20 == 0:
            (source / f"device {n}").unlink(missing_ok=True)
            os.mknod(source / f"device {n}", 0o600 | 0o020000, os.makedev(1, 3))
            os.chown(source / f"device {n}", 7, n)

    mount = folder / "mounted"
    mount.mkdir()
    for round_number in range(4):
        for n in range(400):
            remake(n, f"round {round_number}")
        command = threading.Thread(target=fresh.run, args=("import", source, "files:in"))
        command.start()
        # Any moment of it will do.
        time.sleep(rng.uniform(0.02, 0.5))
        fresh.kill()
        command.join(60)
        fresh.start()
        if round_number % 2:
            imported(fresh, source, "files:in")
    report = imported(fresh, source, "files:in", "--verify")
    assert report["faults"] == [], report
    fresh.run("mount", mount, check=True)
    assert differences(source, mount / "in") == []
    # What is gone there goes here: nothing is taken for somebody else's.
    for n in range(0, 400, 3):
        (source / f"link {n}").unlink()
        (source / "in" / f"other {n}").unlink()
    imported(fresh, source, "files:in", "--delete")
    assert differences(source, mount / "in") == []
    fresh.run("umount", mount, check=True)
    assert fresh.stop() == 0


class Seen(Session):
    """What an SMB client sees of a share, whoever serves it."""

    def write(self, path, data, options=0):
        file = self.open(path, WRITE | READ, options=options, disposition=smb2.FILE_OPEN_IF)
        if data:
            self.low.write(self.tree, file.file, data, 0, len(data))
        file.close()

    def dress(self, path, created, attributes):
        file = self.open(path, WRITE | READ)
        assert file.set(BASIC, struct.pack("<QQQQII", created, 0, 0, 0, attributes, 0)) == 0
        file.close()

    def look(self, path):
        """Time of creation, DOS attributes, and each stream with its contents."""
        file = self.open(path, READ)
        basic = file.info(BASIC)
        created, attributes = struct.unpack_from("<Q24xI", basic)
        try:
            listed = file.info(STREAMS)
        except SessionError as error:
            assert error.get_error_code() == END_OF_FILE, "a folder without streams"
            listed = b""
        file.close()
        streams, at = {}, 0
        while listed:
            following, length, size = struct.unpack_from("<IIQ", listed, at)
            name = listed[at + 24:at + 24 + length].decode("utf-16le")
            if name != "::$DATA":
                stream = self.open(path + name.removesuffix(":$DATA"), READ)
                streams[name] = bytes(self.low.read(self.tree, stream.file, 0, size)) if size else b""
                stream.close()
            if not following:
                break
            at += following
        return created, attributes, streams


STREAMS, END_OF_FILE = 22, 0xC0000011
HIDDEN, SYSTEM, READ_ONLY, ARCHIVE = 2, 4, 1, 32
# 100 ns since 1601: of a day in 2009.
IN_2009 = 128_900_000_000_000_000


@pytest.mark.parametrize("modules", ["streams_xattr", "fruit streams_xattr"])
def test_what_samba_kept_beside_the_data_is_there_for_clients_of_the_volume(fresh, folder, modules):
    """Streams, DOS attributes and times of creation as smbd wrote them, for Macs too; `--verify` finds what differs."""
    served = folder / "served"
    served.mkdir()
    smbd = Smbd(folder / "smbd", folder / "bench")
    smbd.settings = f"server min protocol = SMB2_10\nvfs objects = {modules}\nstore dos attributes = yes\nea support = yes\n"
    smbd.more = {"old": served}
    paths = ["report", "plain", "empty stream", "folder", "folder\\deep"]
    with smbd:
        before = Seen(SimpleNamespace(smb_port=smbd.port, user="root", password=smbd.password), "old")
        before.write("folder", b"", smb2.FILE_DIRECTORY_FILE)
        for path in paths:
            if path != "folder":
                before.write(path, b"the data of " + path.encode())
        before.write("report:side", b"beside it" * 100)
        before.write("report:AFP_AfpInfo", b"AFP\0\0\0\1\0\0\0\0\0\x80\0\0\0" + b"TEXTttxt" + bytes(36))
        # An attribute of ext4 holds no more.
        before.write("plain:AFP_Resource", b"a fork" * (50_000 if "fruit" in modules else 100))
        before.write("empty stream:none", b"")
        before.write("folder:about", b"of a folder")
        before.dress("report", IN_2009, HIDDEN | SYSTEM)
        before.dress("folder\\deep", IN_2009 + 12345, READ_ONLY | ARCHIVE)
        before.dress("folder", IN_2009 + 777, HIDDEN)
        seen = {path: before.look(path) for path in paths}
        before.end()
    assert seen["report"][:2] == (IN_2009, HIDDEN | SYSTEM) and ":side:$DATA" in seen["report"][2], seen
    # The user who changes one of them later.
    subprocess.run(["chown", "-R", "1000:1000", served], check=True)
    doubles = [path.name for path in served.rglob("._*")]
    assert doubles == (["._plain"] if "fruit" in modules else []), "where smbd keeps a fork"
    imported(fresh, served, "files:new")
    fresh.kill()
    fresh.start()
    after = Seen(fresh)
    assert {path: after.look(f"new\\{path}") for path in paths} == seen
    report = imported(fresh, served, "files:new", "--verify")
    assert report["files_verified"] == 4 and report["files_copied"] == 0, report
    after.write("new\\report:side", b"changed")
    after.end()
    differs = fresh.run("import", served, "files:new", "--verify", timeout_s=300)
    assert differs.returncode != 0 and "report: its streams or DOS attributes differ" in differs.stdout + differs.stderr
