// The panels of the explorer beside its map: what comes next, the written text, why a head matters,
// the task, and the picture.
import { counted, interval, make, place, role, shown, isRole } from "./heads.js";

const percent = (value) => (value >= 0.0995 ? `${(100 * value).toFixed(0)} %`
  : value >= 0.00095 ? `${(100 * value).toFixed(1)} %` : "< 0.1 %");
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const visible = (token) => token.replaceAll("\n", "⏎").replaceAll("\t", "⇥") .replace(/^ +$/, (spaces) => "␣".repeat(spaces.length)) || "∅";
const panel = (name, title, ...children) =>
  make("section", { class: `panel ${name}` }, make("h2", {}, title), ...children);
// How far something is, about how long it still takes, and a button that stops it.
export const meter = (stop) => {
  const bar = make("progress", { "aria-label": "progress" });
  const left = make("span", { class: "note" });
  const halt = make("button", { type: "button", class: "tool", onclick: stop }, "Stop");
  const element = make("span", { class: "meter", hidden: true }, bar, left, halt);
  let since = null; // when the first was done, and how many
  return {
    element,
    begin: (word) => {
      halt.textContent = word;
      left.textContent = "";
      bar.removeAttribute("value");
      element.hidden = false;
      since = null;
    },
    show: ({ done, of }) => {
      Object.assign(bar, { max: of, value: done });
      if (!since || done < since.done || of !== since.of) since = { at: performance.now(), done, of };
      const seconds = (performance.now() - since.at) / 1000;
      const rest = Math.ceil(seconds * (of - done) / (done - since.done));
      left.textContent = `${done} of ${of}${seconds > 1 && done > since.done && rest
        ? `, about ${rest < 90 ? `${rest} seconds` : `${Math.round(rest / 60)} minutes`} left` : ""}`;
    },
    end: () => { element.hidden = true; },
  };
};
const named = (label, control) => make("label", {}, label, control);

