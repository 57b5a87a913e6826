#!/usr/bin/python3
"""Single operations against PyTorch, those that move, sort and look up before all: a table, and build/ops.json.

    bench/ops.py                          all cases of bench/op_cases.py, two threads
    bench/ops.py --cases topk,scatter     those with one of these in their name
    bench/ops.py --threads 1 --slow       only those that are slower than PyTorch are printed
    TS_TORCH2=/path/python bench/ops.py   also against the torch of that interpreter

A network's operations are seldom alone, but a slow one makes a slow network, and nets are too many to measure. Each case
is a function of tensors; with "grad" before its name its floats are parameters, and a step of SGD is measured.

Ours is measured against the torch of the interpreter that runs this, and of TS_TORCH2 where that is given, both eager.
Each side is a process of its own that goes through the cases, windows alternate, and the best window of each counts, as in
zoo.py. A ratio is of milliseconds a call: above 1 ours is faster. Below 1 a case is marked with <.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REST = 0.05    # seconds between two windows
LR = 1e-12
SIDES = {"ours": "ours", "eager": "eager", "eager2": "eager"}


def arguments():
    parser = argparse.ArgumentParser(description="Single operations against PyTorch.")
    parser.add_argument("--cases", default="", help="parts of names, with commas between them")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--windows", type=int, default=4, help="of each side, a case")
    parser.add_argument("--seconds", type=float, default=0.1, help="a window")
    parser.add_argument("--slow", action="store_true", help="print those below 1 only")
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--out", type=Path, help="the JSON file, usually ops.json in the build folder")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    return parser.parse_args()


# --- one side, in a process of its own ---

def module_of(torch, function, inputs, grad):
    """With grad the floats are parameters, and the loss has the result as its gradient."""
    class Case(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.at = [torch.nn.Parameter(x.clone()) if grad and x.is_floating_point() else x for x in inputs]
            self.own = torch.nn.ParameterList([x for x in self.at if isinstance(x, torch.nn.Parameter)])
            self.which = [isinstance(x, torch.nn.Parameter) for x in self.at]

        def forward(self, *given):
            own, given = iter(self.own), iter(given)
            y = function(*[next(own) if is_own else next(given) for is_own in self.which])
            if not grad:
                return y
            y = y[0] if isinstance(y, tuple) else y
            loss = (y * y).sum()
            if not wrapped:
                return loss
            import poptorch
            return poptorch.identity_loss(loss, reduction="none")
    wrapped = False
    case = Case()
    given = [x for x, is_own in zip(inputs, case.which) if not is_own]

    def wrap():
        nonlocal wrapped
        wrapped = True
        return case
    return case, given, wrap


def ours(torch, case, inputs, grad, wrap):
    import poptorch
    options = poptorch.Options().showCompilationProgressBar(False)
    options.enableExecutableCaching(os.environ["TS_OPS_CACHE"])
    if grad:
        model = poptorch.trainingModel(wrap(), options, poptorch.optim.SGD(case.parameters(), lr=LR))
    else:
        model = poptorch.inferenceModel(case, options)
    return lambda: model(*inputs)


def theirs(torch, case, inputs, grad):
    if not grad:
        def infer():
            with torch.no_grad():
                return case(*inputs)
        return infer
    optimizer = torch.optim.SGD(case.parameters(), lr=LR)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = case(*inputs)
        loss.backward()
        optimizer.step()
        return loss
    return step


def ready(torch, side, name):
    import op_cases
    torch.manual_seed(1)
    function, inputs = op_cases.CASES[name]()
    grad = name.startswith("grad ")
    case, given, wrap = module_of(torch, function, inputs, grad)
    return ours(torch, case, given, grad, wrap) if side == "ours" else theirs(torch, case, given, grad)


def window(step, seconds):
    steps, wall = 0, time.perf_counter()
    while steps < 1 or time.perf_counter() - wall < seconds:
        step()
        steps += 1
    return 1e3 * (time.perf_counter() - wall) / steps


def serve(side, threads):
    import torch
    torch.set_num_threads(threads)
    step = None
    for line in sys.stdin:
        words = line.rstrip("\n").split(" ", 1)
        try:
            if words[0] == "case":
                step = ready(torch, side, words[1])
                step()
                step()
            answer = window(step, float(words[1])) if words[0] == "window" else 0
        except Exception as why:    # what one side lacks is no reason to stop
            answer = str(why).strip().splitlines()[0][:200] if str(why).strip() else type(why).__name__
        print("=" + json.dumps(answer), flush=True)


class Side:
    def __init__(self, args, side, cache):
        env = {**os.environ, "TS_OPS_CACHE": cache, "PYTHONPATH": str(args.build / "python")}
        for variable in "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS":
            env[variable] = str(args.threads)
        if side.endswith("2"):
            env.pop("PYTHONPATH")
        program = os.environ["TS_TORCH2"] if side.endswith("2") else sys.executable
        self.child = subprocess.Popen([program, __file__, "--side", SIDES[side], "--threads", str(args.threads)], env=env,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def ask(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        for answer in self.child.stdout:
            if answer.startswith("="):
                return json.loads(answer[1:])
        return "the process ended"

    def begin(self, case):
        answer = self.ask(f"case {case}")
        self.best, self.error = math.inf, answer if isinstance(answer, str) else None

    def window(self, seconds):
        if not self.error:
            answer = self.ask(f"window {seconds}")
            self.error = answer if isinstance(answer, str) else None
            self.best = self.best if self.error else min(self.best, answer)

    def close(self):
        self.child.stdin.close()
        self.child.wait()


# --- the table ---

def measure(args, sides, case):
    for side in sides.values():
        side.begin(case)
    for _ in range(args.windows):
        for side in sides.values():
            time.sleep(REST)
            side.window(args.seconds)
    return {"case": case, "threads": args.threads,
            **{name: {"error": s.error} if s.error else {"ms": round(s.best, 4)} for name, s in sides.items()}}


def ratio(result, side):
    a, b = result["ours"].get("ms"), result[side].get("ms")
    return b / a if a and b else None


def show(result, others, slow):
    if "error" in result["ours"]:
        print(f"{result['case']:44} not measured: {result['ours']['error']}", flush=True)
        return
    ratios = [ratio(result, side) for side in others]
    below = any(r and r < 1 for r in ratios)
    line = f"{result['case']:44} {result['ours']['ms']:9.3f}"
    for side, r in zip(others, ratios):
        line += f" {result[side].get('ms', math.nan):9.3f} {r or math.nan:6.2f}x"
    if below or not slow:
        print(line + (" <" if below else ""), flush=True)


def chosen(args):
    sys.path.insert(0, str(ROOT / "bench"))
    import op_cases
    parts = args.cases.split(",") if args.cases else [""]
    return [case for case in op_cases.CASES if any(part in case for part in parts)]


def ops(args):
    names = ["ours", "eager"] + (["eager2"] if os.environ.get("TS_TORCH2") else [])
    print(f"\nops: milliseconds a call, {args.threads} thread{'s' if args.threads > 1 else ''}, best of {args.windows} windows "
          f"of {args.seconds:g} s in turns; load {os.getloadavg()[0]:.1f}\n")
    print(f"{'':44} {'ours':>9}" + "".join(f" {s:>9} {'ratio':>7}" for s in names[1:]))
    with tempfile.TemporaryDirectory(prefix="tessera-ops-") as cache:
        sides = {side: Side(args, side, cache) for side in names}
        results = []
        for case in chosen(args):
            results.append(measure(args, sides, case))
            show(results[-1], names[1:], args.slow)
        for side in sides.values():
            side.close()
    for side in names[1:]:
        found = [r for r in (ratio(x, side) for x in results) if r]
        if found:
            mean = math.exp(sum(map(math.log, found)) / len(found))
            print(f"{side}: {mean:.2f}x in the geometric mean, {sum(r < 1 for r in found)} of {len(found)} below 1")
    out = args.out or args.build / "ops.json"
    out.write_text(json.dumps(results, indent=2) + "\n")


def main():
    args = arguments()
    if args.side:
        sys.path.insert(0, str(ROOT / "bench"))
        serve(args.side, args.threads)
    else:
        ops(args)


if __name__ == "__main__":
    main()
