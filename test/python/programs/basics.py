"""A first program: a classifier whose loss is part of the model, a loader, training, validation, weights in a file."""

import os
import tempfile

import torch
import torch.nn as nn

import poptorch


class Digits(torch.utils.data.Dataset):
    """A bar in one of four places."""

    def __len__(self):
        return 64

    def __getitem__(self, i):
        picture = torch.full((1, 8, 8), 0.1)
        picture[0, :, 2 * (i % 4)] = 1
        return picture, i % 4


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, labels=None):
        x = self.head(self.features(x))
        return (x, self.loss(x, labels)) if self.training else x


def main():
    torch.manual_seed(0)
    model = Classifier().train()
    opts = poptorch.Options().deviceIterations(4)
    loader = poptorch.DataLoader(opts, Digits(), batch_size=4, shuffle=True, drop_last=True)
    trainer = poptorch.trainingModel(model, options=opts, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    losses = []
    for _ in range(6):
        for pictures, labels in loader:
            _, loss = trainer(pictures, labels)
            losses.append(loss.mean().item())
    trainer.detachFromDevice()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.pth")
        torch.save(model.state_dict(), path)
        restored = Classifier()
        restored.load_state_dict(torch.load(path))
    runner = poptorch.inferenceModel(restored.eval(), poptorch.Options())
    right = sum((runner(x).argmax(1) == y).sum().item() for x, y in poptorch.DataLoader(poptorch.Options(), Digits(), batch_size=8))
    return losses, right / len(Digits())
