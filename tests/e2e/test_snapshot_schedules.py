"""Snapshots that are taken by themselves, without waiting for hours.

A schedule goes by the names of its snapshots. So time passes by renaming: one that was taken now becomes one of an hour ago. `larder reload` makes the
daemon look at once.

  S1  Each hour, day, week and month gets one, of which the newest stay; none is taken twice, or while nothing changes.
  S2  A machine that was off catches up with one.
  S3  What people made, renamed or hold stays.
  S4  A volume that is locked or missing keeps nothing else from being served, is named once in the log and in `snap schedule`,
      and its schedule begins when it can. A schedule does not keep a volume open.
"""

import json
import os
import re
import time
from datetime import datetime, timedelta, timezone

import pytest

from conftest import client
from test_encryption import sealed, typed  # noqa: F401
from test_snapshots import daemon, snap, snapshots  # noqa: F401
from waiting import wait_for

NAME = "auto-%Y-%m-%d_%H-%MZ"
AUTOMATIC = re.compile(r"auto-\d{4}-\d\d-\d\d_\d\d-\d\dZ")


@pytest.fixture(autouse=True)
def steady_hour():
    """No test crosses a full hour, at which a snapshot would be due by itself."""
    left_s = 3600 - time.time() % 3600
    if left_s < 120:
        time.sleep(left_s + 10)


def schedule(daemon, counts, volume="tank/files", more=""):
    """Writes a schedule into the configuration, as a person does, and lets the daemon read it."""
    file = daemon.data / "larder.toml"
    text = re.sub(r"(?m)^snapshots = .*\n", "", file.read_text())
    entry = f'name = "{volume}"\n'
    if entry not in text:
        text += f"\n[[volume]]\n{entry}"
    file.write_text(text.replace(entry, f"{entry}{more}snapshots = {counts}\n", 1))
    daemon.run("reload", check=True)


def scheduled(daemon, *volume):
    return snap(daemon, "schedule", *volume)


def automatic(daemon, volume="files"):
    return [name for name in snapshots(daemon, volume) if AUTOMATIC.fullmatch(name)]


def settle(daemon):
    """Lets the daemon look, and waits until it has: it destroys an automatic snapshot that is not the newest of its day."""
    name = f"auto-2026-01-01_03-{settle.minute:02}Z"
    settle.minute += 1
    spare = next(name for name in snapshots(daemon) if name.startswith("spare"))
    snap(daemon, "rename", f"files@{spare}", name)
    daemon.run("reload", check=True)
    wait_for(lambda: name not in snapshots(daemon), told=lambda: str(scheduled(daemon)))


settle.minute = 1


def pass_hours(daemon, hours):
    """The newest automatic snapshot was taken some hours ago."""
    newest = automatic(daemon)[-1]
    before = datetime.strptime(newest, NAME) - timedelta(hours=hours)
    snap(daemon, "rename", f"files@{newest}", before.strftime(NAME))
    return before.strftime(NAME)


def change(daemon, text):
    with open(daemon.mount / "note", "w") as note:
        note.write(text)
        note.flush()
        os.fsync(note.fileno())


def taken_now(name):
    at = datetime.strptime(name, NAME).replace(tzinfo=timezone.utc)
    return abs(datetime.now(timezone.utc) - at) < timedelta(minutes=10)


