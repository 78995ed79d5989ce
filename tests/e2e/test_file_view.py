"""The file view: what a browser (headless Chromium) does with larder's pages, and what anybody may do to them.

  F1  People log in by a page, programs by Basic; a session ends; a change needs the page's token and a page of this server.
  F2  What a browser uploads, renames, moves and deletes is so for a mount; an upload goes on after a cut.
  F3  An archive is the tree, or a download that failed.
  F4  A link gives what its maker may read, below one place, until it ends.
  F5  Nothing stored runs in larder's pages: names, HTML, SVG.
"""

import http.client
import io
import os
import re
import shutil
import socket
import tempfile
import threading
import urllib.parse
import zipfile
from pathlib import Path

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from browser import PHONE, WIDE
from conftest import make
from larderd import run
from test_access import add_user
from test_sftp import some_tree, top
from test_webdav import ANN, Dav, raw
from trees import payload
from waiting import wait_for

HTML = {"Accept": "text/html"}
NASTY = ["<script>document.title='hit'<", '"><img src=x onerror=document.title=1>', "a'b\"c &amp; #?%41", "new\nline", "..hidden..", "ünï ☃ .txt"]


@pytest.fixture(scope="module")
def place():
    path = Path(tempfile.mkdtemp(prefix="larder-e2e-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def daemon(place):
    mount = place / "mnt"
    mount.mkdir()
    daemon = make(place, extra=["--webdav", "127.0.0.1:0", "--mount", str(mount), "--squash", "none"]).start()
    daemon.mounted = mount
    os.chmod(mount, 0o1777)
    yield daemon
    log = daemon.log()
    code = daemon.stop()
    assert code == 0, log[-4000:]
    assert "panicked" not in log, log[-4000:]


class Person:
    """Somebody with a browser's cookies, without a browser."""

    def __init__(self, daemon, cookies=""):
        self.port, self.cookies = daemon.info["webdav"]["port"], cookies

    def __call__(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {name.replace("_", "-"): value for name, value in headers.items()} | ({"Cookie": self.cookies} if self.cookies else {})
        connection.request(method, urllib.parse.quote(path, safe="/?=&%"), body=body, headers=headers)
        self.answer = connection.getresponse()
        return self.answer.status, self.answer.read()

    def form(self, path, **fields):
        return self("POST", path, urllib.parse.urlencode(fields), Content_Type="application/x-www-form-urlencoded", **HTML)

    def log_in(self, name, password):
        status, page = self.form("/.larder/login", name=name, password=password)
        if status == 303:
            self.cookies = self.answer.headers["Set-Cookie"].split(";")[0]
            self.csrf = re.search(rb'name="csrf" content="([0-9a-f]+)"', self("GET", "/", **HTML)[1])[1].decode()
        return status, page


@pytest.fixture
def person(daemon):
    made = Person(daemon)
    assert made.log_in("keeper", daemon.password)[0] == 303
    return made


class Cutter:
    """Passes bytes on to a server, and cuts each of the first connections after so many bytes from the client."""

    def __init__(self, port, cuts):
        self.port, self.cuts, self.passed = port, list(cuts), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.own_port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        server = socket.create_connection(("127.0.0.1", self.port))
        threading.Thread(target=self.back, args=(server, client), daemon=True).start()
        seen = 0
        try:
            while data := client.recv(65536):
                server.sendall(data)
                seen, self.passed = seen + len(data), self.passed + len(data)
                if self.cuts and seen > self.cuts[0]:
                    self.cuts.pop(0)
                    break
        except OSError:
            pass
        for s in (client, server):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    @staticmethod
    def back(server, client):
        try:
            while data := server.recv(65536):
                client.sendall(data)
        except OSError:
            pass


class View:
    """One page in the browser."""

    def __init__(self, browser, port):
        self.browser, self.driver, self.root = browser, browser.driver, f"http://127.0.0.1:{port}"

    def go(self, path, size=WIDE, dark=False, scripts=True):
        cdp = self.driver.execute_cdp_cmd
        cdp("Emulation.setDeviceMetricsOverride", {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False})
        cdp("Emulation.setEmulatedMedia", {"media": "", "features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
        cdp("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        self.driver.get(self.root + path)
        return self

    def log_in(self, password, name="keeper"):
        self.driver.delete_all_cookies()
        self.go("/")
        self.one("input[name=name]").send_keys(name)
        self.one("input[name=password]").send_keys(password + Keys.ENTER)
        wait_for(lambda: self.all(".share, .empty"), 20)
        return self

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return wait_for(lambda: self.browser.shown(selector), 20, lambda: self.driver.page_source[-3000:])

    def names(self):
        return self.browser.run("return [...document.querySelectorAll('tbody tr')].map((row) => row.dataset.name)")

    def row(self, name):
        script = "return [...document.querySelectorAll('tbody tr')].find((row) => row.dataset.name === arguments[0])"
        return wait_for(lambda: self.browser.run(script, name), 20, self.names)

    def click_in(self, name, selector):
        def clicked():
            try:
                self.row(name).find_element(By.CSS_SELECTOR, selector).click()
                return True
            except StaleElementReferenceException:  # the page was drawn anew meanwhile
                return False
        wait_for(clicked, 20)

    def menu(self, name, item):
        self.click_in(name, ".more button")
        wait_for(lambda: self.browser.shown("[role=menuitem]", item), 10).click()

    def press(self, text):
        """A button of the dialog."""
        wait_for(lambda: self.browser.shown("dialog button", text), 10).click()

    def upload(self, *paths, button="#upload"):
        self.browser.run("HTMLInputElement.prototype.click = () => {}")
        self.one(button).click()
        self.browser.run("document.querySelector('#chosen').hidden = false")
        self.one("#chosen").send_keys("\n".join(str(path) for path in paths))

    def toast(self, text):
        return wait_for(lambda: self.browser.shows(text, ".toast"), 60, lambda: self.browser.run("return [...document.querySelectorAll('.toast, .uploads')].map((one) => one.innerText)"))


@pytest.fixture
def view(daemon, browser):
    browser.complaints()
    made = View(browser, daemon.info["webdav"]["port"]).log_in(daemon.password)
    yield made
    complaints = [text for text in browser.complaints() if "Content Security Policy" in text]
    assert complaints == []


def test_people_log_in_by_a_page_and_programs_by_basic(daemon, person):
    """F1"""
    nobody = Person(daemon)
    at = f"/{daemon.share}/"
    assert nobody("PROPFIND", at)[0] == 401 and "Basic" in nobody.answer.headers["WWW-Authenticate"]
    assert nobody("GET", at, Accept="*/*")[0] == 401
    assert nobody("GET", at + "?sort=size", **HTML)[0] == 303
    assert nobody.answer.headers["Location"].startswith("/.larder/login?to=/")
    status, page = nobody.form("/.larder/login", name="keeper", password="wrong")
    assert status == 403 and b"wrong" in page and nobody.answer.headers["Set-Cookie"] is None
    assert nobody("GET", "/", Cookie="larder_session=" + "0" * 64, **HTML)[0] == 303
    # Another site's page neither logs in nor changes anything, also with the right words.
    status, _ = nobody("POST", "/.larder/login", f"name=keeper&password={daemon.password}", Sec_Fetch_Site="cross-site")
    assert status == 403
    login = Person(daemon)
    login.form("/.larder/login", name="keeper", password=daemon.password, to="//evil.example/")
    assert login.answer.status == 303 and login.answer.headers["Location"] == "/"
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(login.answer.headers["Set-Cookie"].split("; "))
    login("POST", "/.larder/login", f"name=keeper&password={daemon.password}", X_Forwarded_Proto="https")
    cookie = login.answer.headers["Set-Cookie"]
    assert cookie.startswith("__Host-") and cookie.endswith("; Secure")
    # A change needs the token of the page.
    token = {"X-CSRF-Token": person.csrf}
    assert person("MKCOL", at + "made")[0] == 403
    assert person("MKCOL", at + "made", **{"X-CSRF-Token": "0" * 32})[0] == 403
    assert person("MKCOL", at + "made", Sec_Fetch_Site="cross-site", **token)[0] == 403
    assert person("MKCOL", at + "made", Origin="http://evil.example", **token)[0] == 403
    assert person("MKCOL", at + "made", **token)[0] == 201
    for path in ["?share", "?zip", "?upload"]:
        assert person.form(at + path, days=1, name="made")[0] == 403
    status, page = person("GET", at, **HTML)
    policy = person.answer.headers["Content-Security-Policy"]
    assert status == 200 and "default-src 'none'" in policy and "unsafe" not in policy
    assert person.form("/.larder/logout", csrf=person.csrf)[0] == 303
    assert person("GET", at, **HTML)[0] == 303 and person("DELETE", at + "made", **token)[0] == 401


def test_a_session_ends_with_its_user_and_password(daemon):
    """F1"""
    add_user(daemon, "sam")
    sam, again = Person(daemon), Person(daemon)
    assert sam.log_in("sam", ANN)[0] == 303 and sam("GET", "/", **HTML)[0] == 200
    (daemon.data / "other").write_text("Another-Shelf-9\n")
    daemon.run("user", "passwd", "sam", "--password-file", daemon.data / "other", check=True)
    assert sam("GET", "/", **HTML)[0] == 303
    assert again.log_in("sam", "Another-Shelf-9")[0] == 303
    daemon.run("user", "remove", "sam", check=True)
    assert again("GET", "/", **HTML)[0] == 303


def test_a_browser_changes_files_and_a_mount_sees_it(daemon, view, folder):
    """F2"""
    seen, source = top(daemon, "work"), some_tree(folder / "source")
    (folder / "one.txt").write_text("first")
    view.go(f"/{daemon.share}/work/")
    view.upload(folder / "one.txt", *(source / f"file-{n}" for n in range(7)))
    view.toast("8 files uploaded")
    assert (seen / "one.txt").read_text() == "first" and int((seen / "file-3").stat().st_mtime) == 1_700_000_003
    for n in range(7):
        assert (seen / f"file-{n}").read_bytes() == (source / f"file-{n}").read_bytes()
    view.upload(source, button="#upload-folder")
    view.row("source")
    view.toast("9 files uploaded")
    assert {p.relative_to(source): p.read_bytes() for p in source.rglob("*") if p.is_file()} == {
        p.relative_to(seen / "source"): p.read_bytes() for p in (seen / "source").rglob("*") if p.is_file()}
    # A name that is there: each answer, and nothing before the answer.
    for word, here, beside in [("Skip", "first", None), ("Keep both", "first", "two"), ("Replace", "three", "two")]:
        content = {"Skip": "one", "Keep both": "two", "Replace": "three"}[word]
        (folder / "one.txt").write_text(content)
        view.upload(folder / "one.txt")
        view.press(word)
        second = seen / "one (2).txt"
        wait_for(lambda: (seen / "one.txt").read_text() == here and (second.read_text() if second.exists() else None) == beside, 20)
        wait_for(lambda: not view.all("dialog, .uploads:not([hidden])"), 20)
    view.one("#make-folder").click()
    view.one("dialog input").send_keys("new <b>folder")
    view.press("Make")
    view.menu("one.txt", "Rename")
    field = view.one("dialog input")
    field.clear()
    field.send_keys("räumt.txt")
    view.press("Rename")
    view.row("räumt.txt")
    assert (seen / "räumt.txt").read_text() == "three" and not (seen / "one.txt").exists()
    view.menu("räumt.txt", "Move to …")
    wait_for(lambda: view.browser.shown(".chooser button", "new <b>folder"), 10).click()
    wait_for(lambda: view.browser.shows("new <b>folder", "dialog p"), 10)
    view.press("Move here")
    wait_for(lambda: (seen / "new <b>folder/räumt.txt").exists(), 20)
    wait_for(lambda: "räumt.txt" not in view.names(), 20)
    # A selection, and by the keyboard.
    for name in ["file-0", "file-1", "source"]:
        view.click_in(name, ".pick input")
    view.one(".selection .button")
    next(button for button in view.all(".selection .button") if button.text == "Delete").click()
    assert (seen / "source").exists(), "nothing goes before the answer"
    view.press("Delete")
    wait_for(lambda: not any((seen / name).exists() for name in ["file-0", "file-1", "source"]), 20)
    wait_for(lambda: "source" not in view.names(), 20)
    view.row("file-2").find_element(By.CSS_SELECTOR, "td.name a").send_keys(Keys.DELETE)
    view.press("Delete")
    wait_for(lambda: not (seen / "file-2").exists(), 20)


def test_an_upload_goes_on_after_a_cut(daemon, browser, folder):
    """F2"""
    seen, data = top(daemon, "cut"), payload(24_000_000, 9)
    (folder / "large.bin").write_bytes(data)
    cutter = Cutter(daemon.info["webdav"]["port"], [9_000_000, 5_000_000])
    view = View(browser, cutter.own_port).log_in(daemon.password)
    view.go(f"/{daemon.share}/cut/")
    cutter.passed = 0
    view.upload(folder / "large.bin")
    assert not list(seen.iterdir()), "nobody sees half a file"
    view.toast("1 file uploaded")
    assert cutter.cuts == [] and (seen / "large.bin").read_bytes() == data
    assert cutter.passed < 1.4 * len(data), "what had arrived was not sent again"


def test_uploads_are_bounded_and_their_owners_alone(daemon, person, folder):
    """F2"""
    # Before the first upload: whoever comes changes the shares, which ends the uploads of before.
    add_user(daemon, "ula")
    seen, at = top(daemon, "parts"), f"/{daemon.share}/parts"
    token = {"X-CSRF-Token": person.csrf}
    begin = lambda path, length=10, **more: person("POST", path + "?upload", Upload_Length=str(length), **token, **more)[0]
    assert begin(f"{at}/f") == 201
    url = person.answer.headers["Location"]
    assert person("PATCH", url, b"01234", Upload_Offset="0", **token)[0] == 204
    assert person("PATCH", url, b"xx", Upload_Offset="0", **token)[0] == 409
    assert person("PATCH", url, b"56789ab", Upload_Offset="5", **token)[0] == 400, "more than was announced"
    assert person("HEAD", url)[0] == 200 and person.answer.headers["Upload-Offset"] == "5"
    assert person("PATCH", url, b"56789", Upload_Offset="5")[0] == 403, "no token"
    other = Dav(daemon, "keeper")
    assert Dav(daemon, "ula", ANN)("HEAD", url).status == 404 and not (seen / "f").exists()
    assert person("PATCH", url, b"56789", Upload_Offset="5", **token)[0] == 201
    assert (seen / "f").read_bytes() == b"0123456789" and other("HEAD", url).headers["Upload-Offset"] == "10"
    assert begin(f"{at}/f", If_None_Match="*") == 412
    made = []
    while begin(f"{at}/g{len(made)}") == 201:
        made.append(person.answer.headers["Location"])
        assert len(made) < 100
    assert person.answer.status == 503
    for url in made:
        assert person("DELETE", url, **token)[0] == 204
    assert begin(f"{at}/h") == 201 and person("DELETE", person.answer.headers["Location"], **token)[0] == 204


def test_a_right_that_is_taken_ends_an_upload(daemon):
    """F2"""
    add_user(daemon, "ted")
    daemon.run("share", "add", "teds", "--volume", "files", "--users", "ted", check=True)
    ted = Dav(daemon, "ted", ANN)
    ted.put("/teds/old", b"old")
    with socket.create_connection(("127.0.0.1", ted.port)) as s:
        s.sendall(f"PUT /teds/old HTTP/1.1\r\nHost: x\r\nAuthorization: {ted.authorization}\r\nContent-Length: 10\r\n\r\n01234".encode())
        begun = wait_for(lambda: ted("GET", "/teds/old").body, 10)
        daemon.run("share", "set", "teds", "--read-only", check=True)
        s.sendall(b"56789")
        answer = s.recv(4096)
    assert begun == b"old" and answer.startswith(b"HTTP/1.1 403"), answer
    assert ted("GET", "/teds/old").body == b"old"


def test_an_archive_is_the_tree(daemon, person, folder):
    """F3"""
    seen, at = top(daemon, "zip"), f"/{daemon.share}/zip/"
    some_tree(seen / "all")
    (seen / "all/empty").mkdir()
    for name in NASTY:
        (seen / "all" / name).write_text(name)
    (seen / "all/link").symlink_to("deep/with blank and ü")
    (seen / "all/round").symlink_to(".")
    status, got = person("GET", at + "all/?zip")
    assert status == 200 and "all.zip" in person.answer.headers["Content-Disposition"]
    (folder / "all.zip").write_bytes(got)
    assert run("-tq", folder / "all.zip", program="/usr/bin/unzip").returncode == 0
    archive = zipfile.ZipFile(io.BytesIO(got))
    expected = {str(p.relative_to(seen)) + ("/" if p.is_dir() else ""): b"" if p.is_dir() else p.read_bytes()
                for p in [seen / "all", *(seen / "all").rglob("*")] if p.name != "round"}
    assert {one.filename: archive.read(one) for one in archive.infolist()} == expected
    assert archive.getinfo("all/file-4").date_time[0] == 2023
    # A selection.
    body = urllib.parse.urlencode([("csrf", person.csrf), ("name", "all/"), ("name", "..")])
    assert person("POST", at + "?zip", body)[0] == 400
    names = [("name", urllib.parse.quote(name)) for name in ["file-1", NASTY[5]]]
    status, got = person("POST", at + "all/?zip", urllib.parse.urlencode([("csrf", person.csrf), *names]))
    assert status == 200 and zipfile.ZipFile(io.BytesIO(got)).namelist() == ["file-1", NASTY[5]]
    # What cannot be read breaks the download: it is never an archive without it.
    (seen / "all/deep/secret").write_text("no")
    os.chmod(seen / "all/deep/secret", 0)
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        person("GET", at + "all/?zip")


def test_previews_and_ranges(daemon, view):
    """F5"""
    seen, at = top(daemon, "show"), f"/{daemon.share}/show"
    pixel = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082")
    (seen / "p.png").write_bytes(pixel)
    (seen / "t.txt").write_text("<b>plain</b>\n" * 40_000)
    (seen / "v.mp4").write_bytes(b"no film")
    evil = "<script>document.title='hit';fetch('/x',{method:'PUT'})</script><p id=shown>there</p>"
    (seen / "evil.html").write_text(evil)
    (seen / "evil.svg").write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>document.title="hit"</script></svg>')
    view.go(f"{at}/p.png?view")
    wait_for(lambda: view.browser.run("return document.querySelector('.stage img').naturalWidth") == 1, 10)
    view.go(f"{at}/t.txt?view")
    assert view.one("pre").text.startswith("<b>plain</b>") and "This is the beginning" in view.driver.page_source
    assert view.go(f"{at}/v.mp4?view").one("video")
    assert "&lt;script&gt;" in view.go(f"{at}/evil.html?view").one("pre").get_attribute("innerHTML")
    # Opened itself, a stored page is shown and does not run; nor does a picture.
    for name in ["evil.html", "evil.svg"]:
        view.go(f"{at}/{name}")
        assert view.driver.title != "hit"
    view.go(f"{at}/evil.html")
    assert view.one("#shown").text == "there" and view.browser.run("return window.origin") == "null"
    view.browser.complaints()


@pytest.mark.parametrize("scripts", [True, False])
def test_names_are_text_and_reading_needs_no_script(daemon, view, scripts):
    """F5"""
    name = f"names-{scripts}"
    seen = top(daemon, name)
    for nasty in NASTY:
        (seen / nasty).write_text("text of it")
    (seen / "<b>dir").mkdir()
    (seen / "10").write_bytes(b"x" * 3000)
    (seen / "9").write_bytes(b"x")
    view.go(f"/{daemon.share}/{name}/", scripts=scripts)
    if scripts:
        assert sorted(view.names()) == sorted([*NASTY, "<b>dir", "9", "10"])
    shown = [e.text for e in view.all("td.name .label")]
    assert shown[0] == "<b>dir" and shown.index("9") < shown.index("10") and "2.9 KiB" in view.driver.page_source
    view.one("th.size a").click()
    assert [e.text for e in view.all("td.name .label")][-1] == "10"
    for nasty in NASTY:
        view.go(f"/{daemon.share}/{name}/", scripts=scripts)
        links = [e for e in view.all("td.name a") if urllib.parse.unquote(e.get_dom_attribute("href")) == f"./{nasty}?view"]
        links[0].click()
        wait_for(lambda: "?view" in view.driver.current_url, 10)
        assert view.one("pre").text == "text of it" and view.driver.title != "hit"
    view.go(f"/{daemon.share}/?q=ÜNÏ", scripts=scripts)
    assert [e.text for e in view.all("td.name .label")].count("ünï ☃ .txt") >= 1
    view.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize("size", [PHONE, (820, 1100), (1400, 900)], ids=["phone", "tablet", "desk"])
def test_nothing_runs_out_of_the_page(daemon, view, size):
    if not (daemon.mounted / "wide").exists():
        (daemon.mounted / "wide").mkdir()
        (daemon.mounted / "wide" / ("w" * 200)).write_text("w" * 500)
    for path in ["/", "/.larder/links", f"/{daemon.share}/wide/", f"/{daemon.share}/wide/{'w' * 200}?view", f"/{daemon.share}/wide/?share",
                 f"/{daemon.share}/wide/?versions", f"/{daemon.share}/?q=w", "/.larder/nothing"]:
        for dark in [False, True]:
            view.go(path, size, dark)
            assert view.browser.run("return document.documentElement.scrollWidth - window.innerWidth") <= 0, path
            nameless = "return [...document.querySelectorAll('a, button, input:not([type=hidden])')].filter((e) => e.offsetParent && !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).map((e) => e.outerHTML)"
            assert view.browser.run(nameless) == [], path


def link_to(person, path, **fields):
    status, page = person.form(path + "?share", csrf=person.csrf, **fields)
    assert status == 200, page
    return urllib.parse.urlparse(re.search(rb'value="(http[^"]+/\.link/[^"]+)"', page)[1].decode()).path


def test_a_link_gives_one_place_and_nothing_else(daemon, person, place):
    """F4"""
    seen, at = top(daemon, "given"), f"/{daemon.share}/given"
    (seen / "in/deep").mkdir(parents=True)
    (seen / "in/deep/f.txt").write_text("shared")
    (seen / "out.txt").write_text("secret")
    (seen / "in/escape").symlink_to("../out.txt")
    nobody = Person(daemon)
    link = link_to(person, f"{at}/in", days=7)
    one = link_to(person, f"{at}/in/deep/f.txt", days=7)
    assert nobody("GET", link)[0] == 301 and nobody("GET", one)[0] == 200 and b"shared" in nobody("GET", one)[1]
    status, page = nobody("GET", link + "/", **HTML)
    assert status == 200 and b"deep" in page and b"escape" not in page and b"csrf" not in page
    assert nobody("GET", f"{link}/deep/f.txt?raw")[1] == b"shared" == nobody("GET", one + "?download")[1]
    assert zipfile.ZipFile(io.BytesIO(nobody("GET", link + "/?zip")[1])).namelist() == ["in/", "in/deep/", "in/deep/f.txt"]
    for path in ["/escape?raw", "/../out.txt?raw", "/%2e%2e/out.txt?raw", "/.snapshots/", "/deep/%2fetc", "/deep/f.txt/"]:
        assert nobody("GET", link + path)[0] in (400, 404), path
    for method in ["PUT", "DELETE", "MKCOL", "PROPFIND", "POST", "PATCH"]:
        assert nobody(method, link + "/deep/f.txt", b"x")[0] == 405
    assert nobody("GET", link[:-1])[0] == 404 and nobody("GET", "/.link/")[0] == 404
    # With a password.
    guarded = link_to(person, f"{at}/in", days=1, password="Open-Sesame-1")
    assert b"has a password" in nobody("GET", guarded + "/")[1] and b"has a password" in nobody("GET", guarded + "/deep/f.txt?raw")[1]
    assert nobody.form(guarded + "/", password="wrong")[0] == 403 and nobody.answer.headers["Set-Cookie"] is None
    assert nobody.form(guarded + "/", password="Open-Sesame-1")[0] == 303
    guest = Person(daemon, nobody.answer.headers["Set-Cookie"].split(";")[0])
    assert guest("GET", guarded + "/deep/f.txt?raw")[1] == b"shared"
    other = link_to(person, f"{at}", days=1, password="Another-One-2")
    assert b"has a password" in guest("GET", other + "/")[1], "the cookie is of one link"
    # What the maker loses, the link loses; and revoked is revoked.
    os.chmod(seen / "in/deep", 0o700)
    assert nobody("GET", f"{link}/deep/f.txt?raw")[0] == 404
    os.chmod(seen / "in/deep", 0o755)
    assert nobody("GET", f"{link}/deep/f.txt?raw")[0] == 200
    page = person("GET", "/.larder/links", **HTML)[1]
    ids = re.findall(rb'name="revoke" value="([0-9a-f]+)"', page)
    assert len(ids) == 4 and link.split("/")[2].encode() not in page
    kept = daemon.data / "links"
    assert kept.stat().st_mode & 0o777 == 0o600 and link.split("/")[2] not in kept.read_text()
    assert person.form("/.larder/links", revoke=ids[-1].decode())[0] == 403
    assert person.form("/.larder/links", csrf=person.csrf, revoke=ids[-1].decode())[0] == 303
    assert nobody("GET", link + "/")[0] == 404 and nobody("GET", one)[0] == 200
    for days in ["0", "-1", "366", "x", ""]:
        assert person.form(f"{at}/in?share", csrf=person.csrf, days=days)[0] == 400


def test_links_survive_a_restart_and_end(folder):
    """F4"""
    larder = make(folder, extra=["--webdav", "127.0.0.1:0"]).start()
    try:
        Dav(larder).put(f"/{larder.share}/f.txt", b"kept")
        person = Person(larder)
        assert person.log_in("keeper", larder.password)[0] == 303
        link = link_to(person, f"/{larder.share}/f.txt", days=1)
        larder.kill()
        larder.start()
        assert Person(larder)("GET", link + "?raw")[1] == b"kept"
        assert Person(larder, person.cookies)("GET", "/", **HTML)[0] == 303, "sessions do not"
        larder.kill()
        kept = larder.data / "links"
        head, line = kept.read_text().splitlines()
        words = line.split(" ")
        words[2] = words[1]
        kept.write_text(f"{head}\n{' '.join(words)}\n")
        larder.start()
        assert Person(larder)("GET", link + "?raw")[0] == 404
    finally:
        larder.end()


def test_the_past_is_shown_and_comes_back(daemon, view):
    seen, at = top(daemon, "was"), f"/{daemon.share}/was"
    for n, text in enumerate(["first", "second"]):
        (seen / "f.txt").write_text(text)
        os.chmod(seen / "f.txt", 0o666)
        daemon.run("snap", "create", f"files@was-{n}", check=True)
    (seen / "f.txt").write_text("now")
    view.go(f"{at}/f.txt?versions")
    assert len(view.all("tbody tr")) == 2
    assert view.all("tbody tr td.name a")[1].get_attribute("href").endswith("/.snapshots/was-0/f.txt?view")
    view.all(".restore")[1].click()
    view.press("Copy beside")
    wait_for(lambda: [p for p in seen.iterdir() if p.name.startswith("f (") and p.read_text() == "first"], 20)
    assert (seen / "f.txt").read_text() == "now"
    view.all(".restore")[0].click()
    view.press("Replace")
    wait_for(lambda: (seen / "f.txt").read_text() == "second", 20)
    view.go(f"{at}/.snapshots/was-0/")
    assert "This is the past" in view.driver.page_source and not view.all("#upload")


def test_a_folder_of_many(daemon, person):
    seen = top(daemon, "many")
    for n in range(10_000):
        (seen / f"{n:05}").touch()
    before = daemon.rss_bytes()
    status, page = person("GET", f"/{daemon.share}/many/?sort=size&down&page=20", **HTML)
    assert status == 200 and page.count(b"<tr data-kind") == 500 and b"Page 20 of 20" in page and len(page) < 1_000_000
    assert b"10000 files" in page and daemon.rss_bytes() - before < 200 << 20
    page = person("GET", f"/{daemon.share}/many/?q=09998", **HTML)[1]
    assert b"1 match" in page


def test_a_client_that_leaves_ends_its_search(daemon):
    keeper = Dav(daemon)
    request = f"GET /{daemon.share}/?q=zzz HTTP/1.1\r\nHost: x\r\nAuthorization: {keeper.authorization}\r\n\r\n".encode()
    for _ in range(12):
        with socket.create_connection(("127.0.0.1", keeper.port)) as s:
            s.sendall(request)
    assert b"200 OK" in raw(keeper.port, request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), timeout=20)
