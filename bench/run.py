#!/usr/bin/python3
"""Training steps a second against PyTorch, on the same cores, in one run.

    bench/run.py                        all workloads, two threads
    bench/run.py --workloads W1,W3      some of them
    bench/run.py --threads 1 --windows 8

    W1   Fashion-MNIST classifier, batch 16, SGD with momentum
    W2   digits, 32 and 64 channels, dropout, batch 8, SGD
    W3   digits, 10 and 20 channels, batch 40, AdamW
    W4   residual block, 32 channels of 160 x 256, batch 1, SGD
    W5   uresnet-a21, CosmicTagger's network, three planes of 320 x 512, batch 1, Adam

Windows of about a second alternate between the two, and the best window of each counts: what else the
machine does makes a window slower, never faster. The data is in memory on both sides. PyTorch runs
eagerly, with OpenBLAS if Debian's alternative points there; with the reference BLAS the comparison would
flatter us, and the report says so. Two-thread figures depend on how fast the cores talk to each other,
which a virtual machine may change at any time, so that is measured too.

"direct" (direct_pct) is the arithmetic of direct convolutions in that time, against the multiply-add peak of
the cores; Winograd does with less, so it may pass 100 %. "of peak" (fma_peak_pct) is what is executed: the
plan's count where that is smaller. (Elsewhere it is larger, for it has taps that the kernels clip away.) "planned" is the plan's block,
"resident" what the loop was measured to keep in memory (bench/steps.c says how).

After W1 it also prints a sweep of sizes (bench/sweep.c), and measures the loader alone, in samples a second, against what W1 consumes; and the poptorch package
(bench/loop.py): what a call costs beyond the engine, and W1 as a training loop with its DataLoader against the same
loop in PyTorch.

Writes build/bench.json, a list with one object a workload; W1's has the figures of poptorch too.
"""

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Multiply-adds of a step's contractions done directly, times 2: what a plain program would have to do.
FLOPS = {"W1": 23.0e6, "W2": 123e6, "W3": 120e6, "W4": 4.53e9, "W5": 243e9}


