#include "tools/report/page_style.h"

#include <string_view>

namespace kintsugi {
namespace {

// Text on its background has a contrast of at least 4.5 to 1 in both schemes, marks that carry meaning at least 3 to 1.
// The colours of phases run from slate to blue while things are being stopped and rebuilt; gold is kept for the repair.
constexpr std::string_view kColours = R"css(
:root{color-scheme:light dark;
--paper:#fbfaf7;--ink:#211e1a;--soft:#655f55;--rule:#e3ddd1;--tint:#f3efe7;--gold:#c2912f;--gold-ink:#86600f;--gold-pale:#e6c987;
--bad:#a83a22;--good:#86600f;--ref:#7a91ab;--grid:#ebe6dc;--step:#dcd6ca;--step-ink:#5d574c;--clay:#2b3644;
--confirm:#a7a195;--confirm-ink:#211e1a;--lock:#8a93a3;--lock-ink:#14161a;--stop:#65748b;--stop-ink:#fff;--clean:#52647f;--clean-ink:#fff;
--admit:#37797f;--admit-ink:#fff;--rebuild:#33507a;--rebuild-ink:#fff;--repair:#c2912f;--repair-ink:#211a0a;--verify:#8a6414;--verify-ink:#fff;
--rollback:#5b7a5c;--rollback-ink:#fff;--dump:#a83a22;--dump-ink:#fff}
@media (prefers-color-scheme:dark){:root{
--paper:#141518;--ink:#ece7dc;--soft:#a8a195;--rule:#2f3035;--tint:#1c1d21;--gold:#d9ab4c;--gold-ink:#e3bd6b;--gold-pale:#7d6227;
--bad:#ef8f74;--good:#e3bd6b;--ref:#6f87a4;--grid:#242529;--step:#34353a;--step-ink:#b5afa3;--clay:#a9b4c2;
--confirm:#8b867b;--confirm-ink:#111;--lock:#8993a5;--lock-ink:#111;--stop:#6c7d98;--stop-ink:#0b0d10;--clean:#7f97bd;--clean-ink:#0b0d10;
--admit:#4fa3a6;--admit-ink:#061414;--rebuild:#5f8cd0;--rebuild-ink:#060b14;--repair:#d9ab4c;--repair-ink:#1a1405;--verify:#b08a35;--verify-ink:#140f03;
--rollback:#7fa582;--rollback-ink:#08120a;--dump:#d9694c;--dump-ink:#160502}}
)css";

constexpr std::string_view kText = R"css(
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0 auto;padding:0 clamp(1.1rem,4vw,3rem);max-width:68rem;background:var(--paper);color:var(--ink);
font:1rem/1.55 "Inter","Segoe UI",system-ui,-apple-system,"Helvetica Neue",Arial,sans-serif;font-variant-numeric:tabular-nums lining-nums}
h1,h2,h3,.name{font-family:"Iowan Old Style",P052,"URW Palladio L","Palatino Linotype",Palatino,"Book Antiqua",Georgia,serif;font-weight:400;text-wrap:balance}
h1{font-size:clamp(2rem,1.3rem + 3vw,3.25rem);line-height:1.1;letter-spacing:-.015em;margin:clamp(1.6rem,4vw,3rem) 0 .8rem;max-width:20ch}
h2{font-size:1.6rem;line-height:1.2;margin:0 0 .5rem}
h3{font-size:1.3rem;line-height:1.3;margin:0;display:flex;gap:.7rem;align-items:flex-start}
p{margin:.5rem 0;max-width:64ch}
.lead{font-size:1.125rem;color:var(--soft);max-width:58ch}
.sub,.note,figcaption{color:var(--soft);font-size:.9rem}
small{font-size:.8em;color:var(--soft)}
a{color:var(--gold-ink);text-underline-offset:.2em;text-decoration-thickness:1px}
:focus-visible{outline:3px solid var(--gold-ink);outline-offset:3px;border-radius:3px}
main:focus,h3:focus:not(:focus-visible){outline:none}
.sr{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:1rem;background:var(--paper);padding:.5rem 1rem;z-index:9}
.mono{font-family:ui-monospace,"SF Mono","Cascadia Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.86rem;overflow-wrap:anywhere}
section{margin:clamp(3rem,6vw,4.5rem) 0 0}
footer{margin:4rem 0 3rem;padding-top:1rem;border-top:1px solid var(--rule);color:var(--soft);font-size:.9rem}
)css";

constexpr std::string_view kHeader = R"css(
.masthead{display:flex;align-items:center;gap:.7rem;padding-top:1.6rem}
.bowl{width:2.3rem;flex:none}.clay{fill:var(--clay)}.crack{fill:none;stroke:var(--gold);stroke-width:1.7;stroke-linejoin:round}
.name{font-size:1.3rem}
.vein{flex:1;height:1.8rem;min-width:2rem;overflow:visible}
.vein path{fill:none;stroke:var(--gold);stroke-width:1.6;vector-effect:non-scaling-stroke;stroke-linejoin:round}
.vein .thin{stroke-width:.8}
.key-figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.6rem,1fr));gap:1.3rem 1.5rem;margin:2.2rem 0 0;padding:1.3rem 0;border-top:1px solid var(--rule);border-bottom:1px solid var(--rule)}
.key-figures div{display:flex;flex-direction:column-reverse;justify-content:flex-end}
.key-figures dt{font-size:.84rem;color:var(--soft);line-height:1.3}
.key-figures dd{margin:0;font-size:1.55rem;line-height:1.25;letter-spacing:-.01em}
.key-figures small{font-size:.6em;margin-left:.2em}
.good dd{color:var(--good)}.bad dd{color:var(--bad)}
.headline dd{font-size:2.1rem}
.shares{display:flex;height:1.6rem;margin:1rem 0 .8rem;border-radius:3px;overflow:hidden;background:var(--tint)}
.shares span{min-width:1px}
.shares .s-useful,.key.s-useful{background:var(--rollback)}.shares .s-start,.key.s-start{background:var(--lock)}.shares .s-down,.key.s-down{background:var(--dump)}.shares .s-redone,.key.s-redone{background:var(--gold)}.shares .s-saving,.key.s-saving{background:var(--rebuild)}.shares .s-paused,.key.s-paused{background:var(--soft)}
.share-words{display:grid;grid-template-columns:repeat(auto-fit,minmax(13rem,1fr));gap:.6rem 1.3rem}.share-words li{align-items:flex-start}
.share-words .key{width:.8rem;height:.8rem;border-radius:2px;margin-top:.25rem;flex:none}.share-words b{color:var(--ink);font-weight:500}.share-words small{display:block}
.wide{max-height:none}.index td,.index th{vertical-align:top}.index .what{text-align:left;white-space:normal;min-width:14rem}
.index thead th:nth-child(3){text-align:left}
.words span{display:inline-block;max-width:100%}
.facts{margin:1rem 0 0}
.facts div{display:grid;grid-template-columns:11rem 1fr;gap:1rem;padding:.55rem 0;border-top:1px solid var(--rule)}
.facts dt{color:var(--soft);font-size:.9rem}.facts dd{margin:0;min-width:0;overflow-wrap:anywhere}
)css";

