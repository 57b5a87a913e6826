"""Networks of many kinds, small enough to be measured in seconds: what bench/zoo.py compares.

Each is made by a function without arguments that returns (module, inputs, training): the module returns its loss
when it is trained. None of them was chosen because it is fast.
"""

import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F


class Trained(nn.Module):
    """A net with cross entropy, or the mean square of what it returns where it has no classes."""

    def __init__(self, net, classes=True):
        super().__init__()
        self.net, self.classes = net, classes

    def forward(self, x, t=None):
        y = self.net(x)
        if t is None:
            return (y * y).mean()
        return F.cross_entropy(y.reshape(-1, y.shape[-1]) if self.classes else y, t.reshape(-1) if self.classes else t)


class Block(nn.Module):
    """A transformer's block, normed first."""

    def __init__(self, width, heads, causal=False):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-2, -1) * (c // self.heads) ** -0.5
        if self.causal:
            hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -1e9)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, c))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, words=1000, width=256, layers=4, length=128):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*[Block(width, 4, True) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.words(x) + self.places)))


class Recurrent(nn.Module):
    def __init__(self, cell, width=128):
        super().__init__()
        self.layer, self.head = cell(32, width, batch_first=True), nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


class Basic(nn.Module):
    def __init__(self, inside, out, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inside, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.norm2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.short = nn.Identity() if stride == 1 and inside == out else nn.Sequential(
            nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.short(x))


class Bottleneck(nn.Module):
    def __init__(self, inside, middle, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inside, middle, 1, bias=False), nn.BatchNorm2d(middle)
        self.conv2, self.norm2 = nn.Conv2d(middle, middle, 3, stride, 1, bias=False), nn.BatchNorm2d(middle)
        self.conv3, self.norm3 = nn.Conv2d(middle, 4 * middle, 1, bias=False), nn.BatchNorm2d(4 * middle)
        self.short = nn.Identity() if stride == 1 and inside == 4 * middle else nn.Sequential(
            nn.Conv2d(inside, 4 * middle, 1, stride, bias=False), nn.BatchNorm2d(4 * middle))

    def forward(self, x):
        y = F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))))
        return F.relu(self.norm3(self.conv3(y)) + self.short(x))


def resnet(depths, bottleneck):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for stage, depth in enumerate(depths):
        for i in range(depth):
            width, stride = 64 << stage, 2 if stage and not i else 1
            layers.append(Bottleneck(inside, width, stride) if bottleneck else Basic(inside, width, stride))
            inside = 4 * width if bottleneck else width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000))


class UNet(nn.Module):
    def __init__(self, widths=(16, 32, 64)):
        super().__init__()

        def pair(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(),
                                 nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())
        a, b, c = widths
        self.down1, self.down2, self.middle = pair(3, a), pair(a, b), pair(b, c)
        self.turn2, self.up2 = nn.ConvTranspose2d(c, b, 2, 2), pair(2 * b, b)
        self.turn1, self.up1 = nn.ConvTranspose2d(b, a, 2, 2), pair(2 * a, a)
        self.head = nn.Conv2d(a, 4, 1)

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        y = self.turn2(self.middle(F.max_pool2d(two, 2)))
        y = self.turn1(self.up2(torch.cat([y, two], 1)))
        return self.head(self.up1(torch.cat([y, one], 1)))


def mobile():
    """Depthwise separable convolutions."""
    layers, inside = [nn.Conv2d(3, 16, 3, 2, 1)], 16
    for out, stride in (32, 1), (64, 2), (64, 1), (128, 2), (128, 1):
        layers += [nn.Conv2d(inside, inside, 3, stride, 1, groups=inside), nn.BatchNorm2d(inside), nn.ReLU6(),
                   nn.Conv2d(inside, out, 1), nn.BatchNorm2d(out), nn.ReLU6()]
        inside = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 10))


class Mixer(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, 2 * width), nn.GELU(), nn.Linear(2 * width, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class MixerNet(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 8, 8)
        self.blocks, self.head = nn.Sequential(*[Mixer(64, width) for _ in range(3)]), nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x).flatten(2).transpose(1, 2)).mean(1))


class ConvNeXt(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.deep, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-2))

    def forward(self, x):
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


class Sound(nn.Module):
    """The beginning of a speech encoder: convolutions over time, then linear layers over what they made."""

    def __init__(self, width=256):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(80, width, 3, padding=1), nn.Conv1d(width, width, 3, 2, 1)
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)
        self.block = Block(width, 4)

    def forward(self, x):
        x = F.gelu(self.conv2(F.gelu(self.conv1(x)))).permute(0, 2, 1)
        return self.block(x + self.linear(self.norm(x)))


