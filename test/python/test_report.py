"""The page of `tessera report`: what it says is what SQL says, it asks for nothing, and names are only names."""

import csv
import io
import os
import re
import sqlite3
import subprocess
import time

import browser
import profiles
import pytest

TABS = ["summary", "memory", "liveness", "operations", "program", "execution", "graph", "compare"]
needs_browser = pytest.mark.skipif(not browser.find(), reason="needs chromium, which is not installed")


def report(build_dir, *args):
    return subprocess.run([build_dir / "tessera", "report", *args], capture_output=True, text=True, timeout=60)


# Profiles of runs; the others are made up by profiles.py, which can have what is asked of it.
MEASURED = {
    "measured": ["mnist-pipeline", "--batch-size", "64", "--gradient-accumulation", "8", "--stages", "B1|B2|B3|B4", "--calls", "5", "--threads", "1"],
    "measured-deep": ["resnet18", "--batch-size", "4", "--calls", "3"],
    "branches": ["BRANCHES", "--batch-size", "4", "--plan-only"],
}
BRANCHES = """input 8 16 16
classes 4
stem: conv2d 8 3 padding=1
-> x
a1: conv2d 8 1
a2: conv2d 8 1
a3: conv2d 8 1 -> y
from x
b1: conv2d 8 3 padding=1 -> z
from x
c1: conv2d 8 1
c2: conv2d 8 1
add y
add z
add x
join: conv2d 8 1 -> w
d1: conv2d 8 1
d2: conv2d 8 1
d3: conv2d 8 1
add w
add x
flatten
fc: linear classes
loss cross_entropy
"""


@pytest.fixture(scope="session")
def pages(build_dir, tmp_path_factory):
    """pages(kind): the folder of that profile, with its page."""
    folder, made = tmp_path_factory.mktemp("report"), {}

    def page(kind):
        if kind not in made:
            made[kind] = folder / kind
            made[kind].mkdir()
            if kind in MEASURED:
                (folder / "branches.txt").write_text(BRANCHES)
                args = [folder / "branches.txt" if a == "BRANCHES" else a for a in MEASURED[kind]]
                done = subprocess.run([build_dir / "tessera", "profile", *args, "--output", made[kind], "--quiet"], capture_output=True,
                                      text=True, timeout=600, env={**os.environ, "TESSERA_CACHE_DIR": str(build_dir / "test-cache")})
                if "made without SQLite" in done.stderr:
                    pytest.skip("needs a build with SQLite")
                assert done.returncode == 0, done.stderr
            else:
                profiles.write(made[kind] / "profile.db", **profiles.KINDS[kind])
            done = report(build_dir, made[kind])
            if "no SQLite" in done.stderr:
                pytest.skip("needs a build with SQLite")
            assert done.returncode == 0, done.stderr
            assert done.stdout == f"{made[kind]}/report.html\n"
        return made[kind]

    return page


@pytest.fixture(scope="module")
def chromium():
    with browser.Browser() as b:
        yield b


def sums(b):
    """The figures of the tab that is shown, by name."""
    return dict(b.ask("[...document.querySelectorAll('main [data-sum]')].map(x => [x.dataset.sum, Number(x.dataset.value)])"))


def one(db, query):
    return db.execute(query).fetchone()[0] or 0


# Of a call: the thread that was longest at each kernel, in seconds and in runs.
TIMES = """WITH lane AS (SELECT kernel, count(*) AS n, sum(end - start) AS t FROM event WHERE kernel IS NOT NULL GROUP BY kernel, replica, thread),
           time AS (SELECT kernel, max(n) AS n, max(t) AS t FROM lane GROUP BY kernel),
           calls AS (SELECT count(DISTINCT call) AS n FROM event) """


def wanted(db, tab):
    """What SQL says of a tab's figures, but for those that only a liveness can say."""
    runs = TIMES + "SELECT sum({} * time.n) / calls.n FROM kernel JOIN time ON time.kernel = kernel.id, calls"
    measured = one(db, TIMES + "SELECT sum(t) / calls.n FROM time, calls")
    return {
        "summary": {"peak": one(db, "SELECT sum(peak) FROM device"), "kernels": one(db, "SELECT count(*) FROM kernel"),
                    "step": one(db, "SELECT t FROM (SELECT max(end) - min(start) AS t FROM event GROUP BY call) ORDER BY t LIMIT 1 OFFSET (SELECT (count(DISTINCT call) - 1) / 2 FROM event)")},
        "memory": {"peak": one(db, "SELECT sum(peak) FROM device"), "always": one(db, "SELECT sum(always) FROM device"),
                   "values": one(db, "SELECT sum(bytes * depth) FROM value")},
        "operations": {"kernels": one(db, "SELECT count(*) FROM kernel"), "measured": measured, "modelled": one(db, runs.format("modelled")),
                       "flops": one(db, runs.format("flops")), "moved": one(db, runs.format("(read + written)")), "share": 1},
        "program": {"kernels": one(db, "SELECT count(*) FROM kernel"), "sections": one(db, "SELECT count(*) FROM section")},
        "execution": {"events": one(db, "SELECT count(*) FROM event"), "busy": measured},
        "graph": {"boxes": one(db, "SELECT count(*) FROM kernel JOIN layer ON layer.id = kernel.layer WHERE layer.name != ''")},
    }.get(tab, {})


