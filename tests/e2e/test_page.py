"""The page and the API over HTTPS, as `larder up` serves them.

  P1  Owner, looker and user see and may do what their roles say. Wrong passwords count at the page and at WebDAV together.
  P2  Other sites, fixed sessions, redirects and names of shares, users, volumes and snapshots do nothing to it.
  P3  Hostile clients do not keep others out: slow heads, long bodies, thousands of connections, strange hosts and networks.
  P4  An open page does no I/O on the disks.
  P5  An open page goes on after a restart.
  P6  A token of the API does what its scope and its user's role say, until it is revoked; no body makes a 500.
  P7  The file view has the page's log-in.
  P8  Disks are replaced after a dry run, volumes locked and unlocked, a configuration applied, a second factor asked for: by the page alone.
  P9  axe-core finds nothing on any page, at three widths and in both themes, and nothing runs out of a page.
"""

import base64
import contextlib
import ctypes
import hashlib
import hmac
import http.client
import json
import os
import random
import re
import shutil
import socket
import ssl
import struct
import tempfile
import time
import urllib.parse
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By

import axe
from browser import PHONE, WIDE
from conftest import make
from hostile import basic, lift_limits
from test_access import add_user
from waiting import wait_for

ANN = "Pantry-Shelf-43"
FORM = "application/x-www-form-urlencoded"
STREAMS = "return Boolean(document.querySelector('#live')._htmx?.sse)"
EVIL = "<img src=x onerror=document.title=1>"


def tls():
    # ssl.create_default_context() reads the certificates of the machine, which takes it a fortieth of a second.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def port_of(daemon):
    return urllib.parse.urlsplit(daemon.info["page"]["url"]).port


class Visitor:
    """Somebody with a cookie, from an address of loopback, without a browser."""

    def __init__(self, daemon, source="127.0.0.1", host=None):
        self.port, self.source, self.host, self.cookie, self.csrf = port_of(daemon), source, host, "", ""

    def __call__(self, method, path, body=None, **headers):
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=60, source_address=(self.source, 0), context=tls()
        )
        with contextlib.closing(connection):
            headers = {name.replace("_", "-"): value for name, value in headers.items()}
            headers |= {"Cookie": self.cookie} if self.cookie else {}
            headers |= {"Host": self.host} if self.host else {}
            connection.request(method, path, body=body, headers=headers)
            self.answer = connection.getresponse()
            text = self.answer.read().decode()
        for cookie in self.answer.headers.get_all("Set-Cookie") or []:
            self.cookie = cookie.split(";")[0]
        found = re.search('name="csrf" value="([0-9a-f]+)"', text)
        self.csrf = found[1] if found else self.csrf
        return self.answer.status, text

    def get(self, path):
        return self("GET", path, Accept="text/html")

    def post(self, path, **fields):
        return self("POST", path, urllib.parse.urlencode({"csrf": self.csrf, **fields}), Content_Type=FORM)

    @property
    def location(self):
        return self.answer.headers.get("Location")

    def log_in(self, name, password, to=""):
        self.get("/+/login")
        status, _ = self.post("/+/login", name=name, password=password, next=to)
        if status == 303:
            self.get("/+/me")
        return status


def ended(daemon):
    log, code = daemon.log(), daemon.stop()
    assert code == 0, log[-4000:]
    assert "panicked" not in log, log[-4000:]


@pytest.fixture(scope="module")
def daemon():
    path = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    daemon = make(path, extra=["--webdavs", "127.0.0.1:0"]).start()
    add_user(daemon, "ann", password=ANN)
    add_user(daemon, "len", "--role", "looker", password=ANN)
    yield daemon
    ended(daemon)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def own(folder):
    """Makes a daemon of the test's own, which ends with the test."""
    made = []

    def larder(*extra):
        made.append(make(folder, extra=extra))
        return made[-1]

    yield larder
    for daemon in made:
        daemon.end()


def visitor(daemon, name="keeper", **options):
    made = Visitor(daemon, **options)
    assert made.log_in(name, daemon.password if name == "keeper" else ANN) == 303
    return made


# P1


def test_up_says_where_the_page_is(daemon):
    assert daemon.info["page"] == {"url": f"https://127.0.0.1:{daemon.info['webdavs']['port']}/", "setup": None}
    stranger = Visitor(daemon)
    assert stranger.get("/")[0] == 303 and stranger.location == "/+/"
    assert stranger.get("/+/")[0] == 303 and stranger.location == "/+/login"
    assert stranger.get("/+/storage")[0] == 303 and stranger.location == "/+/login?next=/%2B/storage"


