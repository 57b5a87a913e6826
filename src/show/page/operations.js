"use strict";
/* operations.js - where the time goes: by layer, op, source line, pass or kernel, as a table and as a roofline. */

const GROUPINGS = {
  layer: k => k.layer.name || "(no layer)",
  op: k => k.op || "(none)",
  source: k => sourceOf(k.layer) || "(unknown)",
  pass: k => k.pass || "(none)",
  part: partName,
  kernel: k => k.name || String(k.id),
};
const BOUNDS = { memory: "activation", compute: "weight", overhead: "constant" };   // and their colours
const boundOf = r => r.bound && `${r.bound}, ${percent(r.share, 0)} of its roof`;
const capital = s => s[0].toUpperCase() + s.slice(1);
const pickGroup = (id, by, table) => select("By", Object.keys(GROUPINGS).map(k => [k, k]), by, x => go(id, { by: x, filter: table.words }));
const grouping = args => GROUPINGS[args.by] ? args.by : "layer";

/* Columns of times that were measured, and of an IPU's cycles, where there are such. */
function operationColumns(p, title) {
  const roof = g => roofline(p, g), cycles = (g, of) => total(g.kernels, k => k.cycles && of(k.cycles) * k.runs);
  return [
    { title: capital(title), text: true, wide: true, get: g => g.key },
    { title: "Kernels", get: g => g.kernels.length, total: "kernels", show: whole },
    { title: "Runs", get: g => g.runs, show: n => fixed(n, n % 1 ? 1 : 0) },
    ...p.measured ? [{ title: "Measured", get: g => g.measured, show: seconds, total: "measured" }] : [],
    { title: "Modelled", get: g => g.modelled, show: seconds, total: "modelled" },
    { title: "Share", get: g => g.cost / (p.cost || 1), show: (x, row) => row ? [percent(x), meter(x)] : percent(x), total: "share" },
    { title: "FLOP", get: g => g.work, show: flops, total: "flops" },
    { title: "Moved", get: g => g.moved, show: bytes, total: "moved" },
    ...p.measured ? [
      { title: "GFLOP/s", get: g => g.work / g.cost / 1e9, show: x => fixed(x) },
      { title: "GB/s", get: g => g.moved / g.cost / 1e9, show: x => fixed(x) },
      { title: "Of peak", get: g => roof(g).of, show: x => percent(x, 0) },
      { title: "Bound", text: true, get: g => roof(g).bound || "" }] : [],
    ...p.cycles.length ? [
      { title: "Cycles", get: g => cycles(g, c => c.compute + c.exchange + c.sync + c.host), show: whole, total: "cycles" },
      { title: "Exchange", get: g => cycles(g, c => c.exchange), show: whole },
      { title: "Matrix unit", get: g => cycles(g, c => c.matrix_use ? c.matrix_use * c.compute : 0) / cycles(g, c => c.matrix_use ? c.compute : 0), show: x => percent(x, 0) }] : [],
  ];
}

