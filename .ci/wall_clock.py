#!/usr/bin/python3
"""Checks that every use of the wall clock has its reason.

The wall clock may be wrong by decades and may step in either direction. So whatever destroys, ends or protects goes by what has
really passed (`passed.really`, or the monotonic clock), and every other use is listed in wall-clock.tsv: a file, how many places
of it ask for the wall clock, and why a clock that is wrong does no harm there. A place more or less is an error: the table cannot
rot. Tests, simulators and tools that only measure are left out.

    .ci/wall_clock.py          the check
    .ci/wall_clock.py count    what is there, as lines for the table
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / ".ci/wall-clock.tsv"
LEFT_OUT = re.compile(r"^crates/(sim|load|measure)/|/tests?/|tests\.rs$|/examples/|/benches/|/src/bin/")
ASKS = re.compile(r"\b(?:SystemTime|Utc|Local)::now\(\)|\bClockId::Realtime\b|(?<!\.)\bnow_ms\(\)"
                  r"|\b(?:clock|state)\.now\(\)|\bSystemClock::default\(\)\.now\(\)")


def places():
    counted = {}
    for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        name = str(path.relative_to(ROOT))
        if LEFT_OUT.search(name):
            continue
        code = path.read_text().split("#[cfg(test)]\nmod tests")[0]
        lines = [line.split("//")[0] for line in code.splitlines()]
        count = sum(len(ASKS.findall(line)) for line in lines if not re.search(r"\bfn now", line))
        if count:
            counted[name] = count
    return counted


def main():
    found = places()
    if sys.argv[1:] == ["count"]:
        print("\n".join(f"{name}\t{count}" for name, count in found.items()))
        return
    wrong, known = [], {}
    for number, line in enumerate(TABLE.read_text().splitlines(), 1):
        if line.startswith("#"):
            continue
        name, count, reason = (line.split("\t") + ["", ""])[:3]
        if not reason.strip():
            wrong.append(f"{TABLE.name}:{number}: no reason is given")
        known[name] = int(count or 0)
    for name in sorted(found.keys() | known.keys()):
        if found.get(name, 0) != known.get(name, 0):
            wrong.append(f"{name}: {found.get(name, 0)} places ask for the wall clock, the table says {known.get(name, 0)}. Ask larder_base::passed "
                         "where something is destroyed, ended or protected; else give the reason in .ci/wall-clock.tsv")
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"wall clock: {sum(found.values())} places, each with its reason")


if __name__ == "__main__":
    main()
