"use strict";
/* graph.js - the layers and what flows between them, folded by the parts of their names:
 *
 *   layer1.0.conv1, layer1.0.bn1, layer1.1.conv1 ...  ->  layer1  ->  layer1.0, layer1.1  ->  each layer
 *
 * Rows are by longest path over the forward pass, in the order of the program, so edges lead downwards. */

const BOX = [212, 50], GAP = [26, 34];

function foldedName(name, depth, open) {
  const parts = name.split(".");
  let n = Math.min(depth, parts.length);
  while (n < parts.length && open.has(parts.slice(0, n).join("."))) n++;
  return parts.slice(0, n).join(".");
}

/* Boxes: kernels under one folded name, in the order of their first kernel. */
function boxesOf(p, depth, open) {
  const boxes = groups(p.kernels.filter(k => k.layer.name), k => foldedName(k.layer.name, depth, open));
  boxes.forEach((b, i) => { b.order = i; b.row = 0; b.to = new Set(); b.folded = b.kernels.some(k => k.layer.name !== b.key); });
  return boxes;
}

/* Who reads what whom wrote, in the forward pass; through kernels that have no layer. */
function connect(p, boxes) {
  const boxOf = new Map(boxes.flatMap(b => b.kernels.map(k => [k.id, b]))), makers = new Map(), e = p.edge, reads = new Map();
  for (let i = 0; i < (e.kernel || []).length; i++) {
    const k = p.kernelById.get(e.kernel[i]);
    if (!k || k.pass !== "forward") continue;
    if (!e.writes[i]) reads.set(k.id, [...(reads.get(k.id) || []), e.value[i]]);
  }
  const names = new Map(p.values.map(v => [v.id, v.name]));
  const writes = new Map();
  for (let i = 0; i < (e.kernel || []).length; i++) if (e.writes[i]) writes.set(e.kernel[i], [...(writes.get(e.kernel[i]) || []), e.value[i]]);
  for (const k of p.kernels.filter(k => k.pass === "forward")) {
    const from = new Set((reads.get(k.id) || []).flatMap(v => [...(makers.get(v) || makers.get(names.get(v)) || [])])), box = boxOf.get(k.id);
    if (box) for (const b of from) if (b !== box) b.to.add(box);
    for (const v of writes.get(k.id) || []) for (const key of [v, names.get(v)]) makers.set(key, box ? new Set([box]) : from);
  }
}

function arrange(boxes) {
  for (const b of boxes) for (const t of b.to) if (t.order > b.order) t.row = Math.max(t.row, b.row + 1);
  const rows = [];
  for (const b of boxes) { (rows[b.row] = rows[b.row] || []).push(b); b.column = rows[b.row].length - 1; }
  return { rows: rows.length, columns: Math.max(1, ...rows.map(r => r ? r.length : 0)) };
}

function drawBox(p, b, most, onpick, onfold) {
  const share = b.cost / (p.cost || 1), ops = [...new Set(b.kernels.map(k => k.op).filter(x => x))], g = svg("g", { transform: `translate(${b.x} ${b.y})` });
  const frame = pressable(svg("rect", { class: "hot", width: BOX[0], height: BOX[1], rx: 9, role: "button", style: "fill:var(--card);stroke:var(--line);stroke-width:1.5" }), () => onpick(b));
  frame.setAttribute("aria-label", b.key);
  g.append(tipped(frame, `${b.key}\n${plural(b.kernels.length, "kernel")}, ${percent(share)} of the time\n${short(ops.join(", "), 120)}`),
    svg("rect", { x: 10, y: BOX[1] - 9, width: (BOX[0] - 20), height: 4, rx: 2, style: "fill:var(--soft)" }), svg("rect", { x: 10, y: BOX[1] - 9, width: (BOX[0] - 20) * b.cost / most, height: 4, rx: 2, style: "fill:var(--activation)" }),
    svg("text", { x: 12, y: 19, style: "font-weight:600;pointer-events:none" }, short(b.key, 24)),
    svg("text", { x: 12, y: 35, class: "faint", style: "pointer-events:none" }, short(b.folded ? plural(b.kernels.length, "kernel") : ops[0] || "", 18)),
    svg("text", { x: BOX[0] - 12, y: 35, "text-anchor": "end", class: "faint", style: "pointer-events:none" }, percent(share)));
  if (b.folded) {
    const more = pressable(svg("g", { class: "hot", role: "button", transform: `translate(${BOX[0] - 26} 8)` }, svg("rect", { width: 16, height: 16, rx: 4, style: "fill:var(--soft)" }), svg("text", { x: 8, y: 13, "text-anchor": "middle" }, "+")), () => onfold(b));
    more.setAttribute("aria-label", "Unfold " + b.key);
    g.append(more);
  }
  return g;
}

