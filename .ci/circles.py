#!/usr/bin/python3
"""Checks that the files of a crate do not import one another in a circle, beyond what CIRCLES allows.

A circle is a set of files each of which reaches all others by its paths: `use` and inline `crate::`, `super::`, `self::` paths of code that
ships, tests left out. A re-export counts for nobody: a path through it leads to the file that defines the item. So a room's `mod.rs` that only
re-exports is in no circle. Exits 1 and prints the members of each circle that is larger than its crate may have.

    .ci/circles.py                   all crates, against the table
    .ci/circles.py pool              the circles of one crate, with the imports that close them
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The largest circle each crate may have, in files. A number may be lowered and never raised.
CIRCLES = {
    "alerts": 1,
    "api": 1,
    "base": 1,
    "config": 5,
    "copies": 2,
    "crypt": 1,
    "daemon": 2,
    "dav": 2,
    "discovery": 1,
    "document": 1,
    "doors": 3,
    "facts": 1,
    "files": 1,
    "folder": 1,
    "fs": 2,
    "fuse": 5,
    "import": 1,
    "keep": 1,
    "larder": 5,
    "load": 1,
    "measure": 1,
    "nfs": 4,
    "opens": 1,
    "people": 1,
    "pool": 1,
    "servers": 2,
    "sftp": 1,
    "sim": 3,
    "smb": 4,
    "smb-wire": 1,
    "store": 1,
    "volume": 1,
    "watch": 1,
    "web": 1,
}

OPEN, CLOSE = "([{", ")]}"
LITERAL = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(?P<hashes>#*)".*?"(?P=hashes)|b?"(?:\\.|[^"\\])*"|b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^'\\\n])'""", re.S
)
TEST = re.compile(r"#\[cfg\((?:test|any\(test\b|all\(test\b)[^\]]*\]")
USE = re.compile(r"(?P<pub>\bpub(?:\([^)]*\))?\s+)?\buse\s+(?P<tree>[^;]+);")
MODULE = re.compile(r"\bmod\s+(\w+)\s*;")
# Neither imports anything: a visibility names a module, a declaration makes one.
NAMES_ONLY = re.compile(r"\bpub\s*\(\s*in\s[^)]*\)|" + MODULE.pattern)
PATH = re.compile(r"(?<![\w:])(?:\w+)(?:\s*::\s*\w+)+")


def shipped(text):
    """The code of a file without comments, literals and what only tests compile."""
    text = LITERAL.sub(lambda found: " " if found[0].startswith("/") else '""', text)
    while test := TEST.search(text):
        text = text[: test.start()] + text[item_end(text, test.end()) :]
    return text


def item_end(text, at):
    """Where the item that begins at `at` ends: behind its block, semicolon or comma."""
    is_use = re.compile(r"\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?use\b").match(text, at)
    depth = 0
    while at < len(text):
        char = text[at]
        if char in OPEN:
            depth += 1
        elif char in CLOSE:
            depth -= 1
            if depth < 0:
                return at
            if depth == 0 and char == "}" and not is_use:
                return at + 1
        elif depth == 0 and char in ";,":
            return at + 1
        at += 1
    return at


def imports_nothing(code):
    """The code without its `use`s and without what names a module and takes nothing from it."""
    return NAMES_ONLY.sub(" ", USE.sub(" ", code))


def leaves(tree, prefix=()):
    """(path, name it is known as) of each leaf of a `use`; a glob is known as "*"."""
    tree = tree.strip()
    if tree.startswith("{"):
        for part in split(tree[1:-1]):
            yield from leaves(part, prefix)
        return
    head, rest = re.match(r"(?:::)?\s*([\w*#]+)\s*(.*)", tree, re.S).groups()
    if rest.startswith("::"):
        yield from leaves(rest[2:], (*prefix, head))
    elif head == "self" and prefix:
        yield prefix, prefix[-1] if not rest else rest.split()[-1]
    else:
        yield (*prefix, head), rest.split()[-1] if rest else head


def split(text):
    depth, part = 0, ""
    for char in text:
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            yield part
            part = ""
        else:
            part += char
    if part.strip():
        yield part


