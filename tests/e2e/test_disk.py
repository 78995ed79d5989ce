"""`larder disk`: what disks are, whether they are fit, and making an empty one ready. On loop devices."""

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from larderd import run

# The smallest that mkfs.xfs accepts is 300 MiB; images are sparse.
SIZE_BYTES = 320 << 20


class Loop:
    """A loop device on an empty image, and where it may be mounted."""

    def __init__(self, folder, name):
        self.image, self.mount, self.fstab = folder / f"{name}.img", folder / f"{name} mount", folder / "fstab"
        with open(self.image, "wb") as f:
            f.truncate(SIZE_BYTES)
        self.device = call("losetup", "--find", "--show", "--partscan", self.image).strip()

    def prepare(self, *options):
        return run("disk", "prepare", self.device, "--mount", self.mount, "--fstab", self.fstab, *options)

    def digest(self):
        call("sync")
        return hashlib.sha256(self.image.read_bytes()).hexdigest()

    def close(self):
        subprocess.run(["umount", self.mount], check=False, capture_output=True)
        subprocess.run(["losetup", "-d", self.device], check=True)


def call(*command):
    return subprocess.run(list(map(str, command)), check=True, text=True, capture_output=True).stdout


@pytest.fixture
def loops(folder):
    (folder / "fstab").write_text("UUID=1 / ext4 defaults 0 1\n")
    made = []

    def make(name="disk"):
        made.append(Loop(folder, name))
        return made[-1]

    yield make
    for loop in made:
        loop.close()


def refused(done, *words):
    assert done.returncode == 1, f"exit {done.returncode}\n{done.stdout}{done.stderr}"
    for word in words:
        assert word in done.stderr, f"{word!r} is missing in:\n{done.stderr}"


def findmnt(loop, column):
    return call("findmnt", "--noheadings", "--output", column, "--target", loop.mount).strip()


# ---- prepare ----


