"use strict";
/* operations.js - where the time goes: by layer, op, source line, pass or kernel, as a table and as a roofline. */

const GROUPINGS = {
  layer: ["layer", k => k.layer.name || "(no layer)"],
  op: ["op", k => k.op || "(none)"],
  source: ["source line", k => sourceOf(k.layer) || "(unknown)"],
  pass: ["pass", k => k.pass || "(none)"],
  part: ["layer and pass", partName],
  kernel: ["kernel", k => k.name || String(k.id)],
};

function operationColumns(p, title) {
  const rate = g => roofline(p, g.work, g.moved, g.cost);
  return [
    { title: title[0].toUpperCase() + title.slice(1), text: true, wide: true, get: g => g.key },
    { title: "Kernels", get: g => g.kernels.length, total: "kernels", show: whole },
    { title: "Runs a call", get: g => g.runs, show: n => n % 1 ? fixed(n) : whole(n) },
    p.measured ? { title: "Measured", get: g => g.measured, show: seconds, total: "measured" } : null,
    { title: "Modelled", get: g => g.modelled, show: seconds, total: "modelled" },
    { title: "Share", get: g => g.cost / (p.cost || 1), show: (x, row) => row ? [percent(x), meter(x)] : percent(x), plain: percent, total: "share" },
    { title: "FLOP", get: g => g.work, show: flops, total: "flops" },
    { title: "Moved", get: g => g.moved, show: bytes, total: "moved" },
    p.measured ? { title: "GFLOP/s", get: g => g.cost ? g.work / g.cost / 1e9 : null, show: x => fixed(x) } : null,
    p.measured ? { title: "GB/s", get: g => g.cost ? g.moved / g.cost / 1e9 : null, show: x => fixed(x) } : null,
    p.measured ? { title: "Of peak", get: g => (rate(g) || {}).of, show: x => percent(x, 0) } : null,
    p.measured ? { title: "Bound", text: true, get: g => (rate(g) || {}).bound || "" } : null,
    p.cycles.length ? { title: "Cycles", get: g => total(g.kernels, k => k.cycles ? (k.cycles.compute + k.cycles.exchange + k.cycles.sync + k.cycles.host) * k.runs : 0), show: whole, total: "cycles" } : null,
    p.cycles.length ? { title: "Exchange", get: g => total(g.kernels, k => k.cycles ? k.cycles.exchange * k.runs : 0), show: whole } : null,
    p.cycles.length ? { title: "Matrix unit", get: g => { const c = g.kernels.filter(k => k.cycles && k.cycles.matrix_use); return c.length ? total(c, k => k.cycles.matrix_use * k.cycles.compute) / total(c, k => k.cycles.compute) : null; }, show: x => percent(x, 0) } : null,
  ].filter(c => c);
}

