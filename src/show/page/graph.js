"use strict";
/* graph.js - the layers and what flows between them, folded by the parts of their names:
 *
 *   layer1.0.conv1, layer1.0.bn1, layer1.1.conv1 ...  ->  layer1  ->  layer1.0, layer1.1  ->  each layer
 *
 * A box is one row below the last that it reads. */

const BOX = [212, 50], GAP = [26, 34];

function foldedName(name, depth, open) {
  const parts = name.split(".");
  let n = min(depth, parts.length);
  while (n < parts.length && open.has(parts.slice(0, n).join("."))) n++;
  return parts.slice(0, n).join(".");
}

/* Boxes: kernels under one folded name. */
function boxesOf(p, depth, open) {
  const boxes = groups(p.kernels.filter(k => k.layer.name), k => foldedName(k.layer.name, depth, open));
  for (const b of boxes) Object.assign(b, { to: new Set(), from: new Set(), folded: b.kernels.some(k => k.layer.name !== b.key) });
  return boxes;
}

/* Who reads what whom wrote, in the forward pass. A kernel that has no layer belongs to the box that wrote the last of
 * what it reads, so a sum of two branches does to the later one. A copy on another device is another value of the same
 * name. */
function connect(p, boxes) {
  const boxOf = new Map(boxes.flatMap(b => b.kernels.map(k => [k.id, b]))), makers = new Map(), names = new Map(p.values.map(v => [v.id, v.name])), touched = new Map(), e = p.edge;
  for (let i = 0; i < (e.kernel || []).length; i++) {
    const t = touched.get(e.kernel[i]) || touched.set(e.kernel[i], [[], []]).get(e.kernel[i]);
    t[e.writes[i] ? 1 : 0].push(names.get(e.value[i]));
  }
  for (const k of p.kernels.filter(k => k.pass === "forward")) {
    const [reads, writes] = touched.get(k.id) || [[], []], from = reads.map(v => makers.get(v)).filter(m => m).sort((a, b) => b.at - a.at);
    const box = boxOf.get(k.id) || from[0] && from[0].box;
    if (!box) continue;
    for (const m of from) if (m.box !== box) { m.box.to.add(box); box.from.add(m.box); }
    for (const v of writes) makers.set(v, { box, at: k.id });
  }
}

/* In an order where readers follow writers; a ring is cut at its earliest box. A box is in the column of a box above that
 * it reads, or the next that is free. Boxes without an edge go last. */
function arrange(boxes) {
  const left = new Set(boxes.filter(b => b.to.size + b.from.size)), rows = [];
  const put = (b, row, column) => {
    const taken = (rows[row] = rows[row] || []).map(x => x.column);
    while (taken.includes(column)) column++;
    rows[row].push(Object.assign(b, { row, column, x: 10 + column * (BOX[0] + GAP[0]), y: 10 + row * (BOX[1] + GAP[1]) }));
  };
  while (left.size) {
    const b = [...left].find(b => ![...b.from].some(f => left.has(f))) || [...left][0];
    left.delete(b);
    const above = [...b.from].filter(f => f.row != null && !left.has(f)), row = 1 + max(-1, ...above.map(f => f.row)), next = above.filter(f => f.row === row - 1);
    put(b, row, next.length ? min(...next.map(f => f.column)) : 0);
  }
  const alone = boxes.filter(b => !b.to.size && !b.from.size), high = rows.length;
  alone.forEach((b, i) => put(b, high + floor(i / 4), 0));
  return rows;
}

function drawBox(p, b, most, onpick, onfold) {
  const quiet = { style: "pointer-events:none" }, where = p.devices.length > 1 ? `, device ${b.first.device}` : "";
  const frame = pressable(svg("rect", { class: "hot", width: BOX[0], height: BOX[1], rx: 9, role: "button", "aria-label": b.key, style: "fill:var(--card);stroke:var(--line);stroke-width:1.5" }), () => onpick(b));
  const more = () => pressable(svg("g", { class: "hot", role: "button", "aria-label": "Unfold " + b.key, transform: `translate(${BOX[0] - 26} 8)` }, rect(0, 0, 16, 16, "soft"), words(8, 13, "+", MIDDLE)), () => onfold(b));
  return svg("g", { transform: `translate(${b.x} ${b.y})` }, frame,
    rect(10, BOX[1] - 9, BOX[0] - 20, 4, "soft"), rect(10, BOX[1] - 9, (BOX[0] - 20) * b.cost / most, 4, "activation"),
    words(12, 19, tail(b.key), { style: "font-weight:600;pointer-events:none" }), words(12, 35, plural(b.kernels.length, "kernel") + where, { ...FAINT, ...quiet }),
    words(BOX[0] - 12, 35, percent(b.cost / p.cost), { ...FAINT, ...END, ...quiet }), b.folded ? more() : "");
}

