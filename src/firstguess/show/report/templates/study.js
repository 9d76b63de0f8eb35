"use strict";
(() => {
  const table = document.getElementById("results");
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const heads = Array.from(table.tHead.rows[0].cells);
  const value = (row, at) => {
    const cell = row.cells[at];
    return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent === "–" ? null : cell.textContent;
  };
  // Rows without a value come last, whichever way the others go.
  const order = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), undefined, { numeric: true });
  };
  const missing = (v) => v === null || Number.isNaN(v);
  heads.forEach((head, at) => {
    head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sorted = rows.map((row) => [value(row, at), row]);
      sorted.sort(([a], [b]) => {
        if (missing(a) || missing(b)) return missing(a) - missing(b);
        return down ? order(b, a) : order(a, b);
      });
      body.append(...sorted.map(([, row]) => row));
    });
  });
  const input = document.getElementById("filter");
  const shown = document.getElementById("shown");
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const cells = Array.from(row.cells, (cell) => [cell.dataset.column.toLowerCase(), cell.textContent.toLowerCase()]);
      const fits = words.every((word) => {
        const cut = word.indexOf(":");
        const column = cut > 0 ? word.slice(0, cut) : "";
        if (column && cells.some(([name]) => name === column)) {
          return cells.some(([name, text]) => name === column && text === word.slice(cut + 1));
        }
        return cells.some(([, text]) => text.includes(word));
      });
      row.hidden = !fits;
      count += fits;
    }
    shown.textContent = words.length ? `${count} of ${rows.length} rows` : "";
  });
})();