/* Both axes are logarithms: what a kernel gets out of each byte, and how fast it is. */
function rooflinePlot(p, rows, onpick) {
  const top = log10(p.number("peak_gflops")), band = log10(p.number("bandwidth_gbs"));
  const points = rows.filter(g => g.work > 0 && g.moved > 0).sort((a, b) => b.cost - a.cost).slice(0, 600).map(g => ({ g, x: log10(g.work / g.moved), y: log10(g.work / g.cost / 1e9) })).filter(q => isFinite(q.y));
  const xs = [...points.map(q => q.x), top - band - 1, top - band + 1], lo = [floor(min(...xs)), floor(max(top - 5, min(top - 2, ...points.map(q => q.y))))], hi = [ceil(max(...xs)), ceil(top + 0.1)];
  const wide = max(560, min(1680, innerWidth) - 458), high = 360, x = v => 56 + (v - lo[0]) / (hi[0] - lo[0]) * (wide - 84), y = v => high - 34 - (v - lo[1]) / (hi[1] - lo[1]) * (high - 50);
  const out = chart(wide, high, "Roofline"), tick = t => t < 0 ? (10 ** t).toFixed(-t) : whole(10 ** t);
  for (let t = lo[0]; t <= hi[0]; t++) out.append(rect(x(t), y(hi[1]), 1, y(lo[1]) - y(hi[1]), "line"), words(x(t), high - 18, tick(t), { ...FAINT, ...MIDDLE }));
  for (let t = lo[1]; t <= hi[1]; t++) out.append(rect(x(lo[0]), y(t), x(hi[0]) - x(lo[0]), 1, "line"), words(50, y(t) + 4, tick(t), { ...FAINT, ...END }));
  const from = max(lo[0], lo[1] - band);
  out.append(svg("path", { d: `M${x(from)},${y(band + from)}L${x(top - band)},${y(top)}L${x(hi[0])},${y(top)}`, style: "fill:none;stroke:var(--accent);stroke-width:2" }),
    words(wide / 2, high - 2, "FLOP for each byte moved", { ...FAINT, ...MIDDLE }),
    words(0, 0, "GFLOP/s", { ...FAINT, ...MIDDLE, transform: `translate(12 ${high / 2}) rotate(-90)` }));
  const marks = points.map(({ g, ...q }) => ({ g, cx: x(q.x), cy: y(max(lo[1], q.y)), r: 3 + 14 * Math.sqrt(g.cost / p.cost) })), taken = marks.map(({ cx, cy, r }) => [cx - r, cy - r, cx + r, cy + r]);
  for (let t = from; t < hi[0]; t += 0.02) taken.push([x(t), y(min(top, band + t)) - 2, x(t), y(min(top, band + t)) + 2]);
  for (const { g, cx, cy, r } of marks) {
    const paint = BOUNDS[roofline(p, g).bound] || "both", dot = svg("circle", { class: "hot", cx, cy, r: r.toFixed(1), style: `fill:var(--${paint});fill-opacity:.65;stroke:var(--card)` });
    out.append(tipped(pressable(dot, () => onpick(g)), `${g.key}\n${fixed(g.work / g.cost / 1e9)} GFLOP/s, ${fixed(g.moved / g.cost / 1e9)} GB/s\n${percent(g.cost / p.cost)} of the time`));
  }
  /* The largest have their names beside them, where those cover nothing. */
  for (const { g, cx, cy, r } of marks.slice(0, 12).filter(m => m.g.cost > 0.01 * p.cost)) {
    const long = 7 * tail(g.key).length, free = ([a, b, c, d]) => a > 56 && c < wide - 24 && b > 8 && d < high - 34 && taken.every(t => c < t[0] || t[2] < a || d < t[1] || t[3] < b);
    const at = [[cx + r + 3, cy - 8], [cx - r - 3 - long, cy - 8], [cx - long / 2, cy - r - 18], [cx - long / 2, cy + r + 2]].map(([a, b]) => [a, b, a + long, b + 16]).find(free);
    if (!at) continue;
    taken.push(at);
    out.append(words(at[0] + long / 2, at[1] + 12, tail(g.key), { class: "name", ...MIDDLE }));
  }
  return out;
}

/* A dozen of the kernels in a group, which lead to the program. */
function groupDetail(p, g) {
  const r = roofline(p, g), top = costly(g.kernels).slice(0, 8);
  return [h2(g.key), facts([["time", `${seconds(g.cost)} (${percent(g.cost / p.cost)})`], ["bound", boundOf(r)], ["source", sourceOf(g.first.layer)]]), links(p, top[0], "program", "operations"),
    h3("Kernels"), el("ul", { class: "tree" }, ...top.map(k => el("li", {}, button([span(k.label), el("small", {}, seconds(k.cost))], () => go("program", { kernel: k.id })))))];
}

views.push({
  id: "operations", title: "Operations", draw(root, p, args) {
    const by = grouping(args), rows = groups(p.kernels, GROUPINGS[by]), detail = side(), pick = g => detail.replaceChildren(...groupDetail(p, g));
    const columns = operationColumns(p, by), table = new Table({ columns, rows, sort: columns.findIndex(c => c.title === "Share"), label: "Operations", name: "operations", filter: args.filter, onrow: pick });
    table.bar.prepend(pickGroup("operations", by, table));
    if (table.chosen()[0]) pick(table.chosen()[0]);
    const all = card(p.measured ? "Operations, measured in a call" : "Operations, as modelled for a call on one core", table.bar, table.node);
    if (p.measured && p.number("peak_gflops")) root.append(div("row", card("Roofline", legend(...Object.entries(BOUNDS).map(([name, paint]) => [paint, name]), ["accent", `the machine: ${fixed(p.number("peak_gflops"), 0)} GFLOP/s, ${fixed(p.number("bandwidth_gbs"), 0)} GB/s`]), rooflinePlot(p, rows, pick)), detail), all);
    else root.append(div("row", all, detail));
  },
});
