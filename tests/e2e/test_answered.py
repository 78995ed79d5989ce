"""An answer is kept: a daemon that is killed as soon as it has answered has what it said, at every later look."""

import json

import pytest

from conftest import make
from test_access import add_user
from test_page import Visitor
from test_reborn import Reborn, move
from waiting import wait_for

pytestmark = pytest.mark.usefixtures("small_machine")

OLD, NEW = "Pantry-Shelf-42", "Another-Shelf-43"
DOORS = ["--page", "127.0.0.1:0", "--webdavs", "127.0.0.1:0"]


@pytest.fixture
def box(folder):
    daemon = make(folder, extra=DOORS, password=OLD).start()
    add_user(daemon, "ann")
    yield daemon
    daemon.end()


def typed(folder, text):
    file = folder / f"typed-{abs(hash(text))}"
    file.write_text(text + "\n")
    file.chmod(0o600)
    return file


def killed(daemon, *command):
    """Runs a command, and kills the daemon once that has its answer."""
    done = daemon.run(*command)
    daemon.kill()
    assert done.returncode == 0, done.stderr
    return done


def listed(daemon, *command):
    return json.loads(daemon.run(*command, "--json", check=True).stdout)


def comes_back(disks, data, password):
    """Whether a password of an owner brings the box back on another machine."""
    reborn = Reborn(disks, data, password=password)
    try:
        reborn.start()
    except Exception as error:
        assert "does not open with this pass" in str(error), error
        return False
    reborn.end()
    return True


def test_a_new_password_of_an_owner_opens_the_box_elsewhere(box, folder):
    killed(box, "user", "passwd", "keeper", "--password-file", typed(folder, NEW))
    disks = move(box.disks, folder)
    assert not comes_back(disks, folder / "with-the-old", OLD)
    assert comes_back(disks, folder / "with-the-new", NEW)


def test_a_new_owner_opens_the_box_elsewhere(box, folder):
    killed(box, "user", "add", "eve", "--role", "owner", "--password-file", typed(folder, NEW))
    assert comes_back(move(box.disks, folder), folder / "second", NEW)


def test_after_a_restart_the_new_password_opens_the_record_too(box, folder):
    """The same for somebody whose data folder is still there."""
    killed(box, "user", "passwd", "keeper", "--password-file", typed(folder, NEW))
    # It is named again at each start.
    box.password_file.write_text(NEW + "\n")
    box.start()
    assert "the password of keeper" in listed(box, "config", "history")["opens_with"]
    assert Visitor(box).log_in("keeper", NEW) == 303 and Visitor(box).log_in("keeper", OLD) == 401
    assert box.stop() == 0
    assert comes_back(move(box.disks, folder), folder / "second", NEW)


def test_whoever_becomes_an_owner_opens_the_record_after_a_log_in(box, folder):
    assert box.run("user", "set", "ann", "--role", "owner").returncode == 0
    history = listed(box, "config", "history")
    assert "the password of ann" not in history["opens_with"]
    assert Visitor(box).log_in("ann", "Pantry-Shelf-43") == 303
    wait_for(lambda: "the password of ann" in listed(box, "config", "history")["opens_with"])


def test_settings_that_were_answered_are_there(box, folder):
    """One kill after each answer."""
    token = json.loads(killed(box, "--json", "token", "create", "ann", "--name", "phone").stdout)["status"]["id"]
    box.start()
    assert token in [one["id"] for one in listed(box, "token", "list")]
    killed(box, "token", "revoke", token)
    box.start()
    assert token not in [one["id"] for one in listed(box, "token", "list")]
    killed(box, "user", "set", "ann", "--role", "looker")
    box.start()
    assert [one["role"] for one in listed(box, "user", "list") if one["name"] == "ann"] == ["looker"]
    killed(box, "volume", "create", "photos")
    box.start()
    assert "photos" in [one["name"] for one in listed(box, "volume", "list")]
    killed(box, "share", "set", "photos", "--users", "ann")
    box.start()
    assert [one["users"] for one in listed(box, "share", "list") if one["name"] == "photos"] == [["ann"]]
    killed(box, "snap", "schedule", "photos", "--daily", "7")
    box.start()
    assert "daily = 7" in (box.data / "larder.toml").read_text()


def test_a_session_that_was_ended_stays_ended(box):
    person = Visitor(box)
    assert person.log_in("keeper", OLD) == 303
    others = [Visitor(box) for _ in range(2)]
    assert [one.log_in("keeper", OLD) for one in others] == [303, 303]
    # The browsers find it again.
    box.extra = [word.replace(":0", f":{person.port}") for word in DOORS]
    person.get("/+/me")
    assert person.post("/+/me/end-others")[0] == 303
    box.kill()
    box.start()
    assert person.get("/+/me")[0] == 200
    assert [one.get("/+/me")[0] for one in others] == [303, 303]
    person.get("/+/me")
    cookie = person.cookie
    assert person.post("/+/logout")[0] == 303
    box.kill()
    box.start()
    person.cookie = cookie
    assert person.get("/+/me")[0] == 303, "the session that was ended has come back"
