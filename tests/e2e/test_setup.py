"""The first run in a browser: from `larder up` on nothing to a file written by the lines that its last page prints."""

import hashlib
import http.client
import html
import json
import os
import re
import select
import shlex
import ssl
import subprocess
import time
import tomllib
import urllib.parse

import pytest
from selenium.webdriver.common.by import By

from conftest import client, make
from larderd import binary
from nfs3 import Nfs3
from waiting import wait_for

PASSWORD = "Pantry-Shelf-42"
EVIL = "<script>alert(1)</script>\"'&"
DOORS = [word for door in ("nfs", "smb", "sftp", "webdavs") for word in (f"--{door}", "127.0.0.1:0")]


class Box:
    """`larder up` on nothing."""

    def __init__(self, folder, words=None, before=()):
        self.folder, self.data = folder, folder / "data"
        self.command = [*before, binary(), "--data", str(self.data), *(words or ["up", "--setup", "127.0.0.1:0", *DOORS]), "--json"]
        self.process = None

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=self.folder, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL,
                env={**os.environ, "HOME": str(self.folder)})
        self.said = self.line()
        return self

    def line(self, limit_s=60):
        end, line, pipe = time.monotonic() + limit_s, b"", self.process.stdout.fileno()
        while not line.endswith(b"\n"):
            assert time.monotonic() < end, f"no line: {(self.folder / 'log').read_text()}"
            if select.select([pipe], [], [], 0.2)[0]:
                piece = os.read(pipe, 1)
                assert piece, f"it ended: {(self.folder / 'log').read_text()}"
                line += piece
        return json.loads(line)

    @property
    def link(self):
        return self.said["page"]["setup"]

    @property
    def port(self):
        return urllib.parse.urlsplit(self.link).port

    @property
    def token(self):
        return self.link.rsplit("/", 1)[1]

    def kill(self):
        self.process.kill()
        self.process.wait(60)
        self.process.stdout.close()
        self.process = None

    def end(self):
        if self.process is None:
            return
        self.process.terminate()
        try:
            assert self.process.wait(60) == 0
        finally:
            self.process.stdout.close()
            self.process = None


@pytest.fixture
def box(folder):
    box = Box(folder).start()
    try:
        yield box
    finally:
        box.end()


class Visitor:
    """A browser without scripts: one cookie, forms with their hidden fields."""

    def __init__(self, box, agent="Mozilla/5.0 (X11; Linux x86_64)"):
        self.box, self.agent, self.cookie, self.csrf = box, agent, None, ""

    def ask(self, method, path, fields=None, **headers):
        connection = http.client.HTTPSConnection("127.0.0.1", self.box.port, context=ssl._create_unverified_context(), timeout=60)
        try:
            connection.connect()
            shown = hashlib.sha256(connection.sock.getpeercert(binary_form=True)).hexdigest().upper()
            assert self.box.said["fingerprint"].replace(":", "") == shown
            headers = {"User-Agent": self.agent, **headers}
            if self.cookie:
                headers["Cookie"] = self.cookie
            body = None
            if fields is not None:
                body = urllib.parse.urlencode(fields, doseq=True)
                headers["Content-Type"] = "application/x-www-form-urlencoded"
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            answer.text = answer.read().decode()
            cookie = answer.headers.get("Set-Cookie")
            if cookie:
                self.cookie = cookie.split(";")[0]
                assert all(word in cookie for word in ("__Host-", "HttpOnly", "Secure", "SameSite=Strict")), cookie
            found = re.search(r'name="csrf" value="([0-9a-f]+)"', answer.text)
            if found:
                self.csrf = found[1]
            return answer
        finally:
            connection.close()

    def get(self, path):
        """Redirects are followed, as browsers do."""
        answer = self.ask("GET", path)
        for _ in range(8):
            if answer.status != 303:
                return answer
            answer = self.ask("GET", answer.headers["Location"])
        raise AssertionError(f"{path} leads in circles")

    def send(self, path, /, **fields):
        """Sends a form and returns the page that it leads to."""
        answer = self.ask("POST", path, {"csrf": self.csrf, **fields})
        return self.get(answer.headers["Location"]) if answer.status == 303 else answer

    def enter(self):
        assert "Begin" in self.get(f"/setup/{self.box.token}").text
        page = self.send("/begin", token=self.box.token)
        assert page.status == 200 and "Which disks?" in page.text
        return page

    def choose(self, folders):
        for at, folder in enumerate(folders):
            page = self.send("/add-folder", path=str(folder), folder=[str(before) for before in folders[:at]])
            values = [html.unescape(value) for value in re.findall(r'name="folder" value="(.*?)" checked', page.text)]
            assert values == [str(one) for one in folders[: at + 1]], page.text
        return self.send("/disks", folder=[str(folder) for folder in folders])

    def name(self, **more):
        fields = {"user": "ann", "share": "files", "password": PASSWORD, "again": PASSWORD,
                  "smb": "on", "webdav": "on", "sftp": "on", "nfs": "on", "snapshots": "on"}
        return self.send("/names", **{**fields, **more})

    def until_done(self, limit_s=60):
        def looked():
            page = self.get("/progress")
            return page if "The box is set up" in page.text else None
        return wait_for(looked, limit_s)


