"use strict";
// Sorts and filters the tables of the report. All rows are in the page, and the first ones of a long table are shown.
const MOST = 500;
for (const grid of document.querySelectorAll("[data-table]")) {
  const body = grid.querySelector("tbody"), count = grid.querySelector(".count"), filter = grid.querySelector(".filter");
  const headings = [...grid.querySelectorAll("th")], rows = [...body.rows];
  const { compare } = new Intl.Collator("en", { numeric: true });

  headings.forEach((heading, column) => {
    const isNumber = heading.className === "number";
    const text = (row) => row.cells[column].textContent;
    // NaN for a hyphen.
    const number = (row) => parseFloat(row.cells[column].dataset.sort ?? text(row).replaceAll(",", ""));
    const byNumber = (a, b, sign) => {
      const [x, y] = [number(a), number(b)];
      return isNaN(x) || isNaN(y) ? isNaN(x) - isNaN(y) : sign * (x - y);
    };
    heading.firstElementChild.addEventListener("click", () => {
      const before = heading.getAttribute("aria-sort");
      const ascending = before === "none" ? !isNumber : before === "descending";
      for (const each of headings) each.setAttribute("aria-sort", "none");
      heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const sign = ascending ? 1 : -1;
      rows.sort((a, b) => isNumber ? byNumber(a, b, sign) : sign * compare(text(a), text(b)));
      for (const row of rows) body.append(row);
      show();
    });
  });

  const all = count.textContent;
  function show() {
    const words = filter ? filter.lastElementChild.value.trim().toLowerCase() : "";
    let shown = 0;
    for (const row of rows) {
      row.hidden = shown === MOST || !row.textContent.toLowerCase().includes(words);
      shown += !row.hidden;
    }
    count.textContent = shown < rows.length ? `${shown} of ${all}` : all;
  }
  if (filter) {
    filter.hidden = false;
    filter.addEventListener("input", show);
  }
  show();
}