def arguments():
    parser = argparse.ArgumentParser(description="Training steps a second against PyTorch.")
    parser.add_argument("--workloads", default=",".join(FLOPS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--windows", type=int, default=5, help="of each side, a workload")
    parser.add_argument("--seconds", type=float, default=1.0, help="a window")
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--no-torch", action="store_true", help="measure only Tessera")
    args = parser.parse_args()
    args.workloads = args.workloads.split(",")
    for w in args.workloads:
        if w not in FLOPS:
            parser.error(f"no workload '{w}'; there are {', '.join(FLOPS)}")
    return args


class Tessera:
    """One workload in a process of its own, waiting to be asked for a window."""

    def __init__(self, build, workload, threads, cache):
        self.child = subprocess.Popen([build / "bench" / "steps", workload, str(threads), cache],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.facts = json.loads(self.line())

    def line(self):
        line = self.child.stdout.readline()
        if not line:
            sys.exit(f"bench: steps ended with status {self.child.wait()}")
        return line

    def window(self, seconds):
        self.child.stdin.write(f"{seconds}\n")
        self.child.stdin.flush()
        return float(self.line())

    def close(self):
        self.child.stdin.close()
        self.child.wait()


class Torch:
    def __init__(self, workload, threads):
        import torch
        import nets
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        self.model, make = {
            "W1": (nets.Fashion(), lambda p: torch.optim.SGD(p, lr=0.001, momentum=0.9)),
            "W2": (nets.Digits(dropout=True), lambda p: torch.optim.SGD(p, lr=0.03)),
            "W3": (nets.Pipeline(), lambda p: torch.optim.AdamW(p, lr=0.001)),
            "W4": (nets.Residual(), lambda p: torch.optim.SGD(p, lr=0.01)),
            "W5": (nets.Cosmic(), lambda p: torch.optim.Adam(p, lr=0.0001)),
        }[workload]
        self.optimizer = make(self.model.parameters())
        shape = {"W1": (16, 1, 28, 28), "W2": (8, 1, 28, 28), "W3": (40, 1, 28, 28), "W4": (1, 32, 160, 256),
                 "W5": (1, 3, 320, 512)}[workload]
        labels = (3, shape) if workload == "W5" else (10, shape[:1])
        self.batches = [(torch.rand(shape) * 2 - 1, torch.randint(*labels)) for _ in range(3 if workload == "W5" else 16)]
        for x, t in self.batches[:3]:
            self.step(x, t)

    def step(self, x, t):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(x, t)
        loss.backward()
        self.optimizer.step()
        return loss

    def window(self, seconds):
        start, steps = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            self.step(*self.batches[steps % len(self.batches)])
            steps += 1
        return steps / (time.perf_counter() - start)


def set_blas_threads(n):
    """OpenBLAS reads its environment once; this reaches it later. False where it is not OpenBLAS."""
    try:
        ctypes.CDLL(torch_blas()).openblas_set_num_threads(n)
        return True
    except (OSError, AttributeError):
        return False


def torch_blas():
    """The BLAS library this process has loaded, as a path; '' when PyTorch brings its own."""
    import torch
    torch.ones(64, 64) @ torch.ones(64, 64)
    maps = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
    found = sorted(p for p in maps if "blas" in Path(p).name or "mkl" in Path(p).name)
    return next((p for p in found if "openblas" in p), found[0] if found else "")


def describe_torch(args):
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed: measuring Tessera only")
        return False
    blas = torch_blas()
    print(f"PyTorch {torch.__version__}, BLAS: {blas or 'built in'}")
    if blas and "openblas" not in blas:
        print("  this is not OpenBLAS: the comparison flatters us. Install libopenblas0-pthread and point the\n"
              "  alternative libblas.so.3 at it.")
    return True


def best(windows):
    return max(windows) if windows else None


def measure(args, workload, machine, with_torch, cache):
    ours = Tessera(args.build, workload, args.threads, cache)
    theirs = Torch(workload, args.threads) if with_torch else None
    a, b = [], []
    for _ in range(args.windows):
        a.append(ours.window(args.seconds))
        # PyTorch's threads and OpenBLAS's get in each other's way on some machines: it has both chances, and the best counts
        for blas in sorted({1, args.threads}) if theirs else ():
            set_blas_threads(blas)
            b.append(theirs.window(args.seconds))
    ours.close()
    facts, speed, torch_speed = ours.facts, best(a), best(b)
    executed = min(facts["flops"], FLOPS[workload])
    peak = machine["fma_1"] if args.threads == 1 else machine["fma_2"] * args.threads / 2
    return {
        "workload": workload,
        "threads": args.threads,
        "tessera_steps_per_s": round(speed, 2),
        "torch_steps_per_s": round(torch_speed, 2) if torch_speed else None,
        "ratio": round(speed / torch_speed, 3) if torch_speed else None,
        "fma_peak_pct": round(100 * executed * speed / peak, 2),
        "direct_pct": round(100 * FLOPS[workload] * speed / peak, 2),
        "compile_cold_s": facts["compile_cold_s"],
        "cache_warm_ms": round(1e3 * facts["compile_again_s"], 3) if facts["from_cache"] else None,
        "plan_bytes": facts["plan_bytes"],
        "rss_bytes": int(facts["rss_bytes"]),
    }


def text(value, form):
    return "-" if value is None else form.format(value)


def pipeline(build, threads):
    """Stages on several devices: what waiting costs beyond the schedule, and the speed against one device."""
    done = subprocess.run([build / "bench" / "pipeline", str(threads)], capture_output=True, text=True)
    print()
    for line in (done.stdout or f"not measured: {done.stderr.strip()}").splitlines():
        print(f"pipeline: {line}")


def sweep(build, seconds):
    """Nets that differ by one in one size: the largest step between neighbours beyond their work, on one thread."""
    print("\nsweep: time of a step against that of the size before, beyond what the work explains\n")
    print("                   sizes        us a step     largest excess")
    done = subprocess.run([build / "bench" / "sweep", "all", "1", str(seconds)], capture_output=True, text=True)
    for family in re.split(r"\n\n", done.stdout.strip()):
        rows = re.findall(r"^ +(\d+) +([\d.]+) +[\d.]+ +[\d.]+$", family, re.M)
        jump = re.search(r"jump ([\d.]+)", family)
        if rows and jump:
            name, what = family.split("\n")[0].split(": ", 1)
            print(f"{name:16} {rows[0][0]:>4} .. {rows[-1][0]:>3} {float(rows[0][1]):8.0f} .. {float(rows[-1][1]):<6.0f} "
                  f"{float(jump[1]):8.2f}x   {what}", flush=True)
    if done.returncode:
        print(f"sweep: not measured: {done.stderr.strip()}")


def loader(build, steps):
    """The loader alone, against the samples that W1 consumes at that many steps a second."""
    done = subprocess.run([build / "bench" / "loader"], capture_output=True, text=True)
    rates = {int(m[1]): float(m[2]) for m in re.finditer(r"^threads +(-?\d+) +(\d+) rows/s", done.stdout, re.M)}
    if done.returncode or not rates:
        print(f"\nloader: not measured: {done.stderr.strip()}")
        return
    for threads, rate in rates.items():
        who = {-1: "the caller itself", 1: "1 thread"}.get(threads, f"{threads} threads")
        print(f"{'' if threads != min(rates) else chr(10)}loader, {who}: {rate:,.0f} samples/s, "
              f"{rate / (16 * steps):.1f}x what W1 consumes")


def package(args, result, cache):
    """The poptorch package on W1."""
    import loop
    found = loop.measure(args.build, args.threads, args.windows, args.seconds, cache, set_blas_threads)
    if isinstance(found, str):
        print(f"\npoptorch: not measured: {found}")
        return
    result.update(found)
    print(f"\npoptorch, a call: {found['poptorch_call_overhead_us']:.1f} us beyond the engine's time\n"
          f"poptorch, training loop with its DataLoader: {found['poptorch_loop_steps_per_s']:,.0f} steps/s, PyTorch "
          f"{found['torch_loop_steps_per_s']:,.0f}, ratio {found['poptorch_loop_ratio']:.2f}x", flush=True)


def main():
    args = arguments()
    # OpenBLAS asks once, when it is loaded, and torch.set_num_threads does not reach it.
    for name in "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS":
        os.environ[name] = str(args.threads)
    sys.path.insert(0, str(ROOT / "test" / "python"))
    for program in "steps", "machine":
        if not (args.build / "bench" / program).exists():
            sys.exit(f"bench: {args.build}/bench/{program} is not there; run make first")

    machine = json.loads(subprocess.run([args.build / "bench" / "machine"], check=True, capture_output=True,
                                        text=True).stdout)
    print(f"f32 FMA peak: {machine['fma_1'] / 1e9:.1f} GFLOP/s on one core, {machine['fma_2'] / 1e9:.1f} on two; "
          f"core to core {machine['latency_ns']} ns; load {os.getloadavg()[0]:.1f}")
    with_torch = not args.no_torch and describe_torch(args)

    print(f"\n{args.threads} thread{'s' if args.threads > 1 else ''}, best of {args.windows} windows of {args.seconds:g} s, in turns\n")
    print("         steps/s   PyTorch    ratio   of peak    direct   compile   warm cache   planned   resident")
    results = []
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as cache:
        for workload in args.workloads:
            r = measure(args, workload, machine, with_torch, cache)
            results.append(r)
            print(f"{workload:4} {r['tessera_steps_per_s']:11.1f} {text(r['torch_steps_per_s'], '{:9.1f}'):>9} "
                  f"{text(r['ratio'], '{:.2f}x'):>8} {r['fma_peak_pct']:8.1f}% {r['direct_pct']:8.1f}% {r['compile_cold_s']:8.2f} s "
                  f"{text(r['cache_warm_ms'], '{:.1f} ms'):>12} {r['plan_bytes'] / 1e6:6.1f} MB "
                  f"{r['rss_bytes'] / 1e6:7.1f} MB", flush=True)
        w1 = next((r for r in results if r["workload"] == "W1"), None)
        if w1:
            loader(args.build, w1["tessera_steps_per_s"])
            pipeline(args.build, args.threads)
            sweep(args.build, args.seconds)
        if w1 and with_torch:
            package(args, w1, cache)
    out = args.build / "bench.json"
    out.write_text(json.dumps(results, indent=2) + "\n")
    print(f"\n{os.path.relpath(out)}")


if __name__ == "__main__":
    main()
