// The choices made on the page (filters, open unit), kept in the address after `#`. A reload or a bookmark restores them.

const DEFAULTS = { campaign: "", state: "", unit: "", hours: 6, scope: "" };

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

  function write() {
    const kept = new URLSearchParams();
    for (const [name, value] of Object.entries(values)) if (value !== DEFAULTS[name]) kept.set(name, value);
    const text = kept.toString();
    history.replaceState(null, "", text ? `#${text}` : location.pathname);
  }

  window.addEventListener("hashchange", () => {
    values = read();
    for (const listener of listeners) listener();
  });

  return {
    get: (name) => values[name],
    set(name, value) {
      if (values[name] === value) return;
      values = { ...values, [name]: value };
      write();
    },
    onChange: (listener) => listeners.add(listener),
  };
}
