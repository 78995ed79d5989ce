"""A bench watches both ends: `larder bench net --listen` offers what its machine does, and the doctor names the end that is the limit."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from larderd import Larder, binary, run
from others import free_port
from waiting import listens, wait_for

# Rates and full cores are asserted: nothing else runs beside it.
alone = pytest.mark.alone

HELLO = {"magic": "larder-far-end", "version": 1, "at_ms": 5000}


def sh(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


class Box:
    """A machine of one core: a network namespace whose processes may use a part of a processor, and see nothing but that part.

    As in a container: /proc/stat is made from what the control group used, so what else this machine does is not seen.
    """

    PERIOD_US = 50_000

    def __init__(self, name, address, cores, folder):
        self.space, self.address, self.cores = name, address, cores
        self.stat = folder / f"{name}.stat"
        base = Path("/sys/fs/cgroup")
        self.unified = (base / "cgroup.controllers").exists()
        if self.unified:
            (base / "cgroup.subtree_control").write_text("+cpu")
        folders = [base] if self.unified else [base / "cpu", base / "cpuacct"]
        self.groups = list(dict.fromkeys((f / name).resolve() for f in folders))
        for group in self.groups:
            group.mkdir(exist_ok=True)
        quota = str(int(cores * self.PERIOD_US))
        if self.unified:
            (self.groups[0] / "cpu.max").write_text(f"{quota} {self.PERIOD_US}")
        else:
            (self.groups[0] / "cpu.cfs_period_us").write_text(str(self.PERIOD_US))
            (self.groups[0] / "cpu.cfs_quota_us").write_text(quota)
        self.over = threading.Event()
        self.write(0, 0)
        self.thread = threading.Thread(target=self.tell)
        self.thread.start()

    def used_us(self):
        if self.unified:
            return int(next(line.split()[1] for line in open(self.groups[0] / "cpu.stat") if line.startswith("usage_usec")))
        return int((self.groups[-1] / "cpuacct.usage").read_text()) // 1000

    def write(self, busy, idle):
        fields = f"0 0 {busy:015d} {idle:015d} 0 0 0 0 0 0"
        with open(self.stat, "r+b" if self.stat.exists() else "wb") as file:
            os.pwrite(file.fileno(), f"cpu  {fields}\ncpu0 {fields}\n".encode(), 0)

    def tell(self):
        start, used, idle = time.monotonic(), self.used_us(), 0
        while not self.over.wait(0.02):
            busy = int((self.used_us() - used) / self.cores)
            idle = max(idle, int((time.monotonic() - start) * 1e6) - busy)
            self.write(busy, idle)

    def inside(self):
        """A command's beginning that runs the rest in here."""
        join = "".join(f"echo $$ > {group}/cgroup.procs; " for group in self.groups)
        return ["sh", "-c", f'{join}exec ip netns exec {self.space} sh -c \'mount --bind {self.stat} /proc/stat; exec "$@"\' sh "$@"', "sh"]

    def close(self):
        self.over.set()
        self.thread.join()
        for group in self.groups:
            for _ in range(100):
                with contextlib.suppress(OSError):
                    group.rmdir()
                    break
                time.sleep(0.1)