class Sage(nn.Module):
    """Messages between the nodes of a graph, of which each node takes the largest."""

    def __init__(self, width=32):
        super().__init__()
        self.own1, self.near1 = nn.Linear(16, width), nn.Linear(16, width)
        self.own2, self.near2 = nn.Linear(width, 8), nn.Linear(width, 8)

    def gather(self, x, edges):
        index = edges[1].unsqueeze(1).expand(-1, x.shape[1])
        return torch.zeros_like(x).scatter_reduce(0, index, x[edges[0]], "amax", include_self=False)

    def forward(self, x, edges, t):
        x = F.relu(self.own1(x) + self.near1(self.gather(x, edges)))
        return F.cross_entropy(self.own2(x) + self.near2(self.gather(x, edges)), t)


class Convolved(nn.Module):
    """A convolution, its norm, and, but at the end of a residual block, a ReLU."""

    def __init__(self, inside, out, size=3, active=True):
        super().__init__()
        self.conv, self.norm, self.active = nn.Conv2d(inside, out, size, padding=size // 2), nn.BatchNorm2d(out), active

    def forward(self, x):
        x = self.norm(self.conv(x))
        return F.relu(x) if self.active else x


class Residual(nn.Module):
    def __init__(self, width, size=3):
        super().__init__()
        self.one, self.two = Convolved(width, width, size), Convolved(width, width, size, False)

    def forward(self, x):
        return F.relu(x + self.two(self.one(x)))


def series(count, width, size=3):
    return nn.Sequential(*[Residual(width, size) for _ in range(count)])


class Level(nn.Module):
    """A level of a U of residual blocks, through which three planes go with the same weights; the deepest sees all
    of them at once."""

    def __init__(self, widths, blocks, deepest, middle):
        super().__init__()
        width, *rest = widths
        self.deep = not rest
        if self.deep:
            self.narrow, self.wide = Convolved(3 * width, middle, 1), Convolved(middle, 3 * width, 1)
            self.blocks = series(deepest, middle, 5)
            return
        self.down, self.up = series(blocks, width), series(blocks, width)
        self.narrow, self.wide = Convolved(width, rest[0], 1), Convolved(rest[0], width, 1)
        self.inner, self.join = Level(rest, blocks, deepest, middle), Convolved(2 * width, width, 1)

    def forward(self, planes):
        if self.deep:
            return self.wide(self.blocks(self.narrow(torch.cat(planes, 1)))).chunk(3, 1)
        planes = [self.down(x) for x in planes]
        inner = self.inner([self.narrow(F.max_pool2d(x, 2)) for x in planes])
        inner = [self.wide(F.interpolate(x, scale_factor=2.0)) for x in inner]
        return [self.up(self.join(torch.cat([x, y], 1))) for x, y in zip(planes, inner)]


class UResNet(nn.Module):
    """Labels of the pixels of three planes of a particle detector."""

    def __init__(self, widths, blocks, deepest, middle):
        super().__init__()
        self.first, self.last = Convolved(1, widths[0], 5), series(blocks, widths[0])
        self.core, self.head = Level(widths, blocks, deepest, middle), nn.Conv2d(widths[0], 3, 1)

    def forward(self, x, t):
        planes = self.core([self.first(plane) for plane in x.chunk(3, 1)])
        planes = [self.head(self.last(plane)) for plane in planes]
        return sum(F.cross_entropy(plane, t[:, i]) for i, plane in enumerate(planes))


def planes(height=640, width=1024):
    return [torch.randn(1, 3, height, width), torch.randint(3, (1, 3, height, width))]


def cosmic(height, width):
    """uresnet-a21 as `tessera models` has it, of the tests' nets: W5 of bench/run.py at any size."""
    sys.path.append(str(Path(__file__).resolve().parent.parent / "test" / "python"))
    import nets
    return nets.Cosmic(), planes(height, width), True


def vgg():
    layers, inside = [], 3
    for width in 32, 64, 128:
        layers += [nn.Conv2d(inside, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
                   nn.MaxPool2d(2)]
        inside = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 16, 256), nn.ReLU(), nn.Linear(256, 10))


def pictures(n, size, classes=10):
    return [torch.randn(n, 3, size, size), torch.randint(classes, (n,))]