def test_the_page_is_off_where_its_usual_port_is_taken(own):
    """A default is no reason not to start; an address that somebody names is."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            taken.bind(("0.0.0.0", 10443))
            taken.listen()
        daemon = own()
        usual = [word for word in daemon.command() if word not in ("--page", "off")]
        daemon.command = lambda: usual
        daemon.start()
        assert daemon.info["page"] is None and "--page :PORT" in daemon.log()
        ended(daemon)
        daemon.command = lambda: [*usual, "--page", "127.0.0.1:10443"]
        with pytest.raises(Exception, match="cannot serve the page on 127.0.0.1:10443"):
            daemon.start()
        daemon.end()


def test_roles(daemon):
    pages = ["/+/", "/+/storage", "/+/sharing", "/+/people", "/+/alerts", "/+/care", "/+/me"]
    for name, seen in [("keeper", pages), ("len", pages), ("ann", ["/+/me"])]:
        person = visitor(daemon, name)
        for path in pages:
            status, text = person.get(path)
            assert status == (200 if path in seen else 303 if path == "/+/" else 403), (name, path)
            if path in seen and path != "/+/me":
                assert any(word in text for word in (daemon.share, "tank", "ann")), path
        person.get("/+/me")
        status, _ = person.post("/+/people/add-user", name=f"of-{name}", password=ANN, role="looker")
        assert status == (303 if name == "keeper" else 403)
    users = {user["name"]: user["role"] for user in json.loads(daemon.run("user", "list", "--json").stdout)}
    assert users == {"keeper": "owner", "ann": "user", "len": "looker", "of-keeper": "looker"}
    ann = visitor(daemon, "ann")
    assert daemon.run("user", "set", "ann", "--role", "looker").returncode == 0
    assert ann.get("/+/storage")[0] == 200, "a role holds from the next request on"
    assert daemon.run("user", "set", "ann", "--role", "user").returncode == 0
    assert ann.get("/+/storage")[0] == 403


@pytest.mark.long
def test_guesses_are_counted_at_page_and_webdav_together(daemon):
    def dav(source, password):
        connection = http.client.HTTPSConnection("127.0.0.1", port_of(daemon), timeout=60, source_address=(source, 0), context=tls())
        with contextlib.closing(connection):
            connection.request("PROPFIND", "/", headers={"Depth": "0", "Authorization": basic("ann", password)})
            return connection.getresponse().status

    guesser = Visitor(daemon, source="127.0.7.1")
    assert [guesser.log_in("ann", f"no{n}") for n in range(6)] == [401] * 6
    assert [dav("127.0.7.1", f"nor{n}") for n in range(4)] == [401] * 4
    assert guesser.log_in("ann", ANN) == 429 and dav("127.0.7.1", ANN) == 429, "its passwords are refused unseen"
    assert Visitor(daemon, source="127.0.7.2").log_in("ann", ANN) == 303 and dav("127.0.7.2", ANN) == 207
    assert "page: 'ann' from 127.0.7.1 was refused" in daemon.log()


def test_a_session_ends_with_its_password(daemon):
    add_user(daemon, "tim", password=ANN)
    tim = visitor(daemon, "tim")
    file = daemon.data / "password-tim"
    file.write_text("Pantry-Shelf-44\n")
    assert daemon.run("user", "passwd", "tim", "--password-file", file).returncode == 0
    assert tim.get("/+/me")[0] == 303
    assert daemon.run("user", "remove", "tim").returncode == 0
    assert Visitor(daemon).log_in("tim", "Pantry-Shelf-44") == 401


def with_codes(daemon, name, password):
    """Gives a user codes of a telephone."""
    person = Visitor(daemon)
    assert person.log_in(name, password) == 303
    _, page = person.post("/+/me/factor", current=password)
    secret = re.search('<p class="secret"><code>([A-Z2-7 ]+)<', page)[1]
    assert person.post("/+/me/factor/confirm", code=totp(secret, time.time()))[0] == 200
    return person


def test_a_password_that_is_set_ends_second_factors(daemon):
    add_user(daemon, "una", password=ANN)
    file = daemon.data / "password-una"
    file.write_text("Pantry-Shelf-45\n")
    with_codes(daemon, "una", ANN)
    assert daemon.run("user", "passwd", "una", "--password-file", file, "--keep-factors").returncode == 0
    assert Visitor(daemon).log_in("una", "Pantry-Shelf-45") == 200, "the code is asked for"
    said = daemon.run("user", "passwd", "una", "--password-file", file).stdout
    assert "ended the codes of the user's telephone" in said
    una = Visitor(daemon)
    assert una.log_in("una", "Pantry-Shelf-45") == 303
    # By the owner at the page.
    with_codes(daemon, "una", "Pantry-Shelf-45")
    owner = visitor(daemon)
    owner.post("/+/people/set-password", user="una", password="Pantry-Shelf-46", keep_factors="on")
    assert Visitor(daemon).log_in("una", "Pantry-Shelf-46") == 200
    owner.post("/+/people/set-password", user="una", password="Pantry-Shelf-47")
    assert "The codes of una&#39;s telephone have ended." in owner.get("/+/people")[1]
    assert Visitor(daemon).log_in("una", "Pantry-Shelf-47") == 303
    assert una.get("/+/me")[0] == 303, "sessions end, too"
    owner.post("/+/people/set-password", user="nobody", password="Pantry-Shelf-47")
    page = owner.get("/+/people")[1]
    assert "People, New user" in page and "larder user" not in page
    assert daemon.run("user", "remove", "una").returncode == 0


# P2


def test_changes_come_from_the_page_itself(daemon):
    owner = visitor(daemon)
    right = owner.csrf
    for csrf, more in [("", {}), ("0" * 32, {}), (right, {"Sec_Fetch_Site": "cross-site"}), (right, {"Sec_Fetch_Site": "same-site"})]:
        body = urllib.parse.urlencode({"csrf": csrf, "name": "evil", "password": ANN})
        status, _ = owner("POST", "/+/people/add-user", body, Content_Type=FORM, **more)
        assert status == 403, (csrf, more)
    status, _ = owner("GET", f"/+/people/add-user?csrf={right}&name=evil&password={ANN}")
    assert status == 405
    status, _ = owner("POST", "/api/v1/users", json.dumps({"name": "evil"}), Content_Type="application/json")
    assert status == 401, "cookies count for nothing at the API"
    assert "evil" not in daemon.run("user", "list").stdout


def test_headers_keep_other_sites_out(daemon):
    owner = visitor(daemon)
    for path in ["/+/", "/+/login", "/+/nothing", "/api/v1/info", "/api/openapi.json", "/"]:
        owner.get(path)
        policy = owner.answer.headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in policy and "unsafe" not in policy and "default-src 'none'" in policy, path
        assert owner.answer.headers["X-Content-Type-Options"] == "nosniff", path
    owner.get("/+/")
    assert owner.answer.headers["X-Frame-Options"] == "DENY"
    # It would cover all ports of the name, WebDAV without TLS too.
    assert "Strict-Transport-Security" not in owner.answer.headers
    assert owner.cookie.startswith("__Host-larder-page=")
    fresh = Visitor(daemon)
    fresh.get("/+/login")
    for flag in ["Secure", "HttpOnly", "SameSite=Strict", "Path=/"]:
        assert flag in fresh.answer.headers["Set-Cookie"]


def test_a_session_is_drawn_at_log_in(daemon):
    fixed = Visitor(daemon)
    fixed.cookie = "__Host-larder-page=" + "a" * 64
    fixed.get("/+/login")
    before = fixed.cookie
    assert fixed.post("/+/login", name="keeper", password=daemon.password)[0] == 303
    assert fixed.cookie != before
    fixed.cookie, own = before, fixed.cookie
    assert fixed.get("/+/storage")[0] == 303
    fixed.cookie = own
    assert fixed.get("/+/storage")[0] == 200


@pytest.mark.parametrize("to", ["//evil.test/", "https://evil.test/", "/\\evil.test", "/\t/evil.test", "javascript:alert(1)"])
def test_nobody_is_sent_elsewhere(daemon, to):
    person = Visitor(daemon)
    person.get("/+/login?next=" + urllib.parse.quote(to))
    assert person.post("/+/login", name="ann", password=ANN, next=to)[0] == 303
    assert person.location == "/+/"


def test_names_bring_no_markup(daemon, browser):
    """What the daemon takes for names and texts of people is shown as text. Names of volumes, users and snapshots hold no markup."""
    for refused in [("volume", "create", EVIL), ("snap", "create", f"files@{EVIL}"), ("user", "add", EVIL, "--password-file", daemon.password_file)]:
        assert daemon.run(*refused).returncode != 0
    for made in [
        ("snap", "create", "files@a-b"), ("snap", "hold", "files@a-b", EVIL), ("token", "create", "keeper", "--name", EVIL),
        ("share", "add", "a'b&c", "--volume", "files", "--folder", EVIL), ("share", "add", "x\u202ey", "--volume", "files"),
    ]:
        assert daemon.run(*made).returncode == 0, made
    shown = {"sharing": EVIL, "people": EVIL, "me": EVIL, "snapshot?volume=tank/files&name=a-b": EVIL, "": "a'b&c"}
    with contextlib.closing(enter(daemon, browser)):
        for path in [*shown, "storage", "volume?name=tank/files", "care", f"explain?user={EVIL}&path={EVIL}&from=", EVIL]:
            browser.visit(daemon.info["page"]["url"] + "+/" + path)
            assert browser.driver.title not in ("1", ""), path
            assert not browser.run("return document.querySelectorAll('img').length"), path
            text = browser.run("return document.body.textContent")
            assert shown.get(path, "") in text and "\u202e" not in text, path
    for name in ["a'b&c", "x\u202ey"]:
        assert daemon.run("share", "remove", name).returncode == 0


def enter(daemon, browser, name="keeper", password=None):
    """Logs in by the form; closing it logs out."""
    browser.visit(daemon.info["page"]["url"])
    browser.driver.delete_all_cookies()
    browser.visit(daemon.info["page"]["url"])
    browser.driver.find_element(By.ID, "name").send_keys(name)
    browser.driver.find_element(By.ID, "password").send_keys(password or daemon.password)
    browser.driver.find_element(By.CSS_SELECTOR, "form button.primary").click()
    wait_for(lambda: browser.driver.find_elements(By.CSS_SELECTOR, ".bar .who"))

    class Session:
        def close(self):
            browser.driver.delete_all_cookies()

    return Session()


def test_a_browser_logs_in_and_sees_its_role(daemon, browser):
    browser.complaints()  # Of pages that other tests asked for in vain.
    for name, password, first in [("keeper", None, "Everything is healthy."), ("len", ANN, "Everything is healthy."), ("ann", ANN, "ann")]:
        with contextlib.closing(enter(daemon, browser, name, password)):
            assert first in browser.run("return document.querySelector('main')?.textContent ?? ''"), name
            assert ("Storage" in browser.run("return document.querySelector('.bar').textContent")) == (name != "ann")
            for size in (PHONE, WIDE):
                browser.visit(daemon.info["page"]["url"] + "+/", size)
                assert not browser.out_of_the_page()
            assert not browser.complaints()


# P3


def test_strange_hosts_are_sent_away(daemon):
    for host, status in [("evil.test", 421), (f"evil.test:{port_of(daemon)}", 421), ("localhost", 200), ("127.0.0.1", 200), ("[::1]:1", 200)]:
        assert Visitor(daemon, host=host).get("/+/login")[0] == status, host
    strange = visitor(daemon)
    strange.host = "evil.test"
    assert strange.get("/?shares")[0] == 303, "the file view knows no session of a strange name"


def test_only_its_networks_are_answered(own):
    daemon = own("--page", "127.0.0.1:0")
    daemon.start()
    ended(daemon)
    file = daemon.data / "larder.toml"
    networks = '[page]\nnetworks = ["127.0.9.0/24"]\nhosts = ["nas.example.org"]\n'
    file.write_text(file.read_text().replace("[page]\n", networks))
    daemon.start()
    assert Visitor(daemon, source="127.0.9.1", host="nas.example.org").get("/+/login")[0] == 200
    with pytest.raises(OSError):
        Visitor(daemon, source="127.0.8.1").get("/+/login")
    assert Visitor(daemon, source="127.0.9.1")("PROPFIND", "/")[0] in (303, 404, 405), "no share is served here"
    ended(daemon)


def test_hostile_clients_keep_nobody_out(daemon):
    port, before = port_of(daemon), lift_limits()
    person = visitor(daemon, "len", source="127.0.5.1")
    context, held = tls(), []

    def reach(source):
        held.append(socket.create_connection(("127.0.0.1", port), 20, (source, 0)))
        return held[-1]

    # Connections that say nothing, handshakes that stay open, heads that never end.
    for n in range(2000):
        reach(f"127.0.6.{n % 250 + 1}")
    for n in range(40):
        with contextlib.suppress(OSError):
            slow = context.wrap_socket(reach(f"127.0.4.{n % 20 + 1}"), server_hostname="localhost")
            slow.sendall(b"GET /+/login HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
            held.append(slow)
    began = time.monotonic()
    assert person.get("/+/storage")[0] == 200 and time.monotonic() - began < 10
    assert Visitor(daemon, source="127.0.5.2").log_in("ann", ANN) == 303
    for one in held:
        one.close()
    # A head and bodies beyond any use.
    flood = Visitor(daemon, source="127.0.4.99")
    with contextlib.suppress(OSError):
        assert flood("GET", "/+/login", X_Long="a" * 300_000)[0] == 431
    for size in (20_000, 5_000_000):
        with contextlib.suppress(OSError):
            assert flood("POST", "/+/login", "a" * size, Content_Type=FORM)[0] == 413
    with contextlib.suppress(OSError):
        assert person("POST", "/+/theme", "a" * 5_000_000, Content_Type=FORM)[0] == 413
    assert person.get("/+/")[0] == 200
    assert daemon.rss_bytes() < 1 << 30
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def stream(daemon, cookie, path="/+/live"):
    """An open stream of events, and its first bytes."""
    connection = tls().wrap_socket(socket.create_connection(("127.0.0.1", port_of(daemon)), 20), server_hostname="localhost")
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode())
    return connection, connection.recv(65536).decode()


def test_streams_are_few(daemon):
    one, other = visitor(daemon, "len"), visitor(daemon, "len")
    open_now = [stream(daemon, one.cookie) for _ in range(4)]
    assert all(head.startswith("HTTP/1.1 200") for _, head in open_now)
    assert stream(daemon, one.cookie)[1].startswith("HTTP/1.1 503")
    assert stream(daemon, other.cookie)[1].startswith("HTTP/1.1 200")
    assert stream(daemon, "")[1].startswith("HTTP/1.1 401")
    assert one.get("/+/")[0] == 200
    for connection, _ in open_now:
        connection.close()


# P4


class Watch:
    """Opens, reads and writes below folders, as the kernel tells them (inotify(7))."""

    MASK = 0x1 | 0x2 | 0x4 | 0x20 | 0x100 | 0x200  # access, modify, attrib, open, create, delete

    def __init__(self, folders):
        libc = ctypes.CDLL(None, use_errno=True)
        self.file = libc.inotify_init1(os.O_NONBLOCK)
        for folder in folders:
            for place, _, _ in os.walk(folder):
                assert libc.inotify_add_watch(self.file, os.fsencode(place), self.MASK) >= 0

    def events(self):
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                data = os.read(self.file, 65536)
                while data:
                    _, mask, _, length = struct.unpack_from("iIII", data)
                    found.append((hex(mask), data[16 : 16 + length].rstrip(b"\0")))
                    data = data[16 + length :]
        return found


def io_bytes(daemon):
    lines = dict(line.split(": ") for line in Path(f"/proc/{daemon.pid}/io").read_text().splitlines())
    return int(lines["read_bytes"]), int(lines["write_bytes"])


@pytest.mark.alone
def test_pages_that_list_volumes_and_records_read_no_disk(own):
    """The second visit answers from memory; something written to the pool is seen by the next."""
    daemon = own("--page", "127.0.0.1:0").start()
    owner = visitor(daemon)
    watch = Watch(daemon.disks)
    log = Watch([daemon.data / "watch"])
    # What is written after the first visit makes the second read again.
    settle(watch)
    for path in ["/+/storage", "/+/alerts"]:
        assert owner.get(path)[0] == 200
    watch.events(), log.events()
    for path in ["/+/storage", "/+/alerts"]:
        assert owner.get(path)[0] == 200
    assert not watch.events() and not log.events()
    assert daemon.run("volume", "create", "more").returncode == 0
    assert "tank/more" in owner.get("/+/storage")[1] and "CreateVolume" in owner.get("/+/alerts")[1]
    assert daemon.run("volume", "set", "more", "--quota", "5G").returncode == 0
    assert "5.00 GiB" in owner.get("/+/storage")[1]
    ended(daemon)


@pytest.mark.alone
def test_an_open_page_leaves_the_disks_alone(own, browser):
    daemon = own("--page", "127.0.0.1:0").start()
    with contextlib.closing(enter(daemon, browser)):
        watch = Watch(daemon.disks)
        settle(watch)
        before = io_bytes(daemon)
        # The page made anew, and rounds of its stream, the longest of which is of 10 s.
        browser.visit(daemon.info["page"]["url"] + "+/")
        wait_for(lambda: browser.run(STREAMS))
        time.sleep(32)
        seen = watch.events()
        assert not seen, (len(seen), seen[:40])
        assert io_bytes(daemon) == before
        assert daemon.run("pool", "status").returncode == 0
        assert watch.events(), "a look at the disks is seen"
    ended(daemon)


def settle(watch):
    """The first writes of a pool come within seconds of its start: waits until there are none for 9 s."""
    watch.events()
    quiet_since, end = time.monotonic(), time.monotonic() + 90
    while time.monotonic() < quiet_since + 9:
        assert time.monotonic() < end
        if watch.events():
            quiet_since = time.monotonic()
        time.sleep(0.2)


# P5


def test_an_open_page_goes_on_after_a_restart(own, browser):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    daemon = own("--page", f"127.0.0.1:{port}").start()
    api = visitor(daemon)
    with contextlib.closing(enter(daemon, browser)):
        live = "return document.querySelector('#live').textContent"
        assert "healthy" in browser.run(live)
        wait_for(lambda: browser.run(STREAMS))
        # A stream is open when the daemon stops, and does not hold it up.
        began = time.monotonic()
        ended(daemon)
        assert time.monotonic() - began < 8
        browser.run("document.querySelector('#live').textContent = 'stale'")
        daemon.start()
        wait_for(lambda: "healthy" in browser.run(live), limit_s=90)
        browser.visit(daemon.info["page"]["url"] + "+/storage")
        assert "tank" in browser.run("return document.querySelector('main')?.textContent ?? ''"), "nobody logs in again"
    assert api.get("/+/me")[0] == 200
    cookie, file = api.cookie, daemon.data / "page_sessions"
    before = len(json.loads(file.read_text()))
    api.post("/+/logout")
    api.cookie = cookie
    wait_for(lambda: len(json.loads(file.read_text())) < before)
    assert file.stat().st_mode & 0o777 == 0o600 and cookie.split("=")[1] not in file.read_text()
    daemon.kill()
    daemon.start()
    assert api.get("/+/me")[0] == 303, "a session that was ended stays so"
    ended(daemon)


# P6


class Api:
    def __init__(self, daemon, user, scope):
        made = json.loads(daemon.run("token", "create", user, "--scope", scope, "--json", check=True).stdout)
        self.id, self.token, self.visitor = made["status"]["id"], made["token"], Visitor(daemon)

    def __call__(self, method, path, body=None):
        body = None if body is None else json.dumps(body)
        status, text = self.visitor(method, path, body, Authorization=f"Bearer {self.token}", Content_Type="application/json")
        return status, json.loads(text) if "json" in self.visitor.answer.headers["Content-Type"] else text


def test_scopes(daemon):
    read, admin = Api(daemon, "len", "read"), Api(daemon, "keeper", "admin")
    assert read("GET", "/api/v1/info")[1]["pid"] == daemon.pid
    assert read("GET", "/+/api/v1/pools/known")[1][0]["name"] == "tank"
    assert "larder_" in read("GET", "/api/metrics")[1]
    schema = read("GET", "/api/openapi.json")[1]
    for path, operations in schema["paths"].items():
        for method in operations:
            status, answer = read(method.upper(), "/api" + path.replace("{name}", "nobody"), {})
            assert (status == 403) == (method != "get"), (method, path, answer)
    assert admin("PATCH", "/api/v1/users/ann", {"role": "looker"})[1]["role"] == "looker"
    ann = Api(daemon, "ann", "read")
    assert ann("GET", "/api/v1/users")[0] == 200
    assert admin("PATCH", "/api/v1/users/ann", {"role": "user"})[0] == 200
    assert ann("GET", "/api/v1/users")[0] == 401, "a token may no more than its user"
    for user, scope in [("ann", "read"), ("len", "admin")]:
        assert daemon.run("token", "create", user, "--scope", scope).returncode == 1
    # It is for no door, and a token of the doors is not for the API.
    answers = Visitor(daemon)
    assert answers("PROPFIND", "/", Depth="0", Authorization=basic("keeper", admin.token))[0] == 401
    door = json.loads(daemon.run("token", "create", "keeper", "--json").stdout)["token"]
    assert answers("PROPFIND", "/", Depth="0", Authorization=f"Bearer {door}")[0] == 207
    assert answers("GET", "/api/v1/info", Authorization=f"Bearer {door}")[0] == 401
    assert daemon.run("token", "revoke", read.id).returncode == 0
    assert read("GET", "/api/v1/info")[0] == 401
    for path in ["/api/v1/send/files", "/api/v1/import/files"]:
        assert admin("POST", path, {})[0] == 403, "streams are the socket's"
    assert f"keeper (token {admin.id}) asks for PATCH /v1/users/ann" in daemon.log()
    acts = [json.loads(line) for line in daemon.run("audit", "--json").stdout.splitlines()]
    by_api = [(act["who"], act["from"], act["result"]) for act in acts if (act["what"], act["by"]) == ("SetUser", "api")]
    assert by_api == [(f"keeper (token {admin.id})", "127.0.0.1", "done")] * 2


def samples(schema, root, rng, depth=0):
    """A value that the schema allows, or nearly."""
    if "$ref" in schema:
        return samples(root["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], root, rng, depth)
    if rng.random() < 0.08 or depth > 6:
        return rng.choice([None, -1, 2**63, "", "\0", "../../x", "x" * 3000, [], {}, True, 1e300, EVIL])
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return samples(rng.choice(schema[word]), root, rng, depth + 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    kind = schema.get("type")
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    if kind == "object":
        fields = {n: samples(s, root, rng, depth + 1) for n, s in schema.get("properties", {}).items() if rng.random() < 0.7}
        return fields | ({"unknown": 1} if rng.random() < 0.1 else {})
    if kind == "array":
        return [samples(schema.get("items", {}), root, rng, depth + 1) for _ in range(rng.randrange(3))]
    return {
        "string": rng.choice(["nobody", "files", "tank", EVIL, "/nowhere", "1h", "ä"]), "integer": rng.choice([0, 1, 7, -5, 2**40]),
        "number": rng.random(), "boolean": rng.random() < 0.5,
    }.get(kind)


# They destroy or close what other tests use, or touch folders of this machine.
SPARED = {"DestroyPool", "ExportPool", "ReloadConfig", "ImportPool", "MountVolume", "UnmountVolume", "ChangePool"}


def test_no_body_makes_a_500(own, session_seed):
    daemon, rng = own("--page", "127.0.0.1:0").start(), random.Random(session_seed)
    admin = Api(daemon, "keeper", "admin")
    schema = admin("GET", "/api/openapi.json")[1]
    asked = 0
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            if operation["operationId"] in SPARED:
                continue
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            # Without a name and a body, each request is the same. That of what keeps a disk awake takes 5 s.
            names = ["nobody", "files", "%00", "..%2f..", "a" * 900] if body or "{name}" in path else ["nobody"]
            for name in names:
                value = samples(body, schema, rng) if body else None
                status, answer = admin(method.upper(), "/api" + path.replace("{name}", name), value)
                assert status != 500, (method, path, name, value, answer)
                assert status < 600
                asked += 1
    assert asked > 200
    for text in ["", "{", "[" * 5000, "\0", '{"name": "' + "x" * 900_000 + '"}']:
        status, _ = admin.visitor("POST", "/api/v1/users", text, Authorization=f"Bearer {admin.token}", Content_Type="application/json")
        assert 400 <= status < 500, text[:20]
    assert "panicked" not in daemon.log(), daemon.log()[-4000:]


# P7


def test_the_file_view_has_the_log_in_of_the_page(daemon, browser):
    stranger = Visitor(daemon)
    assert stranger.get("/?shares")[0] == 303 and stranger.location == "/+/login?next=/%3Fshares"
    assert stranger.get(f"/{daemon.share}/")[0] == 303 and stranger.location.startswith("/+/login?next=")
    with contextlib.closing(enter(daemon, browser, "ann", ANN)):
        browser.driver.find_element(By.LINK_TEXT, "Files").click()
        browser.driver.find_element(By.PARTIAL_LINK_TEXT, daemon.share).click()
        made = browser.run(
            "return fetch('new-folder', {method: 'MKCOL', headers: {'X-CSRF-Token': document.querySelector('meta[name=csrf]').content}})"
            ".then((answer) => answer.status)"
        )
        assert made == 201
        refused = browser.run("return fetch('other', {method: 'MKCOL'}).then((answer) => answer.status)")
        assert refused == 403, "a change needs the page's token"
        # One frame: the navigation of the page is around the files, and leads back.
        places = "return [...document.querySelectorAll('header nav[aria-label=Main] a')].map((one) => [one.textContent, one.getAttribute('href')])"
        around = browser.run(places)
        for size in [(360, 780), WIDE]:
            for dark in (False, True):
                browser.visit(browser.driver.current_url, size, dark)
                assert not axe.violations(browser) and not browser.out_of_the_page(), (size, dark)
        browser.driver.find_element(By.LINK_TEXT, "Account").click()
        assert around == browser.run(places) == [["Files", "/?shares"], ["Account", "/+/me"]]
        theme = lambda: browser.run("return document.documentElement.dataset.theme")  # noqa: E731
        browser.driver.find_element(By.CSS_SELECTOR, "button[value=dark]").click()
        # The answer is another page, on which the link is another.
        wait_for(lambda: theme() == "dark")
        browser.driver.find_element(By.LINK_TEXT, "Files").click()
        wait_for(lambda: "/?shares" in browser.driver.current_url)
        assert theme() == "dark"
        browser.driver.find_element(By.CSS_SELECTOR, "form.out button").click()
        wait_for(lambda: browser.driver.find_elements(By.CSS_SELECTOR, "form[action='/+/login']"))
        browser.visit(daemon.info["page"]["url"] + daemon.share + "/")
        assert browser.driver.find_elements(By.ID, "password"), "one log-out for both"


def test_a_share_called_api_keeps_its_address(daemon):
    admin = Api(daemon, "keeper", "admin")
    assert daemon.run("share", "add", "api", "--volume", "files", "--folder", "api").returncode == 0
    assert admin("GET", "/api/v1/info")[0] == 401, "it is the share's"
    assert admin("GET", "/+/api/v1/info")[0] == 200
    assert daemon.run("share", "remove", "api").returncode == 0
    assert admin("GET", "/api/v1/info")[0] == 200


# P8


def press(browser, selector, **fields):
    """Fills the form of a selector and sends it; folds that hide it are opened."""
    browser.run("document.querySelectorAll('details').forEach((fold) => fold.open = true)")
    form = browser.driver.find_element(By.CSS_SELECTOR, f"form[action='{selector}']")
    for name, value in fields.items():
        field = form.find_element(By.NAME, name)
        if field.tag_name == "select":
            browser.run("arguments[0].value = arguments[1]", field, value)
        elif field.get_attribute("type") == "checkbox":
            field.click()
        else:
            field.clear()
            field.send_keys(value)
    form.find_element(By.CSS_SELECTOR, "button[type=submit]").click()


def said(browser):
    return browser.run("return document.querySelector('main')?.textContent ?? ''")


def test_a_disk_is_replaced_by_the_page_alone(own, browser, folder):
    daemon = own("--page", "127.0.0.1:0").start()
    old, new = str(daemon.disks[1]), folder / "disk9"
    new.mkdir()
    with contextlib.closing(enter(daemon, browser)):
        browser.visit(daemon.info["page"]["url"] + "+/storage")
        browser.driver.find_element(By.LINK_TEXT, "Replace a disk").click()
        options = browser.run("return [...document.querySelectorAll('#disk option')].map((one) => [one.textContent, one.value])")
        press(browser, "/+/storage/change", disk=next(value for text, value in options if text.startswith(old)), other=str(new))
        wait_for(lambda: "nothing is changed yet" in said(browser))
        assert "Pull this one" in said(browser) and not any(new.iterdir()), "a dry run makes nothing"
        browser.driver.find_element(By.ID, "confirm").send_keys(old)
        browser.driver.find_element(By.CSS_SELECTOR, "form[method=post] .danger").click()
        wait_for(lambda: "Replace a disk: begun." in said(browser))
    disks = lambda: {disk["path"] for disk in json.loads(daemon.run("pool", "status", "--json").stdout)[0]["disks"]}  # noqa: E731
    wait_for(lambda: old not in disks() and str(new) in disks(), limit_s=90)
    ended(daemon)


def test_keys_and_configuration_by_the_page_alone(own, browser):
    daemon = own("--page", "127.0.0.1:0").start()
    with contextlib.closing(enter(daemon, browser)):
        url = daemon.info["page"]["url"] + "+/"
        browser.visit(url + "storage")
        press(browser, "/+/storage/create", name="secret", encrypt="on", passphrase=ANN, again=ANN)
        wait_for(lambda: "Recovery key of tank/secret" in said(browser))
        key = browser.driver.find_element(By.CSS_SELECTOR, ".secret code").text
        for act, fields, tag in [("lock", {}, "locked"), ("unlock", {"kind": "recovery", "secret": key}, "unlocked"),
                                 ("lock", {}, "locked"), ("unlock", {"secret": ANN}, "unlocked")]:
            browser.visit(url + "volume?name=tank/secret")
            press(browser, f"/+/volume/{act}", **fields)
            # Asked for and read in one: the page may be another one between the two.
            wait_for(lambda: browser.run("return document.querySelector('section[aria-labelledby=encryption] .tag')?.textContent.trim()") == tag)
        browser.visit(url + "care/config")
        text = browser.run("return document.querySelector('#text').value")
        browser.run("document.querySelector('#text').value += arguments[0]", "\n[[share]]\nname = \"more\"\nvolume = \"tank/files\"\n")
        press(browser, "/+/care/config/plan")
        wait_for(lambda: "[[share]] more" in said(browser))
        press(browser, "/+/care/config/apply")
        wait_for(lambda: "The configuration is applied." in said(browser), told=lambda: said(browser))
        assert "more" in daemon.run("share", "list").stdout and "more" not in text
    ended(daemon)


def totp(secret, at):
    """RFC 6238, of a secret as the page shows it."""
    key = base64.b32decode(secret.replace(" ", ""))
    tag = hmac.digest(key, struct.pack(">Q", int(at) // 30), hashlib.sha1)
    return f"{(struct.unpack_from('>I', tag, tag[19] & 15)[0] & 0x7FFFFFFF) % 10**6:06}"


def test_a_password_set_without_the_daemon_ends_second_factors(own):
    daemon = own("--page", "127.0.0.1:0").start()
    add_user(daemon, "una", password=ANN)
    with_codes(daemon, "una", ANN)
    daemon.stop()
    file, factors = daemon.data / "password-una", daemon.data / "page_factors"
    file.write_text("Pantry-Shelf-45\n")
    daemon.run("user", "passwd", "una", "--password-file", file, "--keep-factors", check=True)
    assert "una" in factors.read_text()
    kept = factors.read_bytes()
    factors.write_text("{")
    refused = daemon.run("user", "passwd", "una", "--password-file", file)
    assert refused.returncode == 1 and "page_factors" in refused.stderr
    factors.write_bytes(kept)
    said = daemon.run("user", "passwd", "una", "--password-file", file, check=True).stdout
    assert "ended the codes of the user's telephone" in said
    assert "una" not in factors.read_text() and factors.stat().st_mode & 0o777 == 0o600
    daemon.start()
    assert Visitor(daemon).log_in("una", "Pantry-Shelf-45") == 303
    ended(daemon)


def test_a_second_factor_outlives_a_restart(own):
    daemon = own("--page", "127.0.0.1:0").start()
    owner = visitor(daemon)
    _, page = owner.post("/+/me/factor", current=daemon.password)
    secret = re.search('<p class="secret"><code>([A-Z2-7 ]+)<', page)[1]
    _, page = owner.post("/+/me/factor/confirm", code=totp(secret, time.time()))
    codes = re.findall("<li><code>([A-Z2-7-]+)<", page)
    assert len(codes) == 10
    file = daemon.data / "page_factors"
    assert file.stat().st_mode & 0o777 == 0o600 and not any(code.replace("-", "") in file.read_text() for code in codes)
    daemon.kill()
    daemon.start()

    def enter_code(code):
        person = Visitor(daemon)
        person.get("/+/login")
        assert "/+/login/code" in person.post("/+/login", name="keeper", password=daemon.password)[1]
        assert person.get("/+/storage")[0] == 303, "a password alone opens nothing"
        assert person.post("/+/login", name="keeper", password=daemon.password)[0] == 200
        status, _ = person.post("/+/login/code", code=code)
        return status, person

    assert enter_code(totp(secret, time.time()))[0] == 401, "codes of before a start are refused"
    assert enter_code(codes[0])[0] == 303
    assert enter_code(codes[0])[0] == 401
    daemon.kill()
    daemon.start()
    assert enter_code(codes[0])[0] == 401, "what was used up stays so"
    _, person = enter_code(codes[1])
    assert person.get("/+/storage")[0] == 200
    daemon.kill()
    file.write_text("{")
    daemon.start()
    stranger = Visitor(daemon)
    assert stranger.log_in("keeper", daemon.password) == 503, "damage lets nobody in"
    ended(daemon)


# P9


@pytest.mark.long
def test_axe_finds_nothing_on_any_page(daemon, browser):
    assert daemon.run("snap", "create", "files@seen").returncode == 0
    pages = ["", "storage", "storage/change?pool=tank&change=replace", "storage/change?pool=tank&change=layout&layout=mirror",
             "volume?name=tank/files", "snapshot?volume=tank/files&name=seen&compare=1", "connections", "sharing", "people", "explain",
             f"explain?user=ann&path=/{daemon.share}&from=", "alerts", "care", "care/config", "care/charts",
             "care/log", "care/power?settings=a%3D98W:10m+b%3D85W:11m", "care/doctor?run=1", "care/bench", "storage/found", "me"]
    browser.visit(daemon.info["page"]["url"] + "+/login")
    assert not axe.violations(browser)
    with contextlib.closing(enter(daemon, browser)):
        for page in pages:
            # Each width, and each theme.
            for size, dark in [((360, 780), True), ((768, 1024), False), ((1440, 900), True)]:
                browser.visit(daemon.info["page"]["url"] + "+/" + page, size, dark)
                browser.run("document.querySelectorAll('details').forEach((fold) => fold.open = true)")
                assert not axe.violations(browser), (page, size, dark)
                assert not browser.out_of_the_page(), (page, size, dark)
