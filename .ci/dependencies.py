#!/usr/bin/python3
"""Checks every dependency against deny.toml: licences, sources and bans. The same rules as `cargo deny check licenses bans sources`.

Used where cargo-deny is not installed: it takes longer to build than larder's tests. Needs nothing but cargo and Python 3.11.
Exits 1 and names each crate that breaks a rule.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What cargo calls the public registry, whatever mirror it is fetched from.
REGISTRIES = ("registry+https://github.com/rust-lang/crates.io-index", "sparse+https://index.crates.io/")


def allowed(expression, licences):
    """Whether an SPDX expression can be met with `licences` alone (SPDX 2.3, annex D: AND binds closer than OR; "/" is an old OR)."""
    words = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))
    position = 0

    def take():
        nonlocal position
        position += 1
        return words[position - 1] if position <= len(words) else None

    def peek():
        return words[position] if position < len(words) else None

    def either():
        met = both()
        while peek() == "OR":
            take()
            met = both() or met
        return met

    def both():
        met = single()
        while peek() == "AND":
            take()
            met = single() and met
        return met

    def single():
        word = take()
        if word == "(":
            met = either()
            if take() != ")":
                raise ValueError(f"an open bracket in {expression!r}")
            return met
        if word in (None, ")", "AND", "OR", "WITH"):
            raise ValueError(f"no licence where one belongs in {expression!r}")
        if peek() == "WITH":
            take()
            word = f"{word} WITH {take()}"
        return word in licences

    met = either()
    if position != len(words):
        raise ValueError(f"{words[position]!r} is left over in {expression!r}")
    return met


def problems(metadata, rules):
    licences = set(rules["licenses"]["allow"])
    exceptions = {e["crate"]: set(e["allow"]) for e in rules["licenses"].get("exceptions", [])}
    banned = {d if isinstance(d, str) else d.get("crate", d.get("name")) for d in rules["bans"].get("deny", [])}
    members = set(metadata["workspace_members"])
    found = []
    for package in metadata["packages"]:
        name, known_as = package["name"], f"{package['name']} {package['version']}"
        expression = package["license"]
        try:
            if not expression:
                found.append(f"{known_as}: no licence is named")
            elif not allowed(expression, licences | exceptions.get(name, set())):
                found.append(f"{known_as}: {expression} is not among the licences that deny.toml allows")
        except ValueError as error:
            found.append(f"{known_as}: {error}")
        source = package["source"]
        # No source is a path in this repository; cargo itself refuses a lock file that names another.
        if source is None:
            if not Path(package["manifest_path"]).is_relative_to(ROOT):
                found.append(f"{known_as}: {package['manifest_path']} is outside of this repository")
        elif not source.startswith(REGISTRIES):
            found.append(f"{known_as}: comes from {source}, which deny.toml does not know")
        if name in banned:
            found.append(f"{known_as}: deny.toml bans it")
        if package["id"] in members and rules["bans"].get("wildcards") == "deny":
            found += [f"{known_as}: {d['name']} is wanted in any version" for d in package["dependencies"] if d["req"] == "*" and not d.get("path")]
    return found


def check_the_parser():
    licences = {"MIT", "ISC", "Apache-2.0 WITH LLVM-exception"}
    for expression, expected in [
        ("MIT", True), ("GPL-3.0", False), ("MIT/GPL-2.0", True), ("GPL-2.0 OR (MIT AND ISC)", True), ("MIT AND GPL-2.0", False),
        ("GPL-2.0 AND MIT OR ISC", True), ("GPL-2.0 AND (MIT OR ISC)", False), ("Apache-2.0 WITH LLVM-exception", True), ("Apache-2.0", False),
    ]:
        assert allowed(expression, licences) is expected, expression


def main():
    check_the_parser()
    with open(ROOT / "deny.toml", "rb") as file:
        rules = tomllib.load(file)
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    for target in rules["graph"]["targets"]:
        command += ["--filter-platform", target]
    metadata = json.loads(subprocess.check_output(command, cwd=ROOT))
    found = problems(metadata, rules)
    for line in found:
        print(f"dependency refused: {line}", file=sys.stderr)
    if not found:
        print(f"{len(metadata['packages'])} packages: licences, sources and bans are as deny.toml says")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
