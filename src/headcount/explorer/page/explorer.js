// The explorer: a map on which heads are switched off, and what the model then thinks. The local
// page and the notebook's widget run this module; they differ in how they ask (`ask`) and in where
// the state is kept.
import {
  copyButton, counted, drawLegend, headGrid, isRole, make, paint, place, role, shown, spanOf,
} from "./heads.js";
import { meter, taskPanel, textPanel, nextPanel, whyPanel, picture } from "./panels.js";

export const FIRST_STATE = {
  heads: [], keep: false, gate: 0, ablation: "zero", prompt: "", corrupted: "", target: "",
  foils: [], colour: "", selected: "", seed: 0,
};
const ABLATIONS = ["zero", "mean", "corrupted"];
const OF_PROMPT = ["activity", "open edges"]; // scores on one prompt, and not on the task

// A state as the part of a link behind #; what has its first value is left out.
export const toLink = (state) => {
  const link = new URLSearchParams();
  for (const [name, first] of Object.entries(FIRST_STATE)) {
    const value = state[name];
    if (Array.isArray(first)) value.forEach((one) => link.append(name, one));
    else if (value !== first) link.set(name, String(value));
  }
  if (link.has("heads")) link.set("heads", state.heads.join(","));
  return link.toString();
};
export const fromLink = (text) => {
  const link = new URLSearchParams(text.replace(/^#/, ""));
  if (![...link.keys()].some((name) => name in FIRST_STATE)) return null;
  const state = {};
  for (const [name, first] of Object.entries(FIRST_STATE)) {
    const all = link.getAll(name);
    if (name === "heads") state.heads = all.join(",").split(",").filter(Boolean);
    else if (Array.isArray(first)) state[name] = all;
    else if (typeof first === "boolean") state[name] = link.get(name) === "true";
    else if (typeof first === "number") state[name] = Number(link.get(name) ?? first) || 0;
    else state[name] = link.get(name) ?? first;
  }
  return state;
};

// `ask(kind, asked, on)` asks the session and returns a function that cancels; `on` is called with
// the name and the data of each event. `keep(state)` is told every new state.
// A notebook has no address of its own for a state: there `links` is false.
export const explorer = (root, { ask, keep, given, links = true }) => {
  let state = { ...FIRST_STATE };
  let facts = null;
  const scores = new Map(); // name → {name, values, low?, high?} or {name, labels}
  const past = [];
  const future = [];
  const running = new Map();
  const off = new Set(); // the numbers of the heads in the head set

  // Asking: a newer question of a kind cancels the older one.
  const busy = make("span", { class: "busy", role: "status" });
  const tell = (text, wrong = false) => {
    busy.textContent = text;
    busy.classList.toggle("wrong", wrong);
  };
  const inquire = (kind, asked, on) => new Promise((resolve) => {
    running.get(kind)?.();
    const end = (name, data) => {
      if (running.get(kind) === stop) running.delete(kind);
      if (name === "refused" || name === "failed") tell(data.text, true);
      resolve(name);
    };
    const cancel = ask(kind, { state, ...asked }, (name, data) => {
      if (running.get(kind) !== stop) return;
      if (["done", "refused", "failed", "cancelled"].includes(name)) end(name, data);
      else on(name, data);
    });
    const stop = () => { cancel(); resolve("cancelled"); };
    running.set(kind, stop);
  });

  // The state: every change goes through `set`; those that are `brief` make no step to undo.
  const set = (changes, brief = false) => {
    const before = state;
    state = { ...state, ...changes };
    if (toLink(before) === toLink(state)) return;
    if (!brief) {
      past.push(before);
      future.length = 0;
    }
    changed(before);
  };
  const changed = (before) => {
    if (before.heads !== state.heads) {
      off.clear();
      state.heads.forEach((name) => off.add(numberOf(name)));
    }
    keep?.(state);
    draw(before);
    const seen = ["heads", "keep", "gate", "ablation", "prompt", "corrupted", "target", "foils",
      "seed"];
    if (seen.some((name) => before[name] !== state[name])) think();
    const other = before.prompt !== state.prompt;
    if (other) {
      OF_PROMPT.forEach((name) => scores.delete(name));
      why.drawScores();
    }
    if (before.selected !== state.selected || (state.selected && other)) explain();
    if (before.colour !== state.colour || other) colour();
  };
  const step = (from, to) => {
    if (!from.length) return;
    const before = state;
    to.push(state);
    state = from.pop();
    changed(before);
  };
  const undo = () => step(past, future);
  const redo = () => step(future, past);

  const nameOf = (number) => place(number, facts.counts).join(".");
  const numberOf = (name) => {
    const [layer, index] = name.split(".").map(Number);
    return facts.counts.slice(0, layer).reduce((sum, count) => sum + count, 0) + index;
  };
  const inOrder = (numbers) => [...numbers].sort((a, b) => a - b).map(nameOf);
  const score = () => scores.get(state.colour) ?? { name: state.colour, values: [], note: "" };

  // What the model thinks: first the probabilities, then the text.
  // What a panel shows of an earlier state is grey until the answer, and after a refusal.
  const outdated = (panel) => panel.element.classList.add("stale");
  let frame = 0;
  const think = () => {
    running.get("text")?.();
    [next, text].forEach(outdated);
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(async () => {
      tell("computing …");
      const end = await inquire("probabilities", {}, (name, data) => next.show(data, state));
      if (end !== "done") return undefined;
      tell("");
      return text.follow.checked && write();
    });
  };
  const write = async () => {
    if (state.ablation === "corrupted") {
      return text.refuse("A corrupted prompt has no outputs for new tokens: choose the ablation "
        + "zero or mean to let the model write.");
    }
    return inquire("text", { new: text.tokens() }, (name, data) => text.show(data));
  };
  const explain = async () => {
    if (!state.selected) return;
    outdated(why);
    await inquire("why", {}, (name, data) => why.show(data));
  };
  const colour = async () => {
    drawMap();
    if (!OF_PROMPT.includes(state.colour)) return;
    await inquire("activity", {}, (name, data) => {
      scores.set(data.name, data);
      why.drawScores();
      drawMap();
      drawTools();
    });
  };
  const rank = async (ranking) => {
    tell(`computing the ranking ${ranking} …`);
    progress.begin(`Stop ranking by ${ranking}`);
    const end = await inquire("rank", { ranking }, (name, data) => {
      if (name === "progress") progress.show(data);
      if (name !== "scores") return;
      addScores(data);
      why.drawScores();
      set({ colour: Object.keys(data)[0] });
    });
    progress.end();
    if (end === "done") tell("");
    if (end === "cancelled") tell(`The ranking ${ranking} was stopped.`);
    drawColours();
  };
  const addScores = (given) => Object.entries(given).forEach(([name, one]) =>
    scores.set(name, { name, note: "", ...one }));

  // The map
  const map = headGrid("Map of heads, layers from left to right. Arrow keys move, space switches a"
    + " head off or on, with shift its whole layer, and enter asks why a head matters.");
  const { grid } = map;
  const legend = make("p", { class: "legend" });
  const said = make("p", { class: "said", role: "status" });
  const stop = (kind) => running.get(kind)?.();
  const progress = meter(() => stop("rank"));
  const switchTo = (numbers, on) => {
    const all = new Set(off);
    numbers.forEach((number) => (on ? all.delete(number) : all.add(number)));
    return inOrder(all);
  };
  const layerOf = (number) => map.columns.find((own) => own.includes(number));
  const toggle = (number, whole) => {
    const numbers = whole ? layerOf(number) : [number];
    const on = numbers.every((one) => off.has(one));
    set({ heads: switchTo(numbers, on), ...(whole ? {} : { selected: nameOf(number) }) });
  };
  // A finger has no Ctrl key to select a head without switching it.
  const onlyLook = make("input", { type: "checkbox" });
  const looks = (event) => onlyLook.checked || event.ctrlKey || event.metaKey || event.altKey;
  let drag = null; // {on, from}: whether heads are switched on, and the state before
  const cellAt = (event) => {
    const number = event.target.closest?.("[data-number]")?.dataset.number;
    return number === undefined ? null : Number(number);
  };
  grid.addEventListener("pointerdown", (event) => {
    const number = cellAt(event);
    if (number === null || event.button || event.shiftKey || looks(event)
      || event.pointerType === "touch") return;
    event.preventDefault();
    grid.focus({ preventScroll: true });
    map.point(number);
    drag = { on: off.has(number), from: state };
    set({ heads: switchTo([number], drag.on), selected: nameOf(number) }, true);
  });
  grid.addEventListener("pointerover", (event) => {
    const number = cellAt(event);
    if (number !== null) describe(number);
    if (drag && number !== null && off.has(number) === drag.on) {
      set({ heads: switchTo([number], drag.on) }, true);
    }
  });
  grid.addEventListener("pointerleave", () => describe(null));
  const endDrag = () => {
    if (!drag) return;
    past.push(drag.from);
    future.length = 0;
    drag = null;
    drawTools();
  };
  root.ownerDocument.addEventListener("pointerup", endDrag);
  root.ownerDocument.addEventListener("pointercancel", endDrag);
  grid.addEventListener("click", (event) => {
    const layer = event.target.closest?.("[data-layer]")?.dataset.layer;
    if (layer !== undefined) return toggle(map.columns[Number(layer)][0], true);
    const number = cellAt(event);
    if (number === null) return undefined;
    map.point(number);
    if (looks(event)) return set({ selected: nameOf(number) });
    if (event.shiftKey) return toggle(number, true);
    return event.pointerType === "touch" ? toggle(number, false) : undefined;
  });
  grid.addEventListener("keydown", (event) => {
    if (event.key === " " && map.at !== null) {
      event.preventDefault(); // it would scroll
      return toggle(map.at, event.shiftKey);
    }
    if (event.key === "Enter" && map.at !== null) return set({ selected: nameOf(map.at) });
    const number = map.next(event.key);
    if (number === null) return undefined;
    event.preventDefault();
    map.point(number);
    describe(number);
    return grid.setAttribute("aria-activedescendant", map.cells[number].id);
  });
  const tip = make("p", { class: "pointed" });
  let described = null;
  const describe = (number) => {
    described = number;
    tip.textContent = "";
    if (number === null) return;
    const parts = [`Head ${nameOf(number)}`, off.has(number) ? "in the head set" : ""];
    for (const one of scores.values()) {
      const own = isRole(one) ? role(one, number) : one.values[number];
      if (one.name === state.colour && own !== undefined) parts.push(`${one.name} ${isRole(one) ? own : shown(own)}`);
    }
    tip.textContent = parts.filter(Boolean).join(" · ");
    map.cells[number].setAttribute("aria-label", tip.textContent);
  };
  const drawMap = () => {
    const one = score();
    const span = spanOf(one);
    describe(described);
    map.cells.forEach((cell, number) => paint(cell, one, number, span));
    if (one.values?.length || isRole(one)) {
      drawLegend(legend, one, span, "heads from top to bottom");
    } else legend.replaceChildren();
  };
  const drawHeads = () => {
    map.cells.forEach((cell, number) => {
      const marked = off.has(number);
      if (marked === (cell.getAttribute("aria-checked") === "true")) return;
      cell.setAttribute("aria-checked", String(marked));
    });
    grid.classList.toggle("keeping", state.keep);
    const selected = state.selected ? map.cells[numberOf(state.selected)] : null;
    map.cells.forEach((cell) => cell.removeAttribute("data-selected"));
    selected?.setAttribute("data-selected", "");
    const count = off.size;
    const gate = state.gate ? `times ${state.gate}` : "off";
    const rest = state.keep ? `all others ${gate}` : gate;
    const named = state.heads.slice(0, 12).join(" ") + (count > 12 ? " …" : "");
    if (count) {
      said.textContent = `${state.keep ? "Only " : ""}${counted(count, "head")} `
        + `${state.keep ? "kept, " : ""}${rest}: ${named}`;
    } else said.textContent = state.keep ? `No head is kept: all are ${gate}.` : "The whole model: no head is off.";
    describe(described);
  };

  // The tools
  const button = (word, press, title = "") =>
    make("button", { type: "button", class: "tool", onclick: press, title }, word);
  const colours = make("select", { "aria-label": "Colour by", onchange: () => {
    const [kind, name] = colours.value.split("|");
    if (kind === "rank") rank(name);
    else set({ colour: name });
  } });
  let costs = {}; // of the rankings that can be computed, in words
  const drawColours = () => {
    const group = (label, kind, names) => names.length && colours.append(
      make("optgroup", { label }, ...names.map((name) => make("option",
        { value: `${kind}|${name}` }, name + (kind === "rank" && costs[name] ? `: ${costs[name]}` : "")))));
    colours.replaceChildren();
    group("On this prompt", "known", OF_PROMPT.slice(0, facts.edges ? 2 : 1));
    group("Known", "known", [...scores.keys()].filter((name) => !OF_PROMPT.includes(name)));
    group("Compute on the task", "rank", Object.keys(costs).filter((name) => !scores.has(name)));
    colours.value = `known|${state.colour}`;
  };
  const order = () => {
    const { values } = score();
    if (!values?.length) return [];
    return values.map((value, number) => [value, number])
      .sort(([a, i], [b, j]) => b - a || i - j).map(([, number]) => number);
  };
  let sliding = null;
  const slider = (label, options, change) => {
    const input = make("input", { type: "range", "aria-label": label, ...options });
    const output = make("output", {});
    input.addEventListener("input", () => {
      sliding ??= state;
      change(Number(input.value));
    });
    input.addEventListener("change", () => {
      if (sliding && sliding !== state) {
        past.push(sliding);
        future.length = 0;
      }
      sliding = null;
      drawTools();
    });
    return { input, output, label: make("label", {}, label, input, output) };
  };
  const top = slider("Top K", { min: 0, max: 1, step: 1, value: 0 }, (count) =>
    set({ heads: inOrder(order().slice(0, count)) }, true));
  const gate = slider("Gate", { min: 0, max: 2, step: 0.05, value: 0 }, (value) =>
    set({ gate: value }, true));
  const ablation = make("select", { "aria-label": "Ablation", onchange: () =>
    set({ ablation: ablation.value }) },
  ...ABLATIONS.map((name) => make("option", { value: name }, name)));
  const keepOnly = make("input", { type: "checkbox", onchange: () =>
    set({ keep: keepOnly.checked }) });
  const words = make("input", { type: "text", class: "words", "aria-label": "Heads, in words",
    placeholder: "top 8 · layer 3 · 3.4 11.2 · random 8" });
  let drawn = 0;
  const choose = (kind, asked) => inquire(kind, asked, (name, data) => {
    tell("");
    set(data);
  });
  const typed = make("form", { class: "typed", onsubmit: (event) => {
    event.preventDefault();
    choose("choose", { text: words.value, draw: drawn += 1 });
  } }, words, make("button", { class: "tool" }, "Choose"));
  const back = button("Undo", undo, "Ctrl+Z");
  const again = button("Redo", redo, "Ctrl+Shift+Z");
  const drawTools = () => {
    // Not `disabled`, which would take the focus away from a button that was just pressed.
    back.setAttribute("aria-disabled", String(!past.length));
    again.setAttribute("aria-disabled", String(!future.length));
    top.input.max = facts.total;
    const ranked = order();
    top.input.disabled = !ranked.length;
    const same = ranked.slice(0, off.size).every((number) => off.has(number));
    if (same || !off.size) top.input.value = off.size;
    top.output.textContent = same && ranked.length ? String(off.size) : "–";
    gate.input.value = state.gate;
    gate.output.textContent = state.gate.toFixed(2);
    ablation.value = state.ablation;
    keepOnly.checked = state.keep;
    if (colours.value !== `known|${state.colour}`) drawColours();
  };
  root.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.target.closest("input[type=text], textarea")) {
      return;
    }
    const key = event.key.toLowerCase();
    if (key !== "z" && key !== "y") return;
    event.preventDefault();
    (key === "y" || event.shiftKey ? redo : undo)();
  });

  const about = { inquire, set, tell, nameOf, numberOf, scores, state: () => state,
    facts: () => facts, stop, write };
  const next = nextPanel(about);
  const text = textPanel(about);
  const why = whyPanel(about);
  const task = taskPanel(about);

  // Out again
  const same = async (which) => {
    let found = "";
    await inquire("same", { metric: task.metric() }, (name, data) => { found = data[which]; });
    return found;
  };
  const save = (name, data, type) => {
    const url = URL.createObjectURL(data instanceof Blob ? data : new Blob([data], { type }));
    make("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  const file = make("input", { type: "file", accept: ".json", hidden: true, "aria-label":
    "File of a head set", onchange: async () => choose("open", { text: await file.files[0].text() }) });
  const sameAs = make("pre", { class: "command", hidden: true });
  const showSame = (which) => async () => {
    const found = await same(which);
    sameAs.hidden = false;
    sameAs.replaceChildren(make("code", {}, found), copyButton("Copy", () => found));
  };
  const link = () => {
    const { origin, pathname } = root.ownerDocument.location;
    return `${origin}${pathname}#${toLink(state)}`;
  };
  const out = make("section", { class: "panel out" }, make("h2", {}, "Out again"),
    make("div", { class: "tools" },
      button("Command line", showSame("command")), button("Python", showSame("python")),
      ...(links ? [copyButton("Copy a link to this state", link)] : []),
      button("Head set as a file", async () => save("head-set.json",
        JSON.stringify(await same("file")), "application/json")),
      button("Open a head set", () => { file.value = ""; file.click(); }), file,
      button("Picture", async () => save("heads.png", await picture(grid, said.textContent, about))),
      button("Page of findings", () => inquire("findings", { metric: task.metric() },
        (name, data) => save("findings.html", data.html, "text/html")))),
    sameAs);

  const title = make("p", { class: "eyebrow" }, "headcount explorer");
  const controls = make("div", { class: "controls" }, make("label", {}, "Colour by", colours),
    top.label, gate.label, make("label", {}, "Ablation", ablation),
    make("label", {}, keepOnly, "keep only these"), make("label", {}, onlyLook, "clicks only select"));
  // Nothing can be used before the session has answered, which it does only to the right token.
  const sides = [
    make("div", { class: "side", inert: true },
      make("section", { class: "panel heads" }, make("h2", {}, "Heads"), controls,
        make("div", { class: "tools" }, typed, back, again,
          button("All on", () => set({ heads: [], keep: false }))),
        make("div", { class: "map" }, make("div", { class: "scroll" }, grid)), tip, legend, said),
      why.element, task.element, out),
    make("div", { class: "side", inert: true }, next.element, text.element)];
  const main = make("main", { class: "explorer" },
    make("div", { class: "top" }, title, busy, progress.element), ...sides);
  root.classList.add("explorer-room");
  root.replaceChildren(main);

  const draw = (before) => {
    if (before.heads !== state.heads || before.keep !== state.keep || before.gate !== state.gate
      || before.selected !== state.selected) drawHeads();
    drawTools();
    next.draw(state);
  };
  // A link may be of another model, or written by hand: what this model does not have is left out.
  const has = (name) => {
    const [layer, index] = name.split(".").map(Number);
    return /^\d+\.\d+$/.test(name) && index < (facts.counts[layer] ?? 0);
  };
  const fitting = (given) => ({
    ...given,
    heads: (given.heads ?? []).filter(has),
    selected: has(given.selected ?? "") ? given.selected : "",
    gate: Math.min(2, Math.max(0, given.gate ?? 0)),
    ablation: ABLATIONS.includes(given.ablation) ? given.ablation : ABLATIONS[0],
  });
  const start = (data) => {
    facts = { ...data, total: data.counts.reduce((sum, count) => sum + count, 0) };
    title.replaceChildren("headcount explorer · ", make("strong", {}, facts.model),
      ` · ${facts.total} heads in ${facts.counts.length} layers · ${facts.weights}`);
    addScores(data.scores);
    let first = 0;
    map.build(facts.counts, facts.counts.map((count) => {
      first += count;
      return Array.from({ length: count }, (_, index) => first - count + index);
    }), true);
    map.cells.forEach((cell, number) => {
      cell.id = `head-${nameOf(number)}`;
      cell.setAttribute("role", "checkbox");
      cell.setAttribute("aria-checked", "false");
      cell.setAttribute("aria-label", `Head ${nameOf(number)}`);
    });
    sides.forEach((side) => { side.inert = false; });
    task.start();
    drawColours();
    const before = state;
    state = { ...data.state, ...(before.prompt ? before : {}), ...(given() ?? {}) };
    if (!state.prompt) state.prompt = data.state.prompt;
    if (!state.colour || !(scores.has(state.colour) || state.colour === "activity")) {
      state.colour = data.state.colour;
    }
    state = fitting(state);
    drawHeads();
    changed({ ...FIRST_STATE, heads: null });
  };
  const begin = async () => {
    const end = await inquire("start", { state: {} }, (name, data) => start(data));
    if (end === "done") await inquire("costs", { state: {} }, (name, data) => { costs = data; });
    if (facts) drawColours();
  };
  begin();
  return { begin, set: (changes) => facts && set(fitting({ ...state, ...changes })), tell, state: () => state };
};

