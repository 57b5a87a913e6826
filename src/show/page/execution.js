"use strict";
/* execution.js - what ran when. A lane for the host, and for each device one of its sections and one for each
 * thread's kernels, all on one clock:
 *
 *   host       [copy in][call              ]
 *   device 0   [F0][F1]//////[B0]            sections; hatched: nothing to run
 *     thread   [k][k] [k]    [kk]
 *   device 1       \->[F0]                   arrows: what is sent
 *
 * Events of a lane are in order and do not overlap, so what a window shows is found by halving. Boxes narrower
 * than a pixel are drawn once for each pixel. */

const LANE = 22, TOP = 28, LEFT = 108;

/* Without measured events: each section of a micro-batch as soon as its device and the section before are
 * done, as long as it is modelled. */
function modelledEvents(p) {
  const rows = [], free = {}, done = {}, micros = min(16, max(1, p.number("accumulation")));
  const order = p.sections.flatMap((s, i) => Array.from({ length: s.phase ? 1 : micros }, (_, m) => ({ s, i, m, at: s.phase ? Infinity : m + i })));
  for (const { s, i, m } of order.sort((a, b) => a.at - b.at || a.i - b.i)) {
    let at = max(free[s.device] || 0, done[[i - 1, m]] || 0);
    const row = { call: 0, replica: 0, device: s.device, thread: 0, section: s.id, micro: m, start: at };
    for (const k of p.kernels) if (k.section === s) rows.push({ ...row, kernel: k.id, start: at, end: at += k.modelled || 0 });
    rows.push({ ...row, kernel: null, end: at });
    free[s.device] = done[[i, m]] = at;
  }
  rows.sort((a, b) => a.start - b.start || b.end - a.end);
  return Object.assign(Object.fromEntries(Object.keys(rows[0] || {}).map(c => [c, rows.map(r => r[c])])), { length: rows.length });
}

/* Lanes from top to bottom, each with the numbers of its events. */
function lanesOf(e, hosts) {
  const lanes = new Map(), lane = (key, more) => lanes.get(key) || lanes.set(key, { events: [], ...more }).get(key);
  for (const h of hosts) lane("host " + h.thread, { hosts: [], name: "host", order: -1e6 + (h.thread || 0) }).hosts.push(h);
  for (let i = 0; i < e.length; i++) {
    const device = e.device[i], replica = e.replica[i] || 0, thread = e.thread[i] || 0, order = replica * 1e6 + device * 1e3;
    lane(order, { order, key: `${replica} ${device}`, name: (replica ? `r${replica} ` : "") + "device " + device, sections: true });
    lane(e.kernel[i] == null ? order : order + 1 + thread, { order: order + 1 + thread, name: "   thread " + thread }).events.push(i);
  }
  return [...lanes.values()].sort((a, b) => a.order - b.order);
}