// The prompt, and the next token: whole model, head set, and random heads always beside them.
export const nextPanel = (about) => {
  const area = (label, name, rows) => {
    const box = make("textarea", { rows, "aria-label": label, spellcheck: "false" });
    box.addEventListener("change", () => about.set({ [name]: box.value }));
    return box;
  };
  const line = (label, name, read, write) => {
    const box = make("input", { type: "text", "aria-label": label, spellcheck: "false" });
    box.addEventListener("change", () => about.set({ [name]: read(box.value) }));
    return Object.assign(box, { show: (value) => { box.value = write(value); } });
  };
  const prompt = area("Prompt", "prompt", 3);
  const corrupted = area("Corrupted prompt", "corrupted", 2);
  // An answer usually starts with a space, which nobody wants to type.
  const spaced = (text) => (/^\w/.test(text) ? ` ${text}` : text);
  const target = line("Target", "target", spaced, (value) => value.trimStart());
  const foils = line("Foils", "foils",
    (text) => text.split(",").map((one) => one.trim()).filter(Boolean).map(spaced),
    (value) => value.map((one) => one.trim()).join(", "));
  let example = 0;
  const another = make("button", { type: "button", class: "tool", onclick: () => {
    example += 1;
    about.inquire("example", { number: example, state: {} }, (name, data) => about.set(data));
  } }, "Next example");
  const again = make("button", { type: "button", class: "tool", onclick: () =>
    about.set({ seed: about.state().seed + 1 }) }, "Other random heads");
  const lost = make("label", { class: "wide" }, "Corrupted prompt", corrupted);
  const body = make("tbody");
  const summary = make("p", { class: "summary", role: "status" });
  const note = make("p", { class: "note" });
  const column = (name, text) => make("th", { scope: "col", class: name }, text);
  const table = make("table", { class: "next" }, make("thead", {}, make("tr", {},
    column("name", "next token"), column("whole", "whole model"), column("set", "head set"),
    column("random", "random heads"))), body);
  const bar = (name, value, ...more) => {
    const cell = make("td", { class: `bar ${name}` },
      make("span", {}, percent(value).replaceAll(" ", "\u00a0"), ...more));
    cell.style.setProperty("--share", `${100 * value}%`);
    return cell;
  };
  // The mean of the draws and their range, where it can be seen.
  const short = (value) => percent(value).replace(" %", "");
  const control = (values) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return bar("random", mean(values), high < 0.00095 || values.length < 2 ? ""
      : make("span", { class: "interval" }, ` ${short(low)} to ${short(high)}`));
  };
  const element = panel("prompt", "What comes next",
    make("div", { class: "fields" }, make("label", { class: "wide" }, "Prompt", prompt), lost,
      named("Target", target), named("Foils", foils)),
    make("div", { class: "tools" }, another, again),
    make("div", { class: "wide" }, table), summary, note);
  const show = (data, state) => {
    element.classList.remove("stale");
    const rank = (row) => (row.role === "target" ? 2 : row.role === "foil" ? 1 : 0)
      + Math.max(row.whole, row.set) / 2;
    const rows = [...data.rows].sort((a, b) => rank(b) - rank(a)).slice(0, 14);
    body.replaceChildren(...rows.map((row) => make("tr", { class: row.role },
      make("th", { scope: "row" }, make("code", {}, visible(row.token)),
        row.role ? make("span", { class: "role" }, ` ${row.role}`) : ""),
      bar("whole", row.whole), bar("set", row.set), control(row.random))));
    const [whole, set, ...random] = data.difference;
    const parts = [];
    if (whole !== null) {
      parts.push(`Target minus best foil, in logits: whole model ${shown(whole)}, head set `
        + `${shown(set)}, random heads ${shown(mean(random))}.`);
    }
    const [, far, ...others] = data.divergence;
    parts.push(`Distance from the whole model (KL divergence, nats): head set ${shown(far)}, random `
      + `heads ${shown(mean(others))}.`);
    summary.textContent = parts.join(" ");
    const draws = counted(random.length, "draw");
    const off = state.heads.length || state.keep;
    note.textContent = !off ? "No head is off, so all three columns show the whole model."
      : data.same ? "There is no other choice of as many heads, so the last column repeats the head set."
      : `Random heads: ${counted(data.count, "head")} of the same layers, ${draws}, their mean `
      + `and range${data.note ? `; ${data.note}` : ""}. One prompt is an anecdote: try the task below.`;
    element.dataset.heads = state.heads.join(" ");
    element.dataset.draws = random.length;
  };
  const put = (box, value) => {
    if (box.value !== value && box.ownerDocument.activeElement !== box) box.value = value;
  };
  const draw = (state) => {
    put(prompt, state.prompt);
    put(corrupted, state.corrupted);
    target.show(state.target);
    foils.show(state.foils);
    lost.hidden = state.ablation !== "corrupted";
    another.hidden = !about.facts().task;
  };
  return { element, show, draw };
};

// Which tokens of a text are not in the longest common sequence with another.
export const differences = (text, other) => {
  const best = Array.from({ length: text.length + 1 }, () => new Array(other.length + 1).fill(0));
  for (let i = text.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) {
      best[i][j] = text[i] === other[j] ? best[i + 1][j + 1] + 1
        : Math.max(best[i + 1][j], best[i][j + 1]);
    }
  }
  const marked = [];
  let [i, j] = [0, 0];
  while (i < text.length) {
    if (j < other.length && text[i] === other[j]) [i, j] = [i + 1, j + 1];
    else if (j < other.length && best[i][j + 1] >= best[i + 1][j]) j += 1;
    else marked.push(i++);
  }
  return new Set(marked);
};

export const textPanel = (about) => {
  const follow = make("input", { type: "checkbox", checked: true });
  const length = make("select", { "aria-label": "tokens" },
    ...[12, 24, 48].map((count) => make("option", { value: count }, `${count} tokens`)));
  length.value = "24";
  const rows = {};
  const list = make("dl", { class: "texts" });
  for (const [name, title] of [["whole", "whole model"], ["set", "head set"],
    ["random", "random heads"]]) {
    rows[name] = make("dd", { class: `text ${name}` });
    list.append(make("dt", {}, title), rows[name]);
  }
  const state = make("p", { class: "note", role: "status" });
  const element = panel("writing", "What it writes", make("div", { class: "tools" },
    make("button", { type: "button", class: "tool", onclick: about.write }, "Write"),
    make("label", {}, follow, "after every change"), length), list, state);
  const show = (data) => {
    element.classList.remove("stale");
    for (const [name, element] of Object.entries(rows)) {
      const changed = name === "whole" ? new Set() : differences(data[name], data.whole);
      element.replaceChildren(...data[name].map((token, at) => {
        const open = data[name].length < data.whole.length && at >= data[name].length - 1;
        return changed.has(at) && !open ? make("mark", {}, token) : token;
      }));
    }
    state.textContent = "Marked: what the whole model does not write. Random heads: one draw.";
  };
  const refuse = (why) => {
    Object.values(rows).forEach((row) => row.replaceChildren());
    state.textContent = why;
  };
  return { element, follow, show, refuse, tokens: () => Number(length.value) };
};

