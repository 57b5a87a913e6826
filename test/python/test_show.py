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
    """tessera/show.h."""

    def __init__(self, library):
        self.c = C.CDLL(str(library))
        self.c.ts_error_text.restype = C.c_char_p
        self.kept = []    # what a structure points to

    def check(self, status):
        text = self.c.ts_error_text().decode() if status else ""
        if "has no cairo" in text:
            pytest.skip("this build has no cairo library")
        assert not status, text

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
        self.check(self.c.ts_plot_curves_sized(str(path).encode(), C.byref(c), C.sizeof(c)))

    def image(self, path, original, seen, classes, scores, title=None):
        scores = self.keep(np.ascontiguousarray(scores, np.float32))
        p = Prediction(title, original or Picture(), seen or Picture(), C.addressof(self.names(classes)),
                       scores.ctypes.data, len(classes))
        self.check(self.c.ts_plot_image_sized(str(path).encode(), C.byref(p), C.sizeof(p)))


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


def mistaken(n, each=100):
    """A confusion matrix where class i is right 90 times in 100 and else taken for the next."""
    m = np.zeros((n, n), np.int64)
    for i in range(n):
        m[i, i] += each * 9 // 10
        m[i, (i + 1) % n] += each - each * 9 // 10
    return m


def test_samples_show_their_pixels(show, tmp_path):
    gray = np.arange(28 * 28, dtype=np.uint32).reshape(28, 28) % 256
    red = np.zeros((3, 8, 8), np.float32) - 1
    red[0] = 1
    show.samples(tmp_path / "s.png", "Two samples", [show.picture(gray.astype(np.uint8)),
                                                    show.picture(red, planar=True, lo=-1, hi=1)], ["one", "two"])
    a = read(tmp_path / "s.png")
    rows, columns = np.nonzero((a == (255, 0, 0)).all(-1))
    assert len(rows) == 192 * 192    # 96 points at two pixels, enlarged without a blur
    assert np.ptp(rows) == np.ptp(columns) == 191
    top, left = rows.min(), columns.min() - 2 * (96 + 16)
    for y, x in ((0, 0), (3, 27), (14, 14), (27, 5)):
        at = a[top + int((y + 0.5) * 192 / 28), left + int((x + 0.5) * 192 / 28)]
        assert tuple(at) == (gray[y, x],) * 3


def test_samples_of_other_shapes(show, tmp_path):
    rng = np.random.default_rng(0)
    wide = rng.integers(0, 255, (5, 40, 3), np.uint8)
    odd = np.array([[np.nan, np.inf], [-np.inf, 0.5]], np.float32)
    show.samples(tmp_path / "s.png", "Größe: 鞋", [show.picture(wide), show.picture(odd)] * 9, None)
    a = read(tmp_path / "s.png")
    assert count(a, (128, 128, 128)) >= 9 * 96 * 96
    assert a.shape[1] == 2 * (6 * 96 + 5 * 16 + 28)


