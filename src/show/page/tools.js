"use strict";
/* tools.js - what every view is made with.
 *
 * Names come from users and may be hostile. They reach the page as text (textContent, fillText, a title) and
 * never as markup: nothing in these files sets innerHTML or a style, a link or a handler from the data. */

const { abs, ceil, floor, log10, max, min, round } = Math;
const views = [];   // {id, title, draw(root, profile, args)}; each file adds its own
const KINDS = ["weight", "state", "constant", "input", "activation", "gradient", "output"];
const PASSES = ["forward", "backward", "update", "copy"];

/* --- elements --- */

const on = (node, name, f) => node.addEventListener(name, f, { passive: false });
const part = id => document.getElementById(id);

function build(node, attrs, children) {
  for (const [key, value] of Object.entries(attrs || {})) {
    if (key.startsWith("on")) on(node, key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value != null) node.setAttribute(key, value);
  }
  node.append(...children.flat().filter(c => c != null));
  return node;
}
const el = (tag, attrs, ...children) => build(document.createElement(tag), attrs, children);
const svg = (tag, attrs, ...children) => build(document.createElementNS("http://www.w3.org/2000/svg", tag), attrs, children);
const div = (name, ...children) => el("div", { class: name }, ...children);
const span = (...children) => el("span", {}, ...children);
const note = (...children) => el("p", { class: "faint" }, ...children);
const h2 = text => el("h2", {}, short(text, 90)), h3 = text => el("h3", {}, text), grow = () => el("span", { class: "grow" });
const section = (name, ...children) => el("section", { class: name }, ...children);
const card = (title, ...children) => section("card", h2(title), ...children);
const side = (...children) => section("card side", ...children);
const keys = (...names) => names.flatMap(k => [el("kbd", {}, k), " "]);
const button = (text, onclick, attrs) => el("button", { type: "button", onclick, ...attrs }, text);

/* A figure that tests compare with SQL's. */
const sum = (name, value, text) => el("span", { "data-sum": name, "data-value": value }, text);

function select(label, options, chosen, onchange) {
  const box = el("select", { onchange: () => onchange(box.value) },
    ...options.map(([value, text]) => el("option", { value, selected: String(value) === String(chosen) }, text)));
  return el("label", {}, label + " ", box);
}

const dot = paint => el("i", { class: "dot", style: `background:var(--${paint})` });
/* legend("weight", ["gap", "what lies between"]): a colour that has its name, or another's. */
const legend = (...names) => el("div", { class: "legend" }, ...names.map(n => [n].flat()).map(([paint, name]) => el("span", {}, dot(paint), name || paint)));

const facts = pairs => el("dl", {}, ...pairs.filter(p => p[1] != null && p[1] !== "")
  .flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, typeof value === "string" ? short(value, 160) : value)]));

const meter = share => el("span", { class: "meter" }, el("i", { style: `width:${min(100, 100 * share).toFixed(1)}%` }));

/* Stacked bars on one scale, rows of {name, parts: [[colour, what, size]], text, limit}; a limit is a line. */
const bars = (rows, most, show) => div("bars", ...rows.flatMap(({ name, parts, text, limit }) => [span(tail(name)),
  el("div", {}, ...parts.map(([paint, what, n]) => tipped(el("i", { style: `width:${(100 * n / most).toFixed(2)}%;background:var(--${paint})` }), `${name}\n${what} ${show(n)}`)),
    limit && limit <= most ? tipped(el("b", { style: `left:${(100 * limit / most).toFixed(2)}%` }), `the limit: ${show(limit)}`) : null), span(text)]));

/* Rows of the keyboard: what a click does, Enter and the space bar do. */
function pressable(node, action) {
  node.setAttribute("tabindex", "0");
  on(node, "click", action);
  on(node, "keydown", e => {
    if (e.key === "Enter" || e.key === " ") { e.preventDefault(); action(e); }
  });
  return node;
}

/* --- numbers --- */

