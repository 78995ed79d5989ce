"""Encrypted volumes: what lies on the disks, what opens them, and that damage and crashes are what they are without encryption.

  E1  Nothing that was written through any door is in clear on any disk, journal included.
  E2  A locked volume is served by nobody, scrubbed all the same, and counts as no damage.
  E3  What was acknowledged is there after kill -9 and the loss of a disk, once it is unlocked.
"""

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

import nfs3
from conftest import make
from test_sharing import Keeper
from larderd import binary
from trees import describe, fill

pytestmark = pytest.mark.usefixtures("small_machine")

PASSPHRASE = "twelve brown bottles"


def typed(daemon, *arguments, lines=(PASSPHRASE,), check=True):
    """A command that reads secrets from its standard input."""
    done = subprocess.run([binary(), "--data", str(daemon.data), *arguments], input="".join(f"{line}\n" for line in lines),
                          capture_output=True, text=True, timeout=120)
    assert not check or done.returncode == 0, done.stderr
    return done


def volumes(daemon):
    return {v["name"]: v for v in json.loads(daemon.run("--json", "volume", "list", check=True).stdout)}


@pytest.fixture
def sealed(folder):
    """A daemon with the encrypted volume `secret`, its recovery key, and a folder to mount it on."""
    daemon = make(folder, extra=["--squash", "none"]).start()
    made = typed(daemon, "--json", "volume", "create", "secret", "--encrypt")
    daemon.recovery_key = json.loads(made.stdout)["recovery_key"]
    daemon.mount = folder / "mnt"
    daemon.mount.mkdir()
    yield daemon
    daemon.run("umount", str(daemon.mount))
    if daemon.alive():
        daemon.stop()


def mount(daemon):
    daemon.run("mount", str(daemon.mount), "--volume", "secret", check=True)


def synced(path, data):
    with open(path, "wb", buffering=0) as file:
        file.write(data)
        os.fsync(file.fileno())


def everything_on(disks):
    for disk in disks:
        for path in Path(disk).rglob("*"):
            if path.is_file():
                yield path, path.read_bytes()


def test_nothing_is_in_clear_on_any_disk(sealed):
    """E1: names, small files, large files, streams of a log, extended attributes, link targets."""
    secrets = [f"{word}-{random.randrange(1 << 40):x}".encode() for word in ("name", "small", "large", "value", "target", "log")]
    name, small, large, value, target, logged = secrets
    mount(sealed)
    top = sealed.mount
    synced(top / name.decode(), small)
    body = b"".join(large + os.urandom(100) for _ in range(40_000))
    synced(top / "large", body)
    os.setxattr(top / "large", "user.note", value)
    os.symlink(target.decode(), top / "link")
    with open(top / "synced", "wb", buffering=0) as file:
        for _ in range(50):
            file.write(logged)
            os.fsync(file.fileno())
    sealed.kill()
    subprocess.run(["umount", "-l", str(top)], check=False)
    found = [(path, secret) for path, content in everything_on(sealed.disks) for secret in secrets if secret in content]
    assert not found, found[:5]
    # The same search finds them where nothing is encrypted.
    clear = [path for path, content in everything_on(sealed.disks) if b'"secret"' in content]
    assert clear, "the name of the volume is no secret"
    sealed.start()
    typed(sealed, "volume", "unlock", "secret")
    mount(sealed)
    assert (top / name.decode()).read_bytes() == small
    assert (top / "large").read_bytes() == body
    assert os.getxattr(top / "large", "user.note") == value
    assert os.readlink(top / "link") == target.decode()
    assert (top / "synced").read_bytes() == logged * 50


