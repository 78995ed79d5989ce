"""Measurements by fio and iperf3, as the result of a bench: one function for each layer, so that `larder bench` can take its place."""

import contextlib
import json
import os
import subprocess
import threading
import time

ZEROS = {"user": [], "nice": [], "system": [], "iowait": [], "irq": [], "steal": []}


def cores():
    """Times of each core: /proc/stat."""
    lines = [line.split() for line in open("/proc/stat") if line.startswith("cpu") and line[3].isdigit()]
    return [[int(n) for n in line[1:9]] for line in lines]


class Watch(contextlib.AbstractContextManager):
    """Samples the cores twice a second while a load runs."""

    def __enter__(self):
        self.samples = {"at_ms": [], "cores": [dict(core=n, **{k: [] for k in ZEROS}) for n in range(len(cores()))]}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        start, before = time.monotonic(), cores()
        while not self.ended.wait(0.5):
            now = cores()
            self.samples["at_ms"].append(int((time.monotonic() - start) * 1000))
            for core, (a, b) in enumerate(zip(before, now)):
                spent = [y - x for x, y in zip(a, b)]
                whole = max(sum(spent), 1)
                part = lambda *at: 100.0 * sum(spent[n] for n in at) / whole
                values = dict(user=part(0), nice=part(1), system=part(2), iowait=part(4), irq=part(5, 6), steal=part(7))
                for key, value in values.items():
                    self.samples["cores"][core][key].append(value)
            before = now

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def run(layer, subject, kind, bytes_per_s, seconds, samples=None, access="local", far=None, block=1 << 20, depth=1):
    load = dict(kind=kind, block_bytes=block, depth=depth, jobs=1, data_bytes=0, files=1, caches="bypassed", compressible=False, synced=True)
    repeat = dict(start_ms=0, seconds=seconds, bytes=int(bytes_per_s * seconds), operations=int(bytes_per_s * seconds / block),
                  bytes_per_s=bytes_per_s, operations_per_s=bytes_per_s / block)
    one = dict(layer=layer, subject=str(subject), access=access, workload=load, repeats=[repeat], samples=samples or {"at_ms": []})
    one["with"] = "fio or iperf3"
    if far:
        one["far_samples"] = far
    return one


def result(runs, host="another machine"):
    """`larder bench --json`, made by hand."""
    facts = dict(host=host, model="", processor="", cores=os.cpu_count(), memory_bytes=0, kernel="")
    return json.dumps(dict(schema="larder-bench", version=1, id="x", title="by hand", preset="quick", started_ms=0, ended_ms=1,
                           larder="0", interrupted=False, machine=facts, runs=runs, notes=[]))


def fio(directory, kind="write", seconds=4, size="64M", prefix=(), **options):
    """Bytes per second of fio with O_DIRECT, and what the cores did."""
    command = [*prefix, "fio", "--name=x", f"--directory={directory}", f"--rw={kind}", "--bs=1M", "--direct=1", "--ioengine=psync",
               f"--size={size}", "--time_based", f"--runtime={seconds}", "--output-format=json"]
    command += [f"--{key}={value}" for key, value in options.items()]
    with Watch() as watch:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120)
    assert done.returncode == 0, done.stderr + done.stdout
    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
    return max(job["read"]["bw_bytes"], job["write"]["bw_bytes"]), watch.samples


def iperf3(server_space, client_space, address, seconds=4):
    """Bytes per second of TCP from one network namespace to another, and what the cores did."""
    inside = lambda space: ["ip", "netns", "exec", space]
    server = subprocess.Popen([*inside(server_space), "iperf3", "-s", "-1", "-B", address], stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        with Watch() as watch:
            done = subprocess.run([*inside(client_space), "iperf3", "-c", address, "-t", str(seconds), "-J"],
                                  capture_output=True, text=True, timeout=seconds + 60)
        assert done.returncode == 0, done.stdout + done.stderr
        end = json.loads(done.stdout)["end"]
        return end["sum_received"]["bits_per_second"] / 8, watch.samples
    finally:
        server.kill()
        server.wait()


SERVER = """
import hashlib, http.server, sys
class Share(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        block = bytes(1 << 20)
        try:
            while True:
                for _ in range(int(sys.argv[2])):
                    hashlib.sha256(block).digest()
                self.wfile.write(block)
        except OSError:
            pass
    def log_message(self, *_):
        pass
http.server.HTTPServer((sys.argv[1], 8070), Share).serve_forever()
"""
CLIENT = """
import sys, time, urllib.request
answer = urllib.request.urlopen(f"http://{sys.argv[1]}:8070/")
answer.read(1 << 20)
start, got = time.monotonic(), 0
while time.monotonic() - start < float(sys.argv[2]):
    got += len(answer.read(1 << 18))
print(got / (time.monotonic() - start))
"""


def share(address, seconds=4, server=(), client=(), hashes=0):
    """Bytes per second of a file over HTTP; the server hashes each block so many times, as a cipher would."""
    serving = subprocess.Popen([*server, "python3", "-c", SERVER, address, str(hashes)])
    try:
        time.sleep(1)
        with Watch() as watch:
            done = subprocess.run([*client, "python3", "-c", CLIENT, address, str(seconds)], capture_output=True, text=True, timeout=seconds + 60)
        assert done.returncode == 0, done.stderr
        return float(done.stdout), watch.samples
    finally:
        serving.kill()
        serving.wait()
