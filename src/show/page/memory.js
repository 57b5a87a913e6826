"use strict";
/* memory.js - a bar for each device or tile, and the largest values with where they come from. */

const BLOCK = [["weight", "always live", "always"], ["activation", "not always live", "passing"], ["gap", "gaps", "gaps"]];
const TILE = [["weight", "always live", "always"], ["state", "code", "code"], ["input", "exchange buffers", "exchange"], ["activation", "not always live", "rest"], ["gap", "gaps", "gaps"]];

/* The bars share one scale: the largest block, or limit that is near. */
function deviceBars(p) {
  const blocks = p.devices.map(d => blockOf(p, d)), most = max(1, ...blocks.map(b => max(b.peak, b.limit < 4 * b.peak ? b.limit : 0)));
  return bars(blocks.map((b, i) => ({ name: `Device ${p.devices[i].id} ${p.devices[i].kind || ""}`, limit: b.limit, parts: BLOCK.map(([paint, what, key]) => [paint, what, b[key]]),
    text: b.limit ? el("span", tone(b.over || b.peak - b.limit), `${bytes(b.peak)} of ${bytes(b.limit)}${b.over ? `, ${plural(b.over, "tile")} too full` : ""}`) : bytes(b.peak) })), most, bytes);
}

/* One thin bar for each tile of a modelled device. */
function tileBars(p, device) {
  const tiles = p.tiles.filter(t => t.device === device), limit = p.devices.find(d => d.id === device).bytes / max(1, tiles.length), most = max(limit, ...tiles.map(t => t.peak)) * 1.05;
  for (const t of tiles) t.rest = max(0, t.peak - t.always - t.code - t.exchange - t.gaps);
  const node = canvas(240, "Memory by tile", (pen, w, h) => {
    const each = (w - 70) / tiles.length, high = n => n / most * (h - 30);
    for (const n of ticks(0, most, 5, 1024)) {
      pen.box("line", 60, h - 20 - high(n), w - 70, 1);
      pen.words("faint", bytes(n), 54, h - 16 - high(n), "right");
    }
    let drawn = 60;   // whole pixels: bars that share one would make stripes
    tiles.forEach((t, i) => {
      const to = round(60 + (i + 1) * each);
      let y = h - 20;
      for (const [paint, , key] of to > drawn ? TILE : []) pen.box(paint, drawn, y -= high(t[key]), to - drawn, high(t[key]));
      drawn = to;
    });
    pen.limit(60, h - 20 - high(limit), w - 70);
    pen.words("faint", `tiles 0 to ${tiles.length - 1}; the line is the limit of ${bytes(limit)}`, 60, h - 4);
  });
  on(node, "mousemove", e => {
    const t = tiles[floor((e.offsetX - 60) / ((node.clientWidth - 70) / tiles.length))];
    tip(e, t && `tile ${t.tile}: ${bytes(t.peak)}` + TILE.map(([, name, key]) => `\n${name} ${bytes(t[key])}`).join(""));
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
      root.append(card("Tiles", div("bar", tiled.length < 2 ? null : select("Device", tiled.map(d => [d.id, d.id]), tiled[0].id, d => place.replaceChildren(tileBars(p, Number(d)))), legend(...TILE)), place));
    }
    const columns = valueColumns(p), table = new Table({ columns, rows: p.values, sort: 3, label: "Values", name: "values", onrow: v => go("liveness", { device: v.device, value: v.id }) });
    root.append(card("Values", table.bar, table.node));
  },
});
