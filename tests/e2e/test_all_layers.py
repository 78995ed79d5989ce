"""One `larder bench all` over disks, a pool, the wire and shares of every make, and the page of that very run."""

import json
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from browser import DARK, LIGHT, PHONE, WIDE, colour, near, painted
from conftest import client, make
from larderd import binary, run
from others import PASSWORD, Ganesha, Smbd, Sshd, WebDav, free_port, wait_for_port
from test_bench import bench, check_form, leftovers, result

# Ganesha wants a port mapper on port 111, as the clients of test_nlm.py have one.
pytestmark = pytest.mark.xdist_group("port-111")

BROWSERS = {False: LIGHT, True: DARK}


class Listener:
    """The other end of the wire."""

    def __init__(self):
        self.port = free_port()

    def __enter__(self):
        command = [binary(), "bench", "net", "--listen", "--port", str(self.port), "--seconds", "600"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for_port(self.port, self.process)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)


class Measured:
    """What one run found, and what was there to be measured."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layers")
    found = Measured()
    found.disks = [folder / "a", folder / "b"]
    for disk in found.disks:
        disk.mkdir()
    with ExitStack() as stack:
        daemon = make(folder / "larder", count=2, layout="mirror", extra=["--squash", "none"]).start()
        stack.callback(daemon.end)
        found.daemon = daemon
        ganesha, smbd, sshd, dav = found.others = [
            stack.enter_context(kind(folder / kind.name, folder / f"{kind.name}-files")) for kind in (Ganesha, Smbd, Sshd, WebDav)
        ]
        listener = stack.enter_context(Listener())
        (folder / "password").write_text(PASSWORD + "\n")
        (folder / "other-password").write_text(dav.password + "\n")
        shares = {
            "larder over NFS": (f"nfs://127.0.0.1:{daemon.nfs_port}{daemon.export}", "nfs3"),
            "ganesha": (ganesha.url, "nfs3"),
            "larder over SMB": (f"smb://{daemon.user}@127.0.0.1:{daemon.smb_port}/{daemon.share}", "smb3"),
            "smbd": (smbd.url, "smb3"),
            "sshd": (sshd.url, "sftp"),
            "rclone": (f"{dav.url}?password-file={folder}/other-password", "webdav"),
        }
        # As it is told: without what is secret, or says only how to get there.
        found.shares = {name: (url.split("?")[0], access) for name, (url, access) in shares.items()}
        found.result = result(
            "all", *found.disks, "--host", "127.0.0.1", "--port", listener.port,
            *[word for url, _ in shares.values() for word in ("--share", url)],
            "--password-file", folder / "password", "--key-file", sshd.key, "--output", folder / "history",
            "--size", "64M", "--seconds", "1", "--repeats", "1", "--only", "write,read,send,receive",
        )
        found.history = folder / "history"
        found.kept = found.history / found.result["id"]
        with client(daemon) as nfs:
            found.left_on_larder = [entry.name for entry in nfs.readdir(nfs.root).entries]
        found.left = {other.name: sorted(p.name for p in other.export.iterdir()) for other in found.others}
        yield found


def runs(found, layer):
    return [r for r in found.result["runs"] if r["layer"] == layer]


def rate(one):
    return one["repeats"][0]["bytes_per_s"]


@pytest.mark.long
def test_every_layer_and_access_is_there(measured):
    found = measured.result
    check_form(found)
    assert not found["interrupted"] and [n for n in found["notes"] if n["code"] == "not-measured"] == [], found["notes"]
    both = ["write", "read"]
    kinds = lambda layer: [(r["subject"], r["workload"]["kind"]) for r in runs(measured, layer)]
    a, b = map(str, measured.disks)
    assert kinds("disk") == [(disk, kind) for disk in (a, b) for kind in both]
    assert kinds("disks") == kinds("pool") == [(f"{a}, {b}", kind) for kind in both]
    assert kinds("net") == [("127.0.0.1", kind) for kind in ("send", "receive") * 2]
    assert kinds("share") == [(url, kind) for url, _ in measured.shares.values() for kind in both]
    assert kinds("both") == [(f"{a}, {b}", "read"), ("127.0.0.1", "send"), (f"{a}, {b}", "write"), ("127.0.0.1", "receive")]
    assert [r["access"] for r in runs(measured, "share")][::2] == [access for _, access in measured.shares.values()]


def test_figures_are_plausible(measured):
    for r in measured.result["runs"]:
        (repeat,) = r["repeats"]
        assert 1e6 < rate(r) < 1e11, r["subject"]
        assert rate(r) == pytest.approx(repeat["bytes"] / repeat["seconds"], rel=0.3), r["subject"]
        assert repeat["seconds"] < 20 and repeat["start_ms"] < measured.result["ended_ms"] - measured.result["started_ms"]
        for full in r["saturated"]:
            assert 0 < full["share"] <= 1 and full["from_ms"] <= full["to_ms"]
        for core in r["samples"]["cores"]:
            sums = [sum(core[part][n] for part in ("user", "nice", "system", "iowait", "irq", "steal")) for n in range(len(core["user"]))]
            assert all(0 <= s <= 100.1 for s in sums), sums
    reached = [n["text"] for r in runs(measured, "share") for n in r["notes"] if n["code"] == "reached"][::2]
    for text, begins in zip(reached, ["NFS version 3", "NFS version 3", "SMB 3.1.1", "SMB 3.1.1", "SFTP", "WebDAV"], strict=True):
        assert text.startswith(begins), text


def test_two_folders_of_one_disk_say_nothing_together(measured):
    for r in runs(measured, "disks"):
        assert any(n["code"] == "same-disk" and n["misleading"] for n in r["notes"])
        assert not any(n["code"] in ("sum-holds", "shared-limit") for n in r["notes"])


def test_nothing_is_left_behind(measured):
    assert measured.left == {other.name: [] for other in measured.others}
    assert set(measured.left_on_larder) <= {b".", b".."}
    assert [leftovers(disk) for disk in measured.disks] == [[], []]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    assert not [line for line in mounts if ".larder-bench" in line and str(measured.disks[0].parent) in line]


def test_no_password_is_kept(measured):
    secrets = [PASSWORD.encode(), b"Bread-Bin-17", b"other-password"]
    for file in measured.kept.iterdir():
        assert not any(secret in file.read_bytes() for secret in secrets), file


def test_the_text_names_all_and_fits(measured, monkeypatch):
    for columns in (60, 80, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        text = bench("show", "last", "--output", measured.history).stdout
        assert all(len(line) <= columns for line in text.splitlines()), text
    monkeypatch.setenv("COLUMNS", "250")
    text = bench("show", "last", "--output", measured.history).stdout
    for url, _ in measured.shares.values():
        assert url in text, url
    for word in ("DISK ", "POOL ", "NET ", "SHARE ", "BOTH ", "BY ACCESS", "send, 4 streams"):
        assert word in text, word
    # A note that many runs share is said once, and what the other end told of its memory is not called unknown.
    assert " ".join(text.split()).count("its disks were not asked") == 1
    assert "what the server has in memory is not known" not in text
    assert "(nfs3)" not in text and "mountport" not in text


def drawn(browser, selector, theme):
    """Plots as they are seen: in colours, on the page's paper."""
    boxes = browser.boxes(selector)
    assert boxes, selector
    for name, rect in boxes:
        rows = browser.pixels(rect)
        assert len({pixel for row in rows for pixel in row}) > 20, f"{name} has hardly any colours"
        assert sum(near(pixel, colour(theme["paper"])) for pixel in rows[2]) > len(rows[2]) / 2, name
        yield name, rows


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_its_page_is_drawn(measured, browser, size, dark):
    theme = BROWSERS[dark]
    browser.complaints()
    browser.open(measured.kept / "report.html", size, dark)
    assert browser.complaints() == [] and browser.out_of_the_page() == [] and browser.clashes() == []
    shown = dict(drawn(browser, "#compared-part svg.plot, #latencies-part svg.plot", theme))
    names = {re.sub("-[wn]$", "", name) for name in shown}
    # Runs of a second speak for no layer: there is no chain of them.
    assert "latency" in names and any(name.startswith("by-access") for name in names), names


