// Greys out parametrizations that are defined on the weights of no chosen architecture: they would be
// searched with nothing. Without JavaScript the check says so. Says anew how long the study may take.

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

const form = document.querySelector("form.spec");
const estimate = document.getElementById("estimate");
const paces = JSON.parse(estimate.dataset.paces);

function duration(seconds) {
  const minutes = Math.floor(Math.round(seconds) / 60);
  const rest = String(Math.round(seconds) % 60).padStart(2, "0");
  return minutes < 60 ? `${minutes} min ${rest} s` : `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

function count(name) {
  const field = form.elements[name];
  return Number(field.value.trim() || field.placeholder);
}

function tell() {
  const pace = paces[form.elements.task.value];
  const [trials, epochs] = [count("budget:trials"), count("budget:epochs")];
  estimate.querySelector("output").value = pace && Number.isInteger(trials) && Number.isInteger(epochs)
    ? `about ${duration(trials * epochs * pace.seconds)} on one slot: ${trials} trials × ${epochs} epochs × ` +
      `${Number(pace.seconds.toPrecision(2))} s, as in study “${pace.study}”`
    : "unknown until the first trial";
}

form.addEventListener("input", tell);
tell();

// A message that was put in front is what a reader comes to first.
document.querySelector("[autofocus]")?.focus();
