// Texts of the picture of the flow that are cut off by its edge or run into each other.
(() => {
  const flow = document.querySelector("#flow"), edge = flow.getBoundingClientRect(), found = [];
  const texts = [...flow.querySelectorAll("text")].filter(t => t.textContent)
    .map(t => [t.textContent, t.getBoundingClientRect()]);
  texts.forEach(([a, p], i) => {
    if (p.left < edge.left - 1 || p.right > edge.right + 1 || p.bottom > edge.bottom + 1) found.push(a + " is cut off");
    for (const [b, q] of texts.slice(i + 1)) {
      const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (wide > 1 && high > 4) found.push(a + " runs into " + b);
    }
  });
  return found;
})()
