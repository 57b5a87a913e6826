"""Tables and text, as people have them, through the command line."""

import importlib.util
import json
import os
import shutil
import subprocess

import numpy as np
import pytest

from command_helpers import (    # noqa: F401 (tessera is a fixture)
    FAILED, SMALL, SMALL_GPT, USAGE, events, houses, lines, photos, story, table, tessera)


# --- tables: numbers and words, one or several things to learn


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_regression_on_a_table(tessera, tmp_path, separator):
    *_, price = houses(tmp_path / "houses.csv", separator=separator)
    args = ["train", "houses.csv", "--label", "price", "--drop", "name", "--model", "mlp.txt", "--epochs", 40, "--lr", 0.006]
    tessera(*args, code=FAILED)
    assert "line 2: '' in column 0 (area) is not a number" in tessera.err
    out = tessera(*args, "--missing", "mean", "--validate", 0.2, "--json")
    start, end = *events(out, "start"), *events(out, "end")
    assert start["task"] == "numbers" and end["rmse"] < 0.15 * price.std() and end["r2"] > 0.95
    assert (tmp_path / "mlp-plots/predicted.png").exists() and (tmp_path / "mlp-plots/curves.png").exists()
    score = json.loads(tessera("eval", "mlp.pth", "--json"))
    assert score["task"] == "numbers" and score["r2"] > 0.95 and (tmp_path / "predicted.png").exists()
    facts = tessera("inspect", "mlp.pth")
    assert "tessera.classes                          price" in facts and "loss mse" in facts
    rows = (tmp_path / "houses.csv").read_text().splitlines()
    shuffled = [separator.join(reversed(r.split(separator))) for r in rows]  # columns are known by their names
    if separator != ";":
        (tmp_path / "other.csv").write_text("\n".join(shuffled) + "\n")
        assert json.loads(tessera("eval", "mlp.pth", "--data", "other.csv", "--json", "--no-plots"))["rmse"] == score["rmse"]
    (tmp_path / "new.csv").write_text("\n".join([rows[0], rows[2].replace("green", "pink").replace("blue", "pink")
                                                 .replace("red, dark", "pink")]) + "\n")
    tessera("eval", "mlp.pth", "--data", "new.csv", code=FAILED)
    assert "'pink' is no word of column 'colour'" in tessera.err


@pytest.mark.compiled
def test_the_metrics_are_the_usual_ones(tessera, tmp_path):
    """RMSE, mean error and R2, F1 and AUC of what the net gives, computed again here."""
    torch = pytest.importorskip("torch")
    r = np.random.RandomState(0)
    x = r.randn(200, 3).astype("f4")
    y = np.column_stack([x[:, 0] + 0.5 * r.randn(200), x[:, 1] * 100]).astype("f4")
    np.savez(tmp_path / "n.npz", x=x, y=y)
    np.savez(tmp_path / "l.npz", x=x, y=(y > 0).astype("f4"))
    (tmp_path / "net.txt").write_text("input 3\nclasses 2\nf: linear classes\nloss mse\n")

    def outputs(file):
        w = torch.load(tmp_path / file)
        return (torch.tensor(x) @ w["f.weight"].T + w["f.bias"]).numpy()
    tessera("train", "n.npz", "--model", "net.txt", "--epochs", 3, "--lr", 0.05, "--no-plots")
    got = json.loads(tessera("eval", "net.pth", "--json", "--no-plots"))
    p = outputs("net.pth") * y.std(0) + y.mean(0)
    assert got["rmse"] == pytest.approx(np.sqrt(((p - y) ** 2).mean()), rel=1e-4)
    assert got["mae"] == pytest.approx(abs(p - y).mean(), rel=1e-4)
    assert got["r2"] == pytest.approx((1 - ((p - y) ** 2).sum(0) / ((y - y.mean(0)) ** 2).sum(0)).mean(), rel=1e-4)
    tessera("train", "l.npz", "--model", "net.txt", "--loss", "bce_with_logits", "--epochs", 2, "--lr", 0.05, "--no-plots",
            "--output", "l.pth")
    got = json.loads(tessera("eval", "l.pth", "--json", "--no-plots"))
    s, t = outputs("l.pth"), y > 0
    f1 = [2 * ((s[:, i] > 0) & t[:, i]).sum() / ((s[:, i] > 0).sum() + t[:, i].sum()) for i in (0, 1)]
    auc = [(s[t[:, i], i][:, None] > s[~t[:, i], i][None]).mean() for i in (0, 1)]
    assert got["task"] == "labels" and got["f1"] == pytest.approx(np.mean(f1)) and got["auc"] == pytest.approx(np.mean(auc))
    assert got["accuracy"] == pytest.approx(((s > 0) == t).mean())