// The local page

const overHttp = (token, lost) => (kind, asked, on) => {
  const abort = new AbortController();
  const read = async () => {
    const answer = await fetch("ask", {
      method: "POST",
      signal: abort.signal,
      headers: { "Content-Type": "application/json", "X-Headcount-Token": token() },
      body: JSON.stringify({ ...asked, kind, page: PAGE }),
    });
    if (!answer.ok) {
      if (answer.status !== 400) lost(answer.status === 403);
      return on("refused", { text: await answer.text() });
    }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return undefined;
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const one of events) {
        const [, name, data] = /^event: (.*)\ndata: (.*)$/s.exec(one);
        on(name, JSON.parse(data));
      }
    }
  };
  read().catch((error) => {
    if (abort.signal.aborted) return;
    lost(false);
    on("failed", { text: `The explorer does not answer (${error.message}).` });
  });
  return () => abort.abort();
};
const PAGE = crypto.getRandomValues(new Uint32Array(2)).join("-");
const WHERE = "headcount token";

// The token stays on this machine, under this address: links to a state do not have it.
export const startPage = (root) => {
  const kept = () => localStorage.getItem(WHERE) ?? "";
  const take = () => {
    const found = /^#token=([\w-]+)$/.exec(location.hash)?.[1];
    if (!found) return false;
    localStorage.setItem(WHERE, found);
    history.replaceState(null, "", location.pathname);
    return true;
  };
  take();
  let here = null;
  let waiting = 0;
  const lost = (refused) => {
    clearTimeout(waiting);
    // Until the explorer is there again; after a restart it wants the token of the new link.
    if (!refused) waiting = setTimeout(() => here?.begin(), 1500);
  };
  const given = () => fromLink(location.hash);
  const keep = (state) => history.replaceState(null, "", `#${toLink(state)}`);
  here = explorer(root, { ask: overHttp(kept, lost), keep, given });
  window.addEventListener("storage", (event) => event.key === WHERE && here.begin());
  window.addEventListener("hashchange", () => {
    if (take()) here.begin();
    else if (given()) here.set(given());
  });
};
const root = globalThis.document?.getElementById("explorer");
if (root) startPage(root);
