"""Pages of care: log, charts, power and battery, doctor, benches, schedules; the command line says the same.

  C1  The log is shown from memory by level and time, and names from outside steer nothing in it.
  C2  Schedules of snapshots and scrubs are changed on the page; the file keeps its comments.
  C3  Power, doctor and kept benches say on the page what the commands say. A name of a bench is no path.
  C4  A minute after a transfer the charts show it, and a restart keeps them.
  C5  A user sees what the own files take up, and nothing of the box.
  C6  A bench is started, watched and stopped on the page; what it wrote is removed, also where larder stops meanwhile.
"""

import contextlib
import json
import re

import pytest
from selenium.webdriver.common.by import By

import axe
from browser import PHONE, WIDE
from conftest import client, payload
from test_page import Visitor, daemon, ended, enter, own, press, said, visitor  # noqa: F401
from waiting import wait_for

EVIL = "<img src=x>\u202e"


def asked(daemon, *words):
    return json.loads(daemon.run(*words, "--json", check=True).stdout)


# C1


def test_the_log_is_shown_by_level_and_time(daemon):  # noqa: F811
    Visitor(daemon, source="127.0.8.9").log_in(EVIL, "wrong")
    looker = visitor(daemon, "len")
    page = looker.get("/+/care/log?level=warn")[1]
    lines = asked(daemon, "log", "--level", "warn")["lines"]
    assert lines and all(line["level"] in ("warn", "error") for line in lines)
    assert any("was refused" in line["text"] for line in asked(daemon, "log")["lines"])
    everything = looker.get("/+/care/log")[1]
    assert "was refused" in everything and "<img" not in everything and "\u202e" not in everything
    assert "serving" not in page and len(page) < len(everything)
    assert visitor(daemon, "ann").get("/+/care/log")[0] == 403
    assert "was refused" in daemon.run("log").stdout and "\u202e" not in daemon.run("log").stdout
    assert daemon.run("log", "--level", "loud").returncode == 2


# C2


def test_schedules_are_changed_on_the_page(own, browser):  # noqa: F811
    daemon = own("--page", "127.0.0.1:0").start()
    file = daemon.data / "larder.toml"
    file.write_text("# mine\n" + file.read_text())
    with contextlib.closing(enter(daemon, browser)):
        url = daemon.info["page"]["url"] + "+/care"
        browser.visit(url)
        press(browser, "/+/care/snapshots", hourly="3", daily="2", weekly="", monthly="0")
        wait_for(lambda: "Of tank/files are kept: 3 hourly, 2 daily." in said(browser))
        [schedule] = asked(daemon, "snap", "schedule")
        assert schedule["keep"] == {"hourly": 3, "daily": 2, "weekly": 0, "monthly": 0}
        press(browser, "/+/care/snapshots", hourly="9999", daily="", weekly="", monthly="")
        browser.run("document.querySelector('#keep-1-hourly').max = ''")
        press(browser, "/+/care/snapshots", hourly="9999", daily="", weekly="", monthly="")
        wait_for(lambda: "more than a volume keeps" in said(browser), told=lambda: said(browser))
        browser.visit(url)
        press(browser, "/+/care/scrubs", schedule="daily")
        wait_for(lambda: "Scrubs of tank: daily." in said(browser))
        assert asked(daemon, "pool", "scrub", "schedule") == [{"pool": "tank", "schedule": "daily"}]
        browser.visit(url)
        press(browser, "/+/care/snapshots", hourly="", daily="", weekly="", monthly="")
        wait_for(lambda: "taken by themselves any more" in said(browser))
    assert asked(daemon, "snap", "schedule") == []
    assert daemon.run("snap", "schedule", "files", "--daily", "7").returncode == 0
    assert daemon.run("pool", "scrub", "schedule", "tank", "--every", "off").returncode == 0
    assert daemon.run("pool", "scrub", "schedule", "tank", "--every", "hourly").returncode == 1
    text = file.read_text()
    assert text.startswith("# mine\n") and "snapshots = { daily = 7 }" in text and 'scrub = "off"' in text
    ended(daemon)
    daemon.start()
    assert asked(daemon, "snap", "schedule")[0]["keep"]["daily"] == 7
    ended(daemon)


# C3


