"use strict";
// The answers above the table, from the filtered rows at the selected length.

{
  const { el, isKnown } = board;

  const score = (row) => row.score;
  const small = (row) => isKnown(row.parameters) && row.parameters < 1e9;
  const wide = (row) => board.RANGES.window.contains("8k and more", row.window);

  /** Select the models with at least median nDCG@10, since a model that finds nothing cannot get worse. */
  function betterHalf(rows) {
    const scores = rows.map(score).filter(isKnown).sort((a, b) => a - b);
    return rows.filter((row) => row.score >= scores[Math.floor(scores.length / 2)]);
  }

  /** Return the rows with the highest printed value; for nDCG@10, also the rows tied with the best. */
  function best(rows, value, format) {
    const scored = rows.filter((row) => isKnown(value(row)));
    const first = scored.reduce((top, row) => (!top || value(row) > value(top) ? row : top), null);
    const ties = (row) => (value === score ? board.isTied(first, row) : format(value(row)) === format(value(first)));
    return first && [first, ...scored.filter((row) => row !== first && ties(row)).sort((a, b) => value(b) - value(a))];
  }

  /** Return a question about the best model with a property, which may be unknown for some models. */
  const among = (title, has, unknown, patch) => ({
    title,
    find: (rows) => best(rows.filter(has), score),
    text: ([row], rows) => {
      const others = rows.filter((other) => unknown(other) && isKnown(other.score));
      const better = others.filter((other) => other.score > row.score).length;
      return `${board.percent(row.score)}${better ? `; ${better} of unknown ${patch.size ? "size" : "window"} ${better === 1 ? "is" : "are"} better` : ""}`;
    },
    patch: { sort: "-score", ...patch },
  });

  const questions = (longest) => [
    {
      title: "Best in long documents",
      find: (rows, length) => (length === longest ? null : best(rows, (row) => row.q4, board.percent)),
      text: ([row]) => `${board.percent(row.q4)} in Q4`,
      patch: { length: "Q4", sort: "-score" },
    },
    {
      title: "Loses least from short to long",
      note: "nDCG@10 in Q4 minus nDCG@10 in Q1, among the better half of models by nDCG@10.",
      find: (rows) => best(betterHalf(rows), (row) => row.change, board.points),
      text: ([row]) => `${board.points(row.change)} points from Q1 to Q4`,
      patch: { sort: "-change" },
    },
    among("Best under 1B parameters", small, (row) => !isKnown(row.parameters), { size: "under 1B" }),
    among("Best with a window of 8k or more", wide, (row) => !isKnown(row.window), { window: "8k and more" }),
  ];

  function answer({ title, note, text, patch }, found, rows, state) {
    const target = { ...state, page: "1", ...patch };
    const link = el(
      "a",
      { href: board.toFragment(target), class: "answer", title: note },
      el("span", { class: "question" }, title),
      el("b", {}, ...board.listNames(found), found.length > 1 ? ": cannot be told apart" : ""),
      el("span", {}, text(found, rows)),
    );
    link.addEventListener("click", (event) => {
      event.preventDefault();
      board.change(target, { step: true });
    });
    return el("li", {}, link);
  }

  let shown = { rows: null, key: null };

  /** Show the answers for the filtered rows, without those that only repeat the first row of the table. */
  board.showAnswers = (rows, state, { length }, lengths) => {
    const key = JSON.stringify(state);
    if (shown.rows === rows && shown.key === key) return;
    shown = { rows, key };
    const passing = rows.filter((row) => board.isComparable(row) && board.passes(row, state));
    const first = board.best(passing);
    const answers = questions(lengths.at(-1))
      .map((question) => [question, question.find(passing, length)])
      .filter(([, found]) => found && !(found.length === 1 && found[0] === first));
    const container = board.byId("answers");
    container.hidden = !answers.length || passing.length < 2;
    container.replaceChildren(...answers.map(([question, found]) => answer(question, found, passing, state)));
  };
}
