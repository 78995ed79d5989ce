"""Read-only replicas of a bucket: they follow the owner within their bound, write nothing, and survive its collections."""

import base64
import contextlib
import errno
import os
import random
import re
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from conftest import client, payload
from larderd import Larder
from nfs3 import FILE_SYNC, Nfs3, NfsError
from test_bucket import KEYS, Bucket, env, names, quiet
from test_metrics import scrape, total
from test_smb import smb
from waiting import wait_for

BEHIND = 10  # seconds, as docs/bucket.md promises
SLACK = 5  # of a busy machine
EROFS = errno.EROFS


@pytest.fixture
def bucket():
    server = Bucket()
    yield server
    server.end()


def reader(bucket, data, *more):
    return Larder([], data, extra=["--store", bucket.url, "--endpoint", bucket.endpoint, "--read-only", "--memory", "64MiB", *more]).start(120, KEYS)


def objects(bucket):
    """Every object, and what it is."""
    found, after = [], ""
    while True:
        url = f"{bucket.endpoint}/pantry?list-type=2&start-after={after}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
        page = re.findall(r"<Contents>.*?</Contents>", text, re.S)
        if not page:
            return found
        found += page
        after = urllib.request.quote(re.search(r"<Key>(.*?)</Key>", page[-1])[1])


def changing(bucket):
    """Requests that could change something."""
    return {kind: n for kind, n in bucket.ask("/_counts").items() if kind not in ("get", "head", "list")}


def whole(nfs, name):
    return nfs.read_all(nfs.lookup(nfs.root, name).handle)


def seen(nfs, what):
    """How long it takes until `what()` is true, however often it fails before."""
    begun = time.monotonic()

    def now():
        with contextlib.suppress(NfsError):
            return what()

    wait_for(now, BEHIND + SLACK)
    return time.monotonic() - begun


@pytest.mark.long
def test_a_replica_follows_its_owner(bucket, folder):
    owner = bucket.larder(folder / "owner")
    replicas = []
    try:
        big = payload(3 << 20)
        with client(owner) as nfs:
            file = nfs.create(nfs.root, "big").handle
            nfs.write_all(file, big)
            nfs.commit(file)
            nfs.write(nfs.create(nfs.root, "small").handle, 0, b"one", FILE_SYNC)
        replicas = [reader(bucket, folder / f"replica{n}") for n in range(2)]
        took = []
        with client(owner) as nfs, client(replicas[0]) as first, client(replicas[1]) as second:
            for replica in (first, second):
                assert whole(replica, "big") == big and whole(replica, "small") == b"one"
            # What is in the log alone: a new file, bytes over others, a name less, another name, a folder with a file.
            small = nfs.lookup(nfs.root, "small").handle
            nfs.write(nfs.create(nfs.root, "new").handle, 0, b"new", FILE_SYNC)
            took.append(seen(first, lambda: whole(first, "new") == b"new"))
            nfs.write(small, 1, b"NE and more", FILE_SYNC)
            took.append(seen(first, lambda: whole(first, "small") == b"oNE and more"))
            nfs.remove(nfs.root, "new")
            took.append(seen(first, lambda: "new" not in names(first)))
            nfs.rename(nfs.root, "small", nfs.root, "renamed")
            took.append(seen(first, lambda: sorted(names(first)) == ["big", "renamed"]))
            inner = nfs.mkdir(nfs.root, "dir").handle
            nfs.write(nfs.create(inner, "deep").handle, 0, b"deep", FILE_SYNC)
            deep = lambda: first.read_all(first.lookup(first.lookup(first.root, "dir").handle, "deep").handle)  # noqa: E731
            took.append(seen(first, lambda: deep() == b"deep"))
            # Data in segments, over what is cached.
            other = payload(3 << 20, seed=2)
            nfs.write_all(file, other)
            nfs.commit(file)
            took.append(seen(first, lambda: whole(first, "big") == other))
            seen(second, lambda: whole(second, "big") == other and sorted(names(second)) == ["big", "dir", "renamed"])
            owner.run("snap", "create", "store/files@monday", check=True)
            shown = lambda: "monday" in replicas[0].run("snap", "list", "store/files", check=True).stdout  # noqa: E731
            took.append(seen(first, lambda: first.getattr(first.root) and shown()))
            # Killed and opened again, the owner has another term in the log.
            owner.kill()
            owner = bucket.larder(folder / "owner")
            with client(owner) as again:
                again.write(again.create(again.root, "afterwards").handle, 0, b"x", FILE_SYNC)
            took.append(seen(first, lambda: whole(first, "afterwards") == b"x"))
        print("seconds behind:", " ".join(f"{one:.1f}" for one in took))
        assert max(took) < BEHIND + SLACK
        told = replicas[0].run("pool", "status", "-v", check=True).stdout
        told = " ".join(told.split())
        assert f"at most {BEHIND} s behind" in told and "read-only" in told, told
        _, values = scrape(replicas[0].run("metrics", check=True).stdout)
        assert total(values, "larder_store_behind_seconds", "store") < BEHIND + SLACK
        for replica in replicas:
            assert replica.stop() == 0
        owner.run("check", "--read-data", check=True)
    finally:
        for daemon in (owner, *replicas):
            daemon.end()