class Timeline {
  constructor(p, onpick) {
    const hosts = p.measured ? p.hosts : [];
    Object.assign(this, { p, onpick, chosen: -1, e: p.measured ? p.event : modelledEvents(p) });
    this.lanes = lanesOf(this.e, hosts);
    this.arrows = this.findSends();
    this.lo = min(this.e.start ? this.e.start[0] : 0, ...hosts.map(h => h.start));
    this.hi = (this.e.end || []).reduce((a, b) => max(a, b), max(this.lo + 1e-9, ...hosts.map(h => h.end)));
    this.runs = p.spans.length ? p.spans : [{ start: this.lo, end: this.hi }];
    const first = p.typical || this.runs[0];
    this.open(first, false);
    this.node = canvas(TOP + this.lanes.length * LANE + 6, "What ran when; arrows pan, plus and minus zoom", (pen, w, h) => this.draw(pen, w, h));
    this.listen();
  }
  /* A section's end on one device, and the next start on the other of the same micro-batch. */
  findSends() {
    const e = this.e, bySection = new Map(), waiting = new Map(), out = [], laneOf = new Map(this.lanes.map((l, i) => [l.key, i]));
    const push = (map, key, x) => map.has(key) ? map.get(key).push(x) : map.set(key, [x]);
    for (const s of new Map(this.p.sends.map(s => [`${s.section} ${s.to_device}`, s])).values()) push(bySection, s.section, s.to_device);
    for (let i = 0; i < e.length; i++) {
      if (e.kernel[i] != null) continue;
      const at = d => `${e.replica[i] || 0} ${d}`, key = at(e.device[i]) + " " + e.micro[i], list = waiting.get(key) || [];
      for (const j of list) if (e.end[j] <= e.start[i] + 1e-9) out.push({ from: j, to: i, a: laneOf.get(at(e.device[j])), b: laneOf.get(at(e.device[i])) });
      waiting.set(key, list.filter(j => e.end[j] > e.start[i] + 1e-9));
      for (const d of bySection.get(e.section[i]) || []) push(waiting, at(d) + " " + e.micro[i], i);
    }
    return out;
  }
  get span() { return this.to - this.from; }
  x(t) { return LEFT + (t - this.from) / this.span * (this.width - LEFT); }
  time(x) { return this.from + (x - LEFT) / (this.width - LEFT) * this.span; }
  of(i) { return { k: this.p.kernelById.get(this.e.kernel[i]), s: this.p.sectionById.get(this.e.section[i]) || {} }; }
  name(i) { const { k, s } = this.of(i); return k ? k.label : `${s.label} #${this.e.micro[i]}`; }
  draw(pen, w, h) {
    this.width = w;
    pen.box("card", 0, 0, w, h);
    const marks = ticks(this.from - this.zero, this.to - this.zero, 8), labels = timesOf(marks);
    marks.forEach((t, i) => {
      const x = this.x(t + this.zero);
      pen.box("line", x, TOP - 6, 1, h);
      pen.words("faint", labels[i], max(LEFT + 14, min(x, w - 24)), 14, "center");
    });
    this.texts = [];   // above the arrows
    this.lanes.forEach((l, i) => this.drawLane(pen, w, TOP + i * LANE, l));
    this.drawArrows(pen);
    for (const [text, x, y] of this.texts) pen.words("card", text, x, y);
    pen.box("card", 0, 0, LEFT - 4, h);
    this.lanes.forEach((l, i) => pen.words(l.sections || l.hosts ? "ink" : "faint", l.name, 4, TOP + i * LANE + 15));
  }
  drawLane(pen, w, y, l) {
    let last = -1;
    const box = (t0, t1, paint, text, edge) => {
      const x0 = max(LEFT, this.x(t0)), wide = min(w, this.x(t1)) - x0;
      if (wide < 1 && floor(x0) === last && !edge) return;
      last = floor(x0);
      pen.box(paint, x0, y + 2, max(1, wide > 4 ? wide - 1 : wide), LANE - 4);
      if (edge) { pen.strokeStyle = pen.paint("ink"); pen.lineWidth = 2; pen.strokeRect(x0, y + 2, max(2, wide - 1), LANE - 4); }
      if (wide > (l.sections ? 20 : 44)) this.texts.push([fitted(pen, text(), wide - 5), x0 + 3, y + 15]);
    };
    if (l.sections) this.shade(pen, w, y);
    for (const h of l.hosts || []) if (h.end >= this.from && h.start <= this.to) box(h.start, h.end, "host", () => h.name || h.kind);
    for (let n = this.firstAfter(l, this.from); n < l.events.length && this.e.start[l.events[n]] <= this.to; n++) {
      const i = l.events[n], { k, s } = this.of(i), is = k ? k.pass : s.kind;
      box(this.e.start[i], this.e.end[i], PASSES.includes(is) ? is : "both", () => k ? k.label : (s.label || "S")[0].toUpperCase() + this.e.micro[i], i === this.chosen);
    }
  }
  /* Hatched: what sections do not cover stays so, and is a device that has nothing to run. */
  shade(pen, w, y) {
    const x0 = max(LEFT, this.x(this.runs[0].start)), x1 = min(w, this.x(this.runs[this.runs.length - 1].end));
    pen.save();
    pen.beginPath(); pen.rect(x0, y + 2, max(0, x1 - x0), LANE - 4); pen.clip();
    pen.strokeStyle = pen.paint("hatch"); pen.lineWidth = 2; pen.beginPath();
    for (let x = x0 - LANE; x < x1; x += 8) { pen.moveTo(x, y + LANE); pen.lineTo(x + LANE, y); }
    pen.stroke(); pen.restore();
  }
  drawArrows(pen) {
    const seen = this.arrows.filter(a => this.e.end[a.from] < this.to && this.e.start[a.to] > this.from && a.a != null && a.b != null);
    if (seen.length > 400) return;
    pen.strokeStyle = pen.fillStyle = pen.paint("ink"); pen.lineWidth = 1; pen.globalAlpha = 0.55;
    for (const { from, to, a, b } of seen) {
      const x0 = this.x(this.e.end[from]), x1 = this.x(this.e.start[to]), down = b > a ? 1 : -1, y0 = TOP + (a + 0.5) * LANE + down * 9, y1 = TOP + (b + 0.5) * LANE - down * 9;
      pen.beginPath(); pen.moveTo(x0, y0); pen.bezierCurveTo(x0, y0 + down * 14, x1, y1 - down * 16, x1, y1 - down * 4); pen.stroke();
      pen.beginPath(); pen.moveTo(x1, y1); pen.lineTo(x1 - 3.5, y1 - down * 7); pen.lineTo(x1 + 3.5, y1 - down * 7); pen.fill();
    }
    pen.globalAlpha = 1;
  }
  /* The first event of a lane that ends after t. */
  firstAfter(l, t) {
    let lo = 0, hi = l.events.length;
    while (lo < hi) { const mid = (lo + hi) >> 1; if (this.e.end[l.events[mid]] < t) lo = mid + 1; else hi = mid; }
    return lo;
  }
  show(from, to) {
    const span = min(to - from, this.hi - this.lo), at = max(this.lo, min(this.hi - span, from));
    [this.from, this.to] = [at, at + span];
    this.node.redraw();
  }
  /* A call from end to end; the clock begins with it. */
  open(call, redraw = true) {
    [this.zero, this.from, this.to] = [call.start, call.start, call.end];
    if (redraw) this.node.redraw();
  }
  zoom(factor, about = (this.from + this.to) / 2) {
    const span = max((this.hi - this.lo) * 1e-6 + 1e-8, this.span * factor), from = about - (about - this.from) / this.span * span;
    this.show(from, from + span);
  }
  pan(share) { const d = share * this.span; this.show(this.from + d, this.to + d); }
  /* What lies under the pointer: an event's number, or an event of the host. */
  hit(e) {
    const l = this.lanes[floor((e.offsetY - TOP) / LANE)], t = this.time(e.offsetX), slack = this.span / this.width;
    if (!l || e.offsetX < LEFT) return {};
    if (l.hosts) return { host: l.hosts.filter(h => h.start - slack <= t && t <= h.end + slack).pop() };
    const i = l.events[this.firstAfter(l, t - slack)];
    return i != null && this.e.start[i] - slack <= t ? { i } : {};
  }
  pick(i) { this.chosen = i; this.onpick(i); this.node.redraw(); }
  /* To the next event, or the one before, of the lane where one is chosen. */
  step(by) {
    const l = this.lanes.find(l => l.events.includes(this.chosen)) || this.lanes.find(l => l.events.length), n = l ? l.events.indexOf(this.chosen) : 0;
    if (!l) return;
    const i = l.events[n < 0 ? this.firstAfter(l, this.from) : max(0, min(l.events.length - 1, n + by))], half = this.span / 2;
    if (this.e.start[i] < this.from || this.e.end[i] > this.to) this.show(this.e.start[i] - half, this.e.start[i] + half);
    this.pick(i);
  }
  listen() {
    const keys = { ArrowLeft: () => this.pan(-0.15), ArrowRight: () => this.pan(0.15), ArrowUp: () => this.zoom(0.7), ArrowDown: () => this.zoom(1.4), "+": () => this.zoom(0.7), "-": () => this.zoom(1.4),
      "0": () => this.show(this.lo, this.hi), "]": () => this.step(1), "[": () => this.step(-1) };
    let held = null;
    on(this.node, "wheel", e => { e.preventDefault(); e.shiftKey ? this.pan(Math.sign(e.deltaY) * 0.1) : this.zoom(e.deltaY > 0 ? 1.25 : 0.8, this.time(e.offsetX)); });
    on(this.node, "pointerdown", e => { held = { x: e.offsetX, from: this.from, to: this.to }; this.node.setPointerCapture(e.pointerId); });
    on(this.node, "pointermove", e => {
      if (!held) return this.note(e);
      held.moved = held.moved || abs(held.x - e.offsetX) > 3;
      const d = (held.x - e.offsetX) / (this.width - LEFT) * (held.to - held.from);
      if (held.moved) this.show(held.from + d, held.to + d);
    });
    on(this.node, "pointerup", e => { const { i } = this.hit(e); if (held && !held.moved && i != null) this.pick(i); held = null; });
    on(this.node, "keydown", e => { if (keys[e.key] && !e.ctrlKey && !e.metaKey) { e.preventDefault(); keys[e.key](); } });
  }
  note(e) {
    const { host: h, i } = this.hit(e);
    tip(e, h ? `${h.kind} ${h.name}\n${seconds(h.end - h.start)}` : i != null ? `${this.name(i)}\n${seconds(this.e.end[i] - this.e.start[i])}` : "");
  }
  detail(i) {
    const e = this.e, { k, s } = this.of(i), long = e.end[i] - e.start[i];
    return [h2(this.name(i)), facts([["took", seconds(long)], ["call", e.call[i]], ["micro-batch", e.micro[i]], ["device", e.device[i]], ["thread", k && e.thread[i]], ["section", s.label],
      ["speed", k && k.flops ? `${fixed(k.flops / long / 1e9)} GFLOP/s` : null], ["source", k && sourceOf(k.layer)]]), k ? links(this.p, k) : ""];
  }
}

