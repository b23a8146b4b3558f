// Words by their association with a group, in the references (across) and in the generated reports (up).
{
  const STILL = "still-word", NAME = 13, LETTER = 6.7;
  const [WORD, REF, REF_OTHER, PRED, PRED_OTHER, Z_REF, Z_PRED, Z_DISP, Q, PATIENTS] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
  function make(name, style, where, words) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    if (style) made.setAttribute("class", style);
    for (const [key, value] of Object.entries(where)) made.setAttribute(key, typeof value === "number" ? value.toFixed(1) : value);
    if (words !== undefined) made.textContent = words;
    return made;
  }
  const path = (style, d) => make("path", style, { d });
  function mark(kind, x, y, size) {
    if (!CORNERS[kind]) return make("circle", kind === STILL ? STILL : `mark ${kind}`, { cx: x, cy: y, r: kind === STILL ? 2.2 : size });
    return make("polygon", `mark ${kind}`, { points: CORNERS[kind].map(([a, b]) => `${(x + a * size).toFixed(1)},${(y + b * size).toFixed(1)}`).join(" ") });
  }
  // The nearest free place for a name, which is then taken; null where there is none.
  function spot(taken, x, y, width, inside) {
    const places = [[x + 8, y + 4, false], [x - width - 8, y + 4, false]];
    for (let step = 0; step < 5; step += 1) {
      for (const off of [-(10 + 13 * step), 18 + 13 * step]) {
        for (const left of [x - width / 2, x + 5, x - width - 5]) places.push([left, y + off, step > 0]);
      }
    }
    for (const [left, base, far] of places) {
      const box = [left, base - NAME + 3, left + width, base + 3];
      if (box[0] < inside[0] || box[1] < inside[1] || box[2] > inside[2] || box[3] > inside[3]) continue;
      if (taken.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3])) continue;
      taken.push(box);
      return { x: left, y: base, far };
    }
    return null;
  }

  for (const box of all(document, ".words-plot")) {
    const data = JSON.parse(box.querySelector("script").textContent);
    const [model, strategy, pair, rule, find, list, said, stage, field, tip, scale] = [
      ".model", ".strategy", ".pair", ".rule", ".find", "datalist", ".count", ".stage", "svg.field", ".tip", ".scale",
    ].map((each) => box.querySelector(each));
    const filters = all(box, "fieldset");
    const off = filters.map(() => new Set());
    let width = 0, frame = {}, drawn = [], near = -1, plot = null;
    box.querySelector(".still").hidden = true;
    box.querySelector(".moved").hidden = false;

    const codes = () => data.rules[rule.value];
    const category = (row, which = Number(rule.value)) => row[PATIENTS + 1 + which];
    const share = (value) => (frame.stretched ? Math.asinh(value / 2) / Math.asinh(plot.end / 2) : value / plot.end);
    const across = (value) => frame.left + ((share(value) + 1) / 2) * frame.side;
    const up = (value) => frame.top + ((1 - share(value)) / 2) * frame.side;

    function choose() {
      const wanted = [model, pair, strategy].map((each) => Number(each.value));
      plot = data.plots.find((each) => each.at.every((value, k) => value === wanted[k])) || null;
      list.replaceChildren(...(plot ? plot.rows.map((row) => new Option(data.words[row[WORD]])) : []));
      draw();
    }
    function draw() {
      width = stage.clientWidth;
      look(-1);
      if (!width) return;
      if (!plot) {
        drawn = [];
        field.replaceChildren();
        field.setAttribute("viewBox", "0 0 10 1");
        said.textContent = "These groups were not compared for this model and strategy.";
        return;
      }
      frame = { left: 44, top: 6, side: width - 58, stretched: plot.end > data.stretched };
      field.setAttribute("viewBox", `0 0 ${width} ${width - 14}`);
      field.replaceChildren(...ground(), ...points());
      tell();
    }
    // Bands, grid, ticks and the names of both axes.
    function ground() {
      const { left, top, side } = frame, end = plot.end, parts = [];
      const steps = Array.from({ length: 49 }, (_, k) => end * (k / 24 - 1));
      const edge = (shift) => steps.map((value) => `${across(value).toFixed(1)} ${up(Math.min(end, Math.max(-end, value + shift))).toFixed(1)}`);
      parts.push(path("same", `M${[...edge(data.band), ...edge(-data.band).reverse()].join("L")}Z`));
      parts.push(make("rect", "neutral", { x: left, y: up(data.neutral), width: side, height: up(-data.neutral) - up(data.neutral) }));
      const round = frame.stretched ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] : [1, 2, 3, 4, 5, 6, 7, 8].filter((k) => end <= 5 || k % 2 === 0);
      const marks = round.filter((k) => k <= end);
      for (const value of [...marks.map((k) => -k), 0, ...marks]) {
        parts.push(path("grid", `M${across(value).toFixed(1)} ${top}v${side}M${left} ${up(value).toFixed(1)}h${side}`));
        parts.push(make("text", "tick", { x: across(value), y: top + side + 14, "text-anchor": "middle" }, digits(value, 0)));
        parts.push(make("text", "tick", { x: left - 4, y: up(value) + 4, "text-anchor": "end" }, digits(value, 0)));
      }
      for (const value of [-data.strong, data.strong]) parts.push(path("limit", `M${across(value).toFixed(1)} ${top}v${side}`));
      parts.push(path("chance", `M${left} ${top + side}L${left + side} ${top}`));
      const [first, second] = data.sides[pair.value].map((name) => (name.length > 14 ? `${name.slice(0, 13)}\u2026` : name));
      const words = width < 460 ? ["references", "generated"] : ["association in the references (z)", "in the generated reports (z)"];
      const axis = (name) => `\u2190 ${second}\u00a0\u00a0\u00a0${name}\u00a0\u00a0\u00a0${first} \u2192`; // SVG draws runs of plain spaces as one
      parts.push(make("text", "tick", { x: left + side / 2, y: top + side + 30, "text-anchor": "middle" }, axis(words[0])));
      parts.push(make("text", "tick", { "text-anchor": "middle", transform: `translate(11 ${top + side / 2}) rotate(-90)` }, axis(words[1])));
      return parts;
    }
    function points() {
      const hidden = off[rule.value];
      drawn = plot.rows.filter((row) => !hidden.has(category(row)));
      const kind = (row) => codes()[category(row)][1];
      const moved = drawn.filter((row) => kind(row) !== STILL), size = width < 460 ? 3.6 : 4.4;
      const shapes = [...drawn].reverse().sort((a, b) => (kind(b) === STILL) - (kind(a) === STILL)).map((row) => mark(kind(row), across(row[Z_REF]), up(row[Z_PRED]), size));
      const taken = moved.map((row) => [across(row[Z_REF]) - 4, up(row[Z_PRED]) - 4, across(row[Z_REF]) + 4, up(row[Z_PRED]) + 4]);
      const inside = [frame.left, frame.top, frame.left + frame.side, frame.top + frame.side], names = [];
      const far = [...moved].sort((a, b) => Math.abs(b[Z_PRED] - b[Z_REF]) - Math.abs(a[Z_PRED] - a[Z_REF]));
      for (const row of far.slice(0, width < 460 ? 14 : 30)) {
        const word = data.words[row[WORD]], label = word.length > 22 ? `${word.slice(0, 21)}\u2026` : word;
        const [x, y, long] = [across(row[Z_REF]), up(row[Z_PRED]), label.length * LETTER + 5];
        const found = spot(taken, x, y, long, inside);
        if (!found) continue;
        if (found.far) names.push(path("leader", `M${x.toFixed(1)} ${y.toFixed(1)}L${Math.min(Math.max(x, found.x), found.x + long).toFixed(1)} ${(found.y < y ? found.y + 3 : found.y - NAME + 3).toFixed(1)}`));
        names.push(make("text", "label", { x: found.x, y: found.y }, label));
      }
      return [...names.filter((each) => each.tagName === "path"), ...shapes, ...names.filter((each) => each.tagName === "text")];
    }
    function tell() {
      const counts = codes().map((_, code) => plot.rows.filter((row) => category(row) === code).length);
      all(filters[rule.value], ".n").forEach((each, code) => { each.textContent = whole(counts[code]); });
      const least = plot.hidden ? `; ${whole(plot.hidden)} excluded (fewer than ${data.least} patients)` : "";
      const some = plot.rows.length + plot.hidden < plot.n ? ": all that changed, then the most frequent" : "";
      said.textContent = `${whole(drawn.length)} of ${whole(plot.n)} words shown${some}${least}`;
      scale.textContent = frame.stretched ? "The axes are linear up to 2 and logarithmic beyond." : "";
      const names = codes().map(([name], code) => `${counts[code]} ${name}`).join(", ");
      field.setAttribute("aria-label", `Words of ${strategy.selectedOptions[0].text}, ${pair.selectedOptions[0].text}: ${names}. Arrow keys move from word to word.`);
    }
    // One word is told in full beside its mark; -1: none.
    function look(at) {
      const old = field.querySelector(".ring");
      if (old) old.remove();
      near = at;
      tip.hidden = at < 0;
      if (at < 0) return;
      const row = drawn[at], [x, y] = [across(row[Z_REF]), up(row[Z_PRED])], [first, second] = data.sides[pair.value];
      field.append(make("circle", "ring", { cx: x, cy: y, r: 8 }));
      const name = document.createElement("strong");
      name.textContent = data.words[row[WORD]];
      const names = data.rules.map((each, which) => each[category(row, which)][0]);
      const lines = [
        `${names[0]}; published rule: ${names[1]}`,
        `References: ${whole(row[REF])} (${first}), ${whole(row[REF_OTHER])} (${second})`,
        `Generated: ${whole(row[PRED])} (${first}), ${whole(row[PRED_OTHER])} (${second})`,
        `z ${digits(row[Z_REF])} in references, ${digits(row[Z_PRED])} generated`,
        `displacement z ${digits(row[Z_DISP])}; ${names[0] === "omitted" ? "omission" : "its"} q ${row[Q] === null ? "\u2013" : row[Q] < 0.001 ? "< 0.001" : digits(row[Q], 3)}`,
        row[PATIENTS] === null ? "" : `${whole(row[PATIENTS])} patients`,
      ].filter(Boolean);
      tip.replaceChildren(name, ...lines.map((line) => Object.assign(document.createElement("span"), { textContent: line })));
      const ratio = stage.clientWidth / width, wide = tip.offsetWidth, high = tip.offsetHeight;
      tip.style.left = `${Math.max(0, Math.min(stage.clientWidth - wide, x * ratio > stage.clientWidth / 2 ? x * ratio - wide - 14 : x * ratio + 14))}px`;
      tip.style.top = `${y * ratio > width / 2 ? Math.max(0, y * ratio - high - 14) : y * ratio + 14}px`;
    }
    function point(event) {
      const place = field.getBoundingClientRect(), ratio = width / place.width;
      const [x, y] = [(event.clientX - place.left) * ratio, (event.clientY - place.top) * ratio];
      let best = -1, least = event.pointerType === "touch" ? 26 : 16;
      drawn.forEach((row, k) => {
        const away = Math.hypot(across(row[Z_REF]) - x, up(row[Z_PRED]) - y);
        if (away < least) [best, least] = [k, away];
      });
      if (best !== near) look(best);
    }
    field.addEventListener("pointermove", point);
    field.addEventListener("pointerdown", point);
    field.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") look(-1); });
    field.addEventListener("blur", () => look(-1));
    field.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") look(-1);
      if (!drawn.length || (!step && event.key !== "Home" && event.key !== "End")) return;
      event.preventDefault();
      look(event.key === "Home" ? 0 : event.key === "End" ? drawn.length - 1 : near < 0 ? (step > 0 ? 0 : drawn.length - 1) : (near + step + drawn.length) % drawn.length);
    });
    find.addEventListener("input", () => {
      const words = drawn.map((row) => fold(data.words[row[WORD]])), wanted = fold(find.value.trim());
      const exact = words.indexOf(wanted);
      look(!wanted ? -1 : exact >= 0 ? exact : words.findIndex((word) => word.startsWith(wanted)));
    });
    [model, strategy, pair].forEach((each) => each.addEventListener("change", choose));
    rule.addEventListener("change", () => {
      filters.forEach((part, k) => { part.hidden = k !== Number(rule.value); });
      draw();
    });
    filters.forEach((part, k) => part.addEventListener("change", () => {
      off[k] = new Set(all(part, "input").filter((each) => !each.checked).map((each) => Number(each.value)));
      draw();
    }));
    new ResizeObserver(() => { if (stage.clientWidth !== width) draw(); }).observe(stage);
    choose();
  }
}
