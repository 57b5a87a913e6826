"use strict";
/* profile.js - the tables of profile.db as objects, and what follows from them.
 *
 * A kernel's `cost` is what it takes of one call: measured (by the thread that was longest at it) where
 * there are events, else modelled times how often a call runs it. */

/* One table of the page's data, as rows or as columns. Text is a number in the list of words; times are
 * differences of nanoseconds (show/page.c). */
function columnsOf(table, words) {
  const out = {};
  for (const [name, cells] of Object.entries(table))
    out[name] = cells.words ? cells.words.map(i => i == null ? null : words[i]) : cells;
  if (!out.start || !out.end) return out;
  let at = 0;
  out.start = Float64Array.from(out.start, d => (at += d) / 1e9);
  out.end = Float64Array.from(out.end, (d, i) => out.start[i] + d / 1e9);
  return out;
}
function rowsOf(table, words) {
  const columns = columnsOf(table, words), names = Object.keys(columns);
  return Array.from(columns[names[0]] || [], (_, i) => Object.fromEntries(names.map(n => [n, columns[n][i]])));
}
const byId = rows => new Map(rows.map(r => [r.id, r]));

function makeProfile({ words, tables }) {
  const p = { run: {} };
  for (const name of ["device", "layer", "section", "kernel", "value", "life", "send", "host", "tile", "cycles", "counter"])
    p[name.endsWith("s") ? name : name + "s"] = rowsOf(tables[name], words);
  for (const { key, value } of rowsOf(tables.run, words)) p.run[key] = value;
  p.event = columnsOf(tables.event, words);
  p.event.length = (p.event.start || []).length;
  p.edge = columnsOf(tables.edge, words);
  Object.assign(p, rowsOf(tables.seen, words)[0]);
  p.measured = p.events > 0;
  p.number = key => Number(p.run[key]) || 0;
  link(p);
  price(p, new Map(rowsOf(tables.time, words).map(t => [t.kernel, t])));
  p.spans = callSpans(p);
  p.typical = [...p.spans].sort((a, b) => a.end - a.start - b.end + b.start)[p.spans.length - 1 >> 1];   // the first call is often slow
  p.callSeconds = p.typical ? p.typical.end - p.typical.start : null;
  p.speed = p.typical ? p.number("samples_per_call") / p.callSeconds : null;   // samples a second
  return p;
}

/* Rows that know each other instead of their numbers. */
function link(p) {
  const layers = byId(p.layers), sections = byId(p.sections), none = { name: "", file: null, line: null };
  const cycles = new Map(p.cycles.map(c => [c.kernel, c]));
  for (const l of p.layers) l.name = l.name || "";
  for (const k of p.kernels) {
    k.layer = layers.get(k.layer) || none;
    k.section = sections.get(k.section) || { device: 0 };
    k.device = k.section.device;
    k.cycles = cycles.get(k.id);
    k.label = k.layer.name ? `${short(k.layer.name, 80)} ${k.op || ""}` : k.op || k.name;
  }
  const lives = new Map();
  for (const l of p.lifes) lives.set(l.value, [...lives.get(l.value) || [], l]);
  for (const v of p.values) {
    v.lives = lives.get(v.id) || [v];
    v.layer = layers.get(v.layer) || none;
    v.size = (v.bytes || 0) * max(1, v.depth || 1);
    v.name = v.name || "";
  }
  for (const s of p.sections) s.label = [s.kind === "both" ? "step" : s.kind, s.name].filter(x => x).join(" ");
  p.kernelById = byId(p.kernels);
  p.sectionById = sections;
  if (!p.devices.length) p.devices = [{ id: 0, kind: "cpu", bytes: 0, peak: 0, always: 0 }];
}

function price(p, times) {
  const micros = max(1, p.number("accumulation")), calls = max(1, p.calls);
  p.steps = max(1, p.number("iterations"));
  for (const k of p.kernels) {
    const t = times.get(k.id);
    k.runs = t ? t.runs / calls : p.steps * (k.section.phase ? 1 : micros);
    k.measured = t ? t.seconds / calls : null;
    k.modelledCall = (k.modelled || 0) * k.runs;
    k.cost = p.measured ? k.measured || 0 : k.modelledCall;
    k.work = (k.flops || 0) * k.runs;
    k.moved = ((k.read || 0) + (k.written || 0)) * k.runs;
  }
  p.cost = total(p.kernels, k => k.cost);
}
const total = (rows, of) => rows.reduce((s, r) => s + (of(r) || 0), 0);

/* From the first event to the last of each call. */
function callSpans(p) {
  const e = p.event, spans = new Map();
  for (let i = 0; i < e.length; i++) {
    const s = spans.get(e.call[i]);
    if (!s) spans.set(e.call[i], { call: e.call[i], start: e.start[i], end: e.end[i] });
    else s.end = max(s.end, e.end[i]);
  }
  return [...spans.values()];
}