def live_peak(db):
    """The most that lives at a kernel of the device with the largest block."""
    device = one(db, "SELECT id FROM device ORDER BY peak DESC, id LIMIT 1")
    return one(db, f"""SELECT max(b) FROM (SELECT sum(v.bytes * v.depth) AS b FROM kernel k JOIN section s ON s.id = k.section
                       JOIN value v ON v.device = s.device AND (v.always OR k.id BETWEEN v.first AND v.last) WHERE s.device = {device} GROUP BY k.id)""")


@needs_browser
@pytest.mark.parametrize("kind", ["small", "pipeline", "deep", "tiles", "measured"])
def test_tabs_say_what_sql_says(pages, chromium, kind):
    chromium.open(pages(kind) / "report.html")
    db = sqlite3.connect(pages(kind) / "profile.db")
    for tab in TABS:
        chromium.go(tab)
        got = sums(chromium)
        for name, value in wanted(db, tab).items():
            assert got[name] == pytest.approx(value, rel=1e-6), (tab, name)
        if tab == "liveness" and kind not in ("pipeline", "measured"):
            assert got["peak-live"] == got["live"] == live_peak(db)
    assert chromium.complaints() == [] and chromium.requests() == []


@needs_browser
@pytest.mark.parametrize("kind", ["deep", "huge"])
def test_every_tab_opens_within_a_second(pages, chromium, kind):
    path = pages(kind) / "report.html"
    def quick(before, do):
        """One of three times: others may be at work, too."""
        for _ in range(3):
            before()
            begin = time.monotonic()
            do()
            if time.monotonic() - begin < 1:
                return True
        return False
    assert quick(lambda: None, lambda: chromium.open(path))
    for tab in TABS:
        assert quick(lambda: chromium.go("compare" if tab != "compare" else "summary"), lambda: chromium.go(tab)), tab


def test_sizes(pages):
    page = (pages("huge") / "report.html").read_text()
    db = sqlite3.connect(pages("huge") / "profile.db")
    assert one(db, "SELECT count(*) FROM kernel") >= 5000 and one(db, "SELECT count(DISTINCT call) FROM event") == 10
    assert len(page) <= 5 << 20
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert len(scripts) == 1 and len(scripts[0].encode()) < 60000
    assert "innerHTML" not in page and not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)


@needs_browser
def test_hostile_names_are_text(pages, chromium):
    chromium.open(pages("hostile") / "report.html")
    assert chromium.ask("document.querySelector('h1').textContent") == "<script>alert('model')</script>"
    for tab in TABS:
        chromium.go(tab)
        assert chromium.ask("document.querySelectorAll('main img, main script, [onload], [onerror], [onclick], a[href^=javascript]').length") == 0, tab
        assert chromium.ask("document.documentElement.scrollWidth <= innerWidth"), f"{tab} is wider than the window"
    chromium.go("memory")
    text = chromium.ask("document.querySelector('main').textContent")
    for name in profiles.HOSTILE:
        assert name in text
    assert chromium.complaints() == [] and chromium.requests() == []


@needs_browser
def test_a_plan_that_did_not_fit(pages, chromium):
    chromium.open(pages("refused") / "report.html")
    text = chromium.ask("document.querySelector('main').textContent")
    assert "Does not fit" in text and profiles.KINDS["refused"]["refused"][1:] in text
    for tab in TABS:
        chromium.go(tab)
    chromium.go("memory")
    assert "of 1.00 MiB" in chromium.ask("document.querySelector('main').textContent")
    assert chromium.complaints() == []


