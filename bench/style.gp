# How every picture of bench/ looks; gnuplot scripts load it. One colour for one allocator, safe for
# colour-blind readers (Okabe and Ito), on a white card that a dark page does not hide.
live = "#8a9099"
lake = "#0072b2"
lake_more = "#56b4e9" # the lake with other settings
lake_less = "#003f66" # and with others
native = "#d55e00"
expandable = "#e69f00"
async = "#cc79a7"
paper = "#009e73" # the GMLake paper's policy
other = "#8c6d31"
peer = "#f0e442"
ink = "#1a1c20"
set terminal pngcairo size 1400,760 noenhanced font "DejaVu Sans,17" background "#ffffff"
set border 3 lc rgb ink lw 1.5
set tics nomirror out scale 0.6 textcolor rgb ink
set grid ytics lc rgb "#d3d8e0" lw 1 dt 1
set key off
set style fill solid 1 noborder
set lmargin 10
set tmargin 3.2
set bmargin 4
