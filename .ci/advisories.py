#!/usr/bin/python3
"""Compares the locked dependencies with known advisories, offline. Part of `make lint`.

    .ci/advisories.py                  check Cargo.lock and fuzz/Cargo.lock against .ci/advisories.tsv
    .ci/advisories.py renew CLONE      make .ci/advisories.tsv anew from a clone of the RustSec advisory database

An advisory that does not concern larder is ignored in deny.toml, `[advisories] ignore`, with its reason. An entry there that ignores nothing is
a failure, too. Exits 1 and names each. The extract has all advisories that were not withdrawn, so that a new dependency is covered;
its first line says of which day it is.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRACT = ROOT / ".ci/advisories.tsv"
LOCKS = ("Cargo.lock", "fuzz/Cargo.lock")
# An unmaintained crate has no fault that is known: `cargo deny check` names them.
KINDS = ("vulnerability", "unsound")


def version(text):
    """A key that orders versions as SemVer does (11): a release is later than what came before it."""
    core, _, rest = text.partition("+")[0].partition("-")
    numbers = tuple(int(part) for part in core.split(".")) + (0, 0)
    words = tuple((0, int(word), "") if word.isdigit() else (1, 0, word) for word in rest.split(".")) if rest else ()
    return numbers[:3], not rest, words


def upper(numbers, count):
    """The first version that a caret of these numbers does not take."""
    for at in range(3):
        if numbers[at] or at == count - 1:
            return numbers[:at] + (numbers[at] + 1,) + (0,) * (2 - at)
    return 0, 0, 1


def meets(found, requirement):
    """Whether a version meets a requirement: comparisons with commas between them."""
    for part in requirement.split(","):
        operator, text = re.fullmatch(r"\s*(>=|<=|>|<|=|\^|~)?\s*v?(\S+)\s*", part).groups()
        given, own = version(text), version(found)
        count = len(text.partition("-")[0].split("."))
        if operator in (None, "^", "~"):
            end = upper(given[0], count) if operator != "~" else given[0][: min(count, 2) - 1] + (given[0][min(count, 2) - 1] + 1,) + (0,) * (3 - min(count, 2))
            if not (given <= own and own[0] < end):
                return False
        elif not {">=": own >= given, "<=": own <= given, ">": own > given, "<": own < given, "=": own == given}[operator]:
            return False
    return True


def concerns(found, advisory):
    return not any(meets(found, requirement) for requirement in advisory["safe"])


def extract():
    lines = EXTRACT.read_text().splitlines()
    head, rows = lines[0], [line.split("\t") for line in lines[1:]]
    return head, [dict(id=row[0], package=row[1], kind=row[2], safe=[text for text in row[3].split(";") if text]) for row in rows]


def locked():
    for lock in LOCKS:
        for package in tomllib.loads((ROOT / lock).read_text())["package"]:
            if "source" in package:
                yield lock, package["name"], package["version"]


def check():
    head, advisories = extract()
    ignored = {entry["id"]: entry["reason"] for entry in tomllib.loads((ROOT / "deny.toml").read_text())["advisories"].get("ignore", [])}
    by_package = {}
    for advisory in advisories:
        by_package.setdefault(advisory["package"], []).append(advisory)
    faults, used = [], set()
    for lock, name, found in locked():
        for advisory in by_package.get(name, []):
            if advisory["kind"] not in KINDS or not concerns(found, advisory):
                continue
            if ignored.get(advisory["id"], "").strip():
                used.add(advisory["id"])
                continue
            safe = " or ".join(advisory["safe"]) or "no version"
            faults.append(f"{lock}: {name} {found} has {advisory['id']} ({advisory['kind']}); safe: {safe}")
    faults += [f"deny.toml: {entry} is ignored, and concerns nothing that is locked: take it out" for entry in ignored if entry not in used]
    for fault in faults:
        print(fault)
    print(f"{len(advisories)} advisories {head.removeprefix('# ')}, {len(used)} ignored with a reason, {len(faults)} faults")
    return 1 if faults else 0


def renew(clone):
    def git(*words):
        return subprocess.run(["git", "-C", clone, *words], check=True, capture_output=True, text=True).stdout

    rows = []
    for path in git("ls-tree", "-r", "--name-only", "HEAD", "crates").splitlines():
        if not re.fullmatch(r"crates/[^/]+/RUSTSEC-\d+-\d+\.md", path):
            continue
        text = git("show", f"HEAD:{path}")
        entry = tomllib.loads(text.split("```toml")[1].split("```")[0])
        advisory, versions = entry["advisory"], entry["versions"]
        if "withdrawn" in advisory:
            continue
        safe = [" ".join(one.split()) for one in versions.get("patched", []) + versions.get("unaffected", [])]
        rows.append("\t".join([advisory["id"], advisory["package"], advisory.get("informational", "vulnerability"), ";".join(safe)]))
    if not rows:
        sys.exit(f"{clone} has no advisories: give a clone of the RustSec advisory database")
    day, commit = git("log", "-1", "--format=%cs %H").split()
    EXTRACT.write_text(f"# of {day}, RustSec advisory database at {commit}\n" + "".join(f"{row}\n" for row in sorted(rows)))
    print(f"{len(rows)} advisories of {day}")
    return 0


def test():
    """The comparison itself, each time: a fault here would hide an advisory."""
    assert meets("1.2.3", ">= 1.2.3") and not meets("1.2.3-rc.1", ">=1.2.3") and meets("1.2.3-rc.10", "> 1.2.3-rc.9")
    assert meets("0.9.7", "^0.9.5") and not meets("0.10.0", "^0.9.5") and meets("1.9.0", "^1.2") and not meets("2.0.0", "^1.2")
    assert meets("0.0.3", "^0.0.3") and not meets("0.0.4", "^0.0.3") and meets("1.2.9", "~1.2.3") and not meets("1.3.0", "~1.2.3")
    assert meets("0.104.0-alpha.6", ">= 0.104.0-alpha.6") and not meets("0.104.0-alpha.5", ">= 0.103.13, < 0.104.0-alpha.1")
    assert meets("5.0.0", ">= 0") and meets("0.2.4", "=0.2.4") and not meets("0.2.4", "< 0.2.4") and meets("0.2.4+build", "<= 0.2.4")
    assert concerns("1.0.0", {"safe": []}) and not concerns("0.4.0", {"safe": [">= 1.1", "< 0.5.0"]})


if __name__ == "__main__":
    test()
    sys.exit(renew(sys.argv[2]) if sys.argv[1:2] == ["renew"] and len(sys.argv) == 3 else check())
