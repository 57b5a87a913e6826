"""Profiles of nets that do not exist, for tests of the page: profile.db of any size and with any names.

    profiles.write(path, layers=4, devices=1, calls=3, ...)

A net is a chain of layers. Each has forward kernels, a gradient and a weight gradient in the reverse order, and an
update; values live from the kernel that makes them to the last that reads them, and lie where the first gap is.
"""

import bisect
import random
import sqlite3
from pathlib import Path

SCHEMA = """
PRAGMA user_version = 1;
CREATE TABLE run(key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE device(id INTEGER PRIMARY KEY, kind TEXT, bytes INTEGER, tiles INTEGER, peak INTEGER, always INTEGER, remote INTEGER);
CREATE TABLE layer(id INTEGER PRIMARY KEY, name TEXT, block INTEGER, file TEXT, line INTEGER);
CREATE TABLE section(id INTEGER PRIMARY KEY, device INTEGER, phase INTEGER, step INTEGER, kind TEXT, name TEXT);
CREATE TABLE kernel(id INTEGER PRIMARY KEY, section INTEGER, layer INTEGER, name TEXT, op TEXT, pass TEXT, nodes TEXT,
  flops REAL, read INTEGER, written INTEGER, pieces INTEGER, waits INTEGER, modelled REAL, code TEXT);
CREATE TABLE value(id INTEGER PRIMARY KEY, name TEXT, type TEXT, bytes INTEGER, depth INTEGER, device INTEGER, offset INTEGER,
  first INTEGER, last INTEGER, always INTEGER, kind TEXT, layer INTEGER);
CREATE TABLE edge(kernel INTEGER, value INTEGER, writes INTEGER);
CREATE TABLE send(id INTEGER PRIMARY KEY, value INTEGER, section INTEGER, from_device INTEGER, to_device INTEGER, bytes INTEGER);
CREATE TABLE event(call INTEGER, replica INTEGER, device INTEGER, thread INTEGER, kernel INTEGER, section INTEGER, micro INTEGER,
  start REAL, end REAL);
CREATE TABLE host(id INTEGER PRIMARY KEY, kind TEXT, name TEXT, thread INTEGER, start REAL, end REAL);
CREATE TABLE counter(kernel INTEGER, name TEXT, value REAL);
CREATE TABLE tile(device INTEGER, tile INTEGER, always INTEGER, peak INTEGER, code INTEGER, exchange INTEGER, gaps INTEGER);
CREATE TABLE cycles(kernel INTEGER, compute REAL, exchange REAL, sync REAL, host REAL, matrix_use REAL);
"""

OPS = [("conv2d", 40e6), ("relu", 2e5), ("max_pool2d", 3e5), ("linear", 9e6), ("group_norm", 1e6)]
CODE = """/* %{v} = {op} of {layer} */
static void {name}(float *restrict out, const float *restrict x, const float *restrict w, int piece)
{{
    for (int64_t i = piece * 16; i < (piece + 1) * 16; i++) {{
        float sum = 0;
        for (int64_t k = 0; k < {v}; k++)
            sum += x[i * {v} + k] * w[k];
        out[i] = sum > 0 ? sum : 0.0f;
    }}
}}
"""


