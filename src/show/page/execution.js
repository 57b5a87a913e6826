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

/* Without measured events: the sections one after the other, as modelled, for one micro-batch. */
function modelledEvents(p) {
  const e = { call: [], replica: [], device: [], thread: [], kernel: [], section: [], micro: [], start: [], end: [] };
  const add = (device, kernel, section, start, end) => Object.entries({ call: 0, replica: 0, device, thread: 0, kernel, section, micro: 0, start, end }).forEach(([k, v]) => e[k].push(v));
  let at = 0;
  for (const s of p.sections) {
    const kernels = p.kernels.filter(k => k.section === s), long = total(kernels, k => k.modelled);
    if (!kernels.length) continue;
    add(s.device, null, s.id, at, at + long);
    for (const k of kernels) { add(s.device, k.id, s.id, at, at + (k.modelled || 0)); at += k.modelled || 0; }
  }
  e.length = e.start.length;
  return e;
}

/* Lanes from top to bottom, each with the numbers of its events. */
function lanesOf(p, e) {
  const lanes = new Map(), lane = (key, more) => lanes.get(key) || lanes.set(key, { events: [], ...more }).get(key);
  for (const h of p.hosts) lane("host " + h.thread, { host: true, name: "host", order: -1e6 + (h.thread || 0), hosts: [] }).hosts.push(h);
  for (let i = 0; i < e.length; i++) {
    const whole = e.kernel[i] == null, at = (e.replica[i] || 0) * 1e6 + e.device[i] * 1e3;
    const l = whole ? lane(`s ${at}`, { order: at, name: (e.replica[i] ? `r${e.replica[i]} ` : "") + "device " + e.device[i], device: e.device[i], replica: e.replica[i], sections: true })
      : lane(`k ${at} ${e.thread[i]}`, { order: at + 1 + (e.thread[i] || 0), name: "thread " + (e.thread[i] || 0), device: e.device[i], replica: e.replica[i] });
    l.events.push(i);
  }
  return [...lanes.values()].sort((a, b) => a.order - b.order);
}

