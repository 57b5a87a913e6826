"use strict";
/* summary.js - the figures that one asks for first, and three findings in words.
 *
 * A finding has a weight: the share of the time or of the memory that it is about. The three heaviest are
 * shown; what does not fit always comes first. */

const PARTS = { "forward": "", "backward": "'s gradient", "update": "'s weight update", "copy": "'s copy" };

/* "conv2's weight gradient": the layer, and which of its kernels. */
function partName(k) {
  const layer = k.layer.name || "";
  if (!layer) return k.op || k.name;
  if (k.pass === "backward" && /weight/.test(k.op || "")) return layer + "'s weight gradient";
  return layer + (PARTS[k.pass] || "") + (k.pass === "forward" && k.op ? ` (${k.op})` : "");
}

function boundWords(r) {
  if (!r) return "";
  const at = ` at ${percent(r.of, 0)} of the machine's peak`;
  return { memory: `${at}: memory-bound`, compute: `${at}: compute-bound`, overhead: `${at}: bound by neither arithmetic nor memory; its pieces are small` }[r.bound];
}

const findings = [
  function refused(p) {
    return p.run.fits === "0" && { weight: 9, words: p.run.refused || "The plan does not fit into the devices' memory.", tab: "memory" };
  },
  function overLimit(p) {
    const d = p.devices.find(d => d.bytes && d.peak > d.bytes);
    if (!d) return;
    const v = p.values.filter(v => v.device === d.id).sort((a, b) => b.size - a.size)[0];
    return { weight: 8, tab: "memory", words: `Device ${d.id} needs ${bytes(d.peak)} and has ${bytes(d.bytes)}` +
      (v ? `; its largest value is ${v.name} with ${bytes(v.size)}${v.layer.file ? ", made at " + sourceOf(v.layer) : ""}.` : ".") };
  },
  function hottest(p) {
    const g = groups(p.kernels, k => partName(k)).sort((a, b) => b.cost - a.cost)[0];
    if (!g || !p.cost) return;
    const r = roofline(p, g.work, g.moved, g.cost);
    return { weight: g.cost / p.cost + 0.2, tab: "operations", args: { filter: g.first.layer.name || g.first.op || "" },
      words: `${g.key} takes ${percent(g.cost / p.cost, 0)} of the ${p.measured ? "" : "modelled "}time${p.measured ? boundWords(r) : ""}.` };
  },
  function idle(p) {
    const b = bubble(p);
    if (b == null || b < 0.02) return;
    const by = p.devices.map(d => ({ d, cost: total(p.kernels, k => k.device === d.id ? k.cost : 0) })).sort((x, y) => y.cost - x.cost);
    return { weight: b + 0.15, tab: "execution",
      words: `The devices have nothing to do ${percent(b, 0)} of the time. Device ${by[0].d.id} has the most work (${percent(by[0].cost / p.cost, 0)}), ` +
        `device ${by[by.length - 1].d.id} the least (${percent(by[by.length - 1].cost / p.cost, 0)})${p.number("accumulation") < 4 * p.devices.length ? "; more micro-batches in an update would shorten it." : "."}` };
  },
  function kept(p) {
    const d = [...p.devices].sort((a, b) => b.peak - a.peak)[0], live = liveness(p, d.id), now = live.at(live.peak);
    const bytesOf = kind => total(now, v => v.kind === kind ? v.size : 0), kind = [...live.kinds].sort((a, b) => bytesOf(b) - bytesOf(a))[0];
    if (!kind || !live.all[live.peak]) return;
    const share = bytesOf(kind) / live.all[live.peak], top = now.filter(v => v.kind === kind).sort((a, b) => b.size - a.size)[0];
    const words = { activation: "activations kept for the backward pass", weight: "weights", state: "the optimizer's state", gradient: "gradients", input: "inputs", constant: "constants", output: "outputs" };
    return { weight: share / 2, tab: "liveness", args: { device: d.id, step: live.peak },
      words: `At the peak of device ${d.id}, ${live.steps[live.peak] ? "in " + live.steps[live.peak].label : "all the time"}, ${percent(share, 0)} of what lives are ${words[kind]}; ` +
        `the largest is ${top.name} with ${bytes(top.size)}.` };
  },
  function host(p) {
    if (!p.spans.length) return;
    const from = p.spans[0].start, to = p.spans[p.spans.length - 1].end, calls = total(p.spans, s => s.end - s.start);
    const between = 1 - calls / (to - from), waits = p.hosts.filter(h => h.start >= from && h.end <= to && h.kind !== "call");
    const by = groupsBy(waits, h => h.kind).sort((a, b) => b.time - a.time)[0];
    if (p.spans.length < 2 || between < 0.1) return;
    return { weight: between, tab: "execution", words: `Between the calls the devices wait for the host ${percent(between, 0)} of the time` + (by ? `; most of it is ${by.key} (${seconds(by.time)}).` : ".") };
  },
  function small(p) {
    if (!p.measured) return;
    const few = p.kernels.filter(k => k.measured && k.measured / k.runs < 2e-6);
    const share = total(few, k => k.cost) / p.cost;
    return few.length > 1 && share > 0.03 && { weight: share, tab: "operations",
      words: `${whole(few.length)} of ${plural(p.kernels.length, "kernel")} take less than 2 µs each, together ${percent(share, 0)} of the time: a larger batch would use them better.` };
  },
  function surprise(p) {
    if (!p.measured) return;
    const off = groups(p.kernels, partName).filter(g => g.modelled > 0 && g.cost / p.cost > 0.02);
    const sure = total(p.kernels, k => k.modelledCall) / p.cost;
    const worst = off.sort((a, b) => b.cost / b.modelled - a.cost / a.modelled)[0], times = worst && worst.cost / worst.modelled * sure;
    return worst && times > 1.5 && { weight: worst.cost / p.cost, tab: "operations", args: { filter: worst.first.layer.name },
      words: `${worst.key} takes ${times.toFixed(1)} times as long as its work would suggest beside the others.` };
  },
  function plain(p) {
    const g = groups(p.kernels, k => k.pass || "other").sort((a, b) => b.cost - a.cost);
    return g.length > 0 && p.cost > 0 && { weight: 0.01, tab: "operations", words: `Of the time, ${g.map(x => `${percent(x.cost / p.cost, 0)} is ${x.key}`).join(", ")}.` };
  },
  function largest(p) {
    const v = [...p.values].sort((a, b) => b.size - a.size)[0], all = total(p.devices, d => d.peak);
    return v && { weight: 0.005, tab: "memory", words: `The largest value is ${v.name} (${v.type}) with ${bytes(v.size)}, ${percent(v.size / all, 0)} of the memory.` };
  },
];

