"use strict";
/* liveness.js - what lives when: bytes by kind over the program's steps, and below on the same axis where
 * in the device's block each value lies. A step is a kernel, in the order of the device. */

const EDGE = 74;   // room for the axis at the left

function drawArea(pen, w, h, paint, live, limit, at) {
  const most = Math.max(live.all[live.peak], limit && limit < 3 * live.all[live.peak] ? limit : 0, 1) * 1.06;
  const x = s => EDGE + s / live.n * (w - EDGE - 8), y = b => h - 8 - b / most * (h - 20);
  pen.textAlign = "right";
  for (const b of ticks(0, most, 5, 1024)) {
    pen.fillStyle = paint("line"); pen.fillRect(EDGE, y(b), w - EDGE - 8, 1);
    pen.fillStyle = paint("faint"); pen.fillText(bytes(b), EDGE - 8, y(b) + 4);
  }
  const low = new Float64Array(live.n);
  for (const kind of live.kinds) {
    const line = live.by[kind];
    pen.beginPath();
    for (let s = 0; s < live.n; s++) { const b = y(low[s] + line[s]); pen.lineTo(x(s), b); pen.lineTo(x(s + 1), b); }
    for (let s = live.n - 1; s >= 0; s--) { pen.lineTo(x(s + 1), y(low[s])); pen.lineTo(x(s), y(low[s])); }
    pen.fillStyle = paint(kind); pen.fill();
    for (let s = 0; s < live.n; s++) low[s] += line[s];
  }
  if (limit && limit <= most) { pen.fillStyle = paint("bad"); pen.fillRect(EDGE, y(limit), w - EDGE - 8, 2); }
  drawCursor(pen, x, h, paint, live, at);
}

function drawCursor(pen, x, h, paint, live, at) {
  pen.fillStyle = paint("ink");
  pen.fillRect(x(at + 0.5) - 0.75, 0, 1.5, h);
}

/* Offset upwards, step to the right; a value is a box as long as it lives. */
function drawMap(pen, w, h, paint, live, size, at, chosen) {
  const x = s => EDGE + s / live.n * (w - EDGE - 8), y = b => h - 22 - b / size * (h - 30);
  pen.fillStyle = paint("soft"); pen.fillRect(EDGE, 8, w - EDGE - 8, h - 30);
  for (const v of live.values) {
    if (v.offset == null) continue;
    const high = Math.max(0.5, v.size / size * (h - 30)), wide = Math.max(1, x(v.to + 1) - x(v.from));
    pen.fillStyle = paint(v.kind); pen.globalAlpha = chosen && chosen !== v ? 0.35 : 0.9;
    pen.fillRect(x(v.from), y(v.offset + v.size), wide, high);
    pen.globalAlpha = 1;
    if (high < 4) continue;
    pen.strokeStyle = chosen === v ? paint("ink") : paint("card"); pen.lineWidth = chosen === v ? 2 : 0.6;
    pen.strokeRect(x(v.from), y(v.offset + v.size), wide, high);
    if (high > 14 && wide > 40) {
      pen.fillStyle = paint("card"); pen.textAlign = "left";
      pen.fillText(fitted(pen, v.name, wide - 8), x(v.from) + 4, y(v.offset + v.size / 2) + 4);
    }
  }
  pen.textAlign = "right"; pen.fillStyle = paint("faint");
  for (const b of ticks(0, size, 5, 1024)) pen.fillText(bytes(b), EDGE - 8, y(b) + 4);
  pen.textAlign = "center";
  for (const s of ticks(0, live.n, 10).filter(s => s % 1 === 0 && s < live.n)) pen.fillText(whole(s), x(s + 0.5), h - 6);
  drawCursor(pen, x, h - 20, paint, live, at);
}

