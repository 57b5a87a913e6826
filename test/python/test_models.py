"""The models that have a name are the tutorials' PyTorch modules: parameters by name and shape, and scores."""

import os
import subprocess

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from nets import A21, LARGE, UResNet

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
    "uresnet": (lambda: UResNet(**LARGE), (3, 64, 128)),
    "uresnet-a21": (lambda: UResNet(**A21), (3, 64, 128)),
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
    assert [n for n in names if n != "gpt"] == list(MODELS)  # test_command_data.py has such a net


@pytest.mark.parametrize("name", MODELS)
def test_parameters_have_the_names_and_shapes_of_the_module(name, build_dir):
    make, shape = MODELS[name]
    assert states(build_dir, name, shape) == {k: tuple(v.shape) for k, v in theirs(make()).items()}


def compare_scores(build_dir, name, module, shape):
    torch.manual_seed(3)
    module = module.eval()
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


@pytest.mark.parametrize("name", [name for name in MODELS if "uresnet" not in name])
def test_scores_are_those_of_the_module(name, build_dir):
    make, shape = MODELS[name]
    compare_scores(build_dir, name, make(), shape)


@pytest.mark.parametrize("name, config", [("uresnet", LARGE), ("uresnet-a21", A21)])
def test_scores_of_the_uresnet(name, config, build_dir, tmp_path):
    """Of two levels, which compile in a moment: the setting is a line of the text."""
    text = subprocess.run([build_dir / "tessera", "models", name], capture_output=True, text=True, check=True).stdout
    assert "let depth 6 " in text
    path = tmp_path / "net.txt"
    path.write_text(text.replace("let depth 6 ", "let depth 2 "))
    compare_scores(build_dir, path, UResNet(depth=2, **config), (3, 16, 24))


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.r = kind(5, 7, batch_first=True, **options)

    def forward(self, x):
        return self.r(x)[0]


@pytest.mark.parametrize("line, make", [
    ("lstm 7", lambda: Recurrent(nn.LSTM)),
    ("lstm 7 layers=2 bidirectional=yes", lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True)),
    ("gru 7", lambda: Recurrent(nn.GRU)),
    ("gru 7 layers=2 bias=no", lambda: Recurrent(nn.GRU, num_layers=2, bias=False)),
    ("rnn 7 bidirectional=yes", lambda: Recurrent(nn.RNN, bidirectional=True)),
])
def test_recurrent_layers_are_those_of_pytorch(line, make, build_dir, tmp_path):
    path = tmp_path / "net.txt"
    path.write_text(f"input 6 5\nr: {line}\n")
    module = make()
    assert states(build_dir, path, (6, 5)) == {k: tuple(v.shape) for k, v in theirs(module).items()}
    compare_scores(build_dir, path, module, (6, 5))


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.MultiheadAttention(6, 3, batch_first=True)

    def forward(self, x):
        see = x.mean(2) > -0.5                    # places that may be looked at
        see[:, 0] = True
        hide = torch.ones(5, 5).triu(1).bool()
        return self.a(x, x, x, key_padding_mask=~see, attn_mask=hide)[0]


def test_masks_of_attention_are_those_of_pytorch(build_dir, tmp_path):
    path = tmp_path / "net.txt"
    path.write_text("input 5 6\nmean dim=2\ngt -0.5 -> seen\nslice 1 0 1\nlogical_not -> no\nfrom seen\n"
                    "slice 1 0 1\nlogical_or no -> first\nfrom seen\nslice 1 1 5 -> rest\nfrom first\nconcat rest\n"
                    "unsqueeze 1\nunsqueeze 1 -> mask\nfrom input\na: self_attention 3 causal=yes mask=mask\n")
    compare_scores(build_dir, path, Masked(), (5, 6))


class Windows(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 4, (3, 5), stride=(2, 1), padding=(1, 2), dilation=(1, 2))
        self.b = nn.ConvTranspose2d(4, 2, (2, 3), stride=(2, 1), output_padding=(1, 0))

    def forward(self, x):
        return self.b(self.a(x))


def test_windows_that_differ_by_dim(build_dir, tmp_path):
    path = tmp_path / "net.txt"
    path.write_text("input 3 9 14\na: conv2d 4 3,5 stride=2,1 padding=1,2 dilation=1,2\n"
                    "b: conv_transpose2d 2 2,3 stride=2,1 output_padding=1,0\n")
    compare_scores(build_dir, path, Windows(), (3, 9, 14))
