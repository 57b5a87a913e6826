#!/usr/bin/python3
"""Print PyTorch's weights under each optimiser, step by step, for test/pass/optimizer.c.

    python3 test/data/make_optim.py > test/data/optim.txt    # PyTorch 2.5 or later has them all

The model is y = (x w + b) s, with a mean squared loss, all in double. A line `case` says which
optimiser, in the words that test/pass/optimizer.c reads; the next lines are the weights w, b, s
after each update.
"""

import inspect

import torch

BATCH, IN, OUT, STEPS = 4, 3, 2, 8

CASES = [
    ("sgd lr=0.125", torch.optim.SGD, dict(lr=0.125)),
    ("sgd lr=0.125 weight_decay=0.25", torch.optim.SGD, dict(lr=0.125, weight_decay=0.25)),
    ("sgd lr=0.0625 momentum=0.9", torch.optim.SGD, dict(lr=0.0625, momentum=0.9)),
    ("sgd lr=0.0625 momentum=0.9 weight_decay=0.01 nesterov=yes", torch.optim.SGD,
     dict(lr=0.0625, momentum=0.9, weight_decay=0.01, nesterov=True)),
    ("adam lr=0.0625", torch.optim.Adam, dict(lr=0.0625)),
    ("adam lr=0.0625 beta1=0.8 beta2=0.95 eps=0.001 weight_decay=0.1", torch.optim.Adam,
     dict(lr=0.0625, betas=(0.8, 0.95), eps=0.001, weight_decay=0.1)),
    ("adamw lr=0.0625 weight_decay=0.01", torch.optim.AdamW, dict(lr=0.0625)),
    ("adamw lr=0.0625 weight_decay=0.5", torch.optim.AdamW, dict(lr=0.0625, weight_decay=0.5)),
    ("rmsprop lr=0.015625", torch.optim.RMSprop, dict(lr=0.015625)),
    ("rmsprop lr=0.015625 alpha=0.9 eps=0.001 weight_decay=0.1", torch.optim.RMSprop,
     dict(lr=0.015625, alpha=0.9, eps=0.001, weight_decay=0.1)),
    ("rmsprop lr=0.015625 momentum=0.5", torch.optim.RMSprop, dict(lr=0.015625, momentum=0.5)),
    ("rmsprop lr=0.015625 centered=yes", torch.optim.RMSprop, dict(lr=0.015625, centered=True)),
    ("rmsprop lr=0.015625 momentum=0.5 weight_decay=0.1 centered=yes", torch.optim.RMSprop,
     dict(lr=0.015625, momentum=0.5, weight_decay=0.1, centered=True)),
    ("sgd lr=0.125 momentum=0.9 max_grad_norm=0.5", torch.optim.SGD, dict(lr=0.125, momentum=0.9)),
    ("sgd lr=0.125 max_grad_value=0.125", torch.optim.SGD, dict(lr=0.125)),
]

