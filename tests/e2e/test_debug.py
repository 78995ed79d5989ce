"""`larder debug`: each structure of a pool is decoded, and a damaged byte is named by its place. Nothing is written."""

import json
import os
from pathlib import Path

import pytest

from conftest import client, make
from larderd import run
from trees import payload


@pytest.fixture
def pool(folder):
    """The disks of a stopped pool with a large and a small file."""
    daemon = make(folder).start()
    with client(daemon) as nfs:
        for name, size in (("large", 700_000), ("small", 100)):
            handle = nfs.create(nfs.root, name).handle
            nfs.write(handle, 0, payload(size, size), stable=2)
    daemon.run("pool", "scrub", "start", "--wait", check=True)
    assert daemon.stop() == 0
    return daemon.disks


def debug(*args, code=0):
    done = run("debug", *args, "--json")
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


def flip(path, at):
    data = bytearray(Path(path).read_bytes())
    data[at] ^= 0x20
    Path(path).write_bytes(data)


def contents(disks):
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for disk in disks for p in disk.rglob("*") if p.is_file()}


def test_every_structure_is_decoded(pool):
    before = contents(pool)
    first, second = debug("label", pool[0])
    assert {f["name"]: f["value"] for f in first["fields"]}["name"] == '"tank"' and second["faults"] == []
    of = ["--disk", *pool]
    objects = debug("object", *of)
    assert "registry.json" in [o["path"] for o in objects]
    segment = next(o for o in objects if "/seg/" in o["path"])
    assert len(segment["shards"]) == segment["data"] + segment["parity"] == 3
    assert all(o["damage"] == [] for o in debug("object", "--verify", *of))
    shard, = debug("shard", pool[segment["shards"][0]["disk"]] / segment["shards"][0]["file"])
    assert {f["name"]: f["value"] for f in shard["fields"]}["path"] == segment["path"]
    journals = [sheet for d in pool if list((d / "journal").iterdir()) for sheet in debug("journal", d)]
    assert any(row[2] == "entry" for sheet in journals for row in sheet.get("rows", [])), journals
    entries = [sheet for d in pool if list((d / "journal").iterdir()) for sheet in debug("journal", "--entries", d)]
    rows = [row for sheet in entries if sheet["what"].startswith("entry ") for row in sheet.get("rows", [])]
    assert any(row[1].startswith("inode ") for row in rows), entries
    events, = debug("history", pool[0])
    assert "created" in [row[2] for row in events["rows"]] and events["faults"] == []
    decoded, = debug("segment", segment["path"], *of)
    assert decoded["rows"] and decoded["faults"] == []
    volume, = debug("meta", *of)
    keys = {row["key"]: row["value"] for row in volume["rows"]}
    assert 'entry 1 "large"' in keys and "size 700000" in keys["inode " + keys['entry 1 "large"'].split()[1]]
    assert [row["key"] for row in debug("meta", "--prefix", "I1", *of)[0]["rows"]] == ["inode 1"]
    registry, = debug("registry", *of)
    assert registry["rows"][0][0] == "files"
    assert contents(pool) == before
    text = run("debug", "label", pool[0]).stdout
    assert debug("scrub", pool[0])[0]["faults"] == []
    assert "BYTE" in text and "\x1b" not in text


def test_damage_is_named_by_its_place(pool):
    flip(pool[0] / "larder.label", 30)
    first, second = debug("label", pool[0], code=4)
    assert first["faults"][0]["at_byte"] == 16 and second["faults"] == []
    of = ["--disk", *pool]
    segment = next(o for o in debug("object", *of) if "/seg/" in o["path"])
    place = segment["shards"][1]
    path = pool[place["disk"]] / place["file"]
    flip(path, os.path.getsize(path) - 20)
    sheet, = debug("shard", path, code=4)
    assert "checksum" in sheet["faults"][0]["why"]
    damage = next(o for o in debug("object", segment["path"], "--verify", *of, code=4))["damage"]
    assert [(d["shard"], d["disk"]) for d in damage] == [(1, place["disk"])]
    assert debug("segment", segment["path"], *of)[0]["faults"] == [], "the others make up for it"
    missing = run("debug", "shard", pool[0] / "nothing")
    assert missing.returncode == 1 and "nothing" in missing.stderr
