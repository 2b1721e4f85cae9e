// An answer as a picture: a board with paths, the words of a short prompt that the answer uses, or else its text.

const WALL = "#", LAVA = "L";

/** Draw the winning answer of a policy; `others` are its other answers, drawn faintly where that is possible. */
function drawAnswer(task, text, colour, others) {
  if (task.drawing) return drawBoard(task.drawing, text, colour, others);
  if (text.text.includes("\ue000")) return html("pre", { class: "answer", tabindex: 0 }, withReplies(text.text));
  const words = text.text.split(/\s+/).filter(Boolean);
  if (!task.short) return html("pre", { class: "answer", tabindex: 0 }, tidy(text.text));
  const used = new Set(words.filter((word) => word.length > 1));
  const marked = task.prompt.split(/([\w-]+)/).map((part) =>
    used.has(part) ? html("mark", { style: { "--colour": colour } }, part) : part);
  const chips = words.flatMap((word) => [html("code", {}, word), " "]);
  return html("div", {}, html("p", { class: "words" }, chips), html("pre", { class: "task", tabindex: 0 }, marked));
}

/** JSON, such as tool calls, with one value on a line; any other text as it is. */
function tidy(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 1);
  } catch {
    return text.trim();
  }
}

/** Draw a square board of symbols, rows of text, with the path of an answer and, faintly, those of others. */
function drawBoard({ says, board }, text, colour, others) {
  const size = board.length;
  const all = board.flatMap((row, y) => [...row].map((symbol, x) => ({ symbol, x: x + 0.5, y: y + 0.5 })));
  const paths = others.filter((one) => one.text.drawing && one.text.drawing.says !== text.drawing?.says);
  const label = text.drawing ? `${says} with the ${text.drawing.says}` : `${says}; the answer cannot be drawn`;
  return svg("svg", { class: "board", viewBox: `-0.1 -0.1 ${size + 0.2} ${size + 0.2}`, role: "img", "aria-label": label },
    svg("rect", { class: "floor", width: size, height: size, rx: 0.12 }),
    all.map(({ symbol, x, y }) => ground(symbol, x, y)),
    paths.map((one, i) => drawPath(board, one.text.drawing.path, one.colour, 0.11 * ((i % 5) - 2), "faint")),
    text.drawing ? drawPath(board, text.drawing.path, colour, 0, "chosen") : null,
    all.map(({ symbol, x, y }) => thing(symbol, x, y)));
}

function ground(symbol, x, y) {
  const square = { x: x - 0.5, y: y - 0.5, width: 1.01, height: 1.01 };
  if (symbol === WALL) return svg("rect", { ...square, class: "wall" });
  const tile = svg("rect", { x: x - 0.46, y: y - 0.46, width: 0.92, height: 0.92, rx: 0.1, class: symbol === LAVA ? "lava" : "tile" });
  if (symbol !== LAVA) return tile;
  const wave = [-0.2, 0, 0.2].map((dy) => `M${x - 0.34} ${y + dy}q.085 -.11 .17 0t.17 0t.17 0t.17 0`).join("");
  return svg("g", {}, tile, svg("path", { d: wave, class: "wave" }));
}

function thing(symbol, x, y) {
  const at = { transform: `translate(${x} ${y})` };
  if (symbol === "G") return svg("g", { ...at, class: "coin" }, svg("circle", { r: 0.27 }), svg("circle", { r: 0.16 }));
  if (symbol === "D") {
    return svg("g", { ...at, class: "gem" },
      svg("path", { d: "M-.16-.24H.16L.31-.05L0 .3L-.31-.05Z" }), svg("path", { d: "M-.31-.05H.31M-.16-.24L-.1-.05L0 .3L.1-.05L.16-.24" }));
  }
  if (symbol === "B") return svg("path", { ...at, class: "star", d: "M0-.32L.08-.11L.3-.1L.13 .04L.19 .26L0 .14L-.19 .26L-.13 .04L-.3-.1L-.08-.11Z" });
  if (symbol === "S" || symbol === "E") {
    return svg("g", { ...at, class: symbol === "S" ? "start" : "exit" },
      symbol === "S" ? svg("circle", { r: 0.28 }) : svg("rect", { x: -0.28, y: -0.28, width: 0.56, height: 0.56, rx: 0.08 }),
      svg("text", { y: 0.135 }, symbol));
  }
  return null;
}

/** A line through cells, [column, row], with an arrow where it ends at the exit and a cross where it does not. */
function drawPath(board, cells, colour, shift, kind) {
  const points = cells.map(([x, y]) => [x + 0.5 + shift, y + 0.5 + shift]);
  const [x, y] = points[points.length - 1];
  const [column, row] = cells[cells.length - 1];
  const home = board[row][column] === "E";
  let end = "";
  if (!home) end = `M${x - 0.14} ${y - 0.14}l.28 .28m-.28 0l.28 -.28`;
  else if (points.length > 1) {
    const [px, py] = points[points.length - 2];
    const [dx, dy] = [x - px, y - py];
    const tip = [x - 0.3 * dx, y - 0.3 * dy];
    end = `M${tip[0] - 0.2 * dx - 0.16 * dy} ${tip[1] - 0.2 * dy - 0.16 * dx}L${tip.join(" ")}L${tip[0] - 0.2 * dx + 0.16 * dy} ${tip[1] - 0.2 * dy + 0.16 * dx}`;
    points[points.length - 1] = tip;
  }
  const line = "M" + points.map((point) => point.join(" ")).join("L");
  return svg("g", { class: `route ${kind}`, style: { "--colour": colour } },
    kind === "chosen" ? svg("path", { class: "casing", d: line + end }) : null,
    svg("path", { class: "line", d: line, pathLength: 1 }),
    svg("path", { class: "end", d: end }));
}
