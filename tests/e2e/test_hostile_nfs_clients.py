"""NFS believes its clients, so it answers nobody who was not named, and no program that is not root of its machine."""

import json
import os
import subprocess

import pytest

import nfs3
from conftest import make
from larderd import Larder
from nfs3 import NfsError
from test_cli import restart_with
from waiting import wait_for

HERE, THERE, PUBLIC = "10.99.9.1", "10.99.9.2", "203.0.113.9"
LINK_LOCAL, CARRIER = "169.254.9.9", "100.64.9.9"
ACCES = 13


def sh(*words):
    subprocess.run(list(map(str, words)), check=True, capture_output=True)


@pytest.fixture(scope="module")
def spaces():
    """Two machines with a wire between them: one for the daemon, one for clients with addresses of each kind."""
    names = [f"lnh{os.getpid()}", f"lnc{os.getpid()}"]
    made = []
    try:
        for name in names:
            sh("ip", "netns", "add", name)
            made.append(name)
        sh("ip", "link", "add", "lan", "netns", names[0], "type", "veth", "peer", "name", "lan", "netns", names[1])
        for name, address in ((names[0], HERE), *((names[1], address) for address in (THERE, PUBLIC, LINK_LOCAL, CARRIER))):
            sh("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "lan")
        for name in names:
            for link in ("lo", "lan"):
                sh("ip", "-n", name, "link", "set", link, "up")
        for network in ("203.0.113.0/24", "169.254.9.0/24", "100.64.9.0/24"):
            sh("ip", "-n", names[0], "route", "add", network, "dev", "lan")
        yield names
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False)


class Box(Larder):
    """A larder in a namespace. `ip netns exec` becomes the program, so its pid is the daemon's."""

    space = None

    def command(self):
        words = super().command()
        words[words.index("--nfs") + 1] = "0.0.0.0:0"
        return ["ip", "netns", "exec", self.space, *words]


PROBE = """
import json, socket, sys
sys.path.insert(0, sys.argv[1])
import nfs3
host, port, own, reserved = sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5] == "reserved"
found = {}
create = socket.create_connection
socket.create_connection = lambda at, timeout: create(at, timeout, (own, 0))
bind = socket.socket.bind
socket.socket.bind = lambda s, at: bind(s, (own, at[1]))
try:
    nfs3.mount(host, port, "/files", reserved=reserved)
    found["mnt"] = 0
except nfs3.NfsError as error:
    found["mnt"] = error.status
found["exports"] = [path for path, _ in nfs3.exports(host, port, reserved=reserved)]
if len(sys.argv) > 6:
    try:
        nfs3.Nfs3(host, port, reserved=reserved).getattr(bytes.fromhex(sys.argv[6]))
        found["getattr"] = 0
    except nfs3.NfsError as error:
        found["getattr"] = error.status
print(json.dumps(found))
"""


