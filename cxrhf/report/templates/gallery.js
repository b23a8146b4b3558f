// Thumbnails of the worst and best slices; what the reader says of them goes into a sheet to download.
const quoted = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
// The same order each time, which tells nothing of the slice an image is from.
function mixed(items, seed) {
  const out = [...items];
  let state = seed + 1;
  for (let k = out.length - 1; k > 0; k -= 1) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const other = Math.floor((state / 2 ** 32) * (k + 1));
    [out[k], out[other]] = [out[other], out[k]];
  }
  return out;
}

for (const box of all(document, ".gallery")) {
  const data = JSON.parse(box.querySelector("script").textContent);
  const [finding, part, role, label, name, state, blind, said, sheets, save, told] = [
    ".finding", ".part", ".role", ".label", ".name", ".state", ".blind", ".count", ".sheets", ".save", ".said",
  ].map((each) => box.querySelector(each));
  const answers = new Map();
  let unsaved = false;
  box.querySelector(".none").hidden = true;
  box.querySelector(".moved").hidden = false;
  const groups = () => data.groups.filter((group) => group.finding === finding.value);
  const chosen = () => groups()[part.value];
  const images = (group) => [...new Set(group.parts.flatMap((each) => each.images))];

  function parts() {
    part.replaceChildren(...groups().map((group, k) => new Option(group.part, k)));
    show();
  }
  function show() {
    const group = chosen(), hidden = label.checked && blind.checked;
    role.disabled = hidden;
    all(box, ".label-bar").forEach((bar) => { bar.hidden = !label.checked; });
    const wanted = (image) => !label.checked || !state.value || (answers.get(image) ?? "-") === state.value;
    const sets = hidden
      ? [["Both slices, mixed", "", mixed(images(group).sort((a, b) => a - b), data.groups.indexOf(group))]]
      : group.parts.filter((each) => !role.value || each.role === role.value).map((each) => [`${each.role === "worst" ? "Worst" : "Best"} slice`, each.about, each.images]);
    sheets.replaceChildren(...sets.map(([title, about, own]) => {
      const sheet = document.createElement("div"), head = document.createElement("p"), grid = document.createElement("div");
      head.className = "caption";
      head.textContent = about ? `${title}: ${about}` : title;
      grid.className = "thumbs";
      grid.append(...own.filter(wanted).map((image, k, kept) => thumb(image, `Chest X-ray ${k + 1} of ${kept.length}${hidden ? "" : `, ${title.toLowerCase()}`}`)));
      sheet.append(head, grid);
      return sheet;
    }));
    tell();
  }
  function thumb(image, words) {
    const figure = document.createElement("figure"), picture = document.createElement("img");
    Object.assign(picture, { loading: "lazy", decoding: "async", alt: words, width: 128, height: 128 });
    picture.src = `data:image/jpeg;base64,${data.sources[image]}`;
    figure.append(picture);
    if (!label.checked) return figure;
    figure.tabIndex = 0;
    figure.dataset.image = image;
    figure.setAttribute("aria-label", words);
    const row = document.createElement("div");
    row.className = "answers";
    row.setAttribute("role", "radiogroup");
    row.setAttribute("aria-label", `Label of ${words}`);
    for (const [value, text] of [["1", "yes"], ["0", "no"], ["", "blank"]]) {
      const each = document.createElement("label"), button = document.createElement("input");
      Object.assign(button, { type: "radio", name: `${box.id}-${image}`, value, checked: (answers.get(image) ?? "") === value });
      button.addEventListener("change", () => answer(figure, value));
      each.append(button, text);
      row.append(each);
    }
    figure.append(row);
    return figure;
  }
  function answer(figure, value) {
    const image = Number(figure.dataset.image);
    if (value) answers.set(image, value);
    else answers.delete(image);
    unsaved = answers.size > 0;
    figure.querySelector(`input[value="${value}"]`).checked = true;
    tell();
  }
  // The name as a column has it; "" where it is none.
  function column() {
    const made = name.value.trim().toLowerCase().replace(/[\s-]+/g, "_");
    return /^[a-z][a-z0-9_]*$/.test(made) && !["image_id", "model", "finding", "label", "slice", "role", "half", "rename_me"].includes(made) ? made : "";
  }
  function tell() {
    const own = images(chosen()), given = own.map((image) => answers.get(image)).filter(Boolean);
    const yes = given.filter((value) => value === "1").length;
    said.textContent = label.checked ? `${given.length} of ${own.length} images labelled: ${yes} yes, ${given.length - yes} no` : `${own.length} images`;
    save.disabled = !column();
    told.textContent = column()
      ? `To use the sheet: cxrhf audit RUN --annotations ${column()}.csv`
      : "Name the attribute first. Use letters, digits and _, for example ecg_wires.";
  }
  function sheet() {
    const touched = new Set(data.groups.filter((group) => images(group).some((image) => answers.has(image))).map((group) => group.key));
    if (!touched.size) touched.add(chosen().key);
    const lines = new Set([["image_id", "finding", column()].join(",")]);
    for (const group of data.groups.filter((each) => touched.has(each.key))) {
      for (const image of mixed(images(group).sort((a, b) => a - b), data.groups.indexOf(group))) {
        lines.add([data.ids[image], group.key, answers.get(image) ?? ""].map(quoted).join(","));
      }
    }
    return `${[...lines].join("\n")}\n`;
  }
  box.addEventListener("keydown", (event) => {
    const figure = event.target.closest("figure[data-image]"), value = { y: "1", n: "0", Backspace: "" }[event.key];
    if (!figure || value === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    answer(figure, value);
    if (figure.nextElementSibling) figure.nextElementSibling.focus();
  });
  save.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([sheet()], { type: "text/csv" }));
    link.download = `${column()}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    unsaved = false;
  });
  finding.addEventListener("change", parts);
  [part, role, label, state, blind].forEach((each) => each.addEventListener("change", show));
  name.addEventListener("input", tell);
  window.addEventListener("beforeunload", (event) => { if (unsaved) event.preventDefault(); });
  parts();
}
