"use strict";
// Nothing of the data is ever written as markup here: only text and classes change.
const all = (where, what) => [...where.querySelectorAll(what)];
const fold = (text) => text.toLowerCase().normalize("NFKD");
let picked = "";

// What a cell sorts by: its key, else the number or the words of its first text; "" stays last.
function sortKey(cell) {
  if (cell.dataset.key) return cell.dataset.key;
  const text = (cell.firstChild ? cell.firstChild.textContent : "").trim();
  const plain = text.replace("\u2212", "-").replace(/[,%]/g, "");
  return text === "\u2013" ? "" : plain !== "" && !isNaN(plain) ? plain : text.toLowerCase();
}
// Tables: click a heading to sort by it, type to filter.
for (const table of all(document, "table.sortable")) {
  const body = table.tBodies[0];
  const heads = all(table.tHead, "th");
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.title = head.title;
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].map((row) => [row, sortKey(row.cells[at])]).sort(([, x], [, y]) => {
        if (x === "" || y === "") return (x === "") - (y === "");
        const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
        return down ? -order : order;
      });
      body.append(...rows.map(([row]) => row));
    });
  });
}
function show(table) {
  const filter = document.getElementById(table.dataset.filter);
  const words = filter ? fold(filter.querySelector("input").value).split(/\s+/).filter(Boolean) : [];
  const byFinding = table.dataset.by === "finding";
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    const text = fold(all(row, "th, td.words").map((cell) => cell.textContent).join(" "));
    const chosen = !picked || !byFinding || fold(row.cells[0].textContent).includes(picked);
    const there = chosen && words.every((word) => text.includes(word));
    row.hidden = !there;
    shown += there;
  }
  if (filter) filter.querySelector(".count").textContent = `${shown} of ${table.tBodies[0].rows.length} rows`;
}
for (const table of all(document, "table[data-filter]")) {
  const filter = document.getElementById(table.dataset.filter);
  filter.hidden = false;
  filter.querySelector("input").addEventListener("input", () => show(table));
  show(table);
}

// One filter for the whole page: rows, sentences and small pictures go, marks in large pictures fade.
const pick = document.getElementById("pick");
if (pick) {
  pick.closest(".pick").hidden = false;
  pick.addEventListener("input", () => {
    picked = fold(pick.value.trim());
    all(document, "table[data-filter]").forEach(show);
    for (const part of all(document, "[data-finding]")) {
      const out = picked !== "" && !fold(part.dataset.finding).includes(picked);
      if (part.tagName.toLowerCase() === "g") part.classList.toggle("dim", out);
      else part.hidden = out;
    }
  });
}

// A number for people: a true minus sign, never "-0.0"; a dash where there is none.
const digits = (value, n = 1) => (Number.isFinite(value) ? value.toFixed(n).replace(/^-(?=0\.?0*$)/, "").replace("-", "\u2212") : "\u2013");

// Prevalence simulator, 0.1% to 50% on a logarithmic scale: PPV and NPV from sensitivity and specificity, net benefit read off its curve.
function between(points, x) {
  if (!points.length || x < points[0][0] * 0.999 || x > points[points.length - 1][0] * 1.001) return NaN;
  for (let k = 1; k < points.length; k += 1) {
    const [x0, y0] = points[k - 1], [x1, y1] = points[k];
    if (x <= x1) return y0 + (y1 - y0) * Math.min(1, Math.max(0, Math.log(x / x0) / Math.log(x1 / x0)));
  }
  return points[points.length - 1][1];
}
for (const box of all(document, ".simulator")) {
  const [range, exact, reset, said] = ["range", "number", "reset", "said"].map((name) => box.querySelector(`.${name}`));
  box.querySelector(".move").hidden = false;
  const put = (cell, text) => { cell.textContent = text; };
  const update = (prevalence) => {
    for (const row of box.querySelectorAll("tbody tr")) {
      const cells = row.cells, data = cells[0].dataset;
      const tpr = Number(data.tpr), fpr = Number(data.fpr);
      const pi = prevalence === null ? Number(data.prevalence) : prevalence;
      const hit = tpr * pi, alarm = fpr * (1 - pi), miss = (1 - tpr) * pi, clear = (1 - fpr) * (1 - pi);
      const ppv = hit / (hit + alarm), npv = clear / (clear + miss), ratio = hit > 0 ? alarm / hit : NaN;
      put(cells[3], `${digits(100 * pi, 2)}%`);
      put(cells[4], digits(ppv, 3));
      put(cells[5], digits(npv, 3));
      put(cells[6], digits(ratio, 3));
      if (cells[7]) {
        const points = data.benefit ? data.benefit.split(" ").map((pair) => pair.split(",").map(Number)) : [];
        const benefit = prevalence === null ? (data.here ? Number(data.here) : NaN) : between(points, pi);
        put(cells[7], digits(benefit, 4));
      }
    }
    const words = prevalence === null ? "as in this sample" : `${digits(100 * prevalence, prevalence < 0.01 ? 2 : 1)}%`;
    said.textContent = words;
    range.setAttribute("aria-valuetext", words);
  };
  range.addEventListener("input", () => {
    const pi = 0.001 * 500 ** (Number(range.value) / 100);
    exact.value = String(Number((100 * pi).toPrecision(3)));
    update(pi);
  });
  exact.addEventListener("input", () => {
    const pi = Number(exact.value) / 100;
    if (!(pi >= 0.001 && pi <= 0.5)) return;
    range.value = String(100 * Math.log(pi / 0.001) / Math.log(500));
    update(pi);
  });
  reset.addEventListener("click", () => {
    exact.value = "";
    range.value = "74";
    update(null);
  });
  range.setAttribute("aria-valuetext", said.textContent);
}

// Paper shows what a click would.
window.addEventListener("beforeprint", () => all(document, "details").forEach((part) => { part.open = true; }));
// A link to something folded opens it.
function reveal() {
  const target = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  if (target) target.scrollIntoView();
}
window.addEventListener("hashchange", reveal);
reveal();
