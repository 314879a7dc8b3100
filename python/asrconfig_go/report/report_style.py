"""What a report's card needs beyond ``explain.style``: charts, swatches, numbers of alerts."""

from __future__ import annotations

from ..view.style import ROOT

RULES = """
{at} .chart{{margin:10px 0 2px}}
{at} .name{{display:flex;flex-wrap:wrap;gap:2px 16px;align-items:baseline;font-weight:600;font-size:13px}}
{at} .name .keys{{margin:0;font-weight:400}}
{at} .tiles{{margin-top:10px;grid-template-columns:repeat(auto-fill,minmax(116px,1fr))}}
{at} .facts{{color:var(--dim);margin-top:6px}}
{at} .swatch{{display:inline-block;width:15px;height:9px;border-radius:2px}}
{at} .swatch.limit{{height:0;border-top:2px dashed var(--bad);border-radius:0}}
{at} .swatch.oom{{width:2px;height:13px;background:var(--bad)}}
{at} .swatch.evaluation{{background:var(--ink);opacity:.18}}
{at} .swatch.checkpoint{{background:var(--ink);opacity:.35}}
{at} .swatch.gap{{background:var(--ink);opacity:.1}}
{at} .number{{font-weight:700;font-size:12px}}
{at} .number.warn,{at} text.warn{{color:var(--warn);fill:var(--warn)}}
{at} .number.critical,{at} text.critical{{color:var(--bad);fill:var(--bad)}}
{at} line.alert.warn{{stroke:var(--warn)}}{at} rect.alert.warn{{fill:var(--warn)}}
{at} line.alert.critical{{stroke:var(--bad)}}{at} rect.alert.critical{{fill:var(--bad)}}
{at} table.named{{width:auto}}
{at} table.named td{{padding:2px 18px 2px 0;border:0}}
@media print{{{at} .chart{{break-inside:avoid}}}}
""".format(at=f".{ROOT}.{ROOT}").replace("\n", "")