def test_a_locked_volume_is_served_by_nobody_and_is_no_damage(sealed):
    """E2."""
    mount(sealed)
    (sealed.mount / "file").write_bytes(b"content")
    assert not volumes(sealed)["secret"]["locked"]
    with nfs3.Nfs3.mount("127.0.0.1", sealed.nfs_port, "/secret") as nfs:
        root = nfs.root
        with open(sealed.mount / "file", "rb"):
            busy = sealed.run("volume", "lock", "secret")
            assert busy.returncode != 0 and "--force" in busy.stderr, busy.stderr
            assert not volumes(sealed)["secret"]["locked"]
        sealed.run("volume", "lock", "secret", check=True)
        with pytest.raises(nfs3.NfsError):
            nfs.lookup(root, b"file")
    assert volumes(sealed)["secret"]["locked"]
    assert list(sealed.mount.iterdir()) == []
    shares = {s["name"]: s for s in json.loads(sealed.run("--json", "share", "list", check=True).stdout)}
    assert "locked" in shares["secret"]["fault"] and shares["files"]["fault"] is None
    refused = sealed.run("mount", str(sealed.mount), "--volume", "secret")
    assert refused.returncode != 0 and "volume unlock" in refused.stderr, refused.stderr
    check = sealed.run("--json", "check", check=True)
    assert [r["locked"] for r in json.loads(check.stdout) if r["volume"] == "secret"] == [True]
    scrubbed = json.loads(sealed.run("pool", "scrub", "start", "--wait", "--json", check=True).stdout)
    assert [pool["scrub"]["unrepaired"] for pool in scrubbed] == [0], scrubbed
    assert sealed.run("pool", "status", "-x").returncode == 0
    wrong = typed(sealed, "volume", "unlock", "secret", lines=["twelve brown bottle"], check=False)
    assert wrong.returncode != 0 and "no slot opens" in wrong.stderr
    typed(sealed, "volume", "unlock", "secret")
    mount(sealed)
    assert (sealed.mount / "file").read_bytes() == b"content"


def test_a_lock_waits_for_nobody_and_loses_nothing_unasked(sealed):
    """What an SMB client has written and not sent yet is lost by force alone."""
    keeper = Keeper(sealed, "secret", "cached")
    keeper.keep(0, b"in the client's cache")
    mount(sealed)
    busy = sealed.run("volume", "lock", "secret")
    assert os.path.ismount(sealed.mount), "what is refused takes nothing away"
    assert busy.returncode != 0 and "open for writing" in busy.stderr and "--force" in busy.stderr, busy.stderr
    assert not volumes(sealed)["secret"]["locked"]
    keeper.end()
    sealed.run("volume", "lock", "secret", check=True)
    typed(sealed, "volume", "unlock", "secret")
    wrong = typed(sealed, "volume", "unlock", "secret", lines=["not the passphrase"], check=False)
    assert wrong.returncode != 0, "also of an open volume the secret is tried"


@pytest.mark.parametrize("odd", ["/dev/zero", "fifo", "folder", "missing", "short", "large"])
def test_odd_key_files_are_refused_at_once(sealed, folder, odd):
    path = Path(odd) if odd.startswith("/") else folder / odd
    match odd:
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "short":
            path.write_bytes(b"31 bytes are no key, this is it")
        case "large":
            path.write_bytes(bytes(2 << 20))
    for command in (["volume", "unlock", "secret"], ["volume", "create", "other", "--encrypt"]):
        done = sealed.run(*command, "--key-file", str(path), timeout_s=20)
        assert done.returncode != 0 and done.stderr.startswith("error: "), (command, done)
    assert "other" not in volumes(sealed)


