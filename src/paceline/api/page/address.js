// The choices made on the page (filters, open unit), kept in the address after `#`. A reload or a bookmark restores them,
// and the back button undoes them one by one.

const STEPS = new Set(["campaign", "state", "unit"]); // choices that the back button undoes
const DEFAULTS = { campaign: "", state: "", search: "", order: "attention", unit: "", hours: 6, scope: "" };

export function makeAddress() {
  const listeners = new Set();
  let values = read();

  function read() {
    const given = new URLSearchParams(location.hash.slice(1));
    const found = { ...DEFAULTS };
    for (const name of Object.keys(DEFAULTS)) if (given.get(name)) found[name] = given.get(name);
    found.hours = [1, 6, 24].includes(Number(found.hours)) ? Number(found.hours) : DEFAULTS.hours;
    return found;
  }

  /** Write the address: as a new entry of the history after a step, else in place of the current one. */
  function write(step) {
    const kept = new URLSearchParams();
    for (const [name, value] of Object.entries(values)) if (value !== DEFAULTS[name]) kept.set(name, value);
    const text = kept.toString();
    const path = text ? `#${text}` : location.pathname;
    if (step) history.pushState(step, "", path);
    else history.replaceState(history.state, "", path);
  }

  window.addEventListener("popstate", () => {
    const before = values;
    values = read();
    const changed = Object.keys(DEFAULTS).filter((name) => values[name] !== before[name]);
    for (const listener of listeners) listener(changed);
  });

  return {
    get: (name) => values[name],
    set(name, value) {
      if (values[name] === value) return;
      const step = STEPS.has(name) ? { name, from: values[name] } : null;
      values = { ...values, [name]: value };
      write(step);
    },
    /** Undo a choice. Where it was the last step, go back, so that the back button does not make it again. */
    clear(name) {
      if (values[name] === DEFAULTS[name]) return;
      const last = history.state;
      if (last?.name === name && last.from === DEFAULTS[name]) {
        history.back();
        return;
      }
      values = { ...values, [name]: DEFAULTS[name] };
      write(null);
    },
    /** Call `listener(names)` with the names of the choices that the back or forward button has changed. */
    onChange: (listener) => listeners.add(listener),
  };
}
