// A long list read through cursors. Pages may be of any length; those far from what is looked at are forgotten.

const KEPT_PAGES = 20;

export class Pages {
  constructor(usualLength) {
    this.usualLength = usualLength;
    this.cursors = [null]; // where page n begins; as many as are known
    this.starts = [0]; // the number of its first row
    this.items = new Map(); // page -> its rows
    this.isWhole = false; // whether the last page is known
  }

  /** Rows that are known to be there; while there is more, room for one more page to scroll into. */
  get length() {
    const pages = this.cursors.length;
    return this.isWhole ? this.starts[pages] : this.starts[pages - 1] + this.usualLength;
  }

  /** The page that the row is on, or the last known one, which leads to it. */
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
    const isMoved = (this.cursors[page + 1] ?? null) !== cursor;
    if (isMoved) this.#cutAfter(page, cursor);
    if (cursor === null) this.isWhole = true;
    const next = this.starts[page] + items.length;
    const by = next - (this.starts[page + 1] ?? next);
    this.starts[page + 1] = next;
    for (let at = page + 2; by && at < this.starts.length; at += 1) this.starts[at] += by;
    this.#forgetFarFrom(page);
  }

  /** What came after has moved: it is read again when it comes into sight. */
  #cutAfter(page, cursor) {
    this.cursors.length = page + 1;
    this.starts.length = page + 1;
    this.isWhole = false;
    if (cursor !== null) this.cursors.push(cursor);
    for (const each of [...this.items.keys()]) if (each > page) this.items.delete(each);
  }

  #forgetFarFrom(near) {
    const far = [...this.items.keys()].sort((a, b) => Math.abs(b - near) - Math.abs(a - near));
    while (this.items.size > KEPT_PAGES) this.items.delete(far.shift());
  }
}