function drawGraph(p, boxes, onpick, onfold) {
  const size = arrange(boxes), most = Math.max(...boxes.map(b => b.cost), 1e-12), wide = Math.max(700, size.columns * (BOX[0] + GAP[0]) + 40);
  const perRow = new Map();
  for (const b of boxes) perRow.set(b.row, (perRow.get(b.row) || 0) + 1);
  for (const b of boxes) {
    const n = perRow.get(b.row);
    b.x = wide / 2 - n * (BOX[0] + GAP[0]) / 2 + b.column * (BOX[0] + GAP[0]) + GAP[0] / 2;
    b.y = 10 + b.row * (BOX[1] + GAP[1]);
  }
  const high = 20 + size.rows * (BOX[1] + GAP[1]), out = svg("svg", { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: "group", "aria-label": "Graph of layers", style: "display:block;margin:0 auto" });
  for (const b of boxes) for (const t of b.to) out.append(svg("path", { d: edgePath(b, t), style: `fill:none;stroke:var(--faint);stroke-width:1.4;opacity:.7${t.order < b.order ? ";stroke-dasharray:4 3" : ""}` }));
  out.append(...boxes.map(b => drawBox(p, b, most, onpick, onfold)));
  return out;
}

/* Straight to the next row; around the side when it skips rows in the same column. */
function edgePath(b, t) {
  const x0 = b.x + BOX[0] / 2, y0 = b.y + BOX[1], x1 = t.x + BOX[0] / 2, y1 = t.y;
  if (t.row === b.row + 1 || Math.abs(x0 - x1) > BOX[0]) return `M${x0},${y0}C${x0},${y0 + 18} ${x1},${y1 - 18} ${x1},${y1}`;
  const side = b.x + BOX[0] + 16 + Math.min(40, 4 * Math.abs(t.row - b.row));
  return `M${b.x + BOX[0]},${b.y + BOX[1] / 2}C${side},${b.y + BOX[1] / 2} ${side},${b.y + BOX[1]} ${side},${(y0 + y1) / 2}S${side},${t.y + BOX[1] / 2} ${t.x + BOX[0]},${t.y + BOX[1] / 2}`;
}

function boxDetail(p, b) {
  const weights = total(p.values, v => v.always && b.kernels.some(k => k.layer === v.layer) ? v.size : 0), top = [...b.kernels].sort((x, y) => y.cost - x.cost)[0];
  return [el("h2", {}, b.key), facts([["kernels", b.kernels.length], ["time", `${seconds(b.cost)} (${percent(b.cost / p.cost)})`], ["forward", seconds(total(b.kernels, k => k.pass === "forward" ? k.cost : 0))], ["backward", seconds(total(b.kernels, k => k.pass === "backward" ? k.cost : 0))],
    ["FLOP", flops(b.work)], ["always live", bytes(weights)], ["device", [...new Set(b.kernels.map(k => k.device))].join(", ")], ["source", sourceOf(b.first.layer)]]),
  el("div", { class: "bar", style: "margin-top:10px" }, button("Operations", () => go("operations", { filter: b.key })), button("Liveness", () => go("liveness", { device: top.device, step: liveness(p, top.device).steps.indexOf(top) })), button("Program", () => go("program", { kernel: top.id })))];
}

views.push({
  id: "graph", title: "Graph", draw(root, p) {
    const deepest = Math.max(1, ...p.layers.map(l => l.name.split(".").length)), open = new Set(), place = el("div", { class: "scroll", style: "max-height:78vh" });
    const detail = el("section", { class: "card side" }, el("p", { class: "faint" }, "Choose a layer. A + unfolds what lies under a name."));
    let depth = deepest;
    while (depth > 1 && boxesOf(p, depth, open).length > 40) depth--;
    const draw = () => {
      const boxes = boxesOf(p, depth, open);
      connect(p, boxes);
      place.replaceChildren(boxes.length ? drawGraph(p, boxes, b => detail.replaceChildren(...boxDetail(p, b)), b => { open.add(b.key); draw(); }) : el("p", { class: "faint" }, "No kernel has a layer."));
      shown.replaceChildren(sum("boxes", total(boxes, b => b.kernels.length), plural(total(boxes, b => b.kernels.length), "kernel")), ` of layers, ${seconds(total(boxes, b => b.cost))} of `, sum("cost", p.cost, seconds(p.cost)));
    };
    const shown = el("span", { class: "faint" });
    draw();
    root.append(el("div", { class: "row" }, card("Graph", el("div", { class: "bar" }, deepest > 1 ? select("Depth of names", Array.from({ length: deepest }, (_, i) => [i + 1, i + 1]), depth, d => { depth = Number(d); open.clear(); draw(); }) : null,
      el("span", { class: "grow" }), shown), place), detail));
  },
});
