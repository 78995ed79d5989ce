#!/usr/bin/python3
"""Checks the names of rules.

A rule is an invariant that code cites by name. It is defined once in the repository, in a list of a doc comment, under a name of two parts:

    //! - `journal.one_torn_batch`: only the newest batch of a journal can be torn.

The first part is the room. Every name in backticks that begins with a room that defines rules must be defined: `journal.one_torn_batch` in a comment or
a document is a citation. A letter and a number (A1, B2) is a puzzle: no comment in a Rust source may cite a rule that way.

    .ci/rules.py            the check
    .ci/rules.py list       every rule and where it is defined
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEFINITION = re.compile(r"^\s*//[/!] - `([a-z]+\.[a-z]+(?:_[a-z0-9]+)*)`: ")
CITATION = re.compile(r"`([a-z]+)\.([a-z]+(?:_[a-z0-9]+)*)`")
LETTER = re.compile(r"(?<![A-Za-z0-9_`\"<-])[A-Z]{1,2}[0-9]{1,2}(?![A-Za-z0-9_`\"-])")
# Terms of the field, and models of disks, that look the same.
TERMS = {"LZ4", "MD4", "MG11", "RC4", "S3"}


def comment_of(line):
    """The comment in a line of Rust, or nothing."""
    at = line.find("//")
    return line[at:] if at >= 0 else ""


def main():
    sources = sorted((ROOT / "crates").glob("*/src/**/*.rs")) + sorted((ROOT / "crates").glob("*/tests/**/*.rs"))
    documents = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("*.md"))
    defined, wrong = {}, []
    lines = [(path, number, line) for path in sources + documents for number, line in enumerate(path.read_text().splitlines(), 1)]
    for path, number, line in lines:
        found = DEFINITION.match(line)
        if not found or path.suffix != ".rs":
            continue
        place = f"{path.relative_to(ROOT)}:{number}"
        if found[1] in defined:
            wrong.append(f"{place}: `{found[1]}` is defined at {defined[found[1]]}, too")
        defined.setdefault(found[1], place)
    rooms = {name.split(".")[0] for name in defined}
    for path, number, line in lines:
        place = f"{path.relative_to(ROOT)}:{number}"
        text = comment_of(line) if path.suffix == ".rs" else line
        for room, rule in CITATION.findall(text):
            if room in rooms and "_" in rule and f"{room}.{rule}" not in defined:
                wrong.append(f"{place}: no rule is named `{room}.{rule}`")
        if path.suffix == ".rs":
            cited = [letter for letter in LETTER.findall(text) if letter not in TERMS]
            wrong += [f"{place}: {letter} is a letter and a number: cite the rule by its name: {text.strip()}" for letter in cited]
    if sys.argv[1:] == ["list"]:
        print("\n".join(f"{name:50} {place}" for name, place in sorted(defined.items())))
        return
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"rules: {len(defined)}, each defined once and cited by name")


if __name__ == "__main__":
    main()