def test_an_empty_disk_becomes_a_mounted_filesystem(loops, folder):
    loop = loops()
    before, fstab = loop.digest(), loop.fstab.read_text()
    dry = loop.prepare("--dry-run", "--label", "pantry-1")
    assert dry.returncode == 0 and "mkfs.xfs" in dry.stdout and "is empty" in dry.stdout, dry.stdout + dry.stderr
    refused(loop.prepare(), "--yes", "320 MiB")
    assert (loop.digest(), loop.fstab.read_text(), loop.mount.exists()) == (before, fstab, False)

    done = loop.prepare("--yes", "--label", "pantry-1", "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["version"] == 1
    assert (findmnt(loop, "FSTYPE"), findmnt(loop, "UUID"), findmnt(loop, "LABEL")) == ("xfs", made["uuid"], "pantry-1")
    assert "noatime" in findmnt(loop, "OPTIONS")
    assert "reflink=0" in call("xfs_info", loop.mount) and "crc=1" in call("xfs_info", loop.mount)
    assert Path(made["fstab_backup"]).read_text() == fstab
    lines = loop.fstab.read_text().splitlines()
    assert lines[0] == fstab.strip() and lines[-1].startswith(f"UUID={made['uuid']} ") and "nofail,noatime" in lines[-1]

    refused(loop.prepare("--yes"), "is mounted at")
    refused(loop.prepare("--serial", loop.device), "is mounted at")
    # The line works: the folder has a blank in its name, and the device may have another name tomorrow.
    call("umount", loop.mount)
    call("mount", "--fstab", loop.fstab, loop.mount)
    assert findmnt(loop, "UUID") == made["uuid"]
    assert (folder / "fstab").read_text().splitlines() == lines


def test_what_holds_something_is_refused(loops):
    loop = loops()
    call("mkfs.ext4", "-q", "-F", "-L", "photos", loop.device)
    before = loop.digest()
    refused(loop.prepare("--yes"), "ext4 'photos'", "not empty", f"--serial {loop.device}")
    refused(loop.prepare("--serial", "WD-1234"), "'WD-1234' is not the serial number")
    refused(loop.prepare("--serial", ""), "is not the serial number")
    dry = loop.prepare("--dry-run", "--json")
    assert dry.returncode == 0 and [json.loads(dry.stdout)[key] for key in ("version", "token")] == [1, loop.device]
    assert loop.digest() == before and not loop.mount.exists()
    # A loop device has no serial number: its path stands in.
    done = loop.prepare("--serial", loop.device)
    assert done.returncode == 0, done.stderr
    assert findmnt(loop, "FSTYPE") == "xfs"
    first = loop.fstab.read_text()
    call("umount", loop.mount)
    # Once more: the line of the filesystem that is gone is replaced.
    assert loop.prepare("--serial", loop.device).returncode == 0
    second = loop.fstab.read_text()
    assert len(first.splitlines()) == len(second.splitlines()) and first != second


def test_partitions_stray_bytes_and_foreign_lines_are_refused(loops):
    loop = loops("a")
    subprocess.run(["sfdisk", "-q", loop.device], input="label: gpt\n,\n", text=True, check=True, capture_output=True)
    refused(loop.prepare("--yes"), "gpt")
    done = loop.prepare("--serial", loop.device)
    assert done.returncode == 0 and findmnt(loop, "FSTYPE") == "xfs", done.stderr
    stray = loops("b")
    with open(stray.image, "r+b") as f:
        f.seek(-512, os.SEEK_END)
        f.write(b"old")
    refused(stray.prepare("--yes"), "last MiB")
    line = loops("c")
    line.fstab.write_text(f"/dev/sdz9 {str(line.mount).replace(' ', chr(92) + '040')} xfs defaults 0 0\n")
    refused(line.prepare("--yes"), "/dev/sdz9", "--mount")
    full = loops("d")
    full.mount.mkdir()
    (full.mount / "file").write_text("here")
    refused(full.prepare("--yes"), "not empty", "--mount")


def test_what_is_no_empty_disk_is_refused(folder, loops):
    loop = loops()
    call("mkfs.ext4", "-q", "-F", loop.device)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    call("mount", loop.device, elsewhere)
    try:
        refused(loop.prepare("--serial", loop.device), "is mounted at", str(elsewhere))
    finally:
        call("umount", elsewhere)
    for path in ("/dev/null", "/dev/nothing", str(folder)):
        refused(run("disk", "prepare", path, "--yes"), "not a block device")
    refused(loop.prepare("--label", "much too long for XFS", "--serial", loop.device), "not a label")
    system = call("findmnt", "--noheadings", "--output", "SOURCE", "/").strip()
    if system.startswith("/dev/"):
        done = run("disk", "prepare", system, "--serial", system, "--dry-run")
        assert done.returncode == 1 and ("starts from it" in done.stderr or "partition" in done.stderr), done.stderr


# ---- check, list ----


def test_check_tells_what_a_folder_lies_on(loops):
    loop = loops()
    assert loop.prepare("--yes").returncode == 0
    gone = run("disk", "check", loop.mount / "typo")
    assert gone.returncode == 4 and "there is no folder" in gone.stdout and "mkdir" in gone.stdout, gone.stdout
    assert not list(loop.mount.iterdir()), "nothing is written beside a folder that does not exist"
    for name in ("one", "two"):
        (loop.mount / name).mkdir()
    done = run("disk", "check", loop.mount / "one", loop.mount / "two", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["version"] == 1 and report["verdict"] == "warning"
    first = report["disks"][0]
    assert first["mount"]["filesystem"] == "xfs" and str(loop.image) in first["layers"][0]
    codes = {f["code"]: f["level"] for f in first["findings"]}
    assert codes["same-disk"] == "warning" and codes["loop"] == "warning" and codes["filesystem"] == "ok", codes
    assert first["flush"]["flushes"] > 0 and first["flush"]["per_s"] > 0
    assert sorted(p.name for p in loop.mount.rglob("*")) == ["one", "two"], "the flush test left something"
    text = run("disk", "check", loop.mount, "--no-flush-test")
    assert text.returncode == 0 and "verdict: usable" in text.stdout and "flushes/s" not in text.stdout
    assert "action:" in text.stdout and "why:" in text.stdout
    # The device itself is in use.
    busy = run("disk", "check", loop.device)
    assert busy.returncode == 4 and f"is mounted at {loop.mount}" in busy.stdout, busy.stdout + busy.stderr
    assert "mounted at /\n" not in busy.stdout, busy.stdout
    call("mount", "-o", "remount,ro", loop.mount)
    assert run("disk", "check", loop.mount).returncode == 4


def test_check_refuses_memory_and_what_is_not_there(folder):
    memory = folder / "memory"
    memory.mkdir()
    call("mount", "-t", "tmpfs", "none", memory)
    try:
        done = run("disk", "check", memory / "disk1")
        assert done.returncode == 4 and "tmpfs" in done.stdout and "not fit" in done.stdout, done.stdout
    finally:
        call("umount", memory)
    done = run("disk", "check", "/dev/nothing", "--json")
    assert done.returncode == 4 and json.loads(done.stdout)["disks"][0]["findings"][0]["code"] == "missing"
    for inside in ("/dev", "/dev/pts"):
        assert run("disk", "check", inside).returncode == 4, inside


def test_check_knows_one_folder_by_two_paths(folder):
    (folder / "disk").mkdir()
    (folder / "link").symlink_to(folder / "disk")
    for words in ((folder / "disk", folder / "link"), (folder / "link", "--member", folder / "disk")):
        done = run("disk", "check", *words, "--no-flush-test")
        assert done.returncode == 4 and "it is the same folder as" in done.stdout, done.stdout


def test_check_names_the_pool_of_a_member_and_a_loop_by_itself(loops, folder):
    loop = loops()
    free = json.loads(run("disk", "check", loop.device, "--json").stdout)["disks"][0]
    assert "in-use" not in [f["code"] for f in free["findings"]], free["findings"]
    assert loop.prepare("--yes").returncode == 0
    disks = [loop.mount / "larder", folder / "other"]
    for disk in disks:
        disk.mkdir()
    assert run("--data", folder / "none", "pool", "create", "pantry", *disks, "--layout", "mirror").returncode == 0
    for path in (disks[0], loop.device):
        done = run("disk", "check", path, "--no-flush-test")
        assert f"{disks[0]} is a disk of the pool 'pantry' already" in done.stdout, done.stdout


def test_list_shows_disks_and_their_use(loops):
    loop = loops()
    answer = json.loads(run("disk", "list", "--json", check=True).stdout)
    assert answer["version"] == 1
    listed = {d["path"]: d for d in answer["disks"]}
    assert listed[loop.device]["used"] == [] and listed[loop.device]["size_bytes"] == SIZE_BYTES
    assert loop.prepare("--yes").returncode == 0
    text = run("disk", "list", check=True).stdout
    line = next(l for l in text.splitlines() if l.startswith(loop.device + " "))
    assert "mounted at" in line and "320 MiB" in line, text


def test_another_machine_can_be_looked_at(folder):
    """A copy of /sys and /proc is enough, and nothing of this machine gets into the answer."""
    device = folder / "sys/devices/pci0000:00/ata1/host0/target0:0:0/0:0:0:0/block/sda"
    for name, text in {
        "dev": "8:0", "size": "7814037168", "queue/rotational": "1", "queue/zoned": "none", "queue/write_cache": "write back",
        "device/vendor": "ATA", "device/model": "WDC WD40EFAX-68JH4N1",
    }.items():
        (device / name).parent.mkdir(parents=True, exist_ok=True)
        (device / name).write_text(text + "\n")
    for link in ("sys/class/block/sda", "sys/dev/block/8:0"):
        (folder / link).parent.mkdir(parents=True)
        (folder / link).symlink_to(os.path.relpath(device, (folder / link).parent))
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/mountinfo").write_text("40 25 8:0 / /mnt/red rw,noatime - xfs /dev/sda rw\n")
    done = run("disk", "check", "/mnt/red/larder", "--machine", folder, "--json", check=True)
    disk = json.loads(done.stdout)["disks"][0]
    assert [f["code"] for f in disk["findings"] if f["level"] == "warning"] == ["smr"]
    assert [d["name"] for d in json.loads(run("disk", "list", "--machine", folder, "--json", check=True).stdout)["disks"]] == ["sda"]
