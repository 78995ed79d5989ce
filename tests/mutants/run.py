#!/usr/bin/env python3
"""Plants answers that come too early in a copy of the source, and looks whether the simulator finds each of them.

    tests/mutants/run.py [NAME...]     all mutants, or those whose names are given
    tests/mutants/run.py --places      only: is the text of each still there?

All mutants are built into one binary, which asks the environment for the one that is on (LARDER_MUTANT). Only the copy below
target/mutants has any of it. A mutant is found when one of the first SCHEDULES schedules fails with it; without any, none may fail.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "target/mutants"
# A folder of its own: cargo takes crates of the same place in another workspace for the same crates.
TARGET = COPY / "build"
BINARY = TARGET / "release/larder-sim"
SCHEDULES = 2000
SECONDS_MAX = 900
# What is copied: the simulator and all that it is built of.
PARTS = ["Cargo.toml", "Cargo.lock", "clippy.toml", "crates", "third_party"]

PLANTED = """
/// The mutant that is on; see tests/mutants.
pub fn planted(name: &str) -> bool {
    static NAME: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    NAME.get_or_init(|| std::env::var("LARDER_MUTANT").ok()).as_deref() == Some(name)
}
"""

SETTLE = "self.await_durable(ticket).await"


@dataclass
class Change:
    """One text of one file becomes another; `at` says where it is among several of its kind, and behind what it stands."""

    file: str
    old: str
    new: str
    behind: str = ""


@dataclass
class Mutant:
    name: str
    what: str
    changes: list[Change]
    kind: str = "volume"


def unless(name: str, text: str) -> str:
    return f'if !larder_base::planted("{name}") {{ {text}?; }}'


def no_wait(name: str, what: str, file: str, behind: str, is_result: bool = False) -> Mutant:
    """An operation of names or attributes that is answered when it is in memory: the wait behind a text is left out."""
    path = f"crates/volume/src/{file}.rs"
    if is_result:
        new = f'if larder_base::planted("{name}") {{ return Ok(()); }} {SETTLE}'
        return Mutant(name, what, [Change(path, SETTLE, new, behind)])
    return Mutant(name, what, [Change(path, f"{SETTLE}?;", unless(name, SETTLE), behind)])


CLEAN = """
        // Nothing is dirty: what was is on its way to the log.
        if larder_base::planted("commit-clean") && state.data.is_clean(&inode) {
            return Ok((Changed { before, after: current(&inode)? }, state.verifier));
        }
