// Draws the figures of a report, which are in the same file.
"use strict";

const figures = JSON.parse(document.getElementById("figures").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");

function draw() {
  for (const place of document.querySelectorAll("[data-place]")) {
    const { data, layout, config } = figures[place.dataset.place][dark.matches ? "dark" : "light"];
    Plotly.react(place, data, layout, config);
  }
}

dark.addEventListener("change", draw);
draw();
