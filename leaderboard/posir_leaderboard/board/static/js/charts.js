"use strict";
// Charts by Vega, loaded with the first chart. Specifications come from the site's data.

{
  const { byId, el, known } = board;
  const MAX_MARKED = 40;
  const MAX_NAMED = 15;
  // Estimated width of a letter of a label, in pixels.
  const LETTER = 6.5;
  const requested = new WeakMap();
  const drawn = new Map();
  const themes = new Map();
  let scatter = null;

  /** Return the current value of a color of the style sheet. */
  function color(name) {
    const probe = byId("probe") ?? document.body.appendChild(el("span", { id: "probe", hidden: true }));
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  }

  function readTheme() {
    const [ink, faint, rule] = ["ink", "faint", "rule"].map(color);
    const font = getComputedStyle(document.body).fontFamily;
    const title = { titleColor: ink, titleFontSize: 11, titleFontWeight: "normal" };
    const config = {
      background: null,
      text: { font },
      style: { "guide-label": { font, fontSize: 11 }, "guide-title": { font }, cell: { stroke: rule } },
      axis: { ...title, labelColor: faint, titlePadding: 10, gridColor: rule, gridOpacity: 0.5, domainColor: rule, tickColor: rule },
      legend: { ...title, labelColor: ink, symbolSize: 80, symbolBaseFillColor: ink, symbolBaseStrokeColor: ink },
      range: {
        category: [1, 2, 3, 4, 5, 6].map((number) => color(`series-${number}`)),
        heatmap: [1, 2, 3, 4].map((number) => color(`heat-${number}`)),
      },
    };
    return { config, colors: { null_band: color("null-band"), halo: color("paper"), ink, faint } };
  }

  /** Return the colors of the light or the dark theme; reading them takes long. */
  function theme() {
    const chosen = document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    if (!themes.has(chosen)) themes.set(chosen, readTheme());
    return themes.get(chosen);
  }

  /** Return a specification with the rows and the values of its signals. */
  const filled = ({ data, signals, ...others }, rows, values) => ({
    ...others,
    data: data.map((one) => (one.name === "rows" ? { ...one, values: rows } : one)),
    signals: signals.map((one) => (one.name in values ? { ...one, value: values[one.name] } : one)),
  });

  /** Free the charts that have left the page. */
  function forget() {
    for (const [place, { finalize }] of drawn) {
      if (place.isConnected) continue;
      finalize();
      drawn.delete(place);
    }
  }

  /**
   * Draw a chart in an element of the page. A chart that is there already gets the new rows.
   *
   * @param {Element} place
   * @param {{name: string, rows: object[], low?: number, high?: number, entries?: object}} chart With `entries`, of its legends.
   * @param {?function(string)} onclick Called with the id of the model of a clicked mark.
   */
  board.draw = async (place, { name, rows, low = 0, high = 1, entries = {} }, onclick = null) => {
    const call = Symbol(name);
    requested.set(place, call);
    const [specifications] = await Promise.all([board.data("charts"), board.library("vega")]);
    if (requested.get(place) !== call || !place.isConnected) return;
    forget();
    const look = theme();
    const earlier = drawn.get(place);
    if (earlier?.name === name && earlier.look === look) {
      for (const [signal, value] of Object.entries({ low, high, ...entries })) earlier.view.signal(signal, value);
      await earlier.view.data("rows", rows).runAsync();
      return;
    }
    earlier?.finalize();
    const { view, finalize } = await vegaEmbed(place, filled(specifications[name], rows, { ...look.colors, low, high, ...entries }), {
      mode: "vega",
      config: look.config,
      ast: true,
      actions: false,
      defaultStyle: false,
      // Errors only: a chart warns about its data before it has any.
      logLevel: 1,
      renderer: "svg",
      tooltip: { disableDefaultStyle: true, theme: "board", formatTooltip: board.tooltip },
    });
    // The element has a label, and a table has the numbers.
    place.querySelector("svg").setAttribute("aria-hidden", "true");
    drawn.set(place, { name, look, view, finalize });
    if (onclick) view.addEventListener("click", (_, item) => item?.datum?.id && onclick(item.datum.id));
  };

  /** Offer a drawn chart as a picture, on the color of the page. */
  async function savePicture(place, caption, type) {
    const view = drawn.get(place)?.view;
    if (!view) return;
    const name = board.fileName(caption, "", `.${type}`);
    view.background(color("paper"));
    if (type === "svg") board.save(await view.toSVG(), "image/svg+xml", name);
    else (await view.toCanvas(2)).toBlob((blob) => board.saveBlob(blob, name));
    view.background(null);
  }

  /** Return an element for a chart, in a figure with a caption; a chart that is drawn already keeps its `place`. */
  board.figure = (caption, { place = el("div", { class: "chart", role: "img" }), below = null } = {}) => {
    place.setAttribute("aria-label", caption);
    const save = (type) =>
      el("button", { type: "button", class: "quiet", "aria-label": `${type.toUpperCase()} of ${caption}`, onclick: () => savePicture(place, caption, type) }, type.toUpperCase());
    const pictures = el("span", { class: "pictures" }, save("png"), save("svg"));
    return { place, element: el("figure", {}, el("figcaption", {}, caption, pictures), place, below) };
  };

  /** Show PSI against nDCG@10 of the rows that pass the filters. */
  board.showScatter = (rows, state) => {
    const comparable = rows.filter(board.isComparable);
    const passing = comparable.filter((row) => board.passes(row, state) && board.known(row.score) && board.known(row.best_psi));
    board.sayCount(passing.length, comparable.length);
    const panel = byId("panel-chart");
    if (!passing.length) {
      panel.replaceChildren(el("p", { class: "empty" }, "No model with an nDCG@10 and a PSI passes these filters."));
      return Promise.resolve();
    }
    const key = JSON.stringify([state.models, state.theme, passing.map((row) => row.id)]);
    if (panel.querySelector("figure") && scatter?.rows === rows && scatter.key === key) return Promise.resolve();
    scatter = { rows, key };
    if (!panel.querySelector("figure")) panel.replaceChildren(scatterFigure());
    const selected = board.models(state);
    const front = paretoFront(passing);
    const points = passing.map((row) => ({
      ...row,
      psi: row.best_psi,
      // Of a published result only the observed PSI is known, which chance increases; an estimate has no null.
      psi_chance: known(row.psi) ? null : row.psi_chance,
      psi_chance_high: known(row.psi) ? null : row.psi_chance_high,
      name: "",
      model: row.label,
      source: row.published ? "published" : "submitted",
      marked: passing.length <= MAX_MARKED || selected.includes(row.id),
      front: front.has(row),
      area: row.parameters ? 30 + 40 * Math.max(0, Math.log10(row.parameters / 1e7)) : 40,
    }));
    const scale = board.ends(points, "score", ...(points.some((one) => one.marked) ? ["score_low", "score_high"] : []));
    scale.high = Math.min(scale.high, 1);
    nameWithoutCollisions(points, scale, selected, panel.clientWidth);
    const present = (name) => [...new Set(points.map((one) => one[name]))].sort();
    const entries = { kinds: present("kind"), sources: present("source") };
    panel.querySelector(".explanation").replaceChildren(explanation(points));
    return board.draw(panel.querySelector(".chart"), { name: "scatter", rows: points, ...scale, entries }, (id) =>
      board.change({ models: id, tab: "models", task: "" }, { step: true }),
    );
  };

  /** Return the rows that no other row exceeds in nDCG@10 without a larger PSI. */
  function paretoFront(rows) {
    const front = new Set();
    let least = Infinity;
    for (const row of [...rows].sort((a, b) => b.score - a.score || a.best_psi - b.best_psi)) {
      if (row.best_psi >= least) continue;
      least = row.best_psi;
      front.add(row);
    }
    return front;
  }

  /** Name the selected points, those on the front, then the others, as long as no two names overlap. */
  function nameWithoutCollisions(points, { low, high }, selected, width) {
    const most = Math.max(...points.map((one) => one.psi), 0.01);
    const taken = [];
    const priority = (one) => (selected.includes(one.id) ? 0 : one.front ? 1 : 2);
    const candidates = points.filter((one) => priority(one) < 2 || points.length <= MAX_NAMED);
    for (const one of candidates.sort((a, b) => priority(a) - priority(b))) {
      const text = one.label.split("/").at(-1);
      const span = Math.min(text.length * LETTER, width / 2);
      const x = ((one.score - low) / (high - low)) * (width - 70);
      const y = (1 - one.psi / most) * 380;
      const left = x > (width - 70) / 2 ? x - 8 - span : x + 8;
      const box = [left, left + span, y - 15, y];
      if (taken.some((other) => box[0] < other[1] && other[0] < box[1] && box[2] < other[3] && other[2] < box[3])) continue;
      taken.push(box);
      one.name = text;
    }
  }

  const CAPTION = "Position sensitivity (PSI) against retrieval quality (nDCG@10)";
  const scatterFigure = () => board.figure(CAPTION, { below: el("p", { class: "faint explanation" }) }).element;

  /** Explain what the points have. */
  function explanation(points) {
    const some = (has) => points.some(has);
    const marked = (one) => one.marked;
    return [
      "Further right: better retrieval. Further down: less dependent on the position of the evidence.",
      some((one) => known(one.psi_low)) ? "Points: estimates of the true PSI." : "",
      some((one) => one.published) ? `${points.every((one) => one.published) ? "Points" : "Diamonds"}: published results, whose observed PSI chance increases.` : "",
      some((one) => marked(one) && (known(one.score_low) || known(one.psi_low))) ? "Lines: 95 % intervals." : "",
      some((one) => marked(one) && known(one.psi_chance_high)) ? "Gray: what the observed PSI shows if position has no effect, its central 90 %." : "",
      some((one) => one.front) ? "Dashed: the models that no other exceeds in both." : "",
      some((one) => !one.marked) ? `Of more than ${MAX_MARKED} models, only those selected in the table have lines.` : "",
      "Larger points have more parameters. A click opens the model; the table has the same numbers.",
    ].filter(Boolean).join(" ");
  }
}
