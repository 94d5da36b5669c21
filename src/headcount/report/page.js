// The page of a result: sorting, copying, and the map of heads with a table.
import {
  copyButton, counted, drawLegend, falls, headGrid, interval, isRole, make, paint, pick, place, role,
  shown, spanOf,
} from "./heads.js";

(() => {
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
  const FIRST = 15; // rows that the table shows at first
  const state = { model: 0, group: 0, score: 0, within: false, all: false, column: 1, down: true };
  const choose = (changes) => {
    Object.assign(state, changes);
    Object.assign(state, { column: state.score + 1, down: falls(score()) });
    draw();
  };
  const model = () => models[state.model];
  const group = () => model().groups[state.group];
  const score = () => group().scores[state.score];
  const title = (number) => place(number, model().counts).join(".");
  const ends = (one, number) => interval(one.low?.[number], one.high?.[number]);
  const ordinal = (one, number) => {
    const own = one.values[number];
    if (own === null) return "";
    const sign = falls(one) ? 1 : -1;
    const above = one.values.filter((other) => other !== null && sign * (other - own) > 0).length;
    return `rank ${above + 1} of ${one.values.length}`;
  };
  const valueOf = (one, number) => (isRole(one) ? role(one, number) : one.values[number]);

  const controls = make("div", { class: "controls" });
  const tip = make("div", { class: "tip", role: "status", hidden: true });
  const heads = headGrid("Map of heads, layers from left to right; arrow keys move");
  const { grid } = heads;
  const map = make("div", { class: "map" }, make("div", { class: "scroll" }, grid), tip);
  const legend = make("p", { class: "legend" });
  const table = make("div", { class: "head-table" });
  view.append(controls, map, legend, table);
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
    const span = spanOf(one);
    let first = 0;
    const columns = counts.map((count) => {
      const own = Array.from({ length: count }, (_, index) => first + index);
      first += count;
      return state.within ? sorted(own, (number) => valueOf(one, number), falls(one)) : own;
    });
    heads.build(counts, columns, !state.within);
    heads.cells.forEach((cell, number) => paint(cell, one, number, span));
    const order = falls(one) ? "highest on top" : "lowest on top";
    drawLegend(legend, one, span, state.within ? order : "heads from top to bottom");
  };

  const drawTip = (number) => {
    const body = make("tbody");
    for (const one of group().scores) {
      const name = role(one, number);
      body.append(make("tr", {},
        make("td", {}, one.name),
        make("td", { class: isRole(one) ? "" : "number" }, name ?? shown(one.values[number])),
        make("td", {}, isRole(one) ? "" : ends(one, number)),
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
    heads.point(number);
    if (number === null) { tip.hidden = true; return; }
    const cell = heads.cells[number];
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
    if (event.key === "Escape") return show(null);
    const next = heads.next(event.key);
    if (next === null) return undefined;
    event.preventDefault();
    return show(next);
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
              make("span", { class: "interval" }, ends(one, number))))));
        row.addEventListener("pointerenter", () => heads.cells[number].classList.add("at"));
        row.addEventListener("pointerleave", () => heads.cells[number].classList.remove("at"));
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