// Why: where the selected head looks, what it writes, and its scores.
export const whyPanel = (about) => {
  const heading = make("p", { class: "note" },
    "Select a head: click it, or hold Ctrl to select without switching it off.");
  const strip = make("p", { class: "strip" });
  const says = make("p", { class: "note", role: "status" });
  const words = make("div", { class: "reading" });
  const sheet = make("table", { class: "scores" });
  const more = make("p", { class: "note", hidden: true },
    "Further rankings are computed under Colour by.");
  const element = panel("why", "Why", heading, strip, says, words, make("div", { class: "wide" },
    sheet), more);
  let data = null;
  const point = (query) => {
    const tokens = [...strip.children];
    const row = data.attention?.[query];
    tokens.forEach((token, key) => {
      const share = row ? row[key] : 0;
      token.style.setProperty("--share", `${100 * share}%`);
      token.title = row ? percent(share) : "";
      token.setAttribute("aria-pressed", String(key === query));
    });
    if (row) {
      const most = row.map((share, key) => [share, key]).filter(([share]) => share)
        .sort(([a], [b]) => b - a).slice(0, 3);
      says.textContent = `From token ${query + 1} “${visible(data.tokens[query]).trim()}” the head `
        + `looks at ${most.map(([share, key]) => `“${visible(data.tokens[key]).trim()}” ${percent(share)}`).join(", ")
          || "no token: none of its edges is open there"}.`;
    } else says.textContent = data.note;
    if (!data.norms[query]) {
      return words.replaceChildren(make("p", {}, "It writes nothing there: its output is 0."));
    }
    const { up, down } = data.words[query];
    const chips = (tokens) => tokens.flatMap((token) => [make("code", {}, visible(token)), " "]);
    return words.replaceChildren(      make("p", {}, make("strong", {}, "Writes towards "), ...chips(up)),
      make("p", {}, make("strong", {}, "and away from "), ...chips(down)),
      make("p", { class: "note" }, "A rough reading: its output there, sent through the last norm "
        + `and the unembedding alone, past all later layers. Its size is ${shown(data.norms[query])}.`));
  };
  const show = (found) => {
    data = found;
    element.classList.remove("stale");
    heading.replaceChildren("Head ", make("strong", {}, data.head),
      " of the whole model on this prompt. Hover or focus a token to see where the head looks "
      + "from there.");
    strip.replaceChildren(...data.tokens.map((token, at) => make("button", { type: "button",
      class: "token", onpointerenter: () => point(at), onfocus: () => point(at) },
    visible(token))));
    point(data.tokens.length - 1);
    drawScores();
  };
  const drawScores = () => {
    if (!data) return;
    const number = about.numberOf(data.head);
    const rows = [...about.scores.values()].map((one) => {
      if (isRole(one)) return make("tr", {}, make("th", { scope: "row" }, one.name),
        make("td", { colspan: 3 }, role(one, number)));
      const own = one.values[number];
      const above = one.values.filter((other) => other > own).length;
      return make("tr", {}, make("th", { scope: "row" }, one.name),
        make("td", { class: "number" }, shown(own)),
        make("td", {}, interval(one.low?.[number], one.high?.[number])),
        make("td", { class: "number" }, `${above + 1} of ${one.values.length}`));
    });
    const heads = ["ranking", "score", "95 % interval", "place"].map((text, at) =>
      make("th", { scope: "col", class: at === 1 || at === 3 ? "number" : "" }, text));
    sheet.replaceChildren(make("thead", {}, make("tr", {}, ...heads)),
      make("tbody", {}, ...rows));
    more.hidden = !about.facts().task;
  };
  return { element, show, drawScores };
};

