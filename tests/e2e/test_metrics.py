"""Metrics: their text is what Prometheus reads, and their values are what was done."""

import json
import re
import socket

from conftest import client, make, payload
from larderd import ROOT
from test_smb import smb
from waiting import wait_for

SAMPLE = re.compile(r'^([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\]|\\.)*",?)*\})? (-?[0-9.]+(?:e-?\d+)?)$')


def scrape(text):
    """All samples, as `promtool check metrics` would have them: typed before use, each name in one block."""
    types, values, block, seen = {}, {}, None, set()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            block = line.split()[2]
            assert block not in seen and line.endswith("."), f"{line!r}: twice, or no sentence"
            seen.add(block)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name == block and kind in ("counter", "gauge", "histogram")
            types[name] = kind
        else:
            match = SAMPLE.match(line)
            assert match, line
            name, labels, value = match.groups()
            base = re.sub("_(bucket|sum|count)$", "", name) if types[block] == "histogram" else name
            assert base == block, f"{line!r} in the block of {block}"
            assert (types[base] == "counter") == name.endswith("_total"), line
            assert (name, labels) not in values, f"{line!r} twice"
            values[name, labels] = float(value)
    return types, values


def total(values, name, having=""):
    return sum(value for (n, labels), value in values.items() if n == name and having in (labels or ""))


def over_http(port):
    with socket.create_connection(("127.0.0.1", port), 10) as link:
        link.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: link.recv(65536), b""))
    head, body = answer.split(b"\r\n\r\n", 1)
    assert b"200 OK" in head and b"text/plain; version=0.0.4" in head, head
    return body.decode()


def test_metrics_say_what_was_done(folder):
    daemon = make(folder).start()
    data = payload(8 << 20)
    try:
        assert daemon.stop() == 0
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config = daemon.data / "larder.toml"
        config.write_text(config.read_text() + f'\n[metrics]\nlisten = "127.0.0.1:{port}"\n')
        daemon.start()
        types, before = scrape(daemon.run("metrics", check=True).stdout)
        with client(daemon) as nfs:
            handle = nfs.create(nfs.root, "a").handle
            nfs.write_all(handle, data)
            nfs.commit(handle)
            assert nfs.read_all(handle) == data
        # The flusher takes dirty data after five seconds.
        flushed = lambda: total(scrape(daemon.run("metrics", check=True).stdout)[1], "larder_volume_flushed_bytes_total", "")
        wait_for(lambda: flushed() >= len(data))
        _, after = scrape(over_http(port))

        def grown(name, having=""):
            return total(after, name, having) - total(before, name, having)

        assert grown("larder_serve_nfs_written_bytes_total") == grown("larder_volume_written_bytes_total") == len(data)
        assert grown("larder_serve_nfs_read_bytes_total") == len(data)
        assert grown("larder_serve_nfs_calls_total", 'procedure="write"') >= 8
        assert grown("larder_serve_nfs_call_seconds_count", 'procedure="write"') >= 8
        assert len(data) <= grown("larder_volume_flushed_bytes_total") < len(data) * 1.2
        written = grown("larder_pool_disk_written_bytes_total")
        # The journal's next file may have been made ready meanwhile, with 16 MiB of zeros on two disks.
        assert len(data) * 1.5 <= written < len(data) * 3 + (40 << 20), written
        assert grown("larder_pool_journal_batches_total") >= 1 and grown("larder_pool_disk_syncs_total") >= 3
        assert total(after, "larder_pool_disk_online") == 3 and total(after, "larder_pool_disk_errors_total") == 0
        assert total(after, "larder_pool_stored_bytes") >= len(data)
        assert {name.split("_")[1] for name in types} == {"pool", "volume", "metadata", "serve", "served", "process", "watch"}
        assert daemon.run("metrics").stdout.startswith("# HELP larder_")
    finally:
        daemon.end()


def test_smb_and_the_mount_are_counted(folder):
    daemon = make(folder).start()
    data, mount = payload(3 << 20), folder / "mount"
    mount.mkdir()
    try:
        daemon.run("mount", mount, check=True)
        (folder / "up").write_bytes(data)
        smb(daemon, "put up file; get file down; rename file other", cwd=folder)
        assert (folder / "down").read_bytes() == (mount / "other").read_bytes() == data
        (mount / "again").write_bytes(data)
        smb(daemon, "del other")
        daemon.run("umount", mount, check=True)
        _, values = scrape(daemon.run("metrics", check=True).stdout)
        for way in ("smb", "mount"):
            for name in ("read", "written"):
                assert total(values, f"larder_serve_{way}_{name}_bytes_total") == len(data), (way, name)
        took = lambda way, operation: total(values, f"larder_serve_{way}_operation_seconds_count", f'"{operation}"')
        assert took("smb", "rename") == took("smb", "remove") == 1 and took("smb", "open") >= 3
        assert took("smb", "read") >= 1 and took("smb", "write") >= 1
        assert took("mount", "read") >= 1 and took("mount", "write") >= 1 and took("mount", "lookup") >= 1
        assert took("mount", "create") == 1
    finally:
        daemon.end()


def test_the_dashboard_asks_for_metrics_and_labels_that_there_are(folder):
    """docs/grafana.json: each name of a question is a metric of a daemon whose doors and UPS are in use, with the labels that it groups by."""
    supply = folder / "supply" / "bat"
    supply.mkdir(parents=True)
    for name, text in {"type": "Battery", "status": "Full", "capacity": "77"}.items():
        (supply / name).write_text(text)
    daemon = make(folder).start()
    try:
        with open(daemon.data / "larder.toml", "a") as config:
            config.write(f'[ups]\nsource = "battery"\nfolder = "{supply.parent}"\n')
        daemon.run("reload", check=True)
        with client(daemon) as nfs:
            nfs.write_all(nfs.create(nfs.root, "a").handle, payload(1 << 20))
        smb(daemon, "ls")
        wait_for(lambda: "larder_watch_ups_charge_percent 77" in daemon.run("metrics", check=True).stdout)
        types, values = scrape(daemon.run("metrics", check=True).stdout)
        names = {name for name, _ in values}
        dashboard = json.loads((ROOT / "docs/grafana.json").read_text())
        questions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
        assert len(questions) >= 20
        asked = {name for question in questions for name in re.findall(r"larder_[a-z_]+", question)}
        assert asked <= names, asked - names
        assert re.findall(r"label_values\((\w+)", json.dumps(dashboard)) == ["larder_process_uptime_seconds"] * 2
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                    [first, *_] = re.findall(r"larder_[a-z_]+", target["expr"])
                    assert any(name == first and f'{label}="' in (labels or "") for name, labels in values), (first, label)
        # Only histograms have quantiles, and only counters rates.
        for question in questions:
            for name in re.findall(r"(?:rate|increase)\((larder_[a-z_]+)", question):
                assert types[re.sub("_bucket$", "", name)] in ("counter", "histogram"), question
        assert daemon.stop() == 0
    finally:
        daemon.end()
