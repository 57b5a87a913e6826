"""torchvision's operations that are written in C++: roi_align, and nms where the number of boxes does not matter."""

import pytest
import torch
import torch.nn as nn

import poptorch
from poptorch_helpers import inference, nothing_cached, training    # noqa: F401

ops = pytest.importorskip("torchvision").ops


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    monkeypatch.setenv("TESSERA_CC", "/nowhere/cc")


def boxes(count):
    torch.manual_seed(count)
    begin = torch.rand(count, 2) * 10 - 1
    return torch.cat([begin, begin + torch.rand(count, 2) * 6 + 0.1], 1)


def rois(count):
    return torch.cat([torch.arange(count).remainder(2).view(-1, 1).float(), boxes(count)], 1)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("samples", [2, -1])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_roi_align(aligned, samples, scale):
    def forward(x, given):
        return ops.roi_align(x, given, (3, 2), spatial_scale=scale, sampling_ratio=samples, aligned=aligned)
    x = torch.randn(2, 3, 12, 10)
    torch.testing.assert_close(inference(forward)(x, rois(6)), forward(x, rois(6)), rtol=1e-4, atol=1e-5)


def test_the_gradient_of_roi_align():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(3, 12, 10))

        def forward(self, x, given):
            return poptorch.identity_loss(ops.roi_align(x * self.w, given, 2, sampling_ratio=2).square(), "mean")
    net, other, x = Net(), Net(), torch.randn(2, 3, 12, 10)
    training(net)[1](x, rois(5))
    other(x, rois(5)).backward()
    torch.testing.assert_close(net.w.detach(), (other.w - 0.5 * other.w.grad).detach())


class Pyramid(nn.Module):
    """A box is pooled from the level of a pyramid that fits its size."""

    def __init__(self, **how):
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.pool = nn.Conv2d(3, 4, 3, padding=1), ops.MultiScaleRoIAlign(["a", "b", "c"], 3, 2, **how)

    def forward(self, x, first, second):
        a = self.conv(x).tanh()
        levels = {"a": a, "b": nn.functional.avg_pool2d(a, 2), "c": nn.functional.avg_pool2d(a, 4)}
        y = self.pool(levels, [first, second], [(32, 32), (32, 32)])
        return y, poptorch.identity_loss(y.square(), "mean")


def test_multi_scale_roi_align():
    net, other, x = Pyramid(canonical_scale=8), Pyramid(canonical_scale=8), torch.randn(2, 3, 32, 32)
    run, (_, model) = inference(Pyramid(canonical_scale=8)), training(net)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.5)
    levels = set()
    for scale in (0.2, 1.0, 3.0):    # the last two leave levels empty
        first, second = boxes(5) * scale, boxes(3) * scale
        torch.testing.assert_close(run(x, first, second)[0], Pyramid(canonical_scale=8)(x, first, second)[0].detach(),
                                   rtol=1e-4, atol=1e-5)
        optimizer.zero_grad()
        other(x, first, second)[1].backward()
        optimizer.step()
        model(x, first, second)
        levels |= set(other.pool.map_levels([first, second]).tolist())
        for p, q in zip(net.parameters(), other.parameters()):
            torch.testing.assert_close(p.detach(), q.detach(), rtol=1e-4, atol=1e-5)
    assert levels == {0, 1, 2}


def test_nms_where_the_number_does_not_matter():
    def forward(given, scores):
        return scores[ops.nms(given, scores, 0.3)].mean(), given[ops.nms(given, scores, 0.3)].sum(0)
    model = inference(forward)
    for k in (1, 2, 3):
        given, scores = boxes(20) * k, torch.rand(20)
        torch.testing.assert_close(model(given, scores), forward(given, scores))


def test_nms_where_it_does_is_refused():
    with pytest.raises(poptorch.Error, match="torchvision::nms: a result whose size depends on values"):
        inference(lambda given, scores: given[ops.nms(given, scores, 0.3)])(boxes(4), torch.rand(4))
