"""`larder power`: figures of the field, plugs imitated on loopback, a real upsd, and who keeps a disk awake."""

import base64
import contextlib
import hashlib
import http.server
import json
import os
import pty
import re
import socket
import subprocess
import sys
import threading
import time

import pytest

from larderd import binary, run
from others import free_port

UPSD, DRIVER = "/lib/nut/upsd", "/lib/nut/dummy-ups"


def power(*args, data=None, code=0):
    done = run(*(("--data", data) if data else ()), "power", *args)
    assert done.returncode == code, f"power {args}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def answer(*args, data=None):
    return json.loads(power(*args, "--json", data=data).stdout)


@pytest.fixture
def configured(folder):
    """A data folder whose larder.toml has this [power]."""

    def write(text):
        (folder / "larder.toml").write_text(text)
        return folder

    return write


PASSWORD = "geheim & more"


class Plug(http.server.ThreadingHTTPServer):
    """A smart plug: fixed answers, whose watts a test may change while it runs.

    With a `lock` (basic, digest, query) it wants its password as a Shelly Gen1, a later Shelly and a Tasmota do.
    """

    def __init__(self, answers, lock=None):
        self.answers, self.asked, self.lock = answers, [], lock
        super().__init__(("127.0.0.1", 0), Plug.Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"127.0.0.1:{self.server_address[1]}"

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def refused(self):
            """What it says to whoever has not proved the password; `/shelly` is for everybody."""
            lock, said = self.server.lock, self.headers.get("Authorization", "")
            if not lock or self.path == "/shelly":
                return None
            if lock == "basic":
                good = said == "Basic " + base64.b64encode(f"admin:{PASSWORD}".encode()).decode()
                return None if good else 'Basic realm="shellyplug-s-AABBCC"'
            if lock == "query":
                return None if self.path.startswith("/cm?user=admin&password=geheim%20%26%20more&") else ""
            sha = lambda text: hashlib.sha256(text.encode()).hexdigest()
            told = dict(re.findall(r'(\w+)="?([^",]+)"?', said))
            a1, a2 = sha(f"admin:shellyplusplugs-aabbcc:{PASSWORD}"), sha(f"GET:{self.path}")
            expected = sha(f"{a1}:1700000001:{told.get('nc')}:{told.get('cnonce')}:auth:{a2}")
            good = said.startswith("Digest ") and told.get("username") == "admin" and told.get("uri") == self.path
            if good and told.get("response") == expected:
                return None
            return 'Digest qop="auth", realm="shellyplusplugs-aabbcc", nonce="1700000001", algorithm=SHA-256'

        def do_GET(self):
            self.server.asked.append(self.path)
            challenge = self.refused()
            if challenge is not None:
                self.send_response(401)
                if challenge:
                    self.send_header("WWW-Authenticate", challenge)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            found = self.server.answers.get(self.path.replace("user=admin&password=geheim%20%26%20more&", ""))
            body = json.dumps(found).encode() if found is not None else b"Not Found"
            self.send_response(200 if found is not None else 404)
            self.send_header("Content-Type", "application/json")
            # The ESP32 of later plugs answers in chunks.
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))

        def log_message(self, *_):
            pass


@pytest.fixture
def plugs():
    made = []

    def make(answers, lock=None):
        made.append(Plug(answers, lock))
        return made[-1]

    yield make
    for plug in made:
        plug.shutdown()
        plug.server_close()


def test_a_year_of_the_pi_box_to_the_cent():
    found = answer("report", "--idle", "17", "--load", "26", "--price", "0.39", "--usable", "32TB")
    assert (f"{found['idle_cost']:.2f}", f"{found['load_cost']:.2f}") == ("58.08", "88.83")
    assert (found["version"], found["estimated"], found["basis"]) == (1, False, "typed in")
    assert found["watts_per_tb"] == 17 / 32
    text = power("report", "--idle", "44", "--load", "63", "--price", "0.39").stdout
    assert "150.32 EUR" in text and "215.23 EUR" in text and "estimated" not in text


