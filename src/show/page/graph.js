"use strict";
/* graph.js - the layers and what flows between them, folded by the parts of their names:
 *
 *   layer1.0.conv1, layer1.0.bn1, layer1.1.conv1 ...  ->  layer1  ->  layer1.0, layer1.1  ->  each layer
 *
 * A box is one row below the last that it reads. */

const BOX = [212, 50], GAP = [26, 34];

function foldedName(name, depth, open) {
  const parts = name.split(".");
  let n = Math.min(depth, parts.length);
  while (n < parts.length && open.has(parts.slice(0, n).join("."))) n++;
  return parts.slice(0, n).join(".");
}

/* Boxes: kernels under one folded name. */
function boxesOf(p, depth, open) {
  const boxes = groups(p.kernels.filter(k => k.layer.name), k => foldedName(k.layer.name, depth, open));
  for (const b of boxes) Object.assign(b, { to: new Set(), from: new Set(), folded: b.kernels.some(k => k.layer.name !== b.key) });
  return boxes;
}

/* Who reads what whom wrote, in the forward pass; through kernels that have no layer. A copy on another
 * device is another value of the same name. */
function connect(p, boxes) {
  const boxOf = new Map(boxes.flatMap(b => b.kernels.map(k => [k.id, b]))), makers = new Map(), names = new Map(p.values.map(v => [v.id, v.name])), touched = new Map(), e = p.edge;
  for (let i = 0; i < (e.kernel || []).length; i++) {
    const t = touched.get(e.kernel[i]) || touched.set(e.kernel[i], [[], []]).get(e.kernel[i]);
    t[e.writes[i] ? 1 : 0].push(names.get(e.value[i]));
  }
  for (const k of p.kernels) {
    const [reads, writes] = touched.get(k.id) || [[], []], box = boxOf.get(k.id), from = new Set(reads.flatMap(v => [...makers.get(v) || []]));
    if (k.pass !== "forward") continue;
    if (box) for (const b of from) if (b !== box) { b.to.add(box); box.from.add(b); }
    for (const v of writes) makers.set(v, box ? new Set([box]) : from);
  }
}

/* In an order where readers follow writers; a ring is cut at its earliest box. Boxes without an edge go last. */
function arrange(boxes) {
  const left = new Set(boxes.filter(b => b.to.size + b.from.size)), rows = [];
  const put = (b, row) => { b.row = row; (rows[row] = rows[row] || []).push(b); };
  while (left.size) {
    const b = [...left].find(b => ![...b.from].some(f => left.has(f))) || [...left][0];
    left.delete(b);
    put(b, 1 + Math.max(-1, ...[...b.from].filter(f => f.row != null && !left.has(f)).map(f => f.row)));
  }
  const alone = boxes.filter(b => !b.to.size && !b.from.size), high = rows.length;
  alone.forEach((b, i) => put(b, high + Math.floor(i / 4)));
  return rows;
}

function drawBox(p, b, most, onpick, onfold) {
  const share = percent(b.cost / p.cost), ops = [...new Set(costly(b.kernels).map(k => k.op).filter(x => x))], quiet = { style: "pointer-events:none" };
  const frame = pressable(svg("rect", { class: "hot", width: BOX[0], height: BOX[1], rx: 9, role: "button", "aria-label": b.key, style: "fill:var(--card);stroke:var(--line);stroke-width:1.5" }), () => onpick(b));
  const more = () => pressable(svg("g", { class: "hot", role: "button", "aria-label": "Unfold " + b.key, transform: `translate(${BOX[0] - 26} 8)` }, rect(0, 0, 16, 16, "soft"), words(8, 13, "+", MIDDLE)), () => onfold(b));
  return svg("g", { transform: `translate(${b.x} ${b.y})` }, frame,
    rect(10, BOX[1] - 9, BOX[0] - 20, 4, "soft"), rect(10, BOX[1] - 9, (BOX[0] - 20) * b.cost / most, 4, "activation"),
    words(12, 19, tail(b.key), { style: "font-weight:600;pointer-events:none" }), words(12, 35, short(b.folded ? plural(b.kernels.length, "kernel") : ops[0] || "", 18), { ...FAINT, ...quiet }),
    words(BOX[0] - 12, 35, share, { ...FAINT, ...END, ...quiet }), b.folded ? more() : "");
}

/* Down to the next row; around the side when it skips rows in the same column. */
function edgePath(b, t) {
  const x0 = b.x + BOX[0] / 2, y0 = b.y + BOX[1], x1 = t.x + BOX[0] / 2, y1 = t.y;
  if (t.row === b.row + 1 || Math.abs(x0 - x1) > BOX[0] / 2) return `M${x0},${y0}C${x0},${y0 + 20} ${x1},${y1 - 20} ${x1},${y1}`;
  const side = b.x + BOX[0] + 14 + Math.min(40, 5 * Math.abs(t.row - b.row)), middle = b.y + BOX[1] / 2;
  return `M${b.x + BOX[0]},${middle}C${side},${middle} ${side},${y0} ${side},${(y0 + y1) / 2}S${side},${t.y + BOX[1] / 2} ${t.x + BOX[0]},${t.y + BOX[1] / 2}`;
}

function drawGraph(p, boxes, onpick, onfold) {
  const rows = arrange(boxes), most = Math.max(...boxes.map(b => b.cost), 1e-12), wide = Math.max(700, Math.max(...rows.map(r => r.length)) * (BOX[0] + GAP[0]) + 60), high = 20 + rows.length * (BOX[1] + GAP[1]);
  rows.forEach((row, r) => row.forEach((b, i) => Object.assign(b, { x: wide / 2 + (i - row.length / 2) * (BOX[0] + GAP[0]) + GAP[0] / 2, y: 10 + r * (BOX[1] + GAP[1]) })));
  return svg("svg", { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: "group", "aria-label": "Graph of layers", style: "display:block;margin:0 auto" },
    boxes.flatMap(b => [...b.to].map(t => svg("path", { d: edgePath(b, t), style: "fill:none;stroke:var(--faint);stroke-width:1.4;opacity:.7" }))),
    boxes.map(b => drawBox(p, b, most, onpick, onfold)));
}

function boxDetail(p, b) {
  const layers = new Set(b.kernels.map(k => k.layer)), weights = total(p.values, v => v.always && layers.has(v.layer) ? v.size : 0), of = pass => seconds(total(b.kernels, k => k.pass === pass ? k.cost : 0));
  return [h2(b.key), facts([["kernels", b.kernels.length], ["time", `${seconds(b.cost)} (${percent(b.cost / p.cost)})`], ["forward", of("forward")], ["backward", of("backward")], ["FLOP", flops(b.work)], ["always live", bytes(weights)],
    ["device", [...new Set(b.kernels.map(k => k.device))].join(", ")], ["source", sourceOf(b.first.layer)]]), links(p, costly(b.kernels)[0])];
}

views.push({
  id: "graph", title: "Graph", draw(root, p) {
    const deepest = Math.max(1, ...p.layers.map(l => l.name.split(".").length)), open = new Set(), place = div("scroll tall"), shown = el("span", FAINT);
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
