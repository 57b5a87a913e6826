"use strict";
/* memory.js - a bar for each device or tile, and the largest values with where they come from. */

const BLOCK = [["always", "weight", "always live"], ["passing", "activation", "not always live"], ["gaps", "gap", "gaps"]];

/* The bars share one scale: the largest block or limit. The limit is a line. */
function deviceBars(p) {
  const blocks = p.devices.map(d => blockOf(p, d)), most = Math.max(1, ...blocks.map(b => Math.max(b.peak, b.limit < 4 * b.peak ? b.limit : 0)));
  const high = 30, left = 110, wide = 1100, room = wide - left - 240;
  const out = svg("svg", { viewBox: `0 0 ${wide} ${blocks.length * high + 8}`, width: "100%", role: "img", "aria-label": "Memory by device" });
  blocks.forEach((b, i) => {
    let x = left;
    const y = i * high + 6, d = p.devices[i], over = b.limit && b.peak > b.limit;
    out.append(svg("text", { x: 0, y: y + 14 }, `Device ${d.id} ${d.kind || ""}`));
    for (const [key, paint, words] of BLOCK) {
      const width = b[key] / most * room;
      out.append(tipped(svg("rect", { x, y, width: Math.max(0, width), height: high - 10, style: `fill:var(--${paint})` }), `${words}: ${bytes(b[key])}`));
      x += width;
    }
    if (b.limit && b.limit <= most) {
      const at = left + b.limit / most * room;
      out.append(tipped(svg("line", { x1: at, x2: at, y1: y - 4, y2: y + high - 6, style: "stroke:var(--bad);stroke-width:2" }), `the limit: ${bytes(b.limit)}`));
    }
    out.append(svg("text", { x: Math.max(x, b.limit && b.limit <= most ? left + b.limit / most * room : 0) + 8, y: y + 14, style: over ? "fill:var(--bad)" : null },
      b.limit ? `${bytes(b.peak)} of ${bytes(b.limit)}` : bytes(b.peak)));
  });
  return out;
}

/* One thin bar for each tile of a modelled device. */
function tileBars(p, device) {
  const tiles = p.tiles.filter(t => t.device === device), limit = p.devices.find(d => d.id === device).bytes / Math.max(1, tiles.length);
  const parts = [["always", "weight"], ["code", "state"], ["exchange", "input"], ["rest", "activation"], ["gaps", "gap"]];
  for (const t of tiles) t.rest = Math.max(0, t.peak - t.always - t.code - t.exchange - t.gaps);
  const most = Math.max(limit, ...tiles.map(t => t.peak)) * 1.05;
  const node = canvas(240, "Memory by tile", (pen, w, h, paint) => {
    const each = (w - 70) / tiles.length;
    for (const y of ticks(0, most, 5, 1024)) {
      pen.fillStyle = paint("line"); pen.fillRect(60, h - 20 - y / most * (h - 30), w - 70, 1);
      pen.fillStyle = paint("faint"); pen.textAlign = "right"; pen.fillText(bytes(y), 54, h - 16 - y / most * (h - 30));
    }
    tiles.forEach((t, i) => {
      let y = h - 20;
      for (const [key, name] of parts) {
        const high = t[key] / most * (h - 30);
        pen.fillStyle = paint(name); pen.fillRect(60 + i * each, y - high, Math.max(1, each), high);
        y -= high;
      }
    });
    pen.fillStyle = paint("bad"); pen.fillRect(60, h - 20 - limit / most * (h - 30), w - 70, 2);
    pen.fillStyle = paint("faint"); pen.textAlign = "left"; pen.fillText(`tiles 0 to ${tiles.length - 1}; the line is the limit of ${bytes(limit)}`, 60, h - 4);
  });
  node.addEventListener("mousemove", e => {
    const t = tiles[Math.floor((e.offsetX - 60) / ((node.clientWidth - 70) / tiles.length))];
    tip(e, t ? `tile ${t.tile}: ${bytes(t.peak)}\nalways live ${bytes(t.always)}\ncode ${bytes(t.code)}\nexchange ${bytes(t.exchange)}\nnot always live ${bytes(t.rest)}\ngaps ${bytes(t.gaps)}` : "");
  });
  node.addEventListener("mouseleave", e => tip(e, ""));
  return [el("div", { class: "legend" }, ...[["weight", "always live"], ["state", "code"], ["input", "exchange buffers"], ["activation", "not always live"], ["gap", "gaps"]].map(([c, n]) =>
    el("span", {}, el("i", { style: `background:var(--${c})` }), n))), node];
}

function valueColumns(p) {
  return [
    { title: "Value", text: true, wide: true, get: v => v.name },
    { title: "Kind", text: true, get: v => v.kind, show: v => v && [el("i", { class: "dot", style: `background:var(--${KINDS.includes(v) ? v : "constant"})` }), v] },
    { title: "Type", text: true, get: v => v.type },
    { title: "Bytes", get: v => v.size, show: bytes, total: "values" },
    { title: "Copies", get: v => v.depth || 1 },
    { title: "Device", get: v => v.device },
    { title: "Offset", get: v => v.offset, show: whole },
    { title: "Live", text: true, get: v => v.always ? "always" : `${v.first} – ${v.last}` },
    { title: "Layer", text: true, get: v => v.layer.name },
    { title: "Source", text: true, get: v => sourceOf(v.layer) },
  ];
}

views.push({
  id: "memory", title: "Memory", draw(root, p) {
    const peak = total(p.devices, d => d.peak), always = total(p.devices, d => d.always);
    root.append(card("Devices", el("div", { class: "bar" }, el("div", { class: "legend" }, ...BLOCK.map(([, c, n]) => el("span", {}, el("i", { style: `background:var(--${c})` }), n)),
      el("span", {}, el("i", { style: "background:var(--bad);width:2px" }), "limit")), el("span", { class: "grow" }),
      el("span", { class: "faint" }, sum("peak", peak, bytes(peak)), " in all, ", sum("always", always, bytes(always)), " always live")),
      p.run.refused ? el("p", { class: "bad" }, p.run.refused) : null, deviceBars(p)));
    if (p.tiles.length) {
      const place = el("div"), pick = d => place.replaceChildren(...tileBars(p, Number(d)));
      const with_ = p.devices.filter(d => p.tiles.some(t => t.device === d.id));
      pick(with_[0].id);
      root.append(card("Tiles", el("div", { class: "bar" }, select("Device", with_.map(d => [d.id, d.id]), with_[0].id, pick)), place));
    }
    const table = new Table({ columns: valueColumns(p), rows: p.values, sort: 3, label: "Values", name: "values",
      onrow: v => go("liveness", { device: v.device, value: v.id }) });
    root.append(card("Values", table.bar, table.node));
  },
});
