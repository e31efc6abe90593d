"""How the pages look: light and dark, on a phone and in print, with nothing from elsewhere."""

from typing import Final

STYLE: Final = """
:root{--paper:#fcfcfa;--ink:#1d232b;--soft:#5b6672;--grid:#d5d9de;--panel:#f1f2ef;
--good:#1f8a53;--bad:#c0362c;--warn:#a86a00}
@media (prefers-color-scheme:dark){:root{--paper:#14181d;--ink:#e4e8ec;--soft:#98a3af;
--grid:#36404a;--panel:#1c2229;--good:#4fc98a;--bad:#f0766b;--warn:#e5b04c}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:68rem;padding:2rem 1.25rem 4rem;background:var(--paper);
color:var(--ink);font:15px/1.5 system-ui,"Segoe UI",Roboto,sans-serif}
h1{font-size:1.05rem;font-weight:600;margin:0;color:var(--soft)}
h2{font-size:1.15rem;margin:2.6rem 0 .7rem}
h3{font-size:1rem;margin:1.6rem 0 .1rem}
p{margin:.2rem 0 .8rem}
.verdict{font-size:2.1rem;font-weight:700;line-height:1.2;margin:.2rem 0 .4rem}
.valid{color:var(--good)}.invalid{color:var(--bad)}.unknown,.exceeded{color:var(--warn)}
.soft,.none{color:var(--soft)}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.2rem,1fr));gap:.6rem;margin:1.4rem 0}
dl div{background:var(--panel);border-radius:6px;padding:.55rem .8rem}
dt{color:var(--soft);font-size:.82rem}dd{margin:0;font-size:1.25rem;font-weight:600;
font-variant-numeric:tabular-nums}
dd.alarm{color:var(--bad)}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.92rem}
th{font-weight:600;color:var(--soft);text-align:left}
th,td{padding:.34rem .9rem .34rem 0;border-bottom:1px solid var(--grid);vertical-align:top}
td.n,th.n{text-align:right;white-space:nowrap}
details{margin:.5rem 0;background:var(--panel);border-radius:6px;padding:.5rem .9rem}
summary{cursor:pointer;overflow-wrap:anywhere}
details p,details li{overflow-wrap:anywhere;font-size:.9rem}
ul{padding-left:1.2rem;margin:.3rem 0}
svg{max-width:100%;height:auto;display:block}
code{font:.88em ui-monospace,Menlo,Consolas,monospace}
"""
