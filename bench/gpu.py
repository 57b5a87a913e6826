"""Training steps on a GPU, ours and PyTorch's, window by window in turns. Writes build/bench-gpu.json.

    python3 bench/gpu.py [--only W1,W2] [--seconds 0.5] [--rounds 3] [--no-compiled] [--output FILE]

PyTorch runs eagerly, compiled (torch.compile), and as a CUDA graph of the whole step; TF32 is off on both sides. The
best window of each counts. `ratio` is ours to the best of PyTorch's. What each kernel of ours takes by itself is
written beside the JSON, to bench-gpu-profile.txt.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 450    # seconds; torch.compile is left out of what comes after
WORKLOADS = ["W1", "W2", "W3", "W4", "W5", "resnet18", "encoder", "resnet18-bf16", "encoder-bf16"]


# --- ours ---

class Ours:
    def __init__(self, name, device):
        bundled = ROOT / "build-gpu" / "gpu_steps"
        program = bundled if bundled.exists() else ROOT / "build" / "bench" / "gpu_steps"
        env = dict(os.environ)
        if bundled.exists():
            env["LD_LIBRARY_PATH"] = f"{env.get('LD_LIBRARY_PATH', '')}:{ROOT / 'build-gpu' / 'lib'}"
        self.process = subprocess.Popen([program, name, device], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=env)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(self.process.stderr.read().strip()[:1500] or "gpu_steps ended without a word")
        self.facts = json.loads(line)

    def ask(self, word):
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def window(self, seconds):
        self.ask(seconds)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(self.process.stderr.read().strip()[:1500])
        return float(line)

    def warm(self):
        self.ask("warm")
        return float(self.process.stdout.readline() or "nan")

    def profile(self):
        self.ask("profile")
        lines = []
        for line in self.process.stdout:
            if line == "end\n":
                break
            lines.append(line)
        return "".join(lines)

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


# --- PyTorch's ---

def net(name):
    """The module, which returns its loss, and a batch."""
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    sys.path.insert(0, str(ROOT / "test" / "python"))
    import nets
    half = name.endswith("-bf16")
    kind = torch.bfloat16 if half else torch.float32

    class Classify(nn.Module):
        def __init__(self):
            super().__init__()
            import torchvision
            self.body = torchvision.models.resnet18(num_classes=1000)

        def forward(self, x, t):
            return F.cross_entropy(self.body(x).float(), t)

    class Encode(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(*[nn.TransformerEncoderLayer(256, 8, 1024, 0.0, batch_first=True)
                                        for _ in range(4)])

        def forward(self, x, t=None):
            return self.body(x).float().square().mean()

    if name.startswith("resnet18"):
        module, x, t = Classify(), torch.randn(64, 3, 64, 64), torch.randint(10, (64,))
    elif name.startswith("encoder"):
        module, x, t = Encode(), torch.randn(32, 128, 256), None
    elif name == "W5":
        module, x, t = nets.Cosmic(), torch.randn(1, 3, 320, 512), torch.randint(3, (1, 3, 320, 512))
    else:
        module = {"W1": nets.Fashion, "W2": lambda: nets.Digits(True), "W3": nets.Pipeline, "W4": nets.Residual}[name]()
        batch = {"W1": 16, "W2": 8, "W3": 40}.get(name)
        x = torch.randn(batch, 1, 28, 28) if batch else torch.randn(1, 32, 160, 256)
        t = torch.randint(10, (batch,)) if batch else None
    module = module.to("cuda", kind).train()
    return module, x.to("cuda", kind), None if t is None else t.cuda()


def optimizer_for(name, module):
    import torch
    if name in ("W3", "encoder", "encoder-bf16"):
        return torch.optim.AdamW(module.parameters(), lr=1e-4, capturable=True)
    if name == "W5":
        return torch.optim.Adam(module.parameters(), lr=1e-4, capturable=True)
    return torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9 if name == "W1" else 0.0)


def stepper(name, compiled):
    import torch
    module, x, t = net(name)
    optimizer = optimizer_for(name, module)
    forward = torch.compile(module) if compiled else module

    def step():
        optimizer.zero_grad(set_to_none=True)
        forward(x, t).backward()
        optimizer.step()
    return step


def graphed(name):
    import torch
    module, x, t = net(name)
    optimizer = optimizer_for(name, module)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            module(x, t).backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        module(x, t).backward()
        optimizer.step()

    def step(kept=(module, x, t, optimizer)):    # the graph has their addresses
        graph.replay()
    return step


def torch_window(step, seconds):
    import torch
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for _ in range(8):
            step()
        torch.cuda.synchronize()
        steps += 8
    return steps / (time.perf_counter() - start)


def torch_steps(name, with_compiled):
    """Those ways that work here, ready to be timed, and why others do not."""
    import torch
    made, why = {}, {}
    ways = {"eager": lambda: stepper(name, False), "graph": lambda: graphed(name)}
    if with_compiled:
        ways["compiled"] = lambda: stepper(name, True)
    for way, make in ways.items():
        try:
            step = make()
            for _ in range(4):
                step()
            torch.cuda.synchronize()
            made[way] = step
        except Exception as error:    # one way that fails must not end the run
            why[way] = str(error).splitlines()[0][:200]
    return made, why


# --- both ---

def measure(name, options, began):
    row = {"workload": name}
    ours = None
    try:
        ours = Ours(name, options.device)
        row.update(ours.facts)
    except RuntimeError as error:
        row["error"] = str(error)
    theirs, row["failed"] = ({}, {}) if options.ours else torch_steps(
        name, not options.no_compiled and time.monotonic() - began < LIMIT / 2)
    best = {}
    for _ in range(options.rounds):
        if ours:
            try:
                best["ours"] = max(best.get("ours", 0), ours.window(options.seconds))
            except RuntimeError as error:
                row["error"], ours = str(error), None
        for way, step in theirs.items():
            best[way] = max(best.get(way, 0), torch_window(step, options.seconds))
    row.update({way: round(value, 1) for way, value in best.items()})
    others = [value for way, value in best.items() if way != "ours"]
    if "ours" in best and others:
        row["ratio"] = round(best["ours"] / max(others), 3)
    table = ""
    if ours:
        row["warm_s"] = round(ours.warm(), 4)
        table = ours.profile()
        ours.close()
    return row, table


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=",".join(WORKLOADS))
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-compiled", action="store_true")
    parser.add_argument("--ours", action="store_true", help="without PyTorch")
    parser.add_argument("--output", default=str(ROOT / "build" / "bench-gpu.json"))
    options = parser.parse_args()
    began = time.monotonic()
    if not options.ours:
        try:
            import torch
        except ImportError as why:
            sys.exit(f"bench-gpu: skipped: {why}")
        if not torch.cuda.is_available():
            sys.exit("bench-gpu: skipped: PyTorch sees no GPU here")
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    output = Path(options.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    rows, tables = [], []
    for name in options.only.split(","):
        row, table = measure(name, options, began)
        rows.append(row)
        tables.append(f"{name}\n{table}\n")
        numbers = " ".join(f"{way} {row.get(way, '-')}" for way in ("ours", "eager", "compiled", "graph", "ratio"))
        print(f"{name:14} {numbers} launches {row.get('launches', '-')} compile {row.get('compile_s', '-')} s warm {row.get('warm_s', '-')} s "
              f"{row.get('error', '')} {row.get('failed') or ''}", flush=True)
        output.write_text(json.dumps(rows, indent=1) + "\n")
        output.with_name("bench-gpu-profile.txt").write_text("".join(tables))


main()
