"""The HTML report of a bench in a real browser: plots that are drawn, in every light and size, and that answer.

The results come from cargo's example `report` (built by `cargo test`), which draws the samples of the unit tests.
"""

import json
import os
import subprocess
import time

import pytest
from browser import DARK, LIGHT, PHONE, WIDE, colour, near, painted
from larderd import ROOT
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys


def draw(*arguments):
    program = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / "examples" / "report"
    assert program.exists(), f"{program} is missing: cargo build --release -p larder-measure --examples"
    subprocess.run([program, *map(str, arguments)], check=True, timeout=120)


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    for name in ["box-a", "box-d", "box-e"]:
        draw(name, folder)
    faster = json.loads((folder / "box-a.json").read_text())
    for run in faster["runs"]:
        if run["access"] == "nfs3":
            for repeat in run["repeats"]:
                repeat["bytes_per_s"] *= 1.4
    (folder / "faster.json").write_text(json.dumps(faster))
    draw(folder / "box-a.json", folder / "faster.json", folder)
    return folder


@pytest.mark.long
@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_plots_are_drawn(reports, browser, size, dark, scripts):
    theme = DARK if dark else LIGHT
    browser.open(reports / "box-e.html", size, dark, scripts)
    boxes = dict(browser.boxes("#block-size-part svg.plot, #overview-part svg.plot, #latencies-part svg.plot"))
    ending = "-n" if size == PHONE else "-w"
    assert set(boxes) == {name + ending for name in ("block-size-1", "overview", "latency")}
    for name, rect in boxes.items():
        rows = browser.pixels(rect)
        assert len({pixel for row in rows for pixel in row}) > 20, f"{name} has hardly any colours"
        paper = sum(near(pixel, colour(theme["paper"])) for pixel in rows[2])
        assert paper > len(rows[2]) / 2, f"{name} is not on the page's own paper"
    rect = boxes["block-size-1" + ending]
    rows = browser.pixels(rect)
    for line in ("s0", "s1", "s2", "s3"):
        count, across = painted(rows, theme[line])
        assert count > 150 and across > rect["width"] * 0.5, f"line {line} of the sweep: {count} pixels, {across} wide"
    count, across = painted(browser.pixels(boxes["overview" + ending]), theme["s0"])
    assert count > 1000 and across > size[0] * 0.3, "the bars of the overview"


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_nothing_runs_out_of_the_page_or_overlaps(reports, browser, size):
    for name in ["box-a", "box-d", "box-e", "compare"]:
        browser.open(reports / f"{name}.html", size)
        assert browser.out_of_the_page() == [] and browser.clashes() == [], name


@pytest.mark.parametrize("wide", [1280, 800])
def test_no_table_is_cut_off(reports, browser, wide):
    """Of tables in a box that scrolls nobody sees that there is more, least of all without scroll bars."""
    for name in ["box-a", "box-d", "box-e", "compare"]:
        browser.open(reports / f"{name}.html", (wide, 900))
        browser.run("document.querySelectorAll('details').forEach((d) => d.open = true)")
        cut = browser.run("return [...document.querySelectorAll('.scroll, th, td')].filter((e) => e.clientWidth && e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent.slice(0, 60))")
        assert cut == [], f"{name}: cut off at the right"


