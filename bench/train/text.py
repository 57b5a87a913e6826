"""A character model as `tessera train FILE.txt` does it, written in PyTorch: the net of `tessera models gpt`, the same windows.

    python3 text.py FILE EPOCHS SEED [LIMIT]     prints seconds and the loss on the last tenth
"""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WINDOW, WIDE, HEADS, BLOCKS, DROPOUT = 64, 128, 4, 4, 0.1


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDE), nn.LayerNorm(WIDE)
        self.attention = nn.MultiheadAttention(WIDE, HEADS, batch_first=True)
        self.fc1, self.fc2 = nn.Linear(WIDE, 4 * WIDE), nn.Linear(4 * WIDE, WIDE)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x, hidden):
        y = self.norm1(x)
        x = x + self.dropout(self.attention(y, y, y, attn_mask=hidden, need_weights=False)[0])
        return x + self.dropout(self.fc2(F.gelu(self.fc1(self.norm2(x)))))


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.tokens = nn.Embedding(classes, WIDE)
        self.places = nn.Parameter(0.02 * torch.randn(WINDOW, WIDE))
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm, self.head = nn.LayerNorm(WIDE), nn.Linear(WIDE, classes, bias=False)
        self.register_buffer("hidden", torch.ones(WINDOW, WINDOW).triu(1).bool())

    def forward(self, x):
        x = self.tokens(x) + self.places
        for block in self.blocks:
            x = block(x, self.hidden)
        return self.head(self.norm(x)).transpose(1, 2)


def main(path, epochs, seed, limit=None, batch=32):
    torch.manual_seed(seed)
    text = open(path, encoding="utf-8").read()
    index = {c: i for i, c in enumerate(sorted(set(text)))}
    ids = torch.tensor([index[c] for c in text])
    windows = (len(ids) - 1) // WINDOW
    x, y = ids[:windows * WINDOW].view(-1, WINDOW), ids[1:windows * WINDOW + 1].view(-1, WINDOW)
    test = windows // 10
    train, held = (x[:-test][:limit], y[:-test][:limit]), (x[-test:][:limit], y[-test:][:limit])
    net = Net(len(index))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.001)
    steps = len(train[0]) // batch
    start = time.time()
    for _ in range(epochs):
        for rows in torch.randperm(len(train[0]))[:steps * batch].view(steps, batch):
            loss = F.cross_entropy(net(train[0][rows]), train[1][rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    seconds = time.time() - start
    net.eval()
    with torch.no_grad():
        losses = [F.cross_entropy(net(a), b, reduction="sum").item() for a, b in zip(held[0].split(64), held[1].split(64))]
    print(f"{seconds:.1f} {sum(losses) / held[1].numel():.4f}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
