"use strict";
// Vega charts. Vega is loaded with the first chart; the specifications are in the site's data.

{
  const { byId, el, isKnown } = board;
  const MAX_MARKED = 40;
  // Maximum number of lines in the height of the chart. HEIGHT and LINE are in pixels.
  const MAX_NAMED = 30;
  const HEIGHT = 440;
  const LINE = 14;
  const LETTER = innerWidth < 500 ? 6.2 : 7.2;
  const latestCalls = new WeakMap();
  const drawnCharts = new Map();
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
    const title = { titleColor: ink, titleFontSize: 12, titleFontWeight: "normal" };
    const config = {
      background: null,
      text: { font, fontSize: 12 },
      style: { "guide-label": { font, fontSize: 12 }, "guide-title": { font }, cell: { stroke: rule } },
      axis: { ...title, labelColor: faint, labelPadding: 4, titlePadding: 10, gridColor: rule, gridOpacity: 0.5, domainColor: rule, tickColor: rule },
      legend: { ...title, labelColor: ink, symbolSize: 80, symbolBaseFillColor: ink, symbolBaseStrokeColor: ink },
      range: {
        category: [1, 2, 3, 4, 5, 6].map((number) => color(`series-${number}`)),
        heatmap: [1, 2, 3, 4].map((number) => color(`heat-${number}`)),
      },
    };
    return { config, colors: { halo: color("paper"), ink, faint } };
  }

  /** Return the colors of the light or the dark theme, cached since reading them is slow. */
  function theme() {
    const chosen = document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    if (!themes.has(chosen)) themes.set(chosen, readTheme());
    return themes.get(chosen);
  }

  /** Return a specification with the rows and the values of its signals. */
  const fillSpecification = ({ data, signals, ...others }, rows, values) => ({
    ...others,
    data: data.map((dataset) => (dataset.name === "rows" ? { ...dataset, values: rows } : dataset)),
    signals: signals.map((signal) => (signal.name in values ? { ...signal, value: values[signal.name] } : signal)),
  });

  /** Free the charts that are no longer on the page. */
  function freeCharts() {
    for (const [container, { finalize }] of drawnCharts) {
      if (container.isConnected) continue;
      finalize();
      drawnCharts.delete(container);
    }
  }

  /**
   * Draw a chart in an element, or update the rows of its chart.
   *
   * @param {Element} container
   * @param {{name: string, rows: object[], low?: number, high?: number, entries?: object}} chart `entries` are the values of additional signals.
   * @param {?function(string)} onclick Called with the id of the model of a clicked mark.
   */
  board.draw = async (container, { name, rows, low = 0, high = 1, entries = {} }, onclick = null) => {
    const call = Symbol(name);
    latestCalls.set(container, call);
    const [specifications] = await Promise.all([board.data("charts"), board.library("vega")]);
    if (latestCalls.get(container) !== call || !container.isConnected) return;
    freeCharts();
    const look = theme();
    const earlier = drawnCharts.get(container);
    if (earlier?.name === name && earlier.look === look) {
      for (const [signal, value] of Object.entries({ low, high, ...entries })) earlier.view.signal(signal, value);
      await earlier.view.data("rows", rows).runAsync();
      return;
    }
    earlier?.finalize();
    const { view, finalize } = await vegaEmbed(container, fillSpecification(specifications[name], rows, { ...look.colors, low, high, ...entries }), {
      mode: "vega",
      config: look.config,
      ast: true,
      actions: false,
      defaultStyle: false,
      // Errors only, since a chart without data warns.
      logLevel: 1,
      renderer: "svg",
      tooltip: { disableDefaultStyle: true, theme: "board", formatTooltip: board.tooltip },
    });
    // The element has a label, and a table has the numbers.
    container.querySelector("svg").setAttribute("aria-hidden", "true");
    drawnCharts.set(container, { name, look, view, finalize });
    if (onclick) view.addEventListener("click", (_, item) => item?.datum?.id && onclick(item.datum.id));
  };

  /** Download a chart as a picture with the page's background. */
  async function savePicture(container, caption, type) {
    const view = drawnCharts.get(container)?.view;
    if (!view) return;
    const name = board.fileName(caption, "", `.${type}`);
    view.background(color("paper"));
    if (type === "svg") board.save(await view.toSVG(), "image/svg+xml", name);
    else (await view.toCanvas(2)).toBlob((blob) => board.saveBlob(blob, name));
    view.background(null);
  }

  /** Return a figure with a caption and an element for a chart, by default the element `container` of an earlier chart. */
  board.figure = (caption, { container = el("div", { class: "chart", role: "img" }), below = null } = {}) => {
    container.setAttribute("aria-label", caption);
    const save = (type) =>
      el("button", { type: "button", class: "quiet", "aria-label": `${type.toUpperCase()} of ${caption}`, onclick: () => savePicture(container, caption, type) }, type.toUpperCase());
    const pictures = el("span", { class: "pictures" }, save("png"), save("svg"));
    return { container, element: el("figure", {}, el("figcaption", {}, caption, pictures), container, below) };
  };

  /** Show the position effect, or start minus end of published rows, against nDCG@10 of the filtered rows. */
  board.showScatter = (rows, state) => {
    const comparable = rows.filter(board.isComparable);
    const scored = comparable.filter((row) => board.passes(row, state) && isKnown(row.score));
    // These are different quantities, so published rows appear only if no row has a position effect.
    const tested = scored.filter((row) => isKnown(row.effect));
    const passing = tested.length ? tested : scored.filter((row) => isKnown(row.difference));
    const name = tested.length ? "position_effect" : "start_minus_end";
    board.showCount(passing.length, comparable.length);
    const panel = byId("panel-chart");
    if (!passing.length) {
      panel.replaceChildren(el("p", { class: "empty" }, "No model with an nDCG@10 and a position effect passes these filters."));
      return Promise.resolve();
    }
    const key = JSON.stringify([state.models, state.theme, passing.map((row) => row.id)]);
    if (panel.querySelector("figure") && scatter?.rows === rows && scatter.key === key) return Promise.resolve();
    scatter = { rows, key };
    if (!panel.querySelector("figure")) panel.replaceChildren(scatterFigure());
    const selected = board.models(state);
    const points = passing.map((row) => ({
      ...row,
      effect: row.effect ?? row.difference,
      effect_low: row[`${name}_low`],
      effect_high: row[`${name}_high`],
      name: "",
      model: row.label,
      source: row.published ? "published" : "evaluated with posir",
      marked: passing.length <= MAX_MARKED || selected.includes(row.id),
      area: row.parameters ? 55 + 40 * Math.max(0, Math.log10(row.parameters / 1e7)) : 65,
    }));
    const scale = board.ends(points, "score", ...(points.some((point) => point.marked) ? ["score_low", "score_high"] : []));
    scale.high = Math.min(scale.high, 1);
    const { low: bottom, high: top } = board.ends([...points, { effect: 0 }, ...points.map((point) => ({ effect: 1.1 * point.effect }))], "effect", "effect_low", "effect_high");
    namePoints(points, { ...scale, bottom, top, width: panel.clientWidth - 84 }, selected);
    const present = (name) => [...new Set(points.map((point) => point[name]))].sort();
    const entries = { kinds: present("kind"), sources: present("source"), bottom, top };
    panel.querySelector("figcaption").firstChild.data = TITLES[name];
    panel.querySelector(".explanation").replaceChildren(explanation(points, scored.length, name));
    return board.draw(panel.querySelector(".chart"), { name: "scatter", rows: points, ...scale, entries }, (id) =>
      board.change({ models: id, tab: "models", task: "" }, { step: true }),
    );
  };

  /** Label the selected points and those with the highest scores, as near to the point as possible. */
  function namePoints(points, { low, high, bottom, top, width }, selected) {
    const first = (point) => Number(selected.includes(point.id));
    const named = [...points].sort((a, b) => first(b) - first(a) || b.score - a.score).slice(0, MAX_NAMED);
    const across = (score) => ((score - low) / (high - low)) * width;
    const down = (effect) => ((top - effect) / (top - bottom)) * HEIGHT;
    const locate = (point) => [across(point.score), down(point.effect)];
    // Labels avoid points, intervals and the line at 0.
    const taken = [[0, width, down(0) - 1, down(0) + 1]];
    for (const point of points) {
      const [x, y] = locate(point);
      taken.push([x - 6, x + 6, y - 6, y + 6]);
      if (point.marked && isKnown(point.score_low)) taken.push([across(point.score_low), across(point.score_high), y - 1, y + 1]);
      if (point.marked && isKnown(point.effect_low)) taken.push([x - 1, x + 1, down(point.effect_high), down(point.effect_low)]);
    }
    const free = ([left, right, upper, lower]) =>
      left >= 0 && right <= width && upper >= -LINE / 2 && lower <= HEIGHT + LINE / 2 && !taken.some((box) => left < box[1] && box[0] < right && upper < box[3] && box[2] < lower);
    // First right or left of the point, then on increasingly distant lines.
    const offsets = Array.from({ length: 2 * MAX_NAMED }, (_, step) => Math.ceil(step / 2) * (step % 2 ? -1 : 1) * LINE).flatMap((dy) => [[1, dy], [-1, dy]]);
    for (const point of named) {
      const [x, y] = locate(point);
      const name = shorten(board.shortName(point.label), width < 500 ? 22 : Infinity);
      const boxes = offsets.map(([side, dy]) => {
        const [near, far] = [x + side * 9, x + side * (9 + name.length * LETTER)];
        return { side, dy, near, box: [Math.min(near, far), Math.max(near, far), y + dy - LINE / 2, y + dy + LINE / 2] };
      });
      const { side, dy, near, box } = boxes.find((candidate) => free(candidate.box)) ?? boxes[0];
      taken.push(box);
      const label = { name_score: low + (near / width) * (high - low), name_effect: point.effect - (dy / HEIGHT) * (top - bottom) };
      Object.assign(point, { name, ...label, name_align: side > 0 ? "left" : "right", led: Math.abs(dy) > LINE });
    }
  }

  const shorten = (text, maxLength) => (text.length > maxLength ? `${text.slice(0, maxLength - 1)}…` : text);

  /** Return start minus end of the observed data, or null. */
  board.differenceOf = (row) => row.start_minus_end ?? row.start_to_end_unweighted ?? null;

  /** Describe the largest start-minus-end difference in each direction whose interval excludes 0 or is unknown. */
  board.describeEnds = (rows) => {
    const significant = rows.filter((row) => isKnown(row.difference) && (!isKnown(row.start_minus_end_low) || row.start_minus_end_low > 0 || row.start_minus_end_high < 0));
    const largest = (sign) => significant.reduce((top, row) => (sign * row.difference > sign * (top?.difference ?? 0) ? row : top), null);
    const write = (template, row) => (row ? board.fill(template, { points: board.percent(Math.abs(row.difference)), model: board.name(board.shortName(row.name)) }) : []);
    return [...write("start_higher", largest(1)), ...write("start_lower", largest(-1))];
  };

  const NAMES = { position_effect: "position effect", start_minus_end: "start minus end" };
  const TITLES = { position_effect: "Position effect against nDCG@10", start_minus_end: "Start minus end against nDCG@10" };
  const scatterFigure = () => board.figure(TITLES.position_effect, { below: el("p", { class: "faint explanation" }) }).element;

  /** The quantity of the vertical axis. */
  const MEANINGS = {
    position_effect: "Vertical: the same evidence in the first third of its document minus in the last, including truncation.",
    start_minus_end: "Vertical: evidence in the first third of documents minus evidence in the last. The questions differ, so this is not a bias.",
  };

  /** Explain the points; `all` is the number of models, with or without a point. */
  function explanation(points, all, name) {
    const some = (has) => points.some(has);
    const sizes = new Set(points.map((point) => point.area));
    return [
      "Further right: better retrieval.",
      MEANINGS[name],
      some((point) => point.published) ? `${points.every((point) => point.published) ? "Points" : "Diamonds"}: published results, whose thirds are not weighted by queries.` : "",
      some((point) => point.marked && (isKnown(point.score_low) || isKnown(point.effect_low))) ? "Lines through points: 95% intervals." : "",
      some((point) => !point.marked) ? `With more than ${MAX_MARKED} models, only models selected in the table have intervals.` : "",
      some((point) => !point.name) ? `${MAX_NAMED} points have labels: models selected in the table, then the highest in nDCG@10.` : "",
      all > points.length ? `Not shown, since their ${NAMES[name]} is unknown: ${all - points.length} of ${all}.` : "",
      sizes.size > 1 ? "Larger points have more parameters." : "",
      "Click a point to open the model. The table has the same numbers.",
    ].filter(Boolean).join(" ");
  }
}