class Net:
    def __init__(self, layers, devices, name, seed, forward):
        self.random, self.devices = random.Random(seed), devices
        self.rows = {t: [] for t in ("layer", "section", "kernel", "value", "edge", "send")}
        self.names = [name(i) for i in range(layers)]
        self.forward = forward
        self.make_kernels(layers)

    def add(self, table, *row):
        self.rows[table].append([len(self.rows[table]), *row])
        return len(self.rows[table]) - 1

    def device(self, layer):
        return layer * self.devices // len(self.names)

    def section(self, device, kind):
        return self.add("section", device, int(kind == "update"), 0, kind, f"stage {device}")

    def kernel(self, section, layer, op, passed, flops, reads, writes):
        k = len(self.rows["kernel"])
        size = sum(self.rows["value"][v][3] for v in reads + writes)
        self.add("kernel", section, layer, f"k{k}_{op}", op, passed, f"%{k} = {op} %{k - 1}\n%{k}b = relu %{k}", flops, size // 2, size // 3,
                 4, k % 2, flops / 20e9 + size / 10e9 + 1e-6,
                 CODE.format(v=k, op=op, layer=self.names[layer].replace("*/", ""), name=f"k{k}_{op}"))
        for v, w in [(v, 0) for v in reads] + [(v, 1) for v in writes]:
            self.rows["edge"].append([k, v, w])
            row = self.rows["value"][v]
            row[7] = k if row[7] is None else row[7]
            row[8] = k
        return k

    def value(self, name, kind, size, layer, always=0):
        return self.add("value", name, f"f32[{size // 4}]", size, 1, self.device(layer), None, None, None, always, kind, layer)

    def make_kernels(self, layers):
        r, kept, weights, grads = self.random, [], [], {}
        for i, name in enumerate(self.names):
            self.add("layer", name, self.device(i), "net.py", 10 + i)
            weights.append(self.value(name + ".weight", "weight", 4 * r.randint(2000, 60000), i, 1))
            self.value(name + ".weight.momentum", "state", self.rows["value"][-1][3], i, 1)
        x = self.value("images", "input", 4 * 16 * 784, 0)
        section = None
        for i in range(layers):
            if section is None or self.device(i) != self.device(i - 1):
                section = self.section(self.device(i), "forward")
            for n in range(self.forward):
                op, flops = OPS[(i + n) % len(OPS)]
                y = self.value(f"{self.names[i]} {op}", "activation", 4 * r.randint(4000, 90000), i)
                self.kernel(section, i, op, "forward", flops * r.uniform(.5, 2), [x, weights[i]], [y])
                if self.rows["value"][x][5] != self.device(i):
                    self.add("send", x, section - 1, self.device(i - 1), self.device(i), self.rows["value"][x][3])
                kept.append((i, op, flops, x))
                x = y
        section, g = None, x
        for i, op, flops, x in reversed(kept):
            if section is None or self.device(i) != self.rows["section"][section][1]:
                before, section = section, self.section(self.device(i), "backward")
                if before is not None:
                    self.add("send", g, before, self.rows["section"][before][1], self.device(i), self.rows["value"][g][3])
            dw = self.value(f"{self.names[i]} weight gradient", "gradient", self.rows["value"][weights[i]][3], i)
            self.kernel(section, i, op + "_weight", "backward", flops * r.uniform(1, 2), [x, g], [dw])
            grads[i] = dw
            dx = self.value(f"{self.names[i]} gradient", "gradient", self.rows["value"][x][3], i)
            self.kernel(section, i, op + "_input", "backward", flops * r.uniform(.5, 2), [g, weights[i]], [dx])
            g = dx
        for d in range(self.devices):
            section = self.section(d, "update")
            for i in range(layers):
                if self.device(i) == d:
                    self.kernel(section, i, "sgd", "update", 1e5, [grads[i], weights[i]], [weights[i]])

    def place(self):
        """First fit, largest first; what is not always live by its first and last kernel."""
        peaks, always = [0] * self.devices, [0] * self.devices
        for d in range(self.devices):
            placed = []
            mine = [v for v in self.rows["value"] if v[5] == d]
            for v in sorted(mine, key=lambda v: (-v[9], -v[3])):
                v[7], v[8] = (v[7] or 0), (v[8] or 0)
                at = 0
                if v[9]:
                    at, always[d] = always[d], always[d] + v[3]
                else:
                    at = always[d]
                    for lo, hi, a, b in placed:
                        if a <= v[8] and v[7] <= b and lo < at + v[3] and at < hi:
                            at = hi
                    bisect.insort(placed, (at, at + v[3], v[7], v[8]))
                v[6] = at
                peaks[d] = max(peaks[d], at + v[3])
        return peaks, always


def run_events(net, calls, micros, threads):
    """A pipeline as it runs: a section of a micro-batch begins when its device and the section before are done."""
    rows, at, host, r = [], 0.005, [["compile", "net", 0, 0.0, 0.004]], net.random
    by_section = {}
    for k in net.rows["kernel"]:
        by_section.setdefault(k[1], []).append(k)
    for call in range(calls):
        free, done, begin = [at + 0.0002] * net.devices, {}, at
        host.append(["copy_in", f"batch {call}", 0, at, at + 0.0002])
        order = [(s[4] == "update", m, i, s) for i, s in enumerate(net.rows["section"]) for m in range(micros)
                 if s[4] != "update" or m == micros - 1]
        for _, m, i, s in sorted(order, key=lambda o: (o[0], o[1] + o[2], o[2])):
            start = max(free[s[1]], done.get((i - 1, m), 0) if s[4] != "update" else free[s[1]])
            t = start
            for k in by_section.get(s[0], []):
                long = k[12] * r.uniform(.7, 1.4) / threads + 2e-7
                for thread in range(threads):
                    rows.append([call, 0, s[1], thread, k[0], s[0], m, t, t + long * r.uniform(.9, 1)])
                t += long
            rows.append([call, 0, s[1], 0, None, s[0], m, start, t])
            free[s[1]] = done[i, m] = t
        at = max(free) + 0.0003
        host.append(["call", f"call {call}", 0, begin, at])
        at += 0.0001
    return rows, host


