// Texts whose contrast with what is behind them is below 4.5, by WCAG's formula.
(() => {
  const parse = c => c.match(/[\d.]+/g).map(Number);
  const curve = v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * curve(r / 255) + 0.7152 * curve(g / 255) + 0.0722 * curve(b / 255);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const box = parse(getComputedStyle(document.querySelector("#flow .node")).fill);
  const texts = [...document.querySelectorAll("body *")].filter(e =>
    [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && !e.closest("noscript, script, style"));
  return texts.flatMap(e => {
    const style = getComputedStyle(e), svg = e.namespaceURI.endsWith("svg");
    const ink = light(parse(svg ? style.fill : style.color));
    return (svg ? [behind(e.closest("svg").parentElement), box] : [behind(e)]).map(light)
      .map(paper => (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05)).filter(c => c < 4.5)
      .map(c => e.textContent.slice(0, 40) + " " + c.toFixed(2));
  });
})()
