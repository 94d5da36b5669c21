// The map of heads, and what every page needs: elements, numbers, copying. Pages of results, the
// explorer and its widget share this module; `script.py` joins it with theirs into one file.

// Make an element with attributes, text and children; text is never parsed as HTML.
export const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
};

// Copying. In some browsers a page opened from a file has no clipboard: then try the old command,
// and at last show the text so that the reader can copy it.
export const copy = async (text, button) => {
  const tell = (word) => {
    const before = button.dataset.word;
    button.textContent = word;
    setTimeout(() => { button.textContent = before; }, 1600);
  };
  try {
    await navigator.clipboard.writeText(text);
    return tell("Copied");
  } catch { /* the clipboard is missing or forbidden */ }
  const area = make("textarea", { class: "by-hand", readonly: true, "aria-label": "To copy" });
  area.value = text;
  (button.closest("section, header") ?? document.body).append(area);
  area.select();
  if (document.execCommand("copy")) {
    area.remove();
    button.focus();
    return tell("Copied");
  }
  return tell("Press Ctrl+C");
};
export const copyButton = (word, text) => {
  const button = make("button", { type: "button", class: "tool", "data-word": word }, word);
  button.addEventListener("click", () => copy(text(), button));
  return button;
};

export const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
export const shown = (value) => {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value).replace("-", "−");
  const text = size >= 0.01 ? value.toFixed(3) : value.toPrecision(2);
  return text.replace("-", "−");
};
export const interval = (low, high) =>
  (low === null || high === null || low === undefined || high === undefined ? ""
    : `[${shown(low)}, ${shown(high)}]`);

// A select with a label; `change` gets the number of the chosen name.
export const pick = (label, names, chosen, change) => {
  const select = make("select", {});
  names.forEach((name, at) => select.append(make("option", { value: at }, name)));
  select.value = String(chosen);
  select.addEventListener("change", () => change(Number(select.value)));
  return make("label", {}, label, select);
};

// The layer of a head, and its number in the layer.
export const place = (number, counts) => {
  let layer = 0;
  while (number >= counts[layer]) number -= counts[layer++];
  return [layer, number];
};

// Scores colour heads: {name, values, labels?, note?}. Those with labels are roles.
export const SIGNS = { facilitation: "+", interference: "−", irrelevance: "·" };
export const isRole = (one) => Boolean(one.labels);
export const role = (one, number) => one.labels?.[number] ?? null;
// Whether high values come first. The effect when removed is negative for heads that matter, so its
// lowest values come first; roles are sorted by name.
export const falls = (one) => one.name !== "effect when removed" && !isRole(one);
export const spanOf = (one) =>
  Math.max(0, ...(one.values ?? []).map((value) => Math.abs(value ?? 0)));

export const paint = (cell, one, number, span) => {
  cell.className = cell.classList.contains("at") ? "cell at" : "cell";
  cell.textContent = "";
  const own = isRole(one) ? role(one, number) : one.values[number];
  if (isRole(one)) {
    cell.classList.add(own in SIGNS ? own : "none");
    cell.textContent = SIGNS[own] ?? "";
  } else if (own === null || own === undefined) {
    cell.classList.add("unknown");
  } else if (own !== 0) {
    cell.classList.add(own > 0 ? "up" : "down");
    cell.style.setProperty("--share", `${100 * Math.sqrt(Math.abs(own) / span)}%`);
  }
};

export const drawLegend = (legend, one, span, order) => {
  legend.replaceChildren();
  if (isRole(one)) {
    for (const name of [...Object.keys(SIGNS), "undecided"]) {
      const count = one.labels.filter((label) => label === name).length;
      const key = make("span", { class: `key ${name in SIGNS ? name : "none"}` },
        SIGNS[name] ?? "");
      legend.append(make("span", {}, key, `${name}: ${counted(count, "head")}`));
    }
    return;
  }
  const known = one.values.filter((value) => value !== null);
  const below = known.some((value) => value < 0);
  const above = known.some((value) => value > 0);
  const ends = [below ? shown(-span) : "0", above || !below ? shown(span) : "0"];
  const kind = below && above ? "both" : below ? "down" : "up";
  legend.append(make("span", {}, ends[0], make("span", { class: `ramp ${kind}` }), ends[1]));
  const note = one.note ? ` (${one.note})` : "";
  legend.append(make("span", {}, `${one.name}${note}; colour ∝ square root of the score`));
  legend.append(make("span", {}, `layers from left to right, ${order}`));
};

// A grid of cells, one for each head: layers from left to right. `columns` has the heads of each
// layer from top to bottom; `at` is the head that is pointed at.
export const headGrid = (label) => {
  const grid = make("div", { class: "grid", tabindex: "0", role: "application",
    "aria-label": label });
  const self = { grid, cells: [], columns: [], at: null };
  self.build = (counts, columns, sideNames) => {
    const most = Math.max(...counts);
    const every = counts.length > 60 ? 10 : counts.length > 16 ? 5 : 1;
    grid.style.gridTemplateColumns = `2.3rem repeat(${counts.length}, minmax(0, 1fr))`;
    grid.style.maxWidth = `${counts.length * 34 + 40}px`;
    grid.style.minWidth = `calc(${counts.length} * var(--cell, 8px) + 40px)`;
    grid.replaceChildren();
    Object.assign(self, { cells: [], columns });
    for (let row = 0; row < most; row += 1) {
      const sparse = most > 16 && row % 5;
      grid.append(make("div", { class: "axis side" },
        sparse || !sideNames ? "" : String(row)));
      columns.forEach((own) => {
        const number = own[row];
        if (number === undefined) return grid.append(make("div"));
        const cell = make("div", { class: "cell", "data-head": place(number, counts).join(".") });
        cell.dataset.number = number;
        self.cells[number] = cell;
        return grid.append(cell);
      });
    }
    grid.append(make("div", { class: "axis name" }, "layer"));
    counts.forEach((_, layer) => grid.append(make("div",
      { class: "axis layer", "data-layer": layer }, layer % every ? "" : String(layer))));
  };
  self.point = (number) => {
    self.cells[self.at]?.classList.remove("at");
    self.at = number;
    self.cells[number]?.classList.add("at");
  };
  // The head that an arrow key leads to, or null for other keys.
  self.next = (key) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (!(key in step)) return null;
    const { columns, at } = self;
    if (at === null) return columns[0][0];
    const column = columns.findIndex((own) => own.includes(at));
    const [across, along] = step[key];
    const next = columns[Math.max(0, Math.min(columns.length - 1, column + across))];
    const row = columns[column].indexOf(at) + along;
    return next[Math.max(0, Math.min(next.length - 1, row))];
  };
  return self;
};
