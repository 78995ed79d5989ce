"""`larder recover`: real files are brought back out of pools that cannot be opened any more.

  R1  The disks are not changed, down to the last byte and time of change.
  R2  What is called complete is right byte for byte, with attributes and links; wrong bytes are never called complete.
  R3  What is missing is named, and exit code 4 says that not all is well.
"""

import hashlib
import json
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from conftest import make
from larderd import run
from trees import describe, fill, payload


def state(disks):
    """Names, contents and times of change of everything on the disks."""
    found = {}
    for disk in disks:
        for path in sorted(Path(disk).rglob("*")):
            stat = path.lstat()
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
            found[str(path)] = (stat.st_mode, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, content)
    return found


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A raidz1 pool of three disks with a tree on it, stopped; each test damages a copy."""
    folder = tmp_path_factory.mktemp("recover")
    mount = folder / "mnt"
    mount.mkdir()
    daemon = make(folder, extra=["--mount", str(mount), "--squash", "none"]).start()
    tree = fill(mount)
    assert daemon.stop() == 0
    # Where the labels say that they were nobody may find them.
    (folder / "kept").mkdir()
    kept = [disk.rename(folder / "kept" / disk.name) for disk in daemon.disks]
    return kept, tree


@pytest.fixture
def damaged(original, folder):
    """Copies of the disks, and the tree that was on them."""
    kept, tree = original
    disks = []
    for disk in kept:
        copy = folder / disk.name
        shutil.copytree(disk, copy)
        disks.append(copy)
    return disks, tree


def recover(disks, to, *options, code=0):
    """Runs it, sees that the disks are as before (R1), and returns the summary and the report of the volume."""
    before = state(disks)
    done = run("recover", "--disk", *disks, "--to", to, "--json", *options)
    assert state(disks) == before, "the disks were changed"
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    if code not in (0, 4):
        return done
    report = json.loads((to / "report.json").read_text())
    text = (to / "report.txt").read_text()
    volume = report["volumes"][0]
    assert all(entry["path"] in text or "\\" in text for entry in volume["files"])
    return json.loads(done.stdout), {entry["path"]: entry for entry in volume["files"]}


def objects(disks, part):
    """The shards of the objects whose path holds `part`, in names where '/' is '+'."""
    return [p for disk in disks for p in Path(disk, "objects").rglob("*") if p.is_file() and part in p.name]


def compare(tree, files, top):
    """R2: whatever is called complete is right, and here nothing is older than it was: no file was changed later. Returns how many."""
    found, complete = describe(top), 0
    for name, about in tree.items():
        entry = files.get(name)
        if entry and entry["state"] in ("complete", "older"):
            assert found[name] == about, name
            complete += 1
    return complete


def test_a_pool_that_is_well(damaged, folder):
    disks, tree = damaged
    summary, files = recover(disks, folder / "to")
    assert describe(folder / "to/files") == tree
    assert summary["volumes"][0]["metadata"] == "whole"
    assert (summary["volumes"][0]["partial"], summary["volumes"][0]["lost"]) == (0, 0)
    listing = json.loads(run("recover", "--disk", *disks, "--list", "--json", check=True).stdout)
    assert [v["name"] for v in listing["volumes"]] == ["files"] and listing["pool"]["name"] == "tank"


def test_after_kill_with_writes_in_the_journal_alone(folder):
    mount = folder / "mnt"
    mount.mkdir()
    daemon = make(folder, extra=["--mount", str(mount), "--squash", "none"]).start()
    for n in range(50):
        with open(mount / f"f{n}", "wb") as f:
            f.write(payload(3000 + n, n))
            f.flush()
            os.fsync(f.fileno())
    tree = describe(mount)
    daemon.kill()
    subprocess.run(["umount", "-l", str(mount)], check=False)
    _, files = recover(daemon.disks, folder / "to")
    assert describe(folder / "to/files") == tree


def test_two_of_three_disks_lose_a_part_each(damaged, folder):
    """More disks are bad than raidz1 survives, but no object has lost two shards: all comes back."""
    disks, tree = damaged
    names = sorted({p.name.split("~")[0] for p in objects(disks, "")})
    for n, name in enumerate(names):
        for path in objects([disks[n % 2]], name + "~"):
            path.unlink()
    for disk in disks[:2]:
        (disk / "larder.label").write_bytes(b"scribble")
        (disk / "larder.label.2").unlink()
    refused = run("pool", "status", *disks)
    assert refused.returncode == 1, refused.stdout
    recover(disks, folder / "to")
    assert describe(folder / "to/files") == tree


def test_two_of_three_disks_are_gone(damaged, folder):
    """One shard of each object: what is mirrored is there or not, striped data is lost and named."""
    disks, tree = damaged
    complete = []
    for disk in disks:
        to = folder / f"to-{disk.name}"
        _, files = recover([disk], to, code=4)
        top, = [p for p in to.iterdir() if p.is_dir()]
        complete.append(compare(tree, files, top))
        big = files.get("big.bin")
        assert big is None or (big["state"] != "complete" and (big["missing"] or big["doubtful"])), big
    assert max(complete) > 10, f"directories, links, and tiny files: {complete}"


def test_the_manifest_is_gone(damaged, folder):
    disks, tree = damaged
    for path in objects(disks, "meta+manifest"):
        path.unlink()
    summary, files = recover(disks, folder / "to", code=4)
    assert summary["volumes"][0]["metadata"] == "damaged"
    assert compare(tree, files, folder / "to/files") == len(tree), "all rows are in tables and journal"


def test_all_metadata_is_gone(damaged, folder):
    disks, tree = damaged
    for path in objects(disks, "+meta+") + [p for disk in disks for p in (disk / "journal").iterdir()]:
        path.unlink()
    summary, files = recover(disks, folder / "to", code=4)
    assert summary["volumes"][0]["metadata"] == "missing"
    contents = {p.read_bytes() for p in (folder / "to/files/lost+found").iterdir()}
    for name, about in tree.items():
        data = about[5] if len(about) > 6 else b""
        if len(data) > 1024 and name != "sparse":
            assert data in contents, name
    assert all(entry["doubtful"] or entry["state"] != "complete" for entry in files.values())


def test_the_journal_is_gone(damaged, folder):
    """What was not in tables yet is missing: that must never look like an empty volume that is well."""
    disks, tree = damaged
    for path in (p for disk in disks for p in (disk / "journal").iterdir()):
        path.unlink()
    summary, files = recover(disks, folder / "to", code=4)
    assert summary["volumes"][0]["metadata"] != "whole"
    assert not [entry for entry in files.values() if entry["state"] == "complete"], "nobody knows what the journal had of it"
    contents = {p.read_bytes() for p in (folder / "to/files").rglob("*") if p.is_file()}
    assert tree["big.bin"][5] in contents


def test_files_that_the_lost_journal_had_newer_are_not_called_complete(folder):
    """Written, brought into tables by a clean stop, overwritten, and then every journal is gone."""
    mount = folder / "mnt"
    mount.mkdir()
    daemon = make(folder, extra=["--mount", str(mount), "--squash", "none"]).start()
    sizes = (500, 3000, 200_000)
    for n in range(20):
        (mount / f"f{n}").write_bytes(payload(sizes[n % 3], n))
    assert daemon.stop() == 0
    daemon.start()
    for n in range(20):
        with open(mount / f"f{n}", "r+b") as f:
            f.write(payload(sizes[n % 3], 1000 + n))
            os.fsync(f.fileno())
    newest = describe(mount)
    daemon.kill()
    subprocess.run(["umount", "-l", str(mount)], check=False)
    for path in (p for disk in daemon.disks for p in (Path(disk) / "journal").iterdir()):
        path.unlink()
    summary, files = recover(daemon.disks, folder / "to", code=4)
    found = describe(folder / "to/files")
    older = [name for name in newest if found[name] != newest[name]]
    assert older, "the tables have the first state of at least some"
    assert all(files[name]["state"] != "complete" for name in older), files
    volume = summary["volumes"][0]
    assert volume["complete"] == 0 and volume["older"] > 0
    listed = subprocess.run(["grep", "-v", "^complete", folder / "to/report.txt"], text=True, capture_output=True).stdout
    assert all(f" {name}" in listed for name in older)


def test_the_registry_is_gone(damaged, folder):
    disks, tree = damaged
    for path in objects(disks, "registry.json"):
        path.unlink()
    recover(disks, folder / "to")
    volume, = [p for p in (folder / "to").iterdir() if p.is_dir()]
    assert describe(volume) == tree


def scribble(path, at=0.5, length=400):
    content = bytearray(path.read_bytes())
    begin = int(len(content) * at)
    for n in range(begin, min(begin + length, len(content))):
        content[n] ^= 0xA5
    path.write_bytes(content)


# Not a manifest that is gone: the journal has all that it named, and so all is served.
@pytest.mark.parametrize("part,how", [
    ("registry.json", Path.unlink), ("registry.json", scribble), ("meta+compacted", Path.unlink), ("meta+compacted", scribble),
    ("meta+manifest", scribble),
])
def test_what_cannot_be_served_is_refused_and_names_recover(damaged, folder, part, how):
    """At once, by the daemon and by a check; an empty volume is never served in the place of a lost one."""
    disks, _ = damaged
    for path in objects(disks, part):
        how(path)
    registry = objects(disks, "registry.json")
    for command in (["up", "--data", folder / "data", "--json", "--smb", "off", "--nfs", "127.0.0.1:0", *disks], ["check", *(word for disk in disks for word in ("--disk", disk))]):
        begun = time.monotonic()
        refused = run(*command)
        assert refused.returncode == 1, f"{command}: {refused.stdout}\n{refused.stderr}"
        assert "larder recover" in refused.stdout + refused.stderr
        assert time.monotonic() - begun < 30
    assert objects(disks, "registry.json") == registry, "none is made in the place of a lost one"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_bytes_are_flipped_all_over(damaged, folder, seed):
    """On all disks at once, in everything: whatever comes back as complete is right."""
    disks, tree = damaged
    rng = random.Random(seed)
    for path in (p for disk in disks for p in disk.rglob("*") if p.is_file() and p.stat().st_size):
        with open(path, "r+b") as f:
            size = f.seek(0, os.SEEK_END)
            for _ in range(rng.choice((0, 0, 1, 3)) * seed):
                f.seek(rng.randrange(size))
                f.write(rng.randbytes(rng.choice((1, 100))))
    before = state(disks)
    done = run("recover", "--disk", *disks, "--to", folder / "to", "--json")
    assert state(disks) == before
    assert done.returncode in (0, 4), done.stderr
    assert "panicked" not in done.stderr
    report = json.loads((folder / "to/report.json").read_text())
    if report["volumes"]:
        volume = report["volumes"][0]
        if volume["metadata"] == "whole":
            files = {entry["path"]: entry for entry in volume["files"]}
            compare(tree, files, folder / "to" / (volume["name"] or volume["id"]))


def test_disks_that_are_mounted_read_only(damaged, folder):
    disks, tree = damaged
    mounts = []
    try:
        for disk in disks:
            target = folder / f"ro-{disk.name}"
            target.mkdir()
            subprocess.run(["mount", "--bind", str(disk), str(target)], check=True)
            mounts.append(target)
            subprocess.run(["mount", "-o", "remount,bind,ro", str(target)], check=True)
        recover(mounts, folder / "to")
        assert describe(folder / "to/files") == tree
    finally:
        for mount in mounts:
            subprocess.run(["umount", str(mount)], check=False)


def test_what_is_refused(damaged, folder):
    disks, _ = damaged
    full = folder / "full"
    full.mkdir()
    (full / "mine").write_text("x")
    assert "not empty" in run("recover", "--disk", *disks, "--to", full).stderr
    assert "lies on the disk" in run("recover", "--disk", *disks, "--to", disks[0] / "out").stderr
    assert not (disks[0] / "out").exists()
    none = run("recover", "--disk", full, "--to", folder / "a")
    assert none.returncode == 1 and "no larder pool" in none.stderr
    other = run("recover", "--disk", *disks, "--volume", "films", "--to", folder / "b")
    assert other.returncode == 1 and "files" in other.stderr


def test_a_pool_in_use_is_left_alone(fresh, folder):
    done = run("recover", "--disk", *fresh.disks, "--to", folder / "to")
    assert done.returncode == 1 and f"process {fresh.pid}" in done.stderr and "stop it first" in done.stderr
    time.sleep(0.2)
    assert fresh.status()["state"] == "ONLINE"