def test_a_replica_writes_nothing_and_says_so(bucket, folder):
    owner = bucket.larder(folder / "owner")
    replica = None
    try:
        with client(owner) as nfs:
            nfs.write(nfs.create(nfs.root, "file", mode=0o666).handle, 0, b"here", FILE_SYNC)
            nfs.mkdir(nfs.root, "dir", mode=0o777)
        owner.run("snap", "create", "store/files@monday", check=True)
        assert owner.stop() == 0
        before, changes = objects(bucket), changing(bucket)
        assert len(before) > 5
        replica = reader(bucket, folder / "replica", "--webdav", "127.0.0.1:0", "--sftp", "127.0.0.1:0")
        with client(replica) as nfs:
            file, inner = nfs.lookup(nfs.root, "file").handle, nfs.lookup(nfs.root, "dir").handle
            for change in (
                lambda: nfs.create(nfs.root, "more"),
                lambda: nfs.mkdir(nfs.root, "more"),
                lambda: nfs.symlink(nfs.root, "more", "file"),
                lambda: nfs.write(file, 0, b"gone", FILE_SYNC),
                lambda: nfs.setattr(file, mode=0o600),
                lambda: nfs.setattr(file, size=0),
                lambda: nfs.remove(nfs.root, "file"),
                lambda: nfs.rmdir(nfs.root, "dir"),
                lambda: nfs.rename(nfs.root, "file", inner, "file"),
            ):
                with pytest.raises(NfsError) as refused:
                    change()
                assert refused.value.status == EROFS, refused.value
            nfs.commit(file)
            assert whole(nfs, "file") == b"here"
        (folder / "up").write_bytes(b"up")
        for command in ("put up more", "mkdir more", "rm file", "rename file more"):
            said = smb(replica, command, cwd=folder, check=False)
            assert "NT_STATUS_" in said, f"{command}: {said}"
        smb(replica, "get file down", cwd=folder)
        assert (folder / "down").read_bytes() == b"here"
        dav = f"http://127.0.0.1:{replica.info['webdav']['port']}/{replica.share}"
        keeper = base64.b64encode(f"{replica.user}:{replica.password}".encode()).decode()

        def ask(method, name, data=None):
            asked = urllib.request.Request(f"{dav}/{name}", data, {"Authorization": f"Basic {keeper}"}, method=method)
            return urllib.request.urlopen(asked, timeout=20)

        with ask("GET", "file") as answer:
            assert answer.read() == b"here"
        for method, name, data in (("PUT", "more", b"x"), ("PUT", "file", b"x"), ("DELETE", "file", None), ("MKCOL", "more", None)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                ask(method, name, data)
            assert refused.value.code == 403, f"{method}: {refused.value}"
        mount = folder / "mount"
        mount.mkdir()
        replica.run("mount", mount, check=True)
        try:
            assert (mount / "file").read_bytes() == b"here"
            for change in (lambda: (mount / "more").write_bytes(b"x"), lambda: (mount / "file").unlink(), lambda: (mount / "d").mkdir()):
                with pytest.raises(OSError) as refused:
                    change()
                assert refused.value.errno == EROFS, refused.value
        finally:
            replica.run("unmount", mount, check=True)
        for command in (
            ["snap", "create", "store/files@tuesday"],
            ["snap", "destroy", "store/files@monday"],
            ["volume", "create", "more"],
            ["volume", "set", "store/files", "--quota", "1GiB"],
            ["volume", "destroy", "store/files", "--force", "--with-snapshots", "--yes"],
        ):
            done = replica.run(*command)
            assert done.returncode != 0, f"{command}: {done.stdout}"
            assert "read-only" in done.stderr or "reads the store" in done.stderr, f"{command}: {done.stderr}"
        assert "monday" in replica.run("snap", "list", "store/files", check=True).stdout
        assert replica.stop() == 0
        assert changing(bucket) == changes, "a replica asks for no change"
        assert objects(bucket) == before
        # It took nothing: another machine gets the store unasked.
        bucket.larder(folder / "another").end()
    finally:
        owner.end()
        if replica:
            replica.end()


@pytest.mark.long
def test_a_replica_survives_the_owners_collections(bucket, folder):
    """The owner rewrites everything several times, makes tables of it and collects them, while the replica reads and rests."""
    memory = ("--memory", "64MiB")
    owner = bucket.larder(folder / "owner", *memory)
    replica = None
    rng = random.Random(7)
    try:
        content = {}

        def change(nfs, count):
            for _ in range(count):
                name = f"f{rng.randrange(30)}"
                content[name] = rng.randbytes(rng.choice((100, 5000, 300_000)))
                file = nfs.create(nfs.root, name, size=0).handle
                nfs.write_all(file, content[name])
                nfs.commit(file)

        with client(owner) as nfs:
            change(nfs, 60)
        replica = reader(bucket, folder / "replica")
        with client(replica) as far:
            assert all(whole(far, name) == data for name, data in content.items())
            for _ in range(5):
                # Each stop moves the log into a table, and trims it.
                assert owner.stop() == 0
                owner = bucket.larder(folder / "owner", *memory)
                with client(owner) as nfs:
                    change(nfs, 20)
                # Whatever it reads, it reads whole files of some moment.
                for entry in names(far):
                    with contextlib.suppress(NfsError):
                        whole(far, entry)
            # Tables are merged, and what they were made of is collected after a grace; the replica rests meanwhile.
            quiet(bucket, 32, limit_s=180)
            assert sorted(names(far)) == sorted(content)
            wrong = [name for name, data in content.items() if whole(far, name) != data]
            assert not wrong, wrong
            with client(owner) as nfs:
                change(nfs, 5)
            seen(far, lambda: all(whole(far, name) == data for name, data in content.items()))
        assert replica.stop() == 0
    finally:
        owner.end()
        if replica:
            replica.end()


def test_an_encrypted_volume_is_followed_through_a_mount_too(bucket, folder):
    """Its key is needed on both machines. A kernel that mounts the replica keeps nothing beyond the bound."""
    key, mount = folder / "key", folder / "mount"
    key.write_bytes(os.urandom(64))
    mount.mkdir()
    owner = bucket.larder(folder / "owner")
    replica = None
    try:
        owner.run("volume", "create", "store/secret", "--encrypt", "--key-file", str(key), check=True)
        with Nfs3.mount("127.0.0.1", owner.nfs_port, "/secret") as nfs:
            letter = nfs.create(nfs.root, "letter").handle
            nfs.write_all(letter, b"sealed " * 40_000)
            replica = reader(bucket, folder / "replica")
            locked = replica.run("mount", mount, "--volume", "store/secret")
            assert locked.returncode != 0 and "unlock" in locked.stderr, locked.stderr
            replica.run("volume", "unlock", "store/secret", "--key-file", str(key), check=True)
            replica.run("mount", mount, "--volume", "store/secret", check=True)
            try:
                assert (mount / "letter").read_bytes() == b"sealed " * 40_000
                nfs.write(letter, 0, b"SEALED", FILE_SYNC)
                begun = time.monotonic()
                wait_for(lambda: (mount / "letter").read_bytes().startswith(b"SEALED sealed"), BEHIND + SLACK)
                nfs.rename(nfs.root, "letter", nfs.root, "note")
                wait_for(lambda: os.listdir(mount) == ["note"] and not (mount / "letter").exists(), BEHIND + SLACK)
                print(f"two changes through the mount after {time.monotonic() - begun:.1f} s")
                owner.run("volume", "destroy", "store/secret", "--force", "--yes", check=True)

                def is_gone():
                    try:
                        (mount / "note").read_bytes()
                    except OSError as error:
                        return error.errno in (errno.EIO, errno.ESTALE, errno.ENOENT)

                wait_for(is_gone, BEHIND + 4 * SLACK)
            finally:
                replica.run("unmount", mount, check=True)
        assert replica.stop() == 0
    finally:
        owner.end()
        if replica:
            replica.end()


@pytest.mark.long
def test_a_replica_rests_when_nobody_asks(bucket, folder):
    owner = bucket.larder(folder / "owner")
    replica = None
    try:
        with client(owner) as nfs:
            nfs.write(nfs.create(nfs.root, "file").handle, 0, b"here", FILE_SYNC)
        assert owner.stop() == 0
        replica = reader(bucket, folder / "replica")
        with client(replica) as nfs:
            file = nfs.lookup(nfs.root, "file").handle
            nfs.read_all(file)
            before, begun = bucket.requests(), time.monotonic()
            while time.monotonic() - begun < 20:
                assert nfs.read_all(file) == b"here"
                time.sleep(0.01)
            asked = bucket.requests() - before
            # One look at the volume and one at the registry every five seconds, of one request each.
            assert 2 <= asked <= 11, asked
            # The registry is looked at for as long as the bound, after the last reader.
            quiet(bucket, BEHIND)
            before = bucket.requests()
            time.sleep(20)
            assert bucket.requests() == before
            # Without the bucket there is no answer that is too old.
            bucket.faults(down=1)
            with pytest.raises((NfsError, OSError)):
                nfs.read_all(file)
            bucket.faults(down=0)
            seen(nfs, lambda: nfs.read_all(file) == b"here")
        assert replica.stop() == 0
    finally:
        owner.end()
        if replica:
            replica.end()


def test_what_makes_no_sense_is_refused(bucket, folder):
    owner = bucket.larder(folder / "owner")
    try:
        assert owner.stop() == 0
        config = owner.data / "larder.toml"
        text = config.read_text()
        for line, word in (
            ("read_only = true\nstandby = true", "exclude each other"),
            ("read_only = true\nbehind_seconds = 3600", "write 2 to 20"),
            ("behind_seconds = 5", "is for read_only"),
        ):
            config.write_text(text.replace("[[store]]", f"[[store]]\n{line}", 1))
            refused = owner.run("config", "check")
            assert refused.returncode != 0 and word in refused.stderr, refused.stderr
        empty = Larder([], folder / "empty", extra=["--store", "s3://pantry/nothing", "--endpoint", bucket.endpoint, "--read-only"])
        told = subprocess.run(
            empty.command(), capture_output=True, text=True, env=env(), timeout=60)
        assert told.returncode == 1 and "no volume in the store" in told.stderr, told.stderr
        assert not [one for one in objects(bucket) if "nothing/" in one]
    finally:
        owner.end()


@pytest.mark.long
def test_what_the_owner_does_to_volumes_is_noticed(bucket, folder):
    """Quotas, new and promoted volumes, encryption and new keys, by a replica that nobody starts again."""
    key, config = folder / "key", folder / "replica" / "larder.toml"
    key.write_bytes(os.urandom(64))
    owner = bucket.larder(folder / "owner")
    replica = None
    took = {}

    def noticed(what, is_so, used):
        """While somebody uses `used`, as clients do."""
        begun = time.monotonic()

        def now():
            with contextlib.suppress(NfsError, OSError):
                used()
            with contextlib.suppress(NfsError, OSError):
                return is_so()

        wait_for(now, BEHIND + SLACK + 10, told=lambda: f"{what}\n{replica.log()[-3000:]}")
        took[what] = time.monotonic() - begun

    def mounted(name):
        return Nfs3.mount("127.0.0.1", replica.nfs_port, f"/{name}")

    try:
        with client(owner) as nfs:
            file = nfs.create(nfs.root, "file").handle
            nfs.write_all(file, b"once " * 40_000)
            nfs.commit(file)
            replica = reader(bucket, folder / "replica")
            first = mounted("files")
            look = lambda: first.getattr(first.root)  # noqa: E731
            assert first.fsstat(first.root).total_bytes > 1 << 40
            owner.run("volume", "set", "store/files", "--quota", "1GiB", check=True)
            noticed("quota", lambda: first.fsstat(first.root).total_bytes == 1 << 30, look)
            # Shares for what is not there yet. Nobody reads meanwhile.
            shares = "".join(f'\n[[share]]\nname = "{name}"\nvolume = "store/{name}"\n' for name in ("later", "copy"))
            config.write_text(config.read_text() + shares)
            replica.run("reload", check=True)
            owner.run("volume", "create", "store/later", check=True)
            noticed("a new volume", lambda: mounted("later").list is not None, lambda: None)
            owner.run("snap", "create", "store/files@monday", check=True)
            owner.run("replicate", "store/files", "store/copy", check=True)
            owner.run("volume", "promote", "store/copy", check=True)
            noticed("a promoted volume", lambda: whole(mounted("copy"), "file") == b"once " * 40_000, lambda: None)
            # Encrypted: nobody here has the key.
            owner.run("volume", "encrypt", "store/files", "--key-file", str(key), "--no-recovery-key", "--wait", check=True)
            is_locked = lambda: "does not have: open it with: larder volume unlock store/files" in replica.log()  # noqa: E731
            noticed("encryption", is_locked, look)
            with pytest.raises(NfsError):
                first.read(file, 0, 100)
            replica.run("volume", "unlock", "store/files", "--key-file", str(key), check=True)
            assert first.read(file, 0, 5).data == b"once ", "the handle from before"
            # New keys: those in memory are good no more.
            told = replica.log().count("does not have: open it with")
            owner.run("volume", "rekey", "store/files", "--key-file", str(key), "--wait", check=True)
            noticed("new keys", lambda: replica.log().count("does not have: open it with") > told, look)
            replica.run("volume", "unlock", "store/files", "--key-file", str(key), check=True)
            nfs.write(file, 0, b"twice", FILE_SYNC)
            noticed("a change after that", lambda: first.read(file, 0, 5).data == b"twice", look)
            # A key that larder.toml names is read again without a word.
            config.write_text(config.read_text() + f'\n[[volume]]\nname = "store/files"\nkey_file = "{key}"\n')
            replica.run("reload", check=True)
            told = replica.log().count("does not have: open it with")
            owner.run("volume", "rekey", "store/files", "--key-file", str(key), "--wait", check=True)
            nfs.write(file, 0, b"third", FILE_SYNC)
            noticed("new keys, with a key file", lambda: first.read(file, 0, 5).data == b"third", look)
            assert replica.log().count("does not have: open it with") == told, replica.log()[-3000:]
        print("seconds until noticed:", ", ".join(f"{what} {secs:.1f}" for what, secs in took.items()))
        # It rests again.
        quiet(bucket, 2 * BEHIND + 5, 90)
        assert replica.stop() == 0
    finally:
        owner.end()
        if replica:
            replica.end()
