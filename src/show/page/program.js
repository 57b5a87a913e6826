"use strict";
/* program.js - the program as it runs: phases, sections, kernels; of each the fused nodes and the generated C. */

/* Comments, words and numbers of C in spans; all of it as text. */
function highlight(code) {
  const out = el("pre", { tabindex: 0, "aria-label": "Generated C" }), parts = /(\/\*[^]*?\*\/|\/\/[^\n]*)|\b(const|static|inline|void|int|int64_t|size_t|float|double|for|if|else|while|return|struct|unsigned|char|bool|restrict|register)\b|\b(\d[\w.]*)/g;
  let from = 0;
  for (const m of code.matchAll(parts)) {
    out.append(code.slice(from, m.index), el("span", { class: m[1] ? "c" : m[2] ? "k" : "n" }, m[0]));
    from = m.index + m[0].length;
  }
  out.append(code.slice(from));
  return out;
}

function edgesOf(p, id) {
  const e = p.edge, out = { reads: [], writes: [] };
  if (!p.valueById) p.valueById = byId(p.values);
  for (let i = 0; i < (e.kernel || []).length; i++)
    if (e.kernel[i] === id && p.valueById.has(e.value[i])) out[e.writes[i] ? "writes" : "reads"].push(p.valueById.get(e.value[i]));
  return out;
}

function kernelDetail(p, k) {
  const r = roofline(p, k.work, k.bytes * k.runs, k.measured), edges = edgesOf(p, k.id), c = k.cycles;
  const counters = p.counters.filter(x => x.kernel === k.id).map(x => [x.name, whole(x.value)]);
  const list = values => values.map(v => el("div", { title: v.name }, `${short(v.name, 60)} `, el("span", { class: "faint" }, v.type)));
  return [el("h2", {}, k.label), el("div", { class: "bar" },
    button("Operations", () => go("operations", { filter: k.layer.name || k.op })), button("Liveness", () => go("liveness", { device: k.device, step: liveness(p, k.device).steps.indexOf(k) }))),
  el("div", { class: "row" }, facts([["function", k.name], ["op", k.op], ["layer", k.layer.name], ["source", sourceOf(k.layer)], ["pass", k.pass], ["device", k.device], ["pieces", k.pieces], ["waits", k.waits == null ? null : k.waits ? "for all threads" : "no"], ...counters]),
    facts([["measured", k.measured == null ? null : `${seconds(k.measured / (k.runs || 1))} × ${fixed(k.runs, k.runs % 1 ? 1 : 0)}`], ["modelled", seconds(k.modelled)], ["FLOP", flops(k.flops)], ["read", bytes(k.read)], ["written", bytes(k.written)],
      ["speed", k.measured ? `${fixed(k.work / k.measured / 1e9)} GFLOP/s` : null], ["bound", r && `${r.bound}, ${percent(r.share, 0)} of its roof`],
      ["cycles", c && `${whole(c.compute)} compute, ${whole(c.exchange)} exchange, ${whole(c.sync)} sync, ${whole(c.host)} host`], ["matrix unit", c && c.matrix_use ? percent(c.matrix_use, 0) : null]])),
  k.nodes ? [el("h3", {}, "Fused nodes"), el("pre", {}, k.nodes)] : null,
  edges.reads.length + edges.writes.length ? el("div", { class: "row" }, el("div", {}, el("h3", {}, "Reads"), list(edges.reads)), el("div", {}, el("h3", {}, "Writes"), list(edges.writes))) : null,
  el("h3", {}, "Generated C"), k.code ? highlight(k.code) : el("p", { class: "faint" }, "There is none in this profile.")].flat().filter(x => x);
}

/* A section opens when it is asked for: a program may have thousands of kernels. */
function sectionItem(p, s, kernels, chosen, show) {
  const list = el("ul", { hidden: true }), open = el("button", { type: "button", "aria-expanded": "false" });
  const item = k => {
    const b = button([el("i", { class: "dot", style: `background:var(--${PASSES.includes(k.pass) ? k.pass : "constant"})` }), el("span", {}, k.label), el("small", {}, seconds(k.cost))], () => show(k, b));
    if (k === chosen) setTimeout(() => { show(k, b); b.scrollIntoView({ block: "center" }); });
    return el("li", {}, b);
  };
  const turn = on => {
    if (on && !list.children.length) list.append(...kernels.map(item));
    list.hidden = !on;
    open.setAttribute("aria-expanded", on);
    open.firstChild.textContent = on ? "▾ " : "▸ ";
  };
  open.append("▸ ", el("span", {}, `${s.name || s.kind || "section"}`), el("small", {}, `device ${s.device}, ${plural(kernels.length, "kernel")}, ${seconds(total(kernels, k => k.cost))}`));
  open.addEventListener("click", () => turn(list.hidden));
  return { node: el("li", {}, open, list), turn };
}

views.push({
  id: "program", title: "Program", draw(root, p, args) {
    const chosen = p.kernelById.get(Number(args.kernel)) || [...p.kernels].sort((a, b) => b.cost - a.cost)[0], side = el("section", { class: "card" });
    const tree = el("ul", { class: "tree" });
    const show = (k, b) => {
      tree.querySelectorAll(".chosen").forEach(x => x.classList.remove("chosen"));
      b.classList.add("chosen");
      side.replaceChildren(...kernelDetail(p, k));
    };
    for (const phase of [...new Set(p.sections.map(s => s.phase))].sort((a, b) => a - b)) {
      const inside = el("ul");
      for (const s of p.sections.filter(s => s.phase === phase)) {
        const { node, turn } = sectionItem(p, s, p.kernels.filter(k => k.section === s), chosen, show);
        if (p.kernels.length < 150 || (chosen && chosen.section === s)) turn(true);
        inside.append(node);
      }
      tree.append(el("li", {}, el("h3", {}, phase ? "Once an update" : "Every micro-batch"), inside));
    }
    if (!chosen) side.append(el("p", { class: "faint" }, "There are no kernels."));
    root.append(el("div", { class: "row" }, el("section", { class: "card side", style: "flex-basis:400px" },
      el("h2", {}, "Program"), el("p", { class: "faint" }, sum("sections", p.sections.length, plural(p.sections.length, "section")), ", ", sum("kernels", p.kernels.length, plural(p.kernels.length, "kernel"))), tree), side));
  },
});