class Timeline {
  constructor(p, onpick) {
    this.p = p;
    this.e = p.measured ? p.event : modelledEvents(p);
    this.lanes = lanesOf(p, this.e);
    this.onpick = onpick;
    this.chosen = -1;
    this.arrows = this.findSends();
    const ends = [...p.hosts.map(h => h.end), ...this.e.end], starts = [...p.hosts.map(h => h.start), ...this.e.start];
    this.lo = starts.reduce((a, b) => Math.min(a, b), Infinity);
    this.hi = ends.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!isFinite(this.lo)) [this.lo, this.hi] = [0, 1];
    const first = p.spans[0];
    [this.from, this.to] = first ? [first.start, first.end] : [this.lo, this.hi];
    this.node = canvas(TOP + this.lanes.length * LANE + 6, "What ran when; arrows pan, plus and minus zoom", (pen, w, h, paint) => this.draw(pen, w, h, paint), { tabindex: 0 });
    this.listen();
  }
  /* A section's end on one device, and the next start on the other of the same micro-batch. */
  findSends() {
    const e = this.e, pairs = new Map(), out = [], waiting = new Map();
    for (const s of this.p.sends) pairs.set(`${s.section} ${s.to_device}`, s);
    const laneOf = new Map(this.lanes.map((l, i) => [l.sections ? `${l.replica} ${l.device}` : "", i]));
    const bySection = new Map();
    for (const s of pairs.values()) bySection.set(s.section, [...(bySection.get(s.section) || []), s]);
    for (let i = 0; i < e.length; i++) {
      if (e.kernel[i] != null) continue;
      const key = `${e.replica[i]} ${e.device[i]} ${e.micro[i]}`, list = waiting.get(key) || [];
      for (const j of list.filter(j => e.end[j] <= e.start[i] + 1e-9)) out.push({ from: j, to: i, a: laneOf.get(`${e.replica[j]} ${e.device[j]}`), b: laneOf.get(`${e.replica[i]} ${e.device[i]}`) });
      waiting.set(key, list.filter(j => e.end[j] > e.start[i] + 1e-9));
      for (const s of bySection.get(e.section[i]) || []) {
        const to = `${e.replica[i]} ${s.to_device} ${e.micro[i]}`;
        waiting.set(to, [...(waiting.get(to) || []), i]);
      }
    }
    return out;
  }
  x(t) { return LEFT + (t - this.from) / (this.to - this.from) * (this.width - LEFT); }
  time(x) { return this.from + (x - LEFT) / (this.width - LEFT) * (this.to - this.from); }
  name(i) {
    const k = this.p.kernelById.get(this.e.kernel[i]), s = this.p.sectionById.get(this.e.section[i]);
    return k ? k.label : `${s ? s.name || s.kind : "section"} ${this.e.micro[i] == null ? "" : "#" + this.e.micro[i]}`;
  }
  paintOf(i) {
    const k = this.p.kernelById.get(this.e.kernel[i]), s = this.p.sectionById.get(this.e.section[i]), is = k ? k.pass : s && s.kind;
    return PASSES.includes(is) ? is : "accent";
  }
  draw(pen, w, h, paint) {
    this.width = w;
    this.drawClock(pen, w, h, paint);
    this.lanes.forEach((l, i) => this.drawLane(pen, w, TOP + i * LANE, paint, l));
    this.drawArrows(pen, paint);
    pen.fillStyle = paint("card"); pen.fillRect(0, TOP, LEFT - 4, h);
    pen.textAlign = "left";
    this.lanes.forEach((l, i) => { pen.fillStyle = paint(l.sections || l.host ? "ink" : "faint"); pen.fillText((l.sections || l.host ? "" : "   ") + l.name, 4, TOP + i * LANE + 15); });
  }
  drawClock(pen, w, h, paint) {
    pen.fillStyle = paint("card"); pen.fillRect(0, 0, w, h);
    pen.textAlign = "center";
    const start = this.p.spans.length ? this.p.spans[0].start : this.lo;
    for (const t of ticks(this.from - start, this.to - start, 8)) {
      const x = this.x(t + start);
      if (x < LEFT) continue;
      pen.fillStyle = paint("line"); pen.fillRect(x, TOP - 6, 1, h);
      pen.fillStyle = paint("faint"); pen.fillText(seconds(t), x, 14);
    }
  }
  drawLane(pen, w, y, paint, l) {
    if (l.sections) this.shade(pen, w, y, paint, l);
    let last = -1;
    const box = (t0, t1, fill, text, edge) => {
      const x0 = Math.max(LEFT, this.x(t0)), x1 = Math.min(w, this.x(t1)), wide = x1 - x0;
      if (wide < 1 && Math.floor(x0) === last && !edge) return;
      last = Math.floor(x0);
      pen.fillStyle = paint(fill); pen.fillRect(x0, y + 2, Math.max(1, wide - (wide > 4 ? 1 : 0)), LANE - 4);
      if (edge) { pen.strokeStyle = paint("ink"); pen.lineWidth = 2; pen.strokeRect(x0, y + 2, Math.max(2, wide - 1), LANE - 4); }
      if (wide > 26) { pen.fillStyle = paint("card"); pen.textAlign = "left"; pen.fillText(fitted(pen, text(), wide - 8), x0 + 4, y + 15); }
    };
    if (l.host) for (const hst of l.hosts) { if (hst.end >= this.from && hst.start <= this.to) box(hst.start, hst.end, "host", () => hst.name ? `${hst.kind} ${hst.name}` : hst.kind); }
    for (let n = this.firstAfter(l, this.from); n < l.events.length && this.e.start[l.events[n]] <= this.to; n++) {
      const i = l.events[n];
      box(this.e.start[i], this.e.end[i], this.paintOf(i), () => this.name(i), i === this.chosen);
    }
  }
  /* Hatched where the device has nothing to run, within the calls. */
  shade(pen, w, y, paint, l) {
    const x0 = Math.max(LEFT, this.x(this.p.spans.length ? this.p.spans[0].start : this.lo)), x1 = Math.min(w, this.x(this.p.spans.length ? this.p.spans[this.p.spans.length - 1].end : this.hi));
    if (x1 <= x0) return;
    pen.save();
    pen.beginPath(); pen.rect(x0, y + 2, x1 - x0, LANE - 4); pen.clip();
    pen.strokeStyle = paint("hatch"); pen.lineWidth = 2; pen.beginPath();
    for (let x = x0 - LANE; x < x1; x += 8) { pen.moveTo(x, y + LANE); pen.lineTo(x + LANE, y); }
    pen.stroke(); pen.restore();
  }
  drawArrows(pen, paint) {
    const seen = this.arrows.filter(a => this.e.end[a.from] < this.to && this.e.start[a.to] > this.from && a.a != null && a.b != null);
    if (seen.length > 400) return;
    pen.strokeStyle = paint("ink"); pen.fillStyle = paint("ink"); pen.lineWidth = 1; pen.globalAlpha = 0.55;
    for (const { from, to, a, b } of seen) {
      const x0 = this.x(this.e.end[from]), x1 = this.x(this.e.start[to]), y0 = TOP + a * LANE + LANE / 2, y1 = TOP + b * LANE + LANE / 2, up = y1 < y0 ? 1 : -1;
      pen.beginPath(); pen.moveTo(x0, y0); pen.bezierCurveTo(x0 + 10, y0, x1 - 10, y1, x1, y1 + up * 6); pen.stroke();
      pen.beginPath(); pen.moveTo(x1, y1 + up * 4); pen.lineTo(x1 - 4, y1 + up * 11); pen.lineTo(x1 + 4, y1 + up * 11); pen.fill();
    }
    pen.globalAlpha = 1;
  }
  /* The first event of a lane that ends after t. */
  firstAfter(l, t) {
    let lo = 0, hi = l.events.length;
    while (lo < hi) { const mid = (lo + hi) >> 1; if (this.e.end[l.events[mid]] < t) lo = mid + 1; else hi = mid; }
    return lo;
  }
  zoom(factor, about = (this.from + this.to) / 2) {
    const least = (this.hi - this.lo) * 1e-6 + 1e-8, span = Math.min(this.hi - this.lo, Math.max(least, (this.to - this.from) * factor)), share = (about - this.from) / (this.to - this.from);
    this.show(about - share * span, about - share * span + span);
  }
  show(from, to) {
    const span = Math.min(to - from, this.hi - this.lo), at = Math.max(this.lo, Math.min(this.hi - span, from));
    [this.from, this.to] = [at, at + span];
    this.node.redraw();
  }
  pan(share) { const d = share * (this.to - this.from); this.show(this.from + d, this.to + d); }
  hit(e) {
    const l = this.lanes[Math.floor((e.offsetY - TOP) / LANE)], t = this.time(e.offsetX), slack = (this.to - this.from) / this.width;
    if (!l || e.offsetX < LEFT) return {};
    if (l.host) return { host: l.hosts.filter(h => h.start - slack <= t && t <= h.end + slack).pop() };
    const i = l.events[this.firstAfter(l, t - slack)];
    return i != null && this.e.start[i] - slack <= t ? { i, lane: l } : {};
  }
  pick(i) { this.chosen = i; this.onpick(i); this.node.redraw(); }
  /* To the next or the one before of the lane where something is chosen. */
  step(by) {
    const l = this.lanes.find(l => l.events.includes(this.chosen)) || this.lanes.find(l => l.events.length);
    if (!l) return;
    const n = l.events.indexOf(this.chosen), i = l.events[Math.max(0, Math.min(l.events.length - 1, n < 0 ? this.firstAfter(l, this.from) : n + by))];
    this.pick(i);
    if (this.e.start[i] < this.from || this.e.end[i] > this.to) this.show(this.e.start[i] - (this.to - this.from) / 2, this.e.start[i] + (this.to - this.from) / 2);
  }
  listen() {
    let held = null;
    const n = this.node;
    n.addEventListener("wheel", e => { e.preventDefault(); e.shiftKey ? this.pan(Math.sign(e.deltaY) * 0.1) : this.zoom(e.deltaY > 0 ? 1.25 : 0.8, this.time(e.offsetX)); }, { passive: false });
    n.addEventListener("pointerdown", e => { held = { x: e.offsetX, from: this.from, to: this.to, moved: false }; n.setPointerCapture(e.pointerId); });
    n.addEventListener("pointermove", e => {
      if (!held) return this.note(e);
      const d = (held.x - e.offsetX) / (this.width - LEFT) * (held.to - held.from);
      held.moved = held.moved || Math.abs(held.x - e.offsetX) > 3;
      if (held.moved) this.show(held.from + d, held.to + d);
    });
    n.addEventListener("pointerup", e => { const h = this.hit(e); if (held && !held.moved && h.i != null) this.pick(h.i); held = null; });
    n.addEventListener("mouseleave", e => tip(e, ""));
    n.addEventListener("keydown", e => {
      const act = { ArrowLeft: () => this.pan(-0.15), ArrowRight: () => this.pan(0.15), ArrowUp: () => this.zoom(0.7), ArrowDown: () => this.zoom(1.4), "+": () => this.zoom(0.7), "=": () => this.zoom(0.7), "-": () => this.zoom(1.4),
        "0": () => this.show(this.lo, this.hi), "]": () => this.step(1), "[": () => this.step(-1) }[e.key];
      if (act && !e.ctrlKey && !e.metaKey) { e.preventDefault(); act(); }
    });
  }
  note(e) {
    const h = this.hit(e);
    tip(e, h.host ? `${h.host.kind} ${h.host.name || ""}\n${seconds(h.host.end - h.host.start)}` : h.i != null ? `${this.name(h.i)}\n${seconds(this.e.end[h.i] - this.e.start[h.i])}` : "");
  }
}

