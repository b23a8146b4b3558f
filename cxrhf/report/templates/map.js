// Maps of vectors: patients as marks, or cells of a grid where single patients may not be shown.
const DASHES = { overall: [], remains: [6, 3], fourth: [2, 3], fifth: [8, 3, 2, 3], sixth: [10, 4], context: [1, 2] };
const paint = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function mark(pen, kind, x, y, size) {
  pen.beginPath();
  if (CORNERS[kind]) CORNERS[kind].forEach(([a, b]) => pen.lineTo(x + a * size, y + b * size));
  else pen.arc(x, y, size, 0, 7);
  pen.closePath();
}
// Shares of each bin, smoothed; of a group, so that small and large groups compare.
function shares(places, weights, bins) {
  let found = new Array(bins).fill(0);
  places.forEach((place, k) => { found[Math.min(bins - 1, Math.floor(place * bins))] += weights ? weights[k] : 1; });
  for (let turn = 0; turn < (weights ? 2 : 6); turn += 1) {
    found = found.map((value, k) => ((found[k - 1] ?? value) + 2 * value + (found[k + 1] ?? value)) / 4);
  }
  const total = found.reduce((sum, value) => sum + value, 0);
  return total ? found.map((value) => value / total) : found;
}

for (const box of all(document, ".map")) {
  const data = JSON.parse(box.querySelector("script").textContent);
  const [which, colour, said, stage, canvas, tip] = [".which", ".colour", ".count", ".stage", "canvas", ".tip"].map((each) => box.querySelector(each));
  const filters = all(box, "fieldset");
  let off = filters.map(() => new Set()), places = [], cursor = null, near = null;
  box.querySelector(".still").hidden = true;
  box.querySelector(".moved").hidden = false;

  // What is to be drawn of the chosen map: place (0..1 both ways), code or counts, words.
  function shown(map, at) {
    const own = data.attributes[at];
    if (!data.grid) {
      const kept = [];
      map.x.forEach((x, k) => {
        if (x < 0 || data.attributes.some((each, j) => off[j].has(each.of[k]))) return;
        kept.push({ x: x / 1000, y: map.y[k] / 1000, n: 1, code: own.of[k], key: k });
      });
      return kept;
    }
    return map.cells.map((cell, k) => {
      const counts = map.of[at][k].map((value, code) => (off[at].has(code) ? 0 : value));
      const [column, row] = [cell % map.side, Math.floor(cell / map.side)];
      return { x: (column + 0.5) / map.side, y: (row + 0.5) / map.side, n: counts.reduce((a, b) => a + b, 0), counts, key: k };
    }).filter((cell) => cell.n > 0);
  }
  function words(place) {
    if (!data.grid) return data.attributes.map((each) => `${each.name} ${each.values[each.of[place.key]]}`).join(", ");
    const counts = data.maps[which.value].of[colour.value][place.key];
    const total = counts.reduce((a, b) => a + b, 0);
    const parts = counts.map((value, code) => [value, data.attributes[colour.value].values[code]]).filter(([value]) => value);
    return `${total} patients: ${parts.sort((a, b) => b[0] - a[0]).map(([value, name]) => `${Math.round((100 * value) / total)}% ${name}`).join(", ")}`;
  }
  let width = 0, frame = {};
  const across = (x) => frame.left + 5 + x * (frame.field - 10);
  const up = (y) => frame.strip + 5 + (1 - y) * (frame.field - 10);

  function draw() {
    width = stage.clientWidth;
    if (!width) return;
    const map = data.maps[which.value], own = data.attributes[colour.value], ratio = window.devicePixelRatio || 1;
    const strip = Math.round(width * 0.14), left = 22;
    frame = { left, strip, field: width - left - strip };
    const height = strip + frame.field + 24;
    Object.assign(canvas, { width: width * ratio, height: height * ratio });
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const paints = own.kinds.map(paint);
    pen.strokeStyle = paint("line");
    pen.strokeRect(left, strip, frame.field, frame.field);
    places = shown(map, Number(colour.value));
    const most = Math.max(1, ...places.map((place) => place.n)), cell = data.grid ? (frame.field - 10) / map.side : 0;
    pen.globalAlpha = data.grid ? 0.85 : 0.6;
    for (const place of places) {
      const [x, y] = [across(place.x), up(place.y)];
      if (data.grid) {
        const size = (0.25 + 0.7 * Math.sqrt(place.n / most)) * cell;
        let from = x - size / 2;
        place.counts.forEach((value, code) => {
          pen.fillStyle = paints[code];
          pen.fillRect(from, y - size / 2, (size * value) / place.n, size);
          from += (size * value) / place.n;
        });
      } else {
        pen.fillStyle = paints[place.code];
        mark(pen, own.kinds[place.code], x, y, width < 420 ? 2.2 : 3);
        pen.fill();
      }
    }
    pen.globalAlpha = 1;
    edges(pen, own, paints, data.grid ? map.side : 40);
    pen.fillStyle = paint("muted");
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.fillText(map.axes[0], left + frame.field / 2, strip + frame.field + 17, frame.field);
    pen.save();
    pen.translate(14, strip + frame.field / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(map.axes[1], 0, 0, frame.field);
    pen.restore();
    if (near) {
      pen.strokeStyle = paint("ink");
      pen.lineWidth = 2;
      pen.beginPath();
      pen.arc(across(near.x), up(near.y), data.grid ? cell * 0.6 : 7, 0, 7);
      pen.stroke();
    }
    const total = places.reduce((sum, place) => sum + place.n, 0);
    said.textContent = `${whole(total)} of ${whole(data.n)} patients shown` + (data.grid ? `; cells with fewer than ${data.least} are excluded` : "");
    canvas.setAttribute("aria-label", `Map: ${map.name}, by ${own.name}; ${said.textContent}. Arrow keys move the cursor; Escape leaves the map.`);
  }
  // Distributions of the groups above the field and at its right.
  function edges(pen, own, paints, bins) {
    pen.lineWidth = 1.8;
    for (const side of ["x", "y"]) {
      const curves = own.values.map((_, code) => {
        const mine = places.filter((place) => (data.grid ? place.counts[code] : place.code === code));
        return mine.length ? shares(mine.map((place) => place[side]), data.grid && mine.map((place) => place.counts[code]), bins) : [];
      });
      const most = Math.max(0.001, ...curves.flat());
      curves.forEach((curve, code) => {
        pen.strokeStyle = paints[code];
        pen.setLineDash(DASHES[own.kinds[code]]);
        pen.beginPath();
        curve.forEach((value, k) => {
          const along = (k + 0.5) / bins, out = (value / most) * (frame.strip - 6);
          if (side === "x") pen.lineTo(across(along), frame.strip - 3 - out);
          else pen.lineTo(frame.left + frame.field + 3 + out, up(along));
        });
        pen.stroke();
      });
    }
    pen.setLineDash([]);
  }
  // The nearest patient or cell is told in words beside it.
  function look(x, y) {
    cursor = x === null ? null : [x, y];
    const reach = data.grid ? (frame.field - 10) / data.maps[which.value].side : 16;
    let best = null, least = reach;
    for (const place of cursor ? places : []) {
      const away = Math.hypot(across(place.x) - x, up(place.y) - y);
      if (away < least) [best, least] = [place, away];
    }
    near = best;
    draw();
    tip.hidden = !best;
    if (!best) return;
    tip.textContent = words(best);
    const right = across(best.x) > width / 2;
    tip.style.left = right ? "auto" : `${across(best.x) + 12}px`;
    tip.style.right = right ? `${width - across(best.x) + 12}px` : "auto";
    tip.style.top = `${up(best.y) + 12}px`;
  }
  canvas.addEventListener("pointermove", (event) => look(event.offsetX, event.offsetY));
  canvas.addEventListener("pointerdown", (event) => look(event.offsetX, event.offsetY));
  canvas.addEventListener("pointerleave", () => look(null));
  canvas.addEventListener("blur", () => look(null));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-10, 0], ArrowRight: [10, 0], ArrowUp: [0, -10], ArrowDown: [0, 10] }[event.key];
    if (event.key === "Escape") look(null);
    if (!step) return;
    event.preventDefault();
    const [x, y] = cursor || [across(0.5), up(0.5)];
    look(Math.min(width, Math.max(0, x + step[0])), Math.min(up(0), Math.max(up(1), y + step[1])));
  });
  which.addEventListener("change", () => look(null));
  colour.addEventListener("change", () => {
    if (data.grid) {
      filters.forEach((part, k) => { part.hidden = k !== Number(colour.value); });
    }
    look(null);
  });
  filters.forEach((part, k) => part.addEventListener("change", () => {
    off[k] = new Set(all(part, "input").filter((each) => !each.checked).map((each) => Number(each.value)));
    look(null);
  }));
  box.querySelector(".reset").addEventListener("click", () => {
    all(box, "fieldset input").forEach((each) => { each.checked = true; });
    off = filters.map(() => new Set());
    look(null);
  });
  new ResizeObserver(() => { if (stage.clientWidth !== width) look(null); }).observe(stage);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => look(null));
  look(null);
}
