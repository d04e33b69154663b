// A long list that is read page by page with cursors. Pages may have any length; only those near the visible rows are kept.

const KEPT_PAGES = 20;

export class Pages {
  constructor(usualLength) {
    this.usualLength = usualLength;
    this.cursors = [null]; // cursor of each known page
    this.starts = [0]; // first row number of each known page
    this.items = new Map(); // page number -> its rows
    this.isComplete = false; // true once the last page is known
  }

  /** The number of known rows. While more exist, includes one more page, so that the user can scroll there. */
  get length() {
    const pages = this.cursors.length;
    return this.isComplete ? this.starts[pages] : this.starts[pages - 1] + this.usualLength;
  }

  /** The number of rows that have been read. */
  get found() {
    return this.starts[this.starts.length - 1];
  }

  /** Return the page of a row, or the last known page, from which reading continues. */
  pageOf(row) {
    let [low, high] = [0, this.cursors.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.starts[middle] <= row) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  at(row) {
    const page = this.pageOf(row);
    return this.items.get(page)?.[row - this.starts[page]];
  }

  keep(page, items, cursor) {
    this.items.set(page, items);
    const hasMoved = (this.cursors[page + 1] ?? null) !== cursor;
    if (hasMoved) this.#dropAfter(page, cursor);
    if (cursor === null) this.isComplete = true;
    const next = this.starts[page] + items.length;
    const by = next - (this.starts[page + 1] ?? next);
    this.starts[page + 1] = next;
    for (let at = page + 2; by && at < this.starts.length; at += 1) this.starts[at] += by;
    this.#dropFarFrom(page);
  }

  /** Drop all later pages, because their rows have moved. They are read again when they become visible. */
  #dropAfter(page, cursor) {
    this.cursors.length = page + 1;
    this.starts.length = page + 1;
    this.isComplete = false;
    if (cursor !== null) this.cursors.push(cursor);
    for (const each of [...this.items.keys()]) if (each > page) this.items.delete(each);
  }

  #dropFarFrom(near) {
    const far = [...this.items.keys()].sort((a, b) => Math.abs(b - near) - Math.abs(a - near));
    while (this.items.size > KEPT_PAGES) this.items.delete(far.shift());
  }
}
