"""Found by others: multicast DNS and WS-Discovery between two network namespaces, with a client of the standard library."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import make
from waiting import wait_for

CLIENT = Path(__file__).with_name("discovery_client.py")
HERE, THERE = "10.213.7.1", "10.213.7.2"


@pytest.fixture
def wire():
    """Two namespaces with one wire between them: the box's and the client's."""
    box, client = f"larder-box-{os.getpid()}", f"larder-cli-{os.getpid()}"
    ip = lambda *words: subprocess.run(["ip", *words], check=True)
    for name in (box, client):
        ip("netns", "add", name)
    try:
        ip("link", "add", "lan", "netns", box, "type", "veth", "peer", "name", "lan", "netns", client)
        for name, address in ((box, HERE), (client, THERE)):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "lan")
            ip("-n", name, "link", "set", "lan", "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "route", "add", "224.0.0.0/4", "dev", "lan")
        yield box, client
    finally:
        for name in (box, client):
            subprocess.run(["ip", "netns", "del", name], check=False)


def asked(client, *words):
    done = subprocess.run(
        ["ip", "netns", "exec", client, sys.executable, CLIENT, "mdns", THERE, *words],
        capture_output=True, text=True, timeout=120, check=True,
    )
    return json.loads(done.stdout)


def boxed(folder, box, nfs, smb, *extra):
    """A larder in a namespace: `ip netns exec` becomes the program, so its pid is the daemon's."""
    daemon = make(folder, extra=extra)
    words = daemon.command()
    for flag, address in (("--nfs", nfs), ("--smb", smb)):
        words[words.index(flag) + 1] = address
    daemon.command = lambda: ["ip", "netns", "exec", box, *words]
    return daemon


def test_found_by_finder_and_explorer_until_it_stops(folder, wire):
    box, client = wire
    daemon = boxed(folder, box, "0.0.0.0:12049", "0.0.0.0:445", "--sftp", "0.0.0.0:10022", "--nfs-allow", THERE)
    toml = daemon.data / "larder.toml"
    daemon.start()
    daemon.stop()
    toml.write_text(toml.read_text() + '\n[discovery]\nname = "pantry"\n')
    daemon.start()
    explorer = subprocess.Popen(
        ["ip", "netns", "exec", client, sys.executable, CLIENT, "wsd", THERE], stdout=subprocess.PIPE, text=True
    )
    try:
        found = asked(client, "_smb._tcp.local")
        of = lambda kind: [r for r in found if r["type"] == kind]
        assert any(r["value"] == "pantry._smb._tcp.local" for r in of("PTR")), found
        assert any(r["value"] == [445, "pantry.local"] for r in of("SRV")), found
        assert {r["value"] for r in of("A")} == {HERE} and {r["sender"] for r in found} == {HERE}, found
        found = asked(client, "_nfs._tcp.local")
        assert any(r["type"] == "TXT" and r["value"] == ["path=/files"] for r in found), found
        assert any(r["type"] == "PTR" and r["value"] == "files on pantry._nfs._tcp.local" for r in found), found

        seen = json.loads(explorer.stdout.readline())
        assert seen["computer"] == "pantry/Workgroup:WORKGROUP" and seen["place"].startswith(f"http://{HERE}:5357/"), seen

        # A share that comes is announced, one that goes is taken back.
        daemon.run("share", "add", "films", "--volume", "files", "--folder", "films", check=True)
        found = asked(client, "_nfs._tcp.local")
        assert any(r["value"] == "films on pantry._nfs._tcp.local" for r in found), found
        assert daemon.stop() == 0
        # A Hello, which is said twice, may come late.
        said = [json.loads(explorer.stdout.readline())["action"]]
        if said == ["Hello"]:
            said.append(json.loads(explorer.stdout.readline())["action"])
        assert said[-1] == "Bye", said
    finally:
        explorer.kill()
        explorer.wait()
        daemon.end()


def test_a_flood_of_what_announces_is_borne(folder, wire):
    box, client = wire
    daemon = boxed(folder, box, "0.0.0.0:12049", "0.0.0.0:445")
    daemon.start()
    try:
        asked(client, "_smb._tcp.local")
        before = daemon.rss_bytes()
        flood = subprocess.Popen(["ip", "netns", "exec", client, "nice", "-n", "19", sys.executable, CLIENT, "flood", HERE, "4"],
                                 stdout=subprocess.PIPE, text=True)
        most, answers = before, []
        while flood.poll() is None:
            most = max(most, daemon.rss_bytes())
            began = time.monotonic()
            assert daemon.run("pool", "status").returncode == 0
            answers.append(time.monotonic() - began)
        sent = json.loads(flood.stdout.read())["sent"]
        print(f"\n{sent} requests: RSS +{(most - before) >> 20} MiB, a command took {max(answers):.2f} s at most")
        assert sent > 100 and most < before + (32 << 20) and max(answers) < 5
        assert asked(client, "_smb._tcp.local"), "it is found as before"
        log = daemon.log()
        assert daemon.stop() == 0 and "panicked" not in log, log[-3000:]
    finally:
        daemon.end()


def test_nothing_is_announced_on_loopback_or_when_it_is_off(folder, wire):
    box, _ = wire

    def sockets(daemon):
        done = subprocess.run(["ip", "netns", "exec", box, "ss", "-Hulnp"], capture_output=True, text=True, check=True)
        return [line for line in done.stdout.splitlines() if f"pid={daemon.pid}," in line]

    quiet = boxed(folder, box, "127.0.0.1:12049", "127.0.0.1:445").start()
    assert sockets(quiet) == []
    assert quiet.stop() == 0
    # A share that nobody else may mount is not announced.
    here_alone = boxed(folder, box, "0.0.0.0:12049", "127.0.0.1:445").start()
    assert sockets(here_alone) == []
    assert here_alone.stop() == 0
    open_to_all = boxed(folder, box, "0.0.0.0:12049", "0.0.0.0:445").start()
    try:
        wait_for(lambda: {line.split()[3].rsplit(":", 1)[1] for line in sockets(open_to_all)} >= {"5353", "3702"})
        toml = open_to_all.data / "larder.toml"
        toml.write_text(toml.read_text() + "\n[discovery]\nenabled = false\n")
        open_to_all.run("reload", check=True)
        assert sockets(open_to_all) == []
        assert open_to_all.stop() == 0
    finally:
        quiet.end()
        open_to_all.end()
