"""The metrics that the tutorials ask for."""

import numpy as np
from matplotlib.pyplot import Figure


def _ints(values):
    return np.array([int(v) for v in values])


def accuracy_score(y_true, y_pred):
    a, b = _ints(y_true), _ints(y_pred)
    if a.shape != b.shape:
        raise ValueError(f"{len(a)} labels and {len(b)} predictions")
    return float((a == b).mean())


def confusion_matrix(y_true, y_pred):
    a, b = _ints(y_true), _ints(y_pred)
    n = int(max(a.max(), b.max())) + 1
    counts = np.zeros((n, n), dtype=np.int64)
    np.add.at(counts, (a, b), 1)
    return counts


class ConfusionMatrixDisplay:
    def __init__(self, confusion_matrix, display_labels=None):
        if display_labels is not None and len(display_labels) != len(confusion_matrix):
            raise ValueError(f"{len(display_labels)} names for {len(confusion_matrix)} classes")
        self.confusion_matrix = confusion_matrix

    def plot(self, xticks_rotation="horizontal"):
        self.figure_ = Figure()
        self.figure_.subplot(1, 1, 1).imshow(self.confusion_matrix)
        return self
