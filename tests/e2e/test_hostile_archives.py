"""Archives: whoever holds a link takes no place of a user's, and nobody takes them all."""

import contextlib
import http.client
import os
import shutil
import socket
import tempfile
import urllib.parse
from pathlib import Path

import pytest

from conftest import make
from test_access import add_user
from test_file_view import Person, link_to
from test_webdav import ANN, Dav
from waiting import wait_for

# As in crates/web/src/files/archive.rs.
OF_USERS_MAX, OF_USER_MAX, OF_LINKS_MAX, OF_LINK_MAX, OF_LINKS_ADDRESS_MAX = 16, 4, 8, 3, 3
# More than fits into the buffers of a connection, so that a client that does not read keeps its place.
LONG_BYTES = 48 << 20


@pytest.fixture(scope="module")
def daemon():
    place = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    daemon = make(place, extra=["--webdav", "127.0.0.1:0"]).start()
    add_user(daemon, "ann", password=ANN)
    for name in ("one", "two"):
        Dav(daemon)("MKCOL", f"/{daemon.share}/{name}")
        Dav(daemon).put(f"/{daemon.share}/{name}/long", os.urandom(LONG_BYTES))
    yield daemon
    log, code = daemon.log(), daemon.stop()
    shutil.rmtree(place, ignore_errors=True)
    assert code == 0 and "panicked" not in log, log[-4000:]


def ask(daemon, path, source, **headers):
    """The status of an archive from an address; its client reads nothing more. 0: no answer."""
    connection = http.client.HTTPConnection("127.0.0.1", daemon.info["webdav"]["port"], timeout=20, source_address=(source, 0))
    connection.connect()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    connection.request("GET", urllib.parse.quote(path, safe="/?=&%"), headers=headers)
    return connection, connection.getresponse().status


@contextlib.contextmanager
def holding(daemon, path, sources, **headers):
    """As many archives as are begun from these addresses, held while nobody reads them."""
    held = []
    try:
        for source in sources:
            connection, status = ask(daemon, path, source, **headers)
            if status == 200:
                held.append(connection)
            else:
                assert status == 503, status
                connection.close()
        yield len(held)
    finally:
        for connection in held:
            connection.close()


def test_links_have_places_of_their_own(daemon):
    person = Person(daemon)
    assert person.log_in("keeper", daemon.password)[0] == 303
    links = [link_to(person, f"/{daemon.share}/{name}", days=1) + "/?zip" for name in ("one", "two")]
    keeper = Dav(daemon)

    def free():
        with holding(daemon, links[0], ["127.0.1.1"]) as count:
            return count == 1

    with holding(daemon, links[0], ["127.0.0.2"] * 20) as of_address:
        assert of_address == min(OF_LINK_MAX, OF_LINKS_ADDRESS_MAX)
        with holding(daemon, links[0], [f"127.0.0.{n}" for n in range(10, 30)]) as more:
            assert of_address + more == OF_LINK_MAX, "one link has a few places from all addresses together"
        with holding(daemon, links[1], [f"127.0.0.{n}" for n in range(30, 50)]) as more:
            assert 0 < more <= OF_LINK_MAX
            # Users are as free as ever.
            own = {"Authorization": keeper.authorization}
            with holding(daemon, f"/{daemon.share}/one?zip", ["127.0.0.1"] * 8, **own) as of_user:
                assert of_user == OF_USER_MAX
                ann = {"Authorization": Dav(daemon, "ann", ANN).authorization}
                with holding(daemon, f"/{daemon.share}/two?zip", ["127.0.0.1"], **ann) as of_ann:
                    assert of_ann == 1, "one user does not take another's places"
    # Places come back with the connections.
    wait_for(free)