def test_paying_back_what_was_bought():
    args = ("compare", "--idle", "17", "--load", "26", "--other-idle", "44", "--other-load", "63", "--cost", str(1880 + 50 + 350))
    found = answer(*args, "--price", "0.39")
    assert f"{found['saved_per_year']:.2f}" == "92.24" and 24.5 < found["payback_years"] < 25
    assert "paid back in 24.7 years" in power(*args, "--price", "0.39").stdout
    lost = power("compare", "--idle", "44", "--other-idle", "17", "--price", "0.39").stdout
    assert "never pays back" in lost
    same = power("compare", "--idle", "17", "--other-idle", "17", "--price", "0.39").stdout
    assert "both cost the same" in same and "-0.00" not in same
    for turned in (("--idle", "26", "--load", "17", "--other-idle", "44"), ("--idle", "17", "--other-idle", "63", "--other-load", "44")):
        assert "the other way round?" in power("compare", *turned, "--price", "0.39", code=1).stderr


def test_which_power_state_costs_least():
    args = ("whatif", "full=98W:10m", "saving=85W:11m", "--idle", "34", "--size", "6.84TiB", "--price", "0.39")
    found = answer(*args)
    assert [c["name"] for c in found["choices"]] == ["saving", "full"]
    assert f"{found['choices'][0]['job_wh']:.2f} {found['choices'][1]['job_wh']:.2f}" == "15.58 16.33"
    text = power(*args).stdout
    assert "'saving' costs least" in text and "GiB/s" in text
    # Energy needs no price.
    free = power(*args[:-2]).stdout
    assert "'saving' costs least: 1.32 Wh" in free and "EUR" not in free and "add --price" in free
    assert power("whatif", "full=98W", "--price", "1", code=2).stderr.count("NAME=WATTS:TIME") == 1


def test_without_a_price_it_says_where_to_put_one(configured):
    done = power("report", "--idle", "17", code=1)
    assert "--price" in done.stderr and "[power]" in done.stderr
    data = configured('[power]\nprice = 0.30\ncurrency = "CHF"\nidle_watts = 10\n'
                      '[[power.price_at]]\nfrom = "22:00"\nto = "06:00"\nprice = 0.15\n')
    found = answer("report", data=data)
    assert found["currency"] == "CHF" and abs(found["price_per_kwh"] - 0.25) < 1e-9
    bad = power("report", data=configured("[power]\nprice = -3.0\n"), code=1)
    assert "larder.toml:2:9" in bad.stderr


def test_plugs_are_read_and_a_dead_one_is_named(configured, plugs):
    shelly = plugs({"/shelly": {"gen": 2}, "/rpc/Switch.GetStatus?id=0": {"apower": 17.3, "aenergy": {"total": 1234.5}}})
    old = plugs({"/shelly": {"type": "SHPLG-S"}, "/meter/0": {"power": 26.0, "is_valid": True, "total": 600}})
    tasmota = plugs({"/cm?cmnd=Status%208": {"StatusSNS": {"ENERGY": {"Power": 44, "Total": 3.705}}}})
    sources = [("shelly", shelly.address), ("shelly", old.address), ("tasmota", tasmota.address), ("tasmota", "127.0.0.1:1")]
    data = configured("".join(f'[[power.source]]\nkind = "{kind}"\naddress = "{at}"\n' for kind, at in sources))
    found = answer("now", data=data)
    by_source = {r["source"]: r for r in found["readings"]}
    assert by_source[f"shelly {shelly.address}"]["energy_wh"] == 1234.5
    assert by_source[f"shelly {old.address}"]["watts"] == 26.0 and by_source[f"tasmota {tasmota.address}"]["watts"] == 44
    assert found["total"]["watts"] == 17.3 and found["total"]["basis"] == "measured"
    assert [f["source"] for f in found["faults"]] == ["tasmota 127.0.0.1:1"]
    text = power("now", data=data).stdout
    assert "the whole machine: 17.3 W, measured" in text and "action:" in text
    # Read only: nothing else was asked of them.
    assert set(shelly.asked) == {"/shelly", "/rpc/Switch.GetStatus?id=0"}


SHELLY = {"/shelly": {"gen": 2, "auth_en": True}, "/rpc/Switch.GetStatus?id=0": {"apower": 17.3, "aenergy": {"total": 1.5}}}


