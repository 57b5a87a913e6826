"""The same weights and batches give the same losses as PyTorch, step after step.

300 steps of PyTorch on real data. Every tenth step we take over its weights and optimiser state, and go on by
ourselves for ten: the losses are within 1e-4 of PyTorch's, but for at most three of 300, which are within 1e-2.

Taking over only once is not a test of us: such runs part through rounding. PyTorch parts from itself so, with half an
ulp of noise on its first weights: its loss is off by 1e-2 after 86 steps (Fashion-MNIST, seed 2), by 2e-4 at step 113
(digits, seed 1), by 1e-1 after 27 (pipeline, seed 2), which is where our free runs of these seeds part from it too; and its
float64 parts from its float32. The likely places are pooling windows whose two largest elements are closer than float32
can tell, ten thousand windows a step, and AdamW's division by a tiny root; they were not traced one by one. Hence the
three; and the free run is held to 1e-4 for the 25 steps in which PyTorch, too, stays with itself, and to the same
learning after that.
"""

import os
import struct
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import nets  # noqa: E402  (needs torch)

STEPS = 300
SEGMENT = 10
SEEDS = [0, 1, 2, 3] if os.environ.get("TS_SOAK") else [0]

SGD = {"momentum_buffer": "momentum"}
ADAM = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}
CASES = {
    # name: module, optimiser, its states in PyTorch and in ours, data, batch, accumulation
    "fashion": (nets.Fashion, lambda p: torch.optim.SGD(p, lr=0.001, momentum=0.9), SGD, (nets.FASHION, 0.5, 0.5), 16, 1),
    "digits": (nets.Digits, lambda p: torch.optim.SGD(p, lr=0.03), SGD, (nets.MNIST, 0.1307, 0.3081), 8, 1),
    "pipeline": (nets.Pipeline, lambda p: torch.optim.AdamW(p, lr=0.001), ADAM, (nets.MNIST, 0.1307, 0.3081), 40, 1),
    "pipeline-accumulated": (nets.Pipeline, lambda p: torch.optim.AdamW(p, lr=0.001), ADAM,
                             (nets.MNIST, 0.1307, 0.3081), 4, 10),
}


def states(model, optimizer, names):
    """What PyTorch would start the next step from, under our names."""
    found = {k: v.detach().numpy().copy() for k, v in model.state_dict().items()}
    for name, p in model.named_parameters():
        for theirs, ours in names.items():
            s = optimizer.state[p].get(theirs) if p in optimizer.state else None
            if s is not None:
                found[f"{name}.{ours}"] = s.numpy().copy()
        if "exp_avg" in names:
            step = optimizer.state[p]["step"] if p in optimizer.state else 0
            found["step"] = np.array(float(step), np.float32)
    return found


def train_torch(model, optimizer, names, images, labels, batch, accumulation):
    losses, starts = [], []
    for at in range(0, len(images), batch):
        if len(losses) % (SEGMENT * accumulation) == 0:
            starts.append(states(model, optimizer, names))
        if len(losses) % accumulation == 0:
            optimizer.zero_grad()
        loss = model(images[at:at + batch], labels[at:at + batch])
        (loss / accumulation).backward()
        losses.append(loss.item())
        if len(losses) % accumulation == 0:
            optimizer.step()
    return np.array(losses), starts


def train_tessera(build_dir, net, starts, images, labels, batch, accumulation, dtype=np.float32):
    """A call of SEGMENT steps for each start; an empty one goes on from where the last one ended."""
    parts = []
    rows = batch * SEGMENT * accumulation
    for i, start in enumerate(starts):
        for name, w in start.items():
            parts += [struct.pack("<I", len(name)), name.encode(), struct.pack("<Q", w.nbytes), w.tobytes()]
        parts.append(struct.pack("<I", 0))
        parts += [images[i * rows:(i + 1) * rows].tobytes(), labels[i * rows:(i + 1) * rows].tobytes()]
    done = subprocess.run([build_dir / "test" / "tools_parity", net,
                           *map(str, (batch, SEGMENT, accumulation, len(starts), 2)),
                           "f64" if dtype == np.float64 else "f32"],
                          input=b"".join(parts), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout, dtype)


def assert_close(ours, theirs, ties=0):
    error = np.abs(ours - theirs) / (np.abs(theirs) + 1e-2)
    wrong = np.flatnonzero(~(error <= 1e-4))
    assert len(wrong) <= ties and not np.any(error[wrong] > 1e-2), [(i, ours[i], theirs[i]) for i in wrong[:5]]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CASES)
def test_losses_follow_pytorch(name, seed, build_dir):
    module, optimizer, names, data, batch, accumulation = CASES[name]
    steps = STEPS if accumulation == 1 else STEPS // accumulation    # of weights; 300 micro-batches in any case
    torch.manual_seed(seed)
    model = module()
    images, labels = nets.samples(data[0], batch * accumulation * steps, *data[1:])
    theirs, starts = train_torch(model, optimizer(model.parameters()), names, torch.from_numpy(images),
                                 torch.from_numpy(labels).long(), batch, accumulation)
    assert len(theirs) == STEPS and theirs[-30:].mean() < theirs[:30].mean(), "PyTorch did not learn"

    net = name.split("-")[0]
    ours = train_tessera(build_dir, net, starts, images, labels, batch, accumulation)
    assert len(ours) == STEPS
    assert_close(ours, theirs, ties=3)

    free = train_tessera(build_dir, net, [starts[0]] + [{}] * (len(starts) - 1), images, labels, batch, accumulation)
    assert_close(free[:25], theirs[:25])
    assert abs(free[-100:].mean() - theirs[-100:].mean()) < 0.1 * theirs[-100:].mean()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CASES)
def test_free_run_in_double_precision(name, seed, build_dir):
    """300 steps by ourselves: the same mathematics, where rounding cannot decide a tie."""
    module, optimizer, names, data, batch, accumulation = CASES[name]
    if not os.environ.get("TS_SOAK"):
        batch = max(1, batch // 8)    # doubles take their time
    steps = STEPS if accumulation == 1 else STEPS // accumulation
    torch.manual_seed(seed)
    model = module().double()
    images, labels = nets.samples(data[0], batch * accumulation * steps, *data[1:])
    images = images.astype(np.float64)
    theirs, starts = train_torch(model, optimizer(model.parameters()), names, torch.from_numpy(images),
                                 torch.from_numpy(labels).long(), batch, accumulation)
    free = train_tessera(build_dir, name.split("-")[0], [starts[0]] + [{}] * (len(starts) - 1), images, labels, batch,
                         accumulation, np.float64)
    assert len(free) == STEPS
    assert np.max(np.abs(free - theirs) / np.abs(theirs)) < 1e-4
