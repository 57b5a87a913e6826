"""What is easily wrong without a word: cases that once were, each beside its whole class."""

import pytest
import torch
from poptorch_helpers import nothing_cached, options    # noqa: F401

import poptorch


def inference(function):
    return poptorch.inferenceModel(function, options())


# Random numbers.

DRAWS = {
    "numbers": lambda m: torch.normal(5.0, 2.0, (4000,)), "named": lambda m: torch.normal(mean=-1.0, std=4.0, size=(4000,)),
    "tensors": lambda m: torch.normal(m, m), "mean": lambda m: torch.normal(m, 0.5), "std": lambda m: torch.normal(1.0, m),
    "only_mean": lambda m: torch.normal(m), "normal_": lambda m: torch.empty(4000).normal_(7, 3),
    "normal_0": lambda m: torch.empty(4000).normal_(), "randn": lambda m: torch.randn(4000) * 2 - 1,
    "uniform_": lambda m: torch.empty(4000).uniform_(2, 6), "uniform_0": lambda m: torch.empty(4000).uniform_(),
    "rand": lambda m: torch.rand(4000), "exponential_": lambda m: torch.empty(4000).exponential_(4.0),
    "log_normal_": lambda m: torch.empty(4000).log_normal_(0.5, 0.25), "bernoulli": lambda m: torch.bernoulli(m / 4),
    "bernoulli_p": lambda m: torch.bernoulli(m * 0, 0.2), "bernoulli_": lambda m: torch.empty(4000).bernoulli_(0.7),
    "geometric_": lambda m: torch.empty(4000).geometric_(0.3), "randint": lambda m: torch.randint(10, (4000,)).float(),
    "randint_low": lambda m: torch.randint(5, 9, (4000,)).float(), "random_": lambda m: torch.empty(4000).random_(3, 8),
    "random_to": lambda m: torch.empty(4000).random_(12), "rand_like": lambda m: torch.rand_like(m),
    "randn_like": lambda m: torch.randn_like(m), "randint_like": lambda m: torch.randint_like(m, 2, 6),
}


def test_moments_of_random_numbers():
    """Mean and deviation of every way to draw are PyTorch's."""
    def forward(x):
        return {name: draw(torch.full((4000,), 3.0) + x) for name, draw in DRAWS.items()}
    torch.manual_seed(0)
    found, wanted = inference(forward)(torch.zeros(1)), forward(torch.zeros(1))
    for name in DRAWS:
        a, b = found[name].double(), wanted[name].double()
        spread = float(b.std())
        assert abs(float(a.mean() - b.mean())) < 0.12 * spread, name
        assert abs(float(a.std()) / spread - 1) < 0.12, name


# Masks of bytes.

@pytest.mark.parametrize("dtype", [torch.bool, *([torch.uint8] if not hasattr(torch.ops.aten, "hash_tensor") else [])])    # gone from 2.15
@pytest.mark.filterwarnings("ignore:indexing with dtype")
def test_masks(dtype):
    def forward(x, m):
        y, z = x.clone(), x.clone()
        y[m] = -1.0
        z[:, m[0]] = 2.0
        return y, z, x.masked_fill(m != 0, 3.0)
    x, m = torch.arange(12.0).view(3, 4), torch.tensor([[0, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]]).to(dtype)
    for a, b in zip(inference(forward)(x, m), forward(x, m)):
        assert torch.equal(a, b)


# Bodies.

def double_(x):
    return [x.mul_(2)]


def test_what_a_loop_writes_stays_in_it():
    def forward(x):
        y, = poptorch.for_loop(3, double_, [x])
        a, b = poptorch.for_loop(2, lambda a, b: [a.add_(1), b], [x, x])
        return x, y, a, b
    x = torch.ones(3)
    for f in (forward, inference(forward)):
        assert [t[0].item() for t in f(x)] == [1, 8, 3, 1]
        assert torch.equal(x, torch.ones(3))


def test_what_a_condition_writes_stays_in_it():
    def forward(c, x):
        return (*poptorch.cond(c, double_, [x], lambda x: [x.add_(5)], [x]), x)
    for f in (forward, inference(forward)):
        for c, wanted in ((True, 2), (False, 6)):
            assert [t[0].item() for t in f(torch.tensor([c]), torch.ones(3))] == [wanted, 1]

    def outside(c, x):
        y = x + 1
        return poptorch.cond(c, lambda x: [y.mul_(x)], [x], lambda x: [x], [x])
    with pytest.raises(poptorch.Error, match="The body of a cond must not write"):
        inference(outside)(torch.tensor([True]), torch.ones(3))


# Products with a factor of 0.

PRODUCTS = {
    "addmm": lambda b, x, **k: torch.addmm(b, x, x, **k), "addmv": lambda b, x, **k: torch.addmv(b[0], x, x[0], **k),
    "baddbmm": lambda b, x, **k: torch.baddbmm(b[None], x[None], x[None], **k),
    "addbmm": lambda b, x, **k: torch.addbmm(b, x[None], x[None], **k),
    "addr": lambda b, x, **k: torch.addr(b, x[0], x[0], **k),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_times_nothing(name):
    """Of what is multiplied by 0, no NaN comes through. PyTorch's addr multiplies its outer product; its products of
    matrices are the BLAS library's, and that does not look at them."""
    def forward(b, x, nan):
        f = PRODUCTS[name]
        return f(nan, x, beta=0), f(nan, x, beta=0, alpha=2), f(b, nan, alpha=0), f(b, nan, alpha=0, beta=3)
    b, x = torch.randn(3, 3), torch.randn(3, 3)
    found = inference(forward)(b, x, torch.full((3, 3), float("nan")))
    product = PRODUCTS[name](torch.zeros(3, 3), x)
    plain = b[0] if name == "addmv" else b[None] if name == "baddbmm" else b
    for i, wanted in enumerate((product, product * 2, plain, plain * 3)):
        if name == "addr" and i > 1:
            assert bool(found[i].isnan().all())
        else:
            torch.testing.assert_close(found[i], wanted)
