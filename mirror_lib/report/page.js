"use strict";
// Sorts, filters and opens the tables of the report. All rows are in the element `tables`; a row becomes an element of
// the page when it is to be seen. Texts are set as text, never as HTML.
(() => {
  const MORE = 200;
  const data = JSON.parse(document.getElementById("tables").textContent);
  const collator = new Intl.Collator("en", { numeric: true });
  const byText = (column) => column[1] === "text" || column[1] === "word";
  const TEXTS = 0, SORTS = 1, MARKS = 2, INNER = 3;

  function element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function button(className, text) {
    const made = element("button", className, text);
    made.type = "button";
    return made;
  }

  function counted(number, noun) {
    const digits = String(number).replace(/\B(?=(\d{3})+$)/g, ",");
    return `${digits} ${noun}${number === 1 ? "" : "s"}`;
  }

  class Grid {
    // `root` holds a table, which has its heading and perhaps its first rows, and the line that counts rows.
    constructor(root, given) {
      this.root = root;
      this.given = given;
      this.order = given.rows.map((_, number) => number);
      this.limit = given.shown;
      this.sorted = -1;
      this.ascending = true;
      this.opened = new Set();
      this.body = root.querySelector("tbody");
      this.count = root.querySelector(".count");
      this.headings = [...root.querySelectorAll("thead th")];
      this.headings.forEach((heading, column) => {
        heading.firstElementChild.addEventListener("click", () => this.sort(column));
      });
      this.body.addEventListener("click", (event) => {
        const opener = event.target.closest("button.open");
        if (opener && opener.closest("tbody") === this.body) this.toggle(opener.closest("tr"));
      });
      if (given.rows.length > 10) this.addFilter();
      this.tell();
    }

    addFilter() {
      const label = element("label", "filter", "Filter ");
      this.input = element("input");
      this.input.type = "search";
      this.input.addEventListener("input", () => this.select());
      label.append(this.input);
      this.root.prepend(label);
    }

    sort(column) {
      this.ascending = this.sorted === column ? !this.ascending : byText(this.given.columns[column]);
      this.sorted = column;
      this.headings.forEach((heading, number) => {
        const direction = this.ascending ? "ascending" : "descending";
        heading.setAttribute("aria-sort", number === column ? direction : "none");
      });
      this.select();
    }

    select() {
      const words = this.input ? this.input.value.trim().toLowerCase() : "";
      const { rows, columns } = this.given;
      this.order = [];
      rows.forEach((row, number) => {
        if (!words || row[TEXTS].some((text) => text.toLowerCase().includes(words))) this.order.push(number);
      });
      if (this.sorted >= 0) this.order.sort(this.comparer(this.sorted));
      this.limit = this.given.shown;
      this.render();
    }

    comparer(column) {
      const { rows, columns } = this.given;
      const sign = this.ascending ? 1 : -1;
      return (a, b) => {
        if (byText(columns[column])) return sign * collator.compare(rows[a][TEXTS][column], rows[b][TEXTS][column]) || a - b;
        const [x, y] = [rows[a][SORTS][column], rows[b][SORTS][column]];
        if (x === null || y === null) return (x === null) - (y === null) || a - b;
        return sign * (x - y) || a - b;
      };
    }

    render() {
      this.body.replaceChildren();
      this.append(0);
    }

    append(from) {
      const made = document.createDocumentFragment();
      for (const number of this.order.slice(from, this.limit)) {
        made.append(this.row(number));
        if (this.opened.has(number)) made.append(this.inner(number));
      }
      this.body.append(made);
      for (const row of this.body.querySelectorAll(":scope > tr[data-row]")) {
        if (this.opened.has(Number(row.dataset.row))) row.querySelector("button.open").setAttribute("aria-expanded", "true");
      }
      this.tell();
    }

    row(number) {
      const [texts, sorts, marks, inner] = this.given.rows[number];
      const made = element("tr");
      made.dataset.row = number;
      texts.forEach((text, column) => {
        const cell = element("td", `${this.given.columns[column][1]} ${marks[column]}`.trim());
        if (sorts[column] !== null) cell.dataset.sort = sorts[column];
        if (inner.length && column === 0) {
          const opener = button("open", text);
          opener.setAttribute("aria-expanded", "false");
          cell.append(opener);
        } else {
          cell.textContent = text;
        }
        made.append(cell);
      });
      return made;
    }

    toggle(row) {
      const number = Number(row.dataset.row);
      const open = !this.opened.has(number);
      row.querySelector("button.open").setAttribute("aria-expanded", String(open));
      if (open) {
        this.opened.add(number);
        row.after(this.inner(number));
      } else {
        this.opened.delete(number);
        row.nextElementSibling.remove();
      }
    }

    inner(number) {
      const { inner } = this.given;
      const rows = this.given.rows[number][INNER];
      const made = element("tr", "inner");
      const cell = element("td");
      cell.colSpan = this.given.columns.length;
      const root = element("div", "grid");
      const table = element("table");
      const headings = element("tr");
      for (const [title, kind, note] of inner.columns) {
        const heading = element("th", kind);
        heading.scope = "col";
        heading.setAttribute("aria-sort", "none");
        const sorter = button("", title);
        if (note) sorter.title = note;
        heading.append(sorter);
        headings.append(heading);
      }
      const head = element("thead");
      head.append(headings);
      table.append(head, element("tbody"));
      root.append(table, element("p", "count"));
      cell.append(root);
      made.append(cell);
      new Grid(root, { noun: inner.noun, shown: MORE, columns: inner.columns, rows, inner: {} }).render();
      return made;
    }

    tell() {
      const shown = Math.min(this.limit, this.order.length);
      const all = counted(this.order.length, this.given.noun);
      const left = this.order.length - shown;
      const filtered = this.order.length < this.given.rows.length ? ` match, of ${this.given.rows.length}` : "";
      this.count.textContent = `${left ? `${shown} of ${all}` : all}${filtered}`;
      if (!left) return;
      const more = button("more", `Show ${Math.min(MORE, left)} more`);
      more.addEventListener("click", () => {
        const from = shown;
        this.limit = shown + MORE;
        this.append(from);
      });
      this.count.append(" ", more);
    }
  }

  for (const root of document.querySelectorAll("[data-table]")) new Grid(root, data[root.dataset.table]);
  document.documentElement.classList.add("ready");
})();