/* A line to the next row is a curve between the two. A longer one goes right in the gap below its box, down beside
 * everything that the rows between have, and back in the gap above the box that reads: never through a box. Two that are
 * beside the same rows have a lane each. */
function paths(boxes, rows) {
  const centre = b => b.x + BOX[0] / 2, lanes = [], r = 7;
  return boxes.flatMap(b => [...b.to].map(t => {
    const x0 = centre(b), y0 = b.y + BOX[1], x1 = centre(t), y1 = t.y, top = min(b.row + 1, t.row), end = max(b.row, t.row - 1);
    if (t.row === b.row + 1) return { d: `M${x0},${y0}C${x0},${y0 + 20} ${x1},${y1 - 20} ${x1},${y1}`, x: 0 };
    let x = 10 + BOX[0] + max(...rows.slice(top, end + 1).flat().map(o => o.x));
    while (lanes.some(l => l.x === x && l.top <= end && top <= l.end)) x += 8;
    lanes.push({ top, end, x });
    const low = x % 4 * 2 + 9, down = y0 + low, up = y1 - low, turn = up > down ? r : -r, out = x > x0 ? r : -r, back = x1 > x ? r : -r;
    return { x, d: `M${x0},${y0}Q${x0},${down} ${x0 + out},${down}H${x - out}Q${x},${down} ${x},${down + turn}V${up - turn}Q${x},${up} ${x + back},${up}H${x1 - back}Q${x1},${up} ${x1},${y1}` };
  }));
}

function drawGraph(p, boxes, onpick, onfold) {
  const rows = arrange(boxes), most = max(...boxes.map(b => b.cost), 1e-12), lines = paths(boxes, rows), high = 20 + rows.length * (BOX[1] + GAP[1]), wide = 10 + max(...boxes.map(b => b.x + BOX[0]), ...lines.map(l => l.x));
  return svg("svg", { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: "group", "aria-label": "Graph of layers", style: "display:block;margin:0 auto" },
    lines.map(({ d }) => svg("path", { d, style: "fill:none;stroke:var(--faint);stroke-width:1.4;opacity:.7" })),
    boxes.map(b => drawBox(p, b, most, onpick, onfold)));
}

function boxDetail(p, b) {
  const layers = new Set(b.kernels.map(k => k.layer)), weights = total(p.values, v => v.always && layers.has(v.layer) ? v.size : 0), of = pass => seconds(total(b.kernels, k => k.pass === pass ? k.cost : 0));
  return [h2(b.key), facts([["kernels", b.kernels.length], ["time", `${seconds(b.cost)} (${percent(b.cost / p.cost)})`], ["forward", of("forward")], ["backward", of("backward")], ["FLOP", flops(b.work)], ["always live", bytes(weights)],
    ["device", [...new Set(b.kernels.map(k => k.device))].join(", ")], ["source", sourceOf(b.first.layer)]]), links(p, costly(b.kernels)[0])];
}

views.push({
  id: "graph", title: "Graph", draw(root, p) {
    const deepest = max(1, ...p.layers.map(l => l.name.split(".").length)), open = new Set(), place = div("scroll tall"), shown = el("span", FAINT);
    const detail = side(note("Choose a layer. A + unfolds what lies under a name."));
    let depth = deepest;
    while (depth > 1 && boxesOf(p, depth, open).length > 40) depth--;
    const draw = () => {
      const boxes = boxesOf(p, depth, open), kernels = total(boxes, b => b.kernels.length), cost = total(boxes, b => b.cost);
      connect(p, boxes);
      place.replaceChildren(boxes.length ? drawGraph(p, boxes, b => detail.replaceChildren(...boxDetail(p, b)), b => { open.add(b.key); draw(); }) : note("No kernel has a layer."));
      shown.replaceChildren(sum("boxes", kernels, plural(kernels, "kernel")), " of layers, ", sum("cost", cost, seconds(cost)), " of " + seconds(p.cost));
    };
    draw();
    root.append(div("row", card("Graph", div("bar", deepest > 1 ? select("Depth of names", Array.from({ length: deepest }, (_, i) => [i + 1, i + 1]), depth, d => { depth = Number(d); open.clear(); draw(); }) : null,
      grow(), shown), place), detail));
  },
});
