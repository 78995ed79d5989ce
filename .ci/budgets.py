#!/usr/bin/python3
"""Checks that the project stays within .ci/budgets.toml: what is built, how long the suites take, how large its parts are.

A budget is lowered with each gain. It is raised only with the reason, in the same commit. The program and the suites' seconds
are those of the last build and of the last `make test` in CARGO_TARGET_DIR; without one this says so.

    .ci/budgets.py          the check
    .ci/budgets.py show     every figure beside its budget
"""

import os
import re
import sys
import tomllib
from pathlib import Path

from circles import shipped

ROOT = Path(__file__).resolve().parents[1]
BUDGETS = ROOT / ".ci/budgets.toml"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
COLUMNS_MAX = 100
IMPL = re.compile(r"(?<![\w>])impl(?P<generics><)?")
# Suites whose seconds depend on what is built already, or are given.
WITHOUT = {"build", "build-tests", "simulator-fixed", "simulator", "simulator-bucket"}
WAYS_OUT = {
    "program_bytes": "look for what came in with `cargo tree` and the table of docs/build.md",
    "packages": "take a dependency out, or share a version: `cargo tree -d`",
    "crate_lines": "move a part of the crate into one of its own",
    "seconds": "`make test` names the twenty slowest tests at its end; a test that waits needs an event instead of a clock",
    "methods": "give the type's parts methods of their own",
    "long_lines": "wrap the lines that you wrote at 100 columns",
}


def sources(crate="*"):
    return [path for path in sorted((ROOT / "crates").glob(f"{crate}/src/**/*.rs")) if not is_test(path)]


def is_test(path):
    return "tests" in path.parts or path.stem == "tests" or path.stem.endswith("_tests")


def body(text, at):
    """The text between the braces that open at or after `at`, and where it ends."""
    begin = text.find("{", at)
    depth = 0
    for end in range(begin, len(text)):
        depth += (text[end] == "{") - (text[end] == "}")
        if depth == 0:
            return text[begin + 1 : end], end
    return "", len(text)


def methods(code):
    """(type, number of functions) of each inherent `impl`."""
    for found in IMPL.finditer(code):
        head = code[found.end() : code.find("{", found.end())]
        if found["generics"]:
            depth, at = 1, 0
            while depth and at < len(head):
                depth += (head[at] == "<") - (head[at] == ">" and head[at - 1] != "-")
                at += 1
            head = head[at:]
        if re.search(r"\bfor\b", head) or ";" in head or "(" in head.split("where")[0]:
            continue
        name = re.match(r"\s*(?:\w+::)*(\w+)", head)
        if name:
            inside, _ = body(code, found.end())
            top, depth = [], 0
            for part in re.split(r"([{}])", inside):
                depth += (part == "{") - (part == "}")
                if depth == 0 and part not in "{}":
                    top.append(part)
            yield name[1], len(re.findall(r"\bfn\s+\w+", " ".join(top)))


def long_prose(lines):
    return sum(len(line.rstrip("\n")) > COLUMNS_MAX for line in lines)


def measure():
    found, lines, counts = {}, {}, {}
    for path in sources():
        crate = path.relative_to(ROOT / "crates").parts[0]
        code = shipped(path.read_text())
        lines[crate] = lines.get(crate, 0) + sum(bool(line.strip()) for line in code.splitlines())
        for name, count in methods(code):
            counts[crate, name] = counts.get((crate, name), 0) + count
    largest = max(lines, key=lines.get)
    found["crate_lines"] = {largest: lines[largest]}
    for (crate, name), count in counts.items():
        found[f"methods.{crate}.{name}"] = count
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("crates/*.md")]
    found["long_lines.documents"] = sum(long_prose(path.open()) for path in documents)
    comments = (line for path in ROOT.glob("crates/*/src/**/*.rs") for line in path.open() if line.lstrip().startswith("//"))
    found["long_lines.comments"] = long_prose(comments)
    found["packages"] = (ROOT / "Cargo.lock").read_text().count("[[package]]")
    program = TARGET / "release/larder"
    if program.exists():
        found["program_bytes"] = program.stat().st_size
    seconds = TARGET / "suites.tsv"
    if seconds.exists():
        for line in seconds.read_text().splitlines():
            name, took = line.split("\t") if "\t" in line else (line, "")
            if not took.isdigit():
                sys.exit(f"budgets: {seconds} has the line {line!r}, which is no name and seconds: remove the file; `make test` writes it anew")
            found[f"seconds.{name}"] = int(took)
    return found, lines