/* The share of the calls in which devices had nothing to run; null when that is not known. */
function bubble(p) {
  const e = p.event, busy = {};
  if (p.devices.length < 2 || !e.length) return null;
  const sections = e.kernel.some(k => k == null);
  for (let i = 0; i < e.length; i++)
    if ((e.kernel[i] == null) === sections) {
      const key = e.replica[i] + " " + e.device[i], lane = busy[key] || (busy[key] = { end: 0, time: 0 });
      lane.time += max(0, e.end[i] - max(e.start[i], lane.end));
      lane.end = max(lane.end, e.end[i]);
    }
  const lanes = Object.values(busy), span = total(p.spans, s => s.end - s.start);
  return lanes.length ? max(0, 1 - total(lanes, l => l.time) / (span * lanes.length)) : null;
}

/* --- memory over the program's steps --- */

/* Of one device: its kernels in order, and for each how many bytes live, by kind. */
function liveness(p, device) {
  if (!p.live) p.live = new Map();
  if (p.live.has(device)) return p.live.get(device);
  const steps = p.kernels.filter(k => k.device === device), n = max(1, steps.length);
  const values = p.values.filter(v => v.device === device), kinds = KINDS.filter(k => values.some(v => v.kind === k));
  const by = Object.fromEntries(kinds.map(k => [k, new Float64Array(n + 1)])), all = new Float64Array(n + 1);
  const passing = new Float64Array(n + 1);
  for (const v of values) {
    [v.from, v.to] = v.always || v.first == null ? [0, n - 1] : [stepOf(steps, v.first), stepOf(steps, v.last)];
    v.spans = v.always || v.first == null ? [[0, n - 1]] : v.lives.map(l => [stepOf(steps, l.first), stepOf(steps, l.last)]);
    for (const line of [by[v.kind], all, v.always || v.offset == null ? null : passing].filter(x => x))
      for (const [from, to] of v.spans) {
        line[from] += v.size;
        line[to + 1] -= v.size;
      }
  }
  for (const line of [...Object.values(by), all, passing]) for (let i = 1; i <= n; i++) line[i] += line[i - 1];
  const peak = all.subarray(0, n).reduce((best, x, i) => x > all[best] ? i : best, 0);
  const live = { steps, n, values, kinds, by, all, passing, peak, at: s => values.filter(v => v.spans.some(([from, to]) => from <= s && s <= to)) };
  p.live.set(device, live);
  return live;
}
/* The step of a kernel, or of the last one before it. */
function stepOf(steps, kernel) {
  let lo = 0, hi = steps.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (steps[mid].id <= kernel) lo = mid + 1; else hi = mid;
  }
  return max(0, lo - 1);
}

/* A device's block: always live, not always live at its most, and what lies between. */
function blockOf(p, d) {
  const live = liveness(p, d.id), always = d.always || 0;
  const passing = min(live.passing.subarray(0, live.n).reduce((m, x) => max(m, x), 0), max(0, d.peak - always));
  return { always, passing, gaps: max(0, d.peak - always - passing), peak: d.peak, limit: d.bytes || 0, over: p.tiles.filter(t => t.device === d.id && t.peak > d.bytes / d.tiles).length };
}

/* --- the roofline --- */

/* What bounds a kernel, or a group of them, that was measured. Those far below both roofs wait for something else:
 * threads that meet, or too little work. */
function roofline(p, { work, moved, measured }) {
  const peak = p.number("peak_gflops") * 1e9, band = p.number("bandwidth_gbs") * 1e9;
  if (!peak || !band || !measured) return {};
  const of = work / measured / peak, share = max(of, moved / measured / band);
  return { of, share, bound: share < 0.1 ? "overhead" : work / peak < moved / band ? "memory" : "compute" };
}

const costly = rows => [...rows].sort((a, b) => b.cost - a.cost);

/* Kernels by a key: sums of each group. */
function groups(kernels, keyOf) {
  const found = new Map();
  for (const k of kernels) {
    const key = keyOf(k);
    if (!found.has(key)) found.set(key, { key, kernels: [], cost: 0, measured: 0, modelled: 0, work: 0, moved: 0, runs: 0, first: k });
    const g = found.get(key);
    g.kernels.push(k);
    g.cost += k.cost; g.measured += k.measured || 0; g.modelled += k.modelledCall;
    g.work += k.work; g.moved += k.moved; g.runs += k.runs;
  }
  return [...found.values()];
}
/* The file without the folders that all of a machine's have. */
const sourceOf = of => of.file ? `${of.file.split("/").slice(-2).join("/")}:${of.line}` : "";
