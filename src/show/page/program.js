"use strict";
/* program.js - the program as it runs: phases, sections, kernels; of each the fused nodes and the generated C. */

const TOKENS = /(\/\*[^]*?\*\/|\/\/[^\n]*)|\b(const|static|inline|void|int|int64_t|float|double|for|if|else|while|return)\b|\b(\d[\w.]*)/g;

/* Comments, words and numbers of C in spans; all of it as text. */
function highlight(code) {
  const out = el("pre", { tabindex: 0, "aria-label": "Generated C" });
  let from = 0;
  for (const m of code.matchAll(TOKENS)) {
    out.append(code.slice(from, m.index), el("span", { class: m[1] ? "c" : m[2] ? "k" : "n" }, m[0]));
    from = m.index + m[0].length;
  }
  out.append(code.slice(from));
  return out;
}

/* The values that a kernel reads, or writes. */
function edgesOf(p, id, writes) {
  const e = p.edge, values = p.valueById || (p.valueById = byId(p.values));
  const mine = (e.kernel || []).flatMap((k, i) => k === id && !!e.writes[i] === writes ? [values.get(e.value[i])] : []).filter(v => v);
  return el("div", {}, h3(writes ? "Writes" : "Reads"), ...mine.map(v => el("div", {}, short(v.name, 60) + " ", el("span", FAINT, v.type))));
}

function kernelDetail(p, k) {
  const r = roofline(p, k), c = k.cycles;
  return [h2(k.label), links(p, k, "program"), div("row",
    facts([["function", k.name], ["op", k.op], ["layer", k.layer.name], ["source", sourceOf(k.layer)], ["pass", k.pass], ["device", k.device], ["pieces", k.pieces], ["waits", k.waits ? "for all threads" : "no"], ...p.counters.filter(x => x.kernel === k.id).map(x => [x.name, whole(x.value)])]),
    facts([["measured", k.measured ? `${seconds(k.measured / k.runs)} × ${fixed(k.runs, k.runs % 1 ? 1 : 0)}` : null], ["modelled", seconds(k.modelled)], ["FLOP", flops(k.flops)], ["read", bytes(k.read)], ["written", bytes(k.written)],
      ["speed", k.measured ? `${fixed(k.work / k.measured / 1e9)} GFLOP/s` : null], ["bound", boundOf(r)],
      ["cycles", c && `${whole(c.compute)} compute, ${whole(c.exchange)} exchange, ${whole(c.sync)} sync, ${whole(c.host)} host`], ["matrix unit", c && c.matrix_use ? percent(c.matrix_use, 0) : null]])),
  h3("Fused nodes"), el("pre", {}, k.nodes || ""), div("row", edgesOf(p, k.id, false), edgesOf(p, k.id, true)),
  h3("Generated C"), k.code ? highlight(k.code) : note("There is none in this profile.")];
}

/* A section is filled when it is opened: a program may have thousands of kernels. */
function sectionItem(s, kernels, chosen, show) {
  const item = k => {
    const b = button([dot(PASSES.includes(k.pass) ? k.pass : "constant"), span(k.label), el("small", {}, seconds(k.cost))], () => show(k, b));
    if (k === chosen) setTimeout(() => show(k, b));
    return el("li", {}, b);
  };
  const fold = el("details", { ontoggle: () => { if (fold.open && !list.children.length) list.append(...kernels.map(item)); } },
    el("summary", {}, s.label + " ", el("small", {}, `device ${s.device}, ${plural(kernels.length, "kernel")}, ${seconds(total(kernels, k => k.cost))}`))), list = el("ul");
  fold.append(list);
  return fold;
}

views.push({
  id: "program", title: "Program", draw(root, p, args) {
    const chosen = p.kernelById.get(Number(args.kernel)) || costly(p.kernels)[0], side = section("card main"), tree = el("ul", { class: "tree" });
    const list = section("card side wider", h2("Program"), note(sum("sections", p.sections.length, plural(p.sections.length, "section")), ", ", sum("kernels", p.kernels.length, plural(p.kernels.length, "kernel"))), tree);
    const show = (k, b) => {
      for (const x of tree.querySelectorAll(".chosen")) x.classList.remove("chosen");
      b.classList.add("chosen");
      const at = b.parentNode.offsetTop - list.scrollTop;
      if (at < 0 || at > list.clientHeight - 30) list.scrollTop += at - list.clientHeight / 2;
      side.replaceChildren(...kernelDetail(p, k));
    };
    for (const phase of new Set(p.sections.map(s => s.phase))) tree.append(el("li", {}, h3(phase ? "Once an update" : "Every micro-batch"), ...p.sections.filter(s => s.phase === phase).map(s => {
      const fold = sectionItem(s, p.kernels.filter(k => k.section === s), chosen, show);
      fold.open = p.kernels.length < 150 || chosen && chosen.section === s;
      return fold;
    })));
    root.append(div("row", list, side));
  },
});