// The task: every head set that was tried is a point beside its random controls.
const SVG = "http://www.w3.org/2000/svg";
const draw = (tag, attributes, ...children) => {
  const element = document.createElementNS(SVG, tag);
  Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
  element.append(...children);
  return element;
};
export const taskPanel = (about) => {
  const metrics = make("select", { "aria-label": "Metric" });
  const trials = [];
  const curves = [];
  const picked = [];
  let doing = "";
  const progress = meter(() => about.stop(doing));
  const note = make("p", { class: "note", role: "status" });
  const chart = make("div", { class: "chart" });
  const body = make("tbody");
  const compared = make("p", { class: "summary", role: "status" });
  const run = async (kind, what) => {
    note.textContent = what;
    doing = kind;
    progress.begin("Stop");
    const end = await about.inquire(kind, { metric: metrics.value }, (name, data) => {
      if (name === "progress") progress.show(data);
      if (name === "trial") trials[data.number - 1] = data;
      const same = (one) => one.name === data.name && one.metric === data.metric;
      if (name === "curve" && !curves.some(same)) curves.push(data);
    });
    progress.end();
    note.textContent = end === "cancelled" ? "The measurement was stopped; what is measured is kept." : "";
    if (end === "done") redraw();
  };
  const measure = make("button", { type: "button", class: "tool", onclick: () =>
    run("trial", "measuring this head set, and five random ones …") }, "Measure this head set");
  const along = make("button", { type: "button", class: "tool", onclick: () =>
    run("curve", "measuring the curve along the ranking …") }, "Measure the curve of the ranking");
  const toCompare = async (number) => {
    const at = picked.indexOf(number);
    if (at >= 0) picked.splice(at, 1);
    else picked.push(number);
    if (picked.length > 2) picked.shift();
    redraw();
    compared.textContent = picked.length === 1 ? "Choose a second head set to compare." : "";
    if (picked.length < 2) return;
    await about.inquire("compare", { one: picked[0], other: picked[1] }, (name, data) => {
      const { value, low, high } = data.difference;
      const sure = low > 0 || high < 0 ? "The interval excludes 0." : "The interval includes 0.";
      compared.textContent = `Head set ${data.one} minus head set ${data.other}: ${shown(value)} `
        + `${interval(low, high)} (${data.metric_name}, paired by example). ${sure} `
        + `${counted(data.shared.length, "head")} in both, ${data.only_one.length} only in `
        + `${data.one}, ${data.only_other.length} only in ${data.other}.`;
    });
  };
  const ends = (one) => make("td", { class: "number" }, shown(one.value),
    make("span", { class: "interval" }, interval(one.low, one.high)));
  const redraw = () => {
    const now = trials.filter((trial) => trial.metric === metrics.value);
    body.replaceChildren(...now.map((trial) => {
      const box = make("input", { type: "checkbox", "aria-label": `compare ${trial.number}`,
        onchange: () => toCompare(trial.number) });
      box.checked = picked.includes(trial.number);
      const show = make("button", { type: "button", class: "tool", onclick: () => about.set({
        heads: trial.heads, keep: trial.keep, gate: trial.gate, ablation: trial.ablation,
      }) }, "Show");
      return make("tr", {}, make("td", {}, box, ` ${trial.number}`), make("td", {}, trial.name),
        ends(trial.set), ends(trial.random), ends(trial.against_random), make("td", {}, show));
    }));
    sheet.hidden = !now.length;
    const last = now.at(-1);
    if (last?.chance) note.textContent = last.chance;
    const drawn = curves.filter((one) => one.metric === metrics.value);
    const label = metrics.selectedOptions[0]?.text ?? "";
    chart.replaceChildren(...(now.length || drawn.length
      ? [plot(now, drawn, picked, label, chart.clientWidth)] : []));
  };
  const head = (text) => make("th", { scope: "col" }, text);
  const sheet = make("div", { class: "wide", hidden: true }, make("table", { class: "tried" },
    make("thead", {}, make("tr", {}, ...["compare", "head set", "on the task", "random heads",
      "head set minus random", ""].map(head))), body));
  const where = make("p", { class: "note" });
  const element = panel("task", "A task, not one prompt", where,
    make("div", { class: "tools" }, named("Metric", metrics), measure, along, progress.element), note, chart,
    sheet, compared);
  metrics.addEventListener("change", redraw);
  const start = () => {
    const { task, metrics: known, trials: tried, curves: drawn } = about.facts();
    metrics.replaceChildren(...known.map((one) => make("option", { value: one.key }, one.name)));
    trials.splice(0, trials.length, ...tried);
    curves.splice(0, curves.length, ...drawn);
    measure.disabled = !task;
    along.disabled = !task;
    where.textContent = task ? `${task.name}: ${counted(task.examples, "example")} of the test split;`
      + " rankings use the other split, and are held fixed. Bands and bars are 95 % intervals, each"
      + " for itself: among many tries one excludes 0 by luck, so judge a head set that you picked"
      + " here on other examples."
      : "This session has no task: start headcount explore with --task ioi, or in Python "
      + "explore(model, \"ioi\").";
    if (trials.length) metrics.value = trials.at(-1).metric;
    redraw();
  };
  return { element, start, metric: () => metrics.value || "accuracy" };
};