constexpr std::string_view kChart = R"css(
figure{margin:1.2rem 0 0}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.3rem 1.3rem;margin:0 0 .9rem;padding:0;font-size:.86rem;color:var(--soft)}
.legend li{display:flex;align-items:center;gap:.5em}
.key{width:1.5rem;height:2px;background:var(--ink)}.key.ref{height:6px;border-radius:3px;background:var(--ref)}.key.gold{height:4px;border-radius:2px;background:var(--gold)}
.plot{position:relative;padding:1.9rem 0 2.9rem 4rem}
.area{position:relative;height:clamp(15rem,32vw,21rem);border-bottom:1px solid var(--soft)}
.area.low{height:8rem}.curve.world{stroke:var(--ink);stroke-width:2.5}
.area>svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}
.area path{vector-effect:non-scaling-stroke;fill:none;stroke-linejoin:round;stroke-linecap:round}
.grid{stroke:var(--grid);stroke-width:1}
.curve.ref{stroke:var(--ref);stroke-width:6.5}.curve.run{stroke:var(--ink);stroke-width:1.7}
.mend{stroke:var(--gold);stroke-width:6}
.hover rect{fill:transparent}.hover rect:hover{fill:var(--ink);fill-opacity:.07}
.seam{position:absolute;top:0;bottom:0;width:18px;margin-left:-9px;text-decoration:none;z-index:1}
.seam svg{position:absolute;left:0;top:0;width:18px;height:100%;pointer-events:none}
.seam path{stroke:var(--gold);stroke-width:1.4}.seam .thin{stroke-width:.7}
.seam{pointer-events:none}.seam b{pointer-events:auto}
.seam b,.ring{display:grid;place-items:center;min-width:1.6rem;height:1.6rem;padding:0 .3rem;border-radius:.8rem;border:1.5px solid var(--gold);color:var(--gold-ink);background:var(--paper);font:600 .8rem/1 "Inter","Segoe UI",system-ui,sans-serif}
.seam b{position:absolute;left:50%;top:calc(-1.75rem + var(--stack)*1.75rem);transform:translateX(-50%)}
.seam:hover b{background:var(--gold);color:var(--paper)}
.yaxis span,.xaxis span{position:absolute;font-size:.78rem;color:var(--soft);line-height:1}
.yaxis{position:absolute;left:1.1rem;top:1.9rem;bottom:2.9rem;width:2.4rem}.yaxis span{right:0;transform:translateY(-50%)}
.xaxis{position:absolute;left:4rem;right:0;bottom:1.1rem;height:1.2rem}.xaxis span{transform:translateX(-50%)}
.ytitle,.xtitle,.ms-title{font-size:.78rem;color:var(--soft);line-height:1}
.ytitle{position:absolute;left:0;top:calc(50% - .5rem);writing-mode:vertical-rl;transform:translateY(-50%) rotate(180deg)}
.xtitle{position:absolute;left:4rem;right:0;bottom:0;text-align:center}.ms-title{grid-column:2;text-align:center;padding-top:.25rem}
figcaption{margin-top:.4rem}
.data{margin:.9rem 0 0;font-size:.9rem}.data summary{cursor:pointer;color:var(--gold-ink);width:fit-content;padding:.2rem 0}
.scroll{overflow:auto;max-height:24rem;margin:.5rem 0;border:1px solid var(--rule)}
.figures{border-collapse:collapse;width:100%}.figures th,.figures td{text-align:right;padding:.3rem .8rem;border-bottom:1px solid var(--rule);font-weight:400;white-space:nowrap}
.figures thead th{position:sticky;top:0;background:var(--tint);color:var(--soft)}.figures th:first-child{text-align:left}
)css";

