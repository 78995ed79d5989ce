"""Fixtures of the end-to-end tests. A missing tool is a failure: nothing here skips."""

import fcntl
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import impacket.crypto
import pytest
from Cryptodome.Cipher import AES
from Cryptodome.Hash import CMAC

sys.path.insert(0, str(Path(__file__).parent))
import larderd  # noqa: E402
import s3servers  # noqa: E402
from larderd import Larder, binary  # noqa: E402
from nfs3 import Nfs3  # noqa: E402


def aes_cmac(key, message, length):
    return CMAC.new(key, bytes(message[:length]), ciphermod=AES).digest()


# Signs what a client of SMB 3 sends (RFC 4493). impacket's own does so block by block: 64 KiB take it 60 ms of a core.
impacket.crypto.AES_CMAC = aes_cmac


def pytest_report_header():
    built = [f"{make.program} {make.version()}" if make.is_built() else f"{make.program} not built" for make in s3servers.SERVERS]
    return f"larder: {binary()}, seed {seed()}; S3 servers: {', '.join(built)} (make servers)"


def seed():
    return int(os.environ.get("LARDER_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Which tests stay together on one worker (`--dist loadgroup`), and which begin first.

    Tests that share a fixture of their module are a group; each of the others goes to the worker that is free. Long tests
    begin first, single short ones last, so that no worker is left with much at the end.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None and shares_a_fixture(item):
            item.add_marker(pytest.mark.xdist_group(item.module.__name__))
    long = {group_of(item) for item in items if item.get_closest_marker("long")}
    items.sort(key=lambda item: (group_of(item) not in long, group_of(item) == item.nodeid))


def group_of(item):
    mark = item.get_closest_marker("xdist_group")
    return mark.args[0] if mark else item.nodeid


def shares_a_fixture(item):
    fixtures = item._fixtureinfo.name2fixturedefs
    return any(fixtures[name][-1].scope == "module" for name in fixtures if name not in MADE_ANEW)


# Fixtures of module scope that cost nothing to make again.
MADE_ANEW = {"small_machine"}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A test that fails shows what its daemons said, so that nobody has to run it again to learn why."""
    made = (yield).get_result()
    if made.failed:
        made.sections += larderd.report()


@pytest.fixture(scope="session")
def session_seed():
    value = seed()
    print(f"LARDER_SEED={value}")
    return value


@pytest.fixture
def folder():
    """A folder of the test's own, removed after it."""
    path = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def make(folder, count=3, layout="raidz1", **options):
    return Larder([folder / f"disk{n}" for n in range(1, count + 1)], folder / "data", layout=layout, **options)


@pytest.fixture
def fresh(folder):
    """A larder of the test's own on three folders, running."""
    larder = make(folder).start()
    yield larder
    larder.end()


@pytest.fixture(scope="module")
def larder():
    """One larder for the tests of a module that leave it running; each works in a directory of its own.

    Root is root on it, so that a test can make files of any owner.
    """
    path = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    daemon = make(path, extra=["--squash", "none"]).start()
    yield daemon
    code = daemon.stop()
    log = daemon.log()
    shutil.rmtree(path, ignore_errors=True)
    assert code == 0, log[-4000:]
    assert "panicked" not in log, log[-4000:]


def client(daemon, **options):
    return Nfs3.mount("127.0.0.1", daemon.nfs_port, daemon.export, **options)


@pytest.fixture
def nfs(larder):
    with client(larder) as connection:
        yield connection


@pytest.fixture
def home(nfs, request):
    """The handle of a new directory for this test."""
    return nfs.mkdir(nfs.root, request.node.name[:200], mode=0o777).handle


def payload(size, seed=1):
    """Bytes that do not compress, different for each seed."""
    return random.Random(seed).randbytes(size)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from browser import Browser

    made = Browser(tmp_path_factory.mktemp("downloads"))
    yield made
    made.driver.quit()


@pytest.fixture(scope="session")
def memory_of_512_mib(tmp_path_factory):
    library = tmp_path_factory.mktemp("preloaded") / "small_memory.so"
    source = Path(__file__).parent / "small_memory.c"
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.fixture(scope="module")
def small_machine(memory_of_512_mib):
    """The larders of a module see a machine with 512 MiB: a guess at a passphrase takes 64 MiB of it, and a second less."""
    before = os.environ.get("LD_PRELOAD")
    assert not before, f"LD_PRELOAD is {before}"
    os.environ["LD_PRELOAD"] = str(memory_of_512_mib)
    yield
    del os.environ["LD_PRELOAD"]


class LoopDisk:
    """A small ext4 filesystem of its own: it can fill up, and fail."""

    def __init__(self, image, mount, size_mib):
        self.image, self.mount = Path(image), Path(mount)
        self.mount.mkdir(parents=True)
        with open(self.image, "wb") as f:
            f.truncate(size_mib << 20)
        # No blocks kept back for root, so that "full" means the same to everybody.
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,nodiscard", str(self.image)], check=True)
        done = subprocess.run(["losetup", "--find", "--show", str(self.image)], check=True, text=True, capture_output=True)
        self.device = done.stdout.strip()
        subprocess.run(["mount", "-o", "errors=remount-ro", self.device, str(self.mount)], check=True)
        self.folder = self.mount / "larder"

    def used_bytes(self):
        stat = os.statvfs(self.mount)
        return (stat.f_blocks - stat.f_bfree) * stat.f_frsize

    def free_bytes(self):
        stat = os.statvfs(self.mount)
        return stat.f_bavail * stat.f_frsize

    def fail_read_only(self):
        """What ext4 does on an I/O error of its metadata: from now on nobody can write, whatever was open."""
        Path(f"/sys/fs/ext4/{Path(self.device).name}/trigger_fs_error").write_text("end-to-end test")
        options = next(l.split()[3] for l in open("/proc/mounts") if l.split()[1] == str(self.mount))
        assert {"ro", "emergency_ro"} & set(options.split(",")), options

    def unplug(self):
        """Every call fails from now on, whatever was open, and the folder is gone."""
        shutdown, without_the_log = 0x8004587D, struct.pack("I", 2)
        mount = os.open(self.mount, os.O_RDONLY)
        fcntl.ioctl(mount, shutdown, without_the_log)
        os.close(mount)
        subprocess.run(["umount", "-l", str(self.mount)], check=True)

    def plug_in(self):
        """As a disk of its own: what holds the old one does not see the new."""
        device, image = self.device, self.image.with_name(self.image.name + ".again")
        subprocess.run(["cp", "--sparse=always", str(self.image), str(image)], check=True)
        self.image = image
        done = subprocess.run(["losetup", "--find", "--show", str(image)], check=True, text=True, capture_output=True)
        self.device = done.stdout.strip()
        subprocess.run(["mount", self.device, str(self.mount)], check=True)
        subprocess.run(["losetup", "-d", device], check=False)

    def close(self):
        subprocess.run(["umount", "-l", str(self.mount)], check=False)
        subprocess.run(["losetup", "-d", self.device], check=False)


@pytest.fixture
def loop_disks(folder):
    """Makes filesystems of the sizes asked for, in MiB."""
    made = []

    def make_disks(*sizes_mib):
        for size in sizes_mib:
            n = len(made)
            made.append(LoopDisk(folder / f"image{n}", folder / f"mount{n}", size))
        return list(made)

    yield make_disks
    for disk in made:
        disk.close()
