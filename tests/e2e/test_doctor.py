"""`larder doctor`: the boxes of the field and their builders' verdicts, contradictions, this machine, --fix, and bottlenecks made on purpose."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from larderd import ROOT, Larder, binary, run
from others import free_port
from waiting import listens, wait_for

BOXES = ROOT / "crates/measure/fixtures/boxes"


def test_the_pi_box_in_one_sentence():
    text = run("doctor", BOXES / "pi.toml", check=True).stdout
    first = " ".join(text.splitlines()[:2])
    assert "limited by the server's processor: 1 of 4 cores full; reading (108 MB/s) by gigabit Ethernet" in first, text
    assert "would help, the most first:" in text and "at most 216 MB/s (+108 MB/s, +100 %)" in " ".join(text.split()), text
    found = json.loads(run("doctor", BOXES / "pi.toml", "--json", check=True).stdout)
    assert found["version"] == 2 and found["findings"][0]["limit"] == "the PCIe 2.0 x1 link"
    assert found["findings"][0]["resource"] == {"kind": "link", "at": 0}
    assert len(found["advice"]) <= 3 and found["advice"][0]["gain_percent"] >= 99.9


@pytest.mark.parametrize("box, words", [
    ("nvme", ["all 8 cores full", "NVMe in the PCIe 3.0 slot is slower than its siblings"]),
    ("usb", ["reading (12 MB/s) by 100 Mbit Ethernet"]),
    ("raidz", ["nothing is wrong, the wire is full"]),
    ("laptop", ["with laptop, SMB client A (20 MB/s) is probably limited by the client's side: SMB client B gets 95 MB/s"]),
])
def test_every_box_has_its_builders_verdict(box, words):
    text = " ".join(run("doctor", BOXES / f"{box}.toml", check=True).stdout.split())
    assert all(word in text for word in words), text


def test_the_chain_and_other_parts_are_shown():
    why = " ".join(run("doctor", BOXES / "pi.toml", "--why", check=True).stdout.split())
    assert "decided: a core is full" in why and "decided: a limit is reached" in why, why
    text = " ".join(run("doctor", BOXES / "pi.toml", "--assume", "nic=2.5g", check=True).stdout.split())
    assert "Pi box with nic=2.5g" in text and "216 MB/s" in text, text
    done = run("doctor", BOXES / "pi.toml", "--assume", "colour=red")
    assert done.returncode == 1 and "'colour' cannot be assumed" in done.stderr, done
    plan = json.loads(run("doctor", "--plan", BOXES / "raidz.toml", "--json", check=True).stdout)
    assert {way["of"] for way in plan["ways"]} >= {"read", "write"} and all(way["limit"] for way in plan["ways"]), plan


def test_a_bad_description_names_its_fault(folder):
    bad = folder / "box.toml"
    bad.write_text('name = "x"\n[[disk]]\nname = "d"\nread = "fast"\n')
    done = run("doctor", bad)
    assert done.returncode == 1 and "'fast' is not a rate" in done.stderr and "action:" in done.stderr
    assert run("doctor", folder / "missing").returncode == 1


def test_a_contradiction_gets_a_question(folder):
    box = folder / "box.toml"
    box.write_text('name = "x"\ndisk = [{ name = "d", kind = "hdd", count = 4, read = "200MB/s" }]\n'
                   'network = { name = "gigabit", limit = "940Mbit/s" }\n'
                   'measured = [{ path = "share", what = "read", rate = "900MB/s" }]\n')
    done = run("doctor", box)
    assert done.returncode == 4 and "contradicts itself" in done.stdout and "Do you mean 900 Mbit/s" in " ".join(done.stdout.split()), done
    assert json.loads(run("doctor", box, "--json").stdout)["advice"] == []


def test_this_machine_is_read():
    found = json.loads(run("doctor", "--no-smart", "--json", check=True).stdout)
    assert found["reading"]["processor"]["cores"] == os.cpu_count()
    assert found["reading"]["busy"]["seconds"] >= 1 and found["diagnosis"]["verdict"]
    text = run("doctor", "--no-smart", check=True).stdout
    assert "machine: " in text and "measure: larder bench all" in " ".join(text.split()) and "\x1b" not in text


# What can be changed, and what somebody reads on a terminal.


def recorded(folder):
    """A machine with a governor to change and a disk to schedule."""
    root = folder / "machine"
    files = {
        "proc/sys/kernel/hostname": "pi",
        "proc/sys/net/ipv4/tcp_rmem": "4096 131072 6291456",
        "sys/devices/system/cpu/cpu0/online": "1",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "powersave",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_available_governors": "powersave performance",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_driver": "cpufreq-dt",
        "proc/sys/net/ipv4/tcp_window_scaling": "0",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def at_terminal(answers, *args):
    """Runs larder on a terminal of its own and types the answers; what it wrote."""
    here, there = pty.openpty()
    child = subprocess.Popen([binary(), *map(str, args)], stdin=there, stdout=there, stderr=there, close_fds=True)
    os.close(there)
    os.write(here, answers.encode())
    text = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(here, 65536):
            text += chunk
    os.close(here)
    assert child.wait(timeout=30) == 0
    return text.decode()


def test_fixes_are_asked_for_and_taken_back(folder):
    root = recorded(folder)
    governor = root / "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
    scaling = root / "proc/sys/net/ipv4/tcp_window_scaling"
    shown = run("doctor", "--root", root, "--fix", check=True).stdout
    assert "echo 'performance' > /sys/devices/system/cpu" in shown and "nothing was changed" in shown
    assert governor.read_text() == "powersave\n"
    # Two are offered, the governor first: yes to it, no to the other.
    text = at_terminal("yes\nno\n", "doctor", "--root", root, "--fix")
    assert "Type yes:" in text and "to take it back: larder doctor --undo" in text, text
    assert (governor.read_text(), scaling.read_text()) == ("performance\n", "0\n"), text
    undone = run("doctor", "--root", root, "--undo", check=True).stdout
    assert "is 'powersave' again" in undone and governor.read_text() == "powersave\n"
    assert "nothing was changed" in run("doctor", "--root", root, "--undo", check=True).stdout


# Bottlenecks made on purpose: each must be named.


def sh(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@contextlib.contextmanager
def two_machines():
    """Two network namespaces with a wire between them; their names and the second one's address."""
    near, far = f"ldn{os.getpid()}", f"ldf{os.getpid()}"
    made = []
    try:
        for space in (near, far):
            sh("ip", "netns", "add", space)
            made.append(space)
        sh("ip", "link", "add", "eth0", "netns", near, "type", "veth", "peer", "name", "eth0", "netns", far)
        for space, address in ((near, "10.99.7.1/24"), (far, "10.99.7.2/24")):
            sh("ip", "-n", space, "addr", "add", address, "dev", "eth0")
            for link in ("lo", "eth0"):
                sh("ip", "-n", space, "link", "set", link, "up")
        yield near, far, "10.99.7.2"
    finally:
        for space in made:
            subprocess.run(["ip", "netns", "del", space])


