"use strict";
/* memory.js - a bar for each device or tile, and the largest values with where they come from. */

const BLOCK = [["weight", "always live", "always"], ["activation", "not always live", "passing"], ["gap", "gaps", "gaps"]];
const TILE = [["weight", "always live", "always"], ["state", "code", "code"], ["input", "exchange buffers", "exchange"], ["activation", "not always live", "rest"], ["gap", "gaps", "gaps"]];

/* The bars share one scale: the largest block or limit. The limit is a line. */
function deviceBars(p) {
  const blocks = p.devices.map(d => blockOf(p, d)), most = Math.max(1, ...blocks.map(b => Math.max(b.peak, b.limit < 4 * b.peak ? b.limit : 0)));
  const high = 30, left = 110, wide = 1100, x = n => left + n / most * (wide - left - 240);
  const out = chart(wide, blocks.length * high + 4, "Memory by device");
  blocks.forEach((b, i) => {
    const y = i * high + 6, d = p.devices[i], shown = b.limit && b.limit <= most;
    let at = 0;
    out.append(words(0, y + 14, `Device ${d.id} ${d.kind || ""}`));
    for (const [paint, name, key] of BLOCK) {
      out.append(tipped(rect(x(at), y, x(b[key]) - left, high - 10, paint), `${name}: ${bytes(b[key])}`));
      at += b[key];
    }
    if (shown) out.append(tipped(rect(x(b.limit), y - 4, 2, high - 2, "bad"), `the limit: ${bytes(b.limit)}`));
    out.append(words(x(Math.max(at, shown ? b.limit : 0)) + 8, y + 14, b.limit ? `${bytes(b.peak)} of ${bytes(b.limit)}` : bytes(b.peak), b.limit && b.peak > b.limit ? { style: "fill:var(--bad)" } : {}));
  });
  return out;
}

/* One thin bar for each tile of a modelled device. */
function tileBars(p, device) {
  const tiles = p.tiles.filter(t => t.device === device), limit = p.devices.find(d => d.id === device).bytes / Math.max(1, tiles.length), most = Math.max(limit, ...tiles.map(t => t.peak)) * 1.05;
  for (const t of tiles) t.rest = Math.max(0, t.peak - t.always - t.code - t.exchange - t.gaps);
  const node = canvas(240, "Memory by tile", (pen, w, h) => {
    const each = (w - 70) / tiles.length, high = n => n / most * (h - 30);
    for (const n of ticks(0, most, 5, 1024)) {
      pen.box("line", 60, h - 20 - high(n), w - 70, 1);
      pen.words("faint", bytes(n), 54, h - 16 - high(n), "right");
    }
    tiles.forEach((t, i) => {
      let y = h - 20;
      for (const [paint, , key] of TILE) pen.box(paint, 60 + i * each, y -= high(t[key]), Math.max(1, each), high(t[key]));
    });
    pen.box("bad", 60, h - 20 - high(limit), w - 70, 2);
    pen.words("faint", `tiles 0 to ${tiles.length - 1}; the line is the limit of ${bytes(limit)}`, 60, h - 4);
  });
  node.addEventListener("mousemove", e => {
    const t = tiles[Math.floor((e.offsetX - 60) / ((node.clientWidth - 70) / tiles.length))];
    tip(e, t && [`tile ${t.tile}: ${bytes(t.peak)}`, ...TILE.map(([, name, key]) => `${name} ${bytes(t[key])}`)].join("\n"));
  });
  return node;
}

const valueColumns = p => [
  { title: "Value", text: true, wide: true, get: v => v.name },
  { title: "Kind", text: true, get: v => v.kind, show: v => [dot(KINDS.includes(v) ? v : "constant"), v] },
  { title: "Type", text: true, get: v => v.type },
  { title: "Bytes", get: v => v.size, show: bytes, total: "values" },
  p.values.some(v => v.depth > 1) ? { title: "Copies", get: v => v.depth || 1 } : null,
  p.devices.length > 1 ? { title: "Device", get: v => v.device } : null,
  { title: "Offset", get: v => v.offset, show: whole },
  { title: "Live", get: v => v.always || v.first == null ? -1 : v.first, show: (_, v) => v.always ? "always" : v.first == null ? "–" : `${v.first} – ${v.last}` },
  { title: "Source", text: true, get: v => sourceOf(v.layer) },
].filter(c => c);

views.push({
  id: "memory", title: "Memory", draw(root, p) {
    const peak = total(p.devices, d => d.peak), always = total(p.devices, d => d.always), tiled = p.devices.filter(d => p.tiles.some(t => t.device === d.id));
    root.append(card("Devices", div("bar", legend(...BLOCK, ["bad", "limit"]), grow(),
      el("span", FAINT, sum("peak", peak, bytes(peak)), " in all, ", sum("always", always, bytes(always)), " always live")),
    p.run.refused ? el("p", { class: "bad" }, p.run.refused) : null, deviceBars(p)));
    if (tiled.length) {
      const place = el("div", {}, tileBars(p, tiled[0].id));
      root.append(card("Tiles", div("bar", select("Device", tiled.map(d => [d.id, d.id]), tiled[0].id, d => place.replaceChildren(tileBars(p, Number(d)))), legend(...TILE)), place));
    }
    const columns = valueColumns(p), table = new Table({ columns, rows: p.values, sort: 3, label: "Values", name: "values", onrow: v => go("liveness", { device: v.device, value: v.id }) });
    root.append(card("Values", table.bar, table.node));
  },
});
