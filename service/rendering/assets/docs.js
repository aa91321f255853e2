// Shows the OpenAPI document by Swagger UI, in the reader's colour scheme.

const dark = matchMedia("(prefers-color-scheme: dark)");

function dress() {
  document.documentElement.classList.toggle("dark-mode", dark.matches);
}

dress();
dark.addEventListener("change", dress);
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#operations",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  // It would send the document to another server.
  validatorUrl: null,
  persistAuthorization: false,
});
