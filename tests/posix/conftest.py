"""Where the POSIX tests run: the local mount of a larder of their own.

POSIX_DIR=/some/folder runs them there instead, on any filesystem: a test that fails on ext4 is wrong itself.
All of it needs root: many tests act as several users.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
sys.path.insert(0, str(HERE))
import larderd  # noqa: E402

SEED = int(os.environ.get("LARDER_SEED", "20250601"))


def pytest_report_header():
    return f"POSIX tests on {os.environ.get('POSIX_DIR') or 'a mount of larder'}, LARDER_SEED={SEED}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A test that fails shows what its daemons said, so that nobody has to run it again to learn why."""
    made = (yield).get_result()
    if made.failed:
        made.sections += larderd.report()


@pytest.fixture(scope="session", autouse=True)
def as_root():
    assert os.geteuid() == 0, "these tests act as several users: run them as root"
    os.umask(0o022)


@pytest.fixture(scope="session")
def seed():
    return SEED


@pytest.fixture(scope="session")
def work():
    """A folder outside of the mount, open to all users."""
    path = Path(tempfile.mkdtemp(prefix="larder-posix-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def daemon(work):
    """The larder whose volume is mounted; None when the tests run elsewhere."""
    if os.environ.get("POSIX_DIR"):
        yield None
        return
    (work / "mnt").mkdir()
    disks = [work / f"disk{n}" for n in (1, 2, 3)]
    larder = larderd.Larder(disks, work / "data", extra=["--mount", str(work / "mnt"), "--squash", "none"]).start()
    try:
        yield larder
        assert larder.stop() == 0, larder.log()[-4000:]
        assert not os.path.ismount(work / "mnt"), "a clean stop leaves no mount behind"
        assert "panicked" not in larder.log(since_start=False)
    finally:
        larder.end()
        subprocess.run(["umount", "-l", str(work / "mnt")], stderr=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def mount(daemon, work):
    path = Path(os.environ["POSIX_DIR"]) if daemon is None else work / "mnt"
    assert daemon is None or os.path.ismount(path), f"nothing is mounted on {path}\n{daemon.log()}"
    path.chmod(0o755)
    return path


@pytest.fixture
def here(mount, daemon):
    """An empty folder on the mount, also the working directory of the test."""
    assert daemon is None or os.path.ismount(mount), f"the mount is gone\n{daemon.log()[-4000:]}"
    path = Path(tempfile.mkdtemp(prefix="t-", dir=mount))
    path.chmod(0o755)
    before = os.getcwd()
    os.chdir(path)
    yield path
    os.chdir(before)
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def tool(work):
    """Compiles one of the C programs here and returns its path."""

    def build(name):
        out = work / name
        if not out.exists():
            source = HERE / f"{name}.c"
            subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-pthread", "-o", str(out), str(source)], check=True)
        return str(out)

    return build


@pytest.fixture
def own(daemon, tmp_path):
    """A daemon of the test's own, mounted at `mnt`."""
    if daemon is None:
        pytest.fail("needs a larder: run without POSIX_DIR")
    (tmp_path / "mnt").mkdir()
    disks = [tmp_path / f"disk{n}" for n in (1, 2, 3)]
    larder = larderd.Larder(disks, tmp_path / "data", extra=["--mount", str(tmp_path / "mnt"), "--squash", "none"]).start()
    larder.mnt = tmp_path / "mnt"
    yield larder
    larder.end()
    for row in Path("/proc/mounts").read_text().splitlines():
        if row.split()[1].startswith(f"{tmp_path}/"):
            subprocess.run(["umount", "-l", row.split()[1]])