@needs_browser
def test_tiles_that_are_too_full(build_dir, chromium, tmp_path):
    """A real refusal: the block would fit, its tiles do not."""
    done = subprocess.run([build_dir / "tessera", "profile", "resnet18", "--batch-size", "48", "--plan-only", "--device", "model", "--output", tmp_path, "--quiet"],
                          capture_output=True, text=True, timeout=120)
    if "made without SQLite" in done.stderr:
        pytest.skip("needs a build with SQLite")
    assert done.returncode == 1 and report(build_dir, tmp_path).returncode == 0
    over = one(sqlite3.connect(tmp_path / "profile.db"), "SELECT count(*) FROM tile WHERE peak > 624 * 1024")
    assert over > 100
    chromium.open(tmp_path / "report.html")
    text = "document.querySelector('main').textContent"
    assert f"{over:,} of 1,472 tiles too full" in chromium.ask(text) and "need more than their 624.0 KiB" in chromium.ask(text)
    chromium.go("memory")
    assert f"{over:,} tiles too full" in chromium.ask(text)
    assert chromium.complaints() == []


@needs_browser
def test_keyboard(pages, chromium):
    chromium.open(pages("pipeline") / "report.html")
    chromium.ask("document.querySelector('nav button').focus()")
    seen = []
    for _ in TABS:
        seen.append(chromium.ask("document.activeElement.dataset.id"))
        chromium.press("ArrowRight")
        chromium.wait(f"document.activeElement.dataset.id !== '{seen[-1]}'")
    assert seen == TABS
    theme = chromium.ask("document.documentElement.dataset.theme")
    chromium.press("t", "KeyT")
    assert chromium.ask("document.documentElement.dataset.theme") != theme
    chromium.press("t", "KeyT")

    chromium.go("execution")
    chromium.ask("document.querySelector('main canvas').focus()")
    look = "document.querySelector('main canvas').toDataURL().length + document.querySelector('main canvas').toDataURL().slice(-400)"
    drawn = {chromium.ask(look)}
    for key in ("+", "ArrowRight", "0", "]"):
        chromium.press(key)
        drawn.add(chromium.ask(look))
    assert len(drawn) == 5, "a key changed nothing"
    assert "took" in chromium.ask("document.querySelector('main').textContent")

    chromium.go("liveness")
    chromium.ask("document.querySelector('main canvas').focus()")
    before = chromium.ask("document.querySelector('main .side h2').textContent")
    chromium.press("ArrowRight")
    assert chromium.ask("document.querySelector('main .side h2').textContent") != before


@needs_browser
def test_mouse_zooms_and_picks(pages, chromium):
    chromium.open(pages("pipeline") / "report.html", "execution")
    chromium.go("execution")
    box = chromium.ask("(r => [r.x, r.y])(document.querySelector('main canvas').getBoundingClientRect())")
    x, y = box[0] + 140, box[1] + 28 + 22 + 10
    look = "document.querySelector('main canvas').toDataURL()"
    before = chromium.ask(look)
    chromium.mouse("mouseWheel", x, y, deltaX=0, deltaY=-100)
    chromium.wait(f"{look} !== {before!r}")
    for kind in ("mousePressed", "mouseReleased"):
        chromium.mouse(kind, x, y, button="left", clickCount=1)
    assert "micro-batch" in chromium.ask("document.querySelector('main').textContent")


@needs_browser
def test_csv_has_every_row(pages, chromium):
    chromium.open(pages("deep") / "report.html", "operations")
    text = chromium.ask("new Table({columns: operationColumns(profiles[0], 'kernel'), rows: groups(profiles[0].kernels, GROUPINGS.kernel)}).csv()")
    rows = list(csv.DictReader(io.StringIO(text)))
    db = sqlite3.connect(pages("deep") / "profile.db")
    assert len(rows) == one(db, "SELECT count(*) FROM kernel")
    assert sum(float(r["Measured"]) for r in rows) == pytest.approx(wanted(db, "operations")["measured"], rel=1e-6)


@needs_browser
def test_compare(pages, chromium, build_dir, tmp_path):
    done = report(build_dir, pages("small"), "--compare", pages("pipeline"), "--output", tmp_path / "both.html")
    assert done.returncode == 0, done.stderr
    chromium.open(tmp_path / "both.html")
    chromium.go("compare")
    got = sums(chromium)
    for side, kind in (("this", "small"), ("other", "pipeline")):
        db = sqlite3.connect(pages(kind) / "profile.db")
        assert got[side] == pytest.approx(wanted(db, "operations")["measured"], rel=1e-6)
    assert got["difference"] == pytest.approx(got["this"] - got["other"])
    assert chromium.complaints() == []


@needs_browser
def test_a_graph_unfolds(pages, chromium):
    chromium.open(pages("deep") / "report.html")
    chromium.go("graph")
    boxes = "document.querySelectorAll('main svg [role=button][aria-label]').length"
    before = chromium.ask(boxes)
    chromium.ask("document.querySelector('main svg g[role=button]').dispatchEvent(new MouseEvent('click'))")
    assert chromium.ask(boxes) > before


