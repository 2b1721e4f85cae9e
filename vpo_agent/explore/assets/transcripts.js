// Answers as cards that are filtered, sorted and searched.

const data = JSON.parse(byId("data").textContent);
const AT_A_TIME = 50;
const MEAN = "mean of all";
let shownCards = AT_A_TIME;

const answers = data.groups.flatMap((group, place) => group.responses.flatMap((response, r) =>
  response.answers.map(([text, status, vector, why], a) => ({ group, place, response, r, a, text: text ?? "", status, vector, why }))));

function reward(answer, objective) {
  if (objective !== MEAN) return answer.vector[data.objectives.findIndex((one) => one.name === objective)];
  const known = answer.vector.filter((value) => value !== null);
  return known.reduce((sum, value) => sum + value, 0) / known.length;
}

function kept() {
  const value = (id) => byId(id).value;
  const words = value("text").toLowerCase();
  const within = (answer) => {
    const earned = reward(answer, value("objective"));
    return (value("least") === "" || (earned !== null && earned >= Number(value("least")))) &&
      (value("most") === "" || (earned !== null && earned <= Number(value("most"))));
  };
  const found = answers.filter((answer) =>
    (!value("when") || answer.group.when === value("when")) &&
    (!value("task") || String(answer.group.task) === value("task")) &&
    (!value("status") || answer.status === value("status")) && within(answer) &&
    (!words || [answer.text, answer.why, answer.group.prompt, answer.response.text].some((text) => text.toLowerCase().includes(words))));
  const sign = { highest: -1, lowest: 1 }[value("sort")];
  const key = (answer) => reward(answer, value("objective")) ?? (sign > 0 ? Infinity : -Infinity);
  return sign ? found.sort((x, y) => sign * (key(x) - key(y))) : found;
}

/** A text that the keyboard can scroll. */
function text(parts) {
  return html("pre", { tabindex: 0 }, parts);
}

function card(answer) {
  const { group, response } = answer;
  const place = [group.when, `task ${group.task}`, `response ${answer.r + 1}`, response.answers.length > 1 ? `answer ${answer.a + 1}` : ""];
  const values = data.objectives.map(({ name, description }, i) => answer.vector[i] === null ? null : [
    html("dt", { title: description }, name),
    html("dd", {}, html("span", { class: "bar" }, html("i", { style: { width: percent(answer.vector[i]).replace("\u00a0", "") } })), shown(answer.vector[i])),
  ]);
  return html("article", { class: "panel" },
    html("header", {}, html("h2", {}, answer.status), html("span", { class: "note" }, place.filter(Boolean).join(" · "))),
    answer.why ? html("p", { class: "why" }, answer.why) : null,
    answer.text.trim() ? text(withReplies(answer.text)) : null,
    html("dl", { class: "values" }, ...values.filter(Boolean).flat()),
    html("details", {}, html("summary", {}, "Prompt and whole response"), text([group.prompt || "(the prompt is not known here)"]), text(withReplies(response.text))));
}

function show() {
  const found = kept();
  byId("count").textContent = `${found.length} of ${answers.length} answers`;
  byId("answers").replaceChildren(...found.slice(0, shownCards).map(card));
  byId("more").hidden = found.length <= shownCards;
}

function options(id, values, all) {
  byId(id).append(...(all ? [html("option", { value: "" }, all)] : []), ...[...new Set(values)].map((value) => html("option", { value }, value)));
  byId(id).closest("label").hidden = byId(id).options.length < (all ? 3 : 2);
}

byId("title").textContent = data.title;
options("when", data.groups.map((group) => group.when), "any");
options("task", data.groups.map((group) => group.task).sort((x, y) => x - y), "any");
options("status", answers.map((answer) => answer.status), "any");
options("objective", data.objectives.length > 1 ? [MEAN, ...data.objectives.map((one) => one.name)] : [MEAN]);
options("sort", ["as sampled", "highest", "lowest"]);
byId("notes").append(...data.notes.filter(Boolean).map((note) => html("p", {}, note)));
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filters").addEventListener("input", () => { shownCards = AT_A_TIME; show(); });
byId("more").addEventListener("click", () => { shownCards += AT_A_TIME; show(); });
show();