def test_every_plot_of_every_run_has_something_in_it(measured, browser):
    browser.open(measured.kept / "report.html")
    counts = browser.run(
        """for (const d of document.querySelectorAll("details.run")) d.open = true;
        const seen = [...document.querySelectorAll("svg.plot")].filter((s) => s.getBoundingClientRect().width);
        return seen.map((svg) => [svg.id, [...svg.querySelectorAll(".data path, .row .bar, .row .dot, .row .range")]
          .filter((e) => { const b = e.getBoundingClientRect(); return b.width + b.height > 1; }).length]);"""
    )
    assert len(counts) > 4 * len(measured.result["runs"]), "several of each run"
    assert [name for name, count in counts if not count] == []
    cores = [rect for name, rect in browser.boxes("details.run[open] svg.plot") if name.endswith("cores-w")]
    # A run of a fraction of a second may end between two samples.
    ends = [end for run in measured.result["runs"] for end in ("samples", "far_samples") if run.get(end, {}).get("at_ms")]
    assert len(cores) == len(ends) > len(measured.result["runs"]) / 2
    user = [painted(browser.pixels(rect), LIGHT["c2"])[0] for rect in cores[:3]]
    assert all(count > 200 for count in user), f"system time of the cores: {user}"


def test_one_run_compares_with_itself(measured):
    text = bench("compare", "last", "last", "--output", measured.history).stdout
    assert "ganesha" in text or measured.shares["ganesha"][0][:20] in text