def encoder(layers=4, width=256):
    return nn.Sequential(*[Block(width, 4) for _ in range(layers)], nn.LayerNorm(width))


def mlp():
    layers = [nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)]
    return Trained(nn.Sequential(*layers)), [torch.randn(64, 1024), torch.randint(10, (64,))], True


# --- nets of libraries, of PyTorch's own and of others ---

class Classified(nn.Module):
    """A net of a library with cross entropy, or the mean square of what it returns where there are no classes to learn."""

    def __init__(self, net, name=None):
        super().__init__()
        self.net, self.name = net, name

    def forward(self, x, *rest):
        classes = bool(rest) and not rest[-1].is_floating_point() and rest[-1].dim() == 1 and not self.name
        y = self.net(x, *rest[:-1] if classes else rest)
        y = getattr(y, self.name) if self.name else y
        return F.cross_entropy(y, rest[-1]) if classes else (y * y).mean()


class Answered(nn.Module):
    """What a net returns under a name."""

    def __init__(self, net, name):
        super().__init__()
        self.net, self.name = net, name

    def forward(self, *args):
        return getattr(self.net(*args), self.name)


def sight(library, name, n, size, training=True):
    """A net of torchvision or timm."""
    import importlib
    lib = importlib.import_module("torchvision.models" if library == "torchvision" else library)
    net = getattr(lib, name)() if library == "torchvision" else lib.create_model(name)
    if not training:
        return net.eval(), [torch.randn(n, 3, size, size)], False
    return Classified(net), pictures(n, size, 1000), True


def named(net, inputs, name, training=True):
    """A net that returns its results by name."""
    return (Classified(net, name) if training else Answered(net, name).eval()), inputs, training


def hugging(kind, inputs, training=True, answer="last_hidden_state", **settings):
    """A net of transformers, without dropout."""
    import transformers
    config = getattr(transformers, kind.replace("ForSemanticSegmentation", "").replace("EncoderModel", "").replace("Model", "") + "Config")(**settings)
    for key, value in list(vars(config).items()):
        if isinstance(value, float) and "drop" in key:
            setattr(config, key, 0.0)
    return named(getattr(transformers, kind)(config), inputs, answer, training)


def diffusion(conditional, training=True, n=2, size=32):
    """A U-Net of diffusers."""
    import diffusers
    shape = {"sample_size": size, "in_channels": 3, "out_channels": 3, "layers_per_block": 1, "block_out_channels": (64, 128, 128)}
    x = [torch.randn(n, 3, size, size), torch.full((n,), 10)]
    if not conditional:
        down, up = "AttnDownBlock2D", "AttnUpBlock2D"
        return named(diffusers.UNet2DModel(down_block_types=("DownBlock2D", down, down), up_block_types=(up, up, "UpBlock2D"),
                                           **shape), x, "sample", training)
    down, up = "CrossAttnDownBlock2D", "CrossAttnUpBlock2D"
    net = diffusers.UNet2DConditionModel(down_block_types=(down, down, "DownBlock2D"), up_block_types=("UpBlock2D", up, up),
                                         cross_attention_dim=64, attention_head_dim=8, **shape)
    return named(net, [*x, torch.randn(n, 16, 64)], "sample", training)


