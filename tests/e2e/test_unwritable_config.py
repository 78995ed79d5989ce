"""larder.toml cannot be written (its folder is full or read-only): a command is refused, and everything is as before.

A folder where the new file would be written is in the way of root, too.
"""

import contextlib
import json
import os
import subprocess

import pytest

from conftest import make
from larderd import run
from test_config_apply import config, state


@contextlib.contextmanager
def unwritable(daemon):
    blocker = daemon.data / "larder.toml.new"
    blocker.mkdir()
    try:
        yield
    finally:
        blocker.rmdir()


@pytest.fixture
def house(folder):
    daemon = make(folder, layout="mirror", count=2, extra=["--replication", "127.0.0.1:0"]).start()
    mount = folder / "mounted"
    mount.mkdir()
    daemon.mounted = mount
    daemon.run("volume", "create", "old", "--no-share", check=True)
    daemon.run("user", "add", "eve", "--password-file", daemon.password_file, "--force", check=True)
    daemon.run("group", "add", "family", "--member", "eve", check=True)
    daemon.run("mount", mount, "--volume", "tank/files", "--at-start", check=True)
    yield daemon
    subprocess.run(["umount", "-l", mount], capture_output=True)
    daemon.end()


def pools(daemon):
    return [(one["name"], one.get("exported"), one.get("state")) for one in json.loads(run("pool", "list", *daemon.disks, "--json", check=True).stdout)]


def everything(daemon):
    """What there is: served and in files."""
    files = {name: (daemon.data / name).read_bytes() for name in ("larder.toml", "secrets")}
    files["tokens"] = (daemon.data / "tokens").read_bytes() if (daemon.data / "tokens").exists() else b""
    if not daemon.alive():
        return files, pools(daemon)
    named = json.loads(daemon.run("pool", "list", "--json", check=True).stdout)
    mounted = os.path.ismount(daemon.mounted)
    return files, state(daemon), [one["name"] for one in named], mounted, mounted and sorted(os.listdir(daemon.mounted))


def changes(daemon):
    """Every command that changes more than the file."""
    password = ("--password-file", daemon.password_file, "--force")
    return [
        ("volume", "set", "tank/files", "--quota", "5GiB", "--compression", "zstd"),
        ("volume", "set", "tank/files", "--user-quota", "eve=1GiB"),
        ("volume", "create", "new"),
        ("volume", "destroy", "tank/files", "--yes"),
        ("user", "add", "bob", *password),
        ("user", "set", "eve", "--role", "looker"),
        ("user", "remove", "eve"),
        ("group", "add", "others", "--member", "eve"),
        ("group", "remove", "family"),
        ("share", "add", "more", "--volume", "tank/files", "--folder", "a/b"),
        ("share", "set", "files", "--read-only"),
        ("share", "remove", "files"),
        ("snap", "schedule", "tank/files", "--daily", "7"),
        ("umount", daemon.mounted, "--at-start"),
        ("replicate", "accept", "tank/replica"),
        ("pool", "rename", "tank", "other"),
        ("pool", "export", "tank"),
        ("pool", "destroy", "tank", "--yes"),
    ]


def test_a_change_that_cannot_be_written_down_is_not_made(house):
    before = everything(house)
    for command in changes(house):
        with unwritable(house):
            done = house.run(*command)
        said = f"larder {' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.returncode != 0 and "cannot write" in done.stderr and "larder.toml" in done.stderr, said
        now = everything(house)
        assert now == before, f"{said}\nbefore: {before}\nnow: {now}"
        assert not (house.data / "larder.toml.new").exists()
    # A file that a person spoiled refuses as early.
    text = config(house).read_text()
    config(house).write_text(text + "\n[[share\n")
    for command in changes(house):
        done = house.run(*command)
        assert done.returncode != 0, command
    config(house).write_text(text)
    assert everything(house) == before
    # And now they are made.
    for command in changes(house)[:2] + changes(house)[4:6] + changes(house)[9:10]:
        house.run(*command, check=True)
    assert json.loads(house.run("volume", "list", "--json", check=True).stdout)[0]["quota_bytes"] == 5 << 30
    assert "bob" in (house.data / "secrets").read_text() and (house.mounted / "a/b").is_dir()
    house.run("umount", house.mounted, "--at-start", check=True)
    assert not os.path.ismount(house.mounted) and "[[mount]]" not in config(house).read_text()
    house.run("pool", "export", "tank", check=True)


def test_the_same_without_a_daemon(house):
    house.run("umount", house.mounted, check=True)
    assert house.stop() == 0
    before = everything(house)
    others = ("volume", "snap", "share", "umount", "replicate")
    for command in [one for one in changes(house) if one[0] not in others]:
        with unwritable(house):
            done = house.run(*command)
        said = f"larder {' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.returncode != 0 and "cannot write" in done.stderr, said
        assert everything(house) == before, said
    # The labels would have another name.
    house.run("pool", "export", "tank", check=True)
    exported = everything(house)
    with unwritable(house):
        done = house.run("pool", "import", *house.disks, "--as", "other")
    assert done.returncode != 0 and "cannot write" in done.stderr, done.stderr
    assert everything(house) == exported
    house.run("pool", "import", *house.disks, "--as", "other", check=True)
    assert pools(house)[0][0] == "other"


def test_an_import_by_a_daemon_that_cannot_be_written_down_is_not_made(house, folder):
    house.run("umount", house.mounted, "--at-start", check=True)
    house.run("pool", "export", "tank", check=True)
    before = pools(house), config(house).read_bytes()
    with unwritable(house):
        done = house.run("pool", "import", *house.disks, "--as", "other")
    assert done.returncode != 0 and "cannot write" in done.stderr, done.stderr
    assert (pools(house), config(house).read_bytes()) == before
    house.run("pool", "import", *house.disks, check=True)