def test_one_subject_that_fails_does_not_take_the_others_with_it(folder, loop_disks):
    (disk,) = loop_disks(32)
    files = disk.mount / "files"
    files.mkdir()
    with open(disk.mount / "filler", "wb", buffering=0) as filler:
        try:
            while filler.write(bytes(1 << 20)):
                pass
        except OSError:
            pass
    smbd = Smbd(folder / "smbd", folder / "files")
    smbd.more = {"full": files}
    (folder / "wrong").write_text("wrong\n")
    (folder / "right").write_text(PASSWORD + "\n")
    with smbd:
        nobody = free_port()
        wrong = f"{smbd.url}?password-file={folder}/wrong"
        shares = [wrong, f"nfs://127.0.0.1:{nobody}/x", smbd.url_of("sealed"), smbd.url_of("full"), smbd.url_of("none"), smbd.url]
        common = ("--password-file", folder / "right", "--output", folder / "history", "--size", "32M", "--seconds", "1", "--repeats", "1")
        done = bench("all", "--host", "127.0.0.1", "--port", nobody, *[w for s in shares for w in ("--share", s)], *common,
                     "--only", "write,read,send", "--json")
        found = json.loads(done.stdout)
        assert [(r["subject"], r["workload"]["kind"]) for r in found["runs"]] == [(smbd.url, "write"), (smbd.url, "read")]
        notes = [n["text"] for n in found["notes"] if n["code"] == "not-measured"]
        assert len(notes) == 6, notes
        for note, words in zip(notes, [
            (smbd.url, "does not accept user root", "check both"),
            (f"nfs://127.0.0.1:{nobody}/x", "refused", "start the service"),
            (smbd.url_of("none"), "not found"),
            ("127.0.0.1: ", "send, 1 stream, send, 4 streams", "refused", "bench net --listen"),
            (smbd.url_of("sealed"), "write 1 MiB x16, read 1 MiB x16", "denied", "who may write there"),
            (smbd.url_of("full"), "no space left", "free some space"),
        ], strict=True):
            assert all(word in note for word in words), note
        # Without a size of one's own, too.
        done = run("bench", "share", smbd.url_of("full"), "--password-file", folder / "right", "--output", folder / "history")
        assert done.returncode == 1 and "too little" in done.stderr and "action: free some space there" in done.stderr, done.stderr
        missing = run("bench", "share", f"{smbd.url}?password-file={folder}/none", "--output", folder / "history")
        assert missing.returncode == 1 and "cannot read" in missing.stderr or "the password in" in missing.stderr, missing.stderr
    assert sorted(p.name for p in (folder / "files").iterdir()) == sorted(p.name for p in files.iterdir()) == []
