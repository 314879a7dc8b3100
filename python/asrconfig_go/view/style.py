"""The look of an explanation: one set of colours for light, one for dark, and rules that reach nothing else.

Every selector begins with the card's own class, twice, so that it wins over what notebooks say of tables. Which set
holds is told by the reader's system, and above that by the theme of JupyterLab, Colab or VS Code. The card brings its
own background, so that its text is readable even where none of them tells.
"""

from __future__ import annotations

ROOT = "asrconfig-plan"
_AT = f".{ROOT}.{ROOT}"

_LIGHT = {
    "paper": "#ffffff",
    "soft": "#f3f5f8",
    "ink": "#1f2328",
    "dim": "#59636e",
    "line": "#d3d9e0",
    "bar": "#4e79a7",
    "good": "#1a7f37",
    "warn": "#9a6700",
    "bad": "#c62828",
}
_DARK = {
    "paper": "#16191d",
    "soft": "#22272e",
    "ink": "#e6edf3",
    "dim": "#9ba4ae",
    "line": "#3d444d",
    "bar": "#6ea3d8",
    "good": "#4cc26a",
    "warn": "#e0a82e",
    "bad": "#ff7b72",
}
_LIGHT_THEMES = ('[data-jp-theme-light="true"]', "html[theme=light]", ".vscode-light")
_DARK_THEMES = ('[data-jp-theme-light="false"]', "html[theme=dark]", ".vscode-dark", ".vscode-high-contrast")