@pytest.mark.parametrize("n", [1, 2, 10, 40, 100, 300])
def test_confusion_has_a_cell_for_each_pair(show, tmp_path, n):
    show.confusion(tmp_path / "c.png", mistaken(n), [f"class {i} of {n}, with a long name" for i in range(n)])
    a = read(tmp_path / "c.png")
    cell = 2 * (max(8, min(60, 560 // n)) if n <= 250 else 6)
    # All diagonal cells have one colour: that of 90 %, or of 100 % where there is no other class.
    dark = (0x0b, 0x35, 0x66) if n == 1 else (0x14, 0x46, 0x79)
    a = a[:, :a.shape[1] - 188]    # without the colour bar
    rows, columns = np.nonzero((a == dark).all(-1))
    assert np.ptp(rows) == pytest.approx(n * cell, abs=3)
    assert np.ptp(columns) == pytest.approx(n * cell, abs=3)


def test_confusion_cells_are_where_they_belong(show, tmp_path):
    m = np.zeros((4, 4), np.int64)
    m[0, 3], m[1, 1], m[2, 0], m[3, 2] = 7, 7, 7, 7
    show.confusion(tmp_path / "c.png", m, ["a", "b", "c", "d"], b"Title")
    a = read(tmp_path / "c.png")
    full = (0x0b, 0x35, 0x66)
    rows, columns = np.nonzero((a == full).all(-1))
    wide = np.ptp(columns) + 1 > 450    # the colour bar is beside the cells: leave it out
    inside = columns < columns.min() + 480
    assert wide
    top, left = rows[inside].min(), columns[inside].min()
    for i in range(4):
        for j in range(4):
            corner = tuple(a[top + 120 * i + 8, left + 120 * j + 8])
            assert corner == (full if m[i, j] else WHITE)


def test_curves_go_through_their_points(show, tmp_path):
    show.curves(tmp_path / "c.png", [show.series("loss", [1, 0.5, 0.25, 0.2, 0.15]),
                                     show.series("accuracy", [0.5, 0.6, 0.7, 0.8, 0.9], right=True)],
                "Training", right="accuracy")
    a = read(tmp_path / "c.png")
    for colour, rising in (((0x00, 0x72, 0xb2), False), ((0xd5, 0x5e, 0x00), True)):
        rows, columns = np.nonzero((a[100:] == colour).all(-1))    # below the legend
        first, last = rows[columns < columns.min() + 8].mean(), rows[columns > columns.max() - 8].mean()
        assert (last < first) == rising
        assert np.ptp(columns) == pytest.approx(1280 / 1.08 + 12, abs=4)    # 4 % of room at both ends
        assert np.ptp(rows) == pytest.approx(720 / 1.08 + 12, abs=4)


def test_gaps_are_gaps(show, tmp_path):
    y = np.ones(100)
    y[40:60] = np.nan
    show.curves(tmp_path / "c.png", [show.series("", y)])
    a = read(tmp_path / "c.png")[100:]
    columns = np.nonzero((a == (0x00, 0x72, 0xb2)).all(-1).any(0))[0]
    widest = np.diff(columns).max()
    assert widest == pytest.approx(21 / 99 * 1280 / 1.08, abs=6)


def test_spikes_of_long_series_are_kept(show, tmp_path):
    y = np.zeros(1_000_000)
    y[777_777] = 1
    show.curves(tmp_path / "c.png", [show.series("spike", y)])
    a = read(tmp_path / "c.png")[100:]
    rows = np.nonzero((a == (0x00, 0x72, 0xb2)).all(-1).any(1))[0]
    assert np.ptp(rows) > 600


def test_many_decades_are_logarithmic(show, tmp_path):
    """Exponential decay is a straight line on a log scale, and hugs the axis on a linear one."""
    y = 10.0 ** np.linspace(2, -4, 200)
    middle = {}
    for linear in (False, True):
        show.curves(tmp_path / "c.png", [show.series("x", y)], linear=linear)
        a = read(tmp_path / "c.png")[100:]
        rows, columns = np.nonzero((a == (0x00, 0x72, 0xb2)).all(-1))
        columns -= columns.min()
        middle[linear] = (rows[abs(columns - np.ptp(columns) / 2) < 4].mean() - rows.min()) / np.ptp(rows)
    assert middle[False] == pytest.approx(0.5, abs=0.02)
    assert middle[True] > 0.95


@pytest.mark.parametrize("series", [
    [], [[]], [[math.nan] * 3], [[0.4]], [[0, 0, 0]], [[1e300, -1e300]], [[math.inf, 1, -math.inf]], [[5e-324, 1e-310]],
    [[1e15, 1e15 + 1]], [[1], []], [list(range(50))] * 12])
@pytest.mark.parametrize("smoothing", [0.0, 0.9])
def test_odd_series_are_drawn(show, tmp_path, series, smoothing):
    show.curves(tmp_path / "c.png", [show.series(f"series {i} with a name", y, right=i % 2 == 1, smoothing=smoothing)
                                     for i, y in enumerate(series)], "Odd", right="right")
    a = read(tmp_path / "c.png")
    assert 1280 < a.shape[1] < 2000


def test_prediction(show, tmp_path):
    photo = np.zeros((48, 64, 3), np.uint8)
    photo[..., 1] = 200
    seen = np.full((1, 28, 28), 0.5, np.float32)
    scores = np.array([0.05] * 9 + [0.55])
    show.image(tmp_path / "p.png", show.picture(photo), show.picture(seen, planar=True), FASHION, scores)
    a = read(tmp_path / "p.png")
    assert count(a, (0, 200, 0)) == 480 * 360
    assert count(a, (128, 128, 128)) >= 480 * 480
    best = np.nonzero((a == (0x00, 0x72, 0xb2)).all(-1).any(0))[0]
    other = np.nonzero((a == (0x8f, 0xb8, 0xd4)).all(-1).any(0))[0]
    assert len(best) == pytest.approx(0.55 * 440, abs=3)
    assert len(other) == pytest.approx(0.05 * 440, abs=3)


def test_predictions_that_are_no_shares(show, tmp_path):
    for scores in ([-3.0, -1.0, 2.0], [math.nan, math.inf, -math.inf], [0, 0, 0], [-1, -2, -3]):
        show.image(tmp_path / "p.png", None, None, ["a", "b", "c"], scores)
        read(tmp_path / "p.png")


def test_names_of_any_kind(show, tmp_path):
    show.c.ts_plot_confusion(str(tmp_path / "c.png").encode(), b"\xff\xfe bad\n\tbytes \xc3",
                             (C.c_int64 * 4)(1, 2, 3, 4), (C.c_char_p * 2)(b"x" * 5000, b"\xf0\x9f\x91\x9f \x80"), 2)
    read(tmp_path / "c.png")


# Events: an independent reader of the format.


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def records(data):
    at = 0
    while at < len(data):
        length, crc = struct.unpack_from("<QI", data, at)
        assert crc == masked(data[at:at + 8])
        body = data[at + 12:at + 12 + length]
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked(body)
        yield body
        at += length + 16
    assert at == len(data)


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """{number: [values]} of a protobuf message; messages and strings stay bytes."""
    out, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
            value -= (value >> 63) << 64
        elif key & 7 == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif key & 7 == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            assert key & 7 == 2
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            assert len(value) == size
        out.setdefault(key >> 3, []).append(value)
    return out


SCALARS = [("train/loss", 0, 2.303), ("train/loss", 1, -1.5e-30), ("train/loss", 1 << 40, math.inf),
           ("acc", -1, math.nan), ("größe", 2, 0.0)]


@pytest.fixture
def log(show, tmp_path):
    """A folder with one event file of every kind of event."""
    png = tmp_path / "c.png"
    show.confusion(png, mistaken(3), ["a", "b", "c"])
    e = C.c_void_p()
    folder = tmp_path / "runs" / "one"
    show.check(show.c.ts_events_open(str(folder).encode(), C.byref(e)))
    for tag, step, value in SCALARS:
        show.check(show.c.ts_events_scalar(e, tag.encode(), C.c_int64(step), C.c_double(value)))
    show.check(show.c.ts_events_scalar(e, b"//a tag: 100%\xff", C.c_int64(3), C.c_double(1)))
    data = png.read_bytes()
    show.check(show.c.ts_events_image(e, b"confusion", C.c_int64(7), data, C.c_size_t(len(data))))
    show.check(show.c.ts_events_text(e, b"options", C.c_int64(0), "lr 0.1\nbatch 16, größer".encode()))
    show.check(show.c.ts_events_close(e))
    return folder, data


def test_events_are_read_back(log):
    folder, png = log
    (path,) = folder.iterdir()
    assert path.name.startswith("events.out.tfevents.")
    assert path.name.split(".")[3].isdigit() and path.name.split(".")[-1].isdigit()
    events = [fields(r) for r in records(path.read_bytes())]
    assert events[0][3] == [b"brain.Event:2"] and 5 not in events[0]
    assert all(1.6e9 < e[1][0] < 1e11 for e in events)
    values = [(e[2][0], fields(fields(e[5][0])[1][0])) for e in events[1:]]
    for (step, v), (tag, want, number) in zip(values, SCALARS):
        assert (step, v[1][0].decode()) == (want, tag)
        assert v[2][0] == pytest.approx(np.float32(number), nan_ok=True)
    assert values[5][1][1] == [b"//a tag: 100%?"]    # only what is no UTF-8 is replaced
    step, image = values[6]
    image = fields(image[4][0])
    size = Image.open(folder.parent.parent / "c.png").size
    assert step == 7 and (image[2][0], image[1][0], image[3][0]) == (*size, 3) and image[4] == [png]
    step, text = values[7]
    assert text[1] == [b"options/text_summary"]
    assert fields(fields(text[9][0])[1][0])[1] == [b"text"]
    assert fields(text[8][0])[8][0].decode() == "lr 0.1\nbatch 16, größer"


@pytest.mark.skipif(not importlib.util.find_spec("tensorboard"), reason="there is no tensorboard module")
def test_events_are_read_by_tensorboard(log):
    from tensorboard.backend.event_processing import event_accumulator

    folder, png = log
    acc = event_accumulator.EventAccumulator(str(folder))
    acc.Reload()
    tags = acc.Tags()
    assert sorted(tags["scalars"] + tags["tensors"]) and "confusion" in tags["images"]
    losses = [(s.step, s.value) for s in acc.Scalars("train/loss")]
    assert losses == [(step, np.float32(v)) for tag, step, v in SCALARS if tag == "train/loss"]
    assert acc.Images("confusion")[0].encoded_image_string == png
    assert "options/text_summary" in tags["tensors"]


def test_csv_is_read_back(show, tmp_path):
    path = tmp_path / "log.csv"
    names = ["step", "a, b", 'with "quotes"', "line\nbreak"]

    def add(resume, rows):
        c = C.c_void_p()
        show.check(show.c.ts_csv_open(str(path).encode(), show.names(names), len(names), C.c_bool(resume), C.byref(c)))
        for row in rows:
            show.check(show.c.ts_csv_numbers(c, (C.c_double * len(names))(*row)))
        show.c.ts_csv_close(c)

    numbers = [[1, 0.1, 1 / 3, math.nan], [1e15, -5e-324, 1.7976931348623157e308, math.inf]]
    add(True, numbers)
    path.write_bytes(path.read_bytes() + b"3,0.25,cut sho")    # a crash
    add(True, [[4, 0, 0, 0]])
    rows = list(csv.reader(path.open(newline="")))
    assert rows[0] == names
    assert [[float(x or "nan") for x in row] for row in rows[1:3]] == [pytest.approx(r, nan_ok=True, rel=0, abs=0)
                                                                      for r in numbers]
    assert rows[3:] == [["4", "0", "0", "0"]]
    add(False, [])
    assert list(csv.reader(path.open(newline=""))) == [names]