def test_ways_to_open_it_come_and_go(sealed, folder):
    key = folder / "key"
    key.write_bytes(os.urandom(64))
    typed(sealed, "volume", "key", "add", "secret", "--new-key-file", str(key), "--label", "stick")
    typed(sealed, "volume", "key", "add", "secret", "--key-file", str(key), "--label", "new", lines=["another good phrase"])
    listed = sealed.run("volume", "key", "list", "secret", check=True).stdout
    assert all(label in listed for label in ("first", "recovery", "stick", "new")), listed
    refused = typed(sealed, "volume", "key", "remove", "secret", "first", lines=["not the phrase"], check=False)
    assert refused.returncode != 0
    typed(sealed, "volume", "key", "remove", "secret", "first", lines=["another good phrase"])
    sealed.run("volume", "lock", "secret", check=True)
    assert typed(sealed, "volume", "unlock", "secret", check=False).returncode != 0, "it was taken away"
    for option, lines in ((["--recovery-key"], [sealed.recovery_key.lower()]), (["--key-file", str(key)], []), ([], ["another good phrase"])):
        typed(sealed, "volume", "unlock", "secret", *option, lines=lines)
        sealed.run("volume", "lock", "secret", check=True)
    for slot in ("recovery", "stick"):
        typed(sealed, "volume", "key", "remove", "secret", slot, lines=["another good phrase"])
    last = typed(sealed, "volume", "key", "remove", "secret", "new", lines=["another good phrase"], check=False)
    assert last.returncode != 0 and "last slot" in last.stderr
    weak = typed(sealed, "volume", "key", "add", "secret", lines=["another good phrase", "short"], check=False)
    assert weak.returncode != 0 and "8 characters" in weak.stderr


def test_passphrases_come_from_files_that_are_closed_to_others(sealed, folder):
    """With every command that asks for one; a descriptor is as good."""
    def file(name, text, mode=0o600):
        path = folder / name
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    old, new = file("old", f"{PASSPHRASE}\nsecond line\n"), file("new", "another good phrase\n")
    sealed.run("volume", "lock", "secret", check=True)
    for mode in (0o640, 0o604, 0o620, 0o666):
        open_ = file("open", f"{PASSPHRASE}\n", mode)
        refused = sealed.run("volume", "unlock", "secret", "--passphrase-file", open_)
        assert refused.returncode != 0 and "chmod 600" in refused.stderr, refused.stderr
    theirs = file("theirs", f"{PASSPHRASE}\n")
    os.chown(theirs, 12345, 12345)
    assert "belongs to user 12345" in sealed.run("volume", "unlock", "secret", "--passphrase-file", theirs).stderr
    assert "is empty" in sealed.run("volume", "unlock", "secret", "--passphrase-file", file("empty", "\n")).stderr
    assert sealed.run("volume", "unlock", "secret", "--passphrase-file", str(folder / "none")).returncode != 0
    sealed.run("volume", "unlock", "secret", "--passphrase-file", old, check=True)
    sealed.run("volume", "key", "add", "secret", "--label", "new", "--passphrase-file", old, "--new-passphrase-file", new, check=True)
    sealed.run("volume", "key", "remove", "secret", "first", "--passphrase-file", new, check=True)
    sealed.run("volume", "lock", "secret", check=True)
    reading, writing = os.pipe()
    os.write(writing, b"another good phrase\n")
    os.close(writing)
    command = [binary(), "--data", str(sealed.data), "volume", "unlock", "secret", "--passphrase-file", f"/dev/fd/{reading}"]
    subprocess.run(command, pass_fds=[reading], check=True, timeout=120)
    os.close(reading)
    sealed.run("volume", "key", "remove", "secret", "recovery", "--passphrase-file", new, check=True)
    sealed.run("volume", "rekey", "secret", "--passphrase-file", new, "--wait", check=True, timeout_s=120)
    sealed.run("volume", "create", "more", "--encrypt", "--no-recovery-key", "--passphrase-file", new, check=True)
    sealed.run("volume", "encrypt", "files", "--no-recovery-key", "--passphrase-file", new, "--wait", "--force", check=True, timeout_s=120)
    for name in ("secret", "more", "files"):
        sealed.run("volume", "lock", name, "--force", check=True)
        sealed.run("volume", "unlock", name, "--passphrase-file", new, check=True)


