
"use strict";
(() => {
  // Make an element with attributes, text and children; text is never parsed as HTML.
  const make = (tag, attributes = {}, ...children) => {
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
  const copy = async (text, button) => {
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
  const copyButton = (word, text) => {
    const button = make("button", { type: "button", class: "tool", "data-word": word }, word);
    button.addEventListener("click", () => copy(text(), button));
    return button;
  };
  const tsv = (rows) => rows.map((row) => row.map((cell) =>
    String(cell ?? "").replace(/[\t\r\n]+/g, " ")).join("\t")).join("\n") + "\n";

  // Sorting: every heading becomes a button. Unknown values stay last in both directions.
  const compare = (one, other) => {
    if (typeof one === "number" && typeof other === "number") return one - other;
    return String(one).localeCompare(String(other), undefined, { numeric: true });
  };
  const sorted = (rows, key, down) => {
    const isKnown = (row) => key(row) !== null && key(row) !== "";
    const known = rows.filter(isKnown);
    const others = rows.filter((row) => !isKnown(row));
    known.sort((one, other) => compare(key(one), key(other)) * (down ? -1 : 1));
    return [...known, ...others];
  };
  const headings = (table, order) => {
    const heads = [...table.tHead.rows[0].cells];
    const set = (column, down) => {
      heads.forEach((th) => th.removeAttribute("aria-sort"));
      heads[column].setAttribute("aria-sort", down ? "descending" : "ascending");
      order(column, down);
    };
    heads.forEach((th, column) => {
      const button = make("button", { type: "button" }, ...th.childNodes);
      button.addEventListener("click", () => {
        const now = th.getAttribute("aria-sort");
        // The first click sorts numbers from the highest down, and names from A to Z.
        set(column, now ? now === "ascending" : th.classList.contains("number"));
      });
      th.replaceChildren(button);
    });
    return set;
  };
  const raw = (cell) => cell.dataset.v ?? cell.textContent.trim();
  const value = (cell) => {
    const text = raw(cell);
    const number = Number(text);
    if (text === "" || text === "nan") return null;
    return Number.isNaN(number) ? text : number;
  };
  for (const table of document.querySelectorAll("table.data")) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    headings(table, (column, down) =>
      body.append(...sorted(rows, (row) => value(row.cells[column]), down)));
    const text = () => tsv([
      [...table.tHead.rows[0].cells].map((th) => th.textContent.trim()),
      ...[...body.rows].map((row) => [...row.cells].map(raw)),
    ]);
    table.closest(".wide").before(make("div", { class: "tools" }, copyButton("Copy table", text)));
    if (table.tHead.rows[0].cells.length > 9) table.closest(".wide").classList.add("tight");
  }
  for (const block of document.querySelectorAll("pre.command")) {
    const text = block.textContent;
    block.append(copyButton("Copy", () => text));
  }

  // The map of heads
  const view = document.getElementById("head-view");
  if (!view) return;
  const models = JSON.parse(document.getElementById("head-data").textContent);
  const SIGNS = { facilitation: "+", interference: "−", irrelevance: "·" };
  const FIRST = 15; // rows that the table shows at first
  const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  const state = { model: 0, group: 0, score: 0, within: false, all: false, column: 1, down: true };
  const choose = (changes) => {
    Object.assign(state, changes);
    Object.assign(state, { column: state.score + 1, down: falls(score()) });
    draw();
  };
  const model = () => models[state.model];
  const group = () => model().groups[state.group];
  const score = () => group().scores[state.score];
  const place = (number) => {
    let layer = 0;
    while (number >= model().counts[layer]) number -= model().counts[layer++];
    return [layer, number];
  };
  const title = (number) => place(number).join(".");
  const shown = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (Number.isInteger(value) && size < 1e6) return String(value).replace("-", "−");
    const text = size >= 0.01 ? value.toFixed(3) : value.toPrecision(2);
    return text.replace("-", "−");
  };
  const interval = (one, number) => {
    const [low, high] = [one.low?.[number] ?? null, one.high?.[number] ?? null];
    return low === null || high === null ? "" : `[${shown(low)}, ${shown(high)}]`;
  };
  const ordinal = (one, number) => {
    const own = one.values[number];
    if (own === null) return "";
    const sign = falls(one) ? 1 : -1;
    const above = one.values.filter((other) => other !== null && sign * (other - own) > 0).length;
    return `rank ${above + 1} of ${one.values.length}`;
  };
  const role = (one, number) => one.labels?.[number] ?? null;
  const isRole = (one) => Boolean(one.labels);
  // Whether high values come first. The effect when removed is negative for heads that matter, so
  // its lowest values come first; roles are sorted by name.
  const falls = (one) => one.name !== "effect when removed" && !isRole(one);
  const valueOf = (one, number) => (isRole(one) ? role(one, number) : one.values[number]);

  const pick = (label, names, chosen, change) => {
    const select = make("select", {});
    names.forEach((name, at) => select.append(make("option", { value: at }, name)));
    select.value = String(chosen);
    select.addEventListener("change", () => change(Number(select.value)));
    return make("label", {}, label, select);
  };
  const controls = make("div", { class: "controls" });
  const tip = make("div", { class: "tip", role: "status", hidden: true });
  const grid = make("div", {
    class: "grid", tabindex: "0", role: "application",
    "aria-label": "Map of heads, layers from left to right; arrow keys move",
  });
  const map = make("div", { class: "map" }, make("div", { class: "scroll" }, grid), tip);
  const legend = make("p", { class: "legend" });
  const table = make("div", { class: "head-table" });
  view.append(controls, map, legend, table);
  let cells = [];
  let columns = [];
  let at = null;

  const drawControls = () => {
    controls.replaceChildren();
    if (models.length > 1) {
      controls.append(pick("Model", models.map((one) => one.name), state.model, (number) => {
        choose({ model: number, group: 0, score: 0 });
      }));
    }
    const names = model().groups.map((one) => `${one.study} · ${one.task}`);
    controls.append(pick("Study and task", names, state.group, (number) => {
      const same = model().groups[number].scores.findIndex((one) => one.name === score().name);
      choose({ group: number, score: Math.max(0, same) });
    }));
    controls.append(pick("Colour by", group().scores.map((one) => one.name), state.score,
      (number) => choose({ score: number })));
    const box = make("input", { type: "checkbox" });
    box.checked = state.within;
    box.addEventListener("change", () => { state.within = box.checked; drawMap(); });
    controls.append(make("label", {}, box, "Sort each layer by this score"));
  };

  const drawMap = () => {
    const { counts } = model();
    const one = score();
    const most = Math.max(...counts);
    const span = Math.max(0, ...one.values.map((value) => Math.abs(value ?? 0)));
    const every = counts.length > 60 ? 10 : counts.length > 16 ? 5 : 1;
    const style = `1.9rem repeat(${counts.length}, minmax(0, 1fr))`;
    grid.style.gridTemplateColumns = style;
    grid.style.maxWidth = `${counts.length * 34 + 40}px`;
    grid.style.minWidth = `${counts.length * 8 + 40}px`;
    grid.replaceChildren();
    cells = new Array(one.values.length);
    columns = [];
    let first = 0;
    counts.forEach((count) => {
      const own = Array.from({ length: count }, (_, index) => first + index);
      columns.push(state.within ? sorted(own, (number) => valueOf(one, number), falls(one))
        : own);
      first += count;
    });
    for (let row = 0; row < most; row += 1) {
      const sparse = most > 16 && row % 5;
      grid.append(make("div", { class: "axis side" }, sparse || state.within ? "" : String(row)));
      columns.forEach((own) => {
        const number = own[row];
        if (number === undefined) return grid.append(make("div"));
        const cell = make("div", { class: "cell", "data-head": title(number) });
        cell.dataset.number = number;
        paint(cell, one, number, span);
        cells[number] = cell;
        return grid.append(cell);
      });
    }
    grid.append(make("div", { class: "axis name" }, "layer"));
    counts.forEach((_, layer) =>
      grid.append(make("div", { class: "axis layer" }, layer % every ? "" : String(layer))));
    drawLegend(one, span);
  };
  const paint = (cell, one, number, span) => {
    const own = one.values[number];
    if (isRole(one)) {
      const name = role(one, number);
      cell.classList.add(name in SIGNS ? name : "none");
      cell.textContent = SIGNS[name] ?? "";
    } else if (own === null) {
      cell.classList.add("unknown");
    } else if (own !== 0) {
      cell.classList.add(own > 0 ? "up" : "down");
      cell.style.setProperty("--share", `${100 * Math.sqrt(Math.abs(own) / span)}%`);
    }
  };
  const drawLegend = (one, span) => {
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
    const order = falls(one) ? "highest on top" : "lowest on top";
    legend.append(make("span", {}, "layers from left to right, "
      + (state.within ? order : "heads from top to bottom")));
  };

  const drawTip = (number) => {
    const body = make("tbody");
    for (const one of group().scores) {
      const name = role(one, number);
      body.append(make("tr", {},
        make("td", {}, one.name),
        make("td", { class: isRole(one) ? "" : "number" }, name ?? shown(one.values[number])),
        make("td", {}, isRole(one) ? "" : interval(one, number)),
        make("td", { class: "number" }, isRole(one) ? "" : ordinal(one, number))));
    }
    const rest = model().groups.filter((one) => one !== group()).map((other) => {
      const one = other.scores[0];
      const said = role(one, number) ?? `${shown(one.values[number])}, ${ordinal(one, number)}`;
      return make("div", {}, `${other.task} · ${one.name}: ${said}`);
    });
    const notes = [...new Set(group().scores.map((one) => one.note).filter(Boolean))];
    tip.replaceChildren(
      make("strong", {}, `Head ${title(number)}`), ` · ${group().task}`,
      make("table", {}, body),
      ...(notes.length ? [make("div", { class: "note" }, notes.join("; "))] : []),
      ...(rest.length ? [make("div", { class: "else" }, ...rest)] : []));
  };
  const show = (number) => {
    cells[at]?.classList.remove("at");
    at = number;
    if (number === null) { tip.hidden = true; return; }
    const cell = cells[number];
    cell.classList.add("at");
    drawTip(number);
    tip.hidden = false;
    const frame = map.getBoundingClientRect();
    const box = cell.getBoundingClientRect();
    const left = box.left - frame.left + box.width / 2 - tip.offsetWidth / 2;
    tip.style.left = `${Math.max(0, Math.min(left, frame.width - tip.offsetWidth))}px`;
    const under = box.bottom - frame.top + 8;
    const over = box.top - frame.top - tip.offsetHeight - 8;
    const fits = box.bottom + 8 + tip.offsetHeight <= window.innerHeight;
    tip.style.top = `${fits || box.top - tip.offsetHeight < 8 ? under : over}px`;
  };
  grid.addEventListener("pointerover", (event) => {
    const number = event.target.dataset?.number;
    show(number === undefined ? null : Number(number));
  });
  // Lifting a finger also fires "pointerleave": keep the tip open until the next touch.
  grid.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch") show(null);
  });
  document.addEventListener("pointerdown", (event) => {
    if (!grid.contains(event.target)) show(null);
  });
  grid.addEventListener("blur", () => show(null));
  grid.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key === "Escape") return show(null);
    if (!(event.key in step)) return undefined;
    event.preventDefault();
    if (at === null) return show(columns[0][0]);
    const column = columns.findIndex((own) => own.includes(at));
    const [across, along] = step[event.key];
    const next = columns[Math.max(0, Math.min(columns.length - 1, column + across))];
    const row = columns[column].indexOf(at) + along;
    return show(next[Math.max(0, Math.min(next.length - 1, row))]);
  });

  const drawTable = () => {
    const { scores } = group();
    const numbers = Array.from({ length: scores[0].values.length }, (_, number) => number);
    const key = (number) => {
      if (!state.column) return number;
      return valueOf(scores[state.column - 1], number);
    };
    const order = () => sorted(numbers, key, state.down);
    const header = make("tr", {}, make("th", { scope: "col" }, "head"),
      ...scores.map((one) => make("th", { scope: "col", class: isRole(one) ? "" : "number" },
        one.name)));
    const body = make("tbody");
    const sheet = make("table", {}, make("thead", {}, header), body);
    const more = make("button", { type: "button", class: "tool" });
    const fill = () => {
      const some = state.all ? order() : order().slice(0, FIRST);
      body.replaceChildren(...some.map((number) => {
        const row = make("tr", {}, make("td", {}, title(number)), ...scores.map((one) =>
          (isRole(one) ? make("td", {}, role(one, number) ?? "–")
            : make("td", { class: "number" }, shown(one.values[number]),
              make("span", { class: "interval" }, interval(one, number))))));
        row.addEventListener("pointerenter", () => cells[number].classList.add("at"));
        row.addEventListener("pointerleave", () => cells[number].classList.remove("at"));
        return row;
      }));
      more.textContent = state.all ? `Show the first ${FIRST}` : `Show all ${counted(numbers.length, "head")}`;
    };
    more.addEventListener("click", () => { state.all = !state.all; fill(); });
    const set = headings(sheet, (column, down) => {
      Object.assign(state, { column, down });
      fill();
    });
    const text = () => tsv([
      ["model", "task", "head", ...scores.flatMap((one) => (isRole(one) ? [one.name]
        : [one.name, `${one.name} low`, `${one.name} high`]))],
      ...order().map((number) => [model().name, group().task, title(number),
        ...scores.flatMap((one) => (isRole(one) ? [role(one, number)]
          : [one.values[number], one.low?.[number], one.high?.[number]]))]),
    ]);
    const tools = make("div", { class: "tools" }, copyButton("Copy table", text));
    if (numbers.length > FIRST) tools.append(more);
    table.replaceChildren(tools, make("div", { class: scores.length > 8 ? "wide tight" : "wide" },
      sheet));
    set(state.column, state.down);
  };
  const draw = () => {
    show(null);
    drawControls();
    drawMap();
    drawTable();
  };
  choose({});
})();
