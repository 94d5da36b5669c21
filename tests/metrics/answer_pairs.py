r"""Two hundred pairs of answers of our own, and whether they are the same.

One pair a line: answer | right answer | same or other.
"""

PAIRS = r"""
# fractions and decimals
\frac{1}{2} | 0.5 | same
\dfrac{14}{3} | \frac{14}{3} | same
14/3 | \frac{14}{3} | same
\frac{28}{6} | \frac{14}{3} | same
4\frac{2}{3} | \frac{14}{3} | same
\frac{3}{14} | \frac{14}{3} | other
-\frac{1}{4} | \frac{-1}{4} | same
\frac{1}{-4} | -\frac{1}{4} | same
0.25 | \frac14 | same
0.26 | \frac14 | other
\frac{2}{4} | \frac{1}{2} | same
\tfrac{5}{8} | 0.625 | same
\frac{7}{9} | 0.78 | other
3.50 | \frac{7}{2} | same
.75 | \frac{3}{4} | same
\frac{0}{5} | 0 | same
\frac{10}{5} | 2 | same
\frac{\pi}{2} | \frac{1}{2}\pi | same
\frac{\pi}{3} | \frac{\pi}{2} | other
\frac{x}{2} | 0.5x | same
\frac{a+b}{2} | \frac{a}{2}+\frac{b}{2} | same
\frac{a-b}{2} | \frac{a+b}{2} | other
1.5 | 3/2 | same
1.5 | 2/3 | other
\frac{22}{7} | \pi | other
\frac{1}{3} | 0.3 | other
\frac{100}{3} | 33\frac{1}{3} | same
-2.5 | -\frac{5}{2} | same
2.5 | -\frac{5}{2} | other
\frac{6}{8} | \frac{9}{12} | same
# radicals and powers
3\sqrt{13} | \sqrt{117} | same
11\sqrt2 | \sqrt{242} | same
11\sqrt{3} | 11\sqrt2 | other
\sqrt{2}+\sqrt{3} | \sqrt{3}+\sqrt{2} | same
\frac{\sqrt{2}}{2} | \frac{1}{\sqrt{2}} | same
2\sqrt{2} | \sqrt{8} | same
2\sqrt{2} | 2.8 | other
\sqrt[3]{8} | 2 | same
\sqrt[3]{16} | 2\sqrt[3]{2} | same
\sqrt{16} | 4 | same
\sqrt{16} | 8 | other
2^{10} | 1024 | same
2^{10} | 1023 | other
3^{-2} | \frac{1}{9} | same
10^3 | 1000 | same
x^2+2x+1 | (x+1)^2 | same
x^2+2x-1 | (x+1)^2 | other
(x-1)(x+1) | x^2-1 | same
5^{\frac{1}{2}} | \sqrt{5} | same
-3+\sqrt{2} | \sqrt{2}-3 | same
1+\sqrt{5} | \frac{2+2\sqrt{5}}{2} | same
\frac{1+\sqrt{5}}{2} | \frac{1-\sqrt{5}}{2} | other
e^{2} | e^2 | same
\sqrt{x^2+1} | (x^2+1)^{1/2} | same
2^{3} | 3^{2} | other
7\sqrt{3} | 7\sqrt{3} | same
\frac{\sqrt{3}}{3} | \frac{1}{\sqrt{3}} | same
\frac{\sqrt{3}}{2} | \frac{\sqrt{2}}{3} | other
\sqrt{50}-\sqrt{2} | 4\sqrt{2} | same
\sqrt{50}+\sqrt{2} | 4\sqrt{2} | other
# intervals, sets, tuples
(1,2) | (1, 2) | same
(1,2] | (1,2] | same
(1,2) | [1,2] | other
[0,\infty) | [0, \infty) | same
(-\infty, 3) | (-\infty,3) | same
(-\infty, 3] | (-\infty,3) | other
(2,3)\cup(4,5) | (2,3) \cup (4,5) | same
(4,5)\cup(2,3) | (2,3)\cup(4,5) | same
(2,3)\cup(4,6) | (2,3)\cup(4,5) | other
\{1,2,3\} | \{3,2,1\} | same
\{1,2\} | \{1,2,3\} | other
1,2,3 | 3,2,1 | same
1, 2 | 1, 3 | other
\left(3,\frac{\pi}{2}\right) | (3, \frac{\pi}{2}) | same
\left(\frac{\pi}{2},3\right) | \left(3,\frac{\pi}{2}\right) | other
(2,-1) | (2, -1) | same
(-1,2) | (2,-1) | other
[-2,7] | [-2, 7] | same
[-2,7) | [-2,7] | other
(0,\frac{1}{2}) | (0, 0.5) | same
(1,2,3) | (1,2,3) | same
(1,2,3) | (3,2,1) | other
\{-1, 1\} | \{1,-1\} | same
(0, 9) | (9, 0) | other
[1, 4] | [1,4] | same
(-5, 5) | (-5,5) | same
\{5\} | 5 | same
[2, 3] | [2, 3.5] | other
(3, 4) | (3, 4.0) | same
(-\infty,-2)\cup(2,\infty) | (-\infty, -2) \cup (2, \infty) | same
# units, money, percent, degrees, large numbers
5 \text{ cm} | 5 | same
5\text{ cm} | 6\text{ cm} | other
12\text{ inches} | 12 | same
\$18 | 18 | same
\$18.90 | 18.9 | same
\$19 | 18 | other
25\% | 25 | same
25\% | 0.25 | same
30\% | 25 | other
90^\circ | 90 | same
90^{\circ} | 90 | same
45^\circ | 90 | other
1,000 | 1000 | same
1{,}000 | 1000 | same
10,000 | 1000 | other
1,234,567 | 1234567 | same
7\text{ pens} | 7 | same
7 \text{ hours} | 7 | same
8 \text{ hours} | 7 | other
3.0 | 3 | same
007 | 7 | same
100\text{ dollars} | 100 | same
-40 | -40 | same
40 | -40 | other
2.54\text{ cm} | 2.54 | same
6\text{ m}^2 | 6 | same
1.0\times 10^3 | 1000 | same
60\text{ miles} | 60 | same
61\text{ miles} | 60 | other
\$1,500 | 1500 | same
# texts and choices
\text{Evelyn} | Evelyn | same
\text{Evelyn} | \text{Carla} | other
\text{evelyn} | \text{Evelyn} | same
\text{(C)} | C | same
(C) | \text{C} | same
\text{(B)} | \text{(C)} | other
\text{even} | even | same
\text{odd} | \text{even} | other
\text{Tuesday} | \text{Tuesday} | same
\text{Monday} | \text{Tuesday} | other
\text{yes} | \text{Yes} | same
\text{no} | \text{yes} | other
\text{ellipse} | \text{ellipse} | same
\text{circle} | \text{ellipse} | other
\mathrm{east} | \text{east} | same
\text{west} | \text{east} | other
\textbf{(D)} | D | same
A | A | same
A | B | other
\text{red} | \text{blue} | other
# expressions and equations
6+9i | 9i+6 | same
6-9i | 6+9i | other
p-q | -q+p | same
q-p | p-q | other
2x+3 | 3+2x | same
2x-3 | 3+2x | other
y=2x+3 | y = 2x+3 | same
x=5 | 5 | same
x=4 | 5 | other
\sin^2 x+\cos^2 x | 1 | same
\tan x | \frac{\sin x}{\cos x} | same
\sin x | \cos x | other
\log_2 8 | 3 | same
\ln e | 1 | same
\ln 2 | \log_2 e | other
5! | 120 | same
5! | 125 | other
\binom{5}{2} | 10 | same
\binom{5}{2} | 20 | other
\left|-3\right| | 3 | same
\begin{pmatrix} 1 \\ 2 \end{pmatrix} | \begin{pmatrix} 1 \\ 2 \end{pmatrix} | same
\begin{pmatrix} 2 \\ 1 \end{pmatrix} | \begin{pmatrix} 1 \\ 2 \end{pmatrix} | other
3x^2y | 3yx^2 | same
3x^2y | 3xy^2 | other
(a+b)^2 | a^2+2ab+b^2 | same
(a+b)^2 | a^2+b^2 | other
x(x+1) | x^2+x | same
\frac{1}{x+1} | (x+1)^{-1} | same
2\pi | \pi\cdot 2 | same
2\pi | 6.28 | other
# whole numbers
56 | 56 | same
57 | 56 | other
5 | 56 | other
-5 | 5 | other
0 | 0 | same
+7 | 7 | same
12 | 21 | other
2 + 3 | 5 | same
3 \cdot 4 | 12 | same
3 \times 4 | 13 | other
100 | 1000 | other
144 | 144. | same
72000 | 72,000 | same
7200 | 72000 | other
13 | thirteen | other
1 | 14 | other
48 | 48 | same
4 8 | 49 | other
999 | 999 | same
1001 | 999 | other
\frac{3}{4} | 75\% | same
\frac{3}{4} | 74\% | other
-\sqrt{2} | \sqrt{2} | other
\sqrt{0.25} | \frac{1}{2} | same
(1, \sqrt{4}) | (1, 2) | same
[0, 1) | (0, 1] | other
3 \text{ kg} | 3 | same
3 \text{ kg} | 4 \text{ kg} | other
\text{Friday} | \text{friday} | same
\text{triangle} | \text{square} | other
2(x+3) | 2x+6 | same
2(x+3) | 2x+3 | other
"""


def pairs() -> list[tuple[str, str, bool]]:
    """Answer, right answer, and whether they are the same."""
    found = []
    for line in PAIRS.strip().splitlines():
        if not line.startswith("# "):
            answer, gold, verdict = line.rsplit(" | ", 2)
            found.append((answer, gold, verdict == "same"))
    return found