@contextlib.contextmanager
def two_boxes(folder, near=1.0, far=1.0):
    """Two machines and a wire between them, each with so much of a core."""
    names = [f"lfn{os.getpid()}", f"lff{os.getpid()}"]
    boxes, made = [], []
    try:
        for space in names:
            sh("ip", "netns", "add", space)
            made.append(space)
        sh("ip", "link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1])
        for n, (space, cores) in enumerate(zip(names, (near, far)), 1):
            sh("ip", "-n", space, "addr", "add", f"10.99.8.{n}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                sh("ip", "-n", space, "link", "set", link, "up")
            boxes.append(Box(space, f"10.99.8.{n}", cores, folder))
        yield boxes
    finally:
        for box in boxes:
            box.close()
        for space in made:
            subprocess.run(["ip", "netns", "del", space])


def connects(address):
    with socket.socket() as probe:
        return probe.connect_ex(address) == 0


@contextlib.contextmanager
def listening(*args, inside=()):
    """`larder bench net --listen`, until it is interrupted: then it ends in order."""
    process = subprocess.Popen([*inside, binary(), "bench", "net", "--listen", "--seconds", "300", *map(str, args)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: listens(process) or process.poll() is not None)
        yield process
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0, process.stderr.read()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@contextlib.contextmanager
def iperf3(port, inside=()):
    server = subprocess.Popen([*inside, "iperf3", "-s", "-p", str(port)], stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: listens(server, port))
        yield
    finally:
        server.kill()
        server.wait()


def bench(folder, *args, inside=()):
    command = [*inside, binary(), "bench", *map(str, args), "--output", str(folder / "history"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def codes(found):
    return [note["code"] for note in found["notes"]]


ONE = ["--seconds", "1", "--repeats", "1"]


@alone
def test_each_end_contributes_its_own_samples(folder):
    with two_boxes(folder) as (near, far), listening(inside=far.inside()):
        found = bench(folder, "net", far.address, "--seconds", "2", "--repeats", "2", "--only", "send,receive", inside=near.inside())
        assert "far-end-unwatched" not in codes(found) and "far-end-lost" not in codes(found), found["notes"]
        machine = found["far_machine"]
        assert (machine["name"], machine["version"], machine["machine"]["host"]) == (far.address, 1, os.uname().nodename)
        assert machine["machine"]["cores"] == 1
        for one in found["runs"]:
            start = one["repeats"][0]["start_ms"]
            for samples in (one["samples"], one["far_samples"]):
                assert len(samples["cores"]) == 1 and len(samples["at_ms"]) >= 5, samples["at_ms"]
                assert all(start < at < start + 15_000 for at in samples["at_ms"])
            # What one end sends, the other receives, and each says so by itself.
            ways = ("send_bytes_per_s", "receive_bytes_per_s")
            there, back = ways if one["workload"]["kind"] == "send" else reversed(ways)
            mean = lambda samples, way: sum(samples["nets"][0][way]) / len(samples["at_ms"])
            assert mean(one["samples"], there) == pytest.approx(mean(one["far_samples"], back), rel=0.4)
    text = run("bench", "show", "--cores", "--output", folder / "history", check=True).stdout
    assert f"far end  {far.address}: " in text and f"at the far end, {far.address}:" in text, text
    page = folder / "page.html"
    run("bench", "show", "--output", folder / "history", "--html", page, check=True)
    assert "<dt>Far end</dt>" in page.read_text() and "Where the cores' time went, at the far end" in page.read_text().replace("&#39;", "'")


LIMITS = [(1.0, 0.1, "the processor of 10.99.8.2: 1 of 1 cores full"), (0.1, 1.0, f"the client's processor ({os.uname().nodename}): 1 of 1 cores full")]


def verdict(folder, found):
    file = folder / "bench.json"
    file.write_text(json.dumps(found))
    said = json.loads(run("doctor", "--no-smart", "--bench", file, "--json", check=True).stdout)["diagnosis"]["verdict"]
    print(said)
    return said


@alone
@pytest.mark.parametrize("near_cores, far_cores, words", LIMITS)
def test_the_end_that_is_busy_is_named(folder, near_cores, far_cores, words):
    with two_boxes(folder, near_cores, far_cores) as (near, far), listening(inside=far.inside()):
        found = bench(folder, "net", far.address, "--seconds", "6", "--repeats", "1", "--only", "send", inside=near.inside())
    full = [s["what"] for s in found["runs"][0]["saturated"]]
    assert (f"{far.address}: core 0" in full, "core 0" in full) == (far_cores < 1, near_cores < 1), full
    assert words in verdict(folder, found)


@alone
@pytest.mark.parametrize("near_cores, far_cores, words", [
    (1.0, 0.12, "the processor of 10.99.8.2: "), (0.03, 1.0, f"the client's processor ({os.uname().nodename}): ")])
def test_a_share_names_the_end_that_is_busy(folder, near_cores, far_cores, words):
    with two_boxes(folder, near_cores, far_cores) as (near, far):
        class There(Larder):
            def command(self):
                return [*far.inside(), *(part.replace("127.0.0.1:0", f"{far.address}:0") for part in super().command())]

        served = There([folder / f"disk{n}" for n in (1, 2, 3)], folder / "data", extra=["--nfs-allow", near.address]).start(timeout_s=120)
        try:
            url = f"nfs://{far.address}:{served.nfs_port}{served.export}"
            with listening(inside=far.inside()):
                found = bench(folder, "share", url, "--host", far.address, "--size", "128M", "--seconds", "6", "--repeats", "1",
                              "--only", "random-write", inside=near.inside())
        finally:
            served.end()
    assert found["runs"][0]["far_samples"]["cores"], found["notes"]
    assert words in verdict(folder, found), found["runs"][0]["saturated"]


def test_nobody_watches_the_other_end(folder):
    port = free_port(2)
    with iperf3(port):
        found = bench(folder, "net", "127.0.0.1", "--port", port, *ONE, "--only", "send")
    # Once, for one stream and for four.
    assert codes(found).count("far-end-unwatched") == 1 and len(found["runs"]) == 2
    note = next(n["text"] for n in found["notes"] if n["code"] == "far-end-unwatched")
    assert "refused" in note and f"port {port + 1}" in note and "larder bench net --listen" in note, note
    assert "far_machine" not in found and all("far_samples" not in r for r in found["runs"])


def test_a_far_end_that_goes_away_is_a_note(folder):
    port, other = free_port(2), free_port(2)
    with iperf3(port), listening("--port", other, "--samples-port", other + 1) as far:
        wait_for(lambda: connects(("127.0.0.1", other + 1)))
        threading.Timer(3, far.kill).start()
        found = bench(folder, "net", "127.0.0.1", "--port", port, "--samples-port", other + 1, "--seconds", "2", "--repeats", "3", "--only", "send")
        far.wait()
    assert "far-end-lost" in codes(found) and len(found["runs"][0]["repeats"]) == 3, found["notes"]
    assert "far_samples" not in found["runs"][0] and found["interrupted"] is False


def test_ctrl_c_at_the_near_end_leaves_the_far_one_waiting(folder):
    port = free_port(2)
    with listening("--port", port) as far:
        wait_for(lambda: connects(("127.0.0.1", port + 1)))
        command = [binary(), "bench", "net", "127.0.0.1", "--port", str(port), "--seconds", "20", "--repeats", "1", "--output", str(folder / "history")]
        near = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(3)
        near.send_signal(signal.SIGINT)
        _, err = near.communicate(timeout=30)
        assert near.returncode == 1 and "stopped" in err, err
        time.sleep(1)
        found = bench(folder, "net", "127.0.0.1", "--port", port, *ONE, "--only", "send")
        assert found["runs"][0]["far_samples"]["cores"] and far.poll() is None


class Liar:
    """Says this to whoever comes."""

    def __init__(self, *says, endless=False):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.says, self.endless = says, endless
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.socket.accept()
                with contextlib.suppress(OSError), client:
                    for line in self.says:
                        client.recv(65536)
                        client.sendall(line)
                    while self.endless:
                        client.sendall(b"x" * 65536)
                    client.recv(65536)

    def close(self):
        self.socket.close()


FACTS = {"host": "\x1b[2Jnas", "model": "", "processor": "", "cores": 1, "memory_bytes": 1, "kernel": "\u202ek"}
WELCOME = json.dumps({**HELLO, "larder": "\x1b]0;x\x07", "machine": FACTS}).encode() + b"\n"


@pytest.mark.parametrize("says, endless, code", [
    ([], True, "far-end-unwatched"),
    ([b"220 mail ready\r\n"], False, "far-end-unwatched"),
    ([WELCOME, b'{"done":true}\n', b'{"done":true}\n', b'{"samples":{"at_ms":[70000000],"cores":[]}}\n'], False, "far-end-lost"),
    ([WELCOME, b'{"error":"\\u001b[31mgo away"}\n'], False, "far-end-lost"),
])
def test_a_hostile_far_end_does_no_harm(folder, says, endless, code):
    port, liar = free_port(2), Liar(*says, endless=endless)
    try:
        with iperf3(port):
            found = bench(folder, "net", "127.0.0.1", "--port", port, "--samples-port", liar.port, *ONE, "--only", "send")
    finally:
        liar.close()
    assert code in codes(found) and found["runs"] and "far_samples" not in found["runs"][0], found["notes"]
    said = json.dumps({k: found.get(k) for k in ("notes", "far_machine")}, ensure_ascii=False)
    assert not re.search("\\\\u00|[\x00-\x1f\u202e]", said), said


def test_a_stranger_at_the_listener_does_no_harm(folder):
    port = free_port(2)
    with listening("--port", port) as far:
        wait_for(lambda: connects(("127.0.0.1", port + 1)))
        at = ("127.0.0.1", port + 1)
        for text in (b"GET / HTTP/1.0\r\n\r\n", b"\x00" * 100_000, b"[" * 900 + b"\n", b'{"magic":"larder-far-end"}\n'):
            with socket.create_connection(at) as stranger, contextlib.suppress(OSError):
                stranger.sendall(text)
                stranger.settimeout(10)
                assert stranger.recv(100) == b"", text
        # As many as it takes to fill all places: who says nothing does not keep his.
        silent = [socket.create_connection(at) for _ in range(40)]
        time.sleep(7)
        found = bench(folder, "net", "127.0.0.1", "--port", port, *ONE, "--only", "send")
        assert found["runs"][0]["far_samples"]["cores"], found["notes"]
        # One that watches when it is interrupted is let go.
        with socket.create_connection(at) as visitor:
            visitor.sendall(json.dumps(HELLO).encode() + b"\n" + b'{"ask":"look"}\n')
            assert b"larder-far-end" in visitor.recv(65536)
            far.send_signal(signal.SIGINT)
            assert far.wait(10) == 0
        for one in silent:
            one.close()


def test_a_port_that_is_taken_has_a_way_out():
    port = free_port(2)
    with socket.create_server(("127.0.0.1", port + 1)):
        done = subprocess.run([binary(), "bench", "net", "--listen", "--port", str(port)], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and f"port {port + 1}" in done.stderr and "--samples-port" in done.stderr, done.stderr


def test_a_share_elsewhere_is_not_taken_for_the_far_end(folder, fresh):
    port = free_port(2)
    with listening("--port", port):
        wait_for(lambda: connects(("127.0.0.1", port + 1)))
        url = f"nfs://127.0.0.1:{fresh.nfs_port}{fresh.export}"
        args = ["--samples-port", port + 1, "--size", "16M", *ONE, "--only", "read"]
        other = bench(folder, "share", url, "--host", "127.0.0.2", *args)
        assert "far-end-elsewhere" in codes(other) and "far_samples" not in other["runs"][0]
        same = bench(folder, "share", url, "--host", "localhost", *args)
        assert same["runs"][0]["far_samples"]["cores"] and same["far_machine"]["name"] == "localhost"