"""

SNAPSHOTS = [
    Mutant(
        "snapshot-unpreserved",
        "data that was dirty at a snapshot is not copied before it changes",
        [
            Change(
                "crates/volume/src/data/preserved/copies.rs",
                "        if state.epoch == epoch {\n            return;",
                '        if state.epoch == epoch || larder_base::planted("snapshot-unpreserved") {\n            return;',
            )
        ],
    ),
    Mutant(
        "gate-of-removals",
        "dirty data of a file that is removed while a snapshot is cut is dropped at once",
        [
            Change(
                "crates/volume/src/data/preserved/copies.rs",
                "    _gate: RwLockReadGuard<'a, ()>,",
                "    _gate: Option<RwLockReadGuard<'a, ()>>,",
            ),
            Change(
                "crates/volume/src/data/preserved/copies.rs",
                "_gate: self.gate.read().await,",
                '_gate: if larder_base::planted("gate") { None } else { Some(self.gate.read().await) },',
            ),
            Change(
                "crates/volume/src/data/preserved/copies.rs",
                "_gate: self.gate.try_read().ok()?,",
                '_gate: if larder_base::planted("gate-of-removals") || larder_base::planted("gate") { None } else { Some(self.gate.try_read().ok()?) },',
            ),
        ],
    ),
    Mutant("gate", "nothing waits for a cut (planted with gate-of-removals)", []),
    Mutant(
        "snapshot-tables",
        "the engine collects tables that snapshots read",
        [
            Change(
                "crates/volume/src/meta/pins.rs",
                "candidates.retain(|object| !table_of",
                'candidates.retain(|object| larder_base::planted("snapshot-tables") || !table_of',
            )
        ],
    ),
    Mutant(
        "snapshot-segments",
        "a segment that snapshots alone read is deleted",
        [
            Change(
                "crates/volume/src/data/segments.rs",
                "segment.birth < death && self.snapshots",
                '!larder_base::planted("snapshot-segments") && segment.birth < death && self.snapshots',
            )
        ],
    ),
    Mutant(
        "snapshot-one-late",
        "the death of a segment is counted one epoch early",
        [
            Change(
                "crates/volume/src/data/segments.rs",
                "segment.death = if segment.extents == 0 { self.epoch } else { 0 };",
                'segment.death = if segment.extents == 0 { (self.epoch - u64::from(larder_base::planted("snapshot-one-late"))).max(segment.birth) } else { 0 };',
            )
        ],
    ),
    Mutant(
        "snapshot-answer",
        "a snapshot is answered before its row is durable",
        [
            Change(
                "crates/volume/src/snapshots/create.rs",
                "let durable = self.meta.durable(ticket).await;",
                'let durable = if larder_base::planted("snapshot-answer") { Ok(()) } else { self.meta.durable(ticket).await };',
            )
        ],
    ),
    Mutant(
        "snapshot-destroy",
        "what a snapshot needs goes before its row is durably gone",
        [
            Change(
                "crates/volume/src/snapshots/manage.rs",
                "self.meta.durable(ticket).await.map_err(first)?;",
                unless("snapshot-destroy", "self.meta.durable(ticket).await.map_err(first)"),
                "async fn destroy_snapshots(self",
            )
        ],
    ),
    Mutant(
        "replica-patched",
        "an incremental stream lacks rows of inodes whose data was dirty at the earlier snapshot",
        [
            Change(
                "crates/volume/src/replica/delta.rs",
                "inos.extend(earlier.patched().chain(later.patched()));",
                'if !larder_base::planted("replica-patched") { inos.extend(earlier.patched().chain(later.patched())); }',
            )
        ],
    ),
    Mutant(
        "replica-chain",
        "images of a replica are laid over each other the wrong way round",
        [
            Change(
                "crates/volume/src/replica/chain.rs",
                "above.into_iter().rev().for_each(|rows| flat.rows.extend(rows));",
                'if larder_base::planted("replica-chain") { above.reverse(); } above.into_iter().rev().for_each(|rows| flat.rows.extend(rows));',
            )
        ],
    ),
    Mutant(
        "clone-snapshot",
        "the snapshot that a clone began as is destroyed under it",
        [
            Change(
                "crates/volume/src/snapshots/manage.rs",
                "        if !self.catalog.clones_of(number).is_empty() {\n",
                '        if !larder_base::planted("clone-snapshot") && !self.catalog.clones_of(number).is_empty() {\n',
            )
        ],
    ),
    Mutant(
        "clone-number",
        "the first segment of a clone has the number of its ancestor's newest",
        [
            Change(
                "crates/volume/src/data/open.rs",
                "table.skip_to(parts.inherited.saturating_add(1));",
                'table.skip_to(parts.inherited.saturating_add(u64::from(!larder_base::planted("clone-number"))));',
            )
        ],
    ),
]

MUTANTS = [
    *SNAPSHOTS,
    Mutant(
        "commit-clean",
        "fsync of a clean file is answered at once, a flush under way or not",
        [
            Change(
                "crates/volume/src/io.rs",
                "        let before = PreAttr::of(&current(&inode)?);\n        if current(&inode)?.kind == FileKind::File && state.followed.is_none() {\n",
                "        let before = PreAttr::of(&current(&inode)?);\n        if current(&inode)?.kind == FileKind::File && state.followed.is_none() {\n" + CLEAN,
            ),
            Change(
                "crates/volume/src/data/small_commit.rs",
                "    /// All data and the record of `inode` are durable.\n",
                "    pub(crate) fn is_clean(&self, inode: &Inode) -> bool {\n"
                "        !inode.file.state.lock().dirty.is_unstable() && !inode.core.lock().attr_dirty\n    }\n\n"
                "    /// All data and the record of `inode` are durable.\n",
            ),
        ],
    ),
    Mutant(
        "commit-dirty",
        "fsync of a file is answered when its data is on its way to the log",
        [
            Change(
                "crates/volume/src/data/small_commit.rs",
                "inner.parts.meta.durable(inner.parts.meta.newest()).await",
                'if larder_base::planted("commit-dirty") { return Ok(()); } inner.parts.meta.durable(inner.parts.meta.newest()).await',
                "pub(crate) async fn commit(",
            ),
            Change(
                "crates/volume/src/io.rs",
                "state.await_inode(&inode).await?;",
                'if !larder_base::planted("commit-dirty") || current(&inode)?.kind != FileKind::File { state.await_inode(&inode).await?; }',
            ),
        ],
    ),
    Mutant(
        "commit-directory",
        "fsync of a directory is answered at once",
        [
            Change(
                "crates/volume/src/io.rs",
                "        let before = PreAttr::of(&current(&inode)?);\n        if",
                "        let before = PreAttr::of(&current(&inode)?);\n"
                '        if larder_base::planted("commit-directory") && current(&inode)?.kind == FileKind::Directory {\n'
                "            return Ok((Changed { before, after: current(&inode)? }, state.verifier));\n        }\n        if",
            )
        ],
    ),
    Mutant(
        "stable-write",
        "a stable write is answered as an unstable one is",
        [
            Change(
                "crates/volume/src/data/write.rs",
                "if stability > Stability::Unstable {",
                'if stability > Stability::Unstable && !larder_base::planted("stable-write") {',
            )
        ],
    ),
    Mutant(
        "sync",
        "sync of a volume is answered when everything is in segments",
        [
            Change(
                "crates/volume/src/volume.rs",
                "self.state.data.sync_all().await?;\n        self.state.meta.durable(self.state.meta.newest()).await",
                'self.state.data.sync_all().await?;\n        if larder_base::planted("sync") { return Ok(()); }\n'
                "        self.state.meta.durable(self.state.meta.newest()).await",
            ),
            Change(
                "crates/volume/src/data/flush.rs",
                "inner.parts.meta.durable(inner.parts.meta.newest()).await",
                'if larder_base::planted("sync") { return Ok(()); } inner.parts.meta.durable(inner.parts.meta.newest()).await',
            ),
        ],
    ),
    no_wait("create", "create, mkdir, mknod and symlink do not wait", "namespace", "    async fn make("),
    Mutant(
        "create-again",
        "a create that finds the file does not wait for who made it",
        [
            Change(
                "crates/volume/src/namespace.rs",
                "self.await_newest(&inode).await?;",
                unless("create-again", "self.await_newest(&inode).await"),
                "    async fn existing(",
            )
        ],
    ),
    no_wait("link", "link does not wait", "namespace", "    pub async fn link("),
    no_wait("relink", "a link over another name does not wait", "namespace", "    pub async fn relink("),
    no_wait("unlink", "unlink does not wait", "namespace", "    pub async fn unlink("),
    no_wait("rmdir", "rmdir does not wait", "namespace", "    pub async fn rmdir("),
    no_wait("rename", "rename does not wait", "rename", "    async fn try_rename("),
    no_wait("setattr", "setattr and truncate do not wait", "attr", "    pub async fn setattr("),
    no_wait("allocate", "punching and zeroing do not wait", "io", "    pub async fn allocate("),
    no_wait("setxattr", "setxattr does not wait", "xattr", "    pub async fn setxattr(", is_result=True),
    no_wait("removexattr", "removexattr does not wait", "xattr", "    pub async fn removexattr(", is_result=True),
    Mutant(
        "journal-sync",
        "a batch of the journal is written and not flushed",
        [
            Change(
                "crates/pool/src/journal/copy.rs",
                "Self::Flush(file) => file.sync().map(|()| true),",
                'Self::Flush(_) if larder_base::planted("journal-sync") => Ok(true),\n'
                "            Self::Flush(file) => file.sync().map(|()| true),",
            )
        ],
        "pool",
    ),
    Mutant(
        "full-is-dead",
        "a disk that refuses for want of room counts as dead for the object",
        [
            Change(
                "crates/pool/src/member/room.rs",
                "member.takes_data() && !avoid.failed.contains(slot)",
                'member.takes_data() && !avoid.failed.contains(slot) && !(larder_base::planted("full-is-dead") && avoid.full.contains(slot))',
            ),
            Change(
                "crates/pool/src/object/upload.rs",
                "let is_refused = failures.iter()",
                'let is_refused = !larder_base::planted("full-is-dead") && failures.iter()',
            ),
        ],
        "pool",
    ),
    Mutant(
        "owed-forgotten",
        "what is owed when there was no room is not tried again",
        [
            Change(
                "crates/pool/src/heal/repair.rs",
                "if core.repairs.is_owing() && (is_pass",
                'if !larder_base::planted("owed-forgotten") && core.repairs.is_owing() && (is_pass',
            )
        ],
        "pool",
    ),
    Mutant(
        "lineage",
        "the lineages of labels are not compared",
        [
            Change(
                "crates/pool/src/member/label.rs",
                "        self.lives.iter().chain(&self.coming).any(|life| life.mark == mark)",
                '        larder_base::planted("lineage") || self.lives.iter().chain(&self.coming).any(|life| life.mark == mark)',
            )
        ],
        "pool",
    ),
    Mutant(
        "life",
        "no life begins when a disk is no longer there",
        [
            Change(
                "crates/pool/src/member/label.rs",
                "|| !self.present.is_subset(present)",
                '|| !larder_base::planted("life") && !self.present.is_subset(present)',
            )
        ],
        "pool",
    ),
    Mutant(
        "diverged-opening",
        "a disk that has diverged is brought up to date when the pool is opened",
        [
            Change(
                "crates/pool/src/change/open.rs",
                "        if !winner.knows_life_of(&disk.label) {\n            member.diverge",
                '        if !larder_base::planted("diverged-opening") && !winner.knows_life_of(&disk.label) {\n'
                "            member.diverge",
            )
        ],
        "pool",
    ),
    Mutant(
        "diverged-return",
        "a disk that has diverged is brought up to date when it comes back to a pool that runs",
        [
            Change(
                "crates/pool/src/change/recover.rs",
                "            && !ours.knows_life_of(label)",
                '            && !larder_base::planted("diverged-return")\n            && !ours.knows_life_of(label)',
            )
        ],
        "pool",
    ),
]


def copy_source() -> None:
    """The tree as it is, with every mutant in it. Files that did not change keep their times, so that little is built anew."""
    fresh = COPY / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for part in PARTS:
        (shutil.copytree if (ROOT / part).is_dir() else shutil.copy2)(ROOT / part, fresh / part)
    for file, changed in planted(fresh).items():
        (fresh / file).write_text(changed)
    tree = COPY / "tree"
    for file in fresh.rglob("*"):
        old = tree / file.relative_to(fresh)
        if file.is_file() and old.is_file() and old.read_bytes() == file.read_bytes():
            shutil.copystat(old, file)
    shutil.rmtree(tree, ignore_errors=True)
    fresh.rename(tree)


def planted(tree: Path) -> dict[str, str]:
    """The files that mutants are in, with every one of them."""
    texts: dict[str, str] = {}

    def text(file: str) -> str:
        return texts.get(file) or (tree / file).read_text()

    for mutant in MUTANTS:
        for change in mutant.changes:
            whole = text(change.file)
            start = whole.find(change.behind)
            at = whole.find(change.old, start)
            is_unique = change.behind or whole.count(change.old) == 1
            if start < 0 or at < 0 or not is_unique:
                sys.exit(f"mutant {mutant.name}: {change.file} has changed: this must be there once: {change.old!r}")
            texts[change.file] = whole[:at] + change.new + whole[at + len(change.old):]
    texts["crates/base/src/lib.rs"] = text("crates/base/src/lib.rs") + PLANTED
    return texts


def build() -> None:
    environment = {**os.environ, "CARGO_TARGET_DIR": str(TARGET)}
    command = ["cargo", "build", "--release", "--locked", "-p", "larder-sim", "--bin", "larder-sim"]
    subprocess.run(command, cwd=COPY / "tree", env=environment, check=True)


def run(mutant: Mutant | None, schedules: int) -> tuple[int, str, float]:
    """How many schedules ran, and why the last failed."""
    began = time.monotonic()
    kind = ["--kind", mutant.kind] if mutant else []
    command = [BINARY, "run", "--seed", "1", "--schedules", str(schedules), "--seconds", str(SECONDS_MAX), *kind]
    environment = {**os.environ, "LARDER_MUTANT": mutant.name if mutant else ""}
    output = subprocess.run(command, env=environment, capture_output=True, text=True).stdout
    ran = re.search(r"^(\d+) schedules in", output, re.MULTILINE)
    failed = re.search(r"^seed \d+ FAILED: (.*)$", output, re.MULTILINE)
    if not ran:
        sys.exit(f"the simulator said: {output}")
    return int(ran[1]), failed[1] if failed else "", time.monotonic() - began


def main() -> None:
    wanted = sys.argv[1:]
    if wanted == ["--places"]:
        planted(ROOT)
        return
    unknown = [name for name in wanted if name not in {mutant.name for mutant in MUTANTS}]
    if unknown:
        sys.exit(f"no such mutant: {' '.join(unknown)}; there are {' '.join(mutant.name for mutant in MUTANTS)}")
    copy_source()
    build()
    _, why, _ = run(None, 100)
    if why:
        sys.exit(f"without a mutant a schedule fails, too: {why}")
    missed = []
    print(f"{'mutant':<22}{'schedules':>10}{'seconds':>9}  found by")
    for mutant in MUTANTS:
        if wanted and mutant.name not in wanted:
            continue
        ran, why, seconds = run(mutant, SCHEDULES)
        if not why:
            missed.append(mutant.name)
        print(f"{mutant.name:<22}{ran:>10}{seconds:>9.0f}  {why[:90] or 'NOT FOUND: ' + mutant.what}", flush=True)
    if missed:
        sys.exit(f"not found: {' '.join(missed)}")


if __name__ == "__main__":
    main()
