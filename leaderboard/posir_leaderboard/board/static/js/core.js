"use strict";
// `board` is the only global of the page. Each script extends it in a separate block.
const board = {};

{
  const BUILD = document.documentElement.dataset.build;
  const received = new Map();
  const loading = new Map();

  /** Load a script of the site; the promise resolves after it has run. */
  board.script = (path) =>
    new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = `${path}?v=${BUILD}`;
      script.onload = resolve;
      script.onerror = () => reject(new Error(`${path} could not be loaded`));
      document.head.append(script);
    });

  /** Receive the content of a data file. */
  board.receive = (name, value) => received.set(name, value);

  /** Return a promise of a data file's content, which is cached. A failed call can be repeated. */
  board.data = async (name) => {
    if (!received.has(name)) await once(`data/${name}.js`, board.script);
    return received.get(name);
  };

  /** Load a library. */
  board.library = (name) => once(`lib/${name}.js`, board.script);

  function once(path, load) {
    if (!loading.has(path)) {
      const promise = load(path);
      promise.catch(() => loading.delete(path));
      loading.set(path, promise);
    }
    return loading.get(path);
  }
}

{
  const SVG = "http://www.w3.org/2000/svg";

  /** Create an element. Strings become text, never markup. Attributes that are null or false are omitted. */
  board.el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

  /** Create an SVG element. */
  board.svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "onclick" || name === "onchange") element.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false)
        element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  /** Drop the organization from a model's name, including those in `hybrid(org/a,org/b)`. */
  board.shortName = (name) => name.replace(/(?:^|(?<=\w\()|(?<=,))[^\s\/(),]+\//g, "");

  /** Return an element that isolates the writing direction of an untrusted name. */
  board.name = (text, attributes = {}) => board.el("bdi", { ...attributes, title: text }, text);

  /** Replace spaces within intervals by no-break spaces. */
  board.keepIntervals = (text) => text.replaceAll(/(?<=,) (?=[^\][]*\])/g, "\u00a0");

  /** Return a text as nodes, with code between backticks. */
  board.renderCode = (text) => board.keepIntervals(text).split("`").map((part, i) => (i % 2 ? board.el("code", {}, part) : part));

  board.byId = (id) => document.getElementById(id);
}

{
  const DASH = "–";
  const isKnown = (value) => value !== null && value !== undefined;
  const counts = new Intl.NumberFormat("en");

  board.isKnown = isKnown;
  board.DASH = DASH;
  board.percent = (value) => (isKnown(value) ? (value * 100).toFixed(1) : DASH);
  /** Format a difference x 100 with its sign, except for a rounded 0. */
  board.points = (value) => {
    if (!isKnown(value)) return DASH;
    const text = (value * 100).toFixed(1);
    if (Number(text) === 0) return "0.0";
    return (value > 0 ? "+" : "") + text;
  };
  board.decimals = (value) => (isKnown(value) ? value.toFixed(3) : DASH);
  board.count = (value) => (isKnown(value) ? counts.format(value) : DASH);
  board.shortenNumber = (value) => {
    if (!isKnown(value)) return DASH;
    for (const [unit, size] of [
      ["B", 1e9],
      ["M", 1e6],
      ["K", 1e3],
    ]) {
      if (value >= size) return `${Number((value / size).toPrecision(value / size >= 100 ? 3 : 2))}${unit}`;
    }
    return String(value);
  };
  const pValue = (value) => (isKnown(value) ? (value < 0.001 ? "< 0.001" : value.toFixed(3)) : DASH);
  const FORMATS = {
    percent: board.percent,
    points: board.points,
    index: board.decimals,
    p_value: pValue,
    count: board.count,
    number: (value) => (isKnown(value) ? value.toFixed(2) : DASH),
    text: (value) => value ?? DASH,
  };
  const BETTER = { higher: "Higher is better.", lower: "Lower is better.", "near zero": "Better near 0.", neither: "" };
  let declared = new Map();

  /** Store the declarations of scores. */
  board.declare = (columns) => {
    declared = new Map(columns.map((column) => [column.key, column]));
  };

  board.declaredScores = () => [...declared.values()];

  const declarationOf = (key) => declared.get(key) ?? { key, title: key, description: "", unit: "number", better: "neither", citation: "" };

  board.scoreTitle = (key) => declarationOf(key).title;

  /** Describe a score: its meaning, the better direction, and its source. */
  board.describeScore = (key) => {
    const { description, better, citation } = declarationOf(key);
    return [description, BETTER[better], citation && `${citation}.`].filter(Boolean).join(" ");
  };

  /** Format the value of a score without its interval. */
  board.valueText = (row, key, field = key) => FORMATS[declarationOf(key).unit](row[field]);

  /** Format the ends of an interval, or return an empty text if it is unknown or 0 by definition. `name` is the prefix of its columns. */
  board.intervalText = (row, key, field = key) => {
    const low = row[`${field}_low`];
    const high = row[`${field}_high`];
    if (low === 0 && high === 0) return "";
    const format = FORMATS[declarationOf(key).unit];
    return isKnown(low) && isKnown(high) ? `[${format(low)}, ${format(high)}]` : "";
  };

  /** Return the key of the score to rank by. In a length bucket, published rows have only the papers' mean over positions. */
  board.scoreKey = (length, published) => (length === "all" || !published ? "ndcg_at_10" : "ndcg_at_10_as_published");

  /** Fill a template of the board's messages with named texts and elements. */
  board.fill = (name, values) => board.messages[name].split(/\{(\w+)\}/).map((part, i) => (i % 2 ? values[part] : part));

  /** Return the tokens of a length for the head of a table: `≤ 512`. */
  board.tokensOf = (length) => {
    const [low, high] = board.lengths[length] ?? [];
    if (!low) return "";
    return isKnown(high) ? `≤ ${board.count(high)}` : `> ${board.count(low - 1)}`;
  };

  /** Return the tokens of a length: `513 to 1,024 tokens`. */
  board.describeTokens = (length) => {
    const [low, high] = board.lengths[length] ?? [];
    if (!low) return "";
    if (!isKnown(high)) return `over ${board.count(low - 1)} tokens`;
    return low === 1 ? `up to ${board.count(high)} tokens` : `${board.count(low)} to ${board.count(high)} tokens`;
  };

  board.range = (ends) => (!ends ? DASH : ends[0] === ends[1] ? String(ends[0]) : `${ends[0]}–${ends[1]}`);
}