views.push({
  id: "execution", title: "Execution", draw(root, p) {
    const detail = section("card"), busy = total(p.kernels, k => k.measured), calls = p.spans.map(s => [s.call, s.call]);
    const line = new Timeline(p, i => detail.replaceChildren(...line.detail(i)));
    const hottest = costly(p.kernels)[0], first = (line.e.kernel || []).findIndex((k, i) => hottest && k === hottest.id && line.e.start[i] >= line.from);
    if (first >= 0) line.pick(first);
    root.append(card(p.measured ? "Execution" : "Execution, as modelled on one core", div("bar", legend(...PASSES.filter(x => p.kernels.some(k => k.pass === x)), ["both", "forward and backward"], ...p.measured ? ["host"] : []), grow(),
      calls.length > 1 ? select("Call", calls, p.typical.call, c => line.open(p.spans.find(s => s.call === Number(c)))) : null,
      button("−", () => line.zoom(1.6), { "aria-label": "Zoom out" }), button("+", () => line.zoom(0.6), { "aria-label": "Zoom in" }), button("All", () => line.show(line.lo, line.hi))), line.node,
    note(...p.measured ? [sum("events", p.events, plural(p.events, "event")), p.events > p.event.length ? `, the first ${whole(p.event.length)} drawn` : "", " measured, kernels ", sum("busy", busy, seconds(busy)), " a call. "] : ["Nothing was measured. "], "The wheel zooms, dragging pans; so do ",
      ...keys("←", "→", "+", "−", "0"), "and ", ...keys("[", "]"), "go from event to event.")), detail);
  },
});
