// The page: its state, and everything that changes with it.

const data = JSON.parse(byId("data").textContent);
const state = { task: 0, count: data.counts[0], mode: "winner", axis: 0, weights: [], touring: false };
let view = null;

/** The answers that a policy has tried, grouped by reward vector; for the front its points. */
function answerSets(task) {
  const sets = data.policies.map((label, i) => group(task, label, task.answers[i].slice(0, state.count), false));
  return task.front ? [...sets, group(task, "Exact front", task.front, true)] : sets;
}

function group(task, label, answers, front) {
  const groups = new Map();
  for (const [vector, text] of answers) {
    const texts = groups.get(vector) ?? groups.set(vector, new Map()).get(vector);
    texts.set(text, (texts.get(text) ?? 0) + 1);
  }
  const ids = [...groups.keys()].sort((a, b) => a - b);
  const texts = ids.map((id) => [...groups.get(id)].sort((a, b) => b[1] - a[1])[0][0]);
  const vectors = ids.map((id) => task.vectors[id]);
  const { mean, shares, centres } = overview(vectors, spread(task.active.length));
  return {
    label, front, ids, vectors,
    texts: texts.map((text) => task.texts[text] ?? { text: "", status: "unknown", drawing: null }),
    counts: ids.map((id) => [...groups.get(id).values()].reduce((a, b) => a + b, 0)),
    letters: ids.map((id) => letter(task, id)),
    colours: vectors.map((vector) => mixedColour(vector, task.active)),
    // Where nothing is earned, nobody wins.
    mean, centres, shares: shares.map((share, i) => (earns(vectors[i]) ? share : 0)),
  };
}

function earns(vector) {
  return vector.some((value) => value > 0);
}

const spreads = new Map();
function spread(d) {
  if (!spreads.has(d)) spreads.set(d, spreadWeights(d));
  return spreads.get(d);
}

/** A letter for each reward vector, the same for all policies; 0 for answers that earn nothing. */
function letter(task, id) {
  if (!earns(task.vectors[id])) return "0";
  const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  return ALPHABET[id % 26] + (id >= 26 ? Math.floor(id / 26) : "");
}

function name(objective) {
  return data.objectives[objective].name.replaceAll("_", " ");
}

/** The weights of the objectives that count for a task. */
function weightsOf(task) {
  return normalised(task.active.map((objective) => state.weights[objective]));
}

function setWeights(weights) {
  const active = view.task.active;
  const sum = active.reduce((total, objective) => total + state.weights[objective], 0) || 1;
  active.forEach((objective, i) => { state.weights[objective] = weights[i] * sum; });
  showWeights();
}

function moveOne(i, share) {
  stopTour();
  setWeights(withWeight(weightsOf(view.task), i, share));
}

function describeWeights(weights) {
  return view.task.active.map((objective, i) => `${name(objective)} ${percent(weights[i])}`).join(", ");
}

// What depends on the task ---------------------------------------------------------------------------------------

function showInstance() {
  const task = data.tasks[state.task];
  state.axis = Math.min(state.axis, task.active.length - 1);
  view = { task, sets: answerSets(task), panels: [] };
  byId("task").value = state.task;
  byId("previous").disabled = state.task === 0;
  byId("next").disabled = state.task === data.tasks.length - 1;
  byId("layout").classList.toggle("flat", task.active.length !== 3);
  showSliders();
  view.panels = view.sets.map(makePanel);
  byId("panels").replaceChildren(...view.panels.map((panel) => panel.element));
  showCurve();
  showFinding();
  showAnswers();
  byId("prompt").textContent = task.prompt;
  byId("prompt-box").hidden = !task.prompt;
  showWeights();
}

