"""`larder bench` with small sizes: what it measures, what it refuses, and that nothing is left behind."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from conftest import make
from larderd import binary, run
from others import Sshd, free_port
from waiting import wait_for

SMALL = ("--size", "64M", "--seconds", "1", "--repeats", "1")


def bench(*args, code=0, timeout_s=240):
    done = run("bench", *args, timeout_s=timeout_s)
    assert done.returncode == code, f"bench {args}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def result(*args, **options):
    return json.loads(bench(*args, "--json", **options).stdout)


def leftovers(folder):
    return sorted(p.name for p in Path(folder).glob(".larder-bench-*"))


def rounded(value):
    """The last digit of a float may change on its way through a file."""
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value


def check_form(found):
    """What docs/bench.md promises of every result."""
    assert (found["schema"], found["version"]) == ("larder-bench", 1)
    assert found["machine"]["cores"] >= 1 and found["machine"]["memory_bytes"] > 1 << 28
    assert found["ended_ms"] >= found["started_ms"] > 1_500_000_000_000
    for r in found["runs"]:
        assert r["repeats"] and r["with"], r["workload"]
        for repeat in r["repeats"]:
            assert repeat["seconds"] > 0 and (repeat["bytes_per_s"] > 0 or repeat["operations_per_s"] > 0), repeat
        count = len(r["samples"]["at_ms"])
        series = [v for core in r["samples"]["cores"] for v in core.values() if isinstance(v, list)]
        assert all(len(values) == count for values in series)


@pytest.fixture
def output(folder):
    return ("--output", str(folder / "history"))


def test_one_disk_alone(folder, output):
    disk = folder / "disk"
    disk.mkdir()
    found = result("disk", disk, "--size", "64M", "--seconds", "2", "--repeats", "1", *output)
    check_form(found)
    kinds = [r["workload"]["kind"] for r in found["runs"]]
    assert kinds == ["write", "read", "random-write", "random-read"]
    assert {(r["layer"], r["access"], r["workload"]["caches"]) for r in found["runs"]} == {("disk", "local", "bypassed")}
    read = found["runs"][1]
    assert read["workload"]["data_bytes"] == 64 << 20 and read["repeats"][0]["latency"]["p50_us"] > 0
    assert read["samples"]["at_ms"] and read["samples"]["cores"]
    assert leftovers(disk) == []
    kept = folder / "history" / found["id"]
    assert rounded(json.loads((kept / "result.json").read_text())) == rounded(found)
    job = (kept / "run002.fio").read_text()
    assert "rw=read" in job and "direct=1" in job and (kept / "run002-1.json").exists()


def test_two_disks_then_both_at_once(folder, output):
    a, b = folder / "a", folder / "b"
    a.mkdir(), b.mkdir()
    found = result("disk", a, b, *SMALL, "--only", "read", *output)
    check_form(found)
    assert [(r["layer"], r["subject"]) for r in found["runs"]] == [
        ("disk", str(a)), ("disk", str(b)), ("disks", f"{a}, {b}")]
    # Two folders of one disk: what they reach together says nothing, and is not held against what each reaches.
    notes = found["runs"][2]["notes"]
    assert any(n["code"] == "same-disk" and n["misleading"] for n in notes) and any(n["code"] == "same-disk" for n in found["notes"])
    assert not {n["code"] for n in notes} & {"sum-holds", "shared-limit"}


def test_files_as_people_have_them(folder, output):
    kinds = "cat,create-files,read-files,stat-files,delete-files,copy-tree-in,copy-tree-out"
    found = result("disk", folder, "--preset", "standard", *SMALL, "--only", kinds, *output)
    check_form(found)
    assert [r["workload"]["kind"] for r in found["runs"]] == kinds.split(",")
    assert leftovers(folder) == []


def test_a_mixed_workload_tells_reads_and_writes_apart(folder, output):
    found = result("disk", folder, "--preset", "iops", "--size", "64M", "--seconds", "2", "--repeats", "1", "--only", "random-mixed",
                   "--depth", "16", *output)
    for run_ in found["runs"]:
        (repeat,) = run_["repeats"]
        read, write = repeat["read"], repeat["write"]
        assert read["operations"] + write["operations"] == repeat["operations"] and read["bytes"] + write["bytes"] == repeat["bytes"]
        assert 2.5 < read["operations_per_s"] / write["operations_per_s"] < 3.5
        assert read["latency"]["p50_us"] > 0 and write["latency"]["p50_us"] > 0
    text = bench("show", "last", *output).stdout
    assert "its reads" in text and "its writes" in text
    compared = json.loads(bench("compare", "last", "last", "--json", *output).stdout)
    assert any(row["workload"].endswith("its writes") and row["ratio"] == 1 for row in compared["rows"])


def copied(*args):
    """Both runs of a copy, checked: a large file, then a tree."""
    found = result("copy", *args)
    check_form(found)
    large, tree = found["runs"]
    assert {(r["layer"], r["workload"]["kind"]) for r in (large, tree)} == {("copy", "copy")}
    assert (large["workload"]["files"], large["repeats"][0]["bytes"]) == (1, 32 << 20)
    assert tree["repeats"][0]["operations"] == tree["workload"]["files"] > 100
    assert not any(n["code"] in ("not-measured", "left-behind") for n in found["notes"]), found["notes"]
    return found


def test_a_copy_from_place_to_place(folder, output):
    """Any two of folder and URL, with real servers at both ends; nothing is left at either."""
    small = ("--size", "32M", "--repeats", "1", *output)
    (folder / "here").mkdir()
    with Sshd(folder / "sshd", folder / "files") as sshd:
        daemon = make(folder / "larder", count=1, layout="stripe").start()
        try:
            (folder / "password").write_text(daemon.password + "\n")
            smb = f"smb://{daemon.user}@127.0.0.1:{daemon.smb_port}/{daemon.share}"
            login = ("--password-file", folder / "password", "--key-file", sshd.key)
            found = copied(folder / "here", smb, *small, *login)
            assert found["runs"][0]["access"] == "local to smb3" and found["title"] == f"copy {folder}/here to {smb}"
            found = copied(sshd.url, smb, *small, *login)
            assert found["runs"][0]["access"] == "sftp to smb3"
            copied(smb, folder / "here", *small, *login)
        finally:
            daemon.end()
    assert leftovers(folder / "here") == leftovers(folder / "files") == []
    text = bench("show", *output).stdout
    assert "copy a large file" in text and "COPY" in text, text
    missing = bench("copy", folder / "here", folder / "none", *small, code=1)
    assert "none" in missing.stderr, missing.stderr


# A scrub of a second is measured.
@pytest.mark.alone
def test_a_scrub_and_what_it_costs(folder, output):
    disks = [folder / name for name in "ab"]
    for disk in disks:
        disk.mkdir()
    found = result("scrub", *disks, "--layout", "mirror", *SMALL, *output)
    check_form(found)
    seen = [r.get("variant", {}).get("scrub") for r in found["runs"]]
    assert seen.count("none") == seen.count("running") > 1 and seen[-1] is None, seen
    scrub = found["runs"][-1]
    # Both copies of all that was written.
    assert scrub["workload"]["kind"] == "scrub" and scrub["repeats"][0]["bytes"] > 2 * (60 << 20), scrub
    cost = next(n["text"] for n in found["notes"] if n["code"] == "scrub-cost")
    assert cost.startswith("while a scrub runs, write 1 MiB x16 keeps ") and "random read" in cost, cost
    assert not any(n["code"] == "not-measured" for n in found["notes"]), found["notes"]
    assert "BY SCRUB" in bench("show", *output).stdout
    assert all(leftovers(disk) == [] for disk in disks)


def test_a_sweep_of_block_sizes(folder, output):
    found = result("disk", folder, "--preset", "blocksize", *SMALL, "--only", "read", "--block", "4K,1M", *output)
    assert [r["workload"]["block_bytes"] for r in found["runs"]] == [4096, 1 << 20]


def test_a_pool_made_for_it_in_two_layouts(folder, output):
    disks = [folder / name for name in "abc"]
    for disk in disks:
        disk.mkdir()
    found = result("pool", *disks, "--layouts", "mirror,raidz1", "--compressions", "none", *SMALL,
                   "--only", "write,random-read", *output)
    check_form(found)
    seen = [(r["layer"], r["variant"]["layout"], r["variant"]["compression"]) for r in found["runs"]]
    assert seen == [("pool", "mirror", "none")] * 2 + [("pool", "raidz1", "none")] * 2
    # 64 MiB are less than the pool keeps in memory, and it says so.
    said = [any(n["code"] == "memory-measured" and n["misleading"] for n in r["notes"]) for r in found["runs"]]
    assert said == [r["workload"]["kind"] == "random-read" for r in found["runs"]], "what is written counts when it is flushed"
    assert all(leftovers(disk) == [] for disk in disks)
    mounts = Path("/proc/self/mountinfo").read_text()
    assert str(folder) not in mounts


def test_the_wire_in_both_directions(folder, output):
    port = free_port(2)
    listener = subprocess.Popen([binary(), "bench", "net", "--listen", "--port", str(port), "--seconds", "60"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
        time.sleep(0.5)
        found = result("net", "127.0.0.1", "--port", port, "--seconds", "1", "--repeats", "1", *output)
        check_form(found)
        seen = [(r["workload"]["kind"], r["workload"]["jobs"]) for r in found["runs"]]
        assert seen == [("send", 1), ("receive", 1), ("send", 4), ("receive", 4), ("send-receive", 1)]
        assert all(r["repeats"][0]["bytes_per_s"] > 1e7 and "retransmits" in r["repeats"][0] for r in found["runs"])
    finally:
        listener.send_signal(signal.SIGINT)
        assert listener.wait(20) == 0, listener.stderr.read()


def test_nobody_at_the_other_end(output):
    done = bench("net", "127.0.0.1", "--port", free_port(), "--seconds", "1", "--repeats", "1", *output, code=1)
    assert "refused" in done.stderr and "bench net --listen" in done.stderr


def test_a_mounted_folder_as_a_share(folder, output):
    found = result("share", folder, *SMALL, "--only", "read", *output)
    only = found["runs"][0]
    assert (only["layer"], only["access"]) == ("share", "mount")
    assert only["variant"]["access"].startswith("mount ") and any(n["code"] == "mounted" for n in only["notes"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_it_cleans_up_and_keeps_what_it_has(folder, output, number):
    disk = folder / "disk"
    disk.mkdir()
    command = [binary(), "bench", "disk", str(disk), "--size", "64M", "--seconds", "5", "--repeats", "3",
               "--only", "read", "--json", *output]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: list((folder / "history").glob("*/run001-2.json")), 60)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1 and "its result is not whole" in err, err
    found = json.loads(out)
    assert found["interrupted"] is True and found["schema"] == "larder-bench"
    assert 0 < len(found["runs"][0]["repeats"]) < 3
    assert leftovers(disk) == []
    assert json.loads((folder / "history" / found["id"] / "result.json").read_text())["interrupted"] is True


def test_stopped_before_anything_was_measured_nothing_is_kept(folder, output):
    disk = folder / "disk"
    disk.mkdir()
    command = [binary(), "bench", "disk", str(disk), "--size", "64M", "--seconds", "20", "--only", "read", *output]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: list((folder / "history").glob("*/run001.fio")))
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1 and out == "" and "stopped before anything was measured" in err, (out, err)
    assert leftovers(disk) == [] and list((folder / "history").iterdir()) == []


def test_stopped_beside_a_server_that_hangs_it_does_not_say_that_all_is_removed(larder, output):
    url = f"nfs://127.0.0.1:{larder.nfs_port}{larder.export}"
    command = [binary(), "bench", "share", url, "--size", "16M", "--seconds", "60", "--only", "read", *output]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(5)
    os.kill(larder.pid, signal.SIGSTOP)
    try:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    finally:
        os.kill(larder.pid, signal.SIGCONT)
    assert process.returncode == 1 and f"what was written to {url} may still be there" in err and "was stopped" not in err, err


def test_the_address_that_up_prints_is_measured(larder, output):
    """As libnfs writes it: the ports stand in the query."""
    port = larder.nfs_port
    found = result("share", f"nfs://127.0.0.1{larder.export}?version=3&nfsport={port}&mountport={port}", *SMALL, "--only", "write", *output)
    assert [r["workload"]["kind"] for r in found["runs"]] == ["write"] and found["runs"][0]["access"] == "nfs3", found["notes"]


def test_results_in_a_new_folder_need_no_configuration(folder):
    done = run("--data", folder / "new", "bench", "share", folder, *SMALL, "--only", "read", "--json")
    assert done.returncode == 0 and list((folder / "new" / "bench").glob("*/result.json")), done.stderr


def test_what_a_killed_bench_left_goes_with_the_next(folder, output):
    disk = folder / "disk"
    disk.mkdir()
    command = [binary(), "bench", "disk", str(disk), "--size", "64M", "--seconds", "30", "--only", "read", *output]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: list((folder / "history").glob("*/run001.fio")))
    job = next((folder / "history").glob("*/run001.fio"))
    process.kill()
    process.wait()
    assert len(leftovers(disk)) == 1
    # The load ends with the bench, without being asked.
    def loading():
        words = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if os.access(p, os.R_OK)]
        return any(str(job).encode() in w for w in words)
    wait_for(lambda: not loading(), 20)
    mine = disk / ".larder-bench-of-a-person"
    mine.mkdir()
    bench("disk", disk, *SMALL, "--only", "read", *output)
    assert leftovers(disk) == [mine.name]


def test_what_can_only_mislead_is_refused(folder, output):
    def refused(*args, reason, action="action:"):
        done = bench(*args, *output, code=1)
        assert reason in done.stderr and action in done.stderr, done.stderr

    refused("disk", "/dev/shm", reason="is memory", action="give a folder on a disk")
    refused("disk", folder / "missing", reason="cannot measure", action="")
    file = folder / "file"
    file.write_text("x")
    refused("disk", file, reason="neither a folder nor a block device")
    refused("disk", folder, "--size", "900T", reason="too little", action="--size")
    refused("disk", folder, "--write-device", "--serial", "x", reason="--write-device is for one device")
    refused("share", "gopher://nas/x", reason="gopher", action="")
    refused("share", "nfs://127.0.0.1/x?async=1", reason="'async' is no option of nfs: it has version", action="")
    done = bench("disk", folder, "--only", "reading", *output, code=2)
    assert "'reading' is not a kind of workload: choose from read, write, random-read" in done.stderr, done.stderr
    assert not (folder / "history").exists() or list((folder / "history").iterdir()) == []


def test_short_runs_say_that_they_are(folder, output):
    found = result("disk", folder, *SMALL, "--only", "read", *output)
    assert any(n["code"] == "too-short" and n["misleading"] for n in found["runs"][0]["notes"])


def loop_device(path, size_mib):
    with open(path, "wb") as f:
        f.truncate(size_mib << 20)
    return subprocess.run(["losetup", "--find", "--show", str(path)], check=True, text=True, capture_output=True).stdout.strip()


def test_a_device_is_written_to_only_when_it_is_empty_and_named(folder, output):
    image = folder / "image"
    device = loop_device(image, 64)
    try:
        args = ("disk", device, "--size", "32M", "--seconds", "1", "--repeats", "1", *output)
        found = result(*args)
        assert {r["workload"]["kind"] for r in found["runs"]} == {"read", "random-read"}
        assert any(n["code"] == "empty-device" for n in found["runs"][0]["notes"])
        assert not any(image.read_bytes())

        done = bench(*args, "--write-device", code=1)
        assert f"--serial {device}" in done.stderr
        done = bench(*args, "--write-device", "--serial", "wrong", code=1)
        assert "is not the serial number" in done.stderr and not any(image.read_bytes())

        found = result(*args, "--write-device", "--serial", device)
        assert {"write", "random-write"} <= {r["workload"]["kind"] for r in found["runs"]}
        assert not any(image.read_bytes()), "it was empty, and is again"

        subprocess.run(["mkfs.ext4", "-q", "-F", device], check=True)
        before = image.read_bytes()
        done = bench(*args, "--write-device", "--serial", device, code=1)
        assert "carries data" in done.stderr and "ext4" in done.stderr and image.read_bytes() == before
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


def test_history(folder, output):
    assert bench("history", *output).stdout.strip() == "no results are kept"
    first = result("disk", folder, *SMALL, "--only", "read", *output)
    second = result("disk", folder, *SMALL, "--only", "write", "--label", "encryption=none", "--title", "on the shelf", *output)
    assert second["title"] == "on the shelf"
    table = [line for line in bench("show", "--markdown", *output).stdout.splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(second["runs"]) and len({line.count("|") for line in table}) == 1, table
    assert "**in a forum: " in bench("show", "--markdown", "--title", "in a forum", *output).stdout
    assert "| B is |" in bench("compare", "last", "last", "--markdown", *output).stdout
    assert "|" not in bench("compare", "last~1", "last", "--markdown", *output).stdout
    kept = json.loads(bench("history", "--json", *output).stdout)
    assert [k["id"] for k in kept] == [second["id"], first["id"]]
    assert rounded(result("show", *output)) == rounded(second)
    assert rounded(result("show", "last~1", *output)) == rounded(first)
    assert second["runs"][0]["variant"]["encryption"] == "none"
    assert first["id"] in bench("history", *output).stdout
    missing = bench("show", "nothing", *output, code=1)
    assert "no result 'nothing'" in missing.stderr and "bench history" in missing.stderr


def test_plain_lines_without_a_terminal(folder, output):
    done = bench("disk", folder, *SMALL, "--only", "read", *output)
    assert "\r" not in done.stderr and "\x1b" not in done.stderr + done.stdout
    assert "MB/s" in done.stdout + done.stderr and "kept, with plots" in done.stderr


@pytest.mark.long
def test_kinds_of_encryption_are_compared(folder, output):
    """What each share agreed on is found out, told apart and set beside what a core can do."""
    with Sshd(folder / "sshd", folder / "files") as sshd:
        daemon = make(folder / "larder", count=1, layout="stripe").start()
        try:
            (folder / "password").write_text(daemon.password + "\n")
            smb = f"smb://{daemon.user}@127.0.0.1:{daemon.smb_port}/{daemon.share}"
            chacha = "chacha20-poly1305@openssh.com"
            found = result("share", smb, f"{smb}?encrypt=1", sshd.url, f"{sshd.url}?cipher={chacha}", "--preset", "encryption",
                           "--only", "write,read", "--depth", "16", "--size", "32M", "--seconds", "1", "--repeats", "1", "--password-file",
                           folder / "password", "--key-file", sshd.key, *output)
        finally:
            daemon.end()
    kinds = list(dict.fromkeys(r["variant"]["encryption"] for r in found["runs"]))
    assert kinds[0].startswith("signed") and kinds[1].startswith("encrypted with Aes"), kinds
    assert kinds[2].startswith("aes") and kinds[3] == "chacha20-poly1305" and len(kinds) == 4, kinds
    ciphers = next(n["text"] for n in found["notes"] if n["code"] == "ciphers")
    assert all(name in ciphers for name in ("AES-128-GCM", "AES-256-GCM", "ChaCha20-Poly1305")), ciphers
    assert not any(n["code"] == "one-encryption" for n in found["notes"])
    text = bench("show", *output).stdout
    assert "BY ENCRYPTION" in text and all(kind in text for kind in ("signed", "chacha20-poly1305")), text
    plain = result("disk", folder / "files", "--preset", "encryption", "--only", "read", "--size", "32M", "--seconds", "1", "--repeats", "1", *output)
    assert "nothing to compare" in next(n["text"] for n in plain["notes"] if n["code"] == "one-encryption")


def test_two_folders_are_compared_by_their_place(folder, output):
    """Each result names its own folder; that is no reason to have nothing in common."""
    (folder / "other").mkdir()
    result("disk", folder, *SMALL, "--only", "read", *output)
    result("disk", folder / "other", *SMALL, "--only", "read", "--label", "encryption=luks", *output)
    found = json.loads(bench("compare", "last~1", "last", "--json", *output).stdout)
    assert len(found["rows"]) == 1 and found["only_a"] == found["only_b"] == [], found["summary"]
    assert found["rows"][0]["variant"] == "encryption - / luks"


def test_nothing_stays_in_a_recycle_bin(folder, output):
    """What a bench removes over SMB and WebDAV goes to the share's bin, and from there."""
    mount = folder / "mounted"
    mount.mkdir()
    daemon = make(folder / "larder", count=1, layout="stripe", extra=["--webdav", "127.0.0.1:0", "--mount", str(mount), "--squash", "none"]).start()
    try:
        daemon.run("share", "set", daemon.share, "--recycle=7", check=True)
        (folder / "password").write_text(daemon.password + "\n")
        smb = f"smb://{daemon.user}@127.0.0.1:{daemon.smb_port}/{daemon.share}"
        result("share", smb, *SMALL, "--only", "write,read", "--password-file", folder / "password", *output)
        bin_ = mount / ".recycle"
        assert bin_.is_dir() and leftovers(bin_) == leftovers(mount) == []
    finally:
        daemon.end()