function groupsBy(rows, keyOf) {
  const by = new Map();
  for (const r of rows) by.set(keyOf(r), (by.get(keyOf(r)) || 0) + r.end - r.start);
  return [...by].map(([key, time]) => ({ key, time }));
}

function tile(name, figure, note, tone) {
  return el("div", { class: "tile" }, el("div", { class: "name" }, name), el("div", { class: "figure " + (tone || "") }, figure),
    el("div", { class: "note" }, note || ""));
}

function figures(p) {
  const peak = total(p.devices, d => d.peak), limit = total(p.devices, d => d.bytes), fits = p.run.fits !== "0";
  const steps = Math.max(1, p.number("iterations")), call = p.callSeconds, work = total(p.kernels, k => k.work);
  const share = call && p.number("peak_gflops") ? work / call / (p.number("peak_gflops") * 1e9) : null, b = bubble(p);
  const most = p.devices.length > 1 ? `on ${p.devices.length} devices, at most ${bytes(Math.max(...p.devices.map(d => d.peak)))} on one` : "";
  return [
    tile("Memory", fits ? "Fits" : "Does not fit", limit ? `${percent(peak / limit, 0)} of ${bytes(limit)}` : "no limit was set", fits ? "good" : "bad"),
    tile("Peak", sum("peak", peak, bytes(peak)), most || `${bytes(p.devices[0].always)} of it always live`),
    tile("Step", call ? sum("step", call / steps, seconds(call / steps)) : seconds(p.cost / steps), call ? `mean of ${plural(p.spans.length, "call")} of ${plural(steps, "step")}` : "modelled, on one core"),
    call ? tile("Samples a second", whole(p.number("samples_per_call") / call), `${whole(p.number("samples_per_call"))} in a call`) : null,
    tile("Work", flops(work / steps) + "FLOP", "a step"),
    share != null ? tile("Share of the machine's peak", percent(share), `${fixed(work / call / 1e9, 0)} of ${fixed(p.number("peak_gflops"), 0)} GFLOP/s`) : null,
    b != null ? tile("Bubble", percent(b), "of the devices' time idle", b > 0.3 ? "warn" : "") : null,
  ];
}

