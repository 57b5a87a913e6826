"use strict";
/* main.js - opens the data, and shows the view that the address names: #memory, #operations/by=op. */

async function inflate(text) {
  const packed = Uint8Array.from(atob(text.trim()), c => c.charCodeAt(0));
  return JSON.parse(await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).text());
}

/* The address of a view and what it is asked for. */
function go(id, args = {}) {
  const words = Object.entries(args).filter(([, v]) => v != null && v !== "").map(([k, v]) => `${k}=${encodeURIComponent(v)}`).join("&");
  const hash = "#" + id + (words ? "/" + words : "");
  if (location.hash === hash) show(); else location.hash = hash;
}

function asked() {
  const [id, words] = location.hash.slice(1).split(/\/(.*)/s), args = {};
  for (const [k, v] of new URLSearchParams(words || "")) args[k] = v;
  return { view: views.find(v => v.id === id) || views[0], args };
}

let profiles = [];
function show() {
  const { view, args } = asked(), root = part("view");
  drawings = [];
  part("tip").hidden = true;
  for (const b of part("tabs").children) {
    const on = b.dataset.id === view.id;
    b.setAttribute("aria-selected", on);
    b.tabIndex = on ? 0 : -1;
  }
  root.replaceChildren();
  root.setAttribute("aria-label", view.title);
  view.draw(root, profiles[0], args, profiles[1]);
  document.documentElement.dataset.ready = view.id;
}

function makeTabs() {
  const bar = part("tabs");
  bar.append(...views.map(v => button(v.title, () => go(v.id), { role: "tab", "data-id": v.id, "aria-controls": "view" })));
  on(bar, "keydown", e => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key], all = [...bar.children], now = all.indexOf(document.activeElement);
    if (!by || now < 0) return;
    const next = all[(now + by + all.length) % all.length];
    go(next.dataset.id);
    next.focus();
  });
}

function makeHead(p) {
  const r = p.run, chips = [r.batch && `batch ${r.batch}`, p.devices.length > 1 && plural(p.devices.length, "device"), p.number("accumulation") > 1 && `${r.accumulation} micro-batches`, p.number("replicas") > 1 && `${r.replicas} replicas`,
    r.precision, r.schedule, r.threads && plural(p.number("threads"), "thread"), p.measured ? plural(p.calls, "call") + " measured" : "planned, not run", profiles[1] && "compared with " + (profiles[1].run.model || "another")];
  document.title = `${r.model || "profile"} – Tessera`;
  part("model").textContent = r.model || "profile";
  part("chips").append(...chips.filter(x => x).map(text => el("span", { class: "chip" }, text)));
}

/* The system's theme, until the button or the key t chooses. */
function makeTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)"), turn = on => { document.documentElement.dataset.theme = on ? "dark" : "light"; redrawAll(); };
  const other = () => turn(document.documentElement.dataset.theme !== "dark");
  turn(dark.matches);
  on(dark, "change", () => turn(dark.matches));
  on(part("theme"), "click", other);
  on(window, "keydown", e => { if (e.key === "t" && !/INPUT|SELECT/.test(document.activeElement.tagName) && !e.ctrlKey && !e.metaKey) other(); });
}

async function main() {
  makeTheme();
  makeTabs();
  const data = await inflate(part("data").textContent);
  profiles = data.profiles.map(makeProfile);
  makeHead(profiles[0]);
  on(window, "hashchange", show);
  on(window, "resize", redrawAll);
  show();
}
main().catch(e => {
  part("view").replaceChildren(el("p", { class: "bad" }, "The page cannot show this profile: " + e.message));
  console.error(e);
});