def test_its_folder_on_sshfs_goes(folder, output):
    """A filesystem in user space may give a folder another inode each time."""
    with Sshd(folder / "sshd", folder / "files") as sshd:
        mount = folder / "mounted"
        mount.mkdir()
        options = f"IdentityFile={sshd.key},StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null,cache=no"
        subprocess.run(["sshfs", "-p", str(sshd.port), "-o", options, f"root@127.0.0.1:{sshd.export}", str(mount)], check=True)
        try:
            found = result("share", mount, "--size", "16M", "--seconds", "1", "--repeats", "1", "--only", "read", *output)
            assert not any(note["code"] == "left-behind" for note in found["notes"]), found["notes"]
        finally:
            subprocess.run(["fusermount3", "-u", "-z", str(mount)], check=True)
        assert leftovers(sshd.export) == []


def test_encrypted_pools_are_made_and_compared(folder, output):
    """Each cipher of larder's volumes, and gocryptfs above a plain one where that is installed."""
    kinds = ["none", "aes-256-gcm", *(["gocryptfs"] if shutil.which("gocryptfs") else [])]
    found = result("pool", folder, "--layouts", "stripe", "--encryptions", ",".join(kinds), *SMALL, "--only", "write", *output)
    check_form(found)
    assert [r["variant"]["encryption"] for r in found["runs"]] == kinds, found["notes"]
    assert "BY ENCRYPTION" in bench("show", *output).stdout
    assert leftovers(folder) == [] and str(folder) not in Path("/proc/self/mountinfo").read_text()
