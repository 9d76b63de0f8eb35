// Draws the charts over their pictures, so that they have tooltips, and lets each be saved with its title; copies code.
(() => {
  "use strict";
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  // As charts.shown() in Python: the title is text of the page, the ground is the page's.
  const shown = (spec) => {
    const copy = { ...spec, config: { ...spec.config, background: null, padding: 4, aria: false } };
    delete copy.title;
    return copy;
  };

  // Expressions are interpreted: the page's policy lets no text become code.
  const how = { actions: false, renderer: "svg", ast: true };

  const save = async (spec, name, ending) => {
    const chart = await vegaEmbed(document.createElement("div"), spec, how);
    const link = document.createElement("a");
    link.href = await chart.view.toImageURL(ending, 2);
    link.download = `${name}.${ending}`;
    link.click();
    chart.finalize();
  };

  const draw = async (figure) => {
    const theme = dark.matches ? "dark" : "light";
    const specs = [...figure.querySelectorAll("script.spec")].map((one) => JSON.parse(one.textContent));
    for (const [at, holder] of [...figure.querySelectorAll(".chart")].entries()) {
      const fresh = document.createElement("div");
      await vegaEmbed(fresh, shown(specs[at]), { ...how, tooltip: { theme } });
      holder.replaceChildren(fresh);
    }
    const spec = specs[0];
    const bar = document.createElement("p");
    bar.className = "export";
    bar.append("Save as ");
    for (const ending of ["svg", "png"]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = ending.toUpperCase();
      button.setAttribute("aria-label", `Save the chart as ${ending.toUpperCase()}`);
      button.addEventListener("click", () => save(spec, figure.dataset.chart, ending));
      bar.append(button);
    }
    figure.append(bar);
  };

  const figures = [...document.querySelectorAll("figure[data-chart]")];
  Promise.allSettled(figures.map(draw)).then((ends) => {
    const failed = ends.filter((end) => end.status === "rejected");
    for (const end of failed) console.error(end.reason); // its picture is still there
    document.documentElement.dataset.charts = failed.length ? "failed" : "drawn";
  });

  // Copies by the clipboard where the browser lets a file, else as a selection, which every browser lets.
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      area.className = "away";
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  };

  for (const block of document.querySelectorAll(".code")) {
    const bar = document.createElement("p");
    bar.className = "export";
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy the code of ${block.dataset.code}`);
    const said = document.createElement("span");
    said.setAttribute("role", "status");
    button.addEventListener("click", async () => {
      const done = await copy(block.querySelector("code").textContent);
      button.focus();
      said.textContent = done ? " copied" : " not copied: select it and press Ctrl-C";
    });
    bar.append(button, said);
    block.prepend(bar);
  }
})();