constexpr std::string_view kIncidents = R"css(
.incident{margin:2rem 0 0;padding:1.8rem 0 0;border-top:1px solid var(--rule)}
.incident>p{margin:.6rem 0 0;max-width:76ch}
.ring{flex:none;margin-top:.05rem}
.rung{display:inline-block;padding:.02rem .55rem;margin-right:.25rem;border-radius:1rem;background:var(--tint);border:1px solid var(--gold);color:var(--gold-ink);font-size:.84rem;font-weight:600}
.milestones{list-style:none;display:grid;grid-template-columns:repeat(5,1fr);margin:1.5rem 0 0;padding:0}
.milestones li{position:relative;padding-top:.9rem}
.milestones li::before{content:"";position:absolute;left:0;right:0;top:.2rem;border-top:1.5px solid var(--gold)}
.milestones li:last-child::before{right:auto;width:.6rem}
.milestones li::after{content:"";position:absolute;left:0;top:-.1rem;width:.62rem;height:.62rem;border-radius:50%;background:var(--gold)}
.milestones .missed::before{border-top-style:dotted;border-color:var(--soft)}.milestones .missed::after{background:var(--paper);border:1.5px solid var(--soft)}
.milestones b{display:block;font-weight:500;font-size:1.1rem;line-height:1.3}.milestones .missed b{color:var(--soft);font-size:.95rem;line-height:1.505}
.milestones span{color:var(--soft);font-size:.84rem}
.timeline{display:grid;grid-template-columns:max-content 1fr;row-gap:5px;margin:2.6rem 0 0;align-items:center}
.who{grid-column:1;padding-right:.9rem;font-size:.86rem;color:var(--soft);white-space:nowrap;line-height:1.5rem}
.who em{font-style:normal;font-size:.72rem;font-weight:600;margin-left:.45rem}.lost{color:var(--bad)}.gave{color:var(--gold-ink)}
.lane{grid-column:2;position:relative;height:1.5rem;background:var(--tint);border-radius:3px;overflow:hidden}
.bar{position:absolute;top:0;bottom:0;min-width:2px;container-type:inline-size;border-right:1px solid var(--paper);overflow:hidden}
.bar i{display:none;font:600 .68rem/1.5rem "Inter","Segoe UI",system-ui,sans-serif;letter-spacing:.03em;padding-left:.4rem;white-space:nowrap;text-transform:lowercase}
@container (min-width:3.7rem){.bar i{display:block}}
.life{position:absolute;left:0;top:50%;border-top:1px solid var(--step-ink);opacity:.5}
.step{background:var(--step);color:var(--step-ink)}.step i{font-weight:500}
.gone{background:repeating-linear-gradient(-45deg,transparent 0 4px,var(--bad) 4px 5px);color:var(--bad)}
.gone i{display:none}@container (min-width:5.6rem){.gone i{display:block;background:var(--tint);width:fit-content;padding:0 .4rem;margin:0 auto}}
.marks{grid-column:2;position:relative;align-self:stretch;pointer-events:none;z-index:1}
.mark{position:absolute;top:-.35rem;bottom:-.2rem;border-left:1.5px dashed var(--soft)}
.mark b{position:absolute;bottom:100%;left:0;transform:translateX(-50%);font-size:.76rem;font-weight:500;color:var(--soft);white-space:nowrap;line-height:1.5}
.mark.fault{border-left:1.5px solid var(--bad)}.mark.fault b{color:var(--bad)}
.mark.resumed{border-left:1.5px solid var(--gold)}.mark.resumed b{color:var(--gold-ink)}
.ms{grid-column:2;position:relative;height:1.2rem}.ms span{position:absolute;top:.25rem;transform:translateX(-50%);font-size:.76rem;color:var(--soft);line-height:1}
.unit{font-size:.76rem;text-align:right;line-height:1.2rem}
.phases{margin:.9rem 0 0;text-transform:lowercase}.phases .key{width:.8rem;height:.8rem;border-radius:2px}
.ledger{border-collapse:collapse;width:100%;margin-top:1.2rem;font-size:.92rem}
.ledger th,.ledger td{text-align:left;vertical-align:top;padding:.9rem 1rem .9rem 0;border-top:1px solid var(--rule)}
.ledger thead th{font-weight:500;color:var(--soft);font-size:.84rem;padding:.4rem 1rem .4rem 0;border:0}
.ledger td:nth-child(2){width:25%}.ledger td:nth-child(6){width:34%;padding-right:0}
.ledger small,.cause{display:block;color:var(--soft);font-size:.84rem;margin:.25rem 0 0;overflow-wrap:anywhere;white-space:pre-line}
.ledger small{white-space:normal}.chosen{margin:0}
.why{list-style:none;margin:.5rem 0 0;padding:0;font-size:.86rem;color:var(--soft)}.why li{display:grid;grid-template-columns:4.4rem 1fr;gap:.4rem;padding:.12rem 0}
.why li>span{font-weight:500}.why .taken{color:var(--ink)}.why .taken>span{color:var(--gold-ink);font-weight:600}
)css";