_RULES = """
{at}{{background:var(--paper);color:var(--ink);border:1px solid var(--line);border-radius:10px;padding:14px 18px 16px;
max-width:1180px;box-sizing:border-box;font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",
sans-serif;overflow-wrap:anywhere;margin:4px 0}}
{at} *{{box-sizing:border-box}}
{at} svg{{color:var(--ink)}}
{at} .asrconfig-bar{{fill:var(--bar)}}
{at} .asrconfig-part{{stroke:var(--paper);stroke-width:1px}}
{at} .asrconfig-limit{{stroke:var(--bad)}}
{at} .asrconfig-label{{paint-order:stroke;stroke:var(--paper);stroke-width:3px}}
{at} .head{{font-size:17px;font-weight:600;line-height:1.35;margin:0 0 6px}}
{at} .badges{{display:flex;flex-wrap:wrap;gap:6px;font-size:12px}}
{at} .badge{{border:1px solid var(--line);border-radius:20px;padding:1px 9px;color:var(--dim);background:var(--soft)}}
{at} .title{{font-size:13px;font-weight:600;margin:16px 0 6px;padding-top:10px;border-top:1px solid var(--line)}}
{at} .title span{{font-weight:400;color:var(--dim)}}
{at} .dim{{color:var(--dim)}}
{at} .small{{font-size:12.5px}}
{at} .facts div{{margin:1px 0}}
{at} .pair{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));column-gap:32px}}
{at} .pair>div{{min-width:0}}
{at} .keys{{display:flex;flex-wrap:wrap;gap:3px 16px;font-size:12.5px;margin:8px 0 0;align-items:center}}
{at} .keys>span{{display:inline-flex;align-items:center;gap:6px;white-space:nowrap}}
{at} .chip{{display:inline-block;width:17px;height:15px;border-radius:3px;font-size:11px;line-height:15px;
text-align:center;font-weight:600}}
{at} .keys svg{{flex:none}}
{at} .tiles{{display:grid;grid-template-columns:repeat(auto-fill,minmax(112px,1fr));gap:8px}}
{at} .tile{{background:var(--soft);border-radius:8px;padding:6px 11px}}
{at} .tile b{{display:block;font-size:15px;white-space:nowrap}}
{at} .tile span{{display:block;font-size:12px;color:var(--dim);white-space:nowrap}}
{at} .wide{{overflow-x:auto}}
{at} .ways table{{min-width:600px}}
{at} table{{border-collapse:collapse;border:0;font-size:13px;margin:0;width:100%;color:inherit;table-layout:auto}}
{at} tr,{at} tbody tr:nth-child(n){{background:transparent;border:0}}
{at} th,{at} td{{text-align:left;vertical-align:top;padding:4px 14px 4px 0;border:0;border-bottom:1px solid var(--line);
color:inherit;max-width:none;white-space:normal;overflow-wrap:break-word}}
{at} th{{font-size:12px;font-weight:600;color:var(--dim);white-space:nowrap}}
{at} td.tight{{white-space:nowrap}}
{at} td.why{{min-width:240px;width:50%}}
{at} td.more{{min-width:105px}}
{at} tr:last-child td{{border-bottom:0}}
{at} tbody tr.mine:nth-child(n){{background:var(--soft)}}
{at} tr.mine td:first-child{{font-weight:600}}
{at} code{{font:12.5px ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;background:none;
color:inherit;padding:0;border:0}}
{at} details{{margin:0;border-bottom:1px solid var(--line)}}
{at} .pair details{{border:0}}
{at} summary{{cursor:pointer;padding:5px 0;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}}
{at} summary:focus-visible{{outline:2px solid var(--bar);outline-offset:2px}}
{at} details>div{{padding:2px 0 10px 16px}}
{at} .changed{{color:var(--warn);font-weight:600;white-space:nowrap}}
{at} .meter{{display:block;height:5px;border-radius:3px;background:var(--bar);margin-top:3px;min-width:2px}}
{at} .caution{{border-left:4px solid var(--line);background:var(--soft);border-radius:0 8px 8px 0;padding:7px 12px;
margin:6px 0}}
{at} .caution>div{{margin:1px 0}}
{at} .caution.serious{{border-left-color:var(--bad)}}
{at} .caution.warning{{border-left-color:var(--warn)}}
{at} .level{{font-size:12px;font-weight:600;margin-right:7px;color:var(--dim)}}
{at} .serious .level,{at} .badge.serious,{at} .no{{color:var(--bad)}}
{at} .warning .level,{at} .badge.warning{{color:var(--warn)}}
{at} .yes{{color:var(--good)}}
@media (max-width:780px){{
{at} .decisions table,{at} .decisions tbody,{at} .decisions tr,{at} .decisions td{{display:block}}
{at} .decisions thead{{display:none}}
{at} .decisions td{{border:0;padding:1px 0;min-width:0;width:auto}}
{at} .decisions td:empty{{display:none}}
{at} .decisions td[data-is]::before{{content:attr(data-is) ": ";color:var(--dim)}}
{at} .decisions tbody tr:nth-child(n){{border-bottom:1px solid var(--line);padding:4px 0}}
{at} .decisions tbody tr:last-child{{border:0}}
{at} .decisions td.tight,{at} .decisions td.value{{display:inline-block;margin-right:10px}}
{at} .changed{{white-space:normal}}}}
@media (max-width:560px){{{at} td,{at} th{{padding-right:9px}}
{at}{{padding:10px 12px 12px;border-radius:6px}}{at} .head{{font-size:15.5px}}}}
@media print{{{at}{{border:0;padding:0;max-width:none;print-color-adjust:exact;-webkit-print-color-adjust:exact}}
{at} details:not([open])::details-content{{content-visibility:visible;display:block}}
{at} summary{{white-space:normal}}{at} .wide{{overflow:visible}}
{at} .caution,{at} svg,{at} tr{{break-inside:avoid}}}}
"""

# Around the card where it is a page of its own.
PAGE = (
    "body{margin:16px;background:#ffffff}@media (prefers-color-scheme:dark){body{background:#0d0f12}}"
    "@media print{body{margin:0;background:#ffffff}}"
)


def _colours(colours: dict[str, str], scheme: str) -> str:
    return f"{{color-scheme:{scheme};" + ";".join(f"--{name}:{value}" for name, value in colours.items()) + "}"


def _in_themes(themes: tuple[str, ...]) -> str:
    return ",".join(f"{theme} {_AT}" for theme in themes)


def stylesheet() -> str:
    """All rules: light, dark by the system, then by a notebook's theme, and light again on paper."""
    light, dark = _colours(_LIGHT, "light"), _colours(_DARK, "dark")
    return (
        f"{_AT}{light}"
        f"@media (prefers-color-scheme:dark){{{_AT}{dark}}}"
        f"{_in_themes(_LIGHT_THEMES)}{light}"
        f"{_in_themes(_DARK_THEMES)}{dark}"
        f"{_RULES.format(at=_AT)}"
        f"@media print{{{_AT},{_in_themes(_DARK_THEMES)}{light}}}"
    ).replace("\n", "")
