"""Guessing passwords: at once, beside a login of one's own, over several doors, to lock out others, behind a proxy.

Refusals are answered late, so the scenes of this module, each with addresses of its own, are played at the same time.
"""

import collections
import concurrent.futures
import inspect
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from conftest import make
from hostile import ACCOUNT_LOCKED_OUT, LOGON_FAILURE, Smb, ask, lift_limits, log_in
from test_access import add_user
from test_sftp import Client
from test_smb import smb

# As in crates/doors/src/login.rs.
GUESSES_MAX = 10
USERS = {"ann": "Pantry-Shelf-43", "bob": "Pantry-Shelf-44", "mallory": "Pantry-Shelf-45"}
# Names that are tried over SMB, three by each address.
NAMES = int(os.environ.get("LARDER_NAMES", "1500"))


@pytest.fixture(scope="module")
def place():
    path = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def daemon(place):
    lift_limits()
    daemon = make(place, extra=["--sftp", "127.0.0.1:0", "--webdav", "127.0.0.1:0"]).start()
    for name, password in USERS.items():
        add_user(daemon, name, password=password)
    daemon.stop()
    file = daemon.data / "larder.toml"
    text = file.read_text()
    assert "[webdav]" not in text
    file.write_text(text + '\n[webdav]\ntrusted_proxies = ["127.0.7.0/24"]\n')
    daemon.start()
    yield daemon
    log, code = daemon.log(), daemon.stop()
    assert code == 0 and "panicked" not in log, log[-4000:]


@pytest.fixture(scope="module")
def port(daemon):
    return daemon.info["webdav"]["port"]


SCENES = []


def scene(play):
    """A test whose waiting is done beside that of the others."""
    SCENES.append(play)

    def test(played):
        played[play.__name__].result()

    test.__doc__ = play.__doc__
    return test


@pytest.fixture(scope="module")
def played(daemon, place, port):
    known = {"daemon": daemon, "place": place, "port": port}
    with concurrent.futures.ThreadPoolExecutor(len(SCENES)) as pool:
        yield {play.__name__: pool.submit(play, *[known[name] for name in inspect.signature(play).parameters]) for play in SCENES}


def at_once(calls):
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


@scene
def test_passwords_that_come_at_once_are_not_looked_at_beyond_the_limit(port):
    def one(n):
        return lambda: ask(port, "bob", USERS["bob"] if n == 150 else f"wrong{n}", "127.0.1.1")

    # That bob's password is remembered for where he is helps nobody elsewhere to guess it.
    assert ask(port, "bob", USERS["bob"], "127.0.1.9") == 207
    # The right one is asked for when the limit is reached, as the others of its address before it.
    counts = collections.Counter(at_once([one(n) for n in range(150)]))
    counts += collections.Counter(at_once([one(n) for n in range(150, 200)]))
    assert set(counts) <= {401, 429, 503} and counts[401] <= GUESSES_MAX, counts


@scene
def test_the_same_right_password_many_times_at_once_is_no_guessing(port):
    counts = collections.Counter(at_once([lambda: ask(port, "ann", USERS["ann"], "127.0.1.2")] * 40))
    assert counts == {207: 40}, counts


def wrong(port, name, source, count, **headers):
    """The statuses of wrong passwords at once: their answers wait, the longer the more there are."""
    one = lambda n: lambda: ask(port, name, f"wrong{n}", source, **headers)
    return collections.Counter(at_once([one(n) for n in range(count)]))


@scene
def test_a_login_of_ones_own_forgives_no_guesses_of_others(port):
    source = "127.0.1.3"
    assert wrong(port, "bob", source, GUESSES_MAX - 1) == {401: GUESSES_MAX - 1}
    assert log_in(port, "mallory", USERS["mallory"], source) == 303
    assert wrong(port, "bob", source, 4) == {401: 1, 429: 3}
    assert ask(port, "bob", USERS["bob"], "127.0.1.4") == 207, "elsewhere bob is let in"


@scene
def test_typing_errors_of_the_same_name_are_forgiven(port):
    for _ in range(2):
        assert wrong(port, "ann", "127.0.1.5", 6) == {401: 6}
        assert log_in(port, "ann", USERS["ann"], "127.0.1.5") == 303


@scene
def test_sftp_and_webdav_have_one_table(daemon, place, port):
    def fails(password):
        return Client(daemon, place, "bob", password).sftp("ls /", check=False).returncode != 0

    # sftp(1) comes from 127.0.0.1.
    assert wrong(port, "bob", "127.0.0.1", GUESSES_MAX - 2) == {401: GUESSES_MAX - 2}
    assert at_once([lambda: fails("wrong")] * 2) == [True, True]
    assert at_once([lambda: log_in(port, "bob", USERS["bob"]), lambda: fails(USERS["bob"])]) == [429, True]
    assert log_in(port, "ann", USERS["ann"], "127.0.1.6") == 303


def guess_over_smb(daemon, source, name):
    with Smb(daemon.smb_port, source) as connection:
        connection.negotiate()
        return connection.guess(name)


@scene
def test_nobody_keeps_a_user_out_of_smb_from_elsewhere(daemon):
    seen = collections.Counter(at_once([lambda: guess_over_smb(daemon, "127.0.2.1", "bob")] * (GUESSES_MAX + 2)))
    assert seen == {LOGON_FAILURE: GUESSES_MAX, ACCOUNT_LOCKED_OUT: 2}, seen
    assert "blocks" in smb(daemon, "ls", user="bob", password=USERS["bob"])


@scene
def test_many_names_fill_no_table(daemon):
    def some(number):
        with Smb(daemon.smb_port, f"127.1.{number // 250}.{number % 250 + 1}") as connection:
            connection.negotiate()
            for n in range(3):
                connection.guess(f"nobody{number}-{n}", wait=n < 2)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(some, range(NAMES // 3)))
    seen = collections.Counter(at_once([lambda: guess_over_smb(daemon, "127.0.2.2", "mallory")] * (GUESSES_MAX + 2)))
    assert seen == {LOGON_FAILURE: GUESSES_MAX, ACCOUNT_LOCKED_OUT: 2}, "failures of newcomers are counted"
    assert "blocks" in smb(daemon, "ls", user="mallory", password=USERS["mallory"])


@scene
def test_behind_a_proxy_a_guesser_is_alone(port):
    proxy, limit = "127.0.7.1", {401: GUESSES_MAX, 429: 2}

    def through(client, password=USERS["bob"], **more):
        return lambda: ask(port, "bob", password, proxy, X_Forwarded_For=client, **more)

    def guesses(clients):
        return collections.Counter(at_once([through(client, f"wrong{n}") for n, client in enumerate(clients)]))

    total = range(GUESSES_MAX + 2)
    assert guesses([f"203.0.113.{n}, 198.51.100.1" for n in total]) == limit, "left of its own address are inventions"
    assert through("198.51.100.2")() == 207
    assert guesses([f"2001:db8::{n + 1:x}" for n in total]) == limit, "an IPv6 client has a whole /64"
    # Whoever is no proxy is believed nothing.
    invented = [lambda n=n: ask(port, "bob", f"wrong{n}", "127.0.1.8", X_Forwarded_For=f"198.51.100.{n + 50}") for n in total]
    assert collections.Counter(at_once(invented)) == limit
    assert through("198.51.100.3", Forwarded="for=198.51.100.4")() == 400
    assert ask(port, "bob", USERS["bob"], proxy, Forwarded='for="[2001:db8:1::77]:4711", for=127.0.7.2') == 207