def test_it_takes_thins_and_skips(daemon):  # noqa: F811
    """S1, S3."""
    assert daemon.run("snap", "schedule", check=True).stdout == "no snapshots are scheduled\n"
    for number in range(10):
        snap(daemon, "create", f"files@spare{number}")
    for day in (1, 2):
        for hour in range(5):
            snap(daemon, "create", f"files@auto-2026-01-0{day}_0{hour}-00Z")
    snap(daemon, "create", "files@mine")
    snap(daemon, "create", "files@auto-2020-01-01_00-00Z-mine")
    snap(daemon, "hold", "files@auto-2026-01-01_00-00Z", "law")
    by_hand = {name for name in snapshots(daemon) if not AUTOMATIC.fullmatch(name)}
    change(daemon, "one")
    schedule(daemon, "{ hourly = 3, daily = 6 }")
    kept = ["auto-2026-01-01_00-00Z", "auto-2026-01-01_04-00Z", "auto-2026-01-02_03-00Z", "auto-2026-01-02_04-00Z"]
    wait_for(lambda: automatic(daemon)[:-1] == kept, told=lambda: str(automatic(daemon)))
    first = automatic(daemon)[-1]
    assert taken_now(first), first
    assert {name for name in snapshots(daemon) if not AUTOMATIC.fullmatch(name)} == by_hand
    [shown] = scheduled(daemon)
    assert shown["keep"] == {"hourly": 3, "daily": 6, "weekly": 0, "monthly": 0}
    assert shown["kept"] == {**shown["keep"], "daily": 3} and shown["newest"] == first and "fault" not in shown, shown
    assert time.time() < shown["next_ms"] / 1000 <= time.time() + 3600 + 10
    assert shown["next_ms"] / 1000 % 3600 < 60

    # The same hour again, with a change.
    change(daemon, "two")
    settle(daemon)
    assert automatic(daemon)[-1] == first
    text = daemon.run("snap", "schedule", check=True).stdout.splitlines()
    assert text[0].split() == ["VOLUME", "HOURLY", "DAILY", "WEEKLY", "MONTHLY", "NEWEST", "NEXT"]
    assert text[1].split()[:6] == ["tank/files", "3/3", "3/6", "-", "-", first] and len(text) == 2

    # An hour later.
    earlier = pass_hours(daemon, 1)
    settle(daemon)
    newest = automatic(daemon)[-1]
    assert taken_now(newest) and automatic(daemon)[-2] == earlier
    assert (daemon.mount / ".snapshots" / newest / "note").read_text() == "two"
    assert "auto-2026-01-02_03-00Z" not in snapshots(daemon), "three hours are newer"

    # Hours without a change.
    [shown] = scheduled(daemon, "files")
    assert not shown["changed"], shown
    assert "if anything changes" in daemon.run("snap", "schedule", "tank/files", check=True).stdout
    earlier = pass_hours(daemon, 30)
    settle(daemon)
    assert automatic(daemon)[-1] == earlier
    change(daemon, "three")
    assert scheduled(daemon)[0]["changed"]
    settle(daemon)
    newest = automatic(daemon)[-1]
    assert taken_now(newest)

    # A clock that was wrong by years, in both directions, destroys nothing and stands in nobody's way.
    snap(daemon, "rename", f"files@{newest}", "auto-2099-01-01_00-00Z")
    change(daemon, "four")
    settle(daemon)
    assert automatic(daemon)[-2] == "auto-2099-01-01_00-00Z" and taken_now(automatic(daemon)[-1])
    snap(daemon, "rename", f"files@{automatic(daemon)[-1]}", "auto-1970-01-01_00-00Z")
    change(daemon, "five")
    settle(daemon)
    now = automatic(daemon)
    assert now[-3:-1] == ["auto-2099-01-01_00-00Z", "auto-1970-01-01_00-00Z"] and taken_now(now[-1])
    assert earlier in now

    # What was released is destroyed, and fewer are kept when fewer are asked for.
    assert "auto-2026-01-01_00-00Z" in snapshots(daemon)
    snap(daemon, "release", "files@auto-2026-01-01_00-00Z", "law")
    schedule(daemon, "{ daily = 1 }")
    wait_for(lambda: automatic(daemon) == now[-1:], told=lambda: str(automatic(daemon)))
    assert {"mine", "auto-2020-01-01_00-00Z-mine"} < set(snapshots(daemon))
    assert scheduled(daemon)[0]["kept"] == {"hourly": 0, "daily": 1, "weekly": 0, "monthly": 0}

    # Without a schedule nothing is taken or destroyed.
    file = daemon.data / "larder.toml"
    file.write_text(re.sub(r"(?m)^snapshots = .*\n", "", file.read_text()))
    daemon.run("reload", check=True)
    assert scheduled(daemon) == []
    refused = daemon.run("snap", "schedule", "files")
    assert refused.returncode == 1 and "no snapshots of 'files' are scheduled" in refused.stderr
    assert "larder snap schedule files --hourly" in refused.stderr


