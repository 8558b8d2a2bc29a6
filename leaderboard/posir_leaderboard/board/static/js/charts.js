"use strict";
// Charts by Vega-Lite, loaded with the first chart. Specifications come from the site's data.

{
  const { byId, el } = board;
  const MAX_MARKED = 40;
  const MAX_NAMED = 15;
  const drawn = new WeakMap();

  /** Return the current value of a colour of the style sheet. */
  function colour(name) {
    const probe = byId("probe") ?? document.body.appendChild(el("span", { id: "probe", hidden: true }));
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  }

  function theme() {
    const [ink, faint, rule] = ["ink", "faint", "rule"].map(colour);
    const font = getComputedStyle(document.body).fontFamily;
    const text = { labelColor: faint, titleColor: ink, labelFontSize: 11, titleFontSize: 11, titleFontWeight: "normal" };
    return {
      background: null,
      font,
      view: { stroke: rule },
      axis: { ...text, titlePadding: 10, gridColor: rule, gridOpacity: 0.5, domainColor: rule, tickColor: rule },
      legend: { ...text, labelColor: ink, symbolSize: 80, symbolBaseFillColor: ink, symbolBaseStrokeColor: ink },
      text: { color: ink },
      range: {
        category: [1, 2, 3, 4, 5, 6].map((number) => colour(`series-${number}`)),
        heatmap: [1, 2, 3, 4].map((number) => colour(`heat-${number}`)),
      },
    };
  }

  /** Return a mark's tooltip as HTML, without unknown values; `escape` escapes text. */
  function tooltipHtml(values, escape) {
    const known = Object.entries(values).filter(([, value]) => value !== "null");
    const rows = known.map(([name, value]) => `<tr><td class="key">${escape(name)}</td><td>${escape(value)}</td></tr>`);
    return `<table><tbody>${rows.join("")}</tbody></table>`;
  }

  /**
   * Draw a chart in an element of the page.
   *
   * @param {Element} place
   * @param {{name: string, rows: object[], low?: number, high?: number}} chart
   * @param {?function(string)} onclick Called with the id of the model of a clicked mark.
   */
  board.draw = async (place, { name, rows, low = 0, high = 1 }, onclick = null) => {
    const call = Symbol(name);
    drawn.set(place, call);
    const [specifications] = await Promise.all([board.data("charts"), board.library("vega")]);
    if (drawn.get(place) !== call || !place.isConnected) return;
    const given = { null_band: colour("null-band"), halo: colour("paper"), low, high };
    const params = Object.entries(given).map(([parameter, value]) => ({ name: parameter, value }));
    const { view } = await vegaEmbed(
      place,
      { ...specifications[name], params, datasets: { rows } },
      {
        ast: true,
        actions: false,
        config: theme(),
        defaultStyle: false,
        // Errors only: a chart warns about its data before it has any.
        logLevel: 1,
        renderer: "svg",
        tooltip: { disableDefaultStyle: true, theme: "board", formatTooltip: tooltipHtml },
      },
    );
    // The element has a label, and a table has the numbers.
    place.querySelector("svg").setAttribute("aria-hidden", "true");
    if (onclick) view.addEventListener("click", (_, item) => item?.datum?.id && onclick(item.datum.id));
  };

  /** Return an element for a chart, in a figure with a caption. */
  board.figure = (caption, ...children) => {
    const place = el("div", { class: "chart", role: "img", "aria-label": caption });
    return { place, element: el("figure", {}, el("figcaption", {}, caption), place, ...children) };
  };

  /** Show PSI against nDCG@10 of the rows that pass the filters. */
  board.showScatter = (rows, state) => {
    const passing = rows.filter((row) => board.passes(row, state) && board.known(row.ndcg_at_10) && board.known(row.psi_estimate));
    board.sayCount(passing.length, rows.length);
    const panel = byId("panel-chart");
    if (!passing.length) {
      panel.replaceChildren(el("p", { class: "empty" }, "No model with an nDCG@10 and a PSI passes these filters."));
      return Promise.resolve();
    }
    if (!panel.querySelector("figure")) panel.replaceChildren(scatterFigure());
    const selected = board.models(state);
    const points = passing.map((row) => ({
      ...row,
      model: row.label,
      name: passing.length <= MAX_NAMED || selected.includes(row.id) ? row.label.split("/").at(-1) : "",
      source: row.published ? "published" : "submitted",
      marked: passing.length <= MAX_MARKED || selected.includes(row.id),
    }));
    return board.draw(panel.querySelector(".chart"), { name: "scatter", rows: points }, (id) =>
      board.change({ models: id, tab: "models", task: "" }, { step: true }),
    );
  };

  function scatterFigure() {
    const caption = "PSI against nDCG@10: higher nDCG@10 is better, lower PSI is less position bias";
    const { element } = board.figure(
      caption,
      el(
        "p",
        { class: "faint" },
        "Each point is a model; diamonds are published results. Lines: 95 % intervals. Grey: PSI under the null, from its mean to its 95th " +
          `percentile; a point within it is no evidence of bias. Of more than ${MAX_MARKED} models, only those selected in the table have ` +
          "lines and null ranges. A click opens the model; the table has the same numbers.",
      ),
    );
    return element;
  }
}