def probe(space, daemon, own=THERE, host=HERE, ports="reserved", handle=None):
    """The statuses that a client in a namespace gets, and the exports that it is shown."""
    words = ["ip", "netns", "exec", space, "/usr/bin/python3", "-c", PROBE, os.path.dirname(nfs3.__file__), host, str(daemon.nfs_port), own, ports]
    done = subprocess.run(words + ([handle.hex()] if handle else []), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


OPEN = {"mnt": 0, "exports": ["/files"]}
CLOSED = {"mnt": ACCES, "exports": []}


@pytest.fixture
def box(folder, spaces):
    daemon = Box([folder / f"disk{n}" for n in (1, 2, 3)], folder / "data")
    daemon.space = spaces[0]
    yield daemon
    daemon.end()


def test_nfs_is_closed_to_other_machines_until_they_are_named(box, spaces):
    here, there = spaces
    box.start()
    assert probe(here, box, own="127.0.0.1", host="127.0.0.1") == OPEN
    assert probe(there, box) == CLOSED
    # It takes effect on a running daemon.
    changed = box.run("share", "set", "files", "--network", THERE, check=True).stdout
    assert "whoever he says" in changed, changed
    assert probe(there, box) == OPEN
    assert probe(there, box, own=PUBLIC) == CLOSED
    # The carriers' and the link's addresses are no private networks.
    box.run("share", "set", "files", "--network", "private", check=True)
    assert [probe(there, box, own=own) for own in (THERE, PUBLIC, LINK_LOCAL, CARRIER)] == [OPEN, CLOSED, CLOSED, CLOSED]
    box.run("share", "set", "files", "--network", "usual", check=True)
    assert probe(there, box) == CLOSED
    assert "its address is in none of the networks" in box.log() and "--network" in box.log()


def test_the_options_of_up_open_nfs(box, spaces):
    here, there = spaces
    box.extra = ["--nfs-allow", THERE, "--nfs-allow", "100.64.9.0/24"]
    box.start()
    assert [probe(there, box, own=own) for own in (THERE, CARRIER, PUBLIC)] == [OPEN, OPEN, CLOSED]
    assert probe(here, box, own="127.0.0.1", host="127.0.0.1") == OPEN, "beside this machine"
    assert box.stop() == 0
    # The first run wrote it; another run's option holds for that run.
    box.extra = ["--nfs-allow", PUBLIC]
    box.start()
    assert [probe(there, box, own=own) for own in (THERE, PUBLIC)] == [OPEN, OPEN]
    box.run("share", "set", "files", "--read-only=yes", check=True)
    assert probe(there, box, own=PUBLIC) == OPEN
    assert box.stop() == 0
    assert PUBLIC not in (box.data / "larder.toml").read_text()
    box.extra = []
    box.start()
    assert [probe(there, box, own=own) for own in (THERE, PUBLIC)] == [OPEN, CLOSED]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    daemon = make(tmp_path_factory.mktemp("ports")).start()
    yield daemon
    daemon.end()


def status(do):
    try:
        do()
    except NfsError as error:
        return error.status
    return 0


def test_programs_of_ordinary_users_are_refused(daemon):
    """A port below 1024 needs root of the client; every call is asked, not MNT alone."""
    root, _ = nfs3.mount("127.0.0.1", daemon.nfs_port, daemon.export)
    assert status(lambda: nfs3.mount("127.0.0.1", daemon.nfs_port, daemon.export, reserved=False)) == ACCES

    def getattr_():
        with nfs3.Nfs3("127.0.0.1", daemon.nfs_port, reserved=False) as nfs:
            nfs.getattr(root)

    assert status(getattr_) == nfs3.ACCES
    wait_for(lambda: "ports below 1024" in daemon.log() and "--secure=no" in daemon.log())
    # Who may mount may see what there is, from any port.
    assert [path for path, _ in nfs3.exports("127.0.0.1", daemon.nfs_port, reserved=False)] == [daemon.export]
    told = daemon.run("share", "explain", daemon.user, f"/{daemon.share}", check=True).stdout
    assert "anybody on these machines is whoever he says" in told and "ports below 1024" in told, told
    daemon.run("share", "set", daemon.share, "--secure=no", check=True)
    assert status(getattr_) == 0
    text = daemon.run("share", "list", check=True).stdout
    assert "from any port" in text and "anybody on these machines is whoever he says" in text, text
    daemon.run("share", "set", daemon.share, "--secure", check=True)
    assert status(getattr_) == nfs3.ACCES


def test_a_run_with_any_port(folder):
    daemon = make(folder, extra=["--nfs-any-port"]).start()
    try:
        assert status(lambda: nfs3.mount("127.0.0.1", daemon.nfs_port, daemon.export, reserved=False)) == 0
        assert "secure = false" in (daemon.data / "larder.toml").read_text()
    finally:
        daemon.end()


def test_mounts_of_others_are_not_told(daemon):
    """DUMP lists the mounts of the machine that asks."""
    nfs3.mount("127.0.0.1", daemon.nfs_port, daemon.export)

    def mounts(own):
        with nfs3.Rpc("127.0.0.1", daemon.nfs_port) as rpc:
            rpc.socket.close()
            rpc.socket = nfs3.socket.create_connection(("127.0.0.1", daemon.nfs_port), 10, (own, 0))
            return rpc.call(nfs3.MOUNT_PROGRAM, 3, 2, b"").data[24:]

    assert b"127.0.0.1" in mounts("127.0.0.1") and b"127.0.0.1" not in mounts("127.0.0.9")


def test_a_private_share_names_the_ways_past_it(daemon):
    """A folder that is one user's, and lies in a share for everybody, is open through that one."""
    password = daemon.data / "ann"
    password.write_text("Pantry-Shelf-43\n")
    daemon.run("user", "add", "ann", "--password-file", password, check=True)
    made = daemon.run("share", "add", "ann", "--folder", "annpriv", "--users", "ann", check=True).stdout
    for text in (made, daemon.run("share", "list", check=True).stdout,
                 daemon.run("share", "explain", daemon.user, "/ann", check=True).stdout):
        assert f"through '{daemon.share}' over NFS from this machine, where anybody is whoever he says" in text, text
        assert f"over SMB, SFTP, WebDAV by {daemon.user}" in text, text
    [listed] = [share for share in json.loads(daemon.run("share", "list", "--json", check=True).stdout) if share["name"] == "ann"]
    assert len(listed["reached"]) == 2 and listed["nfs"] is None, listed
    refused = daemon.run("share", "set", "ann", "--nfs=yes")
    assert refused.returncode == 1 and "--network" in refused.stderr, refused
    assert "'ann' is for certain users" in daemon.log()
    daemon.run("share", "remove", "ann", check=True)


def test_an_older_configuration_is_closed_and_says_so(folder):
    """Shares without networks were open to all private ones; the start says that this has changed, and the way back."""
    daemon = make(folder).start()
    assert daemon.stop() == 0
    try:
        command = daemon.command
        daemon.command = lambda: [word.replace("127.0.0.1:0", "0.0.0.0:0") for word in command()]
        daemon.start()
        assert "NFS is answered to this machine alone by 'files'" in daemon.log(), daemon.log()
        assert "larder share set files --network" in daemon.log() and "--network private" in daemon.log()
        assert daemon.stop() == 0
        daemon.command = command
        later = restart_with(daemon, lambda text: text.replace("[[share]]\n", '[[share]]\nnetworks = ["127.0.0.1"]\n'))
        assert "this machine alone" not in later.log()
        assert json.loads(later.run("share", "list", "--json", check=True).stdout)[0]["networks"] == ["127.0.0.1/32"]
        later.end()
    finally:
        daemon.end()