/* Both axes are logarithms: what a kernel gets out of each byte, and how fast it is. */
function rooflinePlot(p, rows, onpick) {
  const peak = p.number("peak_gflops"), band = p.number("bandwidth_gbs"), dots = rows.filter(g => g.work > 0 && g.moved > 0 && g.cost > 0);
  if (!peak || !band || !dots.length || !p.measured) return el("p", { class: "faint" }, "A roofline needs measured times and the machine's peak.");
  const of = g => [Math.log10(g.work / g.moved), Math.log10(g.work / g.cost / 1e9)], points = dots.map(of);
  const lo = [Math.floor(Math.min(...points.map(q => q[0]), Math.log10(peak / band) - 1)), Math.floor(Math.max(Math.log10(peak) - 5, Math.min(...points.map(q => q[1]))))];
  const hi = [Math.ceil(Math.max(...points.map(q => q[0]), Math.log10(peak / band) + 1)), Math.ceil(Math.log10(peak) + 0.1)];
  const wide = 560, high = 300, x = v => 56 + (v - lo[0]) / (hi[0] - lo[0]) * (wide - 70), y = v => high - 34 - (v - lo[1]) / (hi[1] - lo[1]) * (high - 50);
  const out = svg("svg", { viewBox: `0 0 ${wide} ${high}`, width: "100%", role: "img", "aria-label": "Roofline" });
  for (let t = lo[0]; t <= hi[0]; t++) out.append(svg("line", { x1: x(t), x2: x(t), y1: y(lo[1]), y2: y(hi[1]), style: "stroke:var(--line)" }), svg("text", { x: x(t), y: high - 18, "text-anchor": "middle", class: "faint" }, t < 0 ? (10 ** t).toFixed(-t) : whole(10 ** t)));
  for (let t = lo[1]; t <= hi[1]; t++) out.append(svg("line", { x1: x(lo[0]), x2: x(hi[0]), y1: y(t), y2: y(t), style: "stroke:var(--line)" }), svg("text", { x: 50, y: y(t) + 4, "text-anchor": "end", class: "faint" }, t < 0 ? (10 ** t).toFixed(-t) : whole(10 ** t)));
  const ridge = Math.log10(peak / band), slope = v => Math.log10(band) + v, from = Math.max(lo[0], lo[1] - Math.log10(band));
  out.append(svg("path", { d: `M${x(from)},${y(slope(from))}L${x(ridge)},${y(Math.log10(peak))}L${x(hi[0])},${y(Math.log10(peak))}`, style: "fill:none;stroke:var(--accent);stroke-width:2" }),
    svg("text", { x: x(hi[0]) - 4, y: y(Math.log10(peak)) - 6, "text-anchor": "end" }, `${fixed(peak, 0)} GFLOP/s, ${fixed(band, 0)} GB/s`),
    svg("text", { x: wide / 2, y: high - 2, "text-anchor": "middle", class: "faint" }, "FLOP for each byte moved"),
    svg("text", { x: 12, y: high / 2, "text-anchor": "middle", class: "faint", transform: `rotate(-90 12 ${high / 2})` }, "GFLOP/s"));
  dots.sort((a, b) => b.cost - a.cost).slice(0, 600).forEach(g => {
    const [px, py] = of(g), passes = new Set(g.kernels.map(k => k.pass)), paint = passes.size === 1 ? g.first.pass : "accent";
    const dot = svg("circle", { class: "hot", cx: x(px), cy: y(Math.max(lo[1], py)), r: (3 + 14 * Math.sqrt(g.cost / p.cost)).toFixed(1), style: `fill:var(--${PASSES.includes(paint) ? paint : "accent"});fill-opacity:.65;stroke:var(--card)` });
    out.append(tipped(pressable(dot, () => onpick(g)), `${g.key}\n${fixed(10 ** py)} GFLOP/s, ${fixed(g.moved / g.cost / 1e9)} GB/s\n${percent(g.cost / p.cost)} of the time`));
  });
  return out;
}

/* A dozen of the kernels in a group, which lead to the program. */
function groupDetail(p, g) {
  const r = roofline(p, g.work, g.moved, g.cost), top = [...g.kernels].sort((a, b) => b.cost - a.cost).slice(0, 12);
  return [el("h2", {}, g.key), facts([["time", `${seconds(g.cost)} (${percent(g.cost / p.cost)})`], ["bound", r && p.measured ? `${r.bound}, ${percent(r.share, 0)} of its roof` : null], ["source", sourceOf(g.first.layer)]]),
    el("h3", {}, "Kernels"), el("ul", { class: "tree" }, ...top.map(k => el("li", {}, button([el("span", {}, k.label), el("small", {}, seconds(k.cost))], () => go("program", { kernel: k.id }))))),
    g.first.layer.name ? button("What lives then", () => go("liveness", { device: g.first.device, step: liveness(p, g.first.device).steps.indexOf(top[0]) })) : null];
}

views.push({
  id: "operations", title: "Operations", draw(root, p, args) {
    const by = GROUPINGS[args.by] ? args.by : "layer", rows = groups(p.kernels, GROUPINGS[by][1]), detail = el("div", {}, el("p", { class: "faint" }, "Choose a row or a dot."));
    const pick = g => detail.replaceChildren(...groupDetail(p, g).filter(x => x));
    const columns = operationColumns(p, GROUPINGS[by][0]);
    const table = new Table({ columns, rows, sort: columns.findIndex(c => c.title === "Share"), label: "Operations", name: "operations", filter: args.filter || "", onrow: pick });
    table.bar.prepend(select("By", Object.entries(GROUPINGS).map(([k, [name]]) => [k, name]), by, x => go("operations", { by: x, filter: table.words })));
    root.append(el("div", { class: "row" }, card("Roofline", legend([...PASSES, "several"], n => n === "several" ? "accent" : n), rooflinePlot(p, rows, pick)), el("section", { class: "card side" }, detail)),
      card(p.measured ? "Operations, measured in a call" : "Operations, as modelled for a call on one core", table.bar, table.node));
  },
});
