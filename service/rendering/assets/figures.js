// Draws every figure of a page: an element with data-figure names an address that answers with Plotly
// JSON. data-takes lists what of the page's own address goes along (axes, selection). A figure is
// fetched when it comes near the window, again after the page has heard of changes, and when colours
// or width change; a new answer keeps what a reader zoomed to.

const DARK = matchMedia("(prefers-color-scheme: dark)");
const WIDE = matchMedia("(min-width: 1000px)");

export const boxes = [...document.querySelectorAll("[data-figure]")];
const texts = new Map();
const sent = new Map();
const near = new Set();
let outlined = null;

// The outline of a lasso belongs to the picture where it was drawn, and to none after other choices.
export function keepOutline(box) {
  outlined = box;
}

function address(box) {
  const url = new URL(box.dataset.figure, location.href);
  const here = new URLSearchParams(location.search);
  for (const name of (box.dataset.takes ?? "").split(" ").filter(Boolean)) {
    const values = here.getAll(name).filter(Boolean);
    if (values.length > 0) {
      url.searchParams.set(name, values.join(","));
    }
  }
  if ("panels" in box.dataset) {
    url.searchParams.set("panels", WIDE.matches ? "2" : "1");
  }
  url.searchParams.set("theme", DARK.matches ? "dark" : "light");
  return url.href;
}

async function draw(box) {
  const wanted = address(box);
  box.dataset.wanted = wanted;
  let text;
  try {
    const answer = await fetch(wanted);
    text = await answer.text();
    if (!answer.ok) {
      say(box, JSON.parse(text).detail);
      return;
    }
  } catch {
    // The server is away for the moment; the picture stays as it is.
    return;
  }
  if (box.dataset.wanted !== wanted || (texts.get(box) === text && outlined === box)) {
    return;
  }
  const figure = JSON.parse(text);
  keepZoom(box, figure.layout);
  figure.layout.selections = outlined === box ? (box.layout?.selections ?? []) : [];
  // What a reader drew is no longer what is selected once the choice has changed.
  figure.layout.selectionrevision = wanted;
  if (texts.get(box) === text && (box.layout?.selections ?? []).length === 0) {
    return;
  }
  texts.set(box, text);
  const isNew = !box.classList.contains("js-plotly-plot");
  // The caption says why there is nothing to see.
  box.classList.toggle("empty", figure.data.length === 0);
  await Plotly.react(box, figure.data, figure.layout, figure.config);
  box.setAttribute("aria-label", figure.layout.meta.summary);
  say(box, figure.layout.meta.caption);
  if (isNew) {
    box.dispatchEvent(new CustomEvent("figure:new", { bubbles: true }));
  }
}

// A new answer may have other ranges, for a front that grew: where a reader zoomed, theirs stay, as
// long as the axis is of the same thing.
function keepZoom(box, layout) {
  const before = sent.get(box) ?? {};
  sent.set(box, {});
  for (const [name, axis] of Object.entries(layout).filter(([key]) => /^[xy]axis\d*$/.test(key))) {
    const title = axis.title?.text;
    // A copy: Plotly writes a zoom into the very list that it was given.
    sent.get(box)[name] = { title, range: axis.range && [...axis.range] };
    const now = box.layout?.[name];
    const last = before[name];
    if (now === undefined || last === undefined || last.title !== title) {
      continue;
    }
    if (now.autorange === true && last.range !== undefined) {
      delete axis.range;
      axis.autorange = true;
    } else if (now.range !== undefined && String(now.range) !== String(last.range)) {
      axis.range = [...now.range];
    }
  }
}

function say(box, words) {
  const caption = box.parentElement.querySelector("figcaption");
  if (caption !== null) {
    caption.textContent = words;
  }
}

export function redraw(those = boxes) {
  for (const box of those) {
    if (near.has(box)) {
      draw(box);
    }
  }
}

const watch = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting && !near.has(entry.target)) {
      near.add(entry.target);
      draw(entry.target);
    }
  }
}, { rootMargin: "400px" });

for (const box of boxes) {
  watch.observe(box);
}
document.addEventListener("page:refreshed", () => redraw());
DARK.addEventListener("change", () => redraw());
WIDE.addEventListener("change", () => redraw(boxes.filter((box) => "panels" in box.dataset)));
