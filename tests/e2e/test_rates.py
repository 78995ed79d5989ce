"""bench/rates.py: that it still works, on so little data that its figures mean nothing."""

import re
import subprocess
import sys
from pathlib import Path

RATES = Path(__file__).resolve().parents[2] / "bench" / "rates.py"
ROW = re.compile(r"(\w+) +(\d+) MB/s +ideal +(\d+) MB/s +([\d.]+) +([\d.]+) GiB +([\d.]+) cores")


def test_all_rows_are_measured(folder):
    done = subprocess.run([sys.executable, str(RATES), str(folder), "--quick"], text=True, capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    head, *lines = done.stdout.splitlines()
    assert head.startswith("raidz2 of 5 disks"), head
    rows = {row[1]: [float(cell) for cell in row.groups()[1:]] for row in map(ROW.fullmatch, lines) if row}
    assert list(rows) == ["scrub", "replace", "rebuild"], done.stdout
    for name, (rate, ideal, ratio, gib, cores) in rows.items():
        # 64 MiB over five disks, two of each five units being parity: 107 MiB in all, a fifth of it on each disk.
        least, most = (0.09, 0.3) if name == "scrub" else (0.015, 0.1)
        assert least < gib < most, done.stdout
        assert 1 < rate < 100_000 and 1 < ideal < 100_000 and 0 <= cores < 64, done.stdout
        assert abs(ratio - rate / ideal) < 0.02 + 0.05 * ratio, done.stdout
    # Nothing is left: no mount, no loop device, no file.
    assert list(folder.iterdir()) == []
    assert str(folder) not in Path("/proc/mounts").read_text()
    assert str(folder) not in subprocess.run(["losetup", "-a"], text=True, capture_output=True, check=True).stdout
