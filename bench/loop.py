"""The first tutorial's training loop, loader included, on poptorch and on PyTorch. bench/run.py runs it with W1.

Both sides go through Fashion-MNIST shuffled, batches of 16, as the script does: the same dataset and transform, a
progress bar, the sum of the losses. A window counts steps from its second batch on, so starting workers is free.
PyTorch's loader has the script's 20 workers, as many as there are threads, or none; the best counts.

The overhead of a call is what it takes beyond the engine's own time: the median of a window, and the best of those.
"""

import gzip
import itertools
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

FASHION = Path("/usr/share/datasets/fashion-mnist")
BATCH = 16


def dataset(folder):
    """Fashion-MNIST as torchvision wants it, from Debian's package."""
    import torchvision
    raw = Path(folder) / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for source in FASHION.glob("*.gz"):
        with gzip.open(source) as packed, open(raw / source.stem, "wb") as plain:
            shutil.copyfileobj(packed, plain)
    steps = [torchvision.transforms.ToTensor(), torchvision.transforms.Normalize((0.5,), (0.5,))]
    return torchvision.datasets.FashionMNIST(folder, train=True, transform=torchvision.transforms.Compose(steps))


def classifier(nets):
    """The script's net, which returns its scores too."""
    import torch
    import torch.nn.functional as F

    class Classifier(nets.Fashion):
        def forward(self, x, t):
            x = F.max_pool2d(F.relu(self.conv1(x)), 2)
            x = self.norm(F.relu(self.conv2(x)))
            x = F.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))), 1)
            return x, F.nll_loss(x, t)
    return Classifier()


class Bar:
    """The script's bar, drawn where nobody looks."""

    def __init__(self):
        self.nowhere = open(os.devnull, "w")

    def __call__(self, loader):
        from tqdm import tqdm
        return tqdm(loader, desc="batches", leave=False, file=self.nowhere)


def epochs(loader, bar):
    for _ in itertools.count():
        yield from bar(loader)


def window(loader, step, seconds, bar):
    """Steps a second."""
    batches = epochs(loader, bar)
    step(*next(batches))
    start, steps, total = time.perf_counter(), 0, 0.0
    while time.perf_counter() - start < seconds:
        data, labels = next(batches)
        output, loss = step(data, labels)
        total += loss
        steps += 1
    return steps / (time.perf_counter() - start)


def torch_step(net, optimizer):
    def step(data, labels):
        optimizer.zero_grad(set_to_none=True)
        output, loss = net(data, labels)
        loss.backward()
        optimizer.step()
        return output, loss.detach()    # else the sum would keep every step's graph
    return step


def overhead(model, data, labels, seconds):
    """Median microseconds of calls beyond the engine's time."""
    start, found = time.perf_counter(), []
    while time.perf_counter() - start < seconds:
        model(data, labels)
        found.append(model.getLatency()[0] - model.getComputeLatency()[0])
    return 1e6 * statistics.median(found)


def measure(build, threads, windows, seconds, cache, set_blas_threads):
    """What W1's object in bench.json gets, or the reason why there is nothing."""
    sys.path.insert(0, str(build / "python"))
    try:
        import nets
        import poptorch
        import torch
        import torchvision    # noqa: F401  (or the reason)
        import tqdm    # noqa: F401
    except ImportError as why:
        return str(why)
    if not FASHION.is_dir():
        return f"{FASHION}, of the package dataset-fashion-mnist, is not there"
    import warnings
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as folder:
        images = dataset(folder)
    torch.set_num_threads(threads)
    bar = Bar()
    net, other = classifier(nets), classifier(nets)
    options = poptorch.Options().enableExecutableCaching(cache).showCompilationProgressBar(False)
    model = poptorch.trainingModel(net, options, poptorch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9))
    step = torch_step(other, torch.optim.SGD(other.parameters(), lr=0.001, momentum=0.9))
    ours = poptorch.DataLoader(options, images, batch_size=BATCH, shuffle=True, num_workers=20)
    theirs = [torch.utils.data.DataLoader(images, batch_size=BATCH, shuffle=True, num_workers=n, drop_last=True)
              for n in sorted({0, threads, 20})]
    data, labels = next(iter(ours))
    model(data, labels)
    a, b, calls = [], [], []
    for _ in range(windows):
        a.append(window(ours, model, seconds, bar))
        calls.append(overhead(model, data, labels, seconds / 2))
        for loader, blas in itertools.product(theirs, sorted({1, threads})):
            set_blas_threads(blas)
            b.append(window(loader, step, seconds, bar))
    return {"poptorch_call_overhead_us": round(min(calls), 2), "poptorch_loop_steps_per_s": round(max(a), 2),
            "torch_loop_steps_per_s": round(max(b), 2), "poptorch_loop_ratio": round(max(a) / max(b), 3)}
