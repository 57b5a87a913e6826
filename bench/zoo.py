#!/usr/bin/python3
"""Networks of many kinds against PyTorch: a table, and build/zoo.json.

    bench/zoo.py                          all nets of bench/zoo_nets.py, two threads
    bench/zoo.py --nets mlp,gpt --threads 1
    bench/zoo.py --compile                what compiling takes, and the memory of the process; build/compile.json
    bench/zoo.py --products               matrix products of all sizes: their share of the multiply-add peak
    TS_TORCH2=/path/python bench/zoo.py   also against the torch of that interpreter, eager and compiled

Ours is measured against the torch of the interpreter that runs this, and of TS_TORCH2 where that is given. Each side
is a process of its own that waits to be asked for a window, and windows alternate: what else the machine does meets
all of them, and the best window of each counts. Between two windows nothing runs for a moment: OpenMP's threads spin for a
fifth of a second when their work is done, on the cores of whoever comes next. A ratio is of milliseconds a step: above 1 ours is faster.
"cpu" is the same of processor time.

--compile measures processor seconds besides, with those of the C compiler, since nothing else on the machine changes
them much: on n idle cores a compile takes little more than their nth part. Its "peak" is the most memory of a process that
finds the executable, beyond what it had before the first call, and "plan" what was planned.

"cold" is the time of the first call with an empty cache, tracing and the C compiler included, "warm" that of the
first call of a second process that finds the executable. "peak" is the most memory the process had.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LR = 1e-3
REST = 0.3    # seconds


def arguments():
    parser = argparse.ArgumentParser(description="Networks of many kinds against PyTorch.")
    parser.add_argument("--nets", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--windows", type=int, default=4, help="of each side, a net")
    parser.add_argument("--seconds", type=float, default=0.4, help="a window")
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--out", type=Path, help="the JSON file, usually zoo.json in the build folder")
    parser.add_argument("--sides", default="", help="of ours, eager, eager2, compiled2")
    parser.add_argument("--compile", action="store_true", help="what compiling takes, instead of speed")
    parser.add_argument("--first", metavar="NET", help=argparse.SUPPRESS)
    parser.add_argument("--products", action="store_true", help="matrix products instead of nets")
    parser.add_argument("--side", nargs=2, metavar=("SIDE", "NET"), help=argparse.SUPPRESS)
    return parser.parse_args()


# --- one side of one net, in a process of its own ---

def wrapped(module, training):
    import poptorch
    options = poptorch.Options().showCompilationProgressBar(False)
    options.enableExecutableCaching(os.environ["TS_ZOO_CACHE"])
    if not training:
        return poptorch.inferenceModel(module, options)
    return poptorch.trainingModel(module, options, poptorch.optim.SGD(module.parameters(), lr=LR, momentum=0.9))


def ours(module, inputs, training):
    model = wrapped(module, training)
    return lambda: model(*inputs)


def theirs(torch, module, inputs, training, compiled):
    module = torch.compile(module) if compiled else module
    if not training:
        def infer():
            with torch.no_grad():
                return module(*inputs)
        return infer
    optimizer = torch.optim.SGD(module.parameters(), lr=LR, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = module(*inputs)
        loss.backward()
        optimizer.step()
        return loss
    return step


def with_loss(torch, module):
    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module

        def forward(self, *args):
            import poptorch
            loss = self.inner(*args)
            return poptorch.identity_loss(loss, reduction="none")
    return Loss()


def serve(side, name, threads):
    import torch
    import zoo_nets
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    module, inputs, training = {**zoo_nets.ZOO, **zoo_nets.LARGE, **zoo_nets.LIBRARY}[name]()
    if side == "ours":
        step = ours(with_loss(torch, module) if training else module, inputs, training)
    else:
        step = theirs(torch, module, inputs, training, side.startswith("compiled"))
    start = time.perf_counter()
    step()
    print(json.dumps({"first_s": time.perf_counter() - start, "torch": torch.__version__}), flush=True)
    step()
    for line in sys.stdin:
        steps, wall, cpu = 0, time.perf_counter(), time.process_time()
        while steps < 1 or time.perf_counter() - wall < float(line):
            step()
            steps += 1
        spent = time.perf_counter() - wall, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps([1e3 * spent[0] / steps, 1e3 * spent[1] / steps, peak]), flush=True)


def spent(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def first(name):
    """The first call of a net of zoo_nets.COMPILED: what it took."""
    import torch
    import zoo_nets
    torch.manual_seed(1)
    module, inputs, training = zoo_nets.COMPILED[name]()
    model = wrapped(with_loss(torch, module) if training else module, training)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, own, compiler = time.perf_counter(), spent(resource.RUSAGE_SELF), spent(resource.RUSAGE_CHILDREN)
    model.compile(*inputs)
    found = {"s": time.perf_counter() - wall, "own_cpu_s": spent(resource.RUSAGE_SELF) - own,
             "compiler_cpu_s": spent(resource.RUSAGE_CHILDREN) - compiler}
    stats = model._program.executable.stats()
    model(*inputs)
    found["first_s"] = time.perf_counter() - wall
    found["peak_mb"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    found["plan_mb"], found["kernels"] = stats["peak_bytes"] / (1 << 20), stats["kernels"]
    print(json.dumps(found), flush=True)


class Side:
    def __init__(self, args, side, name, cache):
        env = {**os.environ, "TS_ZOO_CACHE": cache, "PYTHONPATH": str(args.build / "python")}
        for variable in "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS":
            env[variable] = str(args.threads)
        if side.endswith("2"):
            env.pop("PYTHONPATH")
        program = os.environ["TS_TORCH2"] if side.endswith("2") else sys.executable
        self.child = subprocess.Popen([program, __file__, "--side", side, name, "--threads", str(args.threads)],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                      env=env)
        line = self.child.stdout.readline()
        self.facts = json.loads(line) if line else None
        self.best = [math.inf, math.inf, 0]

    def window(self, seconds):
        self.child.stdin.write(f"{seconds}\n")
        self.child.stdin.flush()
        found = json.loads(self.child.stdout.readline() or "[1e99, 1e99, 0]")
        self.best = [min(self.best[0], found[0]), min(self.best[1], found[1]), max(self.best[2], found[2])]

    def close(self):
        self.child.stdin.close()
        why = self.child.stderr.read().strip().splitlines()
        self.child.wait()
        return why[-1] if why else ""


# --- the table ---

def measure(args, name, names):
    with tempfile.TemporaryDirectory(prefix="tessera-zoo-") as cache:
        sides = {side: Side(args, side, name, cache) for side in names}
        for _ in range(args.windows):
            for side in sides.values():
                if side.facts:
                    time.sleep(REST)
                    side.window(args.seconds)
        result = {"net": name, "threads": args.threads}
        for side, found in sides.items():
            why = found.close()
            if not found.facts:
                result[side] = {"error": why}
                continue
            result[side] = {"ms": round(found.best[0], 3), "cpu_ms": round(found.best[1], 3),
                            "peak_mb": round(found.best[2], 1), "first_s": round(found.facts["first_s"], 3),
                            "torch": found.facts["torch"]}
        if "ours" in sides and sides["ours"].facts:
            again = Side(args, "ours", name, cache)
            again.close()
            result["ours"]["warm_s"] = round(again.facts["first_s"], 3)
    return result


def ratio(result, side, what):
    a, b = result.get("ours", {}).get(what), result.get(side, {}).get(what)
    return b / a if a and b else None


def mean(results, side, what):
    found = [math.log(r) for r in (ratio(x, side, what) for x in results) if r]
    return math.exp(sum(found) / len(found)) if found else None


def text(value, form="{:.2f}x"):
    return "-" if value is None else form.format(value)


def show(result, others):
    our = result.get("ours", {})
    if "error" in our:
        print(f"{result['net']:24} not measured: {our['error']}", flush=True)
        return
    line = f"{result['net']:24} {our['ms']:9.2f}"
    for side in others:
        their = result.get(side, {})
        line += (f" {text(their.get('ms'), '{:.2f}'):>9} {text(ratio(result, side, 'ms')):>7} "
                 f"{text(ratio(result, side, 'cpu_ms')):>7}")
    peaks = " / ".join(text(result.get(side, {}).get("peak_mb"), "{:.0f}") for side in others)
    print(f"{line} {our['first_s']:7.2f} {text(our.get('warm_s'), '{:.2f}'):>6} {our['peak_mb']:6.0f} / {peaks}", flush=True)


def zoo(args):
    sys.path.insert(0, str(ROOT / "bench"))
    import zoo_nets
    names = args.nets.split(",") if args.nets else list(zoo_nets.ZOO)
    sides = ["ours", "eager"] + (["eager2", "compiled2"] if os.environ.get("TS_TORCH2") else [])
    sides = [s for s in sides if not args.sides or s in args.sides.split(",")]
    others = [s for s in sides if s != "ours"]
    print(f"\nzoo: milliseconds a step, {args.threads} thread{'s' if args.threads > 1 else ''}, best of {args.windows} windows "
          f"of {args.seconds:g} s in turns; load {os.getloadavg()[0]:.1f}\n")
    print(f"{'':24} {'ours':>9}" + "".join(f" {s:>9} {'ratio':>7} {'cpu':>7}" for s in others) + "    cold   warm   peak MB")
    results = []
    for name in names:
        results.append(measure(args, name, sides))
        show(results[-1], others)
    line = f"{'geometric mean':24} {'':9}"
    for side in others:
        line += f" {'':9} {text(mean(results, side, 'ms')):>7} {text(mean(results, side, 'cpu_ms')):>7}"
    print(line)
    out = args.out or args.build / "zoo.json"
    out.write_text(json.dumps(results, indent=2) + "\n")
    print(f"\n{os.path.relpath(out)}")


def start(args, name, cache):
    """What the first call of a process took, or None."""
    env = {**os.environ, "TS_ZOO_CACHE": cache, "PYTHONPATH": str(args.build / "python")}
    done = subprocess.run([sys.executable, __file__, "--first", name], capture_output=True, text=True, env=env)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def compiles(args):
    """What compiling takes, in seconds; build/compile.json."""
    sys.path.insert(0, str(ROOT / "bench"))
    import zoo_nets
    results = []
    print(f"\ncompile: seconds of the first call and of that of a second process; load {os.getloadavg()[0]:.1f}\n")
    print(f"{'':24} {'kernels':>8} {'cold':>7} {'cpu':>7} {'of cc':>7} {'warm':>7} {'peak MB':>9} {'plan MB':>9} {'ratio':>6}")
    for name in args.nets.split(",") if args.nets else zoo_nets.COMPILED:
        with tempfile.TemporaryDirectory(prefix="tessera-zoo-") as cache:
            cold = start(args, name, cache)
            warm = start(args, name, cache) if cold else None
        if not warm:
            print(f"{name:24} not measured", flush=True)
            continue
        results.append({"net": name, "cold": cold, "warm": warm})
        cpu = cold["own_cpu_s"] + cold["compiler_cpu_s"]
        print(f"{name:24} {cold['kernels']:8} {cold['s']:7.2f} {cpu:7.2f} {cold['compiler_cpu_s']:7.2f} {warm['s']:7.2f} "
              f"{warm['peak_mb']:9.0f} {warm['plan_mb']:9.0f} {warm['peak_mb'] / warm['plan_mb']:6.2f}", flush=True)
    (args.build / "compile.json").write_text(json.dumps(results, indent=2) + "\n")


def products(args):
    """The share of the f32 multiply-add peak of matrix products, in percent; build/products.json."""
    done = subprocess.run([args.build / "bench" / "products"], capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    columns = [(d, t, f) for d in ("f32", "bf16") for t in (1, 2) for f in ("nn", "nt", "tn")]
    print("\nproducts: percent of the f32 multiply-add peak, by dtype, threads and form\n")
    print("size " + "".join(f"{d:>5} {t} {f}" for d, t, f in columns))
    for size in sorted({r["size"] for r in found}):
        shares = {(r["dtype"], r["threads"], r["form"]): r["peak_pct"] for r in found if r["size"] == size}
        print(f"{size:4} " + "".join(f"{text(shares.get(c), '{:.0f}'):>10}" for c in columns))
    if done.returncode:
        print(f"products: not measured: {done.stderr.strip()}")
    (args.build / "products.json").write_text(json.dumps(found, indent=2) + "\n")


def main():
    args = arguments()
    if args.products:
        products(args)
    elif args.compile:
        compiles(args)
    elif args.first:
        sys.path.insert(0, str(ROOT / "bench"))
        first(args.first)
    elif args.side:
        sys.path.insert(0, str(ROOT / "bench"))
        serve(*args.side, args.threads)
    else:
        zoo(args)


if __name__ == "__main__":
    main()
