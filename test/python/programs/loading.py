"""What the tutorial on loading data does: loaders in all modes, iterable data, an accessor of one's own, remainders."""

import torch
import torch.nn as nn

import poptorch


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, i):
        return torch.full((2,), float(i)), torch.tensor(i)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (info.id, info.num_workers) if info is not None else (0, 1)
        return iter(torch.full((2,), float(i)) for i in range(first, 16, step))


class Doubled(nn.Module):
    def forward(self, x):
        return x * 2


def seed(worker):
    torch.manual_seed(worker)


def main():
    opts = poptorch.Options().deviceIterations(2)
    model = poptorch.inferenceModel(Doubled(), opts)
    seen = {}
    for mode in (poptorch.DataLoaderMode.Sync, poptorch.DataLoaderMode.Async, poptorch.DataLoaderMode.AsyncRebatched):
        loader = poptorch.DataLoader(opts, Numbers(), batch_size=2, num_workers=2, worker_init_fn=seed, mode=mode, drop_last=True,
                                     async_options={"early_preload": True} if mode != poptorch.DataLoaderMode.Sync else None)
        seen[mode.name] = sorted(int(v) for x, _ in loader for v in model(x)[:, 0])
        if mode != poptorch.DataLoaderMode.Sync:
            loader.terminate()
    loader = poptorch.DataLoader(opts, Stream(), batch_size=2, num_workers=2)
    seen["stream"] = sorted(int(v) for x in loader for v in model(x)[:, 0])
    plain = torch.utils.data.DataLoader(Numbers(), batch_size=4)
    accessor = poptorch.AsynchronousDataAccessor(plain, buffer_size=2)
    seen["accessor"] = sorted(int(v) for x, _ in accessor for v in model(x)[:, 0])
    accessor.terminate()
    return [float(len(v)) for v in seen.values()], seen
