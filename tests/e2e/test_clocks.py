"""The clock of the machine is wrong, or jumps, and nothing ends or is destroyed by it.

The wall clock of the daemon alone is moved, by libfaketime; the time since the start of the machine stays true, as where a clock is set.

  C1  What lies in a recycle bin for days stays there, whichever way the clock jumps, while it runs and across a start.
  C2  A hold ends when its time has really passed.
  C3  Snapshots by schedule go on after a clock that was ahead, and after one without a battery.
  C4  Codes of a telephone are right again as soon as the clock is.
  C5  An app token ends when its time has really passed.
"""

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from conftest import make
from test_people import get
from test_page import Visitor, totp, visitor
from test_recycle import share, tree
from test_smb import smb
from test_snapshot_schedules import automatic, change, schedule
from test_snapshots import snap, snapshots
from waiting import wait_for

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
DAY_S = 86_400
# At its start a daemon looks into its bins and at its schedules within this time.
LOOKED_S = 3


class Clock:
    """The wall clock of a daemon."""

    def __init__(self, folder):
        self.file = folder / "clock"
        self.set("+0")
        self.env = {
            "LD_PRELOAD": str(LIBRARY), "FAKETIME_TIMESTAMP_FILE": str(self.file), "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, offset):
        """Seconds, as in "+86400", or an absolute time after "@"."""
        new = self.file.with_suffix(".new")
        new.write_text(f"{offset}\n")
        os.replace(new, self.file)


@pytest.fixture
def clock(folder):
    return Clock(folder)


@pytest.fixture
def daemon(folder):
    mount = folder / "mnt"
    mount.mkdir()
    made = make(folder, extra=["--page", "127.0.0.1:0", "--webdav", "127.0.0.1:0", "--mount", str(mount), "--squash", "none"])
    made.mount = made.mounted = mount
    yield made
    made.end()
    log = made.log()
    assert "panicked" not in log, log[-4000:]


def restart(daemon, clock, offset):
    assert daemon.stop() == 0
    clock.set(offset)
    daemon.start(env=clock.env)
    time.sleep(LOOKED_S)


def fill_bin(daemon, folder):
    share(daemon, "--recycle=30")
    os.chmod(daemon.mount, 0o1777)
    (folder / "f").write_bytes(b"kept for thirty days")
    smb(daemon, "put f f; del f", cwd=folder)
    assert tree(daemon.mount / ".recycle") == ["f"]


def hold(daemon, clock, name):
    """By a command that has the daemon's clock: both run on one machine."""
    snap(daemon, "create", f"files@{name}")
    told(daemon, clock, "snap", "hold", f"files@{name}", "law", "--until", "90d")


def told(daemon, clock, *command):
    command = [daemon.program, "--data", daemon.data, *command]
    return subprocess.run(command, env=os.environ | clock.env, check=True, capture_output=True, text=True).stdout


def test_years_ahead_and_back_destroy_and_end_nothing(daemon, clock, folder):
    """C1, C2"""
    daemon.start(env=clock.env)
    fill_bin(daemon, folder)
    hold(daemon, clock, "tax")

    def all_there():
        assert tree(daemon.mount / ".recycle") == ["f"]
        refused = daemon.run("snap", "destroy", "files@tax")
        assert refused.returncode != 0 and "is held" in refused.stderr, refused.stderr
        assert "tax" in snapshots(daemon)

    all_there()
    for offset in (f"+{365 * DAY_S}", f"-{20 * 365 * DAY_S}", f"+{20 * 365 * DAY_S}", "+0"):
        restart(daemon, clock, offset)
        all_there()
    for offset in (f"+{900 * DAY_S}", f"-{900 * DAY_S}", "+0"):
        clock.set(offset)
        daemon.run("reload", check=True)
        all_there()
    daemon.kill()
    clock.set(f"+{365 * DAY_S}")
    daemon.start(env=clock.env)
    time.sleep(LOOKED_S)
    all_there()


def test_a_hold_made_with_a_wrong_clock_lasts_as_long_as_it_was_to(daemon, clock):
    """C2: neither is it over when the time comes, nor a year longer."""
    clock.set(f"+{365 * DAY_S}")
    daemon.start(env=clock.env)
    hold(daemon, clock, "ahead")
    restart(daemon, clock, "@1970-01-01 00:05:00")
    hold(daemon, clock, "behind")
    restart(daemon, clock, "+0")
    for name in ("ahead", "behind"):
        assert daemon.run("snap", "destroy", f"files@{name}").returncode != 0, name


def test_a_token_made_with_a_wrong_clock_lasts_as_long_as_it_was_to(daemon, clock):
    """C5: a clock that jumps neither ends it nor keeps it; a start adds a week at most."""
    clock.set(f"+{365 * DAY_S}")
    daemon.start(env=clock.env)
    token = json.loads(told(daemon, clock, "token", "create", daemon.user, "--expires", "8d", "--json"))["token"]
    status = lambda: get(daemon, f"{daemon.share}/", f"Bearer {token}", "PROPFIND")[0]
    assert status() == 207
    for offset in ("+0", f"-{20 * 365 * DAY_S}", f"+{365 * DAY_S}"):
        restart(daemon, clock, offset)
        assert status() == 207, offset
    for n in (1, 2):
        restart(daemon, clock, f"+{3650 * n * DAY_S}")
    assert status() == 401


def test_schedules_go_on_after_a_clock_that_was_ahead(daemon, clock):
    """C3"""
    clock.set(f"+{5 * DAY_S}")
    daemon.start(env=clock.env)
    change(daemon, "first")
    schedule(daemon, "{ daily = 30 }")
    wait_for(lambda: len(automatic(daemon)) == 1)
    restart(daemon, clock, "+0")
    change(daemon, "second")
    daemon.run("reload", check=True)
    wait_for(lambda: len(automatic(daemon)) == 2, told=lambda: str(snapshots(daemon)))
    # And not one with each look.
    change(daemon, "third")
    daemon.run("reload", check=True)
    time.sleep(LOOKED_S)
    assert len(automatic(daemon)) == 2


def test_a_machine_without_a_battery(daemon, clock, folder):
    """C1, C3: it begins in 1970, and the time comes later."""
    clock.set("@1970-01-01 00:05:00")
    daemon.start(env=clock.env)
    fill_bin(daemon, folder)
    schedule(daemon, "{ daily = 30 }")
    wait_for(lambda: len(automatic(daemon)) == 1)
    clock.set("+0")
    daemon.run("reload", check=True)
    time.sleep(LOOKED_S)
    assert tree(daemon.mount / ".recycle") == ["f"]
    restart(daemon, clock, "+0")
    assert tree(daemon.mount / ".recycle") == ["f"]
    change(daemon, "the next day")
    daemon.run("reload", check=True)
    wait_for(lambda: len(automatic(daemon)) == 2, told=lambda: str(snapshots(daemon)))


@pytest.mark.long
@pytest.mark.parametrize("ahead_s", [2 * 3600, 365 * DAY_S])
def test_codes_are_right_as_soon_as_the_clock_is(daemon, clock, ahead_s):
    """C4"""
    daemon.start(env=clock.env)
    owner = visitor(daemon)
    _, page = owner.post("/+/me/factor", current=daemon.password)
    secret = re.search('<p class="secret"><code>([A-Z2-7 ]+)<', page)[1]
    assert owner.post("/+/me/factor/confirm", code=totp(secret, time.time()))[0] == 200
    daemon.kill()
    clock.set(f"+{ahead_s}")
    daemon.start(env=clock.env)
    clock.set("+0")

    def enter(code):
        person = Visitor(daemon)
        person.get("/+/login")
        person.post("/+/login", name="keeper", password=daemon.password)
        return person.post("/+/login/code", code=code)[0]

    # The one that was used for the set-up opens nothing again: the next one does.
    step = int(time.time()) // 30
    wait_for(lambda: int(time.time()) // 30 > step, 40)
    code = totp(secret, time.time())
    assert enter(code) == 303
    assert enter(code) == 401, "each opens once"