// Five or so round numbers from below the lowest value to above the highest.
export const niceTicks = (low, high) => {
  const rough = (high - low || 1) / 4;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = size * [1, 2, 2.5, 5, 10].find((many) => many * size >= rough);
  const first = Math.floor(low / step);
  const count = Math.max(1, Math.ceil(high / step - 1e-9) - first);
  return Array.from({ length: count + 1 }, (_, at) => Number(((first + at) * step).toPrecision(6)));
};

// The chart: heads on a scale of square roots, so that few heads are not squeezed together.
const plot = (trials, curves, picked, label, room) => {
  // As wide as there is room, so that its letters are never scaled down.
  const wide = Math.max(300, Math.min(640, room || 640));
  const [high, left, under, over] = [270, 52, 34, 30];
  const points = [...trials.flatMap((one) => [one.set, one.random, one.whole]),
    ...curves.flatMap((one) => one.points)];
  const most = Math.max(1, ...trials.map((one) => one.heads.length),
    ...curves.flatMap((one) => one.points.map((point) => point.count)));
  const shares = [...trials, ...curves].some((one) => one.shares);
  const ends = [Math.min(...points.map((one) => one.low)), Math.max(...points.map((one) => one.high))];
  const ticks = niceTicks(...(shares ? [0, 1] : ends));
  const [low, top] = [ticks[0], ticks.at(-1)];
  const x = (count) => left + 14 + (wide - left - 34) * Math.sqrt(count / most);
  const y = (value) => over + (high - over - under) * (1 - (value - low) / (top - low || 1));
  const svg = draw("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img",
    "aria-label": `${counted(trials.length, "head set")} on the task; the table below has the numbers` });
  const text = (at, up, words, anchor = "middle") =>
    draw("text", { x: at, y: up, "text-anchor": anchor }, words);
  for (const value of ticks) {
    svg.append(draw("line", { class: "rule", x1: left, x2: wide - 8, y1: y(value), y2: y(value) }),
      text(left - 6, y(value) + 4, String(value).replace("-", "−"), "end"));
  }
  svg.append(text(4, 14, label, "start"));
  const counts = [...new Set([0, ...trials.map((one) => one.heads.length),
    ...curves.flatMap((one) => one.points.map((point) => point.count))])].sort((a, b) => a - b);
  let last = -99;
  for (const count of counts) {
    if (x(count) - last > 22) {
      svg.append(text(x(count), high - 16, String(count)));
      last = x(count);
    }
  }
  svg.append(text(wide / 2, high - 2, "heads in the head set"));
  const letter = (curve) => String.fromCharCode(65 + curves.indexOf(curve));
  const dashes = ["", "9 3", "9 3 2 3", "4 2"];
  const named = []; // heights at which curves are named already
  const name = (words, end) => {
    let up = y(end.value) - 5;
    while (named.some((one) => Math.abs(one - up) < 12)) up += 12;
    named.push(up);
    svg.append(text(x(end.count) - 2, up, words, "end"));
  };
  for (const curve of curves) {
    for (const series of ["matched", "top"]) {
      const own = curve.points.filter((point) => point.series === series);
      const path = (list) => list.map(([at, up], n) => `${n ? "L" : "M"}${x(at)},${y(up)}`).join("");
      const band = [...own.map((p) => [p.count, p.high]), ...own.toReversed().map((p) => [p.count, p.low])];
      svg.append(draw("path", { class: `band ${series}`, d: `${path(band)}Z` }),
        draw("path", { class: `curve ${series}`, d: path(own.map((p) => [p.count, p.value])),
          ...(series === "top" ? { "stroke-dasharray": dashes[curves.indexOf(curve) % 4] } : {}) }));
      if (own.length) name(letter(curve) + (series === "top" ? "" : " random"), own.at(-1));
    }
  }
  for (const trial of trials) {
    const before = trials.slice(0, trials.indexOf(trial));
    const at = x(trial.heads.length) // beside those of as many heads
      + 11 * before.filter((one) => one.heads.length === trial.heads.length).length;
    const { set, random, whole } = trial;
    svg.append(
      draw("line", { class: "whole", x1: left, x2: wide - 8, y1: y(whole.value), y2: y(whole.value) }),
      draw("rect", { class: "random", x: at - 9, width: 18, y: y(random.high),
        height: Math.max(2, y(random.low) - y(random.high)) }),
      draw("line", { class: "set", x1: at, x2: at, y1: y(set.low), y2: y(set.high) }),
      draw("circle", { class: picked.includes(trial.number) ? "set picked" : "set", cx: at,
        cy: y(set.value), r: 5 }, draw("title", {}, `${trial.number}: ${trial.name}`)),
      text(at + 9, y(set.value) - 6, String(trial.number), "start"));
  }
  const key = make("p", { class: "legend" },
    make("span", {}, make("span", { class: "key set" }), "a head set"),
    make("span", {}, make("span", { class: "key random" }), "as many random heads of its layers"),
    make("span", {}, make("span", { class: "key wholeline" }), "the whole model"),
    ...curves.map((one) => make("span", {}, `${letter(one)}: the top heads of ${one.name}`)),
    ...(curves.length ? [make("span", {}, "dotted: as many random heads of the same layers")] : []));
  return make("div", {}, svg, key);
};

