"""The last table of docs/sharing.md: what is left of what a client holds, after what may end it.

`LARDER_WRITE_TABLE=1` writes it anew; read the difference before it is committed.
"""

import contextlib
import os
import subprocess

import pytest
from impacket.nmb import NetBIOSError
from impacket.smb3 import SessionError

from conftest import client, make
from nfs4 import Nfs4, Nfs4Error
from test_access import add_user
from test_nlm import port_mapper
from test_sharing_table import DOCUMENT, DOORS, HOLDERS, IS_WRITTEN, Refused, comes_to, made, outcome
from waiting import wait_for

# Clients of NLM have a port mapper, on port 111.
pytestmark = [pytest.mark.xdist_group("port-111"), pytest.mark.long]

# As tables above name it, without the clause.
NAMES = {title: title.split(" (")[0].replace("NFS v3 client's", "NFS v3") for title in HOLDERS}
BEGIN, END = "<!-- what is left -->", "<!-- end of what is left -->"
# A minute, and what a busy machine adds.
GRACE_S = 120
# What another user of SMB tries beside each, by another share: it is refused, or asks, while that is held.
PROBES = dict(zip(HOLDERS, ["open_to_write", "lock", "rename", "open_to_write", "open_to_write", "lock", "write",
                            "open_to_write", "lock", "open_to_write", "deny_writing", "lock", "lock"], strict=True))


class Other:
    """The house, to another user."""

    def __init__(self, house):
        self.house, self.user, self.password = house, "other", "Pantry-Shelf-43"

    def __getattr__(self, name):
        return getattr(self.house, name)


@pytest.fixture
def house(tmp_path):
    options = ["--squash", "none", "--sftp", "127.0.0.1:0", "--webdav", "127.0.0.1:0", port_mapper()]
    house = make(tmp_path, extra=options).start()
    house.folder, house.mnt = tmp_path, tmp_path / "mnt"
    house.run("share", "add", "second", "--volume", "files", check=True)
    add_user(house, "other")
    house.mnt.mkdir()
    house.run("mount", house.mnt, check=True)
    os.chmod(house.mnt, 0o777)
    try:
        with client(house) as house.nfs:
            yield house
        assert house.stop() == 0, house.log()[-4000:]
        assert "panicked" not in house.log()
    finally:
        house.end()
        # Of a daemon that was killed.
        subprocess.run(["umount", "-l", house.mnt], stderr=subprocess.DEVNULL)


def rolled_back(house):
    house.run("snap", "rollback", "files@then", "--yes", "--force", check=True)


def restarted(house):
    assert house.stop() == 0
    house.start()


def killed(house):
    house.kill()
    house.start()


# After the last ones clients come back, and take back what they had.
EVENTS = {
    "user removed": lambda house: house.run("user", "remove", "keeper", check=True),
    "shut out": lambda house: house.run("share", "set", house.share, "--network", "192.0.2.0/24", check=True),
    "share removed": lambda house: house.run("share", "remove", house.share, check=True),
    "rollback": rolled_back,
    "restart": restarted,
    "kill -9": killed,
}
COMES_BACK = list(EVENTS)[3:]


def left(house, event):
    """By title: what is left of it."""
    files = {title: f"e{number}" for number, title in enumerate(HOLDERS)}
    for name in files.values():
        made(house, name)
    house.run("snap", "create", "files@then", check=True)
    with contextlib.ExitStack() as stack:
        held = {title: hold(house, files[title]) for title, hold in HOLDERS.items()}
        for one in held.values():
            stack.callback(ended, one)
        EVENTS[event](house)
        return looked_at(house, files, held, event in COMES_BACK)


def is_over(house, held):
    for one in held.values():
        one.renew()
    return outcome(DOORS["SMB"](house, "nobody's").lock) == "goes on"


def ended(one):
    with contextlib.suppress(SessionError, NetBIOSError, Nfs4Error, OSError):
        one.end()


def looked_at(house, files, held, comes_back):
    other, seen = Other(house), {}
    if comes_back:
        for one in held.values():
            one.serve = lambda seconds: None
            # Where there is nothing any more, the server says so.
            with contextlib.suppress(Refused, Nfs4Error):
                if one.back:
                    one.back()
        wait_for(lambda: is_over(other, held), GRACE_S, lambda: "grace is over")
    for title, probe in PROBES.items():
        is_held = comes_to(held[title], getattr(DOORS["SMB"](other, files[title]), probe)) != "goes on"
        seen[NAMES[title]] = "gone" if not is_held else "taken back" if comes_back and held[title].back else "stays"
    return seen


@pytest.fixture(scope="module")
def document():
    """The columns by event; those that were seen are written at the end."""
    before, rest = DOCUMENT.read_text().split(BEGIN + "\n\n")
    inside, after = rest.split(END + "\n")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in inside.strip().splitlines()]
    cells = {row[0]: dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[2:]}
    columns = {event: {title: cells[title][event] for title in cells} for event in rows[0][1:]} if rows else {}
    yield columns
    if IS_WRITTEN:
        lines = ["| | " + " | ".join(EVENTS) + " |", "|---" * (len(EVENTS) + 1) + "|"]
        lines += [f"| {name} | " + " | ".join(columns.get(event, {}).get(name, "?") for event in EVENTS) + " |" for name in NAMES.values()]
        DOCUMENT.write_text(f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}\n{after}")


@pytest.mark.parametrize("event", EVENTS)
def test_the_document_says_what_is_left_of_what_a_client_held(house, document, event):
    seen = left(house, event)
    if IS_WRITTEN:
        document[event] = seen
    assert document.get(event) == seen
