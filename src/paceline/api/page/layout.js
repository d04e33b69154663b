// What has a place on the page, and where: sections without content go, and what is in use comes first.

const PLACES = {
  units: [
    ["campaigns", "capacity", "calls", "hosts"],
    ["timeline", "units"],
  ],
  calls: [
    ["calls", "hosts", "campaigns"],
    ["capacity", "timeline", "units"],
  ],
};
const FIRST = {
  units: ["campaigns", "campaigns"],
  calls: ["calls", "API calls"],
  nothing: ["first-start", "first steps"],
};

/** Return what the home is used for: `units` (with or without calls), `calls` alone, or `nothing` yet. */
export function useOf({ campaigns }, hasCalls) {
  return campaigns.length > 0 ? "units" : hasCalls ? "calls" : "nothing";
}

/** Put the sections into their places. sections.css hides those that the use leaves empty. */
export function arrange(use) {
  const { body } = document;
  if (body.dataset.use === use) return;
  body.dataset.use = use;
  const columns = document.querySelectorAll("main > .column");
  (PLACES[use] ?? PLACES.units).forEach((names, at) => {
    columns[at].append(...names.map((name) => document.getElementById(name)));
  });
  const [id, words] = FIRST[use];
  const skip = document.querySelector(".skip");
  skip.setAttribute("href", `#${id}`);
  skip.textContent = `Skip to ${words}`;
}