@contextlib.contextmanager
def control_group(controller, files):
    """A control group with these limits, in version 2 or 1: a command's beginning that runs the rest in it."""
    base = Path("/sys/fs/cgroup")
    unified = (base / "cgroup.controllers").exists()
    group = (base if unified else base / controller) / f"larder-doctor-{os.getpid()}"
    if unified:
        (base / "cgroup.subtree_control").write_text(f"+{'io' if controller == 'blkio' else controller}")
    group.mkdir()
    try:
        for name, text in files(unified).items():
            (group / name).write_text(text)
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
    finally:
        for _ in range(50):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


def measure(folder, *args, inside=()):
    """`larder bench ...`, run by the command's beginning `inside`, and the file with its result."""
    words = [*inside, binary(), "bench", *args, "--repeats", "1", "--output", folder / "history", "--json"]
    file = folder / "bench.json"
    file.write_text(sh(*words))
    return file


def verdict(file, inside=()):
    """What the doctor says of a bench, beside what it was concluded from."""
    words = [str(word) for word in (*inside, binary(), "doctor", "--no-smart", "--bench", file, "--json")]
    done = subprocess.run(words, capture_output=True, text=True)
    found = json.loads(done.stdout)["diagnosis"]
    assert done.returncode == 0, found["questions"]
    told = [(run["subject"], run["workload"]["kind"], run["repeats"][0]["bytes_per_s"] / 1e6, run["saturated"])
            for run in json.loads(file.read_text())["runs"]]
    print(found["verdict"], *told, sep="\n")
    return found


def undisturbed(bench):
    """What `bench` measures and the doctor says of it; measured again when this machine's own host was what it named."""
    for _ in range(4):
        file, found = bench()
        if "virtual machine's host" not in found["verdict"]:
            break
    return file, found


