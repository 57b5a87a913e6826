"""The models that have a name are the tutorials' PyTorch modules: parameters by name and shape, and scores."""

import os
import subprocess

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision

BATCH = 4


class Classifier(nn.Module):
    def __init__(self, dim=1):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 5, 3)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(5, 12, 5)
        self.norm = nn.GroupNorm(3, 12)
        self.fc1 = nn.Linear(972, 100)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(100, 10)
        self.log_softmax = nn.LogSoftmax(dim=dim)

    def forward(self, x):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.norm(self.relu(self.conv2(x)))
        x = self.relu(self.fc1(torch.flatten(x, start_dim=1)))
        return self.log_softmax(self.fc2(x))


class ConvLayer(nn.Module):
    def __init__(self, channels, filters, kernel):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size=kernel)
        self.pool = nn.MaxPool2d(kernel_size=2)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.pool(self.conv(x)))


class MnistCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = ConvLayer(1, 32, 3)
        self.layer2 = ConvLayer(32, 64, 3)
        self.layer3 = nn.Linear(1600, 128)
        self.layer3_act = nn.ReLU()
        self.layer3_dropout = nn.Dropout(0.5)
        self.layer4 = nn.Linear(128, 10)

    def forward(self, x):
        x = self.layer2(self.layer1(x)).view(-1, 1600)
        return self.layer4(self.layer3_dropout(self.layer3_act(self.layer3(x))))


class MnistPipeline(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = ConvLayer(1, 10, 5)
        self.layer2 = ConvLayer(10, 20, 5)
        self.layer3 = nn.Linear(320, 256)
        self.layer3_act = nn.ReLU()
        self.layer4 = nn.Linear(256, 10)

    def forward(self, x):
        x = self.layer2(self.layer1(x)).view(-1, 320)
        return self.layer4(self.layer3_act(self.layer3(x)))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 256)
        self.fc2 = nn.Linear(256, 128)
        self.fc3 = nn.Linear(128, 10)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))))


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))))


class FashionCnn(nn.Module):
    def __init__(self):
        super().__init__()
        for i, (a, b) in enumerate(((1, 32), (32, 64), (64, 128)), 1):
            setattr(self, f"conv{i}", nn.Conv2d(a, b, 3, padding=1, bias=False))
            setattr(self, f"norm{i}", nn.BatchNorm2d(b))
        self.fc = nn.Linear(1152, 10)

    def forward(self, x):
        for conv, norm in ((self.conv1, self.norm1), (self.conv2, self.norm2), (self.conv3, self.norm3)):
            x = F.max_pool2d(F.relu(norm(conv(x))), 2)
        return self.fc(F.dropout(torch.flatten(x, 1), 0.3, self.training))


MODELS = {
    "classifier": (Classifier, (1, 28, 28)),
    "classifier-dim0": (lambda: Classifier(dim=0), (1, 28, 28)),
    "mnist-cnn": (MnistCnn, (1, 28, 28)),
    "mnist-pipeline": (MnistPipeline, (1, 28, 28)),
    "mlp": (Mlp, (1, 28, 28)),
    "lenet": (LeNet, (1, 28, 28)),
    "fashion-cnn": (FashionCnn, (1, 28, 28)),
    "resnet18": (torchvision.models.resnet18, (3, 64, 64)),
}


def model(build_dir, name, shape, data=None):
    env = {**os.environ, "TESSERA_CACHE_DIR": str(build_dir / "test-cache")}
    if data is not None:
        env["MODEL_RUN"] = "1"
    done = subprocess.run([build_dir / "test" / "tools_model", name, str(BATCH), *map(str, shape)],
                          input=data, capture_output=True, env=env)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def states(build_dir, name, shape):
    lines = model(build_dir, name, shape).decode().splitlines()
    return {f[0]: tuple(map(int, f[1:])) for f in map(str.split, lines)}


def theirs(module):
    """What a checkpoint of the module holds, without the counters that nothing reads."""
    return {k: v for k, v in module.state_dict().items() if not k.endswith("num_batches_tracked")}


def test_every_model_is_here(build_dir):
    text = subprocess.run([build_dir / "tessera", "models"], capture_output=True, text=True, check=True).stdout
    names = [line.split()[0] for line in text.splitlines()[1:]]
    assert [n for n in names if n != "gpt"] == list(MODELS)  # test_command.py has such a net


@pytest.mark.parametrize("name", MODELS)
def test_parameters_have_the_names_and_shapes_of_the_module(name, build_dir):
    make, shape = MODELS[name]
    assert states(build_dir, name, shape) == {k: tuple(v.shape) for k, v in theirs(make()).items()}


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_the_module(name, build_dir):
    make, shape = MODELS[name]
    torch.manual_seed(3)
    module = make().eval()
    for k, v in module.state_dict().items():    # statistics that are not all 0 and 1
        if "running" in k:
            v.uniform_(0.5, 1.5)
    x = torch.randn(BATCH, *shape)
    weights = theirs(module)
    data = b"".join(weights[k].numpy().tobytes() for k in states(build_dir, name, shape)) + x.numpy().tobytes()
    with torch.no_grad():
        want = module(x).numpy()
    got = np.frombuffer(model(build_dir, name, shape, data), np.float32).reshape(want.shape)
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4 * np.abs(want).max())
