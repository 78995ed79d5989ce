"""NT hashes, which SMB needs and nobody else: kept where SMB is served, and nowhere else."""

import json

from larderd import Larder
from test_access import add_user
from test_reborn import dav
from test_smb import smb

ANN = "Pantry-Shelf-43"


class Box(Larder):
    """Its door for SMB is shut, where it is told to be."""

    def __init__(self, folder, smb):
        super().__init__([folder / "disk1"], folder / "data", layout="single", extra=["--webdav", "127.0.0.1:0"])
        self.smb = smb

    def command(self):
        words = super().command()
        words[words.index("--smb") + 1] = self.smb
        return words


SHUT, OPEN = "off", "127.0.0.1:0"


def kept(daemon):
    """The names of users of whom there is an NT hash."""
    users = json.loads((daemon.data / "secrets").read_text())["users"]
    return {name for name, secret in users.items() if "nt_hash" in secret}


def needs(daemon):
    users = json.loads(daemon.run("user", "list", "--json", check=True).stdout)
    return {user["name"] for user in users if user["needs_password_for_smb"]}


def set_password(daemon, name):
    daemon.run("user", "passwd", name, "--password-file", daemon.data / f"password-{name}", check=True)


def test_a_box_without_smb_keeps_no_nt_hashes(folder):
    daemon = Box(folder, SHUT).start()
    try:
        add_user(daemon, "ann", password=ANN)
        assert kept(daemon) == set() and needs(daemon) == set()
        assert dav(daemon, "files/", "ann", ANN)[0] == 200 and dav(daemon, "files/", "ann", "wrong")[0] == 401
        assert daemon.stop() == 0
        daemon.smb = OPEN
        daemon.start()
        # The owner's password comes from a file at each start.
        assert kept(daemon) == {"keeper"} and needs(daemon) == {"ann"}
        assert "the password of 'ann' does not open SMB" in daemon.log()
        assert "set it again for SMB" in daemon.run("user", "list", check=True).stdout
        assert "NT_STATUS_" not in smb(daemon, "ls")
        assert "NT_STATUS_LOGON_FAILURE" in smb(daemon, "ls", user="ann", password=ANN, check=False)
        assert "'ann' from 127.0.0.1 was refused: the password was set while SMB was not served" in daemon.log()
        assert dav(daemon, "files/", "ann", ANN)[0] == 200
        set_password(daemon, "ann")
        assert kept(daemon) == {"ann", "keeper"} and needs(daemon) == set()
        assert "NT_STATUS_" not in smb(daemon, "ls", user="ann", password=ANN)
    finally:
        daemon.end()


def test_a_door_that_is_closed_for_a_moment_costs_no_password(folder):
    daemon = Box(folder, OPEN).start()
    try:
        add_user(daemon, "ann", password=ANN)
        assert kept(daemon) == {"ann", "keeper"}
        for daemon.smb in (SHUT, OPEN):
            assert daemon.stop() == 0
            daemon.start()
            assert kept(daemon) == {"ann", "keeper"}
            if daemon.smb == SHUT:
                # The file still has the door: what is set meanwhile opens it later.
                set_password(daemon, "ann")
        assert "NT_STATUS_" not in smb(daemon, "ls", user="ann", password=ANN)
    finally:
        daemon.end()