/* Bars of the layers that take longest, by pass. */
function timeBars(p) {
  const top = groups(p.kernels, k => k.layer.name || k.op || k.name).sort((a, b) => b.cost - a.cost).slice(0, 12), most = top.length ? top[0].cost : 1;
  const high = 24, left = 170, wide = 560, out = svg("svg", { viewBox: `0 0 ${wide} ${top.length * high + 4}`, width: "100%", role: "img", "aria-label": "Time by layer" });
  top.forEach((g, i) => {
    let x = left;
    out.append(svg("text", { x: left - 8, y: i * high + 16, "text-anchor": "end" }, short(g.key, 24)));
    for (const pass of PASSES) {
      const part = total(g.kernels, k => k.pass === pass ? k.cost : 0), width = part / most * (wide - left - 70);
      if (width) out.append(tipped(svg("rect", { x, y: i * high + 4, width, height: high - 8, style: `fill:var(--${pass})` }), `${g.key}\n${pass} ${seconds(part)}`));
      x += width;
    }
    out.append(svg("text", { x: x + 6, y: i * high + 16, class: "faint" }, percent(g.cost / p.cost)));
  });
  return out;
}

/* What is most of the memory at each device's peak, as one bar of kinds. */
function memoryBars(p) {
  const most = Math.max(...p.devices.map(d => liveness(p, d.id).all[liveness(p, d.id).peak] || 0), 1);
  return p.devices.slice(0, 16).map(d => {
    const live = liveness(p, d.id), now = live.at(live.peak);
    return el("div", { style: "display:flex;align-items:center;gap:10px;margin:6px 0" }, el("span", { class: "faint", style: "width:64px" }, "Device " + d.id),
      el("span", { style: "flex:1;display:flex;height:16px" }, ...live.kinds.map(kind => {
        const part = total(now, v => v.kind === kind ? v.size : 0);
        return tipped(el("span", { style: `width:${(100 * part / most).toFixed(2)}%;background:var(--${kind})` }), `${kind}\n${bytes(part)}`);
      })), el("span", { class: "faint", style: "width:80px;text-align:right" }, bytes(live.all[live.peak])));
  });
}

const optionPairs = p => Object.entries(p.run).filter(([k]) => k.startsWith("option.")).map(([k, v]) => [k.slice(7), v]);

views.push({
  id: "summary", title: "Summary", draw(root, p) {
    const found = findings.map(f => f(p)).filter(f => f).sort((a, b) => b.weight - a.weight).slice(0, 3);
    root.append(el("div", { class: "tiles" }, ...figures(p)),
      card("Findings", el("ol", { class: "findings" }, ...found.map(f => el("li", {}, el("span", {}, f.words.replace(/^./u, c => c.toUpperCase()),
        button("Look", () => go(f.tab, f.args || {}))))))),
      el("div", { class: "row" },
        card("Time by layer", legend(PASSES), timeBars(p)),
        el("div", {}, card("Memory at the peak", legend(KINDS), ...memoryBars(p)),
          card("Run", facts([["model", p.run.model], ["batch", p.run.batch], ["threads", p.run.threads], ["instructions", p.run.isa], ["machine", p.run.machine], ["compiler", p.run.compiler],
            ["kernels", sum("kernels", p.kernels.length, whole(p.kernels.length))], ["tessera", p.run.tessera], ["made", p.run.created], ...optionPairs(p)])))));
  },
});
