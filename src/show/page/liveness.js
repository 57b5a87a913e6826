"use strict";
/* liveness.js - what lives when: bytes by kind over the program's steps, and below on the same axis where
 * in the device's block each value lies. A step is a kernel, in the order of the device. */

const EDGE = 74;   // room for the axis at the left
const across = (live, w) => s => EDGE + s / live.n * (w - EDGE - 8);

function drawArea(pen, w, h, live, limit, at) {
  const peak = live.all[live.peak], most = max(peak, limit < 3 * peak ? limit : 0, 1) * 1.06, x = across(live, w), y = b => h - 8 - b / most * (h - 20);
  for (const b of ticks(0, most, 5, 1024)) {
    pen.box("line", EDGE, y(b), w - EDGE - 8, 1);
    pen.words("faint", bytes(b), EDGE - 8, y(b) + 4, "right");
  }
  const low = new Float64Array(live.n);
  for (const kind of live.kinds) {
    const line = live.by[kind];
    pen.beginPath();
    for (let s = 0; s < live.n; s++) { const b = y(low[s] + line[s]); pen.lineTo(x(s), b); pen.lineTo(x(s + 1), b); }
    for (let s = live.n - 1; s >= 0; s--) { pen.lineTo(x(s + 1), y(low[s])); pen.lineTo(x(s), y(low[s])); low[s] += line[s]; }
    pen.fillStyle = pen.paint(kind);
    pen.fill();
  }
  if (limit && limit <= most) pen.limit(EDGE, y(limit), w - EDGE - 8);
  pen.box("ink", x(at + 0.5) - 0.75, 0, 1.5, h);
}

/* Offset upwards, step to the right; a value is a box as long as it lives. */
function drawMap(pen, w, h, live, size, at, chosen) {
  const x = across(live, w), y = b => h - 22 - b / size * (h - 30);
  pen.box("soft", EDGE, 8, w - EDGE - 8, h - 30);
  for (const [v, from, to] of live.values.flatMap(v => v.offset == null ? [] : v.spans.map(s => [v, ...s]))) {
    const high = max(0.5, v.size / size * (h - 30)), wide = max(1, x(to + 1) - x(from)), top = y(v.offset + v.size);
    pen.globalAlpha = chosen && chosen !== v ? 0.35 : 0.9;
    pen.box(v.kind, x(from), top, wide, high);
    pen.globalAlpha = 1;
    if (high < 4) continue;
    pen.strokeStyle = pen.paint(chosen === v ? "ink" : "card");
    pen.lineWidth = chosen === v ? 2 : 0.6;
    pen.strokeRect(x(from), top, wide, high);
    if (high > 14 && wide > 40) pen.words("card", fitted(pen, v.name, wide - 8), x(from) + 4, top + high / 2 + 4);
  }
  for (const b of ticks(0, size, 5, 1024)) pen.words("faint", bytes(b), EDGE - 8, y(b) + 4, "right");
  for (const s of ticks(0, live.n, 10)) if (s % 1 === 0 && s < live.n) pen.words("faint", whole(s), x(s + 0.5), h - 6, "center");
  pen.box("ink", x(at + 0.5) - 0.75, 0, 1.5, h - 20);
}

function liveList(p, live, step) {
  const now = live.at(step).sort((a, b) => b.size - a.size), k = live.steps[step], all = total(now, v => v.size);
  return [h2(k ? `Step ${step}: ${k.label}` : "Always"),
    facts([["live", sum("live", all, bytes(all))], ["values", now.length], ["kernel", k && k.name], ["source", k && sourceOf(k.layer)]]), k ? links(p, k, "liveness") : "",
    el("table", {}, el("tbody", {}, ...now.slice(0, 200).map(v => el("tr", {}, el("td", { class: "text", title: v.name + " " + v.type }, dot(v.kind), v.name), el("td", {}, bytes(v.size)))))),
    now.length > 200 ? note(`and ${whole(now.length - 200)} smaller ones`) : ""];
}

views.push({
  id: "liveness", title: "Liveness", draw(root, p, args) {
    const largest = [...p.devices].sort((a, b) => b.peak - a.peak)[0], d = p.devices.find(x => x.id === Number(args.device)) || largest, live = liveness(p, d.id);
    const side = el("section", { class: "card side", "aria-live": "polite" }), chosen = live.values.find(v => v.id === Number(args.value)), size = max(1, d.peak, ...live.values.map(v => (v.offset || 0) + v.size));
    let at = args.step != null ? Number(args.step) : chosen ? chosen.from : live.peak;
    const area = canvas(260, "Bytes that live at each step, by kind", (pen, w, h) => drawArea(pen, w, h, live, d.bytes, at));
    const map = canvas(380, "Addresses of values over the steps", (pen, w, h) => drawMap(pen, w, h, live, size, at, chosen));
    const within = s => max(0, min(live.n - 1, floor(s))), stepAt = e => within((e.offsetX - EDGE) / (e.target.clientWidth - EDGE - 8) * live.n);
    const move = s => { at = within(s); side.replaceChildren(...liveList(p, live, at)); area.redraw(); map.redraw(); };
    for (const node of [area, map]) {
      on(node, "click", e => move(stepAt(e)));
      on(node, "keydown", e => {
        const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -live.n, End: live.n }[e.key];
        if (by) { e.preventDefault(); move(at + by); }
      });
    }
    on(area, "mousemove", e => { const s = stepAt(e); tip(e, `step ${s}: ${live.steps[s] ? live.steps[s].label : ""}\n${bytes(live.all[s])} live`); });
    on(map, "mousemove", e => {
      const s = stepAt(e), offset = (map.clientHeight - 22 - e.offsetY) / (map.clientHeight - 30) * size;
      const v = live.at(s).find(v => v.offset <= offset && offset < v.offset + v.size);
      tip(e, v && `${v.name} ${v.type}\n${v.kind}, ${bytes(v.size)} at ${whole(v.offset)}\n${v.always ? "always live" : `kernels ${v.first} to ${v.last}`}`);
    });
    move(at);
    root.append(div("row", div("main",
      card("Live bytes", div("bar", p.devices.length > 1 ? select("Device", p.devices.map(x => [x.id, x.id]), d.id, x => go("liveness", { device: x })) : null, legend(...live.kinds), grow(),
        button(["Peak ", sum("peak-live", live.all[live.peak], bytes(live.all[live.peak])), ` at step ${live.peak} of ${live.n}`], () => move(live.peak))), area,
      note("Click a step, or use ", ...keys("←", "→"), "to see what lives then.")),
      card("Addresses", map)), side));
  },
});