# Options with the same name here and there.
for line in """
    SGD lr=0.125 maximize=yes
    Adam lr=0.0625 amsgrad=yes
    Adam lr=0.0625 amsgrad=yes weight_decay=0.1 maximize=yes
    Adam lr=0.0625 weight_decay=0.5 decoupled_weight_decay=yes
    AdamW lr=0.0625 amsgrad=yes weight_decay=0.5
    Adagrad lr=0.125
    Adagrad lr=0.125 lr_decay=0.25 initial_accumulator_value=0.5 weight_decay=0.1 eps=0.001
    Adagrad lr=0.125 maximize=yes
    Adadelta lr=1
    Adadelta lr=0.5 alpha=0.75 eps=0.01 weight_decay=0.1
    Adadelta lr=1 maximize=yes
    Adamax lr=0.0625
    Adamax lr=0.0625 beta1=0.5 beta2=0.75 eps=0.01 weight_decay=0.1 maximize=yes
    NAdam lr=0.0625
    NAdam lr=0.0625 beta1=0.8 beta2=0.95 momentum_decay=0.5 weight_decay=0.1 eps=0.01
    NAdam lr=0.0625 weight_decay=0.5 decoupled_weight_decay=yes maximize=yes
    RAdam lr=0.0625
    RAdam lr=0.0625 beta2=0.9375 weight_decay=0.1
    RAdam lr=0.0625 beta2=0.5
    RAdam lr=0.0625 beta1=0 beta2=0
    RAdam lr=0.0625 weight_decay=0.5 decoupled_weight_decay=yes maximize=yes
    Rprop lr=0.0625
    Rprop lr=0.0625 eta_minus=0.25 eta_plus=1.5 step_min=0.03125 step_max=0.125 maximize=yes
    ASGD lr=0.125
    ASGD lr=0.125 lambd=0.25 alpha=0.5 t0=2 weight_decay=0.1
    ASGD lr=0.125 t0=0 maximize=yes
    Adafactor lr=0.125
    Adafactor lr=0.125 eps=0.25 eps2=0.5 clip=1.25 beta2_decay=-0.5 weight_decay=0.1
    Adafactor lr=2 maximize=yes
""".strip().splitlines():
    kind, *pairs = line.split()
    found = {k: v == "yes" if v in ("yes", "no") else float(v) for k, v in (p.split("=") for p in pairs)}
    names = {"ADADELTA": {"alpha": "rho"}, "ADAFACTOR": {"clip": "d"}}.get(kind.upper(), {})
    found = {names.get(k, k): v for k, v in found.items()}
    for name, parts, start in (("betas", ("beta1", "beta2"), (0.9, 0.999)), ("eps", ("eps", "eps2"), (None, 1e-3)),
                               ("etas", ("eta_minus", "eta_plus"), (0.5, 1.2)),
                               ("step_sizes", ("step_min", "step_max"), (1e-6, 50))):
        if parts[1] in found or parts[0] in found and name == "betas":
            found[name] = tuple(found.pop(p, s) for p, s in zip(parts, start))
    there = getattr(torch.optim, kind, None)
    # An older PyTorch lacks some; before 2.0 NAdam counted the momentum of a step twice.
    if there and found.keys() <= inspect.signature(there.__init__).parameters.keys() and (
            kind != "NAdam" or "maximize" in inspect.signature(there.__init__).parameters):
        CASES.append((" ".join([kind.lower(), *pairs]), there, found))


def sample(i):
    """A number in [-1, 1) that C computes the same way: exact in binary."""
    return ((i * 37 + 11) % 128) / 64 - 1


def data(step):
    """Inputs and targets of one micro-batch."""
    x = [sample(step * BATCH * IN + i) for i in range(BATCH * IN)]
    t = [sample(1000 + 3 * (step * BATCH * OUT + i)) for i in range(BATCH * OUT)]
    return (torch.tensor(x, dtype=torch.double).reshape(BATCH, IN),
            torch.tensor(t, dtype=torch.double).reshape(BATCH, OUT))


def train(words, kind, options):
    w = torch.tensor([sample(500 + i) for i in range(IN * OUT)], dtype=torch.double).reshape(IN, OUT)
    params = [w, torch.tensor([0.25, -0.5], dtype=torch.double), torch.tensor(0.75, dtype=torch.double)]
    params = [p.clone().requires_grad_() for p in params]
    w, b, s = params
    optimizer = kind(params, **options)
    clip = dict(word.split("=") for word in words.split()[1:])
    for step in range(STEPS):
        x, t = data(step)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss((x @ w + b) * s, t).backward()
        if "max_grad_value" in clip:
            torch.nn.utils.clip_grad_value_(params, float(clip["max_grad_value"]))
        if "max_grad_norm" in clip:
            limit = float(clip["max_grad_norm"])
            norm = torch.sqrt(sum((p.grad ** 2).sum() for p in params))
            for p in params:
                p.grad *= limit / max(norm, limit)
        optimizer.step()
        yield torch.cat([p.detach().reshape(-1) for p in params])


def main():
    print(f"# PyTorch {torch.__version__}; written by make_optim.py")
    for words, kind, options in CASES:
        print(f"case {words}")
        for weights in train(words, kind, options):
            print(" ".join(f"{x:.15g}" for x in weights.tolist()))


if __name__ == "__main__":
    main()
