// Maps of the weightings: the triangle for three objectives, a line along one weight for any other number, and the
// chart of all policies. Words lie over the pictures, so that they keep their size on a small screen.

const BANDS = Array.from({ length: 19 }, (_, i) => 0.05 * (i + 1));
const SLICES = 200;

function overlay(text, x, y, colour = null, kind = "letter") {
  const place = { left: `${x}%`, top: `${y}%` };
  const look = colour ? { ...place, "--colour": colour, "--on": inkOn(colour) } : place;
  return html("span", { class: kind, style: look }, text);
}

function path(points) {
  return `M${points.map(([x, y]) => `${x.toFixed(2)} ${y.toFixed(2)}`).join("L")}Z`;
}

/** The triangle: who wins where, or how much the winner earns. `move(weights)` is called when the reader drags. */
function triangle(set, names, colours, mode, move) {
  const handle = svg("g", { class: "handle" }, svg("circle", { r: 4.4 }), svg("circle", { r: 4.4 }));
  const areas = [], letters = [];
  territories(set.vectors).forEach((polygon, i) => {
    if (!polygon.length) return;
    const points = polygon.map(toPoint);
    const colour = set.colours[i];
    areas.push(svg("path", { class: "area", d: path(points), style: { "--colour": colour } }));
    if (mode === "score") {
      for (const bound of BANDS) {
        const band = clip(polygon, set.vectors[i], bound);
        if (band.length > 2) areas.push(svg("path", { class: "band", d: path(band.map(toPoint)), style: { "--level": `${100 * bound}%` } }));
      }
    }
    if (mode !== "winner" || area(polygon) < 0.03) return;
    const [x, y] = [0, 1].map((axis) => points.reduce((sum, point) => sum + point[axis], 0) / points.length);
    letters.push(overlay(set.letters[i], x, (100 * y) / HEIGHT, colour));
  });
  if (mode === "score") {
    for (const weights of [[0.86, 0.07, 0.07], [0.07, 0.86, 0.07], [0.07, 0.07, 0.86], [1 / 3, 1 / 3, 1 / 3]]) {
      const [x, y] = toPoint(weights);
      letters.push(overlay(fixed(dot(set.vectors[winner(set.vectors, weights)], weights)), x, (100 * y) / HEIGHT, null, "letter number"));
    }
  }
  const picture = svg("svg", { viewBox: `0 0 100 ${HEIGHT}`, class: mode },
    areas, svg("path", { class: "frame", d: path([[1, 0, 0], [0, 1, 0], [0, 0, 1]].map(toPoint)) }), handle);
  const drag = (event) => {
    const box = picture.getBoundingClientRect();
    move(fromPoint(((event.clientX - box.left) / box.width) * 100, ((event.clientY - box.top) / box.height) * HEIGHT));
  };
  draggable(picture, drag);
  const corners = names.map((name, i) =>
    html("span", { class: `corner corner-${i}` }, html("i", { style: { background: colours[i] } }), name));
  return {
    element: html("div", { class: "triangle" }, corners, html("div", { class: "plane" }, picture, letters)),
    picture,
    update(weights) {
      const [x, y] = toPoint(weights);
      handle.setAttribute("transform", `translate(${x} ${y})`);
    },
  };
}

function draggable(picture, drag) {
  let held = false;
  picture.addEventListener("pointerdown", (event) => {
    held = true;
    picture.setPointerCapture(event.pointerId);
    drag(event);
    event.preventDefault();
    picture.focus?.({ preventScroll: true });
  });
  picture.addEventListener("pointermove", (event) => { if (held) drag(event); });
  for (const name of ["pointerup", "pointercancel"]) picture.addEventListener(name, () => { held = false; });
}

/** The best score of a set as one weight goes from 0 to 1, at SLICES + 1 places, with the winner of each. */
function along(set, weights, axis) {
  return Array.from({ length: SLICES + 1 }, (_, n) => {
    const slice = withWeight(weights, axis, n / SLICES);
    const best = winner(set.vectors, slice);
    return { x: (100 * n) / SLICES, y: 60 * (1 - dot(set.vectors[best], slice)), best };
  });
}

function polyline(places) {
  return `M${places.map(({ x, y }) => `${x.toFixed(1)} ${y.toFixed(2)}`).join("L")}`;
}

/** A frame from 0 to 100 % and from 0 to 1 around what `draw(weights)` returns, with a line at the current weight. */
function frame(axis, middle, draw, move) {
  const picture = svg("svg", { viewBox: "0 0 100 60", preserveAspectRatio: "none" });
  const plane = html("div", { class: "plane" }, picture);
  const ticks = [0, 0.5, 1].flatMap((tick) => [overlay(shown(tick), 0, 100 * (1 - tick), null, "tick-y"),
    overlay(tick === 0.5 ? middle : percent(tick), 100 * tick, 100, null, "tick-x")]);
  draggable(picture, (event) => {
    const box = picture.getBoundingClientRect();
    move(axis, Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
  });
  return {
    element: html("div", { class: "frame-box" }, plane),
    picture,
    update(weights) {
      const { shapes, letters } = draw(weights);
      const grid = [0, 30, 60].map((y) => svg("path", { class: "grid", d: `M0 ${y}H100` }));
      const x = 100 * weights[axis];
      picture.replaceChildren(...grid, ...shapes, svg("path", { class: "cursor", d: `M${x} 0V60` }));
      plane.replaceChildren(picture, ...ticks, ...letters);
    },
  };
}

/** Like the triangle, for any number of objectives but three: the winners along one weight. */
function strip(set, ceiling, axis, name, move) {
  return frame(axis, name, (weights) => {
    const places = along(set, weights, axis);
    const shapes = [], letters = [];
    for (let start = 0; start < SLICES; ) {
      let end = start + 1;
      while (end < SLICES && places[end].best === places[start].best) end++;
      const part = places.slice(start, end + 1), colour = set.colours[places[start].best];
      shapes.push(svg("path", { class: "under", d: `${polyline(part)}V60H${part[0].x}Z`, style: { "--colour": colour } }));
      if (end - start > SLICES / 12) {
        const middle = part[Math.floor(part.length / 2)];
        letters.push(overlay(set.letters[middle.best], middle.x, (100 * (middle.y + 60)) / 120, colour));
      }
      start = end;
    }
    if (ceiling) shapes.push(svg("path", { class: "ceiling", d: polyline(along(ceiling, weights, axis)) }));
    return { shapes, letters };
  }, move);
}

/** The chart with a line for each policy and one for the exact front. */
function chart(sets, axis, move) {
  return frame(axis, percent(0.5), (weights) => ({
    shapes: sets.map((set, i) =>
      svg("path", { class: `graph ${set.front ? "ceiling" : `policy-${i % 6}`}`, d: polyline(along(set, weights, axis)) })),
    letters: [],
  }), move);
}