def read():
    """The budgets, or a sentence that says what is wrong with them."""
    try:
        budgets = tomllib.loads(BUDGETS.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        sys.exit(f"budgets: {BUDGETS} cannot be read: {error}; `git checkout {BUDGETS}` brings the last one back")
    wrong = []

    def number(where, value):
        if type(value) is not int or value < 0:
            wrong.append(f"{where} is {value!r}, and has to be a whole number")

    for name, keys in {"program_bytes": None, "packages": None, "crate_lines": ["every"], "methods": ["every"],
                       "long_lines": ["documents", "comments"], "seconds": []}.items():
        if name not in budgets or any(key not in budgets[name] for key in keys or []):
            wrong.append(f"{name} is missing" if name not in budgets else f"{name} needs {' and '.join(keys)}")
        elif keys is None:
            number(name, budgets[name])
        else:
            for key, value in budgets[name].items():
                for inner, one in value.items() if isinstance(value, dict) else [("", value)]:
                    number(f"{name}.{key}.{inner}".rstrip("."), one)
    crates = {path.parent.name for path in ROOT.glob("crates/*/Cargo.toml")}
    for section in ("crate_lines", "methods"):
        wrong += [f"{section}.{key}: there is no such crate" for key in budgets.get(section, {}) if key not in crates | {"every"}]
    if wrong:
        sys.exit("\n".join(f".ci/budgets.toml: {one}" for one in wrong))
    return budgets


def main():
    budgets = read()
    found, lines = measure()
    wrong, shown = [], []

    def compare(name, value, budget):
        shown.append(f"{name:40} {value:>12,} of {budget:,}")
        if value > budget:
            wrong.append(f"{name}: {value:,}, the budget is {budget:,}: {WAYS_OUT[name.split('.')[0]]}; or raise it in .ci/budgets.toml and give the reason")

    for name in ("program_bytes", "packages"):
        if name in found:
            compare(name, found[name], budgets[name])
        else:
            print(f"budgets: {name} NOT MEASURED, there is no {TARGET / 'release/larder'}")
    usual = budgets["crate_lines"]["every"]
    for crate, count in sorted(lines.items(), key=lambda item: -item[1]):
        budget = budgets["crate_lines"].get(crate, usual)
        if budget > usual or count > usual * 3 // 4:
            compare(f"crate_lines.{crate}", count, budget)
    for crate, types in budgets["methods"].items():
        if crate == "every":
            continue
        for name, budget in types.items():
            if f"methods.{crate}.{name}" not in found:
                wrong.append(f"methods.{crate}.{name}: there is no such type any more: take it out of .ci/budgets.toml")
            compare(f"methods.{crate}.{name}", found.pop(f"methods.{crate}.{name}", 0), budget)
    for name, count in found.items():
        if name.startswith("methods."):
            if count > budgets["methods"]["every"]:
                compare(name, count, budgets["methods"]["every"])
    for name in ("documents", "comments"):
        compare(f"long_lines.{name}", found[f"long_lines.{name}"], budgets["long_lines"][name])
    for name, budget in budgets["seconds"].items():
        if f"seconds.{name}" in found:
            compare(f"seconds.{name}", found[f"seconds.{name}"], budget)
        else:
            print(f"budgets: seconds.{name} NOT MEASURED, the last `make test` had no such suite")
    for name in (name.removeprefix("seconds.") for name in found if name.startswith("seconds.")):
        if name not in budgets["seconds"] and name not in WITHOUT and not name.endswith("-again"):
            wrong.append(f"seconds.{name}: no budget: give it one in .ci/budgets.toml")
    if sys.argv[1:] == ["show"]:
        print("\n".join(shown))
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"budgets: {len(shown)} figures within .ci/budgets.toml")


if __name__ == "__main__":
    main()
