"use strict";
/* summary.js - the figures that one asks for first, and three findings in words.
 *
 * A finding has a weight: the share of the time or of the memory that it is about. The three heaviest are
 * shown; what does not fit always comes first. */

/* "conv2's weight gradient": the layer, and which of its kernels. */
function partName(k) {
  const layer = k.layer.name;
  if (!layer) return k.op || k.name;
  if (k.pass === "backward") return layer + (/weight/.test(k.op) ? "'s weight gradient" : "'s gradient");
  return k.pass === "update" ? layer + "'s update" : `${layer} (${k.op})`;
}

const BOUND = { memory: "memory-bound", compute: "compute-bound", overhead: "its pieces are small" };
const NAMES = { activation: "activations kept for the backward pass", weight: "weights", state: "the optimizer's state", gradient: "gradients" };

const findings = [
  function refused(p) {
    return p.run.fits === "0" && { weight: 9, words: capital(p.run.refused || "the plan does not fit"), tab: "memory" };
  },
  function hottest(p) {
    const g = costly(groups(p.kernels, partName))[0];
    if (!g || !p.cost) return;
    const r = roofline(p, g);
    return { weight: g.cost / p.cost + 0.2, tab: "operations", args: { filter: g.first.layer.name || g.first.op },
      words: `${short(g.key, 80)} takes ${percent(g.cost / p.cost, 0)} of the ${p.measured ? "" : "modelled "}time${r.bound ? ` at ${percent(r.of, 0)} of the machine's peak: ${BOUND[r.bound]}` : ""}.` };
  },
  function idle(p) {
    const b = bubble(p);
    if (b == null || b < 0.02) return;
    const by = p.devices.map(d => [d.id, total(p.kernels, k => k.device === d.id ? k.cost : 0) / p.cost]).sort((x, y) => y[1] - x[1]), least = by[by.length - 1];
    return { weight: b + 0.15, tab: "execution",
      words: `Devices are idle ${percent(b, 0)} of the time. Device ${by[0][0]} has the most work (${percent(by[0][1], 0)}), device ${least[0]} the least (${percent(least[1], 0)}).` +
        (p.number("threads") < p.devices.length ? ` They share ${plural(p.number("threads"), "thread")}.` : p.number("accumulation") < 4 * p.devices.length ? " More micro-batches would help." : "") };
  },
  function kept(p) {
    const d = [...p.devices].sort((a, b) => b.peak - a.peak)[0], live = liveness(p, d.id), now = live.at(live.peak), all = live.all[live.peak];
    const [kind, share] = live.kinds.map(kind => [kind, total(now, v => v.kind === kind ? v.size : 0) / all]).sort((a, b) => b[1] - a[1])[0] || [];
    if (!kind || !all) return;
    const top = now.filter(v => v.kind === kind).sort((a, b) => b.size - a.size)[0];
    return { weight: share / 2, tab: "liveness", args: { device: d.id, step: live.peak },
      words: `At the peak of device ${d.id}, ${live.steps[live.peak] ? "in " + live.steps[live.peak].label : "all the time"}, ${percent(share, 0)} of what lives are ${NAMES[kind] || kind + "s"}; the largest is ${short(top.name, 80)} with ${bytes(top.size)}${top.layer.file ? ` (${sourceOf(top.layer)})` : ""}.` };
  },
  function host(p) {
    if (p.spans.length < 2) return;
    /* writing the profile is our own doing */
    const from = p.spans[0].start, to = p.spans[p.spans.length - 1].end, ours = total(p.hosts, h => h.kind === "profile" && h.end <= to ? h.end - h.start : 0);
    const between = 1 - total(p.spans, s => s.end - s.start) / max(1e-9, to - from - ours);
    return between > 0.1 && { weight: between, tab: "execution", words: `Between calls the devices wait for the host ${percent(between, 0)} of the time.` };
  },
  function passes(p) {
    const g = costly(groups(p.kernels, k => k.pass || "other"));
    return p.cost > 0 && { weight: 0.01, tab: "operations", args: { by: "pass" }, words: `Of the time, ${g.map(x => `${percent(x.cost / p.cost, 0)} is ${x.key}`).join(", ")}.` };
  },
];

/* How full the fullest tile of a modelled device is. */
function tileNote(p) {
  const limit = p.devices[0].bytes / p.devices[0].tiles, over = total(p.devices, d => blockOf(p, d).over), most = max(...p.tiles.map(t => t.peak)) / limit;
  return over ? `${whole(over)} of ${plural(p.tiles.length, "tile")} too full` : `the fullest tile is ${percent(most, 0)} full`;
}
const cycleTile = p => tile("Step on the IPU", seconds(p.number("ipu_step_cycles") / p.number("ipu_hertz")), p.devices.length > 1 ? `modelled, stages ${percent(p.number("ipu_balance"), 0)} balanced` : "modelled");

const tile = (name, figure, note, tone) => div("tile", div("name", name), div("figure " + (tone || ""), figure), div("note", note || ""));

function figures(p) {
  const peak = total(p.devices, d => d.peak), limit = total(p.devices, d => d.bytes), fits = p.run.fits !== "0", most = max(...p.devices.map(d => d.peak));
  const steps = p.steps, call = p.callSeconds, work = total(p.kernels, k => k.work), top = p.number("peak_gflops"), b = bubble(p);
  return [
    tile("Memory", fits ? "Fits" : "Does not fit", p.tiles.length ? tileNote(p) : limit ? `${percent(peak / limit, 0)} of ${bytes(limit)}` : "no limit was set", fits ? "good" : "bad"),
    tile("Peak", sum("peak", peak, bytes(peak)), p.devices.length > 1 ? `${bytes(most)} at most on one of ${p.devices.length}` : `${bytes(p.devices[0].always)} always live`),
    call ? tile("Step", sum("step", call / steps, seconds(call / steps)), `median of ${plural(p.spans.length, "call")}${steps > 1 ? ` of ${steps}` : ""}`) : tile("Step", seconds(p.cost / steps), "modelled, on one core"),
    call ? tile("Samples a second", rate(p.speed), `${whole(p.number("samples_per_call"))} in a call`) : null,
    p.cycles.length ? cycleTile(p) : null,
    tile("Work", flops(work / steps) + "FLOP", "a step"),
    call && top ? tile("Of the peak", percent(work / call / top / 1e9), `${fixed(work / call / 1e9, 0)} of ${fixed(top, 0)} GFLOP/s`) : null,
    b != null ? tile("Bubble", percent(b), "devices idle", b > 0.3 ? "warn" : "") : null,
  ];
}

/* The layers that take longest, by pass. */
function timeBars(p) {
  const top = costly(groups(p.kernels, k => k.layer.name || k.op || k.name)).slice(0, 12);
  return bars(top.map(g => ({ name: g.key, parts: PASSES.map(pass => [pass, pass, total(g.kernels, k => k.pass === pass ? k.cost : 0)]), text: percent(g.cost / (p.cost || 1)) })), top.length && top[0].cost || 1, seconds);
}

views.push({
  id: "summary", title: "Summary", draw(root, p) {
    const found = findings.map(f => f(p)).filter(f => f).sort((a, b) => b.weight - a.weight).slice(0, 3), run = key => [key, p.run[key]];
    root.append(div("tiles", ...figures(p).filter(x => x)),
      card("Findings", el("ol", { class: "findings" }, ...found.map(f => el("li", {}, span(f.words, button("Look", () => go(f.tab, f.args))))))),
      div("row top", card("Time by layer", legend(...PASSES), timeBars(p)),
        el("div", {}, card("Memory", legend(...BLOCK, ["bad", "limit"]), deviceBars(p)),
          card("Run", facts([run("model"), run("batch"), run("threads"), run("isa"), run("machine"), run("compiler"), ["kernels", sum("kernels", p.kernels.length, whole(p.kernels.length))], run("tessera"), run("created"), run("unmeasured"),
            ...Object.entries(p.run).filter(([k]) => k.startsWith("option.")).map(([k, v]) => [k.slice(7), v.replace(/\d\.\d{9,}/g, Number)])])))));
  },
});