function showSliders() {
  const { active } = view.task;
  view.sliders = active.map((objective, i) => {
    const range = html("input", { type: "range", min: 0, max: 100, id: `weight-${i}`, style: { "--colour": objectiveColour(objective) },
      oninput: () => moveOne(i, range.value / 100), onfocus: () => setAxis(i) });
    const output = html("b", { class: "share" });
    const only = html("button", { type: "button", class: "only", onclick: () => moveOne(i, 1), "aria-label": `Only ${name(objective)} counts` }, "only");
    const about = data.objectives[objective].description;
    return { range, output, element: html("div", { class: "slider" },
      html("label", { for: `weight-${i}` }, html("i", { style: { background: objectiveColour(objective) } }), name(objective)),
      output, range, only, about ? html("small", {}, about) : null) };
  });
  byId("sliders").replaceChildren(...view.sliders.map((slider) => slider.element));
}

function makePanel(set, place) {
  const { task, sets } = view;
  const names = task.active.map(name), colours = task.active.map(objectiveColour);
  const ceiling = sets.find((one) => one.front && one !== set);
  const move = (weights) => { stopTour(); setWeights(weights); };
  const map = task.active.length === 3 ? triangle(set, names, colours, state.mode, move)
    : strip(set, ceiling, state.axis, names[state.axis], moveOne);
  if (place === 0) makeSlider(map.picture, names);
  else map.picture.setAttribute("aria-hidden", "true");
  const score = html("b", { class: "score" }), bar = html("div", { class: "stack", "aria-hidden": "true" });
  const shownAnswer = html("figure"), values = html("dl", { class: "values" });
  const winners = set.shares.filter((share) => share > 0).length;
  const about = winners ? `${winners} ${winners === 1 ? "answer wins" : "answers win"} somewhere` : "no answer earns anything";
  const element = html("article", { class: set.front ? "panel front" : "panel", "aria-labelledby": `panel-${place}` },
    html("header", {}, html("h3", { id: `panel-${place}` }, set.label), score, html("p", { class: "about" }, about)),
    bar, map.element, shownAnswer, values);
  let drawn = null;
  const update = (weights, best) => {
    map.update(weights);
    const won = winner(set.vectors, weights), vector = set.vectors[won];
    const earned = dot(vector, weights);
    score.textContent = fixed(earned);
    bar.replaceChildren(...vector.map((value, i) =>
      html("i", { style: { width: `${100 * value * weights[i]}%`, background: colours[i] } })),
      ...(ceiling ? [html("b", { style: { left: `${100 * best}%` } })] : []));
    if (drawn !== won) {
      drawn = won;
      const others = set.ids.map((_, i) => ({ text: set.texts[i], colour: set.colours[i] })).filter((_, i) => i !== won);
      shownAnswer.replaceChildren(
        html("figcaption", {}, chip(set, won), set.front ? "is best here" : `${scored(set, won)}, ${times(set.counts[won])}`),
        drawAnswer(task, set.texts[won], set.colours[won], others));
      values.replaceChildren(...vector.flatMap((value, i) => [html("dt", {}, names[i]),
        html("dd", {}, html("span", { class: "bar" }, html("i", { style: { width: `${100 * value}%`, background: colours[i] } })), shown(value))]));
    }
    return { set, won, earned };
  };
  return { element, update };
}

function times(count) {
  return `${count} of ${state.count}`;
}

/** What the best answer under the current weights scores; if nothing at all, its status. */
function scored(set, won) {
  if (earns(set.vectors[won])) return "wins here";
  const { status } = set.texts[won];
  return status === "ok" ? "earns nothing" : `earns nothing (${status})`;
}

function chip(set, i) {
  const colour = set.colours[i];
  return html("span", { class: "chip", style: { "--colour": colour, "--on": inkOn(colour) } }, set.letters[i]);
}