@pytest.mark.parametrize("source", ["key_file", "key_command"])
def test_it_opens_at_start_with_the_key_that_the_configuration_names(folder, source):
    key = folder / "key"
    key.write_bytes(os.urandom(64))
    daemon = make(folder).start()
    daemon.run("volume", "create", "secret", "--encrypt=chacha20-poly1305", "--key-file", str(key), check=True)
    assert volumes(daemon)["secret"]["encryption"] == "chacha20-poly1305"
    assert daemon.stop() == 0
    config = daemon.data / "larder.toml"
    value = f'"{key}"' if source == "key_file" else f'["cat", "{key}"]'
    config.write_text(config.read_text() + f'\n[[volume]]\nname = "tank/secret"\n{source} = {value}\n')
    daemon.start()
    assert not volumes(daemon)["secret"]["locked"]
    # What a person locks stays locked, whatever is changed beside it.
    daemon.run("volume", "lock", "secret", check=True)
    daemon.run("reload", check=True)
    assert volumes(daemon)["secret"]["locked"]
    assert daemon.stop() == 0
    daemon.start()
    assert not volumes(daemon)["secret"]["locked"]
    assert daemon.stop() == 0
    # A key that is not there is said, and never makes a volume in clear.
    key.unlink()
    daemon.start()
    assert volumes(daemon)["secret"]["locked"]
    assert "key" in daemon.log()
    daemon.run("volume", "destroy", "secret", "--yes", check=True)
    assert daemon.stop() == 0
    config.write_text(config.read_text() + f'\n[[volume]]\nname = "tank/secret"\n{source} = {value}\n')
    daemon.start()
    assert "secret" not in volumes(daemon)
    assert daemon.stop() == 0


def test_what_was_acknowledged_survives_kills_and_a_lost_disk(sealed):
    """E3."""
    mount(sealed)
    written = {}
    for round_number in range(4):
        for n in range(40):
            path = sealed.mount / f"{round_number}-{n}"
            data = random.randbytes(random.choice([10, 4096, 70_000, 600_000]))
            synced(path, data)
            written[path.name] = data
        sealed.kill()
        subprocess.run(["umount", "-l", str(sealed.mount)], check=False)
        if round_number == 2:
            lost = sealed.disks[1]
            lost.rename(lost.with_name("lost"))
        sealed.start()
        typed(sealed, "volume", "unlock", "secret")
        mount(sealed)
        for name, data in written.items():
            assert (sealed.mount / name).read_bytes() == data, name
    check = sealed.run("check", "secret", "--read-data")
    assert "no problems" in check.stdout, check.stdout + check.stderr


def test_files_are_recovered_with_the_key_and_refused_without(sealed, folder):
    mount(sealed)
    tree = fill(sealed.mount)
    sealed.run("umount", str(sealed.mount), check=True)
    assert sealed.stop() == 0
    kept = [disk.rename(disk.with_name(f"{disk.name}-kept")) for disk in sealed.disks][:2]
    disks = [option for disk in kept for option in ("--disk", str(disk))]
    command = [binary(), "recover", *disks, "--volume", "secret", "--to", str(folder / "out")]
    wrong = subprocess.run(command, input="a wrong passphrase\n", capture_output=True, text=True)
    assert wrong.returncode != 0 and "no slot opens" in wrong.stderr, wrong.stderr
    for path in (folder / "out").glob("*"):
        path.unlink()
    # The other volumes of the pool are recovered all the same.
    everything = [word for word in command if word not in ("--volume", "secret")]
    others = subprocess.run(everything, input="a wrong passphrase\n", capture_output=True, text=True)
    assert others.returncode == 4 and "locked: no slot opens" in others.stdout, others.stdout + others.stderr
    assert (folder / "out" / "files").is_dir() and not (folder / "out" / "secret").exists()
    shutil.rmtree(folder / "out")
    done = subprocess.run([*command, "--recovery-key"], input=f"{sealed.recovery_key}\n", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert describe(folder / "out" / "secret") == tree
