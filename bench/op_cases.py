"""The cases of bench/ops.py: functions without arguments that return (function, tensors), by their name.

Sizes are those of models that people train: graphs of 10,000 nodes and 100,000 edges, vocabularies, rows of logits,
pictures. What a case has odd it has on purpose: rules that hold for powers of two only are not wanted.
"""

import torch
import torch.nn.functional as F

CASES = {}


def case(name, make, *modes):
    """Adds a case, and one of the same name with its gradients."""
    CASES[name] = make
    if "grad" in modes:
        CASES["grad " + name] = make


def index(size, *shape):
    return torch.randint(0, size, shape)


def table(name, function, tensors, grad=True):
    case(name, lambda: (function, tensors()), "grad" if grad else "")


# --- adding and looking up by index ---

NODES, EDGES, WIDTH = 10000, 100000, 64


def graph(width=WIDTH, nodes=NODES, edges=EDGES):
    return torch.randn(nodes, width), index(nodes, edges), torch.randn(edges, width)


for how in "sum", "mean", "amax", "amin", "prod":
    table(f"scatter_reduce {how} rows of a graph",
          lambda x, i, s, how=how: x.scatter_reduce(0, i[:, None].expand_as(s), s, how, include_self=False), graph)
    table(f"scatter_reduce {how} column, 64 x 1000",
          lambda x, i, s, how=how: x.scatter_reduce(1, i, s, how), lambda: (torch.randn(64, 500), index(500, 64, 1000),
                                                                          torch.randn(64, 1000)))
    table(f"scatter_reduce {how} each, dim 0, 1000 x 64",
          lambda x, i, s, how=how: x.scatter_reduce(0, i, s, how), lambda: (torch.randn(500, 64), index(500, 1000, 64),
                                                                          torch.randn(1000, 64)))
    table(f"scatter_reduce {how} one column of 100k",
          lambda x, i, s, how=how: x.scatter_reduce(0, i, s, how), lambda: (torch.randn(NODES), index(NODES, EDGES),
                                                                          torch.randn(EDGES)))
for how in "mean", "amax", "amin", "prod":
    table(f"index_reduce {how} 10k from 100k x 64",
          lambda x, i, s, how=how: x.index_reduce(0, i, s, how), graph, grad=False)
    table(f"index_reduce {how} dim 1, 64 x 1000", lambda x, i, s, how=how: x.index_reduce(1, i, s, how),
          lambda: (torch.randn(64, 300), index(300, 1000), torch.randn(64, 1000)), grad=False)
table("index_add 10k from 100k x 64", lambda x, i, s: x.index_add(0, i, s), graph)
table("index_add 10k from 100k x 3", lambda x, i, s: x.index_add(0, i, s), lambda: graph(3))
table("index_add 10k from 100k x 1", lambda x, i, s: x.index_add(0, i, s), lambda: graph(1))
table("index_add dim 1, 64 x 1000", lambda x, i, s: x.index_add(1, i, s),
      lambda: (torch.randn(64, 300), index(300, 1000), torch.randn(64, 1000)))
table("scatter_add rows of a graph", lambda x, i, s: x.scatter_add(0, i[:, None].expand_as(s), s), graph)
table("scatter_add rows of a graph, f64", lambda x, i, s: x.scatter_add(0, i[:, None].expand_as(s), s),
      lambda: tuple(t.double() if t.is_floating_point() else t for t in graph(32)))
table("scatter_add each, dim 0, 1000 x 64", lambda x, i, s: x.scatter_add(0, i, s),
      lambda: (torch.randn(500, 64), index(500, 1000, 64), torch.randn(1000, 64)))
table("scatter_add each, dim 0, 20000 x 100", lambda x, i, s: x.scatter_add(0, i, s),
      lambda: (torch.randn(3000, 100), index(3000, 20000, 100), torch.randn(20000, 100)))
table("scatter_add each, dim 1, 512 x 1000", lambda x, i, s: x.scatter_add(1, i, s),
      lambda: (torch.randn(512, 100), index(100, 512, 1000), torch.randn(512, 1000)))
