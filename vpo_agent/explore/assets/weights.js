"use strict";
// Weightings of d objectives: vectors of d numbers that are at least 0 and add up to 1.

/** The sum of products of two vectors. */
function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

/** The place of the vector with the highest weighted score; of equal ones the first. */
function winner(vectors, weights) {
  let best = -1, most = -Infinity;
  vectors.forEach((vector, i) => {
    const score = dot(vector, weights);
    if (score > most + 1e-12) [best, most] = [i, score];
  });
  return best;
}

/** The same weighting with one weight set to `share`, while the others keep their proportions. */
function withWeight(weights, i, share) {
  const rest = weights.reduce((sum, weight, j) => (j === i ? sum : sum + weight), 0);
  return weights.map((weight, j) => {
    if (j === i) return weights.length === 1 ? 1 : share;
    return (1 - share) * (rest > 1e-9 ? weight / rest : 1 / (weights.length - 1));
  });
}

/** Numbers that are at least 0 as a weighting; equal weights if all are 0. */
function normalised(numbers) {
  const sum = numbers.reduce((a, b) => a + b, 0);
  return numbers.map((number) => (sum > 0 ? number / sum : 1 / numbers.length));
}

/** Weightings spread evenly over the simplex: those of `vpo_envs.pareto.spread_weights`, at most `count`. */
function spreadWeights(d, count = 4096) {
  let ratio = 2;
  for (let i = 0; i < 64; i++) ratio = (1 + ratio) ** (1 / d);
  const gaps = Array.from({ length: Math.floor(count / d) }, (_, n) => {
    const points = Array.from({ length: d - 1 }, (_, i) => (0.5 + (n + 1) * ratio ** -(i + 1)) % 1).sort((a, b) => a - b);
    return [...points, 1].map((end, i) => end - (i ? points[i - 1] : 0));
  });
  return Array.from({ length: d }, (_, shift) => gaps.map((gap) => [...gap.slice(d - shift), ...gap.slice(0, d - shift)])).flat();
}

/** What a set of vectors earns over many weightings: its mean score, and the share and centre of each one's wins. */
function overview(vectors, weightings) {
  const wins = vectors.map(() => 0), centres = vectors.map((vector) => vector.map(() => 0));
  let total = 0;
  for (const weights of weightings) {
    const best = winner(vectors, weights);
    wins[best] += 1;
    total += dot(vectors[best], weights);
    weights.forEach((weight, i) => { centres[best][i] += weight; });
  }
  return {
    mean: total / weightings.length,
    shares: wins.map((count) => count / weightings.length),
    centres: centres.map((centre, i) => (wins[i] ? centre.map((sum) => sum / wins[i]) : null)),
  };
}

/** The part of a convex polygon of weightings in which normal·w is at least `bound`. */
function clip(polygon, normal, bound = 0) {
  const kept = [];
  polygon.forEach((here, i) => {
    const after = polygon[(i + 1) % polygon.length];
    const a = dot(normal, here) - bound, b = dot(normal, after) - bound;
    if (a >= 0) kept.push(here);
    if ((a > 0 && b < 0) || (a < 0 && b > 0)) kept.push(here.map((x, j) => x + ((after[j] - x) * a) / (a - b)));
  });
  return kept;
}

/** For each vector the polygon of weightings under which it wins, by its corners; empty if it wins nowhere. */
function territories(vectors) {
  const corners = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
  return vectors.map((vector, i) => {
    let polygon = corners;
    vectors.forEach((other, j) => {
      if (i !== j && polygon.length) polygon = clip(polygon, vector.map((value, axis) => value - other[axis]));
    });
    return polygon.length > 2 && area(polygon) > 1e-9 ? polygon : [];
  });
}

/** The area of a polygon of weightings of three objectives, as a share of the simplex. */
function area(polygon) {
  let twice = 0;
  polygon.forEach((a, i) => {
    const b = polygon[(i + 1) % polygon.length];
    twice += a[0] * b[1] - b[0] * a[1];
  });
  return Math.abs(twice);
}

/** The weighting after `at` legs of a tour along stops; it moves for two thirds of a leg and then rests. */
function onTour(stops, at) {
  const leg = Math.min(Math.floor(at), stops.length - 2);
  const share = Math.min(1, 1.5 * (at - leg));
  const eased = share * share * (3 - 2 * share);
  return stops[leg].map((weight, i) => weight + (stops[leg + 1][i] - weight) * eased);
}

// A weighting of three objectives as a point of a triangle with sides of length 100: the first objective on top.
const HEIGHT = 50 * Math.sqrt(3);

function toPoint(weights) {
  return [50 * weights[0] + 100 * weights[2], HEIGHT * (1 - weights[0])];
}

/** The weighting of a point; one outside the triangle is moved to its edge. */
function fromPoint(x, y) {
  const first = Math.min(1, Math.max(0, 1 - y / HEIGHT)), last = (x - 50 * first) / 100;
  return normalised([first, 1 - first - last, last].map((weight) => Math.max(0, weight)));
}
