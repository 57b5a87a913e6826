"""What people look at, through the public calls: Pillow reads the plots, an independent reader the events."""

import ctypes as C
import csv
import importlib.util
import math
import struct

import numpy as np
import pytest
from PIL import Image

FASHION = ["T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
F32, U8 = 0, 5
WHITE = (255, 255, 255)


class Picture(C.Structure):
    _fields_ = [("data", C.c_void_p), ("dtype", C.c_int), ("channels", C.c_int), ("height", C.c_int),
                ("width", C.c_int), ("planar", C.c_bool), ("lo", C.c_float), ("hi", C.c_float)]


class Series(C.Structure):
    _fields_ = [("name", C.c_char_p), ("x", C.c_void_p), ("y", C.c_void_p), ("n", C.c_int64),
                ("right", C.c_bool), ("smoothing", C.c_double)]


class Curves(C.Structure):
    _fields_ = [("title", C.c_char_p), ("x_label", C.c_char_p), ("y_label", C.c_char_p),
                ("right_label", C.c_char_p), ("series", C.POINTER(Series)), ("nseries", C.c_int),
                ("linear", C.c_bool)]


class Prediction(C.Structure):
    _fields_ = [("title", C.c_char_p), ("original", Picture), ("input", Picture),
                ("classes", C.c_void_p), ("scores", C.c_void_p), ("n", C.c_int)]


class Show:
    """The section "seeing" of tessera.h."""

    def __init__(self, library):
        self.c = C.CDLL(str(library))
        self.c.ts_error_text.restype = C.c_char_p
        self.kept = []    # what a structure points to

    def check(self, status):
        if status:
            raise RuntimeError(self.c.ts_error_text().decode())

    def keep(self, x):
        self.kept.append(x)
        return x

    def names(self, words):
        return self.keep((C.c_char_p * len(words))(*[w.encode() for w in words]))

    def picture(self, a, planar=False, lo=0, hi=0):
        a = self.keep(np.ascontiguousarray(a))
        shape = a.shape if a.ndim == 3 else (1, *a.shape) if planar else (*a.shape, 1)
        k, h, w = shape if planar else (shape[2], shape[0], shape[1])
        return Picture(a.ctypes.data, {"uint8": U8, "float32": F32}[a.dtype.name], k, h, w, planar, lo, hi)

    def samples(self, path, title, pictures, labels):
        n = len(pictures)
        self.check(self.c.ts_plot_samples(str(path).encode(), title.encode(), (Picture * n)(*pictures),
                                          self.names(labels) if labels else None, n))

    def confusion(self, path, counts, classes, title=None):
        counts = np.ascontiguousarray(counts, np.int64)
        self.check(self.c.ts_plot_confusion(str(path).encode(), title, counts.ctypes.data_as(C.c_void_p),
                                            self.names(classes), len(classes)))

    def series(self, name, y, x=None, right=False, smoothing=0.0):
        y = self.keep(np.ascontiguousarray(y, np.float64))
        x = None if x is None else self.keep(np.ascontiguousarray(x, np.float64))
        return Series(name.encode(), None if x is None else x.ctypes.data, y.ctypes.data, len(y), right, smoothing)

    def curves(self, path, series, title="", x="epoch", y="loss", right=None, linear=False):
        c = Curves(title.encode(), x.encode(), y.encode(), right and right.encode(),
                   (Series * max(1, len(series)))(*series), len(series), linear)
        self.check(self.c.ts_plot_curves(str(path).encode(), C.byref(c)))

    def image(self, path, original, seen, classes, scores, title=None):
        scores = self.keep(np.ascontiguousarray(scores, np.float32))
        p = Prediction(title, original or Picture(), seen or Picture(), C.addressof(self.names(classes)),
                       scores.ctypes.data, len(classes))
        self.check(self.c.ts_plot_image(str(path).encode(), C.byref(p)))


@pytest.fixture
def show(build_dir):
    return Show(build_dir / "libtessera.so")


def read(path):
    """The picture, after checking what all have in common: opaque RGB, something on it, nothing at its border."""
    a = np.asarray(Image.open(path))
    assert a.ndim == 3 and a.shape[2] == 3 and a.dtype == np.uint8
    assert (a != 255).any()
    for edge in (a[:20], a[-20:], a[:, :20], a[:, -20:]):
        assert (edge == 255).all(), "something is drawn in the margin"
    return a


def count(a, colour):
    return int((a == np.array(colour)).all(-1).sum())