def test_plugs_with_passwords(configured, plugs, folder):
    shelly = plugs(SHELLY, "digest")
    old = plugs({"/shelly": {"type": "SHPLG-S", "auth": True}, "/meter/0": {"power": 26.0, "is_valid": True, "total": 600}}, "basic")
    tasmota = plugs({"/cm?cmnd=Status%208": {"StatusSNS": {"ENERGY": {"Power": 44, "Total": 3.705}}}}, "query")
    sources = [("shelly", shelly.address), ("shelly", old.address), ("tasmota", tasmota.address)]
    secret = folder / "plug.password"

    def ask(extra, *args):
        data = configured("".join(f'[[power.source]]\nkind = "{kind}"\naddress = "{at}"\n{extra}' for kind, at in sources))
        return power("now", *args, data=data)

    secret.write_text(PASSWORD + "\n")
    done = ask(f'password_file = "{secret}"\n', "--json")
    found = json.loads(done.stdout)
    assert [r["watts"] for r in found["readings"] if r["scope"] == "outlet"] == [17.3, 26.0, 44] and found["faults"] == []
    secret.write_text("wrong\n")
    wrong = ask(f'password_file = "{secret}"\n')
    assert wrong.stdout.count("does not take this user and password") == 3, wrong.stdout
    without = ask("")
    assert without.stdout.count("asks for a password") == 3 and "password_file" in without.stdout
    missing = ask(f'password_file = "{folder}/nowhere"\n')
    assert missing.stdout.count("cannot be read") == 3
    for said in (done, wrong, without, missing):
        assert "geheim" not in said.stdout + said.stderr and "wrong" not in said.stdout + said.stderr


def test_a_password_is_asked_for_at_a_terminal(configured, plugs):
    """Typed unseen, for as long as the command runs; nothing of it is kept."""
    plug = plugs(SHELLY, "digest")
    data = configured(f'[[power.source]]\nkind = "shelly"\naddress = "{plug.address}"\n')
    terminal, there = pty.openpty()
    child = subprocess.Popen([binary(), "--data", data, "power", "now"], stdin=there, stdout=there, stderr=there, close_fds=True)
    os.close(there)
    said = b""
    while b"Password of shelly" not in said:
        said += os.read(terminal, 4096)
    time.sleep(0.2)
    os.write(terminal, PASSWORD.encode() + b"\n")
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 4096):
            said += part
    os.close(terminal)
    assert child.wait(timeout=30) == 0, said
    assert b"17.3 W" in said and b"geheim" not in said, said
    kept = [path for path in data.rglob("*") if path.is_file() and b"geheim" in path.read_bytes()]
    assert kept == []


def test_watching_adds_up_energy(configured, plugs):
    status = {"apower": 20.0, "aenergy": {"total": 0.0}}
    plug = plugs({"/shelly": {"gen": 2}, "/rpc/Switch.GetStatus?id=0": status})
    data = configured(f'[[power.source]]\nkind = "shelly"\naddress = "{plug.address}"\n')
    threading.Timer(0.7, lambda: status.update(apower=60.0)).start()
    lines = [json.loads(l) for l in power("watch", "--seconds", "1.5", "--interval", "0.1", "--json", data=data).stdout.splitlines()]
    summary = lines[-1]["summary"]
    assert len(lines) > 8 and lines[0]["total"]["watts"] == 20
    assert (summary["min_watts"], summary["max_watts"], summary["idle_watts"], summary["load_watts"]) == (20, 60, 20, 60)
    expected = summary["mean_watts"] * summary["seconds"] / 3.6e6
    assert abs(summary["kwh"] - expected) < 1e-12 and 30 < summary["mean_watts"] < 50, summary


@pytest.fixture
def upsd(folder):
    """A real upsd with its dummy driver. Returns what sets the UPS's variables, and the address."""
    confdir, port = folder / "nut", free_port()
    confdir.mkdir(mode=0o700)
    (confdir / "ups.conf").write_text("[pantry]\n  driver = dummy-ups\n  port = pantry.dev\n  mode = dummy-loop\n")
    (confdir / "upsd.conf").write_text(f"LISTEN 127.0.0.1 {port}\n")
    (confdir / "upsd.users").write_text("")
    env = {**os.environ, **{name: str(confdir) for name in ("NUT_CONFPATH", "NUT_STATEPATH", "NUT_ALTPIDPATH", "NUT_PIDPATH")}}
    running = []

    def start(variables):
        (confdir / "pantry.dev").write_text("".join(f"{k}: {v}\n" for k, v in variables.items()))
        log = open(confdir / "log", "ab")
        for command in ([DRIVER, "-a", "pantry", "-u", "root", "-F"], [UPSD, "-u", "root", "-F"]):
            running.append(subprocess.Popen(command, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL))
        log.close()
        end = time.monotonic() + 15
        while time.monotonic() < end:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    s.sendall(b"GET VAR pantry ups.load\nLOGOUT\n")
                    if b'VAR pantry ups.load "' in s.recv(4096):
                        return f"127.0.0.1:{port}"
            time.sleep(0.1)
        raise AssertionError((confdir / "log").read_text())

    yield start
    for process in running:
        process.terminate()
    for process in running:
        process.wait(10)


