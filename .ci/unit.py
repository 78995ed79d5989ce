#!/usr/bin/python3
"""Runs the tests that cargo builds, each in a process of its own, several at a time.

`cargo test` runs one test program after the other, so that each program's slowest test leaves the other processors idle, and says
nothing about how long a test took. Usage: .ci/unit.py [--jobs N] [FILTER...]; a filter is a part of "crate::test". Prints each test's time in pytest's
form, the whole output of those that fail, and ends with one line of counts. As the suites do, it runs a few that failed once more by
themselves: what passes then is unsteady, which is said.
"""

import argparse
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 600
# With more failures than this something is broken, and nothing is run again.
UNSTEADY_MAX = 3


def programs():
    """(name of the crate and target, program, folder to run it in) of each test program, as cargo has built it."""
    command = ["cargo", "test", "--release", "--locked", "--workspace", "--lib", "--bins", "--tests", "--no-run", "--message-format", "json"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        sys.exit("0 passed, 1 failed")
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message["executable"] and message["profile"]["test"]:
            target = message["target"]
            folder = Path(message["manifest_path"]).parent
            crate = re.sub(r"^larder-", "", folder.name)
            name = crate if target["kind"][0] in ("lib", "bin") else f"{crate}/{target['name']}"
            yield name, message["executable"], folder


def listed(program, folder, *options):
    """Names of the tests in a program."""
    out = subprocess.run([program, "--list", "--format", "terse", *options], cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [line.removesuffix(": test") for line in out.splitlines() if line.endswith(": test")]


def run(program, folder, test):
    """Whether a test passed, for how long it ran, and what it said."""
    began = time.monotonic()
    environment = os.environ | {"CARGO_MANIFEST_DIR": str(folder), "RUST_BACKTRACE": "1"}
    try:
        done = subprocess.run([program, "--exact", test, "--show-output"], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S)
        passed, said = done.returncode == 0 and b"1 passed" in done.stdout, done.stdout
    except subprocess.TimeoutExpired as late:
        passed, said = False, (late.stdout or b"") + f"\nkilled after {LIMIT_S} s\n".encode()
    except OSError as error:
        passed, said = False, f"{program} does not start: {error}\n".encode()
    return passed, time.monotonic() - began, said.decode(errors="replace")


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    options.add_argument("filters", nargs="*")
    options = options.parse_args()

    waiting, skipped = queue.SimpleQueue(), []
    for name, program, folder in programs():
        ignored = set(listed(program, folder, "--ignored"))
        skipped += [f"{name}::{test}" for test in ignored]
        for test in listed(program, folder):
            known_as = f"{name}::{test}"
            if test not in ignored and (not options.filters or any(f in known_as for f in options.filters)):
                waiting.put((known_as, program, folder, test))

    results, failed, lock = [], {}, threading.Lock()

    def work():
        while True:
            try:
                known_as, *what = waiting.get_nowait()
            except queue.Empty:
                return
            passed, took_s, said = run(*what)
            with lock:
                results.append((took_s, known_as, passed))
                if not passed:
                    failed[known_as] = what
                    print(f"FAILED {known_as} after {took_s:.1f} s\n{said}", flush=True)

    began, chosen = time.monotonic(), waiting.qsize()
    workers = [threading.Thread(target=work) for _ in range(options.jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    for took_s, known_as, _ in sorted(results, reverse=True)[:20]:
        print(f"{took_s:.2f}s call     {known_as}")
    for known_as in sorted(skipped):
        print(f"skipped {known_as}")
    again = {} if len(failed) > UNSTEADY_MAX else {known_as: what for known_as, what in failed.items() if not known_as.startswith("sim")}
    unsteady = [known_as for known_as, what in again.items() if run(*what)[0]]
    for known_as in sorted(unsteady):
        print(f"UNSTEADY {known_as}: it failed beside others, and passed by itself")
    failures = failed.keys() - set(unsteady)
    for known_as in sorted(failures):
        print(f"FAILED {known_as}")
    print(f"{time.monotonic() - began:.0f} s, {options.jobs} at a time")
    counts = f"{len(results) - len(failures)} passed, {len(failures)} failed"
    print(counts + (f", {len(skipped)} skipped" if skipped else ""))
    return 1 if failures or not results or len(results) != chosen else 0


if __name__ == "__main__":
    sys.exit(main())