table("scatter each, dim 0, 1000 x 64", lambda x, i, s: x.scatter(0, i, s),
      lambda: (torch.randn(1000, 64), torch.rand(1000, 64).argsort(0), torch.randn(1000, 64)))
table("scatter each, dim 1, 512 x 1000", lambda x, i, s: x.scatter(1, i, s),
      lambda: (torch.randn(512, 1000), torch.rand(512, 1000).argsort(1), torch.randn(512, 1000)))
table("scatter one hot 512 x 1000", lambda x, i: x.scatter(1, i, 1.0),
      lambda: (torch.zeros(512, 1000), index(1000, 512, 1)), grad=False)
table("index_copy 1000 of 10k x 64", lambda x, i, s: x.index_copy(0, i, s),
      lambda: (torch.randn(10000, 64), torch.randperm(10000)[:1000], torch.randn(1000, 64)))
table("index_put 5000 of 100 x 1000", lambda x, i, j, s: x.index_put((i, j), s),
      lambda: (torch.randn(100, 1000), torch.arange(5000) // 50, torch.arange(5000) % 1000, torch.randn(5000)))
table("index_put accumulate", lambda x, i, j, s: x.index_put((i, j), s, accumulate=True),
      lambda: (torch.randn(100, 1000), index(100, 5000), index(1000, 5000), torch.randn(5000)))
table("gather dim 0, 1000 x 64", lambda x, i: x.gather(0, i), lambda: (torch.randn(500, 64), index(500, 1000, 64)))
table("gather dim 1, 512 x 1000", lambda x, i: x.gather(1, i), lambda: (torch.randn(512, 1000), index(1000, 512, 1000)))
table("gather one of 32000", lambda x, i: x.gather(1, i), lambda: (torch.randn(256, 32000), index(32000, 256, 1)))
table("index_select 100k of 10k x 64", lambda x, i: x.index_select(0, i), lambda: (torch.randn(10000, 64), index(10000, 100000)))
table("index_select dim 1, 64 x 1000", lambda x, i: x.index_select(1, i), lambda: (torch.randn(64, 300), index(300, 1000)))
table("index_select 7 of 10 x 5", lambda x, i: x.index_select(0, i), lambda: (torch.randn(10, 5), index(10, 7)))
table("x[i] 8192 of 50257 x 256", lambda x, i: x[i], lambda: (torch.randn(50257, 256), index(50257, 8, 1024)))
for words, width in (100, 64), (1000, 256), (30000, 128), (50257, 512):
    table(f"embedding {words} x {width}", lambda w, i: F.embedding(i, w),
          lambda words=words, width=width: (torch.randn(words, width), index(words, 16, 128)))
table("embedding padding_idx 30000 x 128", lambda w, i: F.embedding(i, w, padding_idx=0),
      lambda: (torch.randn(30000, 128), index(30000, 16, 128) * (torch.rand(16, 128) > 0.5)))
table("embedding_bag mean 5000 x 64", lambda w, i: F.embedding_bag(i, w, mode="mean"),
      lambda: (torch.randn(5000, 64), index(5000, 256, 20)))
table("embedding_bag max 5000 x 64", lambda w, i: F.embedding_bag(i, w, mode="max"),
      lambda: (torch.randn(5000, 64), index(5000, 256, 20)))


def sage(how):
    def run(x, w, source, target):
        found = torch.zeros_like(x).scatter_reduce(0, target[:, None].expand(-1, x.shape[1]), x[source], how,
                                                   include_self=False)
        return torch.cat([x, found], 1) @ w
    return run


for how in "amax", "mean":
    table(f"GraphSAGE {how} 10k nodes, 100k edges", sage(how),
          lambda: (torch.randn(NODES, WIDTH), torch.randn(2 * WIDTH, WIDTH), index(NODES, EDGES), index(NODES, EDGES)))
table("repeat_interleave 3 of 5000 x 64", lambda x: x.repeat_interleave(3, 0), lambda: (torch.randn(5000, 64),))
table("take_along_dim 512 x 1000", lambda x, i: torch.take_along_dim(x, i, 1),
      lambda: (torch.randn(512, 1000), torch.rand(512, 1000).argsort(1)))
table("bincount 100k", lambda i: torch.bincount(i, minlength=1000), lambda: (torch.cat([index(1000, EDGES), torch.tensor([999])]),),
      grad=False)
table("histc 100k", lambda x: torch.histc(x, 100, -3, 3), lambda: (torch.randn(EDGES),), grad=False)
table("one_hot 4096 of 1000", lambda i: F.one_hot(i, 1000), lambda: (index(1000, 4096),), grad=False)
table("isin 10000 of 1000", lambda x, y: torch.isin(x, y), lambda: (index(5000, 10000), index(5000, 1000)), grad=False)
table("searchsorted 10000 in 1000", lambda s, x: torch.searchsorted(s, x),
      lambda: (torch.randn(1000).sort()[0], torch.randn(10000)), grad=False)
table("bucketize 100k in 50", lambda x, s: torch.bucketize(x, s),
      lambda: (torch.randn(EDGES), torch.randn(50).sort()[0]), grad=False)

# --- order ---


def ties(*shape):
    return torch.randint(0, 10, shape).float()


ROWS = {"random": lambda: torch.randn(256, 1000), "ascending": lambda: torch.randn(256, 1000).sort()[0],
        "descending": lambda: torch.randn(256, 1000).sort(descending=True)[0], "ties": lambda: ties(256, 1000)}
for kind, rows in ROWS.items():
    for k in 1, 5, 50, 500:
        table(f"topk {k} of 1000, {kind}", lambda x, k=k: x.topk(k), lambda rows=rows: (rows(),), grad=kind == "random")
    table(f"sort 1000, {kind}", lambda x: x.sort(), lambda rows=rows: (rows(),), grad=kind == "random")
table("topk 40 of 50257", lambda x: x.topk(40), lambda: (torch.randn(16, 50257),))
table("topk 40 of 50257, ascending", lambda x: x.topk(40), lambda: (torch.randn(16, 50257).sort()[0],), grad=False)
table("topk 1000 of 50257", lambda x: x.topk(1000), lambda: (torch.randn(16, 50257),), grad=False)
table("topk smallest 5 of 1000", lambda x: x.topk(5, largest=False), lambda: (torch.randn(256, 1000),), grad=False)
table("topk 5 of dim 0, 1000 x 64", lambda x: x.topk(5, 0), lambda: (torch.randn(1000, 64),))
table("topk 2 of 8, 4096 rows", lambda x: x.topk(2), lambda: (torch.randn(4096, 8),))
table("topk 3 of 7, 5000 rows", lambda x: x.topk(3), lambda: (torch.randn(5000, 7),))
table("sort 100k", lambda x: x.sort(), lambda: (torch.randn(EDGES),))
table("sort 100k f64", lambda x: x.sort(), lambda: (torch.randn(EDGES).double(),), grad=False)
table("sort 100k i64", lambda x: x.sort(), lambda: (index(1 << 40, EDGES),), grad=False)
table("sort 10, 10000 rows", lambda x: x.sort(), lambda: (torch.randn(10000, 10),))
table("sort 50, 2000 rows", lambda x: x.sort(), lambda: (torch.randn(2000, 50),))
table("sort dim 0, 1000 x 64", lambda x: x.sort(0), lambda: (torch.randn(1000, 64),))
table("argsort 1000", lambda x: x.argsort(), lambda: (torch.randn(256, 1000),), grad=False)
table("argsort i64 100k", lambda x: x.argsort(), lambda: (index(NODES, EDGES),), grad=False)
table("kthvalue 10 of 1000", lambda x: x.kthvalue(10), lambda: (torch.randn(256, 1000),))
table("kthvalue 500 of 1000", lambda x: x.kthvalue(500), lambda: (torch.randn(256, 1000),))
table("median 1000", lambda x: x.median(1), lambda: (torch.randn(256, 1000),))
table("median of all 100k", lambda x: x.median(), lambda: (torch.randn(EDGES),))
table("median dim 0, 101 x 1000", lambda x: x.median(0), lambda: (torch.randn(101, 1000),))
table("nanmedian 1000", lambda x: x.nanmedian(1), lambda: (torch.randn(256, 1000),), grad=False)
table("quantile 0.9 of 1000", lambda x: x.quantile(0.9, 1), lambda: (torch.randn(256, 1000),))
table("mode 100, 256 rows", lambda x: x.mode(1), lambda: (ties(256, 100),), grad=False)
table("argmax 1000", lambda x: x.argmax(1), lambda: (torch.randn(256, 1000),), grad=False)
table("max dim 0, 1000 x 256", lambda x: x.max(0), lambda: (torch.randn(1000, 256),))

# --- running ---

for word in "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin":
    run = {"cumsum": lambda x, d: x.cumsum(d), "cumprod": lambda x, d: x.cumprod(d), "cummax": lambda x, d: x.cummax(d),
           "cummin": lambda x, d: x.cummin(d), "logcumsumexp": lambda x, d: x.logcumsumexp(d)}[word]
    table(f"{word} 256 x 1000", lambda x, run=run: run(x, 1), lambda: (torch.rand(256, 1000) + 0.5,))
    table(f"{word} dim 0, 1000 x 256", lambda x, run=run: run(x, 0), lambda: (torch.rand(1000, 256) + 0.5,))
    table(f"{word} dim 1, 8 x 129 x 65", lambda x, run=run: run(x, 1), lambda: (torch.rand(8, 129, 65) + 0.5,))
    table(f"{word} 100k", lambda x, run=run: run(x, 0), lambda: (torch.rand(EDGES) + 0.5,))
table("cumsum i64 512 x 128", lambda x: x.cumsum(1), lambda: (index(2, 512, 128),), grad=False)
table("cumsum bool 512 x 128", lambda x: x.cumsum(1), lambda: (index(2, 512, 128) > 0,), grad=False)
table("cumsum 2000 x 7", lambda x: x.cumsum(1), lambda: (torch.randn(2000, 7),))
table("cumsum f64 256 x 1000", lambda x: x.cumsum(1), lambda: (torch.randn(256, 1000).double(),), grad=False)

# --- doubles ---


def doubles(*shapes):
    return lambda: tuple(torch.randn(*shape, dtype=torch.float64) for shape in shapes)


for n in 32, 64, 128, 256, 512, 1000:
    table(f"f64 matmul {n}", lambda x, y: x @ y, doubles((n, n), (n, n)))
table("f64 matmul 64 x 784 x 300", lambda x, w, b: F.linear(x, w, b), doubles((64, 784), (300, 784), (300,)))
table("f64 matmul 1000 x 50 x 10", lambda x, w, b: F.linear(x, w, b), doubles((1000, 50), (10, 50), (10,)))
table("f64 matmul 4096 x 3 x 64", lambda x, w, b: F.linear(x, w, b), doubles((4096, 3), (64, 3), (64,)))
table("f64 matrix by vector 1000", lambda x, y: x @ y, doubles((1000, 1000), (1000,)))
table("f64 bmm 64 x 32", lambda x, y: x @ y, doubles((64, 32, 32), (64, 32, 32)))
table("f64 bmm 1000 x 4", lambda x, y: x @ y, doubles((1000, 4, 4), (1000, 4, 4)))
table("f64 conv 1 to 8, 5x5", F.conv2d, doubles((32, 1, 28, 28), (8, 1, 5, 5)))
table("f64 conv 3 to 16, 3x3", lambda x, w: F.conv2d(x, w, padding=1), doubles((16, 3, 32, 32), (16, 3, 3, 3)))
table("f64 conv 32 to 32, 3x3", lambda x, w: F.conv2d(x, w, padding=1), doubles((8, 32, 28, 28), (32, 32, 3, 3)))
table("f64 conv 64 to 128, stride 2", lambda x, w: F.conv2d(x, w, stride=2, padding=1), doubles((8, 64, 28, 28), (128, 64, 3, 3)))
table("f64 conv 64 to 64, 1x1", F.conv2d, doubles((8, 64, 28, 28), (64, 64, 1, 1)))
table("f64 conv1d 16 to 32", F.conv1d, doubles((16, 16, 200), (32, 16, 5)))
table("f64 depthwise 32", lambda x, w: F.conv2d(x, w, padding=1, groups=32), doubles((8, 32, 28, 28), (32, 1, 3, 3)))
table("f64 transposed 16 to 8", lambda x, w: F.conv_transpose2d(x, w, stride=2), doubles((8, 16, 14, 14), (16, 8, 3, 3)))
table("f64 exp 256 x 1000", torch.exp, doubles((256, 1000)))
table("f64 softmax 256 x 1000", lambda x: x.softmax(1), doubles((256, 1000)))
table("f64 layer_norm 256 x 1000", lambda x: F.layer_norm(x, (1000,)), doubles((256, 1000)))
table("f64 relu + bias", lambda x, b: (x + b).relu(), doubles((256, 1000), (1000,)))
table("f64 max_pool2d", lambda x: F.max_pool2d(x, 2), doubles((16, 16, 32, 32)))

# --- shapes and the rest ---


def floats(*shapes):
    return lambda: tuple(torch.randn(*shape) for shape in shapes)


PICTURES = (16, 16, 56, 56)
table("masked_fill 256 x 1000", lambda x, m: x.masked_fill(m, -1e9), lambda: (torch.randn(256, 1000), torch.rand(256, 1000) > 0.5))
table("where 256 x 1000", lambda x, y, m: torch.where(m, x, y),
      lambda: (torch.randn(256, 1000), torch.randn(256, 1000), torch.rand(256, 1000) > 0.5))
table("where broadcast 64 x 128 x 128", lambda x, m: torch.where(m, x, 0.0),
      lambda: (torch.randn(64, 128, 128), torch.rand(128, 128) > 0.5))
for dims in (3,), (2,), (1,), (2, 3):
    table(f"flip {dims}", lambda x, dims=dims: x.flip(dims), floats(PICTURES))
    table(f"roll {dims}", lambda x, dims=dims: x.roll((3,) * len(dims), dims), floats(PICTURES))
table("rot90", lambda x: x.rot90(1, (2, 3)), floats(PICTURES))
table("permute 0231", lambda x: x.permute(0, 2, 3, 1).contiguous(), floats(PICTURES))
table("permute 0312", lambda x: x.permute(0, 3, 1, 2).contiguous(), floats((16, 56, 56, 16)))
table("transpose 1000", lambda x: x.t().contiguous(), floats((1000, 1000)))
table("transpose 1001 x 333", lambda x: x.t().contiguous(), floats((1001, 333)))
table("cat 3 of dim 1", lambda *x: torch.cat(x, 1), floats((16, 16, 28, 28), (16, 3, 28, 28), (16, 32, 28, 28)))
table("cat last dim, 7 and 9", lambda *x: torch.cat(x, 1), floats((5000, 7), (5000, 9)))
table("stack 8", lambda *x: torch.stack(x, 1), floats(*[(256, 100)] * 8))
table("tile 2 x 3", lambda x: x.repeat(2, 3), floats((256, 333)))
table("unfold windows", lambda x: F.unfold(x, 3, padding=1), floats((8, 16, 28, 28)))
table("tril 512", torch.tril, floats((64, 128, 128)))
table("diagonal_embed", torch.diag_embed, floats((64, 100)))
for mode in "constant", "reflect", "replicate", "circular":
    table(f"pad {mode}", lambda x, mode=mode: F.pad(x, (1, 2, 3, 1), mode), floats((16, 16, 33, 35)))
for size in 1, 7, (5, 3):
    table(f"adaptive_avg_pool2d {size} of 32", lambda x, size=size: F.adaptive_avg_pool2d(x, size), floats((16, 32, 32, 32)))
    table(f"adaptive_max_pool2d {size} of 32", lambda x, size=size: F.adaptive_max_pool2d(x, size), floats((16, 32, 32, 32)))
table("max_pool2d 3, stride 2", lambda x: F.max_pool2d(x, 3, 2, 1), floats((16, 32, 57, 57)))
table("avg_pool2d 3", lambda x: F.avg_pool2d(x, 3), floats((16, 32, 57, 57)))
for mode in "nearest", "bilinear", "bicubic":
    corners = {} if mode == "nearest" else {"align_corners": False}
    table(f"interpolate {mode} x2", lambda x, m=mode, c=corners: F.interpolate(x, scale_factor=2, mode=m, **c), floats((8, 16, 28, 28)))
    table(f"interpolate {mode} 28 to 45", lambda x, m=mode, c=corners: F.interpolate(x, size=(45, 37), mode=m, **c),
          floats((8, 16, 28, 28)))
table("grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False),
      lambda: (torch.randn(8, 16, 28, 28), torch.rand(8, 28, 28, 2) * 2 - 1))
table("einsum bij,bkj->bik", lambda x, y: torch.einsum("bij,bkj->bik", x, y), floats((16, 64, 33), (16, 50, 33)))
table("einsum bhqd,bkhd->bhqk", lambda x, y: torch.einsum("bhqd,bkhd->bhqk", x, y), floats((8, 4, 64, 32), (8, 64, 4, 32)))
table("einsum ijk,kl->lij", lambda x, y: torch.einsum("ijk,kl->lij", x, y), floats((30, 40, 50), (50, 60)))
table("einsum bi,bj->ij", lambda x, y: torch.einsum("bi,bj->ij", x, y), floats((500, 65), (500, 77)))
table("einsum bij,bij->b", lambda x, y: torch.einsum("bij,bij->b", x, y), floats((64, 50, 50), (64, 50, 50)))
table("einsum bi,bij,bj->b", lambda x, w, y: torch.einsum("bi,bij,bj->b", x, w, y), floats((64, 50), (64, 50, 60), (64, 60)))
for n, b in (3, 5000), (4, 5000), (8, 1000), (16, 1000), (33, 100):
    table(f"bmm {b} x {n}", torch.bmm, floats((b, n, n), (b, n, n)))
table("bmm 500 x 16 x 64 x 8", torch.bmm, floats((500, 16, 64), (500, 64, 8)))
table("bmm vectors 5000 x 64", lambda x, y: (x[:, None] @ y[:, :, None])[:, 0, 0], floats((5000, 64), (5000, 64)))
table("matrix by vector 1000", lambda x, y: x @ y, floats((1000, 1000), (1000,)))
table("outer 1000", torch.outer, floats((1000,), (1000,)))
table("cdist 500 x 600 x 3", torch.cdist, floats((500, 3), (600, 3)))
table("cdist 500 x 600 x 64", torch.cdist, floats((500, 64), (600, 64)))
table("cdist p=1, 200 x 300 x 16", lambda x, y: torch.cdist(x, y, p=1), floats((200, 16), (300, 16)))
table("pdist 300 x 16", F.pdist, floats((300, 16)))
table("cosine_similarity 5000 x 64", lambda x, y: F.cosine_similarity(x, y), floats((5000, 64), (5000, 64)))
table("sum dim 0, 10000 x 64", lambda x: x.sum(0), floats((10000, 64)))
table("sum dim 1, 10000 x 7", lambda x: x.sum(1), floats((10000, 7)))
table("prod dim 1, 1000 x 100", lambda x: x.prod(1), floats((1000, 100)))
table("std dim 0, 1000 x 100", lambda x: x.std(0), floats((1000, 100)))
table("logsumexp 1000 x 1000", lambda x: x.logsumexp(1), floats((1000, 1000)))
table("logsumexp dim 0, 1000 x 1000", lambda x: x.logsumexp(0), floats((1000, 1000)))
table("softmax dim 1, 64 x 100 x 50", lambda x: x.softmax(1), floats((64, 100, 50)))
table("diff 256 x 1000", lambda x: x.diff(dim=1), floats((256, 1000)))
table("any 256 x 1000", lambda x: x.any(1), lambda: (torch.rand(256, 1000) > 0.999,), grad=False)
table("norm 1000 x 100", lambda x: x.norm(dim=1), floats((1000, 100)))
table("renorm", lambda x: F.normalize(x, dim=1), floats((1000, 100)))
table("kron 20 x 30", torch.kron, floats((20, 20), (30, 30)))

# --- functions of each element ---

for word in ("relu", "gelu", "silu", "mish", "softplus", "elu", "selu", "celu", "hardswish", "hardsigmoid", "logsigmoid", "softsign",
             "tanhshrink", "leaky_relu", "relu6"):
    table(f"each {word}", getattr(F, word), floats((256, 1000)))
table("each gelu tanh", lambda x: F.gelu(x, approximate="tanh"), floats((256, 1000)))
table("each gelu written out", lambda x: 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.044715 * torch.pow(x, 3.0)))), floats((256, 1000)))
for word in ("tanh", "sigmoid", "erf", "erfc", "exp", "exp2", "expm1", "sin", "cos", "tan", "atan", "sinh", "cosh", "asinh", "sinc", "round"):
    table(f"each {word}", getattr(torch, word), floats((256, 1000)))