SMALL = {"vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
SOUND = {k: v for k, v in SMALL.items() if k != "vocab_size"}


ZOO = {
    "mlp": mlp,
    "encoder": lambda: (Trained(encoder()), [torch.randn(8, 128, 256)], True),
    "gpt": lambda: (Trained(GPT()), [torch.randint(1000, (8, 128)), torch.randint(1000, (8, 128))], True),
    "lstm": lambda: (Trained(Recurrent(nn.LSTM)), [torch.randn(32, 32, 32), torch.randint(10, (32,))], True),
    "gru": lambda: (Trained(Recurrent(nn.GRU)), [torch.randn(32, 32, 32), torch.randint(10, (32,))], True),
    "resnet18": lambda: (Trained(resnet((2, 2, 2, 2), False)), pictures(4, 128), True),
    "resnet50 inference": lambda: (resnet((3, 4, 6, 3), True).eval(), [torch.randn(1, 3, 224, 224)], False),
    "unet": lambda: (Trained(UNet()), [torch.randn(2, 3, 96, 96)], True),
    "mobile": lambda: (Trained(mobile()), pictures(8, 64), True),
    "mixer": lambda: (Trained(MixerNet()), pictures(4, 64), True),
    "convnext": lambda: (Trained(nn.Sequential(nn.Conv2d(3, 96, 4, 4), *[ConvNeXt(96) for _ in range(3)])),
                         [torch.randn(4, 3, 112, 112)], True),
    "sound": lambda: (Trained(Sound()), [torch.randn(1, 80, 600)], True),
    "vgg": lambda: (Trained(vgg()), pictures(16, 32), True),
    "encoder bf16 inference": lambda: (encoder().bfloat16().eval(), [torch.randn(8, 128, 256).bfloat16()], False),
    "sage max": lambda: (Sage(), [torch.randn(500, 16), torch.randint(500, (2, 4000)), torch.randint(8, (500,))], True),
}

#: Large nets: measured where they are asked for by name.
LARGE = {
    "a21 320x512": lambda: cosmic(320, 512),
    "a21 640x1024": lambda: cosmic(640, 1024),
}

#: Nets of libraries that need not be there: measured where they are asked for by name.
LIBRARY = {
    "nf_resnet26": lambda: sight("timm", "nf_resnet26", 4, 128),
    "nf_resnet26 inference": lambda: sight("timm", "nf_resnet26", 2, 224, False),
    "nf_regnet_b0": lambda: sight("timm", "nf_regnet_b0", 8, 128),
    "nf_regnet_b0 inference": lambda: sight("timm", "nf_regnet_b0", 2, 224, False),
    "swin_t": lambda: sight("torchvision", "swin_t", 4, 224),
    "swin_t inference": lambda: sight("torchvision", "swin_t", 2, 224, False),
    "unet2d": lambda: diffusion(False),
    "unet2d inference": lambda: diffusion(False, False),
    "unet2d conditional": lambda: diffusion(True),
    "unet2d conditional inference": lambda: diffusion(True, False),
    "efficientnet_b0": lambda: sight("torchvision", "efficientnet_b0", 8, 128),
    "regnet_y_400mf": lambda: sight("torchvision", "regnet_y_400mf", 8, 128),
    "convnext_tiny": lambda: sight("torchvision", "convnext_tiny", 4, 128),
    "mobilenet_v2": lambda: sight("torchvision", "mobilenet_v2", 8, 128),
    "densenet121": lambda: sight("torchvision", "densenet121", 4, 128),
    "resnet50": lambda: sight("torchvision", "resnet50", 8, 128),
    "vit_b_16": lambda: sight("torchvision", "vit_b_16", 4, 224),
    "deit_tiny": lambda: sight("timm", "deit_tiny_patch16_224", 4, 224),
    "bert": lambda: hugging("BertModel", [torch.randint(1000, (4, 128))], **SMALL),
    "t5 encoder": lambda: hugging("T5EncoderModel", [torch.randint(1000, (4, 128))], vocab_size=1000, d_model=256, d_ff=1024,
                                  num_layers=4, num_heads=4),
    "wav2vec2": lambda: hugging("Wav2Vec2Model", [torch.randn(2, 16000)], apply_spec_augment=False, layerdrop=0.0,
                                conv_dim=[128] * 7, **SOUND),
    "segformer": lambda: hugging("SegformerForSemanticSegmentation", [torch.randn(2, 3, 128, 128)], answer="logits"),
}

#: Nets whose compile is measured (bench/zoo.py --compile) and not their speed.
COMPILED = {
    "resnet18": ZOO["resnet18"],
    "resnet50": lambda: (Trained(resnet((3, 4, 6, 3), True)), pictures(4, 128), True),
    "encoder of 12": lambda: (Trained(encoder(12)), [torch.randn(8, 128, 256)], True),
    "unet": ZOO["unet"],
    "lstm of 64": lambda: (Trained(Recurrent(nn.LSTM)), [torch.randn(32, 64, 32), torch.randint(10, (32,))], True),
    "conv1d of 400": lambda: (Trained(nn.Conv1d(16, 16, 400, padding=200)), [torch.randn(4, 16, 4000)], True),
    "uresnet small": lambda: (UResNet([8, 16, 24, 32, 40, 48, 56], 2, 5, 32), planes(), True),
    "uresnet": lambda: (UResNet([16 << i for i in range(7)], 2, 5, 256), planes(), True),
    "a21 640x1024": LARGE["a21 640x1024"],
    "uresnet small half": lambda: (UResNet([8, 16, 24, 32, 40, 48, 56], 2, 5, 32).half(),
                                   [planes()[0].half(), planes()[1]], True),
}