constexpr std::string_view kPhaseColours = R"css(
.p-confirm{background:var(--confirm);color:var(--confirm-ink)}.p-lock{background:var(--lock);color:var(--lock-ink)}
.p-stop{background:var(--stop);color:var(--stop-ink)}.p-clean{background:var(--clean);color:var(--clean-ink)}
.p-admit{background:var(--admit);color:var(--admit-ink)}.p-rebuild{background:var(--rebuild);color:var(--rebuild-ink)}
.p-repair{background:var(--repair);color:var(--repair-ink)}.p-verify{background:var(--verify);color:var(--verify-ink)}
.p-rollback{background:var(--rollback);color:var(--rollback-ink)}.p-dump,.p-rename{background:var(--dump);color:var(--dump-ink)}
.p-other{background:var(--soft);color:var(--paper)}
)css";

constexpr std::string_view kNarrow = R"css(
@media (max-width:44rem){
.spare{display:none}
.plot{padding-left:3.3rem}.yaxis{width:1.9rem;left:1rem}.xaxis,.xtitle{left:3.3rem}
.key-figures{grid-template-columns:1fr 1fr;gap:1.1rem 1rem}
.facts div{grid-template-columns:1fr;gap:.1rem}
.milestones{grid-template-columns:1fr;gap:0;margin-left:.1rem}
.milestones li{display:flex;flex-direction:row-reverse;justify-content:flex-end;gap:.8rem;align-items:baseline;padding:.25rem 0 .25rem 1.5rem}
.milestones li::before{left:.28rem;right:auto;top:1rem;bottom:-1rem;border-top:0;border-left:1.5px solid var(--gold)}
.milestones li:last-child::before{display:none}.milestones .missed::before{border-left:1.5px dotted var(--soft)}
.milestones li::after{top:.62rem}.milestones span{min-width:5rem}
.who{padding-right:.5rem;font-size:.8rem}.who em{display:block;margin:-.35rem 0 .1rem;line-height:1}
.who em+em{display:none}
.ledger,.ledger tbody,.ledger tr,.ledger td,.ledger th{display:block;width:auto!important}
.ledger thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.ledger tr{border-top:1px solid var(--rule);padding:1rem 0}.ledger td,.ledger th{border:0;padding:.35rem 0}
.ledger th .ring{width:fit-content}
.ledger td{display:grid;grid-template-columns:5.6rem 1fr;gap:.6rem}.ledger td::before{content:attr(data-label);color:var(--soft);font-size:.84rem;padding-top:.1rem}
.ledger td>div{min-width:0}
}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
@media (forced-colors:active){.bar,.key,.lane{forced-color-adjust:none}.lane{border:1px solid CanvasText}}
@media print{.incident,.chart{break-inside:avoid}.skip,.data{display:none}body{max-width:none}}
)css";

}  // namespace

std::string PageStyle() {
  std::string css;
  for (std::string_view part : {kColours, kText, kHeader, kChart, kIncidents, kPhaseColours, kNarrow}) css += part;
  return css;
}

}  // namespace kintsugi
