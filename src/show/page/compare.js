"use strict";
/* compare.js - two profiles side by side: this one, and what --compare named. Kernels have other numbers in
 * another program, so they are matched by what people call them: layer, op, pass. */

function matched(p, q, keyOf) {
  const rows = new Map(), none = { cost: 0, kernels: [] };
  for (const [side, profile] of [["a", p], ["b", q]])
    for (const g of groups(profile.kernels, keyOf)) rows.set(g.key, { ...rows.get(g.key) || { key: g.key, a: none, b: none }, [side]: g });
  return [...rows.values()];
}

const tone = x => ({ class: x < 0 ? "good" : x > 0 ? "bad" : "" });
const signed = (x, show, better = -1) => x == null || !isFinite(x) ? "–" : el("span", tone(-better * x), (x > 0 ? "+" : "") + show(x));

const COMPARED = [["Peak memory", x => total(x.devices, d => d.peak), bytes], ["Always live", x => total(x.devices, d => d.always), bytes],
  ["Step", x => x.callSeconds && x.callSeconds / x.steps, seconds], ["Kernels' time in a call", x => x.cost, seconds],
  ["Samples a second", x => x.speed, whole, 1], ["FLOP in a call", x => total(x.kernels, k => k.work), flops],
  ["Bytes moved in a call", x => total(x.kernels, k => k.moved), bytes], ["Kernels", x => x.kernels.length, whole], ["Bubble", bubble, percent]];

const simple = (heads, rows) => el("table", {}, el("thead", {}, el("tr", {}, ...heads.map(h => el("th", { class: "text", scope: "col" }, h)))),
  el("tbody", {}, ...rows.map(r => el("tr", {}, ...r.map(c => el("td", { class: "text wide" }, c == null ? "–" : c))))));

views.push({
  id: "compare", title: "Compare", draw(root, p, args, q) {
    if (!q) return void root.append(card("Compare", el("p", {}, "This page has one profile. ", el("code", {}, "tessera report DIR --compare DIR2"), " makes one that holds two against each other.")));
    const by = grouping(args), differ = Object.keys({ ...p.run, ...q.run }).filter(k => p.run[k] !== q.run[k] && !/^(created|refused|ipu_)|_(step|bytes|second)$/.test(k)).sort();
    const table = new Table({ rows: matched(p, q, GROUPINGS[by]), sort: 3, label: "Difference", name: "compare", filter: args.filter, columns: [
      { title: capital(by), text: true, wide: true, get: r => r.key },
      { title: "This", get: r => r.a.cost, show: seconds, total: "this" }, { title: "Other", get: r => r.b.cost, show: seconds, total: "other" },
      { title: "Difference", get: r => r.a.cost - r.b.cost, show: x => signed(x, seconds), total: "difference" },
      { title: "Change", get: r => r.a.cost / r.b.cost - 1, show: x => signed(x, x => percent(x)) }, { title: "Kernels", get: r => r.a.kernels.length }, { title: "Other's", get: r => r.b.kernels.length }] });
    table.bar.prepend(pickGroup("compare", by, table));
    root.append(div("row",
      card("Figures", simple(["", "This", "Other", "Change"], COMPARED.map(([name, of, show, better]) => [name, show(of(p)), show(of(q)), signed(of(p) / of(q) - 1, x => percent(x), better)]))),
      card("What differs between the runs", simple(["", "This", "Other"], differ.map(k => [k.replace(/^option\./, ""), p.run[k], q.run[k]].map(x => x && short(x, 60)))))),
    card("Time in a call", table.bar, table.node));
  },
});
