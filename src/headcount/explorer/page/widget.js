// The explorer as a notebook's widget: it asks its session through the widget's messages.
let views = 0;
const render = ({ model, el }) => {
  // JupyterLab would take what is typed here for its own shortcuts, such as deleting a cell.
  el.dataset.lmSuppressShortcuts = "true";
  const page = `${PAGE}-${views += 1}`; // the same widget may be shown more than once
  const shadow = el.attachShadow({ mode: "open" });
  // It also refuses Enter in a cell's output: a form would not be sent, a text have no second line.
  shadow.addEventListener("beforeinput", (event) => event.stopPropagation());
  const root = make("div", {});
  shadow.append(make("style", {}, STYLE), root);
  const waiting = new Map();
  let count = 0;
  const ask = (kind, asked, on) => {
    const number = `${page}-${count += 1}`;
    waiting.set(number, on);
    model.send({ ...asked, kind, number, page });
    return () => waiting.delete(number) && model.send({ cancel: number });
  };
  const hear = ({ number, name, data }) => waiting.get(number)?.(name, data);
  model.on("msg:custom", hear);
  const given = () => (Object.keys(model.get("state") ?? {}).length ? model.get("state") : null);
  const keep = (state) => {
    model.set("state", { ...state });
    model.save_changes();
  };
  const here = explorer(root, { ask, keep, given, links: false });
  const follow = () => here.set(model.get("state"));
  model.on("change:state", follow);
  return () => {
    model.off("msg:custom", hear);
    model.off("change:state", follow);
  };
};

export default { render };
