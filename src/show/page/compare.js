"use strict";
/* compare.js - two profiles side by side: this one, and what --compare named. Kernels have other numbers in
 * another program, so they are matched by what people call them: layer, op, pass. */

function matched(p, q, keyOf) {
  const both = new Map();
  for (const [side, profile] of [["a", p], ["b", q]])
    for (const g of groups(profile.kernels, keyOf)) both.set(g.key, { ...(both.get(g.key) || { key: g.key }), [side]: g });
  return [...both.values()].map(r => ({ key: r.key, a: r.a ? r.a.cost : 0, b: r.b ? r.b.cost : 0, na: r.a ? r.a.kernels.length : 0, nb: r.b ? r.b.kernels.length : 0 }));
}

const change = (a, b) => b ? a / b - 1 : null;
const changeText = x => x == null ? "–" : el("span", { class: x < -0.005 ? "good" : x > 0.005 ? "bad" : "" }, (x > 0 ? "+" : x < 0 ? "−" : "") + (100 * Math.abs(x)).toFixed(1) + " %");

function compareRows(p, q) {
  const row = (name, f, show) => ({ name, a: f(p), b: f(q), show });
  const steps = x => Math.max(1, x.number("iterations"));
  return [row("Peak memory", x => total(x.devices, d => d.peak), bytes), row("Always live", x => total(x.devices, d => d.always), bytes),
    row("Step", x => x.callSeconds == null ? null : x.callSeconds / steps(x), seconds), row("Kernels' time in a call", x => x.cost, seconds),
    row("Samples a second", x => x.callSeconds == null ? null : x.number("samples_per_call") / x.callSeconds, whole), row("FLOP in a call", x => total(x.kernels, k => k.work), flops),
    row("Kernels", x => x.kernels.length, whole), row("Bytes moved in a call", x => total(x.kernels, k => k.bytes * k.runs), bytes), row("Bubble", bubble, percent)];
}

/* What was asked for differently. */
function differences(p, q) {
  const keys = [...new Set([...Object.keys(p.run), ...Object.keys(q.run)])].filter(k => k !== "created" && p.run[k] !== q.run[k] && !/^(flops_step|peak_bytes|refused)$/.test(k));
  return keys.sort().map(k => el("tr", {}, el("td", { class: "text" }, k.replace(/^option\./, "")), el("td", { class: "text wide" }, p.run[k] == null ? "–" : p.run[k]), el("td", { class: "text wide" }, q.run[k] == null ? "–" : q.run[k])));
}

const heads = names => el("thead", {}, el("tr", {}, ...names.map(([n, text]) => el("th", { class: text ? "text" : null, scope: "col" }, n))));

views.push({
  id: "compare", title: "Compare", draw(root, p, args, q) {
    if (!q) return void root.append(card("Compare", el("p", {}, "This page has one profile. ", el("code", {}, "tessera report DIR --compare DIR2"), " makes one that holds two against each other.")));
    const by = GROUPINGS[args.by] ? args.by : "part", rows = matched(p, q, GROUPINGS[by][1]);
    const table = new Table({ rows, sort: 3, label: "Difference", name: "compare", filter: args.filter || "", columns: [
      { title: GROUPINGS[by][0].replace(/^./, c => c.toUpperCase()), text: true, wide: true, get: r => r.key },
      { title: "This", get: r => r.a, show: seconds, total: "this" }, { title: "Other", get: r => r.b, show: seconds, total: "other" },
      { title: "Difference", get: r => r.a - r.b, show: x => el("span", { class: x < 0 ? "good" : x > 0 ? "bad" : "" }, (x > 0 ? "+" : "") + seconds(x)), total: "difference" },
      { title: "Change", get: r => change(r.a, r.b), show: changeText }, { title: "Kernels", get: r => r.na }, { title: "Other's", get: r => r.nb }] });
    table.bar.prepend(select("By", Object.entries(GROUPINGS).map(([k, [n]]) => [k, n]), by, x => go("compare", { by: x, filter: table.words })));
    root.append(el("div", { class: "row" }, card("Figures", el("table", {}, heads([["", true], [p.run.model || "this"], [q.run.model || "other"], ["Change"]]),
      el("tbody", {}, ...compareRows(p, q).map(r => el("tr", {}, el("td", { class: "text" }, r.name), el("td", {}, r.show(r.a)), el("td", {}, r.show(r.b)), el("td", {}, r.a == null ? "–" : changeText(change(r.a, r.b)))))))),
    card("What differs between the runs", el("table", {}, heads([["", true], ["This", true], ["Other", true]]), el("tbody", {}, ...differences(p, q))))),
    card("Time in a call", table.bar, table.node));
  },
});
