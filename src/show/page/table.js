"use strict";
/* table.js - a table that sorts by its columns, filters by words, adds up, and becomes CSV.
 *
 * A column: title, get(row) -> value, show(value, row) -> text or element, text: left-aligned words,
 * total: the name of its sum (and the sum stands below). */

const SHOWN = 300;   // rows before somebody asks for all: 5,000 rows take half a second

function compareCells(a, b) {
  if (a == null || b == null) return (a == null) - (b == null);
  return typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

class Table {
  constructor({ columns, rows, sort = 0, down = true, onrow, label, filter, name }) {
    Object.assign(this, { columns, rows, sort, down, onrow, name, words: filter || "", all: false });
    this.body = el("tbody");
    this.foot = el("tfoot");
    this.head = el("tr", {}, ...columns.map((c, i) => this.heading(c, i)));
    this.count = el("span", { class: "faint" });
    this.node = el("div", { class: "scroll" },
      el("table", { "aria-label": label }, el("thead", {}, this.head), this.body, this.foot));
    this.search = el("input", { type: "search", placeholder: "Filter", "aria-label": "Filter " + (label || ""), value: filter || "",
      oninput: () => { this.words = this.search.value; this.draw(); } });
    this.bar = div("bar", this.search, this.count, grow(),
      button("Save as CSV", () => this.save()));
    this.draw();
  }
  heading(c, i) {
    return el("th", { class: c.text ? "text" : null, scope: "col" }, button(c.title, () => {
      this.down = this.sort === i ? !this.down : !c.text;
      this.sort = i;
      this.draw();
    }));
  }
  chosen() {
    const words = this.words.toLowerCase().split(/\s+/).filter(w => w), texts = this.columns.filter(c => c.text);
    const has = row => { const t = texts.map(c => c.get(row)).join(" ").toLowerCase(); return words.every(w => t.includes(w)); };
    const by = this.columns[this.sort].get, sign = this.down ? -1 : 1;
    return this.rows.filter(r => !words.length || has(r)).sort((a, b) => {
      const x = by(a), y = by(b);
      return x == null || y == null ? compareCells(x, y) : sign * compareCells(x, y);
    });
  }
  line(row) {
    const cells = this.columns.map(c => {
      const value = c.get(row), shown = c.show ? c.show(value, row) : value;
      return el("td", { class: c.text ? (c.wide ? "text wide" : "text") : null, title: c.text && value ? value : null }, shown == null ? "–" : shown);
    });
    const tr = el("tr", {}, ...cells);
    return this.onrow ? pressable(tr, () => {
      this.body.querySelectorAll(".chosen").forEach(x => x.classList.remove("chosen"));
      tr.classList.add("chosen");
      this.onrow(row);
    }) : tr;
  }
  draw() {
    const rows = this.chosen(), shown = this.all ? rows : rows.slice(0, SHOWN);
    [...this.head.children].forEach((th, i) =>
      i === this.sort ? th.setAttribute("aria-sort", this.down ? "descending" : "ascending") : th.removeAttribute("aria-sort"));
    this.body.replaceChildren(...shown.map(r => this.line(r)));
    if (shown.length < rows.length) this.body.append(el("tr", {}, el("td", { class: "text", colspan: this.columns.length },
      button(`Show all ${whole(rows.length)} rows`, () => { this.all = true; this.draw(); }))));
    this.count.textContent = rows.length === this.rows.length ? plural(rows.length, "row") : `${whole(rows.length)} of ${plural(this.rows.length, "row")}`;
    if (!this.columns.some(c => c.total)) return;
    this.foot.replaceChildren(el("tr", {}, ...this.columns.map((c, i) => {
      const value = c.total && total(rows, c.get);
      return el("td", { class: c.text ? "text" : null }, c.total ? sum(c.total, value, c.show(value, null)) : i ? "" : "Sum");
    })));
  }
  csv() {
    const cell = x => x == null ? "" : /[",\r\n]/.test(x) || /^[=+\-@]/.test(x) && isNaN(x) ? `"${String(x).replace(/"/g, '""')}"` : String(x);
    return [this.columns.map(c => cell(c.title)), ...this.chosen().map(r => this.columns.map(c => cell(c.get(r))))].map(l => l.join(",")).join("\n") + "\n";
  }
  save() {
    const link = el("a", { download: this.name + ".csv", href: URL.createObjectURL(new Blob([this.csv()], { type: "text/csv" })) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
}
