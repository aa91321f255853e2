// The pictures of a study's page and its selection: what is chosen in one of them, or in a table,
// stands out in all of them. The selection is part of the address, so that a view can be sent.

import { boxes, keepOutline, redraw } from "./figures.js";
import { select, selected } from "./table.js";

const NEAR_AN_AXIS = 0.35;

function numbersOf(points) {
  return points.map((point) => point.customdata).filter((number) => Number.isInteger(number));
}

// Boxes over several axes mean both, over one axis either.
function brushed(box) {
  const byAxis = new Map();
  for (const one of box.layout.selections ?? []) {
    const xs = one.path ? [...one.path.matchAll(/[ML]([-\d.e]+),/g)].map((found) => Number(found[1])) : [one.x0, one.x1];
    const ys = one.path ? [...one.path.matchAll(/,([-\d.e]+)/g)].map((found) => Number(found[1])) : [one.y0, one.y1];
    const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    for (let axis = Math.ceil(left - NEAR_AN_AXIS); axis <= right + NEAR_AN_AXIS; axis += 1) {
      byAxis.set(axis, [...(byAxis.get(axis) ?? []), [low, high]]);
    }
  }
  const held = new Map();
  const axes = new Set();
  for (const [index, trace] of box.data.entries()) {
    // What the legend hides is not meant.
    if ((box._fullData?.[index]?.visible ?? true) !== true) {
      continue;
    }
    (trace.customdata ?? []).forEach((number, place) => {
      const ranges = byAxis.get(trace.x[place]);
      if (number === null || ranges === undefined || trace.y[place] === null) {
        return;
      }
      axes.add(trace.x[place]);
      if (ranges.some(([low, high]) => low <= trace.y[place] && trace.y[place] <= high)) {
        held.set(number, (held.get(number) ?? new Set()).add(trace.x[place]));
      }
    });
  }
  return [...held].filter(([, found]) => found.size === axes.size).map(([number]) => number);
}

function listen(box) {
  const isParallel = box.classList.contains("parallel");
  box.on("plotly_selected", (event) => {
    if (event === undefined) {
      return;
    }
    keepOutline(box);
    select(isParallel ? brushed(box) : numbersOf(event.points));
  });
  box.on("plotly_deselect", () => {
    keepOutline(null);
    select([]);
  });
  box.on("plotly_click", (event) => {
    const [number] = numbersOf(event.points);
    if (number === undefined) {
      return;
    }
    keepOutline(null);
    const now = selected();
    if (!now.delete(number)) {
      now.add(number);
    }
    select(now);
  });
}

document.addEventListener("figure:new", (event) => {
  if (!event.target.matches(".growth, .importance, .curves")) {
    listen(event.target);
  }
});
document.addEventListener("selection", (event) => {
  if (event.detail === "table") {
    keepOutline(null);
  }
  redraw(boxes.filter((box) => (box.dataset.takes ?? "").includes("trials")));
});