for word in "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "asin", "acos", "atanh", "erfinv", "lgamma", "digamma", "logit":
    table(f"each {word}", getattr(torch, word), lambda: (torch.rand(256, 1000) * 0.9 + 0.05,))
for power in 3, 4, 2.5, -2, 1 / 3:
    table(f"each pow {power:.3g}", lambda x, power=power: x ** power, lambda: (torch.rand(256, 1000) + 0.5,))
table("each pow of two", torch.pow, lambda: (torch.rand(256, 1000) + 0.5, torch.randn(256, 1000)))
table("each atan2", torch.atan2, floats((256, 1000), (256, 1000)))
table("each fmod", lambda x, y: torch.fmod(x, y), floats((256, 1000), (256, 1000)))
table("each logaddexp", torch.logaddexp, floats((256, 1000), (256, 1000)))
table("dropout 256 x 1000", lambda x: F.dropout(x, 0.1), floats((256, 1000)))

# --- losses and norms ---

for word in "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss":
    table(f"loss {word}", getattr(F, word), floats((256, 1000), (256, 1000)))
table("loss binary_cross_entropy_with_logits", lambda x, t: F.binary_cross_entropy_with_logits(x, (t > 0).float()),
      floats((256, 1000), (256, 1000)))
table("loss kl_div", lambda x, t: F.kl_div(x.log_softmax(1), t.softmax(1), reduction="batchmean"), floats((256, 1000), (256, 1000)))
table("loss cross_entropy 1000", F.cross_entropy, lambda: (torch.randn(256, 1000), index(1000, 256)))
table("loss cross_entropy of pictures", F.cross_entropy, lambda: (torch.randn(4, 10, 64, 64), index(10, 4, 64, 64)))
for n in 5, 8:
    table(f"norm batch, {n} x 20 x 33", lambda x: F.batch_norm(x, None, None, training=True), floats((n, 20, 33, 33)))
    table(f"norm group, {n} x 24 x 33", lambda x: F.group_norm(x, 4), floats((n, 24, 33, 33)))
    table(f"norm instance, {n} x 20 x 33", F.instance_norm, floats((n, 20, 33, 33)))
table("norm layer 1000 x 100", lambda x: F.layer_norm(x, (100,)), floats((1000, 100)))
table("norm layer 300 x 768", lambda x: F.layer_norm(x, (768,)), floats((300, 768)))
