"""Complex numbers: Fourier transforms, spectrograms, rotary embeddings and what lies between them, as pairs of real numbers."""

import pytest
import torch
import torch.nn as nn

import poptorch
from poptorch_helpers import inference, nothing_cached, options, training    # noqa: F401

torch.manual_seed(3)
X = torch.randn(3, 8, 10)
WINDOW = torch.hann_window(16)


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    """What is compiled is tested elsewhere."""
    monkeypatch.setenv("TESSERA_CC", "/nowhere/cc")


def turned(x):
    return torch.complex(x, x.flip(0))


def rope(x):
    turns = torch.polar(torch.ones(8, 5), torch.arange(40.0).view(8, 5))
    return torch.view_as_real(torch.view_as_complex(x.reshape(3, 8, 5, 2)) * turns).flatten(2)


def spectrum(x):
    return torch.stft(x.flatten(1), 16, hop_length=4, window=torch.hann_window(16), return_complex=True)


def kernel(x):
    """As in a Fourier neural operator."""
    f = torch.fft.rfft2(x)
    out = torch.zeros(3, 8, 6, dtype=torch.cfloat)
    out[:, :4, :3] = torch.einsum("bxy,xz->bzy", f[:, :4, :3], turned(x)[0, :4, :4])
    out[:, -4:, :3] = f[:, -4:, :3] * 2j
    return torch.fft.irfft2(out, s=(8, 10))


def written(x):
    z = turned(x)
    parts = torch.view_as_real(z)
    z[0] = 0
    z[:, 1:3] += 1j
    real = z.real
    real += 1
    z.mul_(2).neg_()
    return z, parts, real


REAL = {
    "transform": lambda x: torch.fft.fft(torch.fft.fft(x), dim=-2).real, "power": lambda x: torch.fft.rfft(x).abs().square(),
    "there and back": lambda x: torch.fft.irfft(torch.fft.rfft(x, norm="ortho") * torch.fft.rfft(x.cos())),
    "rope": rope, "kernel": kernel, "stft": lambda x: spectrum(x).abs(), "angle": lambda x: turned(x).angle(),
    "istft": lambda x: torch.istft(spectrum(x), 16, hop_length=4, window=torch.hann_window(16)),
    "products": lambda x: torch.view_as_real(turned(x) @ turned(x).transpose(1, 2).conj()),
    "quotients": lambda x: torch.view_as_real(turned(x) / (turned(x.cos()) + 2j)), "exp": lambda x: torch.exp(1j * x).imag,
    "cut": lambda x: (turned(x) * turned(x).detach()).real,
    "nothing": lambda x: (turned(x) * 0).abs() + x,    # |0| has the gradient 0
}
COMPLEX = {
    "arithmetic": lambda x: (turned(x) + x, 1 - turned(x), turned(x) * 1j, turned(x) / 2, 1 / turned(x), -turned(x), turned(x).conj(),
                             turned(x) ** 3, turned(x).sum(), turned(x).mean(-1), turned(x).conj().imag, turned(x).sgn()),
    "views": lambda x: (turned(x)[:, 1:3, None], turned(x).permute(2, 0, 1).flatten(1), turned(x).view(-1)[3:], turned(x)[..., -1].t(),
                        torch.cat([turned(x), turned(x)], -1), torch.stack([turned(x), turned(x)]), *turned(x).split(4, 1),
                        turned(x).roll(1, 0), turned(x)[torch.tensor([2, 0])], torch.where(x > 0, turned(x), 0j)),
    "written": written, "sides": lambda x: (torch.fft.fftn(x), torch.fft.ifft2(x), torch.fft.rfft(x, 7), torch.fft.hfft(turned(x))),
}