// A picture of the map and of the probabilities, as the page shows them.
export const picture = (grid, said, about) => {
  const size = 22;
  const { counts, model, weights } = about.facts();
  const rows = [...grid.closest(".explorer")
    .querySelectorAll(".prompt:not(.stale) .next tbody tr")].slice(0, 8);
  const most = Math.max(...counts);
  const wide = Math.max(640, counts.length * size + 90);
  const high = 200 + most * size + rows.length * 22;
  const canvas = make("canvas", { width: 2 * wide, height: 2 * high });
  const pen = canvas.getContext("2d");
  const look = getComputedStyle(grid.closest(".explorer"));
  const small = "11px sans-serif";
  pen.scale(2, 2);
  pen.fillStyle = look.getPropertyValue("--paper") || "#fff";
  pen.fillRect(0, 0, wide, high);
  const write = (text, at, up, font = "13px sans-serif") => {
    pen.font = font;
    pen.fillStyle = look.color;
    pen.fillText(text, at, up, wide - at - 10);
  };
  write(`headcount explorer · ${model} · ${weights}`, 20, 26, "600 15px sans-serif");
  write(said, 20, 46);
  const { prompt, colour } = about.state();
  write(`“${prompt}”`, 20, 66);
  write(`colour: ${colour} · layers from left to right, heads from top to bottom`, 20, 86, small);
  const every = counts.length > 60 ? 10 : counts.length > 16 ? 5 : 1;
  counts.forEach((_, layer) => {
    if (layer % every === 0) write(String(layer), 44 + layer * size, 114 + most * size, small);
  });
  for (let row = 0; row < most; row += most > 16 ? 5 : 1) {
    write(String(row), 24, 115 + row * size, small);
  }
  for (const cell of grid.querySelectorAll("[data-number]")) {
    const [layer, index] = place(Number(cell.dataset.number), counts);
    const [at, up] = [40 + layer * size, 100 + index * size];
    pen.fillStyle = getComputedStyle(cell).backgroundColor;
    pen.fillRect(at, up, size - 2, size - 2);
    if (cell.getAttribute("aria-checked") === "true") {
      pen.strokeStyle = look.color;
      pen.lineWidth = 2;
      pen.strokeRect(at + 1, up + 1, size - 4, size - 4);
      pen.beginPath();
      pen.moveTo(at + 4, up + size - 6);
      pen.lineTo(at + size - 6, up + 4);
      pen.stroke();
    }
  }
  let up = 146 + most * size;
  ["next token", "whole model", "head set", "random heads"].forEach((name, column) =>
    write(name, 20 + column * 150, up, "600 12px sans-serif"));
  for (const row of rows) {
    up += 22;
    [...row.cells].forEach((cell, column) => write(cell.textContent, 20 + column * 150, up));
  }
  write("Random heads: as many of the same layers, mean and range of the draws.", 20, up + 24, small);
  return new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
};