def lines_of(page):
    return [html.unescape(line) for line in re.findall(r"<p class=\"copy\"><code>(.*?)</code>", page)]


def folders_in(folder, count=3):
    (folder / "disks").mkdir(exist_ok=True)
    return [folder / "disks" / name for name in "abcdef"[:count]]


def uploads(lines, folder):
    """One file by the line for curl, as it stands; the password is what curl would ask for."""
    (folder / "FILE").write_text("by curl")
    line = next(line for line in lines if line.startswith("curl "))
    subprocess.run(shlex.split(line.replace("-u ann", f"-u ann:{PASSWORD}")), cwd=folder, check=True, timeout=60, capture_output=True)
    return line


def test_from_nothing_to_a_file_by_the_last_page(box, folder, browser):
    """A person's walk in Chromium, and then NFS, SFTP and WebDAV by the lines that the last page says."""
    began = time.monotonic()
    driver = browser.driver
    driver.execute_cdp_cmd("Security.setIgnoreCertificateErrors", {"ignore": True})
    find = lambda selector: driver.find_element(By.CSS_SELECTOR, selector)

    def looked_at(heading):
        wait_for(lambda: browser.shows(heading, "h1"), 60)
        for width in (360, 768, 1440):
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                   {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
            assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth"), f"{heading} at {width}"
        unnamed = """return [...document.querySelectorAll('input:not([type=hidden]),button,a')].filter(e =>
            !(e.labels && e.labels.length) && !e.textContent.trim()).map(e => e.outerHTML)"""
        assert browser.run(unnamed) == [], heading

    def onward(selector=".onward button"):
        find(selector).click()

    driver.get(box.link)
    looked_at("Set up this box")
    find("form button").click()
    looked_at("Which disks?")
    for path in folders_in(folder):
        find("#path").send_keys(str(path))
        find("button[formaction]").click()
        wait_for(lambda: driver.find_elements(By.XPATH, f"//label[text()='{path}']"))
    onward()
    looked_at("How shall they work together?")
    assert find("#raidz1").is_selected(), "for three disks"
    assert len(driver.find_elements(By.CSS_SELECTOR, ".plan svg.disks")) == 4
    assert "raidz2 is not possible" in driver.page_source or "4 disks" in driver.page_source
    onward()
    looked_at("Names and doors")
    find("#user").send_keys("ann")
    find("#password").send_keys(PASSWORD)
    find("#again").send_keys(PASSWORD)
    for door in ("sftp", "nfs"):
        find(f"input[name={door}]").click()
    onward()
    looked_at("One look at it all")
    text = find("main").text
    for word in ("raidz1", "3 disks", "'files'", "ann", "NFS for this box alone", "24 hourly"):
        assert word in text, f"{word} in {text}"
    assert not (folder / "disks/a").exists(), "nothing is made before the last step"
    onward()
    looked_at("The box is set up")
    assert "Linux" in find("#here h2").text, "this computer is recognised"
    lines = [element.text for element in driver.find_elements(By.CSS_SELECTOR, "#here .copy code")]
    assert browser.complaints() == []

    ready = box.line()
    assert ready["user"] == "ann" and ready["password"] is None
    uploads(lines, folder)
    # Not every kernel has the client of NFS: the words of the line are given to ours.
    line = next(line for line in lines if "mount -t nfs" in line)
    told = re.fullmatch(r"sudo mount -t nfs -o port=(\d+) ([^ :]+):(\S+) /mnt", line)
    assert told and told[2] == "127.0.0.1", line
    with Nfs3.mount("127.0.0.1", int(told[1]), told[3]) as nfs:
        assert nfs.read_all(nfs.walk("FILE")) == b"by curl"
        nfs.write_all(nfs.create(nfs.root, "by-nfs").handle, b"by nfs")
    line = next(line for line in lines if line.startswith("sftp "))
    words = shlex.split(line)
    sftp = subprocess.run(
        [*words[:-1], "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", words[-1]],
        input="get by-nfs\n", cwd=folder, text=True, capture_output=True, timeout=60,
        env={**os.environ, "SSH_ASKPASS": str(answering(folder)), "SSH_ASKPASS_REQUIRE": "force"})
    assert (folder / "by-nfs").read_text() == "by nfs", sftp.stderr
    onward("form.onward button")
    wait_for(lambda: browser.shows("The set-up is over"))
    wait_for(lambda: not answers(box.port), 30)
    address = find("main a").get_attribute("href")
    driver.get(address)
    find("[name=name]").send_keys("ann")
    find("[name=password]").send_keys(PASSWORD)
    find("main form button[type=submit]").click()
    wait_for(lambda: driver.find_elements(By.CSS_SELECTOR, "nav[aria-label=Main]"))
    assert "Storage" in find("nav[aria-label=Main]").text, "the first user sees the page as its owner"
    config = (box.data / "larder.toml").read_text()
    for word in ('layout', PASSWORD):
        assert word not in config
    assert "hourly = 24" in config and not (box.data / "setup.json").exists()
    assert PASSWORD not in (folder / "log").read_text()
    assert time.monotonic() - began < 60


def answering(folder):
    """What ssh asks for the password."""
    program = folder / "askpass"
    program.write_text(f"#!/bin/sh\necho {PASSWORD}\n")
    program.chmod(0o700)
    return program


def answers(port):
    try:
        http.client.HTTPSConnection("127.0.0.1", port, context=ssl._create_unverified_context(), timeout=5).request("GET", "/")
        return True
    except OSError:
        return False


def test_the_link_is_good_once_and_guesses_are_counted(box, folder):
    stranger = Visitor(box)
    assert stranger.get("/").status == 403 and "waits for somebody" in stranger.get("/disks").text
    assert stranger.get("/setup/" + "0" * 64).status == 403
    assert stranger.send("/begin", token="0" * 64).status == 403
    first = Visitor(box)
    first.enter()
    second = Visitor(box)
    used = second.get(f"/setup/{box.token}")
    assert used.status == 410 and "127.0.0.1" in used.text
    assert second.send("/begin", token=box.token).status == 410 and second.cookie is None
    assert second.get("/disks").status == 403
    assert first.get("/disks").status == 200, "the first one is left alone"
    # A form of another site, or without the second token, changes nothing.
    foreign = first.ask("POST", "/trial", {"csrf": first.csrf}, **{"Sec-Fetch-Site": "cross-site"})
    assert foreign.status == 403
    assert first.ask("POST", "/trial", {"csrf": "0" * 64}).status == 403
    policy = first.ask("GET", "/disks").headers["Content-Security-Policy"]
    assert "unsafe" not in policy and "default-src 'none'" in policy
    statuses = [stranger.get("/setup/" + f"{n:064}").status for n in range(12)]
    assert statuses[0] == 403 and statuses[-1] == 429, statuses
    assert first.get("/disks").status == 200, "guesses lock out nobody who is in"
    box.end()
    token = box.token
    box.start()
    assert box.token != token and Visitor(box).get(f"/setup/{token}").status == 403
    Visitor(box).enter()


def test_each_step_says_what_is_wrong_and_keeps_what_was_typed(box, folder):
    visitor = Visitor(box)
    visitor.enter()
    assert "no disk was chosen" in visitor.send("/disks").text
    assert "does not begin with /" in visitor.send("/add-folder", path="relative").text
    assert "there is no folder" in visitor.send("/add-folder", path="/no/where").text
    (folder / "full").mkdir()
    (folder / "full" / "holiday.jpg").write_text("x")
    assert "not empty" in visitor.send("/add-folder", path=str(folder / "full")).text
    evil = folder / EVIL.replace("/", "_")
    page = visitor.choose([*folders_in(folder, 2), evil])
    assert "How shall they work" in page.text
    assert str(evil) not in visitor.get("/disks").text
    page = visitor.send("/layout", layout="raidz2")
    assert "not possible" in page.text and "How shall they work" in page.text
    assert "no layout was chosen" in visitor.send("/layout", layout="raid9").text
    assert "Names and doors" in visitor.send("/layout", layout="raidz1").text
    page = visitor.name(user=EVIL, share="Family photos").text
    assert "is not a user name" in page and EVIL not in page and 'value="Family photos"' in page
    assert PASSWORD not in page
    assert "differ" in visitor.name(again="other").text
    assert "guessed soon" in visitor.name(password="password", again="password").text
    assert "no door is open" in visitor.send("/names", user="ann", share="files", password=PASSWORD, again=PASSWORD).text
    page = visitor.name(box="<nas>").text
    assert "is not a name of a machine" in page and "&lt;nas&gt;" in page or "&#60;nas&#62;" in page
    assert "One look at it all" in visitor.name(box="nas").text
    assert not evil.exists() and not (box.data / "setup.json").exists()
    # A port that is taken comes back to the names, and the next try works.
    visitor.send("/review")
    page = visitor.until_done()
    assert "On this computer (Linux)" in page.text
    uploads(lines_of(page.text), folder)
    assert 'name = "nas"' in (box.data / "larder.toml").read_text()


def set_ups(box):
    """What the audit log has of set-ups by a browser."""
    code, said, why = command(box, "audit")
    assert code == 0, why
    records = [json.loads(line) for line in said.splitlines()]
    assert PASSWORD not in said
    return [(one["kind"], one["what"], one["from"], one["result"].split(":")[0], one["target"]) for one in records if one["by"] == "set-up"]


def test_a_failure_comes_back_and_the_next_try_works(folder):
    """What cannot be had when everything was confirmed: a port, taken by somebody else."""
    import socket
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        box = Box(folder, ["up", "--setup", "127.0.0.1:0", "--nfs", "127.0.0.1:0", "--smb", f"127.0.0.1:{port}", "--webdavs", "127.0.0.1:0"]).start()
        try:
            visitor = Visitor(box)
            visitor.enter()
            visitor.choose(folders_in(folder, 2))
            visitor.send("/layout", layout="mirror")
            visitor.name()
            page = visitor.send("/review")
            while "Setting up" in page.text:
                page = visitor.get("/progress")
            assert "in use" in page.text, page.text
            assert "Names and doors" in page.text and 'value="ann"' in page.text
            taken.close()
            visitor.name()
            visitor.send("/review")
            uploads(lines_of(visitor.until_done().text), folder)
            failed, done = set_ups(box)
            assert failed[:4] == ("act", "SetUp", "127.0.0.1", "failed") and done[:4] == ("act", "SetUp", "127.0.0.1", "done")
            assert done[4].startswith("user=ann share=files disks=/")
        finally:
            box.end()


@pytest.mark.parametrize("moment", ["plan", "labels"])
def test_a_kill_in_the_middle_and_again(folder, moment):
    disks = folders_in(folder, 2)
    box = Box(folder).start()
    try:
        visitor = Visitor(box)
        visitor.enter()
        visitor.choose(disks)
        visitor.send("/layout", layout="mirror")
        visitor.name(share="photos")
        visitor.ask("POST", "/review", {"csrf": visitor.csrf})
        there = lambda: (box.data / "setup.json").exists() or (box.data / "larder.toml").exists()
        if moment == "labels":
            there = lambda: all((disk / "larder.label").exists() for disk in disks)
        end = time.monotonic() + 60
        while not there():
            assert time.monotonic() < end
        box.kill()
        assert PASSWORD not in "".join(path.read_text(errors="replace") for path in box.data.glob("setup.json*"))
        is_made = (box.data / "larder.toml").exists()
        box.start()
        if is_made:
            # The box was faster than the kill, and is whole.
            assert box.said["user"] == "ann"
            return
        visitor = Visitor(box)
        page = visitor.enter()
        if "hold a larder: tank" in page.text:
            assert "cut off" in page.text
            page = visitor.send("/go-on")
        else:
            page = visitor.send("/disks", folder=[str(disk) for disk in disks])
            assert "How shall they work" in page.text
            page = visitor.send("/layout", layout="mirror")
        assert 'value="photos"' in page.text and 'value="ann"' in page.text, "what was typed is kept"
        assert "One look" in visitor.name(share="photos").text
        visitor.send("/review")
        page = visitor.until_done()
        uploads(lines_of(page.text), folder)
    finally:
        box.end()


def test_disks_that_hold_a_larder_are_named_and_the_line_serves_them(folder):
    """Import by command: the line that the page says."""
    disks = folders_in(folder, 2)
    made = subprocess.run([binary(), "--data", str(folder / "other"), "pool", "create", "tank", *map(str, disks), "--layout", "mirror", "--json"],
                          capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made.stderr
    box = Box(folder).start()
    try:
        visitor = Visitor(box)
        visitor.enter()
        page = visitor.send("/add-folder", path=str(disks[0])).text
        assert "tank" in page and "cannot be a disk" in page, page
        line = html.unescape(re.search(r'<p class="hint">(.*?)</p>', page)[1])
        assert " up " in line and str(disks[1]) in line, page
    finally:
        box.end()
    process = subprocess.Popen([*shlex.split(line), *DOORS, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert json.loads(process.stdout.readline())["nfs"]["export"] == "/files"
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_a_service_without_a_configuration_waits_for_its_set_up(folder):
    """And one whose file was named does not: its disk may be away."""
    gone = subprocess.run([binary(), "serve", "--config", str(folder / "gone.toml")], capture_output=True, text=True, timeout=60)
    assert gone.returncode == 1 and "gone.toml" in gone.stderr
    box = Box(folder, ["serve"]).start()
    try:
        assert box.said["page"]["setup"].startswith("https://") and Visitor(box).get("/").status == 403
    finally:
        box.end()


def test_a_disk_is_erased_by_name_alone(folder):
    """A loop device with a filesystem, in a namespace whose /etc and /mnt are its own."""
    image = folder / "image"
    with open(image, "wb") as file:
        file.truncate(1200 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-L", "photos", str(image)], check=True)
    device = subprocess.run(["losetup", "--find", "--show", str(image)], check=True, capture_output=True, text=True).stdout.strip()
    kind = lambda: subprocess.run(["blkid", "-p", "-o", "value", "-s", "TYPE", device], capture_output=True, text=True).stdout.strip()
    (folder / "etc").mkdir()
    subprocess.run(["cp", "-a", "/etc/.", str(folder / "etc")], check=True)
    inside = f"mount --bind {folder}/etc /etc && mount -t tmpfs none /mnt && exec \"$@\""
    box = Box(folder, before=["unshare", "-m", "sh", "-c", inside, "sh"])
    try:
        box.start()
        visitor = Visitor(box)
        page = visitor.enter().text
        entry = re.search(rf'<input type="checkbox"[^>]*value="{device}"[^>]*>', page)[0]
        assert "checked" not in entry and "disabled" not in entry, "it holds data: offered, and not proposed"
        page = visitor.send("/disks", device=[device]).text
        assert "How shall they work" in page
        visitor.send("/layout", layout="stripe")
        page = visitor.name().text
        assert "Everything on" in page and device in page and "ext4" in page, page
        page = visitor.send("/review", typed0="/dev/other").text
        assert "nothing was erased" in page and kind() == "ext4"
        assert "nothing was erased" in visitor.send("/review").text and kind() == "ext4"
        visitor.send("/review", typed0=device)
        page = visitor.until_done()
        assert kind() == "xfs"
        uploads(lines_of(page.text), folder)
        assert "larder" in (folder / "etc/fstab").read_text()
    finally:
        box.end()
        subprocess.run(["losetup", "-d", device], check=False)


def test_disks_that_hold_a_larder_become_that_box_by_a_button(folder):
    """Import by the page: a password that is wrong comes back to it, the right one makes the box."""
    from test_reborn import dav, wait_until_kept

    made = make(folder, layout="mirror", count=2, extra=["--webdav", "127.0.0.1:0"]).start()
    with client(made) as nfs:
        nfs.write(nfs.create(nfs.root, "kept.txt").handle, 0, b"as before", stable=2)
    wait_until_kept(made)
    host = (made.data / "webdav_certificate.pem").read_bytes() if (made.data / "webdav_certificate.pem").exists() else None
    made.kill()
    (folder / "new").mkdir()
    box = Box(folder / "new").start()
    try:
        visitor = Visitor(box)
        visitor.enter()
        page = visitor.send("/add-folder", path=str(made.disks[1])).text
        assert "Be this box again" in page, page
        visitor.send("/import", pool="tank", secret="Not-The-Shelf-1")
        wait_for(lambda: "does not open" in visitor.get("/progress").text)
        visitor.send("/import", pool="tank", secret=made.password)
        assert "keeper" in visitor.until_done().text
        text = (folder / "new/data/larder.toml").read_text()
        assert 'name = "keeper"' in text and 'role = "owner"' in text
        assert [one[1:4:2] for one in set_ups(box)] == [("SetUpImport", "failed"), ("SetUpImport", "done")]
        assert host is None or (folder / "new/data/webdav_certificate.pem").read_bytes() == host
    finally:
        box.end()


CONFIGURED = """# Mine, and it stays.
[listen]
nfs = "127.0.0.1:0"
smb = "127.0.0.1:0"
sftp = "127.0.0.1:0"
webdavs = "127.0.0.1:0"
[limits]
memory = "300MiB"
"""


@pytest.fixture
def service(folder):
    """As a package starts it: a configuration that names doors, and nothing to serve."""
    (folder / "data").mkdir(mode=0o700)
    (folder / "data/larder.toml").write_text(CONFIGURED)
    box = Box(folder, ["serve", "--idle", "--setup", "127.0.0.1:0"]).start()
    box.ready, box.said = box.said, box.line()
    try:
        yield box
    finally:
        box.end()


def command(box, *words):
    done = subprocess.run([binary(), "--data", str(box.data), *words, "--json"], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_service_that_serves_nothing_is_set_up_while_it_runs(service, folder):
    old = service.token
    code, said, _ = command(service, "setup-link")
    assert code == 0
    drawn = json.loads(said)
    assert drawn["fingerprint"] == service.said["fingerprint"]
    assert Visitor(service).get(f"/setup/{old}").status == 403, "the link before is good no more"
    service.said["page"]["setup"] = service.link.replace(old, drawn["url"].rsplit("/", 1)[1])
    visitor = Visitor(service)
    visitor.enter()
    visitor.choose(folders_in(folder, 2))
    visitor.send("/layout", layout="mirror")
    page = visitor.send("/names", user="ann", share="files", password=PASSWORD, again=PASSWORD, smb="on", webdav="on", snapshots="on", box="pantry")
    assert "One look at it all" in page.text
    visitor.send("/review")
    page = visitor.until_done()
    lines = lines_of(page.text)
    assert not any(line.startswith(("sftp ", "sudo mount -t nfs")) for line in lines), lines
    uploads(lines, folder)
    text = (service.data / "larder.toml").read_text()
    config = tomllib.loads(text)
    assert text.startswith(CONFIGURED.splitlines()[0]) and config["limits"]["memory"] == "300MiB", "the file keeps what it says"
    assert config["listen"]["sftp"] and config["discovery"]["name"] == "pantry"
    assert (config["share"][0]["sftp"], config["share"][0]["nfs"]) == (False, False), "open doors at which the share is not"
    assert config["volume"][0]["snapshots"]["hourly"] == 24 and config["user"][0]["role"] == "owner"
    assert PASSWORD not in text + (folder / "log").read_text()
    [done] = set_ups(service)
    assert done[:4] == ("act", "SetUp", "127.0.0.1", "done"), done
    code, _, why = command(service, "setup-link")
    assert code == 1 and "there is no set-up" in why
    visitor.send("/leave")
    wait_for(lambda: not answers(service.port), 30)
    service.end()
    service.start()
    uploads([of_port(lines, service.said["webdavs"]["port"])], folder)


def of_port(lines, port):
    """The line for curl, after a restart took another port."""
    return re.sub(r"(https://[^:/ ]+):\d+", rf"\1:{port}", next(line for line in lines if line.startswith("curl ")))


def test_commands_end_the_set_up_of_a_service(service, folder):
    visitor = Visitor(service)
    visitor.enter()
    (folder / "password").write_text(PASSWORD + "\n")
    code, _, why = command(service, "user", "add", "bob", "--password-file", str(folder / "password"))
    assert code == 0, why
    wait_for(lambda: not answers(service.port), 30)
    assert command(service, "setup-link")[0] == 1
    assert 'name = "bob"' in (service.data / "larder.toml").read_text()


def test_a_set_up_beside_a_service_that_fails_comes_back(service, folder):
    """Something lies in the way of the disks when all was confirmed: nothing stays open, and the next try works."""
    visitor = Visitor(service)
    visitor.enter()
    disks = folders_in(folder, 2)
    visitor.choose(disks)
    visitor.send("/layout", layout="mirror")
    visitor.name()
    for disk in disks:
        disk.write_text("not a folder")
    page = visitor.send("/review")
    while "Setting up" in page.text:
        page = visitor.get("/progress")
    assert "The box is set up" not in page.text
    for disk in disks:
        disk.unlink()
    visitor.choose(disks)
    visitor.send("/layout", layout="mirror")
    visitor.name()
    visitor.send("/review")
    uploads(lines_of(visitor.until_done().text), folder)
    assert [one[3] for one in set_ups(service)] == ["done"], "the first one was refused before it was ordered"


@pytest.mark.parametrize("doors", [["--webdavs", "127.0.0.1:{port}"], ["--webdav", ":{port}"], ["--sftp", "127.0.0.1:{port}"]])
def test_a_door_at_the_port_of_the_set_up_is_refused_at_once(folder, doors):
    import socket
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    (folder / "data").mkdir(mode=0o700)
    words = [word.format(port=port) for word in doors]
    done = subprocess.run(
        [binary(), "--data", str(folder / "data"), "up", "--setup", f"127.0.0.1:{port}", *words],
        capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode != 0 and f"port {port}" in done.stderr and words[0] in done.stderr, done.stderr
    assert "/setup/" not in done.stdout
