"""Headless Chromium, and what its screenshots show, for tests of pages."""

import base64
import itertools
import struct
import time
import zlib

from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

WIDE, PHONE = (1280, 900), (390, 844)

# Runs out of its plot: text beyond the borders of its picture.
RUNS_OUT = """
const found = [];
for (const svg of document.querySelectorAll("svg.plot")) {
  const box = svg.getBoundingClientRect();
  if (!box.width) continue;
  for (const text of svg.querySelectorAll("text")) {
    const t = text.getBoundingClientRect();
    if (t.width && (t.left < box.left - 2 || t.right > box.right + 2 || t.bottom > box.bottom + 2)) found.push(svg.id + ": " + text.textContent);
  }
}
return found;"""

# Neither ticks, nor legends, nor row labels and values lie on one another.
CLASHES = """
const found = [];
for (const svg of document.querySelectorAll("svg.plot")) {
  if (!svg.getBoundingClientRect().width) continue;
  const boxes = [...svg.querySelectorAll("text")].map((t) => [t.textContent, t.getBoundingClientRect()]);
  boxes.forEach(([a, p], n) => boxes.slice(n + 1).forEach(([b, q]) => {
    const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
    const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    if (across > 1 && down > 4) found.push(`${svg.id}: ${a} | ${b}`);
  }));
}
return found;"""


class Driver(webdriver.Chrome):
    """Waits for an element that a page is to have: after a click the next page may yet have to come."""

    def find_element(self, by=By.ID, value=None):
        end = time.monotonic() + 10
        while True:
            try:
                return super().find_element(by, value)
            except NoSuchElementException:
                if time.monotonic() > end:
                    raise
            time.sleep(0.05)


class Browser:
    def __init__(self, downloads):
        options = webdriver.ChromeOptions()
        for switch in ["headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars", "ignore-certificate-errors"]:
            options.add_argument(f"--{switch}")
        options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = Driver(options=options, service=Service("/usr/bin/chromedriver"))

    def open(self, path, size=WIDE, dark=False, scripts=True):
        self.visit(f"file://{path}", size, dark, scripts)

    def visit(self, url, size=WIDE, dark=False, scripts=True):
        cdp = self.driver.execute_cdp_cmd
        cdp("Emulation.setDeviceMetricsOverride", {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False})
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        cdp("Emulation.setEmulatedMedia", {"media": "", "features": [theme]})
        cdp("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        self.driver.get(url)

    def boxes(self, selector):
        """Id and rectangle on the page of all that are shown, as the browser's layout has them."""
        found = []
        for element in self.driver.find_elements(By.CSS_SELECTOR, selector):
            if element.is_displayed():
                found.append((element.get_attribute("id"), element.rect))
        return found

    def pixels(self, rect):
        """Rows of RGB of one part of the page."""
        clip = {k: rect[k] for k in ("x", "y", "width", "height")} | {"scale": 1}
        how = {"clip": clip, "captureBeyondViewport": True, "optimizeForSpeed": True}
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", how)
        return decode(base64.b64decode(shot["data"]))

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    # What is waited for is one question each: between two the next page may come, and the element is of the page before.
    def shows(self, text, selector="main"):
        """Whether an element has the text that a person sees."""
        return self.run("return [...document.querySelectorAll(arguments[0])].some((one) => one.innerText.includes(arguments[1]))", selector, text)

    def shown(self, selector, text=None):
        """The first element that is laid out, and has exactly the text; none if there is none yet."""
        script = """return [...document.querySelectorAll(arguments[0])].find((one) => one.getClientRects().length &&
            (arguments[1] === null || one.innerText.trim() === arguments[1]))"""
        return self.run(script, selector, text)

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def out_of_the_page(self):
        """What is wider than the page, or than its plot."""
        wide = self.run("return document.documentElement.scrollWidth - window.innerWidth")
        return self.run(RUNS_OUT) + ([f"the page, by {wide} pixels"] if wide > 0 else [])

    def clashes(self):
        return self.run(CLASHES)


def decode(png):
    """PNG of 8 bits per channel, without interlace, as browsers write it (ISO 15948)."""
    at, data = 8, b""
    while at < len(png):
        (length,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        body = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
        elif kind == b"IDAT":
            data += body
        at += 12 + length
    assert depth == 8 and colour in (2, 6)
    step = 3 if colour == 2 else 4
    raw, rows, above = zlib.decompress(data), [], bytearray(width * step)
    for y in range(height):
        start = y * (width * step + 1)
        filtered, line = raw[start], bytearray(raw[start + 1 : start + 1 + width * step])
        if filtered == 1:
            for channel in range(step):
                line[channel::step] = bytes(itertools.accumulate(line[channel::step], lambda left, more: left + more & 255))
        elif filtered == 2:
            line = bytearray(more + up & 255 for more, up in zip(line, above))
        elif filtered == 3:
            for n, more in enumerate(line):
                left = line[n - step] if n >= step else 0
                line[n] = more + (left + above[n]) // 2 & 255
        elif filtered == 4:
            for n, more in enumerate(line):
                left, corner = (line[n - step], above[n - step]) if n >= step else (0, 0)
                up = above[n]
                # How far the guess, left + up - corner, is from each of the three.
                to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
                nearest = left if to_left <= to_up and to_left <= to_corner else up if to_up <= to_corner else corner
                line[n] = more + nearest & 255
        rows.append(list(zip(line[::step], line[1::step], line[2::step])))
        above = line
    return rows


def colour(hexadecimal):
    return tuple(int(hexadecimal[n : n + 2], 16) for n in (1, 3, 5))


def near(a, b):
    return sum(abs(x - y) for x, y in zip(a, b)) < 24


LIGHT = {"s0": "#0072b2", "s1": "#d55e00", "s2": "#00865f", "s3": "#a8457e", "c2": "#d55e00", "c4": "#8a4f9e", "paper": "#ffffff"}
DARK = {"s0": "#5cb3f0", "s1": "#ff8f47", "s2": "#35c996", "s3": "#e48fc4", "c2": "#f07b2e", "c4": "#b07fc6", "paper": "#14181f"}


def painted(rows, wanted):
    """How many pixels have the colour, and how far they reach across."""
    theirs = {pixel for pixel in set().union(*rows) if near(pixel, colour(wanted))}
    found = [x for row in rows for x, pixel in enumerate(row) if pixel in theirs]
    return len(found), (max(found) - min(found) if found else 0)