function liveList(live, step) {
  const now = live.at(step).sort((a, b) => b.size - a.size), k = live.steps[step], all = total(now, v => v.size);
  return [el("h2", {}, k ? `Step ${step}: ${k.label}` : "Always"),
    facts([["live", sum("live", all, bytes(all))], ["values", now.length], ["kernel", k && k.name], ["source", k && sourceOf(k.layer)]]),
    k ? el("div", { class: "bar", style: "margin-top:8px" }, button("Program", () => go("program", { kernel: k.id })), button("Operations", () => go("operations", { filter: k.layer.name }))) : null,
    el("table", {}, el("tbody", {}, ...now.slice(0, 200).map(v => el("tr", {},
      el("td", { class: "text", title: v.name + " " + v.type }, el("i", { class: "dot", style: `background:var(--${v.kind})` }), v.name), el("td", {}, bytes(v.size)))))),
    now.length > 200 ? el("p", { class: "faint" }, `and ${whole(now.length - 200)} smaller ones`) : null];
}

views.push({
  id: "liveness", title: "Liveness", draw(root, p, args) {
    const device = args.device != null ? Number(args.device) : [...p.devices].sort((a, b) => b.peak - a.peak)[0].id;
    const d = p.devices.find(x => x.id === device) || p.devices[0], live = liveness(p, d.id), side = el("section", { class: "card side", "aria-live": "polite" });
    const chosen = args.value != null ? live.values.find(v => v.id === Number(args.value)) : null;
    let at = args.step != null ? Number(args.step) : chosen ? chosen.from : live.peak;
    const size = Math.max(1, d.peak, ...live.values.map(v => (v.offset || 0) + v.size));
    const area = canvas(260, "Bytes that live at each step, by kind", (pen, w, h, paint) => drawArea(pen, w, h, paint, live, d.bytes, at), { tabindex: 0 });
    const map = canvas(380, "Addresses of values over the steps", (pen, w, h, paint) => drawMap(pen, w, h, paint, live, size, at, chosen), { tabindex: 0 });
    const stepAt = e => Math.max(0, Math.min(live.n - 1, Math.floor((e.offsetX - EDGE) / (e.target.clientWidth - EDGE - 8) * live.n)));
    const move = s => { at = Math.max(0, Math.min(live.n - 1, s)); side.replaceChildren(...liveList(live, at).filter(x => x)); area.redraw(); map.redraw(); };
    const under = e => {
      const s = stepAt(e), offset = (map.clientHeight - 22 - e.offsetY) / (map.clientHeight - 30) * size;
      return live.values.find(v => v.from <= s && s <= v.to && v.offset <= offset && offset < v.offset + v.size);
    };
    for (const node of [area, map]) {
      node.addEventListener("click", e => move(stepAt(e)));
      node.addEventListener("mouseleave", e => tip(e, ""));
      node.addEventListener("keydown", e => {
        const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -live.n, End: live.n }[e.key];
        if (by) { e.preventDefault(); move(at + by); }
      });
    }
    area.addEventListener("mousemove", e => { const s = stepAt(e); tip(e, `step ${s}: ${live.steps[s] ? live.steps[s].label : ""}\n${bytes(live.all[s])} live`); });
    map.addEventListener("mousemove", e => { const v = under(e); tip(e, v ? `${v.name} ${v.type}\n${v.kind}, ${bytes(v.size)} at ${whole(v.offset)}\n${v.always ? "always live" : `kernels ${v.first} to ${v.last}`}` : ""); });
    move(at);
    root.append(el("div", { class: "row" }, el("div", { style: "min-width:0" },
      card("Live bytes", el("div", { class: "bar" }, p.devices.length > 1 ? select("Device", p.devices.map(x => [x.id, x.id]), d.id, x => go("liveness", { device: x })) : null,
        legend(live.kinds), el("span", { class: "grow" }), button("To the peak", () => move(live.peak)),
        el("span", { class: "faint" }, "peak ", sum("peak-live", live.all[live.peak], bytes(live.all[live.peak])), ` at step ${live.peak} of ${live.n}`)), area,
        el("p", { class: "faint", style: "margin:6px 0 0" }, "Click a step, or use ", el("kbd", {}, "←"), " ", el("kbd", {}, "→"), ", to see what lives then.")),
      card("Addresses", map)), side));
  },
});
