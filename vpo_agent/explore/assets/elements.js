// Elements, and colours. Text is always set as text, so nothing that a model wrote is read as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [property, to] of Object.entries(value)) made.style.setProperty(property, to);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

function html(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The parts of a text, in which an environment's replies stand out; see REPLY_START and REPLY_END in vpo_envs/text.py. */
function withReplies(text) {
  return text.split(/\ue000([^\ue001]*)\ue001?/).map((part, i) =>
    i % 2 ? html("span", { class: "reply" }, html("b", {}, "reply"), " ", part) : part.trim());
}

function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function byId(id) {
  return document.getElementById(id);
}

/** Colours of the objectives, those of Okabe and Ito, which colour-blind readers can tell apart. */
const PALETTE = ["#e69f00", "#0072b2", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#b8a800", "#6f5a4b"];

function objectiveColour(i) {
  return PALETTE[i % PALETTE.length];
}

function linear(channel) {
  return channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4;
}

function channels(colour) {
  return [1, 3, 5].map((at) => linear(parseInt(colour.slice(at, at + 2), 16) / 255));
}

/** The colours of objectives, mixed in the proportions in which an answer serves them; grey if it serves none. */
function mixedColour(vector, objectives) {
  const shares = vector.map((value) => value ** 2);
  const sum = shares.reduce((a, b) => a + b, 0);
  if (sum === 0) return "#8a929b";
  const mixed = [0, 0, 0];
  objectives.forEach((objective, i) => {
    channels(objectiveColour(objective)).forEach((channel, j) => { mixed[j] += (channel * shares[i]) / sum; });
  });
  return "#" + mixed.map((channel) => {
    const shown = channel <= 0.0031308 ? 12.92 * channel : 1.055 * channel ** (1 / 2.4) - 0.055;
    return Math.round(255 * shown).toString(16).padStart(2, "0");
  }).join("");
}

/** Black or white, whichever is easier to read on a colour. */
function inkOn(colour) {
  const [red, green, blue] = channels(colour);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}

/** A number as shown everywhere: at most two digits, without zeros at its end. */
function shown(value) {
  return String(Math.round(value * 100) / 100);
}

function fixed(value) {
  return value.toFixed(2);
}

function percent(share) {
  return `${Math.round(100 * share)}\u00a0%`;
}

/** Inside a frame of another page, tell it the height that shows this one whole; style leaves out what is not needed there. */
function tellHeight() {
  if (parent === window) return;
  document.body.classList.add("embedded");
  const tell = () => parent.postMessage({ height: document.documentElement.getBoundingClientRect().height }, "*");
  // A frame that is out of sight observes nothing.
  tell();
  new ResizeObserver(tell).observe(document.body);
}