@pytest.mark.parametrize("name", REAL)
def test_results_and_gradients(name):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.linspace(0.5, 1.5, 10))

        def forward(self, x):
            y = REAL[name](x * self.w)
            return y, poptorch.identity_loss((y * torch.arange(y.numel()).view(y.shape).cos()).sum(), "none")
    net, other = Net(), Net()
    _, model = training(net)
    y, loss = model(X)
    expected, wanted = other(X)
    wanted.backward()
    torch.testing.assert_close(y, expected.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(net.w.detach(), (other.w - 0.5 * other.w.grad).detach(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_results(name):
    for found, expected in zip(inference(COMPLEX[name])(X), COMPLEX[name](X.clone())):
        torch.testing.assert_close(found, expected.resolve_conj(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [1, 2, 127, 300, 257, 4096])
def test_sides_of_any_length(n):
    x = torch.randn(2, n)
    full, half, back = inference(lambda x: (torch.fft.fft(x), torch.fft.rfft(x), torch.fft.irfft(torch.fft.rfft(x), n)))(x)
    torch.testing.assert_close(full, torch.fft.fft(x), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(half, torch.fft.rfft(x), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(back, x, rtol=1e-4, atol=1e-4)


class Filter(nn.Module):
    """A complex parameter and a complex buffer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.w = nn.Parameter(torch.randn(6, dtype=torch.cfloat))
        self.register_buffer("turns", torch.polar(torch.ones(6), torch.arange(6.0)))

    def forward(self, x):
        return poptorch.identity_loss(torch.fft.irfft(torch.fft.rfft(x) * self.w * self.turns).square(), "mean")


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_complex_parameters(kind):
    how = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    net, other = Filter(), Filter()
    mine, theirs = (kind(m.parameters(), lr=0.1, **how) for m in (net, other))
    _, model = training(net, optimizer=mine)
    for _ in range(3):
        loss = model(X)
        theirs.zero_grad()
        expected = other(X)
        expected.backward()
        theirs.step()
        torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(net.w.detach(), other.w.detach(), rtol=1e-4, atol=1e-5)
    found, expected = mine.state_dict()["state"][0], theirs.state_dict()["state"][0]
    for name in expected:
        torch.testing.assert_close(torch.as_tensor(found[name]), torch.as_tensor(expected[name]), rtol=1e-4, atol=1e-5)


def test_complex_parameters_need_an_optimizer_by_element():
    net = Filter()
    with pytest.raises(poptorch.Error, match="w is complex: only SGD, Adam, AdamW train that, not Adagrad"):
        training(net, optimizer=torch.optim.Adagrad(net.parameters(), lr=0.1))[1](X)


def test_complex_arguments():
    z = torch.randn(4, 3, dtype=torch.cfloat)
    model = poptorch.inferenceModel(Twice(), options().deviceIterations(2))
    for given in (z, z.conj(), z.t().contiguous().t()):
        torch.testing.assert_close(model(given), (given * 2j).resolve_conj())


class Twice(nn.Module):
    def forward(self, z):
        return z * 2j


@pytest.mark.parametrize("function, what", [
    (lambda x: turned(x).tanh(), "aten::tanh.default of complex numbers is not supported"),
    (lambda x: turned(x).pow(0.5), "pow of complex numbers is not supported"),
    (lambda x: torch.fft.fft(torch.cat([x.flatten()] * 9)[:2003]), "2003 elements, which is a prime number"),
    (lambda x: (lambda z: (z.conj(), z.mul_(2))[0] * 1)(turned(x)), "written to afterwards"),
])
def test_what_is_refused(function, what):
    with pytest.raises(poptorch.Error, match=what):
        inference(function)(X)


class Eigen(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.w = nn.Parameter(torch.randn(2, 4, 4))

    def forward(self, x):
        values, vectors = torch.linalg.eig(self.w + x)
        loss = torch.linalg.eigvals(self.w * x).abs().square().sum() + values.real.sum() + (vectors[..., :1].abs() * values.abs()[..., None]).sum()
        return torch.view_as_real(values), poptorch.identity_loss(loss, "sum")


def test_eigenvalues_of_any_matrix():
    """The host computes them, with their gradient."""
    net, other, x = Eigen(), Eigen(), torch.randn(4, 4)
    torch.testing.assert_close(inference(Eigen())(x)[0], other(x)[0].detach())
    training(net)[1](x)
    other(x)[1].backward()
    torch.testing.assert_close(net.w.detach(), (other.w - 0.5 * other.w.grad).detach(), rtol=1e-4, atol=1e-4)
    with pytest.raises(poptorch.Error, match="linalg_eig.* of complex numbers is not supported"):
        inference(lambda x: torch.linalg.eigvals(torch.complex(x, x)).real)(x)