def write(path, layers=4, devices=1, calls=3, micros=1, threads=2, name=lambda i: f"layer{i}", forward=1, limit=0, refused=None, seed=1,
          tiles=0, model="net", code=True):
    """Writes profile.db; `refused`: the plan did not fit, so nothing ran."""
    path = Path(path)
    path.unlink(missing_ok=True)
    net = Net(layers, devices, name, seed, forward)
    peaks, always = net.place()
    events, host = run_events(net, 0 if refused else calls, micros, threads)
    db = sqlite3.connect(path)
    db.executescript(SCHEMA)

    def fill(table, rows):
        if rows:
            db.executemany(f"INSERT INTO {table} VALUES({','.join('?' * len(rows[0]))})", rows)

    flops = sum(k[7] for k in net.rows["kernel"])
    run = {"schema": 1, "tessera": "0.9", "model": model, "fits": int(not refused), "compiler": "gcc 12.2", "isa": "x86-64-v3",
           "machine": "two cores", "cores": 2, "threads": threads, "peak_gflops": 120, "bandwidth_gbs": 20, "batch": 16, "iterations": 1,
           "accumulation": micros, "replicas": 1, "devices": devices, "schedule": "pipelined" if devices > 1 else "", "precision": "f32",
           "flops_step": flops, "peak_bytes": sum(peaks), "calls": calls, "samples_per_call": 16 * micros, "created": "2026-01-01T12:00:00",
           "source": "plan" if refused else "measured", "option.gradient_accumulation": micros}
    if refused:
        run["refused"] = refused
    if tiles:
        run |= {"ipu_hertz": 1.33e9, "ipu_step_cycles": 120000, "ipu_call_cycles": 150000, "ipu_balance": 0.8}
    fill("run", [[k, str(v)] for k, v in run.items()])
    fill("device", [[d, "mk2" if tiles else "cpu", limit, tiles, peaks[d], always[d], 0] for d in range(devices)])
    if not code:
        for k in net.rows["kernel"]:
            k[13] = None
    for table, rows in net.rows.items():
        fill(table, rows)
    fill("event", events)
    fill("host", [[i, *h] for i, h in enumerate(host)])
    if tiles:
        fill("tile", [[d, t, always[d] // tiles, peaks[d] // tiles + 20000 + t * 7 % 9000, 16000, 4000, 1000] for d in range(devices) for t in range(tiles)])
        fill("cycles", [[k[0], k[7] / 1472 / 32, k[8] / 8 / 1472, 140, 0, .8 if "conv" in k[4] else None] for k in net.rows["kernel"]])
    db.commit()
    db.close()
    return path


def resnet(i):
    """Names as deep as resnet50's."""
    stage, block = i // 12 + 1, i // 3 % 4
    return f"layer{stage}.{block}.{['conv1', 'bn1', 'conv2'][i % 3]}"


HOSTILE = ["<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "\"><svg onload=alert(3)>", "a\u202e\x07\x1b[31m'`${alert(4)}",
           "=cmd|' /C calc'!A0", "x" * 3000, "", "<!-- --> ]]> &lt;b&gt;"]
KINDS = {
    "small": dict(layers=5, model="classifier"),
    "pipeline": dict(layers=12, devices=4, micros=8, calls=3, threads=1, model="mnist-pipeline"),
    "deep": dict(layers=54, forward=4, calls=3, name=resnet, model="resnet50"),
    "huge": dict(layers=334, forward=5, calls=10, name=lambda i: f"stack.{i // 40}.block{i // 8}.layer{i}", model="huge"),
    "refused": dict(layers=12, devices=2, limit=1 << 20, refused="device 0 needs 2969.6 KiB, 1433.6 KiB of them always, and has 1024.0 KiB", model="large"),
    "tiles": dict(layers=8, devices=2, tiles=1472, limit=1472 * 624 * 1024, micros=4, model="model of an IPU"),
    "hostile": dict(layers=len(HOSTILE), name=lambda i: HOSTILE[i], model="<script>alert('model')</script>"),
}


if __name__ == "__main__":
    import sys
    for kind in sys.argv[2:] or KINDS:
        print(write(Path(sys.argv[1]) / f"{kind}.db", **KINDS[kind]), end="\n")
