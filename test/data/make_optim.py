#!/usr/bin/python3
"""Print PyTorch's weights under each optimiser, step by step, for test/pass/optimizer.c.

    /usr/bin/python3 test/data/make_optim.py > test/data/optim.txt

The model is y = (x w + b) s, with a mean squared loss, all in double. A line `case` says which
optimiser, in the words that test/pass/optimizer.c reads; the next lines are the weights w, b, s
after each update.
"""

import torch

BATCH, IN, OUT, STEPS = 4, 3, 2, 8

CASES = [
    ("sgd lr=0.125", torch.optim.SGD, dict(lr=0.125)),
    ("sgd lr=0.125 weight_decay=0.25", torch.optim.SGD, dict(lr=0.125, weight_decay=0.25)),
    ("sgd lr=0.0625 momentum=0.9", torch.optim.SGD, dict(lr=0.0625, momentum=0.9)),
    ("sgd lr=0.0625 momentum=0.9 weight_decay=0.01 nesterov=1", torch.optim.SGD,
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
    ("rmsprop lr=0.015625 centered=1", torch.optim.RMSprop, dict(lr=0.015625, centered=True)),
    ("rmsprop lr=0.015625 momentum=0.5 weight_decay=0.1 centered=1", torch.optim.RMSprop,
     dict(lr=0.015625, momentum=0.5, weight_decay=0.1, centered=True)),
    ("sgd lr=0.125 momentum=0.9 max_grad_norm=0.5", torch.optim.SGD, dict(lr=0.125, momentum=0.9)),
    ("sgd lr=0.125 max_grad_value=0.125", torch.optim.SGD, dict(lr=0.125)),
]


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