class Crate:
    def __init__(self, folder):
        self.source = folder / "src"
        # The file and the code of each module, by its path.
        self.files, self.code = {}, {}
        # What each module imports and passes on: {module: {name: path}}; globs that it passes on.
        self.names, self.passed_on, self.globs = {}, {}, {}
        roots = [self.source / "lib.rs", self.source / "main.rs", *sorted(self.source.glob("bin/*.rs"))]
        for root in filter(Path.exists, roots):
            # A program beside a library is a crate of its own.
            self.load((), root, root.stem if root.stem in ("lib", "main") else f"bin/{root.stem}")
        self.edges = {}
        for module in self.files:
            self.link(module)

    def load(self, module, file, crate):
        key = (crate, *module)
        code = shipped(file.read_text())
        self.files[key], self.code[key] = file, code
        inside = file.parent if file.name in ("mod.rs", "lib.rs", "main.rs") else file.with_suffix("")
        for name in MODULE.findall(code):
            for child in (inside / f"{name}.rs", inside / name / "mod.rs"):
                if child.exists():
                    self.load((*module, name), child, crate)
        uses = [(bool(use["pub"]), path, name) for use in USE.finditer(code) for path, name in leaves(use["tree"])]
        self.names[key] = {name: path for _, path, name in uses if name != "*"}
        self.passed_on[key] = {name: path for is_pub, path, name in uses if is_pub and name != "*"}
        self.globs[key] = [path for is_pub, path, name in uses if is_pub and name == "*"]

    def defines(self, module, name):
        kinds = r"fn|struct|enum|trait|type|const|static|union|mod|macro_rules!"
        return re.search(rf"\b(?:{kinds})\s+{re.escape(name)}\b", self.code[module]) is not None

    def resolve(self, module, path, seen=frozenset()):
        """The module that a path leads to from `module`, through re-exports; None where it leaves the crate."""
        head, at = path[0], module
        if head == "crate":
            at, path = module[:1], path[1:]
        elif head in ("self", "super"):
            while path and path[0] in ("self", "super"):
                at, path = at[:-1] if path[0] == "super" else at, path[1:]
        elif (*module, head) not in self.files:
            known = self.names[module].get(head)
            if known is None or known == path or (module, head) in seen:
                return None
            return self.resolve(module, (*known, *path[1:]), seen | {(module, head)})
        while path and (*at, path[0]) in self.files:
            at, path = (*at, path[0]), path[1:]
        if at not in self.files:
            return None
        if path and path[0] != "*" and not self.defines(at, path[0]):
            passed_on = [self.passed_on[at][path[0]]] if path[0] in self.passed_on[at] else []
            for onward in passed_on + [glob[:-1] for glob in self.globs[at]]:
                if (at, path[0]) not in seen:
                    target = self.resolve(at, (*onward, *path[1:]) if passed_on else (*onward, path[0]), seen | {(at, path[0])})
                    if target is not None and (passed_on or self.defines(target, path[0])):
                        return target
        return at

    def link(self, module):
        code = self.code[module]
        body = imports_nothing(code)
        edges = self.edges.setdefault(self.files[module], {})
        wanted = []
        for use in USE.finditer(code):
            for path, name in leaves(use["tree"]):
                if name == "*" and use["pub"]:
                    continue
                if use["pub"] and not re.search(rf"\b{re.escape(name)}\b", body):
                    continue
                # A module that is imported is looked through: what is used of it counts.
                if self.is_module(module, path) and re.search(rf"(?<![\w:]){re.escape(name)}\s*::", body):
                    continue
                wanted.append(path)
        for found in PATH.findall(body):
            wanted.append(tuple(part.strip() for part in found.split("::")))
        for path in wanted:
            target = self.resolve(module, path)
            if target is not None and self.files[target] != self.files[module]:
                edges.setdefault(self.files[target], "::".join(path))

    def is_module(self, module, path):
        at = self.resolve(module, path)
        return at is not None and at[-1] == path[-1]

    def circles(self):
        """Sets of files that reach one another, the largest first (Tarjan)."""
        index, low, stack, found = {}, {}, [], []

        def visit(node):
            index[node] = low[node] = len(index)
            stack.append(node)
            for target in self.edges.get(node, ()):
                if target not in index:
                    visit(target)
                    low[node] = min(low[node], low[target])
                elif target in stack:
                    low[node] = min(low[node], index[target])
            if low[node] == index[node]:
                circle = set()
                while node not in circle:
                    circle.add(stack.pop())
                found.append(circle)

        for node in self.edges:
            if node not in index:
                visit(node)
        return sorted(found, key=len, reverse=True)


def show(crate, circle):
    names = {file: str(file.relative_to(crate.source)) for file in circle}
    for file in sorted(circle):
        towards = [f"{names[target]} ({path})" for target, path in sorted(crate.edges[file].items()) if target in circle]
        print(f"    {names[file]} -> {', '.join(towards)}")


def check_the_reader():
    tree = "crate::{a::{self, B as C}, d::*}"
    assert list(leaves(tree)) == [(("crate", "a"), "a"), (("crate", "a", "B"), "C"), (("crate", "d", "*"), "*")]
    code = 'use a::b; // use c;\n#[cfg(test)]\nmod tests { use d::e; }\nlet quote = b\'"\'; let text = "use f;"; use g;'
    assert [use["tree"] for use in USE.finditer(shipped(code))] == ["a::b", "g"], shipped(code)
    code = "mod a; pub use a::a; pub(in crate::b) fn f() { c::d() }"
    assert PATH.findall(imports_nothing(code)) == ["c::d"] and not re.search(r"\ba\b", imports_nothing(code))


def main():
    check_the_reader()
    sys.setrecursionlimit(10_000)
    crates = {folder.name: folder for folder in sorted((ROOT / "crates").iterdir()) if (folder / "Cargo.toml").exists()}
    if asked := sys.argv[1:]:
        for name in asked:
            crate = Crate(crates[name])
            for circle in [circle for circle in crate.circles() if len(circle) > 1]:
                print(f"{name}: a circle of {len(circle)} files")
                show(crate, circle)
        return 0
    wrong = [f"{name} is in the table and not in crates/" for name in CIRCLES if name not in crates]
    for name, folder in crates.items():
        crate = Crate(folder)
        largest = crate.circles()[0]
        allowed = CIRCLES.get(name)
        if allowed is None:
            wrong.append(f"{name} is not in the table of {Path(__file__).name}: its largest circle has {len(largest)} files")
        elif len(largest) > allowed:
            wrong.append(f"{name}: {len(largest)} files import one another in a circle, {allowed} are allowed")
            show(crate, largest)
        elif len(largest) < allowed:
            print(f"{name}: the largest circle has {len(largest)} files now: lower its {allowed} in the table of {Path(__file__).name}")
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong:
        print(f"{len(crates)} crates: no circle of files is larger than the table allows")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
