"""The UPS: by upsd with NUT's own dummy driver, and by a battery of the machine. Power goes, and larder ends in order."""

import json
import os
import signal
import socket
import subprocess
import time

import pytest

from conftest import client, make, payload
from nfs3 import FILE_SYNC, UNSTABLE
from test_alerts import alerts, configure
from waiting import wait_for

UPSD, DRIVER = "/lib/nut/upsd", "/lib/nut/dummy-ups"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Ups:
    """upsd and its dummy driver, in a folder of their own."""

    def __init__(self, folder):
        self.folder, self.port = folder / "nut", free_port()
        self.folder.mkdir()
        self.folder.chmod(0o770)
        self.device = self.folder / "ups.dev"
        self.says("OL", 100)
        for name, text in {
            "ups.conf": f"[shelf]\ndriver = dummy-ups\nport = {self.device}\nmode = dummy-loop\n",
            "upsd.conf": f"LISTEN 127.0.0.1 {self.port}\n",
            "upsd.users": "[larder]\npassword = Shelf-42\nupsmon secondary\n",
            "nut.conf": "MODE=netserver\n",
        }.items():
            (self.folder / name).write_text(text)
        paths = ("NUT_CONFPATH", "NUT_STATEPATH", "NUT_ALTPIDPATH", "NUT_PIDPATH")
        self.env = {**os.environ, **{name: str(self.folder) for name in paths}}
        self.processes = [self.begin([DRIVER, "-a", "shelf", "-F", "-u", "root"])]
        wait_for(lambda: list(self.folder.glob("dummy-ups-shelf*")), told=self.told)
        self.processes.append(self.begin([UPSD, "-F", "-u", "root"]))
        wait_for(self.answers, told=self.told)

    def told(self):
        return (self.folder / "log").read_text()

    def begin(self, command):
        with open(self.folder / "log", "a") as log:
            return subprocess.Popen(command, env=self.env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def answers(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as question:
                question.sendall(b"GET VAR shelf ups.status\n")
                return question.recv(100).startswith(b"VAR")
        except OSError:
            return False

    def says(self, status, charge):
        """In one step: the driver reads it again and again."""
        new = self.device.with_suffix(".new")
        new.write_text(f"ups.status: {status}\nbattery.charge: {charge}\nbattery.runtime: 600\nups.model: Shelf 500\nTIMER 1\n")
        new.rename(self.device)

    def end(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=20)


@pytest.fixture
def ups(folder):
    made = Ups(folder)
    yield made
    made.end()


def named(larder, ups, more=""):
    password = larder.data / "ups_password"
    password.write_text("Shelf-42\n")
    configure(larder, f'[ups]\naddress = "127.0.0.1:{ups.port}"\nname = "shelf"\nuser = "larder"\n'
                      f'password_file = "{password}"\n{more}\n')


def events(larder):
    return [alert["event"] for alert in alerts(larder)["open"]]


def status(larder):
    return json.loads(larder.run("ups", "--json", check=True).stdout)


def test_power_goes_and_comes_back(folder, ups):
    larder = make(folder, count=1, layout="single").start()
    try:
        assert larder.run("ups").returncode != 0
        named(larder, ups, 'stop_after = "1h"')
        wait_for(lambda: status(larder)["model"])
        assert (status(larder)["on_battery"], status(larder)["model"], events(larder)) == (False, "Shelf 500", [])
        ups.says("OB DISCHRG", 93)
        wait_for(lambda: events(larder) == ["ups-on-battery"])
        assert "93 %, 10 min left" in larder.run("ups", check=True).stdout
        ups.says("OL CHRG RB", 90)
        wait_for(lambda: events(larder) == ["ups-battery-worn"])
        assert larder.alive()
        assert larder.stop() == 0
    finally:
        larder.end()


@pytest.mark.parametrize("way", ["low", "time", "charge"])
def test_it_ends_in_order_when_the_power_stays_away(folder, ups, way):
    larder = make(folder, count=1, layout="single").start()
    try:
        done = folder / "done"
        limit = {"low": "", "time": 'stop_after = "3s"', "charge": "stop_below = 40"}[way]
        named(larder, ups, f'{limit}\nthen = ["/bin/touch", "{done}"]')
        wait_for(lambda: status(larder)["says"])
        with client(larder) as nfs:
            data = payload(8 << 20)
            handle = nfs.create(nfs.root, "a").handle
            for at in range(0, len(data), 1 << 20):
                nfs.write(handle, at, data[at:at + (1 << 20)], UNSTABLE)
            ups.says({"low": "OB LB", "time": "OB", "charge": "OB"}[way], 39)
            assert larder.process.wait(timeout=60) == 0
        assert done.exists(), "the owner's command ran after everything"
        larder.process = None
        ups.says("OL", 50)
        larder.start()
        with client(larder) as nfs:
            assert nfs.read_all(nfs.lookup(nfs.root, "a").handle) == data
        kinds = [alert["event"] for alert in json.loads(larder.run("alerts", "list", "--all", "--json", check=True).stdout)["past"]]
        assert "ups-stops" in kinds and "restarted" not in kinds, kinds
        assert larder.stop() == 0
    finally:
        larder.end()


def test_a_server_that_dies_is_no_power_cut_and_a_kill_in_the_middle_loses_nothing(folder, ups):
    larder = make(folder, count=1, layout="single").start()
    try:
        named(larder, ups, "stop_below = 40")
        wait_for(lambda: status(larder)["says"])
        ups.end()
        ups.processes.clear()
        wait_for(lambda: status(larder).get("fault"))
        assert larder.alive()
        larder.kill()
        larder.start()
        wait_for(lambda: status(larder).get("fault"))
        assert status(larder)["says"] is None and larder.alive()
        assert larder.stop() == 0
    finally:
        larder.end()


@pytest.mark.parametrize("after_s", [0, 0.02, 0.1, 0.3])
def test_a_kill_in_the_middle_of_the_orderly_stop_loses_nothing(folder, ups, after_s):
    """As when the battery is empty before everything is written: what was answered as durable is there."""
    larder = make(folder, extra=["--memory", "512M"]).start()
    try:
        named(larder, ups)
        wait_for(lambda: status(larder)["says"])
        durable, committed, waiting = payload(4 << 20, seed=1), payload(16 << 20, seed=2), payload(1 << 20, seed=3)
        with client(larder) as nfs:
            sync, unstable = nfs.create(nfs.root, "durable").handle, nfs.create(nfs.root, "committed").handle
            for at in range(0, len(durable), 1 << 20):
                nfs.write(sync, at, durable[at:at + (1 << 20)], FILE_SYNC)
            for at in range(0, len(committed), 1 << 20):
                nfs.write(unstable, at, committed[at:at + (1 << 20)], UNSTABLE)
            nfs.commit(unstable)
            # So that the stop has something to write.
            for n in range(48):
                nfs.write(nfs.create(nfs.root, f"waiting-{n}").handle, 0, waiting, UNSTABLE)
            stopped = larder.log().count(" INFO stopping")
            ups.says("OB LB", 5)
            wait_for(lambda: larder.log().count(" INFO stopping") > stopped)
            time.sleep(after_s)
            larder.kill()
        ups.says("OL", 50)
        larder.start()
        with client(larder) as nfs:
            assert nfs.read_all(nfs.lookup(nfs.root, "durable").handle) == durable
            assert nfs.read_all(nfs.lookup(nfs.root, "committed").handle) == committed
            for n in range(48):
                nfs.lookup(nfs.root, f"waiting-{n}")
        larder.run("check", check=True)
        assert larder.stop() == 0
    finally:
        larder.end()


def test_the_battery_of_a_board(folder):
    supply = folder / "power_supply"
    for name, text in {"ac/type": "Mains", "ac/online": "1", "bat/type": "Battery", "bat/status": "Full", "bat/capacity": "98"}.items():
        (supply / name).parent.mkdir(parents=True, exist_ok=True)
        (supply / name).write_text(text + "\n")
    larder = make(folder, count=1, layout="single").start()
    try:
        configure(larder, f'[ups]\nsource = "battery"\nfolder = "{supply}"\nstop_below = 20\n')
        wait_for(lambda: status(larder)["charge_percent"] == 98)
        (supply / "ac/online").write_text("0\n")
        (supply / "bat/status").write_text("Discharging\n")
        wait_for(lambda: events(larder) == ["ups-on-battery"])
        (supply / "bat/capacity").write_text("19\n")
        assert larder.process.wait(timeout=60) == 0
        larder.process = None
    finally:
        larder.end()