/** Make the first map a slider for the keyboard; the other maps show the same point. */
function makeSlider(picture, names) {
  const keys = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
  fill(picture, { tabindex: 0, role: "slider", "aria-label": `Weights of ${names.join(", ")}`, "aria-valuemin": 0, "aria-valuemax": 100 }, []);
  view.slider = picture;
  picture.addEventListener("keydown", (event) => {
    const weights = weightsOf(view.task), step = event.shiftKey ? 10 : 3;
    if (keys[event.key]) {
      const [dx, dy] = keys[event.key].map((direction) => direction * step);
      if (names.length === 3) {
        const [x, y] = toPoint(weights);
        stopTour();
        setWeights(fromPoint(x + dx, y + dy));
      } else moveOne(state.axis, Math.min(1, Math.max(0, weights[state.axis] + (dx - dy) / 100)));
    } else if (event.key === "0") equalWeights();
    else if (event.key >= "1" && event.key <= String(Math.min(9, names.length))) moveOne(Number(event.key) - 1, 1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

function showCurve() {
  const { sets, task } = view;
  view.curve = chart(sets, state.axis, moveOne);
  view.curve.picture.setAttribute("aria-hidden", "true");
  view.legend = sets.map((set, i) => ({ set, value: html("b"), sample: svg("svg", { viewBox: "0 0 30 8", "aria-hidden": "true" },
    svg("path", { class: `graph ${set.front ? "ceiling" : `policy-${i % 6}`}`, d: "M0 4H30" })) }));
  const items = view.legend.map(({ set, sample, value }) => html("li", {}, sample, set.label, " ", value));
  byId("curve").replaceChildren(html("ul", { class: "legend" }, items), view.curve.element);
  byId("axis").replaceChildren(...task.active.map((objective, i) => html("option", { value: i }, name(objective))));
  byId("axis").value = state.axis;
}

function setAxis(axis) {
  if (axis === state.axis) return;
  state.axis = axis;
  showCurve();
  if (view.task.active.length !== 3) {
    view.panels = view.sets.map(makePanel);
    byId("panels").replaceChildren(...view.panels.map((panel) => panel.element));
  }
  showWeights();
}

function listed(parts) {
  return parts.length < 2 ? parts.join("") : `${parts.slice(0, -1).join(", ")} and ${parts[parts.length - 1]}`;
}

function showFinding() {
  const winners = view.sets.filter((set) => !set.front).map((set) => {
    const count = set.shares.filter((share) => share > 0).length;
    if (count === 0) return `${set.label} earns nothing`;
    return count === 1 ? `${set.label} has one answer for all of them` : `${set.label} wins with ${count} different answers`;
  });
  const scores = (sets) => sets.map((set) => `${set.front ? "best possible" : set.label} ${fixed(set.mean)}`).join(", ");
  const count = data.tasks.length;
  const overall = view.sets.map((set, place) => ({ ...set, mean: average(everySet().map((sets) => sets[place].mean)) }));
  byId("finding").textContent = `On this task, as the weighting changes, ${listed(winners)}. Mean score over all weightings: ${scores(view.sets)}`
    + (count > 1 ? `; mean of the ${count} tasks on this page: ${scores(overall)}.` : ".");
}

function showAnswers() {
  const { task, sets } = view;
  const ids = [...new Set(sets.flatMap((set) => set.ids))].sort((a, b) => a - b);
  const head = html("tr", {}, html("th", { scope: "col" }, "Answer"),
    task.active.map((objective) => html("th", { scope: "col" }, html("i", { style: { background: objectiveColour(objective) } }), name(objective))),
    sets.map((set) => html("th", { scope: "col" }, set.label)), html("th", { scope: "col" }, "Text"));
  const rows = ids.map((id) => {
    const holders = sets.map((set) => ({ set, i: set.ids.indexOf(id) }));
    const held = holders.filter(({ i }) => i >= 0);
    const { set: first, i: at } = held[0];
    const wins = held.find(({ set, i }) => set.shares[i] > 0);
    const mark = wins ? html("button", { type: "button", class: "chip", style: { "--colour": first.colours[at], "--on": inkOn(first.colours[at]) },
      "aria-label": `Answer ${first.letters[at]}: move the weights to where it wins`,
      onclick: () => { stopTour(); setWeights(wins.set.centres[wins.i]); } }, first.letters[at]) : chip(first, at);
    const text = first.texts[at];
    return html("tr", { "data-id": id }, html("th", { scope: "row" }, mark),
      task.vectors[id].map((value) => html("td", { class: "r" }, shown(value))),
      holders.map(({ set, i }) => html("td", {}, i < 0 ? "" : set.front ? `on the front, best for ${percent(set.shares[i])}`
        : `${times(set.counts[i])}${set.shares[i] > 0 ? `, wins ${percent(set.shares[i])}` : ", never wins"}`)),
      html("td", { class: "text" }, text.status === "ok" ? html("code", {}, withReplies(text.text)) : text.status));
  });
  byId("answers").replaceChildren(html("thead", {}, head), html("tbody", {}, rows));
  byId("answers-note").textContent = "Answers with the same rewards share a letter, and their colour mixes those of the objectives that they serve. “Wins” is the share of all weightings under which " +
    "an answer is the best of its policy. Choose a letter to move the weights to where it wins.";
}

// What depends on the weights ----------------------------------------------------------------------------------------

function showWeights() {
  const { task, sets } = view;
  const weights = weightsOf(task);
  const front = sets.find((set) => set.front);
  const best = front ? dot(front.vectors[winner(front.vectors, weights)], weights) : 0;
  const results = view.panels.map((panel) => panel.update(weights, best));
  view.sliders.forEach(({ range, output }, i) => {
    range.value = Math.round(100 * weights[i]);
    range.setAttribute("aria-valuetext", percent(weights[i]));
    range.style.setProperty("--share", `${100 * weights[i]}%`);
    output.textContent = percent(weights[i]);
  });
  view.slider.setAttribute("aria-valuenow", Math.round(100 * weights[state.axis]));
  view.slider.setAttribute("aria-valuetext", describeWeights(weights));
  view.curve.update(weights);
  view.legend.forEach(({ value }, i) => { value.textContent = fixed(results[i].earned); });
  const won = new Set(results.map(({ set, won: i }) => set.ids[i]));
  for (const row of byId("answers").querySelectorAll("tbody tr")) row.classList.toggle("won", won.has(Number(row.dataset.id)));
  showAll();
  remember(weights, results);
}

function average(numbers) {
  return numbers.reduce((a, b) => a + b, 0) / numbers.length;
}

const summaries = new Map();
/** The sets of every task at the current number of answers. */
function everySet() {
  if (!summaries.has(state.count)) summaries.set(state.count, data.tasks.map(answerSets));
  return summaries.get(state.count);
}

function showAll() {
  const all = everySet();
  const rows = view.sets.map((set, place) => {
    const here = all.map((sets, i) => {
      const weights = weightsOf(data.tasks[i]);
      return dot(sets[place].vectors[winner(sets[place].vectors, weights)], weights);
    });
    const winners = all.map((sets) => sets[place].shares.filter((share) => share > 0).length);
    const now = average(here);
    return html("tr", {}, html("th", { scope: "row" }, set.label),
      html("td", {}, html("span", { class: "bar" }, html("i", { style: { width: `${100 * now}%` } })), fixed(now)),
      html("td", { class: "r" }, fixed(average(all.map((sets) => sets[place].mean)))),
      html("td", { class: "r" }, average(winners).toFixed(1)));
  });
  const titles = ["Policy", `Score under these weights, mean of the ${data.tasks.length} tasks on this page`, "Over all weightings", "Answers that win somewhere"];
  byId("all").replaceChildren(html("thead", {}, html("tr", {}, titles.map((title, i) => html("th", { scope: "col", class: i > 1 ? "r" : null }, title)))),
    html("tbody", {}, rows));
}

let pause = 0;
/** Say the result once the weights rest, and keep the view in the address. */
function remember(weights, results) {
  clearTimeout(pause);
  pause = setTimeout(() => {
    if (state.touring) return;
    const said = results.map(({ set, won, earned }) => `${set.label}: answer ${set.letters[won]}, ${fixed(earned)}`);
    byId("status").textContent = `Task ${state.task + 1}. ${describeWeights(weights)}. ${said.join("; ")}.`;
    const address = `#i=${state.task + 1}&w=${state.weights.map((weight) => Math.round(100 * weight)).join("-")}`;
    history.replaceState(null, "", address);
  }, 500);
}

// Controls -----------------------------------------------------------------------------------------------------------

function equalWeights() {
  stopTour();
  setWeights(view.task.active.map(() => 1 / view.task.active.length));
}

function stopTour() {
  state.touring = false;
  byId("tour").setAttribute("aria-pressed", "false");
  byId("tour").textContent = "Take a tour";
}

/** Move the weights from corner to corner and through the middle, a stop every 2.5 seconds. */
function startTour() {
  const d = view.task.active.length;
  const stops = [weightsOf(view.task), ...Array.from({ length: d }, (_, i) => withWeight(Array(d).fill(1 / d), i, 1)), Array(d).fill(1 / d)];
  state.touring = true;
  byId("tour").setAttribute("aria-pressed", "true");
  byId("tour").textContent = "Stop the tour";
  const began = performance.now();
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const step = (now) => {
    if (!state.touring) return;
    const at = Math.max(0, now - began) / 2500;
    setWeights(onTour(stops, calm ? Math.floor(at) : at));
    if (at >= stops.length - 1) stopTour();
    if (state.touring) requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
}

function goTo(task) {
  if (task < 0 || task >= data.tasks.length || task === state.task) return;
  stopTour();
  state.task = task;
  showInstance();
}

function choices(id, values, text, choose) {
  const box = byId(id);
  box.hidden = values.length < 2;
  box.append(...values.map((value) => html("label", {},
    html("input", { type: "radio", name: id, value, checked: value === state.count, onchange: () => choose(value) }), html("span", {}, text(value)))));
}

function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const task = Number(asked.get("i")) - 1;
  if (data.tasks[task]) state.task = task;
  const weights = (asked.get("w") ?? "").split("-").map(Number);
  if (weights.length === data.objectives.length && weights.every((weight) => weight >= 0)) state.weights = normalised(weights);
}

function start() {
  const d = data.objectives.length;
  // Away from the middle, where a compromise looks best.
  state.weights = withWeight(normalised(Array.from({ length: d }, (_, i) => d - i)), 0, Math.max(0.62, 1 / d));
  readAddress();
  byId("environment").append(html("b", {}, data.environment), data.about ? `: ${data.about}` : "");
  byId("lead").textContent = "Each policy answered without knowing how much each objective would count. " +
    `${d === 3 ? "Drag the point" : "Move the sliders"}: of a policy's answers, the one with the highest weighted score wins.`;
  byId("task").append(...data.tasks.map((task, i) => html("option", { value: i }, `${i + 1} of ${data.tasks.length}`)));
  byId("task").addEventListener("change", (event) => goTo(Number(event.target.value)));
  byId("previous").addEventListener("click", () => goTo(state.task - 1));
  byId("next").addEventListener("click", () => goTo(state.task + 1));
  byId("equal").addEventListener("click", equalWeights);
  byId("tour").addEventListener("click", () => (state.touring ? stopTour() : startTour()));
  byId("axis").addEventListener("change", (event) => setAxis(Number(event.target.value)));
  choices("counts", data.counts, String, (count) => { state.count = count; showInstance(); });
  byId("modes").hidden = data.tasks.every((task) => task.active.length !== 3);
  byId("modes").addEventListener("change", (event) => { state.mode = event.target.value; showInstance(); });
  byId("hint").textContent = "The colour of an answer mixes those of the objectives that it serves. Keys: ← → change the task. " +
    "In the first map, arrows move the point, 1 to 9 give one objective all the weight, 0 makes them equal.";
  byId("notes").append(...data.links.map((link) => html("p", {}, html("a", { href: encodeURI(link.to) }, link.text))));
  byId("notes").append(...data.notes.map((note) => html("p", {}, note)));
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select, pre, summary, .wide")) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    goTo(state.task + step);
  });
  showInstance();
}

start();
tellHeight();
