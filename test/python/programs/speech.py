"""Recognition of speech: convolutions and a GRU over frames, CTC, and a search for the best labels on the device."""

import torch
import torch.nn as nn

import poptorch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.rnn, self.out = nn.Conv1d(4, 8, 3, padding=1), nn.GRU(8, 8, batch_first=True, bidirectional=True), nn.Linear(16, 5)
        self.loss = nn.CTCLoss(reduction="mean", zero_infinity=True)

    def forward(self, x, lengths, targets=None, target_lengths=None):
        x, _ = self.rnn(self.conv(x).relu().transpose(1, 2))
        logs = self.out(x).log_softmax(-1).transpose(0, 1)
        if targets is None:
            return poptorch.ctc_beam_search_decoder(logs, lengths, beam_width=4, top_paths=1)
        return self.loss(logs, targets, lengths, target_lengths)


def main():
    torch.manual_seed(0)
    targets = torch.randint(1, 5, (4, 3), dtype=torch.int32)
    targets[:, 1] = targets[:, 0] % 4 + 1
    targets[:, 2] = targets[:, 1] % 4 + 1
    frames = torch.zeros(4, 4, 9)
    for i in range(4):
        for j, t in enumerate(targets[i]):
            frames[i, t - 1, 3 * j:3 * j + 2] = 1
    lengths, target_lengths = torch.full((4,), 9, dtype=torch.int32), torch.full((4,), 3, dtype=torch.int32)
    model = Net()
    trainer = poptorch.trainingModel(model, poptorch.Options(), poptorch.optim.Adam(model.parameters(), lr=0.03))
    losses = [trainer(frames, lengths, targets, target_lengths).item() for _ in range(60)]
    trainer.detachFromDevice()
    _, found_lengths, paths = poptorch.inferenceModel(model.eval())(frames, lengths)
    found = [paths[i, 0, :found_lengths[i, 0]].tolist() for i in range(4)]
    return losses, {"right": sum(a == b for a, b in zip(found, targets.tolist()))}