def test_a_real_upsd_is_asked(configured, upsd):
    address = upsd({"ups.status": "OL", "ups.load": "20", "ups.realpower.nominal": "300"})
    data = configured(f'[[power.source]]\nkind = "nut"\nups = "pantry"\naddress = "{address}"\n')
    found = answer("now", data=data)
    reading = next(r for r in found["readings"] if r["source"].startswith("nut"))
    assert (reading["watts"], reading["basis"]) == (60.0, "estimated") and found["total"]["watts"] == 60.0
    report = power("report", "--price", "0.39", data=data).stdout
    assert "estimated" in report and "204.98 EUR" in report, report
    wrong = configured(f'[[power.source]]\nkind = "nut"\nups = "cellar"\naddress = "{address}"\n')
    assert "UNKNOWN-UPS" in power("now", data=wrong).stdout


def test_a_ups_that_measures_is_believed(configured, upsd):
    address = upsd({"ups.status": "OL", "ups.load": "20", "ups.realpower": "57", "ups.realpower.nominal": "300"})
    data = configured(f'[[power.source]]\nkind = "nut"\nups = "pantry"\naddress = "{address}"\n')
    total = answer("now", data=data)["total"]
    assert (total["watts"], total["basis"]) == (57.0, "measured")


def test_estimates_are_called_so_everywhere(configured, folder):
    parts = '[power]\nprice = 0.39\nsupply_efficiency = 0.8\n[[power.part]]\nname = "board"\nidle_watts = 8\nload_watts = 16\n'
    data = configured(parts)
    assert "estimated" in power("now", data=data).stdout
    assert "all of this is estimated" in power("report", data=data).stdout
    assert "(estimated)" in power("compare", "--other-idle", "44", "--cost", "100", data=data).stdout
    watched = power("watch", "--seconds", "0.2", "--interval", "0.1", data=data).stdout
    assert "(estimated)" in watched and "all of this is estimated" in watched
    found = answer("report", data=data)
    assert found["estimated"] and (found["idle_watts"], found["load_watts"]) == (10, 20)


def test_sensors_of_another_machine(configured, folder):
    hwmon = folder / "machine/sys/class/hwmon/hwmon0"
    hwmon.mkdir(parents=True)
    (hwmon / "name").write_text("ina226\n")
    (hwmon / "power1_input").write_text("15200000\n")
    found = answer("now", "--machine", folder / "machine")
    assert found["total"] == {"watts": 15.2, "source": "hwmon", "scope": "board", "basis": "measured"}


# It names those that wake most often: beside other tests, those are many.
@pytest.mark.alone
def test_who_keeps_a_disk_awake(loop_disks):
    """A process that writes and flushes is named beside the disk that it keeps awake."""
    (disk,) = loop_disks(64)
    script = (
        "import os,sys,time\nf=os.open(sys.argv[1],os.O_CREAT|os.O_WRONLY)\n"
        "end=time.time()+20\nwhile time.time()<end:\n os.pwrite(f,os.urandom(4096),0);os.fsync(f);time.sleep(0.1)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", script, str(disk.mount / "file")])
    try:
        found = answer("awake", "--seconds", "2")
        mine = [p for p in found["processes"] if p["pid"] == writer.pid]
        assert mine and mine[0]["written_bytes"] >= 4096, found["processes"]
        assert any(str(writer.pid) in w["who"] and w["per_s"] >= 5 for w in found["wakeups"]), found["wakeups"]
        # A loop file lies on another disk, which is the one that cannot sleep.
        busy = [d for d in found["disks"] if any(f"({writer.pid})" in s for s in d["suspects"])]
        assert busy and not busy[0]["quiet"] and busy[0]["writes"] > 0, found["disks"]
        assert "KEPT AWAKE BY" in power("awake", "--seconds", "0.5").stdout
    finally:
        writer.kill()
        writer.wait()