# What A4 leaves within the page's own margins, in CSS pixels: 184 x 271 mm.
PAPER = (695, 1024)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_paper_gets_whole_plots_and_tables(reports, browser, dark):
    """As Chromium lays it out for a printer, also where the screen is dark."""
    for name in ["box-a", "box-d", "box-e", "compare"]:
        browser.open(reports / f"{name}.html", PAPER, dark)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": [theme]})
        look = browser.driver.execute_script
        tall = look("return [...document.querySelectorAll('.fig')].filter((f) => f.getBoundingClientRect().height > arguments[0]).map((f) => f.id)", PAPER[1])
        assert tall == [], f"{name}: higher than a page"
        wide = look("return [...document.querySelectorAll('.scroll, .fig, h1, p, li')].filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.outerHTML.slice(0, 80))")
        assert wide == [], f"{name}: cut off at the right"
        cut = look("return [...document.querySelectorAll('.scroll')].filter((e) => e.scrollHeight > e.clientHeight + 1).length")
        assert cut == 0 and browser.out_of_the_page() == [] and browser.clashes() == [], name
        assert look("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert look("return getComputedStyle(document.querySelector('.fig, table')).color") == "rgb(28, 36, 48)", "dark ink on white"
        shown = look("return [...document.querySelectorAll('button, nav, .download, .run:not([open])')].filter((e) => e.getBoundingClientRect().width).length")
        assert shown == 0, f"{name}: what paper cannot answer to"


def test_cores_and_knees_of_the_pi_box(reports, browser):
    browser.open(reports / "box-a.html")
    opened = [rect for name, rect in browser.boxes("details.run[open] svg.plot") if name.endswith("cores-w")]
    assert len(opened) == 1, "the run that saturated a core is open"
    rows = browser.pixels(opened[0])
    # Core 0 is full of system and interrupt time: its panel is the left quarter.
    first = [row[: len(row) // 4] for row in rows]
    for state in ("c2", "c4"):
        assert painted(first, LIGHT[state])[0] > 2000, state
    marks = browser.run("return [...document.querySelectorAll('#over-time-1-w .mark text')].map((t) => t.textContent)")
    assert marks == ["knee"]


def test_pointer_tells_values(reports, browser):
    browser.open(reports / "box-e.html")
    svg = browser.driver.find_element(By.ID, "block-size-1-w")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", svg)
    ActionChains(browser.driver).move_to_element(svg).perform()
    tip = browser.driver.find_element(By.CSS_SELECTOR, ".tip")
    assert tip.is_displayed()
    for word in ["KiB", "local", "nfs3", "smb3", "sftp", "MB/s"]:
        assert word in tip.text, tip.text
    # The value is the one of the table behind the plot.
    block = tip.text.splitlines()[0]
    row = browser.run(
        """const rows = [...document.querySelectorAll("#block-size-1 tbody tr")];
        return [...rows.find((r) => r.cells[0].textContent === arguments[0]).cells].map((c) => c.textContent);""",
        block,
    )
    for value in row[1:]:
        assert value in tip.text, (row, tip.text)
    bar = browser.driver.find_element(By.CSS_SELECTOR, "#overview-w .row .bar")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", bar)
    ActionChains(browser.driver).move_to_element(bar).perform()
    assert tip.text.startswith("best single disk: 3"), tip.text


def test_legend_hides(reports, browser):
    browser.open(reports / "box-e.html")
    svg = browser.driver.find_element(By.ID, "block-size-1-w")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", svg)
    rect = svg.rect
    assert painted(browser.pixels(rect), LIGHT["s1"])[0] > 150
    key = svg.find_element(By.CSS_SELECTOR, ".key[data-n='1']")
    key.click()
    assert key.get_attribute("aria-pressed") == "false"
    assert painted(browser.pixels(rect), LIGHT["s1"])[0] < 80, "only the key is left"
    key.send_keys(Keys.ENTER)
    assert key.get_attribute("aria-pressed") == "true"
    assert painted(browser.pixels(rect), LIGHT["s1"])[0] > 150


def test_keys_do_what_the_pointer_does(reports, browser):
    browser.open(reports / "box-e.html")
    svg = browser.driver.find_element(By.ID, "block-size-1-w")
    svg.send_keys(Keys.HOME)
    tip = browser.driver.find_element(By.CSS_SELECTOR, ".tip")
    assert tip.text.startswith("4 KiB"), tip.text
    svg.send_keys(Keys.ARROW_RIGHT)
    assert tip.text.startswith("8 KiB"), tip.text
    svg.send_keys(Keys.END)
    assert tip.text.startswith("32 MiB"), tip.text
    svg.send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()
    rows = browser.driver.find_element(By.ID, "overview-w")
    rows.send_keys(Keys.ARROW_DOWN)
    assert tip.text.startswith("best single disk"), tip.text


def test_json_and_plots_can_be_saved(reports, browser, tmp_path):
    browser.open(reports / "box-e.html")
    browser.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    browser.driver.find_element(By.CSS_SELECTOR, ".download button").click()
    saved = wait_for(tmp_path, "*.json")
    original = json.loads((reports / "box-e.json").read_text())
    assert json.loads(saved.read_text()) == original
    button = next(b for b in browser.driver.find_elements(By.CSS_SELECTOR, "#block-size-1 button") if b.text == "Save SVG")
    button.click()
    svg = wait_for(tmp_path, "*.svg")
    text = svg.read_text()
    assert "var(" not in text and "<style" in text
    browser.open(svg)
    shot = browser.pixels({"x": 0, "y": 0, "width": 720, "height": 340})
    assert painted(shot, LIGHT["s1"])[0] > 150, "a saved plot has its colours"
    browser.open(reports / "box-e-block-size-1.svg")
    shot = browser.pixels({"x": 0, "y": 0, "width": 720, "height": 340})
    assert painted(shot, LIGHT["s1"])[0] > 150, "so has one that never was in a page"


def wait_for(folder, pattern):
    for _ in range(100):
        found = [p for p in folder.glob(pattern) if p.stat().st_size]
        if found:
            return found[0]
        time.sleep(0.1)
    raise AssertionError(f"nothing was saved: {os.listdir(folder)}")


def test_comparison_shows_what_is_faster(reports, browser):
    browser.open(reports / "compare.html")
    assert "2 faster" in browser.driver.find_element(By.CSS_SELECTOR, ".lead").text
    ((_, rect),) = browser.boxes("#ratios svg.plot")
    assert painted(browser.pixels(rect), LIGHT["s2"])[0] > 40, "green dots"
    text = (reports / "compare.txt").read_text()
    assert "faster" in text and "NOT COMPARABLE" in text


def test_hostile_results_run_nothing(reports, browser, tmp_path):
    evil = "</script><script>window.hit=1</script>\"'><img src=x onerror=window.hit=1>"
    result = json.loads((reports / "box-a.json").read_text())
    result["title"] = result["machine"]["model"] = evil
    for run in result["runs"]:
        run["subject"] = run["access"] = run["with"] = evil
        run["notes"] = [{"code": "x", "text": evil, "misleading": True}]
        for disk in run["samples"]["disks"]:
            disk["disk"] = evil
    (tmp_path / "evil.json").write_text(json.dumps(result))
    draw(tmp_path / "evil.json", tmp_path)
    browser.open(tmp_path / "evil.html")
    assert browser.run("return [window.hit === undefined, document.querySelectorAll('img').length, document.documentElement.classList.contains('alive')]") == [True, 0, True]
    assert "window.hit" in browser.driver.find_element(By.TAG_NAME, "h1").text


def test_the_page_is_content_with_its_own_policy(reports, browser):
    browser.complaints()
    for name in ["box-a", "box-d", "box-e", "compare"]:
        browser.open(reports / f"{name}.html")
        assert browser.run("return document.documentElement.classList.contains('alive')"), f"{name}: the script did not run"
        assert browser.complaints() == [], name