def test_several_labels_of_a_table(tessera, tmp_path):
    r = np.random.RandomState(0)
    x = r.randn(300, 2)
    rows = ["x,y,big,up,both"] + [f"{a:.3f},{b:.3f},{int(a > 0)},{int(b > 0)},{int(a > 0 and b > 0)}" for a, b in x]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    end, = events(tessera("train", "t.csv", "--label", "big,up,both", "--model", "mlp.txt", "--lr", 0.005, "--epochs", 25, "--no-plots", "--json"), "end")
    assert end["accuracy"] > 0.95 and end["f1"] > 0.9 and end["auc"] > 0.98
    end, = events(tessera("train", "t.csv", "--label", "both", "--drop", "big,up", "--model", "mlp.txt", "--lr", 0.005, "--epochs", 15,
                          "--no-plots", "--json", "--output", "c.pth"), "end")
    assert end["accuracy"] > 0.9  # one column of 0 and 1 is two classes
    end, = events(tessera("train", "t.csv", "--label", "both", "--drop", "big,up", "--model", "mlp.txt", "--task", "numbers", "--no-plots", "--json",
                          "--output", "n.pth"), "end")
    assert "rmse" in end


# --- tables as people have them


SICK = {    # what a table has, and what is said of it
    "a label is missing": ("a,b\n1,x\n2,\n3,y\n", "line 3: the label is missing"),
    "a decimal comma": ("a;b\n1,5;x\n2,5;y\n", "line 2: '1,5' in column 0 (a) is not a number"),
    "beyond a float": ("a,b\n1e300,x\n2e300,y\n", "line 2: '1e300' in column 0 (a) is not a number"),
    "UTF-16": ("a,b\n1,x\n".encode("utf-16"), "is not text"),
    "nothing": ("", "is empty"),
    "names only": ("a,b\n", "has a header and no rows"),
}


