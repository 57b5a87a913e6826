"""The public headers compile without a warning, each alone, as strict C and as C++, with the program that the README
shows."""

import re
import subprocess

import api
import pytest

# Every macro that takes sizes or options: with none, with one, with several.
MACROS = """
#include <tessera.h>
ts_value *net(ts_graph *g, ts_value *t, const float *data);
ts_value *net(ts_graph *g, ts_value *t, const float *data)
{
    int64_t n = 2;
    ts_value *x = ts_input(g, "x", TS_F32, n, 3, 8, 8);
    ts_init one = {TS_INIT_FULL, 1, 0};
    x = ts_add(x, ts_add(ts_const(g, TS_F32, data, 1), ts_full(g, TS_F32, 1, 1)));
    x = ts_add(x, ts_mul(ts_rand(g, TS_F32, 2, 1, 1, 1), ts_randn(g, TS_F32, 1)));
    x = ts_add(x, ts_add(ts_param(g, "p", TS_F32, one, 1), ts_buffer(g, "q", TS_F32, one, 1)));
    x = ts_expand(ts_permute(ts_reshape(x, 2, -1), 1, 0), 3, 4);
    x = ts_conv3d(ts_conv1d(x, "a", 4, 3), "b", 4, 3);
    x = ts_max_pool2d(ts_avg_pool2d(ts_conv_transpose2d(ts_conv2d(x, "c", 4, 3), "d", 4, 2), 2), 2);
    x = ts_batch_norm(ts_layer_norm(ts_group_norm(x, "n", 2), "m"), "k");
    x = ts_add(ts_nll_loss(x, t), ts_cross_entropy(x, t));
    x = ts_add(ts_mse_loss(x, t), ts_add(ts_l1_loss(x, t), ts_smooth_l1_loss(x, t)));
    return ts_add(ts_add(ts_bce_loss(x, t), ts_bce_with_logits(x, t)), ts_kl_div(x, t));
}
"""
OPTIONS = """
#include <tessera.h>
ts_value *net(ts_value *x, ts_value *t);
ts_value *net(ts_value *x, ts_value *t)
{
    x = ts_conv2d(x, "a", 4, 3, .stride = 2, .padding = 1, .no_bias = true);
    x = ts_max_pool2d(ts_conv_transpose2d(x, "b", 4, 2, .stride = 2), 2, .ceil_mode = true);
    x = ts_batch_norm(ts_group_norm(x, "n", 2, .no_affine = true), "m", .eps = 1e-6);
    return ts_add(ts_cross_entropy(x, t, .label_smoothing = 0.1), ts_mse_loss(x, t, .reduction = TS_REDUCTION_SUM));
}
"""


def program_of_the_readme(root):
    return re.search(r"```c\n(.*?)```", (root / "README.md").read_text(), re.S)[1].replace(
        "void train(", "void train(int64_t n, const float *images, const int *labels);\nvoid train(", 1)


def compile_text(root, text, compiler, language, *flags):
    done = subprocess.run(
        [compiler, "-x", language, *flags, "-Wall", *(f"-I{d}" for d in api.folders(root)), "-fsyntax-only", "-"],
        input=text, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_strict_c(root, compiler):
    alone = [f"#include <{h}>\n#include <{h}>\n" for h in api.headers(root)]
    for text in (MACROS, OPTIONS, program_of_the_readme(root), *alone):
        compile_text(root, text, compiler, "c", "-std=c11", "-Wextra", "-pedantic")


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_cpp(root, compiler):
    alone = [f"#include <{h}>\n" for h in api.headers(root)]
    for text in (MACROS, "".join(alone), *alone):
        compile_text(root, text, compiler, "c++", "-std=c++11", "-Wextra", "-pedantic")
    compile_text(root, OPTIONS, compiler, "c++", "-std=c++20", "-pedantic")