class Served(Larder):
    """A larder that a command's beginning starts: in a network namespace, in a control group, on one core."""

    def __init__(self, folder, inside, address="127.0.0.1", **options):
        super().__init__([folder / "served"], folder / "data", layout="stripe", extra=["--squash", "none"], **options)
        self.inside, self.address = list(inside), address
        # The client is in a namespace of its own: another machine.
        self.extra += ["--nfs-allow", "private"]

    def command(self):
        return [*map(str, self.inside), *(word.replace("127.0.0.1", self.address) for word in super().command())]

    @property
    def url(self):
        return f"nfs://{self.address}:{self.nfs_port}{self.export}"

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.end()


@contextlib.contextmanager
def listening(inside):
    port = free_port()
    words = [*inside, binary(), "bench", "net", "--listen", "--port", port, "--seconds", "300"]
    other_end = subprocess.Popen([str(w) for w in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: listens(other_end, port))
        yield port
    finally:
        other_end.terminate()
        other_end.wait(20)


# Rates and times are asserted from here on: nothing else runs beside these.
@pytest.mark.alone
def test_a_shaped_wire_is_named(folder):
    with contextlib.ExitStack() as stack:
        near, far, address = stack.enter_context(two_machines())
        for space in (near, far):
            sh("tc", "-n", space, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "100mbit", "burst", "32k", "latency", "50ms")
        here, there = (["ip", "netns", "exec", space] for space in (near, far))
        server = stack.enter_context(Served(folder, there, address))
        port = stack.enter_context(listening(there))

        def bench():
            file = measure(folder, "all", "--host", address, "--port", port, "--share", server.url, "--size", "16M", "--seconds", "2",
                           "--only", "read,write,send,receive", inside=here)
            return file, verdict(file, here)

        file, found = undisturbed(bench)
    runs = json.loads(file.read_text())["runs"]
    assert {run["layer"] for run in runs} == {"net", "share"}
    assert all(5e6 < run["repeats"][0]["bytes_per_s"] < 12.5e6 for run in runs)
    for way in ("reading over the network", "writing over the network"):
        (sentence,) = [f["sentence"] for f in found["findings"] if f["title"].startswith(way)]
        assert "limited by 100 Mbit Ethernet" in sentence, sentence
    assert "100 Mbit Ethernet" in found["verdict"], found["verdict"]
    assert found["advice"] and "gigabit Ethernet" in found["advice"][0]["what"] and found["advice"][0]["gain_mb_per_s"] > 50, found["advice"]


@contextlib.contextmanager
def burning():
    """Other programs that want every core."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"], stdin=subprocess.DEVNULL) for _ in range(os.cpu_count())]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


@pytest.mark.alone
@pytest.mark.parametrize("shaped, rate", [("out", "200mbit"), ("back", "400mbit")])
def test_a_wire_is_named_beside_other_programs(folder, shaped, rate):
    """Either direction of a wire is shaped, and other programs fill every core: nobody's processor is blamed."""
    with contextlib.ExitStack() as stack:
        near, far, address = stack.enter_context(two_machines())
        sh("tc", "-n", near if shaped == "out" else far, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "64k", "latency", "50ms")
        here, there = (["ip", "netns", "exec", space] for space in (near, far))
        server = stack.enter_context(Served(folder, there, address))
        port = stack.enter_context(listening(there))
        stack.enter_context(burning())

        def bench():
            file = measure(folder, "all", "--host", address, "--port", port, "--share", server.url, "--size", "32M", "--seconds", "2",
                           "--only", "write,send" if shaped == "out" else "read,receive", inside=here)
            return file, verdict(file, here)

        _, found = undisturbed(bench)
    assert "processor" not in found["verdict"] and "cores full" not in found["verdict"], found["verdict"]
    title = "writing over the network" if shaped == "out" else "reading over the network"
    (share,) = [f for f in found["findings"] if f["title"].startswith(title)]
    assert share["class"] == "network", share


@pytest.mark.alone
def test_a_limited_processor_is_named(folder):
    """A larder that may use a twentieth of a core."""
    limits = lambda unified: {"cpu.max": "5000 100000"} if unified else {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "5000"}

    def bench():
        with control_group("cpu", limits) as inside, Served(folder, inside) as server:
            file = measure(folder, "share", server.url, "--size", "64M", "--seconds", "3", "--only", "random-read,random-write")
        # The server is gone: what the bench saw is enough.
        return file, verdict(file)

    _, found = undisturbed(bench)
    assert "the processor time that its control group allows" in found["verdict"], found["verdict"]
    told = " ".join(f["why"] for f in found["findings"])
    assert f"the quota of {Path(binary()).name} (pid " in told and "0.05 cores" in told, told


@pytest.mark.alone
def test_a_busy_core_is_named(folder):
    """A larder and its client that have one core, of several."""
    core = ["taskset", "-c", "0"]

    def bench():
        with Served(folder, core) as server:
            file = measure(folder, "share", server.url, "--size", "64M", "--seconds", "3", "--only", "random-read", inside=core)
        return file, verdict(file)

    _, found = undisturbed(bench)
    assert "processor" in found["verdict"] and "limited by" in found["verdict"], found["verdict"]


@contextlib.contextmanager
def throttled_disk(folder, size_bytes, rate, ways):
    """A loop device that a control group holds at `rate` bytes a second: where it is mounted, and how to run inside the group."""
    image, mount = folder / "disk.img", folder / "mount"
    with open(image, "wb") as file:
        file.truncate(size_bytes)
    mount.mkdir()
    # Otherwise it reads its file through memory, and that would be what is measured.
    loop = sh("losetup", "-f", "--show", "--direct-io=on", image).strip()
    try:
        sh("mkfs.ext4", "-q", loop)
        sh("mount", loop, mount)
        major_minor = Path(f"/sys/class/block/{Path(loop).name}/dev").read_text().strip()

        def limits(unified):
            if unified:
                return {"io.max": f"{major_minor} " + " ".join(f"{way[0]}bps={rate}" for way in ways)}
            return {f"blkio.throttle.{way}_bps_device": f"{major_minor} {rate}" for way in ways}

        with control_group("blkio", limits) as inside:
            yield mount, inside
    finally:
        subprocess.run(["umount", mount])
        subprocess.run(["losetup", "-d", loop])


@pytest.mark.alone
def test_a_throttled_disk_is_named(folder):
    """By itself and as what is mounted there."""
    with throttled_disk(folder, 512 << 20, 8_000_000, ("read", "write")) as (mount, inside):

        def bench():
            file = measure(folder, "all", mount, "--no-pool", "--share", mount, "--size", "16M", "--seconds", "3", "--only", "read", inside=inside)
            return file, verdict(file)

        file, found = undisturbed(bench)
    runs = json.loads(file.read_text())["runs"]
    assert [run["layer"] for run in runs] == ["disk", "share"] and all(run["repeats"][0]["bytes_per_s"] < 10e6 for run in runs)
    assert "limited by the disk itself" in found["verdict"], found["verdict"]


@pytest.mark.alone
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "through-memory"])
def test_a_bench_that_makes_its_data_on_a_slow_disk_can_be_stopped(folder, direct):
    """128 MiB would take half a minute to be flushed. Whatever memory took is flushed before much of it is there."""
    with throttled_disk(folder, 512 << 20, 4_000_000, ("write",)) as (mount, inside):
        # Data that is kept in the journal takes no direct I/O.
        if not direct:
            sh("umount", mount)
            sh("mount", "-o", "data=journal", sh("losetup", "-j", folder / "disk.img").split(":")[0], mount)
        words = [*inside, binary(), "bench", "disk", mount, "--size", "128M", "--seconds", "1", "--only", "read", "--output", folder / "history"]
        process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # It is stopped in the middle of writing.
        wait_for(lambda: [f for f in mount.glob(".larder-bench-*/data") if f.stat().st_blocks * 512 > 8 << 20])
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, said = process.communicate(timeout=60)
        took_s = time.monotonic() - began
        assert process.returncode == 1 and "stopped before anything was measured" in said, said
        assert not list(mount.glob(".larder-bench-*")) and not list((folder / "history").iterdir())
        # It says what it waits for after a second, which this clock and the program's see a little differently.
        assert took_s < (5 if direct else 20) and (took_s > 0.7 if "stopping: what was asked" in said else took_s < 3), (took_s, said)


def test_a_pool_on_a_throttled_disk_writes_no_faster(folder):
    """What a pool takes into its memory counts when it is on the disk."""
    with throttled_disk(folder, 1 << 30, 16_000_000, ("write",)) as (mount, inside):
        file = measure(folder, "pool", mount, "--layouts", "stripe", "--size", "64M", "--seconds", "1", "--only", "write,random-write",
                       "--block", "16M", inside=inside)
    runs = json.loads(file.read_text())["runs"]
    assert {run["workload"]["kind"] for run in runs} == {"write", "random-write"}
    for run in runs:
        (repeat,) = run["repeats"]
        # Two bytes on the disk for each would be possible; less than one is not, but for what the throttle lets pass at first.
        assert repeat["bytes_per_s"] < 24e6 and repeat["bytes"] >= 16 << 20, repeat
