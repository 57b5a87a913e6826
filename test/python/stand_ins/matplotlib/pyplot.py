"""Axes in a grid, each with a picture and a title; savefig() writes the pictures side by side, titles left out."""

import numpy as np
from PIL import Image

CELL = 64


class Axes:
    def __init__(self):
        self.picture = None
        self.title = ""

    def set_title(self, text):
        self.title = str(text)

    def imshow(self, image):
        pixels = np.asarray(image)
        if pixels.ndim == 2 and pixels.dtype != np.uint8:    # as matplotlib: from the least to the most
            low, high = float(pixels.min()), float(pixels.max())
            pixels = np.uint8(255 * (pixels - low) / max(high - low, 1e-9))
        self.picture = Image.fromarray(pixels).convert("RGB")


class Figure:
    def __init__(self):
        self.rows = self.columns = 1
        self.axes = {}
        self.current = None

    def subplot(self, rows, columns, index):
        if not 1 <= index <= rows * columns:
            raise ValueError(f"there is no subplot {index} of {rows} x {columns}")
        self.rows, self.columns = rows, columns
        self.current = self.axes.setdefault(index, Axes())
        return self.current

    def savefig(self, path):
        sheet = Image.new("RGB", (CELL * self.columns, CELL * self.rows), "white")
        for index, axes in self.axes.items():
            if axes.picture is not None:
                row, column = divmod(index - 1, self.columns)
                sheet.paste(axes.picture.resize((CELL, CELL)), (CELL * column, CELL * row))
        sheet.save(path)


_figure = Figure()


def figure(figsize=None):
    global _figure
    _figure = Figure()
    return _figure


def subplot(rows, columns, index):
    return _figure.subplot(rows, columns, index)


def subplots(rows=1, columns=1):
    made = figure()
    axes = [made.subplot(rows, columns, i + 1) for i in range(rows * columns)]
    return made, np.array(axes, dtype=object).reshape(rows, columns).squeeze()


def imshow(image):
    (_figure.current or subplot(1, 1, 1)).imshow(image)


def savefig(path):
    _figure.savefig(path)