@pytest.mark.parametrize("what", SICK)
def test_a_table_that_cannot_be_learned_from(tessera, tmp_path, what):
    """It is refused by line and column; nothing that is meant as a number becomes a word, nothing that is missing a class."""
    text, words = SICK[what]
    (tmp_path / "t.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    tessera("train", "t.csv", code=FAILED)
    assert words in tessera.err and not (tmp_path / "mlp.pth").exists()


def test_names_of_a_table_may_have_any_bytes(tessera, tmp_path):
    """Latin-1, Windows' line ends, blanks behind commas: trained, found again, and predicted for."""
    r = np.random.RandomState(0)
    rows = ["größe, b, label"] + [f"{x:.3f}, {y:.3f}, {'café' if x > 0 else 'thé'}" for x, y in r.randn(64, 2)]
    (tmp_path / "t.csv").write_bytes("\r\n".join(rows).encode("latin-1"))
    tessera("train", "t.csv", *SMALL)
    said = json.loads(tessera("eval", "mlp.pth", "--json", "--no-plots"))
    assert said["samples"] == 64 and len(said["classes"]) == 2
    (tmp_path / "new.csv").write_bytes("b,größe,label\n0,-3,\n0,3,\n".encode("latin-1"))    # labels are not known yet
    got = json.loads(tessera("predict", "mlp.pth", "new.csv", "--json"))["images"][0]["rows"]
    assert [g["index"] for g in got] == [1, 0]
    os.rename(tmp_path / "t.csv", os.path.join(os.fsencode(tmp_path), b"caf\xe9.csv"))
    done = subprocess.run([tessera.program, "train", b"caf\xe9.csv"], cwd=tmp_path, capture_output=True)
    assert done.returncode == USAGE and b"which is not UTF-8" in done.stderr


def test_one_class_is_nothing_to_learn(tessera, tmp_path):
    np.savez(tmp_path / "data.npz", x=np.random.RandomState(0).randn(64, 6).astype("f4"), y=np.zeros(64, "i4"))
    assert "in 1 class\n" in tessera("train", "data.npz", *SMALL)
    assert "all samples of data.npz are of one class, '0'" in tessera.err


@pytest.mark.parametrize("task, words", [("labels", "is 2.5, which is no label"), ("classes", "is not a class")])
def test_a_task_that_the_data_does_not_have(tessera, tmp_path, task, words):
    np.savez(tmp_path / "data.npz", x=np.ones((64, 6), "f4"), y=np.full(64, 2.5, "f4"))
    tessera("train", "data.npz", *SMALL, "--task", task, code=FAILED)
    assert words in tessera.err
    story(tmp_path / "story.txt")
    if task == "labels":
        tessera("train", "story.txt", "--limit", 32, "--task", task, code=FAILED)
        assert "--task labels does not fit: the data has text" in tessera.err


def test_columns_of_any_size_are_scaled(tessera, tmp_path):
    """A column of tiny numbers is not taken for one that never changes."""
    r = np.random.RandomState(0)
    x = r.randn(64)
    (tmp_path / "t.csv").write_text("a,b,label\n" + "".join(f"{v * 1e-25:.6g},7,{int(v > 0)}\n" for v in x))
    end, = events(tessera("train", "t.csv", "--model", "mlp.txt", "--epochs", 3, "--lr", 0.01, "--no-plots", "--json"), "end")
    assert end["accuracy"] > 0.9


def test_images_with_a_class_or_some_of_their_numbers(tessera, tmp_path):
    """--label and --drop are for the columns of targets.csv, too; a column of words is of classes."""
    photos(tmp_path / "photos", 8)
    rows = ["file,size,kind,more"] + [f"{k}/{i}.png,{i},{k},0.5" for k in ("dark", "light") for i in range(8)]
    (tmp_path / "photos/targets.csv").write_text("\ufeff" + "\n".join(rows) + "\n", encoding="utf-8")

    def data(*args):
        said = json.loads(tessera("data", "photos", "--json", *args))
        return said["targets"] or said["classes"]
    assert data("--label", "kind") == ["dark", "light"]
    assert data("--label", "more,size") == data("--drop", "kind") == ["size", "more"]
    assert data("--label", "size", "--task", "classes") == [str(i) for i in range(8)]
    tessera("data", "photos", code=FAILED)
    assert "'dark' in column 2 (kind) is not a number" in tessera.err
    end, = events(tessera("train", "photos", "--label", "kind", "--resize", 12, "--json", *SMALL), "end")
    said = json.loads(tessera("eval", "mlp.pth", "--json", "--no-plots"))
    assert said["accuracy"] == end["accuracy"] and [c["class"] for c in said["classes"]] == ["dark", "light"]
    assert json.loads(tessera("predict", "mlp.pth", "photos/light/2.png", "--no-plots", "--json"))["images"][0]["class"] == "light"


def test_photos_of_several_sizes_are_looked_at(tessera, tmp_path):
    photos(tmp_path / "photos", 4)
    photos(tmp_path / "photos/light/more", 1, (20, 35))
    os.rename(tmp_path / "photos/light/more/dark/0.png", tmp_path / "photos/light/9.png")
    shutil.rmtree(tmp_path / "photos/light/more")
    assert "images of several sizes: 'tessera train' needs --resize" in tessera("data", "photos")
    said = json.loads(tessera("data", "photos", "--json"))
    assert said["train"] == 9 and said["sample"] is None
    tessera("train", "photos", *SMALL, code=FAILED)
    assert "20 x 35 pixels" in tessera.err and "--resize SIZE" in tessera.err


# --- text


def next_token_loss(weights, x, y):
    """The net above, by PyTorch."""
    torch = pytest.importorskip("torch")
    F, w = torch.nn.functional, weights
    h = F.embedding(x, w["tokens.weight"]) + w["places.weight"]
    mha = torch.nn.MultiheadAttention(32, 2, batch_first=True)
    mha.load_state_dict({k[len("attention."):]: v for k, v in w.items() if k.startswith("attention.")})
    mask = torch.triu(torch.ones(16, 16, dtype=torch.bool), 1)
    n = F.layer_norm(h, [32], w["norm1.weight"], w["norm1.bias"])
    h = h + mha(n, n, n, attn_mask=mask, need_weights=False)[0]
    n = F.layer_norm(h, [32], w["norm2.weight"], w["norm2.bias"])
    h = h + F.linear(F.gelu(F.linear(n, w["fc1.weight"], w["fc1.bias"])), w["fc2.weight"], w["fc2.bias"])
    s = F.linear(F.layer_norm(h, [32], w["norm.weight"], w["norm.bias"]), w["head.weight"])
    return F.cross_entropy(s.transpose(1, 2), y).item()


@pytest.mark.compiled
@pytest.mark.parametrize("more", [[], ["--vocabulary", 280]])
def test_text_is_learned_and_written(tessera, tmp_path, more):
    torch = pytest.importorskip("torch")
    story(tmp_path / "story.txt")
    (tmp_path / "net.txt").write_text(SMALL_GPT)
    out = tessera("train", "story.txt", "--model", "net.txt", "--window", 16, "--epochs", 6, "--lr", 0.01, "--batch-size", 16,
                  "--no-plots", "--json", *more)
    start, end = *events(out, "start"), *events(out, "end")
    assert start["task"] == "text" and end["perplexity"] < 3 and end["accuracy_of"] == "test"
    score = json.loads(tessera("eval", "net.pth", "--json", "--no-plots"))
    assert score["loss"] == pytest.approx(end["loss"]) and score["accuracy"] == pytest.approx(end["accuracy"])
    text = json.loads(tessera("generate", "net.pth", "--prompt", "the cat", "--length", 60, "--json"))["text"]
    assert text.startswith("the cat") and len(text) > 60 and {"dog", "mat", "chat", "cat."} & set(text[7:].split())
    again = tessera("generate", "net.pth", "--prompt", "the cat", "--length", 60)
    assert again == text + "\n"
    assert tessera("generate", "net.pth", "--prompt", "the cat", "--length", 60, "--seed", 5) != again
    greedy = tessera("generate", "net.pth", "--prompt", "a dog", "--length", 8, "--temperature", 0)
    assert greedy == tessera("generate", "net.pth", "--prompt", "a dog", "--length", 8, "--top", 1)
    if more:
        assert start["classes"] == 280
        return
    letters = sorted(set((tmp_path / "story.txt").read_text()), key=lambda c: c.encode())
    ids = torch.tensor([letters.index(c) for c in (tmp_path / "story.txt").read_text()])
    windows, test = (len(ids) - 1) // 16, (len(ids) - 1) // 160
    first = (windows - test) * 16
    x, y = ids[first:first + test * 16].reshape(-1, 16), ids[first + 1:first + test * 16 + 1].reshape(-1, 16)
    assert end["loss"] == pytest.approx(next_token_loss(torch.load(tmp_path / "net.pth"), x, y), rel=1e-4)
    assert len(tessera("generate", "net.pth", "--length", 9)) == 11    # the text has no lines to begin with
    tessera("generate", "net.pth", "--prompt", "Ω", code=FAILED)
    assert "is no character that the net knows" in tessera.err
    table(tmp_path / "data.npz")
    tessera("train", "data.npz", *SMALL)
    tessera("generate", "mlp.pth", code=FAILED)
    assert "is no net of texts" in tessera.err


@pytest.mark.compiled
def test_a_text_is_learned_as_pytorch_learns_it(tessera, tmp_path, root):
    """From the same weights the same losses (bench/train has the same net in PyTorch); and first weights of the same spread."""
    torch = pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("text", root / "bench/train/text.py")
    text = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(text)
    text.BLOCKS, text.DROPOUT = 1, 0
    story(tmp_path / "story.txt")
    words = (tmp_path / "story.txt").read_text()
    letters = sorted(set(words))
    ids = torch.tensor([letters.index(c) for c in words])
    x, y = ids[:32 * 64].view(32, 64), ids[1:32 * 64 + 1].view(32, 64)
    torch.manual_seed(3)
    net = text.Net(len(letters))
    first = {k.replace("places", "places.weight"): v.clone() for k, v in net.state_dict().items() if k != "hidden"}
    torch.save(first, tmp_path / "first.pth")
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.001)
    want = []
    for _ in range(6):
        loss = torch.nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        want.append(loss.item())
    gpt = tessera("models", "gpt").replace("repeat i 4", "repeat i 1").replace("dropout 0.1", "dropout 0")
    (tmp_path / "net.txt").write_text(gpt)
    args = ["train", "story.txt", "--model", "net.txt", "--limit", 32, "--batch-size", 32, "--no-plots", "--json"]
    got = [e["loss"] for e in lines(tessera(*args, "--weights", "first.pth", "--epochs", 6))]
    np.testing.assert_allclose(got, want, rtol=2e-4)
    tessera(*args, "--epochs", 1, "--lr", 0, "--output", "own.pth")
    own = torch.load(tmp_path / "own.pth")
    assert own.keys() == first.keys()
    for name, w in first.items():
        assert own[name].shape == w.shape
        if w.numel() > 100:    # the deviation of n numbers is known to a share of 1 / sqrt(2 n)
            assert abs(own[name].std() / w.std() - 1) < 6 / (2 * w.numel()) ** 0.5 if w.std() else not own[name].std(), name