# Lines of the graph that come nearer than a pixel to the inside of a box, of all lines.
CROSSINGS = """(() => {
  const boxes = [...document.querySelectorAll('main svg rect[role=button]')].map(r => r.getBoundingClientRect());
  const lines = [...document.querySelectorAll('main .tall svg path')], at = p => { const m = p.getScreenCTM(), n = p.getTotalLength();
    return Array.from({length: Math.ceil(n / 3)}, (_, i) => p.getPointAtLength(i * 3).matrixTransform(m)); };
  return [lines.length, lines.filter(p => at(p).some(q => boxes.some(b => b.left + 1 < q.x && q.x < b.right - 1 && b.top + 1 < q.y && q.y < b.bottom - 1))).length];
})()"""


@needs_browser
@pytest.mark.parametrize("kind", ["measured", "branches"])
def test_no_line_runs_through_a_box(pages, chromium, kind):
    """Of branches that are joined again and lines that skip many rows."""
    chromium.open(pages(kind) / "report.html")
    chromium.go("graph")
    lines, crossing = chromium.ask(CROSSINGS)
    assert lines >= {"measured": 4, "branches": 15}[kind] and crossing == 0
    box = "document.querySelector('main svg g > g[transform], main svg > g')"
    chromium.ask(f"{box}.setAttribute('transform', 'translate(0 150)')")    # the test can fail
    assert chromium.ask(CROSSINGS)[1] > 0


@needs_browser
@pytest.mark.parametrize("kind", ["measured", "measured-deep", "deep", "huge"])
@pytest.mark.parametrize("by", ["layer", "kernel"])
def test_names_on_the_roofline_cover_nothing(pages, chromium, kind, by):
    if kind == "measured-deep" and not os.environ.get("TS_GOLDEN_UPDATE"):
        pytest.skip("takes long: TS_GOLDEN_UPDATE=1")
    chromium.open(pages(kind) / "report.html", f"operations/by={by}")
    boxes = chromium.ask("""['text.name', 'circle'].map(s => [...document.querySelectorAll('main svg ' + s)].map(x => (r => [r.left, r.top, r.right, r.bottom])(x.getBoundingClientRect())))""")
    names, marks = boxes
    assert marks and (names or by == "kernel" or kind == "huge")
    apart = lambda a, b: a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]    # noqa: E731
    for i, name in enumerate(names):
        assert all(apart(name, other) for other in names[i + 1:] + marks)


@needs_browser
def test_the_kernel_that_is_shown_is_in_sight(pages, chromium):
    chromium.open(pages("deep") / "report.html", "program/kernel=200")
    chromium.wait("document.querySelector('main .tree .chosen') != null")
    assert chromium.ask("(([a, b]) => a.top < b.top && b.bottom < a.bottom)(['.side', '.chosen'].map(s => document.querySelector('main ' + s).getBoundingClientRect()))")


def test_errors(build_dir, tmp_path):
    def fails(*args):
        done = report(build_dir, *args)
        if "no SQLite" in done.stderr:
            pytest.skip("needs a build with SQLite")
        assert done.returncode == 1 and done.stdout == "" and not list(tmp_path.glob("**/*.html"))
        return done.stderr

    assert "there is no profile in" in fails(tmp_path) and "tessera profile" in fails(tmp_path)
    bad = tmp_path / "bad.db"
    bad.write_bytes(b"not a database, whatever it is called" * 100)
    assert "cannot be read as a profile" in fails(bad)
    bad.unlink()
    sqlite3.connect(bad).executescript("PRAGMA user_version = 1; CREATE TABLE run(key, value)").close()
    assert "no such table: device" in fails(bad)
    bad.unlink()
    sqlite3.connect(bad).executescript("PRAGMA user_version = 7; CREATE TABLE run(key, value)").close()
    assert "has version 7 of the schema; this version reads 1" in fails(bad)
    good = profiles.write(tmp_path / "good.db", layers=2)
    assert report(build_dir, good, "--output", tmp_path / "no" / "such" / "page.html").returncode == 1
    whole = good.read_bytes()
    good.write_bytes(whole[:len(whole) // 2])
    fails(good)


@needs_browser
@pytest.mark.skipif(not os.environ.get("TS_GOLDEN_UPDATE"), reason="draws the pictures of the documentation: TS_GOLDEN_UPDATE=1")
def test_pictures(pages, chromium, root):
    folder = root / "doc" / "pictures"
    folder.mkdir(exist_ok=True)
    chromium.resize(1280, 800)
    for kind, tab, theme in [("measured", "summary", "light"), ("measured", "execution", "light"), ("measured-deep", "liveness", "light"), ("measured-deep", "operations", "dark")]:
        chromium.theme(theme)
        chromium.open(pages(kind) / "report.html")
        chromium.go(tab)
        chromium.picture(folder / f"profile-{tab}.png")