function scaled(n, step, units, digits = 3) {
  let i = 0, x = abs(n);
  while (i + 1 < units.length && x >= step * 0.9995) { x /= step; i++; }
  return (n < 0 ? "−" : "") + (i || x % 1 ? x.toPrecision(max(digits, ceil(log10(x + 1)))) : x) + " " + units[i];
}
const bytes = n => n == null ? "–" : scaled(round(n), 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
const flops = n => n == null ? "–" : scaled(round(n), 1000, ["", "K", "M", "G", "T", "P"]).trim();
const whole = n => n == null ? "–" : round(n).toLocaleString("en-US");
const rate = n => n < 100 ? n.toPrecision(3) : whole(n);
const fixed = (n, digits = 1) => n == null || !isFinite(n) ? "–" : n.toFixed(digits);
const percent = (x, digits = 1) => x == null || !isFinite(x) ? "–" : (100 * x).toFixed(digits) + " %";
const unitOf = s => abs(s) < 1e-3 ? [1e6, "µs"] : abs(s) < 1 ? [1e3, "ms"] : [1, "s"];
function seconds(s) {
  if (s == null || !isFinite(s)) return "–";
  const [factor, unit] = unitOf(s);
  const x = s * factor;
  return x.toFixed(abs(x) >= 100 ? 0 : abs(x) >= 10 ? 1 : 2).replace("-", "−") + " " + unit;
}
/* Times of an axis: one unit for all, and as many digits as tell two of them apart. */
function timesOf(times) {
  const most = max(...times.map(abs)), [factor, unit] = unitOf(most), digits = ceil(-log10((times[1] - times[0]) * factor) - 1e-9);
  return times.map(t => `${(t * factor).toFixed(max(0, min(6, digits || 0))).replace("-", "−")} ${unit}`);
}
const plural = (n, word) => `${whole(n)} ${word}${n === 1 ? "" : "s"}`;

/* --- the pointer's note --- */

function tip(event, text) {
  const box = part("tip");
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  const r = box.getBoundingClientRect();
  box.style.left = max(4, min(event.clientX + 14, innerWidth - r.width - 8)) + "px";
  box.style.top = (event.clientY + 18 + r.height > innerHeight ? event.clientY - r.height - 10 : event.clientY + 18) + "px";
}
const tipped = (node, text) => build(node, { onmousemove: e => tip(e, text), onmouseleave: e => tip(e, "") }, []);

/* --- drawings --- */

const rect = (x, y, width, height, paint, more) => svg("rect", { x, y, width: max(0, width), height, style: `fill:var(--${paint})`, ...more });
const chart = (wide, high, label, ...children) => svg("svg", { viewBox: `0 0 ${wide} ${high}`, width: "100%", role: "img", "aria-label": label }, ...children);
const words = (x, y, text, more) => svg("text", { x, y, ...more }, text);
const FAINT = { class: "faint" }, END = { "text-anchor": "end" }, MIDDLE = { "text-anchor": "middle" };

/* A canvas that draws itself again when its size or the theme changes. The pen knows colours by name:
 * pen.box("weight", x, y, w, h), pen.words("faint", text, x, y, "right"), pen.paint("line"). */
let drawings = [];
function canvas(height, label, draw) {
  const node = el("canvas", { role: "img", "aria-label": label, tabindex: 0 });
  node.redraw = () => {
    const width = node.clientWidth, dots = devicePixelRatio || 1, pen = node.getContext("2d"), known = {}, root = getComputedStyle(document.documentElement);
    if (!width) return;
    node.style.height = height + "px";
    node.width = width * dots;
    node.height = height * dots;
    pen.scale(dots, dots);
    pen.font = "12px system-ui, sans-serif";
    pen.paint = name => known[name] || (known[name] = root.getPropertyValue("--" + name) || "#888");
    pen.box = (name, x, y, w, h) => { pen.fillStyle = pen.paint(name); pen.fillRect(x, y, w, h); };
    pen.words = (name, text, x, y, align = "left") => { pen.fillStyle = pen.paint(name); pen.textAlign = align; pen.fillText(text, x, y); };
    pen.limit = (x, y, w) => { pen.box("card", x, y - 2, w, 6); pen.box("bad", x, y, w, 2); };
    draw(pen, width, height);
  };
  drawings.push(node.redraw);
  requestAnimationFrame(node.redraw);
  on(node, "mouseleave", e => tip(e, ""));
  return node;
}
const redrawAll = () => drawings.forEach(f => f());

/* Round steps for an axis from lo to hi. */
function ticks(lo, hi, most, base = 10) {
  const rough = (hi - lo) / most || 1, power = base ** floor(Math.log(rough) / Math.log(base));
  const steps = base === 1024 ? [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] : [1, 2, 5, 10];
  const step = power * steps.find(s => s * power >= rough), out = [];
  for (let t = ceil(lo / step) * step; t <= hi + step * 1e-6; t += step) out.push(t);
  return out;
}

/* Text that ends in an ellipsis where it would be wider than `room`. */
function fitted(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  let lo = 0, hi = text.length;
  while (lo < hi) {
    const mid = (lo + hi + 1) >> 1;
    if (pen.measureText(text.slice(0, mid) + "…").width <= room) lo = mid; else hi = mid - 1;
  }
  return lo ? text.slice(0, lo) + "…" : "";
}
const tail = text => text.length > 26 ? "…" + text.slice(-25) : text;
const short = (text, most) => text.length <= most ? text : text.slice(0, most - 1) + "…";

/* The views that have more about a kernel. */
const links = (p, k, ...but) => el("div", { class: "bar" },
  ...[["program", { kernel: k.id }], ["operations", { filter: k.layer.name || k.op }], ["liveness", { device: k.device, step: liveness(p, k.device).steps.indexOf(k) }]]
    .filter(([id]) => !but.includes(id)).map(([id, args]) => button(capital(id), () => go(id, args))));
