// Greys out parametrizations that are defined on the weights of no chosen architecture: they would be
// searched with nothing. Without JavaScript the check says so.
"use strict";

const architectures = [...document.querySelectorAll('input[name="architectures"]')];
const fitting = [...document.querySelectorAll("input[data-fits]")];

function grey() {
  const chosen = new Set(architectures.filter((input) => input.checked).map((input) => input.value));
  for (const input of fitting) {
    const fits = input.dataset.fits.split(" ").some((kind) => chosen.has(kind));
    input.disabled = chosen.size > 0 && !fits;
    input.closest(".choice").classList.toggle("off", input.disabled);
    input.title = input.disabled ? `defined on the weights of ${input.dataset.fits.split(" ").join(", ")} alone` : "";
  }
}

for (const input of architectures) {
  input.addEventListener("change", grey);
}
grey();

// A message that was put in front is what a reader comes to first.
document.querySelector("[autofocus]")?.focus();
