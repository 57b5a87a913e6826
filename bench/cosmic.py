r"""CosmicTagger from events to pictures by the command alone: can the net learn its events by heart?

    python3 bench/cosmic.py cosmic_tagging_light.h5 [--device gpu] [--precisions f32,bf16] [--devices 1,4] [--output FOLDER] \
        [-- OPTIONS OF train IN PLACE OF THOSE HERE]

`tessera train`, `eval` and `predict` of each precision on each number of devices. The net is uresnet-a21 with group norm, by
changed lines of its text: without a norm 300 steps are too few, and the running means of batch norm lag behind. Adam forgets
sooner than usual, for 300 steps are less than the 1,000 that 0.999 remembers. Prints a line
for each, the IoU that eval finds on the training events, and whether the weights of a precision are the same bits on every
number of devices. FOLDER gets the pictures, the curves, the logs and results.json. Exits with 1 when a mean IoU is below --least
or bits differ. The command is that of build-gpu/ (tools/gpu-bundle), where there is one, or of build/; Python needs no packages.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ["accuracy", "nonzero_accuracy", "mean_iou", "mean_iou_nonzero"]


def read_arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("data", type=Path)
    p.add_argument("--device", default="cpu")
    p.add_argument("--precisions", default="f32,bf16")
    p.add_argument("--devices", default="1,4")
    p.add_argument("--output", type=Path, default=ROOT / "build" / "cosmic")
    p.add_argument("--model", help="a name or text in place of it")
    p.add_argument("--downsample", default="2")
    p.add_argument("--epochs", default="60", help="times five events: 300 steps")
    p.add_argument("--event", default="3", help="whose pictures are drawn")
    p.add_argument("--least", type=float, default=0.9, help="mean IoU that is asked for")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    a = p.parse_args(sys.argv[1:at])
    a.rest = sys.argv[at + 1:]
    return a


def model(a):
    """uresnet-a21 with group norm of 16 groups, as a file."""
    text = subprocess.run([command(), "models", "uresnet-a21"], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert "let norm none " in text
    text = text.replace("let norm none ", "let norm group ").replace("group_norm 8", "group_norm 16")
    (a.output / "net.txt").write_text(text)
    return (a.output / "net.txt").resolve()


def command():
    bundled = ROOT / "build-gpu" / "tessera"
    return bundled if bundled.exists() else ROOT / "build" / "tessera"


class Run:
    """One precision on so many devices, in a folder of its own."""

    def __init__(self, a, precision, devices):
        self.a, self.precision, self.devices = a, precision, devices
        self.folder = a.output / f"{precision}-{devices}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.place = ["--device", a.device, "--devices", devices]

    def tessera(self, *args):
        """What it prints, which the log has too; the end of the log and our end where it fails."""
        with open(self.folder / "log.txt", "a") as log:
            print("$ tessera", *args, file=log, flush=True)
            done = subprocess.run([command(), *map(str, args)], cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=log)
            log.write(done.stdout)
        if done.returncode:
            sys.exit((self.folder / "log.txt").read_text()[-3000:] + f"\ncosmic: tessera {args[0]} ended with {done.returncode}")
        return done.stdout

    def train(self):
        a = self.a
        return self.tessera("train", a.data.resolve(), "--model", a.model, "--downsample", a.downsample, "--epochs", a.epochs,
                            "--precision", self.precision, *self.place, "--mean", 0, "--std", 20, "--lr", 0.003,
                            "--lr-schedule", "cosine", "--warmup", 1, "--clip", 0.02, "--beta1", 0.8, "--beta2", 0.9,
                            "--output", "net.safetensors", "--csv", "curve.csv", "--plots", "plots", "--overwrite", *a.rest)

    def measure(self):
        result = json.loads(self.tessera("eval", "net.safetensors", *self.place, "--json", "--plots", "plots"))
        self.tessera("predict", "net.safetensors", self.a.data.resolve(), "event", self.a.event, *self.place, "--plots", "plots")
        return result

    def all(self):
        (self.folder / "log.txt").write_text("")
        began = time.monotonic()
        self.train()
        trained = time.monotonic() - began
        result = self.measure()
        rows = list(csv.DictReader(open(self.folder / "curve.csv")))
        seconds = sorted(float(row["seconds"]) for row in rows)
        return {"precision": self.precision, "devices": int(self.devices), **{k: result[k] for k in FIGURES},
                "iou": {c["class"]: c["iou"] for c in result["classes"]}, "loss": result["loss"], "train_s": trained,
                "epoch_s": seconds[len(seconds) // 2], "all_s": time.monotonic() - began}


def tensors(path):
    """Names and bytes of a file of safetensors, without what it says of the run."""
    data = path.read_bytes()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {k: (t["dtype"], t["shape"], data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
            for k, t in header.items()}


def same_bits(runs):
    first, *others = (tensors(run.folder / "net.safetensors") for run in runs)
    return all(first == other for other in others)


def report(r):
    ious = ", ".join(f"{name} {iou:.4f}" for name, iou in r["iou"].items())
    print(f"{r['precision']:5} {r['devices']} devices: mean IoU {r['mean_iou']:.4f} ({ious}), accuracy {100 * r['accuracy']:.2f} %, of "
          f"non-background {100 * r['nonzero_accuracy']:.2f} %; training {r['train_s']:.1f} s, an epoch {r['epoch_s']:.2f} s", flush=True)


def main():
    a = read_arguments()
    a.output.mkdir(parents=True, exist_ok=True)
    a.model = a.model or model(a)
    os.environ.setdefault("TESSERA_CACHE_DIR", str(a.output / "cache"))
    results, good = [], True
    for precision in a.precisions.split(","):
        runs = [Run(a, precision, devices) for devices in a.devices.split(",")]
        for run in runs:
            results.append(run.all())
            report(results[-1])
            good = good and results[-1]["mean_iou"] >= a.least
            (a.output / "results.json").write_text(json.dumps(results, indent=1))
        if len(runs) > 1:
            same = same_bits(runs)
            print(f"{precision:5} weights on {a.devices} devices: {'the same bits' if same else 'DIFFERENT BITS'}", flush=True)
            good = good and same
    print(f"cosmic: {'all' if good else 'NOT all'} that is asked for: mean IoU {a.least} and the same bits")
    return 0 if good else 1


sys.exit(main())