def test_it_catches_up_with_one(daemon):  # noqa: F811
    """S2: also after kill -9."""
    change(daemon, "one")
    schedule(daemon, "{ hourly = 24, weekly = 2 }")
    wait_for(lambda: automatic(daemon))
    for life in range(3):
        gone = pass_hours(daemon, 5 + life)
        names = automatic(daemon)
        assert names[-1] == gone
        change(daemon, f"life {life}")
        daemon.run("umount", str(daemon.mount), check=True)
        daemon.kill() if life == 1 else daemon.stop()
        daemon.start()
        wait_for(lambda: len(automatic(daemon)) > len(names), told=lambda: str(scheduled(daemon)))
        daemon.run("mount", str(daemon.mount), check=True)
        assert automatic(daemon)[:-1] == names and taken_now(automatic(daemon)[-1])
        assert (daemon.mount / ".snapshots" / automatic(daemon)[-1] / "note").read_text() == f"life {life}"
    daemon.run("umount", str(daemon.mount), check=True)
    daemon.stop()
    alone = daemon.run("snap", "schedule")
    assert alone.returncode == 1 and "no larder is running" in alone.stderr
    assert daemon.check().returncode == 0


def test_volumes_that_are_locked_or_missing(sealed):  # noqa: F811
    """S4."""
    schedule(sealed, "{ hourly = 2 }", volume="tank/secret")
    wait_for(lambda: automatic(sealed, "secret"))
    snap(sealed, "rename", f"secret@{automatic(sealed, 'secret')[0]}", "auto-2026-01-01_00-00Z")
    # The schedule has the volume at hand, which keeps nobody from locking it.
    sealed.run("volume", "lock", "secret", check=True)
    wait_for(lambda: "locked" in scheduled(sealed)[0].get("fault", ""))
    missing = '[[volume]]\nname = "tank/none"\nkey_file = "/nowhere"\nsnapshots = { daily = 1 }\n'
    file = sealed.data / "larder.toml"
    file.write_text(file.read_text() + "\n" + missing)
    assert sealed.run("config", "check").returncode == 0
    sealed.run("reload", check=True)
    wait_for(lambda: len(scheduled(sealed)) == 2 and all("fault" in one for one in scheduled(sealed)))
    for _ in range(3):
        sealed.run("reload", check=True)
    faults = {one["volume"]: one["fault"] for one in scheduled(sealed)}
    assert "larder volume unlock tank/secret" in faults["secret"] and "there is no volume" in faults["none"], faults
    said = daemon_lines(sealed, "snapshot schedule")
    assert len(said) == 2 and "tank/none" in "".join(said), said
    text = sealed.run("snap", "schedule", check=True).stdout
    assert "\ntank/secret: the volume 'tank/secret' is locked; open it with: larder volume unlock tank/secret\n" in text, text

    # It is the same after a start, and others are served.
    sealed.stop()
    sealed.start()
    wait_for(lambda: all("fault" in one for one in scheduled(sealed)))
    with client(sealed) as nfs:
        nfs.create(nfs.root, "a")
    typed(sealed, "volume", "unlock", "secret")
    wait_for(lambda: len(automatic(sealed, "secret")) == 2, told=lambda: str(scheduled(sealed)))
    wait_for(lambda: {one["volume"] for one in scheduled(sealed) if "fault" in one} == {"none"})
    assert "is well again" in "".join(daemon_lines(sealed, "snapshot schedule"))
    sealed.run("volume", "destroy", "secret", "--yes", "--with-snapshots", check=True)
    assert [one["volume"] for one in scheduled(sealed)] == ["none"]


def daemon_lines(daemon, words):  # noqa: F811
    return [line for line in daemon.log().splitlines() if words in line]


def test_wrong_schedules_are_refused(daemon):  # noqa: F811
    file = daemon.data / "larder.toml"
    good = file.read_text()
    for counts, complaint in (
        ("{ hourly = 0 }", "snapshots keeps none"),
        ("{ yearly = 2 }", "unknown key `yearly`"),
        ("{ daily = 100000 }", "at most 2500"),
        ('"daily"', "snapshots"),
    ):
        file.write_text(good.replace('name = "tank/files"\n', f'name = "tank/files"\nsnapshots = {counts}\n', 1))
        for command in (("config", "check"), ("reload",)):
            refused = daemon.run("--json", *command)
            message = json.loads(refused.stderr)["error"]["message"]
            assert refused.returncode == 1 and complaint in message and "larder.toml:" in message, message
    assert scheduled(daemon) == []
