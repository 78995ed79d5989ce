"""The command line: what a person types, right and wrong. Errors name the thing, the reason and the way out."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import time

import pytest

import nfs3
from conftest import client, make, payload
from larderd import Larder, StartFailed, binary, run
from nfs3 import NfsError
from waiting import lines_until, remove_folder, wait_for


def refusal(larder, *must_contain, timeout_s=30):
    """Starting fails, with these words on stderr and without a panic."""
    try:
        with pytest.raises(StartFailed) as failure:
            larder.start(timeout_s=timeout_s)
    finally:
        larder.end()
    text = str(failure.value)
    assert "panicked" not in text and "RUST_BACKTRACE" not in text, text
    for words in must_contain:
        assert str(words).lower() in text.lower(), f"{words!r} is missing in:\n{text}"
    return text


def fails(*args, code=None, contains=()):
    done = run(*args)
    assert done.returncode not in (0, 101), f"{args}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    if code is not None:
        assert done.returncode == code, f"{args}: exit {done.returncode}\n{done.stderr}"
    assert "panicked" not in done.stderr
    for words in contains:
        assert str(words).lower() in done.stderr.lower(), f"{words!r} is missing in:\n{done.stderr}"
    return done.stderr


# ---- up ----


def test_first_run_second_run(folder):
    larder = make(folder).start()
    try:
        assert larder.info["pid"] == larder.process.pid
        assert larder.info["user"] == "keeper"
        with client(larder) as nfs:
            nfs.write_all(nfs.create(nfs.root, "kept").handle, b"kept")
        assert larder.stop() == 0
        larder.start()
        with client(larder) as nfs:
            assert nfs.read_all(nfs.walk("kept")) == b"kept"
        # timeout(1) and terminals signal a process and its group.
        for pause_s in (0, 0.02):
            larder.process.send_signal(signal.SIGINT)
            time.sleep(pause_s)
        assert larder.process.wait(60) == 0
    finally:
        larder.end()


def test_default_disks_and_a_generated_password(folder):
    """`larder up --trial`: three folders, a password that is shown once and never kept in clear."""
    command = [binary(), "up", "--trial", "--nfs", "127.0.0.1:0", "--smb", "127.0.0.1:0", "--json"]

    def once():
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        info = json.loads(process.stdout.readline())
        process.terminate()
        rest = process.stdout.read()
        assert process.wait(60) == 0 and rest == "", f"more than one line on stdout: {rest!r}"
        return info

    first = once()
    assert sorted(p.name for p in (folder / "larder-data").iterdir() if p.name.startswith("disk")) == ["disk1", "disk2", "disk3"]
    assert first["password"] and len(first["password"]) >= 8 and first["user"]
    for path in (folder / "larder-data").rglob("*"):
        if path.is_file():
            assert first["password"].encode() not in path.read_bytes(), f"the password is in clear in {path}"
    assert stat.S_IMODE((folder / "larder-data").stat().st_mode) & 0o077 == 0
    second = once()
    # A generated password is kept sealed for scripts; one that a person chose is never told again.
    assert second["password"] == first["password"] and second["user"] == first["user"]
    assert second["nfs"]["export"] == first["nfs"]["export"]


def test_what_a_person_sees(folder):
    """Commands to copy for every system, on a terminal or not."""
    process = subprocess.Popen(
        [binary(), "up", "--trial", "--nfs", "127.0.0.1:0", "--smb", "127.0.0.1:0"], cwd=folder, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT)
    try:
        text = lines_until(process.stdout, "Ctrl-C")
    finally:
        process.terminate()
        text += process.communicate(timeout=60)[0].decode()
    assert process.returncode == 0, text
    for words in ("mount -t nfs", "nolock", "mount -t cifs", "smbclient", "macOS", "Windows", "assword"):
        assert words in text, f"{words!r} is missing in:\n{text}"
    assert "\x1b[" not in text, "colour where there is no terminal"


def test_too_few_disks(folder):
    refusal(make(folder, count=2, layout="raidz2"), "raidz2", "disk")
    refusal(make(folder / "b", count=1, layout="mirror"), "mirror", "disk")


def test_unknown_layout_and_options(folder):
    fails("up", folder / "a", "--layout", "raid7", code=2, contains=["raid7", "raidz1"])
    fails("up", "--no-such-option", code=2)
    fails("no-such-command", code=2)
    fails("up", folder / "a", "--nfs", "not-an-address")
    fails("up", folder / "a", "--memory", "lots", contains=["lots"])
    assert not (folder / "a").exists()


def test_a_folder_that_is_not_empty(folder):
    larder = make(folder)
    larder.disks[1].mkdir(parents=True)
    (larder.disks[1] / "holiday.jpg").write_text("do not touch")
    refusal(larder, larder.disks[1], "empty")
    assert (larder.disks[1] / "holiday.jpg").read_text() == "do not touch"
    assert not list(larder.disks[0].glob("*")) if larder.disks[0].exists() else True


def test_a_disk_twice(folder):
    larder = make(folder)
    larder.disks[2] = larder.disks[0]
    refusal(larder, larder.disks[0], "twice")
    larder.disks[0].mkdir(parents=True, exist_ok=True)
    (folder / "alias").symlink_to(larder.disks[0])
    larder.disks[2] = folder / "alias"
    refusal(larder, "alias")


def test_a_disk_that_is_a_file(folder):
    larder = make(folder)
    larder.disks[0].write_text("a file")
    refusal(larder, larder.disks[0])


def test_a_port_in_use(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("up", folder / "d1", folder / "d2", folder / "d3", "--data", folder / "data", "--smb", "127.0.0.1:0",
                   "--nfs", f"127.0.0.1:{port}", timeout_s=60)
        assert done.returncode == 1, done.stdout + done.stderr
        assert str(port) in done.stderr and "in use" in done.stderr and "--nfs" in done.stderr, done.stderr


@pytest.mark.parametrize("address", ("127.0.0.1:111", ":111", "[::1]:111"))
def test_an_address_is_no_disk(folder, address):
    """`--portmapper` takes one with `=` only; without, it would have become a disk of that name."""
    done = run("up", "d1", "d2", "d3", "--portmapper", address, "--data", folder / "data", cwd=folder)
    assert done.returncode != 0 and f"--portmapper={address}" in done.stderr, done.stderr
    assert list(folder.iterdir()) == []


def test_two_processes_cannot_open_one_pool(folder):
    larder = make(folder).start()
    second = Larder(larder.disks, folder / "other-data")
    try:
        refusal(second, larder.pid)
        same_data = Larder(larder.disks, folder / "data")
        refusal(same_data, larder.pid)
        fails("check", "--disk", larder.disks[0], "--disk", larder.disks[1], "--disk", larder.disks[2], contains=[larder.pid])
        with client(larder) as nfs:
            nfs.getattr(nfs.root)
        larder.kill()
        # A lock dies with its process.
        larder.start()
        assert larder.stop() == 0
    finally:
        second.end()
        larder.end()


def test_the_password_file(folder):
    larder = make(folder)
    larder.password_file.unlink()
    larder.start()
    try:
        made = larder.password_file.read_text().strip()
        assert len(made) >= 8 and stat.S_IMODE(larder.password_file.stat().st_mode) == 0o600
        assert larder.stop() == 0
    finally:
        larder.end()
    empty = make(folder / "b")
    empty.password_file.write_text("\n")
    refusal(empty, empty.password_file)


def test_disks_on_a_read_only_filesystem(folder):
    (folder / "ro").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=512m", "tmpfs", folder / "ro"], check=True)
    try:
        larder = Larder([folder / "ro" / f"disk{n}" for n in (1, 2, 3)], folder / "data")
        refusal(larder, folder / "ro", "read-only")
    finally:
        subprocess.run(["umount", folder / "ro"], check=True)


def test_a_folder_beside_the_disks_of_a_pool_is_not_left_out_silently(folder):
    """One that is away may be named, a stranger may not."""
    first = make(folder).start()
    assert first.stop() == 0
    new, file = folder / "new one", folder / "file"
    file.write_text("x")
    for stranger in (new, file):
        refusal(Larder([*first.disks, stranger], folder / "second"), stranger, "tank", "pool add")
    first.disks[2].rename(folder / "elsewhere")
    second = Larder(first.disks, folder / "second").start()
    assert "DEGRADED" in second.run("pool", "status", check=True).stdout
    assert second.stop() == 0
    # It is what its label says, wherever it is.
    (folder / "elsewhere").rename(folder / "moved")
    again = Larder([*first.disks[:2], folder / "moved"], folder / "second").start()
    wait_for(lambda: [disk["state"] for disk in again.status()["disks"]] == ["ONLINE"] * 3)
    assert str(folder / "moved") in [disk["path"] for disk in again.status()["disks"]]
    assert again.stop() == 0


# ---- pool, volume, share, user, check ----


def test_dry_run_tells_the_capacity(loop_disks, folder):
    """1 + 2 + 3 mirrored is 3; nothing is written."""
    disks = loop_disks(300, 600, 900)
    for disk in disks:
        disk.folder.mkdir()
    folders, at = [d.folder for d in disks], ("--data", folder / "data")
    done = run(*at, "pool", "create", "tank", *folders, "--layout", "mirror", "--dry-run", "--json", check=True)
    plan = json.loads(done.stdout)
    text = json.dumps(plan)
    usable = next(int(v) for k, v in re.findall(r'"(\w*usable\w*)": (\d+)', text))
    # A filesystem of 900 MiB has some 850 to give.
    assert 700 << 20 < usable <= 900 << 20, plan
    person = run(*at, "pool", "create", "tank", *folders, "--layout", "mirror", "--dry-run", check=True).stdout
    assert "mirror" in person and "1" in person
    for path in folders:
        assert list(path.iterdir()) == []


def test_create_status_list_export_import(folder):
    disks = [folder / f"d{n}" for n in (1, 2, 3, 4)]
    for disk in disks:
        disk.mkdir()
    at = ("--data", folder / "data")
    run(*at, "pool", "create", "shelf", *disks, "--layout", "raidz2", check=True)
    fails(*at, "pool", "create", "shelf", *disks, "--layout", "raidz2", contains=["shelf"])
    status = run(*at, "pool", "status", *disks, check=True).stdout
    assert "shelf" in status and "ONLINE" in status and "CKSUM" in status
    for disk in disks:
        assert str(disk) in status
    assert "raidz2" in json.loads(run(*at, "pool", "list", *disks, "--json", check=True).stdout)[0]["layout"]
    run(*at, "pool", "export", *disks, check=True)
    run(*at, "pool", "import", *disks, check=True)
    fails(*at, "pool", "create", "x", disks[0], "--layout", "stripe", contains=[disks[0]])
    fails(*at, "pool", "status", "no-such-pool", contains=["no-such-pool"])


def test_a_pool_imported_while_serving_is_shared_again(folder):
    larder = make(folder).start()
    try:
        with client(larder) as nfs:
            nfs.write_all(nfs.create(nfs.root, "kept").handle, b"kept")
        exports = nfs3.exports("127.0.0.1", larder.nfs_port)
        larder.run("pool", "export", "tank", check=True)
        assert nfs3.exports("127.0.0.1", larder.nfs_port) == []
        assert "share list" in larder.run("pool", "import", *larder.disks, check=True).stdout
        assert [path for path, _ in nfs3.exports("127.0.0.1", larder.nfs_port)] == [path for path, _ in exports]
        with client(larder) as nfs:
            assert nfs.read_all(nfs.walk("kept")) == b"kept"
    finally:
        larder.end()


def test_a_daemon_that_hangs_holds_up_nobody_else(folder):
    """Commands on other disks go on; on its own disks they say who holds them."""
    larder, disks = make(folder).start(), [folder / "other"]
    disks[0].mkdir()
    run("--data", folder / "none", "pool", "create", "shelf", *disks, "--layout", "stripe", check=True)
    try:
        os.kill(larder.pid, signal.SIGSTOP)
        before = time.monotonic()
        assert "shelf" in run("pool", "status", *disks, check=True).stdout
        fails("pool", "status", *larder.disks, contains=[larder.pid])
        assert time.monotonic() - before < 30
    finally:
        os.kill(larder.pid, signal.SIGCONT)
        assert larder.stop() == 0


def test_volumes(folder):
    larder = make(folder).start()
    try:
        larder.run("volume", "create", "films", "--record-size", "1M", "--compression", "zstd", check=True)
        listed = {v["name"]: v for v in json.loads(larder.run("volume", "list", "--json", check=True).stdout)}
        assert listed["films"]["record_bytes"] == 1 << 20 and listed["films"]["compression"] == "zstd"
        for bad in (("volume", "create", "films"), ("volume", "create", "Bad Name!"), ("volume", "set", "nothing", "--sync", "relaxed"),
                    ("volume", "create", "x", "--record-size", "3K"), ("volume", "destroy", "nothing", "--yes")):
            done = larder.run(*bad)
            assert done.returncode not in (0, 101) and done.stderr.strip(), bad
        exports = [path for path, _ in nfs3.exports("127.0.0.1", larder.nfs_port)]
        films = next(path for path in exports if "films" in path)
        with nfs3.Nfs3.mount("127.0.0.1", larder.nfs_port, films) as nfs:
            nfs.write_all(nfs.create(nfs.root, "a").handle, payload(3 << 20))
        larder.run("volume", "destroy", "films", "--yes", check=True)
        assert "films" not in larder.run("volume", "list", check=True).stdout
        with pytest.raises(NfsError):
            nfs3.mount("127.0.0.1", larder.nfs_port, films)
        assert larder.stop() == 0
        assert larder.check("--read-data").returncode == 0
    finally:
        larder.end()


def test_volumes_show_what_is_theirs(fresh):
    """USED is the volume's own, not the pool's, with its compression ratio beside it."""
    for name in ("empty", "text"):
        fresh.run("volume", "create", name, "--compression", "zstd", check=True)
    with client(fresh) as nfs:
        nfs.write_all(nfs.create(nfs.root, "noise").handle, payload(6 << 20))
    with nfs3.Nfs3.mount("127.0.0.1", fresh.nfs_port, "/text") as nfs:
        file = nfs.create(nfs.root, "words").handle
        nfs.write_all(file, b"the same words again and again. " * (8 << 15))
        nfs.commit(file)

    def settled():
        found = {v["name"]: v for v in json.loads(fresh.run("volume", "list", "--json", check=True).stdout)}
        return found if found["text"]["stored_bytes"] and found["files"]["stored_bytes"] else None

    end = time.monotonic() + 60
    while not (found := settled()) and time.monotonic() < end:
        time.sleep(0.2)
    assert found["empty"]["used_bytes"] == 0 and found["empty"]["compression_ratio"] is None, found
    assert found["files"]["used_bytes"] == 6 << 20 and found["text"]["used_bytes"] == 8 << 20, found
    assert found["text"]["compression_ratio"] > 3 and 0.9 < found["files"]["compression_ratio"] < 1.1, found
    assert "RATIO" in fresh.run("volume", "list", check=True).stdout


@pytest.mark.parametrize("theirs,ours", (("raid10", "mirror"), ("raid0", "stripe"), ("raid5", "raidz1"), ("z2", "raidz2")))
def test_layouts_under_the_names_of_others(folder, theirs, ours):
    disks = [folder / f"d{n}" for n in range(4)]
    text = run("--data", folder / "none", "pool", "create", "t", *disks, "--layout", theirs, "--dry-run", check=True).stdout
    assert f": {ours} over 4" in text, text


def test_what_is_typed_first_gets_a_way_out(folder):
    fails("pool", "create", "t", "/dev/no-such-disk", "--layout", "stripe", contains=["there is no disk", "disk list"])
    # zpool asks for no layout.
    fails("pool", "create", "t", "/dev/no-such-disk", contains=["there is no disk", "disk list"])
    fails("pool", "create", "t", folder / "d1", folder / "d2", contains=["pool 't' has no layout", "--layout: mirror"])
    if os.path.ismount("/mnt") or os.stat("/mnt").st_dev != os.stat("/").st_dev:
        return
    for words in (("pool", "create", "t", "/mnt/no-disk-here", "--layout", "stripe", "--dry-run"),
                  ("pool", "add", "t", "/mnt/no-disk-here"), ("pool", "replace", "t", folder, "/mnt/no-disk-here"),
                  ("--data", folder / "data", "up", "/mnt/no-disk-here", "--nfs", "off", "--smb", "off")):
        fails(*words, contains=["no disk is mounted on /mnt/no-disk-here", "--force"])
    assert not os.path.exists("/mnt/no-disk-here")


def test_scripts_get_json_for_mistakes_and_warnings_too(folder):
    done = run("pool", "--json", "frobnicate")
    assert done.returncode == 2 and json.loads(done.stderr)["error"]["kind"] == "invalid", done.stderr
    disks = [folder / f"d{n}" for n in range(2)]
    done = run("--data", folder / "none", "pool", "create", "t", *disks, "--layout", "mirror", "--dry-run", "--json", check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert lines and all(set(line) == {"warning"} for line in lines), done.stderr
    assert not any("there is no folder" in line["warning"] for line in lines), "folders that will be made are no fault"


def test_a_share_that_cannot_be_served_keeps_no_other_from_it(folder):
    daemon = make(folder).start()
    try:
        daemon.run("volume", "create", "other", check=True)
        daemon.stop()
        file = daemon.data / "larder.toml"
        file.write_text(file.read_text().replace('volume = "tank/other"', 'volume = "tank/gone"'))
        daemon.start()
        assert daemon.share == "files"
        assert "share 'other' is not served" in daemon.log()
    finally:
        daemon.end()


def test_an_answer_that_is_lost_is_a_failure():
    with open("/dev/full", "w") as full:
        done = subprocess.run([binary(), "disk", "list"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1 and "standard output" in done.stderr, done.stderr


def test_control_characters_are_shown_and_not_obeyed(folder):
    text = fails("pool", "status", str(folder / "a\x1b[31mred"))
    assert "\x1b" not in text and "\\u{1b}" in text, text


def test_bounds_of_memory_and_quota(folder):
    fails("--data", folder / "d", "up", "--memory", "900TiB", code=2, contains=["more than this machine has"])
    fails("volume", "set", "x", "--quota", "5", code=2, contains=["holds next to nothing"])


def test_importing_some_disks_keeps_all(folder):
    """A pool opens with fewer disks than it has; the configuration names all of them all the same."""
    disks = [folder / f"d{n}" for n in (1, 2, 3)]
    at = ("--data", folder / "data")
    run(*at, "pool", "create", "shelf", *disks, "--layout", "raidz1", check=True)
    run(*at, "pool", "export", *disks, check=True)
    run(*at, "pool", "import", *disks[:2], check=True)
    text = (folder / "data/larder.toml").read_text()
    assert all(str(disk) in text for disk in disks), text
    done = run("check", "--disk", *disks)
    assert done.returncode == 0, done.stderr


def test_commands_without_a_daemon_or_a_pool(folder):
    for words in (("pool", "status"), ("volume", "list"), ("share", "list"), ("user", "list"), ("check",)):
        done = run("--data", folder / "nothing", *words, timeout_s=30)
        assert done.returncode not in (0, 101) and done.stderr.strip(), f"{words}: exit {done.returncode} {done.stdout}"
        assert "panicked" not in done.stderr


def test_check_finds_damage(folder):
    """`larder check --read-data` does not call a damaged pool clean when redundancy cannot mend it."""
    larder = make(folder, count=1, layout="stripe").start()
    try:
        with client(larder) as nfs:
            nfs.write_all(nfs.create(nfs.root, "a").handle, payload(20 << 20))
        assert larder.stop() == 0
        assert larder.check("--read-data").returncode == 0
        big = max((p for p in larder.disks[0].rglob("*") if p.is_file() and "journal" not in str(p)), key=lambda p: p.stat().st_size)
        with open(big, "r+b") as f:
            f.seek(big.stat().st_size // 2)
            f.write(os.urandom(64))
        done = larder.check("--read-data")
        assert done.returncode not in (0, 101), done.stdout
    finally:
        larder.end()


@pytest.mark.parametrize("online", (True, False), ids=("online", "offline"))
def test_check_mends_what_nobody_reads(folder, online):
    """Parity and second copies too: after it another disk may go."""
    larder = make(folder).start()
    try:
        with client(larder) as nfs:
            nfs.write_all(nfs.create(nfs.root, "a").handle, payload(5 << 20))
        assert larder.stop() == 0
        for path in larder.disks[1].rglob("objects/**/*"):
            if path.is_file():
                with open(path, "r+b") as f:
                    f.seek(path.stat().st_size // 2)
                    f.write(os.urandom(64))
        if online:
            larder.start()
        done = larder.run("check", "--read-data", "--json") if online else larder.check("--read-data", "--json")
        found = json.loads(done.stdout)[0]
        assert done.returncode == 0 and found["rebuilt"] > 0, done.stdout
        if online:
            assert larder.stop() == 0
        remove_folder(larder.disks[2])
        larder.start()
        with client(larder) as nfs:
            assert nfs.read_all(nfs.walk("a")) == payload(5 << 20)
    finally:
        larder.end()


# ---- the configuration ----


def restart_with(larder, change):
    """Stops, edits larder.toml, starts."""
    if larder.process is not None:
        assert larder.stop() == 0
    config = next(larder.data.rglob("larder.toml"))
    before = config.read_text()
    after = change(before)
    assert after != before, "the edit changed nothing"
    config.write_text(after)
    process = Serve(larder, config)
    return process.start()


class Serve(Larder):
    """`larder serve` from a file; says it is ready in the same JSON line."""

    def __init__(self, other, config):
        super().__init__(other.disks, other.data)
        self.config = config

    @property
    def user(self):
        return "keeper"

    def command(self):
        return [self.program, "--json", "serve", "--config", str(self.config)]


def share_option(option):
    """Puts a line into the first [[share]], replacing one that says something else."""
    key = option.split("=")[0].strip()

    def change(text):
        head, mark, tail = text.partition("[[share]]\n")
        body, gap, rest = tail.partition("\n[")
        lines = [line for line in body.splitlines() if not re.match(rf"\s*{key}\s*=", line)]
        return head + mark + "\n".join(lines + [option]) + "\n" + gap + rest

    return change


@pytest.fixture
def configured(folder):
    larder = make(folder).start()
    with client(larder) as nfs:
        nfs.setattr(nfs.root, mode=0o777)
        file = nfs.create(nfs.root, "file", mode=0o666).handle
        nfs.write_all(file, b"content")
    assert larder.stop() == 0
    started = []

    def with_share(option):
        started.append(restart_with(larder, share_option(option)))
        return started[-1]

    yield with_share
    for daemon in started:
        daemon.end()


def test_read_only_export(configured):
    daemon = configured("read_only = true")
    with client(daemon) as nfs:
        file = nfs.walk("file")
        assert nfs.read_all(file) == b"content"
        for attempt in (lambda: nfs.write(file, 0, b"x"), lambda: nfs.create(nfs.root, "new"), lambda: nfs.remove(nfs.root, "file"),
                        lambda: nfs.setattr(file, mode=0o600), lambda: nfs.mkdir(nfs.root, "d"), lambda: nfs.symlink(nfs.root, "l", "x"),
                        lambda: nfs.rename(nfs.root, "file", nfs.root, "x"), lambda: nfs.link(file, nfs.root, "x")):
            with pytest.raises(NfsError) as error:
                attempt()
            assert error.value.status == nfs3.ROFS
        assert nfs.access(file, nfs3.ACCESS_MODIFY | nfs3.ACCESS_READ) == nfs3.ACCESS_READ


def test_networks(configured):
    daemon = configured('networks = ["10.1.2.0/24"]')
    with pytest.raises(NfsError) as error:
        nfs3.mount("127.0.0.1", daemon.nfs_port, daemon.export)
    assert error.value.status == 13


@pytest.mark.parametrize("squash,of_root,of_user", (("root", False, True), ("all", False, False), ("none", True, True)))
def test_squash(configured, squash, of_root, of_user):
    """Whether root and an ordinary user stay who they are."""
    daemon = configured(f'squash = "{squash}"')
    daemon.end()
    daemon = restart_with(daemon, lambda text: share_option("anon_gid = 4242")(share_option("anon_uid = 4242")(text)))
    try:
        for uid, kept in ((0, of_root), (1234, of_user)):
            with client(daemon, uid=uid, gid=uid) as nfs:
                made = nfs.create(nfs.root, f"by{uid}")
                assert made.attr.uid == (uid if kept else 4242)
    finally:
        daemon.end()


@pytest.mark.parametrize("text,words", (
    ("colour = 'blue'\n", ["colour", "1"]),
    ("[listen]\nnfs = 12\n", ["nfs", "2"]),
    ("[[share]]\nname = 'a'\nvolume = 'nowhere/x'\n", ["nowhere"]),
    ("this is not toml", ["1"]),
))
def test_configuration_errors_name_the_place(folder, text, words):
    config = folder / "larder.toml"
    config.write_text(text)
    fails("serve", "--config", config, contains=[config, *words])
    fails("serve", "--config", folder / "missing.toml", contains=["missing.toml"])


def test_a_volume_that_is_destroyed_without_a_daemon_takes_its_share_along(folder):
    daemon = make(folder).start()
    daemon.run("volume", "create", "other", check=True)
    assert daemon.stop() == 0
    daemon.run("volume", "destroy", "other", "--yes", check=True)
    assert "other" not in (daemon.data / "larder.toml").read_text()
    daemon.start()
    assert [s["name"] for s in json.loads(daemon.run("--json", "share", "list", check=True).stdout)] == ["files"]
    assert daemon.stop() == 0