function eventDetail(p, line, i) {
  const e = line.e, k = p.kernelById.get(e.kernel[i]), s = p.sectionById.get(e.section[i]), long = e.end[i] - e.start[i];
  return [el("h2", {}, line.name(i)), facts([["took", seconds(long)], ["call", e.call[i]], ["micro-batch", e.micro[i]], ["device", e.device[i]], ["thread", k && e.thread[i]], ["section", s && (s.name || s.kind)],
    ["mean", k && p.measured && k.runs ? seconds(k.measured / k.runs) : null], ["speed", k && k.flops ? `${fixed(k.flops / long / 1e9)} GFLOP/s` : null], ["source", k && sourceOf(k.layer)]]),
  k ? el("div", { class: "bar", style: "margin-top:8px" }, button("Program", () => go("program", { kernel: k.id })), button("Liveness", () => go("liveness", { device: k.device, step: liveness(p, k.device).steps.indexOf(k) }))) : null].filter(x => x);
}

views.push({
  id: "execution", title: "Execution", draw(root, p) {
    const detail = el("div", {}, el("p", { class: "faint" }, "Click a box to see what it is."));
    const line = new Timeline(p, i => detail.replaceChildren(...eventDetail(p, line, i))), busy = total(p.kernels, k => k.measured);
    root.append(card(p.measured ? "Execution" : "Execution of one micro-batch, as modelled on one core", el("div", { class: "bar" }, legend([...PASSES, "host"]), el("span", { class: "grow" }),
      p.spans.length > 1 ? select("Call", p.spans.map(s => [s.call, s.call]), p.spans[0].call, c => { const s = p.spans.find(s => s.call === Number(c)); line.show(s.start, s.end); }) : null,
      button("−", () => line.zoom(1.6), { "aria-label": "Zoom out" }), button("+", () => line.zoom(0.6), { "aria-label": "Zoom in" }), button("All", () => line.show(line.lo, line.hi))), line.node,
      el("p", { class: "faint", style: "margin:8px 0 0" }, sum("events", p.events, plural(p.events, "event")), p.events > p.event.length ? `, the first ${whole(p.event.length)} drawn` : "", ", kernels ", sum("busy", busy, seconds(busy)), " a call. Wheel zooms, drag pans; ",
        ...["←", "→", "+", "−", "0", "[", "]"].flatMap(k => [el("kbd", {}, k), " "]), " do the same from the keyboard, the brackets go from event to event.")), card(null, detail));
  },
});