def test_power_doctor_and_benches_say_what_the_commands_say(own):  # noqa: F811
    daemon = own("--page", "127.0.0.1:0").start()
    owner = visitor(daemon)
    assert "nobody has said what a kWh costs" in owner.get("/+/care/power")[1]
    file = daemon.data / "larder.toml"
    file.write_text(file.read_text() + "\n[power]\nprice = 0.39\nidle_watts = 17\nload_watts = 26\n")
    daemon.run("reload", check=True)
    page, report = owner.get("/+/care/power")[1], asked(daemon, "power", "report")
    assert f"{report['idle_cost']:.2f} EUR" in page and "58.08 EUR" in page and "17.0 W" in page
    asking = "/+/care/power?size=6.84TiB&settings=full%3D98W:10m+saving%3D85W:11m"
    assert "costs least" in owner.get(asking)[1]
    assert "is not" in owner.get("/+/care/power?settings=full")[1]
    assert owner.get("/+/care/power?awake=1")[1].count("<pre") == 1
    status, page = owner.get("/+/care/doctor?run=1")
    assert status == 200 and "What limits this box" in page and "Why: the chain" in page

    bench = daemon.data.parent / "measured"
    bench.mkdir()
    for _ in range(2):
        daemon.run("bench", "disk", bench, "--size", "64M", "--seconds", "1", "--repeats", "1", "--only", "read", check=True)
    page = owner.get("/+/care/bench")[1]
    ids = sorted(set(re.findall(r"/\+/care/bench\?id=([^\"]+)", page)))
    assert len(ids) == 2, page
    assert owner.get(f"/+/care/bench?id={ids[0]}")[0] == 200
    assert "<pre" in owner.get(f"/+/care/bench?a={ids[0]}&b={ids[1]}")[1]
    for path in ["../larder.toml", "/etc/passwd", "last", ""]:
        assert owner.get("/+/care/bench?id=" + path)[0] == (404 if path else 200), path
    ended(daemon)


# C4


@pytest.mark.long
def test_charts_show_a_transfer_and_outlive_a_restart(own, browser):  # noqa: F811
    daemon = own("--page", "127.0.0.1:0").start()
    with client(daemon) as nfs:
        nfs.write_all(nfs.create(nfs.root, "big", mode=0o666).handle, payload(8 << 20))
        hour = lambda: asked(daemon, "charts")["samples"]  # noqa: E731
        samples = wait_for(lambda: [one for one in hour() if one["written_bytes_per_s"]], limit_s=100)
    assert samples[0]["written_bytes_per_s"] > 50_000 and samples[0]["disk_calls_per_s"] > 0
    ended(daemon)
    daemon.start()
    assert samples[0] in asked(daemon, "charts")["samples"]
    with contextlib.closing(enter(daemon, browser)):
        for span in ["hour", "year"]:
            browser.visit(daemon.info["page"]["url"] + "+/care/charts?span=" + span)
            assert "Throughput of clients" in said(browser) and "Calls to disks" in said(browser)
            assert browser.run("return document.querySelectorAll('.chart path').length") >= 3
            for size in (PHONE, WIDE):
                browser.visit(daemon.info["page"]["url"] + "+/care/charts?span=" + span, size)
                assert not browser.out_of_the_page()
    ended(daemon)


# C5


def test_a_user_sees_the_own_room(daemon):  # noqa: F811
    daemon.run("volume", "set", "files", "--user-quota", "ann=5GiB", check=True)
    page = visitor(daemon, "ann").get("/+/me")[1]
    assert "of your 5.00 GiB used" in page, page
    for path in ["", "storage", "connections", "care", "care/log", "care/power", "care/charts", "care/doctor", "care/bench"]:
        assert visitor(daemon, "ann").get("/+/" + path)[0] in (303, 403), path


# C6


def test_a_bench_is_run_watched_and_stopped_by_the_page(own, browser, folder):  # noqa: F811
    daemon = own("--page", "127.0.0.1:0").start()
    measured = folder / "measured"
    measured.mkdir()
    with contextlib.closing(enter(daemon, browser)):
        url = daemon.info["page"]["url"] + "+/care/bench"

        def start(**fields):
            browser.visit(url)
            browser.run("document.querySelectorAll('details').forEach((fold) => fold.open = true)")
            form = browser.driver.find_element(By.CSS_SELECTOR, "input[value=disk]").find_element(By.XPATH, "..")
            for name, value in fields.items():
                form.find_element(By.NAME, name).send_keys(value)
            form.find_element(By.CSS_SELECTOR, "button[type=submit]").click()

        start(more="relative")
        wait_for(lambda: "no whole path" in said(browser), told=lambda: said(browser))
        start(more=str(measured), size="64M", title="mine <b>")
        wait_for(lambda: "The bench runs." in said(browser), told=lambda: said(browser))
        # It is seen by itself, and by somebody else.
        wait_for(lambda: browser.run("return document.querySelector('#live [role=progressbar]')?.getAttribute('aria-valuenow') > 0"), limit_s=60)
        assert "mine <b>" in visitor(daemon).get("/+/care/bench")[1].replace("&#60;", "<").replace("&#62;", ">")
        assert "StartBench" in daemon.run("audit", "--json", check=True).stdout
        start(more=str(measured))
        wait_for(lambda: "two would measure each other" in said(browser), told=lambda: said(browser))
        browser.driver.find_element(By.CSS_SELECTOR, "form[action='/+/care/bench/stop'] button").click()
        wait_for(lambda: "it was stopped" in said(browser), limit_s=60, told=lambda: said(browser))
        assert not list(measured.iterdir()), "what it wrote is removed"
        for size in [(360, 780), WIDE]:
            for dark in (False, True):
                browser.visit(url, size, dark)
                assert not axe.violations(browser) and not browser.out_of_the_page(), (size, dark)
        # A daemon that stops takes the files of a bench away, too.
        start(more=str(measured), size="64M")
        wait_for(lambda: list(measured.iterdir()), limit_s=60)
    ended(daemon)
    assert not list(measured.iterdir())
